package main

// Why attempts fail: the types of errors, which of them are retried, and what an error keeps of
// a handler's text.

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
)

// stepError is why an attempt failed.
type stepError struct {
	message    string
	errorType  string
	retryable  bool
	statusCode int    // HTTP status of the handler's reply; 0 for none
	context    []byte // a JSON object, or nil
}

// Error types that the program tests for, or gives in more than one place.
const (
	timeoutType         = "timeout"
	workerLostType      = "worker_lost"
	cancelledType       = "cancelled" // the context of run was cancelled
	invalidHandlerType  = "invalid_handler"
	invalidConfigType   = "invalid_config"
	invalidResultType   = "invalid_result"
	invalidOutcomeType  = "invalid_outcome"
	schemaMismatchType  = "schema_mismatch"
	resultTooLargeType  = "result_too_large"
	handlerErrorType    = "handler_error"
	checkpointLimitType = "too_many_checkpoints"
	programUnusableType = "program_unusable"
)

// errorTypeRow documents an error type, and whether it is retryable.
type errorTypeRow struct {
	name      string // with … at the end: every type with this prefix
	retryable bool
	help      string
}

// handlerErrorTypes holds every error_type that does not come from a handler's
// reply or configuration. The first row that fits counts.
var handlerErrorTypes = []errorTypeRow{
	{timeoutType, true, "the attempt took longer than timeout_seconds"},
	{cancelledType, true, "the service stopped the attempt: the task was cancelled or the service shut down"},
	{workerLostType, true, "the worker was lost: this service crashed, or an actor's lease expired"},
	{"network_error", true, "no HTTP reply: name, connection, TLS or protocol failed"},
	{"http_408", true, "HTTP 408 Request Timeout"},
	{"http_425", true, "HTTP 425 Too Early"},
	{"http_429", true, "HTTP 429 Too Many Requests"},
	{"http_5…", true, "HTTP 5xx, the status at the end"},
	{"http_…", false, "any other HTTP status outside 2xx and 3xx, the status at the end"},
	{"redirect", false, "HTTP 3xx: redirects are never followed"},
	{invalidResultType, false, "the reply is not JSON, or a full outcome with a member of a wrong type"},
	{invalidOutcomeType, false, "a decision or batchable step decided what its template does not allow"},
	{schemaMismatchType, false, "the result does not fit result_schema, with templates.enforce_input_schema = \"reject\""},
	{resultTooLargeType, false, "the reply is larger than worker.max_result_bytes"},
	{invalidHandlerType, false, "the callable is an unknown builtin, a malformed URL or an invalid program"},
	{invalidConfigType, false, "handler.initialization has a member of a wrong type or value"},
	{"exec_not_allowed", false, "the handler is a program, and worker.allow_exec is off"},
	{programUnusableType, false, "the program does not exist or cannot be executed"},
	{"exec_unavailable", true, "the system cannot start another process now"},
	{"exit_75", true, "the program exited with 75, EX_TEMPFAIL"},
	{"exit_…", false, "the program exited with this other code"},
	{"signal_…", true, "a signal of this number ended the program"},
	{handlerErrorType, true, "the reply is a failure without an error_type; permanent if retryable is false"},
	{checkpointLimitType, false, "the step has yielded 10,000 times"},
	{"stub_exhausted", false, "fixture mode: the stub has no outcome left and is set to fail then"},
	{"builtin_fail", false, "builtin:fail without an error_type; retryable if so configured"},
	{"builtin_flaky", true, "builtin:flaky on one of its failures"},
}

func (r errorTypeRow) fits(errorType string) bool {
	if prefix, ok := strings.CutSuffix(r.name, "…"); ok {
		return strings.HasPrefix(errorType, prefix)
	}
	return errorType == r.name
}

// failedOutcome returns the outcome of an attempt that failed.
func failedOutcome(errorType, message string, retryable bool) outcome {
	return outcome{err: &stepError{message: message, errorType: errorType, retryable: retryable}}
}

// typedFailure is failedOutcome for a type of handlerErrorTypes, which says whether
// it is retryable.
func typedFailure(errorType, format string, args ...any) outcome {
	i := slices.IndexFunc(handlerErrorTypes, func(r errorTypeRow) bool { return r.fits(errorType) })
	return failedOutcome(errorType, fmt.Sprintf(format, args...), i >= 0 && handlerErrorTypes[i].retryable)
}

func timedOut(limit time.Duration) outcome {
	return typedFailure(timeoutType, "the attempt took longer than %v", limit)
}

func resultTooLarge(limit int64) outcome {
	return typedFailure(resultTooLargeType, "the reply is larger than worker.max_result_bytes, %d", limit)
}

// appendJSON appends the error as a JSON object with all members: an absent
// status_code is null, an absent context {}.
func (e *stepError) appendJSON(dst []byte) []byte {
	o := jsonWriter{b: append(dst, '{')}
	o.text("message", e.message)
	o.text("error_type", e.errorType)
	o.flag("retryable", e.retryable)
	if e.statusCode == 0 {
		o.raw("status_code", nil)
	} else {
		o.number("status_code", e.statusCode)
	}
	o.raw("context", orEmptyObject(e.context))
	return append(o.b, '}')
}

// maxErrorText is how many bytes of a handler's text output an error keeps.
const maxErrorText = 8 << 10

// attach adds a handler's text output to the error's context, unless it is blank
// or the context has the member already.
func (e *stepError) attach(member string, text []byte) {
	if len(bytes.TrimSpace(text)) == 0 {
		return
	}
	object := appendJSONString([]byte{'{'}, member)
	object = appendJSONString(append(object, ':'), cleanText(text))
	e.context = mergeObjects(nil, append(object, '}'), orEmptyObject(e.context))
}

// maxQuoted is how many bytes of a handler's text output a message repeats.
const maxQuoted = 200

// quote appends the start of a handler's text output to the message, as one line.
func (e *stepError) quote(text []byte) {
	if line := strings.Join(strings.Fields(cleanText(text)), " "); line != "" {
		e.message += ": " + clipText(line, maxQuoted)
	}
}

// cleanText makes text from outside safe to show: valid UTF-8, no NUL, no
// credentials in URLs.
func cleanText(text []byte) string {
	s := strings.ToValidUTF8(string(redact(text)), "\ufffd")
	return strings.ReplaceAll(s, "\x00", "\ufffd")
}
