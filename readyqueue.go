package main

// The ready queue: steps that wait for a slot, best first.

import "container/heap"

// readyItem is a step that waits for a slot.
type readyItem struct {
	task *task
	step int
	seq  uint64 // order of becoming ready
	web  bool
}

// readyQueue is a heap: highest priority first, then the oldest task, then the
// step that became ready first.
type readyQueue struct {
	items []readyItem
	seq   uint64
}

func (q *readyQueue) Len() int { return len(q.items) }
func (q *readyQueue) Less(i, j int) bool {
	a, b := &q.items[i], &q.items[j]
	if a.task.by.priority != b.task.by.priority {
		return a.task.by.priority > b.task.by.priority
	}
	if a.task.seq != b.task.seq {
		return a.task.seq < b.task.seq
	}
	return a.seq < b.seq
}
func (q *readyQueue) Swap(i, j int) { q.items[i], q.items[j] = q.items[j], q.items[i] }
func (q *readyQueue) Push(x any)    { q.items = append(q.items, x.(readyItem)) }
func (q *readyQueue) Pop() any {
	last := len(q.items) - 1
	it := q.items[last]
	q.items[last] = readyItem{}
	q.items = q.items[:last]
	return it
}

// pushLocked queues an enqueued step for its kind of slot, or for outside actors.
func (e *engine) pushLocked(t *task, i int) {
	g := e.targetLocked(t, i)
	if g.kind == outsideActor {
		e.queueOutsideLocked(t, i)
		e.causes.awaitsActor(t, i)
		return
	}
	if t.steps[i].queued {
		return
	}
	e.requeueLocked(readyItem{task: t, step: i, web: g.kind == httpHandler})
}

func (e *engine) requeueLocked(it readyItem) {
	it.task.steps[it.step].queued = true
	q := &e.local
	if it.web {
		q = &e.http
	}
	if it.seq == 0 {
		q.seq++
		it.seq = q.seq
	}
	heap.Push(q, it)
}

// nextLocked takes the best ready step for which a slot is free.
func (e *engine) nextLocked() (readyItem, bool) {
	q := &e.local
	if q.Len() == 0 || e.slots <= 0 {
		q = &e.http
		if q.Len() == 0 || e.webSlots <= 0 {
			return readyItem{}, false
		}
	}
	return heap.Pop(q).(readyItem), true
}

// queued is how many steps wait for a slot.
func (e *engine) queuedLocked() int { return e.local.Len() + e.http.Len() }
