package main

// Attempts: how a step starts on a slot, what its handler is given, what its
// outcome means for the next attempt, and how a restart resumes unfinished tasks.

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"runtime"
	"time"
)

// runKey names a step in progress.
type runKey struct {
	task uuid
	step int
}

// run is an attempt in flight in this process.
type run struct {
	key      runKey
	def      *stepTemplate
	pool     *slotPool // whose slot it holds
	number   int       // of the attempt
	started  instant
	cancel   context.CancelFunc // nil for a delay of our own
	timer    *timer             // of such a delay
	observer outcomeObserver    // nil unless somebody observes attempts
	gone     bool               // the step left in_progress without it; guarded by the store's lock
	freed    bool               // its slot was given back; guarded by the store's lock
}

// runBuiltinLocked computes a builtin without the lock, on a slot. Its start and
// its outcome are one record; a delay that it asks for makes it an attempt in flight.
func (e *engine) runBuiltinLocked(t *task, i int, g target) error {
	before, def := t.steps[i], t.def(i)
	a := e.attemptLocked(t, i, before.nextAttempt(), g.builtin.needsInputs)
	e.local.free-- // or another goroutine that pumps would give it away meanwhile
	var began instant
	o, delay := e.computeLocked(func() (outcome, time.Duration) {
		began = e.clock.now()
		o, delay := g.builtin.run(a)
		if delay == 0 { // or finish does it
			o = e.fitted(def, o)
		}
		return o, delay
	})
	e.local.free++
	s := &t.steps[i] // the task may have been given more steps, in another place
	overtaken := *s != before
	s.queued = false
	if !t.runnable(i) {
		return nil // cancelled or resolved meanwhile: it never ran
	}
	if overtaken { // failed by an actor meanwhile, and ready again: this is not the next attempt
		e.enqueueLocked(t, i)
		return nil
	}
	if delay > 0 {
		k, err := e.startRunLocked(t, i, g)
		if err == nil {
			e.observeLocked(t, k)
			e.delayLocked(k, o, delay, a.timeout)
		}
		return err
	}
	err := e.recordRanLocked(t, i, o, began)
	if err == nil && e.observer != nil {
		e.observer.ran(t, i, a.number, o)
	}
	return err
}

// nextAttempt returns the number that the next start of the step will have.
func (s *step) nextAttempt() int {
	if s.redeliver {
		return s.attempts
	}
	return s.attempts + 1
}

// computeLocked calls f without the lock. The engine is not idle meanwhile, and no handler waits for f.
func (e *engine) computeLocked(f func() (outcome, time.Duration)) (o outcome, delay time.Duration) {
	next := e.follows
	if next != nil && *next != nil {
		e.goHandlers(*next)
		*next = nil
	}
	e.follows = nil
	e.computing++
	e.store.unlocked(func() { o, delay = f() })
	e.computing--
	e.follows = next
	return o, delay
}

// recordRanLocked records an attempt that started and ended at once.
func (e *engine) recordRanLocked(t *task, i int, o outcome, began instant) error {
	return e.store.updateLocked(func(c *change) error {
		return c.append(t, &record{kind: recRan, step: i, startedAt: began, end: e.ending(t, i, o, c.now, began)})
	})
}

// observeLocked shows an attempt that has started to the observer.
func (e *engine) observeLocked(t *task, k *run) {
	if e.observer != nil {
		k.observer = e.observer.started(t, k)
	}
}

// delayLocked ends an attempt with an outcome after a delay, or at its timeout.
func (e *engine) delayLocked(k *run, o outcome, delay, timeout time.Duration) {
	if timeout < delay {
		delay, o = timeout, timedOut(timeout)
	}
	k.timer = e.clock.schedule(k.started.add(delay), func() { e.finish(k, o) })
}

// startRunLocked journals the start of an attempt and takes its slot.
func (e *engine) startRunLocked(t *task, i int, g target) (*run, error) {
	k := &run{key: runKey{t.id, i}, def: t.def(i), pool: e.pool(g.kind)}
	err := e.store.updateLocked(func(c *change) error {
		k.started = c.now
		return c.append(t, &record{kind: recStarted, step: i})
	})
	if err != nil {
		return nil, err
	}
	k.number = t.steps[i].attempts
	e.running[k.key] = k
	k.pool.free--
	return k, nil
}

// handlerRun is an attempt by an HTTP or exec handler that has not begun.
type handlerRun struct {
	*run
	ctx    attemptContext
	target target
	given  *attempt
	seen   uint64 // the last record of what the handler sees
}

