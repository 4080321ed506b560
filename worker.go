package main

// The worker role's API, on a listener of its own.

import (
	"net/http"
)

// workerAPI is the surface of the worker role.
type workerAPI struct {
	*surface
}

func newWorkerAPI(s *service, shared *surfaceCache) *workerAPI {
	a := &workerAPI{newSurface(s, shared, "worker", workerError)}
	a.handle(s.cfg.Worker.Web.enabled(a.routes()))
	return a
}

// systemInfoView is what the worker says of itself.
type systemInfoView struct {
	Version                string   `json:"version"`
	Environment            string   `json:"environment"`
	UptimeSeconds          int64    `json:"uptime_seconds"`
	WorkerType             string   `json:"worker_type"`
	DatabasePoolSize       int      `json:"database_pool_size"`
	CommandProcessorActive bool     `json:"command_processor_active"`
	SupportedNamespaces    []string `json:"supported_namespaces"`
}

func (a *workerAPI) alive(status string) aliveView {
	return aliveView{Status: status, Timestamp: zonedTime(a.svc.clock.now()), WorkerID: a.svc.workerID}
}

func (a *workerAPI) health(_ http.ResponseWriter, _ *http.Request) (any, error) {
	return a.alive("healthy"), nil
}

func (a *workerAPI) healthLive(_ http.ResponseWriter, _ *http.Request) (any, error) {
	return a.alive("alive"), nil
}

func (a *workerAPI) healthReady(w http.ResponseWriter, _ *http.Request) (any, error) {
	checks, _ := a.svc.workerChecks()
	return readyReply(w, a.checkedView(checks)), nil
}

func (a *workerAPI) healthDetailed(_ http.ResponseWriter, _ *http.Request) (any, error) {
	return detailedReply(a.checkedView(a.svc.detailedWorkerHealth())), nil
}

// checkedView is an answer with these checks, which it dates.
func (a *workerAPI) checkedView(checks map[string]checkView) readyView {
	s := a.svc
	now := s.clock.now()
	s.addAuthCheck(checks, s.auth.worker)
	for name, c := range checks {
		c.LastChecked = zonedTime(now)
		checks[name] = c
	}
	return readyView{
		Timestamp: zonedTime(now), WorkerID: s.workerID, Checks: checks,
		System: systemInfoView{
			Version: version, Environment: s.cfg.Environment,
			UptimeSeconds: s.uptimeSeconds(), WorkerType: workerType, DatabasePoolSize: 1,
			CommandProcessorActive: s.engine != nil && checks["command_processor"].Status == healthyWord,
			SupportedNamespaces:    s.supportedNamespaces(),
		},
	}
}

func (a *workerAPI) metrics(_ http.ResponseWriter, _ *http.Request) (any, error) {
	return textReply{metricsContentType, []byte(a.svc.metrics(a.stats))}, nil
}

// The worker role's metrics as JSON, beside the Prometheus text of /metrics.

func (a *workerAPI) metricsJSON(_ http.ResponseWriter, _ *http.Request) (any, error) {
	return workerMetricsView{
		a.svc.workerMetrics(), zonedTime(a.svc.clock.now()), a.svc.workerID,
	}, nil
}

// eventRouterView counts transitions by the way they went to event streams.
type eventRouterView struct {
	TotalRouted        uint64 `json:"total_routed"`
	DurableRouted      uint64 `json:"durable_routed"`
	FastRouted         uint64 `json:"fast_routed"`
	BroadcastRouted    uint64 `json:"broadcast_routed"`
	FastDeliveryErrors uint64 `json:"fast_delivery_errors"`
	RoutingErrors      uint64 `json:"routing_errors"`
}

// eventBusView counts deliveries within the process.
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

// metricsEvents counts what was delivered to event streams: all of it durable,
// within this process. An error is a stream that was too slow.
func (a *workerAPI) metricsEvents(_ http.ResponseWriter, _ *http.Request) (any, error) {
	v := eventMetricsView{CapturedAt: zonedTime(a.svc.clock.now()), WorkerID: a.svc.workerID}
	if a.svc.store != nil {
		f := a.svc.store.streamFigures()
		v.Router = eventRouterView{TotalRouted: f.delivered, DurableRouted: f.delivered, RoutingErrors: f.cut}
		v.InProcessBus.TotalEventsDispatched = f.delivered
	}
	return v, nil
}

// The worker role's templates: the list, one template resolved, and whether a
// template can be run by this worker.

// workerTemplateList is the answer of GET /v1/templates.
type workerTemplateList struct {
	SupportedNamespaces []string           `json:"supported_namespaces"`
	TemplateCount       int                `json:"template_count"` // of all templates, whatever the filter
	CacheStats          *templateCacheView `json:"cache_stats"`
	WorkerCapabilities  []string           `json:"worker_capabilities"`
	Templates           []templateSummary  `json:"templates"`
}

func (a *workerAPI) listTemplates(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	withStats := q.flag("include_cache_stats")
	if q.err != nil {
		return nil, q.err
	}
	list := a.svc.registry().listView(q.text("namespace"))
	v := workerTemplateList{
		SupportedNamespaces: a.svc.supportedNamespaces(), TemplateCount: list.TotalCount,
		WorkerCapabilities: a.svc.capabilities(), Templates: list.Templates,
	}
	if withStats {
		stats := a.svc.templateCache()
		v.CacheStats = &stats
	}
	return v, nil
}

// workerTemplateDetail is the answer of GET /v1/templates/{namespace}/{name}/{version}.
type workerTemplateDetail struct {
	Template        resolvedTemplateView `json:"template"`
	HandlerMetadata handlerMetadataView  `json:"handler_metadata"`
	Cached          bool                 `json:"cached"`
	CacheAgeSeconds int64                `json:"cache_age_seconds"`
	AccessCount     uint64               `json:"access_count"`
}

func (a *workerAPI) getTemplate(_ http.ResponseWriter, r *http.Request) (any, error) {
	t, err := a.templateIn(r)
	if err != nil {
		return nil, err
	}
	e := a.svc.uses.entry(t, a.svc.clock.now)
	return workerTemplateDetail{
		Template:        resolvedTemplateView{t.shownJSON(), a.svc.cfg.Environment, zonedTime(e.since)},
		HandlerMetadata: t.handlerMetadata(e.since),
		Cached:          true,
		CacheAgeSeconds: e.ageSeconds(a.svc.clock.now()),
		AccessCount:     e.count.Load(),
	}, nil
}

// validateTemplate checks the registered template, or the one that the body is.
func (a *workerAPI) validateTemplate(_ http.ResponseWriter, r *http.Request) (any, error) {
	body, err := bodyRules{optional: true}.read(r)
	if err != nil {
		return nil, err
	}
	if len(templateMembers(body)) > 0 {
		named := templateName{r.PathValue("namespace"), r.PathValue("name")}
		return a.svc.validateDefinition(body, named, r.PathValue("version")), nil
	}
	t, err := a.templateIn(r)
	if err != nil {
		return nil, err
	}
	return a.svc.validateRegistered(t), nil
}
