package main

// The handler family: what runs a step. A handler gets an attempt and returns an outcome. The family uses config and
// template; it does not know tasks, the store or the engine.
//
//	handler.go             attempts and their envelope, outcomes, the set of handlers: which callable means which
//	handler_reply.go       reading a reply, the types of errors, failed outcomes
//	handler_builtin.go     the builtin handlers
//	handler_exec.go        programs as handlers (exec)
//	handler_http.go        calling handlers over HTTP; hiding secrets in what handlers reply
//	handler_connections.go the transport of these calls; addresses that do not listen

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
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
	asked                    requester
	stepName                 string
	templateStep             string // the step of the template; of an instance another name
	number                   int    // from 1
	maxAttempts              int
	timeout                  time.Duration
	lease                    time.Duration // the time that an outside actor has instead of the timeout; else 0
	handler                  []byte        // an object: its callable, method and resolver
	config                   []byte        // handler.initialization, an object
	inputs                   []byte        // an object: the context, or what an operator set
	batch                    []byte        // an object: further inputs of a batch worker; nil for none
	results                  []namedResult // ancestors
	previous                 *pastOutcome  // of the step's last attempt that ended; nil for none
	checkpoint               *checkpoint   // where to continue; nil for the beginning

	// begin is called when an HTTP request is about to go out on a connection that stands, and reports whether it may.
	// The timeout counts from then on. nil for an attempt that began before.
	begin func() bool
}

// beginKey is the key of begin in the context of a request.
type beginKey struct{}

// requester is who asked for a task, when and why.
type requester struct {
	initiator, source, reason   string
	tags                        []string
	priority                    int
	requested, created, updated instant
	parentCorrelation           uuid // zero for none
}

// pastOutcome is how an attempt ended.
type pastOutcome struct {
	result   []byte // JSON; nil stands for null
	err      []byte // a JSON object; nil on success
	metadata []byte // a JSON object, or nil
	took     time.Duration
	at       instant // 0 for a step without one
}

// checkpoint is how far a step has come, as reported by its handler or an outside actor that yielded. It is never
// changed.
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
	for key, value := range jsonMembers(value) {
		switch {
		case jsonKind(value) == 'n':
			continue
		case key == "items_processed":
			if n, ok := jsonInt(value); !ok || n < 0 {
				r.wrong(key, value, "an integer from 0")
			}
		case key != "cursor" && key != "accumulated_results":
			continue
		}
		kept = append(kept, templateMember{key, compactJSON(nil, value)})
	}
	switch {
	case jsonKind(value) != '{':
		return nil, wrongKind(checkpointMember, value, "an object with a cursor")
	case r.problem == "" && kept.value("cursor") == nil:
		return nil, checkpointMember + ".cursor is required"
	}
	return kept.json(), r.problem
}

// namedResult is an ancestor of a step, and how it ended.
type namedResult struct {
	step  string
	id    uuid
	state string
	done  bool // it has a result, which counts
	pastOutcome
}

// outcome is the result of an attempt.
type outcome struct {
	success    bool
	result     []byte     // JSON that passed checkJSON, compact; nil stands for null
	metadata   []byte     // a JSON object from the handler, or nil
	checkpoint []byte     // the data of a checkpoint: it has yielded, with success; else nil
	err        *stepError // nil if success
	retryAfter time.Duration
	unmade     bool         // it was not an attempt: the process had no file descriptor left to begin it
	unsent     bool         // nothing of the request was sent, because the address does not listen
	unbegun    bool         // it was not an attempt: begin did not allow it
	malformed  bool         // the reply was not valid JSON
	fits       []payloadFit // how it fits each event of the step; nil if not checked
	misfit     string       // why the result of a success does not fit the step's schema; "" if it does
	doubts     misfits      // what is wrong with a result that counts although it does not fit
}

// fitting returns o, or the failure that replaces a result that does not fit its schema.
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

// checkSize returns an error for an outcome that a request gives and that is larger than a handler's reply may be.
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
	fail := func(*attempt, *memberReader) (outcome, time.Duration) { return typedFailure(errorType, "%s", why), 0 }
	return target{kind: kind, builtin: &builtin{do: fail}}
}

