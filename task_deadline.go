package main

// Deadlines: until when a step must be answered, by handler.initialization.answer_within, and how it ends if nobody
// answers it.

// deadlines holds until when steps that were enqueued must be answered, by step. It is nil for a task without such steps.
type deadlines map[int]instant

// follow sets the deadline of a step that is enqueued for the first time, and removes that of a step that is reset.
func (d *deadlines) follow(i int, e stepEvent, due instant) {
	switch {
	case e == stepReset:
		delete(*d, i)
	case e == stepEnqueue && (*d)[i] == 0:
		if *d == nil {
			*d = deadlines{}
		}
		(*d)[i] = due
	}
}

func (d deadlines) passed(i int, now instant) bool { return d[i] != 0 && d[i] <= now }

// leaseEnd returns when a lease ends that is to last until an instant: no later than the deadline.
func (d deadlines) leaseEnd(i int, until instant) instant {
	if due := d[i]; due != 0 {
		return min(until, due)
	}
	return until
}

// answerDue returns until when a step must be answered that waits for that, or is worked on; 0 for no limit.
func (t *task) answerDue(i int) instant {
	switch t.steps[i].state {
	case stepEnqueued, stepInProgress, stepWaitingForRetry:
		return t.answers[i]
	}
	return 0
}

// giveUpWaiting ends a step that nobody answered in time.
func (a *applier) giveUpWaiting(e *ending) {
	i := a.r.step
	s := &a.t.steps[i]
	s.last, s.retryAt = e, 0
	if e.success {
		a.moveStep(i, stepAssume)
		a.grow(i, e)
		return
	}
	s.failed, s.aside = a.r.at, e.aside
	a.moveStep(i, stepExpire)
}
