package main

// The rows of a task: what Tasker stores about it, as one JSON object for each task.

import (
	"cmp"
	"math"
	"strings"
)

// taskerWorker is the worker to which attempts of this service are attributed.
const taskerWorker = "stepwell-all"

// taskerLimit is how many characters who started a task, from where and why may have there.
const taskerLimit = 128

// taskerFold collects the transitions of a task while it is replayed.
type taskerFold struct {
	record  *record
	states  []shownMove         // of the task
	steps   [][]stepShift       // by step
	letters []*taskSnapshotView // of the task when its dead letters were made
	stale   *taskSnapshotView   // before the record, if that makes one
}

// stepShift is one transition of a step.
type stepShift struct {
	at       instant
	from, to stepState
	record   *record
	outcome  *ending // of a result state
}

func (f *taskerFold) startRecord(t *task, r *record) {
	f.note(t)
	if f.record, f.stale = r, nil; r.kind == recStale {
		f.stale = snapshotOf(t, r.at, r.stale.limit, true)
	}
}

// note takes a snapshot if the previous record made a dead letter.
func (f *taskerFold) note(t *task) {
	if len(t.dead) > len(f.letters) {
		f.letters = append(f.letters, cmp.Or(f.stale, snapshotOf(t, f.record.at, 0, true)))
	}
}

func (f *taskerFold) taskMoved(_ *task, from, to taskState, at instant) {
	m := shownMove{at: at, from: uint8(from), to: uint8(to)}
	if to == taskCancelled {
		m.reason = f.record.reason
	}
	f.states = append(f.states, m)
}

func (f *taskerFold) stepMoved(t *task, i int, from, to stepState, at instant) {
	for len(f.steps) <= i {
		f.steps = append(f.steps, nil)
	}
	at, _ = t.momentOf(i, to, at, f.record.started())
	s := stepShift{at: at, from: from, to: to, record: f.record}
	if to == stepEnqueuedForOrchestration || to == stepEnqueuedAsError {
		s.outcome = f.record.end
	}
	f.steps[i] = append(f.steps[i], s)
}

// taskerRows writes the rows of one task.
type taskerRows struct {
	jsonWriter
	t    *task
	fold *taskerFold
}

// unfinished reports whether a task is to continue there.
func unfinished(t *task) bool { return !terminalStates.has(t.state) }

// rowsOf returns the rows of a task that was replayed for the fold, as a JSON object.
func rowsOf(t *task, fold *taskerFold) ([]byte, error) {
	w := &taskerRows{jsonWriter{b: []byte{'{'}}, t, fold}
	w.name("task")
	w.task()
	w.name("steps")
	w.list(len(t.steps), w.step)
	w.name("edges")
	w.edges()
	w.name("moves")
	w.moves()
	w.name("states")
	w.states()
	w.name("letters")
	w.list(len(t.dead), w.letter)
	return append(w.b, '}'), w.err
}

func (w *taskerRows) task() {
	t := w.t
	w.b = append(w.b, '{')
	w.id("task_uuid", t.id)
	w.text("namespace", t.tpl.namespace)
	w.text("name", t.tpl.name)
	w.text("version", t.tpl.version)
	w.flag("complete", t.state == taskComplete)
	w.naive("requested_at", t.requestedAt())
	created, completed := t.created, instant(0)
	if unfinished(t) {
		created = 0 // the moment of the move: its lifetime starts over
	}
	if t.state == taskComplete {
		completed = t.completed
	}
	w.naive("created_at", created)
	w.naive("completed_at", completed)
	w.naive("updated_at", t.updated)
	w.text("initiator", firstCharacters(t.by.initiator, taskerLimit))
	w.text("source_system", firstCharacters(t.by.source, taskerLimit))
	w.text("reason", firstCharacters(t.by.reason, taskerLimit))
	w.texts("tags", t.by.tags)
	w.raw("context", t.by.context)
	w.number("priority", t.by.priority)
	w.id("correlation_id", t.correlation())
	w.id("parent_correlation_id", t.by.parentCorrelation)
	identity := ""
	if unfinished(t) && t.tpl.strategy == strategyStrict && t.by.key == "" {
		identity = string(appendHashed(nil, t.by.context))
	}
	w.textOrNull("hashed", identity)
	w.b = append(w.b, '}')
}

// firstCharacters returns the first n characters of a text.
func firstCharacters(text string, n int) string {
	for i := range text {
		if n--; n < 0 {
			return text[:i]
		}
	}
	return text
}

