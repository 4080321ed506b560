package main

// The virtual clock: time that stands still until somebody moves it, or that
// goes on with real time from wherever it stands. It holds the timers; a
// timekeeper moves it and fires them.

import (
	"sync"
	"time"
)

// clockMode says what moves a virtual clock.
type clockMode string

const (
	clockReal   clockMode = "real"   // time passes
	clockFrozen clockMode = "frozen" // it stands still until it is advanced
	clockAuto   clockMode = "auto"   // it stands still while something runs, and jumps to what is due next
)

// clockState is a clock in a state document. Without a mode there is none.
type clockState struct {
	now  instant
	mode clockMode
}

// virtualClock is a clock that can be moved, and never goes back.
type virtualClock struct {
	work, chores timers // chores are housekeeping
	stirred      bell   // rings when there is something new to look at

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
	t, _ := c.work.add(when, f)
	c.stirred.ring()
	return t
}

func (c *virtualClock) scheduleHousekeeping(when instant, f func()) *timer {
	t, _ := c.chores.add(when, f)
	c.stirred.ring()
	return t
}

// set moves the clock on to an instant, if that is not past.
func (c *virtualClock) set(t instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(max(t, c.nowLocked()))
}

func (c *virtualClock) setLocked(t instant) { c.at, c.since = t, time.Now() }

// setMode goes on in a mode from where the clock stands.
func (c *virtualClock) setMode(m clockMode) {
	c.mu.Lock()
	c.setLocked(c.nowLocked())
	c.mode = m
	c.mu.Unlock()
	c.stirred.ring()
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
	c.stirred.ring()
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
