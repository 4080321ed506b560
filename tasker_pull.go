package main

// A pull: tasks from the HTTP API of Tasker become a state. The API gives the steps and the outcome of each
// attempt. What happened in between follows from these: a pull finds an order in which the records of all steps can be
// applied. What the API leaves out is noted.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// unknownActor stands for whoever acted there: the API does not say who.
const unknownActor = "unknown"

// taskerTask is what the API says about a task. Its times are texts, "" for none.
type taskerTask struct {
	ID            string          `json:"task_uuid"`
	Status        string          `json:"status"`
	Created       string          `json:"created_at"`
	Updated       string          `json:"updated_at"`
	Context       json.RawMessage `json:"context"`
	Initiator     string          `json:"initiator"`
	Source        string          `json:"source_system"`
	Reason        string          `json:"reason"`
	Priority      int             `json:"priority"`
	Tags          []string        `json:"tags"`
	Correlation   string          `json:"correlation_id"`
	ParentOf      string          `json:"parent_correlation_id"`
	Namespace     string          `json:"namespace"`
	Name, Version string

	Template json.RawMessage `json:"-"` // its definition, as the worker role has it now
	Steps    []taskerStep    `json:"-"`
	Letter   *taskerLetter   `json:"-"` // nil for none
}

type taskerStep struct {
	ID          string          `json:"step_uuid"`
	Name        string          `json:"name"`
	State       string          `json:"current_state"`
	Updated     string          `json:"updated_at"`
	Completed   string          `json:"completed_at"`
	Attempted   string          `json:"last_attempted_at"`
	NextRetry   string          `json:"next_retry_at"`
	Attempts    int             `json:"attempts"`
	MaxAttempts int             `json:"max_attempts"`
	Results     json.RawMessage `json:"results"`

	Audit []taskerAudit `json:"-"` // newest first
}

// taskerAudit is the end of an attempt.
type taskerAudit struct {
	Recorded string          `json:"recorded_at"`
	Worker   string          `json:"worker_uuid"`
	Result   json.RawMessage `json:"result"` // {"type", "data"} there, the data alone here
}

// taskerLetter is the newest entry of a task in the dead letter queue.
type taskerLetter struct {
	Reason     string `json:"dlq_reason"`
	Status     string `json:"resolution_status"`
	At         string `json:"dlq_timestamp"`
	Resolution string `json:"resolution_timestamp"`
	Notes      string `json:"resolution_notes"`
	By         string `json:"resolved_by"`
}

// taskerPull builds a state of tasks.
type taskerPull struct {
	stepsDecide bool // a task whose state contradicts its steps gets the state that follows from them

	seq       uint64
	clock     instant // the last change of all tasks
	templates [][]byte
	tasks     [][]byte
	notes     []string // what is unknown or differs, a line each
	known     map[string]bool
}

// pulledTask is a task while its records are found.
type pulledTask struct {
	*taskerPull
	given  *taskerTask
	t      *task
	at     instant // of the newest record
	events [][]*record
	faults []string // times that cannot be read
}

// add adds a task. The error says what in the answers contradicts what.
func (p *taskerPull) add(given *taskerTask) error {
	x := &pulledTask{taskerPull: p, given: given}
	err := x.build()
	if len(x.faults) > 0 {
		err = errors.New(x.faults[0])
	}
	if err != nil {
		return fmt.Errorf("task %s: %w", given.ID, err)
	}
	p.tasks = append(p.tasks, x.t.appendTaskLine(nil))
	p.clock = max(p.clock, x.at)
	if p.known == nil {
		p.known = map[string]bool{}
	}
	if tpl := x.t.tpl; !p.known[tpl.hash] {
		p.known[tpl.hash] = true
		p.templates = append(p.templates, fmt.Appendf(nil, `{"hash":%q,"definition":%s}`, tpl.hash, tpl.json))
	}
	return nil
}

// write writes the document as of the last change. Its clock is frozen at that time.
func (p *taskerPull) write(w io.Writer) error {
	_, err := fmt.Fprintf(w, "{\"format\":%d,\"seq\":%d,\"clock\":{\"now\":%q,\"mode\":%q}}\n%s\n%s\n{\"end\":{}}\n", storeFormat, p.seq,
		p.clock.zoned(), clockFrozen, bytes.Join(p.templates, []byte("\n")), bytes.Join(p.tasks, []byte("\n")))
	return err
}

func (x *pulledTask) note(format string, args ...any) {
	x.notes = append(x.notes, x.given.ID+": "+fmt.Sprintf(format, args...))
}

