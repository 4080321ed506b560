package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

// showTarget describes a target in a few words.
func showTarget(t target) string {
	switch {
	case t.builtin != nil && t.builtin.name == "":
		o, _ := t.builtin.run(&attempt{})
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

func TestOutsideOnly(t *testing.T) {
	for _, callable := range []string{"builtin:noop", "http://h/", "exec:x", "A"} {
		if got := outsideOnly().resolve(callable); got.kind != outsideActor {
			t.Errorf("resolve(%q): got %s; want outside", callable, showTarget(got))
		}
	}
}

// runBuiltin runs a builtin on an attempt as the engine would.
func runBuiltin(t *testing.T, name string, a *attempt) (outcome, time.Duration) {
	t.Helper()
	b := must(findBuiltin(name))(t)
	return b.run(a)
}

// TestBuiltinsReadOnlyWhatTheySay runs each builtin without the parts of the
// attempt that it claims not to need, and checks that it is documented.
func TestBuiltinsReadOnlyWhatTheySay(t *testing.T) {
	page := string(readFile(t, "docs/reference/handlers.md"))
	for _, b := range builtins {
		if !strings.Contains(page, "\n| `builtin:"+b.name+"` | ") {
			t.Errorf("%s: docs/reference/handlers.md has no row", b.name)
		}
		if b.needsInputs {
			continue
		}
		if o, _ := b.run(&attempt{number: 1, config: []byte(`{}`)}); o.success == (o.err != nil) {
			t.Errorf("%s: got %s", b.name, showOutcome(o))
		}
	}
}

func TestSum(t *testing.T) {
	for _, row := range []struct {
		add     string
		results []string
		want    string
	}{
		{"1", []string{"2", "3"}, "ok 6"},
		{"-1", []string{`{"value": 5, "other": 7}`, `"8"`, `null`, ``, `[9]`, `true`, `{"value": "9"}`}, "ok 4"},
		{"0", []string{"0.25", "0.5"}, "ok 0.75"},
		{"1e21", nil, "ok 1000000000000000000000"},
		{"0.5", []string{"1.5e0", "-2E0"}, "ok 0"},
		{"1e3", []string{"25e-2"}, "ok 1000.25"},
		{"-0", nil, "ok 0"},
		{"1e308", []string{"1e308"}, "invalid_result permanent"},
		{"1", []string{"1e-99999999999999999999", "1e-1000000000"}, "ok 1"},
		{"1", []string{"0e99999999999999999999"}, "ok 1"},
	} {
		a := newTestAttempt(`{"add": ` + row.add + `}`)
		for _, r := range row.results {
			a.results = append(a.results, namedResult{step: "s", pastOutcome: pastOutcome{result: []byte(r)}})
		}
		o, _ := runBuiltin(t, "sum", a)
		if got := showOutcome(o); got != row.want {
			t.Errorf("%s + %v: got %s; want %s", row.add, row.results, got, row.want)
		}
	}
}

func TestParseReply(t *testing.T) {
	for _, row := range []struct{ reply, want string }{
		{``, `ok null`},
		{" \r\n\t", `ok null`},
		{`null`, `ok null`},
		{`"text"`, `ok "text"`},
		{"1.50\n", `ok 1.50`},
		{`12345678901234567890123`, `ok 12345678901234567890123`},
		{`{ "b": 1, "a": [ 1E5, "x y" ] }`, `ok {"b":1,"a":[1E5,"x y"]}`},
		{`{}`, `ok {}`},

		{`{"success": "yes", "result": 1}`, `ok {"success":"yes","result":1}`},
		{`{"success": null}`, `ok {"success":null}`},
		{`[{"success": true}]`, `ok [{"success":true}]`},
		{`{"success": true}`, `ok null`},
		{`{"success": true, "result": null, "error": null, "metadata": null}`, `ok null`},
		{`{"result": {"a": 1}, "success": true}`, `ok {"a":1}`},
		{`{"success": true, "result": [1, 2], "metadata": {"k": 1}}`, `ok [1,2] metadata {"k":1}`},
		{`{"success": true, "error": {"message": "ignored"}}`, `ok null`},

		{`{"success": true, "checkpoint": null}`, `ok null`},
		{`{"success": true, "checkpoint": {"cursor": 1}, "result": null}`, `ok null checkpoint {"cursor":1}`},
		{`{"success": true, "checkpoint": {"accumulated_results": [1.50], "items_processed": 7, "timestamp": 1, "cursor": {"a": 1}}}`,
			`ok null checkpoint {"accumulated_results":[1.50],"items_processed":7,"cursor":{"a":1}}`},
		{`{"success": true, "checkpoint": 5}`, `invalid_result permanent: checkpoint is 5; want an object with a cursor`},
		{`{"success": true, "checkpoint": {}}`, `invalid_result permanent: checkpoint.cursor is required`},
		{`{"success": true, "checkpoint": {"cursor": null}}`, `invalid_result permanent: checkpoint.cursor is required`},
		{`{"success": true, "checkpoint": {"cursor": 1, "items_processed": "7"}}`,
			`invalid_result permanent: checkpoint.items_processed is a string; want an integer from 0`},
		{`{"success": true, "checkpoint": {"cursor": 1}, "result": 1}`,
			`invalid_result permanent: checkpoint requires success and no result: the step runs again`},
		{`{"success": false, "checkpoint": {"cursor": 1}}`,
			`invalid_result permanent: checkpoint requires success and no result: the step runs again`},
		{`{"checkpoint": {"cursor": 1}}`, `ok {"checkpoint":{"cursor":1}}`},

		{`{"success": false}`, `handler_error retryable`},
		{`{"success": false, "error": null}`, `handler_error retryable`},
		{`{"success": false, "error": {}}`, `handler_error retryable`},
		{`{"success": false, "error": {"error_type": "declined", "retryable": false}}`, `declined permanent`},
		{`{"success": false, "error": {"error_type": "busy", "retryable": true, "status_code": 503}}`,
			`busy retryable 503`},
		{`{"success": false, "error": {"message": null, "error_type": null, "retryable": null, ` +
			`"status_code": null, "context": null}}`, `handler_error retryable`},
		{`{"success": false, "error": {"error_type": ""}, "metadata": {"k": 1}}`,
			`handler_error retryable metadata {"k":1}`},

		{`{"success": false, "error": "text"}`, `invalid_result permanent: error is a string; want an object`},
		{`{"success": true, "metadata": [1]}`, `invalid_result permanent: metadata is a list; want an object`},
		{`{"success": true, "error": 5}`, `invalid_result permanent: error is 5; want an object`},
		{`{"success": false, "error": {"message": 1}}`,
			`invalid_result permanent: error.message is 1; want a string`},
		{`{"success": false, "error": {"error_type": true}}`,
			`invalid_result permanent: error.error_type is true or false; want a string`},
		{`{"success": false, "error": {"retryable": "no"}}`,
			`invalid_result permanent: error.retryable is a string; want true or false`},
		{`{"success": false, "error": {"status_code": 503.0}}`, `handler_error retryable 503`},
		{`{"success": false, "error": {"status_code": 503.5}}`,
			`invalid_result permanent: error.status_code is 503.5; want an integer from 0 to 65535`},
		{`{"success": false, "error": {"status_code": -1}}`,
			`invalid_result permanent: error.status_code is -1; want an integer from 0 to 65535`},
		{`{"success": false, "error": {"status_code": 65536}}`,
			`invalid_result permanent: error.status_code is 65536; want an integer from 0 to 65535`},
		{`{"success": false, "error": {"context": "x"}}`,
			`invalid_result permanent: error.context is a string; want an object`},

		{`{"items": [1, 2], "success": true}`, `ok {"items":[1,2],"success":true}`},
		{`{"success": true, "result": {"a": 1}, "note": null}`,
			`ok {"success":true,"result":{"a":1},"note":null}`},
		{`{"success": true, "metadata": [1], "n": 1}`, `ok {"success":true,"metadata":[1],"n":1}`},
		{`{"success": false, "reason": "declined"}`,
			`handler_error retryable: {"success":false,"reason":"declined"}`},
		{`{"success": false, "error": {"message": "m", "error_type": "declined", "retryable": false}, "id": 7}`,
			`declined permanent: {"success":false,"error":{"message":"m","error_type":"declined",` +
				`"retryable":false},"id":7}`},
		{`{"success": false, "error": {"error_type": "declined", "status_code": -1}, "id": 7}`,
			`handler_error retryable`},
		{`{"success": false, "error": "text", "id": 7}`,
			`handler_error retryable: {"success":false,"error":"text","id":7}`},

		{`{"success": true, "decision_point_outcome": "no_branches"}`, `ok {"decision_point_outcome":"no_branches"}`},
		{`{"batch_processing_outcome": {"type": "no_batches"}, "success": true, "result": {"n": 0}}`,
			`ok {"n":0,"batch_processing_outcome":{"type":"no_batches"}}`},
		{`{"success": true, "result": {"decision_point_outcome": 1}, "decision_point_outcome": 2}`,
			`ok {"decision_point_outcome":2}`},
		{`{"success": true, "result": 5, "decision_point_outcome": null}`, `ok 5`},
		{`{"success": true, "result": [1], "decision_point_outcome": "no_branches"}`,
			`invalid_result permanent: result is a list; want an object`},
		{`{"success": false, "decision_point_outcome": "no_branches"}`, `handler_error retryable`},

		{`hello`, `invalid_result permanent`},
		{`{"a": 1} x`, `invalid_result permanent`},
		{`{"a":`, `invalid_result permanent`},
		{`1e400`, `invalid_result permanent`},
		{"\v", `invalid_result permanent`},
		{strings.Repeat(" ", 200) + `1`, `ok 1`},
		{`"` + strings.Repeat("x", 254) + `"`, `ok "` + strings.Repeat("x", 254) + `"`},
		{`"` + strings.Repeat("x", 255) + `"`, `result_too_large permanent`},
	} {
		o := parseReply([]byte(row.reply), 256)
		got := showOutcome(o)
		if strings.Contains(row.want, ": ") && o.err != nil {
			got += ": " + strings.TrimPrefix(o.err.message, "the reply's ")
		}
		if strings.HasPrefix(row.want, "ok ") {
			row.want = strings.TrimSpace(row.want)
		}
		if got != row.want {
			t.Errorf("%.80s: got %s; want %s", row.reply, got, row.want)
		}
		if o.err != nil && o.err.message == "" {
			t.Errorf("%.80s: an error without a message", row.reply)
		}
	}
}

func TestReplyErrorTexts(t *testing.T) {
	o := parseReply([]byte(`{"success": false, "error": {"message": "cannot reach amqp://u:s3cret@h/",
		"context": {"n": 1.0, "to": "amqp://u:s3cret@h/"}}}`), 1000)
	if got, want := o.err.message, "cannot reach amqp://[REDACTED]@h/"; got != want {
		t.Errorf("message: got %s; want %s", got, want)
	}
	if got, want := string(o.err.context), `{"n":1.0,"to":"amqp://[REDACTED]@h/"}`; got != want {
		t.Errorf("context: got %s; want %s", got, want)
	}
}

func TestHTTPErrorKeepsTheReply(t *testing.T) {
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(503)
		io.WriteString(w, "cannot reach postgres://u:s3cret@db/x: "+strings.Repeat("é", 10000))
	})
	o := callHandler(t, newTestHandlers(t, nil), s.URL)
	want := strings.TrimPrefix(s.URL, "http://") + " replied 503 Service Unavailable: cannot reach postgres://[REDACTED]@db/x: é"
	if !strings.HasPrefix(o.err.message, want) || len(o.err.message) > len(want)+maxQuoted {
		t.Errorf("got %s; want %s…", o.err.message, want)
	}
	var context struct{ Body string }
	json.Unmarshal(o.err.context, &context)
	if n := len(context.Body); n > maxErrorText+16 || n < maxErrorText-16 {
		t.Errorf("the error keeps %d bytes; want about %d", n, maxErrorText)
	}
	if want := "cannot reach postgres://[REDACTED]@db/x: é"; !strings.HasPrefix(context.Body, want) {
		t.Errorf("got %.60s; want %s…", context.Body, want)
	}
}

