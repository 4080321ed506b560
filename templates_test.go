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
	"testing"
)

// templateDefinition is a small template with fields set to JSON texts: those that
// begin with "step." in its only step, the others in the template. An empty
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
	whole["steps"] = []byte("[" + templateTestJSON(t, step) + "]")
	for key, text := range fields {
		if !strings.HasPrefix(key, "step.") {
			set(whole, key, text)
		}
	}
	return []byte(templateTestJSON(t, whole))
}

func templateTestJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("encoding a definition: %v", err)
	}
	return string(data)
}

// mustParseTemplate is a template in JSON, without an environment.
func mustParseTemplate(t *testing.T, data string) *template {
	t.Helper()
	return mustResolveTemplate(t, data, "json", "")
}

// mustResolveTemplate fails the test unless data is accepted.
func mustResolveTemplate(t *testing.T, data, format, env string) *template {
	t.Helper()
	parsed, problems, _ := parseTemplate("", []byte(data), format, env)
	if len(problems) > 0 {
		t.Fatalf("got problems %v; want none in %s", problems, data)
	}
	return parsed
}

// TestTemplateRules has a row for each rule of a single field: a value, and
// the problem or, after a question mark, the warning that it gives; "" for neither.
func TestTemplateRules(t *testing.T) {
	long := func(n int) string { return `"` + strings.Repeat("ä", n) + `"` }
	retry := func(member string) string { return `{` + member + `}` }
	batch := `{"batch_size":1,"parallelism":1,"cursor_field":"id","worker_template":"w",` +
		`"failure_strategy":"isolate"}`
	override := func(member string) string { return `{"test":{"steps":[{"name":"a",` + member + `}]}}` }
	event := `{"name":"n","description":"d","schema":{}}`
	tests := []struct{ field, value, want string }{
		{"name", ``, "name: is required"},
		{"name", `null`, "name: is required"},
		{"name", `""`, "name: is empty"},
		{"name", `7`, "name: is a number; want a string"},
		{"name", long(255), ""},
		{"name", long(256), "name: has 256 characters, above 255"},
		{"namespace_name", `null`, ""},
		{"namespace_name", `"a_1"`, ""},
		{"namespace_name", `"abcdefghijklmnopqrstuvwxyz012"`, ""},
		{"namespace_name", `"abcdefghijklmnopqrstuvwxyz0123"`, "namespace_name: has 30 characters, above 29"},
		{"namespace_name", `""`, "namespace_name: is empty"},
		{"namespace_name", `"1a"`, `namespace_name: "1a" is not made of a-z, 0-9 and _, starting with a letter`},
		{"namespace_name", `"_a"`, `namespace_name: "_a" is not made of a-z, 0-9 and _, starting with a letter`},
		{"namespace", `"Ab"`, `namespace: "Ab" is not made of a-z, 0-9 and _, starting with a letter`},
		{"namespace", `"a-b"`, `namespace: "a-b" is not made of a-z, 0-9 and _, starting with a letter`},
		{"version", ``, "version: is required"},
		{"version", `"1.0"`, `version: "1.0" is no semantic version like 1.2.3`},
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
			`identity_strategy: "STRICT" is none of strict, caller_provided, always_unique`},
		{"default_context", `{"a":1e2}`, ""},
		{"default_context", `null`, ""},
		{"default_context", `[]`, "default_context: is a list; want an object"},
		{"input_schema", `true`, "input_schema: is true or false; want an object"},
		{"lifecycle", `{}`, ""},
		{"lifecycle", `[]`, "lifecycle: is a list; want an object"},
		{"lifecycle", `{"max_duration_minutes":0}`, "lifecycle.max_duration_minutes: 0 is below 1"},
		{"lifecycle", `{"max_duration_minutes":1.5}`, "lifecycle.max_duration_minutes: 1.5 is no integer"},
		{"lifecycle", `{"max_duration_minutes":100000001}`,
			"lifecycle.max_duration_minutes: 100000001 is above 100000000"},
		{"lifecycle", `{"max_waiting_for_dependencies_minutes":-1}`,
			"lifecycle.max_waiting_for_dependencies_minutes: -1 is below 1"},
		{"lifecycle", `{"max_waiting_for_retry_minutes":"5"}`,
			"lifecycle.max_waiting_for_retry_minutes: is a string; want a number"},
		{"lifecycle", `{"max_steps_in_process_minutes":1}`, ""},
		{"lifecycle", `{"staleness_action":"retry"}`,
			`lifecycle.staleness_action: "retry" is none of dlq, error, none`},
		{"lifecycle", `{"auto":true}`, "?lifecycle.auto: unknown field, kept as it is"},
		{"environments", `[]`, "environments: is a list; want an object"},
		{"environments", `{"test":null}`, ""},
		{"environments", `{"test":[]}`, "environments.test: is a list; want an object"},
		{"environments", `{"a b":{"steps":{}}}`, `environments["a b"].steps: is an object; want a list`},
		{"environments", `{"test":{"steps":[{}]}}`, "environments.test.steps[0].name: is required"},
		{"environments", `{"test":{"steps":[{"name":"b"}]}}`,
			`?environments.test.steps[0].name: there is no step "b" to override`},
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
			"?environments.test.step: unknown field, kept as it is (is steps meant?)"},
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
		{"Name", `"x"`, "?Name: unknown field, kept as it is (is name meant?)"},

		{"step.name", ``, "steps[0].name: is required"},
		{"step.name", long(256), "steps[0].name: has 256 characters, above 255"},
		{"step.description", `1`, "steps[0].description: is a number; want a string"},
		{"step.type", `"decision"`, ""},
		{"step.type", `"deferred_convergence"`, ""},
		{"step.type", `"batchable"`, ""},
		{"step.type", `"batch_worker"`, "?steps[0]: no step of type batchable makes it, so that it never exists"},
		{"step.step_type", `"odd"`, `steps[0].step_type: "odd" is none of standard, decision, deferred_convergence, ` +
			`batchable, batch_worker`},
		{"step.handler", ``, "steps[0].handler: is required"},
		{"step.handler", `"x"`, "steps[0].handler: is a string; want an object"},
		{"step.handler", `{}`, "steps[0].handler.callable: is required"},
		{"step.handler", `{"callable":""}`, "steps[0].handler.callable: is empty"},
		{"step.handler", `{"callable":` + long(500) + `}`, ""},
		{"step.handler", `{"callable":` + long(501) + `}`,
			"steps[0].handler.callable: has 501 characters, above 500"},
		{"step.handler", `{"callable":"x","method":1}`, "steps[0].handler.method: is a number; want a string"},
		{"step.handler", `{"callable":"x","resolver":null,"method":null,"initialization":null}`, ""},
		{"step.handler", `{"callable":"x","resolver":1}`, "steps[0].handler.resolver: is a number; want a string"},
		{"step.handler", `{"callable":"x","initialization":[]}`,
			"steps[0].handler.initialization: is a list; want an object"},
		{"step.handler", `{"callable":"x","initialisation":{}}`,
			"?steps[0].handler.initialisation: unknown field, kept as it is (is initialization meant?)"},
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
		{"step.retry", retry(`"max_attempts":3.0`), "steps[0].retry.max_attempts: 3.0 is no integer"},
		{"step.retry", retry(`"max_attempts":1e1`), "steps[0].retry.max_attempts: 1e1 is no integer"},
		{"step.retry", retry(`"max_attempts":99999999999999999999`),
			"steps[0].retry.max_attempts: 99999999999999999999 is above 100"},
		{"step.retry", retry(`"backoff":"none"`), ""},
		{"step.retry", retry(`"backoff":"linear"`), ""},
		{"step.retry", retry(`"backoff":"fibonacci"`), ""},
		{"step.retry", retry(`"backoff":"random"`),
			`steps[0].retry.backoff: "random" is none of none, linear, exponential, fibonacci`},
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
		{"step.batch_config", batch, ""},
		{"step.batch_config", `{}`, "steps[0].batch_config.batch_size: is required"},
		{"step.batch_config", strings.Replace(batch, "1", "0", 1),
			"steps[0].batch_config.batch_size: 0 is below 1"},
		{"step.batch_config", strings.Replace(batch, "isolate", "stop", 1),
			`steps[0].batch_config.failure_strategy: "stop" is none of continue_on_failure, fail_fast, isolate`},
		{"step.composition", `"anything"`, ""},
		{"step.tiemout_seconds", `5`,
			"?steps[0].tiemout_seconds: unknown field, kept as it is (is timeout_seconds meant?)"},
	}
	for _, test := range tests {
		t.Run(test.field+"="+clippedText(test.value), func(t *testing.T) {
			data := templateDefinition(t, map[string]string{test.field: test.value})
			parsed, problems, warnings := parseTemplate("", data, "json", "")
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
	tests := []struct {
		name, steps        string
		problems, warnings []string
	}{
		{"two of a name", `{"name":"a",` + handler + `},{"name":"a",` + handler + `}`,
			[]string{`steps[1].name: "a" is the name of steps[0] already`}, nil},
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
			[]string{"steps[0].depends_on: is given twice, here and as dependencies"}, nil},
		{"one spelling null", `{"name":"a",` + handler + `,"dependencies":null,"depends_on":[]}`, nil, nil},
		{"worker that is no batch_worker", batchable + `,{"name":"w",` + handler + `}`,
			nil, []string{`steps[0]: its worker template "w" is no step of type batch_worker`}},
		{"worker that is one", batchable + `,{"name":"w","type":"batch_worker",` + handler + `}`, nil, nil},
		{"worker of nobody", `{"name":"a",` + handler + `},{"name":"w","type":"batch_worker",` + handler +
			`,"dependencies":["a"]}`,
			nil, []string{`steps[1]: no step of type batchable makes it, so that it never exists`}},
		{"worker of a batchable that it depends on", `{"name":"b","type":"batchable",` + handler + `},` +
			`{"name":"w","type":"batch_worker",` + handler + `,"dependencies":["b"]}`, nil, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			data := templateDefinition(t, map[string]string{"steps": "[" + test.steps + "]"})
			_, problems, warnings := parseTemplate("", data, "json", "")
			checkTemplateLines(t, "problems", templateProblemLines(problems), test.problems)
			checkTemplateLines(t, "warnings", warnings, test.warnings)
		})
	}
}

