package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestTooManyCheckpoints checks that a step cannot yield for ever.
func TestTooManyCheckpoints(t *testing.T) {
	s := newTestService(t, serviceTest{extra: []string{testTemplate("yields", stepSpec{name: "a", callable: "Outside"})}})
	id := mustCreate(t, s, "yields").id
	yield := func() (int, error) {
		given := must(s.outside.claim(t.Context(), &claimRequest{callables: []string{"*"}, limit: 1, lease: time.Hour}))(t)
		q := &leaseAnswer{verb: yieldVerb, outcome: outcome{success: true, checkpoint: []byte(`{"cursor":1}`)}}
		q.setLease(given[0].token)
		v, err := s.outside.answer(t.Context(), &stepAnswer{leaseAnswer: *q, step: given[0].attempt.stepID})
		if err != nil {
			return 0, err
		}
		return v.step.checkpoint.number, nil
	}
	for n := 1; n <= maxCheckpoints; n++ {
		if got := must(yield())(t); got != n {
			t.Fatalf("got checkpoint %d; want %d", got, n)
		}
	}
	if _, err := yield(); kindOf(err) != invalidFields || !strings.Contains(err.Error(), "10000 checkpoints") {
		t.Errorf("got %v; want it refused", err)
	}
	if got := s.engine.stats.checkpoints; got != [2]uint64{maxCheckpoints, 1} {
		t.Errorf("got %d checkpoints taken and refused", got)
	}
	if v := must(s.store.view(id))(t); len(v.log) > 20_000 {
		t.Errorf("the log has %d bytes", len(v.log))
	}
}

// TestYieldingIsFair checks that a step that yields lets those of later tasks go first.
func TestYieldingIsFair(t *testing.T) {
	s := newTestService(t, serviceTest{extra: []string{testTemplate("yields", stepSpec{name: "a", callable: "Outside"})}})
	claim := func() claimedStep {
		return must(s.outside.claim(t.Context(), &claimRequest{callables: []string{"*"}, limit: 1, lease: time.Hour}))(t)[0]
	}
	first, second := mustCreate(t, s, "yields").id, mustCreate(t, s, "yields").id
	given := claim()
	q := &leaseAnswer{verb: yieldVerb, outcome: outcome{success: true, checkpoint: []byte(`{"cursor":1}`)}}
	q.setLease(given.token)
	_, err := s.outside.answer(t.Context(), &stepAnswer{leaseAnswer: *q, step: given.attempt.stepID})
	noError(t, err)
	third := mustCreate(t, s, "yields").id
	for _, want := range []uuid{second, first, third} {
		if got := claim().key.task; got != want {
			t.Errorf("got the step of %s; want that of %s", got, want)
		}
	}
}

// TestRestartFromCheckpoint cuts a delivery off after a checkpoint: the same attempt continues from it.
func TestRestartFromCheckpoint(t *testing.T) {
	dir, tpl := t.TempDir(), testTemplate("yields", stepSpec{name: "a", callable: "Outside"})
	s := newTestService(t, serviceTest{dir: dir, extra: []string{tpl}})
	id := mustCreate(t, s, "yields").id
	for n := range 5 {
		given := must(s.outside.claim(t.Context(), &claimRequest{callables: []string{"*"}, limit: 1, lease: time.Hour}))(t)[0]
		if c := given.attempt.checkpoint; (c == nil) != (n == 0) || c != nil && c.number != n || given.attempt.number != 1 {
			t.Fatalf("delivery %d: got checkpoint %+v, attempt %d", n, c, given.attempt.number)
		}
		q := &leaseAnswer{verb: yieldVerb, outcome: outcome{success: true, checkpoint: fmt.Appendf(nil, `{"cursor":%d}`, n)}}
		q.setLease(given.token)
		_, err := s.outside.answer(t.Context(), &stepAnswer{leaseAnswer: *q, step: given.attempt.stepID})
		noError(t, err)
		closeTestService(t, s)
		s = newTestService(t, serviceTest{dir: dir, extra: []string{tpl}})
	}
	wantStates(t, settled(t, s, id), "steps_in_process: enqueued")
}

// claimOne claims one step, and fails the test if there is none.
func (s *testServer) claimOne(body string) claimed {
	s.t.Helper()
	got := s.claim(body)
	if len(got) != 1 {
		s.t.Fatalf("claimed %d steps with %s; want 1", len(got), body)
	}
	return got[0]
}

