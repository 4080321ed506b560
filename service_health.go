package main

// Health: whether the process lives, whether the service can do its work, and
// how hard it works. One table holds the checks of all surfaces.

import (
	"fmt"
	"sync/atomic"
	"time"
)

// The statuses of a check.
const (
	healthyWord   = "healthy"
	degradedWord  = "degraded"
	unhealthyWord = "unhealthy"
	unknownWord   = "unknown"
)

// checkView is the result of one check. Only the worker sets LastChecked.
type checkView struct {
	Status      string    `json:"status"`
	Message     string    `json:"message"`
	DurationMS  int64     `json:"duration_ms"`
	LastChecked zonedTime `json:"last_checked,omitzero"`
}

// healthInfoView is the info of the orchestration role's health.
type healthInfoView struct {
	Version                       string `json:"version"`
	Environment                   string `json:"environment"`
	OperationalState              string `json:"operational_state"`
	WebDatabasePoolSize           int    `json:"web_database_pool_size"`
	OrchestrationDatabasePoolSize int    `json:"orchestration_database_pool_size"`
	CircuitBreakerState           string `json:"circuit_breaker_state"`
}

// aliveView is the answer of /health and /health/live.
type aliveView struct {
	Status    string    `json:"status"`
	Timestamp zonedTime `json:"timestamp"`
	WorkerID  string    `json:"worker_id,omitempty"`
}

// readyView is the answer of /health/ready and /health/detailed.
type readyView struct {
	aliveView
	Checks map[string]checkView `json:"checks"`
	Info   any                  `json:"info,omitempty"`
	System any                  `json:"system_info,omitempty"`
}

// health runs the checks of a service.
type health struct {
	cfg      *Config
	clock    clock
	auth     authenticators
	store    *store  // nil with only the worker role
	engine   *engine // nil with only the worker role
	draining *atomic.Bool
	patience time.Duration // how long the scheduler may take to answer, in real time
	starting *readProgress // of a service that opens; nil for one that is open

	// extra holds checks of the orchestration role's /health/detailed that the service does not know, by name.
	extra map[string]func() checkView
}

// schedulerPatience is the patience of a service's health checks.
const schedulerPatience = 2 * time.Second

// healthTable holds every check but authentication, which each surface that asks
// for credentials has. Existing clients know the checks by these names.
var healthTable = []struct {
	surface, name string
	detailed      bool // part of /health/detailed only
	check         func(*healthProbe) checkView
}{
	{"orchestration", "web_database", false, (*healthProbe).journal},
	{"orchestration", "orchestration_database", false, (*healthProbe).journal},
	{"orchestration", "circuit_breaker", false, noBreaker},
	{"orchestration", "orchestration_system", false, accepting("new tasks are accepted")},
	{"orchestration", "command_processor", false, (*healthProbe).scheduler},
	{"orchestration", "pool_utilization", true, loaded((*health).slotCheck)},
	{"orchestration", "queue_depth", true, loaded((*health).queueCheck)},
	{"orchestration", "channel_saturation", true, (*healthProbe).backlog},
	{"worker", "database", false, (*healthProbe).journal},
	{"worker", "queue_processing", false, accepting("ready steps are started")},
	{"worker", "command_processor", false, (*healthProbe).scheduler},
	{"worker", "circuit_breakers", true, noBreaker},
	{"worker", "event_system", true, (*healthProbe).scheduler},
	{"worker", "step_processing", true, loaded((*health).processingCheck)},
	{"mount", "database", false, (*healthProbe).journal},
	{"mount", "scheduler", false, (*healthProbe).scheduler},
}

// checks runs the checks of a surface: those of /health/ready, and the others
// too if detailed is set. While the service starts, no result is known yet.
func (h *health) checks(surface string, detailed bool) map[string]checkView {
	p, checks := &healthProbe{health: h}, map[string]checkView{}
	for _, r := range healthTable {
		switch {
		case r.surface != surface || r.detailed && !detailed:
		case h.starting != nil:
			checks[r.name] = checkView{Status: unknownWord, Message: h.starting.String()}
		case h.engine == nil:
			checks[r.name] = graded(false, "not used: this process has only the worker role")
		default:
			checks[r.name] = p.timed(r.check)
		}
	}
	if h.starting != nil {
		return checks
	}
	if a := h.auth[surface]; a.config.Enabled {
		checks["authentication"] = p.timed(func(*healthProbe) checkView { return failing(a.ready(), "credentials can be verified") })
	}
	if detailed && surface == "orchestration" {
		for name, check := range h.extra {
			checks[name] = check()
		}
	}
	return checks
}

// ready reports whether every check of /health/ready is healthy.
func (h *health) ready() bool {
	for _, c := range h.checks(pick(h.engine == nil, "worker", "orchestration"), false) {
		if c.Status != healthyWord {
			return false
		}
	}
	return h.auth.ready() == nil
}

// info returns the info of the orchestration role.
func (h *health) info() healthInfoView {
	state := "Normal"
	switch {
	case h.starting != nil:
		state = "Startup"
	case h.draining.Load():
		state = "GracefulShutdown"
	}
	return healthInfoView{
		Version: version, Environment: h.cfg.Environment, OperationalState: state,
		WebDatabasePoolSize: 1, OrchestrationDatabasePoolSize: 1, CircuitBreakerState: "Closed",
	}
}

