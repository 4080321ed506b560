package main

import (
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
	if a := s.clock(`{"advance":"5m","timeout":"30ms"}`).want(408); a.text("error.message") != `the service was not idle in time; blocking lists running step "a" (`+h.URL+`)` {
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

// TestClockActions makes every change of a clock.
func TestClockActions(t *testing.T) {
	s := newFixtureServer(t, serviceTest{extra: []string{sleepTemplate("minute", time.Minute), sleepTemplate("hour", time.Hour)}})
	at := func(a *answer) instant { return mustInstant(a.want(200).text("now")) }
	wantClock := func(a *answer, now instant, mode, fired string) {
		t.Helper()
		if got := at(a); got != now || a.text("mode") != mode || a.text("fired") != fired {
			t.Errorf("got %s; want %s, %s, fired %s", a.body, now.zoned(), mode, fired)
		}
	}
	first := s.do("GET", "/_stepwell/clock", "").want(200)
	if first.text("mode") != "real" || first.get("next_timer") != nil || at(first) > realNow() {
		t.Errorf("got %s at the start; want real time", first.body)
	}
	start := at(s.clock(`{"freeze":true}`))
	wantClock(s.do("GET", "/_stepwell/clock", ""), start, "frozen", "0")
	minute, hour := s.create(`{"namespace":"t","name":"minute"}`), s.create(`{"namespace":"t","name":"hour"}`)
	next := s.clock(`{"advance":"0s"}`)
	wantClock(next, start, "frozen", "0")
	if next.text("next_timer") != start.add(time.Minute).zoned() {
		t.Errorf("got %s; want the minute's end next", next.body)
	}
	wantClock(s.clock(`{"advance":"59s","timeout":"5s"}`), start.add(59*time.Second), "frozen", "0")
	wantClock(s.clock(`{"advance_to_next":true}`), start.add(time.Minute), "frozen", "1")
	if got := s.status(minute) + " " + s.status(hour); got != "complete steps_in_process" {
		t.Errorf("after a minute: got %s", got)
	}
	wantClock(s.clock(`{"set":%q}`, start.add(30*time.Minute).zoned()), start.add(30*time.Minute), "frozen", "0")
	s.clock(`{"set":%q}`, start.zoned()).want(400)
	wantClock(s.clock(`{"advance_to_next":true}`), start.add(time.Hour), "frozen", "1")
	wantClock(s.clock(`{"advance_to_next":true}`), start.add(time.Hour), "frozen", "0")
	wantClock(s.do("POST", "/_stepwell/wait-idle", "{}"), start.add(time.Hour), "frozen", "2")

	again := s.create(`{"namespace":"t","name":"hour"}`)
	s.clock(`{"auto":true}`).want(200)
	wantClock(s.do("POST", "/_stepwell/wait-idle", `{"timeout":"20s"}`), start.add(2*time.Hour), "auto", "3")
	if got := s.status(again); got != "complete" {
		t.Errorf("in mode auto: got %s", got)
	}
	resumed := at(s.clock(`{"resume":true}`))
	if later := at(s.do("GET", "/_stepwell/clock", "")); resumed < start.add(2*time.Hour) || later <= resumed {
		t.Errorf("resumed at %s, then %s; want time to go on from %s", resumed.zoned(), later.zoned(),
			start.add(2*time.Hour).zoned())
	}
}

func TestClockRefusals(t *testing.T) {
	s := newFixtureServer(t, serviceTest{})
	for body, want := range map[string]int{
		`{}`: 422, `{"advance":90}`: 422, `{"advance":"-1s"}`: 422, `{"advance":"soon"}`: 422, `[]`: 400, ``: 400,
		`{"freeze":false}`: 422, `{"freeze":true,"auto":true}`: 422, `{"stop":true}`: 422, `{"set":"2026-01-01"}`: 422,
		`{"set":"2126-01-01T00:00:00"}`: 422, `{"set":"2001-01-01T00:00:00Z"}`: 400, `{"advance":"1ns"}`: 200,
		`{"set":"9999-12-31T23:59:59.5Z"}`: 400, `{"timeout":"1s"}`: 422, `{"advance":"1s","timeout":"2h"}`: 422,
	} {
		if a := s.clock("%s", body); a.status != want {
			t.Errorf("%s: got %d, %s; want %d", body, a.status, a.body, want)
		}
	}
	s.do("POST", "/_stepwell/wait-idle", `{"timeout":"x"}`).want(422)
	s.do("POST", "/_stepwell/wait-idle", `{"for":"1s"}`).want(422)
}

// TestCancelledTimersAreGone checks that mode auto does not wait for cancelled timers.
func TestCancelledTimersAreGone(t *testing.T) {
	s := frozenServer(t, serviceTest{extra: []string{sleepTemplate("hour", time.Hour), testTemplate("retry",
		stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`, retry: `{"max_attempts":3,"backoff_base_ms":30000}`})}})
	for _, name := range []string{"hour", "retry"} {
		id := s.create(`{"namespace":"t","name":"` + name + `"}`)
		s.do("POST", "/_stepwell/wait-idle", "").want(200)
		if s.do("GET", "/_stepwell/clock", "").get("next_timer") == nil {
			t.Errorf("%s: got no timer; want one", name)
		}
		s.do("DELETE", "/v1/tasks/"+id, "").want(200)
		if next := s.do("GET", "/_stepwell/clock", "").get("next_timer"); next != nil {
			t.Errorf("%s: got a timer at %v after the task was cancelled; want none", name, next)
		}
	}
}

// TestRealTimeInFixtureMode checks that delays take real time until the clock is changed.
func TestRealTimeInFixtureMode(t *testing.T) {
	t.Parallel()
	s := newFixtureServer(t, serviceTest{extra: []string{sleepTemplate("short", 50*time.Millisecond)}})
	began := realNow()
	id := s.create(`{"namespace":"t","name":"short"}`)
	s.await(id, "complete")
	if took := realNow().sub(began); took < 50*time.Millisecond {
		t.Errorf("a sleep of 50 ms took %v", took)
	}
}

// TestVirtualCredentials checks that tokens age with the virtual clock if configured so,
// but never for the control API.
func TestVirtualCredentials(t *testing.T) {
	for _, virtual := range []bool{false, true} {
		s := newFixtureServer(t, serviceTest{config: func(c *Config) {
			c.Fixture.VirtualCredentials = virtual
			a := &c.Orchestration.Web.Auth
			a.Enabled, a.JWTPublicKey = true, publicPEM(t, authKeys().rsa)
		}})
		now := realNow().time().Unix()
		token := "Authorization: Bearer " + rs256(t, fmt.Sprintf(`{"iss":"stepwell","aud":"stepwell-api","sub":"ci",
			"iat":%d,"exp":%d,"permissions":["tasks:*","steps:*","dlq:*","templates:*","system:*","worker:*"]}`, now-10, now+3600))
		ask := func(method, path, body string) int {
			return served(t, &s.world.gates.orchestration, method, path, body, token).status
		}
		if got := ask("GET", "/v1/tasks", ""); got != 200 {
			t.Fatalf("a fresh token: got %d", got)
		}
		if got := ask("POST", "/_stepwell/clock", `{"advance":"168h"}`); got != 200 {
			t.Fatalf("got %d; want the clock a week on", got)
		}
		want := map[bool]int{false: 200, true: 401}[virtual]
		if got := ask("GET", "/v1/tasks", ""); got != want {
			t.Errorf("virtual %v, a week later: got %d; want %d", virtual, got, want)
		}
		if got := ask("GET", "/_stepwell/clock", ""); got != 200 {
			t.Errorf("virtual %v: the control API is out of reach: %d", virtual, got)
		}
	}
}
