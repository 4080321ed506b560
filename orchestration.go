package main

// The orchestration role's API: it reads requests, calls the service, and
// writes answers. Rules of tasks and steps do not stand here.

import (
	"encoding/json"
	"net/http"
)

// orchestrationAPI is the surface under /v1 and /api/v1.
type orchestrationAPI struct {
	*surface
	*roleHealth
	mount *mountAPI // the other surface on the listener; nil when it is switched off
}

// newOrchestrationAPI makes the surface of a service. shared is nil when nothing
// is shared with the surfaces of other services.
func newOrchestrationAPI(s *service, shared *surfaceCache) *orchestrationAPI {
	a := &orchestrationAPI{surface: newSurface(s, shared, "orchestration", orchestrationError)}
	a.roleHealth = &roleHealth{
		clock:    s.clock,
		checks:   func(detailed bool) map[string]checkView { return s.health.checks("orchestration", detailed) },
		complete: func(v *readyView) { v.Info = healthInfo(s.cfg, s.health.operationalState()) },
	}
	a.handle(s.cfg.Orchestration.Web.enabled(a.routes()))
	if a.extension != nil {
		a.extension.extend(a.surface, shared)
	}
	a.mount = newMountAPI(s, shared, a.stats)
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

func (a *orchestrationAPI) createTask(w http.ResponseWriter, r *http.Request) (any, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	done, err := a.submit(w, r, "/v1/tasks", body)
	if err != nil {
		return nil, err
	}
	return reply{done.status(), taskView{done.task, a.svc.clock.now(), false, true}}, nil
}

func (a *orchestrationAPI) listTasks(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	page := q.number("page", 1, 1, 1<<31-1)
	perPage := q.number("per_page", 25, 1, 100)
	f := taskFilter{
		namespace: q.text("namespace"), name: q.text("name"), version: q.text("version"),
		initiator: q.text("initiator"), source: q.text("source_system"),
		state: q.taskState("status"),
	}
	if q.err != nil {
		return nil, q.err
	}
	tasks, total, err := a.svc.store.list(&f, (page-1)*perPage, perPage)
	if err != nil {
		return nil, err
	}
	v := taskListView{tasks, a.svc.clock.now(), paginationView{page, perPage, total}, mayReadContexts(r.Context())}
	return v, nil
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

func (a *orchestrationAPI) getTask(w http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.awaited(w, r, "task_uuid")
	if err != nil {
		return nil, err
	}
	return a.taskView(r, t), nil
}

// taskView is a task as the caller may see it.
func (a *orchestrationAPI) taskView(r *http.Request, t *task) taskView {
	return taskView{t, a.svc.clock.now(), false, mayReadContexts(r.Context())}
}

func (a *orchestrationAPI) cancelTask(_ http.ResponseWriter, r *http.Request) (any, error) {
	id, err := pathID(r, "task_uuid")
	if err != nil {
		return nil, err
	}
	t, err := a.svc.operator.cancelTask(r.Context(), id, subjectOf(r.Context()))
	if err != nil {
		return nil, err
	}
	return a.taskView(r, t), nil
}

// contextView is a task's context alone.
type contextView struct {
	TaskUUID uuid            `json:"task_uuid"`
	Context  json.RawMessage `json:"context"`
}

func (a *orchestrationAPI) getContext(_ http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.taskIn(r)
	if err != nil {
		return nil, err
	}
	return contextView{t.id, t.by.context}, nil
}

func (a *orchestrationAPI) getTransitions(_ http.ResponseWriter, r *http.Request) (any, error) {
	id, err := pathID(r, "task_uuid")
	if err != nil {
		return nil, err
	}
	return a.svc.history.transitions(id)
}

func (a *orchestrationAPI) explainTask(_ http.ResponseWriter, r *http.Request) (any, error) {
	id, err := pathID(r, "task_uuid")
	if err != nil {
		return nil, err
	}
	return a.svc.engine.explain(id)
}

func (a *orchestrationAPI) listSteps(_ http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.taskIn(r)
	if err != nil {
		return nil, err
	}
	now := a.svc.clock.now()
	views := make([]stepView, len(t.steps))
	for i := range t.steps {
		views[i] = t.stepView(i, now, a.svc.workerID)
	}
	return views, nil
}

func (a *orchestrationAPI) getStep(_ http.ResponseWriter, r *http.Request) (any, error) {
	t, i, err := a.stepIn(r)
	if err != nil {
		return nil, err
	}
	return t.stepView(i, a.svc.clock.now(), a.svc.workerID), nil
}

func (a *orchestrationAPI) getAudit(_ http.ResponseWriter, r *http.Request) (any, error) {
	taskID, stepID, err := stepPath(r)
	if err != nil {
		return nil, err
	}
	return a.svc.history.audit(taskID, stepID)
}

func (a *orchestrationAPI) actOnStep(_ http.ResponseWriter, r *http.Request) (any, error) {
	taskID, stepID, err := stepPath(r)
	if err != nil {
		return nil, err
	}
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	q, err := parseStepRequest(body)
	if err != nil {
		return nil, err
	}
	q.subject = subjectOf(r.Context())
	t, i, err := a.svc.operator.act(r.Context(), taskID, stepID, q)
	if err != nil {
		return nil, err
	}
	return t.stepView(i, a.svc.clock.now(), a.svc.workerID), nil
}

func (a *orchestrationAPI) listTemplates(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	if q.err != nil {
		return nil, q.err
	}
	return a.svc.templates.registry().listView(q.text("namespace")), nil
}

func (a *orchestrationAPI) getTemplate(_ http.ResponseWriter, r *http.Request) (any, error) {
	tpl, err := a.templateIn(r)
	if err != nil {
		return nil, err
	}
	return tpl.detailView(), nil
}

// links says at the root where everything is, and shows a browser the page that
// says it better.
func (a *orchestrationAPI) links(w http.ResponseWriter, r *http.Request) (any, error) {
	return linksReply(w, r, map[string]string{
		"tasks": "/v1/tasks", "templates": "/v1/templates", "health": "/health/ready",
		"metrics": "/metrics", "openapi": "/api-docs/openapi.json", "docs": "/api-docs/ui",
	}), nil
}

// GET /config of both roles: the effective configuration without its secrets,
// in the form that existing clients know.

// configMetadataView says when and of what the configuration is shown.
type configMetadataView struct {
	Timestamp   zonedTime `json:"timestamp"`
	Environment string    `json:"environment"`
	Version     string    `json:"version"`
}

// authConfigView is how a role authenticates, without keys.
type authConfigView struct {
	Enabled            bool     `json:"enabled"`
	VerificationMethod string   `json:"verification_method"`
	JWTIssuer          string   `json:"jwt_issuer"`
	JWTAudience        string   `json:"jwt_audience"`
	APIKeyHeader       string   `json:"api_key_header"`
	APIKeyCount        int      `json:"api_key_count"`
	StrictValidation   bool     `json:"strict_validation"`
	AllowedAlgorithms  []string `json:"allowed_algorithms"`
}

// authView is the authentication of a role.
func authView(c *roleWebConfig) authConfigView {
	a := &c.Auth
	return authConfigView{
		Enabled: a.Enabled, VerificationMethod: a.JWTVerificationMethod,
		JWTIssuer: a.JWTIssuer, JWTAudience: a.JWTAudience,
		APIKeyHeader: a.APIKeyHeader, APIKeyCount: len(a.APIKeys),
		StrictValidation: a.StrictValidation, AllowedAlgorithms: a.JWTAllowedAlgorithms,
	}
}

// breakerConfigView is of circuit breakers, which one process has no use for.
type breakerConfigView struct {
	Enabled          bool `json:"enabled"`
	FailureThreshold int  `json:"failure_threshold"`
	TimeoutSeconds   int  `json:"timeout_seconds"`
	SuccessThreshold int  `json:"success_threshold"`
}

// poolConfigView is of database pools: the journal has one writer.
type poolConfigView struct {
	WebAPIPoolSize       int `json:"web_api_pool_size"`
	WebAPIMaxConnections int `json:"web_api_max_connections"`
}

// messagingConfigView is how steps reach their handlers.
type messagingConfigView struct {
	Backend string   `json:"backend"`
	Queues  []string `json:"queues"`
}

// orchestrationConfigView is the orchestration role's answer.
type orchestrationConfigView struct {
	Metadata        configMetadataView  `json:"metadata"`
	Auth            authConfigView      `json:"auth"`
	CircuitBreakers breakerConfigView   `json:"circuit_breakers"`
	DatabasePools   poolConfigView      `json:"database_pools"`
	DeploymentMode  string              `json:"deployment_mode"`
	Messaging       messagingConfigView `json:"messaging"`
	Config          map[string]any      `json:"config"`
}

// workerConfigView is the worker role's answer.
type workerConfigView struct {
	Metadata   configMetadataView  `json:"metadata"`
	WorkerID   string              `json:"worker_id"`
	WorkerType string              `json:"worker_type"`
	Auth       authConfigView      `json:"auth"`
	Messaging  messagingConfigView `json:"messaging"`
	Config     map[string]any      `json:"config"`
}

func (s *service) configMetadata() configMetadataView {
	return configMetadataView{zonedTime(s.clock.now()), s.cfg.Environment, version}
}

// messagingView names the engine's two queues, where there is an engine.
func (s *service) messagingView() messagingConfigView {
	v := messagingConfigView{Backend: "in_process", Queues: []string{}}
	if s.engine != nil {
		v.Queues = []string{"local", "http"}
	}
	return v
}

func (a *orchestrationAPI) config(_ http.ResponseWriter, _ *http.Request) (any, error) {
	return orchestrationConfigView{
		Metadata:       a.svc.configMetadata(),
		Auth:           authView(&a.svc.cfg.Orchestration.Web),
		DatabasePools:  poolConfigView{1, 1},
		DeploymentMode: "standalone",
		Messaging:      a.svc.messagingView(),
		Config:         a.svc.cfg.redacted(),
	}, nil
}

// workerSections are the parts of the configuration that the worker's surface
// shows: its own, and those that it shares.
var workerSections = []string{"environment", "role", "worker", "web", "templates", "docs", "log"}

func (a *workerAPI) config(_ http.ResponseWriter, _ *http.Request) (any, error) {
	all, shown := a.svc.cfg.redacted(), map[string]any{}
	for _, name := range workerSections {
		shown[name] = all[name]
	}
	return workerConfigView{
		Metadata:   a.svc.configMetadata(),
		WorkerID:   a.svc.workerID,
		WorkerType: workerType,
		Auth:       authView(&a.svc.cfg.Worker.Web),
		Messaging:  a.svc.messagingView(),
		Config:     shown,
	}, nil
}

// The analytics endpoints of the orchestration role.

// Bounds of the query of /v1/analytics/bottlenecks.
const (
	maxBottlenecks   = 1000
	maxMinExecutions = 1_000_000_000
)

func (a *orchestrationAPI) performance(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	hours := q.number("hours", 24, 1, keptHours)
	if q.err != nil {
		return nil, q.err
	}
	now := a.svc.clock.now()
	figures, states := a.svc.store.figures()
	return figures.performance(&states, now, hours), nil
}

func (a *orchestrationAPI) bottlenecks(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	limit := q.number("limit", 10, 1, maxBottlenecks)
	minimum := q.number("min_executions", 5, 0, maxMinExecutions)
	if q.err != nil {
		return nil, q.err
	}
	figures, states := a.svc.store.figures()
	return figures.bottlenecks(&states, limit, minimum), nil
}
