package main

// Fixture mode through its control API: its harness, resets and states.

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fixtureServer is a world in fixture mode behind a listener.
type fixtureServer struct {
	*testServer
	world *world
}

// newFixtureServer opens a world that ends with the test. After the test, the current service
// is compared with its own log.
func newFixtureServer(t testing.TB, o serviceTest) *fixtureServer {
	t.Helper()
	own := o.config
	o.config = func(c *Config) {
		if c.Worker.Undelivered = undeliveredFail; own != nil { // as fixture mode does
			own(c)
		}
	}
	cfg := testConfig(t, o)
	cfg.Fixture.Enabled = true
	log := slog.New(&failingHandler{t: t, out: o.log})
	handlers, registry := loadTestWork(t, cfg, log, o.extra)
	rc := newRealClock()
	t.Cleanup(rc.stop)
	w := must(openWorld(o.seed, serviceOptions{
		cfg: cfg, log: log, auth: testAuthenticators(t, cfg, rc, log), clock: rc, files: o.files(registry), handlers: handlers,
		deterministic: cfg.Fixture.DeterministicIDs,
	}, &gates{shared: newSurfaceCache(), connections: manyConnections()}))(t)
	t.Cleanup(func() { closeTestWorld(t, w) })
	h := httptest.NewServer(&w.gates.orchestration)
	t.Cleanup(h.Close)
	return &fixtureServer{&testServer{t: t, url: h.URL}, w}
}

func closeTestWorld(t testing.TB, w *world) {
	t.Helper()
	if err := abort(w.service()); err != nil {
		t.Errorf("closing the store: %v", err)
	}
	checkInvariants(t, w.service())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w.boxes.finish(ctx)
	w.boxes.close()
	w.ending.Wait()
}

// clock changes the clock.
func (s *fixtureServer) clock(format string, args ...any) *answer {
	s.t.Helper()
	return s.do("POST", "/_stepwell/clock", fmt.Sprintf(format, args...))
}

// as sends a request with an API key.
func (s *fixtureServer) as(key, method, path string) *answer {
	s.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader("{}"))
	r.Header.Set("X-API-Key", key)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.world.gates.orchestration.ServeHTTP(w, r)
	return &answer{s.t, w.Code, w.Header(), w.Body.Bytes()}
}

// wantEmpty fails the test unless the service is as after a start.
func (s *fixtureServer) wantEmpty(virgin []string) {
	s.t.Helper()
	if got := s.do("GET", "/v1/tasks", "").want(200).text("pagination.total_count"); got != "0" {
		s.t.Errorf("%s tasks are left", got)
	}
	if got := string(s.do("GET", "/v1/dlq", "").want(200).body); strings.TrimSpace(got) != "[]" {
		s.t.Errorf("entries are left: %s", got)
	}
	if got := metricLines(string(s.do("GET", "/metrics", "").body)); !slices.Equal(got, virgin) {
		s.t.Errorf("the figures are\n%s\nwant\n%s", got, virgin)
	}
	clock := s.do("GET", "/_stepwell/clock", "").want(200)
	if clock.text("mode") != "real" || clock.text("fired") != "0" || clock.get("next_timer") != nil ||
		mustInstant(clock.text("now")) > realNow() {
		s.t.Errorf("the clock is %s; want it as at the start", clock.body)
	}
}

// TestReset checks that a reset leaves nothing.
func TestReset(t *testing.T) {
	s := newFixtureServer(t, serviceTest{extra: []string{sleepTemplate("hour", time.Hour),
		testTemplate("fail", stepSpec{name: "a", callable: "builtin:fail"})}})
	virgin := metricLines(string(s.do("GET", "/metrics", "").body))
	for range 2 {
		id := s.create(`{"namespace":"t","name":"hour"}`)
		s.create(`{"namespace":"t","name":"fail"}`)
		s.clock(`{"advance":"240h"}`).want(200)
		s.create(`{"namespace":"t","name":"hour"}`)
		s.do("POST", "/_stepwell/reset", "").want(204)
		s.wantEmpty(virgin)
		s.do("GET", "/v1/tasks/"+id, "").want(404)
	}
}

// TestResetWhileCreating checks, with many creators, that a task answered before the
// reset is gone and one answered after it exists.
func TestResetWhileCreating(t *testing.T) {
	slow(t)
	t.Parallel()
	s := newFixtureServer(t, serviceTest{})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if a := s.do("POST", "/v1/tasks", `{"namespace":"demo","name":"diamond"}`); a.status != 201 && a.status != 503 {
					t.Errorf("got %d: %s", a.status, a.body)
				}
			}
		})
	}
	for range 30 {
		before := s.create(`{"namespace":"demo","name":"approval"}`)
		s.do("POST", "/_stepwell/reset", "").want(204)
		s.do("GET", "/v1/tasks/"+before, "").want(404)
		s.do("GET", "/v1/tasks/"+s.create(`{"namespace":"demo","name":"approval"}`), "").want(200)
	}
	close(stop)
	wg.Wait()
}

