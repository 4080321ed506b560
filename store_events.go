package main

// The event log: the newest transitions of all tasks and steps, in the order of the journal, and the followers that
// read it. None of it is stored: a start rebuilds the log from the tasks' own logs.

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

// move is one transition, or one domain event, with everything that is reported about it, because its
// task may be dropped meanwhile.
type move struct {
	seq      uint64 // of the record that made it
	at       instant
	task     uuid
	step     uuid // zero if the task itself moved
	tpl      *template
	name     string // of the step
	n        int32  // number within its record, from 1
	attempt  int32
	yielded  int32  // the number of the checkpoint with which it yielded; else 0
	from, to uint8  // a stepState, or of a task a taskState
	asked    uint16 // if with it begins the deadline of an answer: the step of the template, from 1; else 0

	published *domainEvent // in the log of domain events; else nil
}

// moveMaker makes moves from what an observer sees while a record is applied.
type moveMaker struct {
	seq     uint64
	started instant // start of the attempt, if the record starts one
	n       int32   // moves of the record so far
	quiet   bool    // its moves are no events: it takes a start back
}

func (m *moveMaker) startRecord(_ *task, r *record) {
	m.seq, m.started, m.n, m.quiet = r.seq, r.started(), 0, r.kind == recUndelivered
}

func (m *moveMaker) taskMove(t *task, from, to taskState, at instant) move {
	m.n++
	return move{seq: m.seq, at: at, task: t.id, n: m.n, tpl: t.tpl, from: uint8(from), to: uint8(to)}
}

func (m *moveMaker) stepMove(t *task, i int, from, to stepState, at instant) move {
	m.n++
	at, attempt := t.momentOf(i, to, at, m.started)
	yielded := 0
	// A checkpoint sets redeliver before the move, and an attempt that was cut off only after it.
	if s := &t.steps[i]; from == stepInProgress && to == stepEnqueued && s.redeliver {
		yielded = s.checkpoint.number
	}
	return move{
		seq: m.seq, at: at, task: t.id, step: t.stepID(i), tpl: t.tpl, name: t.def(i).name, n: m.n, attempt: int32(attempt),
		yielded: int32(yielded), from: uint8(from), to: uint8(to), asked: askedIn(t, i, to, at),
	}
}

// askedIn returns what asked is of a move of a step. The deadline itself would take more memory in every move.
func askedIn(t *task, i int, to stepState, at instant) uint16 {
	rule, d := t.def(i).answer, t.declared(i)
	if rule == nil || to != stepEnqueued || t.answers[i] != rule.due(at) || d >= math.MaxUint16 {
		return 0
	}
	return uint16(d + 1)
}

// eventRing holds the newest moves, all of a record or none. The store's mutex guards it.
type eventRing struct {
	keep    int // how many moves are held; more only if one record makes more
	ring    []move
	head    int           // index of the oldest
	held    int           // number of moves held
	bytes   int           // of the payloads of domain events
	first   uint64        // number of the oldest; moves are numbered from 0 in this process
	lost    uint64        // the last sequence whose moves were dropped to make room
	gone    uint64        // the last sequence of which any move may be missing
	dropped uint64        // the last sequence of any dropped task that may have made some
	drops   func(m *move) // is called with each move that is dropped; nil for nothing
}

// maxDomainBytes is how many bytes of payloads are held, unless one record has more.
const maxDomainBytes = 64 << 20

// eventLog holds the newest transitions, and the newest domain events. The store's mutex
// guards it, but for what says otherwise.
type eventLog struct {
	eventRing
	store  *store
	maker  moveMaker
	domain domainLog

	closing sync.Once
	closed  chan struct{} // closed when followers must end; never set again, like closing

	streams   atomic.Int64  // open now
	delivered atomic.Uint64 // moves written to streams
	cut       atomic.Uint64 // streams that were too slow
}

// close ends all followers.
func (l *eventLog) close() { l.closing.Do(func() { close(l.closed) }) }

// append (hot path: BenchmarkFollowers) appends a move, and drops the oldest records to make room.
func (l *eventRing) append(m move) {
	l.bytes += m.size()
	for l.held > 0 && (l.held >= l.keep || l.bytes > maxDomainBytes) && l.ring[l.head].seq != m.seq {
		l.dropRecord()
	}
	if l.held == len(l.ring) {
		l.grow()
	}
	l.ring[l.index(l.held)] = m
	l.held++
}

// size returns the length of the payload of a domain event.
func (m *move) size() int {
	if m.published == nil {
		return 0
	}
	return len(m.published.payload)
}

