package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

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
					noError(t, s.svc.store.compact())
				}
				closeTestService(t, s.svc)
				s = open()
			}
			closeTestService(t, s.svc)
		})
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

// FuzzRequests reads any JSON as a creation payload and as a step action. Both
// accept it or say why not, and an accepted one can be journaled and read back.
func FuzzRequests(f *testing.F) {
	for _, body := range []string{
		`{"name":"n","namespace":null,"context":{"a":[1.50]},"tags":["x","\u00e9"],"priority":1e400}`,
		`{"name":"n","priority":-12345678901234567890,"correlation_id":"0198c0de-0000-7000-8000-000000000001",` +
			`"requested_at":"2026-01-02T03:04:05.123456789","options":{},"idempotency_key":"k","version":""}`,
		`{"action_type":"reset_for_retry","reason":"r","reset_by":"b"}`,
		`{"action_type":"complete_manually","completion_data":{"result":null,"metadata":{"a":1}},"reason":"r","completed_by":"b"}`,
		`{"action_type":"fail","error":{"message":"m","error_type":null,"retryable":false},"reason":"r","failed_by":"b"}`,
		`{"action_type":"resolve_manually","reason":5}`, `[]`, `null`, ` {"name" : "n" } `,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if checkJSON(body) != nil {
			return
		}
		if q, err := parseTaskRequest(body); acceptable(t, err) {
			checkCreationRoundTrip(t, q)
		}
		if q, err := parseStepRequest(body); acceptable(t, err) {
			checkActionRoundTrip(t, q)
		}
	})
}

// acceptable reports whether a body was accepted. A refusal must say why.
func acceptable(t *testing.T, err error) bool {
	t.Helper()
	if err == nil {
		return true
	}
	f, ok := err.(*failure)
	if !ok || f.kind != badRequest && (f.kind != invalidFields || len(f.details) == 0) || !utf8.ValidString(f.message) {
		t.Errorf("refused by %#v", err)
	}
	return false
}

func checkCreationRoundTrip(t *testing.T, q *taskRequest) {
	t.Helper()
	by := new(q.creation)
	by.template, by.initiator = "h", cmp.Or(q.initiator, defaultInitiator)
	by.source, by.reason = cmp.Or(q.source, defaultSource), cmp.Or(q.reason, defaultReason)
	if by.context == nil {
		by.context = []byte("{}")
	}
	if q.name == "" || q.namespace == "" || int(int32(q.priority)) != q.priority {
		t.Errorf("accepted %+v", q)
	}
	checkRoundTrip(t, &record{kind: recCreated, step: -1, created: by})
}

func checkActionRoundTrip(t *testing.T, q *stepRequest) {
	t.Helper()
	r := &record{kind: recOperator, action: q.action, by: q.by, reason: q.reason}
	switch q.action {
	case noAction:
		t.Errorf("accepted %+v", q)
	case actionComplete:
		r.end = &ending{success: true, result: q.result, metadata: q.completionMetadata()}
	case actionFail:
		r.end = &ending{err: q.err.appendJSON(nil)}
	}
	checkRoundTrip(t, r)
}

// checkRoundTrip writes a record, reads it and writes it again.
func checkRoundTrip(t *testing.T, r *record) {
	t.Helper()
	text := append(appendRecordMembers([]byte{'{'}, r), '}')
	if err := checkJSON(text); err != nil || !json.Valid(text) {
		t.Fatalf("%s is not JSON: %v", text, err)
	}
	again, err := decodeRecord(text)
	if err != nil {
		t.Fatalf("%s is refused: %v", text, err)
	}
	if got := append(appendRecordMembers([]byte{'{'}, again), '}'); string(got) != string(text) {
		t.Errorf("got %s; want %s", got, text)
	}
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

// TestLongLease extends a lease every ten seconds for a day. This writes little,
// and the lease survives a restart at any time.
func TestLongLease(t *testing.T) {
	t.Parallel()
	clock := newVirtualClock(testStart)
	o := serviceTest{clock: clock, dir: t.TempDir(), extra: claimTemplates, config: func(c *Config) { c.Store.Sync = "never" }}
	svc := openTestService(t, o)
	v := mustCreate(t, svc, "one")
	given := svc.engine.outside.claim(t.Context(), &claimRequest{callables: []string{"*"}, limit: 1, lease: 30 * time.Second, worker: "w"})
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

// wantNothingOutside fails the test if the index of outside steps is not empty.
func wantNothingOutside(t *testing.T, s *service) {
	t.Helper()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	w, q := &s.engine.outside, &s.engine.leases
	for what, n := range map[string]int{
		"waiting steps": len(w.waiting.steps), "waiting queues": len(w.waiting.queues), "claimed steps": len(q.claimed.steps),
		"claimed queues": len(q.claimed.queues), "leases": len(q.held.items) + len(q.byID), "claimers": len(w.claimers),
	} {
		if n != 0 {
			t.Errorf("%d %s are left", n, what)
		}
	}
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
		given = append(given, svc.engine.outside.claim(t.Context(), q).steps...)
	}
	var wg sync.WaitGroup
	for _, c := range given {
		wg.Go(func() {
			q := &leaseAnswer{verb: completeVerb, outcome: outcome{success: true}}
			q.setLease(c.token)
			v, err := svc.outside.answer(t.Context(), &stepAnswer{leaseAnswer: *q, step: c.attempt.stepID})
			if err != nil || v.step.state != stepComplete {
				t.Errorf("got %v; want the step as it was then", err)
			}
		})
	}
	wg.Wait()
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

// TestStepsForPeople lists what waits for people, with what it is about for callers who may read contexts.
func TestStepsForPeople(t *testing.T) {
	spec := strings.Replace(testTemplate("x", stepSpec{name: "ask", callable: "people.ask"}, stepSpec{name: "weigh", callable: "scales.weigh"}),
		`"steps":[{`, `"search":["order_id"],"steps":[{"result_schema":{"required":["approved"]},`, 1)
	s := newFixtureServer(t, serviceTest{extra: []string{spec}, config: func(c *Config) {
		c.Console.People = []string{"people.*"}
		a := &c.Orchestration.Web.Auth
		a.Enabled, a.APIKeysEnabled, a.JWTPublicKey = true, true, publicPEM(t, authKeys().rsa)
		a.APIKeys = []apiKeyConfig{
			{Key: "the-key-of-one-who-may", Permissions: []string{"tasks:create", "tasks:context_read", "steps:read"}, Description: "anna"},
			{Key: "the-key-of-one-who-may-not", Permissions: []string{"steps:read"}, Description: "bert"},
		}
	}})
	mustCreate(t, s.world.service(), "x", `"context":{"order_id":"ORD-1"}`)
	settle(s.world.service())
	for key, about := range map[string]string{"the-key-of-one-who-may": "map[order_id:ORD-1]", "the-key-of-one-who-may-not": "<nil>"} {
		people := s.as(key, "GET", "/v1/steps?for_person=true").want(200)
		for member, want := range map[string]string{
			"#": "1", "0.name": "ask", "0.for_person": "true", "0.about": about, "0.result_schema": "map[required:[approved]]",
		} {
			if got := people.text(member); got != want {
				t.Errorf("%s: %s: got %s; want %s", key, member, got, want)
			}
		}
		if all := s.as(key, "GET", "/v1/steps").want(200); all.text("#") != "2" || all.text("1.for_person") != "false" || all.text("1.result_schema") != "<nil>" {
			t.Errorf("%s: all: got %s", key, all.body)
		}
	}
}
