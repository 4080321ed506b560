package main

// The scanner, compared with a table, with encoding/json plus the stricter rules, and
// with every prefix of what it accepts.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

// nestedJSONArrays returns n nested arrays.
func nestedJSONArrays(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// jsonObjectOf returns an object with n members, name(0) to name(n-1).
func jsonObjectOf(n int, name func(i int) string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ",%s:%d", appendJSONString(nil, name(i)), i)
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

func jsonMemberName(i int) string { return "member_" + strconv.Itoa(i) }

func TestCheckJSONAccepts(t *testing.T) {
	for _, text := range []string{
		`0`, `-0`, `1`, `-1.5`, `10.25e+3`, `1E5`, `0e0`, `0.0`, `true`, `false`, `null`, `""`, `{}`, `[]`,
		" \t\r\n1\n ", `[ ]`, `{ }`, `[1 , 2]`, `{ "a" : 1 , "b" : [ null ] }`,
		`"\"\\\/\b\f\n\r\tA\u00e9"`, `"\ud83d\ude00"`, `"\uD83D\uDE00"`, `"\uFFFF\u0001\ud7ff\ue000"`,
		"\"\x7f é € 😀 \u2028 \ufeff\"", `{"":1}`, `{"a":{"a":{"a":1}},"b":{"a":1}}`, `[{"a":1},{"a":1}]`,
		`{"a":1,"A":2}`, `{"a":1,"\\u0061":2}`, `{"\u0061":1,"b":2,"\u0063":3}`,
		`1e308`, `-1.7976931348623157e308`, `1.7976931348623158e308`, `0.1e309`, `179769313486231570e291`,
		`1e-400`, `-1e-99999999999999999999`, `0e99999999999999999999`, `0.000e400`,
		"1" + strings.Repeat("0", 308), strings.Repeat("9", 308), "0." + strings.Repeat("7", 5000),
		"0." + strings.Repeat("0", 500) + "1e800", strings.Repeat("1", 400) + "e-100",
		nestedJSONArrays(64), strings.Repeat(`{"a":`, 63) + `[1]` + strings.Repeat(`}`, 63),
		"[" + nestedJSONArrays(63) + "," + nestedJSONArrays(63) + "]",
		jsonObjectOf(16, jsonMemberName), jsonObjectOf(17, jsonMemberName), jsonObjectOf(5000, jsonMemberName),
	} {
		if err := checkJSON([]byte(text)); err != nil {
			t.Errorf("%.60q: got %v; want it accepted", text, err)
		}
	}
}

func TestCheckJSONRefuses(t *testing.T) {
	t.Parallel()
	const unexpectedEnd, tooLarge = "unexpected end", "number beyond the range of a float64"
	for _, tt := range []struct {
		text   string
		offset int
		reason string
	}{
		{"", 0, unexpectedEnd},
		{" \n", 2, unexpectedEnd},

		{"\ufeff{}", 0, "unexpected character '\\ufeff', want a value"},
		{"\xff\xfe{\x00", 0, "UTF-16; want UTF-8"},
		{"{\x00}\x00", 1, "UTF-16; want UTF-8"},
		{"[\ufeff]", 1, "unexpected character '\\ufeff', want a value"},
		{"{}\x00", 2, `unexpected character '\x00', want the end`},
		{"\xff", 0, "invalid UTF-8"},
		{"1\xff", 1, "invalid UTF-8"},
		{`{} {}`, 3, `unexpected character '{', want the end`},
		{`-a`, 1, `unexpected character 'a', want a digit`},
		{`[1.]`, 3, `unexpected character ']', want a digit`},
		{`nul1`, 3, `unexpected character '1', want null`},
		{`[1 2]`, 3, `unexpected character '2', want ',' or ']'`},
		{`[1}`, 2, `unexpected character '}', want ',' or ']'`},
		{`{"a":1,}`, 7, `unexpected character '}', want a member name`},
		{`{a:1}`, 1, `unexpected character 'a', want a member name`},
		{`{"a" 1}`, 5, `unexpected character '1', want ':'`},
		{`{"a":1 "b":2}`, 7, `unexpected character '"', want ',' or '}'`},

		{"\"a\nb\"", 2, "U+000A in a string"},
		{"\"a\x00b\"", 2, "U+0000 in a string"},
		{`"ab\u0000"`, 3, "U+0000 in a string"},
		{`"\a"`, 1, "invalid escape"},
		{`"\U0041"`, 1, "invalid escape"},
		{`"a\ud83d"`, 2, `lone surrogate \ud83d`},
		{`"a\ud83db"`, 2, `lone surrogate \ud83d`},
		{`"\ud83d\n"`, 1, `lone surrogate \ud83d`},

		{`{"a":1234567890,"a":1}`, 16, `duplicate member "a"`},
		{`{"a":1,"\u0061":2}`, 7, `duplicate member "a"`},
		{`{"\u0061":1,"a":2}`, 12, `duplicate member "a"`},
		{`{"\u0061":1,"\u0061":2}`, 12, `duplicate member "a"`},
		{`{"x` + strings.Repeat("é", 50) + `":1,"x` + strings.Repeat("é", 50) + `":1}`, 107,
			`duplicate member "x` + strings.Repeat("é", 31) + `…"`},

		{`[1e400]`, 1, tooLarge},
		{`-1e309`, 0, tooLarge},
		{`1.8e308`, 0, tooLarge},
		{strings.Repeat("9", 309), 0, tooLarge},

		{nestedJSONArrays(65), 64, "deeper than 64 levels"},
		{strings.Repeat("[", 10_000_000), 64, "deeper than 64 levels"},
		{strings.Repeat(`{"a":`, 10_000), 320, "deeper than 64 levels"},
	} {
		got, ok := errors.AsType[*jsonError](checkJSON([]byte(tt.text)))
		if !ok {
			t.Errorf("%.60q: got it accepted; want %q at %d", tt.text, tt.reason, tt.offset)
			continue
		}
		if *got != (jsonError{tt.offset, tt.reason}) {
			t.Errorf("%.60q: got %q at %d; want %q at %d", tt.text, got.reason, got.offset, tt.reason, tt.offset)
		}
	}
}

// A duplicate is found wherever it is, in objects below and above the size at which
// names are indexed.
func TestCheckJSONFindsDuplicatesAtEverySize(t *testing.T) {
	for _, n := range []int{1, 2, 15, 16, 17, 18, 33, 1000} {
		text := jsonObjectOf(n, jsonMemberName)
		for _, name := range []string{jsonMemberName(0), jsonMemberName(n / 2), jsonMemberName(n - 1)} {
			for _, spelled := range []string{name, `\u006d` + name[1:]} {
				double := text[:len(text)-1] + `,"` + spelled + `":0}`
				want := jsonError{len(text), `duplicate member "` + name + `"`}
				got, ok := errors.AsType[*jsonError](checkJSON([]byte(double)))
				if !ok || *got != want {
					t.Errorf("%d members, %s: got %v; want %v", n, spelled, got, &want)
				}
			}
		}
	}
}

func TestCheckJSONAgreesOnGeneratedTexts(t *testing.T) {
	sequential(t)
	t.Parallel()
	for n := range uint64(300) {
		m := newJSONMaker(n)
		text := m.text()
		if err := checkJSON(text); err != nil {
			t.Fatalf("seed %d: %s: %v", n, text, err)
		}
		for range 50 {
			compareJSONWithReference(t, m.damaged(text))
		}
	}
}

func TestCheckJSONDoesNotAllocate(t *testing.T) {
	for _, text := range []string{
		jsonCreationBody, jsonObjectOf(16, jsonMemberName), nestedJSONArrays(64), `["\ud83d\ude00",1e10,"é"]`,
	} {
		data := []byte(text)
		if got := testing.AllocsPerRun(100, func() { checkJSON(data) }); got != 0 {
			t.Errorf("%.60s: got %v allocations; want none", text, got)
		}
	}
}

// compareJSONWithReference fails the test unless the scanner and the reference
// agree on text.
func compareJSONWithReference(t *testing.T, text []byte) {
	t.Helper()
	err := checkJSON(text)
	reason := jsonReferenceRefusal(text)
	if (err == nil) != (reason == "") {
		t.Fatalf("%q: got %v; want %q", text, err, reason)
	}
	if e, ok := errors.AsType[*jsonError](err); ok && (e.offset < 0 || e.offset > len(text)) {
		t.Fatalf("%q: got offset %d; want one inside", text, e.offset)
	}
}

var (
	jsonSurrogatePair = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)
	jsonSurrogate     = regexp.MustCompile(`\\u[dD][89a-fA-F]`)
)

