package main

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"stepwell/e2e/wire"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestBatchRests checks that an idle deterministic service does nothing at all.
func TestBatchRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newDeterministicWorld(t)
		mustCreate(t, s, "slow")
		synctest.Wait() // which never returns if the service is not idle
		noError(t, fixtureOf(s).keeper.setMode(t.Context(), clockAuto))
		synctest.Wait()
		if got, want := s.clock.now(), deterministicStart.add(time.Second); got != want {
			t.Errorf("the clock is at %s; want %s, when the delay was over", got.zoned(), want.zoned())
		}
		if err := abort(s); err != nil {
			t.Error(err)
		}
	})
}

// newDeterministicWorld returns a deterministic service with its timekeeper, without a
// listener.
func newDeterministicWorld(t *testing.T) *service {
	t.Helper()
	c := newVirtualClock(deterministicStart)
	s := openTestService(t, serviceTest{clock: c, config: func(c *Config) { c.Fixture.DeterministicIDs = "rest" },
		extra: []string{sleepTemplate("slow", time.Second)}})
	fixtureOf(s).start()
	return s
}

const longTemplate = `{"namespace":"t","name":"long","version":"1.0.0","steps":[
 {"name":"flaky","handler":{"callable":"builtin:flaky","initialization":{"failures":3}},
  "retry":{"max_attempts":4,"backoff":"exponential","backoff_base_ms":3600000,"max_backoff_ms":86400000}},
 {"name":"rest","handler":{"callable":"builtin:sleep","initialization":{"duration_ms":604800000}},"dependencies":["flaky"],"timeout_seconds":700000}]}`

// TestLongWaits checks that retries after hours and a wait of a week end at once, and
// that the history shows the hours and the week.
func TestLongWaits(t *testing.T) {
	for _, move := range []string{`{"advance":"200h"}`, `{"auto":true}`} {
		s := newFixtureServer(t, serviceTest{extra: []string{longTemplate}, config: func(c *Config) { c.Engine.Jitter = false }})
		s.clock(`{"freeze":true}`).want(200)
		id := s.create(`{"namespace":"t","name":"long"}`)
		s.clock("%s", move).want(200)
		s.do("POST", "/_stepwell/wait-idle", "").want(200)
		v := s.do("GET", "/v1/tasks/"+id, "").want(200)
		if v.text("status") != "complete" {
			t.Fatalf("%s: %s", move, v.body)
		}
		span := mustInstant(v.text("completed_at")).sub(mustInstant(v.text("created_at")))
		if span.Hours() != 7+168 {
			t.Errorf("%s: the task took %v; want 175 h", move, span)
		}
	}
}

// frozenServer returns a server whose clock is frozen.
func frozenServer(t *testing.T, o serviceTest) *fixtureServer {
	t.Helper()
	s := newFixtureServer(t, o)
	s.clock(`{"freeze":true}`).want(200)
	return s
}

// sleepTemplate returns a template with one step that sleeps.
func sleepTemplate(name string, d time.Duration) string {
	return testTemplate(name, stepSpec{name: "a", callable: "builtin:sleep", config: fmt.Sprintf(`{"duration_ms":%d}`, d.Milliseconds()), timeout: 2_000_000})
}

// TestDueTimersNeedNoAdvance checks that a retry without a back-off starts while the
// clock is frozen.
func TestDueTimersNeedNoAdvance(t *testing.T) {
	s := frozenServer(t, serviceTest{extra: []string{testTemplate("eager", stepSpec{name: "a", callable: "builtin:flaky",
		config: `{"failures":2}`, retry: `{"max_attempts":3,"backoff":"none"}`})}})
	id := s.create(`{"namespace":"t","name":"eager"}`)
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	if got := s.status(id); got != "complete" {
		t.Errorf("got %s; want complete", got)
	}
}

