package main

// What waits: dead letters for an operator, followers of the event log for news, and requests for
// a task.

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The index of the dead letter queue: all entries in the order they were made,
// by reason and by status, and the figures that need no scan.

// dlqRow is one entry in the index. The entry itself is in its task.
type dlqRow struct {
	letterHeader
	id   uuid
	task uuid
	n    uint32 // index among the task's entries
}

// dlqIndex is guarded by the store's mutex. Rows are numbered in the order in
// which the entries were made.
type dlqIndex struct {
	rows      []dlqRow
	byID      map[uuid]uint32
	all       bitset
	byReason  [dlqReasons]bitset
	byStatus  [dlqStatuses]bitset
	pending   [dlqReasons]bitset
	counts    [dlqReasons][dlqStatuses]int
	resolving [dlqReasons]time.Duration // total time that entries took to leave Pending
	holes     int                       // rows of dropped tasks; their id is zero
	meet      bitMeet                   // room for a list
}

// took returns how long the entry took to leave Pending; never negative, even
// if the clock was set back.
func (h *letterHeader) took() time.Duration { return max(h.resolved.sub(h.at), 0) }

func newDLQIndex() *dlqIndex { return &dlqIndex{byID: map[uuid]uint32{}} }

// appendDLQRows appends the rows of one task's entries.
func appendDLQRows(rows []dlqRow, id uuid, letters []letterHeader) []dlqRow {
	for n, h := range letters {
		rows = append(rows, dlqRow{h, dlqEntryID(id, h.at, h.seq), id, uint32(n)})
	}
	return rows
}

// maxDLQHoles is how many rows without an entry there may be beyond as many
// with one.
const maxDLQHoles = 1024

// inOrder returns an index of the same entries in the order in which they were
// made; a start finds them in another order.
func (x *dlqIndex) inOrder() *dlqIndex {
	slices.SortFunc(x.rows, func(a, b dlqRow) int { return cmp.Compare(a.seq, b.seq) })
	y := newDLQIndex()
	for _, r := range x.rows {
		if !r.id.isZero() {
			y.insert(r)
		}
	}
	return y
}

// update brings the index up to date with the entries of a changed task.
func (x *dlqIndex) update(t *task) {
	for n := range t.dead {
		h := t.dead[n].letterHeader
		id := dlqEntryID(t.id, h.at, h.seq)
		i, ok := x.byID[id]
		if !ok {
			x.insert(dlqRow{h, id, t.id, uint32(n)})
			continue
		}
		if x.rows[i].letterHeader != h {
			x.unmark(i)
			x.rows[i].letterHeader = h
			x.mark(i)
		}
	}
}

// remove removes the entries of a task.
func (x *dlqIndex) remove(task uuid, letters []letterHeader) {
	for _, h := range letters {
		id := dlqEntryID(task, h.at, h.seq)
		i, ok := x.byID[id]
		if !ok {
			continue
		}
		x.unmark(i)
		x.all.clear(i)
		x.byReason[h.reason].clear(i)
		delete(x.byID, id)
		x.rows[i] = dlqRow{}
		x.holes++
	}
	if x.holes > maxDLQHoles+len(x.byID) {
		*x = *x.inOrder()
	}
}

func (x *dlqIndex) insert(r dlqRow) {
	i := uint32(len(x.rows))
	x.rows = append(x.rows, r)
	x.byID[r.id] = i
	x.all.set(i)
	x.byReason[r.reason].set(i)
	x.mark(i)
}

// mark counts a row under its status.
func (x *dlqIndex) mark(i uint32) {
	r := &x.rows[i]
	x.byStatus[r.status].set(i)
	if r.status == dlqPending {
		x.pending[r.reason].set(i)
	}
	x.count(r, 1)
}

// unmark undoes mark.
func (x *dlqIndex) unmark(i uint32) {
	r := &x.rows[i]
	x.byStatus[r.status].clear(i)
	x.pending[r.reason].clear(i)
	x.count(r, -1)
}

func (x *dlqIndex) count(r *dlqRow, n int) {
	x.counts[r.reason][r.status] += n
	if r.status != dlqPending {
		x.resolving[r.reason] += time.Duration(n) * r.took()
	}
}

func (x *dlqIndex) find(id uuid) (dlqRow, bool) {
	i, ok := x.byID[id]
	if !ok {
		return dlqRow{}, false
	}
	return x.rows[i], true
}

