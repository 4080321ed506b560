package main

// Every cause that a step can have, compared with the state of the task.

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// explainCase is a task with something to explain.
type explainCase struct {
	name  string
	steps []stepSpec
	do    func(t *testing.T, s *service, v *task)
	want  string // name, cause and part of the message of each unfinished step
	task  string // part of the task's
}

func (c *explainCase) start(t *testing.T) (*service, *task) {
	s := newTestService(t, serviceTest{
		clock: newVirtualClock(testStart), extra: []string{testTemplate("x", c.steps...)},
		config: func(c *Config) { c.Worker.Concurrency, c.Engine.Jitter = 1, false },
	})
	if c.name == "starting" { // the scheduler does not come to it
		s.store.mu.Lock()
		s.engine.stopping = true
		s.store.mu.Unlock()
	}
	v := mustCreate(t, s, "x")
	settle(s)
	if c.do != nil {
		c.do(t, s, v)
	}
	return s, v
}

func explainCases() []explainCase {
	one := func(callable, config, retry string) stepSpec {
		return stepSpec{name: "a", callable: callable, config: config, retry: retry}
	}
	after := stepSpec{name: "b", callable: "builtin:noop", after: []string{"a"}}
	sleep := stepSpec{name: "c", callable: "builtin:sleep", config: `{"duration_ms":60000}`, timeout: 90}
	outside := stepSpec{name: "d", callable: "Outside"}
	good := `{"backoff":"linear","backoff_base_ms":5000,"max_attempts":5}`
	a, decision := one("builtin:noop", "", ""), stepSpec{name: "d", kind: stepDecision, callable: "Outside"}
	other := stepSpec{name: "e", kind: stepDecision, callable: "Outside"}
	inner := stepSpec{name: "c", kind: stepDecision, callable: "Outside", after: []string{"d"}}
	leaf := stepSpec{name: "b", callable: "Outside", after: []string{"c"}}
	end := stepSpec{name: "z", kind: stepDeferredConvergence, callable: "Outside", after: []string{"a", "b"}}
	open := []stepSpec{a, decision, {name: "b", callable: "Outside", after: []string{"d"}}, end}
	return []explainCase{
		{"finished", []stepSpec{one("builtin:noop", "", ""), after}, nil, "", "the task is complete"},
		{"running", []stepSpec{sleep}, nil,
			"c running has run for less than 1 s in builtin:sleep, on attempt 1 of 3, which times out in 90 s",
			`step "c" has run`},
		{"retry", []stepSpec{one("builtin:fail", `{"retryable":true}`, good), after}, nil,
			"a retry_scheduled failed just now, on attempt 1 of 5: the step fails on purpose (builtin_fail)|b dependencies waits for step \"a\"", `step "a" failed just now`},
		{"failed", []stepSpec{one("builtin:fail", `{"retryable":false,"error_type":"Broken","message":"no paper"}`, ""), after, outside}, nil,
			"a failed failed for good just now, on attempt 1 of 3: no paper (Broken); fix what failed, then reset it|b dependency_failed needs step \"a\", which failed|" +
				"d task_stopped cannot start while the task is blocked_by_failures, because step \"a\" failed", `step "a" failed for good just now`},
		{"cancelled", []stepSpec{one("Outside", "", ""), after, outside}, func(t *testing.T, s *service, v *task) {
			mustAct(t, s, v, 0, stepRequest{action: actionCancel})
		}, "b dependency_cancelled needs step \"a\", which was cancelled just now; resolve|d task_stopped because step \"a\", which others need, was",
			`step "b" needs step "a", which was cancelled just now; resolve, complete or cancel it`},
		{"outside", []stepSpec{outside}, nil, "d outside_actor has waited for an outside actor for less than 1 min, because callable \"Outside\" has no handler; map it with --handler", `step "d" has waited for an outside actor`},
		{"claimed", []stepSpec{outside}, func(t *testing.T, s *service, v *task) { mustClaim(t, s) },
			"d claimed was claimed just now by w, on attempt 1 of 3; the clock is frozen: nothing comes due until it is advanced by 60 s", `step "d" was claimed`},
		{"claim given back", []stepSpec{outside}, func(t *testing.T, s *service, v *task) {
			s.engine.outside.unclaim(mustClaim(t, s))
		}, "d outside_actor or let an actor claim it", `step "d" has waited`},
		{"undecided", open, nil,
			"d outside_actor has waited for an outside actor|z decision waits for what step \"d\" may create", ""},
		{"undecided in a decision", []stepSpec{a, decision, inner, leaf, end}, nil,
			"d outside_actor has waited for an outside actor|z decision waits for what step \"d\" may create", ""},
		{"undecided by two", []stepSpec{a, decision, other, {name: "b", callable: "Outside", after: []string{"d", "e"}}, end}, nil,
			"d outside_actor has waited for an outside actor|e outside_actor has waited for an outside actor|z decision what steps \"d\", \"e\" may create", ""},
		{"decided", open, func(t *testing.T, s *service, v *task) {
			mustAct(t, s, v, 1, stepRequest{action: actionComplete, result: []byte(createSteps("b"))})
		}, "z dependencies waits for step \"b\"|b outside_actor has waited for an outside actor", ""},
		{"decision in error", open, func(t *testing.T, s *service, v *task) { mustAct(t, s, v, 1, failAction) },
			"d failed on attempt 1|z dependency_failed needs a decision by step \"d\", which failed", "step \"d\" failed for good"},
		{"decision cancelled", open, func(t *testing.T, s *service, v *task) {
			mustAct(t, s, v, 1, stepRequest{action: actionCancel})
		}, "z outside_actor has waited for an outside actor", ""},
		{"branch cancelled", open, func(t *testing.T, s *service, v *task) {
			v = mustAct(t, s, v, 1, stepRequest{action: actionComplete, result: []byte(createSteps("b"))})
			mustAct(t, s, v, 3, stepRequest{action: actionCancel})
		}, "z dependency_cancelled needs step \"b\", which was cancelled", `step "z" needs step "b", which was cancelled`},
		{"undecided batch", []stepSpec{a, {name: "d", kind: stepBatchable, callable: "Outside"},
			{name: "b", kind: stepBatchWorker, callable: "Outside", after: []string{"d"}}, end}, nil,
			"d outside_actor has waited for an outside actor|z decision waits for what step \"d\" may create", ""},
		{"slot", []stepSpec{sleep, one("builtin:noop", "", "")}, nil, "c running on attempt 1|a slot all 1 for builtins and programs are taken", ""},
		{"retry of a blocked task", []stepSpec{one("builtin:fail", `{"retryable":true}`, good),
			{name: "x", callable: "builtin:fail", config: `{"retryable":false}`}}, nil,
			"a retry_scheduled is not retried while the task is blocked_by_failures|x failed for good", ""},
		{"task in error", []stepSpec{one("builtin:fail", `{"retryable":true}`, good), outside}, func(t *testing.T, s *service, v *task) {
			goStale(t, s, v.id)
		}, "a retry_scheduled is not retried while the task is error|d task_stopped cannot start while the task is error", "to get the task going again"},
		{"cancelled task", []stepSpec{outside}, func(t *testing.T, s *service, v *task) {
			must(s.operator.cancelTask(t.Context(), v.id, taskActor{}))(t)
		}, "", "the task is cancelled"},
		{"cut off", []stepSpec{sleep}, func(_ *testing.T, s *service, v *task) {
			s.store.mu.Lock()
			defer s.store.mu.Unlock()
			s.engine.releaseLocked(s.engine.work.running[runKey{v.id, 0}]) // as when the engine gives up
		}, "c cut_off was cut off on attempt 1 of 3", ""},
		{"starting", []stepSpec{one("builtin:noop", "", "")}, nil, "a starting is ready and about to start", ""},
	}
}

