package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"sync"
	"testing"
	"time"
)

// stepSpec describes a step of a test's template.
type stepSpec struct {
	name, callable string
	after          []string
	config         string // handler.initialization
	retry          string // the retry object
	timeout        int
	kind           string // standard if empty
	batch          string // the batch_config object; none if empty
}

// testTemplate returns a template of the namespace t.
func testTemplate(name string, steps ...stepSpec) string {
	parts := make([]string, len(steps))
	for i, s := range steps {
		after := []string{}
		for _, a := range s.after {
			after = append(after, fmt.Sprintf("%q", a))
		}
		parts[i] = fmt.Sprintf(`{"name":%q,"type":%q,"handler":{"callable":%q,"initialization":%s},"dependencies":[%s],"retry":%s,"timeout_seconds":%d,"batch_config":%s}`,
			s.name, cmp.Or(s.kind, stepStandard), s.callable, cmp.Or(s.config, "{}"), strings.Join(after, ","), cmp.Or(s.retry, "{}"), max(s.timeout, 30*boolCount(s.timeout == 0)), cmp.Or(s.batch, "null"))
	}
	return fmt.Sprintf(`{"namespace":"t","name":%q,"version":"1.0.0","identity_strategy":"always_unique","steps":[%s]}`,
		name, strings.Join(parts, ","))
}

// testStart is the initial time of virtual clocks in tests.
var testStart = mustInstant("2026-01-01T00:00:00Z")

func mustInstant(s string) instant {
	at, err := parseInstant(s)
	if err != nil {
		panic(err)
	}
	return at
}

// mustCreate creates a task of a template of the namespace t and returns it once no builtin computes.
func mustCreate(t *testing.T, s *service, name string, fields ...string) *task {
	t.Helper()
	body := fmt.Sprintf(`{"namespace":"t","name":%q`, name)
	for _, f := range fields {
		body += "," + f
	}
	q := must(parseTaskRequest([]byte(body + "}")))(t)
	v := must(s.createTask(t.Context(), q, true))(t)
	for s.hasQueued(v.id) && computing(s) { // the scheduler may have taken a builtin before the creation could run it
		runtime.Gosched()
	}
	return must(s.store.view(v.id))(t)
}

// hasQueued reports whether a step of a task is queued, or left its queue and computes.
func (s *service) hasQueued(id uuid) (queued bool) {
	s.store.locked(func() {
		if t := s.store.liveLocked(id); t != nil {
			queued = slices.ContainsFunc(t.steps, func(st step) bool { return st.queued })
		}
	})
	return queued
}

// settle waits until no step can start and no builtin is computing.
func settle(s *service) {
	for s.engine.pump(math.MaxInt); computing(s); s.engine.pump(math.MaxInt) {
		runtime.Gosched()
	}
}

