package main

// Refusals, which come before the body, on a real connection.

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
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
		io.WriteString(conn, refusedHead(line))
		wantRefusal(t, line, bufio.NewReader(conn))
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
			if a := served(t, h, "TRACE", path, ""); a.status != 405 || a.header["Allow"] == nil || !strings.Contains(string(a.body), "TRACE is not allowed") {
				t.Errorf("TRACE %s: got %d, %v, %s; want 405", path, a.status, a.header, a.body)
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
			served(t, api, tt.method, tt.target, "", "X-Request-Id: r1", "X-API-Key: "+tt.key)
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

func TestSaneTraceparent(t *testing.T) {
	const form = "00-0123456789ABCDEF0123456789abcdef-0123456789abcdef-00"
	for h, want := range map[string]bool{
		"": false, form: true, form[1:]: false, strings.Replace(form, "A", "g", 1): false,
		strings.Replace(form, "-0", "00", 1): false, strings.Replace(form, "A", "-", 1): false,
		form + "-more~!": true, form + " ": false, form + "\x7f": false, form + "\u212a": false,
		strings.Replace(form, "0123456789ABCDEF0123456789abcdef", strings.Repeat("0", 32), 1): false,
		strings.Replace(form, "-0123456789abcdef-", "-0000000000000000-", 1):                  false, "ff" + form[2:]: false,
		form + strings.Repeat("a", 256-len(form)): true, form + strings.Repeat("a", 257-len(form)): false,
	} {
		if got := saneTraceparent(h) != ""; got != want {
			t.Errorf("%q: got %v; want %v", h, got, want)
		}
	}
}

// TestWaitsOfLastingCredentials checks a token that is valid for longer than a time.Duration
// can hold.
func TestWaitsOfLastingCredentials(t *testing.T) {
	s := newTestServer(t, serviceTest{}).svc
	a := newOrchestrationAPI(s, nil)
	for _, expiry := range []instant{0, lastInstant} {
		sc := &securityContext{expiry: expiry}
		r := httptest.NewRequest("GET", "/", nil)
		if got := a.surface.validFor(r.WithContext(withSecurity(r.Context(), sc))); got < 1000*time.Hour {
			t.Errorf("one that expires at %d is valid for %s", expiry, got)
		}
	}
}

// TestWaitsEndWithTheCredential waits for something that never comes, with a token that
// expires.
func TestWaitsEndWithTheCredential(t *testing.T) {
	for _, tt := range []struct {
		name, method, target, body, wants string
		handle                            func(a *orchestrationAPI) handlerFunc
	}{
		{"a task", "GET", "/v1/tasks/x?wait=terminal&timeout=1h", "", `"status":"steps_in_process"`,
			func(a *orchestrationAPI) handlerFunc { return a.getTask }},
		{"a task of the mount", "GET", "/tasks/x?wait=terminal&timeout=1h", "", `"status":"in_progress"`,
			func(a *orchestrationAPI) handlerFunc { return a.mount.getTask }},
		{"a creation", "POST", "/v1/tasks?wait=1h", `{"namespace":"t","name":"manual"}`, `"status":"steps_in_process"`,
			func(a *orchestrationAPI) handlerFunc { return a.createTask }},
		{"a claim", "POST", "/v1/steps/claim", `{"callables":["Nobody"],"wait_seconds":60}`, `[]`,
			func(a *orchestrationAPI) handlerFunc { return a.claimSteps }},
		{"events", "GET", "/v1/events", "", ": the credential has expired",
			func(a *orchestrationAPI) handlerFunc { return a.streamEvents }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				svc := newTestService(t, serviceTest{templates: apiTemplates})
				a, began := newOrchestrationAPI(svc, nil), time.Now()
				sc := &securityContext{method: authByToken, permissions: everyPermission, expiry: realNow().add(7 * time.Second)}
				r := httptest.NewRequest(tt.method, tt.target, strings.NewReader(tt.body))
				r.Header.Set("Content-Type", "application/json")
				id := mustCreate(t, svc, "manual").id.String()
				r.SetPathValue("task_uuid", id)
				r.SetPathValue("id", id)
				w := httptest.NewRecorder()
				rec := a.surface.newResponseWriter(w, r)
				rec.matched = true
				v, err := tt.handle(a)(rec, r.WithContext(withSecurity(r.Context(), sc)))
				if err != nil {
					t.Fatal(err)
				}
				writeReply(rec, v)
				if took := time.Since(began); took != 7*time.Second || !strings.Contains(w.Body.String(), tt.wants) {
					t.Errorf("it took %s: %s", took, w.Body)
				}
				if end := w.Header().Get("X-Stepwell-Wait"); strings.Contains(tt.target, "wait=") && end != "expired" {
					t.Errorf("got X-Stepwell-Wait %q; want expired", end)
				}
			})
		})
	}
}

