package main

// Tests of waiting: a wait notices its state whenever it begins, and leaves nothing behind
// however it ends.

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// awaitWaiters waits until there are n waiters.
func awaitWaiters(t *testing.T, s *service, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " waiters"), func() bool { return waiting(s) == n })
}

func waiting(s *service) int {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.waiters.count
}

// wantNobody fails the test if a waiter is left.
func wantNobody(t *testing.T, s *service) {
	t.Helper()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if w := &s.store.waiters; w.count != 0 || len(w.byTask) != 0 {
		t.Errorf("%d waiters for %d tasks are left", w.count, len(w.byTask))
	}
}

// waitedService returns a service with a task whose step waits for an actor.
func waitedService(t *testing.T) (*service, *task) {
	t.Helper()
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart),
		extra: []string{testTemplate("one", stepSpec{name: "a", callable: "Outside"})}})
	return s, mustCreate(t, s, "one")
}

// nothing is what waiters find that do not look.
func nothing() keptTask { return keptTask{} }

// TestWaiters tests the registry of waiters alone, with every pair of states.
func TestWaiters(t *testing.T) {
	id := uuid{1}
	for to := range taskStates {
		for wanted := range taskStates {
			w := waiters{byTask: map[uuid][]*waiter{}}
			n := w.join(id, setOf(wanted), taskStates)
			w.moved(uuid{2}, wanted)
			if w.notify(uuid{2}, nothing) {
				t.Fatal("another task's transition is due")
			}
			w.moved(id, to)
			due := w.notify(id, nothing)
			switch {
			case to == wanted && (!n.finished() || n.end != waitReached):
				t.Errorf("in %s: got %t, %q; want it released", to, n.finished(), n.end)
			case to != wanted && to.final() && (!n.finished() || n.end != waitEnded):
				t.Errorf("for %s in %s: got %t, %q; want it ended", wanted, to, n.finished(), n.end)
			case to != wanted && !to.final() && (n.finished() || due || w.count != 1):
				t.Errorf("for %s in %s: it was released; want it to wait", wanted, to)
			}
			if n.finished() && (w.count != 0 || len(w.byTask) != 0) {
				t.Errorf("%d waiters are left", w.count)
			}
		}
	}
}

// TestWaitOfOneThatEndsOtherwise expects a wait to end once its state cannot be
// reached any more.
func TestWaitOfOneThatEndsOtherwise(t *testing.T) {
	s, v := waitedService(t)
	n := must(s.store.waiters.await(v.id, setOf(taskError)))(t)
	mustAct(t, s, v, 0, completeAction)
	got, end, err := s.tasks.waitOut(t.Context(), n, time.Hour)
	if err != nil || end != waitEnded || got.state != taskComplete {
		t.Errorf("got %v, %q, %v; want it complete and ended", got, end, err)
	}
	got, end, err = s.tasks.await(t.Context(), v.id, setOf(taskError), time.Hour)
	if err != nil || end != waitEnded || got.state != taskComplete {
		t.Errorf("afterwards: got %v, %q, %v; want it complete and ended", got, end, err)
	}
}

// TestWaitOfADroppedTask expects a wait to end when its task is dropped.
func TestWaitOfADroppedTask(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, config: retaining(1), extra: append(storyTemplates, staleErrorTemplate())})
	v := mustCreate(t, s, "stale")
	clock.advance(15 * time.Minute)
	n, err := s.store.waiters.await(v.id, setOf(taskComplete))
	if err != nil || n.finished() {
		t.Fatalf("got %v, released %t; want to wait for what an operator may bring about", err, n.finished())
	}
	mustCreate(t, s, "noop")
	if !n.finished() {
		t.Fatal("it is waited for still after it was dropped")
	}
	got, end, err := s.tasks.waitOut(t.Context(), n, time.Hour)
	if err != nil || end != waitEnded || got.state != taskError {
		t.Errorf("got %v, %q; want the task in error, as it was dropped", err, end)
	}
	wantNobody(t, s)
}

// TestWaitLimit waits on real time, whatever the service's clock does.
func TestWaitLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, v := waitedService(t)
		began := time.Now()
		got, end, err := s.tasks.await(t.Context(), v.id, terminalStates, 10*time.Second)
		if err != nil || end != waitTimedOut || got.state != taskStepsInProcess {
			t.Errorf("got %v, %q, %v; want a timeout", got, end, err)
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("it took %s; want 10 s", took)
		}
		wantNobody(t, s)
	})
}

