package main

// Adjusting a step: an operator changes how many attempts it has and what its
// next attempts are given. The rules of what may be changed when stand here.

import (
	"context"
	"fmt"
)

// maxRetryLimit is how many attempts an operator may allow a step.
const maxRetryLimit = 100

// adjustment is what an operator changed of a step.
type adjustment struct {
	maxAttempts int    // 0: as it was
	inputs      []byte // a JSON object; nil: as they were
}

func appendAdjustment(b []byte, a *adjustment) []byte {
	return appendRaw(appendNumber(b, "max_attempts", int64(a.maxAttempts)), "inputs", a.inputs)
}

func (d *recordDecoder) adjustmentMember(key string, value []byte) {
	if d.r.adjustment == nil {
		d.r.adjustment = new(adjustment)
	}
	switch key {
	case "max_attempts":
		d.r.adjustment.maxAttempts = int(d.number(value))
	case "inputs":
		d.r.adjustment.inputs = value
	}
}

// problem is what keeps a record's adjustment from being applied.
func (a *adjustment) problem() error {
	switch {
	case a == nil || a.maxAttempts == 0 && a.inputs == nil:
		return fmt.Errorf("adjusted record that changes nothing")
	case a.maxAttempts < 0 || a.inputs != nil && jsonKind(a.inputs) != '{':
		return fmt.Errorf("adjusted record with a limit below 0, or inputs that are no object")
	}
	return nil
}

// adjust applies an adjustment. A failed step whose new limit leaves attempts
// is tried again, and its attempts count on.
func (a *applier) adjust() {
	s, by := &a.t.steps[a.r.step], a.r.adjustment
	if by.inputs != nil {
		s.inputs = string(by.inputs)
	}
	if by.maxAttempts == 0 {
		return
	}
	s.maxAttempts = by.maxAttempts
	if s.state != stepInError || !a.t.retryEligible(a.r.step) {
		return
	}
	a.moveStep(a.r.step, stepReset)
	s.redeliver, s.redelivered = false, 0
	a.becameReady(a.r.step)
	a.evaluate(true)
}

// inputsFor is what the next attempt of a step gets as its inputs.
func (t *task) inputsFor(i int) []byte {
	if s := &t.steps[i]; s.inputs != "" {
		return []byte(s.inputs)
	}
	return t.by.context
}

// adjusted makes the entry of an audit that of an adjustment.
func (v *auditView) adjusted(by *adjustment, state stepState) {
	v.Action, v.RetryLimit, v.Inputs = recAdjusted.String(), by.maxAttempts, by.inputs
	v.FromState, v.ToState = state.String(), state.String()
}

// adjustStep adjusts a step and returns the task after it, durable. subject is
// the authenticated caller, or "".
func (s *service) adjustStep(
	ctx context.Context, taskID, stepID uuid, by *adjustment, subject string,
) (*task, int, error) {
	if limit := s.cfg.Tasks.MaxContextBytes; int64(len(by.inputs)) > limit {
		return nil, 0, failf(tooLarge, "the inputs have %d bytes, more than the %d allowed", len(by.inputs), limit)
	}
	return s.changeStep(ctx, taskID, stepID, func(_ *change, t *task, i int) (*record, error) {
		if err := t.allowsAdjustment(i, by); err != nil {
			return nil, err
		}
		return &record{kind: recAdjusted, step: i, adjustment: by, subject: subject}, nil
	})
}

// allowsAdjustment says why a step cannot be adjusted so.
func (t *task) allowsAdjustment(i int, by *adjustment) error {
	s, name := &t.steps[i], t.def(i).name
	if s.state.finished() {
		return failf(invalidTransition, "cannot adjust step %q: it is %s", name, s.state)
	}
	if t.state.final() {
		return failf(invalidTransition, "cannot adjust step %q: its task is %s", name, t.state)
	}
	if by.maxAttempts > 0 && by.maxAttempts < t.leastAttempts(i) {
		f := fieldReader{}
		f.complain("retry_limit", "must be at least %d: %d attempts were made and another one follows",
			t.leastAttempts(i), s.attempts)
		return f.failure("the step is not changed")
	}
	return nil
}

// leastAttempts is the lowest limit that leaves room for the attempt which a
// step is about to make already.
func (t *task) leastAttempts(i int) int {
	switch s := &t.steps[i]; {
	case s.state != stepPending && s.state != stepEnqueued && s.state != stepWaitingForRetry:
		return 1
	case s.redeliver:
		return s.attempts
	default:
		return s.attempts + 1
	}
}
