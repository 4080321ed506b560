package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"stepwell/e2e/wire"
	"strings"
	"testing"
	"testing/synctest"
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

// TestReadyFileAfterCrash starts after a crash that left the temporary file of the ready file
// behind. Process ids repeat, in containers always.
func TestReadyFileAfterCrash(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ready.json")
	writeFile(t, filepath.Join(filepath.Dir(path), fmt.Sprintf(".ready.json.%d", os.Getpid())), nil)
	write := func(f *os.File) error { _, err := f.WriteString("{}\n"); return err }
	noError(t, replaceFile(path, write))
	if got := string(readFile(t, path)); got != "{}\n" {
		t.Errorf("the file holds %q", got)
	}
}

// TestDocumentsReplaceOnlyDocuments exports to names that are taken: by documents of Stepwell, by what is somebody's, by
// links and by pipes.
func TestDocumentsReplaceOnlyDocuments(t *testing.T) {
	s := newFixtureServer(t, serviceTest{templates: "templates/demo"})
	t.Chdir(t.TempDir())
	writeFile(t, "state.json", s.do("GET", "/_stepwell/state", "").want(200).body)
	if r := runCLI(nil, "", "store", "import", "--data", "kept", "state.json"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	noError(t, os.Chmod("state.json", 0o644))
	writeFile(t, "empty", nil)
	writeFile(t, "notes.txt", []byte("milk, eggs"))
	writeFile(t, "other.json", []byte(`{"kind":1}`))
	noError(t, os.Symlink("notes.txt", "link"))
	noError(t, os.Mkdir("directory", 0o700))
	refused := map[string]string{"notes.txt": "it is not a document of Stepwell; --force replaces it", "other.json": "it is not a document of Stepwell",
		"link": "a symbolic link, not a regular file", "directory": "not a regular file"}
	if makePipe("pipe") == nil {
		refused["pipe"] = "not a regular file"
	}
	for name, want := range refused {
		for _, force := range []string{"--force=false", "--force"} {
			if _, file := map[string]bool{"notes.txt": true, "other.json": true}[name]; file && force == "--force" {
				continue
			}
			got := runCLI(nil, "", "store", "export", "--data", "kept", name, force)
			if got.code == 0 || !strings.Contains(got.stderr, want) {
				t.Errorf("%s %s: got %d, %s; want %q", name, force, got.code, got.stderr, want)
			}
		}
	}
	writeFile(t, "closed", []byte("milk, eggs"))
	noError(t, os.Chmod("closed", 0))
	if _, err := os.Open("closed"); err != nil { // unless this process may read everything
		got := runCLI(nil, "", "store", "export", "--data", "kept", "closed")
		if noError(t, os.Chmod("closed", 0o600)); got.code == 0 || string(readFile(t, "closed")) != "milk, eggs" {
			t.Errorf("a file that cannot be read: got %d, and %s", got.code, readFile(t, "closed"))
		}
	}
	if got := string(readFile(t, "notes.txt")); got != "milk, eggs" {
		t.Errorf("the notes are %q", got)
	}
	for _, args := range [][]string{{"state.json"}, {"tasks.sql"}, {"empty"}, {"new.json"}, {"notes.txt", "--force"}} {
		got := runCLI(nil, "", append([]string{"store", "export", "--data", "kept"}, args...)...)
		info := must(os.Lstat(args[0]))(t)
		if got.code != 0 || !strings.HasPrefix(string(readFile(t, args[0])), `{"format":3,`) || info.Mode() != 0o600 {
			t.Errorf("%q: got %d, %s, mode %v", args, got.code, got.stderr, info.Mode())
		}
	}
}

// TestWatchedTasks changes and removes a template while tasks of it run, in a service and its sandboxes.
func TestWatchedTasks(t *testing.T) {
	f := newWatchedFiles(t, map[string]string{"a.yaml": watchedTemplate("a", "one")})
	s := newFixtureServer(t, serviceTest{templates: f.dir, reloaded: f.watch.files})
	s.do("POST", "/_stepwell/templates", `{"name":"added","version":"1.0.0"}`).want(201)
	before := s.sandbox(`{"name":"old"}`)
	old := s.create(`{"name":"a","context":{"n":1}}`)
	tag := s.do("GET", "/v1/templates", "").header.Get("ETag")

	f.save("a.yaml", watchedTemplate("a", "one", "two"))
	f.looked()
	if got := s.do("GET", "/v1/templates", ""); got.text("total_count") != "2" || tag != "" && got.header.Get("ETag") == tag {
		t.Errorf("got %v %s; want another tag and the added template", got.header, got.body)
	}
	for i, at := range []*fixtureServer{s, before.fixtureServer, s.sandbox(`{"name":"new"}`).fixtureServer} {
		if got := at.do("GET", "/v1/templates/default/a/1.0.0", "").want(200); len(got.get("steps").([]any)) != 2 {
			t.Errorf("service %d: got %s; want two steps", i, got.body)
		}
	}
	s.do("POST", "/v1/tasks", `{"name":"a","context":{"n":1}}`).want(409) // the same version is the same task
	if got := s.do("GET", "/v1/tasks/"+s.create(`{"name":"a","context":{"n":2}}`), "").text("total_steps"); got != "2" {
		t.Errorf("got %s steps of a new task; want 2", got)
	}

	noError(t, os.Remove(filepath.Join(f.dir, "a.yaml")))
	f.looked()
	s.do("POST", "/v1/tasks", `{"name":"a","context":{"n":3}}`).want(404)
	a := s.do("GET", "/v1/tasks/"+old+"/workflow_steps", "").want(200)
	s.do("PATCH", "/v1/tasks/"+old+"/workflow_steps/"+a.text("0.step_uuid"), `{"action_type":"complete_manually","reason":"r",
		"completed_by":"b","completion_data":{"result":1}}`).want(200)
	if got := s.await(old, "complete").text("total_steps"); got != "1" {
		t.Errorf("got %s steps of the task from before; want 1", got)
	}
	s.do("POST", "/_stepwell/reset", "").want(204)
	if got := s.do("GET", "/v1/templates", "").text("total_count"); got != "0" {
		t.Errorf("got %s templates after a reset; want those of the files", got)
	}
}

// TestWatchPrintsAsItGoes reads what watch prints of a task while its step waits for an outside actor, until it says so, and
// completes the step then.
func TestWatchPrintsAsItGoes(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "templates/demo"})
	t.Chdir(t.TempDir())
	id := s.create(`{"namespace":"demo","name":"approval"}`)
	shown, out := io.Pipe()
	in := configInput{env: map[string]string{"STEPWELL_URL": s.url}}
	p := &process{getenv: in.getenv, environ: in.environ(), now: realNow, stdin: strings.NewReader(""), stdout: out, stderr: io.Discard}
	ended := make(chan error, 1)
	go func() {
		ended <- p.run(t.Context(), []string{"task", "watch", id})
		out.Close()
	}()
	lines, asked, last := bufio.NewScanner(shown), false, ""
	for lines.Scan() {
		if last = lines.Text(); strings.HasPrefix(last, `step "approve" has waited for an outside actor`) { // nothing is new
			asked = true
			got := runCLI(map[string]string{"STEPWELL_URL": s.url}, "", "step", "complete", id, "approve")
			if got.code != 0 {
				t.Fatal(got.stderr)
			}
		}
	}
	if err := <-ended; err != nil || !asked || !strings.HasSuffix(last, "  task  ✔ complete") {
		t.Errorf("got %v, the step was shown: %v, the last line %q", err, asked, last)
	}
}