// computing reports whether the scheduler holds a step: one that left its queue and
// still counts as queued.
func computing(s *service) bool {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	waits := map[*step]bool{}
	for _, it := range slices.Concat(s.engine.queues.local.ready.items, s.engine.queues.web.ready.items) {
		waits[&it.task.steps[it.step]] = true
	}
	for _, a := range s.engine.absent.by {
		for _, it := range a.waiting.items {
			waits[&it.task.steps[it.step]] = true
		}
	}
	for _, sl := range s.store.tasks.slots {
		if sl == nil || sl.live == nil {
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

// TestStopWithAnOutcomeOfABuiltin stops an engine while the store cannot take what a builtin returned.
func TestStopWithAnOutcomeOfABuiltin(t *testing.T) {
	s := newTestService(t, serviceTest{})
	s.engine.holdOutcome(&run{})
	s.engine.stop(t.Context())
}

// states returns the states of a task and its steps, as "complete: complete error".
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

// act applies a step action and returns the settled task.
func act(t *testing.T, s *service, v *task, step int, q stepRequest) (*task, error) {
	t.Helper()
	q.by, q.reason = "ops", "because"
	if _, _, err := s.operator.act(t.Context(), v.id, v.stepID(step), &q); err != nil {
		return nil, err
	}
	return settled(t, s, v.id), nil
}

func mustAct(t *testing.T, s *service, v *task, step int, q stepRequest) *task {
	t.Helper()
	return must(act(t, s, v, step, q))(t)
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
	type reaction struct {
		step   int
		action stepRequest
		want   string
	}
	for _, tc := range []struct {
		name      string
		reactions []reaction
	}{
		{"the failed step is reset and completed", []reaction{
			{0, failAction, "blocked_by_failures: error enqueued pending"},
			{0, resetAction, "steps_in_process: enqueued enqueued pending"},
			{0, completeAction, "steps_in_process: complete enqueued pending"},
			{1, completeAction, "complete: complete complete complete"},
		}},
		{"the failed step is resolved", []reaction{
			{1, completeAction, "steps_in_process: enqueued complete pending"},
			{0, failAction, "blocked_by_failures: error complete pending"},
			{0, resolveAction, "complete: resolved_manually complete complete"},
		}},
		{"two failed steps: both must be dealt with", []reaction{
			{0, failAction, "blocked_by_failures: error enqueued pending"},
			{1, failAction, "blocked_by_failures: error error pending"},
			{0, completeAction, "blocked_by_failures: complete error pending"},
			{1, completeAction, "complete: complete complete complete"},
		}},
		{"what ends while the task is blocked is recorded and starts nothing", []reaction{
			{0, failAction, "blocked_by_failures: error enqueued pending"},
			{1, completeAction, "blocked_by_failures: error complete pending"},
			{0, resolveAction, "complete: resolved_manually complete complete"},
		}},
		{"a cancelled step holds up what waits for it", []reaction{
			{0, cancelAction, "blocked_by_failures: cancelled enqueued pending"},
			{1, completeAction, "blocked_by_failures: cancelled complete pending"},
			{2, resolveAction, "complete: cancelled complete resolved_manually"},
		}},
		{"a failed step is given up", []reaction{
			{0, failAction, "blocked_by_failures: error enqueued pending"},
			{0, cancelAction, "blocked_by_failures: cancelled enqueued pending"},
			{2, completeAction, "steps_in_process: cancelled enqueued complete"},
			{1, completeAction, "complete: cancelled complete complete"},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: extra})
			v := mustCreate(t, s, "pair")
			for _, r := range tc.reactions {
				v = mustAct(t, s, v, r.step, r.action)
				wantStates(t, v, r.want)
			}
		})
	}
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
	refuse(v, 0, resetAction, invalidTransition, "enqueued", "pending", "only a step that failed for good")
	refuse(v, 1, failAction, invalidTransition, "pending", "error", "only a step that is enqueued or in progress")
	v = mustAct(t, s, v, 0, retryAction)
	wantStates(t, v, "waiting_for_retry: waiting_for_retry pending")
	refuse(v, 0, failAction, invalidTransition, "waiting_for_retry", "error")
	v = mustAct(t, s, v, 0, completeAction)
	wantStates(t, v, "steps_in_process: complete enqueued")
	refuse(v, 0, stepRequest{action: actionComplete}, invalidTransition, "complete") // with another result
	refuse(v, 0, resolveAction, invalidTransition, "complete", "resolved_manually", "only an unfinished step")
	v = mustAct(t, s, v, 1, completeAction)
	refuse(v, 1, resolveAction, invalidTransition, "complete")
	_, _, err := s.operator.act(t.Context(), v.id, mustCreate(t, s, "two").stepID(0), &resetAction)
	if kindOf(err) != stepMissing {
		t.Errorf("a step of another task: got %v; want not found", err)
	}
}

// TestRacingOperators lets two operators act on one failed step: one wins.
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
				_, _, errs[i] = s.operator.act(context.Background(), v.id, v.stepID(0), &q)
			})
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("got %v and %v; want one to win", errs[0], errs[1])
		}
		a, err := s.history.audit(v.id, 0, nil)
		if err != nil || len(a) != 2 {
			t.Fatalf("got %d audit entries, %v; want 2", len(a), err)
		}
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
	after := must(s.operator.cancelTask(t.Context(), v.id, taskActor{}))(t)
	wantStates(t, after, "cancelled: complete cancelled cancelled cancelled")
	clock.advance(time.Minute)
	wantStates(t, settled(t, s, v.id), "cancelled: complete cancelled cancelled cancelled")
	if _, err := s.operator.cancelTask(t.Context(), v.id, taskActor{}); kindOf(err) != invalidTransition {
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
	h := must(s.history.transitions(v.id, nil, true))(t)
	var got []string
	for n := range h.moves {
		m := h.view(n)
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
	audit := must(s.history.audit(v.id, 0, nil))(t)
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
	t.Parallel()
	slowAndSequential(t)
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
			for v.state != taskComplete { // the scheduler works on some of them
				v = settled(t, s, v.id)
			}
		})
	}
}

// A randomized model test of the core: random graphs on a virtual clock, random
// operations, passing time and restarts, and after each of them the invariants.

// lifecycleBudget is the approximate duration of the model test, in real time.
var lifecycleBudget = time.Duration(size(500, 5000)) * time.Millisecond

func TestLifecycle(t *testing.T) {
	t.Parallel()
	began := time.Now()
	for seed := uint64(1); time.Since(began) < lifecycleBudget && !t.Failed(); seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { newRandomWorld(t, seed).run() })
	}
}

// randomWorld is a service with random templates and tasks.
type randomWorld struct {
	t     *testing.T
	r     *rand.Rand
	o     serviceTest
	clock *virtualClock
	s     *service
	tasks []uuid
	acted map[uuid]int      // accepted operator actions, by step
	held  []claimedStep     // all claimed steps
	said  map[string]string // the outcome that was accepted under a lease, by its token
	keyed map[string]uuid   // tasks by the Idempotency-Key and body that created them
	did   []string          // for the report of a failure
}

func newRandomWorld(t *testing.T, seed uint64) *randomWorld {
	l := &randomWorld{t: t, r: rand.New(rand.NewPCG(seed, 0)), clock: newVirtualClock(testStart), acted: map[uuid]int{},
		keyed: map[string]uuid{}, said: map[string]string{}}
	l.o = serviceTest{dir: t.TempDir(), clock: l.clock,
		config: func(c *Config) { c.Store.Sync, c.Worker.Concurrency = "never", 2 }}
	for i := range randomTemplates {
		l.o.extra = append(l.o.extra, l.template(fmt.Sprintf("random%d", i)))
	}
	l.s = openTestService(t, l.o)
	return l
}

