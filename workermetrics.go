package main

// The worker role's metrics as JSON, beside the Prometheus text of /metrics.

import "net/http"

// workerMetric is one figure.
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

// workerMetrics is the figures by name. Those of the engine are left out where
// there is none.
func (s *service) workerMetrics() map[string]workerMetric {
	metrics := map[string]workerMetric{}
	add := func(kind, name string, value float64, help string) {
		metrics[name] = workerMetric{value, kind, map[string]string{}, help}
	}
	add("gauge", "uptime_seconds", float64(s.uptimeSeconds()), "Seconds since the service started.")
	add("gauge", "database_pool_size", 1, "Writers of the journal.")
	templates := s.templateCache()
	add("gauge", "templates_cached", float64(templates.TotalCached), "Templates registered.")
	add("counter", "template_cache_hits_total", float64(templates.CacheHits), "Look-ups of registered templates.")
	add("counter", "template_cache_misses_total", float64(templates.CacheMisses), "Look-ups of unknown templates.")
	if s.engine == nil {
		return metrics
	}
	s.store.mu.Lock()
	c, queued, running := s.engine.stats.copyLocked(), s.engine.queuedLocked(), len(s.engine.running)
	s.store.mu.Unlock()
	add("gauge", "queue_depth", float64(queued), "Steps that are ready and wait for a slot.")
	add("gauge", "handlers_running", float64(running), "Attempts in flight in this process.")
	add("counter", "attempts_succeeded_total", float64(c.attempts[1]), "Step attempts that succeeded.")
	add("counter", "attempts_failed_total", float64(c.attempts[0]), "Step attempts that failed.")
	add("counter", "late_results_total", float64(c.late), "Handler results that came too late to count.")
	return metrics
}

func (a *workerAPI) metricsJSON(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, workerMetricsView{
		a.svc.workerMetrics(), zonedTime(a.svc.clock.now()), a.svc.workerID,
	})
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
func (a *workerAPI) metricsEvents(w http.ResponseWriter, _ *http.Request) error {
	v := eventMetricsView{CapturedAt: zonedTime(a.svc.clock.now()), WorkerID: a.svc.workerID}
	if a.svc.store != nil {
		log := &a.svc.store.events
		n := log.delivered.Load()
		v.Router = eventRouterView{TotalRouted: n, DurableRouted: n, RoutingErrors: log.cut.Load()}
		v.InProcessBus.TotalEventsDispatched = n
	}
	return writeJSON(w, http.StatusOK, v)
}
