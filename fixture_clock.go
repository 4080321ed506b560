package main

// The virtual clock: time that stands still until somebody moves it, or that
// goes on with real time from wherever it stands. It holds the timers; a
// timekeeper moves it and fires them.

import (
	"context"
	"sync"
	"time"
)

// virtualClock is a clock that can be moved, and never goes back.
type virtualClock struct {
	work, chores timers   // chores are housekeeping
	stirred      notifier // notifies when there is something new to look at

	mu     sync.Mutex
	mode   clockMode // guarded by mu, as all below
	at     instant   // where it stands, or in mode real stood at since
	since  time.Time
	firing bool   // a timer's function is being called
	fired  uint64 // work timers, since the start
}

// newVirtualClock is frozen at an instant.
func newVirtualClock(start instant) *virtualClock { return &virtualClock{at: start, mode: clockFrozen} }

func (c *virtualClock) now() instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

func (c *virtualClock) nowLocked() instant {
	if c.mode != clockReal {
		return c.at
	}
	return c.at.add(max(time.Since(c.since), 0))
}

func (c *virtualClock) schedule(when instant, f func()) *timer {
	t, _ := c.work.insert(when, f)
	c.stirred.notify()
	return t
}

func (c *virtualClock) scheduleHousekeeping(when instant, f func()) *timer {
	t, _ := c.chores.insert(when, f)
	c.stirred.notify()
	return t
}

func (c *virtualClock) setLocked(t instant) { c.at, c.since = t, time.Now() }

// setMode goes on in a mode from where the clock stands.
func (c *virtualClock) setMode(m clockMode) {
	c.mu.Lock()
	c.setLocked(c.nowLocked())
	c.mode = m
	c.mu.Unlock()
	c.stirred.notify()
}

func (c *virtualClock) state() clockState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return clockState{c.nowLocked(), c.mode}
}

// restore sets a clock that nobody has looked at yet. Where time passes it goes
// on from the present, unless the state is of later.
func (c *virtualClock) restore(s clockState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s.mode {
	case "":
		return
	case clockReal:
		s.now = max(s.now, c.nowLocked())
	}
	c.mode = s.mode
	c.setLocked(s.now)
}

// fire calls the function of one timer that is due, work before housekeeping.
// It reports whether there was one.
func (c *virtualClock) fire() bool {
	f := c.take()
	if f == nil {
		return false
	}
	c.call(f)
	return true
}

// call calls what take gave.
func (c *virtualClock) call(f func()) {
	f()
	c.mu.Lock()
	c.firing = false
	c.mu.Unlock()
	c.stirred.notify()
}

// take is the function of a due timer, which counts as being called from here on.
func (c *virtualClock) take() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.work.due(c.nowLocked())
	if ok {
		c.fired++
	} else if f, ok = c.chores.due(c.nowLocked()); !ok {
		return nil
	}
	c.firing = true
	return f
}

// restLocked tells whether no timer's function is being called, and no work
// timer is due.
func (c *virtualClock) restLocked() bool {
	next, ok := c.work.next()
	return !c.firing && !(ok && next <= c.nowLocked())
}

// settled tells whether no timer of either kind is due or being called.
func (c *virtualClock) settled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settledLocked()
}

func (c *virtualClock) settledLocked() bool {
	next, ok := c.next()
	return !c.firing && !(ok && next <= c.nowLocked())
}

// next is when the earliest timer of either kind is due.
func (c *virtualClock) next() (instant, bool) {
	w, work := c.work.next()
	h, chore := c.chores.next()
	switch {
	case work && chore:
		return min(w, h), true
	case work:
		return w, true
	}
	return h, chore
}

func (c *virtualClock) modeNow() clockMode {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mode
}

// firedNow is how many work timers have fired.
func (c *virtualClock) firedNow() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fired
}

// The timekeeper: it moves the virtual clock of one service by the rules of its
// mode. Time never moves while something runs: the clock is set under the lock
// of the store, in the same moment in which the engine is found idle.

