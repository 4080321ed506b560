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

		{"almost over", func(s *testServer, clock *virtualClock, c claimed) {
			clock.advance(30*time.Second - time.Microsecond)
			s.answer(c, "complete", `,"result":1`).want(200)
		}, "complete: complete", "true enqueued_for_orchestration w1"},

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

// Templates with a step that must be answered within three days.
var (
	askTemplate = testTemplate("ask",
		stepSpec{name: "approve", callable: "People::approve", retry: `{"max_attempts":2,"backoff":"none"}`,
			config: `{"answer_within":"72h","if_unanswered":{"approved":false}}`},
		stepSpec{name: "other", callable: "Other"},
		stepSpec{name: "tell", callable: "builtin:echo", after: []string{"approve"}})
	mustTemplate = strings.Replace(strings.Replace(askTemplate, `,"if_unanswered":{"approved":false}`, "", 1), `"ask"`, `"must"`, 1)
	onceTemplate = strings.Replace(strings.Replace(askTemplate, `"max_attempts":2`, `"max_attempts":1`, 1), `"ask"`, `"once"`, 1)
)

// asking is a task whose step approve waits for an answer.
type asking struct {
	*testServer
	clock *virtualClock
	o     serviceTest
	id    string
	lease claimed
}

// claim claims the step and returns when its lease ends, after the start.
func (a *asking) claim(seconds int) time.Duration {
	a.t.Helper()
	a.lease = a.claimOne(fmt.Sprintf(`{"callables":["People::*"],"lease_seconds":%d}`, seconds))
	return mustInstant(a.lease.Expires).sub(testStart)
}

// act takes an action on one of the steps: 0 is approve, 1 is other.
func (a *asking) act(step int, action string) {
	a.t.Helper()
	id := a.do("GET", "/v1/tasks/"+a.id, "").text(fmt.Sprintf("steps.%d.workflow_step_uuid", step))
	a.do("PATCH", "/v1/tasks/"+a.id+"/workflow_steps/"+id, action).want(200)
}

func (a *asking) all(action string) {
	a.t.Helper()
	a.bulk(fmt.Sprintf(`{"action":%q,"reason":"r","filter":{"namespace":"t"}}`, action))
}

// serve opens the service.
func (a *asking) serve() {
	svc := openTestService(a.t, a.o)
	a.testServer = (&testServer{t: a.t, svc: svc}).with(newOrchestrationAPI(svc, nil))
}

const (
	resetIt    = `{"action_type":"reset_for_retry","reason":"r","reset_by":"me"}`
	resolveIt  = `{"action_type":"resolve_manually","reason":"r","resolved_by":"me"}`
	completeIt = `{"action_type":"complete_manually","reason":"r","completed_by":"me","completion_data":{"result":{"approved":true}}}`
	failIt     = `{"action_type":"fail","reason":"r","failed_by":"me","error":{"message":"no","retryable":false}}`
)

