package main

// The dead letter queue: an investigation entry for a task that went wrong. The
// entries are part of the fold of the task's records, and nothing but these is
// kept: a task that becomes blocked by a step that failed for good gets its
// entry as that record is applied, one that is stale with the record that says
// so, and an update is a record too. An entry changes no task.

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

// dlqReason is why a task is in the dead letter queue.
type dlqReason uint8

const (
	dlqStalenessTimeout dlqReason = iota
	dlqMaxRetriesExceeded
	dlqDependencyCycle // nothing makes it
	dlqWorkerUnavailable
	dlqManual // nothing makes it
	dlqReasons
	noDLQReason = dlqReason(255)
)

// The names on the wire; the words stand in the journal and in summaries, and
// requests may use either.
var (
	dlqReasonNames = [dlqReasons]string{
		"StalenessTimeout", "MaxRetriesExceeded", "DependencyCycleDetected", "WorkerUnavailable", "ManualDlq",
	}
	dlqReasonWords = [dlqReasons]string{
		"staleness_timeout", "max_retries_exceeded", "dependency_cycle_detected", "worker_unavailable",
		"manual_dlq",
	}
)

func (r dlqReason) String() string { return dlqReasonNames[r] }

func (r dlqReason) word() string { return dlqReasonWords[r] }

// dlqWeights is what an entry's reason counts in the investigation queue.
var dlqWeights = [dlqReasons]float64{
	dlqDependencyCycle: 1000, dlqMaxRetriesExceeded: 500, dlqStalenessTimeout: 100, dlqWorkerUnavailable: 50,
	dlqManual: 10,
}

// dlqStatus is how far the investigation of an entry is.
type dlqStatus uint8

const (
	dlqPending dlqStatus = iota
	dlqManuallyResolved
	dlqPermanentlyFailed
	dlqCancelled
	dlqStatuses
	noDLQStatus = dlqStatus(255)
)

var (
	dlqStatusNames = [dlqStatuses]string{"Pending", "ManuallyResolved", "PermanentlyFailed", "Cancelled"}
	dlqStatusWords = [dlqStatuses]string{"pending", "manually_resolved", "permanently_failed", "cancelled"}
)

func (s dlqStatus) String() string { return dlqStatusNames[s] }

func (s dlqStatus) word() string { return dlqStatusWords[s] }

func parseDLQReason(s string) (dlqReason, bool) {
	i := max(slices.Index(dlqReasonNames[:], s), slices.Index(dlqReasonWords[:], s))
	return dlqReason(max(i, 0)), i >= 0
}

func parseDLQStatus(s string) (dlqStatus, bool) {
	i := max(slices.Index(dlqStatusNames[:], s), slices.Index(dlqStatusWords[:], s))
	return dlqStatus(max(i, 0)), i >= 0
}

// deadLetter is one entry of a task.
type deadLetter struct {
	seq      uint64 // of the record that made it
	at       instant
	reason   dlqReason
	state    taskState // of the task when it was made; of a stale one, before it moved
	status   dlqStatus
	resolved instant // when it left Pending; 0 while it is in it
	updated  instant
	notes    *string // nil until given, as the two below
	by       *string
	metadata []byte // a JSON object
}

// dlqEntryID is the id of the entry that a record made.
func dlqEntryID(id uuid, at instant, seq uint64) uuid {
	return recordID(&task{id: id}, &record{at: at, seq: seq}, 3)
}

// staleMark is what a record of the kind stale says: the limit, in minutes,
// that the task broke, and the reason of its entry; noDLQReason for none.
type staleMark struct {
	limit  int
	reason dlqReason
}

// investigation is an update of an entry. What was not given is nil or noDLQStatus.
type investigation struct {
	entry    uint64 // the seq of the entry
	status   dlqStatus
	notes    *string
	by       *string
	metadata []byte
}

// bury makes an entry, unless one is pending already.
func (a *applier) bury(reason dlqReason) {
	t := a.t
	if t.pendingLetter() != nil {
		return
	}
	t.dead = append(t.dead, deadLetter{
		seq: a.r.seq, at: a.r.at, reason: reason, state: t.state, status: dlqPending, updated: a.r.at,
	})
}

// expire takes a stale task to error.
func (a *applier) expire() {
	if a.r.stale.reason != noDLQReason {
		a.bury(a.r.stale.reason)
	}
	a.moveTask(taskStale)
}

