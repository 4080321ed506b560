package main

// The mount-point API's operations on tasks and steps, with their views.

import (
	"cmp"
	"net/http"
	"reflect"
	"strings"
)

// readNested reads an object that the body may wrap: {"task": {…}} for {…}.
func readNested(r *http.Request, name string) ([]byte, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	f := fieldReader{}
	if raw := objectMember(body, name); raw != nil && jsonKind(raw) != 'n' {
		if body = raw; jsonKind(raw) != '{' {
			f.complain(name, "must be an object")
		}
	}
	return body, f.failure("the request is refused")
}

func (a *mountAPI) createTask(w *responseWriter, r *http.Request) (any, error) {
	body, err := readNested(r, "task")
	if err != nil {
		return nil, err
	}
	return a.surface.submit(w, r, creationRoute{mountTaskRoute, parseTaskRequest}, body, func(t *task) any {
		return mountTaskView{task: t, rights: mountRights{contextShown, true}}
	})
}

func (a *mountAPI) listTasks(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	rights := q.mountRights(r)
	page, err := a.surface.page(w, r, q, briefStates, briefWords)
	return mountListView{page, rights}, err
}

// briefWords lists the words of a filter by state here.
var briefWords = strings.Join(briefStatusNames[:], ", ") + ", or one of the exact states " +
	strings.Join(taskStateNames[:], ", ")

// briefStates returns the states that a word of a filter means.
func briefStates(word string) (stateSet, bool) {
	if status, ok := parseWord[briefStatus](word, briefStatusNames[:]); ok {
		return status.states(), true
	}
	return exactState(word)
}

func (a *mountAPI) getTask(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	analyzed := q.flag("include_dependencies")
	rights := q.mountRights(r)
	t, err := a.surface.awaited(w, r, q, "id")
	if err != nil {
		return nil, err
	}
	v := mountTaskView{task: t, rights: rights, withSteps: true}
	if analyzed {
		if err := askFor(4*len(t.steps), w); err != nil {
			return nil, err
		}
		v.more = &mountAnalysisView{}
		v.more.Dependencies, v.more.Analysis = analyzeTask(t, t, a.surface.svc.clock.now())
		return v, nil
	}
	return a.surface.ofTask(w, r, t, a.surface.svc.clock.now(), v), nil
}

func (a *mountAPI) explainTask(w *responseWriter, r *http.Request) (any, error) {
	v, err := a.surface.explanation(w, r, "id")
	if err != nil {
		return nil, err
	}
	v.Status, v.State = v.state.brief().String(), v.state.String()
	return v, nil
}

func (a *mountAPI) cancelTask(w *responseWriter, r *http.Request) (any, error) {
	t, err := a.surface.cancelIn(r, "id")
	return a.surface.taskAnswer(w, r, t, err, func(instant) any {
		return mountTaskView{task: t, rights: mountRightsOf(r)}
	})
}

func (a *mountAPI) listSteps(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	rights := q.mountRights(r)
	if err := q.done(); err != nil {
		return nil, err
	}
	t, err := a.surface.taskIn(w, r, "task_id")
	return a.surface.taskAnswer(w, r, t, err, func(instant) any { return mountStepsView{t, rights} })
}

func (a *mountAPI) getStep(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	rights := q.mountRights(r)
	if err := q.done(); err != nil {
		return nil, err
	}
	t, i, err := a.surface.stepIn(w, r, "task_id", "step_id")
	return a.surface.taskAnswer(w, r, t, err, func(instant) any { return mountStepView{t, i, rights} })
}

func (a *mountAPI) adjustStep(w *responseWriter, r *http.Request) (any, error) {
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
	who, err := a.surface.actorOf(r)
	if err != nil {
		return nil, err
	}
	t, i, err := a.surface.svc.operator.adjust(r.Context(), taskID, stepID, by, who)
	return a.surface.taskAnswer(w, r, t, err, func(instant) any { return mountStepView{t, i, mountRightsOf(r)} })
}

// parseAdjustment reads {"retry_limit"?: 1–100, "inputs"?: object}. At least one of them is required.
func parseAdjustment(body []byte) (*adjustment, error) {
	f, by := fieldReader{}, &adjustment{}
	for key, raw := range jsonMembers(body) {
		switch {
		case jsonKind(raw) == 'n':
		case key == "retry_limit":
			by.maxAttempts = f.count(key, raw, 1, maxRetryLimit)
		case key == "inputs":
			by.inputs = f.object(key, raw)
		}
	}
	if by.maxAttempts == 0 && by.inputs == nil && len(f.problems) == 0 {
		f.complain("retry_limit", "is required unless inputs is given")
		f.complain("inputs", "is required unless retry_limit is given")
	}
	return by, f.failure("the step is not changed")
}

// cancelStep cancels a step in the name of the authenticated subject.
func (a *mountAPI) cancelStep(w *responseWriter, r *http.Request) (any, error) {
	taskID, stepID, err := stepPath(r, "task_id", "step_id")
	if err != nil {
		return nil, err
	}
	who, err := a.surface.actorOf(r)
	if err != nil {
		return nil, err
	}
	q := &stepRequest{action: actionCancel, by: cmp.Or(who.subject, defaultInitiator), who: who,
		reason: "Cancelled at the mount point"}
	t, i, err := a.surface.svc.operator.act(r.Context(), taskID, stepID, q)
	return a.surface.taskAnswer(w, r, t, err, func(instant) any { return mountStepView{t, i, mountRightsOf(r)} })
}

// The views of tasks and steps.

// mountRights says what a caller may see of tasks.
type mountRights struct {
	context contextRight // of tasks, and step inputs that equal them
	results bool         // of steps, and inputs that an operator set
}

