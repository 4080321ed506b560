package main

// Handlers that do not listen. What could not be sent was no attempt: its step is enqueued as before, and waits for the
// address. One goroutine connects there now and then, in real time and without a request. Once somebody listens, one of the
// steps starts, then two more for each that was delivered, so that a handler that has just started is not flooded.
//
// So that nothing has to be taken back as a rule, the start of an attempt is recorded once its connection stands.

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// The pauses between two probes of an address.
const (
	firstProbe = 100 * time.Millisecond
	lastProbe  = 5 * time.Second
)

// absentHandlers are the handlers that do not listen. It is guarded by the store's lock.
type absentHandlers struct {
	engine *engine
	by     map[listener]*absentHandler
	probes *sync.WaitGroup // which end once the engine's context does
}

// absentHandler is an address that does not listen, and the steps that wait for it.
type absentHandler struct {
	at      listener
	since   instant                  // in real time
	waiting priorityQueue[readyStep] // each marked as queued
	passes  int                      // how many steps may start all the same
}

// of returns the handler of a target if it does not listen, else nil.
func (h absentHandlers) of(g target) *absentHandler {
	if len(h.by) == 0 || g.http == nil {
		return nil
	}
	return h.by[h.engine.handlers.web.listenerOf(g.http.url)]
}

// admit reports whether a step may start. Else it waits.
func (a *absentHandler) admit(it readyStep) bool {
	if a.passes > 0 {
		a.passes--
		return true
	}
	a.waiting.push(it)
	return false
}

// steps returns how many steps wait. Those that were cancelled, held or ended meanwhile do so no longer.
func (a *absentHandler) steps() int {
	all := a.waiting.items
	a.waiting.items = nil
	for _, it := range all {
		if !it.leaves() {
			a.waiting.push(it)
		}
	}
	return len(a.waiting.items)
}

// String says since when an address has not been listening.
func (a *absentHandler) String() string {
	return fmt.Sprintf("%s has not been listening since %s UTC", a.at.address, a.since.time().UTC().Format("15:04:05"))
}

// absence describes an address that does not listen, for health checks, metrics and wait-idle.
type absence struct {
	address  string
	steps    int // that wait
	sentence string
}

// told describes the addresses for which steps wait, in their order.
func (h absentHandlers) told() (all []absence) {
	for _, a := range h.by {
		n := a.steps()
		if n == 0 {
			continue
		}
		all = append(all, absence{a.at.address, n, fmt.Sprintf("%s; %s for it; %s", a, counted(n, "step waits", "steps wait"), startYourHandler)})
	}
	slices.SortFunc(all, func(a, b absence) int { return cmp.Compare(a.address, b.address) })
	return all
}

// awaitConnectionLocked makes a run whose start is recorded by begin. Until then its step stays marked as queued, so that
// nobody else queues it.
func (r *handlerRun) awaitConnectionLocked(e *engine, t *task, i int) {
	t.steps[i].queued = true
	r.run = e.newRunLocked(t, i, r.target)
	r.before = new(t.steps[i])
	r.pool.free--
	r.given = e.attemptLocked(t, i, r.before.nextAttempt(), true)
	r.given.begin = func() bool { return r.begin(e) }
	e.work.dialing[r.key] = r.run
}

// begin records the start of an attempt whose connection stands. It reports whether the step may still start.
func (r *handlerRun) begin(e *engine) bool {
	e.store.disk().makeRoom(0)
	var err error
	e.store.locked(func() {
		delete(e.work.dialing, r.key) // or the start would cut it off
		t, i := e.store.liveLocked(r.key.task), r.key.step
		if e.stopping || t == nil || !t.runnable(i) || t.steps[i] != *r.before {
			return
		}
		t.steps[i].queued = false
		if err = e.beginLocked(t, r.run); err != nil {
			t.steps[i].queued = true
			return
		}
		r.begun = true
		e.observeLocked(t, r.run, r.given)
		e.absent.delivered(r.target)
	})
	if err != nil { // the store refuses changes for now
		e.log.Debug("no step can start", "error", err)
		closedWithin(r.ctx, nil, outcomeRetryEvery)
	}
	return r.begun
}

