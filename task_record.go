package main

// Records: what happened, as the journal keeps it; a task is the fold of its
// records, see (*task).apply. On disk a record is one JSON object:
//
//	{"seq":7,"task":"…","at":1767225600123456,"kind":"ended","step":2,"ms":12,"result":36,"sum":"…"}
//
// Times are in microseconds since the Unix epoch, "began" in microseconds before "at". Members that have their default
// are left out: "ok" is true, a result null, a correlation the id that follows those of the task's steps.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// recordKind is the kind of a record; the journal holds its name.
type recordKind uint8

const (
	recTemplate    recordKind = iota // a template was used for the first time
	recCreated                       // a task was created
	recStarted                       // an attempt started
	recRan                           // an attempt started and ended at once, as builtins do
	recEnded                         // a started attempt ended
	recLate                          // a result came too late to count
	recDue                           // the wait before a retry is over
	recRecovered                     // an attempt was cut off with the process that ran it
	recOperator                      // an operator or outside actor acted on a step
	recCancelled                     // the task was cancelled
	recStale                         // the task stayed in its state for too long
	recDLQUpdate                     // an entry of the dead letter queue was updated
	recDropped                       // the finished task is not kept any more
	recClaimed                       // an outside actor's attempt started, under a lease
	recExtended                      // its lease was extended
	recAdjusted                      // an operator changed a step's inputs or limit of attempts
	recDelivered                     // a subscriber got domain events, or will not get them
	recCheckpoint                    // an attempt yielded, and is to continue from a checkpoint
	recHeld                          // the task continues in another service, and nothing of it runs here
	recReleased                      // it continues here again
	recUndelivered                   // nothing of an attempt could be sent, so it was none
	recUnanswered                    // the deadline of an answer has passed
	recordKinds
)

var recordKindNames = [recordKinds]string{
	"template", "created", "started", "ran", "ended", "late", "due", "recovered", "operator", "cancelled",
	"stale", "investigated", "dropped", "claimed", "extended", "adjusted", "delivered", "checkpoint", "held", "released",
	"undelivered", "unanswered",
}

func (k recordKind) String() string { return recordKindNames[k] }

// ofStep reports whether a record of this kind is about a step of a task.
func (k recordKind) ofStep() bool {
	switch k {
	case recCreated, recCancelled, recStale, recDLQUpdate, recDropped, recDelivered, recHeld, recReleased:
		return false
	}
	return true
}

// record is one change. Nobody changes it, or what it holds, after it was applied.
type record struct {
	seq  uint64 // its position in the journal
	at   instant
	kind recordKind
	task uuid // zero for a template
	step int  // index in the task, if the kind is about a step

	created    *creation // created
	startedAt  instant   // ran: when the attempt started; see started
	end        *ending   // ran, ended, late, operator: the outcome of the attempt; unanswered: what holds in its place
	ids        uuid      // ran, ended, operator: the first id of the instances that the step creates
	action     stepAction
	by         string // operator: who acted, by the request
	subject    string // of what an operator or outside actor did: who, by authentication
	reason     string // operator, cancelled, released: why; held: where the task continues
	hash       string // template
	definition []byte // template: its normalized JSON

	lease         *lease          // claimed; extended has its end alone
	stale         *staleMark      // stale
	investigation *investigation  // investigated
	adjustment    *adjustment     // adjusted
	checkpoint    *checkpoint     // checkpoint
	clear         bool            // operator: a reset forgets the checkpoint
	before        stepCount       // undelivered: what the start had counted
	maxAttempts   int             // operator: the limit that comes with a reset, or 0
	request       string          // of what an operator did: the id of the request for a bulk action, or ""
	mark          *subscriberMark // delivered
}

// stepCount is what the start of an attempt changes in its step, apart from the state.
type stepCount struct {
	attempts    int
	redelivered int  // how often the attempt was delivered again
	redeliver   bool // the next start repeats the attempt that was cut off
	attempted   instant
}

