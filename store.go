package main

// The store family: every task in memory, its indexes, and the files on disk. It may use tasks and analytics; it does
// not know the engine, services, HTTP, or who asks. Only this family uses the store's fields and takes its lock: others
// call its methods. A change goes through update: decide under the lock, append to the journal, apply. Callers get
// copies, or lines that never change.
//
//	store.go            the store: its lock, changes, and the waiting for changes
//	store_acts.go       acts of operators
//	store_view.go       tasks as they were at a moment (keptTask), and the memory for copies
//	store_table.go      the table of tasks in the order of creation (slotTable), walks and cuts
//	store_index.go      what lists find tasks by (taskIndex): filters, labels
//	store_list.go       pages of tasks in order
//	store_find.go       finding tasks by values, errors, a part of an id
//	store_failures.go   failing steps by failure group
//	store_letters.go    dead letters in their queue, and figures
//	store_waiters.go    waiters for a task
//	store_requests.go   repeated requests: the tasks of Idempotency-Keys
//	store_retention.go  retention: which finished tasks are kept
//	store_events.go     the newest events, their followers
//	store_publish.go    domain events, subscriptions, deliveries
//	store_journal.go    the journal: the file of the store, its status
//	store_commit.go     group commit: the flusher writes the records of many with one sync
//	store_space.go      space for the journal
//	store_disk.go       the operations on files: open, rename, sync; the lock of the directory
//	store_format.go     the format of the lines; the short logs of ended tasks
//	store_lives.go      lives of the store, and what they make of numbers
//	store_read.go       reading the lines: storeReader, badRecord, outside lines; store check
//	store_restore.go    the restorer makes tasks of their lines and records
//	store_compact.go    compaction beside the running service; the cut: the state as of one moment, and its export
//	store_import.go     import of a state, salvage

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// outcomeRetryEvery is how often a change that must be made is tried again, in real
// time, while the store refuses changes.
const outcomeRetryEvery = time.Second

// store holds all tasks, everything derived from them, and the journal of their changes.
type store struct {
	clock   clock
	ids     *idSource // of new steps
	log     *slog.Logger
	journal *journal
	watch   observer      // notified of transitions under mu; set before the first update
	lives   lives         // of the processes that wrote the records; not changed once the store is open
	full    chan struct{} // holds a token when a compaction is due
	carried clockState    // the clock of the state that the store began with

	mu        sync.Mutex    // guards what follows, also inside of the parts; each change is made whole under it
	seq       uint64        // of the newest record
	scratch   []byte        // the members of that record
	tasks     slotTable     // every task, and how it is found
	analytics *analytics    // what happened, counted by hour
	dead      storedLetters // the entries of the dead letter queue
	waiters   waiters       // requests that wait for a task
	events    eventLog      // the newest transitions
	requests  *requestIndex // tasks by the requests that created them
	retain    retention     // which finished tasks are kept

	templates taskTemplates // has a lock of its own
}

// newStore returns an empty store without a journal.
func newStore(c clock, log *slog.Logger) *store {
	s := &store{
		clock:     c,
		log:       log,
		analytics: newAnalytics(),
		templates: taskTemplates{byHash: map[string]*template{}},
		full:      make(chan struct{}, 1),
		watch:     unobserved{},
		events: eventLog{
			eventRing: eventRing{keep: defaultKeptEvents}, closed: make(chan struct{}),
		},
	}
	s.tasks = slotTable{
		byID: map[uuid]*slot{}, identities: map[identityKey]uuid{}, byStep: map[uuid]uuid{}, index: newTaskIndex(s.retain.resize), goneFloor: 1024,
	}
	s.events.store, s.events.domain.store, s.retain.store = s, s, s
	s.events.domain.keep, s.events.domain.drops = defaultKeptEvents, s.events.domain.overtake
	s.dead = storedLetters{mu: &s.mu, tasks: &s.tasks, byID: map[uuid]*dlqRow{}}
	s.waiters = waiters{mu: &s.mu, tasks: &s.tasks, byTask: map[uuid][]*waiter{}}
	s.requests = newRequestIndex()
	s.requests.mu, s.requests.clock, s.requests.resize = &s.mu, c, s.retain.resize
	return s
}

// openStore reads the files of a directory and opens them for writing.
// keepEvents is how many transitions the event log keeps.
func openStore(o journalOptions, keepEvents int, c clock, log *slog.Logger) (*store, error) {
	s := newStore(c, log)
	s.events.keep, s.events.domain.keep = keepEvents, keepEvents
	o.key = cmp.Or(o.key, newFailureKey())
	s.tasks.index.key = o.key
	l := &restorer{s: s}
	j, err := openJournal(o, l)
	if err != nil {
		return nil, err
	}
	s.journal = j
	if j.reader != nil {
		if err := l.finish(j.reader); err != nil {
			return nil, errors.Join(err, j.close())
		}
		j.reader = nil
	}
	if s.beginLife(o.seed); !o.memory {
		j.groups.beginLife(s.lives[len(s.lives)-1])
	}
	return s, nil
}

func (s *store) taskTemplates() *taskTemplates { return &s.templates }