// TestEchoedSecretsAreHidden returns the headers of the request in every part of a reply that
// is kept.
func TestEchoedSecretsAreHidden(t *testing.T) {
	t.Parallel()
	const key, cookie = `s3cr3t "k\ey"/ü`, "s3ssi0n"
	var status int
	var reply string
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		if status/100 == 3 {
			w.Header().Set("Location", reply)
		}
		w.WriteHeader(status)
		io.WriteString(w, reply)
	})
	h := newTestHandlers(t, func(c *workerConfig) {
		c.MaxResultBytes = 1 << 16
		c.HTTPHeaders = headerTables{
			"":          {"X-Key": key, "Accept": "application/json", "X-Mode": "on"},
			s.URL:       {"Authorization": "Bearer t0k3n/+==", "Cookie": "a=1; session=" + cookie},
			"elsewhere": {"X-Other": "not-sent-here"},
		}
	})
	quoted := string(appendJSONString(nil, key))
	var escaped strings.Builder
	for _, unit := range utf16.Encode([]rune(key)) {
		fmt.Fprintf(&escaped, `\u%04X`, unit)
	}
	for _, tt := range []struct {
		status      int
		reply, want string // want: the outcome with its error
	}{
		{200, `{"a":"Bearer t0k3n/+==","b":["t0k3n/+==","xt0k3n/+==y"],"c":"Bearer"}`,
			`ok {"a":"[REDACTED]","b":["[REDACTED]","x[REDACTED]y"],"c":"Bearer"}`},
		{200, `{"k":` + quoted + `,"e":"` + escaped.String() + `","t0k3n/+==":1}`,
			`ok {"k":"[REDACTED]","e":"[REDACTED]","[REDACTED]":1}`},
		{200, `{"cookies":{"a":"1","session":"` + cookie + `"}}`,
			`ok {"cookies":{"a":"1","session":"[REDACTED]"}}`},
		{200, `{"accept":"application/json","mode":"on","one":1,"other":"not-sent-here","line":"\n\u0041"}`,
			`ok {"accept":"application/json","mode":"on","one":1,"other":"not-sent-here","line":"\n\u0041"}`},
		{200, `{"success":true,"result":"t0k3n/+==","metadata":{"m":"t0k3n/+=="}}`,
			`ok "[REDACTED]" metadata {"m":"[REDACTED]"}`},
		{200, `{"success":false,"error":{"message":"t0k3n/+== is bad","error_type":"t0k3n/+==","context":{"t0k3n/+==":1}}}`,
			`[REDACTED] retryable 200 [REDACTED] is bad {"[REDACTED]":1}`},
		{200, `{"t0k3n/+==":1,"[REDACTED]":2}`,
			`invalid_result permanent 200 HOST: the reply: invalid JSON at offset 16: duplicate member "[REDACTED]": ` +
				`{"[REDACTED]":1,"[REDACTED]":2} {"body":"{\"[REDACTED]\":1,\"[REDACTED]\":2}"}`},
		{200, `{"t0k3n/+==":1,"t0k3n/+==":2}`,
			`invalid_result permanent 200 HOST: the reply: invalid JSON at offset 15: duplicate member "[REDACTED]": ` +
				`{"[REDACTED]":1,"[REDACTED]":2} {"body":"{\"[REDACTED]\":1,\"[REDACTED]\":2}"}`},
		{200, "<h1>Bearer t0k3n/+==</h1>",
			`invalid_result permanent 200 HOST: the reply: invalid JSON at offset 0: unexpected character '<', want a value: ` +
				`<h1>[REDACTED]</h1> {"body":"<h1>[REDACTED]</h1>"}`},
		{200, `"` + strings.Repeat("s3ssi0n", (1<<16)/7-1) + `"`,
			`result_too_large permanent 200 the reply is larger than worker.max_result_bytes, 65536 `},
		{500, "you sent Bearer t0k3n/+==", `http_500 retryable 500 {"body":"you sent [REDACTED]"}`},
		{500, `{"k":` + quoted + `,"t":"t0k3n\/+=="}`, // as PHP escapes it
			`http_500 retryable 500 {"body":"{\"k\":\"[REDACTED]\",\"t\":\"[REDACTED]\"}"}`},
		{500, `<p title="` + escaped.String() + `">\n`, `http_500 retryable 500 {"body":"<p title=\"[REDACTED]\">\\n"}`},
		{500, `you sent "C:\\\/"`, `http_500 retryable 500 {"body":"you sent \"C:\\\\\\/\""}`},
		{401, strings.Repeat("x", maxErrorText-4) + escaped.String(),
			`http_401 permanent 401 {"body":"` + strings.Repeat("x", maxErrorText-4) + `[RED"}`},
		{401, strings.Repeat("x", maxErrorText-4) + "t0k3n/+==", // cut in two by the limit
			`http_401 permanent 401 {"body":"` + strings.Repeat("x", maxErrorText-4) + `[RED"}`},
		// The text that is read ends in the middle of a secret, and hiding moves that to the
		// front.
		{401, "xxxx" + strings.Repeat("Bearer t0k3n/+==", 1000), ""},
		{302, "/login?t0k3n/+==", `redirect permanent 302 {"location":"` + s.URL + `/login"}`},
		{302, "/" + url.PathEscape(key), `redirect permanent 302 {"location":"` + s.URL + `/%5BREDACTED%5D"}`},
		{302, "/" + cookie + "/x", `redirect permanent 302 {"location":"` + s.URL + `/%5BREDACTED%5D/x"}`},
	} {
		status, reply = tt.status, tt.reply
		o := callHandler(t, h, s.URL)
		got := showOutcome(o)
		if o.err != nil {
			got += " " + strings.TrimPrefix(errorText(o), o.err.message+" ")
			if tt.status == 200 {
				got = showOutcome(o) + " " + errorText(o)
			}
		}
		want := strings.Replace(tt.want, "HOST", strings.TrimPrefix(s.URL, "http://"), 1)
		if want != "" && got != want {
			t.Errorf("%d %.60s: got %.300s; want %.300s", tt.status, tt.reply, got, want)
		}
		for _, part := range []string{"t0k3n", "s3ss", "s3cr3t"} {
			if strings.Contains(got, part) {
				t.Errorf("%d %.60s: got %q in %.200s", tt.status, tt.reply, part, got)
			}
		}
	}
}