// badBodies are mistakes that every route answers in the same way. A route whose body is
// optional treats those marked absent as no body.
var badBodies = []struct {
	name, contentType, body string
	status                  int
	code                    string
	absent                  bool
}{
	{"an empty list", "application/json", `[]`, 400, "BAD_REQUEST", false},
	{"a list", "application/json", `[{}]`, 400, "BAD_REQUEST", false},
	{"an empty string", "application/json", `""`, 400, "BAD_REQUEST", false},
	{"a number", "application/json", ` 0 `, 400, "BAD_REQUEST", false},
	{"a boolean", "application/json", `true`, 400, "BAD_REQUEST", false},
	{"null", "application/json", `null`, 400, "BAD_REQUEST", true},
	{"nothing", "application/json", ``, 400, "JSON_ERROR", true},
	{"white space", "application/json", " \n", 400, "JSON_ERROR", true},
	{"a brace", "application/json", `{`, 400, "JSON_ERROR", false},
	{"a bracket", "application/json", `[`, 400, "JSON_ERROR", false},
	{"junk after the object", "application/json", `{} x`, 400, "JSON_ERROR", false},
	{"junk after a list", "application/json", `[] x`, 400, "JSON_ERROR", false},
	{"a second object", "application/json", `{}{}`, 400, "JSON_ERROR", false},
	{"a duplicate member", "application/json", `{"a":1,"a":1}`, 400, "JSON_ERROR", false},
	{"a form", "application/x-www-form-urlencoded", `a=1`, 415, "UNSUPPORTED_MEDIA_TYPE", false},
	{"an object as text", "text/plain", `{}`, 415, "UNSUPPORTED_MEDIA_TYPE", false},
	{"a list without a type", "", `[]`, 415, "UNSUPPORTED_MEDIA_TYPE", false},
}

// optionalBodies are the routes whose body is optional.
var optionalBodies = []string{
	"POST /v1/templates/{namespace}/{name}/{version}/validate", "POST /_stepwell/wait-idle", "POST /_stepwell/sandboxes",
}

// otherBodies are the routes that read no body, and the one that checks its body, a
// document, while reading it.
var otherBodies = []string{
	"POST /_stepwell/reset", "POST /v1/events/deliveries/{id}/resend", "PUT /_stepwell/state",
}

// TestBadBodies sends every mistake to every route that reads a body.
func TestBadBodies(t *testing.T) {
	s := newFixtureServer(t, serviceTest{templates: apiTemplates})
	worker := newWorkerAPI(s.world.service(), nil)
	tables := append(allRoutes(), surfaceRoutes{"orchestration", (&controlAPI{}).routes()})
	ids := strings.NewReplacer("{namespace}", "t", "{name}", "diamond", "{version}", "1.0.0")
	for _, table := range tables {
		for _, row := range table.routes {
			method, path, _ := strings.Cut(row.pattern, " ")
			if method == "GET" || method == "DELETE" || slices.Contains(otherBodies, row.pattern) {
				continue
			}
			path = pathParameter.ReplaceAllString(ids.Replace(path), "01890a5d-ac96-774b-bcce-b302099a8057")
			handler, code := http.Handler(&s.world.gates.orchestration), "error.code"
			switch table.surface {
			case "worker":
				handler, code = worker, "error"
			case "mount":
				path = worker.svc.cfg.Mount.Path + path
			}
			for _, bad := range badBodies {
				want := bad.code
				switch {
				case bad.absent && slices.Contains(optionalBodies, row.pattern):
					continue
				case table.surface == "worker":
					want = map[int]string{400: "invalid_request", 415: "unsupported_media_type"}[bad.status]
				case table.surface == "mount" && bad.status == 400:
					want = "BAD_REQUEST"
				}
				a := served(t, handler, method, path, bad.body, "Content-Type: "+bad.contentType)
				if a.status != bad.status || a.text(code) != want {
					t.Errorf("%s with %s: got %d %s; want %d %s", row.pattern, bad.name, a.status, a.body, bad.status, want)
				}
			}
		}
	}
}

