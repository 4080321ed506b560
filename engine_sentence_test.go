package main

// One sentence of truth: in each stuck situation, every place that tells of a task names cause and remedy.

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// situation is a way in which a task is stuck.
type situation struct {
	name  string
	steps []stepSpec
	do    func(t *testing.T, s *service, clock *virtualClock, v *task)
	// frozen leaves the clock standing still.
	frozen bool
	want   string // the first sentence
	logged string // the line of the log; none if empty
	ran    string // what run says; "" where it cannot come to it

	config func(c *Config) // nil for none
}

func situations(t *testing.T) []situation {
	later := `{"backoff":"linear","backoff_base_ms":600000,"max_backoff_ms":3600000,"max_attempts":3}`
	undelivered := func(c *Config) { c.Worker.Undelivered = undeliveredFail }
	forPeople := func(c *Config) { c.Console.People = []string{"people.*"} }
	stub := "give --stub STEP=JSON or --handler"
	wrong := newHandlerServer(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, createSteps("nowhere")) })
	good := func(*testing.T, *service, *virtualClock, *task) {}
	ends := func(t *testing.T, s *service, _ *virtualClock, v *task) {
		must2(s.tasks.await(t.Context(), v.id, terminalStates|setOf(taskWaitingForRetry), 10*time.Second))(t)
	}
	return []situation{
		{"handler down", []stepSpec{{name: "charge", callable: "http://127.0.0.1:1/", retry: later}}, ends, false,
			`step "charge" failed 5 min ago, on attempt 1 of 3: no reply from 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused (network_error); ` +
				`start your handler; it is retried in 4 min, or immediately with retry_now`, "", "", undelivered},
		{"handler down for good", []stepSpec{{name: "charge", callable: "http://127.0.0.1:1/", retry: `{"max_attempts":1}`}}, ends, false,
			`connection refused (network_error); start your handler, then reset it`, "start your handler, then reset it", "start your handler, then run it again", undelivered},
		{"retries used up", []stepSpec{{name: "charge", callable: "builtin:fail", retry: `{"max_attempts":1}`,
			config: `{"message":"Traceback (most recent call last):\n  File \"a.py\"\nBankDown: no answer","error_type":"bank_down"}`}}, good, false,
			`step "charge" failed for good 5 min ago, on attempt 1 of 1: BankDown: no answer (bank_down); fix what failed, then reset it`,
			"step=charge attempt=1 error_type=bank_down error=Traceback (most recent call last):\n  File \"a.py\"\nBankDown: no answer cause=step \"charge\" failed for good",
			"BankDown: no answer (bank_down); fix what failed, then run it again", nil},
		{"nobody claims", []stepSpec{{name: "approve", callable: "Outside"}}, good, false,
			`step "approve" has waited for an outside actor for 5 min, because callable "Outside" has no handler; ` +
				`map it with --handler Outside=URL or in [worker.handlers], or let an actor claim it`,
			`remedy=map it with --handler Outside=URL or in [worker.handlers], or let an actor claim it`, stub, nil},
		{"nobody claims in fixture mode", []stepSpec{{name: "approve", callable: "people.Approve"}}, good, false,
			`because callable "people.Approve" has no handler; stub it, or answer it as its actor would`,
			`remedy=stub it, or answer it as its actor would`, stub, func(c *Config) { forPeople(c); c.Fixture.Enabled = true }},
		{"no person has answered", []stepSpec{{name: "approve", callable: "people.Approve"}}, good, false,
			`because callable "people.Approve" has no handler; answer it in the console or by stepwell step complete`,
			`remedy=answer it in the console or by stepwell step complete`, "", forPeople},
		{"no actor, though others are people", []stepSpec{{name: "approve", callable: "Outside"}}, good, false,
			`; map it with --handler Outside=URL`, `remedy=map it with --handler Outside=URL`, "", forPeople},
		{"wrong decision", []stepSpec{{name: "route", callable: wrong.URL, kind: stepDecision, retry: `{"max_attempts":1}`},
			{name: "left", callable: "builtin:noop", after: []string{"route"}}}, ends, false,
			`the template has no step "nowhere"; "route" may name "left" (invalid_outcome)`, "error_type=invalid_outcome", "then run it again", nil},
		{"lease lost", []stepSpec{{name: "approve", callable: "Outside", retry: later}}, func(t *testing.T, s *service, clock *virtualClock, v *task) {
			loseLeases(t, s, clock, 1)
		}, false, `step "approve" failed 6 min ago, on attempt 1 of 3: the lease of w expired (worker_lost); it is retried in 3 min, or immediately with retry_now`,
			"", "", nil},
		{"lease lost and waiting", []stepSpec{{name: "approve", callable: "Outside", retry: `{"backoff_base_ms":1}`}},
			func(t *testing.T, s *service, clock *virtualClock, v *task) { loseLeases(t, s, clock, 1) }, false,
			`after attempt 1 of 3 failed: the lease of w expired (worker_lost); map it with --handler`, "", "", nil},
		{"lease lost three times", []stepSpec{{name: "approve", callable: "Outside", retry: `{"backoff_base_ms":1}`}},
			func(t *testing.T, s *service, clock *virtualClock, v *task) { loseLeases(t, s, clock, 3) }, false,
			`step "approve" failed for good 6 min ago, on attempt 3 of 3: the lease of w expired (worker_lost); ` +
				`find out why its worker does not respond, then reset it`, "error_type=worker_lost", "", nil},
		{"refused by a schema", []stepSpec{{name: "charge", callable: "builtin:echo", retry: `{"max_attempts":1}`}}, good, false,
			`step "charge" failed for good 5 min ago, on attempt 1 of 1: the result does not fit result_schema`, "error_type=schema_mismatch", "", nil},
		{"stale", []stepSpec{{name: "approve", callable: "Outside"}}, func(t *testing.T, s *service, clock *virtualClock, v *task) {
			goStale(t, s, v.id)
		}, false, `the task ended as stale 5 min ago: step "approve" is ready, but cannot start while the task is error; ` +
			`fix what delayed it, then act on the step (resolve_manually, complete_manually, cancel, fail) to get the task going again`, "", "", nil},
		{"parent cancelled", []stepSpec{{name: "a", callable: "Outside"}, {name: "b", callable: "builtin:noop", after: []string{"a"}}},
			func(t *testing.T, s *service, clock *virtualClock, v *task) {
				mustAct(t, s, v, 0, stepRequest{action: actionCancel})
			}, false,
			`step "b" needs step "a", which was cancelled 5 min ago; resolve, complete or cancel it`, `cause=step "b" needs step "a"`, "", nil},
		{"part of a batch failed", []stepSpec{{name: "split", callable: "Outside", kind: stepBatchable},
			{name: "import", callable: "builtin:fail", kind: stepBatchWorker, after: []string{"split"}, retry: `{"max_attempts":1}`,
				batch: strings.ReplaceAll(batchSteps("continue_on_failure", 10)[1].batch, `"w"`, `"import"`)}},
			func(t *testing.T, s *service, clock *virtualClock, v *task) {
				mustAct(t, s, v, 0, stepRequest{action: actionComplete, result: []byte(createBatches("import", 3))})
			}, false, `on attempt 1 of 1, as did 2 more of the 3 parts of its batch: the step fails on purpose (builtin_fail); fix what failed, then reset it`, "error_type=builtin_fail", "", nil},
		{"handler not there yet", []stepSpec{{name: "charge", callable: "http://127.0.0.1:1", retry: `{"max_attempts":1}`}},
			func(t *testing.T, s *service, clock *virtualClock, v *task) {
				eventually(t, "the step to wait", func() bool { return absentees(s) == 1 })
			}, false, `step "charge" waits for its handler: 127.0.0.1:1 has not been listening since `,
			`a handler does not listen: steps wait for it; start your handler address=127.0.0.1:1`, "", nil},
		{"clock frozen", []stepSpec{{name: "charge", callable: "builtin:fail", config: `{"retryable":true}`, retry: later}}, good, true,
			`step "charge" failed 5 min ago, on attempt 1 of 3: the step fails on purpose (builtin_fail); ` +
				`the clock is frozen: nothing comes due until it is advanced by 4 min`, "", "", nil},
	}
}

