package main

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

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
