package main

// The event log: the newest transitions of all tasks and steps, in the order of
// the journal, for those who follow them. Nothing of it is stored: after a
// restart it is made again from the tasks' own logs.

import (
	"sort"
	"sync"
	"sync/atomic"
)

// move is one transition, with all that is told of it: its task may be dropped
// meanwhile. It has no pointers, so that the garbage collector need not look at a
// hundred thousand of them.
type move struct {
	seq      uint64 // of the record that made it
	at       instant
	task     uuid
	step     uuid   // zero when the task itself moved
	n        uint32 // place within its record, from 1
	template uint32 // place in the maker's list
	declared int32  // the step in the template
	instance int32  // of a batch_worker step
	attempt  int32
	from, to uint8 // a stepState, or of a task a taskState
}

// defaultKeptEvents is how many moves are held where nothing else was said.
const defaultKeptEvents = 100_000

// moveMaker makes moves of what an observer hears while a record is applied.
type moveMaker struct {
	seq     uint64
	started instant // of the attempt, if the record starts one
	n       uint32  // moves of the record so far

	current   *template // of the record's task
	place     uint32    // where it stands in templates
	templates []*template
	places    map[*template]uint32
}

func (m *moveMaker) begin(t *task, r *record) {
	m.seq, m.started, m.n = r.seq, r.started(), 0
	if m.current != t.tpl {
		m.current, m.place = t.tpl, m.placeOf(t.tpl)
	}
}

// placeOf is where a template stands in the list; one that is not there is added.
func (m *moveMaker) placeOf(tpl *template) uint32 {
	place, ok := m.places[tpl]
	if ok {
		return place
	}
	if m.places == nil {
		m.places = map[*template]uint32{}
	}
	place = uint32(len(m.templates))
	m.templates, m.places[tpl] = append(m.templates, tpl), place
	return place
}

func (m *moveMaker) taskMove(t *task, from, to taskState, at instant) move {
	m.n++
	return move{
		seq: m.seq, at: at, task: t.id, n: m.n, template: m.place, from: uint8(from), to: uint8(to),
	}
}

func (m *moveMaker) stepMove(t *task, i int, from, to stepState, at instant) move {
	m.n++
	at, attempt := t.momentOf(i, to, at, m.started)
	return move{
		seq: m.seq, at: at, task: t.id, step: t.stepID(i), n: m.n, template: m.place,
		declared: int32(t.declared(i)), instance: int32(t.instance(i)), attempt: int32(attempt),
		from: uint8(from), to: uint8(to),
	}
}

// eventLog is a ring of moves. The store's mutex guards it; a record stands in it
// with all its moves or with none.
type eventLog struct {
	keep    int // how many moves are held, and more only where one record makes more
	ring    []move
	head    int    // index of the oldest
	held    int    // how many there are
	first   uint64 // number of the oldest: they are numbered from 0 in this process
	lost    uint64 // the last sequence of which moves may be missing here
	dropped uint64 // the last sequence of any task that the store has dropped
	maker   moveMaker

	closing sync.Once
	closed  chan struct{} // when nobody shall follow any longer

	streams   atomic.Int64  // open now
	delivered atomic.Uint64 // moves written to streams
	cut       atomic.Uint64 // streams that were too slow
}

// close releases all who follow.
func (l *eventLog) close() { l.closing.Do(func() { close(l.closed) }) }

// add appends a move, and drops the oldest records for it.
func (l *eventLog) add(m move) {
	for l.held >= l.keep && l.ring[l.head].seq != m.seq {
		l.dropRecord()
	}
	if l.held == len(l.ring) {
		l.grow()
	}
	l.ring[l.index(l.held)] = m
	l.held++
}

// dropRecord drops the oldest record.
func (l *eventLog) dropRecord() {
	for l.lost = l.ring[l.head].seq; l.held > 0 && l.ring[l.head].seq == l.lost; l.held-- {
		l.head = l.index(1)
		l.first++
	}
}

// index is where the n-th move held stands.
func (l *eventLog) index(n int) int {
	if n += l.head; n >= len(l.ring) {
		n -= len(l.ring)
	}
	return n
}

func (l *eventLog) grow() {
	size := max(2*len(l.ring), 256)
	if len(l.ring) < l.keep {
		size = min(size, l.keep)
	}
	ring := make([]move, size)
	n := copy(ring, l.ring[l.head:])
	copy(ring[n:], l.ring[:l.head])
	l.ring, l.head = ring, 0
}

// end is the number of the move to come.
func (l *eventLog) end() uint64 { return l.first + uint64(l.held) }

// move is the move with a number that is held.
func (l *eventLog) move(number uint64) *move { return &l.ring[l.index(int(number-l.first))] }

// after is the number of the first move later than a sequence.
func (l *eventLog) after(seq uint64) uint64 {
	return l.first + uint64(sort.Search(l.held, func(n int) bool { return l.ring[l.index(n)].seq > seq }))
}

// forget drops everything up to a sequence, and so all that is held.
func (l *eventLog) forget(seq uint64) {
	l.first += uint64(l.held)
	l.head, l.held, l.lost = 0, 0, seq
}

// oldest is the first sequence that nothing is missing of.
func (l *eventLog) oldest() uint64 {
	if l.held > 0 {
		return l.ring[l.head].seq
	}
	return l.lost + 1
}

// taskDropped notes that the task with this newest record is kept no longer: its
// moves stay, but the next snapshot has no line to make them from again.
func (l *eventLog) taskDropped(lastSeq uint64) { l.dropped = max(l.dropped, lastSeq) }

// missing is the last sequence of which moves may be missing in what is made of a
// snapshot that is written now.
func (l *eventLog) missing() uint64 { return max(l.lost, l.dropped) }
