package main

// The request log, and verifications against it.

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// journalServer returns a server with a template of a builtin, an HTTP handler whose URL
// holds a password, and a step that fails.
func journalServer(t *testing.T) *fixtureServer {
	handler := newHandlerLog(t)
	url := strings.Replace(handler.url, "http://", "http://me:secret@", 1)
	return newFixtureServer(t, serviceTest{extra: []string{
		testTemplate("pair", stepSpec{name: "a", callable: "builtin:echo"}, stepSpec{name: "b", callable: url, after: []string{"a"}}),
		testTemplate("fail", stepSpec{name: "a", callable: "builtin:fail"}),
	}})
}

// TestRequestJournalKnowsWhoAsks checks that entries name the caller, and hold no key.
func TestRequestJournalKnowsWhoAsks(t *testing.T) {
	s := newFixtureServer(t, serviceTest{config: func(c *Config) {
		a := &c.Orchestration.Web.Auth
		a.Enabled, a.APIKeysEnabled = true, true
		a.APIKeys = []apiKeyConfig{{Key: "the-key", Permissions: allWildcards(), Description: "anna"}}
		a.JWTPublicKey = publicPEM(t, authKeys().rsa)
	}})
	s.as("the-key", "GET", "/v1/tasks")
	s.do("GET", "/v1/tasks", "").want(401)
	a := s.as("the-key", "GET", "/_stepwell/requests").want(200)
	if a.text("entries.0.subject") == "" || a.text("entries.1.subject") != "" || strings.Contains(string(a.body), "the-key") {
		t.Errorf("got %s; want a subject in the first one, and no key", a.body)
	}
}

// TestRequestLogShowsWhatWasGiven checks that an entry shows what its own attempt was given, which does not include its
// outcome.
func TestRequestLogShowsWhatWasGiven(t *testing.T) {
	s := journalServer(t)
	s.create(`{"namespace":"t","name":"fail"}`)
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	a := s.do("GET", "/_stepwell/requests?kind=handler", "").want(200)
	if a.text("entries.0.envelope.step.attempt") != "1" || strings.Contains(string(a.body), `"previous"`) {
		t.Errorf("got %s; want attempt 1, without a previous one", a.body)
	}
}

// TestRequestJournalIsBounded checks the limits of entries, bytes and the size of a body.
func TestRequestJournalIsBounded(t *testing.T) {
	t.Parallel()
	j := &requestJournal{now: func() instant { return testStart }}
	for range maxJournalEntries + 5 {
		j.enter(&logEntry{})
	}
	if n, d := len(j.rings[ofRequests].entries), j.rings[ofRequests].dropped; n != maxJournalEntries || d != 5 {
		t.Errorf("%d entries are held and %d dropped", n, d)
	}
	for i := range 1000 {
		c := &logEntry{kind: ofHandlers, delivered: &attempt{number: i, inputs: make([]byte, 100<<10)}}
		j.enter(c)
		c.ended(outcome{success: true, result: make([]byte, 100<<10)})
		if j.rings[ofHandlers].bytes > maxJournalBytes {
			t.Fatalf("after %d calls %d bytes are held", i+1, j.rings[ofHandlers].bytes)
		}
	}
	first := j.rings[ofHandlers].entries[0].delivered
	if n := len(j.rings[ofHandlers].entries); n < 70 || n+int(j.rings[ofHandlers].dropped) != 1000 || first.number != 1000-n {
		t.Errorf("%d calls are held from %d on, %d dropped", n, first.number, j.rings[ofHandlers].dropped)
	}
	if cap(j.rings[ofHandlers].entries) > 2000 {
		t.Errorf("room for %d entries is kept", cap(j.rings[ofHandlers].entries))
	}
	s := journalServer(t)
	s.do("POST", "/v1/tasks", `{"name":"`+strings.Repeat("x", maxJournalBody)+`"}`).want(http.StatusUnprocessableEntity)
	a := s.do("GET", "/_stepwell/requests", "").want(200)
	if n := len(a.text("entries.0.body")); n != maxJournalBody || a.text("entries.0.body_truncated") != "true" {
		t.Errorf("%d bytes of the body are kept", n)
	}
	s.do("POST", "/v1/tasks", `{"name":"`+strings.Repeat("é", maxJournalBody)+`"}`).want(http.StatusUnprocessableEntity)
	a = s.do("GET", "/_stepwell/requests", "").want(200)
	if text := a.text("entries.1.body"); len(text) != maxJournalBody-1 || strings.Contains(text, "\ufffd") {
		t.Errorf("%d bytes of the body are kept, to the end %q; want no part of a character", len(text), text[len(text)-4:])
	}
}

