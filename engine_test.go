package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"
)

// stepSpec is one step of a template made for a test.
type stepSpec struct {
	name, callable string
	after          []string
	config         string // handler.initialization
	retry          string // the retry object
	timeout        int
	kind           string // standard when empty
}

// testTemplate is a template of the namespace t.
func testTemplate(name string, steps ...stepSpec) string {
	parts := make([]string, len(steps))
	for i, s := range steps {
		after := []string{}
		for _, a := range s.after {
			after = append(after, fmt.Sprintf("%q", a))
		}
		parts[i] = fmt.Sprintf(`{"name":%q,"type":%q,"handler":{"callable":%q,"initialization":%s},"dependencies":[%s],"retry":%s,"timeout_seconds":%d}`,
			s.name, orDefault(s.kind, stepStandard), s.callable, orDefault(s.config, "{}"), strings.Join(after, ","), orDefault(s.retry, "{}"), max(s.timeout, 30*boolCount(s.timeout == 0)))
	}
	return fmt.Sprintf(`{"namespace":"t","name":%q,"version":"1.0.0","identity_strategy":"always_unique","steps":[%s]}`,
		name, strings.Join(parts, ","))
}

// testStart is where virtual clocks of tests begin.
var testStart = mustInstant("2026-01-01T00:00:00Z")

func mustInstant(s string) instant {
	at, err := parseInstant(s)
	if err != nil {
		panic(err)
	}
	return at
}

// mustCreate creates a task of a template of the namespace t.
func mustCreate(t *testing.T, s *service, name string, fields ...string) *task {
	t.Helper()
	body := fmt.Sprintf(`{"namespace":"t","name":%q`, name)
	for _, f := range fields {
		body += "," + f
	}
	q, err := parseTaskRequest([]byte(body + "}"))
	if err != nil {
		t.Fatal(err)
	}
	created, err := s.createTask(t.Context(), q, true)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// settle waits until nothing is left that could start now, and no builtin is
// computing.
func settle(s *service) {
	for s.engine.pump(math.MaxInt); computing(s); s.engine.pump(math.MaxInt) {
		runtime.Gosched()
	}
}

// computing is whether the scheduler has a step in hand: one that left its queue
// and still counts as queued.
func computing(s *service) bool {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	waits := map[*step]bool{}
	for _, it := range slices.Concat(s.engine.local.items, s.engine.http.items) {
		waits[&it.task.steps[it.step]] = true
	}
	for _, sl := range s.store.slots {
		if sl.live == nil {
			continue
		}
		for i := range sl.live.steps {
			if st := &sl.live.steps[i]; st.queued && !waits[st] {
				return true
			}
		}
	}
	return false
}

// settled is a task once the service has settled.
func settled(t *testing.T, s *service, id uuid) *task {
	t.Helper()
	settle(s)
	v, err := s.store.view(id)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// states is the task's state and its steps', as "complete: complete error".
func states(v *task) string {
	words := make([]string, len(v.steps))
	for i := range v.steps {
		words[i] = v.steps[i].state.String()
	}
	return v.state.String() + ": " + strings.Join(words, " ")
}

func wantStates(t *testing.T, v *task, want string) {
	t.Helper()
	if got := states(v); got != want {
		t.Fatalf("got %s; want %s", got, want)
	}
}

// act applies a step action and returns the task after it, settled.
func act(t *testing.T, s *service, v *task, step int, q stepRequest) (*task, error) {
	t.Helper()
	q.by, q.reason = "ops", "because"
	if _, _, err := s.actOnStep(t.Context(), v.id, v.stepID(step), &q); err != nil {
		return nil, err
	}
	return settled(t, s, v.id), nil
}

func mustAct(t *testing.T, s *service, v *task, step int, q stepRequest) *task {
	t.Helper()
	after, err := act(t, s, v, step, q)
	if err != nil {
		t.Fatal(err)
	}
	return after
}

var (
	resetAction    = stepRequest{action: actionReset}
	resolveAction  = stepRequest{action: actionResolve}
	cancelAction   = stepRequest{action: actionCancel}
	completeAction = stepRequest{action: actionComplete, result: []byte(`{"by":"hand"}`)}
	failAction     = stepRequest{action: actionFail, err: &stepError{message: "no", errorType: "refused"}}
	retryAction    = stepRequest{action: actionFail, err: &stepError{message: "not yet", errorType: "busy", retryable: true}}
)

func TestDependencies(t *testing.T) {
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: []string{
		testTemplate("diamond",
			stepSpec{name: "a", callable: "Outside"}, stepSpec{name: "b", callable: "Outside", after: []string{"a"}},
			stepSpec{name: "c", callable: "Outside", after: []string{"a"}},
			stepSpec{name: "d", callable: "builtin:noop", after: []string{"b", "c"}}),
		testTemplate("empty"),
	}})
	v := mustCreate(t, s, "diamond")
	wantStates(t, v, "steps_in_process: enqueued pending pending pending")
	v = mustAct(t, s, v, 0, completeAction)
	wantStates(t, v, "steps_in_process: complete enqueued enqueued pending")
	v = mustAct(t, s, v, 2, resolveAction)
	wantStates(t, v, "steps_in_process: complete enqueued resolved_manually pending")
	v = mustAct(t, s, v, 1, completeAction)
	wantStates(t, v, "complete: complete complete resolved_manually complete")
	wantStates(t, mustCreate(t, s, "empty"), "complete: ")
}