// TestAnswerDeadline has a row for each way to the deadline of an answer.
func TestAnswerDeadline(t *testing.T) {
	t.Parallel()
	const days = 72 * time.Hour
	stale := strings.Replace(strings.Replace(askTemplate, `"steps"`, `"lifecycle":{"staleness_action":"error","max_steps_in_process_minutes":60},"steps"`, 1), `"ask"`, `"stale"`, 1)
	old := strings.Replace(strings.Replace(stale, `"max_steps_in_process_minutes":60`, `"max_steps_in_process_minutes":9999,"max_duration_minutes":4300`, 1), `"stale"`, `"old"`, 1)
	for _, row := range []struct {
		name, template string
		do             func(a *asking)
		want           string // the states at the end
		audit          string // of approve, oldest first: action, from, to
	}{
		{"a moment before", "ask", func(a *asking) { a.clock.advance(days - time.Microsecond) }, "steps_in_process: enqueued enqueued pending", ""},
		{"nobody answers, and the template says what holds", "ask", func(a *asking) { a.clock.advance(days) },
			"steps_in_process: complete enqueued complete", "unanswered enqueued complete"},
		{"nobody answers, and the template says nothing", "must", func(a *asking) { a.clock.advance(days) },
			"blocked_by_failures: error enqueued pending", "unanswered enqueued error"},
		{"a person answers in time", "ask", func(a *asking) {
			a.clock.advance(days - time.Second)
			a.act(0, completeIt)
			a.clock.advance(days)
		}, "steps_in_process: complete enqueued complete", "complete_manually in_progress complete"},
		{"retries do not begin it again", "ask", func(a *asking) {
			a.clock.advance(70 * time.Hour)
			a.claim(30)
			a.answer(a.lease, "fail", `,"error":{"message":"later"}`).want(200)
			a.clock.advance(2 * time.Hour)
		}, "steps_in_process: complete enqueued complete", " in_progress enqueued_as_error_for_orchestration, unanswered enqueued complete"},
		{"it passes before the retry", "ask", func(a *asking) {
			a.clock.advance(70 * time.Hour)
			a.claim(30)
			a.answer(a.lease, "fail", `,"error":{"message":"later"},"retry_after":3600`).want(200)
			a.clock.advance(2*time.Hour - time.Second)
			a.act(1, completeIt)
			a.claim(3600)
			a.clock.advance(time.Second)
		}, "complete: complete complete complete", " in_progress enqueued_as_error_for_orchestration, " +
			" in_progress enqueued_as_error_for_orchestration, unanswered waiting_for_retry complete"},
		{"it passes while the step waits for its retry", "ask", func(a *asking) {
			a.clock.advance(days - 10*time.Minute)
			a.claim(30)
			a.answer(a.lease, "fail", `,"error":{"message":"later"},"retry_after":3600`).want(200)
			a.clock.advance(10 * time.Minute)
		}, "steps_in_process: complete enqueued complete", " in_progress enqueued_as_error_for_orchestration, unanswered waiting_for_retry complete"},
		{"leases end with it, even of the last attempt", "once", func(a *asking) {
			a.clock.advance(days - time.Minute)
			if end := a.claim(3600); end != days {
				a.t.Errorf("a lease ends after %v", end)
			}
			if got := a.answer(a.lease, "extend", `,"lease_seconds":7200`).want(200).text("lease_expires_at"); mustInstant(got).sub(testStart) != days {
				a.t.Errorf("an extended lease ends at %s", got)
			}
			a.clock.advance(time.Minute)
			a.answer(a.lease, "complete", `,"result":1`).want(409)
		}, "steps_in_process: complete enqueued complete", " in_progress enqueued_as_error_for_orchestration, unanswered waiting_for_retry complete,   complete"},
		{"no lease is extended beyond it by the record either", "once", func(a *asking) {
			a.clock.advance(days - 10*time.Hour)
			a.claim(3600)
			a.clock.advance(50 * time.Minute)
			a.answer(a.lease, "extend", `,"lease_seconds":36000`).want(200)
			closeTestService(a.t, a.svc)
			a.serve() // a start knows the end of the lease from the record
			a.clock.advance(550 * time.Minute)
		}, "steps_in_process: complete enqueued complete", " in_progress enqueued_as_error_for_orchestration, unanswered waiting_for_retry complete"},
		{"nothing is given out after it", "ask", func(a *asking) {
			a.clock.set(testStart.add(days)) // its timer has not fired yet
			if got := a.testServer.claim(`{"callables":["*"],"limit":10}`); len(got) != 1 || got[0].Step.Name != "other" {
				a.t.Errorf("claimed %+v", got)
			}
			a.clock.advance(0)
		}, "steps_in_process: complete in_progress complete", "unanswered enqueued complete"},
		{"a lost claim does not begin it again", "ask", func(a *asking) {
			a.clock.advance(time.Hour)
			a.claim(30)
			a.clock.advance(71 * time.Hour)
		}, "steps_in_process: complete enqueued complete", " in_progress enqueued_as_error_for_orchestration, unanswered enqueued complete"},
		{"a reset begins it again", "must", func(a *asking) {
			a.clock.advance(days)
			a.act(0, resetIt)
			a.clock.advance(days - time.Second)
			if got := a.state(a.id); got != "steps_in_process: enqueued enqueued pending" {
				a.t.Errorf("a second before the new deadline: %s", got)
			}
			a.clock.advance(time.Second)
		}, "blocked_by_failures: error enqueued pending",
			"unanswered enqueued error, reset_for_retry error pending, unanswered enqueued error"},
		{"while another step blocks the task", "ask", func(a *asking) {
			a.act(1, failIt)
			a.clock.advance(days)
			if got := a.state(a.id); got != "blocked_by_failures: complete error pending" {
				a.t.Errorf("while the task is blocked: %s", got)
			}
			a.act(1, resolveIt)
		}, "complete: complete resolved_manually complete", "unanswered enqueued complete"},
		{"not in a held task, but at its release", "ask", func(a *asking) {
			a.all("hold")
			a.clock.advance(2 * days)
			if got := a.state(a.id); got != "steps_in_process: enqueued enqueued pending" {
				a.t.Errorf("while the task is held: %s", got)
			}
			a.all("release")
			a.clock.advance(0)
		}, "steps_in_process: complete enqueued complete", "unanswered enqueued complete"},
		{"after a release in time", "ask", func(a *asking) {
			a.all("hold")
			a.clock.advance(time.Hour)
			a.all("release")
			a.clock.advance(71 * time.Hour)
		}, "steps_in_process: complete enqueued complete", "unanswered enqueued complete"},
		{"at a start after it", "ask", func(a *asking) {
			closeTestService(a.t, a.svc)
			a.clock.set(testStart.add(2 * days))
			a.serve()
			a.clock.advance(0)
		}, "steps_in_process: complete enqueued complete", "unanswered enqueued complete"},
		{"after a start before it", "ask", func(a *asking) {
			a.clock.advance(time.Hour)
			closeTestService(a.t, a.svc)
			a.serve()
			a.clock.advance(71*time.Hour - time.Second)
			if got := a.state(a.id); got != "steps_in_process: enqueued enqueued pending" {
				a.t.Errorf("a second before: %s", got)
			}
			a.clock.advance(time.Second)
		}, "steps_in_process: complete enqueued complete", "unanswered enqueued complete"},
		{"once a stale task goes on", "stale", func(a *asking) {
			a.clock.advance(2 * days)
			if got := a.state(a.id); got != "error: enqueued enqueued pending" {
				a.t.Errorf("while the task is in error: %s", got)
			}
			a.act(1, completeIt)
			a.clock.advance(0)
		}, "complete: complete complete complete", "unanswered enqueued complete"},
		{"once a stale task goes on that waits for a retry", "old", func(a *asking) {
			a.clock.advance(days - 35*time.Minute)
			a.claim(30)
			a.answer(a.lease, "fail", `,"error":{"message":"later"},"retry_after":3600`).want(200)
			a.clock.advance(40 * time.Minute)
			if got := a.state(a.id); got != "error: waiting_for_retry enqueued pending" {
				a.t.Errorf("while the task is in error: %s", got)
			}
			a.act(1, completeIt)
			a.clock.advance(0)
		}, "complete: complete complete complete", " in_progress enqueued_as_error_for_orchestration, unanswered waiting_for_retry complete"},
		{"a cancelled task", "ask", func(a *asking) {
			a.do("DELETE", "/v1/tasks/"+a.id, "").want(200)
			a.clock.advance(days)
		}, "cancelled: cancelled cancelled cancelled", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := &asking{clock: newVirtualClock(testStart)}
			a.o = serviceTest{dir: t.TempDir(), clock: a.clock, extra: []string{askTemplate, mustTemplate, onceTemplate, stale, old}}
			a.testServer = &testServer{t: t}
			a.serve()
			a.id = a.create(`{"namespace":"t","name":"` + row.template + `"}`)
			row.do(a)
			a.wants(row.want, row.audit)
			a.svc = reopenTestService(t, a.svc, a.o) // which finds the same
			a.testServer = (&testServer{t: t, svc: a.svc}).with(newOrchestrationAPI(a.svc, nil))
			a.wants(row.want, row.audit)
			closeTestService(t, a.svc)
		})
	}
}

