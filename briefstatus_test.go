package main

import "testing"

// TestBriefStatuses is the contract's mapping of all states, word for word.
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
