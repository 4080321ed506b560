package main

// Refusals, which come before the body, on a real connection.

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// authListener serves a surface with authentication on a free port.
func authListener(t *testing.T) (address string) {
	t.Helper()
	s := newAuthSurface(t, "orchestration", unchanged)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	h := newHTTPServer(l, s, manyConnections(), s.surface.log)
	go h.serve()
	t.Cleanup(func() { h.server.Close() })
	return l.Addr().String()
}

// authDial opens a connection with a deadline far shorter than the server's.
func authDial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn := must(net.Dial("tcp", address))(t)
	conn.SetDeadline(time.Now().Add(requestTimeout / 4))
	t.Cleanup(func() { conn.Close() })
	return conn
}

// refusedHead begins a request that is refused, with more header lines.
func refusedHead(lines ...string) string {
	lines = append([]string{
		"POST /v1/tasks HTTP/1.1", "Host: x", "Content-Type: application/json", "Authorization: Bearer x.y.z",
	}, lines...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

func wantRefusal(t *testing.T, what string, r *bufio.Reader) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("%s: got %v; want an answer", what, err)
	}
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != 401 || err != nil || !strings.Contains(string(body), "AUTHENTICATION_FAILED") {
		t.Errorf("%s: got %s %s, %v; want 401 and its body", what, resp.Status, body, err)
	}
	return resp
}

// TestRefusedBodyIsNotTaken sends a body of 1 GB with an invalid token: the answer comes at
// once, and the client can send no more than fits into buffers.
func TestRefusedBodyIsNotTaken(t *testing.T) {
	slow(t)
	const size, most = 1 << 30, 32 << 20
	conn := authDial(t, authListener(t))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	io.WriteString(conn, refusedHead("Transfer-Encoding: chunked"))
	sent := make(chan int, 1)
	go func() {
		chunk := []byte("10000\r\n" + strings.Repeat(" ", 0x10000) + "\r\n")
		n := 0
		for n < size {
			wrote, err := conn.Write(chunk)
			n += wrote
			if err != nil {
				break
			}
		}
		sent <- n
	}()
	resp := wantRefusal(t, "1 GB", bufio.NewReader(conn))
	if !resp.Close {
		t.Error("got a connection that stays; want it closed: nobody reads the rest")
	}
	n := <-sent
	runtime.ReadMemStats(&after)
	t.Logf("the client sent %d bytes; %d bytes were allocated", n, after.TotalAlloc-before.TotalAlloc)
	if n > most {
		t.Errorf("the client sent %d bytes; want at most %d of %d", n, most, size)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
		t.Errorf("got %d bytes allocated; want few", got)
	}
}

