package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestHTTPRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		fmt.Fprint(w, `{"ok": true}`)
	})
	h := newTestHandlers(t, func(c *workerConfig) {
		c.HTTPHeaders = headerTables{"": {"X-Api-Key": "k", "User-Agent": "other", "Content-Type": "text/plain"}}
	})
	a := newTestAttempt(`{}`)
	a.traceparent, a.tracestate = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "rojo=1,congo=t61 rcWkg"
	if o := h.run(new(attemptContext), h.resolve(s.URL+"/pay?x=1#top"), a); showOutcome(o) != `ok {"ok":true}` {
		t.Fatalf("got %s: %s", showOutcome(o), errorText(o))
	}
	if string(body) != string(a.envelope(nil)) {
		t.Errorf("body: got %s; want %s", body, a.envelope(nil))
	}
	if line := got.Method + " " + got.RequestURI; line != "POST /pay?x=1" {
		t.Errorf("got %s; want POST /pay?x=1", line)
	}
	if got.ContentLength != int64(len(body)) || len(got.TransferEncoding) > 0 {
		t.Errorf("length: got %d, %q; want %d", got.ContentLength, got.TransferEncoding, len(body))
	}
	for name, want := range map[string]string{
		"Content-Type":    "application/json",
		"Idempotency-Key": a.stepID.String() + ":2",
		"Traceparent":     a.traceparent,
		"Tracestate":      a.tracestate,
		"User-Agent":      "stepwell/1.2.3",
		"X-Api-Key":       "k",
		"Authorization":   "",
		"Accept-Encoding": "identity", // without it, any coding would be acceptable
	} {
		if values := got.Header.Values(name); strings.Join(values, "|") != want {
			t.Errorf("%s: got %q; want %q", name, values, want)
		}
	}
}

func TestEnvelope(t *testing.T) {
	a := newTestAttempt(`{"to":"x"}`)
	a.handler = []byte(`{"callable":"Pay","method":"charge"}`)
	a.results = []namedResult{{"first", []byte(`{"n":1.50}`)}, {`by "hand"`, nil}}
	want := `{"task":{"task_uuid":"` + a.taskID.String() + `",` +
		`"namespace":"shop","name":"order","version":"1.0.0","correlation_id":"c-1","context":{"order":7}},` +
		`"step":{"step_uuid":"` + a.stepID.String() + `","name":"pay","attempt":2,"max_attempts":3,` +
		`"timeout_seconds":30,"config":{"to":"x"},"inputs":{"order":8},"handler":{"callable":"Pay","method":"charge"}},` +
		`"dependency_results":{"first":{"n":1.50},"by \"hand\"":null}}`
	if got := string(a.envelope([]byte("["))); got != "["+want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if empty := (&attempt{}).envelope(nil); !json.Valid(empty) {
		t.Errorf("the envelope of nothing is no JSON: %s", empty)
	}
}
