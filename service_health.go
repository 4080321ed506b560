package main

// Health: whether the process lives, and whether the service can do its work.

import (
	"fmt"
	"time"
)

// What a check comes to.
const (
	healthyWord   = "healthy"
	degradedWord  = "degraded"
	unhealthyWord = "unhealthy"
	unknownWord   = "unknown"
)

// checkView is one check. LastChecked stands in the worker's answers alone.
type checkView struct {
	Status      string    `json:"status"`
	Message     string    `json:"message"`
	DurationMS  int64     `json:"duration_ms"`
	LastChecked zonedTime `json:"last_checked,omitzero"`
}

// healthInfoView is what the orchestration role says of itself.
type healthInfoView struct {
	Version                       string `json:"version"`
	Environment                   string `json:"environment"`
	OperationalState              string `json:"operational_state"`
	WebDatabasePoolSize           int    `json:"web_database_pool_size"`
	OrchestrationDatabasePoolSize int    `json:"orchestration_database_pool_size"`
	CircuitBreakerState           string `json:"circuit_breaker_state"`
}

// readyView is the answer of /health/ready.
type readyView struct {
	Status    string               `json:"status"`
	Timestamp zonedTime            `json:"timestamp"`
	WorkerID  string               `json:"worker_id,omitempty"`
	Checks    map[string]checkView `json:"checks"`
	Info      any                  `json:"info,omitempty"`
	System    any                  `json:"system_info,omitempty"`
}

// aliveView is the answer of /health and /health/live.
type aliveView struct {
	Status    string    `json:"status"`
	Timestamp zonedTime `json:"timestamp"`
	WorkerID  string    `json:"worker_id,omitempty"`
}

// checked runs a check and times it.
func (s *service) checked(healthy string, check func() error) checkView {
	began := s.clock.now()
	err := check()
	took := max(s.clock.now().sub(began), 0) // the clock may have been set back
	v := checkView{Status: healthyWord, Message: healthy, DurationMS: took.Milliseconds()}
	if err != nil {
		v.Status, v.Message = unhealthyWord, err.Error()
	}
	return v
}

// checkStore is whether a change can be recorded now.
func (s *service) checkStore() error {
	if st := s.store.journal.status(); !st.writable {
		return fmt.Errorf("changes cannot be recorded: %s", st.reason)
	}
	return nil
}

// schedulerPatience is how long the scheduler usually may take to answer a check.
const schedulerPatience = 2 * time.Second

// engineLoad is what the engine has to do at a moment.
type engineLoad struct {
	stopping                bool
	localQueued, httpQueued int // steps that are ready and wait for a slot
	localFree, httpFree     int // slots
}

// engineLoad asks the engine under the lock it works under; nil when it does
// not answer.
func (s *service) engineLoad() *engineLoad {
	answer := make(chan *engineLoad, 1)
	go func() {
		s.store.mu.Lock()
		defer s.store.mu.Unlock()
		e := s.engine
		answer <- &engineLoad{e.stopping, len(e.local.items), len(e.http.items), e.slots, e.webSlots}
	}()
	l, _ := receiveWithin(answer, s.patience)
	return l
}

// schedulerCheck is whether the engine answers and is not on its way out, and
// what it has to do.
func (s *service) schedulerCheck() (checkView, *engineLoad) {
	var l *engineLoad
	v := s.checked("the scheduler answers", func() error {
		switch l = s.engineLoad(); {
		case l == nil:
			return fmt.Errorf("the scheduler did not answer within %s", s.patience)
		case l.stopping:
			return fmt.Errorf("the scheduler is stopping")
		}
		return nil
	})
	return v, l
}

// checkOperational is whether the service takes new work.
func (s *service) checkOperational() error {
	if s.draining.Load() {
		return fmt.Errorf("the service is shutting down")
	}
	return nil
}

func (s *service) operationalState() string {
	if s.draining.Load() {
		return "GracefulShutdown"
	}
	return "Normal"
}

// noBreaker is the check of circuit breakers, which one process has no use for.
var noBreaker = checkView{Status: healthyWord, Message: "not used; Closed"}

// readiness is the five checks that existing clients know by name, that of
// authentication, and what the engine has to do; nil when it does not answer.
func (s *service) readiness() (map[string]checkView, *engineLoad) {
	database := s.checked("the journal can be written", s.checkStore)
	scheduler, load := s.schedulerCheck()
	checks := map[string]checkView{
		"web_database":           database,
		"orchestration_database": database,
		"circuit_breaker":        noBreaker,
		"orchestration_system":   s.checked("new tasks are taken", s.checkOperational),
		"command_processor":      scheduler,
	}
	s.addAuthCheck(checks, s.auth.orchestration)
	return checks, load
}

// ready says whether every check of /health/ready is healthy.
func (s *service) ready() bool {
	checks, _ := s.workerChecks()
	if s.store != nil {
		checks, _ = s.readiness()
	}
	for _, c := range checks {
		if c.Status != healthyWord {
			return false
		}
	}
	return s.auth.ready() == nil
}

// healthInfo is what the role says of itself in a state.
func healthInfo(c *Config, state string) healthInfoView {
	return healthInfoView{
		Version: version, Environment: c.Environment, OperationalState: state,
		WebDatabasePoolSize: 1, OrchestrationDatabasePoolSize: 1, CircuitBreakerState: "Closed",
	}
}

// /health/detailed of both roles: how hard the service works, beside whether it
// works. Nothing here makes it not ready.

