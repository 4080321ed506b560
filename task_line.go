package main

// A whole task as one line of JSON: the form of an ended task in memory, and of
// every task in the snapshot.
//
//	{"task":"…","state":"complete","created":…,"updated":…,"completed":…,"template":"…","seq":7,"last":12,
//	 "steps":{"complete":4},"log":[{record},…]}
//
// A task with entries in the dead letter queue has, before its log,
//
//	"dlq":[{"seq":9,"at":…,"reason":"max_retries_exceeded","state":"blocked_by_failures","status":"pending"},…]
//
// and a task with steps that its template does not declare has "last_id", the
// greatest id of those. Everything before the log can be read without it.

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
)

// taskHeader is the part of a line that can be read without applying its log.
type taskHeader struct {
	id        uuid
	state     taskState
	created   instant
	updated   instant
	completed instant
	template  string // its hash
	seq       uint64
	lastSeq   uint64
	counts    [stepStates]int
	dead      []letterHeader
	lastID    uuid   // greatest id of a step that the template does not declare; zero without one
	log       []byte // JSON array of records; a slice of the line
}

// sumLength is the length of `,"sum":"xxxxxxxx"}`, the end of a line on disk.
const sumLength = 18

// appendTaskLine appends the line, without a checksum.
func (t *task) appendTaskLine(b []byte) []byte {
	b = append(b, `{"task":"`...)
	b = t.id.appendText(b)
	b = append(b, `","state":"`...)
	b = append(b, t.state.String()...)
	b = append(b, '"')
	b = appendNumber(b, "created", int64(t.created))
	b = appendNumber(b, "updated", int64(t.updated))
	b = appendNumber(b, "completed", int64(t.completed))
	b = append(b, `,"template":"`...)
	b = append(b, t.tpl.hash...)
	b = append(b, '"')
	b = appendNumber(b, "seq", int64(t.seq))
	b = appendNumber(b, "last", int64(t.lastSeq))
	b = append(b, `,"steps":{`...)
	comma := false
	for s, n := range t.counts {
		if n == 0 {
			continue
		}
		if comma {
			b = append(b, ',')
		}
		comma = true
		b = append(b, '"')
		b = append(b, stepStateNames[s]...)
		b = append(b, '"', ':')
		b = strconv.AppendInt(b, int64(n), 10)
	}
	b = appendLetters(append(b, '}'), t.dead)
	if t.plan != nil {
		b = appendID(b, "last_id", t.plan.lastID())
	}
	b = append(b, `,"log":[`...)
	b = append(b, t.log...)
	return append(b, ']', '}')
}

// lineID returns the id of the task in a line.
func lineID(line []byte) (uuid, bool) {
	const head = `{"task":"`
	if len(line) < len(head)+36 {
		return uuid{}, false
	}
	return parseUUID(string(line[len(head) : len(head)+36]))
}

// appendLog adds a record to the task's own log.
func (t *task) appendLog(r *record) {
	if len(t.log) > 0 {
		t.log = append(t.log, ',')
	}
	t.log = append(t.log, `{"seq":`...)
	t.log = strconv.AppendUint(t.log, r.seq, 10)
	t.log = append(t.log, ',')
	t.log = appendRecordBody(t.log, r)
	t.log = append(t.log, '}')
}

// cutSum removes the checksum from a checked line of the snapshot, in place.
func cutSum(line []byte) []byte {
	line = bytes.TrimRight(line, "\n")
	line[len(line)-sumLength] = '}'
	return line[:len(line)-sumLength+1]
}

