package main

// The timekeeper moves the virtual clock of one service by the rules of its mode. Time never moves while something
// runs: the clock is set under the store's lock, at the moment when the engine is found idle.

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// timekeeper fires the timers of a virtual clock and moves it.
type timekeeper struct {
	clock     *virtualClock
	engine    *engine
	store     *store // the engine's
	publisher *publisher
	staleness *stalenessWatch
	lockstep  *lockstep // nil unless ids are deterministic

	patience time.Duration // of changes that wait for their turn, in real time

	turn   chan struct{} // holds a token unless somebody moves the clock or fires its timers
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// turnPatience is how long a change waits for a deterministic service to rest.
const turnPatience = 10 * time.Second

// newTimekeeper takes over the clock of an engine that runs.
func newTimekeeper(c *virtualClock, s *service, l *lockstep) *timekeeper {
	k := &timekeeper{
		clock: c, engine: s.engine, store: s.store, publisher: s.publisher, staleness: s.staleness, lockstep: l,
		patience: turnPatience, turn: make(chan struct{}, 1),
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.turn <- struct{}{}
	if l != nil {
		k.store.locked(func() { l.keeper = k })
	}
	k.wg.Go(k.run)
	return k
}

// stop stops moving the clock and releases everyone who waits for it.
func (k *timekeeper) stop() {
	k.cancel()
	k.wg.Wait()
}

// run fires what is due, and in mode auto moves the clock on.
func (k *timekeeper) run() {
	for k.ctx.Err() == nil {
		// Before it looks at the timers: a change during the look must not be missed.
		stirred := k.clock.stirred.next()
		if k.takeTurn(k.ctx) != nil {
			return
		}
		k.fireDue(k.ctx)
		for k.clock.state().mode == clockAuto && k.ctx.Err() == nil && k.jump() {
			k.fireDue(k.ctx)
		}
		k.turn <- struct{}{}
		k.sleep(stirred)
	}
}

// sleep returns when something is new, or in mode real a timer is due.
func (k *timekeeper) sleep(stirred <-chan struct{}) {
	var alarm <-chan time.Time
	if next, ok := k.clock.next(); ok && k.clock.state().mode == clockReal {
		t := time.NewTimer(next.sub(k.clock.now()))
		defer t.Stop()
		alarm = t.C
	}
	select {
	case <-stirred:
	case <-alarm:
	case <-k.ctx.Done():
	}
}

// takeTurn waits until nobody else moves the clock or fires its timers, and takes the turn.
func (k *timekeeper) takeTurn(ctx context.Context) error { return k.await(ctx, k.turn) }

// await receives from a channel.
func (k *timekeeper) await(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
	case <-k.ctx.Done():
	}
	return k.interrupted()
}

// fireDue fires every due timer, one after the other. An engine in lockstep continues once nothing is due.
func (k *timekeeper) fireDue(ctx context.Context) {
	fired := false
	for ctx.Err() == nil && k.ctx.Err() == nil {
		f := k.takeDue()
		if f == nil {
			break
		}
		k.clock.call(f)
		fired = true
	}
	if fired && k.lockstep != nil {
		k.engine.wakeUp()
	}
}

// takeDue takes the function of a due timer; in lockstep between batches alone.
func (k *timekeeper) takeDue() (f func()) {
	if k.lockstep == nil {
		return k.clock.dueFunc()
	}
	k.store.locked(func() {
		if !k.lockstep.open {
			f = k.clock.dueFunc()
		}
	})
	return f
}

// moved is the result of an attempt to move the clock.
type moved uint8

const (
	movedNot  moved = iota // something runs or is due
	movedOn                // to an instant at which a timer is due
	movedFull              // to the end; nothing is due before it
)

// move moves the clock to the next instant at which a timer is due, at most to end.
func (k *timekeeper) move(end instant) (m moved) {
	k.store.locked(func() { m = k.moveLocked(end) })
	return m
}

func (k *timekeeper) moveLocked(end instant) moved {
	c := k.clock
	// The store's lock is held as well, so nothing can start between the look at the engine and the move.
	c.mu.Lock()
	defer c.mu.Unlock()
	if !k.engine.idleLocked() || !c.restLocked() {
		return movedNot
	}
	change := end
	if next, ok := c.nextWork(); ok {
		change = min(end, next)
	}
	k.staleness.skipLocked(c.nowLocked(), change)
	next, ok := c.next()
	if ok && next <= end {
		c.setLocked(max(next, c.nowLocked()))
		return movedOn
	}
	c.setLocked(max(end, c.nowLocked()))
	return movedFull
}

// jump moves the clock towards the next work timer, if nothing runs. It stops at the
// instants of housekeeping before that. It reports whether the clock moved.
func (k *timekeeper) jump() bool {
	next, ok := k.clock.work.next()
	return ok && k.move(next) == movedOn
}

// advance freezes the clock and moves it to one instant after another, firing what is due on the way. It returns once
// the service is idle at the last one; if ctx ends first, with what keeps the service busy. Each instant is computed
// when the clock is at the one before.
func (k *timekeeper) advance(ctx context.Context, to ...func(now instant) (instant, error)) (fired uint64, err error) {
	if err := k.takeTurn(ctx); err != nil {
		return 0, err
	}
	defer func() { k.turn <- struct{}{} }()
	k.clock.setMode(clockFrozen)
	before := k.clock.firedNow()
	for _, next := range to {
		end, err := next(k.clock.now())
		if err == nil {
			err = k.moveAll(ctx, end)
		}
		if err != nil {
			return k.clock.firedNow() - before, err
		}
	}
	return k.clock.firedNow() - before, nil
}

func (k *timekeeper) moveAll(ctx context.Context, end instant) error {
	for {
		// As in run: before anything is looked at.
		stirred := k.clock.stirred.next()
		k.fireDue(ctx)
		if ctx.Err() == nil && k.ctx.Err() == nil {
			switch k.move(end) {
			case movedOn:
				continue
			case movedFull:
				return nil
			}
		}
		if err := k.await(ctx, stirred); err != nil {
			return err
		}
	}
}

// here returns the present.
func here(now instant) (instant, error) { return now, nil }

// nextWork returns when the next work timer or deadline is due; now without one.
func (k *timekeeper) nextWork(now instant) (instant, error) {
	if next, ok := k.clock.nextWork(); ok {
		return max(next, now), nil
	}
	return now, nil
}

// setMode changes the mode, once nobody moves the clock.
func (k *timekeeper) setMode(ctx context.Context, m clockMode) error {
	if err := k.takeTurn(ctx); err != nil {
		return err
	}
	k.clock.setMode(m)
	k.turn <- struct{}{}
	return nil
}

// awaitIdle returns when nothing runs, no step can start and no work timer is due; in
// mode auto, where time jumps to the next work timer, when none is left.
func (k *timekeeper) awaitIdle(ctx context.Context) error {
	for {
		stirred, idle := k.clock.stirred.next(), false
		if k.store.locked(func() { idle = k.quietLocked() }); idle {
			return nil
		}
		if err := k.await(ctx, stirred); err != nil {
			return err
		}
	}
}

// inTurn calls f under the store's lock, once nothing runs, can start or is due, and
// nobody moves the clock; in mode auto once no work timer is left.
func (k *timekeeper) inTurn(ctx context.Context, f func() error) error {
	// A service that never rests must not keep requests for good.
	limited, cancel := context.WithTimeout(ctx, k.patience)
	defer cancel()
	for {
		stirred := k.clock.stirred.next()
		done, err := k.tryTurn(limited, f)
		if done {
			return err
		}
		if k.await(limited, stirred) != nil {
			return k.noTurn(ctx)
		}
	}
}

// tryTurn calls f if it is its turn.
func (k *timekeeper) tryTurn(ctx context.Context, f func() error) (done bool, err error) {
	if k.takeTurn(ctx) != nil {
		return false, nil
	}
	defer func() { k.turn <- struct{}{} }()
	k.store.locked(func() {
		if done = k.quietLocked(); done {
			err = f()
		}
	})
	return done, err
}

// quietLocked reports whether nothing runs, the clock rests, in lockstep from
// housekeeping too, and in mode auto no work timer is left.
func (k *timekeeper) quietLocked() bool {
	c := k.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	_, waits := c.work.next()
	return k.engine.idleLocked() && !(waits && c.mode == clockAuto) &&
		c.restLocked() && (k.lockstep == nil || c.settledLocked())
}

// noTurn returns why a change did not get its turn.
func (k *timekeeper) noTurn(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if k.ctx.Err() != nil {
		return errReplaced()
	}
	f := failf(unavailable, "with deterministic ids, a change waits until what runs at its instant has ended, which took longer than %v",
		k.patience)
	f.retryAfter = outcomeRetryEvery
	return f
}

// interrupted returns why a wait ended early.
func (k *timekeeper) interrupted() error {
	if k.ctx.Err() != nil {
		return errReplaced()
	}
	blocking := k.blockers()
	// In mode auto, a timer alone keeps the service from being idle.
	if next, ok := k.clock.work.next(); ok && len(blocking) == 0 {
		blocking = append(blocking, blocker{Reason: "timer", Since: zonedTime(next)})
	}
	f := failf(notIdle, "the service was not idle in time")
	if len(blocking) > 0 {
		f.message += "; blocking lists " + blocking[0].String() + pick(len(blocking) > 1, " and others", "")
		f.extra = errorMember{"blocking", blocking}
	}
	return f
}

func errReplaced() error { return failf(unavailable, "the service ended or was reset in the meantime") }

// What keeps a service from being idle.

// blocker keeps an engine from being idle.
type blocker struct {
	Reason     string    `json:"reason"` // running, computing, ready, not_listening, unrecorded, sending or timer
	TaskUUID   uuid      `json:"task_uuid,omitzero"`
	StepUUID   uuid      `json:"step_uuid,omitzero"`
	StepName   string    `json:"step_name,omitempty"`
	Handler    string    `json:"handler,omitempty"`    // the callable
	Address    string    `json:"address,omitempty"`    // where no handler listens
	Subscriber string    `json:"subscriber,omitempty"` // that an event of the step is sent to
	Attempt    int       `json:"attempt,omitempty"`
	Remedy     string    `json:"remedy,omitempty"`
	Since      zonedTime `json:"since,omitzero"` // when the attempt began, or the timer is due
}

// String returns the blocker in a few words, such as `running step "charge" (http://127.0.0.1:9000/charge)`.
func (b blocker) String() string {
	where := cmp.Or(b.Subscriber, b.Address, b.Handler)
	return b.Reason + pick(b.StepName == "", "", ` step "`+b.StepName+`"`) + pick(where == "", "", " ("+where+")")
}

// maxBlockers bounds how many blockers of each kind are listed.
const maxBlockers = 100

// blockers returns what keeps the engine from being idle.
func (k *timekeeper) blockers() (all []blocker) {
	k.store.locked(func() {
		all = append(k.busyAttemptsLocked(), k.startableStepsLocked()...)
		if k.engine.work.computing > 0 {
			all = append(all, blocker{Reason: "computing"})
		}
		if k.engine.work.owed > 0 {
			all = append(all, blocker{Reason: "unrecorded"})
		}
		if s, e := k.publisher.nextLocked(); s != nil {
			all = append(all, blocker{Reason: "sending", TaskUUID: e.task, StepUUID: e.step, StepName: e.stepName, Subscriber: s.Name})
		}
	})
	return all
}

func (k *timekeeper) busyAttemptsLocked() []blocker {
	all := []blocker{}
	for r := range k.engine.work.inFlight {
		if len(all) == maxBlockers {
			break
		}
		// Only lockstep holds outcomes, so there is one if this is true.
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
	for _, a := range e.absent.told() {
		all = append(all, blocker{Reason: "not_listening", Address: a.address, Remedy: startYourHandler})
	}
	for _, p := range []*slotPool{&e.queues.local, &e.queues.web} {
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

// Lockstep: how an engine runs steps when the same script must give the same records, however fast handlers are.
// Whatever is ready at one virtual instant starts as one batch; the outcomes of its members are held until all have
// ended, then recorded in the order of tasks and steps. Timers fire, and changes from outside are taken, between
// batches alone.

// lockstep paces an engine. All of it is guarded by the store's lock, except what is set before the engine runs.
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
