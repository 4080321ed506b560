package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
