package main

// The handler family: what runs a step. A handler gets an attempt and returns an
// outcome. The family uses config and template; it does not know tasks, the store
// or the engine.
//
//	handler.go        attempts, outcomes, errors and replies; which callable means which handler
//	handler_local.go  the builtin handlers, and programs as handlers (exec)
//	handler_http.go   calling handlers over HTTP

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// attempt is one delivery of a step to its handler. It is immutable, and its byte
// slices are JSON texts that passed checkJSON.
type attempt struct {
	taskID, stepID           uuid
	namespace, name, version string // of the template
	correlationID            string
	traceparent, tracestate  string // "" if the task has none
	context                  []byte // the task's context, an object
	stepName                 string
	number                   int // from 1
	maxAttempts              int
	timeout                  time.Duration
	handler                  []byte        // an object: its callable, method and resolver
	config                   []byte        // handler.initialization, an object
	inputs                   []byte        // an object: the context, or what an operator set
	batch                    []byte        // an object: what the inputs of a batch worker have besides; nil for none
	results                  []namedResult // completed ancestors
	checkpoint               *checkpoint   // where to go on; nil for the beginning
}

// checkpoint is how far a step has come, as its handler or an outside actor said when it
// yielded. It is never changed.
type checkpoint struct {
	number int     // among those of the step, from 1
	at     instant // when it was recorded
	seq    uint64  // of its record
	data   []byte  // an object with cursor, and perhaps items_processed and accumulated_results
	worker string  // the outside actor; "" for this service
}

// maxCheckpoints bounds the checkpoints of a step, which may yield without ever ending.
const maxCheckpoints = 10_000

// appendJSON appends the checkpoint as handlers and views have it.
func (c *checkpoint) appendJSON(dst []byte) []byte {
	o := jsonWriter{b: append(dst, '{')}
	o.number("number", c.number)
	o.zoned("recorded_at", c.at)
	return append(append(o.b, ','), c.data[1:]...)
}

// readCheckpoint reads {"cursor": any, "items_processed"?: integer, "accumulated_results"?: any},
// and returns these members alone. Members that are null count as absent.
func readCheckpoint(value []byte) (data []byte, problem string) {
	var kept templateObject
	r := memberReader{path: checkpointMember + "."}
	eachMember(value, func(key string, value []byte) bool {
		switch {
		case jsonKind(value) == 'n':
			return true
		case key == "items_processed":
			if n, ok := jsonInt(value); !ok || n < 0 {
				r.wrong(key, value, "an integer from 0")
			}
		case key != "cursor" && key != "accumulated_results":
			return true
		}
		kept = append(kept, templateMember{key, compactJSON(nil, value)})
		return true
	})
	switch {
	case jsonKind(value) != '{':
		return nil, wrongKind(checkpointMember, value, "an object with a cursor")
	case r.problem == "" && kept.value("cursor") == nil:
		return nil, checkpointMember + ".cursor is required"
	}
	return kept.json(), r.problem
}

// namedResult is the bare result of a completed step.
type namedResult struct {
	step   string
	result []byte // JSON; nil stands for null
}

// outcome is the result of an attempt.
type outcome struct {
	success    bool
	result     []byte     // JSON that passed checkJSON, compact; nil stands for null
	metadata   []byte     // a JSON object from the handler, or nil
	checkpoint []byte     // the data of a checkpoint: it has yielded, with success; else nil
	err        *stepError // nil if success
	retryAfter time.Duration
	unmade     bool     // no attempt: the process had no descriptor left to begin it
	malformed  bool     // the reply was not valid JSON
	unfit      []string // for each event of the step, why its payload does not fit its schema; nil if not checked
	misfit     string   // why the result of a success must not count, by the step's schema; "" for nothing
	stray      string   // the member for which a reply with success is no full outcome; "" for none
}

// fitting returns the failure that counts in place of a result that does not fit its schema.
func (o outcome) fitting() outcome {
	if o.success && o.misfit != "" {
		return typedFailure(schemaMismatchType, "%s", o.misfit)
	}
	return o
}

