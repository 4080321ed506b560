package main

// Tests of the dead letter queue and staleness, through the API and the store: how
// entries are made and updated, and that they survive a restart.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// dlqTemplates holds the templates of these tests.
var dlqTemplates = []string{
	testTemplate("pair", stepSpec{name: "a", callable: "Outside"}, stepSpec{name: "b", callable: "Outside"},
		stepSpec{name: "c", callable: "builtin:noop", after: []string{"a", "b"}}),
	testTemplate("one", stepSpec{name: "a", callable: "Outside", retry: `{"backoff":"none"}`}),
}

// dlqServer returns a server with a virtual clock and the templates of these
// tests.
func dlqServer(t *testing.T) (*testServer, *virtualClock) {
	clock := newVirtualClock(testStart)
	return newTestServer(t, serviceTest{clock: clock, extra: dlqTemplates}), clock
}

const (
	failBody     = `{"action_type":"fail","error":{"message":"card refused by http://me:hunter2@pay.example/","error_type":"refused","retryable":false},"reason":"r","failed_by":"actor"}`
	resetBody    = `{"action_type":"reset_for_retry","reason":"again","reset_by":"ops"}`
	resolveBody  = `{"action_type":"resolve_manually","reason":"done by phone","resolved_by":"ops"}`
	completeBody = `{"action_type":"complete_manually","completion_data":{"result":{"ok":1}},"reason":"known","completed_by":"ops"}`
)

// TestFailureToRecovery plays one story: two steps fail permanently, operators fix them, the
// task completes, and the entry is closed.
func TestFailureToRecovery(t *testing.T) {
	slow(t)
	t.Parallel()
	s, clock := dlqServer(t)
	task := s.create(`{"namespace":"t","name":"pair","context":{"secret":"s3cr3t"},"priority":7,` +
		`"requested_at":"2025-12-31T23:00:00+02:00"}`)
	a, b := s.step(task, 0), s.step(task, 1)
	s.do("GET", "/v1/dlq/task/"+task, "").want(404)
	clock.advance(time.Minute)
	s.do("PATCH", a, failBody).want(200)
	blocked := s.do("GET", "/v1/tasks/"+task, "")
	blocked.wantText("status", "blocked_by_failures")

	first := s.do("GET", "/v1/dlq/task/"+task, "").want(200)
	entry := first.text("dlq_entry_uuid")
	if id, ok := parseUUID(entry); !ok || id[6]>>4 != 7 {
		t.Errorf("got entry id %s; want a UUID of version 7", entry)
	}
	first.wantText("task_uuid", task, "original_state", "blocked_by_failures", "dlq_reason", "MaxRetriesExceeded",
		"dlq_timestamp", "2026-01-01T00:01:00.000000", "resolution_status", "Pending",
		"resolution_timestamp", "<nil>", "resolution_notes", "<nil>", "resolved_by", "<nil>", "metadata", "<nil>",
		"created_at", "2026-01-01T00:01:00.000000", "updated_at", "2026-01-01T00:01:00.000000",
		"task_snapshot.current_state", "blocked_by_failures", "task_snapshot.namespace", "t",
		"task_snapshot.task_name", "pair", "task_snapshot.time_in_state_minutes", "0",
		"task_snapshot.threshold_minutes", "0", "task_snapshot.snapshot_timestamp", "2026-01-01T00:01:00.000000",
		"task_snapshot.task_details.priority", "7", "task_snapshot.task_details.failed_steps", "1",
		"task_snapshot.task_details.requested_at", "2025-12-31T21:00:00.000000",
		"task_snapshot.task_details.created_at", "2026-01-01T00:00:00.000000",
		"task_snapshot.task_details.correlation_id", blocked.text("correlation_id"),
		"task_snapshot.steps.0.current_state", "error", "task_snapshot.steps.0.error.message", "card refused by http://[REDACTED]@pay.example/",
		"task_snapshot.steps.1.current_state", "enqueued", "task_snapshot.steps.1.error", "<nil>",
		"entries.0.dlq_entry_uuid", entry)
	if strings.Contains(string(first.body), "s3cr3t") {
		t.Errorf("the context, which needs another permission, is in %s", first.body)
	}

	clock.advance(time.Minute)
	s.do("PATCH", b, failBody).want(200)
	clock.advance(time.Minute)
	s.do("PATCH", a, resetBody).want(200)
	s.do("GET", "/v1/tasks/"+task, "").wantText("status", "blocked_by_failures")
	s.do("PATCH", b, resolveBody).want(200)
	s.do("GET", "/v1/tasks/"+task, "").wantText("status", "steps_in_process")
	s.do("PATCH", a, completeBody).want(200)
	s.await(task, "complete")

	want := strings.ReplaceAll(string(first.body), `"current_state":"blocked_by_failures","over":false`, `"current_state":"complete","over":true`)
	if after := s.do("GET", "/v1/dlq/task/"+task, ""); string(after.body) != want {
		t.Errorf("the task went on and the entry became\n%s\nwant\n%s", after.body, want)
	}
	s.do("PATCH", "/v1/dlq/entry/"+entry, `{"resolution_status":"manually_resolved","resolution_notes":"by phone","resolved_by":"ops","metadata":{"n":1.50}}`).
		want(200).wantText("success", "true", "dlq_entry_uuid", entry)
	closed := s.do("GET", "/v1/dlq/task/"+task, "").want(200)
	closed.wantText("resolution_status", "ManuallyResolved", "resolution_timestamp", "2026-01-01T00:03:00.000000",
		"resolution_notes", "by phone", "resolved_by", "ops", "metadata.n", "1.50",
		"updated_at", "2026-01-01T00:03:00.000000", "created_at", "2026-01-01T00:01:00.000000",
		"task_snapshot.steps.0.current_state", "error")
	s.do("GET", "/v1/tasks/"+task, "").wantText("status", "complete")
	if n := s.do("GET", "/v1/dlq/investigation-queue", "").want(200).length(); n != 0 {
		t.Errorf("got %d entries in the queue; want none", n)
	}
}

