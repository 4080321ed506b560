package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"stepwell/e2e/wire"
	"strings"
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

func TestRegistryOrder(t *testing.T) {
	r := registryOf(t, "b.x@1.0.0", "a.y@1.10.0", "a.y@1.9.0", "a.y@1.10.0-rc.1", "a.x@1.0.0")
	want := "a.x@1.0.0 a.y@1.9.0 a.y@1.10.0-rc.1 a.y@1.10.0 b.x@1.0.0"
	if got := fullTemplateNames(r.sorted); got != want {
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
	if got, want := fullTemplateNames(r.with(added).sorted), "n.a@1.0.0 n.a@1.1.0 n.b@1.0.0"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	if got, _ := r.with(other).get("n", "a", ""); got != other {
		t.Errorf("got %s; want the new one", got.json)
	}
	if got, want := fullTemplateNames(r.sorted), "n.a@1.0.0 n.b@1.0.0"; got != want {
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

func fullTemplateNames(templates []*template) string {
	var names []string
	for _, t := range templates {
		names = append(names, t.fullName())
	}
	return strings.Join(names, " ")
}

// TestRealTemplates loads templates of other projects.
func TestRealTemplates(t *testing.T) {
	dir := filepath.Join("..", "shared", "data", "templates")
	if _, err := os.Stat(dir); err != nil {
		wire.Lack(t, "../shared/data", "no real templates here: %v", err)
	}
	for _, env := range []string{"", "test", "development"} {
		r, warnings, err := loadTemplates([]string{dir}, env, nil)
		if err != nil {
			t.Fatalf("env %q: %v", env, err)
		}
		if len(r.sorted) == 0 {
			t.Errorf("env %q: got no template; want some", env)
		}
		for _, w := range warnings {
			if strings.Contains(w, "unknown field") {
				t.Errorf("env %q: got warning %s; want none of this kind", env, w)
			}
		}
		for _, parsed := range r.sorted {
			checkTemplateReload(t, parsed, env)
		}
	}
}