// TestResetEmptiesTheDirectory checks that a reset removes our files, and only them.
func TestResetEmptiesTheDirectory(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "notes.txt")
	writeFile(t, other, []byte("not ours"))
	s := newFixtureServer(t, serviceTest{dir: dir})
	id := s.create(`{"namespace":"demo","name":"approval"}`)
	s.do("POST", "/_stepwell/reset", "").want(204)
	s.do("GET", "/v1/tasks/"+id, "").want(404)
	if strings.Contains(string(readFile(t, filepath.Join(dir, storeName))), id) {
		t.Error("the store still has the task")
	}
	readFile(t, other)
	again := s.create(`{"namespace":"demo","name":"approval"}`)
	if !strings.Contains(string(readFile(t, filepath.Join(dir, storeName))), again) {
		t.Error("the store lacks the new task")
	}
}

// GET and PUT /_stepwell/state.

// state returns the whole state, without the id of its store.
func (s *fixtureServer) state() string {
	s.t.Helper()
	return sameHistory(string(s.do("GET", "/_stepwell/state", "").want(200).body))
}

// putState replaces the whole state.
func (s *fixtureServer) putState(document string) *answer {
	s.t.Helper()
	return s.do("PUT", "/_stepwell/state", document)
}

// TestPutState restores a whole state: the tasks, the clock, and what is due.
func TestPutState(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"", t.TempDir()} {
		t.Run(dir, func(t *testing.T) {
			s := newFixtureServer(t, serviceTest{extra: sandboxTemplates, dir: dir})
			s.putState(frozenAt(testStart)).want(204)
			id := s.create(`{"namespace":"t","name":"retried"}`)
			s.create(`{"namespace":"t","name":"quick"}`)
			s.create(`{"namespace":"demo","name":"approval"}`)
			s.do("POST", "/_stepwell/wait-idle", "").want(200)
			want := s.state()
			for range 2 {
				s.clock(`{"advance":"10m"}`).want(200)
				s.create(`{"namespace":"t","name":"quick"}`)
				if got := s.do("GET", "/v1/tasks/"+id, "").text("status"); got != "blocked_by_failures" {
					t.Errorf("the task is %s; want every retry to have happened", got)
				}
				s.putState(want).want(204)
				if got := s.state(); got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
			}
			s.do("POST", "/_stepwell/reset", "").want(204)
			if got := s.do("GET", "/_stepwell/clock", "").text("mode"); got != "real" {
				t.Errorf("after a reset the clock is %s; want a real one", got)
			}
			if dir != "" {
				wantStoreFiles(t, dir)
			}
		})
	}
}

// wantStoreFiles fails the test if the directory holds more than the store's own files.
func wantStoreFiles(t *testing.T, dir string) {
	t.Helper()
	own := []string{lockName, storeName}
	for _, f := range must(os.ReadDir(dir))(t) {
		if !slices.Contains(own, f.Name()) {
			t.Errorf("%s is left", filepath.Join(dir, f.Name()))
		}
	}
}

// TestPutClock restores a clock in each mode.
func TestPutClock(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		clock string
		mode  string
		now   string // "" for the current time
	}{
		{`{"now":"2020-02-03T04:05:06.000007Z","mode":"frozen"}`, "frozen", "2020-02-03T04:05:06.000007Z"},
		{`{"now":"2020-02-03T04:05:06.000007Z","mode":"auto"}`, "auto", "2020-02-03T04:05:06.000007Z"},
		{`{"now":"2020-02-03T04:05:06Z","mode":"real"}`, "real", ""},
		{`{"now":"2220-02-03T04:05:06Z","mode":"real"}`, "real", "2220-02-03T04:05"},
	} {
		s := newFixtureServer(t, serviceTest{})
		before := realNow()
		s.putState(fmt.Sprintf("{\"format\":3,\"clock\":%s}\n{\"end\":{}}", tt.clock)).want(204)
		got := s.do("GET", "/_stepwell/clock", "").want(200)
		now := mustInstant(got.text("now"))
		if got.text("mode") != tt.mode || !strings.HasPrefix(got.text("now"), tt.now) ||
			tt.now == "" && (now < before || now > realNow()) {
			t.Errorf("%s: got %s; want mode %s at %s", tt.clock, got.body, tt.mode, tt.now)
		}
	}
}