// mountRights returns what the caller may see and asks for.
func (q *query) mountRights(r *http.Request) mountRights {
	return mountRights{q.contextRight(r), mayReadResults(r.Context())}
}

// mountRightsOf returns what the caller may see.
func mountRightsOf(r *http.Request) mountRights { return (&query{}).mountRights(r) }

// mountTaskView is a task, with its steps if it is requested alone.
type mountTaskView struct {
	task      *task
	rights    mountRights
	withSteps bool
	more      *mountAnalysisView // nil for none
}

// mountAnalysisView is the part of a task that include_dependencies adds.
type mountAnalysisView struct {
	Dependencies dependenciesView       `json:"dependencies"`
	Analysis     dependencyAnalysisView `json:"dependency_analysis"`
}

func (v mountTaskView) writeJSON(o *jsonWriter) {
	t := v.task
	o.b = append(o.b, '{')
	o.id("id", t.id)
	o.id("task_id", t.id)
	o.text("name", t.tpl.name)
	o.text("namespace", t.tpl.namespace)
	o.text("version", t.tpl.version)
	o.text("full_name", t.tpl.fullName())
	o.text("status", t.state.brief().String())
	o.text("state", t.state.String())
	v.rights.context.write(o, "context", t.by.context)
	o.text("initiator", t.by.initiator)
	o.text("source_system", t.by.source)
	o.text("reason", t.by.reason)
	o.texts("tags", t.by.tags)
	o.number("priority", t.by.priority)
	o.id("correlation_id", t.correlation())
	o.textOrNull("trace_id", t.by.traceID())
	o.flag("complete", t.state == taskComplete)
	o.zoned("requested_at", t.requestedAt())
	o.zoned("created_at", t.created)
	o.zoned("updated_at", t.updated)
	o.zoned("completed_at", t.completed)
	if v.withSteps {
		o.name("steps")
		mountStepsView{t, v.rights}.writeList(o)
	}
	if v.more != nil {
		o.members(reflect.ValueOf(*v.more))
	}
	o.b = append(o.b, '}')
}

// mountStepsView lists the steps of a task, each after its dependencies.
type mountStepsView struct {
	task   *task
	rights mountRights
}

func (v mountStepsView) writeJSON(o *jsonWriter) {
	o.b = append(o.b, `{"steps":`...)
	v.writeList(o)
	o.b = append(o.b, '}')
}

func (v mountStepsView) writeList(o *jsonWriter) {
	order := v.order()
	o.list(len(order), func(i int) { mountStepView{v.task, order[i], v.rights}.writeJSON(o) })
}

// order returns the indexes of the steps, each after its parents.
func (v mountStepsView) order() []int {
	t := v.task
	// A task without steps of its own has the order of its template.
	if t.plan == nil {
		return t.tpl.order
	}
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

func (v mountStepView) writeJSON(o *jsonWriter) {
	t, i := v.task, v.step
	s, def := &t.steps[i], t.def(i)
	o.b = append(o.b, '{')
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
	s.writeBackoff(o)
	v.writeInputs(o)
	v.writeResults(o)
	o.zoned("started_at", s.attempted)
	o.zoned("completed_at", s.completed)
	o.zoned("last_attempted_at", s.attempted)
	o.ids("parents_ids", t, t.parents(i))
	o.ids("children_ids", t, t.children(i))
	o.name("depends_on")
	parents := t.parents(i)
	o.list(len(parents), func(n int) { o.b = appendJSONString(o.b, t.def(parents[n]).name) })
	o.b = append(o.b, '}')
}

// writeInputs writes what the next attempt gets: the task's context, which takes the
// permission to read contexts, unless an operator set other inputs.
func (v mountStepView) writeInputs(o *jsonWriter) {
	right := v.rights.context
	if v.task.steps[v.step].inputs != "" {
		if right = contextShown; !v.rights.results {
			right = contextRedacted
		}
	}
	right.write(o, "inputs", v.task.inputsFor(v.step))
}

func (v mountStepView) writeResults(o *jsonWriter) {
	last := v.task.steps[v.step].last
	switch {
	case last == nil:
		o.raw("results", nil)
	case !v.rights.results:
		o.raw("results", nil)
		o.flag("results_redacted", true)
	case last.success:
		o.raw("results", last.result)
	default:
		o.raw("results", mountFailure(last.err))
	}
}

// mountFailure renames the members of an attempt's error for this surface.
func mountFailure(stepError []byte) []byte {
	o := jsonWriter{b: []byte{'{'}}
	for key, value := range jsonMemberBytes(stepError) {
		switch name := string(key); name {
		case "message":
			o.raw("error", value)
		case "error_type":
			o.raw("error_class", value)
		default:
			o.raw(name, value)
		}
	}
	return append(o.b, '}')
}

// ids appends the ids of some of a task's steps.
func (o *jsonWriter) ids(name string, t *task, steps []int) {
	o.name(name)
	o.list(len(steps), func(n int) { o.b = append(t.stepID(steps[n]).appendText(append(o.b, '"')), '"') })
}

// mountListView is one page of tasks.
type mountListView struct {
	taskPage
	rights mountRights
}

func (v mountListView) writeJSON(o *jsonWriter) {
	o.b = append(o.b, `{"tasks":`...)
	v.write(o, func(_ *keptTask, t *task, _ int) { mountTaskView{task: t, rights: v.rights}.writeJSON(o) })
	o.b = append(o.b, `,"pagination":{`...)
	o.number("current_page", v.page)
	o.number("per_page", v.perPage)
	o.number("total_pages", v.pages())
	o.number("total_count", v.total)
	v.writeMore(o)
	o.b = append(o.b, '}', '}')
}