func TestExplainCauses(t *testing.T) {
	t.Parallel()
	for _, tt := range explainCases() {
		t.Run(tt.name, func(t *testing.T) {
			s, v := tt.start(t)
			x := must(s.engine.explain(v.id, nil, true))(t)
			checkExplanation(t, s, x)
			if !strings.Contains(x.Message, tt.task) {
				t.Errorf("got %q; want %q", x.Message, tt.task)
			}
			var want []string
			if tt.want != "" {
				want = strings.FieldsFunc(tt.want, func(r rune) bool { return r == '|' })
			}
			if len(x.Steps) != len(want) {
				t.Fatalf("got %+v; want %q", x.Steps, want)
			}
			for i, w := range want {
				e := x.Steps[i]
				words := strings.SplitN(w, " ", 3)
				if e.Name != words[0] || string(e.Cause) != words[1] || !strings.Contains(e.Message, words[2]) {
					t.Errorf("got %s %s %s; want %s", e.Name, e.Cause, e.Message, w)
				}
			}
		})
	}
}

// needOperator are the causes that only a person or an outside actor can end.
var needOperator = []stepCause{causeFailed, causeClaimed, causeCancelled, causeOutside}

// TestOfferedActionsWork requests every action that an explanation offers, each with a
// fresh task: it is accepted, and ends the cause.
func TestOfferedActionsWork(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	tried := map[stepCause]int{}
	for _, tt := range explainCases() {
		t.Run(tt.name, func(t *testing.T) {
			s, v := tt.start(t)
			for _, e := range must(s.engine.explain(v.id, nil, true))(t).Steps {
				if len(e.Actions) == 0 && slices.Contains(needOperator, e.Cause) {
					t.Errorf("%s, %s: got no action; want some", e.Name, e.Cause)
				}
				for _, action := range e.Actions {
					tried[e.Cause]++
					tryOffered(t, &tt, e, action)
				}
			}
		})
	}
	for _, cause := range append([]stepCause{causeRetry, causeTaskStopped}, needOperator...) {
		if tried[cause] < 3 {
			t.Errorf("%s: got %d actions; want 3 or more", cause, tried[cause])
		}
	}
}

