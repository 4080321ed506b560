package e2e

// The program as its user sees it: its output, its exit codes, its files, and how it starts and
// stops.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
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

func TestBanner(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	for _, tt := range []struct {
		name string
		args []string
		want []string
	}{
		{"memory", []string{"--memory"}, []string{"in memory"}},
		{"fixture", []string{"--fixture"}, []string{"in memory", "/_stepwell"}},
		{"data", []string{"--data", data}, []string{data, "the last 100000 finished tasks are kept"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := serve(t, append(tt.args, "--config", configFile(t, "log.format = 'text'"))...)
			eventually(t, "a banner", func() bool { return strings.Contains(p.stderr.String(), "curl") })
			try := regexp.MustCompile(`curl -s (\S+) -H 'Content-Type: application/json' -d '(.*)'`).
				FindStringSubmatch(p.stderr.String())
			if try == nil {
				t.Fatalf("the banner shows nothing to try: %s", p.stderr)
			}
			path := strings.TrimPrefix(try[1], p.ready.OrchestrationURL)
			p.api().do("POST", path, try[2]).want(201)
			p.stop()
			banner := p.stderr.String()
			wantParts(t, "banner", banner, append(tt.want, "  config     ", "stepwell.toml", "Stepwell "+programVersion(t), p.ready.OrchestrationURL, p.ready.WorkerURL,
				"console    "+p.ready.OrchestrationURL+"/console\n")...)
			if n := strings.Count(banner, "\n"); n > 8 {
				t.Errorf("the banner and the end have %d lines; want at most 8:\n%s", n, banner)
			}
			if n := strings.Count(p.stdout.String(), "\n"); n != 1 {
				t.Errorf("standard output has %d lines; want the report alone:\n%s", n, p.stdout)
			}
		})
	}
}

// TestServingRecord checks that a JSON log contains only JSON: a record replaces the banner.
func TestServingRecord(t *testing.T) {
	t.Parallel()
	p := serve(t, "--memory")
	p.api().create(`{"namespace":"demo","name":"diamond"}`)
	p.stop()
	found := 0
	for line := range strings.Lines(p.stderr.String()) {
		var record struct {
			Msg              string
			Level, Version   string
			OrchestrationURL string `json:"orchestration_url"`
			WorkerURL        string `json:"worker_url"`
		}
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Errorf("%s: %v", line, err)
		}
		if record.Msg != "serving" {
			continue
		}
		found++
		if record.Level != "INFO" || record.Version != programVersion(t) ||
			record.OrchestrationURL != p.ready.OrchestrationURL || record.WorkerURL != p.ready.WorkerURL {
			t.Errorf("got %s; want the version and the addresses of %+v", line, p.ready)
		}
	}
	if found != 1 {
		t.Errorf("got %d records of the start; want 1:\n%s", found, p.stderr)
	}
}

func TestQuiet(t *testing.T) {
	t.Parallel()
	p := serve(t, "--memory", "--quiet")
	p.stop()
	if got := p.stderr.String(); got != "" {
		t.Errorf("got %q on standard error; want nothing", got)
	}
}

func TestReadyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ready.json")
	writeFile(t, path, []byte("a file of something else"))
	code, _, stderr := runProgram(t, nil, serveArguments("--memory", "--ready-file", path)...)
	if got := string(readFile(t, path)); code != 1 || got != "a file of something else" {
		t.Errorf("got exit code %d, and the file became %q; want it refused", code, got)
	}
	wantParts(t, "standard error", stderr, path+": it is not a ready file")
	writeFile(t, path, nil)
	p := serve(t, "--memory", "--ready-file", path)
	if got := string(readFile(t, path)); got != p.stdout.String() {
		t.Errorf("the file holds %q; standard output %q", got, p.stdout)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("got mode %v, %v; want a file of mode 0600", info.Mode(), err)
	}
	want := readyReport{p.ready.OrchestrationURL, p.ready.WorkerURL, p.ready.OrchestrationURL + "/stepwell", p.cmd.Process.Pid, programVersion(t)}
	if p.ready != want || p.ready.OrchestrationURL == "" || p.ready.WorkerURL == "" {
		t.Errorf("got %+v; want the URLs, pid %d and the version", p.ready, p.cmd.Process.Pid)
	}
	p.api().do("GET", "/health/ready", "").want(200)
	(&api{t, p.ready.WorkerURL}).do("GET", "/health/ready", "").want(200)
	p.stop()
	wantNoFiles(t, filepath.Dir(path))
}

