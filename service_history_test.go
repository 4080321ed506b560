package main

import (
	"slices"
	"testing"
)

// TestAdjustmentsInHistory expects adjustments in the audit of the step, and the
// move that one causes in the transitions.
func TestAdjustmentsInHistory(t *testing.T) {
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: []string{
		testTemplate("fails", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`, retry: `{"max_attempts":1,"backoff_base_ms":1000}`})}})
	v := mustCreate(t, s, "fails")
	v = mustAdjust(t, s, v, 0, adjustment{maxAttempts: 2, inputs: []byte(`{}`)})
	audit, err := s.history.audit(v.id, 0, nil)
	if err != nil || len(audit) != 3 {
		t.Fatalf("got %+v, %v; want two attempts and an adjustment", audit, err)
	}
	a := audit[1]
	if a.Action != "adjusted" || a.FromState != "error" || a.ToState != "pending" || a.RetryLimit != 2 ||
		string(a.Inputs) != "{}" || a.Subject != "ops" || a.WorkerUUID != nil {
		t.Errorf("got %+v; want what was adjusted, by whom", a)
	}
	h := must(s.history.transitions(v.id, nil))(t)
	moved := slices.ContainsFunc(indexesOf(h.moves), func(n int) bool {
		m := h.view(n)
		return m.StepName != nil && m.FromState != nil && *m.FromState == "error" && m.ToState == "pending" && m.Attempt == 1
	})
	if !moved {
		t.Errorf("got %+v; want a move from error to pending", h.moves)
	}
}