func tryOffered(t *testing.T, tt *explainCase, offer stepExplanation, action string) {
	t.Helper()
	svc, v := tt.start(t)
	s := (&testServer{t: t, svc: svc}).with(newOrchestrationAPI(svc, nil))
	path := "/v1/tasks/" + v.id.String()
	index := func(x *taskExplanation) int {
		return slices.IndexFunc(x.Steps, func(e stepExplanation) bool { return e.Name == offer.Name })
	}
	x := must(svc.engine.explain(v.id, nil, true))(t)
	body := fmt.Sprintf(`{"action_type":%q,"reason":"r","reset_by":"b","resolved_by":"b","completed_by":"b","failed_by":"b",`+
		`"cancelled_by":"b","retried_by":"b","completion_data":{"result":null},"error":{"message":"m"}}`, action)
	if a := s.do("PATCH", path+"/workflow_steps/"+x.Steps[index(x)].StepUUID.String(), body); a.status != 200 {
		t.Errorf("%s, %s: %s: got %d %s", offer.Name, offer.Cause, action, a.status, a.body)
		return
	}
	settle(svc)
	x = must(svc.engine.explain(v.id, nil, true))(t)
	if i := index(x); i >= 0 && x.Steps[i].Cause == offer.Cause && action != actionReset.String() && // it fails again
		(action != actionRetryNow.String() || x.Steps[i].Attempt == offer.Attempt) {
		t.Errorf("%s, %s: %s: got the same cause; want it ended", offer.Name, offer.Cause, action)
	}
}

// TestExplainHidesErrors checks that the messages of errors are for callers who may read
// steps, on both surfaces.
func TestExplainHidesErrors(t *testing.T) {
	fails := `{"message":"no paper","retryable":true}`
	s := newFixtureServer(t, serviceTest{
		extra: []string{testTemplate("x",
			stepSpec{name: "a", callable: "builtin:fail", config: fails, retry: `{"backoff_base_ms":9000}`},
			stepSpec{name: "b", callable: "builtin:fail", config: fails, retry: `{"max_attempts":1}`})},
		config: func(c *Config) {
			c.Worker.Concurrency = 1 // a before b, whose failure blocks the task
			a := &c.Orchestration.Web.Auth
			a.Enabled, a.APIKeysEnabled, a.JWTPublicKey = true, true, publicPEM(t, authKeys().rsa)
			a.APIKeys = []apiKeyConfig{
				{Key: "the-key-of-one-who-may", Permissions: []string{"tasks:read", "steps:read"}, Description: "anna"},
				{Key: "the-key-of-one-who-may-not", Permissions: []string{"tasks:read"}, Description: "bert"},
			}
		},
	})
	id := mustCreate(t, s.world.service(), "x").id.String()
	settle(s.world.service())
	for key, want := range map[string][]string{
		"the-key-of-one-who-may":     {"failed just now, on attempt 1 of 3: no paper (builtin_fail)", "failed for good just now, on attempt 1 of 1: no paper (builtin_fail);"},
		"the-key-of-one-who-may-not": {"failed just now, on attempt 1 of 3 (builtin_fail)", "failed for good just now, on attempt 1 of 1 (builtin_fail);"},
	} {
		for _, path := range []string{"/v1/tasks/", "/stepwell/tasks/"} {
			a := s.as(key, "GET", path+id+"/explain").want(200)
			for i, want := range want {
				if got := a.text(fmt.Sprintf("steps.%d.message", i)); !strings.Contains(got, want) {
					t.Errorf("%s, %s: got %q; want %q", path, key, got, want)
				}
			}
		}
	}
}

