package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

// whoServer is a forward authenticator with answers set by the test.
type whoServer struct {
	*httptest.Server

	mu     sync.Mutex
	status int
	body   string
	asked  []*http.Request
}

const whoAnswer = `{"subject":"alice","permissions":["tasks:*"]}`

func newWhoServer(t *testing.T) *whoServer {
	t.Helper()
	s := &whoServer{status: 200, body: whoAnswer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked = append(s.asked, r)
		if s.status == http.StatusFound {
			w.Header().Set("Location", "/elsewhere")
		}
		w.WriteHeader(s.status)
		fmt.Fprint(w, s.body)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *whoServer) say(status int, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.body = status, body
}

// questions returns the requests since the last call.
func (s *whoServer) questions() []*http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked = nil
	return asked
}

func newForwardBench(t *testing.T, s *whoServer, set func(c *authConfig)) *authBench {
	t.Helper()
	return newAuthBench(t, func(c *authConfig) {
		c.AuthenticatorURL, c.JWTPublicKey = s.URL+"/who", ""
		set(c)
	})
}

func TestForwardedAnswers(t *testing.T) {
	s := newWhoServer(t)
	b := newForwardBench(t, s, unchanged)
	many := `"` + strings.Repeat(`tasks:read","`, 256) + `tasks:read"`
	for _, tt := range []struct {
		status int
		body   string
		want   string
	}{
		{200, whoAnswer, ""},
		{200, `{"subject":"alice","permissions":[]}`, ""},
		{200, `{"subject":"alice"}`, ""},
		{200, `{"subject":"alice","permissions":["tasks:*"],"more":{"a":1}}`, ""},
		{200, `{"subject":"alice","permissions":["root"]}`, "invalid"},
		{200, `{"subject":"alice","permissions":["*"]}`, "invalid"},
		{200, `{"permissions":["tasks:*"]}`, "unavailable"},
		{200, `{"subject":"","permissions":["tasks:*"]}`, "unavailable"},
		{200, `{"subject":7,"permissions":["tasks:*"]}`, "unavailable"},
		{200, `{"subject":null}`, "unavailable"},
		{200, `{"subject":"alice","permissions":"tasks:*"}`, "unavailable"},
		{200, `{"subject":"alice","permissions":null}`, "unavailable"},
		{200, `{"subject":"alice","permissions":[` + many + `]}`, "unavailable"},
		{200, `{"subject":"alice","subject":"bob"}`, "unavailable"},
		{200, `["alice"]`, "unavailable"},
		{200, ``, "unavailable"},
		{200, `<html>`, "unavailable"},
		{200, whoAnswer + strings.Repeat(" ", maxForwardReply), "unavailable"},
		{201, whoAnswer, "unavailable"},
		{204, ``, "unavailable"},
		{302, whoAnswer, "unavailable"},
		{401, whoAnswer, "invalid"},
		{403, whoAnswer, "forbidden"},
		{404, whoAnswer, "unavailable"},
		{500, whoAnswer, "unavailable"},
	} {
		s.say(tt.status, tt.body)
		sc, f := b.ask("Cookie: session=hunter2")
		if reasonOf(f) != tt.want {
			t.Errorf("%d %.60s: got %q (%+v); want %q", tt.status, tt.body, reasonOf(f), f, tt.want)
		}
		if f == nil && (sc.subject != "alice" || sc.method != authByForward) {
			t.Errorf("%d %.60s: got %+v; want alice", tt.status, tt.body, sc)
		}
		if n := len(s.questions()); n != 1 {
			t.Errorf("%d %.60s: got %d questions; want 1", tt.status, tt.body, n)
		}
	}
	s.say(401, "")
	if _, f := b.ask(); reasonOf(f) != "missing" || f.kind != unauthenticated {
		t.Errorf("401 without credentials: got %+v; want missing", f)
	}
	s.say(403, "")
	if _, f := b.ask("Cookie: a=b"); f.kind != forbidden {
		t.Errorf("403: got %+v; want our own 403", f)
	}
	if strings.Contains(b.log.String(), "hunter2") {
		t.Error("the cookie is in the log")
	}
}