// randomTemplates counts the templates of a world; the last one is dynamic.
const randomTemplates = 4

// template returns a random graph of steps of every kind.
func (l *randomWorld) template(name string) string {
	steps := make([]stepSpec, 1+l.r.IntN(7))
	for i := range steps {
		steps[i] = l.step(i)
	}
	if name == fmt.Sprintf("random%d", randomTemplates-1) {
		l.makeDynamic(steps)
	}
	return testTemplate(name, steps...)
}

// makeDynamic turns the first step, which every task has, into a decision, and the
// others into any kind.
func (l *randomWorld) makeDynamic(steps []stepSpec) {
	kinds := []string{stepDecision, stepBatchable, stepBatchWorker, stepDeferredConvergence, stepStandard}
	for i := range steps {
		steps[i].kind = kinds[l.r.IntN(len(kinds))]
		if i == 0 {
			steps[i].kind = kinds[l.r.IntN(2)]
		}
		if maker(steps[i].kind) { // so that it gets the result of an actor
			steps[i].callable, steps[i].config = "Outside", ""
		}
	}
}

// result returns a random result. For a dynamic step it decides something, which may be
// impossible.
func (l *randomWorld) result() []byte {
	name := fmt.Sprintf("s%d", 1+l.r.IntN(6))
	switch l.r.IntN(3) {
	case 0:
		return []byte(createSteps(name))
	case 1:
		return []byte(createBatches(name, l.r.IntN(4)))
	}
	return []byte("1")
}

func (l *randomWorld) step(i int) stepSpec {
	s := stepSpec{name: fmt.Sprintf("s%d", i), timeout: 1 + l.r.IntN(6)}
	for p := range i {
		if l.r.IntN(3) == 0 {
			s.after = append(s.after, fmt.Sprintf("s%d", p))
		}
	}
	backoffs := []string{"none", "linear", "exponential", "fibonacci"}
	s.retry = fmt.Sprintf(`{"retryable":%t,"max_attempts":%d,"backoff":%q,"backoff_base_ms":%d}`,
		l.r.IntN(4) > 0, l.r.IntN(4), backoffs[l.r.IntN(4)], 100+l.r.IntN(2000))
	switch l.r.IntN(6) {
	case 0, 1:
		s.callable = "Outside"
		s.config = []string{"{}", `{"answer_within":"%ds"}`, `{"answer_within":"%ds","if_unanswered":{"n":1}}`}[l.r.IntN(3)]
		s.config = strings.ReplaceAll(s.config, "%d", fmt.Sprint(1+l.r.IntN(12)))
	case 2:
		s.callable = "builtin:noop"
	case 3:
		s.callable, s.config = "builtin:fail", fmt.Sprintf(`{"retryable":%t}`, l.r.IntN(2) == 0)
	case 4:
		s.callable, s.config = "builtin:flaky", fmt.Sprintf(`{"failures":%d}`, 1+l.r.IntN(2))
	case 5:
		s.callable, s.config = "builtin:sleep", fmt.Sprintf(`{"duration_ms":%d}`, 500+l.r.IntN(5000))
	}
	return s
}

func (l *randomWorld) run() {
	for range 60 {
		l.operate()
		l.check()
	}
	l.finish()
	closeTestService(l.t, l.s)
	if l.t.Failed() {
		l.t.Logf("templates:\n%s\noperations:\n%s", strings.Join(l.o.extra, "\n"), strings.Join(l.did, "\n"))
	}
}

func (l *randomWorld) note(format string, args ...any) {
	l.did = append(l.did, fmt.Sprintf(format, args...))
}

// operate does one random operation.
func (l *randomWorld) operate() {
	switch n := l.r.IntN(36); {
	case n < 4 || len(l.tasks) == 0:
		l.create()
	case n < 15:
		l.actAtRandom()
	case n < 16:
		l.cancel()
	case n < 22:
		d := time.Duration(l.r.Int64N(int64(3 * time.Second)))
		l.note("advance %s", d)
		l.clock.advance(d)
	case n < 23:
		l.note("snapshot")
		if err := l.s.store.compact(); err != nil {
			l.t.Error(err)
		}
	case n < 24:
		l.restart()
	case n < 28:
		l.claim()
	case n < 34:
		l.answer()
	default:
		l.adjust()
	}
	settle(l.s)
	l.clock.advance(0) // for deadlines that passed while their steps could not be answered
	settle(l.s)
}

