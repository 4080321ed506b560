package main

import (
	"strings"
	"testing"
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
