package main

// A randomized model test of the core: random graphs on a virtual clock, random
// operations of operators, time and restarts, and after each of them what must
// hold whatever happened.

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// lifecycleBudget is the real time that the model test takes at most, about.
const lifecycleBudget = 2 * time.Second

func TestLifecycle(t *testing.T) {
	began := time.Now()
	for seed := uint64(1); time.Since(began) < lifecycleBudget && !t.Failed(); seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { newRandomWorld(t, seed).run() })
	}
}

// randomWorld is one random world.
type randomWorld struct {
	t     *testing.T
	r     *rand.Rand
	o     serviceTest
	clock *virtualClock
	s     *service
	tasks []uuid
	acted map[uuid]int // operator actions that were taken, by step
	held  []claim      // what was claimed, whatever became of it
	did   []string     // for the report of a failure
}

func newRandomWorld(t *testing.T, seed uint64) *randomWorld {
	l := &randomWorld{t: t, r: rand.New(rand.NewPCG(seed, 0)), clock: newVirtualClock(testStart), acted: map[uuid]int{}}
	l.o = serviceTest{dir: t.TempDir(), clock: l.clock,
		config: func(c *Config) { c.Store.Sync, c.Worker.Concurrency = "never", 2 }}
	for i := range 3 {
		l.o.extra = append(l.o.extra, l.template(fmt.Sprintf("random%d", i)))
	}
	l.s = openTestService(t, l.o)
	return l
}

