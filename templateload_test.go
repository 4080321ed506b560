package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeTemplateFiles makes the files in a new directory and returns it.
func writeTemplateFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func namedDefinition(name string) string { return `{"name":"` + name + `","version":"1.0.0"}` }

func fullTemplateNames(templates []*template) string {
	var names []string
	for _, t := range templates {
		names = append(names, t.fullName())
	}
	return strings.Join(names, " ")
}

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
	if err := os.Symlink("b.json", filepath.Join(dir, "link.txt")); err != nil {
		t.Fatal(err)
	}
	other := writeTemplateFiles(t, map[string]string{"data/f.json": namedDefinition("f")})
	hidden := filepath.Join(dir, ".hidden", "x.json") // read by the link to it alone
	if err := os.Symlink(hidden, filepath.Join(other, "linked.json")); err != nil {
		t.Fatal(err)
	}
	overlap := filepath.Join(dir, "deeper")
	r, warnings, err := loadTemplates([]string{dir, other, overlap + "/"}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "default.a@1.0.0 default.b@1.0.0 default.c@1.0.0 default.e@1.0.0 default.f@1.0.0 default.x@1.0.0"
	if got := fullTemplateNames(r.all()); got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	checkTemplateLines(t, "warnings", warnings, []string{
		filepath.Join(dir, "a.toml") + ": odd: unknown field, kept as it is",
	})
}

func TestLoadTemplatesFromAnEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	r, warnings, err := loadTemplates([]string{dir}, "", nil)
	if err != nil || len(r.all()) != 0 {
		t.Fatalf("got %v; want no template and no error", err)
	}
	checkTemplateLines(t, "warnings", warnings, []string{dir + ": no *.json or *.toml file with a template in it"})
}

func TestLoadTemplatesListsEveryProblem(t *testing.T) {
	dir := writeTemplateFiles(t, map[string]string{
		"a.json": namedDefinition("t"),
		"b.json": `{"name":"t","version":"1.0.0","namespace":"default"}`,
		"c.json": `{"name":"c","version":"x","steps":[{"name":"s","handler":{"callable":"bad"}}]}`,
		"d.toml": "name = ",
		"e.toml": "name = 'e'\nversion = '1.0.0'\n[[steps]]\nname = 's'\nhandler.callable = 'bad'\n",
	})
	if err := os.Symlink("nowhere", filepath.Join(dir, "f.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(t.TempDir(), filepath.Join(dir, "g.json")); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(dir, "missing")
	r, _, err := loadTemplates([]string{dir, missing}, "", refuseBadCallable)
	problems, ok := errors.AsType[templateProblems](err)
	if r != nil || !ok {
		t.Fatalf("got %v, %v; want template problems", r, err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	want := []string{
		in("b.json") + ": default.t@1.0.0 is defined in " + in("a.json") + " already",
		in("c.json") + `: version: "x" is no semantic version like 1.2.3`,
		in("c.json") + ": steps[0].handler.callable: no such handler",
		in("d.toml") + ": line 1: ",
		in("e.toml") + ": steps[0].handler.callable: no such handler",
		in("f.json") + ": reading the template: no such file or directory",
		in("g.json") + ": reading the template: not a regular file",
		missing + ": reading the templates directory: no such file or directory",
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

// TestDemoTemplates holds the demos to what a newcomer is promised of them.
func TestDemoTemplates(t *testing.T) {
	builtins := "builtin:noop builtin:echo builtin:sleep builtin:fail builtin:flaky builtin:sum " +
		"builtin:decide builtin:batch builtin:tally"
	r, warnings, err := loadTemplates(nil, "development", func(callable string) error {
		if strings.HasPrefix(callable, "builtin:") && !strings.Contains(builtins, callable) {
			return errors.New("no such builtin")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checkTemplateLines(t, "warnings", warnings, nil)
	want := "demo.approval@1.0.0 demo.batch@1.0.0 demo.diamond@1.0.0 demo.exhausted@1.0.0 demo.failing@1.0.0 demo.fan_out@1.0.0 " +
		"demo.flaky@1.0.0 demo.linear@1.0.0 demo.routing@1.0.0 demo.slow@1.0.0"
	if got := fullTemplateNames(r.all()); got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	for _, demo := range r.all() {
		if demo.strategy != strategyAlwaysUnique || demo.description == nil {
			t.Errorf("%s: got %s, description %v; want always_unique and some",
				demo.name, demo.strategy, demo.description)
		}
		for _, s := range demo.steps {
			if s.description == nil {
				t.Errorf("%s: got no description of step %s; want one", demo.name, s.name)
			}
		}
		checkTemplateReload(t, demo, "development")
	}
}

func TestLoadTemplatesChecksDemoCallables(t *testing.T) {
	_, _, err := loadTemplates(nil, "", func(string) error { return errors.New("refused") })
	want := "built-in templates/demo/approval.json: steps[0].handler.callable: refused\n"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v; want it to begin with %q", err, want)
	}
}