// answer sends an outside actor's answer; more holds additional members.
func (s *testServer) answer(c claimed, verb, more string) *answer {
	s.t.Helper()
	return s.do("POST", "/v1/steps/"+c.Step.StepUUID+"/"+verb, fmt.Sprintf(`{"lease":%q%s}`, c.Lease, more))
}

// state returns the states of a task and its steps, in the form of states.
func (s *testServer) state(id string) string {
	s.t.Helper()
	u, _ := parseUUID(id)
	settle(s.svc)
	v := must(s.svc.store.view(u))(s.t)
	return states(v)
}

func (s *testServer) patch(c claimed, action string) {
	s.t.Helper()
	s.do("PATCH", "/v1/tasks/"+c.Task.TaskUUID+"/workflow_steps/"+c.Step.StepUUID, action).want(200)
}

// claimed is a step as an actor receives it.
type claimed struct {
	Task struct {
		TaskUUID string          `json:"task_uuid"`
		Name     string          `json:"name"`
		Context  json.RawMessage `json:"context"`
	} `json:"task"`
	Step struct {
		StepUUID string `json:"step_uuid"`
		Name     string `json:"name"`
		Attempt  int    `json:"attempt"`
	} `json:"step"`
	Results map[string]json.RawMessage `json:"dependency_results"`
	Lease   string                     `json:"lease"`
	Expires string                     `json:"lease_expires_at"`
}

