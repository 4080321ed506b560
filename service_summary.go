package main

// The summary of a task: the task, its template's steps, its own steps and its
// entry in the dead letter queue in one answer, without context and results.

// summaryView is the answer of GET /v1/tasks/{uuid}/summary. The times of the task are
// zoned, those of its steps naive.
type summaryView struct {
	Task     summaryTask     `json:"task"`
	Template summaryTemplate `json:"template"`
	Steps    jsonList        `json:"steps"`
	DLQ      summaryDLQ      `json:"dlq"`
	Links    summaryLinks    `json:"links"`
}

type summaryTask struct {
	TaskUUID      uuid      `json:"task_uuid"`
	Name          string    `json:"name"`
	Namespace     string    `json:"namespace"`
	Version       string    `json:"version"`
	Status        string    `json:"status"`
	CreatedAt     zonedTime `json:"created_at"`
	UpdatedAt     zonedTime `json:"updated_at"`
	CompletedAt   zonedTime `json:"completed_at"`
	Initiator     string    `json:"initiator"`
	SourceSystem  string    `json:"source_system"`
	Reason        string    `json:"reason"`
	CorrelationID uuid      `json:"correlation_id"`
	progressView
	RecommendedAction string `json:"recommended_action"`
}

type summaryTemplate struct {
	Steps jsonList `json:"steps"`
}

type summaryTemplateStep struct {
	Name         string   `json:"name"`
	StepType     string   `json:"step_type"`
	Handler      string   `json:"handler"` // the callable
	Dependencies []string `json:"dependencies"`
	Retryable    bool     `json:"retryable"`
	MaxAttempts  int      `json:"max_attempts"`
}

type summaryStep struct {
	StepUUID              uuid           `json:"step_uuid"`
	Name                  string         `json:"name"`
	CurrentState          string         `json:"current_state"`
	CreatedAt             naiveTime      `json:"created_at"`
	CompletedAt           naiveTime      `json:"completed_at"`
	LastAttemptedAt       naiveTime      `json:"last_attempted_at"`
	Attempts              int            `json:"attempts"`
	MaxAttempts           int            `json:"max_attempts"`
	DependenciesSatisfied bool           `json:"dependencies_satisfied"`
	RetryEligible         bool           `json:"retry_eligible"`
	Error                 *stepFaultView `json:"error"` // of the latest attempt, without its message
}

// summaryDLQ describes the pending entry, or else the newest. Reason and status are
// null without an entry; only this view has them in snake case.
type summaryDLQ struct {
	InDLQ            bool    `json:"in_dlq"` // an entry is pending
	DLQReason        *string `json:"dlq_reason"`
	ResolutionStatus *string `json:"resolution_status"`
}

// summaryLinks are paths on the same surface.
type summaryLinks struct {
	Task  string `json:"task"`
	Steps string `json:"steps"`
	DLQ   string `json:"dlq"`
}

// newSummaryView returns the summary of a task at an instant, without links.
func newSummaryView(t *task, now instant) *summaryView {
	return &summaryView{
		Task: newSummaryTask(t, now), DLQ: newSummaryDLQ(t),
		Template: summaryTemplate{jsonListOf(len(t.tpl.steps), t.tpl.summaryStep)},
		Steps:    jsonListOf(len(t.steps), func(i int) summaryStep { return newSummaryStep(t, i) }),
	}
}

func newSummaryTask(t *task, now instant) summaryTask {
	x := executionOf(t, t.readySteps(now))
	return summaryTask{
		TaskUUID: t.id, Name: t.tpl.name, Namespace: t.tpl.namespace, Version: t.tpl.version,
		Status:    t.state.String(),
		CreatedAt: zonedTime(t.created), UpdatedAt: zonedTime(t.updated), CompletedAt: zonedTime(t.completed),
		Initiator: t.by.initiator, SourceSystem: t.by.source, Reason: t.by.reason, CorrelationID: t.correlation(),
		progressView: newProgressView(t, x), RecommendedAction: x.action,
	}
}

func (t *template) summaryStep(i int) summaryTemplateStep {
	s := &t.steps[i]
	return summaryTemplateStep{
		Name: s.name, StepType: s.kind, Handler: s.shown, Dependencies: t.stepNames(s.parents),
		Retryable: s.retry.Retryable, MaxAttempts: s.retry.MaxAttempts,
	}
}

func newSummaryStep(t *task, i int) summaryStep {
	s := &t.steps[i]
	return summaryStep{
		StepUUID: t.stepID(i), Name: t.def(i).name, CurrentState: s.state.String(),
		CreatedAt: naiveTime(t.stepCreated(i)), CompletedAt: naiveTime(s.completed),
		LastAttemptedAt: naiveTime(s.attempted), Attempts: s.attempts, MaxAttempts: s.maxAttempts,
		DependenciesSatisfied: t.satisfied(i), RetryEligible: t.retryEligible(i), Error: s.faultView(false),
	}
}

func newSummaryDLQ(t *task) (v summaryDLQ) {
	if d := t.currentLetter(); d != nil {
		v.InDLQ = d.status == dlqPending
		v.DLQReason, v.ResolutionStatus = new(d.reason.word()), new(d.status.word())
	}
	return v
}