func (n *stepCount) members(c *memberCoder) {
	nonzero(c, "attempts", &n.attempts)
	nonzero(c, "redelivered", &n.redelivered)
	c.set("redeliver", &n.redeliver)
	nonzero(c, "attempted", &n.attempted)
}

// creation holds the data that a task was created with.
type creation struct {
	template          string // the hash of its resolved template
	identity          identityKey
	context           []byte // JSON object: the request's over the template's default
	search            []byte // JSON object of the values in it that the task is found by, by path; or nil
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
	origin            *origin     // of a task that repeats another from a step; else nil
	steps             []uuid      // the ids of its steps, if they do not follow from its own; see stepID
}

// traceID returns the id of the trace in which the task was created, or "".
func (by *creation) traceID() string {
	if by.traceparent == "" {
		return ""
	}
	return strings.ToLower(by.traceparent[len("00-"):len("00-0123456789abcdef0123456789abcdef")])
}

// maxTracestate is the length up to which a tracestate is kept, in bytes.
const maxTracestate = 4096

// saneTraceparent returns a W3C traceparent header, or "" if it is malformed.
func saneTraceparent(h string) string {
	const form = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-00"
	// Later versions may append fields, which are kept.
	if len(h) < len(form) || len(h) > 256 || !visible(h) {
		return ""
	}
	for i := range form {
		if (h[i] == '-') != (form[i] == '-') || h[i] != '-' && unhex(h[i]) > 15 {
			return ""
		}
	}
	trace, span := h[3:35], h[36:52]
	if strings.EqualFold(h[:2], "ff") || strings.Trim(trace, "0") == "" || strings.Trim(span, "0") == "" {
		return "" // they stand for none
	}
	return h
}

// saneTracestate reports whether a text can be a W3C tracestate header.
func saneTracestate(h string) bool {
	return len(h) <= maxTracestate && !strings.ContainsFunc(h, func(c rune) bool { return c != '\t' && (c < ' ' || c > '~') })
}

// searched returns the text of a value in the context by which the task is found, or "".
func (by *creation) searched(path string) string {
	value := objectMember(by.search, path)
	if text, ok := jsonString(value); ok {
		return text
	}
	return string(value)
}

// maxAbout is how many values about returns that no template names.
const maxAbout = 8

// about returns what tells a person which task this is, as a JSON object: the values that it is found by, else the first
// strings, numbers and booleans of its context that are not long, else nil.
func (by *creation) about() []byte {
	if by.search != nil {
		return by.search
	}
	var found templateObject
	for name, value := range jsonMembers(by.context) {
		if strings.IndexByte(`"0tf`, jsonKind(value)) >= 0 && len(value) <= maxSearchText && len(found) < maxAbout {
			found = append(found, templateMember{name, value})
		}
	}
	if found == nil {
		return nil
	}
	return found.json()
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
	success   bool
	result    []byte        // JSON; nil stands for null
	metadata  []byte        // a JSON object from the handler or operator, or nil
	err       []byte        // JSON {"message", "error_type", "retryable", "status_code", "context"}; nil on success
	retryAt   instant       // when the next attempt is due; 0 for none
	took      time.Duration // in whole milliseconds
	attempt   int           // late: the attempt that answered too late
	worker    string        // the outside actor that made the attempt; "" for this service
	aside     failureAside  // of a failure for good
	forNobody bool          // nobody answered in time, and the template decided; follows from the kind of the record
	named     bool          // the instances that it creates have the batch_id of their cursors in their names
	withheld  []byte        // a JSON object: events that were not published, and why; or nil
	asContext []string      // events whose payload is the context of the error

	decision *branching // what result decides, between reading and applying it; not stored
}

// failureAside reports whether the task can continue after a step has failed for good.
type failureAside uint8

const (
	notAside      failureAside = iota // it is blocked
	asideContinue                     // until nothing else of it can run
	asideIsolate                      // as asideContinue, and steps that depend on this one run without it
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
	actionRetryNow
	stepActions
)