func TestBuiltins(t *testing.T) {
	for _, row := range []struct {
		name, config string
		number       int
		want         string
		delay        time.Duration
	}{
		{"noop", `{}`, 1, `ok null`, 0},
		{"noop", `{"anything": [1]}`, 1, `ok null`, 0},
		{"echo", `{}`, 1, `ok {"order":8}`, 0},

		{"sleep", `{}`, 1, `ok null`, 0},
		{"sleep", `{"duration_ms": null}`, 1, `ok null`, 0},
		{"sleep", `{"duration_ms": 1500}`, 1, `ok null`, 1500 * time.Millisecond},
		{"sleep", `{"duration_ms": 1000000000000}`, 1, `ok null`, 1000000000 * time.Second},
		{"sleep", `{"duration_ms": 1000000000001}`, 1,
			"initialization.duration_ms is 1000000000001; want an integer from 0 to 1000000000000", 0},
		{"sleep", `{"duration_ms": -1}`, 1,
			"initialization.duration_ms is -1; want an integer from 0 to 1000000000000", 0},
		{"sleep", `{"duration_ms": 1.5}`, 1,
			"initialization.duration_ms is 1.5; want an integer from 0 to 1000000000000", 0},
		{"sleep", `{"duration_ms": "2s"}`, 1,
			"initialization.duration_ms is a string; want an integer from 0 to 1000000000000", 0},

		{"fail", `{}`, 1, `builtin_fail permanent`, 0},
		{"fail", `{"retryable": true, "error_type": "down", "message": "m"}`, 1, `down retryable`, 0},
		{"fail", `{"retryable": null, "error_type": ""}`, 1, `builtin_fail permanent`, 0},
		{"fail", `{"retryable": 1}`, 1, "initialization.retryable is 1; want true or false", 0},
		{"fail", `{"message": {}}`, 1, "initialization.message is an object; want a string", 0},
		{"fail", `{"error_type": []}`, 1, "initialization.error_type is a list; want a string", 0},

		{"flaky", `{}`, 1, `builtin_flaky retryable`, 0},
		{"flaky", `{}`, 2, `ok {"attempts":2}`, 0},
		{"flaky", `{"failures": 0}`, 1, `ok {"attempts":1}`, 0},
		{"flaky", `{"failures": 2}`, 2, `builtin_flaky retryable`, 0},
		{"flaky", `{"failures": 2}`, 3, `ok {"attempts":3}`, 0},
		{"flaky", `{"failures": -2}`, 3, "initialization.failures is -2; want an integer from 0 to 1000000", 0},
		{"flaky", `{"failures": true}`, 3,
			"initialization.failures is true or false; want an integer from 0 to 1000000", 0},

		{"sum", `{}`, 1, `ok 0`, 0},
		{"sum", `{"add": 3}`, 1, `ok 3`, 0},
		{"sum", `{"add": "3"}`, 1, "initialization.add is a string; want a number", 0},

		{"decide", `{"field": "order", "branches": {"8": ["a", "b"], "9": []}, "default": ["c"]}`, 1,
			`ok {"decision_point_outcome":{"type":"create_steps","step_names":["a","b"]}}`, 0},
		{"decide", `{"field": "other", "branches": {"8": ["a"]}, "default": ["c"]}`, 1,
			`ok {"decision_point_outcome":{"type":"create_steps","step_names":["c"]}}`, 0},
		{"decide", `{"field": "order"}`, 1, `ok {"decision_point_outcome":{"type":"no_branches"}}`, 0},
		{"decide", `{}`, 1, "initialization.field is missing; want the name of a member of the inputs", 0},
		{"decide", `{"field": "order", "branches": []}`, 1,
			"initialization.branches is a list; want an object of lists of step names", 0},

		{"batch", `{}`, 1, `ok {"batch_processing_outcome":{"type":"no_batches"}}`, 0},
		{"batch", `{"total_items": 5, "batch_size": 3, "worker_template_name": "w"}`, 1,
			`ok {"batch_processing_outcome":{"type":"create_batches","worker_template_name":"w","worker_count":2,"cursor_configs":[` +
				`{"batch_id":"001","start_cursor":0,"end_cursor":3,"batch_size":3},` +
				`{"batch_id":"002","start_cursor":3,"end_cursor":5,"batch_size":3}],"total_items":5}}`, 0},
		{"batch", `{"total_items": 5, "batch_size": 0}`, 1, "initialization.batch_size is 0; want at least 1", 0},
		{"batch", `{"total_items": 10001, "batch_size": 1}`, 1, "10001 items make 10001 batches of 1, more than 10000", 0},

		{"tally", `{}`, 1, `ok {"value":0}`, 0},
		{"tally", `{"cursor": {"start_cursor": 20, "end_cursor": 25}}`, 1, `ok {"value":5}`, 0},
		{"tally", `{"cursor": 7}`, 1, "initialization.cursor is 7; want an object", 0},
		{"tally", `{"cursor": {"end_cursor": "x"}}`, 1,
			"cursor.end_cursor is a string; want an integer from 0 to 1000000000000000", 0},
	} {
		a := newTestAttempt(row.config)
		a.number = row.number
		o, delay := runBuiltin(t, row.name, a)
		got := showOutcome(o)
		if o.err != nil && o.err.errorType == invalidConfigType && !o.err.retryable {
			got = o.err.message
		}
		if got != row.want || delay != row.delay {
			t.Errorf("%s %s, attempt %d: got %s after %v; want %s after %v",
				row.name, row.config, row.number, got, delay, row.want, row.delay)
		}
	}
}

