package main

// Records: what happened, as the journal keeps it. A task is the fold of its
// records; see (*task).apply. On disk a record is one JSON object:
//
//	{"seq":7,"task":"…","at":1767225600123456,"kind":"ended","step":2,"ms":12,"result":36,"sum":"…"}
//
// Times are in microseconds since the Unix epoch, "began" in microseconds before
// "at". Members that have their default are left out: "ok" is true, a result
// null, a correlation the id that follows those of the task's steps.

import (
	"encoding/hex"
	"strconv"
	"time"
)

// recordKind names what happened; the words stand in the journal.
type recordKind uint8

const (
	recTemplate  recordKind = iota // a template was used for the first time
	recCreated                     // a task was created
	recStarted                     // an attempt started
	recRan                         // an attempt started and ended at once, as builtins do
	recEnded                       // a started attempt ended
	recLate                        // a result came that changes nothing any more
	recDue                         // a back-off is over
	recRecovered                   // an attempt was cut off with the process that ran it
	recOperator                    // an operator or outside actor acted on a step
	recCancelled                   // the task was cancelled
	recStale                       // the task stood still for too long
	recDLQUpdate                   // an entry of the dead letter queue was updated
	recDropped                     // the task, finished before, is kept no longer
	recClaimed                     // an outside actor's attempt started, under a lease
	recExtended                    // its lease was extended
	recAdjusted                    // an operator changed what the next attempts of a step are made with
	recordKinds
)

var recordKindNames = [recordKinds]string{
	"template", "created", "started", "ran", "ended", "late", "due", "recovered", "operator", "cancelled",
	"stale", "investigated", "dropped", "claimed", "extended", "adjusted",
}

func (k recordKind) String() string { return recordKindNames[k] }

// ofStep reports whether a record of a task is about one of its steps.
func (k recordKind) ofStep() bool {
	switch k {
	case recCreated, recCancelled, recStale, recDLQUpdate, recDropped:
		return false
	}
	return true
}

// record is one change. It belongs to nobody after it was applied: what it
// holds is never changed.
type record struct {
	seq  uint64 // its place in the journal
	at   instant
	kind recordKind
	task uuid // zero for a template
	step int  // index in the task, where the kind is about a step

	created    *creation // created
	startedAt  instant   // ran: when the attempt started; see started
	end        *ending   // ran, ended, late, operator: what the attempt came to
	ids        uuid      // ran, ended, operator: the first id of the instances that the step creates
	action     stepAction
	by         string // operator: who, as the request says
	subject    string // operator, cancelled, claimed, adjusted, and what an outside actor ended: who, as authentication found out; "" without
	reason     string // operator: why
	hash       string // template
	definition []byte // template: its normalized JSON

	lease         *lease         // claimed; of extended the end alone
	stale         *staleMark     // stale
	investigation *investigation // investigated
	adjustment    *adjustment    // adjusted
}

// creation is what a task is created with.
type creation struct {
	template          string // the hash of its resolved template
	identity          identityKey
	context           []byte // JSON object: the request's over the template's default
	initiator         string
	source            string
	reason            string
	tags              []string
	priority          int
	correlation       uuid // the caller's; see (*task).correlation
	parentCorrelation uuid
	requested         instant // when the caller says it asked; 0 when it did not
	options           []byte  // JSON object, or nil
	key               string  // the caller's idempotency_key
	traceparent       string
	request           requestMark // of the Idempotency-Key header
}

// identityKey is the hash that deduplicates tasks; zero for none.
type identityKey [16]byte

// What a creation has when the caller said nothing, and the journal leaves out.
const (
	defaultInitiator = "api"
	defaultSource    = "stepwell"
	defaultReason    = "Task requested"
)

// ending is what an attempt came to.
type ending struct {
	success  bool
	result   []byte        // JSON; nil stands for null
	metadata []byte        // a JSON object from the handler or operator, or nil
	err      []byte        // JSON {"message", "error_type", "retryable", "status_code", "context"}; nil on success
	retryAt  instant       // when the next attempt is due; 0 when there is none
	took     time.Duration // in whole milliseconds
	attempt  int           // late: the attempt that answered too late
	worker   string        // the outside actor that made the attempt; "" for this service
}

// stepAction is what an operator or outside actor does to a step.
type stepAction uint8

const (
	noAction stepAction = iota
	actionReset
	actionResolve
	actionComplete
	actionFail
	actionCancel
	stepActions
)

var stepActionNames = [stepActions]string{"", "reset_for_retry", "resolve_manually", "complete_manually", "fail", "cancel"}

func (a stepAction) String() string { return stepActionNames[a] }

