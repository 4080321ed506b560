package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// mustAdjust adjusts a step, and returns the task once it has settled.
func mustAdjust(t *testing.T, s *service, v *task, step int, by adjustment) *task {
	t.Helper()
	if _, _, err := s.adjustStep(t.Context(), v.id, v.stepID(step), &by, "ops"); err != nil {
		t.Fatal(err)
	}
	return settled(t, s, v.id)
}

// TestAdjustedLimit gives steps in every state another limit: one that failed
// is tried again, and its attempts count on.
func TestAdjustedLimit(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, config: func(c *Config) { c.Engine.Jitter = false }, extra: []string{
		testTemplate("fails", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`, retry: `{"max_attempts":1,"backoff_base_ms":1000}`}),
		testTemplate("once", stepSpec{name: "a", callable: "builtin:fail", retry: `{"retryable":false}`}),
		testTemplate("flaky", stepSpec{name: "a", callable: "builtin:flaky", config: `{"failures":1}`, retry: `{"max_attempts":1}`},
			stepSpec{name: "b", callable: "builtin:noop", after: []string{"a"}}),
	}})
	v := mustCreate(t, s, "fails")
	wantStates(t, v, "blocked_by_failures: error")
	v = mustAdjust(t, s, v, 0, adjustment{maxAttempts: 1})
	wantStates(t, v, "blocked_by_failures: error")
	v = mustAdjust(t, s, v, 0, adjustment{maxAttempts: 3})
	wantStates(t, v, "waiting_for_retry: waiting_for_retry")
	if got := v.steps[0]; got.attempts != 2 || got.maxAttempts != 3 {
		t.Errorf("got %d of %d attempts; want 2 of 3", got.attempts, got.maxAttempts)
	}
	_, _, err := s.adjustStep(t.Context(), v.id, v.stepID(0), &adjustment{maxAttempts: 2}, "")
	if kindOf(err) != invalidFields || !strings.Contains(err.Error(), "at least 3") {
		t.Errorf("taking away the attempt that it waits for: got %v; want at least 3", err)
	}
	clock.advance(time.Minute)
	wantStates(t, settled(t, s, v.id), "blocked_by_failures: error")

	v = mustAdjust(t, s, mustCreate(t, s, "once"), 0, adjustment{maxAttempts: 9})
	wantStates(t, v, "blocked_by_failures: error") // its template lets nobody retry it
	v = mustAdjust(t, s, mustCreate(t, s, "flaky"), 0, adjustment{maxAttempts: 2})
	wantStates(t, v, "complete: complete complete")
	if v.steps[0].attempts != 2 {
		t.Errorf("got %d attempts; want 2", v.steps[0].attempts)
	}
}

// TestAdjustedInputs sets what a step gets, and looks at it after a restart,
// with and without a snapshot.
func TestAdjustedInputs(t *testing.T) {
	clock := newVirtualClock(testStart)
	o := serviceTest{dir: t.TempDir(), clock: clock, extra: []string{
		testTemplate("echo", stepSpec{name: "a", callable: "Outside"},
			stepSpec{name: "b", callable: "builtin:echo", after: []string{"a"}})}}
	s := openTestService(t, o)
	v := mustCreate(t, s, "echo", `"context":{"n":1}`)
	mustAdjust(t, s, v, 1, adjustment{inputs: []byte(`{"n":2.50}`)})
	mustAdjust(t, s, v, 1, adjustment{maxAttempts: 5})
	for _, snapshot := range []bool{false, true} {
		if snapshot {
			if err := s.store.snapshot(); err != nil {
				t.Fatal(err)
			}
		}
		closeTestService(t, s)
		s = openTestService(t, o)
		got := settled(t, s, v.id)
		if string(got.inputsFor(1)) != `{"n":2.50}` || string(got.inputsFor(0)) != `{"n":1}` || got.steps[1].maxAttempts != 5 {
			t.Errorf("snapshot %v: got inputs %s and %s, limit %d", snapshot, got.inputsFor(0), got.inputsFor(1), got.steps[1].maxAttempts)
		}
	}
	v = mustAct(t, s, v, 0, completeAction)
	v = settled(t, s, v.id)
	wantStates(t, v, "complete: complete complete")
	if got := string(v.steps[1].last.result); got != `{"n":2.50}` {
		t.Errorf("got result %s; want the inputs that were set", got)
	}
	closeTestService(t, s)
}

// TestAdjustmentsInHistory finds them in the audit of the step, and the move of
// one in the transitions.
func TestAdjustmentsInHistory(t *testing.T) {
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: []string{
		testTemplate("fails", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`, retry: `{"max_attempts":1,"backoff_base_ms":1000}`})}})
	v := mustCreate(t, s, "fails")
	v = mustAdjust(t, s, v, 0, adjustment{maxAttempts: 2, inputs: []byte(`{}`)})
	audit, err := s.audit(v.id, v.stepID(0))
	if err != nil || len(audit) != 3 {
		t.Fatalf("got %+v, %v; want two attempts and an adjustment", audit, err)
	}
	a := audit[1]
	if a.Action != "adjusted" || a.FromState != "error" || a.ToState != "pending" || a.RetryLimit != 2 ||
		string(a.Inputs) != "{}" || a.Subject != "ops" || a.WorkerUUID != nil {
		t.Errorf("got %+v; want what was adjusted, by whom", a)
	}
	h, err := s.history(v.id)
	if err != nil {
		t.Fatal(err)
	}
	moved := slices.ContainsFunc(h.Transitions, func(m transitionView) bool {
		return m.StepName != nil && m.FromState != nil && *m.FromState == "error" && m.ToState == "pending" && m.Attempt == 1
	})
	if !moved {
		t.Errorf("got %+v; want a move from error to pending", h.Transitions)
	}
}

// TestAdjustmentRecords reads records back, and refuses what changes nothing or
// cannot be.
func TestAdjustmentRecords(t *testing.T) {
	for line, ok := range map[string]bool{
		`{"seq":1,"kind":"adjusted","step":0,"max_attempts":3}`:               true,
		`{"seq":1,"kind":"adjusted","step":0,"inputs":{}}`:                    true,
		`{"seq":1,"kind":"adjusted","step":0,"subject":"a","inputs":{"a":1}}`: true,
		`{"seq":1,"kind":"adjusted","step":0}`:                                false,
		`{"seq":1,"kind":"adjusted","max_attempts":3}`:                        false,
		`{"seq":1,"kind":"adjusted","step":0,"max_attempts":-3}`:              false,
		`{"seq":1,"kind":"adjusted","step":0,"inputs":[]}`:                    false,
	} {
		r, err := decodeRecord([]byte(line))
		if (err == nil) != ok {
			t.Errorf("%s: got error %v; want one: %v", line, err, !ok)
		}
		if err != nil {
			continue
		}
		again, err := decodeRecord(append(append([]byte{'{'}, appendRecordBody(nil, r)...), '}'))
		if err != nil || again.adjustment.text() != r.adjustment.text() {
			t.Errorf("%s: got %+v, %v; want the same again", line, again, err)
		}
	}
}

// adjustmentText is an adjustment that can be compared.
type adjustmentText struct {
	maxAttempts int
	inputs      string
}

func (a *adjustment) text() adjustmentText { return adjustmentText{a.maxAttempts, string(a.inputs)} }
