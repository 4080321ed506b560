package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"
)

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

func newBatchServer(t *testing.T, steps ...stepSpec) *fixtureServer {
	t.Helper()
	return newFixtureServer(t, serviceTest{
		config: func(c *Config) { c.Fixture.DeterministicIDs = "batches" },
		extra:  []string{testTemplate("batch", steps...), testTemplate("quick", stepSpec{name: "a", callable: "builtin:noop"})},
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

// openFiles returns the number of descriptors of a process, or -1 if the system does not show
// it.
func openFiles(pid int) int {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return -1
	}
	return len(list)
}

// TestSandboxesLeaveNothing makes 200 sandboxes, uses each, and deletes them: no
// goroutine, descriptor or service is left.
func TestSandboxesLeaveNothing(t *testing.T) {
	slow(t)
	s := newFixtureServer(t, serviceTest{extra: sandboxTemplates})
	s.deleteSandbox(s.used(s.sandbox(""))) // everything that is made only once is made now
	http.DefaultClient.CloseIdleConnections()
	goroutines, files := runtime.NumGoroutine(), openFiles(os.Getpid())
	var left []weak.Pointer[service]
	var all []*sandboxClient
	for range 200 {
		c := s.used(s.sandbox(""))
		left = append(left, weak.Make(c.world.service()))
		all = append(all, c)
	}
	if got := runtime.NumGoroutine() - goroutines; got < 200 {
		t.Fatalf("200 sandboxes have %d goroutines: they do not run", got)
	}
	t.Logf("200 sandboxes have %d goroutines and %d descriptors", runtime.NumGoroutine()-goroutines, openFiles(os.Getpid())-files)
	for _, c := range all {
		s.deleteSandbox(c)
	}
	all = nil
	http.DefaultClient.CloseIdleConnections()
	eventually(t, "the goroutines are gone", func() bool { return runtime.NumGoroutine() <= goroutines })
	eventually(t, "the descriptors are gone", func() bool { return openFiles(os.Getpid()) <= files })
	eventually(t, "the services are gone", func() bool {
		runtime.GC()
		return !slices.ContainsFunc(left, func(w weak.Pointer[service]) bool { return w.Value() != nil })
	})
}

// TestBusyCountsSandboxes runs a handler in a service and one in its sandbox.
func TestBusyCountsSandboxes(t *testing.T) {
	held := wire.NewHeldHandler(t, 16)
	s := newFixtureServer(t, serviceTest{extra: []string{testTemplate("held", stepSpec{name: "a", callable: held.URL, timeout: 300})}})
	box := s.sandbox(`{"name":"box"}`)
	for i, at := range []*fixtureServer{s, box.fixtureServer} {
		at.create(createHeld)
		held.Await(t)
		if got := s.world.busy(); got != i+1 {
			t.Errorf("got %d running handlers; want %d", got, i+1)
		}
	}
	close(held.Release)
}

// TestHangIsATimer checks that nothing runs while an attempt hangs, and that its slot is
// free afterwards.
func TestHangIsATimer(t *testing.T) {
	s := frozenServer(t, serviceTest{
		config: func(c *Config) { c.Worker.Concurrency = 1 },
		extra:  []string{testTemplate("one", stepSpec{name: "a", callable: "builtin:noop", retry: `{"retryable":false}`})},
	})
	s.stub(`{"match":{},"outcomes":[{"hang":true}],"then":"handler"}`)
	first, second := s.create(`{"namespace":"t","name":"one"}`), s.create(`{"namespace":"t","name":"one"}`)
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	s.clock(`{"advance":"29s"}`).want(200)
	if got := s.status(first) + s.status(second); got != "steps_in_processsteps_in_process" {
		t.Errorf("the tasks are %s", got)
	}
	s.clock(`{"advance_to_next":true}`).want(200)
	if got := s.status(first) + " " + s.status(second); got != "blocked_by_failures complete" {
		t.Errorf("the tasks are %s", got)
	}
	wantFreeSlots(t, s.world.service())
}

// TestCancelledStubs checks that a delay or fault of a stub does nothing to a task that is
// cancelled meanwhile.
func TestCancelledStubs(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	handler := newHandlerLog(t)
	for _, outcome := range []string{`{"delay":"5s"}`, `{"hang":true}`, `{"fault":"worker_lost","delay":"5s"}`,
		`{"fault":"result_lost","delay":"5s"}`, `{"fault":"late_completion"}`} {
		for _, callable := range []string{"builtin:noop", handler.url, "charge"} {
			s := frozenServer(t, serviceTest{extra: []string{testTemplate("one", stepSpec{name: "a", callable: callable})}})
			s.stub(`{"match":{},"outcomes":[%s]}`, outcome)
			id := s.create(`{"namespace":"t","name":"one"}`)
			s.do("POST", "/_stepwell/wait-idle", "").want(200)
			s.do("DELETE", "/v1/tasks/"+id, "").want(200)
			clock := s.clock(`{"advance":"1h"}`).want(200)
			if got := clock.text("fired"); got != "0" {
				t.Errorf("%s of %s: %s timers fired after the end", outcome, callable, got)
			}
			if got := s.story(id); got != "cancelled after 1 attempts, 1 deliveries: " {
				t.Errorf("%s of %s: got %s", outcome, callable, got)
			}
			wantFreeSlots(t, s.world.service())
		}
	}
}

// metricLines returns the samples that count what happened to tasks.
func metricLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		for _, family := range []string{"stepwell_tasks", "stepwell_steps", "stepwell_task_transitions", "stepwell_step_transitions",
			"stepwell_attempts", "stepwell_late", "stepwell_handler", "stepwell_queue", "stepwell_dlq", "stepwell_journal_records"} {
			if strings.HasPrefix(line, family) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// TestResetEndsWaits checks that a reset ends requests that wait for a task.
func TestResetEndsWaits(t *testing.T) {
	t.Parallel()
	s := newFixtureServer(t, serviceTest{extra: []string{testTemplate("out", stepSpec{name: "a", callable: "Outside"})}})
	id := s.create(`{"namespace":"t","name":"out"}`)
	answers := make(chan *answer)
	go func() { answers <- s.do("GET", "/v1/tasks/"+id+"?wait=terminal&timeout=1m", "") }()
	awaitWaiters(t, s.world.service(), 1)
	s.do("POST", "/_stepwell/reset", "").want(204)
	a := (<-answers).want(200)
	if end := a.header.Get("X-Stepwell-Wait"); end != "reset" {
		t.Errorf("got %q; want reset", end)
	}
}

// TestResetUnderLoad checks that nothing that runs or waits during a reset changes anything
// after it. The handlers answer just when they are cut off.
func TestResetUnderLoad(t *testing.T) {
	slow(t)
	t.Parallel()
	tasks := size(800, 10_000)
	var calls, ends atomic.Int64
	handler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		select { // half of them race their answers with the reset
		case <-r.Context().Done():
		case <-time.After(time.Duration(calls.Load()%100) * 10 * time.Millisecond):
			fmt.Fprint(w, `1`)
		}
		ends.Add(1)
	}))
	t.Cleanup(handler.Close)
	s := newFixtureServer(t, serviceTest{
		config: func(c *Config) { c.Worker.HTTPConcurrency, c.Worker.Concurrency = 100, 20_000 },
		extra: []string{sleepTemplate("wait", time.Second), testTemplate("call", stepSpec{name: "a", callable: handler.URL, timeout: 60},
			stepSpec{name: "b", callable: "builtin:noop", after: []string{"a"}}),
			testTemplate("retry", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`,
				retry: `{"max_attempts":9,"backoff_base_ms":1000}`})},
	})
	virgin := metricLines(string(s.do("GET", "/metrics", "").body))
	old := s.world.service()
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := worker; i < tasks; i += 8 {
				s.create(fmt.Sprintf(`{"namespace":"t","name":%q}`, []string{"wait", "call", "retry"}[i%3]))
			}
		})
	}
	wg.Wait()
	eventually(t, "handlers run", func() bool { return calls.Load() > 50 })
	began := realNow()
	s.do("POST", "/_stepwell/reset", "").want(204)
	t.Logf("the reset of %d tasks took %v", tasks, realNow().sub(began))
	s.wantEmpty(virgin)
	s.world.ending.Wait()
	eventually(t, "the handlers have ended", func() bool { return ends.Load() == calls.Load() })
	s.wantEmpty(virgin)
	if _, err := old.store.update(func(*change) error { return nil }); kindOf(err) != unavailable {
		t.Errorf("the service of before takes a change: %v", err)
	}
	s.create(`{"namespace":"t","name":"retry"}`)
	if got := s.do("GET", "/v1/tasks", "").want(200).text("pagination.total_count"); got != "1" {
		t.Errorf("got %s tasks; want the new one alone", got)
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

// used makes a sandbox do a bit of everything; it waits for something that never comes.
func (s *fixtureServer) used(c *sandboxClient) *sandboxClient {
	s.t.Helper()
	c.create(`{"namespace":"t","name":"quick"}`)
	c.create(`{"namespace":"t","name":"hour"}`)
	c.create(`{"namespace":"t","name":"retried"}`)
	c.clock(`{"freeze":true}`).want(200)
	c.worker.do("GET", "/v1/templates", "").want(200)
	c.mount.do("GET", "/analytics/performance", "").want(200)
	return c
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
