package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// schemaSuiteRefused has the number of schemas of the suite that are refused, by its files.
var schemaSuiteRefused = map[string]int{
	"anchor": 4, "contains": 7, "dependentRequired": 4, "dependentSchemas": 4, "dynamicRef": 21,
	"maxContains": 5, "minContains": 8, "refRemote": 15, "unevaluatedItems": 29, "unevaluatedProperties": 44,
	"vocabulary":           2, // whole files
	"additionalProperties": 1, "defs": 1, "not": 1, "ref": 17,
}

// schemaSuiteLost has the cases of format/hostname that are judged valid although the suite says
// otherwise: labels in Punycode, which are not decoded.
var schemaSuiteLost = []string{
	"invalid Punycode", "contains illegal char U+302E Hangul single dot tone mark",
	"Begins with a Spacing Combining Mark", "Begins with a Nonspacing Mark", "Begins with an Enclosing Mark",
	"Exceptions that are DISALLOWED, right-to-left chars", "Exceptions that are DISALLOWED, left-to-right chars",
	"MIDDLE DOT with no preceding 'l'", "MIDDLE DOT with nothing preceding", "MIDDLE DOT with no following 'l'",
	"MIDDLE DOT with nothing following", "Greek KERAIA not followed by Greek",
	"Greek KERAIA not followed by anything", "Hebrew GERESH not preceded by Hebrew",
	"Hebrew GERESH not preceded by anything", "Hebrew GERSHAYIM not preceded by Hebrew",
	"Hebrew GERSHAYIM not preceded by anything", "KATAKANA MIDDLE DOT with no Hiragana, Katakana, or Han",
	"KATAKANA MIDDLE DOT with no other characters", "Arabic-Indic digits mixed with Extended Arabic-Indic digits",
	"ZERO WIDTH JOINER not preceded by Virama", "ZERO WIDTH JOINER not preceded by anything",
	`contains "--" in the 3rd and 4th position`,
}

// unlimited returns a budget without a limit of memory.
func unlimited() *budget { return newBudget(context.Background(), nil) }

// TestSchemaSuite checks the cases of the public JSON-Schema-Test-Suite: a schema is compiled and
// judges each value right, or is refused for a known reason. Formats are assertions.
func TestSchemaSuite(t *testing.T) {
	var groups []struct {
		File, Description string
		Schema            json.RawMessage
		Tests             []struct {
			Description string
			Data        json.RawMessage
			Valid       bool
		}
	}
	noError(t, json.Unmarshal(sharedData(t, "json-schema/draft2020-12.json"), &groups))
	reasons := regexp.MustCompile(`^schema.*: (the keyword \S+ is not supported|.* is outside of the schema; references to |` +
		`.* leads to no schema in this document|is .*; want https://json-schema.org/|".*" is not a pattern of RE2: )`)
	refused, checked, lost := map[string]int{}, 0, []string(nil)
	for _, g := range groups {
		s := compileSchema("schema", g.Schema, nil)
		if len(s.problems) > 0 {
			refused[g.File]++
			for _, p := range s.problems {
				if !reasons.MatchString(p.String()) {
					t.Errorf("%s: %s: got %v; want it read", g.File, g.Description, s.problems)
				}
			}
			continue
		}
		for _, c := range g.Tests {
			checked++
			want := c.Valid && !strings.HasSuffix(c.Description, "is only an annotation by default")
			if format, ok := jsonString(objectMember(g.Schema, "format")); ok && schemaFormats[format] == nil {
				want = true // it is not checked
			}
			found := s.check(unlimited(), c.Data)
			if (len(found) == 0) == want {
				continue
			}
			if name := c.Description; g.File != "format/hostname" || !slices.Contains(schemaSuiteLost, name) {
				t.Errorf("%s: %s: %s: %s: got %q; want it %s", g.File, g.Description, name, c.Data, found.String(), pick(want, "valid", "invalid"))
			} else {
				lost = append(lost, name)
			}
		}
	}
	if !maps.Equal(refused, schemaSuiteRefused) || checked < 1600 {
		t.Errorf("got %v refused and %d cases; want %v", refused, checked, schemaSuiteRefused)
	}
	if !slices.Equal(lost, schemaSuiteLost) {
		t.Errorf("got %q judged otherwise; want %q", lost, schemaSuiteLost)
	}
}

