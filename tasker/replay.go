package main

// The records of a pulled task: an order in which everything that Tasker says about its steps can have happened, as
// Stepwell would have recorded it. For that, the steps come to exist and run here by the same rules.

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// unknown stands for whoever acted there: the API does not say who.
const unknown = "unknown"

// event is a record about a step without its place in the task.
type event struct {
	at   int64 // microseconds
	kind string
	rec  object
	due  int64 // of a failure: when the next attempt is due; 0 for none
}

// known is a step of the task as it is after the records so far.
type known struct {
	given    *step // nil if it is not there yet
	name     string
	index    int // in the task
	declared int
	state    string // "" until it exists
	attempts int
	before   []*known // steps that must be over before it runs
	events   []event  // that are left
}

// replay finds the records of one task.
type replay struct {
	*task
	stepsDecide bool

	seq    int
	at     int64 // of the newest record
	clock  int64 // the last change
	log    []object
	given  []*known     // the steps that are there
	known  []*known     // steps that exist, by index
	made   map[int]bool // declared steps that exist
	queue  []int        // declared steps that come to exist
	notes  []string
	faults []error // times that cannot be read
}

func (r *replay) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

func contradiction(format string, args ...any) error {
	return fmt.Errorf("the answers contradict each other: "+format, args...)
}

// when reads a time; 0 for none.
func (r *replay) when(text string) int64 {
	if text == "" {
		return 0
	}
	at, err := parseTime(text)
	if err != nil {
		r.faults = append(r.faults, fmt.Errorf("%q is not a timestamp", text))
	}
	r.clock = max(r.clock, at.UnixMicro())
	return at.UnixMicro()
}

// run returns the line of the task.
func (r *replay) run() (line taskLine, err error) {
	for _, s := range r.steps {
		d := r.def.declaredAs(s.Name)
		if d < 0 {
			return line, contradiction("its template has no step %s", s.Name)
		}
		r.given = append(r.given, &known{given: s, name: s.Name, declared: d, events: r.eventsOf(s)})
	}
	for _, k := range r.given {
		above := r.def.above(k.declared)
		for _, other := range r.given {
			if above[other.declared] {
				k.before = append(k.before, other)
			}
		}
	}
	created := object{
		"template": r.def.hash, "context": r.Context, "initiator": cmp.Or(r.Initiator, unknown), "source": cmp.Or(r.Source, unknown),
		"reason": cmp.Or(r.Reason, unknown), "tags": r.Tags, "priority": r.Priority,
	}
	setUnlessEmpty(created, "correlation", r.Correlation)
	setUnlessEmpty(created, "parent_correlation", r.ParentOf)
	r.append(r.when(r.Created), "created", created)
	for d := range r.def.Steps {
		if r.def.fromTheStart(d) {
			r.create(d, r.def.Steps[d].Name)
		}
	}
	if err = r.play(); err == nil {
		err = r.end()
	}
	if len(r.faults) > 0 {
		err = r.faults[0]
	}
	created["steps"] = r.ids()
	return taskLine{r.ID, r.def.hash, r.log}, err
}

// append adds a record, not before the one before it.
func (r *replay) append(at int64, kind string, rec object) {
	r.seq++
	r.at = max(at, r.at)
	rec["seq"], rec["at"], rec["kind"] = r.seq, r.at, kind
	r.log = append(r.log, rec)
}

// ids returns the ids of the steps: first those of the template, then the instances, in the order of their creation. What
// is not there yet gets an id that follows from its name.
func (r *replay) ids() []any {
	ids := make([]any, len(r.def.Steps))
	for _, k := range r.known {
		h := fmt.Sprintf("%x", sha256.Sum256([]byte(r.ID+k.name)))
		id := h[:8] + "-" + h[8:12] + "-8" + h[13:16] + "-8" + h[17:20] + "-" + h[20:32]
		if k.given != nil {
			id = k.given.ID
		}
		if r.def.Steps[k.declared].Type == "batch_worker" {
			ids = append(ids, id)
		} else {
			ids[k.declared] = id
		}
	}
	return ids
}