// TestWaysOutOfTheDLQ resumes a failed task by each operator action.
func TestWaysOutOfTheDLQ(t *testing.T) {
	s, _ := dlqServer(t)
	for _, bodies := range [][]string{{resetBody, completeBody}, {resolveBody}, {completeBody}} {
		task := s.failed("one")
		for _, body := range bodies {
			s.do("PATCH", s.step(task, 0), body).want(200)
		}
		s.await(task, "complete")
		s.do("GET", "/v1/dlq/task/"+task, "").want(200).wantText("resolution_status", "Pending",
			"task_snapshot.current_state", "blocked_by_failures", "task_snapshot.steps.0.current_state", "error")
	}
}

// TestOnePendingEntry fails a task again and expects a second entry only after the
// first was closed.
func TestOnePendingEntry(t *testing.T) {
	s, clock := dlqServer(t)
	task := s.failed("one")
	again := func() {
		t.Helper()
		clock.advance(time.Minute)
		s.do("PATCH", s.step(task, 0), resetBody).want(200)
		s.do("PATCH", s.step(task, 0), failBody).want(200)
	}
	again()
	entries := func(want int) *answer {
		t.Helper()
		a := s.do("GET", "/v1/dlq/task/"+task, "").want(200)
		if got := len(a.get("entries").([]any)); got != want {
			t.Fatalf("got %d entries; want %d", got, want)
		}
		return a
	}
	first := entries(1).text("dlq_entry_uuid")
	s.do("PATCH", "/v1/dlq/entry/"+first, `{"resolution_status":"PermanentlyFailed"}`).want(200)
	entries(1) // closed while the task is blocked: no new one until it is blocked again
	again()
	a := entries(2)
	a.wantText("resolution_status", "Pending", "dlq_timestamp", "2026-01-01T00:02:00.000000",
		"entries.1.dlq_entry_uuid", first, "entries.1.dlq_timestamp", "2026-01-01T00:00:00.000000",
		"entries.1.resolution_status", "PermanentlyFailed")
	s.do("PATCH", "/v1/dlq/entry/"+first, `{"resolution_status":"Pending"}`).want(409).
		wantText("error.code", "CONFLICT")
	s.do("PATCH", "/v1/dlq/entry/"+a.text("dlq_entry_uuid"), `{"resolution_status":"cancelled"}`).want(200)
	s.do("PATCH", "/v1/dlq/entry/"+first, `{"resolution_status":"pending"}`).want(200)
	entries(2).wantText("entries.1.resolution_status", "Pending", "entries.1.resolution_timestamp", "<nil>")
	s.do("GET", "/v1/tasks/"+task+"/summary", "").want(200).
		wantText("dlq.in_dlq", "true", "dlq.dlq_reason", "max_retries_exceeded", "dlq.resolution_status", "pending")
}

func TestDLQLists(t *testing.T) {
	s, clock := dlqServer(t)
	for range 5 {
		s.failed("one")
		clock.advance(time.Minute)
	}
	for path, want := range map[string]int{
		"/v1/dlq": 5, "/api/v1/dlq": 5, "/v1/dlq?limit=2": 2, "/v1/dlq?limit=2&offset=4": 1, "/v1/dlq?offset=5": 0,
		"/v1/dlq?limit=1000": 5, "/v1/dlq?resolution_status=Pending": 5, "/v1/dlq?resolution_status=pending": 5,
		"/v1/dlq?resolution_status=Cancelled": 0, "/v1/dlq?dlq_reason=max_retries_exceeded": 5,
		"/v1/dlq?dlq_reason=ManualDlq": 0, "/v1/dlq?dlq_reason=dependency_cycle_detected": 0,
		"/v1/dlq?resolution_status=": 5, "/v1/dlq/investigation-queue": 5, "/v1/dlq/investigation-queue?limit=3": 3,
		"/v1/dlq/investigation-queue?dlq_reason=staleness_timeout": 0,
		"/v1/dlq/staleness": 5, "/v1/dlq/staleness?limit=3": 3, "/v1/dlq/stats": 1,
	} {
		if got := s.do("GET", path, "").want(200).length(); got != want {
			t.Errorf("%s: got %d; want %d", path, got, want)
		}
	}
	s.do("GET", "/v1/dlq?limit=2&offset=1", "").wantText(
		"0.dlq_timestamp", "2026-01-01T00:03:00.000000", "1.dlq_timestamp", "2026-01-01T00:02:00.000000")
	for path, word := range map[string]string{
		"/v1/dlq?limit=0": "1 to 1000", "/v1/dlq?limit=1001": "1 to 1000", "/v1/dlq?limit=x": "limit",
		"/v1/dlq?offset=-1": "offset", "/v1/dlq?offset=1.5": "offset",
		"/v1/dlq?resolution_status=done":           "Pending, ManuallyResolved, PermanentlyFailed, Cancelled",
		"/v1/dlq?dlq_reason=x":                     "StalenessTimeout",
		"/v1/dlq/investigation-queue?limit=0":      "limit",
		"/v1/dlq/investigation-queue?dlq_reason=x": "dlq_reason",
		"/v1/dlq/staleness?limit=1001":             "limit",
		"/v1/dlq?limit=%zz":                        "malformed",
		"/v1/dlq/task/x":                           "INVALID_UUID",
		"/v1/tasks/x/summary":                      "INVALID_UUID",
	} {
		a := s.do("GET", path, "").want(400)
		if !strings.Contains(string(a.body), word) {
			t.Errorf("%s: got %s; want it to name %q", path, a.body, word)
		}
	}
	s.do("GET", "/v1/dlq/task/"+uuid{}.String(), "").want(404).wantText("error.code", "NOT_FOUND")
	s.do("GET", "/v1/tasks/"+uuid{}.String()+"/summary", "").want(404)
}

