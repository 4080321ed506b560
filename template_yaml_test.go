package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"testing"
)

// yamlAsJSON returns what readYAML makes of a text, or an error with line and column.
func yamlAsJSON(data string) (string, error) {
	root, text, err := readYAML([]byte(data))
	if err != nil {
		at := newTextCursor(text)
		at.moveTo(err.offset)
		return "", fmt.Errorf("%d:%d: %w", at.line, at.column, err)
	}
	return string(root.appendJSON(nil)), nil
}

// sharedData returns a file of the data folder beside the checkout, or skips the test.
func sharedData(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("../shared/data/" + name)
	if err != nil {
		wire.Lack(t, "../shared/data", "needs the data folder beside the checkout: %v", err)
	}
	return data
}

// yamlSuiteAdded has the values of further cases that are read: for most, the suite has no JSON although JSON can express them.
var yamlSuiteAdded = map[string]string{
	"2G84-03": `""`,
	"4ABK":    `{"unquoted":"separate","http://foo.com":null,"omitted value":null}`,
	"4MUZ-01": `{"foo":"bar"}`,
	// Wrong by the specification, but read as libyaml reads them: lines in brackets or quotes, indented as their key.
	"9C9N": `{"flow":["a","b","c"]}`, "VJP3-00": `{"k":{"k":"v"}}`, "QB6E": `{"quoted":"a b c"}`,
	"96NN-01": `{"foo":"\tbar"}`,
	"JEF9-02": `["\n"]`,
	"MUS6-05": `null`,
	"MUS6-06": `null`,
}

// TestYAMLSuite checks the cases of the public yaml-test-suite: a case that is one document of YAML
// 1.2 with tags of the core schema reads as its JSON, and each other case is refused.
// Of the valid cases, these are refused: 23 are no document or several, 13 have other tags, 3 are of YAML
// 1.1 (MUS6-02 to 04), 27 have keys that JSON cannot express, and UKK6-02 is a lone !.
func TestYAMLSuite(t *testing.T) {
	var cases []struct {
		ID   string
		Name string
		Tags []string
		YAML string
		JSON []json.RawMessage
	}
	noError(t, json.Unmarshal(sharedData(t, "yaml/cases.json"), &cases))
	if len(cases) < 400 {
		t.Fatalf("got %d cases", len(cases))
	}
	read := 0
	for _, c := range cases {
		if value, ok := yamlSuiteAdded[c.ID]; ok {
			c.JSON = []json.RawMessage{json.RawMessage(value)}
		}
		got, err := yamlAsJSON(c.YAML)
		outside := slices.Contains(c.Tags, "unknown-tag") || slices.Contains(c.Tags, "local-tag") || c.ID == "MUS6-02"
		switch want := c.JSON; {
		case len(want) == 1 && !outside && err != nil:
			t.Errorf("%s %s: refused: %v\n%s", c.ID, c.Name, err, c.YAML)
		case len(want) == 1 && !outside && !sameJSON([]byte(got), want[0]):
			t.Errorf("%s %s: got %s; want %s\n%s", c.ID, c.Name, got, want[0], c.YAML)
		case (len(want) != 1 || outside) && err == nil:
			t.Errorf("%s %s: got %s; want it refused\n%s", c.ID, c.Name, got, strings.ReplaceAll(c.YAML, "\t", "→"))
		case err == nil:
			read++
		}
	}
	if read != 244 {
		t.Errorf("got %d cases read; want 244", read)
	}
}

