package main

// The one source of time of a service, real or virtual. Nothing else in the
// program reads the wall clock or starts a timer for the service's own delays.

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"
)

// instant is a moment in microseconds since the Unix epoch, UTC: the precision
// of every timestamp of the service. Zero means "none".
type instant int64

func instantOf(t time.Time) instant { return instant(t.UnixMicro()) }

func (i instant) time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// The wire forms of an instant.
const (
	zonedLayout = "2006-01-02T15:04:05.000000Z"
	naiveLayout = "2006-01-02T15:04:05.000000"
)

// zoned is the wire form with a trailing Z.
func (i instant) zoned() string { return string(i.appendZoned(nil)) }

// appendZoned appends the wire form with a trailing Z.
func (i instant) appendZoned(b []byte) []byte { return append(i.appendNaive(b), 'Z') }

// appendNaive appends the wire form without a zone, which some fields carry:
// YYYY-MM-DDThh:mm:ss.ffffff. Answers hold a dozen of them, hence not by Format.
func (i instant) appendNaive(b []byte) []byte {
	t := i.time()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	b = appendDigits(b, year, 4)
	b = appendDigits(append(b, '-'), int(month), 2)
	b = appendDigits(append(b, '-'), day, 2)
	b = appendDigits(append(b, 'T'), hour, 2)
	b = appendDigits(append(b, ':'), minute, 2)
	b = appendDigits(append(b, ':'), second, 2)
	return appendDigits(append(b, '.'), t.Nanosecond()/1000, 6)
}

// appendDigits appends n, not negative, with leading zeros.
func appendDigits(b []byte, n, width int) []byte {
	at := len(b) + width
	b = append(b, "000000"[:width]...)
	for n > 0 && width > 0 {
		at--
		width--
		b[at] = byte('0' + n%10)
		n /= 10
	}
	return b
}

func (i instant) add(d time.Duration) instant { return i + instant(d/time.Microsecond) }

func (i instant) sub(j instant) time.Duration { return time.Duration(i-j) * time.Microsecond }

