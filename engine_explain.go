package main

// Why a task makes no progress: one sentence about the task and, for each of its unfinished steps, the cause, since
// when it has lasted, and what most likely helps. Everything that describes a task uses it, including the log.

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	causeOutside      stepCause = "outside_actor"        // its callable has no handler here
	causeBatch        stepCause = "parallelism"          // the batch worker already runs its maximum of instances
	causeAbsent       stepCause = "not_listening"        // nobody listens at the address of its handler
	causeSlot         stepCause = "slot"                 // every slot is taken
	causeStarting     stepCause = "starting"             // it is about to start
	causeHeld         stepCause = "held"                 // its task continues in another service
)

// stepExplanation explains one unfinished step. Members that the cause does not need are null, empty or 0.
type stepExplanation struct {
	StepUUID     uuid      `json:"step_uuid"`
	Name         string    `json:"name"`
	CurrentState string    `json:"current_state"`
	Cause        stepCause `json:"cause"`
	Message      string    `json:"message"`   // what follows the name of the step, and ends with the remedy
	Remedy       string    `json:"remedy"`    // what most likely helps; "" if nothing has to be done
	WaitsFor     []string  `json:"waits_for"` // names of the task's steps
	Actions      []string  `json:"actions"`   // that an operator can take now and that help the task on
	Since        zonedTime `json:"since"`     // when the attempt started
	DueAt        zonedTime `json:"due_at"`    // the retry, or the attempt's timeout, or the end of its lease, or the deadline of the answer
	Attempt      int       `json:"attempt"`   // running, due, or next
	MaxAttempts  int       `json:"max_attempts"`
	Callable     string    `json:"callable"`
}

// taskExplanation explains why a task makes no progress.
type taskExplanation struct {
	TaskUUID uuid              `json:"task_uuid"`
	Status   string            `json:"status"`
	State    string            `json:"state,omitempty"` // at the mount point, whose statuses are coarser
	Message  string            `json:"message"`         // its first sentence describes the step that needs somebody most
	Remedy   string            `json:"remedy"`          // with which that sentence ends, after "; "
	Steps    []stepExplanation `json:"steps"`           // the unfinished ones

	Undelivered []undeliveredEvent `json:"undelivered_events,omitempty"`

	state taskState
	lead  *stepExplanation // the step that needs somebody most; nil if all are finished
}

// explainer explains one task: a copy of it, and the engine's part in it at the same moment.
type explainer struct {
	t         *task
	handlers  *handlerSet
	advice    actorAdvice
	running   map[int]instant    // steps that run in this process: the end of one that only waits for it, else 0
	exhausted map[*slotPool]bool // pools without a free slot
	batches   map[int]int        // how many instances are admitted, by those that wait for that
	absent    map[int]string     // what does not listen and since when, by the steps that wait for it
	pool      func(handlerKind) *slotPool
	failed    []string // steps in error
	dropped   []string // cancelled steps that others need
	errors    bool     // whether messages of errors are shown
	now       instant
	frozen    bool               // the clock is frozen
	brief     bool               // if steps have failed, only the first of them is explained
	parts     map[int]batchParts // by the declared batch worker
}

// explain says why a task makes no progress, with or without the messages of errors. It first asks
// by for the memory that this takes.
func (e *engine) explain(id uuid, by holder, withErrors bool) (*taskExplanation, error) {
	if err := e.store.askForTask(id, times{by, 2}); err != nil {
		return nil, err
	}
	var x *explainer
	var kept keptTask
	var err error
	// The copy and the engine's part in the task are taken at one moment. The copy is decoded once the lock is free.
	e.store.locked(func() {
		if kept, err = e.store.table().wholeByID(id); err == nil {
			x = e.explainerLocked(id, withErrors)
		}
	})
	if err != nil {
		return nil, err
	}
	if x.t, err = kept.task(); err != nil {
		return nil, err
	}
	v := x.task()
	v.Undelivered = e.store.subscribers().undelivered(x.t)
	return v, nil
}