// TestAbsentHandlerKeepsBusy checks that a service is not idle while a step waits for a handler, whose address is named.
func TestAbsentHandlerKeepsBusy(t *testing.T) {
	t.Parallel()
	s := frozenServer(t, serviceTest{config: func(c *Config) { c.Worker.Undelivered = undeliveredWait },
		extra: []string{testTemplate("web", stepSpec{name: "a", callable: "http://127.0.0.1:1", retry: `{"max_attempts":1}`})}})
	id := s.create(`{"namespace":"t","name":"web"}`)
	eventually(t, "the address to be named", func() bool {
		a := s.do("POST", "/_stepwell/wait-idle", `{"timeout":"10ms"}`).want(408)
		return a.text("error.blocking.0.reason") == "not_listening" && a.text("error.blocking.0.address") == "127.0.0.1:1" && a.text("error.blocking.0.remedy") == "start your handler"
	})
	s.do("DELETE", "/v1/tasks/"+id, "").want(200)
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
}

// TestWhatIsIdle checks idleness in one situation after another.
func TestWhatIsIdle(t *testing.T) {
	t.Parallel()
	h := wire.NewHeldHandler(t, 16)
	s := frozenServer(t, serviceTest{
		config: func(c *Config) { c.Worker.Concurrency, c.Worker.HTTPConcurrency = 1, 1 },
		extra: []string{sleepTemplate("minute", time.Minute), testTemplate("act", stepSpec{name: "a", callable: "Outside"}),
			testTemplate("held", stepSpec{name: "a", callable: h.URL, timeout: 300})},
	})
	create := func(name string) string { return s.create(`{"namespace":"t","name":"` + name + `"}`) }
	idle := func(what string, want bool) *answer {
		t.Helper()
		a := s.do("POST", "/_stepwell/wait-idle", map[bool]string{true: "{}", false: `{"timeout":"30ms"}`}[want])
		if (a.status == 200) != want || a.status != 200 && a.status != 408 {
			t.Errorf("%s: got %d, %s; want idle %v", what, a.status, a.body, want)
		}
		return a
	}
	idle("nothing was asked for", true)
	create("act")
	idle("a step waits for an outside actor", true)
	create("minute")
	idle("a delay of our own", true)
	create("minute")
	idle("a step waits for the slot of a delay", true)
	held := create("held")
	h.Await(t)
	busy := idle("a handler runs", false)
	for path, want := range map[string]string{"reason": "running", "task_uuid": held, "step_name": "a", "handler": h.URL, "attempt": "1"} {
		if got := busy.text("error.blocking.0." + path); got != want {
			t.Errorf("blocking has %s %s; want %s", path, got, want)
		}
	}
	before := s.do("GET", "/_stepwell/clock", "").text("now")
	if a := s.clock(`{"advance":"5m","timeout":"30ms"}`).want(408); a.text("error.blocking.0.reason") != "running" {
		t.Errorf("got %s", a.body)
	}
	if now := s.do("GET", "/_stepwell/clock", "").text("now"); now != before {
		t.Errorf("the clock went on to %s while a handler ran", now)
	}
	waiting := create("held")
	if a := idle("a step waits for the slot of a handler", false); len(a.get("error.blocking").([]any)) != 1 {
		t.Errorf("got %s; want the handler alone", a.body)
	}
	s.do("DELETE", "/v1/tasks/"+held, "").want(200)
	h.Await(t)
	idle("the one is cancelled, the other runs", false)
	h.Release <- struct{}{}
	idle("the handler has ended", true)
	if got := s.status(waiting); got != "complete" {
		t.Errorf("the task is %s when the service is idle; want complete", got)
	}
	s.clock(`{"advance":"2m"}`).want(200)
	if next := s.do("GET", "/_stepwell/clock", "").get("next_timer"); next != nil {
		t.Errorf("got a timer at %v; want none", next)
	}
}

