package main

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
