package e2e

// The program as its user sees it: its output, its exit codes, its files, and how it starts and
// stops.

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// TestBanner types the command that the banner tells to try, with a template whose name has a quote, beside one that
// needs a key. The scripts in testdata/cli have the other lines.
func TestBanner(t *testing.T) {
	t.Parallel()
	named := t.TempDir()
	for file, text := range map[string]string{"a": "identity_strategy: caller_provided\nname: a", "b": "name: it's one"} {
		text += "\nnamespace: shop\nversion: 1.0.0\nsteps: [{name: a, handler: {callable: builtin:noop}}]\n"
		writeFile(t, filepath.Join(named, file+".yaml"), []byte(text))
	}
	for _, args := range [][]string{{"--fixture"}, {"--memory", "--templates", named}} {
		p := serve(t, append(args, "--config", configFile(t, "log.format = 'text'"))...)
		try := regexp.MustCompile(`  try +(stepwell task create .* --wait .*)`)
		eventually(t, "a command to try", func() bool { return try.MatchString(p.stderr.String()) })
		command := try.FindStringSubmatch(p.stderr.String())[1]
		said, err := exec.Command("sh", "-c", fmt.Sprintf("stepwell() { %q \"$@\"; }; %s", programFile(t), command)).CombinedOutput()
		if err != nil || !strings.Contains(string(said), "complete") {
			t.Errorf("%s: got %v, %s; want a task that is complete", command, err, said)
		}
	}
}

// TestBannerOfGoRun starts the program where "go run" puts it: there is no program stepwell to try.
func TestBannerOfGoRun(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "go-build1", "stepwell")
	wire.Must(0, os.Mkdir(filepath.Dir(program), 0o755))(t)
	// A process that another test starts while a file is open for writing keeps it from being executed.
	wire.Must(exec.Command("cp", programFile(t), program).CombinedOutput())(t)
	p := launchFile(t, program, nil, nil, serveArguments("--memory", "--config", configFile(t, "log.format = 'text'"))...).awaitReady()
	eventually(t, "a command that can be typed", func() bool {
		return strings.Contains(p.stderr.String(), "  try        go run . task create demo/diamond --wait --url "+p.ready.OrchestrationURL)
	})
	p.stop()
	said, err := exec.Command(program, "task", "list", "--url", "http://127.0.0.1:1").CombinedOutput()
	if !strings.Contains(string(said), `is "go run . serve" running?`) {
		t.Errorf("got %v, %s; want a command that can be typed", err, said)
	}
}

