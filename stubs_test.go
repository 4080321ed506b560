package main

// Stubs through the control API, on the virtual clock.

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// handlerLog is an HTTP handler that answers with the number of the call, and
// notes the keys of the calls.
type handlerLog struct {
	url  string
	mu   sync.Mutex
	keys []string // guarded by mu
}

func newHandlerLog(t *testing.T) *handlerLog {
	l := &handlerLog{}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.keys = append(l.keys, r.Header.Get("Idempotency-Key"))
		fmt.Fprint(w, len(l.keys))
	}))
	t.Cleanup(h.Close)
	l.url = h.URL
	return l
}

func (l *handlerLog) calls() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.keys...)
}

func (l *handlerLog) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys = nil
}

// stub adds a stub and returns its id.
func (s *fixtureServer) stub(format string, args ...any) string {
	s.t.Helper()
	return s.do("POST", "/_stepwell/stubs", fmt.Sprintf(format, args...)).want(201).text("id")
}

// story is what became of a task's first step: its state, how many attempts it
// took and on how many deliveries, the audit from the oldest entry on, and when
// the last change was, in seconds after the task's creation.
func (s *fixtureServer) story(id string) string {
	s.t.Helper()
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	step := s.do("GET", "/v1/tasks/"+id+"/workflow_steps", "").want(200)
	at := "/v1/tasks/" + id + "/workflow_steps/" + step.text("0.step_uuid")
	audit := s.do("GET", at+"/audit", "").want(200)
	var entries []string
	for i := strings.Count(string(audit.body), `"audit_uuid"`) - 1; i >= 0; i-- {
		p := fmt.Sprintf("%d.", i)
		what := audit.text(p + "result.result")
		if audit.text(p+"success") == "false" {
			what = audit.text(p + "result.error.error_type")
		}
		if !strings.Contains(string(audit.body), `"from_state"`) || audit.get(p+"from_state") == nil {
			what = "late " + what
		}
		entries = append(entries, what)
	}
	starts := strings.Count(string(s.do("GET", "/v1/tasks/"+id+"/transitions", "").want(200).body), `"to_state":"in_progress"`)
	return fmt.Sprintf("%s after %s attempts, %d deliveries: %s", step.text("0.current_state"), step.text("0.attempts"), starts,
		strings.Join(entries, ", "))
}

