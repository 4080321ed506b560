package main

// The mount-point API's operations on tasks and steps, and their views.

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
)

// readNested reads an object that the body may wrap: {"task": {…}} for {…}.
func readNested(r *http.Request, name string) ([]byte, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	f := fieldReader{}
	eachMember(body, func(key string, raw []byte) bool {
		if key != name || jsonKind(raw) == 'n' {
			return true
		}
		if body = raw; jsonKind(raw) != '{' {
			f.complain(name, "must be an object")
		}
		return false
	})
	return body, f.failure("the request is refused")
}

func (a *mountAPI) createTask(w http.ResponseWriter, r *http.Request) (any, error) {
	body, err := readNested(r, "task")
	if err != nil {
		return nil, err
	}
	return a.submit(w, r, "mount /tasks", body, func(t *task) any {
		return mountTaskView{task: t, rights: mountRights{contexts: true}}
	})
}

func (a *mountAPI) listTasks(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	f := taskFilter{namespace: q.text("namespace"), name: q.text("name"), version: q.text("version")}
	q.briefStatus("status", &f)
	tasks, page, err := a.page(q, &f)
	return mountListView{tasks, mountRightsOf(r.Context()), page}, err
}

// briefStatus reads a filter by a status of this surface or by an exact state.
func (q *query) briefStatus(name string, f *taskFilter) {
	word := q.text(name)
	if word == "" {
		return
	}
	if status, ok := parseBriefStatus(word); ok {
		f.status = &status
		return
	}
	state, ok := parseTaskState(word)
	if !ok {
		q.refuse("%s: %.60q is none of %s; nor one of the exact states %s", name, word,
			strings.Join(briefStatusNames[:], ", "), strings.Join(taskStateNames[:], ", "))
	}
	f.state = &state
}

func (a *mountAPI) getTask(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	analyzed := q.flag("include_dependencies")
	t, err := a.awaited(w, r, q, "id")
	if err != nil {
		return nil, err
	}
	v := mountTaskView{task: t, rights: mountRightsOf(r.Context()), withSteps: true}
	if analyzed {
		var more struct {
			Dependencies       dependenciesView       `json:"dependencies"`
			DependencyAnalysis dependencyAnalysisView `json:"dependency_analysis"`
		}
		more.Dependencies, more.DependencyAnalysis = analyzeTask(t, a.svc.clock.now())
		v.more, err = json.Marshal(more)
	}
	return v, err
}

func (a *mountAPI) explainTask(_ http.ResponseWriter, r *http.Request) (any, error) {
	v, err := byID(r, "id", a.svc.engine.explain)
	if err != nil {
		return nil, err
	}
	v.Status, v.State = v.state.brief().String(), v.state.String()
	return v, nil
}

func (a *mountAPI) cancelTask(_ http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.cancelIn(r, "id")
	return mountTaskView{task: t, rights: mountRightsOf(r.Context())}, err
}

func (a *mountAPI) listSteps(_ http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.taskIn(r, "task_id")
	return mountStepsView{t, mountRightsOf(r.Context())}, err
}

func (a *mountAPI) getStep(_ http.ResponseWriter, r *http.Request) (any, error) {
	t, i, err := a.stepIn(r, "task_id", "step_id")
	return mountStepView{t, i, mountRightsOf(r.Context())}, err
}

func (a *mountAPI) adjustStep(_ http.ResponseWriter, r *http.Request) (any, error) {
	taskID, stepID, err := stepPath(r, "task_id", "step_id")
	if err != nil {
		return nil, err
	}
	body, err := readNested(r, "workflow_step")
	if err != nil {
		return nil, err
	}
	by, err := parseAdjustment(body)
	if err != nil {
		return nil, err
	}
	t, i, err := a.svc.operator.adjust(r.Context(), taskID, stepID, by, subjectOf(r.Context()))
	return mountStepView{t, i, mountRightsOf(r.Context())}, err
}

