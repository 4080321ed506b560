package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"stepwell/e2e/wire"
	"testing"
	"time"
)

// TestDurationsOfAClockSetBack sets the clock back while durations are measured.
// Clients read unsigned numbers, and counters never decrease.
func TestDurationsOfAClockSetBack(t *testing.T) {
	clock := &laggingClock{virtualClock: newVirtualClock(testStart)}
	s := newTestService(t, serviceTest{clock: clock})
	v := (&healthProbe{health: s.health}).timed(func(*healthProbe) checkView {
		clock.lag.Store(5_000_000)
		return graded(false, "well")
	})
	if v.DurationMS != 0 {
		t.Errorf("a check took %d ms; want 0", v.DurationMS)
	}
	stats := newHTTPStats("orchestration", s.auth["orchestration"])
	stats.observe("GET /", 200, -1)
	if h := stats.times["GET /"]; h.sum != 0 || h.distribution(metricBounds)[0] != 1 {
		t.Errorf("got a sum of %d and the buckets %d; want 0, and 1 in the first", h.sum, h.distribution(metricBounds))
	}
}

// healthAPI is a surface with its contract, called in the goroutine of the test.
type healthAPI struct {
	http.Handler
	contract *wire.Contract
}

func (h healthAPI) get(t *testing.T, path string) *answer {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	a := &answer{t, w.Code, w.Header(), w.Body.Bytes()}
	if err := contractProblem(h.contract, a, "GET "+path); err != nil {
		t.Error(err)
	}
	return a
}

// busyTemplate returns a template with steps that take an hour, on slots for
// builtins or for HTTP handlers.
func busyTemplate(steps int, callable string) string {
	var specs []stepSpec
	for i := range steps {
		specs = append(specs, stepSpec{name: fmt.Sprint("s", i), callable: callable, config: `{"duration_ms":3600000}`})
	}
	return testTemplate("busy", specs...)
}

