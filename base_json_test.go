package main

// The canonical form: one text for all spellings of a value.

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestCanonicalJSONSortsManyMembers(t *testing.T) {
	const n = 1000
	text := jsonObjectOf(n, func(i int) string { return jsonMemberName(n - 1 - i) })
	var names, want []string
	for key, value := range jsonMembers(canonicalJSON(nil, []byte(text))) {
		names = append(names, key)
		want = append(want, jsonMemberName(n-1-must(strconv.Atoi(string(value)))(t)))
	}
	if len(names) != n || !slices.IsSorted(names) || !slices.Equal(names, want) {
		t.Errorf("got %d members, sorted %v, with their values %v; want %d, true, true",
			len(names), slices.IsSorted(names), slices.Equal(names, want), n)
	}
}

// The functions for accepted texts, compared with tables and encoding/json.

func TestJSONKind(t *testing.T) {
	for text, want := range map[string]byte{
		`{}`: '{', "\n [1]": '[', `"a"`: '"', `null`: 'n', `true`: 't', `false`: 'f',
		`0`: '0', `7`: '0', `-7`: '0', ``: 0, ` `: 0,
	} {
		if got := jsonKind([]byte(text)); got != want {
			t.Errorf("%q: got %q; want %q", text, got, want)
		}
	}
}

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

func TestWalkingDoesNotAllocate(t *testing.T) {
	data, sum := []byte(jsonCreationBody), 0
	if got := testing.AllocsPerRun(100, func() {
		for key, value := range jsonMemberBytes(data) {
			switch string(key) {
			case "priority":
				n, _ := jsonInt(value)
				sum += int(n)
			case "tags":
				for tag := range jsonElements(value) {
					sum += len(tag)
				}
			}
		}
	}); got != 0 {
		t.Errorf("got %v allocations; want none", got)
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

func TestMergeObjectsOfEverySize(t *testing.T) {
	for _, sizes := range [][2]int{{3, 40}, {40, 3}, {16, 16}, {17, 17}, {100, 1000}} {
		base := jsonObjectOf(sizes[0], jsonMemberName)
		over := jsonObjectOf(sizes[1], func(i int) string { return jsonMemberName(2 * i) })
		got := decodeJSON(t, mergeObjects(nil, []byte(base), []byte(over)))
		want := decodeJSON(t, []byte(base)).(map[string]any)
		for name, v := range decodeJSON(t, []byte(over)).(map[string]any) {
			want[name] = v
		}
		if !reflect.DeepEqual(got, any(want)) {
			t.Errorf("%v: got %v; want %v", sizes, got, want)
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
	for w := walkJSON(text, '{'); w.nextMember(); {
		dst = appendJSONMember(dst, 1, w.name, w.value)
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

func BenchmarkCompactJSON(b *testing.B) {
	data, dst := []byte(jsonCreationBody), make([]byte, 0, 1024)
	b.Run("compactJSON", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			compactJSON(dst, data)
		}
	})
	b.Run("json.Compact", func(b *testing.B) {
		b.ReportAllocs()
		var buf bytes.Buffer
		for b.Loop() {
			buf.Reset()
			json.Compact(&buf, data)
		}
	})
}

func BenchmarkJSONMembers(b *testing.B) {
	data := []byte(jsonCreationBody)
	b.Run("strings", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for range jsonMembers(data) {
			}
		}
	})
	b.Run("bytes", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for range jsonMemberBytes(data) {
			}
		}
	})
}

func BenchmarkMergeObjects(b *testing.B) {
	base, over, dst := []byte(`{"currency":"EUR","priority":1}`), []byte(jsonCreationBody), make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		mergeObjects(dst, base, over)
	}
}

// TestSkipLongArrays skips arrays of strings, and what looks like them.
func TestSkipLongArrays(t *testing.T) {
	names := strings.Repeat(`"name",`, 20)
	for _, text := range []string{
		`[` + names + `"last"]`, `[ ` + names + ` "last" ]`, `[` + names + `"a]b"]`, `[` + names + `"a[b"]`,
		`[` + names + `"a\"]b"]`, `[` + names + `"a\\"]`, `[` + names + `["b"],"c"]`, `[` + names + `{"b":[]},"c"]`,
		`[` + names + `1,null]`, `["a",` + names + `{"b":"]"}]`, `{"a":[` + names + `"b"],"c":["d"]}`, `[[` + names + `"b"],"c"]`,
	} {
		if err := checkJSON([]byte(text)); err != nil {
			t.Fatal(text, err)
		}
		if got := skipJSONValue([]byte(text+`,"x"]`), 0); got != len(text) {
			t.Errorf("%s: got an end at %d; want %d", text, got, len(text))
		}
	}
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

// A deep text in the wrong order is not scanned again at each level.
func BenchmarkCanonicalJSON(b *testing.B) {
	const levels = 62
	long := `"` + strings.Repeat("x", 100_000) + `"`
	deep := strings.Repeat(`{"b":1,"a":`, levels) + long + strings.Repeat("}", levels)
	for _, bench := range []struct{ name, text string }{
		{"creation body", jsonCreationBody},
		{"sorted", jsonObjectOf(16, func(i int) string { return string(rune('a' + i)) })},
		{"deep", deep},
		{"object of 100000", jsonObjectOf(100_000, jsonMemberName)},
	} {
		data, dst := []byte(bench.text), make([]byte, 0, 2*len(bench.text))
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				canonicalJSON(dst, data)
			}
		})
	}
}