// parseAdjustment reads {"retry_limit"?: 1–100, "inputs"?: object}. At least one
// of them is required.
func parseAdjustment(body []byte) (*adjustment, error) {
	f, by := fieldReader{}, &adjustment{}
	eachMember(body, func(key string, raw []byte) bool {
		switch {
		case jsonKind(raw) == 'n':
		case key == "retry_limit":
			by.maxAttempts = f.count(key, raw, 1, maxRetryLimit)
		case key == "inputs":
			by.inputs = f.object(key, raw)
		}
		return true
	})
	if by.maxAttempts == 0 && by.inputs == nil && len(f.problems) == 0 {
		f.complain("retry_limit", "is required unless inputs is given")
		f.complain("inputs", "is required unless retry_limit is given")
	}
	return by, f.failure("the step is not changed")
}

// cancelStep cancels a step in the name of the authenticated subject.
func (a *mountAPI) cancelStep(_ http.ResponseWriter, r *http.Request) (any, error) {
	taskID, stepID, err := stepPath(r, "task_id", "step_id")
	if err != nil {
		return nil, err
	}
	subject := subjectOf(r.Context())
	q := &stepRequest{action: actionCancel, by: cmp.Or(subject, defaultInitiator), subject: subject,
		reason: "Cancelled at the mount point"}
	t, i, err := a.svc.operator.act(r.Context(), taskID, stepID, q)
	return mountStepView{t, i, mountRightsOf(r.Context())}, err
}

// The views of tasks and steps.

// mountRights says what a caller may see of tasks.
type mountRights struct {
	contexts bool // of tasks, and step inputs that equal them
	results  bool // of steps, and inputs that an operator set
}

func mountRightsOf(ctx context.Context) mountRights {
	return mountRights{mayReadContexts(ctx), securityOf(ctx).may(permStepsRead)}
}

// mountTaskView is a task, with its steps if it is requested alone.
type mountTaskView struct {
	task      *task
	rights    mountRights
	withSteps bool
	more      []byte // an object whose members come last; nil for none
}

func (v mountTaskView) appendJSON(b []byte) []byte {
	t := v.task
	o := jsonObject{b: append(b, '{')}
	o.id("id", t.id)
	o.id("task_id", t.id)
	o.text("name", t.tpl.name)
	o.text("namespace", t.tpl.namespace)
	o.text("version", t.tpl.version)
	o.text("full_name", t.tpl.fullName())
	o.text("status", t.state.brief().String())
	o.text("state", t.state.String())
	taskView{task: t, withContext: v.rights.contexts}.appendContext(&o)
	o.text("initiator", t.by.initiator)
	o.text("source_system", t.by.source)
	o.text("reason", t.by.reason)
	o.texts("tags", t.by.tags)
	o.number("priority", t.by.priority)
	o.id("correlation_id", t.correlation())
	o.flag("complete", t.state == taskComplete)
	o.zoned("requested_at", t.requestedAt())
	o.zoned("created_at", t.created)
	o.zoned("updated_at", t.updated)
	o.zoned("completed_at", t.completed)
	if v.withSteps {
		o.name("steps")
		o.b = mountStepsView{t, v.rights}.appendList(o.b)
	}
	if v.more != nil {
		return append(append(o.b, ','), v.more[1:]...)
	}
	return append(o.b, '}')
}

// mountStepsView lists the steps of a task, each after its dependencies.
type mountStepsView struct {
	task   *task
	rights mountRights
}

func (v mountStepsView) appendJSON(b []byte) []byte {
	return append(v.appendList(append(b, `{"steps":`...)), '}')
}

func (v mountStepsView) appendList(b []byte) []byte {
	return appendJSONArray(b, v.task.stepOrder(), func(b []byte, i int) []byte {
		return mountStepView{v.task, i, v.rights}.appendJSON(b)
	})
}

// stepOrder returns the indexes of the steps, each after its parents.
func (t *task) stepOrder() []int {
	parents := make([][]int, len(t.steps))
	for i := range parents {
		parents[i] = t.parents(i)
	}
	g, cycle := newGraph(parents)
	if cycle != nil {
		panic("a task's steps wait for each other") // no template has a cycle
	}
	return g.order
}

