package main

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The wire forms of an instant, as layouts of package time.
const (
	zonedLayout = "2006-01-02T15:04:05.000000Z"
	naiveLayout = "2006-01-02T15:04:05.000000"
)

func TestInstantForms(t *testing.T) {
	for _, tc := range []struct {
		text string
		want string // zoned; "" when refused
	}{
		{"2026-01-31T12:00:00Z", "2026-01-31T12:00:00.000000Z"},
		{"2026-01-31T12:00:00", "2026-01-31T12:00:00.000000Z"},
		{"2026-01-31T12:00:00.1", "2026-01-31T12:00:00.100000Z"},
		{"2026-01-31T12:00:00.123456789Z", "2026-01-31T12:00:00.123456Z"},
		{"2026-01-31T12:00:00.123456+01:30", "2026-01-31T10:30:00.123456Z"},
		{"2026-01-31T12:00:00.1234567890Z", ""},
		{"2026-01-31T12:00:00,5Z", ""},
		{"2026-01-31T12:00:00.Z", ""},
		{"2026-02-30T12:00:00Z", ""},
		{"2026-01-31 12:00:00Z", ""},
		{"2026-01-31T12:00:00z", ""},
		{"2026-01-31", ""},
		{"", ""},
	} {
		got, err := parseInstant(tc.text)
		if tc.want == "" {
			if err == nil {
				t.Errorf("%q: got %s; want it refused", tc.text, got.zoned())
			}
			continue
		}
		if err != nil || got.zoned() != tc.want {
			t.Errorf("%q: got %s, %v; want %s", tc.text, got.zoned(), err, tc.want)
		}
	}
	for _, at := range []instant{1, instantOf(time.Date(1, 2, 3, 4, 5, 6, 7000, time.UTC)), testStart - 1,
		instantOf(time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC))} {
		if got, want := at.zoned(), at.time().Format(zonedLayout); got != want {
			t.Errorf("zoned: got %s; want %s", got, want)
		}
		if got, want := string(at.appendNaive(nil)), at.time().Format(naiveLayout); got != want {
			t.Errorf("naive: got %s; want %s", got, want)
		}
	}
}

// TestVirtualClockOrder checks that timers, also those set by timers, fire in order and
// each at its time.
func TestVirtualClockOrder(t *testing.T) {
	c := newVirtualClock(testStart)
	var fired []time.Duration
	note := func() { fired = append(fired, c.now().sub(testStart)) }
	c.schedule(testStart.add(3*time.Second), note)
	c.schedule(testStart.add(time.Second), func() {
		note()
		c.schedule(c.now().add(time.Second), note)
		c.schedule(c.now().add(-time.Hour), note)
	})
	c.schedule(testStart.add(5*time.Second), note)
	c.advance(4 * time.Second)
	want := []time.Duration{time.Second, time.Second, 2 * time.Second, 3 * time.Second}
	if !slices.Equal(fired, want) {
		t.Errorf("timers fired at %v; want %v", fired, want)
	}
	if got := c.now().sub(testStart); got != 4*time.Second {
		t.Errorf("the clock is at %s; want 4s", got)
	}
}

func TestRealClockTimers(t *testing.T) {
	c := newRealClock()
	defer c.stop()
	order := make(chan int, 3)
	start := c.now()
	c.schedule(start.add(30*time.Millisecond), func() { order <- 3 })
	c.schedule(start.add(10*time.Millisecond), func() { order <- 2 })
	c.schedule(start, func() { order <- 1 })
	for want := 1; want <= 3; want++ {
		if got := <-order; got != want {
			t.Fatalf("timer %d fired; want %d", got, want)
		}
	}
	if took := c.now().sub(start); took < 30*time.Millisecond {
		t.Errorf("the last timer fired after %s; want 30ms at least", took)
	}
}

// advance moves a clock without a timekeeper. It calls the functions that become due,
// in order and each at its time, in the caller's goroutine.
func (c *virtualClock) advance(d time.Duration) {
	end := c.now().add(d)
	for next, ok := c.next(); ok && next <= end; next, ok = c.next() {
		c.set(next)
		c.call(c.take())
	}
	c.set(end)
}

// set moves the clock forward to an instant, if that is not past.
func (c *virtualClock) set(t instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(max(t, c.nowLocked()))
}

