package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"stepwell/e2e/wire"
	"strings"
	"testing"
	"time"
)

// TestReadyFileIsRegular checks that nothing else is replaced or removed, at the start and at the end.
func TestReadyFileIsRegular(t *testing.T) {
	t.Parallel()
	eachIrregularFile(t, "ready", func(_ *testing.T, path string) error { return removeReadyFile(path) })
	eachIrregularFile(t, "announced", func(_ *testing.T, path string) error {
		return new(process).announce(readyReport{}, &serveArgs{readyFile: path})
	})
	eachIrregularFile(t, "dropped", func(t *testing.T, path string) error {
		dropReadyFile(path, os.Getpid())
		return removeReadyFile(path)
	})
	path := filepath.Join(t.TempDir(), "ready")
	writeFile(t, path, nil)
	if err := os.Chown(path, 4711, -1); err != nil {
		wire.Skip(t, "%v", err)
	}
	if err := removeReadyFile(path); err == nil || !strings.Contains(err.Error(), "belongs to the user 4711") {
		t.Errorf("a file of another user: got %v; want a refusal", err)
	}
	readFile(t, path)
}

// TestReadyFileIsOwn checks that only ready files are replaced and removed, at the start and at the end.
func TestReadyFileIsOwn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ready")
	flags := &serveArgs{readyFile: path}
	report := readyReport{WorkerURL: "http://127.0.0.1:1", PID: os.Getpid(), Version: version}
	for _, text := range []string{"precious", "{}", "[]", "null", "17", `{"pid":17,"version":"1.0.0"}`, `{"name":"app","version":"1.0.0"}`,
		string(jsonOf(report)) + "{}", strings.Repeat(" ", maxReadyFile) + string(jsonOf(report))} {
		writeFile(t, path, []byte(text))
		for what, err := range map[string]error{"the start": removeReadyFile(path), "announcing": new(process).announce(report, flags)} {
			if err == nil || !strings.Contains(err.Error(), path+": it is not a ready file") {
				t.Errorf("%q at %s: got %v; want it refused", clippedText(text), what, err)
			}
		}
		dropReadyFile(path, os.Getpid())
		if got := string(readFile(t, path)); got != text {
			t.Errorf("%q became %q", clippedText(text), clippedText(got))
		}
	}
	report.PID++
	for _, text := range []string{"", string(jsonOf(report))} {
		writeFile(t, path, []byte(text))
		dropReadyFile(path, os.Getpid())
		if got := string(readFile(t, path)); got != text {
			t.Errorf("at the end, %q became %q", text, got)
		}
		noError(t, new(process).announce(report, flags))
		noError(t, removeReadyFile(path))
		writeFile(t, path, []byte(text))
		noError(t, removeReadyFile(path))
		noError(t, new(process).announce(report, flags))
		dropReadyFile(path, report.PID)
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%q is left: %v", text, err)
		}
	}
}

// TestExportToRegularFile checks that an export replaces nothing else.
func TestExportToRegularFile(t *testing.T) {
	t.Parallel()
	o := diskOptions(nil)
	o.dir, o.fs = t.TempDir(), osDisk{}
	j, _ := mustOpen(t, o)
	mustClose(t, j)
	eachIrregularFile(t, "state.json", func(t *testing.T, path string) error {
		p := &process{getenv: func(string) string { return "" }, now: realNow, stdout: io.Discard, stderr: io.Discard}
		err := p.run(t.Context(), []string{"store", "export", "--data", o.dir, path})
		assertNoTemporary(t, filepath.Dir(path))
		return err
	})
}

// assertNoTemporary fails the test if a directory has hidden files.
func assertNoTemporary(t *testing.T, dir string) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