// TestWaitAtShutdown checks that a wait is answered with the current state when the shutdown
// begins, and a later one at once.
func TestWaitAtShutdown(t *testing.T) {
	s, v := waitedService(t)
	ended := make(chan waitEnd)
	go func() {
		got, end, err := s.tasks.await(t.Context(), v.id, terminalStates, time.Hour)
		if err != nil || got.state != taskStepsInProcess {
			t.Errorf("got %v, %v; want the task as it is", got, err)
		}
		ended <- end
	}()
	awaitWaiters(t, s, 1)
	s.finish(t.Context())
	if end := <-ended; end != waitShutdown {
		t.Errorf("got %q; want shutdown", end)
	}
	if _, end, err := s.tasks.await(t.Context(), v.id, terminalStates, time.Hour); err != nil || end != waitShutdown {
		t.Errorf("a later wait: got %q, %v; want shutdown", end, err)
	}
	if _, end, err := s.tasks.await(t.Context(), v.id, setOf(taskStepsInProcess), 0); err != nil || end != waitReached {
		t.Errorf("a later wait for what is: got %q, %v; want it reached", end, err)
	}
	wantNobody(t, s)
}

// TestWaitOutlivesDeadlines waits longer than the server's deadlines.
func TestWaitOutlivesDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := testTemplate("one", stepSpec{name: "a", callable: "Outside"})
		p := newPipedServer(t, serviceTest{extra: []string{one}})
		v := mustCreate(t, p.svc, "one")
		const body = `{"namespace":"t","name":"one"}`
		for _, request := range []string{
			"GET /v1/tasks/" + v.id.String() + "?wait=terminal&timeout=10m HTTP/1.1\r\nHost: localhost\r\n\r\n",
			fmt.Sprintf("POST /v1/tasks?wait=10m HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
				"Content-Length: %d\r\n\r\n%s", len(body), body),
		} {
			a := p.answerOn(p.dial(request))
			if a.header.Get("X-Stepwell-Wait") != "timeout" || a.text("status") != "steps_in_process" {
				t.Errorf("%s: got %d %v %s; want a timeout", request, a.status, a.header, a.body)
			}
		}
	})
}

// TestWaitOfALostConnection expects no waiter to be left when connections break.
func TestWaitOfALostConnection(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "testdata/templates"})
	id := s.create(manualTask)
	for _, request := range []string{
		"GET /v1/tasks/" + id + "?wait=terminal&timeout=1h HTTP/1.1\r\nHost: localhost\r\n\r\n",
		fmt.Sprintf("POST /v1/tasks?wait=1h HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
			"Idempotency-Key: k\r\nContent-Length: %d\r\n\r\n%s", len(manualTask), manualTask),
	} {
		c := must(net.Dial("tcp", strings.TrimPrefix(s.url, "http://")))(t)
		w := bufio.NewWriter(c)
		w.WriteString(request)
		noError(t, w.Flush())
		awaitWaiters(t, s.svc, 1)
		c.Close()
		awaitWaiters(t, s.svc, 0)
		wantNobody(t, s.svc)
	}
	eventually(t, "the request with the key to end", func() bool {
		return keyed(s, "/v1/tasks", manualTask, "k").status == 201
	})
}

// TestWaitStress creates, awaits, changes and cancels tasks at the same time.
// Every wait must end.
func TestWaitStress(t *testing.T) {
	t.Parallel()
	s := newTestService(t, serviceTest{dir: t.TempDir(), config: func(c *Config) { c.Store.Sync = "never" }, extra: []string{
		testTemplate("one", stepSpec{name: "a", callable: "Outside"}),
		testTemplate("quick", stepSpec{name: "a", callable: "builtin:noop"},
			stepSpec{name: "b", callable: "builtin:noop", after: []string{"a"}}),
		testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":1}`}),
		testTemplate("fails", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":false}`}),
	}})
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 60 {
				name := []string{"one", "quick", "slow", "fails"}[(worker+i)%4]
				stressOne(t, s, name, i)
			}
		})
	}
	wg.Wait()
	wantNobody(t, s)
}

// stressOne creates a task, waits for it in three ways, and ends it unless it has
// ended.
func stressOne(t *testing.T, s *service, name string, i int) {
	body := fmt.Sprintf(`{"namespace":"t","name":%q}`, name)
	q, err := parseTaskRequest([]byte(body))
	if err != nil {
		t.Error(err)
		return
	}
	if name != "one" && i%2 == 0 { // its creator waits
		done, err := s.tasks.submit(t.Context(), &submission{taskRequest: q, wants: terminalStates, limit: time.Minute})
		if err != nil || done.end != waitReached || !terminalStates.has(done.task.state) {
			t.Errorf("%s: got %+v, %v; want its end", name, done, err)
		}
		return
	}
	made, err := s.createTask(t.Context(), q, true)
	if err != nil {
		t.Error(err)
		return
	}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			got, end, err := s.tasks.await(t.Context(), made.id, terminalStates, time.Minute)
			if err != nil || end != waitReached || !terminalStates.has(got.state) {
				t.Errorf("%s: got %v, %q, %v; want its end", name, got, end, err)
			}
		})
	}
	wg.Go(func() { // times out at once, or sees the end
		if _, _, err := s.tasks.await(t.Context(), made.id, terminalStates, 0); err != nil {
			t.Error(err)
		}
	})
	if name == "one" {
		if _, err := s.operator.cancelTask(t.Context(), made.id, taskActor{}); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}
