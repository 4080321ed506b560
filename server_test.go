package main

// Refusals, which come before the body, on a real connection.

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
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

// No secret of the configuration and no credential in a URL appears in any output
// of the service.

// plantedSecret is the secret that a test puts into a key.
func plantedSecret(key string) string { return "s3cr3t-of-" + strings.ReplaceAll(key, ".", "-") }

// plantSecrets puts a secret into every configuration key that may have one, and
// returns the values by key as environment variables would have them. Keys that
// refuse such a value are left out.
func plantSecrets(t *testing.T, c *Config) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for i := range configKeys {
		k := &configKeys[i]
		if k.secret == notSecret {
			continue
		}
		for _, value := range secretCandidates(k) {
			if text, ok := secretText(k.def, value); !ok {
				t.Errorf("%s: no test knows how to put a secret into a %T", k.path, k.def)
			} else if planted, faults := k.convertText(text); faults == nil {
				k.set(c, planted)
				texts[k.path] = text
				break
			}
		}
	}
	if len(texts) < 5 {
		t.Fatalf("got secrets in %v; want more", texts)
	}
	return texts
}

// secretCandidates are values for a key, the one with the most secrets first.
func secretCandidates(k *configKey) []string {
	s := plantedSecret(k.path)
	if k.secret == maskURLs {
		return []string{"http://user:" + s + "@127.0.0.1:1/p?key=" + s + "#" + s, "http://user:" + s + "@127.0.0.1:1"}
	}
	return []string{s}
}

// secretText formats a value, or a table with that one entry, like a variable.
func secretText(def any, value string) (string, bool) {
	switch def.(type) {
	case string:
		return value, true
	case map[string]string:
		text, err := json.Marshal(map[string]string{"X-Planted": value})
		return string(text), err == nil
	case headerTables:
		text, err := json.Marshal(map[string]map[string]string{"https://planted.example": {"X-Planted": value}})
		return string(text), err == nil
	case []apiKeyConfig:
		text, err := json.Marshal([]map[string]any{{"key": value, "permissions": []string{"tasks:read"}}})
		return string(text), err == nil
	case []subscriberConfig:
		text, err := json.Marshal([]map[string]any{{
			"name": "planted", "url": "http://user:" + value + "@127.0.0.1:1/?key=" + value, "events": []string{"*"},
			"secret": "whsec_" + base64.StdEncoding.EncodeToString([]byte(value)), "max_attempts": 1,
		}})
		return string(text), err == nil
	}
	return "", false
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

const secretTemplate = `{
	"namespace": "t", "name": "leaky", "version": "1.0.0", "identity_strategy": "always_unique",
	"description": "see https://user:s3cr3t-of-text@example.com/",
	"steps": [
		{"name": "mapped", "handler": {"callable": "X-Planted"}, "retry": {"max_attempts": 1},
			"publishes_events": [{"name": "leaky.ended", "description": "", "schema": {}, "condition": "always"}]},
		{"name": "default", "handler": {"callable": "Nobody"}, "retry": {"max_attempts": 1}},
		{"name": "own", "handler": {"callable": "http://user:s3cr3t-of-url@127.0.0.1:1/?token=s3cr3t-of-query",
			"initialization": {"upload": "https://h/u?sig=s3cr3t-of-signature"}}, "retry": {"max_attempts": 1}},
		{"name": "program", "handler": {"callable": "exec:s3cr3t"}, "dependencies": ["own"]}
	]
}`

func TestSecretsStayInside(t *testing.T) {
	slow(t)
	t.Parallel()
	var log lockedText
	var texts map[string]string
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "leaky.json"), []byte(secretTemplate))
	s := newTestServer(t, serviceTest{log: &log, templates: dir, config: func(c *Config) {
		texts = plantSecrets(t, c)
		c.Orchestration.Web.ConfigEndpointEnabled = true
	}})
	w := s.with(newWorkerAPI(s.svc, nil))
	id := s.create(`{"namespace":"t","name":"leaky"}`)
	task := s.await(id, "blocked_by_failures")
	eventually(t, "a delivery that fails", func() bool { return strings.Contains(log.String(), "a subscriber did not take") })
	values := map[string]string{
		"task_uuid": id, "step_uuid": task.text("steps.0.workflow_step_uuid"),
		"namespace": "t", "name": "leaky", "version": "1.0.0", "file": "x", "build": "x", "page": "tasks",
	}
	leaks := func(what, text string) {
		t.Helper()
		isBackup := strings.Contains(what, "/v1/backup") // for those with all permissions
		text = strings.ReplaceAll(text, base64.StdEncoding.EncodeToString([]byte("s3cr3t-of")), "s3cr3t-of")
		if at := strings.Index(text, "s3cr3t-of"); at >= 0 && !isBackup {
			t.Errorf("%s has a secret in it: …%s…", what, text[max(at-100, 0):min(at+60, len(text))])
		}
	}
	s.svc.store.events.close() // otherwise its stream does not end
	leaks("the events", allEvents(t, s.svc, eventFilter{}, 0))
	everyGET(t, s, newOrchestrationAPI(s.svc, nil).routes(), values, leaks)
	everyGET(t, w, newWorkerAPI(s.svc, nil).routes(), values, leaks)
	values["id"], values["task_id"], values["step_id"] = id, id, values["step_uuid"]
	mount := newOrchestrationAPI(s.svc, nil).mount
	everyGET(t, s, s.svc.cfg.Mount.mounted(mount.routes()), values, leaks)
	for _, body := range []string{"", secretTemplate, strings.Replace(secretTemplate, `"own"`, `"default"`, 1)} {
		leaks("validate", string(w.do("POST", "/v1/templates/t/leaky/1.0.0/validate", body).want(200).body))
	}
	leaks("the task", string(task.body))
	leaks("the log", log.String())
	if !strings.Contains(log.String(), "leaky") {
		t.Errorf("got the log %q; want one that warns of the template", &log)
	}
	secretsInConfigShow(t, texts, leaks)
}

