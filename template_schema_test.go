package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// schemaSuiteRefused has the number of schemas of the suite that are refused, by its files: they
// refer to other documents, or ask for an unknown dialect or the format idn-hostname.
var schemaSuiteRefused = map[string]int{
	"defs": 1, "dynamicRef": 5, "ref": 1, "refRemote": 15, "vocabulary": 2, "format": 1, "format/idn-hostname": 2,
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
	reasons := regexp.MustCompile(`^schema\S*\["\$ref"\]: .* references to other documents are not supported$|` +
		`^schema\["\$schema"\]: the keyword \$schema must be |^schema.format: the format idn-hostname is not supported$`)
	refused, checked, lost := map[string]int{}, 0, []string(nil)
	for _, g := range groups {
		s := compileSchema("schema", g.Schema, nil)
		if len(s.problems) > 0 {
			refused[g.File]++
			if len(s.problems) > 1 || !reasons.MatchString(s.problems[0].String()) {
				t.Errorf("%s: %s: got %v; want it compiled", g.File, g.Description, s.problems)
			}
			continue
		}
		for _, c := range g.Tests {
			checked++
			want := c.Valid && !strings.HasSuffix(c.Description, "is only an annotation by default")
			found := s.check(unlimited(), c.Data)
			if (len(found) == 0) == want {
				continue
			}
			if lost = append(lost, c.Description); g.File != "format/hostname" || !slices.Contains(schemaSuiteLost, c.Description) {
				t.Errorf("%s: %s: %s: %s: got %q; want it %s", g.File, g.Description, c.Description, c.Data, found.String(),
					pick(want, "valid", "invalid"))
			}
		}
	}
	if !maps.Equal(refused, schemaSuiteRefused) || checked < 1800 {
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
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, `/b: is required beside a`},
		{`{"dependentSchemas":{"a":{"required":["b"]}}}`, `{"a":1}`, `/b: is required`},
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
		{`{"contains":{"const":1},"maxContains":1}`, `[1,1]`, `got 2 elements that fit contains; want 1 to 1`},
		{`{"contains":{"const":1}}`, `[]`, `got 0 elements that fit contains; want at least 1`},
		{`{"anyOf":[{"required":["a"]},{"properties":{"b":{"type":"null"}},"required":["c","d"]}]}`, `{"b":1}`,
			`fits none of 2 schemas of anyOf; in the nearest, /a: is required`},
		{`{"oneOf":[{},{"type":"null"},{"type":"string"}]}`, `null`, `got what fits 2 of the 3 schemas of oneOf; want one`},
		{`{"not":{"type":"null"}}`, `null`, `got null; want what the schema of not refuses`},
		{`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}}`, `{"a":1}`, `/b: is required`},
		{`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}}`, `{}`, `/c: is required`},
		{`{"allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false}`, `{"a":1,"b":1}`, `/b: got 1; want no value here`},
		{`{"prefixItems":[{}],"unevaluatedItems":{"type":"null"}}`, `[1,2]`, `/1: got 2; want null`},
		{`{"$ref":"#/$defs/a~1b","$defs":{"a/b":{"$anchor":"x","type":"null"}}}`, `1`, `got 1; want null`},
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
		{`{"properties":{"a b":{"propertys":{}}}}`, `s.properties["a b"].propertys: the keyword propertys is not supported (did you mean properties?)`},
		{`{"items":[{}]}`, `s.items: is a list; want a schema: an object, true or false`},
		{`{"allOf":[{"x-any":1}]}`, `s.allOf[0].x-any: the keyword x-any is not supported`},
		{`{"dependencies":{}}`, `s.dependencies: the keyword dependencies is not supported in draft 2020-12; use dependentRequired or dependentSchemas`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#"}`,
			`s["$schema"]: the keyword $schema must be "https://json-schema.org/draft/2020-12/schema", not "http://json-schema.org/draft-07/schema#"`},
		{`{"$schema":"https://json-schema.org/draft/2020-12/schema#"}`, ``},
		{`{"$vocabulary":{}}`, `s["$vocabulary"]: the keyword $vocabulary is not supported`},
		{`{"$ref":"other.json"}`, `s["$ref"]: "other.json" is outside of the schema; references to other documents are not supported`},
		{`{"$ref":"#/$defs/x"}`, `s["$ref"]: "#/$defs/x" leads to no schema in this document`},
		{`{"$ref":"#/properties"}`, `s["$ref"]: "#/properties" leads to no schema in this document`},
		{`{"$ref":"%"}`, `s["$ref"]: "%" is not a URI reference`},
		{`{"$ref":"#"}`, `s: refers to itself without end`},
		{`{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"}]},"b":{"not":{"$ref":"#/$defs/a"}}}}`,
			`s["$defs"].b.not: refers to itself without end`},
		{`{"$dynamicRef":"#x","$dynamicAnchor":"x"}`, "s: refers to itself without end\ns: refers to itself without end"},
		{`{"$id":":","$anchor":"a"}`, `s["$id"]: ":" is not a URI reference without a fragment`},
		{`{"$id":"#a"}`, `s["$id"]: "#a" is not a URI reference without a fragment`},
		{`{"$defs":{"a":{"$id":"x"},"b":{"$id":"x"}}}`, `s["$defs"].b["$id"]: "x" is the identifier of another schema`},
		{`{"$defs":{"a":{"$anchor":"x"},"b":{"$dynamicAnchor":"x"}}}`, `s["$defs"].b["$dynamicAnchor"]: another schema has the anchor "x"`},
		{`{"$anchor":"1"}`, `s["$anchor"]: "1" is not a plain name`},
		{`{"type":"text"}`, `s.type: "text" is not one of array, boolean, integer, null, number, object or string, each once`},
		{`{"type":["null","null"]}`, `s.type: "null" is not one of array, boolean, integer, null, number, object or string, each once`},
		{`{"type":[]}`, `s.type: is a list; want a type, or a list of them`},
		{`{"enum":1}`, `s.enum: is a number; want a list`},
		{`{"minimum":"1"}`, `s.minimum: is a string; want a number`},
		{`{"multipleOf":0.0}`, `s.multipleOf: is 0.0; want a number above 0`},
		{`{"maxLength":-1}`, `s.maxLength: is -1; want an integer from 0`},
		{`{"minItems":1.5}`, `s.minItems: is 1.5; want an integer from 0`},
		{`{"required":["a",1]}`, `s.required[1]: is a number; want a string`},
		{`{"properties":[]}`, `s.properties: is a list; want an object of schemas`},
		{`{"anyOf":[]}`, `s.anyOf: is a list; want a list of schemas, at least one`},
		{`{"uniqueItems":1}`, `s.uniqueItems: is a number; want true or false`},
		{`{"pattern":"("}`, `s.pattern: "(" is not a pattern: missing closing )`},
		{`{"pattern":"a(?=b)"}`, `s.pattern: the pattern "a(?=b)" has a look-ahead or look-behind, which is not supported`},
		{`{"pattern":"(a)\\1"}`, `s.pattern: the pattern "(a)\\1" has a reference to a group, which is not supported`},
		{`{"pattern":"\\p{Emoji}"}`, `s.pattern: the pattern "\\p{Emoji}" has the property Emoji, which is not supported`},
		{`{"pattern":"a{1001}"}`, `s.pattern: the pattern "a{1001}" has a repetition that is too large or in the wrong order, which is not supported`},
		{`{"patternProperties":{"[":{}}}`, `s.patternProperties["["]: "[" is not a pattern: missing closing ]`},
		{`{"format":"idn-hostname"}`, `s.format: the format idn-hostname is not supported`},
		{`{"format":1}`, `s.format: is a number; want a string`},
		{`{"multipleOf":` + strings.Repeat("7", maxDivisorDigits+1) + `}`, `s.multipleOf: has 1001 digits; want at most 1000`},
	} {
		if got := cmp.Or(compileSchema("s", []byte(row.schema), nil).problems.orNil(), error(inputProblems{})).Error(); got != row.want {
			t.Errorf("%s: got\n%s\nwant\n%s", row.schema, got, row.want)
		}
	}
	if got := compileSchema("s", []byte(`{"items":{"format":"int32"}}`), nil).warnings.Error(); got != `s.items.format: the format "int32" is not known, and not checked` {
		t.Error("got", got)
	}
}