// TestUnfitStateChangesNothing checks that a refused state changes nothing, and that the answer names the line.
func TestUnfitStateChangesNothing(t *testing.T) {
	sequential(t)
	t.Parallel()
	for _, dir := range []string{"", t.TempDir()} {
		s := newFixtureServer(t, serviceTest{extra: sandboxTemplates, dir: dir})
		s.putState(frozenAt(testStart)).want(204)
		s.create(`{"namespace":"t","name":"quick"}`)
		s.create(`{"namespace":"t","name":"retried"}`)
		want := s.state()
		for _, tt := range []struct{ old, new, why string }{
			{`"state":"complete"`, `"state":"cancelled"`, "but its log gives"},
			{`"kind":"ran"`, `"kind":"nonsense"`, "nonsense"},
			{`"at":1767225600000000,"kind":"ran"`, `"kind":"ran"`, "log[1]: it has no time"},
			{`"context":{}`, `"context":[]`, "context"},
			{`"definition":{`, `"definition":{"x":1,`, "line 3: "},
			{`"format":3`, `"format":7`, "line 1: it has format 7, and this version of stepwell reads formats up to 3"},
			{`"format":3`, `"format":1`, "line 1: it has format 1, which was in no release"},
			{`"mode":"frozen"`, `"mode":"fast"`, "line 1: its clock must have"},
			{`{"now":"2026-01-01T00:00:00.000000Z","mode":"frozen"}`, `{"mode":"frozen"}`, "line 1: its clock must have"},
			{`"mode":"frozen"}`, `"mode":"frozen","zone":1}`, `line 1: member "zone": unknown member`},
			{want[strings.Index(want, `{"end":`):], "", `the line {"end":…} is missing: the file was cut off`},
			{want, "", "it has no lines"},
			{want, "nonsense", "line 1: it is not a JSON object"},
		} {
			if !strings.Contains(want, tt.old) {
				t.Fatalf("%s does not stand in\n%s", tt.old, want)
			}
			bad := strings.Replace(want, tt.old, tt.new, 1)
			a := s.putState(unsealed(bad)).want(422)
			a.wantText("error.details.0.field", "state")
			if got := a.text("error.message"); !strings.Contains(got, tt.why) {
				t.Errorf("%s for %s: got %s; want %s", tt.new, tt.old, got, tt.why)
			}
			if got := s.state(); got != want {
				t.Fatalf("%s for %s: the state became\n%s", tt.new, tt.old, got)
			}
		}
	}
}

// TestStateMayBeLarge checks that a state may be larger than other bodies.
func TestStateMayBeLarge(t *testing.T) {
	s := newFixtureServer(t, serviceTest{config: func(c *Config) { c.Web.MaxBodyBytes = 1024 }})
	s.putState(frozenAt(testStart)).want(204)
	for range 20 {
		s.create(`{"namespace":"demo","name":"approval"}`)
	}
	want := s.state()
	s.do("POST", "/v1/tasks", `{"name":"`+strings.Repeat("x", 1024)+`"}`).want(413)
	s.putState(want).want(204)
	if got := s.state(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	c := s.sandbox(`{"seed":%s}`, seedOf(want))
	if got := c.state(); got != want {
		t.Errorf("the sandbox has\n%s\nwant\n%s", got, want)
	}
}

// TestNullMeansNotGiven checks that members of the control API's requests that are null count
// as absent. Only the result of a stub may be null.
func TestNullMeansNotGiven(t *testing.T) {
	s := newFixtureServer(t, serviceTest{extra: []string{testTemplate("one", stepSpec{name: "a", callable: "builtin:noop"})}})
	const outcome = `{"match":{"name":"one"},"outcomes":[%s],"then":null}`
	stub := func(o string) string { return fmt.Sprintf(outcome, o) }
	for _, row := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/clock", `{"freeze":true,"advance":null,"set":null,"timeout":null}`, 200},
		{"POST", "/clock", `{"auto":null,"resume":true}`, 200},
		{"POST", "/clock", `{"auto":null}`, 422},
		{"POST", "/wait-idle", `{"timeout":null}`, 200},
		{"POST", "/sandboxes", `{"name":null,"seed":null,"deterministic_ids":null}`, 201},
		{"POST", "/verify", `{"match":{"kind":null,"name":"one"},"count":{"exactly":0,"at_least":null}}`, 200},
		{"POST", "/verify", `{"match":null}`, 422},
		{"POST", "/stubs", stub(`{"error":{"message":"m","error_type":null,"retryable":null,"retry_after":null},"result":null,"delay":null}`), 201},
		{"POST", "/stubs", stub(`{"hang":true,"result":null,"fault":null}`), 201},
		{"POST", "/stubs", stub(`{"fault":"worker_lost","result":null}`), 201},
		{"POST", "/stubs", stub(`{"hang":null}`), 422},
		{"POST", "/stubs", `{"match":{"namespace":null,"attempt":null,"context":null},"outcomes":[{"result":null}]}`, 201},
		{"PUT", "/stubs", `{"stubs":null}`, 422},
		{"PUT", "/stubs", `{"stubs":[{"match":{"name":"one"},"outcomes":[{"result":null,"delay":null}]}]}`, 200},
	} {
		if a := s.do(row.method, "/_stepwell"+row.path, row.body); a.status != row.status {
			t.Errorf("%s %s: got %d %s; want %d", row.path, row.body, a.status, a.body, row.status)
		}
	}
	v := s.do("POST", "/v1/tasks?wait=5s", `{"namespace":"t","name":"one"}`).want(201)
	if v = s.do("GET", "/v1/tasks/"+v.text("task_uuid")+"/workflow_steps", ""); v.text("0.results.result") != "<nil>" {
		t.Errorf("the stub's null became %s", v.body)
	}
}