// explainerLocked returns an explainer of a task, which the caller adds.
func (e *engine) explainerLocked(id uuid, withErrors bool) *explainer {
	q, live := &e.queues, e.store.liveLocked(id)
	x := &explainer{
		handlers: e.handlers, advice: e.causes.advice, running: map[int]instant{}, pool: q.pool, batches: e.gates.held(live), errors: withErrors, now: e.clock.now(),
		exhausted: map[*slotPool]bool{&q.local: q.local.free <= 0, &q.web: q.web.free <= 0},
	}
	if c, ok := e.clock.(freezableClock); ok {
		x.frozen = c.frozen()
	}
	if live != nil && len(e.absent.by) > 0 {
		x.absent = map[int]string{}
		for i := range live.steps {
			if a := e.absent.of(e.targetLocked(live, i)); a != nil {
				x.absent[i] = a.String()
			}
		}
	}
	if live != nil && live.counts[stepInProgress] > 0 {
		for i := range live.steps {
			if k := e.work.running[runKey{id, i}]; k != nil && !k.gone {
				x.running[i] = 0
				if k.timer != nil {
					x.running[i] = k.timer.when
				}
			}
		}
	}
	return x
}

// findStoppers collects the steps that hold a blocked task up.
func (x *explainer) findStoppers() {
	x.parts = map[int]batchParts{}
	for i := range x.t.steps {
		s := &x.t.steps[i]
		if x.t.def(i).kind == stepBatchWorker {
			n := x.parts[x.t.declared(i)]
			x.parts[x.t.declared(i)] = batchParts{n.all + 1, n.failed + boolCount(s.state == stepInError)}
		}
		switch {
		case s.state == stepInError:
			x.failed = append(x.failed, x.t.def(i).name)
		case s.state == stepCancelled && s.openKids > 0:
			x.dropped = append(x.dropped, x.t.def(i).name)
		}
	}
}

func (x *explainer) task() *taskExplanation {
	x.findStoppers()
	v := &taskExplanation{TaskUUID: x.t.id, Status: x.t.state.String(), state: x.t.state, Steps: []stepExplanation{}}
	brief := x.brief && len(x.failed) > 0
	for i := range x.t.steps {
		s := &x.t.steps[i]
		if s.state.finished() || brief && s.state != stepInError {
			continue
		}
		if v.Steps = append(v.Steps, x.step(i)); brief {
			break
		}
	}
	v.lead = x.lead(v.Steps)
	switch t := x.t; {
	case t.state.final():
		v.Message = fmt.Sprintf("the task is %s: nothing is left to do", t.state)
	case t.hold != nil:
		v.Message = fmt.Sprintf("the task was put on hold %s and continues in %s", agoFor(t.hold.at, x.now), t.hold.place)
		v.Remedy = "release it to continue it here"
	case t.state == taskError:
		v.Message, v.Remedy = x.ended(v.Steps)
	case v.lead == nil:
		v.Message = "every step of the task is finished, and it is about to end"
	default:
		v.Message, v.Remedy = v.lead.said(), v.lead.Remedy
	}
	if v.Remedy != "" {
		v.Message += "; " + v.Remedy
	}
	return v
}

// said describes the step, without what helps.
func (e *stepExplanation) said() string {
	return fmt.Sprintf("step %q %s", e.Name, strings.TrimSuffix(e.Message, "; "+e.Remedy))
}

// lead returns the step that needs somebody most, or nil if there is none.
func (x *explainer) lead(unfinished []stepExplanation) *stepExplanation {
	for _, s := range sentences {
		for i := range unfinished {
			if unfinished[i].Cause == s.cause {
				return &unfinished[i]
			}
		}
	}
	return nil
}