// investigate updates an entry.
func (a *applier) investigate() {
	q := a.r.investigation
	i := slices.IndexFunc(a.t.dead, func(d deadLetter) bool { return d.seq == q.entry })
	if i < 0 {
		a.err = fmt.Errorf("it has no dead letter of record %d", q.entry)
		return
	}
	d := &a.t.dead[i]
	d.updated = a.r.at
	if q.status != noDLQStatus {
		switch {
		case q.status == dlqPending:
			d.resolved = 0
		case d.status == dlqPending:
			d.resolved = a.r.at
		}
		d.status = q.status
	}
	if q.notes != nil {
		d.notes = q.notes
	}
	if q.by != nil {
		d.by = q.by
	}
	if q.metadata != nil {
		d.metadata = q.metadata
	}
}

// pendingLetter is the one entry of the task that is pending, or nil.
func (t *task) pendingLetter() *deadLetter {
	for i := range t.dead {
		if t.dead[i].status == dlqPending {
			return &t.dead[i]
		}
	}
	return nil
}

// currentLetter is the pending entry, else the newest; nil when there is none.
func (t *task) currentLetter() *deadLetter {
	if d := t.pendingLetter(); d != nil || len(t.dead) == 0 {
		return d
	}
	return &t.dead[len(t.dead)-1]
}

// investigate records an update of an entry, durable when it returns.
func (s *service) investigate(ctx context.Context, id uuid, q *investigation) error {
	seq, err := s.engine.change(ctx, func(c *change) error {
		row, ok := c.s.dead.find(id)
		if !ok {
			return failf(notFound, "DLQ entry %s not found", id)
		}
		t, err := c.task(row.task)
		if err != nil {
			return err
		}
		given := *q
		given.entry = row.seq
		if p := t.pendingLetter(); q.status == dlqPending && p != nil && p.seq != row.seq {
			return failf(conflict, "cannot set entry %s back to %s: entry %s of its task is pending",
				id, dlqPending, dlqEntryID(t.id, p.at, p.seq))
		}
		return c.append(t, &record{kind: recDLQUpdate, step: -1, investigation: &given})
	})
	if err != nil {
		return err
	}
	return s.store.journal.wait(ctx, seq)
}

// appendStale appends {"limit", "reason"?} of a record of the kind stale.
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

// members calls f for each member of an object, until something is wrong.
func (d *recordDecoder) members(value []byte, f func(key string, value []byte)) {
	ok := eachMember(value, func(key string, value []byte) bool {
		f(key, value)
		return d.err == nil
	})
	if !ok && d.err == nil {
		d.err = fmt.Errorf("%.40s is no object", value)
	}
}

// letterHeader is what the header of a task's line says of an entry: enough to
// index it.
type letterHeader struct {
	seq          uint64
	at, resolved instant
	reason       dlqReason
	state        taskState
	status       dlqStatus
}

func (d *deadLetter) header() letterHeader {
	return letterHeader{d.seq, d.at, d.resolved, d.reason, d.state, d.status}
}

func (t *task) letterHeaders() []letterHeader {
	list := make([]letterHeader, len(t.dead))
	for i := range t.dead {
		list[i] = t.dead[i].header()
	}
	return list
}

// appendLetters appends the entries as they stand in the header of a line.
func appendLetters(b []byte, dead []deadLetter) []byte {
	if len(dead) == 0 {
		return b
	}
	b = append(b, `,"dlq":[`...)
	for i := range dead {
		if i > 0 {
			b = append(b, ',')
		}
		d := &dead[i]
		b = append(b, `{"seq":`...)
		b = strconv.AppendUint(b, d.seq, 10)
		b = appendNumber(b, "at", int64(d.at))
		b = appendText(b, "reason", d.reason.word())
		b = appendText(b, "state", d.state.String())
		b = appendText(b, "status", d.status.word())
		b = append(appendNumber(b, "resolved", int64(d.resolved)), '}')
	}
	return append(b, ']')
}

func (d *recordDecoder) letterHeaders(value []byte) (list []letterHeader) {
	ok := eachElement(value, func(e []byte) bool {
		list = append(list, d.letterHeader(e))
		return d.err == nil
	})
	if !ok && d.err == nil {
		d.err = fmt.Errorf("%.40s is no array", value)
	}
	return list
}

func (d *recordDecoder) letterHeader(value []byte) (h letterHeader) {
	d.members(value, func(key string, value []byte) {
		switch key {
		case "seq":
			h.seq = uint64(d.number(value))
		case "at":
			h.at = instant(d.number(value))
		case "reason":
			h.reason = dlqReason(d.word(value, dlqReasonWords[:]))
		case "state":
			h.state = taskState(d.word(value, taskStateNames[:]))
		case "status":
			h.status = dlqStatus(d.word(value, dlqStatusWords[:]))
		case "resolved":
			h.resolved = instant(d.number(value))
		default:
			d.err = fmt.Errorf("unknown member %q, from a newer version", key)
		}
	})
	return h
}
