package main

// The surfaces family: the three HTTP APIs. Each reads requests, calls the service
// and returns views of the result; the rules of tasks are below. A surface knows
// the server, the service and all that is below them; it does not know fixture
// mode or the command line.
//
//	routes.go                the route tables and their permissions; which surface a listener serves, and its answers
//	                         while it starts; the worker role: templates, validation, metrics as JSON; GET /config of both roles
//	orchestration.go         the orchestration role: tasks, steps, dead letters, templates, analytics, the console
//	orchestration_lists.go   lists of tasks, and its event stream
//	mount.go                 the mount point: links, errors, health, handlers
//	mount_tasks.go           its tasks, steps and analytics

import (
	"net/http"
	"strings"
)

// routes returns the rows of the orchestration role, which answer under /v1 and
// under /api/v1.
func (a *orchestrationAPI) routes() []route {
	return append([]route{
		{"POST /v1/tasks", needs(permTasksCreate), a.createTask},
		{"GET /v1/tasks", needs(permTasksList), a.listTasks},
		{"GET /v1/tasks/{task_uuid}", needs(permTasksRead), a.getTask},
		{"DELETE /v1/tasks/{task_uuid}", needs(permTasksCancel), a.cancelTask},
		{"GET /v1/tasks/{task_uuid}/context", needs(permTasksContextRead), a.getContext},
		{"GET /v1/tasks/{task_uuid}/transitions", needs(permTasksRead), a.getTransitions},
		{"GET /v1/tasks/{task_uuid}/explain", needs(permTasksRead), a.explainTask},
		{"GET /v1/tasks/{task_uuid}/workflow_steps", needs(permStepsRead), a.listSteps},
		{"GET /v1/tasks/{task_uuid}/workflow_steps/{step_uuid}", needs(permStepsRead), a.getStep},
		{"GET /v1/tasks/{task_uuid}/workflow_steps/{step_uuid}/audit", needs(permStepsRead), a.getAudit},
		{"PATCH /v1/tasks/{task_uuid}/workflow_steps/{step_uuid}", needs(permStepsResolve), a.actOnStep},
		{"GET /v1/tasks/{task_uuid}/summary", needs(permTasksRead), a.getSummary},
		{"GET /v1/steps", needs(permStepsRead), a.listOutsideSteps},
		{"POST /v1/steps/claim", needs(permStepsResolve), a.claimSteps},
		{"POST /v1/steps/complete", needs(permStepsResolve), a.completeAll},
		{"POST /v1/steps/fail", needs(permStepsResolve), a.failAll},
		{"POST /v1/steps/{step_uuid}/extend", needs(permStepsResolve), a.extendLease},
		{"POST /v1/steps/{step_uuid}/complete", needs(permStepsResolve), a.completeClaimed},
		{"POST /v1/steps/{step_uuid}/fail", needs(permStepsResolve), a.failClaimed},
		{"POST /v1/steps/{step_uuid}/checkpoint", needs(permStepsResolve), a.yieldClaimed},
		{"GET /v1/events", needs(permTasksList), a.streamEvents},
		{"GET /v1/events/deliveries", needs(permDLQRead), a.listDeliveries},
		{"POST /v1/events/deliveries/{id}/resend", needs(permDLQUpdate), a.resendDelivery},
		{"GET /v1/dlq", needs(permDLQRead), a.listDLQ},
		{"GET /v1/dlq/task/{task_uuid}", needs(permDLQRead), a.getTaskDLQ},
		{"GET /v1/dlq/investigation-queue", needs(permDLQRead), a.dlqQueue},
		{"GET /v1/dlq/staleness", needs(permDLQRead), a.staleness},
		{"PATCH /v1/dlq/entry/{dlq_entry_uuid}", needs(permDLQUpdate), a.updateDLQ},
		{"GET /v1/dlq/stats", needs(permDLQStats), a.dlqStats},
		{"GET /v1/templates", needs(permTemplatesRead, permSystemHandlersRead), a.listTemplates},
		{"GET /v1/templates/{namespace}/{name}/{version}", needs(permTemplatesRead, permSystemHandlersRead), a.getTemplate},
		{"GET /v1/analytics/performance", needs(permSystemAnalyticsRead), a.performance},
		{"GET /v1/analytics/bottlenecks", needs(permSystemAnalyticsRead), a.bottlenecks},
		{"GET /v1/analytics/history", needs(permSystemAnalyticsRead), a.history},
		{"GET /v1/backup", everything, a.sendState},
		{configRoute, needs(permSystemConfigRead), a.config},
		{"GET /health", public, a.health},
		{"GET /health/live", public, a.healthLive},
		{"GET /health/ready", public, a.healthReady},
		{"GET /health/detailed", public, a.healthDetailed},
		{"GET /metrics", public, a.metrics},
		{"GET /{$}", public, a.links},
	}, append(a.consoleRoutes(), a.docsRoutes(a.document)...)...)
}