func TestFailureAndRecovery(t *testing.T) {
	extra := []string{testTemplate("pair",
		stepSpec{name: "a", callable: "Outside"}, stepSpec{name: "b", callable: "Outside"},
		stepSpec{name: "c", callable: "builtin:noop", after: []string{"a", "b"}})}
	for _, tc := range []struct {
		name  string
		steps []func(t *testing.T, s *service, v *task) *task
		want  []string
	}{
		{"the failed step is reset and completed", []func(*testing.T, *service, *task) *task{
			on(0, failAction), on(0, resetAction), on(0, completeAction), on(1, completeAction),
		}, []string{
			"blocked_by_failures: error enqueued pending",
			"steps_in_process: enqueued enqueued pending",
			"steps_in_process: complete enqueued pending",
			"complete: complete complete complete",
		}},
		{"the failed step is resolved", []func(*testing.T, *service, *task) *task{
			on(1, completeAction), on(0, failAction), on(0, resolveAction),
		}, []string{
			"steps_in_process: enqueued complete pending",
			"blocked_by_failures: error complete pending",
			"complete: resolved_manually complete complete",
		}},
		{"two failed steps: both must be dealt with", []func(*testing.T, *service, *task) *task{
			on(0, failAction), on(1, failAction), on(0, completeAction), on(1, completeAction),
		}, []string{
			"blocked_by_failures: error enqueued pending",
			"blocked_by_failures: error error pending",
			"blocked_by_failures: complete error pending",
			"complete: complete complete complete",
		}},
		{"what ends while the task is blocked is recorded and starts nothing", []func(*testing.T, *service, *task) *task{
			on(0, failAction), on(1, completeAction), on(0, resolveAction),
		}, []string{
			"blocked_by_failures: error enqueued pending",
			"blocked_by_failures: error complete pending",
			"complete: resolved_manually complete complete",
		}},
		{"a cancelled step holds up what waits for it", []func(*testing.T, *service, *task) *task{
			on(0, cancelAction), on(1, completeAction), on(2, resolveAction),
		}, []string{
			"blocked_by_failures: cancelled enqueued pending",
			"blocked_by_failures: cancelled complete pending",
			"complete: cancelled complete resolved_manually",
		}},
		{"a failed step is given up", []func(*testing.T, *service, *task) *task{
			on(0, failAction), on(0, cancelAction), on(2, completeAction), on(1, completeAction),
		}, []string{
			"blocked_by_failures: error enqueued pending",
			"blocked_by_failures: cancelled enqueued pending",
			"steps_in_process: cancelled enqueued complete",
			"complete: cancelled complete complete",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: extra})
			v := mustCreate(t, s, "pair")
			for i, step := range tc.steps {
				v = step(t, s, v)
				wantStates(t, v, tc.want[i])
			}
		})
	}
}