var stepActionNames = [stepActions]string{"", "reset_for_retry", "resolve_manually", "complete_manually", "fail", "cancel", "retry_now"}

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
		made(c, &r.created).members(c)
	case recCancelled, recHeld, recReleased:
		c.text("by", &r.by)
		c.text("subject", &r.subject)
		c.text("reason", &r.reason)
		c.text("request", &r.request)
	case recStale:
		object(c, "stale", &r.stale, staleMark{reason: noDLQReason}, (*staleMark).members)
	case recDLQUpdate:
		object(c, "dlq", &r.investigation, investigation{status: noDLQStatus}, (*investigation).members)
		c.text("subject", &r.subject)
		c.text("request", &r.request)
	case recDropped:
	case recDelivered:
		made(c, &r.mark).members(c)
	case recordKinds:
		c.fail("kind", "missing")
	default:
		r.stepMembers(c)
	}
}

func (r *record) stepMembers(c *memberCoder) {
	number(c, "step", &r.step)
	switch r.kind {
	case recRan:
		var began instant
		if !c.reading {
			began = r.at - r.startedAt
		}
		nonzero(c, "began", &began)
		r.startedAt = r.at - began
	case recOperator:
		word(c, "action", &r.action, stepActionNames[:])
		c.text("by", &r.by)
		c.set("clear_checkpoint", &r.clear)
		nonzero(c, "max_attempts", &r.maxAttempts)
		c.text("request", &r.request)
	}
	c.text("subject", &r.subject)
	c.text("reason", &r.reason)
	switch r.kind {
	case recClaimed, recExtended:
		made(c, &r.lease).members(c)
	case recCheckpoint:
		at := made(c, &r.checkpoint)
		number(c, "number", &at.number)
		c.object("checkpoint", &at.data)
		c.text("worker", &at.worker)
	case recUndelivered:
		r.before.members(c)
	case recAdjusted:
		by := made(c, &r.adjustment)
		nonzero(c, "max_attempts", &by.maxAttempts)
		c.object("inputs", &by.inputs)
	}
	c.id("ids", &r.ids)
	if r.end != nil || c.reading && r.hasOutcome() {
		made(c, &r.end).members(c)
		if c.reading {
			r.end.forNobody = r.kind == recUnanswered
		}
	}
}

func (by *creation) members(c *memberCoder) {
	c.text("template", &by.template)
	c.hex("identity", by.identity != identityKey{}, by.identity[:])
	c.object("context", &by.context)
	c.object("search", &by.search)
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
	if by.traceparent != "" && saneTraceparent(by.traceparent) == "" { // in a state from outside
		c.fail("traceparent", "%.80q is not a W3C traceparent", by.traceparent)
	}
	if !saneTracestate(by.tracestate) { // or it could put a header into requests to handlers
		c.fail("tracestate", "%.80q is not a W3C tracestate", by.tracestate)
	}
	c.hex("request", by.request != requestMark{}, by.request.key[:], by.request.body[:])
	object(c, "again", &by.origin, origin{}, (*origin).members)
	c.ids("steps", &by.steps)
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
	c.texts("as_context", &e.asContext)
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

// appendRecordMembers appends the members of a record. The journal adds the braces, the sequence and the checksum.
func appendRecordMembers(b []byte, r *record) []byte {
	c := memberCoder{b: b}
	c.id("task", &r.task)
	r.members(&c)
	return c.b
}

// decodeRecord reads a record from its JSON object, strictly, and keeps slices of it.
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
		c.member("w")
		c.member("sum")
	}
	if c.err != nil {
		return c.err
	}
	return r.complete()
}

