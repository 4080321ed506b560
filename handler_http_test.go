package main

// Tests of HTTP handlers: the requests they get, and the outcomes of their
// replies.

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

// newHandlerServer starts a server that answers until the test ends.
func newHandlerServer(t *testing.T, f http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s
}

// call runs an attempt with the callable.
func callHandler(t *testing.T, h *handlerSet, callable string) outcome {
	t.Helper()
	return h.run(context.Background(), h.resolve(callable), newTestAttempt(`{}`))
}

func TestHTTPReplies(t *testing.T) {
	var body string // of the reply
	var status int
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
	h := newTestHandlers(t, nil)
	for _, row := range []struct {
		status     int
		body, want string
	}{
		{200, `{"a": 1.0}`, `ok {"a":1.0}`},
		{201, `"x"`, `ok "x"`},
		{299, `[]`, `ok []`},
		{200, ``, `ok null`},
		{204, ``, `ok null`},
		{200, `{"success": true, "result": 1, "metadata": {"k": 2}}`, `ok 1 metadata {"k":2}`},
		{200, `{"success": false}`, `handler_error retryable 200`},
		{200, `{"success": false, "error": {"error_type": "t", "retryable": false, "status_code": 418}}`,
			`t permanent 418`},
		{200, `<html>`, `invalid_result permanent 200`},
		{200, `{"success": true, "metadata": 1}`, `invalid_result permanent 200`},
		{200, `"` + strings.Repeat("x", 998) + `"`, `ok "` + strings.Repeat("x", 998) + `"`},
		{200, `"` + strings.Repeat("x", 999) + `"`, `result_too_large permanent 200`},
		{300, ``, `redirect permanent 300`},
		{304, ``, `redirect permanent 304`},
		{400, `no`, `http_400 permanent 400`},
		{401, ``, `http_401 permanent 401`},
		{404, ``, `http_404 permanent 404`},
		{408, ``, `http_408 retryable 408`},
		{409, `{"success": true}`, `http_409 permanent 409`},
		{422, ``, `http_422 permanent 422`},
		{425, ``, `http_425 retryable 425`},
		{429, ``, `http_429 retryable 429`},
		{500, `{"success": true}`, `http_500 retryable 500`},
		{501, ``, `http_501 retryable 501`},
		{502, ``, `http_502 retryable 502`},
		{503, ``, `http_503 retryable 503`},
		{599, ``, `http_599 retryable 599`},
		{600, ``, `http_600 permanent 600`},
	} {
		status, body = row.status, row.body
		if got := showOutcome(callHandler(t, h, s.URL)); got != row.want {
			t.Errorf("%d %.40s: got %.80s; want %.80s", row.status, row.body, got, row.want)
		}
	}
}

func TestHTTPRedirectIsNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/" {
				t.Errorf("%d: was followed to %s", status, r.URL)
			}
			w.Header().Set("Location", "http://u:s3cret@"+r.Host+"/elsewhere?token=s3cret")
			w.WriteHeader(status)
		})
		o := callHandler(t, newTestHandlers(t, nil), s.URL+"/")
		if got, want := showOutcome(o), fmt.Sprintf("redirect permanent %d", status); got != want {
			t.Errorf("got %s; want %s", got, want)
		}
		if got, want := string(o.err.context), `{"location":"`+s.URL+`/elsewhere"}`; got != want {
			t.Errorf("got %s; want %s", got, want)
		}
	}
}

func TestHTTPReadsNoMoreThanTheLimit(t *testing.T) {
	gaveUp := make(chan bool, 1)
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		var err error
		for err == nil {
			_, err = w.Write(make([]byte, 4096))
		}
		gaveUp <- true
	})
	o := callHandler(t, newTestHandlers(t, nil), s.URL)
	if got, want := showOutcome(o), "result_too_large permanent 200"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	<-gaveUp
}