// readTaskHeader reads a line's members and keeps its log as it is.
func readTaskHeader(line []byte) (h taskHeader, err error) {
	var d recordDecoder
	ok := eachMemberBytes(line, func(key, value []byte) bool {
		switch string(key) {
		case "task":
			h.id = d.id(value)
		case "state":
			h.state = taskState(d.word(value, taskStateNames[:]))
		case "created":
			h.created = instant(d.number(value))
		case "updated":
			h.updated = instant(d.number(value))
		case "completed":
			h.completed = instant(d.number(value))
		case "template":
			h.template = d.text(value)
		case "seq":
			h.seq = uint64(d.number(value))
		case "last":
			h.lastSeq = uint64(d.number(value))
		case "steps":
			eachMemberBytes(value, func(key, value []byte) bool {
				s, ok := parseStepState(string(key))
				if !ok {
					d.err = fmt.Errorf("unknown step state %q", key)
					return false
				}
				h.counts[s] = int(d.number(value))
				return true
			})
		case "dlq":
			h.dead = d.letterHeaders(value)
		case "last_id":
			h.lastID = d.id(value)
		case "log":
			h.log = value
		default:
			d.err = fmt.Errorf("unknown member %q, from a newer version", key)
		}
		return d.err == nil
	})
	if d.err == nil && (!ok || h.id.isZero() || h.log == nil || h.template == "") {
		d.err = fmt.Errorf("a task must have its id, template and log")
	}
	return h, d.err
}

// readTaskHead is readTaskHeader without scanning the log, whatever its length.
func readTaskHead(line []byte) (taskHeader, error) {
	const log = `,"log":`
	i := bytes.Index(line, []byte(log)) // no text from outside comes before it
	if i < 0 {
		return readTaskHeader(line)
	}
	h, err := readTaskHeader(append(line[:i:i], log+"[]}"...))
	h.log = line[i+len(log) : len(line)-1]
	return h, err
}

// keys returns the task's identity and the mark of the request that created it;
// zero for none. They were checked when they were read or made.
func (h *taskHeader) keys() (identity identityKey, request requestMark) {
	eachElement(h.log, func(e []byte) bool {
		eachMemberBytes(e, func(key, value []byte) bool {
			switch string(key) {
			case "identity":
				hex.Decode(identity[:], value[1:len(value)-1])
			case "request":
				request, _ = parseRequestMark(string(value[1 : len(value)-1]))
			}
			return true
		})
		return false
	})
	return identity, request
}

// creationRecord returns the first record of the task's log.
func (h *taskHeader) creationRecord() (r *record, err error) {
	eachElement(h.log, func(e []byte) bool {
		r, err = decodeRecord(e)
		return false
	})
	if err == nil && (r == nil || r.kind != recCreated) {
		err = fmt.Errorf("task %s: its log does not begin with its creation", h.id)
	}
	return r, err
}

// replayer is an observer of a replay: it is also told each record before the
// record is applied.
type replayer interface {
	observer
	startRecord(t *task, r *record)
}

// replay rebuilds the task by applying its log.
func (h *taskHeader) replay(tpl *template, obs replayer) (t *task, err error) {
	n := -1
	eachElement(h.log, func(e []byte) bool {
		n++
		var r *record
		if r, err = decodeRecord(e); err != nil {
			return false
		}
		r.task = h.id
		if t == nil {
			if r.kind != recCreated {
				err = fmt.Errorf("its log does not begin with its creation")
				return false
			}
			t = newTask(r, tpl)
		}
		obs.startRecord(t, r)
		err = t.apply(r, obs)
		return err == nil
	})
	if err == nil && t == nil {
		err = fmt.Errorf("its log is empty")
	} else if err != nil {
		err = &logError{n, err}
	}
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", h.id, err)
	}
	t.log = h.log[1 : len(h.log)-1 : len(h.log)-1]
	return t, nil
}

// unobserved is the observer of a replay whose transitions nobody needs.
type unobserved struct{}

func (unobserved) startRecord(*task, *record) {}

func (unobserved) taskMoved(*task, taskState, taskState, instant) {}

func (unobserved) stepMoved(*task, int, stepState, stepState, instant) {}

// appendLetters appends the entries as the header of a line holds them.
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
		d.err = fmt.Errorf("%.40s is not an array", value)
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

// logError is an error about one record of a task's log.
type logError struct {
	at  int
	err error
}

func (e *logError) Error() string { return fmt.Sprintf("log[%d]: %v", e.at, e.err) }

func (e *logError) Unwrap() error { return e.err }
