package main

import (
	"stepwell/e2e/wire"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestDelayTrial counts requests as late while more than a few wait behind a trial that takes
// long, and for a moment after it.
func TestDelayTrial(t *testing.T) {
	for _, tt := range []struct {
		name          string
		took          time.Duration // of the trial
		behind        int           // requests behind it
		open          int64         // requests that are not answered yet
		during, after bool          // whether requests are late before its end and right after it
	}{
		{"quick", maxDelay / 2, 1000, 1000, false, false},
		{"slow", 3 * maxDelay, 1000, 1000, true, true},
		{"slow, with few requests", 3 * maxDelay, loadFloor - 1, 1000, false, false},
		{"slow, with requests that are answered one after another", 3 * maxDelay, 1000, 1, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			trial := delayTrial{wait: func() { time.Sleep(tt.took) }, open: new(atomic.Int64)}
			trial.open.Store(tt.open)
			arrive := func(n int) (late bool) {
				for range n {
					late = trial.arrive()
				}
				return late
			}
			if arrive(loadFloor) || trial.began.Load() == 0 {
				t.Fatalf("%s: the first requests are late, or make no trial", tt.name)
			}
			arrive(tt.behind)
			time.Sleep(tt.took - time.Millisecond)
			if got := arrive(1); got != tt.during {
				t.Errorf("%s: before the end of the trial: late %v", tt.name, got)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			trial.wait = func() {}
			if got := arrive(1); got != tt.after {
				t.Errorf("%s: after the trial: late %v", tt.name, got)
			}
			synctest.Wait() // for the trial that this one began
			if arrive(1000) {
				t.Errorf("%s: late after a quick trial", tt.name)
			}
			synctest.Wait()
		})
	}
}

// TestOverload has changes arrive faster than the disk takes them: those that come too late are
// refused at once, reads are not, and what was accepted is done.
func TestOverload(t *testing.T) {
	t.Parallel()
	s := newSlowTest(t, "always")
	const task = `{"namespace":"t","name":"manual"}`
	s.disk.hold()
	answers := make(chan *answer, 3*loadFloor)
	for range cap(answers) {
		go func() { answers <- s.do("POST", "/v1/tasks", task) }()
	}
	var refused *answer
	wire.Eventually(t, "changes are refused", func() bool {
		late := s.svc.load.changes.arrive()
		if late {
			refused = s.do("POST", "/v1/tasks", task).want(503)
		}
		return late
	})
	if refused.text("error.code") != "OVERLOADED" || refused.text("error.retry_after_seconds") != "1" ||
		refused.header.Get("Retry-After") != "1" || refused.header.Get("Connection") != "" {
		t.Errorf("got %v and %s; want OVERLOADED after a second, on a connection that stays", refused.header, refused.body)
	}
	s.do("GET", "/v1/templates", "").want(200)
	if m := string(s.do("GET", "/metrics", "").want(200).body); strings.Contains(m, "\nstepwell_overload_refusals_total 0\n") {
		t.Error("the metrics do not count refusals")
	}
	s.disk.release()
	created := 1 // by newSlowTest
	for range cap(answers) {
		if a := <-answers; a.status == 201 {
			created++
		} else if a.want(503); a.text("error.code") != "OVERLOADED" {
			t.Errorf("got %s", a.body)
		}
	}
	if tasks, _ := s.svc.store.size(); tasks != created || created < loadFloor {
		t.Errorf("got %d tasks; want the %d that were answered so, and no fewer than %d", tasks, created, loadFloor)
	}
	wire.Eventually(t, "changes are taken again", func() bool { return s.do("POST", "/v1/tasks", task).status == 201 })
}

// BenchmarkLoadGauge is what the gauge costs a request that is not refused.
func BenchmarkLoadGauge(b *testing.B) {
	g := newLoadGauge(nil)
	for b.Loop() {
		if g.refusal(true) != nil {
			b.Fatal("refused")
		}
	}
}
