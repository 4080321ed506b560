package main

// The orchestration role's API: tasks, steps, the dead letter queue, templates and
// analytics, and outside actors, who list and claim steps and answer under a lease.

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// orchestrationAPI is the surface of the orchestration role.
type orchestrationAPI struct {
	*surface
	*roleHealth
	mount   *mountAPI // the other surface on the listener; nil if it is off
	console func() *consoleSite
}

// newOrchestrationAPI makes the surface of a service. shared is nil when nothing
// is shared with the surfaces of other services.
func newOrchestrationAPI(s *service, shared *surfaceCache) *orchestrationAPI {
	a := &orchestrationAPI{
		surface:    newSurface(s, shared, "orchestration", orchestrationError),
		roleHealth: orchestrationHealth(s.cfg, s.clock, s.health),
	}
	a.openapi = shared.document(a.surface, nil)
	a.console = cachedConsole(shared, a.surface)
	rows := s.cfg.Orchestration.Web.enabled(a.routes())
	if !s.cfg.Console.Enabled {
		rows = slices.DeleteFunc(rows, route.isConsole)
	}
	a.handle(rows)
	if a.extension != nil {
		a.extension.extend(a.surface, shared)
	}
	a.mount = newMountAPI(s, shared, a.stats)
	return a
}

// orchestrationHealth returns the health routes of the role.
func orchestrationHealth(cfg *Config, clk clock, h *health) *roleHealth {
	return &roleHealth{role: "orchestration", clock: clk, checker: h, complete: func(v *readyView) {
		v.Info = healthInfo(cfg, h.operationalState())
	}}
}

// ServeHTTP passes requests below the mount point to that surface.
func (a *orchestrationAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.svc.cfg.Mount.under(r.URL.Path) {
		a.mount.ServeHTTP(w, r)
		return
	}
	a.surface.ServeHTTP(w, r)
}

func (a *orchestrationAPI) createTask(w http.ResponseWriter, r *http.Request) (any, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	return a.submit(w, r, "/v1/tasks", body, func(t *task) any {
		return taskView{task: t, now: a.svc.clock.now()}
	})
}

func (a *orchestrationAPI) listTasks(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	right := q.contextRight(r)
	page, err := a.page(w, r, q, r.URL.Path, func(word string) (stateSet, bool) {
		state, ok := filteredState(word)
		return setOf(state), ok
	}, strings.Join(stateWords, ", "))
	return taskListView{page, right}, err
}

func (a *orchestrationAPI) getTask(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	right := q.contextRight(r)
	t, err := a.awaited(w, r, q, "task_uuid")
	if err != nil {
		return nil, err
	}
	now := a.svc.clock.now()
	return a.ofTask(w, r, t, now, taskView{t, now, right}), nil
}

func (a *orchestrationAPI) cancelTask(w http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.cancelIn(r, "task_uuid")
	if err != nil {
		return nil, err
	}
	now := a.svc.clock.now()
	return a.ofTask(w, r, t, now, taskView{t, now, (&query{}).contextRight(r)}), nil
}

// contextView is the answer of GET /v1/tasks/{task_uuid}/context.
type contextView struct {
	TaskUUID uuid            `json:"task_uuid"`
	Context  json.RawMessage `json:"context"`
}

func (a *orchestrationAPI) getContext(w http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.taskIn(w, r, "task_uuid")
	if err != nil {
		return nil, err
	}
	return a.ofTask(w, r, t, a.svc.clock.now(), contextView{t.id, t.by.context}), nil
}

func (a *orchestrationAPI) getTransitions(w http.ResponseWriter, r *http.Request) (any, error) {
	v, err := heldByID(w, r, "task_uuid", a.svc.history.transitions)
	if err != nil {
		return nil, err
	}
	return a.ofTask(w, r, v.task, a.svc.clock.now(), v), nil
}

func (a *orchestrationAPI) explainTask(w http.ResponseWriter, r *http.Request) (any, error) {
	return a.explanation(w, r, "task_uuid")
}

func (a *orchestrationAPI) listSteps(w http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.taskIn(w, r, "task_uuid")
	if err != nil {
		return nil, err
	}
	now := a.svc.clock.now()
	return a.ofTask(w, r, t, now, jsonList{len(t.steps), func(o *jsonWriter, i int) {
		t.stepView(i, now, a.svc.workerID).writeJSON(o)
	}}), nil
}

func (a *orchestrationAPI) getStep(w http.ResponseWriter, r *http.Request) (any, error) {
	t, i, err := a.stepIn(w, r, "task_uuid", "step_uuid")
	return a.stepAnswer(w, r, t, i, err)
}

