package main

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAdjustmentsInHistory expects adjustments in the audit of the step, and the
// move that one causes in the transitions.
func TestAdjustmentsInHistory(t *testing.T) {
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: []string{
		testTemplate("fails", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`, retry: `{"max_attempts":1,"backoff_base_ms":1000}`})}})
	v := mustCreate(t, s, "fails")
	v = mustAdjust(t, s, v, 0, adjustment{maxAttempts: 2, inputs: []byte(`{}`)})
	audit, err := s.history.audit(v.id, 0, nil)
	if err != nil || len(audit) != 3 {
		t.Fatalf("got %+v, %v; want two attempts and an adjustment", audit, err)
	}
	a := audit[1]
	if a.Action != "adjusted" || a.FromState != "error" || a.ToState != "pending" || a.RetryLimit != 2 ||
		string(a.Inputs) != "{}" || a.Subject != "ops" || a.WorkerUUID != nil {
		t.Errorf("got %+v; want what was adjusted, by whom", a)
	}
	h := must(s.history.transitions(v.id, nil, true))(t)
	moved := slices.ContainsFunc(indexesOf(h.moves), func(n int) bool {
		m := h.view(n)
		return m.StepName != nil && m.FromState != nil && *m.FromState == "error" && m.ToState == "pending" && m.Attempt == 1
	})
	if !moved {
		t.Errorf("got %+v; want a move from error to pending", h.moves)
	}
}

// TestReasonsOfFailedAttempts lets attempts of all kinds fail, and expects the same sentence in the transitions and in the
// log, without credentials and, for those who may not see messages, without the message.
func TestReasonsOfFailedAttempts(t *testing.T) {
	h := newHandlerServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(503)
		io.WriteString(w, "registry busy\nat http://me:secret@registry/")
	})
	replied := strings.TrimPrefix(h.URL, "http://") + " replied 503 Service Unavailable: registry busy at http://[REDACTED]@registry/"
	once := `{"max_attempts":1}`
	var log bytes.Buffer
	clock := newVirtualClock(testStart)
	s := openTestService(t, serviceTest{clock: clock, log: &log, config: func(c *Config) {
		c.Worker.AllowExec, c.Engine.Jitter = true, false
	}, extra: []string{
		testTemplate("busy", stepSpec{name: "charge", callable: h.URL, retry: `{"max_attempts":3,"backoff_base_ms":300,"max_backoff_ms":90000000}`}),
		testTemplate("later", stepSpec{name: "charge", callable: h.URL, retry: `{"max_attempts":2,"backoff_base_ms":7200000,"max_backoff_ms":7200000}`}),
		testTemplate("last", stepSpec{name: "charge", callable: h.URL, retry: once}),
		testTemplate("builtin", stepSpec{name: "a", callable: "builtin:fail", config: `{"message":"see http://me:secret@host/x"}`, retry: once}),
		testTemplate("program", stepSpec{name: "a", callable: "exec:none", retry: once}),
		testTemplate("outside", stepSpec{name: "a", callable: "Outside", retry: `{"backoff_base_ms":0,"max_backoff_ms":0}`}),
	}})
	reasons := func(id uuid, messages bool) (all []string) {
		h := must(s.history.transitions(id, nil, messages))(t)
		for n := range h.moves {
			if v := h.view(n); v.Reason != "" {
				all = append(all, *v.StepName+" "+v.ToState+" "+v.Reason)
			}
		}
		return all
	}
	var causes []string
	for _, row := range []struct{ template, want, hidden string }{
		{"busy", "charge waiting_for_retry attempt 1 of 3 failed: " + replied + "; again in 0.3 s",
			"charge waiting_for_retry attempt 1 of 3 failed (http_503); again in 0.3 s"},
		{"later", "charge waiting_for_retry attempt 1 of 2 failed: " + replied + "; again in 2 h",
			"charge waiting_for_retry attempt 1 of 2 failed (http_503); again in 2 h"},
		{"last", "charge error attempt 1 of 1 failed: " + replied + "; not tried again",
			"charge error attempt 1 of 1 failed (http_503); not tried again"},
		{"builtin", "a error attempt 1 of 1 failed: see http://[REDACTED]@host/x; not tried again",
			"a error attempt 1 of 1 failed (builtin_fail); not tried again"},
		{"program", "a error attempt 1 of 1 failed: there is no program \"none\" in worker.exec_path, or in PATH when that is not set; not tried again",
			"a error attempt 1 of 1 failed (program_unusable); not tried again"},
		{"outside", "a waiting_for_retry attempt 1 of 3 failed: the lease of w expired; again at once",
			"a waiting_for_retry attempt 1 of 3 failed (worker_lost); again at once"},
	} {
		id := mustCreate(t, s, row.template).id
		settle(s)
		if row.template == "outside" {
			must(s.outside.claim(t.Context(), claimAll(time.Minute)))(t)
			clock.advance(time.Minute)
			settle(s)
		} else {
			_, _, err := s.tasks.await(t.Context(), id, setOf(taskBlockedByFailures, taskWaitingForRetry), 10*time.Second)
			noError(t, err)
		}
		got, hidden := reasons(id, true), reasons(id, false)
		if len(got) != 1 || got[0] != row.want || len(hidden) != 1 || hidden[0] != row.hidden {
			t.Errorf("%s: got %q and %q; want %q and %q", row.template, got, hidden, row.want, row.hidden)
		}
		_, cause, _ := strings.Cut(row.want, "attempt ")
		causes = append(causes, "cause=attempt "+cause)
	}
	closeTestService(t, s)
	for _, cause := range causes {
		if !strings.Contains(log.String(), cause) {
			t.Errorf("the log has no %q", cause)
		}
	}
	if strings.Contains(log.String(), "secret") {
		t.Errorf("the log has credentials:\n%s", &log)
	}
}
