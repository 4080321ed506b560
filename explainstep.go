package main

// The cause of one step.

import (
	"fmt"
	"time"
)

// step explains an unfinished step. Each state has its causes, and the first
// that holds is the one.
func (x *explainer) step(i int) stepExplanation {
	t, s, def := x.t, &x.t.steps[i], x.t.def(i)
	e := stepExplanation{
		StepUUID: t.stepID(i), Name: def.name, CurrentState: s.state.String(), WaitsFor: []string{},
		Actions: []string{}, Attempt: s.attempts + 1, MaxAttempts: max(s.maxAttempts, 1), Callable: redactName(def.callable),
	}
	switch s.state {
	case stepInError:
		x.inError(&e, s)
	case stepInProgress:
		x.inProgress(&e, i)
	case stepWaitingForRetry:
		x.retry(&e, s)
	case stepPending:
		x.pending(&e, i)
	default:
		x.enqueued(&e, i)
	}
	e.Cause = e.cause.String()
	return e
}

// because sets the cause and its sentence.
func (e *stepExplanation) because(c stepCause, format string, args ...any) {
	e.cause, e.Message = c, fmt.Sprintf(format, args...)
}

// may lists what an operator can do about the cause.
func (e *stepExplanation) may(actions ...stepAction) {
	for _, a := range actions {
		e.Actions = append(e.Actions, a.String())
	}
}

func (x *explainer) inError(e *stepExplanation, s *step) {
	e.Attempt = s.attempts
	errorType := "unknown"
	if s.last != nil {
		errorType = errorTypeIn(s.last.err)
	}
	e.because(causeFailed, "attempt %d of %d failed for good (%s): an operator must reset, resolve, complete or cancel it",
		e.Attempt, e.MaxAttempts, errorType)
	e.may(actionReset, actionResolve, actionComplete, actionCancel)
}

// errorTypeIn is the error_type of an ending's error.
func errorTypeIn(err []byte) (errorType string) {
	eachMember(err, func(key string, value []byte) bool {
		if key == "error_type" {
			errorType, _ = jsonString(value)
		}
		return true
	})
	return errorType
}

func (x *explainer) inProgress(e *stepExplanation, i int) {
	s := &x.t.steps[i]
	e.Attempt, e.Since = s.attempts, zonedTime(s.attempted)
	if s.lease != nil {
		e.claimed(s.lease)
		return
	}
	if !x.running[i] {
		e.because(causeCutOff, "attempt %d of %d was cut off with the process that ran it, and is to be delivered again",
			e.Attempt, e.MaxAttempts)
		return
	}
	e.DueAt = zonedTime(s.attempted.add(time.Duration(x.t.def(i).timeoutSeconds) * time.Second))
	e.because(causeRunning, "attempt %d of %d runs since %s in %s, and times out at %s", e.Attempt, e.MaxAttempts,
		s.attempted.zoned(), e.Callable, instant(e.DueAt).zoned())
}

// claimed explains a step that an outside actor works on, or had better.
func (e *stepExplanation) claimed(l *lease) {
	e.DueAt = zonedTime(l.until)
	e.because(causeClaimed, "attempt %d of %d was claimed by %s, whose lease ends at %s", e.Attempt, e.MaxAttempts,
		l.worker, l.until.zoned())
	e.may(actionComplete, actionFail, actionResolve, actionCancel)
}

func (x *explainer) retry(e *stepExplanation, s *step) {
	e.DueAt = zonedTime(s.retryAt)
	after := ""
	if x.t.stopped() {
		after = fmt.Sprintf(", but does not start while the task is %s", x.t.state)
	}
	e.because(causeRetry, "attempt %d of %d is due at %s%s", e.Attempt, e.MaxAttempts, s.retryAt.zoned(), after)
}

// stopped reports whether no step of the task may start.
func (t *task) stopped() bool { return t.state == taskBlockedByFailures || t.state == taskError }

// pending explains a step that was never ready, or not ready since.
func (x *explainer) pending(e *stepExplanation, i int) {
	switch {
	case x.t.steps[i].waitingFor > 0:
		x.needs(e, i)
	case x.t.open(i):
		x.undecided(e, i)
	default:
		x.held(e)
	}
}

// needs explains a step with parents that are not done.
func (x *explainer) needs(e *stepExplanation, i int) {
	cause, first := causeDependencies, ""
	for _, p := range x.t.parents(i) {
		switch s := x.t.steps[p].state; {
		case s.satisfies():
			continue
		case s == stepCancelled && cause != causeCancelled:
			cause, first = causeCancelled, x.t.def(p).name
		case s == stepInError && cause == causeDependencies:
			cause, first = causeParentFailed, x.t.def(p).name
		}
		e.WaitsFor = append(e.WaitsFor, x.t.def(p).name)
	}
	switch cause {
	case causeCancelled:
		e.because(cause, "step %q, which it needs, was cancelled: an operator must resolve, complete or cancel it", first)
		e.may(actionResolve, actionComplete, actionCancel)
	case causeParentFailed:
		e.because(cause, "step %q, which it needs, failed for good: an operator must act on that one", first)
	default:
		e.because(cause, "it waits for %s", quotedNames(e.WaitsFor))
	}
}

// undecided explains a step whose parents are done, but may become more.
func (x *explainer) undecided(e *stepExplanation, i int) {
	failed := ""
	for _, d := range x.t.deciders(i) {
		e.WaitsFor = append(e.WaitsFor, x.t.def(d).name)
		if failed == "" && x.t.steps[d].state == stepInError {
			failed = x.t.def(d).name
		}
	}
	if failed != "" {
		e.because(causeParentFailed, "step %q, which decides what it needs, failed for good: an operator must act on that one",
			failed)
		return
	}
	e.because(causeUndecided, "it waits for what %s may create", quotedNames(e.WaitsFor))
}

// held explains a step that is ready while its task stands still.
func (x *explainer) held(e *stepExplanation) {
	e.WaitsFor = append(append(e.WaitsFor, x.failed...), x.dropped...)
	why := ""
	if len(e.WaitsFor) > 0 {
		why = ", because " + x.stoppedBy()
	}
	e.because(causeTaskStopped, "it is ready, but no step of a task in %s starts before an operator acts%s", x.t.state, why)
}

func (x *explainer) enqueued(e *stepExplanation, i int) {
	kind := x.handlers.resolve(x.t.def(i).callable).kind
	use, what := x.local, "builtins and programs"
	if kind == httpHandler {
		use, what = x.web, "HTTP handlers"
	}
	switch {
	case x.t.stopped():
		x.held(e)
	case kind == outsideActor:
		e.because(causeOutside, "nothing here handles callable %q: an outside actor must claim, complete or fail it", e.Callable)
		e.may(actionComplete, actionFail, actionResolve, actionCancel)
	case use.exhausted():
		e.because(causeSlot, "it waits for a slot: all %d for %s are taken", use.all, what)
	default:
		e.because(causeStarting, "it is ready and starts at any moment")
	}
	if x.t.steps[i].redeliver {
		e.Attempt = x.t.steps[i].attempts
	}
}
