package main

// Tests of waiting: a wait notices its state whenever it begins, and leaves nothing behind
// however it ends.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"stepwell/e2e/wire"
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

// awaitedMove is a transition of a task, and how to cause it.
type awaitedMove struct {
	name     string
	template string
	before   []stepRequest // actions on the first step, before the move
	do       func(t *testing.T, s *service, v *task)
	passes   []string // states that it passes through
	to       string
}

func acting(q stepRequest) func(*testing.T, *service, *task) {
	return func(t *testing.T, s *service, v *task) { mustAct(t, s, v, 0, q) }
}

func cancelling(t *testing.T, s *service, v *task) {
	if _, err := s.operator.cancelTask(t.Context(), v.id, taskActor{}); err != nil {
		t.Error(err)
	}
}

func passing(d time.Duration) func(*testing.T, *service, *task) {
	return func(_ *testing.T, s *service, _ *task) { s.clock.(*virtualClock).advance(d) }
}

var moves = []awaitedMove{
	{"an actor completes the last step", "one", nil, acting(completeAction), []string{"evaluating_results"}, "complete"},
	{"an actor completes a step", "two", nil, acting(completeAction),
		[]string{"evaluating_results", "enqueuing_steps"}, "steps_in_process"},
	{"a step fails for good", "one", nil, acting(failAction), []string{"evaluating_results"}, "blocked_by_failures"},
	{"a step fails for now", "one", nil, acting(retryAction), []string{"evaluating_results"}, "waiting_for_retry"},
	{"a retry is due", "one", []stepRequest{retryAction}, passing(time.Hour),
		[]string{"evaluating_results", "enqueuing_steps"}, "steps_in_process"},
	{"a failed step is reset", "one", []stepRequest{failAction}, acting(resetAction),
		[]string{"evaluating_results", "enqueuing_steps"}, "steps_in_process"},
	{"a failed step is resolved", "one", []stepRequest{failAction}, acting(resolveAction),
		[]string{"evaluating_results"}, "complete"},
	{"the task is cancelled", "one", nil, cancelling, nil, "cancelled"},
	{"a blocked task is cancelled", "one", []stepRequest{failAction}, cancelling, nil, "cancelled"},
	{"the task is found stale", "stale", nil, passing(time.Hour), nil, "error"},
}

func (m *awaitedMove) service(t *testing.T) (*service, *task) {
	t.Helper()
	outside := stepSpec{name: "a", callable: "Outside", retry: `{"backoff_base_ms":60000}`}
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: []string{
		testTemplate("one", outside),
		testTemplate("two", outside, stepSpec{name: "b", callable: "Outside", after: []string{"a"}}),
		withLifecycle(testTemplate("stale", outside), `{"staleness_action":"error"}`),
	}})
	v := mustCreate(t, s, m.template)
	for _, q := range m.before {
		v = mustAct(t, s, v, 0, q)
	}
	return s, v
}

// stateOf returns the states that a word of the API means.
func stateOf(t *testing.T, word string) stateSet {
	t.Helper()
	if word == "terminal" {
		return terminalStates
	}
	s, ok := parseTaskState(word)
	if !ok {
		t.Fatalf("no state %s", word)
	}
	return setOf(s)
}

// words returns the states to wait for that the move reaches.
func (m *awaitedMove) words() []string {
	s, _ := parseTaskState(m.to)
	if terminalStates.has(s) {
		return []string{m.to, "terminal"}
	}
	return []string{m.to}
}

// TestWaitBefore begins to wait before each transition, for the state that it leads to and
// those that it passes through.
func TestWaitBefore(t *testing.T) {
	t.Parallel()
	for _, m := range moves {
		for _, word := range append(m.words(), m.passes...) {
			t.Run(m.name+"/"+word, func(t *testing.T) {
				s, v := m.service(t)
				if v.state.String() == word || word == "terminal" && terminalStates.has(v.state) {
					wire.Skip(t, "it holds already")
				}
				n := must(s.store.waiters.await(v.id, stateOf(t, word)))(t)
				if n.finished() {
					t.Fatal("the waiter was released before the transition")
				}
				m.do(t, s, v)
				wantTold(t, s, n, m.to)
				wantNobody(t, s)
			})
		}
	}
}