// when reads a time; 0 for none.
func (x *pulledTask) when(text string) instant {
	if text == "" {
		return 0
	}
	at, err := parseInstant(text)
	if err != nil {
		x.faults = append(x.faults, fmt.Sprintf("%q is not a timestamp", text))
	}
	x.clock = max(x.clock, at)
	return at
}

func (x *pulledTask) build() error {
	g := x.given
	definition := templateMembers(compactJSON(nil, g.Template))
	definition.set("environments", []byte("{}")) // which have no effect there
	budget := newLocalBudget()
	defer budget.end()
	tpl, problems, _ := parseTemplate("", definition.json(), "json", "", &templateRules{budget: budget})
	if budget.err != nil {
		return fmt.Errorf("its template cannot be used here: %w", budget.err)
	}
	if tpl == nil {
		return fmt.Errorf("its template cannot be used here: %s: %s", problems[0].Field, problems[0].Message)
	}
	id, ok := parseUUID(g.ID)
	if !ok {
		return errors.New("its id is not a UUID")
	}
	by := &creation{template: tpl.hash, context: canonicalJSON(nil, g.Context), initiator: cmp.Or(g.Initiator, unknownActor),
		source: cmp.Or(g.Source, unknownActor), reason: cmp.Or(g.Reason, unknownActor), tags: g.Tags, priority: g.Priority}
	by.correlation, _ = parseUUID(g.Correlation)
	by.parentCorrelation, _ = parseUUID(g.ParentOf)
	x.nameSteps(by, tpl)
	first := &record{task: id, at: x.when(g.Created), kind: recCreated, step: -1, created: by}
	x.seq++
	first.seq = x.seq
	x.t = newTask(first, tpl)
	if err := x.apply(first); err != nil {
		return err
	}
	for i := range g.Steps {
		x.events = append(x.events, x.eventsOf(&g.Steps[i]))
	}
	if err := x.play(); err != nil {
		return err
	}
	if err := x.end(); err != nil {
		return err
	}
	return x.compare()
}

// nameSteps lists the ids of the steps: first those of the template, then the instances, which the other service lists
// in the order of their creation.
func (x *pulledTask) nameSteps(by *creation, tpl *template) {
	by.steps = make([]uuid, len(tpl.steps))
	for i := range x.given.Steps {
		s := &x.given.Steps[i]
		id, _ := parseUUID(s.ID)
		if d := slices.IndexFunc(tpl.steps, func(def stepTemplate) bool { return def.name == s.Name }); d >= 0 {
			by.steps[d] = id
		} else {
			by.steps = append(by.steps, id)
		}
	}
}

// apply adds a record to the task, not before the one before it.
func (x *pulledTask) apply(r *record) error {
	if r.kind != recCreated {
		x.seq++
	}
	r.seq, r.task, r.at = x.seq, x.t.id, max(r.at, x.at)
	x.at = r.at
	x.t.appendLog(r.seq, appendRecordMembers(nil, r))
	return x.t.apply(r, unobserved{})
}

