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

func TestRetries(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock,
		config: func(c *Config) { c.Engine.Jitter = false },
		extra: []string{
			testTemplate("flaky", stepSpec{name: "a", callable: "builtin:flaky", config: `{"failures":2}`,
				retry: `{"max_attempts":3,"backoff":"exponential","backoff_base_ms":60000,"max_backoff_ms":3600000}`}),
			testTemplate("hopeless", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`,
				retry: `{"max_attempts":2,"backoff":"linear","backoff_base_ms":1000}`}),
			testTemplate("never", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`,
				retry: `{"retryable":false}`}),
			testTemplate("zero", stepSpec{name: "a", callable: "builtin:fail", config: `{"retryable":true}`,
				retry: `{"max_attempts":0}`}),
		}})
	v := mustCreate(t, s, "flaky")
	wantStates(t, v, "waiting_for_retry: waiting_for_retry")
	if got, want := v.steps[0].retryAt, testStart.add(time.Minute); got != want {
		t.Errorf("next retry: got %s; want %s", got.zoned(), want.zoned())
	}
	clock.advance(time.Minute - time.Microsecond)
	wantStates(t, settled(t, s, v.id), "waiting_for_retry: waiting_for_retry")
	clock.advance(time.Microsecond)
	wantStates(t, settled(t, s, v.id), "waiting_for_retry: waiting_for_retry")
	clock.advance(2 * time.Minute)
	v = settled(t, s, v.id)
	wantStates(t, v, "complete: complete")
	if v.steps[0].attempts != 3 {
		t.Errorf("got %d attempts; want 3", v.steps[0].attempts)
	}
	if got, want := v.completed, testStart.add(3*time.Minute); got != want {
		t.Errorf("completed at %s; want %s", got.zoned(), want.zoned())
	}
	v = mustCreate(t, s, "hopeless")
	clock.advance(time.Second)
	v = settled(t, s, v.id)
	wantStates(t, v, "blocked_by_failures: error")
	if v.steps[0].attempts != 2 {
		t.Errorf("got %d attempts; want 2", v.steps[0].attempts)
	}
	wantStates(t, mustCreate(t, s, "never"), "blocked_by_failures: error")
	wantStates(t, mustCreate(t, s, "zero"), "blocked_by_failures: error")
}

func TestSleepIsATimer(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, extra: []string{
		testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":5000}`}),
		testTemplate("late", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":5000}`, timeout: 2, retry: `{"max_attempts":1}`}),
	}})
	slow, late := mustCreate(t, s, "slow"), mustCreate(t, s, "late")
	wantStates(t, slow, "steps_in_process: in_progress")
	clock.advance(3 * time.Second)
	wantStates(t, settled(t, s, slow.id), "steps_in_process: in_progress")
	v := settled(t, s, late.id)
	wantStates(t, v, "blocked_by_failures: error")
	if got := string(v.steps[0].last.err); !strings.Contains(got, `"timeout"`) {
		t.Errorf("got %s; want a timeout", got)
	}
	clock.advance(2 * time.Second)
	v = settled(t, s, slow.id)
	wantStates(t, v, "complete: complete")
	if got := v.steps[0].last.took; got != 5*time.Second {
		t.Errorf("took %s; want 5s", got)
	}
}