func (l *eventRing) dropRecord() {
	l.lost = l.ring[l.head].seq
	l.gone = max(l.gone, l.lost)
	for l.held > 0 && l.ring[l.head].seq == l.lost {
		m := &l.ring[l.head]
		if l.drops != nil {
			l.drops(m)
		}
		l.bytes -= m.size()
		*m = move{} // or the ring would keep what it has
		l.head = l.index(1)
		l.first++
		l.held--
	}
}

// index returns the index in ring of the n-th move held.
func (l *eventRing) index(n int) int {
	if n += l.head; n >= len(l.ring) {
		n -= len(l.ring)
	}
	return n
}

func (l *eventRing) grow() {
	size := max(2*len(l.ring), 256)
	if len(l.ring) < l.keep {
		size = min(size, l.keep)
	}
	ring := make([]move, size)
	n := copy(ring, l.ring[l.head:])
	copy(ring[n:], l.ring[:l.head])
	l.ring, l.head = ring, 0
}

// end returns the number of the next move to come.
func (l *eventRing) end() uint64 { return l.first + uint64(l.held) }

// move returns the move with a number that is held.
func (l *eventRing) move(number uint64) *move { return &l.ring[l.index(int(number-l.first))] }

// after returns the number of the first move later than a sequence.
func (l *eventRing) after(seq uint64) uint64 {
	return l.first + uint64(sort.Search(l.held, func(n int) bool { return l.ring[l.index(n)].seq > seq }))
}

// oldest returns the first sequence of which nothing is missing.
func (l *eventRing) oldest() uint64 {
	if l.held > 0 {
		return max(l.ring[l.head].seq, l.gone+1)
	}
	return l.gone + 1
}

// taskDropped notes that the task with this newest record was dropped: its
// moves stay, but the next compacted part has no line to rebuild them from.
func (l *eventLog) taskDropped(tpl *template, lastSeq uint64) {
	l.dropped = max(l.dropped, lastSeq)
	if tpl == nil || tpl.publishes {
		l.domain.dropped = max(l.domain.dropped, lastSeq)
	}
}

// missing returns the last sequence whose moves may be missing when a store is read from a compacted part written now.
func (l *eventRing) missing() uint64 { return max(l.gone, l.dropped) }

// Rebuilding the event log while a store is read: from the records as they are applied, and before them from the logs in
// the lines of tasks. The header says how far back moves were held.

// eventExtent says that the moves of all records later than after were held, and the same of domain events.
type eventExtent struct{ after, domainAfter, domainGone uint64 }

func (x *eventExtent) members(c *memberCoder) {
	nonzero(c, "events_after", &x.after)
	nonzero(c, "domain_after", &x.domainAfter)
	nonzero(c, "domain_gone", &x.domainGone)
}

func (l *eventLog) extentLocked() eventExtent {
	return eventExtent{l.missing(), l.domain.lost, l.domain.missing()}
}

// moveCollector collects the moves of the tasks in the compacted part, and passes them to the log in the order of their
// records.
type moveCollector struct {
	extent eventExtent
	moves  []move // not yet in the log
	domain []move // likewise
	begun  bool   // all tasks were read
}

// wants reports whether a task with this newest record has moves to collect.
func (c *moveCollector) wants(lastSeq uint64) bool { return lastSeq > c.extent.after }

// wantsDomain is wants for domain events.
func (c *moveCollector) wantsDomain(tpl *template, lastSeq uint64) bool {
	return tpl.publishes && lastSeq > c.extent.domainAfter
}

// appendTo moves the collected moves of the records up to seq to the log.
func (c *moveCollector) appendTo(log *eventLog, seq uint64) {
	if !c.begun {
		c.begun = true
		log.lost, log.gone = c.extent.after, c.extent.after
		log.domain.lost, log.domain.gone = c.extent.domainAfter, c.extent.domainGone
		for _, moves := range [][]move{c.moves, c.domain} {
			slices.SortFunc(moves, func(a, b move) int { return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.n, b.n)) })
		}
	}
	c.moves, c.domain = log.takeOver(c.moves, seq), log.domain.takeOver(c.domain, seq)
}

// takeOver appends the moves up to a sequence, and returns the rest.
func (l *eventRing) takeOver(moves []move, seq uint64) (rest []move) {
	for len(moves) > 0 && moves[0].seq <= seq {
		l.append(moves[0])
		moves = moves[1:]
	}
	return moves
}

// lineReplay observes the replay of a task's line for the figures and the event log.
type lineReplay struct {
	figures replayer
	keeper  *moveCollector
	maker   *moveMaker
}

func (r *lineReplay) startRecord(t *task, rec *record) {
	r.figures.startRecord(t, rec)
	r.maker.startRecord(t, rec)
}

