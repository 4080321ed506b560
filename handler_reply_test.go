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

// The configuration refuses such targets with file and line; nothing runs them anyway.
func TestUnusableTargetsFail(t *testing.T) {
	h := newHandlerSet(&workerConfig{
		Handlers: map[string]string{
			"A": "builtin:nope", "B*": "http://me:s3cret@", "D": "builtin:noop", "E": "exec:a/b",
		},
		DefaultHandler: "http://h:x/",
	}, "1", handlerTestEnv)
	for callable, want := range map[string]string{
		"A": `unknown builtin "nope"; want noop, echo, sleep, fail, flaky, sum, decide, batch or tally`,
		"B": "the URL has no host",
		"E": "the program is neither an absolute path nor a bare name",
		"F": "the URL is malformed",
	} {
		o := h.run(context.Background(), h.resolve(callable), newTestAttempt(`{}`))
		if o.err == nil || o.err.errorType != invalidHandlerType || o.err.message != want {
			t.Errorf("%s: got %s, %v; want %s", callable, showOutcome(o), o.err, want)
		}
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