// referenceParameters are the query parameters that clients of the reference service send,
// whatever the route. It does not have GET /v1/steps.
var referenceParameters = []string{
	"page", "per_page", "namespace", "name", "version", "status", "initiator", "source_system", "limit", "offset",
	"resolution_status", "include_cache_stats", "hours", "min_executions", "include_dependencies", "period",
}

// TestQueryParameters sends each documented query parameter misspelled, twice, blank, and as
// another spelling of an integer, and every route parameters that it does not know.
func TestQueryParameters(t *testing.T) {
	slowAndSequential(t)
	s := newFixtureServer(t, serviceTest{templates: apiTemplates})
	worker := newWorkerAPI(s.world.service(), nil)
	ids := strings.NewReplacer("{namespace}", "t", "{name}", "diamond", "{version}", "1.0.0")
	eachOpenAPIDocument(t, func(t *testing.T, surface string, doc map[string]any) {
		contract := newAPIContract(t, surface)
		handler, prefix := onSurface(surface, http.Handler(&s.world.gates.orchestration), http.Handler(worker), worker.svc.cfg.Mount.Path)
		eachOpenAPIOperation(doc, func(route string, operation map[string]any) {
			method, path, _ := strings.Cut(route, " ")
			path = prefix + pathParameter.ReplaceAllString(ids.Replace(path), "01890a5d-ac96-774b-bcce-b302099a8057")
			status := 0  // of the last answer
			needed := "" // parameters that the operation requires besides
			refused := func(query string) string {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if strings.HasSuffix(path, "/events") {
					cancel() // which ends the stream at once
				}
				r := httptest.NewRequestWithContext(ctx, method, path+"?"+needed+query, strings.NewReader(`{}`))
				r.Host = "localhost"
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				a := &answer{t, w.Code, w.Header(), w.Body.Bytes()}
				hints := strings.Join(hintTexts(a.header), "; ")
				if status = a.status; status != 400 || hints != "" {
					return hints
				}
				if err := contractProblem(contract, a, method+" "+path); err != nil {
					t.Errorf("%s?%s: %v", route, query, err)
				}
				if a.get("message") != nil {
					return a.text("message")
				}
				return a.text("error.message")
			}
			strict := strings.HasPrefix(path, controlPath)
			if got := refused("zzz=1&zzz=2"); strict != strings.HasPrefix(got, `unknown query parameter "zzz"`) {
				t.Errorf("%s with an unknown parameter: got %q; want it refused: %v", route, got, strict)
			}
			if strict && !strings.HasPrefix(route, "GET ") {
				return
			}
			for _, name := range referenceParameters {
				if got := refused(name + "=x"); strings.Contains(got, "did you mean") && route != "GET /v1/steps" {
					t.Errorf("%s with %s, which clients of the reference send: got %q", route, name, got)
				}
			}
			parameters, _ := operation["parameters"].([]any)
			for _, p := range parameters {
				p := openAPIFollow(doc, p)
				if p["in"] != "query" {
					continue
				}
				name := p["name"].(string)
				if needed = ""; route == "GET /v1/find" && name != "q" {
					needed = "q=x&"
				}
				refused("")
				absent := status
				if got := refused(name + "=&" + name + "=%20"); status != absent {
					t.Errorf("%s with a blank %s: got %d %q; want %d, as if it were absent", route, name, status, got, absent)
				}
				schema, _ := p["schema"].(map[string]any)
				if schema["type"] == "integer" {
					for _, one := range []string{"1.0", "1e0", "10E-1"} {
						if got := refused(name + "=" + one); got != "" {
							t.Errorf("%s with %s=%s, an integer: got %q", route, name, one, got)
						}
					}
					for _, other := range []string{"1.5", "1e400", "1e", "1.0x", "-1.0"} {
						if got := refused(name + "=" + other); !strings.Contains(got, name) {
							t.Errorf("%s with %s=%s: got %q; want it refused", route, name, other, got)
						}
					}
				}
				got, want := refused(name+"=1&"+name+"=1"), name+" is given twice"
				if list := schema["type"] == "array"; list == (got == want) {
					t.Errorf("%s: got %q; want %q: %v", route, got, want, !list)
				}
				if len(name) == 1 {
					continue
				}
				swapped := name[1:2] + name[:1] + name[2:]
				for _, typo := range []string{strings.ToUpper(name), name + name[len(name)-1:], swapped} {
					if got, want := refused(typo+"=1"), `unknown query parameter "`+typo+`"; did you mean `+name+"?"; got != want {
						t.Errorf("%s: got %q; want %q", route, got, want)
					}
				}
			}
		})
	})
}