// size returns how many bytes the outcome's JSON and texts have.
func (o *outcome) size() int {
	n := len(o.result) + len(o.metadata) + len(o.checkpoint)
	if o.err != nil {
		n += len(o.err.message) + len(o.err.context)
	}
	return n
}

// checkSize returns an error for an outcome that a request gives and that is larger
// than a handler's reply may be.
func (c *workerConfig) checkSize(o *outcome) error {
	if int64(o.size()) > c.MaxResultBytes {
		return failf(tooLarge, "the result is larger than worker.max_result_bytes, %d", c.MaxResultBytes)
	}
	return nil
}

// handlerKind is a way to run a step.
type handlerKind uint8

const (
	builtinHandler handlerKind = iota
	httpHandler
	execHandler
	outsideActor
)

func (k handlerKind) String() string { return [...]string{"builtin", "http", "exec", "outside"}[k] }

// target is the handler that a callable resolves to.
type target struct {
	kind    handlerKind
	builtin *builtin     // of a builtinHandler; also of other kinds that cannot run, to fail with the reason
	http    *httpAddress // of an httpHandler that can run
	headers *sentHeaders // of its requests
	program string       // of an execHandler that can run: a bare name or an absolute path
}

// refusal returns a target whose attempts all fail permanently.
func refusal(kind handlerKind, errorType, why string) target {
	fail := func(*attempt) (outcome, time.Duration) { return typedFailure(errorType, "%s", why), 0 }
	return target{kind: kind, builtin: &builtin{run: fail}}
}

// handlerSet holds the handlers that the worker's configuration describes. It is
// immutable and shared by all services of the process.
type handlerSet struct {
	outside   bool                  // nothing runs here
	mapped    callableTable[target] // worker.handlers
	byDefault target
	web       *httpCaller
	programs  *programRunner
}

// callableTable holds values by the name of a callable, or by a prefix of such names and
// "*".
type callableTable[V any] map[string]V

// find returns the value of a callable: that of its name, else of its longest prefix.
func (t callableTable[V]) find(callable string) (v V, ok bool) {
	if v, ok = t[callable]; ok {
		return v, true
	}
	longest := 0
	for name, value := range t {
		prefix, isPrefix := strings.CutSuffix(name, "*")
		if isPrefix && len(name) > longest && strings.HasPrefix(callable, prefix) {
			v, longest = value, len(name)
		}
	}
	return v, longest > 0
}

// newHandlerSet makes the handlers that the configuration describes. Attempts of targets
// that checkConfigCallables would refuse fail with the reason; the error is about the
// proxy. Programs get their PATH, HOME, LANG and TZ from getenv.
func newHandlerSet(c *workerConfig, version string, getenv func(string) string) (*handlerSet, error) {
	web, err := newHTTPCaller(c, version)
	h := &handlerSet{mapped: callableTable[target]{}, web: web, programs: newProgramRunner(c, getenv)}
	h.byDefault, _ = h.parse(c.DefaultHandler)
	for callable, mapped := range c.Handlers {
		h.mapped[callable], _ = h.parse(mapped)
	}
	return h, err
}

// adoptOrphans makes this process the parent of what programs leave behind, so that it
// can end that. The process must have no other children than programs.
func (h *handlerSet) adoptOrphans() {
	if h.programs != nil && h.programs.allowed {
		h.programs.running.adopt()
	}
}

// outsideOnly returns a set in which every step waits for an outside actor.
func outsideOnly() *handlerSet { return &handlerSet{outside: true} }

// resolve returns what runs a callable. For a malformed one or a program that is
// not allowed, it returns a target whose attempts all fail with the reason.
func (h *handlerSet) resolve(callable string) target {
	t, _ := h.find(callable)
	if t.http != nil {
		t.headers = h.web.headersFor(callable, t.http)
	}
	return t
}

// templateRules returns the rules for new templates. What a schema is that cannot be enforced
// says unenforced while schemas are not.
func (h *handlerSet) templateRules(c *templatesConfig, unenforced schemaRule) *templateRules {
	return &templateRules{h.check, pick(c.EnforceInputSchema == "off", unenforced, schemasRefused)}
}