// appendRecordMembers appends the members of a record, without the braces, the
// sequence and the checksum that the journal puts around them.
func appendRecordMembers(b []byte, r *record) []byte {
	if r.kind != recTemplate {
		b = append(b, `"task":"`...)
		b = r.task.appendText(b)
		b = append(b, `",`...)
	}
	return appendRecordBody(b, r)
}

// appendRecordBody is appendRecordMembers without the task's id, as the record stands
// in the task's own line.
func appendRecordBody(b []byte, r *record) []byte {
	b = append(b, `"at":`...)
	b = strconv.AppendInt(b, int64(r.at), 10)
	b = append(b, `,"kind":"`...)
	b = append(b, r.kind.String()...)
	b = append(b, '"')
	switch r.kind {
	case recTemplate:
		b = append(b, `,"hash":"`...)
		b = append(b, r.hash...)
		b = append(b, `","definition":`...)
		return append(b, r.definition...)
	case recCreated:
		return appendCreation(b, r.created)
	case recCancelled:
		return appendText(appendText(b, "by", r.by), "subject", r.subject)
	case recStale:
		return appendStale(b, r.stale)
	case recDLQUpdate:
		return appendInvestigation(b, r.investigation)
	case recDropped:
		return b
	}
	b = append(b, `,"step":`...)
	b = strconv.AppendInt(b, int64(r.step), 10)
	if r.kind == recRan {
		b = appendNumber(b, "began", int64(r.at-r.startedAt))
	}
	if r.kind == recOperator {
		b = appendText(b, "action", r.action.String())
		b = appendText(b, "by", r.by)
	}
	b = appendText(b, "subject", r.subject)
	b = appendText(b, "reason", r.reason)
	if r.lease != nil {
		b = appendLease(b, r.lease)
	}
	if r.kind == recAdjusted {
		return appendAdjustment(b, r.adjustment)
	}
	b = appendID(b, "ids", r.ids)
	if r.end != nil {
		b = appendEnding(b, r.end)
	}
	return b
}

func appendCreation(b []byte, c *creation) []byte {
	b = appendText(b, "template", c.template)
	if c.identity != (identityKey{}) {
		b = append(b, `,"identity":"`...)
		b = hex.AppendEncode(b, c.identity[:])
		b = append(b, '"')
	}
	b = appendRaw(b, "context", c.context)
	b = appendUnless(b, "initiator", c.initiator, defaultInitiator)
	b = appendUnless(b, "source", c.source, defaultSource)
	b = appendUnless(b, "reason", c.reason, defaultReason)
	if len(c.tags) > 0 {
		b = append(b, `,"tags":[`...)
		for i, tag := range c.tags {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSONString(b, tag)
		}
		b = append(b, ']')
	}
	b = appendNumber(b, "priority", int64(c.priority))
	b = appendID(b, "correlation", c.correlation)
	b = appendID(b, "parent_correlation", c.parentCorrelation)
	b = appendNumber(b, "requested", int64(c.requested))
	b = appendRaw(b, "options", c.options)
	b = appendText(b, "key", c.key)
	return appendRequestMark(appendText(b, "traceparent", c.traceparent), c.request)
}

func appendEnding(b []byte, e *ending) []byte {
	if !e.success {
		b = append(b, `,"ok":false`...)
	}
	b = appendNumber(b, "ms", e.took.Milliseconds())
	b = appendNumber(b, "attempt", int64(e.attempt))
	b = appendNumber(b, "retry_at", int64(e.retryAt))
	b = appendRaw(b, "result", e.result)
	b = appendRaw(b, "error", e.err)
	b = appendRaw(b, "metadata", e.metadata)
	return appendText(b, "worker", e.worker)
}

// The append… helpers leave out what is empty, zero or the default.

func appendName(b []byte, name string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	return append(b, '"', ':')
}

func appendText(b []byte, name, value string) []byte { return appendUnless(b, name, value, "") }

func appendUnless(b []byte, name, value, standard string) []byte {
	if value == standard {
		return b
	}
	return appendJSONString(appendName(b, name), value)
}

func appendNumber(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(appendName(b, name), n, 10)
}

func appendRaw(b []byte, name string, raw []byte) []byte {
	if raw == nil {
		return b
	}
	return append(appendName(b, name), raw...)
}

func appendID(b []byte, name string, id uuid) []byte {
	if id.isZero() {
		return b
	}
	b = append(appendName(b, name), '"')
	return append(id.appendText(b), '"')
}

// started is when the attempt started that the record starts.
func (r *record) started() instant {
	if r.kind == recRan {
		return r.startedAt
	}
	return r.at
}

// hasOutcome reports whether the record tells what an attempt came to.
func (r *record) hasOutcome() bool {
	switch r.kind {
	case recRan, recEnded, recLate:
		return true
	case recOperator:
		return r.action == actionComplete || r.action == actionFail
	}
	return false
}