func handlerTestEnv(name string) string {
	return map[string]string{
		"PATH": "/usr/bin:relative:/bin", "TZ": "UTC", "STEPWELL_ADMIN_KEY": "secret", "OTHER": "x",
	}[name]
}

func TestAttachedTextIsCleanAndYields(t *testing.T) {
	for _, row := range []struct{ context, text, want string }{
		{"", "", ""},
		{"", " \n", ""},
		{"", "a\x00b\xffc", `{"stderr":"a` + "\ufffd" + `b` + "\ufffd" + `c"}`},
		{"", "no route to postgres://u:s3cret@db/x", `{"stderr":"no route to postgres://[REDACTED]@db/x"}`},
		{`{"stderr":"own"}`, "other", `{"stderr":"own"}`},
	} {
		e := stepError{}
		if row.context != "" {
			e.context = []byte(row.context)
		}
		e.attach("stderr", []byte(row.text))
		if got := string(e.context); got != row.want {
			t.Errorf("attach %q to %s: got %s; want %s", row.text, row.context, got, row.want)
		}
	}
}

// TestMessagesQuoteText checks that a message repeats the start of a handler's text, as one line without secrets.
func TestMessagesQuoteText(t *testing.T) {
	for text, want := range map[string]string{
		" \n": "m", "KeyError:\r\n\t'sent'\n": "m: KeyError: 'sent'", "to http://u:s3cret@h/": "m: to http://[REDACTED]@h/",
		strings.Repeat("é", maxQuoted): "m: " + strings.Repeat("é", maxQuoted/2) + "…",
	} {
		e := stepError{message: "m"}
		if e.quote([]byte(text)); e.message != want {
			t.Errorf("got %q; want %q", e.message, want)
		}
	}
}

