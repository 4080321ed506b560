package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// wantAbout compares percentiles, which may be 6 % off.
func wantAbout(t *testing.T, a *answer, want map[string]float64) {
	t.Helper()
	for name, want := range want {
		var got float64
		fmt.Sscan(a.text("performance_distribution.percentiles."+name), &got)
		if math.Abs(got-want) > 0.06*want {
			t.Errorf("%s: got %g; want %g", name, got, want)
		}
	}
}

// TestMountPercentiles has a hundred tasks of known durations.
func TestMountPercentiles(t *testing.T) {
	s, y := newMountAnalyticsServer(t)
	var took []time.Duration
	for i := range 100 {
		d := time.Duration(math.Pow(1.17, float64(i))) * time.Millisecond // up to 95 min
		id := y.create("chain")
		y.run(id, 0, d/2, succeeded)
		y.run(id, 1, d-d/2, succeeded)
		took = append(took, d)
	}
	slices.Sort(took)
	a := s.do("GET", "/analytics/bottlenecks?name=chain&period=720", "").want(200)
	wantAbout(t, a, map[string]float64{"p50": took[49].Seconds(), "p95": took[94].Seconds(), "p99": took[98].Seconds()})
	counts := make([]int, len(distributionRanges))
	for _, d := range took {
		at := 0
		for at < len(distributionEdges) && d.Microseconds() >= distributionEdges[at] {
			at++
		}
		counts[at]++
	}
	total := 0
	for i, want := range counts {
		var got int
		fmt.Sscan(a.text(fmt.Sprintf("performance_distribution.distribution_buckets.%d.count", i)), &got)
		if total += got; got < want-1 || got > want+1 { // one beside an edge may be counted on the other side
			t.Errorf("%s: got %d tasks; want %d", distributionRanges[i], got, want)
		}
	}
	if total != 100 {
		t.Errorf("the buckets hold %d tasks; want 100", total)
	}
}

func TestMountAnalyticsRefuse(t *testing.T) {
	s, _ := newMountAnalyticsServer(t)
	for _, period := range []string{"0", "721", "-1", "x", "1.5", "24h", "99999999999999999999"} {
		a := s.do("GET", "/analytics/bottlenecks?period="+period, "").want(400)
		if !strings.Contains(a.text("error.message"), "period must be an integer from 1 to 720") {
			t.Errorf("%s: got %s", period, a.body)
		}
	}
	s.do("GET", "/analytics/bottlenecks?%zz", "").want(400)
	s.do("GET", "/analytics/bottlenecks?period=720", "").want(200)
	s.do("GET", "/analytics/bottlenecks?period=1", "").want(200)
}

// TestMountAnalyticsBesideChanges sends many queries while tasks run.
func TestMountAnalyticsBesideChanges(t *testing.T) {
	s := newTestService(t, serviceTest{extra: storyTemplates})
	a := &mountAnalytics{service: s}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 300 {
			parseAndCreate(s, `{"namespace":"t","name":"noop"}`)
		}
	}()
	for hours := 1; ; hours = hours%keptHours + 1 {
		v, err := a.answerBottlenecks(bottleneckQuery{hours: hours})
		if err != nil || v.ScopeSummary.TotalTasks > 300 {
			t.Fatalf("got %d tasks, %v; want at most 300", v.ScopeSummary.TotalTasks, err)
		}
		must(a.answerPerformance())(t)
		select {
		case <-done:
			return
		default:
		}
	}
}
