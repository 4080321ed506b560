package main

// What the API shows of a task and its steps, and the figures derived from
// them. Both are computed here alone, for every surface.

import (
	"encoding/json"
	"math"
)

// taskView is a task on the wire of the roles.
type taskView struct {
	TaskUUID             uuid            `json:"task_uuid"`
	Name                 string          `json:"name"`
	Namespace            string          `json:"namespace"`
	Version              string          `json:"version"`
	Status               string          `json:"status"`
	CreatedAt            zonedTime       `json:"created_at"`
	UpdatedAt            zonedTime       `json:"updated_at"`
	CompletedAt          zonedTime       `json:"completed_at"`
	Context              json.RawMessage `json:"context"`
	Initiator            string          `json:"initiator"`
	SourceSystem         string          `json:"source_system"`
	Reason               string          `json:"reason"`
	Priority             int             `json:"priority"`
	Tags                 []string        `json:"tags"`
	CorrelationID        uuid            `json:"correlation_id"`
	ParentCorrelationID  *uuid           `json:"parent_correlation_id"`
	TotalSteps           int             `json:"total_steps"`
	PendingSteps         int             `json:"pending_steps"`
	InProgressSteps      int             `json:"in_progress_steps"`
	CompletedSteps       int             `json:"completed_steps"`
	FailedSteps          int             `json:"failed_steps"`
	ReadySteps           int             `json:"ready_steps"`
	ExecutionStatus      string          `json:"execution_status"`
	RecommendedAction    string          `json:"recommended_action"`
	CompletionPercentage float64         `json:"completion_percentage"`
	HealthStatus         string          `json:"health_status"`
	Steps                []readinessView `json:"steps"`
}

// readinessView is a step as it stands inside a task: its times are naive.
type readinessView struct {
	WorkflowStepUUID      uuid      `json:"workflow_step_uuid"`
	TaskUUID              uuid      `json:"task_uuid"`
	NamedStepUUID         uuid      `json:"named_step_uuid"`
	Name                  string    `json:"name"`
	CurrentState          string    `json:"current_state"`
	DependenciesSatisfied bool      `json:"dependencies_satisfied"`
	RetryEligible         bool      `json:"retry_eligible"`
	ReadyForExecution     bool      `json:"ready_for_execution"`
	LastFailureAt         naiveTime `json:"last_failure_at"`
	NextRetryAt           naiveTime `json:"next_retry_at"`
	TotalParents          int       `json:"total_parents"`
	CompletedParents      int       `json:"completed_parents"`
	Attempts              int       `json:"attempts"`
	MaxAttempts           int       `json:"max_attempts"`
	BackoffRequestSeconds *int64    `json:"backoff_request_seconds"`
	LastAttemptedAt       naiveTime `json:"last_attempted_at"`
}

// zonedTime is an instant on the wire, null when there is none.
type zonedTime instant

func (t zonedTime) MarshalJSON() ([]byte, error) { return marshalTime(instant(t), zonedLayout) }

// naiveTime is the form without a zone that some fields carry.
type naiveTime instant

func (t naiveTime) MarshalJSON() ([]byte, error) { return marshalTime(instant(t), naiveLayout) }

func marshalTime(t instant, layout string) ([]byte, error) {
	if t == 0 {
		return []byte("null"), nil
	}
	b := make([]byte, 0, len(layout)+2)
	b = append(b, '"')
	b = t.time().AppendFormat(b, layout)
	return append(b, '"'), nil
}

// view is the task at the instant now; with its steps unless it goes into a list.
func (t *task) view(now instant, withSteps bool) *taskView {
	x := t.execution(now)
	v := &taskView{
		TaskUUID: t.id, Name: t.tpl.name, Namespace: t.tpl.namespace, Version: t.tpl.version,
		Status:    t.state.String(),
		CreatedAt: zonedTime(t.created), UpdatedAt: zonedTime(t.updated), CompletedAt: zonedTime(t.completed),
		Context: t.by.context, Initiator: t.by.initiator, SourceSystem: t.by.source, Reason: t.by.reason,
		Priority: t.by.priority, Tags: t.by.tags, CorrelationID: t.by.correlation,
		TotalSteps: len(t.steps), PendingSteps: t.counts[stepPending], InProgressSteps: t.counts[stepInProgress],
		CompletedSteps: t.counts[stepComplete] + t.counts[stepResolvedManually],
		FailedSteps:    t.counts[stepInError], ReadySteps: x.ready,
		ExecutionStatus: x.status, RecommendedAction: x.action,
		CompletionPercentage: x.completion, HealthStatus: x.health,
		Steps: []readinessView{},
	}
	if v.Tags == nil {
		v.Tags = []string{}
	}
	if !t.by.parentCorrelation.isZero() {
		v.ParentCorrelationID = &t.by.parentCorrelation
	}
	if withSteps {
		v.Steps = make([]readinessView, len(t.steps))
		for i := range t.steps {
			v.Steps[i] = t.readiness(i, now)
		}
	}
	return v
}