// eventsOf returns what happened to a step, oldest first.
func (r *replay) eventsOf(s *step) (all []event) {
	add := func(at int64, kind string, rec object) { all = append(all, event{at: at, kind: kind, rec: rec}) }
	operator := func(at int64, action, by string) object {
		add(at, "operator", object{"action": action, "by": cmp.Or(by, unknown)})
		return all[len(all)-1].rec
	}
	failed := -1              // the end of the newest attempt, if it failed
	again := func(at int64) { // what lets the step be tried again
		switch {
		case failed < 0:
		case all[failed].retryable():
			all[failed].due = max(at, 1)
			add(at, "due", object{})
		default: // it was over, until somebody reset it
			operator(at, "reset_for_retry", "")
			r.note("step %s was reset by somebody: who and why is unknown; its attempts count from there on here", s.Name)
		}
	}
	for n, a := range slices.Backward(s.audit) { // the newest is the first
		rec, started := r.outcome(a.Result)
		rec["worker"] = cmp.Or(a.Worker, unknown)
		end := r.when(a.Recorded)
		// While the step runs, this is the time of an attempt that has not ended.
		if n == 0 && s.State != "in_progress" && s.Attempted != "" {
			started = r.when(s.Attempted)
		}
		started = cmp.Or(started, end-rec["ms"].(int64)*1000)
		again(started)
		add(started, "started", object{})
		if n == 0 && s.waits() && r.Status == "cancelled" {
			rec["attempt"] = s.Attempts
			add(end, "late", rec)
			r.note("step %s ended there, and its result waited to be processed when the task was cancelled: here it came too late", s.Name)
			return all
		}
		add(end, "ended", rec)
		if failed = len(all) - 1; rec["error"] == nil {
			failed = -1
		}
	}
	if s.waits() {
		r.note("step %s ended there, and its result waits to be processed: here it is processed", s.Name)
	}
	at := cmp.Or(r.when(s.Completed), r.when(s.Updated))
	switch s.State {
	case "complete":
		if len(s.audit) > 0 && failed < 0 {
			break
		}
		outcome, _ := r.outcome(s.Results)
		rec := operator(at, "complete_manually", text(s.Results, "metadata", "completed_by"))
		for _, name := range []string{"result", "metadata"} {
			if outcome[name] != nil {
				rec[name] = outcome[name]
			}
		}
		setUnlessEmpty(rec, "reason", text(s.Results, "metadata", "completion_reason"))
	case "resolved_manually":
		operator(at, "resolve_manually", "")
		r.note("step %s was resolved by somebody: who and why is unknown", s.Name)
	case "cancelled":
		if s.Attempts > len(s.audit) && s.Attempted != "" {
			add(r.when(s.Attempted), "started", object{})
		}
		if r.Status != "cancelled" {
			operator(at, "cancel", "")
		}
	case "waiting_for_retry":
		if due, err := parseTime(s.NextRetry); failed >= 0 && err == nil { // which is not a change: the clock stands before it
			all[failed].due = due.UnixMicro()
		} else if failed >= 0 {
			all[failed].due = at
		}
	case errorState:
		if failed >= 0 && all[failed].retryable() && s.Attempts < s.MaxAttempts {
			all[failed].due = all[failed].at
		}
	case "pending", "enqueued":
		again(r.when(s.Updated))
	case "in_progress":
		start := cmp.Or(r.when(s.Attempted), at)
		again(start)
		add(start, "claimed", object{"lease": fmt.Sprintf("%x", sha256.Sum256([]byte(s.ID)))[:32], "worker": unknown})
		r.note("step %s is running there: here an unknown worker holds it until its timeout", s.Name)
	}
	return all
}

// retryable reports whether an end is a failure after which the step may be tried again.
func (e *event) retryable() bool {
	fault, ok := e.rec["error"].(object)
	return ok && fault["retryable"] == true
}

// outcome reads the outcome of an attempt, and when it started if that is known.
func (r *replay) outcome(raw json.RawMessage) (rec object, started int64) {
	if data := at(raw, "data"); !isNull(data) {
		raw = data
	}
	var ms int64
	json.Unmarshal(at(raw, "metadata", "execution_time_ms"), &ms)
	rec, started = object{"ms": ms}, r.when(text(raw, "metadata", "started_at"))
	if custom := at(raw, "metadata", "custom"); len(members(custom)) > 0 {
		rec["metadata"] = custom
	}
	if result := at(raw, "result"); !isNull(result) {
		rec["result"] = result
	}
	if string(at(raw, "success")) == "true" {
		return rec, started
	}
	fault := at(raw, "error")
	rec["ok"], rec["error"] = false, object{
		"message": cmp.Or(text(fault, "message"), unknown), "error_type": cmp.Or(text(fault, "error_type"), unknown),
		"retryable": string(at(fault, "retryable")) == "true", "status_code": at(fault, "status_code"),
		"context": merged(at(fault, "context")),
	}
	return rec, started
}

