package main

// The analytics endpoints of the orchestration role.

import "net/http"

// Bounds of the query of /v1/analytics/bottlenecks.
const (
	maxBottlenecks   = 1000
	maxMinExecutions = 1_000_000_000
)

func (a *orchestrationAPI) performance(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	hours := q.number("hours", 24, 1, keptHours)
	if q.err != nil {
		return q.err
	}
	return writeJSON(w, http.StatusOK, a.svc.performance(hours))
}

func (a *orchestrationAPI) bottlenecks(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	limit := q.number("limit", 10, 1, maxBottlenecks)
	minimum := q.number("min_executions", 5, 0, maxMinExecutions)
	if q.err != nil {
		return q.err
	}
	return writeJSON(w, http.StatusOK, a.svc.bottlenecks(limit, minimum))
}