// timed runs a check and measures how long it takes.
func (p *healthProbe) timed(check func(*healthProbe) checkView) checkView {
	began := p.clock.now()
	v := check(p)
	v.DurationMS = max(p.clock.now().sub(began), 0).Milliseconds() // the clock may have been set back
	return v
}

// failing returns the result of a check: what is healthy, or the error.
func failing(err error, healthy string) checkView {
	if err != nil {
		return unhealthy("%v", err)
	}
	return graded(false, "%s", healthy)
}

// graded returns the result of a check, degraded or healthy.
func graded(degraded bool, format string, args ...any) checkView {
	v := checkView{Status: healthyWord, Message: fmt.Sprintf(format, args...)}
	if degraded {
		v.Status = degradedWord
	}
	return v
}

// unhealthy returns the result of a check that failed.
func unhealthy(format string, args ...any) checkView {
	return checkView{Status: unhealthyWord, Message: fmt.Sprintf(format, args...)}
}

// The checks themselves.

// healthProbe is one run of the checks: it asks the engine once.
type healthProbe struct {
	*health
	asked bool
	load  *engineLoad // nil if the engine did not answer
}

// engineLoad is the work of the engine at one moment.
type engineLoad struct {
	stopping                bool
	localQueued, httpQueued int // ready steps that wait for a slot
	localFree, httpFree     int // slots
	absent                  []absence
}

// noBreaker checks the circuit breakers, which a single process does not need.
func noBreaker(*healthProbe) checkView { return graded(false, "not used; Closed") }

// journal checks whether changes can be recorded now.
func (p *healthProbe) journal() checkView {
	if st := p.store.status(); !st.writable {
		return unhealthy("changes cannot be recorded: %s", st.reason)
	}
	return graded(false, "the journal can be written")
}

// accepting checks whether the service takes new work.
func accepting(healthy string) func(*healthProbe) checkView {
	return func(p *healthProbe) checkView {
		if p.draining.Load() {
			return unhealthy("the service is shutting down")
		}
		return graded(false, "%s", healthy)
	}
}

// scheduler checks whether the engine answers and is not stopping. It reads the engine's load under the store's lock,
// which a stuck engine does not release.
func (p *healthProbe) scheduler() checkView {
	if !p.asked {
		answer := make(chan *engineLoad, 1) // with room, so that the goroutine ends even if the answer comes too late
		go p.store.locked(func() {
			q := &p.engine.queues
			answer <- &engineLoad{p.engine.stopping, len(q.local.ready.items), len(q.web.ready.items), q.local.free, q.web.free,
				p.engine.absent.told()}
		})
		p.load, _ = receiveWithin(answer, p.patience)
		p.asked = true
	}
	switch {
	case p.load == nil:
		return unhealthy("the scheduler did not respond within %s", p.patience)
	case p.load.stopping:
		return unhealthy("the scheduler is stopping")
	}
	return graded(false, "the scheduler responds")
}

// loaded returns a check of the engine's load.
func loaded(check func(*health, *engineLoad) checkView) func(*healthProbe) checkView {
	return func(p *healthProbe) checkView {
		if p.scheduler(); p.load == nil {
			return checkView{Status: unknownWord, Message: "the scheduler does not respond"}
		}
		return check(p.health, p.load)
	}
}

// The levels at which a check is degraded.
const (
	queueWarning  = 80      // percent of the steps that may wait
	bufferWarning = 4 << 20 // bytes that wait to be written to the journal
)

// slotCheck checks whether each kind of handler has a free slot.
func (h *health) slotCheck(l *engineLoad) checkView {
	c := &h.cfg.Worker
	return graded(l.localFree <= 0 || l.httpFree <= 0,
		"%d of %d slots for builtins and programs and %d of %d for HTTP handlers are taken",
		c.Concurrency-l.localFree, c.Concurrency, c.HTTPConcurrency-l.httpFree, c.HTTPConcurrency)
}

// queueCheck checks how close the ready steps are to the number at which new tasks are refused.
func (h *health) queueCheck(l *engineLoad) checkView {
	n, most := l.localQueued+l.httpQueued, h.engine.queues.most
	if n >= most {
		return unhealthy("%s for a slot; new tasks are refused from %d on", stepsWaiting(n), most)
	}
	return l.graded(n*100 >= most*queueWarning, "%s for a slot; at most %d may", stepsWaiting(n), most)
}

// processingCheck checks whether ready steps wait because all slots are taken.
func (h *health) processingCheck(l *engineLoad) checkView {
	starved := l.localQueued > 0 && l.localFree <= 0 || l.httpQueued > 0 && l.httpFree <= 0
	return l.graded(starved, "%s for a slot", stepsWaiting(l.localQueued+l.httpQueued))
}

// graded is graded, and names the handlers that do not listen.
func (l *engineLoad) graded(degraded bool, format string, args ...any) checkView {
	v := graded(degraded || len(l.absent) > 0, format, args...)
	for _, a := range l.absent {
		v.Message += "; " + a.sentence
	}
	return v
}

func stepsWaiting(n int) string { return counted(n, "step waits", "steps wait") }

// backlog checks whether the disk keeps up with the changes.
func (p *healthProbe) backlog() checkView {
	n := p.store.status().backlog
	if p.store.disk().behind() != nil {
		return unhealthy("%d bytes wait to be written to the journal; new tasks are refused", n)
	}
	return graded(n >= bufferWarning, "%d bytes wait to be written to the journal", n)
}