// Which steps exist.

// create adds a step to the task, and notes the steps that come to exist with it.
func (r *replay) create(d int, name string) {
	k := &known{name: name, declared: d}
	if i := slices.IndexFunc(r.given, func(k *known) bool { return k.name == name }); i >= 0 {
		k = r.given[i]
	}
	k.index, k.state = len(r.known), "pending"
	r.known = append(r.known, k)
	if r.made[d] {
		return
	}
	r.made[d] = true
	for _, c := range r.def.children[d] {
		missing := slices.ContainsFunc(r.def.parents[c], func(p int) bool { return !r.made[p] })
		if !r.def.made(c) && !r.made[c] && (!missing || r.def.Steps[c].Type == "deferred_convergence") {
			r.queue = append(r.queue, c)
		}
	}
}

// grow creates the steps that the result of a step names.
func (r *replay) grow(k *known, rec object) {
	r.queue = nil
	result, _ := rec["result"].(json.RawMessage)
	switch d := k.declared; r.def.Steps[d].Type {
	case "decision":
		var names []string
		json.Unmarshal(at(result, "decision_point_outcome", "step_names"), &names)
		for _, c := range r.def.children[d] {
			if name := r.def.Steps[c].Name; slices.Contains(names, name) && r.def.makes(d, c) && !r.made[c] {
				r.create(c, name)
			}
		}
	case "batchable":
		r.batches(k, rec, at(result, "batch_processing_outcome"))
	}
	for ; len(r.queue) > 0; r.queue = r.queue[1:] {
		if c := r.queue[0]; !r.made[c] {
			r.create(c, r.def.Steps[c].Name)
		}
	}
}

// batches creates the instances of a batch worker, which are named by the batch_id of their cursors.
func (r *replay) batches(k *known, rec object, outcome json.RawMessage) {
	worker := cmp.Or(text(outcome, "worker_template_name"), r.def.workerOf(k.declared))
	w, ok := r.def.index[worker]
	cursors := elements(at(outcome, "cursor_configs"))
	none := func(k *known) bool { return k.name == worker+"_000" } // which says that there are no batches
	switch {
	case !ok || isNull(outcome):
	case len(cursors) > 0:
		rec["named"] = 1
		for _, cursor := range cursors {
			r.create(w, worker+"_"+text(cursor, "batch_id"))
		}
	case !r.made[w] && slices.ContainsFunc(r.given, none):
		r.create(w, worker+"_000")
	}
}

// What happened when.

// play appends the events of all steps, each time the earliest that is possible.
func (r *replay) play() error {
	for {
		r.enqueue()
		var next *known
		for _, k := range r.given {
			if len(k.events) > 0 && k.possible(&k.events[0]) && (next == nil || k.events[0].at < next.events[0].at) {
				next = k
			}
		}
		if next == nil {
			break
		}
		e := next.events[0]
		next.events = next.events[1:]
		r.apply(next, &e)
	}
	for _, k := range r.given {
		switch s := k.given; {
		case len(k.events) > 0 && k.events[0].kind != "late":
			return contradiction("step %s is %s with %d attempts, but by the other steps it is %s", s.Name, s.State, s.Attempts,
				cmp.Or(k.state, "not there"))
		case k.state == "":
			return contradiction("no result creates step %s", s.Name)
		}
	}
	return nil
}

// blocked reports whether a step has failed for good, so that no other one is enqueued.
func (r *replay) blocked() bool {
	return slices.ContainsFunc(r.known, func(k *known) bool { return k.state == "error" })
}

func (k *known) done() bool { return finished(k.state) && k.state != "cancelled" }

// enqueue enqueues the steps that can run.
func (r *replay) enqueue() {
	for _, k := range r.known {
		if k.state == "pending" && !r.blocked() && !slices.ContainsFunc(k.before, func(b *known) bool { return !b.done() }) {
			k.state = "enqueued"
		}
	}
}

// possible reports whether an event can happen now.
func (k *known) possible(e *event) bool {
	switch e.kind {
	case "started", "claimed":
		return k.state == "enqueued"
	case "ended":
		return k.state == "in_progress"
	case "due":
		return k.state == "waiting_for_retry"
	case "late":
		return false // after the task was cancelled
	}
	if e.rec["action"] == "reset_for_retry" {
		return k.state == "error"
	}
	return k.state != "" && !finished(k.state)
}