// TestReadyFile checks that the file has the same contents as standard output, and is removed at the end unless another
// process has overwritten it.
func TestReadyFile(t *testing.T) {
	t.Parallel()
	for _, other := range []string{"", `{"pid":1}`} {
		path := filepath.Join(t.TempDir(), "ready.json")
		writeFile(t, path, nil)
		p := serve(t, "--memory", "--ready-file", path)
		if got := string(readFile(t, path)); got != p.stdout.String() {
			t.Errorf("the file holds %q; standard output %q", got, p.stdout)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 || p.ready.PID != p.cmd.Process.Pid {
			t.Errorf("got mode %v, %v, %+v; want a file of mode 0600, and pid %d", info.Mode(), err, p.ready, p.cmd.Process.Pid)
		}
		p.api().do("GET", "/health/ready", "").want(200)
		(&api{t, p.ready.WorkerURL}).do("GET", "/health/ready", "").want(200)
		if other == "" {
			p.stop()
			wantNoFiles(t, filepath.Dir(path))
			continue
		}
		writeFile(t, path, []byte(other))
		p.stop()
		if got := string(readFile(t, path)); got != other {
			t.Errorf("the file of another process became %q", got)
		}
	}
}

// wantNoFiles fails the test unless the directory is empty.
func wantNoFiles(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("%s holds %v, %v; want nothing", dir, left, err)
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	l := wire.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	taken := l.Addr().String()
	for _, flag := range []string{"--listen", "--worker-listen"} {
		t.Run(flag, func(t *testing.T) {
			old := filepath.Join(t.TempDir(), "ready.json")
			writeFile(t, old, nil)
			code, stdout, stderr := runProgram(t, nil, serveArguments("--memory", "--ready-file", old, flag, taken)...)
			if code != 1 || stdout != "" || strings.Count(stderr, "\n") != 1 {
				t.Errorf("got exit code %d, standard output %q; want 1, nothing, and one line of error", code, stdout)
			}
			wantParts(t, "standard error", stderr, taken, flag)
			wantNoFiles(t, filepath.Dir(old)) // the old file is removed before anything listens
		})
	}
}

const createHeld = `{"namespace":"t","name":"held"}`

// heldTemplate returns a template of one step, which the handler runs.
func heldTemplate(h *wire.HeldHandler) string {
	return testTemplate("held", stepSpec{name: "a", callable: h.URL, timeout: 300})
}

// TestShutdown checks that the program is no longer ready and refuses tasks at once, but that
// the API answers while a handler runs, until its time is over.
func TestShutdown(t *testing.T) {
	t.Parallel()
	slow(t)
	for _, tt := range []struct {
		name   string
		signal os.Signal
		limit  string // seconds
		ends   bool   // the handler ends within its time
		calls  int    // until the task is complete, after another start
	}{
		{"a handler ends in time", syscall.SIGTERM, "60", true, 1},
		{"a handler does not end", os.Interrupt, "1", false, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := wire.NewHeldHandler(t, 16)
			data := filepath.Join(t.TempDir(), "data")
			args := []string{"--data", data, "--templates", templateDir(t, heldTemplate(h))}
			config := configFile(t, "[web]\nshutdown_timeout_seconds = "+tt.limit+"\n")
			p := serve(t, append(args, "--config", config)...)
			api := p.api()
			id := api.create(createHeld)
			key := h.Await(t)
			began := time.Now()
			p.signal(tt.signal)
			if tt.ends {
				eventually(t, "not ready", func() bool { return api.do("GET", "/health/ready", "").status == 503 })
				api.do("GET", "/health/live", "").want(200)
				refused := api.do("POST", "/v1/tasks", createHeld).want(503)
				if refused.header.Get("Retry-After") == "" || refused.text("error.code") != "SERVICE_UNAVAILABLE" {
					t.Errorf("a task while draining: got %v and %s", refused.header, refused.body)
				}
				if got := api.do("GET", "/v1/tasks/"+id, "").want(200).text("status"); got != "steps_in_process" {
					t.Errorf("the task is %s while its handler runs", got)
				}
				close(h.Release)
			}
			if code := p.wait(); code != 0 {
				t.Errorf("got exit code %d; want 0\n%s", code, p.stderr)
			}
			if took := time.Since(began); !tt.ends && took < time.Second {
				t.Errorf("the end came after %v; want the second that handlers have", took)
			}
			if !tt.ends {
				close(h.Release)
			}
			p = serve(t, args...)
			p.api().await(id, "complete")
			p.stop()
			for range tt.calls - 1 {
				if again := h.Await(t); again != key {
					t.Errorf("the attempt that was cut off came again as %s; want %s", again, key)
				}
			}
			if n := len(h.Called); n > 0 {
				t.Errorf("the handler was called %d times more than %d", n, tt.calls)
			}
		})
	}
}