// ended describes a task in error, which is where staleness takes it.
func (x *explainer) ended(unfinished []stepExplanation) (what, remedy string) {
	what = fmt.Sprintf("the task ended as stale %s", agoFor(x.t.since, x.now))
	for i := range unfinished {
		if e := &unfinished[i]; len(e.Actions) > 0 {
			return what + ": " + e.said(), fmt.Sprintf("fix what delayed it, then act on the step (%s) to get the task going again",
				strings.Join(e.Actions, ", "))
		}
	}
	return what, "fix what delayed it, then create the task again"
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

// sentence describes a step in an explanation. explainer.fill fills its holes.
type sentence struct {
	name    string
	cause   stepCause
	says    string       // what follows the name of the step
	remedy  string       // what most likely helps; "" if nothing has to be done
	actions []stepAction // that an operator can take now and that help the task on
	blocked bool         // the actions do not help while another step blocks the task
}

const (
	saysStopped = "is ready, but cannot start while the task is {status}{stoppers}"
	saysOutside = "has waited for an outside actor for {waited}, because callable {quoted} has no handler"
)

// What helps with a step that waits, by who can help.
const (
	mapIt            = "map it with --handler {callable}=URL or in [worker.handlers], or let an actor claim it"
	answerIt         = "answer it in the console or by stepwell step complete" // a person
	startYourHandler = "start your handler"                                    // whoever runs what does not listen
)

// actorAdvice tells readers what to do about steps that wait for outside actors.
type actorAdvice struct {
	always string         // with each of them; "" if that depends on the step
	people peoplePatterns // of steps for people
}

func (a actorAdvice) about(def *stepTemplate) string {
	if len(a.people) > 0 && a.people.has(def.callable) {
		return cmp.Or(a.always, answerIt)
	}
	return cmp.Or(a.always, strings.ReplaceAll(mapIt, "{callable}", def.shown))
}

var toActor = []stepAction{actionComplete, actionFail, actionResolve, actionCancel}

// sentences are ordered by how much their causes need somebody to act, the most urgent first.
var sentences = []sentence{
	{"failed", causeFailed, "failed for good {ago}, on attempt {n} of {max}{batch}{why}", "{fix}", []stepAction{actionReset, actionResolve, actionComplete, actionCancel}, false},
	{"unanswered", causeFailed, "failed for good {ago}{batch}{why}", "complete it with the answer, or reset it to wait again", []stepAction{actionReset, actionResolve, actionComplete, actionCancel}, false},
	{"cancelled", causeCancelled, "needs step {first}, which was cancelled {ago}", "resolve, complete or cancel it", []stepAction{actionResolve, actionComplete, actionCancel}, false},
	{"outside", causeOutside, saysOutside, "{answer}", toActor, false},
	{"again", causeOutside, saysOutside + ", after attempt {n} of {max} failed{why}", "{answer}", toActor, false},
	{"absent", causeAbsent, "waits for its handler: {absent}", startYourHandler, toActor, false},
	{"retry", causeRetry, "failed {ago}, on attempt {n} of {max}{why}", "{start}it is retried {due}, or immediately with retry_now", []stepAction{actionRetryNow}, false},
	{"last", causeRetry, "failed {ago}, on attempt {n} of {max}{why}", "it is not retried before its deadline, except with retry_now", []stepAction{actionRetryNow, actionComplete}, false},
	{"no retry", causeRetry, "failed {ago}, on attempt {n} of {max}{why}, and is not retried while the task is {status}", "", []stepAction{actionRetryNow, actionResolve, actionComplete, actionCancel}, true},
	{"claimed", causeClaimed, "was claimed {ago} by {worker}, on attempt {n} of {max}", "it counts as lost {due} unless the actor completes it or extends its lease", toActor, false},
	{name: "cut off", cause: causeCutOff, says: "was cut off on attempt {n} of {max} when the process that ran it ended, and is delivered again automatically"},
	{name: "slot", cause: causeSlot, says: "waits for a slot: all {slots} for {kind} are taken"},
	{name: "running", cause: causeRunning, says: "has run for {for} in {callable}, on attempt {n} of {max}, which times out {due}"},
	{name: "starting", cause: causeStarting, says: "is ready and about to start"},
	{name: "batch", cause: causeBatch, says: "waits for other parts of its batch: {running} of {most} at once"},
	{name: "held", cause: causeHeld, says: "does not run here"},
	{"stopped", causeTaskStopped, saysStopped, "", []stepAction{actionResolve, actionComplete, actionCancel}, true},
	{"queued", causeTaskStopped, saysStopped, "", []stepAction{actionResolve, actionComplete, actionCancel, actionFail}, true},
	{name: "parent", cause: causeParentFailed, says: "needs step {first}, which failed for good"},
	{name: "decider", cause: causeParentFailed, says: "needs a decision by step {first}, which failed for good"},
	{name: "undecided", cause: causeUndecided, says: "waits for what {needs} may create"},
	{name: "needs", cause: causeDependencies, says: "waits for {needs}"},
}

// remedies are what helps after an error of a type.
var remedies = map[string]string{
	networkErrorType:    startYourHandler + ", then reset it",
	workerLostType:      "find out why its worker does not respond, then reset it",
	schemaMismatchType:  "fix its handler so that the result fits result_schema, then reset it",
	invalidOutcomeType:  "fix its handler so that it decides what the template allows, then reset it",
	invalidResultType:   "fix its handler so that the reply is a result, then reset it",
	resultTooLargeType:  "make the result smaller or worker.max_result_bytes larger, then reset it",
	programUnusableType: "fix the program of its handler, then reset it",
	invalidHandlerType:  "map its callable in [worker.handlers], then reset it",
}

// step explains an unfinished step.
func (x *explainer) step(i int) stepExplanation {
	t, s, def := x.t, &x.t.steps[i], x.t.def(i)
	e := stepExplanation{
		StepUUID: t.stepID(i), Name: def.name, CurrentState: s.state.String(), WaitsFor: []string{},
		Actions: []string{}, Attempt: s.attempts + 1, MaxAttempts: max(s.maxAttempts, 1), Callable: def.shown,
	}
	name, holes := x.situation(&e, i)
	said := sentences[slices.IndexFunc(sentences, func(s sentence) bool { return s.name == name })]
	fill := x.fill(&e, s, holes)
	e.Cause, e.Message, e.Remedy = said.cause, fill(said.says), fill(said.remedy)
	if !said.blocked || len(x.failed)+len(x.dropped) == 0 {
		for _, a := range said.actions {
			e.Actions = append(e.Actions, a.String())
		}
	}
	if c := s.checkpoint; c != nil {
		e.Message += fmt.Sprintf(", and continues from checkpoint %d, made %s", c.number, agoFor(c.at, x.now))
	}
	x.freeze(&e, i)
	if due := t.answerDue(i); due != 0 && t.hold == nil {
		e.Message += fmt.Sprintf(", and waits for an answer until %s, %s", dayOf(due, x.now), inFor(due, x.now))
		e.DueAt = cmp.Or(e.DueAt, zonedTime(due))
	}
	if e.Remedy != "" {
		e.Message += "; " + e.Remedy
	}
	return e
}

// fill returns what fills the holes of a sentence: those that a situation has, and those of every step.
func (x *explainer) fill(e *stepExplanation, s *step, holes []string) func(text string) string {
	r := strings.NewReplacer(append(holes,
		"{n}", strconv.Itoa(s.attempts), "{max}", strconv.Itoa(e.MaxAttempts), "{why}", x.failure(s), "{callable}", e.Callable,
		"{status}", x.t.state.String(), "{due}", inFor(instant(e.DueAt), x.now), "{needs}", quotedNames(e.WaitsFor))...)
	return r.Replace
}

// situation returns the name of the sentence for a step, with what fills its own holes. Each state has its situations;
// the first that applies counts.
func (x *explainer) situation(e *stepExplanation, i int) (name string, holes []string) {
	s := &x.t.steps[i]
	ago := func(at instant) []string { return []string{"{ago}", agoFor(at, x.now)} }
	switch {
	case x.t.hold != nil:
		return "held", nil
	case s.state == stepInError && s.last != nil && s.last.forNobody:
		e.Attempt = s.attempts
		return "unanswered", append(ago(s.failed), "{batch}", x.alsoFailed(i))
	case s.state == stepInError:
		e.Attempt = s.attempts
		f, _ := s.last.fault()
		fix := cmp.Or(remedies[f.errorType], "fix what failed, then reset it")
		return "failed", append(ago(cmp.Or(s.failed, s.updated)), "{batch}", x.alsoFailed(i), "{fix}", fix)
	case s.state == stepInProgress:
		e.Attempt, e.Since = s.attempts, zonedTime(s.attempted)
		switch _, runs := x.running[i]; {
		case s.lease != nil:
			e.DueAt = zonedTime(s.lease.until)
			return "claimed", append(ago(s.attempted), "{worker}", s.lease.worker)
		case !runs:
			return "cut off", nil
		}
		e.DueAt = zonedTime(s.attempted.add(time.Duration(x.t.def(i).timeoutSeconds) * time.Second))
		return "running", []string{"{for}", roughly(x.now.sub(s.attempted))}
	case s.state == stepWaitingForRetry && !x.stopped() && x.t.answers[i] != 0 && x.t.answers[i] <= s.retryAt:
		return "last", ago(s.failed)
	case s.state == stepWaitingForRetry:
		e.DueAt = zonedTime(s.retryAt)
		f, _ := s.last.fault()
		return pick(x.stopped(), "no retry", "retry"), append(ago(s.failed), "{start}", pick(f.errorType == networkErrorType, startYourHandler+"; ", ""))
	case s.state == stepPending && s.waitingFor > 0:
		return x.needs(e, i)
	case s.state == stepPending && x.t.open(i):
		return x.undecided(e, i)
	case s.state == stepPending:
		return "stopped", x.waitsForTask(e)
	}
	e.Attempt = s.nextAttempt()
	if x.stopped() {
		return "queued", x.waitsForTask(e)
	}
	kind := x.handlers.resolve(x.t.def(i).callable).kind
	switch pool := x.pool(kind); {
	case x.batches[i] > 0:
		return "batch", []string{"{running}", strconv.Itoa(x.batches[i]), "{most}", strconv.Itoa(x.t.def(i).batch.parallelism)}
	case kind == outsideActor:
		waited := x.now.sub(s.updated)
		_, failed := s.last.fault()
		return pick(failed, "again", "outside"), []string{"{quoted}", strconv.Quote(e.Callable), "{answer}", x.advice.about(x.t.def(i)),
			"{waited}", pick(waited < time.Minute, "less than 1 min", roughly(waited))}
	case x.absent[i] != "":
		return "absent", []string{"{absent}", x.absent[i]}
	case x.exhausted[pool]:
		return "slot", []string{"{slots}", strconv.Itoa(pool.size), "{kind}", pool.what}
	}
	return "starting", nil
}

// freeze says how far a frozen clock must be advanced, if a step waits for it. Handlers run in real time, whatever the
// clock does, but builtins and stubs that wait do so by the clock.
func (x *explainer) freeze(e *stepExplanation, i int) {
	due := instant(e.DueAt)
	if e.Cause == causeRunning {
		due = x.running[i]
	}
	if x.frozen && due != 0 {
		e.Remedy = "the clock is frozen: nothing comes due until it is advanced by " + roughly(due.sub(x.now))
	}
}

// batchParts counts the instances of a batch worker.
type batchParts struct{ all, failed int }

// alsoFailed says how many other parts of its batch failed, if a step is one of several parts, or returns "".
func (x *explainer) alsoFailed(i int) string {
	n := x.parts[x.t.declared(i)]
	if x.t.def(i).kind != stepBatchWorker || n.all == 1 {
		return ""
	}
	return fmt.Sprintf(", as did %s of the %d parts of its batch", pick(n.failed == 1, "no other", fmt.Sprint(n.failed-1, " more")), n.all)
}

// maxShownError is how many bytes of an error's headline an explanation shows.
const maxShownError = 1000

// failure returns why the latest attempt of a step failed, as the end of a sentence.
func (x *explainer) failure(s *step) string {
	f, failed := s.last.fault()
	switch {
	case !failed:
		return ""
	case !x.errors:
		return " (" + f.errorType + ")"
	}
	return ": " + withoutType(f.shown(), f.errorType) + " (" + f.errorType + ")"
}

func (f *stepFault) shown() string { return clipText(headline(f.text()), maxShownError) }

// attemptFailed says that an attempt of a step failed at an instant, why, and when the next one starts. Without messages
// it names the type of the error alone.
func attemptFailed(end *ending, attempt, most int, at instant, messages bool) string {
	f, _ := end.fault()
	why, next := f.shown(), "not tried again"
	switch wait := end.retryAt.sub(at); {
	case end.retryAt == 0:
	case wait <= 0:
		next = "again at once"
	case wait < 2*time.Second:
		next = fmt.Sprintf("again in %.2g s", wait.Seconds())
	default:
		next = "again in " + roughly(wait)
	}
	return fmt.Sprintf("attempt %d of %d failed%s; %s", attempt, max(most, 1), pick(messages && why != "", ": "+why, " ("+f.errorType+")"), next)
}

// stopped reports whether no step of the task may start.
func (x *explainer) stopped() bool {
	return x.t.state == taskBlockedByFailures || x.t.state == taskError
}

// needs explains a step with parents that are not done.
func (x *explainer) needs(e *stepExplanation, i int) (name string, holes []string) {
	first, at := "", instant(0)
	name = "needs"
	for _, p := range x.t.parents(i) {
		// A cancelled parent counts more than a failed one: the operator must act on this step,
		// because the parent will never be complete.
		switch s := x.t.steps[p].state; {
		case x.t.satisfies(p):
			continue
		case s == stepCancelled && name != "cancelled":
			name, first, at = "cancelled", x.t.def(p).name, x.t.steps[p].completed
		case s == stepInError && name == "needs":
			name, first = "parent", x.t.def(p).name
		}
		e.WaitsFor = append(e.WaitsFor, x.t.def(p).name)
	}
	return name, []string{"{first}", strconv.Quote(first), "{ago}", agoFor(at, x.now)}
}

// undecided explains a step whose parents are done, while others may be added.
func (x *explainer) undecided(e *stepExplanation, i int) (name string, holes []string) {
	name = "undecided"
	for _, d := range x.t.deciders(i) {
		e.WaitsFor = append(e.WaitsFor, x.t.def(d).name)
		if name == "undecided" && x.t.steps[d].state == stepInError {
			name, holes = "decider", []string{"{first}", strconv.Quote(x.t.def(d).name)}
		}
	}
	return name, holes
}

// waitsForTask explains a step that is ready while its task is stopped.
func (x *explainer) waitsForTask(e *stepExplanation) (holes []string) {
	e.WaitsFor = append(append(e.WaitsFor, x.failed...), x.dropped...)
	if len(e.WaitsFor) == 0 {
		return []string{"{stoppers}", ""}
	}
	return []string{"{stoppers}", ", because " + x.stoppedBy()}
}

// Times, for people.

// roughly writes a duration in the largest unit that fits into it at least twice.
func roughly(d time.Duration) string {
	for _, u := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "days"}, {time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if d >= 2*u.length {
			return fmt.Sprintf("%d %s", d/u.length, u.name)
		}
	}
	return pick(d < time.Second, "less than 1 s", "1 s")
}