// routes returns the rows of the worker role.
func (a *workerAPI) routes() []route {
	return append([]route{
		{"GET /v1/templates", needs(permWorkerTemplatesRead), a.listTemplates},
		{"GET /v1/templates/{namespace}/{name}/{version}", needs(permWorkerTemplatesRead), a.getTemplate},
		{"POST /v1/templates/{namespace}/{name}/{version}/validate", needs(permTemplatesValidate), a.validateTemplate},
		{configRoute, needs(permWorkerConfigRead), a.config},
		{"GET /health", public, a.health},
		{"GET /health/live", public, a.healthLive},
		{"GET /health/ready", public, a.healthReady},
		{"GET /health/detailed", public, a.healthDetailed},
		{"GET /metrics", public, a.metrics},
		{"GET /metrics/worker", public, a.metricsJSON},
		{"GET /metrics/events", public, a.metricsEvents},
		{"GET /{$}", public, a.links},
	}, a.docsRoutes(a.document)...)
}

// routes returns the rows of the mount-point API, relative to mount.path.
func (a *mountAPI) routes() []route {
	return append([]route{
		{"GET /handlers", needs(permSystemHandlersRead), a.listNamespaces},
		{"GET /handlers/{namespace}", needs(permSystemHandlersRead), a.listHandlers},
		{"GET /handlers/{namespace}/{name}", needs(permSystemHandlersRead), a.getHandler},
		{"POST /tasks", needs(permTasksCreate), a.createTask},
		{"GET /tasks", needs(permTasksList), a.listTasks},
		{"GET /tasks/{id}", needs(permTasksRead), a.getTask},
		{"GET /tasks/{id}/explain", needs(permTasksRead), a.explainTask},
		{"DELETE /tasks/{id}", needs(permTasksCancel), a.cancelTask},
		{"GET /tasks/{task_id}/workflow_steps", needs(permStepsRead), a.listSteps},
		{"GET /tasks/{task_id}/workflow_steps/{step_id}", needs(permStepsRead), a.getStep},
		{"PATCH /tasks/{task_id}/workflow_steps/{step_id}", needs(permStepsResolve), a.adjustStep},
		{"DELETE /tasks/{task_id}/workflow_steps/{step_id}", needs(permStepsResolve), a.cancelStep},
		{"GET /analytics/performance", needs(permSystemAnalyticsRead), a.performance},
		{"GET /analytics/bottlenecks", needs(permSystemAnalyticsRead), a.bottlenecks},
		{"GET /health/ready", public, a.healthReady},
		{"GET /health/live", public, a.healthLive},
		{mountStatusRoute, public, a.healthStatus},
		{mountMetricsRoute, public, a.metrics},
		{"GET /{$}", public, a.links},
	}, a.docsRoutes(a.document)...)
}

// gates are the handlers of the two listeners.
type gates struct {
	orchestration, worker gate
	connections           *connections

	shared *surfaceCache // shared by the surfaces of all services; nil to share nothing
}