// TestRacingActions sends many actions that rely on the same version of a task: one is done.
func TestRacingActions(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: apiTemplates})
	task := createWith(t, s.svc, `{}`)
	path := fmt.Sprintf("/stepwell/tasks/%s/workflow_steps/%s", task.id, task.stepID(0))
	tag := s.do("GET", path, "").want(200).header.Get("Etag")
	counts := map[int]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			req := must(http.NewRequest("PATCH", s.url+path, strings.NewReader(fmt.Sprintf(`{"retry_limit":%d}`, n+3))))(t)
			req.Header = http.Header{"Content-Type": {"application/json"}, "If-Match": {tag}}
			resp := must(http.DefaultClient.Do(req))(t)
			resp.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			counts[resp.StatusCode]++
		})
	}
	all.Wait()
	if counts[200] != 1 || counts[412] != 19 {
		t.Errorf("got %v; want one 200 and nineteen 412", counts)
	}
}

// TestWaitingRequests checks that a request that waits is refused once others take all the
// places, changes nothing then, and that places are two thirds of the connections.
func TestWaitingRequests(t *testing.T) {
	for connections, want := range map[int]int64{1: 1, 2: 2, 3: 2, 3000: 2000} {
		c := defaultConfig()
		c.Web.MaxConnections = connections
		if got := newQuotas(c).waiting.most; got != want {
			t.Errorf("%d connections: got %d waiting requests; want %d", connections, got, want)
		}
	}
	s := newTestServer(t, serviceTest{templates: apiTemplates})
	s.svc.quotas.waiting.most = 0
	a := s.do("POST", "/v1/tasks?wait=1s", `{"name":"diamond","namespace":"t"}`).want(503)
	if a.text("error.code") != "BACKPRESSURE" || a.text("error.retry_after_seconds") != "1" || a.header.Get("Retry-After") != "1" ||
		a.text("error.message") != "0 requests wait already, two thirds of web.max_connections" {
		t.Errorf("got Retry-After %q and %s", a.header.Get("Retry-After"), a.body)
	}
	if got := s.do("GET", "/v1/tasks", "").want(200).text("pagination.total_count"); got != "0" {
		t.Errorf("got %s tasks; want none", got)
	}
	id := s.create(`{"name":"manual","namespace":"t"}`)
	for _, r := range [][3]string{
		{"GET", "/v1/tasks/" + id + "?wait=terminal", ""},
		{"POST", "/v1/steps/claim", `{"callables":["*"],"wait_seconds":1}`},
	} {
		if a := s.do(r[0], r[1], r[2]).want(503); a.text("error.code") != "BACKPRESSURE" {
			t.Errorf("%s: got %s; want BACKPRESSURE", r[1], a.body)
		}
	}
	s.do("POST", "/v1/steps/claim", `{"callables":["none"]}`).want(200)
	if a := s.do("GET", "/stepwell/tasks/"+id+"?wait=terminal", "").want(503); a.text("error.code") != "SERVICE_UNAVAILABLE" {
		t.Errorf("got %s; want SERVICE_UNAVAILABLE", a.body)
	}
}

