package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// registryOf returns a registry of templates without steps, given by their full
// names.
func registryOf(t *testing.T, names ...string) *registry {
	t.Helper()
	var templates []*template
	for _, full := range names {
		name, version, _ := strings.Cut(full, "@")
		namespace, name, _ := strings.Cut(name, ".")
		templates = append(templates, mustParseTemplate(t,
			`{"namespace":"`+namespace+`","name":"`+name+`","version":"`+version+`"}`))
	}
	return newRegistry(templates)
}

func TestRegistryGet(t *testing.T) {
	r := registryOf(t, "n.mixed@1.10.0", "n.mixed@1.9.0", "n.mixed@2.0.0-rc.1", "n.pre@1.0.0-a", "n.pre@1.0.0-b",
		"n.build@1.0.0+b", "n.build@1.0.0+a", "other.mixed@9.0.0")
	for _, test := range []struct{ namespace, name, version, want string }{
		{"n", "mixed", "", "n.mixed@1.10.0"},
		{"n", "mixed", "latest", "n.mixed@1.10.0"},
		{"n", "mixed", "1.9.0", "n.mixed@1.9.0"},
		{"n", "mixed", "2.0.0-rc.1", "n.mixed@2.0.0-rc.1"},
		{"n", "mixed", "9.0.0", ""},
		{"n", "mixed", "1.10", ""},
		{"n", "pre", "", "n.pre@1.0.0-b"},
		{"n", "build", "latest", "n.build@1.0.0+b"},
		{"n", "build", "1.0.0", ""},
		{"n", "build", "1.0.0+a", "n.build@1.0.0+a"},
		{"n", "nothing", "", ""},
		{"", "mixed", "", ""},
		{"other", "mixed", "latest", "other.mixed@9.0.0"},
	} {
		got := ""
		if found, ok := r.get(test.namespace, test.name, test.version); ok {
			got = found.fullName()
		}
		if got != test.want {
			t.Errorf("%s.%s@%s: got %q; want %q", test.namespace, test.name, test.version, got, test.want)
		}
	}
}

func TestRegistryOrder(t *testing.T) {
	r := registryOf(t, "b.x@1.0.0", "a.y@1.10.0", "a.y@1.9.0", "a.y@1.10.0-rc.1", "a.x@1.0.0")
	want := "a.x@1.0.0 a.y@1.9.0 a.y@1.10.0-rc.1 a.y@1.10.0 b.x@1.0.0"
	if got := fullTemplateNames(r.all()); got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	if got, want := fullTemplateNames(r.versions("a", "y")), "a.y@1.9.0 a.y@1.10.0-rc.1 a.y@1.10.0"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

func TestRegistryWith(t *testing.T) {
	r := registryOf(t, "n.a@1.0.0", "n.b@1.0.0")
	added := mustParseTemplate(t, `{"namespace":"n","name":"a","version":"1.1.0"}`)
	other := mustParseTemplate(t, `{"namespace":"n","name":"a","version":"1.0.0","description":"other"}`)
	if got, want := fullTemplateNames(r.with(added).all()), "n.a@1.0.0 n.a@1.1.0 n.b@1.0.0"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	if got, _ := r.with(other).get("n", "a", ""); got != other {
		t.Errorf("got %s; want the new one", got.json)
	}
	if got, want := fullTemplateNames(r.all()), "n.a@1.0.0 n.b@1.0.0"; got != want {
		t.Errorf("the registry itself: got %s; want %s", got, want)
	}
}

func TestNearestTemplate(t *testing.T) {
	r := registryOf(t, "demo.linear@1.0.0", "demo.linear@1.2.0", "demo.diamond@1.0.0",
		"shop.order@1.0.0", "stop.order@2.0.0", "demo.ab@1.0.0")
	for _, test := range []struct{ namespace, name, version, want string }{
		{"demo", "linear", "3.0.0", "demo.linear@1.2.0"},
		{"default", "linear", "", "demo.linear@1.2.0"},
		{"default", "linear", "1.0.0", "demo.linear@1.0.0"},
		{"demo", "liner", "", "demo.linear@1.2.0"},
		{"demo", "Diamnod", "latest", "demo.diamond@1.0.0"},
		{"shop", "order", "2.0.0", "shop.order@1.0.0"},
		{"stop", "oder", "", "stop.order@2.0.0"},
		{"stopp", "order", "", "stop.order@2.0.0"},
		{"default", "liner", "", "demo.linear@1.2.0"},
		{"demo", "ax", "", "demo.ab@1.0.0"},
		{"demo", "xy", "", ""},
		{"demo", "", "", ""},
		{"demo", "something_else", "1.0.0", ""},
		{"demo", strings.Repeat("linear", 100000), "", ""},
	} {
		if got := r.nearest(test.namespace, test.name, test.version); got != test.want {
			t.Errorf("%s.%s@%s: got %q; want %q", test.namespace, clippedText(test.name), test.version, got, test.want)
		}
	}
}

func TestTypoDistance(t *testing.T) {
	for _, test := range []struct {
		a, b  string
		limit int
		want  int
	}{
		{"", "", 0, 0}, {"a", "", 3, 1}, {"kitten", "sitting", 3, 3}, {"kitten", "sitting", 2, 3}, {"abc",
			"abc", 0, 0},
		{"abc", "abd", 0, 1}, {"abcdef", "a", 3, 4}, {"flaw", "lawn", 2, 2},
		{"wiat", "wait", 1, 1}, {"stauts", "status", 1, 1}, {"ab", "ba", 1, 1}, {"abcd", "badc", 2, 2}, {"abcd", "badc", 1, 2},
		{"ca", "abc", 3, 3},
	} {
		for _, pair := range [][2]string{{test.a, test.b}, {test.b, test.a}} {
			if got := typoDistance(pair[0], pair[1], test.limit); got != test.want {
				t.Errorf("%v, limit %d: got %d; want %d", pair, test.limit, got, test.want)
			}
		}
	}
}

func TestListView(t *testing.T) {
	r := registryOf(t, "a.x@1.0.0", "a.y@1.0.0", "b.x@1.0.0").with(mustParseTemplate(t,
		`{"name":"s","version":"1.0.0","description":"d","steps":[{"name":"one","handler":{"callable":"x"}}]}`))
	const namespaces = `{"namespaces":[{"name":"a","description":null,"template_count":2},` +
		`{"name":"b","description":null,"template_count":1},{"name":"default","description":null,"template_count":1}],` +
		`"templates":`
	for _, test := range []struct{ namespace, want string }{
		{"default", `[{"name":"s","namespace":"default","version":"1.0.0","description":"d","step_count":1}]`},
		{"b", `[{"name":"x","namespace":"b","version":"1.0.0","description":null,"step_count":0}]`},
		{"unheard_of", `[]`},
	} {
		want := namespaces + test.want + `,"total_count":4}`
		if got := mustJSON(t, r.listView(test.namespace)); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.namespace, got, want)
		}
	}
	if got := len(r.listView("").Templates); got != 4 {
		t.Errorf("no filter: got %d templates; want 4", got)
	}
	want := `{"namespaces":[],"templates":[],"total_count":0}`
	if got := mustJSON(t, newRegistry(nil).listView("")); got != want {
		t.Errorf("empty: got %s; want %s", got, want)
	}
}

