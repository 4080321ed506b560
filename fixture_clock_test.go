package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stepwell/e2e/wire"
)

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
		began := realNow()
		id := s.create(`{"namespace":"t","name":"long"}`)
		s.clock("%s", move).want(200)
		s.do("POST", "/_stepwell/wait-idle", "").want(200)
		v := s.do("GET", "/v1/tasks/"+id, "").want(200)
		if took := realNow().sub(began); took > 30*time.Second { // a busy machine takes seconds
			t.Errorf("%s took %v", move, took)
		}
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

// status returns the current state of a task.
func (s *fixtureServer) status(id string) string {
	s.t.Helper()
	return s.do("GET", "/v1/tasks/"+id, "").want(200).text("status")
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

// TestTimersThatFireNext lists what is due: a retry, a delay and a lease, the earliest first and
// never those of ended tasks.
func TestTimersThatFireNext(t *testing.T) {
	s := frozenServer(t, serviceTest{extra: []string{sleepTemplate("hour", time.Hour),
		testTemplate("retry", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`,
			retry: `{"max_attempts":3,"backoff_base_ms":30000}`}),
		testTemplate("actor", stepSpec{name: "b", callable: "outside"})}})
	list := func() (due string) {
		s.do("POST", "/_stepwell/wait-idle", "").want(200)
		a := s.do("GET", "/_stepwell/timers", "").want(200)
		for _, timer := range a.get("timers").([]any) {
			due += fmt.Sprintf("%v ", timer.(map[string]any)["kind"])
		}
		return due + a.text("total")
	}
	if got := list(); got != "0" {
		t.Errorf("got timers %s; want none", got)
	}
	hour := s.create(`{"namespace":"t","name":"hour"}`)
	s.create(`{"namespace":"t","name":"retry"}`)
	s.create(`{"namespace":"t","name":"actor"}`)
	s.do("POST", "/v1/steps/claim", `{"worker_id":"w","callables":["outside"],"lease_seconds":600}`).want(200)
	if got := list(); got != "retry lease attempt 3" {
		t.Errorf("got timers %s; want retry lease attempt 3", got)
	}
	first := s.do("GET", "/_stepwell/timers", "").want(200)
	for member, want := range map[string]string{"namespace": "t", "name": "retry", "step_name": "a", "attempt": "1"} {
		if got := first.text("timers.0." + member); got != want {
			t.Errorf("%s: got %s; want %s", member, got, want)
		}
	}
	if next := s.do("GET", "/_stepwell/clock", "").text("next_timer"); next != first.text("timers.0.due_at") {
		t.Errorf("the first timer is due at %s; want %s as the clock says", first.text("timers.0.due_at"), next)
	}
	s.do("DELETE", "/v1/tasks/"+hour, "").want(200)
	for range 30 {
		s.create(`{"namespace":"t","name":"hour"}`)
	}
	if got := list(); !strings.HasSuffix(got, "attempt 32") || strings.Count(got, "attempt") != 18 {
		t.Errorf("got timers %s; want 20 of 32", got)
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

// TestEndReleasesWaiters checks that a wait for a clock ends with the service.
func TestEndReleasesWaiters(t *testing.T) {
	h := wire.NewHeldHandler(t, 16)
	s := frozenServer(t, serviceTest{extra: []string{testTemplate("held", stepSpec{name: "a", callable: h.URL, timeout: 300})}})
	s.create(createHeld)
	h.Await(t)
	answers := make(chan int)
	go func() { answers <- s.clock(`{"advance":"1m"}`).status }()
	go func() { answers <- s.do("POST", "/_stepwell/wait-idle", "").status }()
	eventually(t, "somebody moves the clock", func() bool { return len(fixtureOf(s.world.service()).keeper.turn) == 0 })
	s.do("POST", "/_stepwell/reset", "").want(204)
	for range 2 {
		// A wait that had not begun yet finds the new service, which is idle.
		if got := <-answers; got != 503 && got != 200 {
			t.Errorf("got %d; want 503", got)
		}
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

// wantIdle fails the test if any task has something that is not idle.
func (s *fixtureServer) wantIdle(atRest bool) {
	s.t.Helper()
	svc := s.world.service()
	svc.store.mu.Lock()
	defer svc.store.mu.Unlock()
	now := svc.clock.now()
	for _, sl := range svc.store.slots {
		if sl.live == nil {
			continue
		}
		for i := range sl.live.steps {
			st := &sl.live.steps[i]
			k := svc.engine.running[runKey{sl.live.id, i}]
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
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			r.Header = requestWith(token, "Content-Type: application/json").Header
			w := httptest.NewRecorder()
			s.world.gates.orchestration.ServeHTTP(w, r)
			return w.Code
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

// whimHandler answers after a random time, by path: /ok with the number of the attempt, /fails2
// in the same way from the third attempt on, /never with an error, /choose with a decision.
func whimHandler(t testing.TB) string {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(rand.N(8 * time.Millisecond)):
		case <-r.Context().Done():
		}
		_, attempt, _ := strings.Cut(r.Header.Get("Idempotency-Key"), ":")
		switch {
		case r.URL.Path == "/fails2" && attempt < "3":
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		case r.URL.Path == "/never":
			http.Error(w, "no", http.StatusBadRequest)
		case r.URL.Path == "/choose":
			fmt.Fprint(w, `{"type":"create_steps","step_names":["left","right"]}`)
		default:
			fmt.Fprintf(w, `{"attempt":%s}`, attempt)
		}
	}))
	t.Cleanup(h.Close)
	return h.URL
}

// whimTemplates returns templates with steps of every kind, run by handlers at a URL.
func whimTemplates(url string) []string {
	fan := []stepSpec{{name: "start", callable: "builtin:noop"}}
	join := stepSpec{name: "join", callable: "builtin:sum"}
	for i := range 8 {
		s := stepSpec{name: fmt.Sprintf("s%d", i), callable: url + "/ok", after: []string{"start"}}
		switch i % 4 {
		case 1:
			s.callable = "builtin:echo"
		case 2:
			s.callable, s.retry = url+"/fails2", `{"max_attempts":4,"backoff":"exponential","backoff_base_ms":1000}`
		case 3:
			s.callable, s.config = "builtin:flaky", `{"failures":1}`
			s.retry = `{"max_attempts":3,"backoff":"none"}`
		}
		fan, join.after = append(fan, s), append(join.after, s.name)
	}
	return []string{
		testTemplate("fan", append(fan, join)...),
		testTemplate("chain", stepSpec{name: "a", callable: url + "/ok"},
			stepSpec{name: "b", callable: "builtin:sleep", config: `{"duration_ms":1500}`, after: []string{"a"}},
			stepSpec{name: "c", callable: url + "/ok", after: []string{"b"}}),
		testTemplate("dead", stepSpec{name: "a", callable: url + "/never"}, stepSpec{name: "b", callable: url + "/ok"},
			stepSpec{name: "c", callable: "builtin:noop"}, stepSpec{name: "d", callable: "builtin:noop", after: []string{"c"}}),
		testTemplate("choice", stepSpec{name: "d", callable: url + "/choose", kind: stepDecision},
			stepSpec{name: "left", callable: url + "/ok", after: []string{"d"}},
			stepSpec{name: "right", callable: "builtin:noop", after: []string{"d"}},
			stepSpec{name: "end", callable: url + "/ok", kind: stepDeferredConvergence, after: []string{"left", "right"}}),
		testTemplate("batches", stepSpec{name: "split", callable: "builtin:batch", kind: stepBatchable,
			config: `{"worker_template_name":"w","total_items":5,"batch_size":1}`},
			stepSpec{name: "w", callable: url + "/ok", kind: stepBatchWorker, after: []string{"split"}},
			stepSpec{name: "end", callable: "builtin:noop", kind: stepDeferredConvergence, after: []string{"w"}}),
		testTemplate("outside", stepSpec{name: "before", callable: url + "/ok"},
			stepSpec{name: "pack", callable: "Shop::Pack", retry: `{"max_attempts":3,"backoff_base_ms":500}`, after: []string{"before"}},
			stepSpec{name: "after", callable: url + "/ok", after: []string{"pack"}}),
	}
}

// player plays a script on one service.
type player struct {
	*testServer
	url   string              // of the handlers
	reads func(s *testServer) // between the steps of the script; nil for none
}

func (p *player) clock(body string) {
	p.t.Helper()
	p.do("POST", "/_stepwell/clock", body).want(200)
	p.idle()
}

func (p *player) idle() {
	p.t.Helper()
	p.do("POST", "/_stepwell/wait-idle", "").want(200)
}

func (p *player) make(names ...string) (ids []string) {
	p.t.Helper()
	for i, name := range names {
		if p.reads != nil {
			p.reads(p.testServer)
		}
		ids = append(ids, p.create(fmt.Sprintf(`{"namespace":"t","name":%q,"priority":%d,"context":{"n":%d}}`, name, i%3, i)))
	}
	return ids
}

// stepIDs returns the ids of a task's steps by name.
func (p *player) stepIDs(task string) map[string]string {
	p.t.Helper()
	var steps []struct {
		UUID string `json:"step_uuid"`
		Name string `json:"name"`
	}
	noError(p.t, json.Unmarshal(p.do("GET", "/v1/tasks/"+task+"/workflow_steps", "").want(200).body, &steps))
	ids := map[string]string{}
	for _, s := range steps {
		ids[s.Name] = s.UUID
	}
	return ids
}

// play does one thing after another, without waiting for the effects, and returns everything
// that the API shows at the end.
func (p *player) play() string {
	p.t.Helper()
	p.make("fan", "chain", "fan", "batches", "choice")
	p.clock(`{"advance":"1s"}`)
	dead := p.make("dead", "fan", "outside", "outside")
	p.do("POST", "/v1/tasks", `{"namespace":"t","name":"nothing"}`).want(404)
	p.idle()
	p.letters(dead[0])
	p.outside()
	cancelled := p.make("chain", "fan")
	p.do("DELETE", "/v1/tasks/"+cancelled[0], "").want(200)
	p.clock(`{"advance_to_next":true}`)
	p.make("batches", "dead", "choice", "outside")
	p.clock(`{"auto":true}`)
	p.make("chain", "fan", "batches")
	p.idle()
	p.clock(`{"freeze":true}`)
	p.make("fan", "chain")
	p.stubbed()
	p.clock(`{"advance":"3h"}`) // the detector of stale tasks runs meanwhile
	return p.account()
}

// letters lets an operator handle a failed task.
func (p *player) letters(task string) {
	p.t.Helper()
	entry := p.do("GET", "/v1/dlq", "").want(200).text("0.dlq_entry_uuid")
	p.do("PATCH", "/v1/dlq/entry/"+entry, `{"resolution_status":"ManuallyResolved","resolution_notes":"by hand","resolved_by":"op"}`).want(200)
	at := "/v1/tasks/" + task + "/workflow_steps/" + p.stepIDs(task)["a"]
	p.do("PATCH", at, `{"action_type":"reset_for_retry","reason":"again","reset_by":"op"}`).want(200)
	p.do("PATCH", at, `{"action_type":"resolve_manually","reason":"enough","resolved_by":"op"}`).want(200)
}

// outside lets actors claim steps: one completes its step, one fails it, and one that has been
// waiting gets a step and never answers.
func (p *player) outside() {
	p.t.Helper()
	first := p.claimOne(anyOne)
	second := p.claimOne(anyOne)
	var wg sync.WaitGroup
	wg.Go(func() { p.claimOne(`{"callables":["*"],"worker_id":"w9","wait_seconds":20,"lease_seconds":60}`) })
	eventually(p.t, "an actor waits", func() bool {
		return strings.Contains(string(p.do("GET", "/metrics", "").body), "\nstepwell_claimers_waiting 1\n")
	})
	p.make("outside")
	wg.Wait()
	p.answer(first, "complete", `,"result":{"ok":1}`).want(200)
	p.answer(second, "fail", `,"error":{"message":"broken"}`).want(200)
	p.clock(`{"advance":"90s"}`) // the lease expires, and the retry is due
	for _, c := range p.claim(anyTen) {
		p.answer(c, "complete", `,"result":2`).want(200)
	}
}

// account returns everything that the API shows of the tasks.
func (p *player) account() string {
	p.t.Helper()
	p.idle()
	var b bytes.Buffer
	tell := func(path string) *answer {
		a := p.do("GET", path, "").want(200)
		fmt.Fprintf(&b, "%s\n%s\n", path, a.body)
		return a
	}
	var list struct {
		Tasks []struct {
			UUID string `json:"task_uuid"`
		} `json:"tasks"`
	}
	if err := json.Unmarshal(tell("/v1/tasks?per_page=100").body, &list); err != nil || len(list.Tasks) == 0 {
		p.t.Fatalf("the list has %d tasks, %v", len(list.Tasks), err)
	}
	moves := 0
	for _, task := range list.Tasks {
		at := "/v1/tasks/" + task.UUID
		tell(at)
		moves += strings.Count(string(tell(at+"/transitions").body), `"to_state"`)
		tell(at + "/explain")
		tell(at + "/summary")
		var steps []struct {
			UUID string `json:"step_uuid"`
		}
		if err := json.Unmarshal(tell(at+"/workflow_steps").body, &steps); err != nil || len(steps) == 0 {
			p.t.Fatalf("the task has %d steps, %v", len(steps), err)
		}
		for _, s := range steps {
			tell(at + "/workflow_steps/" + s.UUID + "/audit")
		}
	}
	for _, path := range []string{"/v1/dlq", "/v1/dlq/stats", "/v1/dlq/staleness", "/v1/dlq/investigation-queue",
		"/v1/analytics/performance", "/v1/analytics/bottlenecks", "/v1/analytics/history", "/_stepwell/clock"} {
		tell(path)
	}
	stream := p.openStream("?after=0")
	for n := 0; n < moves; {
		if event := readBlock(p.t, stream); strings.Contains(event, "\ndata:") { // others only mark the place
			b.WriteString(event)
			n++
		}
	}
	return b.String()
}

// document returns the state of a service.
func (s *fixtureServer) document() string {
	s.t.Helper()
	var b bytes.Buffer
	svc := s.world.service()
	noError(s.t, svc.store.exportState(&b, svc.store.cutState(svc.clock.now())))
	return b.String()
}

func newDeterministicServer(t testing.TB, url, seed string) *fixtureServer {
	return newFixtureServer(t, serviceTest{extra: whimTemplates(url), config: func(c *Config) {
		c.Fixture.DeterministicIDs = seed
		c.Worker.HTTPConcurrency, c.Worker.Concurrency = 6, 4 // less than is ready at times
	}})
}

// wantSame fails the test at the first line that differs.
func wantSame(t *testing.T, what, got, want string) {
	t.Helper()
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("%s, line %d:\n%.3000s\nthe first time:\n%.3000s", what, i+1, a[i], b[i])
		}
	}
	if len(a) != len(b) {
		t.Fatalf("%s: %d lines; the first time %d", what, len(a), len(b))
	}
}

var scriptPlays = flag.Int("script-plays", 2, "plays of the script of TestSameScriptSameState")

// TestSameScriptSameState plays a script on several services, again after a reset, and with
// reads in between.
func TestSameScriptSameState(t *testing.T) {
	t.Parallel()
	slow(t)
	url := whimHandler(t)
	var document, account string
	first := 0
	if wire.RaceDetector() {
		first = 1 // the play with reads in between, beside which nothing else is new to the detector
	}
	for n := first; n < *scriptPlays; n++ {
		s := newDeterministicServer(t, url, "seed")
		p := &player{testServer: s.testServer, url: url}
		var storm *getStorm
		if n%2 == 1 {
			storm = startGetStorm(s.testServer)
		}
		for _, what := range []string{"fresh", "after a reset"} {
			a, d := p.play(), s.document()
			if document == "" {
				account, document = a, d
			}
			wantSame(t, "the state, "+what, d, document)
			wantSame(t, "the account, "+what, a, account)
			s.do("POST", "/_stepwell/reset", "").want(204)
		}
		if storm != nil {
			storm.end()
		}
	}
	other := newDeterministicServer(t, url, "another seed")
	(&player{testServer: other.testServer, url: url}).play()
	if got := other.document(); got == document {
		t.Error("another seed gives the same state")
	}
}

// getStorm sends reads without pause.
type getStorm struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	reads  atomic.Int64
}

func startGetStorm(s *testServer) *getStorm {
	ctx, cancel := context.WithCancel(s.t.Context())
	storm := &getStorm{cancel: cancel}
	for range 2 {
		storm.wg.Go(func() {
			for ctx.Err() == nil {
				for _, path := range []string{"/v1/tasks", "/v1/steps", "/v1/dlq", "/v1/tasks/00000000-0000-7000-8000-000000000000",
					"/metrics", "/v1/analytics/performance", "/_stepwell/clock", "/v1/templates"} {
					s.do("GET", path, "")
					storm.reads.Add(1)
				}
			}
		})
	}
	return storm
}

func (g *getStorm) end() {
	g.cancel()
	g.wg.Wait()
}

// writesAndSums matches the members of a record that depend on how records were grouped when they were written.
var writesAndSums = regexp.MustCompile(`,"w":\d+|,"sum":"\w+"`)

// TestSameScriptTwoStores checks that the records in the journals and the states of two services with
// files are identical.
func TestSameScriptTwoStores(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	url := whimHandler(t)
	var journals, accounts, documents []string
	for range 2 {
		dir := t.TempDir()
		s := newFixtureServer(t, serviceTest{dir: dir, extra: whimTemplates(url), config: func(c *Config) {
			c.Fixture.AllowData, c.Fixture.DeterministicIDs = true, "s1"
		}})
		if got := s.do("GET", "/_stepwell/clock", "").want(200); got.text("mode") != "frozen" ||
			got.text("now") != "2026-01-01T00:00:00.000000Z" {
			t.Errorf("the clock is %s; want it frozen at the start of 2026", got.body)
		}
		accounts = append(accounts, (&player{testServer: s.testServer, url: url}).play())
		documents = append(documents, string(s.do("GET", "/_stepwell/state", "").want(200).body))
		noError(t, abort(s.world.service()))
		_, records, _ := strings.Cut(string(readFile(t, filepath.Join(dir, journalName))), "\n") // the header has the store's id
		journals = append(journals, writesAndSums.ReplaceAllString(records, ""))
	}
	wantSame(t, "the journal", journals[1], journals[0])
	wantSame(t, "the state", documents[1], documents[0])
	wantSame(t, "the account", accounts[1], accounts[0])
}

// Batches: what is recorded when, what has to wait, and what happens if something prevents
// that.

// gatedHandler answers a call to /name when the channel of that name is closed.
func gatedHandler(t testing.TB, names ...string) (url string, gates map[string]chan struct{}) {
	gates = map[string]chan struct{}{}
	for _, name := range names {
		gates["/"+name] = make(chan struct{})
	}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // otherwise its context does not end with the call
		select {
		case <-gates[r.URL.Path]:
			fmt.Fprint(w, `1`)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(h.Close)
	return h.URL, gates
}

// ends returns the steps of a task in the order in which their attempts ended.
func (s *testServer) ends(id string) (names []string) {
	s.t.Helper()
	var v struct {
		Transitions []struct {
			StepName *string `json:"step_name"`
			ToState  string  `json:"to_state"`
		} `json:"transitions"`
	}
	noError(s.t, json.Unmarshal(s.do("GET", "/v1/tasks/"+id+"/transitions", "").want(200).body, &v))
	for _, m := range v.Transitions {
		if m.StepName != nil && m.ToState == stepComplete.String() {
			names = append(names, *m.StepName)
		}
	}
	return names
}

func newBatchServer(t *testing.T, steps ...stepSpec) *fixtureServer {
	t.Helper()
	return newFixtureServer(t, serviceTest{
		config: func(c *Config) { c.Fixture.DeterministicIDs = "batches" },
		extra:  []string{testTemplate("batch", steps...), testTemplate("quick", stepSpec{name: "a", callable: "builtin:noop"})},
	})
}

// TestBatchOrder ends handlers in reverse order and a builtin at once: all outcomes are
// recorded by task and step when the last handler has ended.
func TestBatchOrder(t *testing.T) {
	url, gates := gatedHandler(t, "a", "b", "c")
	s := newBatchServer(t, stepSpec{name: "a", callable: url + "/a"}, stepSpec{name: "b", callable: url + "/b"},
		stepSpec{name: "quick", callable: "builtin:noop"}, stepSpec{name: "c", callable: url + "/c"},
		stepSpec{name: "next", callable: "builtin:noop", after: []string{"quick"}})
	id := s.create(`{"namespace":"t","name":"batch"}`)
	for i, name := range []string{"/c", "/b", "/a"} {
		if got := s.ends(id); len(got) > 0 {
			t.Errorf("%v is recorded after %d handlers of 3 ended", got, i)
		}
		close(gates[name])
		if i < 2 {
			s.awaitHeld(i + 2) // the builtin, too
		}
	}
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	if got, want := s.ends(id), []string{"a", "b", "quick", "c", "next"}; !slices.Equal(got, want) {
		t.Errorf("ended in the order %v; want %v", got, want)
	}
}

// awaitHeld waits until so many outcomes are held.
func (s *fixtureServer) awaitHeld(n int) {
	s.t.Helper()
	svc := s.world.service()
	eventually(s.t, fmt.Sprintf("%d outcomes are held", n), func() bool {
		svc.store.mu.Lock()
		defer svc.store.mu.Unlock()
		return len(fixtureOf(svc).lockstep.done) == n
	})
}

// TestChangesWaitForTheBatch checks that changes wait, and fail without a trace if that takes
// too long; reads do not wait.
func TestChangesWaitForTheBatch(t *testing.T) {
	t.Parallel()
	url, gates := gatedHandler(t, "a")
	s := newBatchServer(t, stepSpec{name: "a", callable: url + "/a"})
	k := fixtureOf(s.world.service()).keeper
	id := s.create(`{"namespace":"t","name":"batch"}`)
	k.patience = 20 * time.Millisecond
	at := "/v1/tasks/" + id + "/workflow_steps/" + (&player{testServer: s.testServer}).stepIDs(id)["a"]
	for _, change := range []struct{ method, path, body string }{
		{"POST", "/v1/tasks", `{"namespace":"t","name":"quick"}`},
		{"DELETE", "/v1/tasks/" + id, ""},
		{"PATCH", at, `{"action_type":"cancel","reason":"r","cancelled_by":"me"}`},
		{"POST", "/v1/steps/claim", anyOne},
		{"POST", "/_stepwell/stubs", `{"match":{},"outcomes":[{"result":1}]}`},
		{"DELETE", "/_stepwell/stubs", ""},
	} {
		a := s.do(change.method, change.path, change.body).want(503)
		if a.header.Get("Retry-After") == "" || !strings.Contains(string(a.body), "longer than 20ms") {
			t.Errorf("%s %s: got %s, Retry-After %q", change.method, change.path, a.body, a.header.Get("Retry-After"))
		}
	}
	k.patience = time.Minute
	created := make(chan string, 1)
	go func() { created <- s.create(`{"namespace":"t","name":"quick"}`) }()
	if got := s.do("GET", "/v1/tasks", "").want(200).text("pagination.total_count"); got != "1" {
		t.Errorf("there are %s tasks while a batch is in flight; want 1", got)
	}
	close(gates["/a"])
	second, _ := parseUUID(<-created)
	if second.blockNumber() != 2 {
		t.Errorf("the second task has the id %s, of block %d; want 2: a refused creation takes none", second, second.blockNumber())
	}
	s.await(second.String(), "complete")
	if got := s.ends(id); len(got) != 1 {
		t.Errorf("%v has ended; want the first task's step before the second was created", got)
	}
}

// TestCallingBack checks that a change by a handler of the batch itself is refused and does not
// wait for ever.
func TestCallingBack(t *testing.T) {
	t.Parallel()
	var s *fixtureServer
	answered := make(chan int, 1)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answered <- s.do("POST", "/v1/tasks", `{"namespace":"t","name":"quick"}`).status
		fmt.Fprint(w, `1`)
	}))
	t.Cleanup(h.Close)
	s = newBatchServer(t, stepSpec{name: "a", callable: h.URL})
	fixtureOf(s.world.service()).keeper.patience = 50 * time.Millisecond
	id := s.create(`{"namespace":"t","name":"batch"}`)
	if got := <-answered; got != 503 {
		t.Errorf("got %d; want 503", got)
	}
	s.await(id, "complete")
}

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

// TestHeldBatch checks that a full disk delays a batch, and that its order stays.
func TestHeldBatch(t *testing.T) {
	slow(t)
	t.Parallel()
	url, gates := gatedHandler(t, "a", "b")
	disk := newMemDisk()
	s := newTestServer(t, serviceTest{
		clock: newVirtualClock(deterministicStart), disk: disk, dir: "/data", log: io.Discard,
		config: func(c *Config) { c.Fixture.DeterministicIDs = "held" },
		extra:  []string{testTemplate("batch", stepSpec{name: "a", callable: url + "/a"}, stepSpec{name: "b", callable: url + "/b"})},
	})
	id := s.create(`{"namespace":"t","name":"batch"}`)
	fillDisk(t, s.svc, disk, "batch")
	close(gates["/b"])
	close(gates["/a"])
	eventually(t, "an outcome that cannot be recorded", func() bool {
		s.svc.store.mu.Lock()
		defer s.svc.store.mu.Unlock()
		l := fixtureOf(s.svc).lockstep
		return l.open && l.waiting == 0
	})
	disk.setCapacity(1 << 40)
	s.await(id, "complete")
	if got, want := s.ends(id), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("ended in the order %v; want %v", got, want)
	}
}

// Stubs, templates at run time, sandboxes and restored states of deterministic
// services.

// stubsOfSteps are stubs for the steps of stubbedTemplate.
var stubsOfSteps = []struct{ step, outcomes, then string }{
	{"instant", `[{"error":{"message":"no"}},{"result":1}]`, "last"},
	{"soon", `[{"delay":"2s","result":2}]`, "last"},
	{"hangs", `[{"hang":true}]`, "handler"},
	{"vanishes", `[{"fault":"worker_lost"},{"fault":"worker_lost","delay":"1s"}]`, "handler"},
	{"loses", `[{"fault":"result_lost"},{"fault":"result_lost","delay":"1s"}]`, "handler"},
	{"twice", `[{"fault":"duplicate_delivery"}]`, "last"},
	{"late", `[{"fault":"late_completion"}]`, "handler"},
	{"doubled", `[{"fault":"duplicate_delivery"}]`, "last"},
	{"actor", `[{"fault":"late_completion","delay":"1s"},{"result":3}]`, "last"},
}

// stubbedTemplate returns a template with a step for each stub, and one without.
func stubbedTemplate(url string) string {
	const retry = `{"max_attempts":3,"backoff":"linear","backoff_base_ms":1000}`
	callables := map[string]string{"doubled": "builtin:echo", "actor": "Shop::Pack"}
	steps := []stepSpec{{name: "plain", callable: url + "/ok"}}
	join := stepSpec{name: "join", callable: "builtin:noop"}
	for _, s := range stubsOfSteps {
		callable := callables[s.step]
		if callable == "" {
			callable = url + "/ok"
		}
		steps = append(steps, stepSpec{name: s.step, callable: callable, retry: retry, after: []string{"plain"}})
		join.after = append(join.after, s.step)
	}
	return testTemplate("stubbed", append(steps, join)...)
}

// stubbed adds a template at run time and plays its steps by stubs.
func (p *player) stubbed() {
	p.t.Helper()
	p.do("POST", "/_stepwell/templates", stubbedTemplate(p.url)).want(201)
	for _, s := range stubsOfSteps {
		p.do("POST", "/_stepwell/stubs", fmt.Sprintf(`{"match":{"name":"stubbed","step":%q},"outcomes":%s,"then":%q}`,
			s.step, s.outcomes, s.then)).want(201)
	}
	ids := p.make("stubbed", "fan", "stubbed")
	p.clock(`{"advance":"1s"}`)
	ids = append(ids, p.make("stubbed")...)
	p.clock(`{"advance":"1h"}`)
	for _, id := range ids {
		p.await(id, "complete")
	}
}

// TestSameScriptSandboxes checks that a sandbox behaves like a service with the same seed, also
// after its reset and next to another sandbox.
func TestSameScriptSandboxes(t *testing.T) {
	slow(t)
	t.Parallel()
	url := whimHandler(t)
	alone := newDeterministicServer(t, url, "seed")
	account := (&player{testServer: alone.testServer, url: url}).play()
	document := string(alone.do("GET", "/_stepwell/state", "").want(200).body)

	host := newDeterministicServer(t, url, "another seed")
	boxes := []*sandboxClient{host.sandbox(`{"deterministic_ids":"seed"}`), host.sandbox(`{"deterministic_ids":"seed"}`)}
	for range 2 {
		for _, box := range boxes {
			wantSame(t, "the account", (&player{testServer: box.testServer, url: url}).play(), account)
			wantSame(t, "the state", string(box.do("GET", "/_stepwell/state", "").want(200).body), document)
		}
		boxes = boxes[:1]
		boxes[0].do("POST", "/_stepwell/reset", "").want(204)
	}
	if got := host.do("GET", "/v1/tasks", "").want(200).text("pagination.total_count"); got != "0" {
		t.Errorf("the service has %s tasks; want those in its sandboxes alone", got)
	}
}

// TestStubbedBatch checks that scripted outcomes are held with their batch.
func TestStubbedBatch(t *testing.T) {
	url, gates := gatedHandler(t, "a", "b", "c")
	s := newBatchServer(t, stepSpec{name: "a", callable: url + "/a"}, stepSpec{name: "b", callable: url + "/b"},
		stepSpec{name: "c", callable: url + "/c"}, stepSpec{name: "d", callable: url + "/never"},
		stepSpec{name: "e", callable: url + "/never", retry: `{"retryable":false}`})
	s.stub(`{"match":{"step":"b"},"outcomes":[{"fault":"duplicate_delivery"}]}`)
	s.stub(`{"match":{"step":"c"},"outcomes":[{"fault":"result_lost"}],"then":"handler"}`)
	s.stub(`{"match":{"step":"d"},"outcomes":[{"result":1}]}`)
	s.stub(`{"match":{"step":"e"},"outcomes":[{"delay":"1s"}]}`)
	id := s.create(`{"namespace":"t","name":"batch"}`)
	s.awaitHeld(1)
	close(gates["/c"])
	s.awaitHeld(2)
	close(gates["/b"])
	s.awaitHeld(4) // both deliveries
	if got := s.ends(id); len(got) > 0 {
		t.Errorf("%v is recorded while a handler of the batch runs", got)
	}
	close(gates["/a"])
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	if got, want := s.ends(id), []string{"a", "b", "d", "c"}; !slices.Equal(got, want) {
		t.Errorf("ended in the order %v; want %v: c is delivered again in the next batch", got, want)
	}
	s.clock(`{"advance":"1s"}`).want(200)
	s.await(id, "complete")
	wantFreeSlots(t, s.world.service())
}

// TestCancelledStubbedBatch checks that a task that fails in its batch leaves no delay.
func TestCancelledStubbedBatch(t *testing.T) {
	url, gates := gatedHandler(t, "a")
	s := newBatchServer(t, stepSpec{name: "a", callable: url + "/a"})
	s.stub(`{"match":{"step":"a"},"outcomes":[{"fault":"result_lost","delay":"1m"}],"then":"handler"}`)
	id := s.create(`{"namespace":"t","name":"batch"}`)
	close(gates["/a"])
	s.do("DELETE", "/v1/tasks/"+id, "").want(200)
	if got := s.clock(`{"advance":"1h"}`).want(200).text("fired"); got != "0" {
		t.Errorf("%s timers fired after the end", got)
	}
	wantFreeSlots(t, s.world.service())
}

// TestDeterministicClock checks that the clock of a sandbox with a seed is frozen at the same
// instant as that of a service, unless a document says otherwise.
func TestDeterministicClock(t *testing.T) {
	s := newFixtureServer(t, serviceTest{extra: sandboxTemplates})
	box := s.sandbox(`{"deterministic_ids":"a"}`)
	wantClock(t, box, "frozen", deterministicStart)
	later := deterministicStart.add(72 * time.Hour)
	box.do("PUT", "/_stepwell/state", frozenAt(later)).want(204)
	wantClock(t, box, "frozen", later)
	box.clock(`{"auto":true}`).want(200)
	box.do("PUT", "/_stepwell/state", `{"format":1}`).want(204)
	wantClock(t, box, "frozen", deterministicStart)
	box.do("POST", "/_stepwell/reset", "").want(204)
	wantClock(t, box, "frozen", deterministicStart)

	seeded := s.sandbox(`{"deterministic_ids":"a","seed":%s}`, frozenAt(later))
	wantClock(t, seeded, "frozen", later)
	seeded.clock(`{"advance":"1h"}`).want(200)
	seeded.do("POST", "/_stepwell/reset", "").want(204)
	wantClock(t, seeded, "frozen", later)
	id, _ := parseUUID(seeded.create(`{"namespace":"t","name":"quick"}`))
	if got, want := id.millis(), uint64(later)/1000; got != want || id.blockNumber() != 1 {
		t.Errorf("the first id is %s, of %d ms; want block 1 at %d ms", id, got, want)
	}
}

func wantClock(t *testing.T, s *sandboxClient, mode string, at instant) {
	t.Helper()
	if got := s.do("GET", "/_stepwell/clock", "").want(200); got.text("mode") != mode || got.text("now") != at.zoned() {
		t.Errorf("the clock is %s; want it %s at %s", got.body, mode, at.zoned())
	}
}
