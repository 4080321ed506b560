package main

import (
	"encoding/json"
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
		{"a cancelled task", "cx", true, "all_complete finalize_task healthy"},
		{"cancelled before the first step", "xx", true, "all_complete finalize_task healthy"},
		{"cancelled without steps", "", true, "all_complete finalize_task healthy"},
	} {
		task := analysisTask(make([][]int, len(tc.states)), tc.states)
		if tc.cancelled {
			task.state = taskCancelled
		}
		x := task.execution(task.readySteps(testStart))
		if got := x.status + " " + x.action + " " + x.health; got != tc.want {
			t.Errorf("%s: got %s; want %s", tc.name, got, tc.want)
		}
	}
}

// TestSummaryTimes checks that the summary has zoned times in the task and naive ones in the
// steps, as existing clients read them.
func TestSummaryTimes(t *testing.T) {
	task := analysisTask([][]int{nil}, "e")
	task.steps[0].attempted = testStart.add(time.Second)
	v := task.summary(testStart)
	for _, tc := range []struct {
		name string
		at   json.Marshaler
		want string
	}{
		{"task.created_at", v.Task.CreatedAt, `"2026-01-01T00:00:00.000000Z"`},
		{"task.completed_at", v.Task.CompletedAt, `null`},
		{"steps.0.created_at", task.summaryStep(0).CreatedAt, `"2026-01-01T00:00:00.000000"`},
		{"steps.0.last_attempted_at", task.summaryStep(0).LastAttemptedAt, `"2026-01-01T00:00:01.000000"`},
		{"steps.0.completed_at", task.summaryStep(0).CompletedAt, `null`},
	} {
		if got := string(must(tc.at.MarshalJSON())(t)); got != tc.want {
			t.Errorf("%s: got %s; want %s", tc.name, got, tc.want)
		}
	}
}