// TestYAMLScalars reads every plain scalar as the core schema does: what looks like a value of
// other schemas or of YAML 1.1 is a text.
func TestYAMLScalars(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"~", `null`}, {"null", `null`}, {"Null", `null`}, {"NULL", `null`}, {"", `null`}, {"nULL", `"nULL"`},
		{"true", `true`}, {"True", `true`}, {"TRUE", `true`}, {"false", `false`}, {"False", `false`},
		{"FALSE", `false`},
		{"tRUE", `"tRUE"`}, {"no", `"no"`}, {"No", `"No"`}, {"yes", `"yes"`}, {"on", `"on"`},
		{"Off", `"Off"`}, {"y", `"y"`}, {"n", `"n"`},
		{"0", `0`}, {"-0", `-0`}, {"+12", `12`}, {"-12", `-12`}, {"007", `7`}, {"08", `8`},
		{"1_000", `"1_000"`}, {"1,000", `"1,000"`},
		{"0o17", `15`}, {"0o18", `"0o18"`}, {"-0o17", `"-0o17"`}, {"0O17", `"0O17"`}, {"0x1F", `31`},
		{"0xg", `"0xg"`}, {"0b1", `"0b1"`},
		{"0xFFFFFFFFFFFFFFFFFF", `4722366482869645213695`},
		{"123456789012345678901234567890", `123456789012345678901234567890`},
		{"1e3", `1e3`}, {"1E3", `1E3`}, {"1e+3", `1e+3`}, {"1.e3", `1.0e3`}, {".5", `0.5`}, {"-.5", `-0.5`},
		{"+.5e1", `0.5e1`}, {"1.", `1.0`},
		{"1.50", `1.50`}, {"00.10", `0.10`}, {"1.2.3", `"1.2.3"`}, {"1e", `"1e"`}, {".", `"."`},
		{"e3", `"e3"`}, {"-", ``}, {"+", `"+"`},
		{"0.1000000000000000055511151231257827", `0.1000000000000000055511151231257827`},
		{"12:30", `"12:30"`}, {"190:20:30", `"190:20:30"`}, {"2026-01-31", `"2026-01-31"`},
		{"2026-01-31T12:00:00Z", `"2026-01-31T12:00:00Z"`},
		{"=", `"="`}, {"<<", `"<<"`}, {"inf", `"inf"`}, {"nan", `"nan"`}, {"NaN", `"NaN"`}, {"0.", `0.0`},
		{"a: b", ``}, {"- a", ``},
		{"!!str 12", `"12"`}, {"!!str", `""`}, {"!!int '12'", `12`}, {"!!float 1", `1`},
		{"!!bool true", `true`}, {"!!null ''", `null`}, {"! 12", `"12"`},
		{"!<tag:yaml.org,2002:str> 1", `"1"`}, {"!!map {}", `{}`}, {"!!seq []", `[]`}, {`'1'`, `"1"`},
		{`"null"`, `"null"`}, {`"\x41\u00e4\U0001F600\e"`, `"Aä😀\u001b"`},
		{"!!int x", ``}, {"!!int 1.5", ``}, {"!!bool yes", ``}, {"!!null x", ``}, {"!!map []", ``},
		{"!!seq x", ``}, {"!!str []", ``}, {"!!float a", ``},
		{".inf", ``}, {"-.Inf", ``}, {".NaN", ``}, {"1e999", ``}, {"0x" + strings.Repeat("f", 2000), ``},
		{strings.Repeat("9", 400), ``},
		{`"\0"`, ``}, {`"\ud83d\ude00"`, ``}, {`"\U00110000"`, ``}, {`"\q"`, ``}, {`"\x4"`, ``}, {"!", ``},
		{"@a", ``}, {"`a", ``}, {"%a", ``},
	} {
		got, err := yamlAsJSON("a: " + test.text + "\n")
		switch want := `{"a":` + test.want + `}`; {
		case test.want == "" && err == nil:
			t.Errorf("%s: got %s; want it refused", test.text, got)
		case test.want != "" && (err != nil || got != want):
			t.Errorf("%s: got %s, %v; want %s", test.text, got, err, want)
		}
	}
}

func TestYAMLDocuments(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"a: &x {b: 1}\nc: *x\n", `{"a":{"b":1},"c":{"b":1}}`},
		{"a: &x {b: 1, c: 2}\nd: {c: 3, <<: *x}\n", `{"a":{"b":1,"c":2},"d":{"c":3,"b":1}}`},
		{"<<: [{a: 1}, {a: 2, b: 3}]\nb: 4\nc: 5\n", `{"a":1,"b":4,"c":5}`},
		{"'<<': 1\n", `{"<<":1}`},
		{"on: push\n200: ok\n1.5: x\ntrue: y\n-1: z\n", `{"on":"push","200":"ok","1.5":"x","true":"y","-1":"z"}`},
		{"\ufeffa: 1\r\nb: |\r\n  x\r\n  y\r\n", `{"a":1,"b":"x\ny\n"}`},
		{"a: >-\n  x\n  y\n\n    z\n  é\nb: |+\n  x\n\n", `{"a":"x y\n\n  z\né","b":"x\n\n"}`},
		{"%YAML 1.2\n---\na: 1\n...\n", `{"a":1}`},
		{"a: {b: [1, {c: 2}], \"d\":3, ? e : 4}\n", `{"a":{"b":[1,{"c":2}],"d":3,"e":4}}`},
		{"a:\n- b: 1\n  c: 2\n-\n  - d\n", `{"a":[{"b":1,"c":2},["d"]]}`},
		{"a: 'it''s'\nb: \"x\\\n  y\"\n", `{"a":"it's","b":"xy"}`},
	} {
		if got, err := yamlAsJSON(test.text); err != nil || got != test.want {
			t.Errorf("%q: got %s, %v; want %s", test.text, got, err, test.want)
		}
	}
}

