package main

// Running steps in fixture mode: how a stub takes the place of a step's handler,
// by an outcome, a delay or a fault, through the same records and transitions as
// a real attempt; how a deterministic service runs steps in batches; and what keeps a
// service from being idle.

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"
)

// delivery is what fixture mode keeps with an attempt in flight. It observes the
// attempt's outcome.
type delivery struct {
	call    *handlerCall // in the request journal; nil before it begins
	created uint64       // the task's place in the order of creation
	order   int          // among the deliveries of one attempt

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

// started enters an attempt of a step's own handler in the request journal.
func (f *fixture) started(t *task, k *run) outcomeObserver {
	c := f.callOf(t, k.key.step, k.number)
	f.requests.begin(c)
	return &delivery{call: c, created: t.seq}
}

// ran enters an attempt that has ended at once.
func (f *fixture) ran(t *task, i, number int, o outcome) {
	c := f.callOf(t, i, number)
	f.requests.begin(c)
	c.ended(o)
}

// callOf returns the entry of an attempt for the request journal.
func (f *fixture) callOf(t *task, i, number int) *handlerCall {
	return newHandlerCall(f.svc.engine.attemptLocked(t, i, number, true), t.def(i).callable, declaredName(t, i))
}

// declaredName returns the template's name of a step, which the instances of a batch
// worker share.
func declaredName(t *task, i int) string { return t.tpl.steps[t.declared(i)].name }

// Playing stubs.

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
	case "template_step":
		return declaredName(a.t, a.i)
	case "callable":
		return a.t.def(a.i).callable
	case "attempt":
		return strconv.Itoa(a.t.steps[a.i].nextAttempt())
	}
	return ""
}

func (a startingAttempt) document(string) []byte { return orEmptyObject(a.t.by.context) }

// mayPlay reports whether a stub may play a step for outside actors.
func (f *fixture) mayPlay(t *task, i int) bool {
	return len(f.stubs.list) > 0 && f.stubs.mayAct(startingAttempt{t, i})
}

// play lets a stub take the place of the handler of a step that left its queue, if
// one matches. With an error nothing has happened.
func (f *fixture) play(t *task, i int, g target) (played bool, err error) {
	if len(f.stubs.list) == 0 {
		return false, nil
	}
	s, so := f.stubs.choose(startingAttempt{t, i})
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
	c := f.callOf(t, i, t.steps[i].nextAttempt()).by(s, noFault)
	err := e.recordRanLocked(t, i, o, e.clock.now())
	if err == nil {
		f.requests.begin(c)
		c.ended(o)
	}
	return err
}

// playedRun is an attempt in flight that a stub has decided.
type playedRun struct {
	*run
	*stubOutcome
	stub     *stub
	attempt  *attempt
	callable string
	declared string        // the template's name of the step
	delay    time.Duration // until it lands
	timeout  time.Duration
}