// adjust changes any step's limit, inputs or both.
func (l *randomWorld) adjust() {
	n := l.r.IntN(len(l.tasks))
	v := l.view(l.tasks[n])
	step, by := l.r.IntN(len(v.steps)), &adjustment{maxAttempts: 1 + l.r.IntN(6)}
	if l.r.IntN(2) == 0 {
		by.inputs = fmt.Appendf(nil, `{"n":%d}`, l.r.IntN(9))
		by.maxAttempts *= l.r.IntN(2)
	}
	_, _, err := l.s.operator.adjust(l.t.Context(), v.id, v.stepID(step), by, taskActor{subject: "ops"})
	l.note("adjust step %d of task %d to %d, %s: %v", step, n, by.maxAttempts, by.inputs, err)
	switch kindOf(err) {
	case invalidTransition, invalidFields:
	default:
		if err != nil {
			l.t.Error(err)
		}
		l.acted[v.stepID(step)]++
	}
}

func (l *randomWorld) create() {
	name := fmt.Sprintf("random%d", l.r.IntN(randomTemplates))
	if l.r.IntN(3) == 0 {
		l.createKeyed(name)
		return
	}
	l.created(mustCreate(l.t, l.s, name, fmt.Sprintf(`"priority":%d`, l.r.IntN(3))))
}

// createKeyed creates a task under one of a few keys: a repeated request returns the
// task of the first one, and a different request with that key is refused.
func (l *randomWorld) createKeyed(name string) {
	key, body := fmt.Sprintf("k%d", l.r.IntN(4)), fmt.Sprintf(`{"namespace":"t","name":%q}`, name)
	done, err := submitKeyed(l.t.Context(), l.s, "", key, body)
	l.note("create %s under the key %s: %v", name, key, err)
	earlier, again := l.keyed[key+body]
	other := slices.ContainsFunc(slices.Collect(maps.Keys(l.keyed)), func(k string) bool { return strings.HasPrefix(k, key+"{") })
	switch {
	case err != nil:
		if again || !other || kindOf(err) != invalidFields {
			l.t.Errorf("creating %s under the key %s gives %v", name, key, err)
		}
	case done.replayed != again || again && done.task.id != earlier || !again && other:
		l.t.Errorf("creating %s under the key %s gives task %s, replayed %t; earlier %s", name, key, done.task.id,
			done.replayed, earlier)
	case !again:
		l.keyed[key+body] = done.task.id
		l.created(done.task)
	}
}

func (l *randomWorld) created(v *task) {
	for _, id := range l.tasks {
		if n, ok := v.id.minus(id); ok && n <= len(l.view(id).tpl.steps) {
			l.t.Errorf("task %s has an id that is %s's or one of its steps'", v.id, id)
		}
	}
	l.tasks = append(l.tasks, v.id)
	l.note("create %s as task %d", v.tpl.name, len(l.tasks)-1)
}

// actAtRandom takes any action on any step, allowed or not.
func (l *randomWorld) actAtRandom() {
	n := l.r.IntN(len(l.tasks))
	v := l.view(l.tasks[n])
	actions := []stepRequest{resetAction, resetAction, resolveAction, completeAction, failAction, retryAction}
	l.act(v, l.r.IntN(len(v.steps)), actions[l.r.IntN(len(actions))])
}

func (l *randomWorld) act(v *task, step int, q stepRequest) {
	q.by, q.reason = "ops", "at random"
	if q.action == actionComplete {
		q.result = l.result()
	}
	_, _, err := l.s.operator.act(l.t.Context(), v.id, v.stepID(step), &q)
	l.note("%s step %d of task %d: %v", q.action, step, slices.Index(l.tasks, v.id), err)
	switch kindOf(err) {
	case invalidTransition, conflict:
	case invalidFields:
		if v.plan == nil {
			l.t.Error(err)
		}
	default:
		if err != nil {
			l.t.Error(err)
		}
		if err == nil && l.view(v.id).lastSeq == v.lastSeq {
			return // it repeats the one before, and leaves no record
		}
		l.acted[v.stepID(step)]++
	}
}

// claim claims the ready steps for a while.
func (l *randomWorld) claim() {
	q := &claimRequest{callables: []string{"Out*"}, limit: 1 + l.r.IntN(3), worker: "w",
		lease: time.Duration(1+l.r.IntN(5)) * time.Second}
	got, err := l.s.outside.claim(l.t.Context(), q)
	if err != nil {
		l.t.Error(err)
	}
	l.note("claim %d steps for %s", len(got), q.lease)
	l.held = append(l.held, got...)
}

// answer lets an actor answer for a step that it claimed: in time, twice, or late.
func (l *randomWorld) answer() {
	if len(l.held) == 0 {
		return
	}
	c := l.held[max(0, len(l.held)-1-l.r.IntN(4))]
	q := &leaseAnswer{verb: completeVerb, outcome: outcome{success: true, result: l.result()}}
	q.setLease(c.token)
	switch l.r.IntN(4) {
	case 0:
		q.verb, q.lease = extendVerb, time.Duration(1+l.r.IntN(5))*time.Second
	case 1:
		q.verb, q.outcome = failVerb, failedOutcome("busy", "not now", l.r.IntN(3) > 0)
	}
	before := l.view(c.key.task)
	holds := before.steps[c.key.step].lease
	ends := l.leaseEnd(c.attempt.stepID)
	said := fmt.Sprint(q.verb, string(q.outcome.result), q.outcome.err)
	repeats := l.said[c.token] == said
	_, err := l.s.outside.answer(l.t.Context(), &stepAnswer{leaseAnswer: *q, step: c.attempt.stepID})
	l.note("%s step %d of task %d: %v", q.verb, c.key.step, slices.Index(l.tasks, c.key.task), err)
	mine := holds != nil && holds.is(q.hash) && ends > l.clock.now()
	if mine && q.verb != extendVerb {
		l.said[c.token] = said
	}
	if (mine || repeats) != (err == nil) || err != nil && kindOf(err) != conflict {
		l.t.Errorf("%s under the lease %+v gives %v", q.verb, holds, err)
	}
}

