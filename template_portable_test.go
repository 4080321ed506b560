package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// TestCopiedTemplates checks that the templates of the documents, the examples and the demo have nothing that
// Tasker refuses. TestTemplatesMove registers them there.
func TestCopiedTemplates(t *testing.T) {
	t.Parallel()
	copied := wire.CopiedTemplates(t, "./")
	for name, text := range copied {
		_, problems, _ := parseTemplate(name, text, templateFormat(name), "", &templateRules{portable: true})
		if problems != nil {
			t.Errorf("%v", problems)
		}
		if regexp.MustCompile(`(?m)^\s*"?namespace"?\s*[:=]`).Match(text) {
			t.Errorf("%s has namespace in place of namespace_name", name)
		}
	}
	if len(copied) < 23 {
		t.Errorf("got %d templates; want all", len(copied))
	}
}

// TestPortableTemplates checks the findings in templates, which TestReferenceTemplateRules compares with the distributed
// service, and what is left of them in the converted template.
func TestPortableTemplates(t *testing.T) {
	t.Parallel()
	for _, c := range wire.PortableCases(t, "testdata/portable/templates.txt") {
		text := c.Template("x")
		problems, warnings := portabilityOf(t, text)
		want := []string{c.Path}
		switch {
		case c.There == "taken":
			if problems != nil || warnings != nil {
				t.Errorf("%s: got %q and %q; want nothing", c.Text, problems, warnings)
			}
			continue
		case c.Path == "-root":
			want = []string{""}
		}
		got := pick(c.There == "changed", warnings, problems)
		if !slices.Equal(got, want) || c.There == "changed" && problems != nil {
			t.Errorf("%s: got problems at %q and warnings at %q; want %s at %q", c.Text, problems, warnings, c.There, c.Path)
		}
		converted, said, err := convertTemplate("x.yaml", []byte(text), "yaml", true)
		if done := err == nil && (c.There != "changed" || len(said) == 0); done != c.Mends {
			t.Errorf("%s: got converted to %s, %q, %v; want it mended: %t", c.Text, converted, said, err, c.Mends)
		}
	}
}

// portabilityOf returns the paths of problems and of warnings about portability.
func portabilityOf(t *testing.T, text string) (problems, warnings []string) {
	t.Helper()
	_, found, said := parseTemplate("x.yaml", []byte(text), "yaml", "", &templateRules{portable: true})
	for _, p := range found {
		problems = append(problems, p.Field)
	}
	for _, w := range said {
		if path, _, ok := strings.Cut(w, ": not portable: "); ok {
			_, path, _ = strings.Cut(path, ": ")
			warnings = append(warnings, path)
		}
	}
	return problems, warnings
}

// TestPortablePlaces checks where findings are and what they say.
func TestPortablePlaces(t *testing.T) {
	t.Parallel()
	const text = "\ufeffnamespace: shop\nname: order\nversion: 1.0.0\nsteps:\n  - name: pay\n" +
		"    handler: {callable: \"builtin:noop\"}\n    timeout_seconds: 2.0\n"
	_, problems, warnings := parseTemplate("o.yaml", []byte(text), "yaml", "", &templateRules{portable: true})
	got := strings.Split(problems.Error()+"\n"+strings.Join(warnings, "\n"), "\n")
	slices.Sort(got)
	want := []string{
		"o.yaml:1:1: namespace: not portable: is not read there; write namespace_name",
		"o.yaml:1:1: not portable: begins with a byte order mark",
		"o.yaml:6:15: steps[0].handler.callable: not portable: only Stepwell runs builtin: itself; " +
			"there, the step fails unless a worker has a handler of this name",
		"o.yaml:7:5: steps[0].timeout_seconds: not portable: 2.0 is not taken for an integer there; write 2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	_, problems, warnings = parseTemplate("o.toml", []byte("name = \"o\"\nversion = \"1.0.0\"\nnamespace_name = \"a\"\n"+
		"[[steps]]\nname = \"a\"\nhandler = {callable = \"a\"}\n"), "toml", "", &templateRules{portable: true})
	if problems != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "only YAML is read there") {
		t.Errorf("TOML: got %v, %q", problems, warnings)
	}
	empty := "{\"name\":\"o\",\n\"version\":\"1.0.0\",\n\"namespace\":\"a\",\"steps\":[]}"
	_, _, err := convertTemplate("o.json", []byte(empty), "yaml", true)
	if got, want := fmt.Sprint(err), "o.json:3:17: steps: not portable: is empty"; got != want {
		t.Errorf("converting: got %s; want %s", got, want)
	}
}

// TestPortableContexts checks the findings in contexts, which TestReferenceContextRules compares with Tasker.
func TestPortableContexts(t *testing.T) {
	t.Parallel()
	for _, c := range wire.PortableCases(t, "testdata/portable/contexts.txt") {
		found := portableContext("", []byte(c.Text))
		switch {
		case c.There == "taken":
			if found != nil {
				t.Errorf("%.80s: got %v", c.Text, found)
			}
		case len(found) != 1 || found[0].Field != strings.TrimPrefix(c.Path, "-root"):
			t.Errorf("%.80s: got %v; want one at %s", c.Text, found, c.Path)
		}
	}
	large := `{"a":["` + strings.Repeat(strings.Repeat("x", 9000)+`","`, 120) + `"]}`
	found := portableContext("", []byte(large))
	if len(found) != 1 || !strings.Contains(found[0].Message, "1048576 bytes") {
		t.Errorf("a large context: got %v", found)
	}
	many := "{" + strings.Repeat(`"on":0,`, 1500) + `"x":0}`
	if found := portableContext("", []byte(many)); len(found) != portableProblems {
		t.Errorf("got %d problems; want %d", len(found), portableProblems)
	}
}

// TestPortableTasks checks what a portable service warns of when it creates a task, and that others do not.
func TestPortableTasks(t *testing.T) {
	t.Parallel()
	log := &logLines{}
	s := newTestServer(t, serviceTest{log: log, config: func(c *Config) { c.Templates.Portable = true }})
	const full = `{"name":"diamond","namespace":"demo","version":"1.0.0","initiator":"i","source_system":"s","reason":"r",
		"context":{"a":1}}`
	if a := s.do("POST", "/v1/tasks", full).want(201); a.header["Warning"] != nil {
		t.Errorf("got %q; want no warning", a.header["Warning"])
	}
	a := s.do("POST", "/v1/tasks",
		`{"name":"diamond","namespace":"demo","reason":"`+strings.Repeat("r", 129)+`","context":{"once":[1]}}`).want(201)
	want := []string{
		"/version: not portable: is required there",
		"/initiator: not portable: is required there",
		"/source_system: not portable: is required there",
		"/reason: not portable: has more than the 128 characters there",
		"/context/once: not portable: is dropped there for its name",
	}
	if got := hintTexts(a.header); !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
	line := "a task is not portable template=demo.diamond@1.0.0 problems=" + strings.Join(want, "; ")
	if !strings.Contains(log.String(), line) {
		t.Errorf("got the log %s; want %s", log, line)
	}
	other := newTestServer(t, serviceTest{log: io.Discard})
	a = other.do("POST", "/v1/tasks", `{"name":"diamond","namespace":"demo"}`).want(201)
	if a.header["Warning"] != nil {
		t.Errorf("without templates.portable: got %q", a.header["Warning"])
	}
}