// TestRefusalReachesSenders sends 8 MB before it reads: each refusal by a surface comes, with any framing. Those that net/http makes
// itself, of malformed headers, may be lost.
func TestRefusalReachesSenders(t *testing.T) {
	t.Parallel()
	s := newFixtureServer(t, serviceTest{})
	orchestration := newGuardedServer(t, &s.world.gates.orchestration, "127.0.0.1:0").url
	worker := newGuardedServer(t, newWorkerAPI(s.world.service(), nil), "127.0.0.1:0").url
	secured := "http://" + authListener(t)
	for _, tt := range []struct {
		url, line, header string
		want              int
	}{
		{orchestration, "POST /v1/tasks", "Origin: http://elsewhere.example", 400},
		{secured, "POST /v1/tasks", "Authorization: Bearer x.y.z", 401},
		{orchestration, "POST /v1/nothing", "", 404},
		{orchestration, "DELETE /v1/tasks", "", 405},
		{orchestration, "TRACE /", "", 405},
		{orchestration, "POST /v1/tasks", "Content-Type: application/json", 413},
		{orchestration, "POST /v1/tasks", "Host: elsewhere.example", 421},
		{orchestration, "POST /stepwell/tasks", "Content-Type: application/json", 413},
		{orchestration, "POST /stepwell/nothing", "", 404},
		{orchestration, "POST /_stepwell/stubs", "Content-Type: application/json", 413},
		{orchestration, "POST /_stepwell/nothing", "", 404},
		{worker, "POST /v1/templates/demo/diamond/1.0.0/validate", "Content-Type: application/json", 413},
		{worker, "POST /v1/nothing", "", 404},
	} {
		for _, rest := range []string{"Content-Length: 8388608", "Transfer-Encoding: chunked", "Content-Length: 8388608\r\nConnection: close"} {
			conn := authDial(t, strings.TrimPrefix(tt.url, "http://"))
			head := tt.line + " HTTP/1.1\r\n" + tt.header + "\r\n"
			if tt.header == "" {
				head = tt.line + " HTTP/1.1\r\n"
			}
			if !strings.HasPrefix(tt.header, "Host:") {
				head += "Host: localhost\r\n"
			}
			io.WriteString(conn, head+rest+"\r\n\r\n")
			chunk := []byte("10000\r\n" + strings.Repeat(" ", 0x10000) + "\r\n")
			if !strings.Contains(rest, "chunked") {
				chunk = chunk[7 : 7+0x10000]
			}
			for range 128 {
				if _, err := conn.Write(chunk); err != nil {
					t.Errorf("%s with %.40q and %q: %v while the body is sent", tt.line, tt.header, rest, err)
					break
				}
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != tt.want {
				t.Errorf("%s with %.40q and %q: got %v, %v; want %d", tt.line, tt.header, rest, resp, err, tt.want)
			}
			conn.Close()
		}
	}
}

// TestRefusalDoesNotWaitForTheBody announces bodies and never sends them.
func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	address := authListener(t)
	for _, line := range []string{
		"Content-Length: 100", "Content-Length: 200000", "Content-Length: 10000000000", "Transfer-Encoding: chunked",
		"Content-Length: 100\r\nExpect: 100-continue", "Transfer-Encoding: chunked\r\nExpect: 100-continue",
	} {
		conn := authDial(t, address)
		began := time.Now()
		io.WriteString(conn, refusedHead(line))
		wantRefusal(t, line, bufio.NewReader(conn))
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: the answer took %s; want it at once", line, took)
		}
	}
}

// TestRefusalWithoutBodyKeepsTheConnection sends many requests on one connection.
func TestRefusalWithoutBodyKeepsTheConnection(t *testing.T) {
	slow(t)
	conn := authDial(t, authListener(t))
	r := bufio.NewReader(conn)
	for i := range 3 {
		io.WriteString(conn, refusedHead("Content-Length: 0"))
		if resp := wantRefusal(t, fmt.Sprint("request ", i), r); resp.Close {
			t.Errorf("request %d: got the connection closed; want it kept", i)
		}
	}
}

// TestRefusalReachesOrdinaryClients sends bodies by net/http, which writes and
// reads at once.
func TestRefusalReachesOrdinaryClients(t *testing.T) {
	address := authListener(t)
	for _, size := range []int64{1, 1 << 10, 100 << 10, 1 << 20, 64 << 20} {
		body := io.LimitReader(endlessBody{}, size)
		r := must(http.NewRequest("POST", "http://"+address+"/v1/tasks", io.NopCloser(body)))(t)
		r.ContentLength = size
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatalf("%d bytes: got %v; want an answer", size, err)
		}
		resp.Body.Close()
		if resp.StatusCode != 401 {
			t.Errorf("%d bytes: got %s; want 401", size, resp.Status)
		}
	}
}

// endlessBody is a body that never ends.
type endlessBody struct{}