func TestDLQShapes(t *testing.T) {
	s, clock := dlqServer(t)
	task := s.failed("pair")
	clock.advance(90 * time.Second)
	const entry = "dlq_entry_uuid task_uuid original_state dlq_reason dlq_timestamp current_state over error resolution_status " +
		"resolution_timestamp resolution_notes resolved_by task_snapshot metadata created_at updated_at"
	a := s.do("GET", "/v1/dlq", "").want(200)
	checkShape(t, "[DlqEntry]", a.body)
	a.wantKeys("0", entry)
	a.wantKeys("0.task_snapshot", "task_uuid namespace task_name current_state time_in_state_minutes "+
		"threshold_minutes snapshot_timestamp task_details steps")
	s.do("GET", "/v1/dlq/task/"+task, "").want(200).wantKeys("", entry+" entries")
	a = s.do("GET", "/v1/dlq/investigation-queue", "").want(200)
	checkShape(t, "[DlqInvestigationQueueEntry]", a.body)
	a.wantKeys("0", "dlq_entry_uuid task_uuid original_state dlq_reason dlq_timestamp minutes_in_dlq "+
		"namespace_name task_name current_state time_in_state_minutes priority_score over error")
	a.wantText("0.minutes_in_dlq", "1.5", "0.priority_score", "501.5", "0.time_in_state_minutes", "1",
		"0.dlq_timestamp", "2026-01-01T00:00:00.000000", "0.namespace_name", "t", "0.task_name", "pair",
		"0.current_state", "blocked_by_failures", "0.original_state", "blocked_by_failures")
	a = s.do("GET", "/v1/dlq/staleness", "").want(200)
	a.wantKeys("0", "task_uuid namespace_name task_name current_state time_in_state_minutes task_age_minutes "+
		"staleness_threshold_minutes health_status priority")
	a.wantText("0.current_state", "blocked_by_failures", "0.staleness_threshold_minutes", "1440",
		"0.health_status", "healthy", "0.task_age_minutes", "1", "0.priority", "0")
	if n := s.do("GET", "/v1/dlq/staleness", "").want(200).length(); n != 1 {
		t.Errorf("got %d unfinished tasks; want 1", n)
	}
}

func TestDLQStats(t *testing.T) {
	s, clock := dlqServer(t)
	if got := strings.TrimSpace(string(s.do("GET", "/v1/dlq/stats", "").want(200).body)); got != "[]" {
		t.Errorf("without entries: got %s; want []", got)
	}
	var entries []string
	for range 4 {
		entries = append(entries, s.entry(s.failed("one")))
		clock.advance(time.Minute)
	}
	a := s.do("GET", "/v1/dlq/stats", "").want(200)
	a.wantKeys("0", "dlq_reason total_entries pending pending_over manually_resolved permanent_failures cancelled "+
		"oldest_entry newest_entry avg_resolution_time_minutes")
	a.wantText("0.pending", "4", "0.avg_resolution_time_minutes", "0")
	for i, status := range []string{"ManuallyResolved", "PermanentlyFailed", "Cancelled"} {
		s.do("PATCH", "/v1/dlq/entry/"+entries[i], `{"resolution_status":"`+status+`"}`).want(200)
	}
	s.do("GET", "/v1/dlq/stats", "").want(200).wantText("0.dlq_reason", "MaxRetriesExceeded", "0.total_entries", "4",
		"0.pending", "1", "0.manually_resolved", "1", "0.permanent_failures", "1", "0.cancelled", "1",
		"0.oldest_entry", "2026-01-01T00:00:00.000000", "0.newest_entry", "2026-01-01T00:03:00.000000",
		"0.avg_resolution_time_minutes", "3")
}

// TestDLQRecords reads every form of record back.
func TestDLQRecords(t *testing.T) {
	for _, r := range []record{
		{kind: recStale, stale: &staleMark{limit: 60, reason: dlqWorkerUnavailable}},
		{kind: recStale, stale: &staleMark{limit: 1440, reason: noDLQReason}},
		{kind: recDLQUpdate, investigation: &investigation{entry: 7, status: noDLQStatus}},
		{kind: recDLQUpdate, investigation: &investigation{entry: 7, status: dlqPending, notes: new(""), by: new("é\""),
			metadata: []byte(`{"a":[1.50]}`)}},
	} {
		r.step, r.at, r.task = -1, 5, uuid{1}
		text := "{" + string(appendRecordMembers(nil, &r)) + "}"
		if err := checkJSON([]byte(text)); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got, err := decodeRecord([]byte(text)); err != nil || !reflect.DeepEqual(*got, r) {
			t.Errorf("%s: got %+v, %v; want %+v", text, got, err, r)
		}
	}
	for _, text := range []string{
		`{"seq":1,"kind":"stale"}`, `{"seq":1,"kind":"investigated"}`, `{"seq":1,"kind":"stale","stale":7}`,
		`{"seq":1,"kind":"stale","stale":{"limit":1,"reason":"boredom"}}`,
		`{"seq":1,"kind":"investigated","dlq":{"entry":1,"novelty":1}}`,
		`{"seq":1,"kind":"investigated","dlq":{"entry":1,"status":"done"}}`,
	} {
		if r, err := decodeRecord([]byte(text)); err == nil {
			t.Errorf("%s was read as %+v", text, r)
		}
	}
}