// TestShutdownSaysWhatItDoes checks that the log tells how long handlers have, and which ones
// were cut off.
func TestShutdownSaysWhatItDoes(t *testing.T) {
	t.Parallel()
	for want, where := range map[string][]string{
		"will be delivered again after the next start": {"--data", filepath.Join(t.TempDir(), "data")},
		"the state in memory is lost":                  {"--memory"},
	} {
		h := wire.NewHeldHandler(t, 16)
		p := serve(t, append(where, "--templates", templateDir(t, heldTemplate(h)), "--config", configFile(t, "web.shutdown_timeout_seconds = 0"))...)
		ids := []string{p.api().create(createHeld), p.api().create(createHeld)}
		h.Await(t)
		h.Await(t)
		p.stop()
		wantParts(t, "log", p.stderr.String(), "stopping: 2 handlers get 0s; a second signal exits immediately",
			"stopped: 2 attempts were cut off, and "+want, "attempt 1 of step a of task "+ids[0], ids[1])
		close(h.Release)
	}
}

// TestSignals checks that each signal that ends a program shuts it down in order, and a second one at once. That includes
// SIGINT for a background job, which a shell makes ignore it, but not SIGHUP under nohup.
func TestSignals(t *testing.T) {
	slow(t)
	t.Parallel()
	shell := wire.Need(t, "sh")
	const term, interrupt, hangUp = syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP
	for _, tt := range []struct {
		name, ignored string
		signals       []syscall.Signal
		code          int  // 0: it has waited for its handler
		atOnce        bool // the second signal follows right after the first
	}{
		{"terminate", "", []syscall.Signal{term}, 0, false},
		{"interrupt", "", []syscall.Signal{interrupt}, 0, false},
		{"hang up", "", []syscall.Signal{hangUp}, 0, false},
		{"hang up and terminate", "", []syscall.Signal{hangUp, term}, 1, false},
		{"terminate and interrupt at the same moment", "", []syscall.Signal{term, interrupt}, 1, true},
		{"a terminal is closed", "", []syscall.Signal{hangUp, hangUp}, 0, false},
		{"a background job", "INT", []syscall.Signal{interrupt}, 0, false},
		{"a background job twice", "INT", []syscall.Signal{interrupt, interrupt}, 1, false},
		{"under nohup", "HUP", []syscall.Signal{hangUp, term}, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.ignored != "HUP" && signal.Ignored(tt.signals[0]) {
				wire.Skip(t, "the tests run under nohup, or where %s is ignored otherwise", tt.signals[0])
			}
			h := wire.NewHeldHandler(t, 16)
			args := append([]string{"-c", `trap "" $0; exec "$@"`, cmp.Or(tt.ignored, "USR1"), programFile(t)},
				serveArguments("--memory", "--templates", templateDir(t, heldTemplate(h)),
					"--config", configFile(t, "web.shutdown_timeout_seconds = 600"))...)
			p := launchFile(t, shell, nil, nil, args...).awaitReady()
			p.api().create(createHeld)
			h.Await(t)
			for i, s := range tt.signals {
				p.signal(s)
				want := 503
				if i == 0 && tt.ignored == "HUP" {
					want = 200
				}
				if i == 0 && !tt.atOnce {
					eventually(t, "the effect", func() bool { return p.api().do("GET", "/health/ready", "").status == want })
				}
			}
			if tt.code == 0 {
				p.api().do("GET", "/health/live", "").want(200)
				close(h.Release)
			}
			if code := p.wait(); code != tt.code && !(tt.atOnce && code != 0) { // or the signal itself has ended it
				t.Errorf("got exit code %d; want %d\n%s", code, tt.code, p.stderr)
			}
		})
	}
}

// TestEarlySignal ends the process in its first milliseconds. Before the program's first line
// runs, the system does so.
func TestEarlySignal(t *testing.T) {
	t.Parallel()
	slow(t)
	dir := t.TempDir()
	data, ready := filepath.Join(dir, "data"), filepath.Join(dir, "ready", "file")
	if err := os.Mkdir(filepath.Dir(ready), 0o700); err != nil {
		t.Fatal(err)
	}
	args := serveArguments("--data", data, "--ready-file", ready)
	byItself := 0
	for ms := 0; ms < 60; ms += 4 {
		p := launch(t, nil, args...)
		<-time.After(time.Duration(ms) * time.Millisecond)
		p.signal(syscall.SIGTERM)
		code := p.wait()
		ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		switch {
		case code == 0:
			byItself++
		case ws.Signal() != syscall.SIGTERM || p.stderr.String() != "":
			t.Errorf("after %d ms: %v\n%s", ms, p.cmd.ProcessState, p.stderr)
		}
		wantNoFiles(t, filepath.Dir(ready))
	}
	t.Logf("%d processes ended by themselves", byItself)
	p := serve(t, "--data", data)
	p.api().create(`{"namespace":"demo","name":"diamond"}`)
	p.stop()
}

