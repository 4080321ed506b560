package main

// Steps for outside actors: how an actor claims steps, at once or as soon as some
// are ready, fairly; the index of these steps; and the leases of claimed ones.

import (
	"context"
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

// claim gives an outside actor steps, after waiting for the first one as long as
// the request says.
func (e *engine) claim(ctx context.Context, q *claimRequest) claimResult {
	c, served := &claimer{request: q, given: make(chan claimResult, 1)}, false
	err := e.inTurn(ctx, func() error {
		e.feedLocked() // those who came before
		if served = e.stopping || e.serveLocked(c); !served {
			e.outside.claimers = append(e.outside.claimers, c)
		}
		return nil
	})
	if err != nil {
		return claimResult{err: err}
	}
	if q.tried != nil {
		q.tried()
	}
	if !served && q.wait > 0 {
		wait, cancel := context.WithTimeout(ctx, q.wait)
		defer cancel()
		select {
		case got := <-c.given:
			return got
		case <-wait.Done():
		}
	}
	return e.leave(c)
}

// leave ends the claimer's wait and returns what it was given.
func (e *engine) leave(c *claimer) claimResult {
	e.store.locked(func() {
		if i := slices.Index(e.outside.claimers, c); i >= 0 {
			e.outside.claimers = slices.Delete(e.outside.claimers, i, i+1)
		}
	})
	select {
	case got := <-c.given:
		return got
	default:
		return claimResult{}
	}
}

// offerLocked offers an enqueued step to outside actors.
func (e *engine) offerLocked(t *task, i int) {
	w := &e.outside
	w.waiting.insert(t, i)
	if len(w.claimers) == 0 {
		return
	}
	w.fresh[t.claimKey(i)] = true
	e.wakeFeeder()
}

// withdrawLocked stops offering the steps of a task that ends before they
// do. They come back when the task goes on.
func (e *engine) withdrawLocked(t *task) {
	for i := range t.steps {
		if t.steps[i].state == stepEnqueued {
			e.outside.waiting.remove(runKey{t.id, i})
		}
	}
}

// claimKey returns what claimers choose the step by: patterns must not find out what is
// redacted.
func (t *task) claimKey(i int) claimKey { return claimKey{t.tpl.namespace, t.def(i).shown} }

// wakeFeeder tells the feeder to look at the claimers.
func (e *engine) wakeFeeder() { offerToken(e.outside.kick) }

// feed gives claimers what they wait for, until the engine stops.
func (e *engine) feed() {
	for range e.outside.kick {
		stopping := false
		e.store.locked(func() {
			if stopping = e.stopping; stopping || e.pacer == nil { // a pacer has its own time for claimers
				e.feedLocked()
			}
		})
		if stopping {
			return
		}
	}
}

// feedLocked gives out what became ready to those who wait, oldest first. When
// the engine stops it releases them all.
func (e *engine) feedLocked() {
	w := &e.outside
	if len(w.fresh) == 0 && !e.stopping {
		return
	}
	w.claimers = slices.DeleteFunc(w.claimers, func(c *claimer) bool {
		if e.stopping {
			c.given <- claimResult{}
			return true
		}
		for key := range w.fresh {
			if c.request.matches(key) {
				return e.serveLocked(c)
			}
		}
		return false
	})
	clear(w.fresh)
}

// serveLocked gives the claimer the steps that are ready for it, or the error that
// prevents that. It reports whether it did either.
func (e *engine) serveLocked(c *claimer) bool {
	picked := e.claimableLocked(c.request.matches, c.request.limit)
	if len(picked) == 0 {
		return false
	}
	got := claimResult{}
	got.err = e.store.updateLocked(func(ch *change) error {
		for _, k := range picked {
			given, err := e.claimLocked(ch, k, c.request)
			if err != nil {
				return err
			}
			got.steps = append(got.steps, given)
		}
		return nil
	})
	got.seq = e.store.seqLocked()
	c.given <- got
	return true
}

// claimableLocked returns the first steps that match and can be claimed, in order.
// It drops the steps of stopped tasks from the index: they come back when their
// task goes on.
func (e *engine) claimableLocked(matches func(claimKey) bool, limit int) (found []runKey) {
	var idle []runKey
	e.outside.waiting.walk(matches, func(o *claimEntry) bool {
		if t := e.store.liveLocked(o.task); t != nil && t.runnable(o.step) {
			found = append(found, o.runKey)
		} else {
			idle = append(idle, o.runKey)
		}
		return len(found) < limit
	})
	for _, k := range idle {
		e.outside.waiting.remove(k)
	}
	return found
}

// claimLocked starts an attempt by an outside actor.
func (e *engine) claimLocked(c *change, k runKey, q *claimRequest) (claimedStep, error) {
	t := e.store.liveLocked(k.task)
	token := leaseToken(t.id, e.ids.secretOf(t.stepID(k.step), e.store.seqLocked()))
	l := &lease{hash: hashLease(token), until: c.now.add(q.lease), worker: q.worker}
	err := c.append(t, &record{kind: recClaimed, step: k.step, lease: l, subject: q.subject})
	if err != nil {
		return claimedStep{}, err
	}
	e.outside.claims++
	a := e.attemptLocked(t, k.step, t.steps[k.step].attempts, true)
	e.watchLeaseLocked(t, k.step, l.until)
	return claimedStep{k, t.def(k.step).shown, a, token, l}, nil
}

// unclaim gives back steps whose claim nobody learned of: they are delivered again
// under the same attempt numbers.
func (e *engine) unclaim(given []claimedStep) {
	_, err := e.store.update(func(c *change) error {
		for _, g := range given {
			t, err := c.task(g.key.task)
			if kindOf(err) == taskMissing {
				continue // dropped meanwhile
			}
			if err != nil {
				return err
			}
			if t.steps[g.key.step].lease != g.lease {
				continue
			}
			if err := c.append(t, &record{kind: recRecovered, step: g.key.step}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && kindOf(err) != unavailable { // their leases will expire
		e.log.Error("claimed steps could not be given back", "error", err)
	}
}

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

// Leases: how long an outside actor holds a step, how it answers for the step, and what
// happens if it does not.

// heldStep is a step under a lease. The journal extends a lease for longer than the
// worker is told, so that the next extensions need no record; the lease lasts that long
// only if the service restarts.
type heldStep struct {
	runKey
	id    uuid    // the step's
	until instant // when the lease ends
	place int     // in the queue
}

// maxLeaseSlack bounds how much longer the journal extends a lease.
const maxLeaseSlack = 10 * time.Minute

// leaseSlack returns how much longer. It grows with the age of an attempt, so that
// the records of extensions stay few however long it takes.
func leaseSlack(age time.Duration) time.Duration { return min(age/4, maxLeaseSlack) }

// leaseQueue holds the steps under leases, by when their leases end.
type leaseQueue struct {
	held  priorityQueue[*heldStep]
	byID  map[uuid]*heldStep
	armed instant // when the timer fires; 0 for none
	timer *timer
}

func newLeaseQueue() leaseQueue {
	return leaseQueue{byID: map[uuid]*heldStep{}, held: priorityQueue[*heldStep]{
		before: func(a, b *heldStep) bool { return a.until < b.until },
		placed: func(h *heldStep, place int) { h.place = place },
	}}
}

// first returns the step whose lease ends first, or nil.
func (q *leaseQueue) first() *heldStep {
	if len(q.held.items) == 0 {
		return nil
	}
	return q.held.items[0]
}

// watchLeaseLocked watches the lease of a step: a new one, or the new end of one.
func (e *engine) watchLeaseLocked(t *task, i int, until instant) {
	q, id := &e.outside.leases, t.stepID(i)
	if h := q.byID[id]; h != nil {
		h.until = until
		q.held.fix(h.place)
	} else {
		h := &heldStep{runKey: runKey{t.id, i}, id: id, until: until}
		q.byID[id] = h
		q.held.push(h)
		e.outside.claimed.insert(t, i)
	}
	e.armLeasesLocked()
}

// leaveLeaseLocked forgets the lease of a step that left in_progress, if it had one.
func (e *engine) leaveLeaseLocked(t *task, i int) {
	q := &e.outside.leases
	if q.first() == nil {
		return
	}
	if h := q.byID[t.stepID(i)]; h != nil {
		e.forgetLeaseLocked(h)
	}
}

// forgetLeaseLocked forgets a lease.
func (e *engine) forgetLeaseLocked(h *heldStep) {
	delete(e.outside.leases.byID, h.id)
	e.outside.leases.held.remove(h.place)
	e.outside.claimed.remove(h.runKey)
	if e.outside.leases.armed != 0 { // expireLeasesLocked arms it after its batch
		e.armLeasesLocked()
	}
}

// armLeasesLocked sets the timer for the end of the first lease, and cancels one for
// another end: a virtual clock would move for it.
func (e *engine) armLeasesLocked() {
	q, until := &e.outside.leases, instant(0)
	if first := q.first(); first != nil {
		until = first.until
	}
	if q.armed == until {
		return
	}
	if q.armed != 0 {
		q.timer.cancel()
	}
	if q.armed = until; until != 0 {
		q.timer = e.clock.schedule(until, func() { e.expireLeases(until) })
	}
}

// leaseBatch is how many leases expire under the lock at a time.
const leaseBatch = 256

// expireLeases ends the attempts whose leases are over. It is called by the timer
// that was set for an instant.
func (e *engine) expireLeases(timer instant) {
	e.store.locked(func() { e.expireLeasesLocked(timer) })
}

func (e *engine) expireLeasesLocked(timer instant) {
	q := &e.outside.leases
	if q.armed == timer {
		q.armed = 0
	}
	for range leaseBatch {
		h := q.first()
		if e.stopping || h == nil || h.until > e.clock.now() {
			break
		}
		err := e.store.updateLocked(func(c *change) error { return e.expireLocked(c, h) })
		if refusedForNow(err) {
			e.laterLocked(func() { e.expireLeases(timer) })
			return
		}
		if err != nil {
			e.log.Error("an expired lease could not be ended", "task_uuid", h.task, "step_uuid", h.id, "error", err)
			return
		}
	}
	if !e.stopping {
		e.armLeasesLocked()
	}
	e.wakeUp()
}

// expireLocked ends an attempt as lost.
func (e *engine) expireLocked(c *change, h *heldStep) error {
	t, err := c.task(h.task)
	if kindOf(err) == taskMissing { // stale and in error, it was dropped with its steps in progress
		e.forgetLeaseLocked(h)
		return nil
	}
	if err != nil {
		return err
	}
	s := &t.steps[h.step]
	o := typedFailure(workerLostType, "the lease of %s expired", s.lease.worker)
	end := e.ending(t, h.step, o, c.now, s.attempted)
	end.worker = s.lease.worker
	e.outside.expired++
	return c.append(t, &record{kind: recEnded, step: h.step, end: end})
}

// leaseVerb is an outside actor's operation on a step that it claimed.
type leaseVerb string

const (
	extendVerb   leaseVerb = "extend"
	completeVerb leaseVerb = "complete"
	failVerb     leaseVerb = "fail"
	yieldVerb    leaseVerb = "checkpoint"
)

// leaseAnswer is an outside actor's request about a step that it claimed. Whoever answers it
// sets its last members, so that each request needs one.
type leaseAnswer struct {
	verb    leaseVerb
	hash    leaseHash
	task    uuid          // according to the token, which anybody may have written
	lease   time.Duration // extend: from now
	outcome outcome       // complete, fail, checkpoint
	subject string        // the authenticated caller, or ""
	seen    taskVersions  // which the task must have; nil for any

	until   instant // set by an extension: when the lease ends
	version uint64  // set by the answer: the version of the task after it
}

// setLease takes the lease from its token.
func (q *leaseAnswer) setLease(token string) {
	q.hash = hashLease(token)
	if len(token) > len(q.task.String()) {
		q.task, _ = parseUUID(token[:len(q.task.String())])
	}
}

// answerLocked takes the answer if the step is under its lease; it returns nil if
// not.
func (e *engine) answerLocked(c *change, stepID uuid, q *leaseAnswer) (*heldStep, error) {
	h := e.outside.leases.byID[stepID]
	if h == nil {
		return nil, nil
	}
	t, err := c.task(h.task)
	if err != nil {
		return nil, err
	}
	s := &t.steps[h.step]
	switch {
	case !s.lease.is(q.hash):
		return nil, nil
	case h.until <= c.now: // its timer is about to fire
		return nil, e.expireLocked(c, h)
	case q.seen.refusal(t) != nil:
		return nil, q.seen.refusal(t)
	case q.verb == extendVerb:
		err := e.extendLocked(c, t, h, c.now.add(q.lease))
		q.until = h.until
		return h, err
	case q.verb == yieldVerb:
		r, err := e.yieldLocked(t, h.step, q.outcome.checkpoint)
		if err != nil {
			return nil, err
		}
		r.checkpoint.worker, r.subject = s.lease.worker, q.subject
		return h, c.append(t, r)
	}
	end := e.ending(t, h.step, q.outcome, c.now, s.attempted)
	end.worker = s.lease.worker
	return h, c.append(t, &record{kind: recEnded, step: h.step, end: end, subject: q.subject})
}

// extendLocked moves the end of a lease, never to an earlier time.
func (e *engine) extendLocked(c *change, t *task, h *heldStep, until instant) error {
	if until <= h.until {
		return nil
	}
	if s := &t.steps[h.step]; until > s.lease.until {
		known := until.add(leaseSlack(c.now.sub(s.attempted)))
		if err := c.append(t, &record{kind: recExtended, step: h.step, lease: &lease{until: known}}); err != nil {
			return err
		}
	}
	e.watchLeaseLocked(t, h.step, until)
	return nil
}
