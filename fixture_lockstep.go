package main

// Lockstep: how an engine runs steps when the same script must give the same
// records, however fast handlers are. Whatever is ready at one virtual instant
// starts as one batch; the outcomes of its members are held until all have ended,
// then recorded in the order of tasks and steps. Timers fire, and changes from
// outside are taken, between batches alone.

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// lockstep paces an engine. All of it is guarded by the store's lock, except what
// is set before the engine runs.
type lockstep struct {
	fixture *fixture
	engine  *engine
	clock   *virtualClock
	keeper  *timekeeper // nil until the engine runs

	open    bool   // a batch has begun and not all of it is recorded
	waiting int    // members that have not ended; one more while the batch is filled, which keeps it open
	done    []*run // members that have ended
}

// busy reports work of this instant that the engine's queues do not show.
func (l *lockstep) busy() bool { return l.open || len(l.engine.outside.fresh) > 0 }

// pump runs one batch after the other, until handlers of a batch are in flight, a timer comes first or nothing is
// ready. When nothing is ready, outside actors get their steps.
func (l *lockstep) pump() {
	e := l.engine
	for !e.stopping && !l.open && l.clock.settled() {
		if !e.queues.startable() {
			e.outside.feedLocked()
			break
		}
		l.open, l.waiting = true, 1
		filled := l.fill()
		l.waiting--
		l.close()
		if !filled {
			break
		}
	}
}

// fill starts every ready step for which a slot is free. It reports whether the store accepted them all.
func (l *lockstep) fill() bool {
	for !l.engine.stopping {
		it, ok := l.engine.queues.next()
		if !ok {
			break
		}
		if !l.engine.tryLaunchLocked(it) {
			return false
		}
	}
	return true
}

// join makes an attempt that has started a member of the batch.
func (l *lockstep) join(k *run) {
	deliveryOf(k).member = true
	l.waiting++
}

// runBuiltin computes a builtin as a member of the batch, without the lock. One
// that asks for a delay leaves the batch: its end is a timer.
func (l *lockstep) runBuiltin(t *task, i int, g target) error {
	e := l.engine
	k, err := e.startRunLocked(t, i, g)
	if err != nil {
		return err
	}
	a := e.attemptLocked(t, i, k.number, true)
	e.observeLocked(t, k, a)
	k.cancel = cannotCancel
	t.steps[i].queued = false
	e.joinLocked(k)
	o, delay := e.computeLocked(func() (outcome, time.Duration) { return g.builtin.run(a) })
	// The lock was released during the computation, so the attempt may have been ended by somebody else.
	if delay > 0 && !k.gone {
		becomeDelay(e, k)
		l.waiting--
		e.delayLocked(k, o, delay, a.timeout)
		return nil
	}
	l.endedLocked(k, &o)
	return nil
}

// ended holds the outcome of a member of the batch until all have ended.
func (l *lockstep) ended(k *run, o *outcome) bool {
	if !deliveryOf(k).member {
		return false
	}
	l.engine.store.locked(func() {
		l.endedLocked(k, o)
		l.close()
	})
	return true
}

func (l *lockstep) endedLocked(k *run, o *outcome) {
	deliveryOf(k).outcome = o
	l.done = append(l.done, k)
	l.waiting--
}

// close records the batch once all members have ended. If the store cannot accept an outcome now, close tries again
// later.
func (l *lockstep) close() {
	if l.waiting > 0 || !l.open {
		return
	}
	// The order in which handlers end depends on the machine, the order of tasks and steps does not.
	slices.SortFunc(l.done, func(a, b *run) int {
		return cmp.Or(cmp.Compare(deliveryOf(a).created, deliveryOf(b).created), cmp.Compare(a.key.step, b.key.step),
			cmp.Compare(deliveryOf(a).order, deliveryOf(b).order))
	})
	empty := len(l.done) == 0
	for len(l.done) > 0 {
		if !l.record(l.done[0]) {
			afterReal(outcomeRetryEvery, func() { l.engine.store.locked(l.close) })
			return
		}
		l.done = l.done[1:]
	}
	l.done, l.open = nil, false
	l.clock.stirred.notify() // for the timers that had to wait
	l.engine.checkIdleLocked()
	if !empty { // or a store that takes nothing would be asked again at once
		l.engine.wakeUp()
	}
}

// record records the outcome of a member and gives its slot back. It returns false if the store cannot accept the
// outcome now. The outcome of a member that is to go wrong becomes a delay.
func (l *lockstep) record(k *run) bool {
	e, d := l.engine, deliveryOf(k)
	if d.goesWrong != nil && d.outcome != nil && !k.gone && !wasCancelled(*d.outcome) {
		l.fixture.parkLocked(d.goesWrong, *d.outcome)
		return true
	}
	if o := d.outcome; o != nil && !(e.ctx.Err() != nil && wasCancelled(*o)) {
		err := e.store.updateLocked(func(c *change) error { return e.endLocked(c, k, *o) })
		if e.offeredAgain(k, err) {
			return false
		}
	}
	e.releaseLocked(k)
	return true
}

// inTurn calls f under the store's lock, once nothing moves.
func (l *lockstep) inTurn(ctx context.Context, f func() error) (err error) {
	if l.keeper != nil {
		return l.keeper.inTurn(ctx, f)
	}
	// Before the engine runs, nothing moves.
	l.engine.store.locked(func() { err = f() })
	return err
}