var pathParameter = regexp.MustCompile(`\{(\w+)(\.\.\.)?\}`)

// everyGET requests every GET route of a surface, with known and with unknown ids,
// as a program and as a browser.
func everyGET(t *testing.T, s *testServer, rows []route, values map[string]string, leaks func(what, text string)) {
	t.Helper()
	asked := 0
	for _, pattern := range patternsOf(rows) {
		path, ok := strings.CutPrefix(pattern, "GET ")
		if !ok {
			continue
		}
		path = strings.Replace(path, "{$}", "", 1)
		real := pathParameter.ReplaceAllStringFunc(path, func(p string) string {
			value := values[pathParameter.FindStringSubmatch(p)[1]]
			if value == "" {
				t.Errorf("%s: no value for %s is known to this test", pattern, p)
			}
			return value
		})
		unknown := pathParameter.ReplaceAllString(path, "00000000-0000-7000-8000-000000000000")
		for _, target := range []string{real, real + "?include_cache_stats=true&namespace=t", unknown} {
			a := s.do("GET", target, "")
			if target == real && a.status != http.StatusOK && !strings.Contains(pattern, "{file") {
				t.Errorf("GET %s: got %d; want 200: %s", target, a.status, a.body)
			}
			leaks("GET "+target, fmt.Sprint(a.header)+string(a.body))
			asked++
		}
	}
	if asked < 30 {
		t.Errorf("got %d requests; want more", asked)
	}
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
	all := string(claimed.body) + string(explained.body) + string(s.do("GET", "/v1/steps?state=in_progress", "").body) + log.String()
	if strings.Contains(all, "s3cr3t") || !strings.Contains(log.String(), shown) {
		t.Errorf("got %s", all)
	}
}

// secretsInConfigShow runs "config show" with the same secrets from each source of
// the configuration.
func secretsInConfigShow(t *testing.T, texts map[string]string, leaks func(what, text string)) {
	t.Helper()
	env := map[string]string{}
	for path, text := range texts {
		env[configKeyAt(path).envName()] = text
	}
	for _, output := range []string{"table", "json"} {
		out, err := runConfig(env, "show", "-o", output)
		if err != nil || !strings.Contains(out, redactedText) {
			t.Errorf("config show -o %s: got %v, %s; want secrets redacted", output, err, out)
		}
		leaks("config show -o "+output, out)
	}
	for path := range texts { // problems are reported without the value
		broken := map[string]string{configKeyAt(path).envName(): "\x01{" + plantedSecret(path) + "@\x00"}
		out, err := runConfig(broken, "show")
		leaks("config show with a broken "+path, fmt.Sprint(out, err))
	}
}