// TestRunDemo runs each template of the demonstration, with a stub for the step that waits for a person.
func TestRunDemo(t *testing.T) {
	templates := must(filepath.Glob("templates/demo/*"))(t)
	ends := map[string]int{"failing": exitWorkflow, "exhausted": exitWorkflow}
	if len(templates) < 10 {
		t.Fatalf("got %d templates", len(templates))
	}
	for i := range templates {
		templates[i] = must(filepath.Abs(templates[i]))(t)
	}
	t.Chdir(t.TempDir())
	for _, file := range templates {
		name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		args := []string{"run", file, "--fast", "-o", "json"}
		if name == "approval" {
			args = append(args, "--stub", `approve={"ok":true}`)
		}
		got := runCLI(nil, "", args...)
		var r struct{ Status string }
		if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != ends[name] || r.Status == "" {
			t.Errorf("%s: got %d, %q, %v", name, got.code, got.stderr, err)
		}
		if got := runCLI(nil, "", append(args, "demo/"+name)[:1]...); got.code != exitUsage {
			t.Errorf("run without a template: got %d", got.code)
		}
	}
	if left := must(os.ReadDir("."))(t); len(left) > 0 {
		t.Errorf("run left %v", left)
	}
}

func TestRun(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "order.json", []byte(`{"namespace":"t","name":"order","version":"1.0.0","steps":[`+
		`{"name":"charge","handler":{"callable":"pay"},"retry":{"max_attempts":2,"backoff_base_ms":86400000,"max_backoff_ms":86400000}},`+
		`{"name":"deliver","handler":{"callable":"builtin:echo"},"dependencies":["charge"]}]}`))
	writeFile(t, "paid.json", []byte(`{"paid": 12345678901234567890}`))
	writeFile(t, "broken.json", []byte(`{"name":"x"}`))
	for _, tt := range []struct {
		args   []string
		code   int
		stdout string // a part
		stderr string // a part
	}{
		{[]string{"run", "order.json"}, 2, "", "run: no handler is configured for charge (callable pay): give --stub STEP=JSON"},
		{[]string{"run", "order.json", "--stub", "charge=@paid.json", "-o", "json"}, 0, `"paid": 12345678901234567890`, ""},
		{[]string{"run", "order.json", "--stub", "charge=error:declined"}, 4, "charge  declined", `step "charge" failed for good`},
		{[]string{"run", "order.json", "--stub", "chrage=1"}, 2, "", "--stub chrage: the template has no such step; did you mean charge?"},
		{[]string{"run", "order.json", "--stub", "charge"}, 2, "", "want STEP=JSON, STEP=@FILE or STEP=error:MESSAGE"},
		{[]string{"run", "order.json", "--stub", "charge={"}, 2, "", "{ is not valid JSON"},
		{[]string{"run", "order.json", "--handler", "pay=builtin:nope"}, 2, "", `unknown builtin "nope"`},
		{[]string{"run", "order.json", "--handler", "pay=builtin:echo", "--context", `{"a":1}`, "-o", "name"}, 0, "complete", ""},
		{[]string{"run", "order.json", "--handler", "pay=builtin:echo", "--context", "-", "-o", "jsonl"}, 0, `"context":{"b":2}`, ""},
		{[]string{"run", "broken.json"}, 1, "", "broken.json:1:1: "},
		{[]string{"run", "missing.json"}, 3, "", "missing.json: "},
		{[]string{"run", "demo/dimond"}, 3, "", "run: no template demo/dimond here; did you mean demo.diamond@1.0.0?"},
		{[]string{"run", "demo/slow", "--timeout", "1ns"}, 5, "", "run: timed out before the task ended: step \"fetch\" "},
	} {
		got := runCLI(map[string]string{"LANG": "C.UTF-8"}, `{"b":2}`, tt.args...)
		if got.code != tt.code || !strings.Contains(got.stdout, tt.stdout) || !strings.Contains(got.stderr, tt.stderr) {
			t.Errorf("%q: got %d, %q, %q", tt.args, got.code, got.stdout, got.stderr)
		}
	}
}

// TestRunADayOfBackOff expects --fast to skip it.
func TestRunADayOfBackOff(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "day.json", fmt.Appendf(nil, `{"namespace":"t","name":"day","version":"1.0.0","steps":[{"name":"a",`+
		`"handler":{"callable":"builtin:flaky","initialization":{"failures":1}},`+
		`"retry":{"max_attempts":2,"backoff_base_ms":86400000,"max_backoff_ms":86400000}}]}`))
	got := runCLI(nil, "", "run", "day.json", "--fast")
	if got.code != 0 || !strings.Contains(got.stdout, "attempt 2") {
		t.Errorf("got %d: %s%s", got.code, got.stdout, got.stderr)
	}
}

