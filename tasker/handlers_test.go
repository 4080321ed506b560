package main

// Handlers that move: an application of tasker-py against Stepwell, and the HTTP handlers of a Stepwell configuration
// against Tasker.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"stepwell/e2e/wire"
)

// taskerPackage is the package whose applications move, and what its tests need.
var taskerPackage = []string{"tasker-py==0.1.8", "pytest==8.4.2"}

// taskerPython installs the package once a machine, without its compiled extension, and returns the interpreter.
var taskerPython = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "stepwell-tests", strings.Join(taskerPackage, "-"))
	python, done := filepath.Join(dir, "bin", "python"), filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return python, nil
	}
	os.RemoveAll(dir)
	for _, command := range [][]string{
		{"python3", "-m", "venv", dir},
		append([]string{python, "-m", "pip", "install", "--disable-pip-version-check", "-q"}, taskerPackage...),
		{python, "-c", `import pathlib, sysconfig
[extension] = pathlib.Path(sysconfig.get_path("purelib"), "tasker_core").glob("_tasker_core*.so")
extension.unlink()`},
	} {
		if said, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%q: %w\n%s", command, err, said)
		}
	}
	return python, os.WriteFile(done, nil, 0o600)
})

// needTasker returns an interpreter that has the package without its extension.
func needTasker(t *testing.T) string {
	t.Helper()
	wire.Long(t)
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		wire.Skip(t, "the package tasker-py has a wheel for Linux on amd64 only")
	}
	if err := exec.Command("python3", "-c", "import ensurepip, tomllib").Run(); err != nil {
		wire.Lack(t, "python3-venv", "needs Python 3.11 with venv")
	}
	return wire.Must(taskerPython())(t)
}

// taskerExample is the directory of the application.
func taskerExample(t *testing.T) string {
	return wire.Must(filepath.Abs(repository("examples/tasker")))(t)
}

// runCommand runs a command to its end, and returns what it says.
func runCommand(t *testing.T, dir string, env []string, command ...string) string {
	t.Helper()
	c := exec.Command(command[0], command[1:]...)
	c.Dir, c.Env = dir, append(os.Environ(), append(env, "PYTHONDONTWRITEBYTECODE=1")...)
	said, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", command, err, said)
	}
	return string(said)
}

// wantPassed holds that pytest ran tests, and that all passed.
func wantPassed(t *testing.T, said string) {
	t.Helper()
	if !regexp.MustCompile(`(?m)^\d\d passed in `).MatchString(said) {
		t.Errorf("pytest said:\n%s", said)
	}
}

// TestTaskerApplication runs the tests of the application as it is, by the adapter, against a Stepwell.
func TestTaskerApplication(t *testing.T) {
	t.Parallel()
	python, dir := needTasker(t), taskerExample(t)
	p := serve(t, "--memory", "--templates", filepath.Join(dir, "templates"))
	env := []string{"STEPWELL_URL=" + p.ready.OrchestrationURL, "TASKER_TEMPLATE_PATH=templates"}
	command := regexp.MustCompile(`(?m)^python (tasker_worker.py -m pytest .*)$`).FindSubmatch(readFile(t, dir+"/README.md"))
	if command == nil {
		t.Fatal("the README does not say how to run the tests")
	}
	words := append([]string{python}, strings.Fields(string(command[1]))...)
	wantPassed(t, runCommand(t, dir, env, append(words, "-q", "-p", "no:cacheprovider")...))
}

