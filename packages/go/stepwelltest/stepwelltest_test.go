package stepwelltest

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	Main(m, "--templates", "../../../examples/testing/order.json,../../../examples/testing/leave.yaml")
}

func TestSandbox(t *testing.T) {
	t.Parallel()
	s := New(t)
	s.Stub("charge", `{"error": {"message": "declined"}}`, `{"result": {"receipt": 1}}`)
	task := s.Create("shop/order", `{"amount": 120}`)
	s.Status(task, "waiting_for_retry")
	s.Clock(`{"advance": "1h"}`)
	s.Calls("charge", 2)
	if got := fmt.Sprint(s.Result(task, "charge")); got != "map[receipt:1]" {
		t.Errorf("got the result %s; want the receipt", got)
	}
	s.Clock(`{"auto": true}`)
	s.Complete(task, "settle", `"settled"`)
	s.Status(task, "complete")
	var names []string
	for _, step := range s.Steps(task) {
		names = append(names, step["name"].(string))
	}
	if want := []string{"charge", "return_period", "settle"}; !slices.Equal(names, want) || s.Step(task, "charge")["attempts"] != 2.0 {
		t.Errorf("got the steps %q, %v; want %q", names, s.Step(task, "charge"), want)
	}
	saved := New(t, fmt.Sprintf(`{"seed": %q}`, s.Request("GET", "/_stepwell/state", "")))
	if got, want := saved.Why(task), "the task is complete: nothing is left to do"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
	other := New(t, `{"deterministic_ids": "seed"}`)
	if got := other.Request("GET", "/v1/tasks", "").(map[string]any)["pagination"].(map[string]any)["total_count"]; got != 0.0 {
		t.Errorf("another sandbox has %v tasks; want none", got)
	}
	if got := other.Clock(`{"freeze": true}`).(map[string]any)["now"]; !strings.HasPrefix(got.(string), "2026-01-01T00:00:00") {
		t.Errorf("got the time %v; want the first of deterministic ids", got)
	}
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	s := New(t)
	task := s.Create("people/leave", `{"who": "anna"}`)
	s.Clock(`{"auto": true}`) // which does not jump to a deadline
	s.Control("wait-idle", "")
	s.Status(task, "steps_in_process")
	s.Clock(`{"advance": "48h"}`)
	if got := s.Step(task, "remind")["current_state"]; got != "complete" {
		t.Errorf("the step remind is %s; want complete", got)
	}
	s.Clock(`{"advance": "24h"}`)
	s.Status(task, "complete")
	s.Step(task, "nobody_answered")
}

func TestSomebodyAnswers(t *testing.T) {
	t.Parallel()
	s := New(t)
	task := s.Create("people/leave", `{"who": "anna"}`)
	s.Clock(`{"advance": "71h"}`)
	s.Complete(task, "approve_late", `{"decision_point_outcome": {"type": "create_steps", "step_names": ["grant"]}}`)
	s.Status(task, "complete")
	s.Step(task, "grant")
}

// failing is a test that fails.
type failing struct {
	testing.TB
	said, logged string
	cleanups     []func()
}

func (f *failing) Helper()           {}
func (f *failing) Failed() bool      { return f.said != "" }
func (f *failing) Cleanup(do func()) { f.cleanups = append(f.cleanups, do) }
func (f *failing) Log(args ...any)   { f.logged += fmt.Sprint(args...) }
func (f *failing) Fatal(args ...any) { f.said = fmt.Sprint(args...); runtime.Goexit() }
func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestExplore(t *testing.T) {
	t.Parallel()
	s := New(t)
	s.Stub("charge", `{"result": {"receipt": 1}}`)
	s.Stub("settle", `{"result": "settled"}`)
	said := fails(t, func(f *failing) { (&Sandbox{s.URL, f}).Explore("shop/order", `{"amount": 120}`) }).said
	if !strings.Contains(said, "\nSTEP ") || !strings.Contains(said, "\n--only charge:nobody  stuck: ") {
		t.Errorf("got %s; want the table and its findings", said)
	}
	s.Explore("shop/order", `{"amount": 120}`, `{"allow": {"nobody": ["stuck"]}}`)
}

