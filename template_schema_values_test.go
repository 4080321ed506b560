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
		`\k<n>`, `(?<n>a)(?<n>b)`, `(?<1>a)`, `\x4`, `\u12`, `\u{110000}`, `\c1`, `\p`, `\p{}`, `[a`, `\pL`} {
		if p := translatePattern(bad); p.fault == "" {
			t.Errorf("%s: got %s; want a fault", bad, p.out.String())
		}
	}
}

// TestSchemaFormats checks formats where the public suite may be absent: values that fit, and others.
func TestSchemaFormats(t *testing.T) {
	for format, row := range map[string][2]string{
		"date-time":     {"2026-11-22T19:00:00Z 2026-11-22t19:00:00.5+05:30 1998-12-31T23:59:60Z", "2026-11-22 2026-02-30T00:00:00Z 2026-11-22T19:00Z"},
		"date":          {"2024-02-29", "2023-02-29 2026-1-1 20260101"},
		"time":          {"19:00:00Z 01:29:60+01:30", "19:00:00 24:00:00Z 12:00:60Z"},
		"duration":      {"P1Y2M3DT4H5M6S P2W PT36H", "P PT P1YT P1D2H PT0.5S 1D"},
		"email":         {`a.b+c@x.org "a@b"@x.org a@[127.0.0.1] a@[IPv6:::1]`, "a a@ @b .a@b a..b@c a@b_c a@[300.1.1.1] a@-b ä@b"},
		"idn-email":     {"ä@ö.de", "ä"},
		"hostname":      {"x a-b.example xn--bcher-kva.example", "-a a- a..b a_b a. xn--x bücher ."},
		"ipv4":          {"127.0.0.1", "1.2.3 01.2.3.4 256.1.1.1 ::1"},
		"ipv6":          {"::1 1:2:3:4:5:6:7:8 ::ffff:1.2.3.4", "1 1::2::3 ::1%eth0 12345::"},
		"uri":           {"http://a/b?c#d urn:a:b mailto:a@b http://[::1]:80/ file:///x", "/a a//b http://a|b http://[::x]/ http://[]/ http://a:b/ http://%zz/"},
		"uri-reference": {"/a a?b #c //h/p ./a:b", `1:b a\b #a#b [::1]`}, "iri": {"http://ä/ö", "ä /ä"}, "iri-reference": {"/ä", `ä\b`},
		"uri-template": {"/a/{b}/{?c*,d:3}", "{ {a {} a}b"}, "uuid": {"01890a5d-ac96-774b-bcce-b302099a8057", "01890a5dac96774bbcceb302099a8057 x"},
		"regex": {`^a$ (?<n>a)\k<n> (?<=a)b`, `( [ (?i)a \a`}, "json-pointer": {"/a /a~1b/~0/0 /", "a /~ /~2"},
		"relative-json-pointer": {"0 1/a 2#", "/a -1 01 1a"},
	} {
		s := compileSchema("", must(json.Marshal(map[string]string{"format": format}))(t))
		for i, texts := range row {
			for text := range strings.SplitSeq(texts, " ") {
				if got := len(s.check(appendJSONString(nil, text))) == 0; got != (i == 0) {
					t.Errorf("%s, %q: got %v; want %v", format, text, got, i == 0)
				}
			}
		}
	}
}