// TestVerify verifies how often something was called or requested.
func TestVerify(t *testing.T) {
	s := journalServer(t)
	s.create(`{"namespace":"t","name":"pair","context":{"order":{"id":7},"x":1}}`)
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	for _, row := range []struct {
		match, count string
		status       int
	}{
		{`{}`, ``, 200},
		{`{}`, `,"count":{"exactly":2}`, 200},
		{`{}`, `,"count":{"exactly":1}`, 422},
		{`{}`, `,"count":{"at_least":3}`, 422},
		{`{}`, `,"count":{"at_most":1}`, 422},
		{`{"step":"a","attempt":1,"context":{"order":{"id":7.0}}}`, `,"count":{"exactly":1}`, 200},
		{`{"context":{"order":{"id":8}}}`, `,"count":{"exactly":0}`, 200},
		{`{"stubbed":true}`, `,"count":{"at_most":0}`, 200},
		{`{"kind":"request","method":"POST","path":"/v1/tasks","status":201,"body":{"name":"pair"}}`, `,"count":{"exactly":1}`, 200},
		{`{"kind":"request","path_prefix":"/v1","surface":"orchestration"}`, `,"count":{"exactly":1}`, 200},
		{`{"kind":"request","path":"/v1"}`, ``, 422},
		{`{"kind":"request","step":"a"}`, ``, 422},
		{`{"kind":"request","surface":"orchestraton"}`, `,"count":{"exactly":0}`, 422},
		{`{"kind":"request","method":"post"}`, `,"count":{"exactly":0}`, 422},
		{`{"kind":"other"}`, ``, 422},
		{`{"stpe":"a"}`, ``, 422},
		{`[]`, ``, 422},
		{`{}`, `,"count":{}`, 422},
		{`{}`, `,"count":{"exactly":1,"at_most":1}`, 422},
		{`{}`, `,"count":{"exactly":-1}`, 422},
		{`{}`, `,"count":2`, 422},
		{`{}`, `,"cuont":{}`, 422},
	} {
		body := fmt.Sprintf(`{"match":%s%s}`, row.match, row.count)
		if a := s.do("POST", "/_stepwell/verify", body); a.status != row.status {
			t.Errorf("%s: got %d, %s; want %d", body, a.status, a.body, row.status)
		}
	}
	flushed := 0
	s.world.parts.flushLog = func() { flushed++ }
	id := s.do("GET", "/v1/tasks", "").text("tasks.0.task_uuid")
	s.do("POST", "/_stepwell/verify", `{"task_uuid":"`+id+`","status":"error"}`).want(422)
	a := s.do("POST", "/_stepwell/verify", `{"match":{"step":"b","attempt":2}}`).want(422)
	if flushed != 2 {
		t.Errorf("the log was flushed %d times for 2 failures; want 2", flushed)
	}
	if a.text("error.code") != "VERIFICATION_FAILED" || a.text("error.seen.count") != "0" ||
		a.text("error.seen.others.1.step") != "b" {
		t.Errorf("got %s; want the calls that there were", a.body)
	}
}

