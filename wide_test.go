package main

// Tasks that are wide and deep, and many at once: what must not depend on how
// much there is, counted rather than timed.

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"
)

// stuckHandler is an HTTP handler whose calls last until release is closed.
type stuckHandler struct {
	t                testing.TB
	url              string
	calls            int
	arrived, release chan struct{}
}

// newStuckHandler is one that so many calls are expected of.
func newStuckHandler(t testing.TB, calls int) *stuckHandler {
	t.Helper()
	h := &stuckHandler{t: t, calls: calls, arrived: make(chan struct{}, calls), release: make(chan struct{})}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.arrived <- struct{}{}
		select {
		case <-h.release:
			fmt.Fprint(w, `"done"`)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	h.url = s.URL
	return h
}

// template is one step that the handler runs, once, for an hour at the most.
func (h *stuckHandler) template(name string) string {
	return testTemplate(name, stepSpec{name: "a", callable: h.url, timeout: 3600, retry: `{"max_attempts":1}`})
}

// awaitAll returns once every call has arrived.
func (h *stuckHandler) awaitAll() {
	h.t.Helper()
	for n := range h.calls {
		if _, ok := receiveWithin(h.arrived, patience); !ok {
			h.t.Fatalf("%d of %d calls arrived", n, h.calls)
		}
	}
}

// TestManySteps runs tasks of 10,000 steps through the API. Each step is one
// record, in whatever graph.
func TestManySteps(t *testing.T) {
	const n = 10_000
	for _, shape := range stepShapes {
		t.Run(shape.name, func(t *testing.T) {
			s := newTestServer(t, serviceTest{
				extra: []string{benchTemplate("shape", "builtin:noop", shapeParents(n, shape.parents))}})
			before := s.svc.store.journal.status().records
			v := s.do("POST", "/v1/tasks?wait=1m", `{"namespace":"bench","name":"shape"}`).want(201)
			if got := v.text("status") + " " + v.text("completed_steps"); got != "complete 10000" {
				t.Errorf("got %s; want complete 10000", got)
			}
			// Beside the steps': the template and the creation.
			if got := s.svc.store.journal.status().records - before; got != n+2 {
				t.Errorf("got %d records; want %d", got, n+2)
			}
			path := "/v1/tasks/" + v.text("task_uuid")
			steps := s.do("GET", path+"/workflow_steps", "").want(200)
			if got := steps.length(); got != n {
				t.Fatalf("got %d steps; want %d", got, n)
			}
			last := s.do("GET", path+"/workflow_steps/"+steps.text("9999.step_uuid"), "").want(200)
			if got := last.text("name") + " " + last.text("current_state"); got != "s9999 complete" {
				t.Errorf("the last step is %s; want s9999 complete", got)
			}
			if got := s.do("GET", path, "").want(200).text("completion_percentage"); got != "100" {
				t.Errorf("got %s %% complete; want 100", got)
			}
		})
	}
}

// TestManyWaiting has 100,000 tasks wait an hour for their next attempt: no
// goroutine and no record comes of that.
func TestManyWaiting(t *testing.T) {
	tasks := uint64(100_000)
	if testing.Short() {
		tasks = 10_000
	}
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, config: func(c *Config) { c.Engine.Jitter = false },
		extra: []string{testTemplate("later", stepSpec{name: "a", callable: "builtin:flaky", config: `{"failures":1}`,
			retry: `{"max_attempts":2,"backoff_base_ms":3600000,"max_backoff_ms":3600000}`})}})
	mustCreate(t, s, "later")
	goroutines, records := runtime.NumGoroutine(), s.store.journal.status().records
	for range tasks - 1 {
		mustCreate(t, s, "later")
	}
	wantSteps := func(state stepState) {
		t.Helper()
		settle(s)
		s.store.mu.Lock()
		defer s.store.mu.Unlock()
		if got := uint64(s.store.index.steps[state]); got != tasks {
			t.Errorf("got %d steps %s; want %d", got, state, tasks)
		}
	}
	wantSteps(stepWaitingForRetry)
	const each = 2 // a creation and an attempt
	if got := s.store.journal.status().records - records; got != each*(tasks-1) {
		t.Errorf("got %d records; want %d", got, each*(tasks-1))
	}
	if got := runtime.NumGoroutine(); got > goroutines+10 {
		t.Errorf("got %d goroutines; there were %d with one task", got, goroutines)
	}
	records = s.store.journal.status().records
	clock.advance(59 * time.Minute)
	wantSteps(stepWaitingForRetry)
	if got := s.store.journal.status().records - records; got != 0 {
		t.Errorf("waiting wrote %d records", got)
	}
	clock.advance(time.Minute)
	wantSteps(stepComplete)
}

// TestManySlowHandlers has a thousand HTTP handlers wait: other tasks are done
// meanwhile, and theirs when they are answered.
func TestManySlowHandlers(t *testing.T) {
	const slow, others = 1_000, 200
	h := newStuckHandler(t, slow)
	s := newTestServer(t, serviceTest{extra: []string{h.template("slow"), benchTemplate("diamond", "builtin:noop", diamondParents)}})
	for range slow {
		s.create(`{"namespace":"t","name":"slow"}`)
	}
	h.awaitAll()
	for range others {
		if got := s.do("POST", "/v1/tasks?wait=30s", diamondBody).want(201).text("status"); got != "complete" {
			t.Fatalf("a diamond is %s; want complete", got)
		}
	}
	wantCount := func(name, status, want string) {
		t.Helper()
		if got := s.do("GET", "/v1/tasks?per_page=1&name="+name+"&status="+status, "").want(200).text("pagination.total_count"); got != want {
			t.Errorf("got %s tasks %s in %s; want %s", got, name, status, want)
		}
	}
	wantCount("diamond", "complete", "200")
	wantCount("slow", "steps_in_process", "1000")
	close(h.release)
	eventually(t, "the slow tasks are complete", func() bool {
		return s.do("GET", "/v1/tasks?per_page=1&name=slow&status=complete", "").want(200).text("pagination.total_count") == "1000"
	})
}