// TestRoles checks that one role has one listener.
func TestRoles(t *testing.T) {
	t.Parallel()
	for _, role := range []string{"worker", "orchestration"} {
		t.Run(role, func(t *testing.T) {
			p := serve(t, "--memory", "--role", role)
			url, other := p.ready.OrchestrationURL, p.ready.WorkerURL
			if role == "worker" {
				url, other = other, url
			}
			if url == "" || other != "" {
				t.Errorf("got %+v; want one URL", p.ready)
			}
			(&api{t, url}).do("GET", "/health/ready", "").want(200)
			p.stop()
		})
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

// TestReadyFileOfAnother checks that a file which names another process stays.
func TestReadyFileOfAnother(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ready.json")
	p := serve(t, "--memory", "--ready-file", path)
	const other = `{"pid":1}`
	writeFile(t, path, []byte(other))
	p.stop()
	if got := string(readFile(t, path)); got != other {
		t.Errorf("the file of another process became %q", got)
	}
}

// TestReadyFileAfterCrash checks that the next start replaces the file that a crash left
// behind.
func TestReadyFileAfterCrash(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ready.json")
	p := serve(t, "--memory", "--ready-file", path)
	p.kill()
	p = serve(t, "--memory", "--ready-file", path)
	p.stop()
	wantNoFiles(t, filepath.Dir(path))
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

func TestExitCodes(t *testing.T) {
	t.Parallel()
	bad := configFile(t, "role = \"boss\"\n[store]\nsink = \"always\"\n[worker]\nconcurrency = 0\n")
	broken := templateDir(t, `{"name":"x"`)
	for _, tt := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"unknown flag", []string{"--memroy"}, 2, []string{"memroy"}},
		{"unknown flag of a command", []string{"store", "check", "--dat", "x"}, 2, []string{"dat"}},
		{"unknown command", []string{"sreve"}, 2, []string{`"sreve"`, "did you mean serve?"}},
		{"an argument too many", []string{"serve", "now"}, 2, []string{`"now"`}},
		{"bad flag value", []string{"--listen", "here"}, 2, []string{"--listen"}},
		{"bad file", []string{"--config", bad}, 2,
			[]string{bad + ":1: role", bad + ":3: store.sink", bad + ":5: worker.concurrency"}},
		{"missing file", []string{"--config", bad + "x"}, 3, []string{bad + "x"}},
		{"bad template", []string{"--templates", broken}, 1, []string{"0.json"}},
		{"help", []string{"--help"}, 0, nil},
		{"help of serve", []string{"serve", "--help"}, 0, nil},
		{"version", []string{"version"}, 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := runProgram(t, nil, tt.args...)
			if code != tt.code {
				t.Errorf("got exit code %d; want %d", code, tt.code)
			}
			if tt.code != 0 && stdout != "" {
				t.Errorf("got %q on standard output; want nothing", stdout)
			}
			wantParts(t, "standard error", stderr, tt.want...)
		})
	}
	want := regexp.MustCompile(`^stepwell \d+\.\d+\.\d+ \((no commit|commit [0-9a-f]{12}( with changes)?), go1\.\S+, \w+/\w+\)\n$`)
	if _, stdout, _ := runProgram(t, nil, "version"); !want.MatchString(stdout) {
		t.Errorf("version: got %q; want %s", stdout, want)
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
				watchDraining(t, api, id)
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
	for name, want := range map[string]string{
		"--data":   "stopped: 2 attempts were cut off, and will be delivered again after the next start",
		"--memory": "stopped: 2 attempts were cut off, and the state in memory is lost",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := wire.NewHeldHandler(t, 16)
			defer close(h.Release)
			args := []string{"--memory"}
			if name == "--data" {
				args = []string{"--data", filepath.Join(t.TempDir(), "data")}
			}
			p := serve(t, append(args, "--templates", templateDir(t, heldTemplate(h)),
				"--config", configFile(t, "web.shutdown_timeout_seconds = 0"))...)
			ids := []string{p.api().create(createHeld), p.api().create(createHeld)}
			h.Await(t)
			h.Await(t)
			p.stop()
			wantParts(t, "log", p.stderr.String(), "stopping: 2 handlers get 0s; a second signal exits immediately", want,
				"attempt 1 of step a of task "+ids[0], ids[1])
		})
	}
}

