package main

// Attempts: how a step starts on a slot, what its handler is given, and how its outcome is recorded.

import (
	"context"
	"errors"
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
	before   *step              // the step before its start, if that waits for a connection; else nil
	gone     bool               // the step left in_progress without it; guarded by the store's lock
	freed    bool               // its slot was given back; guarded by the store's lock
}

// runBuiltinLocked (hot path: BenchmarkDiamond) computes a builtin without the lock, on a slot. Its start and
// its outcome are one record; a delay that it asks for makes it an attempt in flight.
func (e *engine) runBuiltinLocked(t *task, i int, g target) error {
	// before is a copy: comparing it shows whether anything moved the step while the lock was free.
	// The step stays marked as queued until then, so that nobody else queues it.
	before, def := t.steps[i], t.def(i)
	a := e.attemptLocked(t, i, before.nextAttempt(), g.builtin.needsInputs || e.hooks.observer != nil)
	e.queues.local.free-- // or another goroutine that pumps would give it away meanwhile
	var began instant
	o, delay := e.computeLocked(func() (outcome, time.Duration) {
		began = e.clock.now()
		o, delay := g.builtin.run(a)
		if delay == 0 { // or finish does it
			o = e.schemas.fittedOwn(def, o)
		}
		return o, delay
	})
	e.queues.local.free++
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
			e.observeLocked(t, k, a)
			e.delayLocked(k, o, delay, a.timeout)
		}
		return err
	}
	err := e.recordRanLocked(t, i, o, began)
	if err == nil && e.hooks.observer != nil {
		e.hooks.observer.ran(t, i, a, o)
	}
	return err
}

// computeLocked calls f without the lock. The engine is not idle meanwhile.
func (e *engine) computeLocked(f func() (outcome, time.Duration)) (o outcome, delay time.Duration) {
	e.work.computing++
	e.store.unlocked(func() { o, delay = f() })
	e.work.computing--
	return o, delay
}

// recordRanLocked records an attempt that started and ended at once.
func (e *engine) recordRanLocked(t *task, i int, o outcome, began instant) error {
	return e.store.updateLocked(func(c *change) error {
		return c.append(t, &record{kind: recRan, step: i, startedAt: began, end: e.outcomes.ending(t, i, o, c.now, began)})
	})
}

