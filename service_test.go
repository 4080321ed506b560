package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"testing"
	"time"
)

// TestSubscribersAfterARestore restores an exported state, and the file with all its records:
// each subscriber gets exactly the events that it did not have, and what was given up is still listed.
func TestSubscribersAfterARestore(t *testing.T) {
	r := newReceiver(t)
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: []string{publishing("pay", "builtin:echo", "{}", published("paid", ""))},
		config: subscribed([]string{"shop", r.url, "*"})}
	s := openTestService(t, o)
	mustCreate(t, s, "pay")
	awaitDeliveries(t, s, deliveryDelivered)
	r.answer(410)
	mustCreate(t, s, "pay")
	awaitDeliveries(t, s, deliveryDead, deliveryDelivered)
	r.answer(503)
	mustCreate(t, s, "pay")
	mustCreate(t, s, "pay")
	r.await(3)
	want := domainOf(t, s, eventFilter{}, 0)[2:]
	state := exported(t, s)
	closeTestService(t, s)
	path := filepath.Join(o.dir, storeName)
	file, _, err := readStore(&journalOptions{log: slog.New(slog.DiscardHandler)}, path)
	noError(t, err)
	file.clock = o.clock
	if got := exported(t, &service{store: file}); got != state {
		t.Errorf("the file gives\n%s\nwant\n%s", got, state)
	}
	records := string(readFile(t, path))
	for name, restored := range map[string]serviceTest{
		"in memory":  {state: &stateSource{document: strings.NewReader(state)}},
		"imported":   {dir: t.TempDir(), state: &stateSource{document: strings.NewReader(state)}},
		"the file":   {dir: t.TempDir(), state: &stateSource{document: strings.NewReader(records)}},
		"not at all": {dir: o.dir},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t)
			restored.clock, restored.extra = newVirtualClock(testStart), o.extra
			restored.config = subscribed([]string{"shop", r.url, "*"})
			s := openTestService(t, restored)
			if got := r.await(2); string(jsonOf(got)) != string(jsonOf(want)) {
				t.Errorf("got %v; want %v", got, want)
			}
			all := []string{deliveryDelivered, deliveryDelivered, deliveryDead, deliveryDelivered}
			awaitDeliveries(t, s, all...)
			mustCreate(t, s, "pay")
			if got := r.await(3); len(got) != 3 || got[2].Seq <= want[1].Seq {
				t.Errorf("got %v; want the event of the new task", got)
			}
			closeTestService(t, s)
		})
	}
}

// TestOutcomeMetadata checks that the members that existing clients parse strictly override
// those that handlers and operators send. The latter are under custom, too.
func TestOutcomeMetadata(t *testing.T) {
	const (
		times = `"execution_time_ms":12,"worker_id":"w","started_at":"2025-12-31T23:59:59.988000Z",` +
			`"completed_at":"2026-01-01T00:00:00.000000Z",`
		fine   = times + `"retryable":false,"error_type":null,`
		broken = `{"message":"no","error_type":"Lost","retryable":true,"status_code":503,"context":{"a":1}}`
	)
	for _, tc := range []struct{ name, err, sent, want string }{
		{"nothing was sent", ``, ``, `{` + fine + `"error_code":null,"context":{},"custom":{}}`},
		{"members of the outcome", ``, `{"region":"eu","tries":[1]}`,
			`{"region":"eu","tries":[1],` + fine + `"error_code":null,"context":{},"custom":{"region":"eu","tries":[1]}}`},
		{"members of another type", ``, `{"custom":7,"retryable":"x","error_code":5,"started_at":0}`,
			`{"custom":{"custom":7,"retryable":"x","error_code":5,"started_at":0},"retryable":false,"error_code":null,` +
				`"started_at":"2025-12-31T23:59:59.988000Z","execution_time_ms":12,"worker_id":"w",` +
				`"completed_at":"2026-01-01T00:00:00.000000Z","error_type":null,"context":{}}`},
		{"a failure", broken, ``,
			`{` + times + `"retryable":true,"error_type":"Lost","error_code":null,"context":{"a":1},"custom":{}}`},
		{"a failure with a code", broken, `{"error_code":"E7"}`,
			`{"error_code":"E7",` + times + `"retryable":true,"error_type":"Lost","context":{"a":1},"custom":{"error_code":"E7"}}`},
	} {
		e := &ending{success: tc.err == "", took: 12 * time.Millisecond}
		if tc.err != "" {
			e.err = []byte(tc.err)
		}
		if tc.sent != "" {
			e.metadata = []byte(tc.sent)
		}
		got := objectMember(jsonOf(outcomeView{e, uuid{}, testStart, "w"}), "metadata")
		if string(got) != tc.want {
			t.Errorf("%s: got %s; want %s", tc.name, got, tc.want)
		}
	}
}