// dlqFilter selects entries; nil members select all.
type dlqFilter struct {
	status *dlqStatus
	reason *dlqReason
}

// page returns one page of the matching entries, newest first.
func (x *dlqIndex) page(f dlqFilter, skip, limit int) []dlqRow {
	sets := []positionSet{&x.all}
	if f.status != nil {
		sets = append(sets, &x.byStatus[*f.status])
	}
	if f.reason != nil {
		sets = append(sets, &x.byReason[*f.reason])
	}
	var page []dlqRow
	x.meet.of(sets...).descend(skip, func(i uint32) bool {
		page = append(page, x.rows[i])
		return len(page) < limit
	})
	return page
}

// waited returns how old the entry is at the instant now; never negative.
func (r *dlqRow) waited(now instant) time.Duration { return max(now.sub(r.at), 0) }

// dlqWeights is the weight of each reason in the investigation queue.
var dlqWeights = [dlqReasons]float64{
	dlqDependencyCycle: 1000, dlqMaxRetriesExceeded: 500, dlqStalenessTimeout: 100, dlqWorkerUnavailable: 50,
	dlqManual: 10,
}

// priority returns an entry's priority in the investigation queue at the
// instant now.
func (r *dlqRow) priority(now instant) float64 {
	return dlqWeights[r.reason] + r.waited(now).Minutes()
}

// queue returns the pending entries with the highest priority, highest first;
// of one reason only, unless that is nil. Within a reason those are the oldest,
// so it looks at no more than limit of each.
func (x *dlqIndex) queue(only *dlqReason, now instant, limit int) []dlqRow {
	var rows []dlqRow
	for reason := range x.pending {
		if only != nil && *only != dlqReason(reason) {
			continue
		}
		set := &x.pending[reason]
		i, ok := set.next(0)
		for n := 0; ok && n < limit; n++ {
			rows = append(rows, x.rows[i])
			i, ok = set.next(i + 1)
		}
	}
	slices.SortStableFunc(rows, func(a, b dlqRow) int { return cmp.Compare(b.priority(now), a.priority(now)) })
	return rows[:min(limit, len(rows))]
}

// dlqFigures is the statistics of one reason.
type dlqFigures struct {
	reason         dlqReason
	counts         [dlqStatuses]int
	total          int
	oldest, newest instant
	resolving      time.Duration // in sum, of entries that are not pending
}

// figures returns the statistics of each reason that has entries.
func (x *dlqIndex) figures() []dlqFigures {
	var list []dlqFigures
	for reason := range x.byReason {
		set := &x.byReason[reason]
		oldest, ok := set.next(0)
		if !ok {
			continue
		}
		f := dlqFigures{
			reason: dlqReason(reason), counts: x.counts[reason], total: set.count(),
			oldest: x.rows[oldest].at, resolving: x.resolving[reason],
		}
		set.descend(0, func(i uint32) bool {
			f.newest = x.rows[i].at
			return false
		})
		list = append(list, f)
	}
	return list
}

// deadLetters returns one page of the letters that match, newest first, and for each
// the log of its task.
func (s *store) deadLetters(f dlqFilter, skip, limit int) (page []dlqRow, logs []taskLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page = s.dead.page(f, skip, limit)
	logs = make([]taskLog, len(page))
	for i, r := range page {
		logs[i] = s.logLocked(s.byID[r.task])
	}
	return page, logs
}

// queuedLetter is a letter of the investigation queue and its task as it is now.
type queuedLetter struct {
	dlqRow
	tpl   *template
	state taskState
	since instant // when the task came into the state
}

// letterQueue returns the pending letters with the highest priority, highest
// first; of one reason alone unless that is nil.
func (s *store) letterQueue(only *dlqReason, now instant, limit int) ([]queuedLetter, error) {
	s.mu.Lock()
	rows := s.dead.queue(only, now, limit)
	queue := make([]queuedLetter, len(rows))
	ended := make([][]byte, len(rows)) // lines of tasks that ended
	for i, r := range rows {
		queue[i].dlqRow = r
		sl := &s.slots[s.byID[r.task]]
		if t := sl.live; t != nil {
			queue[i].tpl, queue[i].state, queue[i].since = t.tpl, t.state, t.since
		} else {
			ended[i] = sl.line
		}
	}
	s.mu.Unlock()
	for i, line := range ended {
		if line == nil {
			continue
		}
		h, err := readTaskHeader(line)
		if err != nil {
			return nil, err
		}
		queue[i].tpl, queue[i].state, queue[i].since = s.template(h.template), h.state, h.completed
	}
	return queue, nil
}