func TestForwardedQuestion(t *testing.T) {
	s := newWhoServer(t)
	b := newForwardBench(t, s, unchanged)
	web := webConfig{TrustedProxies: []string{"10.0.0.0/8", "::ffff:192.168.7.7", "::ffff:172.16.0.0/108", "fd00::/8"}}
	b.forward.trusted = web.trustedProxies()
	lines := []string{
		"Authorization: Basic eDp5", "Cookie: a=1", "Cookie: b=2", "X-API-Key: k", "X-Other: no", "Accept: text/html",
		"X-Forwarded-For: 1.1.1.1", "X-Forwarded-Proto: https", "X-Forwarded-Host: public.example",
		"X-Forwarded-Uri: /spoofed", "X-Forwarded-Method: SPOOFED",
	}
	for _, tt := range []struct {
		peer                string
		tls                 bool
		proto, host, client string
	}{
		{"203.0.113.5:1234", false, "http", "example.com", "203.0.113.5"},
		{"203.0.113.5:1234", true, "https", "example.com", "203.0.113.5"},
		{"192.168.7.8:1", false, "http", "example.com", "192.168.7.8"},
		{"10.1.2.3:1234", false, "https", "public.example", "1.1.1.1, 10.1.2.3"},
		{"[::ffff:10.1.2.3]:1234", false, "https", "public.example", "1.1.1.1, 10.1.2.3"},
		{"172.31.255.255:1", false, "https", "public.example", "1.1.1.1, 172.31.255.255"},
		{"172.32.0.0:1", false, "http", "example.com", "172.32.0.0"},
		{"192.168.7.7:1", false, "https", "public.example", "1.1.1.1, 192.168.7.7"},
		{"[fd00::1%eth0]:1", false, "https", "public.example", "1.1.1.1, fd00::1%eth0"},
		{"[2001:db8::1]:1", false, "http", "example.com", "2001:db8::1"},
		{"@", false, "http", "example.com", "unknown"}, // a Unix socket
	} {
		r := requestWith(lines...)
		r.Method, r.RemoteAddr = "DELETE", tt.peer
		if tt.tls {
			r.TLS = &tls.ConnectionState{}
		}
		if _, f := b.request(r); f != nil {
			t.Fatalf("%s: %v", tt.peer, f)
		}
		q := s.questions()[0]
		got := fmt.Sprint(q.Method, " ", q.URL.Path, " ", q.Header["Authorization"], q.Header["Cookie"],
			q.Header["X-Api-Key"],
			q.Header["X-Other"], q.Header["X-Forwarded-Method"], q.Header["X-Forwarded-Uri"], q.Header["X-Forwarded-Proto"],
			q.Header["X-Forwarded-Host"], q.Header["X-Forwarded-For"])
		want := fmt.Sprintf("GET /who [Basic eDp5] [a=1 b=2] [k] [] [DELETE] [/v1/tasks?page=2] [%s] [%s] [%s]",
			tt.proto, tt.host, tt.client)
		if got != want {
			t.Errorf("%s: got %s; want %s", tt.peer, got, want)
		}
	}
}

func TestForwardedIsTheOnlyVerifier(t *testing.T) {
	s := newWhoServer(t)
	b := newForwardBench(t, s, func(c *authConfig) {
		withAPIKeys(c)
		c.JWTPublicKey = publicPEM(t,
			authKeys().rsa)
	})
	s.say(401, "")
	for _, line := range []string{"Authorization: Bearer " + rs256(t, goodClaims("")),
		"X-API-Key: " + testAPIKey} {
		if _, f := b.ask(line); reasonOf(f) != "invalid" {
			t.Errorf("%.20s: got %q; want invalid", line, reasonOf(f))
		}
	}
}