// TestSlotOfADelayEndsWithItsStep takes the step away from a delay of ours, in every
// way: its slot is free at once, not when the delay is over.
func TestSlotOfADelayEndsWithItsStep(t *testing.T) {
	cancel := func(t *testing.T, s *service, v *task) {
		must(s.operator.cancelTask(t.Context(), v.id, taskActor{}))(t)
	}
	for _, tc := range []struct {
		name string
		take func(t *testing.T, s *service, v *task)
	}{
		{"the task is cancelled", cancel},
		{"the step is resolved", func(t *testing.T, s *service, v *task) { mustAct(t, s, v, 0, resolveAction) }},
		{"the step is completed", func(t *testing.T, s *service, v *task) { mustAct(t, s, v, 0, completeAction) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock := newVirtualClock(testStart)
			s := newTestService(t, serviceTest{clock: clock,
				config: func(c *Config) { c.Worker.Concurrency = 1 },
				extra: []string{testTemplate("slow",
					stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":1000}`})}})
			first, second := mustCreate(t, s, "slow"), mustCreate(t, s, "slow")
			tc.take(t, s, first)
			wantStates(t, settled(t, s, second.id), "steps_in_process: in_progress")
			clock.advance(time.Second)
			wantStates(t, settled(t, s, second.id), "complete: complete")
			wantFreeSlots(t, s)
		})
	}
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
		run: func(a *attempt) (outcome, time.Duration) {
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

// TestProgramBesideComputing runs, after a program has ended, another one and a builtin that computes until
// that one has started.
func TestProgramBesideComputing(t *testing.T) {
	t.Parallel()
	started := newPeers(t)
	s := newTestService(t, serviceTest{config: func(c *Config) { c.Worker.AllowExec = true }, extra: []string{testTemplate("fork",
		stepSpec{name: "a", callable: thisProgram(t), config: programConfig(t, "say", "1", "", "0")},
		stepSpec{name: "b", callable: thisProgram(t), config: programConfig(t, "hang", started.address()), after: []string{"a"}},
		stepSpec{name: "c", callable: "builtin:noop", after: []string{"a"}})}})
	tpl, _ := s.templates.registry().get("t", "fork", "")
	run := s.handlers.resolve(thisProgram(t))
	s.store.mu.Lock()
	s.engine.targets[tpl] = []target{run, run, {kind: builtinHandler, builtin: &builtin{
		run: func(*attempt) (outcome, time.Duration) {
			started.listener.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Second))
			if conn := started.accept(); conn != nil {
				conn.Close()
			}
			return outcome{success: true}, 0
		}}}}
	s.store.mu.Unlock()
	mustCreate(t, s, "fork")
	eventually(t, "the task to complete", func() bool { return s.store.counts().tasks[taskComplete] == 1 })
}

// TestDelaysBesideClockSteps sets the machine's clock while a step waits for its retry and
// another one's lease runs.
func TestDelaysBesideClockSteps(t *testing.T) {
	t.Parallel()
	for step, want := range map[time.Duration]time.Duration{
		-24 * time.Hour: 10 * time.Minute, -30 * time.Second: 10 * time.Minute, 0: 10 * time.Minute, 24 * time.Hour: 0,
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newSteppedMachine()
			c := startClock(m.read)
			defer c.stop()
			s := newTestService(t, serviceTest{clock: c, extra: delayTemplates, config: withoutJitter})
			v, claimed := mustCreate(t, s, "retried"), mustCreate(t, s, "claimed")
			wantStates(t, v, "waiting_for_retry: waiting_for_retry")
			must(s.outside.claim(t.Context(), claimAll(10*time.Minute)))(t)
			m.set(step)
			<-time.After(want + 2*time.Second)
			wantStates(t, settled(t, s, v.id), "complete: complete")
			wantStates(t, settled(t, s, claimed.id), "steps_in_process: enqueued")
		})
	}
}

// TestDelaysAfterClockWasSetBack restarts on a machine whose clock was set back meanwhile.
func TestDelaysAfterClockWasSetBack(t *testing.T) {
	t.Parallel()
	o := serviceTest{clock: newVirtualClock(testStart), dir: t.TempDir(), extra: delayTemplates, config: withoutJitter}
	s := openTestService(t, o)
	v, claimed := mustCreate(t, s, "retried"), mustCreate(t, s, "claimed")
	must(s.outside.claim(t.Context(), claimAll(10*time.Minute)))(t)
	clock := newVirtualClock(testStart.add(-24 * time.Hour))
	o.clock = clock
	s = reopenTestService(t, s, o)
	clock.advance(10*time.Minute - time.Second)
	wantStates(t, settled(t, s, v.id), "waiting_for_retry: waiting_for_retry")
	wantStates(t, settled(t, s, claimed.id), "steps_in_process: in_progress")
	clock.advance(time.Second)
	wantStates(t, settled(t, s, v.id), "complete: complete")
	wantStates(t, settled(t, s, claimed.id), "steps_in_process: enqueued")
	closeTestService(t, s)
}

// delayTemplates have a step that is retried after ten minutes, and one for an outside actor.
var delayTemplates = []string{
	testTemplate("retried", stepSpec{name: "a", callable: "builtin:flaky", config: `{"failures":1}`,
		retry: `{"backoff":"linear","backoff_base_ms":600000,"max_backoff_ms":600000}`}),
	testTemplate("claimed", stepSpec{name: "a", callable: "Outside", retry: `{"backoff_base_ms":0,"max_backoff_ms":0}`}),
}

func withoutJitter(c *Config) { c.Engine.Jitter = false }

func claimAll(lease time.Duration) *claimRequest {
	return &claimRequest{callables: []string{"*"}, limit: 1, lease: lease, worker: "w"}
}

// settled returns a task once the service has settled.
func settled(t *testing.T, s *service, id uuid) *task {
	t.Helper()
	settle(s)
	return must(s.store.view(id))(t)
}
