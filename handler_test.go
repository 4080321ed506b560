package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// newTestHandlers returns the handlers of a configuration with small limits, which the change
// function may modify. The environment has only PATH.
func newTestHandlers(t testing.TB, change func(c *workerConfig)) *handlerSet {
	t.Helper()
	c := &workerConfig{MaxResultBytes: 1000, HTTPConcurrency: 16, AllowExec: true}
	if change != nil {
		change(c)
	}
	h, err := newHandlerSet(c, "1.2.3", handlerTestEnv)
	if err != nil {
		t.Fatalf("newHandlerSet: %v", err)
	}
	t.Cleanup(func() {
		h.web.transport.CloseIdleConnections()
		h.web.plain.mu.Lock()
		defer h.web.plain.mu.Unlock()
		h.web.plain.dropLocked(len(h.web.plain.idle))
	})
	return h
}

func handlerTestEnv(name string) string {
	return map[string]string{
		"PATH": "/usr/bin:relative:/bin", "TZ": "UTC", "STEPWELL_ADMIN_KEY": "secret", "OTHER": "x",
	}[name]
}

// newTestAttempt returns an attempt with a configuration.
func newTestAttempt(config string) *attempt {
	return &attempt{
		taskID:        stableID("task"),
		stepID:        stableID("step"),
		namespace:     "shop",
		name:          "order",
		version:       "1.0.0",
		correlationID: "c-1",
		context:       []byte(`{"order":7}`),
		stepName:      "pay",
		number:        2,
		maxAttempts:   3,
		timeout:       30 * time.Second,
		config:        []byte(config),
		inputs:        []byte(`{"order":8}`),
	}
}

// showOutcome shows an outcome without its error's message and context: "ok" and
// the result, or the error type, whether it is retryable, and the status.
func showOutcome(o outcome) string {
	var s string
	switch {
	case o.success && o.err == nil && o.result == nil:
		s = "ok null"
	case o.success && o.err == nil:
		s = "ok " + string(o.result)
	case o.success || o.err == nil:
		return "an outcome that contradicts itself"
	case o.err.retryable:
		s = o.err.errorType + " retryable"
	default:
		s = o.err.errorType + " permanent"
	}
	if o.err != nil && o.err.statusCode != 0 {
		s += fmt.Sprint(" ", o.err.statusCode)
	}
	if o.checkpoint != nil {
		s += " checkpoint " + string(o.checkpoint)
	}
	if o.metadata != nil {
		s += " metadata " + string(o.metadata)
	}
	return s
}

// errorText returns all text of an outcome's error.
func errorText(o outcome) string {
	if o.err == nil {
		return ""
	}
	return o.err.message + " " + string(o.err.context)
}

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

func TestExecNotAllowed(t *testing.T) {
	h := newTestHandlers(t, func(c *workerConfig) {
		c.AllowExec = false
		c.Handlers = map[string]string{"A": "exec:tool"}
	})
	for callable, warned := range map[string]bool{
		"A": true, "exec:/bin/tool": true, "builtin:noop": false, "B": false,
	} {
		if err := h.check(callable); err != nil {
			t.Errorf("check(%q): %v", callable, err)
		}
		if got := h.warning(callable) != ""; got != warned {
			t.Errorf("warning(%q): got %q", callable, h.warning(callable))
		}
		if err := h.missingProgram(callable); err != nil {
			t.Errorf("missingProgram(%q): looked for a program that is not allowed: %v", callable, err)
		}
	}
	o := h.run(new(attemptContext), h.resolve("A"), newTestAttempt(`{}`))
	if got, want := showOutcome(o), "exec_not_allowed permanent"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	if got := newTestHandlers(t, nil).warning("exec:/bin/tool"); got != "" {
		t.Errorf("warning of an allowed program: %q", got)
	}
}

