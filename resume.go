package main

// What an engine takes up after a restart: timers, ready steps, and the attempts
// that the end of the process before cut off.

// lostAttempt is one that the end of the process before cut off.
type lostAttempt struct {
	task uuid
	step int
}

func (e *engine) resumeAll() error {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	var lost []lostAttempt
	for i := range e.store.slots {
		if t := e.store.slots[i].live; t != nil {
			lost = e.resumeLocked(t, lost)
		}
	}
	lost, err := e.resumeFailedLocked(lost)
	if err != nil {
		return err
	}
	return e.recordLostLocked(lost)
}

// resumeFailedLocked takes up the tasks in error whose steps were left running
// or waiting for a retry: an operator may get such a task going again.
func (e *engine) resumeFailedLocked(lost []lostAttempt) ([]lostAttempt, error) {
	failed := &e.store.index.states[taskError]
	for pos, ok := failed.next(0); ok; pos, ok = failed.next(pos + 1) {
		h, err := readTaskHeader(e.store.slots[pos].line)
		if err != nil {
			return nil, err
		}
		if h.counts[stepInProgress]+h.counts[stepWaitingForRetry] == 0 {
			continue
		}
		t, err := e.store.thawAt(pos)
		if err != nil {
			return nil, err
		}
		lost = e.resumeLocked(t, lost)
	}
	return lost, nil
}

// resumeLocked takes up one task after a restart: its timers and its ready
// steps. Its attempts that were cut off are added to lost.
func (e *engine) resumeLocked(t *task, lost []lostAttempt) []lostAttempt {
	for i := range t.steps {
		switch s := &t.steps[i]; s.state {
		case stepEnqueued:
			e.pushLocked(t, i)
		case stepWaitingForRetry:
			e.armRetry(t, i, s.retryAt)
		case stepInProgress:
			if s.lease != nil { // its worker is not of this process
				e.holdLocked(t, i, s.lease.until)
				continue
			}
			lost = append(lost, lostAttempt{t.id, i})
		}
	}
	return lost
}

// recordLostLocked has lost attempts delivered again. When the store has no
// room the rest waits until it has: a full disk keeps no service from reading.
func (e *engine) recordLostLocked(lost []lostAttempt) error {
	for n, l := range lost {
		err := e.store.updateLocked(func(c *change) error { return e.loseLocked(c, l) })
		if refusedForNow(err) {
			e.owed++
			afterReal(outcomeRetryEvery, func() {
				e.recordLost(lost[n:])
				e.owe(-1)
			})
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) recordLost(lost []lostAttempt) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	if e.stopping {
		return
	}
	if err := e.recordLostLocked(lost); err != nil {
		e.log.Error("attempts that were cut off could not be taken up", "error", err)
	}
	e.wakeUp()
}

// loseLocked records that an attempt was lost, unless its step went on meanwhile.
func (e *engine) loseLocked(c *change, l lostAttempt) error {
	t, err := c.task(l.task)
	if kindOf(err) == taskMissing {
		return nil // dropped meanwhile
	}
	if err != nil {
		return err
	}
	if t.steps[l.step].state != stepInProgress || e.running[runKey{t.id, l.step}] != nil {
		return nil
	}
	return c.append(t, e.lostRecord(t, l.step))
}

// lostRecord has the attempt delivered again, or ends it when that was tried often enough.
func (e *engine) lostRecord(t *task, i int) *record {
	s := &t.steps[i]
	if s.redelivered < maxRedeliveries {
		return &record{kind: recRecovered, step: i}
	}
	o := typedFailure(workerLostType, "the process ended while the attempt ran, on every delivery")
	return &record{kind: recEnded, step: i, end: e.ending(t, i, o, e.clock.now(), s.attempted)}
}