// TestRacingInvestigators reopens two entries of one task at the same time. One
// succeeds, so that at most one is pending.
func TestRacingInvestigators(t *testing.T) {
	s := newTestService(t, serviceTest{extra: dlqTemplates})
	for range 20 {
		v := mustCreate(t, s, "one")
		for range 2 {
			v = mustAct(t, s, v, 0, failAction)
			investigateNewest(t, s, v, &investigation{status: dlqCancelled})
			v = mustAct(t, s, v, 0, resetAction)
		}
		dead := must(s.store.view(v.id))(t).dead
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			wg.Go(func() {
				id := dlqEntryID(v.id, dead[i].at, dead[i].seq)
				errs[i] = s.dlq.update(t.Context(), id, &investigation{status: dlqPending}, nil)
			})
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || kindOf(cmp.Or(errs...)) != conflict {
			t.Fatalf("got %v and %v; want one to win and a conflict", errs[0], errs[1])
		}
	}
}

// TestRacingRecoveries lets two operators act on one failed step at the same time. One
// succeeds, and the entry does not change.
func TestRacingRecoveries(t *testing.T) {
	s := newTestServer(t, serviceTest{extra: dlqTemplates})
	for range 10 {
		task := s.failed("one")
		step := s.step(task, 0)
		var wg sync.WaitGroup
		status := make([]int, 2)
		for i, body := range []string{resetBody, strings.Replace(resetBody, `"reset_by":"`, `"reset_by":"not-`, 1)} {
			wg.Go(func() { status[i] = s.do("PATCH", step, body).status })
		}
		wg.Wait()
		if slices.Sort(status); status[0] != 200 || status[1] != 400 && status[1] != 409 {
			t.Fatalf("got %v; want one 200, and 400 or 409", status)
		}
		a := s.do("GET", "/v1/dlq/task/"+task, "").want(200)
		a.wantText("resolution_status", "Pending")
		if n := len(a.get("entries").([]any)); n != 1 {
			t.Fatalf("got %d entries; want 1", n)
		}
	}
}

func TestSummary(t *testing.T) {
	s := newTestServer(t, serviceTest{clock: newVirtualClock(testStart), extra: []string{
		testTemplate("two", stepSpec{name: "a", callable: "http://me:hunter2@127.0.0.1:1/a", retry: `{"max_attempts":5}`},
			stepSpec{name: "b", callable: "Outside", after: []string{"a"}, retry: `{"retryable":false}`}),
		dlqTemplates[1],
	}})
	task := s.create(`{"namespace":"t","name":"one","context":{"secret":"s3cr3t"}}`)
	s.do("GET", "/v1/tasks/"+task+"/summary", "").want(200).
		wantText("dlq.in_dlq", "false", "dlq.dlq_reason", "<nil>", "dlq.resolution_status", "<nil>")
	s.do("PATCH", s.step(task, 0), failBody).want(200)
	a := s.do("GET", "/v1/tasks/"+task+"/summary", "").want(200)
	a.wantKeys("", "task template steps dlq links")
	a.wantKeys("task", "task_uuid name namespace version status created_at updated_at completed_at initiator "+
		"source_system reason correlation_id total_steps pending_steps in_progress_steps completed_steps failed_steps "+
		"completion_percentage health_status execution_status recommended_action")
	a.wantKeys("template", "steps")
	a.wantKeys("template.steps.0", "name step_type handler dependencies retryable max_attempts")
	a.wantKeys("steps.0", "step_uuid name current_state created_at completed_at last_attempted_at attempts "+
		"max_attempts dependencies_satisfied retry_eligible error")
	a.wantKeys("steps.0.error", "error_type retryable status_code")
	a.wantKeys("dlq", "in_dlq dlq_reason resolution_status")
	a.wantText("task.status", "blocked_by_failures", "task.created_at", "2026-01-01T00:00:00.000000Z",
		"task.completed_at", "<nil>", "task.failed_steps", "1", "template.steps.0.handler", "Outside",
		"template.steps.0.step_type", "standard", "steps.0.current_state", "error", "steps.0.error.error_type", "refused",
		"steps.0.error.retryable", "false", "steps.0.error.status_code", "<nil>",
		"dlq.in_dlq", "true", "dlq.dlq_reason", "max_retries_exceeded", "dlq.resolution_status", "pending",
		"links.task", "/v1/tasks/"+task, "links.steps", "/v1/tasks/"+task+"/workflow_steps",
		"links.dlq", "/v1/dlq/task/"+task)
	for _, word := range []string{"s3cr3t", "card refused"} {
		if strings.Contains(string(a.body), word) {
			t.Errorf("%q is in the summary %s", word, a.body)
		}
	}
	a = s.do("GET", "/api/v1/tasks/"+task+"/summary", "").want(200)
	for _, link := range []string{"links.task", "links.steps", "links.dlq"} {
		s.do("GET", a.text(link), "").want(200)
		if !strings.HasPrefix(a.text(link), "/api/v1/") {
			t.Errorf("got %s; want it under the caller's prefix", a.text(link))
		}
	}
	s.do("PATCH", "/v1/dlq/entry/"+s.entry(task), `{"resolution_status":"PermanentlyFailed"}`).want(200)
	s.do("GET", "/v1/tasks/"+task+"/summary", "").
		wantText("dlq.in_dlq", "false", "dlq.resolution_status", "permanently_failed")
}