// leaseEnd returns when the lease of a step ends; 0 without one.
func (l *randomWorld) leaseEnd(step uuid) instant {
	l.s.store.mu.Lock()
	defer l.s.store.mu.Unlock()
	if h := l.s.engine.leases.byID[step]; h != nil {
		return h.until
	}
	return 0
}

func (l *randomWorld) cancel() {
	n := l.r.IntN(len(l.tasks))
	_, err := l.s.operator.cancelTask(l.t.Context(), l.tasks[n], taskActor{subject: "someone"})
	l.note("cancel task %d: %v", n, err)
	if err != nil && kindOf(err) != invalidTransition {
		l.t.Error(err)
	}
}

// restart ends the process, at a moment when nothing computes, and starts another. A step that waited for a slot may
// start before those that had one do again, and end its task.
func (l *randomWorld) restart() {
	l.note("restart")
	before := l.ended()
	l.s = reopenTestService(l.t, l.s, l.o)
	after := l.ended()
	for n, line := range before {
		if after[n] != line {
			l.t.Errorf("the ended task %d is after a restart\n%s\nwant\n%s", n, after[n], line)
		}
	}
}

// ended returns the lines of the ended tasks.
func (l *randomWorld) ended() map[int]string {
	l.s.store.mu.Lock()
	defer l.s.store.mu.Unlock()
	m := map[int]string{}
	for i, sl := range l.s.store.tasks.slots {
		if sl != nil && sl.live == nil {
			m[i] = string(sl.line())
		}
	}
	return m
}

func (l *randomWorld) view(id uuid) *task {
	l.t.Helper()
	return must(l.s.store.view(id))(l.t)
}

// check checks what must hold after every operation.
func (l *randomWorld) check() {
	l.t.Helper()
	checkInvariants(l.t, l.s)
	l.checkSlots()
	for _, id := range l.tasks {
		v := l.view(id)
		checkFigures(l.t, v, l.clock.now())
		x := must(l.s.engine.explain(id, nil, true))(l.t)
		checkExplanation(l.t, l.s, x)
		law := &lawful{t: l.t, ended: map[int]int{}, late: map[int]int{}}
		if _, err := l.s.store.viewObserved(id, law, nil); err != nil {
			l.t.Error(err)
		}
		l.checkAudit(v, law)
	}
	if l.t.Failed() {
		l.t.Fatalf("templates:\n%s\noperations:\n%s", strings.Join(l.o.extra, "\n"), strings.Join(l.did, "\n"))
	}
}

// checkSlots compares the slots with the attempts in flight, and those with the steps
// in progress, and finds ready steps that no queue holds.
func (l *randomWorld) checkSlots() {
	l.t.Helper()
	e := l.s.engine
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	if e.queues.local.free+len(e.work.running) != l.s.cfg.Worker.Concurrency {
		l.t.Errorf("got %d free slots beside %d attempts; want %d together", e.queues.local.free, len(e.work.running), l.s.cfg.Worker.Concurrency)
	}
	inProgress, held := 0, 0
	for pos, sl := range e.store.tasks.slots {
		if sl == nil || sl.live == nil {
			continue
		}
		for i := range sl.live.steps {
			if s := &sl.live.steps[i]; s.state != stepInProgress && sl.live.answerDue(i) != 0 && sl.live.answerDue(i) <= l.clock.now() {
				l.t.Errorf("task %d step %d is %s after the deadline of its answer", pos, i, s.state)
			}
			k := e.work.running[runKey{sl.live.id, i}]
			switch sl.live.steps[i].state {
			case stepInProgress:
				inProgress++
				if leased := sl.live.steps[i].lease != nil; leased {
					held++
					if due := sl.live.answers[i]; due != 0 && (sl.live.steps[i].lease.until > due || e.leases.byID[sl.live.stepID(i)].until > due) {
						l.t.Errorf("task %d step %d has a lease that lasts longer than the deadline of its answer", pos, i)
					}
					if e.leases.byID[sl.live.stepID(i)] == nil || k != nil {
						l.t.Errorf("task %d step %d has a lease that nobody watches over", pos, i)
					}
				} else if k == nil || k.gone {
					l.t.Errorf("task %d step %d is in progress, and nothing runs it", pos, i)
				}
			case stepEnqueued:
				outside := e.targetLocked(sl.live, i).kind == outsideActor
				if outside && sl.live.runnable(i) && e.outside.waiting.steps[runKey{sl.live.id, i}] == nil {
					l.t.Errorf("task %d step %d could be claimed and is forgotten", pos, i)
				}
				if !outside && sl.live.runnable(i) && e.queues.local.free > 0 {
					l.t.Errorf("task %d step %d could start and does not", pos, i)
				}
			}
		}
	}
	if inProgress != len(e.work.running)+held || held != len(e.leases.held.items) {
		l.t.Errorf("got %d attempts in flight and %d leases; want %d and %d as steps are in progress", len(e.work.running),
			len(e.leases.held.items), inProgress-held, held)
	}
}

