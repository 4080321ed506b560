package main

// The worker role's API, on a listener of its own.

import "net/http"

// workerAPI is the surface of the worker role.
type workerAPI struct {
	*surface
}

func newWorkerAPI(s *service) *workerAPI {
	a := &workerAPI{newSurface(s, "worker", workerError)}
	a.handle(a.routes())
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

func (a *workerAPI) health(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, a.alive("healthy"))
}

func (a *workerAPI) healthLive(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, a.alive("alive"))
}

func (a *workerAPI) healthReady(w http.ResponseWriter, _ *http.Request) error {
	s := a.svc
	now := s.clock.now()
	checks := s.workerChecks()
	s.addAuthCheck(checks, s.auth.worker)
	for name, c := range checks {
		c.LastChecked = zonedTime(now)
		checks[name] = c
	}
	return writeReady(w, readyView{
		Timestamp: zonedTime(now), WorkerID: s.workerID, Checks: checks,
		System: systemInfoView{
			Version: version, Environment: s.cfg.Environment,
			UptimeSeconds: int64(now.sub(s.started).Seconds()), WorkerType: "stepwell", DatabasePoolSize: 1,
			CommandProcessorActive: checks["command_processor"].Status == "healthy",
			SupportedNamespaces:    s.supportedNamespaces(),
		},
	})
}

// workerChecks is the worker's three. Without an engine, in a process that has
// the worker role alone, there is no store and no queue to be wrong.
func (s *service) workerChecks() map[string]checkView {
	if s.store == nil {
		idle := checkView{Status: "healthy", Message: "not used: this process has the worker role alone"}
		return map[string]checkView{"database": idle, "command_processor": idle, "queue_processing": idle}
	}
	return map[string]checkView{
		"database":          s.checked("the journal can be written", s.checkStore),
		"command_processor": s.checked("the scheduler answers", s.checkScheduler),
		"queue_processing":  s.checked("ready steps are started", s.checkOperational),
	}
}

func (a *workerAPI) metrics(w http.ResponseWriter, _ *http.Request) error {
	return writeBody(w, http.StatusOK, metricsContentType, []byte(a.svc.metrics(a.stats)))
}

func (a *workerAPI) openAPI(w http.ResponseWriter, _ *http.Request) error {
	return a.writeDocument(w)
}

// supportedNamespaces is the namespaces that have templates, sorted.
func (s *service) supportedNamespaces() []string {
	names := []string{}
	for _, n := range s.registry.namespaces() {
		names = append(names, n.Name)
	}
	return names
}