// startHandlerLocked starts a handler, in the goroutine of the attempt that is ending or in a new one.
func (e *engine) startHandlerLocked(t *task, i int, g target) error {
	seen := t.lastSeq
	k, err := e.startRunLocked(t, i, g)
	if err != nil {
		return err
	}
	r := &handlerRun{run: k, target: g, given: e.attemptLocked(t, i, k.number, true), seen: seen}
	e.observeLocked(t, k)
	k.cancel = r.ctx.cancel
	e.joinLocked(k)
	if e.follows != nil && *e.follows == nil {
		*e.follows = r
		return nil
	}
	e.goHandlers(r)
	return nil
}

func (e *engine) goHandlers(r *handlerRun) { e.wg.Go(func() { e.runHandlers(r) }) }

// runHandlers runs an attempt, and then one that its end started, and so on: new goroutines for them all
// took 3 % of the time of steps over HTTP. Each begins once what the handler will see is on disk.
func (e *engine) runHandlers(r *handlerRun) {
	growStack()
	for r != nil {
		if err := e.store.outwait(&r.ctx, r.seen); err != nil {
			e.abandon(r.run)
			return
		}
		var next *handlerRun
		e.finishBefore(r.run, e.runHandler(&r.ctx, r.target, r.given), &next)
		r = next
	}
}

// growStack gives a new goroutine at once the stack that an attempt takes. Growing it step by step
// copies what is on it each time, which took 8 % of the processor time in a profile of steps over HTTP.
//
//go:noinline
func growStack() {
	var room [6 << 10]byte
	runtime.KeepAlive(&room)
}

// runHandler runs a handler. While the process has no descriptor left to begin, that is no
// attempt: the handler is run again, with its slot and its whole timeout.
func (e *engine) runHandler(ctx *attemptContext, g target, a *attempt) outcome {
	for {
		o := e.handlers.run(ctx, g, a)
		if !o.unmade {
			return o
		}
		e.causes.outOfDescriptors(o.err.message)
		closedWithin(ctx, nil, unmadeRetryEvery)
	}
}

// unmadeRetryEvery is how often a handler is run again that could not begin, in real time.
const unmadeRetryEvery = 100 * time.Millisecond

// joinLocked enters an attempt as in flight.
func (e *engine) joinLocked(k *run) {
	e.inFlight[k] = struct{}{}
	if e.pacer != nil {
		e.pacer.join(k)
	}
}

// abandon gives up an attempt without an outcome: the engine stops, or nothing
// can be written any more. It is delivered again after a restart.
func (e *engine) abandon(k *run) {
	if e.pacer != nil && e.pacer.ended(k, nil) {
		return
	}
	e.store.locked(func() { e.releaseLocked(k) })
}

// releaseLocked gives the attempt's slot back, and has the scheduler use it.
func (e *engine) releaseLocked(k *run) {
	e.freeSlotLocked(k)
	e.checkIdleLocked()
	e.wakeUp()
}

// freeSlotLocked gives the attempt's slot back, unless that was done already.
func (e *engine) freeSlotLocked(k *run) {
	if k.freed {
		return
	}
	k.freed = true
	delete(e.inFlight, k)
	if e.running[k.key] == k {
		delete(e.running, k.key)
	}
	k.pool.free++
}

// finish records the outcome of an attempt.
func (e *engine) finish(k *run, o outcome) { e.finishBefore(k, o, nil) }

// finishBefore is finish for a caller that can run one more attempt: if next is not nil and the outcome starts
// an attempt, *next may be set to it, and the caller must run it.
func (e *engine) finishBefore(k *run, o outcome, next **handlerRun) {
	o = e.fitted(k.def, o)
	if e.pacer != nil && e.pacer.ended(k, new(o)) {
		return
	}
	if e.ctx.Err() != nil && wasCancelled(o) {
		e.abandon(k)
		return
	}
	e.conclude(k, o, (*engine).endLocked, next)
}

// conclude ends an attempt by what end records of its outcome, and starts the steps that
// follow, see finishBefore. While the store has no room it holds the outcome, with its slot.
func (e *engine) conclude(k *run, o outcome, end func(e *engine, c *change, k *run, o outcome) error, next **handlerRun) {
	var err error
	e.store.locked(func() {
		err = e.store.updateLocked(func(c *change) error { return end(e, c, k, o) })
		if err == nil && e.pacer == nil {
			e.freeSlotLocked(k)
			e.follows = next
			e.pumpLocked(inlineBudget)
			e.follows = nil
			e.checkIdleLocked()
		}
	})
	if err == nil && e.pacer == nil {
		return
	}
	if e.offeredAgain(k, err) {
		e.holdOutcome(k)
		afterReal(outcomeRetryEvery, func() { e.conclude(k, o, end, nil) })
		return
	}
	e.abandon(k)
}