// movedAttempts returns how many attempts of a step of an unfinished task count there. One that is made again does not,
// because starting it adds one.
func (s *step) movedAttempts() int {
	if s.state == stepInProgress || s.redeliver {
		return s.attempts - 1
	}
	return s.attempts
}

func (w *taskerRows) step(i int) {
	t := w.t
	s, def := &t.steps[i], t.def(i)
	attempts, attempted, backoff := s.attempts, s.attempted, 0
	if unfinished(t) {
		attempts = s.movedAttempts()
	}
	if s.state == stepWaitingForRetry {
		// There, a retry is due a whole number of seconds after the last attempt. That time is moved, so that the retry
		// is due when it is due here.
		backoff = max(1, int(math.Ceil(s.retryAt.sub(s.failed).Seconds())))
		attempted = s.retryAt - instant(backoff)*1e6
	}
	w.b = append(w.b, '{')
	w.id("workflow_step_uuid", t.stepID(i))
	w.text("name", def.name)
	w.flag("retryable", def.retry.Retryable)
	w.number("max_attempts", s.maxAttempts)
	w.flag("processed", s.completed != 0)
	w.naive("processed_at", s.completed)
	w.number("attempts", attempts)
	w.naive("last_attempted_at", attempted)
	if backoff > 0 {
		w.number("backoff_request_seconds", backoff)
	}
	if inputs := w.inputs(i); inputs != nil {
		w.raw("inputs", inputs)
	}
	if s.last != nil {
		w.name("results")
		w.outcome(s.last, i, s.ended())
	}
	if s.checkpoint != nil {
		w.raw("checkpoint", s.checkpoint.moved())
	}
	w.naive("created_at", t.stepCreated(i))
	w.naive("updated_at", s.updated)
	w.b = append(w.b, '}')
}

func (w *taskerRows) outcome(e *ending, step int, at instant) {
	outcomeView{e, w.t.stepID(step), at, taskerWorker}.writeJSON(&w.jsonWriter)
}

// moved returns a checkpoint as it is stored there.
func (c *checkpoint) moved() []byte {
	w := jsonWriter{b: []byte{'{'}}
	w.zoned("timestamp", c.at)
	w.name("history")
	w.b = append(w.b, `[{`...)
	w.raw("cursor", objectMember(c.data, "cursor"))
	w.zoned("timestamp", c.at)
	w.b = append(w.b, `}]}`...)
	return mergeObjects(nil, mergeObjects(nil, []byte(`{"items_processed":0}`), c.data), w.b)
}

// inputs returns what a step is configured with there, or nil: its initialization, and of an instance its batch.
func (w *taskerRows) inputs(i int) []byte {
	def := w.t.def(i)
	if def.kind == stepBatchWorker {
		return mergeObjects(nil, orEmptyObject(def.config), w.batch(i))
	}
	if len(def.config) <= len("{}") {
		return nil
	}
	return def.config
}

// batch returns the batch of an instance as it is stored there.
func (w *taskerRows) batch(i int) []byte {
	def, worker := w.t.def(i), w.t.tpl.steps[w.t.declared(i)].name
	id := strings.TrimPrefix(def.name, worker+"_")
	o := jsonWriter{b: []byte{'{'}}
	o.text("batch_id", id)
	cursor := mergeObjects(nil, []byte(`{"start_cursor":0,"end_cursor":0,"batch_size":0}`), append(o.b, '}'))
	own := objectMember(def.config, "cursor")
	if jsonKind(own) == '{' {
		cursor = mergeObjects(nil, cursor, own)
	}
	all := jsonWriter{b: []byte{'{'}}
	all.raw("cursor", cursor)
	metadata := []byte(`{"cursor_field":"id","failure_strategy":"fail_fast"}`)
	if def.batch != nil {
		metadata = mergeObjects(nil, metadata, orEmptyObject(def.batch.metadata))
	}
	all.raw("batch_metadata", metadata)
	all.flag("is_no_op", w.t.instance(i) == 0)
	all.text("__template_step_name", worker)
	return append(all.b, '}')
}

// edges writes the dependencies between the steps that exist.
func (w *taskerRows) edges() {
	w.b = append(w.b, '[')
	first := true
	for i := range w.t.steps {
		for _, p := range w.t.parents(i) {
			name := "provides"
			switch {
			case w.t.def(i).kind == stepBatchWorker && w.t.def(p).kind == stepBatchable:
				name = "batch_dependency"
			case w.t.def(p).kind == stepBatchWorker:
				name = "worker_to_convergence"
			}
			w.open(&first)
			w.id("from_step_uuid", w.t.stepID(p))
			w.id("to_step_uuid", w.t.stepID(i))
			w.text("name", name)
			w.b = append(w.b, '}')
		}
	}
	w.b = append(w.b, ']')
}

