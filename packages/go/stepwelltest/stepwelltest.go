// Package stepwelltest tests workflows with a real Stepwell. All tests of a package share one process, and each test
// has an isolated sandbox with a virtual clock.
package stepwelltest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

const serve = "--fixture --quiet --listen 127.0.0.1:0 --worker-listen 127.0.0.1:0 --print-ready --exit-with-parent"

var (
	flags     []string // of Stepwell, some of which name files
	sandboxes string   // URL that creates sandboxes
	logFile   *os.File // of Stepwell
	stop      func()   // ends Stepwell
)

// Main starts Stepwell with flags, such as --templates, and runs the tests. Call it from TestMain if you need flags;
// otherwise, New starts Stepwell. Stepwell inherits the environment: set STEPWELL_WORKER__HANDLERS, for example, with
// os.Setenv before you call Main.
func Main(m *testing.M, with ...string) {
	flags = with
	if err := start(); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	stop()
	os.Exit(code)
}

// start starts Stepwell once. Stepwell ends with this process, when its standard input is closed.
var start = sync.OnceValue(func() error {
	args, err := find()
	if err != nil {
		return err
	}
	args = slices.Concat(args, strings.Fields(serve), flags)
	program := exec.Command(args[0], args[1:]...)
	if logFile, err = os.CreateTemp("", "stepwell-log-"); err != nil {
		return err
	}
	os.Remove(logFile.Name()) // it ends with its last user, except on Windows
	program.Stderr = logFile
	// Nothing is written to it: it closes when this process ends, in whichever way.
	stdin, _ := program.StdinPipe()
	stdout, _ := program.StdoutPipe()
	if err := program.Start(); err != nil {
		return fmt.Errorf("%s does not run: %w", args[0], err)
	}
	var ready map[string]any
	if err := json.NewDecoder(stdout).Decode(&ready); err != nil {
		os.Stderr.WriteString(logged(""))
		return fmt.Errorf("%s did not start: its output says why", strings.Join(append([]string{"stepwell"}, flags...), " "))
	}
	sandboxes = ready["orchestration_url"].(string) + "/_stepwell/sandboxes"
	stop = func() {
		stdin.Close()
		program.Wait()
	}
	return nil
})

// logged returns what Stepwell has logged, but for the lines about other sandboxes.
func logged(sandbox string) (text string) {
	all, _ := io.ReadAll(io.NewSectionReader(logFile, 0, math.MaxInt64))
	for line := range strings.Lines(string(all)) {
		if !strings.Contains(line, `"sandbox":`) || strings.Contains(line, `"sandbox":"`+sandbox+`"`) {
			text += line
		}
	}
	return text
}

// find returns the command that starts Stepwell; docs/testing.md describes where it looks.
func find() ([]string, error) {
	if given := os.Getenv("STEPWELL"); given != "" {
		// A path may have spaces, like a command with arguments.
		if _, err := os.Stat(given); err == nil {
			return []string{given}, nil
		}
		return strings.Fields(given), nil
	}
	if found, err := exec.LookPath("stepwell"); err == nil {
		return []string{found}, nil
	}
	program, err := Build(os.Stderr)
	return []string{program}, err
}

// checkout returns the directory of the sources that find builds: in a checkout, or in the module cache.
func checkout() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	source, err := filepath.EvalSymlinks(cmp.Or(os.Getenv("STEPWELL_SOURCE"), filepath.Join(filepath.Dir(here), "../../..")))
	if err != nil || !filepath.IsAbs(source) { // such as a path of -trimpath
		return "", errors.New("there is no program stepwell: put it on PATH, set STEPWELL to it, or set STEPWELL_SOURCE to its checkout")
	}
	return source, nil
}

// Build builds Stepwell from its sources with flags of go build, such as -race, and returns the path of the program. If
// nothing has changed, it takes no time; if it takes some, it says so in the log.
func Build(log io.Writer, flags ...string) (program string, err error) {
	source, err := checkout()
	if err != nil {
		return "", err
	}
	if _, err := exec.LookPath("go"); err != nil {
		return "", fmt.Errorf("there is no program stepwell, and no Go to build it in %s", source)
	}
	compile := exec.Command("go", append([]string{"run", "./packages/build"}, flags...)...)
	compile.Dir, compile.Stderr = source, log
	compile.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	said, err := compile.Output()
	if err != nil {
		return "", fmt.Errorf("building the service in %s failed: its output says why", source)
	}
	return string(bytes.TrimSpace(said)), nil
}

