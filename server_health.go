package main

// The health routes of a role.

import "net/http"

// roleHealth answers the health routes of a role.
type roleHealth struct {
	role     string
	clock    clock
	workerID string // "" on the orchestration role
	checker  *health
	complete func(v *readyView) // adds what only this role reports
}

func (h *roleHealth) alive(status string) aliveView {
	return aliveView{status, zonedTime(h.clock.now()), h.workerID}
}

// aliveAs returns a handler that answers with a status, without a check.
func (h *roleHealth) aliveAs(status string) handlerFunc {
	return func(*responseWriter, *http.Request) (any, error) { return h.alive(status), nil }
}

// healthReady answers 200 if every check is healthy, else 503.
func (h *roleHealth) healthReady(w *responseWriter, _ *http.Request) (any, error) {
	v, healthy := h.view(false, "ready", "not_ready")
	return checkedReply(w, healthy, v), nil
}

// healthDetailed answers 200 whatever the checks found.
func (h *roleHealth) healthDetailed(*responseWriter, *http.Request) (any, error) {
	v, _ := h.view(true, healthyWord, degradedWord)
	return v, nil
}

// view runs the checks. The answer's status is good if every check is healthy,
// else bad.
func (h *roleHealth) view(detailed bool, good, bad string) (v readyView, healthy bool) {
	checks := h.checker.checks(h.role, detailed)
	v, healthy = readyView{aliveView: h.alive(good), Checks: checks}, true
	for _, c := range v.Checks {
		if c.Status != healthyWord {
			v.Status, healthy = bad, false
		}
	}
	h.complete(&v)
	return v, healthy
}

// checkedReply answers 200 if every check is healthy, else 503 with the time
// after which to ask again.
func checkedReply(w *responseWriter, healthy bool, v any) reply {
	if healthy {
		return reply{http.StatusOK, v}
	}
	w.Header().Set("Retry-After", "1")
	return reply{http.StatusServiceUnavailable, v}
}
