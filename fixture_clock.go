package main

// The virtual clock: time that is frozen until it is moved, or that passes as real time does, from
// any instant. It holds the timers; a timekeeper moves it and fires them.

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// virtualClock is a clock that can be moved forward.
type virtualClock struct {
	work, deadlines, chores timers   // chores are housekeeping
	stirred                 notifier // notifies when there is something new to look at

	mu     sync.Mutex
	mode   clockMode // guarded by mu, as all below
	at     instant   // the present; in mode real the instant at since
	since  time.Time
	firing bool   // a timer's function is being called
	fired  uint64 // work timers and deadlines, since the start
}

// newVirtualClock returns a clock frozen at an instant.
func newVirtualClock(start instant) *virtualClock { return &virtualClock{at: start, mode: clockFrozen} }

func (c *virtualClock) now() instant { return c.state().now }

// frozen reports whether time passes only when a request moves it.
func (c *virtualClock) frozen() bool { return c.state().mode == clockFrozen }

func (c *virtualClock) nowLocked() instant {
	if c.mode != clockReal {
		return c.at
	}
	return c.at.add(max(time.Since(c.since), 0))
}

func (c *virtualClock) schedule(when instant, f func()) *timer { return c.insert(&c.work, when, f) }

func (c *virtualClock) scheduleDeadline(when instant, f func()) *timer {
	return c.insert(&c.deadlines, when, f)
}

func (c *virtualClock) scheduleHousekeeping(when instant, f func()) *timer {
	return c.insert(&c.chores, when, f)
}

func (c *virtualClock) insert(into *timers, when instant, f func()) *timer {
	t, _ := into.insert(when, f)
	c.stirred.notify()
	return t
}

func (c *virtualClock) setLocked(t instant) { c.at, c.since = t, time.Now() }

// setMode changes the mode at the present instant.
func (c *virtualClock) setMode(m clockMode) {
	c.mu.Lock()
	// First, so that time neither jumps when it starts to pass, nor loses what has passed when it stops.
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

// dueFunc returns the function of a due timer, work before deadlines and these before housekeeping, or nil. The
// function counts as being called from here on.
func (c *virtualClock) dueFunc() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.work.due(c.nowLocked())
	if !ok {
		f, ok = c.deadlines.due(c.nowLocked())
	}
	if ok {
		c.fired++
	} else if f, ok = c.chores.due(c.nowLocked()); !ok {
		return nil
	}
	c.firing = true
	return f
}

// call calls a function that dueFunc returned.
func (c *virtualClock) call(f func()) {
	f()
	c.mu.Lock()
	c.firing = false
	c.mu.Unlock()
	// Until now nobody could find the clock at rest.
	c.stirred.notify()
}

// restLocked reports whether no timer's function is being called, and no work timer or deadline is due.
func (c *virtualClock) restLocked() bool { return !c.firing && !c.dueLocked(c.nextWork()) }

// settledLocked is restLocked for all timers.
func (c *virtualClock) settledLocked() bool { return !c.firing && !c.dueLocked(c.next()) }

func (c *virtualClock) settled() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settledLocked()
}

// dueLocked reports whether a timer is due, from the results of next.
func (c *virtualClock) dueLocked(next instant, ok bool) bool { return ok && next <= c.nowLocked() }

// next returns when the earliest timer is due.
func (c *virtualClock) next() (instant, bool) { return earliest(&c.work, &c.deadlines, &c.chores) }

// nextWork returns when the earliest timer that a step waits for is due.
func (c *virtualClock) nextWork() (instant, bool) { return earliest(&c.work, &c.deadlines) }

func earliest(of ...*timers) (first instant, ok bool) {
	for _, t := range of {
		if next, some := t.next(); some && (!ok || next < first) {
			first, ok = next, true
		}
	}
	return first, ok
}

// firedNow returns how many work timers and deadlines have fired.
func (c *virtualClock) firedNow() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fired
}

// The clock.

// clockView shows a virtual clock.
type clockView struct {
	Now       zonedTime  `json:"now"`
	Mode      clockMode  `json:"mode"`
	Fired     uint64     `json:"fired"`      // work timers and deadlines: by this request, or ever for one that moves nothing
	NextTimer *zonedTime `json:"next_timer"` // when the next of these is due
}

func (a *controlAPI) clockView(fired uint64) clockView {
	c := a.fixture.clock
	s := c.state()
	v := clockView{Now: zonedTime(s.now), Mode: s.mode, Fired: fired}
	if next, ok := c.nextWork(); ok {
		v.NextTimer = (*zonedTime)(&next)
	}
	return v
}