func (r *lineReplay) taskMoved(t *task, from, to taskState, at instant) {
	r.figures.taskMoved(t, from, to, at)
	r.keep(r.maker.taskMove(t, from, to, at))
}

func (r *lineReplay) stepMoved(t *task, i int, from, to stepState, at instant) {
	r.figures.stepMoved(t, i, from, to, at)
	if !r.maker.quiet {
		r.keep(r.maker.stepMove(t, i, from, to, at))
	}
	if r.keeper.wantsDomain(t.tpl, r.maker.seq) {
		for _, e := range t.publishedEvents(i, from, to, at, r.maker.seq) {
			if !e.fast() {
				r.keeper.domain = append(r.keeper.domain, e.move())
			}
		}
	}
}

func (r *lineReplay) keep(m move) {
	if c := r.keeper; c.wants(m.seq) {
		if len(c.moves) == cap(c.moves) { // append alone grows by a quarter, and copies five times as much
			c.moves = slices.Grow(c.moves, max(len(c.moves), 1024))
		}
		c.moves = append(c.moves, m)
	}
}

// Followers: a follower reads the event log as far as it is durable. It reports all transitions of a record in order;
// only the last has the id, so that a client that reconnects mid-record receives the whole record again.

// eventBatch is how many moves a follower takes under the store's lock at a time, and eventLook how many it looks at.
const (
	eventBatch = 64
	eventLook  = 4096
)

// eventTextBytes is the approximate number of bytes of texts that a follower takes at a time.
const eventTextBytes = 32 << 10

var eventBatches = sync.Pool{New: func() any { return new([eventBatch]event) }}

// eventFilter selects events; empty members select all, except that domain events are only selected by their kind.
type eventFilter struct {
	task      uuid
	namespace string
	kind      string // task, step or domain
}

// The kinds of events.
const (
	taskKind   = "task"
	stepKind   = "step"
	domainKind = "domain"
)

func (f *eventFilter) selects(m *move) bool {
	return (f.task.isZero() || f.task == m.task) && (f.namespace == "" || f.namespace == m.tpl.namespace) &&
		(f.kind == "" || m.published != nil || m.step.isZero() == (f.kind == taskKind))
}

// event is a move as a follower reads it from the log.
type event struct {
	move
	last bool // the last of its record
}

// follower is one reader of the event log.
type follower struct {
	log    *eventLog
	ring   *eventRing // what it reads of the log
	filter eventFilter
	missed bool   // moves before the first that it reads are gone
	oldest uint64 // first sequence held when it began
	after  uint64 // last sequence read completely, or without moves to report
	next   uint64 // number of the next move to read
}

// follow returns a follower from a sequence on; from 0 it begins with the oldest move held. If the log does not reach
// back to the sequence, it begins with the oldest and has missed moves.
func (l *eventLog) follow(filter eventFilter, after uint64) (*follower, error) {
	s := l.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.tasks.find(filter.task); !ok && !filter.task.isZero() {
		return nil, taskNotFound(filter.task)
	}
	f := &follower{log: l, ring: &l.eventRing, filter: filter, after: after}
	if filter.kind == domainKind {
		f.ring = &l.domain.eventRing
	}
	f.oldest = f.ring.oldest()
	if after < f.ring.gone || after > s.seq {
		f.missed, f.after = after != 0, f.ring.lost
	}
	f.next = f.ring.after(f.after)
	return f, nil
}

// followAgain returns a follower for a reader that has the event with an id. What came after an id of another history of
// the store is not known, so the follower begins with the oldest and has missed moves.
func (l *eventLog) followAgain(filter eventFilter, id string) (f *follower, after uint64, err error) {
	switch after, err = l.store.readNumber(id); err {
	case nil:
		f, err = l.follow(filter, after)
	case errOtherLife:
		if f, err = l.follow(filter, 0); err == nil {
			f.missed = true
		}
	}
	return f, after, err
}

func (f *follower) numbers() lives { return f.log.store.lives }

// followNow returns a follower from the newest durable record on, and the sequence of that.
func (l *eventLog) followNow(filter eventFilter) (*follower, uint64, error) {
	now := l.store.journal.groups.published.Load()
	f, err := l.follow(filter, now)
	if err != nil {
		return nil, 0, err
	}
	f.missed = false // in an empty store "now" is before everything
	return f, now, nil
}

// ended returns a channel that is closed when the service ends.
func (f *follower) ended() <-chan struct{} { return f.log.closed }

// open counts a stream as open until the function returned is called.
func (f *follower) open() (closed func()) {
	f.log.streams.Add(1)
	return func() { f.log.streams.Add(-1) }
}

