package main

// The store family: every task in memory, its indexes, and the files on disk.
// It may use tasks and analytics; it does not know the engine, services, HTTP,
// or who asks. It alone uses the store's fields and takes its lock: others use
// its methods. A change goes through update: decide under the lock, append to
// the journal, apply. Callers get copies, or lines that never change.
//
//	store.go            the store, its lock, changes, and what others ask of it
//	store_index.go      tasks by state, template, label and time, and pages of them
//	store_lines.go      the lines of ended tasks in memory; dead letters by reason and status; waiting for a task
//	store_publish.go    domain events, and which of them each subscriber has
//	store_events.go     the newest transitions for event streams, and whom they wake
//	store_retention.go  which finished tasks and request keys are kept; packing after drops, and positions by id
//	store_journal.go    the journal: records in memory, then on disk, many with one sync
//	store_format.go     the lines of the files, store check, and what is sound of a damaged store
//	store_recover.go    reading the files at a start
//	store_snapshot.go   writing a snapshot beside the running service; reading lines ahead at a start
//	store_state.go      the state document: export and import
//	store_disk.go       the file operations, space for the journal, and the lock of the directory; waiting for the disk

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// outcomeRetryEvery is how often a change that has to be made is offered again to
// a store that cannot take it, in real time.
const outcomeRetryEvery = time.Second

// store holds the tasks in the order of their creation.
type store struct {
	clock   clock
	ids     *idSource // of new steps
	log     *slog.Logger
	journal *journal
	watch   observer      // told of transitions under mu; set before the first update
	full    chan struct{} // holds a token when the journal has grown enough for a snapshot
	carried clockState    // the clock of the state document that the store began with

	mu         sync.Mutex
	seq        uint64               // of the newest record
	slots      []slot               // every task, by position: in the order of creation
	byID       idTable              // task id to position
	identities map[identityKey]uuid // tasks by what deduplicates them
	index      *taskIndex           // positions by state, template, …
	analytics  *analytics           // what happened, counted by hour
	dead       *dlqIndex            // the entries of the dead letter queue
	waiters    waiters              // requests that wait for a task
	events     eventLog             // the newest transitions
	requests   *requestIndex        // tasks by the requests that created them
	retain     retention            // which finished tasks are kept
	packing    packing              // closes gaps among the positions
	scratch    []byte               // the members of the newest record
	room       []byte               // for the line of a task that ends
	order      wordOrder            // of the words in such lines
	decoded    decodedLines         // tasks that ended last
	lastID     uuid                 // the greatest id that a task ever took

	templatesMu sync.RWMutex
	templates   map[string]*template // by hash, all that tasks refer to
}

// slot is the place of one task: live until it is over, then its line. It has
// neither after the task was dropped.
type slot struct {
	live     *task
	line     shortLine
	in       *postings // its entry in the index
	finished instant   // when the task finished, for retention; 0 before
}

// newStore returns an empty store without a journal.
func newStore(c clock, log *slog.Logger) *store {
	s := &store{
		clock:      c,
		log:        log,
		identities: map[identityKey]uuid{},
		analytics:  newAnalytics(),
		dead:       newDLQIndex(),
		requests:   newRequestIndex(),
		templates:  map[string]*template{},
		packing:    packing{floor: packFloor},
		full:       make(chan struct{}, 1),
		watch:      unobserved{},
		events: eventLog{
			keep: defaultKeptEvents, closed: make(chan struct{}), domain: domainLog{keep: defaultKeptEvents},
		},
	}
	s.byID.idAt, s.requests.resize = s.idAt, s.retain.resize
	s.index = newTaskIndex(s)
	return s
}

// openStore reads the files of a directory and opens them for writing.
// keepEvents is how many transitions the event log keeps.
func openStore(o journalOptions, keepEvents int, c clock, log *slog.Logger) (*store, error) {
	s := newStore(c, log)
	s.events.keep, s.events.domain.keep = keepEvents, keepEvents
	r := &restorer{s: s}
	j, err := openJournal(o, r)
	if err != nil {
		return nil, err
	}
	s.journal = j
	s.seq = max(s.seq, j.durable()) // the snapshot may cover a last record that is about no task
	r.events.appendTo(&s.events, s.seq)
	s.dead = s.dead.inOrder()
	s.index.balance()
	return s, nil
}