// TestHousekeepingIsNoReasonToJump checks that time does not jump for housekeeping, which
// nevertheless runs for the time that passes.
func TestHousekeepingIsNoReasonToJump(t *testing.T) {
	stale := `{"namespace":"t","name":"stale","version":"1.0.0","lifecycle":{"max_steps_in_process_minutes":10},
		"steps":[{"name":"a","handler":{"callable":"Outside"}}]}`
	s := frozenServer(t, serviceTest{extra: []string{stale, sleepTemplate("hour", time.Hour)}})
	start := fixtureOf(s.world.service()).keeper.clock.now()
	id := s.create(`{"namespace":"t","name":"stale"}`)
	s.clock(`{"auto":true}`).want(200)
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	if got := fixtureOf(s.world.service()).keeper.clock.now(); got != start {
		t.Errorf("the clock went on to %s without work to do", got.zoned())
	}
	s.create(`{"namespace":"t","name":"hour"}`)
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	entry := s.do("GET", "/v1/dlq/task/"+id, "").want(200)
	found := s.world.service().started.add(15 * time.Minute) // the first run of the detector after its ten minutes
	if got := mustInstant(entry.text("dlq_timestamp")); got < found || got > start.add(15*time.Minute) {
		t.Errorf("the task was found stale at %s; want about %s", got.zoned(), found.zoned())
	}
}

// TestEmptyYearsTakeNoTime checks that the detector does not run every five minutes of years in which it would move no
// task, that its runs keep to their times all the same, and that it finds a stale task in time.
func TestEmptyYearsTakeNoTime(t *testing.T) {
	stale := `{"namespace":"t","name":"stale","version":"1.0.0","lifecycle":{"max_steps_in_process_minutes":10},
		"steps":[{"name":"a","handler":{"callable":"Outside"}}]}`
	s := frozenServer(t, serviceTest{extra: []string{stale, testTemplate("stays", stepSpec{name: "a", callable: "Outside"})}})
	keeper := fixtureOf(s.world.service()).keeper
	began := keeper.staleness.timer.when
	scheduled := func(move string) uint64 {
		before := keeper.clock.chores.seq
		s.clock("%s", move).want(200)
		s.do("POST", "/_stepwell/wait-idle", "").want(200)
		return keeper.clock.chores.seq - before
	}
	s.create(`{"namespace":"t","name":"stays"}`)
	if n := scheduled(`{"advance":"1h"}`); n < 12 {
		t.Errorf("%d runs in an hour; want one every five minutes", n)
	}
	if n := scheduled(`{"set":"2100-01-01T00:01:00Z"}`); n > 2 {
		t.Errorf("%d runs in years; want the last alone, and the next", n)
	}
	id := s.create(`{"namespace":"t","name":"stale"}`)
	if n := scheduled(`{"set":"2110-01-01T00:01:00Z"}`); n > 10 {
		t.Errorf("%d runs in years after a stale task; want few", n)
	}
	got := mustInstant(s.do("GET", "/v1/dlq/task/"+id, "").want(200).text("dlq_timestamp"))
	if first := mustInstant("2100-01-01T00:11:00Z"); got < first || got >= first.add(5*time.Minute) || (got-began)%(5*60_000_000) != 0 {
		t.Errorf("the task was found stale at %s; want one of the five minutes from %s", got.zoned(), began.zoned())
	}
}

// TestAdvancesTakeTurns checks that each advance moves the clock by its span.
func TestAdvancesTakeTurns(t *testing.T) {
	s := frozenServer(t, serviceTest{extra: []string{sleepTemplate("minute", time.Minute)}})
	start := fixtureOf(s.world.service()).keeper.clock.now()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s.create(`{"namespace":"t","name":"minute"}`)
			s.clock(`{"advance":"7m"}`).want(200)
		})
	}
	wg.Wait()
	if got, want := fixtureOf(s.world.service()).keeper.clock.now(), start.add(56*time.Minute); got != want {
		t.Errorf("the clock is at %s; want %s", got.zoned(), want.zoned())
	}
	if got := s.do("GET", "/v1/tasks?status=complete", "").text("pagination.total_count"); got != "8" {
		t.Errorf("%s tasks are complete; want 8", got)
	}
}

var clockRounds = flag.Int("clock-rounds", size(40, 200), "rounds of TestAdvanceNeverReturnsEarly")