func TestForwardedCache(t *testing.T) {
	s := newWhoServer(t)
	b := newForwardBench(t, s, func(c *authConfig) { c.AuthenticatorCacheSeconds = 30 })
	count := func(when string, want int, lines ...string) {
		t.Helper()
		b.ask(lines...)
		if got := len(s.questions()); got != want {
			t.Errorf("%s: got %d questions; want %d", when, got, want)
		}
	}
	count("the first time", 1, "Cookie: a=1")
	count("the second time", 0, "Cookie: a=1")
	count("another cookie", 1, "Cookie: a=2")
	count("two cookies for one", 1, "Cookie: a=", "Cookie: 1")
	count("the value in another header", 1, "Authorization: a=1")
	count("another key", 1, "Cookie: a=1", "X-API-Key: k")
	r := requestWith("Cookie: a=1")
	r.Method = "DELETE"
	b.request(r)
	if got := len(s.questions()); got != 1 {
		t.Errorf("another method: got %d questions; want 1", got)
	}
	r = requestWith("Cookie: a=1")
	r.URL.Path = "/v1/dlq"
	b.request(r)
	if got := len(s.questions()); got != 1 {
		t.Errorf("another path: got %d questions; want 1", got)
	}
	b.clock.advance(29 * time.Second)
	count("29 s later", 0, "Cookie: a=1")
	b.clock.advance(time.Second)
	count("30 s later", 1, "Cookie: a=1")
	for _, status := range []int{401, 403, 500} {
		s.say(status, whoAnswer)
		count(fmt.Sprint(status, ", the first time"), 1, fmt.Sprint("Cookie: x=", status))
		count(fmt.Sprint(status, ", the second time"), 1, fmt.Sprint("Cookie: x=", status))
	}
	s.say(200, whoAnswer)
	uncached := newForwardBench(t, s, unchanged)
	for range 2 {
		uncached.ask("Cookie: a=1")
	}
	if got := len(s.questions()); got != 2 {
		t.Errorf("without a cache: got %d questions; want 2", got)
	}
}

func TestForwardedTimeout(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	a := newForwardAuth(s.URL, "X-API-Key", 0, nil)
	if a.client.Timeout != 2*time.Second {
		t.Errorf("timeout: got %v; want 2s", a.client.Timeout)
	}
	a.client.Timeout = 20 * time.Millisecond
	if _, _, f := a.identity(context.Background(), callerOf(requestWith()), authTestNow); reasonOf(f) != "unavailable" {
		t.Errorf("a slow one: got %q; want unavailable", reasonOf(f))
	}
	s.Close()
	if _, _, f := a.identity(context.Background(), callerOf(requestWith()), authTestNow); reasonOf(f) != "unavailable" {
		t.Errorf("one that is gone: got %q; want unavailable", reasonOf(f))
	}
	a.close()
}

