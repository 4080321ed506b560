package main

// Views of a task and its steps for every surface: the task, a step with its
// results, the summary, the transitions and the audit.

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
)

// taskView is a task at an instant, as the roles' surfaces show it. In lists it
// has no steps, as existing clients expect.
type taskView struct {
	task  *task
	now   instant
	brief bool

	withContext bool // the caller may see the context
}

// appendJSON appends the task as JSON. It is written by hand because two thirds
// of all requests are answered with a task.
func (v taskView) appendJSON(b []byte) []byte {
	t := v.task
	x := t.execution(v.now)
	o := jsonObject{b: append(b, '{')}
	o.id("task_uuid", t.id)
	o.text("name", t.tpl.name)
	o.text("namespace", t.tpl.namespace)
	o.text("version", t.tpl.version)
	o.text("status", t.state.String())
	o.zoned("created_at", t.created)
	o.zoned("updated_at", t.updated)
	o.zoned("completed_at", t.completed)
	v.appendContext(&o)
	o.text("initiator", t.by.initiator)
	o.text("source_system", t.by.source)
	o.text("reason", t.by.reason)
	o.number("priority", t.by.priority)
	o.texts("tags", t.by.tags)
	o.id("correlation_id", t.correlation())
	o.id("parent_correlation_id", t.by.parentCorrelation)
	o.number("total_steps", len(t.steps))
	o.number("pending_steps", t.counts[stepPending])
	o.number("in_progress_steps", t.counts[stepInProgress])
	o.number("completed_steps", t.counts[stepComplete]+t.counts[stepResolvedManually])
	o.number("failed_steps", t.counts[stepInError])
	o.number("ready_steps", x.ready)
	o.text("execution_status", x.status)
	o.text("recommended_action", x.action)
	o.fraction("completion_percentage", x.completion)
	o.text("health_status", x.health)
	o.name("steps")
	o.b = append(o.b, '[')
	for i := range t.steps {
		if v.brief {
			break
		}
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = t.appendReadiness(o.b, i, v.now)
	}
	return append(o.b, ']', '}')
}

// appendContext appends the context, or says that it is withheld.
func (v taskView) appendContext(o *jsonObject) {
	if v.withContext {
		o.raw("context", v.task.by.context)
		return
	}
	o.raw("context", []byte("{}"))
	o.flag("context_redacted", true)
}

// appendReadiness appends a step as it is shown within its task. Its times are
// naive.
func (t *task) appendReadiness(b []byte, i int, now instant) []byte {
	s, def := &t.steps[i], t.def(i)
	o := jsonObject{b: append(b, '{')}
	o.id("workflow_step_uuid", t.stepID(i))
	o.id("task_uuid", t.id)
	o.id("named_step_uuid", def.id)
	o.text("name", def.name)
	o.text("current_state", s.state.String())
	o.flag("dependencies_satisfied", t.satisfied(i))
	o.flag("retry_eligible", t.retryEligible(i))
	o.flag("ready_for_execution", t.readyForExecution(i, now))
	o.naive("last_failure_at", s.failed)
	o.naive("next_retry_at", s.retryAt)
	parents := len(t.parents(i))
	o.number("total_parents", parents)
	o.number("completed_parents", parents-s.waitingFor)
	o.number("attempts", s.attempts)
	o.number("max_attempts", s.maxAttempts)
	s.appendBackoff(&o)
	o.naive("last_attempted_at", s.attempted)
	return append(o.b, '}')
}

// appendBackoff appends the delay before the retry in seconds, rounded up, or null
// if the step does not wait for a retry.
func (s *step) appendBackoff(o *jsonObject) {
	if s.retryAt == 0 {
		o.rawOrNull("backoff_request_seconds", nil)
		return
	}
	o.number("backoff_request_seconds", int(math.Ceil(max(s.retryAt.sub(s.failed), 0).Seconds())))
}

func (t *task) readyForExecution(i int, now instant) bool {
	s := &t.steps[i]
	return (s.state == stepPending || s.state == stepWaitingForRetry) &&
		t.satisfied(i) && s.retryAt <= now && t.retryEligible(i)
}

// execution is the progress of a task as a whole.
type execution struct {
	status, action, health string
	ready                  int
	completion             float64 // percent, two decimals
}

// execution returns the progress of the task. A cancelled step counts as failed.
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

