package main

// What each role serves: alone in a process, and together.

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestWorkerAlone has no engine and no store, and serves all of its API.
func TestWorkerAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := &testServer{t: t, svc: openTestService(t, serviceTest{
		dir: dir, templates: apiTemplates, config: func(c *Config) { c.Role = "worker" },
	})}
	if s.svc.store != nil || s.svc.engine != nil {
		t.Fatal("got a store or an engine; want neither")
	}
	api := newWorkerAPI(s.svc)
	w := s.with(api)
	values := map[string]string{"namespace": "t", "name": "diamond", "version": "latest", "file": "x"}
	contract := newAPIContract(t, "worker")
	everyGET(t, w, api.routes(), values, func(string, string) {})
	for _, path := range []string{"/health/ready", "/health/detailed", "/config", "/metrics/worker", "/v1/templates"} {
		a := w.do("GET", path, "").want(200)
		if err := contract.problem(&convAnswer{a.status, a.header, a.body, "GET " + path}); err != nil {
			t.Error(err)
		}
	}
	if got := w.do("GET", "/v1/templates", "").text("worker_capabilities"); got != "[template_validation]" {
		t.Errorf("got capabilities %s; want template_validation alone", got)
	}
	if got := w.do("GET", "/health/ready", "").text("system_info.command_processor_active"); got != "false" {
		t.Errorf("got an active command processor: %s", got)
	}
	if got := w.do("POST", "/v1/templates/w/surroundings/1.0.0/validate", "").text("required_capabilities"); got != "[http outside]" {
		t.Errorf("got required capabilities %s; want [http outside]", got)
	}
	s.svc.finish(context.Background())
	if err := s.svc.closeStore(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a data directory was made; want none")
	}
}

// TestOrchestrationAlone runs nothing itself: every step, of builtins too, waits
// for an outside actor.
func TestOrchestrationAlone(t *testing.T) {
	s := newTestServer(t, serviceTest{config: func(c *Config) { c.Role = "orchestration" }})
	id := s.create(`{"namespace":"demo","name":"linear"}`)
	for range 20 {
		task := s.do("GET", "/v1/tasks/"+id, "").want(200)
		if task.text("status") == "complete" {
			return
		}
		step := ""
		for _, v := range task.get("steps").([]any) {
			if st := v.(map[string]any); st["current_state"] == "enqueued" {
				step = st["workflow_step_uuid"].(string)
			} else if st["current_state"] == "in_progress" {
				t.Fatalf("a step runs: %s", task.body)
			}
		}
		s.do("PATCH", "/v1/tasks/"+id+"/workflow_steps/"+step, `{"action_type":"complete_manually",
			"completion_data":{"result":1},"reason":"r","completed_by":"actor"}`).want(200)
	}
	t.Error("the task does not end")
}

// TestServeRoles starts the program in each role and asks both listeners.
func TestServeRoles(t *testing.T) {
	for role, want := range map[string]struct{ orchestration, worker bool }{
		"all": {true, true}, "orchestration": {true, false}, "worker": {false, true},
	} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			report := startProgram(t, "--role", role)
			if got := report.OrchestrationURL != ""; got != want.orchestration {
				t.Errorf("orchestration: got %v; want %v", got, want.orchestration)
			}
			if got := report.WorkerURL != ""; got != want.worker {
				t.Errorf("worker: got %v; want %v", got, want.worker)
			}
			for url, path := range map[string]string{
				report.OrchestrationURL: "/v1/tasks", report.WorkerURL: "/v1/templates?include_cache_stats=true",
			} {
				if url == "" {
					continue
				}
				s := &testServer{t: t, url: url}
				s.do("GET", "/health/ready", "").want(http.StatusOK)
				s.do("GET", path, "").want(http.StatusOK)
			}
		})
	}
}

// startProgram runs "stepwell serve" in memory on free ports until the test
// ends, and returns what it tells on its first line.
func startProgram(t *testing.T, args ...string) readyReport {
	t.Helper()
	read, write := io.Pipe()
	p := process{getenv: func(string) string { return "" }, stdout: write, stderr: io.Discard}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	args = append([]string{"serve", "--memory", "--listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0",
		"--print-ready", "--quiet"}, args...)
	go func() {
		done <- p.run(ctx, args)
		write.Close()
	}()
	t.Cleanup(func() {
		stop()
		if err, ok := receiveWithin(done, 10*time.Second); err != nil || !ok {
			t.Errorf("got error %v, ended %v; want a clean end", err, ok)
		}
	})
	var report readyReport
	line, err := bufio.NewReader(read).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &report)
	}
	if err != nil {
		t.Fatalf("got %q, %v; want the report of being ready", line, err)
	}
	return report
}