func TestOneProcessPerDirectory(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	p := serve(t, "--data", data)
	said := wantExit(t, 1, nil, serveArguments("--data", data)...)
	wantParts(t, "the second", said, data, fmt.Sprintf("process %d", p.cmd.Process.Pid))
	p.api().create(`{"namespace":"demo","name":"diamond"}`)
	p.kill()
	p = serve(t, "--data", data) // the lock died with its process
	p.stop()
}

// mountTmpfs mounts a small file system of n bytes, or skips the test.
func mountTmpfs(t *testing.T, n int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		wire.Skip(t, "needs root to mount a file system")
	}
	dir := t.TempDir()
	if said, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprint("size=", n), "tmpfs", dir).CombinedOutput(); err != nil {
		wire.Skip(t, "no file system can be mounted here: %v %s", err, said)
	}
	t.Cleanup(func() {
		if said, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("unmounting %s: %v %s", dir, err, said)
		}
	})
	return dir
}

// fillDisk takes all the space that is left, with a file whose path it returns.
func fillDisk(t *testing.T, dir string) (ballast string) {
	t.Helper()
	ballast = filepath.Join(dir, "ballast")
	f := wire.Must(os.Create(ballast))(t)
	defer f.Close()
	var err error
	for chunk := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(chunk)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return ballast
}

// fillToTheBrim creates tasks until the store refuses one, and returns their ids.
func fillToTheBrim(t *testing.T, api *api) (ids []string) {
	t.Helper()
	body := fmt.Sprintf(`{"namespace":"t","name":"noop","context":{"padding":%q}}`, strings.Repeat("x", 200<<10))
	for range 500 {
		a := api.do("POST", "/v1/tasks", body)
		if a.status == 201 {
			ids = append(ids, a.text("task_uuid"))
			continue
		}
		if a.want(503).header.Get("Retry-After") == "" {
			t.Errorf("503 without Retry-After: %s", a.body)
		}
		return ids
	}
	t.Fatal("the disk never was full")
	return nil
}

// fullDiskTest is a server on a file system that a file then fills, while the handler of one
// task runs and another task waits for an outside actor.
type fullDiskTest struct {
	held         *wire.HeldHandler
	args         []string
	program      *program
	ballast      string   // the file that fills it
	running, act string   // ids
	ids          []string // of finished tasks
}

func newFullDiskTest(t *testing.T) *fullDiskTest {
	t.Helper()
	root := mountTmpfs(t, 48<<20)
	h := wire.NewHeldHandler(t, 16)
	f := &fullDiskTest{held: h, args: []string{"--data", filepath.Join(root, "data"), "--templates", templateDir(t,
		heldTemplate(h),
		testTemplate("noop", stepSpec{name: "a", callable: "builtin:noop"}),
		testTemplate("act", stepSpec{name: "a", callable: "Outside"}))}}
	f.program = serve(t, f.args...)
	api := f.program.api()
	f.running, f.act = api.create(createHeld), api.create(`{"namespace":"t","name":"act"}`)
	h.Await(t)
	f.ballast = fillDisk(t, root)
	f.ids = fillToTheBrim(t, api)
	return f
}