// TestYAMLRefusals names the place and the reason for each kind of text that is not read.
func TestYAMLRefusals(t *testing.T) {
	deep := func(open, close string, n int) string {
		return strings.Repeat(open, n) + "x" + strings.Repeat(close, n)
	}
	for _, test := range []struct{ text, want string }{
		{"", "1:1: the document is empty"}, {"# nothing\n", "2:1: the document is empty"},
		{"a: 1\n---\nb: 2\n", "2:1: a second document; want one"},
		{"a: 1\n...\n---\n", "3:1: a second document; want one"},
		{"a: !color red\n", "1:4: the tag !color; want none, or !!str, "},
		{"a: !!set {b}\n", "1:4: the tag !!set"},
		{"a: !!binary aGk=\n", "1:4: the tag !!binary"},
		{"%TAG !! tag:x,2000:\n---\na: !!int 1\n", "3:4: the tag !!int"},
		{"a: 1\nb: 2\na: 3\n", `3:1: the key "a" is repeated`},
		{"{a: 1, 'a': 2}", `1:8: the key "a" is repeated`},
		{"1: x\n'1': y\n", `2:1: the key "1" is repeated`},
		{"<<: {a: 1}\n<<: {b: 1}\n", `2:1: the key "<<" is repeated`},
		{"a:\n\tb: 1\n", "2:1: a tab in the indentation; want spaces"},
		{"a:\n  b: 1\n \tc: 2\n", "3:2: a tab in the indentation"},
		{"a: |\n  x\n\ty\n", "3:1: a tab in the indentation"},
		{"-\t- a\n", "1:3: a sequence cannot begin here"},
		{"a: {}\n  b: {}\n", "2:3: wrong indentation: column 3, but"},
		{"a: b: c\n", "1:4: a mapping cannot begin here"},
		{"ä: 1\n  ö: 2\n", "2:4: unexpected ':' after several lines"},
		{"? [a]\n: b\n", "1:1: the key is a sequence"}, {"{a: 1}: 2\n", "1:1: the key is a mapping"},
		{": a\n", "1:1: an empty key"},
		{"~: a\n", "1:1: the key ~ is not a text; put it in quotes"},
		{"null: a\n", "1:1: the key null is not a text"},
		{"0o17: a\n", "1:1: the key 0o17 is not a text"}, {"007: a\n", "1:1: the key 007"},
		{"True: a\n", "1:1: the key True"},
		{"a: *b\n", "1:4: no anchor &b before this alias"},
		{"a: &b [*b]\n", "1:8: the alias *b inside the node it refers to"},
		{"a: &x 1\nb: &x [*x]\n", "2:8: the alias *x inside"},
		{"a: &x 1\nb: &y *x\n", "2:4: a tag or an anchor of an alias"},
		{"<<: 1\n", "1:1: << with a scalar; want a mapping"}, {"<<: [{}, []]\n", "1:1: << with a sequence"},
		{"%YAML 1.1\n---\na: no\n", "1:1: YAML 1.1; want 1.2"},
		{"%YAML 2.0\n---\na\n", "1:1: YAML 2.0; want 1.2"},
		{"a: [1, 2\n", "1:4: no closing bracket"}, {"a: 'x\n", "1:4: the quote ' is never closed"},
		{"a: 1\nb: 'x\nc: 2\n", "2:4: the quote ' is never closed"}, {"  a: \"x\n b\"\n", `1:6: the quote " is never closed`},
		{"a: 'x\n---\n'", "1:4: the quote ' is never closed"}, {" a: [\n1]\n", "2:1: a line of a flow collection, indented by 0"},
		{"a: [1 2: 3, ,]\n", "1:13: unexpected ','"},
		{"a: \"b\" c\n", "1:8: unexpected text after the value"},
		{"a: \"b\"#c\n", "1:7: unexpected '#'; a comment needs a space"},
		{"a: x\x00y\n", "1:5: a character U+0000"}, {"a: \xff\n", "1:4: invalid UTF-8"},
		{"a: \x7f\n", "1:4: a character U+007F"},
		{"a: 1\nb\n", "2:2: want a colon and a space after a key"},
		{"- a\nb: 1\n", "2:1: text that does not belong"},
		{"a: |x\n", "1:4: not a header of a block scalar"},
		{"a: >\n    \n  x\n", "3:3: less indented than an empty line"},
		{strings.Repeat("k", 1025) + ": 1\n", "1:1: a key of more than 1024 bytes"},
		{deep("[", "]", 65), "1:65: deeper than 64 levels"},
		{deep("- ", "", 65), "1:130: deeper than 64 levels"},
		{deep("{a: ", "}", 100000), "1:257: deeper than 64 levels"},
		{"a: " + deep("[", "]", 64), "1:67: deeper than"},
	} {
		got, err := yamlAsJSON(test.text)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%.60q: got %s, %v; want %s", test.text, got, err, test.want)
		}
	}
	for _, text := range []string{deep("[", "]", 64), deep("- ", "", 64)} {
		if _, err := yamlAsJSON(text); err != nil {
			t.Errorf("64 levels: %v", err)
		}
	}
}

