package main

// Retries: what an outcome means for the next attempt, when that is due, and its timer.

import (
	"log/slog"
	"math"
	"time"
)

// outcomeRules say what outcomes mean for their steps.
type outcomeRules struct {
	jitter bool
	ids    *idSource // for the jitter
	causes *causeLog
}

// ending returns what an outcome means for the step, and when it is tried again,
// if at all. A success whose result or decision the template does not allow is a failure.
func (r *outcomeRules) ending(t *task, i int, o outcome, now, began instant) *ending {
	o = o.fitting()
	end := r.plainEnding(t, i, o, now, began)
	if failed, wrong := t.misdecided(i, end); wrong {
		o = failed
		end = r.plainEnding(t, i, o, now, began)
	}
	r.withhold(t, i, end, o.fits)
	if b := t.def(i).batch; b != nil && !end.success && end.retryAt == 0 {
		end.aside, _ = parseWord[failureAside](b.failureStrategy, failureAsideWords[:])
	}
	return end
}

// withhold notes the events that must not be published after an attempt, because the payload
// does not fit their schema, and those that carry the context of its error. The outcome counts all the same.
func (r *outcomeRules) withhold(t *task, i int, end *ending, fits []payloadFit) {
	def := t.def(i)
	if def.publishes == nil {
		return
	}
	if fits == nil { // no handler's goroutine has checked it, so this does, under the lock
		fits = def.fits(newOwnBudget(nil), end.payload(), end.errorContext())
	}
	withheld := map[string]string{}
	for n := range def.publishes {
		p := &def.publishes[n]
		if !p.follows(end.success, end.retryAt != 0) {
			continue
		}
		if fits[n].asContext {
			end.asContext = append(end.asContext, p.name)
		}
		if fits[n].unfit != "" {
			withheld[p.name] = clipText(fits[n].unfit, maxWithheldText)
			r.causes.print(slog.LevelWarn, "an event is not published: its payload does not fit its schema",
				"event", p.name, "task_uuid", t.id, "step", def.name)
		}
	}
	if len(withheld) > 0 {
		o := jsonWriter{}
		o.value(withheld)
		end.withheld = o.b
	}
}

// maxWithheldText is the length of the longest reason for withholding an event.
const maxWithheldText = 500

// misdecided returns the failure that counts in place of a success whose decision the template does not allow.
func (t *task) misdecided(i int, end *ending) (o outcome, wrong bool) {
	if !end.success || t.decided(i) {
		return o, false
	}
	err := t.checkBranching(i, end)
	if err == nil {
		return o, false
	}
	return typedFailure(invalidOutcomeType, "%v", err), true
}

// plainEnding is ending for an outcome whose decision does not count.
func (r *outcomeRules) plainEnding(t *task, i int, o outcome, now, began instant) *ending {
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
	// retryAt is at least 1, because 0 means that there is no retry.
	switch {
	case o.err.retryable && s.lease != nil && t.answers.passed(i, now): // the deadline decides, not the number of attempts
		end.retryAt = max(now, 1)
	case o.err.retryable && policy.Retryable && attempts < s.maxAttempts:
		end.retryAt = max(now.add(r.backoff(policy, attempts, o.retryAfter, t.stepID(i))), 1)
	}
	return end
}

// backoff returns the wait before the next attempt of a step, after n attempts.
func (r *outcomeRules) backoff(p *retryPolicy, n int, retryAfter time.Duration, step uuid) time.Duration {
	if retryAfter > 0 {
		return min(retryAfter, time.Hour)
	}
	limit := float64(p.MaxMS)
	ms := min(backoffFactor(p.Backoff, n)*float64(p.BaseMS), limit)
	return time.Duration(min(r.jittered(ms, step, n), limit) * float64(time.Millisecond))
}

// jittered varies the nth wait of a step or an event by up to 10 %, if the configuration has jitter.
func (r *outcomeRules) jittered(wait float64, of uuid, n int) float64 {
	if r.jitter {
		wait *= 0.9 + 0.2*r.ids.floatOf(of, n)
	}
	return wait
}

// backoffFactor returns what multiplies the base after n attempts.
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

// retryTimers hold the timers of the steps that wait: for a retry, or for an answer that has a deadline. A step has one,
// for what comes first. They are guarded by the store's lock.
type retryTimers struct {
	engine *engine
	timers map[runKey]*timer
}

// arm sets the timer of a step that waits for its retry.
func (r *retryTimers) arm(t *task, i int, when instant) {
	if due := t.answerDue(i); due != 0 && due <= when {
		r.armDeadline(t, i)
		return
	}
	retryAt := t.steps[i].retryAt
	r.set(t, i, when, r.engine.clock.schedule, func(t *task, _ instant) *record {
		if s := &t.steps[i]; s.state != stepWaitingForRetry || s.retryAt != retryAt {
			return nil // cancelled or completed by an operator, or waiting once more
		}
		return &record{kind: recDue, step: i}
	})
}

// set sets the timer of a step. When it is due, next returns the record to append; nil for none.
func (r *retryTimers) set(
	t *task, i int, when instant, schedule func(instant, func()) *timer, next func(t *task, now instant) *record,
) {
	r.disarm(t, i)
	// The timer keeps the id, because the task may be another value when it fires: a task that
	// ended as stale is kept as a line, and decoded again when an operator continues it.
	id := t.id
	r.timers[runKey{id, i}] = schedule(when, func() {
		r.engine.store.locked(func() { r.fireLocked(id, i, next) })
	})
}

func (r *retryTimers) fireLocked(id uuid, i int, next func(t *task, now instant) *record) {
	e := r.engine
	err := e.store.updateLocked(func(c *change) error {
		t, err := c.task(id)
		if err != nil || t.hold != nil {
			return err
		}
		if due := next(t, c.now); due != nil {
			return c.append(t, due)
		}
		return nil
	})
	if refusedForNow(err) {
		if e.ctx.Err() == nil {
			e.laterLocked(func() { r.fireLocked(id, i, next) })
		}
		return
	}
	if err != nil && kindOf(err) != taskMissing { // or the task was dropped meanwhile
		e.log.Error("the timer of a step could not be heeded", "task_uuid", id, "step", i, "error", err)
	}
	e.wakeUp()
}

// stillDue returns when a timer that was set for an instant is due after a restart. That is the same instant,
// unless the machine's clock was set back while the process was down: then the wait continues from the time
// of the task's newest record.
func (t *task) stillDue(when, now instant) instant { return when - max(t.updated-now, 0) }

// disarm cancels the timer of a step that waits no longer.
func (r *retryTimers) disarm(t *task, i int) {
	key := runKey{t.id, i}
	if timer := r.timers[key]; timer != nil {
		timer.cancel()
		delete(r.timers, key)
	}
}
