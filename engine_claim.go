package main

// Steps for outside actors: how an actor claims steps, at once or as soon as some are ready, fairly,
// and the index of these steps.

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"
)

// outsideWork gives the steps for outside actors to the actors that claim some. All but
// the channels is guarded by the store's lock.
type outsideWork struct {
	engine *engine
	late   chan struct{} // holds a token while the attempt of a late outcome is searched, and the outcome recorded

	waiting  claimIndex        // enqueued steps; those of stopped tasks may be missing
	claimers []*claimer        // waiting for work, oldest first
	fresh    map[claimKey]bool // keys of the steps queued since the feeder last looked
	kick     chan struct{}     // holds a token when the feeder should look

	claims uint64 // steps claimed since the start
}

// claimRequest selects the steps that an outside actor asks for.
type claimRequest struct {
	callables  []string // a redacted callable each, or with a final * all that begin with the rest
	namespaces []string // nil for any
	limit      int
	lease      time.Duration
	wait       time.Duration // for the first step, at most, in real time
	worker     string
	subject    string // the authenticated caller, or ""
}

// matches reports whether the request asks for steps with a key.
func (q *claimRequest) matches(key claimKey) bool {
	if q.namespaces != nil && !slices.Contains(q.namespaces, key.namespace) {
		return false
	}
	return slices.ContainsFunc(q.callables, func(pattern string) bool { return fitsPattern(pattern, key.callable) })
}

