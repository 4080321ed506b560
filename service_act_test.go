package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

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

// claim sends a claim and returns the steps it got.
func (s *testServer) claim(body string) []claimed {
	s.t.Helper()
	var got []claimed
	noError(s.t, json.Unmarshal(s.do("POST", "/v1/steps/claim", body).want(200).body, &got))
	return got
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

const twice = `{"max_attempts":2,"backoff":"none"}`

// claimTemplates holds the templates of the tests of claims.
var claimTemplates = []string{
	testTemplate("one", stepSpec{name: "a", callable: "Shop::Pack", retry: twice}),
	testTemplate("two", stepSpec{name: "a", callable: "Shop::Pack"},
		stepSpec{name: "b", callable: "Shop::Send", after: []string{"a"}}),
	testTemplate("pair", stepSpec{name: "a", callable: "Shop::Pack", retry: `{"max_attempts":1}`},
		stepSpec{name: "b", callable: "Shop::Send"}),
}

func newClaimServer(t *testing.T, o serviceTest) *testServer {
	t.Helper()
	if o.clock == nil {
		o.clock = newVirtualClock(testStart)
	}
	o.extra = append(o.extra, claimTemplates...)
	return newTestServer(t, o)
}

const (
	anyOne   = `{"callables":["*"],"worker_id":"w1"}`
	anyTen   = `{"callables":["*"],"limit":10}`
	createOn = `{"namespace":"t","name":%q,"context":{"n":7}}`
)

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

func (s *testServer) patch(c claimed, action string) {
	s.t.Helper()
	s.do("PATCH", "/v1/tasks/"+c.Task.TaskUUID+"/workflow_steps/"+c.Step.StepUUID, action).want(200)
}

// auditOf returns a step's audit in short, newest first.
func (s *testServer) auditOf(c claimed) string {
	s.t.Helper()
	a := s.do("GET", "/v1/tasks/"+c.Task.TaskUUID+"/workflow_steps/"+c.Step.StepUUID+"/audit", "").want(200)
	var list []auditEntry
	noError(s.t, json.Unmarshal(a.body, &list))
	words := make([]string, len(list))
	for i, e := range list {
		words[i] = fmt.Sprintf("%t %s %s", e.Success, e.ToState, e.Result.Metadata.WorkerID)
		if e.Action != "" {
			words[i] = e.Action + " " + e.ToState
		}
	}
	return strings.Join(words, ", ")
}

// auditEntry holds the members that auditOf reads.
type auditEntry struct {
	Success bool   `json:"success"`
	ToState string `json:"to_state"`
	Action  string `json:"action"`
	Result  struct {
		Metadata struct {
			WorkerID string `json:"worker_id"`
		} `json:"metadata"`
	} `json:"result"`
}

// TestRefusedActionsSayWhatAllowsThem acts on a complete step of a task that continues.
func TestRefusedActionsSayWhatAllowsThem(t *testing.T) {
	t.Parallel()
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: []string{
		testTemplate("x", stepSpec{name: "a", callable: "builtin:noop"}, stepSpec{name: "b", callable: "Outside"}),
	}})
	v := mustCreate(t, s, "x")
	settle(s)
	v = must(s.store.view(v.id))(t)
	for action, want := range map[stepAction]string{
		actionReset:    `step "a" is complete and cannot move to pending: only a step that failed for good can be reset`,
		actionFail:     `step "a" is complete and cannot move to error: only a step that is enqueued or in progress can be failed`,
		actionResolve:  `step "a" is complete and cannot move to resolved_manually: only an unfinished step can be resolved`,
		actionComplete: `step "a" is complete and cannot move to complete: only an unfinished or resolved step can be completed`,
		actionCancel:   `step "a" is complete and cannot move to cancelled: only an unfinished step can be cancelled`,
	} {
		err := s.operator.allowsLocked(v, 0, &stepRequest{action: action})
		if f, ok := errors.AsType[*failure](err); !ok || f.kind != invalidTransition || f.message != want {
			t.Errorf("%s: got %v; want %s", action, err, want)
		}
	}
}

