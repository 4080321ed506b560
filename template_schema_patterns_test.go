package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestSchemaPatterns checks that patterns mean what ECMA-262 says.
func TestSchemaPatterns(t *testing.T) {
	for _, row := range []struct{ pattern, matching, other string }{
		{`^.$`, "a \u00e4 \U0001d11e", "\n \r \u2028"},
		{`^\s$`, "\u00a0 \ufeff \v", "a \u200b"},
		{`^[\s]$`, "\u3000", "x"},
		{`^[^\S]$`, "\u2003", "x"},
		{`^\S$`, "x \u200b", "\u00a0 \u2029"},
		{`^[]$`, "", "a"},
		{`^[^]$`, "a \n", "ab"},
		{`^\cA\x41\u0042\u{1d11e}\ud834\udd1e\0$`, "\x01AB\U0001d11e\U0001d11e\x00", "a"},
		{`^[\b\t-\r]$`, "\b \v", "x"},
		{`^[[:x:]$`, ": x [", "]"},
		{`^[\w-.]+$`, "a-b.c", "+"},
		{`^[a\-z]$`, "a - z", "b"},
		{`^\/\.\-\_?$`, "/.-_", "x"},
		{`^(?<y>\d{4})-(?:0[1-9]|1[0-2])$`, "2026-11", "2026-13 26-11"},
		{`^\p{Lu}\p{gc=Nd}\p{Script=Greek}\P{L}$`, "A1\u03b11", "a1\u03b11"},
		{`^a{2,3}?b{,2}$`, "aab{,2} aaab{,2}", "ab"},
		{`^{}}$`, "{}}", "{}"},
		{`\bfoo\B`, "foox", "foo xfoo"},
		{`a|^$`, "cat", "dog"},
		{`^[\s-z]$`, "- z \u2003", "x y \ufeffa"},
		{`^[\S-]$`, "+ - a", "\u2003"},
		{`^[^\[\]\\.]+$`, "a^b", "[ ] \\ ."},
		{`^[\x41-\u{43}\cJ]$`, "A C \n", "D J"},
	} {
		s := compileSchema("", must(json.Marshal(map[string]string{"pattern": row.pattern}))(t))
		if len(s.problems) > 0 {
			t.Errorf("%s: %v", row.pattern, s.problems)
			continue
		}
		for want, texts := range map[bool]string{true: row.matching, false: row.other} {
			for text := range strings.SplitSeq(texts, " ") {
				value := appendJSONString(nil, text)
				if got := len(s.check(value)) == 0; got != want && text != "" {
					t.Errorf("%s, %q: got %v; want %v", row.pattern, text, got, want)
				}
			}
		}
	}
	for _, bad := range []string{`\`, `\a`, `\_x\z`, `a**`, `^*`, `*`, `(?i)a`, `(?P<n>a)`, `)`, `[b-a]`, `a{2,1}`, `\2(a)`,
		`\k<n>`, `(?<1>a)`, `\x4`, `\u12`, `\u{110000}`, `\c1`, `\p`, `\p{}`, `[a`, `\pL`,
		`\Qa.\E`, `\Aa\z`, `\x{41}`, `(?i:a)`, `[\12]`, `[z-\s]`, `[a-\d]`, `\ud8zz\udc00`, `\ud834`, `\uD834\u0041`, `\p{^L}`,
		`\p{Foo=L}`, `a++`, `(?`, `$?`} {
		if p := translatePattern(bad); p.fault == "" && p.foreign == "" {
			t.Errorf("%s: got %s; want it refused", bad, p.re)
		}
	}
}