func TestDetailView(t *testing.T) {
	parsed := mustParseTemplate(t, `{"name":"t","version":"1.0.0","steps":[
		{"name":"a","handler":{"callable":"x"},"result_schema":{"type":"object"}},
		{"name":"b","handler":{"callable":"y"},"type":"decision","depends_on":["a"],"description":"d",
			"retry":{"retryable":false,"max_attempts":1}}]}`)
	want := `{"name":"t","namespace":"default","version":"1.0.0","description":null,"configuration":` +
		string(parsed.json) + `,"steps":[{"name":"a","description":null,"default_retryable":true,"default_max_attempts":3,` +
		`"result_schema":{"type":"object"},"dependencies":[],` +
		`"handler":{"callable":"x","resolver":null,"initialization":{}},"type":"standard"},` +
		`{"name":"b","description":"d","default_retryable":false,"default_max_attempts":1,"result_schema":null,` +
		`"dependencies":["a"],"handler":{"callable":"y","resolver":null,"initialization":{}},"type":"decision"}]}`
	if got := string(jsonOf(parsed.detailView())); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestCredentialsInURLsAreHidden(t *testing.T) {
	const secret = "s3cret"
	parsed := mustParseTemplate(t, `{"name":"t","version":"1.0.0","description":"see https://me:s3cret@example.org/",
		"metadata":{"documentation_url":"http:\/\/me:s3cret@example.org"},
		"steps":[{"name":"a","description":"http://s3cret@h/","result_schema":{"x":"ftp://a:s3cret@h"},
			"handler":{"callable":"http://me:s3c@s3cret@h:1/p","initialization":{"to":"amqp://u:s3cret@h/v"}}}]}`)
	r := newRegistry([]*template{parsed})
	shown := string(jsonOf(parsed.detailView())) + mustJSON(t, r.listView("")) +
		parsed.steps[0].shown
	if strings.Contains(shown, secret) || strings.Contains(shown, "s3c") {
		t.Errorf("got %s; want no credentials", shown)
	}
	if got, want := parsed.steps[0].shown, "http://[REDACTED]@h:1/p"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	if !json.Valid(parsed.shownJSON) || !strings.Contains(string(parsed.json), secret) {
		t.Errorf("got %s; want it valid, and what is kept unchanged", parsed.shownJSON)
	}
}

func TestParseSemver(t *testing.T) {
	for _, s := range []string{
		"0.0.0", "1.2.3", "10.20.30", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-0.3.7", "1.0.0-x.7.z.92",
		"1.0.0-x-y-z.--", "1.0.0+20130313144700", "1.0.0-beta+exp.sha.5114f85", "1.0.0+21AF26D3----117B344092BD",
		"1.0.0+001", "1.0.0-0a", "99999999999999999999999.999999999999999999.99999999999999999", "1.0.0-a+b-c",
	} {
		if _, ok := parseSemver(s); !ok {
			t.Errorf("got %q refused; want it accepted", s)
		}
	}
	for _, s := range []string{
		"", "1", "1.2", "1.2.3.4", "v1.2.3", "01.2.3", "1.02.3", "1.2.03", "1.2.3-", "1.2.3+", "1.2.3-+", "1.2.3-a..b",
		"1.2.3-01", "1.2.3+a..b", "1.2.3+a+b", "1.2.3-ä", "1.2.3 ", " 1.2.3", "1.2.-3", "-1.2.3", "1.2.x", "latest",
		"1.2.3-a_b", "1..3", "1.2.3\n", "１.2.3",
	} {
		if _, ok := parseSemver(s); ok {
			t.Errorf("got %q accepted; want it refused", s)
		}
	}
}

// TestSemverPrecedence compares every pair of versions; equal ones share a row.
func TestSemverPrecedence(t *testing.T) {
	ascending := [][]string{
		{"0.0.1"}, {"0.1.0"}, {"0.9.10"}, {"0.10.9"}, {"1.0.0-0"}, {"1.0.0-2"}, {"1.0.0-10", "1.0.0-10+a"},
		{"1.0.0--"}, {"1.0.0-alpha"}, {"1.0.0-alpha.1"}, {"1.0.0-alpha.beta"}, {"1.0.0-beta"}, {"1.0.0-beta.2"},
		{"1.0.0-beta.11"}, {"1.0.0-rc.1"}, {"1.0.0", "1.0.0+a", "1.0.0+b"}, {"1.0.1-a"}, {"1.0.1"}, {"2.0.0"},
		{"18446744073709551616.0.0"}, {"18446744073709551617.0.0"},
	}
	for i, row := range ascending {
		for j, other := range ascending {
			for _, a := range row {
				for _, b := range other {
					checkPrecedence(t, a, b, i-j)
				}
			}
		}
	}
}

func checkPrecedence(t *testing.T, a, b string, want int) {
	t.Helper()
	v, okA := parseSemver(a)
	w, okB := parseSemver(b)
	if !okA || !okB {
		t.Fatalf("got %s or %s refused; want both accepted", a, b)
	}
	if got := v.compare(w); got > 0 != (want > 0) || got < 0 != (want < 0) {
		t.Errorf("%s, %s: got %d; want the sign of %d", a, b, got, want)
	}
}

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
	noError(t, os.Symlink("b.json", filepath.Join(dir, "link.txt")))
	other := writeTemplateFiles(t, map[string]string{"data/f.json": namedDefinition("f")})
	hidden := filepath.Join(dir, ".hidden", "x.json") // read by the link to it alone
	noError(t, os.Symlink(hidden, filepath.Join(other, "linked.json")))
	overlap := filepath.Join(dir, "deeper")
	r, warnings := must2(loadTemplates([]string{dir, other, overlap + "/"}, "", nil))(t)
	want := "default.a@1.0.0 default.b@1.0.0 default.c@1.0.0 default.e@1.0.0 default.f@1.0.0 default.x@1.0.0"
	if got := fullTemplateNames(r.all()); got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	checkTemplateLines(t, "warnings", warnings, []string{
		filepath.Join(dir, "a.toml") + ":3:1: odd: unknown field, kept as it is",
	})
}

// TestTemplatesSkippedForTheirEnding checks that a file which looks like a template but has another ending
// causes a warning.
func TestTemplatesSkippedForTheirEnding(t *testing.T) {
	const definition = `{"name":"a","version":"1.0.0","steps":[{"name":"s","handler":{"callable":"x"}}]}`
	dir := writeTemplateFiles(t, map[string]string{
		"a.json":     definition,
		"B.JSON":     definition,
		"c.yaml.off": "name: c\nsteps:\n  - name: s\n    handler:\n      callable: builtin:noop\n",
		"d/d.txt":    "name: d\nsteps:\n- {name: s, handler: {callable: x}}\n",
		"e":          "name = 'e'\n[[steps]]\nname = 's'\nhandler.callable = 'x'\n",
		"readme.md":  definition,
		"values.ini": "steps: 7\n",
		"notes.txt":  "The callable of a step is not called before the steps it depends on.",
		".hidden":    definition,
	})
	noError(t, syscall.Mkfifo(filepath.Join(dir, "pipe.txt"), 0o600))
	noError(t, os.Symlink(dir, filepath.Join(dir, "loop.txt")))
	_, warnings := must2(loadTemplates([]string{dir, filepath.Join(dir, "d")}, "", nil))(t)
	var want []string
	for _, name := range []string{"B.JSON", "c.yaml.off", "d/d.txt", "e"} {
		want = append(want, filepath.Join(dir, name)+": looks like a template, but only "+templateFiles+" are read")
	}
	checkTemplateLines(t, "warnings", warnings, append(want, filepath.Join(dir, "d")+": has no template; only "+templateFiles+" are read"))
}

func TestLoadTemplatesFromAnEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	r, warnings, err := loadTemplates([]string{dir}, "", nil)
	if err != nil || len(r.all()) != 0 {
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
		"docs/templates.md describes the formats and every field",
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

// TestDemoTemplates checks what the documentation says about the demo templates.
func TestDemoTemplates(t *testing.T) {
	builtins := "builtin:noop builtin:echo builtin:sleep builtin:fail builtin:flaky builtin:sum " +
		"builtin:decide builtin:batch builtin:tally"
	check := func(callable string) error {
		if strings.HasPrefix(callable, "builtin:") && !strings.Contains(builtins, callable) {
			return errors.New("no such builtin")
		}
		return nil
	}
	r, warnings, err := loadTemplates(nil, "development", &templateRules{check, schemasRefused})
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
	refuse := func(string) error { return errors.New("refused") }
	_, _, err := loadTemplates(nil, "", &templateRules{callable: refuse})
	want := "built-in templates/demo/approval.json:22:9: steps[0].handler.callable: refused\n"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v; want it to begin with %q", err, want)
	}
}

// templateDefinition returns a small template with fields set to JSON texts: those
// that begin with "step." in its only step, the others in the template. An empty
// text removes the field.
func templateDefinition(t *testing.T, fields map[string]string) []byte {
	t.Helper()
	step := map[string]json.RawMessage{"name": []byte(`"a"`), "handler": []byte(`{"callable": "x"}`)}
	whole := map[string]json.RawMessage{"name": []byte(`"t"`), "version": []byte(`"1.0.0"`)}
	set := func(object map[string]json.RawMessage, key, text string) {
		if object[key] = []byte(text); text == "" {
			delete(object, key)
		}
	}
	for key, text := range fields {
		if name, ok := strings.CutPrefix(key, "step."); ok {
			set(step, name, text)
		}
	}
	whole["steps"] = []byte("[" + mustJSON(t, step) + "]")
	for key, text := range fields {
		if !strings.HasPrefix(key, "step.") {
			set(whole, key, text)
		}
	}
	return []byte(mustJSON(t, whole))
}

// mustParseTemplate reads a template in JSON, without an environment.
func mustParseTemplate(t testing.TB, data string) *template {
	t.Helper()
	return mustResolveTemplate(t, data, "json", "")
}

// mustResolveTemplate reads a template and fails the test if it is refused.
func mustResolveTemplate(t testing.TB, data, format, env string) *template {
	t.Helper()
	parsed, problems, _ := parseTemplate("", []byte(data), format, env, nil)
	if len(problems) > 0 {
		t.Fatalf("got problems %v; want none in %s", problems, data)
	}
	return parsed
}

