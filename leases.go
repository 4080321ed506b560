package main

// Leases: what an outside actor has of a step that it claimed, how it answers,
// and what happens when it does not.

import (
	"container/heap"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"time"
)

// leaseHash stands for a lease's token, which is not kept.
type leaseHash [16]byte

func hashLease(token string) (h leaseHash) {
	sum := sha256.Sum256([]byte(token))
	copy(h[:], sum[:])
	return h
}

// lease is an outside actor's hold on a step in progress. It is never changed.
type lease struct {
	hash   leaseHash
	until  instant // its end as far as the journal knows; see heldStep
	worker string
}

func (l *lease) is(h leaseHash) bool { return subtle.ConstantTimeCompare(l.hash[:], h[:]) == 1 }

// leaseToken is what an outside actor holds: a secret, after the task's id, by
// which the task is found also when the lease is over.
func leaseToken(task uuid, secret string) string { return task.String() + "." + secret }

// appendLease appends the members of a claim, or the new end of a lease.
func appendLease(b []byte, l *lease) []byte {
	if l.hash != (leaseHash{}) {
		b = append(b, `,"lease":"`...)
		b = hex.AppendEncode(b, l.hash[:])
		b = append(b, '"')
	}
	b = appendNumber(b, "until", int64(l.until))
	return appendText(b, "worker", l.worker)
}

func (d *recordDecoder) lease() *lease {
	if d.r.lease == nil {
		d.r.lease = new(lease)
	}
	return d.r.lease
}

func (d *recordDecoder) leaseMember(key string, value []byte) {
	l := d.lease()
	if key == "until" {
		l.until = instant(d.number(value))
		return
	}
	raw, err := hex.DecodeString(d.text(value))
	if err != nil || len(raw) != len(l.hash) {
		d.err = fmt.Errorf("not the hash of a lease in 32 hex digits")
	}
	copy(l.hash[:], raw)
}

// extend applies an extension.
func (a *applier) extend() {
	s := &a.t.steps[a.r.step]
	if s.lease == nil {
		a.fail(fmt.Errorf("step %q in %s has no lease", a.t.def(a.r.step).name, s.state))
		return
	}
	l := *s.lease
	l.until = a.r.lease.until
	s.lease = &l
}

// heldStep is a step under a lease. An extension is journaled for longer than its
// worker is told, so that the next ones need no record: only after a restart may a
// lease hold until then.
type heldStep struct {
	runKey
	id    uuid    // the step's
	until instant // when the lease ends
	place int     // in the queue
}

// maxLeaseSlack is how much longer at the most an extension is journaled for.
const maxLeaseSlack = 10 * time.Minute

// leaseSlack grows with the age of an attempt, so that the records of extensions
// stay few, however long it takes.
func leaseSlack(age time.Duration) time.Duration { return min(age/4, maxLeaseSlack) }

// leaseQueue is a heap of the steps under leases, by when these end.
type leaseQueue struct {
	held  []*heldStep
	byID  map[uuid]*heldStep
	armed instant // when the next timer fires; 0 for none
	timer *timer  // the latest one
}

func (q *leaseQueue) Len() int           { return len(q.held) }
func (q *leaseQueue) Less(i, j int) bool { return q.held[i].until < q.held[j].until }
func (q *leaseQueue) Swap(i, j int) {
	q.held[i], q.held[j] = q.held[j], q.held[i]
	q.held[i].place, q.held[j].place = i, j
}
func (q *leaseQueue) Push(x any) {
	h := x.(*heldStep)
	h.place = len(q.held)
	q.held = append(q.held, h)
}
func (q *leaseQueue) Pop() any {
	last := len(q.held) - 1
	h := q.held[last]
	q.held[last] = nil
	q.held = q.held[:last]
	return h
}

// holdLocked watches over the lease of a step: a new one, or a new end of it.
func (e *engine) holdLocked(t *task, i int, until instant) {
	q, id := &e.outside.leases, t.stepID(i)
	if h := q.byID[id]; h != nil {
		h.until = until
		heap.Fix(q, h.place)
	} else {
		h := &heldStep{runKey: runKey{t.id, i}, id: id, until: until}
		q.byID[id] = h
		heap.Push(q, h)
		e.outside.claimed.add(t, i)
	}
	e.disarmLeasesLocked()
	e.armLeasesLocked()
}

