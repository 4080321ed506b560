package main

// Fixture mode through its control API: the harness, and its conditions.

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
)

// fixtureServer is a world in fixture mode behind a listener.
type fixtureServer struct {
	*testServer
	world *world
}

// newFixtureServer opens a world that ends with the test. After the test the
// service of the moment is held against its own log.
func newFixtureServer(t testing.TB, o serviceTest) *fixtureServer {
	t.Helper()
	cfg := testConfig(t, o)
	cfg.Fixture.Enabled = true
	log := slog.New(&failingHandler{t: t, out: o.log})
	handlers, registry := loadTestWork(t, cfg, log, o.extra)
	rc := newRealClock()
	t.Cleanup(rc.stop)
	w, err := openWorld("", serviceOptions{
		cfg: cfg, log: log, auth: testAuthenticators(t, cfg, rc, log), clock: rc, registry: registry, handlers: handlers,
		deterministic: cfg.Fixture.DeterministicIDs,
	}, &gates{})
	if err != nil {
		t.Fatal(err)
	}
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

// TestFixtureIsOff: without fixture mode there is no control API.
func TestFixtureIsOff(t *testing.T) {
	s := newTestServer(t, serviceTest{})
	for _, row := range (&controlAPI{}).routes() {
		method, path, _ := strings.Cut(row.pattern, " ")
		s.do(method, path, "").want(404)
	}
	if strings.Contains(string(s.do("GET", "/health/detailed", "").want(200).body), "fixture") {
		t.Error("/health/detailed speaks of fixture mode")
	}
	if strings.Contains(string(s.do("GET", "/api-docs.json", "").want(200).body), controlPath) {
		t.Error("the document has the control API")
	}
}

// TestFixtureShows: it is on, and says so.
func TestFixtureShows(t *testing.T) {
	s := newFixtureServer(t, serviceTest{})
	s.clock(`{"freeze":true}`).want(200)
	if got := s.do("GET", "/health/detailed", "").want(200).text("checks.fixture.message"); !strings.Contains(got, "frozen") {
		t.Errorf("/health/detailed says %q; want the clock's mode", got)
	}
	if !strings.Contains(string(s.do("GET", "/api-docs.json", "").want(200).body), controlPath+"/clock") {
		t.Error("the document lacks the control API")
	}
}

// TestControlAsksForEverything: with authentication on, each permission is needed.
func TestControlAsksForEverything(t *testing.T) {
	keys := []apiKeyConfig{{Key: "everything-and-more", Permissions: allWildcards()}}
	for p := range permissionCount {
		keys = append(keys, apiKeyConfig{Key: "all-but-" + p.String(), Permissions: (everyPermission &^ (1 << p)).names()})
	}
	s := newFixtureServer(t, serviceTest{config: func(c *Config) {
		a := &c.Orchestration.Web.Auth
		a.Enabled, a.APIKeysEnabled, a.APIKeys = true, true, keys
		a.JWTPublicKey = publicPEM(t, authKeys().rsa)
	}})
	for _, row := range (&controlAPI{}).routes() {
		method, path, _ := strings.Cut(row.pattern, " ")
		for i, key := range keys {
			a := s.as(key.Key, method, path)
			want := "Missing required permission: "
			if i > 0 {
				want += permission(i - 1).String()
			}
			if i == 0 && a.status < 500 && a.status != 401 && a.status != 403 {
				continue
			}
			if i == 0 || a.status != 403 || a.text("error.message") != want {
				t.Errorf("%s with %s: got %d, %s", row.pattern, key.Key, a.status, a.body)
			}
		}
		if a := s.do(method, path, ""); a.status != 401 {
			t.Errorf("%s without credentials: got %d; want 401", row.pattern, a.status)
		}
	}
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