// schemaTemplate has a schema for its context and one for the result of each step.
const schemaTemplate = `{"name":"checked","version":"1.0.0","identity_strategy":"always_unique","default_context":{"currency":"EUR"},
	"input_schema":{"required":["items","currency"],"properties":{"items":{"items":{"properties":{"price":{"type":"number"}}}}}},
	"steps":[{"name":"sum","handler":{"callable":"builtin:echo"},"retry":{"max_attempts":5},
		"result_schema":{"properties":{"total":{"type":"integer"}}}},
		{"name":"ask","handler":{"callable":"people"},"dependencies":["sum"],"result_schema":{"type":["integer","null"]}}]}`

// TestMisfitsOfCompletions checks that each way to complete a step with a result that does not fit names what is wrong if
// the result counts.
func TestMisfitsOfCompletions(t *testing.T) {
	s := newTestServer(t, serviceTest{log: &logLines{}, extra: []string{schemaTemplate}, config: func(c *Config) {
		c.Templates.EnforceInputSchema = "warn"
	}})
	s.create(`{"name":"checked","context":{"items":[]}}`)
	settle(s.svc)
	claimed := s.do("POST", "/v1/steps/claim", `{"callables":["people"]}`).want(200)
	a := s.do("POST", "/v1/steps/"+claimed.text("0.step.step_uuid")+"/complete",
		fmt.Sprintf(`{"lease":%q,"result":1.5}`, claimed.text("0.lease"))).want(200)
	if got := hintTexts(a.header); len(got) != 1 || got[0] != "/result: got 1.5; want an integer or null" {
		t.Errorf("got %q for a claimed step", got)
	}
	s.create(`{"name":"checked","context":{"items":[]}}`)
	s.create(`{"name":"checked","context":{"items":[]}}`)
	settle(s.svc)
	lines := s.bulk(`{"action":"complete","reason":"r","filter":{"name":"checked","step":"ask","step_status":["enqueued"]},"completion_data":{"result":true}}`)
	if last := lines[len(lines)-1]; last.text("done") != "2" ||
		last.json("warnings") != `["/completion_data/result: got true; want an integer or null"]` {
		t.Errorf("got %s for many steps", last.raw)
	}
}

