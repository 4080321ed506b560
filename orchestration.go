package main

// The orchestration role's API: it reads requests, calls the service, and
// writes answers. Rules of tasks and steps do not stand here.

import (
	"encoding/json"
	"net/http"
	"strings"
)

// orchestrationAPI is the surface under /v1 and /api/v1.
type orchestrationAPI struct {
	*surface
	mount *mountAPI // the other surface on the listener; nil when it is switched off
}

func newOrchestrationAPI(s *service) *orchestrationAPI {
	a := &orchestrationAPI{surface: newSurface(s, "orchestration", orchestrationError)}
	a.handle(s.cfg.Orchestration.Web.enabled(a.routes()))
	a.addControl()
	a.mount = newMountAPI(s, a.stats)
	return a
}

// ServeHTTP leaves what is below the mount point to that surface.
func (a *orchestrationAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.svc.cfg.Mount.under(r.URL.Path) {
		a.mount.ServeHTTP(w, r)
		return
	}
	a.surface.ServeHTTP(w, r)
}

// taskPath is where a task is found, under the prefix that the caller used.
func taskPath(r *http.Request, id uuid) string {
	if strings.HasPrefix(r.URL.Path, "/api/") {
		return "/api/v1/tasks/" + id.String()
	}
	return "/v1/tasks/" + id.String()
}

func (a *orchestrationAPI) createTask(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(r, false)
	if err != nil {
		return err
	}
	done, err := a.submit(w, r, "/v1/tasks", body)
	if err != nil {
		return err
	}
	return writeText(w, done.status(), taskView{done.task, a.svc.clock.now(), false, true})
}

// saneTraceparent passes on a W3C trace context header and drops anything else.
func saneTraceparent(h string) string {
	const form = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-00"
	if len(h) < len(form) || len(h) > 256 {
		return ""
	}
	for i := range form {
		if (h[i] == '-') != (form[i] == '-') || h[i] != '-' && unhex(h[i]) > 15 {
			return ""
		}
	}
	for _, c := range []byte(h[len(form):]) {
		if c < 0x21 || c > 0x7e {
			return ""
		}
	}
	return h
}

func (a *orchestrationAPI) listTasks(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	page := q.number("page", 1, 1, 1<<31-1)
	perPage := q.number("per_page", 25, 1, 100)
	f := taskFilter{
		namespace: q.text("namespace"), name: q.text("name"), version: q.text("version"),
		initiator: q.text("initiator"), source: q.text("source_system"),
		state: q.taskState("status"),
	}
	if q.err != nil {
		return q.err
	}
	tasks, total, err := a.svc.store.list(&f, (page-1)*perPage, perPage)
	if err != nil {
		return err
	}
	v := taskListView{tasks, a.svc.clock.now(), paginationView{page, perPage, total}, mayReadContexts(r.Context())}
	return writeText(w, http.StatusOK, v)
}

// taskState reads a filter for one state.
func (q *query) taskState(name string) *taskState {
	word := q.values.Get(name)
	if word == "" {
		return nil
	}
	s, ok := filteredState(word)
	if !ok {
		q.err = failf(badRequest, "%s: %.60q is none of %s", name, word, stateWords)
	}
	return &s
}

// stateWords are the words that filteredState knows.
var stateWords = strings.Join(taskStateNames[:], ", ") + ", in_progress, completed"

// filteredState reads a state as filters name it; existing clients say
// in_progress and completed for two of them.
func filteredState(word string) (taskState, bool) {
	switch word {
	case "in_progress":
		return taskStepsInProcess, true
	case "completed":
		return taskComplete, true
	}
	return parseTaskState(word)
}

// taskIn is the task that the path names.
func (a *orchestrationAPI) taskIn(r *http.Request) (*task, error) {
	id, err := pathID(r, "task_uuid")
	if err != nil {
		return nil, err
	}
	return a.svc.store.view(id)
}

// stepIn is the step that the path names, with its task.
func (a *orchestrationAPI) stepIn(r *http.Request) (*task, int, error) {
	taskID, stepID, err := stepPath(r)
	if err != nil {
		return nil, 0, err
	}
	t, err := a.svc.store.view(taskID)
	if err != nil {
		return nil, 0, err
	}
	i, ok := t.stepIndex(stepID)
	if !ok {
		return nil, 0, stepNotFound(taskID, stepID)
	}
	return t, i, nil
}