func TestHTTPNetworkErrors(t *testing.T) {
	closed := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	closed.Close()
	cut := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if r.URL.Path == "/body" {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\"")
		}
		if r.URL.Path == "/garbage" {
			io.WriteString(conn, "220 mail.example ESMTP\r\n")
		}
		conn.Close()
	})
	for _, callable := range []string{
		"http://me:s3cret@" + closed.Addr().String() + "/", cut.URL + "/", cut.URL + "/body", cut.URL + "/garbage",
		strings.Replace(cut.URL, "http://", "https://me:s3cret@", 1),
	} {
		o := callHandler(t, newTestHandlers(t, nil), callable)
		if got, want := showOutcome(o), "network_error retryable"; got != want {
			t.Errorf("%s: got %s; want %s", callable, got, want)
		}
		text := errorText(o)
		if strings.Contains(text, "s3cret") || !strings.HasPrefix(text, "no reply from 127.0.0.1:") {
			t.Errorf("%s: got the message %s", callable, text)
		}
		closed := callable == cut.URL+"/" || callable == cut.URL+"/body"
		if says := strings.Contains(text, ": the handler closed the connection ("); says != closed {
			t.Errorf("%s: got the message %s; want to read that the handler closed the connection: %v", callable, text, closed)
		}
	}
}

func TestHTTPCredentials(t *testing.T) {
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		if user != "me" || password != "s3/c:ret" || !ok {
			t.Errorf("got %q, %q", user, password)
		}
		w.WriteHeader(500)
	})
	h := newTestHandlers(t, func(c *workerConfig) {
		c.HTTPHeaders = headerTables{"": {"Authorization": "Bearer x"}}
	})
	o := callHandler(t, h, strings.Replace(s.URL, "http://", "http://me:s3%2Fc:ret@", 1))
	if got, want := showOutcome(o), "http_500 retryable 500"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	if text := errorText(o); strings.Contains(text, "ret@") {
		t.Errorf("the error shows the credentials: %s", text)
	}
}

// TestHeadersGoWhereTheyAreMeant checks that each request has the headers for all, for its
// origin and for its callable, and no others.
func TestHeadersGoWhereTheyAreMeant(t *testing.T) {
	t.Parallel()
	var got http.Header
	keep := func(w http.ResponseWriter, r *http.Request) { got = r.Header }
	one, two := newHandlerServer(t, keep), newHandlerServer(t, keep)
	moved := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, one.URL, http.StatusTemporaryRedirect)
	})
	h := newTestHandlers(t, func(c *workerConfig) {
		c.HTTPHeaders = headerTables{
			"":                       {"X-All": "all", "X-Who": "all"},
			one.URL:                  {"X-One": "one", "X-Who": "one"},
			"https://" + one.URL[7:]: {"X-Other": "scheme"},
			moved.URL:                {"X-Moved": "moved"},
			"shop.charge":            {"X-Charge": "charge", "X-Who": "charge"},
			"shop.*":                 {"X-Shop": "shop"},
			"shop.ref*":              {"X-Refund": "refund"},
		}
		c.Handlers = map[string]string{
			"shop.*": two.URL + "/shop", "billing": strings.Replace(one.URL, "127", "me:pass@127", 1),
		}
		c.DefaultHandler = two.URL
	})
	for _, tt := range []struct{ callable, want string }{
		{one.URL, "X-All=all X-One=one X-Who=one"},
		{one.URL + "/a?b", "X-All=all X-One=one X-Who=one"},
		{"HTTP" + one.URL[4:], "X-All=all X-One=one X-Who=one"},
		{two.URL, "X-All=all X-Who=all"},
		{"billing", "Authorization=Basic_bWU6cGFzcw== X-All=all X-One=one X-Who=one"},
		{"other", "X-All=all X-Who=all"},
		{"shop.charge", "X-All=all X-Charge=charge X-Who=charge"},
		{"shop.refund", "X-All=all X-Refund=refund X-Who=all"},
		{"shop.list", "X-All=all X-Shop=shop X-Who=all"},
		{"shop", "X-All=all X-Who=all"},
	} {
		got = nil
		if o := callHandler(t, h, tt.callable); showOutcome(o) != "ok null" {
			t.Errorf("%s: got %s", tt.callable, showOutcome(o))
		}
		want := http.Header{}
		for _, header := range strings.Fields(tt.want) {
			name, value, _ := strings.Cut(header, "=")
			want.Set(name, strings.Replace(value, "_", " ", 1))
		}
		for _, name := range []string{"Accept-Encoding", "Content-Type", "Content-Length", "User-Agent", "Idempotency-Key"} {
			delete(got, name)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v; want %v", tt.callable, got, want)
		}
	}
	got = nil
	if o := callHandler(t, h, moved.URL); showOutcome(o) != "redirect permanent 307" || got != nil {
		t.Errorf("a redirect: got %s, and %v sent to its target; want no request", showOutcome(o), got)
	}
}