// TestDerivedIDs checks that derived ids increase, have version 7, and depend on seed,
// time, order, parent and name alone.
func TestDerivedIDs(t *testing.T) {
	c := newVirtualClock(testStart)
	s, again := newDerivedIDs(c, "s1"), newDerivedIDs(c, "s1")
	parent, _ := parseUUID("0198c0de-0000-7000-8000-000000000000")
	last := uuid{}
	for i := range 10_000 {
		if i%1000 == 999 {
			c.advance(time.Millisecond)
		}
		n := 1 + i%500
		first := s.block(n, parent, "name")
		again.random() // for a request
		again.secretOf(parent, 1)
		again.floatOf(parent, i)
		if got := again.block(1+i%3, parent, "name"); got != first {
			t.Fatalf("block %d begins with %s; want %s, however many were drawn", i, got, first)
		}
		for _, id := range []uuid{first, first.plus(n - 1)} {
			if bytes.Compare(id[:], last[:]) < 0 || id[6]>>4 != 7 || id[8]>>6 != 2 || id.blockNumber() != uint64(i+1) {
				t.Fatalf("%s came after %s in block %d", id, last, i+1)
			}
			last = id
		}
	}
}

// TestDerivedIDsDiffer checks that derived ids depend on each of these.
func TestDerivedIDsDiffer(t *testing.T) {
	c := newVirtualClock(testStart)
	other := uuid{1}
	seen := map[uuid]bool{}
	for _, id := range []uuid{
		newDerivedIDs(c, "s1").block(1, uuid{}, "n"), newDerivedIDs(c, "s2").block(1, uuid{}, "n"),
		newDerivedIDs(c, "s1").block(1, other, "n"), newDerivedIDs(c, "s1").block(1, uuid{}, "m"),
	} {
		if seen[id] {
			t.Errorf("%s came twice", id)
		}
		seen[id] = true
	}
	s := newDerivedIDs(c, "s1")
	if s.secretOf(other, 1) == s.secretOf(other, 2) || s.secretOf(other, 1) == s.secretOf(uuid{}, 1) ||
		s.floatOf(other, 1) == s.floatOf(other, 2) {
		t.Error("secrets or chances of different things are the same")
	}
}

// TestDerivedIDsGoOn checks that derived ids follow ids of any other source.
func TestDerivedIDsGoOn(t *testing.T) {
	for _, before := range []string{
		"019b76da-a800-7000-8000-3f0000000000", "019b76da-a800-7fff-bfff-ffffffffffff", "01ff0000-0000-7fff-bfff-ffffffffffff",
	} {
		s := newDerivedIDs(newVirtualClock(testStart), "s1")
		last, _ := parseUUID(before)
		s.observe(last)
		for range 3 {
			id := s.block(10, uuid{}, "n")
			if bytes.Compare(id[:], last[:]) <= 0 || id[6]>>4 != 7 || id[8]>>6 != 2 {
				t.Errorf("after %s came %s", last, id)
			}
			last = id.plus(9)
		}
	}
}

func TestIDsIncrease(t *testing.T) {
	c := newVirtualClock(testStart)
	s := newIDSource(c, new([32]byte))
	last := uuid{}
	for i := range 10_000 {
		if i%100 == 99 {
			c.advance(time.Millisecond)
		}
		n := 1 + i%5
		first := s.reserve(n)
		for j := range n {
			id := first.plus(j)
			if bytes.Compare(id[:], last[:]) <= 0 {
				t.Fatalf("%s came after %s", id, last)
			}
			if id[6]>>4 != 7 || id[8]>>6 != 2 {
				t.Fatalf("%s is no version 7 id", id)
			}
			last = id
		}
	}
	late := newIDSource(newVirtualClock(testStart-1_000_000), new([32]byte))
	late.observe(last)
	if id := late.reserve(1); bytes.Compare(id[:], last[:]) <= 0 {
		t.Errorf("with the clock set back %s came after %s", id, last)
	}
}