// check returns an error for an unknown builtin and a malformed URL or program.
// It does not repeat the callable. See warning for programs that are not allowed.
func (h *handlerSet) check(callable string) error {
	_, err := h.find(callable)
	return err
}

// warning returns why no attempt of the callable can succeed under this
// configuration, or "".
func (h *handlerSet) warning(callable string) string {
	if h.resolve(callable).kind == execHandler && !h.programs.allowed {
		return execNotAllowed
	}
	return ""
}

// missingProgram returns an error if the callable is an allowed program that does
// not exist now.
func (h *handlerSet) missingProgram(callable string) error {
	t := h.resolve(callable)
	if t.program == "" {
		return nil
	}
	_, err := h.programs.find(t.program)
	return err
}

func (h *handlerSet) find(callable string) (target, error) {
	if h.outside {
		return target{kind: outsideActor}, nil
	}
	t, ok := h.mapped.find(callable)
	var err error
	if !ok {
		t, err = h.parse(callable)
	}
	if err == nil && !ok && t.kind == outsideActor {
		t = h.byDefault
	}
	return t, err
}

// parse returns the target that a callable names by its prefix, or an outside
// actor if it has none. With an error, the target's attempts fail.
func (h *handlerSet) parse(callable string) (t target, err error) {
	switch prefix, rest := cutHandlerPrefix(callable); prefix {
	case "builtin:":
		t.kind = builtinHandler
		t.builtin, err = findBuiltin(rest)
	case "http://", "https://":
		t.kind = httpHandler
		t.http, err = parseHTTPAddress(callable)
	case "exec:":
		t.kind = execHandler
		t.program, err = parseProgram(rest)
		if err == nil && !h.programs.allowed {
			t = refusal(execHandler, "exec_not_allowed", execNotAllowed)
		}
	default:
		t.kind = outsideActor
	}
	if err != nil {
		t = refusal(t.kind, invalidHandlerType, err.Error())
	}
	return t, err
}

// cutHandlerPrefix cuts one of the four prefixes off a callable; prefix is "" if it
// has none. Letter case does not matter in the schemes of URLs.
func cutHandlerPrefix(callable string) (prefix, rest string) {
	for _, prefix := range [...]string{"builtin:", "exec:"} {
		if rest, ok := strings.CutPrefix(callable, prefix); ok {
			return prefix, rest
		}
	}
	for _, prefix := range [...]string{"http://", "https://"} {
		if n := len(prefix); len(callable) >= n && strings.EqualFold(callable[:n], prefix) {
			return prefix, callable[n:]
		}
	}
	return "", callable
}

// run makes an attempt with an HTTP or exec handler. It returns at the attempt's
// timeout, in real time, at the latest. If ctx is cancelled before that, the
// outcome has the type cancelled.
func (h *handlerSet) run(ctx *attemptContext, t target, a *attempt) outcome {
	if t.builtin != nil {
		o, _ := t.builtin.run(a)
		return o
	}
	ctx.begin(a.timeout)
	defer ctx.rest()
	switch t.kind {
	case httpHandler:
		return h.web.call(ctx, t, a)
	case execHandler:
		return h.programs.run(ctx, t.program, a)
	}
	return typedFailure(invalidHandlerType, "the step is for an outside actor; no handler here runs it")
}

// attemptContext is the context of an attempt by a handler. It ends when the attempt is cancelled, and when a
// handler that has begun takes too long. It is cheaper than nested contexts of package context. The zero value
// is ready.
type attemptContext struct {
	mu       sync.Mutex
	err      error         // why it has ended; guarded by mu, as all below
	done     chan struct{} // nil until somebody asks for it
	deadline time.Time     // of the handler that runs; zero for none
	timer    *time.Timer   // runs until then
	calls    []*func()     // to be called when it ends
}

// begin starts the timeout of a handler. A context that ended by an earlier timeout becomes usable again; a
// cancelled one stays cancelled.
func (c *attemptContext) begin(timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == context.DeadlineExceeded {
		c.err, c.done = nil, nil
	}
	c.deadline = time.Now().Add(timeout)
	c.timer = time.AfterFunc(timeout, func() { c.end(context.DeadlineExceeded) })
}