// observeLocked shows an attempt that has started to the observer, with all its inputs.
func (e *engine) observeLocked(t *task, k *run, a *attempt) {
	if e.hooks.observer != nil {
		k.observer = e.hooks.observer.started(t, k, a)
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
	k := e.newRunLocked(t, i, g)
	if err := e.beginLocked(t, k); err != nil {
		return nil, err
	}
	k.pool.free--
	return k, nil
}

func (e *engine) newRunLocked(t *task, i int, g target) *run {
	return &run{key: runKey{t.id, i}, def: t.def(i), pool: e.queues.pool(g.kind)}
}

// beginLocked journals the start of an attempt.
func (e *engine) beginLocked(t *task, k *run) error {
	err := e.store.updateLocked(func(c *change) error {
		k.started = c.now
		return c.append(t, &record{kind: recStarted, step: k.key.step})
	})
	if err == nil {
		k.number = t.steps[k.key.step].attempts
		e.work.running[k.key] = k
	}
	return err
}

// handlerRun is an attempt by an HTTP or exec handler that has not begun.
type handlerRun struct {
	*run
	ctx    context.Context
	target target
	given  *attempt
	seen   uint64 // the last record of what the handler sees
	begun  bool   // the start was recorded
}

// startHandlerLocked starts a handler.
func (e *engine) startHandlerLocked(t *task, i int, g target) error {
	// The record of the start is not among what the handler waits for. If a crash loses it, the
	// attempt starts again under the same number.
	r := &handlerRun{target: g, seen: t.lastSeq}
	if e.patient && e.hooks.pacer == nil && g.canWait() { // in lockstep no start waits for the network
		r.awaitConnectionLocked(e, t, i)
	} else {
		var err error
		if r.run, err = e.startRunLocked(t, i, g); err != nil {
			return err
		}
		r.begun, r.given = true, e.attemptLocked(t, i, r.number, true)
		e.observeLocked(t, r.run, r.given)
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	e.joinLocked(r.run)
	e.wg.Go(func() { e.makeAttempt(r) })
	return nil
}

// makeAttempt runs a handler once what it will see is on disk, and records the outcome.
func (e *engine) makeAttempt(r *handlerRun) {
	growStack()
	if err := e.store.wait(r.ctx, r.seen); err != nil {
		e.abandon(r.run)
	} else if o := e.runHandler(r.ctx, r.target, r.given); r.wasAttempt(e, o) {
		e.finish(r.run, o)
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
func (e *engine) runHandler(ctx context.Context, g target, a *attempt) outcome {
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
	e.work.inFlight[k] = struct{}{}
	if e.hooks.pacer != nil {
		e.hooks.pacer.join(k)
	}
}

// abandon gives up an attempt without an outcome: the engine stops, or nothing
// can be written any more. It is delivered again after a restart.
func (e *engine) abandon(k *run) {
	if e.hooks.pacer != nil && e.hooks.pacer.ended(k, nil) {
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
	delete(e.work.inFlight, k)
	// A step that went on without this attempt may be running another one.
	if e.work.running[k.key] == k {
		delete(e.work.running, k.key)
	}
	k.pool.free++
}

// finish records the outcome of an attempt.
func (e *engine) finish(k *run, o outcome) {
	o = e.schemas.fittedOwn(k.def, o)
	if e.hooks.pacer != nil && e.hooks.pacer.ended(k, new(o)) {
		return
	}
	if e.ctx.Err() != nil && wasCancelled(o) {
		// The stop cut the handler off, which says nothing about the step.
		e.abandon(k)
		return
	}
	e.conclude(k, o, (*engine).endLocked)
}

// conclude ends an attempt by what end records of its outcome, and starts the steps that
// follow. While the store has no room it holds the outcome, with its slot.
func (e *engine) conclude(k *run, o outcome, end func(e *engine, c *change, k *run, o outcome) error) {
	var err error
	e.store.disk().makeRoom(0)
	e.store.locked(func() {
		err = e.store.updateLocked(func(c *change) error { return end(e, c, k, o) })
		if err == nil && e.hooks.pacer == nil {
			e.freeSlotLocked(k)
			e.pumpLocked(inlineBudget)
			e.checkIdleLocked()
		}
	})
	if err == nil && e.hooks.pacer == nil {
		return
	}
	if e.offeredAgain(k, err) {
		e.holdOutcome(k)
		afterReal(outcomeRetryEvery, func() { e.conclude(k, o, end) })
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

// endLocked records the outcome of a step, or in the audit alone if the step left in_progress before.
func (e *engine) endLocked(c *change, k *run, o outcome) error {
	if k.observer != nil {
		k.observer.ended(o)
	}
	t, err := c.task(k.key.task)
	if err != nil {
		return err
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
		end := e.outcomes.ending(t, k.key.step, o, c.now, k.started)
		e.stats.handlerDone(end)
		return c.append(t, &record{kind: recEnded, step: k.key.step, end: end})
	}
	// A delay of our own and a handler that was cut off have no outcome that the audit could show.
	if k.cancel == nil || wasCancelled(o) {
		return nil
	}
	end := e.outcomes.plainEnding(t, k.key.step, o, c.now, k.started)
	// Nothing follows from this outcome, and the step may be at a later attempt by now.
	end.retryAt, end.attempt = 0, k.number
	e.stats.late++
	return c.append(t, &record{kind: recLate, step: k.key.step, end: end})
}

// yieldLocked returns the record of a step that yields, and counts it; an error if the step has yielded too often.
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
	a.asked, a.templateStep, a.results = requesterOf(t), t.tpl.steps[t.declared(i)].name, t.resultsFor(i)
	if s := &t.steps[i]; s.last != nil {
		a.previous = new(s.past())
	}
	return a
}