// dlqFigures returns the statistics of the dead letter queue.
func (s *store) dlqFigures() []dlqFigures {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead.figures()
}

// Waiting for news of the event log. A relay looks at each transition once and wakes only the followers
// whose filter may select it. Filters and transitions are compared by marks: a namespace and a task have
// one each, which others may have too.

// allMarks is how many marks there are.
const allMarks = 1024

// everyMark is the mark of a filter that selects transitions of every task.
const everyMark = -1

// eventMarks is a set of marks.
type eventMarks [allMarks / 64]uint64

func (m *eventMarks) add(mark int)      { m[mark/64] |= 1 << (mark % 64) }
func (m *eventMarks) has(mark int) bool { return m[mark/64]>>(mark%64)&1 != 0 }

func taskMark(id uuid) int { return (int(id[14])<<8 | int(id[15])) % allMarks }

func namespaceMark(name string) int {
	mark := uint32(2166136261) // FNV-1a
	for i := range len(name) {
		mark = (mark ^ uint32(name[i])) * 16777619
	}
	return int(mark % allMarks)
}

// mark returns a mark of all that the filter selects.
func (f *eventFilter) mark() int {
	switch {
	case !f.task.isZero():
		return taskMark(f.task)
	case f.namespace != "":
		return namespaceMark(f.namespace)
	}
	return everyMark
}

// addMarks adds the marks of the moves from a number up to another.
func (l *eventLog) addMarks(marks *eventMarks, from, to uint64) {
	var task uuid
	for ; from < to; from++ {
		if m := l.move(from); m.task != task {
			task = m.task
			marks.add(taskMark(task))
			marks.add(namespaceMark(l.maker.templates[m.template].namespace))
		}
	}
}

// eventSpan holds the marks of spanMoves moves in a row, so that followers need not look at each.
type eventSpan struct {
	end   uint64 // number of the move after them; 0 for none
	marks eventMarks
}

const (
	spanMoves = 64
	keptSpans = 256
)

// spanAt returns the span that begins with a move. All of its moves are held.
func (l *eventLog) spanAt(number uint64) *eventSpan {
	span := &l.spans[number/spanMoves%keptSpans]
	if span.end != number+spanMoves {
		*span = eventSpan{end: number + spanMoves}
		l.addMarks(&span.marks, number, span.end)
	}
	return span
}

// show returns the number of the first move that followers may not see yet, when they may see those of
// the records up to a sequence.
func (l *eventLog) show(seq uint64) uint64 {
	l.shown = max(l.shown, l.first)
	for end := l.end(); l.shown < end && l.move(l.shown).seq <= seq; {
		l.shown++
	}
	return l.shown
}

// eventRelay tells followers that there may be something for them. It runs while streams are open.
type eventRelay struct {
	streams atomic.Int64 // open now; changed under mu

	mu      sync.Mutex         // taken before the store's; it guards all news too
	stop    chan struct{}      // closed when the last stream is
	waiting map[int]*eventNews // not told, by mark
	told    uint64             // number of the first move that it has not told of
}

// eventNews is what followers with the same mark wait for.
type eventNews struct {
	done chan struct{} // closed when there may be something for them
	from uint64        // number of the first move that may be, once it is closed
}

// open counts a stream, and starts the relay for the first.
func (r *eventRelay) open(s *store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams.Add(1) == 1 {
		r.stop = make(chan struct{})
		go s.relayEvents(r.stop)
	}
}

// close counts a stream no more, and stops the relay after the last.
func (r *eventRelay) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams.Add(-1) == 0 {
		close(r.stop)
	}
}

// relayShare is how long the relay lets moves collect for each stream besides the first, at most
// relayPause, so that one look serves many.
const (
	relayShare = 10 * time.Microsecond
	relayPause = 10 * time.Millisecond
)

