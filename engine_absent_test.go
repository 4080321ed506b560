package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// lateHandler is the address of a handler that does not listen until it is told to.
type lateHandler struct {
	*testing.T
	address string
	calls   chan string // Idempotency-Key of each call
}

func newLateHandler(t *testing.T) *lateHandler {
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return &lateHandler{t, l.Addr().String(), make(chan string, 10_000)}
}

func (h *lateHandler) template(name string) string {
	return testTemplate(name, stepSpec{name: "a", callable: "http://" + h.address, retry: `{"max_attempts":1}`})
}

// listen answers calls from now on, by f.
func (h *lateHandler) listen(f http.HandlerFunc) *httptest.Server {
	h.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.calls <- r.Header.Get("Idempotency-Key")
		f(w, r)
	}))
	s.Listener.Close()
	s.Listener = must(net.Listen("tcp", h.address))(h)
	s.Start()
	h.Cleanup(s.Close)
	return s
}

func answerNothing(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }

// absentees returns how many steps wait for handlers that do not listen.
func absentees(s *service) (n int) {
	s.store.locked(func() {
		for _, a := range s.engine.absent.by {
			n += a.steps()
		}
	})
	return n
}

// TestHandlerThatListensLater creates tasks while their handler does not listen. Every surface says so, and they complete at
// their first attempt once it does.
func TestHandlerThatListensLater(t *testing.T) {
	t.Parallel()
	h, logged := newLateHandler(t), &logText{}
	s := newTestServer(t, serviceTest{log: logged, extra: []string{h.template("web")}})
	ids := []string{}
	for range 3 {
		ids = append(ids, s.create(`{"namespace":"t","name":"web"}`))
	}
	eventually(t, "the steps to wait", func() bool { return absentees(s.svc) == 3 })
	sentence := h.address + " has not been listening since "
	x := s.do("GET", "/v1/tasks/"+ids[0]+"/explain", "").want(200)
	if got := x.text("steps.0.message"); !strings.Contains(got, sentence) || !strings.HasSuffix(got, "; start your handler") {
		t.Errorf("the explanation is %s", got)
	}
	x.wantText("steps.0.cause", "not_listening", "steps.0.current_state", "enqueued", "steps.0.attempt", "1")
	health := s.do("GET", "/health/detailed", "").want(200)
	if got := health.text("checks.queue_depth.message"); !strings.Contains(got, sentence) || !strings.Contains(got, "UTC; 3 steps wait for it; start") {
		t.Errorf("the check says %s", got)
	}
	health.wantText("checks.queue_depth.status", "degraded")
	gauge := fmt.Sprintf("stepwell_handler_waiting_steps{address=%q} 3\n", h.address)
	if body := string(s.do("GET", "/metrics", "").want(200).body); !strings.Contains(body, gauge) {
		t.Errorf("the metrics lack %s", gauge)
	}
	s.do("GET", "/v1/tasks/"+ids[0]+"/workflow_steps", "").want(200).wantText("0.current_state", "enqueued", "0.attempts", "0")
	h.listen(answerNothing)
	for _, id := range ids {
		s.await(id, "complete")
		s.do("GET", "/v1/tasks/"+id+"/workflow_steps", "").wantText("0.attempts", "1")
	}
	if n := len(h.calls); n != 3 {
		t.Errorf("got %d calls; want 3", n)
	}
	wantFreeSlots(t, s.svc)
	for _, line := range []string{"a handler does not listen: steps wait for it; start your handler", "a handler listens again"} {
		if n := strings.Count(logged.String(), line); n != 1 {
			t.Errorf("got %d lines %q; want 1:\n%s", n, line, logged)
		}
	}
}