// wants compares the states of the task, and the audit of approve.
func (a *asking) wants(states, audit string) {
	a.t.Helper()
	if got := a.state(a.id); got != states {
		a.t.Errorf("got %s; want %s", got, states)
	}
	id, _ := parseUUID(a.id)
	checkFigures(a.t.(*testing.T), must(a.svc.store.view(id))(a.t), a.clock.now())
	step := a.do("GET", "/v1/tasks/"+a.id, "").text("steps.0.workflow_step_uuid")
	var entries []struct {
		Action string
		From   string `json:"from_state"`
		To     string `json:"to_state"`
	}
	noError(a.t, json.Unmarshal(a.do("GET", "/v1/tasks/"+a.id+"/workflow_steps/"+step+"/audit", "").want(200).body, &entries))
	var got []string
	for _, e := range entries {
		got = append([]string{e.Action + " " + e.From + " " + e.To}, got...)
	}
	if strings.Join(got, ", ") != audit {
		a.t.Errorf("got the audit %q; want %q", strings.Join(got, ", "), audit)
	}
}

// TestAnswerDeadlineOfHandler lets a deadline pass while the handler of the step, which the configuration maps, does not listen.
func TestAnswerDeadlineOfHandler(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestServer(t, serviceTest{clock: clock, extra: []string{askTemplate}, config: func(c *Config) {
		c.Worker.Handlers, c.Worker.Undelivered = map[string]string{"People::*": "http://127.0.0.1:1"}, undeliveredWait
	}})
	id := s.create(`{"namespace":"t","name":"ask"}`)
	eventually(t, "the handler to be missed", func() bool {
		return strings.Contains(string(s.do("GET", "/v1/tasks/"+id+"/explain", "").body), "not_listening")
	})
	clock.advance(72 * time.Hour)
	if got := s.state(id); got != "steps_in_process: complete enqueued complete" {
		t.Errorf("got %s", got)
	}
}

