package main

// Attempts: how a step is started on a slot, what its handler is given, and what
// follows from its end.

import (
	"context"
	"errors"
	"math"
	"time"
)

// runKey names a step in progress.
type runKey struct {
	task uuid
	step int
}

// run is an attempt in flight in this process.
type run struct {
	key     runKey
	web     bool // it holds an HTTP slot, else a local one
	number  int  // the attempt
	started instant
	cancel  context.CancelFunc // nil for a delay of our own
	timer   *timer             // of such a delay
	call    *handlerCall       // in the request journal; nil without one
	lost    bool               // what it comes to is lost, as a stub has it
	stray   bool               // another delivery of the attempt, whose outcome comes too late
	gone    bool               // the step left in_progress without it; guarded by store.mu
	freed   bool               // its slot was given back; guarded by store.mu

	born    uint64   // the task's place in the order of creation
	member  bool     // its outcome is held until those of its batch are there
	outcome *outcome // of a member that has ended; guarded by store.mu

	goesWrong *playedRun // how a member's outcome does when it is recorded; nil for not at all
}

// runBuiltinLocked computes a builtin without the lock, on a slot. What it came
// to is one record; a delay that it asks for makes it an attempt in flight.
func (e *engine) runBuiltinLocked(t *task, i int, g target) error {
	a := e.attemptLocked(t, i, g.builtin.needsInputs)
	s := &t.steps[i]
	a.number = s.attempts + 1
	if s.redeliver {
		a.number = s.attempts
	}
	before := *s
	e.slots-- // or another goroutine that pumps would give it away meanwhile
	e.computing++
	e.store.mu.Unlock()
	began := e.clock.now()
	o, delay := g.builtin.run(a)
	e.store.mu.Lock()
	s = &t.steps[i] // the task may have been given more steps, in another place
	overtaken := *s != before
	e.slots++
	e.computing--
	s.queued = false
	if !t.runnable(i) {
		return nil // cancelled or resolved meanwhile: it never ran
	}
	if overtaken { // failed by an actor meanwhile, and ready again: this is no outcome of the attempt to come
		e.pushLocked(t, i)
		return nil
	}
	if delay > 0 {
		return e.startDelayLocked(t, i, o, delay, a.timeout)
	}
	return e.ranLocked(t, i, o, began, e.noteLocked(t, i, a.number))
}

// ranLocked records an attempt that started and ended at once.
func (e *engine) ranLocked(t *task, i int, o outcome, began instant, call *handlerCall) error {
	err := e.store.updateLocked(func(c *change) error {
		return c.append(t, &record{kind: recRan, step: i, startedAt: began, end: e.ending(t, i, o, c.now, began)})
	})
	if err == nil {
		e.calls.add(call)
		call.ended(o)
	}
	return err
}

// startDelayLocked begins an attempt that ends by itself after a delay of ours.
func (e *engine) startDelayLocked(t *task, i int, o outcome, delay, timeout time.Duration) error {
	k, err := e.startRunLocked(t, i, false)
	if err != nil {
		return err
	}
	k.call = e.noteLocked(t, i, k.number)
	e.calls.add(k.call)
	e.delayLocked(k, o, delay, timeout)
	return nil
}

func (e *engine) delayLocked(k *run, o outcome, delay, timeout time.Duration) {
	if timeout < delay {
		delay, o = timeout, timedOut(timeout)
	}
	k.timer = e.clock.schedule(k.started.add(delay), func() { e.finish(k, o) })
}

// startRunLocked journals the start of an attempt and takes its slot.
func (e *engine) startRunLocked(t *task, i int, web bool) (*run, error) {
	k := &run{key: runKey{t.id, i}, web: web, born: t.seq}
	err := e.store.updateLocked(func(c *change) error {
		k.started = c.now
		return c.append(t, &record{kind: recStarted, step: i})
	})
	if err != nil {
		return nil, err
	}
	k.number = t.steps[i].attempts
	e.running[k.key] = k
	*e.free(web)--
	return k, nil
}

func (e *engine) free(web bool) *int {
	if web {
		return &e.webSlots
	}
	return &e.slots
}