// TestVerifyTells checks that the message of a failed verification says in one line what happened.
func TestVerifyTells(t *testing.T) {
	s := newFixtureServer(t, serviceTest{extra: []string{testTemplate("pay",
		stepSpec{name: "charge", callable: "Desk"}, stepSpec{name: "ship", callable: "Desk", after: []string{"charge"}})}})
	s.do("POST", "/_stepwell/clock", `{"auto":true}`).want(200)
	s.do("POST", "/_stepwell/stubs", `{"match":{"step":"charge"},"outcomes":[{"error":{"message":"card\n declined"}},`+
		`{"checkpoint":{"cursor":1}},{"fault":"worker_lost"},{"result":1}]}`).want(201)
	s.do("POST", "/_stepwell/stubs", `{"match":{"step":"ship"},"outcomes":[{"result":1}]}`).want(201)
	s.create(`{"namespace":"t","name":"pay"}`)
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	const charge = "attempt 1 failed (card declined), attempt 2 yielded, attempt 2 has no outcome (worker_lost), attempt 2 succeeded"
	for _, tt := range []struct{ match, count, want string }{
		{`{"step":"charge"}`, `,"count":{"exactly":1}`, "4 calls match, 1 wanted: " + charge},
		{`{"step":"ship"}`, `,"count":{"at_least":2}`, "1 call matches, at least 2 wanted: attempt 1 succeeded"},
		{`{"step":"ship"}`, `,"count":{"at_most":0}`, "1 call matches, at most 0 wanted: attempt 1 succeeded"},
		{`{"name":"pay","attempt":1}`, `,"count":{"exactly":0}`,
			"2 calls match, 0 wanted: charge attempt 1 failed (card declined), ship attempt 1 succeeded"},
		{`{"step":"chrage"}`, ``, "0 calls match, at least 1 wanted; others: charge " + strings.ReplaceAll(charge, ", ", ", charge ") +
			`, ship attempt 1 succeeded; no template has a step "chrage"; did you mean charge?`},
		{`{"kind":"request","path":"/v1/tasks"}`, `,"count":{"exactly":0}`, "1 request matches, 0 wanted: POST /v1/tasks got 201"},
	} {
		body := fmt.Sprintf(`{"match":%s%s}`, tt.match, tt.count)
		if got := s.do("POST", "/_stepwell/verify", body).want(422).text("error.message"); got != tt.want {
			t.Errorf("%s:\ngot  %s\nwant %s", body, got, tt.want)
		}
	}
	s.do("DELETE", "/_stepwell/requests", "").want(204)
	s.do("POST", "/_stepwell/verify", `{"match":{}}`).want(422).wantText("error.message",
		"0 calls match, at least 1 wanted; there were none at all")
}

// TestVerifyKnowsWhatItDoesNotKnow checks that after calls were dropped, a verification answers
// only if they cannot change the answer.
func TestVerifyKnowsWhatItDoesNotKnow(t *testing.T) {
	s := newFixtureServer(t, serviceTest{})
	j := fixtureOf(s.world.service()).requests
	for range maxJournalEntries + 1 {
		j.enter(&logEntry{kind: ofHandlers, facts: facts{step: "a"}, delivered: &attempt{}})
	}
	for count, want := range map[string]int{
		`{"at_least":10000}`: 200, `{"at_least":10001}`: 409, `{"exactly":10000}`: 409, `{"at_most":9999}`: 422, `{"at_most":10001}`: 409,
	} {
		s.do("POST", "/_stepwell/verify", `{"match":{"step":"a"},"count":`+count+`}`).want(want)
	}
	s.do("DELETE", "/_stepwell/requests", "").want(204)
	s.do("POST", "/_stepwell/verify", `{"match":{},"count":{"exactly":0}}`).want(200)
}

// TestJournalMatchesWhatItHides checks that a query finds an entry by the URLs as the test
// wrote them, and shows the entry redacted.
func TestJournalMatchesWhatItHides(t *testing.T) {
	callable := strings.Replace(newHandlerLog(t).url, "http://", "http://me:secret@", 1) + "?token=secret"
	s := newFixtureServer(t, serviceTest{extra: []string{testTemplate("call", stepSpec{name: "a", callable: callable})}})
	const body = `{"namespace":"t","name":"call","context":{"back":"https://h/x?id=secret"}}`
	s.create(body)
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	if got := s.entries("?callable=" + url.QueryEscape(callable)); got != "a 1 false true" {
		t.Errorf("the callable finds %q; want the call", got)
	}
	s.do("POST", "/_stepwell/verify", `{"match":{"kind":"request","body":`+body+`}}`).want(200)
	missed := s.do("POST", "/_stepwell/verify", `{"match":{"callable":"http://other"}}`).want(422)
	shown := string(s.do("GET", "/_stepwell/requests", "").body) + string(missed.body)
	if strings.Contains(shown, "secret") || strings.Count(shown, "?[REDACTED]") < 3 {
		t.Errorf("got %s; want it redacted", shown)
	}
}