func TestErrorTypesAreFoundInOrder(t *testing.T) {
	for errorType, want := range map[string]bool{
		"timeout": true, "cancelled": true, "http_408": true, "http_425": true, "http_429": true, "http_500": true,
		"http_599": true, "http_400": false, "http_404": false, "http_101": false, "redirect": false,
		"exit_75": true, "exit_7": false, "exit_750": false, "signal_9": true, "result_too_large": false,
	} {
		if got := typedFailure(errorType, "m").err.retryable; got != want {
			t.Errorf("%s: got retryable %v; want %v", errorType, got, want)
		}
	}
}

// TestLongReplyIsCutInMessage checks that a failure whose message is the whole reply
// keeps the beginning of a long one, without credentials.
func TestLongReplyIsCutInMessage(t *testing.T) {
	reply := `{"success":false,"at":"amqp://u:s3cret@h/","why":"` + strings.Repeat("é", maxErrorText) + `"}`
	got := parseReply([]byte(reply), 1<<20).err.message
	if want := `{"success":false,"at":"amqp://[REDACTED]@h/","why":"éé`; !strings.HasPrefix(got, want) {
		t.Errorf("got %.100s; want %s", got, want)
	}
	if len(got) > maxErrorText+len("…") || !strings.HasSuffix(got, "é…") {
		t.Errorf("got %d bytes ending in %q", len(got), got[len(got)-8:])
	}
}