// open lets the listeners serve the surfaces of a service.
func (g *gates) open(s *service) {
	if s.cfg.Role != "worker" {
		g.orchestration.open(newOrchestrationAPI(s, g.shared))
	}
	if s.cfg.Role != "orchestration" {
		g.worker.open(newWorkerAPI(s, g.shared))
	}
}

// The worker role's API: its links, its health, its metrics as JSON, and templates: the
// list, one template resolved, and whether this worker can run a template.

// workerAPI is the surface of the worker role.
type workerAPI struct {
	*surface
	*roleHealth
}

func newWorkerAPI(s *service, shared *surfaceCache) *workerAPI {
	a := &workerAPI{newSurface(s, shared, "worker", workerError), workerHealth(s)}
	a.openapi = shared.document(a.surface, nil)
	a.handle(s.cfg.Worker.Web.enabled(a.routes()))
	return a
}

// links answers at the root with the main paths.
func (a *workerAPI) links(w http.ResponseWriter, r *http.Request) (any, error) {
	return linksReply(w, r, map[string]string{
		"templates": "/v1/templates", "health": "/health/ready", "metrics": "/metrics",
		"openapi": "/api-docs/openapi.json", "docs": "/api-docs/ui",
	}), nil
}

// systemInfoView describes the worker in its health answers.
type systemInfoView struct {
	Version                string   `json:"version"`
	Environment            string   `json:"environment"`
	UptimeSeconds          int64    `json:"uptime_seconds"`
	WorkerType             string   `json:"worker_type"`
	DatabasePoolSize       int      `json:"database_pool_size"`
	CommandProcessorActive bool     `json:"command_processor_active"`
	SupportedNamespaces    []string `json:"supported_namespaces"`
}

// workerHealth returns the health routes of the role, which dates its checks.
func workerHealth(s *service) *roleHealth {
	h := &roleHealth{role: "worker", clock: s.clock, workerID: s.workerID, checker: s.health}
	h.complete = func(v *readyView) {
		info := systemInfoView{
			Version: version, Environment: s.cfg.Environment, WorkerType: workerType, DatabasePoolSize: 1,
			UptimeSeconds: s.uptimeSeconds(), SupportedNamespaces: s.templates.namespaces(),
			CommandProcessorActive: s.engine != nil && v.Checks["command_processor"].Status == healthyWord,
		}
		v.System = info
		for name, c := range v.Checks {
			c.LastChecked = v.Timestamp
			v.Checks[name] = c
		}
	}
	return h
}

// Metrics as JSON.

func (a *workerAPI) metricsJSON(_ http.ResponseWriter, _ *http.Request) (any, error) {
	return workerMetricsView{a.figures(), zonedTime(a.svc.clock.now()), a.svc.workerID}, nil
}

// workerMetric is one metric.
type workerMetric struct {
	Value      float64           `json:"value"`
	MetricType string            `json:"metric_type"` // counter or gauge
	Labels     map[string]string `json:"labels"`
	Help       string            `json:"help"`
}

type workerMetricsView struct {
	Metrics   map[string]workerMetric `json:"metrics"`
	Timestamp zonedTime               `json:"timestamp"`
	WorkerID  string                  `json:"worker_id"`
}

// figures returns the metrics by name. Those of the engine are missing in a process
// without one.
func (a *workerAPI) figures() map[string]workerMetric {
	s, metrics := a.svc, map[string]workerMetric{}
	add := func(kind, name string, value float64, help string) {
		metrics[name] = workerMetric{value, kind, map[string]string{}, help}
	}
	add("gauge", "uptime_seconds", float64(s.uptimeSeconds()), "Seconds since the service started.")
	add("gauge", "database_pool_size", 1, "Writers of the journal.")
	templates := s.templates.usage()
	add("gauge", "templates_cached", float64(templates.TotalCached), "Templates registered.")
	add("counter", "template_cache_hits_total", float64(templates.CacheHits), "Look-ups of registered templates.")
	add("counter", "template_cache_misses_total", float64(templates.CacheMisses), "Look-ups of unknown templates.")
	if s.engine == nil {
		return metrics
	}
	f := s.workFigures()
	add("gauge", "queue_depth", float64(f.queued), "Steps that are ready and wait for a slot.")
	add("gauge", "handlers_running", float64(f.running), "Attempts in flight in this process.")
	add("counter", "attempts_succeeded_total", float64(f.attempts[1]), "Step attempts that succeeded.")
	add("counter", "attempts_failed_total", float64(f.attempts[0]), "Step attempts that failed.")
	add("counter", "late_results_total", float64(f.late), "Handler results that came too late to count.")
	return metrics
}

