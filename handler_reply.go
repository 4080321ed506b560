package main

// Reading a handler's reply: a bare result or a full outcome, with or without a decision or a checkpoint.

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The members of a result by which a decision or batchable step says what to create.
const (
	decisionMember = "decision_point_outcome"
	batchMember    = "batch_processing_outcome"
)

// checkpointMember is the member of a reply with which a handler yields.
const checkpointMember = "checkpoint"

// parseReply returns the outcome of a reply of at most limit bytes. An object with a boolean member success and no
// strays is a full outcome, any other JSON is the result, and a blank reply is the result null. With strays, success
// false still means a failure, whose message is the reply.
func parseReply(data []byte, limit int64) outcome {
	if int64(len(data)) > limit {
		return resultTooLarge(limit)
	}
	if data = unmarked(data); len(bytes.Trim(data, " \t\r\n")) == 0 {
		return outcome{success: true}
	}
	if err := checkJSON(data); err != nil {
		o := typedFailure(invalidResultType, "the reply: %v", err)
		o.malformed = true
		return o
	}
	success := jsonKind(objectMember(data, "success"))
	if success != 't' && success != 'f' {
		return outcome{success: true, result: compactResult(data)}
	}
	stray := hasStray(data)
	if stray && success == 't' {
		return outcome{success: true, result: compactResult(data)}
	}
	o, problem := fullOutcome(data, success == 't')
	switch {
	case problem == "":
	case !stray:
		return typedFailure(invalidResultType, "the reply's %s", problem)
	default:
		o = typedFailure(handlerErrorType, "")
	}
	if stray {
		o.err.message = clipText(cleanText(compactJSON(nil, data)), maxErrorText)
	}
	return o
}

// hasStray reports whether a reply has a member that is not one of a full outcome.
func hasStray(data []byte) bool {
	for key := range jsonMemberBytes(data) {
		switch string(key) {
		case "success", "result", "error", "metadata", decisionMember, batchMember, checkpointMember:
		default:
			return true
		}
	}
	return false
}

// fullOutcome reads a reply that is a full outcome, and returns the first problem of its members. A null member counts
// as absent. What the step decides becomes a part of its result.
func fullOutcome(data []byte, success bool) (o outcome, problem string) {
	o.success = success
	reply, failed := memberReader{}, memberReader{path: "error."}
	var decided templateObject
	for key, value := range jsonMembers(data) {
		switch key {
		case "result":
			o.result = compactResult(value)
		case "metadata":
			o.metadata = compactJSON(nil, reply.accept(key, value, "{", "an object"))
		case "error":
			failed.data = reply.accept(key, value, "{", "an object")
		case decisionMember, batchMember:
			if jsonKind(value) != 'n' {
				decided = append(decided, templateMember{key, compactJSON(nil, value)})
			}
		case checkpointMember:
			if jsonKind(value) != 'n' {
				o.checkpoint, problem = readCheckpoint(value)
			}
		}
	}
	if decided != nil {
		o.result = mergeObjects(nil, reply.accept("result", o.result, "{", "an object"), decided.json())
	}
	err := &stepError{
		message:    failed.text("message", "the handler reported a failure and gave no message"),
		errorType:  failed.text("error_type", handlerErrorType),
		retryable:  failed.flag("retryable", true),
		statusCode: int(failed.integer("status_code", 0, math.MaxUint16)), // clients read 16 bits
		context:    redact(compactJSON(nil, failed.member("context", "{", "an object"))),
	}
	if !success {
		o.err = err
	}
	if o.checkpoint != nil && (!success || o.result != nil) {
		problem = checkpointMember + " requires success and no result: the step runs again"
	}
	return o, cmp.Or(reply.problem, failed.problem, problem)
}

// memberReader reads members of an object: of a reply or of handler.initialization. A null member counts as absent.
type memberReader struct {
	data    []byte
	path    string // before the names of members in problems
	problem string // the first invalid member, or ""
}

// member returns a member of one of the kinds. It returns nil for an absent member
// and for one of another kind, which is a problem.
func (r *memberReader) member(name, kinds, want string) []byte {
	return r.accept(name, objectMember(r.data, name), kinds, want)
}

// accept is member for a member that was found already.
func (r *memberReader) accept(name string, value []byte, kinds, want string) []byte {
	switch kind := jsonKind(value); {
	case kind == 0 || kind == 'n':
		return nil
	case strings.IndexByte(kinds, kind) < 0:
		r.wrong(name, value, want)
		return nil
	}
	return value
}

