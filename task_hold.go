package main

// Holds: a task that continues in another service is held here, so that no step of it runs in both.

// hold says where a task continues, and since when nothing of it runs here.
type hold struct {
	at    instant
	place string
}

// beHeld takes back the attempts that run: the other service makes them again. They do not count as
// redelivered, because no process was lost.
func (a *applier) beHeld() {
	t := a.t
	if t.hold != nil || t.state.final() {
		a.err = errHeld(t)
		return
	}
	t.hold = &hold{a.r.at, a.r.reason}
	for i := range t.steps {
		if s := &t.steps[i]; s.state == stepInProgress {
			a.moveStep(i, stepRecover)
			s.redeliver = true
		}
	}
}

func (a *applier) beReleased() {
	if a.t.hold == nil {
		a.err = errNotHeld(a.t)
	}
	a.t.hold = nil
}

// errHeld says why nothing can be done to a task that is held or over, and is nil for others.
func errHeld(t *task) error {
	switch {
	case t.hold != nil:
		return failf(invalidTransition, "task %s has been on hold since %s: it continues in %s", t.id, t.hold.at.zoned(), t.hold.place)
	case t.state.final():
		return failf(invalidTransition, "task %s is %s", t.id, t.state)
	}
	return nil
}

func errNotHeld(t *task) error { return failf(invalidTransition, "task %s is not on hold", t.id) }