// timekeeper fires the timers of a virtual clock and moves it.
type timekeeper struct {
	clock *virtualClock
	svc   *service

	patience time.Duration // of changes that wait for their turn, in real time

	turn   chan struct{} // holds a token unless somebody moves the clock or fires its timers
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// turnPatience is how long a change waits until a deterministic service is at rest.
const turnPatience = 10 * time.Second

// newTimekeeper takes over the clock of a service whose engine runs.
func newTimekeeper(svc *service, c *virtualClock) *timekeeper {
	k := &timekeeper{clock: c, svc: svc, patience: turnPatience, turn: make(chan struct{}, 1)}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.turn <- struct{}{}
	svc.store.mu.Lock()
	svc.engine.idled = c.stirred.notify
	if l := svc.engine.lockstep; l != nil {
		l.inTurn = k.inTurn
	}
	svc.store.mu.Unlock()
	k.wg.Go(k.run)
	return k
}

// stop ends the moving of the clock and releases who waits for it.
func (k *timekeeper) stop() {
	k.cancel()
	k.wg.Wait()
}

// run sees to it that what is due fires, and in mode auto that time goes on.
func (k *timekeeper) run() {
	for k.ctx.Err() == nil {
		stirred := k.clock.stirred.next()
		if k.take(k.ctx) != nil {
			return
		}
		k.fireDue(k.ctx)
		for k.clock.modeNow() == clockAuto && k.ctx.Err() == nil && k.jump() {
			k.fireDue(k.ctx)
		}
		k.turn <- struct{}{}
		k.sleep(stirred)
	}
}

// sleep returns when something stirred, or in mode real a timer is due.
func (k *timekeeper) sleep(stirred <-chan struct{}) {
	var alarm <-chan time.Time
	if next, ok := k.clock.next(); ok && k.clock.modeNow() == clockReal {
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

// take waits for the turn to move the clock.
func (k *timekeeper) take(ctx context.Context) error {
	select {
	case <-k.turn:
		return nil
	case <-ctx.Done():
	case <-k.ctx.Done():
	}
	return k.interrupted()
}

// fireDue fires every timer that is due, one after the other.
func (k *timekeeper) fireDue(ctx context.Context) {
	if k.svc.engine.lockstep != nil {
		k.fireInStep(ctx)
		return
	}
	for ctx.Err() == nil && k.ctx.Err() == nil && k.clock.fire() {
	}
}

// fireInStep is fireDue between the batches of an engine in lockstep, which goes
// on once nothing is due.
func (k *timekeeper) fireInStep(ctx context.Context) {
	e, fired := k.svc.engine, false
	for ctx.Err() == nil && k.ctx.Err() == nil {
		e.store.mu.Lock()
		var f func()
		if !e.lockstep.open {
			f = k.clock.take()
		}
		e.store.mu.Unlock()
		if f == nil {
			break
		}
		k.clock.call(f)
		fired = true
	}
	if fired {
		e.wakeUp()
	}
}

// moved is what came of a try to move the clock.
type moved uint8

const (
	movedNot  moved = iota // something runs or is due
	movedOn                // to an instant where a timer is due
	movedFull              // to the end; nothing is due before it
)

// move goes on to the next instant where a timer is due, at most to end.
func (k *timekeeper) move(end instant) moved {
	k.svc.store.mu.Lock()
	defer k.svc.store.mu.Unlock()
	c := k.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if !k.svc.engine.idleLocked() || !c.restLocked() {
		return movedNot
	}
	next, ok := c.next()
	if ok && next <= end {
		c.setLocked(max(next, c.nowLocked()))
		return movedOn
	}
	c.setLocked(max(end, c.nowLocked()))
	return movedFull
}

// jump moves the clock towards the next work timer, if there is one and nothing
// runs. Housekeeping before it has its own instants.
func (k *timekeeper) jump() bool {
	next, ok := k.clock.work.next()
	return ok && k.move(next) == movedOn
}

// advance freezes the clock and moves it to an instant, then to the next one,
// with everything that is due on the way. It returns once the service is idle
// there; at the end of ctx, in real time, with what keeps it from that. The
// instants are asked for when the clock stands at the one before.
func (k *timekeeper) advance(ctx context.Context, to ...func(now instant) (instant, error)) (fired uint64, err error) {
	if err := k.take(ctx); err != nil {
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
		select {
		case <-stirred:
		case <-ctx.Done():
			return k.interrupted()
		case <-k.ctx.Done():
			return k.interrupted()
		}
	}
}

// here is where the clock stands.
func here(now instant) (instant, error) { return now, nil }

// nextWork is when the next work timer is due; now without one.
func (k *timekeeper) nextWork(now instant) (instant, error) {
	if next, ok := k.clock.work.next(); ok {
		return max(next, now), nil
	}
	return now, nil
}

// setMode goes on in another mode, once nobody moves the clock.
func (k *timekeeper) setMode(ctx context.Context, m clockMode) error {
	if err := k.take(ctx); err != nil {
		return err
	}
	k.clock.setMode(m)
	k.turn <- struct{}{}
	return nil
}

// awaitIdle returns when nothing runs, no step can start and no work timer is
// due; in mode auto, where time jumps to the next one, when there is none.
func (k *timekeeper) awaitIdle(ctx context.Context) error {
	for {
		stirred := k.clock.stirred.next()
		if k.idle() {
			return nil
		}
		select {
		case <-stirred:
		case <-ctx.Done():
			return k.interrupted()
		case <-k.ctx.Done():
			return k.interrupted()
		}
	}
}

func (k *timekeeper) idle() bool {
	k.svc.store.mu.Lock()
	defer k.svc.store.mu.Unlock()
	if k.svc.engine.lockstep != nil {
		return k.quietLocked()
	}
	c := k.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	_, waits := c.work.next()
	return k.svc.engine.idleLocked() && c.restLocked() && !(waits && c.mode == clockAuto)
}

// inTurn calls f under the lock of the store once nothing runs, can start or is
// due, and nobody moves the clock; in mode auto once no work timer is left.
func (k *timekeeper) inTurn(ctx context.Context, f func() error) error {
	limited, cancel := context.WithTimeout(ctx, k.patience)
	defer cancel()
	for {
		stirred := k.clock.stirred.next()
		done, err := k.tryTurn(limited, f)
		if done {
			return err
		}
		select {
		case <-stirred:
			continue
		case <-limited.Done():
		case <-k.ctx.Done():
		}
		return k.noTurn(ctx)
	}
}

// tryTurn calls f if it is its turn.
func (k *timekeeper) tryTurn(ctx context.Context, f func() error) (done bool, err error) {
	if k.take(ctx) != nil {
		return false, nil
	}
	defer func() { k.turn <- struct{}{} }()
	k.svc.store.mu.Lock()
	defer k.svc.store.mu.Unlock()
	if !k.quietLocked() {
		return false, nil
	}
	return true, f()
}

// quietLocked is idle for housekeeping, too.
func (k *timekeeper) quietLocked() bool {
	c := k.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	_, waits := c.work.next()
	return k.svc.engine.idleLocked() && c.settledLocked() && !(waits && c.mode == clockAuto)
}

// noTurn is why a change did not get its turn.
func (k *timekeeper) noTurn(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if k.ctx.Err() != nil {
		return failf(unavailable, "the service ended or was reset meanwhile")
	}
	f := failf(unavailable, "with deterministic ids a change waits for what runs at its instant, and that took longer than %v",
		k.patience)
	f.retryAfter = outcomeRetryEvery
	return f
}

// interrupted is why something that waited did not come to its end.
func (k *timekeeper) interrupted() error {
	if k.ctx.Err() != nil {
		return failf(unavailable, "the service ended or was reset meanwhile")
	}
	k.svc.store.mu.Lock()
	blocking := k.svc.engine.blockersLocked()
	k.svc.store.mu.Unlock()
	if next, ok := k.clock.work.next(); ok && len(blocking) == 0 {
		blocking = append(blocking, blocker{Reason: "timer", Since: zonedTime(next)})
	}
	f := failf(notIdle, "the service was not idle in time; what kept it busy stands in blocking")
	f.blocking = blocking
	return f
}

// durable waits until what happened until now is on disk.
func (k *timekeeper) durable(ctx context.Context) error {
	k.svc.store.mu.Lock()
	seq := k.svc.store.seq
	k.svc.store.mu.Unlock()
	return k.svc.store.journal.wait(ctx, seq)
}

// check is what /health/detailed says of fixture mode.
func (k *timekeeper) check() checkView {
	n := 0
	k.svc.engine.readStubs(func(l *stubs) { n = l.size() })
	ids := ""
	if k.svc.engine.lockstep != nil {
		ids = "; ids are deterministic"
	}
	return graded(false, "fixture mode is on: tests control the service under %s, its clock, which is %s, and its "+
		"handlers by %d stubs; %s%s", controlPath, k.clock.modeNow(), n, k.svc.world.status(), ids)
}