// TestRepeatedActions acts on a step as one operator, and then once more or as another.
// Only an action that says the same, and left the step as it is, is answered as before,
// after a restart too. Other answers name who left it so, and when.
func TestRepeatedActions(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	const (
		resolve  = `{"action_type":"resolve_manually","reason":"r","resolved_by":"anna"}`
		complete = `{"action_type":"complete_manually","reason":"r","completed_by":"anna","completion_data":{"result":null}}`
		cancel   = `{"action_type":"cancel","reason":"r","cancelled_by":"anna"}`
		fail     = `{"action_type":"fail","reason":"r","failed_by":"anna","error":{"message":"no"}}`
		giveUp   = `{"action_type":"fail","reason":"r","failed_by":"anna","error":{"message":"no","retryable":false}}`
		reset    = `{"action_type":"reset_for_retry","reason":"r","reset_by":"anna"}`
	)
	by := func(who, action string) string { return strings.Replace(action, "anna", who, 1) }
	for _, row := range []struct {
		name    string
		before  []string
		action  string
		status  int
		message string
	}{
		{"resolved", []string{resolve}, resolve, 200, ""},
		{"resolved by another", []string{resolve}, by("bob", resolve), 409,
			"it is resolved_manually already; resolve_manually by anna at 2026-01-01T00:00:00.000000Z"},
		{"resolved for another reason", []string{resolve}, strings.Replace(resolve, `"r"`, `"s"`, 1), 409, "by anna at 20"},
		{"completed after all", []string{resolve}, complete, 400, "its task is complete; resolve_manually by anna at 20"},
		{"completed", []string{complete}, complete, 200, ""},
		{"completed by another", []string{complete}, by("bob", complete), 400, "; complete_manually by anna at 20"},
		{"completed with another result", []string{complete}, strings.Replace(complete, "null", "0", 1), 400, "by anna"},
		{"completed with metadata", []string{complete}, strings.Replace(complete, "null", `null,"metadata":{"a":1}`, 1),
			400, "by anna"},
		{"resolved after all", []string{complete}, resolve, 400, "by anna"},
		{"cancelled", []string{cancel}, cancel, 200, ""},
		{"cancelled by another", []string{cancel}, by("bob", cancel), 400, "; cancel by anna at 20"},
		{"failed", []string{fail}, fail, 200, ""},
		{"failed for good", []string{fail}, giveUp, 400,
			`step "a" is waiting_for_retry and cannot move to error: only a step that is enqueued or in progress can be failed; fail by anna at 20`},
		{"reset", []string{giveUp, reset}, reset, 200, ""},
		{"reset, but failed before that", []string{giveUp, reset, giveUp}, by("bob", giveUp), 400, "fail by anna"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := serviceTest{clock: newVirtualClock(testStart), dir: t.TempDir(), extra: claimTemplates}
			open := func() *testServer {
				svc := openTestService(t, o)
				return (&testServer{t: t, svc: svc}).with(newOrchestrationAPI(svc, nil))
			}
			s := open()
			var c claimed
			c.Task.TaskUUID = s.create(fmt.Sprintf(createOn, "one"))
			task := "/v1/tasks/" + c.Task.TaskUUID
			c.Step.StepUUID = s.do("GET", task, "").text("steps.0.workflow_step_uuid")
			for _, action := range row.before {
				s.patch(c, action)
			}
			for _, when := range []string{"at once", "after a restart", "from a snapshot"} {
				steps, audit := s.do("GET", task+"/workflow_steps", "").body, s.auditOf(c)
				a := s.do("PATCH", task+"/workflow_steps/"+c.Step.StepUUID, row.action)
				if a.want(row.status); row.status != 200 && !strings.Contains(a.text("error.message"), row.message) {
					t.Errorf("%s: got %s; want %q", when, a.body, row.message)
				}
				now := s.do("GET", task+"/workflow_steps", "").body
				if string(now) != string(steps) || s.auditOf(c) != audit {
					t.Errorf("%s: the action changed %s with the audit %s into %s with %s", when, steps, audit, now, s.auditOf(c))
				}
				if when == "after a restart" {
					noError(t, s.svc.store.snapshot())
				}
				closeTestService(t, s.svc)
				s = open()
			}
			closeTestService(t, s.svc)
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
			noError(t, s.svc.store.snapshot())
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

// TestLongLease extends a lease every ten seconds for a day. This writes little,
// and the lease survives a restart at any time.
func TestLongLease(t *testing.T) {
	t.Parallel()
	clock := newVirtualClock(testStart)
	o := serviceTest{clock: clock, dir: t.TempDir(), extra: claimTemplates, config: func(c *Config) { c.Store.Sync = "never" }}
	svc := openTestService(t, o)
	v := mustCreate(t, svc, "one")
	given := svc.engine.claim(t.Context(), &claimRequest{callables: []string{"*"}, limit: 1, lease: 30 * time.Second, worker: "w"})
	c := given.steps[0]
	extend := &leaseAnswer{verb: extendVerb, lease: 30 * time.Second}
	extend.setLease(c.token)
	for n := range 24 * 360 {
		clock.advance(10 * time.Second)
		if n%1000 == 0 { // at the moment when least is known of the lease
			clock.advance(19 * time.Second)
			closeTestService(t, svc)
			svc = openTestService(t, o)
		}
		q := &stepAnswer{leaseAnswer: *extend, step: c.attempt.stepID}
		if _, err := svc.outside.answer(t.Context(), q); err != nil {
			t.Fatalf("extension %d: %v", n, err)
		}
		if want := clock.now().add(30 * time.Second); q.until < want || n%1000 > 100 && q.until != want {
			t.Fatalf("extension %d: the lease ends %v; want %v", n, q.until.zoned(), want.zoned())
		}
	}
	v = settled(t, svc, v.id)
	if n := bytes.Count(v.log, []byte(`"kind":"extended"`)); n > 250 {
		t.Errorf("the task has %d records of extensions; want few", n)
	}
	clock.advance(30 * time.Second)
	if got := states(settled(t, svc, v.id)); got != "steps_in_process: enqueued" {
		t.Errorf("got %s after the lease was not extended", got)
	}
	closeTestService(t, svc)
}

// TestClaimOrder expects steps in the order of priority, then of the age of their
// tasks.
func TestClaimOrder(t *testing.T) {
	s := newClaimServer(t, serviceTest{})
	var ids []string
	for _, priority := range []int{0, 5, 0, -3, 5} {
		ids = append(ids, s.create(fmt.Sprintf(`{"namespace":"t","name":"pair","priority":%d}`, priority)))
	}
	var got []string
	for _, c := range append(s.claim(`{"callables":["*"],"limit":4}`), s.claim(anyTen)...) {
		got = append(got, fmt.Sprintf("%d%s", slices.Index(ids, c.Task.TaskUUID), c.Step.Name))
	}
	if want := "1a 1b 4a 4b 0a 0b 2a 2b 3a 3b"; strings.Join(got, " ") != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

// TestClaimPatterns claims steps by callable and namespace.
func TestClaimPatterns(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{
		`{"callables":["Shop::Pack"],"limit":9}`:                            1,
		`{"callables":["Shop::*"],"limit":9}`:                               2,
		`{"callables":["Shop::Send","Shop::Pack"],"limit":9}`:               2,
		`{"callables":["*"]}`:                                               1,
		`{"callables":["Shop::"],"limit":9}`:                                0,
		`{"callables":["builtin:*"],"limit":9}`:                             0,
		`{"callables":["*"],"namespaces":["other"],"limit":9}`:              0,
		`{"callables":["*"],"namespaces":["other","t"],"limit":9}`:          2,
		`{"callables":["*"],"namespaces":null,"limit":null,"worker_id":""}`: -422,
	} {
		t.Run(body, func(t *testing.T) {
			s := newClaimServer(t, serviceTest{})
			s.create(fmt.Sprintf(createOn, "pair"))
			if want < 0 {
				s.do("POST", "/v1/steps/claim", body).want(-want)
				return
			}
			if got := s.claim(body); len(got) != want {
				t.Errorf("claimed %d steps; want %d", len(got), want)
			}
		})
	}
}

// TestClaimInBlockedTask expects no steps from a blocked task until it is
// unblocked.
func TestClaimInBlockedTask(t *testing.T) {
	s := newClaimServer(t, serviceTest{})
	s.create(fmt.Sprintf(createOn, "pair"))
	a := s.claimOne(`{"callables":["Shop::Pack"]}`)
	s.answer(a, "fail", `,"error":{"message":"no","retryable":false}`).want(200)
	if got := s.state(a.Task.TaskUUID); got != "blocked_by_failures: error enqueued" {
		t.Fatal(got)
	}
	if got := s.do("GET", "/v1/steps", "").want(200); string(got.body) != "[]\n" {
		t.Errorf("listed %s", got.body)
	}
	got := make(chan []claimed)
	go func() { got <- s.claim(`{"callables":["Shop::Send"],"wait_seconds":60}`) }()
	s.awaitClaimers(1)
	s.patch(a, `{"action_type":"reset_for_retry","reason":"r","reset_by":"me"}`)
	b, ok := receiveWithin(got, patience)
	if !ok || len(b) != 1 || b[0].Step.Name != "b" {
		t.Errorf("claimed %+v once the task went on", b)
	}
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

// TestLateAtOnce sends the same late outcome several times at once and expects it
// in the audit once.
func TestLateAtOnce(t *testing.T) {
	t.Parallel()
	clock := newVirtualClock(testStart)
	s := newClaimServer(t, serviceTest{clock: clock})
	for range 20 {
		s.create(fmt.Sprintf(createOn, "one"))
		c := s.claimOne(anyOne)
		clock.advance(30 * time.Second)
		id, _ := parseUUID(c.Step.StepUUID)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				q := &leaseAnswer{verb: completeVerb, outcome: outcome{success: true}}
				q.setLease(c.Lease)
				if _, err := s.svc.outside.answer(t.Context(), &stepAnswer{leaseAnswer: *q, step: id}); kindOf(err) != conflict {
					t.Errorf("got %v; want a conflict", err)
				}
			})
		}
		wg.Wait()
		want := "true enqueued w1, false enqueued_as_error_for_orchestration w1"
		if got := s.auditOf(c); got != want {
			t.Fatalf("got the audit %q; want %q", got, want)
		}
		s.do("DELETE", "/v1/tasks/"+c.Task.TaskUUID, "").want(200)
	}
}

// awaitClaimers returns once n claimers wait.
func (s *testServer) awaitClaimers(n int) {
	s.t.Helper()
	eventually(s.t.(*testing.T), fmt.Sprintf("%d claimers to wait", n), func() bool {
		s.svc.store.mu.Lock()
		defer s.svc.store.mu.Unlock()
		return len(s.svc.engine.outside.claimers) == n
	})
}

// TestLongPoll checks that waiting claimers are served in turn while there are steps for them.
func TestLongPoll(t *testing.T) {
	s := newClaimServer(t, serviceTest{})
	got := make(chan int, 8)
	wait := func(n int, callable string) {
		before := len(s.claimers())
		go func() {
			if len(s.claim(fmt.Sprintf(`{"callables":[%q],"wait_seconds":60}`, callable))) == 1 {
				got <- n
			} else {
				got <- -n
			}
		}()
		s.awaitClaimers(before + 1)
	}
	next := func(want int) {
		t.Helper()
		if n, ok := receiveWithin(got, patience); !ok || n != want {
			t.Errorf("served %d; want %d", n, want)
		}
	}
	wait(1, "Nothing")
	wait(2, "Shop::Pack")
	wait(3, "Shop::*")
	wait(4, "Shop::Send")
	s.create(fmt.Sprintf(createOn, "one"))
	next(2)
	s.create(fmt.Sprintf(createOn, "pair"))
	first, second := <-got, <-got
	if first+second != 7 {
		t.Errorf("served %d and %d; want 3 and 4", first, second)
	}
	if left := s.claimers(); len(left) != 1 {
		t.Errorf("%d claimers wait; want the one without a matching step", len(left))
	}
	wait(5, "Nothing")
	s.svc.finish(context.Background())
	if n, m := <-got, <-got; n+m != -6 {
		t.Errorf("got %d and %d as the service stops; want both waits to end without a step", n, m)
	}
	s.do("POST", "/v1/steps/claim", anyOne).want(503)
}

func (s *testServer) claimers() []*claimer {
	s.svc.store.mu.Lock()
	defer s.svc.store.mu.Unlock()
	return slices.Clone(s.svc.engine.outside.claimers)
}

// TestLongPollEnds checks that a wait ends at its limit and when the client disconnects.
func TestLongPollEnds(t *testing.T) {
	slow(t)
	t.Parallel()
	s := newClaimServer(t, serviceTest{})
	if got := s.claim(`{"callables":["*"],"wait_seconds":1}`); len(got) != 0 {
		t.Errorf("claimed %+v", got)
	}
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan claimResult, 1)
	q := &claimRequest{callables: []string{"*"}, limit: 1, lease: time.Minute, wait: time.Hour, worker: "w"}
	go func() { done <- s.svc.engine.claim(ctx, q) }()
	s.awaitClaimers(1)
	leave()
	<-done
	s.awaitClaimers(0)
	id := s.create(fmt.Sprintf(createOn, "one"))
	if got := s.state(id); got != "steps_in_process: enqueued" {
		t.Errorf("a client that went away was given a step: %s", got)
	}
}

// TestUnclaim expects a step claimed by a client that disconnected to go to the
// next claimer, as the same attempt.
func TestUnclaim(t *testing.T) {
	s := newClaimServer(t, serviceTest{})
	id := s.create(fmt.Sprintf(createOn, "one"))
	ctx, leave := context.WithCancel(t.Context())
	leave()
	q := &claimRequest{callables: []string{"*"}, limit: 1, lease: time.Minute, worker: "w"}
	if got, err := s.svc.outside.claim(ctx, q); err == nil {
		t.Errorf("claimed %+v for nobody", got)
	}
	if got := s.state(id); got != "steps_in_process: enqueued" {
		t.Fatal(got)
	}
	c := s.claimOne(anyOne)
	if c.Step.Attempt != 1 {
		t.Errorf("claimed attempt %d; want 1", c.Step.Attempt)
	}
	if got := s.auditOf(c); got != "" {
		t.Errorf("got the audit %q; want none", got)
	}
}

// TestManyOutsideSteps claims, completes and lists 10,000 steps of one task.
func TestManyOutsideSteps(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	const n = 10_000
	steps := make([]stepSpec, n)
	for i := range steps {
		steps[i] = stepSpec{name: fmt.Sprintf("s%d", i), callable: "Outside"}
	}
	svc := newTestService(t, serviceTest{extra: []string{testTemplate("wide", steps...)}})
	v := mustCreate(t, svc, "wide")
	q := &claimRequest{callables: []string{"*"}, limit: maxClaims, lease: time.Minute, worker: "w"}
	done := 0
	for {
		got := must(svc.outside.claim(t.Context(), q))(t)
		if len(got) == 0 {
			break
		}
		for _, c := range got {
			a := &leaseAnswer{verb: completeVerb, outcome: outcome{success: true}}
			a.setLease(c.token)
			must(svc.outside.answer(t.Context(), &stepAnswer{leaseAnswer: *a, step: c.attempt.stepID}))(t)
			done++
		}
	}
	if got := settled(t, svc, v.id); done != n || got.state != taskComplete {
		t.Errorf("completed %d steps, and the task is %s", done, got.state)
	}
	wantNothingOutside(t, svc)
}

// wantNothingOutside fails the test if the index of outside steps is not empty.
func wantNothingOutside(t *testing.T, s *service) {
	t.Helper()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	w := &s.engine.outside
	for what, n := range map[string]int{
		"waiting steps": len(w.waiting.steps), "waiting queues": len(w.waiting.queues), "claimed steps": len(w.claimed.steps),
		"claimed queues": len(w.claimed.queues), "leases": len(w.leases.held.items) + len(w.leases.byID), "claimers": len(w.claimers),
	} {
		if n != 0 {
			t.Errorf("%d %s are left", n, what)
		}
	}
}

// TestClaimStress runs many actors on many tasks of two sequential steps and
// expects every step to be done once.
func TestClaimStress(t *testing.T) {
	slow(t)
	const actors, tasks = 32, 2000
	before := runtime.NumGoroutine()
	svc := openTestService(t, serviceTest{extra: claimTemplates})
	var mu sync.Mutex
	done := map[uuid]int{}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for n := range actors {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 0))
			for ctx.Err() == nil {
				q := &claimRequest{callables: []string{"Shop::*"}, limit: 1 + r.IntN(4), lease: time.Minute, wait: time.Minute, worker: "w"}
				got, err := svc.outside.claim(ctx, q)
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				for _, c := range got {
					a := &leaseAnswer{verb: completeVerb, hash: hashLease(c.token), outcome: outcome{success: true}}
					if _, err := svc.outside.answer(context.Background(), &stepAnswer{leaseAnswer: *a, step: c.attempt.stepID}); err != nil {
						t.Error(err)
					}
					mu.Lock()
					done[c.attempt.stepID]++
					if len(done) == 2*tasks {
						stop()
					}
					mu.Unlock()
				}
			}
		})
	}
	for range tasks {
		mustCreate(t, svc, "two")
	}
	wg.Wait()
	stop()
	for id, n := range done {
		if n != 1 {
			t.Errorf("step %s was done %d times", id, n)
		}
	}
	if got := svc.store.index.states[taskComplete].count(); got != tasks {
		t.Errorf("%d tasks are complete; want %d", got, tasks)
	}
	wantNothingOutside(t, svc)
	closeTestService(t, svc)
	svc.clock.(*realClock).stop()
	eventually(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
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

// TestAnswersOfDroppedTasks expects the last answer of a task to be accepted even
// if retention drops the task before the reply is written.
func TestAnswersOfDroppedTasks(t *testing.T) {
	t.Parallel()
	svc := newTestService(t, serviceTest{config: retaining(1), extra: claimTemplates, dir: t.TempDir()})
	var given []claimedStep
	for range 64 {
		mustCreate(t, svc, "one")
		q := &claimRequest{callables: []string{"*"}, limit: 1, lease: time.Minute, worker: "w"}
		given = append(given, svc.engine.claim(t.Context(), q).steps...)
	}
	var wg sync.WaitGroup
	for _, c := range given {
		wg.Go(func() {
			q := &leaseAnswer{verb: completeVerb, outcome: outcome{success: true}}
			q.setLease(c.token)
			v, err := svc.outside.answer(t.Context(), &stepAnswer{leaseAnswer: *q, step: c.attempt.stepID})
			if err != nil || v.CurrentState != "complete" {
				t.Errorf("got %v; want the step as it was then", err)
			}
		})
	}
	wg.Wait()
}

// TestUnclaimOfADroppedTask undoes a claim of two steps after the task of one was
// dropped.
func TestUnclaimOfADroppedTask(t *testing.T) {
	s := newClaimServer(t, serviceTest{config: retaining(1), extra: storyTemplates})
	gone, left := s.create(fmt.Sprintf(createOn, "one")), s.create(fmt.Sprintf(createOn, "one"))
	q := &claimRequest{callables: []string{"*"}, limit: 2, lease: time.Minute, worker: "w"}
	got := s.svc.engine.claim(context.Background(), q)
	if len(got.steps) != 2 {
		t.Fatalf("claimed %d steps; want 2", len(got.steps))
	}
	s.do("DELETE", "/v1/tasks/"+gone, "").want(200)
	mustCreate(t, s.svc, "noop")
	s.do("GET", "/v1/tasks/"+gone, "").want(404)
	s.svc.engine.unclaim(got.steps)
	if got := s.state(left); got != "steps_in_process: enqueued" {
		t.Errorf("the other task is %s", got)
	}
}

// mustAdjust adjusts a step, and returns the task once it has settled.
func mustAdjust(t *testing.T, s *service, v *task, step int, by adjustment) *task {
	t.Helper()
	must2(s.operator.adjust(t.Context(), v.id, v.stepID(step), &by, taskActor{subject: "ops"}))(t)
	return settled(t, s, v.id)
}

// TestAdjustedLimit changes the limit of steps in every state: a failed one is retried, and the
// count of its attempts continues.
func TestAdjustedLimit(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, config: func(c *Config) { c.Engine.Jitter = false }, extra: []string{
		testTemplate("fails", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`, retry: `{"max_attempts":1,"backoff_base_ms":1000}`}),
		testTemplate("once", stepSpec{name: "a", callable: "builtin:fail", retry: `{"retryable":false}`}),
		testTemplate("flaky", stepSpec{name: "a", callable: "builtin:flaky", config: `{"failures":1}`, retry: `{"max_attempts":1}`},
			stepSpec{name: "b", callable: "builtin:noop", after: []string{"a"}}),
	}})
	v := mustCreate(t, s, "fails")
	wantStates(t, v, "blocked_by_failures: error")
	v = mustAdjust(t, s, v, 0, adjustment{maxAttempts: 1})
	wantStates(t, v, "blocked_by_failures: error")
	v = mustAdjust(t, s, v, 0, adjustment{maxAttempts: 3})
	wantStates(t, v, "waiting_for_retry: waiting_for_retry")
	if got := v.steps[0]; got.attempts != 2 || got.maxAttempts != 3 {
		t.Errorf("got %d of %d attempts; want 2 of 3", got.attempts, got.maxAttempts)
	}
	_, _, err := s.operator.adjust(t.Context(), v.id, v.stepID(0), &adjustment{maxAttempts: 2}, taskActor{})
	if kindOf(err) != invalidFields || !strings.Contains(err.Error(), "at least 3") {
		t.Errorf("taking away the attempt that it waits for: got %v; want at least 3", err)
	}
	clock.advance(time.Minute)
	wantStates(t, settled(t, s, v.id), "blocked_by_failures: error")

	v = mustAdjust(t, s, mustCreate(t, s, "once"), 0, adjustment{maxAttempts: 9})
	wantStates(t, v, "blocked_by_failures: error") // its template lets nobody retry it
	v = mustAdjust(t, s, mustCreate(t, s, "flaky"), 0, adjustment{maxAttempts: 2})
	wantStates(t, v, "complete: complete complete")
	if v.steps[0].attempts != 2 {
		t.Errorf("got %d attempts; want 2", v.steps[0].attempts)
	}
}

// TestAdjustedInputs sets the inputs of a step and reads them after a restart,
// with and without a snapshot.
func TestAdjustedInputs(t *testing.T) {
	t.Parallel()
	clock := newVirtualClock(testStart)
	o := serviceTest{dir: t.TempDir(), clock: clock, extra: []string{
		testTemplate("echo", stepSpec{name: "a", callable: "Outside"},
			stepSpec{name: "b", callable: "builtin:echo", after: []string{"a"}})}}
	s := openTestService(t, o)
	v := mustCreate(t, s, "echo", `"context":{"n":1}`)
	mustAdjust(t, s, v, 1, adjustment{inputs: []byte(`{"n":2.50}`)})
	mustAdjust(t, s, v, 1, adjustment{maxAttempts: 5})
	for _, snapshot := range []bool{false, true} {
		if snapshot {
			noError(t, s.store.snapshot())
		}
		s = reopenTestService(t, s, o)
		got := settled(t, s, v.id)
		if string(got.inputsFor(1)) != `{"n":2.50}` || string(got.inputsFor(0)) != `{"n":1}` || got.steps[1].maxAttempts != 5 {
			t.Errorf("snapshot %v: got inputs %s and %s, limit %d", snapshot, got.inputsFor(0), got.inputsFor(1), got.steps[1].maxAttempts)
		}
	}
	v = mustAct(t, s, v, 0, completeAction)
	v = settled(t, s, v.id)
	wantStates(t, v, "complete: complete complete")
	if got := string(v.steps[1].last.result); got != `{"n":2.50}` {
		t.Errorf("got result %s; want the inputs that were set", got)
	}
	closeTestService(t, s)
}

// TestAdjustmentsInHistory expects adjustments in the audit of the step, and the
// move that one causes in the transitions.
func TestAdjustmentsInHistory(t *testing.T) {
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: []string{
		testTemplate("fails", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`, retry: `{"max_attempts":1,"backoff_base_ms":1000}`})}})
	v := mustCreate(t, s, "fails")
	v = mustAdjust(t, s, v, 0, adjustment{maxAttempts: 2, inputs: []byte(`{}`)})
	audit, err := s.history.audit(v.id, v.stepID(0), nil)
	if err != nil || len(audit) != 3 {
		t.Fatalf("got %+v, %v; want two attempts and an adjustment", audit, err)
	}
	a := audit[1]
	if a.Action != "adjusted" || a.FromState != "error" || a.ToState != "pending" || a.RetryLimit != 2 ||
		string(a.Inputs) != "{}" || a.Subject != "ops" || a.WorkerUUID != nil {
		t.Errorf("got %+v; want what was adjusted, by whom", a)
	}
	h := must(s.history.transitions(v.id, nil))(t)
	moved := slices.ContainsFunc(indexesOf(h.moves), func(n int) bool {
		m := h.view(n)
		return m.StepName != nil && m.FromState != nil && *m.FromState == "error" && m.ToState == "pending" && m.Attempt == 1
	})
	if !moved {
		t.Errorf("got %+v; want a move from error to pending", h.moves)
	}
}

