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
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"time"
)

// recordKind is the kind of a record; the journal holds its name.
type recordKind uint8

const (
	recTemplate  recordKind = iota // a template was used for the first time
	recCreated                     // a task was created
	recStarted                     // an attempt started
	recRan                         // an attempt started and ended at once, as builtins do
	recEnded                       // a started attempt ended
	recLate                        // a result came too late to count
	recDue                         // the wait before a retry is over
	recRecovered                   // an attempt was cut off with the process that ran it
	recOperator                    // an operator or outside actor acted on a step
	recCancelled                   // the task was cancelled
	recStale                       // the task stayed in its state for too long
	recDLQUpdate                   // an entry of the dead letter queue was updated
	recDropped                     // the finished task is not kept any more
	recClaimed                     // an outside actor's attempt started, under a lease
	recExtended                    // its lease was extended
	recAdjusted                    // an operator changed a step's inputs or limit of attempts
	recordKinds
)

var recordKindNames = [recordKinds]string{
	"template", "created", "started", "ran", "ended", "late", "due", "recovered", "operator", "cancelled",
	"stale", "investigated", "dropped", "claimed", "extended", "adjusted",
}

func (k recordKind) String() string { return recordKindNames[k] }

// ofStep reports whether a record of this kind is about a step of a task.
func (k recordKind) ofStep() bool {
	switch k {
	case recCreated, recCancelled, recStale, recDLQUpdate, recDropped:
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
	reason     string // operator: why
	hash       string // template
	definition []byte // template: its normalized JSON

	lease         *lease         // claimed; extended has its end alone
	stale         *staleMark     // stale
	investigation *investigation // investigated
	adjustment    *adjustment    // adjusted
}

// creation is what a task was created with.
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
	traceparent       string
	request           requestMark // of the Idempotency-Key header
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

	decision *branching // what result decides, between reading and applying it; not stored
}

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

// appendRecordMembers appends the members of a record. The journal adds the
// braces, the sequence and the checksum.
func appendRecordMembers(b []byte, r *record) []byte {
	if r.kind != recTemplate {
		b = append(b, `"task":"`...)
		b = r.task.appendText(b)
		b = append(b, `",`...)
	}
	return appendRecordBody(b, r)
}

// appendRecordBody is appendRecordMembers without the task's id, as in the log
// of the task's line.
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

// The append… helpers leave out values that are empty, zero or the default.

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

// Reading records back from the journal, strictly: a member that is not
// understood is an error, never ignored.

// decodeRecord reads a record from its JSON object, and keeps slices of it.
func decodeRecord(line []byte) (*record, error) {
	d := recordDecoder{r: &record{kind: recordKinds, step: -1}}
	if !eachMemberBytes(line, d.member) {
		return nil, fmt.Errorf("a record must be a JSON object")
	}
	if d.err != nil {
		return nil, d.err
	}
	if d.r.kind == recordKinds {
		return nil, fmt.Errorf("record without a kind")
	}
	d.r.created, d.r.end = d.created, d.end
	if d.r.kind == recRan {
		d.r.startedAt = d.r.at - d.began
	}
	return d.r, d.complete()
}

// recordDecoder collects the members of one record.
type recordDecoder struct {
	r       *record
	created *creation
	end     *ending
	began   instant // time from the start of the attempt to the record
	err     error
}

// complete checks that the record has what its kind needs, and fills in
// defaults.
func (d *recordDecoder) complete() error {
	r := d.r
	switch {
	case r.kind == recTemplate:
		if r.hash == "" || r.definition == nil {
			return fmt.Errorf("template record without hash or definition")
		}
	case r.kind == recCreated:
		if r.created == nil || r.created.template == "" {
			return fmt.Errorf("created record without its template")
		}
		fillCreation(r.created)
	case r.kind == recCancelled, r.kind == recDropped:
	case r.kind == recStale:
		if r.stale == nil {
			return fmt.Errorf("stale record without its limit")
		}
	case r.kind == recDLQUpdate:
		if r.investigation == nil {
			return fmt.Errorf("investigated record without its entry")
		}
	case r.step < 0:
		return fmt.Errorf("%s record without a step", r.kind)
	case r.kind == recClaimed && (r.lease == nil || r.lease.hash == leaseHash{} || r.lease.until == 0),
		r.kind == recExtended && (r.lease == nil || r.lease.until == 0):
		return fmt.Errorf("%s record without its lease", r.kind)
	case r.kind == recAdjusted:
		return r.adjustment.problem()
	case r.action == actionFail && (r.end == nil || r.end.success):
		return fmt.Errorf("a failure by an operator without its error")
	case r.end == nil && r.hasOutcome():
		r.end = &ending{success: true}
	}
	return nil
}

func fillCreation(c *creation) {
	if c.initiator == "" {
		c.initiator = defaultInitiator
	}
	if c.source == "" {
		c.source = defaultSource
	}
	if c.reason == "" {
		c.reason = defaultReason
	}
	if c.context == nil {
		c.context = []byte("{}")
	}
}

