package main

// Ready steps: the order in which they wait for slots, the slots for each kind of handler, and
// the gate that bounds the parallel instances of a batch worker.

import (
	"cmp"
	"slices"
)

// rank is the place of a ready step among others, whoever is to run it.
type rank struct {
	priority int
	created  uint64 // the task's place in the order of creation
	seq      uint64 // order of becoming ready
}

// before orders the highest priority first, then the oldest task, then the step that became ready first.
func (r rank) before(o rank) bool {
	return cmp.Or(cmp.Compare(o.priority, r.priority), cmp.Compare(r.created, o.created), cmp.Compare(r.seq, o.seq)) < 0
}

// place returns the place of a step in the order of creation. It is that of its task. A step that has
// yielded comes after all tasks that existed then, so that it does not keep them waiting.
func (t *task) place(i int) uint64 {
	if s := &t.steps[i]; s.redeliver && s.checkpoint != nil {
		return s.checkpoint.seq
	}
	return t.seq
}

// readyStep is a step that waits for a slot.
type readyStep struct {
	rank
	task *task
	step int
	pool *slotPool
}

// leaves marks a step that cannot run any more as queued no longer, and reports whether it did: its task was blocked, held or
// cancelled since. If the task continues, its steps are queued again.
func (s *readyStep) leaves() bool {
	if s.task.runnable(s.step) {
		return false
	}
	s.task.steps[s.step].queued = false
	return true
}

// slotPool holds the slots for handlers of a kind, and the steps that wait for one.
type slotPool struct {
	what  string // what runs in the slots, for messages
	size  int    // all slots
	free  int
	ready priorityQueue[readyStep]
}

func newSlotPool(what string, size int) slotPool {
	return slotPool{what: what, size: size, free: size, ready: newStepQueue()}
}

func newStepQueue() priorityQueue[readyStep] {
	return priorityQueue[readyStep]{before: func(a, b readyStep) bool { return a.before(b.rank) }}
}

func (p *slotPool) startable() bool { return len(p.ready.items) > 0 && p.free > 0 }

// enqueueLocked queues an enqueued step for its kind of slot, or for outside actors.
func (e *engine) enqueueLocked(t *task, i int) {
	if t.hold != nil || !e.gates.admit(t, i) {
		return
	}
	g := e.targetLocked(t, i)
	if g.kind == outsideActor && (e.hooks.substitute == nil || !e.hooks.substitute.mayPlay(t, i)) {
		e.outside.offerLocked(t, i)
		e.causes.awaitsActor(t, i)
		return
	}
	e.queues.enqueue(t, i, g.kind)
}

// maxQueued is how many steps may wait for a slot before new tasks are refused.
const maxQueued = 100_000

// readyQueues holds the steps that wait for slots, and the slots. It is guarded by the store's lock.
type readyQueues struct {
	local   slotPool // for builtins, programs and whatever else is not HTTP
	web     slotPool // for HTTP handlers
	most    int      // steps that wait for a slot; from then on new tasks are refused
	readied uint64   // how many steps were queued, ever
}

func newReadyQueues(c *workerConfig) readyQueues {
	return readyQueues{
		local: newSlotPool("builtins and programs", c.Concurrency),
		web:   newSlotPool("HTTP handlers", c.HTTPConcurrency),
		most:  maxQueued,
	}
}

func (q *readyQueues) pool(kind handlerKind) *slotPool {
	if kind == httpHandler {
		return &q.web
	}
	return &q.local
}

// enqueue queues a step for a kind of slot, unless it is in a queue.
func (q *readyQueues) enqueue(t *task, i int, kind handlerKind) {
	if t.steps[i].queued {
		return
	}
	q.readied++
	q.requeue(readyStep{rank{t.by.priority, t.place(i), q.readied}, t, i, q.pool(kind)})
}

// requeue puts a step into its queue, in its place.
func (q *readyQueues) requeue(it readyStep) {
	it.task.steps[it.step].queued = true
	it.pool.ready.push(it)
}

// next takes the best ready step for which a slot is free.
func (q *readyQueues) next() (readyStep, bool) {
	switch {
	case q.local.startable():
		return q.local.ready.pop(), true
	case q.web.startable():
		return q.web.ready.pop(), true
	}
	return readyStep{}, false
}

func (q *readyQueues) startable() bool { return q.local.startable() || q.web.startable() }

// queued returns how many steps wait for a slot.
func (q *readyQueues) queued() int { return len(q.local.ready.items) + len(q.web.ready.items) }

// Batches: how many instances of a batch worker run at once.

// batchGate lets instances of one batch worker of a task into the queues.
type batchGate struct {
	admitted map[int]bool // instances that are queued, offered or in progress
	waiting  []int        // enqueued ones, ascending
}

// batchGates are the gates of the batches that have instances which may run, by task and batch_worker
// step. They are guarded by the store's lock.
type batchGates map[runKey]*batchGate

// admit reports whether a step may be queued. An instance beyond the parallelism of
// its batch worker waits until another one leaves.
func (a batchGates) admit(t *task, i int) bool {
	b := t.def(i).batch
	if b == nil || b.parallelism == 0 {
		return true
	}
	key := runKey{t.id, t.declared(i)}
	g := a[key]
	if g == nil {
		g = &batchGate{admitted: map[int]bool{}}
		// The gate is made when its first instance is queued. After a restart or a hold, others may already run.
		for _, n := range t.plan.declared[key.step].steps {
			if t.steps[n].state == stepInProgress {
				g.admitted[n] = true
			}
		}
		a[key] = g
	}
	if len(g.admitted) >= b.parallelism && !g.admitted[i] {
		if at, waits := slices.BinarySearch(g.waiting, i); !waits {
			g.waiting = slices.Insert(g.waiting, at, i)
		}
		return false
	}
	g.admitted[i] = true
	return true
}

// leave notes that a step leaves its batch. If the step had been admitted and another instance waits, leave
// returns that one, which may now be queued.
func (a batchGates) leave(t *task, i int) (next int, ok bool) {
	if len(a) == 0 || t.plan == nil {
		return 0, false
	}
	key := runKey{t.id, t.declared(i)}
	g := a[key]
	if g == nil {
		return 0, false
	}
	if at, waits := slices.BinarySearch(g.waiting, i); waits {
		g.waiting = slices.Delete(g.waiting, at, at+1)
	}
	if !g.admitted[i] {
		return 0, false
	}
	delete(g.admitted, i)
	if len(g.waiting) > 0 {
		next, g.waiting = g.waiting[0], g.waiting[1:]
		return next, true
	}
	if len(g.admitted) == 0 {
		delete(a, key)
	}
	return 0, false
}

func (a batchGates) drop(t *task) {
	for d := range t.tpl.steps {
		delete(a, runKey{t.id, d})
	}
}

// held returns the instances that wait for other instances of their batch, with the number of
// admitted ones. t may be nil.
func (a batchGates) held(t *task) map[int]int {
	held := map[int]int{}
	if t == nil || t.plan == nil || len(a) == 0 {
		return held
	}
	for d := range t.tpl.steps {
		g := a[runKey{t.id, d}]
		if g == nil {
			continue
		}
		for _, i := range g.waiting {
			held[i] = len(g.admitted)
		}
	}
	return held
}
