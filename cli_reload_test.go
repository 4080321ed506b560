package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
	f.watch = newTemplateWatch(cfg, slog.New(&failingHandler{t: t, out: f.log}))
	r, _, err := loadTemplates(cfg.Templates.Dirs, "", nil)
	noError(t, err)
	f.watch.begin(r, func(string) string { return "" })
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
	f.save("c.json", "{")
	got := f.looked()
	for _, problem := range []string{"problem=b.yaml:3:1: steps: is a number; want a list\n", "problem=c.json:1:2: invalid JSON: unexpected end\n"} {
		if !strings.Contains(got, problem) {
			t.Errorf("got the log %q; want %q", got, problem)
		}
	}
	f.want("", "default.a@1.0.0 default.b@1.0.0") // told once
	f.save("b.yaml", watchedTemplate("b"))
	noError(t, os.Remove(filepath.Join(f.dir, "c.json")))
	f.want("added=[default.a2@1.0.0] changed=[] removed=[default.a@1.0.0]", "default.a2@1.0.0 default.b@1.0.0")
	f.save("new/below/c.toml", "name = 'c'\nversion = '1.0.0'\n")
	f.want("added=[default.c@1.0.0]", "default.a2@1.0.0 default.b@1.0.0 default.c@1.0.0")
	f.save("d.yaml", watchedTemplate("c"))
	f.want("c.toml:1:1: name: duplicate template default.c@1.0.0", "default.a2@1.0.0 default.b@1.0.0 default.c@1.0.0")
	noError(t, os.Rename(f.dir, f.dir+"-away"))
	f.want("reading the templates directory: no such file or directory", "default.a2@1.0.0 default.b@1.0.0 default.c@1.0.0")
	noError(t, os.Rename(f.dir+"-away", f.dir))
	noError(t, os.Remove(filepath.Join(f.dir, "d.yaml")))
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