// progressView is the progress of a task in views that embed it.
type progressView struct {
	TotalSteps           int     `json:"total_steps"`
	PendingSteps         int     `json:"pending_steps"`
	InProgressSteps      int     `json:"in_progress_steps"`
	CompletedSteps       int     `json:"completed_steps"`
	FailedSteps          int     `json:"failed_steps"`
	CompletionPercentage float64 `json:"completion_percentage"`
	HealthStatus         string  `json:"health_status"`
	ExecutionStatus      string  `json:"execution_status"`
}

func (t *task) progress(x execution) progressView {
	return progressView{
		TotalSteps: len(t.steps), PendingSteps: t.counts[stepPending], InProgressSteps: t.counts[stepInProgress],
		CompletedSteps: t.counts[stepComplete] + t.counts[stepResolvedManually], FailedSteps: t.counts[stepInError],
		CompletionPercentage: x.completion, HealthStatus: x.health, ExecutionStatus: x.status,
	}
}

// paginationView is the place of a page in its list.
type paginationView struct {
	page, perPage, total int
}

func (p paginationView) pages() int { return (p.total + p.perPage - 1) / p.perPage }

// taskListView is one page of tasks, newest first.
type taskListView struct {
	tasks []*task
	now   instant
	page  paginationView

	withContexts bool // the caller may see them
}

func (v taskListView) appendJSON(b []byte) []byte {
	b = appendJSONArray(append(b, `{"tasks":`...), v.tasks, func(b []byte, t *task) []byte {
		return taskView{t, v.now, true, v.withContexts}.appendJSON(b)
	})
	o := jsonObject{b: append(b, `,"pagination":{`...)}
	o.number("page", v.page.page)
	o.number("per_page", v.page.perPage)
	o.number("total_count", v.page.total)
	o.number("total_pages", v.page.pages())
	o.flag("has_next", v.page.page < v.page.pages())
	o.flag("has_previous", v.page.page > 1)
	return append(o.b, '}', '}')
}

// A step on the wire, and its results.

// stepView is one workflow step; its times are zoned.
type stepView struct {
	StepUUID              uuid            `json:"step_uuid"`
	TaskUUID              uuid            `json:"task_uuid"`
	Name                  string          `json:"name"`
	CreatedAt             zonedTime       `json:"created_at"`
	UpdatedAt             zonedTime       `json:"updated_at"`
	CompletedAt           zonedTime       `json:"completed_at"`
	Results               json.RawMessage `json:"results"`
	CurrentState          string          `json:"current_state"`
	DependenciesSatisfied bool            `json:"dependencies_satisfied"`
	RetryEligible         bool            `json:"retry_eligible"`
	ReadyForExecution     bool            `json:"ready_for_execution"`
	TotalParents          int             `json:"total_parents"`
	CompletedParents      int             `json:"completed_parents"`
	Attempts              int             `json:"attempts"`
	MaxAttempts           int             `json:"max_attempts"`
	LastFailureAt         zonedTime       `json:"last_failure_at"`
	NextRetryAt           zonedTime       `json:"next_retry_at"`
	LastAttemptedAt       zonedTime       `json:"last_attempted_at"`
}

func (t *task) stepView(i int, now instant, worker string) stepView {
	v := t.bareStepView(i, now)
	v.setResults(&t.steps[i], worker)
	return v
}

// setResults sets the latest outcome of the step. s may be a copy.
func (v *stepView) setResults(s *step, worker string) {
	if s.last != nil {
		v.Results = s.last.outcomeJSON(v.StepUUID, s.ended(), worker)
	}
}

// bareStepView is stepView without the results. Its cost does not depend on the
// size of the results nor on the number of steps.
func (t *task) bareStepView(i int, now instant) stepView {
	s, parents := &t.steps[i], len(t.parents(i))
	return stepView{
		StepUUID: t.stepID(i), TaskUUID: t.id, Name: t.def(i).name,
		CreatedAt: zonedTime(t.stepCreated(i)), UpdatedAt: zonedTime(s.updated),
		CompletedAt: zonedTime(s.completed), CurrentState: s.state.String(),
		DependenciesSatisfied: t.satisfied(i),
		RetryEligible:         t.retryEligible(i),
		ReadyForExecution:     t.readyForExecution(i, now),
		TotalParents:          parents, CompletedParents: parents - s.waitingFor,
		Attempts: s.attempts, MaxAttempts: s.maxAttempts,
		LastFailureAt: zonedTime(s.failed), NextRetryAt: zonedTime(s.retryAt),
		LastAttemptedAt: zonedTime(s.attempted),
	}
}

// ended returns when the step's latest attempt ended.
func (s *step) ended() instant {
	if s.last.success {
		return s.completed
	}
	return s.failed
}

