package main

// Both state machines as data: the states, the events, and the two tables that say where an event
// leads. Nothing else in the program decides that.

import "slices"

// taskState is one of the twelve states of a task.
type taskState uint8

const (
	taskPending taskState = iota
	taskInitializing
	taskEnqueuingSteps
	taskStepsInProcess
	taskEvaluatingResults
	taskWaitingForDependencies
	taskWaitingForRetry
	taskBlockedByFailures
	taskComplete
	taskError
	taskCancelled
	taskResolvedManually
	taskStates // how many there are
)

var taskStateNames = [taskStates]string{
	"pending", "initializing", "enqueuing_steps", "steps_in_process", "evaluating_results",
	"waiting_for_dependencies", "waiting_for_retry", "blocked_by_failures",
	"complete", "error", "cancelled", "resolved_manually",
}

func (s taskState) String() string { return taskStateNames[s] }

// ended reports whether the task is over. A task in error is over until an operator acts.
func (s taskState) ended() bool { return s >= taskComplete }

// final reports whether nothing can move the task any more.
func (s taskState) final() bool { return s.ended() && s != taskError }

// parseTaskState finds a state by its name in records and filters.
func parseTaskState(name string) (taskState, bool) {
	return parseWord[taskState](name, taskStateNames[:])
}

// parseWord finds the value that a word names in one of the lists of names.
func parseWord[T ~uint8](word string, lists ...[]string) (T, bool) {
	for _, names := range lists {
		if i := slices.Index(names, word); i >= 0 {
			return T(i), true
		}
	}
	return 0, false
}

// taskEvent is something that can happen to a task.
type taskEvent uint8

const (
	taskStart         taskEvent = iota
	taskReadyFound              // ready steps were found
	taskNoSteps                 // the template has no steps
	taskNoneReady               // no step is ready, due or running
	taskEnqueued                // the ready steps were enqueued
	taskEnqueueFailed           // the ready steps could not be enqueued
	taskStepChanged             // a step ended, an operator or actor acted, or a retry is due
	taskAllSuccessful           // every step is complete or resolved
	taskOnlyRetries             // nothing is left but retries that are due later
	taskStillRunning            // a step runs or waits for an actor
	taskStepFailed              // a step failed for good
	taskUnblocked               // an operator dealt with the failed step, and no other is in error
	taskStale                   // the task is stale, and its template says to move it to error
	taskCancel                  // the task was cancelled
	taskEvents                  // how many there are
	noTaskState       = taskState(255)
)

var taskEventNames = [taskEvents]string{
	"start", "ready_steps_found", "no_steps", "none_ready", "steps_enqueued", "enqueue_failed", "step_changed",
	"all_successful", "only_retries_due", "still_running", "step_failed", "unblocked", "stale", "cancel",
}

func (e taskEvent) String() string { return taskEventNames[e] }

// transition is a key of a table: an event and the state that it leads to. The value lists the states
// in which the event is allowed.
type transition[S, E ~uint8] struct {
	event E
	to    S
}

// tableOf returns the state that follows each state and event, none where the event is not allowed.
func tableOf[S, E ~uint8](states S, events E, none S, rows map[transition[S, E]][]S) [][]S {
	table := make([][]S, states)
	for s := range table {
		table[s] = slices.Repeat([]S{none}, int(events))
	}
	for row, froms := range rows {
		for _, from := range froms {
			table[from][row.event] = row.to
		}
	}
	return table
}

// taskTable is the task table.
var taskTable = tableOf(taskStates, taskEvents, noTaskState, map[transition[taskState, taskEvent]][]taskState{
	{taskStart, taskInitializing}: {taskPending},

	{taskReadyFound, taskEnqueuingSteps}:        {taskInitializing, taskEvaluatingResults},
	{taskNoSteps, taskComplete}:                 {taskInitializing},
	{taskNoneReady, taskWaitingForDependencies}: {taskInitializing, taskEvaluatingResults},
	{taskEnqueued, taskStepsInProcess}:          {taskEnqueuingSteps},
	{taskEnqueueFailed, taskError}:              {taskEnqueuingSteps},

	{taskStepChanged, taskEvaluatingResults}: {taskStepsInProcess, taskWaitingForDependencies, taskWaitingForRetry},
	{taskAllSuccessful, taskComplete}:        {taskEvaluatingResults},
	{taskOnlyRetries, taskWaitingForRetry}:   {taskEvaluatingResults},
	{taskStillRunning, taskStepsInProcess}:   {taskEvaluatingResults},
	{taskStepFailed, taskBlockedByFailures}:  {taskEvaluatingResults},
	{taskUnblocked, taskEvaluatingResults}:   {taskBlockedByFailures, taskError},

	{taskStale, taskError}: {
		taskStepsInProcess, taskWaitingForDependencies, taskWaitingForRetry, taskBlockedByFailures,
	},
	{taskCancel, taskCancelled}: {
		taskPending, taskInitializing, taskEnqueuingSteps, taskStepsInProcess, taskEvaluatingResults,
		taskWaitingForDependencies, taskWaitingForRetry, taskBlockedByFailures,
	},
})

