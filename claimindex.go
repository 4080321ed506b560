package main

// The index of the steps that are for outside actors: those that wait for one,
// and those that one has claimed. They stand by namespace and callable, in the
// order in which they are given out.

import "container/heap"

// claimKey is what claimers choose by.
type claimKey struct{ namespace, callable string }

// outsideStep is a step that is for an outside actor.
type outsideStep struct {
	runKey
	priority int
	created  uint64 // the task's place in the order of creation
	seq      uint64 // order of becoming ready
	place    int    // in its queue
	queue    *outsideQueue
}

// before orders as the ready queue does: highest priority first, then the oldest
// task, then the step that became ready first.
func (o *outsideStep) before(p *outsideStep) bool {
	switch {
	case o.priority != p.priority:
		return o.priority > p.priority
	case o.created != p.created:
		return o.created < p.created
	}
	return o.seq < p.seq
}

// outsideQueue is a heap of the steps with one key.
type outsideQueue struct {
	key   claimKey
	steps []*outsideStep
}

func (q *outsideQueue) Len() int           { return len(q.steps) }
func (q *outsideQueue) Less(i, j int) bool { return q.steps[i].before(q.steps[j]) }
func (q *outsideQueue) Swap(i, j int) {
	q.steps[i], q.steps[j] = q.steps[j], q.steps[i]
	q.steps[i].place, q.steps[j].place = i, j
}
func (q *outsideQueue) Push(x any) {
	o := x.(*outsideStep)
	o.place = len(q.steps)
	q.steps = append(q.steps, o)
}
func (q *outsideQueue) Pop() any {
	last := len(q.steps) - 1
	o := q.steps[last]
	q.steps[last] = nil
	q.steps = q.steps[:last]
	return o
}

// outsideIndex holds steps in queues. Its zero value is ready to use; it keeps
// nothing of steps that left it.
type outsideIndex struct {
	queues map[claimKey]*outsideQueue
	steps  map[runKey]*outsideStep
	seq    uint64
}

// add takes up a step of a task, unless it is there already.
func (x *outsideIndex) add(t *task, i int) {
	key, k := t.claimKey(i), runKey{t.id, i}
	if x.steps[k] != nil {
		return
	}
	if x.queues == nil {
		x.queues, x.steps = map[claimKey]*outsideQueue{}, map[runKey]*outsideStep{}
	}
	q := x.queues[key]
	if q == nil {
		q = &outsideQueue{key: key}
		x.queues[key] = q
	}
	x.seq++
	o := &outsideStep{runKey: k, priority: t.by.priority, created: t.seq, seq: x.seq, queue: q}
	x.steps[k] = o
	heap.Push(q, o)
}

// remove drops a step, if it is there.
func (x *outsideIndex) remove(k runKey) {
	o := x.steps[k]
	if o == nil {
		return
	}
	delete(x.steps, k)
	heap.Remove(o.queue, o.place)
	if len(o.queue.steps) == 0 {
		delete(x.queues, o.queue.key)
	}
}

// walk calls f for the steps whose keys match, in order, until f returns false.
// It looks at every key, and then only at the steps that it passes and a few
// more. f must not change the index.
func (x *outsideIndex) walk(matches func(claimKey) bool, f func(o *outsideStep) bool) {
	var next outsideFront
	for key, q := range x.queues {
		if matches(key) {
			next = append(next, q.steps[0])
		}
	}
	heap.Init(&next)
	for len(next) > 0 {
		o := heap.Pop(&next).(*outsideStep)
		if !f(o) {
			return
		}
		for child := 2*o.place + 1; child <= 2*o.place+2 && child < len(o.queue.steps); child++ {
			heap.Push(&next, o.queue.steps[child])
		}
	}
}

// first is the first steps whose keys match, in order.
func (x *outsideIndex) first(matches func(claimKey) bool, limit int) (found []runKey) {
	x.walk(matches, func(o *outsideStep) bool {
		found = append(found, o.runKey)
		return len(found) < limit
	})
	return found
}

// outsideFront is where a walk through heaps has come to: a heap of the steps
// that may be next.
type outsideFront []*outsideStep

func (f outsideFront) Len() int           { return len(f) }
func (f outsideFront) Less(i, j int) bool { return f[i].before(f[j]) }
func (f outsideFront) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *outsideFront) Push(x any)        { *f = append(*f, x.(*outsideStep)) }
func (f *outsideFront) Pop() any {
	last := len(*f) - 1
	o := (*f)[last]
	*f = (*f)[:last]
	return o
}
