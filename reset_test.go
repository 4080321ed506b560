package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// metricLines are the samples that count what happened to tasks.
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

// wantEmpty fails the test unless the service is as after a start.
func (s *fixtureServer) wantEmpty(virgin []string) {
	s.t.Helper()
	if got := s.do("GET", "/v1/tasks", "").want(200).text("pagination.total_count"); got != "0" {
		s.t.Errorf("%s tasks are left", got)
	}
	if got := string(s.do("GET", "/v1/dlq", "").want(200).body); strings.TrimSpace(got) != "[]" {
		s.t.Errorf("entries are left: %s", got)
	}
	if got := metricLines(string(s.do("GET", "/metrics", "").body)); !slices.Equal(got, virgin) {
		s.t.Errorf("the figures are\n%s\nwant\n%s", got, virgin)
	}
	clock := s.do("GET", "/_stepwell/clock", "").want(200)
	if clock.text("mode") != "real" || clock.text("fired") != "0" || clock.get("next_timer") != nil ||
		mustInstant(clock.text("now")) > realNow() {
		s.t.Errorf("the clock is %s; want it as at the start", clock.body)
	}
}

// TestReset takes everything back to the start.
func TestReset(t *testing.T) {
	s := newFixtureServer(t, serviceTest{extra: []string{sleepTemplate("hour", "1h"),
		testTemplate("fail", stepSpec{name: "a", callable: "builtin:fail"})}})
	virgin := metricLines(string(s.do("GET", "/metrics", "").body))
	for range 2 {
		id := s.create(`{"namespace":"t","name":"hour"}`)
		s.create(`{"namespace":"t","name":"fail"}`)
		s.clock(`{"advance":"240h"}`).want(200)
		s.create(`{"namespace":"t","name":"hour"}`)
		s.do("POST", "/_stepwell/reset", "").want(204)
		s.wantEmpty(virgin)
		s.do("GET", "/v1/tasks/"+id, "").want(404)
	}
}

// TestResetUnderLoad: whatever runs or waits when a reset comes reaches nothing
// after it. The handlers answer just when they are cut off.
func TestResetUnderLoad(t *testing.T) {
	tasks := 10_000
	if testing.Short() {
		tasks = 1000
	}
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
		extra: []string{sleepTemplate("wait", "1s"), testTemplate("call", stepSpec{name: "a", callable: handler.URL, timeout: 60},
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

// TestResetWhileCreating: a task that was answered before the reset is gone, one
// that was answered after it is there, whoever creates at the same time.
func TestResetWhileCreating(t *testing.T) {
	s := newFixtureServer(t, serviceTest{})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if a := s.do("POST", "/v1/tasks", `{"namespace":"demo","name":"diamond"}`); a.status != 201 && a.status != 503 {
					t.Errorf("got %d: %s", a.status, a.body)
				}
			}
		})
	}
	for range 30 {
		before := s.create(`{"namespace":"demo","name":"approval"}`)
		s.do("POST", "/_stepwell/reset", "").want(204)
		s.do("GET", "/v1/tasks/"+before, "").want(404)
		s.do("GET", "/v1/tasks/"+s.create(`{"namespace":"demo","name":"approval"}`), "").want(200)
	}
	close(stop)
	wg.Wait()
}

// TestResetEmptiesTheDirectory, of what is ours in it.
func TestResetEmptiesTheDirectory(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "notes.txt")
	writeFile(t, other, []byte("not ours"))
	s := newFixtureServer(t, serviceTest{dir: dir})
	id := s.create(`{"namespace":"demo","name":"approval"}`)
	s.do("POST", "/_stepwell/reset", "").want(204)
	s.do("GET", "/v1/tasks/"+id, "").want(404)
	if strings.Contains(string(readFile(t, filepath.Join(dir, journalName))), id) {
		t.Error("the journal still has the task")
	}
	readFile(t, other)
	again := s.create(`{"namespace":"demo","name":"approval"}`)
	if !strings.Contains(string(readFile(t, filepath.Join(dir, journalName))), again) {
		t.Error("the journal lacks the new task")
	}
}
