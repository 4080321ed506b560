package main

import (
	"context"
	"encoding/json"
	"regexp/syntax"
	"strconv"
	"strings"
	"testing"
)

// TestProgramSize compares what patterns are foreseen to compile to with what they do.
func TestProgramSize(t *testing.T) {
	for _, pattern := range []string{
		``, `a`, `abc`, `^a|b|cd|[x-z]$`, `a*b+c?d*?`, `(a)(?:b)(?<c>c)`, `a{3}`, `a{0}`, `a{2,}`, `a{0,}`, `a{2,5}`, `(a{10}){10}`,
		`(?:a{10}b?){3,7}`, `((ab|c)*d{3}){4,}`, `\\p{L}{0,50}`, `(\\p{L}{0,50}){20}9$`, `.{1000}`, `(|a|){9}`, `((a{0,9}){0,9}){0,9}`,
	} {
		pattern = strings.ReplaceAll(pattern, `\\`, `\`)
		parsed := must(syntax.Parse(translatePattern(pattern).text, syntax.Perl))(t)
		prog := must(syntax.Compile(parsed.Simplify()))(t)
		got, _ := programSize(parsed)
		if least := len(prog.Inst) - 3; got < least || got > 2*least+10 { // a start, an end, a failure
			t.Errorf("%s: got %d instructions; want about %d", pattern, got, least)
		}
	}
}

// TestPatternBudget compiles schemas with patterns that would take hundreds of megabytes: each is refused for its
// size before it is compiled, and the text with what it takes.
func TestPatternBudget(t *testing.T) {
	for name, row := range map[string]struct{ schema, want string }{
		"a repetition": {`{"pattern":"^(?:(?:a{10}){10}){10}"}`, ""},
		"many repetitions": {`{"properties":{` + strings.Repeat(`"p%d":{"pattern":"a{1000}"},`, 6000) + `"z":{}}}`,
			`.pattern the pattern "a{1000}" of 1000 instructions needs more memory than the 24 MiB that one request may use`},
		"names by patterns": {`{"patternProperties":{` + strings.Repeat(`"a{999}%d":{},`, 6000) + `"z":{}}}`, " instructions needs more memory"},
		"one of many": {`{"pattern":"` + strings.Repeat("(?:a{1000})", 1000) + `"}`,
			`of 1000000 instructions needs more memory than the 24 MiB that one request may use`},
		"anchored classes": {`{"allOf":[` + strings.Repeat(`{"pattern":"^\\p{L}{900}$"},{"pattern":"^(?:\\p{L}|\\p{N}){300}"},`, 60) + `{}]}`, ""},
		"classes":          {`{"pattern":"` + strings.Repeat(`\\p{L}`, 20_000) + `"}`, "s.pattern the text of the pattern needs more memory"},
	} {
		parts := strings.Split(row.schema, "%d")
		schema := parts[0]
		for i, part := range parts[1:] {
			schema += strconv.Itoa(i) + part
		}
		b := newBudget(t.Context(), decodedOf(64<<20))
		took := allocated(func() { compileSchema("s", []byte(schema), b) })
		if (b.err == nil) != (row.want == "") || b.err != nil && !strings.Contains(b.err.Error(), row.want) {
			t.Errorf("%s: got %v; want %q", name, b.err, row.want)
		}
		if most := uint64(3 * requestMemory); took > most {
			t.Errorf("%s: got %d bytes allocated; want at most %d", name, took, most)
		}
	}
}

// leavingClient is a context that ends after it was asked a number of times.
type leavingClient struct {
	context.Context
	asked, most int
}

func (c *leavingClient) Err() error {
	if c.asked++; c.asked > c.most {
		return context.Canceled
	}
	return nil
}

// TestLeavingClient checks that nobody compiles or matches patterns for a client that has left.
func TestLeavingClient(t *testing.T) {
	schema := []byte(`{"allOf":[` + strings.Repeat(`{"pattern":"^a*$"},`, 999) + `{}]}`)
	client := &leavingClient{t.Context(), 0, 1000}
	b := newBudget(client, decodedOf(1<<30))
	s := compileSchema("", schema, b)
	if n := len(s.root.inPlace); n > client.most || b.err != context.Canceled {
		t.Errorf("got %d schemas, %v; want the work to end", n, b.err)
	}
	whole := compileSchema("", schema, nil)
	b = newBudget(client, nil)
	client.asked, client.most = 0, 500
	if whole.check(b, []byte(`"aaa"`)); b.err != context.Canceled || client.asked > 510 {
		t.Errorf("got %v after %d times; want the check to end", b.err, client.asked)
	}
}

// TestMatchBudget matches texts with patterns whose sizes multiply to more than a request may take: they are refused
// before the match, which could not be interrupted.
func TestMatchBudget(t *testing.T) {
	slow := compileSchema("", []byte(`{"properties":{"a":{"pattern":"(\\p{L}{0,50}){20}9$"},"b":{"patternProperties":{"(\\p{L}{0,50}){20}9$":true}}}}`), nil)
	text := strings.Repeat("a", 500_000)
	for value, want := range map[string]string{
		`{"a":"` + text[:1000] + `9"}`: "",
		`{"a":"` + text + `"}`: "/a: got a text of 500000 bytes; too many steps to match it with the pattern " +
			`(\p{L}{0,50}){20}9$ of 2042 instructions`,
		`{"b":{"` + text + `":1}}`: "/b: got a text of 500000 bytes; too many steps to match it with the pattern " +
			`(\p{L}{0,50}){20}9$ of 2042 instructions`,
	} {
		b := unlimited()
		if got := slow.check(b, []byte(value)).String(); got != want {
			t.Errorf("%.20s: got %s; want %s", value, got, want)
		}
	}
	plain := compileSchema("", []byte(`{"items":{"pattern":"^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}}`), nil)
	ids := `["0198c1f2-7a10-7c3b-9d42-5b1f0a6e2cff"` + strings.Repeat(`,"0198c1f2-7a10-7c3b-9d42-5b1f0a6e2cff"`, 25_000) + `]`
	if got := plain.check(unlimited(), []byte(ids)); got != nil {
		t.Errorf("got %v; want a megabyte of ids accepted", got)
	}
}

// TestCheckBudget checks values within budgets: what is too large is refused by its name, and what is judged costs steps.
func TestCheckBudget(t *testing.T) {
	numbers := "[0" + strings.Repeat(",0", 999) + "]"
	for _, row := range []struct {
		schema, value string
		most          int64
		want          string
	}{
		{`{"items":{"type":"number"}}`, numbers, 8 << 10, "the decoded value needs"},
		{`{"uniqueItems":true}`, numbers, 32 << 10, "comparing the elements for uniqueItems needs"},
		{`{"format":"regex"}`, `"` + strings.Repeat("(a)", 300) + `"`, 256 << 10, "the text of a pattern needs"},
	} {
		b := newBudget(t.Context(), decodedOf(2*row.most))
		compileSchema("", []byte(row.schema), nil).check(b, []byte(row.value))
		if b.err == nil || !strings.Contains(b.err.Error(), row.want) {
			t.Errorf("%s: got %v; want %s", row.schema, b.err, row.want)
		}
	}
	b := unlimited()
	compileSchema("", []byte(`{"items":{"type":"number"}}`), nil).check(b, []byte(numbers))
	if spent := maxSchemaSteps - b.steps; spent < 1000*schemaSteps {
		t.Errorf("got %d steps for a thousand elements; want at least %d", spent, 1000*schemaSteps)
	}
	found := compileSchema("", []byte(`{"additionalProperties":false}`), nil).check(unlimited(), []byte(`{"`+strings.Repeat("a", 10_000)+`":0}`))
	if len(found) != 1 || len(found[0].at) > maxPointer+len("…") {
		t.Errorf("got %v; want its place clipped", found)
	}
	many := compileSchema("", []byte(jsonObjectOf(2*maxProblems, jsonMemberName)), nil)
	if len(many.problems) != maxProblems {
		t.Errorf("got %d problems; want %d", len(many.problems), maxProblems)
	}
}

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
		s := compileSchema("", must(json.Marshal(map[string]string{"pattern": row.pattern}))(t), nil)
		if len(s.problems) > 0 {
			t.Errorf("%s: %v", row.pattern, s.problems)
			continue
		}
		for want, texts := range map[bool]string{true: row.matching, false: row.other} {
			for text := range strings.SplitSeq(texts, " ") {
				value := appendJSONString(nil, text)
				if got := len(s.check(unlimited(), value)) == 0; got != want && text != "" {
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
			t.Errorf("%s: got %s; want it refused", bad, p.text)
		}
	}
}
