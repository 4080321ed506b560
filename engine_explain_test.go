package main

// Every cause that a step can have, compared with the state of the task.

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
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
			"c running has run for less than 1 s in builtin:sleep, on attempt 1 of 3, which times out in 90 s; the clock is frozen: nothing comes due until it is advanced by 60 s",
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
			t.Errorf("%s: got %+v; want one cause for step %d", states(v), x.Steps, i)
			return
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
		due := instant(e.DueAt) // or when its answer is due, which is earlier
		return state == stepWaitingForRetry && (due == v.steps[i].retryAt || due == v.answers[i]) && e.Attempt == v.steps[i].attempts+1
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
	case causeHeld:
		return v.hold != nil
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

// TestCausesAreLoggedOnce checks that each cause is logged as it arises, once for an outside actor's callable.
func TestCausesAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	clock := newVirtualClock(testStart)
	s := openTestService(t, serviceTest{
		clock: clock, log: &log, config: func(c *Config) { c.Engine.Jitter = false },
		extra: []string{
			testTemplate("outside", stepSpec{name: "a", callable: "Them::Do"}),
			testTemplate("bad", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":false}`}),
			testTemplate("flaky", stepSpec{name: "a", callable: "builtin:flaky", config: `{"failures":1}`}),
		},
	})
	for _, name := range []string{"outside", "outside", "bad", "flaky"} {
		mustCreate(t, s, name)
		settle(s)
	}
	clock.advance(time.Minute)
	settle(s)
	closeTestService(t, s)
	for _, want := range []string{
		"INFO a step waits for an outside actor; others with this callable will, too task_uuid=",
		"callable=Them::Do",
		`WARN a task is blocked task_uuid=`, `step=a attempt=1 error_type=builtin_fail error=the step fails on purpose cause=step "a" failed for good`,
		"step=a cause=attempt 1 of 3 failed: the step fails on purpose; not tried again",
		"step=a cause=attempt 1 of 3 failed: attempt 1 of 1 that fail on purpose; again in 1 s",
	} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("got %q %d times; want it once in\n%s", want, n, &log)
		}
	}
}

// In each stuck situation, every place that describes a task names the same cause and remedy.

// situation is a way in which a task is stuck.
type situation struct {
	name  string
	steps []stepSpec
	do    func(t *testing.T, s *service, clock *virtualClock, v *task)
	// frozen leaves the clock standing still.
	frozen bool
	want   string // the first sentence
	logged string // the line of the log; none if empty
	ran    string // what run says; "" where it cannot come to it

	config func(c *Config) // nil for none
}

