package main

// Retention: how many finished tasks are kept, and for how long. A task is finished when it is over
// and has no pending entry in the dead letter queue. The tasks that finished first are dropped first.
// A drop is a record like any other change; the figures keep counting dropped tasks.

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
	count int           // finished tasks to keep, or other things
	age   time.Duration // how long to keep them
}

// memoryMargin is the part of the memory for tasks, in percent, from which on finished tasks
// are dropped although the limits would keep them.
const memoryMargin = 90

// retention is the limits and the finished tasks; the store's mutex guards it.
type retention struct {
	store *store
	limits
	finished int            // finished tasks in the store
	dropped  uint64         // tasks dropped since the store was first made
	queue    []finishedTask // in the order of finishing
	bytes    int64          // memory that the tasks take
	memory   *quota         // for the tasks of all stores; nil while the store is read
	early    uint64         // tasks dropped for lack of memory alone, since the start
	warned   instant        // of the last warning about that
}

// finishedTask is an entry of the queue. It is void if the task was dropped or
// has another time by now, because it became live again.
type finishedTask struct {
	id uuid
	at instant
}

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

// finishedAt returns when the task finished; 0 if it is not finished.
func (h *taskHeader) finishedAt() instant {
	if !h.state.ended() {
		return 0
	}
	at := h.completed
	for i := range h.dead {
		if h.dead[i].status == dlqPending {
			return 0
		}
		at = max(at, h.dead[i].resolved)
	}
	return at
}

// keepFinish keeps when a task finished, or that it is not finished any more.
func (r *retention) keepFinish(sl *slot) {
	at := sl.finishedAt()
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
		r.queue = append(r.queue, finishedTask{sl.id, at})
	}
}

// over reports whether the task that finished first is beyond the limits.
func (r *retention) over(first finishedTask, now instant) bool {
	return r.count > 0 && r.finished > r.count || r.age > 0 && first.at.add(r.age) <= now
}

// crowded reports whether nearly all memory is taken.
func (r *retention) crowded() bool { return r.memory.used.Load() > r.memory.most/100*memoryMargin }

// earlyWarnedEvery is the least time between two warnings of tasks dropped early.
const earlyWarnedEvery = time.Hour

// droppedEarly counts a task that the limits would keep.
func (r *retention) droppedEarly(now instant) {
	r.early++
	if r.warned == 0 || now.sub(r.warned) >= earlyWarnedEvery {
		r.warned = now
		r.store.log.Warn("tasks use nearly all the memory that store.max_memory_mb allows: "+
			"finished ones are dropped earlier than retention says", "limit_bytes", r.memory.most, "dropped_early", r.early)
	}
}

// The memory that a task takes besides its texts, in bytes, as measured: the values and its entries in the indexes.
const (
	liveBytes  = 860
	stepBytes  = 280
	endedBytes = 450
	labelBytes = 10 // of a tag, a value or another label
)

// weigh returns about how much memory an unfinished task takes. Its context and results are in its log and in values.
func (t *task) weigh() int64 {
	return liveBytes + stepBytes*int64(len(t.steps)) + int64(cap(t.log)+len(t.log))
}

// bytes returns about how much memory the task takes, as of its latest change.
func (sl *slot) bytes() int64 {
	switch {
	case sl.live != nil:
		return sl.live.weight
	case sl.log != nil:
		return endedBytes + int64(len(sl.log))
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
	if m.used.Load() < m.most {
		return nil
	}
	f := m.refuse("tasks use all the memory that store.max_memory_mb allows: no task was created")
	f.kind, f.retryAfter = storeFull, retryAfterFull
	return f
}

// nextDrop returns the task to drop next, or nil, and whether only the lack of memory requires that.
func (r *retention) nextDrop(now instant) (next *slot, early bool) {
	tasks := &r.store.tasks
	for len(r.queue) > 0 {
		f := r.queue[0]
		early := !r.over(f, now)
		if early && !r.crowded() {
			break
		}
		sl, ok := tasks.find(f.id)
		ok = ok && sl.finished == f.at
		// A task that a subscriber waits for stays beyond the limits, but not when memory is short.
		if ok && !early && r.store.events.domain.awaited(sl.tpl, sl.lastSeq) {
			break
		}
		r.queue = r.queue[1:]
		if ok {
			return sl, early
		}
	}
	return nil, false
}

// dropFinished drops up to most tasks, and reports whether there may be more to drop.
func (c *change) dropFinished(most int) (more bool) {
	s := c.s
	for range most {
		sl, early := s.retain.nextDrop(c.now)
		if sl == nil {
			return false
		}
		if err := s.remove(sl); err != nil {
			s.log.Error("a finished task cannot be dropped", "task_uuid", sl.id, "error", err)
			continue // it is out of the queue, so this is logged once
		}
		c.write(&record{kind: recDropped, task: sl.id})
		if early {
			s.retain.droppedEarly(c.now)
		}
	}
	return true
}

// remove undoes insert and reindex for a finished task.
func (s *store) remove(sl *slot) error {
	by, err := sl.creation()
	if err != nil {
		return err
	}
	if s.tasks.identities[by.identity] == sl.id {
		delete(s.tasks.identities, by.identity)
	}
	for _, step := range by.steps {
		delete(s.tasks.byStep, step)
	}
	s.requests.drop(by.request, sl.id)
	s.dead.remove(sl)
	s.events.taskDropped(sl.tpl, sl.lastSeq)
	for state, n := range sl.counts {
		s.tasks.index.steps[state] -= n
	}
	s.tasks.remove(sl)
	s.waiters.releaseTask(sl.id, waitEnded, keptTask{ended: sl})
	s.retain.resize(-sl.bytes())
	s.retain.finished--
	s.retain.dropped++
	return nil
}

// keepUpTo sets the limits of a store that was just opened. The quota for tasks is shared with others.
func (r *retention) keepUpTo(l limits, memory *quota) {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.limits, r.memory = l, memory
	memory.used.Add(r.bytes)
	r.queue = r.finishedInOrder()
}

// dropDue drops one batch of the tasks beyond the limits. It returns when to call it again; 0 means never.
func (r *retention) dropDue(now instant) (next instant, err error) {
	more := false
	_, err = r.store.update(func(c *change) error {
		more = c.dropFinished(dropBatch)
		return nil
	})
	switch {
	case err != nil:
		return now.add(dropRetry), err
	case more:
		return now, nil
	}
	return r.nextDue(now), nil
}

// finishedInOrder returns the finished tasks, the first to finish first.
func (r *retention) finishedInOrder() []finishedTask {
	queue := make([]finishedTask, 0, r.finished)
	for _, sl := range r.store.tasks.slots {
		if sl != nil && sl.finished != 0 {
			queue = append(queue, finishedTask{sl.id, sl.finished})
		}
	}
	slices.SortStableFunc(queue, func(a, b finishedTask) int { return cmp.Compare(a.at, b.at) })
	return queue
}

// nextDue returns when the task that finished first will be too old; without
// any, when one that finishes now will be; 0 without a limit on age.
func (r *retention) nextDue(now instant) instant {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.age == 0 {
		return 0
	}
	due := now.add(r.age)
	if len(r.queue) > 0 {
		due = min(due, r.queue[0].at.add(r.age))
	}
	return max(due, now+1)
}

// dropRetry is how long to wait when the store accepts no change.
const dropRetry = time.Minute