// loseLeases claims the step so many times, and lets each lease expire.
func loseLeases(t *testing.T, s *service, clock *virtualClock, times int) {
	for range times {
		mustClaim(t, s)
		clock.advance(2 * time.Minute)
		settle(s)
	}
}

// TestOneSentence compares what each place says of each situation.
func TestOneSentence(t *testing.T) {
	for _, tt := range situations(t) {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			clock := newVirtualClock(testStart)
			spec := testTemplate("x", tt.steps...)
			if tt.name == "refused by a schema" {
				spec = strings.Replace(spec, `"batch_config":null`, `"batch_config":null,"result_schema":{"required":["paid"]}`, 1)
			}
			s := newTestServer(t, serviceTest{clock: clock, log: &log, extra: []string{spec}, config: func(c *Config) {
				c.Engine.Jitter, c.Templates.EnforceInputSchema = false, "reject"
				c.Worker.Undelivered = undeliveredWait
				if tt.config != nil {
					tt.config(c)
				}
			}})
			v := mustCreate(t, s.svc, "x")
			settle(s.svc)
			tt.do(t, s.svc, clock, v)
			settle(s.svc)
			clock.advance(5*time.Minute + 30*time.Second) // the last unit is not near its end
			settle(s.svc)
			if !tt.frozen {
				clock.setMode(clockReal)
			}
			said := s.do("GET", "/v1/tasks/"+v.id.String()+"/explain", "").want(200)
			message, remedy := said.text("message"), said.text("remedy")
			if !strings.Contains(message, tt.want) || remedy == "" || !strings.HasSuffix(message, "; "+remedy) {
				t.Errorf("explain: got %q; want %q", message, tt.want)
			}
			if got := s.do("GET", s.svc.cfg.Mount.Path+"/tasks/"+v.id.String()+"/explain", "").text("message"); got != message {
				t.Errorf("at the mount point: got %q; want %q", got, message)
			}
			env := map[string]string{"STEPWELL_URL": s.url}
			places := [][]string{{"task", "explain", v.id.String()}, {"task", "watch", v.id.String(), "--timeout", "1ns"}}
			if s.do("GET", "/v1/dlq/task/"+v.id.String(), "").status == 200 {
				places = append(places, []string{"dlq", "show", v.id.String()})
			}
			for _, args := range places {
				if r := runCLI(env, "", args...); !strings.Contains(r.stdout+r.stderr, message) {
					t.Errorf("%q: got %q, %q; want %q", args, r.stdout, r.stderr, message)
				}
			}
			if tt.logged != "" && !strings.Contains(log.String(), tt.logged) {
				t.Errorf("the log: got %s; want %s", &log, tt.logged)
			}
			if tt.ran != "" {
				runs(t, spec, tt.ran)
			}
		})
	}
}