// TestTemplateRules has a row for each rule of a single field: a value and the
// problem or, after a question mark, the warning that it causes; "" for neither.
func TestTemplateRules(t *testing.T) {
	long := func(n int) string { return `"` + strings.Repeat("ä", n) + `"` }
	retry := func(member string) string { return `{` + member + `}` }
	batch := `{"batch_size":1,"parallelism":1,"cursor_field":"id","worker_template":"w",` +
		`"failure_strategy":"isolate"}`
	override := func(member string) string { return `{"test":{"steps":[{"name":"a",` + member + `}]}}` }
	event := `{"name":"n","description":"d","schema":{}}`
	for _, test := range []struct{ field, value, want string }{
		{"name", ``, "name: is required"},
		{"name", `null`, "name: is required"},
		{"name", `""`, "name: is empty"},
		{"name", `7`, "name: is a number; want a string"},
		{"name", long(255), ""},
		{"name", long(256), "name: has 256 characters; want at most 255"},
		{"namespace_name", `null`, ""},
		{"namespace_name", `"a_1"`, ""},
		{"namespace_name", `"abcdefghijklmnopqrstuvwxyz012"`, ""},
		{"namespace_name", `"abcdefghijklmnopqrstuvwxyz0123"`, "namespace_name: has 30 characters; want at most 29"},
		{"namespace_name", `""`, "namespace_name: is empty"},
		{"namespace_name", `"1a"`, `namespace_name: "1a" must start with a letter and have only a-z, 0-9 and _`},
		{"namespace_name", `"_a"`, `namespace_name: "_a" must start with a letter and have only a-z, 0-9 and _`},
		{"namespace", `"Ab"`, `namespace: "Ab" must start with a letter and have only a-z, 0-9 and _`},
		{"namespace", `"a-b"`, `namespace: "a-b" must start with a letter and have only a-z, 0-9 and _`},
		{"version", ``, "version: is required"},
		{"version", `"1.0"`, `version: "1.0" is not a semantic version like 1.2.3`},
		{"version", `1.0`, "version: is a number; want a string"},
		{"version", `"1.0.0-rc.1+b"`, ""},
		{"description", `null`, ""},
		{"description", `[]`, "description: is a list; want a string"},
		{"metadata", `{"author":"x","tags":["a"],"documentation_url":null,"other":[1,null]}`, ""},
		{"metadata", `[]`, "metadata: is a list; want an object"},
		{"metadata", `{"author":1}`, "metadata.author: is a number; want a string"},
		{"metadata", `{"tags":["a",1]}`, "metadata.tags[1]: is a number; want a string"},
		{"metadata", `{"tags":"a"}`, "metadata.tags: is a string; want a list"},
		{"metadata", `{"documentation_url":true}`, "metadata.documentation_url: is true or false; want a string"},
		{"identity_strategy", `"caller_provided"`, ""},
		{"identity_strategy", `"always_unique"`, ""},
		{"identity_strategy", `"STRICT"`,
			`identity_strategy: unknown identity_strategy "STRICT"; want strict, caller_provided or always_unique`},
		{"default_context", `{"a":1e2}`, ""},
		{"default_context", `null`, ""},
		{"default_context", `[]`, "default_context: is a list; want an object"},
		{"input_schema", `true`, "input_schema: is true or false; want an object"},
		{"lifecycle", `{}`, ""},
		{"lifecycle", `[]`, "lifecycle: is a list; want an object"},
		{"lifecycle", `{"max_duration_minutes":0}`, "lifecycle.max_duration_minutes: 0 is below 1"},
		{"lifecycle", `{"max_duration_minutes":1.5}`, "lifecycle.max_duration_minutes: 1.5 is not an integer"},
		{"lifecycle", `{"max_duration_minutes":100000001}`,
			"lifecycle.max_duration_minutes: 100000001 is above 100000000"},
		{"lifecycle", `{"max_waiting_for_dependencies_minutes":-1}`,
			"lifecycle.max_waiting_for_dependencies_minutes: -1 is below 1"},
		{"lifecycle", `{"max_waiting_for_retry_minutes":"5"}`,
			"lifecycle.max_waiting_for_retry_minutes: is a string; want a number"},
		{"lifecycle", `{"max_steps_in_process_minutes":1}`, ""},
		{"lifecycle", `{"staleness_action":"retry"}`,
			`lifecycle.staleness_action: unknown staleness_action "retry"; want dlq, error or none`},
		{"lifecycle", `{"auto":true}`, "?lifecycle.auto: unknown field, kept as it is"},
		{"environments", `[]`, "environments: is a list; want an object"},
		{"environments", `{"test":null}`, ""},
		{"environments", `{"test":[]}`, "environments.test: is a list; want an object"},
		{"environments", `{"a b":{"steps":{}}}`, `environments["a b"].steps: is an object; want a list`},
		{"environments", `{"test":{"steps":[{}]}}`, "environments.test.steps[0].name: is required"},
		{"environments", `{"test":{"steps":[{"name":"b"}]}}`,
			`?environments.test.steps[0].name: unknown step "b"; nothing to override`},
		{"environments", `{"test":{"steps":[{"name":"ALL"}]}}`, ""},
		{"environments", override(`"timeout_seconds":0`),
			"environments.test.steps[0].timeout_seconds: 0 is below 1"},
		{"environments", override(`"retry":{"max_attempts":101}`),
			"environments.test.steps[0].retry.max_attempts: 101 is above 100"},
		{"environments", override(`"handler":{"initialization":1}`),
			"environments.test.steps[0].handler.initialization: is a number; want an object"},
		{"environments", override(`"handler":{"callable":"y"}`),
			"?environments.test.steps[0].handler.callable: unknown field, kept as it is"},
		{"environments", `{"test":{"step":[]}}`,
			"?environments.test.step: unknown field, kept as it is (did you mean steps?)"},
		{"system_dependencies", `{"primary":"db","secondary":["x"]}`, ""},
		{"system_dependencies", `{"primary":1}`, "system_dependencies.primary: is a number; want a string"},
		{"system_dependencies", `{"secondary":[1]}`,
			"system_dependencies.secondary[0]: is a number; want a string"},
		{"domain_events", `[{"name":"e"}]`, ""},
		{"domain_events", `[{}]`, "domain_events[0].name: is required"},
		{"domain_events", `[{"name":"e","schema":1}]`, "domain_events[0].schema: is a number; want an object"},
		{"task_handler", `[1,{"a":null}]`, ""},
		{"steps", ``, ""},
		{"steps", `null`, ""},
		{"steps", `{}`, "steps: is an object; want a list"},
		{"steps", `[null]`, "steps[0]: is null; want an object"},
		{"extra", `{"a":null}`, "?extra: unknown field, kept as it is"},
		{"Name", `"x"`, "?Name: unknown field, kept as it is (did you mean name?)"},

		{"step.name", ``, "steps[0].name: is required"},
		{"step.name", long(256), "steps[0].name: has 256 characters; want at most 255"},
		{"step.description", `1`, "steps[0].description: is a number; want a string"},
		{"step.type", `"decision"`, ""},
		{"step.type", `"deferred_convergence"`, ""},
		{"step.type", `"batchable"`, ""},
		{"step.type", `"batch_worker"`, "?steps[0]: is never created: no step of type batchable creates it"},
		{"step.step_type", `"odd"`, `steps[0].step_type: unknown step_type "odd"; want standard, decision, deferred_convergence, ` +
			`batchable or batch_worker`},
		{"step.handler", ``, "steps[0].handler: is required"},
		{"step.handler", `"x"`, "steps[0].handler: is a string; want an object"},
		{"step.handler", `{}`, "steps[0].handler.callable: is required"},
		{"step.handler", `{"callable":""}`, "steps[0].handler.callable: is empty"},
		{"step.handler", `{"callable":` + long(500) + `}`, ""},
		{"step.handler", `{"callable":` + long(501) + `}`,
			"steps[0].handler.callable: has 501 characters; want at most 500"},
		{"step.handler", `{"callable":"x","method":1}`, "steps[0].handler.method: is a number; want a string"},
		{"step.handler", `{"callable":"x","resolver":null,"method":null,"initialization":null}`, ""},
		{"step.handler", `{"callable":"x","resolver":1}`, "steps[0].handler.resolver: is a number; want a string"},
		{"step.handler", `{"callable":"x","initialization":[]}`,
			"steps[0].handler.initialization: is a list; want an object"},
		{"step.handler", `{"callable":"x","initialisation":{}}`,
			"?steps[0].handler.initialisation: unknown field, kept as it is (did you mean initialization?)"},
		{"step.dependencies", `"a"`, "steps[0].dependencies: is a string; want a list"},
		{"step.dependencies", `[null]`, "steps[0].dependencies[0]: is null; want a string"},
		{"step.dependencies", `["b"]`, `steps[0].dependencies[0]: there is no step "b"`},
		{"step.depends_on", `["b"]`, `steps[0].depends_on[0]: there is no step "b"`},
		{"step.depends_on", `["a"]`, "steps[0].depends_on[0]: a step cannot depend on itself"},
		{"step.retry", `null`, ""},
		{"step.retry", `5`, "steps[0].retry: is a number; want an object"},
		{"step.retry", retry(`"retryable":"yes"`), "steps[0].retry.retryable: is a string; want true or false"},
		{"step.retry", retry(`"max_attempts":200`), "steps[0].retry.max_attempts: 200 is above 100"},
		{"step.retry", retry(`"max_attempts":-1`), "steps[0].retry.max_attempts: -1 is below 0"},
		{"step.retry", retry(`"max_attempts":100`), ""},
		{"step.retry", retry(`"max_attempts":0`), "?steps[0].retry.max_attempts: 0 behaves as 1"},
		{"step.retry", retry(`"max_attempts":3.0`), ""},
		{"step.retry", retry(`"max_attempts":1e2`), ""},
		{"step.retry", retry(`"max_attempts":1e30`), "steps[0].retry.max_attempts: 1e30 is above 100"},
		{"step.retry", retry(`"max_attempts":3.5`), "steps[0].retry.max_attempts: 3.5 is not an integer"},
		{"step.retry", retry(`"max_attempts":99999999999999999999`),
			"steps[0].retry.max_attempts: 99999999999999999999 is above 100"},
		{"step.retry", retry(`"backoff":"none"`), ""},
		{"step.retry", retry(`"backoff":"linear"`), ""},
		{"step.retry", retry(`"backoff":"fibonacci"`), ""},
		{"step.retry", retry(`"backoff":"random"`),
			`steps[0].retry.backoff: unknown backoff "random"; want none, linear, exponential or fibonacci`},
		{"step.retry", retry(`"backoff_base_ms":-1`), "steps[0].retry.backoff_base_ms: -1 is below 0"},
		{"step.retry", retry(`"backoff_base_ms":604800001`),
			"steps[0].retry.backoff_base_ms: 604800001 is above 604800000"},
		{"step.retry", retry(`"backoff_base_ms":99`), "?steps[0].retry.backoff_base_ms: 99 is unusual, below 100"},
		{"step.retry", retry(`"backoff_base_ms":100`), ""},
		{"step.retry", retry(`"backoff_base_ms":3600000`), ""},
		{"step.retry", retry(`"backoff_base_ms":604800000`),
			"?steps[0].retry.backoff_base_ms: 604800000 is unusual, above 3600000"},
		{"step.retry", retry(`"max_backoff_ms":604800001`),
			"steps[0].retry.max_backoff_ms: 604800001 is above 604800000"},
		{"step.retry", retry(`"max_backoff_ms":999`), "?steps[0].retry.max_backoff_ms: 999 is unusual, below 1000"},
		{"step.retry", retry(`"max_backoff_ms":3600001`),
			"?steps[0].retry.max_backoff_ms: 3600001 is unusual, above 3600000"},
		{"step.retry", retry(`"limit":1`), "?steps[0].retry.limit: unknown field, kept as it is"},
		{"step.timeout_seconds", `0`, "steps[0].timeout_seconds: 0 is below 1"},
		{"step.timeout_seconds", `2147483648`, "steps[0].timeout_seconds: 2147483648 is above 2147483647"},
		{"step.timeout_seconds", `"30"`, "steps[0].timeout_seconds: is a string; want a number"},
		{"step.result_schema", `[]`, "steps[0].result_schema: is a list; want an object"},
		{"step.result_schema", `null`, ""},
		{"step.system_dependency", `null`, ""},
		{"step.system_dependency", `1`, "steps[0].system_dependency: is a number; want a string"},
		{"step.publishes_events", `[` + event + `]`, ""},
		{"step.publishes_events", `[{"name":"n","schema":{}}]`,
			"steps[0].publishes_events[0].description: is required"},
		{"step.publishes_events", `[{"name":"n","description":"d"}]`,
			"steps[0].publishes_events[0].schema: is required"},
		{"step.publishes_events", `[{"description":"d","schema":{}}]`,
			"steps[0].publishes_events[0].name: is required"},
		{"step.publishes_events", `[{"name":"n","description":"","schema":{},"condition":"retryable_failure",` +
			`"delivery_mode":"broadcast"},{"name":"n","description":"","schema":{},"condition":null,"delivery_mode":null}]`, ""},
		{"step.publishes_events", `[{"name":"n","description":"","schema":{},"condition":"on_success"}]`,
			`steps[0].publishes_events[0].condition: unknown condition "on_success"; ` +
				`want success, failure, retryable_failure, permanent_failure or always`},
		{"step.publishes_events", `[{"name":"n","description":"","schema":{},"delivery_mode":"Durable"}]`,
			`steps[0].publishes_events[0].delivery_mode: unknown delivery_mode "Durable"; want durable, fast or broadcast`},
		{"step.batch_config", batch, ""},
		{"step.batch_config", `{}`, "steps[0].batch_config.batch_size: is required"},
		{"step.batch_config", strings.Replace(batch, "1", "0", 1),
			"steps[0].batch_config.batch_size: 0 is below 1"},
		{"step.batch_config", strings.Replace(batch, "isolate", "stop", 1),
			`steps[0].batch_config.failure_strategy: unknown failure_strategy "stop"; want continue_on_failure, fail_fast or isolate`},
		{"step.composition", `"anything"`, ""},
		{"step.tiemout_seconds", `5`,
			"?steps[0].tiemout_seconds: unknown field, kept as it is (did you mean timeout_seconds?)"},
	} {
		t.Run(test.field+"="+clippedText(test.value), func(t *testing.T) {
			data := templateDefinition(t, map[string]string{test.field: test.value})
			parsed, problems, warnings := parseTemplate("", data, "json", "", nil)
			if (parsed == nil) != (len(problems) > 0) {
				t.Fatalf("got template %v with problems %v", parsed, problems)
			}
			got := ""
			switch {
			case len(problems) > 0:
				got = problems[0].String()
			case len(warnings) > 0:
				got = "?" + strings.Join(warnings, "\n")
			}
			if got != test.want {
				t.Errorf("got %q; want %q", got, test.want)
			}
		})
	}
}