// TestAdjustmentRecords reads records back and expects those without effect or
// with impossible values to be refused.
func TestAdjustmentRecords(t *testing.T) {
	for line, ok := range map[string]bool{
		`{"seq":1,"kind":"adjusted","step":0,"max_attempts":3}`:               true,
		`{"seq":1,"kind":"adjusted","step":0,"inputs":{}}`:                    true,
		`{"seq":1,"kind":"adjusted","step":0,"subject":"a","inputs":{"a":1}}`: true,
		`{"seq":1,"kind":"adjusted","step":0}`:                                false,
		`{"seq":1,"kind":"adjusted","max_attempts":3}`:                        false,
		`{"seq":1,"kind":"adjusted","step":0,"max_attempts":-3}`:              false,
		`{"seq":1,"kind":"adjusted","step":0,"inputs":[]}`:                    false,
	} {
		r, err := decodeRecord([]byte(line))
		if (err == nil) != ok {
			t.Errorf("%s: got error %v; want one: %v", line, err, !ok)
		}
		if err != nil {
			continue
		}
		again, err := decodeRecord(append(appendRecordMembers([]byte{'{'}, r), '}'))
		if err != nil || again.adjustment.text() != r.adjustment.text() {
			t.Errorf("%s: got %+v, %v; want the same again", line, again, err)
		}
	}
}

