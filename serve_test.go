package main

import (
	"net/http/httptest"
	"testing"
)

// TestStartingServer asks both listeners before the service is there: they
// answer in the form that the service will.
func TestStartingServer(t *testing.T) {
	g := newGates(testConfig(t, serviceTest{}), newVirtualClock(testStart))
	for _, tc := range []struct {
		gate   *gate
		path   string
		status int
		want   map[string]string
	}{
		{&g.orchestration, "/health/live", 200, map[string]string{
			"status": "alive", "timestamp": "2026-01-01T00:00:00.000000Z"}},
		{&g.orchestration, "/health/ready", 503, map[string]string{
			"status": "not_ready", "timestamp": "2026-01-01T00:00:00.000000Z", "info.operational_state": "Startup",
			"checks.web_database.status": "unknown", "checks.orchestration_database.status": "unknown",
			"checks.circuit_breaker.status": "unknown", "checks.orchestration_system.status": "unknown",
			"checks.command_processor.status": "unknown"}},
		{&g.orchestration, "/v1/tasks", 503, map[string]string{
			"error.code": "SERVICE_UNAVAILABLE", "error.request_id": "r-1", "error.retry_after_seconds": "1"}},
		{&g.worker, "/health/live", 200, map[string]string{"status": "alive", "worker_id": "stepwell-all"}},
		{&g.worker, "/health/ready", 503, map[string]string{
			"status": "not_ready", "worker_id": "stepwell-all", "system_info.uptime_seconds": "0",
			"checks.queue_processing.last_checked": "2026-01-01T00:00:00.000000Z"}},
		{&g.worker, "/v1/templates", 503, map[string]string{"error": "service_unavailable", "request_id": "r-1"}},
	} {
		r := httptest.NewRequest("GET", tc.path, nil)
		r.Header.Set("X-Request-Id", "r-1")
		w := httptest.NewRecorder()
		tc.gate.ServeHTTP(w, r)
		a := (&answer{t, w.Code, w.Header(), w.Body.Bytes()}).want(tc.status)
		if got := a.header.Get("X-Request-Id"); got != "r-1" {
			t.Errorf("%s: got request id %q; want the caller's", tc.path, got)
		}
		if got := a.header.Get("Retry-After"); (got == "1") != (tc.status == 503) {
			t.Errorf("%s: got Retry-After %q with status %d", tc.path, got, tc.status)
		}
		for path, want := range tc.want {
			if got := a.text(path); got != want {
				t.Errorf("%s: %s is %q; want %q", tc.path, path, got, want)
			}
		}
	}
}