// TestSchemaMisfits checks what is said about values that do not fit, and where.
func TestSchemaMisfits(t *testing.T) {
	for _, row := range []struct{ schema, value, want string }{
		{`{"type":"object"}`, `[]`, `got a list; want an object`},
		{`{"type":["string","null"]}`, `1`, `got 1; want a string or null`},
		{`{"type":"integer"}`, `1.0`, ``},
		{`{"type":"integer"}`, `1e400`, ``},
		{`{"type":"integer"}`, `1.5`, `got 1.5; want an integer`},
		{`{"properties":{"items":{"items":{"properties":{"price":{"type":"number"}}}}}}`, `{"items":[{"price":"x"}]}`,
			`/items/0/price: got "x"; want a number`},
		{`{"properties":{"a/b":{"items":{"properties":{"~":false}}}}}`, `{"a/b":[{"~":1}]}`, `/a~1b/0/~0: got 1; want no value here`},
		{`{"required":["a","b/c"]}`, `{}`, `/a: is required; /b~1c: is required`},
		{`{"properties":{"a":{}},"additionalProperties":false}`, `{"a":1,"b":2}`, `/b: got 2; want no value here`},
		{`{"patternProperties":{"^x":{"type":"null"}}}`, `{"x1":1,"y":1}`, `/x1: got 1; want null`},
		{`{"propertyNames":{"maxLength":1}}`, `{"ab":1}`, `/ab: got 2 characters; want at most 1 character`},
		{`{"enum":[1,"a",{"b":[1.0]}]}`, `{"b":[1]}`, ``},
		{`{"enum":[1,"a"]}`, `"b"`, `got "b"; want 1 or "a"`},
		{`{"const":0}`, `-0.0e5`, ``},
		{`{"const":9007199254740993}`, `9007199254740992`, `got 9007199254740992; want 9007199254740993`},
		{`{"multipleOf":0.1}`, `0.3`, ``},
		{`{"multipleOf":0.1}`, `1e400`, ``},
		{`{"multipleOf":0.1}`, `0.35`, `got 0.35; want a multiple of 0.1`},
		{`{"multipleOf":3}`, `9007199254740993`, ``},
		{`{"multipleOf":3}`, `9007199254740994`, `got 9007199254740994; want a multiple of 3`},
		{`{"multipleOf":7e-400}`, `1.4e-399`, ``},
		{`{"multipleOf":7}`, `0`, ``},
		{`{"maximum":9007199254740993}`, `9007199254740994`, `got 9007199254740994; want at most 9007199254740993`},
		{`{"minimum":-0.1}`, `-0.10000000000000000001`, `got -0.10000000000000000001; want at least -0.1`},
		{`{"exclusiveMinimum":1,"exclusiveMaximum":2}`, `1.0`, `got 1.0; want more than 1`},
		{`{"exclusiveMaximum":-1e2}`, `-1e1`, `got -1e1; want less than -1e2`},
		{`{"minLength":3}`, `"äß"`, `got 2 characters; want at least 3 characters`},
		{`{"maxLength":1}`, `"𝄞"`, ``},
		{`{"pattern":"^\\d+$"}`, `"1\n"`, `got "1\n"; want a text that matches ^\d+$`},
		{`{"format":"email"}`, `"x"`, `got "x"; want the format email`},
		{`{"format":"int32"}`, `"x"`, ``},
		{`{"minProperties":2,"maxProperties":0}`, `{"a":1}`, `got 1 member; want at least 2 members; got 1 member; want at most 0 members`},
		{`{"uniqueItems":true}`, `[{"a":1,"b":[2.0]},1,{"b":[2],"a":1e0}]`, `got equal elements 0 and 2; want different ones`},
		{`{"uniqueItems":true}`, `[1,true,"1",[1],{"1":1},false,0,null,""]`, ``},
		{`{"uniqueItems":false}`, `[1,1]`, ``},
		{`{"prefixItems":[{"type":"string"}],"items":false}`, `["a",1]`, `/1: got 1; want no value here`},
		{`{"anyOf":[{"required":["a"]},{"properties":{"b":{"type":"null"}},"required":["c","d"]}]}`, `{"b":1}`,
			`fits none of 2 schemas of anyOf; in the nearest, /a: is required`},
		{`{"oneOf":[{},{"type":"null"},{"type":"string"}]}`, `null`, `got what fits 2 of the 3 schemas of oneOf; want one`},
		{`{"not":{"type":"null"}}`, `null`, `got null; want what the schema of not refuses`},
		{`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}}`, `{"a":1}`, `/b: is required`},
		{`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}}`, `{}`, `/c: is required`},
		{`{"$ref":"#"}`, `1`, `the schema takes too many steps to check the value`},
		{`{"not":{"$ref":"#"}}`, `1`, `the schema takes too many steps to check the value`},
		{`{"prefixItems":[{"type":"null"},{"$ref":"#/prefixItems/0"}],"items":{"$ref":"#/definitions/a"},"definitions":{"a":{"const":[]}}}`, `[null,1,1]`,
			`/1: got 1; want null; /2: got 1; want []`},
		{`{"$ref":"#/$defs/a~1b","$defs":{"a/b":{"type":"null"}}}`, `1`, `got 1; want null`},
		{`{"properties":{"next":{"$ref":"#"},"n":{"type":"integer"}}}`, `{"next":{"next":{"n":"x"}}}`,
			`/next/next/n: got "x"; want an integer`},
		{`{"items":{"type":"null"}}`, `[` + strings.Repeat(`1,`, 99) + `1]`,
			"/0: got 1; want null; /1: got 1; want null; /2: got 1; want null; /3: got 1; want null; /4: got 1; want null; " +
				"/5: got 1; want null; /6: got 1; want null; /7: got 1; want null; /8: got 1; want null; /9: got 1; want null"},
		{`{"type":"null"}`, `"` + strings.Repeat("x", 200) + `"`, `got "` + strings.Repeat("x", 79) + `…; want null`},
		{`{"type":"null"}`, `"https://u:s3cret@h/"`, `got "https://[REDACTED]@h/"; want null`},
	} {
		s := compileSchema("", []byte(row.schema), nil)
		if len(s.problems) > 0 {
			t.Errorf("%s: %v", row.schema, s.problems)
		} else if got := s.check(unlimited(), []byte(row.value)).String(); got != row.want {
			t.Errorf("%s, %.60s: got\n%s\nwant\n%s", row.schema, row.value, got, row.want)
		}
	}
}