// wantTold fails the test unless the waiter is done and found the state.
func wantTold(t *testing.T, s *service, n *waiter, state string) {
	t.Helper()
	got, end := must2(s.tasks.waitOut(t.Context(), n, 0))(t)
	if end != waitReached || got.state.String() != state {
		t.Errorf("got %s, %q; want %s", got.state, end, state)
	}
}

// TestWaitAfter begins to wait after the transition, and again.
func TestWaitAfter(t *testing.T) {
	t.Parallel()
	for _, m := range moves {
		for _, word := range m.words() {
			t.Run(m.name+"/"+word, func(t *testing.T) {
				s, v := m.service(t)
				m.do(t, s, v)
				for range 2 {
					n := must(s.store.waiters.await(v.id, stateOf(t, word)))(t)
					wantTold(t, s, n, m.to)
				}
				wantNobody(t, s)
			})
		}
	}
}

// TestWaitWhile runs waits and the transition at the same time.
func TestWaitWhile(t *testing.T) {
	t.Parallel()
	for _, m := range moves {
		for _, word := range m.words() {
			t.Run(m.name+"/"+word, func(t *testing.T) {
				s, v := m.service(t)
				var wg sync.WaitGroup
				s.store.mu.Lock()
				for range 8 {
					wg.Go(func() {
						got, end, err := s.tasks.await(t.Context(), v.id, stateOf(t, word), time.Hour)
						if err != nil || end != waitReached || !stateOf(t, word).has(got.state) {
							t.Errorf("got %v, %q, %v; want %s", got, end, err, word)
						}
					})
				}
				wg.Go(func() { m.do(t, s, v) })
				s.store.mu.Unlock()
				wg.Wait()
				wantNobody(t, s)
			})
		}
	}
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

// TestWaitersOfOneTask releases some waiters of a task and keeps others.
func TestWaitersOfOneTask(t *testing.T) {
	w := waiters{byTask: map[uuid][]*waiter{}}
	id := uuid{1}
	var all []*waiter
	for i := range 12 {
		all = append(all, w.join(id, setOf(taskState(i%3)), taskStates))
	}
	w.withdraw(all[4], waitTimedOut, keptTask{})
	w.withdraw(all[4], waitShutdown, keptTask{}) // no more than once
	w.moved(id, 0)
	if !w.notify(id, nothing) {
		t.Fatal("no waiter was released")
	}
	w.withdraw(all[11], waitTimedOut, keptTask{})
	for i, n := range all {
		want := i%3 == 0 || i == 4 || i == 11
		if n.finished() != want {
			t.Errorf("waiter %d: released %t; want %t", i, n.finished(), want)
		}
	}
	if all[4].end != waitTimedOut || w.count != 6 {
		t.Errorf("got %q, %d left; want a timeout and 6", all[4].end, w.count)
	}
	w.releaseAll(waitReset)
	if all[1].end != waitReset || all[0].end != waitReached || w.count != 0 || w.tasks != nil {
		t.Errorf("got %q, %q and %d left; want all released", all[1].end, all[0].end, w.count)
	}
}

// TestWaitOfOneThatEndsOtherwise expects a wait to end once its state cannot be
// reached any more.
func TestWaitOfOneThatEndsOtherwise(t *testing.T) {
	m := moves[0]
	s, v := m.service(t)
	n := must(s.store.waiters.await(v.id, setOf(taskError)))(t)
	m.do(t, s, v)
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
		s, v := moves[0].service(t)
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

// TestWaitOfAClientThatIsGone expects a wait to end with its request.
func TestWaitOfAClientThatIsGone(t *testing.T) {
	s, v := moves[0].service(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, _, err := s.tasks.await(ctx, v.id, terminalStates, time.Hour)
		ended <- err
	}()
	awaitWaiters(t, s, 1)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want the cancellation", err)
	}
	wantNobody(t, s)
}

// TestWaitAtShutdown checks that a wait is answered with the current state when the shutdown
// begins, and a later one at once.
func TestWaitAtShutdown(t *testing.T) {
	s, v := moves[0].service(t)
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

// TestWaitIsDurable expects a waiter to be answered only once the end is on disk.
func TestWaitIsDurable(t *testing.T) {
	s := newTestService(t, serviceTest{dir: t.TempDir(),
		extra: []string{testTemplate("one", stepSpec{name: "a", callable: "Outside"})}})
	v := mustCreate(t, s, "one")
	n := must(s.store.waiters.await(v.id, terminalStates))(t)
	release := holdFlusher(t, s)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.operator.cancelTask(gone, v.id, taskActor{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v; want the cancellation to be under way", err)
	}
	if !n.finished() {
		t.Fatal("the waiter was not released")
	}
	if _, _, err := s.tasks.waitOut(gone, n, time.Hour); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v; want an answer to wait for the disk", err)
	}
	release()
	got, end, err := s.tasks.waitOut(t.Context(), n, time.Hour)
	if err != nil || end != waitReached || got.state != taskCancelled {
		t.Fatalf("got %v, %q, %v; want it cancelled", got, end, err)
	}
	if durable := s.store.journal.groups.durable(); durable < got.lastSeq {
		t.Errorf("released by record %d with %d on disk", got.lastSeq, durable)
	}
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
		return keyed(t, s, "/v1/tasks", manualTask, "k").status == 201
	})
}