// TestYAMLExpansion checks that aliases and merge keys cannot make a small text large, and that
// time grows with the length of the text.
func TestYAMLExpansion(t *testing.T) {
	laughs := "a0: &a0 lol\n"
	merges := "m0: &m0 {k0: v}\n"
	for i := range 40 {
		laughs += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9))
		merges += fmt.Sprintf("m%d: &m%d {x: *m%d, y: *m%d, <<: *m%d, k%d: v}\n", i+1, i+1, i, i, i, i+1)
	}
	long := strings.Repeat("- {a: 1, b: &x [c, \"d\"], 'e': *x, <<: {f: g}}\n- |\n  x\n\n- a\n  b\n", 5000)
	const tooLarge = "aliases add more than 4 MiB"
	for text, want := range map[string]string{laughs: tooLarge, merges: tooLarge, long: ""} {
		_, err := yamlAsJSON(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40q: got %v; want %q", text, err, want)
		}
	}
}

// TestYAMLTemplates checks that the templates of the data folder are the same in YAML and in JSON,
// to the last digit.
func TestYAMLTemplates(t *testing.T) {
	sharedData(t, "README.md")
	files := must(filepath.Glob("../shared/data/templates-yaml/*.yaml"))(t)
	if len(files) != 9 {
		t.Fatalf("got %d files; want 9", len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml") + ".json"
		got := mustResolveTemplate(t, string(readFile(t, file)), "yaml", "test")
		want := mustResolveTemplate(t, string(sharedData(t, "templates/"+name)), "json", "test")
		if string(got.json) != string(want.json) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, got.json, want.json)
		}
	}
}

// FuzzYAML checks that no text makes the reader panic, that what it reads is JSON, and that it
// reads JSON as JSON does.
func FuzzYAML(f *testing.F) {
	for _, seed := range []string{
		"a: &x [1, 'b', \"c\\n\"]\nd: {<<: {e: ~}, f: *x}\n", "%YAML 1.2\n--- !!map\n? a\n: |2-\n   b\n...\n",
		"- >+\n a\n  b\n\n- - x: 0o17\n    y: .5\n", `{"a":[1.50e3,{"b":null}],"c":"\u00e4\t"}`, "a:\n- b\n\n # c\n- d\n  e\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		root, text, err := readYAML(data)
		if err != nil {
			if err.offset < 0 || err.offset > len(text) {
				t.Fatalf("got offset %d in a text of %d bytes", err.offset, len(text))
			}
			return
		}
		got := root.appendJSON(nil)
		if err := checkDeepJSON(got, 1<<20); err != nil {
			t.Fatalf("got %s: %v", got, err)
		}
		if checkJSON(data) == nil && !sameJSON(got, data) {
			t.Errorf("got %s; want the same as JSON", got)
		}
	})
}
