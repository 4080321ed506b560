package main

// What the API shows of a task and its steps, and the figures derived from
// them. Both are computed here alone, for every surface.

import (
	"math"
	"strconv"
)

// taskView is a task on the wire of the roles, as it is at an instant. Lists
// leave the steps out, as existing clients expect.
type taskView struct {
	task  *task
	now   instant
	brief bool

	withContext bool // the caller may see the context
}

// appendJSON is written by hand: two of three requests answer with a task.
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

// appendContext shows the context, or that there is one which is not shown.
func (v taskView) appendContext(o *jsonObject) {
	if v.withContext {
		o.raw("context", v.task.by.context)
		return
	}
	o.raw("context", []byte("{}"))
	o.flag("context_redacted", true)
}

// appendReadiness is a step as it stands inside a task: its times are naive.
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
	o.name("backoff_request_seconds")
	if seconds := s.backoffSeconds(); seconds == nil {
		o.b = append(o.b, "null"...)
	} else {
		o.b = strconv.AppendInt(o.b, *seconds, 10)
	}
	o.naive("last_attempted_at", s.attempted)
	return append(o.b, '}')
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
	return s.attempts == 0 || t.def(i).retry.retryable && s.attempts < s.maxAttempts
}

func (t *task) readyForExecution(i int, now instant) bool {
	s := &t.steps[i]
	return (s.state == stepPending || s.state == stepWaitingForRetry) &&
		t.satisfied(i) && s.retryAt <= now && t.retryEligible(i)
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

// paginationView is where a page stands in its list.
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
	b = append(b, `{"tasks":[`...)
	for i, t := range v.tasks {
		if i > 0 {
			b = append(b, ',')
		}
		b = taskView{t, v.now, true, v.withContexts}.appendJSON(b)
	}
	b = append(b, `],"pagination":`...)
	o := jsonObject{b: append(b, '{')}
	o.number("page", v.page.page)
	o.number("per_page", v.page.perPage)
	o.number("total_count", v.page.total)
	o.number("total_pages", v.page.pages())
	o.flag("has_next", v.page.page < v.page.pages())
	o.flag("has_previous", v.page.page > 1)
	return append(o.b, '}', '}')
}
