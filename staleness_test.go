package main

// Staleness on the virtual clock: every state, limit and action.

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// withLifecycle is a test template with a lifecycle.
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
			if got, want := int(s.staleTasks.Load()), boolCount(tc.state != "error"); got != want {
				t.Errorf("the latest search found %d stale tasks; want %d", got, want)
			}
			wantStaleEntry(t, s, v, tc.reason)
		})
	}
}

// wantStaleEntry compares the one entry of a task that was stale in
// steps_in_process after 30 minutes; reason "" means none.
func wantStaleEntry(t *testing.T, s *service, v *task, reason string) {
	t.Helper()
	of, err := s.dlqOfTask(v.id)
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
	if len(of.Entries) != 1 || of.DLQReason != reason || of.OriginalState != "steps_in_process" ||
		snap.CurrentState != "steps_in_process" || snap.TimeInStateMinutes != 30 || snap.ThresholdMinutes != 30 ||
		of.DLQTimestamp != naiveTime(testStart.add(30*time.Minute)) || snap.SnapshotTimestamp != of.DLQTimestamp {
		t.Errorf("got %+v with %+v; want one entry for %s after 30 minutes", of, snap, reason)
	}
	if v.completed != testStart.add(30*time.Minute) {
		t.Errorf("completed at %s; want the moment of the error", v.completed.zoned())
	}
}

// TestStaleTaskGoesOn has an operator complete the step that a task waited for.
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

// TestStaleLimits holds one task in each state against its limits.
func TestStaleLimits(t *testing.T) {
	const dayMinutes = 24 * 60
	for _, tc := range []struct {
		template string
		prepare  *stepRequest
		state    taskState
		at       int // minutes after the creation
		health   string
		limit    int // shown
		broken   int
	}{
		{"plain", nil, taskStepsInProcess, 23, "healthy", 30, 0},
		{"plain", nil, taskStepsInProcess, 24, "warning", 30, 0},
		{"plain", nil, taskStepsInProcess, 29, "warning", 30, 0},
		{"plain", nil, taskStepsInProcess, 30, "stale", 30, 30},
		{"own", nil, taskStepsInProcess, 4, "warning", 5, 0},
		{"own", nil, taskStepsInProcess, 5, "stale", 5, 5},
		// The retry is due after 10 minutes.
		{"plain", &retryAction, taskWaitingForRetry, 30, "healthy", 30, 0},
		{"plain", &retryAction, taskWaitingForRetry, 34, "warning", 30, 0},
		{"plain", &retryAction, taskWaitingForRetry, 40, "stale", 30, 30},
		{"own", &retryAction, taskWaitingForRetry, 15, "healthy", 7, 0},
		{"own", &retryAction, taskWaitingForRetry, 17, "stale", 7, 7},
		{"plain", &failAction, taskBlockedByFailures, 19 * 60, "healthy", dayMinutes, 0},
		{"plain", &failAction, taskBlockedByFailures, 20 * 60, "warning", dayMinutes, 0},
		{"plain", &failAction, taskBlockedByFailures, dayMinutes, "stale", dayMinutes, dayMinutes},
		{"own", &failAction, taskBlockedByFailures, 120, "stale", 120, 120},
	} {
		s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: staleTemplates(),
			config: func(c *Config) { c.Engine.Jitter = false }})
		v := mustCreate(t, s, tc.template)
		if tc.prepare != nil {
			v = mustAct(t, s, v, 0, *tc.prepare)
		}
		if v.state != tc.state {
			t.Fatalf("got %s; want %s", v.state, tc.state)
		}
		a := s.cfg.Staleness.aging(v, testStart.add(minutes(tc.at)))
		if a.health.String() != tc.health || a.limit != tc.limit || a.broken != tc.broken {
			t.Errorf("%s in %s after %d minutes: got %s of %d, broken %d; want %s of %d, broken %d",
				tc.template, tc.state, tc.at, a.health, a.limit, a.broken, tc.health, tc.limit, tc.broken)
		}
	}
}

// TestStaleInEveryState moves tasks from each state to error. No timer runs
// between, as when the process was down.
func TestStaleInEveryState(t *testing.T) {
	for _, tc := range []struct {
		prepare *stepRequest
		state   taskState
		after   time.Duration
		reasons []dlqReason
		limit   int
	}{
		{nil, taskStepsInProcess, 31 * time.Minute, []dlqReason{dlqWorkerUnavailable}, 30},
		{&retryAction, taskWaitingForRetry, 41 * time.Minute, []dlqReason{dlqStalenessTimeout}, 30},
		{&failAction, taskBlockedByFailures, 25 * time.Hour, []dlqReason{dlqMaxRetriesExceeded}, 0},
	} {
		t.Run(tc.state.String(), func(t *testing.T) {
			clock := newVirtualClock(testStart)
			s := newTestService(t, serviceTest{clock: clock, extra: staleTemplates(),
				config: func(c *Config) { c.Engine.Jitter = false }})
			v := mustCreate(t, s, "bare")
			if tc.prepare != nil {
				v = mustAct(t, s, v, 0, *tc.prepare)
			}
			clock.set(testStart.add(tc.after))
			s.detectStale(0, &stalenessRun{done: s.store.stay()})
			after := settled(t, s, v.id)
			if after.state != taskError || len(after.dead) != len(tc.reasons) {
				t.Fatalf("got %s with %d entries; want error with %d", after.state, len(after.dead), len(tc.reasons))
			}
			for i, d := range after.dead {
				if d.reason != tc.reasons[i] || d.state != tc.state {
					t.Errorf("got an entry for %s in %s; want %s in %s", d.reason, d.state, tc.reasons[i], tc.state)
				}
			}
			of, err := s.dlqOfTask(v.id)
			if err != nil || of.TaskSnapshot.ThresholdMinutes != tc.limit {
				t.Errorf("got %+v, %v; want a threshold of %d", of, err, tc.limit)
			}
		})
	}
}