// relayEvents tells followers of what is durable until it is stopped.
func (s *store) relayEvents(stop <-chan struct{}) {
	r := &s.events.relay
	for {
		news := s.journal.publishing.next()
		r.tell(s)
		select {
		case <-stop:
			return
		case <-news:
		}
		pause := min(time.Duration(r.streams.Load()-1)*relayShare, relayPause)
		if pause >= time.Millisecond && closedWithin(context.Background(), stop, pause) == nil {
			return
		}
	}
}

// tell wakes the followers for whom there may be something among the durable moves.
func (r *eventRelay) tell(s *store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	marks, end := s.marksSince(r.told)
	for mark, n := range r.waiting {
		if mark == everyMark || marks.has(mark) {
			n.from = r.told
			close(n.done)
			delete(r.waiting, mark)
		}
	}
	r.told = end
}

// marksSince returns the marks of the durable moves from a number on, and the number of the next. If
// there are too many, or some are gone, these are all marks.
func (s *store) marksSince(from uint64) (marks eventMarks, end uint64) {
	limit := s.journal.published.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	log := &s.events
	end = log.show(limit)
	if from >= log.first && end-from <= keptSpans*spanMoves {
		log.addMarks(&marks, from, end)
		return marks, end
	}
	for i := range marks {
		marks[i] = math.MaxUint64
	}
	return marks, end
}

// news returns a channel that is closed when more for the follower is durable, perhaps also at other
// times. The follower asks for it before it reads, and calls skip before it reads again.
func (f *follower) news() <-chan struct{} {
	r := &f.store.events.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	mark := f.filter.mark()
	n := r.waiting[mark]
	if n == nil {
		n = &eventNews{done: make(chan struct{})}
		if r.waiting == nil {
			r.waiting = map[int]*eventNews{}
		}
		r.waiting[mark] = n
	}
	f.waits = n
	return n.done
}

// skip passes over moves that the filter excludes, as the relay knows, after the follower has read all
// that there were.
func (f *follower) skip() {
	if f.filter.kind == domainKind {
		return
	}
	r := &f.store.events.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	from := f.waits.from
	if r.waiting[f.filter.mark()] == f.waits { // not told
		from = r.told
	}
	f.next = max(f.next, from)
}

// Waiting for a task: requests that are answered when it comes into a state.

// waitEnd is why a wait ended.
type waitEnd string

const (
	waitReached  waitEnd = ""         // the task entered the state
	waitTimedOut waitEnd = "timeout"  // the limit passed first
	waitEnded    waitEnd = "ended"    // the task is over and can never enter it
	waitExpired  waitEnd = "expired"  // the caller's credential expired first; the server says so
	waitShutdown waitEnd = "shutdown" // the service ends
	waitReset    waitEnd = "reset"    // the service was reset
)

// waiters are the requests that wait, by task. store.mu guards them.
type waiters struct {
	tasks  map[uuid]*awaited
	count  int     // number of waiters
	closed waitEnd // why nobody may wait any more; "" while waiting is allowed
}

// awaited is one task and its waiters.
type awaited struct {
	wants  stateSet // the states that any of them waits for, and the final states
	passed stateSet // states that the task entered since the waiters were last notified
	all    []*waiter
}

// waiter is one wait. Its end may be read once done is closed.
type waiter struct {
	task  uuid
	wants stateSet
	place int // in awaited.all
	done  chan struct{}
	end   waitEnd
	found slot // the task at that moment; empty if it must be looked up
}

// join adds a waiter for a task that is in a state.
func (w *waiters) join(id uuid, wants stateSet, state taskState) *waiter {
	n := &waiter{task: id, wants: wants, done: make(chan struct{})}
	if w.closed != "" {
		n.finish(w.closed, slot{})
		return n
	}
	if w.tasks == nil {
		w.tasks = map[uuid]*awaited{}
	}
	a := w.tasks[id]
	if a == nil {
		a = &awaited{wants: finalStates}
		w.tasks[id] = a
	}
	n.place = len(a.all)
	a.all = append(a.all, n)
	a.wants |= wants
	a.passed |= wants & setOf(state) // the task may be in the state since its creation just now
	w.count++
	return n
}

// moved is told every transition. It costs next to nothing while nobody waits.
func (w *waiters) moved(id uuid, to taskState) {
	if w.count == 0 {
		return
	}
	if a := w.tasks[id]; a != nil {
		a.passed |= setOf(to)
	}
}