// TestEchoedPasswordsAreHidden does the same with the credentials in a handler's URL.
func TestEchoedPasswordsAreHidden(t *testing.T) {
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		fmt.Fprintf(w, `{"header":%q,"user":%q,"password":%q}`, r.Header.Get("Authorization"), user, password)
	})
	o := callHandler(t, newTestHandlers(t, nil), strings.Replace(s.URL, "http://", "http://me:s3%2Fc:ret@", 1))
	if got, want := showOutcome(o), `ok {"header":"[REDACTED]","user":"me","password":"[REDACTED]"}`; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

// TestBrokenReplyHidesSecrets returns a status line that repeats a header.
func TestBrokenReplyHidesSecrets(t *testing.T) {
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _ := must2(w.(http.Hijacker).Hijack())(t)
		fmt.Fprintf(conn, "%s\r\n\r\n", r.Header.Get("X-Key"))
		conn.Close()
	})
	h := newTestHandlers(t, func(c *workerConfig) { c.HTTPHeaders = headerTables{s.URL: {"X-Key": "hunter2"}} })
	o := callHandler(t, h, s.URL)
	if text := errorText(o); !strings.Contains(text, `"[REDACTED]"`) || strings.Contains(text, "hunter2") {
		t.Errorf("got %s; want the reply without the secret", text)
	}
}

func TestHTTPRetryAfterReachesTheOutcome(t *testing.T) {
	var status int
	var body string
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
	h := newTestHandlers(t, nil)
	for _, row := range []struct {
		status int
		body   string
		want   time.Duration
	}{
		{429, ``, 7 * time.Second},
		{503, ``, 7 * time.Second},
		{200, `{"success": false}`, 7 * time.Second},
		{200, `1`, 0},
		{404, ``, 0},
	} {
		status, body = row.status, row.body
		if got := callHandler(t, h, s.URL).retryAfter; got != row.want {
			t.Errorf("%d %s: got %v; want %v", row.status, row.body, got, row.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	const date = "Sat, 31 Jan 2026 12:00:00 GMT"
	for _, row := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", date, 0},
		{"120", date, 2 * time.Minute},
		{" 5 ", date, 5 * time.Second},
		{"0", date, time.Microsecond},
		{"3600", date, time.Hour},
		{"3601", date, time.Hour},
		{"99999999999999999999999", date, time.Hour},
		{"-1", date, 0},
		{"1.5", date, 0},
		{"soon", date, 0},
		{"Sat, 31 Jan 2026 12:00:30 GMT", date, 30 * time.Second},
		{"Saturday, 31-Jan-26 12:01:00 GMT", date, time.Minute},
		{"Sat, 31 Jan 2026 11:00:00 GMT", date, time.Microsecond},
		{"Sun, 01 Feb 2026 12:00:00 GMT", date, time.Hour},
		{"Sat, 31 Jan 2099 12:00:00 GMT", "", time.Hour},
		{"Sat, 31 Jan 2009 12:00:00 GMT", "", time.Microsecond},
	} {
		h := http.Header{"Retry-After": {row.value}, "Date": {row.date}}
		if got := retryAfter(h); got != row.want {
			t.Errorf("%q at %q: got %v; want %v", row.value, row.date, got, row.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120", "")
	f.Add("Sat, 31 Jan 2026 12:00:30 GMT", "Sat, 31 Jan 2026 12:00:00 GMT")
	f.Fuzz(func(t *testing.T, value, date string) {
		if d := retryAfter(http.Header{"Retry-After": {value}, "Date": {date}}); d < 0 || d > time.Hour {
			t.Errorf("got %v", d)
		}
	})
}

func TestHTTPTimeout(t *testing.T) {
	t.Parallel()
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // only then is the end of the connection noticed
		if r.URL.Path == "/body" {
			io.WriteString(w, `{"a":`)
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	})
	h := newTestHandlers(t, nil)
	for _, path := range []string{"/", "/body"} {
		a := newTestAttempt(`{}`)
		a.timeout = 300 * time.Millisecond
		o := h.run(context.Background(), h.resolve(s.URL+path), a)
		if got, want := showOutcome(o), "timeout retryable"; got != want {
			t.Errorf("%s: got %s; want %s", path, got, want)
		}
		if got, want := errorText(o), "the attempt took longer than 300ms "; got != want {
			t.Errorf("%s: got %q; want %q", path, got, want)
		}
	}
}
