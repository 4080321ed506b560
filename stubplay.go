package main

// How stubs are played: an outcome, a delay or a fault in the place of a step's
// handler, through the same records and transitions as a real attempt.

import (
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