// jsonReferenceRefusal returns why a text is refused, or "", by a slow and simple
// implementation on encoding/json.
func jsonReferenceRefusal(text []byte) string {
	if !json.Valid(text) || !utf8.Valid(text) {
		return "no JSON"
	}
	escapes := bytes.ReplaceAll(text, []byte(`\\`), nil)
	if jsonSurrogate.Match(jsonSurrogatePair.ReplaceAll(escapes, nil)) {
		return "lone surrogate"
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return jsonReferenceValue(d, 0)
}

func jsonReferenceValue(d *json.Decoder, depth int) string {
	token, err := d.Token()
	if err != nil {
		return err.Error()
	}
	switch v := token.(type) {
	case string:
		if strings.ContainsRune(v, 0) {
			return "U+0000"
		}
	case json.Number:
		if _, err := v.Float64(); err != nil {
			return "infinite"
		}
	case json.Delim:
		return jsonReferenceNested(d, v, depth+1)
	}
	return ""
}

func jsonReferenceNested(d *json.Decoder, open json.Delim, depth int) string {
	if depth > 64 {
		return "too deep"
	}
	seen := map[string]bool{}
	for d.More() {
		if open == '{' {
			token, err := d.Token()
			name, ok := token.(string)
			if err != nil || !ok || seen[name] || strings.ContainsRune(name, 0) {
				return "bad or duplicate name"
			}
			seen[name] = true
		}
		if reason := jsonReferenceValue(d, depth); reason != "" {
			return reason
		}
	}
	if _, err := d.Token(); err != nil && err != io.EOF {
		return err.Error()
	}
	return ""
}

// jsonMaker makes JSON texts that the scanner accepts, in many spellings.
type jsonMaker struct{ *rand.Rand }

func newJSONMaker(seed uint64) jsonMaker { return jsonMaker{rand.New(rand.NewPCG(seed, 7))} }

// text returns a random value in a random spelling.
func (m jsonMaker) text() []byte { return m.spell(nil, m.value(0)) }

// value returns a random nil, bool, json.Number, string, []any or map[string]any.
func (m jsonMaker) value(depth int) any {
	kinds := 6
	if depth > 4 {
		kinds = 4
	}
	switch m.IntN(kinds) {
	case 0:
		return []any{nil, true, false}[m.IntN(3)]
	case 1, 2:
		return m.string()
	case 3:
		return m.number()
	case 4:
		list := make([]any, m.IntN(5))
		for i := range list {
			list[i] = m.value(depth + 1)
		}
		return list
	}
	object := map[string]any{}
	for range m.size() {
		object[m.string()] = m.value(depth + 1)
	}
	return object
}

// size returns a number of members, sometimes more than are compared one by one.
func (m jsonMaker) size() int {
	if m.IntN(10) == 0 {
		return m.IntN(40)
	}
	return m.IntN(6)
}

func (m jsonMaker) string() string {
	alphabet := []rune("aab\"\\/\b\f\n\r\t\x01\x1f\x7f é€😀\u2028\ufffd\uffff𝄞")
	r := make([]rune, m.IntN(8))
	for i := range r {
		r[i] = alphabet[m.IntN(len(alphabet))]
	}
	return string(r)
}

func (m jsonMaker) number() json.Number {
	forms := []string{
		"0", "-0", "%d", "-%d", "%d.50", "0.00%d", "%de5", "%dE-3", "1.%de+2", "12345678901234567890%d",
	}
	form := forms[m.IntN(len(forms))]
	if !strings.Contains(form, "%d") {
		return json.Number(form)
	}
	return json.Number(fmt.Sprintf(form, 1+m.IntN(1000)))
}

// spell appends v with random white space, member order and escapes.
func (m jsonMaker) spell(dst []byte, v any) []byte {
	dst = m.space(dst)
	switch v := v.(type) {
	case nil:
		dst = append(dst, "null"...)
	case bool:
		dst = strconv.AppendBool(dst, v)
	case json.Number:
		dst = append(dst, v...)
	case string:
		dst = m.spellString(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = m.spell(dst, e)
		}
		dst = append(m.space(dst), ']')
	case map[string]any:
		dst = m.spellObject(dst, v)
	}
	return m.space(dst)
}

func (m jsonMaker) spellObject(dst []byte, object map[string]any) []byte {
	dst = append(dst, '{')
	first := len(dst)
	names := slices.Sorted(maps.Keys(object))
	m.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		if len(dst) > first {
			dst = append(dst, ',')
		}
		dst = m.space(m.spellString(m.space(dst), name))
		dst = m.spell(append(dst, ':'), object[name])
	}
	return append(m.space(dst), '}')
}