// TestInternalErrorsStayInside requests a route that fails and one that panics: the
// caller learns only the request id, which is also in the log.
func TestInternalErrorsStayInside(t *testing.T) {
	var log strings.Builder
	svc := newTestService(t, serviceTest{log: &log})
	a := newOrchestrationAPI(svc, nil)
	a.handle([]route{
		{"GET /fails", public, func(http.ResponseWriter, *http.Request) (any, error) { return nil, errors.New("the secret cause") }},
		{"GET /panics", public, func(http.ResponseWriter, *http.Request) (any, error) { panic("the secret cause") }},
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

// TestSlowClients checks the limits on a client that never ends its headers and on
// one that never sends its body.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	svc := newTestService(t, serviceTest{})
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	h := newHTTPServer(l, newOrchestrationAPI(svc, nil), manyConnections(), svc.log)
	if h.server.ReadHeaderTimeout != headerTimeout || h.server.ReadTimeout != requestTimeout {
		t.Errorf("got timeouts %s and %s", h.server.ReadHeaderTimeout, h.server.ReadTimeout)
	}
	h.server.ReadHeaderTimeout, h.server.ReadTimeout = 50*time.Millisecond, 50*time.Millisecond
	go h.serve()
	defer h.server.Close()
	for _, sent := range []string{
		"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ",
		"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
	} {
		conn := must(net.Dial("tcp", l.Addr().String()))(t)
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

// TestConnectionLimit opens more connections than are allowed: those that wait for their
// clients make room, the longest waiting first; if all are busy, only public routes answer.
func TestConnectionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipedServer(t, serviceTest{config: func(c *Config) { c.Web.MaxConnections = 3 }})
		idle := p.dial("")
		header := p.dial("GET /v1/tasks HTTP/1.1\r\n")
		body := p.dial(taskBody(100, "{"))
		for i, waiting := range []net.Conn{idle, header, body} {
			synctest.Wait()
			p.get("/v1/events")
			waiting.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := waiting.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("connection %d: got %v; want it closed", i, err)
			}
		}
		a := p.ask("/v1/tasks").want(503)
		if a.text("error.code") != "OVERLOADED" || !strings.Contains(a.text("error.message"), "web.max_connections") {
			t.Errorf("got %s; want a refusal that names the limit", a.body)
		}
		p.ask("/health/live").want(200)
		if got := p.svc.quotas.connections.refused.Load(); got != 1 {
			t.Errorf("got %d refusals counted; want 1", got)
		}
	})
}

// TestHeaderMemory fills the memory for large headers with requests that stall: another request
// takes it from them. Small headers need none.
func TestHeaderMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipedServer(t, serviceTest{})
		memory := &p.svc.quotas.headers
		memory.most = 50 << 10
		large := "GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: " + strings.Repeat("a", 40<<10)
		small, stalled := p.dial(large[:headerFirst-100]), p.dial(large)
		synctest.Wait()
		if got := memory.used.Load(); got < 36<<10 || got > 40<<10 {
			t.Errorf("got %d bytes taken; want those of one header beyond the first %d", got, headerFirst)
		}
		p.answerOn(p.dial(large + "\r\n\r\n")).want(200)
		stalled.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := stalled.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the stalled header: got %v; want its connection closed", err)
		}
		io.WriteString(small, "\r\n\r\n")
		p.answerOn(small).want(200)
		synctest.Wait()
		if got := memory.used.Load(); got != 0 {
			t.Errorf("got %d bytes taken after the requests; want none", got)
		}
		memory.most = 30 << 10
		alone := p.dial(large)
		alone.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := alone.Read(make([]byte, 1)); err != io.EOF || memory.refused.Load() == 0 {
			t.Errorf("a header larger than the memory: got %v; want its connection closed, and that counted", err)
		}
	})
}

// filelessListener has no file descriptor for a connection the first few times.
type filelessListener struct {
	net.Listener
	lacks []error
}

func (l *filelessListener) Accept() (net.Conn, error) {
	if len(l.lacks) > 0 {
		err := &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", l.lacks[0])}
		l.lacks = l.lacks[1:]
		return nil, err
	}
	return l.Listener.Accept()
}

// TestOutOfFiles: one warning, whatever the number of failures; connections that wait for their
// clients are closed, and further ones are accepted.
func TestOutOfFiles(t *testing.T) {
	var log bytes.Buffer
	l := &filelessListener{Listener: must(net.Listen("tcp", "127.0.0.1:0"))(t)}
	all := newConnections(newQuotas(defaultConfig()), slog.New(slog.NewTextHandler(&log, nil)))
	h := newHTTPServer(l, http.NotFoundHandler(), all, slog.New(slog.DiscardHandler))
	idle := must(net.Dial("tcp", l.Addr().String()))(t)
	defer idle.Close()
	bounded := h.listener.(*boundedListener)
	must(bounded.Accept())(t)
	for _, lack := range []error{syscall.EMFILE, syscall.ENFILE, syscall.EMFILE} {
		l.lacks = append(l.lacks, lack)
		if _, err := bounded.Accept(); !errors.Is(err, lack) {
			t.Errorf("got %v; want %v, after which net/http tries again", err, lack)
		}
	}
	idle.SetReadDeadline(time.Now().Add(patience))
	if _, err := idle.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the idle connection: got %v; want it closed", err)
	}
	l.lacks = []error{syscall.EMFILE, syscall.EMFILE}
	go h.serve()
	defer h.server.Close()
	resp := must(http.Get(h.url()))(t)
	resp.Body.Close()
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "out of file descriptors") {
		t.Errorf("got %d warnings; want one of the lack of files: %s", n, log.String())
	}
}