// instantForm is either wire form, with 0 to 9 fractional digits; package time
// would also read a comma and more digits.
var instantForm = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?$`)

// parseInstant reads either wire form; what is below a microsecond is dropped.
func parseInstant(s string) (instant, error) {
	m := instantForm.FindStringSubmatch(s)
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
	// schedule runs f once now() has reached when, in a goroutine of the
	// clock's own or, for a virtual clock, in the one that moves it. f may be
	// called although the timer was cancelled: it checks whether it still has
	// something to do.
	schedule(when instant, f func()) *timer
	// scheduleHousekeeping is schedule for what no task waits for: it is never
	// a reason to move a virtual clock.
	scheduleHousekeeping(when instant, f func()) *timer
}

// timer is one entry of a heap of timers.
type timer struct {
	when instant
	seq  uint64 // order among timers due at the same instant
	f    func()
	in   *timers
	at   int // its place in the heap; -1 once it left
}

// cancel takes the timer out, unless it fired already. It may be called under
// any lock that f takes.
func (t *timer) cancel() { t.in.remove(t) }

// timerHeap orders timers by due time, then by the order of scheduling.
type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }

func (h timerHeap) Less(i, j int) bool {
	if h[i].when != h[j].when {
		return h[i].when < h[j].when
	}
	return h[i].seq < h[j].seq
}

func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.at = len(*h)
	*h = append(*h, t)
}

func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.at = -1
	return t
}

// timers is a heap of timers with a lock, shared by both kinds of clock.
type timers struct {
	mu   sync.Mutex
	heap timerHeap
	seq  uint64
}

// add enters a timer and reports whether it is now the earliest.
func (t *timers) add(when instant, f func()) (added *timer, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seq++
	added = &timer{when: when, seq: t.seq, f: f, in: t}
	heap.Push(&t.heap, added)
	return added, t.heap[0] == added
}

func (t *timers) remove(which *timer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if which.at >= 0 {
		heap.Remove(&t.heap, which.at)
	}
}

// due takes the earliest timer if it is due at now.
func (t *timers) due(now instant) (func(), bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.heap) == 0 || t.heap[0].when > now {
		return nil, false
	}
	return heap.Pop(&t.heap).(*timer).f, true
}

// next is the due time of the earliest timer.
func (t *timers) next() (instant, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.heap) == 0 {
		return 0, false
	}
	return t.heap[0].when, true
}

// overdue is how long the earliest timer has been due; 0 when none is.
func (t *timers) overdue(now instant) time.Duration {
	next, ok := t.next()
	if !ok {
		return 0
	}
	return max(now.sub(next), 0)
}

// realClock is the wall clock. One goroutine runs its timers, until stop.
type realClock struct {
	timers timers
	wake   chan struct{} // holds one token when an earlier timer came in
	done   chan struct{}
	once   sync.Once
}

func newRealClock() *realClock {
	c := &realClock{wake: make(chan struct{}, 1), done: make(chan struct{})}
	go c.run()
	return c
}

func (c *realClock) now() instant { return instantOf(time.Now()) }

func (c *realClock) schedule(when instant, f func()) *timer {
	t, first := c.timers.add(when, f)
	if first {
		offerToken(c.wake)
	}
	return t
}

func (c *realClock) scheduleHousekeeping(when instant, f func()) *timer { return c.schedule(when, f) }

// overdue is how late the timers are.
func (c *realClock) overdue() time.Duration { return c.timers.overdue(c.now()) }

// stop ends the timer goroutine; timers that are not due yet never fire.
func (c *realClock) stop() { c.once.Do(func() { close(c.done) }) }

func (c *realClock) run() {
	for {
		for f, ok := c.timers.due(c.now()); ok; f, ok = c.timers.due(c.now()) {
			f()
		}
		var alarm <-chan time.Time
		var t *time.Timer
		if next, ok := c.timers.next(); ok {
			t = time.NewTimer(next.sub(c.now()))
			alarm = t.C
		}
		select {
		case <-alarm:
		case <-c.wake:
		case <-c.done:
			return
		}
		if t != nil {
			t.Stop()
		}
	}
}

// What follows runs on real time in every mode: limits on handlers outside,
// and the patience with a disk or a peer.

// realNow is the time of the machine.
func realNow() instant { return instantOf(time.Now()) }

// afterReal runs f after d, in a goroutine of its own.
func afterReal(d time.Duration, f func()) { time.AfterFunc(d, f) }

// realDeadline is d from now, for a connection.
func realDeadline(d time.Duration) time.Time { return time.Now().Add(d) }

// receiveWithin takes a value from c, unless d passes first.
func receiveWithin[T any](c <-chan T, d time.Duration) (v T, ok bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case v = <-c:
		return v, true
	case <-t.C:
		return v, false
	}
}

// errTooLong is what closedWithin gives when its limit passed.
var errTooLong = errors.New("the limit passed")

// closedWithin waits until done is closed, ctx ends, or d passes.
func closedWithin(ctx context.Context, done <-chan struct{}, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return errTooLong
	}
}

// realTimeIn is the wall clock's time after d, as connections take deadlines.
func realTimeIn(d time.Duration) time.Time { return time.Now().Add(d) }

// zonedTime is an instant on the wire, null when there is none.
type zonedTime instant

// MarshalJSON implements json.Marshaler.
func (t zonedTime) MarshalJSON() ([]byte, error) { return marshalTime(instant(t), instant.appendZoned) }

// naiveTime is the form without a zone that some fields carry.
type naiveTime instant

// MarshalJSON implements json.Marshaler.
func (t naiveTime) MarshalJSON() ([]byte, error) { return marshalTime(instant(t), instant.appendNaive) }

func marshalTime(t instant, form func(instant, []byte) []byte) ([]byte, error) {
	if t == 0 {
		return []byte("null"), nil
	}
	return append(form(t, append(make([]byte, 0, 32), '"')), '"'), nil
}
