package main

// Tasks that grow: decisions, convergences and batches, played step by step.

import (
	"strings"
	"testing"
)

// TestFailureStrategies checks what each failure_strategy makes of an instance that fails for
// good: which steps still run, when the task is blocked, and how it continues; also after a restart.
func TestFailureStrategies(t *testing.T) {
	for strategy, want := range map[string][]string{
		"fail_fast": {
			"blocked_by_failures: split=complete w_001=error w_002=enqueued w_003=enqueued end=pending",
			"blocked_by_failures: split=complete w_001=error w_002=complete w_003=complete end=pending",
			"steps_in_process: split=complete w_001=enqueued w_002=complete w_003=complete end=pending",
		},
		"continue_on_failure": {
			"steps_in_process: split=complete w_001=error w_002=enqueued w_003=enqueued end=pending",
			"blocked_by_failures: split=complete w_001=error w_002=complete w_003=complete end=pending",
			"steps_in_process: split=complete w_001=enqueued w_002=complete w_003=complete end=pending",
		},
		"isolate": {
			"steps_in_process: split=complete w_001=error w_002=enqueued w_003=enqueued end=pending",
			"steps_in_process: split=complete w_001=error w_002=complete w_003=complete end=enqueued",
			"blocked_by_failures: split=complete w_001=error w_002=complete w_003=complete end=complete",
			"steps_in_process: split=complete w_001=enqueued w_002=complete w_003=complete end=complete",
		},
	} {
		steps := batchSteps(strategy, 10)[:3]
		dir := t.TempDir()
		a := newActor(t, serviceTest{dir: dir}, steps...)
		blocked := false
		next := func() {
			t.Helper()
			a.want(want[0])
			blocked = blocked || strings.HasPrefix(want[0], "blocked")
			if blocked != (a.view().pendingLetter() != nil) {
				t.Errorf("%s: dead letters %v", want[0], a.view().dead)
			}
			want = want[1:]
			closeTestService(t, a.s)
			a.s = newTestService(t, serviceTest{dir: dir, extra: []string{actorTemplate(steps...)}})
		}
		a.completeWith("split", createBatches("w", 3))
		noError(t, a.act("w_001", failAction))
		next()
		a.complete("w_002", "w_003")
		next()
		if strategy == "isolate" {
			v := a.view()
			if got := v.resultsFor(a.step("end")); len(got) != 4 || got[1].step != "w_001" || got[1].done {
				t.Errorf("the convergence gets %v; want no result of the isolated instance", got)
			}
			a.complete("end")
			next()
		}
		noError(t, a.act("w_001", resetAction))
		next()
		a.complete("w_001")
		if strategy != "isolate" {
			a.complete("end")
		}
		a.want("complete: split=complete w_001=complete w_002=complete w_003=complete end=complete")
		a.s.store.locked(func() {
			if n := len(a.s.engine.gates); n != 0 {
				t.Errorf("%s: %d gates are left", strategy, n)
			}
		})
	}
}

// TestIsolatedFailures checks steps that depend on instances which failed in isolation: all
// failed, one is reset before the dependents ran, or cancelled.
func TestIsolatedFailures(t *testing.T) {
	newBatch := func() *actor {
		a := newActor(t, serviceTest{}, batchSteps("isolate", 10)...)
		a.completeWith("split", createBatches("w", 2))
		return a
	}
	a := newBatch()
	noError(t, a.act("w_001", failAction))
	noError(t, a.act("w_002", failAction))
	a.want("steps_in_process: split=complete w_001=error w_002=error end=enqueued last=pending")
	a.complete("end", "last")
	a.want("blocked_by_failures: split=complete w_001=error w_002=error end=complete last=complete")
	noError(t, a.act("w_001", resolveAction))
	noError(t, a.act("w_002", resolveAction))
	a.want("complete: split=complete w_001=resolved_manually w_002=resolved_manually end=complete last=complete")

	a = newBatch()
	noError(t, a.act("w_001", failAction))
	noError(t, a.act("w_001", resetAction))
	a.complete("w_002")
	a.want("steps_in_process: split=complete w_001=enqueued w_002=complete end=pending last=pending")
	noError(t, a.act("w_001", failAction))
	noError(t, a.act("w_001", cancelAction))
	a.want("blocked_by_failures: split=complete w_001=cancelled w_002=complete end=enqueued last=pending")
}