// offeredAgain reports whether an outcome that was not recorded can be later on.
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

// endLocked records the outcome of a step, or in the audit alone if the step left
// in_progress before.
func (e *engine) endLocked(c *change, k *run, o outcome) error {
	if k.observer != nil {
		k.observer.ended(o)
	}
	t, err := c.task(k.key.task)
	if err != nil {
		return err
	}
	if o.stray != "" {
		e.causes.strayMember(t, k.key.step, o)
	}
	if o.checkpoint != nil {
		if k.gone {
			return nil // it was for nothing
		}
		r, err := e.yieldLocked(t, k.key.step, o.checkpoint)
		if err == nil {
			k.gone = true
			return c.append(t, r)
		}
		o = typedFailure(checkpointLimitType, "%v", err)
	}
	if !k.gone {
		k.gone = true
		end := e.ending(t, k.key.step, o, c.now, k.started)
		e.stats.handlerDone(t, end, c.now)
		return c.append(t, &record{kind: recEnded, step: k.key.step, end: end})
	}
	if k.cancel == nil || wasCancelled(o) {
		return nil
	}
	end := e.plainEnding(t, k.key.step, o, c.now, k.started)
	end.retryAt, end.attempt = 0, k.number
	e.stats.late++
	return c.append(t, &record{kind: recLate, step: k.key.step, end: end})
}

// yieldLocked returns the record of a step that yields, and counts it; an error if the step has
// yielded too often.
func (e *engine) yieldLocked(t *task, i int, data []byte) (*record, error) {
	c := &checkpoint{number: 1, data: data}
	if last := t.steps[i].checkpoint; last != nil {
		c.number = last.number + 1
	}
	if c.number > maxCheckpoints {
		e.stats.checkpoints[1]++
		return nil, failf(invalidFields, "step %q has made %d checkpoints, the most that a step may make",
			t.def(i).name, maxCheckpoints)
	}
	e.stats.checkpoints[0]++
	return &record{kind: recCheckpoint, step: i, checkpoint: c}, nil
}

// wasCancelled reports whether an outcome says only that the handler was cut off.
func wasCancelled(o outcome) bool { return o.err != nil && o.err.errorType == cancelledType }