// checkFull checks that a server whose disk is full answers reads and reports the problem.
func (f *fullDiskTest) checkFull(t *testing.T) {
	t.Helper()
	api := f.program.api()
	wantParts(t, "readiness", string(api.do("GET", "/health/ready", "").want(503).body), "no space left")
	api.do("GET", "/health/live", "").want(200)
	api.do("POST", "/v1/tasks", createHeld).want(503)
	if got := api.do("GET", "/v1/tasks/"+f.running, "").want(200).text("status"); got != "steps_in_process" {
		t.Errorf("the running task is %s", got)
	}
	list := api.do("GET", "/v1/tasks?per_page=1", "").want(200)
	if got, want := list.text("pagination.total_count"), fmt.Sprint(len(f.ids)+2); got != want {
		t.Errorf("there are %s tasks; want the %s that were acknowledged", got, want)
	}
}

// checkWorking waits until the server accepts changes again, and compares its tasks with the
// acknowledged ones.
func (f *fullDiskTest) checkWorking(t *testing.T) {
	t.Helper()
	api := f.program.api()
	eventually(t, "ready again", func() bool { return api.do("GET", "/health/ready", "").status == 200 })
	api.await(f.running, "complete")
	for _, id := range f.ids {
		api.await(id, "complete")
	}
	f.ids = append(f.ids, api.create(`{"namespace":"t","name":"noop"}`))
	if got := api.do("GET", "/v1/tasks/"+f.act, "").want(200).text("steps.0.current_state"); got != "enqueued" {
		t.Errorf("the step for an actor is %s; want it enqueued", got)
	}
}

// TestFullDisk checks that changes are refused, reads continue, the outcome of a handler is
// held, and the service recovers by itself.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	slow(t)
	f := newFullDiskTest(t)
	f.checkFull(t)
	close(f.held.Release)
	f.checkFull(t)
	os.Remove(f.ballast)
	f.checkWorking(t)
	f.program.kill()
	f.program = serve(t, f.args...)
	f.checkWorking(t)
	f.program.stop()
	if n := len(f.held.Called); n > 0 {
		t.Errorf("the handler was called %d times more", n)
	}
}

// TestStopOnFullDisk checks that the shutdown is in order, whether the program was ready or
// not, and that an attempt whose outcome could not be recorded is repeated.
func TestStopOnFullDisk(t *testing.T) {
	t.Parallel()
	slow(t)
	f := newFullDiskTest(t)
	args := append(f.args, "--config", configFile(t, "[web]\nshutdown_timeout_seconds = 0\n"))
	f.program.kill()
	f.program = launch(t, nil, serveArguments(args...)...)
	select {
	case <-f.program.stderr.line: // it warns of the full disk
	case <-time.After(patience):
		t.Fatal("it says nothing")
	}
	f.program.stop()
	close(f.held.Release)
	os.Remove(f.ballast)
	f.program = serve(t, args...)
	f.checkWorking(t)
	if n := len(f.held.Called); n != 1 {
		t.Errorf("the handler was called %d times more; want once", n)
	}
	f.program.stop()
}

// freePort returns an address that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l := wire.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().String()
}

// TestSeedKeepsItsClock starts with a state, written by hand, whose clock must be adopted.
func TestSeedKeepsItsClock(t *testing.T) {
	t.Parallel()
	const start = "2026-01-01T00:00:00.000000Z"
	file := filepath.Join(t.TempDir(), "state.jsonl")
	writeFile(t, file, []byte(`{"format": 3, "clock": {"now": "`+start+`", "mode": "frozen"}}
		{"end": {}}`))
	p := serve(t, "--fixture", "--seed", file)
	for range 2 {
		if got := p.api().do("GET", "/_stepwell/clock", "").text("now"); got != start {
			t.Errorf("the clock is at %s; want %s", got, start)
		}
		p.api().do("POST", "/_stepwell/reset", "").want(204)
	}
	p.stop()
	p = serve(t, "--memory", "--seed", file)
	if got := p.api().do("GET", "/health", "").text("timestamp"); got <= start {
		t.Errorf("without fixture mode it is %s; want the present", got)
	}
	p.stop()
}
