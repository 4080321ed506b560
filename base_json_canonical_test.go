package main

import (
	"bytes"
	"strings"
	"testing"
)

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