// insert gives a task that was created at an instant a position, and indexes it as pending.
func (s *store) insert(id uuid, sl slot, tpl *template, by *creation, at instant) uint32 {
	pos := uint32(len(s.slots))
	s.slots = append(s.slots, sl)
	s.byID.add(id, pos)
	if by.identity != (identityKey{}) {
		s.identities[by.identity] = id
	}
	labels := s.index.labels.held
	s.slots[pos].in = s.index.insert(pos, tpl, by, at)
	s.retain.resize(labelBytes * int64(s.index.labels.held-labels))
	s.noteID(id.plus(tpl.ids() - 1))
	return pos
}

// noteID keeps the greatest id. A task that gets new steps takes more ids
// later, so the newest task need not have it.
func (s *store) noteID(id uuid) {
	if bytes.Compare(id[:], s.lastID[:]) > 0 {
		s.lastID = id
	}
}

func (s *store) template(hash string) *template {
	s.templatesMu.RLock()
	defer s.templatesMu.RUnlock()
	return s.templates[hash]
}

func (s *store) keepTemplate(t *template) {
	s.templatesMu.Lock()
	defer s.templatesMu.Unlock()
	s.templates[t.hash] = t
}

// change is one update of the store, under its lock.
type change struct {
	s   *store
	now instant
	one [4]*task // room for the usual case
	set []*task  // the tasks that were changed
}

// update calls decide under the lock. decide either returns an error before its
// first append, or appends records. The sequence returned covers everything
// that decide may have seen: waiting for it makes the answer durable.
func (s *store) update(decide func(c *change) error) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.updateLocked(decide)
	return s.seq, err
}

// locked calls f under the store's lock. The engine keeps its view of running
// and waiting steps under this lock too, so that both change together.
func (s *store) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// unlocked calls f with the lock released; the caller holds the lock before and
// after.
func (s *store) unlocked(f func()) {
	s.mu.Unlock()
	defer s.mu.Lock()
	f()
}

// updateLocked is update for callers that hold the lock.
func (s *store) updateLocked(decide func(c *change) error) error {
	if err := s.journal.reserve(); err != nil {
		return err
	}
	c := change{s: s, now: s.clock.now()}
	c.set = c.one[:0]
	err := decide(&c)
	for _, t := range c.set {
		s.reindex(t)
		s.notifyWaiters(t)
	}
	if err == nil {
		c.dropFinished(dropsPerUpdate)
	}
	if s.journal.snapshotDue() {
		offerToken(s.full)
	}
	return err
}

// reindex brings the indexes up to date with a changed task, and keeps a task
// that is over as its line.
func (s *store) reindex(t *task) {
	if t.indexed != t.state {
		s.index.move(t.pos, t.indexed, t.state, s.slots[t.pos].in)
		t.indexed = t.state
	}
	s.index.touch(t.pos, t.updated, t.completed)
	s.dead.update(t)
	sl := &s.slots[t.pos]
	s.retain.note(sl, t.id, t.finished())
	before := sl.bytes()
	if t.state.ended() {
		sl.line, sl.live = s.lineOf(t), nil
		s.decoded.keep(t, sl.line)
	} else {
		t.weight = t.weigh()
		sl.live, sl.line = t, nil
	}
	s.retain.resize(sl.bytes() - before)
}

// task finds a task to be changed. A task that is over becomes live again only
// when a record is appended to it.
func (c *change) task(id uuid) (*task, error) {
	pos, ok := c.s.byID.find(id)
	if !ok {
		return nil, taskNotFound(id)
	}
	for _, t := range c.set {
		if t.id == id {
			return t, nil
		}
	}
	if live := c.s.slots[pos].live; live != nil {
		return live, nil
	}
	return c.s.taskAt(pos)
}

func taskNotFound(id uuid) error { return failf(taskMissing, "task %s not found", id) }

// taskAt decodes the task whose line is at a position. The store keeps the line
// until the task is reindexed.
func (s *store) taskAt(pos uint32) (*task, error) {
	t, err := s.readTaskLine(s.slots[pos].line.text())
	if err != nil {
		return nil, err
	}
	t.pos, t.indexed = pos, t.state
	return t, nil
}

