package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// TestHeldOutcomeHoldsNobodyUp ends a delay while the disk is full: other timers continue, and
// the outcome is recorded once there is room.
func TestHeldOutcomeHoldsNobodyUp(t *testing.T) {
	slow(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clock, disk := newVirtualClock(testStart), newMemDisk()
		s := newTestService(t, serviceTest{
			clock: clock, disk: disk, dir: "/data", log: io.Discard,
			extra: []string{testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":1000}`})},
		})
		v := mustCreate(t, s, "slow")
		fillDisk(t, s, disk, "slow")
		advanced := make(chan struct{})
		go func() {
			clock.advance(time.Minute)
			close(advanced)
		}()
		if _, ok := receiveWithin(advanced, 10*time.Second); !ok {
			t.Fatal("the clock does not advance while an outcome is held")
		}
		wantStates(t, settled(t, s, v.id), "steps_in_process: in_progress")
		disk.setCapacity(1 << 40)
		eventually(t, "the held outcome to be recorded", func() bool {
			return settled(t, s, v.id).state == taskComplete
		})
	})
}

// wantFreeSlots fails the test unless every slot is free and nothing runs.
func wantFreeSlots(t *testing.T, s *service) {
	t.Helper()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	e, c := s.engine, &s.cfg.Worker
	if e.queues.local.free != c.Concurrency || e.queues.web.free != c.HTTPConcurrency || len(e.work.running) != 0 {
		t.Errorf("got %d and %d free slots and %d running; want %d, %d and 0",
			e.queues.local.free, e.queues.web.free, len(e.work.running), c.Concurrency, c.HTTPConcurrency)
	}
}

// TestSlotOfAnAbandonedAttempt cancels a task whose handler still waits for the disk:
// the step that waits for its slot must get it.
func TestSlotOfAnAbandonedAttempt(t *testing.T) {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	defer h.Close()
	s := newTestService(t, serviceTest{dir: t.TempDir(),
		config: func(c *Config) { c.Worker.HTTPConcurrency = 1 },
		extra:  []string{testTemplate("web", stepSpec{name: "a", callable: h.URL})}})
	release := holdFlusher(t, s)
	first, second := createAside(t, s, "web"), createAside(t, s, "web")
	gone, cancel := context.WithCancel(t.Context())
	cancel() // the answer would wait for the disk
	if _, err := s.operator.cancelTask(gone, first, taskActor{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v; want the cancellation to be under way", err)
	}
	eventually(t, "the slot to be free again or taken", func() bool {
		s.store.mu.Lock()
		defer s.store.mu.Unlock()
		for k := range s.engine.work.running {
			if k.task == first {
				return false
			}
		}
		return true
	})
	release()
	eventually(t, "the second task to complete", func() bool {
		v, err := s.store.view(second)
		return err == nil && v.state == taskComplete
	})
}

// TestNoDescriptorIsNoAttempt runs a step with one attempt whose handler cannot be called at
// first, because no socket can be opened.
func TestNoDescriptorIsNoAttempt(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{
		"no socket":               &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)},
		"no socket in the system": &net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.ENFILE)},
		"no look-up":              &net.DNSError{Err: "dial udp 127.0.0.53:53: socket: too many open files", Name: "h"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, `{"success":true,"result":%q}`, r.Header.Get("Idempotency-Key"))
			}))
			defer h.Close()
			logged := &logText{}
			s := newTestService(t, serviceTest{log: logged,
				extra: []string{testTemplate("web", stepSpec{name: "a", callable: h.URL, retry: `{"max_attempts":1}`})}})
			var refused atomic.Int32
			s.handlers.web.connections.(*handlerTransport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if refused.Add(1) <= 3 {
					return nil, refusal
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			v := mustCreate(t, s, "web")
			eventually(t, "the task to end", func() bool { return must(s.store.view(v.id))(t).state.final() })
			v = must(s.store.view(v.id))(t)
			if step := v.steps[0]; v.state != taskComplete || step.attempts != 1 || refused.Load() != 4 {
				t.Errorf("got the task %v after %d attempts and %d calls; want it complete after 1 and 4", v.state,
					step.attempts, refused.Load())
			}
			if n := strings.Count(logged.String(), "too many open files"); n != 2 { // in the message, and in the error
				t.Errorf("logged %d times, want once:\n%s", n, logged)
			}
		})
	}
}