// eventsOf returns what happened to a step, oldest first, without its place in the task.
func (x *pulledTask) eventsOf(s *taskerStep) (all []*record) {
	add := func(r record) *record {
		all = append(all, &r)
		return &r
	}
	running := s.State == stepInProgress.String()
	var last *record            // the end of the newest attempt, if it failed
	again := func(at instant) { // what lets the step be tried again
		if last == nil {
			return
		}
		if f, _ := last.end.fault(); !f.retryable { // it was over, until somebody reset it
			add(record{at: at, kind: recOperator, action: actionReset, by: unknownActor})
			x.note("step %s was reset by somebody: who and why is unknown; its attempts count from there on here", s.Name)
		} else {
			last.end.retryAt = max(at, 1)
			add(record{at: at, kind: recDue})
		}
	}
	// The newest end is the first one in the list.
	for n, a := range slices.Backward(s.Audit) {
		e, started := x.outcome(a.Result)
		e.worker = a.Worker
		end := x.when(a.Recorded)
		// While the step runs, this is the time of an attempt that has not ended.
		if n == 0 && !running && s.Attempted != "" {
			started = x.when(s.Attempted)
		}
		start := cmp.Or(started, end.add(-e.took))
		again(start)
		add(record{at: start, kind: recStarted})
		if last = add(record{at: end, kind: recEnded, end: e}); e.success {
			last = nil
		}
	}
	at := cmp.Or(x.when(s.Completed), x.when(s.Updated))
	switch s.State {
	case stepComplete.String():
		if len(s.Audit) == 0 || last != nil {
			e, _ := x.outcome(s.Results)
			e.success, e.err = true, nil
			who, _ := jsonString(objectMember(e.metadata, "completed_by"))
			why, _ := jsonString(objectMember(e.metadata, "completion_reason"))
			add(record{at: at, kind: recOperator, action: actionComplete, by: cmp.Or(who, unknownActor), reason: why, end: e})
		}
	case stepResolvedManually.String():
		add(record{at: at, kind: recOperator, action: actionResolve, by: unknownActor})
		x.note("step %s was resolved by somebody: who and why is unknown", s.Name)
	case stepCancelled.String():
		if s.Attempts > len(s.Audit) && s.Attempted != "" {
			add(record{at: x.when(s.Attempted), kind: recStarted})
		}
		if x.given.Status != taskCancelled.String() {
			add(record{at: at, kind: recOperator, action: actionCancel, by: unknownActor})
		}
	case stepWaitingForRetry.String():
		if last != nil {
			due, _ := parseInstant(s.NextRetry) // which is not a change: the clock stands before it
			last.end.retryAt = cmp.Or(due, at)
		}
	case stepPending.String(), stepEnqueued.String():
		again(x.when(s.Updated))
	case stepInProgress.String():
		start := cmp.Or(x.when(s.Attempted), at)
		again(start)
		add(record{at: start, kind: recClaimed, lease: &lease{hash: hashLease(s.ID), worker: unknownActor}})
		x.note("step %s is running there: here an unknown worker holds it until its timeout", s.Name)
	}
	return all
}

// outcome reads the outcome of an attempt, and when it started if that is known.
func (x *pulledTask) outcome(raw []byte) (e *ending, started instant) {
	if data := objectMember(raw, "data"); data != nil {
		raw = data
	}
	e = &ending{success: string(objectMember(raw, "success")) == "true"}
	metadata := objectMember(raw, "metadata")
	ms, _ := jsonInt(objectMember(metadata, "execution_time_ms"))
	e.took = time.Duration(ms) * time.Millisecond
	if text, _ := jsonString(objectMember(metadata, "started_at")); text != "" {
		started = x.when(text)
	}
	if custom := objectMember(metadata, "custom"); jsonKind(custom) == '{' && len(custom) > 2 {
		e.metadata = compactJSON(nil, custom)
	}
	if result := objectMember(raw, "result"); result != nil && jsonKind(result) != 'n' {
		e.result = compactJSON(nil, result)
	}
	if e.success {
		return e, started
	}
	fault := objectMember(raw, "error")
	o := jsonWriter{b: []byte{'{'}}
	message, _ := jsonString(objectMember(fault, "message"))
	kind, _ := jsonString(objectMember(fault, "error_type"))
	context, code := objectMember(fault, "context"), objectMember(fault, "status_code")
	if jsonKind(context) != '{' {
		context = []byte("{}")
	}
	o.text("message", cmp.Or(message, "unknown"))
	o.text("error_type", cmp.Or(kind, "unknown"))
	o.flag("retryable", string(objectMember(fault, "retryable")) == "true")
	o.raw("status_code", code)
	o.raw("context", compactJSON(nil, context))
	e.err = append(o.b, '}')
	return e, started
}

// play applies the events of all steps, each time the earliest that is possible.
func (x *pulledTask) play() error {
	for {
		next, step, left := -1, 0, false
		for n, events := range x.events {
			if len(events) == 0 {
				continue
			}
			left = true
			i, ok := x.stepNamed(x.given.Steps[n].Name)
			if ok && x.possible(i, events[0]) && (next < 0 || events[0].at < x.events[next][0].at) {
				next, step = n, i
			}
		}
		if next < 0 {
			if left && slices.ContainsFunc(x.events, func(events []*record) bool { return len(events) > 0 }) {
				return x.contradiction()
			}
			return nil
		}
		r := x.events[next][0]
		x.events[next] = x.events[next][1:]
		r.step = step
		if r.lease != nil {
			r.lease.until = max(r.at, x.at).add(time.Duration(x.t.def(step).timeoutSeconds) * time.Second)
		}
		if r.end != nil && r.end.success && x.t.plan != nil && !x.t.decided(step) {
			if err := x.t.checkBranching(step, r.end); err != nil {
				return fmt.Errorf("step %s: %w", x.given.Steps[next].Name, err)
			}
		}
		if err := x.apply(r); err != nil {
			return fmt.Errorf("the answers contradict each other: %w", err)
		}
	}
}