// attemptLocked returns what a handler is given. All of it is immutable.
func (e *engine) attemptLocked(t *task, i, number int, inputs bool) *attempt {
	def := t.def(i)
	a := &attempt{
		checkpoint:  t.steps[i].checkpoint,
		stepName:    def.name,
		number:      number,
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
	a.traceparent, a.tracestate = t.by.traceparent, t.by.tracestate
	a.context, a.inputs, a.handler = t.by.context, t.inputsFor(i), def.handed
	if def.batch != nil {
		a.batch = t.batchInputs(i)
	}
	a.results = t.resultsFor(i)
	return a
}

// Retries.

// ending returns what an outcome means for the step, and when it is tried again,
// if at all. A success whose result or decision the template does not allow is a failure.
func (e *engine) ending(t *task, i int, o outcome, now, began instant) *ending {
	o = o.fitting()
	end := e.plainEnding(t, i, o, now, began)
	if failed, wrong := t.misdecided(i, end); wrong {
		o = failed
		end = e.plainEnding(t, i, o, now, began)
	}
	e.withhold(t, i, end, o.unfit)
	if b := t.def(i).batch; b != nil && !end.success && end.retryAt == 0 {
		end.aside, _ = parseWord[failureAside](b.failureStrategy, failureAsideWords[:])
	}
	return end
}

// withhold notes the events that must not be published after an attempt, because the payload
// does not fit their schema; see (stepTemplate).unfit. The outcome counts all the same.
func (e *engine) withhold(t *task, i int, end *ending, unfit []string) {
	def := t.def(i)
	if def.publishes == nil {
		return
	}
	if unfit == nil {
		unfit = def.unfit(end.payload())
	}
	withheld := map[string]string{}
	for n := range def.publishes {
		if p := &def.publishes[n]; unfit[n] != "" && p.follows(end.success, end.retryAt != 0) {
			withheld[p.name] = clipText(unfit[n], maxWithheldText)
			e.causes.print(slog.LevelWarn, "an event is not published: its payload does not fit its schema",
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

// misdecided returns the failure that counts in place of a success whose decision the
// template does not allow.
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

// backoff returns the wait before the next attempt of a step, after n attempts.
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

// due makes a step ready whose back-off is over: the one before the retry that was due at
// an instant.
func (e *engine) due(id uuid, i int, retryAt instant) {
	_, err := e.store.update(func(c *change) error {
		t, err := c.task(id)
		if err != nil {
			return err
		}
		if s := &t.steps[i]; s.state != stepWaitingForRetry || s.retryAt != retryAt {
			return nil // cancelled or completed by an operator, or waiting once more
		}
		return c.append(t, &record{kind: recDue, step: i})
	})
	if refusedForNow(err) {
		if e.ctx.Err() == nil {
			e.store.locked(func() { e.laterLocked(func() { e.due(id, i, retryAt) }) })
		}
		return
	}
	if err != nil && kindOf(err) != taskMissing { // or the task was dropped meanwhile
		e.log.Error("a retry could not be made ready", "task_uuid", id, "step", i, "error", err)
	}
	e.wakeUp()
}

// armRetry sets the timer of a step that waits for its retry.
func (e *engine) armRetry(t *task, i int, when instant) {
	id, retryAt := t.id, t.steps[i].retryAt
	e.retries[runKey{t.id, i}] = e.clock.schedule(when, func() { e.due(id, i, retryAt) })
}

// stillDue returns when what was due at an instant is due now. It is that instant, unless the
// machine's clock was set back while the process was down: then the wait goes on from the
// task's newest record.
func (t *task) stillDue(when, now instant) instant { return when - max(t.updated-now, 0) }

// disarmRetryLocked cancels the timer of a step that waits no longer.
func (e *engine) disarmRetryLocked(t *task, i int) {
	key := runKey{t.id, i}
	if timer := e.retries[key]; timer != nil {
		timer.cancel()
		delete(e.retries, key)
	}
}

// Resuming after a restart: timers, ready steps, and the attempts that the end of the
// previous process cut off.

// resumeAll resumes the unfinished tasks. Those in error, with steps left running
// or waiting for a retry, are among them: an operator may get such a task going again.
func (e *engine) resumeAll() (err error) {
	e.store.locked(func() {
		var lost []runKey
		resume := func(t *task) { lost = e.resumeLocked(t, lost) }
		e.store.eachLiveLocked(resume)
		if err = e.store.eachUnsettledErrorLocked(resume); err == nil {
			err = e.recordLostLocked(lost)
		}
	})
	return err
}

// resumeLocked resumes the timers and ready steps of one task, and appends its
// attempts that were cut off to lost.
func (e *engine) resumeLocked(t *task, lost []runKey) []runKey {
	for i := range t.steps {
		switch s := &t.steps[i]; s.state {
		case stepEnqueued:
			e.enqueueLocked(t, i)
		case stepWaitingForRetry:
			e.armRetry(t, i, t.stillDue(s.retryAt, e.clock.now()))
		case stepInProgress:
			if s.lease != nil { // its worker is outside this process
				e.watchLeaseLocked(t, i, t.stillDue(s.lease.until, e.clock.now()))
				continue
			}
			lost = append(lost, runKey{t.id, i})
		}
	}
	return lost
}

// recordLostLocked records that attempts were lost. While the store has no room the
// rest waits: a service with a full disk can still be read from.
func (e *engine) recordLostLocked(lost []runKey) error {
	for n, l := range lost {
		err := e.store.updateLocked(func(c *change) error { return e.loseLocked(c, l) })
		if refusedForNow(err) {
			e.laterLocked(func() { e.recordLost(lost[n:]) })
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) recordLost(lost []runKey) {
	e.store.locked(func() {
		if e.stopping {
			return
		}
		if err := e.recordLostLocked(lost); err != nil {
			e.log.Error("attempts that were cut off could not be resumed", "error", err)
		}
		e.wakeUp()
	})
}

// loseLocked records that an attempt was lost, unless its step moved on meanwhile.
func (e *engine) loseLocked(c *change, l runKey) error {
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

// lostRecord returns the record of a lost attempt: it is delivered again, or fails
// after too many deliveries.
func (e *engine) lostRecord(t *task, i int) *record {
	s := &t.steps[i]
	if s.redelivered < maxRedeliveries {
		return &record{kind: recRecovered, step: i}
	}
	o := typedFailure(workerLostType, "the process ended while the attempt ran, on every delivery")
	return &record{kind: recEnded, step: i, end: e.ending(t, i, o, e.clock.now(), s.attempted)}
}