// TestSchemaCost checks values and schemas that would take for ever if they were checked naively.
func TestSchemaCost(t *testing.T) {
	slowAndSequential(t)
	began := time.Now()
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
	if took := time.Since(began); took > patience {
		t.Errorf("got %v for all; want less than %v", took, patience)
	}
}

// FuzzSchema compiles any schema and checks any value. Each value fits the schemas that ask for itself and
// for what is equal to it, and a second check says the same.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(`{"$ref":"#/$defs/a","$defs":{"a":{"$dynamicRef":"#b","$dynamicAnchor":"b"}}}`), []byte(`[1.0,{"a":"b"}]`))
	f.Add([]byte(`{"pattern":"[\\s-\\d](?<n>\\u{1})\\k<n>","multipleOf":1e-9,"unevaluatedItems":{"format":"uri"}}`), []byte(`1e-308`))
	f.Add([]byte(`{"$id":"a:b","allOf":[{"$anchor":"c"},{"$ref":"a:b#c"}],"format":"hostname"}`), []byte(`"xn--bcher-kva"`))
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
	for _, k := range schemaKeywords() {
		if k.compile == nil {
			kept = append(kept, k.name)
		} else {
			checked = append(checked, k.name)
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
		"date-time":     {"2026-11-22T19:00:00Z 2026-11-22t19:00:00.5+05:30 1998-12-31T23:59:60Z", "2026-11-22 2026-02-30T00:00:00Z 2026-11-22T19:00Z"},
		"date":          {"2024-02-29", "2023-02-29 2026-1-1 20260101"},
		"time":          {"19:00:00Z 01:29:60+01:30", "19:00:00 24:00:00Z 12:00:60Z"},
		"duration":      {"P1Y2M3DT4H5M6S P2W PT36H", "P PT P1YT P1D2H PT0.5S 1D"},
		"email":         {`a.b+c@x.org "a@b"@x.org a@[127.0.0.1] a@[IPv6:::1]`, "a a@ @b .a@b a..b@c a@b_c a@[300.1.1.1] a@-b ä@b"},
		"idn-email":     {"ä@ö.de", "ä"},
		"hostname":      {"x a-b.example xn--bcher-kva.example xn--x A9 " + strings.Repeat("a", 63), "-a a- a..b a_b a. bücher . xn-- " + strings.Repeat("a", 64)},
		"ipv4":          {"127.0.0.1", "1.2.3 01.2.3.4 256.1.1.1 ::1"},
		"ipv6":          {"::1 1:2:3:4:5:6:7:8 ::ffff:1.2.3.4", "1 1::2::3 ::1%eth0 12345::"},
		"uri":           {"http://a/b?c#d urn:a:b mailto:a@b http://[::1]:80/ file:///x", "/a a//b http://a|b http://[::x]/ http://[]/ http://a:b/ http://%zz/"},
		"uri-reference": {"/a a?b #c //h/p ./a:b", `1:b a\b #a#b [::1]`}, "iri": {"http://ä/ö", "ä /ä"}, "iri-reference": {"/ä", `ä\b`},
		"uri-template": {"/a/{b}/{?c*,d:3}", "{ {a {} a}b"}, "uuid": {"01890a5d-ac96-774b-bcce-b302099a8057", "01890a5dac96774bbcceb302099a8057 x"},
		"regex": {`^a$ (?<n>a)\k<n> (?<=a)b`, `( [ (?i)a \a`}, "json-pointer": {"/a /a~1b/~0/0 /", "a /~ /~2"},
		"relative-json-pointer": {"0 1/a 2#", "/a -1 01 1a"},
	} {
		s := compileSchema("", must(json.Marshal(map[string]string{"format": format}))(t), nil)
		for i, texts := range row {
			for text := range strings.SplitSeq(texts, " ") {
				if got := len(s.check(unlimited(), appendJSONString(nil, text))) == 0; got != (i == 0) {
					t.Errorf("%s, %q: got %v; want %v", format, text, got, i == 0)
				}
			}
		}
	}
}
