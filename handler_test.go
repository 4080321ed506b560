package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// showTarget describes a target in a few words.
func showTarget(t target) string {
	switch {
	case t.builtin != nil && t.builtin.name == "":
		o, _ := t.builtin.run(nil)
		return t.kind.String() + " refused: " + showOutcome(o) + ": " + o.err.message
	case t.builtin != nil:
		return "builtin " + t.builtin.name
	case t.http != nil:
		return "http " + t.http.url.String()
	case t.program != "":
		return "exec " + t.program
	}
	return t.kind.String()
}

func TestResolve(t *testing.T) {
	h := newTestHandlers(t, func(c *workerConfig) {
		c.Handlers = map[string]string{
			"Pay":              "builtin:noop",
			"Pay*":             "builtin:echo",
			"Pay::Card::*":     "http://h/card",
			"Pay::Card::Visa":  "exec:visa",
			"builtin:sleep":    "builtin:fail",
			"http://old/*":     "http://new/",
			"exec:only-mapped": "builtin:sum",
		}
	})
	for _, row := range []struct{ callable, want string }{
		{"Pay", "builtin noop"},
		{"Payment", "builtin echo"},
		{"Pay::Card", "builtin echo"},
		{"Pay::Card::", "http http://h/card"},
		{"Pay::Card::Amex", "http http://h/card"},
		{"Pay::Card::Visa", "exec visa"},
		{"Pay::Card::Visa2", "http http://h/card"},
		{"pay", "outside"},
		{"builtin:sleep", "builtin fail"},
		{"http://old/a/b", "http http://new/"},
		{"exec:only-mapped", "builtin sum"},

		{"builtin:noop", "builtin noop"},
		{"builtin:nope", `builtin refused: invalid_handler permanent: unknown builtin "nope"; ` +
			"want noop, echo, sleep, fail, flaky, sum, decide, batch or tally"},
		{"builtin:", `builtin refused: invalid_handler permanent: unknown builtin ""; ` +
			"want noop, echo, sleep, fail, flaky, sum, decide, batch or tally"},
		{"http://127.0.0.1:9000/a?b=c#d", "http http://127.0.0.1:9000/a?b=c"},
		{"HTTPS://[::1]:443", "http https://[::1]:443"},
		{"http://me:s3cret@h/a", "http http://h/a"},
		{"http://", "http refused: invalid_handler permanent: the URL has no host"},
		{"http:///a", "http refused: invalid_handler permanent: the URL has no host"},
		{"http://:80/a", "http refused: invalid_handler permanent: the URL has no host"},
		{"http://h:0/", "http refused: invalid_handler permanent: the URL is malformed"},
		{"http://h:65536/", "http refused: invalid_handler permanent: the URL is malformed"},
		{"http://me:s3/cret@h/", "http refused: invalid_handler permanent: the URL is malformed"},
		{"https://h h/", "http refused: invalid_handler permanent: the URL is malformed"},
		{"exec:/bin/tool", "exec /bin/tool"},
		{"exec:tool", "exec tool"},
		{"exec:", "exec refused: invalid_handler permanent: exec: names no program"},
		{"exec:./tool", "exec refused: invalid_handler permanent: " +
			"the program is neither an absolute path nor a bare name"},

		{"Http::Client", "outside"},
		{"http::client", "outside"},
		{"http", "outside"},
		{"builtin", "outside"},
		{"exec", "outside"},
		{"", "outside"},
	} {
		got := showTarget(h.resolve(row.callable))
		if got != row.want {
			t.Errorf("resolve(%q): got %s; want %s", row.callable, got, row.want)
		}
		if err := h.check(row.callable); (err != nil) != strings.Contains(row.want, "refused") {
			t.Errorf("check(%q): got %v for %s", row.callable, err, row.want)
		}
	}
}