// handlerSet holds the handlers that the worker's configuration describes. It is immutable, and shared by all services of
// the process.
type handlerSet struct {
	outside   bool                  // nothing runs here
	mapped    callableTable[target] // worker.handlers
	byDefault target
	web       *httpCaller
	programs  *programRunner
}

// callableTable holds values by the name of a callable, or by a prefix of such names and "*".
type callableTable[V any] map[string]V

// find returns the value of a callable: that of its name, else of its longest prefix.
func (t callableTable[V]) find(callable string) (v V, ok bool) {
	if v, ok = t[callable]; ok {
		return v, true
	}
	longest := 0
	// A table has few names, and the longest prefix can be anywhere in it.
	for name, value := range t {
		prefix, isPrefix := strings.CutSuffix(name, "*")
		if isPrefix && len(name) > longest && strings.HasPrefix(callable, prefix) {
			v, longest = value, len(name)
		}
	}
	return v, longest > 0
}

// newHandlerSet makes the handlers that the configuration describes. Attempts of targets
// that checkConfigCallables would refuse fail with the reason. Programs get their PATH, HOME, LANG and TZ from getenv.
func newHandlerSet(c *workerConfig, version string, getenv func(string) string) *handlerSet {
	web := newHTTPCaller(c, version)
	h := &handlerSet{mapped: callableTable[target]{}, web: web, programs: newProgramRunner(c, getenv)}
	h.byDefault, _ = h.parse(c.DefaultHandler)
	for callable, mapped := range c.Handlers {
		h.mapped[callable], _ = h.parse(mapped)
	}
	return h
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

// templateRules returns the rules for new templates. While schemas are not enforced, unenforced says what to do with
// one that could not be.
func (h *handlerSet) templateRules(c *templatesConfig, unenforced schemaRule) *templateRules {
	schemas := pick(c.EnforceInputSchema == "off", unenforced, schemasRefused)
	return &templateRules{callable: h.check, schemas: schemas}
}

// check returns an error for an unknown builtin and a malformed URL or program.
// It does not repeat the callable. See warning for programs that are not allowed.
func (h *handlerSet) check(callable string) error {
	_, err := h.find(callable)
	return err
}

// warning returns why no attempt of the callable can succeed under this configuration, or "".
func (h *handlerSet) warning(callable string) string {
	if h.resolve(callable).kind == execHandler && !h.programs.allowed {
		return execNotAllowed
	}
	return ""
}

// missingProgram returns an error if the callable is an allowed program that does not exist now.
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
		if err == nil && (h.programs == nil || !h.programs.allowed) {
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

// run makes an attempt with an HTTP or exec handler. It returns at the attempt's timeout, in real time, at the latest.
// If ctx is cancelled before that, the outcome has the type cancelled.
func (h *handlerSet) run(ctx context.Context, t target, a *attempt) outcome {
	if t.builtin != nil {
		o, _ := t.builtin.run(a)
		return o
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	begun := func() *time.Timer { return time.AfterFunc(a.timeout, func() { stop(context.DeadlineExceeded) }) }
	if a.begin == nil {
		defer begun().Stop()
	} else {
		limit := time.AfterFunc(h.web.patience, func() { stop(errConnecting) })
		defer func() { limit.Stop() }()
		ctx = context.WithValue(ctx, beginKey{}, func() bool {
			if limit.Stop(); !a.begin() {
				return false
			}
			limit = begun()
			return true
		})
	}
	switch t.kind {
	case httpHandler:
		return h.web.call(ctx, t, a)
	case execHandler:
		return h.programs.run(ctx, t.program, a)
	}
	return typedFailure(invalidHandlerType, "the step is for an outside actor; no handler here runs it")
}

// cutOff returns the outcome of an attempt that was cancelled or ran out of time. ok is false if it was neither.
func cutOff(ctx context.Context, a *attempt) (o outcome, ok bool) {
	switch context.Cause(ctx) {
	case nil:
		return o, false
	case context.DeadlineExceeded:
		return timedOut(a.timeout), true
	case errConnecting:
		return typedFailure(networkErrorType, "no connection within %s", connectPatience), true
	}
	return typedFailure(cancelledType, "the attempt was cancelled"), true
}

// envelope appends the attempt as the JSON object that HTTP handlers, programs and outside actors get.
func (a *attempt) envelope(dst []byte) []byte {
	dst = slices.Grow(dst, a.envelopeSize())
	dst = a.appendTask(append(dst, `{"task":`...))
	dst = a.appendStep(append(dst, `,"step":`...))
	o := jsonWriter{b: append(dst, `,"dependency_results":{`...)}
	for i := range a.results {
		if r := &a.results[i]; r.done {
			o.key(r.step)
			o.b = appendOrNull(o.b, r.result)
		}
	}
	o.b = append(o.b, `},"dependencies":{`...)
	for i := range a.results {
		r := &a.results[i]
		o.key(r.step)
		o.b = append(o.b, '{')
		o.id("step_uuid", r.id)
		o.text("state", r.state)
		r.appendMembers(&o)
		o.b = append(o.b, '}')
	}
	return append(o.b, "}}"...)
}

// appendMembers appends what is known about an outcome, except for its result and its error.
func (p *pastOutcome) appendMembers(o *jsonWriter) {
	o.zoned("ended_at", p.at)
	o.number("execution_time_ms", int(p.took.Milliseconds()))
	o.raw("metadata", orEmptyObject(p.metadata))
}

// envelopeSize returns about how many bytes the envelope takes.
func (a *attempt) envelopeSize() int {
	n := 1024 + len(a.traceparent) + len(a.tracestate) + len(a.context) + len(a.config) + len(a.inputs) + len(a.batch) +
		len(a.handler) + len(a.asked.initiator) + len(a.asked.source) + len(a.asked.reason)
	for _, tag := range a.asked.tags {
		n += len(tag) + 3
	}
	if a.checkpoint != nil {
		n += len(a.checkpoint.data)
	}
	if p := a.previous; p != nil {
		n += len(p.result) + len(p.err) + len(p.metadata)
	}
	for i := range a.results {
		r := &a.results[i]
		n += 2*len(r.step) + len(r.result) + len(r.metadata) + 192
	}
	return n
}

func (a *attempt) appendTask(dst []byte) []byte {
	o, by := jsonWriter{b: append(dst, '{')}, &a.asked
	o.id("task_uuid", a.taskID)
	o.text("namespace", a.namespace)
	o.text("name", a.name)
	o.text("version", a.version)
	o.text("correlation_id", a.correlationID)
	if a.traceparent != "" {
		o.text("traceparent", a.traceparent)
	}
	if a.tracestate != "" {
		o.text("tracestate", a.tracestate)
	}
	o.raw("context", orEmptyObject(a.context))
	o.text("initiator", by.initiator)
	o.text("source_system", by.source)
	o.text("reason", by.reason)
	o.texts("tags", by.tags)
	o.number("priority", by.priority)
	o.zoned("requested_at", by.requested)
	o.zoned("created_at", by.created)
	o.zoned("updated_at", by.updated)
	o.id("parent_correlation_id", by.parentCorrelation)
	return append(o.b, '}')
}

func (a *attempt) appendStep(dst []byte) []byte {
	o := jsonWriter{b: append(dst, '{')}
	o.id("step_uuid", a.stepID)
	o.text("name", a.stepName)
	o.number("attempt", a.number)
	o.number("max_attempts", a.maxAttempts)
	o.number("timeout_seconds", int(a.timeout/time.Second))
	o.raw("config", orEmptyObject(a.config))
	o.raw("inputs", a.allInputs())
	if a.checkpoint != nil {
		o.name("checkpoint")
		o.b = a.checkpoint.appendJSON(o.b)
	}
	o.raw("handler", orEmptyObject(a.handler))
	o.text("template_step_name", a.templateStep)
	o.number("remaining_ms", int(cmp.Or(a.lease, a.timeout).Milliseconds()))
	if p := a.previous; p != nil {
		o.name("previous")
		o.b = append(o.b, '{')
		o.flag("success", p.err == nil)
		o.raw("result", p.result)
		o.raw("error", redact(p.err))
		p.appendMembers(&o)
		o.b = append(o.b, '}')
	}
	return append(o.b, '}')
}

// deliveryKey identifies the work of a delivery: it is the same when the delivery is repeated, and another one after
// each checkpoint.
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