// open begins another object of a list.
func (w *taskerRows) open(first *bool) {
	if !*first {
		w.b = append(w.b, ',')
	}
	*first = false
	w.b = append(w.b, '{')
}

// kept returns the transitions of a step that move: of an unfinished task without those of an open delivery, since the
// other service enqueues the step again.
func (w *taskerRows) kept(i int) []stepShift {
	all := w.fold.steps[i]
	for unfinished(w.t) {
		switch all[len(all)-1].to {
		case stepEnqueued, stepInProgress, stepEnqueuedForOrchestration, stepEnqueuedAsError:
			all = all[:len(all)-1]
			continue
		}
		break
	}
	return all
}

// moves writes the transitions of the steps, with the audit of those that have a result.
func (w *taskerRows) moves() {
	w.b = append(w.b, '[')
	first := true
	for i := range w.t.steps {
		all := w.kept(i)
		for n := range all {
			w.open(&first)
			w.move(i, n, &all[n], n == len(all)-1)
		}
	}
	w.b = append(w.b, ']')
}

func (w *taskerRows) move(i, n int, s *stepShift, last bool) {
	w.id("workflow_step_uuid", w.t.stepID(i))
	w.text("to_state", s.to.String())
	if s.from != noStepState {
		w.text("from_state", s.from.String())
	}
	w.number("sort_key", n+1)
	w.flag("most_recent", last)
	w.naive("at", s.at)
	meta := jsonWriter{b: []byte{'{'}}
	meta.zoned("timestamp", s.at)
	if e := s.outcome; e != nil {
		kind := pick(s.to == stepEnqueuedForOrchestration, "EnqueueForOrchestration", "EnqueueAsErrorForOrchestration")
		event := taskerRows{jsonWriter{b: []byte(`{"type":"` + kind + `","data":`)}, w.t, w.fold}
		event.outcome(e, i, s.record.at)
		meta.text("event", string(event.b)+"}")
		meta.id("worker_uuid", stableID("worker", cmp.Or(e.worker, taskerWorker)))
		meta.id("correlation_id", w.t.correlation())
		w.id("audit_uuid", recordID(w.t, s.record, 1))
		w.id("transition_uuid", recordID(w.t, s.record, 2))
		w.flag("success", e.success)
		w.number("execution_time_ms", int(e.took.Milliseconds()))
	}
	w.raw("metadata", append(meta.b, '}'))
	w.b = append(w.b, '}')
}

// movedState returns the state in which the other service finds an unfinished task.
func movedState(t *task) taskState {
	if t.state == taskWaitingForRetry {
		return taskWaitingForRetry
	}
	return taskWaitingForDependencies
}

// states writes the transitions of the task. An unfinished one enters its state at the move, which is the row without
// a time.
func (w *taskerRows) states() {
	all := w.fold.states
	if unfinished(w.t) {
		all = append(all, shownMove{from: all[len(all)-1].to, to: uint8(movedState(w.t))})
	}
	w.b = append(w.b, '[')
	first := true
	for n := range all {
		m := &all[n]
		w.open(&first)
		w.text("to_state", taskState(m.to).String())
		if from := taskState(m.from); from != noTaskState {
			w.text("from_state", from.String())
		}
		w.number("sort_key", n+1)
		w.flag("most_recent", n == len(all)-1)
		w.naive("at", m.at)
		if m.reason != "" {
			w.name("metadata")
			w.b = append(w.b, '{')
			w.text("reason", m.reason)
			w.b = append(w.b, '}')
		}
		w.b = append(w.b, '}')
	}
	w.b = append(w.b, ']')
}

// letter writes an entry of the dead letter queue.
func (w *taskerRows) letter(i int) {
	d := &w.t.dead[i]
	w.b = append(w.b, '{')
	w.id("dlq_entry_uuid", dlqEntryID(w.t.id, d.at, d.seq))
	w.text("original_state", d.state.String())
	w.text("dlq_reason", d.reason.word())
	w.naive("dlq_timestamp", d.at)
	w.text("resolution_status", d.status.word())
	w.naive("resolution_timestamp", d.resolved)
	if d.notes != nil {
		w.text("resolution_notes", *d.notes)
	}
	if d.by != nil {
		w.text("resolved_by", firstCharacters(*d.by, 255))
	}
	w.name("task_snapshot")
	w.value(w.fold.letters[i])
	w.raw("metadata", d.metadata)
	w.naive("updated_at", d.updated)
	w.b = append(w.b, '}')
}