func (m jsonMaker) spellString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch {
		case r > 0xffff && m.IntN(2) == 0:
			r -= 0x10000
			dst = fmt.Appendf(dst, `\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		case r == '/' && m.IntN(2) == 0:
			dst = append(dst, `\/`...)
		case r <= 0xffff && m.IntN(4) == 0:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		default:
			dst = appendJSONRune(dst, r)
		}
	}
	return append(dst, '"')
}

func (m jsonMaker) space(dst []byte) []byte {
	for m.IntN(4) == 0 {
		dst = append(dst, " \n\r\t"[m.IntN(4)])
	}
	return dst
}

// damaged returns text with one place changed.
func (m jsonMaker) damaged(text []byte) []byte {
	at := m.IntN(len(text) + 1)
	after := min(len(text), at+m.IntN(3))
	pieces := []string{
		"", `"`, `\`, `\u00`, `\ud83d`, `\u0000`, `"a":1,`, `"b":{},`, "\x00", "\xff", "\xe2\x82", "\n",
		"{", "}", "[", "]", ",", ":", "1", "e999", ".", "-", "null",
	}
	return bytes.Join([][]byte{text[:at], text[after:]}, []byte(pieces[m.IntN(len(pieces))]))
}

func FuzzCheckJSON(f *testing.F) {
	for n := range uint64(20) {
		f.Add(newJSONMaker(n).text())
	}
	for _, text := range []string{
		jsonCreationBody, `{"a":1,"\u0061":2}`, `"\ud83d"`, `1e400`, nestedJSONArrays(65), "\ufeff1", ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { compareJSONWithReference(t, text) })
}

