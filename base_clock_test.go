package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
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

// countedAnswer is an answer that contains how often it was computed.
type countedAnswer struct {
	cache answerCache[string, string]
	clock *virtualClock
	times map[string]int
}

func newCountedAnswer() *countedAnswer {
	return &countedAnswer{clock: newVirtualClock(testStart), times: map[string]int{}}
}

func (c *countedAnswer) ask(key string) string {
	v, hit, _ := c.cache.get(key, c.clock, time.Minute, func() (string, error) {
		c.times[key]++
		return fmt.Sprint(key, c.times[key]), nil
	})
	return fmt.Sprint(v, " ", hit)
}

func TestAnswerCache(t *testing.T) {
	c := newCountedAnswer()
	for _, step := range []struct {
		wait time.Duration
		key  string
		want string
	}{
		{0, "a", "a1 false"}, {0, "a", "a1 true"}, {0, "b", "b1 false"},
		{time.Minute - time.Microsecond, "a", "a1 true"},
		{time.Microsecond, "a", "a2 false"}, {0, "b", "b2 false"}, {time.Second, "a", "a2 true"},
		{time.Hour, "b", "b3 false"},
	} {
		c.clock.advance(step.wait)
		if got := c.ask(step.key); got != step.want {
			t.Errorf("at %s %s: got %s; want %s", c.clock.now().zoned(), step.key, got, step.want)
		}
	}
	c.clock = newVirtualClock(testStart) // a clock that went back
	if got := c.ask("b"); got != "b4 false" {
		t.Errorf("before its time: got %s; want b4 false", got)
	}
}

// advance moves a clock without a timekeeper. It calls the functions that become due,
// in order and each at its time, in the caller's goroutine.
func (c *virtualClock) advance(d time.Duration) {
	end := c.now().add(d)
	for next, ok := c.next(); ok && next <= end; next, ok = c.next() {
		c.set(next)
		c.call(c.dueFunc())
	}
	c.set(end)
}

// set moves the clock forward to an instant, if that is not past.
func (c *virtualClock) set(t instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(max(t, c.nowLocked()))
}

// TestDurations checks what is read as a duration.
func TestDurations(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "1.5h": 90 * time.Minute, "1d": day, "1d12h": 36 * time.Hour, "0.5d": day / 2,
		"2w": 14 * day, "1w2d3h": 9*day + 3*time.Hour, "-1d1s": -day - time.Second, "0d": 0, "106751d": 106751 * day, "-3s": -3 * time.Second,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s: got %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-", "1", "d", "w", ".d", "1h1d", "1d1w", "1d1d", "1d-1h", "1d+1h", "1d 1h", "--1d", "-+1s",
		"1e3d", "1x", "1D", " 1d", "1d "} {
		if got, err := parseDuration(text); err != errDuration {
			t.Errorf("%q: got %s, %v; want an error", text, got, err)
		}
	}
	for _, text := range []string{"106752d", "106751d24h", "99999999w", "-99999999w", "9999999999999999999999h", "2562048h"} {
		if got, err := parseDuration(text); err != errLongDuration {
			t.Errorf("%q: got %s, %v; want it to be too long", text, got, err)
		}
	}
	for _, tt := range []struct {
		text        string
		least, most time.Duration
		want        string
	}{
		{`"1d"`, 0, math.MaxInt64, ""}, {`"99999999w"`, 0, math.MaxInt64, "must be at most 292 years"}, {`"99999999w"`, 0, time.Hour, "must be at most 1h0m0s"},
		{`"2h"`, 0, time.Hour, "must be at most 1h0m0s"}, {`"soon"`, 0, time.Hour, "must be a string like 90s, 1h30m or 1d, not less than 0s"},
		{`"-1s"`, 0, time.Hour, "not less than 0s"},
	} {
		f := &fieldReader{}
		f.durationWithin("wait", []byte(tt.text), tt.least, tt.most)
		if got := fmt.Sprint(f.problems); (tt.want == "") != (len(f.problems) == 0) || !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %s; want %q", tt.text, got, tt.want)
		}
	}
}
