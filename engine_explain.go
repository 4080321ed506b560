package main

// Why a task makes no progress: for each of its unfinished steps the one cause, and
// what would end it. The log names the causes in the same words.

import (
	"fmt"
	"strings"
	"time"
)

// stepCause says why a step is not finished.
type stepCause string

const (
	causeFailed       stepCause = "failed"               // it is in error
	causeRunning      stepCause = "running"              // an attempt runs in this process
	causeClaimed      stepCause = "claimed"              // an outside actor has claimed it
	causeCutOff       stepCause = "cut_off"              // the process that ran it ended
	causeRetry        stepCause = "retry_scheduled"      // the next attempt is due later
	causeCancelled    stepCause = "dependency_cancelled" // a step it needs was cancelled
	causeParentFailed stepCause = "dependency_failed"    // a step it needs is in error
	causeDependencies stepCause = "dependencies"         // a step it needs is not finished
	causeUndecided    stepCause = "decision"             // a step that exists already decides what else it needs
	causeTaskStopped  stepCause = "task_stopped"         // it is ready, but its task is blocked or in error
	causeOutside      stepCause = "outside_actor"        // nobody here handles it
	causeBatch        stepCause = "parallelism"          // as many instances of its batch worker run as may
	causeSlot         stepCause = "slot"                 // every slot is taken
	causeStarting     stepCause = "starting"             // it is about to start
)

// causesCounted are the causes in the order in which a message counts them, and what
// follows 1 and larger numbers of steps with one.
var causesCounted = []struct {
	cause     stepCause
	one, many string
}{
	{causeFailed, "failed for good", "failed for good"},
	{causeRunning, "runs", "run"},
	{causeClaimed, "is claimed", "are claimed"},
	{causeCutOff, "was cut off", "were cut off"},
	{causeRetry, "waits for a retry", "wait for a retry"},
	{causeCancelled, "needs a cancelled step", "need a cancelled step"},
	{causeParentFailed, "needs a failed step", "need a failed step"},
	{causeDependencies, "waits for other steps", "wait for other steps"},
	{causeUndecided, "waits for a decision", "wait for a decision"},
	{causeTaskStopped, "is held by the task", "are held by the task"},
	{causeOutside, "waits for an outside actor", "wait for an outside actor"},
	{causeBatch, "waits for other batches", "wait for other batches"},
	{causeSlot, "waits for a slot", "wait for a slot"},
	{causeStarting, "is about to start", "are about to start"},
}

// stepExplanation explains one unfinished step. Members that the cause does not need
// are null, empty or 0.
type stepExplanation struct {
	StepUUID     uuid      `json:"step_uuid"`
	Name         string    `json:"name"`
	CurrentState string    `json:"current_state"`
	Cause        stepCause `json:"cause"`
	Message      string    `json:"message"`
	WaitsFor     []string  `json:"waits_for"` // names of the task's steps
	Actions      []string  `json:"actions"`   // of an operator: each is possible now, and helps the task on
	Since        zonedTime `json:"since"`     // when the attempt started
	DueAt        zonedTime `json:"due_at"`    // the retry, or the attempt's timeout, or the end of its lease
	Attempt      int       `json:"attempt"`   // running, due, or next
	MaxAttempts  int       `json:"max_attempts"`
	Callable     string    `json:"callable"`
}

// taskExplanation explains why a task makes no progress.
type taskExplanation struct {
	TaskUUID uuid              `json:"task_uuid"`
	Status   string            `json:"status"`
	State    string            `json:"state,omitempty"` // at the mount point, whose statuses are coarser
	Message  string            `json:"message"`
	Steps    []stepExplanation `json:"steps"` // the unfinished ones

	state taskState
}

// explainer explains one task: a copy of it, and the engine's part in it at the
// same moment.
type explainer struct {
	t         *task
	handlers  *handlerSet
	running   map[int]bool       // steps that run in this process
	exhausted map[*slotPool]bool // pools without a free slot
	batches   map[int]int        // how many instances are admitted, by those that wait for that
	pool      func(handlerKind) *slotPool
	failed    []string // steps in error
	dropped   []string // cancelled steps that others need
	errors    bool     // with the messages of errors
}