func TestRulesBetweenSteps(t *testing.T) {
	const handler = `"handler":{"callable":"x"}`
	batchable := `{"name":"b","type":"batchable",` +
		`"handler":{"callable":"x","initialization":{"worker_template_name":"w"}}}`
	for _, test := range []struct {
		name, steps        string
		problems, warnings []string
	}{
		{"two of a name", `{"name":"a",` + handler + `},{"name":"a",` + handler + `}`,
			[]string{`steps[1].name: duplicate step "a", also steps[0]`}, nil},
		{"cycle", `{"name":"a",` + handler + `,"dependencies":["c"]},` +
			`{"name":"b",` + handler + `,"dependencies":["a"]},` +
			`{"name":"c",` + handler + `,"depends_on":["b"]}`,
			[]string{"steps: they depend on each other, each on the next: a -> c -> b -> a"}, nil},
		{"self-reference next to a cycle", `{"name":"a",` + handler + `,"dependencies":["a","b"]},` +
			`{"name":"b",` + handler + `,"dependencies":["a"]}`,
			[]string{"steps[0].dependencies[0]: a step cannot depend on itself",
				"steps: they depend on each other, each on the next: a -> b -> a"}, nil},
		{"dependency listed twice", `{"name":"a",` + handler + `},` +
			`{"name":"b",` + handler + `,"dependencies":["a","a"]}`,
			nil, []string{`steps[1].dependencies[1]: "a" is listed twice`}},
		{"both spellings", `{"name":"a",` + handler + `,"dependencies":[],"depends_on":[]}`,
			[]string{"steps[0].depends_on: is given twice, also as dependencies"}, nil},
		{"one spelling null", `{"name":"a",` + handler + `,"dependencies":null,"depends_on":[]}`, nil, nil},
		{"worker that is no batch_worker", batchable + `,{"name":"w",` + handler + `}`,
			nil, []string{`steps[0]: worker template "w" is not a step of type batch_worker`}},
		{"worker that is one", batchable + `,{"name":"w","type":"batch_worker",` + handler + `}`, nil, nil},
		{"worker of nobody", `{"name":"a",` + handler + `},{"name":"w","type":"batch_worker",` + handler +
			`,"dependencies":["a"]}`,
			nil, []string{`steps[1]: is never created: no step of type batchable creates it`}},
		{"worker of a batchable that it depends on", `{"name":"b","type":"batchable",` + handler + `},` +
			`{"name":"w","type":"batch_worker",` + handler + `,"dependencies":["b"]}`, nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := templateDefinition(t, map[string]string{"steps": "[" + test.steps + "]"})
			_, problems, warnings := parseTemplate("", data, "json", "", nil)
			checkTemplateLines(t, "problems", templateProblemLines(problems), test.problems)
			checkTemplateLines(t, "warnings", warnings, test.warnings)
		})
	}
}

func templateProblemLines(problems inputProblems) []string {
	var lines []string
	for _, p := range problems {
		lines = append(lines, p.String())
	}
	return lines
}

func checkTemplateLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %s\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestEveryProblemAtOnce(t *testing.T) {
	const data = `{
		"name": "", "namespace": "Demo", "version": "one", "lifecycle": {"max_duration_minutes": 0},
		"environments": {"test": {"steps": [{"name": "a", "timeout_seconds": -1}]}},
		"steps": [
			{"name": "a", "handler": {"callable": 5}, "dependencies": ["a", "nobody", 7]},
			{"name": "b", "dependencies": ["c"], "retry": {"max_attempts": 200, "backoff": "odd"}},
			{"name": "c", "handler": {"callable": "x"}, "depends_on": ["b"]},
			{"name": "c", "handler": {"callable": "bad:x"}}
		]}`
	_, problems, _ := parseTemplate("t.json", []byte(data), "json", "test", &templateRules{callable: refuseBadCallable})
	checkTemplateLines(t, "problems", templateProblemLines(problems), []string{
		"t.json:2:3: name: is empty",
		`t.json:2:15: namespace: "Demo" must start with a letter and have only a-z, 0-9 and _`,
		`t.json:2:36: version: "one" is not a semantic version like 1.2.3`,
		"t.json:2:68: lifecycle.max_duration_minutes: 0 is below 1",
		"t.json:3:53: environments.test.steps[0].timeout_seconds: -1 is below 1",
		"t.json:5:30: steps[0].handler.callable: is a number; want a string",
		"t.json:5:78: steps[0].dependencies[2]: is a number; want a string",
		"t.json:6:4: steps[1].handler: is required",
		"t.json:6:51: steps[1].retry.max_attempts: 200 is above 100",
		`t.json:6:72: steps[1].retry.backoff: unknown backoff "odd"; want none, linear, exponential or fibonacci`,
		"t.json:8:30: steps[3].handler.callable: no such handler",
		`t.json:8:5: steps[3].name: duplicate step "c", also steps[2]`,
		"t.json:5:63: steps[0].dependencies[0]: a step cannot depend on itself",
		`t.json:5:68: steps[0].dependencies[1]: there is no step "nobody"`,
		"t.json:4:3: steps: they depend on each other, each on the next: b -> c -> b",
	})
}