// TestEnforcedSchemas checks contexts and the results of builtins, outside actors and operators.
func TestEnforcedSchemas(t *testing.T) {
	const misfit = `{"name":"checked","context":{"items":[{"price":"ü"}],"total":1.5}}`
	start := func(mode string) (*testServer, *logLines) {
		log := &logLines{}
		return newTestServer(t, serviceTest{log: log, extra: []string{schemaTemplate}, config: func(c *Config) {
			c.Templates.EnforceInputSchema = mode
		}}), log
	}
	metric := func(s *testServer, context, result int) {
		t.Helper()
		got := string(s.do("GET", "/metrics", "").want(200).body)
		for value, n := range map[string]int{"context": context, "result": result} {
			if line := fmt.Sprintf("stepwell_schema_misfits_total{of=%q} %d\n", value, n); !strings.Contains(got, line) {
				t.Errorf("got no %s", line)
			}
		}
	}
	complete := func(s *testServer, id, result string) *answer {
		step := s.do("GET", "/v1/tasks/"+id+"/workflow_steps", "").text("1.step_uuid")
		return s.do("PATCH", "/v1/tasks/"+id+"/workflow_steps/"+step, `{"action_type":"complete_manually","reason":"r",
			"completed_by":"b","completion_data":{"result":`+result+`}}`)
	}

	off, _ := start("off")
	if a := off.do("POST", "/v1/tasks", misfit).want(201); a.header.Get("Warning") != "" {
		t.Errorf("off: got %v", a.header)
	}
	metric(off, 0, 0)

	warn, log := start("warn")
	a := warn.do("POST", "/v1/tasks", misfit).want(201)
	if got := hintTexts(a.header); len(got) != 1 || got[0] != `/context/items/0/price: got "\u00fc"; want a number` {
		t.Errorf("warn: got %q", got)
	}
	b := complete(warn, a.text("task_uuid"), `"x"`).want(200)
	if got := hintTexts(b.header); len(got) != 1 || got[0] != `/completion_data/result: got "x"; want an integer or null` {
		t.Errorf("warn: got %q for a completion", got)
	}
	warn.await(a.text("task_uuid"), "complete")
	metric(warn, 1, 2)
	for _, line := range []string{
		"a context does not fit the template's input_schema template=default.checked@1.0.0 problems=/items/0/price: want a number",
		"a result does not fit the step's result_schema step=sum problems=/total: want an integer",
		"a result does not fit the step's result_schema step=ask problems=want an integer or null",
	} {
		if !strings.Contains(log.String(), line) {
			t.Errorf("warn: got the log %s; want %s", log, line)
		}
	}

	reject, _ := start("reject")
	a = reject.do("POST", "/v1/tasks", misfit).want(422)
	if got := a.text("error.details.0.field") + " " + a.text("error.details.0.message"); got != `/context/items/0/price got "ü"; want a number` {
		t.Errorf("reject: got %s", a.body)
	}
	if a = reject.do("POST", "/v1/tasks", `{"name":"checked"}`).want(422); a.text("error.details.0.field") != "/context/items" {
		t.Errorf("reject: got %s", a.body)
	}
	reject.do("POST", "/stepwell/tasks", misfit).want(422)
	id := reject.create(`{"name":"checked","context":{"items":[],"total":1.5}}`)
	reject.await(id, "blocked_by_failures")
	step := reject.do("GET", "/v1/tasks/"+id+"/workflow_steps", "").want(200)
	if got := step.text("0.results.error.message"); got != "the result does not fit result_schema: /total: got 1.5; want an integer" {
		t.Errorf("got %s", step.body)
	}
	if step.text("0.attempts") != "1" || step.text("0.results.error.error_type") != schemaMismatchType || step.get("0.results.error.retryable") != false {
		t.Errorf("got %s; want a permanent failure", step.body)
	}
	id = reject.create(`{"name":"checked","context":{"items":[]}}`)
	a = complete(reject, id, `"x"`).want(422)
	if got := a.text("error.details.0.field"); got != "/completion_data/result" {
		t.Errorf("got %s", a.body)
	}
	metric(reject, 3, 2)
	claimed := must(reject.svc.outside.claim(t.Context(), &claimRequest{callables: []string{"*"}, limit: 1, lease: time.Minute, worker: "w"}))(t)[0]
	answer := func() (stepView, error) {
		q := &leaseAnswer{verb: completeVerb, outcome: outcome{success: true, result: []byte(`1.5`)}}
		q.setLease(claimed.token)
		return reject.svc.outside.answer(t.Context(), &stepAnswer{leaseAnswer: *q, step: claimed.attempt.stepID})
	}
	for range 2 { // the repetition, whose first answer may have been lost, gets the same
		if v, err := answer(); err != nil || v.step.state != stepInError {
			t.Errorf("got %v, %v; want the step in error", v.step.state, err)
		}
	}
	id = reject.create(`{"name":"checked","context":{"items":[]}}`)
	complete(reject, id, `null`).want(200)
	decoded := &reject.svc.quotas.memory
	if used := decoded.used.Load(); used != 0 {
		t.Errorf("got %d bytes of budgets still in use; want none", used)
	}
	id = reject.create(`{"name":"checked","context":{"items":[]}}`)
	decoded.most = 2 // bytes: less than any value takes
	costly := func(what string, got string) {
		if !strings.Contains(got, "needs more memory than the 0 MiB") {
			t.Errorf("%s: got %s; want what takes too much", what, got)
		}
	}
	costly("context", reject.do("POST", "/v1/tasks", misfit).want(422).text("error.message"))
	costly("result", complete(reject, id, `"x"`).want(422).text("error.message"))
}