// on is an action on a step, to be taken later.
func on(step int, q stepRequest) func(*testing.T, *service, *task) *task {
	return func(t *testing.T, s *service, v *task) *task { return mustAct(t, s, v, step, q) }
}

func TestRefusedActions(t *testing.T) {
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: []string{
		testTemplate("two", stepSpec{name: "a", callable: "Outside", retry: `{"backoff_base_ms":1000}`},
			stepSpec{name: "b", callable: "Outside", after: []string{"a"}})}})
	refuse := func(v *task, step int, q stepRequest, kind failureKind, words ...string) {
		t.Helper()
		_, err := act(t, s, v, step, q)
		if kindOf(err) != kind || err == nil {
			t.Fatalf("%s on %s: got %v; want a failure of kind %d", q.action, states(v), err, kind)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s on %s: got %q; want it to name %q", q.action, states(v), err, w)
			}
		}
	}
	v := mustCreate(t, s, "two")
	refuse(v, 0, resetAction, invalidTransition, "enqueued", "pending")
	refuse(v, 1, failAction, invalidTransition, "pending", "error")
	v = mustAct(t, s, v, 0, retryAction)
	wantStates(t, v, "waiting_for_retry: waiting_for_retry pending")
	refuse(v, 0, failAction, invalidTransition, "waiting_for_retry", "error")
	v = mustAct(t, s, v, 0, completeAction)
	wantStates(t, v, "steps_in_process: complete enqueued")
	refuse(v, 0, completeAction, invalidTransition, "complete")
	refuse(v, 0, resolveAction, invalidTransition, "complete", "resolved_manually")
	v = mustAct(t, s, v, 1, completeAction)
	refuse(v, 1, resolveAction, invalidTransition, "complete")
	_, _, err := s.actOnStep(t.Context(), v.id, mustCreate(t, s, "two").stepID(0), &resetAction)
	if kindOf(err) != stepMissing {
		t.Errorf("a step of another task: got %v; want not found", err)
	}
}

// TestRacingOperators has two operators at one failed step: one wins.
func TestRacingOperators(t *testing.T) {
	s := newTestService(t, serviceTest{extra: []string{testTemplate("one", stepSpec{name: "a", callable: "Outside"})}})
	for range 50 {
		v := mustAct(t, s, mustCreate(t, s, "one"), 0, failAction)
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			wg.Go(func() {
				q := resetAction
				q.by, q.reason = fmt.Sprint("operator ", i), "race"
				_, _, errs[i] = s.actOnStep(context.Background(), v.id, v.stepID(0), &q)
			})
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("got %v and %v; want one to win", errs[0], errs[1])
		}
		a, err := s.audit(v.id, v.stepID(0))
		if err != nil || len(a) != 2 {
			t.Fatalf("got %d audit entries, %v; want 2", len(a), err)
		}
	}
}

func TestBackoff(t *testing.T) {
	for _, tc := range []struct {
		kind       backoffKind
		base, most int
		want       []int // milliseconds after 1, 2, 3, … attempts
	}{
		{backoffNone, 1000, 30000, []int{0, 0, 0}},
		{backoffLinear, 1000, 30000, []int{1000, 2000, 3000, 4000}},
		{backoffLinear, 1000, 2500, []int{1000, 2000, 2500}},
		{backoffExponential, 1000, 30000, []int{1000, 2000, 4000, 8000, 16000, 30000, 30000}},
		{backoffFibonacci, 1000, 30000, []int{1000, 1000, 2000, 3000, 5000, 8000, 13000, 21000, 30000}},
		{backoffExponential, 0, 30000, []int{0, 0}},
	} {
		p := &retryPolicy{backoff: tc.kind, baseMS: tc.base, maxMS: tc.most}
		exact := &engine{}
		jitter := &engine{jitter: true, ids: newIDSource(newVirtualClock(0), new([32]byte))}
		for i, want := range tc.want {
			d := time.Duration(want) * time.Millisecond
			if got := exact.backoff(p, i+1, 0, uuid{}); got != d {
				t.Errorf("%s after %d attempts: got %s; want %s", tc.kind, i+1, got, d)
			}
			for range 100 {
				got := jitter.backoff(p, i+1, 0, uuid{})
				if got < d*9/10 || got > min(d*11/10, time.Duration(tc.most)*time.Millisecond) {
					t.Fatalf("%s after %d attempts with jitter: got %s; want %s ± 10 %%, at most %d ms", tc.kind, i+1, got, d, tc.most)
				}
			}
		}
	}
	e := &engine{}
	p := &retryPolicy{backoff: backoffLinear, baseMS: 1000, maxMS: 2000}
	if got := e.backoff(p, 1, 90*time.Second, uuid{}); got != 90*time.Second {
		t.Errorf("Retry-After: got %s; want it to win", got)
	}
	if got := e.backoff(p, 1, 5*time.Hour, uuid{}); got != time.Hour {
		t.Errorf("a long Retry-After: got %s; want it capped at 1h", got)
	}
	if got := e.backoff(&retryPolicy{backoff: backoffExponential, baseMS: 1000, maxMS: 30000}, 5000, 0, uuid{}); got != 30*time.Second {
		t.Errorf("after 5000 attempts: got %s; want 30s", got)
	}
}