// stepState is one of the ten states of a step.
type stepState uint8

const (
	stepPending stepState = iota
	stepEnqueued
	stepInProgress
	stepEnqueuedForOrchestration
	stepEnqueuedAsError
	stepWaitingForRetry
	stepComplete
	stepInError
	stepCancelled
	stepResolvedManually
	stepStates // how many there are
)

var stepStateNames = [stepStates]string{
	"pending", "enqueued", "in_progress", "enqueued_for_orchestration", "enqueued_as_error_for_orchestration",
	"waiting_for_retry", "complete", "error", "cancelled", "resolved_manually",
}

func (s stepState) String() string { return stepStateNames[s] }

// satisfies reports whether a parent in this state lets its children run.
func (s stepState) satisfies() bool { return s == stepComplete || s == stepResolvedManually }

// finished reports whether nothing remains to be done for the step. A failed step is not finished.
func (s stepState) finished() bool { return s.satisfies() || s == stepCancelled }

func parseStepState(name string) (stepState, bool) {
	return parseWord[stepState](name, stepStateNames[:])
}

// stepEvent is something that can happen to a step.
type stepEvent uint8

const (
	stepEnqueue    stepEvent = iota
	stepStart                // a worker starts it, or an actor claims it
	stepSucceed              // the attempt succeeded
	stepFail                 // the attempt failed
	stepRecover              // its worker was lost with this process
	stepYield                // it is to continue from a checkpoint
	stepUndeliver            // nothing of it could be sent to its handler
	stepAssume               // nobody answered in time, and the template says what holds then
	stepExpire               // nobody answered in time
	stepProcessed            // the result is recorded
	stepRetry                // the failure is retryable, and attempts are left
	stepGiveUp               // the failure is not retryable, or no attempt is left
	stepDue                  // the back-off is over
	stepReset                // an operator resets it
	stepCompleteBy           // an operator completes it with a result
	stepResolveBy            // an operator resolves it
	stepCancel               // it, or its task, was cancelled
	stepEvents               // how many there are
	noStepState    = stepState(255)
)

var stepEventNames = [stepEvents]string{
	"enqueue", "start", "succeed", "fail", "recover", "yield", "undeliver", "assume", "expire", "processed", "retry", "give_up", "due",
	"reset", "complete_manually", "resolve_manually", "cancel",
}

func (e stepEvent) String() string { return stepEventNames[e] }

// stepTable is the step table.
var stepTable = tableOf(stepStates, stepEvents, noStepState, map[transition[stepState, stepEvent]][]stepState{
	{stepEnqueue, stepEnqueued}:                 {stepPending},
	{stepStart, stepInProgress}:                 {stepEnqueued},
	{stepSucceed, stepEnqueuedForOrchestration}: {stepInProgress},
	{stepFail, stepEnqueuedAsError}:             {stepInProgress},
	{stepRecover, stepEnqueued}:                 {stepInProgress},
	{stepYield, stepEnqueued}:                   {stepInProgress},
	{stepUndeliver, stepEnqueued}:               {stepInProgress},
	{stepAssume, stepComplete}:                  {stepEnqueued, stepWaitingForRetry},
	{stepExpire, stepInError}:                   {stepEnqueued, stepWaitingForRetry},
	{stepProcessed, stepComplete}:               {stepEnqueuedForOrchestration},
	{stepRetry, stepWaitingForRetry}:            {stepEnqueuedAsError},
	{stepGiveUp, stepInError}:                   {stepEnqueuedAsError},
	{stepDue, stepPending}:                      {stepWaitingForRetry},
	{stepReset, stepPending}:                    {stepInError},

	{stepCompleteBy, stepComplete}:        append(unfinishedSteps, stepResolvedManually),
	{stepResolveBy, stepResolvedManually}: append(unfinishedSteps, stepResolvedManually),
	{stepCancel, stepCancelled}:           unfinishedSteps,
})

