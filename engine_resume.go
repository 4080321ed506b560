package main

// Resuming after a restart: timers, ready steps, and the attempts that the end of the
// previous process cut off.

// resumption resumes the unfinished tasks. It is guarded by the store's lock.
type resumption struct {
	engine *engine
	lost   []runKey // attempts that were cut off, and are not recorded as lost yet
}

// start resumes all tasks. Those in error, with steps left running or waiting for a
// retry, are among them: an operator may get such a task going again.
func (r *resumption) start() (err error) {
	s := r.engine.store
	s.locked(func() {
		s.table().eachLive(r.resume)
		if err = s.table().eachUnsettledError(r.resume); err == nil {
			err = r.recordLost()
		}
	})
	return err
}

// resume resumes the timers and ready steps of one task, and notes its attempts that
// were cut off.
func (r *resumption) resume(t *task) {
	e := r.engine
	for i := range t.steps {
		switch s := &t.steps[i]; s.state {
		case stepEnqueued:
			e.enqueueLocked(t, i)
		case stepWaitingForRetry:
			e.retries.arm(t, i, t.stillDue(s.retryAt, e.clock.now()))
		case stepInProgress:
			if s.lease != nil { // its worker is outside this process
				e.leases.watchLocked(t, i, t.stillDue(s.lease.until, e.clock.now()))
				continue
			}
			r.lost = append(r.lost, runKey{t.id, i})
		}
	}
}

// recordLost records that attempts were lost. While the store has no room the
// rest waits: a service with a full disk can still be read from.
func (r *resumption) recordLost() error {
	for ; len(r.lost) > 0; r.lost = r.lost[1:] {
		err := r.engine.store.updateLocked(func(c *change) error { return r.lose(c, r.lost[0]) })
		if refusedForNow(err) {
			r.engine.laterLocked(r.again)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// again goes on with recordLost, without the lock.
func (r *resumption) again() {
	r.engine.store.locked(func() {
		if r.engine.stopping {
			return
		}
		if err := r.recordLost(); err != nil {
			r.engine.log.Error("attempts that were cut off could not be resumed", "error", err)
		}
		r.engine.wakeUp()
	})
}

// lose records that an attempt was lost, unless its step moved on meanwhile.
func (r *resumption) lose(c *change, l runKey) error {
	t, err := c.task(l.task)
	if kindOf(err) == taskMissing {
		return nil // dropped meanwhile
	}
	if err != nil {
		return err
	}
	if t.steps[l.step].state != stepInProgress || r.engine.work.running[runKey{t.id, l.step}] != nil {
		return nil
	}
	return c.append(t, r.engine.lostRecord(t, l.step))
}

// lostRecord returns the record of a lost attempt: it is delivered again, or fails
// after too many deliveries.
func (e *engine) lostRecord(t *task, i int) *record {
	s := &t.steps[i]
	if s.redelivered < maxRedeliveries {
		return &record{kind: recRecovered, step: i}
	}
	o := typedFailure(workerLostType, "the process ended while the attempt ran, on every delivery")
	return &record{kind: recEnded, step: i, end: e.outcomes.ending(t, i, o, e.clock.now(), s.attempted)}
}
