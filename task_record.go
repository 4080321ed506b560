package main

// Records: what happened, as the journal keeps it; a task is the fold of its
// records, see (*task).apply. On disk a record is one JSON object:
//
//	{"seq":7,"task":"…","at":1767225600123456,"kind":"ended","step":2,"ms":12,"result":36,"sum":"…"}
//
// Times are in microseconds since the Unix epoch, "began" in microseconds
// before "at". Members that have their default are left out: "ok" is true, a
// result null, a correlation the id that follows those of the task's steps.

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"time"
)

// recordKind is the kind of a record; the journal holds its name.
type recordKind uint8

const (
	recTemplate   recordKind = iota // a template was used for the first time
	recCreated                      // a task was created
	recStarted                      // an attempt started
	recRan                          // an attempt started and ended at once, as builtins do
	recEnded                        // a started attempt ended
	recLate                         // a result came too late to count
	recDue                          // the wait before a retry is over
	recRecovered                    // an attempt was cut off with the process that ran it
	recOperator                     // an operator or outside actor acted on a step
	recCancelled                    // the task was cancelled
	recStale                        // the task stayed in its state for too long
	recDLQUpdate                    // an entry of the dead letter queue was updated
	recDropped                      // the finished task is not kept any more
	recClaimed                      // an outside actor's attempt started, under a lease
	recExtended                     // its lease was extended
	recAdjusted                     // an operator changed a step's inputs or limit of attempts
	recDelivered                    // a subscriber got domain events, or will not get them
	recCheckpoint                   // an attempt yielded, and is to go on from a checkpoint
	recordKinds
)

var recordKindNames = [recordKinds]string{
	"template", "created", "started", "ran", "ended", "late", "due", "recovered", "operator", "cancelled",
	"stale", "investigated", "dropped", "claimed", "extended", "adjusted", "delivered", "checkpoint",
}

func (k recordKind) String() string { return recordKindNames[k] }

// ofStep reports whether a record of this kind is about a step of a task.
func (k recordKind) ofStep() bool {
	switch k {
	case recCreated, recCancelled, recStale, recDLQUpdate, recDropped, recDelivered:
		return false
	}
	return true
}

// record is one change. Nobody changes it, or what it holds, after it was
// applied.
type record struct {
	seq  uint64 // its position in the journal
	at   instant
	kind recordKind
	task uuid // zero for a template
	step int  // index in the task, if the kind is about a step

	created    *creation // created
	startedAt  instant   // ran: when the attempt started; see started
	end        *ending   // ran, ended, late, operator: the outcome of the attempt
	ids        uuid      // ran, ended, operator: the first id of the instances that the step creates
	action     stepAction
	by         string // operator: who acted, by the request
	subject    string // operator, cancelled, claimed, adjusted, ended by an outside actor: who, by authentication
	reason     string // operator, cancelled: why
	hash       string // template
	definition []byte // template: its normalized JSON

	lease         *lease          // claimed; extended has its end alone
	stale         *staleMark      // stale
	investigation *investigation  // investigated
	adjustment    *adjustment     // adjusted
	checkpoint    *checkpoint     // checkpoint
	clear         bool            // operator: a reset forgets the checkpoint
	mark          *subscriberMark // delivered
}

// creation holds the data that a task was created with.
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
	requested         instant // when the caller asked, by its own account; 0 if it did not say
	options           []byte  // JSON object, or nil
	key               string  // the caller's idempotency_key
	traceparent       string  // the W3C trace context of the request, as it was sent
	tracestate        string
	request           requestMark // of the Idempotency-Key header
}

// traceID returns the id of the trace in which the task was created, or "".
func (by *creation) traceID() string {
	if by.traceparent == "" {
		return ""
	}
	return strings.ToLower(by.traceparent[len("00-"):len("00-0123456789abcdef0123456789abcdef")])
}

// identityKey is the hash by which equal tasks are found; zero for none.
type identityKey [16]byte

// The defaults of a creation, which the journal leaves out.
const (
	defaultInitiator = "api"
	defaultSource    = "stepwell"
	defaultReason    = "Task requested"
)

// ending is the outcome of an attempt.
type ending struct {
	success  bool
	result   []byte        // JSON; nil stands for null
	metadata []byte        // a JSON object from the handler or operator, or nil
	err      []byte        // JSON {"message", "error_type", "retryable", "status_code", "context"}; nil on success
	retryAt  instant       // when the next attempt is due; 0 for none
	took     time.Duration // in whole milliseconds
	attempt  int           // late: the attempt that answered too late
	worker   string        // the outside actor that made the attempt; "" for this service
	aside    failureAside  // of a failure for good
	named    bool          // the instances that it creates have the batch_id of their cursors in their names
	withheld []byte        // a JSON object: events that were not published, and why; or nil

	decision *branching // what result decides, between reading and applying it; not stored
}

