package main

// The bodies of requests, read and checked.

import (
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// FuzzRequests reads any JSON as a creation payload and as a step action: both
// accept it or say why not, and what is accepted can be journaled and read again.
func FuzzRequests(f *testing.F) {
	for _, body := range []string{
		`{"name":"n","namespace":null,"context":{"a":[1.50]},"tags":["x","\u00e9"],"priority":1e400}`,
		`{"name":"n","priority":-12345678901234567890,"correlation_id":"0198c0de-0000-7000-8000-000000000001",` +
			`"requested_at":"2026-01-02T03:04:05.123456789","options":{},"idempotency_key":"k","version":""}`,
		`{"action_type":"reset_for_retry","reason":"r","reset_by":"b"}`,
		`{"action_type":"complete_manually","completion_data":{"result":null,"metadata":{"a":1}},"reason":"r","completed_by":"b"}`,
		`{"action_type":"fail","error":{"message":"m","error_type":null,"retryable":false},"reason":"r","failed_by":"b"}`,
		`{"action_type":"resolve_manually","reason":5}`, `[]`, `null`, ` {"name" : "n" } `,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if checkJSON(body) != nil {
			return
		}
		if q, err := parseTaskRequest(body); acceptable(t, err) {
			checkCreationRoundTrip(t, q)
		}
		if q, err := parseStepRequest(body); acceptable(t, err) {
			checkActionRoundTrip(t, q)
		}
	})
}

// acceptable is whether a body was accepted; if not, the refusal must say why.
func acceptable(t *testing.T, err error) bool {
	t.Helper()
	if err == nil {
		return true
	}
	f, ok := err.(*failure)
	if !ok || f.kind != badRequest && (f.kind != invalidFields || len(f.details) == 0) || !utf8.ValidString(f.message) {
		t.Errorf("refused by %#v", err)
	}
	return false
}

func checkCreationRoundTrip(t *testing.T, q *taskRequest) {
	t.Helper()
	by := &creation{template: "h", context: q.context, initiator: orDefault(q.initiator, defaultInitiator),
		source: orDefault(q.source, defaultSource), reason: orDefault(q.reason, defaultReason), tags: q.tags,
		priority: q.priority, correlation: q.correlation, parentCorrelation: q.parent, requested: q.requested,
		options: q.options, key: q.key}
	if by.context == nil {
		by.context = []byte("{}")
	}
	if q.name == "" || q.namespace == "" || max(q.priority, -q.priority) > priorityLimit {
		t.Errorf("accepted %+v", q)
	}
	checkRoundTrip(t, &record{kind: recCreated, step: -1, created: by})
}

func checkActionRoundTrip(t *testing.T, q *stepRequest) {
	t.Helper()
	r := &record{kind: recOperator, action: q.action, by: q.by, reason: q.reason}
	switch q.action {
	case noAction:
		t.Errorf("accepted %+v", q)
	case actionComplete:
		r.end = &ending{success: true, result: q.result, metadata: q.completionMetadata()}
	case actionFail:
		r.end = &ending{err: q.err.appendJSON(nil)}
	}
	checkRoundTrip(t, r)
}

// checkRoundTrip writes a record, reads it and writes it again.
func checkRoundTrip(t *testing.T, r *record) {
	t.Helper()
	text := append(appendRecordMembers([]byte{'{'}, r), '}')
	if err := checkJSON(text); err != nil || !json.Valid(text) {
		t.Fatalf("%s is not JSON: %v", text, err)
	}
	again, err := decodeRecord(text)
	if err != nil {
		t.Fatalf("%s is refused: %v", text, err)
	}
	if got := append(appendRecordMembers([]byte{'{'}, again), '}'); string(got) != string(text) {
		t.Errorf("got %s; want %s", got, text)
	}
}
