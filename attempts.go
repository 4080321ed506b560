package main

// Attempts: how a step is started on a slot, what its handler is given, and what
// follows from its end.

import (
	"context"
	"errors"
	"time"
)

// outcomeRetryEvery is how often the outcome of a finished attempt is offered
// to a store that cannot take it, in real time.
const outcomeRetryEvery = time.Second

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

// resultsFor is the results of the step's completed ancestors, or of its
// parents alone where the template says so, in the order of the template.
func (t *task) resultsFor(i int) []namedResult {
	def := t.def(i)
	wanted := t.parents(i)
	if !def.parentsOnly {
		wanted = ancestorsOf(i, func(p int) []int { return t.parents(p) })
	}
	results := make([]namedResult, 0, len(wanted))
	for _, p := range wanted {
		s := &t.steps[p]
		r := namedResult{step: t.def(p).name}
		switch {
		case s.state == stepComplete && s.last != nil:
			r.result = s.last.result
		case !s.state.satisfies():
			continue
		}
		results = append(results, r)
	}
	return results
}
