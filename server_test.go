package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestInternalErrorsStayInside has a route fail and another panic: the caller
// learns nothing but the request id, which stands in the log too.
func TestInternalErrorsStayInside(t *testing.T) {
	var log strings.Builder
	svc := newTestService(t, serviceTest{log: &log})
	a := newOrchestrationAPI(svc)
	a.handle([]route{
		{"GET /fails", public, func(http.ResponseWriter, *http.Request) error { return errors.New("the secret cause") }},
		{"GET /panics", public, func(http.ResponseWriter, *http.Request) error { panic("the secret cause") }},
	})
	for _, path := range []string{"/fails", "/panics"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("X-Request-Id", "id-of-"+path[1:])
		a.ServeHTTP(w, r)
		if w.Code != 500 || strings.Contains(w.Body.String(), "secret") || !strings.Contains(w.Body.String(), "id-of-") {
			t.Errorf("%s: got %d %s", path, w.Code, w.Body)
		}
		if !strings.Contains(log.String(), "the secret cause") || !strings.Contains(log.String(), "id-of-"+path[1:]) {
			t.Errorf("%s: the log lacks the cause or the request id: %s", path, &log)
		}
	}
}

// TestUncleanPaths never redirects: a client that follows a redirect of a POST
// would repeat it.
func TestUncleanPaths(t *testing.T) {
	s := newTestServer(t, serviceTest{})
	for _, path := range []string{"//v1/tasks", "/v1//tasks", "/v1/./tasks", "/v1/tasks/", "/v1/tasks/%2F"} {
		a := s.do("POST", path, `{"namespace":"demo","name":"diamond"}`)
		if a.status != 404 && a.status != 405 {
			t.Errorf("POST %s: got %d; want 404 or 405: %s", path, a.status, a.body)
		}
		if a.header.Get("Location") != "" || a.text("error.code") == "" {
			t.Errorf("POST %s: got Location %q and %s", path, a.header.Get("Location"), a.body)
		}
	}
}

// TestSlowClients are cut off: one that never ends its headers, one that never
// sends its body.
func TestSlowClients(t *testing.T) {
	svc := newTestService(t, serviceTest{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := newHTTPServer(l, newOrchestrationAPI(svc), svc.log)
	if h.server.ReadHeaderTimeout != headerTimeout || h.server.ReadTimeout != requestTimeout {
		t.Errorf("got timeouts %s and %s", h.server.ReadHeaderTimeout, h.server.ReadTimeout)
	}
	h.server.ReadHeaderTimeout, h.server.ReadTimeout = 50*time.Millisecond, 50*time.Millisecond
	go h.server.Serve(l)
	defer h.server.Close()
	for _, sent := range []string{
		"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		io.WriteString(conn, sent)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil && resp.StatusCode < 400 {
			t.Errorf("%.20q: got %s; want it refused", sent, resp.Status)
		}
		if err == nil {
			if _, err = io.Copy(io.Discard, conn); err != nil {
				t.Errorf("%.20q: the connection stays open: %v", sent, err)
			}
		}
	}
}

func TestBackpressure(t *testing.T) {
	s := newTestServer(t, serviceTest{
		config: func(c *Config) { c.Worker.Concurrency, c.Engine.MaxQueued = 1, 3 },
		extra:  []string{testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":3600000}`})},
	})
	for range 4 { // one runs, three wait
		s.create(`{"namespace":"t","name":"slow"}`)
	}
	a := s.do("POST", "/v1/tasks", `{"namespace":"t","name":"slow"}`).want(503)
	if a.text("error.code") != "BACKPRESSURE" || a.text("error.retry_after_seconds") != "1" || a.header.Get("Retry-After") != "1" {
		t.Errorf("got Retry-After %q and %s", a.header.Get("Retry-After"), a.body)
	}
	if got := s.do("GET", "/v1/tasks", "").want(200).text("pagination.total_count"); got != "4" {
		t.Errorf("got %s tasks; want 4", got)
	}
}

// TestDemos runs the embedded templates as the banner suggests.
func TestDemos(t *testing.T) {
	s := newTestServer(t, serviceTest{})
	for name, status := range map[string]string{
		"linear": "complete", "diamond": "complete", "fan_out": "complete", "routing": "complete", "batch": "complete", "flaky": "complete",
		"failing": "blocked_by_failures", "exhausted": "blocked_by_failures", "approval": "steps_in_process",
	} {
		id := s.create(`{"namespace":"demo","name":"` + name + `"}`)
		s.await(id, status)
	}
}
