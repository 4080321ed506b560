package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"testing"
)

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

// TestSearched takes the values by which a task is found from contexts.
func TestSearched(t *testing.T) {
	tpl := &template{search: []string{"order_id", "customer.email", "n", "ok"}}
	long := strings.Repeat("x", maxSearchText)
	for _, test := range []struct{ context, want string }{
		{`{}`, ``},
		{`{"order_id":"ORD-1","customer":{"email":"a@b","name":"x"},"n":-1.50e3,"ok":false,"other":1}`,
			`{"order_id":"ORD-1","customer.email":"a@b","n":-1.50e3,"ok":false}`},
		{`{"n":1,"order_id":"a\"b"}`, `{"order_id":"a\"b","n":1}`},
		{`{"order_id":null,"n":[1],"ok":{},"customer":"email"}`, ``},
		{`{"customer.email":"a@b","customer":{"email":{"x":1}}}`, ``},
		{`{"order_id":"` + long + `"}`, `{"order_id":"` + long + `"}`},
		{`{"order_id":"x` + long + `"}`, ``},
	} {
		if got := string(tpl.searched([]byte(test.context))); got != test.want {
			t.Errorf("%s: got %s; want %s", test.context, got, test.want)
		}
	}
	if got := (&template{}).searched([]byte(`{"":1}`)); got != nil {
		t.Errorf("got %s without paths; want nothing", got)
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

// TestSearchFromOutside checks that a state cannot bring paths that a new template must not have.
func TestSearchFromOutside(t *testing.T) {
	good := string(mustParseTemplate(t, string(templateDefinition(t, nil))).json)
	for search, ok := range map[string]bool{`["a","b.c"]`: true, `[]`: true, `{"a":1}`: false, `["a",1]`: false, `["a","a"]`: false, `"a"`: false} {
		text := strings.Replace(good, `"steps":`, `"search":`+search+`,"steps":`, 1)
		if got, err := templateFromNormalized([]byte(text)); (err == nil) != ok {
			t.Errorf("%s: got %v, %v; want it accepted: %v", search, got, err, ok)
		}
	}
}

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

func TestNearestTemplate(t *testing.T) {
	r := registryOf(t, "demo.linear@1.0.0", "demo.linear@1.2.0", "demo.diamond@1.0.0",
		"shop.order@1.0.0", "shop.buy@1.0.0", "stop.order@2.0.0", "demo.ab@1.0.0")
	for _, test := range []struct{ namespace, name, version, want string }{
		{"demo", "linear", "3.0.0", "demo/linear@1.2.0"},
		{"default", "linear", "", "demo/linear"},
		{"default", "linear", "1.0.0", "demo/linear@1.0.0"},
		{"demo", "liner", "", "demo/linear"},
		{"demo", "Diamnod", "latest", "demo/diamond@1.0.0"},
		{"shop", "order", "2.0.0", "shop/order@1.0.0"},
		{"stop", "oder", "", "stop/order"},
		{"stopp", "order", "", "stop/order"},
		{"default", "liner", "", "demo/linear"},
		{"demo", "ax", "", "demo/ab"},
		{"demo", "xy", "", ""},
		{"shop", "bye", "", "shop/buy"},
		{"demo", "bye", "", ""},
		{"demo", "", "", ""},
		{"demo", "something_else", "1.0.0", ""},
		{"demo", strings.Repeat("linear", 100000), "", ""},
	} {
		if got := r.nearest(test.namespace, test.name, test.version); got != test.want {
			t.Errorf("%s.%s@%s: got %q; want %q", test.namespace, clippedText(test.name), test.version, got, test.want)
		}
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

// TestConvertTemplates converts the templates at hand to JSON, and compares what is read.
func TestConvertTemplates(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	files := must(filepath.Glob("templates/demo/*"))(t)
	files = append(files, must(filepath.Glob("../shared/data/templates*/*"))(t)...)
	for _, file := range files {
		format, text := templateFormat(file), readFile(t, file)
		want := mustResolveTemplate(t, string(text), format, "")
		converted := must(convertTemplate("x."+format, text, "json"))(t)
		if got := mustResolveTemplate(t, string(converted), "json", ""); !sameJSON(got.json, want.json) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, got.json, want.json)
		}
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

func namedDefinition(name string) string {
	return `{"name":"` + name + `","version":"1.0.0","steps":[]}`
}

func TestLoadTemplates(t *testing.T) {
	dir := writeTemplateFiles(t, map[string]string{
		"b.json":           namedDefinition("b"),
		"a.toml":           "name = 'a'\nversion = '1.0.0'\nodd = 1\nsteps = []\n",
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
	noError(t, os.MkdirAll(filepath.Join(other, ".data"), 0o700))
	hidden := filepath.Join(other, ".data", "x.json") // read by the link to it alone
	noError(t, os.WriteFile(hidden, []byte(namedDefinition("x")), 0o600))
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
	checkTemplateLines(t, "warnings", warnings, []string{dir + ": has no template; " + templateFiles + ", and only with steps"})
}

// TestLoadTemplatesOfAProject checks what is read of a directory that was not made for templates.
func TestLoadTemplatesOfAProject(t *testing.T) {
	dir := writeTemplateFiles(t, map[string]string{
		"flows/a.yaml":        "name: a\nversion: 1.0.0\nsteps: []\n",
		"big.json":            namedDefinition("big") + strings.Repeat(" ", maxFoundTemplate),
		"build.yaml":          "steps:\n  - name: compile\n",
		"chart.yaml":          "{{- if .Values.steps }}\nkind: x\n{{- end }}\n",
		"ci.yaml":             "kind: pipeline\nname: build\nsteps:\n- name: test\n---\nkind: secret\n",
		"compose.yaml":        "services:\n  steps: {image: x}\n",
		"list.json":           `["steps"]`,
		"misspelled.yaml":     "namespace: shop\nname: m\nversion: 1.0.0\nstpes: []\n",
		"node_modules/m.json": namedDefinition("m"),
		"old.toml":            "namespace_name = 'shop'\nname = 'old'\nversion = '1.0.0'\n",
		"package.json":        `{"name":"p","version":"1.0.0"}`,
		"stairs.json":         `{"steps": 12}`,
		"tsconfig.json":       "// comment\n{\"x\": \"steps\"}",
	})
	outside := writeTemplateFiles(t, map[string]string{"o.json": namedDefinition("o")})
	noError(t, os.Symlink(filepath.Join(outside, "o.json"), filepath.Join(dir, "out.json")))
	makePipe(filepath.Join(dir, "pipe.yaml")) // where there are some
	var passed []string
	rules := &templateRules{passed: func(file, why string) { passed = append(passed, strings.TrimPrefix(file, dir)+": "+why) }}
	r, warnings := must2(loadTemplates([]string{dir}, "", rules))(t)
	if got := fullTemplateNames(r.sorted); got != "default.a@1.0.0" {
		t.Errorf("got %s; want only a", got)
	}
	checkTemplateLines(t, "warnings", warnings, []string{
		filepath.Join(dir, "build.yaml") + ": passed over: looks like a template, but has no name or version",
		filepath.Join(dir, "ci.yaml") + ": passed over: looks like a template, but has no version",
		filepath.Join(dir, "misspelled.yaml") + ": passed over: looks like a template, but has no steps",
		filepath.Join(dir, "old.toml") + ": passed over: looks like a template, but has no steps",
	})
	checkTemplateLines(t, "files passed over", passed, []string{
		"/big.json: larger than 16 MiB", "/chart.yaml: not a template", "/compose.yaml: not a template",
		"/list.json: not a template", "/out.json: a link that leads out", "/package.json: not a template",
		"/stairs.json: not a template", "/tsconfig.json: not a template",
	})
	// A file that is named alone is read in any case.
	for _, name := range []string{"big.json", "node_modules/m.json", "out.json"} {
		if r, _, err := loadTemplates([]string{filepath.Join(dir, name)}, "", nil); err != nil || len(r.sorted) != 1 {
			t.Errorf("%s: got %v; want its template", name, err)
		}
	}
	if _, _, err := loadTemplates([]string{filepath.Join(dir, "build.yaml")}, "", nil); err == nil {
		t.Error("a file without a name, named alone, is accepted")
	}
	templateEntries("/proc", func(name string, err error) { t.Errorf("got %s, %v below /proc; want nothing", name, err) })
}

func TestLoadTemplatesListsEveryProblem(t *testing.T) {
	dir := writeTemplateFiles(t, map[string]string{
		"a.json": namedDefinition("t"),
		"b.json": `{"name":"t","version":"1.0.0","namespace":"default","steps":[]}`,
		"c.json": `{"name":"c","version":"x","steps":[{"name":"s","handler":{"callable":"bad"}}]}`,
		"d.toml": "name = \nversion = '1.0.0'\n[[steps]]",
		"e.toml": "name = 'e'\nversion = '1.0.0'\n[[steps]]\nname = 's'\nhandler.callable = 'bad'\n",
	})
	noError(t, os.Symlink("nowhere", filepath.Join(dir, "f.json")))
	noError(t, os.MkdirAll(filepath.Join(dir, ".d"), 0o700))
	noError(t, os.Symlink(".d", filepath.Join(dir, "g.json")))
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
		in("d.toml") + ":1:8: invalid TOML: ",
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
