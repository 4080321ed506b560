package main

// Health: whether the process lives, and whether the service can do its work.

import (
	"fmt"
	"net/http"
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
		answer <- &engineLoad{e.stopping, e.local.Len(), e.http.Len(), e.slots, e.webSlots}
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

// writeReady answers 200 when every check is healthy, else 503.
func writeReady(w http.ResponseWriter, v readyView) error {
	v.Status = "ready"
	status := http.StatusOK
	for _, c := range v.Checks {
		if c.Status != healthyWord {
			v.Status, status = "not_ready", http.StatusServiceUnavailable
		}
	}
	if status != http.StatusOK {
		w.Header().Set("Retry-After", "1")
	}
	return writeJSON(w, status, v)
}

func (a *orchestrationAPI) health(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, aliveView{Status: "healthy", Timestamp: zonedTime(a.svc.clock.now())})
}

func (a *orchestrationAPI) healthLive(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, aliveView{Status: "alive", Timestamp: zonedTime(a.svc.clock.now())})
}

func (a *orchestrationAPI) healthReady(w http.ResponseWriter, _ *http.Request) error {
	checks, _ := a.svc.readiness()
	return writeReady(w, a.checkedView(checks))
}

func (a *orchestrationAPI) healthDetailed(w http.ResponseWriter, _ *http.Request) error {
	return writeDetailed(w, a.checkedView(a.svc.detailedHealth()))
}

// checkedView is an answer with these checks.
func (a *orchestrationAPI) checkedView(checks map[string]checkView) readyView {
	s := a.svc
	return readyView{
		Timestamp: zonedTime(s.clock.now()), Checks: checks, Info: healthInfo(s.cfg, s.operationalState()),
	}
}

// healthInfo is what the role says of itself in a state.
func healthInfo(c *Config, state string) healthInfoView {
	return healthInfoView{
		Version: version, Environment: c.Environment, OperationalState: state,
		WebDatabasePoolSize: 1, OrchestrationDatabasePoolSize: 1, CircuitBreakerState: "Closed",
	}
}
