package main

// Failure groups: which steps fail now, and which of these failures have one cause. A group is the
// failures of one step of a template, whatever its version, with one error type and one message apart
// from what differs from one failure to the next.

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// failing reports whether the latest attempt of the step failed and the next cannot start yet: the step
// failed for good, or waits for its retry, which may be overdue while its task is stopped.
func (s *step) failing() bool {
	switch s.state {
	case stepInError, stepWaitingForRetry:
		return true
	case stepPending:
		return s.last != nil && s.last.retryAt != 0
	}
	return false
}

// failureKey is the secret of a store by which it names its failure groups: without it, nobody can find out by a guess
// at a message whether a task failed with it. It stays the same for the life of the store.
type failureKey [32]byte

func newFailureKey() (k failureKey) {
	rand.Read(k[:])
	return k
}

// failureGroup is the name of a group. It follows from the group's cause and the key of the store. 0 is none.
type failureGroup uint64

func (g failureGroup) String() string { return fmt.Sprintf("%016x", uint64(g)) }

func (g failureGroup) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// parseFailureGroup reads the name of a group: 16 hexadecimal digits, not all zero.
func parseFailureGroup(name string) (failureGroup, bool) {
	n, err := strconv.ParseUint(name, 16, 64)
	return failureGroup(n), err == nil && len(name) == 16 && n > 0
}

// failureCause identifies the cause that all failures of a group share.
type failureCause struct {
	namespace, name string // of the template
	step            string // of the template
	errorType       string
	message         string // see groupMessage
}

func (c failureCause) group(key *failureKey) failureGroup {
	sum := hashOf(key[:], []byte(c.namespace), []byte(c.name), []byte(c.step), []byte(c.errorType), []byte(c.message))
	return failureGroup(max(binary.BigEndian.Uint64(sum[:]), 1))
}

// failedStep is a step whose latest attempt failed, apart from its task. Nobody changes it.
type failedStep struct {
	task, id uuid
	tpl      *template
	declared int // the step of the template
	last     *ending
}

func (t *task) failedStep(i int) failedStep {
	return failedStep{t.id, t.stepID(i), t.tpl, t.declared(i), t.steps[i].last}
}

// cause returns the cause of the failure. It takes some microseconds.
func (f failedStep) cause() failureCause {
	fault, _ := f.last.fault()
	message, _ := jsonString(fault.message)
	return failureCause{
		f.tpl.namespace, f.tpl.name, f.tpl.steps[f.declared].name, fault.errorType, groupMessage(message),
	}
}

// How many bytes of a headline count, and of what is left of it.
const (
	maxGroupHeadline = 1000
	maxGroupMessage  = 200
)

// groupMessage (hot path: BenchmarkFailingTask) returns the headline of an error's message with a * in place of what
// differs from one failure to the next: numbers, ids and other words with a digit, times, addresses, and what is
// quoted. A row of these is one *. URLs are redacted before, as wherever messages are shown.
func groupMessage(message string) string {
	text := headline(cleanText([]byte(message)))
	// The cut may fall into the middle of a character.
	text = strings.ToValidUTF8(text[:min(len(text), maxGroupHeadline)], "")
	text = strings.Join(strings.Fields(text), " ")
	var b []byte
	star := -1 // the length of b after its last *
	for i := 0; i < len(text) && len(b) < maxGroupMessage; {
		n, varies := messagePart(text, i)
		switch {
		case !varies:
			b = append(b, text[i:i+n]...)
		// Only separators since the last *: both values become one *.
		case star >= 0 && strings.Trim(string(b[star:]), " ,;:/.+-") == "":
			b = b[:star]
		default:
			b = append(b, '*')
			star = len(b)
		}
		i += n
	}
	return clipText(string(b), maxGroupMessage)
}

