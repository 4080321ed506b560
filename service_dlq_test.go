package main

// Tests of the dead letter queue and staleness, through the API and the store: how
// entries are made and updated, and that they survive a restart.

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// dlqTemplates holds the templates of these tests.
var dlqTemplates = []string{
	testTemplate("pair", stepSpec{name: "a", callable: "Outside"}, stepSpec{name: "b", callable: "Outside"},
		stepSpec{name: "c", callable: "builtin:noop", after: []string{"a", "b"}}),
	testTemplate("one", stepSpec{name: "a", callable: "Outside", retry: `{"backoff":"none"}`}),
}

const (
	failBody     = `{"action_type":"fail","error":{"message":"card refused by http://me:hunter2@pay.example/","error_type":"refused","retryable":false},"reason":"r","failed_by":"actor"}`
	resetBody    = `{"action_type":"reset_for_retry","reason":"again","reset_by":"ops"}`
	resolveBody  = `{"action_type":"resolve_manually","reason":"done by phone","resolved_by":"ops"}`
	completeBody = `{"action_type":"complete_manually","completion_data":{"result":{"ok":1}},"reason":"known","completed_by":"ops"}`
)

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

// step returns the path of a task's step, given by its index in the template.
func (s *testServer) step(task string, i int) string {
	s.t.Helper()
	id := s.do("GET", "/v1/tasks/"+task, "").want(200).text(fmt.Sprintf("steps.%d.workflow_step_uuid", i))
	return "/v1/tasks/" + task + "/workflow_steps/" + id
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

// TestStaleLimits compares a task in each state with its limits.
func TestStaleLimits(t *testing.T) {
	t.Parallel()
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
		if a.health != tc.health || a.limit != tc.limit || a.broken != tc.broken {
			t.Errorf("%s in %s after %d minutes: got %s of %d, broken %d; want %s of %d, broken %d",
				tc.template, tc.state, tc.at, a.health, a.limit, a.broken, tc.health, tc.limit, tc.broken)
		}
	}
}

// TestManyStaleTasks creates more stale tasks than fit into one batch.
func TestManyStaleTasks(t *testing.T) {
	t.Parallel()
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, extra: staleTemplates()})
	const many = walkWork / lookWork / 10 // for two batches, with the looks at their steps
	for i := range 2*many + 10 {
		name := "bare"
		if i%3 == 0 {
			name = "plain"
		}
		mustCreate(t, s, name)
	}
	clock.advance(35 * time.Minute)
	stale := (2*many + 10 + 2) / 3
	all, total := s.staleness.report(&taskFilter{}, 0, 10_000)
	if len(all) != stale || total != stale {
		t.Errorf("got %d unfinished tasks of %d; want %d", len(all), total, stale)
	}
	if got, total := s.staleness.report(&taskFilter{name: "plain"}, 3, 9); !slices.Equal(got, all[3:12]) || total != stale {
		t.Errorf("got %+v of %d; want those from the place 3 on", got, total)
	}
	if got, total := s.staleness.report(&taskFilter{name: "bare"}, 0, 9); len(got) != 0 || total != 0 {
		t.Errorf("got %d tasks of %d of a template without any; want none", len(got), total)
	}
	if got := s.staleness.found.Load(); got != int64(stale) {
		t.Errorf("the latest run found %d stale tasks; want %d, for which the action is none", got, stale)
	}
	if got, _ := s.staleness.report(&taskFilter{}, 0, 7); !slices.Equal(got, all[:7]) {
		t.Errorf("got %+v; want the first 7", got)
	}
	f := s.dlq.stats()
	if len(f) != 1 || f[0].TotalEntries != 2*many+10-stale {
		t.Errorf("got %+v; want %d entries of one reason", f, 2*many+10-stale)
	}
}
