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
	until  instant
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

// heldStep is a step under a lease.
type heldStep struct {
	runKey
	id    uuid // the step's
	until instant
	place int // in the queue
}

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
func (e *engine) holdLocked(t *task, i int) {
	q, id, until := &e.outside.leases, t.stepID(i), t.steps[i].lease.until
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
	id := t.stepID(i)
	if h := q.byID[id]; h != nil {
		delete(q.byID, id)
		heap.Remove(q, h.place)
		e.outside.claimed.remove(h.runKey)
		e.disarmLeasesLocked()
	}
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
		if kindOf(err) == unavailable {
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
}

// setLease keeps what tells of the lease.
func (q *leaseAnswer) setLease(token string) {
	q.hash = hashLease(token)
	if len(token) > len(q.task.String()) {
		q.task, _ = parseUUID(token[:len(q.task.String())])
	}
}

// answerLease records the answer and returns the task after it, durable, with
// the step's index. An answer under a lease that is over goes to the audit alone.
func (s *service) answerLease(ctx context.Context, stepID uuid, q *leaseAnswer) (*task, int, error) {
	var taken *heldStep
	seq, err := s.engine.change(ctx, func(c *change) (err error) {
		taken, err = s.engine.answerLocked(c, stepID, q)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	if taken == nil {
		return nil, 0, s.refuseAnswer(ctx, stepID, q)
	}
	s.engine.wakeUp()
	if err := s.store.journal.wait(ctx, seq); err != nil {
		return nil, 0, err
	}
	t, err := s.store.view(taken.task)
	return t, taken.step, err
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
	case s.lease.until <= c.now: // the timer is about to say so
		return nil, e.expireLocked(c, h)
	case q.verb == extendVerb:
		return h, e.extendLocked(c, t, h.step, c.now.add(q.lease))
	}
	end := e.ending(t, h.step, q.outcome, c.now, s.attempted)
	end.worker = s.lease.worker
	return h, c.append(t, &record{kind: recEnded, step: h.step, end: end, subject: q.subject})
}

// extendLocked moves the end of a lease, never to an earlier time.
func (e *engine) extendLocked(c *change, t *task, i int, until instant) error {
	if until <= t.steps[i].lease.until {
		return nil
	}
	if err := c.append(t, &record{kind: recExtended, step: i, lease: &lease{until: until}}); err != nil {
		return err
	}
	e.holdLocked(t, i)
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
	if _, err := s.store.viewObserved(t.id, past); err != nil {
		return err
	}
	if past.lease == nil {
		return failf(conflict, "cannot %s step %q: this is not its lease", q.verb, t.def(i).name)
	}
	if q.verb != extendVerb && !past.answered {
		if err := s.recordLate(ctx, t.id, past, q); err != nil {
			return err
		}
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

// recordLate records the outcome of an attempt whose lease is over.
func (s *service) recordLate(ctx context.Context, id uuid, past *pastLease, q *leaseAnswer) error {
	seq, err := s.engine.change(ctx, func(c *change) error {
		t, err := c.task(id)
		if err != nil {
			return err
		}
		end := s.engine.ending(t, past.step, q.outcome, c.now, past.began)
		end.retryAt, end.attempt, end.worker = 0, past.attempt, past.lease.worker
		s.engine.stats.late++
		return c.append(t, &record{kind: recLate, step: past.step, end: end, subject: q.subject})
	})
	if err != nil {
		return err
	}
	return s.store.journal.wait(ctx, seq)
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
	case recExtended:
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