// explain says why a task makes no progress, with or without the messages of errors. It
// asks for the memory.
func (e *engine) explain(id uuid, by holder, withErrors bool) (*taskExplanation, error) {
	if err := e.store.askForTask(id, times{by, 2}); err != nil {
		return nil, err
	}
	x := &explainer{handlers: e.handlers, running: map[int]bool{}, pool: e.queues.pool, errors: withErrors}
	var kept slot
	var err error
	e.store.locked(func() {
		if kept, err = e.store.table().copyOf(id); err != nil {
			return
		}
		q := &e.queues
		x.exhausted = map[*slotPool]bool{&q.local: q.local.free <= 0, &q.web: q.web.free <= 0}
		live := e.store.liveLocked(id)
		if live != nil && live.counts[stepInProgress] > 0 {
			for i := range live.steps {
				if k := e.work.running[runKey{id, i}]; k != nil && !k.gone {
					x.running[i] = true
				}
			}
		}
		x.batches = e.gates.held(live)
	})
	if err != nil {
		return nil, err
	}
	if x.t, err = e.store.reader().taskIn(kept); err != nil {
		return nil, err
	}
	x.findStoppers()
	return x.task(), nil
}

// findStoppers collects the steps that hold a blocked task up.
func (x *explainer) findStoppers() {
	for i := range x.t.steps {
		switch s := &x.t.steps[i]; {
		case s.state == stepInError:
			x.failed = append(x.failed, x.t.def(i).name)
		case s.state == stepCancelled && s.openKids > 0:
			x.dropped = append(x.dropped, x.t.def(i).name)
		}
	}
}

func (x *explainer) task() *taskExplanation {
	v := &taskExplanation{TaskUUID: x.t.id, Status: x.t.state.String(), state: x.t.state, Steps: []stepExplanation{}}
	for i := range x.t.steps {
		if !x.t.steps[i].state.finished() {
			v.Steps = append(v.Steps, x.step(i))
		}
	}
	v.Message = x.taskMessage(v.Steps)
	return v
}

// taskMessage returns one sentence about the whole task, with its unfinished steps.
func (x *explainer) taskMessage(unfinished []stepExplanation) string {
	switch t := x.t; {
	case t.state.final():
		return fmt.Sprintf("the task is %s: nothing is left to do", t.state)
	case t.state == taskError:
		return "the task ended in error; an action on one of its steps that leaves none in error gets it going again"
	case t.state == taskBlockedByFailures:
		return "the task is blocked until an operator acts: " + x.stoppedBy()
	}
	counts := map[stepCause]int{}
	for i := range unfinished {
		counts[unfinished[i].Cause]++
	}
	words := []string{}
	for _, c := range causesCounted {
		if n := counts[c.cause]; n > 0 {
			words = append(words, counted(n, c.one, c.many))
		}
	}
	all, finished := len(x.t.steps), len(x.t.steps)-len(unfinished)
	return fmt.Sprintf("%d of %s %s finished; of the others %s", finished, counted(all, "step", "steps"),
		pick(all == 1 || finished == 1, "is", "are"), strings.Join(words, ", "))
}

// stoppedBy names the steps that block the task, and says why.
func (x *explainer) stoppedBy() string {
	failed := quotedNames(x.failed) + " failed for good"
	dropped := fmt.Sprintf("%s, which others need, %s cancelled", quotedNames(x.dropped), pick(len(x.dropped) == 1, "was", "were"))
	switch {
	case len(x.dropped) == 0:
		return failed
	case len(x.failed) == 0:
		return dropped
	}
	return failed + "; " + dropped
}

// quotedNames returns up to five names in quotes, for a message.
func quotedNames(names []string) string {
	const most = 5
	quoted := []string{}
	for _, n := range names[:min(len(names), most)] {
		quoted = append(quoted, fmt.Sprintf("%q", n))
	}
	if more := len(names) - most; more > 0 {
		quoted = append(quoted, fmt.Sprintf("%d more", more))
	}
	return pick(len(names) == 1, "step ", "steps ") + strings.Join(quoted, ", ")
}

// The cause of one step.

