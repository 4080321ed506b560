package main

import (
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSaneTraceparent(t *testing.T) {
	const form = "00-0123456789ABCDEF0123456789abcdef-0123456789abcdef-00"
	for h, want := range map[string]bool{
		"": false, form: true, form[1:]: false, strings.Replace(form, "A", "g", 1): false,
		strings.Replace(form, "-0", "00", 1): false, strings.Replace(form, "A", "-", 1): false,
		form + "-more~!": true, form + " ": false, form + "\x7f": false, form + "\u212a": false,
		strings.Replace(form, "0123456789ABCDEF0123456789abcdef", strings.Repeat("0", 32), 1): false,
		strings.Replace(form, "-0123456789abcdef-", "-0000000000000000-", 1):                  false, "ff" + form[2:]: false,
		form + strings.Repeat("a", 256-len(form)): true, form + strings.Repeat("a", 257-len(form)): false,
	} {
		if got := saneTraceparent(h) != ""; got != want {
			t.Errorf("%q: got %v; want %v", h, got, want)
		}
	}
}

// TestWaitsOfLastingCredentials checks a token that is valid for longer than a time.Duration
// can hold.
func TestWaitsOfLastingCredentials(t *testing.T) {
	s := newTestServer(t, serviceTest{}).svc
	a := newOrchestrationAPI(s, nil)
	for _, expiry := range []instant{0, lastInstant} {
		sc := &securityContext{expiry: expiry}
		r := httptest.NewRequest("GET", "/", nil)
		if got := a.surface.validFor(r.WithContext(withSecurity(r.Context(), sc))); got < 1000*time.Hour {
			t.Errorf("one that expires at %d is valid for %s", expiry, got)
		}
	}
}

// TestWaitsEndWithTheCredential waits for something that never comes, with a token that
// expires.
func TestWaitsEndWithTheCredential(t *testing.T) {
	for _, tt := range []struct {
		name, method, target, body, wants string
		handle                            func(a *orchestrationAPI) handlerFunc
	}{
		{"a task", "GET", "/v1/tasks/x?wait=terminal&timeout=1h", "", `"status":"steps_in_process"`,
			func(a *orchestrationAPI) handlerFunc { return a.getTask }},
		{"a task of the mount", "GET", "/tasks/x?wait=terminal&timeout=1h", "", `"status":"in_progress"`,
			func(a *orchestrationAPI) handlerFunc { return a.mount.getTask }},
		{"a creation", "POST", "/v1/tasks?wait=1h", `{"namespace":"t","name":"manual"}`, `"status":"steps_in_process"`,
			func(a *orchestrationAPI) handlerFunc { return a.createTask }},
		{"a claim", "POST", "/v1/steps/claim", `{"callables":["Nobody"],"wait_seconds":60}`, `[]`,
			func(a *orchestrationAPI) handlerFunc { return a.claimSteps }},
		{"events", "GET", "/v1/events", "", ": the credential has expired",
			func(a *orchestrationAPI) handlerFunc { return a.streamEvents }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				svc := newTestService(t, serviceTest{templates: apiTemplates})
				a, began := newOrchestrationAPI(svc, nil), time.Now()
				sc := &securityContext{method: authByToken, permissions: everyPermission, expiry: realNow().add(7 * time.Second)}
				r := httptest.NewRequest(tt.method, tt.target, strings.NewReader(tt.body))
				r.Header.Set("Content-Type", "application/json")
				id := mustCreate(t, svc, "manual").id.String()
				r.SetPathValue("task_uuid", id)
				r.SetPathValue("id", id)
				w := httptest.NewRecorder()
				rec := a.surface.newResponseWriter(w, r)
				rec.matched = true
				v, err := tt.handle(a)(rec, r.WithContext(withSecurity(r.Context(), sc)))
				if err != nil {
					t.Fatal(err)
				}
				writeReply(rec, v)
				if took := time.Since(began); took != 7*time.Second || !strings.Contains(w.Body.String(), tt.wants) {
					t.Errorf("it took %s: %s", took, w.Body)
				}
				if end := w.Header().Get("X-Stepwell-Wait"); strings.Contains(tt.target, "wait=") && end != "expired" {
					t.Errorf("got X-Stepwell-Wait %q; want expired", end)
				}
			})
		})
	}
}
