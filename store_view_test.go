package main

import (
	"testing"
	"time"
)

// BenchmarkCounting applies the log of a four-step diamond, with and without figures. The
// difference is the cost of counting a task and its steps.
func BenchmarkCounting(b *testing.B) {
	svc := benchService(b, "")
	q := must(parseTaskRequest([]byte(diamondBody)))(b)
	must(svc.createTask(b.Context(), q, true))(b)
	line := svc.store.tasks.slots[0].line()
	for _, bc := range []struct {
		name string
		obs  replayer
	}{{"without", unobserved{}}, {"with", newAnalytics()}} {
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(svc.store.replayLine(line, bc.obs))(b)
			}
		})
	}
}

// TestRetentionByAge checks that tasks that finished too long ago are dropped
// by the clock alone, without any change.
func TestRetentionByAge(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, extra: storyTemplates, config: func(c *Config) {
		c.Store.RetainFinishedCount, c.Store.RetainFinishedAgeHours = 0, 2
	}})
	ended := func() uuid { return settled(t, s, mustCreate(t, s, "noop").id).id } // before the clock moves
	waiting, first := mustCreate(t, s, "pair").id, ended()
	clock.advance(time.Hour)
	second := ended()
	clock.advance(time.Hour - time.Microsecond)
	wantKept(t, s, waiting, first, second)
	clock.advance(time.Microsecond)
	wantKept(t, s, waiting, second)
	clock.advance(48 * time.Hour)
	wantKept(t, s, waiting)
	third := ended()
	clock.advance(3 * time.Hour)
	wantKept(t, s, waiting)
	if _, err := s.store.view(third); kindOf(err) != taskMissing {
		t.Errorf("a dropped task: got %v; want not found", err)
	}
}

// TestRetentionFreesIdentity checks that a dropped task can be created again.
func TestRetentionFreesIdentity(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates, config: retaining(1)}
	s := openTestService(t, o)
	body := `{"namespace":"t","name":"noop","idempotency_key":"k"}`
	for range 3 {
		v := must(parseAndCreate(s, body))(t)
		if _, err := parseAndCreate(s, body); kindOf(err) != conflict {
			t.Errorf("while it is kept: got %v; want a conflict", err)
		}
		last := mustCreate(t, s, "noop")
		if _, err := s.store.view(v.id); kindOf(err) != taskMissing {
			t.Errorf("the task before the last: got %v; want not found", err)
		}
		s = reopenTestService(t, s, o)
		wantKept(t, s, last.id)
	}
	closeTestService(t, s)
}