func TestRetries(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock,
		config: func(c *Config) { c.Engine.Jitter = false },
		extra: []string{
			testTemplate("flaky", stepSpec{name: "a", callable: "builtin:flaky", config: `{"failures":2}`,
				retry: `{"max_attempts":3,"backoff":"exponential","backoff_base_ms":60000,"max_backoff_ms":3600000}`}),
			testTemplate("hopeless", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`,
				retry: `{"max_attempts":2,"backoff":"linear","backoff_base_ms":1000}`}),
			testTemplate("never", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`,
				retry: `{"retryable":false}`}),
			testTemplate("zero", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`,
				retry: `{"max_attempts":0}`}),
		}})
	v := mustCreate(t, s, "flaky")
	wantStates(t, v, "waiting_for_retry: waiting_for_retry")
	if got, want := v.steps[0].retryAt, testStart.add(time.Minute); got != want {
		t.Errorf("next retry: got %s; want %s", got.zoned(), want.zoned())
	}
	clock.advance(time.Minute - time.Microsecond)
	wantStates(t, settled(t, s, v.id), "waiting_for_retry: waiting_for_retry")
	clock.advance(time.Microsecond)
	wantStates(t, settled(t, s, v.id), "waiting_for_retry: waiting_for_retry")
	clock.advance(2 * time.Minute)
	v = settled(t, s, v.id)
	wantStates(t, v, "complete: complete")
	if v.steps[0].attempts != 3 {
		t.Errorf("got %d attempts; want 3", v.steps[0].attempts)
	}
	if got, want := v.completed, testStart.add(3*time.Minute); got != want {
		t.Errorf("completed at %s; want %s", got.zoned(), want.zoned())
	}
	v = mustCreate(t, s, "hopeless")
	clock.advance(time.Second)
	v = settled(t, s, v.id)
	wantStates(t, v, "blocked_by_failures: error")
	if v.steps[0].attempts != 2 {
		t.Errorf("got %d attempts; want 2", v.steps[0].attempts)
	}
	wantStates(t, mustCreate(t, s, "never"), "blocked_by_failures: error")
	wantStates(t, mustCreate(t, s, "zero"), "blocked_by_failures: error")
}

func TestSleepIsATimer(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, extra: []string{
		testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":5000}`}),
		testTemplate("late", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":5000}`, timeout: 2, retry: `{"max_attempts":1}`}),
	}})
	slow, late := mustCreate(t, s, "slow"), mustCreate(t, s, "late")
	wantStates(t, slow, "steps_in_process: in_progress")
	clock.advance(3 * time.Second)
	wantStates(t, settled(t, s, slow.id), "steps_in_process: in_progress")
	v := settled(t, s, late.id)
	wantStates(t, v, "blocked_by_failures: error")
	if got := string(v.steps[0].last.err); !strings.Contains(got, `"timeout"`) {
		t.Errorf("got %s; want a timeout", got)
	}
	clock.advance(2 * time.Second)
	v = settled(t, s, slow.id)
	wantStates(t, v, "complete: complete")
	if got := v.steps[0].last.took; got != 5*time.Second {
		t.Errorf("took %s; want 5s", got)
	}
}