// template is a random graph of steps of every kind.
func (l *randomWorld) template(name string) string {
	steps := make([]stepSpec, 1+l.r.IntN(7))
	for i := range steps {
		steps[i] = l.step(i)
	}
	return testTemplate(name, steps...)
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

// operate does one random thing.
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
		if err := l.s.store.snapshot(); err != nil {
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
	_, _, err := l.s.adjustStep(l.t.Context(), v.id, v.stepID(step), by, "ops")
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
	v := mustCreate(l.t, l.s, fmt.Sprintf("random%d", l.r.IntN(3)), fmt.Sprintf(`"priority":%d`, l.r.IntN(3)))
	for _, id := range l.tasks {
		if n, ok := v.id.minus(id); ok && n <= len(l.view(id).steps) {
			l.t.Errorf("task %s has an id that is %s's or one of its steps'", v.id, id)
		}
	}
	l.tasks = append(l.tasks, v.id)
	l.note("create %s as task %d", v.tpl.name, len(l.tasks)-1)
}

// actAtRandom takes any action on any step; whether it is allowed is the service's to say.
func (l *randomWorld) actAtRandom() {
	n := l.r.IntN(len(l.tasks))
	v := l.view(l.tasks[n])
	actions := []stepRequest{resetAction, resetAction, resolveAction, completeAction, failAction, retryAction}
	l.act(v, l.r.IntN(len(v.steps)), actions[l.r.IntN(len(actions))])
}

func (l *randomWorld) act(v *task, step int, q stepRequest) {
	q.by, q.reason = "ops", "at random"
	_, _, err := l.s.actOnStep(l.t.Context(), v.id, v.stepID(step), &q)
	l.note("%s step %d of task %d: %v", q.action, step, slices.Index(l.tasks, v.id), err)
	switch kindOf(err) {
	case invalidTransition, conflict:
	default:
		if err != nil {
			l.t.Error(err)
		}
		l.acted[v.stepID(step)]++
	}
}

// claim claims what there is, for a while.
func (l *randomWorld) claim() {
	q := &claimRequest{callables: []string{"Out*"}, limit: 1 + l.r.IntN(3), worker: "w",
		lease: time.Duration(1+l.r.IntN(5)) * time.Second}
	got, err := l.s.claim(l.t.Context(), q)
	if err != nil {
		l.t.Error(err)
	}
	l.note("claim %d steps for %s", len(got), q.lease)
	l.held = append(l.held, got...)
}

// answer has an actor say something about what it claimed: in time, twice, or
// late.
func (l *randomWorld) answer() {
	if len(l.held) == 0 {
		return
	}
	c := l.held[max(0, len(l.held)-1-l.r.IntN(4))]
	q := &leaseAnswer{verb: completeVerb, hash: hashLease(c.token), outcome: outcome{success: true, result: []byte("1")}}
	switch l.r.IntN(4) {
	case 0:
		q.verb, q.lease = extendVerb, time.Duration(1+l.r.IntN(5))*time.Second
	case 1:
		q.verb, q.outcome = failVerb, failedOutcome("busy", "not now", l.r.IntN(3) > 0)
	}
	before := l.view(c.key.task)
	holds := before.steps[c.key.step].lease
	_, _, err := l.s.answerLease(l.t.Context(), c.attempt.stepID, q)
	l.note("%s step %d of task %d: %v", q.verb, c.key.step, slices.Index(l.tasks, c.key.task), err)
	mine := holds != nil && holds.is(q.hash) && holds.until > l.clock.now()
	if mine != (err == nil) || err != nil && kindOf(err) != conflict {
		l.t.Errorf("%s under the lease %+v gives %v", q.verb, holds, err)
	}
}

func (l *randomWorld) cancel() {
	n := l.r.IntN(len(l.tasks))
	_, err := l.s.cancelTask(l.t.Context(), l.tasks[n], "someone")
	l.note("cancel task %d: %v", n, err)
	if err != nil && kindOf(err) != invalidTransition {
		l.t.Error(err)
	}
}

// restart ends the process, at any moment that nothing computes, and starts another.
func (l *randomWorld) restart() {
	l.note("restart")
	before := l.ended()
	closeTestService(l.t, l.s)
	l.s = openTestService(l.t, l.o)
	if after := l.ended(); !maps.Equal(before, after) {
		l.t.Errorf("the ended tasks are after a restart\n%v\nwant\n%v", after, before)
	}
}

// ended is the ended tasks, as their lines.
func (l *randomWorld) ended() map[int]string {
	l.s.store.mu.Lock()
	defer l.s.store.mu.Unlock()
	m := map[int]string{}
	for i, sl := range l.s.store.slots {
		if sl.live == nil {
			m[i] = string(sl.line)
		}
	}
	return m
}

func (l *randomWorld) view(id uuid) *task {
	l.t.Helper()
	v, err := l.s.store.view(id)
	if err != nil {
		l.t.Fatal(err)
	}
	return v
}

// check is what must hold after every operation.
func (l *randomWorld) check() {
	l.t.Helper()
	checkInvariants(l.t, l.s)
	l.checkSlots()
	for _, id := range l.tasks {
		v := l.view(id)
		checkFigures(l.t, v, l.clock.now())
		x, err := l.s.explain(id)
		if err != nil {
			l.t.Fatal(err)
		}
		checkExplanation(l.t, l.s, x)
		law := &lawful{t: l.t, ended: map[int]int{}, late: map[int]int{}}
		if _, err := l.s.store.viewObserved(id, law); err != nil {
			l.t.Error(err)
		}
		l.checkAudit(v, law)
	}
	if l.t.Failed() {
		l.t.Fatalf("templates:\n%s\noperations:\n%s", strings.Join(l.o.extra, "\n"), strings.Join(l.did, "\n"))
	}
}

// checkSlots holds the slots against the attempts in flight, those against the
// steps in progress, and finds steps that are ready and forgotten.
func (l *randomWorld) checkSlots() {
	l.t.Helper()
	e := l.s.engine
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	if e.slots+len(e.running) != l.s.cfg.Worker.Concurrency {
		l.t.Errorf("got %d free slots beside %d attempts; want %d together", e.slots, len(e.running), l.s.cfg.Worker.Concurrency)
	}
	inProgress, held := 0, 0
	for pos, sl := range e.store.slots {
		if sl.live == nil {
			continue
		}
		for i := range sl.live.steps {
			k := e.running[runKey{sl.live.id, i}]
			switch sl.live.steps[i].state {
			case stepInProgress:
				inProgress++
				if leased := sl.live.steps[i].lease != nil; leased {
					held++
					if e.outside.leases.byID[sl.live.stepID(i)] == nil || k != nil {
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
				if !outside && sl.live.runnable(i) && e.slots > 0 {
					l.t.Errorf("task %d step %d could start and does not", pos, i)
				}
			}
		}
	}
	if inProgress != len(e.running)+held || held != len(e.outside.leases.held) {
		l.t.Errorf("got %d attempts in flight and %d leases; want %d and %d as steps are in progress", len(e.running),
			len(e.outside.leases.held), inProgress-held, held)
	}
}

// checkAudit counts: one entry for each attempt that ended, each action of an
// operator, each late result.
func (l *randomWorld) checkAudit(v *task, law *lawful) {
	l.t.Helper()
	for i := range v.steps {
		audit, err := l.s.audit(v.id, v.stepID(i))
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

// finish resolves every step by hand: what was not cancelled is then complete.
func (l *randomWorld) finish() {
	for _, id := range l.tasks {
		for i := range l.view(id).steps {
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

// lawful follows a replay: which starts were not allowed, and how many attempts
// of a step ended, or ended too late, without an operator.
type lawful struct {
	t     *testing.T
	r     *record
	ended map[int]int
	late  map[int]int // of these, too late
}

func (w *lawful) begin(_ *task, r *record) {
	w.r = r
	if r.kind == recRan || r.kind == recEnded || r.kind == recLate {
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

// checkFigures holds what the API says of a task against a naive look at its steps.
func checkFigures(t *testing.T, v *task, now instant) {
	t.Helper()
	by := map[stepState]int{}
	ready, satisfied := 0, 0
	for i := range v.steps {
		s, def, parents := &v.steps[i], v.def(i), v.parents(i)
		by[s.state]++
		done := 0
		for _, p := range parents {
			done += boolInt(v.steps[p].state.satisfies())
		}
		eligible := s.attempts == 0 || def.retry.retryable && s.attempts < s.maxAttempts
		certain := done == len(parents) && !v.open(i)
		isReady := (s.state == stepPending || s.state == stepWaitingForRetry) && certain &&
			eligible && s.retryAt <= now
		ready += boolInt(isReady)
		satisfied += boolInt(s.state.satisfies())
		x := v.stepView(i, now, "")
		if x.CompletedParents != done || x.TotalParents != len(parents) || x.RetryEligible != eligible ||
			x.ReadyForExecution != isReady || x.DependenciesSatisfied != certain {
			t.Errorf("%s: step %d is shown as %+v", states(v), i, x)
		}
		if (s.state == stepWaitingForRetry) != (s.retryAt != 0) {
			t.Errorf("%s: step %d has its next retry at %d", states(v), i, s.retryAt)
		}
	}
	var x bareTask
	if err := json.Unmarshal(taskView{task: v, now: now}.appendJSON(nil), &x); err != nil {
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
	case by[stepInError]+by[stepCancelled] > 0:
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

// naiveState is the state that a task rests in.
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