// begin enters a delivery of a played attempt in the request journal.
func (f *fixture) begin(p *playedRun, k *run) {
	d := deliveryOf(k)
	d.call = newHandlerCall(p.attempt, p.callable, p.declared).by(p.stub, p.fault)
	f.requests.begin(d.call)
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
	p := &playedRun{
		run: k, stubOutcome: so, stub: s, attempt: a, callable: t.def(i).callable, declared: declaredName(t, i),
		delay: so.delay, timeout: a.timeout,
	}
	if so.hang {
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

// land ends the attempt with an outcome, or lets it go wrong with it, when it is
// time for that.
func (f *fixture) land(p *playedRun, o outcome) {
	e, k, at, late := f.svc.engine, p.run, p.started.add(p.delay), p.started.add(p.timeout)
	if p.fault == resultLost || p.fault == lateCompletion {
		deliveryOf(k).ended(o) // this is what the handler said, whatever becomes of it
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
		key: k.key, pool: k.pool, number: k.number, started: k.started, cancel: cannotCancel, gone: true, freed: true,
		observer: &delivery{created: deliveryOf(k).created, order: 1},
	}
}

// call calls the handler of an attempt that goes wrong: once, or twice where the
// delivery is doubled.
func (f *fixture) call(p *playedRun, g target, seen uint64) {
	e, k := f.svc.engine, p.run
	ctx, cancel := context.WithCancel(e.ctx)
	k.cancel = cancel
	e.joinLocked(k)
	deliver := func(end func(*run, outcome), k *run) {
		if e.store.outwait(ctx, seen) != nil {
			e.abandon(k)
			return
		}
		end(k, e.handlers.run(ctx, g, p.attempt))
	}
	if p.fault != duplicateDelivery {
		deliveryOf(k).goesWrong = p
		e.wg.Go(func() {
			defer cancel()
			deliver(func(_ *run, o outcome) { f.park(p, o) }, k)
		})
		return
	}
	second := k.again()
	second.freed = false
	k.pool.free--
	e.joinLocked(second)
	inBatch := f.lockstep != nil
	if inBatch {
		f.begin(p, second) // in the order of the batch
	}
	e.wg.Go(func() {
		defer cancel()
		deliver(e.finish, k)
		if !inBatch {
			f.begin(p, second)
		}
		deliver(e.finish, second)
	})
}

// park lets the outcome that a handler gave go wrong. The attempt is no handler in
// flight any more, but a delay of our own.
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
	delete(e.inFlight, k)
}

// changeStubs changes the stubs, and queues those steps to be played that waited
// for outside actors until now.
func (f *fixture) changeStubs(ctx context.Context, change func(*stubs) error) error {
	return f.svc.engine.inTurn(ctx, func() error { return f.changeStubsLocked(change) })
}

func (f *fixture) changeStubsLocked(change func(*stubs) error) error {
	if err := change(&f.stubs); err != nil {
		return err
	}
	e := f.svc.engine
	var played []runKey
	anyStep := func(claimKey) bool { return true }
	e.outside.waiting.walk(anyStep, func(o *claimEntry) bool {
		if t := e.store.liveLocked(o.task); t != nil && f.mayPlay(t, o.step) {
			played = append(played, o.runKey)
		}
		return true
	})
	for _, k := range played {
		e.outside.waiting.remove(k)
		e.enqueueLocked(e.store.liveLocked(k.task), k.step)
	}
	e.wakeUp()
	return nil
}

func (f *fixture) readStubs(read func(*stubs)) {
	f.svc.store.locked(func() { read(&f.stubs) })
}

// Lockstep: how an engine runs steps when the same script must give the same
// records, however fast handlers are. Whatever is ready at one virtual instant
// starts as one batch; the outcomes of its members are held until all have ended,
// then recorded in the order of tasks and steps. Timers fire, and changes from
// outside are taken, between batches alone.

// lockstep paces an engine. All of it is guarded by the store's lock, except what
// is set before the engine runs.
type lockstep struct {
	fixture *fixture
	engine  *engine
	clock   *virtualClock
	keeper  *timekeeper // nil until the engine runs

	open    bool   // a batch has begun and not all of it is recorded
	waiting int    // members that have not ended, and one more while the batch is filled
	done    []*run // members that have
}

// busy reports work of this instant that the engine's queues do not show.
func (l *lockstep) busy() bool { return l.open || len(l.engine.outside.fresh) > 0 }

// pump runs one batch after the other, until handlers of one are in flight, a
// timer comes first or nothing is ready. Then outside actors get theirs.
func (l *lockstep) pump() {
	e := l.engine
	for !e.stopping && !l.open && l.clock.settled() {
		if !e.startableLocked() {
			e.feedLocked()
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

// fill starts every ready step for which a slot is free. It reports whether the
// store took them all.
func (l *lockstep) fill() bool {
	for !l.engine.stopping {
		it, ok := l.engine.nextLocked()
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
	a := e.attemptLocked(t, i, k.number, g.builtin.needsInputs)
	e.observeLocked(t, k)
	k.cancel = cannotCancel
	t.steps[i].queued = false
	e.joinLocked(k)
	o, delay := e.computeLocked(func() (outcome, time.Duration) { return g.builtin.run(a) })
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

// close records the batch once all of it have ended. What the store cannot take
// now is offered again.
func (l *lockstep) close() {
	if l.waiting > 0 || !l.open {
		return
	}
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

// record records the outcome of a member and gives its slot back. It reports false
// when the store cannot take the outcome now. One that goes wrong becomes a delay.
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
	l.engine.store.locked(func() { err = f() })
	return err
}

// What keeps a service from being idle.

// blocker keeps an engine from being idle.
type blocker struct {
	Reason   string    `json:"reason"` // running, computing, ready, unrecorded or timer
	TaskUUID uuid      `json:"task_uuid,omitzero"`
	StepUUID uuid      `json:"step_uuid,omitzero"`
	StepName string    `json:"step_name,omitempty"`
	Handler  string    `json:"handler,omitempty"` // the callable
	Attempt  int       `json:"attempt,omitempty"`
	Since    zonedTime `json:"since,omitzero"` // when the attempt began, or the timer is due
}

// maxBlockers bounds how many blockers of each kind are listed.
const maxBlockers = 100

// blockers returns what keeps the engine from being idle.
func (k *timekeeper) blockers() (all []blocker) {
	k.store.locked(func() {
		all = append(k.busyAttemptsLocked(), k.startableStepsLocked()...)
		if k.engine.computing > 0 {
			all = append(all, blocker{Reason: "computing"})
		}
		if k.engine.owed > 0 {
			all = append(all, blocker{Reason: "unrecorded"})
		}
	})
	return all
}

func (k *timekeeper) busyAttemptsLocked() []blocker {
	all := []blocker{}
	for r := range k.engine.inFlight {
		if len(all) == maxBlockers {
			break
		}
		ended := deliveryOf(r).outcome != nil
		if ended && k.lockstep.waiting > 0 {
			continue // it waits for others of its batch
		}
		b := blocker{Reason: "running", Attempt: r.number, Since: zonedTime(r.started)}
		if r.cancel == nil || ended {
			b.Reason = "unrecorded"
		}
		all = append(all, b.of(k.store, r.key))
	}
	slices.SortFunc(all, func(a, b blocker) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), bytes.Compare(a.TaskUUID[:], b.TaskUUID[:]),
			bytes.Compare(a.StepUUID[:], b.StepUUID[:]))
	})
	return all
}

func (k *timekeeper) startableStepsLocked() (all []blocker) {
	e := k.engine
	for _, p := range []*slotPool{&e.local, &e.web} {
		for _, it := range p.ready.items[:min(len(p.ready.items), max(p.free, 0), maxBlockers)] {
			all = append(all, blocker{Reason: "ready"}.of(k.store, runKey{it.task.id, it.step}))
		}
	}
	return all
}

// of adds the step to a blocker.
func (b blocker) of(s *store, key runKey) blocker {
	b.TaskUUID = key.task
	t := s.liveLocked(key.task)
	if t == nil { // it ended without the step
		return b
	}
	def := t.def(key.step)
	b.StepUUID, b.StepName, b.Handler = t.stepID(key.step), def.name, def.shown
	return b
}
