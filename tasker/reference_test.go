package main

// The reference: Tasker, the real distributed service, which templates, tasks, handlers and tools move to. Tests of it run when
// TASKER_REFERENCE names the folder of a kit that starts it.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// reference is a running distributed service with workers for the steps of all its templates.
type reference struct {
	OrchestrationURL string `json:"orchestration_url"`
	WorkerURL        string `json:"worker_url"`
	DatabaseURL      string `json:"database_url"`
	dir              string // of the kit: venv, run, log
}

// startReference starts the reference with the templates of a directory, or skips the test.
func startReference(t testing.TB, templates string) *reference {
	t.Helper()
	wire.Long(t)
	kit := os.Getenv("TASKER_REFERENCE")
	if kit == "" {
		wire.Lack(t, "TASKER_REFERENCE", "needs Tasker: set TASKER_REFERENCE to the folder of a kit with the programs start and stop")
	}
	dir := wire.Must(os.MkdirTemp("/tmp", "stepwell-reference-"))(t) // short, for the database's socket
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := exec.Command(filepath.Join(kit, "stop"), dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		os.RemoveAll(dir)
	})
	start := exec.Command(filepath.Join(kit, "start"), dir, templates)
	var said bytes.Buffer
	start.Stderr = &said
	line, err := start.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &said)
	}
	r := reference{dir: dir}
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// psql has the database execute a file or a command, and returns what it prints.
func (r *reference) psql(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("psql", append([]string{r.DatabaseURL, "-X", "-q", "-A", "-t"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// post creates a task. On a loaded machine Tasker can answer a creation with 500 although the task is there and runs: the
// same request again is then 409, and the list has the task.
func (s *api) post(body string) *answer {
	s.t.Helper()
	a := s.do("POST", "/v1/tasks", body)
	if a.status != http.StatusInternalServerError {
		return a
	}
	again := s.do("POST", "/v1/tasks", body)
	if again.status != http.StatusConflict {
		return again
	}
	var asked struct{ Name, Context any }
	(&answer{s.t, 0, []byte(body)}).into(&asked)
	for page := 1; page <= 20; page++ {
		var list struct {
			Tasks []struct {
				Name, Context any
				ID            string `json:"task_uuid"`
			}
		}
		s.do("GET", fmt.Sprint("/v1/tasks?per_page=100&page=", page), "").want(200).into(&list)
		for _, t := range list.Tasks {
			if t.Name == asked.Name && reflect.DeepEqual(t.Context, asked.Context) {
				return s.do("GET", "/v1/tasks/"+t.ID, "")
			}
		}
	}
	return a
}

// TestPostKnowsTasker creates a task of which Tasker says that it failed.
func TestPostKnowsTasker(t *testing.T) {
	t.Parallel()
	posts := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == "POST":
			posts++
			w.WriteHeader([]int{0, 500, 409}[posts])
		case r.URL.Path == "/v1/tasks":
			io.WriteString(w, `{"tasks":[{"task_uuid":"other","name":"a","context":{"n":2}},{"task_uuid":"made","name":"a","context":{"n":1}}]}`)
		default:
			io.WriteString(w, `{"task_uuid":"`+strings.TrimPrefix(r.URL.Path, "/v1/tasks/")+`"}`)
		}
	}))
	t.Cleanup(s.Close)
	if got := (&api{t, s.URL}).post(`{"name":"a","context":{"n":1}}`).want(200).text("task_uuid"); got != "made" {
		t.Errorf("got %s", got)
	}
}

// newKitHandlers serves handlers that do what those of the kit do: a step's initialization says how it ends.
func newKitHandlers(t testing.TB) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e struct {
			Step struct {
				Attempt int
				Config  struct {
					FailTimes       int  `json:"fail_times"`
					FailPermanently bool `json:"fail_permanently"`
					SleepMS         int  `json:"sleep_ms"`
					Result          map[string]any
				}
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
		}
		select {
		case <-time.After(time.Duration(e.Step.Config.SleepMS) * time.Millisecond):
		case <-r.Context().Done():
		}
		reply := map[string]any{"attempt": e.Step.Attempt}
		maps.Copy(reply, e.Step.Config.Result)
		if e.Step.Config.FailPermanently || e.Step.Attempt <= e.Step.Config.FailTimes {
			reply = map[string]any{"success": false, "error": map[string]any{
				"message": "told to fail", "retryable": !e.Step.Config.FailPermanently}}
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(reply)
	}))
	t.Cleanup(s.Close)
	return s
}
