package main

// Views of a task and its steps for every surface: the task, lists of tasks, a step with its
// results, and the summary of a task.

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"
)

// taskView is a task at an instant, as the roles' surfaces show it.
type taskView struct {
	task        *task
	now         instant
	context     contextRight
	undelivered []undeliveredEvent
}

// contextRight reports whether a view of a task includes its context.
type contextRight uint8

const (
	contextShown    contextRight = iota
	contextRedacted              // the caller may not see it
	contextOmitted               // the caller does not want it
)

// writeJSON (hot path: BenchmarkCreate) writes the task. It is written by hand because two thirds of all
// requests are answered with a task.
func (v taskView) writeJSON(o *jsonWriter) {
	t := v.task
	v.writeTask(o, t.readySteps(v.now))
	o.name("steps")
	o.list(len(t.steps), func(i int) { v.writeStep(o, i) })
	writeUndelivered(o, v.undelivered)
	o.b = append(o.b, '}')
}

// writeUndelivered writes a member with the events that subscribers did not get, if there are any.
func writeUndelivered(o *jsonWriter, all []undeliveredEvent) {
	if len(all) > 0 {
		o.name("undelivered_events")
		o.value(all)
	}
}

// writeTask writes the task up to its steps, which lists leave out.
func (v taskView) writeTask(o *jsonWriter, ready int) {
	t := v.task
	x := executionOf(t, ready)
	o.b = append(o.b, '{')
	o.id("task_uuid", t.id)
	o.text("name", t.tpl.name)
	o.text("namespace", t.tpl.namespace)
	o.text("version", t.tpl.version)
	o.text("status", t.state.String())
	o.zoned("created_at", t.created)
	o.zoned("updated_at", t.updated)
	o.zoned("completed_at", t.completed)
	v.context.write(o, "context", t.by.context)
	o.text("initiator", t.by.initiator)
	o.text("source_system", t.by.source)
	o.text("reason", t.by.reason)
	o.number("priority", t.by.priority)
	o.texts("tags", t.by.tags)
	o.id("correlation_id", t.correlation())
	o.id("parent_correlation_id", t.by.parentCorrelation)
	o.textOrNull("trace_id", t.by.traceID())
	if x := t.by.origin; x != nil {
		o.name("again_of")
		o.b = append(o.b, '{')
		o.id("task_uuid", x.task)
		o.text("from", x.from)
		o.b = append(o.b, '}')
	}
	if t.by.requested != 0 {
		o.zoned("requested_at", t.by.requested)
	}
	if t.hold != nil {
		o.name("hold")
		o.b = append(o.b, '{')
		o.zoned("since", t.hold.at)
		o.text("place", t.hold.place)
		o.b = append(o.b, '}')
	}
	o.number("total_steps", t.stepTotal())
	o.number("pending_steps", t.counts[stepPending])
	o.number("in_progress_steps", t.counts[stepInProgress])
	o.number("completed_steps", t.counts[stepComplete]+t.counts[stepResolvedManually])
	o.number("failed_steps", t.counts[stepInError])
	o.number("ready_steps", ready)
	o.text("execution_status", x.status)
	o.text("recommended_action", x.action)
	o.fraction("completion_percentage", x.completion)
	o.text("health_status", x.health)
}

// write writes a member with a context, or an empty one and why it is empty.
func (r contextRight) write(o *jsonWriter, name string, context []byte) {
	if r == contextShown {
		o.raw(name, context)
		return
	}
	o.raw(name, []byte("{}"))
	o.flag(name+[...]string{contextRedacted: "_redacted", contextOmitted: "_omitted"}[r], true)
}

// writeStep writes a step as it is shown within its task. Its times are naive.
func (v taskView) writeStep(o *jsonWriter, i int) {
	t := v.task
	s, def := &t.steps[i], t.def(i)
	o.b = append(o.b, '{')
	o.id("workflow_step_uuid", t.stepID(i))
	o.id("task_uuid", t.id)
	o.id("named_step_uuid", def.id)
	o.text("name", def.name)
	o.text("current_state", s.state.String())
	o.flag("dependencies_satisfied", t.satisfied(i))
	o.flag("retry_eligible", t.retryEligible(i))
	o.flag("ready_for_execution", t.readyForExecution(i, v.now))
	o.naive("last_failure_at", s.failed)
	o.naive("next_retry_at", s.retryAt)
	parents := len(t.parents(i))
	o.number("total_parents", parents)
	o.number("completed_parents", parents-s.waitingFor)
	o.number("attempts", s.attempts)
	o.number("max_attempts", s.maxAttempts)
	s.writeBackoff(o)
	o.naive("last_attempted_at", s.attempted)
	o.b = append(o.b, '}')
}