// checkExplanation checks that each unfinished step has one cause, which matches its state, and
// that the named actions are allowed, and none is named of a step that another one holds up.
func checkExplanation(t testing.TB, s *service, x *taskExplanation) {
	t.Helper()
	v := must(s.store.view(x.TaskUUID))(t)
	n := 0
	for i := range v.steps {
		if v.steps[i].state.finished() {
			continue
		}
		if n == len(x.Steps) || x.Steps[n].StepUUID != v.stepID(i) {
			t.Fatalf("%s: got %+v; want one cause for step %d", states(v), x.Steps, i)
		}
		e := &x.Steps[n]
		n++
		if !causeIsTrue(s, v, i, e) || e.Message == "" || x.Message == "" {
			t.Errorf("step %d of %s: got %+v, which is not true", i, states(v), e)
		}
		held := e.Cause == causeParentFailed || v.state == taskBlockedByFailures && (e.Cause == causeRetry || e.Cause == causeTaskStopped)
		if held && len(e.Actions) > 0 {
			t.Errorf("step %d of %s, %s: got the actions %q, which do not help; want none", i, states(v), e.Cause, e.Actions)
		}
		for _, word := range e.Actions {
			action := stepAction(slices.Index(stepActionNames[:], word))
			if err := s.operator.allowsLocked(v, i, &stepRequest{action: action}); err != nil {
				t.Errorf("step %d of %s, %s: %v", i, states(v), e.Cause, err)
			}
		}
	}
	if n != len(x.Steps) {
		t.Errorf("%s: got %+v; want causes for unfinished steps alone", states(v), x.Steps)
	}
}

// causeIsTrue checks a cause naively.
func causeIsTrue(s *service, v *task, i int, e *stepExplanation) bool {
	var in, unsatisfied [stepStates]int
	names := []string{}
	for _, p := range v.parents(i) {
		in[v.steps[p].state]++
		if !v.steps[p].state.satisfies() {
			unsatisfied[v.steps[p].state]++
			names = append(names, v.def(p).name)
		}
	}
	state, stopped := v.steps[i].state, v.state == taskBlockedByFailures || v.state == taskError
	outside := s.handlers.resolve(v.def(i).callable).kind == outsideActor
	switch e.Cause {
	case causeFailed:
		return state == stepInError
	case causeRunning:
		return state == stepInProgress && v.steps[i].lease == nil && time.Time(instant(e.DueAt).time()).After(instant(e.Since).time())
	case causeClaimed:
		return state == stepInProgress && v.steps[i].lease != nil && instant(e.DueAt) == v.steps[i].lease.until
	case causeCutOff:
		return state == stepInProgress && v.steps[i].lease == nil
	case causeRetry:
		return state == stepWaitingForRetry && instant(e.DueAt) == v.steps[i].retryAt && e.Attempt == v.steps[i].attempts+1
	case causeCancelled:
		return state == stepPending && unsatisfied[stepCancelled] > 0 && slices.Equal(names, e.WaitsFor)
	case causeParentFailed:
		return state == stepPending && in[stepCancelled] == 0 && (in[stepInError] > 0 && slices.Equal(names, e.WaitsFor) ||
			len(names) == 0 && undecidedBy(v, i, e.WaitsFor)[stepInError] > 0)
	case causeDependencies:
		return state == stepPending && len(names) > 0 && slices.Equal(names, e.WaitsFor) && in[stepInError]+in[stepCancelled] == 0
	case causeUndecided:
		by := undecidedBy(v, i, e.WaitsFor)
		return state == stepPending && len(names) == 0 && len(by) > 0 && by[stepInError] == 0
	case causeTaskStopped:
		return stopped && len(names) == 0 && !v.open(i) && (state == stepPending || state == stepEnqueued)
	case causeOutside:
		return state == stepEnqueued && outside && !stopped
	case causeSlot, causeStarting:
		return state == stepEnqueued && !outside && !stopped
	}
	return false
}