func (d *recordDecoder) member(key, value []byte) bool {
	switch string(key) {
	case "seq":
		d.r.seq = uint64(d.number(value))
	case "at":
		d.r.at = instant(d.number(value))
	case "kind":
		d.r.kind = recordKind(d.word(value, recordKindNames[:]))
	case "task":
		d.r.task = d.id(value)
	case "step":
		d.r.step = int(d.number(value))
	case "began":
		d.began = instant(d.number(value))
	case "action":
		d.r.action = stepAction(d.word(value, stepActionNames[:]))
	case "by":
		d.r.by = d.text(value)
	case "subject":
		d.r.subject = d.text(value)
	case "ids":
		d.r.ids = d.id(value)
	case "hash":
		d.r.hash = d.text(value)
	case "definition":
		d.r.definition = value
	case "stale":
		d.r.stale = d.staleMark(value)
	case "dlq":
		d.r.investigation = d.investigation(value)
	case "lease", "until":
		d.leaseMember(string(key), value)
	case "worker": // of a claim, or of an outcome
		if d.r.kind == recClaimed {
			d.lease().worker = d.text(value)
		} else {
			d.endingMember(string(key), value)
		}
	case "max_attempts", "inputs":
		d.adjustmentMember(string(key), value)
	case "sum":
	case "reason": // of an operator, or of a created task
		d.r.reason = d.text(value)
		if d.r.kind == recCreated {
			d.creation().reason = d.r.reason
		}
	case "ok", "ms", "attempt", "retry_at", "result", "error", "metadata":
		d.endingMember(string(key), value)
	default:
		d.creationMember(string(key), value)
	}
	if d.err != nil {
		d.err = fmt.Errorf("member %q: %w", key, d.err)
	}
	return d.err == nil
}

func (d *recordDecoder) creation() *creation {
	if d.created == nil {
		d.created = new(creation)
	}
	return d.created
}

func (d *recordDecoder) creationMember(key string, value []byte) {
	c := d.creation()
	switch key {
	case "template":
		c.template = d.text(value)
	case "identity":
		raw, err := hex.DecodeString(d.text(value))
		if err != nil || copy(c.identity[:], raw) != len(c.identity) {
			d.err = fmt.Errorf("not an identity of 32 hex digits")
		}
	case "context":
		c.context = value
	case "initiator":
		c.initiator = d.text(value)
	case "source":
		c.source = d.text(value)
	case "tags":
		eachElement(value, func(e []byte) bool {
			c.tags = append(c.tags, d.text(e))
			return true
		})
	case "priority":
		c.priority = int(d.number(value))
	case "correlation":
		c.correlation = d.id(value)
	case "parent_correlation":
		c.parentCorrelation = d.id(value)
	case "requested":
		c.requested = instant(d.number(value))
	case "options":
		c.options = value
	case "key":
		c.key = d.text(value)
	case "traceparent":
		c.traceparent = d.text(value)
	case "request":
		var ok bool
		if c.request, ok = parseRequestMark(d.text(value)); !ok {
			d.err = fmt.Errorf("not the mark of a request, 64 hex digits")
		}
	default:
		d.err = fmt.Errorf("unknown member, from a newer version")
	}
}

func (d *recordDecoder) endingMember(key string, value []byte) {
	if d.end == nil {
		d.end = &ending{success: true}
	}
	switch key {
	case "ok":
		d.end.success = string(value) == "true"
	case "ms":
		d.end.took = time.Duration(d.number(value)) * time.Millisecond
	case "attempt":
		d.end.attempt = int(d.number(value))
	case "retry_at":
		d.end.retryAt = instant(d.number(value))
	case "result":
		d.end.result = value
	case "error":
		d.end.err = value
	case "metadata":
		d.end.metadata = value
	case "worker":
		d.end.worker = d.text(value)
	}
}

func (d *recordDecoder) number(value []byte) int64 {
	n, ok := jsonInt(value)
	if !ok {
		d.err = fmt.Errorf("%.40s is not an integer", value)
	}
	return n
}

func (d *recordDecoder) text(value []byte) string {
	s, ok := jsonString(value)
	if !ok {
		d.err = fmt.Errorf("%.40s is not a string", value)
	}
	return s
}

func (d *recordDecoder) id(value []byte) uuid {
	id, ok := parseUUID(d.text(value))
	if !ok && d.err == nil {
		d.err = fmt.Errorf("%.40s is not a UUID", value)
	}
	return id
}

func (d *recordDecoder) word(value []byte, words []string) int {
	s := d.text(value)
	i := slices.Index(words, s)
	if i < 0 && d.err == nil {
		d.err = fmt.Errorf("unknown word %q, from a newer version or damaged", s)
	}
	return max(i, 0)
}

// appendStale appends {"limit", "reason"?} of a stale record.
func appendStale(b []byte, m *staleMark) []byte {
	b = append(b, `,"stale":{"limit":`...)
	b = strconv.AppendInt(b, int64(m.limit), 10)
	if m.reason != noDLQReason {
		b = appendText(b, "reason", m.reason.word())
	}
	return append(b, '}')
}