// unfinishedSteps are the states in which an operator can end a step.
var unfinishedSteps = []stepState{
	stepPending, stepEnqueued, stepInProgress, stepEnqueuedForOrchestration, stepEnqueuedAsError,
	stepWaitingForRetry, stepInError,
}

// next returns the state that an event leads to, if the table allows the event.
func (s taskState) next(e taskEvent) (taskState, bool) {
	to := taskTable[s][e]
	return to, to != noTaskState
}

// next returns the state that an event leads to, if the table allows the event.
func (s stepState) next(e stepEvent) (stepState, bool) {
	to := stepTable[s][e]
	return to, to != noStepState
}

// momentOf returns when a step entered a state by a record of the time at, and in which attempt; started is when the
// attempt began, if the record begins one.
func (t *task) momentOf(i int, to stepState, at, started instant) (instant, int) {
	s := &t.steps[i]
	if to != stepInProgress {
		return at, s.attempts
	}
	return started, s.nextAttempt() // the move comes before the count
}

// nextAttempt returns the number that the next start of the step will have.
func (s *step) nextAttempt() int {
	if s.redeliver {
		return s.attempts
	}
	return s.attempts + 1
}

// The six statuses by which the mount-point API groups the states of tasks and steps.

// briefStatus is a state as the mount-point API shows it.
type briefStatus uint8

const (
	briefPending briefStatus = iota
	briefInProgress
	briefComplete
	briefError
	briefCancelled
	briefResolved
	briefStatuses // how many there are
)

var briefStatusNames = [briefStatuses]string{
	"pending", "in_progress", "complete", "error", "cancelled", "resolved_manually",
}

func (s briefStatus) String() string { return briefStatusNames[s] }

// taskBriefs maps the state of a task to its status.
var taskBriefs = [taskStates]briefStatus{
	taskPending:                briefPending,
	taskInitializing:           briefPending,
	taskEnqueuingSteps:         briefInProgress,
	taskStepsInProcess:         briefInProgress,
	taskEvaluatingResults:      briefInProgress,
	taskWaitingForDependencies: briefInProgress,
	taskWaitingForRetry:        briefInProgress,
	taskBlockedByFailures:      briefError,
	taskComplete:               briefComplete,
	taskError:                  briefError,
	taskCancelled:              briefCancelled,
	taskResolvedManually:       briefResolved,
}

func (s taskState) brief() briefStatus { return taskBriefs[s] }

func (b briefStatus) states() (set stateSet) {
	for s, brief := range taskBriefs {
		if brief == b {
			set |= setOf(taskState(s))
		}
	}
	return set
}

// stepBriefs maps the state of a step to its status.
var stepBriefs = [stepStates]briefStatus{
	stepPending:                  briefPending,
	stepEnqueued:                 briefPending,
	stepInProgress:               briefInProgress,
	stepEnqueuedForOrchestration: briefInProgress,
	stepEnqueuedAsError:          briefInProgress,
	stepWaitingForRetry:          briefPending,
	stepComplete:                 briefComplete,
	stepInError:                  briefError,
	stepCancelled:                briefCancelled,
	stepResolvedManually:         briefResolved,
}

func (s stepState) brief() briefStatus { return stepBriefs[s] }

// stateSet is a set of task states, a bit each.
type stateSet uint16

func setOf(states ...taskState) (set stateSet) {
	for _, s := range states {
		set |= 1 << s
	}
	return set
}

func (set stateSet) has(s taskState) bool { return set&(1<<s) != 0 }

// terminalStates are the states that a task does not leave without an operator.
var terminalStates = setOf(taskBlockedByFailures, taskComplete, taskError, taskCancelled, taskResolvedManually)

// finalStates are the states that nothing leads out of.
var finalStates = setOf(taskComplete, taskCancelled, taskResolvedManually)

// anyState holds every state: a wait for it is over at once.
const anyState = stateSet(1<<taskStates - 1)