// writeBackoff writes the delay before the retry in seconds, rounded up, or null if the step does not wait for a retry.
func (s *step) writeBackoff(o *jsonWriter) {
	if s.retryAt == 0 {
		o.raw("backoff_request_seconds", nil)
		return
	}
	o.number("backoff_request_seconds", int(math.Ceil(max(s.retryAt.sub(s.failed), 0).Seconds())))
}

// execution is the progress of a task as a whole.
type execution struct {
	status, action, health string
	completion             float64 // percent, two decimals
}

// executionOf returns the progress of a task with this many ready steps. A cancelled
// step counts as failed, except in a cancelled task, in which nobody can act on it.
func executionOf(t *task, ready int) execution {
	var x execution
	done, all := t.counts[stepComplete]+t.counts[stepResolvedManually], t.stepTotal()
	if all > 0 {
		x.completion = math.Round(float64(done)/float64(all)*10000) / 100
	}
	failed := t.counts[stepInError] + t.counts[stepCancelled]
	cancelled := t.state == taskCancelled
	if cancelled {
		failed = 0
	}
	working := t.counts[stepInProgress] + t.counts[stepEnqueued] +
		t.counts[stepEnqueuedForOrchestration] + t.counts[stepEnqueuedAsError]
	switch {
	case failed > 0:
		x.status, x.action = "blocked_by_failures", "handle_failures"
	case ready > 0:
		x.status, x.action = "has_ready_steps", "execute_ready_steps"
	case working > 0:
		x.status, x.action = "processing", "wait_for_completion"
	case done == all && done > 0:
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

func newProgressView(t *task, x execution) progressView {
	return progressView{
		TotalSteps: len(t.steps), PendingSteps: t.counts[stepPending], InProgressSteps: t.counts[stepInProgress],
		CompletedSteps: t.counts[stepComplete] + t.counts[stepResolvedManually], FailedSteps: t.counts[stepInError],
		CompletionPercentage: x.completion, HealthStatus: x.health, ExecutionStatus: x.status,
	}
}

// taskPage is one page of a list of tasks as they were at an instant.
type taskPage struct {
	store *store
	taskList
	page, perPage   int
	cursored, count bool // whether the answer has a cursor, and counts
	next            string
}

func (p *taskPage) pages() int { return (p.total + p.perPage - 1) / p.perPage }

func (p *taskPage) hasNext() bool { return p.before+len(p.tasks) < p.total }

// writeMore writes what the pagination has on request: the cursor of the next page, null
// after the last, and how many tasks there are in each state.
func (p *taskPage) writeMore(o *jsonWriter) {
	if p.cursored {
		o.textOrNull("next_cursor", p.next)
	}
	if !p.count {
		return
	}
	o.name("counts")
	o.b = append(o.b, '{')
	for s, n := range p.counts {
		o.number(taskStateNames[s], n)
	}
	o.b = append(o.b, '}')
}

// write writes the tasks, which have no steps. each writes one with its number of ready steps.
func (p taskPage) write(o *jsonWriter, each func(k *keptTask, t *task, ready int)) {
	o.list(len(p.tasks), func(i int) {
		t, ready, err := p.tasks[i].listed(o)
		if err != nil {
			o.fail(err)
			return
		}
		each(&p.tasks[i], t, ready)
	})
}

// taskListView is one page of tasks. Its tasks have no steps, as existing clients expect.
type taskListView struct {
	taskPage
	context contextRight
	speaks  bool // whether each task has what it is about and why it fails
	may     func(permission) bool
}

func (v taskListView) writeJSON(o *jsonWriter) {
	o.b = append(o.b, `{"tasks":`...)
	v.write(o, func(k *keptTask, t *task, ready int) {
		taskView{task: t, context: v.context}.writeTask(o, ready)
		if v.speaks {
			about, err := v.store.aboutOf(k, t, v.may, o)
			o.fail(err)
			o.raw("about", about.About)
			o.name("failure")
			o.value(about.Failure)
		}
		o.b = append(o.b, `,"steps":[]}`...)
	})
	o.b = append(o.b, `,"pagination":{`...)
	o.number("page", v.page)
	o.number("per_page", v.perPage)
	o.number("total_count", v.total)
	o.number("total_pages", v.pages())
	o.flag("has_next", v.hasNext())
	o.flag("has_previous", v.page > 1)
	v.writeMore(o)
	o.b = append(o.b, '}', '}')
}

// taskAbout describes a task to a person: what identifies it, and why it fails.
type taskAbout struct {
	About   json.RawMessage  `json:"about"`   // the values that it is found by; nil goes out as null
	Failure *taskFailureView `json:"failure"` // of the step that failed last, while it is failing
}

// taskFailureView is the latest error of a step.
type taskFailureView struct {
	StepName  string       `json:"step_name"`
	ErrorType string       `json:"error_type"`
	Message   string       `json:"message"` // its headline, without the type
	Group     failureGroup `json:"group"`
}

// aboutOf returns what a caller may know of a task that was listed. t is the task as the list has it, mostly without
// steps, so that a replay shows why it fails.
func (s *store) aboutOf(k *keptTask, t *task, may func(permission) bool, by holder) (v taskAbout, err error) {
	if may(permTasksContextRead) {
		v.About = t.by.search
	}
	if t.counts[stepInError]+t.counts[stepWaitingForRetry] == 0 || !may(permStepsRead) {
		return v, nil
	}
	if t, err = k.replay(unobserved{}, by); err != nil {
		return v, err
	}
	last := -1
	for i := range t.steps {
		if t.steps[i].failing() && (last < 0 || t.steps[i].failed > t.steps[last].failed) {
			last = i
		}
	}
	if last >= 0 {
		f, _ := t.steps[last].last.fault()
		v.Failure = &taskFailureView{
			t.def(last).name, f.errorType, withoutType(f.shown(), f.errorType),
			s.table().failureGroup(t.failedStep(last)),
		}
	}
	return v, nil
}

// A step on the wire, and its results.

// stepView is one workflow step at an instant; its times are zoned.
type stepView struct {
	id, task                   uuid
	name                       string
	created                    instant
	step                       step // a copy
	satisfied, eligible, ready bool
	parents                    int
	answerDue                  instant            // until when it must be answered; 0 for no limit
	worker                     string             // that made the latest attempt, unless its outcome names one
	undelivered                []undeliveredEvent // of the whole task
	redacted                   bool               // the results were removed
}

// newStepView returns the view of a step. Its cost does not depend on the size of the results nor
// on the number of steps.
func newStepView(t *task, i int, now instant, worker string) stepView {
	return stepView{
		id: t.stepID(i), task: t.id, name: t.def(i).name, created: t.stepCreated(i), step: t.steps[i],
		satisfied: t.satisfied(i), eligible: t.retryEligible(i), ready: t.readyForExecution(i, now),
		parents: len(t.parents(i)), answerDue: t.answerDue(i), worker: worker,
	}
}

// redactResults removes the results, if there are any.
func (v *stepView) redactResults() {
	v.redacted = v.step.last != nil || v.step.checkpoint != nil
	v.step.last, v.step.checkpoint = nil, nil
}

func (v stepView) writeJSON(o *jsonWriter) {
	o.b = append(o.b, '{')
	v.write(o)
	o.b = append(o.b, '}')
}

// write writes the members, by hand because tasks can have thousands of steps.
func (v *stepView) write(o *jsonWriter) {
	s := &v.step
	o.id("step_uuid", v.id)
	o.id("task_uuid", v.task)
	o.text("name", v.name)
	o.zoned("created_at", v.created)
	o.zoned("updated_at", s.updated)
	o.zoned("completed_at", s.completed)
	o.name("results")
	outcomeView{s.last, v.id, s.ended(), v.worker}.writeJSON(o)
	if v.redacted {
		o.flag("results_redacted", true)
	}
	o.text("current_state", s.state.String())
	o.flag("dependencies_satisfied", v.satisfied)
	o.flag("retry_eligible", v.eligible)
	o.flag("ready_for_execution", v.ready)
	o.number("total_parents", v.parents)
	o.number("completed_parents", v.parents-s.waitingFor)
	o.number("attempts", s.attempts)
	o.number("max_attempts", s.maxAttempts)
	o.zoned("last_failure_at", s.failed)
	o.zoned("next_retry_at", s.retryAt)
	o.zoned("last_attempted_at", s.attempted)
	if v.answerDue != 0 {
		o.zoned("answer_due_at", v.answerDue)
	}
	if s.checkpoint != nil {
		o.raw(checkpointMember, s.checkpoint.appendJSON(nil))
	}
	if v.undelivered != nil {
		writeUndelivered(o, slices.DeleteFunc(slices.Clone(v.undelivered), func(u undeliveredEvent) bool { return u.StepUUID != v.id }))
	}
}

// outcomeView is the full outcome of an attempt, as existing clients read it: {"step_uuid", "success", "result",
// "metadata", "status", "error"}. They expect an object as the result of a failure.
type outcomeView struct {
	*ending // nil for none
	step    uuid
	at      instant
	worker  string
}

func (v outcomeView) writeJSON(o *jsonWriter) {
	e := v.ending
	if e == nil {
		o.b = append(o.b, "null"...)
		return
	}
	// The metadata is merged in memory before it is written.
	if o.holdElement(2*len(e.err)+2*len(e.metadata)) != nil {
		return
	}
	status, result := "completed", e.result
	if !e.success {
		status, result = "failed", orEmptyObject(e.result)
	}
	if e.retryAt != 0 {
		status = "error"
	}
	o.b = append(o.b, '{')
	o.id("step_uuid", v.step)
	o.flag("success", e.success)
	o.raw("result", result)
	o.name("metadata")
	o.b = mergeObjects(o.b, orEmptyObject(e.metadata), e.standardMetadata(v.at, v.worker))
	o.text("status", status)
	o.raw("error", e.err)
	o.b = append(o.b, '}')
}

// standardMetadata returns the metadata that existing clients parse in every outcome. It overrides members that the
// handler sent, which may be of any type; custom has them as they were sent.
func (e *ending) standardMetadata(at instant, worker string) []byte {
	f, failed := e.fault()
	sent := orEmptyObject(e.metadata)
	o := jsonWriter{b: []byte{'{'}}
	o.number("execution_time_ms", int(e.took.Milliseconds()))
	o.text("worker_id", cmp.Or(e.worker, worker))
	o.zoned("started_at", at.add(-e.took.Truncate(time.Millisecond)))
	o.zoned("completed_at", at)
	o.flag("retryable", f.retryable)
	if failed {
		o.text("error_type", f.errorType)
	} else {
		o.raw("error_type", nil)
	}
	if code := objectMember(sent, "error_code"); jsonKind(code) != '"' {
		o.raw("error_code", nil)
	}
	o.raw("context", orEmptyObject(f.context))
	o.raw("custom", sent)
	return append(o.b, '}')
}

// The summary of a task: the task, its template's steps, its own steps and its
// entry in the dead letter queue in one answer, without context and results.

// summaryView is the answer of GET /v1/tasks/{uuid}/summary. The times of the task are
// zoned, and the times of its steps naive.
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
	stepBriefView           // whose error has no message
	CreatedAt     naiveTime `json:"created_at"`

	DependenciesSatisfied bool `json:"dependencies_satisfied"`
	RetryEligible         bool `json:"retry_eligible"`
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
		Steps: jsonListOf(len(t.steps), func(i int) summaryStep {
			return summaryStep{newStepBriefView(t, i, false), naiveTime(t.stepCreated(i)), t.satisfied(i), t.retryEligible(i)}
		}),
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

func newSummaryDLQ(t *task) (v summaryDLQ) {
	if d := t.currentLetter(); d != nil {
		v.InDLQ = d.status == dlqPending
		v.DLQReason, v.ResolutionStatus = new(dlqReasonWords[d.reason]), new(dlqStatusWords[d.status])
	}
	return v
}