// startHandlerLocked runs an HTTP or exec handler in a goroutine of its own,
// which first waits until what the handler will see is on disk.
func (e *engine) startHandlerLocked(t *task, i int, g target) error {
	seen := t.lastSeq
	k, err := e.startRunLocked(t, i, g.kind == httpHandler)
	if err != nil {
		return err
	}
	a := e.attemptLocked(t, i, true)
	a.number = k.number
	k.call = e.noteLocked(t, i, k.number)
	e.calls.add(k.call)
	ctx, cancel := context.WithCancel(e.ctx)
	k.cancel = cancel
	e.joinLocked(k)
	e.wg.Go(func() {
		defer cancel()
		if err := e.store.journal.wait(ctx, seen); err != nil {
			e.abandon(k)
			return
		}
		e.finish(k, e.handlers.run(ctx, g, a))
	})
	return nil
}

// abandon gives up an attempt without an outcome: the engine stops, or nothing
// can be written any more. It is delivered again after a restart.
func (e *engine) abandon(k *run) {
	if k.member {
		e.memberEnded(k, nil)
		return
	}
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	e.releaseLocked(k)
}

// releaseLocked gives the attempt's slot back, unless that was done already.
func (e *engine) releaseLocked(k *run) {
	if k.freed {
		return
	}
	k.freed = true
	delete(e.inFlight, k)
	if e.running[k.key] == k {
		delete(e.running, k.key)
	}
	*e.free(k.web)++
	e.lookUpLocked()
	e.wakeUp()
}

// finish records what an attempt came to. When the store has no room the
// outcome is held, with its slot, until it has.
func (e *engine) finish(k *run, o outcome) {
	if k.member {
		e.memberEnded(k, &o)
		return
	}
	if e.ctx.Err() != nil && wasCancelled(o) {
		e.abandon(k)
		return
	}
	_, err := e.store.update(func(c *change) error { return e.endLocked(c, k, o) })
	if e.offeredAgain(k, err) {
		e.hold(k)
		afterReal(outcomeRetryEvery, func() { e.finish(k, o) })
		return
	}
	e.abandon(k)
}

// offeredAgain tells whether an outcome that was not recorded can be later on.
func (e *engine) offeredAgain(k *run, err error) bool {
	f, refused := errors.AsType[*failure](err)
	switch {
	case err == nil, refused && f.kind == taskMissing: // the task was dropped meanwhile
	case e.ctx.Err() != nil: // the engine has stopped: the attempt is delivered again
	case refused && refusedForNow(err) && f.retryAfter > 0:
		return true
	default:
		e.log.Error("the outcome of an attempt is lost", "task_uuid", k.key.task, "step", k.key.step, "error", err)
	}
	return false
}

// endLocked records the outcome where it belongs: at the running step, or, when
// that went on without it, in the audit alone.
func (e *engine) endLocked(c *change, k *run, o outcome) error {
	k.call.ended(o)
	t, err := c.task(k.key.task)
	if err != nil {
		return err
	}
	if !k.gone {
		k.gone = true
		if k.lost {
			return c.append(t, e.lostRecord(t, k.key.step))
		}
		end := e.ending(t, k.key.step, o, c.now, k.started)
		e.stats.handlerDone(end)
		return c.append(t, &record{kind: recEnded, step: k.key.step, end: end})
	}
	if k.cancel == nil && !k.stray || wasCancelled(o) {
		return nil
	}
	end := e.plainEnding(t, k.key.step, o, c.now, k.started)
	end.retryAt, end.attempt = 0, k.number
	e.stats.late++
	return c.append(t, &record{kind: recLate, step: k.key.step, end: end})
}

// wasCancelled reports an outcome that only says that we cut the handler off.
func wasCancelled(o outcome) bool { return o.err != nil && o.err.errorType == cancelledType }

// attemptLocked is what a handler is given. All of it is immutable.
func (e *engine) attemptLocked(t *task, i int, inputs bool) *attempt {
	def := t.def(i)
	a := &attempt{
		stepName:    def.name,
		maxAttempts: t.steps[i].maxAttempts,
		timeout:     time.Duration(def.timeoutSeconds) * time.Second,
		config:      def.config,
	}
	if !inputs {
		return a
	}
	a.taskID, a.stepID = t.id, t.stepID(i)
	a.namespace, a.name, a.version = t.tpl.namespace, t.tpl.name, t.tpl.version
	a.correlationID = t.correlation().String()
	a.traceparent = t.by.traceparent
	a.context, a.inputs = t.by.context, t.inputsFor(i)
	a.results = t.resultsFor(i)
	return a
}

// Retries: what an outcome means for the next attempt, how long it waits, and
// how it comes back when it is due.

