package main

// Fixture mode through its control API: its harness, resets and states.

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	return served(s.t, &s.world.gates.orchestration, method, path, "{}", "X-API-Key: "+key)
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
			{`"format":3`, `"format":7`, "line 1: it has format 7, and this version of stepwell reads format 3"},
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

// TestExploreAsks checks that a redirect is no consent of the application, that both runs without a fault have to end well,
// that what a result lacks differs even if no two runs have the same value, that a mapping allows no other host to be asked,
// and that the end of a request ends a call.
func TestExploreAsks(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	var calls, checks atomic.Int64
	app := http.NewServeMux()
	app.Handle("/login", http.RedirectHandler("/ok", http.StatusFound))
	app.HandleFunc("/ok", func(http.ResponseWriter, *http.Request) {})
	app.HandleFunc("/second", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(pick(checks.Add(1) == 1, http.StatusOK, http.StatusTeapot))
	})
	app.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		end()
		<-r.Context().Done()
	})
	app.HandleFunc("/step", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("Idempotency-Key"), ":1") {
			fmt.Fprintf(w, `{"id":%d,"paid":true}`, calls.Add(1))
		} else {
			io.WriteString(w, `{"paid":true}`)
		}
	})
	web := httptest.NewServer(app)
	t.Cleanup(web.Close)
	s := newFixtureServer(t, serviceTest{
		config: func(c *Config) { c.Worker.Handlers = map[string]string{"http://pay.example.com/*": web.URL + "/step"} },
		extra:  []string{testTemplate("volatile", stepSpec{name: "a", callable: "http://pay.example.com/charge"})},
	})
	for check, want := range map[string]string{
		web.URL + "/login":             "without a fault, the task is refused: 302 Found",
		web.URL + "/second":            "without a fault, the task is refused the second time: 418 I'm a teapot",
		web.URL + "/ok":                `"message":"results.a.id is missing, not 1"`,
		"http://pay.example.com/check": "check pay.example.com is not loopback",
	} {
		calls.Store(0)
		a := s.do("POST", "/_stepwell/explore", `{"namespace":"t","name":"volatile","only":"a:late","check":"`+check+`"}`)
		if !strings.Contains(string(a.body), want) {
			t.Errorf("%s: got %s; want %s", check, a.body, want)
		}
	}
	x := &exploration{host: s.world.service().extension.(*fixture), task: &taskRequest{namespace: "t", name: "volatile"}, before: web.URL + "/hang"}
	if _, err := x.explore(ctx); ctx.Err() == nil || kindOf(err) != unavailable {
		t.Errorf("an interrupted call: got %v", err)
	}
}
