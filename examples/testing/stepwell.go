// Package stepwelltest tests workflows with a real Stepwell: one process for all tests of a package, and an
// isolated sandbox with a virtual clock for each test. The variable STEPWELL is the command to run; the default,
// "go run stepwell", needs the tool in go.mod.
package stepwelltest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const serve = " --fixture --quiet --log-level warn --listen 127.0.0.1:0 --worker-listen 127.0.0.1:0" +
	" --print-ready --exit-with-parent"

var (
	sandboxes string   // URL that creates sandboxes
	inputs    []string // flags, some of which name files
)

// Main starts Stepwell with further flags, such as --templates, and runs the tests. Call it from TestMain. Stepwell
// reads the environment, too: set STEPWELL_WORKER__HANDLERS with os.Setenv before.
func Main(m *testing.M, flags ...string) {
	inputs = flags
	args := append(strings.Fields(cmp.Or(os.Getenv("STEPWELL"), "go run stepwell")+serve), flags...)
	program := exec.Command(args[0], args[1:]...)
	program.Stderr = os.Stderr
	stdin, _ := program.StdinPipe()
	stdout, _ := program.StdoutPipe()
	var ready map[string]any
	if err := cmp.Or(program.Start(), json.NewDecoder(stdout).Decode(&ready)); err != nil {
		log.Fatalf("%s did not start (%v): set STEPWELL to the command that starts Stepwell", strings.Join(args, " "), err)
	}
	sandboxes = ready["orchestration_url"].(string) + "/_stepwell/sandboxes"
	code := m.Run()
	stdin.Close() // ends Stepwell
	program.Wait()
	os.Exit(code)
}

// Sandbox is a service for one test.
type Sandbox struct {
	URL string // for the application under test
	t   testing.TB
}

// New creates a sandbox whose clock is frozen. It ends with the test.
func New(t testing.TB) *Sandbox {
	t.Helper()
	noteInputs()
	root := &Sandbox{sandboxes, t}
	box := root.Call("POST", "", "").(map[string]any)
	t.Cleanup(func() { root.Call("DELETE", "/"+box["name"].(string), "") })
	s := &Sandbox{box["orchestration_url"].(string), t}
	s.Clock(`{"freeze": true}`)
	return s
}

// noteInputs opens the files that Stepwell reads, and reads the variable, during a test. Only then does go test run
// the test again when they have changed, in place of showing a cached result.
func noteInputs() {
	os.Getenv("STEPWELL")
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

// Call sends a request, ends the test if the service refuses it, and returns the response.
func (s *Sandbox) Call(method, path, body string) any {
	s.t.Helper()
	request, _ := http.NewRequest(method, s.URL+path, strings.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer reply.Body.Close()
	text, _ := io.ReadAll(reply.Body)
	var answer any
	json.Unmarshal(text, &answer) // 204 has no body
	object, ok := answer.(map[string]any)
	if warning, found := object["warning"]; found { // such as an unknown step
		s.t.Fatal(warning)
	}
	if reply.StatusCode < 400 {
		return answer
	}
	if ok {
		if refusal, ok := object["error"].(map[string]any); ok {
			s.t.Fatal(refusal["message"])
		}
	}
	s.t.Fatalf("%s %s: %s %s", method, path, reply.Status, bytes.TrimSpace(text))
	return nil
}

// Stub scripts the outcomes of a step's attempts; the last one repeats.
func (s *Sandbox) Stub(step string, outcomes ...string) {
	s.t.Helper()
	s.StubThen("last", step, outcomes...)
}

// StubThen is Stub, but after the last outcome the step runs if then is "handler".
func (s *Sandbox) StubThen(then, step string, outcomes ...string) {
	s.t.Helper()
	s.Call("POST", "/_stepwell/stubs", `{"match": {"step": "`+step+`"}, "outcomes": [`+strings.Join(outcomes, ", ")+
		`], "then": "`+then+`"}`)
}

// Clock moves the clock: {"advance": "1h"}, or {"auto": true} to jump to each timer.
func (s *Sandbox) Clock(change string) { s.t.Helper(); s.Call("POST", "/_stepwell/clock", change) }

// Create creates a task of the template namespace/name, and returns its id.
func (s *Sandbox) Create(template, context string) (task string) {
	s.t.Helper()
	namespace, name, _ := strings.Cut(template, "/")
	body, _ := json.Marshal(map[string]any{
		"namespace": namespace, "name": name, "context": json.RawMessage(cmp.Or(context, "{}")),
	})
	return s.Call("POST", "/v1/tasks", string(body)).(map[string]any)["task_uuid"].(string)
}

// Complete completes a step as a person does; the result is JSON.
func (s *Sandbox) Complete(task, step, result string) {
	s.t.Helper()
	id := s.step(task, step)["step_uuid"].(string)
	s.Call("PATCH", "/v1/tasks/"+task+"/workflow_steps/"+id, `{"action_type": "complete_manually",
		"completion_data": {"result": `+result+`}, "reason": "test", "completed_by": "test"}`)
}

// Status waits until nothing runs, and checks the status of a task. If it differs, the test ends and says why.
func (s *Sandbox) Status(task, want string) {
	s.t.Helper()
	s.idle()
	if got := s.Call("GET", "/v1/tasks/"+task, "").(map[string]any)["status"]; got != want {
		s.t.Fatalf("the task is %s, not %s: %s", got, want, s.why(task))
	}
}

// why says in one line why a task is stuck.
func (s *Sandbox) why(task string) string {
	s.t.Helper()
	return s.Call("GET", "/v1/tasks/"+task+"/explain", "").(map[string]any)["message"].(string)
}

// Calls waits until nothing runs, and checks how often a step's handler or stub was called, in this sandbox. The
// attempts of all instances of a batch worker count.
func (s *Sandbox) Calls(step string, want int) {
	s.t.Helper()
	s.idle()
	body, _ := json.Marshal(map[string]any{"match": map[string]any{"step": step}, "count": map[string]any{"exactly": want}})
	s.Call("POST", "/_stepwell/verify", string(body))
}

// Result waits until nothing runs, and returns the result of a step. The test ends if the step has none.
func (s *Sandbox) Result(task, step string) any {
	s.t.Helper()
	found := s.step(task, step)
	if state := found["current_state"]; state != "complete" && state != "resolved_manually" {
		s.t.Fatalf("step %s has no result: %s", step, s.why(task))
	}
	outcome, _ := found["results"].(map[string]any)
	return outcome["result"]
}

func (s *Sandbox) idle() { s.t.Helper(); s.Call("POST", "/_stepwell/wait-idle", "") }

// step waits until nothing runs, and returns a step of a task.
func (s *Sandbox) step(task, name string) map[string]any {
	s.t.Helper()
	s.idle()
	var names []string
	for _, v := range s.Call("GET", "/v1/tasks/"+url.PathEscape(task)+"/workflow_steps", "").([]any) {
		step := v.(map[string]any)
		if step["name"] == name {
			return step
		}
		names = append(names, step["name"].(string))
	}
	s.t.Fatalf("the task has no step %s; it has %s", name, strings.Join(names, ", "))
	return nil
}
