package main

// A task's summary: the task, its template's steps, its own steps and its place
// in the dead letter queue in one answer, without context and results.

// summaryView is the answer of GET /v1/tasks/{uuid}/summary; its times are zoned.
type summaryView struct {
	Task     summaryTask     `json:"task"`
	Template summaryTemplate `json:"template"`
	Steps    []summaryStep   `json:"steps"`
	DLQ      summaryDLQ      `json:"dlq"`
	Links    summaryLinks    `json:"links"`
}

type summaryTask struct {
	TaskUUID             uuid      `json:"task_uuid"`
	Name                 string    `json:"name"`
	Namespace            string    `json:"namespace"`
	Version              string    `json:"version"`
	Status               string    `json:"status"`
	CreatedAt            zonedTime `json:"created_at"`
	UpdatedAt            zonedTime `json:"updated_at"`
	CompletedAt          zonedTime `json:"completed_at"`
	Initiator            string    `json:"initiator"`
	SourceSystem         string    `json:"source_system"`
	Reason               string    `json:"reason"`
	CorrelationID        uuid      `json:"correlation_id"`
	TotalSteps           int       `json:"total_steps"`
	PendingSteps         int       `json:"pending_steps"`
	InProgressSteps      int       `json:"in_progress_steps"`
	CompletedSteps       int       `json:"completed_steps"`
	FailedSteps          int       `json:"failed_steps"`
	CompletionPercentage float64   `json:"completion_percentage"`
	HealthStatus         string    `json:"health_status"`
	ExecutionStatus      string    `json:"execution_status"`
	RecommendedAction    string    `json:"recommended_action"`
}

type summaryTemplate struct {
	Steps []summaryTemplateStep `json:"steps"`
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
	CreatedAt             zonedTime      `json:"created_at"`
	CompletedAt           zonedTime      `json:"completed_at"`
	LastAttemptedAt       zonedTime      `json:"last_attempted_at"`
	Attempts              int            `json:"attempts"`
	MaxAttempts           int            `json:"max_attempts"`
	DependenciesSatisfied bool           `json:"dependencies_satisfied"`
	RetryEligible         bool           `json:"retry_eligible"`
	Error                 *stepFaultView `json:"error"` // of the latest attempt, without its message
}

// summaryDLQ tells of the pending entry, else of the newest; without one its
// words are null. This alone spells them in snake case.
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

// summary is the task at the instant now, without links.
func (t *task) summary(now instant) *summaryView {
	v := &summaryView{
		Task: t.summaryTask(now), DLQ: t.summaryDLQ(),
		Template: summaryTemplate{make([]summaryTemplateStep, len(t.tpl.steps))},
		Steps:    make([]summaryStep, len(t.steps)),
	}
	for i := range t.tpl.steps {
		v.Template.Steps[i] = t.tpl.summaryStep(i)
	}
	for i := range t.steps {
		v.Steps[i] = t.summaryStep(i)
	}
	return v
}

func (t *task) summaryTask(now instant) summaryTask {
	x := t.execution(now)
	return summaryTask{
		TaskUUID: t.id, Name: t.tpl.name, Namespace: t.tpl.namespace, Version: t.tpl.version,
		Status:    t.state.String(),
		CreatedAt: zonedTime(t.created), UpdatedAt: zonedTime(t.updated), CompletedAt: zonedTime(t.completed),
		Initiator: t.by.initiator, SourceSystem: t.by.source, Reason: t.by.reason, CorrelationID: t.correlation(),
		TotalSteps: len(t.steps), PendingSteps: t.counts[stepPending], InProgressSteps: t.counts[stepInProgress],
		CompletedSteps: t.counts[stepComplete] + t.counts[stepResolvedManually], FailedSteps: t.counts[stepInError],
		CompletionPercentage: x.completion,
		HealthStatus:         x.health, ExecutionStatus: x.status, RecommendedAction: x.action,
	}
}

func (t *template) summaryStep(i int) summaryTemplateStep {
	s := &t.steps[i]
	v := summaryTemplateStep{
		Name: s.name, StepType: s.kind, Handler: s.shownCallable(), Dependencies: make([]string, len(s.parents)),
		Retryable: s.retry.retryable, MaxAttempts: s.retry.maxAttempts,
	}
	for j, p := range s.parents {
		v.Dependencies[j] = t.steps[p].name
	}
	return v
}

func (t *task) summaryStep(i int) summaryStep {
	s := &t.steps[i]
	return summaryStep{
		StepUUID: t.stepID(i), Name: t.def(i).name, CurrentState: s.state.String(),
		CreatedAt: zonedTime(t.stepCreated(i)), CompletedAt: zonedTime(s.completed), LastAttemptedAt: zonedTime(s.attempted),
		Attempts: s.attempts, MaxAttempts: s.maxAttempts,
		DependenciesSatisfied: t.satisfied(i), RetryEligible: t.retryEligible(i), Error: s.fault(false),
	}
}

func (t *task) summaryDLQ() (v summaryDLQ) {
	if d := t.currentLetter(); d != nil {
		v.InDLQ = d.status == dlqPending
		v.DLQReason, v.ResolutionStatus = new(d.reason.word()), new(d.status.word())
	}
	return v
}
