package main

// The worker role's API: its links, its health, its metrics as JSON, and templates: the
// list, one template resolved, and whether this worker can run a template.

import "net/http"

// workerAPI is the surface of the worker role.
type workerAPI struct {
	*surface
	*roleHealth
}

func newWorkerAPI(s *service, shared *surfaceCache) *workerAPI {
	a := &workerAPI{newSurface(s, shared, "worker", workerError), workerHealth(s)}
	a.openapi = shared.document(a.surface)
	a.handle(s.cfg.Worker.Web.enabled(a.routes()))
	return a
}

// links answers at the root with the main paths.
func (a *workerAPI) links(w *responseWriter, r *http.Request) (any, error) {
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

// workerHealth returns the health routes of the role, whose checks have times.
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

func (a *workerAPI) metricsJSON(_ *responseWriter, _ *http.Request) (any, error) {
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

// figures returns the metrics by name. Those of the engine are missing in a process without one.
func (a *workerAPI) figures() map[string]workerMetric {
	s, metrics := a.svc, map[string]workerMetric{}
	add := func(kind, name string, value float64, help string) {
		metrics[name] = workerMetric{value, kind, map[string]string{}, help}
	}
	add("gauge", "uptime_seconds", float64(s.uptimeSeconds()), "Seconds since the service started.")
	add("gauge", "database_pool_size", 1, "Writers of the journal.")
	if s.engine == nil {
		return metrics
	}
	f := s.workFigures()
	add("gauge", "queue_depth", float64(f.work.queued), "Steps that are ready and wait for a slot.")
	add("gauge", "handlers_running", float64(f.work.running), "Attempts in flight in this process.")
	add("counter", "attempts_succeeded_total", float64(f.attempts[1]), "Step attempts that succeeded.")
	add("counter", "attempts_failed_total", float64(f.attempts[0]), "Step attempts that failed.")
	return metrics
}

// eventMetricsView counts transitions that went to event streams, which are durable. The other names are those of what
// existing clients look for.
type eventMetricsView struct {
	Router       map[string]uint64 `json:"router"`
	InProcessBus map[string]uint64 `json:"in_process_bus"`
	CapturedAt   zonedTime         `json:"captured_at"`
	WorkerID     string            `json:"worker_id"`
}

func (a *workerAPI) metricsEvents(_ *responseWriter, _ *http.Request) (any, error) {
	var f streamFigures
	if a.svc.store != nil {
		f = a.svc.store.eventLog().figures()
	}
	return eventMetricsView{
		Router: map[string]uint64{
			"total_routed": f.delivered, "durable_routed": f.delivered, "routing_errors": f.cut,
			"fast_routed": 0, "broadcast_routed": 0, "fast_delivery_errors": 0,
		},
		InProcessBus: map[string]uint64{
			"total_events_dispatched": f.delivered, "ffi_channel_dispatches": f.delivered, "ffi_channel_drops": f.cut,
			"ffi_subscriber_count": uint64(f.open), "rust_handler_dispatches": 0, "rust_handler_errors": 0,
			"rust_subscriber_patterns": 0, "rust_handler_count": 0,
		},
		CapturedAt: zonedTime(a.svc.clock.now()), WorkerID: a.svc.workerID,
	}, nil
}

// Templates.

// workerTemplateList is the answer of GET /v1/templates.
type workerTemplateList struct {
	SupportedNamespaces []string           `json:"supported_namespaces"`
	TemplateCount       int                `json:"template_count"` // of all templates, whatever the filter
	CacheStats          *templateCacheView `json:"cache_stats"`
	WorkerCapabilities  []string           `json:"worker_capabilities"`
	Templates           []templateSummary  `json:"templates"`
}

func (a *workerAPI) listTemplates(w *responseWriter, r *http.Request) (any, error) {
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
	// They change all the time, so a tag for them would hardly ever match.
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

func (a *workerAPI) getTemplate(w *responseWriter, r *http.Request) (any, error) {
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
func (a *workerAPI) validateTemplate(w *responseWriter, r *http.Request) (any, error) {
	body, err := bodyRules{optional: true}.read(r)
	if err != nil {
		return nil, err
	}
	// An empty object stands for the registered template, like no body.
	if len(templateMembers(body)) > 0 {
		named := templateName{r.PathValue("namespace"), r.PathValue("name")}
		return a.svc.templates.validateDefinition(budgetOf(r), body, named, r.PathValue("version"))
	}
	t, err := a.templateIn(w, r, r.PathValue("version"))
	if err != nil {
		return nil, err
	}
	return a.svc.templates.validateRegistered(t), nil
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

// workerSections are the sections of the configuration that the worker role shows.
var workerSections = []string{"environment", "role", "worker", "web", "templates", "log"}

func (a *workerAPI) config(_ *responseWriter, _ *http.Request) (any, error) {
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