// slowHandler answers within a millisecond or two, every third time with a failure
// that is retried.
func slowHandler(t *testing.T) string {
	var calls atomic.Int64
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d := rand.N(4); d > 0 {
			<-time.After(time.Duration(d*d) * 200 * time.Microsecond)
		}
		if calls.Add(1)%3 == 0 {
			w.WriteHeader(503)
			return
		}
		fmt.Fprint(w, `1`)
	}))
	t.Cleanup(h.Close)
	return h.URL
}

// TestAdvanceNeverReturnsEarly checks that after every advance each task is where its
// timers put it, however long its handlers took.
func TestAdvanceNeverReturnsEarly(t *testing.T) {
	slow(t)
	t.Parallel()
	url := slowHandler(t)
	retry := `{"max_attempts":20,"backoff_base_ms":1000,"max_backoff_ms":4000,"backoff":"exponential"}`
	s := frozenServer(t, serviceTest{extra: []string{testTemplate("mixed",
		stepSpec{name: "a", callable: url, retry: retry}, stepSpec{name: "b", callable: url, retry: retry, after: []string{"a"}},
		stepSpec{name: "c", callable: "builtin:sleep", config: `{"duration_ms":90000}`, timeout: 300, after: []string{"a"}},
		stepSpec{name: "d", callable: "builtin:sum", after: []string{"b", "c"}})}})
	began := realNow()
	for round := range *clockRounds {
		id := s.create(`{"namespace":"t","name":"mixed"}`)
		s.clock(`{"advance":"89s"}`).want(200)
		if got := s.status(id); got != "steps_in_process" {
			t.Fatalf("round %d: got %s after 89 s; want c to sleep", round, got)
		}
		s.clock(`{"advance":"81s"}`).want(200)
		if got := s.status(id); got != "complete" {
			t.Fatalf("round %d: got %s; want complete", round, got)
		}
	}
	t.Logf("%d rounds took %v", *clockRounds, realNow().sub(began))
}

// TestIdleAgainstTheStore compares the computed idleness, whenever a wait for it ends, with the
// whole store: no step can run, and no attempt is without a timer.
func TestIdleAgainstTheStore(t *testing.T) {
	slow(t)
	t.Parallel()
	url := slowHandler(t)
	retry := `{"max_attempts":4,"backoff_base_ms":1000}`
	s := frozenServer(t, serviceTest{
		config: func(c *Config) { c.Worker.HTTPConcurrency = 3 },
		extra: []string{
			testTemplate("t0", stepSpec{name: "a", callable: url, retry: retry}, stepSpec{name: "b", callable: url, retry: retry}),
			testTemplate("t1", stepSpec{name: "a", callable: "builtin:flaky", retry: retry}, stepSpec{name: "b", callable: url, after: []string{"a"}}),
			sleepTemplate("t2", 5*time.Second), testTemplate("t3", stepSpec{name: "a", callable: "Outside"}),
		},
	})
	for _, mode := range []string{"freeze", "auto"} {
		s.clock(`{%q:true}`, mode).want(200)
		for range 25 {
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 3 {
						id := s.create(fmt.Sprintf(`{"namespace":"t","name":"t%d"}`, rand.N(4)))
						if rand.N(4) == 0 {
							s.do("DELETE", "/v1/tasks/"+id, "")
						}
					}
					if mode == "freeze" {
						s.clock(`{"advance":"%dms"}`, rand.N(4000)).want(200)
					}
				})
			}
			wg.Wait()
			s.do("POST", "/_stepwell/wait-idle", "").want(200)
			s.wantIdle(mode == "auto")
		}
	}
}