// TestMisfitsWithoutValues checks that the log learns what was wanted, and no value.
func TestMisfitsWithoutValues(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"null"}`: "want null",
		`{"properties":{"a":{"anyOf":[{"type":"integer"}]}}}`:      "/a: fits none of 1 schema of anyOf; in the nearest, /a: want an integer",
		`{"oneOf":[{"properties":{"a":{"oneOf":[{"const":1}]}}}]}`: "fits none of 1 schema of oneOf; in the nearest, /a: fits none of 1 schema of oneOf; in the nearest, /a: want 1",
	} {
		found := compileSchema("", []byte(schema), nil).check(unlimited(), []byte(`{"a":"4111-SECRET"}`))
		if got := found.wants(); got != want {
			t.Errorf("%s: got %s; want %s", schema, got, want)
		}
	}
}

// TestSchemaProblems checks what is said about schemas that cannot be enforced, and where.
func TestSchemaProblems(t *testing.T) {
	for _, row := range []struct{ schema, want string }{
		{`{"properties":{"a b":{"propertys":{}}}}`,
			`s.properties["a b"].propertys: the keyword propertys is not supported; did you mean properties?`},
		{`{"items":[{}]}`, `s.items: is a list; want a schema: an object, true or false`},
		{`{"allOf":[{"x-any":1}]}`, `s.allOf[0].x-any: the keyword x-any is not supported`},
		{`{"contains":{}}`, `s.contains: the keyword contains is not supported`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#"}`,
			`s["$schema"]: is "http://json-schema.org/draft-07/schema#"; want https://json-schema.org/draft/2020-12/schema`},
		{`{"$schema":"https://json-schema.org/draft/2020-12/schema#"}`, ``},
		{`{"$vocabulary":{}}`, `s["$vocabulary"]: the keyword $vocabulary is not supported`},
		{`{"$ref":"other.json"}`,
			`s["$ref"]: "other.json" is outside of the schema; references to other documents are not supported`},
		{`{"$ref":"#/$defs/x"}`, `s["$ref"]: "#/$defs/x" leads to no schema in this document`},
		{`{"$ref":"#/properties"}`, `s["$ref"]: "#/properties" leads to no schema in this document`},
		{`{"$ref":"#x"}`, `s["$ref"]: "#x" leads to no schema in this document`},
		{`{"$ref":"#/enum/0","enum":[{}]}`, `s["$ref"]: "#/enum/0" leads to no schema in this document`},
		{`{"$ref":"%"}`, `s["$ref"]: "%" is outside of the schema; references to other documents are not supported`},
		{`{"$id":"a","$ref":"#"}`, ``},
		{`{"$defs":{"a":{"$id":"x","items":{"$ref":"#"}},"b":{"$ref":"#"}}}`,
			`s["$defs"].a.items["$ref"]: "#" is outside of the schema; references to other documents are not supported`},
		{`{"type":"text"}`,
			`s.type: is "text"; want one or more of array, boolean, integer, null, number, object or string, each once`},
		{`{"type":["null","null"]}`,
			`s.type: is a list; want one or more of array, boolean, integer, null, number, object or string, each once`},
		{`{"type":[]}`,
			`s.type: is a list; want one or more of array, boolean, integer, null, number, object or string, each once`},
		{`{"enum":1}`, `s.enum: is 1; want a list`},
		{`{"minimum":"1"}`, `s.minimum: is "1"; want a number`},
		{`{"multipleOf":0.0}`, `s.multipleOf: is 0.0; want a number above 0 of at most 1000 digits`},
		{`{"maxLength":-1}`, `s.maxLength: is -1; want an integer from 0`},
		{`{"minItems":1.5}`, `s.minItems: is 1.5; want an integer from 0`},
		{`{"required":["a",1]}`, `s.required: is a list; want a list of names`},
		{`{"properties":[]}`, `s.properties: is a list; want an object of schemas`},
		{`{"anyOf":[]}`, `s.anyOf: is a list; want a list of schemas, at least one`},
		{`{"uniqueItems":1}`, `s.uniqueItems: is 1; want true or false`},
		{`{"pattern":"("}`, `s.pattern: "(" is not a pattern of RE2: missing closing )`},
		{`{"pattern":"a(?=b)"}`, `s.pattern: "a(?=b)" is not a pattern of RE2: invalid or unsupported Perl syntax`},
		{`{"pattern":"(a)\\1"}`, `s.pattern: "(a)\\1" is not a pattern of RE2: invalid escape sequence`},
		{`{"pattern":"a{1001}"}`, `s.pattern: "a{1001}" is not a pattern of RE2: invalid repeat count`},
		{`{"patternProperties":{"[":{}}}`, `s.patternProperties["["]: "[" is not a pattern of RE2: missing closing ]`},
		{`{"format":1}`, `s.format: is 1; want a string`},
		{`{"multipleOf":` + strings.Repeat("7", maxDivisorDigits+1) + `}`,
			`s.multipleOf: is ` + strings.Repeat("7", 80) + `…; want a number above 0 of at most 1000 digits`},
	} {
		if got := cmp.Or(compileSchema("s", []byte(row.schema), nil).problems.orNil(), error(inputProblems{})).Error(); got != row.want {
			t.Errorf("%s: got\n%s\nwant\n%s", row.schema, got, row.want)
		}
	}
}