// appendInvestigation appends {"entry", "status"?, "notes"?, "by"?, "metadata"?}.
func appendInvestigation(b []byte, q *investigation) []byte {
	b = append(b, `,"dlq":{"entry":`...)
	b = strconv.AppendUint(b, q.entry, 10)
	if q.status != noDLQStatus {
		b = appendText(b, "status", q.status.word())
	}
	if q.notes != nil {
		b = appendJSONString(appendName(b, "notes"), *q.notes)
	}
	if q.by != nil {
		b = appendJSONString(appendName(b, "by"), *q.by)
	}
	b = appendRaw(b, "metadata", q.metadata)
	return append(b, '}')
}

func (d *recordDecoder) staleMark(value []byte) *staleMark {
	m := &staleMark{reason: noDLQReason}
	d.members(value, func(key string, value []byte) {
		switch key {
		case "limit":
			m.limit = int(d.number(value))
		case "reason":
			m.reason = dlqReason(d.word(value, dlqReasonWords[:]))
		default:
			d.err = fmt.Errorf("unknown member %q, from a newer version", key)
		}
	})
	return m
}

func (d *recordDecoder) investigation(value []byte) *investigation {
	q := &investigation{status: noDLQStatus}
	d.members(value, func(key string, value []byte) {
		switch key {
		case "entry":
			q.entry = uint64(d.number(value))
		case "status":
			q.status = dlqStatus(d.word(value, dlqStatusWords[:]))
		case "notes":
			q.notes = new(d.text(value))
		case "by":
			q.by = new(d.text(value))
		case "metadata":
			q.metadata = value
		default:
			d.err = fmt.Errorf("unknown member %q, from a newer version", key)
		}
	})
	return q
}

// members calls f for each member of an object until there is an error.
func (d *recordDecoder) members(value []byte, f func(key string, value []byte)) {
	ok := eachMember(value, func(key string, value []byte) bool {
		f(key, value)
		return d.err == nil
	})
	if !ok && d.err == nil {
		d.err = fmt.Errorf("%.40s is not an object", value)
	}
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
func hashOf(parts ...[]byte) (k [16]byte) {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(p))))
		h.Write(p)
	}
	copy(k[:], h.Sum(nil))
	return k
}

// appendRequestMark appends the mark as a member of a creation.
func appendRequestMark(b []byte, m requestMark) []byte {
	if m == (requestMark{}) {
		return b
	}
	b = append(appendName(b, "request"), '"')
	b = hex.AppendEncode(b, m.key[:])
	b = hex.AppendEncode(b, m.body[:])
	return append(b, '"')
}

// parseRequestMark reads the text that appendRequestMark writes.
func parseRequestMark(s string) (m requestMark, ok bool) {
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != len(m.key)+len(m.body) {
		return m, false
	}
	copy(m.body[:], raw[copy(m.key[:], raw):])
	return m, true
}

// leaseHash is the hash of a lease's token. The token itself is not kept.
type leaseHash [16]byte

func hashLease(token string) (h leaseHash) {
	sum := sha256.Sum256([]byte(token))
	copy(h[:], sum[:])
	return h
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

// appendLease appends the members of a claim, or the new end of a lease.
func appendLease(b []byte, l *lease) []byte {
	if l.hash != (leaseHash{}) {
		b = append(b, `,"lease":"`...)
		b = hex.AppendEncode(b, l.hash[:])
		b = append(b, '"')
	}
	b = appendNumber(b, "until", int64(l.until))
	return appendText(b, "worker", l.worker)
}

func (d *recordDecoder) lease() *lease {
	if d.r.lease == nil {
		d.r.lease = new(lease)
	}
	return d.r.lease
}

func (d *recordDecoder) leaseMember(key string, value []byte) {
	l := d.lease()
	if key == "until" {
		l.until = instant(d.number(value))
		return
	}
	raw, err := hex.DecodeString(d.text(value))
	if err != nil || len(raw) != len(l.hash) {
		d.err = fmt.Errorf("not the hash of a lease in 32 hex digits")
	}
	copy(l.hash[:], raw)
}

// stepFault is what the error of a failed attempt says.
type stepFault struct {
	message    []byte // a JSON value
	errorType  string
	retryable  bool
	statusCode *int64 // nil for none
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

func appendAdjustment(b []byte, a *adjustment) []byte {
	return appendRaw(appendNumber(b, "max_attempts", int64(a.maxAttempts)), "inputs", a.inputs)
}

func (d *recordDecoder) adjustmentMember(key string, value []byte) {
	if d.r.adjustment == nil {
		d.r.adjustment = new(adjustment)
	}
	switch key {
	case "max_attempts":
		d.r.adjustment.maxAttempts = int(d.number(value))
	case "inputs":
		d.r.adjustment.inputs = value
	}
}