func (endlessBody) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// lockedText is a log to which several goroutines may write.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestActorsGetNoSecrets shows outside actors a callable that is a URL with secrets. Their
// patterns must not find out the secrets, and one with the secrets finds the step.
func TestActorsGetNoSecrets(t *testing.T) {
	const callable, shown = "queue://user:s3cr3t@h/q?token=s3cr3t", "queue://[REDACTED]@h/q?[REDACTED]"
	var log lockedText
	s := newTestServer(t, serviceTest{log: &log, extra: []string{testTemplate("leaky", stepSpec{name: "a", callable: callable})}})
	id := s.create(`{"namespace":"t","name":"leaky"}`)
	s.await(id, "steps_in_process")
	for pattern, found := range map[string]string{
		"": "1", callable: "1", shown: "1", "queue://*": "1", "queue://user:s3cr3t@h/*": "1",
		"queue://user:*": "0", "queue://user*": "0", "queue://user:s3cr3t*": "0", "queue://nobody@h/q": "0",
	} {
		a := s.do("GET", "/v1/steps?callable="+url.QueryEscape(pattern), "").want(200)
		if got := fmt.Sprint(a.length()); got != found || found == "1" && a.text("0.callable") != shown {
			t.Errorf("%q finds %s", pattern, a.body)
		}
	}
	refused := s.do("POST", "/v1/steps/claim", `{"callables":["queue://user:s*"]}`).want(200)
	claimed := s.do("POST", "/v1/steps/claim", `{"callables":["`+callable+`"]}`).want(200)
	if refused.length() != 0 || claimed.length() != 1 || claimed.text("0.callable") != shown {
		t.Errorf("got %s and %s; want the second, without secrets", refused.body, claimed.body)
	}
	explained := s.do("GET", "/v1/tasks/"+id+"/explain", "").want(200)
	eventually(t, "the log names the callable", func() bool { return strings.Contains(log.String(), shown) })
	all := string(claimed.body) + string(explained.body) + string(s.do("GET", "/v1/steps?state=in_progress", "").body) + log.String()
	if strings.Contains(all, "s3cr3t") {
		t.Errorf("got %s", all)
	}
}

// TestUncleanPaths checks that there are no redirects, because a client that follows one
// repeats its POST.
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