// outcomeJSON returns the full outcome of an attempt, as existing clients read it:
// {"step_uuid", "success", "result", "metadata", "status", "error"}.
func (e *ending) outcomeJSON(id uuid, at instant, worker string) json.RawMessage {
	status := "error"
	switch {
	case e.success:
		status = "completed"
	case e.retryAt != 0:
		status = "failed"
	}
	o := jsonObject{append(make([]byte, 0, 320+len(e.result)+len(e.err)+len(e.metadata)), '{')}
	o.id("step_uuid", id)
	o.flag("success", e.success)
	o.rawOrNull("result", e.result)
	o.name("metadata")
	o.b = mergeObjects(o.b, orEmptyObject(e.metadata), e.standardMetadata(at, worker))
	o.text("status", status)
	o.rawOrNull("error", e.err)
	return append(o.b, '}')
}

// standardMetadata returns the metadata that existing clients parse in every
// outcome. It overrides members that the handler sent, which may be of any type.
func (e *ending) standardMetadata(at instant, worker string) []byte {
	o := jsonObject{[]byte{'{'}}
	o.number("execution_time_ms", int(e.took.Milliseconds()))
	o.text("worker_id", cmp.Or(e.worker, worker))
	o.zoned("completed_at", at)
	return append(o.b, '}')
}

// The summary of a task: the task, its template's steps, its own steps and its
// entry in the dead letter queue in one answer, without context and results.

// summaryView is the answer of GET /v1/tasks/{uuid}/summary; its times are zoned.
type summaryView struct {
	Task     summaryTask     `json:"task"`
	Template summaryTemplate `json:"template"`
	Steps    []summaryStep   `json:"steps"`
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

// summary returns the summary of the task at an instant, without links.
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
		progressView: t.progress(x), RecommendedAction: x.action,
	}
}

func (t *template) summaryStep(i int) summaryTemplateStep {
	s := &t.steps[i]
	return summaryTemplateStep{
		Name: s.name, StepType: s.kind, Handler: s.shown, Dependencies: t.stepNames(s.parents),
		Retryable: s.retry.Retryable, MaxAttempts: s.retry.MaxAttempts,
	}
}

func (t *task) summaryStep(i int) summaryStep {
	s := &t.steps[i]
	return summaryStep{
		StepUUID: t.stepID(i), Name: t.def(i).name, CurrentState: s.state.String(),
		CreatedAt: zonedTime(t.stepCreated(i)), CompletedAt: zonedTime(s.completed),
		LastAttemptedAt: zonedTime(s.attempted), Attempts: s.attempts, MaxAttempts: s.maxAttempts,
		DependenciesSatisfied: t.satisfied(i), RetryEligible: t.retryEligible(i), Error: s.faultView(false),
	}
}

func (t *task) summaryDLQ() (v summaryDLQ) {
	if d := t.currentLetter(); d != nil {
		v.InDLQ = d.status == dlqPending
		v.DLQReason, v.ResolutionStatus = new(d.reason.word()), new(d.status.word())
	}
	return v
}

// History: every transition of a task and its steps, and the audit of a step. Both
// are replayed from the task's log; nothing is stored twice.

// transitionView is one move of a task, or of one of its steps.
type transitionView struct {
	Sequence   uint64    `json:"sequence"` // of the journal record that made it
	RecordedAt zonedTime `json:"recorded_at"`
	StepUUID   *uuid     `json:"step_uuid"`
	StepName   *string   `json:"step_name"`
	FromState  *string   `json:"from_state"`
	ToState    string    `json:"to_state"`
	Attempt    int       `json:"attempt,omitempty"`
}

// historyView is every transition of a task, oldest first.
type historyView struct {
	TaskUUID    uuid             `json:"task_uuid"`
	Transitions []transitionView `json:"transitions"`
}

// transitionObserver collects transitions while a task is replayed.
type transitionObserver struct {
	record *record
	moves  []transitionView
}

func (o *transitionObserver) startRecord(_ *task, r *record) { o.record = r }

func (o *transitionObserver) taskMoved(_ *task, from, to taskState, at instant) {
	v := transitionView{Sequence: o.record.seq, RecordedAt: zonedTime(at), ToState: to.String()}
	if from != noTaskState {
		v.FromState = new(from.String())
	}
	o.moves = append(o.moves, v)
}