// TestRunInADirectoryOfAService uses the templates and handlers of a configuration that is named, and none of its
// listeners, keys and files. One that is not named has no say.
func TestRunInADirectoryOfAService(t *testing.T) {
	t.Chdir(t.TempDir())
	noError(t, os.Mkdir("templates", 0o700))
	writeFile(t, "templates/t.json", []byte(`{"namespace":"t","name":"one","version":"1.0.0","steps":[{"name":"a","handler":{"callable":"Pay"}}]}`))
	writeFile(t, "stepwell.toml", []byte(`[store]
path = "data"
[templates]
dirs = ["templates"]
[worker.handlers]
Pay = "builtin:echo"
[orchestration.web]
listen = "0.0.0.0:1"
[orchestration.web.auth]
enabled = true
api_keys_enabled = true
api_keys = [{key = "k", permissions = ["tasks:read"]}]
`))
	for _, named := range []cliResult{runCLI(nil, "", "run", "t/one", "--config", "stepwell.toml"),
		runCLI(map[string]string{"STEPWELL_CONFIG": "stepwell.toml"}, "", "run", "t/one")} {
		if named.code != 0 {
			t.Errorf("got %d: %s%s", named.code, named.stdout, named.stderr)
		}
	}
	writeFile(t, "exec.json", []byte(`{"name":"exec","version":"1.0.0","steps":[{"name":"a","handler":{"callable":"exec:true"}}]}`))
	for line, want := range map[string]string{"run t/one": "no template t/one here", "run templates/t.json": "no handler is configured for a",
		"run exec.json": "worker.allow_exec is off"} {
		got := runCLI(nil, "", strings.Fields(line)...)
		if got.code == 0 || !strings.Contains(got.stderr, want) || !strings.HasSuffix(got.stderr, "; ./stepwell.toml counts only with --config stepwell.toml\n") {
			t.Errorf("%s: got %d, %q; want %q", line, got.code, got.stderr, want)
		}
	}
	if _, err := os.Stat("data"); err == nil {
		t.Error("run made the data directory")
	}
	noError(t, os.MkdirAll("demo/diamond", 0o700))
	writeFile(t, "demo/diamond/t.json", []byte(`{"name":"one","version":"1.0.0","steps":[{"name":"a","handler":{"callable":"http://127.0.0.1:1/"}}]}`))
	if got := runCLI(nil, "", "run", "demo/diamond"); got.code != 0 {
		t.Errorf("a directory with the name of a template: got %d: %s%s; want the template", got.code, got.stdout, got.stderr)
	}
	writeFile(t, "demo/diamond@1.0.0", []byte("a file"))
	if got := runCLI(nil, "", "run", "demo/diamond@1.0.0"); got.code != 0 {
		t.Errorf("a file with the name of a template: got %d: %s%s; want the template", got.code, got.stdout, got.stderr)
	}
	if got := runCLI(nil, "", "run", "./demo/diamond", "--stub", "a=1"); got.code != 0 {
		t.Errorf("a directory: got %d: %s%s", got.code, got.stdout, got.stderr)
	}
}

// TestTemplateFiles checks and draws template files without a service.
func TestTemplateFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "a.toml", []byte("name = \"a\"\nnamespace = \"t\"\nversion = \"1.0.0\"\n[[steps]]\nname = \"x \\\"y\\\"\"\n"+
		"handler = {callable = \"builtin:noop\"}\n[[steps]]\nname = \"z\"\nhandler = {callable = \"builtin:noop\"}\ndependencies = ['x \"y\"']\n"))
	for _, tt := range []struct {
		line, want string
		code       int
	}{
		{"template check a.toml", "t.a@1.0.0: 2 steps\n", 0},
		{"template check .", "t.a@1.0.0: 2 steps\n", 0},
		{"template graph a.toml", "x \"y\"\n  z    after x \"y\"\n", 0},
		{"template check none.json", "", exitNotFound},
	} {
		if got := runCLI(nil, "", strings.Fields(tt.line)...); got.code != tt.code || got.stdout != tt.want {
			t.Errorf("%s: got %d, %q, %q; want %q", tt.line, got.code, got.stdout, got.stderr, tt.want)
		}
	}
}

