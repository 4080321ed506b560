package main

// Why a task does not go on: for each of its unfinished steps the one cause, and
// what would end it. The log tells the causes by the same words.

import (
	"fmt"
	"strings"
)

// stepCause is why a step is not finished.
type stepCause uint8

const (
	causeNone         stepCause = iota // it is finished
	causeFailed                        // it is in error
	causeRunning                       // an attempt runs in this process
	causeClaimed                       // an outside actor has claimed it
	causeCutOff                        // the process that ran it ended
	causeRetry                         // the next attempt is due later
	causeCancelled                     // a step it needs was cancelled
	causeParentFailed                  // a step it needs is in error
	causeDependencies                  // a step it needs is not finished
	causeUndecided                     // a step that exists already decides what else it needs
	causeTaskStopped                   // it is ready, but its task is blocked or in error
	causeOutside                       // nobody here handles it
	causeSlot                          // every slot is taken
	causeStarting                      // it starts at any moment
	stepCauses
)

var stepCauseNames = [stepCauses]string{
	"", "failed", "running", "claimed", "cut_off", "retry_scheduled", "dependency_cancelled", "dependency_failed",
	"dependencies", "decision", "task_stopped", "outside_actor", "slot", "starting",
}

func (c stepCause) String() string { return stepCauseNames[c] }

// stepExplanation is the cause of one unfinished step. What does not belong to
// the cause is null, empty or 0.
type stepExplanation struct {
	StepUUID     uuid      `json:"step_uuid"`
	Name         string    `json:"name"`
	CurrentState string    `json:"current_state"`
	Cause        string    `json:"cause"`
	Message      string    `json:"message"`
	WaitsFor     []string  `json:"waits_for"` // names of the task's steps
	Actions      []string  `json:"actions"`   // of an operator, any of which ends the cause
	Since        zonedTime `json:"since"`     // when the attempt started
	DueAt        zonedTime `json:"due_at"`    // the retry, or the attempt's timeout, or the end of its lease
	Attempt      int       `json:"attempt"`   // the one that runs, is due or comes next
	MaxAttempts  int       `json:"max_attempts"`
	Callable     string    `json:"callable"`

	cause stepCause
}

// taskExplanation is why a task does not go on.
type taskExplanation struct {
	TaskUUID uuid              `json:"task_uuid"`
	Status   string            `json:"status"`
	State    string            `json:"state,omitempty"` // at the mount point, whose statuses are coarser
	Message  string            `json:"message"`
	Steps    []stepExplanation `json:"steps"` // the unfinished ones

	state taskState
}

// slotUse is how many slots of a kind are taken, of how many.
type slotUse struct{ taken, all int }

func (u slotUse) exhausted() bool { return u.taken >= u.all }

// explainer explains one task: a copy of it, and what the engine had to do with
// it at the same moment.
type explainer struct {
	t        *task
	handlers *handlerSet
	running  map[int]bool // steps that run in this process
	local    slotUse
	web      slotUse
	failed   []string // steps in error
	dropped  []string // cancelled steps that others need
}

// explain says why a task does not go on.
func (s *service) explain(id uuid) (*taskExplanation, error) {
	x := &explainer{handlers: s.handlers, running: map[int]bool{}}
	kept, err := s.copyToExplain(id, x)
	if err != nil {
		return nil, err
	}
	if x.t = kept.live; x.t == nil {
		if x.t, err = s.store.thaw(kept.line); err != nil {
			return nil, err
		}
	}
	x.findStoppers()
	return x.task(), nil
}

// copyToExplain takes, under one lock, the task and the engine's part.
func (s *service) copyToExplain(id uuid, x *explainer) (slot, error) {
	e := s.engine
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	pos, ok := s.store.byID[id]
	if !ok {
		return slot{}, taskNotFound(id)
	}
	kept := s.store.copyLocked(pos)
	x.local = slotUse{s.cfg.Worker.Concurrency - e.slots, s.cfg.Worker.Concurrency}
	x.web = slotUse{s.cfg.Worker.HTTPConcurrency - e.webSlots, s.cfg.Worker.HTTPConcurrency}
	if t := kept.live; t != nil && t.counts[stepInProgress] > 0 {
		for i := range t.steps {
			if k := e.running[runKey{id, i}]; k != nil && !k.gone {
				x.running[i] = true
			}
		}
	}
	return kept, nil
}

// findStoppers collects the steps that keep a blocked task from going on.
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
	var counts [stepCauses]int
	for i := range x.t.steps {
		if x.t.steps[i].state.finished() {
			continue
		}
		e := x.step(i)
		counts[e.cause]++
		v.Steps = append(v.Steps, e)
	}
	v.Message = x.taskMessage(&counts)
	return v
}

// taskMessage is one sentence about the whole task.
func (x *explainer) taskMessage(counts *[stepCauses]int) string {
	switch t := x.t; {
	case t.state.final():
		return fmt.Sprintf("the task is %s: nothing is left to do", t.state)
	case t.state == taskError:
		return "the task ended in error; an action on one of its steps that leaves none in error gets it going again"
	case t.state == taskBlockedByFailures:
		return "the task is blocked until an operator acts: " + x.stoppedBy()
	}
	words := []string{}
	for c, n := range counts {
		if n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, causeCounted[c]))
		}
	}
	return fmt.Sprintf("%d of %d steps are finished; of the others %s",
		len(x.t.steps)-x.unfinished(counts), len(x.t.steps), strings.Join(words, ", "))
}

func (x *explainer) unfinished(counts *[stepCauses]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// causeCounted is what follows the number of steps that have a cause.
var causeCounted = [stepCauses]string{
	causeFailed: "failed for good", causeRunning: "run", causeClaimed: "are claimed", causeCutOff: "were cut off", causeRetry: "wait for a retry",
	causeCancelled: "need a cancelled step", causeParentFailed: "need a failed step",
	causeDependencies: "wait for other steps", causeUndecided: "wait for a decision", causeTaskStopped: "are held by the task",
	causeOutside: "wait for an outside actor", causeSlot: "wait for a slot", causeStarting: "are about to start",
}

// stoppedBy says which steps block the task, and why.
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

func pick(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// quotedNames is up to five names as a message has them.
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