// TestTargetsAreBounded expects the engine to forget replaced templates.
func TestTargetsAreBounded(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	s := newFixtureServer(t, serviceTest{})
	svc := s.world.service()
	for i := range maxTargets + 10 {
		text := testTemplate("late", stepSpec{name: "a", callable: "builtin:sum", config: fmt.Sprintf(`{"add":%d}`, i)})
		if _, replaced, err := svc.templates.add(nil, []byte(text)); err != nil || replaced != (i > 0) {
			t.Fatalf("got %v, error %v", replaced, err)
		}
		mustCreate(t, svc, "late")
	}
	svc.store.mu.Lock()
	defer svc.store.mu.Unlock()
	if n := len(svc.engine.targets); n == 0 || n > maxTargets {
		t.Errorf("the targets of %d templates are remembered", n)
	}
}

// TestRefusedSchemas loads a template with schemas that cannot be enforced.
func TestRefusedSchemas(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "t.yaml")
	noError(t, os.WriteFile(file, []byte("name: t\nversion: 1.0.0\ninput_schema:\n  patternproperties: {}\nsteps:\n- name: s\n"+
		"  handler: {callable: x}\n  result_schema: {items: {$ref: 'a.json'}}\n"), 0o600))
	want := []string{
		file + ":4:3: input_schema.patternproperties: the keyword patternproperties is not supported; did you mean patternProperties?",
		file + `:8:27: steps[0].result_schema.items["$ref"]: "a.json" is outside of the schema; references to other documents are not supported`,
	}
	_, _, err := loadTemplates([]string{dir}, "", &templateRules{schemas: schemasRefused})
	if err == nil || !strings.HasPrefix(err.Error(), strings.Join(want, "\n")) {
		t.Errorf("refused: got %v; want %q", err, want)
	}
	for rule, told := range map[schemaRule]int{schemasKept: 1, schemasTold: 3} {
		r, warnings, err := loadTemplates([]string{dir}, "", &templateRules{schemas: rule})
		if err != nil || len(r.sorted) != 1 || len(warnings) != told || !strings.HasSuffix(warnings[0], "templates that have one: 1, the first is default.t@1.0.0") {
			t.Errorf("%v: got %q, %v; want %d warnings", rule, warnings, err, told)
		}
	}
	s := newTestService(t, serviceTest{})
	v := must(s.templates.validateDefinition(nil, []byte(`{"name":"x","version":"1.0.0","input_schema":{"a":1}}`), templateName{"default", "x"}, "1.0.0"))(t)
	if want := []string{"input_schema.a: the keyword a is not supported; the schema cannot be enforced"}; !v.Valid || !slices.Equal(v.Warnings, want) {
		t.Errorf("got %+v; want the warning %q", v, want)
	}
}