// TestSignals checks that each signal that ends a program shuts it down in order. That includes
// SIGINT for a background job, which a shell makes ignore it, but not SIGHUP under nohup.
func TestSignals(t *testing.T) {
	slow(t)
	t.Parallel()
	shell := wire.Need(t, "sh")
	const term, interrupt, hangUp = syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP
	for _, tt := range []struct {
		name, ignored string
		signals       []syscall.Signal
		code          int // 0: it has waited for its handler
	}{
		{"terminate", "", []syscall.Signal{term}, 0},
		{"interrupt", "", []syscall.Signal{interrupt}, 0},
		{"hang up", "", []syscall.Signal{hangUp}, 0},
		{"hang up and terminate", "", []syscall.Signal{hangUp, term}, 1},
		{"a terminal is closed", "", []syscall.Signal{hangUp, hangUp}, 0},
		{"a background job", "INT", []syscall.Signal{interrupt}, 0},
		{"a background job twice", "INT", []syscall.Signal{interrupt, interrupt}, 1},
		{"under nohup", "HUP", []syscall.Signal{hangUp, term}, 0},
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
				if i == 0 {
					eventually(t, "the effect", func() bool { return p.api().do("GET", "/health/ready", "").status == want })
				}
			}
			if tt.code == 0 {
				p.api().do("GET", "/health/live", "").want(200)
				close(h.Release)
			}
			if code := p.wait(); code != tt.code {
				t.Errorf("got exit code %d; want %d\n%s", code, tt.code, p.stderr)
			}
		})
	}
}

// TestShutdownReleasesWaiters checks that requests which wait for a task are answered when the
// process is told to stop.
func TestShutdownReleasesWaiters(t *testing.T) {
	t.Parallel()
	p := serve(t, "--memory")
	const approval = `{"namespace":"demo","name":"approval"}`
	id := p.api().create(approval)
	answers := make(chan *answer, 2)
	go func() { answers <- p.api().do("GET", "/v1/tasks/"+id+"?wait=terminal&timeout=1h", "") }()
	go func() { answers <- p.api().do("POST", "/v1/tasks?wait=1h", approval) }()
	eventually(t, "both wait", func() bool { return p.api().metric("stepwell_waiting_requests") == 2 })
	p.signal(syscall.SIGTERM)
	for range 2 {
		a := <-answers
		if got := a.header.Get("X-Stepwell-Wait"); got != "shutdown" || a.text("status") != "steps_in_process" {
			t.Errorf("got %d, %q, %s; want the task as it is", a.status, got, a.body)
		}
	}
	if code := p.wait(); code != 0 {
		t.Errorf("got exit code %d; want 0\n%s", code, p.stderr)
	}
}

// watchDraining checks a service that waits for its last handler.
func watchDraining(t *testing.T, api *api, id string) {
	t.Helper()
	eventually(t, "not ready", func() bool { return api.do("GET", "/health/ready", "").status == 503 })
	api.do("GET", "/health/live", "").want(200)
	refused := api.do("POST", "/v1/tasks", `{"namespace":"t","name":"held"}`).want(503)
	if refused.header.Get("Retry-After") == "" || refused.text("error.code") != "SERVICE_UNAVAILABLE" {
		t.Errorf("a task while draining: got Retry-After %q and %s", refused.header.Get("Retry-After"), refused.body)
	}
	if got := api.do("GET", "/v1/tasks/"+id, "").want(200).text("status"); got != "steps_in_process" {
		t.Errorf("the task is %s while its handler runs", got)
	}
}