func situations(t *testing.T) []situation {
	later := `{"backoff":"linear","backoff_base_ms":600000,"max_backoff_ms":3600000,"max_attempts":3}`
	undelivered := func(c *Config) { c.Worker.Undelivered = undeliveredFail }
	forPeople := func(c *Config) { c.Console.People = []string{"people.*"} }
	stub := "give --stub STEP=JSON or --handler"
	wrong := newHandlerServer(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, createSteps("nowhere")) })
	good := func(*testing.T, *service, *virtualClock, *task) {}
	ends := func(t *testing.T, s *service, _ *virtualClock, v *task) {
		must2(s.tasks.await(t.Context(), v.id, terminalStates|setOf(taskWaitingForRetry), 10*time.Second))(t)
	}
	return []situation{
		{"handler down", []stepSpec{{name: "charge", callable: "http://127.0.0.1:1/", retry: later}}, ends, false,
			`step "charge" failed 5 min ago, on attempt 1 of 3: no reply from 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused (network_error); ` +
				`start your handler; it is retried in 4 min, or immediately with retry_now`, "", "", undelivered},
		{"handler down for good", []stepSpec{{name: "charge", callable: "http://127.0.0.1:1/", retry: `{"max_attempts":1}`}}, ends, false,
			`connection refused (network_error); start your handler, then reset it`, "start your handler, then reset it", "start your handler, then run it again", undelivered},
		{"retries used up", []stepSpec{{name: "charge", callable: "builtin:fail", retry: `{"max_attempts":1}`,
			config: `{"message":"Traceback (most recent call last):\n  File \"a.py\"\nBankDown: no answer","error_type":"bank_down"}`}}, good, false,
			`step "charge" failed for good 5 min ago, on attempt 1 of 1: BankDown: no answer (bank_down); fix what failed, then reset it`,
			"step=charge attempt=1 error_type=bank_down error=Traceback (most recent call last):\n  File \"a.py\"\nBankDown: no answer cause=step \"charge\" failed for good",
			"BankDown: no answer (bank_down); fix what failed, then run it again", nil},
		{"nobody claims", []stepSpec{{name: "approve", callable: "Outside"}}, good, false,
			`step "approve" has waited for an outside actor for 5 min, because callable "Outside" has no handler; ` +
				`map it with --handler Outside=URL or in [worker.handlers], or let an actor claim it`,
			`remedy=map it with --handler Outside=URL or in [worker.handlers], or let an actor claim it`, stub, nil},
		{"nobody claims in fixture mode", []stepSpec{{name: "approve", callable: "people.Approve"}}, good, false,
			`because callable "people.Approve" has no handler; stub it, or answer it as its actor would`,
			`remedy=stub it, or answer it as its actor would`, stub, func(c *Config) { forPeople(c); c.Fixture.Enabled = true }},
		{"no person has answered", []stepSpec{{name: "approve", callable: "people.Approve"}}, good, false,
			`because callable "people.Approve" has no handler; answer it in the console or by stepwell step complete`,
			`remedy=answer it in the console or by stepwell step complete`, "", forPeople},
		{"no actor, though others are people", []stepSpec{{name: "approve", callable: "Outside"}}, good, false,
			`; map it with --handler Outside=URL`, `remedy=map it with --handler Outside=URL`, "", forPeople},
		{"wrong decision", []stepSpec{{name: "route", callable: wrong.URL, kind: stepDecision, retry: `{"max_attempts":1}`},
			{name: "left", callable: "builtin:noop", after: []string{"route"}}}, ends, false,
			`the template has no step "nowhere"; "route" may name "left" (invalid_outcome)`, "error_type=invalid_outcome", "then run it again", nil},
		{"lease lost", []stepSpec{{name: "approve", callable: "Outside", retry: later}}, func(t *testing.T, s *service, clock *virtualClock, v *task) {
			loseLeases(t, s, clock, 1)
		}, false, `step "approve" failed 6 min ago, on attempt 1 of 3: the lease of w expired (worker_lost); it is retried in 3 min, or immediately with retry_now`,
			"", "", nil},
		{"lease lost and waiting", []stepSpec{{name: "approve", callable: "Outside", retry: `{"backoff_base_ms":1}`}},
			func(t *testing.T, s *service, clock *virtualClock, v *task) { loseLeases(t, s, clock, 1) }, false,
			`after attempt 1 of 3 failed: the lease of w expired (worker_lost); map it with --handler`, "", "", nil},
		{"lease lost three times", []stepSpec{{name: "approve", callable: "Outside", retry: `{"backoff_base_ms":1}`}},
			func(t *testing.T, s *service, clock *virtualClock, v *task) { loseLeases(t, s, clock, 3) }, false,
			`step "approve" failed for good 6 min ago, on attempt 3 of 3: the lease of w expired (worker_lost); ` +
				`find out why its worker does not respond, then reset it`, "error_type=worker_lost", "", nil},
		{"refused by a schema", []stepSpec{{name: "charge", callable: "builtin:echo", retry: `{"max_attempts":1}`}}, good, false,
			`step "charge" failed for good 5 min ago, on attempt 1 of 1: the result does not fit result_schema`, "error_type=schema_mismatch", "", nil},
		{"stale", []stepSpec{{name: "approve", callable: "Outside"}}, func(t *testing.T, s *service, clock *virtualClock, v *task) {
			goStale(t, s, v.id)
		}, false, `the task ended as stale 5 min ago: step "approve" is ready, but cannot start while the task is error; ` +
			`fix what delayed it, then act on the step (resolve_manually, complete_manually, cancel, fail) to get the task going again`, "", "", nil},
		{"parent cancelled", []stepSpec{{name: "a", callable: "Outside"}, {name: "b", callable: "builtin:noop", after: []string{"a"}}},
			func(t *testing.T, s *service, clock *virtualClock, v *task) {
				mustAct(t, s, v, 0, stepRequest{action: actionCancel})
			}, false,
			`step "b" needs step "a", which was cancelled 5 min ago; resolve, complete or cancel it`, `cause=step "b" needs step "a"`, "", nil},
		{"part of a batch failed", []stepSpec{{name: "split", callable: "Outside", kind: stepBatchable},
			{name: "import", callable: "builtin:fail", kind: stepBatchWorker, after: []string{"split"}, retry: `{"max_attempts":1}`,
				batch: strings.ReplaceAll(batchSteps("continue_on_failure", 10)[1].batch, `"w"`, `"import"`)}},
			func(t *testing.T, s *service, clock *virtualClock, v *task) {
				mustAct(t, s, v, 0, stepRequest{action: actionComplete, result: []byte(createBatches("import", 3))})
			}, false, `on attempt 1 of 1, as did 2 more of the 3 parts of its batch: the step fails on purpose (builtin_fail); fix what failed, then reset it`, "error_type=builtin_fail", "", nil},
		{"handler not there yet", []stepSpec{{name: "charge", callable: "http://127.0.0.1:1", retry: `{"max_attempts":1}`}},
			func(t *testing.T, s *service, clock *virtualClock, v *task) {
				eventually(t, "the step to wait", func() bool { return absentees(s) == 1 })
			}, false, `step "charge" waits for its handler: 127.0.0.1:1 has not been listening since `,
			`a handler does not listen: steps wait for it; start your handler address=127.0.0.1:1`, "", nil},
		{"clock frozen", []stepSpec{{name: "charge", callable: "builtin:fail", config: `{"retryable":true}`, retry: later}}, good, true,
			`step "charge" failed 5 min ago, on attempt 1 of 3: the step fails on purpose (builtin_fail); ` +
				`the clock is frozen: nothing comes due until it is advanced by 4 min`, "", "", nil},
	}
}

