package main

// The virtual clock: time that stands still until it is moved, or that passes as
// real time does, from any instant. It holds the timers; a timekeeper moves it and
// fires them. Below stand what keeps a service from being idle, and the control API
// of the clock.

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
)

// virtualClock is a clock that can be moved forward.
type virtualClock struct {
	work, chores timers   // chores are housekeeping
	stirred      notifier // notifies when there is something new to look at

	mu     sync.Mutex
	mode   clockMode // guarded by mu, as all below
	at     instant   // the present; in mode real the instant at since
	since  time.Time
	firing bool   // a timer's function is being called
	fired  uint64 // work timers, since the start
}

// newVirtualClock returns a clock frozen at an instant.
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

// setMode changes the mode at the present instant.
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

// restore sets a clock that nobody has read yet. Where time passes it continues from
// the real present, unless the state is later.
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

// fire calls the function of one due timer, work before housekeeping. It reports
// whether a timer was due.
func (c *virtualClock) fire() bool {
	f := c.take()
	if f == nil {
		return false
	}
	c.call(f)
	return true
}

// call calls a function that take returned.
func (c *virtualClock) call(f func()) {
	f()
	c.mu.Lock()
	c.firing = false
	c.mu.Unlock()
	c.stirred.notify()
}

// take returns the function of a due timer, or nil. The function counts as being
// called from here on.
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

// restLocked reports whether no timer's function is being called, and no work timer
// is due.
func (c *virtualClock) restLocked() bool {
	next, ok := c.work.next()
	return !c.firing && !(ok && next <= c.nowLocked())
}

// settled reports whether no timer of either kind is due or being called.
func (c *virtualClock) settled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settledLocked()
}

func (c *virtualClock) settledLocked() bool {
	next, ok := c.next()
	return !c.firing && !(ok && next <= c.nowLocked())
}

// next returns when the earliest timer of either kind is due.
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

// firedNow returns how many work timers have fired.
func (c *virtualClock) firedNow() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fired
}

// The timekeeper moves the virtual clock of one service by the rules of its mode.
// Time never moves while something runs: the clock is set under the store's lock,
// at the moment when the engine is found idle.

