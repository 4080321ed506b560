package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

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
			return len(s.engine.work.running) == 1
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

// TestParallelismOfBuiltins checks that the limit holds for handlers of this process, and that
// a cancelled task leaves nothing behind.
func TestParallelismOfBuiltins(t *testing.T) {
	c := newVirtualClock(testStart)
	steps := batchSteps("fail_fast", 3)[:2]
	steps[1].callable, steps[1].config = "builtin:sleep", `{"duration_ms":1000}`
	a := newActor(t, serviceTest{clock: c}, steps...)
	a.completeWith("split", createBatches("w", 10))
	for second := range 4 {
		if got, want := a.view().counts[stepInProgress], min(3, 10-3*second); got != want {
			t.Errorf("after %d s: %d run; want %d", second, got, want)
		}
		c.advance(time.Second)
	}
	if v := a.view(); v.state != taskComplete {
		t.Errorf("got %s", grown(v))
	}
	a.id = mustCreate(t, a.s, "grows").id
	a.completeWith("split", createBatches("w", 10))
	must(a.s.operator.cancelTask(t.Context(), a.id, taskActor{}))(t)
	a.s.store.locked(func() {
		if n := len(a.s.engine.gates); n != 0 {
			t.Errorf("%d gates are left", n)
		}
	})
}

// createBatches returns the result of a batchable step with n cursors.
func createBatches(worker string, n int) string {
	cursors := make([]string, n)
	for i := range cursors {
		cursors[i] = fmt.Sprintf(`{"start_cursor":%d,"end_cursor":%d}`, i*10, i*10+10)
	}
	return fmt.Sprintf(`{"batch_processing_outcome":{"type":"create_batches","worker_template_name":%q,"worker_count":%d,`+
		`"cursor_configs":[%s],"total_items":%d}}`, worker, n, strings.Join(cursors, ","), n*10)
}

// batchSteps returns a batch of instances for outside actors and a convergence, with a
// failure_strategy and a parallelism.
func batchSteps(strategy string, parallelism int) []stepSpec {
	work := stepOf(stepBatchWorker, "w", "split")
	work.retry = `{"max_attempts":1}`
	work.batch = fmt.Sprintf(`{"batch_size":10,"parallelism":%d,"cursor_field":"id","worker_template":"w","failure_strategy":%q}`,
		parallelism, strategy)
	return []stepSpec{stepOf(stepBatchable, "split"), work, stepOf(stepDeferredConvergence, "end", "w"), stepOf("", "last", "end")}
}

// TestParallelism checks that at most so many instances of a batch worker are offered or run at
// once, in the order of their creation, that an explanation says so, and that this holds after
// failures, actions of operators and a restart.
func TestParallelism(t *testing.T) {
	dir, steps := t.TempDir(), batchSteps("continue_on_failure", 2)
	a := newActor(t, serviceTest{dir: dir}, steps...)
	a.completeWith("split", createBatches("w", 6))
	offered := func(want string) {
		t.Helper()
		var names []string
		for _, v := range a.s.outside.steps(false, true, false, func(claimKey) bool { return true }, 0, 100) {
			names = append(names, v.name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Fatalf("got %s offered; want %s: %s", got, want, grown(a.view()))
		}
	}
	claim := func() []claimedStep {
		return must(a.s.outside.claim(t.Context(), &claimRequest{callables: []string{"*"}, limit: 10, lease: time.Hour, worker: "me"}))(t)
	}
	offered("w_001 w_002")
	a.complete("w_001")
	offered("w_002 w_003")
	noError(t, a.act("w_004", resolveAction)) // which waits
	offered("w_002 w_003")
	if given := claim(); len(given) != 2 {
		t.Fatalf("got %d steps claimed; want 2", len(given))
	}
	offered("")
	closeTestService(t, a.s)
	a.s = newTestService(t, serviceTest{dir: dir, extra: []string{actorTemplate(steps...)}})
	offered("")
	x := must(a.s.engine.explain(a.id, nil, true))(t)
	if got := x.Steps[2]; got.Name != "w_005" || got.Cause != causeBatch || got.Message != "waits for other parts of its batch: 2 of 2 at once" {
		t.Errorf("got %s, %s: %s", got.Name, got.Cause, got.Message)
	}
	noError(t, a.act("w_002", failAction))
	offered("w_005")
	a.complete("w_003", "w_005", "w_006")
	a.want("blocked_by_failures: split=complete w_001=complete w_002=error w_003=complete w_004=resolved_manually " +
		"w_005=complete w_006=complete end=pending last=pending")
}