// TestAnswerDeadlineOnVirtualClock fires a deadline by each way to move the clock, except by auto, which rests before it.
func TestAnswerDeadlineOnVirtualClock(t *testing.T) {
	s := frozenServer(t, serviceTest{extra: []string{askTemplate, sleepTemplate("week", 7*24*time.Hour)}})
	ask := func() string { return s.create(`{"namespace":"t","name":"ask"}`) }
	wants := func(id, what, want string) {
		t.Helper()
		if got := s.do("GET", "/v1/tasks/"+id, "").text("steps.0.current_state"); got != want {
			t.Errorf("%s: the step is %s; want %s", what, got, want)
		}
	}
	due := func() string { return s.do("GET", "/_stepwell/clock", "").text("next_timer") }
	id := ask()
	s.clock(`{"auto":true}`).want(200)
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	wants(id, "auto", "enqueued")
	at := due()
	if a := s.clock(`{"advance_to_next":true}`).want(200); a.text("now") != at || a.text("fired") != "1" {
		t.Errorf("advance_to_next: got %s; want the deadline at %s", a.body, at)
	}
	wants(id, "advance_to_next", "complete")
	id = ask()
	s.clock(`{"advance":"71h"}`).want(200)
	wants(id, "advance, too short", "enqueued")
	s.clock(`{"advance":"1h"}`).want(200)
	wants(id, "advance", "complete")
	id = ask()
	s.clock(`{"set":%q}`, due()).want(200)
	wants(id, "set", "complete")
	id = ask()
	deadline := due()
	week := s.create(`{"namespace":"t","name":"week"}`)
	s.clock(`{"auto":true}`).want(200) // which jumps for the work alone, but past the deadline
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	wants(week, "work", "complete")
	wants(id, "a deadline on the way", "complete")
	if v := s.do("GET", "/v1/tasks/"+id, ""); v.text("steps.2.current_state") != "complete" || !strings.Contains(string(v.body), deadline[:19]) {
		t.Errorf("got %s; want a step that ended at %s", v.body, deadline)
	}
}

// TestAnswerDeadlinePublishes expects the events of a step that nobody answered, also after a restart.
func TestAnswerDeadlinePublishes(t *testing.T) {
	publishing := func(template, condition string) string {
		return strings.Replace(template, `{"name":"approve",`, `{"name":"approve","publishes_events":[`+published("approve.over", `,"condition":"`+condition+`"`)+`],`, 1)
	}
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: []string{
		publishing(askTemplate, "success"), publishing(mustTemplate, "permanent_failure"), publishing(onceTemplate, "failure")}}
	svc := openTestService(t, o)
	for _, name := range []string{"ask", "must", "once"} {
		mustCreate(t, svc, name)
	}
	o.clock.(*virtualClock).advance(72 * time.Hour)
	settle(svc)
	wants := func() {
		t.Helper()
		var got []string
		svc.store.locked(func() {
			l := &svc.store.events.domain
			for n := l.first; n < l.end(); n++ {
				e := readDocument(l.event(n).appendJSON(nil, svc.store.numbers()))
				got = append(got, strings.Join([]string{e.text("name"), e.text("type"), e.text("success"), e.text("unanswered"), e.text("attempt"),
					e.json("data.approved"), e.text("data.error_type")}, " "))
			}
		})
		want := "ask approve.over true true 0 false |must approve.over false true 0  nobody_answered"
		if strings.Join(got, "|") != want {
			t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
		}
	}
	wants()
	svc = reopenTestService(t, svc, o)
	wants()
	closeTestService(t, svc)
}