// TestSecondSignal checks that a second signal ends the process whatever still runs, even right
// after the first.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	slow(t)
	h := wire.NewHeldHandler(t, 16)
	args := []string{"--memory", "--templates", templateDir(t, heldTemplate(h)),
		"--config", configFile(t, "[web]\nshutdown_timeout_seconds = 600\n")}
	for _, tt := range []struct {
		name     string
		draining bool // before the second signal
		second   os.Signal
	}{
		{"while draining", true, syscall.SIGTERM},
		{"at the same moment", false, os.Interrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := serve(t, args...)
			p.api().create(createHeld)
			h.Await(t)
			p.signal(syscall.SIGTERM)
			if tt.draining {
				eventually(t, "not ready", func() bool { return p.api().do("GET", "/health/ready", "").status == 503 })
			}
			p.signal(tt.second)
			if code := p.wait(); code == 0 {
				t.Error("got exit code 0 from a process that was cut short")
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
	wantRefused(t, []string{"--data", data}, data, fmt.Sprintf("process %d", p.cmd.Process.Pid))
	p.api().create(`{"namespace":"demo","name":"diamond"}`)
	p.kill()
	p = serve(t, "--data", data) // the lock died with its process
	p.stop()
}

func TestHealthcheckCommand(t *testing.T) {
	t.Parallel()
	h := wire.NewHeldHandler(t, 16)
	p := serve(t, "--memory", "--templates", templateDir(t, heldTemplate(h)))
	address := strings.TrimPrefix(p.ready.OrchestrationURL, "http://")
	configured := []string{"STEPWELL_ORCHESTRATION__WEB__LISTEN=" + address}
	check := func(want int, env []string, args ...string) {
		t.Helper()
		wantExit(t, want, env, append([]string{"healthcheck"}, args...)...)
	}
	check(0, nil, "--url", p.ready.OrchestrationURL)
	check(0, nil, "--ready", "--url", p.ready.WorkerURL+"/")
	check(0, configured)
	check(0, configured, "--ready")
	p.api().create(createHeld)
	h.Await(t)
	p.signal(syscall.SIGTERM)
	eventually(t, "not ready", func() bool { return p.api().do("GET", "/health/ready", "").status == 503 })
	check(1, configured, "--ready")
	check(0, configured)
	close(h.Release)
	p.wait()
	check(7, configured)
	check(2, nil, "--urll", "x")
}

func TestStoreCheckCommand(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	file := filepath.Join(data, "store.jsonl")
	check := func(want int, parts ...string) {
		t.Helper()
		wantParts(t, "store check", wantExit(t, want, nil, "store", "check", "--data", data), parts...)
	}
	check(3, "there is no store in "+data)
	p := serve(t, "--data", data)
	id := p.api().create(`{"namespace":"demo","name":"diamond"}`)
	p.api().await(id, "complete")
	check(0, "record 6 is the last", "1 task (1 complete)") // beside the service
	p.stop()
	check(0, "record 6 is the last")

	good := string(readFile(t, file))
	last := strings.LastIndex(good, `"kind":"ran"`)
	writeFile(t, file, []byte(good[:last]+`"kind":"run"`+good[last+len(`"kind":"ran"`):]))
	check(0, "record 5 is the last", "line 9: an unfinished write") // no valid line follows
	writeFile(t, file, []byte(good+`{"seq":99,"ta`))
	check(0, "line 10: an unfinished write")
	p = serve(t, "--data", data)
	p.api().await(id, "complete")
	wantParts(t, "log", p.stderr.String(), "cut off")
	p.stop()
	check(0, "record 6 is the last")
}

// TestDamagedStore changes a record that was acknowledged, and then a template: a start names the place, and the command
// that keeps what is whole.
func TestDamagedStore(t *testing.T) {
	slow(t)
	t.Parallel()
	wire.Need(t, "sed")
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	file := filepath.Join(data, "store.jsonl")
	p := serve(t, "--data", data, "--quiet")
	kept, lost := p.api().create(`{"namespace":"demo","name":"diamond"}`), ""
	p.api().await(kept, "complete")
	p.stop()
	p = serve(t, "--data", data, "--quiet")
	lost = p.api().create(`{"namespace":"demo","name":"diamond"}`)
	p.api().await(lost, "complete")
	p.api().create(`{"namespace":"demo","name":"diamond"}`)
	p.stop()

	sound := string(readFile(t, file))
	damaged := strings.Replace(sound, fmt.Sprintf(`"task":%q`, lost), fmt.Sprintf(`"tAsk":%q`, lost), 1)
	writeFile(t, file, []byte(damaged))
	line := 1 + strings.Count(damaged[:strings.Index(damaged, "tAsk")], "\n")
	place := fmt.Sprintf("store.jsonl, line %d (byte ", line)
	for _, said := range []string{
		wantExit(t, 1, nil, "store", "check", "--data", data),
		wantExit(t, 1, nil, serveArguments("--data", data)...),
	} {
		wantParts(t, "the refusal", said, place, "the checksum does not match", "the records before it are whole, up to record 6 of task "+kept,
			fmt.Sprintf("head -n %d %s > NEW/store.jsonl", line-1, file))
	}
	if string(readFile(t, file)) != damaged {
		t.Error("the refused start changed the file")
	}
	shell(t, dir, fmt.Sprintf("mkdir new; head -n %d %s > new/store.jsonl", line-1, file))
	p = serve(t, "--data", filepath.Join(dir, "new"), "--quiet")
	p.api().await(kept, "complete")
	p.api().do("GET", "/v1/tasks/"+lost, "").want(404)
	p.stop()

	writeFile(t, file, []byte(sound))
	wantExit(t, 0, nil, "store", "compact", "--data", data)
	damaged = strings.Replace(string(readFile(t, file)), fmt.Sprintf(`{"task":%q`, lost), fmt.Sprintf(`{"task":%q `, lost), 1)
	writeFile(t, file, []byte(damaged))
	line = 1 + strings.Count(damaged[:strings.Index(damaged, `" ,`)], "\n")
	pipe := fmt.Sprintf("sed '%dd' %s | ", line, file)
	wantParts(t, "the refusal", wantExit(t, 1, nil, serveArguments("--data", data)...),
		fmt.Sprintf("store.jsonl, line %d (byte ", line), fmt.Sprintf("it is about the task %q", lost), pipe+"stepwell store import --data NEW -")
	said := shell(t, dir, pipe+programFile(t)+" store import --data rest -")
	wantParts(t, "the import", said, "it counts", "2 tasks")
	p = serve(t, "--data", filepath.Join(dir, "rest"), "--quiet")
	p.api().await(kept, "complete")
	p.api().do("GET", "/v1/tasks/"+lost, "").want(404)
	p.stop()
}

// shell runs a script in a directory, and returns what it says.
func shell(t testing.TB, dir, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-e", "-c", script)
	cmd.Dir, cmd.Env = dir, programEnv()
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, said)
	}
	return string(said)
}

