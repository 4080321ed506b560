package main

import (
	"fmt"
	"strings"
	"testing"
)

// TestBriefStatuses checks all states against the contract's mapping, word for
// word.
func TestBriefStatuses(t *testing.T) {
	tasks := map[string]string{
		"pending": "pending", "initializing": "pending",
		"enqueuing_steps": "in_progress", "steps_in_process": "in_progress", "evaluating_results": "in_progress",
		"waiting_for_dependencies": "in_progress", "waiting_for_retry": "in_progress",
		"complete": "complete", "blocked_by_failures": "error", "error": "error",
		"cancelled": "cancelled", "resolved_manually": "resolved_manually",
	}
	if len(tasks) != int(taskStates) {
		t.Fatalf("got %d rows for tasks; want %d", len(tasks), taskStates)
	}
	for s := range taskStates {
		if got := s.brief().String(); got != tasks[s.String()] {
			t.Errorf("a task in %s: got %s; want %s", s, got, tasks[s.String()])
		}
	}
	steps := map[string]string{
		"pending": "pending", "enqueued": "pending", "waiting_for_retry": "pending",
		"in_progress": "in_progress", "enqueued_for_orchestration": "in_progress",
		"enqueued_as_error_for_orchestration": "in_progress",
		"complete":                            "complete", "error": "error", "cancelled": "cancelled", "resolved_manually": "resolved_manually",
	}
	if len(steps) != int(stepStates) {
		t.Fatalf("got %d rows for steps; want %d", len(steps), stepStates)
	}
	for s := range stepStates {
		if got := s.brief().String(); got != steps[s.String()] {
			t.Errorf("a step in %s: got %s; want %s", s, got, steps[s.String()])
		}
	}
}

// readStates reads testdata/states.txt: "task from event" to the state it leads to.
func readStates(t *testing.T) map[string]string {
	t.Helper()
	data := readFile(t, "testdata/states.txt")
	moves := map[string]string{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) != 4 {
			t.Fatalf("states.txt: %q has %d words; want 4", line, len(f))
		}
		for from := range strings.SplitSeq(f[1], ",") {
			moves[f[0]+" "+from+" "+f[2]] = f[3]
		}
	}
	return moves
}

func TestStateTables(t *testing.T) {
	want := readStates(t)
	seen := 0
	compare := func(pair string, to fmt.Stringer, ok bool) {
		got := ""
		if ok {
			got = to.String()
			seen++
		}
		if got != want[pair] {
			t.Errorf("%s leads to %q; want %q", pair, got, want[pair])
		}
	}
	for s := range taskStates {
		for e := range taskEvents {
			to, ok := s.next(e)
			compare("task "+s.String()+" "+e.String(), to, ok)
		}
	}
	for s := range stepStates {
		for e := range stepEvents {
			to, ok := s.next(e)
			compare("step "+s.String()+" "+e.String(), to, ok)
		}
	}
	if seen != len(want) {
		t.Errorf("the tables have %d moves; states.txt has %d", seen, len(want))
	}
}

func TestStatesOfNoReturn(t *testing.T) {
	for s := range taskStates {
		moves := 0
		for e := range taskEvents {
			if _, ok := s.next(e); ok {
				moves++
			}
		}
		if s.final() != (moves == 0) {
			t.Errorf("%s: final is %t with %d moves", s, s.final(), moves)
		}
	}
	if taskError.final() || !taskError.ended() {
		t.Errorf("error: final %t, ended %t; want false, true", taskError.final(), taskError.ended())
	}
}

// TestBatchInstances runs batches of many sizes by builtins.
func TestBatchInstances(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	for _, n := range []int{1, 1000, 10000} {
		s := newTestService(t, serviceTest{config: func(c *Config) { c.Tasks.MaxContextBytes = 4 << 20 }, extra: []string{testTemplate("grows",
			stepSpec{kind: stepBatchable, name: "split", callable: "builtin:echo"},
			stepSpec{kind: stepBatchWorker, name: "w", callable: "builtin:noop", after: []string{"split"}},
			stepSpec{kind: stepDeferredConvergence, name: "end", callable: "builtin:sum", after: []string{"w"}})}})
		v := settled(t, s, mustCreate(t, s, "grows", `"context":`+createBatches("w", n)).id)
		if v.state != taskComplete || len(v.steps) != n+2 || v.counts[stepComplete] != len(v.steps) {
			t.Errorf("%d instances: got %s with %d steps", n, v.state, len(v.steps))
		}
		last := len(v.steps) - 1
		if v.def(last).name != "end" && v.def(2).name != "end" {
			t.Errorf("%d instances: there is no end", n)
		}
	}
}