// failureAside reports whether the task can go on after a step has failed for good.
type failureAside uint8

const (
	notAside      failureAside = iota // it is blocked
	asideContinue                     // until nothing else of it can run
	asideIsolate                      // likewise, and what depends on the step runs without it
)

var failureAsideWords = [...]string{"", batchContinue, batchIsolate}

// stepAction is an operator's or outside actor's action on a step.
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

// members are the members of a record after its sequence and its task's id.
func (r *record) members(c *memberCoder) {
	number(c, "at", &r.at)
	word(c, "kind", &r.kind, recordKindNames[:])
	switch r.kind {
	case recTemplate:
		c.text("hash", &r.hash)
		c.raw("definition", &r.definition)
	case recCreated:
		if c.reading {
			r.created = new(creation)
		}
		r.created.members(c)
	case recCancelled:
		c.text("by", &r.by)
		c.text("subject", &r.subject)
		c.text("reason", &r.reason)
	case recStale:
		object(c, "stale", &r.stale, staleMark{reason: noDLQReason}, (*staleMark).members)
	case recDLQUpdate:
		object(c, "dlq", &r.investigation, investigation{status: noDLQStatus}, (*investigation).members)
	case recDropped:
	case recDelivered:
		if c.reading {
			r.mark = new(subscriberMark)
		}
		r.mark.members(c)
	case recordKinds:
		c.fail("kind", "missing")
	default:
		r.stepMembers(c)
	}
}

// stepMembers are the members of a record about a step.
func (r *record) stepMembers(c *memberCoder) {
	number(c, "step", &r.step)
	switch r.kind {
	case recRan:
		var began instant
		if !c.reading {
			began = r.at - r.startedAt
		}
		nonzero(c, "began", &began)
		if r.startedAt = r.at - began; c.reading {
			nonzero(c, "started", &r.startedAt) // as the first version wrote it
		}
	case recOperator:
		word(c, "action", &r.action, stepActionNames[:])
		c.text("by", &r.by)
		c.set("clear_checkpoint", &r.clear)
	}
	c.text("subject", &r.subject)
	c.text("reason", &r.reason)
	switch r.kind {
	case recClaimed, recExtended:
		if c.reading {
			r.lease = new(lease)
		}
		r.lease.members(c)
	case recCheckpoint:
		if c.reading {
			r.checkpoint = new(checkpoint)
		}
		number(c, "number", &r.checkpoint.number)
		c.object("checkpoint", &r.checkpoint.data)
		c.text("worker", &r.checkpoint.worker)
	case recAdjusted:
		if c.reading {
			r.adjustment = new(adjustment)
		}
		nonzero(c, "max_attempts", &r.adjustment.maxAttempts)
		c.object("inputs", &r.adjustment.inputs)
	}
	c.id("ids", &r.ids)
	if c.reading && r.hasOutcome() {
		r.end = new(ending)
	}
	if r.end != nil {
		r.end.members(c)
	}
}

func (by *creation) members(c *memberCoder) {
	c.text("template", &by.template)
	c.hex("identity", by.identity != identityKey{}, by.identity[:])
	c.object("context", &by.context)
	c.textUnless("initiator", &by.initiator, defaultInitiator)
	c.textUnless("source", &by.source, defaultSource)
	c.textUnless("reason", &by.reason, defaultReason)
	c.texts("tags", &by.tags)
	nonzero(c, "priority", &by.priority)
	c.id("correlation", &by.correlation)
	c.id("parent_correlation", &by.parentCorrelation)
	nonzero(c, "requested", &by.requested)
	c.object("options", &by.options)
	c.text("key", &by.key)
	c.text("traceparent", &by.traceparent)
	c.text("tracestate", &by.tracestate)
	c.hex("request", by.request != requestMark{}, by.request.key[:], by.request.body[:])
}