// change is one update of the store, under its lock.
type change struct {
	s   *store
	now instant
	one [4]*task // room for the usual case
	set []*task  // the tasks that were changed
}

// update (hot path: BenchmarkDiamond) calls decide under the lock. decide either returns an error before its
// first append, or appends records. The sequence returned covers everything
// that decide may have seen: waiting for it makes the answer durable.
func (s *store) update(decide func(c *change) error) (uint64, error) {
	s.journal.makeRoom(0)
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

// unlocked calls f with the lock released; the caller holds the lock before and after.
func (s *store) unlocked(f func()) {
	s.mu.Unlock()
	defer s.mu.Lock()
	f()
}

// updateLocked is update for callers that hold the lock. Nothing may wait under it, so a caller that
// takes it for a change calls the journal's makeRoom first.
func (s *store) updateLocked(decide func(c *change) error) error {
	if err := s.journal.reserve(0); err != nil {
		return err
	}
	c := change{s: s, now: s.clock.now()}
	c.set = c.one[:0]
	c.introduce()
	err := decide(&c)
	// Once for each task, although decide may have appended many records about it, and also after
	// an error: what was appended before it counts.
	for _, t := range c.set {
		s.reindex(t)
		s.waiters.notifyTask(t)
	}
	if err == nil {
		c.dropFinished(dropsPerUpdate)
	}
	if s.journal.compactionDue() {
		offerToken(s.full)
	}
	return err
}

// reindex brings the indexes up to date with a changed task, and replaces a task
// that is over by its header and its log.
func (s *store) reindex(t *task) {
	sl := s.tasks.slotOf(t)
	s.dead.update(t, sl.trouble)
	before := sl.bytes()
	if sl.live == nil || t.state.ended() { // see slot
		sl = new(*sl)
	}
	sl.taskHeader = t.taskHeader
	s.retain.keepFinish(sl)
	if t.state.ended() {
		sl.log, sl.live = shortenIn(&s.tasks.room, t.log), nil
	} else {
		t.weight = t.weigh()
		sl.live, sl.log = t, nil
	}
	s.tasks.replace(sl)
	s.retain.resize(sl.bytes() - before)
}

// task finds a task to be changed. A task that is over becomes live again only when a record is appended to it.
func (c *change) task(id uuid) (*task, error) {
	sl, ok := c.s.tasks.find(id)
	if !ok {
		return nil, taskNotFound(id)
	}
	// A task that an earlier record of this change made live again gets its slot back only at the end.
	for _, t := range c.set {
		if t.id == id {
			return t, nil
		}
	}
	return c.s.tasks.taskOf(sl)
}

func taskNotFound(id uuid) error { return failf(taskMissing, "task %s not found", id) }

// create appends the record of a new task, after the record of its template if that is new to the store.
func (c *change) create(r *record, tpl *template) (*task, error) {
	s := c.s
	if err := s.journal.reserve(s.templates.extraOf(r.created, tpl)); err != nil {
		return nil, err
	}
	// The record of the template comes first: a start reads records in order, and the creation refers to it.
	if known := s.templates.find(tpl.hash); known != nil {
		tpl = known // tasks of one definition share one value
	} else {
		c.write(&record{kind: recTemplate, hash: tpl.hash, definition: tpl.json})
		s.templates.keep(tpl)
	}
	c.write(r)
	t := newTask(r, tpl)
	s.tasks.insert(&slot{live: t, taskHeader: t.taskHeader}, r.created)
	s.requests.insert(r.created.request, t.id, r.at)
	return t, c.fold(t, r)
}

// append (hot path: BenchmarkDiamond) journals a record about a task and applies it.
func (c *change) append(t *task, r *record) error {
	r.task = t.id
	if n := t.newIDs(r); n > 0 {
		// Into the record, because apply must not choose ids: a start has to give the steps the same ones.
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
	s.journal.groups.append(r.seq, s.scratch)
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

// apply applies a record, whose members are in scratch, to its task, and notifies everything that follows live tasks.
func (s *store) apply(t *task, r *record) error {
	t.appendLog(r.seq, s.scratch)
	s.startRecord(t, r)
	if err := t.apply(r, s); err != nil {
		return err
	}
	if !r.ids.isZero() || t.plan != nil && r.kind == recCreated {
		s.tasks.noteID(t.lastID)
	}
	t.compactLog()
	return nil
}

// liveLocked returns an unfinished task, or nil.
func (s *store) liveLocked(id uuid) *task {
	if sl, ok := s.tasks.find(id); ok {
		return sl.live
	}
	return nil
}

// taskOfStep returns the task whose creation names a step's id, or whose id is just below it, as for
// declared steps. It does not check that the task has the step.
func (s *store) taskOfStep(id uuid) (task uuid, ok bool) {
	most := s.templates.mostIDs()
	s.mu.Lock()
	defer s.mu.Unlock()
	if task, ok = s.tasks.byStep[id]; ok {
		return task, true
	}
	// Ids of declared steps follow that of their task.
	for n := 1; n <= most; n++ {
		task = id.plus(-n)
		if _, found := s.tasks.find(task); found {
			return task, true
		}
	}
	return uuid{}, false
}

// startRecord, taskMoved and stepMoved notify everything that follows live tasks.
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
		s.tasks.index.steps[from]--
	}
	s.tasks.index.steps[to]++
	s.tasks.noteFailures(t, i, from, to)
	if to == stepEnqueuedAsError || to == stepInError && from != stepEnqueuedAsError { // or nobody answered
		s.tasks.fail(s.tasks.slotOf(t), errorTextOf(t.steps[i].last.err))
	}
	if !s.events.maker.quiet {
		s.events.append(s.events.maker.stepMove(t, i, from, to, at))
	}
	s.events.domain.publish(t, i, from, to, at, s.events.maker.seq)
	s.analytics.stepMoved(t, i, from, to, at)
	s.watch.stepMoved(t, i, from, to, at)
}

// close makes everything written durable and releases the directory.
func (s *store) close() error {
	s.locked(s.retain.giveBack)
	return s.journal.close()
}

// What other families ask of the store. Its parts have their own methods for this, which take its lock.

// table returns the table of tasks, for a caller that holds the lock.
func (s *store) table() *slotTable { return &s.tasks }

func (s *store) letters() *storedLetters    { return &s.dead }
func (s *store) waiting() *waiters          { return &s.waiters }
func (s *store) requestKeys() *requestIndex { return s.requests }
func (s *store) eventLog() *eventLog        { return &s.events }
func (s *store) subscribers() *domainLog    { return &s.events.domain }
func (s *store) retention() *retention      { return &s.retain }

// disk returns the journal, to be asked whether there is room on the disk, and time.
func (s *store) disk() *journal { return s.journal }

// size returns the number of tasks and the sequence of the newest record.
func (s *store) size() (tasks int, records uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tasks.byID), s.seq
}

