package main

// Time. First instants. The clock of a service is real or virtual: nothing else reads the wall clock or starts a timer
// for the delays of tasks. Limits that apply in real time in every mode follow it. Then a histogram of durations.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// instant is a time in microseconds since the Unix epoch, UTC, the precision of
// every timestamp of the service. Zero means "none".
type instant int64

func instantOf(t time.Time) instant { return instant(t.UnixMicro()) }

func (i instant) time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// zoned returns the wire form with a trailing Z.
func (i instant) zoned() string { return string(i.appendZoned(nil)) }

// appendZoned appends the wire form with a trailing Z.
func (i instant) appendZoned(b []byte) []byte { return append(i.appendNaive(b), 'Z') }

// appendNaive appends the wire form without a zone, which some fields have.
func (i instant) appendNaive(b []byte) []byte {
	return i.time().AppendFormat(b, "2006-01-02T15:04:05.000000")
}

func (i instant) add(d time.Duration) instant { return i + instant(d/time.Microsecond) }

func (i instant) sub(j instant) time.Duration { return time.Duration(i-j) * time.Microsecond }

// instantForm matches either wire form, with 0 to 9 fractional digits; package time
// would also accept a comma and more digits.
var instantForm = compiled(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?$`)

// errDuration says how durations are written.
var errDuration = errors.New("want a duration like 90s, 1h30m or 1d12h, with the units w, d, h, m, s, ms, us and ns")

// errLongDuration is for a duration that is written well, but longer than any that Go can hold.
var errLongDuration = errors.New("want at most 292 years")

// durationForm matches weeks, days, and what package time reads.
var durationForm = compiled(`^(-?)(?:(\d+\.?\d*|\.\d+)w)?(?:(\d+\.?\d*|\.\d+)d)?(0|(?:(?:\d+\.?\d*|\.\d+)(?:h|m|s|ms|us|µs|μs|ns))*)$`)

// parseDuration reads a duration as time.ParseDuration does, which may begin with weeks and days of 24 hours.
func parseDuration(text string) (total time.Duration, err error) {
	m := durationForm().FindStringSubmatch(text)
	if m == nil || text == m[1] {
		return 0, errDuration
	}
	for _, part := range []struct {
		text  string
		times time.Duration
	}{{cmp.Or(m[2], "0") + "h", 7 * 24}, {cmp.Or(m[3], "0") + "h", 24}, {cmp.Or(m[4], "0"), 1}} {
		d, err := time.ParseDuration(part.text)
		if err != nil || d > (math.MaxInt64-total)/part.times {
			return 0, errLongDuration
		}
		total += d * part.times
	}
	return pick(m[1] == "-", -total, total), nil
}

// parseInstant reads either wire form and drops fractions of a microsecond.
func parseInstant(s string) (instant, error) {
	m := instantForm().FindStringSubmatch(s)
	layout := time.RFC3339
	if m != nil && m[2] == "" {
		layout = "2006-01-02T15:04:05"
	}
	t, err := time.Parse(layout, s)
	if m == nil || err != nil {
		return 0, fmt.Errorf("%q is not a timestamp like 2026-01-31T12:00:00Z", s)
	}
	return instantOf(t), nil
}

// clock tells the time and runs timers.
type clock interface {
	now() instant
	// schedule calls f once now() has reached when, in the clock's goroutine or, for a virtual clock, in the one that
	// moves it. f may be called although the timer was cancelled, so it checks whether it still has something to do.
	schedule(when instant, f func()) *timer
	// scheduleDeadline is schedule for the end of a wait for somebody outside: a
	// virtual clock in mode auto does not move for it.
	scheduleDeadline(when instant, f func()) *timer
	// scheduleHousekeeping is schedule for work that no task waits for: it is never a reason to move a virtual clock.
	scheduleHousekeeping(when instant, f func()) *timer
}

// freezableClock is a clock that can stand still.
type freezableClock interface {
	clock
	frozen() bool // time passes only when somebody moves it
}

// timer is a function to be called at a time.
type timer struct {
	when instant
	seq  uint64 // orders timers that are due at the same instant
	f    func()
	in   *timers
	at   int // its place in the queue; -1 once it left
}

// cancel removes the timer, unless it has fired. It may be called under any lock that f takes.
func (t *timer) cancel() { t.in.remove(t) }

// timers is a queue of timers with a lock. The zero value is empty.
type timers struct {
	mu    sync.Mutex
	queue priorityQueue[*timer] // by due time, then in the order of scheduling
	seq   uint64
}

// insert adds a timer and reports whether it is now the earliest.
func (t *timers) insert(when instant, f func()) (inserted *timer, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queue.before == nil {
		t.queue.before = func(a, b *timer) bool { return a.when < b.when || a.when == b.when && a.seq < b.seq }
		t.queue.placed = func(one *timer, place int) { one.at = place }
	}
	t.seq++
	inserted = &timer{when: when, seq: t.seq, f: f, in: t}
	t.queue.push(inserted)
	return inserted, inserted.at == 0
}

func (t *timers) remove(which *timer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if which.at >= 0 {
		t.queue.remove(which.at)
		which.at = -1
	}
}

// due removes the earliest timer and returns its function if it is due at now. It does not call the function, which may
// take locks under which others insert or cancel timers.
func (t *timers) due(now instant) (func(), bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue.items) == 0 || t.queue.items[0].when > now {
		return nil, false
	}
	first := t.queue.pop()
	first.at = -1
	return first.f, true
}

// next returns the due time of the earliest timer.
func (t *timers) next() (instant, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue.items) == 0 {
		return 0, false
	}
	return t.queue.items[0].when, true
}

// realClock is the wall clock, except that it never goes back: when somebody sets the
// machine's clock back, it continues from where it was, until a restart, so that nothing waits a second time for a
// moment that has passed. One goroutine fires its timers until stop. The zero value tells the machine's time.
type realClock struct {
	timers timers
	wake   chan struct{} // holds one token when an earlier timer was inserted
	done   chan struct{}
	once   sync.Once

	machine func() (wall instant, elapsed time.Duration) // the machine's clocks: by date, and without steps
	ahead   atomic.Int64                                 // most microseconds that wall was ahead of elapsed
}

const (
	clockLook  = time.Second      // how often it looks whether somebody moved the machine's clock on, or suspended it
	clockNoise = time.Millisecond // how far the machine's two clocks may differ
)

func newRealClock() *realClock {
	began := time.Now()
	return startClock(func() (instant, time.Duration) {
		t := time.Now()
		return instantOf(t), t.Sub(began)
	})
}

func startClock(machine func() (wall instant, elapsed time.Duration)) *realClock {
	c := &realClock{wake: make(chan struct{}, 1), done: make(chan struct{}), machine: machine}
	go c.run()
	return c
}

func (c *realClock) now() instant {
	now, lead := c.read()
	return now.add(lead)
}

// read returns the machine's time and how far this clock is ahead of it, because it was set back.
func (c *realClock) read() (wall instant, lead time.Duration) {
	if c.machine == nil {
		return realNow(), 0
	}
	wall, elapsed := c.machine()
	ahead := int64(wall) - elapsed.Microseconds()
	for {
		// The largest lead ever seen is kept. Wall time that is less far ahead of elapsed time was set back by the
		// difference.
		most := c.ahead.Load()
		if ahead <= most {
			lead = time.Duration(most-ahead) * time.Microsecond
			break
		}
		if c.ahead.CompareAndSwap(most, ahead) {
			break
		}
	}
	if lead < clockNoise {
		// The two clocks are read one after the other, so that they always differ a little.
		lead = 0
	}
	return wall, lead
}

func (c *realClock) schedule(when instant, f func()) *timer {
	t, first := c.timers.insert(when, f)
	if first {
		offerToken(c.wake)
	}
	return t
}

func (c *realClock) scheduleDeadline(when instant, f func()) *timer { return c.schedule(when, f) }

func (c *realClock) scheduleHousekeeping(when instant, f func()) *timer { return c.schedule(when, f) }

// stop ends the timer goroutine; timers that are not due yet never fire.
func (c *realClock) stop() { c.once.Do(func() { close(c.done) }) }

func (c *realClock) run() {
	for {
		for f, ok := c.timers.due(c.now()); ok; f, ok = c.timers.due(c.now()) {
			f()
		}
		var alarm <-chan time.Time
		if next, ok := c.timers.next(); ok {
			// Not longer than a second: Go's timers follow elapsed time, which does not notice that the wall clock was
			// set forward.
			alarm = time.After(min(next.sub(c.now()), clockLook))
		}
		select {
		case <-alarm:
		case <-c.wake:
		case <-c.done:
			return
		}
	}
}

// Real time, whatever the clock: limits on outside handlers, disks and peers.

// realNow returns the machine's time.
func realNow() instant { return instantOf(time.Now()) }

// afterReal calls f after d, in a new goroutine.
func afterReal(d time.Duration, f func()) { time.AfterFunc(d, f) }

// realDeadline returns the deadline of a connection, d from now.
func realDeadline(d time.Duration) time.Time { return time.Now().Add(d) }

// receiveWithin receives a value from c, unless d passes first.
func receiveWithin[T any](c <-chan T, d time.Duration) (v T, ok bool) {
	select {
	case v = <-c:
		return v, true
	case <-time.After(d):
		return v, false
	}
}

// errTooLong is the error of closedWithin when its limit has passed.
var errTooLong = errors.New("the limit passed")

// closedWithin waits until done is closed, ctx ends, or d passes.
func closedWithin(ctx context.Context, done <-chan struct{}, d time.Duration) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return errTooLong
	}
}

// zonedTime is an instant in JSON, null for none.
type zonedTime instant

// MarshalJSON implements json.Marshaler.
func (t zonedTime) MarshalJSON() ([]byte, error) { return marshalTime(instant(t), instant.appendZoned) }

// naiveTime is zonedTime without a zone, the form of some fields.
type naiveTime instant

// MarshalJSON implements json.Marshaler.
func (t naiveTime) MarshalJSON() ([]byte, error) { return marshalTime(instant(t), instant.appendNaive) }

func marshalTime(t instant, form func(instant, []byte) []byte) ([]byte, error) {
	return appendTime(make([]byte, 0, 32), t, form), nil
}

// appendTime appends an instant as JSON, null for none.
func appendTime(b []byte, t instant, form func(instant, []byte) []byte) []byte {
	if t == 0 {
		return append(b, "null"...)
	}
	return append(form(t, append(b, '"')), '"')
}