func (t *task) readiness(i int, now instant) readinessView {
	s, def := &t.steps[i], &t.tpl.steps[i]
	return readinessView{
		WorkflowStepUUID: t.stepID(i), TaskUUID: t.id, NamedStepUUID: def.id, Name: def.name,
		CurrentState:          s.state.String(),
		DependenciesSatisfied: s.waitingFor == 0,
		RetryEligible:         t.retryEligible(i),
		ReadyForExecution:     t.readyForExecution(i, now),
		LastFailureAt:         naiveTime(s.failed), NextRetryAt: naiveTime(s.retryAt),
		TotalParents: len(def.parents), CompletedParents: len(def.parents) - s.waitingFor,
		Attempts: s.attempts, MaxAttempts: s.maxAttempts,
		BackoffRequestSeconds: s.backoffSeconds(), LastAttemptedAt: naiveTime(s.attempted),
	}
}

// backoffSeconds is the wait that the failed attempt asked for, rounded up; nil
// when the step does not wait for a retry.
func (s *step) backoffSeconds() *int64 {
	if s.retryAt == 0 {
		return nil
	}
	seconds := int64(math.Ceil(max(s.retryAt.sub(s.failed), 0).Seconds()))
	return &seconds
}

func (t *task) retryEligible(i int) bool {
	s := &t.steps[i]
	return s.attempts == 0 || t.tpl.steps[i].retry.retryable && s.attempts < s.maxAttempts
}

func (t *task) readyForExecution(i int, now instant) bool {
	s := &t.steps[i]
	return (s.state == stepPending || s.state == stepWaitingForRetry) &&
		s.waitingFor == 0 && s.retryAt <= now && t.retryEligible(i)
}

// execution is what can be said of a task's progress as a whole.
type execution struct {
	status, action, health string
	ready                  int
	completion             float64 // percent, two decimals
}

// execution says how the task stands. A cancelled step counts as a failed one.
func (t *task) execution(now instant) execution {
	var x execution
	if t.counts[stepPending]+t.counts[stepWaitingForRetry] > 0 {
		for i := range t.steps {
			if t.readyForExecution(i, now) {
				x.ready++
			}
		}
	}
	done := t.counts[stepComplete] + t.counts[stepResolvedManually]
	if len(t.steps) > 0 {
		x.completion = math.Round(float64(done)/float64(len(t.steps))*10000) / 100
	}
	failed := t.counts[stepInError] + t.counts[stepCancelled]
	working := t.counts[stepInProgress] + t.counts[stepEnqueued] +
		t.counts[stepEnqueuedForOrchestration] + t.counts[stepEnqueuedAsError]
	switch {
	case failed > 0:
		x.status, x.action = "blocked_by_failures", "handle_failures"
	case x.ready > 0:
		x.status, x.action = "has_ready_steps", "execute_ready_steps"
	case working > 0:
		x.status, x.action = "processing", "wait_for_completion"
	case done == len(t.steps) && done > 0:
		x.status, x.action = "all_complete", "finalize_task"
	default:
		x.status, x.action = "waiting_for_dependencies", "wait_for_dependencies"
	}
	switch {
	case failed > 0:
		x.health = "blocked"
	case t.counts[stepWaitingForRetry] > 0:
		x.health = "recovering"
	default:
		x.health = "healthy"
	}
	return x
}

// paginationView is the frame of a list's page.
type paginationView struct {
	Page        int  `json:"page"`
	PerPage     int  `json:"per_page"`
	TotalCount  int  `json:"total_count"`
	TotalPages  int  `json:"total_pages"`
	HasNext     bool `json:"has_next"`
	HasPrevious bool `json:"has_previous"`
}

func paginate(page, perPage, total int) paginationView {
	pages := (total + perPage - 1) / perPage
	return paginationView{page, perPage, total, pages, page < pages, page > 1}
}

// taskListView is one page of tasks, newest first.
type taskListView struct {
	Tasks      []*taskView    `json:"tasks"`
	Pagination paginationView `json:"pagination"`
}