// TestLease has a row for each way in which a claim can end. The lease lasts 30 s,
// and the step has two attempts.
func TestLease(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name   string
		do     func(s *testServer, clock *virtualClock, c claimed)
		states string
		audit  string // newest first: outcome, or the action, and the state after it
	}{
		{"completed", func(s *testServer, clock *virtualClock, c claimed) {
			s.answer(c, "complete", `,"result":{"ok":1},"metadata":{"m":2}`).want(200)
		}, "complete: complete", "true enqueued_for_orchestration w1"},

		{"completed with null", func(s *testServer, clock *virtualClock, c claimed) {
			s.answer(c, "complete", `,"result":null`).want(200)
		}, "complete: complete", "true enqueued_for_orchestration w1"},

		{"completed twice", func(s *testServer, clock *virtualClock, c claimed) {
			s.answer(c, "complete", `,"result":1`).want(200)
			s.answer(c, "complete", `,"result":2`).want(409)
			s.answer(c, "extend", ``).want(409)
		}, "complete: complete", "true enqueued_for_orchestration w1"},

		{"adjusted, then completed twice", func(s *testServer, clock *virtualClock, c claimed) {
			step, _ := parseUUID(c.Step.StepUUID)
			task, _ := parseUUID(c.Task.TaskUUID)
			must2(s.svc.operator.adjust(s.t.Context(), task, step, &adjustment{maxAttempts: 5}, taskActor{}))(s.t)
			s.answer(c, "complete", `,"result":1`).want(200)
			s.answer(c, "complete", `,"result":1`).want(200)
		}, "complete: complete", "true enqueued_for_orchestration w1, adjusted in_progress"},

		{"failed, to be retried", func(s *testServer, clock *virtualClock, c claimed) {
			s.answer(c, "fail", `,"error":{"message":"no"},"retry_after":5`).want(200)
			if got := s.state(c.Task.TaskUUID); got != "waiting_for_retry: waiting_for_retry" {
				s.t.Errorf("after the failure: %s", got)
			}
			clock.advance(5 * time.Second)
		}, "steps_in_process: enqueued", "false enqueued_as_error_for_orchestration w1"},

		{"failed for good", func(s *testServer, clock *virtualClock, c claimed) {
			s.answer(c, "fail", `,"error":{"message":"no","retryable":false}`).want(200)
		}, "blocked_by_failures: error", "false enqueued_as_error_for_orchestration w1"},

		{"almost over", func(s *testServer, clock *virtualClock, c claimed) {
			clock.advance(30*time.Second - time.Microsecond)
			s.answer(c, "complete", `,"result":1`).want(200)
		}, "complete: complete", "true enqueued_for_orchestration w1"},

		{"over", func(s *testServer, clock *virtualClock, c claimed) {
			clock.advance(30 * time.Second)
			clock.advance(0)
		}, "steps_in_process: enqueued", "false enqueued_as_error_for_orchestration w1"},

		{"over, then completed", func(s *testServer, clock *virtualClock, c claimed) {
			clock.advance(30 * time.Second)
			s.answer(c, "complete", `,"result":1`).want(409)
			s.answer(c, "complete", `,"result":1`).want(409)
			s.answer(c, "extend", ``).want(409)
		}, "steps_in_process: enqueued", "true enqueued w1, false enqueued_as_error_for_orchestration w1"},

		{"over, claimed by another, then failed", func(s *testServer, clock *virtualClock, c claimed) {
			clock.advance(30 * time.Second)
			again := s.claimOne(`{"callables":["*"],"worker_id":"w2"}`)
			if again.Step.Attempt != 2 || again.Lease == c.Lease {
				s.t.Errorf("claimed again: %+v", again)
			}
			s.answer(c, "fail", `,"error":{"message":"no"}`).want(409)
			s.answer(again, "complete", `,"result":1`).want(200)
		}, "complete: complete", "true enqueued_for_orchestration w2, false in_progress w1, " +
			"false enqueued_as_error_for_orchestration w1"},

		{"over as often as there are attempts", func(s *testServer, clock *virtualClock, c claimed) {
			clock.advance(30 * time.Second)
			s.claimOne(anyOne)
			clock.advance(30 * time.Second)
		}, "blocked_by_failures: error", "false enqueued_as_error_for_orchestration w1, " +
			"false enqueued_as_error_for_orchestration w1"},

		{"extended", func(s *testServer, clock *virtualClock, c claimed) {
			for range 5 {
				clock.advance(20 * time.Second)
				s.answer(c, "extend", ``).want(200)
			}
			clock.advance(29 * time.Second)
			s.answer(c, "complete", `,"result":1`).want(200)
		}, "complete: complete", "true enqueued_for_orchestration w1"},

		{"extended, then over", func(s *testServer, clock *virtualClock, c claimed) {
			clock.advance(10 * time.Second)
			if got := s.answer(c, "extend", `,"lease_seconds":60`).text("lease_expires_at"); got != "2026-01-01T00:01:10.000000Z" {
				s.t.Errorf("extended to %s", got)
			}
			clock.advance(60 * time.Second)
			s.answer(c, "extend", ``).want(409)
		}, "steps_in_process: enqueued", "false enqueued_as_error_for_orchestration w1"},

		{"not shortened by an extension", func(s *testServer, clock *virtualClock, c claimed) {
			if got := s.answer(c, "extend", `,"lease_seconds":1`).text("lease_expires_at"); got != c.Expires {
				s.t.Errorf("extended to %s; want %s as before", got, c.Expires)
			}
			clock.advance(29 * time.Second)
			s.answer(c, "complete", `,"result":1`).want(200)
		}, "complete: complete", "true enqueued_for_orchestration w1"},

		{"another's lease", func(s *testServer, clock *virtualClock, c claimed) {
			c.Lease = "AAAAAAAAAAAAAAAAAAAAAAAA"
			s.answer(c, "complete", `,"result":1`).want(409)
			s.answer(c, "fail", `,"error":{"message":"no"}`).want(409)
			s.answer(c, "extend", ``).want(409)
		}, "steps_in_process: in_progress", ""},

		{"completed by an operator", func(s *testServer, clock *virtualClock, c claimed) {
			s.patch(c, `{"action_type":"complete_manually","reason":"r","completed_by":"me","completion_data":{"result":3}}`)
			s.answer(c, "complete", `,"result":1`).want(409)
			clock.advance(time.Minute)
		}, "complete: complete", "true complete w1, complete_manually complete"},

		{"failed by an operator", func(s *testServer, clock *virtualClock, c claimed) {
			s.patch(c, `{"action_type":"fail","reason":"r","failed_by":"me","error":{"message":"no","retryable":false}}`)
			s.answer(c, "complete", `,"result":1`).want(409)
		}, "blocked_by_failures: error", "true error w1, fail enqueued_as_error_for_orchestration"},

		{"resolved by an operator", func(s *testServer, clock *virtualClock, c claimed) {
			s.patch(c, `{"action_type":"resolve_manually","reason":"r","resolved_by":"me"}`)
			s.answer(c, "extend", ``).want(409)
		}, "complete: resolved_manually", "resolve_manually resolved_manually"},

		{"completed, and once more", func(s *testServer, clock *virtualClock, c claimed) {
			first := s.answer(c, "complete", `,"result":{"a":1,"b":null},"metadata":{}`).want(200)
			again := s.answer(c, "complete", `,"metadata":null,"result":{"b":null, "a":1}`).want(200)
			if string(again.body) != string(first.body) {
				s.t.Errorf("got %s; want %s", again.body, first.body)
			}
			s.answer(c, "complete", `,"result":{"a":2}`).want(409)
			s.answer(c, "fail", `,"error":{"message":"no"}`).want(409)
			s.answer(c, "extend", ``).want(409)
		}, "complete: complete", "true enqueued_for_orchestration w1"},

		{"failed, and once more", func(s *testServer, clock *virtualClock, c claimed) {
			s.answer(c, "fail", `,"error":{"message":"no"}`).want(200)
			s.answer(c, "fail", `,"error":{"message":"no"}`).want(200)
			s.answer(c, "fail", `,"error":{"message":"yes"}`).want(409)
			s.answer(c, "complete", `,"result":1`).want(409)
		}, "waiting_for_retry: waiting_for_retry", "false enqueued_as_error_for_orchestration w1"},

		{"failed, and once more while another has it", func(s *testServer, clock *virtualClock, c claimed) {
			s.answer(c, "fail", `,"error":{"message":"no"}`).want(200)
			clock.advance(time.Minute)
			s.claimOne(`{"callables":["*"],"worker_id":"w2"}`)
			s.answer(c, "fail", `,"error":{"message":"no"}`).want(200)
		}, "steps_in_process: in_progress", "false enqueued_as_error_for_orchestration w1"},

		{"the task cancelled", func(s *testServer, clock *virtualClock, c claimed) {
			s.do("DELETE", "/v1/tasks/"+c.Task.TaskUUID, "").want(200)
			s.answer(c, "fail", `,"error":{"message":"no"}`).want(409)
			clock.advance(time.Minute)
		}, "cancelled: cancelled", "false cancelled w1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			clock := newVirtualClock(testStart)
			s := newClaimServer(t, serviceTest{clock: clock})
			id := s.create(fmt.Sprintf(createOn, "one"))
			c := s.claimOne(anyOne)
			if c.Task.TaskUUID != id || string(c.Task.Context) != `{"n":7}` || c.Step.Attempt != 1 || !strings.HasPrefix(c.Lease, id+".") {
				t.Errorf("claimed %+v", c)
			}
			row.do(s, clock, c)
			if got := s.state(id); got != row.states {
				t.Errorf("got %s; want %s", got, row.states)
			}
			if got := s.auditOf(c); got != row.audit {
				t.Errorf("got the audit %q; want %q", got, row.audit)
			}
		})
	}
}

