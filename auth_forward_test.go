package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const whoAnswer = `{"subject":"alice","permissions":["tasks:*"]}`

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

func TestForwardedTimeout(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	a := newForwardAuth(s.URL, "X-API-Key", 0, nil, newAuthCache(1))
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