// runs runs the template alone.
func runs(t *testing.T, spec, want string) {
	t.Helper()
	t.Chdir(t.TempDir())
	noError(t, os.WriteFile("x.json", []byte(spec), 0o600))
	if r := runCLI(nil, "", "run", "x.json"); !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, "reset") {
		t.Errorf("run: got %q; want %q", r.stderr, want)
	}
}

// TestStoppedTasksAreLogged checks the warnings about tasks that are blocked and that end as stale, with and without the
// messages of errors.
func TestStoppedTasksAreLogged(t *testing.T) {
	for errors, want := range map[string][]string{
		"message": {
			`WARN a task is blocked`, `template=t.bad@1.0.0 step=a attempt=1 error_type=Broken error=no paper cause=step "a" failed for good just now, on attempt 1 of 3: no paper (Broken); fix what failed, then reset it`,
			`WARN a task ended as stale`, `step=a attempt=1 cause=the task ended as stale just now: step "a" is ready`,
		},
		"type": {
			`error_type=Broken cause=step "a" failed for good just now, on attempt 1 of 3 (Broken); fix what failed, then reset it`,
			`WARN a task ended as stale`,
		},
	} {
		var log bytes.Buffer
		clock := newVirtualClock(testStart)
		waits := strings.Replace(testTemplate("waits", stepSpec{name: "a", callable: "Outside"}), `"steps"`, `"lifecycle":{"max_steps_in_process_minutes":5},"steps"`, 1)
		s := openTestService(t, serviceTest{clock: clock, log: &log, config: func(c *Config) { c.Log.Errors = errors }, extra: []string{
			waits, testTemplate("bad", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":false,"error_type":"Broken","message":"no paper"}`}),
		}})
		for _, name := range []string{"waits", "bad"} {
			mustCreate(t, s, name)
			settle(s)
		}
		clock.advance(10 * time.Minute)
		settle(s)
		closeTestService(t, s)
		for _, w := range want {
			if !strings.Contains(log.String(), w) {
				t.Errorf("%s: got %s; want %s", errors, &log, w)
			}
		}
		if shown := strings.Contains(log.String(), "no paper"); shown != (errors == "message") {
			t.Errorf("log.errors = %q: the message is in the log: %v", errors, shown)
		}
	}
}
