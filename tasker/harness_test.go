package main

// What the tests need: the program stepwell as a child process, a client of its API, and this program, run in the process.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"stepwell/e2e/wire"
	"stepwell/packages/go/stepwelltest"
)

// Helpers shared with the other tests of the repository.
var (
	readFile, writeFile = wire.ReadFile, wire.WriteFile
	eventually          = wire.Eventually
	configFile          = wire.ConfigFile
	startProcess        = wire.StartProcess
)

// repository returns the path of a file of the repository.
func repository(path string) string { return filepath.Join("..", filepath.FromSlash(path)) }

func TestMain(m *testing.M) {
	wire.Main(m, "stepwell/tasker", func() {}, func() {})
}

// buildProgram builds stepwell once.
var buildProgram = sync.OnceValues(func() (string, error) { return stepwelltest.Build(wire.Output()) })

func programFile(t testing.TB) string {
	t.Helper()
	stepwelltest.NoteSources()
	return wire.Must(buildProgram())(t)
}

// runTasker runs a command of this program, with variables of the environment such as A=b.
func runTasker(t testing.TB, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, said bytes.Buffer
	p := &program{stdout: &out, stderr: &said, now: time.Now, stepwell: programFile(t), getenv: func(name string) string {
		for _, v := range env {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}}
	code = p.main(context.Background(), args)
	return code, out.String(), said.String()
}

// wantRun runs a command, which must end with an exit code and say something.
func wantRun(t testing.TB, want int, said string, args ...string) (stdout string) {
	t.Helper()
	code, stdout, stderr := runTasker(t, nil, args...)
	if code != want || !strings.Contains(stderr, said) {
		t.Errorf("%q: got exit code %d, %q; want %d, %q", args, code, stderr, want, said)
	}
	return stdout
}

// server is a running stepwell.
type server struct {
	t     testing.TB
	stop  func()
	ready struct {
		OrchestrationURL string `json:"orchestration_url"`
		WorkerURL        string `json:"worker_url"`
	}
}

// serve starts stepwell on free ports.
func serve(t testing.TB, args ...string) *server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ready.json")
	c := exec.Command(programFile(t), append([]string{"serve", "--listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0",
		"--ready-file", file}, args...)...)
	c.Dir, c.Env = t.TempDir(), wire.ProgramEnv()
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t}
	s.stop = sync.OnceFunc(func() {
		c.Process.Signal(syscall.SIGTERM)
		c.Wait()
		if t.Failed() {
			t.Logf("stepwell said:\n%s", &said)
		}
	})
	t.Cleanup(s.stop)
	eventually(t, "stepwell is ready", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && json.Unmarshal(text, &s.ready) == nil
	})
	return s
}

func (s *server) api() *api { return &api{s.t, s.ready.OrchestrationURL} }

// api is a client of a service.
type api struct {
	t   testing.TB
	url string
}

// answer is a complete response.
type answer struct {
	t      testing.TB
	status int
	body   []byte
}

// do sends a request, with a body as JSON.
func (s *api) do(method, path, body string) *answer {
	s.t.Helper()
	req := wire.Must(http.NewRequest(method, s.url+path, strings.NewReader(body)))(s.t)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp := wire.Must(http.DefaultClient.Do(req))(s.t)
	defer resp.Body.Close()
	return &answer{s.t, resp.StatusCode, wire.Must(io.ReadAll(resp.Body))(s.t)}
}

// want fails the test unless the status is the one given.
func (a *answer) want(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("got status %d; want %d: %s", a.status, status, a.body)
	}
	return a
}

// get returns the value at a path, as wire.LookUp finds it.
func (a *answer) get(path string) any {
	a.t.Helper()
	v, ok := wire.LookUp(a.decoded(), path)
	if !ok {
		a.t.Fatalf("no %s in %s", path, a.body)
	}
	return v
}

// decoded returns the body, decoded.
func (a *answer) decoded() any { return wire.Must(wire.Decode(a.body))(a.t) }

// text returns the value at a path as text.
func (a *answer) text(path string) string {
	a.t.Helper()
	return fmt.Sprint(a.get(path))
}

// into decodes the body.
func (a *answer) into(v any) {
	a.t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		a.t.Fatalf("%v in %s", err, a.body)
	}
}

// create creates a task and returns its id.
func (s *api) create(body string) string {
	s.t.Helper()
	return s.do("POST", "/v1/tasks", body).want(201).text("task_uuid")
}

// await polls a task until its status is the one given.
func (s *api) await(id, status string) (a *answer) {
	s.t.Helper()
	eventually(s.t, "task "+id+" becomes "+status, func() bool {
		a = s.do("GET", "/v1/tasks/"+id, "").want(200)
		return a.text("status") == status
	})
	return a
}

// stepView holds the members of a step that the tests read.
type stepView struct {
	StepUUID string `json:"step_uuid"`
	Name     string `json:"name"`
	State    string `json:"current_state"`
	Results  struct {
		Success bool            `json:"success"`
		Result  json.RawMessage `json:"result"`
	} `json:"results"`
}

// steps returns a task's steps.
func (s *api) steps(id string) (steps []stepView) {
	s.t.Helper()
	s.do("GET", "/v1/tasks/"+id+"/workflow_steps", "").want(200).into(&steps)
	return steps
}

// step returns a step of a task by its name.
func (s *api) step(task, name string) stepView {
	s.t.Helper()
	for _, v := range s.steps(task) {
		if v.Name == name {
			return v
		}
	}
	s.t.Fatalf("task %s has no step %s", task, name)
	return stepView{}
}

// pick returns one of two words.
func pick(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// portableCase is a line of a table in testdata/portable.
type portableCase struct {
	there string // what Tasker does with the text: its first word
	mends bool   // whether tasker convert makes it taken: a + after the word
	path  string // of what is found; - for nothing
	text  string
}

// Template returns the case's template. T stands for a name, a namespace and a version, S for a step.
func (c *portableCase) template(name string) string {
	return strings.NewReplacer("{T", "{name: "+name+", namespace_name: probe, version: 1.0.0", "name: T", "name: "+name,
		"{S, handler:", "{name: a, handler:", "{S", "{name: a, handler: {callable: p.a}").Replace(c.text)
}

// portableCases reads a table. In its texts, <N> stands for the letter x N times, and <[N]> for a list of N zeros.
func portableCases(t testing.TB, file string) (cases []portableCase) {
	t.Helper()
	long := regexp.MustCompile(`<(\[?)(\d+)\]?>`)
	for line := range bytes.Lines(readFile(t, file)) {
		words := strings.SplitN(strings.Join(strings.Fields(string(line)), " "), " ", 3)
		if len(words) < 3 || words[0] == "#" {
			continue
		}
		c := portableCase{path: words[1]}
		c.there, c.mends = strings.CutSuffix(words[0], "+")
		c.text = long.ReplaceAllStringFunc(words[2], func(s string) string {
			m := long.FindStringSubmatch(s)
			n := wire.Must(strconv.Atoi(m[2]))(t)
			if m[1] != "" {
				return "[" + strings.Repeat("0,", n-1) + "0]"
			}
			return strings.Repeat("x", n)
		})
		cases = append(cases, c)
	}
	return cases
}