// TestOneProbe has thousands of steps wait for one address: once it is known that nobody listens, none of them connects.
func TestOneProbe(t *testing.T) {
	t.Parallel()
	h := newLateHandler(t)
	s := newTestService(t, serviceTest{extra: []string{h.template("web")}})
	var dials atomic.Int32
	s.handlers.web.connections.(*handlerTransport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	mustCreate(t, s, "web")
	eventually(t, "the step to wait", func() bool { return absentees(s) == 1 })
	for range 2000 {
		mustCreate(t, s, "web")
	}
	if n := absentees(s); n != 2001 || dials.Load() != 1 {
		t.Errorf("%d steps wait after %d connections; want 2001 after 1", n, dials.Load())
	}
	wantFreeSlots(t, s)
}

// TestReleaseOfWaitingSteps has steps wait for a handler that then holds its calls. They are released by priority: one,
// then two for each that was delivered.
func TestReleaseOfWaitingSteps(t *testing.T) {
	t.Parallel()
	h := newLateHandler(t)
	s := newTestService(t, serviceTest{extra: []string{h.template("web")}})
	for n := range 20 {
		mustCreate(t, s, "web", fmt.Sprintf(`"priority":%d`, n))
	}
	eventually(t, "the steps to wait", func() bool { return absentees(s) == 20 })
	var came atomic.Int32
	all, began := make(chan struct{}), time.Now()
	h.listen(func(http.ResponseWriter, *http.Request) {
		if came.Add(1) == 20 {
			close(all)
		}
		<-all
	})
	<-all
	probes := int(time.Since(began)/firstProbe) + 1 // each of which releases one
	// Requests come in any order once they are released, so what counts is the order in which their attempts started.
	priorities := map[uint64]int{} // by the record of the start
	s.store.locked(func() {
		for _, sl := range s.store.tasks.slots {
			v := must(sl.task())(t)
			for entry := range logEntries(v.log) {
				if r := must(decodeRecord(entry))(t); r.kind == recStarted {
					priorities[r.seq] = v.by.priority
				}
			}
		}
	})
	for n, seq := range slices.Sorted(maps.Keys(priorities)) {
		if place := 19 - priorities[seq]; place > 2*n+probes-1 {
			t.Errorf("priority %d started %d before its turn: %v", priorities[seq], place-2*n-probes+1, priorities)
		}
	}
	if len(priorities) < 20 {
		t.Errorf("%d attempts started; want 20", len(priorities))
	}
}

// TestStepsThatWaitNoLonger cancels and holds tasks whose steps wait for a handler. Nobody looks for it then.
func TestStepsThatWaitNoLonger(t *testing.T) {
	t.Parallel()
	h, logged := newLateHandler(t), &logText{}
	api := newTestServer(t, serviceTest{log: logged, extra: []string{h.template("web")}})
	s := api.svc
	one, two, three := mustCreate(t, s, "web"), mustCreate(t, s, "web"), mustCreate(t, s, "web")
	eventually(t, "the steps to wait", func() bool { return absentees(s) == 3 })
	must(s.operator.cancelTask(t.Context(), one.id, taskActor{}))(t)
	mustAct(t, s, two, 0, completeAction)
	api.bulk(`{"action":"hold","reason":"https://tasks.example.com","filter":{"namespace":"t"}}`)
	if n := absentees(s); n != 0 {
		t.Errorf("%d steps wait; want none", n)
	}
	eventually(t, "the search for the handler to end", func() bool {
		var n int
		s.store.locked(func() { n = len(s.engine.absent.by) })
		return n == 0
	})
	h.listen(answerNothing)
	api.bulk(`{"action":"release","reason":"it is down","filter":{"namespace":"t"}}`)
	api.await(three.id.String(), "complete")
	if n := len(h.calls); n != 1 {
		t.Errorf("got %d calls; want 1", n)
	}
}

// refusingTransport begins an attempt as on a kept connection that proves closed, whose successor is refused.
type refusingTransport struct {
	http.RoundTripper
	left atomic.Int32 // how often
}

func (r *refusingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.left.Add(-1) < 0 {
		return r.RoundTripper.RoundTrip(req)
	}
	begin := req.Context().Value(beginKey{}).(func() bool)
	if !begin() {
		return nil, errNotBegun
	}
	return nil, unsentError{syscall.ECONNREFUSED}
}

// TestStartIsTakenBack has the start of a first attempt taken back. The step is as before, also in a replay, and there is no
// event of it.
func TestStartIsTakenBack(t *testing.T) {
	t.Parallel()
	h := newLateHandler(t)
	api := newTestServer(t, serviceTest{dir: t.TempDir(), extra: []string{h.template("web")}})
	s := api.svc
	refusing := &refusingTransport{RoundTripper: s.handlers.web.connections}
	refusing.left.Store(1)
	s.handlers.web.connections = refusing
	v := mustCreate(t, s, "web")
	eventually(t, "the step to wait", func() bool { return absentees(s) == 1 })
	v = must(s.store.view(v.id))(t)
	if step := v.steps[0]; step.state != stepEnqueued || step.stepCount != (stepCount{}) {
		t.Errorf("got the step in %s with %+v; want it enqueued as before", step.state, step.stepCount)
	}
	if n := strings.Count(string(v.log), `"kind":"undelivered"`); n != 1 {
		t.Errorf("got %d records of it in %s; want 1", n, v.log)
	}
	audit := api.do("GET", "/v1/tasks/"+v.id.String()+"/workflow_steps/"+v.stepID(0).String()+"/audit", "").want(200).body
	if got := strings.TrimSpace(string(audit)); got != "[]" {
		t.Errorf("got the audit %s; want none", got)
	}
	moves := string(api.do("GET", "/v1/tasks/"+v.id.String()+"/transitions", "").want(200).body)
	if n := strings.Count(moves, `"from_state":"in_progress"`); n != 0 {
		t.Errorf("got %d moves back in %s; want none", n, moves)
	}
	checkInvariants(t, s)
	h.listen(answerNothing)
	api.await(v.id.String(), "complete")
	if step := must(s.store.view(v.id))(t).steps[0]; step.attempts != 1 {
		t.Errorf("got %d attempts; want 1", step.attempts)
	}
}

// TestTakenBackRedelivery takes the start of an attempt back that a crash had cut off: it is still that attempt.
func TestTakenBackRedelivery(t *testing.T) {
	t.Parallel()
	s := newTestService(t, serviceTest{extra: []string{testTemplate("web", stepSpec{name: "a", callable: "Outside"})}})
	v := mustCreate(t, s, "web")
	before := stepCount{attempts: 1, redelivered: 2, redeliver: true, attempted: v.created}
	v.steps[0].stepCount = before
	for _, r := range []*record{
		{seq: v.lastSeq + 1, at: v.created.add(1), kind: recStarted, task: v.id},
		{seq: v.lastSeq + 2, at: v.created.add(2), kind: recUndelivered, task: v.id, before: before},
	} {
		var read record
		line := fmt.Appendf(nil, `{"seq":%d,%s}`, r.seq, appendRecordMembers([]byte("{"), r)[1:])
		if err := read.read(line); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if err := v.apply(&read, unobserved{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := v.steps[0]; got.state != stepEnqueued || got.stepCount != before {
		t.Errorf("got the step in %s with %+v; want it enqueued with %+v", got.state, got.stepCount, before)
	}
}

// TestErrorsOfConnections tells errors that say that nobody listens from those that time does not mend.
func TestErrorsOfConnections(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		err  error
		want bool
	}{
		{"refused", &net.OpError{Op: "dial", Err: errConnectionRefused}, true},
		{"no route", &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, true},
		{"time-out", &net.OpError{Op: "dial", Err: context.DeadlineExceeded}, true},
		{"name not found", &net.DNSError{Err: "no such host", Name: "app", IsNotFound: true}, true},
		{"name server does not answer", &net.DNSError{Err: "i/o timeout", Name: "app.", IsTimeout: true}, true},
		{"a name that never is", &net.DNSError{Err: "no such host", Name: "app.invalid", IsNotFound: true}, false},
		{"a name that no host can have", &net.DNSError{Err: "no such host", Name: "a..b", IsNotFound: true}, false},
		{"handshake cut off", fmt.Errorf("tls: %w", io.EOF), true},
		{"certificate", &tls.CertificateVerificationError{Err: errors.New("x509: unknown authority")}, false},
		{"not TLS", tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, false},
		{"refused by a proxy", errors.New("Bad Gateway"), false},
	} {
		if got := notListening(tc.err); got != tc.want {
			t.Errorf("%s: got %v; want %v", tc.name, got, tc.want)
		}
	}
}

// TestRefusedHandshake has a handler with a certificate that nobody trusts: that is a failed attempt.
func TestRefusedHandshake(t *testing.T) {
	t.Parallel()
	h := httptest.NewUnstartedServer(http.HandlerFunc(answerNothing))
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	h.StartTLS()
	t.Cleanup(h.Close)
	s := newTestService(t, serviceTest{extra: []string{testTemplate("web", stepSpec{name: "a", callable: h.URL, retry: `{"max_attempts":1}`})}})
	v := mustCreate(t, s, "web")
	eventually(t, "the attempt to fail", func() bool { return must(s.store.view(v.id))(t).state == taskBlockedByFailures })
	if step := must(s.store.view(v.id))(t).steps[0]; step.state != stepInError || step.attempts != 1 {
		t.Errorf("got the step in %s after %d attempts; want it in error after 1", step.state, step.attempts)
	}
	wantFreeSlots(t, s)
}

// TestForgottenHandlerStaysForgotten ends the probe of a handler that was forgotten while another absence of the same address
// began: the steps of that one must not be stranded.
func TestForgottenHandlerStaysForgotten(t *testing.T) {
	t.Parallel()
	h := newLateHandler(t)
	s := newTestService(t, serviceTest{extra: []string{h.template("web")}})
	v := mustCreate(t, s, "web")
	eventually(t, "the step to wait", func() bool { return absentees(s) == 1 })
	s.store.locked(func() {
		absent := s.engine.absent
		g := s.engine.targetLocked(s.store.liveLocked(v.id), 0)
		first := absent.of(g)
		waiting := first.waiting.items
		first.waiting.items = nil
		absent.forget(first, listensAgain)
		absent.miss(g, "refused")
		absent.of(g).waiting.items = waiting
		if !absent.probed(first, errConnectionRefused) || absent.of(g) == nil {
			t.Error("the probe of the first absence ended the second one; want its own end")
		}
	})
	h.listen(answerNothing)
	eventually(t, "the task to complete", func() bool { return must(s.store.view(v.id))(t).state == taskComplete })
}

// TestProbeThatIsAnsweredAlone has an address that accepts probes, while requests cannot connect. The absence goes on, with
// ever longer pauses, and is logged once.
func TestProbeThatIsAnsweredAlone(t *testing.T) {
	t.Parallel()
	h, logged := newLateHandler(t), &logText{}
	s := newTestService(t, serviceTest{log: logged, extra: []string{h.template("web")}})
	h.listen(answerNothing)
	var dials atomic.Int32
	s.handlers.web.connections.(*handlerTransport).DialContext = func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		return nil, dialError{errConnectionRefused}
	}
	mustCreate(t, s, "web")
	eventually(t, "three tries", func() bool { return dials.Load() == 3 })
	if n := strings.Count(logged.String(), listensAgain); n != 0 {
		t.Errorf("logged %d times that it listens:\n%s", n, logged)
	}
}

// hangingDial is a service whose connections to handlers never stand.
func hangingDial(t *testing.T) (s *service, v *task) {
	h := newLateHandler(t)
	s = newTestService(t, serviceTest{extra: []string{h.template("web")}})
	began := make(chan struct{}, 1)
	s.handlers.web.connections.(*handlerTransport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		began <- struct{}{}
		<-ctx.Done()
		return nil, dialError{ctx.Err()}
	}
	v = mustCreate(t, s, "web")
	<-began
	return s, v
}

// TestCancelWhileConnecting cancels a task whose step connects to its handler: the slot is free.
func TestCancelWhileConnecting(t *testing.T) {
	t.Parallel()
	s, v := hangingDial(t)
	must(s.operator.cancelTask(t.Context(), v.id, taskActor{}))(t)
	eventually(t, "the slot to be free", func() bool {
		free := false
		s.store.locked(func() { free = s.engine.queues.web.free == s.cfg.Worker.HTTPConcurrency })
		return free
	})
}

// TestStopWhileConnecting stops the engine while a step connects to its handler: nothing was sent, so it ends at once.
func TestStopWhileConnecting(t *testing.T) {
	t.Parallel()
	s, _ := hangingDial(t)
	if cut := s.engine.stop(t.Context()); len(cut) > 0 { // a context that does not end
		t.Errorf("cut off %q; want nothing", cut)
	}
}

// TestConnectingHasALimit has a connection that never stands, as behind a proxy that says nothing: the attempt fails.
func TestConnectingHasALimit(t *testing.T) {
	t.Parallel()
	h := newTestHandlers(t, nil)
	h.web.patience = time.Millisecond
	h.web.connections.(*handlerTransport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, dialError{ctx.Err()}
	}
	a := newTestAttempt(`{}`)
	a.begin = func() bool { return true }
	o := h.run(t.Context(), h.resolve("http://127.0.0.1:1/"), a)
	if got, want := showOutcome(o), "network_error retryable"; got != want || o.unsent || o.err.message != "no connection within 15s" {
		t.Errorf("got %s, unsent %v: %s; want %s", got, o.unsent, o.err.message, want)
	}
}

// TestTargetBehindAProxy has a proxy that listens, and cuts off every connection to a target: that is a failed attempt of its
// steps, while others go on behind the proxy.
func TestTargetBehindAProxy(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := must2(w.(http.Hijacker).Hijack())(t)
		conn.Close()
	}))
	t.Cleanup(proxy.Close)
	s := newTestService(t, serviceTest{config: func(c *Config) { c.Worker.HTTPProxy = proxy.URL },
		extra: []string{testTemplate("web", stepSpec{name: "a", callable: "https://shop.example", retry: `{"max_attempts":1}`})}})
	v := mustCreate(t, s, "web")
	eventually(t, "the attempt to fail", func() bool { return must(s.store.view(v.id))(t).state == taskBlockedByFailures })
	if n := absentees(s); n != 0 {
		t.Errorf("%d steps wait for the proxy; want none", n)
	}
}

// TestNamesBeyondASCII fails as before: steps do not wait for a name whose form on the network net/http alone knows.
func TestNamesBeyondASCII(t *testing.T) {
	t.Parallel()
	h := newTestHandlers(t, nil)
	for url, want := range map[string]bool{"http://b\u00fccher.example:9000/x": false, "http://books.example:9000/\u00fc": true} {
		if got := h.resolve(url).canWait(); got != want {
			t.Errorf("%s: got %v; want %v", url, got, want)
		}
	}
}