func TestBrokenDefinitions(t *testing.T) {
	for _, test := range []struct{ name, format, data, want string }{
		{"empty", "json", ``, "f:1:1: invalid JSON: unexpected end"},
		{"cut off", "json", "{\n\t\"name\": \"ä\"", "f:2:13: invalid JSON: unexpected end"},
		{"two values", "json", `{"name":"t","version":"1.0.0"} {}`, "f:1:32: invalid JSON: "},
		{"no object", "json", `[]`, "f:1:1: is a list; want an object"},
		{"null", "json", `null`, "f:1:1: is null; want an object"},
		{"YAML syntax", "yaml", "name: t\nversion: [\n", "f:2:10: YAML: no closing bracket"},
		{"YAML beyond JSON", "yaml", "name: t\nversion: .inf\n", "f:2:10: YAML: .inf, which JSON cannot express"},
		{"TOML syntax", "toml", "name = 't'\nversion =\n", "f:2:10: invalid TOML: "},
		{"TOML key twice", "toml", "name = 't'\nname = 'u'\n", "f:2:1: invalid TOML: "},
		{"TOML time", "toml", "name = 't'\nversion = '1.0.0'\ndefault_context = {at = 2026-01-31T12:00:00Z}\n",
			"f:3:20: default_context.at: is a TOML date or time; write it as a string"},
		{"TOML date of a required field", "toml", "name = 2026-01-31\nversion = '1.0.0'\n",
			"f:1:1: name: is a TOML date or time; write it as a string"},
		{"TOML nan", "toml", "name = 't'\nversion = '1.0.0'\n[default_context]\nx = [1, nan]\n",
			"f:4:9: default_context.x[1]: is NaN, which JSON cannot express"},
		{"TOML inf", "toml", "name = 't'\nversion = '1.0.0'\nmetadata = {x = -inf}\n",
			"f:3:13: metadata.x: is -Inf, which JSON cannot express"},
		{"TOML float for an integer", "toml", "name = 't'\nversion = '1.0.0'\nlifecycle = {max_duration_minutes = 5.5}\n",
			"f:3:14: lifecycle.max_duration_minutes: 5.5 is not an integer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			parsed, problems, _ := parseTemplate("f", []byte(test.data), test.format, "", nil)
			if parsed != nil || len(problems) != 1 {
				t.Fatalf("got template %v and problems %v; want one problem", parsed, problems)
			}
			if got := problems[0].String(); !strings.HasPrefix(got, test.want) {
				t.Errorf("got %q; want it to begin with %q", got, test.want)
			}
		})
	}
}