func TestIDCounter(t *testing.T) {
	all, _ := parseUUID("0198c0de-0000-7fff-bfff-ffffffffffff")
	for _, tc := range []struct {
		from string
		n    int
		want string
	}{
		{"0198c0de-0000-7000-8000-000000000000", 1, "0198c0de-0000-7000-8000-000000000001"},
		{"0198c0de-0000-7000-bfff-ffffffffffff", 1, "0198c0de-0000-7001-8000-000000000000"},
		{"0198c0de-0000-7abc-bfff-fffffffffff0", 20, "0198c0de-0000-7abd-8000-000000000004"},
	} {
		from, _ := parseUUID(tc.from)
		got := from.plus(tc.n)
		if got.String() != tc.want {
			t.Errorf("%s plus %d: got %s; want %s", tc.from, tc.n, got, tc.want)
		}
		if n, ok := got.minus(from); !ok || n != tc.n {
			t.Errorf("%s minus %s: got %d, %t; want %d", got, from, n, ok, tc.n)
		}
		if _, ok := from.minus(got); ok {
			t.Errorf("%s minus %s was given a distance", from, got)
		}
		if _, ok := all.minus(from); ok {
			t.Errorf("%s minus %s was given a distance", all, from)
		}
	}
}

func TestParseUUID(t *testing.T) {
	for _, tc := range []struct {
		text string
		ok   bool
	}{
		{"0198c0de-0000-7000-8000-00000000000a", true},
		{"0198C0DE-0000-7000-8000-00000000000A", true},
		{"{0198c0de-0000-7000-8000-00000000000a}", false},
		{"0198c0de00007000800000000000000a", true},
		{"0198C0DE00007000800000000000000A", true},
		{"0198c0de-000070008000-00000000000a", false},
		{"0198c0de00007000800000000000000g", false},
		{"0198c0de0000-7000-8000-00000000a", false},
		{"0198c0de000070008000000000000000000a", false},
		{"{0198c0de0000700080000000000000a}", false},
		{"0198c0de-0000-7000-8000-00000000000g", false},
		{"0198c0de-0000-7000-8000-0000000000-a", false},
		{"", false},
	} {
		id, ok := parseUUID(tc.text)
		if ok != tc.ok {
			t.Errorf("%q: got %t; want %t", tc.text, ok, tc.ok)
		}
		if ok && id.String() != "0198c0de-0000-7000-8000-00000000000a" {
			t.Errorf("%q became %s", tc.text, id)
		}
	}
}

// steppedMachine is a machine whose clock somebody sets. A suspended machine looks like one
// whose clock was set forward.
type steppedMachine struct {
	began time.Time
	step  atomic.Int64 // nanoseconds, in all
}

func newSteppedMachine() *steppedMachine { return &steppedMachine{began: time.Now()} }

func (m *steppedMachine) read() (instant, time.Duration) {
	t := time.Now()
	return instantOf(t).add(time.Duration(m.step.Load())), t.Sub(m.began)
}

func (m *steppedMachine) set(by time.Duration) { m.step.Add(int64(by)) }

// TestClockSteps sets the machine's clock while a timer runs: forward, the timer fires when the
// clock says so; back, it is not delayed.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	const wait, day = 10 * time.Minute, 24 * time.Hour
	for _, row := range []struct {
		name  string
		steps []time.Duration // one after each second
		want  time.Duration   // until the timer fires
	}{
		{"none", nil, wait},
		{"forward beyond the timer", []time.Duration{time.Hour}, time.Second},
		{"forward", []time.Duration{4 * time.Minute}, 6 * time.Minute},
		{"back a little", []time.Duration{-30 * time.Second}, wait},
		{"back", []time.Duration{-day}, wait},
		{"back and forward again", []time.Duration{-day, day}, wait},
		{"forward and back again", []time.Duration{4 * time.Minute, -4 * time.Minute}, 6 * time.Minute},
		{"back, and forward less", []time.Duration{-day, time.Hour}, wait},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newSteppedMachine()
				c := startClock(m.read)
				defer c.stop()
				fired, began, last := make(chan time.Time, 1), time.Now(), c.now()
				c.schedule(last.add(wait), func() { fired <- time.Now() })
				for _, by := range row.steps {
					<-time.After(time.Second)
					m.set(by)
					if now := c.now(); now < last {
						t.Errorf("the clock goes back from %s to %s", last.zoned(), now.zoned())
					}
					last = c.now()
				}
				if took := (<-fired).Sub(began); took < row.want || took > row.want+2*time.Second {
					t.Errorf("it fired after %s; want %s", took, row.want)
				}
			})
		})
	}
}
