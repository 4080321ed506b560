package main

// Both state machines as data: the states, the events, and the two tables that
// say where an event leads. Nothing else in the program decides that. Then the whole state of
// a task as one line.

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
)

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

// ended reports whether the task is over. A task in error is over until an
// operator acts.
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
	taskStale                   // the task is stale, and its template has it moved to error
	taskCancel                  // the task was cancelled
	taskEvents                  // how many there are
	noTaskState       = taskState(255)
)

var taskEventNames = [taskEvents]string{
	"start", "ready_steps_found", "no_steps", "none_ready", "steps_enqueued", "enqueue_failed", "step_changed",
	"all_successful", "only_retries_due", "still_running", "step_failed", "unblocked", "stale", "cancel",
}

func (e taskEvent) String() string { return taskEventNames[e] }

// transition is a row of a table: a transition that is allowed.
type transition[S, E ~uint8] struct {
	from  S
	event E
	to    S
}

// tableOf returns the state that follows each state and event, none where the
// event is not allowed.
func tableOf[S, E ~uint8](states S, events E, none S, rows []transition[S, E]) [][]S {
	table := make([][]S, states)
	for s := range table {
		table[s] = slices.Repeat([]S{none}, int(events))
	}
	for _, r := range rows {
		table[r.from][r.event] = r.to
	}
	return table
}

