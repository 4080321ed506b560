package main

// The whole program as a child process: the test binary plays it.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// playsProgram is the environment variable that makes the test binary the program.
const playsProgram = "TEST_BINARY_PLAYS_STEPWELL"

func TestMain(m *testing.M) {
	if os.Getenv(playsProgram) != "" {
		os.Unsetenv(playsProgram)
		main() // ends the process
	}
	os.Exit(m.Run())
}

// patience is how long tests wait for a child; it is long because the machine
// may be busy with other things.
const patience = 30 * time.Second

// output gathers what a child prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	line chan struct{} // closed once there is a whole line
}

func newOutput() *output { return &output{line: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	had := bytes.IndexByte(o.text.Bytes(), '\n') >= 0
	o.text.Write(p)
	if !had && bytes.IndexByte(p, '\n') >= 0 {
		close(o.line)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// program is a child that is the program.
type program struct {
	t              testing.TB
	cmd            *exec.Cmd
	stdout, stderr *output
	exited         chan struct{} // closed when it has ended
	ready          readyReport   // after awaitReady
}

// launch starts the program with arguments, in an empty directory of its own,
// with the environment of the test and the variables in env. The end of the
// test kills it.
func launch(t testing.TB, env []string, args ...string) *program {
	t.Helper()
	return launchReading(t, nil, env, args...)
}

// launchReading is launch with a standard input.
func launchReading(t testing.TB, stdin *os.File, env []string, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return launchFile(t, self, stdin, env, args...)
}

// launchFile is launchReading of an executable file.
func launchFile(t testing.TB, file string, stdin *os.File, env []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(file, args...), stdout: newOutput(), stderr: newOutput(),
		exited: make(chan struct{})}
	p.cmd.Dir = t.TempDir()
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, configEnvPrefix) {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	// With the race detector a process would rest for a second before it exits.
	p.cmd.Env = append(append(p.cmd.Env, playsProgram+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	if stdin != nil {
		p.cmd.Stdin = stdin
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(p.kill)
	return p
}

// serveArguments are those of a server on free ports that tells them.
func serveArguments(args ...string) []string {
	return append([]string{"--listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0", "--print-ready"}, args...)
}

// serve starts a server on free ports and waits until it is ready.
func serve(t testing.TB, args ...string) *program {
	t.Helper()
	p := launch(t, nil, serveArguments(args...)...)
	if err := p.awaitReady(); err != nil {
		t.Fatal(err)
	}
	return p
}

// awaitReady waits for what --print-ready prints.
func (p *program) awaitReady() error {
	select {
	case <-p.stdout.line:
	case <-p.exited:
		return fmt.Errorf("the program ended before it was ready: %v\n%s", p.cmd.ProcessState, p.stderr)
	case <-time.After(patience):
		return fmt.Errorf("the program was not ready in time\n%s", p.stderr)
	}
	first, _, _ := strings.Cut(p.stdout.String(), "\n")
	return json.Unmarshal([]byte(first), &p.ready)
}

// api is the program's orchestration role.
func (p *program) api() *testServer { return &testServer{t: p.t, url: p.ready.OrchestrationURL} }

// kill ends the program as a crash does, and waits for that.
func (p *program) kill() {
	p.cmd.Process.Kill()
	<-p.exited
}

func (p *program) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// wait waits for the end of the program and returns its exit code, -1 when a
// signal ended it.
func (p *program) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.t.Fatalf("the program does not end\n%s", p.stderr)
	}
	return p.cmd.ProcessState.ExitCode()
}

// stop ends the program as a service manager does.
func (p *program) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		p.t.Fatalf("got exit code %d after SIGTERM; want 0\n%s", code, p.stderr)
	}
}

// running says whether the program has not ended.
func (p *program) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// runProgram runs the program to its end.
func runProgram(t testing.TB, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	p := launch(t, env, args...)
	code = p.wait()
	return code, p.stdout.String(), p.stderr.String()
}

// eventually polls until the condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("never: %s", what)
		}
	}
}

// templateDir is a directory with templates, given as JSON.
func templateDir(t testing.TB, templates ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i, text := range templates {
		writeFile(t, filepath.Join(dir, fmt.Sprintf("%d.json", i)), []byte(text))
	}
	return dir
}