// undecidedBy counts, by state, the steps that an explanation says decide on a step's
// dependencies; it returns none if one of them does not.
func undecidedBy(v *task, i int, names []string) map[stepState]int {
	by := map[stepState]int{}
	if !v.open(i) {
		return by
	}
	for _, name := range names {
		d := slices.IndexFunc(v.plan.steps, func(p planStep) bool { return p.def.name == name })
		if d < 0 || !maker(v.def(d).kind) || v.decided(d) || !v.tpl.flow.descends(v.declared(i), v.declared(d)) {
			return nil
		}
		by[v.steps[d].state]++
	}
	return by
}

// TestCausesAreLoggedOnce checks that each cause is logged as it arises: once for an
// outside actor's callable, once when slots run out and once when they are free again.
func TestCausesAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	clock := newVirtualClock(testStart)
	s := openTestService(t, serviceTest{
		clock: clock, log: &log, config: func(c *Config) { c.Worker.Concurrency, c.Engine.Jitter = 1, false },
		extra: []string{
			testTemplate("outside", stepSpec{name: "a", callable: "Them::Do"}),
			testTemplate("bad", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":false}`}),
			testTemplate("flaky", stepSpec{name: "a", callable: "builtin:flaky", config: `{"failures":1}`}),
			testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":5000}`}),
		},
	})
	for _, name := range []string{"outside", "outside", "bad", "flaky"} {
		mustCreate(t, s, name)
		settle(s)
	}
	clock.advance(time.Minute)
	settle(s)
	for range 3 {
		mustCreate(t, s, "slow")
		settle(s)
	}
	for range 3 {
		clock.advance(5 * time.Second)
		settle(s)
	}
	closeTestService(t, s)
	for _, want := range []string{
		"INFO a step waits for an outside actor; others with this callable will, too task_uuid=",
		"callable=Them::Do",
		`WARN a task is blocked task_uuid=`, `step=a attempt=1 error_type=builtin_fail error=the step fails on purpose cause=step "a" failed for good`,
		"step=a cause=attempt 1 of 3 failed: the step fails on purpose; not tried again",
		"step=a cause=attempt 1 of 3 failed: attempt 1 of 1 that fail on purpose; again in 1 s",
		"WARN every slot is taken, ready steps wait slots=builtins and programs of=1 waiting=1",
		"INFO slots are free again slots=builtins and programs of=1",
	} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("got %q %d times; want it once in\n%s", want, n, &log)
		}
	}
}

// TestStrayMembersAreLoggedOnce checks that a reply with success and members that outcomes do
// not have is logged once for each callable, and a full outcome never.
func TestStrayMembersAreLoggedOnce(t *testing.T) {
	h := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, map[string]string{
			"/full": `{"success":true,"result":1}`, "/data": `{"items":[1,2],"success":true}`,
			"/declined": `{"success":false,"reason":"declined"}`,
		}[r.URL.Path])
	})
	var log bytes.Buffer
	once := `{"max_attempts":1}`
	s := openTestService(t, serviceTest{log: &log, extra: []string{
		testTemplate("x", stepSpec{name: "a", callable: h.URL + "/full"}, stepSpec{name: "b", callable: h.URL + "/data"},
			stepSpec{name: "c", callable: h.URL + "/data"}, stepSpec{name: "d", callable: h.URL + "/declined",
				after: []string{"a", "b", "c"}, retry: once}),
	}})
	for range 2 {
		v, _, err := s.tasks.await(t.Context(), mustCreate(t, s, "x").id, terminalStates, 10*time.Second)
		noError(t, err)
		wantStates(t, v, "blocked_by_failures: complete complete complete error")
		if got, want := string(v.steps[1].last.result), `{"items":[1,2],"success":true}`; got != want {
			t.Errorf("got the result %s; want %s", got, want)
		}
		if got := *v.steps[3].faultView(true).Message; got != `{"success":false,"reason":"declined"}` {
			t.Errorf("got the message %s; want the reply", got)
		}
	}
	closeTestService(t, s)
	for _, want := range []string{
		`so the whole reply is the result callable=` + h.URL + `/data member=items`,
		`so the whole reply is the message of a failure callable=` + h.URL + `/declined member=reason`,
	} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("got %q %d times; want it once in\n%s", want, n, &log)
		}
	}
	if n := strings.Count(log.String(), "WARN a reply"); n != 2 {
		t.Errorf("got %d warnings; want 2 in\n%s", n, &log)
	}
}
