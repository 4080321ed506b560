package main

// The orchestration role's API: tasks, steps, templates and analytics, and GET
// /config of both roles.

import (
	"encoding/json"
	"net/http"
)

// orchestrationAPI is the surface of the orchestration role.
type orchestrationAPI struct {
	*surface
	*roleHealth
	mount *mountAPI // the other surface on the listener; nil if it is off
}

// newOrchestrationAPI makes the surface of a service. shared is nil when nothing
// is shared with the surfaces of other services.
func newOrchestrationAPI(s *service, shared *surfaceCache) *orchestrationAPI {
	a := &orchestrationAPI{
		surface:    newSurface(s, shared, "orchestration", orchestrationError),
		roleHealth: orchestrationHealth(s.cfg, s.clock, s.health),
	}
	a.openapi = shared.document(a.surface, nil)
	a.handle(s.cfg.Orchestration.Web.enabled(a.routes()))
	if a.extension != nil {
		a.extension.extend(a.surface, shared)
	}
	a.mount = newMountAPI(s, shared, a.stats)
	return a
}

// orchestrationHealth returns the health routes of the role. Without a service h is
// nil.
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
	f := taskFilter{
		namespace: q.text("namespace"), name: q.text("name"), version: q.text("version"),
		initiator: q.text("initiator"), source: q.text("source_system"),
		state: queryWord(q, "status", filteredState, stateWords),
	}
	right := q.contextRight(r)
	page, err := a.page(w, r, q, &f)
	return taskListView{page, right}, err
}

func (a *orchestrationAPI) getTask(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	right := q.contextRight(r)
	t, err := a.awaited(w, r, q, "task_uuid")
	return taskView{t, a.svc.clock.now(), right}, err
}

func (a *orchestrationAPI) cancelTask(_ http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.cancelIn(r, "task_uuid")
	return taskView{t, a.svc.clock.now(), (&query{}).contextRight(r)}, err
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
	return contextView{t.id, t.by.context}, nil
}

func (a *orchestrationAPI) getTransitions(w http.ResponseWriter, r *http.Request) (any, error) {
	return heldByID(w, r, "task_uuid", a.svc.history.transitions)
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
	return jsonList{len(t.steps), func(o *jsonWriter, i int) {
		t.stepView(i, now, a.svc.workerID).writeJSON(o)
	}}, nil
}

func (a *orchestrationAPI) getStep(w http.ResponseWriter, r *http.Request) (any, error) {
	t, i, err := a.stepIn(w, r, "task_uuid", "step_uuid")
	return a.stepAnswer(r, t, i, err)
}

// stepAnswer answers with a step, unless err is not nil. Who may act on steps need not be
// allowed to read their results.
func (a *orchestrationAPI) stepAnswer(r *http.Request, t *task, i int, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	v := t.stepView(i, a.svc.clock.now(), a.svc.workerID)
	if !mayReadResults(r.Context()) {
		v.redactResults()
	}
	return v, nil
}

func (a *orchestrationAPI) getAudit(w http.ResponseWriter, r *http.Request) (any, error) {
	taskID, stepID, err := stepPath(r, "task_uuid", "step_uuid")
	if err != nil {
		return nil, err
	}
	v, err := a.svc.history.audit(taskID, stepID, w.(*recorder))
	return v, a.shown(r, taskID, err)
}

func (a *orchestrationAPI) actOnStep(_ http.ResponseWriter, r *http.Request) (any, error) {
	taskID, stepID, err := stepPath(r, "task_uuid", "step_uuid")
	if err != nil {
		return nil, err
	}
	q, err := readAs(r, parseStepRequest)
	if err != nil {
		return nil, err
	}
	q.subject = subjectOf(r.Context())
	t, i, err := a.svc.operator.act(r.Context(), taskID, stepID, q)
	return a.stepAnswer(r, t, i, err)
}

func (a *orchestrationAPI) listTemplates(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	namespace := q.text("namespace")
	if err := q.done(); err != nil {
		return nil, err
	}
	return a.svc.templates.registry().listView(namespace), a.holdTemplates(w)
}

func (a *orchestrationAPI) getTemplate(w http.ResponseWriter, r *http.Request) (any, error) {
	tpl, err := a.templateIn(w, r, r.PathValue("version"))
	if err != nil {
		return nil, err
	}
	return tpl.detailView(), nil
}

// links answers at the root with the main paths.
func (a *orchestrationAPI) links(w http.ResponseWriter, r *http.Request) (any, error) {
	return linksReply(w, r, map[string]string{
		"tasks": "/v1/tasks", "templates": "/v1/templates", "health": "/health/ready",
		"metrics": "/metrics", "openapi": "/api-docs/openapi.json", "docs": "/api-docs/ui",
	}), nil
}

// GET /config of both roles: the effective configuration without secrets, in the
// form that existing clients know.

// configMetadataView is the time, environment and version of an answer.
type configMetadataView struct {
	Timestamp   zonedTime `json:"timestamp"`
	Environment string    `json:"environment"`
	Version     string    `json:"version"`
}

// authConfigView is the authentication of a role, without keys.
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

// authView returns the authentication of a role.
func authView(c *roleWebConfig) authConfigView {
	a := &c.Auth
	return authConfigView{
		Enabled: a.Enabled, VerificationMethod: a.JWTVerificationMethod,
		JWTIssuer: a.JWTIssuer, JWTAudience: a.JWTAudience,
		APIKeyHeader: a.APIKeyHeader, APIKeyCount: len(a.APIKeys),
		StrictValidation: a.StrictValidation, AllowedAlgorithms: a.JWTAllowedAlgorithms,
	}
}

// breakerConfigView is always zero: a single process needs no circuit breakers.
type breakerConfigView struct {
	Enabled          bool `json:"enabled"`
	FailureThreshold int  `json:"failure_threshold"`
	TimeoutSeconds   int  `json:"timeout_seconds"`
	SuccessThreshold int  `json:"success_threshold"`
}

// poolConfigView is always 1 and 1: the journal has one writer.
type poolConfigView struct {
	WebAPIPoolSize       int `json:"web_api_pool_size"`
	WebAPIMaxConnections int `json:"web_api_max_connections"`
}

// messagingConfigView names the queues in which ready steps wait.
type messagingConfigView struct {
	Backend string   `json:"backend"`
	Queues  []string `json:"queues"`
}

// orchestrationConfigView is the answer of the orchestration role.
type orchestrationConfigView struct {
	Metadata        configMetadataView  `json:"metadata"`
	Auth            authConfigView      `json:"auth"`
	CircuitBreakers breakerConfigView   `json:"circuit_breakers"`
	DatabasePools   poolConfigView      `json:"database_pools"`
	DeploymentMode  string              `json:"deployment_mode"`
	Messaging       messagingConfigView `json:"messaging"`
	Config          map[string]any      `json:"config"`
}

// workerConfigView is the answer of the worker role.
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

// messagingView names the engine's two queues, or none without an engine.
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

// workerSections are the sections of the configuration that the worker role shows.
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