// TestTaskerWorkerLost kills a worker of the application while it works: another one continues.
func TestTaskerWorkerLost(t *testing.T) {
	t.Parallel()
	python, dir := needTasker(t), taskerExample(t)
	asked, answer := make(chan struct{}, 2), make(chan struct{})
	carrier := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{}`)
	}))
	t.Cleanup(carrier.Close)
	p := serve(t, "--fixture", "--templates", filepath.Join(dir, "templates"))
	work := func() *exec.Cmd {
		c := exec.Command(python, "tasker_worker.py", "-m", "parcels")
		c.Dir = dir
		c.Env = append(os.Environ(), "STEPWELL_URL="+p.ready.OrchestrationURL, "TASKER_TEMPLATE_PATH=templates",
			"CARRIER_URL="+carrier.URL, "PYTHONDONTWRITEBYTECODE=1")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Process.Kill(); c.Wait() })
		return c
	}
	first := work()
	id := p.api().create(`{"namespace":"parcels","name":"ship","context":{"reference":"x","grams":1000}}`)
	if _, ok := wire.ReceiveWithin(asked, wire.Patience); !ok {
		t.Fatal("the carrier was not asked")
	}
	first.Process.Kill()
	first.Wait()
	close(answer)
	p.api().do("POST", "/_stepwell/clock", `{"advance":"40s"}`).want(200)
	work()
	p.api().await(id, "complete")
	if got := string(p.api().step(id, "book").Results.Result); got != `{"retried":true}` {
		t.Errorf("the booking: got %s; want a second attempt", got)
	}
}

// movedStep is what a step became, on either side.
type movedStep struct {
	Name         string
	CurrentState string `json:"current_state"`
	Attempts     int
	Results      *struct {
		Success bool
		Result  any
		Error   *struct {
			Message   string
			ErrorType string `json:"error_type"`
			Retryable bool
		}
	}
}

// awaitSlowly is eventually for Tasker, which takes its time.
func awaitSlowly(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 6 {
		if wire.Poll(holds) {
			return
		}
	}
	t.Fatal("never: " + what)
}

// endTask creates a task at either service, waits for its end, and returns its state and its steps.
func endTask(t *testing.T, url, body string) (status string, steps map[string]movedStep) {
	t.Helper()
	s := &api{t, url}
	var task struct {
		ID     string `json:"task_uuid"`
		Status string
	}
	s.post(body).into(&task)
	awaitSlowly(t, "the end of task "+task.ID, func() bool {
		s.do("GET", "/v1/tasks/"+task.ID, "").want(200).into(&task)
		return slices.Contains([]string{"complete", "error", "blocked_by_failures"}, task.Status)
	})
	var list []movedStep
	s.do("GET", "/v1/tasks/"+task.ID+"/workflow_steps", "").want(200).into(&list)
	steps = map[string]movedStep{}
	for _, s := range list {
		steps[s.Name] = s
	}
	return task.Status, steps
}

// taskerEnv is the environment of a worker of the reference.
func (r *reference) taskerEnv(templates string) []string {
	return []string{"DATABASE_URL=" + r.DatabaseURL, "PGMQ_DATABASE_URL=", "TASKER_MESSAGING_BACKEND=pgmq", "TASKER_ENV=test",
		"RUST_LOG=error", "LOG_LEVEL=error", "TASKER_CONFIG_PATH=" + filepath.Join(r.dir, "run", "worker.toml"),
		"TASKER_WEB_BIND_ADDRESS=127.0.0.1:0", "TASKER_TEMPLATE_PATH=" + templates}
}

// TestReferenceHandlers runs handlers on both sides: the application with its real extension against the distributed
// service, and HTTP handlers of one configuration under Stepwell and, by the adapter, under Tasker.
func TestReferenceHandlers(t *testing.T) {
	t.Parallel()
	needTasker(t)
	r := startReference(t, "")
	python, run := filepath.Join(r.dir, "venv", "bin", "python"), filepath.Join(r.dir, "run")
	t.Run("application", func(t *testing.T) {
		runCommand(t, run, nil, python, "-m", "pip", "install", "--disable-pip-version-check", "-q", taskerPackage[1])
		dir := taskerExample(t)
		env, tests := append(r.taskerEnv(filepath.Join(dir, "templates")), "PYTHONPATH="+dir), filepath.Join(dir, "tests")
		wantPassed(t, runCommand(t, run, env, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests))
	})
	t.Run("handlers", func(t *testing.T) {
		handlers := newMovedHandlers(t)
		templates := wire.Must(filepath.Abs("testdata/handlers"))(t)
		config := configFile(t, fmt.Sprintf(`worker.undelivered = "fail"
[worker.handlers]
"moves.*" = %q
"moves.none*" = "http://127.0.0.1:1"
[worker.http_headers]
X-All = "all"
[worker.http_headers."moves.*"]
X-Moves = "some"
`, handlers.URL))
		here := serve(t, "--memory", "--templates", templates, "--config", config).ready.OrchestrationURL
		startProcess(t, r.taskerEnv(templates), python, filepath.Join(taskerExample(t), "stepwell_handlers.py"), config)
		awaitSlowly(t, "the worker to register its templates", func() bool {
			resp, err := http.Get(r.OrchestrationURL + "/v1/templates/moves/refused/1.0.0")
			if err == nil {
				resp.Body.Close()
			}
			return err == nil && resp.StatusCode == http.StatusOK
		})
		for _, name := range []string{"shapes", "batches", "empty", "refused", "declined", "unreachable"} {
			body := fmt.Sprintf(`{"namespace":"moves","name":%q,"version":"1.0.0","context":{"items":%d,"run":%q},
				"initiator":"i","source_system":"s","reason":"r"}`,
				strings.Replace(name, "empty", "batches", 1), map[string]int{"batches": 5}[name], handlers.URL)
			status, want := endTask(t, here, body)
			moved, got := endTask(t, r.OrchestrationURL, body)
			if status != moved || !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want))) {
				t.Errorf("%s: here %s with %v, there %s with %v", name, status, slices.Sorted(maps.Keys(want)),
					moved, slices.Sorted(maps.Keys(got)))
			}
			for step, here := range want {
				if a, b := movedText(t, here), movedText(t, got[step]); a != b {
					t.Errorf("%s, step %s:\nhere  %s\nthere %s", name, step, a, b)
				}
			}
		}
		missing := []string{".step.checkpoint.number", ".step.checkpoint.recorded_at"} // not known there
		for path := range handlers.sent["stepwell"] {
			if !handlers.sent["stepwell-handlers"][path] && !slices.Contains(missing, path) {
				t.Errorf("the envelope has no %s there", path)
			}
		}
		if !handlers.sent["stepwell-handlers"][".step.checkpoint.cursor"] {
			t.Errorf("the handlers were sent %v", handlers.sent)
		}
	})
}

// movedText spells a step without what differs by nature.
func movedText(t *testing.T, s movedStep) string {
	t.Helper()
	if s.Results != nil && !s.Results.Success {
		s.Results.Result = nil // {} here, null there
	}
	text := string(wire.Must(json.Marshal(s))(t))
	text = regexp.MustCompile(`"cursor_configs":\[[^\]]*\]`).ReplaceAllString(text, `"cursor_configs":[]`)
	return regexp.MustCompile(`no reply from ([^:]*:\d+).*?","`).ReplaceAllString(text, `no reply from $1","`)
}

// usersOwn are members of an envelope whose value belongs to the user.
var usersOwn = regexp.MustCompile(`\.(context|config|inputs|metadata|result|error|dependency_results|cursor|accumulated_results)$`)

// envelopePaths are the members of the envelopes that a sender sent.
type envelopePaths map[string]bool

// add notes the members of a value. Names of steps and members that are the user's own are left out.
func (p envelopePaths) add(at string, value any) {
	members, ok := value.(map[string]any)
	if p[at] = true; !ok || usersOwn.MatchString(at) {
		return
	}
	for name, v := range members {
		if at == ".dependencies" {
			name = "*"
		}
		p.add(at+"."+name, v)
	}
}

// movedHandlers are handlers that note what they are sent, by the name of the sender.
type movedHandlers struct {
	*httptest.Server
	mu   sync.Mutex
	sent map[string]envelopePaths
}

// newMovedHandlers serves the handlers of testdata/moves/handlers.
func newMovedHandlers(t *testing.T) *movedHandlers {
	type object = map[string]any
	m := &movedHandlers{sent: map[string]envelopePaths{"stepwell": {}, "stepwell-handlers": {}}}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e struct {
			Task struct {
				Context struct{ Items int }
			}
			Step struct {
				Attempt    int
				Config     object
				Inputs     struct{ Cursor struct{ From, To int } }
				Handler    struct{ Callable string }
				Checkpoint *struct{ Cursor int }
			}
			Results object `json:"dependency_results"`
		}
		var text bytes.Buffer
		if err := json.NewDecoder(io.TeeReader(r.Body, &text)).Decode(&e); err != nil {
			t.Error(err)
		}
		var whole any
		sender, _, _ := strings.Cut(r.UserAgent(), "/")
		json.Unmarshal(text.Bytes(), &whole)
		m.mu.Lock()
		m.sent[sender].add("", whole)
		m.mu.Unlock()
		attempt := fmt.Sprint(":", e.Step.Attempt)
		if h := r.Header; h.Get("X-All") != "all" || h.Get("X-Moves") != "some" || !strings.Contains(h.Get("Idempotency-Key"), attempt) {
			t.Errorf("headers: %v", h)
		}
		var reply any
		switch e.Step.Handler.Callable {
		case "moves.number":
			reply = 42
		case "moves.null":
		case "moves.flaky":
			if e.Step.Attempt == 1 {
				w.Header().Set("Retry-After", "2")
				http.Error(w, "busy", http.StatusServiceUnavailable)
				return
			}
			reply = object{"attempt": e.Step.Attempt}
		case "moves.refuse":
			http.Error(w, "not you", http.StatusUnprocessableEntity)
			return
		case "moves.decide":
			reply = object{"success": true, "result": object{"why": "x"}, "decision_point_outcome": object{
				"type": "create_steps", "step_names": []string{"left", "right"}}}
		case "moves.fail":
			reply = object{"success": false, "error": object{
				"message": "declined", "error_type": "declined", "retryable": false}}
		case "moves.echo":
			reply = object{"config": e.Step.Config, "results": e.Results}
		case "moves.count":
			if c := e.Step.Checkpoint; c == nil || c.Cursor < 3 {
				next := 1
				if c != nil {
					next = c.Cursor + 1
				}
				reply = object{"success": true, "checkpoint": object{"cursor": next, "items_processed": next}}
			} else {
				reply = object{"counted": c.Cursor}
			}
		case "moves.split":
			cursors := []object{}
			for from := 0; from < e.Task.Context.Items; from += 2 {
				cursors = append(cursors, object{"from": from, "to": min(from+2, e.Task.Context.Items)})
			}
			if len(cursors) == 0 {
				reply = object{"batch_processing_outcome": object{"type": "no_batches"}}
				break
			}
			reply = object{"batch_processing_outcome": object{"type": "create_batches", "worker_template_name": "part",
				"worker_count": len(cursors), "cursor_configs": cursors, "total_items": e.Task.Context.Items}}
		case "moves.part":
			reply = object{"sum": e.Step.Inputs.Cursor.To - e.Step.Inputs.Cursor.From}
		case "moves.total":
			reply = object{"parts": e.Results}
		default:
			t.Errorf("no handler for %s", cmp.Or(e.Step.Handler.Callable, text.String()))
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(reply)
	}))
	t.Cleanup(m.Close)
	return m
}