// TestWaitsOutliveTheServersLimits checks that a request decides how long it may take.
func TestWaitsOutliveTheServersLimits(t *testing.T) {
	slow(t)
	t.Parallel()
	held := wire.NewHeldHandler(t, 16)
	s := frozenServer(t, serviceTest{extra: []string{testTemplate("held", stepSpec{name: "a", callable: held.URL, timeout: 300})}})
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	h := newHTTPServer(l, &s.world.gates.orchestration, manyConnections(), slog.New(slog.DiscardHandler))
	h.server.ReadTimeout, h.server.WriteTimeout = 300*time.Millisecond, 300*time.Millisecond
	go h.serve()
	t.Cleanup(func() { h.server.Close() })
	s.create(createHeld)
	held.Await(t)
	slow := &testServer{t: t, url: h.url()}
	for _, path := range []string{"/_stepwell/wait-idle", "/_stepwell/clock"} {
		body := map[string]string{"/_stepwell/wait-idle": `{"timeout":"600ms"}`, "/_stepwell/clock": `{"advance":"1s","timeout":"600ms"}`}[path]
		began := realNow()
		a := slow.do("POST", path, body).want(408)
		if took := realNow().sub(began); took < 600*time.Millisecond || a.text("error.blocking.0.reason") != "running" {
			t.Errorf("%s: after %v: %s", path, took, a.body)
		}
	}
	close(held.Release)
	slow.do("POST", "/_stepwell/wait-idle", "").want(200)
}

// TestLeasesAreWork checks that time jumps to the end of a lease, but not of one that ended
// before or was extended.
func TestLeasesAreWork(t *testing.T) {
	s := frozenServer(t, serviceTest{extra: []string{testTemplate("act", stepSpec{name: "a", callable: "Outside", timeout: 600})}})
	start := fixtureOf(s.world.service()).keeper.clock.now()
	next := func(what string, want any) {
		t.Helper()
		if got := s.do("GET", "/_stepwell/clock", "").get("next_timer"); got != want {
			t.Errorf("%s: got a timer at %v; want %v", what, got, want)
		}
	}
	claim := func() string {
		t.Helper()
		a := s.do("POST", "/v1/steps/claim", `{"callables":["Outside"],"lease_seconds":60,"worker_id":"w"}`)
		return a.want(200).text("0.task.task_uuid")
	}
	id := s.create(`{"namespace":"t","name":"act"}`)
	claim()
	next("claimed", start.add(time.Minute).zoned())
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	s.clock(`{"advance_to_next":true}`).want(200)
	if got := s.do("GET", "/v1/tasks/"+id, "").text("steps.0.current_state"); got == "in_progress" {
		t.Error("the lease did not lapse")
	}
	s.do("DELETE", "/v1/tasks/"+id, "").want(200)
	next("the task is cancelled", nil)
	s.create(`{"namespace":"t","name":"act"}`)
	id = claim()
	s.do("DELETE", "/v1/tasks/"+id, "").want(200)
	next("the claimed task is cancelled", nil)
}

// fixtureOf returns the fixture mode of a service.
func fixtureOf(s *service) *fixture { return s.extension.(*fixture) }

// status returns the current state of a task.
func (s *fixtureServer) status(id string) string {
	s.t.Helper()
	return s.do("GET", "/v1/tasks/"+id, "").want(200).text("status")
}

// wantIdle fails the test if any task has something that is not idle.
func (s *fixtureServer) wantIdle(atRest bool) {
	s.t.Helper()
	svc := s.world.service()
	svc.store.mu.Lock()
	defer svc.store.mu.Unlock()
	now := svc.clock.now()
	for _, sl := range svc.store.tasks.slots {
		if sl == nil || sl.live == nil {
			continue
		}
		for i := range sl.live.steps {
			st := &sl.live.steps[i]
			k := svc.engine.work.running[runKey{sl.live.id, i}]
			outside := svc.engine.targetLocked(sl.live, i).kind == outsideActor
			switch {
			case st.state == stepEnqueued && !outside && sl.live.runnable(i),
				st.state == stepWaitingForRetry && (st.retryAt <= now || atRest),
				st.state == stepInProgress && (k == nil || k.cancel != nil || atRest):
				s.t.Errorf("idle with step %d of %s in %s", i, sl.live.id, st.state)
			}
		}
	}
}
