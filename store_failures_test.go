package main

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// plainFailure is a failing step as a plain search of all tasks finds it.
type plainFailure struct {
	failingStep
	group failureGroup
	task  *task
}

// plainFailures looks for the failing steps of a task.
func plainFailures(t *task, pos uint32) (found []plainFailure) {
	for i := range t.steps {
		s := &t.steps[i]
		switch {
		case s.state == stepInError, s.state == stepWaitingForRetry, s.state == stepPending && s.last != nil && s.last.retryAt > 0:
			f, _ := s.last.fault()
			message, _ := jsonString(f.message)
			cause := failureCause{t.tpl.namespace, t.tpl.name, t.tpl.steps[t.declared(i)].name, f.errorType, groupMessage(message)}
			place := stepPlace{pos, uint32(i)}
			found = append(found, plainFailure{failingStep{place, s.state == stepInError, s.failed}, cause.group(), t})
		}
	}
	return found
}

// checkFailures compares the index of failing steps, and what it answers, with a recount from all tasks.
func checkFailures(t testing.TB, s *store, found []plainFailure) {
	t.Helper()
	x := &s.tasks.index.failures
	places := map[stepPlace]groupPlace{}
	groups := map[failureGroup][]failingStep{}
	for _, f := range found {
		p := x.places[f.stepPlace]
		if p.group != f.group || int(p.n) >= len(x.groups[f.group]) || x.groups[f.group][p.n] != f.failingStep {
			t.Errorf("step %d of task %s has the place %v; want it in %s as %+v", f.step, f.task.id, p, f.group, f.failingStep)
		}
		places[f.stepPlace] = p
		groups[f.group] = append(groups[f.group], f.failingStep)
	}
	if !maps.Equal(places, x.places) || len(groups) != len(x.groups) {
		t.Errorf("the index has the failing steps %v in %d groups; want %v in %d", x.places, len(x.groups), places, len(groups))
	}
	counts := recount(found)
	for _, limit := range []int{1, 2, 1000} {
		checkFailureCounts(t, s.tasks.countFailures(&taskFilter{}, limit), found, counts, limit)
	}
	for g := range groups {
		want := failedTasks(found, func(f plainFailure) bool { return f.group == g })
		got := s.tasks.index.list(&taskQuery{taskFilter: taskFilter{failure: g}, ascending: true, limit: 1e6}).positions
		if !slices.Equal(got, want) {
			t.Errorf("tasks at %v are listed of group %s; want %v", got, g, want)
		}
	}
}

// failedTasks returns the positions of the tasks of some failures.
func failedTasks(found []plainFailure, are func(f plainFailure) bool) []uint32 {
	all := map[uint32]bool{}
	for _, f := range found {
		if are(f) {
			all[f.pos] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// recount counts failures by group, those with the most tasks first.
func recount(found []plainFailure) (counts []failureCount) {
	names := map[failureGroup]bool{}
	for _, f := range found {
		if !names[f.group] {
			names[f.group] = true
			counts = append(counts, countPlainly(found, func(other plainFailure) bool { return other.group == f.group }))
			counts[len(counts)-1].group = f.group
		}
	}
	slices.SortFunc(counts, func(a, b failureCount) int {
		return cmp.Or(b.stuck-a.stuck, b.retrying-a.retrying, int(b.last-a.last), cmp.Compare(a.group, b.group))
	})
	return counts
}

// countPlainly counts the tasks of some failures.
func countPlainly(found []plainFailure, are func(f plainFailure) bool) (c failureCount) {
	stuck := failedTasks(found, func(f plainFailure) bool {
		return are(f) && (f.task.steps[f.step].state == stepInError || f.task.state == taskError)
	})
	c.stuck, c.retrying = len(stuck), len(failedTasks(found, are))-len(stuck)
	for _, f := range found {
		if are(f) {
			if c.first == 0 || f.at < c.first {
				c.first = f.at
			}
			c.last = max(c.last, f.at)
		}
	}
	return c
}

func checkFailureCounts(t testing.TB, got failureCounts, found []plainFailure, want []failureCount, limit int) {
	t.Helper()
	listed := map[failureGroup]bool{}
	for i, c := range got.top {
		sample := c.sample
		if c.sample = (failingStep{}); i >= len(want) || c != want[i] {
			t.Errorf("group %d of at most %d is %+v; want them to be %+v", i, limit, c, want)
		}
		listed[c.group] = true
		of := slices.IndexFunc(found, func(f plainFailure) bool { return f.stepPlace == sample.stepPlace })
		if of < 0 || found[of].group != c.group || sample.forGood != (c.stuck > 0) {
			t.Errorf("group %s has the sample %+v", c.group, sample)
		}
	}
	others := countPlainly(found, func(f plainFailure) bool { return !listed[f.group] })
	if got.others.sample = (failingStep{}); got.others != others || got.groups != len(want) || len(got.top) != min(limit, len(want)) {
		t.Errorf("of %d groups, those not among the %d first are counted as %+v; want %+v of %d",
			got.groups, len(got.top), got.others, others, len(want))
	}
}

// failureWorld is a service whose tasks fail at random.
type failureWorld struct {
	t *testing.T
	r *rand.Rand
	o serviceTest
	s *service
}

// failingTemplates have steps that fail for good, are retried, are set aside, and become stale.
func failingTemplates() []string {
	work := batchSteps("continue_on_failure", 10)
	work[1].retry = `{"max_attempts":2,"backoff_base_ms":600000}`
	isolated := batchSteps("isolate", 10)
	for i := range work {
		work[i].callable, isolated[i].callable = "Outside", "Outside"
	}
	return append(staleTemplates()[2:4], dlqTemplates[0], storyTemplates[1], testTemplate("batch", work...), testTemplate("isolated", isolated...))
}

// TestFailuresAtRandom does random things to failing tasks, with drops, packing, snapshots and restarts, and
// compares the failure groups with a recount from all tasks.
func TestFailuresAtRandom(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := &failureWorld{t: t, r: rand.New(rand.NewPCG(seed, 3)), o: serviceTest{
				dir: t.TempDir(), clock: newVirtualClock(testStart), extra: failingTemplates(),
				config: func(c *Config) {
					c.Store.Sync, c.Store.RetainFinishedCount, c.Events.Keep = "never", 2+int(seed), 10
				},
			}}
			w.open()
			for n := range 300 {
				w.act()
				settle(w.s)
				if n%3 == 0 {
					checkInvariants(t, w.s)
				}
				if t.Failed() {
					break
				}
			}
			closeTestService(t, w.s)
		})
	}
}