func TestBackpressure(t *testing.T) {
	s := newTestServer(t, serviceTest{
		config: func(c *Config) { c.Worker.Concurrency = 1 },
		extra:  []string{testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":3600000}`})},
	})
	s.svc.engine.queues.most = 3
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
	t.Parallel()
	clock := newVirtualClock(testStart)
	s, ids := newTestServer(t, serviceTest{clock: clock}), map[string]string{}
	demos := map[string]string{
		"linear": "complete", "diamond": "complete", "fan_out": "complete", "routing": "complete", "batch": "complete", "flaky": "complete",
		"failing": "blocked_by_failures", "exhausted": "blocked_by_failures", "approval": "steps_in_process",
	}
	for name := range demos {
		ids[name] = s.create(`{"namespace":"demo","name":"` + name + `"}`)
	}
	for range 3 { // a wait before each retry
		settle(s.svc)
		clock.advance(time.Minute)
	}
	for name, status := range demos {
		s.await(ids[name], status)
	}
}

// TestRequestIDsRevealNothing checks that request ids, which everybody gets, are not near the
// ids of tasks.
func TestRequestIDsRevealNothing(t *testing.T) {
	s := newTestServer(t, serviceTest{clock: newVirtualClock(deterministicStart)})
	task, _ := parseUUID(s.create(`{"namespace":"demo","name":"diamond"}`))
	seen := map[string]bool{}
	for range 100 {
		given := s.do("GET", "/health", "").want(200).header.Get("X-Request-Id")
		id, ok := parseUUID(given)
		if n, near := id.minus(task); !ok || near || seen[given] || id.millis() == task.millis() {
			t.Fatalf("got the request id %s, %d after the task %s; want a random one", given, n, task)
		}
		seen[given] = true
	}
}

// TestRequestsForTheServer sends requests that net/http answers itself unless it is prevented.
func TestRequestsForTheServer(t *testing.T) {
	svc := newTestService(t, serviceTest{})
	s := newGuardedServer(t, newOrchestrationAPI(svc, nil), "127.0.0.1:0")
	for _, line := range []string{"OPTIONS * HTTP/1.1", "CONNECT example.com:443 HTTP/1.1", "PRI * HTTP/2.0"} {
		conn := must(net.Dial("tcp", strings.TrimPrefix(s.url, "http://")))(t)
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		io.WriteString(conn, line+"\r\nHost: localhost\r\n\r\n")
		a := readAnswer(t, must(http.ReadResponse(bufio.NewReader(conn), nil))(t))
		id := a.header.Get("X-Request-Id")
		if a.status/100 != 4 || id == "" || a.text("error.request_id") != id {
			t.Errorf("%s: got %d with the id %q: %s", line, a.status, id, a.body)
		}
	}
}

// TestTrace sends TRACE to paths with and without routes, also to a route of every method.
func TestTrace(t *testing.T) {
	s := newFixtureServer(t, serviceTest{})
	worker := newWorkerAPI(s.world.service(), nil)
	front := newSurface(s.world.service(), newSurfaceCache(), "worker", orchestrationError)
	front.handle([]route{{"/{path...}", public, func(*responseWriter, *http.Request) (any, error) { return noContent{}, nil }}})
	for _, path := range []string{"/", "/v1/tasks", "/v1/nothing", "//v1/tasks", "/health", "/console", "/stepwell/tasks", "/stepwell/nothing",
		"/_stepwell/clock", "/_stepwell/nothing"} {
		for _, h := range []http.Handler{&s.world.gates.orchestration, worker, front} {
			r := httptest.NewRequest("TRACE", path, nil)
			r.Host = "localhost"
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != 405 || w.Header()["Allow"] == nil || !strings.Contains(w.Body.String(), "TRACE is not allowed") {
				t.Errorf("TRACE %s: got %d, %v, %s; want 405", path, w.Code, w.Header(), w.Body)
			}
		}
	}
}

// TestRequestLog checks the record of each request, and that it has no secret.
func TestRequestLog(t *testing.T) {
	const key = "hunter2-hunter2-hunter2"
	for _, on := range []bool{true, false} {
		var log lockedText
		s := newTestService(t, serviceTest{log: &log, config: func(c *Config) {
			c.Log.Requests = on
			auth := &c.Orchestration.Web.Auth
			auth.Enabled, auth.APIKeysEnabled = true, true
			auth.APIKeys = []apiKeyConfig{{Key: key, Permissions: []string{"tasks:list"}, Description: "nightly"}}
		}})
		api := newOrchestrationAPI(s, nil)
		for _, tt := range []struct{ method, target, key, want string }{
			{"GET", "/v1/tasks?status=complete", key, "path=/v1/tasks status=200 duration_ms=N request_id=r1 subject=nightly"},
			{"POST", "/v1/tasks", key, "path=/v1/tasks status=403 duration_ms=N request_id=r1 subject=nightly"},
			{"GET", "/v1/tasks", "hunter2", "path=/v1/tasks status=401 duration_ms=N request_id=r1"},
			{"GET", "/health/live?token=hunter2", "", "path=/health/live status=200 duration_ms=N request_id=r1"},
			{"GET", "/x/http://u:hunter2@h/", key, "path=/x/http://[REDACTED]@h/ status=404 duration_ms=N request_id=r1"},
			{"GET", "/" + strings.Repeat("x", 600), key,
				"path=/" + strings.Repeat("x", 499) + " status=404 duration_ms=N request_id=r1"},
			{"DELETE", "/v1/tasks", key, "path=/v1/tasks status=405 duration_ms=N request_id=r1"},
		} {
			before := len(log.String())
			r := httptest.NewRequest(tt.method, tt.target, nil)
			r.Header.Set("X-Request-Id", "r1")
			r.Header.Set("X-API-Key", tt.key)
			api.ServeHTTP(httptest.NewRecorder(), r)
			got := log.String()[before:]
			if strings.Contains(got, "hunter2") {
				t.Errorf("%s %s: the log has a secret: %s", tt.method, tt.target, got)
			}
			_, record, found := strings.Cut(got, "INFO request method="+tt.method+" ")
			record = regexp.MustCompile(`duration_ms=[0-9.]+`).ReplaceAllString(strings.TrimSpace(record), "duration_ms=N")
			if found != on || on && record != tt.want {
				t.Errorf("%s %s: got %q; want %q: %v", tt.method, tt.target, record, tt.want, on)
			}
		}
	}
}