func TestDefaultHandler(t *testing.T) {
	h := newTestHandlers(t, func(c *workerConfig) {
		c.DefaultHandler = "builtin:echo"
		c.Handlers = map[string]string{"A": "builtin:noop"}
	})
	for callable, want := range map[string]string{
		"A": "builtin noop", "B": "builtin echo", "builtin:sum": "builtin sum", "exec:x": "exec x",
	} {
		if got := showTarget(h.resolve(callable)); got != want {
			t.Errorf("resolve(%q): got %s; want %s", callable, got, want)
		}
	}
	if got := h.resolve("builtin:nope").builtin.name; got != "" {
		t.Errorf("an unknown builtin fell through to %q", got)
	}
}

func TestMappedToEverything(t *testing.T) {
	h := newTestHandlers(t, func(c *workerConfig) { c.Handlers = map[string]string{"*": "builtin:echo"} })
	if got := showTarget(h.resolve("any")); got != "builtin echo" {
		t.Errorf("got %s; want builtin echo", got)
	}
}

func TestOutsideOnly(t *testing.T) {
	for _, callable := range []string{"builtin:noop", "http://h/", "exec:x", "A"} {
		if got := outsideOnly().resolve(callable); got.kind != outsideActor {
			t.Errorf("resolve(%q): got %s; want outside", callable, showTarget(got))
		}
	}
}

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
	if o := h.run(context.Background(), h.resolve(s.URL+"/pay?x=1#top"), a); showOutcome(o) != `ok {"ok":true}` {
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
	ended := pastOutcome{result: []byte(`{"n":1.50}`), metadata: []byte(`{"m":1}`), took: 12 * time.Millisecond, at: testStart}
	a.results = []namedResult{{"first", a.taskID, "complete", true, ended}, {`by "hand"`, a.stepID, "resolved_manually", true, pastOutcome{}},
		{"broken", a.taskID, "error", false, pastOutcome{err: []byte(`{}`)}}}
	a.previous = &pastOutcome{err: []byte(`{"message":"see http://me:secret@host/x"}`), took: time.Second, at: testStart}
	a.asked, a.templateStep = requester{initiator: "me", tags: []string{"a", "b"}, priority: -3, created: testStart}, "pay it"
	const at = `"2026-01-01T00:00:00.000000Z"`
	want := `{"task":{"task_uuid":"` + a.taskID.String() + `",` +
		`"namespace":"shop","name":"order","version":"1.0.0","correlation_id":"c-1","context":{"order":7},` +
		`"initiator":"me","source_system":"","reason":"","tags":["a","b"],"priority":-3,"requested_at":null,"created_at":` + at +
		`,"updated_at":null,"parent_correlation_id":null},` +
		`"step":{"step_uuid":"` + a.stepID.String() + `","name":"pay","attempt":2,"max_attempts":3,` +
		`"timeout_seconds":30,"config":{"to":"x"},"inputs":{"order":8},"handler":{"callable":"Pay","method":"charge"},` +
		`"template_step_name":"pay it","remaining_ms":30000,"previous":{"success":false,"result":null,` +
		`"error":{"message":"see http://[REDACTED]@host/x"},"ended_at":` + at + `,"execution_time_ms":1000,"metadata":{}}},` +
		`"dependency_results":{"first":{"n":1.50},"by \"hand\"":null},"dependencies":{` +
		`"first":{"step_uuid":"` + a.taskID.String() + `","state":"complete","ended_at":` + at + `,"execution_time_ms":12,"metadata":{"m":1}},` +
		`"by \"hand\"":{"step_uuid":"` + a.stepID.String() + `","state":"resolved_manually","ended_at":null,"execution_time_ms":0,"metadata":{}},` +
		`"broken":{"step_uuid":"` + a.taskID.String() + `","state":"error","ended_at":null,"execution_time_ms":0,"metadata":{}}}}`
	got := string(a.envelope([]byte("[")))
	if got != "["+want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if len(got) > a.envelopeSize() {
		t.Errorf("an envelope of %d bytes has the size %d", len(got), a.envelopeSize())
	}
	if empty := (&attempt{}).envelope(nil); !json.Valid(empty) {
		t.Errorf("the envelope of nothing is not valid JSON: %s", empty)
	}
}
