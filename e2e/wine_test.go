package e2e

// The program for Windows, run by Wine.

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"stepwell/e2e/wire"
)

// wine runs programs for Windows, in a directory that is its C: drive.
type wine struct {
	t       *testing.T
	loader  string
	env     []string
	program string // for Windows
}

// processPrng is what Go's runtime needs of Windows, and Wine before 9 lacks: bcryptprimitives.dll.
const processPrng = `#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE p, SIZE_T n) { return SystemFunction036(p, n); }
`

// newWine builds the program while Wine makes its directory, which takes 15 s.
func newWine(t *testing.T) *wine {
	const debian, compiler = "/usr/lib/wine/wine64", "x86_64-w64-mingw32-gcc"
	w := &wine{t: t, loader: debian, program: filepath.Join(t.TempDir(), "stepwell.exe")}
	if _, err := os.Stat(debian); err != nil {
		if w.loader, err = exec.LookPath("wine"); err != nil {
			wire.Lack(t, "wine64", "needs Wine: the package wine64")
		}
	}
	wire.Need(t, compiler)
	prefix := t.TempDir()
	w.env = append(programEnv(), "WINEPREFIX="+prefix, "WINEDEBUG=-all", "WINEDLLOVERRIDES=mscoree,mshtml,winemenubuilder.exe=d")
	server := filepath.Join(filepath.Dir(w.loader), "wineserver")
	t.Cleanup(func() { w.command(server, "-k").Run() })
	build := exec.Command("go", "build", "-o", w.program, "..")
	build.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0")
	built := make(chan error, 1)
	go func() {
		text, err := build.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, text)
		}
		built <- err
	}()
	for _, start := range []*exec.Cmd{w.command(server, "-p"), w.command(w.loader, "wineboot", "-i")} {
		if err := start.Run(); err != nil { // what they print is lost, because what they start would keep a pipe open
			t.Fatalf("%q: %v", start.Args, err)
		}
	}
	source := filepath.Join(prefix, "prng.c")
	writeFile(t, source, []byte(processPrng))
	w.must(compiler, "-shared", "-o", filepath.Join(prefix, "drive_c/windows/system32/bcryptprimitives.dll"), source, "-ladvapi32")
	if err := <-built; err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *wine) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir = w.env, filepath.Dir(w.program)
	return cmd
}

// must runs a command, and returns what it prints.
func (w *wine) must(name string, args ...string) string {
	w.t.Helper()
	out, err := w.command(name, args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

// run runs a command of the program, and returns its exit code and what it prints.
func (w *wine) run(args ...string) (code int, printed string) {
	w.t.Helper()
	cmd := w.command(w.loader, append([]string{w.program}, args...)...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		w.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// serve starts the program on a data directory. Closing the file ends it.
func (w *wine) serve(data string, args ...string) (*program, *os.File) {
	w.t.Helper()
	r, stdin, err := os.Pipe()
	if err != nil {
		w.t.Fatal(err)
	}
	args = append(serveArguments("--exit-with-parent", "--data", "Z:"+data), args...)
	p := launchFile(w.t, w.loader, r, w.env, append([]string{w.program}, args...)...)
	r.Close()
	return p.awaitReady(), stdin
}

// TestWindows takes the program for Windows through a day: a start, a task, a second process that is refused, a crash, a
// start that finds the task, programs as handlers, a compaction, and a clean end.
func TestWindows(t *testing.T) {
	wire.Long(t)
	t.Parallel()
	w := newWine(t)
	data := t.TempDir()
	p, stdin := w.serve(data)
	defer stdin.Close()
	create := func(p *program) string {
		t.Helper()
		made := p.api().do("POST", "/v1/tasks?wait=30s", `{"namespace":"demo","name":"diamond"}`).want(201)
		if got := made.get("status"); got != "complete" {
			t.Errorf("got a task that is %v; want complete", got)
		}
		return made.get("task_uuid").(string)
	}
	task := create(p)
	if code, said := w.run("serve", "--listen", "127.0.0.1:0", "--data", "Z:"+data); code != 1 || !strings.Contains(said, "in use by process") {
		t.Errorf("a second process: got exit code %d, %s", code, said)
	}
	if code, said := w.run("serve", "--memory", "--listen", strings.TrimPrefix(p.ready.OrchestrationURL, "http://")); code != 1 ||
		!strings.Contains(said, "in use by another program") {
		t.Errorf("a second listener: got exit code %d, %s", code, said)
	}
	p.kill()

	p, stdin = w.serve(data)
	defer stdin.Close()
	if got := p.api().do("GET", "/v1/tasks/"+task, "").want(200).get("status"); got != "complete" {
		t.Errorf("after a crash: got a task that is %v; want complete", got)
	}
	if code, said := w.run("task", "list", "--url", p.ready.OrchestrationURL, "-o", "name"); code != 0 || !strings.Contains(said, task) {
		t.Errorf("task list: got exit code %d, %s; want %s", code, said, task)
	}
	create(p)
	stdin.Close()
	if code := p.wait(); code != 0 || strings.Contains(p.stderr.String(), `"ERROR"`) {
		t.Errorf("the end: got exit code %d\n%s", code, p.stderr)
	}
	for _, verb := range []string{"compact", "check"} {
		if code, said := w.run("store", verb, "--data", "Z:"+data); code != 0 {
			t.Errorf("store %s: got exit code %d, %s", verb, code, said)
		}
	}
	if code, said := w.run("task", "list", "--url", p.ready.OrchestrationURL); code != 7 || !strings.Contains(said, "nothing listens") {
		t.Errorf("no service: got exit code %d, %s", code, said)
	}

	// cmd starts a server and waits for it: both end with the attempt.
	writeFile(t, filepath.Join(filepath.Dir(w.program), "order.yaml"), []byte(`{name: order, version: 1.0.0, steps: [
  {name: count, handler: {callable: "exec:cmd", initialization: {args: [/c, echo 7]}}},
  {name: hang, dependencies: [count], timeout_seconds: 10, retry: {retryable: false},
   handler: {callable: "exec:cmd", initialization: {args: [/c, stepwell.exe serve --memory --listen 127.0.0.1:0 --worker-listen 127.0.0.1:0 --ready-file child.json]}}}]}`))
	writeFile(t, filepath.Join(filepath.Dir(w.program), "stepwell.toml"), []byte("[worker]\nallow_exec = true\n"))
	code, said := w.run("run", "order.yaml", "--config", "stepwell.toml", "-o", "json")
	if code != 4 {
		t.Errorf("run: got exit code %d, %s; want 4", code, said)
	}
	wantParts(t, "run", said, `"count": 7`, "(timeout)")
	var child readyReport
	if err := json.Unmarshal(readFile(t, filepath.Join(filepath.Dir(w.program), "child.json")), &child); err != nil {
		t.Fatal(err)
	}
	if _, err := http.Get(child.OrchestrationURL); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the server that a program started: got %v; want %v", err, syscall.ECONNREFUSED)
	}
}