// timekeeper fires the timers of a virtual clock and moves it.
type timekeeper struct {
	clock    *virtualClock
	engine   *engine
	store    *store    // the engine's
	lockstep *lockstep // nil unless ids are deterministic

	patience time.Duration // of changes that wait for their turn, in real time

	turn   chan struct{} // holds a token unless somebody moves the clock or fires its timers
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// turnPatience is how long a change waits for a deterministic service to rest.
const turnPatience = 10 * time.Second

// newTimekeeper takes over the clock of an engine that runs.
func newTimekeeper(c *virtualClock, e *engine, l *lockstep) *timekeeper {
	k := &timekeeper{clock: c, engine: e, store: e.store, lockstep: l, patience: turnPatience, turn: make(chan struct{}, 1)}
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

// sleep returns when something is new, or in mode real a timer is due.
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

// take waits for the right to move the clock.
func (k *timekeeper) take(ctx context.Context) error { return k.await(ctx, k.turn) }

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

// fireDue fires every due timer, one after the other.
func (k *timekeeper) fireDue(ctx context.Context) {
	if k.lockstep != nil {
		k.fireInStep(ctx)
		return
	}
	for ctx.Err() == nil && k.ctx.Err() == nil && k.clock.fire() {
	}
}

// fireInStep is fireDue between the batches of an engine in lockstep, which
// continues once nothing is due.
func (k *timekeeper) fireInStep(ctx context.Context) {
	fired := false
	for ctx.Err() == nil && k.ctx.Err() == nil {
		var f func()
		k.store.locked(func() {
			if !k.lockstep.open {
				f = k.clock.take()
			}
		})
		if f == nil {
			break
		}
		k.clock.call(f)
		fired = true
	}
	if fired {
		k.engine.wakeUp()
	}
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if !k.engine.idleLocked() || !c.restLocked() {
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

// jump moves the clock towards the next work timer, if nothing runs. It stops at the
// instants of housekeeping before that. It reports whether the clock moved.
func (k *timekeeper) jump() bool {
	next, ok := k.clock.work.next()
	return ok && k.move(next) == movedOn
}

// advance freezes the clock and moves it to one instant after another, firing what is
// due on the way. It returns once the service is idle at the last one; if ctx ends
// first, with what keeps the service busy. Each instant is computed when the clock
// is at the one before.
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
		if err := k.await(ctx, stirred); err != nil {
			return err
		}
	}
}

// here returns the present.
func here(now instant) (instant, error) { return now, nil }

// nextWork returns when the next work timer is due; now without one.
func (k *timekeeper) nextWork(now instant) (instant, error) {
	if next, ok := k.clock.work.next(); ok {
		return max(next, now), nil
	}
	return now, nil
}

// setMode changes the mode, once nobody moves the clock.
func (k *timekeeper) setMode(ctx context.Context, m clockMode) error {
	if err := k.take(ctx); err != nil {
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
		stirred := k.clock.stirred.next()
		if k.idle() {
			return nil
		}
		if err := k.await(ctx, stirred); err != nil {
			return err
		}
	}
}

func (k *timekeeper) idle() (idle bool) {
	k.store.locked(func() {
		if k.lockstep != nil {
			idle = k.quietLocked((*virtualClock).settledLocked)
		} else {
			idle = k.quietLocked((*virtualClock).restLocked)
		}
	})
	return idle
}

// inTurn calls f under the store's lock, once nothing runs, can start or is due, and
// nobody moves the clock; in mode auto once no work timer is left.
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
	k.store.locked(func() {
		if done = k.quietLocked((*virtualClock).settledLocked); done {
			err = f()
		}
	})
	return done, err
}

// quietLocked reports whether nothing runs, the clock rests, and in mode auto no
// work timer is left.
func (k *timekeeper) quietLocked(rests func(*virtualClock) bool) bool {
	c := k.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	_, waits := c.work.next()
	return k.engine.idleLocked() && rests(c) && !(waits && c.mode == clockAuto)
}

// noTurn returns why a change did not get its turn.
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

// interrupted returns why a wait ended early.
func (k *timekeeper) interrupted() error {
	if k.ctx.Err() != nil {
		return failf(unavailable, "the service ended or was reset meanwhile")
	}
	blocking := k.blockers()
	if next, ok := k.clock.work.next(); ok && len(blocking) == 0 {
		blocking = append(blocking, blocker{Reason: "timer", Since: zonedTime(next)})
	}
	f := failf(notIdle, "the service was not idle in time; what kept it busy stands in blocking")
	if len(blocking) > 0 {
		f.extra = errorMember{"blocking", blocking}
	}
	return f
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
	b.StepUUID, b.StepName, b.Handler = t.stepID(key.step), def.name, def.callable
	return b
}

// The control API of the clock.

// clockView shows a virtual clock.
type clockView struct {
	Now       zonedTime  `json:"now"`
	Mode      clockMode  `json:"mode"`
	Fired     uint64     `json:"fired"`      // work timers: by this request, or ever for one that moves nothing
	NextTimer *zonedTime `json:"next_timer"` // when the next work timer is due
}

func (a *controlAPI) clockView(fired uint64) clockView {
	c := a.fixture.keeper.clock
	v := clockView{Now: zonedTime(c.now()), Mode: c.modeNow(), Fired: fired}
	if next, ok := c.work.next(); ok {
		v.NextTimer = (*zonedTime)(&next)
	}
	return v
}

func (a *controlAPI) getClock(_ http.ResponseWriter, _ *http.Request) (any, error) {
	return a.clockView(a.fixture.keeper.clock.firedNow()), nil
}

func (a *controlAPI) changeClock(w http.ResponseWriter, r *http.Request) (any, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	q, err := parseClockRequest(body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := q.limit(w, r)
	defer cancel()
	fired, err := q.do(ctx, a.fixture.keeper)
	if err == nil {
		err = a.svc.store.waitAll(ctx)
	}
	if err != nil {
		return nil, err
	}
	return a.clockView(fired), nil
}

func (a *controlAPI) waitIdle(w http.ResponseWriter, r *http.Request) (any, error) {
	body, err := bodyRules{optional: true}.read(r)
	if err != nil {
		return nil, err
	}
	q, err := parseIdleRequest(body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := q.limit(w, r)
	defer cancel()
	if err := a.fixture.keeper.awaitIdle(ctx); err != nil {
		return nil, err
	}
	if err := a.svc.store.waitAll(ctx); err != nil {
		return nil, err
	}
	return a.clockView(a.fixture.keeper.clock.firedNow()), nil
}

// clockRequest asks for one change of a clock.
type clockRequest struct {
	action  string // the member that asks for it; "" for a wait alone
	by      time.Duration
	to      instant
	timeout time.Duration // in real time
}

const (
	controlTimeout    = 30 * time.Second // when a request names none
	maxControlTimeout = time.Hour
)

// parseClockRequest reads the body of a change to the clock.
func parseClockRequest(body []byte) (*clockRequest, error) {
	q, f := &clockRequest{timeout: controlTimeout}, &fieldReader{}
	const actions = "freeze, advance, advance_to_next, set, auto, resume"
	eachMember(body, func(key string, raw []byte) bool {
		if key == "timeout" {
			q.timeout = f.timeout(key, raw)
			return true
		}
		q.member(f, key, raw, actions)
		return true
	})
	if q.action == "" && len(f.problems) == 0 {
		f.complain("advance", "or another one of %s is required", actions)
	}
	return q, f.failure("the clock stays as it is")
}

func (q *clockRequest) member(f *fieldReader, key string, raw []byte, actions string) {
	if q.action != "" {
		f.complain(key, "cannot be combined with %s", q.action)
		return
	}
	q.action = key
	switch key {
	case "advance":
		q.by = f.duration(key, raw, 0)
	case "set":
		if q.to = f.instant(key, raw); jsonKind(raw) == '"' && !zonedForm(raw) {
			f.complain(key, "must have a zone, as in 2026-01-31T12:00:00Z")
		}
	case "freeze", "advance_to_next", "auto", "resume":
		if jsonKind(raw) != 't' {
			f.complain(key, "must be true")
		}
	default:
		f.complain(key, "is unknown; want one of %s", actions)
	}
}

func parseIdleRequest(body []byte) (*clockRequest, error) {
	q, f := &clockRequest{timeout: controlTimeout}, &fieldReader{}
	if body == nil {
		return q, nil
	}
	eachMember(body, func(key string, raw []byte) bool {
		if key != "timeout" {
			f.complain(key, "is unknown; want timeout")
			return true
		}
		q.timeout = f.timeout(key, raw)
		return true
	})
	return q, f.failure("the request is refused")
}

func (f *fieldReader) timeout(key string, raw []byte) time.Duration {
	d := f.duration(key, raw, 0)
	if d > maxControlTimeout {
		f.complain(key, "must be %s at most", maxControlTimeout)
	}
	return d
}

// limit returns the context of a request, which may take as long as it says.
func (q *clockRequest) limit(w http.ResponseWriter, r *http.Request) (context.Context, context.CancelFunc) {
	extendWriting(w, q.timeout)
	return context.WithTimeout(r.Context(), q.timeout)
}

// do makes the change and returns how many work timers it fired.
func (q *clockRequest) do(ctx context.Context, k *timekeeper) (fired uint64, err error) {
	switch q.action {
	case "advance":
		return k.advance(ctx, func(now instant) (instant, error) { return inTime(now.add(q.by), now) })
	case "advance_to_next":
		return k.advance(ctx, here, k.nextWork)
	case "set":
		return k.advance(ctx, func(now instant) (instant, error) { return inTime(q.to, now) })
	case "auto":
		return 0, k.setMode(ctx, clockAuto)
	case "resume":
		return 0, k.setMode(ctx, clockReal)
	}
	return 0, k.setMode(ctx, clockFrozen)
}

// inTime refuses an instant that is past, or too late to be written.
func inTime(to, now instant) (instant, error) {
	if to < now || to > lastInstant { // years have four digits
		return 0, failf(badRequest, "the clock stands at %s and goes on to %s at most, not to %s",
			now.zoned(), instant(lastInstant).zoned(), to.time())
	}
	return to, nil
}
