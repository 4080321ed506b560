package main

// The canonical form: one text for all spellings of a value.

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// The functions for accepted texts, compared with tables and encoding/json.

func TestJSONString(t *testing.T) {
	for _, tt := range []struct {
		raw, want string
		ok        bool
	}{
		{`""`, "", true},
		{`"abc é 😀"`, "abc é 😀", true},
		{" \"a\"\n", "a", true},
		{`"\"\\\/\b\f\n\r\t"`, "\"\\/\b\f\n\r\t", true},
		{`"x\u0041\u00e9\uFFFD\ud83d\uDE00y"`, "xAé\ufffd😀y", true},
		{`"\\u0041\\"`, `\u0041\`, true},
		{`1`, "", false},
		{`null`, "", false},
		{`["a"]`, "", false},
		{``, "", false},
	} {
		if got, ok := jsonString([]byte(tt.raw)); got != tt.want || ok != tt.ok {
			t.Errorf("%s: got %q, %v; want %q, %v", tt.raw, got, ok, tt.want, tt.ok)
		}
	}
}

func TestJSONInt(t *testing.T) {
	for _, tt := range []struct {
		raw  string
		want int64
		ok   bool
	}{
		{"0", 0, true},
		{"-0", 0, true},
		{" 42\n", 42, true},
		{"-17", -17, true},
		{"9223372036854775807", math.MaxInt64, true},
		{"-9223372036854775808", math.MinInt64, true},
		{"9223372036854775808", 0, false},
		{"-9223372036854775809", 0, false},
		{"9223372036854775810", 0, false},
		{"92233720368547758070", 0, false},
		{"5.0", 5, true},
		{"1e2", 100, true},
		{"-1.50E+1", -15, true},
		{"1200e-2", 12, true},
		{"-0.0", 0, true},
		{"9223372036854775807.0", math.MaxInt64, true},
		{"922337203685477580.7e1", math.MaxInt64, true},
		{"9223372036854775808.0", 0, false},
		{"1e19", 0, false},
		{"1e308", 0, false},
		{"1.5", 0, false},
		{"1e-1", 0, false},
		{"1e-2000", 0, false},
		{"5." + strings.Repeat("0", 2000) + "1", 0, false},
		{`"1"`, 0, false},
		{"null", 0, false},
		{"[1]", 0, false},
		{"", 0, false},
	} {
		got, ok := jsonInt([]byte(tt.raw))
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("%s: got %d, %v; want %d, %v", tt.raw, got, ok, tt.want, tt.ok)
		}
	}
}

func TestJSONMembers(t *testing.T) {
	text := ` { "a" : 1 , "b\n\"" :{"x":[1,"}]"]}, "" : "\\" ,"c":[ ],"d": -1.5e3 , "e":null } `
	want := []string{"a", "1", "b\n\"", `{"x":[1,"}]"]}`, "", `"\\"`, "c", "[ ]", "d", "-1.5e3", "e", "null"}
	var got []string
	for key, value := range jsonMembers([]byte(text)) {
		got = append(got, key, string(value))
	}
	if !reflect.DeepEqual(got, want) || jsonLength([]byte(text)) != len(want)/2 {
		t.Errorf("got %q; want %q", got, want)
	}
	for _, text := range []string{`{}`, ` { } `, ``, `[]`, `[{"a":1}]`, `"{}"`, `null`, `0`} {
		for key := range jsonMembers([]byte(text)) {
			t.Errorf("%q: got a member %q; want none", text, key)
		}
	}
}

func TestJSONElements(t *testing.T) {
	text := "[ 1,[2,[3]] ,\t{\"a\":[\"]\"]},\"\\\"]\" , true\n]"
	want := []string{"1", "[2,[3]]", `{"a":["]"]}`, `"\"]"`, "true"}
	var got []string
	for value := range jsonElements([]byte(text)) {
		got = append(got, string(value))
	}
	if !reflect.DeepEqual(got, want) || jsonLength([]byte(text)) != len(want) {
		t.Errorf("got %q; want %q", got, want)
	}
	for _, text := range []string{" [ ]", `{"a":1}`, "", "null"} {
		for value := range jsonElements([]byte(text)) {
			t.Errorf("%q: got an element %s; want none", text, value)
		}
	}
}

// A value has no capacity to overwrite what follows it.
func TestJSONPartsCannotGrowIntoTheText(t *testing.T) {
	text := `{"a":1,"b":[2],"c":3}`
	data := []byte(text)
	for key, value := range jsonMemberBytes(data) {
		_, _ = append(key, "xxx"...), append(value, "xxx"...)
		for e := range jsonElements(value) {
			_ = append(e, "xxx"...)
		}
	}
	if string(data) != text {
		t.Errorf("got %s; want %s", data, text)
	}
}

func TestCompactJSON(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "",
		" 1 ":                                   "1",
		"{ }":                                   "{}",
		" { \"a b\" : [ 1.0 , \" \\\" \" ] }\n": `{"a b":[1.0," \" "]}`,
		`{"\u0061\/":"<>"}`:                     `{"\u0061\/":"<>"}`,
	} {
		if got := string(compactJSON([]byte("x"), []byte(text))); got != "x"+want {
			t.Errorf("%q: got %s; want x%s", text, got, want)
		}
	}
}

func TestMergeObjects(t *testing.T) {
	for _, tt := range []struct{ name, base, over, want string }{
		{"both empty", `{}`, ` { } `, `{}`},
		{"base only", `{"a":1,"b":{"c":2}}`, `{}`, `{"a":1,"b":{"c":2}}`},
		{"over only", `{}`, `{"a":1,"b":2}`, `{"a":1,"b":2}`},
		{"replaced in place", `{"a":1,"b":2,"c":3}`, `{"d":4,"b":[5]}`, `{"a":1,"b":[5],"c":3,"d":4}`},
		{"objects are not merged inside", `{"a":{"x":1}}`, `{"a":{"y":2}}`, `{"a":{"y":2}}`},
		{"null is a value", `{"a":1}`, `{"a":null}`, `{"a":null}`},
		{"all replaced", `{"a":1}`, `{"a":2}`, `{"a":2}`},
		{"other spelling of a name", `{"a":1}`, `{"\u0061":2,"\u00e9":3}`, `{"a":2,"\u00e9":3}`},
		{"white space between members", "{ \"a\" : 1 ,\n\"b\":2 }", `{ "b" : [ 3 ] }`, `{"a":1,"b":[ 3 ]}`},
		{"nothing at all", ``, ``, `{}`},
		{"no object below", `null`, `{"a":1}`, `{"a":1}`},
		{"no object above", `{"a":1}`, `[2]`, `{"a":1}`},
		{"a brace as the last byte", `{"a":"{"}`, `{"b":"{"}`, `{"a":"{","b":"{"}`},
	} {
		if got := string(mergeObjects([]byte("x"), []byte(tt.base), []byte(tt.over))); got != "x"+tt.want {
			t.Errorf("%s: got %s; want x%s", tt.name, got, tt.want)
		}
	}
}

func TestTextsKeepTheirMeaning(t *testing.T) {
	for n := range uint64(300) {
		text := newJSONMaker(n).text()
		checkJSONMeaning(t, text)
		checkJSONWalk(t, text)
	}
}

// checkJSONMeaning compares the value of an accepted text with that of encoding/json.
func checkJSONMeaning(t *testing.T, text []byte) {
	t.Helper()
	before := bytes.Clone(text)
	want := decodeJSON(t, text)
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if got := compactJSON(nil, text); !bytes.Equal(got, compact.Bytes()) {
		t.Fatalf("compact %q: got %s; want %s", text, got, compact.Bytes())
	}
	canonical := canonicalJSON(nil, text)
	if err := checkJSON(canonical); err != nil {
		t.Fatalf("canonical %q: got %s: %v", text, canonical, err)
	}
	if got := decodeJSON(t, canonical); !reflect.DeepEqual(got, want) {
		t.Fatalf("canonical %q: got %v; want %v", text, got, want)
	}
	if again := canonicalJSON(nil, canonical); !bytes.Equal(again, canonical) {
		t.Fatalf("canonical %q: got %s; want %s", canonical, again, canonical)
	}
	if got, want := mergeObjects(nil, text, text), walkedJSONObject(text); !bytes.Equal(got, want) {
		t.Fatalf("merged with itself %q: got %s; want %s", text, got, want)
	}
	if !bytes.Equal(text, before) {
		t.Fatalf("got the text changed to %q; want %q", text, before)
	}
}

// walkedJSONObject returns the members of text, or none, in an object without white space.
func walkedJSONObject(text []byte) []byte {
	dst := []byte("{")
	for name, value := range jsonParts(text, '{') {
		dst = appendJSONMember(dst, 1, name, value)
	}
	return append(dst, '}')
}

// checkJSONWalk compares the values met on the way through text with encoding/json.
func checkJSONWalk(t *testing.T, text []byte) {
	t.Helper()
	if got, want := rebuildJSON(text), decodeJSON(t, text); !reflect.DeepEqual(got, want) {
		t.Fatalf("%q: got %v; want %v", text, got, want)
	}
}

// rebuildJSON returns the value of text, read by the functions under test.
func rebuildJSON(text []byte) any {
	switch jsonKind(text) {
	case '{':
		object := map[string]any{}
		for key, value := range jsonMembers(text) {
			object[key] = rebuildJSON(value)
		}
		return object
	case '[':
		list := []any{}
		for value := range jsonElements(text) {
			list = append(list, rebuildJSON(value))
		}
		return list
	case '"':
		s, _ := jsonString(text)
		return s
	case '0':
		return json.Number(bytes.TrimSpace(text))
	case 'n':
		return nil
	default:
		return jsonKind(text) == 't'
	}
}

func decodeJSON(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}

func FuzzAppendJSONString(f *testing.F) {
	f.Add("plain")
	f.Add("\"\\\x00\n\xff\u2028😀")
	f.Fuzz(func(t *testing.T, s string) {
		text := appendJSONString(nil, s)
		want := string([]rune(s)) // with U+FFFD for each byte that is not UTF-8
		if got, ok := jsonString(text); !ok || got != want {
			t.Fatalf("%q: got %q, %v; want %q", s, got, ok, want)
		}
		if got := decodeJSON(t, text); got != any(want) {
			t.Fatalf("%s: got %q from encoding/json; want %q", text, got, want)
		}
	})
}

func TestCanonicalJSON(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", ``, ``},
		{"a literal", ` true `, `true`},
		{"numbers as written", `[1.0, 1, 1e0, 10E-1, -0]`, `[1.0,1,1e0,10E-1,-0]`},
		{"arrays keep their order", `[ 3 , [ ] , { } , 1 ]`, `[3,[],{},1]`},
		{"members sorted", `{"b":1,"a":2,"c":3}`, `{"a":2,"b":1,"c":3}`},
		{"at every level", `{"b":[{"z":1,"y":{"d":1,"c":2}}],"a":{"b":1,"a":2}}`,
			`{"a":{"a":2,"b":1},"b":[{"y":{"c":2,"d":1},"z":1}]}`},
		{"by bytes", `{"é":1,"a":2,"Z":3,"":4,"aa":5,"_":6}`, `{"":4,"Z":3,"_":6,"a":2,"aa":5,"é":1}`},
		{"by UTF-8, not UTF-16", `{"😀":1,"\uffff":2}`, "{\"\uffff\":2,\"😀\":1}"},
		{"by the unescaped name", `{"\u0062":1,"c":2,"a":3}`, `{"a":3,"b":1,"c":2}`},
		{"control characters before letters", `{"a":1,"\n":2,"!":3,"\"":4}`, `{"\n":2,"!":3,"\"":4,"a":1}`},
		{"strings escaped minimally", `["\u0041\/\u00e9\ud83d\ude00","\u000a\u001F\u0022\u005c\u007f"]`,
			"[\"A/é😀\",\"\\n\\u001f\\\"\\\\\x7f\"]"},
		{"strings with brackets", `{"b":"}{","a":"],["}`, `{"a":"],[","b":"}{"}`},
	} {
		if got := string(canonicalJSON([]byte("x"), []byte(tt.text))); got != "x"+tt.want {
			t.Errorf("%s: got %s; want x%s", tt.name, got, tt.want)
		}
	}
}

func TestCanonicalJSONIsOneForAllSpellings(t *testing.T) {
	for n := range uint64(300) {
		m := newJSONMaker(n)
		v := m.value(0)
		one, other := m.spell(nil, v), m.spell(nil, v)
		if got, want := canonicalJSON(nil, one), canonicalJSON(nil, other); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: got %s; want %s", n, got, want)
		}
	}
}

func FuzzJSONText(f *testing.F) {
	for n := range uint64(20) {
		f.Add(newJSONMaker(n).text())
	}
	f.Add([]byte(jsonCreationBody))
	f.Fuzz(func(t *testing.T, text []byte) {
		if checkJSON(text) != nil {
			return
		}
		checkJSONMeaning(t, text)
		checkJSONTree(t, text)
		checkJSONWalk(t, text)
		if got, ok := jsonInt(text); jsonIntegerLiteral(text) && (!ok || got != decodedJSONInt(t, text)) {
			t.Fatalf("%q: got %d, %v", text, got, ok)
		}
	})
}

// checkJSONTree checks that a tree has every value of a text at its place, within the memory that was foreseen.
func checkJSONTree(t *testing.T, text []byte) {
	t.Helper()
	n := newJSONValue(text)
	if got, most := len(n.tree.nodes)*jsonNodeBytes, treeBytes(text); got > most || cap(n.tree.nodes)*jsonNodeBytes > most {
		t.Fatalf("%q: got %d bytes; want at most %d", text, got, most)
	}
	var rebuilt func(n jsonValue) any
	rebuilt = func(n jsonValue) any {
		switch n.kind() {
		case '{':
			object := map[string]any{}
			for name, value := range n.inner() {
				object[string(name.text())] = rebuilt(value)
				if found, ok := n.find(string(name.text())); !ok || found != value {
					t.Fatalf("%q: got %v for %s; want it found", text, found, name.raw())
				}
			}
			return object
		case '[':
			list := []any{}
			for _, value := range n.inner() {
				list = append(list, rebuilt(value))
			}
			return list
		}
		return decodeJSON(t, n.raw())
	}
	if got, want := rebuilt(n), decodeJSON(t, text); !reflect.DeepEqual(got, want) {
		t.Fatalf("%q: got %v; want %v", text, got, want)
	}
	if !sameJSON(text, canonicalJSON(nil, text)) {
		t.Fatalf("%q: got another value than the canonical form; want the same", text)
	}
}

// TestJSONWithin compares values, whole and in part.
func TestJSONWithin(t *testing.T) {
	for _, row := range []struct {
		a, b       string
		same, part bool
	}{
		{`1`, `1.0`, true, true}, {`1e2`, `100`, true, true}, {`-0`, `0`, true, true}, {`1`, `"1"`, false, false},
		{`"\u0061"`, `"a"`, true, true}, {`null`, `false`, false, false}, {`true`, `false`, false, false},
		{`[1,[2,{"a":3}]]`, `[1.0,[2,{"a":3e0}]]`, true, true}, {`[1]`, `[1,2]`, false, false}, {`[1,2]`, `[2,1]`, false, false},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, true, true}, {`{"a":1}`, `{"a":1,"b":2}`, false, true}, {`{"a":1,"b":2}`, `{"a":1}`, false, false},
		{`{"a":{}}`, `{"a":{"b":1}}`, false, true}, {`{"a":[{}]}`, `{"a":[{"b":1}]}`, false, false}, {`{}`, `[]`, false, false},
		{jsonObjectOf(40, jsonMemberName), jsonObjectOf(50, jsonMemberName), false, true},
	} {
		for more, want := range map[bool]bool{false: row.same, true: row.part} {
			got := sameJSON([]byte(row.a), []byte(row.b))
			if more {
				got = newJSONValue([]byte(row.a)).within(newJSONValue([]byte(row.b)))
			}
			if got != want {
				t.Errorf("%.60s in %.60s, more %v: got %v; want %v", row.a, row.b, more, got, want)
			}
		}
	}
}

func jsonIntegerLiteral(text []byte) bool {
	_, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return err == nil
}

func decodedJSONInt(t *testing.T, text []byte) int64 {
	n, err := decodeJSON(t, text).(json.Number).Int64()
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return n
}

// sameJSON reports whether two texts spell the same value.
func sameJSON(a, b []byte) bool {
	return bytes.Equal(newJSONValue(a).normal(nil), newJSONValue(b).normal(nil))
}

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
