package main

// Why attempts fail: the error of a step, and the error types that the service
// itself gives.

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// stepError is why an attempt failed.
type stepError struct {
	message    string
	errorType  string
	retryable  bool
	statusCode int    // HTTP status of the handler's reply; 0 when there was none
	context    []byte // a JSON object, or nil
}

// Error types that the program goes by, or gives in more than one place.
const (
	timeoutType         = "timeout"
	workerLostType      = "worker_lost"
	cancelledType       = "cancelled" // what run gives when its context was cancelled
	invalidHandlerType  = "invalid_handler"
	invalidConfigType   = "invalid_config"
	invalidResultType   = "invalid_result"
	invalidOutcomeType  = "invalid_outcome"
	resultTooLargeType  = "result_too_large"
	handlerErrorType    = "handler_error"
	stubExhaustedType   = "stub_exhausted"
	programUnusableType = "program_unusable"
)

// errorTypeRow documents an error type and decides whether it is retryable.
type errorTypeRow struct {
	name      string // with … at the end: every type that begins so
	retryable bool
	help      string
}

// handlerErrorTypes holds every error_type that does not come from a handler's
// reply or configuration; the first row that fits counts.
var handlerErrorTypes = []errorTypeRow{
	{timeoutType, true, "the attempt took longer than timeout_seconds"},
	{cancelledType, true, "the service cut the attempt off: its task was cancelled, or the service stops"},
	{workerLostType, true, "what ran the attempt went away: this service crashed, or an actor's lease expired"},
	{"network_error", true, "no HTTP reply: name, connection, TLS or protocol failed"},
	{"http_408", true, "HTTP 408 Request Timeout"},
	{"http_425", true, "HTTP 425 Too Early"},
	{"http_429", true, "HTTP 429 Too Many Requests"},
	{"http_5…", true, "HTTP 5xx, the status at the end"},
	{"http_…", false, "any other HTTP status outside 2xx and 3xx, the status at the end"},
	{"redirect", false, "HTTP 3xx: redirects are never followed"},
	{invalidResultType, false, "the reply is not JSON, or a full outcome with a member of a wrong type"},
	{invalidOutcomeType, false, "a decision or batchable step decided what its template does not allow"},
	{resultTooLargeType, false, "the reply is larger than worker.max_result_bytes"},
	{invalidHandlerType, false, "the callable is an unknown builtin, a malformed URL or no program"},
	{invalidConfigType, false, "handler.initialization has a member of a wrong type or value"},
	{"exec_not_allowed", false, "the handler is a program, and worker.allow_exec is off"},
	{programUnusableType, false, "the program is not there or cannot be executed"},
	{"exec_unavailable", true, "the system has no room for another process now"},
	{"exit_75", true, "the program exited with 75, EX_TEMPFAIL"},
	{"exit_…", false, "the program exited with this other code"},
	{"signal_…", true, "a signal of this number ended the program"},
	{handlerErrorType, true, "the reply is a failure without an error_type; permanent if it says so"},
	{stubExhaustedType, false, "fixture mode: a stub that fails then has no outcome left"},
	{"builtin_fail", false, "builtin:fail without an error_type; retryable if so configured"},
	{"builtin_flaky", true, "builtin:flaky on one of its failures"},
}

func (r errorTypeRow) fits(errorType string) bool {
	if prefix, ok := strings.CutSuffix(r.name, "…"); ok {
		return strings.HasPrefix(errorType, prefix)
	}
	return errorType == r.name
}

// failedOutcome is the outcome of an attempt that failed.
func failedOutcome(errorType, message string, retryable bool) outcome {
	return outcome{err: &stepError{message: message, errorType: errorType, retryable: retryable}}
}

// typedFailure is failedOutcome for a type of handlerErrorTypes, as retryable
// as it says there.
func typedFailure(errorType, format string, args ...any) outcome {
	o := failedOutcome(errorType, fmt.Sprintf(format, args...), false)
	for _, r := range handlerErrorTypes {
		if r.fits(errorType) {
			o.err.retryable = r.retryable
			break
		}
	}
	return o
}

func timedOut(limit time.Duration) outcome {
	return typedFailure(timeoutType, "the attempt took longer than %v", limit)
}

func resultTooLarge(limit int64) outcome {
	return typedFailure(resultTooLargeType, "the reply is larger than worker.max_result_bytes, %d", limit)
}

// appendJSON appends the error as a JSON object with all its members: an absent
// status_code is null, an absent context {}.
func (e *stepError) appendJSON(dst []byte) []byte {
	dst = appendJSONString(append(dst, `{"message":`...), e.message)
	dst = appendJSONString(append(dst, `,"error_type":`...), e.errorType)
	dst = strconv.AppendBool(append(dst, `,"retryable":`...), e.retryable)
	dst = append(dst, `,"status_code":`...)
	if e.statusCode == 0 {
		dst = append(dst, "null"...)
	} else {
		dst = strconv.AppendInt(dst, int64(e.statusCode), 10)
	}
	dst = append(dst, `,"context":`...)
	return append(appendObject(dst, e.context), '}')
}

// appendObject appends a JSON object; nil stands for one without members.
func appendObject(dst, object []byte) []byte {
	if object == nil {
		return append(dst, "{}"...)
	}
	return append(dst, object...)
}

// maxErrorText is how many bytes of what a handler printed its error keeps.
const maxErrorText = 8 << 10

// attach adds text that the handler printed to the error's context, unless
// there is none or the context has that member already.
func (e *stepError) attach(member string, text []byte) {
	if len(bytes.TrimSpace(text)) == 0 {
		return
	}
	object := appendJSONString([]byte{'{'}, member)
	object = appendJSONString(append(object, ':'), cleanText(text))
	e.context = mergeObjects(nil, append(object, '}'), appendObject(nil, e.context))
}

// cleanText makes text from outside fit for a JSON string that others will
// read: valid UTF-8, no NUL, no credentials in URLs.
func cleanText(text []byte) string {
	s := strings.ToValidUTF8(string(hideCredentials(text)), "\ufffd")
	return strings.ReplaceAll(s, "\x00", "\ufffd")
}