// letGoLocked forgets the lease of a step that left in_progress, if it had one.
func (e *engine) letGoLocked(t *task, i int) {
	q := &e.outside.leases
	if len(q.held) == 0 {
		return
	}
	if h := q.byID[t.stepID(i)]; h != nil {
		e.forgetLocked(h)
	}
}

// forgetLocked forgets a lease.
func (e *engine) forgetLocked(h *heldStep) {
	delete(e.outside.leases.byID, h.id)
	heap.Remove(&e.outside.leases, h.place)
	e.outside.claimed.remove(h.runKey)
	e.disarmLeasesLocked()
}

// armLeasesLocked has the clock call when the first lease ends.
func (e *engine) armLeasesLocked() {
	q := &e.outside.leases
	if len(q.held) == 0 {
		return
	}
	first := q.held[0].until
	if q.armed != 0 && q.armed <= first {
		return
	}
	q.armed = first
	q.timer = e.clock.schedule(first, func() { e.expireLeases(first) })
}

// disarmLeasesLocked has no timer left for a lease that is gone: a virtual clock
// would move for it.
func (e *engine) disarmLeasesLocked() {
	q := &e.outside.leases
	if q.armed == 0 || len(q.held) > 0 && q.held[0].until <= q.armed {
		return
	}
	q.timer.cancel()
	q.armed = 0
	e.armLeasesLocked()
}

// leaseBatch is how many leases expire under the lock at a time.
const leaseBatch = 256