// TestLeaseSurvivesRestart restarts the service while actors hold claimed steps.
func TestLeaseSurvivesRestart(t *testing.T) {
	t.Parallel()
	clock := newVirtualClock(testStart)
	o := serviceTest{clock: clock, dir: t.TempDir(), extra: claimTemplates}
	open := func() *testServer {
		svc := openTestService(t, o)
		return (&testServer{t: t, svc: svc}).with(newOrchestrationAPI(svc, nil))
	}
	s := open()
	var claims []claimed
	for range 4 {
		s.create(fmt.Sprintf(createOn, "one"))
		claims = append(claims, s.claimOne(anyOne))
	}
	s.answer(claims[1], "extend", `,"lease_seconds":90`).want(200)
	for _, snapshot := range []bool{false, true} {
		if snapshot {
			noError(t, s.svc.store.compact())
		}
		closeTestService(t, s.svc)
		clock.advance(10 * time.Second)
		s = open()
	}
	if got := s.claim(anyTen); len(got) > 0 {
		t.Errorf("leased steps were given out again: %+v", got)
	}
	s.answer(claims[0], "complete", `,"result":1`).want(200)
	clock.advance(10 * time.Second)
	got := s.state(claims[0].Task.TaskUUID) + "; " + s.state(claims[1].Task.TaskUUID) + "; " + s.state(claims[2].Task.TaskUUID)
	if want := "complete: complete; steps_in_process: in_progress; steps_in_process: enqueued"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	s.answer(claims[1], "complete", `,"result":1`).want(200)
	s.answer(claims[3], "complete", `,"result":1`).want(409)
	again := s.claim(anyTen)
	if len(again) != 2 || again[0].Step.Attempt != 2 {
		t.Errorf("claimed after the leases ended: %+v", again)
	}
	closeTestService(t, s.svc)
	clock.advance(time.Hour)
	s = open()
	s.answer(again[0], "complete", `,"result":1`).want(409) // over, although no timer has fired yet
	if got := s.state(again[0].Task.TaskUUID); got != "blocked_by_failures: error" {
		t.Errorf("got %s after its last lease ended while the service was down", got)
	}
	closeTestService(t, s.svc)
}