// taskTable is the task table.
var taskTable = tableOf(taskStates, taskEvents, noTaskState, []transition[taskState, taskEvent]{
	{taskPending, taskStart, taskInitializing},

	{taskInitializing, taskReadyFound, taskEnqueuingSteps},
	{taskInitializing, taskNoSteps, taskComplete},
	{taskInitializing, taskNoneReady, taskWaitingForDependencies},

	{taskEnqueuingSteps, taskEnqueued, taskStepsInProcess},
	{taskEnqueuingSteps, taskEnqueueFailed, taskError},

	{taskStepsInProcess, taskStepChanged, taskEvaluatingResults},
	{taskWaitingForDependencies, taskStepChanged, taskEvaluatingResults},
	{taskWaitingForRetry, taskStepChanged, taskEvaluatingResults},

	{taskEvaluatingResults, taskAllSuccessful, taskComplete},
	{taskEvaluatingResults, taskReadyFound, taskEnqueuingSteps},
	{taskEvaluatingResults, taskOnlyRetries, taskWaitingForRetry},
	{taskEvaluatingResults, taskStillRunning, taskStepsInProcess},
	{taskEvaluatingResults, taskNoneReady, taskWaitingForDependencies},
	{taskEvaluatingResults, taskStepFailed, taskBlockedByFailures},

	{taskBlockedByFailures, taskUnblocked, taskEvaluatingResults},
	{taskError, taskUnblocked, taskEvaluatingResults},

	{taskStepsInProcess, taskStale, taskError},
	{taskWaitingForDependencies, taskStale, taskError},
	{taskWaitingForRetry, taskStale, taskError},
	{taskBlockedByFailures, taskStale, taskError},

	{taskPending, taskCancel, taskCancelled},
	{taskInitializing, taskCancel, taskCancelled},
	{taskEnqueuingSteps, taskCancel, taskCancelled},
	{taskStepsInProcess, taskCancel, taskCancelled},
	{taskEvaluatingResults, taskCancel, taskCancelled},
	{taskWaitingForDependencies, taskCancel, taskCancelled},
	{taskWaitingForRetry, taskCancel, taskCancelled},
	{taskBlockedByFailures, taskCancel, taskCancelled},
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

// finished reports whether nothing remains to be done for the step. A failed
// step is not finished.
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
	stepYield                // it is to go on from a checkpoint
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
	"enqueue", "start", "succeed", "fail", "recover", "yield", "processed", "retry", "give_up", "due",
	"reset", "complete_manually", "resolve_manually", "cancel",
}

func (e stepEvent) String() string { return stepEventNames[e] }

// stepTable is the step table.
var stepTable = tableOf(stepStates, stepEvents, noStepState, []transition[stepState, stepEvent]{
	{stepPending, stepEnqueue, stepEnqueued},
	{stepEnqueued, stepStart, stepInProgress},
	{stepInProgress, stepSucceed, stepEnqueuedForOrchestration},
	{stepInProgress, stepFail, stepEnqueuedAsError},
	{stepInProgress, stepRecover, stepEnqueued},
	{stepInProgress, stepYield, stepEnqueued},
	{stepEnqueuedForOrchestration, stepProcessed, stepComplete},
	{stepEnqueuedAsError, stepRetry, stepWaitingForRetry},
	{stepEnqueuedAsError, stepGiveUp, stepInError},
	{stepWaitingForRetry, stepDue, stepPending},
	{stepInError, stepReset, stepPending},

	{stepPending, stepCompleteBy, stepComplete},
	{stepEnqueued, stepCompleteBy, stepComplete},
	{stepInProgress, stepCompleteBy, stepComplete},
	{stepEnqueuedForOrchestration, stepCompleteBy, stepComplete},
	{stepEnqueuedAsError, stepCompleteBy, stepComplete},
	{stepWaitingForRetry, stepCompleteBy, stepComplete},
	{stepInError, stepCompleteBy, stepComplete},
	{stepResolvedManually, stepCompleteBy, stepComplete},

	{stepPending, stepResolveBy, stepResolvedManually},
	{stepEnqueued, stepResolveBy, stepResolvedManually},
	{stepInProgress, stepResolveBy, stepResolvedManually},
	{stepEnqueuedForOrchestration, stepResolveBy, stepResolvedManually},
	{stepEnqueuedAsError, stepResolveBy, stepResolvedManually},
	{stepWaitingForRetry, stepResolveBy, stepResolvedManually},
	{stepInError, stepResolveBy, stepResolvedManually},
	{stepResolvedManually, stepResolveBy, stepResolvedManually},

	{stepPending, stepCancel, stepCancelled},
	{stepEnqueued, stepCancel, stepCancelled},
	{stepInProgress, stepCancel, stepCancelled},
	{stepEnqueuedForOrchestration, stepCancel, stepCancelled},
	{stepEnqueuedAsError, stepCancel, stepCancelled},
	{stepWaitingForRetry, stepCancel, stepCancelled},
	{stepInError, stepCancel, stepCancelled},
})

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

// momentOf returns when a step entered a state by a record of the time at, and
// in which attempt; started is when the attempt began, if the record begins
// one.
func (t *task) momentOf(i int, to stepState, at, started instant) (instant, int) {
	s := &t.steps[i]
	switch {
	case to != stepInProgress:
		return at, s.attempts
	case s.redeliver:
		return started, s.attempts
	}
	return started, s.attempts + 1 // the move comes before the count
}

// The six statuses by which the mount-point API groups the states of tasks and
// steps.

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

func parseBriefStatus(name string) (briefStatus, bool) {
	return parseWord[briefStatus](name, briefStatusNames[:])
}

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

// states returns the states that the status stands for.
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

// endedStates are the states of a task that is over.
var endedStates = setOf(taskComplete, taskError, taskCancelled, taskResolvedManually)

// anyState holds every state: a wait for it is over at once.
const anyState = stateSet(1<<taskStates - 1)

// A whole task as one line of JSON: the form of an ended task in memory, and of
// every task in the snapshot.
//
//	{"task":"…","state":"complete","created":…,"updated":…,"completed":…,"template":"…","seq":7,"last":12,
//	 "steps":{"complete":4},"log":[{record},…]}
//
// A task with entries in the dead letter queue has, before its log,
//
//	"dlq":[{"seq":9,"at":…,"reason":"max_retries_exceeded","state":"blocked_by_failures","status":"pending"},…]
//
// and a task with steps that its template does not declare has "last_id", the
// greatest id of those. Everything before the log can be read without it.

const taskHead = `{"task":"`

// taskHeader is the part of a line that can be read without applying its log.
type taskHeader struct {
	id        uuid
	state     taskState
	created   instant
	updated   instant
	completed instant
	template  string // its hash
	seq       uint64
	lastSeq   uint64
	counts    [stepStates]int
	dead      []letterHeader
	lastID    uuid   // greatest id of a step that the template does not declare; zero without one
	log       []byte // JSON array of records; a slice of the line
}

// sumLength is the length of `,"sum":"xxxxxxxx"}`, the end of a line on disk.
const sumLength = 18

func (h *taskHeader) members(c *memberCoder) {
	c.id("task", &h.id)
	word(c, "state", &h.state, taskStateNames[:])
	nonzero(c, "created", &h.created)
	nonzero(c, "updated", &h.updated)
	nonzero(c, "completed", &h.completed)
	c.text("template", &h.template)
	nonzero(c, "seq", &h.seq)
	nonzero(c, "last", &h.lastSeq)
	var in memberCoder
	if c.enter("steps", true, &in) {
		for s := range h.counts {
			nonzero(&in, stepStateNames[s], &h.counts[s])
		}
		c.leave(&in)
	}
	h.letters(c)
	c.id("last_id", &h.lastID)
}

// letters are the entries in the dead letter queue, left out if there are none.
func (h *taskHeader) letters(c *memberCoder) {
	if c.reading {
		c.eachElement("dlq", func(raw []byte) {
			var in memberCoder
			in.second = c.second
			in.open(raw)
			h.dead = append(h.dead, letterHeader{})
			h.dead[len(h.dead)-1].members(&in)
			c.leave(&in)
		})
		return
	}
	for i := range h.dead {
		if i == 0 {
			c.b = appendName(c.b, "dlq")
		}
		in := memberCoder{b: append(c.b, "[,"[min(i, 1)], '{')}
		h.dead[i].members(&in)
		c.leave(&in)
	}
	if len(h.dead) > 0 {
		c.b = append(c.b, ']')
	}
}

func (l *letterHeader) members(c *memberCoder) {
	nonzero(c, "seq", &l.seq)
	nonzero(c, "at", &l.at)
	word(c, "reason", &l.reason, dlqReasonWords[:])
	word(c, "state", &l.state, taskStateNames[:])
	word(c, "status", &l.status, dlqStatusWords[:])
	nonzero(c, "resolved", &l.resolved)
}

// header returns the task's header, without its log.
func (t *task) header() taskHeader {
	h := taskHeader{
		id: t.id, state: t.state, created: t.created, updated: t.updated, completed: t.completed,
		template: t.tpl.hash, seq: t.seq, lastSeq: t.lastSeq, counts: t.counts, dead: t.letterHeaders(),
	}
	if t.plan != nil {
		h.lastID = t.plan.lastID()
	}
	return h
}

// appendTaskLine appends the line, without a checksum.
func (t *task) appendTaskLine(b []byte) []byte {
	h, c := t.header(), memberCoder{b: append(b, '{')}
	h.members(&c)
	b = append(append(c.b, `,"log":[`...), t.log...)
	return append(b, ']', '}')
}

// lineID returns the id of the task in a line.
func lineID(line []byte) (uuid, bool) {
	if len(line) < len(taskHead)+36 {
		return uuid{}, false
	}
	return parseUUID(line[len(taskHead) : len(taskHead)+36])
}

// lineNumber returns the number after a name of the line, which is one of its header: no
// text from outside comes before it. It returns 0 if there is none.
func lineNumber(line []byte, name string) (n uint64) {
	for _, c := range line[max(bytes.Index(line, []byte(name)), 0):][min(len(name), len(line)):] {
		if c < '0' || c > '9' {
			break
		}
		n = 10*n + uint64(c-'0')
	}
	return n
}

// taskMember is the length of `"task":"…"`, with which the members of a record
// about a task begin.
const taskMember = 45

// appendLog adds a record to the task's own log, which leaves out the task's id.
// The members are those of appendRecordMembers.
func (t *task) appendLog(seq uint64, members []byte) {
	if len(t.log) > 0 {
		t.log = append(t.log, ',')
	}
	t.log = strconv.AppendUint(append(t.log, `{"seq":`...), seq, 10)
	t.log = append(append(t.log, members[taskMember:]...), '}')
}

// compactLog removes superseded checkpoints from the task's log, once they are half of it or
// the task is over: of each step the newest one stays, and of the deliveries that ended with
// the others nothing. A replay gives the same task.
func (t *task) compactLog() {
	if t.superseded == 0 || !t.state.ended() && t.superseded < len(t.log)/2 {
		return
	}
	t.superseded = 0
	dropped := supersededIn(t.log)
	kept := make([]byte, 0, len(t.log))
	n := 0
	eachLogEntry(t.log, func(entry []byte) {
		if !dropped[n] {
			if len(kept) > 0 {
				kept = append(kept, ',')
			}
			kept = append(kept, entry...)
		}
		n++
	})
	t.log = kept
}

// supersededIn returns the entries of a log, by number, that belong to superseded checkpoints.
func supersededIn(log []byte) map[int]bool {
	dropped := map[int]bool{}
	begun, newest := map[int64][]int{}, map[int64][]int{} // by step: entries of its delivery, of its newest checkpoint
	n := 0
	eachLogEntry(log, func(entry []byte) {
		step, _ := jsonInt(objectMember(entry, "step"))
		kind, _ := jsonString(objectMember(entry, "kind"))
		switch kind {
		case recStarted.String(), recClaimed.String():
			begun[step] = []int{n}
		case recExtended.String():
			begun[step] = append(begun[step], n)
		case recCheckpoint.String():
			for _, i := range newest[step] {
				dropped[i] = true
			}
			newest[step], begun[step] = append(begun[step], n), nil
		case recAdjusted.String(), recLate.String(), recDLQUpdate.String():
		default:
			begun[step] = nil
		}
		n++
	})
	return dropped
}

// eachLogEntry calls f for each record of a log.
func eachLogEntry(log []byte, f func(entry []byte)) {
	for i := skipJSONSpace(log, 0); i < len(log); {
		end := skipJSONValue(log, i)
		f(log[i:end:end])
		i = skipJSONSpace(log, min(skipJSONSpace(log, end)+1, len(log)))
	}
}

// cutSum removes the checksum from a checked line of the snapshot, in place.
func cutSum(line []byte) []byte {
	line = bytes.TrimRight(line, "\n")
	line[len(line)-sumLength] = '}'
	return line[:len(line)-sumLength+1]
}

// readTaskHeader reads a line's members and keeps its log as it is.
func readTaskHeader(line []byte) (h taskHeader, err error) {
	var c memberCoder
	for c.again(line) {
		h = taskHeader{}
		h.members(&c)
		c.raw("log", &h.log)
	}
	if err = c.err; err == nil && (h.id.isZero() || h.log == nil || h.template == "") {
		err = fmt.Errorf("a task must have its id, template and log")
	}
	return h, err
}

// readTaskHead is readTaskHeader without scanning the log, whatever its length.
func readTaskHead(line []byte) (taskHeader, error) {
	const log = `,"log":`
	i := bytes.Index(line, []byte(log)) // no text from outside comes before it
	if i < 0 {
		return readTaskHeader(line)
	}
	h, err := readTaskHeader(append(line[:i:i], log+"[]}"...))
	h.log = line[i+len(log) : len(line)-1]
	return h, err
}

// keys returns the task's identity and the mark of the request that created it;
// zero for none. They were checked when they were read or made.
func (h *taskHeader) keys() (identity identityKey, request requestMark) {
	eachElement(h.log, func(e []byte) bool {
		eachMemberBytes(e, func(key, value []byte) bool {
			switch string(key) {
			case "identity":
				hex.Decode(identity[:], value[1:len(value)-1])
			case "request":
				mark := value[1 : len(value)-1]
				hex.Decode(request.body[:], mark[2*len(request.key):])
				hex.Decode(request.key[:], mark[:2*len(request.key)])
			}
			return true
		})
		return false
	})
	return identity, request
}

// creationRecord returns the first record of the task's log.
func (h *taskHeader) creationRecord() (r *record, err error) {
	eachElement(h.log, func(e []byte) bool {
		r, err = decodeRecord(e)
		return false
	})
	if err == nil && (r == nil || r.kind != recCreated) {
		err = fmt.Errorf("task %s: its log does not begin with its creation", h.id)
	}
	return r, err
}

// replayer is an observer of a replay: it is also told each record before the
// record is applied.
type replayer interface {
	observer
	startRecord(t *task, r *record)
}

// replay rebuilds the task by applying its log.
func (h *taskHeader) replay(tpl *template, obs replayer) (*task, error) {
	return replayRecords(h.id, tpl, h.log[1:len(h.log)-1:len(h.log)-1], obs)
}

// replayRecords rebuilds a task by applying its records, which are separated by commas.
func replayRecords(id uuid, tpl *template, log []byte, obs replayer) (t *task, err error) {
	n := 0
	for i := skipJSONSpace(log, 0); i < len(log) && err == nil; n++ {
		end := skipJSONValue(log, i)
		t, err = t.replayed(id, tpl, log[i:end:end], obs)
		i = skipJSONSpace(log, min(skipJSONSpace(log, end)+1, len(log)))
	}
	if err != nil {
		err = &logError{n - 1, err}
	} else if t == nil {
		err = fmt.Errorf("its log is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", id, err)
	}
	t.log = log
	return t, nil
}

// replayed returns the task after one more record; it is nil before the first.
func (t *task) replayed(id uuid, tpl *template, text []byte, obs replayer) (*task, error) {
	r, err := decodeRecord(text)
	if err != nil {
		return nil, err
	}
	r.task = id
	if t == nil {
		if r.kind != recCreated {
			return nil, fmt.Errorf("its log does not begin with its creation")
		}
		t = newTask(r, tpl)
	}
	obs.startRecord(t, r)
	return t, t.apply(r, obs)
}

// unobserved is the observer of a replay whose transitions nobody needs.
type unobserved struct{}

func (unobserved) startRecord(*task, *record) {}

func (unobserved) taskMoved(*task, taskState, taskState, instant) {}

func (unobserved) stepMoved(*task, int, stepState, stepState, instant) {}

// logError is an error about one record of a task's log.
type logError struct {
	at  int
	err error
}

func (e *logError) Error() string { return fmt.Sprintf("log[%d]: %v", e.at, e.err) }

func (e *logError) Unwrap() error { return e.err }