// checkAudit counts entries: one for each attempt that ended, each action of an
// operator and each late result.
func (l *randomWorld) checkAudit(v *task, law *lawful) {
	l.t.Helper()
	for i := range v.steps {
		audit, err := l.s.history.audit(v.id, i, nil)
		if err != nil {
			l.t.Error(err)
		}
		if want := law.ended[i] + l.acted[v.stepID(i)]; len(audit) != want {
			l.t.Errorf("task %s step %d has %d audit entries; want %d", v.id, i, len(audit), want)
		}
		late := 0
		for _, a := range audit {
			if a.FromState == "" { // a late result
				late++
			}
			if a.ToState == "" || a.Action == "" && a.FromState != "in_progress" && a.FromState != "" {
				l.t.Errorf("task %s step %d has the audit entry %+v", v.id, i, a)
			}
		}
		if late != law.late[i] {
			l.t.Errorf("task %s step %d has %d late results in its audit; want %d", v.id, i, late, law.late[i])
		}
	}
}

// finish resolves every step by hand: tasks that were not cancelled are complete then.
func (l *randomWorld) finish() {
	for _, id := range l.tasks {
		for i := 0; i < len(l.view(id).steps); i++ { // there may be more in the end
			if v := l.view(id); v.state != taskCancelled && !v.steps[i].state.satisfies() {
				l.act(v, i, resolveAction)
				settle(l.s)
			}
		}
		if v := l.view(id); v.state != taskComplete && v.state != taskCancelled {
			l.t.Errorf("every step of task %s is resolved, and it is %s", id, states(v))
		}
	}
	l.clock.advance(time.Hour)
	settle(l.s)
	l.check()
}

// lawful follows a replay: it notes starts that were not allowed, and counts the attempts of a
// step that ended, in time or too late, without an operator.
type lawful struct {
	t     *testing.T
	r     *record
	ended map[int]int
	late  map[int]int // of these, too late
}

func (w *lawful) startRecord(_ *task, r *record) {
	w.r = r
	if r.kind == recRan || r.kind == recEnded || r.kind == recLate || r.kind == recUnanswered {
		w.ended[r.step]++
	}
	if r.kind == recLate {
		w.late[r.step]++
	}
}

func (w *lawful) taskMoved(*task, taskState, taskState, instant) {}

func (w *lawful) stepMoved(t *task, i int, _, to stepState, _ instant) {
	if to != stepInProgress && to != stepEnqueued || w.r.kind == recRecovered {
		return
	}
	for _, p := range t.parents(i) {
		if !t.steps[p].state.satisfies() {
			w.t.Errorf("record %d: step %d of task %s became %s while its parent %d was %s",
				w.r.seq, i, t.id, to, p, t.steps[p].state)
		}
	}
	if to == stepInProgress && w.r.kind != recOperator && t.state != taskStepsInProcess {
		w.t.Errorf("record %d: step %d of task %s started while the task was %s", w.r.seq, i, t.id, t.state)
	}
}

// checkFigures compares the figures of a task in the API with a naive count of its steps.
func checkFigures(t *testing.T, v *task, now instant) {
	t.Helper()
	by := map[stepState]int{}
	ready, satisfied := 0, 0
	for i := range v.steps {
		s, def, parents := &v.steps[i], v.def(i), v.parents(i)
		by[s.state]++
		done := 0
		for _, p := range parents {
			done += boolCount(v.steps[p].state.satisfies())
		}
		eligible := s.attempts == 0 || def.retry.Retryable && s.attempts < s.maxAttempts
		certain := done == len(parents) && !v.open(i)
		isReady := (s.state == stepPending || s.state == stepWaitingForRetry) && certain &&
			eligible && s.retryAt <= now
		ready += boolCount(isReady)
		satisfied += boolCount(s.state.satisfies())
		x := newStepView(v, i, now, "")
		if x.parents-x.step.waitingFor != done || x.parents != len(parents) || x.eligible != eligible ||
			x.ready != isReady || x.satisfied != certain {
			t.Errorf("%s: step %d is shown as %+v", states(v), i, x)
		}
		if (s.state == stepWaitingForRetry) != (s.retryAt != 0) {
			t.Errorf("%s: step %d has its next retry at %d", states(v), i, s.retryAt)
		}
	}
	var x bareTask
	if err := json.Unmarshal(jsonOf(taskView{task: v, now: now}), &x); err != nil {
		t.Error(err)
	}
	got := []any{x.TotalSteps, x.PendingSteps, x.InProgressSteps, x.CompletedSteps, x.FailedSteps, x.ReadySteps,
		x.ExecutionStatus, x.CompletionPercentage, x.CompletedAt != nil}
	want := []any{len(v.steps), by[stepPending], by[stepInProgress], satisfied, by[stepInError], ready,
		naiveStatus(by, ready, len(v.steps)), math.Round(float64(satisfied)*10000/float64(len(v.steps))) / 100,
		v.state == taskComplete || v.state == taskCancelled}
	if !slices.Equal(got, want) {
		t.Errorf("%s is shown as %v; want %v", states(v), got, want)
	}
	if want := naiveState(by, len(v.steps)); v.state != want {
		t.Errorf("got %s; want the task %s", states(v), want)
	}
}