// fitsPattern reports whether a name matches a pattern, which may end in *.
func fitsPattern(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// peoplePatterns are callables, perhaps with a * at their end, of steps that are for people. None stand for all.
type peoplePatterns []string

func (p peoplePatterns) has(callable string) bool {
	return len(p) == 0 || slices.ContainsFunc(p, func(pattern string) bool { return fitsPattern(pattern, callable) })
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

// claimResult holds the steps that a claimer was given. It has neither steps nor an error if the wait
// ended because the service stops.
type claimResult struct {
	steps []claimedStep
	seq   uint64 // of the record that it depends on
	err   error
}

// claim gives an outside actor steps, after waiting for the first one as long as the request says.
func (w *outsideWork) claim(ctx context.Context, q *claimRequest) claimResult {
	c, served := &claimer{request: q, given: make(chan claimResult, 1)}, false
	err := w.engine.inTurn(ctx, func() error {
		// Claimers that have waited longer come first.
		w.feedLocked()
		if served = w.engine.stopping || w.serveLocked(c); !served {
			w.claimers = append(w.claimers, c)
		}
		return nil
	})
	if err != nil {
		return claimResult{err: err}
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
	return w.leave(c)
}

// leave ends the claimer's wait and returns what it was given.
func (w *outsideWork) leave(c *claimer) claimResult {
	w.engine.store.locked(func() {
		if i := slices.Index(w.claimers, c); i >= 0 {
			w.claimers = slices.Delete(w.claimers, i, i+1)
		}
	})
	// The claimer may have been served after its wait ended and before the lock was taken. It must
	// take these steps, because nobody else knows their tokens.
	select {
	case got := <-c.given:
		return got
	default:
		return claimResult{}
	}
}

// offerLocked offers an enqueued step to outside actors.
func (w *outsideWork) offerLocked(t *task, i int) {
	w.waiting.insert(t, i)
	// A claimer that comes later looks at the whole index.
	if len(w.claimers) == 0 {
		return
	}
	w.fresh[t.claimKey(i)] = true
	w.wakeFeeder()
}

// withdrawLocked stops offering the steps of a task that ends before its steps
// have ended. They come back when the task continues.
func (w *outsideWork) withdrawLocked(t *task) {
	for i := range t.steps {
		if t.steps[i].state == stepEnqueued {
			w.waiting.remove(runKey{t.id, i})
		}
	}
}

// claimKey returns what claimers choose the step by: patterns must not find out what is redacted.
func (t *task) claimKey(i int) claimKey { return claimKey{t.tpl.namespace, t.def(i).shown} }

// wakeFeeder tells the feeder to look at the claimers.
func (w *outsideWork) wakeFeeder() { offerToken(w.kick) }

// feed gives claimers what they wait for, until the engine stops.
func (w *outsideWork) feed() {
	for range w.kick {
		stopping := false
		w.engine.store.locked(func() {
			if stopping = w.engine.stopping; stopping || w.engine.hooks.pacer == nil { // a pacer has its own time for claimers
				w.feedLocked()
			}
		})
		if stopping {
			return
		}
	}
}

// feedLocked gives out what became ready to those who wait, oldest first. When the engine stops it releases them all.
func (w *outsideWork) feedLocked() {
	if len(w.fresh) == 0 && !w.engine.stopping {
		return
	}
	w.claimers = slices.DeleteFunc(w.claimers, func(c *claimer) bool {
		if w.engine.stopping {
			c.given <- claimResult{}
			return true
		}
		// The claimer found nothing when it came. Only a key that had steps added since can change that.
		for key := range w.fresh {
			if c.request.matches(key) {
				return w.serveLocked(c)
			}
		}
		return false
	})
	clear(w.fresh)
}

// serveLocked gives the claimer the steps that are ready for it, or the error that
// prevents that. It reports whether it did either.
func (w *outsideWork) serveLocked(c *claimer) bool {
	picked := w.claimableLocked(w.waiting.inOrder(c.request.matches), c.request.limit)
	if len(picked) == 0 {
		return false
	}
	got := claimResult{}
	got.err = w.engine.store.updateLocked(func(ch *change) error {
		for _, k := range picked {
			given, err := w.claimLocked(ch, k, c.request)
			if err != nil {
				return err
			}
			got.steps = append(got.steps, given)
		}
		return nil
	})
	got.seq = w.engine.store.seqLocked()
	c.given <- got // does not block: a claimer is served once
	return true
}

// claimableLocked returns the first steps of a walk through the index that can be claimed.
// It drops the steps of stopped tasks from the index: they come back when their
// task continues. It also drops those whose deadline has passed.
func (w *outsideWork) claimableLocked(walk iter.Seq[*claimEntry], limit int) (found []runKey) {
	var idle []runKey
	now := w.engine.clock.now()
	for o := range walk {
		if t := w.engine.store.liveLocked(o.task); t != nil && t.runnable(o.step) && !t.answers.passed(o.step, now) {
			found = append(found, o.runKey)
		} else {
			idle = append(idle, o.runKey)
		}
		if len(found) >= limit {
			break
		}
	}
	for _, k := range idle {
		w.waiting.remove(k)
	}
	return found
}

// claimLocked starts an attempt by an outside actor.
func (w *outsideWork) claimLocked(c *change, k runKey, q *claimRequest) (claimedStep, error) {
	t := w.engine.store.liveLocked(k.task)
	token := leaseToken(t.id, w.engine.ids.secretOf(t.stepID(k.step), w.engine.store.seqLocked()))
	l := &lease{hash: hashLease(token), until: t.answers.leaseEnd(k.step, c.now.add(q.lease)), worker: q.worker}
	err := c.append(t, &record{kind: recClaimed, step: k.step, lease: l, subject: q.subject})
	if err != nil {
		return claimedStep{}, err
	}
	w.claims++
	a := w.engine.attemptLocked(t, k.step, t.steps[k.step].attempts, true)
	a.lease = l.until.sub(c.now)
	w.engine.leases.watchLocked(t, k.step, l.until)
	return claimedStep{k, t.def(k.step).shown, a, token, l}, nil
}

// unclaim gives back steps if the answer to their claim did not reach the claimer: they are delivered
// again under the same attempt numbers.
func (w *outsideWork) unclaim(given []claimedStep) {
	_, err := w.engine.store.update(func(c *change) error {
		for _, g := range given {
			t, err := c.task(g.key.task)
			if err == nil && t.steps[g.key.step].lease == g.lease {
				err = c.append(t, &record{kind: recRecovered, step: g.key.step})
			}
			if err != nil && kindOf(err) != taskMissing { // or the task was dropped meanwhile
				return err
			}
		}
		return nil
	})
	if err != nil && kindOf(err) != unavailable { // their leases will expire
		w.engine.log.Error("claimed steps could not be given back", "error", err)
	}
}

// The index of the steps for outside actors, by namespace and callable, in the order in which they are given out.

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

// claimIndex holds steps in queues. Its zero value is ready to use; it keeps nothing of steps that left it.
type claimIndex struct {
	queues map[claimKey]*claimQueue
	steps  map[runKey]*claimEntry
	seq    uint64
	urgent *claimIndex // those that have a deadline, by it; nil if there were none
}

// insert takes up a step of a task, unless the index has it.
func (x *claimIndex) insert(t *task, i int) {
	key, k := t.claimKey(i), runKey{t.id, i}
	if x.steps[k] != nil {
		return
	}
	x.seq++
	x.add(key, k, rank{t.by.priority, t.place(i), x.seq})
	if due := t.answers[i]; due != 0 {
		if x.urgent == nil {
			x.urgent = &claimIndex{}
		}
		x.urgent.add(key, k, rank{created: uint64(due), seq: x.seq})
	}
}

func (x *claimIndex) add(key claimKey, k runKey, r rank) {
	if x.queues == nil {
		x.queues, x.steps = map[claimKey]*claimQueue{}, map[runKey]*claimEntry{}
	}
	q := x.queues[key]
	if q == nil {
		q = &claimQueue{before: claimedBefore, placed: func(o *claimEntry, place int) { o.place = place }}
		x.queues[key] = q
	}
	o := &claimEntry{runKey: k, rank: r, key: key, queue: q}
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
	if x.urgent != nil {
		x.urgent.remove(k)
	}
}

// inOrder iterates over the steps whose keys match, in order. It looks at every key, at the steps that it gives, and at
// the two steps below each of these in the heap of its queue. The loop must not change the index.
func (x *claimIndex) inOrder(matches func(claimKey) bool) iter.Seq[*claimEntry] {
	return func(yield func(*claimEntry) bool) {
		next := claimQueue{before: claimedBefore}
		for key, q := range x.queues {
			if matches(key) {
				next.push(q.items[0])
			}
		}
		for len(next.items) > 0 {
			o := next.pop()
			if !yield(o) {
				return
			}
			for child := 2*o.place + 1; child <= 2*o.place+2 && child < len(o.queue.items); child++ {
				next.push(o.queue.items[child])
			}
		}
	}
}

// walk is inOrder or, by deadline, that with the steps that have none after the others.
func (x *claimIndex) walk(byDeadline bool, matches func(claimKey) bool) iter.Seq[*claimEntry] {
	if !byDeadline || x.urgent == nil {
		return x.inOrder(matches)
	}
	return func(yield func(*claimEntry) bool) {
		for o := range x.urgent.inOrder(matches) {
			if !yield(o) {
				return
			}
		}
		for o := range x.inOrder(matches) {
			if x.urgent.steps[o.runKey] == nil && !yield(o) {
				return
			}
		}
	}
}

func firstSteps(walk iter.Seq[*claimEntry], limit int) (found []runKey) {
	for o := range walk {
		if found = append(found, o.runKey); len(found) >= limit {
			break
		}
	}
	return found
}