// adjustmentText returns an adjustment as a comparable text.
type adjustmentText struct {
	maxAttempts int
	inputs      string
}

func (a *adjustment) text() adjustmentText { return adjustmentText{a.maxAttempts, string(a.inputs)} }

// TestSubjectsSurviveARestart reads subjects back from the journal.
func TestSubjectsSurviveARestart(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), templates: "testdata/templates"}
	s := openTestService(t, o)
	q := &taskRequest{namespace: "t", name: "manual", subject: strings.Repeat("ü", 300)}
	made := must(s.createTask(t.Context(), q, true))(t)
	if want := strings.Repeat("ü", maxNameLength); made.by.initiator != want {
		t.Errorf("got initiator %q; want the subject, cut to %d characters", made.by.initiator, maxNameLength)
	}
	act := &stepRequest{action: actionResolve, by: "bob", who: taskActor{subject: "ann \"\n"}, reason: "fine"}
	must2(s.operator.act(t.Context(), made.id, made.stepID(0), act))(t)
	gone := must(s.createTask(t.Context(), q, true))(t)
	must(s.operator.cancelTask(t.Context(), gone.id, taskActor{subject: "carl"}))(t)
	closeTestService(t, s)
	journal := string(readFile(t, filepath.Join(o.dir, journalName)))
	if !strings.Contains(journal, `"kind":"cancelled","subject":"carl"`) {
		t.Errorf("got no subject of the cancellation in %s", journal)
	}
	s = newTestService(t, o)
	audit, err := s.history.audit(made.id, made.stepID(0), nil)
	if err != nil || len(audit) != 1 || audit[0].Subject != act.who.subject || audit[0].ActedBy != "bob" {
		t.Errorf("got %+v, %v; want one entry of subject %q", audit, err, act.who.subject)
	}
}