// others returns how many streams are open besides this one.
func (f *follower) others() int64 { return f.log.streams.Load() - 1 }

// news returns a channel that is closed when more is durable. The follower asks for it before it reads.
func (f *follower) news() <-chan struct{} { return f.log.domain.news() }

// sent counts moves written to a stream, cutOff a stream ended for being slow.
func (f *follower) sent(moves int) { f.log.delivered.Add(uint64(moves)) }
func (f *follower) cutOff()        { f.log.cut.Add(1) }

// streamFigures counts what the event streams did.
type streamFigures struct {
	open      int64
	delivered uint64 // moves written
	cut       uint64 // streams that were too slow
}

func (l *eventLog) figures() streamFigures {
	return streamFigures{l.streams.Load(), l.delivered.Load(), l.cut.Load()}
}

// eventChunk holds the events that a follower took from the log.
type eventChunk struct {
	text   []byte // of the events, in the form of the stream
	moves  int    // in it
	id     uint64 // the last in it; 0 for none
	more   bool   // there may be more at once
	behind bool   // the log has dropped what comes next
}

// nextChunk (hot path: BenchmarkFollowers) appends the texts of the next moves that are durable and selected.
func (f *follower) nextChunk(text []byte) eventChunk {
	space := eventBatches.Get().(*[eventBatch]event)
	defer eventBatches.Put(space)
	c := eventChunk{text: text, more: true}
	for most := len(text) + eventTextBytes; c.more && len(c.text) < most; {
		batch, more, behind := f.read(space[:0])
		if behind && c.moves > 0 {
			break // the reader gets what was taken before
		}
		c.more, c.behind = more, behind
		c.moves += len(batch)
		for i := range batch {
			e := &batch[i]
			if c.text = e.append(c.text, f.log.store.lives); e.last {
				c.id = e.seq
			}
		}
	}
	return c
}

// read appends the next moves to a batch.
func (f *follower) read(batch []event) (read []event, more, behind bool) {
	s, l := f.log.store, f.ring
	limit := s.journal.groups.published.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.next < l.first {
		return nil, false, true
	}
	end, bytes := l.after(limit), 0
	for n := 0; n < eventLook && len(batch) < eventBatch && bytes < eventTextBytes && f.next < end; n++ {
		m := l.move(f.next)
		last := f.next+1 == l.end() || l.move(f.next+1).seq != m.seq
		if f.filter.selects(m) {
			batch = append(batch, event{*m, last})
			bytes += m.size()
		}
		f.next++
	}
	if f.next >= end {
		f.after = max(f.after, limit) // records without moves need no event
	}
	return batch, f.next < end, false
}

// append appends an event in the form of the stream.
func (e *event) append(b []byte, lives lives) []byte {
	if e.last {
		b = lives.appendEventID(b, e.seq)
	}
	if e.published != nil {
		return append(e.published.appendJSON(append(b, "event: domain\ndata: "...), lives), "\n\n"...)
	}
	if e.step.isZero() {
		b = append(b, "event: task\ndata: "...)
	} else {
		b = append(b, "event: step\ndata: "...)
	}
	return append(e.appendJSON(b), "\n\n"...)
}

// appendEventID appends the line of the id at which a record's events end.
func (l lives) appendEventID(b []byte, seq uint64) []byte {
	return append(l.append(append(b, "id: "...), seq), '\n')
}

func (e *event) appendJSON(b []byte) []byte {
	from, to := e.states()
	o := jsonWriter{b: append(b, '{')}
	o.number("seq", int(e.seq))
	o.number("n", int(e.n))
	o.zoned("recorded_at", e.at)
	o.id("task_uuid", e.task)
	o.text("namespace", e.tpl.namespace)
	o.text("name", e.tpl.name)
	o.text("version", e.tpl.version)
	if !e.step.isZero() {
		o.id("step_uuid", e.step)
		o.text("step_name", e.name)
	}
	o.textOrNull("from_state", from)
	o.text("to_state", to)
	if !e.step.isZero() {
		o.number("attempt", int(e.attempt))
	}
	if e.yielded > 0 {
		o.number(checkpointMember, int(e.yielded))
	}
	if e.asked > 0 {
		o.zoned("answer_due_at", e.tpl.steps[e.asked-1].answer.due(e.at))
	}
	return append(o.b, '}')
}

// states returns the names of the states before and after the move; from is "" for a new task or step.
func (m *move) states() (from, to string) {
	names := stepStateNames[:]
	if m.step.isZero() {
		names = taskStateNames[:]
	}
	if int(m.from) < len(names) {
		from = names[m.from]
	}
	return from, names[m.to]
}