// wasAttempt reports whether a handler's outcome is that of an attempt. Else it has put the step back.
func (r *handlerRun) wasAttempt(e *engine, o outcome) bool {
	switch {
	case r.before == nil, r.begun && !o.unsent:
		return true
	case o.unsent:
		e.store.locked(func() { e.absent.miss(r.target, o.err.message) })
	case !o.unbegun && !wasCancelled(o) && r.begin(e): // nobody can be called, for a reason that stays
		return true
	}
	if r.begun { // on a connection that proved closed
		e.conclude(r.run, o, (*engine).takeBackLocked)
		return false
	}
	r.putBack(e)
	return false
}

// takeBackLocked records that an attempt was none after all.
func (e *engine) takeBackLocked(c *change, k *run, o outcome) error {
	if k.observer != nil {
		k.observer.ended(o)
	}
	t, err := c.task(k.key.task)
	if err != nil || k.gone {
		return err
	}
	k.gone = true
	return c.append(t, &record{kind: recUndelivered, step: k.key.step, before: k.before.stepCount})
}

// putBack puts the step of an attempt that did not begin into its queue again.
func (r *handlerRun) putBack(e *engine) {
	e.store.locked(func() {
		delete(e.work.dialing, r.key)
		if t, i := e.store.liveLocked(r.key.task), r.key.step; t != nil {
			t.steps[i].queued = false
			if t.runnable(i) {
				e.enqueueLocked(t, i)
			}
		}
		e.releaseLocked(r.run)
	})
}

// miss notes that the handler of a target does not listen.
func (h absentHandlers) miss(g target, why string) {
	at := h.engine.handlers.web.listenerOf(g.http.url)
	if a := h.by[at]; a != nil {
		a.passes = 0
		return
	}
	a := &absentHandler{at: at, since: realNow(), waiting: newStepQueue()}
	h.by[at] = a
	h.engine.causes.print(slog.LevelWarn, "a handler does not listen: steps wait for it; "+startYourHandler, "address", at.address, "error", why)
	h.probes.Go(func() { h.probe(a) })
}

// probe looks for a handler until it is forgotten, or the engine stops.
func (h absentHandlers) probe(a *absentHandler) {
	for pause, over := firstProbe, false; !over; pause = min(2*pause, lastProbe) {
		if closedWithin(h.engine.ctx, nil, pause) != errTooLong {
			return
		}
		err := a.at.probe(h.engine.ctx)
		h.engine.store.locked(func() { over = h.probed(a, err) })
	}
}

// probed takes the result of a probe. It reports whether the handler was forgotten.
func (h absentHandlers) probed(a *absentHandler, err error) (over bool) {
	switch {
	case h.by[a.at] != a: // it was delivered to; another one may be in its place
		return true
	case err != nil && a.steps() == 0:
		h.forget(a, "no step waits any more for a handler that does not listen")
	case err != nil:
		a.passes = 0
	case len(a.waiting.items) == 0: // and what was released has not come back
		h.forget(a, listensAgain)
	default:
		h.release(a, 1)
	}
	return h.by[a.at] != a
}

const listensAgain = "a handler listens again"

// delivered notes that a connection to the handler of a target stands.
func (h absentHandlers) delivered(g target) {
	a := h.of(g)
	if a == nil {
		return
	}
	if h.release(a, 2); len(a.waiting.items) == 0 {
		h.forget(a, listensAgain)
	}
}

// release lets some of the steps that wait for a handler start.
func (h absentHandlers) release(a *absentHandler, most int) {
	for most > 0 && len(a.waiting.items) > 0 {
		if it := a.waiting.pop(); !it.leaves() {
			h.engine.queues.requeue(it)
			a.passes++
			most--
		}
	}
	h.engine.wakeUp()
}

// forget ends the search for a handler.
func (h absentHandlers) forget(a *absentHandler, why string) {
	delete(h.by, a.at)
	h.engine.causes.print(slog.LevelInfo, why, "address", a.at.address, "after", roughly(realNow().sub(a.since)))
	h.engine.checkIdleLocked()
}

// waiting returns how many steps wait for handlers, those that will not run any more included: every creation asks for it.
func (h absentHandlers) waiting() (n int) {
	for _, a := range h.by {
		n += len(a.waiting.items)
	}
	return n
}
