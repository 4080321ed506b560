package main

// Copies for readers: a task as it is, a page of a list, and the log of a task. The memory for
// a large copy is asked for before it is made.

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// taskTemplates holds the templates of all tasks, for as long as the store is open, and reads tasks from their lines
// and logs, which needs no other lock.
type taskTemplates struct {
	mu     sync.RWMutex
	byHash map[string]*template // guarded by mu; nobody changes a template
}

// find returns the template with a hash, or nil.
func (t *taskTemplates) find(hash string) *template {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byHash[hash]
}

// extraOf returns how many bytes a creation may take beyond what every change may take.
func (t *taskTemplates) extraOf(by *creation, tpl *template) int {
	if t.find(tpl.hash) != nil {
		return by.origin.size()
	}
	return by.origin.size() + len(tpl.json)
}

func (t *taskTemplates) keep(tpl *template) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byHash[tpl.hash] = tpl
}

// readTask decodes a task from its line.
func (t *taskTemplates) readTask(line []byte) (*task, error) {
	return t.replayLine(line, unobserved{})
}

// replayLine decodes a task from its line, and notifies an observer of each record
// and transition.
func (t *taskTemplates) replayLine(line []byte, obs replayer) (*task, error) {
	h, err := readTaskHeader(line)
	if err != nil {
		return nil, err
	}
	return h.replay(t.find(h.template), obs)
}

// view returns a copy of a task that nobody changes.
func (s *store) view(id uuid) (*task, error) {
	s.mu.Lock()
	kept, err := s.tasks.copyOf(id)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.templates.taskIn(kept)
}

// holder is asked before about n bytes are taken for a copy of a large task. After
// an error they are not taken. A nil holder is not asked.
type holder interface{ hold(n int) error }

// times asks a holder for n times the memory of the task, which is what a view of it
// takes besides.
type times struct {
	by holder
	n  int
}

func (t times) hold(n int) error {
	if t.by == nil {
		return nil
	}
	return t.by.hold(t.n * n)
}

const (
	stepMemory = 512      // what a step of a copy takes, about
	smallCopy  = 16 << 10 // nobody is asked for less
	smallLine  = 1 << 10  // the line of a task with few steps
)

// askFor asks for the memory of a copy with this many steps.
func askFor(steps int, h holder) error {
	if n := steps * stepMemory; n > smallCopy && h != nil {
		return h.hold(n)
	}
	return nil
}

// askForLine asks for the memory of the task in a line, if there is one.
func askForLine(line shortLine, h holder) error {
	if len(line) <= smallLine {
		return nil
	}
	head, err := readTaskHead(line.text())
	if err != nil {
		return err
	}
	return askFor(stepTotal(&head.counts), h)
}

// ask asks for the memory of the task.
func (l *taskLog) ask(h holder) error {
	if l.line != nil {
		return askForLine(l.line, h)
	}
	return askFor(l.steps, h)
}

// askForTask asks for the memory of a copy of a task.
func (s *store) askForTask(id uuid, h holder) error {
	l, err := s.logOf(id)
	if err != nil {
		return err
	}
	return l.ask(h)
}

// viewWithin is view; it asks for the memory.
func (s *store) viewWithin(id uuid, h holder) (*task, error) {
	s.mu.Lock()
	if t := s.liveLocked(id); t != nil && len(t.steps)*stepMemory > smallCopy {
		s.mu.Unlock()
		// The holder may have to wait for memory, which must not happen under the lock. The copy is
		// then of the task as it is afterwards.
		if err := askFor(len(t.steps), h); err != nil {
			return nil, err
		}
		return s.view(id)
	}
	kept, err := s.tasks.copyOf(id)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.templates.taskWithin(kept, h)
}

// taskWithin is taskIn; it asks for the memory.
func (t *taskTemplates) taskWithin(sl slot, h holder) (*task, error) {
	if err := askForLine(sl.line, h); err != nil {
		return nil, err
	}
	return t.taskIn(sl)
}

// viewObserved is view; an observer receives every record and transition of the
// task.
func (s *store) viewObserved(id uuid, obs replayer, h holder) (*task, error) {
	l, err := s.logOf(id)
	if err != nil {
		return nil, err
	}
	return s.templates.replayLog(l, obs, h)
}

// copyOf returns a copy of the slot of a task.
func (x *slotTable) copyOf(id uuid) (slot, error) {
	pos, ok := x.find(id)
	if !ok {
		return slot{}, taskNotFound(id)
	}
	return x.copyAt(pos), nil
}

// taskIn returns the task of a slot that was copied.
func (t *taskTemplates) taskIn(sl slot) (*task, error) {
	if sl.live != nil {
		return sl.live, nil
	}
	return t.readTask(sl.line.text())
}

// copyAt returns a copy of the slot at a position, with the task if it need not be
// decoded.
func (x *slotTable) copyAt(pos uint32) slot {
	sl := x.slots[pos]
	if sl.live != nil {
		sl.live = sl.live.clone()
	} else {
		sl.live = x.decoded.find(pos, sl.line)
	}
	return sl
}

// listedTask is a task as it was when it was listed: a copy without its steps, or the
// line of one that was over.
type listedTask struct {
	slot
	at    instant
	ready int // steps of a live one
}

// taskList is a page of tasks as they were when they were listed.
type taskList struct {
	tasks         []listedTask
	total, before int        // tasks that match, and how many of them come up to the place that the query names
	last          taskPlace  // of the last task of the page
	counts        stateCount // by state, if the query asks for it
	unindexed     int        // values that a filter by values does not see, for lack of memory
	seq           uint64     // everything in the page is durable with it
}