// step explains an unfinished step. Each state has its causes; the first that
// applies counts.
func (x *explainer) step(i int) stepExplanation {
	t, s, def := x.t, &x.t.steps[i], x.t.def(i)
	e := stepExplanation{
		StepUUID: t.stepID(i), Name: def.name, CurrentState: s.state.String(), WaitsFor: []string{},
		Actions: []string{}, Attempt: s.attempts + 1, MaxAttempts: max(s.maxAttempts, 1), Callable: def.shown,
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
	if c := s.checkpoint; c != nil {
		e.Message += fmt.Sprintf("; it goes on from checkpoint %d of %s", c.number, c.at.zoned())
	}
	return e
}

// because sets the cause and its sentence.
func (e *stepExplanation) because(c stepCause, format string, args ...any) {
	e.Cause, e.Message = c, fmt.Sprintf(format, args...)
}

// may adds what an operator can do about the cause.
func (e *stepExplanation) may(actions ...stepAction) {
	for _, a := range actions {
		e.Actions = append(e.Actions, a.String())
	}
}

// mayUnlessBlocked adds what an operator can do about the cause if no other step blocks the
// task: an action on this one does not help then.
func (x *explainer) mayUnlessBlocked(e *stepExplanation, actions ...stepAction) {
	if len(x.failed)+len(x.dropped) == 0 {
		e.may(actions...)
	}
}

func (x *explainer) inError(e *stepExplanation, s *step) {
	e.Attempt = s.attempts
	e.because(causeFailed, "attempt %d of %d failed for good%s, so an operator must reset, resolve, complete or cancel it",
		e.Attempt, e.MaxAttempts, x.failure(s))
	e.may(actionReset, actionResolve, actionComplete, actionCancel)
}

// maxShownError is how many bytes of an error's message an explanation shows.
const maxShownError = 1000

// failure returns why the latest attempt of a step failed, as the end of a sentence.
func (x *explainer) failure(s *step) string {
	f, failed := s.last.fault()
	message, _ := jsonString(f.message)
	switch {
	case !failed:
		return ""
	case !x.errors:
		return " (" + f.errorType + ")"
	}
	return ": " + clipText(cleanText([]byte(message)), maxShownError) + " (" + f.errorType + ")"
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

// claimed explains a step that an outside actor has claimed.
func (e *stepExplanation) claimed(l *lease) {
	e.DueAt = zonedTime(l.until)
	e.because(causeClaimed, "attempt %d of %d was claimed by %s, whose lease ends at %s", e.Attempt, e.MaxAttempts,
		l.worker, l.until.zoned())
	e.may(actionComplete, actionFail, actionResolve, actionCancel)
}

func (x *explainer) retry(e *stepExplanation, s *step) {
	e.DueAt = zonedTime(s.retryAt)
	after := ""
	if x.stopped() {
		after = fmt.Sprintf(", but does not start while the task is %s", x.t.state)
		x.mayUnlessBlocked(e, actionRetryNow, actionResolve, actionComplete, actionCancel)
	} else {
		e.may(actionRetryNow)
	}
	e.because(causeRetry, "attempt %d of %d is due at %s, because attempt %d failed%s%s", e.Attempt, e.MaxAttempts,
		s.retryAt.zoned(), s.attempts, x.failure(s), after)
}

// stopped reports whether no step of the task may start.
func (x *explainer) stopped() bool {
	return x.t.state == taskBlockedByFailures || x.t.state == taskError
}

// pending explains a step that is not ready, or no longer.
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
		case x.t.satisfies(p):
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

// undecided explains a step whose parents are done, while others may be added.
func (x *explainer) undecided(e *stepExplanation, i int) {
	failed := ""
	for _, d := range x.t.deciders(i) {
		e.WaitsFor = append(e.WaitsFor, x.t.def(d).name)
		if failed == "" && x.t.steps[d].state == stepInError {
			failed = x.t.def(d).name
		}
	}
	if failed != "" {
		e.because(causeParentFailed,
			"step %q, which decides what it needs, failed for good: an operator must act on that one", failed)
		return
	}
	e.because(causeUndecided, "it waits for what %s may create", quotedNames(e.WaitsFor))
}

// held explains a step that is ready while its task is stopped.
func (x *explainer) held(e *stepExplanation) {
	e.WaitsFor = append(append(e.WaitsFor, x.failed...), x.dropped...)
	x.mayUnlessBlocked(e, actionResolve, actionComplete, actionCancel)
	why := ""
	if len(e.WaitsFor) > 0 {
		why = ", because " + x.stoppedBy()
	}
	e.because(causeTaskStopped, "it is ready, but no step of a task in %s starts before an operator acts%s", x.t.state, why)
}

func (x *explainer) enqueued(e *stepExplanation, i int) {
	kind := x.handlers.resolve(x.t.def(i).callable).kind
	pool := x.pool(kind)
	switch {
	case x.stopped():
		x.held(e)
		x.mayUnlessBlocked(e, actionFail)
	case x.batches[i] > 0:
		e.because(causeBatch, "it waits for other batches: %d of %d at once", x.batches[i], x.t.def(i).batch.parallelism)
	case kind == outsideActor:
		e.because(causeOutside, "nothing here handles callable %q: an outside actor must claim, complete or fail it", e.Callable)
		e.may(actionComplete, actionFail, actionResolve, actionCancel)
	case x.exhausted[pool]:
		e.because(causeSlot, "it waits for a slot: all %d for %s are taken", pool.size, pool.what)
	default:
		e.because(causeStarting, "it is ready and starts at any moment")
	}
	e.Attempt = x.t.steps[i].nextAttempt()
}