// TestSchemaCost checks values and schemas that would take for ever, until the test times out, if checked naively.
func TestSchemaCost(t *testing.T) {
	slowAndSequential(t)
	twice := `{"properties":{"a":{"$ref":"#"}},"oneOf":[{"properties":{"a":{"$ref":"#"}}},{"properties":{"a":{"$ref":"#"}},"required":["b"]}]}`
	deep := strings.Repeat(`{"a":`, 60) + `1` + strings.Repeat(`}`, 60)
	if got := compileSchema("", []byte(twice), nil).check(unlimited(), []byte(deep)).String(); got != "the schema takes too many steps to check the value" {
		t.Errorf("got %s; want the check given up", got)
	}
	var chain strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&chain, `"d%d":{"$ref":"#/$defs/d%d"},`, i, i+1)
	}
	long := compileSchema("", []byte(`{"$ref":"#/$defs/d0","$defs":{`+chain.String()+`"d20000":{"type":"null"}}}`), nil)
	if got := long.check(unlimited(), []byte("1")).String(); len(long.problems) > 0 || got != "the schema takes too many steps to check the value" {
		t.Errorf("got %v, %s; want the check given up", long.problems, got)
	}
	big := strings.Repeat("7", 300_000)
	for _, row := range [][2]string{
		{`{"multipleOf":0.00007}`, big}, {`{"maximum":1e99999999999999999999}`, big}, {`{"multipleOf":3e-999999999}`, big},
		{`{"uniqueItems":true}`, `[` + strings.Repeat(`[{"a":1}],1,`, 30_000) + `2]`},
		{`{"pattern":"^(a+)+$"}`, `"` + strings.Repeat("a", 300_000) + `b"`},
	} {
		compileSchema("", []byte(row[0]), nil).check(unlimited(), []byte(row[1]))
	}
}