// holdFlusher stops the journal's writer until release is called.
func holdFlusher(t *testing.T, s *service) (release func()) {
	t.Helper()
	held, gate := make(chan struct{}), make(chan struct{})
	go s.store.journal.during(func() error {
		close(held)
		<-gate
		return nil
	})
	<-held
	release = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(release)
	return release
}

// createAside creates a task without waiting for the disk, and returns its id.
func createAside(t *testing.T, s *service, name string) uuid {
	t.Helper()
	q := must(parseTaskRequest(fmt.Appendf(nil, `{"namespace":"t","name":%q}`, name)))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.store.mu.Lock()
	pos := len(s.store.tasks.slots)
	s.store.mu.Unlock()
	if _, err := s.createTask(ctx, q, true); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v; want the creation to be under way", err)
	}
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.tasks.slots[pos].id
}

// fillDisk creates tasks until the disk is full and the space set aside is used up.
func fillDisk(t *testing.T, s *service, disk *memDisk, name string) {
	t.Helper()
	disk.setCapacity(1 << 40)
	disk.setCapacity(1<<40 - must(disk.free("/data"))(t))
	filler := `{"namespace":"t","name":"` + name + `","context":{"a":"` + strings.Repeat("x", 900_000) + `"}}`
	var err error
	for i := 0; i < 40 && err == nil; i++ {
		_, err = parseAndCreate(s, filler)
	}
	if kindOf(err) != unavailable {
		t.Fatalf("got %v on a full disk; want unavailable", err)
	}
}

// laggingClock is a virtual clock whose next answer lags behind, once.
type laggingClock struct {
	*virtualClock
	lag atomic.Int64 // microseconds
}

func (c *laggingClock) now() instant { return c.virtualClock.now() - instant(c.lag.Swap(0)) }

// waitingTemplate returns a template whose step waits for its retry for a second.
var waitingTemplate = testTemplate("waiting", stepSpec{name: "a", callable: "builtin:flaky",
	retry: `{"backoff":"linear","backoff_base_ms":1000,"max_backoff_ms":1000}`})

// TestRetrySurvivesAClockSetBack sets the clock back after the timer of a retry fired,
// before the engine checks whether the retry is due.
func TestRetrySurvivesAClockSetBack(t *testing.T) {
	clock := &laggingClock{virtualClock: newVirtualClock(testStart)}
	s := newTestService(t, serviceTest{clock: clock, extra: []string{waitingTemplate},
		config: func(c *Config) { c.Engine.Jitter = false }})
	v := mustCreate(t, s, "waiting")
	wantStates(t, settled(t, s, v.id), "waiting_for_retry: waiting_for_retry")
	clock.lag.Store(1)
	clock.advance(time.Second)
	wantStates(t, settled(t, s, v.id), "complete: complete")
}

// TestClosedServiceIsForgotten lets timers fall due after their service ended: they do
// not keep it in memory.
func TestClosedServiceIsForgotten(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := openTestService(t, serviceTest{clock: clock, extra: []string{waitingTemplate}})
	mustCreate(t, s, "waiting")
	closeTestService(t, s)
	e := weak.Make(s.engine)
	s = nil
	clock.advance(time.Hour)
	eventually(t, "the engine to be forgotten", func() bool {
		runtime.GC()
		return e.Value() == nil
	})
}