// apply appends an event, and moves its step.
func (r *replay) apply(k *known, e *event) {
	e.rec["step"] = k.index
	switch e.kind {
	case "claimed", "started":
		if e.kind == "claimed" {
			e.rec["until"] = max(e.at, r.at) + int64(r.def.Steps[k.declared].Timeout)*time.Second.Microseconds()
		}
		k.state, k.attempts = "in_progress", k.attempts+1
	case "due":
		k.state = "pending"
	case "ended":
		switch {
		case e.rec["error"] == nil:
			k.state = "complete"
			r.grow(k, e.rec)
		case e.due != 0:
			k.state, e.rec["retry_at"] = "waiting_for_retry", e.due
		default:
			k.state = "error"
		}
	case "operator":
		switch e.rec["action"] {
		case "reset_for_retry":
			k.state, k.attempts = "pending", 0
		case "complete_manually":
			if k.state == "enqueued" {
				k.attempts++
			}
			k.state = "complete"
			r.grow(k, e.rec)
		case "resolve_manually":
			k.state = "resolved_manually"
		case "cancel":
			k.state = "cancelled"
		}
	}
	r.append(e.at, e.kind, e.rec)
}

// end appends what ended or stopped the task as a whole, and compares the task with what the API says about it.
func (r *replay) end() error {
	here := "" // the state that follows from the steps; "" for unfinished
	if r.blocked() {
		here = "blocked_by_failures"
	} else if !slices.ContainsFunc(r.known, func(k *known) bool { return !finished(k.state) }) {
		here = "complete"
	}
	switch {
	case r.Status == "cancelled" && here != "complete": // else its steps were complete before it was cancelled
		r.note("who cancelled it and why is unknown")
		r.append(r.when(r.Updated), "cancelled", object{"by": unknown})
		here = "cancelled"
		for _, k := range r.known {
			if !k.done() {
				k.state = "cancelled"
			}
			for _, e := range k.events { // that are late
				e.rec["step"] = k.index
				r.append(e.at, e.kind, e.rec)
			}
		}
	case r.Status == "error" && r.letter != nil:
		r.note("how long it may stay in its state is unknown")
		l := r.letter
		r.append(r.when(l.At), "stale", object{"stale": object{"limit": 0, "reason": snake(l.Reason)}})
		if entry := r.seq; snake(l.Status) != "pending" {
			r.append(cmp.Or(r.when(l.Resolution), r.at), "investigated",
				object{"dlq": object{"entry": entry, "status": snake(l.Status), "notes": l.Notes, "by": l.By}})
		}
		here = "error"
	}
	for _, k := range r.known {
		if err := r.compareStep(k); err != nil {
			return err
		}
	}
	switch shown := cmp.Or(here, "steps_in_process"); {
	case here == r.Status || here == "" && r.unfinished():
	case r.unfinished(): // a task that is unfinished there may only lag behind its steps
		r.note("it is %s there, %s here, as its steps are", r.Status, here)
	case !r.stepsDecide:
		return contradiction("it is %s, but its steps give %s; --steps-decide takes their word", r.Status, shown)
	default:
		r.note("it is %s there, but its steps give %s, which is its state here", r.Status, shown)
	}
	return nil
}

func (r *replay) compareStep(k *known) error {
	s, most := k.given, r.def.Steps[k.declared].Retry.MaxAttempts
	switch {
	case s == nil && !slices.ContainsFunc(r.steps, (*step).waits):
		return contradiction("step %s does not exist, but by the other steps it does", k.name)
	case s == nil:
		r.note("step %s does not exist there yet: here the result that creates it is processed", k.name)
		return nil
	case s.MaxAttempts == most || s.MaxAttempts == 0:
	case k.state == "error":
		r.note("step %s may have %d attempts there, %d here", s.Name, s.MaxAttempts, most)
	default:
		r.append(0, "adjusted", object{"step": k.index, "max_attempts": s.MaxAttempts})
	}
	if k.attempts != s.Attempts {
		r.note("step %s has %d attempts there, %d here", s.Name, s.Attempts, k.attempts)
	}
	if k.state != s.State && !s.waits() {
		r.note("step %s is %s there, %s here", s.Name, s.State, k.state)
	}
	return nil
}