func TestKeyFetch(t *testing.T) {
	t.Parallel()
	set := webKeySet(rsaWebKey("a", &authKeys().rsa.PublicKey))
	mux := http.NewServeMux()
	answer := func(path string, status int, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		})
	}
	filled := func(length int) string { return set + strings.Repeat(" ", length-len(set)) }
	answer("/good", 200, set)
	answer("/full", 200, filled(maxKeySetBytes))
	answer("/huge", 200, filled(maxKeySetBytes+1))
	answer("/broken", 200, set[:50])
	answer("/html", 200, "<html>")
	answer("/empty", 200, "")
	answer("/absent", 404, set)
	answer("/failing", 500, set)
	answer("/created", 201, set)
	mux.Handle("/moved", http.RedirectHandler("/good", http.StatusFound))
	mux.Handle("/moved-for-good", http.RedirectHandler("/good", http.StatusPermanentRedirect))
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/dripping", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, set[:10])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(set)))
		fmt.Fprint(w, set[:50])
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	for path, want := range map[string]string{
		"/good": "", "/full": "",
		"/huge": "more than 1048576 bytes", "/broken": "not valid JSON", "/html": "not valid JSON", "/empty": "not valid JSON",
		"/absent": "answered 404", "/failing": "answered 500", "/created": "answered 201",
		"/moved": "answered 302", "/moved-for-good": "answered 308",
		"/slow": "exceeded", "/dripping": "exceeded", "/cut": "unexpected EOF",
	} {
		client := newKeyClient(true)
		if want == "exceeded" {
			client.Timeout = 50 * time.Millisecond
		}
		url := strings.Replace(s.URL, "http://", "http://user:hunter2@", 1) + path
		keys, err := (&keyFetcher{url, signingAlgorithms, client}).fetch(context.Background())
		if want == "" && (err != nil || len(keys.usable) != 1) {
			t.Errorf("%s: got %+v, %v; want one key", path, keys, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v; want an error with %q", path, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error holds the URL's password: %v", path, err)
		}
		client.CloseIdleConnections()
	}
	if got := newKeyClient(true).Timeout; got != 10*time.Second {
		t.Errorf("timeout: got %v; want 10s", got)
	}
}

func TestKeyFetchOverTLS(t *testing.T) {
	t.Parallel()
	set := webKeySet(rsaWebKey("a", &authKeys().rsa.PublicKey))
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		fmt.Fprint(w, set)
	}))
	s.Config.ErrorLog = (&logLines{}).stdLogger()
	s.StartTLS()
	t.Cleanup(s.Close)
	client := newKeyClient(true)
	if _, err := (&keyFetcher{s.URL, signingAlgorithms, client}).fetch(context.Background()); err == nil {
		t.Error("a certificate of nobody: got success; want an error")
	}
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{
		RootCAs: s.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
	}
	if keys, err := (&keyFetcher{s.URL, signingAlgorithms,
		client}).fetch(context.Background()); err != nil || keys == nil {
		t.Errorf("a trusted certificate: got %+v, %v; want one key", keys, err)
	}
	client.CloseIdleConnections()
}

func TestKeyFetchRefusesPrivateHosts(t *testing.T) {
	s := newKeyServer(t, webKeySet(rsaWebKey("a", &authKeys().rsa.PublicKey)))
	port := s.URL[strings.LastIndex(s.URL, ":"):]
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]"} {
		_, err := (&keyFetcher{"http://" + host + port, signingAlgorithms,
			newKeyClient(false)}).fetch(context.Background())
		if !errors.Is(err, errPrivateHost) {
			t.Errorf("%s: got %v; want errPrivateHost", host, err)
		}
	}
	s.wantFetches(t, "private hosts", 0)
}

func TestIsPrivateHost(t *testing.T) {
	for text, want := range map[string]bool{
		"127.0.0.1": true, "127.255.255.254": true, "::1": true, "0.0.0.0": true, "0.1.2.3": true, "::": true,
		"169.254.169.254": true, "169.254.0.1": true, "fe80::1": true, "fe80::1%eth0": true, "fd00:ec2::254": true,
		"100.100.100.200": true, "168.63.129.16": true, "255.255.255.255": true, "224.0.0.1": true, "ff02::1": true,
		"::ffff:127.0.0.1": true, "::ffff:169.254.169.254": true, "64:ff9b::7f00:1": true, "64:ff9b::a9fe:a9fe": true,
		"::127.0.0.1": true,
		"10.0.0.1":    false, "192.168.1.1": false, "172.16.0.1": false, "fd00::1": false, "100.64.0.1": false,
		"8.8.8.8": false, "2606:4700::1111": false, "::ffff:8.8.8.8": false, "64:ff9b::808:808": false, "128.0.0.1": false,
	} {
		if got := isPrivateHost(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: got %v; want %v", text, got, want)
		}
	}
}
