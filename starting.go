package main

// What a listener answers while the store is still being read: that the process
// lives, is not ready, and takes nothing yet.

import (
	"net/http"
	"strings"
)

// startingAPI stands in for the surface of a role that has no service yet.
type startingAPI struct {
	cfg    *Config
	clock  clock
	ids    *idSource // for requests without an id
	worker bool      // the role
}

// notYet is every check before there is anything to look at.
var notYet = checkView{Status: unknownWord, Message: "the service is starting"}

// The names of the checks, by role: those of /health/ready, and the others.
const (
	readyChecks     = "web_database orchestration_database circuit_breaker orchestration_system command_processor"
	otherChecks     = " pool_utilization queue_depth channel_saturation"
	workerReady     = "database command_processor queue_processing"
	otherWorkChecks = " event_system step_processing circuit_breakers"
)

func (a *startingAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := requestID(r, a.ids)
	w.Header()["X-Request-Id"] = []string{id}
	if !a.worker && a.cfg.Mount.under(r.URL.Path) {
		a.serveMount(w, r, id)
		return
	}
	switch r.URL.Path {
	case "/health/live":
		v := aliveView{Status: "alive", Timestamp: zonedTime(a.clock.now()), WorkerID: a.workerID()}
		writeJSON(w, http.StatusOK, v)
	case "/health/ready":
		writeReady(w, a.health(readyChecks, workerReady))
	case "/health/detailed":
		writeDetailed(w, a.health(readyChecks+otherChecks, workerReady+otherWorkChecks))
	default:
		a.refuse(w, id, a.encode())
	}
}

func (a *startingAPI) workerID() string {
	if !a.worker {
		return ""
	}
	return workerID(a.cfg)
}

// health is an answer whose checks, by the role's names, all say "not yet".
func (a *startingAPI) health(orchestration, worker string) readyView {
	v := readyView{Timestamp: zonedTime(a.clock.now()), WorkerID: a.workerID(), Checks: map[string]checkView{}}
	names, check := orchestration, notYet
	if a.worker {
		names, check.LastChecked = worker, v.Timestamp
		v.System = systemInfoView{
			Version: version, Environment: a.cfg.Environment, WorkerType: workerType, DatabasePoolSize: 1,
			SupportedNamespaces: []string{},
		}
	} else {
		v.Info = healthInfo(a.cfg, "Startup")
	}
	for name := range strings.FieldsSeq(names) {
		v.Checks[name] = check
	}
	return v
}

// serveMount answers for the mount-point API.
func (a *startingAPI) serveMount(w http.ResponseWriter, r *http.Request, id string) {
	switch strings.TrimPrefix(r.URL.Path, a.cfg.Mount.Path) {
	case "/health/live":
		writeMountAlive(w, a.clock.now())
	case "/health/ready":
		writeMountReady(w, readyOf(map[string]checkView{"database": notYet, "scheduler": notYet}, a.clock.now()))
	default:
		a.refuse(w, id, mountError)
	}
}

// encode makes the bodies of the role's errors.
func (a *startingAPI) encode() func(*failure, string, instant) any {
	if a.worker {
		return workerError
	}
	return orchestrationError
}

func (a *startingAPI) refuse(w http.ResponseWriter, requestID string, encode func(*failure, string, instant) any) {
	w.Header().Set("Retry-After", "1")
	f := failf(unavailable, "the service is starting")
	writeJSON(w, statusOf[f.kind].status, encode(f, requestID, a.clock.now()))
}