// TestNormalizedForm shows the whole normalized form, with and without optional
// fields.
func TestNormalizedForm(t *testing.T) {
	least := mustParseTemplate(t, `{"version": "1.0.0", "name": "t", "zeta": null, "alpha": [ 1.50, 1e3 ],
		"steps": [{"handler": {"callable": "x"}, "name": "a", "own": {}}]}`)
	want := `{"name":"t","namespace_name":"default","version":"1.0.0","description":null,"metadata":null,` +
		`"identity_strategy":"strict","default_context":{},"input_schema":null,"lifecycle":null,` +
		`"system_dependencies":{"primary":"default","secondary":[]},"domain_events":[],"environments":{},` +
		`"steps":[{"name":"a","description":null,"type":"standard",` +
		`"handler":{"callable":"x","resolver":null,"initialization":{}},"dependencies":[],` +
		`"retry":{"retryable":true,"max_attempts":3,"backoff":"exponential","backoff_base_ms":1000,` +
		`"max_backoff_ms":30000},"timeout_seconds":30,"system_dependency":null,"publishes_events":[],` +
		`"batch_config":null,"own":{}}],"alpha":[1.50,1e3],"zeta":null}`
	if got := string(least.json); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	most := mustParseTemplate(t, `{"name": "t", "namespace": "n", "version": "2.0.0-rc.1", "description": "d",
		"metadata": {"other": null, "documentation_url": null, "tags": ["x"], "author": "me"},
		"identity_strategy": "caller_provided", "default_context": {"n": 12345678901234567890.10},
		"input_schema": {"type": "object"}, "lifecycle": {"staleness_action": "none", "max_duration_minutes": 5},
		"system_dependencies": {"secondary": ["s"]}, "domain_events": [{"schema": null, "name": "e"}],
		"task_handler": {"any": 1}, "environments": {"e": {"steps": [{"retry": {"max_attempts": 1}, "name": "ALL"}]}},
		"steps": [{"name": "a", "step_type": "batch_worker", "description": "s", "depends_on": null,
			"handler": {"callable": "x", "method": "m", "resolver": "r", "initialization": {"k": null}},
			"retry": {"retryable": false}, "timeout_seconds": 7, "result_schema": {}, "system_dependency": "db",
			"publishes_events": [{"publisher": "p", "name": "n", "schema": {}, "description": ""}],
			"batch_config": {"worker_template": "a", "batch_size": 1, "parallelism": 2, "cursor_field": "id",
				"failure_strategy": "isolate"}, "composition": "c"}]}`)
	want = `{"name":"t","namespace_name":"n","version":"2.0.0-rc.1","description":"d",` +
		`"metadata":{"author":"me","tags":["x"],"other":null},"identity_strategy":"caller_provided",` +
		`"default_context":{"n":12345678901234567890.10},"input_schema":{"type":"object"},` +
		`"lifecycle":{"max_duration_minutes":5,"staleness_action":"none"},` +
		`"system_dependencies":{"primary":"default","secondary":["s"]},"domain_events":[{"name":"e"}],` +
		`"task_handler":{"any":1},"environments":{"e":{"steps":[{"name":"ALL","retry":{"retryable":true,` +
		`"max_attempts":1,"backoff":"exponential","backoff_base_ms":1000,"max_backoff_ms":30000}}]}},` +
		`"steps":[{"name":"a","description":"s","type":"batch_worker","handler":{"callable":"x","method":"m",` +
		`"resolver":"r","initialization":{"k":null}},"dependencies":[],"retry":{"retryable":false,"max_attempts":3,` +
		`"backoff":"exponential","backoff_base_ms":1000,"max_backoff_ms":30000},"timeout_seconds":7,` +
		`"result_schema":{},"system_dependency":"db","publishes_events":[{"name":"n","description":"",` +
		`"schema":{},"publisher":"p"}],"batch_config":{"batch_size":1,"parallelism":2,"cursor_field":"id",` +
		`"worker_template":"a","failure_strategy":"isolate"},"composition":"c"}]}`
	if got := string(most.json); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTemplateFields(t *testing.T) {
	got := mustParseTemplate(t, `{"name": "t", "namespace": "n", "version": "2.0.0", "description": "d",
		"identity_strategy": "always_unique", "default_context": {"a": 1},
		"lifecycle": {"max_duration_minutes": 5, "staleness_action": "error"},
		"steps": [
			{"name": "end", "depends_on": ["right", "left"],
				"handler": {"callable": "y", "method": "m", "resolver": "r"}},
			{"name": "start", "handler": {"callable": "x", "initialization": {"dependency_results": "parents"}}},
			{"name": "left", "depends_on": ["start"], "handler": {"callable": "x"}, "timeout_seconds": 5,
				"retry": {"backoff": "linear", "backoff_base_ms": 200, "max_backoff_ms": 2000, "max_attempts": 7}},
			{"name": "right", "depends_on": ["start"], "description": "r", "result_schema": {"type": "null"},
				"handler": {"callable": "x", "initialization": {"worker_template_name": "w"}}}
		]}`)
	if got.fullName() != "n.t@2.0.0" || *got.description != "d" || got.strategy != strategyAlwaysUnique ||
		got.dynamic {
		t.Errorf("got %s, %q, %s, dynamic %v", got.fullName(), *got.description, got.strategy, got.dynamic)
	}
	if string(got.defaultContext) != `{"a":1}` {
		t.Errorf("got default context %s", got.defaultContext)
	}
	l := got.lifecycle
	if *l.MaxDurationMinutes != 5 || l.MaxStepsInProcessMinutes != nil || l.StalenessAction != "error" {
		t.Errorf("got lifecycle %+v", l)
	}
	if want := []int{1, 2, 3, 0}; !slices.Equal(got.order, want) {
		t.Errorf("got order %v; want %v", got.order, want)
	}
	end, start, left, right := got.steps[0], got.steps[1], got.steps[2], got.steps[3]
	if !slices.Equal(end.parents, []int{3, 2}) || !slices.Equal(start.children, []int{2, 3}) {
		t.Errorf("got parents %v and children %v; want [3 2] and [2 3]", end.parents, start.children)
	}
	if end.callable != "y" || end.method != "m" || *end.resolver != "r" ||
		start.resolver != nil || start.method != "" {
		t.Errorf("got handlers %s and %s", end.handler, start.handler)
	}
	if !start.parentsOnly || left.parentsOnly || string(left.config) != "{}" {
		t.Errorf("got parentsOnly %v, %v; want true, false", start.parentsOnly, left.parentsOnly)
	}
	if want := (retryPolicy{true, 7, backoffLinear, 200, 2000}); left.retry != want || left.timeoutSeconds != 5 {
		t.Errorf("got %+v, %d s; want %+v, 5 s", left.retry, left.timeoutSeconds, want)
	}
	if string(right.resultSchema) != `{"type":"null"}` || left.resultSchema != nil || right.batchWorker != "w" {
		t.Errorf("got %s, %s, %q", right.resultSchema, left.resultSchema, right.batchWorker)
	}
	if want := stableID("n", "t", "2.0.0", "right"); right.id != want {
		t.Errorf("got id %v; want %v", right.id, want)
	}
}

func TestBatchConfigNamesTheWorker(t *testing.T) {
	data := templateDefinition(t, map[string]string{
		"step.type":    `"batch_worker"`,
		"step.handler": `{"callable":"x","initialization":{"worker_template_name":"other"}}`,
		"step.batch_config": `{"batch_size":1,"parallelism":1,"cursor_field":"id","worker_template":"a",` +
			`"failure_strategy":"isolate"}`,
	})
	got := mustParseTemplate(t, string(data))
	if got.steps[0].batchWorker != "a" || !got.dynamic {
		t.Errorf("got %q, dynamic %v; want a, true", got.steps[0].batchWorker, got.dynamic)
	}
}

func TestTOMLIsJSON(t *testing.T) {
	fromTOML := mustResolveTemplate(t, `
name = "t"
namespace = "n"
version = "1.0.0"
unknown = [1, -2.5, 1e21, 3.0, true, "ü\"\n"]
[default_context]
big = 9223372036854775807
[[steps]]
name = "a"
handler = { callable = "x", initialization = { a = 1, b = { c = [] } } }
[[steps]]
name = "b"
depends_on = ["a"]
timeout_seconds = 5
handler.callable = "y"
[[environments.test.steps]]
name = "ALL"
timeout_seconds = 9
`, "toml", "test")
	fromJSON := mustResolveTemplate(t, `{"name": "t", "namespace": "n", "version": "1.0.0",
		"unknown": [1, -2.5, 1e+21, 3.0, true, "ü\"\n"],
		"default_context": {"big": 9223372036854775807},
		"steps": [
			{"name": "a", "handler": {"callable": "x", "initialization": {"a": 1, "b": {"c": []}}}},
			{"name": "b", "depends_on": ["a"], "timeout_seconds": 5, "handler": {"callable": "y"}}],
		"environments": {"test": {"steps": [{"name": "ALL", "timeout_seconds": 9}]}}}`, "json", "test")
	if string(fromTOML.json) != string(fromJSON.json) {
		t.Errorf("got\n%s\nwant\n%s", fromTOML.json, fromJSON.json)
	}
	if fromTOML.hash != fromJSON.hash {
		t.Errorf("got hash %s; want %s", fromTOML.hash, fromJSON.hash)
	}
}

func TestEnvironments(t *testing.T) {
	const data = `{"name": "t", "version": "1.0.0",
		"steps": [
			{"name": "a", "handler": {"callable": "x", "initialization": {"keep": 1, "own": 1}}, "timeout_seconds": 5,
				"retry": {"max_attempts": 9, "backoff": "linear"}},
			{"name": "b", "handler": {"callable": "x"}}],
		"environments": {
			"test": {"steps": [
				{"name": "ALL", "timeout_seconds": 7, "handler": {"initialization": {"all": true}}},
				{"name": "a", "handler": {"initialization": {"own": {"n": 2}}}, "retry": {"max_attempts": 2}}]},
			"late": {"steps": [{"name": "a", "timeout_seconds": 8}, {"name": "ALL", "timeout_seconds": 7}]}}}`
	tests := []struct {
		env               string
		timeoutA, timeB   int
		retryA            retryPolicy
		configA, configB  string
		differsFromNoEnvs bool
	}{
		{"", 5, 30, retryPolicy{true, 9, backoffLinear, 1000, 30000}, `{"keep":1,"own":1}`, `{}`, false},
		{"unheard_of", 5, 30, retryPolicy{true, 9, backoffLinear, 1000, 30000}, `{"keep":1,"own":1}`, `{}`, false},
		{"test", 7, 7, retryPolicy{true, 2, backoffExponential, 1000, 30000},
			`{"all":true,"keep":1,"own":{"n":2}}`, `{"all":true}`, true},
		{"late", 7, 7, retryPolicy{true, 9, backoffLinear, 1000, 30000}, `{"keep":1,"own":1}`, `{}`, true},
	}
	plain := mustParseTemplate(t, data)
	for _, test := range tests {
		t.Run("env="+test.env, func(t *testing.T) {
			got := mustResolveTemplate(t, data, "json", test.env)
			a, b := got.steps[0], got.steps[1]
			if a.timeoutSeconds != test.timeoutA || b.timeoutSeconds != test.timeB {
				t.Errorf("got %d s, %d s; want %d s, %d s", a.timeoutSeconds, b.timeoutSeconds, test.timeoutA, test.timeB)
			}
			if a.retry != test.retryA {
				t.Errorf("got %+v; want %+v", a.retry, test.retryA)
			}
			if string(a.config) != test.configA || string(b.config) != test.configB {
				t.Errorf("got %s, %s; want %s, %s", a.config, b.config, test.configA, test.configB)
			}
			if differs := got.hash != plain.hash; differs != test.differsFromNoEnvs {
				t.Errorf("got other hash %v; want %v", differs, test.differsFromNoEnvs)
			}
			checkTemplateReload(t, got, test.env)
		})
	}
}

// checkTemplateReload checks that a template reads back as itself, both from its
// normalized form and when that is resolved again.
func checkTemplateReload(t *testing.T, want *template, env string) {
	t.Helper()
	kept, err := templateFromNormalized(want.json)
	if err != nil {
		t.Fatalf("got %v; want %s read back", err, want.json)
	}
	if !reflect.DeepEqual(kept, want) {
		t.Errorf("got %+v; want %+v", kept, want)
	}
	again, problems, _ := parseTemplate("", want.json, "json", env, nil)
	if again == nil {
		t.Fatalf("got problems %v; want none in %s", problems, want.json)
	}
	if !reflect.DeepEqual(again, want) {
		t.Errorf("resolved twice: got\n%s\nwant\n%s", again.json, want.json)
	}
}

func TestTemplateFromBrokenNormalizedForm(t *testing.T) {
	good := string(mustParseTemplate(t, string(templateDefinition(t, nil))).json)
	for _, test := range []struct{ name, old, new string }{
		{"cut off", `]}`, ``},
		{"no name", `"name":"t",`, ``},
		{"no version", `"version":"1.0.0"`, `"version":"1"`},
		{"name of another kind", `"name":"t"`, `"name":7`},
		{"steps of another kind", `"steps":[`, `"steps":{},"x":[`},
		{"step of another kind", `"steps":[`, `"steps":[7,`},
		{"config of another kind", `"initialization":{}`, `"initialization":7`},
		{"handler of another kind", `"handler":{`, `"handler":[],"x":{`},
		{"unknown dependency", `"dependencies":[]`, `"dependencies":["b"]`},
		{"cycle", `"dependencies":[]`, `"dependencies":["a"]`},
		{"dependency of another kind", `"dependencies":[]`, `"dependencies":[1]`},
		{"attempts of another kind", `"max_attempts":3`, `"max_attempts":3.5`},
	} {
		broken := strings.Replace(good, test.old, test.new, 1)
		if broken == good {
			t.Fatalf("%s: nothing to replace in %s", test.name, good)
		}
		if got, err := templateFromNormalized([]byte(broken)); err == nil {
			t.Errorf("%s: got %s; want an error", test.name, got.json)
		}
	}
}

// TestTemplateFieldsOfAnotherCase keeps fields whose names differ from the known
// ones in case only, and reads none of them.
func TestTemplateFieldsOfAnotherCase(t *testing.T) {
	const odd = `"Name":"x","NAMESPACE_NAME":"x","Version":"9","Steps":7,"\u017fteps":7,"Lifecycle":7`
	text := `{` + odd + `,"name":"t","version":"1.0.0","lifecycle":{"Staleness_Action":"none"},"steps":[{"name":"a",` +
		`"Name":"x","Timeout_Seconds":"x","handler":{"callable":"builtin:noop","Callable":"x","Method":7},` +
		`"retry":{"Max_Attempts":9,"Backoff":7},"batch_config":null}]}`
	got := mustParseTemplate(t, text)
	checkTemplateReload(t, got, "")
	s := got.steps[0]
	if got.fullName() != "default.t@1.0.0" || s.name != "a" || s.callable != "builtin:noop" || s.method != "" ||
		s.timeoutSeconds != 30 || s.retry != (retryPolicy{true, 3, backoffExponential, 1000, 30000}) ||
		got.lifecycle.StalenessAction != "" {
		t.Errorf("got %+v with lifecycle %+v; want none of the fields in another letter case", got, got.lifecycle)
	}
}

func TestTemplateOfTenThousandSteps(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	var b bytes.Buffer
	b.WriteString(`{"name":"t","version":"1.0.0","steps":[`)
	for i := range 10000 {
		if i > 0 {
			b.WriteString(`,{"depends_on":["s` + templateItemPath("", i-1) + `"],`)
		} else {
			b.WriteString(`{`)
		}
		b.WriteString(`"name":"s` + templateItemPath("", i) + `","handler":{"callable":"builtin:noop"}}`)
	}
	b.WriteString(`]}`)
	got := mustParseTemplate(t, b.String())
	if len(got.order) != 10000 || got.order[9999] != 9999 {
		t.Errorf("got %d steps in the order; want 10000", len(got.order))
	}
}

// TestRealTemplates loads templates of other projects.
func TestRealTemplates(t *testing.T) {
	dir := filepath.Join("..", "shared", "data", "templates")
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no real templates here: %v", err)
	}
	for _, env := range []string{"", "test", "development"} {
		r, warnings, err := loadTemplates([]string{dir}, env, nil)
		if err != nil {
			t.Fatalf("env %q: %v", env, err)
		}
		if len(r.all()) == 0 {
			t.Errorf("env %q: got no template; want some", env)
		}
		for _, w := range warnings {
			if strings.Contains(w, "unknown field") {
				t.Errorf("env %q: got warning %s; want none of this kind", env, w)
			}
		}
		for _, parsed := range r.all() {
			checkTemplateReload(t, parsed, env)
		}
	}
}

