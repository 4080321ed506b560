package main

// Lockstep: how an engine runs steps when the same script is to give the same
// records, however fast handlers are. Whatever is ready at one virtual instant
// starts as one batch; what its members come to is held until all have ended,
// and recorded in the order of tasks and steps. Timers fire, and changes from
// outside are taken, between batches alone.

import (
	"cmp"
	"context"
	"slices"
)

// lockstep is the batch of an engine. All of it is guarded by store.mu, but for
// what is set before the engine runs.
type lockstep struct {
	clock  *virtualClock
	inTurn func(ctx context.Context, f func() error) error // calls f under store.mu when nothing moves

	open    bool   // a batch has begun and not all of it is recorded
	waiting int    // members that have not ended, and one more while the batch is filled
	ended   []*run // members that have
}

// busyLocked tells whether there is something to be done at this instant that
// the engine's queues do not show.
func (e *engine) busyLocked() bool {
	return e.lockstep != nil && (e.lockstep.open || len(e.outside.fresh) > 0)
}

// runBatchesLocked runs one batch after the other, until handlers of one are in
// flight, a timer comes first or nothing is ready. Then outside actors get theirs.
func (e *engine) runBatchesLocked() (stopping bool) {
	l := e.lockstep
	for !e.stopping && !l.open && l.clock.settled() {
		if !e.startableLocked() {
			e.feedLocked()
			break
		}
		l.open, l.waiting = true, 1
		filled := e.fillBatchLocked()
		l.waiting--
		e.closeBatchLocked()
		if !filled {
			break
		}
	}
	return e.stopping
}

// fillBatchLocked starts every ready step for which there is a slot. It reports
// whether the store took them all.
func (e *engine) fillBatchLocked() bool {
	for !e.stopping {
		it, ok := e.nextLocked()
		if !ok {
			break
		}
		if err := e.launchLocked(it); err != nil {
			e.requeueLocked(it)
			e.log.Debug("no step can start", "error", err)
			afterReal(outcomeRetryEvery, e.wakeUp)
			return false
		}
	}
	return true
}

// joinLocked enters an attempt as in flight; in lockstep as a member of the batch.
func (e *engine) joinLocked(k *run) {
	if e.lockstep != nil {
		e.joinBatchLocked(k)
		return
	}
	e.inFlight[k] = struct{}{}
}

// joinBatchLocked makes an attempt that has started a member of the batch, which
// waits for memberEnded.
func (e *engine) joinBatchLocked(k *run) {
	k.member = true
	e.inFlight[k] = struct{}{}
	e.lockstep.waiting++
}

// joinBuiltinLocked computes a builtin as a member of the batch, without the
// lock. One that asks for a delay leaves the batch: its end is a timer.
func (e *engine) joinBuiltinLocked(t *task, i int, g target) error {
	k, err := e.startRunLocked(t, i, false)
	if err != nil {
		return err
	}
	a := e.attemptLocked(t, i, g.builtin.needsInputs)
	a.number = k.number
	k.call = e.noteLocked(t, i, k.number)
	e.calls.add(k.call)
	k.cancel = func() {} // it cannot be cut off
	t.steps[i].queued = false
	e.joinBatchLocked(k)
	e.computing++
	e.store.mu.Unlock()
	o, delay := g.builtin.run(a)
	e.store.mu.Lock()
	e.computing--
	if delay > 0 && !k.gone {
		e.leaveBatchLocked(k)
		e.delayLocked(k, o, delay, a.timeout)
		return nil
	}
	e.memberEndedLocked(k, &o)
	return nil
}

func (e *engine) leaveBatchLocked(k *run) {
	k.member, k.cancel = false, nil
	delete(e.inFlight, k)
	e.lockstep.waiting--
}

// memberEnded holds what a member of the batch came to, nil when it was given
// up, until all have ended.
func (e *engine) memberEnded(k *run, o *outcome) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	e.memberEndedLocked(k, o)
	e.closeBatchLocked()
}

func (e *engine) memberEndedLocked(k *run, o *outcome) {
	l := e.lockstep
	k.outcome = o
	l.ended = append(l.ended, k)
	l.waiting--
}

// closeBatchLocked records the batch once all of it have ended. What the store
// cannot take now is offered again.
func (e *engine) closeBatchLocked() {
	l := e.lockstep
	if l.waiting > 0 || !l.open {
		return
	}
	slices.SortFunc(l.ended, func(a, b *run) int {
		return cmp.Or(cmp.Compare(a.born, b.born), cmp.Compare(a.key.step, b.key.step), a.delivery()-b.delivery())
	})
	empty := len(l.ended) == 0
	for len(l.ended) > 0 {
		if !e.recordMemberLocked(l.ended[0]) {
			afterReal(outcomeRetryEvery, e.closeBatch)
			return
		}
		l.ended = l.ended[1:]
	}
	l.ended, l.open = nil, false
	l.clock.stirred.ring() // for the timers that had to wait
	e.lookUpLocked()
	if !empty { // or a store that takes nothing would be asked again at once
		e.wakeUp()
	}
}

// delivery is 1 for the second delivery of an attempt.
func (k *run) delivery() int {
	if k.stray {
		return 1
	}
	return 0
}

func (e *engine) closeBatch() {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	e.closeBatchLocked()
}

// recordMemberLocked records the outcome of a member and gives its slot back,
// unless the store cannot take it now. One that goes wrong becomes a delay.
func (e *engine) recordMemberLocked(k *run) bool {
	if k.goesWrong != nil && k.outcome != nil && !k.gone && !wasCancelled(*k.outcome) {
		e.parkLocked(k.goesWrong, *k.outcome)
		return true
	}
	if o := k.outcome; o != nil && !(e.ctx.Err() != nil && wasCancelled(*o)) {
		err := e.store.updateLocked(func(c *change) error { return e.endLocked(c, k, *o) })
		if e.offeredAgain(k, err) {
			return false
		}
	}
	e.releaseLocked(k)
	return true
}

// inTurn calls f under the store's lock; in lockstep once nothing moves.
func (e *engine) inTurn(ctx context.Context, f func() error) error {
	if e.lockstep != nil && e.lockstep.inTurn != nil {
		return e.lockstep.inTurn(ctx, f)
	}
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	return f()
}

// change is store.update for whoever is outside of the engine. In lockstep it
// waits until nothing moves, and starts what follows from it.
func (e *engine) change(ctx context.Context, decide func(c *change) error) (seq uint64, err error) {
	if e.lockstep == nil || e.lockstep.inTurn == nil {
		return e.store.update(decide)
	}
	err = e.lockstep.inTurn(ctx, func() error {
		err := e.store.updateLocked(decide)
		seq = e.store.seq
		return err
	})
	e.pump(inlineBudget)
	return seq, err
}