// hasNews reports whether notify has somebody to tell.
func (w *waiters) hasNews(id uuid) bool {
	if w.count == 0 {
		return false
	}
	a := w.tasks[id]
	if a == nil {
		return false
	}
	if a.passed&a.wants == 0 {
		a.passed = 0
		return false
	}
	return true
}

// notify ends the waits for states that the task entered. All of them share the
// slot: the task as it is now.
func (w *waiters) notify(id uuid, now slot) {
	a := w.tasks[id]
	all, passed := a.all, a.passed
	a.all, a.wants, a.passed = all[:0], finalStates, 0
	for _, n := range all {
		switch {
		case n.wants&passed != 0:
			n.finish(waitReached, now)
		case passed&finalStates != 0:
			n.finish(waitEnded, now)
		default:
			n.place = len(a.all)
			a.all = append(a.all, n)
			a.wants |= n.wants
		}
	}
	w.count -= len(all) - len(a.all)
	clear(all[len(a.all):])
	if len(a.all) == 0 {
		delete(w.tasks, id)
	}
}

// finish ends the wait.
func (n *waiter) finish(end waitEnd, found slot) {
	n.end, n.found = end, found
	close(n.done)
}

// finished reports whether the wait has ended.
func (n *waiter) finished() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// withdraw ends one wait for another reason, unless it has ended. awaited.wants
// keeps its states: that only makes a few extra looks.
func (w *waiters) withdraw(n *waiter, why waitEnd, found slot) {
	if n.finished() {
		return
	}
	a := w.tasks[n.task]
	last := len(a.all) - 1
	a.all[n.place] = a.all[last]
	a.all[n.place].place = n.place
	a.all[last] = nil
	if a.all = a.all[:last]; last == 0 {
		delete(w.tasks, n.task)
	}
	w.count--
	n.finish(why, found)
}

// dropTask ends the waits for a task that is dropped, with the task as it was.
func (w *waiters) dropTask(id uuid, was slot) {
	a := w.tasks[id]
	if a == nil {
		return
	}
	for _, n := range a.all {
		n.finish(waitEnded, was)
	}
	w.count -= len(a.all)
	delete(w.tasks, id)
}

// releaseAll ends every wait. The tasks are looked up afterwards, if they still
// exist.
func (w *waiters) releaseAll(why waitEnd) {
	for _, a := range w.tasks {
		for _, n := range a.all {
			n.finish(why, slot{})
		}
	}
	w.tasks, w.count = nil, 0
}

// await begins a wait for a task to enter one of the states. It is over at once
// if the task is in one or can never be.
func (s *store) await(id uuid, wants stateSet) (*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pos, ok := s.byID[id]
	if !ok {
		return nil, taskNotFound(id)
	}
	state, err := s.stateLocked(pos)
	if err != nil {
		return nil, err
	}
	end, over := waitReached, wants.has(state)
	if !over && state.final() {
		end, over = waitEnded, true
	}
	if over {
		n := &waiter{task: id, wants: wants, done: make(chan struct{})}
		n.finish(end, s.copyLocked(pos))
		return n, nil
	}
	return s.waiters.join(id, wants, state), nil
}

// stateLocked returns the state of the task at a position.
func (s *store) stateLocked(pos uint32) (taskState, error) {
	if live := s.slots[pos].live; live != nil {
		return live.state, nil
	}
	h, err := readTaskHeader(s.slots[pos].line)
	return h.state, err
}

// stopWaiting ends a wait at its limit, with the task as it is, unless it has
// ended.
func (s *store) stopWaiting(n *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found slot
	if pos, ok := s.byID[n.task]; ok && !n.finished() {
		found = s.copyLocked(pos)
	}
	s.waiters.withdraw(n, waitTimedOut, found)
}

// notifyWaiters tells the waiters of a task which states it entered.
func (s *store) notifyWaiters(t *task) {
	if !s.waiters.hasNews(t.id) {
		return
	}
	now := s.copyLocked(t.pos)
	if now.live == nil && len(t.steps)*stepMemory <= smallCopy {
		now.live = t.clone() // in less time than they would need to decode its line
	}
	s.waiters.notify(t.id, now)
}

// releaseWaiters ends every wait and the event streams, because the service ends. Later
// waits end at once, for the reason that was given first.
func (s *store) releaseWaiters(why waitEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters.closed = cmp.Or(s.waiters.closed, why)
	s.events.close()
	s.waiters.releaseAll(why)
}