func templateProblemLines(problems []templateProblem) []string {
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
	_, problems, _ := parseCheckedTemplate("t.json", []byte(data), "json", "test", refuseBadCallable)
	checkTemplateLines(t, "problems", templateProblemLines(problems), []string{
		"t.json: name: is empty",
		`t.json: namespace: "Demo" is not made of a-z, 0-9 and _, starting with a letter`,
		`t.json: version: "one" is no semantic version like 1.2.3`,
		"t.json: lifecycle.max_duration_minutes: 0 is below 1",
		"t.json: environments.test.steps[0].timeout_seconds: -1 is below 1",
		"t.json: steps[0].handler.callable: is a number; want a string",
		"t.json: steps[0].dependencies[2]: is a number; want a string",
		"t.json: steps[1].handler: is required",
		"t.json: steps[1].retry.max_attempts: 200 is above 100",
		`t.json: steps[1].retry.backoff: "odd" is none of none, linear, exponential, fibonacci`,
		"t.json: steps[3].handler.callable: no such handler",
		`t.json: steps[3].name: "c" is the name of steps[2] already`,
		"t.json: steps[0].dependencies[0]: a step cannot depend on itself",
		`t.json: steps[0].dependencies[1]: there is no step "nobody"`,
		"t.json: steps: they depend on each other, each on the next: b -> c -> b",
	})
}