// list returns one page of the matching tasks.
func (s *store) list(q *taskQuery) (l taskList) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.tasks.index.list(q)
	l = taskList{tasks: make([]listedTask, len(r.positions)), total: r.total, before: r.before, counts: r.counts}
	if len(q.values) > 0 {
		l.unindexed = s.tasks.index.found.values
	}
	now := s.clock.now()
	for i, pos := range r.positions {
		l.tasks[i] = s.tasks.listedAt(pos, now)
		l.seq = max(l.seq, s.lastSeqLocked(pos))
	}
	if n := len(r.positions); n > 0 {
		last := r.positions[n-1]
		l.last = taskPlace{s.tasks.index.rank(q.order, last), s.tasks.seqAt(last)}
	}
	return l
}

// matchingTask is a task that a query selects.
type matchingTask struct {
	id    uuid
	tpl   *template
	place taskPlace
}

// matching returns a page of tasks in the order of creation, of some or, if ids is nil, of all. Their templates are found
// by their hash. Callers hold the store's lock.
func (x *slotTable) matching(q *taskQuery, ids map[uuid]bool, find func(hash string) *template) (page []matchingTask) {
	var positions []uint32
	if ids == nil {
		positions = x.index.list(q).positions
	} else {
		positions = x.named(q, ids)
	}
	for _, pos := range positions {
		m := matchingTask{id: x.idOf(pos), place: taskPlace{x.index.rank(q.order, pos), x.seqAt(pos)}}
		if sl := x.slots[pos]; sl.live != nil {
			m.tpl = sl.live.tpl
		} else if h, err := readTaskHead(sl.line.text()); err == nil {
			m.tpl = find(h.template)
		}
		page = append(page, m)
	}
	return page
}

// named returns the positions of a page of some tasks.
func (x *slotTable) named(q *taskQuery, ids map[uuid]bool) []uint32 {
	sel, ok := x.index.selected(&q.taskFilter)
	if !ok {
		return nil
	}
	some := &positions{}
	for id := range ids {
		if pos, ok := x.find(id); ok && (q.after == nil || x.seqAt(pos) > q.after.seq) {
			some.few = append(some.few, pos)
		}
	}
	slices.Sort(some.few)
	sel.narrow(some)
	found := sel.among()
	return found[:min(len(found), q.limit)]
}

// listedAt returns the task at a position as it is at an instant.
func (x *slotTable) listedAt(pos uint32, now instant) listedTask {
	l := listedTask{slot: x.slots[pos], at: now}
	if t := l.live; t != nil {
		l.live, l.ready = t.withoutSteps(), t.readySteps(now)
	}
	return l
}

// listed returns a listed task, perhaps without its steps, and how many of these are
// ready.
func (t *taskTemplates) listed(l *listedTask, by holder) (found *task, ready int, err error) {
	if l.live != nil {
		return l.live, l.ready, nil
	}
	h, err := readTaskHead(l.line.text())
	if err != nil {
		return nil, 0, err
	}
	// Only a replay shows whether its steps are ready.
	if h.counts[stepPending]+h.counts[stepWaitingForRetry] > 0 {
		if found, err = t.taskWithin(l.slot, by); err == nil {
			ready = found.readySteps(l.at)
		}
		return found, ready, err
	}
	r, err := h.creationRecord()
	if err != nil {
		return nil, 0, err
	}
	found = &task{
		id: h.id, lastSeq: h.lastSeq, tpl: t.find(h.template), by: r.created, state: h.state,
		created: h.created, updated: h.updated, completed: h.completed, counts: h.counts,
	}
	return found, 0, nil
}

// taskLog is what a task can be replayed from without a lock.
type taskLog struct {
	line shortLine // of a task that is over
	id   uuid      // of a live task, like tpl, log and steps
	tpl  *template
	log  []byte

	steps int
}

// logAt returns the log of a task as it is now.
func (x *slotTable) logAt(pos uint32) taskLog {
	if t := x.slots[pos].live; t != nil {
		// Later records go behind this slice or into another one, so it can be read without the
		// lock.
		return taskLog{id: t.id, tpl: t.tpl, log: t.log[:len(t.log):len(t.log)], steps: len(t.steps)}
	}
	return taskLog{line: x.slots[pos].line}
}

// replayLog replays a log for an observer, and returns the task. It asks for the
// memory.
func (t *taskTemplates) replayLog(l taskLog, obs replayer, by holder) (*task, error) {
	if err := l.ask(by); err != nil {
		return nil, err
	}
	if l.line != nil {
		return t.replayLine(l.line.text(), obs)
	}
	return replayRecords(l.id, l.tpl, l.log, obs)
}

// logOf returns the log of a task.
func (s *store) logOf(id uuid) (taskLog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pos, ok := s.tasks.find(id)
	if !ok {
		return taskLog{}, taskNotFound(id)
	}
	return s.tasks.logAt(pos), nil
}

// writeLines passes every template's line to add, without its closing
// brace.
func (t *taskTemplates) writeLines(add func(line []byte) error) error {
	var buf []byte
	for _, tpl := range t.all() {
		buf = append(append(buf[:0], `{"hash":"`...), tpl.hash...)
		buf = append(append(buf, `","definition":`...), tpl.json...)
		if err := add(buf); err != nil {
			return err
		}
	}
	return nil
}

// all returns all templates that tasks refer to, sorted by hash.
func (t *taskTemplates) all() []*template {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.SortedFunc(maps.Values(t.byHash), func(a, b *template) int { return cmp.Compare(a.hash, b.hash) })
}

// copy returns the templates of the tasks, by hash.
func (t *taskTemplates) copy() map[string]*template {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return maps.Clone(t.byHash)
}