// TestTemplateBudget sends templates that would take much more memory than their text: they are refused, say what takes it,
// and everything is given back.
func TestTemplateBudget(t *testing.T) {
	sequential(t)
	patterns := `{"allOf":[` + numbered(`{"pattern":"a{1000}%03d"},`, 900) + `{}]}`
	schemaOf := func(more string) string { return `{"namespace":"t","name":"x","version":"1.0.0",` + more + `}` }
	event := `"steps":[{"name":"a","handler":{"callable":"b"},"publishes_events":[{"name":"e","description":"","schema":` + patterns + `}]}]`
	steps := `"steps":[` + strings.Repeat(`{"name":"a","handler":{"callable":"b"}},`, 40_000) + `{}]`
	stepsOf := func(n int) string {
		return `"steps":[` + strings.TrimSuffix(numbered(`{"name":"a%d","handler":{"callable":"b"}},`, n), ",") + "]"
	}
	const override = `{"name":"ALL","handler":{"initialization":{"a":0}}}`
	s := newFixtureServer(t, serviceTest{})
	worker := httptest.NewServer(&s.world.gates.worker)
	t.Cleanup(worker.Close)
	w := &testServer{t: t, url: worker.URL}
	for text, want := range map[string]string{
		schemaOf(`"input_schema":` + patterns): `input_schema.allOf[155].pattern the pattern "a{1000}155" of 1007 instructions needs`,
		schemaOf(event):                        `steps[0].publishes_events[0].schema.allOf[155].pattern the pattern "a{1000}155" of 1007 instructions needs`,
		schemaOf(steps):                        "the template needs",
		schemaOf(stepsOf(12_000)):              "] the template needs",
		schemaOf(stepsOf(2_000) + `,"environments":{"development":{"steps":[` + strings.Repeat(override+",", 99) + override + "]}}"): "the template needs",
		schemaOf(`"input_schema":{"allOf":[` + strings.Repeat("{},", 300_000) + `{}]}`):                                              "the schema needs",
		schemaOf(`"metadata":{"tags":[` + strings.Repeat("1,", 500_000) + `1]}`):                                                     "metadata.tags the template needs",
	} {
		a := w.do("POST", "/v1/templates/t/x/1.0.0/validate", text).want(422)
		if got := a.text("message"); a.text("error") != "validation_failed" || !strings.Contains(got, want+" more memory than the 24 MiB that one request may use") {
			t.Errorf("got %s; want %s", got, want)
		}
		a = s.do("POST", "/_stepwell/templates", text).want(422)
		if got := a.text("error.details.0.message"); !strings.Contains(want, strings.TrimSuffix(got, " more memory than the 24 MiB that one request may use")) {
			t.Errorf("got %s; want %s", got, want)
		}
	}
	if got := s.world.service().quotas.memory.used.Load(); got != 0 {
		t.Errorf("got %d bytes still in use; want none", got)
	}
	s.do("GET", "/v1/templates/t/x/1.0.0", "").want(404)
	small := schemaOf(`"input_schema":{"allOf":[` + strings.Repeat(`{"pattern":"a{100}"},`, 500) + `{}]}`)
	w.do("POST", "/v1/templates/t/x/1.0.0/validate", small).want(200)
	state := s.do("GET", "/_stepwell/state", "").want(200).body
	tpl := mustParseTemplate(t, schemaOf(event))
	if err := s.world.admit(tpl); err == nil || !strings.Contains(err.Error(), "instructions needs more memory") {
		t.Errorf("got %v; want the patterns of a state refused", err)
	}
	s.do("PUT", "/_stepwell/state", string(state)).want(204)
	a := w.do("POST", "/v1/templates/t/x/1.0.0/validate", schemaOf(`"x":0,"xy":0`)).want(200)
	if got := a.text("warnings.#"); got != "2" {
		t.Errorf("got %s warnings; want both", got)
	}
	a = w.do("POST", "/v1/templates/t/x/1.0.0/validate", schemaOf(numbered(`"x%d":0,`, 500)+`"steps":[`+strings.Repeat(`{"name":"a"},`, 300)+`{}]`)).want(200)
	if got := a.text("warnings.99") + ", " + a.text("errors.99"); got != "and 401 more, and 502 more" {
		t.Errorf("got %s; want how many warnings and errors there are besides", got)
	}
}