// stepAnswer answers with a step, unless err is not nil. Who may act on steps need not be
// allowed to read their results.
func (a *orchestrationAPI) stepAnswer(w http.ResponseWriter, r *http.Request, t *task, i int, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	now := a.svc.clock.now()
	v := t.stepView(i, now, a.svc.workerID)
	if !mayReadResults(r.Context()) {
		v.redactResults()
	}
	return a.ofTask(w, r, t, now, v), nil
}

func (a *orchestrationAPI) getAudit(w http.ResponseWriter, r *http.Request) (any, error) {
	t, i, err := a.stepIn(w, r, "task_uuid", "step_uuid") // for the tag, which may be older than the audit
	if err != nil {
		return nil, err
	}
	v, err := a.svc.history.audit(t.id, t.stepID(i), w.(*recorder))
	if err = a.shown(r, t.id, err); err != nil {
		return nil, err
	}
	return a.ofTask(w, r, t, a.svc.clock.now(), v), nil
}

func (a *orchestrationAPI) actOnStep(w http.ResponseWriter, r *http.Request) (any, error) {
	taskID, stepID, err := stepPath(r, "task_uuid", "step_uuid")
	if err != nil {
		return nil, err
	}
	q, err := readAs(r, parseStepRequest)
	if err != nil {
		return nil, err
	}
	if q.who, err = a.actorOf(r); err != nil {
		return nil, err
	}
	t, i, err := a.svc.operator.act(r.Context(), taskID, stepID, q)
	return a.stepAnswer(w, r, t, i, err)
}

func (a *orchestrationAPI) listTemplates(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	namespace := q.text("namespace")
	if err := q.done(); err != nil {
		return nil, err
	}
	all := a.svc.templates.registry()
	return withTag(w, r, weakTag(all.hash()), all.listView(namespace)), a.holdTemplates(w)
}

func (a *orchestrationAPI) getTemplate(w http.ResponseWriter, r *http.Request) (any, error) {
	tpl, err := a.templateIn(w, r, r.PathValue("version"))
	if err != nil {
		return nil, err
	}
	return withTag(w, r, weakTag(tpl.hash), tpl.detailView()), nil
}

// links answers at the root with the main paths.
func (a *orchestrationAPI) links(w http.ResponseWriter, r *http.Request) (any, error) {
	links := map[string]string{
		"tasks": "/v1/tasks", "templates": "/v1/templates", "health": "/health/ready",
		"metrics": "/metrics", "openapi": "/api-docs/openapi.json", "docs": "/api-docs/ui",
	}
	if a.svc.cfg.Console.Enabled {
		links["console"] = consolePath
	}
	return linksReply(w, r, links), nil
}

// Analytics.

// The upper bounds of the query parameters of GET /v1/analytics/bottlenecks.
const (
	maxBottlenecks   = 1000
	maxMinExecutions = 1_000_000_000
)

func (a *orchestrationAPI) performance(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	hours := q.number("hours", 24, 1, keptHours)
	if err := q.done(); err != nil {
		return nil, err
	}
	now := a.svc.clock.now()
	figures, states := a.svc.store.figures()
	return figures.performance(&states, now, hours), nil
}

func (a *orchestrationAPI) history(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	hours := q.number("hours", 24, 1, keptHours)
	filter := figureFilter{q.text("namespace"), q.text("name"), q.text("version")}
	if err := q.done(); err != nil {
		return nil, err
	}
	figures, _ := a.svc.store.figures()
	if err := w.(*recorder).holdEach(hours+len(figures.templates), 512); err != nil {
		return nil, err
	}
	return figures.history(filter, a.svc.clock.now(), hours), nil
}

func (a *orchestrationAPI) bottlenecks(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	limit := q.number("limit", 10, 1, maxBottlenecks)
	minimum := q.number("min_executions", 5, 0, maxMinExecutions)
	if err := q.done(); err != nil {
		return nil, err
	}
	if err := w.(*recorder).holdEach(2*limit, 256); err != nil {
		return nil, err
	}
	figures, states := a.svc.store.figures()
	return figures.bottlenecks(&states, limit, minimum), nil
}

func (a *orchestrationAPI) getSummary(w http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.taskIn(w, r, "task_uuid")
	if err != nil {
		return nil, err
	}
	now := a.svc.clock.now()
	v := t.summary(now)
	v.Links = summaryLinksOf(r, t.id)
	return a.ofTask(w, r, t, now, v), nil
}

// summaryLinksOf returns links under the prefix that the caller used.
func summaryLinksOf(r *http.Request, id uuid) summaryLinks {
	path := taskPath(r, id)
	return summaryLinks{
		Task: path, Steps: path + "/workflow_steps", DLQ: strings.Replace(path, "/v1/tasks/", "/v1/dlq/task/", 1),
	}
}