// taskBody begins a request with a body of a length.
func taskBody(length int, first string) string {
	return fmt.Sprintf("POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", length, first)
}

// ask sends a GET on a new connection.
func (p *pipedServer) ask(path string) *answer {
	p.t.Helper()
	return p.answerOn(p.dial(fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)))
}

func (p *pipedServer) answerOn(conn net.Conn) *answer {
	p.t.Helper()
	return readAnswer(p.t, must(http.ReadResponse(bufio.NewReader(conn), nil))(p.t))
}

// TestBodyMemory fills the memory for bodies with requests that stall: they keep it until
// others need it, and lose it then if they are old.
func TestBodyMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipedServer(t, serviceTest{})
		memory := &p.svc.quotas.bodies
		memory.most = 4 << 20
		whole := fmt.Sprintf(`{"namespace":"demo","name":"diamond","context":{"a":%q}}`, strings.Repeat("a", 1<<19))
		begun := whole[:bodyFirst]
		var stalled []net.Conn
		for range 4 {
			stalled = append(stalled, p.dial(taskBody(1<<20, begun)))
			synctest.Wait() // so that they wait one after the other
		}
		small := p.dial(taskBody(2<<20, begun[:bodyFirst-1])) // which needs none
		synctest.Wait()
		if got := memory.used.Load(); got != 4<<20 {
			t.Fatalf("got %d bytes taken; want all", got)
		}
		began := time.Now()
		p.answerOn(p.dial(taskBody(len(whole), whole))).want(201)
		if took := time.Since(began); took < bodyPatience/2 || took > 2*bodyPatience {
			t.Errorf("the whole body waited for %s; want about %s", took, bodyPatience)
		}
		for i, conn := range stalled {
			conn.SetReadDeadline(time.Now().Add(time.Second))
			_, err := conn.Read(make([]byte, 1))
			if closed := err == io.EOF; closed != (i < 1) {
				t.Errorf("stalled body %d: got %v; want the first alone closed", i, err)
			}
		}
		io.WriteString(small, strings.Repeat(" ", 2<<20-bodyFirst+1))
		p.answerOn(small).want(400)
		synctest.Wait()
		if got := memory.used.Load(); got != 2<<20 {
			t.Errorf("got %d bytes taken; want those of the stalled bodies that are left", got)
		}
	})
}

// TestBodyMemoryRefusal checks that a body waits for a time, and is refused if no request gives
// memory back.
func TestBodyMemoryRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipedServer(t, serviceTest{})
		p.svc.quotas.bodies.take(p.svc.quotas.bodies.most)
		began := time.Now()
		a := p.answerOn(p.dial(taskBody(bodyFirst+1, strings.Repeat(" ", bodyFirst)))).want(503)
		if took := time.Since(began); took < memoryPatience || took > 2*memoryPatience {
			t.Errorf("the refusal took %s; want %s", took, memoryPatience)
		}
		if a.text("error.code") != "BACKPRESSURE" || !strings.Contains(a.text("error.message"), "web.max_received_bytes") {
			t.Errorf("got %s; want a refusal that names the limit", a.body)
		}
	})
}

// TestAnnouncedBody announces a large body and sends little of it: it takes no memory for the
// missing part.
func TestAnnouncedBody(t *testing.T) {
	for _, sent := range []int{0, 1, 100, bodyFirst, 100 << 10} {
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
		if got := after.TotalAlloc - before.TotalAlloc; got > uint64(2*sent+2*bodyChunk) {
			t.Errorf("%d bytes: got %d bytes allocated; want no more than came", sent, got)
		}
	}
}

// TestBodySizes reads bodies around the sizes at which their memory grows.
func TestBodySizes(t *testing.T) {
	for _, size := range []int{
		2, bytes.MinRead - 1, bytes.MinRead, bytes.MinRead + 1, bodyFirst - 1, bodyFirst, bodyFirst + 1,
		bodyFirst + bodyChunk - 1, bodyFirst + bodyChunk, bodyFirst + bodyChunk + 1, bodyFirst + 3*bodyChunk,
	} {
		text := `{"a":"` + strings.Repeat("x", max(size-8, 0)) + `"}`
		for _, announced := range []int64{int64(len(text)), -1} {
			for name, in := range map[string]io.Reader{
				"at once": strings.NewReader(text), "in halves": iotest.HalfReader(strings.NewReader(text)),
				"with its end": iotest.DataErrReader(strings.NewReader(text)),
			} {
				r := httptest.NewRequest("POST", "/", in)
				r.ContentLength = announced
				r.Header.Set("Content-Type", "application/json")
				if got, err := readBody(r); string(got) != text || err != nil {
					t.Errorf("%d bytes %s, announced %d: got %d, %v", len(text), name, announced, len(got), err)
				}
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