// TestAddedTemplate expects an added template on both roles at once, until the
// reset.
func TestAddedTemplate(t *testing.T) {
	s := newFixtureServer(t, serviceTest{})
	worker := httptest.NewServer(&s.world.gates.worker)
	t.Cleanup(worker.Close)
	w := &testServer{t: t, url: worker.URL}
	text := testTemplate("late", stepSpec{name: "a", callable: "builtin:sum", config: `{"add":1}`})
	a := s.do("POST", "/_stepwell/templates", text).want(201)
	path := a.header.Get("Location")
	if path != "/v1/templates/t/late/1.0.0" {
		t.Errorf("it is at %q", path)
	}
	w.do("GET", path, "").want(200)
	first := s.create(`{"namespace":"t","name":"late"}`)
	other := testTemplate("late", stepSpec{name: "a", callable: "builtin:sum", config: `{"add":2}`})
	s.do("POST", "/_stepwell/templates", other).want(200)
	second := s.create(`{"namespace":"t","name":"late"}`)
	if got := s.story(first) + s.story(second); !strings.Contains(got, "deliveries: 1complete") || !strings.HasSuffix(got, " 2") {
		t.Errorf("got %s; want each task by the template of its time", got)
	}
	s.do("POST", "/_stepwell/reset", "").want(204)
	s.do("GET", path, "").want(404)
	w.do("GET", path, "").want(404)
}

// TestRefusedTemplates expects every problem to be named and nothing to be added.
func TestRefusedTemplates(t *testing.T) {
	s := newFixtureServer(t, serviceTest{config: func(c *Config) {
		c.Fixture.AllowTargets = []string{"handlers.test", "2001:db8::1"}
		c.Worker.Handlers = map[string]string{"http://mapped.example/*": "builtin:noop", "exec:mapped": "builtin:noop"}
		c.Worker.AllowExec = true
	}})
	for callable, status := range map[string]int{
		"http://127.0.0.1:9/x": 201, "http://[::1]/": 201, "https://localhost/": 201, "HTTP://a.localhost./": 201,
		"http://handlers.test:9/": 201, "http://HANDLERS.test./": 201, "http://[2001:db8::1]:80/": 201, "charge": 201,
		"http://mapped.example/x": 201,
		"http://example.com/":     422, "http://127.0.0.1.example.com/": 422, "http://localhost@example.com/": 422,
		"http://2130706433/": 422, "http://0.0.0.0/": 422, "http://169.254.169.254/": 422, "http://x.handlers.test/": 422,
		"exec:sh": 422, "exec:mapped": 422, "builtin:nope": 422, "http://": 422,
	} {
		a := s.do("POST", "/_stepwell/templates", testTemplate(fmt.Sprintf("t%d", len(callable)), stepSpec{name: "a", callable: callable}))
		if a.status != status && !(status == 201 && a.status == 200) {
			t.Errorf("%s: got %d, %s; want %d", callable, a.status, a.body, status)
		}
		if a.status == 422 && a.text("error.details.0.field") != "steps[0].handler.callable" {
			t.Errorf("%s: got %s; want the callable's path", callable, a.body)
		}
	}
	a := s.do("POST", "/_stepwell/templates", `{"name":"x","version":"y","steps":[{"name":"a"}]}`).want(422)
	if n := strings.Count(string(a.body), `"field"`); n != 2 {
		t.Errorf("%d problems are named: %s", n, a.body)
	}
	a = s.do("POST", "/_stepwell/templates", testTemplate("x", stepSpec{name: "a\u202eb", callable: "charge"})).want(422)
	if a.text("error.details.0.field") != "steps[0].name" || !strings.Contains(a.text("error.details.0.message"), "U+202E") {
		t.Errorf("a misleading name: got %s", a.body)
	}
	s.do("POST", "/_stepwell/templates", `{`).want(400)
}

