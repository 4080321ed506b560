package main

// Playing a stub: how it takes the place of the handler, through the same records and transitions
// as a real attempt, or of a subscriber.

import (
	"context"
	"time"
)

// delivery holds fixture mode's data of an attempt in flight. It observes the attempt's outcome.
type delivery struct {
	call    *logEntry // in the request log; nil before it begins
	created uint64    // the task's place in the order of creation
	order   int       // among the deliveries of one attempt

	member    bool       // its outcome is held until those of its batch have ended
	outcome   *outcome   // of a member that has ended; guarded by the store's lock
	goesWrong *playedRun // what becomes of a member's outcome when it is recorded; nil for nothing
}

// deliveryOf returns what fixture mode keeps with an attempt.
func deliveryOf(k *run) *delivery { return k.observer.(*delivery) }

func (d *delivery) ended(o outcome) {
	if d.call != nil {
		d.call.ended(o)
	}
}

// started enters an attempt of a step's own handler in the request log.
func (f *fixture) started(t *task, k *run, a *attempt) outcomeObserver {
	c := callOf(t, k.key.step, a)
	f.requests.enter(c)
	return &delivery{call: c, created: t.seq}
}

// ran enters an attempt that has ended at once.
func (f *fixture) ran(t *task, i int, a *attempt, o outcome) {
	c := callOf(t, i, a)
	f.requests.enter(c)
	c.ended(o)
}

// Playing stubs.

// mayPlay reports whether a stub may play a step for outside actors.
func (f *fixture) mayPlay(t *task, i int) bool {
	return len(f.stubs.list) > 0 && !f.world.claims && f.stubs.mayAct(factsOf(t, i, t.steps[i].nextAttempt()))
}

// play lets a stub take the place of the handler of a step that left its queue, if
// one matches. With an error nothing has happened.
func (f *fixture) play(t *task, i int, g target) (played bool, err error) {
	if len(f.stubs.list) == 0 {
		return false, nil
	}
	s, so := f.stubs.choose(handlerEntry, factsOf(t, i, t.steps[i].nextAttempt()))
	if so == nil {
		return false, nil
	}
	t.steps[i].queued = false
	if so.instant() && f.lockstep == nil {
		err = f.playAtOnce(t, i, s, *so.outcome)
	} else {
		err = f.startPlayed(t, i, g, s, so)
	}
	if err == nil {
		s.uses++
	}
	return true, err
}

// playAtOnce records an attempt that starts and ends in one.
func (f *fixture) playAtOnce(t *task, i int, s *stub, o outcome) error {
	e := f.svc.engine
	c := callOf(t, i, e.attemptLocked(t, i, t.steps[i].nextAttempt(), true)).by(s, noFault)
	o = e.schemas.fittedOwn(t.def(i), o)
	err := e.recordRanLocked(t, i, o, e.clock.now())
	if err == nil {
		f.requests.enter(c)
		c.ended(o)
	}
	return err
}

// playedRun is an attempt in flight that a stub has decided.
type playedRun struct {
	*run
	*stubOutcome
	call    *logEntry     // copied into the request log for each of its deliveries
	delay   time.Duration // until it lands
	timeout time.Duration
}

// begin enters a delivery of a played attempt in the request log.
func (f *fixture) begin(p *playedRun, k *run) {
	d := deliveryOf(k)
	d.call = new(*p.call)
	f.requests.enter(d.call)
}

// startPlayed begins an attempt that takes time or goes wrong. Where that needs an
// outcome that the stub does not have, it calls the step's own handler.
func (f *fixture) startPlayed(t *task, i int, g target, s *stub, so *stubOutcome) error {
	e, seen := f.svc.engine, t.lastSeq
	k, err := e.startRunLocked(t, i, g)
	if err != nil {
		return err
	}
	k.observer = &delivery{created: t.seq}
	a := e.attemptLocked(t, i, k.number, true)
	call := callOf(t, i, a).by(s, so.fault)
	p := &playedRun{run: k, stubOutcome: so, call: call, delay: so.delay, timeout: a.timeout}
	if so.hang {
		// Longer than the timeout, which land then turns into an attempt that timed out.
		p.delay = a.timeout + 1
	}
	f.begin(p, k)
	switch {
	case so.instant(): // as a member of its batch
		k.cancel = cannotCancel
		e.joinLocked(k)
		f.lockstep.endedLocked(k, so.outcome)
	case so.outcome != nil:
		f.land(p, *so.outcome)
	// Nobody sees the outcome of a lost worker, and an outside actor has no handler that could make one.
	case so.fault == workerLost || g.kind == outsideActor:
		f.land(p, outcome{success: true})
	case g.builtin != nil:
		o, delay := g.builtin.run(a) // memory work, in fixture mode alone
		p.delay += delay
		f.land(p, o)
	default:
		f.call(p, g, seen)
	}
	return nil
}

// land ends the attempt with an outcome, or lets it go wrong with it, when it is time for that.
func (f *fixture) land(p *playedRun, o outcome) {
	e, k, at, late := f.svc.engine, p.run, p.started.add(p.delay), p.started.add(p.timeout)
	if p.fault == resultLost || p.fault == lateCompletion {
		deliveryOf(k).ended(o) // the request log shows the handler's outcome even if it is lost
	}
	// What happens runs from a timer of the virtual clock, like everything that takes time in fixture mode.
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
			f.begin(p, second)
			e.finish(k, o)
			e.finish(second, o)
		}
	case p.fault == workerLost || p.fault == resultLost:
		end = func() { e.conclude(k, o, loseOutcome) }
	}
	k.timer = e.clock.schedule(at, end)
}

