package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// templateSections are the sections of docs/templates.md that describe fields, with their tables.
var templateSections = map[string][]templateField{
	"The template": templateFields, "`metadata`": metadataFields, "`lifecycle`": lifecycleFields,
	"`system_dependencies`": systemFields, "`domain_events`": domainEventFields, "`steps`": stepFields,
	"`handler`": handlerFields, "`retry`": retryFields, "`batch_config`": batchFields,
	"`publishes_events`": publishedEventFields, "`environments`": environmentFields,
	"The override of a step": overrideFields,
}

// TestTemplatesPage holds docs/templates.md to the tables of the reader: each section has a row for
// each field, in their order, with its names, its type, its default and an example that is
// accepted.
func TestTemplatesPage(t *testing.T) {
	page := string(readFile(t, "docs/templates.md"))
	sections := regexp.MustCompile("(?m)^## ").Split(page, -1)
	found := 0
	for _, section := range sections {
		title, text, _ := strings.Cut(section, "\n")
		if fields, ok := templateSections[title]; ok {
			found++
			checkFieldRows(t, title, fields, regexp.MustCompile("(?m)^\\| (`.*) \\|$").FindAllStringSubmatch(text, -1))
		}
	}
	if found != len(templateSections) {
		t.Errorf("got %d sections with fields; want %d", found, len(templateSections))
	}
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(page)[1]
	parsed, problems, warnings := parseTemplate("", []byte(example), "yaml", "test", nil)
	if parsed == nil || len(warnings) > 0 || parsed.steps[2].retry.MaxAttempts != 1 {
		t.Errorf("the example: got %v %v", problems, warnings)
	}
}

func checkFieldRows(t *testing.T, title string, fields []templateField, rows [][]string) {
	if len(rows) != len(fields) {
		t.Errorf("%s: got %d rows; want %d", title, len(rows), len(fields))
		return
	}
	for i, f := range fields {
		cells := strings.Split(rows[i][1], " | ")
		want := []string{"`" + f.name + "`", f.kind(), "none"}
		if f.alias != "" {
			want[0] += " or `" + f.alias + "`"
		}
		switch {
		case f.required:
			want[2] = "required"
		case f.absent != "" && f.absent != "null":
			want[2] = "`" + f.absent + "`"
		}
		if len(cells) != 5 || fmt.Sprint(cells[:3]) != fmt.Sprint(want) || len(cells[3]) < 10 {
			t.Errorf("%s: got %q; want it to begin with %q", title, cells, want)
			continue
		}
		checkFieldExample(t, title, f, strings.Trim(cells[4], "`"))
	}
}

// kind returns the kind of value that a field wants, as its own message has it.
func (f templateField) kind() string {
	r := &templateReader{blamed: map[string]bool{}}
	f.value(r, "x", templateNullJSON)
	if r.problems == nil {
		return "anything"
	}
	_, want, _ := strings.Cut(r.problems[0].Message, "; want ")
	return strings.TrimPrefix(strings.TrimPrefix(want, "an "), "a ")
}

func checkFieldExample(t *testing.T, title string, f templateField, example string) {
	got, err := yamlAsJSON(example)
	if err != nil {
		t.Errorf("%s: %s: %v", title, example, err)
		return
	}
	for _, m := range templateMembers([]byte(got)) {
		r := &templateReader{blamed: map[string]bool{}, spelling: map[string]string{}}
		f.value(r, m.key, m.value)
		if m.key != f.name && m.key != f.alias || r.problems != nil || r.warnings != nil {
			t.Errorf("%s: %s: got %v %v; want a value of %s", title, example, r.problems, r.warnings, f.name)
		}
	}
}

// TestConvertTemplates converts the templates at hand through every pair of formats, and compares
// what is read at the end.
func TestConvertTemplates(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	files := must(filepath.Glob("templates/demo/*"))(t)
	files = append(files, must(filepath.Glob("../shared/data/templates*/*"))(t)...)
	for _, file := range files {
		format, text := templateFormat(file), readFile(t, file)
		want := mustResolveTemplate(t, string(text), format, "")
		for _, to := range []string{"yaml", "toml", "json", "toml", "yaml", "json"} {
			var err error
			text, err = convertTemplate("x."+format, text, to)
			noError(t, err)
			format = to
		}
		if got := mustResolveTemplate(t, string(text), format, ""); !sameJSON(got.json, want.json) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, got.json, want.json)
		}
	}
}