// TestManyWaiters releases 10,000 waiters, spread unevenly over a hundred tasks,
// in each possible way.
func TestManyWaiters(t *testing.T) {
	t.Parallel()
	slow(t)
	const many = 10_000
	m := moves[0]
	s, one := m.service(t)
	ids := []uuid{one.id}
	for range 99 {
		ids = append(ids, mustCreate(t, s, "one").id)
	}
	for _, tc := range []struct {
		name    string
		release func(cancel func())
		end     waitEnd
		err     error
	}{
		{"their clients go", func(cancel func()) { cancel() }, "", context.Canceled},
		{"a reset", func(func()) { s.store.locked(func() { s.store.waiters.releaseAll(waitReset) }) }, waitReset, nil},
		{"their tasks end", func(func()) {
			for _, id := range ids {
				if _, err := s.operator.cancelTask(t.Context(), id, taskActor{}); err != nil {
					t.Error(err)
				}
			}
		}, waitReached, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var wg sync.WaitGroup
			for i := range many {
				n := must(s.store.waiters.await(ids[i*i%len(ids)], terminalStates))(t)
				wg.Go(func() {
					if _, end, err := s.tasks.waitOut(ctx, n, time.Hour); end != tc.end || !errors.Is(err, tc.err) {
						t.Errorf("got %q, %v; want %q, %v", end, err, tc.end, tc.err)
					}
				})
			}
			if n := waiting(s); n != many {
				t.Errorf("%d wait; want %d", n, many)
			}
			tc.release(cancel)
			wg.Wait()
			wantNobody(t, s)
		})
	}
}

// TestWaiterMemory measures the memory of a waiter, without that of its request.
func TestWaiterMemory(t *testing.T) {
	const many, most = 10_000, 400
	w := waiters{byTask: map[uuid][]*waiter{}}
	kept := make([]*waiter, many)
	before := heapBytes()
	for i := range kept {
		kept[i] = w.join(uuid{}.plus(i+1), terminalStates, taskStepsInProcess)
	}
	each := (heapBytes() - before) / many
	t.Logf("%d bytes a waiter", each)
	if each > most {
		t.Errorf("a waiter takes %d bytes; want at most %d", each, most)
	}
	runtime.KeepAlive(kept)
}

// TestTransitionsWithoutWaiters expects transitions of tasks without waiters to
// allocate nothing.
func TestTransitionsWithoutWaiters(t *testing.T) {
	w := waiters{byTask: map[uuid][]*waiter{}}
	for _, others := range []int{0, 1} {
		for i := range others {
			w.join(uuid{9}.plus(i), terminalStates, taskPending)
		}
		if n := testing.AllocsPerRun(100, func() {
			w.moved(uuid{1}, taskComplete)
			if w.notify(uuid{1}, nothing) {
				t.Error("a waiter was released")
			}
		}); n != 0 {
			t.Errorf("with %d waiters for others: got %v allocations; want none", others, n)
		}
	}
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
