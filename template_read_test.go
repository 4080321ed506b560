package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// templateSections are the sections of docs/reference/templates.md that describe fields, with their tables.
var templateSections = map[string][]templateField{
	"The template": templateFields, "`metadata`": metadataFields, "`lifecycle`": lifecycleFields,
	"`system_dependencies`": systemFields, "`domain_events`": domainEventFields, "`steps`": stepFields,
	"`handler`": handlerFields, "`retry`": retryFields, "`batch_config`": batchFields,
	"`publishes_events`": publishedEventFields, "`environments`": environmentFields,
	"The override of a step": overrideFields,
}

// TestTemplatesPage holds docs/reference/templates.md to the tables of the reader: each section has a row
// for each field, in their order, with its names, its type, its default and an example that is
// accepted. The example of the guide is read, too.
func TestTemplatesPage(t *testing.T) {
	page, guide := string(readFile(t, "docs/reference/templates.md")), string(readFile(t, "docs/templates.md"))
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
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(guide)[1]
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

// TestPlacesOfManyWarnings checks the places of 20,000 warnings, in one line and in many: the text is passed once for
// all of them.
func TestPlacesOfManyWarnings(t *testing.T) {
	for name, gap := range map[string]string{"one line": "", "many lines": "\n\t"} {
		text, offsets := []byte(`{"name":"ä","version":"1.0.0"`), []int{}
		for i := range 20_000 {
			text = append(text, ","+gap...)
			offsets = append(offsets, len(text))
			text = fmt.Appendf(text, `"ä%d":0`, i)
		}
		text = append(text, '}')
		var warnings []string
		took := allocated(func() { _, _, warnings = parseTemplate("f", text, "json", "", nil) })
		if len(warnings) != len(offsets) || took > 400*uint64(len(text)) {
			t.Fatalf("%s: got %d warnings with %d bytes allocated; want %d", name, len(warnings), took, len(offsets))
		}
		for _, i := range []int{0, 1, 9_999, 19_999} {
			before := text[:offsets[i]]
			start := bytes.LastIndexByte(before, '\n') + 1
			want := fmt.Sprintf("f:%d:%d: [\"ä%d\"]", bytes.Count(before, []byte("\n"))+1, utf8.RuneCount(before[start:])+1, i)
			if !slices.ContainsFunc(warnings, func(w string) bool { return strings.HasPrefix(w, want+": unknown field") }) {
				t.Errorf("%s: got no warning %s", name, want)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("the cursor went back; want it to move forward only")
		}
	}()
	c := newTextCursor([]byte("abc"))
	c.moveTo(2)
	c.moveTo(1)
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

// TestTemplateRules has a row for each rule of a single field: a value and the
// problem or, after a question mark, the warning that it causes; "" for neither.
func TestTemplateRules(t *testing.T) {
	long := func(n int) string { return `"` + strings.Repeat("ä", n) + `"` }
	retry := func(member string) string { return `{` + member + `}` }
	asked := func(members string) string { return `{"callable":"x","initialization":{` + members + `}}` }
	batch := `{"batch_size":1,"parallelism":1,"cursor_field":"id","worker_template":"w",` +
		`"failure_strategy":"isolate"}`
	override := func(member string) string { return `{"test":{"steps":[{"name":"a",` + member + `}]}}` }
	event := `{"name":"n","description":"d","schema":{}}`
	misnamed := func(path string) string {
		return path + `: "a\u202eb" has the character U+202E; a name must not have control characters, bidi controls or line separators`
	}
	for _, test := range []struct{ field, value, want string }{
		{"name", ``, "name: is required"},
		{"name", `null`, "name: is required"},
		{"name", `""`, "name: is empty"},
		{"name", `7`, "name: is a number; want a string"},
		{"name", long(255), ""},
		{"name", long(256), "name: has 256 characters; want at most 255"},
		{"name", `"a b 漢🙂\u00a0\u200d$\\"`, ""},
		{"name", `"a\u202eb"`, misnamed("name")},
		{"namespace_name", `"a\u202eb"`, misnamed("namespace_name")},
		{"metadata", `{"tags":["a","a\u202eb"]}`, misnamed("metadata.tags[1]")},
		{"domain_events", `[{"name":"a\u202eb"}]`, misnamed("domain_events[0].name")},
		{"environments", `{"test":{"steps":[{"name":"a\u202eb"}]}}`, misnamed("environments.test.steps[0].name")},
		{"step.name", `"a\u202eb"`, misnamed("steps[0].name")},
		{"step.dependencies", `["a\u202eb"]`, misnamed("steps[0].dependencies[0]")},
		{"step.publishes_events", `[` + strings.Replace(event, `"n"`, `"a\u202eb"`, 1) + `]`,
			misnamed("steps[0].publishes_events[0].name")},
		{"step.batch_config", strings.Replace(batch, `"w"`, `"a\u202eb"`, 1), misnamed("steps[0].batch_config.worker_template")},
		{"namespace_name", `null`, ""},
		{"namespace_name", `"a_1"`, ""},
		{"namespace_name", `"abcdefghijklmnopqrstuvwxyz012"`, ""},
		{"namespace_name", `"abcdefghijklmnopqrstuvwxyz0123"`, "namespace_name: has 30 characters; want at most 29"},
		{"namespace_name", `""`, "namespace_name: is empty"},
		{"namespace_name", `"1a"`, `namespace_name: "1a" must start with a letter and have only a-z, 0-9 and _`},
		{"namespace_name", `"_a"`, `namespace_name: "_a" must start with a letter and have only a-z, 0-9 and _`},
		{"namespace", `"Ab"`, `namespace: "Ab" must start with a letter and have only a-z, 0-9 and _`},
		{"namespace", `"a-b"`, `namespace: "a-b" must start with a letter and have only a-z, 0-9 and _`},
		{"name", `"."`, `name: "." means a directory in a path, so it must not be a name`},
		{"name", `".."`, `name: ".." means a directory in a path, so it must not be a name`},
		{"name", `"..a"`, ""},
		{"step.name", `".."`, `steps[0].name: ".." means a directory in a path, so it must not be a name`},
		{"version", ``, "version: is required"},
		{"version", `"1.0"`, `version: "1.0" is not a semantic version like 1.2.3`},
		{"version", `1.0`, "version: is a number; want a string"},
		{"version", `"1.0.0-rc.1+b"`, ""},
		{"description", `null`, ""},
		{"metadata", `{"author":"x","tags":["a"],"documentation_url":null,"other":[1,null]}`, ""},
		{"metadata", `[]`, "metadata: is a list; want an object"},
		{"metadata", `{"tags":"a"}`, "metadata.tags: is a string; want a list"},
		{"identity_strategy", `"caller_provided"`, ""},
		{"identity_strategy", `"always_unique"`, ""},
		{"identity_strategy", `"STRICT"`,
			`identity_strategy: unknown identity_strategy "STRICT"; want strict, caller_provided or always_unique`},
		{"default_context", `{"a":1e2}`, ""},
		{"default_context", `null`, ""},
		{"default_context", `[]`, "default_context: is a list; want an object"},
		{"search", `["order_id","customer.email","ключ","a-b.c_d.9"]`, ""},
		{"search", `[]`, ""},
		{"search", `["a","b","c","d","e","f","g","h"]`, ""},
		{"search", `["a","b","c","d","e","f","g","h","i"]`, "search: has 9 paths; want at most 8"},
		{"search", `["a","b","c","d","e","f","g","h","h"]`, "search: has 9 paths; want at most 8"},
		{"search", `"order_id"`, "search: is a string; want a list"},
		{"search", `["a",""]`, "search[1]: is empty"},
		{"search", `["a","b","a"]`, `search[2]: repeats "a"`},
		{"search", `["a..b"]`, `search[0]: "a..b" must be names of members with dots between them, like customer.email`},
		{"search", `["a b"]`, `search[0]: "a b" must be names of members with dots between them, like customer.email`},
		{"search", `["a=b"]`, `search[0]: "a=b" must be names of members with dots between them, like customer.email`},
		{"search", `[` + long(256) + `]`, "search[0]: has 256 characters; want at most 255"},
		{"lifecycle", `{}`, ""},
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
		{"environments", `{"test":null}`, ""},
		{"environments", `{"a b":{"steps":{}}}`, `environments["a b"].steps: is an object; want a list`},
		{"environments", `{"test":{"steps":[{}]}}`, "environments.test.steps[0].name: is required"},
		{"environments", `{"test":{"steps":[{"name":"b"}]}}`,
			`?environments.test.steps[0].name: unknown step "b"; nothing to override`},
		{"environments", `{"test":{"steps":[{"name":"ALL"}]}}`, ""},
		{"environments", override(`"timeout_seconds":0`),
			"environments.test.steps[0].timeout_seconds: 0 is below 1"},
		{"environments", override(`"retry":{"max_attempts":101}`),
			"environments.test.steps[0].retry.max_attempts: 101 is above 100"},
		{"environments", override(`"handler":{"callable":"y"}`),
			"?environments.test.steps[0].handler.callable: unknown field, kept as it is"},
		{"environments", `{"test":{"step":[]}}`,
			"?environments.test.step: unknown field, kept as it is (did you mean steps?)"},
		{"system_dependencies", `{"primary":"db","secondary":["x"]}`, ""},
		{"domain_events", `[{"name":"e"}]`, ""},
		{"domain_events", `[{}]`, "domain_events[0].name: is required"},
		{"task_handler", `[1,{"a":null}]`, ""},
		{"steps", ``, ""},
		{"steps", `null`, ""},
		{"extra", `{"a":null}`, "?extra: unknown field, kept as it is"},
		{"Name", `"x"`, "?Name: unknown field, kept as it is (did you mean name?)"},

		{"step.name", ``, "steps[0].name: is required"},
		{"step.name", long(256), "steps[0].name: has 256 characters; want at most 255"},
		{"step.type", `"decision"`, ""},
		{"step.type", `"deferred_convergence"`, ""},
		{"step.type", `"batchable"`, ""},
		{"step.type", `"batch_worker"`, "?steps[0]: is never created: no step of type batchable creates it"},
		{"step.step_type", `"odd"`, `steps[0].step_type: unknown step_type "odd"; want standard, decision, deferred_convergence, ` +
			`batchable or batch_worker`},
		{"step.handler", ``, "steps[0].handler: is required"},
		{"step.handler", `{}`, "steps[0].handler.callable: is required"},
		{"step.handler", `{"callable":""}`, "steps[0].handler.callable: is empty"},
		{"step.handler", `{"callable":` + long(500) + `}`, ""},
		{"step.handler", `{"callable":` + long(501) + `}`,
			"steps[0].handler.callable: has 501 characters; want at most 500"},
		{"step.handler", `{"callable":"x","resolver":null,"method":null,"initialization":null}`, ""},
		{"step.handler", asked(`"answer_within":"72h"`), ""},
		{"step.handler", asked(`"answer_within":"1w2d","if_unanswered":{"approved":false}`), ""},
		{"step.handler", asked(`"answer_within":null,"if_unanswered":null`), ""},
		{"step.handler", asked(`"answer_within":72`),
			`steps[0].handler.initialization.answer_within: is a number; want a duration such as "72h"`},
		{"step.handler", asked(`"answer_within":"3 days"`), `steps[0].handler.initialization.answer_within: "3 days": ` + errDuration.Error()},
		{"step.handler", asked(`"answer_within":"-72h"`), `steps[0].handler.initialization.answer_within: "-72h" is too short; want at least 1s`},
		{"step.handler", asked(`"answer_within":"999ms"`), `steps[0].handler.initialization.answer_within: "999ms" is too short; want at least 1s`},
		{"step.handler", asked(`"if_unanswered":false`), `steps[0].handler.initialization.if_unanswered: needs answer_within, such as "72h"`},
		{"step.handler", strings.Replace(asked(`"answer_within":5`), `"x"`, `"http://127.0.0.1:1"`, 1),
			"?steps[0].handler.initialization.answer_within: has no effect, because the callable names a handler (http://); timeout_seconds limits each attempt"},
		{"step.handler", `{"callable":"x","initialisation":{}}`,
			"?steps[0].handler.initialisation: unknown field, kept as it is (did you mean initialization?)"},
		{"step.dependencies", `["b"]`, `steps[0].dependencies[0]: there is no step "b"`},
		{"step.depends_on", `["b"]`, `steps[0].depends_on[0]: there is no step "b"`},
		{"step.depends_on", `["a"]`, "steps[0].depends_on[0]: a step cannot depend on itself"},
		{"step.retry", `null`, ""},
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
			`steps[0].retry.backoff: unknown backoff "random"; want none, linear, exponential or fibonacci` +
				`; for waits of equal length, linear with max_backoff_ms equal to backoff_base_ms`},
		{"step.retry", retry(`"backoff_base_ms":-1`), "steps[0].retry.backoff_base_ms: -1 is below 0"},
		{"step.retry", retry(`"backoff_base_ms":604800001`),
			"steps[0].retry.backoff_base_ms: 604800001 is above 604800000"},
		{"step.retry", retry(`"backoff_base_ms":99`), "?steps[0].retry.backoff_base_ms: 99 is unusual, below 100"},
		{"step.retry", retry(`"backoff_base_ms":100`), ""},
		{"step.retry", retry(`"backoff_base_ms":3600000`), ""},
		{"step.retry", retry(`"backoff_base_ms":604800000`),
			""},
		{"step.retry", retry(`"max_backoff_ms":604800001`),
			"steps[0].retry.max_backoff_ms: 604800001 is above 604800000"},
		{"step.retry", retry(`"max_backoff_ms":999`), "?steps[0].retry.max_backoff_ms: 999 is unusual, below 1000"},
		{"step.retry", retry(`"max_backoff_ms":3600001`),
			""},
		{"step.retry", retry(`"limit":1`), "?steps[0].retry.limit: unknown field, kept as it is"},
		{"step.timeout_seconds", `0`, "steps[0].timeout_seconds: 0 is below 1"},
		{"step.timeout_seconds", `2147483648`, "steps[0].timeout_seconds: 2147483648 is above 2147483647"},
		{"step.timeout_seconds", `"30"`, "steps[0].timeout_seconds: is a string; want a number"},
		{"step.result_schema", `null`, ""},
		{"step.system_dependency", `null`, ""},
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
	asked := func(members string) string {
		return `{"name":"a","handler":{"callable":"x","initialization":{` + members + `}},` +
			`"result_schema":{"required":["approved"],"properties":{"approved":{"type":"boolean"}}}}`
	}
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
		{"result if nobody answers that does not fit", asked(`"answer_within":"72h","if_unanswered":{"approved":"no"}`),
			[]string{"steps[0].handler.initialization.if_unanswered: does not fit result_schema: /approved: got \"no\"; want true or false"}, nil},
		{"result if nobody answers that fits", asked(`"answer_within":"72h","if_unanswered":{"approved":false}`), nil, nil},
		{"no result if nobody answers", asked(`"answer_within":"72h"`), nil, nil},
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
		`t.json:6:72: steps[1].retry.backoff: unknown backoff "odd"; want none, linear, exponential or fibonacci` +
			`; for waits of equal length, linear with max_backoff_ms equal to backoff_base_ms`,
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

// costlySchema returns a schema whose patterns compile to far more than a request may use.
func costlySchema() map[string]any {
	properties := map[string]any{}
	for i := range 400 {
		properties[fmt.Sprint(i)] = map[string]any{"pattern": fmt.Sprintf("a{1000}%d", i)}
	}
	return map[string]any{"properties": properties}
}

// TestCheckedTemplatesHaveABudget checks a file whose patterns compile to more than a request may use, with and without
// another file. The service loads the files that it is started with, whatever they need.
func TestCheckedTemplatesHaveABudget(t *testing.T) {
	t.Chdir(t.TempDir())
	template := map[string]any{"name": "a", "version": "1.0.0", "steps": []any{}, "input_schema": costlySchema()}
	writeFile(t, "costly.json", must(json.Marshal(template))(t))
	writeFile(t, "cheap.json", []byte(`{"name":"b","version":"1.0.0","steps":[],"input_schema":{"pattern":"a{1000}"}}`))
	for _, files := range [][]string{{"costly.json"}, {"cheap.json", "costly.json"}} {
		got := runCLI(nil, "", append([]string{"template", "check"}, files...)...)
		if got.code != exitFailed || !strings.Contains(got.stderr, "costly.json") || !strings.Contains(got.stderr, "needs more memory than the 24 MiB") {
			t.Errorf("%q: got %d, %s; want the budget", files, got.code, got.stderr)
		}
	}
	if got := runCLI(nil, "", "template", "check", "cheap.json"); got.code != 0 {
		t.Errorf("got %d, %s", got.code, got.stderr)
	}
	if _, _, err := loadTemplates([]string{"costly.json"}, "", new(handlerSet).templateRules(&templatesConfig{EnforceInputSchema: "reject"}, schemasKept)); err != nil {
		t.Errorf("as serve does: got %v", err)
	}
}
