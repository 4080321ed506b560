package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestAppendJSONString(t *testing.T) {
	for s, want := range map[string]string{
		"":                        `""`,
		"plain / <html> & 'x'":    `"plain / <html> & 'x'"`,
		"\"\\\b\f\n\r\t":          `"\"\\\b\f\n\r\t"`,
		"\x00\x01\x1f\x7f":        "\"\\u0000\\u0001\\u001f\x7f\"",
		"é€😀\u2028\ufeff\ufffd":   "\"é€😀\u2028\ufeff\ufffd\"",
		"a\xffb\xe2\x82c\xed\xa0": "\"a\ufffdb\ufffd\ufffdc\ufffd\ufffd\"",
	} {
		if got := string(appendJSONString([]byte("x"), s)); got != "x"+want {
			t.Errorf("%q: got %s; want x%s", s, got, want)
		}
	}
}

// wireView has members of all kinds that views have.
type wireView struct {
	Name   string            `json:"name"`
	Plain  wirePart          `json:"plain"`
	Parts  []wirePart        `json:"parts"`
	Names  []string          `json:"names"`
	Raw    json.RawMessage   `json:"raw"`
	NoRaw  json.RawMessage   `json:"no_raw"`
	Any    any               `json:"any"`
	None   any               `json:"none"`
	Deep   *wireDeep         `json:"deep"`
	NoDeep *wireDeep         `json:"no_deep"`
	Few    []int             `json:"few,omitempty"`
	No     []int             `json:"no,omitempty"`
	NoText string            `json:"no_text,omitempty"`
	NoNum  int               `json:"no_num,omitempty"`
	NoPart *wirePart         `json:"no_part,omitempty"`
	Table  map[string]string `json:"table"`
	ID     uuid              `json:"id"`
	At     zonedTime         `json:"at"`
	Hidden []int             `json:"-"`
	Untold []string
	wirePart
	*wireDeep
	secret []int
}

type wirePart struct {
	N    int     `json:"n"`
	Text *string `json:"text"`
	Bare float64
}

type wireDeep struct {
	All [][]wirePart `json:"all"`
}

func wireViews() []any {
	text := "<a> & \"b\" ü\n"
	full := wireView{
		Name: text, Plain: wirePart{1, &text, 0.5}, Parts: []wirePart{{2, nil, 1e21}, {}}, Names: []string{"", text},
		Raw: json.RawMessage(`{"a":[1,"<"]}`), Any: []wirePart{{3, &text, 0}}, Deep: &wireDeep{[][]wirePart{nil, {}, {{}}}},
		Few: []int{0}, Table: map[string]string{"b": "1", "a": text}, ID: uuid{15: 1}, At: zonedTime(testStart),
		Hidden: []int{1}, Untold: []string{"told"}, wirePart: wirePart{N: 4}, wireDeep: &wireDeep{}, secret: []int{1},
	}
	return []any{full, &full, wireView{}, []wireView{full, {}}, map[string]wirePart{"x": {}}, nil, "text", 7, true,
		[]any{nil, 1, "a", []string(nil)}, (*wireView)(nil), json.RawMessage(nil), zonedTime(0)}
}

// TestWriterWritesLikeEncodingJSON, for views of all kinds.
func TestWriterWritesLikeEncodingJSON(t *testing.T) {
	for _, v := range wireViews() {
		var want bytes.Buffer
		noError(t, encodeJSON(&want, v))
		if got := string(jsonOf(v)); got+"\n" != want.String() {
			t.Errorf("%T: got\n%s\nwant\n%s", v, got, &want)
		}
	}
	var o jsonWriter
	if o.value([]any{1, math.NaN()}); o.err == nil {
		t.Errorf("got %s; want an error", o.b)
	}
}

// pieceSink collects pieces, up to a number.
type pieceSink struct {
	pieces [][]byte
	most   int
}

func (s *pieceSink) pass(piece []byte) error {
	if len(s.pieces) == s.most {
		return errors.New("enough")
	}
	s.pieces = append(s.pieces, bytes.Clone(piece))
	return nil
}

func (s *pieceSink) hold(int) error { return nil }

// TestWriterPassesPieces: a long text goes out in pieces, which are not much longer than
// jsonPiece unless they are passed on as they are, and ends with the first failure.
func TestWriterPassesPieces(t *testing.T) {
	raw := json.RawMessage(`"` + strings.Repeat("r", 3*jsonPiece) + `"`)
	made := 0
	long := struct {
		List jsonList          `json:"list"`
		Raw  json.RawMessage   `json:"raw"`
		Some []json.RawMessage `json:"some"`
	}{jsonListOf(1000, func(i int) string { made++; return strings.Repeat("y", 500) }), raw, []json.RawMessage{raw, nil, raw}}
	want := string(jsonOf(long))
	if !json.Valid([]byte(want)) {
		t.Fatalf("got %.100s…", want)
	}
	sink := &pieceSink{most: 1000}
	o := jsonWriter{to: sink}
	o.value(long)
	o.flush()
	if got := string(bytes.Join(sink.pieces, nil)); got != want || o.err != nil {
		t.Errorf("got %d bytes, %v; want %d", len(got), o.err, len(want))
	}
	for _, p := range sink.pieces {
		if len(p) > jsonPiece+1000 && len(p) != len(raw) {
			t.Errorf("got a piece of %d bytes", len(p))
		}
	}
	sink, made = &pieceSink{most: 2}, 0
	o = jsonWriter{to: sink}
	if o.value(long); o.err == nil || made > 3*jsonPiece/500+3 || len(o.b) > jsonPiece {
		t.Errorf("after a failure %d elements were made and %d bytes written, %v", made, len(o.b), o.err)
	}
}

// encodeJSON appends v and a newline, as encoding/json writes it without escapes of <, > and &.
func encodeJSON(b *bytes.Buffer, v any) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
