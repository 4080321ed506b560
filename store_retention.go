package main

// Retention: how many finished tasks are kept, and for how long. A task is
// finished when it is over and has no pending entry in the dead letter queue.
// The tasks that finished first are dropped first. A drop is a record like any
// other change; the figures keep counting dropped tasks.
//
// Requests that may be repeated are kept as well: which task each Idempotency-Key
// created. A key is kept for its time, also when retention has dropped its task. The
// keys of tasks in the store follow from the tasks; each key of a dropped task is a
// line of the snapshot:
//
//	{"request":"…","task":"…","at":…}
//
// The request is the hash of caller, route and key, then that of the body; at is when
// the task was created.

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math/bits"
	"slices"
	"time"
)

const (
	dropsPerUpdate = 8   // most drops in one change, so that all changes cost about the same
	dropBatch      = 256 // drops under one lock when there is much to drop
)

// limits are the limits of the configuration; zero means no limit.
type limits struct {
	count int           // finished tasks to keep
	age   time.Duration // how long to keep them
}

// memoryMargin is the part of the memory for tasks, in percent, from which on finished tasks
// are dropped although the limits would keep them.
const memoryMargin = 90

// retention is the limits and the finished tasks; the store's mutex guards it.
type retention struct {
	limits
	finished int           // finished tasks in the store
	dropped  uint64        // tasks dropped since the store was first made
	held     int           // running snapshots and exports
	passed   int           // one of them alone has written the tasks below this position; others stay meanwhile
	queue    finishedQueue // in the order of finishing
	bytes    int64         // memory that the tasks take
	memory   *quota        // for the tasks of all stores; nil while the store is read
	arriving *quota        // bytes of requests that may become tasks
	early    uint64        // tasks dropped for lack of memory alone, since the start
	warned   instant       // when the log last told of that
}

// finishedTask is an entry of the queue. It is void if the task was dropped or
// has another time by now, because it became live again.
type finishedTask struct {
	id uuid
	at instant
}

// finishedQueue is a queue, first in, first out.
type finishedQueue struct {
	items []finishedTask
	head  int
}

func (q *finishedQueue) push(f finishedTask) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 {
		q.items = append(q.items[:0], q.items[q.head:]...)
		q.head = 0
	}
	q.items = append(q.items, f)
}

func (q *finishedQueue) first() (finishedTask, bool) {
	if q.head == len(q.items) {
		return finishedTask{}, false
	}
	return q.items[q.head], true
}

func (q *finishedQueue) pop() { q.head++ }

func (c *storeConfig) retention() limits {
	return limits{c.RetainFinishedCount, time.Duration(c.RetainFinishedAgeHours) * time.Hour}
}

// String returns the limits as the banner shows them.
func (l limits) String() string {
	switch {
	case l.count == 0 && l.age == 0:
		return "every task is kept while store.max_memory_mb allows"
	case l.age == 0:
		return fmt.Sprintf("the last %d finished tasks are kept", l.count)
	case l.count == 0:
		return fmt.Sprintf("finished tasks are kept for %v hours", l.age.Hours())
	}
	return fmt.Sprintf("the last %d finished tasks are kept, for %v hours", l.count, l.age.Hours())
}

// finished returns when the task finished; 0 if it is not finished.
func (t *task) finished() instant { return finishedAt(t.state, t.completed, t.letterHeaders()) }

func finishedAt(state taskState, completed instant, dead []letterHeader) instant {
	if !state.ended() {
		return 0
	}
	for i := range dead {
		if dead[i].status == dlqPending {
			return 0
		}
		completed = max(completed, dead[i].resolved)
	}
	return completed
}

// note keeps when a task finished, or that it is not finished any more.
func (r *retention) note(sl *slot, id uuid, at instant) {
	switch {
	case at == sl.finished:
		return
	case sl.finished == 0:
		r.finished++
	case at == 0:
		r.finished--
	}
	sl.finished = at
	if at != 0 && r.memory != nil { // else finishedInOrder follows
		r.queue.push(finishedTask{id, at})
	}
}