// TestStoreCommands exports the state of a running store, imports it elsewhere, compacts it,
// and serves it again. Commands that would destroy something are refused.
func TestStoreCommands(t *testing.T) {
	slow(t)
	t.Parallel()
	dir := t.TempDir()
	data, other, file := filepath.Join(dir, "data"), filepath.Join(dir, "other"), filepath.Join(dir, "state.jsonl")
	run := func(want int, part string, args ...string) {
		t.Helper()
		wantParts(t, "store "+args[0], wantExit(t, want, nil, append([]string{"store"}, args...)...), part)
	}
	p := serve(t, "--data", data)
	id := p.api().create(`{"namespace":"demo","name":"diamond"}`)
	p.api().await(id, "complete")
	run(0, "", "export", "--data", data, file)
	run(1, fmt.Sprintf("in use by process %d", p.cmd.Process.Pid), "compact", "--data", data)
	p.stop()
	run(0, "1 task; ", "compact", "--data", data)
	if compacted := string(readFile(t, filepath.Join(data, "store.jsonl"))); compacted != string(readFile(t, file)) {
		t.Errorf("the compacted file is\n%s\nwant the export:\n%s", compacted, readFile(t, file))
	}
	run(0, "1 task, records 1 to 6", "import", file, "--data", other)
	run(1, "already holds a store", "import", "--data", other, file)
	run(3, "no such file", "export", "--data", filepath.Join(dir, "none"))
	run(2, "usage", "import", "--data", other)
	run(2, `unknown command "destroy"`, "destroy")
	wantRefused(t, []string{"--data", data, "--seed", file}, "already holds a store")
	for _, args := range [][]string{
		{"--data", data}, {"--data", other}, {"--memory", "--seed", file}, {"--data", filepath.Join(dir, "new"), "--seed", file},
	} {
		p := serve(t, args...)
		p.api().await(id, "complete")
		p.stop()
	}
}