// bringing returns the state of a service whose templates and tasks may be anything.
func bringing(t *testing.T, templates ...string) string {
	t.Helper()
	s := newFixtureServer(t, serviceTest{extra: templates, config: func(c *Config) { c.Worker.AllowExec = true }})
	for _, text := range templates {
		s.create(text)
	}
	return s.state()
}

// runTimeTemplate returns a template whose second step has a callable; it waits for an actor first.
func runTimeTemplate(name, callable string) string {
	return testTemplate(name, stepSpec{name: "a", callable: "Actor"}, stepSpec{name: "b", callable: callable, after: []string{"a"}})
}

// TestStateBringsNoRefusedTemplates checks that a state and the seed of a sandbox
// follow the rules for templates that are added at run time.
func TestStateBringsNoRefusedTemplates(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	for callable, want := range map[string]string{
		"exec:id":                     "templates added at run time cannot run programs",
		"http://evil.example/x":       "evil.example is not loopback, and fixture.allow_targets does not name it",
		"HTTPS://evil.example":        "evil.example is not loopback",
		"http://localhost@10.0.0.1/":  "10.0.0.1 is not loopback",
		"http://127.0.0.1:1/":         "",
		"http://allowed.example/x?y":  "",
		"Payments::Charge":            "",
		"http://mapped.example/steps": "",
	} {
		document := bringing(t, runTimeTemplate("brought", callable))
		for _, dir := range []string{"", t.TempDir()} {
			s := newFixtureServer(t, serviceTest{dir: dir, config: func(c *Config) {
				c.Worker.AllowExec = true
				c.Fixture.AllowTargets = []string{"allowed.example"}
				c.Worker.Handlers = map[string]string{"http://mapped.example/steps": "builtin:noop"}
			}})
			before := s.state()
			put := s.putState(document)
			made := s.do("POST", "/_stepwell/sandboxes", `{"name":"x","seed":`+seedOf(document)+`}`)
			added := s.do("POST", "/_stepwell/templates", runTimeTemplate("added", callable))
			if want == "" {
				put.want(204)
				made.want(201)
				added.want(201)
				continue
			}
			for _, a := range []*answer{put.want(422), made.want(422), added.want(422)} {
				if !strings.Contains(a.text("error.message"), want) || !strings.Contains(string(a.body), "steps[1].handler.callable") {
					t.Errorf("%s: got %s; want %s", callable, a.body, want)
				}
			}
			put.wantText("error.details.0.field", "state")
			made.wantText("error.details.0.field", "seed")
			s.do("GET", "/_stepwell/sandboxes/x", "").want(404)
			if after := s.state(); cutTimes(after) != cutTimes(before) {
				t.Errorf("%s: the state became\n%s", callable, after)
			}
		}
	}
}

// cutTimes removes the parts of a state that change while nothing happens.
func cutTimes(state string) string {
	return regexp.MustCompile(`"now":"[^"]*"`).ReplaceAllString(state, "")
}

// TestStateReturns checks that templates and callables from the start of the service, or from
// its present state, may come back.
func TestStateReturns(t *testing.T) {
	t.Parallel()
	started := runTimeTemplate("started", "exec:id")
	s := newFixtureServer(t, serviceTest{extra: []string{started}, config: func(c *Config) { c.Worker.AllowExec = true }})
	s.create(started)
	document := s.state()
	s.putState(document).want(204)
	s.do("POST", "/_stepwell/templates", runTimeTemplate("started", "Other")).want(201 - 1)
	s.putState(document).want(204)
	s.do("POST", "/_stepwell/reset", "").want(204)
	s.putState(document).want(204)

	file := filepath.Join(t.TempDir(), "seed.jsonl")
	writeFile(t, file, []byte(document))
	seeded := newFixtureServer(t, serviceTest{seed: file})
	c := seeded.sandbox(`{"seed":%s}`, seedOf(document))
	seeded.putState(document).want(204)
	seeded.putState(emptyState).want(204)
	seeded.putState(document).want(204) // as a reset does
	c.do("POST", "/_stepwell/reset", "").want(204)
	c.putState(document).want(204)
}