// FuzzSchema compiles any schema and checks any value. Each value fits the schemas that ask for itself and
// for what is equal to it, and a second check says the same.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(`{"$ref":"#/$defs/a","$defs":{"a":{"items":{"$ref":"#"}}}}`), []byte(`[1.0,{"a":"b"}]`))
	f.Add([]byte(`{"pattern":"[\\s-\\d](?<n>\\pL)","multipleOf":1e-9,"items":{"format":"uri"}}`), []byte(`1e-308`))
	f.Add([]byte(`{"$id":"a:b","allOf":[{"$id":"c"},{"$ref":"a:b#c"}],"format":"hostname"}`), []byte(`"xn--bcher-kva"`))
	f.Fuzz(func(t *testing.T, schema, value []byte) {
		if checkJSON(schema) != nil || checkJSON(value) != nil || len(schema) > 1<<12 {
			return
		}
		if s := compileSchema("", schema, nil); len(s.problems) == 0 {
			if first, second := s.check(unlimited(), value), s.check(unlimited(), value); first.String() != second.String() {
				t.Errorf("got %v and then %v", first, second)
			}
		}
		for _, own := range [][]byte{value, canonicalJSON(nil, value)} {
			same := compileSchema("", slices.Concat([]byte(`{"const":`), own, []byte(`}`)), nil)
			if found := same.check(unlimited(), value); found != nil {
				t.Errorf("got %v; want the value equal to itself", found)
			}
		}
	})
}

// TestSchemaBooks compares the keywords and formats in the documentation with the tables.
func TestSchemaBooks(t *testing.T) {
	rows := map[string][]string{}
	for line := range strings.Lines(string(readFile(t, "docs/reference/schemas.md"))) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1) {
				rows[strings.TrimSpace(cells[1])] = append(rows[strings.TrimSpace(cells[1])], m[1])
			}
		}
	}
	var checked, kept []string
	for name, kind := range schemaKeywords {
		if kind == "" {
			kept = append(kept, name)
		} else {
			checked = append(checked, name)
		}
	}
	for what, want := range map[string][]string{
		"keywords": checked, "annotations": kept, "formats": slices.Collect(maps.Keys(schemaFormats)),
	} {
		got := slices.Sorted(slices.Values(rows[what]))
		if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
			t.Errorf("%s: got %q; want %q", what, got, want)
		}
	}
}