// NoteSources opens what Build builds from, during a test, so that go test runs the tests again when a source of the same
// module has changed, instead of showing a cached result. Once is enough for a process.
var NoteSources = sync.OnceFunc(func() {
	source, err := checkout()
	if err != nil {
		return
	}
	for _, dir := range []string{"", "templates", "web"} {
		filepath.WalkDir(filepath.Join(source, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if f, err := os.Open(path); err == nil { // a directory covers the files in it
				f.Close()
			}
			if dir == "" {
				return filepath.SkipDir
			}
			return nil
		})
	}
})

// Sandbox is a service for one test, with its own tasks, stubs and clock.
type Sandbox struct {
	URL string // for the application under test
	t   testing.TB
}

// New creates a sandbox with a frozen clock, and deletes it when the test ends. Options are at most one JSON object,
// such as {"deterministic_ids": "SEED"}.
func New(t testing.TB, options ...string) *Sandbox {
	t.Helper()
	if err := start(); err != nil {
		t.Fatal(err)
	}
	noteInputs()
	root := &Sandbox{sandboxes, t}
	box := root.Request("POST", "", strings.Join(options, "")).(map[string]any)
	t.Cleanup(func() {
		name := box["name"].(string)
		if t.Failed() {
			t.Log("the log of Stepwell:\n" + logged(name))
		}
		root.Request("DELETE", "/"+name, "")
	})
	s := &Sandbox{box["orchestration_url"].(string), t}
	s.Clock(`{"freeze": true}`)
	return s
}

// quoted matches the texts in a configuration, some of which name files.
var quoted = regexp.MustCompile(`"([^"\n]+)"`)

// noteInputs opens the files and reads the variables that Stepwell uses, during a test, so that go test runs the test
// again when they have changed, instead of showing a cached result.
func noteInputs() {
	os.Getenv("STEPWELL")
	os.Getenv("STEPWELL_SOURCE")
	NoteSources()
	inputs := slices.Clone(flags) // tests run in parallel
	config, _ := os.ReadFile("stepwell.toml")
	for _, text := range quoted.FindAllSubmatch(config, -1) {
		inputs = append(inputs, string(text[1]))
	}
	for _, input := range inputs {
		if _, file, found := strings.Cut(input, "="); found {
			input = file
		}
		filepath.WalkDir(input, func(path string, _ fs.DirEntry, err error) error {
			if file, err := os.Open(path); err == nil {
				file.Close()
			}
			return err
		})
	}
}

// Request sends a request and returns the response: JSON as values, else text. If the service refuses the request, the test fails.
func (s *Sandbox) Request(method, path, body string) any {
	s.t.Helper()
	request, err := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer reply.Body.Close()
	text, _ := io.ReadAll(reply.Body)
	var answer any // nil for 204, which has no body
	if kind, _, _ := strings.Cut(reply.Header.Get("Content-Type"), ";"); kind == "application/json" {
		json.Unmarshal(text, &answer)
	} else if len(text) > 0 {
		answer = string(text)
	}
	if reply.StatusCode < 400 {
		return answer
	}
	if object, ok := answer.(map[string]any); ok {
		if refusal, ok := object["error"].(map[string]any); ok {
			s.t.Fatal(refusal["message"])
		}
	}
	s.t.Fatalf("%s %s: %s %s", method, path, reply.Status, bytes.TrimSpace(text))
	return nil
}

// Control posts JSON to the control API, under /_stepwell/. If the response has a warning, the test fails.
func (s *Sandbox) Control(path, body string) any {
	s.t.Helper()
	answer := s.Request("POST", "/_stepwell/"+path, body)
	if object, ok := answer.(map[string]any); ok && object["warning"] != nil { // such as an unknown step
		s.t.Fatal(object["warning"])
	}
	return answer
}

// Stub scripts the outcomes of a step's attempts; the last one repeats.
func (s *Sandbox) Stub(step string, outcomes ...string) {
	s.t.Helper()
	s.StubThen("last", step, outcomes...)
}

// StubThen is like Stub, but if then is "handler", the step's own handler runs after the last outcome.
func (s *Sandbox) StubThen(then, step string, outcomes ...string) {
	s.t.Helper()
	for i, outcome := range outcomes {
		s.needJSON(fmt.Sprintf("outcomes[%d] of step %s", i, step), outcome)
	}
	s.Control("stubs", `{"match": {"step": "`+step+`"}, "outcomes": [`+strings.Join(outcomes, ", ")+
		`], "then": "`+then+`"}`)
}