func TestFailures(t *testing.T) {
	t.Parallel()
	s := New(t)
	s.Stub("charge", `{"error": {"message": "declined"}}`)
	task := s.Create("shop/order", "")
	for want, check := range map[string]func(*Sandbox){
		`the task is waiting_for_retry, not complete: step "charge" `:       func(s *Sandbox) { s.Status(task, "complete") },
		`must be a state of tasks, not "completed"; did you mean complete?`: func(s *Sandbox) { s.Status(task, "completed") },
		`outcomes[1] of step charge is not JSON: {"result": 1`:              func(s *Sandbox) { s.Stub("charge", `{}`, `{"result": 1`) },
		"the context is not JSON: {a: 1}":                                   func(s *Sandbox) { s.Create("shop/order", "{a: 1}") },
		"the options are not a JSON object: {check: 1}":                     func(s *Sandbox) { s.Explore("shop/order", "", "{check: 1}") },
		"1 call matches, 2 wanted: attempt 1 failed (declined)":             func(s *Sandbox) { s.Calls("charge", 2) },
		`no template has a step "chrge"`:                                    func(s *Sandbox) { s.Calls("chrge", 1) },
		"step charge has no result: ":                                       func(s *Sandbox) { s.Result(task, "charge") },
		"the task has no step pay; it has charge, return_period, settle":    func(s *Sandbox) { s.Step(task, "pay") },
		"no template shop/odrer is registered; did you mean shop/order?":    func(s *Sandbox) { s.Create("shop/odrer", "") },
		"no such path: /nowhere":                                            func(s *Sandbox) { s.Request("GET", "/nowhere", "") },
	} {
		f := fails(t, func(f *failing) { check(&Sandbox{s.URL, f}) })
		if !strings.Contains(f.said, want) || strings.Contains(f.said, "\n") {
			t.Errorf("got %q; want one line with %q", f.said, want)
		}
	}
}

// fails runs a test that may end early, and what it leaves to its end.
func fails(t *testing.T, check func(*failing)) *failing {
	f, done := &failing{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		check(f)
	}()
	<-done
	for _, do := range f.cleanups {
		do()
	}
	return f
}

// TestLog checks that a failing test shows the log of its sandbox, and others nothing.
func TestLog(t *testing.T) {
	t.Parallel()
	for want, logged := range map[string]bool{"waiting_for_retry": false, "complete": true} {
		f := fails(t, func(f *failing) {
			s := New(f)
			s.Stub("charge", `{"error": {"message": "declined in `+want+`"}}`)
			s.Status(s.Create("shop/order", ""), want)
		})
		if strings.Contains(f.logged, "declined in complete") != logged || strings.Contains(f.logged, "declined in waiting") {
			t.Errorf("%s: got the log %q; want that of this sandbox: %v", want, f.logged, logged)
		}
	}
}

// TestRunnerIsKilled has this program kill itself in a test, as a runner that runs out of memory is killed.
func TestRunnerIsKilled(t *testing.T) {
	if os.Getenv("STEPWELL_TEST_KILLED") != "" {
		fmt.Println("URL", New(t).URL)
		self, _ := os.FindProcess(os.Getpid())
		self.Kill()
		select {}
	}
	runner := exec.Command(os.Args[0], "-test.run=^TestRunnerIsKilled$")
	runner.Env = append(os.Environ(), "STEPWELL_TEST_KILLED=1")
	said, err := runner.CombinedOutput()
	_, url, found := strings.Cut(strings.TrimSpace(string(said)), "URL ")
	if err == nil || !found {
		t.Fatalf("got %v and %s; want a URL and a killed runner", err, said)
	}
	for err = nil; err == nil; { // until the service ends
		_, err = http.Get(url + "/health/live")
	}
}

func TestFind(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	script := func(name, text string) string {
		file := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(file), 0o755)
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	given, onPath := script("a b/stepwell", ""), script("bin/stepwell", "")
	script("go/go", `[ ! -e broken ] || exit 1; echo "built by $* in $PWD"`)
	checkout := filepath.Dir(script("checkout/go.mod", ""))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	t.Setenv("HOME", dir)
	found := func(variables ...string) string {
		for i := 0; i < len(variables); i += 2 {
			t.Setenv(variables[i], variables[i+1])
		}
		command, err := find()
		if err != nil {
			return err.Error()
		}
		return strings.Join(command, "|")
	}
	type row struct{ got, want string }
	rows := []row{{found("STEPWELL", given, "PATH", dir+"/bin", "STEPWELL_SOURCE", checkout), given},
		{found("STEPWELL", "run  it"), "run|it"}, {found("STEPWELL", ""), onPath},
		{found("PATH", dir), "there is no program stepwell, and no Go to build it in " + checkout}}
	rows = append(rows, row{found("PATH", dir+"/go"), "built by run ./packages/build in " + checkout})
	script("checkout/broken", "")
	rows = append(rows, row{found("PATH", dir+"/go"), "building the service in " + checkout + " failed: its output says why"},
		row{found("STEPWELL_SOURCE", dir+"/nowhere"), "there is no program stepwell: put it on PATH, set STEPWELL to it, " +
			"or set STEPWELL_SOURCE to its checkout"})
	for _, r := range rows {
		if r.got != r.want {
			t.Errorf("got %q; want %q", r.got, r.want)
		}
	}
}
