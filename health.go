package main

// Health: whether the process lives, and whether the service can do its work.

import (
	"fmt"
	"net/http"
	"time"
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
	v := checkView{Status: "healthy", Message: healthy, DurationMS: s.clock.now().sub(began).Milliseconds()}
	if err != nil {
		v.Status, v.Message = "unhealthy", err.Error()
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

// schedulerPatience is how long the scheduler may take to answer a check.
const schedulerPatience = 2 * time.Second

// checkScheduler is whether the engine takes the lock it works under and is not
// on its way out.
func (s *service) checkScheduler() error {
	answer := make(chan bool, 1)
	go func() {
		s.store.mu.Lock()
		defer s.store.mu.Unlock()
		answer <- s.engine.stopping
	}()
	stopping, ok := receiveWithin(answer, schedulerPatience)
	switch {
	case !ok:
		return fmt.Errorf("the scheduler did not answer within %s", schedulerPatience)
	case stopping:
		return fmt.Errorf("the scheduler is stopping")
	}
	return nil
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

// readiness is the five checks that existing clients know by name, and that of
// authentication.
func (s *service) readiness() map[string]checkView {
	database := s.checked("the journal can be written", s.checkStore)
	checks := map[string]checkView{
		"web_database":           database,
		"orchestration_database": database,
		"circuit_breaker":        {Status: "healthy", Message: "not used; Closed"},
		"orchestration_system":   s.checked("new tasks are taken", s.checkOperational),
		"command_processor":      s.checked("the scheduler answers", s.checkScheduler),
	}
	s.addAuthCheck(checks, s.auth.orchestration)
	return checks
}

// ready says whether every check of every role's /health/ready is healthy.
func (s *service) ready() bool {
	checks := s.workerChecks()
	if s.store != nil {
		checks = s.readiness()
	}
	for _, c := range checks {
		if c.Status != "healthy" {
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
		if c.Status != "healthy" {
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
	return writeReady(w, readyView{
		Timestamp: zonedTime(a.svc.clock.now()),
		Checks:    a.svc.readiness(),
		Info: healthInfoView{
			Version: version, Environment: a.svc.cfg.Environment, OperationalState: a.svc.operationalState(),
			WebDatabasePoolSize: 1, OrchestrationDatabasePoolSize: 1, CircuitBreakerState: "Closed",
		},
	})
}