// TestStubOutcomes plays every outcome and fault on each kind of handler.
func TestStubOutcomes(t *testing.T) {
	const policy = `{"max_attempts":3,"backoff":"linear","backoff_base_ms":1000}`
	type row struct {
		name, outcomes, then  string
		builtin, web, outside string // the stories; outside "" when it is the builtin's
		calls                 int    // of the HTTP handler
	}
	rows := []row{
		{"result", `[{"result":{"n":1.0}}]`, "", `complete after 1 attempts, 1 deliveries: map[n:1.0]`, "=", "=", 0},
		{"null", `[{"result":null}]`, "", `complete after 1 attempts, 1 deliveries: <nil>`, "=", "=", 0},
		{"permanent", `[{"error":{"message":"no","error_type":"card","retryable":false}}]`, "",
			`error after 1 attempts, 1 deliveries: card`, "=", "=", 0},
		{"retried", `[{"error":{"message":"no"}},{"error":{"message":"no","retry_after":"30s"}},{"result":3}]`, "",
			`complete after 3 attempts, 3 deliveries: handler_error, handler_error, 3`, "=", "=", 0},
		{"last again", `[{"error":{"message":"no"}}]`, "last",
			`error after 3 attempts, 3 deliveries: handler_error, handler_error, handler_error`, "=", "=", 0},
		{"then fail", `[{"error":{"message":"no"}}]`, "fail",
			`error after 2 attempts, 2 deliveries: handler_error, stub_exhausted`, "=", "=", 0},
		{"then handler", `[{"error":{"message":"no"}}]`, "handler",
			`complete after 2 attempts, 2 deliveries: handler_error, 7`, `complete after 2 attempts, 2 deliveries: handler_error, 1`,
			`enqueued after 1 attempts, 1 deliveries: handler_error`, 1},
		{"delay", `[{"delay":"20s"}]`, "", `complete after 1 attempts, 1 deliveries: <nil>`, "=", "=", 0},
		{"delayed error", `[{"delay":"2s","error":{"message":"no"}},{"delay":"1h","result":1},{"delay":"29s","result":3}]`, "",
			`complete after 3 attempts, 3 deliveries: handler_error, timeout, 3`, "=", "=", 0},
		{"hang", `[{"hang":true},{"result":2}]`, "", `complete after 2 attempts, 2 deliveries: timeout, 2`, "=", "=", 0},
		{"worker lost", `[{"fault":"worker_lost"},{"result":2}]`, "", `complete after 1 attempts, 2 deliveries: 2`, "=", "=", 0},
		{"worker lost later", `[{"fault":"worker_lost","delay":"5s"},{"result":2}]`, "",
			`complete after 1 attempts, 2 deliveries: 2`, "=", "=", 0},
		{"worker lost, then handled", `[{"fault":"worker_lost"}]`, "handler", `complete after 1 attempts, 2 deliveries: 7`,
			`complete after 1 attempts, 2 deliveries: 1`, `enqueued after 1 attempts, 1 deliveries: `, 1},
		{"worker lost for good", `[{"fault":"worker_lost"}]`, "",
			`error after 3 attempts, 12 deliveries: worker_lost, worker_lost, worker_lost`, "=", "=", 0},
		{"result lost", `[{"fault":"result_lost"}]`, "handler", `complete after 1 attempts, 2 deliveries: 7`,
			`complete after 1 attempts, 2 deliveries: 2`, `enqueued after 1 attempts, 1 deliveries: `, 2},
		{"stub's result lost", `[{"fault":"result_lost","result":1},{"result":2}]`, "",
			`complete after 1 attempts, 2 deliveries: 2`, "=", "=", 0},
		{"duplicate", `[{"fault":"duplicate_delivery"}]`, "", `complete after 1 attempts, 1 deliveries: 7, late 7`,
			`complete after 1 attempts, 1 deliveries: 1, late 2`, `complete after 1 attempts, 1 deliveries: <nil>, late <nil>`, 2},
		{"duplicate failure", `[{"fault":"duplicate_delivery","error":{"message":"no"}},{"result":2}]`, "",
			`complete after 2 attempts, 2 deliveries: handler_error, late handler_error, 2`, "=", "=", 0},
		{"late", `[{"fault":"late_completion"}]`, "handler", `complete after 2 attempts, 2 deliveries: timeout, late 7, 7`,
			`complete after 2 attempts, 2 deliveries: timeout, late 1, 2`,
			`enqueued after 1 attempts, 1 deliveries: timeout, late <nil>`, 2},
		{"very late", `[{"fault":"late_completion","result":1,"delay":"1m"},{"result":2}]`, "",
			`complete after 2 attempts, 2 deliveries: timeout, 2, late 1`, "=", "=", 0},
	}
	handler := newHandlerLog(t)
	callables := []string{"builtin:sum", handler.url, "charge"}
	s := newFixtureServer(t, serviceTest{extra: []string{
		testTemplate("k0", stepSpec{name: "a", callable: callables[0], config: `{"add":7}`, retry: policy}),
		testTemplate("k1", stepSpec{name: "a", callable: callables[1], retry: policy}),
		testTemplate("k2", stepSpec{name: "a", callable: callables[2], retry: policy}),
	}})
	for _, row := range rows {
		for kind, want := range []string{row.builtin, row.web, row.outside} {
			t.Run(fmt.Sprintf("%s/%s", row.name, []string{"builtin", "http", "outside"}[kind]), func(t *testing.T) {
				s.t = t
				if want == "=" {
					want = row.builtin
				}
				s.do("POST", "/_stepwell/reset", "").want(204)
				s.clock(`{"auto":true}`).want(200)
				then := ""
				if row.then != "" {
					then = fmt.Sprintf(`,"then":%q`, row.then)
				}
				handler.forget()
				s.stub(`{"match":{"namespace":"t"},"outcomes":%s%s}`, row.outcomes, then)
				id := s.create(fmt.Sprintf(`{"namespace":"t","name":"k%d"}`, kind))
				if got := s.story(id); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				keys := handler.calls()
				if kind == 1 && len(keys) != row.calls {
					t.Errorf("the handler was called with %q; want %d calls", keys, row.calls)
				}
				if len(keys) == 2 && (keys[0] == keys[1]) == (row.name == "late") {
					t.Errorf("the handler was called with %q", keys)
				}
			})
		}
	}
}
