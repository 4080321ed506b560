package main

// How stubs are played: an outcome, a delay or a fault in the place of a step's
// handler, through the same records and transitions as a real attempt.

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"
)

// startingAttempt is an attempt that is to start, as stubs see it.
type startingAttempt struct {
	t *task
	i int
}

func (a startingAttempt) fact(member string) string {
	switch member {
	case "namespace":
		return a.t.tpl.namespace
	case "name":
		return a.t.tpl.name
	case "version":
		return a.t.tpl.version
	case "step":
		return a.t.def(a.i).name
	case "callable":
		return a.t.def(a.i).callable
	case "attempt":
		return strconv.Itoa(a.t.steps[a.i].nextAttempt())
	}
	return ""
}

func (a startingAttempt) document(string) []byte { return appendObject(nil, a.t.by.context) }

// nextAttempt is the number that the next start of the step will have.
func (s *step) nextAttempt() int {
	if s.redeliver {
		return s.attempts
	}
	return s.attempts + 1
}

// stubbedLocked tells whether a step for outside actors may be played instead.
func (e *engine) stubbedLocked(t *task, i int) bool {
	return e.stubs.size() > 0 && e.stubs.mayAct(startingAttempt{t, i})
}

// playLocked has a stub take the place of the handler of a step that left its
// queue, if there is one for it. With an error nothing has happened.
func (e *engine) playLocked(t *task, i int, g target) (played bool, err error) {
	s := e.stubs.choose(startingAttempt{t, i})
	if s == nil {
		return false, nil
	}
	so := s.next()
	if so == nil {
		return false, nil
	}
	t.steps[i].queued = false
	if so.instant() && e.lockstep == nil {
		err = e.ranLocked(t, i, *so.outcome, e.clock.now(), e.noteLocked(t, i, t.steps[i].nextAttempt()).by(s, noFault))
	} else {
		err = e.startPlayedLocked(t, i, g, s, so)
	}
	if err == nil {
		s.uses++
	}
	return true, err
}

// playedRun is an attempt in flight that a stub has decided.
type playedRun struct {
	*run
	*stubOutcome
	delay   time.Duration // until it lands
	timeout time.Duration
	note    func(*run) // enters a delivery in the request journal
}

// startPlayedLocked begins an attempt that takes time or goes wrong. Where that
// needs an outcome that the stub does not have, the step's own handler is called.
func (e *engine) startPlayedLocked(t *task, i int, g target, s *stub, so *stubOutcome) error {
	seen := t.lastSeq
	k, err := e.startRunLocked(t, i, g.kind == httpHandler)
	if err != nil {
		return err
	}
	a := e.attemptLocked(t, i, true)
	a.number = k.number
	p := &playedRun{run: k, stubOutcome: so, delay: so.delay, timeout: a.timeout}
	callable := t.def(i).callable
	p.note = func(k *run) {
		k.call = noteOf(a, callable).by(s, so.fault)
		e.calls.add(k.call)
	}
	p.note(k)
	switch {
	case so.instant():
		e.joinPlayedLocked(k, *so.outcome)
	case so.hang:
		p.delay = a.timeout + 1
		e.landLocked(p, *so.outcome)
	case so.outcome != nil:
		e.landLocked(p, *so.outcome)
	case so.fault == workerLost || g.kind == outsideActor:
		e.landLocked(p, outcome{success: true})
	case g.builtin != nil:
		o, delay := g.builtin.run(a) // memory work, in fixture mode alone
		p.delay += delay
		e.landLocked(p, o)
	default:
		e.callLocked(p, g, a, seen)
	}
	return nil
}

// landLocked has the attempt end with an outcome, or go wrong with it, when it is
// time for that.
func (e *engine) landLocked(p *playedRun, o outcome) {
	k, at, late := p.run, p.started.add(p.delay), p.started.add(p.timeout)
	if p.fault == resultLost || p.fault == lateCompletion {
		k.call.ended(o) // this is what the handler said, whatever becomes of it
	}
	end := func() { e.finish(k, o) }
	switch {
	case p.fault == lateCompletion:
		at = late
		second := k.again()
		end = func() {
			e.clock.schedule(late.add(p.delay), func() { e.finish(second, o) })
			e.finish(k, timedOut(p.timeout))
		}
	case p.delay > p.timeout:
		at = late
		end = func() { e.finish(k, timedOut(p.timeout)) }
	case p.fault == duplicateDelivery:
		second := k.again()
		end = func() {
			p.note(second)
			e.finish(k, o)
			e.finish(second, o)
		}
	case p.fault == workerLost:
		k.lost, k.call = true, nil // it never comes to anything
	case p.fault == resultLost:
		k.lost = true
	}
	k.timer = e.clock.schedule(at, end)
}