// TestStaleLease expects another reason for a stale task that an actor works on
// than for one that has no actor.
func TestStaleLease(t *testing.T) {
	for _, row := range []struct {
		claimed bool
		want    dlqReason
	}{{false, dlqWorkerUnavailable}, {true, dlqStalenessTimeout}} {
		clock := newVirtualClock(testStart)
		tpl := strings.Replace(testTemplate("stale", stepSpec{name: "a", callable: "Outside"}),
			`"name":"stale"`, `"name":"stale","lifecycle":{"max_steps_in_process_minutes":10}`, 1)
		s := newClaimServer(t, serviceTest{clock: clock, extra: []string{tpl}})
		id := s.create(fmt.Sprintf(createOn, "stale"))
		var c claimed
		if row.claimed {
			c = s.claimOne(`{"callables":["*"],"lease_seconds":3600}`)
		}
		clock.advance(15 * time.Minute)
		u, _ := parseUUID(id)
		v := must(s.svc.store.view(u))(t)
		if d := v.pendingLetter(); v.state != taskError || d == nil || d.reason != row.want {
			t.Errorf("claimed %t: the task is %s with the entry %+v; want %s", row.claimed, v.state, d, row.want)
		}
		if row.claimed { // its result is kept all the same
			s.answer(c, "complete", `,"result":1`).want(200)
			if got := s.state(id); got != "error: complete" {
				t.Errorf("after the answer: %s", got)
			}
		}
	}
}

// Tests of claims on tasks that retention drops.

// staleErrorTemplate returns a template whose tasks move to error, without an
// entry in the dead letter queue, after ten minutes without progress.
func staleErrorTemplate() string {
	return strings.Replace(testTemplate("stale", stepSpec{name: "a", callable: "Outside"}, stepSpec{name: "b", callable: "Other"}),
		`"name":"stale"`, `"name":"stale","lifecycle":{"max_steps_in_process_minutes":10,"staleness_action":"error"}`, 1)
}

// TestLeaseOfADroppedTask expects other leases to expire after one whose task was
// dropped.
func TestLeaseOfADroppedTask(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newClaimServer(t, serviceTest{clock: clock, config: retaining(1),
		extra: append(storyTemplates, staleErrorTemplate())})
	s.create(fmt.Sprintf(createOn, "stale"))
	s.claimOne(`{"callables":["Outside"],"lease_seconds":3600}`)
	clock.advance(15 * time.Minute)
	done := mustCreate(t, s.svc, "noop")
	wantKept(t, s.svc, done.id)
	id := s.create(fmt.Sprintf(createOn, "one"))
	s.claimOne(`{"callables":["Shop::Pack"],"lease_seconds":3600}`)
	clock.advance(time.Hour)
	if got := s.state(id); got != "steps_in_process: enqueued" {
		t.Errorf("got %s after its lease ended", got)
	}
	s.do("DELETE", "/v1/tasks/"+id, "").want(200)
	wantNothingOutside(t, s.svc)
}

// TestLateAnswerOfACallerWhoLeft has an answer under an ended lease wait for the search that another one makes.
func TestLateAnswerOfACallerWhoLeft(t *testing.T) {
	y := newYieldingTask(t)
	g := y.claim("A")
	mustAct(t, y.service, must(y.store.view(y.id))(t), 0, completeAction)
	late := y.engine.outside.late
	late <- struct{}{}
	defer func() { <-late }()
	ctx, leave := context.WithCancel(t.Context())
	leave()
	q := leaseAnswer{verb: completeVerb, outcome: outcome{success: true, result: []byte("1")}}
	q.setLease(g.token)
	if _, err := y.outside.answer(ctx, &stepAnswer{leaseAnswer: q, step: g.attempt.stepID}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want the caller's end", err)
	}
}