// refuseBadCallable refuses callables that begin with bad.
func refuseBadCallable(callable string) error {
	if strings.HasPrefix(callable, "bad") {
		return errors.New("no such handler")
	}
	return nil
}

func FuzzTemplateJSON(f *testing.F) { fuzzTemplate(f, "json", "templates/demo/*.json") }

func FuzzTemplateTOML(f *testing.F) { fuzzTemplate(f, "toml", "templates/demo/*.toml") }

// fuzzTemplate checks that no definition makes the reader panic, and that a
// template that loads reloads as the same.
func fuzzTemplate(f *testing.F, format, seeds string) {
	names, err := filepath.Glob(seeds)
	if err != nil || len(names) == 0 {
		f.Fatalf("got no seeds in %s: %v", seeds, err)
	}
	for _, name := range names {
		data := readFile(f, name)
		f.Add(data)
	}
	for _, seed := range []string{
		`{"name":"t","version":"1.0.0","environments":{"test":{"steps":[{"name":"ALL","timeout_seconds":5}]}}}`,
		`{"name":"t","namespace":"n","version":"1.0.0-a+b","x":[1.50,null],"steps":[{"name":"a",` +
			`"handler":{"callable":"x"},"retry":{"max_attempts":0}},{"name":"b","handler":{"callable":"x",` +
			`"initialization":{"dependency_results":"parents"}},"depends_on":["a","a"]}]}`,
		"name = 't'\nversion = '1.0.0'\n[environments.test]\nsteps = [{name = 'a', retry = {}}]\n" +
			"[[steps]]\nname = 'a'\nhandler = {callable = 'x', initialization = {f = 1e9, d = [0x10, -0.0]}}\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		parsed, problems, _ := parseTemplate("", data, format, "test", nil)
		if (parsed == nil) != (len(problems) > 0) {
			t.Fatalf("got template %v with problems %v", parsed, problems)
		}
		if parsed != nil {
			checkTemplateReload(t, parsed, "test")
		}
	})
}