// complete checks that a record that was read has what its kind needs, and fills in a default.
func (r *record) complete() error {
	// Records also come from states, which anybody may have written.
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
		if r.created.origin != nil {
			return r.created.origin.problem()
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
	case r.maxAttempts != 0 && (r.action != actionReset || r.maxAttempts < 0 || r.maxAttempts > maxRetryLimit):
		return fmt.Errorf("a reset with a limit of %d attempts", r.maxAttempts)
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
	f, _ := e.fault()
	return f.members == 5
}

// started returns when the attempt started that the record starts.
func (r *record) started() instant {
	if r.kind == recRan {
		return r.startedAt
	}
	return r.at
}

func (r *record) byOperator() bool {
	switch r.kind {
	case recOperator, recCancelled, recHeld, recReleased, recAdjusted, recDLQUpdate:
		return true
	}
	return r.kind == recCreated && r.created.origin != nil // a task that repeats another
}

func (r *record) hasOutcome() bool {
	switch r.kind {
	case recRan, recEnded, recLate, recUnanswered:
		return true
	case recOperator:
		return r.action == actionComplete || r.action == actionFail
	}
	return false
}

// recordID returns the version 7 id of something that a record made: the record's time, its sequence, and bits of the
// task's id, so that ids of other services differ. The purpose, 0 to 3, distinguishes the ids made from one record.
func recordID(task uuid, r *record, purpose uint64) (u uuid) {
	salt := uint64(crc32.ChecksumIEEE(task[:])) & (1<<24 - 1)
	// First 48 bits of milliseconds, the version, and the upper 12 bits of the sequence. Then the variant, the lower 36
	// bits of the sequence, the salt and the purpose. So the ids of a task's records are in their order.
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

func hashOf(parts ...[]byte) [16]byte {
	h := sha256.New()
	for _, p := range parts {
		// With their lengths, different lists of parts cannot give the same text.
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
	members    int    // of these, how many are of the right kind
}

// fault reads why the attempt failed. It reports false if no attempt failed; e may be nil.
func (e *ending) fault() (f stepFault, failed bool) {
	if e == nil || e.success || e.err == nil {
		return f, false
	}
	for key, value := range jsonMemberBytes(e.err) {
		kind, good := jsonKind(value), false
		switch string(key) {
		case "message":
			f.message, good = value, kind == '"'
		case "error_type":
			f.errorType, good = jsonString(value)
		case "retryable":
			f.retryable, good = kind == 't', kind == 't' || kind == 'f'
		case "status_code":
			n, ok := jsonInt(value)
			if ok {
				f.statusCode = &n
			}
			good = kind == 'n' || ok && n >= 0 && n <= math.MaxUint16
		case "context":
			f.context, good = value, kind == '{'
		}
		f.members += boolCount(good)
	}
	return f, true
}

// errorTextPart is how much of the beginning and of the end of a long error is its text, in bytes.
const errorTextPart = 256

// errorTextOf returns the text by which an error is found: its type and its message, in lower case, without credentials
// in URLs. The headline of a stack trace is at its beginning or at its end.
func errorTextOf(err []byte) string {
	f, _ := (&ending{err: err}).fault()
	text := strings.ToLower(f.errorType + ": " + f.text())
	if len(text) > 2*errorTextPart {
		text = textStart(text, errorTextPart) + "\n" + textEnd(text, errorTextPart)
	}
	return text
}

// text returns the message of an error, safe to show.
func (f *stepFault) text() string {
	message, ok := jsonString(f.message)
	if !ok {
		message = string(f.message)
	}
	return cleanText([]byte(message))
}

// isLost reports whether the attempt failed only because its worker was lost.
func (e *ending) isLost() bool {
	f, _ := e.fault()
	return f.errorType == workerLostType
}

// subscriberMark is how far one subscriber got.
type subscriberMark struct {
	subscriber string
	from       uint64      // of a new subscriber, which gets what records after this one publish; else 0
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

// The coder of members: one description of an object's members serves for writing and for
// reading it, so that both directions cannot differ.

// memberCoder writes the members of an object, or reads them, so that a type names its members once for both
// directions. A member that is left out stands for its default. Reading is strict: a member that nobody asks for is an
// error, never ignored. It takes two passes if the object is not spelled as it would be written; see again.
type memberCoder struct {
	b []byte // writing: the text so far

	reading bool
	copies  bool   // values of any kind are copied, not slices of the object
	next    []byte // in the first pass: the object from the brace or comma before the first member not taken
	second  bool
	rest    []jsonMember // in the second pass: the members not taken
	inner   bool         // a member of an object within it was not taken
	err     error        // the first
}

// again begins a pass over an object to be read, and reports whether one is needed: the first takes the members in the
// order of writing, with no white space between them, the second, if some are left, in any spelling. After it err is
// final.
func (c *memberCoder) again(object []byte) bool {
	if c.second {
		c.refuseRest()
	}
	if c.reading && (c.second || !c.left() && !c.inner) {
		return false
	}
	*c = memberCoder{second: c.reading, copies: c.copies}
	c.open(object)
	return true
}

// open begins to read an object.
func (c *memberCoder) open(object []byte) {
	c.reading = true
	if jsonKind(object) != '{' {
		c.err = fmt.Errorf("%.40s is not an object", object)
	} else if c.next, c.rest = object, nil; c.second {
		for name, value := range jsonParts(object, '{') {
			c.rest = append(c.rest, jsonMember{name, value})
		}
	}
}

// left reports whether a member was not taken. In the first pass, there is more then than the closing brace.
func (c *memberCoder) left() bool {
	if c.second {
		return len(c.rest) > 0
	}
	return len(c.next) > 1
}

// refuseRest makes a member that nobody asked for an error.
func (c *memberCoder) refuseRest() {
	if len(c.rest) > 0 {
		c.fail(string(unescapeJSON(c.rest[0].name)), "unknown member, from a newer version")
	}
}

func (c *memberCoder) fail(name, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("member %q: %w", name, fmt.Errorf(format, args...))
	}
}

// appendName appends a member's name; its value comes next.
func appendName(b []byte, name string) []byte {
	// The text may end in the brace or comma that begins a list or an object, or be empty.
	if n := len(b); n > 0 && b[n-1] != '{' && b[n-1] != ',' {
		b = append(b, ',')
	}
	return append(append(append(b, '"'), name...), '"', ':')
}

// member returns the value of a member to be read, or nil.
func (c *memberCoder) member(name string) []byte {
	if c.second {
		return c.takeAny(name)
	}
	// b begins with a brace or a comma, then comes the name in quotes.
	b, start := c.next, len(name)+len(`,"":`)
	if len(b) <= start || b[start-2] != '"' || b[start-1] != ':' || string(b[2:start-2]) != name {
		return nil
	}
	end := skipJSONValue(b, start)
	if end == start { // white space
		return nil
	}
	c.next = b[end:]
	return b[start:end:end]
}

// skip passes over a member that is read.
func (c *memberCoder) skip(name string) {
	if c.reading {
		c.member(name)
	}
}

// takeAny is take in the second pass.
func (c *memberCoder) takeAny(name string) []byte {
	i := slices.IndexFunc(c.rest, func(m jsonMember) bool { return string(unescapeJSON(m.name)) == name })
	if i < 0 {
		return nil
	}
	value := c.rest[i].value
	c.rest = slices.Delete(c.rest, i, i+1)
	return value
}

// enter begins an object as a member, and reports whether there is one. Its members follow, then leave.
func (c *memberCoder) enter(name string, in *memberCoder) bool {
	if !c.reading {
		// Both write to one text: leave takes over what in has appended.
		in.b = append(appendName(c.b, name), '{')
		return true
	}
	raw := c.member(name)
	if raw != nil {
		in.second, in.copies = c.second, c.copies
		in.open(raw)
	}
	return raw != nil
}

// leave ends an object within another.
func (c *memberCoder) leave(in *memberCoder) {
	if !c.reading {
		c.b = append(in.b, '}')
		return
	}
	if in.second {
		in.refuseRest()
	}
	c.inner = c.inner || in.inner || in.left()
	c.err = cmp.Or(c.err, in.err)
}

// text is a string, left out if it is empty.
func (c *memberCoder) text(name string, v *string) { c.textUnless(name, v, "") }

// textUnless is a string, left out if it is the standard one.
func (c *memberCoder) textUnless(name string, v *string, standard string) {
	switch {
	case c.reading:
		*v = cmp.Or(c.string(name, c.member(name)), standard)
	case *v != standard:
		c.b = appendJSONString(appendName(c.b, name), *v)
	}
}

// string returns the value of raw, a string; "" for nil.
func (c *memberCoder) string(name string, raw []byte) string { return string(c.chars(name, raw)) }

// chars is string without a copy.
func (c *memberCoder) chars(name string, raw []byte) []byte {
	if jsonKind(raw) == '"' {
		return unescapeJSON(raw)
	}
	if raw != nil {
		c.fail(name, "%.40s is not a string", raw)
	}
	return nil
}

// given is a string, left out if it is nil.
func (c *memberCoder) given(name string, v **string) {
	if c.reading {
		if raw := c.member(name); raw != nil {
			*v = new(c.string(name, raw))
		}
	} else if *v != nil {
		c.b = appendJSONString(appendName(c.b, name), **v)
	}
}

// list is a list, left out if it is empty. It reads each element, or writes each of n.
func (c *memberCoder) list(name string, n int, read func(raw []byte), write func(i int)) {
	if c.reading {
		raw := c.member(name)
		if raw != nil && jsonKind(raw) != '[' {
			c.fail(name, "%.40s is not an array", raw)
		}
		for e := range jsonElements(raw) {
			if read(e); c.err != nil {
				break
			}
		}
		return
	}
	for i := range n {
		if i == 0 {
			c.b = appendName(c.b, name)
		}
		c.b = append(c.b, "[,"[min(i, 1)])
		write(i)
	}
	if n > 0 {
		c.b = append(c.b, ']')
	}
}

// texts is a list of strings, left out if it is empty.
func (c *memberCoder) texts(name string, v *[]string) {
	c.list(name, len(*v), func(raw []byte) { *v = append(*v, c.string(name, raw)) },
		func(i int) { c.b = appendJSONString(c.b, (*v)[i]) })
}

// raw is any JSON value, left out if it is nil.
func (c *memberCoder) raw(name string, v *[]byte) {
	switch {
	case c.reading:
		if *v = c.member(name); c.copies {
			*v = bytes.Clone(*v)
		}
	case *v != nil:
		c.b = append(appendName(c.b, name), *v...)
	}
}

// object is raw for an object.
func (c *memberCoder) object(name string, v *[]byte) {
	if c.raw(name, v); c.reading && *v != nil && jsonKind(*v) != '{' {
		c.fail(name, "%.40s is not an object", *v)
	}
}

// flag is a truth value, left out if it is true.
func (c *memberCoder) flag(name string, v *bool) {
	if c.reading {
		raw := c.member(name)
		if *v = raw == nil || string(raw) == "true"; !*v && string(raw) != "false" {
			c.fail(name, "%.40s is not true or false", raw)
		}
	} else if !*v {
		c.b = append(appendName(c.b, name), "false"...)
	}
}

// set is a truth value, left out if it is false.
func (c *memberCoder) set(name string, v *bool) {
	n := boolCount(*v)
	nonzero(c, name, &n)
	*v = n != 0
}

// id is an id, left out if it is zero.
func (c *memberCoder) id(name string, v *uuid) {
	if !c.reading {
		if *v != (uuid{}) {
			c.b = append(v.appendText(append(appendName(c.b, name), '"')), '"')
		}
		return
	}
	if raw := c.member(name); raw != nil {
		id, ok := parseUUID(c.chars(name, raw))
		if *v = id; !ok {
			c.fail(name, "%.40s is not a UUID", raw)
		}
	}
}

// ids is a list of ids, left out if it is empty. A zero id is null.
func (c *memberCoder) ids(name string, v *[]uuid) {
	c.list(name, len(*v), func(raw []byte) {
		id, ok := uuid{}, true
		if jsonKind(raw) != 'n' {
			id, ok = parseUUID(c.chars(name, raw))
		}
		if *v = append(*v, id); !ok {
			c.fail(name, "%.40s is not a UUID", raw)
		}
	}, func(i int) {
		if id := (*v)[i]; id.isZero() {
			c.b = append(c.b, "null"...)
		} else {
			c.b = append(id.appendText(append(c.b, '"')), '"')
		}
	})
}

// hex is bytes of a fixed length, in parts.
func (c *memberCoder) hex(name string, exists bool, parts ...[]byte) {
	if !c.reading {
		if exists {
			c.b = append(hex.AppendEncode(append(appendName(c.b, name), '"'), slices.Concat(parts...)), '"')
		}
		return
	}
	raw := c.member(name)
	if raw == nil {
		return
	}
	n := len(slices.Concat(parts...))
	b, err := hex.AppendDecode(nil, c.chars(name, raw))
	if err != nil || len(b) != n {
		c.fail(name, "%.80s is not a string of %d hex digits", raw, 2*n)
		return
	}
	for _, p := range parts {
		b = b[copy(p, b):]
	}
}

// object is an object, left out if it is nil. Reading, it begins as the standard one.
func object[T any](c *memberCoder, name string, v **T, standard T, members func(v *T, in *memberCoder)) {
	if !c.reading && *v == nil {
		return
	}
	var in memberCoder
	if c.enter(name, &in) {
		if c.reading {
			*v = new(standard)
		}
		members(*v, &in)
		c.leave(&in)
	}
}

// objects is a list of objects, left out if it is empty.
func objects[T any](c *memberCoder, name string, v *[]T, members func(v *T, in *memberCoder)) {
	c.list(name, len(*v), func(raw []byte) {
		in := memberCoder{second: c.second, copies: c.copies}
		in.open(raw)
		*v = append(*v, *new(T))
		members(&(*v)[len(*v)-1], &in)
		c.leave(&in)
	}, func(i int) {
		in := memberCoder{b: append(c.b, '{')}
		members(&(*v)[i], &in)
		c.leave(&in)
	})
}

// readMembers reads an object whose members a function names.
func readMembers[T any](object []byte, members func(v *T, c *memberCoder)) (v T, err error) {
	var c memberCoder
	for c.again(object) {
		v = *new(T)
		members(&v, &c)
	}
	return v, c.err
}

// appendMembers appends an object whose members a function names, without its closing brace.
func appendMembers[T any](b []byte, v *T, members func(v *T, c *memberCoder)) []byte {
	c := memberCoder{b: append(b, '{')}
	members(v, &c)
	return c.b
}

// made returns what v points to: a new value if it is to be read.
func made[T any](c *memberCoder, v **T) *T {
	if c.reading {
		*v = new(T)
	}
	return *v
}

// number is an integer.
func number[T ~int | ~int64 | ~uint64](c *memberCoder, name string, v *T) {
	if !c.reading {
		c.b = strconv.AppendInt(appendName(c.b, name), int64(*v), 10)
		return
	}
	if raw := c.member(name); raw != nil {
		n, ok := jsonInt(raw)
		if *v = T(n); !ok {
			c.fail(name, "%.40s is not an integer", raw)
		}
	}
}

// nonzero is an integer, left out if it is 0.
func nonzero[T ~int | ~int64 | ~uint64](c *memberCoder, name string, v *T) {
	if c.reading || *v != 0 {
		number(c, name, v)
	}
}

// word is one of a list of words, left out if the value has none.
func word[T ~uint8](c *memberCoder, name string, v *T, words []string) {
	if !c.reading {
		if int(*v) < len(words) && words[*v] != "" {
			c.b = append(append(append(appendName(c.b, name), '"'), words[*v]...), '"')
		}
		return
	}
	if raw := c.member(name); raw != nil {
		known, ok := parseWord[T](string(c.chars(name, raw)), words)
		if !ok {
			c.fail(name, "unknown word %.80s, from a newer version or damaged", raw)
			return
		}
		*v = known
	}
}