func (o *transitionObserver) stepMoved(t *task, i int, from, to stepState, at instant) {
	at, attempt := t.momentOf(i, to, at, o.record.started())
	v := transitionView{
		Sequence: o.record.seq, RecordedAt: zonedTime(at), ToState: to.String(),
		StepUUID: new(t.stepID(i)), StepName: &t.def(i).name, Attempt: attempt,
	}
	if from != noStepState {
		v.FromState = new(from.String())
	}
	o.moves = append(o.moves, v)
}

// auditView is one entry of a step's audit.
type auditView struct {
	AuditUUID        uuid            `json:"audit_uuid"`
	WorkflowStepUUID uuid            `json:"workflow_step_uuid"`
	TransitionUUID   uuid            `json:"transition_uuid"`
	TaskUUID         uuid            `json:"task_uuid"`
	RecordedAt       zonedTime       `json:"recorded_at"`
	WorkerUUID       *uuid           `json:"worker_uuid,omitempty"`
	CorrelationID    *uuid           `json:"correlation_id,omitempty"`
	Success          bool            `json:"success"`
	ExecutionTimeMS  *int64          `json:"execution_time_ms,omitempty"`
	Result           json.RawMessage `json:"result,omitempty"`
	StepName         string          `json:"step_name"`
	FromState        string          `json:"from_state,omitempty"`
	ToState          string          `json:"to_state"`
	Action           string          `json:"action,omitempty"` // an operator's
	ActedBy          string          `json:"acted_by,omitempty"`
	Subject          string          `json:"subject,omitempty"` // the authenticated caller
	ActionReason     string          `json:"action_reason,omitempty"`
	RetryLimit       int             `json:"retry_limit,omitempty"` // an adjustment's, as the inputs
	Inputs           json.RawMessage `json:"inputs,omitempty"`
}

// auditObserver collects the audit of one step while its task is replayed: an entry
// for each attempt that ended, each operator action and each late result.
type auditObserver struct {
	unobserved
	step    int
	worker  string
	entries []auditView
	open    bool // the newest entry has no transition yet
}

func (o *auditObserver) startRecord(t *task, r *record) {
	o.open = false
	if r.step != o.step || r.end == nil && r.kind != recOperator && r.kind != recAdjusted {
		return
	}
	v := auditView{
		AuditUUID: recordID(t, r, 1), TransitionUUID: recordID(t, r, 2),
		WorkflowStepUUID: t.stepID(o.step), TaskUUID: t.id, RecordedAt: zonedTime(r.at),
		CorrelationID: new(t.correlation()), Success: true, StepName: t.def(o.step).name,
		Action: r.action.String(), ActedBy: r.by, Subject: r.subject, ActionReason: r.reason,
	}
	if r.end != nil {
		v.Success = r.end.success
		v.Result = r.end.outcomeJSON(v.WorkflowStepUUID, r.at, o.worker)
		v.ExecutionTimeMS = new(r.end.took.Milliseconds())
	}
	if r.kind == recAdjusted {
		v.adjusted(r.adjustment, t.steps[o.step].state)
	} else if r.kind != recOperator {
		v.WorkerUUID = new(stableID("worker", cmp.Or(r.end.worker, o.worker)))
	}
	o.open = r.kind != recLate
	if !o.open {
		v.ToState = t.steps[o.step].state.String()
	}
	o.entries = append(o.entries, v)
}

// stepMoved takes the record's first move that does not start an attempt: the end
// of an attempt, or the effect of an operator's action.
func (o *auditObserver) stepMoved(_ *task, i int, from, to stepState, _ instant) {
	if !o.open || i != o.step || to == stepInProgress {
		return
	}
	v := &o.entries[len(o.entries)-1]
	v.FromState, v.ToState = from.String(), to.String()
	o.open = false
}

// historyReader replays the logs of tasks to show what happened.
type historyReader struct {
	store    *store
	workerID string
}

// transitions returns every transition of a task.
func (h *historyReader) transitions(id uuid) (*historyView, error) {
	o := &transitionObserver{}
	t, err := h.store.viewObserved(id, o)
	if err != nil {
		return nil, err
	}
	return &historyView{t.id, o.moves}, nil
}

// audit returns the audit of one step, newest first.
func (h *historyReader) audit(taskID, stepID uuid) ([]auditView, error) {
	t, err := h.store.view(taskID)
	if err != nil {
		return nil, err
	}
	i, ok := t.stepIndex(stepID)
	if !ok {
		return nil, stepNotFound(taskID, stepID)
	}
	o := &auditObserver{step: i, worker: h.workerID, entries: []auditView{}}
	if _, err := h.store.viewObserved(taskID, o); err != nil {
		return nil, err
	}
	slices.Reverse(o.entries)
	return o.entries, nil
}
