package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// registryOf makes a registry of templates without steps, given as full names.
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
	tests := []struct{ namespace, name, version, want string }{
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
	}
	for _, test := range tests {
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
	tests := []struct{ namespace, name, version, want string }{
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
	}
	for _, test := range tests {
		if got := r.nearest(test.namespace, test.name, test.version); got != test.want {
			t.Errorf("%s.%s@%s: got %q; want %q", test.namespace, clippedText(test.name), test.version, got, test.want)
		}
	}
}

func TestTypoDistance(t *testing.T) {
	tests := []struct {
		a, b  string
		limit int
		want  int
	}{
		{"", "", 0, 0}, {"a", "", 3, 1}, {"kitten", "sitting", 3, 3}, {"kitten", "sitting", 2, 3}, {"abc",
			"abc", 0, 0},
		{"abc", "abd", 0, 1}, {"abcdef", "a", 3, 4}, {"flaw", "lawn", 2, 2},
	}
	for _, test := range tests {
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
	tests := []struct{ namespace, want string }{
		{"default", `[{"name":"s","namespace":"default","version":"1.0.0","description":"d","step_count":1}]`},
		{"b", `[{"name":"x","namespace":"b","version":"1.0.0","description":null,"step_count":0}]`},
		{"unheard_of", `[]`},
	}
	for _, test := range tests {
		want := namespaces + test.want + `,"total_count":4}`
		if got := templateTestJSON(t, r.listView(test.namespace)); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", test.namespace, got, want)
		}
	}
	if got := len(r.listView("").Templates); got != 4 {
		t.Errorf("no filter: got %d templates; want 4", got)
	}
	want := `{"namespaces":[],"templates":[],"total_count":0}`
	if got := templateTestJSON(t, newRegistry(nil).listView("")); got != want {
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
	if got := templateTestJSON(t, parsed.detailView()); got != want {
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
	shown := templateTestJSON(t, parsed.detailView()) + templateTestJSON(t, r.listView("")) +
		parsed.steps[0].shownCallable()
	if strings.Contains(shown, secret) || strings.Contains(shown, "s3c") {
		t.Errorf("got %s; want no credentials", shown)
	}
	if got, want := parsed.steps[0].shownCallable(), "http://[REDACTED]@h:1/p"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	if !json.Valid(parsed.shownJSON()) || !strings.Contains(string(parsed.json), secret) {
		t.Errorf("got %s; want it valid, and what is kept unchanged", parsed.shownJSON())
	}
	for _, plain := range []string{"http://h/a@b", "http://h?x=@", "me@example.org", "x:y@z", "http://h and a@b"} {
		if got := string(hideCredentials([]byte(plain))); got != plain {
			t.Errorf("got %s; want it left alone", got)
		}
	}
}