// over reports whether the task that finished first is beyond the limits.
func (r *retention) over(first finishedTask, now instant) bool {
	return r.count > 0 && r.finished > r.count || r.age > 0 && first.at.add(r.age) <= now
}

// What arrives takes the memory of tasks, too: about four times its size, with its copies
// and their garbage. It counts up to a quarter, so that it cannot keep tasks out.
const (
	arrivingWeight = 4
	arrivingMost   = 4 // the part of all memory: one in so many
)

// taken returns how much of the memory is taken, in bytes.
func (r *retention) taken() int64 {
	return r.memory.used.Load() + min(arrivingWeight*r.arriving.used.Load(), r.memory.most/arrivingMost)
}

// crowded reports whether nearly all memory is taken.
func (r *retention) crowded() bool { return r.taken() > r.memory.most/100*memoryMargin }

// earlyWarnedEvery is the least time between two warnings of tasks dropped early.
const earlyWarnedEvery = time.Hour

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

// What a task takes of the memory besides its texts, in bytes, as measured: the values and its
// entries in the indexes.
const (
	liveBytes  = 600
	stepBytes  = 280
	endedBytes = 210
	labelBytes = 30 // of a tag or a correlation id in the index
)

// weigh returns about how much memory an unfinished task takes. Its context and results are in
// its log and in values.
func (t *task) weigh() int64 {
	return liveBytes + stepBytes*int64(len(t.steps)) + int64(cap(t.log)+len(t.log))
}

// bytes returns about how much memory the task takes, as of its latest change.
func (sl *slot) bytes() int64 {
	switch {
	case sl.live != nil:
		return sl.live.weight
	case sl.line != nil:
		return endedBytes + int64(len(sl.line))
	}
	return 0
}

// resize notes that the tasks take so much more memory.
func (r *retention) resize(by int64) {
	r.bytes += by
	if r.memory != nil {
		r.memory.used.Add(by)
	}
}

// giveBack gives up the memory of a store that is closed.
func (r *retention) giveBack() {
	if r.memory != nil {
		r.memory.give(r.bytes)
		r.memory = nil
	}
}