func TestSlotsAndPriority(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock,
		config: func(c *Config) { c.Worker.Concurrency = 1 },
		extra:  []string{testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":1000}`})}})
	var ids []uuid
	for _, priority := range []string{"0", "0", "5", "-5", "5"} {
		ids = append(ids, mustCreate(t, s, "slow", `"priority":`+priority).id)
	}
	order := []int{}
	for range ids {
		eventually(t, "one task runs, no more", func() bool {
			s.store.mu.Lock()
			defer s.store.mu.Unlock()
			return len(s.engine.running) == 1
		})
		clock.advance(time.Second)
		for i, id := range ids {
			if settled(t, s, id).state == taskComplete && !slices.Contains(order, i) {
				order = append(order, i)
			}
		}
	}
	if want := []int{0, 2, 4, 1, 3}; !slices.Equal(order, want) {
		t.Errorf("tasks completed in the order %v; want %v", order, want)
	}
}

func TestCancelTask(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, extra: []string{
		testTemplate("mixed", stepSpec{name: "a", callable: "builtin:noop"},
			stepSpec{name: "b", callable: "builtin:sleep", config: `{"duration_ms":1000}`},
			stepSpec{name: "c", callable: "Outside"}, stepSpec{name: "d", callable: "Outside", after: []string{"c"}}),
	}})
	v := mustCreate(t, s, "mixed")
	wantStates(t, v, "steps_in_process: complete in_progress enqueued pending")
	after, err := s.cancelTask(t.Context(), v.id, "")
	if err != nil {
		t.Fatal(err)
	}
	wantStates(t, after, "cancelled: complete cancelled cancelled cancelled")
	clock.advance(time.Minute)
	wantStates(t, settled(t, s, v.id), "cancelled: complete cancelled cancelled cancelled")
	if _, err := s.cancelTask(t.Context(), v.id, ""); kindOf(err) != invalidTransition {
		t.Errorf("cancelling twice: got %v; want an invalid transition", err)
	}
	if _, err := act(t, s, v, 1, resetAction); kindOf(err) != invalidTransition {
		t.Errorf("acting in a cancelled task: got %v; want an invalid transition", err)
	}
	wantFreeSlots(t, s)
}

func TestHistoryAndAudit(t *testing.T) {
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: []string{
		testTemplate("one", stepSpec{name: "a", callable: "Outside", retry: `{"backoff":"none"}`})}})
	v := mustCreate(t, s, "one")
	v = mustAct(t, s, v, 0, failAction)
	v = mustAct(t, s, v, 0, resetAction)
	v = mustAct(t, s, v, 0, completeAction)
	h, err := s.history(v.id)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range h.Transitions {
		who := "task"
		if m.StepName != nil {
			who = *m.StepName
		}
		from := "-"
		if m.FromState != nil {
			from = *m.FromState
		}
		got = append(got, who+" "+from+" "+m.ToState)
	}
	want := []string{
		"task - pending", "a - pending", "task pending initializing", "task initializing enqueuing_steps",
		"a pending enqueued", "task enqueuing_steps steps_in_process",
		"a enqueued in_progress", "a in_progress enqueued_as_error_for_orchestration",
		"a enqueued_as_error_for_orchestration error",
		"task steps_in_process evaluating_results", "task evaluating_results blocked_by_failures",
		"a error pending", "task blocked_by_failures evaluating_results",
		"task evaluating_results enqueuing_steps", "a pending enqueued", "task enqueuing_steps steps_in_process",
		"a enqueued in_progress", "a in_progress complete",
		"task steps_in_process evaluating_results", "task evaluating_results complete",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got history\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	audit, err := s.audit(v.id, v.stepID(0))
	if err != nil {
		t.Fatal(err)
	}
	var entries []string
	for _, a := range audit {
		entries = append(entries, fmt.Sprint(a.Action, " ", a.FromState, " ", a.ToState, " ", a.Success))
	}
	wantEntries := []string{
		"complete_manually in_progress complete true",
		"reset_for_retry error pending true",
		"fail in_progress enqueued_as_error_for_orchestration false",
	}
	if !slices.Equal(entries, wantEntries) {
		t.Errorf("got audit %q; want %q", entries, wantEntries)
	}
}

