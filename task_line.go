package main

// A whole task as one line of JSON: the form of an ended task in memory, and of every task in the compacted part.
//
//	{"task":"…","state":"complete","created":…,"updated":…,"completed":…,"template":"…","seq":7,"last":12,
//	 "steps":{"complete":4},"log":[{record},…]}
//
// A task with entries in the dead letter queue has, before its log,
//
//	"dlq":[{"seq":9,"at":…,"reason":"max_retries_exceeded","state":"blocked_by_failures","status":"pending"},…]
//
// a task on which an operator acted has "acted", when that was last, and a task with steps that its template does not
// declare has "last_id", the greatest id of those. Everything before the log can be read without it.

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strconv"
)

const taskHead = `{"task":"`

// taskLine is a line that was read.
type taskLine struct {
	taskHeader        // without its template
	template   string // the hash of that
	log        []byte // records, separated by commas; a slice of the line
}

// sumTail is the form of the end of a line on disk.
const sumTail = `,"sum":"00000000"}`

// members are those before the log. The template is named by its hash.
func (h *taskHeader) members(c *memberCoder, template *string) {
	c.id("task", &h.id)
	word(c, "state", &h.state, taskStateNames[:])
	nonzero(c, "created", &h.created)
	nonzero(c, "updated", &h.updated)
	nonzero(c, "completed", &h.completed)
	c.text("template", template)
	nonzero(c, "seq", &h.seq)
	nonzero(c, "last", &h.lastSeq)
	nonzero(c, "acted", &h.acted)
	var in memberCoder
	if c.enter("steps", &in) {
		for s := range h.counts {
			nonzero(&in, stepStateNames[s], &h.counts[s])
		}
		c.leave(&in)
	}
	objects(c, "dlq", &h.dead, (*deadLetter).members)
	c.id("last_id", &h.lastID)
}

func (l *deadLetter) members(c *memberCoder) {
	nonzero(c, "seq", &l.seq)
	nonzero(c, "at", &l.at)
	word(c, "reason", &l.reason, dlqReasonWords[:])
	word(c, "state", &l.state, taskStateNames[:])
	word(c, "status", &l.status, dlqStatusWords[:])
	nonzero(c, "resolved", &l.resolved)
}

// appendHead appends a line up to its log.
func (h *taskHeader) appendHead(b []byte) []byte {
	b = appendMembers(b, h, func(h *taskHeader, c *memberCoder) { h.members(c, &h.tpl.hash) })
	return append(b, logHead...)
}

// logHead begins the log of a line, which comes last in it.
const logHead = `,"log":[`

// stepOfRecord returns the step that one of the task's records is about; -1 if it is about none.
func stepOfRecord(t *task, seq uint64) int {
	for entry := range logEntries(t.log) {
		if n, _ := jsonInt(objectMember(entry, "seq")); uint64(n) != seq {
			continue
		}
		if r, err := decodeRecord(entry); err == nil {
			return r.step
		}
	}
	return -1
}

func lineID(line []byte) (uuid, bool) {
	if len(line) < len(taskHead)+36 {
		return uuid{}, false
	}
	return parseUUID(line[len(taskHead) : len(taskHead)+36])
}

// leadingNumber reads a number of up to 18 digits, without leading zeros. It returns how many it has, 0 for none.
func leadingNumber(text []byte) (v int64, n int) {
	for n < len(text) && n < 18 && '0' <= text[n] && text[n] <= '9' { // 18 digits always fit
		v = 10*v + int64(text[n]-'0')
		n++
	}
	if n > 1 && text[0] == '0' {
		return 0, 0
	}
	return v, n
}

// taskMember is the length of `"task":"…"`, with which the members of a record about a task begin.
const taskMember = 45

// appendLog adds a record to the task's own log, which leaves out the task's id.
// The members are those of appendRecordMembers.
func (t *task) appendLog(seq uint64, members []byte) { t.log = appendLogEntry(t.log, seq, members) }

func appendLogEntry(log []byte, seq uint64, members []byte) []byte {
	if len(log) > 0 {
		log = append(log, ',')
	}
	log = strconv.AppendUint(append(log, `{"seq":`...), seq, 10)
	return append(append(log, members[taskMember:]...), '}')
}

// compactLog removes superseded checkpoints from the task's log, once they are half of the log or
// the task is over. It keeps the newest checkpoint of each step and removes all records of the
// deliveries that ended with older ones, except what the snapshots in dead letters show. A replay gives the same task.
func (t *task) compactLog() {
	if t.superseded == 0 || !t.state.ended() && t.superseded < len(t.log)/2 {
		return
	}
	t.superseded = 0
	dropped := supersededIn(t.log, t.dead)
	kept := make([]byte, 0, len(t.log))
	n := 0
	for entry := range logEntries(t.log) {
		if !dropped[n] {
			if len(kept) > 0 {
				kept = append(kept, ',')
			}
			kept = append(kept, entry...)
		}
		n++
	}
	t.log = kept
}