// TestAnswerDeadlineShown looks for the deadline wherever the step is shown.
func TestAnswerDeadlineShown(t *testing.T) {
	late := strings.Replace(strings.Replace(mustTemplate, "72h", "300h", 1), `"must"`, `"late"`, 1)
	s := frozenServer(t, serviceTest{extra: []string{askTemplate, mustTemplate, late}})
	s.clock(`{"set":"2030-01-04T14:00:00Z"}`).want(200) // a Friday
	ids := map[string]string{}
	for _, name := range []string{"late", "ask"} {
		ids[name] = s.create(`{"namespace":"t","name":"` + name + `"}`)
	}
	s.clock(`{"advance":"1h"}`).want(200)
	ids["must"] = s.create(`{"namespace":"t","name":"must"}`)
	s.clock(`{"advance":"23h"}`).want(200)
	says := func(name, want string) {
		t.Helper()
		got := s.do("GET", "/v1/tasks/"+ids[name]+"/explain", "").text("steps.0.message")
		if !strings.Contains(got, want) {
			t.Errorf("%s is explained as %q; want %q in it", name, got, want)
		}
	}
	says("ask", `because callable "People::approve" has no handler, and waits for an answer until Mon 14:00 UTC, in 2 days; `)
	says("late", "and waits for an answer until 17 Jan 2030 02:00 UTC, in 11 days; ")
	if got := s.do("GET", "/v1/tasks/"+ids["ask"]+"/explain", "").text("steps.0.due_at"); got != "2030-01-07T14:00:00.000000Z" {
		t.Errorf("explained as due at %s", got)
	}
	list := func(query string) (got []string) {
		for _, v := range readDocument(s.do("GET", "/v1/steps?"+query, "").want(200).body).list() {
			got = append(got, v.text("task_name")+" "+v.text("answer_due_at"))
		}
		return got
	}
	want := "ask 2030-01-07T14:00:00.000000Z, must 2030-01-07T15:00:00.000000Z, late 2030-01-17T02:00:00.000000Z"
	if got := strings.Join(list("callable=People::*&sort=answer_due_at"), ", "); got != want {
		t.Errorf("by deadline: got %s; want %s", got, want)
	}
	if got := strings.Join(list("sort=answer_due_at&limit=2&offset=2"), ", "); got != "late 2030-01-17T02:00:00.000000Z, late " {
		t.Errorf("steps without a deadline come last: got %s", got)
	}
	if got := list("callable=People::*"); !strings.HasPrefix(got[0], "late") {
		t.Errorf("in the order of claims: got %s", got)
	}
	s.do("GET", "/v1/steps?sort=due", "").want(400)
	claim := s.do("POST", "/v1/steps/claim", `{"callables":["People::*"],"lease_seconds":60}`).want(200)
	if got := strings.Join(append(list("callable=People::*&sort=answer_due_at"), list("state=in_progress&sort=answer_due_at")...), ", "); got != want {
		t.Errorf("after a claim: got %s; want %s", got, want)
	}
	if got := s.do("POST", "/v1/steps/"+claim.text("0.step.step_uuid")+"/fail", fmt.Sprintf(`{"lease":%q,"error":{"message":"later"},"retry_after":3600}`,
		claim.text("0.lease"))).want(200).text("answer_due_at"); got != "2030-01-17T02:00:00.000000Z" {
		t.Errorf("a step that waits for its retry is due at %s", got)
	}
	says("late", "later (actor_failure), and waits for an answer until 17 Jan 2030 02:00 UTC, in 11 days; the clock is frozen")
	s.clock(`{"set":"2030-01-17T02:00:00Z"}`).want(200)
	says("must", "failed for good 9 days ago: nobody answered within 72h (nobody_answered); complete it with the answer, or reset it to wait again")
	if v := s.do("GET", "/v1/tasks/"+ids["ask"], ""); strings.Contains(string(v.body), "answer_due_at") {
		t.Errorf("a deadline of the past is shown: %s", v.body)
	}
	var due []string
	s.world.service().store.locked(func() {
		l := &s.world.service().store.events
		for n := l.first; n < l.end(); n++ {
			m := readDocument((&event{move: *l.move(n)}).appendJSON(nil))
			if at := m.text("answer_due_at"); at != "" {
				due = append(due, m.text("name")+" "+m.text("to_state")+" "+at)
			}
		}
	})
	want = "late enqueued 2030-01-17T02:00:00.000000Z, ask enqueued 2030-01-07T14:00:00.000000Z, must enqueued 2030-01-07T15:00:00.000000Z"
	if got := strings.Join(due, ", "); got != want {
		t.Errorf("the events of transitions have the deadlines %s; want %s", got, want)
	}
}