func TestBrokenDefinitions(t *testing.T) {
	tests := []struct{ name, format, data, want string }{
		{"empty", "json", ``, ""},
		{"cut off", "json", `{"name": "t"`, ""},
		{"two values", "json", `{"name":"t","version":"1.0.0"} {}`, ""},
		{"no object", "json", `[]`, "f: is a list; want an object"},
		{"null", "json", `null`, "f: is null; want an object"},
		{"TOML syntax", "toml", "name = 't'\nversion =\n", "f: line 2: "},
		{"TOML key twice", "toml", "name = 't'\nname = 'u'\n", "f: line 2: "},
		{"TOML time", "toml", "name = 't'\nversion = '1.0.0'\ndefault_context = {at = 2026-01-31T12:00:00Z}\n",
			"f: default_context.at: is a TOML date or time; write it as a string"},
		{"TOML date of a required field", "toml", "name = 2026-01-31\nversion = '1.0.0'\n",
			"f: name: is a TOML date or time; write it as a string"},
		{"TOML nan", "toml", "name = 't'\nversion = '1.0.0'\n[default_context]\nx = [1, nan]\n",
			"f: default_context.x[1]: is NaN, which JSON has not"},
		{"TOML inf", "toml", "name = 't'\nversion = '1.0.0'\nmetadata = {x = -inf}\n",
			"f: metadata.x: is -Inf, which JSON has not"},
		{"TOML float for an integer", "toml", "name = 't'\nversion = '1.0.0'\nlifecycle = {max_duration_minutes = 5.0}\n",
			"f: lifecycle.max_duration_minutes: 5.0 is no integer"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			parsed, problems, _ := parseTemplate("f", []byte(test.data), test.format, "")
			if parsed != nil || len(problems) != 1 {
				t.Fatalf("got template %v and problems %v; want one problem", parsed, problems)
			}
			if got := problems[0].String(); !strings.HasPrefix(got, test.want) {
				t.Errorf("got %q; want it to begin with %q", got, test.want)
			}
		})
	}
}