func (a *controlAPI) getClock(_ *responseWriter, _ *http.Request) (any, error) {
	return a.clockView(a.fixture.clock.firedNow()), nil
}

func (a *controlAPI) changeClock(w *responseWriter, r *http.Request) (any, error) {
	q := &clockRequest{timeout: controlTimeout}
	if err := (bodyRules{}).fields(r, "the clock stays as it is", q.readChange); err != nil {
		return nil, err
	}
	return a.doClock(w, r, q)
}

func (a *controlAPI) waitIdle(w *responseWriter, r *http.Request) (any, error) {
	q := &clockRequest{timeout: controlTimeout}
	err := bodyRules{optional: true}.fields(r, "the request is refused", func(f *fieldReader, body []byte) {
		f.members("", body, []string{"timeout"}, func(key, _ string, value []byte) {
			q.timeout = f.boundedDuration(key, value, maxControlTimeout)
		})
	})
	if err != nil {
		return nil, err
	}
	return a.doClock(w, r, q)
}

// doClock does what a request asks for, waits until the result is durable, and shows the clock.
func (a *controlAPI) doClock(w *responseWriter, r *http.Request, q *clockRequest) (any, error) {
	// The answer may begin after the time that others have to be written.
	extendWriting(w, q.timeout)
	ctx, cancel := context.WithTimeout(r.Context(), q.timeout)
	defer cancel()
	fired, err := q.do(ctx, a.fixture.keeper)
	if err == nil {
		err = a.surface.svc.store.waitAll(ctx)
	}
	if err != nil {
		return nil, err
	}
	return a.clockView(fired), nil
}

// clockRequest asks for one change of a clock, or to wait until the service is idle.
type clockRequest struct {
	action  string // the member that asks for the change; "" for a wait
	by      time.Duration
	to      instant
	timeout time.Duration // in real time
}

const (
	controlTimeout    = 30 * time.Second // when a request names none
	maxControlTimeout = time.Hour
)

func (q *clockRequest) readChange(f *fieldReader, body []byte) {
	known := []string{"freeze", "advance", "advance_to_next", "set", "auto", "resume", "timeout"}
	f.members("", body, known, func(key, _ string, value []byte) {
		switch {
		case key == "timeout":
			q.timeout = f.boundedDuration(key, value, maxControlTimeout)
		case q.action != "":
			f.complain(key, "cannot be combined with %s", q.action)
		default:
			q.action = key
			q.readAction(f, value)
		}
	})
	if q.action == "" && len(f.problems) == 0 {
		f.complain("advance", "or freeze, advance_to_next, set, auto or resume is required")
	}
}

func (q *clockRequest) readAction(f *fieldReader, raw []byte) {
	switch q.action {
	case "advance":
		q.by = f.duration(q.action, raw, 0)
	case "set":
		if q.to = f.instant(q.action, raw); jsonKind(raw) == '"' && !zonedForm(raw) {
			f.complain(q.action, "must have a zone, as in 2026-01-31T12:00:00Z")
		}
	default:
		if jsonKind(raw) != 't' {
			f.complain(q.action, "must be true")
		}
	}
}

// do does what is asked for and returns how many work timers the view is to show.
func (q *clockRequest) do(ctx context.Context, k *timekeeper) (fired uint64, err error) {
	switch q.action {
	case "advance":
		return k.advance(ctx, func(now instant) (instant, error) { return inTime(now.add(q.by), now) })
	case "advance_to_next":
		return k.advance(ctx, here, k.nextWork)
	case "set":
		return k.advance(ctx, func(now instant) (instant, error) { return inTime(q.to, now) })
	case "freeze":
		return 0, k.setMode(ctx, clockFrozen)
	case "auto":
		return 0, k.setMode(ctx, clockAuto)
	case "resume":
		return 0, k.setMode(ctx, clockReal)
	}
	err = k.awaitIdle(ctx)
	return k.clock.firedNow(), err
}

// inTime refuses an instant that is past, or too late to be written.
func inTime(to, now instant) (instant, error) {
	if to < now || to > lastInstant { // years have four digits
		return 0, failf(badRequest, "the clock is at %s and moves only forward, to %s at most, not to %s",
			now.zoned(), instant(lastInstant).zoned(), to.time().Format(time.RFC3339))
	}
	return to, nil
}