// readTaskLine decodes a task from its line. It needs no lock.
func (s *store) readTaskLine(line []byte) (*task, error) {
	return s.replayLine(line, unobserved{})
}

// replayLine decodes a task from its line, and tells an observer of each record
// and transition.
func (s *store) replayLine(line []byte, obs replayer) (*task, error) {
	h, err := readTaskHeader(line)
	if err != nil {
		return nil, err
	}
	tpl := s.template(h.template)
	if tpl == nil {
		return nil, missingTemplate(&h)
	}
	return h.replay(tpl, obs)
}

func missingTemplate(h *taskHeader) error {
	return fmt.Errorf("task %s: its template %s is missing", h.id, h.template)
}

// create appends the record of a new task, after the record of its template if
// that is new to the store.
func (c *change) create(r *record, tpl *template) (*task, error) {
	s := c.s
	if known := s.template(tpl.hash); known != nil {
		tpl = known // tasks of one definition share one value
	} else {
		if err := s.journal.reserveFor(len(tpl.json)); err != nil {
			return nil, err
		}
		c.write(&record{kind: recTemplate, hash: tpl.hash, definition: tpl.json})
		s.keepTemplate(tpl)
	}
	c.write(r)
	t := newTask(r, tpl)
	t.pos = s.insert(t.id, slot{live: t}, tpl, r.created, r.at)
	s.requests.insert(r.created.request, t.id, r.at)
	return t, c.fold(t, r)
}

// append journals a record about a task and applies it.
func (c *change) append(t *task, r *record) error {
	r.task = t.id
	if n := t.newIDs(r); n > 0 {
		r.ids = c.s.ids.block(n, t.stepID(r.step), t.def(r.step).name)
	}
	c.write(r)
	return c.fold(t, r)
}

// write gives the record its sequence and time, and journals it.
func (c *change) write(r *record) {
	s := c.s
	s.seq++
	r.seq = s.seq
	r.at = c.now
	s.scratch = appendRecordMembers(s.scratch[:0], r)
	s.journal.append(r.seq, s.scratch)
}

// fold applies a journaled record and keeps its task among those changed.
func (c *change) fold(t *task, r *record) error {
	if !slices.Contains(c.set, t) {
		c.set = append(c.set, t)
	}
	err := c.s.apply(t, r)
	if err != nil {
		c.s.log.Error("a change does not fit the state tables", "error", err)
	}
	return err
}

// apply applies a record, whose members are in scratch, to its task, and tells
// everyone who follows live tasks.
func (s *store) apply(t *task, r *record) error {
	t.appendLog(r.seq, s.scratch)
	s.startRecord(t, r)
	if err := t.apply(r, s); err != nil {
		return err
	}
	if !r.ids.isZero() {
		s.noteID(t.plan.lastID())
	}
	if s.retain.held == 0 { // nobody is to read the log up to an earlier record
		t.compactLog()
	}
	return nil
}

// idLocked returns the id of the task at a position.
func (s *store) idLocked(pos uint32) uuid {
	id := s.idAt(pos)
	if id.isZero() {
		s.log.Error("a task's line cannot be read", "position", pos)
	}
	return id
}

// idAt is idLocked without the log entry: the id is zero if the task's line cannot be read.
func (s *store) idAt(pos uint32) (id uuid) {
	if t := s.slots[pos].live; t != nil {
		return t.id
	}
	id, _ = s.slots[pos].line.taskID()
	return id
}

// liveLocked returns an unfinished task, or nil.
func (s *store) liveLocked(id uuid) *task {
	if pos, ok := s.byID.find(id); ok {
		return s.slots[pos].live
	}
	return nil
}