// TestQueueAfterClockWentBack views an entry whose time is in the future.
func TestQueueAfterClockWentBack(t *testing.T) {
	q := &queuedLetter{dlqRow: dlqRow{deadLetter: deadLetter{at: testStart, reason: dlqMaxRetriesExceeded}, tpl: &template{}}}
	now := testStart.add(-time.Hour)
	if got := q.priority(now); got != 500 {
		t.Errorf("got priority %v; want 500", got)
	}
	if got := q.view(now).MinutesInDLQ; got != 0 {
		t.Errorf("got %v minutes in the queue; want 0", got)
	}
}

// TestQueueOrder expects old entries with a minor reason to overtake new ones with
// a serious one.
func TestQueueOrder(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, extra: append(staleTemplates(), dlqTemplates[1])})
	mustCreate(t, s, "slow")                              // stale after 30 minutes
	mustCreate(t, s, "bare")                              // the same, because there is no actor
	clock.advance(31 * time.Minute)                       // 1 minute in the queue
	mustAct(t, s, mustCreate(t, s, "one"), 0, failAction) // 400 minutes ahead of slow
	check := func(want string) {
		t.Helper()
		queue := queueOf(t, s, 0, 1000)
		var got []string
		for _, q := range queue {
			got = append(got, fmt.Sprint(q.DLQReason, " ", q.PriorityScore))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("got %s; want %s", strings.Join(got, ", "), want)
		}
		for limit := range len(queue) + 1 {
			for skip := range limit {
				if part := queueOf(t, s, skip, limit-skip); !reflect.DeepEqual(part, queue[skip:limit]) {
					t.Errorf("got %+v; want %d from the place %d on", part, limit-skip, skip)
				}
			}
		}
	}
	check("MaxRetriesExceeded 500, StalenessTimeout 101, WorkerUnavailable 51")
	clock.advance(8 * time.Hour)
	mustAct(t, s, mustCreate(t, s, "one"), 0, failAction)
	check("MaxRetriesExceeded 980, StalenessTimeout 581, WorkerUnavailable 531, MaxRetriesExceeded 500")
}

// Tests of staleness on the virtual clock: every state, limit and action.

// withLifecycle returns a test template with a lifecycle.
func withLifecycle(template, lifecycle string) string {
	return strings.TrimSuffix(template, "}") + `,"lifecycle":` + lifecycle + "}"
}

func staleTemplates() []string {
	outside := stepSpec{name: "a", callable: "Outside", retry: `{"backoff_base_ms":600000,"max_backoff_ms":600000}`}
	slow := stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":86400000}`, timeout: 90000}
	return []string{
		testTemplate("plain", outside),
		withLifecycle(testTemplate("bare", outside), `{}`),
		withLifecycle(testTemplate("dlq", outside), `{"staleness_action":"dlq"}`),
		withLifecycle(testTemplate("error", outside), `{"staleness_action":"error"}`),
		withLifecycle(testTemplate("none", outside), `{"staleness_action":"none"}`),
		withLifecycle(testTemplate("own", outside), `{"max_steps_in_process_minutes":5,"max_waiting_for_retry_minutes":7,"max_duration_minutes":120}`),
		withLifecycle(testTemplate("slow", slow), `{}`),
	}
}

// TestStaleActions lets steps wait for an actor beyond the limit.
func TestStaleActions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ template, state, reason string }{
		{"plain", "steps_in_process", ""}, {"none", "steps_in_process", ""}, {"error", "error", ""},
		{"bare", "error", "WorkerUnavailable"}, {"dlq", "error", "WorkerUnavailable"},
		{"slow", "error", "StalenessTimeout"},
	} {
		t.Run(tc.template, func(t *testing.T) {
			clock := newVirtualClock(testStart)
			s := newTestService(t, serviceTest{clock: clock, extra: staleTemplates()})
			v := mustCreate(t, s, tc.template)
			clock.advance(29 * time.Minute)
			if got := settled(t, s, v.id); got.state != taskStepsInProcess {
				t.Fatalf("before the limit: got %s; want steps_in_process", got.state)
			}
			clock.advance(6 * time.Minute)
			v = settled(t, s, v.id)
			if v.state.String() != tc.state {
				t.Fatalf("past the limit: got %s; want %s", v.state, tc.state)
			}
			if got, want := int(s.staleness.found.Load()), boolCount(tc.state != "error"); got != want {
				t.Errorf("the latest search found %d stale tasks; want %d", got, want)
			}
			wantStaleEntry(t, s, v, tc.reason)
		})
	}
}

