package main

// The store family: every task in memory, its indexes, and the files on disk.
// It may use tasks and analytics; it does not know the engine, services, HTTP,
// or who asks. It alone uses the store's fields and takes its lock: others use
// its methods. A change goes through update: decide under the lock, append to
// the journal, apply. Callers get copies, or lines that never change.
//
//	store.go            the store: its lock, changes, and the waits of others
//	store_view.go       copies of tasks, their logs and their lists
//	store_index.go      the index of tasks by label and other values
//	store_list.go       pages of tasks in order
//	store_positions.go  the table of tasks by position, and packing
//	store_walk.go       walks over all tasks in batches
//	store_lines.go      the short lines of ended tasks
//	store_letters.go    dead letters in their queue, and figures
//	store_waiters.go    waiters for a task
//	store_requests.go   repeated requests: the tasks of Idempotency-Keys
//	store_retention.go  retention: which finished tasks are kept
//	store_events.go     the newest events, their followers
//	store_relay.go      the relay that tells event streams
//	store_publish.go    domain events, subscriptions
//	store_deliveries.go deliveries of domain events
//	store_journal.go    the journal: its newest file, its status
//	store_commit.go     group commit: the flusher writes the records of many with one sync
//	store_files.go      the names in the directory (storeDir)
//	store_space.go      space for the journal
//	store_hang.go       the watch over a disk that hangs
//	store_lock.go       the lock of the directory, and its place
//	store_disk.go       the operations on files: open, rename, sync
//	store_format.go     the format of the lines
//	store_snapshot.go   writing a snapshot beside the running service
//	store_recover.go    reading the files at a start: recovery, torn ends
//	store_restore.go    restoring tasks from their lines
//	store_state.go      the state document: export and import
//	store_check.go      store check
//	store_repair.go     store repair: salvage

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"math"
	"math/bits"
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

