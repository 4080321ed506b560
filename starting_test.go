package main

import (
	"net/http/httptest"
	"testing"
)

// TestStarting asks both roles before there is a service, and holds the answers
// against their documents.
func TestStarting(t *testing.T) {
	v := &serving{cfg: testConfig(t, serviceTest{}), clock: newRealClock()}
	t.Cleanup(v.clock.stop)
	v.cfg.Orchestration.Web.Listen, v.cfg.Worker.Web.Listen = "127.0.0.1:0", "127.0.0.1:0"
	gates, err := v.listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.stopListening(closeTimeout) })
	for name, g := range map[string]*gate{"orchestration": &gates.orchestration, "worker": &gates.worker} {
		contract := newAPIContract(t, name)
		for path, want := range map[string]struct {
			status int
			member string
			value  string
		}{
			"/health/live":            {200, "status", "alive"},
			"/health/ready":           {503, "status", "not_ready"},
			"/health/detailed":        {200, "status", "degraded"},
			"/v1/templates":           {503, "", ""},
			"/api-docs/ui?anything=1": {503, "", ""},
		} {
			w := httptest.NewRecorder()
			g.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
			a := &answer{t, w.Code, w.Header(), w.Body.Bytes()}
			a.want(want.status)
			if a.header.Get("X-Request-Id") == "" || a.status == 503 && a.header.Get("Retry-After") == "" {
				t.Errorf("%s %s: got headers %v; want an id, and when to come again", name, path, a.header)
			}
			if want.member == "" {
				checkShape(t, map[string]string{"orchestration": "Error", "worker": "WorkerError"}[name], a.body)
				continue
			}
			if got := a.text(want.member); got != want.value {
				t.Errorf("%s %s: got %s; want %s", name, path, got, want.value)
			}
			if err := contract.problem(&convAnswer{a.status, a.header, a.body, "GET " + path}); err != nil {
				t.Errorf("%s %s: %v", name, path, err)
			}
		}
	}
	w := httptest.NewRecorder()
	gates.orchestration.ServeHTTP(w, httptest.NewRequest("GET", "/health/ready", nil))
	if got := (&answer{t, w.Code, w.Header(), w.Body.Bytes()}).text("info.operational_state"); got != "Startup" {
		t.Errorf("got operational state %s; want Startup", got)
	}
}