// From where on a check is degraded.
const (
	queueWarning  = 80              // percent of engine.max_queued
	bufferWarning = 4 << 20         // bytes that wait to be written to the journal
	timerPatience = 2 * time.Second // how late a timer may fire
)

// detailedHealth is the orchestration role's checks: those of readiness, and
// how full everything is that can be full.
func (s *service) detailedHealth() map[string]checkView {
	checks, load := s.readiness()
	checks["pool_utilization"] = s.slotCheck(load)
	checks["queue_depth"] = s.queueCheck(load)
	checks["channel_saturation"] = s.bufferCheck()
	if s.extension != nil {
		checks["fixture"] = s.extension.check()
	}
	return checks
}

// detailedWorkerHealth is the worker role's checks.
func (s *service) detailedWorkerHealth() map[string]checkView {
	checks, load := s.workerChecks()
	checks["circuit_breakers"] = noBreaker
	checks["event_system"], checks["step_processing"] = workerAlone, workerAlone
	if s.engine != nil {
		checks["event_system"] = s.checked("timers fire when they are due", s.checkTimers)
		checks["step_processing"] = s.processingCheck(load)
	}
	return checks
}

// unanswered is a check that needs the engine's answer, without one.
var unanswered = checkView{Status: unknownWord, Message: "the scheduler does not answer"}

// graded is a check that is degraded from some level on.
func graded(degraded bool, format string, args ...any) checkView {
	v := checkView{Status: healthyWord, Message: fmt.Sprintf(format, args...)}
	if degraded {
		v.Status = degradedWord
	}
	return v
}

// slotCheck is whether there is a slot left for each kind of handler.
func (s *service) slotCheck(l *engineLoad) checkView {
	if l == nil {
		return unanswered
	}
	c := &s.cfg.Worker
	return graded(l.localFree <= 0 || l.httpFree <= 0,
		"%d of %d slots for builtins and programs and %d of %d for HTTP handlers are taken",
		c.Concurrency-l.localFree, c.Concurrency, c.HTTPConcurrency-l.httpFree, c.HTTPConcurrency)
}

// queueCheck is how near the ready steps are to the number at which new tasks
// are refused.
func (s *service) queueCheck(l *engineLoad) checkView {
	if l == nil {
		return unanswered
	}
	n, most := l.localQueued+l.httpQueued, s.cfg.Engine.MaxQueued
	if n >= most {
		return checkView{Status: unhealthyWord,
			Message: fmt.Sprintf("%d steps wait for a slot; new tasks are refused from %d on", n, most)}
	}
	return graded(n*100 >= most*queueWarning, "%d of at most %d steps wait for a slot", n, most)
}

// bufferCheck is whether the disk keeps up with the changes.
func (s *service) bufferCheck() checkView {
	n := s.store.journal.status().backlog
	if s.store.journal.behind() != nil {
		return checkView{Status: unhealthyWord,
			Message: fmt.Sprintf("%d bytes wait to be written to the journal; no new task is taken", n)}
	}
	return graded(n >= bufferWarning, "%d bytes wait to be written to the journal", n)
}

// processingCheck is whether ready steps wait for others to end.
func (s *service) processingCheck(l *engineLoad) checkView {
	if l == nil {
		return unanswered
	}
	starved := l.localQueued > 0 && l.localFree <= 0 || l.httpQueued > 0 && l.httpFree <= 0
	return graded(starved, "%d steps wait for a slot", l.localQueued+l.httpQueued)
}

// checkTimers is whether delays end in time; those of a virtual clock always do.
func (s *service) checkTimers() error {
	c, ok := s.clock.(interface{ overdue() time.Duration })
	if !ok {
		return nil
	}
	if late := c.overdue(); late > timerPatience {
		return fmt.Errorf("timers fire %s late", late.Round(time.Second))
	}
	return nil
}

// addAuthCheck adds what keeps the role from verifying credentials to the checks
// of /health/ready. Without authentication there is nothing to check.
func (s *service) addAuthCheck(checks map[string]checkView, a *authenticator) {
	if a.config.Enabled {
		checks["authentication"] = s.checked("credentials can be verified", a.ready)
	}
}

func (s *service) uptimeSeconds() int64 { return max(int64(s.clock.now().sub(s.started).Seconds()), 0) }

// workerAlone is every check of what a process with the worker role alone has
// not: a store, and an engine with its queues.
var workerAlone = checkView{Status: healthyWord, Message: "not used: this process has the worker role alone"}

// workerChecks is the worker's three, and what the engine has to do; nil when it
// does not answer or there is none.
func (s *service) workerChecks() (map[string]checkView, *engineLoad) {
	if s.engine == nil {
		return map[string]checkView{
			"database": workerAlone, "command_processor": workerAlone, "queue_processing": workerAlone,
		}, nil
	}
	scheduler, load := s.schedulerCheck()
	return map[string]checkView{
		"database":          s.checked("the journal can be written", s.checkStore),
		"command_processor": scheduler,
		"queue_processing":  s.checked("ready steps are started", s.checkOperational),
	}, load
}

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
	c, queued, running := *s.engine.stats, s.engine.queuedLocked(), len(s.engine.running)
	s.store.mu.Unlock()
	add("gauge", "queue_depth", float64(queued), "Steps that are ready and wait for a slot.")
	add("gauge", "handlers_running", float64(running), "Attempts in flight in this process.")
	add("counter", "attempts_succeeded_total", float64(c.attempts[1]), "Step attempts that succeeded.")
	add("counter", "attempts_failed_total", float64(c.attempts[0]), "Step attempts that failed.")
	add("counter", "late_results_total", float64(c.late), "Handler results that came too late to count.")
	return metrics
}
