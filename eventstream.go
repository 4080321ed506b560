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

// event is a move as a follower takes it out of the log. What names its task and
// step is a copy, or, of a task kept as its line, still to be read from there.
type event struct {
	move
	last bool // of its record
	line []byte
	of   eventNames
}

// eventNames is what an event is about.
type eventNames struct {
	task uuid
	tpl  *template
	step uuid   // zero of a task
	name string // of the step
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
	known  map[uint32]*task // read from their lines
}

// namesOf is what a move of the task, at a step or ofTask, is about.
func namesOf(t *task, step int) eventNames {
	n := eventNames{task: t.id, tpl: t.tpl}
	if step != ofTask {
		n.step, n.name = t.stepID(step), t.def(step).name
	}
	return n
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
	f := &follower{store: s, filter: filter, after: after, oldest: log.oldest(), known: map[uint32]*task{}}
	if after < log.lost || after > s.seq {
		f.missed, f.after = after != 0, log.lost
	}
	f.next = log.after(f.after)
	return f, nil
}

// take reads the next batch. The batch is the follower's until the next call.
// There may be more at once; it is behind when the log dropped what comes next.
func (f *follower) take() (batch []event, more, behind bool, err error) {
	limit := f.store.journal.published.Load()
	more, behind = f.takeLocked(limit)
	if behind {
		return nil, false, true, nil
	}
	for i := range f.batch {
		if err := f.name(&f.batch[i]); err != nil {
			return nil, false, false, err
		}
	}
	return f.batch, more, false, nil
}

// takeLocked copies what is to be told of the next moves, up to a sequence.
func (f *follower) takeLocked(limit uint64) (more, behind bool) {
	s := f.store
	s.mu.Lock()
	defer s.mu.Unlock()
	log := &s.events
	f.batch = f.batch[:0]
	if f.next < log.first {
		return false, true
	}
	wanted := f.wantedLocked()
	end := log.end()
	for n := 0; n < eventBatch && f.next < end; n++ {
		m := log.move(f.next)
		if m.seq > limit {
			end = f.next
			break
		}
		last := f.next+1 == end || log.move(f.next+1).seq != m.seq
		if wanted(m.task) {
			f.batch = append(f.batch, f.eventLocked(m, last))
		}
		f.next++
		if last {
			f.after = m.seq
		}
	}
	if f.next == end {
		f.after = max(f.after, limit) // records that moved nothing need no telling
	}
	return f.next < end, false
}

// wantedLocked tells the tasks that the filter selects by their positions.
func (f *follower) wantedLocked() func(pos uint32) bool {
	s := f.store
	one, single := s.byID[f.filter.task]
	within := s.index.byNamespace[f.filter.namespace]
	return func(pos uint32) bool {
		return (!single || pos == one) &&
			(f.filter.namespace == "" || within != nil && within.has(pos))
	}
}

func (f *follower) eventLocked(m *move, last bool) event {
	e := event{move: *m, last: last}
	if t := f.store.slots[m.task].live; t != nil {
		e.of = namesOf(t, int(m.step))
	} else {
		e.line = f.store.slots[m.task].line
	}
	return e
}

// name reads what an event is about from the line of its task.
func (f *follower) name(e *event) error {
	if e.line == nil {
		return nil
	}
	t := f.known[e.task]
	if t == nil || int(e.step) >= len(t.steps) {
		var err error
		if t, err = f.store.thaw(e.line); err != nil {
			return err
		}
		if len(f.known) >= 64 {
			clear(f.known)
		}
		f.known[e.task] = t
	}
	e.of = namesOf(t, int(e.step))
	return nil
}

// append appends an event as it goes out.
func (e *event) append(b []byte) []byte {
	if e.last {
		b = appendEventID(b, e.seq)
	}
	if e.step == ofTask {
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
	o.id("task_uuid", e.of.task)
	o.text("namespace", e.of.tpl.namespace)
	o.text("name", e.of.tpl.name)
	o.text("version", e.of.tpl.version)
	if e.step != ofTask {
		o.id("step_uuid", e.of.step)
		o.text("step_name", e.of.name)
	}
	if o.name("from_state"); from == "" {
		o.b = append(o.b, "null"...)
	} else {
		o.b = appendJSONString(o.b, from)
	}
	o.text("to_state", to)
	if e.step != ofTask {
		o.number("attempt", int(e.attempt))
	}
	return append(o.b, '}')
}

// states are the names of the states that a move is between; from is "" at the
// beginning.
func (m *move) states() (from, to string) {
	if m.step == ofTask {
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
