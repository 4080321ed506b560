package main

// The six words that the mount-point API has for the states of tasks and steps.

// briefStatus is a state as the mount-point API tells it.
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
	for s, n := range briefStatusNames {
		if n == name {
			return briefStatus(s), true
		}
	}
	return 0, false
}

// taskBriefs is the status of a task, by its state.
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

// stepBriefs is the status of a step, by its state.
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