// TestStaleBlockedTaskGetsANewEntry is about a blocked task whose entry was
// closed: what is stale later is another matter.
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

// TestStaleWaitingForDependencies makes a template by hand whose steps wait for
// each other: nothing that can be loaded leads to this state yet.
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
	_, err := s.store.update(func(c *change) error {
		_, err := c.create(&record{kind: recCreated, task: id, created: &creation{template: "ring", context: []byte("{}")}}, ring)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
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

// TestStalenessView lists stale tasks first, then those longest in their state.
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
	checkShape(t, "[Staleness]", a.body)
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
	checkShape(t, "[DLQEntry]", a.body)
	a.wantText("0.dlq_reason", "WorkerUnavailable", "0.original_state", "steps_in_process",
		"0.task_snapshot.current_state", "steps_in_process", "0.task_snapshot.threshold_minutes", "5")
	a = s.do("GET", "/v1/dlq/investigation-queue", "").want(200)
	checkShape(t, "[QueueEntry]", a.body)
	a.wantText("0.current_state", "error", "0.original_state", "steps_in_process")
	clock.advance(10 * time.Minute)
	s.do("GET", "/v1/dlq/staleness?limit=2", "").want(200).wantText(
		"0.health_status", "stale", "0.time_in_state_minutes", "36", "1.time_in_state_minutes", "33")
}

// TestManyStaleTasks needs several batches.
func TestManyStaleTasks(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, extra: staleTemplates()})
	for i := range 2*stalenessBatch + 10 {
		name := "bare"
		if i%3 == 0 {
			name = "plain"
		}
		mustCreate(t, s, name)
	}
	clock.advance(35 * time.Minute)
	stale := (2*stalenessBatch + 10 + 2) / 3
	if got := len(s.staleness(10_000)); got != stale {
		t.Errorf("got %d unfinished tasks; want %d", got, stale)
	}
	if got := s.staleTasks.Load(); got != int64(stale) {
		t.Errorf("the latest search found %d; want the %d that nothing is done about", got, stale)
	}
	if got := len(s.staleness(7)); got != 7 {
		t.Errorf("got %d; want the limit of 7", got)
	}
	f := s.dlqStats()
	if len(f) != 1 || f[0].TotalEntries != 2*stalenessBatch+10-stale {
		t.Errorf("got %+v; want %d entries of one reason", f, 2*stalenessBatch+10-stale)
	}
}

// TestStaleTaskAfterRestart restarts with a task in error whose attempt was cut
// off: an operator gets it going again, and the attempt is delivered again.
func TestStaleTaskAfterRestart(t *testing.T) {
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
		continue // the scheduler has some of them in hand
	}
	clock.advance(15 * time.Minute)
	wantStates(t, settled(t, s, id), "error: enqueued in_progress waiting_for_retry")
	closeTestService(t, s)
	s = newTestService(t, o)
	wantStates(t, settled(t, s, id), "error: enqueued enqueued waiting_for_retry")
	v := mustAct(t, s, settled(t, s, id), 0, completeAction)
	for v.steps[1].state == stepEnqueued { // the scheduler has it in hand
		v = settled(t, s, id)
	}
	wantStates(t, v, "steps_in_process: complete in_progress waiting_for_retry")
	for range 3 { // it is stale once more: its steps go on all the same, and an operator ends it
		clock.advance(time.Hour)
	}
	wantStates(t, settled(t, s, id), "error: complete complete pending")
	v = settled(t, s, id)
	wantStates(t, mustAct(t, s, v, 2, completeAction), "complete: complete complete complete")
}

// TestStalenessWithoutDisk has the detector meet a store that takes no change.
func TestStalenessWithoutDisk(t *testing.T) {
	clock := newVirtualClock(testStart)
	var log strings.Builder
	s := openTestService(t, serviceTest{clock: clock, dir: t.TempDir(), log: &log, extra: staleTemplates()})
	v := mustCreate(t, s, "bare")
	if err := s.store.close(); err != nil {
		t.Fatal(err)
	}
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