func (r *memberReader) wrong(name string, value []byte, want string) {
	if r.problem == "" {
		r.problem = wrongKind(r.path+name, value, want)
	}
}

// text returns a string, or absent if the member is absent or empty.
func (r *memberReader) text(name, absent string) string {
	s, _ := jsonString(r.member(name, `"`, "a string"))
	return cmp.Or(cleanText([]byte(s)), absent)
}

func (r *memberReader) flag(name string, absent bool) bool {
	value := r.member(name, "tf", "true or false")
	if value == nil {
		return absent
	}
	return jsonKind(value) == 't'
}

// integer returns an integer from 0 to most, or absent if the member is absent.
func (r *memberReader) integer(name string, absent, most int64) int64 {
	want := fmt.Sprintf("an integer from 0 to %d", most)
	value := r.member(name, "0", want)
	if value == nil {
		return absent
	}
	n, ok := jsonInt(value)
	if !ok || n < 0 || n > most {
		r.wrong(name, value, want)
	}
	return n
}

// number returns a number, or 0 if the member is absent.
func (r *memberReader) number(name string) (f float64) {
	if value := r.member(name, "0", "a number"); value != nil {
		f, _ = strconv.ParseFloat(string(value), 64) // finite, or checkJSON would have refused it
	}
	return f
}

// wrongKind says that a member is of the wrong kind. It shows the value only if it is a short number.
func wrongKind(path string, value []byte, want string) string {
	got := templateValueKind(value)
	if jsonKind(value) == '0' && len(value) <= 32 {
		got = string(value)
	}
	return fmt.Sprintf("%s is %s; want %s", path, got, want)
}

// compactResult returns a result as outcomes hold it: nil for null.
func compactResult(value []byte) []byte {
	compact := compactJSON(make([]byte, 0, len(value)), value)
	if string(compact) == "null" {
		return nil
	}
	return compact
}

// Why attempts fail: the types of errors, which of them are retried, and what an error keeps of a handler's text.

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
	networkErrorType    = "network_error"
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
	nobodyAnsweredType  = "nobody_answered"
)

// errorTypeRow is an error type, and whether it is retryable.
type errorTypeRow struct {
	name      string // with … at the end: every type with this prefix
	retryable bool
}

// handlerErrorTypes holds every error_type that does not come from a handler's reply or configuration.
// docs/reference/handlers.md says what each means. The first row that fits counts.
var handlerErrorTypes = []errorTypeRow{
	{timeoutType, true}, {cancelledType, true}, {workerLostType, true}, {nobodyAnsweredType, false},
	{networkErrorType, true}, {"http_408", true}, {"http_425", true}, {"http_429", true}, {"http_5…", true}, {"http_…", false},
	{"redirect", false}, {invalidResultType, false}, {invalidOutcomeType, false}, {schemaMismatchType, false},
	{resultTooLargeType, false}, {invalidHandlerType, false}, {invalidConfigType, false},
	{"exec_not_allowed", false}, {programUnusableType, false}, {"exec_unavailable", true},
	{"exit_75", true}, {"exit_…", false}, {"signal_…", true},
	{handlerErrorType, true}, {checkpointLimitType, false}, {"stub_exhausted", false}, {"builtin_fail", false}, {"builtin_flaky", true},
}

func (r errorTypeRow) fits(errorType string) bool {
	if prefix, ok := strings.CutSuffix(r.name, "…"); ok {
		return strings.HasPrefix(errorType, prefix)
	}
	return errorType == r.name
}

func failedOutcome(errorType, message string, retryable bool) outcome {
	return outcome{err: &stepError{message: message, errorType: errorType, retryable: retryable}}
}

// typedFailure is failedOutcome for a type of handlerErrorTypes, which says whether it is retryable.
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

// appendJSON appends the error as a JSON object with all members: an absent status_code is null, an absent context {}.
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

// attach adds a handler's text output to the error's context, unless it is blank or the context has the member already.
func (e *stepError) attach(member string, text []byte) {
	if len(bytes.TrimSpace(text)) == 0 {
		return
	}
	object := appendJSONString([]byte{'{'}, member)
	object = appendJSONString(append(object, ':'), cleanText(text))
	// The handler's own member of this name wins.
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

// cleanText makes text from outside safe to show: valid UTF-8, no NUL, no credentials in URLs.
func cleanText(text []byte) string {
	s := strings.ToValidUTF8(string(redact(text)), "\ufffd")
	return strings.ReplaceAll(s, "\x00", "\ufffd")
}