func stepPath(r *http.Request) (taskID, stepID uuid, err error) {
	if taskID, err = pathID(r, "task_uuid"); err == nil {
		stepID, err = pathID(r, "step_uuid")
	}
	return taskID, stepID, err
}

func (a *orchestrationAPI) getTask(w http.ResponseWriter, r *http.Request) error {
	t, err := a.awaited(w, r, "task_uuid")
	if err != nil {
		return err
	}
	return a.writeTask(w, r, t)
}

func (a *orchestrationAPI) writeTask(w http.ResponseWriter, r *http.Request, t *task) error {
	return writeText(w, http.StatusOK, taskView{t, a.svc.clock.now(), false, mayReadContexts(r.Context())})
}

func (a *orchestrationAPI) cancelTask(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "task_uuid")
	if err != nil {
		return err
	}
	t, err := a.svc.cancelTask(r.Context(), id, subjectOf(r.Context()))
	if err != nil {
		return err
	}
	return writeText(w, http.StatusOK, taskView{t, a.svc.clock.now(), false, mayReadContexts(r.Context())})
}

// contextView is a task's context alone.
type contextView struct {
	TaskUUID uuid            `json:"task_uuid"`
	Context  json.RawMessage `json:"context"`
}

func (a *orchestrationAPI) getContext(w http.ResponseWriter, r *http.Request) error {
	t, err := a.taskIn(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, contextView{t.id, t.by.context})
}

func (a *orchestrationAPI) getTransitions(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "task_uuid")
	if err != nil {
		return err
	}
	v, err := a.svc.history(id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

func (a *orchestrationAPI) explainTask(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r, "task_uuid")
	if err != nil {
		return err
	}
	v, err := a.svc.explain(id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

func (a *orchestrationAPI) listSteps(w http.ResponseWriter, r *http.Request) error {
	t, err := a.taskIn(r)
	if err != nil {
		return err
	}
	now := a.svc.clock.now()
	views := make([]stepView, len(t.steps))
	for i := range t.steps {
		views[i] = t.stepView(i, now, a.svc.workerID)
	}
	return writeJSON(w, http.StatusOK, views)
}

func (a *orchestrationAPI) getStep(w http.ResponseWriter, r *http.Request) error {
	t, i, err := a.stepIn(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, t.stepView(i, a.svc.clock.now(), a.svc.workerID))
}

func (a *orchestrationAPI) getAudit(w http.ResponseWriter, r *http.Request) error {
	taskID, stepID, err := stepPath(r)
	if err != nil {
		return err
	}
	v, err := a.svc.audit(taskID, stepID)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

func (a *orchestrationAPI) actOnStep(w http.ResponseWriter, r *http.Request) error {
	taskID, stepID, err := stepPath(r)
	if err != nil {
		return err
	}
	body, err := readJSON(r, false)
	if err != nil {
		return err
	}
	q, err := parseStepRequest(body)
	if err != nil {
		return err
	}
	q.subject = subjectOf(r.Context())
	t, i, err := a.svc.actOnStep(r.Context(), taskID, stepID, q)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, t.stepView(i, a.svc.clock.now(), a.svc.workerID))
}

func (a *orchestrationAPI) listTemplates(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	if q.err != nil {
		return q.err
	}
	return writeJSON(w, http.StatusOK, a.svc.registry.listView(q.text("namespace")))
}

func (a *orchestrationAPI) getTemplate(w http.ResponseWriter, r *http.Request) error {
	tpl, err := a.templateIn(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, tpl.detailView())
}

func (a *orchestrationAPI) metrics(w http.ResponseWriter, _ *http.Request) error {
	return writeBody(w, http.StatusOK, metricsContentType, []byte(a.svc.metrics(a.stats)))
}

// links says at the root where everything is, and shows a browser the page that
// says it better.
func (a *orchestrationAPI) links(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Vary", "Accept")
	if wantsHTML(r) {
		http.Redirect(w, r, "/api-docs/ui", http.StatusFound)
		return nil
	}
	return writeJSON(w, http.StatusOK, map[string]any{
		"service": "stepwell", "version": version,
		"links": map[string]string{
			"tasks": "/v1/tasks", "templates": "/v1/templates", "health": "/health/ready",
			"metrics": "/metrics", "openapi": "/api-docs/openapi.json", "docs": "/api-docs/ui",
		},
	})
}
