package main

// The worker role's API, on a listener of its own.

import "net/http"

// workerType is what kind of worker this is, to clients of several kinds.
const workerType = "stepwell"

// workerAPI is the surface of the worker role.
type workerAPI struct {
	*surface
}

func newWorkerAPI(s *service) *workerAPI {
	a := &workerAPI{newSurface(s, "worker", workerError)}
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

func (a *workerAPI) health(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, a.alive("healthy"))
}

func (a *workerAPI) healthLive(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, a.alive("alive"))
}

func (a *workerAPI) healthReady(w http.ResponseWriter, _ *http.Request) error {
	checks, _ := a.svc.workerChecks()
	return writeReady(w, a.checkedView(checks))
}

func (a *workerAPI) healthDetailed(w http.ResponseWriter, _ *http.Request) error {
	return writeDetailed(w, a.checkedView(a.svc.detailedWorkerHealth()))
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

func (a *workerAPI) metrics(w http.ResponseWriter, _ *http.Request) error {
	return writeBody(w, http.StatusOK, metricsContentType, []byte(a.svc.metrics(a.stats)))
}

// supportedNamespaces is the namespaces that have templates, sorted.
func (s *service) supportedNamespaces() []string {
	names := []string{}
	for _, n := range s.registry().namespaces() {
		names = append(names, n.Name)
	}
	return names
}
