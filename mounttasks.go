package main

// The mount-point API's operations on tasks and steps: they read requests, call
// the service, and write answers.

import (
	"encoding/json"
	"net/http"
	"strings"
)

// readNested reads a body that may stand under a name: {"task": {…}} for {…}.
func readNested(r *http.Request, name string) ([]byte, error) {
	body, err := readJSON(r, false)
	if err != nil {
		return nil, err
	}
	if jsonKind(body) != '{' {
		return nil, failf(badRequest, "the body must be a JSON object")
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

func (a *mountAPI) createTask(w http.ResponseWriter, r *http.Request) error {
	body, err := readNested(r, "task")
	if err != nil {
		return err
	}
	done, err := a.submit(w, r, "mount /tasks", body)
	if err != nil {
		return err
	}
	return writeText(w, done.status(), mountTaskView{task: done.task, sight: mountSight{contexts: true}})
}

func (a *mountAPI) listTasks(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	page := q.number("page", 1, 1, 1<<31-1)
	perPage := q.number("per_page", 25, 1, 100)
	f := taskFilter{namespace: q.text("namespace"), name: q.text("name"), version: q.text("version")}
	q.briefStatus("status", &f)
	if q.err != nil {
		return q.err
	}
	tasks, total, err := a.svc.store.list(&f, (page-1)*perPage, perPage)
	if err != nil {
		return err
	}
	v := mountListView{tasks, mountSightOf(r.Context()), paginationView{page, perPage, total}}
	return writeText(w, http.StatusOK, v)
}

// briefStatus reads a filter for a status of this surface, or for an exact state.
func (q *query) briefStatus(name string, f *taskFilter) {
	word := q.values.Get(name)
	if word == "" {
		return
	}
	if status, ok := parseBriefStatus(word); ok {
		f.status = &status
		return
	}
	state, ok := parseTaskState(word)
	if !ok && q.err == nil {
		q.err = failf(badRequest, "%s: %.60q is none of %s; nor one of the exact states %s", name, word,
			strings.Join(briefStatusNames[:], ", "), strings.Join(taskStateNames[:], ", "))
	}
	f.state = &state
}

func (a *mountAPI) getTask(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	analyzed := q.flag("include_dependencies")
	if q.err != nil {
		return q.err
	}
	t, err := a.awaited(w, r, "id")
	if err != nil {
		return err
	}
	v := mountTaskView{task: t, sight: mountSightOf(r.Context()), withSteps: true}
	if analyzed {
		if v.more, err = dependencyMembers(t, a.svc.clock.now()); err != nil {
			return err
		}
	}
	return writeText(w, http.StatusOK, v)
}

func (a *mountAPI) explainTask(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "id")
	if err != nil {
		return err
	}
	v, err := a.svc.explain(id)
	if err != nil {
		return err
	}
	v.Status, v.State = v.state.brief().String(), v.state.String()
	return writeJSON(w, http.StatusOK, v)
}

// dependencyMembers is the analysis of a task's dependencies.
func dependencyMembers(t *task, now instant) ([]namedJSON, error) {
	dependencies, analysis := analyzeTask(t, now)
	first, err := json.Marshal(dependencies)
	if err != nil {
		return nil, err
	}
	second, err := json.Marshal(analysis)
	return []namedJSON{{"dependencies", first}, {"dependency_analysis", second}}, err
}

func (a *mountAPI) cancelTask(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "id")
	if err != nil {
		return err
	}
	t, err := a.svc.cancelTask(r.Context(), id, subjectOf(r.Context()))
	if err != nil {
		return err
	}
	return writeText(w, http.StatusOK, mountTaskView{task: t, sight: mountSightOf(r.Context())})
}

func (a *mountAPI) listSteps(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "task_id")
	if err != nil {
		return err
	}
	t, err := a.svc.store.view(id)
	if err != nil {
		return err
	}
	return writeText(w, http.StatusOK, mountStepsView{t, mountSightOf(r.Context())})
}

// stepPath is the step that the path names.
func (a *mountAPI) stepPath(r *http.Request) (taskID, stepID uuid, err error) {
	if taskID, err = pathID(r, "task_id"); err == nil {
		stepID, err = pathID(r, "step_id")
	}
	return taskID, stepID, err
}

func (a *mountAPI) getStep(w http.ResponseWriter, r *http.Request) error {
	taskID, stepID, err := a.stepPath(r)
	if err != nil {
		return err
	}
	t, err := a.svc.store.view(taskID)
	if err != nil {
		return err
	}
	i, ok := t.stepIndex(stepID)
	if !ok {
		return stepNotFound(taskID, stepID)
	}
	return writeText(w, http.StatusOK, mountStepView{t, i, mountSightOf(r.Context())})
}

func (a *mountAPI) adjustStep(w http.ResponseWriter, r *http.Request) error {
	taskID, stepID, err := a.stepPath(r)
	if err != nil {
		return err
	}
	body, err := readNested(r, "workflow_step")
	if err != nil {
		return err
	}
	by, err := parseAdjustment(body)
	if err != nil {
		return err
	}
	t, i, err := a.svc.adjustStep(r.Context(), taskID, stepID, by, subjectOf(r.Context()))
	if err != nil {
		return err
	}
	return writeText(w, http.StatusOK, mountStepView{t, i, mountSightOf(r.Context())})
}

// parseAdjustment reads {"retry_limit"?: 1–100, "inputs"?: object}, of which at
// least one must be there.
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

// count reads an integer from lo to hi.
func (f *fieldReader) count(key string, raw []byte, lo, hi int64) int {
	n, ok := jsonInt(raw)
	if !ok || n < lo || n > hi {
		f.complain(key, "must be an integer from %d to %d", lo, hi)
	}
	return int(n)
}

// cancelStep is the step action cancel, in the name of who is authenticated.
func (a *mountAPI) cancelStep(w http.ResponseWriter, r *http.Request) error {
	taskID, stepID, err := a.stepPath(r)
	if err != nil {
		return err
	}
	subject := subjectOf(r.Context())
	q := &stepRequest{action: actionCancel, by: orDefault(subject, defaultInitiator), subject: subject,
		reason: "Cancelled at the mount point"}
	t, i, err := a.svc.actOnStep(r.Context(), taskID, stepID, q)
	if err != nil {
		return err
	}
	return writeText(w, http.StatusOK, mountStepView{t, i, mountSightOf(r.Context())})
}