// messagePart returns the length of the part of a text that begins at an index, and whether the part varies. A
// part is a quoted value, an address, a word, or a single character.
func messagePart(text string, at int) (n int, varies bool) {
	rest := text[at:]
	if at == 0 || !isWordByte(text[at-1]) {
		if n := cmp.Or(quotedLength(rest), addressLength(rest)); n > 0 {
			return n, true
		}
	}
	n = wordLength(rest)
	if n > 0 && strings.HasPrefix(rest[n:], "://") {
		// Signs at the end belong to the sentence around the URL, but a closing bracket may belong to one inside it.
		url := untilAny(rest, " \"'`<>")
		return len(strings.TrimRight(url, ".,:;)"+pick(strings.Contains(url, "["), "", "]}"))), true
	}
	return max(n, 1), wordVaries(rest[:n])
}

// messageQuotes are the quotes around values.
var messageQuotes = [...][2]string{{`"`, `"`}, {"'", "'"}, {"`", "`"}, {"“", "”"}, {"‘", "’"}, {"«", "»"}}

// quotedLength returns the length of the quoted value that begins a text, with its quotes; 0 for none.
func quotedLength(text string) int {
	for _, q := range messageQuotes {
		if !strings.HasPrefix(text, q[0]) {
			continue
		}
		for end := len(q[0]); ; {
			i := strings.Index(text[end:], q[1])
			if i < 0 {
				return 0
			}
			end += i + len(q[1])
			escaped := text[end-len(q[1])-1] == '\\'
			apostrophe := q[1] == "'" && end < len(text) && isWordByte(text[end]) // as in it's
			if !escaped && !apostrophe {
				return end
			}
		}
	}
	return 0
}

// addressLength returns the length of the IPv6 or MAC address, or the time, that begins a text; 0 for
// none. Other addresses are words with a digit.
func addressLength(text string) int {
	n := 0
	for n < len(text) && (text[n] == ':' || text[n] == '.' || unhex(text[n]) < 16) {
		n++
	}
	address := strings.TrimRight(text[:n], ":.")
	// A single colon belongs to a port or a sentence.
	if n < len(text) && isWordByte(text[n]) || strings.Count(address, ":") < 2 || !wordVaries(address) {
		return 0
	}
	return len(address)
}

// isWordByte reports whether a byte belongs to a word. All bytes of characters outside ASCII do.
func isWordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c >= utf8.RuneSelf
}

// wordLength returns the length of the word that begins a text; 0 for none. Signs inside a word, as in
// names of hosts and mail addresses, and the sign of a number belong to the word.
func wordLength(text string) (n int) {
	for ; n < len(text); n++ {
		next := n+1 < len(text) && isWordByte(text[n+1])
		within := n > 0 && next && strings.IndexByte(".-+@'", text[n]) >= 0
		signed := n == 0 && next && text[1] <= '9' && (text[0] == '-' || text[0] == '+')
		if !isWordByte(text[n]) && !within && !signed {
			break
		}
	}
	return n
}

// timeWords are the words of times.
var timeWords = strings.Fields("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec Mon Tue Wed Thu Fri Sat Sun AM PM")

// wordVaries reports whether a word is a value: it has a digit, is a mail address or of a time, or is
// long and has no letter but those of hexadecimal numbers.
func wordVaries(word string) bool {
	hex := len(word) >= 8
	for _, c := range []byte(word) {
		if '0' <= c && c <= '9' || c == '@' {
			return true
		}
		hex = hex && (c == '-' || unhex(c) < 16)
	}
	return hex || slices.Contains(timeWords, word)
}

// Dead letters: why and when a task gets one, and how an investigation updates it, in the fold of the task's records.

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

// The names are for the API, the words for the journal and for summaries; requests may use either.
var (
	dlqReasonNames = [dlqReasons]string{"StalenessTimeout", "MaxRetriesExceeded", "DependencyCycleDetected", "WorkerUnavailable", "ManualDlq"}
	dlqReasonWords = [dlqReasons]string{
		"staleness_timeout", "max_retries_exceeded", "dependency_cycle_detected", "worker_unavailable", "manual_dlq",
	}
)

func (r dlqReason) String() string { return dlqReasonNames[r] }

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

// staleMark is the content of a stale record.
type staleMark struct {
	limit  int       // that the task exceeded, in minutes
	reason dlqReason // of its entry; noDLQReason for no entry
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