// possible reports whether a record about a step can be applied now.
func (x *pulledTask) possible(i int, r *record) bool {
	state := x.t.steps[i].state
	switch r.kind {
	case recStarted, recClaimed:
		return state == stepEnqueued
	case recEnded:
		return state == stepInProgress
	case recDue:
		return state == stepWaitingForRetry
	}
	if r.action == actionReset {
		return state == stepInError
	}
	return !state.finished()
}

// contradiction says which step has done what it cannot have done.
func (x *pulledTask) contradiction() error {
	for n, events := range x.events {
		if len(events) == 0 {
			continue
		}
		s, state := &x.given.Steps[n], "does not exist"
		if i, ok := x.stepNamed(s.Name); ok {
			state = "is " + x.t.steps[i].state.String()
		}
		return fmt.Errorf("the answers contradict each other: step %s is %s with %d attempts, but by the other steps it %s",
			s.Name, s.State, s.Attempts, state)
	}
	return nil
}

func (x *pulledTask) stepNamed(name string) (int, bool) {
	for i := range x.t.steps {
		if x.t.def(i).name == name {
			return i, true
		}
	}
	return 0, false
}

// end applies what ended or stopped the task as a whole.
func (x *pulledTask) end() error {
	switch l, at := x.given.Letter, x.when(x.given.Updated); {
	case x.given.Status == taskCancelled.String() && !x.t.state.final(): // else its steps were complete before it was cancelled
		x.note("who cancelled it and why is unknown")
		return x.apply(&record{at: at, kind: recCancelled, step: -1, by: unknownActor})
	case x.given.Status == taskError.String() && l != nil:
		reason, _ := parseDLQReason(l.Reason)
		r := &record{at: x.when(l.At), kind: recStale, step: -1, stale: &staleMark{reason: reason}}
		x.note("how long it may stay in its state is unknown")
		if err := x.apply(r); err != nil || l.Status == dlqPending.String() {
			return err
		}
		status, _ := parseDLQStatus(l.Status)
		return x.apply(&record{at: cmp.Or(x.when(l.Resolution), x.at), kind: recDLQUpdate, step: -1,
			investigation: &investigation{entry: r.seq, status: status, notes: &l.Notes, by: &l.By}})
	}
	return nil
}

// compare compares the task with what the API says about it.
func (x *pulledTask) compare() error {
	if len(x.given.Steps) != len(x.t.steps) {
		return fmt.Errorf("the answers contradict each other: it has %d steps, but their results give %d", len(x.given.Steps), len(x.t.steps))
	}
	for n := range x.given.Steps {
		s := &x.given.Steps[n]
		i, ok := x.stepNamed(s.Name)
		if !ok {
			return fmt.Errorf("the answers contradict each other: no result creates step %s", s.Name)
		}
		if id, _ := parseUUID(s.ID); x.t.stepID(i) != id {
			return fmt.Errorf("step %s would have the id %s, not %s", s.Name, x.t.stepID(i), s.ID)
		}
		if limit := s.MaxAttempts; limit != x.t.steps[i].maxAttempts && limit > 0 {
			r := &record{kind: recAdjusted, step: i, adjustment: &adjustment{maxAttempts: limit}}
			if x.t.steps[i].state == stepInError {
				x.note("step %s may have %d attempts there, %d here", s.Name, limit, x.t.steps[i].maxAttempts)
			} else if err := x.apply(r); err != nil {
				return err
			}
		}
		if here := x.t.steps[i].attempts; here != s.Attempts {
			x.note("step %s has %d attempts there, %d here", s.Name, s.Attempts, here)
		}
		if here := x.t.steps[i].state.String(); here != s.State {
			x.note("step %s is %s there, %s here", s.Name, s.State, here)
		}
	}
	there, ok := parseTaskState(x.given.Status)
	switch here := x.t.state; {
	case here == there:
	case ok && !here.ended() && !there.ended() && here != taskBlockedByFailures && there != taskBlockedByFailures:
		x.note("it is %s there, %s here", there, here)
	case !x.stepsDecide:
		return fmt.Errorf("the answers contradict each other: it is %s, but its steps give %s; --steps-decide takes their word",
			x.given.Status, here)
	default:
		x.note("it is %s there, but its steps give %s, which is its state here", x.given.Status, here)
	}
	return nil
}