// supersededIn returns the entries of a log, by number, that belong to superseded checkpoints. It keeps the deliveries that
// began before a dead letter was made: its snapshot of the task is replayed from them.
func supersededIn(log []byte, letters []deadLetter) map[int]bool {
	dropped := map[int]bool{}
	begun, newest := map[int64][]int{}, map[int64][]int{} // by step: entries of its delivery, of its newest checkpoint
	n := -1
	for entry := range logEntries(log) {
		n++
		if seq, _ := jsonInt(objectMember(entry, "seq")); len(letters) > 0 && letters[0].seq <= uint64(seq) {
			letters = letters[1:]
			clear(begun)
			clear(newest)
		}
		step, ok := jsonInt(objectMember(entry, "step"))
		if !ok {
			continue // it is about the task, and ends no delivery
		}
		kind, _ := jsonString(objectMember(entry, "kind"))
		switch kind {
		case recStarted.String(), recClaimed.String():
			begun[step] = []int{n}
		case recExtended.String():
			if begun[step] != nil {
				begun[step] = append(begun[step], n)
			}
		case recCheckpoint.String():
			for _, i := range newest[step] {
				dropped[i] = true
			}
			newest[step] = nil
			if begun[step] != nil { // else the delivery began before a dead letter
				newest[step], begun[step] = append(begun[step], n), nil
			}
		// They do not end the delivery.
		case recAdjusted.String(), recLate.String(), recDLQUpdate.String():
		default:
			// The delivery ended without a checkpoint, and its records stay.
			begun[step] = nil
		}
	}
	return dropped
}

// errorTextsIn returns the texts of the errors of attempts in a log, without repeats.
func errorTextsIn(log []byte) (texts []string) {
	member := []byte(`"error":`)
	if !bytes.Contains(log, member) {
		return nil
	}
	for entry := range logEntries(log) {
		if !bytes.Contains(entry, member) {
			continue
		}
		kind, _ := jsonString(objectMember(entry, "kind"))
		if err := objectMember(entry, "error"); err != nil && kind != recLate.String() {
			if text := errorTextOf(err); !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

func logEntries(log []byte) iter.Seq[[]byte] {
	return func(yield func(entry []byte) bool) {
		for i := skipJSONSpace(log, 0); i < len(log); {
			end := skipJSONValue(log, i)
			if !yield(log[i:end:end]) {
				return
			}
			i = skipJSONSpace(log, min(skipJSONSpace(log, end)+1, len(log)))
		}
	}
}

// cutSum removes the checksum from a checked line, in place.
func cutSum(line []byte) []byte {
	line = bytes.TrimRight(line, "\n")
	line[len(line)-len(sumTail)] = '}'
	return line[:len(line)-len(sumTail)+1]
}

// readTaskLine reads the line of a task and keeps its log as it is.
func readTaskLine(line []byte) (l taskLine, err error) {
	var c memberCoder // readMembers would allocate it and the line for each task of a start: BenchmarkStart
	for c.again(line) {
		l = taskLine{}
		l.members(&c, &l.template)
		c.raw("log", &l.log)
	}
	if err = c.err; err == nil && (l.id.isZero() || jsonKind(l.log) != '[' || l.template == "") {
		err = fmt.Errorf("a task must have its id, template and log")
	}
	if err == nil {
		l.log = l.log[1 : len(l.log)-1 : len(l.log)-1]
	}
	return l, err
}

// creationIn returns the first record of the log of a task.
func creationIn(log []byte) (*record, error) {
	from := skipJSONSpace(log, 0)
	r, err := decodeRecord(log[from:skipJSONValue(log, from)])
	if err == nil && r.kind != recCreated {
		err = fmt.Errorf("its log does not begin with its creation")
	}
	return r, err
}

// replayer is an observer of a replay. It also receives each record before the record is applied.
type replayer interface {
	observer
	startRecord(t *task, r *record)
}

// replayRecords rebuilds a task by applying its records, which are separated by commas.
func replayRecords(id uuid, tpl *template, log []byte, obs replayer) (t *task, err error) {
	n := 0
	for entry := range logEntries(log) {
		if t, err = t.replayed(id, tpl, entry, obs); err != nil {
			return nil, fmt.Errorf("task %s: log[%d]: %w", id, n, err)
		}
		n++
	}
	if t == nil {
		return nil, fmt.Errorf("task %s: its log is empty", id)
	}
	t.log = log
	return t, nil
}

// replayed returns the task after one more record; it is nil before the first.
func (t *task) replayed(id uuid, tpl *template, text []byte, obs replayer) (*task, error) {
	r, err := decodeRecord(text)
	if err != nil {
		return nil, err
	}
	r.task = id // which the log leaves out
	if t == nil {
		if r.kind != recCreated {
			return nil, fmt.Errorf("its log does not begin with its creation")
		}
		t = newTask(r, tpl)
	}
	obs.startRecord(t, r)
	return t, t.apply(r, obs)
}

// unobserved is the observer of a replay whose transitions are not needed.
type unobserved struct{}

func (unobserved) startRecord(*task, *record) {}

func (unobserved) taskMoved(*task, taskState, taskState, instant) {}

func (unobserved) stepMoved(*task, int, stepState, stepState, instant) {}