// TestConvertValues converts values that a format may spoil. An empty format must be refused, with
// the message.
func TestConvertValues(t *testing.T) {
	for _, value := range []string{
		`"yes"`, `"No"`, `"y"`, `"null"`, `"~"`, `"1.0"`, `"0o7"`, `"2026-01-31"`, `""`, `" a"`, `"a "`,
		`"a: b"`, `"a #b"`, `"#a"`, `"a:"`, `"- a"`,
		`"a\nb"`, `"a\nb\n"`, `"a\n\n"`, `"\na"`, `" a\nb"`, `"a\n  b\n\nc  \n"`, `"a\tb\nc"`,
		`"\u0007\u001b\u007f\u0085\u2028\ufeff\ud83d\ude00"`,
		`"\"\"\"\n\\"`, `"---\na"`, `"<<"`, `1.50`, `1e3`, `-0`, `0.1`, `9223372036854775807`, `[]`, `{}`,
		`[[],[{}],[[1,"a"],{"b":[]}]]`,
		`{"":1,"a b":{"~":[{"x.y":true}]},"1":2,"on":3,"a\nb":4,"'":5}`,
		`[{"a":{"b":1},"c":[{"d":[]}]},{"e":"f"}]`, `"ä → ²"`, `"::a"`, `"a::b"`,
	} {
		data := `{"name":"t","version":"1.0.0","default_context":{"v":` + value + `}}`
		want := mustParseTemplate(t, data)
		for _, to := range []string{"json", "toml", "yaml"} {
			text, err := convertTemplate("t.json", []byte(data), to)
			noError(t, err)
			if got := mustResolveTemplate(t, string(text), to, ""); !sameJSON(got.json, want.json) {
				t.Errorf("%s as %s: got %s from\n%s", value, to, got.json, text)
			}
		}
	}
	for value, want := range map[string]string{
		`null`: "is null", `[1,null]`: "v[1]: is null", `9223372036854775808`: "is 9223372036854775808",
		`0.10000000000000000001`: "is 0.1000",
		`[{"a":null}]`:           "v[0].a: is null",
	} {
		data := `{"name":"t","version":"1.0.0","default_context":{"v":` + value + `}}`
		text, err := convertTemplate("t.json", []byte(data), "toml")
		if err == nil || !strings.HasPrefix(err.Error(), "t.json: default_context.v") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %s, %v; want an error with %q", value, text, err, want)
		}
	}
}

// TestPlacesInTemplates checks that the same mistakes have their own line and column in each format.
func TestPlacesInTemplates(t *testing.T) {
	for _, test := range []struct{ format, text, want string }{
		{"json", "{\"name\": \"ä\", \"version\": 7,\n\t\"steps\": [\n\t\t{\"name\": \"a\"},\n\t\t{\"name\": \"a\", " +
			"\"handler\": {\"callable\": \"x\"}, \"depends_on\": [\n\"b\"]}]}", "1:15 3:3 4:4 5:1"},
		{"toml", "name = 'ä'\nversion = 7\n[[steps]]\nname = 'a'\n[[steps]]\nname = 'a'\nhandler.callable = 'x'\ndepends_on = [\n  'b']\n",
			"2:1 3:3 6:1 9:3"},
		{"yaml", "name: ä\nversion: 7\nsteps:\n  - name: a\n  - name: a\n    handler: {callable: x}\n    depends_on:\n    - b\n",
			"2:1 4:5 5:5 8:7"},
	} {
		_, problems, _ := parseTemplate("f", []byte(test.text), test.format, "", nil)
		places, wants := []string{}, strings.Fields(test.want)
		for i, field := range []string{
			"version: is a number", "steps[0].handler: is required", "steps[1].name: duplicate", "steps[1].depends_on[0]: there",
		} {
			places = append(places, "f:"+wants[i]+": "+field)
		}
		for i, p := range problems {
			if i >= len(places) || !strings.HasPrefix(p.String(), places[i]) {
				t.Errorf("%s: got %s; want %q", test.format, p, places[min(i, len(places)-1)])
			}
		}
		if len(problems) != 4 {
			t.Errorf("%s: got %v; want 4 problems", test.format, problems)
		}
	}
}