// TestDevelop checks what --dev stands for, and that other flags win.
func TestDevelop(t *testing.T) {
	for _, row := range []struct{ given, want map[string]string }{
		{nil, map[string]string{"templates.watch": "true", "log.format": "text"}},
		{map[string]string{"log.format": "json", "web.listen": "x"},
			map[string]string{"templates.watch": "true", "log.format": "json", "web.listen": "x"}},
	} {
		a := &serveArgs{dev: true}
		a.flags = row.given
		if a.develop(); fmt.Sprint(a.flags) != fmt.Sprint(row.want) {
			t.Errorf("got %v; want %v", a.flags, row.want)
		}
	}
}

func TestServeArgs(t *testing.T) {
	got := must(parseServeArgs([]string{
		"--config", "a.toml", "-config=b.toml", "--env", "test", "--ready-file", "ready.json", "--print-ready",
		"--quiet", "--log-level", "debug", "--memory", "--templates", "a", "--templates", "b,c",
		"--handler", "shop.*=http://127.0.0.1:9000", "--handler", "b=builtin:noop",
	}, nil))(t)
	want := &serveArgs{
		configArgs: configArgs{
			files: []string{"a.toml", "b.toml"},
			flags: map[string]string{
				"environment": "test", "log.level": "debug", "store.memory": "true", "templates.dirs": "a,b,c",
				"worker.handlers": `{"b":"builtin:noop","shop.*":"http://127.0.0.1:9000"}`,
			},
			quiet: true,
			here:  true,
		},
		readyFile:  "ready.json",
		printReady: true,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v; want %+v", got, want)
	}
	c, _, err := loadConfig(got.configArgs, func(string) string { return "" }, nil, func(string) ([]byte, error) {
		return nil, nil
	})
	if err != nil || !c.Log.Quiet || c.Worker.Handlers["shop.*"] != "http://127.0.0.1:9000" {
		t.Errorf("got %+v, %v; want it quiet, with the handlers", c, err)
	}
	_, err = parseServeArgs([]string{"--handler", "shop"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "want CALLABLE=URL or CALLABLE=exec:PROGRAM") {
		t.Errorf("got %v; want the form of the flag", err)
	}
}

// parseServeArgs reads the command line of serve. Help is written to out.
func parseServeArgs(args []string, out io.Writer) (*serveArgs, error) {
	a := new(serveArgs)
	c := serveCommand()
	o := newOptions(new(process), &c)
	serveFlags(o, a)
	if _, err := o.parse(args, out); err != nil {
		return nil, err
	}
	return a, nil
}

// TestTemplateWarnings starts with many templates that are warned of: the log has the first ones, and counts the others.
func TestTemplateWarnings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 30 {
		text := fmt.Sprintf(`{"name":"w%d","namespace_name":"t","version":"1.0.0","steps":[{"name":"a","handler":{"callable":"exec:none"},
			"retry":{"backoff_base_ms":1}}]}`, i)
		noError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("w%d.json", i)), []byte(text), 0o600))
	}
	var said bytes.Buffer
	cfg := testConfig(t, serviceTest{templates: dir})
	_, _, err := loadWork(cfg, slog.New(slog.NewTextHandler(&said, nil)), func(string) string { return "" })
	noError(t, err)
	if lines := strings.Count(said.String(), "\n"); lines != 12 {
		t.Errorf("got %d lines; want 12:\n%s", lines, &said)
	}
	for _, want := range []string{"more=20", "steps=30 template=t.w0@1.0.0"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, &said)
		}
	}
}

// TestDurationsInJSON checks that a duration in a JSON log has its unit, whoever logs it and however deep it is.
func TestDurationsInJSON(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cfg := defaultConfig()
	cfg.Log.Format = "json"
	log := (&process{stderr: &out}).logger(cfg)
	log.With("of_all", time.Minute).Info("m", "next_try_in", 1500*time.Millisecond, slog.Group("in", slog.Duration("a_group", time.Hour)))
	if got := out.String(); !strings.HasSuffix(got, `"of_all":"1m0s","next_try_in":"1.5s","in":{"a_group":"1h0m0s"}}`+"\n") {
		t.Errorf("got %s; want units", got)
	}
}