// loseOutcome records that the outcome of an attempt was lost.
func loseOutcome(e *engine, c *change, k *run, _ outcome) error {
	t, err := c.task(k.key.task)
	if err != nil || k.gone {
		return err
	}
	k.gone = true
	return c.append(t, e.lostRecord(t, k.key.step))
}

// cannotCancel is the cancel of a run that nothing can cut off.
func cannotCancel() {}

// again returns another delivery of an attempt, whose outcome is too late.
func (k *run) again() *run {
	return &run{
		key: k.key, def: k.def, pool: k.pool, number: k.number, started: k.started, cancel: cannotCancel, gone: true, freed: true,
		observer: &delivery{created: deliveryOf(k).created, order: 1},
	}
}

// call calls the handler of an attempt that goes wrong: once, or twice where the delivery is doubled.
func (f *fixture) call(p *playedRun, g target, seen uint64) {
	e, k := f.svc.engine, p.run
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	e.joinLocked(k)
	deliver := func(end func(*run, outcome), k *run) {
		// No handler may get a task that a crash could still undo.
		if e.store.wait(ctx, seen) != nil {
			e.abandon(k)
			return
		}
		end(k, e.handlers.run(ctx, g, p.call.delivered))
	}
	if p.fault != duplicateDelivery {
		deliveryOf(k).goesWrong = p
		e.wg.Go(func() {
			deliver(func(_ *run, o outcome) { f.park(p, o) }, k)
		})
		return
	}
	second := k.again()
	// The second delivery runs a handler, so it takes a slot of its own and gives it back.
	second.freed, second.cancel = false, cancel
	k.pool.free--
	e.joinLocked(second)
	inBatch := f.lockstep != nil
	if inBatch {
		f.begin(p, second) // in the order of the batch
	}
	e.wg.Go(func() {
		deliver(e.finish, k)
		if !inBatch {
			f.begin(p, second)
		}
		deliver(e.finish, second)
	})
}

// park lets the outcome of a handler go wrong. From here on the attempt is no handler in flight, but a delay of our
// own.
func (f *fixture) park(p *playedRun, o outcome) {
	e, k, parked := f.svc.engine, p.run, false
	e.store.locked(func() {
		if deliveryOf(k).member || k.gone || wasCancelled(o) {
			return
		}
		parked = true
		f.parkLocked(p, o)
		e.checkIdleLocked()
	})
	if !parked {
		e.finish(k, o)
	}
}

func (f *fixture) parkLocked(p *playedRun, o outcome) {
	becomeDelay(f.svc.engine, p.run)
	f.land(p, o)
}

// becomeDelay makes an attempt in flight a delay of our own, which is in no batch.
func becomeDelay(e *engine, k *run) {
	deliveryOf(k).member, k.cancel = false, nil
	delete(e.work.inFlight, k)
}

// Sending events to subscribers. In fixture mode nothing goes out unless the configuration says
// so: the events count as delivered, unless a stub decides otherwise.

// deliver takes the place of an attempt to send an event.
func (f *fixture) deliver(ctx context.Context, a *sendAttempt) sendResult {
	if err := f.awaitSending(ctx, a); err != nil {
		return sendResult{problem: err.Error()}
	}
	c := f.eventOf(a.event)
	c.kind, c.facts.subscriber, c.facts.attempt = ofDeliveries, a.Name, a.number
	so := f.beginSending(c)
	var r sendResult
	switch {
	case so != nil:
		r = f.playSending(a, so)
	case !c.facts.stubbed:
		r = f.svc.publisher.send(ctx, a)
	}
	c.ended(r.outcome())
	return r
}

// awaitSending waits in lockstep until nothing else runs, can start or is due, and no other
// subscriber waits for an older event.
func (f *fixture) awaitSending(ctx context.Context, a *sendAttempt) error {
	if f.lockstep == nil {
		return nil
	}
	if a.byHand {
		return f.lockstep.inTurn(ctx, func() error { return nil })
	}
	for ctx.Err() == nil {
		stirred, next := f.clock.stirred.next(), false
		f.svc.store.locked(func() {
			first, _ := f.svc.publisher.nextLocked()
			next = first == a.subscriber && f.svc.engine.restsLocked() && f.clock.settled()
		})
		if next {
			return nil
		}
		select {
		case <-stirred:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// beginSending enters an attempt to send an event in the request log, and returns the
// outcome that a stub has for it; nil for none.
func (f *fixture) beginSending(c *logEntry) (so *stubOutcome) {
	f.svc.store.locked(func() {
		var s *stub
		if s, so = f.stubs.choose(deliveryEntry, c.facts); so != nil {
			s.uses++
			c.by(s, noFault)
		}
		c.facts.stubbed = so != nil || !f.svc.cfg.Fixture.SendEvents
		f.requests.enter(c)
	})
	return so
}

// playSending ends an attempt to send an event as a stub says. By hand, nothing waits.
func (f *fixture) playSending(a *sendAttempt, so *stubOutcome) sendResult {
	delay, late := so.delay, so.hang || so.delay > a.timeout()
	if late {
		delay = a.timeout()
	}
	if delay > 0 && !a.byHand && !f.svc.publisher.rest(a, delay, func() {}) {
		return sendResult{problem: "the service ended"}
	}
	switch o := so.outcome; {
	case late:
		return a.noReply()
	case !o.success:
		return sendResult{o.err.message, !o.err.retryable, o.retryAfter}
	}
	return sendResult{}
}

// outcome returns the result in the form of the request log.
func (r sendResult) outcome() outcome {
	if r.problem == "" {
		return outcome{success: true}
	}
	o := typedFailure("not_delivered", "%s", r.problem)
	o.err.retryable = !r.final
	return o
}
