package main

// Claims: how outside actors are given steps to work on, at once or when there
// are some, fairly. What becomes of a claimed step stands in leases.go.

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
)

// outsideWork is what the engine knows of the steps for outside actors, and of
// these. It is guarded by the store's mutex.
type outsideWork struct {
	late sync.Mutex // held, and taken before the store's, while a late outcome is looked for and recorded

	waiting  outsideIndex // enqueued steps; those of tasks that stand still may be missing
	claimed  outsideIndex // steps in progress under a lease
	leases   leaseQueue
	claimers []*claimer        // who waits for work, the oldest first
	fresh    map[claimKey]bool // what was queued since the claimers were last looked at
	kick     chan struct{}     // holds a token when they should be

	claims  uint64 // steps claimed since the start
	expired uint64 // leases that expired since then
}

func newOutsideWork() outsideWork {
	return outsideWork{
		leases: leaseQueue{byID: map[uuid]*heldStep{}},
		fresh:  map[claimKey]bool{},
		kick:   make(chan struct{}, 1),
	}
}

// claimRequest is what an outside actor asks for.
type claimRequest struct {
	callables  []string // each one callable, or all that begin with what stands before a final *
	namespaces []string // nil for any
	limit      int
	lease      time.Duration
	wait       time.Duration // how long to wait for the first step, in real time
	worker     string
	subject    string // the authenticated caller, or ""
}

func (q *claimRequest) matches(key claimKey) bool {
	if q.namespaces != nil && !slices.Contains(q.namespaces, key.namespace) {
		return false
	}
	return slices.ContainsFunc(q.callables, func(pattern string) bool { return fitsCallable(pattern, key.callable) })
}

// fitsCallable reports whether a pattern, which may end in *, stands for a callable.
func fitsCallable(pattern, callable string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(callable, prefix)
	}
	return pattern == callable
}

// claim is a step that was given to an outside actor.
type claim struct {
	key      runKey
	callable string
	attempt  *attempt
	token    string
	lease    *lease
}

// claimer waits for work.
type claimer struct {
	request *claimRequest
	given   chan claims // takes one value, in the end
}

// claims is what a claimer was given. No steps and no error: it need not wait
// any more, as the service stops.
type claims struct {
	steps []claim
	seq   uint64 // of the record that it depends on
	err   error
}

// claim gives the caller steps under leases, durably. With nothing to claim it
// waits as long as the request says.
func (s *service) claim(ctx context.Context, q *claimRequest) ([]claim, error) {
	if s.draining.Load() {
		return nil, failf(unavailable, "the service is shutting down: no steps are given out")
	}
	got := s.engine.claim(ctx, q)
	if got.err != nil || len(got.steps) == 0 {
		return nil, got.err
	}
	err := s.store.journal.wait(ctx, got.seq)
	if ctx.Err() != nil { // the caller went away, and never got to know the leases
		s.engine.unclaim(got.steps)
		return nil, ctx.Err()
	}
	return got.steps, err
}

func (e *engine) claim(ctx context.Context, q *claimRequest) claims {
	c := &claimer{request: q, given: make(chan claims, 1)}
	served, err := e.enter(ctx, c)
	if err != nil {
		return claims{err: err}
	}
	if served || q.wait == 0 {
		return e.leave(c)
	}
	wait, cancel := context.WithTimeout(ctx, q.wait)
	defer cancel()
	select {
	case got := <-c.given:
		return got
	case <-wait.Done():
		return e.leave(c)
	}
}

// enter gives the claimer what there is now, after those who came before it,
// and has it wait when that is nothing. It reports whether it was given something.
func (e *engine) enter(ctx context.Context, c *claimer) (served bool, err error) {
	err = e.inTurn(ctx, func() error {
		served = e.enterLocked(c)
		return nil
	})
	return served, err
}

func (e *engine) enterLocked(c *claimer) (served bool) {
	e.feedLocked()
	if served = e.stopping || e.serveLocked(c); served {
		return true
	}
	e.outside.claimers = append(e.outside.claimers, c)
	return false
}