// wantStaleEntry checks the only entry of a task that became stale in
// steps_in_process after 30 minutes; reason "" means that it has none.
func wantStaleEntry(t *testing.T, s *service, v *task, reason string) {
	t.Helper()
	of, err := s.dlq.ofTask(v.id, true, nil)
	if reason == "" {
		if kindOf(err) != notFound {
			t.Errorf("got %+v, %v; want no entry", of, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	snap := of.TaskSnapshot
	if of.Entries.n != 1 || of.DLQReason != reason || of.OriginalState != "steps_in_process" ||
		snap.CurrentState != "steps_in_process" || snap.TimeInStateMinutes != 30 || snap.ThresholdMinutes != 30 ||
		of.DLQTimestamp != naiveTime(testStart.add(30*time.Minute)) || snap.SnapshotTimestamp != of.DLQTimestamp {
		t.Errorf("got %+v with %+v; want one entry for %s after 30 minutes", of, snap, reason)
	}
	if v.completed != testStart.add(30*time.Minute) {
		t.Errorf("completed at %s; want the moment of the error", v.completed.zoned())
	}
}

// TestStaleTaskGoesOn completes by hand the step that a stale task waited for.
func TestStaleTaskGoesOn(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, extra: staleTemplates()})
	v := mustCreate(t, s, "bare")
	clock.advance(time.Hour)
	v = mustAct(t, s, v, 0, completeAction)
	wantStates(t, v, "complete: complete")
	if d := v.pendingLetter(); d == nil || d.reason != dlqWorkerUnavailable {
		t.Errorf("got %+v; want the entry pending still", v.dead)
	}
}

// TestStaleBlockedTaskGetsANewEntry lets a blocked task become stale after its
// entry was closed.
func TestStaleBlockedTaskGetsANewEntry(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, extra: staleTemplates()})
	v := mustAct(t, s, mustCreate(t, s, "bare"), 0, failAction)
	investigateNewest(t, s, v, &investigation{status: dlqPermanentlyFailed})
	clock.advance(25 * time.Hour)
	v = settled(t, s, v.id)
	if v.state != taskError || len(v.dead) != 2 || v.dead[1].reason != dlqStalenessTimeout ||
		v.dead[1].state != taskBlockedByFailures {
		t.Errorf("got %s with %+v; want error and a second entry for staleness", v.state, v.dead)
	}
	wantStates(t, mustAct(t, s, v, 0, resetAction), "steps_in_process: enqueued")
}

// TestStaleWaitingForDependencies makes a template whose steps wait for each
// other, because no template that can be loaded leads to this state.
func TestStaleWaitingForDependencies(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock})
	ring := &template{
		namespace: "t", name: "ring", version: "1.0.0", hash: "ring", json: []byte("{}"), lifecycle: &lifecycle{},
		steps: []stepTemplate{
			{name: "a", callable: "Outside", parents: []int{1}, children: []int{1}},
			{name: "b", callable: "Outside", parents: []int{0}, children: []int{0}},
		},
	}
	id := s.ids.reserve(3)
	must(s.store.update(func(c *change) error {
		_, err := c.create(&record{kind: recCreated, task: id, created: &creation{template: "ring", initiator: "api", source: "stepwell", context: []byte("{}")}}, ring)
		return err
	}))(t)
	if v := settled(t, s, id); v.state != taskWaitingForDependencies {
		t.Fatalf("got %s; want waiting_for_dependencies", v.state)
	}
	clock.advance(59 * time.Minute)
	if v := settled(t, s, id); v.state != taskWaitingForDependencies {
		t.Fatalf("after 59 minutes: got %s; want waiting_for_dependencies", v.state)
	}
	clock.advance(time.Minute)
	v := settled(t, s, id)
	if v.state != taskError || len(v.dead) != 1 || v.dead[0].reason != dlqStalenessTimeout {
		t.Errorf("after an hour: got %s with %+v; want error and an entry", v.state, v.dead)
	}
}

// TestStalenessView expects stale tasks first, then those that have been longest
// in their state.
func TestStalenessView(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestServer(t, serviceTest{clock: clock, extra: append(staleTemplates(), dlqTemplates...)})
	for range 5 {
		s.create(`{"namespace":"t","name":"plain","priority":3}`)
		clock.advance(3 * time.Minute)
	}
	clock.advance(time.Minute)
	s.create(`{"namespace":"t","name":"own"}`)
	clock.advance(6 * time.Minute)
	a := s.do("GET", "/v1/dlq/staleness", "").want(200)
	checkShape(t, "[StalenessMonitoring]", a.body)
	a.wantText("0.task_name", "own", "0.health_status", "stale", "0.time_in_state_minutes", "6",
		"0.staleness_threshold_minutes", "5", "1.health_status", "healthy", "1.time_in_state_minutes", "22",
		"1.task_age_minutes", "22", "1.priority", "3", "5.time_in_state_minutes", "10")
	clock.advance(4 * time.Minute) // the detector moved the stale one
	a = s.do("GET", "/v1/dlq/staleness", "").want(200)
	a.wantText("0.task_name", "plain", "0.health_status", "warning", "0.time_in_state_minutes", "26")
	if n := a.length(); n != 5 {
		t.Errorf("got %d tasks; want the 5 that are unfinished", n)
	}
	a = s.do("GET", "/v1/dlq", "").want(200)
	checkShape(t, "[DlqEntry]", a.body)
	a.wantText("0.dlq_reason", "WorkerUnavailable", "0.original_state", "steps_in_process",
		"0.task_snapshot.current_state", "steps_in_process", "0.task_snapshot.threshold_minutes", "5")
	a = s.do("GET", "/v1/dlq/investigation-queue", "").want(200)
	checkShape(t, "[DlqInvestigationQueueEntry]", a.body)
	a.wantText("0.current_state", "error", "0.original_state", "steps_in_process")
	clock.advance(10 * time.Minute)
	s.do("GET", "/v1/dlq/staleness?limit=2", "").want(200).wantText(
		"0.health_status", "stale", "0.time_in_state_minutes", "36", "1.time_in_state_minutes", "33")
}