// taskWithin is taskIn; it asks for the memory.
func (s *store) taskWithin(sl slot, h holder) (*task, error) {
	if err := askForLine(sl.line, h); err != nil {
		return nil, err
	}
	return s.taskIn(sl)
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

func (s *store) watchFrom(from uint32) *watchedWalk {
	w := &watchedWalk{}
	for i, state := range watchedStates {
		w.sets[i] = &s.index.states[state]
		w.next[i], w.left[i] = w.sets[i].next(from)
	}
	return w
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

// Waiting for the disk: an answer that tells of tasks, be it a success, a refusal or a
// view, is given when what it tells is durable.

// wait returns once everything up to a sequence is durable.
func (s *store) wait(ctx context.Context, seq uint64) error { return s.journal.wait(ctx, seq) }

// outwait is wait for those who also wait while the disk hangs.
func (s *store) outwait(ctx context.Context, seq uint64) error {
	return s.journal.await(ctx, seq, true)
}

// waitAll returns once every change made so far is durable.
func (s *store) waitAll(ctx context.Context) error {
	s.mu.Lock()
	seq := s.seq
	s.mu.Unlock()
	return s.wait(ctx, seq)
}

// waitTask returns once every change of a task is durable. If there is no such task,
// that includes the record that may have dropped it.
func (s *store) waitTask(ctx context.Context, id uuid) error {
	s.mu.Lock()
	seq := s.seq
	if pos, ok := s.byID.find(id); ok {
		seq = s.lastSeqLocked(pos)
	}
	s.mu.Unlock()
	return s.wait(ctx, seq)
}

// lastSeqLocked returns the sequence of the newest record of the task at a position, or 0
// if everything is durable.
func (s *store) lastSeqLocked(pos uint32) uint64 {
	if s.journal.durable() >= s.seq {
		return 0
	}
	if t := s.slots[pos].live; t != nil {
		return t.lastSeq
	}
	return s.slots[pos].line.number(`,"last":`)
}

// refuse returns a refusal once everything that it may tell of is durable.
func (s *store) refuse(ctx context.Context, refusal error) error {
	if refusedForNow(refusal) {
		return refusal // it tells of no task
	}
	return cmp.Or(s.waitAll(ctx), refusal)
}

// viewAfter returns a view of a task that was just changed, by the record with a
// sequence, once that and everything in the view are durable. A task dropped since, which
// happens if very few are kept, is returned as it was at its end.
func (s *store) viewAfter(ctx context.Context, t *task, seq uint64) (*task, error) {
	if err := s.wait(ctx, seq); err != nil {
		return nil, err
	}
	v, err := s.view(t.id)
	if kindOf(err) == taskMissing {
		s.locked(func() { v, err = t.clone(), nil })
	}
	if err != nil {
		return nil, err
	}
	return v, s.wait(ctx, v.lastSeq)
}

// follow returns a follower from a sequence on; from 0 it begins with the
// oldest move held. If the log does not reach back to the sequence, or the
// sequence is of another store, it begins with the oldest and has missed moves.
func (s *store) follow(filter eventFilter, after uint64) (*follower, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.byID.find(filter.task); !ok && !filter.task.isZero() {
		return nil, taskNotFound(filter.task)
	}
	if filter.kind == domainKind {
		return s.followDomainLocked(filter, after), nil
	}
	log := &s.events
	f := &follower{store: s, filter: filter, after: after, oldest: log.oldest()}
	if after < log.lost || after > s.seq {
		f.missed, f.after = after != 0, log.lost
	}
	f.next = log.after(f.after)
	return f, nil
}

// followNow returns a follower from the newest durable record on, and the
// sequence of that.
func (s *store) followNow(filter eventFilter) (*follower, uint64, error) {
	now := s.journal.published.Load()
	f, err := s.follow(filter, now)
	if err != nil {
		return nil, 0, err
	}
	f.missed = false // in an empty store "now" is before everything
	return f, now, nil
}

func (s *store) streamFigures() streamFigures {
	l := &s.events
	return streamFigures{l.relay.streams.Load(), l.delivered.Load(), l.cut.Load()}
}

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

func (s *store) createdAt(pos uint32) instant { return s.slots[pos].created() }

func (s *store) seqAt(pos uint32) uint64 {
	if t := s.slots[pos].live; t != nil {
		return t.seq
	}
	return s.slots[pos].line.number(`,"seq":`)
}

func (s *store) correlatedAt(id uuid) (uint32, bool) {
	for _, tpl := range s.allTemplates() {
		n := len(tpl.steps) + 1
		pos, ok := s.byID.find(id.plus(-n))
		if ok && len(s.slots[pos].in.key.tpl.steps)+1 == n {
			by := s.labelsOf(pos, s.slots[pos])
			return pos, by == nil || by.correlation.isZero()
		}
	}
	return 0, false
}

// labelsOf returns the creation of the task that is indexed at a position, in this slot,
// or nil if it has no label.
func (s *store) labelsOf(pos uint32, sl slot) *creation {
	if !s.index.labels.holders.has(pos) {
		return nil
	}
	_, by, err := sl.origin()
	if err != nil {
		s.log.Error("a task's line cannot be read", "position", pos, "error", err)
	}
	return by
}

func (s *store) countsLocked() stateCounts {
	c := stateCounts{steps: s.index.steps}
	for i := range c.tasks {
		c.tasks[i] = s.index.states[i].count()
	}
	return c
}

// lineOf returns the line of a task that is over.
func (s *store) lineOf(t *task) shortLine {
	line := t.appendTaskLine(s.room[:0])
	s.room = s.order.shorten(line, line)
	short := s.room[len(line):]
	if len(line) > maxShortened {
		s.room = nil
	}
	return append(make(shortLine, 0, len(short)), short...)
}

// deadLetters returns one page of the letters that match, newest first, and for each
// the log of its task.
func (s *store) deadLetters(f dlqFilter, skip, limit int) (page []dlqRow, logs []taskLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page = s.dead.page(f, skip, limit)
	logs = make([]taskLog, len(page))
	for i, r := range page {
		pos, _ := s.byID.find(r.task)
		logs[i] = s.logLocked(pos)
	}
	return page, logs
}

// letterQueue returns the pending letters with the highest priority, highest
// first; of one reason alone unless that is nil.
func (s *store) letterQueue(only *dlqReason, now instant, limit int) ([]queuedLetter, error) {
	s.mu.Lock()
	rows := s.dead.queue(only, now, limit)
	queue := make([]queuedLetter, len(rows))
	ended := make([]shortLine, len(rows)) // lines of tasks that ended
	for i, r := range rows {
		queue[i].dlqRow = r
		pos, _ := s.byID.find(r.task)
		sl := &s.slots[pos]
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
		h, err := readTaskHeader(line.text())
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

// await begins a wait for a task to enter one of the states. It is over at once
// if the task is in one or can never be.
func (s *store) await(id uuid, wants stateSet) (*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pos, ok := s.byID.find(id)
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
	h, err := readTaskHeader(s.slots[pos].line.text())
	return h.state, err
}

// stopWaiting ends a wait at its limit, with the task as it is, unless it has
// ended.
func (s *store) stopWaiting(n *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found slot
	if pos, ok := s.byID.find(n.task); ok && !n.finished() {
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

// publish appends what a move of a step publishes. A start finds no fast events again.
func (s *store) publish(t *task, i int, from, to stepState, at instant) {
	end := t.published(i, from, to)
	if end == nil {
		return
	}
	l, starting := &s.events.domain, s.journal == nil
	t.eachPublished(i, from, to, at, s.events.maker.seq, func(e domainEvent) {
		if starting && e.fast() {
			return
		}
		if l.append(e); !starting {
			l.published[slices.Index(deliveryModeNames[:], e.mode)]++
			if l.observer != nil {
				l.observer(&e)
			}
		}
	})
	if !starting && end.withheld != nil {
		eachMember(end.withheld, func(string, []byte) bool { l.withheld++; return true })
	}
}

// followDomainLocked is follow for domain events.
func (s *store) followDomainLocked(filter eventFilter, after uint64) *follower {
	log := &s.events.domain
	f := &follower{store: s, filter: filter, after: after, oldest: log.oldest()}
	if after < log.gone || after > s.seq {
		f.missed, f.after = after != 0, log.lost
	}
	f.next = log.after(f.after)
	return f
}

// subscribe sets which events a subscriber gets; of a new one, those of later records.
func (s *store) subscribe(name string, wants func(e *domainEvent) bool) error {
	_, err := s.update(func(c *change) error {
		if s.events.domain.subscription(name) == nil {
			c.deliver(&subscriberMark{subscriber: name, from: max(s.seq, 1)})
		}
		sub := s.events.domain.subscription(name)
		sub.wants, sub.next = wants, s.events.domain.after(sub.done)
		sub.listed, sub.listDead = nil, 0
		for i := range s.events.domain.held {
			sub.list(&s.events.domain.held[i], s.events.domain.first+uint64(i))
		}
		return nil
	})
	return err
}

// nextFor returns the event that a subscriber gets next, once it is on disk.
func (s *store) nextFor(name string) (e domainEvent, ok bool) {
	limit := s.journal.published.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.events.domain
	next := l.skip(l.subscription(name))
	if next == nil || next.seq > limit {
		return e, false
	}
	return *next, true
}

// settleLocked notes that a subscriber has an event, or that the event was given up. If the store
// cannot take that, a restart sends the event again.
func (s *store) settleLocked(name string, e *domainEvent, dead *deadNotice) error {
	return s.updateLocked(func(c *change) error {
		l := &s.events.domain
		sub := l.subscription(name)
		for _, lost := range sub.overtaken {
			if lost.at = c.now; lost.seq != e.seq || lost.n != e.n { // that one was on its way
				c.deliver(&subscriberMark{subscriber: name, dead: &lost})
			}
		}
		sub.overtaken = nil
		if sub.next < l.end() && sub.next >= l.first && l.held[sub.next-l.first].seq == e.seq {
			sub.next++
		}
		d := &subscriberMark{subscriber: name, dead: dead}
		if !l.goesOn(sub, e.seq) {
			d.done = e.seq
		}
		if dead != nil || d.done > 0 && !e.fast() {
			c.deliver(d)
		}
		return nil
	})
}

// resent notes that a subscriber got an event that had been given up.
func (s *store) resent(name string, x *deadNotice) error {
	_, err := s.update(func(c *change) error {
		c.deliver(&subscriberMark{subscriber: name, resent: x})
		return nil
	})
	return err
}

// observeEvents has f called, under the store's lock, with each event that is published.
func (s *store) observeEvents(f func(e *domainEvent)) { s.events.domain.observer = f }

// news returns a channel that is closed when more is durable.
func (s *store) news() <-chan struct{} { return s.journal.publishing.next() }

// awaitedLocked returns the event that a subscriber waits for; nil for none.
func (s *store) awaitedLocked(name string) *domainEvent {
	sub := s.events.domain.subscription(name)
	if sub == nil || sub.wants == nil {
		return nil
	}
	return s.events.domain.skip(sub)
}

// waitingLocked counts the events that a subscriber waits for, and those given up.
func (s *store) waitingLocked(name string) (waiting, dead int) {
	l := &s.events.domain
	sub := l.subscription(name)
	if sub == nil || sub.wants == nil {
		return 0, 0
	}
	if l.skip(sub) != nil {
		for i := sub.next - l.first; i < uint64(len(l.held)); i++ {
			waiting += boolCount(sub.wants(&l.held[i]))
		}
	}
	return waiting, len(sub.dead)
}

// publishedLocked counts the events since the start by mode, and those withheld.
func (s *store) publishedLocked() (published [deliveryModes]uint64, withheld uint64) {
	return s.events.domain.published, s.events.domain.withheld
}

// deliveriesLocked returns some of the deliveries, the newest event first, and how many there
// are. Fast events are none. It passes over those before the offset, and looks at no others.
func (s *store) deliveriesLocked(f deliveryFilter, offset, limit int) (rows []deliveryRow, total int) {
	var walks []*deliveryWalk
	for _, sub := range s.events.domain.subscriptions {
		if sub.wants != nil && (f.subscriber == "" || f.subscriber == sub.name) {
			w := s.events.domain.walk(sub, f.status)
			walks, total = append(walks, w), total+w.total
		}
	}
	for n := 0; n < min(offset+limit, total); n++ {
		var first *deliveryWalk
		for _, w := range walks {
			if w.next() && (first == nil || w.newer(first)) {
				first = w
			}
		}
		if first == nil {
			break
		}
		if n >= offset {
			rows = append(rows, first.row())
		}
		first.take()
	}
	return rows, total
}

// deliveryOf returns the delivery of an event to a subscriber, and the event.
func (s *store) deliveryOf(name string, seq uint64, n int) (*deliveryRow, *domainEvent, error) {
	var row deliveryRow
	var e *domainEvent
	s.locked(func() {
		l := &s.events.domain
		sub := l.subscription(name)
		if x := sub.deadNotice(seq, n); x != nil {
			row = deliveryRow{name, deliveryDead, false, *x}
		}
		for number := l.after(seq - 1); number < l.end() && l.held[number-l.first].seq == seq; number++ {
			if r, ok := l.row(sub, number); ok && r.notice.n == n {
				row, e = r, new(l.held[number-l.first])
			}
		}
	})
	if row.status == "" {
		return nil, nil, failf(notFound, "there is no delivery %d-%d-%s", seq, n, name)
	}
	if e != nil {
		return &row, e, nil
	}
	find := &eventFinder{seq: seq, n: n}
	if _, err := s.viewObserved(row.notice.task, find, nil); err != nil {
		return nil, nil, err
	}
	if find.event == nil {
		return nil, nil, failf(notFound, "task %s has not published event %d of record %d", row.notice.task, n, seq)
	}
	return &row, find.event, nil
}

// droppedLine returns that line without its closing brace; nil if nothing was
// dropped.
func (s *store) droppedLine() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retain.dropped == 0 {
		return nil
	}
	c := memberCoder{b: []byte{'{'}}
	s.droppedMembers(&c, &s.lastID)
	return c.b
}

func (s *store) droppedMembers(c *memberCoder, lastID *uuid) {
	nonzero(c, "dropped", &s.retain.dropped)
	c.id("last_id", lastID)
}

// droppedEarly counts a task that the limits would keep.
func (s *store) droppedEarly(now instant) {
	r := &s.retain
	r.early++
	if r.warned == 0 || now.sub(r.warned) >= earlyWarnedEvery {
		r.warned = now
		s.log.Warn("tasks take nearly all the memory that store.max_memory_mb allows: "+
			"finished ones are dropped earlier than retention says", "limit_bytes", r.memory.most, "dropped_early", r.early)
	}
}

// nextDrop returns the position of the task to drop next, if any, and whether only the
// lack of memory requires that.
func (s *store) nextDrop(now instant) (pos uint32, early, ok bool) {
	r := &s.retain
	for {
		f, ok := r.queue.first()
		early := ok && !r.over(f, now)
		if !ok || early && !r.crowded() {
			return 0, false, false
		}
		pos, ok := s.byID.find(f.id)
		ok = ok && s.slots[pos].finished == f.at
		if ok && (r.keeps(pos) || !early && s.awaited(pos)) {
			return 0, false, false
		}
		r.queue.pop()
		if ok {
			return pos, early, true
		}
	}
}

// awaited reports whether a subscriber waits for what the task at a position published.
func (s *store) awaited(pos uint32) bool {
	if len(s.events.domain.subscriptions) == 0 {
		return false
	}
	h, err := readTaskHead(s.slots[pos].line.text())
	return err == nil && s.events.domain.awaited(s.template(h.template), h.lastSeq)
}

// retainUpTo sets the limits of a store that was just opened. The quotas, for tasks and
// for what arrives, are shared with others.
func (s *store) retainUpTo(l limits, memory, arriving *quota) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retain.limits, s.retain.memory, s.retain.arriving = l, memory, arriving
	memory.used.Add(s.retain.bytes)
	s.retain.queue = s.finishedInOrder()
}

// dropDue drops one batch of the tasks beyond the limits. It returns when to
// call it again; 0 means never.
func (s *store) dropDue(now instant) (next instant, err error) {
	more, err := s.dropSome()
	switch {
	case err != nil:
		return now.add(dropRetry), err
	case more:
		return now, nil
	}
	return s.nextDue(now), nil
}

// dropSome drops one batch of tasks, and reports whether there may be more to
// drop.
func (s *store) dropSome() (more bool, err error) {
	_, err = s.update(func(c *change) error {
		more = c.dropFinished(dropBatch)
		return nil
	})
	return more, err
}

// finishedInOrder returns the finished tasks, the first to finish first.
func (s *store) finishedInOrder() (q finishedQueue) {
	q.items = make([]finishedTask, 0, s.retain.finished)
	for pos := range s.slots {
		if at := s.slots[pos].finished; at != 0 {
			q.push(finishedTask{s.idLocked(uint32(pos)), at})
		}
	}
	slices.SortStableFunc(q.items, func(a, b finishedTask) int { return cmp.Compare(a.at, b.at) })
	return q
}

// nextDue returns when the task that finished first will be too old; without
// any, when one that finishes now will be; 0 without a limit on age.
func (s *store) nextDue(now instant) instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retain.age == 0 {
		return 0
	}
	due := now.add(s.retain.age)
	if f, ok := s.retain.queue.first(); ok {
		due = min(due, f.at.add(s.retain.age))
	}
	return max(due, now+1)
}

// holdLocked keeps every task, at its position, until eachLine has passed it or until
// release.
func (s *store) holdLocked() {
	s.retain.held++
	s.retain.passed = 0
	s.packing.walks++
}

// release undoes holdLocked, and drops the tasks that had to wait for it.
func (s *store) release() {
	s.mu.Lock()
	s.retain.held--
	s.retain.passed = 0
	s.packing.walks--
	s.mu.Unlock()
	for more, err := true, error(nil); more && err == nil; {
		more, err = s.dropSome()
	}
}

// pack moves up to n tasks, if there are more than twice as many gaps as tasks,
// or a pass is running.
func (s *store) pack(n int) {
	p := &s.packing
	if p.walks > 0 {
		return
	}
	if !p.on {
		if p.holes <= p.floor+2*s.byID.count {
			return
		}
		p.on, p.from, p.to = true, 0, 0
	}
	for work := 0; work < n*packLook; work++ {
		switch {
		case int(p.from) == len(s.slots):
			s.endPacking()
			return
		case s.slots[p.from].vacant():
		case p.from == p.to:
			p.to++
		default:
			s.relocate(p.from, p.to)
			p.to++
			work += packLook - 1
		}
		p.from++
	}
}

// endPacking gives up the positions above the highest task.
func (s *store) endPacking() {
	p := &s.packing
	p.holes -= len(s.slots) - int(p.to)
	p.on = false
	s.slots = s.slots[:p.to]
	if cap(s.slots) > 4*len(s.slots)+p.floor {
		s.slots = slices.Clone(s.slots)
	}
	s.index.trim()
}

// relocate moves a task to a lower position, with no task between the two.
func (s *store) relocate(from, to uint32) {
	sl := s.slots[from]
	s.slots[to], s.slots[from] = sl, slot{}
	if sl.live != nil {
		sl.live.pos = to
	}
	s.byID.move(s.idLocked(to), from, to)
	s.index.relocate(from, to, sl.in, s.labelsOf(from, sl))
}

// idTable finds the position of a task by its id. It holds hashes instead of ids: only a position whose
// task has the hash is looked at. It grows a part at a time, so that no insertion takes long.
type idTable struct {
	parts [256]idPart // by the upper bits of the hash
	count int
	idAt  func(pos uint32) uuid
}

// idPart is a hash table with linear probing. A cell has the lower half of a hash, then the position plus one;
// zero is an empty cell.
type idPart struct {
	cells []uint64
	count int
}

var idSeed = maphash.MakeSeed()

// part returns the part of an id, and the upper half of its cell. Ids that differ only in the bits of
// idsNear, such as those of tasks created one after the other, get neighbouring cells: a start finds these in the
// same cache lines.
func (t *idTable) part(id uuid) (p *idPart, hash uint64) {
	last := uint64(id[15]) | uint64(id[14])<<8&idsNear
	id[14], id[15] = id[14]&^(idsNear>>8), 0
	h := maphash.Bytes(idSeed, id[:])&^idsNear | last
	return &t.parts[h>>56], h << 32
}

const idsNear = 1<<9 - 1 // masks the bits of an id that the hash keeps as they are

// seek returns the index of a cell with a hash and a position for which f returns true, or else that of the
// empty cell in its place.
func (p *idPart) seek(hash uint64, f func(pos uint32) bool) (i int, found bool) {
	for i = int(hash>>32) & (len(p.cells) - 1); p.cells[i] != 0; i = (i + 1) & (len(p.cells) - 1) {
		if c := p.cells[i]; c>>32 == hash>>32 && f(uint32(c)-1) {
			return i, true
		}
	}
	return i, false
}

// find returns the position of the task with an id.
func (t *idTable) find(id uuid) (pos uint32, ok bool) {
	p, hash := t.part(id)
	if p.count == 0 {
		return 0, false
	}
	i, ok := p.seek(hash, func(pos uint32) bool { return t.idAt(pos) == id })
	if !ok {
		return 0, false
	}
	return uint32(p.cells[i]) - 1, true
}

// add adds an id that the table does not have.
func (t *idTable) add(id uuid, pos uint32) {
	p, hash := t.part(id)
	p.reserve(p.count + 1)
	p.put(hash | uint64(pos+1))
	p.count++
	t.count++
}

func (p *idPart) put(cell uint64) {
	i, _ := p.seek(cell, func(uint32) bool { return false })
	p.cells[i] = cell
}

// reserve makes room for so many ids.
func (t *idTable) reserve(ids int) {
	for i := range t.parts {
		t.parts[i].reserve(ids / len(t.parts))
	}
}

func (p *idPart) reserve(ids int) {
	if n := len(p.cells); ids <= n/4*3 {
		return
	}
	old := p.cells
	p.cells = make([]uint64, max(8, 1<<bits.Len(uint(ids+ids/3))))
	clear(p.cells) // writes every page now: one that was only read would fault again at its first write
	for _, c := range old {
		if c != 0 {
			p.put(c)
		}
	}
}

// move notes that the task with an id has moved.
func (t *idTable) move(id uuid, from, to uint32) {
	p, hash := t.part(id)
	i, _ := p.seek(hash, func(pos uint32) bool { return pos == from })
	p.cells[i] = hash | uint64(to+1)
}

// remove removes an id. Cells after it move to where they are found.
func (t *idTable) remove(id uuid) {
	p, hash := t.part(id)
	if p.count == 0 {
		return
	}
	i, ok := p.seek(hash, func(pos uint32) bool { return t.idAt(pos) == id })
	if !ok {
		return
	}
	last := len(p.cells) - 1
	for j := (i + 1) & last; p.cells[j] != 0; j = (j + 1) & last {
		if home := int(p.cells[j]>>32) & last; (j-home)&last >= (j-i)&last {
			p.cells[i], i = p.cells[j], j
		}
	}
	p.cells[i] = 0
	p.count--
	t.count--
}

// keepRequests sets how long the requests of a store that was just opened are kept.
func (s *store) keepRequests(l requestLimits) {
	s.locked(func() { s.requests.limit(l, s.clock.now()) })
}

// beginRequest marks a request as being answered, until endRequest is called
// with the flight. If an earlier request with the key was answered, it returns
// the task which that created instead, or why it cannot.
func (s *store) beginRequest(m requestMark) (earlier uuid, flight *requestMark, err error) {
	if m == (requestMark{}) {
		return earlier, nil, nil
	}
	s.mu.Lock()
	x, now := s.requests, s.clock.now()
	x.forget(now)
	other, gone := x.flights[m.key], x.dropped[m.key]
	id, done := x.tasks[m.key]
	var kept slot
	switch {
	case other != nil:
	case done:
		pos, _ := s.byID.find(id)
		kept = s.slots[pos] // a task's creation never changes
	case gone != nil && !x.expired(gone.at, now):
	default:
		flight = &m
		x.flights[m.key] = flight
	}
	s.mu.Unlock()
	switch {
	case flight != nil:
	case other != nil && *other != m, other == nil && !done && gone.requestMark != m:
		err = otherBody()
	case other != nil:
		err = &failure{kind: conflict, retryAfter: flightRetryTime,
			message: "the first request with this Idempotency-Key is still being answered"}
	case done:
		earlier, err = kept.madeBy(m)
	default:
		err = droppedTask(gone.task)
	}
	return earlier, flight, err
}

// endRequest lets later requests with the key find this one's task. After a
// reset a flight may be unknown; it is ignored then.
func (s *store) endRequest(flight *requestMark) {
	if flight == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests.flights[flight.key] == flight {
		delete(s.requests.flights, flight.key)
	}
}

// writeRequests passes the lines of those of the dropped requests that are still kept to
// add, without their closing braces.
func (s *store) writeRequests(dropped []*droppedRequest, add func(line []byte) error) error {
	var buf []byte
	for batch := range slices.Chunk(dropped, snapshotBatch) {
		s.locked(func() {
			batch = slices.DeleteFunc(slices.Clone(batch), func(d *droppedRequest) bool { return !s.requests.holds(d) })
		})
		for _, d := range batch {
			c := memberCoder{b: append(buf[:0], '{')}
			d.members(&c)
			if err := add(c.b); err != nil {
				return err
			}
			buf = c.b
		}
	}
	return nil
}

// writeTemplates passes every template's line to add, without its closing
// brace.
func (s *store) writeTemplates(add func(line []byte) error) error {
	var buf []byte
	for _, tpl := range s.allTemplates() {
		buf = append(append(buf[:0], `{"hash":"`...), tpl.hash...)
		buf = append(append(buf, `","definition":`...), tpl.json...)
		if err := add(buf); err != nil {
			return err
		}
	}
	return nil
}

// allTemplates returns all templates that tasks refer to, sorted by hash.
func (s *store) allTemplates() []*template {
	s.templatesMu.RLock()
	defer s.templatesMu.RUnlock()
	all := make([]*template, 0, len(s.templates))
	for _, t := range s.templates {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *template) int { return cmp.Compare(a.hash, b.hash) })
	return all
}

// lineBatch appends the lines of the tasks at positions from up to to, under the
// lock, or of the first of these. It returns the position to go on from.
func (s *store) lineBatch(lines []shortLine, from, to int) ([]shortLine, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retain.passed = from
	for took := 0; from < to && took < lineBatchBytes; from++ {
		line := s.slots[from].line
		if live := s.slots[from].live; live != nil {
			line = live.appendTaskLine(nil)
		}
		if line != nil {
			lines = append(lines, line)
			took += len(line)
		}
	}
	return lines, from
}

// keepTasks adds the tasks at positions from up to to, under the lock, and returns to.
func (s *store) keepTasks(cut *stateCut, from, to int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pos := from; pos < to; pos++ {
		switch sl := &s.slots[pos]; {
		case sl.live != nil:
			l := s.logLocked(uint32(pos))
			cut.tasks = append(cut.tasks, keptTask{live: &l})
		case sl.line != nil:
			cut.tasks = append(cut.tasks, keptTask{line: sl.line})
		}
	}
	return to
}

// writeTasks passes every task as it was at the cut to add.
func (s *store) writeTasks(cut *stateCut, add func(line []byte) error) error {
	for i := range cut.tasks {
		line, err := s.lineAt(&cut.tasks[i], cut.seq)
		if err != nil {
			return err
		}
		cut.tasks[i] = keptTask{}
		if err := add(line[:len(line)-1]); err != nil {
			return err
		}
	}
	return nil
}

// lineAt returns the line of a task without the records after a sequence. The task was
// created by then.
func (s *store) lineAt(k *keptTask, seq uint64) ([]byte, error) {
	l := k.live
	if l == nil {
		line := k.line.text()
		h, err := readTaskHead(line)
		if err != nil || h.lastSeq <= seq {
			return line, err
		}
		l = &taskLog{id: h.id, tpl: s.template(h.template), log: h.log[1 : len(h.log)-1]}
	}
	log, err := logUpTo(l.log, seq)
	if err != nil {
		return nil, err
	}
	t, err := replayRecords(l.id, l.tpl, log, unobserved{})
	if err != nil {
		return nil, err
	}
	return t.appendTaskLine(nil), nil
}

// keptTemplates returns the templates of the tasks, by hash.
func (s *store) keptTemplates() map[string]*template {
	s.templatesMu.RLock()
	defer s.templatesMu.RUnlock()
	return maps.Clone(s.templates)
}