func FuzzParseReply(f *testing.F) {
	for _, seed := range []string{
		``, `null`, ` {"a" : [1, "x"]}`, `{"success":true,"result":{"a":1e3},"metadata":{}}`,
		`{"success":false,"error":{"message":"m","error_type":"t","retryable":false,"status_code":4,"context":{}}}`,
		`{"success":false,"error":{"context":{"a":"x://u:p@h\n"}}}`, `{"success":false,"error":7}`,
		`{"success":1}`, `[`, `{"success":false,"why":"x://u:p@h"}`, `{"success":true,"decision_point_outcome":[]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		given := bytes.Clone(data)
		o := parseReply(data, 1000)
		if !bytes.Equal(given, data) {
			t.Fatalf("the reply was changed to %q", data)
		}
		if o.success != (o.err == nil) {
			t.Fatalf("success %v with the error %v", o.success, o.err)
		}
		for _, text := range [][]byte{o.result, o.metadata} {
			if text != nil && (checkJSON(text) != nil || !bytes.Equal(compactJSON(nil, text), text)) {
				t.Fatalf("not JSON, or not compact: %q", text)
			}
		}
		if o.metadata != nil && o.metadata[0] != '{' {
			t.Fatalf("metadata is no object: %q", o.metadata)
		}
		if o.err == nil {
			return
		}
		if o.err.message == "" || o.err.errorType == "" || o.err.statusCode < 0 {
			t.Fatalf("incomplete error: %+v", o.err)
		}
		var members map[string]any
		if err := json.Unmarshal(o.err.appendJSON(nil), &members); err != nil || len(members) != 5 {
			t.Fatalf("error as JSON: %s: %v", o.err.appendJSON(nil), err)
		}
	})
}