// TestStaleTaskAfterRestart restarts with a task in error whose attempt was cut
// off. After an operator's action the attempt is delivered again.
func TestStaleTaskAfterRestart(t *testing.T) {
	t.Parallel()
	clock := newVirtualClock(testStart)
	o := serviceTest{dir: t.TempDir(), clock: clock, extra: []string{
		withLifecycle(testTemplate("mixed",
			stepSpec{name: "a", callable: "Outside"},
			stepSpec{name: "b", callable: "builtin:sleep", config: `{"duration_ms":3600000}`, timeout: 7200},
			stepSpec{name: "c", callable: "builtin:flaky", config: `{"failures":1}`,
				retry: `{"backoff_base_ms":7200000,"max_backoff_ms":7200000,"backoff":"linear"}`},
		), `{"max_steps_in_process_minutes":10}`)},
		config: func(c *Config) { c.Engine.Jitter = false }}
	s := openTestService(t, o)
	id := mustCreate(t, s, "mixed").id
	for states(settled(t, s, id)) != "steps_in_process: enqueued in_progress waiting_for_retry" {
		continue // the scheduler works on some of them
	}
	clock.advance(15 * time.Minute)
	wantStates(t, settled(t, s, id), "error: enqueued in_progress waiting_for_retry")
	closeTestService(t, s)
	s = newTestService(t, o)
	wantStates(t, settled(t, s, id), "error: enqueued enqueued waiting_for_retry")
	v := mustAct(t, s, settled(t, s, id), 0, completeAction)
	for v.steps[1].state == stepEnqueued { // the scheduler works on it
		v = settled(t, s, id)
	}
	wantStates(t, v, "steps_in_process: complete in_progress waiting_for_retry")
	for range 3 { // it is stale once more: its steps continue, and an operator ends it
		clock.advance(time.Hour)
	}
	wantStates(t, settled(t, s, id), "error: complete complete pending")
	v = settled(t, s, id)
	wantStates(t, mustAct(t, s, v, 2, completeAction), "complete: complete complete complete")
}

// TestStalenessWithoutDisk runs the detector on a store that refuses changes.
func TestStalenessWithoutDisk(t *testing.T) {
	t.Parallel()
	clock := newVirtualClock(testStart)
	var log strings.Builder
	s := openTestService(t, serviceTest{clock: clock, dir: t.TempDir(), log: &log, extra: staleTemplates()})
	v := mustCreate(t, s, "bare")
	noError(t, s.store.close())
	clock.advance(35 * time.Minute)
	if got := settled(t, s, v.id); got.state != taskStepsInProcess {
		t.Errorf("got %s; want the task as it was", got.state)
	}
	if !strings.Contains(log.String(), "the next run tries again") {
		t.Errorf("got log %q; want a word on it", log.String())
	}
}

func TestStalenessMetrics(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestServer(t, serviceTest{clock: clock, extra: staleTemplates()})
	for _, name := range []string{"plain", "bare"} {
		s.create(fmt.Sprintf(`{"namespace":"t","name":%q}`, name))
	}
	clock.advance(30 * time.Minute)
	body := string(s.do("GET", "/metrics", "").want(200).body)
	for _, line := range []string{
		`stepwell_dlq_entries{reason="worker_unavailable",status="pending"} 1`,
		`stepwell_dlq_entries{reason="manual_dlq",status="cancelled"} 0`,
		"stepwell_stale_tasks 2",
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("no %s in %s", line, body)
		}
	}
}

// step returns the path of a task's step, given by its index in the template.
func (s *testServer) step(task string, i int) string {
	s.t.Helper()
	id := s.do("GET", "/v1/tasks/"+task, "").want(200).text(fmt.Sprintf("steps.%d.workflow_step_uuid", i))
	return "/v1/tasks/" + task + "/workflow_steps/" + id
}

// failed creates a task of a template, one or pair, and fails its first step.
func (s *testServer) failed(name string) (task string) {
	s.t.Helper()
	task = s.create(`{"namespace":"t","name":"` + name + `"}`)
	s.do("PATCH", s.step(task, 0), failBody).want(200)
	return task
}

// entry returns the id of a task's newest entry.
func (s *testServer) entry(task string) string {
	s.t.Helper()
	return s.do("GET", "/v1/dlq/task/"+task, "").want(200).text("dlq_entry_uuid")
}

// length returns the number of elements of an answer that is a list.
func (a *answer) length() int {
	a.t.Helper()
	var list []any
	if err := json.Unmarshal(a.body, &list); err != nil {
		a.t.Fatalf("%v in %s", err, a.body)
	}
	return len(list)
}

// wantText compares the values at paths: path, value, path, value, …
func (a *answer) wantText(pairs ...string) {
	a.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := a.text(pairs[i]); got != pairs[i+1] {
			a.t.Errorf("%s: got %q; want %q in %s", pairs[i], got, pairs[i+1], a.body)
		}
	}
}

// wantKeys compares the members of the object at a path with a list of words.
func (a *answer) wantKeys(path, words string) {
	a.t.Helper()
	var v any
	noError(a.t, json.Unmarshal(a.body, &v))
	if path != "" {
		v = a.get(path)
	}
	object, ok := v.(map[string]any)
	if !ok {
		a.t.Fatalf("%s is not an object in %s", path, a.body)
	}
	got, want := slices.Sorted(maps.Keys(object)), strings.Fields(words)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		a.t.Errorf("%s: got members %q; want %q", path, got, want)
	}
}