// TestAttemptOvertakenWhileComputing fails and retries a step by hand while its builtin
// computes: its outcome belongs to no attempt then.
func TestAttemptOvertakenWhileComputing(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, extra: []string{
		testTemplate("first", stepSpec{name: "a", callable: "builtin:noop", retry: `{"backoff":"none"}`})}})
	tpl, _ := s.templates.registry().get("t", "first", "")
	var numbers []int
	s.store.mu.Lock()
	s.engine.targets[tpl] = []target{{kind: builtinHandler, builtin: &builtin{
		do: func(a *attempt, _ *memberReader) (outcome, time.Duration) {
			numbers = append(numbers, a.number)
			if len(numbers) == 1 {
				overtake(t, s, clock)
			}
			return outcome{success: true, result: fmt.Append(nil, a.number)}, 0
		}}}}
	s.store.mu.Unlock()
	v := settled(t, s, mustCreate(t, s, "first").id)
	wantStates(t, v, "complete: complete")
	if got := string(v.steps[0].last.result); got != "2" || v.steps[0].attempts != 2 {
		t.Errorf("attempt %d completed the step with the result of attempt %s; want 2 and 2", v.steps[0].attempts, got)
	}
}

// overtake fails the newest task's first step by hand, and lets its retry fall due.
func overtake(t *testing.T, s *service, clock *virtualClock) {
	s.store.mu.Lock()
	v := s.store.tasks.slots[len(s.store.tasks.slots)-1].live.clone()
	s.store.mu.Unlock()
	q := retryAction
	q.by, q.reason = "ops", "because"
	if _, _, err := s.operator.act(t.Context(), v.id, v.stepID(0), &q); err != nil {
		t.Error(err)
	}
	clock.advance(0)
}

// settled returns a task once the service has settled.
func settled(t *testing.T, s *service, id uuid) *task {
	t.Helper()
	settle(s)
	return must(s.store.view(id))(t)
}

func TestBackoff(t *testing.T) {
	for _, tc := range []struct {
		kind       backoffKind
		base, most int
		want       []int // milliseconds after 1, 2, 3, … attempts
	}{
		{backoffNone, 1000, 30000, []int{0, 0, 0}},
		{backoffLinear, 1000, 30000, []int{1000, 2000, 3000, 4000}},
		{backoffLinear, 1000, 2500, []int{1000, 2000, 2500}},
		{backoffExponential, 1000, 30000, []int{1000, 2000, 4000, 8000, 16000, 30000, 30000}},
		{backoffFibonacci, 1000, 30000, []int{1000, 1000, 2000, 3000, 5000, 8000, 13000, 21000, 30000}},
		{backoffExponential, 0, 30000, []int{0, 0}},
	} {
		p := &retryPolicy{Backoff: tc.kind, BaseMS: tc.base, MaxMS: tc.most}
		exact := &outcomeRules{}
		jitter := &outcomeRules{jitter: true, ids: newIDSource(newVirtualClock(0), new([32]byte))}
		for i, want := range tc.want {
			d := time.Duration(want) * time.Millisecond
			if got := exact.backoff(p, i+1, 0, uuid{}); got != d {
				t.Errorf("%s after %d attempts: got %s; want %s", tc.kind, i+1, got, d)
			}
			for range 100 {
				got := jitter.backoff(p, i+1, 0, uuid{})
				if got < d*9/10 || got > min(d*11/10, time.Duration(tc.most)*time.Millisecond) {
					t.Fatalf("%s after %d attempts with jitter: got %s; want %s ± 10 %%, at most %d ms", tc.kind, i+1, got, d, tc.most)
				}
			}
		}
	}
	e := &outcomeRules{}
	p := &retryPolicy{Backoff: backoffLinear, BaseMS: 1000, MaxMS: 2000}
	if got := e.backoff(p, 1, 90*time.Second, uuid{}); got != 90*time.Second {
		t.Errorf("Retry-After: got %s; want it to win", got)
	}
	if got := e.backoff(p, 1, 5*time.Hour, uuid{}); got != time.Hour {
		t.Errorf("a long Retry-After: got %s; want it capped at 1h", got)
	}
	if got := e.backoff(&retryPolicy{Backoff: backoffExponential, BaseMS: 1000, MaxMS: 30000}, 5000, 0, uuid{}); got != 30*time.Second {
		t.Errorf("after 5000 attempts: got %s; want 30s", got)
	}
}

