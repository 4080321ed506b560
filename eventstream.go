package main

// The event stream: a follower reads the event log, as far as it is durable, and
// writes what it reads as server-sent events. Of one record all transitions
// are told, in order; the id stands on the last of them alone, so that a reader
// who was torn off in between is told all of them again.

import "strconv"

// eventBatch is how many moves a follower looks at under the store's lock.
const eventBatch = 512

// eventFilter selects tasks; empty members select all.
type eventFilter struct {
	task      uuid
	namespace string
}

// selects reports whether a move of a task made from the template is wanted.
func (f *eventFilter) selects(m *move, tpl *template) bool {
	return (f.task.isZero() || f.task == m.task) && (f.namespace == "" || f.namespace == tpl.namespace)
}

// event is a move as a follower takes it out of the log.
type event struct {
	move
	tpl  *template
	last bool // of its record
}

// follower is one reader of the event log.
type follower struct {
	store  *store
	filter eventFilter
	missed bool   // something before what it begins with is gone
	oldest uint64 // first sequence that could be told when it began
	after  uint64 // last sequence that was taken whole, or needs not be told
	next   uint64 // number of the next move to take
	batch  []event
}

// follow is a follower from a sequence on, from 0 the oldest one held. It missed
// transitions, and begins with the oldest, where the log does not reach back to
// the sequence, or the sequence is of another store.
func (s *store) follow(filter eventFilter, after uint64) (*follower, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.byID[filter.task]; !ok && !filter.task.isZero() {
		return nil, taskNotFound(filter.task)
	}
	log := &s.events
	f := &follower{store: s, filter: filter, after: after, oldest: log.oldest()}
	if after < log.lost || after > s.seq {
		f.missed, f.after = after != 0, log.lost
	}
	f.next = log.after(f.after)
	return f, nil
}

// take copies what is to be told of the next moves, as far as they are durable.
// The batch is the follower's until the next call. There may be more at once; it
// is behind when the log dropped what comes next.
func (f *follower) take() (batch []event, more, behind bool) {
	limit := f.store.journal.published.Load()
	s := f.store
	s.mu.Lock()
	defer s.mu.Unlock()
	log := &s.events
	f.batch = f.batch[:0]
	if f.next < log.first {
		return nil, false, true
	}
	end := log.end()
	for n := 0; n < eventBatch && f.next < end; n++ {
		m := log.move(f.next)
		if m.seq > limit {
			end = f.next
			break
		}
		last := f.next+1 == end || log.move(f.next+1).seq != m.seq
		if tpl := log.maker.templates[m.template]; f.filter.selects(m, tpl) {
			f.batch = append(f.batch, event{*m, tpl, last})
		}
		f.next++
		if last {
			f.after = m.seq
		}
	}
	if f.next == end {
		f.after = max(f.after, limit) // records that moved nothing need no telling
	}
	return f.batch, f.next < end, false
}

// append appends an event as it goes out.
func (e *event) append(b []byte) []byte {
	if e.last {
		b = appendEventID(b, e.seq)
	}
	if e.step.isZero() {
		b = append(b, "event: task\ndata: "...)
	} else {
		b = append(b, "event: step\ndata: "...)
	}
	return append(e.appendJSON(b), "\n\n"...)
}

func appendEventID(b []byte, seq uint64) []byte {
	return append(strconv.AppendUint(append(b, "id: "...), seq, 10), '\n')
}

// appendJSON appends the data of an event.
func (e *event) appendJSON(b []byte) []byte {
	from, to := e.states()
	o := jsonObject{b: append(b, '{')}
	o.number("seq", int(e.seq))
	o.number("n", int(e.n))
	o.zoned("recorded_at", e.at)
	o.id("task_uuid", e.task)
	o.text("namespace", e.tpl.namespace)
	o.text("name", e.tpl.name)
	o.text("version", e.tpl.version)
	if !e.step.isZero() {
		o.id("step_uuid", e.step)
		o.text("step_name", e.stepName())
	}
	if o.name("from_state"); from == "" {
		o.b = append(o.b, "null"...)
	} else {
		o.b = appendJSONString(o.b, from)
	}
	o.text("to_state", to)
	if !e.step.isZero() {
		o.number("attempt", int(e.attempt))
	}
	return append(o.b, '}')
}

// stepName is the name of the step that moved.
func (e *event) stepName() string {
	def := &e.tpl.steps[e.declared]
	if def.kind == stepBatchWorker {
		return instanceName(def.name, int(e.instance))
	}
	return def.name
}

// states are the names of the states that a move is between; from is "" at the
// beginning.
func (m *move) states() (from, to string) {
	if m.step.isZero() {
		if f := taskState(m.from); f != noTaskState {
			from = f.String()
		}
		return from, taskState(m.to).String()
	}
	if f := stepState(m.from); f != noStepState {
		from = f.String()
	}
	return from, stepState(m.to).String()
}
