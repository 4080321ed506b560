package main

// Leases: how long an outside actor holds a step, how it reports the outcome, and what happens if it does not.

import (
	"time"
)

// heldStep is a step under a lease. The journal extends a lease for longer than the response says, so that the next
// extensions need no record; the lease lasts that long only if the service restarts.
type heldStep struct {
	runKey
	id    uuid    // the step's
	until instant // when the lease ends
	place int     // in the queue
}

// maxLeaseSlack bounds leaseSlack: after a restart, the step of a lost worker is blocked that much longer.
const maxLeaseSlack = 10 * time.Minute

// leaseSlack returns how much longer the journal extends a lease than the worker asked. It grows with
// the age of the attempt, so that the records of extensions stay few however long the attempt takes.
func leaseSlack(age time.Duration) time.Duration { return min(age/4, maxLeaseSlack) }

// leaseQueue holds the steps under leases, by when their leases end, and ends these. It is guarded by the store's lock.
type leaseQueue struct {
	engine  *engine
	held    priorityQueue[*heldStep]
	byID    map[uuid]*heldStep
	claimed claimIndex // the same steps
	armed   instant    // when the timer fires; 0 for none
	timer   *timer
	expired uint64 // leases that expired since the start
}

func newLeaseQueue(e *engine) leaseQueue {
	return leaseQueue{engine: e, byID: map[uuid]*heldStep{}, held: priorityQueue[*heldStep]{
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

// watchLocked watches a new lease of a step, or the new end of the lease that it has.
func (q *leaseQueue) watchLocked(t *task, i int, until instant) {
	id := t.stepID(i)
	if h := q.byID[id]; h != nil {
		h.until = until
		q.held.fix(h.place)
	} else {
		h := &heldStep{runKey: runKey{t.id, i}, id: id, until: until}
		q.byID[id] = h
		q.held.push(h)
		q.claimed.insert(t, i)
	}
	q.armLocked()
}

// leaveLocked forgets the lease of a step that left in_progress, if it had one.
func (q *leaseQueue) leaveLocked(t *task, i int) {
	if q.first() == nil {
		return
	}
	if h := q.byID[t.stepID(i)]; h != nil {
		q.forgetLocked(h)
	}
}

func (q *leaseQueue) forgetLocked(h *heldStep) {
	delete(q.byID, h.id)
	q.held.remove(h.place)
	q.claimed.remove(h.runKey)
	if q.armed != 0 { // expireLocked arms it after its batch
		q.armLocked()
	}
}

// armLocked sets the timer for the end of the first lease. It cancels a timer for another instant,
// because a virtual clock would move to that instant.
func (q *leaseQueue) armLocked() {
	until := instant(0)
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
		q.timer = q.engine.clock.schedule(until, func() {
			q.engine.store.locked(func() { q.expireLocked(until) })
		})
	}
}

// leaseBatch is how many leases expire before the lock is released to others.
const leaseBatch = 256

// expireLocked ends the attempts whose leases are over. It is called for the timer that was set for an instant.
func (q *leaseQueue) expireLocked(timer instant) {
	if q.armed == timer {
		q.armed = 0
	}
	for range leaseBatch {
		h := q.first()
		if q.engine.stopping || h == nil || h.until > q.engine.clock.now() {
			break
		}
		err := q.engine.store.updateLocked(func(c *change) error { return q.expireOneLocked(c, h) })
		if refusedForNow(err) {
			q.engine.laterLocked(func() { q.expireLocked(timer) })
			return
		}
		if err != nil {
			q.engine.log.Error("an expired lease could not be ended", "task_uuid", h.task, "step_uuid", h.id, "error", err)
			return
		}
	}
	// If more leases have ended, the timer fires again immediately, after others had the lock.
	if !q.engine.stopping {
		q.armLocked()
	}
	q.engine.wakeUp()
}

// expireOneLocked ends an attempt as lost.
func (q *leaseQueue) expireOneLocked(c *change, h *heldStep) error {
	t, err := c.task(h.task)
	if kindOf(err) == taskMissing { // stale and in error, it was dropped with its steps in progress
		q.forgetLocked(h)
		return nil
	}
	if err != nil {
		return err
	}
	s := &t.steps[h.step]
	o := typedFailure(workerLostType, "the lease of %s expired", s.lease.worker)
	end := q.engine.outcomes.ending(t, h.step, o, c.now, s.attempted)
	end.worker = s.lease.worker
	q.expired++
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

// answerLocked records the answer if the step is under the lease that the answer names, and returns
// the step. Otherwise it returns nil.
func (q *leaseQueue) answerLocked(c *change, stepID uuid, a *leaseAnswer) (*heldStep, error) {
	h := q.byID[stepID]
	if h == nil {
		return nil, nil
	}
	t, err := c.task(h.task)
	if err != nil {
		return nil, err
	}
	s := &t.steps[h.step]
	switch {
	case !s.lease.is(a.hash):
		return nil, nil
	case h.until <= c.now: // its timer is about to fire
		return nil, q.expireOneLocked(c, h)
	case a.seen.refusal(t) != nil:
		return nil, a.seen.refusal(t)
	case a.verb == extendVerb:
		err := q.extendLocked(c, t, h, c.now.add(a.lease))
		a.until = h.until
		return h, err
	case a.verb == yieldVerb:
		r, err := q.engine.yieldLocked(t, h.step, a.outcome.checkpoint)
		if err != nil {
			return nil, err
		}
		r.checkpoint.worker, r.subject = s.lease.worker, a.subject
		return h, c.append(t, r)
	}
	end := q.engine.outcomes.ending(t, h.step, a.outcome, c.now, s.attempted)
	end.worker = s.lease.worker
	return h, c.append(t, &record{kind: recEnded, step: h.step, end: end, subject: a.subject})
}

// extendLocked moves the end of a lease, never to an earlier time.
func (q *leaseQueue) extendLocked(c *change, t *task, h *heldStep, until instant) error {
	until = t.answers.leaseEnd(h.step, until)
	if until <= h.until {
		return nil
	}
	if s := &t.steps[h.step]; until > s.lease.until {
		known := t.answers.leaseEnd(h.step, until.add(leaseSlack(c.now.sub(s.attempted))))
		if err := c.append(t, &record{kind: recExtended, step: h.step, lease: &lease{until: known}}); err != nil {
			return err
		}
	}
	q.watchLocked(t, h.step, until)
	return nil
}

// Deadlines of answers: the timer of a step that waits for one, and what is recorded when the deadline passes.

// armDeadline sets the timer of a step that waits for an answer, if that has a deadline.
func (r *retryTimers) armDeadline(t *task, i int) {
	due := t.answerDue(i)
	if due == 0 {
		return
	}
	r.set(t, i, due, r.engine.clock.scheduleDeadline, func(t *task, now instant) *record {
		if s := &t.steps[i]; t.answerDue(i) != due || s.state == stepInProgress || t.state.ended() {
			return nil
		}
		o := outcome{success: true, result: t.def(i).answer.otherwise}
		if o.result == nil {
			o = typedFailure(nobodyAnsweredType, "nobody answered within %s", t.def(i).answer.text)
		}
		end := r.engine.outcomes.ending(t, i, o, now, now)
		end.forNobody = true
		return &record{kind: recUnanswered, step: i, end: end}
	})
}
