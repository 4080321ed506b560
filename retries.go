package main

// Retries: what an outcome means for the next attempt, how long it waits, and
// how it comes back when it is due.

import (
	"math"
	"time"
)

// ending is what an outcome means for the step: when it is tried again, if at
// all. A success that decides what cannot be is a failure.
func (e *engine) ending(t *task, i int, o outcome, now, began instant) *ending {
	if o.success && !t.decided(i) {
		if err := t.checkBranching(i, o.result); err != nil {
			o = typedFailure(invalidOutcomeType, "%v", err)
		}
	}
	return e.plainEnding(t, i, o, now, began)
}

// plainEnding is ending for an outcome that decides nothing.
func (e *engine) plainEnding(t *task, i int, o outcome, now, began instant) *ending {
	end := &ending{success: o.success, result: o.result, metadata: o.metadata, took: max(now.sub(began), 0)}
	if o.success {
		return end
	}
	end.err = o.err.appendJSON(nil)
	policy := &t.def(i).retry
	s := &t.steps[i]
	attempts := s.attempts
	if s.state == stepEnqueued && !s.redeliver { // it starts and ends in one record
		attempts++
	}
	if o.err.retryable && policy.retryable && attempts < s.maxAttempts {
		end.retryAt = max(now.add(e.backoff(policy, attempts, o.retryAfter, t.stepID(i))), 1)
	}
	return end
}

// backoff is the wait before the next attempt of a step, n attempts having been made.
func (e *engine) backoff(p *retryPolicy, n int, retryAfter time.Duration, step uuid) time.Duration {
	if retryAfter > 0 {
		return min(retryAfter, time.Hour)
	}
	limit := float64(p.maxMS)
	ms := min(backoffFactor(p.backoff, n)*float64(p.baseMS), limit)
	if e.jitter {
		ms = min(ms*(0.9+0.2*e.ids.floatOf(step, n)), limit)
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// backoffFactor is what the base is multiplied by after n attempts.
func backoffFactor(kind backoffKind, n int) float64 {
	switch kind {
	case backoffLinear:
		return float64(n)
	case backoffExponential:
		return math.Pow(2, float64(n-1))
	case backoffFibonacci:
		a, b := 0.0, 1.0
		for range n {
			a, b = b, a+b
		}
		return a
	}
	return 0
}

// due brings a step whose back-off is over back to be run.
func (e *engine) due(id uuid, i int) {
	_, err := e.store.update(func(c *change) error {
		t, err := c.task(id)
		if err != nil {
			return err
		}
		switch s := &t.steps[i]; {
		case s.state != stepWaitingForRetry:
			return nil // cancelled, or completed by an operator
		case s.retryAt > c.now: // the clock went back since the timer fired
			e.armRetry(t, i, s.retryAt)
			return nil
		}
		return c.append(t, &record{kind: recDue, step: i})
	})
	if refusedForNow(err) {
		if e.ctx.Err() == nil {
			e.owe(1)
			afterReal(outcomeRetryEvery, func() {
				e.due(id, i)
				e.owe(-1)
			})
		}
		return
	}
	if err != nil && kindOf(err) != taskMissing { // or the task was dropped meanwhile
		e.log.Error("a retry could not be made ready", "task_uuid", id, "step", i, "error", err)
	}
	e.wakeUp()
}

func (e *engine) armRetry(t *task, i int, when instant) {
	id := t.id
	e.retries[runKey{t.id, i}] = e.clock.schedule(when, func() { e.due(id, i) })
}

// disarmRetryLocked forgets the timer of a step that waits no longer.
func (e *engine) disarmRetryLocked(t *task, i int) {
	key := runKey{t.id, i}
	if timer := e.retries[key]; timer != nil {
		timer.cancel()
		delete(e.retries, key)
	}
}