// eventRouterView counts transitions that went to event streams, which are durable, and domain
// events by their mode. A routing error is a stream that ended because its reader was too slow,
// or an event that was withheld because of its schema.
type eventRouterView struct {
	TotalRouted        uint64 `json:"total_routed"`
	DurableRouted      uint64 `json:"durable_routed"`
	FastRouted         uint64 `json:"fast_routed"`
	BroadcastRouted    uint64 `json:"broadcast_routed"`
	FastDeliveryErrors uint64 `json:"fast_delivery_errors"`
	RoutingErrors      uint64 `json:"routing_errors"`
}

// eventBusView counts deliveries: the handlers are the subscribers of domain events, and the
// channels are event streams.
type eventBusView struct {
	TotalEventsDispatched  uint64 `json:"total_events_dispatched"`
	RustHandlerDispatches  uint64 `json:"rust_handler_dispatches"`
	FFIChannelDispatches   uint64 `json:"ffi_channel_dispatches"`
	RustHandlerErrors      uint64 `json:"rust_handler_errors"`
	FFIChannelDrops        uint64 `json:"ffi_channel_drops"`
	RustSubscriberPatterns uint64 `json:"rust_subscriber_patterns"`
	RustHandlerCount       uint64 `json:"rust_handler_count"`
	FFISubscriberCount     uint64 `json:"ffi_subscriber_count"`
}

type eventMetricsView struct {
	Router       eventRouterView `json:"router"`
	InProcessBus eventBusView    `json:"in_process_bus"`
	CapturedAt   zonedTime       `json:"captured_at"`
	WorkerID     string          `json:"worker_id"`
}

// metricsEvents counts transitions, domain events and their deliveries.
func (a *workerAPI) metricsEvents(_ http.ResponseWriter, _ *http.Request) (any, error) {
	v := eventMetricsView{CapturedAt: zonedTime(a.svc.clock.now()), WorkerID: a.svc.workerID}
	if a.svc.store == nil {
		return v, nil
	}
	f, p := a.svc.store.streamFigures(), a.svc.publishedFigures()
	durable, fast, broadcast := p.published[modeDurable], p.published[modeFast], p.published[modeBroadcast]
	v.Router = eventRouterView{
		TotalRouted: f.delivered + durable + fast + broadcast, DurableRouted: f.delivered + durable,
		FastRouted: fast, BroadcastRouted: broadcast, FastDeliveryErrors: p.fastFailed,
		RoutingErrors: f.cut + p.withheld,
	}
	sent := p.delivered + p.fastDelivered
	v.InProcessBus = eventBusView{
		TotalEventsDispatched: f.delivered + sent, RustHandlerDispatches: sent, FFIChannelDispatches: f.delivered,
		RustHandlerErrors: p.failed + p.fastFailed, FFIChannelDrops: f.cut, RustSubscriberPatterns: uint64(p.patterns),
		RustHandlerCount: uint64(len(p.subscribers)), FFISubscriberCount: uint64(f.open),
	}
	return v, nil
}

// Templates.

// workerTemplateList is the answer of GET /v1/templates.
type workerTemplateList struct {
	SupportedNamespaces []string           `json:"supported_namespaces"`
	TemplateCount       int                `json:"template_count"` // of all templates, with any filter
	CacheStats          *templateCacheView `json:"cache_stats"`
	WorkerCapabilities  []string           `json:"worker_capabilities"`
	Templates           []templateSummary  `json:"templates"`
}

