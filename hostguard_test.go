package main

import (
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
)

// guardedServer serves a surface of its own listener, as serving does.
type guardedServer struct {
	t   *testing.T
	url string
}

func newGuardedServer(t *testing.T, h http.Handler, address string) *guardedServer {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("%s cannot be listened on: %v", address, err)
	}
	s := newHTTPServer(l, h, slog.New(slog.DiscardHandler))
	go s.server.Serve(l)
	t.Cleanup(func() { s.server.Close() })
	return &guardedServer{t, s.url()}
}

// ask sends an empty object with a Host and an Origin; "" for the usual and none.
func (s *guardedServer) ask(method, path, host, origin string) *answer {
	s.t.Helper()
	req, err := http.NewRequest(method, s.url+path, strings.NewReader("{}"))
	if err != nil {
		s.t.Fatal(err)
	}
	if host != "" {
		req.Host = host
	}
	if origin != "" {
		req.Header.Set("Origin", origin)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	return readAnswer(s.t, resp)
}

func guardConfig(c *Config) {
	c.Web.AllowedHosts = []string{"Steps.Test", "10.9.8.7"}
	c.Web.AllowedOrigins = []string{"https://app.example:8443"}
}

// TestForeignPages sends what browsers send for pages of others, and for our own.
func TestForeignPages(t *testing.T) {
	const let = 422 // as an empty object is no task
	svc := newTestService(t, serviceTest{config: guardConfig})
	loopback := newGuardedServer(t, newOrchestrationAPI(svc), "127.0.0.1:0")
	wide := newGuardedServer(t, newOrchestrationAPI(svc), "0.0.0.0:0")
	own := strings.TrimPrefix(loopback.url, "http://")
	for _, tt := range []struct {
		host, origin   string
		loopback, wide int
	}{
		{"", "", let, let},
		{"", "http://evil.example", 400, 400},
		{"", "http://evil.example:8080", 400, 400},
		{"", "http://localhost.evil.example", 400, 400},
		{"", "http://127.0.0.1.evil.example", 400, 400},
		{"", "http://evillocalhost", 400, 400},
		{"", "null", 400, 400},
		{"", "https://app.example", 400, 400},
		{"", "https://app.example:8443", let, let},
		{"", "https://APP.example:8443", let, let},
		{"", "http://" + own, let, let},
		{"", "http://localhost:3000", let, let},
		{"", "http://console.localhost", let, let},
		{"", "http://[::1]:3000", let, let},
		{"", "http://steps.test", let, let},
		{"evil.example", "", 421, let},
		{"evil.example:8080", "http://evil.example:8080", 421, let}, // its name was made to point here
		{"evil.example", "http://other.example", 400, 400},
		{"localhost", "", let, let},
		{"LOCALHOST.:1", "", let, let},
		{"a.b.localhost:9", "", let, let},
		{"127.9.9.9", "", let, let},
		{"[::1]:99", "", let, let},
		{"[::ffff:127.0.0.1]", "", let, let},
		{"host.docker.internal:8080", "", let, let},
		{"steps.test:80", "", let, let},
		{"10.9.8.7", "", let, let},
		{"10.9.8.8", "", 421, let},
		{"0.0.0.0:8080", "", 421, let},
		{"127.0.0.1.evil.example", "", 421, let},
	} {
		for s, want := range map[*guardedServer]int{loopback: tt.loopback, wide: tt.wide} {
			a := s.ask("POST", "/v1/tasks", tt.host, tt.origin)
			code := map[int]string{400: "BAD_REQUEST", 421: "MISDIRECTED_REQUEST", let: "VALIDATION_FAILED"}[want]
			if a.status != want || a.text("error.code") != code {
				t.Errorf("%s, Host %q, Origin %q: got %d, %s; want %d", s.url, tt.host, tt.origin, a.status, a.body, want)
			}
		}
	}
}

// TestForeignPagesMayRead: what changes nothing is refused to nobody.
func TestForeignPagesMayRead(t *testing.T) {
	svc := newTestService(t, serviceTest{})
	s := newGuardedServer(t, newOrchestrationAPI(svc), "127.0.0.1:0")
	for _, path := range []string{"/health", "/health/ready", "/metrics", "/api-docs", "/api-docs.json", "/v1/tasks"} {
		for _, method := range []string{"GET", "HEAD"} {
			if a := s.ask(method, path, "evil.example", "http://evil.example"); a.status != 200 {
				t.Errorf("%s %s: got %d; want 200", method, path, a.status)
			}
		}
	}
}

// TestWorkerRefusesForeignPages: in the worker role's own form.
func TestWorkerRefusesForeignPages(t *testing.T) {
	svc := newTestService(t, serviceTest{})
	s := newGuardedServer(t, newWorkerAPI(svc), "127.0.0.1:0")
	const path = "/v1/templates/demo/diamond/1.0.0/validate"
	a := s.ask("POST", path, "evil.example", "").want(421)
	if a.text("error") != "misdirected_request" || !strings.Contains(a.text("message"), "web.allowed_hosts") {
		t.Errorf("got %s", a.body)
	}
	if a = s.ask("POST", path, "", "http://evil.example").want(400); a.text("error") != "invalid_request" {
		t.Errorf("got %s", a.body)
	}
}

// TestCredentialsReplaceTheGuard: with authentication on, a page has none.
func TestCredentialsReplaceTheGuard(t *testing.T) {
	svc := newTestService(t, serviceTest{config: func(c *Config) {
		a := &c.Orchestration.Web.Auth
		a.Enabled, a.APIKeysEnabled, a.APIKeys = true, true, surfaceKeys
		a.JWTPublicKey = publicPEM(t, authKeys().rsa)
	}})
	s := newGuardedServer(t, newOrchestrationAPI(svc), "127.0.0.1:0")
	if a := s.ask("POST", "/v1/tasks", "evil.example", "http://evil.example"); a.status != 401 {
		t.Errorf("got %d; want 401: %s", a.status, a.body)
	}
}

// TestGuardConfiguration: a port or a path in a name would never match.
func TestGuardConfiguration(t *testing.T) {
	for value, ok := range map[string]bool{
		"steps.test": true, "10.9.8.7": true, "::1": true, "steps.test:80": false, "http://steps.test": false, "": false,
	} {
		if err := checkHostValue(value); (err == nil) != ok {
			t.Errorf("web.allowed_hosts %q: got %v; want ok %v", value, err, ok)
		}
	}
	for value, ok := range map[string]bool{
		"https://a.example": true, "http://a.example:8080": true, "https://a.example/": false, "a.example": false,
		"null": false, "https://": false, "https://user@a.example": false,
	} {
		if err := checkOriginValue(value); (err == nil) != ok {
			t.Errorf("web.allowed_origins %q: got %v; want ok %v", value, err, ok)
		}
	}
}