func (e *ending) members(c *memberCoder) {
	c.flag("ok", &e.success)
	ms := e.took.Milliseconds()
	nonzero(c, "ms", &ms)
	if c.reading {
		e.took = time.Duration(ms) * time.Millisecond
	}
	nonzero(c, "attempt", &e.attempt)
	nonzero(c, "retry_at", &e.retryAt)
	c.raw("result", &e.result)
	c.raw("error", &e.err)
	c.object("metadata", &e.metadata)
	c.text("worker", &e.worker)
	word(c, "aside", &e.aside, failureAsideWords[:])
	c.set("named", &e.named)
	c.object("withheld", &e.withheld)
}

func (l *lease) members(c *memberCoder) {
	c.hex("lease", l.hash != leaseHash{}, l.hash[:])
	nonzero(c, "until", &l.until)
	c.text("worker", &l.worker)
}

func (m *staleMark) members(c *memberCoder) {
	number(c, "limit", &m.limit)
	word(c, "reason", &m.reason, dlqReasonWords[:])
}

func (q *investigation) members(c *memberCoder) {
	number(c, "entry", &q.entry)
	word(c, "status", &q.status, dlqStatusWords[:])
	c.given("notes", &q.notes)
	c.given("by", &q.by)
	c.object("metadata", &q.metadata)
}

// appendRecordMembers appends the members of a record. The journal adds the
// braces, the sequence and the checksum.
func appendRecordMembers(b []byte, r *record) []byte {
	c := memberCoder{b: b}
	c.id("task", &r.task)
	r.members(&c)
	return c.b
}

// decodeRecord reads a record from its JSON object, strictly, and keeps slices
// of it.
func decodeRecord(line []byte) (*record, error) {
	var c memberCoder
	r := new(record)
	if err := c.record(line, r); err != nil {
		return nil, err
	}
	return r, nil
}

// read is decodeRecord; it keeps no slices of the line.
func (r *record) read(line []byte) error {
	c := memberCoder{copies: true}
	return c.record(line, r)
}

func (c *memberCoder) record(line []byte, r *record) error {
	for c.again(line) {
		*r = record{kind: recordKinds, step: -1}
		nonzero(c, "seq", &r.seq)
		c.id("task", &r.task)
		r.members(c)
		c.take("w")
		c.take("sum")
	}
	if c.err != nil {
		return c.err
	}
	return r.complete()
}

// complete checks that a record that was read has what its kind needs, and fills
// in a default.
func (r *record) complete() error {
	switch {
	case r.kind == recTemplate:
		if r.hash == "" || r.definition == nil {
			return fmt.Errorf("template record without hash or definition")
		}
	case r.kind == recCreated:
		if r.created.template == "" {
			return fmt.Errorf("created record without its template")
		}
		if r.created.context == nil {
			r.created.context = []byte("{}")
		}
	case r.kind == recStale && r.stale == nil:
		return fmt.Errorf("stale record without its limit")
	case r.kind == recDelivered && r.mark.subscriber == "":
		return fmt.Errorf("delivered record without a subscriber")
	case r.kind == recDLQUpdate && r.investigation == nil:
		return fmt.Errorf("investigated record without its entry")
	case !r.kind.ofStep():
	case r.step < 0:
		return fmt.Errorf("%s record without a step", r.kind)
	case r.lease != nil && (r.lease.until == 0 || r.kind == recClaimed && r.lease.hash == leaseHash{}):
		return fmt.Errorf("%s record without its lease", r.kind)
	case r.kind == recCheckpoint && objectMember(r.checkpoint.data, "cursor") == nil:
		return fmt.Errorf("checkpoint record without its cursor")
	case r.kind == recAdjusted:
		return r.adjustment.problem()
	case r.action == actionFail && r.end.success:
		return fmt.Errorf("a failure by an operator without its error")
	case r.end != nil && !r.end.sound():
		return fmt.Errorf("%s record with an outcome that is neither a success nor a failure", r.kind)
	}
	return nil
}

// sound reports whether an outcome that was read is a success without an error, or a
// failure with one that has its members.
func (e *ending) sound() bool {
	if e.success {
		return e.err == nil && e.retryAt == 0
	}
	good := 0
	eachMemberBytes(e.err, func(key, value []byte) bool {
		switch kind := jsonKind(value); string(key) {
		case "message", "error_type":
			good += boolCount(kind == '"')
		case "retryable":
			good += boolCount(kind == 't' || kind == 'f')
		case "status_code":
			n, ok := jsonInt(value)
			good += boolCount(kind == 'n' || ok && n >= 0 && n <= math.MaxUint16)
		case "context":
			good += boolCount(kind == '{')
		}
		return true
	})
	return good == 5
}

// started returns when the attempt started that the record starts.
func (r *record) started() instant {
	if r.kind == recRan {
		return r.startedAt
	}
	return r.at
}