// mountStepView is one step.
type mountStepView struct {
	task   *task
	step   int
	rights mountRights
}

func (v mountStepView) appendJSON(b []byte) []byte {
	t, i := v.task, v.step
	s, def := &t.steps[i], t.def(i)
	o := jsonObject{b: append(b, '{')}
	o.id("id", t.stepID(i))
	o.id("workflow_step_id", t.stepID(i))
	o.id("task_id", t.id)
	o.text("name", def.name)
	o.text("status", s.state.brief().String())
	o.text("state", s.state.String())
	o.number("attempts", s.attempts)
	o.number("retry_limit", s.maxAttempts)
	o.flag("retryable", def.retry.Retryable)
	o.flag("retry_eligible", t.retryEligible(i))
	o.flag("skippable", false)
	o.flag("processed", s.state.satisfies())
	o.flag("in_process", s.state.brief() == briefInProgress)
	s.appendBackoff(&o)
	v.appendInputs(&o)
	v.appendResults(&o)
	o.zoned("started_at", s.attempted)
	o.zoned("completed_at", s.completed)
	o.zoned("last_attempted_at", s.attempted)
	o.ids("parents_ids", t, t.parents(i))
	o.ids("children_ids", t, t.children(i))
	names := make([]string, len(t.parents(i)))
	for n, p := range t.parents(i) {
		names[n] = t.def(p).name
	}
	o.texts("depends_on", names)
	return append(o.b, '}')
}

// appendInputs appends what the next attempt gets: the task's context, which takes
// the permission to read contexts, unless an operator set other inputs.
func (v mountStepView) appendInputs(o *jsonObject) {
	seen := v.rights.contexts
	if v.task.steps[v.step].inputs != "" {
		seen = v.rights.results
	}
	if !seen {
		o.raw("inputs", []byte("{}"))
		o.flag("inputs_redacted", true)
		return
	}
	o.raw("inputs", v.task.inputsFor(v.step))
}

func (v mountStepView) appendResults(o *jsonObject) {
	last := v.task.steps[v.step].last
	switch {
	case last == nil:
		o.rawOrNull("results", nil)
	case !v.rights.results:
		o.rawOrNull("results", nil)
		o.flag("results_redacted", true)
	case last.success:
		o.rawOrNull("results", last.result)
	default:
		o.raw("results", mountFailure(last.err))
	}
}

// mountFailure renames the members of an attempt's error for this surface.
func mountFailure(stepError []byte) []byte {
	o := jsonObject{b: []byte{'{'}}
	eachMemberBytes(stepError, func(key, value []byte) bool {
		switch name := string(key); name {
		case "message":
			o.raw("error", value)
		case "error_type":
			o.raw("error_class", value)
		default:
			o.raw(name, value)
		}
		return true
	})
	return append(o.b, '}')
}

// ids appends the ids of some of a task's steps.
func (o *jsonObject) ids(name string, t *task, steps []int) {
	o.name(name)
	o.b = appendJSONArray(o.b, steps, func(b []byte, i int) []byte {
		return append(t.stepID(i).appendText(append(b, '"')), '"')
	})
}

// mountListView is one page of tasks, newest first.
type mountListView struct {
	tasks  []*task
	rights mountRights
	page   paginationView
}

func (v mountListView) appendJSON(b []byte) []byte {
	b = appendJSONArray(append(b, `{"tasks":`...), v.tasks, func(b []byte, t *task) []byte {
		return mountTaskView{task: t, rights: v.rights}.appendJSON(b)
	})
	o := jsonObject{b: append(b, `,"pagination":{`...)}
	o.number("current_page", v.page.page)
	o.number("per_page", v.page.perPage)
	o.number("total_pages", v.page.pages())
	o.number("total_count", v.page.total)
	return append(o.b, '}', '}')
}