// numbered returns a text n times, with its number in each.
func numbered(format string, n int) string {
	b := strings.Builder{}
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// TestDurationsOfAClockSetBack sets the clock back while durations are measured.
// Clients read unsigned numbers, and counters never decrease.
func TestDurationsOfAClockSetBack(t *testing.T) {
	clock := &laggingClock{virtualClock: newVirtualClock(testStart)}
	s := newTestService(t, serviceTest{clock: clock})
	v := (&healthProbe{health: s.health}).timed(func(*healthProbe) checkView {
		clock.lag.Store(5_000_000)
		return graded(false, "well")
	})
	if v.DurationMS != 0 {
		t.Errorf("a check took %d ms; want 0", v.DurationMS)
	}
	stats := newHTTPStats("orchestration", s.auth["orchestration"])
	stats.observe("GET /", 200, -1)
	if h := stats.times["GET /"]; h.sum != 0 || h.distribution(metricBounds)[0] != 1 {
		t.Errorf("got a sum of %d and the buckets %d; want 0, and 1 in the first", h.sum, h.distribution(metricBounds))
	}
}

// healthAPI is a surface with its contract, called in the goroutine of the test.
type healthAPI struct {
	http.Handler
	contract *wire.Contract
}

func (h healthAPI) get(t *testing.T, path string) *answer {
	t.Helper()
	a := served(t, h, "GET", path, "")
	if err := contractProblem(h.contract, a, "GET "+path); err != nil {
		t.Error(err)
	}
	return a
}

// busyTemplate returns a template with steps that take an hour, on slots for
// builtins or for HTTP handlers.
func busyTemplate(steps int, callable string) string {
	var specs []stepSpec
	for i := range steps {
		specs = append(specs, stepSpec{name: fmt.Sprint("s", i), callable: callable, config: `{"duration_ms":3600000}`})
	}
	return testTemplate("busy", specs...)
}

// TestEveryHealthCheckCanFail makes each check fail. It compares the check, the
// overall status, and which surfaces are not ready.
func TestEveryHealthCheckCanFail(t *testing.T) {
	contract, workerContract := newAPIContract(t, "orchestration"), newAPIContract(t, "worker")
	silent := make(chan struct{})
	handler := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-silent:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(handler.Close)
	t.Cleanup(func() { close(silent) })
	small := func(c *Config) { c.Worker.Concurrency, c.Worker.HTTPConcurrency = 1, 1 }
	busy := func(steps int, callable string) serviceTest {
		return serviceTest{config: small, extra: []string{busyTemplate(steps, callable)}}
	}
	create := func(t *testing.T, s *testServer) {
		id := s.create(`{"namespace":"t","name":"busy"}`)
		t.Cleanup(func() { s.do("DELETE", "/v1/tasks/"+id, "").want(200) }) // so that closing need not wait
	}
	for _, tt := range []struct {
		name  string
		o     serviceTest
		fail  func(t *testing.T, s *testServer)
		want  map[string]string // status by check of the orchestration role
		work  map[string]string // the same of the worker role
		ready int
	}{
		{"nothing", serviceTest{}, func(*testing.T, *testServer) {}, nil, nil, 200},
		{"the journal cannot be written", serviceTest{}, breakJournal,
			map[string]string{"web_database": "unhealthy", "orchestration_database": "unhealthy"},
			map[string]string{"database": "unhealthy"}, 503},
		{"the scheduler is stuck", serviceTest{}, holdStore,
			map[string]string{"command_processor": "unhealthy", "pool_utilization": "unknown", "queue_depth": "unknown"},
			map[string]string{"command_processor": "unhealthy", "event_system": "unhealthy", "step_processing": "unknown"}, 503},
		{"the scheduler is stopping", serviceTest{}, func(_ *testing.T, s *testServer) {
			s.svc.store.mu.Lock()
			defer s.svc.store.mu.Unlock()
			s.svc.engine.stopping = true
		}, map[string]string{"command_processor": "unhealthy"},
			map[string]string{"command_processor": "unhealthy", "event_system": "unhealthy"}, 503},
		{"draining", serviceTest{}, func(_ *testing.T, s *testServer) { s.svc.draining.Store(true) },
			map[string]string{"orchestration_system": "unhealthy"}, map[string]string{"queue_processing": "unhealthy"}, 503},
		{"one slot is taken", busy(1, "builtin:sleep"), create,
			map[string]string{"pool_utilization": "degraded"}, nil, 200},
		{"the HTTP slot is taken", busy(1, handler.URL), create,
			map[string]string{"pool_utilization": "degraded"}, nil, 200},
		{"steps wait", busy(5, "builtin:sleep"), create,
			map[string]string{"pool_utilization": "degraded"}, map[string]string{"step_processing": "degraded"}, 200},
		{"HTTP steps wait", busy(5, handler.URL), create,
			map[string]string{"pool_utilization": "degraded"}, map[string]string{"step_processing": "degraded"}, 200},
		{"the queue is nearly full", busy(9, "builtin:sleep"), create,
			map[string]string{"pool_utilization": "degraded", "queue_depth": "degraded"},
			map[string]string{"step_processing": "degraded"}, 200},
		{"the queue is over its limit", busy(11, "builtin:sleep"), create,
			map[string]string{"pool_utilization": "degraded", "queue_depth": "unhealthy"},
			map[string]string{"step_processing": "degraded"}, 200},
		{"the disk is slow", serviceTest{}, func(_ *testing.T, s *testServer) {
			s.svc.store.journal.groups.backlog.Store(bufferWarning) // nothing empties it in memory mode
		}, map[string]string{"channel_saturation": "degraded"}, nil, 200},
		{"the disk is behind", serviceTest{}, func(_ *testing.T, s *testServer) {
			s.svc.store.journal.groups.backlog.Store(backlogLimit)
		}, map[string]string{"channel_saturation": "unhealthy"}, nil, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newTestServer(t, tt.o)
			s.svc.engine.queues.most = 10
			tt.fail(t, s)
			orchestration := healthAPI{newOrchestrationAPI(s.svc, nil), contract}
			worker := healthAPI{newWorkerAPI(s.svc, nil), workerContract}
			checkHealth(t, orchestration.get(t, "/health/detailed"), tt.want)
			checkHealth(t, worker.get(t, "/health/detailed"), tt.work)
			for _, h := range []healthAPI{orchestration, worker} {
				if got := h.get(t, "/health/ready").status; got != tt.ready {
					t.Errorf("ready: got %d; want %d", got, tt.ready)
				}
				h.get(t, "/health").want(200)
				h.get(t, "/health/live").want(200)
			}
		})
	}
}