func TestDLQUpdates(t *testing.T) {
	s, clock := dlqServer(t)
	entry := s.entry(s.failed("one"))
	path := "/v1/dlq/entry/" + entry
	read := func() *answer { return s.do("GET", "/v1/dlq", "").want(200) }
	clock.advance(time.Minute)
	s.do("PATCH", path, `{}`).want(200)
	read().wantText("0.updated_at", "2026-01-01T00:01:00.000000", "0.resolution_status", "Pending")
	clock.advance(time.Minute)
	s.do("PATCH", path, `{"resolution_status":"Cancelled","resolution_notes":"n","resolved_by":"x","metadata":{"a":1}}`).want(200)
	clock.advance(time.Minute)
	s.do("PATCH", path, `{"resolution_status":null,"resolution_notes":null,"resolved_by":null,"metadata":null,"novelty":1}`).want(200)
	read().wantText("0.resolution_status", "Cancelled", "0.resolution_notes", "n", "0.resolved_by", "x",
		"0.metadata.a", "1", "0.resolution_timestamp", "2026-01-01T00:02:00.000000",
		"0.updated_at", "2026-01-01T00:03:00.000000")
	s.do("PATCH", path, `{"resolution_status":"ManuallyResolved","resolution_notes":"","metadata":{"b":2}}`).want(200)
	a := read()
	a.wantText("0.resolution_status", "ManuallyResolved", "0.resolution_notes", "",
		"0.resolution_timestamp", "2026-01-01T00:02:00.000000")
	a.wantKeys("0.metadata", "b")

	nobody := uuid{}.String()
	long := strings.Repeat("x", maxMessageLength+1)
	for _, tt := range []struct {
		path, body string
		status     int
		code, word string
	}{
		{"/v1/dlq/entry/x", `{}`, 400, "INVALID_UUID", "dlq_entry_uuid"},
		{"/v1/dlq/entry/" + nobody, `{}`, 404, "NOT_FOUND", nobody},
		{path, ``, 400, "JSON_ERROR", ""},
		{path, `{`, 400, "JSON_ERROR", "offset"},
		{path, `[]`, 400, "BAD_REQUEST", "object"},
		{path, `{"resolution_status":"Done"}`, 422, "VALIDATION_FAILED", "Pending, ManuallyResolved, PermanentlyFailed, Cancelled"},
		{path, `{"resolution_status":7}`, 422, "VALIDATION_FAILED", "resolution_status"},
		{path, `{"resolution_notes":7,"resolved_by":"","metadata":[]}`, 422, "VALIDATION_FAILED", "metadata must be an object"},
		{path, `{"resolution_notes":"` + long + `"}`, 422, "VALIDATION_FAILED", "10000"},
		{path, `{"resolved_by":"` + long + `"}`, 422, "VALIDATION_FAILED", "255"},
	} {
		a := s.do("PATCH", tt.path, tt.body).want(tt.status)
		if got := a.text("error.code"); got != tt.code || !strings.Contains(string(a.body), tt.word) {
			t.Errorf("%.60s %.60s: got %s; want %s naming %q", tt.path, tt.body, a.body, tt.code, tt.word)
		}
	}
	s.do("PATCH", path, `{"resolution_notes":7,"resolved_by":""}`).want(422).
		wantText("error.details.0.field", "resolution_notes", "error.details.1.field", "resolved_by")
	s.do("POST", path, `{}`).want(405)
}

// TestLettersThatAreOver restarts a service whose tasks ended after their dead letters, and checks what the entries say
// then: the steps that stopped the tasks are in no header, so they come from the logs.
func TestLettersThatAreOver(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: append(staleTemplates(), dlqTemplates...),
		config: func(c *Config) { c.Events.Keep = 1 }} // so that a start needs no log for the events
	s := openTestService(t, o)
	over, stuck := mustCreate(t, s, "one"), mustCreate(t, s, "one")
	for _, v := range []*task{over, stuck} {
		mustAct(t, s, v, 0, failAction)
	}
	must(s.operator.cancelTask(t.Context(), over.id, taskActor{}))(t)
	stale := mustCreate(t, s, "slow") // stale after 30 minutes, while no step fails
	o.clock.(*virtualClock).advance(40 * time.Minute)
	step, group := over.def(0).name, s.store.table().failureGroup(must(s.store.viewWithin(stuck.id, nil))(t).failedStep(0))
	for range 3 {
		for _, tc := range []struct {
			f    dlqFilter
			want []uuid
		}{
			{dlqFilter{}, []uuid{stale.id, stuck.id, over.id}}, {dlqFilter{over: new(true)}, []uuid{over.id}},
			{dlqFilter{over: new(false)}, []uuid{stale.id, stuck.id}}, {dlqFilter{step: step}, []uuid{stuck.id, over.id}},
			{dlqFilter{step: step, over: new(true)}, []uuid{over.id}}, {dlqFilter{step: "x"}, nil},
			{dlqFilter{name: "slow"}, []uuid{stale.id}}, {dlqFilter{namespace: "x"}, nil},
			{dlqFilter{made: period{after: testStart}}, []uuid{stale.id}}, {dlqFilter{made: period{before: testStart + 1}}, []uuid{stuck.id, over.id}},
			{dlqFilter{failure: group}, []uuid{stuck.id}},
		} {
			rows, _, total := s.store.letters().page(tc.f, 0, 10)
			got := []uuid(nil)
			for _, r := range rows {
				got = append(got, r.task)
			}
			if !slices.Equal(got, tc.want) || total != len(got) {
				t.Errorf("%+v: got %v of %d; want %v", tc.f, got, total, tc.want)
			}
		}
		part, total := s.dlq.entries(dlqFilter{}, 1, 2, false)
		if text := string(jsonOf(part)); total != 3 || strings.Count(text, `"step_name":"`+step+`","message":"","message_redacted":true,`) != 2 {
			t.Errorf("got %s of %d", text, total)
		}
		if v := must(s.dlq.ofTask(stale.id, true, nil))(t); v.Error != nil || v.Over {
			t.Errorf("got the error %+v, over %t; want none of a task in which no step fails", v.Error, v.Over)
		}
		noError(t, s.store.compact())
		s = reopenTestService(t, s, o)
	}
	closeTestService(t, s)
}
