package main

// Ready steps: the order in which they wait for slots, the slots for each kind of handler, and
// the gate that bounds the parallel instances of a batch worker.

// The queues of ready steps.

// rank is the place of a ready step among others, whoever is to run it.
type rank struct {
	priority int
	created  uint64 // the task's place in the order of creation
	seq      uint64 // order of becoming ready
}

// before orders the highest priority first, then the oldest task, then the step
// that became ready first.
func (r rank) before(o rank) bool {
	switch {
	case r.priority != o.priority:
		return r.priority > o.priority
	case r.created != o.created:
		return r.created < o.created
	}
	return r.seq < o.seq
}

// place returns the place of a step in the order of creation: that of its task, or if it has
// yielded, behind all tasks that existed then, so that it does not keep them waiting.
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

// slotPool holds the slots for handlers of a kind, and the steps that wait for one.
type slotPool struct {
	what  string // what runs in the slots, for messages
	size  int    // all slots
	free  int
	ready priorityQueue[readyStep]

	loggedShort bool // the log last said that steps wait for slots
	loggedAt    instant
}

func newSlotPool(what string, size int) slotPool {
	before := func(a, b readyStep) bool { return a.before(b.rank) }
	return slotPool{what: what, size: size, free: size, ready: priorityQueue[readyStep]{before: before}}
}

// startable reports whether a step is ready for a slot that is free.
func (p *slotPool) startable() bool { return len(p.ready.items) > 0 && p.free > 0 }

// enqueueLocked queues an enqueued step for its kind of slot, or for outside actors.
func (e *engine) enqueueLocked(t *task, i int) {
	if !e.admitLocked(t, i) {
		return
	}
	g := e.targetLocked(t, i)
	if g.kind == outsideActor && (e.substitute == nil || !e.substitute.mayPlay(t, i)) {
		e.offerLocked(t, i)
		e.causes.awaitsActor(t, i)
		return
	}
	if t.steps[i].queued {
		return
	}
	e.readied++
	e.requeueLocked(readyStep{rank{t.by.priority, t.place(i), e.readied}, t, i, e.pool(g.kind)})
}

// Batches: how many instances of a batch worker run at once.

// batchGate lets instances of one batch worker of a task into the queues.
type batchGate struct {
	admitted map[int]bool // instances that are queued, offered or in progress
	waiting  bitset       // enqueued ones, by step
}
