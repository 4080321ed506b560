package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

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

// TestOutcomeStatus checks that a final failure and one that will be retried differ, and that a
// failure without a result has the result {}.
func TestOutcomeStatus(t *testing.T) {
	for _, tc := range []struct {
		name           string
		e              ending
		status, result string
	}{
		{"success", ending{success: true, result: []byte(`[1]`)}, "completed", `[1]`},
		{"success without a result", ending{success: true}, "completed", `null`},
		{"failure", ending{err: []byte(`{}`)}, "failed", `{}`},
		{"failure with a result", ending{err: []byte(`{}`), result: []byte(`{"part":1}`)}, "failed", `{"part":1}`},
		{"failure to be retried", ending{err: []byte(`{}`), retryAt: testStart}, "error", `{}`},
	} {
		got := jsonOf(outcomeView{&tc.e, uuid{}, testStart, "w"})
		if status, _ := jsonString(objectMember(got, "status")); status != tc.status {
			t.Errorf("%s: got status %q; want %q", tc.name, status, tc.status)
		}
		if result := objectMember(got, "result"); string(result) != tc.result {
			t.Errorf("%s: got result %s; want %s", tc.name, result, tc.result)
		}
	}
}

// TestExecution checks that a cancelled step counts as failed, except in a cancelled task,
// which nobody can change.
func TestExecution(t *testing.T) {
	for _, tc := range []struct {
		name, states string
		cancelled    bool
		want         string
	}{
		{"running", "ci", false, "processing wait_for_completion healthy"},
		{"waits for a retry", "cw", false, "waiting_for_dependencies wait_for_dependencies recovering"},
		{"failed", "ce", false, "blocked_by_failures handle_failures blocked"},
		{"a cancelled step", "cx", false, "blocked_by_failures handle_failures blocked"},
		{"a cancelled task", "cx", true, "waiting_for_dependencies wait_for_dependencies healthy"},
		{"cancelled before the first step", "xx", true, "waiting_for_dependencies wait_for_dependencies healthy"},
		{"cancelled without steps", "", true, "waiting_for_dependencies wait_for_dependencies healthy"},
	} {
		task := analysisTask(make([][]int, len(tc.states)), tc.states)
		if tc.cancelled {
			task.state = taskCancelled
		}
		x := executionOf(task, task.readySteps(testStart))
		if got := x.status + " " + x.action + " " + x.health; got != tc.want {
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

// TestSummaryTimes checks that the summary has zoned times in the task and naive ones in the
// steps, as existing clients read them.
func TestSummaryTimes(t *testing.T) {
	task := analysisTask([][]int{nil}, "e")
	task.steps[0].attempted = testStart.add(time.Second)
	v := newSummaryView(task, testStart)
	for _, tc := range []struct {
		name string
		at   json.Marshaler
		want string
	}{
		{"task.created_at", v.Task.CreatedAt, `"2026-01-01T00:00:00.000000Z"`},
		{"task.completed_at", v.Task.CompletedAt, `null`},
		{"steps.0.created_at", newSummaryStep(task, 0).CreatedAt, `"2026-01-01T00:00:00.000000"`},
		{"steps.0.last_attempted_at", newSummaryStep(task, 0).LastAttemptedAt, `"2026-01-01T00:00:01.000000"`},
		{"steps.0.completed_at", newSummaryStep(task, 0).CompletedAt, `null`},
	} {
		if got := string(must(tc.at.MarshalJSON())(t)); got != tc.want {
			t.Errorf("%s: got %s; want %s", tc.name, got, tc.want)
		}
	}
}