// seqLocked returns the sequence of the newest record.
func (s *store) seqLocked() uint64 { return s.seq }

// attach sets the source of ids for new steps and the observer of transitions, before the first update.
func (s *store) attach(ids *idSource, watch observer) {
	ids.observe(s.tasks.lastID)
	s.ids, s.watch = ids, watch
	s.analytics.live = minuteOf(s.clock.now())
}

// numbers returns the lives of the store, with which the numbers of records leave the service.
func (s *store) numbers() lives { return s.lives }

// readNumber reads such a number; see lives.number.
func (s *store) readNumber(text string) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lives.number(text, s.seq)
}

// status returns the state of the files.
func (s *store) status() journalStatus { return s.journal.status() }

// storeLoad holds the figures of the store for the metrics.
type storeLoad struct {
	stateCounts
	waiting int    // requests that wait for a task
	dropped uint64 // finished tasks dropped since the store was first made
	early   uint64 // tasks dropped since the start only for lack of memory
	letters [dlqReasons][dlqStatuses]int
}

func (s *store) loadLocked() storeLoad {
	return storeLoad{s.tasks.counts(), s.waiters.count, s.retain.dropped, s.retain.early, s.dead.counts}
}

// duplicate returns the task that already has this identity.
func (c *change) duplicate(identity identityKey) (id uuid, ok bool) {
	id, ok = c.s.tasks.identities[identity] // the zero identity is never in the map
	return id, ok
}

// await returns a waiter for states of a task that this change creates.
func (c *change) await(t *task, wants stateSet) *waiter {
	return c.s.waiters.join(t.id, wants, t.state)
}

func (c *change) letter(id uuid) (dlqRow, bool) {
	if r := c.s.dead.byID[id]; r != nil {
		return *r, true
	}
	return dlqRow{}, false
}

// Waiting for the disk: an answer that describes tasks, whether a success, a refusal or a
// view, is given only once everything that it reveals is durable.

// wait returns once everything up to a sequence is durable.
func (s *store) wait(ctx context.Context, seq uint64) error { return s.journal.wait(ctx, seq) }

// waitAll returns once every change made so far is durable.
func (s *store) waitAll(ctx context.Context) error {
	_, seq := s.size()
	return s.wait(ctx, seq)
}

// lastSeqOf returns the sequence of the newest change of a task. If there is no such task, that is the newest of
// all, which may have dropped it.
func (s *store) lastSeqOf(id uuid) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq := s.seq
	if sl, ok := s.tasks.find(id); ok {
		seq = s.lastSeqLocked(sl)
	}
	return seq
}

// lastSeqLocked returns the sequence of the newest record of the task in a slot, or 0 if everything is durable.
func (s *store) lastSeqLocked(sl *slot) uint64 {
	if s.journal.groups.durable() >= s.seq {
		return 0
	}
	return sl.lastSeq
}

// refuse returns a refusal once everything that it may reveal is durable.
func (s *store) refuse(ctx context.Context, refusal error) error {
	if refusedForNow(refusal) {
		return refusal // it describes no task
	}
	return cmp.Or(s.waitAll(ctx), refusal)
}

// viewAfter returns a view of a task that was just changed, by the record with a sequence, once that and everything in
// the view are durable. A task dropped since, which happens if very few are kept, is returned as it was at its end.
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