// outcomes writes one outcome for each claimed step; more holds the members besides step and lease.
func outcomes(given []claimed, more string) string {
	each := make([]string, len(given))
	for i, c := range given {
		each[i] = fmt.Sprintf(`{"step_uuid":%q,"lease":%q,%s}`, c.Step.StepUUID, c.Lease, more)
	}
	return "[" + strings.Join(each, ",") + "]"
}

// TestOutcomesAtOnce completes and fails the steps of a hundred tasks by one request each, which
// takes one sync, and checks that each task is as if its step were answered for alone.
func TestOutcomesAtOnce(t *testing.T) {
	t.Parallel()
	s := newClaimServer(t, serviceTest{dir: t.TempDir()})
	for range maxClaims {
		mustCreate(t, s.svc, "one")
	}
	given := s.claim(`{"callables":["*"],"limit":100}`)
	alone, half := given[0], given[1:50]
	s.answer(alone, "complete", `,"result":{"n":1}`).want(200)
	syncs := func(f func()) uint64 {
		before := s.svc.store.journal.status().syncs
		f()
		return s.svc.store.journal.status().syncs - before
	}
	took := syncs(func() {
		a := s.do("POST", "/v1/steps/complete", `{"steps":`+outcomes(half, `"result":{"n":1}`)+`}`).want(207)
		for i, c := range half {
			if a.text(fmt.Sprint(i, ".status")) != "200" || a.text(fmt.Sprint(i, ".step_uuid")) != c.Step.StepUUID {
				t.Fatalf("outcome %d: got %s", i, a.body)
			}
		}
	})
	if took > 1 {
		t.Errorf("got %d syncs for a batch; want 1", took)
	}
	want := s.state(alone.Task.TaskUUID)
	for _, c := range half {
		if got := s.state(c.Task.TaskUUID); got != want {
			t.Errorf("got %s; want %s as alone", got, want)
		}
	}
	s.do("POST", "/v1/steps/fail", `{"steps":`+outcomes(given[50:], `"error":{"message":"no","retryable":false}`)+`}`).want(207)
	for _, c := range given[50:] {
		if got := s.state(c.Task.TaskUUID); got != "blocked_by_failures: error" {
			t.Errorf("got %s; want it failed", got)
		}
	}
	if got := s.do("POST", "/v1/steps/complete", `{"steps":`+outcomes(slices.Concat(given, given[:1]), `"result":0`)+`}`).want(422); !strings.Contains(
		got.text("error.message"), "at most 100 outcomes") {
		t.Errorf("got %s", got.body)
	}
}