// ending is what an outcome means for the step: when it is tried again, if at
// all. A success that decides what cannot be is a failure.
func (e *engine) ending(t *task, i int, o outcome, now, began instant) *ending {
	end := e.plainEnding(t, i, o, now, began)
	if o.success && !t.decided(i) {
		if err := t.checkBranching(i, end); err != nil {
			return e.plainEnding(t, i, typedFailure(invalidOutcomeType, "%v", err), now, began)
		}
	}
	return end
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
	if o.err.retryable && policy.Retryable && attempts < s.maxAttempts {
		end.retryAt = max(now.add(e.backoff(policy, attempts, o.retryAfter, t.stepID(i))), 1)
	}
	return end
}

// backoff is the wait before the next attempt of a step, n attempts having been made.
func (e *engine) backoff(p *retryPolicy, n int, retryAfter time.Duration, step uuid) time.Duration {
	if retryAfter > 0 {
		return min(retryAfter, time.Hour)
	}
	limit := float64(p.MaxMS)
	ms := min(backoffFactor(p.Backoff, n)*float64(p.BaseMS), limit)
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

// What an engine takes up after a restart: timers, ready steps, and the attempts
// that the end of the process before cut off.

// lostAttempt is one that the end of the process before cut off.
type lostAttempt struct {
	task uuid
	step int
}

func (e *engine) resumeAll() error {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	var lost []lostAttempt
	for i := range e.store.slots {
		if t := e.store.slots[i].live; t != nil {
			lost = e.resumeLocked(t, lost)
		}
	}
	lost, err := e.resumeFailedLocked(lost)
	if err != nil {
		return err
	}
	return e.recordLostLocked(lost)
}

// resumeFailedLocked takes up the tasks in error whose steps were left running
// or waiting for a retry: an operator may get such a task going again.
func (e *engine) resumeFailedLocked(lost []lostAttempt) ([]lostAttempt, error) {
	failed := &e.store.index.states[taskError]
	for pos, ok := failed.next(0); ok; pos, ok = failed.next(pos + 1) {
		h, err := readTaskHeader(e.store.slots[pos].line)
		if err != nil {
			return nil, err
		}
		if h.counts[stepInProgress]+h.counts[stepWaitingForRetry] == 0 {
			continue
		}
		t, err := e.store.taskAt(pos)
		if err != nil {
			return nil, err
		}
		lost = e.resumeLocked(t, lost)
	}
	return lost, nil
}

// resumeLocked takes up one task after a restart: its timers and its ready
// steps. Its attempts that were cut off are added to lost.
func (e *engine) resumeLocked(t *task, lost []lostAttempt) []lostAttempt {
	for i := range t.steps {
		switch s := &t.steps[i]; s.state {
		case stepEnqueued:
			e.pushLocked(t, i)
		case stepWaitingForRetry:
			e.armRetry(t, i, s.retryAt)
		case stepInProgress:
			if s.lease != nil { // its worker is not of this process
				e.holdLocked(t, i, s.lease.until)
				continue
			}
			lost = append(lost, lostAttempt{t.id, i})
		}
	}
	return lost
}

// recordLostLocked has lost attempts delivered again. When the store has no
// room the rest waits until it has: a full disk keeps no service from reading.
func (e *engine) recordLostLocked(lost []lostAttempt) error {
	for n, l := range lost {
		err := e.store.updateLocked(func(c *change) error { return e.loseLocked(c, l) })
		if refusedForNow(err) {
			e.owed++
			afterReal(outcomeRetryEvery, func() {
				e.recordLost(lost[n:])
				e.owe(-1)
			})
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) recordLost(lost []lostAttempt) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	if e.stopping {
		return
	}
	if err := e.recordLostLocked(lost); err != nil {
		e.log.Error("attempts that were cut off could not be taken up", "error", err)
	}
	e.wakeUp()
}

// loseLocked records that an attempt was lost, unless its step went on meanwhile.
func (e *engine) loseLocked(c *change, l lostAttempt) error {
	t, err := c.task(l.task)
	if kindOf(err) == taskMissing {
		return nil // dropped meanwhile
	}
	if err != nil {
		return err
	}
	if t.steps[l.step].state != stepInProgress || e.running[runKey{t.id, l.step}] != nil {
		return nil
	}
	return c.append(t, e.lostRecord(t, l.step))
}

// lostRecord has the attempt delivered again, or ends it when that was tried often enough.
func (e *engine) lostRecord(t *task, i int) *record {
	s := &t.steps[i]
	if s.redelivered < maxRedeliveries {
		return &record{kind: recRecovered, step: i}
	}
	o := typedFailure(workerLostType, "the process ended while the attempt ran, on every delivery")
	return &record{kind: recEnded, step: i, end: e.ending(t, i, o, e.clock.now(), s.attempted)}
}