// TestEveryHealthCheckCanFail makes each check fail. It compares the check, the
// overall status, and which surfaces are not ready.
func TestEveryHealthCheckCanFail(t *testing.T) {
	contract, workerContract := newAPIContract(t, "orchestration"), newAPIContract(t, "worker")
	silent := make(chan struct{})
	handler := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-silent:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(handler.Close)
	t.Cleanup(func() { close(silent) })
	small := func(c *Config) { c.Worker.Concurrency, c.Worker.HTTPConcurrency = 1, 1 }
	busy := func(steps int, callable string) serviceTest {
		return serviceTest{config: small, extra: []string{busyTemplate(steps, callable)}}
	}
	create := func(t *testing.T, s *testServer) {
		id := s.create(`{"namespace":"t","name":"busy"}`)
		t.Cleanup(func() { s.do("DELETE", "/v1/tasks/"+id, "").want(200) }) // so that closing need not wait
	}
	for _, tt := range []struct {
		name  string
		o     serviceTest
		fail  func(t *testing.T, s *testServer)
		want  map[string]string // status by check of the orchestration role
		work  map[string]string // the same of the worker role
		ready int
	}{
		{"nothing", serviceTest{}, func(*testing.T, *testServer) {}, nil, nil, 200},
		{"the journal cannot be written", serviceTest{}, breakJournal,
			map[string]string{"web_database": "unhealthy", "orchestration_database": "unhealthy"},
			map[string]string{"database": "unhealthy"}, 503},
		{"the scheduler is stuck", serviceTest{}, holdStore,
			map[string]string{"command_processor": "unhealthy", "pool_utilization": "unknown", "queue_depth": "unknown"},
			map[string]string{"command_processor": "unhealthy", "step_processing": "unknown"}, 503},
		{"the scheduler is stopping", serviceTest{}, func(_ *testing.T, s *testServer) {
			s.svc.store.mu.Lock()
			defer s.svc.store.mu.Unlock()
			s.svc.engine.stopping = true
		}, map[string]string{"command_processor": "unhealthy"}, map[string]string{"command_processor": "unhealthy"}, 503},
		{"draining", serviceTest{}, func(_ *testing.T, s *testServer) { s.svc.draining.Store(true) },
			map[string]string{"orchestration_system": "unhealthy"}, map[string]string{"queue_processing": "unhealthy"}, 503},
		{"one slot is taken", busy(1, "builtin:sleep"), create,
			map[string]string{"pool_utilization": "degraded"}, nil, 200},
		{"the HTTP slot is taken", busy(1, handler.URL), create,
			map[string]string{"pool_utilization": "degraded"}, nil, 200},
		{"steps wait", busy(5, "builtin:sleep"), create,
			map[string]string{"pool_utilization": "degraded"}, map[string]string{"step_processing": "degraded"}, 200},
		{"HTTP steps wait", busy(5, handler.URL), create,
			map[string]string{"pool_utilization": "degraded"}, map[string]string{"step_processing": "degraded"}, 200},
		{"the queue is nearly full", busy(9, "builtin:sleep"), create,
			map[string]string{"pool_utilization": "degraded", "queue_depth": "degraded"},
			map[string]string{"step_processing": "degraded"}, 200},
		{"the queue is over its limit", busy(11, "builtin:sleep"), create,
			map[string]string{"pool_utilization": "degraded", "queue_depth": "unhealthy"},
			map[string]string{"step_processing": "degraded"}, 200},
		{"the disk is slow", serviceTest{}, func(_ *testing.T, s *testServer) {
			s.svc.store.journal.groups.backlog.Store(bufferWarning) // nothing empties it in memory mode
		}, map[string]string{"channel_saturation": "degraded"}, nil, 200},
		{"the disk is behind", serviceTest{}, func(_ *testing.T, s *testServer) {
			s.svc.store.journal.groups.backlog.Store(backlogLimit)
		}, map[string]string{"channel_saturation": "unhealthy"}, nil, 200},
		{"timers are late", serviceTest{clock: lateClock()}, func(*testing.T, *testServer) {},
			nil, map[string]string{"event_system": "unhealthy"}, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newTestServer(t, tt.o)
			s.svc.engine.queues.most = 10
			tt.fail(t, s)
			orchestration := healthAPI{newOrchestrationAPI(s.svc, nil), contract}
			worker := healthAPI{newWorkerAPI(s.svc, nil), workerContract}
			checkHealth(t, orchestration.get(t, "/health/detailed"), tt.want)
			checkHealth(t, worker.get(t, "/health/detailed"), tt.work)
			for _, h := range []healthAPI{orchestration, worker} {
				if got := h.get(t, "/health/ready").status; got != tt.ready {
					t.Errorf("ready: got %d; want %d", got, tt.ready)
				}
				h.get(t, "/health").want(200)
				h.get(t, "/health/live").want(200)
			}
		})
	}
}

// checkHealth compares every check with the wanted one, healthy by default, and
// the status with all checks.
func checkHealth(t *testing.T, a *answer, want map[string]string) {
	t.Helper()
	a.want(200)
	overall := "healthy"
	for name, c := range a.get("checks").(map[string]any) {
		status, wanted := c.(map[string]any)["status"], want[name]
		if wanted == "" {
			wanted = "healthy"
		} else {
			overall = "degraded"
		}
		if status != wanted || c.(map[string]any)["message"] == "" {
			t.Errorf("%s: got %v; want %s", name, c, wanted)
		}
	}
	if got := a.text("status"); got != overall {
		t.Errorf("status: got %s; want %s", got, overall)
	}
}

// breakJournal makes the journal fail until the test ends, before the service
// closes.
func breakJournal(t *testing.T, s *testServer) {
	j := s.svc.store.journal
	set := func(err error) {
		j.groups.mu.Lock()
		defer j.groups.mu.Unlock()
		j.groups.broken = err
	}
	set(errors.New("the disk is on fire"))
	t.Cleanup(func() { set(nil) })
}

// holdStore holds the store's lock, which the engine needs.
func holdStore(t *testing.T, s *testServer) {
	s.svc.health.patience = 10 * time.Millisecond
	s.svc.store.mu.Lock()
	t.Cleanup(s.svc.store.mu.Unlock)
}

// lateClock returns a wall clock whose timers never fire, with one that has been
// due for a minute.
func lateClock() *realClock {
	c := &realClock{wake: make(chan struct{}, 1), done: make(chan struct{})}
	c.schedule(c.now().add(-time.Minute), func() {})
	return c
}