// hasOutcome reports whether the record holds the outcome of an attempt.
func (r *record) hasOutcome() bool {
	switch r.kind {
	case recRan, recEnded, recLate:
		return true
	case recOperator:
		return r.action == actionComplete || r.action == actionFail
	}
	return false
}

// recordID returns the version 7 id of something that a record made: the
// record's time, its sequence, and bits of the task's id, so that ids of other
// services differ. The purpose, 0 to 3, distinguishes the ids made from one
// record.
func recordID(t *task, r *record, purpose uint64) (u uuid) {
	salt := uint64(crc32.ChecksumIEEE(t.id[:])) & (1<<24 - 1)
	binary.BigEndian.PutUint64(u[0:], uint64(max(r.at, 0))/1000<<16|7<<12|r.seq>>36&0xfff)
	binary.BigEndian.PutUint64(u[8:], 1<<63|r.seq&(1<<36-1)<<26|salt<<2|purpose)
	return u
}

// replayKey is the hash of a caller, a route and an Idempotency-Key.
type replayKey [16]byte

// requestMark identifies a request that may be repeated; zero without a key.
type requestMark struct {
	key  replayKey
	body [16]byte // the hash of the request's body
}

// hashOf returns the hash of a list of parts.
func hashOf(parts ...[]byte) [16]byte {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(p))))
		h.Write(p)
	}
	return [16]byte(h.Sum(nil))
}

// leaseHash is the hash of a lease's token. The token itself is not kept.
type leaseHash [16]byte

func hashLease(token string) leaseHash {
	sum := sha256.Sum256([]byte(token))
	return leaseHash(sum[:])
}

// lease is an outside actor's hold on a step in progress. It is never changed.
type lease struct {
	hash   leaseHash
	until  instant // its end by the journal; see heldStep
	worker string
}

func (l *lease) is(h leaseHash) bool { return subtle.ConstantTimeCompare(l.hash[:], h[:]) == 1 }

// leaseToken returns the token of an outside actor: the task's id, by which the
// task is found even after the lease is over, and a secret.
func leaseToken(task uuid, secret string) string { return task.String() + "." + secret }

// stepFault is the error of a failed attempt, decoded.
type stepFault struct {
	message    []byte // a JSON value
	errorType  string
	retryable  bool
	statusCode *int64 // nil for none
	context    []byte // a JSON object
}

// fault reads why the attempt failed. It reports false where none did; e may be nil.
func (e *ending) fault() (f stepFault, failed bool) {
	if e == nil || e.success || e.err == nil {
		return f, false
	}
	eachMemberBytes(e.err, func(key, value []byte) bool {
		switch string(key) {
		case "message":
			f.message = value
		case "error_type":
			f.errorType, _ = jsonString(value)
		case "retryable":
			f.retryable = string(value) == "true"
		case "status_code":
			if n, ok := jsonInt(value); ok {
				f.statusCode = &n
			}
		case "context":
			f.context = value
		}
		return true
	})
	return f, true
}

// isLost reports whether the attempt failed only because its worker was lost.
func (e *ending) isLost() bool {
	f, _ := e.fault()
	return f.errorType == workerLostType
}

// subscriberMark is how far one subscriber got.
type subscriberMark struct {
	subscriber string
	from       uint64      // the subscriber is new: it gets what later records publish; 0 otherwise
	done       uint64      // everything that records up to this one published is settled
	dead       *deadNotice // a notice given up; nil for none
	resent     *deadNotice // one that was given up and then got through after all; nil for none
}

// deadNotice is an event that a subscriber did not get.
type deadNotice struct {
	task     uuid
	seq      uint64 // of the record that published it
	n        int    // which event of the step, from 1
	event    string // its name
	at       instant
	attempts int
	problem  string
}

func (d *subscriberMark) members(c *memberCoder) {
	c.text("subscriber", &d.subscriber)
	nonzero(c, "from", &d.from)
	nonzero(c, "done", &d.done)
	object(c, "dead", &d.dead, deadNotice{}, (*deadNotice).members)
	object(c, "resent", &d.resent, deadNotice{}, (*deadNotice).members)
}

func (x *deadNotice) members(c *memberCoder) {
	c.id("about", &x.task)
	number(c, "seq", &x.seq)
	number(c, "n", &x.n)
	c.text("event", &x.event)
	nonzero(c, "at", &x.at)
	nonzero(c, "attempts", &x.attempts)
	c.text("problem", &x.problem)
}
