package main

import "testing"

// TestDurationsOfAClockSetBack sets the clock back while something is timed:
// clients read unsigned numbers, and counters never go down.
func TestDurationsOfAClockSetBack(t *testing.T) {
	clock := &laggingClock{virtualClock: newVirtualClock(testStart)}
	s := newTestService(t, serviceTest{clock: clock})
	v := s.checked("well", func() error {
		clock.lag.Store(5_000_000)
		return nil
	})
	if v.DurationMS != 0 {
		t.Errorf("a check took %d ms; want 0", v.DurationMS)
	}
	stats := newHTTPStats(s.auth.orchestration)
	stats.observe("GET /", 200, -1)
	if h := stats.times["GET /"]; h.sum != 0 || h.counts[0] != 1 {
		t.Errorf("got a sum of %s and %d in the first bucket; want 0s and 1", h.sum, h.counts[0])
	}
}