// checkHealth compares every check with the wanted one, healthy by default, and
// the status with all checks.
func checkHealth(t *testing.T, a *answer, want map[string]string) {
	t.Helper()
	a.want(200)
	overall := "healthy"
	for name, c := range a.get("checks").(map[string]any) {
		status, wanted := c.(map[string]any)["status"], want[name]
		if wanted == "" {
			wanted = "healthy"
		} else {
			overall = "degraded"
		}
		if status != wanted || c.(map[string]any)["message"] == "" {
			t.Errorf("%s: got %v; want %s", name, c, wanted)
		}
	}
	if got := a.text("status"); got != overall {
		t.Errorf("status: got %s; want %s", got, overall)
	}
}

// breakJournal makes the journal fail until the test ends, before the service
// closes.
func breakJournal(t *testing.T, s *testServer) {
	j := s.svc.store.journal
	set := func(err error) {
		j.groups.mu.Lock()
		defer j.groups.mu.Unlock()
		j.groups.broken = err
	}
	set(errors.New("the disk is on fire"))
	t.Cleanup(func() { set(nil) })
}

// holdStore holds the store's lock, which the engine needs.
func holdStore(t *testing.T, s *testServer) {
	s.svc.health.patience = 10 * time.Millisecond
	s.svc.store.mu.Lock()
	t.Cleanup(s.svc.store.mu.Unlock)
}