// The configuration refuses such targets with file and line; nothing runs them anyway.
func TestUnusableTargetsFail(t *testing.T) {
	h, err := newHandlerSet(&workerConfig{
		Handlers: map[string]string{
			"A": "builtin:nope", "B*": "http://me:s3cret@", "D": "builtin:noop", "E": "exec:a/b",
		},
		DefaultHandler: "http://h:x/",
		HTTPProxy:      "proxy:s3cret@h",
	}, "1", handlerTestEnv)
	if want := "worker.http_proxy: not a URL like http://proxy:3128"; fmt.Sprint(err) != want {
		t.Errorf("got %v; want %s", err, want)
	}
	for callable, want := range map[string]string{
		"A": `unknown builtin "nope"; want noop, echo, sleep, fail, flaky, sum, decide, batch or tally`,
		"B": "the URL has no host",
		"E": "the program is neither an absolute path nor a bare name",
		"F": "the URL is malformed",
	} {
		o := h.run(new(attemptContext), h.resolve(callable), newTestAttempt(`{}`))
		if o.err == nil || o.err.errorType != invalidHandlerType || o.err.message != want {
			t.Errorf("%s: got %s, %v; want %s", callable, showOutcome(o), o.err, want)
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

func TestStepErrorJSON(t *testing.T) {
	for _, row := range []struct {
		err  stepError
		want string
	}{
		{stepError{message: `a "b"`, errorType: "timeout", retryable: true},
			`{"message":"a \"b\"","error_type":"timeout","retryable":true,"status_code":null,"context":{}}`},
		{stepError{message: "m", errorType: "http_404", statusCode: 404, context: []byte(`{"body":"x"}`)},
			`{"message":"m","error_type":"http_404","retryable":false,"status_code":404,"context":{"body":"x"}}`},
	} {
		if got := string(row.err.appendJSON(nil)); got != row.want {
			t.Errorf("got %s; want %s", got, row.want)
		}
	}
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
			`invalid_result permanent: checkpoint goes with success and without a result: the step runs again`},
		{`{"success": false, "checkpoint": {"cursor": 1}}`,
			`invalid_result permanent: checkpoint goes with success and without a result: the step runs again`},
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

		{`{"items": [1, 2], "success": true}`, `ok {"items":[1,2],"success":true} stray items`},
		{`{"success": true, "result": {"a": 1}, "note": null}`,
			`ok {"success":true,"result":{"a":1},"note":null} stray note`},
		{`{"success": true, "metadata": [1], "n": 1}`, `ok {"success":true,"metadata":[1],"n":1} stray n`},
		{`{"success": false, "reason": "declined"}`,
			`handler_error retryable stray reason: {"success":false,"reason":"declined"}`},
		{`{"success": false, "error": {"message": "m", "error_type": "declined", "retryable": false}, "id": 7}`,
			`declined permanent stray id: {"success":false,"error":{"message":"m","error_type":"declined",` +
				`"retryable":false},"id":7}`},
		{`{"success": false, "error": {"error_type": "declined", "status_code": -1}, "id": 7}`,
			`handler_error retryable stray id`},
		{`{"success": false, "error": "text", "id": 7}`,
			`handler_error retryable stray id: {"success":false,"error":"text","id":7}`},

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
		{strings.Repeat(" ", 300), `result_too_large permanent`},
	} {
		o := parseReply([]byte(row.reply), 256)
		got := showOutcome(o)
		if o.stray != "" {
			got += " stray " + o.stray
		}
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

func TestReplyLimitIsExact(t *testing.T) {
	for length, want := range map[int]string{10: `ok "12345678"`, 11: "result_too_large permanent"} {
		reply := `"` + "123456789"[:length-2] + `"`
		if got := showOutcome(parseReply([]byte(reply), 10)); got != want {
			t.Errorf("%d bytes: got %s; want %s", length, got, want)
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

// TestAttemptContext checks that the context of an attempt ends as one of the standard library does, and that
// another handler gets another time.
func TestAttemptContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(attemptContext)
		if _, ok := c.Deadline(); ok || c.Err() != nil {
			t.Errorf("a new one: got a deadline %v, %v", ok, c.Err())
		}
		began := time.Now()
		c.begin(time.Minute)
		if until, ok := c.Deadline(); !ok || until != began.Add(time.Minute) {
			t.Errorf("got the deadline %v, %v", until, ok)
		}
		ends := make(chan time.Duration, 3)
		ended := func() { ends <- time.Since(began) }
		c.AfterFunc(ended)
		context.AfterFunc(c, ended)
		kept := c.AfterFunc(ended)
		if !c.AfterFunc(ended)() || !context.AfterFunc(c, ended)() {
			t.Error("a function that was not called could not be stopped")
		}
		child, stop := context.WithCancel(c)
		defer stop()
		<-child.Done()
		for range 3 {
			if at := <-ends; at != time.Minute {
				t.Errorf("a function was called after %v", at)
			}
		}
		if c.Err() != context.DeadlineExceeded || child.Err() != context.DeadlineExceeded || kept() {
			t.Errorf("after the deadline: got %v, %v", c.Err(), child.Err())
		}
		c.rest()

		c.begin(time.Hour)
		if c.Err() != nil {
			t.Errorf("for another handler: got %v", c.Err())
		}
		c.cancel()
		<-c.Done()
		if c.rest(); c.Err() != context.Canceled || c.AfterFunc(ended)() {
			t.Errorf("cancelled: got %v", c.Err())
		}
		<-ends
		c.begin(time.Hour)
		if c.rest(); c.Err() != context.Canceled {
			t.Errorf("cancelled, for another handler: got %v", c.Err())
		}
	})
}