// full returns why no task can be created, or nil.
func (c *change) full() error {
	m := c.s.retain.memory
	if c.s.retain.taken() < m.most {
		return nil
	}
	f := m.refuse("tasks take all the memory that store.max_memory_mb allows: no task was created")
	f.kind, f.retryAfter = storeFull, retryAfterFull
	return f
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

// keeps reports whether a snapshot or an export still needs the task at a position.
func (r *retention) keeps(pos uint32) bool {
	return r.held > 1 || r.held == 1 && int(pos) >= r.passed
}

// dropFinished drops up to most tasks, and reports whether there may be more to
// drop.
func (c *change) dropFinished(most int) (more bool) {
	s := c.s
	for range most {
		pos, early, ok := s.nextDrop(c.now)
		if !ok {
			return false
		}
		id := s.idLocked(pos)
		if err := s.remove(pos); err != nil {
			s.log.Error("a finished task cannot be dropped", "task_uuid", id, "error", err)
			continue
		}
		c.write(&record{kind: recDropped, task: id})
		if early {
			s.droppedEarly(c.now)
		}
	}
	return true
}

// remove undoes insert and reindex for a finished task.
func (s *store) remove(pos uint32) error {
	sl := &s.slots[pos]
	h, err := readTaskHead(sl.line.text())
	if err != nil {
		return err
	}
	identity, request := h.keys()
	if s.identities[identity] == h.id {
		delete(s.identities, identity)
	}
	s.requests.drop(request, h.id, h.created)
	s.dead.remove(h.id, h.dead)
	s.events.taskDropped(s.template(h.template), h.lastSeq)
	labels := s.index.labels.held
	s.index.remove(pos, h.state, &h.counts, sl.in, s.labelsOf(pos, *sl))
	s.byID.remove(h.id)
	s.waiters.dropTask(h.id, *sl)
	s.retain.resize(labelBytes*int64(s.index.labels.held-labels) - sl.bytes())
	*sl = slot{}
	s.retain.finished--
	s.retain.dropped++
	s.packing.holes++
	s.pack(packPerDrop)
	return nil
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

// dropRetry is how long to wait when the store takes no change.
const dropRetry = time.Minute

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

// Packing: dropped tasks leave gaps among the positions. From time to time the
// tasks after them move down, a few with each drop, so that memory depends on
// what is kept, not on everything that was ever stored. The order of positions
// is the order of creation at every moment.

const (
	packFloor   = 4096 // gaps that are not worth a pass: about 128 KiB
	packPerDrop = 4    // tasks that move with each drop; each drop comes with one new task, so a pass ends
	packLook    = 64   // gaps that cost as much to pass as one task to move
)

// packing is one pass over the positions, or none; the store's mutex guards it.
type packing struct {
	floor    int    // gaps that are not worth a pass
	holes    int    // positions without a task
	walks    int    // running walks by position; nothing moves meanwhile
	on       bool   // a pass is running
	from, to uint32 // the next position to look at, and where its task moves
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

// vacant reports whether the slot has no task.
func (sl *slot) vacant() bool { return sl.live == nil && sl.line == nil }

// holdPositions keeps every task at its position until the function returned is
// called, for a walk that releases the lock in between.
func (s *store) holdPositions() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packing.walks++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.packing.walks--
	}
}

const (
	maxReplayKey    = 255         // length of an Idempotency-Key
	flightRetryTime = time.Second // when to repeat a request that came while the first was being answered

	droppedRequestBytes = 150 // what the key of a dropped task takes of the memory, about
)

// requestLimits bound how many keys are kept; zero means no limit.
type requestLimits struct {
	age   time.Duration // since the task was created
	count int           // keys of dropped tasks
}

func (c *requestsConfig) limits() requestLimits {
	return requestLimits{time.Duration(c.KeepHours) * time.Hour, c.KeepCount}
}

// requestIndex finds the task that a repeated request created. store.mu guards
// it.
type requestIndex struct {
	requestLimits
	tasks   map[replayKey]uuid            // in the store
	ages    []agedRequest                 // of these, oldest first; includes keys that were forgotten since
	dropped map[replayKey]*droppedRequest // may include keys that are too old
	order   []*droppedRequest             // as dropped; includes keys that were forgotten since
	flights map[replayKey]*requestMark    // requests that are being answered
	evicted uint64                        // keys of dropped tasks forgotten early since the start, because of their number
	resize  func(by int64)                // notes that the keys of dropped tasks take so much more memory
}

// agedRequest is a key and when it was first used.
type agedRequest struct {
	key  replayKey
	task uuid
	at   instant
}

// droppedRequest is the request that created a task which was dropped.
type droppedRequest struct {
	requestMark
	task uuid
	at   instant
}

func newRequestIndex() *requestIndex {
	return &requestIndex{
		tasks: map[replayKey]uuid{}, dropped: map[replayKey]*droppedRequest{},
		flights: map[replayKey]*requestMark{}, resize: func(int64) {},
	}
}

// agesFloor is how many keys of dropped tasks are not worth clearing.
const agesFloor = 1024

// insert remembers the request that created a task at an instant.
func (x *requestIndex) insert(m requestMark, id uuid, at instant) {
	if m == (requestMark{}) {
		return
	}
	x.forget(at)
	x.tasks[m.key] = id
	x.ages = append(x.ages, agedRequest{m.key, id, at})
	if len(x.ages) > 2*len(x.tasks)+agesFloor {
		x.clearAges()
	}
}

// clearAges drops the entries of dropped tasks.
func (x *requestIndex) clearAges() {
	x.ages = slices.DeleteFunc(slices.Clone(x.ages), func(a agedRequest) bool { return x.tasks[a.key] != a.task })
}

// expired reports whether a key first used at an instant is too old.
func (x *requestIndex) expired(at, now instant) bool { return x.age > 0 && at.add(x.age) <= now }

// forget drops the keys that are too old. It runs before each look-up, so
// nothing else needs to.
func (x *requestIndex) forget(now instant) {
	for len(x.ages) > 0 && x.expired(x.ages[0].at, now) {
		if old := x.ages[0]; x.tasks[old.key] == old.task {
			delete(x.tasks, old.key)
		}
		x.ages = x.ages[1:]
	}
	for len(x.order) > 0 && (x.expired(x.order[0].at, now) || !x.holds(x.order[0])) {
		x.forgetDropped()
	}
}

func (x *requestIndex) holds(d *droppedRequest) bool { return x.dropped[d.key] == d }

// forgetDropped forgets the key whose task was dropped first.
func (x *requestIndex) forgetDropped() {
	if first := x.order[0]; x.holds(first) {
		delete(x.dropped, first.key)
		x.resize(-droppedRequestBytes)
	}
	x.order = x.order[1:]
}

// drop notes that the task of a request, created at an instant, was dropped.
func (x *requestIndex) drop(m requestMark, id uuid, at instant) {
	if x.tasks[m.key] == id {
		delete(x.tasks, m.key)
		x.keepDropped(&droppedRequest{m, id, at})
	}
}

func (x *requestIndex) keepDropped(d *droppedRequest) {
	if x.dropped[d.key] == nil {
		x.resize(droppedRequestBytes)
	}
	x.dropped[d.key] = d
	x.order = append(x.order, d)
	x.evict()
}

// evict forgets the keys of dropped tasks beyond their number.
func (x *requestIndex) evict() {
	for x.count > 0 && len(x.dropped) > x.count {
		x.evicted += uint64(boolCount(x.holds(x.order[0])))
		x.forgetDropped()
	}
}

// limit sets the limits. Before that, nothing is forgotten.
func (x *requestIndex) limit(l requestLimits, now instant) {
	x.requestLimits = l
	x.forget(now)
	x.evict()
	tasks := make(map[replayKey]uuid, len(x.tasks)) // gives back the memory of what was forgotten
	maps.Copy(tasks, x.tasks)
	x.tasks, x.ages = tasks, slices.Clone(x.ages)
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

// droppedTask is the answer to a repeated request whose task was dropped.
func droppedTask(id uuid) *failure {
	return &failure{kind: taskDropped, extra: errorMember{"task_uuid", id},
		message: fmt.Sprintf("the first request with this Idempotency-Key created task %s, which was dropped after its end", id)}
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

// madeBy returns the id of the task in a slot, if the same request created it.
func (sl slot) madeBy(m requestMark) (uuid, error) {
	id, by, err := sl.origin()
	if err == nil && by.request != m {
		return uuid{}, otherBody()
	}
	return id, err
}

// origin returns the id of the task in a slot and its creation.
func (sl slot) origin() (uuid, *creation, error) {
	if sl.live != nil {
		return sl.live.id, sl.live.by, nil
	}
	h, err := readTaskHeader(sl.line.text())
	if err != nil {
		return uuid{}, nil, err
	}
	r, err := h.creationRecord()
	if err != nil {
		return uuid{}, nil, err
	}
	return h.id, r.created, nil
}

func otherBody() *failure {
	return &failure{kind: invalidFields, message: "the Idempotency-Key was used for a request with another body",
		details: inputProblems{{Field: "Idempotency-Key", Message: "was used for a request with another body"}}}
}

// The lines of dropped requests in snapshots and state documents.

const requestHead = `{"request":`

func (d *droppedRequest) members(c *memberCoder) {
	c.hex("request", true, d.key[:], d.body[:])
	c.id("task", &d.task)
	nonzero(c, "at", &d.at)
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

// requestLine loads such a line.
func (l *restorer) requestLine(line []byte) error {
	d := new(droppedRequest)
	var c memberCoder
	for c.again(line) {
		*d = droppedRequest{}
		d.members(&c)
	}
	if c.err == nil && (d.key == replayKey{} || d.task.isZero() || d.at == 0) {
		return errors.New("the request of a dropped task must have its hash, task and time")
	}
	l.s.requests.keepDropped(d)
	return c.err
}
