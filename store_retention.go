package main

// Retention: how many finished tasks are kept, and for how long. A task is
// finished when it is over and has no pending entry in the dead letter queue.
// The tasks that finished first are dropped first. A drop is a record like any
// other change; the figures keep counting dropped tasks.

import (
	"cmp"
	"fmt"
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
	endedBytes = 200
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
		pos, ok := s.byID[f.id]
		ok = ok && s.slots[pos].finished == f.at
		if ok && r.keeps(pos) {
			return 0, false, false
		}
		r.queue.pop()
		if ok {
			return pos, early, true
		}
	}
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
	h, err := readTaskHead(sl.line)
	if err != nil {
		return err
	}
	identity, request := h.keys()
	if s.identities[identity] == h.id {
		delete(s.identities, identity)
	}
	s.requests.drop(request, h.id, h.created)
	s.dead.remove(h.id, h.dead)
	s.events.taskDropped(h.lastSeq)
	s.index.remove(pos, h.state, &h.counts, sl.in)
	delete(s.byID, h.id)
	s.waiters.dropTask(h.id, *sl)
	s.retain.resize(-sl.bytes())
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
		if p.holes <= p.floor+2*len(s.byID) {
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
	s.byID[s.idLocked(to)] = to
	s.index.relocate(from, to, sl.in)
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
