// Package e2e tests the whole program as its users meet it: the built binary, its command line,
// its files and its HTTP interfaces. It uses nothing from inside the program. The tests of the
// parts are next to the parts, in the directory above.
package e2e

// The program as a child process.

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"stepwell/e2e/wire"
	"stepwell/packages/go/stepwelltest"
)

// repository returns the path of a file of the repository, relative to the directory of the
// tests.
func repository(path string) string { return filepath.Join("..", filepath.FromSlash(path)) }

func TestMain(m *testing.M) {
	wire.Main(m, "stepwell/e2e", func() { buildProgram() }, closeBrowser)
}

// buildProgram builds the program once, with the race detector when the tests have it.
var buildProgram = sync.OnceValues(func() (string, error) {
	if raceDetector() {
		return stepwelltest.Build(wire.Output(), "-race")
	}
	return stepwelltest.Build(wire.Output())
})

// programFile returns the built program.
func programFile(t testing.TB) string {
	t.Helper()
	stepwelltest.NoteSources()
	return wire.Must(buildProgram())(t)
}

// output collects the output of a child.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	line chan struct{} // closed once there is a complete line
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

// readyReport is the output of --print-ready.
type readyReport struct {
	OrchestrationURL string `json:"orchestration_url"`
	WorkerURL        string `json:"worker_url"`
	MountURL         string `json:"mount_url"`
	PID              int    `json:"pid"`
	Version          string `json:"version"`
}

// program is a running or ended child.
type program struct {
	t              testing.TB
	cmd            *exec.Cmd
	stdout, stderr *output
	exited         chan struct{} // closed when it has ended
	ready          readyReport   // after awaitReady
}

// launch starts the program with arguments, in an empty directory, with the environment of the
// test and the variables in env. It is killed at the end of the test.
func launch(t testing.TB, env []string, args ...string) *program {
	t.Helper()
	return launchFile(t, programFile(t), nil, env, args...)
}

// launchFile is launch for any executable of the program, with a standard input or none.
func launchFile(t testing.TB, file string, stdin *os.File, env []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(file, args...), stdout: newOutput(), stderr: newOutput(),
		exited: make(chan struct{})}
	p.cmd.Dir = t.TempDir()
	p.cmd.Env = append(programEnv(), env...)
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
	process, stderr, exited := p.cmd.Process, p.stderr, p.exited // all that is kept until the end of the test
	t.Cleanup(func() {
		process.Kill()
		<-exited
		if said := stderr.String(); strings.Contains(said, "DATA RACE") || strings.Contains(said, "panic: ") {
			t.Errorf("the program says:\n%s", said)
		}
	})
	return p
}

// serveArguments returns the arguments of a server that listens on free ports and reports them.
func serveArguments(args ...string) []string {
	return append([]string{"--listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0", "--print-ready"}, args...)
}

// serve starts a server on free ports and waits until it is ready.
func serve(t testing.TB, args ...string) *program {
	t.Helper()
	return serveWith(t, nil, args...)
}

// serveWith is serve with environment variables.
func serveWith(t testing.TB, env []string, args ...string) *program {
	t.Helper()
	return launch(t, env, serveArguments(args...)...).awaitReady()
}

// awaitReady waits for the report of --print-ready.
func (p *program) awaitReady() *program {
	p.t.Helper()
	select {
	case <-p.stdout.line:
	case <-p.exited:
		p.t.Fatalf("the program ended before it was ready: %v\n%s", p.cmd.ProcessState, p.stderr)
	case <-time.After(patience):
		p.t.Fatalf("the program was not ready in time\n%s", p.stderr)
	}
	first, _, _ := strings.Cut(p.stdout.String(), "\n")
	if err := json.Unmarshal([]byte(first), &p.ready); err != nil {
		p.t.Fatal(err)
	}
	return p
}

// api returns a client of the orchestration role.
func (p *program) api() *api { return &api{p.t, p.ready.OrchestrationURL} }

// clock changes the virtual clock.
func (p *program) clock(change string) {
	p.t.Helper()
	p.api().do("POST", "/_stepwell/clock", change).want(200)
}

// kill ends the program as a crash does, and waits until it has ended.
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

// wait waits for the end of the program and returns its exit code, or -1 if a signal ended it.
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

// running reports whether the program still runs.
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

// wantExit runs the program, which must end with an exit code, and returns what it prints.
func wantExit(t testing.TB, want int, env []string, args ...string) string {
	t.Helper()
	code, stdout, stderr := runProgram(t, env, args...)
	if code != want {
		t.Errorf("%q: got exit code %d; want %d\n%s%s", args, code, want, stdout, stderr)
	}
	return stdout + stderr
}

// signingSecret is a key as Standard Webhooks has it.
const signingSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqr"