// TestWideAndDeep runs large tasks to their end: independent, chain, layered.
func TestWideAndDeep(t *testing.T) {
	const n = 2000
	shapes := map[string][][]int{"independent": make([][]int, n), "chain": make([][]int, n), "layered": make([][]int, n)}
	for i := 1; i < n; i++ {
		shapes["chain"][i] = []int{i - 1}
		if layer := i / 10; layer > 0 {
			shapes["layered"][i] = []int{(layer-1)*10 + i%10, (layer-1)*10 + (i+1)%10}
		}
	}
	for name, parents := range shapes {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(benchTemplate(name, "builtin:noop", parents), `"bench"`, `"t"`, 1)
			s := newTestService(t, serviceTest{extra: []string{text}})
			v := settled(t, s, mustCreate(t, s, name).id)
			for v.state != taskComplete { // the scheduler has some of them in hand
				v = settled(t, s, v.id)
			}
		})
	}
}

// TestSlotOfADelayEndsWithItsStep takes the step away from a delay of ours, in
// each way there is: its slot is free at once, not when the delay is over.
func TestSlotOfADelayEndsWithItsStep(t *testing.T) {
	cancel := func(t *testing.T, s *service, v *task) {
		if _, err := s.cancelTask(t.Context(), v.id, ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		take func(t *testing.T, s *service, v *task)
	}{
		{"the task is cancelled", cancel},
		{"the step is resolved", func(t *testing.T, s *service, v *task) { mustAct(t, s, v, 0, resolveAction) }},
		{"the step is completed", func(t *testing.T, s *service, v *task) { mustAct(t, s, v, 0, completeAction) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock := newVirtualClock(testStart)
			s := newTestService(t, serviceTest{clock: clock,
				config: func(c *Config) { c.Worker.Concurrency = 1 },
				extra: []string{testTemplate("slow",
					stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":1000}`})}})
			first, second := mustCreate(t, s, "slow"), mustCreate(t, s, "slow")
			tc.take(t, s, first)
			wantStates(t, settled(t, s, second.id), "steps_in_process: in_progress")
			clock.advance(time.Second)
			wantStates(t, settled(t, s, second.id), "complete: complete")
			wantFreeSlots(t, s)
		})
	}
}

// wantFreeSlots fails the test unless every slot is free and nothing runs.
func wantFreeSlots(t *testing.T, s *service) {
	t.Helper()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	e, c := s.engine, &s.cfg.Worker
	if e.slots != c.Concurrency || e.webSlots != c.HTTPConcurrency || len(e.running) != 0 {
		t.Errorf("got %d and %d free slots and %d running; want %d, %d and 0",
			e.slots, e.webSlots, len(e.running), c.Concurrency, c.HTTPConcurrency)
	}
}

// TestSlotOfAnAbandonedAttempt cancels a task whose handler still waits for the
// disk: who waits for its slot must get it.
func TestSlotOfAnAbandonedAttempt(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	defer h.Close()
	s := newTestService(t, serviceTest{dir: t.TempDir(),
		config: func(c *Config) { c.Worker.HTTPConcurrency = 1 },
		extra:  []string{testTemplate("web", stepSpec{name: "a", callable: h.URL})}})
	release := holdFlusher(t, s)
	first, second := createAside(t, s, "web"), createAside(t, s, "web")
	gone, cancel := context.WithCancel(t.Context())
	cancel() // the answer would wait for the disk
	if _, err := s.cancelTask(gone, first, ""); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v; want the cancellation to be under way", err)
	}
	awaitReal(t, "the slot to be free again or taken", func() bool {
		s.store.mu.Lock()
		defer s.store.mu.Unlock()
		for k := range s.engine.running {
			if k.task == first {
				return false
			}
		}
		return true
	})
	release()
	awaitReal(t, "the second task to complete", func() bool {
		v, err := s.store.view(second)
		return err == nil && v.state == taskComplete
	})
}

// holdFlusher keeps the journal's writer from going on until release is called.
func holdFlusher(t *testing.T, s *service) (release func()) {
	t.Helper()
	held, gate := make(chan struct{}), make(chan struct{})
	go s.store.journal.ask(func() error {
		close(held)
		<-gate
		return nil
	})
	<-held
	release = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(release)
	return release
}

// createAside creates a task without waiting for the disk, and returns its id.
func createAside(t *testing.T, s *service, name string) uuid {
	t.Helper()
	q, err := parseTaskRequest(fmt.Appendf(nil, `{"namespace":"t","name":%q}`, name))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.store.mu.Lock()
	pos := uint32(len(s.store.slots))
	s.store.mu.Unlock()
	if _, err := s.createTask(ctx, q, true); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v; want the creation to be under way", err)
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.idLocked(pos)
}

// awaitReal polls, in real time, until something holds.
func awaitReal(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(5 * time.Second)
	defer limit.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// laggingClock is a virtual clock whose next answer lags behind, once.
type laggingClock struct {
	*virtualClock
	lag atomic.Int64 // microseconds
}

func (c *laggingClock) now() instant { return c.virtualClock.now() - instant(c.lag.Swap(0)) }

// waitingTemplate is a step that waits for its retry for a second.
var waitingTemplate = testTemplate("waiting", stepSpec{name: "a", callable: "builtin:flaky",
	retry: `{"backoff":"linear","backoff_base_ms":1000,"max_backoff_ms":1000}`})

// TestRetrySurvivesAClockSetBack sets the clock back between the timer of a retry
// and the look at whether it is due.
func TestRetrySurvivesAClockSetBack(t *testing.T) {
	clock := &laggingClock{virtualClock: newVirtualClock(testStart)}
	s := newTestService(t, serviceTest{clock: clock, extra: []string{waitingTemplate},
		config: func(c *Config) { c.Engine.Jitter = false }})
	v := mustCreate(t, s, "waiting")
	wantStates(t, settled(t, s, v.id), "waiting_for_retry: waiting_for_retry")
	clock.lag.Store(1)
	clock.advance(time.Second)
	wantStates(t, settled(t, s, v.id), "complete: complete")
}

// TestClosedServiceIsForgotten lets its timers fall due after the service ended:
// nothing keeps it alive.
func TestClosedServiceIsForgotten(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := openTestService(t, serviceTest{clock: clock, extra: []string{waitingTemplate}})
	mustCreate(t, s, "waiting")
	closeTestService(t, s)
	e := weak.Make(s.engine)
	s = nil
	clock.advance(time.Hour)
	awaitReal(t, "the engine to be forgotten", func() bool {
		runtime.GC()
		return e.Value() == nil
	})
}

// TestAttemptOvertakenWhileComputing fails and retries a step by hand while its
// builtin computes: what that came to belongs to no attempt any more.
func TestAttemptOvertakenWhileComputing(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, extra: []string{
		testTemplate("first", stepSpec{name: "a", callable: "builtin:noop", retry: `{"backoff":"none"}`})}})
	tpl, _ := s.registry().get("t", "first", "")
	var numbers []int
	s.store.mu.Lock()
	s.engine.targets[tpl] = []target{{kind: builtinHandler, builtin: &builtin{
		run: func(a *attempt) (outcome, time.Duration) {
			numbers = append(numbers, a.number)
			if len(numbers) == 1 {
				overtake(t, s, clock)
			}
			return outcome{success: true, result: fmt.Append(nil, a.number)}, 0
		}}}}
	s.store.mu.Unlock()
	v := settled(t, s, mustCreate(t, s, "first").id)
	wantStates(t, v, "complete: complete")
	if got := string(v.steps[0].last.result); got != "2" || v.steps[0].attempts != 2 {
		t.Errorf("attempt %d completed the step with the result of attempt %s; want 2 and 2", v.steps[0].attempts, got)
	}
}

// overtake lets the newest task's first step fail by hand, and its retry fall due.
func overtake(t *testing.T, s *service, clock *virtualClock) {
	s.store.mu.Lock()
	v := s.store.slots[len(s.store.slots)-1].live.clone()
	s.store.mu.Unlock()
	q := retryAction
	q.by, q.reason = "ops", "because"
	if _, _, err := s.actOnStep(t.Context(), v.id, v.stepID(0), &q); err != nil {
		t.Error(err)
	}
	clock.advance(0)
}