// rest stops the timeout of a handler that has ended.
func (c *attemptContext) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
	c.deadline = time.Time{}
}

func (c *attemptContext) cancel() { c.end(context.Canceled) }

func (c *attemptContext) end(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err = why
	if c.done != nil {
		close(c.done)
	}
	for _, f := range c.calls {
		go (*f)()
	}
	c.calls = nil
}

// AfterFunc is context.AfterFunc for c. Package context calls it for contexts derived from c.
func (c *attemptContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		go f()
		return func() bool { return false }
	}
	c.calls = append(c.calls, &f)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.calls, &f)
		if i < 0 {
			return false
		}
		c.calls = slices.Delete(c.calls, i, i+1)
		return true
	}
}

func (c *attemptContext) Deadline() (deadline time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline, !c.deadline.IsZero()
}

func (c *attemptContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		if c.done = make(chan struct{}); c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

func (c *attemptContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *attemptContext) Value(any) any { return nil }

// cutOff returns the outcome of an attempt that was cancelled or ran out of time. ok is false if it was
// neither.
func cutOff(ctx context.Context, a *attempt) (o outcome, ok bool) {
	until, limited := ctx.Deadline()
	switch {
	case ctx.Err() == nil && limited && !time.Now().Before(until): // package net may see the deadline before ctx ends
		return timedOut(a.timeout), true
	case ctx.Err() == nil:
		return o, false
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return timedOut(a.timeout), true
	}
	return typedFailure(cancelledType, "the attempt was cancelled"), true
}

// The envelope: the attempt as HTTP handlers, programs and outside actors get it.

// envelope appends the attempt as the JSON object that handlers get.
func (a *attempt) envelope(dst []byte) []byte {
	dst = slices.Grow(dst, a.envelopeSize())
	dst = a.appendTask(append(dst, `{"task":`...))
	dst = a.appendStep(append(dst, `,"step":`...))
	dst = append(dst, `,"dependency_results":{`...)
	for i, r := range a.results {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendOrNull(append(appendJSONString(dst, r.step), ':'), r.result)
	}
	return append(dst, "}}"...)
}

// envelopeSize returns about how many bytes the envelope takes.
func (a *attempt) envelopeSize() int {
	n := 512 + len(a.traceparent) + len(a.tracestate) + len(a.context) + len(a.config) + len(a.inputs) + len(a.batch) + len(a.handler)
	if a.checkpoint != nil {
		n += len(a.checkpoint.data)
	}
	for _, r := range a.results {
		n += len(r.step) + len(r.result) + 8
	}
	return n
}

func (a *attempt) appendTask(dst []byte) []byte {
	dst = a.taskID.appendText(append(dst, `{"task_uuid":"`...))
	dst = appendJSONString(append(dst, `","namespace":`...), a.namespace)
	dst = appendJSONString(append(dst, `,"name":`...), a.name)
	dst = appendJSONString(append(dst, `,"version":`...), a.version)
	dst = appendJSONString(append(dst, `,"correlation_id":`...), a.correlationID)
	if a.traceparent != "" {
		dst = appendJSONString(append(dst, `,"traceparent":`...), a.traceparent)
	}
	if a.tracestate != "" {
		dst = appendJSONString(append(dst, `,"tracestate":`...), a.tracestate)
	}
	return append(append(append(dst, `,"context":`...), orEmptyObject(a.context)...), '}')
}

func (a *attempt) appendStep(dst []byte) []byte {
	dst = a.stepID.appendText(append(dst, `{"step_uuid":"`...))
	dst = appendJSONString(append(dst, `","name":`...), a.stepName)
	dst = strconv.AppendInt(append(dst, `,"attempt":`...), int64(a.number), 10)
	dst = strconv.AppendInt(append(dst, `,"max_attempts":`...), int64(a.maxAttempts), 10)
	dst = strconv.AppendInt(append(dst, `,"timeout_seconds":`...), int64(a.timeout/time.Second), 10)
	dst = append(append(dst, `,"config":`...), orEmptyObject(a.config)...)
	dst = append(append(dst, `,"inputs":`...), a.allInputs()...)
	if a.checkpoint != nil {
		dst = a.checkpoint.appendJSON(append(dst, `,"checkpoint":`...))
	}
	return append(append(append(dst, `,"handler":`...), orEmptyObject(a.handler)...), '}')
}

// deliveryKey names what a handler is given: the same when a delivery is repeated, another one
// after each checkpoint.
func (a *attempt) deliveryKey() string {
	key := strconv.AppendInt(append(a.stepID.appendText(make([]byte, 0, 64)), ':'), int64(a.number), 10)
	if a.checkpoint != nil {
		key = strconv.AppendInt(append(key, ':'), int64(a.checkpoint.number), 10)
	}
	return string(key)
}

// allInputs returns the inputs, with those of a batch worker.
func (a *attempt) allInputs() []byte {
	if a.batch == nil {
		return orEmptyObject(a.inputs)
	}
	return mergeObjects(nil, a.inputs, a.batch)
}

// Failures: the error of a step, and the error types that the service gives.

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

// Replies: what a handler answered, as an outcome.

// The members of a result by which a decision or batchable step says what to create.
const (
	decisionMember = "decision_point_outcome"
	batchMember    = "batch_processing_outcome"
)

// checkpointMember is the member of a reply with which a handler yields.
const checkpointMember = "checkpoint"

// parseReply returns the outcome of a reply of at most limit bytes. An object with
// a boolean member success and no strays is a full outcome, any other JSON is the
// result, and a blank reply is the result null. With strays, success false still
// means a failure, whose message is the reply.
func parseReply(data []byte, limit int64) outcome {
	if int64(len(data)) > limit {
		return resultTooLarge(limit)
	}
	if len(bytes.Trim(data, " \t\r\n")) == 0 {
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
	stray := strayMember(data)
	if stray != "" && success == 't' {
		return outcome{success: true, result: compactResult(data), stray: stray}
	}
	o, problem := fullOutcome(data, success == 't')
	switch {
	case problem == "":
	case stray == "":
		return typedFailure(invalidResultType, "the reply's %s", problem)
	default:
		o = typedFailure(handlerErrorType, "")
	}
	if stray != "" {
		o.stray, o.err.message = stray, clipText(cleanText(compactJSON(nil, data)), maxErrorText)
	}
	return o
}

// strayMember returns the first member of a reply that is not one of a full outcome,
// or "".
func strayMember(data []byte) (stray string) {
	eachMember(data, func(key string, _ []byte) bool {
		switch key {
		case "success", "result", "error", "metadata", decisionMember, batchMember, checkpointMember:
		default:
			stray = cmp.Or(clippedText(key), `""`)
		}
		return stray == ""
	})
	return stray
}

// fullOutcome reads a reply that is a full outcome, and returns the first problem of
// its members. A null member counts as absent. What the step decides becomes a part
// of its result.
func fullOutcome(data []byte, success bool) (o outcome, problem string) {
	o.success = success
	reply, failed := memberReader{}, memberReader{path: "error."}
	var decided templateObject
	eachMember(data, func(key string, value []byte) bool {
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
		return true
	})
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
		problem = checkpointMember + " goes with success and without a result: the step runs again"
	}
	return o, cmp.Or(reply.problem, failed.problem, problem)
}

// memberReader reads members of an object: of a reply or of handler.initialization.
// A null member counts as absent.
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
func (r *memberReader) number(name string) *big.Rat {
	value := r.member(name, "0", "a number")
	if value == nil {
		return new(big.Rat)
	}
	return exactNumber(value)
}

// invalidConfig returns the outcome for a handler.initialization with a problem.
func (r *memberReader) invalidConfig() outcome {
	return typedFailure(invalidConfigType, "initialization.%s", r.problem)
}

// wrongKind says that a member is of the wrong kind. It shows the value only if it
// is a short number.
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