// TestClaimWithOutcomes works through chains of steps with one request for each batch, which takes
// one sync: it has the outcomes of the last batch, and gets the steps that these made ready.
func TestClaimWithOutcomes(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, serviceTest{dir: t.TempDir(), extra: []string{benchTemplate("chain", "Outside", [][]int{{}, {0}, {1}})}})
	for range 5 {
		s.create(`{"namespace":"bench","name":"chain"}`)
	}
	given, before := s.claim(`{"callables":["*"],"limit":5}`), s.svc.store.journal.status().syncs
	for len(given) > 0 {
		a := s.do("POST", "/v1/steps/claim", `{"callables":["*"],"limit":5,"complete":`+outcomes(given, `"result":1`)+`}`).want(207)
		given = nil
		noError(t, json.Unmarshal(objectMember(a.body, "steps"), &given))
	}
	if took := s.svc.store.journal.status().syncs - before; took > 3 {
		t.Errorf("got %d syncs for three batches", took)
	}
	if a := s.do("GET", "/v1/tasks?status=complete", ""); a.text("pagination.total_count") != "5" {
		t.Errorf("got %s; want 5 complete tasks", a.body)
	}
}

// TestOutcomesOutliveTheClaim sends outcomes with a claim that is refused while the service shuts
// down: they count, and get 200 when they are sent again.
func TestOutcomesOutliveTheClaim(t *testing.T) {
	t.Parallel()
	s := newClaimServer(t, serviceTest{})
	id := mustCreate(t, s.svc, "one").id.String()
	c := s.claimOne(`{"callables":["*"]}`)
	s.svc.outside.draining.Store(true)
	body := outcomes([]claimed{c}, `"result":1`)
	s.do("POST", "/v1/steps/claim", `{"callables":["*"],"complete":`+body+`}`).want(503)
	if got := s.state(id); got != "complete: complete" {
		t.Errorf("got %s; want it complete", got)
	}
	if a := s.do("POST", "/v1/steps/complete", `{"steps":`+body+`}`).want(207); a.text("0.status") != "200" {
		t.Errorf("got %s; want the same outcome taken", a.body)
	}
}
