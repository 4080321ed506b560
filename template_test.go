package main

import (
	"errors"
	"path/filepath"
	"reflect"
	"slices"
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
	r, warnings, err := loadTemplates(nil, "development", &templateRules{callable: check, schemas: schemasRefused})
	if err != nil {
		t.Fatal(err)
	}
	checkTemplateLines(t, "warnings", warnings, nil)
	want := "demo.approval@1.0.0 demo.batch@1.0.0 demo.diamond@1.0.0 demo.exhausted@1.0.0 demo.failing@1.0.0 demo.fan_out@1.0.0 " +
		"demo.flaky@1.0.0 demo.linear@1.0.0 demo.routing@1.0.0 demo.slow@1.0.0"
	if got := fullTemplateNames(r.sorted); got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	for _, demo := range r.sorted {
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
