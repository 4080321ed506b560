package main

// Steps for outside actors: how an actor claims steps, at once or as soon as some
// are ready, fairly; the index of these steps; and the leases of claimed ones.

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// outsideWork holds the steps for outside actors, and the actors that wait for
// some. It is guarded by the store's lock.
type outsideWork struct {
	late sync.Mutex // held, and taken before the store's lock, while a late outcome is looked for and recorded

	waiting  claimIndex // enqueued steps; those of stopped tasks may be missing
	claimed  claimIndex // steps in progress under a lease
	leases   leaseQueue
	claimers []*claimer        // who waits for work, oldest first
	fresh    map[claimKey]bool // keys of the steps queued since the feeder last looked
	kick     chan struct{}     // holds a token when the feeder should look

	claims  uint64 // steps claimed since the start
	expired uint64 // leases that expired since then
}

func newOutsideWork() outsideWork {
	return outsideWork{
		leases: newLeaseQueue(),
		fresh:  map[claimKey]bool{},
		kick:   make(chan struct{}, 1),
	}
}

// claimRequest selects the steps that an outside actor asks for.
type claimRequest struct {
	callables  []string // a redacted callable each, or with a final * all that begin with the rest
	namespaces []string // nil for any
	limit      int
	lease      time.Duration
	wait       time.Duration // how long to wait for the first step, in real time
	worker     string
	subject    string // the authenticated caller, or ""
	tried      func() // called before the wait; nil for nothing
}

// matches reports whether the request asks for steps with a key.
func (q *claimRequest) matches(key claimKey) bool {
	if q.namespaces != nil && !slices.Contains(q.namespaces, key.namespace) {
		return false
	}
	return slices.ContainsFunc(q.callables, func(pattern string) bool { return fitsCallable(pattern, key.callable) })
}

// fitsCallable reports whether a callable matches a pattern, which may end in *.
func fitsCallable(pattern, callable string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(callable, prefix)
	}
	return pattern == callable
}

// claimedStep is a step that was given to an outside actor.
type claimedStep struct {
	key      runKey
	callable string // redacted
	attempt  *attempt
	token    string
	lease    *lease
}

// claimer waits for work.
type claimer struct {
	request *claimRequest
	given   chan claimResult // takes one value, at the end
}

// claimResult holds the steps that a claimer was given. Without steps and error its wait is over
// because the service stops.
type claimResult struct {
	steps []claimedStep
	seq   uint64 // of the record that it depends on
	err   error
}

// claimKey returns what claimers choose the step by: patterns must not find out what is
// redacted.
func (t *task) claimKey(i int) claimKey { return claimKey{t.tpl.namespace, t.def(i).shown} }

// The index of the steps for outside actors, by namespace and callable, in the
// order in which they are given out.

// claimKey holds the properties by which claimers choose steps.
type claimKey struct{ namespace, callable string } // the callable is redacted

// claimEntry is a step in an index of claims.
type claimEntry struct {
	runKey
	rank
	place int // in its queue
	key   claimKey
	queue *claimQueue
}

// claimQueue holds the steps with one key.
type claimQueue = priorityQueue[*claimEntry]

func claimedBefore(a, b *claimEntry) bool { return a.before(b.rank) }

// claimIndex holds steps in queues. Its zero value is ready to use; it keeps
// nothing of steps that left it.
type claimIndex struct {
	queues map[claimKey]*claimQueue
	steps  map[runKey]*claimEntry
	seq    uint64
}

// insert takes up a step of a task, unless the index has it.
func (x *claimIndex) insert(t *task, i int) {
	key, k := t.claimKey(i), runKey{t.id, i}
	if x.steps[k] != nil {
		return
	}
	if x.queues == nil {
		x.queues, x.steps = map[claimKey]*claimQueue{}, map[runKey]*claimEntry{}
	}
	q := x.queues[key]
	if q == nil {
		q = &claimQueue{before: claimedBefore, placed: func(o *claimEntry, place int) { o.place = place }}
		x.queues[key] = q
	}
	x.seq++
	o := &claimEntry{runKey: k, rank: rank{t.by.priority, t.place(i), x.seq}, key: key, queue: q}
	x.steps[k] = o
	q.push(o)
}

// remove drops a step, if the index has it.
func (x *claimIndex) remove(k runKey) {
	o := x.steps[k]
	if o == nil {
		return
	}
	delete(x.steps, k)
	o.queue.remove(o.place)
	if len(o.queue.items) == 0 {
		delete(x.queues, o.key)
	}
}

// walk calls f for the steps whose keys match, in order, until f returns false.
// It looks at every key, at the steps that it passes, and for each of these at the
// two below it in its queue's heap. f must not change the index.
func (x *claimIndex) walk(matches func(claimKey) bool, f func(o *claimEntry) bool) {
	next := claimQueue{before: claimedBefore}
	for key, q := range x.queues {
		if matches(key) {
			next.push(q.items[0])
		}
	}
	for len(next.items) > 0 {
		o := next.pop()
		if !f(o) {
			return
		}
		for child := 2*o.place + 1; child <= 2*o.place+2 && child < len(o.queue.items); child++ {
			next.push(o.queue.items[child])
		}
	}
}

// first returns the first steps whose keys match, in order.
func (x *claimIndex) first(matches func(claimKey) bool, limit int) (found []runKey) {
	x.walk(matches, func(o *claimEntry) bool {
		found = append(found, o.runKey)
		return len(found) < limit
	})
	return found
}