func TestSlotsAndPriority(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock,
		config: func(c *Config) { c.Worker.Concurrency = 1 },
		extra:  []string{testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":1000}`})}})
	var ids []uuid
	for _, priority := range []string{"0", "0", "5", "-5", "5"} {
		ids = append(ids, mustCreate(t, s, "slow", `"priority":`+priority).id)
	}
	order := []int{}
	for range ids {
		eventually(t, "one task runs, no more", func() bool {
			s.store.mu.Lock()
			defer s.store.mu.Unlock()
			return len(s.engine.work.running) == 1
		})
		clock.advance(time.Second)
		for i, id := range ids {
			if settled(t, s, id).state == taskComplete && !slices.Contains(order, i) {
				order = append(order, i)
			}
		}
	}
	if want := []int{0, 2, 4, 1, 3}; !slices.Equal(order, want) {
		t.Errorf("tasks completed in the order %v; want %v", order, want)
	}
}

// createBatches returns the result of a batchable step with n cursors.
func createBatches(worker string, n int) string {
	cursors := make([]string, n)
	for i := range cursors {
		cursors[i] = fmt.Sprintf(`{"start_cursor":%d,"end_cursor":%d}`, i*10, i*10+10)
	}
	return fmt.Sprintf(`{"batch_processing_outcome":{"type":"create_batches","worker_template_name":%q,"worker_count":%d,`+
		`"cursor_configs":[%s],"total_items":%d}}`, worker, n, strings.Join(cursors, ","), n*10)
}

// batchSteps returns a batch of instances for outside actors and a convergence, with a
// failure_strategy and a parallelism.
func batchSteps(strategy string, parallelism int) []stepSpec {
	work := stepOf(stepBatchWorker, "w", "split")
	work.retry = `{"max_attempts":1}`
	work.batch = fmt.Sprintf(`{"batch_size":10,"parallelism":%d,"cursor_field":"id","worker_template":"w","failure_strategy":%q}`,
		parallelism, strategy)
	return []stepSpec{stepOf(stepBatchable, "split"), work, stepOf(stepDeferredConvergence, "end", "w"), stepOf("", "last", "end")}
}

// TestParallelism checks that at most so many instances of a batch worker are offered or run at
// once, in the order of their creation, that an explanation says so, and that this holds after
// failures, actions of operators and a restart.
func TestParallelism(t *testing.T) {
	dir, steps := t.TempDir(), batchSteps("continue_on_failure", 2)
	a := newActor(t, serviceTest{dir: dir}, steps...)
	a.completeWith("split", createBatches("w", 6))
	offered := func(want string) {
		t.Helper()
		var names []string
		for _, v := range a.s.outside.steps(false, true, false, func(claimKey) bool { return true }, 0, 100) {
			names = append(names, v.name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Fatalf("got %s offered; want %s: %s", got, want, grown(a.view()))
		}
	}
	claim := func() []claimedStep {
		return must(a.s.outside.claim(t.Context(), &claimRequest{callables: []string{"*"}, limit: 10, lease: time.Hour, worker: "me"}))(t)
	}
	offered("w_001 w_002")
	a.complete("w_001")
	offered("w_002 w_003")
	noError(t, a.act("w_004", resolveAction)) // which waits
	offered("w_002 w_003")
	if given := claim(); len(given) != 2 {
		t.Fatalf("got %d steps claimed; want 2", len(given))
	}
	offered("")
	closeTestService(t, a.s)
	a.s = newTestService(t, serviceTest{dir: dir, extra: []string{actorTemplate(steps...)}})
	offered("")
	x := must(a.s.engine.explain(a.id, nil, true))(t)
	if got := x.Steps[2]; got.Name != "w_005" || got.Cause != causeBatch || got.Message != "waits for other parts of its batch: 2 of 2 at once" {
		t.Errorf("got %s, %s: %s", got.Name, got.Cause, got.Message)
	}
	noError(t, a.act("w_002", failAction))
	offered("w_005")
	a.complete("w_003", "w_005", "w_006")
	a.want("blocked_by_failures: split=complete w_001=complete w_002=error w_003=complete w_004=resolved_manually " +
		"w_005=complete w_006=complete end=pending last=pending")
}