// joinPlayedLocked has an attempt that ends at once take part in its batch.
func (e *engine) joinPlayedLocked(k *run, o outcome) {
	k.cancel = func() {} // it cannot be cut off
	e.joinBatchLocked(k)
	e.memberEndedLocked(k, &o)
}

// again is another delivery of an attempt: what it comes to is too late.
func (k *run) again() *run {
	return &run{
		key: k.key, web: k.web, number: k.number, started: k.started, born: k.born, gone: true, stray: true, freed: true,
	}
}

// callLocked calls the handler of an attempt that goes wrong: once, or twice
// where the delivery is doubled.
func (e *engine) callLocked(p *playedRun, g target, a *attempt, seen uint64) {
	k := p.run
	ctx, cancel := context.WithCancel(e.ctx)
	k.cancel = cancel
	e.joinLocked(k)
	call := func() (o outcome, ok bool) {
		if err := e.store.journal.wait(ctx, seen); err != nil {
			return o, false
		}
		return e.handlers.run(ctx, g, a), true
	}
	if p.fault != duplicateDelivery {
		k.goesWrong = p
		e.wg.Go(func() {
			defer cancel()
			if o, ok := call(); ok {
				e.park(p, o)
			} else {
				e.abandon(k)
			}
		})
		return
	}
	second := k.again()
	second.freed = false
	*e.free(k.web)--
	e.joinLocked(second)
	if second.member {
		p.note(second) // in the order of the batch
	}
	e.wg.Go(func() {
		defer cancel()
		for _, k := range []*run{k, second} {
			if k == second && !k.member {
				p.note(k)
			}
			if o, ok := call(); ok {
				e.finish(k, o)
			} else {
				e.abandon(k)
			}
		}
	})
}

// park has the outcome that a handler gave go wrong. The attempt is no handler
// in flight any more, but a delay of our own.
func (e *engine) park(p *playedRun, o outcome) {
	e.store.mu.Lock()
	k := p.run
	if k.member || k.gone || wasCancelled(o) {
		e.store.mu.Unlock()
		e.finish(k, o)
		return
	}
	e.parkLocked(p, o)
	e.lookUpLocked()
	e.store.mu.Unlock()
}

func (e *engine) parkLocked(p *playedRun, o outcome) {
	p.member, p.cancel = false, nil
	delete(e.inFlight, p.run)
	e.landLocked(p, o)
}

// changeStubs changes the stubs, and has those steps be played that waited for
// outside actors until now.
func (e *engine) changeStubs(ctx context.Context, f func(*stubs) error) error {
	return e.inTurn(ctx, func() error { return e.changeStubsLocked(f) })
}

func (e *engine) changeStubsLocked(f func(*stubs) error) error {
	if err := f(e.stubs); err != nil {
		return err
	}
	var played []runKey
	everything := func(claimKey) bool { return true }
	e.outside.waiting.walk(everything, func(o *outsideStep) bool {
		if t := e.store.liveLocked(o.task); t != nil && e.stubbedLocked(t, o.step) {
			played = append(played, o.runKey)
		}
		return true
	})
	for _, k := range slices.Clip(played) {
		e.outside.waiting.remove(k)
		e.pushLocked(e.store.liveLocked(k.task), k.step)
	}
	e.wakeUp()
	return nil
}

func (e *engine) readStubs(f func(*stubs)) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	f(e.stubs)
}

// Lockstep: how an engine runs steps when the same script is to give the same
// records, however fast handlers are. Whatever is ready at one virtual instant
// starts as one batch; what its members come to is held until all have ended,
// and recorded in the order of tasks and steps. Timers fire, and changes from
// outside are taken, between batches alone.

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
	l.clock.stirred.notify() // for the timers that had to wait
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