// taskBody begins a request with a body of a length.
func taskBody(length int, first string) string {
	return fmt.Sprintf("POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", length, first)
}

// TestRequestMemory takes nearly all memory for requests: a long body and a long answer are refused, short ones are not.
// Afterwards nothing is held.
func TestRequestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipedServer(t, serviceTest{templates: apiTemplates})
		long := fmt.Sprintf(`{"namespace":"t","name":"manual","context":{"a":%q}}`, strings.Repeat("a", 1<<19))
		p.answerOn(p.dial(taskBody(len(long), long))).want(201)
		memory := &p.svc.quotas.memory
		memory.take(memory.most)
		const short = `{"namespace":"t","name":"manual"}`
		p.answerOn(p.dial(taskBody(len(short), short))).want(201)
		for _, a := range []*answer{p.answerOn(p.dial(taskBody(len(long), long[:2<<10]))), p.ask("/v1/tasks"), p.ask("/metrics")} {
			if a.want(503); a.text("error.code") != "BACKPRESSURE" || a.header.Get("Retry-After") != "1" {
				t.Errorf("got %v and %s; want a refusal for a second", a.header, a.body)
			}
		}
		memory.give(memory.most)
		stalled := p.dial(taskBody(len(long), long[:100<<10]))
		if synctest.Wait(); memory.used.Load() < 100<<10 || memory.used.Load() > 120<<10 {
			t.Errorf("got %d bytes held; want those that have come", memory.used.Load())
		}
		stalled.Close()
		p.ask("/v1/tasks").want(200)
		if synctest.Wait(); memory.used.Load() != 0 || memory.refused.Load() != 3 {
			t.Errorf("got %d bytes held and %d refusals; want none and 3", memory.used.Load(), memory.refused.Load())
		}
	})
}

// TestRequestsAtWork refuses requests beyond those at work, except on public routes. Those that wait, and event streams,
// do not count.
func TestRequestsAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipedServer(t, serviceTest{templates: apiTemplates})
		q := &p.svc.quotas.requests
		q.most = 1
		id := mustCreate(t, p.svc, "manual").id.String()
		get := func(path string) { p.dial(fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)) }
		get("/v1/tasks/" + id + "?wait=terminal&timeout=1h")
		synctest.Wait()
		p.get("/v1/events")
		p.ask("/v1/tasks/" + id).want(200)
		p.dial(taskBody(100, "{"))
		synctest.Wait()
		a := p.ask("/v1/tasks").want(503)
		if a.text("error.code") != "BACKPRESSURE" || a.header.Get("Retry-After") != "1" || a.header.Get("Connection") != "" || q.refused.Load() != 1 {
			t.Errorf("got %v and %s; want a refusal for a second, on a connection that stays", a.header, a.body)
		}
		p.ask("/health/live").want(200)
	})
}

// TestAnnouncedBody announces a large body and sends little of it: it takes no memory for the
// missing part.
func TestAnnouncedBody(t *testing.T) {
	for _, sent := range []int{0, 1, 100, firstChunk, 100 << 10} {
		r := httptest.NewRequest("POST", "/v1/tasks", strings.NewReader(strings.Repeat("a", sent)))
		r.ContentLength = 4 << 20
		r.Body = io.NopCloser(io.MultiReader(r.Body, iotest.ErrReader(io.ErrUnexpectedEOF)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readBody(r)
		runtime.ReadMemStats(&after)
		if kindOf(err) != badRequest {
			t.Errorf("%d bytes: got %v; want a refusal", sent, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > uint64(2*sent+2*chunkSize) {
			t.Errorf("%d bytes: got %d bytes allocated; want no more than came", sent, got)
		}
	}
}
