package main

import (
	"slices"
	"testing"
	"time"
)

// TestStaleLimits compares a task in each state with its limits.
func TestStaleLimits(t *testing.T) {
	t.Parallel()
	const dayMinutes = 24 * 60
	for _, tc := range []struct {
		template string
		prepare  *stepRequest
		state    taskState
		at       int // minutes after the creation
		health   string
		limit    int // shown
		broken   int
	}{
		{"plain", nil, taskStepsInProcess, 23, "healthy", 30, 0},
		{"plain", nil, taskStepsInProcess, 24, "warning", 30, 0},
		{"plain", nil, taskStepsInProcess, 29, "warning", 30, 0},
		{"plain", nil, taskStepsInProcess, 30, "stale", 30, 30},
		{"own", nil, taskStepsInProcess, 4, "warning", 5, 0},
		{"own", nil, taskStepsInProcess, 5, "stale", 5, 5},
		// The retry is due after 10 minutes.
		{"plain", &retryAction, taskWaitingForRetry, 30, "healthy", 30, 0},
		{"plain", &retryAction, taskWaitingForRetry, 34, "warning", 30, 0},
		{"plain", &retryAction, taskWaitingForRetry, 40, "stale", 30, 30},
		{"own", &retryAction, taskWaitingForRetry, 15, "healthy", 7, 0},
		{"own", &retryAction, taskWaitingForRetry, 17, "stale", 7, 7},
		{"plain", &failAction, taskBlockedByFailures, 19 * 60, "healthy", dayMinutes, 0},
		{"plain", &failAction, taskBlockedByFailures, 20 * 60, "warning", dayMinutes, 0},
		{"plain", &failAction, taskBlockedByFailures, dayMinutes, "stale", dayMinutes, dayMinutes},
		{"own", &failAction, taskBlockedByFailures, 120, "stale", 120, 120},
	} {
		s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: staleTemplates(),
			config: func(c *Config) { c.Engine.Jitter = false }})
		v := mustCreate(t, s, tc.template)
		if tc.prepare != nil {
			v = mustAct(t, s, v, 0, *tc.prepare)
		}
		if v.state != tc.state {
			t.Fatalf("got %s; want %s", v.state, tc.state)
		}
		a := s.cfg.Staleness.aging(v, testStart.add(minutes(tc.at)))
		if a.health.String() != tc.health || a.limit != tc.limit || a.broken != tc.broken {
			t.Errorf("%s in %s after %d minutes: got %s of %d, broken %d; want %s of %d, broken %d",
				tc.template, tc.state, tc.at, a.health, a.limit, a.broken, tc.health, tc.limit, tc.broken)
		}
	}
}

// TestStaleInEveryState moves tasks from each state to error. No other timer fires
// before, as if the process had been down.
func TestStaleInEveryState(t *testing.T) {
	for _, tc := range []struct {
		prepare *stepRequest
		state   taskState
		after   time.Duration
		reasons []dlqReason
		limit   int
	}{
		{nil, taskStepsInProcess, 31 * time.Minute, []dlqReason{dlqWorkerUnavailable}, 30},
		{&retryAction, taskWaitingForRetry, 41 * time.Minute, []dlqReason{dlqStalenessTimeout}, 30},
		{&failAction, taskBlockedByFailures, 25 * time.Hour, []dlqReason{dlqMaxRetriesExceeded}, 0},
	} {
		t.Run(tc.state.String(), func(t *testing.T) {
			clock := newVirtualClock(testStart)
			s := newTestService(t, serviceTest{clock: clock, extra: staleTemplates(),
				config: func(c *Config) { c.Engine.Jitter = false }})
			v := mustCreate(t, s, "bare")
			if tc.prepare != nil {
				v = mustAct(t, s, v, 0, *tc.prepare)
			}
			clock.set(testStart.add(tc.after))
			s.staleness.detect(&stalenessRun{taskWalk: taskWalk{states: watchedStates}})
			after := settled(t, s, v.id)
			if after.state != taskError || len(after.dead) != len(tc.reasons) {
				t.Fatalf("got %s with %d entries; want error with %d", after.state, len(after.dead), len(tc.reasons))
			}
			for i, d := range after.dead {
				if d.reason != tc.reasons[i] || d.state != tc.state {
					t.Errorf("got an entry for %s in %s; want %s in %s", d.reason, d.state, tc.reasons[i], tc.state)
				}
			}
			of, err := s.dlq.ofTask(v.id, true, nil)
			if err != nil || of.TaskSnapshot.ThresholdMinutes != tc.limit {
				t.Errorf("got %+v, %v; want a threshold of %d", of, err, tc.limit)
			}
		})
	}
}

// TestManyStaleTasks creates more stale tasks than fit into one batch.
func TestManyStaleTasks(t *testing.T) {
	t.Parallel()
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, extra: staleTemplates()})
	const many = walkWork / lookWork / 10 // for two batches, with the looks at their steps
	for i := range 2*many + 10 {
		name := "bare"
		if i%3 == 0 {
			name = "plain"
		}
		mustCreate(t, s, name)
	}
	clock.advance(35 * time.Minute)
	stale := (2*many + 10 + 2) / 3
	all, total := s.staleness.report(&taskFilter{}, 0, 10_000)
	if len(all) != stale || total != stale {
		t.Errorf("got %d unfinished tasks of %d; want %d", len(all), total, stale)
	}
	if got, total := s.staleness.report(&taskFilter{name: "plain"}, 3, 9); !slices.Equal(got, all[3:12]) || total != stale {
		t.Errorf("got %+v of %d; want those from the place 3 on", got, total)
	}
	if got, total := s.staleness.report(&taskFilter{name: "bare"}, 0, 9); len(got) != 0 || total != 0 {
		t.Errorf("got %d tasks of %d of a template without any; want none", len(got), total)
	}
	if got := s.staleness.found.Load(); got != int64(stale) {
		t.Errorf("the latest run found %d stale tasks; want %d, for which the action is none", got, stale)
	}
	if got, _ := s.staleness.report(&taskFilter{}, 0, 7); !slices.Equal(got, all[:7]) {
		t.Errorf("got %+v; want the first 7", got)
	}
	f := s.dlq.stats()
	if len(f) != 1 || f[0].TotalEntries != 2*many+10-stale {
		t.Errorf("got %+v; want %d entries of one reason", f, 2*many+10-stale)
	}
}