// watchedFiles is a directory of templates that is watched.
type watchedFiles struct {
	t     *testing.T
	dir   string
	log   *logLines
	watch *templateWatch
}

func newWatchedFiles(t *testing.T, files map[string]string) *watchedFiles {
	t.Helper()
	f := &watchedFiles{t: t, dir: t.TempDir(), log: &logLines{}}
	for name, text := range files {
		f.save(name, text)
	}
	cfg := testConfig(t, serviceTest{templates: f.dir})
	f.watch = newTemplateWatch(cfg, slog.New(&failingHandler{t: t, out: f.log}), func(string) string { return "" })
	r, _, err := loadTemplates(cfg.Templates.Dirs, "", nil)
	noError(t, err)
	f.watch.files.Store(r)
	return f
}

// save writes a file as editors do: another one takes its place.
func (f *watchedFiles) save(name, text string) {
	f.t.Helper()
	name = filepath.Join(f.dir, name)
	noError(f.t, os.MkdirAll(filepath.Dir(name), 0o700))
	noError(f.t, os.WriteFile(name+".tmp", []byte(text), 0o600))
	noError(f.t, os.Rename(name+".tmp", name))
}

// looked looks until the files have settled, and returns what was logged since the last call.
func (f *watchedFiles) looked() string {
	f.watch.look()
	f.watch.look()
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	defer f.log.buf.Reset()
	return strings.ReplaceAll(f.log.buf.String(), f.dir+"/", "")
}

// want looks, and compares what is logged, which is nothing for "", and the registered templates.
func (f *watchedFiles) want(log, names string) {
	f.t.Helper()
	got := f.looked()
	if log == "" && got != "" || !strings.Contains(got, log) {
		f.t.Errorf("got the log %q; want %q", got, log)
	}
	if got := fullTemplateNames(f.watch.files.Load().sorted); got != names {
		f.t.Errorf("got %s; want %s", got, names)
	}
}

func watchedTemplate(name string, steps ...string) string {
	text := "name: " + name + "\nversion: 1.0.0\nsteps:\n"
	for _, step := range steps {
		text += "- {name: " + step + ", handler: {callable: people}}\n"
	}
	return text
}