func naiveStatus(by map[stepState]int, ready, total int) string {
	switch {
	case by[stepCancelled] > 0: // together with its task: a single step is never cancelled here
		return "waiting_for_dependencies"
	case by[stepInError] > 0:
		return "blocked_by_failures"
	case ready > 0:
		return "has_ready_steps"
	case by[stepInProgress]+by[stepEnqueued] > 0:
		return "processing"
	case by[stepComplete]+by[stepResolvedManually] == total:
		return "all_complete"
	}
	return "waiting_for_dependencies"
}

// naiveState returns the state in which a task rests.
func naiveState(by map[stepState]int, total int) taskState {
	switch {
	case by[stepCancelled] > 0:
		return taskCancelled
	case by[stepInError] > 0:
		return taskBlockedByFailures
	case by[stepComplete]+by[stepResolvedManually] == total:
		return taskComplete
	case by[stepInProgress]+by[stepEnqueued] > 0:
		return taskStepsInProcess
	case by[stepWaitingForRetry] > 0:
		return taskWaitingForRetry
	}
	return taskWaitingForDependencies
}

// Large tasks, and many at once: costs that must not grow with their number are counted rather
// than timed.

// stuckTemplate returns a template of one step, which the handler runs once, for an hour at
// most.
func stuckTemplate(h *wire.HeldHandler) string {
	return testTemplate("slow", stepSpec{name: "a", callable: h.URL, timeout: 3600, retry: `{"max_attempts":1}`})
}

// TestManySteps runs tasks of 2,000 steps, or 10,000, through the API. Each step is one record, whatever
// the graph.
func TestManySteps(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	n := size(2_000, 10_000)
	for _, shape := range stepShapes {
		t.Run(shape.name, func(t *testing.T) {
			s := newTestServer(t, serviceTest{
				extra: []string{benchTemplate("shape", "builtin:noop", shapeParents(n, shape.parents))}})
			before := s.svc.store.journal.status().records
			v := s.do("POST", "/v1/tasks?wait=1m", `{"namespace":"bench","name":"shape"}`).want(201)
			if got, want := v.text("status")+" "+v.text("completed_steps"), fmt.Sprintf("complete %d", n); want != got {
				t.Errorf("got %s; want %s", got, want)
			}
			// Beside the steps': the template and the creation.
			if got := s.svc.store.journal.status().records - before; got != uint64(n)+2 {
				t.Errorf("got %d records; want %d", got, n+2)
			}
			path := "/v1/tasks/" + v.text("task_uuid")
			steps := s.do("GET", path+"/workflow_steps", "").want(200)
			if got := steps.length(); got != n {
				t.Fatalf("got %d steps; want %d", got, n)
			}
			last := s.do("GET", path+"/workflow_steps/"+steps.text(fmt.Sprintf("%d.step_uuid", n-1)), "").want(200)
			if got, want := last.text("name")+" "+last.text("current_state"), fmt.Sprintf("s%d complete", n-1); got != want {
				t.Errorf("the last step is %s; want %s", got, want)
			}
			if got := s.do("GET", path, "").want(200).text("completion_percentage"); got != "100" {
				t.Errorf("got %s %% complete; want 100", got)
			}
		})
	}
}

// TestManyWaiting lets many tasks wait an hour for their next attempt, which takes no goroutine
// and no record.
func TestManyWaiting(t *testing.T) {
	slow(t)
	tasks := uint64(size(10_000, 100_000))
	if wire.RaceDetector() {
		tasks = 2_000 // each takes ten times as long
	}
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, config: func(c *Config) { c.Engine.Jitter = false },
		extra: []string{testTemplate("later", stepSpec{name: "a", callable: "builtin:flaky", config: `{"failures":1}`,
			retry: `{"max_attempts":2,"backoff_base_ms":3600000,"max_backoff_ms":3600000}`})}})
	mustCreate(t, s, "later")
	goroutines, records := runtime.NumGoroutine(), s.store.journal.status().records
	for range tasks - 1 {
		mustCreate(t, s, "later")
	}
	wantSteps := func(state stepState) {
		t.Helper()
		settle(s)
		s.store.mu.Lock()
		defer s.store.mu.Unlock()
		if got := uint64(s.store.tasks.index.steps[state]); got != tasks {
			t.Errorf("got %d steps %s; want %d", got, state, tasks)
		}
	}
	wantSteps(stepWaitingForRetry)
	const each = 2 // a creation and an attempt
	if got := s.store.journal.status().records - records; got != each*(tasks-1) {
		t.Errorf("got %d records; want %d", got, each*(tasks-1))
	}
	if got := runtime.NumGoroutine(); got > goroutines+10 {
		t.Errorf("got %d goroutines; there were %d with one task", got, goroutines)
	}
	records = s.store.journal.status().records
	clock.advance(59 * time.Minute)
	wantSteps(stepWaitingForRetry)
	if got := s.store.journal.status().records - records; got != 0 {
		t.Errorf("waiting wrote %d records", got)
	}
	clock.advance(time.Minute)
	wantSteps(stepComplete)
}