// agoFor says how long ago an instant was, to the minute.
func agoFor(at, now instant) string {
	if now.sub(at) < time.Minute {
		return "just now"
	}
	return roughly(now.sub(at)) + " ago"
}

// dayOf writes an instant to the minute, by the day of the week if it is in the next six days.
func dayOf(at, now instant) string {
	return at.time().Format(pick(at.sub(now) < 6*24*time.Hour, "Mon 15:04 UTC", "2 Jan 2006 15:04 UTC"))
}

// inFor says when something is due.
func inFor(at, now instant) string {
	if at <= now {
		return "now"
	}
	return "in " + roughly(at.sub(now))
}

// The log of causes: each is logged once, when it arises. That is under the store's lock: a logger must not wait for its output.

const maxCallables = 1000 // callables that are remembered as logged, for each kind of line

// outsideKey names steps that wait for an outside actor: logged once, not for each task.
type outsideKey struct {
	tpl      *template
	callable string
}

// causeLog logs why tasks make no progress.
type causeLog struct {
	log      *slog.Logger
	advice   actorAdvice
	messages bool       // whether messages of errors are logged
	stopped  slog.Level // level of lines about tasks that are blocked or ended as stale
	scarce   sync.Once  // of the line about descriptors

	outside map[outsideKey]bool // guarded by the store's lock
}