// leave ends the claimer's wait and returns what it was given until then.
func (e *engine) leave(c *claimer) claims {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	if i := slices.Index(e.outside.claimers, c); i >= 0 {
		e.outside.claimers = slices.Delete(e.outside.claimers, i, i+1)
	}
	select {
	case got := <-c.given:
		return got
	default:
		return claims{}
	}
}

// queueOutsideLocked takes up an enqueued step for outside actors.
func (e *engine) queueOutsideLocked(t *task, i int) {
	w := &e.outside
	w.waiting.add(t, i)
	if len(w.claimers) == 0 {
		return
	}
	w.fresh[t.claimKey(i)] = true
	e.wakeFeeder()
}

// withdrawOutsideLocked offers nothing of a task that ends with steps left over.
// They come back when the task goes on.
func (e *engine) withdrawOutsideLocked(t *task) {
	for i := range t.steps {
		if t.steps[i].state == stepEnqueued {
			e.outside.waiting.remove(runKey{t.id, i})
		}
	}
}

func (t *task) claimKey(i int) claimKey { return claimKey{t.tpl.namespace, t.def(i).callable} }

func (e *engine) wakeFeeder() {
	select {
	case e.outside.kick <- struct{}{}:
	default:
	}
}

// feed gives claimers what they wait for, until the engine stops.
func (e *engine) feed() {
	for range e.outside.kick {
		e.store.mu.Lock()
		if e.lockstep == nil || e.stopping { // in lockstep claimers come after the batches
			e.feedLocked()
		}
		stopping := e.stopping
		e.store.mu.Unlock()
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
			c.given <- claims{}
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

// serveLocked gives the claimer what there is for it, or the reason why it
// cannot have that. It reports whether it did.
func (e *engine) serveLocked(c *claimer) bool {
	picked := e.claimableLocked(c.request.matches, c.request.limit)
	if len(picked) == 0 {
		return false
	}
	got := claims{}
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
	got.seq = e.store.seq
	c.given <- got
	return true
}

// claimableLocked is the first steps that match and can be claimed, in order.
// Those of tasks that stand still are dropped from the index: they come back
// when their task goes on.
func (e *engine) claimableLocked(matches func(claimKey) bool, limit int) (found []runKey) {
	var idle []runKey
	e.outside.waiting.walk(matches, func(o *outsideStep) bool {
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
func (e *engine) claimLocked(c *change, k runKey, q *claimRequest) (claim, error) {
	t := e.store.liveLocked(k.task)
	token := leaseToken(t.id, e.ids.secretOf(t.stepID(k.step), e.store.seq))
	l := &lease{hash: hashLease(token), until: c.now.add(q.lease), worker: q.worker}
	err := c.append(t, &record{kind: recClaimed, step: k.step, lease: l, subject: q.subject})
	if err != nil {
		return claim{}, err
	}
	e.outside.claims++
	a := e.attemptLocked(t, k.step, true)
	a.number = t.steps[k.step].attempts
	e.holdLocked(t, k.step, l.until)
	return claim{k, t.def(k.step).callable, a, token, l}, nil
}

// unclaim gives back what nobody got to know of: it is delivered again under the
// same attempt numbers.
func (e *engine) unclaim(given []claim) {
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

// outsideMetrics writes the figures of outside actors.
func (s *service) outsideMetrics(m *metricsText) {
	s.store.mu.Lock()
	w := &s.engine.outside
	claims, expired := w.claims, w.expired
	waiting, leases, claimers := len(w.waiting.steps), len(w.leases.held), len(w.claimers)
	s.store.mu.Unlock()
	m.single("stepwell_claims_total", "counter", "Steps claimed by outside actors.", float64(claims))
	m.single("stepwell_leases_expired_total", "counter", "Leases of claimed steps that expired.", float64(expired))
	m.single("stepwell_claimable_steps", "gauge", "Enqueued steps that wait for an outside actor.", float64(waiting))
	m.single("stepwell_leases", "gauge", "Steps that outside actors have claimed.", float64(leases))
	m.single("stepwell_claimers_waiting", "gauge", "Outside actors that wait for a step to claim.", float64(claimers))
}