// TestAuthCommands makes keys and tokens, and checks which tokens are accepted.
func TestAuthCommands(t *testing.T) {
	slow(t)
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys")
	private, public := filepath.Join(keys, "jwt-private-key.pem"), filepath.Join(keys, "jwt-public-key.pem")
	run := func(want int, args ...string) string {
		t.Helper()
		return wantExit(t, want, nil, append([]string{"auth"}, args...)...)
	}
	run(0, "generate-keys", "--output-dir", keys)
	run(1, "generate-keys", "--output-dir", keys) // it would invalidate every token
	for path, mode := range map[string]os.FileMode{private: 0o600, public: 0o644} {
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%s: got %v, %v; want mode %v", path, info.Mode(), err, mode)
		}
	}
	made := run(0, "generate-token", "--private-key", private, "--permissions", "tasks:create,tasks:read",
		"--subject", "ci", "-o", "json")
	var token struct {
		Token string `json:"token"`
	}
	if err := json.Unmarshal([]byte(made), &token); err != nil || strings.Count(token.Token, ".") != 2 {
		t.Fatalf("generate-token printed %s (%v)", made, err)
	}
	said := run(0, "validate-token", "--public-key", public, "--token", token.Token)
	wantParts(t, "validate-token", said, "ci", "tasks:create", "tasks:read")
	header, _, _ := strings.Cut(token.Token, ".")
	run(1, "validate-token", "--public-key", public, "--token", header+".e30.AAAA")
	run(2, "generate-token", "--private-key", private, "--permissions", "tasks:creat")
	run(2, "generate-key")
}

// mountTmpfs mounts a small file system of n bytes, or skips the test.
func mountTmpfs(t *testing.T, n int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		wire.Skip(t, "needs root to mount a file system")
	}
	dir := t.TempDir()
	if err := mountSmall(dir, n); err != nil {
		wire.Skip(t, "no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unmount(dir); err != nil {
			t.Errorf("unmounting %s: %v", dir, err)
		}
	})
	return dir
}

func TestReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	root := mountTmpfs(t, 32<<20)
	data := filepath.Join(root, "data")
	p := serve(t, "--data", data)
	p.api().create(`{"namespace":"demo","name":"diamond"}`)
	p.stop()
	if err := remountReadOnly(root); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{data, filepath.Join(root, "new")} {
		wantRefused(t, []string{"--data", dir}, dir, "read-only")
	}
}

// ballast is a file that fills a file system.
type ballast struct {
	t    *testing.T
	path string
}

// fillDisk takes all the space that is left.
func fillDisk(t *testing.T, dir string) *ballast {
	t.Helper()
	b := &ballast{t, filepath.Join(dir, "ballast")}
	f, err := os.Create(b.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	chunk := make([]byte, 64<<10)
	for err == nil {
		_, err = f.Write(chunk)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return b
}

// drop frees the space.
func (b *ballast) drop() {
	b.t.Helper()
	if err := os.Remove(b.path); err != nil {
		b.t.Fatal(err)
	}
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
	ballast      *ballast
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
	f.ballast.drop()
	f.checkWorking(t)
	f.program.kill()
	f.program = serve(t, f.args...)
	f.checkWorking(t)
	f.program.stop()
	if n := len(f.held.Called); n > 0 {
		t.Errorf("the handler was called %d times more", n)
	}
}

// TestStartOnFullDisk checks that a restart on the full disk answers reads, is not reported as
// ready, and continues once there is space.
func TestStartOnFullDisk(t *testing.T) {
	t.Parallel()
	slow(t)
	f := newFullDiskTest(t)
	f.program.kill()
	free := freePort(t)
	args := serveArguments(append(f.args, "--listen", free)...)
	f.program = launch(t, nil, args...)
	f.program.ready.OrchestrationURL = "http://" + free
	eventually(t, "reads", func() bool {
		if !f.program.running() {
			t.Fatalf("the program ended on a full disk: %s", f.program.stderr)
		}
		resp, err := http.Get(f.program.ready.OrchestrationURL + "/v1/tasks/" + f.act)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	f.checkFull(t)
	if got := f.program.stdout.String(); got != "" {
		t.Errorf("it said %s while it was not ready", got)
	}
	close(f.held.Release)
	f.ballast.drop()
	f.checkWorking(t)
	f.program.awaitReady()
	f.program.stop()
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
	f.ballast.drop()
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