// jsonCreationBody is a request of the usual size.
const jsonCreationBody = `{"name": "order_processing", "namespace": "ecommerce", "version": "1.0.0",
  "context": {"order_id": 1234567, "customer": {"email": "someone@example.com", "name": "Zoë", "vip": false},
    "items": [{"sku": "A-1001", "quantity": 2, "price": 19.99}, {"sku": "B-2002", "quantity": 1, "price": 5.00}],
    "total": 44.98, "note": null},
  "initiator": "web", "source_system": "shop", "reason": "order \"1234567\" was paid",
  "tags": ["paid", "priority"], "priority": 5, "correlation_id": "019a2b3c-4d5e-7f80-8123-456789abcdef"}`

// utf16Text returns a text as Windows programs write "Unicode".
func utf16Text(text string) []byte {
	b := []byte{0xff, 0xfe}
	for _, unit := range utf16.Encode([]rune(text)) {
		b = append(b, byte(unit), byte(unit>>8))
	}
	return b
}

// TestByteOrderMarks reads JSON with a byte order mark, and in UTF-16, at each door of texts from outside.
func TestByteOrderMarks(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "templates/demo"})
	t.Chdir(t.TempDir())
	p := &process{}
	definition := `{"name":"a","version":"1.0.0","steps":[]}`
	for name, door := range map[string]func(text []byte) error{
		"an argument": func(text []byte) error {
			_, err := p.jsonArgument("--x", string(text))
			return err
		},
		"a file of an argument": func(text []byte) error {
			writeFile(t, "x.json", text)
			_, err := p.jsonArgument("--x", "@x.json")
			return err
		},
		"a variable": func(text []byte) error {
			_, err := parseConfigJSON(string(text), '{')
			return err
		},
		"a body": func(text []byte) error {
			r := httptest.NewRequest("POST", "/v1/tasks", bytes.NewReader(text))
			r.Header.Set("Content-Type", jsonType)
			_, err := readBody(r)
			return err
		},
		"a reply of a handler": func(text []byte) error {
			if o := parseReply(text, 1<<20); !o.success {
				return errors.New(o.err.message)
			}
			return nil
		},
		"a reply of a service": func(text []byte) error {
			if readDocument(text).raw == nil {
				return errors.New("UTF-16 or so")
			}
			return nil
		},
		"a template": func(text []byte) error {
			for _, ext := range []string{".json", ".yaml"} {
				writeFile(t, "t"+ext, bytes.Replace(text, []byte("{}"), []byte(definition), 1))
				if ext == ".yaml" && isUTF16(text) {
					writeFile(t, "t"+ext, utf16Text(definition))
				}
				if _, _, err := loadTemplates([]string{"t" + ext}, "", nil); err != nil {
					return err
				}
			}
			return nil
		},
		"a state": func(text []byte) error {
			if isUTF16(text) {
				text = utf16Text(emptyState)
			}
			_, err := storeOf(&stateSource{document: bytes.NewReader(bytes.Replace(text, []byte("{}"), []byte(emptyState), 1))}, slog.New(slog.DiscardHandler))
			return err
		},
	} {
		for _, good := range []string{"{}", "\ufeff{}"} {
			if err := door([]byte(good)); err != nil {
				t.Errorf("%s %q: got %v", name, good, err)
			}
		}
		if err := door(utf16Text("{}")); err == nil || !strings.Contains(err.Error(), "UTF-16") {
			t.Errorf("%s in UTF-16: got %v; want UTF-16 to be named", name, err)
		}
	}
	r := must(http.NewRequest("POST", s.url+"/v1/tasks", strings.NewReader("\ufeff"+`{"namespace":"demo","name":"diamond"}`)))(t)
	r.Header.Set("Content-Type", jsonType)
	if resp := must(http.DefaultClient.Do(r))(t); resp.StatusCode >= 300 {
		t.Errorf("a new task: got %s", resp.Status)
	}
}