// needJSON fails the test if a text is not JSON, which the service could not say of a part of its request.
func (s *Sandbox) needJSON(what, text string) json.RawMessage {
	s.t.Helper()
	if !json.Valid([]byte(text)) {
		s.t.Fatalf("%s is not JSON: %s", what, text)
	}
	return json.RawMessage(text)
}

// Clock moves the clock: {"advance": "1h"}, or {"auto": true} to jump to each timer.
func (s *Sandbox) Clock(change string) any { s.t.Helper(); return s.Control("clock", change) }

// Create creates a task from the template namespace/name, and returns its id.
func (s *Sandbox) Create(template, context string) (task string) {
	s.t.Helper()
	namespace, name, _ := strings.Cut(template, "/")
	body, _ := json.Marshal(map[string]any{
		"namespace": namespace, "name": name, "context": s.needJSON("the context", cmp.Or(context, "{}")),
	})
	return s.Request("POST", "/v1/tasks", string(body)).(map[string]any)["task_uuid"].(string)
}

// Explore runs a task with every fault of every step, and fails the test with the table if one does not end as it should.
// Options are at most one JSON object, such as {"before": "URL", "check": "URL"}.
func (s *Sandbox) Explore(template, context string, options ...string) {
	s.t.Helper()
	namespace, name, _ := strings.Cut(template, "/")
	var body map[string]any
	if err := json.Unmarshal([]byte(cmp.Or(strings.Join(options, ""), "{}")), &body); err != nil || body == nil {
		s.t.Fatalf("the options are not a JSON object: %s", strings.Join(options, ""))
	}
	body["namespace"], body["name"], body["context"] = namespace, name, s.needJSON("the context", cmp.Or(context, "{}"))
	text, _ := json.Marshal(body)
	if found := s.Control("explore", string(text)).(map[string]any); found["findings"] != 0.0 {
		s.t.Fatalf("\n%s", found["text"])
	}
}

// Complete completes a step as a person does; the result is JSON.
func (s *Sandbox) Complete(task, step, result string) {
	s.t.Helper()
	s.needJSON("the result of step "+step, result)
	id := s.Step(task, step)["step_uuid"].(string)
	s.Request("PATCH", "/v1/tasks/"+task+"/workflow_steps/"+id, `{"action_type": "complete_manually",
		"completion_data": {"result": `+result+`}, "reason": "test", "completed_by": "test"}`)
}

// Status waits until nothing runs, and checks the status of a task. If it differs, the test fails and says why.
func (s *Sandbox) Status(task, want string) {
	s.t.Helper()
	s.idle()
	body, _ := json.Marshal(map[string]string{"task_uuid": task, "status": want})
	s.Control("verify", string(body))
}

// Why returns one line that says why a task is stuck.
func (s *Sandbox) Why(task string) string {
	s.t.Helper()
	return s.Request("GET", "/v1/tasks/"+task+"/explain", "").(map[string]any)["message"].(string)
}

// Calls waits until nothing runs, and checks how often a step's handler or stub was called in this sandbox, counting
// all tasks, attempts and instances of a batch worker.
func (s *Sandbox) Calls(step string, want int) {
	s.t.Helper()
	s.idle()
	body, _ := json.Marshal(map[string]any{"match": map[string]any{"step": step}, "count": map[string]any{"exactly": want}})
	s.Control("verify", string(body))
}

// Result waits until nothing runs, and returns the result of a step. If the step has none, the test fails.
func (s *Sandbox) Result(task, step string) any {
	s.t.Helper()
	found := s.Step(task, step)
	if state := found["current_state"]; state != "complete" && state != "resolved_manually" {
		s.t.Fatalf("step %s has no result: %s", step, s.Why(task))
	}
	outcome, _ := found["results"].(map[string]any)
	return outcome["result"]
}

func (s *Sandbox) idle() { s.t.Helper(); s.Control("wait-idle", "") }

// Steps waits until nothing runs, and returns the steps of a task.
func (s *Sandbox) Steps(task string) (steps []map[string]any) {
	s.t.Helper()
	s.idle()
	for _, step := range s.Request("GET", "/v1/tasks/"+url.PathEscape(task)+"/workflow_steps", "").([]any) {
		steps = append(steps, step.(map[string]any))
	}
	return steps
}

// Step waits until nothing runs, and returns a step of a task.
func (s *Sandbox) Step(task, name string) map[string]any {
	s.t.Helper()
	var names []string
	for _, step := range s.Steps(task) {
		if step["name"] == name {
			return step
		}
		names = append(names, step["name"].(string))
	}
	s.t.Fatalf("the task has no step %s; it has %s", name, strings.Join(names, ", "))
	return nil
}