func (w *failureWorld) open() {
	w.s = openTestService(w.t, w.o)
	w.s.store.tasks.packing.floor = 1
	checkInvariants(w.t, w.s)
}

// some returns a random task, or nil.
func (w *failureWorld) some() *task {
	l := w.s.store.list(&taskQuery{limit: 1000})
	if len(l.tasks) == 0 {
		return nil
	}
	listed := l.tasks[w.r.IntN(len(l.tasks))]
	v, _, err := w.s.store.templates.listed(&listed, nil)
	noError(w.t, err)
	return must(w.s.store.view(v.id))(w.t)
}

// act does something to the service, which may refuse it.
func (w *failureWorld) act() {
	v := w.some()
	switch n := w.r.IntN(40); {
	case n < 8 || v == nil:
		for range 4 { // which are dropped later
			mustCreate(w.t, w.s, "noop")
		}
		mustCreate(w.t, w.s, []string{"error", "dlq", "pair", "batch", "isolated"}[w.r.IntN(5)])
	case n < 30:
		w.actOn(v, w.r.IntN(len(v.steps)))
	case n < 31:
		w.s.operator.cancelTask(w.t.Context(), v.id, taskActor{})
	case n < 33:
		if d := v.pendingLetter(); d != nil {
			w.s.dlq.update(w.t.Context(), dlqEntryID(v.id, d.at, d.seq), &investigation{status: dlqCancelled}, nil)
		}
	case n < 37:
		w.o.clock.(*virtualClock).advance(time.Duration(w.r.IntN(40)) * time.Minute)
	case n < 39:
		noError(w.t, w.s.store.snapshot())
	default:
		closeTestService(w.t, w.s)
		w.open()
	}
}

// actOn does something to a step.
func (w *failureWorld) actOn(v *task, i int) {
	q := completeAction
	switch n := w.r.IntN(10); {
	case n < 6 && v.steps[i].state == stepEnqueued:
		q = stepRequest{action: actionFail, err: &stepError{
			message:   fmt.Sprintf("%s %d", []string{"no order", "no funds for"}[w.r.IntN(2)], w.r.IntN(100)),
			errorType: "refused", retryable: w.r.IntN(2) == 0,
		}}
	case n == 6:
		q = resetAction
	case n == 7:
		q = resolveAction
	case n == 8 && w.r.IntN(3) == 0:
		q = cancelAction
	case n == 9:
		w.s.operator.adjust(w.t.Context(), v.id, v.stepID(i), &adjustment{maxAttempts: 1 + w.r.IntN(5)}, taskActor{})
		return
	case v.def(i).name == "split":
		q.result = []byte(createBatches("w", 1+w.r.IntN(4)))
	}
	q.by, q.reason = "ops", "because"
	w.s.operator.act(w.t.Context(), v.id, v.stepID(i), &q)
}
