package e2e

// The mount-point API behind a real nginx, with the configuration from docs/mount.md. Skipped if
// nginx is not installed.

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// guideNginx returns the configuration in docs/mount.md.
func guideNginx(t *testing.T) string {
	t.Helper()
	_, rest, ok := strings.Cut(string(readFile(t, repository("docs/mount.md"))), "```nginx\n")
	text, _, closed := strings.Cut(rest, "```")
	if !ok || !closed {
		t.Fatal("got no nginx configuration in docs/mount.md; want one")
	}
	return text
}

// startNginx runs nginx in the foreground, with the guide's locations in front of a server,
// and returns its address.
func startNginx(t *testing.T, upstream string) string {
	t.Helper()
	path := wire.Need(t, "nginx")
	address, dir := freePort(t), t.TempDir()
	locations := strings.ReplaceAll(guideNginx(t), "http://127.0.0.1:8080", upstream)
	writeFile(t, filepath.Join(dir, "nginx.conf"), fmt.Appendf(nil, `
daemon off; master_process off; pid %[1]s/pid; error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server {
		listen %[2]s;
		%[3]s
	}
}
`, dir, address, locations))
	startProcess(t, nil, path, "-p", dir, "-e", "stderr", "-c", filepath.Join(dir, "nginx.conf"))
	awaitPort(t, address)
	return "http://" + address
}

// TestBehindNginx sends links, prefixes, refusals and large bodies through nginx.
func TestBehindNginx(t *testing.T) {
	t.Parallel()
	slow(t)
	asked := make(chan *http.Request, 16)
	who := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		fmt.Fprint(w, `{"subject": "ann", "permissions": ["tasks:*", "steps:*", "system:*"]}`)
	}))
	t.Cleanup(who.Close)
	p := serve(t, "--memory", "--quiet", "--config", configFile(t, fmt.Sprintf(
		"[web]\ntrusted_proxies = [\"127.0.0.1\"]\n[mount.auth]\nenabled = true\nauthenticator_url = %q\n", who.URL)))
	edge := &api{t, startNginx(t, p.ready.OrchestrationURL)}

	a := edge.do("POST", "/stepwell/tasks", `{"name":"diamond","namespace":"demo"}`).want(201)
	location := a.header.Get("Location")
	if location != "/stepwell/tasks/"+a.text("id") {
		t.Errorf("got Location %s; want it below /stepwell", location)
	}
	if len(asked) != 1 {
		t.Fatalf("got %d questions to the authenticator; want 1", len(asked))
	}
	question := <-asked
	for name, want := range map[string]string{
		"X-Forwarded-Uri": "/stepwell/tasks", "X-Forwarded-Proto": "http", "X-Forwarded-For": "127.0.0.1, 127.0.0.1",
		"X-Forwarded-Host": strings.TrimPrefix(edge.url, "http://"),
	} {
		if got := question.Header.Get(name); got != want {
			t.Errorf("the authenticator is told %s %q; want %q", name, got, want)
		}
	}
	if got := edge.do("GET", location, "").want(200).text("initiator"); got != "ann" {
		t.Errorf("got initiator %s; want ann", got)
	}
	if got := edge.do("GET", "/stepwell/api-docs.json", "").want(200).text("servers.0.url"); got != "/stepwell" {
		t.Errorf("got server %s; want /stepwell", got)
	}
	edge.do("GET", "/stepwell/nowhere", "").want(404)
	if got := edge.do("PUT", "/stepwell/tasks", "").want(405).text("error.type"); got != "MethodNotAllowed" {
		t.Errorf("got %s; want MethodNotAllowed, and not a page of nginx", got)
	}
	large := `{"name":"diamond","namespace":"demo","context":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`
	if got := edge.do("POST", "/stepwell/tasks", large).want(413).text("error.type"); got != "PayloadTooLarge" {
		t.Errorf("got %s; want PayloadTooLarge, and not a page of nginx", got)
	}
	if a := edge.do("GET", "/v1/tasks", ""); a.status != 404 || strings.Contains(string(a.body), "request_id") {
		t.Errorf("got %d %s; want nothing of the role to be found", a.status, a.body)
	}
}

// TestWaitBehindNginx sends waiting requests through nginx: one that ends in the awaited state,
// one whose limit passes, and one whose caller goes away.
func TestWaitBehindNginx(t *testing.T) {
	t.Parallel()
	slow(t)
	s := serve(t, "--memory", "--quiet").api()
	edge := startNginx(t, s.url)
	id := s.create(`{"name":"approval","namespace":"demo"}`)
	path := edge + "/stepwell/tasks/" + id + "?wait=terminal&timeout="
	get := func(ctx context.Context, path string) chan *http.Response {
		got := make(chan *http.Response, 1)
		go func() {
			r, err := http.NewRequestWithContext(ctx, "GET", path, nil)
			if err != nil {
				t.Error(err)
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil && ctx.Err() == nil {
				t.Errorf("GET %s: %v", path, err)
			}
			got <- resp
		}()
		return got
	}

	if a := readAnswer(t, <-get(t.Context(), path+"250ms")).want(200); a.header.Get("X-Stepwell-Wait") != "timeout" {
		t.Errorf("got %v; want X-Stepwell-Wait: timeout", a.header)
	}
	gone, leave := context.WithCancel(t.Context())
	left := get(gone, path+"50s")
	awaitWaiters(t, s, 1)
	leave()
	if resp := <-left; resp != nil {
		t.Errorf("got %s; want no answer to who is gone", resp.Status)
	}
	awaitWaiters(t, s, 0)

	waits := get(t.Context(), path+"50s")
	awaitWaiters(t, s, 1)
	s.do("DELETE", "/stepwell/tasks/"+id, "").want(200)
	a := readAnswer(t, <-waits).want(200)
	if a.text("status") != "cancelled" || a.header.Get("X-Stepwell-Wait") != "" {
		t.Errorf("got %s, %v; want the task, cancelled, and no reason why not", a.body, a.header)
	}
}

// awaitWaiters waits until n requests wait for a task.
func awaitWaiters(t *testing.T, s *api, n int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d requests wait", n), func() bool { return s.metric("stepwell_waiting_requests") == n })
}

// TestNginxBuffersNothing reads the first line of an answer through nginx before the second
// line is written.
func TestNginxBuffersNothing(t *testing.T) {
	t.Parallel()
	slow(t)
	first := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: 1\n\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-first
		fmt.Fprint(w, "data: 2\n\n")
	}))
	t.Cleanup(upstream.Close)
	resp := wire.Must(http.Get(startNginx(t, upstream.URL) + "/stepwell/stream"))(t)
	defer resp.Body.Close()
	read := func() (string, error) {
		b := make([]byte, 64)
		n, err := resp.Body.Read(b)
		return string(b[:n]), err
	}
	got := make(chan string, 1)
	go func() {
		text, err := read()
		got <- fmt.Sprint(text, err)
	}()
	if text, ok := wire.ReceiveWithin(got, 10*time.Second); text != "data: 1\n\n<nil>" || !ok {
		t.Errorf("got %q; want the first line at once", text)
	}
	close(first)
	if text, _ := read(); text != "data: 2\n\n" { // the end may come with it
		t.Errorf("got %q; want the second line", text)
	}
}
