package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writeTemplateFiles writes files to a new directory and returns its path.
func writeTemplateFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		noError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		noError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return dir
}

func namedDefinition(name string) string { return `{"name":"` + name + `","version":"1.0.0"}` }

func TestLoadTemplates(t *testing.T) {
	dir := writeTemplateFiles(t, map[string]string{
		"b.json":           namedDefinition("b"),
		"a.toml":           "name = 'a'\nversion = '1.0.0'\nodd = 1\n",
		"deeper/c.json":    namedDefinition("c"),
		"deeper/d/e.json":  namedDefinition("e"),
		".hidden/x.json":   namedDefinition("x"),
		".x.json":          "not read",
		"readme.md":        "not read",
		"x.json.bak":       "not read",
		"elsewhere/f.text": namedDefinition("f"),
	})
	noError(t, os.Symlink("b.json", filepath.Join(dir, "link.txt")))
	other := writeTemplateFiles(t, map[string]string{"data/f.json": namedDefinition("f")})
	hidden := filepath.Join(dir, ".hidden", "x.json") // read by the link to it alone
	noError(t, os.Symlink(hidden, filepath.Join(other, "linked.json")))
	overlap := filepath.Join(dir, "deeper")
	r, warnings := must2(loadTemplates([]string{dir, other, overlap + "/"}, "", nil))(t)
	want := "default.a@1.0.0 default.b@1.0.0 default.c@1.0.0 default.e@1.0.0 default.f@1.0.0 default.x@1.0.0"
	if got := fullTemplateNames(r.sorted); got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	checkTemplateLines(t, "warnings", warnings, []string{
		filepath.Join(dir, "a.toml") + ":3:1: odd: unknown field, kept as it is",
	})
}

func TestLoadTemplatesFromAnEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	r, warnings, err := loadTemplates([]string{dir}, "", nil)
	if err != nil || len(r.sorted) != 0 {
		t.Fatalf("got %v; want no template and no error", err)
	}
	checkTemplateLines(t, "warnings", warnings, []string{dir + ": has no template; only " + templateFiles + " are read"})
}

func TestLoadTemplatesListsEveryProblem(t *testing.T) {
	dir := writeTemplateFiles(t, map[string]string{
		"a.json": namedDefinition("t"),
		"b.json": `{"name":"t","version":"1.0.0","namespace":"default"}`,
		"c.json": `{"name":"c","version":"x","steps":[{"name":"s","handler":{"callable":"bad"}}]}`,
		"d.toml": "name = ",
		"e.toml": "name = 'e'\nversion = '1.0.0'\n[[steps]]\nname = 's'\nhandler.callable = 'bad'\n",
	})
	noError(t, os.Symlink("nowhere", filepath.Join(dir, "f.json")))
	noError(t, os.Symlink(t.TempDir(), filepath.Join(dir, "g.json")))
	missing := filepath.Join(dir, "missing")
	r, _, err := loadTemplates([]string{dir, missing}, "", &templateRules{callable: refuseBadCallable})
	problems, ok := errors.AsType[inputProblems](err)
	if r != nil || !ok {
		t.Fatalf("got %v, %v; want template problems", r, err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	want := []string{
		in("b.json") + ":1:2: name: duplicate template default.t@1.0.0, also defined in " + in("a.json"),
		in("c.json") + `:1:13: version: "x" is not a semantic version like 1.2.3`,
		in("c.json") + ":1:59: steps[0].handler.callable: no such handler",
		in("d.toml") + ":1:7: invalid TOML: ",
		in("e.toml") + ":5:9: steps[0].handler.callable: no such handler",
		in("f.json") + ": reading the template: no such file or directory",
		in("g.json") + ": reading the template: not a regular file",
		missing + ": reading the templates directory: no such file or directory",
		"docs/reference/templates.md describes the formats and every field",
	}
	got := strings.Split(problems.Error(), "\n")
	if len(got) != len(want) {
		t.Fatalf("got\n%s\nwant\n%s", err, strings.Join(want, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got %q; want it to begin with %q", got[i], want[i])
		}
	}
}

// TestMisnamedTemplates checks that files of every format are refused for a name, with its place.
func TestMisnamedTemplates(t *testing.T) {
	dir := writeTemplateFiles(t, map[string]string{
		"a.json": "{\"name\":\"a\", \"version\":\"1.0.0\",\n \"steps\":[{\"name\":\"x\u202ey\",\"handler\":{\"callable\":\"c\"}}]}",
		"b.toml": "name = 'b'\nversion = '1.0.0'\nmetadata.tags = [\"x\\u001By\"]\n",
		"c.yaml": "name: c\nversion: 1.0.0\ndomain_events:\n  - name: \"x\\ny\"\n",
		"d.yaml": "name: \"x\\Ly\"\nversion: 1.0.0\n",
	})
	_, _, err := loadTemplates([]string{dir}, "", nil)
	for _, want := range []string{
		`/a.json:2:12: steps[0].name: "x\u202ey" has the character U+202E; `, `/b.toml:3:18: metadata.tags[0]: "x\x1by" has the character U+001B; `,
		`/c.yaml:4:5: domain_events[0].name: "x\ny" has the character U+000A; `, `/d.yaml:1:1: name: "x\u2028y" has the character U+2028; `,
	} {
		if err == nil || !strings.Contains(err.Error(), dir+want) {
			t.Errorf("got %v\nwant %s", err, dir+want)
		}
	}
}

func TestLoadTemplatesChecksDemoCallables(t *testing.T) {
	refuse := func(string) error { return errors.New("refused") }
	_, _, err := loadTemplates(nil, "", &templateRules{callable: refuse})
	want := "built-in templates/demo/approval.json:25:9: steps[0].handler.callable: refused\n"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v; want it to begin with %q", err, want)
	}
}

func checkTemplateLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %s\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// refuseBadCallable refuses callables that begin with bad.
func refuseBadCallable(callable string) error {
	if strings.HasPrefix(callable, "bad") {
		return errors.New("no such handler")
	}
	return nil
}