// TestTemplateWatch changes files in every way. The set of templates changes as a whole, or stays if a
// file has a problem.
func TestTemplateWatch(t *testing.T) {
	f := newWatchedFiles(t, map[string]string{"a.yaml": watchedTemplate("a"), "b.yaml": watchedTemplate("b")})
	first := f.watch.files.Load()
	f.want("", "default.a@1.0.0 default.b@1.0.0")
	f.save("notes.md", "steps")
	f.save(".hidden.yaml", "}")
	f.want("", "default.a@1.0.0 default.b@1.0.0")
	f.save("a.yaml", watchedTemplate("a", "s"))
	f.want("added=[] changed=[default.a@1.0.0] removed=[]", "default.a@1.0.0 default.b@1.0.0")
	if now := f.watch.files.Load(); now.sorted[0] == first.sorted[0] || now.sorted[1] != first.sorted[1] {
		t.Error("got other templates than the changed one replaced")
	}
	f.save("a.yaml", watchedTemplate("a2"))
	f.save("b.yaml", "name: b\nversion: 1.0.0\nsteps: 5\n")
	f.save("c.json", `{"name":"c","version":"1.0.0","steps":`)
	got := f.looked()
	for _, problem := range []string{"problem=b.yaml:3:1: steps: is a number; want a list\n", "problem=c.json:1:39: invalid JSON: unexpected end\n"} {
		if !strings.Contains(got, problem) {
			t.Errorf("got the log %q; want %q", got, problem)
		}
	}
	f.want("", "default.a@1.0.0 default.b@1.0.0") // told once
	f.save("b.yaml", watchedTemplate("b"))
	noError(t, os.Remove(filepath.Join(f.dir, "c.json")))
	f.want("added=[default.a2@1.0.0] changed=[] removed=[default.a@1.0.0]", "default.a2@1.0.0 default.b@1.0.0")
	f.save("new/below/c.toml", "name = 'c'\nversion = '1.0.0'\nsteps = []\n")
	f.want("added=[default.c@1.0.0]", "default.a2@1.0.0 default.b@1.0.0 default.c@1.0.0")
	f.save("d.yaml", watchedTemplate("c"))
	f.want("c.toml:1:1: name: duplicate template default.c@1.0.0", "default.a2@1.0.0 default.b@1.0.0 default.c@1.0.0")
	// A file that was a template may be in the middle of an edit: only a deleted one removes its template.
	noError(t, os.Remove(filepath.Join(f.dir, "d.yaml")))
	for _, text := range []string{"", "name: b\nversion: 1.0.0\n", "name: b\nversion: 1.0.0\nste"} {
		f.save("b.yaml", text)
		f.want("problem=b.yaml: is no longer a template; ", "default.a2@1.0.0 default.b@1.0.0 default.c@1.0.0")
	}
	f.save("b.yaml", watchedTemplate("b"))
	f.want("added=[] changed=[] removed=[]", "default.a2@1.0.0 default.b@1.0.0 default.c@1.0.0")
	noError(t, os.Rename(f.dir, f.dir+"-away"))
	f.want("reading the templates directory: no such file or directory", "default.a2@1.0.0 default.b@1.0.0 default.c@1.0.0")
	noError(t, os.Rename(f.dir+"-away", f.dir))
	f.want("added=[] changed=[] removed=[]", "default.a2@1.0.0 default.b@1.0.0 default.c@1.0.0")
	noError(t, os.Symlink(f.dir, filepath.Join(f.dir, "loop.json")))
	f.want("problem=loop.json: reading the template: not a regular file", "default.a2@1.0.0 default.b@1.0.0 default.c@1.0.0")

	noError(t, os.Remove(filepath.Join(f.dir, "loop.json")))
	half := filepath.Join(f.dir, "a.yaml")
	for _, text := range []string{"name: a2\nver", "name: a2\nversion: 1.0.0\nste", watchedTemplate("a3")} {
		noError(t, os.WriteFile(half, []byte(text), 0o600))
		f.watch.look() // it changes faster than it is looked at
	}
	f.want("added=[default.a3@1.0.0] changed=[] removed=[default.a2@1.0.0]", "default.a3@1.0.0 default.b@1.0.0 default.c@1.0.0")
}

// TestTemplateWatchEnds watches in real time, and expects that nothing is left of it at the end.
func TestTemplateWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWatchedFiles(t, map[string]string{"a.yaml": watchedTemplate("a")})
		stop := f.watch.start(t.Context())
		f.save("a.yaml", watchedTemplate("b"))
		began, limit := time.Now(), time.NewTimer(3*watchEvery)
		<-limit.C
		synctest.Wait()
		if got := fullTemplateNames(f.watch.files.Load().sorted); got != "default.b@1.0.0" {
			t.Errorf("got %s after %v; want the change", got, time.Since(began))
		}
		stop()
		ctx, cancel := context.WithCancel(t.Context())
		stop = f.watch.start(ctx)
		cancel()
		stop()
	})
}