// taskOfStep returns the task whose id is just below a step's id, as for
// declared steps. It does not check that the task has the step.
func (s *store) taskOfStep(id uuid) (task uuid, ok bool) {
	most := 0
	for _, tpl := range s.allTemplates() {
		most = max(most, tpl.ids())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 1; n <= most; n++ {
		task = id.plus(-n)
		if _, found := s.byID.find(task); found {
			return task, true
		}
	}
	return uuid{}, false
}

// view returns a copy of a task that nobody changes.
func (s *store) view(id uuid) (*task, error) {
	s.mu.Lock()
	kept, err := s.findLocked(id)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.taskIn(kept)
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
	pos, ok := s.byID.find(id)
	if !ok {
		s.mu.Unlock()
		return nil, taskNotFound(id)
	}
	kept := s.slots[pos]
	if t := kept.live; t != nil && len(t.steps)*stepMemory > smallCopy {
		s.mu.Unlock()
		if err := askFor(len(t.steps), h); err != nil {
			return nil, err
		}
		return s.view(id)
	}
	kept = s.copyLocked(pos)
	s.mu.Unlock()
	return s.taskWithin(kept, h)
}

// taskWithin is taskIn; it asks for the memory.
func (s *store) taskWithin(sl slot, h holder) (*task, error) {
	if err := askForLine(sl.line, h); err != nil {
		return nil, err
	}
	return s.taskIn(sl)
}

// viewObserved is view; an observer is told every record and transition of the
// task.
func (s *store) viewObserved(id uuid, obs replayer, h holder) (*task, error) {
	l, err := s.logOf(id)
	if err != nil {
		return nil, err
	}
	return s.replayLog(l, obs, h)
}

// findLocked returns a copy of the slot of a task.
func (s *store) findLocked(id uuid) (slot, error) {
	pos, ok := s.byID.find(id)
	if !ok {
		return slot{}, taskNotFound(id)
	}
	return s.copyLocked(pos), nil
}

// taskIn returns the task of a slot that was copied. It needs no lock.
func (s *store) taskIn(sl slot) (*task, error) {
	if sl.live != nil {
		return sl.live, nil
	}
	return s.readTaskLine(sl.line.text())
}

// copyLocked returns a copy of the slot at a position, with the task if it need not be
// decoded.
func (s *store) copyLocked(pos uint32) slot {
	sl := s.slots[pos]
	if sl.live != nil {
		sl.live = sl.live.clone()
	} else {
		sl.live = s.decoded.find(pos, sl.line)
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
	total, before int        // tasks that match, and those of them up to the place that the query names
	last          taskPlace  // of the last task of the page
	counts        stateCount // by state, if the query asks for it
	seq           uint64     // everything in the page is durable with it
}

// list returns one page of the matching tasks.
func (s *store) list(q *taskQuery) (l taskList) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.index.list(q)
	l = taskList{tasks: make([]listedTask, len(r.positions)), total: r.total, before: r.before, counts: r.counts}
	now := s.clock.now()
	for i, pos := range r.positions {
		l.tasks[i] = listedTask{slot: s.slots[pos], at: now}
		if t := l.tasks[i].live; t != nil {
			l.tasks[i].live, l.tasks[i].ready = t.withoutSteps(), t.readySteps(now)
		}
		l.seq = max(l.seq, s.lastSeqLocked(pos))
	}
	if n := len(r.positions); n > 0 {
		last := r.positions[n-1]
		l.last = taskPlace{s.index.rank(q.order, last), s.seqAt(last)}
	}
	return l
}

// listed returns a listed task, perhaps without its steps, and how many of these are
// ready.
func (s *store) listed(l *listedTask, by holder) (t *task, ready int, err error) {
	if l.live != nil {
		return l.live, l.ready, nil
	}
	h, err := readTaskHead(l.line.text())
	if err != nil {
		return nil, 0, err
	}
	if h.counts[stepPending]+h.counts[stepWaitingForRetry] > 0 {
		if t, err = s.taskWithin(l.slot, by); err == nil {
			ready = t.readySteps(l.at)
		}
		return t, ready, err
	}
	r, err := h.creationRecord()
	if err != nil {
		return nil, 0, err
	}
	t = &task{
		id: h.id, tpl: s.template(h.template), by: r.created, state: h.state,
		created: h.created, updated: h.updated, completed: h.completed, counts: h.counts,
	}
	if t.tpl == nil {
		err = missingTemplate(&h)
	}
	return t, 0, err
}

// startRecord, taskMoved and stepMoved tell everyone who follows live tasks.
func (s *store) startRecord(t *task, r *record) {
	s.analytics.startRecord(t, r)
	s.events.maker.startRecord(t, r)
}

func (s *store) taskMoved(t *task, from, to taskState, at instant) {
	s.events.append(s.events.maker.taskMove(t, from, to, at))
	s.analytics.taskMoved(t, from, to, at)
	s.watch.taskMoved(t, from, to, at)
	s.waiters.moved(t.id, to)
}

func (s *store) stepMoved(t *task, i int, from, to stepState, at instant) {
	if from != noStepState {
		s.index.steps[from]--
	}
	s.index.steps[to]++
	s.events.append(s.events.maker.stepMove(t, i, from, to, at))
	s.publish(t, i, from, to, at)
	s.analytics.stepMoved(t, i, from, to, at)
	s.watch.stepMoved(t, i, from, to, at)
}

// close makes everything written durable and releases the directory.
func (s *store) close() error {
	s.locked(s.retain.giveBack)
	return s.journal.close()
}

// taskLog is what a task can be replayed from without a lock.
type taskLog struct {
	line shortLine // of a task that is over
	id   uuid      // of a live task, like tpl, log and steps
	tpl  *template
	log  []byte

	steps int
}

// logLocked returns the log of a task as it is now.
func (s *store) logLocked(pos uint32) taskLog {
	if t := s.slots[pos].live; t != nil {
		return taskLog{id: t.id, tpl: t.tpl, log: t.log[:len(t.log):len(t.log)], steps: len(t.steps)}
	}
	return taskLog{line: s.slots[pos].line}
}

// replayLog replays a log for an observer, and returns the task. It asks for the
// memory, and needs no lock.
func (s *store) replayLog(l taskLog, obs replayer, by holder) (*task, error) {
	if err := l.ask(by); err != nil {
		return nil, err
	}
	if l.line != nil {
		return s.replayLine(l.line.text(), obs)
	}
	return replayRecords(l.id, l.tpl, l.log, obs)
}

// watchedStates are the states in which a task can become stale.
var watchedStates = [...]taskState{
	taskStepsInProcess, taskWaitingForDependencies, taskWaitingForRetry, taskBlockedByFailures,
}

// stalenessBatch is how many tasks a search looks at under the lock at a time.
// A task counts once more for every 64 of its steps.
const stalenessBatch = 256

// eachWatchedLocked calls f for one batch of the tasks in watched states, in
// the order of creation, from a position on. It returns the position to go on
// from, and whether there may be more.
func (s *store) eachWatchedLocked(from uint32, f func(t *task) error) (next uint32, more bool, err error) {
	s.packing.walks++
	defer func() { s.packing.walks-- }()
	w := s.watchFrom(from)
	for work := 0; work < stalenessBatch; {
		pos, ok := w.take()
		if !ok {
			return 0, false, nil
		}
		t := s.slots[pos].live
		work += 1 + len(t.steps)/64
		from = pos + 1
		if err := f(t); err != nil {
			return 0, false, err
		}
	}
	return from, true, nil
}

// watchedWalk walks the tasks in watched states by position. Tasks that it has
// passed may change.
type watchedWalk struct {
	sets [len(watchedStates)]*bitset
	next [len(watchedStates)]uint32
	left [len(watchedStates)]bool
}

func (s *store) watchFrom(from uint32) *watchedWalk {
	w := &watchedWalk{}
	for i, state := range watchedStates {
		w.sets[i] = &s.index.states[state]
		w.next[i], w.left[i] = w.sets[i].next(from)
	}
	return w
}

func (w *watchedWalk) take() (uint32, bool) {
	best := -1
	for i := range w.sets {
		if w.left[i] && (best < 0 || w.next[i] < w.next[best]) {
			best = i
		}
	}
	if best < 0 {
		return 0, false
	}
	pos := w.next[best]
	w.next[best], w.left[best] = w.sets[best].next(pos + 1)
	return pos, true
}

// What others ask of the store.

// behind returns an error while too much waits for the disk to take new work.
func (s *store) behind() error { return s.journal.behind() }

// hung returns a channel that is closed while the disk hangs, or when it begins to.
func (s *store) hung() <-chan struct{} {
	j := s.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.hung
}

// size returns the number of tasks and the sequence of the newest record.
func (s *store) size() (tasks int, records uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID.count, s.seq
}

// seqLocked returns the sequence of the newest record.
func (s *store) seqLocked() uint64 { return s.seq }

// attach sets the source of ids for new steps and the observer of transitions,
// before the first update.
func (s *store) attach(ids *idSource, watch observer) {
	ids.observe(s.lastID)
	s.ids, s.watch = ids, watch
}

// eachLiveLocked calls f for every unfinished task, in the order of creation.
func (s *store) eachLiveLocked(f func(t *task)) {
	for i := range s.slots {
		if t := s.slots[i].live; t != nil {
			f(t)
		}
	}
}

// eachUnsettledErrorLocked calls f with a copy of every task that went to error
// with a step in progress or waiting for a retry.
func (s *store) eachUnsettledErrorLocked(f func(t *task)) error {
	failed := &s.index.states[taskError]
	for pos, ok := failed.next(0); ok; pos, ok = failed.next(pos + 1) {
		h, err := readTaskHeader(s.slots[pos].line.text())
		if err != nil {
			return err
		}
		if h.counts[stepInProgress]+h.counts[stepWaitingForRetry] == 0 {
			continue
		}
		t, err := s.taskAt(pos)
		if err != nil {
			return err
		}
		f(t)
	}
	return nil
}

// mark returns letters that differ by store.
func (s *store) mark() string { return s.journal.id[:min(len(s.journal.id), 8)] }

// status returns the state of the files.
func (s *store) status() journalStatus { return s.journal.status() }

// storeLoad holds the figures of the store for the metrics.
type storeLoad struct {
	stateCounts
	waiting int    // requests that wait for a task
	dropped uint64 // finished tasks dropped since the store was first made
	early   uint64 // those of them since the start that only lack of memory required
	letters [dlqReasons][dlqStatuses]int

	requests [2]int // keys of requests that may be repeated, of tasks kept and dropped
	evicted  uint64 // such keys forgotten early since the start
}

// loadLocked returns the present load.
func (s *store) loadLocked() storeLoad {
	x := s.requests
	x.forget(s.clock.now())
	return storeLoad{s.countsLocked(), s.waiters.count, s.retain.dropped, s.retain.early, s.dead.counts,
		[...]int{len(x.tasks), len(x.dropped)}, x.evicted}
}

// duplicate returns the task that already has this identity.
func (c *change) duplicate(identity identityKey) (id uuid, ok bool) {
	if identity == (identityKey{}) {
		return uuid{}, false
	}
	id, ok = c.s.identities[identity]
	return id, ok
}

// awaitEnd returns a waiter for the end of a task that this change creates.
func (c *change) awaitEnd(t *task) *waiter { return c.s.waiters.join(t.id, terminalStates, t.state) }

// letter finds a dead letter by its id.
func (c *change) letter(id uuid) (dlqRow, bool) { return c.s.dead.find(id) }

// logOf returns the log of a task.
func (s *store) logOf(id uuid) (taskLog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pos, ok := s.byID.find(id)
	if !ok {
		return taskLog{}, taskNotFound(id)
	}
	return s.logLocked(pos), nil
}

// maxStepsLooked is about how many steps a walk looks at under the lock at a time.
const maxStepsLooked = 4096

// eachInError calls f for every task that may have a step in error: for live ones
// under the lock, which it takes for some tasks at a time.
func (s *store) eachInError(f func(t *task)) error {
	from := uint32(0)
	for more := true; more; {
		var lines []shortLine
		lines, from, more = s.inErrorBatch(from, f)
		for _, line := range lines {
			text := line.text()
			if h, err := readTaskHeader(text); err == nil && h.counts[stepInError] == 0 {
				continue
			}
			t, err := s.readTaskLine(text)
			if err != nil {
				return fmt.Errorf("looking at failed steps: %w", err)
			}
			f(t)
		}
	}
	return nil
}

// inErrorBatch calls f for the live ones of some tasks from a position on. It
// returns the lines of the ended ones, and the position to go on from.
func (s *store) inErrorBatch(from uint32, f func(t *task)) (lines []shortLine, next uint32, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for looked := 0; looked < maxStepsLooked; {
		pos, ok := s.index.in(setOf(taskBlockedByFailures, taskError)).next(from)
		if !ok {
			return lines, from, false
		}
		from = pos + 1
		t := s.slots[pos].live
		if t == nil {
			lines = append(lines, s.slots[pos].line)
			looked++
			continue
		}
		looked += 1 + len(t.steps)
		f(t)
	}
	return lines, from, true
}