// loseLeases claims the step so many times, and lets each lease expire.
func loseLeases(t *testing.T, s *service, clock *virtualClock, times int) {
	for range times {
		mustClaim(t, s)
		clock.advance(2 * time.Minute)
		settle(s)
	}
}

// TestOneSentence compares what each place says of each situation.
func TestOneSentence(t *testing.T) {
	for _, tt := range situations(t) {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			clock := newVirtualClock(testStart)
			spec := testTemplate("x", tt.steps...)
			if tt.name == "refused by a schema" {
				spec = strings.Replace(spec, `"batch_config":null`, `"batch_config":null,"result_schema":{"required":["paid"]}`, 1)
			}
			s := newTestServer(t, serviceTest{clock: clock, log: &log, extra: []string{spec}, config: func(c *Config) {
				c.Engine.Jitter, c.Templates.EnforceInputSchema = false, "reject"
				c.Worker.Undelivered = undeliveredWait
				if tt.config != nil {
					tt.config(c)
				}
			}})
			v := mustCreate(t, s.svc, "x")
			settle(s.svc)
			tt.do(t, s.svc, clock, v)
			settle(s.svc)
			clock.advance(5*time.Minute + 30*time.Second) // the last unit is not near its end
			settle(s.svc)
			if !tt.frozen {
				clock.setMode(clockReal)
			}
			said := s.do("GET", "/v1/tasks/"+v.id.String()+"/explain", "").want(200)
			message, remedy := said.text("message"), said.text("remedy")
			if !strings.Contains(message, tt.want) || remedy == "" || !strings.HasSuffix(message, "; "+remedy) {
				t.Errorf("explain: got %q; want %q", message, tt.want)
			}
			if got := s.do("GET", s.svc.cfg.Mount.Path+"/tasks/"+v.id.String()+"/explain", "").text("message"); got != message {
				t.Errorf("at the mount point: got %q; want %q", got, message)
			}
			env := map[string]string{"STEPWELL_URL": s.url}
			places := [][]string{{"task", "explain", v.id.String()}, {"task", "watch", v.id.String(), "--timeout", "1ns"}}
			if s.do("GET", "/v1/dlq/task/"+v.id.String(), "").status == 200 {
				places = append(places, []string{"dlq", "show", v.id.String()})
			}
			for _, args := range places {
				if r := runCLI(env, "", args...); !strings.Contains(r.stdout+r.stderr, message) {
					t.Errorf("%q: got %q, %q; want %q", args, r.stdout, r.stderr, message)
				}
			}
			if tt.logged != "" && !strings.Contains(log.String(), tt.logged) {
				t.Errorf("the log: got %s; want %s", &log, tt.logged)
			}
			if tt.ran != "" {
				runs(t, spec, tt.ran)
			}
		})
	}
}

// runs runs the template alone.
func runs(t *testing.T, spec, want string) {
	t.Helper()
	t.Chdir(t.TempDir())
	noError(t, os.WriteFile("x.json", []byte(spec), 0o600))
	if r := runCLI(nil, "", "run", "x.json"); !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, "reset") {
		t.Errorf("run: got %q; want %q", r.stderr, want)
	}
}