// TestSchemaFormats checks formats where the public suite may be absent: values that fit, and others.
func TestSchemaFormats(t *testing.T) {
	for format, row := range map[string][2]string{
		"date-time": {"2026-11-22T19:00:00Z 2026-11-22t19:00:00.5+05:30 1998-12-31T23:59:60Z", "2026-11-22 2026-02-30T00:00:00Z 2026-11-22T19:00Z"},
		"date":      {"2024-02-29", "2023-02-29 2026-1-1 20260101"},
		"time":      {"19:00:00Z 01:29:60+01:30", "19:00:00 24:00:00Z 12:00:60Z"},
		"email":     {`a.b+c@x.org "a@b"@x.org a@[127.0.0.1] a@[IPv6:::1]`, "a a@ @b .a@b a..b@c a@b_c a@[300.1.1.1] a@-b ä@b"},
		"hostname":  {"x a-b.example xn--bcher-kva.example xn--x A9 " + strings.Repeat("a", 63), "-a a- a..b a_b a. bücher . xn-- " + strings.Repeat("a", 64)},
		"ipv4":      {"127.0.0.1", "1.2.3 01.2.3.4 256.1.1.1 ::1"},
		"ipv6":      {"::1 1:2:3:4:5:6:7:8 ::ffff:1.2.3.4", "1 1::2::3 ::1%eth0 12345::"},
		"uri":       {"http://a/b?c#d urn:a:b mailto:a@b http://[::1]:80/ http://[v1.a]/ file:///x", "/a a//b http://a|b http://[::x]/ http://[]/ http://a:b/ http://%zz/"},
		"uuid":      {"01890a5d-ac96-774b-bcce-b302099a8057", "01890a5dac96774bbcceb302099a8057 x"},
		"int32":     {"x", ""}, // any other is not checked
	} {
		s := compileSchema("", must(json.Marshal(map[string]string{"format": format}))(t), nil)
		for i, texts := range row {
			for text := range strings.FieldsSeq(texts) {
				if got := len(s.check(unlimited(), appendJSONString(nil, text))) == 0; got != (i == 0) {
					t.Errorf("%s, %q: got %v; want %v", format, text, got, i == 0)
				}
			}
		}
	}
}

// TestProgramSize compares what patterns are foreseen to compile to with what they do.
func TestProgramSize(t *testing.T) {
	for _, pattern := range []string{
		``, `a`, `abc`, `^a|b|cd|[x-z]$`, `a*b+c?d*?`, `(a)(?:b)(?<c>c)`, `a{3}`, `a{0}`, `a{2,}`, `a{0,}`, `a{2,5}`, `(a{10}){10}`,
		`(?:a{10}b?){3,7}`, `((ab|c)*d{3}){4,}`, `.{1000}`, `(|a|){9}`, `((a{0,9}){0,9}){0,9}`,
	} {
		parsed := must(syntax.Parse(pattern, syntax.Perl))(t)
		prog := must(syntax.Compile(parsed.Simplify()))(t)
		got := programSize(parsed)
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
		"many repetitions": {`{"properties":{` + strings.Repeat(`"p":{"pattern":"a{1000}%d"},`, 6000) + `"z":{}}}`,
			`.pattern the pattern "a{1000}`},
		"names by patterns": {`{"patternProperties":{` + strings.Repeat(`"a{999}%d":{},`, 6000) + `"z":{}}}`, " instructions needs more memory"},
		"one of many": {`{"pattern":"` + strings.Repeat("(?:a{1000})", 300) + `"}`,
			`of 300602 instructions needs more memory than the 24 MiB that one request may use`},
		"anchored classes": {`{"allOf":[` + strings.Repeat(`{"pattern":"^\\p{L}{900}$"},{"pattern":"^(?:\\p{L}|\\p{N}){300}"},`, 60) + `{}]}`, ""},
		"classes":          {`{"pattern":"` + strings.Repeat(`\\p{L}`, 20_000) + `"}`, "s.pattern the text of the pattern needs more memory"},
	} {
		parts := strings.Split(row.schema, "%d")
		schema := parts[0]
		for i, part := range parts[1:] {
			schema += strconv.Itoa(i) + part
		}
		b := newBudget(t.Context(), &quota{most: 64 << 20})
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
	b := newBudget(client, &quota{most: 1 << 30})
	s := compileSchema("", schema, b)
	if n := len(s.patterns); n > client.most || b.err != context.Canceled {
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
		`{"a":"` + text[:500] + `9"}`: "",
		`{"a":"` + text + `"}`:        "the schema takes too many steps to check the value",
		`{"b":{"` + text + `":1}}`:    "the schema takes too many steps to check the value",
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
	} {
		b := newBudget(t.Context(), &quota{most: 2 * requestMemory})
		b.taken = requestMemory - row.most // by what came before
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
	misspelled := []byte(jsonObjectOf(100_000, jsonMemberName))
	var many *jsonSchema
	if took, most := allocated(func() { many = compileSchema("", misspelled, nil) }), uint64(8*len(misspelled)); took > most {
		t.Errorf("got %d bytes allocated for unknown keywords; want at most %d", took, most)
	}
	if len(many.problems) != maxProblems {
		t.Errorf("got %d problems; want %d", len(many.problems), maxProblems)
	}
}
