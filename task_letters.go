package main

// Dead letters: why and when a task gets an entry in the dead letter queue, and how an
// investigation updates it. Entries are part of the fold of the task's records.

import (
	"cmp"
	"fmt"
	"slices"
)

// dlqReason is why a task is in the dead letter queue.
type dlqReason uint8

const (
	dlqStalenessTimeout dlqReason = iota
	dlqMaxRetriesExceeded
	dlqDependencyCycle // known to the API, but never set
	dlqWorkerUnavailable
	dlqManual // known to the API, but never set
	dlqReasons
	noDLQReason = dlqReason(255)
)

// The names are for the API, the words for the journal and for summaries;
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

// dlqStatus is the state of an entry's investigation.
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
	return parseWord[dlqReason](s, dlqReasonNames[:], dlqReasonWords[:])
}

func parseDLQStatus(s string) (dlqStatus, bool) {
	return parseWord[dlqStatus](s, dlqStatusNames[:], dlqStatusWords[:])
}

// deadLetter is one entry of a task in the dead letter queue.
type deadLetter struct {
	// What a task's line has before its log:
	seq          uint64  // of the record that made the entry
	at, resolved instant // when it was made, and left Pending; resolved is 0 while pending
	reason       dlqReason
	state        taskState // of the task when the entry was made; of a stale task, before it moved
	status       dlqStatus

	step     int // the step that stopped the task, as the log says; -1 for none
	updated  instant
	notes    *string // nil until given, like by and metadata
	by       *string
	metadata []byte // a JSON object
}

// dlqEntryID returns the id of the entry that a record made.
func dlqEntryID(id uuid, at instant, seq uint64) uuid {
	return recordID(id, &record{at: at, seq: seq}, 3)
}

// staleMark is the content of a stale record: the limit in minutes that the
// task exceeded, and the reason of its entry, or noDLQReason for no entry.
type staleMark struct {
	limit  int
	reason dlqReason
}

// investigation is an update of an entry. Members that were not given are nil
// or noDLQStatus.
type investigation struct {
	entry    uint64 // the seq of the entry
	status   dlqStatus
	notes    *string
	by       *string
	metadata []byte
	subject  string // who, by authentication; of the record, like the request
	request  string
}

// addDeadLetter adds an entry, unless one is pending.
func (a *applier) addDeadLetter(reason dlqReason) {
	t := a.t
	if t.pendingLetter() != nil {
		return
	}
	t.dead = append(t.dead, deadLetter{seq: a.r.seq, at: a.r.at, reason: reason, state: t.state, status: dlqPending,
		step: a.stopper(), updated: a.r.at})
}

// stopper returns the step that stopped the task. It is the step of the record if that is in error, else the step in
// error that failed last, else the step waiting for its retry that failed last. It is -1 if no step is failing.
func (a *applier) stopper() int {
	steps, last := a.t.steps, -1
	if i := a.r.step; i >= 0 && steps[i].state == stepInError {
		return i
	}
	for i := range steps {
		s := &steps[i]
		if s.failing() && (last < 0 || cmp.Or(boolCount(s.state == stepInError)-boolCount(steps[last].state == stepInError),
			cmp.Compare(s.failed, steps[last].failed)) > 0) {
			last = i
		}
	}
	return last
}

// investigate updates an entry.
func (a *applier) investigate() {
	q := a.r.investigation
	d := a.t.letter(q.entry)
	if d == nil {
		a.err = fmt.Errorf("it has no dead letter of record %d", q.entry)
		return
	}
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
	d.notes, d.by = cmp.Or(q.notes, d.notes), cmp.Or(q.by, d.by)
	if q.metadata != nil {
		d.metadata = q.metadata
	}
}

// letter returns the entry that a record made, or nil.
func (t *task) letter(seq uint64) *deadLetter {
	i := slices.IndexFunc(t.dead, func(d deadLetter) bool { return d.seq == seq })
	if i < 0 {
		return nil
	}
	return &t.dead[i]
}

// pendingLetter returns the task's pending entry, or nil. A task has at most
// one.
func (t *task) pendingLetter() *deadLetter {
	for i := range t.dead {
		if t.dead[i].status == dlqPending {
			return &t.dead[i]
		}
	}
	return nil
}

// currentLetter returns the pending entry, else the newest; nil without
// entries.
func (t *task) currentLetter() *deadLetter {
	if d := t.pendingLetter(); d != nil || len(t.dead) == 0 {
		return d
	}
	return &t.dead[len(t.dead)-1]
}
