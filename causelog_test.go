package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestCausesAreLoggedOnce: each cause as it arises, one for an outside actor's
// callable, one for slots that run out and one when they do no more.
func TestCausesAreLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	clock := newVirtualClock(testStart)
	s := openTestService(t, serviceTest{
		clock: clock, log: &log, config: func(c *Config) { c.Worker.Concurrency, c.Engine.Jitter = 1, false },
		extra: []string{
			testTemplate("outside", stepSpec{name: "a", callable: "Them::Do"}),
			testTemplate("bad", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":false}`}),
			testTemplate("flaky", stepSpec{name: "a", callable: "builtin:flaky", config: `{"failures":1}`}),
			testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":5000}`}),
		},
	})
	for _, name := range []string{"outside", "outside", "bad", "flaky"} {
		mustCreate(t, s, name)
		settle(s)
	}
	clock.advance(time.Minute)
	settle(s)
	for range 3 {
		mustCreate(t, s, "slow")
		settle(s)
	}
	for range 3 {
		clock.advance(5 * time.Second)
		settle(s)
	}
	closeTestService(t, s)
	for _, want := range []string{
		"INFO a step waits for an outside actor, and so will others like it task_uuid=",
		"callable=Them::Do",
		`INFO a task is blocked task_uuid=`, `cause=step "a" failed for good`,
		"DEBUG a step waits for its retry task_uuid=", "cause=attempt 2 of 3 is due at 2026-01-01T00:00:01.000000Z",
		"WARN every slot is taken, ready steps wait slots=builtins and programs of=1 waiting=1",
		"INFO slots are free again slots=builtins and programs of=1",
	} {
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("got %q %d times; want it once in\n%s", want, n, &log)
		}
	}
}