func (a *workerAPI) listTemplates(w http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	withStats, namespace := q.flag("include_cache_stats"), q.text("namespace")
	if err := q.done(); err != nil {
		return nil, err
	}
	all := a.svc.templates.registry()
	list := all.listView(namespace)
	v := workerTemplateList{
		SupportedNamespaces: a.svc.templates.namespaces(), TemplateCount: list.TotalCount,
		WorkerCapabilities: a.svc.templates.capabilities(), Templates: list.Templates,
	}
	if withStats {
		stats := a.svc.templates.usage()
		v.CacheStats = &stats
		return v, a.holdTemplates(w)
	}
	return withTag(w, r, weakTag(all.hash()), v), a.holdTemplates(w)
}

// workerTemplateDetail is the answer of GET /v1/templates/{namespace}/{name}/{version}.
type workerTemplateDetail struct {
	Template        resolvedTemplateView `json:"template"`
	HandlerMetadata handlerMetadataView  `json:"handler_metadata"`
	Cached          bool                 `json:"cached"`
	CacheAgeSeconds int64                `json:"cache_age_seconds"`
	AccessCount     uint64               `json:"access_count"`
}

func (a *workerAPI) getTemplate(w http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.templateIn(w, r, r.PathValue("version"))
	if err != nil {
		return nil, err
	}
	e := a.svc.templates.entry(t)
	return withTag(w, r, weakTag(t.hash), workerTemplateDetail{
		Template:        resolvedTemplateView{t.shownJSON, a.svc.cfg.Environment, zonedTime(e.since)},
		HandlerMetadata: t.handlerMetadata(e.since),
		Cached:          true,
		CacheAgeSeconds: e.ageSeconds(a.svc.clock.now()),
		AccessCount:     e.count.Load(),
	}), nil
}

// validateTemplate checks the template in the body, or else the registered one.
func (a *workerAPI) validateTemplate(w http.ResponseWriter, r *http.Request) (any, error) {
	body, err := bodyRules{optional: true}.read(r)
	if err != nil {
		return nil, err
	}
	if err := w.(*recorder).holdEach(len(body), parsedMemory); err != nil {
		return nil, err
	}
	if len(templateMembers(body)) > 0 {
		named := templateName{r.PathValue("namespace"), r.PathValue("name")}
		return a.svc.templates.validateDefinition(body, named, r.PathValue("version")), nil
	}
	t, err := a.templateIn(w, r, r.PathValue("version"))
	if err != nil {
		return nil, err
	}
	return a.svc.templates.validateRegistered(t), nil
}

// surfaceRoutes is the route table of one surface.
type surfaceRoutes struct {
	surface string
	routes  []route
}

// allRoutes returns the tables of all surfaces, to be read only: their handlers have no
// service.
func allRoutes() []surfaceRoutes {
	return []surfaceRoutes{
		{"orchestration", (&orchestrationAPI{}).routes()},
		{"worker", (&workerAPI{}).routes()},
		{"mount", (&mountAPI{}).routes()},
	}
}

// askedBy lists, by permission, the routes that require it: method and path, other
// permissions that suffice, and the surface unless it is the orchestration role's.
func askedBy() (asked [permissionCount][]string) {
	for _, table := range allRoutes() {
		for _, row := range table.routes {
			for _, p := range row.permissions {
				asked[p] = append(asked[p], describeRoute(table.surface, row, p))
			}
		}
	}
	asked[permTasksContextRead] = append(asked[permTasksContextRead], "a task's context wherever it appears")
	return asked
}

// describeRoute describes a row to the holder of p.
func describeRoute(surface string, row route, p permission) string {
	text := row.pattern
	if surface != "orchestration" {
		text += " (" + surface + ")"
	}
	var others []string
	for _, other := range row.permissions {
		if other != p {
			others = append(others, other.String())
		}
	}
	if len(others) > 0 {
		text += " (or " + strings.Join(others, ", ") + ")"
	}
	return text
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