// TestNormalizedForm shows the whole normalized form, with and without what is optional.
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
	if *l.maxDurationMinutes != 5 || l.maxStepsInProcessMinutes != nil || l.stalenessAction != "error" {
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

// checkTemplateReload checks that a template reads back as itself, from what is kept
// and from what is served, resolved once more.
func checkTemplateReload(t *testing.T, want *template, env string) {
	t.Helper()
	kept, err := templateFromNormalized(want.json)
	if err != nil {
		t.Fatalf("got %v; want %s read back", err, want.json)
	}
	if !reflect.DeepEqual(kept, want) {
		t.Errorf("got %+v; want %+v", kept, want)
	}
	again, problems, _ := parseTemplate("", want.json, "json", env)
	if again == nil {
		t.Fatalf("got problems %v; want none in %s", problems, want.json)
	}
	if !reflect.DeepEqual(again, want) {
		t.Errorf("resolved twice: got\n%s\nwant\n%s", again.json, want.json)
	}
}

func TestTemplateFromBrokenNormalizedForm(t *testing.T) {
	good := string(mustParseTemplate(t, string(templateDefinition(t, nil))).json)
	tests := []struct{ name, old, new string }{
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
	}
	for _, test := range tests {
		broken := strings.Replace(good, test.old, test.new, 1)
		if broken == good {
			t.Fatalf("%s: nothing to replace in %s", test.name, good)
		}
		if got, err := templateFromNormalized([]byte(broken)); err == nil {
			t.Errorf("%s: got %s; want an error", test.name, got.json)
		}
	}
}

func TestTemplateOfTenThousandSteps(t *testing.T) {
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

// TestRealTemplates loads templates as they are used elsewhere.
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

// refuseBadCallable is a check of callables that refuses those that begin with bad.
func refuseBadCallable(callable string) error {
	if strings.HasPrefix(callable, "bad") {
		return errors.New("no such handler")
	}
	return nil
}

func FuzzTemplateJSON(f *testing.F) { fuzzTemplate(f, "json", "templates/demo/*.json") }

func FuzzTemplateTOML(f *testing.F) { fuzzTemplate(f, "toml", "templates/demo/*.toml") }

// fuzzTemplate checks that no definition is too much, and that what loads
// reloads as the same.
func fuzzTemplate(f *testing.F, format, seeds string) {
	names, err := filepath.Glob(seeds)
	if err != nil || len(names) == 0 {
		f.Fatalf("got no seeds in %s: %v", seeds, err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
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
		parsed, problems, _ := parseTemplate("", data, format, "test")
		if (parsed == nil) != (len(problems) > 0) {
			t.Fatalf("got template %v with problems %v", parsed, problems)
		}
		if parsed != nil {
			checkTemplateReload(t, parsed, "test")
		}
	})
}