// TestManySlowHandlers waits for a thousand HTTP handlers: other tasks end meanwhile, and their
// tasks end once the handlers answer.
func TestManySlowHandlers(t *testing.T) {
	slow(t)
	t.Parallel()
	const slow, others = 1_000, 200
	h := wire.NewHeldHandler(t, slow)
	s := newTestServer(t, serviceTest{extra: []string{stuckTemplate(h), benchTemplate("diamond", "builtin:noop", diamondParents)}})
	for range slow {
		s.create(`{"namespace":"t","name":"slow"}`)
	}
	for range slow {
		h.Await(t)
	}
	for range others {
		if got := s.do("POST", "/v1/tasks?wait=30s", diamondBody).want(201).text("status"); got != "complete" {
			t.Fatalf("a diamond is %s; want complete", got)
		}
	}
	wantCount := func(name, status, want string) {
		t.Helper()
		if got := s.do("GET", "/v1/tasks?per_page=1&name="+name+"&status="+status, "").want(200).text("pagination.total_count"); got != want {
			t.Errorf("got %s tasks %s in %s; want %s", got, name, status, want)
		}
	}
	wantCount("diamond", "complete", "200")
	wantCount("slow", "steps_in_process", "1000")
	close(h.Release)
	eventually(t, "the slow tasks are complete", func() bool {
		return s.do("GET", "/v1/tasks?per_page=1&name=slow&status=complete", "").want(200).text("pagination.total_count") == "1000"
	})
}

// yielder is an HTTP handler that counts to its goal in steps of one, and yields after each.
type yielder struct {
	goal int
	keys []string
	fail func(n int) bool // at this number of calls
}

func (y *yielder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	y.keys = append(y.keys, r.Header.Get("Idempotency-Key"))
	if y.fail != nil && y.fail(len(y.keys)) {
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	n, _ := jsonInt(objectMember(objectMember(objectMember(body, "step"), "checkpoint"), "cursor"))
	if int(n) == y.goal {
		fmt.Fprintf(w, `{"success":true,"result":%d}`, n)
		return
	}
	fmt.Fprintf(w, `{"success":true,"checkpoint":{"cursor":%d,"accumulated_results":%q}}`, n+1, strings.Repeat("x", 200))
}

// TestHandlerYields checks that a step whose handler yields runs again without using an attempt,
// continues from its checkpoint after a failure, and leaves only the newest one in the log of its
// task, however many there were; and that this is so after a restart.
func TestHandlerYields(t *testing.T) {
	y := &yielder{goal: 300, fail: func(n int) bool { return n == 100 }}
	web := httptest.NewServer(y)
	t.Cleanup(web.Close)
	dir, tpl := t.TempDir(), testTemplate("yields",
		stepSpec{name: "a", callable: web.URL, retry: `{"max_attempts":2,"backoff_base_ms":1}`},
		stepSpec{name: "b", callable: "Outside", after: []string{"a"}})
	s := newTestService(t, serviceTest{dir: dir, extra: []string{tpl}})
	id := mustCreate(t, s, "yields").id
	most := 0
	wire.Eventually(t, "the step is complete", func() bool {
		v := must(s.store.view(id))(t)
		most = max(most, len(v.log))
		return v.steps[0].state == stepComplete
	})
	v := must(s.store.view(id))(t)
	if got := &v.steps[0]; got.attempts != 2 || string(got.last.result) != "300" || got.checkpoint != nil {
		t.Errorf("got %d attempts, result %s, checkpoint %v; want 2, 300 and none", got.attempts, got.last.result, got.checkpoint)
	}
	if most > 5000 {
		t.Errorf("the log had %d bytes; want the newest checkpoint and few others", most)
	}
	first, last := v.stepID(0).String()+":1", v.stepID(0).String()+":2:300"
	if n := len(y.keys); n != 302 || y.keys[0] != first || y.keys[1] != first+":1" || y.keys[n-1] != last {
		t.Errorf("got %d deliveries with the keys %s, %s … %s", n, y.keys[0], y.keys[1], y.keys[n-1])
	}
	mustAct(t, s, v, 1, completeAction)
	kept := must(s.store.view(id))(t)
	if n := strings.Count(string(kept.log), `"kind":"checkpoint"`); n != 1 {
		t.Errorf("the log of the finished task has %d checkpoints; want 1: %s", n, kept.log)
	}
	closeTestService(t, s)
	again := must(newTestService(t, serviceTest{dir: dir, extra: []string{tpl}}).store.view(id))(t)
	if string(again.log) != string(kept.log) {
		t.Errorf("after a restart: got %s; want %s", again.log, kept.log)
	}
}