func (l *causeLog) print(level slog.Level, message string, args ...any) {
	l.log.Log(context.Background(), level, message, args...)
}

func (l *causeLog) enabled(level slog.Level) bool { return l.log.Enabled(context.Background(), level) }

// outOfDescriptors logs once that handlers cannot begin.
func (l *causeLog) outOfDescriptors(why string) {
	l.scarce.Do(func() {
		l.print(slog.LevelWarn, "the process has too many open files: handlers wait to start", "error", why)
	})
}

// attemptFailed logs that the latest attempt of a step has failed.
func (l *causeLog) attemptFailed(t *task, i int, at instant) {
	if !l.enabled(slog.LevelInfo) {
		return
	}
	s := &t.steps[i]
	l.print(slog.LevelInfo, "an attempt failed", "task_uuid", t.id, "template", t.tpl.fullName(), "step", t.def(i).name,
		"cause", attemptFailed(s.last, s.attempts, s.maxAttempts, at, l.messages))
}

// awaitsActor logs that a step waits for an outside actor, once for each template and callable.
func (l *causeLog) awaitsActor(t *task, i int) {
	k := outsideKey{t.tpl, t.def(i).callable}
	if l.outside[k] || len(l.outside) >= maxCallables {
		return
	}
	l.outside[k] = true
	l.print(slog.LevelInfo, "a step waits for an outside actor; others with this callable will, too", "task_uuid", t.id,
		"template", t.tpl.fullName(), "step", t.def(i).name, "callable", t.def(i).shown, "remedy", l.advice.about(t.def(i)))
}

// logStoppedLocked logs that a task is blocked, or ended as stale.
func (e *engine) logStoppedLocked(message string, t *task) {
	l := e.causes
	if !l.enabled(l.stopped) {
		return
	}
	x := e.explainerLocked(t.id, l.messages)
	// The task itself, not a copy: the lock is held until the message is made.
	x.t, x.brief = t, t.state == taskBlockedByFailures
	why := x.task()
	args := []any{"task_uuid", t.id, "template", t.tpl.fullName()}
	if why.lead != nil {
		args = append(args, "step", why.lead.Name, "attempt", why.lead.Attempt)
		i, _ := t.stepIndex(why.lead.StepUUID)
		if f, failed := t.steps[i].last.fault(); failed {
			args = append(args, "error_type", f.errorType)
			if l.messages {
				args = append(args, "error", f.text())
			}
		}
	}
	l.print(l.stopped, message, append(args, "cause", why.Message)...)
}
