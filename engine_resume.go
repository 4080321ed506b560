package main

// Resuming after a restart: timers, ready steps, and the attempts that the end of the
// previous process cut off.

// lostRecord returns the record of a lost attempt: it is delivered again, or fails
// after too many deliveries.
func (e *engine) lostRecord(t *task, i int) *record {
	s := &t.steps[i]
	if s.redelivered < maxRedeliveries {
		return &record{kind: recRecovered, step: i}
	}
	o := typedFailure(workerLostType, "the process ended while the attempt ran, on every delivery")
	return &record{kind: recEnded, step: i, end: e.ending(t, i, o, e.clock.now(), s.attempted)}
}