// expireLeases ends the attempts whose leases are over, as a timer says that was
// set for a certain time.
func (e *engine) expireLeases(timer instant) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	q := &e.outside.leases
	if q.armed == timer {
		q.armed = 0
	}
	for n := 0; !e.stopping && n < leaseBatch && len(q.held) > 0 && q.held[0].until <= e.clock.now(); n++ {
		h := q.held[0]
		err := e.store.updateLocked(func(c *change) error { return e.expireLocked(c, h) })
		if refusedForNow(err) {
			e.owed++
			afterReal(outcomeRetryEvery, func() {
				e.expireLeases(timer)
				e.owe(-1)
			})
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
		e.forgetLocked(h)
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

// leaseVerb is what an outside actor does about a step that it claimed.
type leaseVerb string

const (
	extendVerb   leaseVerb = "extend"
	completeVerb leaseVerb = "complete"
	failVerb     leaseVerb = "fail"
)

// leaseAnswer is what an outside actor says about a step that it claimed.
type leaseAnswer struct {
	verb    leaseVerb
	hash    leaseHash
	task    uuid          // as the lease says, which anybody may have written
	lease   time.Duration // extend: from now
	outcome outcome       // complete, fail
	subject string        // the authenticated caller, or ""
	until   instant       // set by an extension: when the lease ends
}

// setLease keeps what tells of the lease.
func (q *leaseAnswer) setLease(token string) {
	q.hash = hashLease(token)
	if len(token) > len(q.task.String()) {
		q.task, _ = parseUUID(token[:len(q.task.String())])
	}
}

// answerLease records the answer and returns the step after it, durable. An
// answer under a lease that is over goes to the audit alone.
func (s *service) answerLease(ctx context.Context, stepID uuid, q *leaseAnswer) (v stepView, err error) {
	var taken *heldStep
	var after step
	seq, err := s.engine.change(ctx, func(c *change) error {
		if taken, err = s.engine.answerLocked(c, stepID, q); taken == nil || err != nil {
			return err
		}
		t, err := c.task(taken.task)
		if err != nil {
			return err
		}
		v, after = t.bareStepView(taken.step, c.now), t.steps[taken.step] // a copy of the task would cost far more
		return nil
	})
	if err != nil {
		return v, err
	}
	if taken == nil {
		return v, s.refuseAnswer(ctx, stepID, q)
	}
	s.engine.wakeUp()
	v.setResults(&after, s.workerID)
	return v, s.store.journal.wait(ctx, seq)
}

// answerLocked takes the answer when the step is under its lease; nil when it is not.
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
	case h.until <= c.now: // the timer is about to say so
		return nil, e.expireLocked(c, h)
	case q.verb == extendVerb:
		err := e.extendLocked(c, t, h, c.now.add(q.lease))
		q.until = h.until
		return h, err
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
	e.holdLocked(t, h.step, until)
	return nil
}

// refuseAnswer says why an answer is not taken. The outcome of an attempt whose
// lease is over stands in the audit before that.
func (s *service) refuseAnswer(ctx context.Context, stepID uuid, q *leaseAnswer) error {
	t, i, err := s.stepOf(stepID, q.task)
	if err != nil {
		return err
	}
	past := &pastLease{step: i, hash: q.hash}
	seq, err := s.takeLate(ctx, t.id, past, q)
	if err != nil {
		return err
	}
	if past.lease == nil {
		return failf(conflict, "cannot %s step %q: this is not its lease", q.verb, t.def(i).name)
	}
	if err := s.store.journal.wait(ctx, seq); err != nil {
		return err
	}
	return failf(conflict, "cannot %s step %q: the lease is over, and the step is %s", q.verb, t.def(i).name,
		t.steps[i].state)
}

// stepOf finds a step: in the task that a lease names, or else in the one whose
// id it follows.
func (s *service) stepOf(id, named uuid) (*task, int, error) {
	t, err := s.store.view(named)
	if err == nil {
		if i, ok := t.stepIndex(id); ok {
			return t, i, nil
		}
	}
	owner, _ := s.store.taskOfStep(id)
	if t, err = s.store.view(owner); err == nil {
		if i, ok := t.stepIndex(id); ok {
			return t, i, nil
		}
	}
	return nil, 0, failf(stepMissing, "step %s not found", id)
}

// takeLate looks for the attempt that an answer is about, and records its outcome
// if that has not come before. One answer at a time, so that it is recorded once.
func (s *service) takeLate(
	ctx context.Context, id uuid, past *pastLease, q *leaseAnswer,
) (seq uint64, err error) {
	late := &s.engine.outside.late
	late.Lock()
	defer late.Unlock()
	if _, err := s.store.viewObserved(id, past); err != nil {
		return 0, err
	}
	if past.lease == nil || past.answered || q.verb == extendVerb {
		return 0, nil
	}
	return s.engine.change(ctx, func(c *change) error {
		t, err := c.task(id)
		if err != nil {
			return err
		}
		end := s.engine.plainEnding(t, past.step, q.outcome, c.now, past.began)
		end.retryAt, end.attempt, end.worker = 0, past.attempt, past.lease.worker
		s.engine.stats.late++
		return c.append(t, &record{kind: recLate, step: past.step, end: end, subject: q.subject})
	})
}

// pastLease looks in a replay for the attempt that was made under a lease.
type pastLease struct {
	step     int
	hash     leaseHash
	lease    *lease // nil unless found
	began    instant
	attempt  int
	current  bool // the replay is in that attempt
	answered bool // the actor ended it itself, or its late outcome is there already
}

func (p *pastLease) begin(_ *task, r *record) {
	if r.step != p.step {
		return
	}
	switch r.kind {
	case recClaimed:
		if p.current = r.lease.is(p.hash); p.current {
			p.lease, p.began = r.lease, r.at
		}
	case recExtended, recAdjusted: // the attempt goes on
	case recLate:
		p.answered = p.answered || p.lease != nil && r.end.attempt == p.attempt
	default: // this ends the attempt
		p.answered = p.answered || p.current && r.kind == recEnded && !r.end.isLost()
		p.current = false
	}
}

func (p *pastLease) taskMoved(*task, taskState, taskState, instant) {}

// stepMoved notes the number of the attempt: the move stands before the count.
func (p *pastLease) stepMoved(t *task, i int, _, to stepState, _ instant) {
	if i != p.step || !p.current || to != stepInProgress {
		return
	}
	p.attempt = t.steps[i].attempts + 1
	if t.steps[i].redeliver {
		p.attempt--
	}
}

// isLost reports a failure that only says that the actor was lost.
func (e *ending) isLost() bool {
	f := (&step{last: e}).fault(false)
	return f != nil && f.ErrorType == workerLostType
}
