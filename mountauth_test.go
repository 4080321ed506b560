package main

// Who may come in at the mount point, where that is not who may at the role.

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestMountAuthenticatesAlone gives role and mount point different keys: what is
// good for one is nothing to the other.
func TestMountAuthenticatesAlone(t *testing.T) {
	svc := newTestService(t, serviceTest{clock: newVirtualClock(authTestNow), log: &logLines{}, config: func(c *Config) {
		a, b := &c.Orchestration.Web.Auth, &c.Mount.Auth
		a.Enabled, a.JWTPublicKey = true, publicPEM(t, authKeys().rsa)
		b.Enabled, b.JWTPublicKey = true, publicPEM(t, authKeys().rsa2)
	}})
	api := newOrchestrationAPI(svc)
	claims, header := claimsWith("permissions", `["tasks:list"]`), `{"alg":"RS256","typ":"JWT"}`
	tokens := map[string]string{
		"GET /v1/tasks":       signedText(t, "RS256", authKeys().rsa, header, claims),
		"GET /stepwell/tasks": signedText(t, "RS256", authKeys().rsa2, header, claims),
	}
	surfaces := map[string]*authSurface{
		"GET /v1/tasks": {t, api.surface, nil, ""}, "GET /stepwell/tasks": {t, api.mount.surface, nil, ""},
	}
	for at, s := range surfaces {
		for whose, token := range tokens {
			want := wantForged
			if at == whose {
				want = wantLetIn
			}
			want.check(t, at+" with the token for "+whose, s.ask(at, "Authorization: Bearer "+token))
		}
	}
}

// TestMountAuthenticatorElsewhere has a proxy that takes off a part of the path:
// the authenticator is told the path that we see, and links have the caller's.
func TestMountAuthenticatorElsewhere(t *testing.T) {
	who := newWhoServer(t)
	who.say(200, `{"subject": "ann", "permissions": ["tasks:*"]}`)
	s := newTestService(t, serviceTest{config: func(c *Config) {
		c.Mount.Path, c.Web.TrustedProxies = "/ops/flows", []string{"192.0.2.0/24"}
		c.Mount.Auth.Enabled, c.Mount.Auth.AuthenticatorURL = true, who.URL
	}})
	body := strings.NewReader(`{"name":"diamond","namespace":"demo"}`)
	r := httptest.NewRequest("POST", "/ops/flows/tasks?wait=9s", body)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "X-Forwarded-Prefix": "/edge",
		"X-Forwarded-Uri": "/elsewhere", "X-Forwarded-Method": "GET",
	} {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	newOrchestrationAPI(s).ServeHTTP(w, r)
	a := (&answer{t, w.Code, w.Header(), w.Body.Bytes()}).want(201)
	if want := "/edge/ops/flows/tasks/" + a.text("id"); a.header.Get("Location") != want {
		t.Errorf("got Location %s; want %s", a.header.Get("Location"), want)
	}
	asked := who.questions()
	if len(asked) != 1 {
		t.Fatalf("got %d questions; want 1", len(asked))
	}
	for name, want := range map[string]string{
		"X-Forwarded-Uri": "/ops/flows/tasks?wait=9s", "X-Forwarded-Method": "POST",
	} {
		if got := asked[0].Header.Get(name); got != want {
			t.Errorf("the authenticator is told %s %q; want %q", name, got, want)
		}
	}
}

// TestMountGuardsWithoutEffect has an operator told that what should be guarded is not.
func TestMountGuardsWithoutEffect(t *testing.T) {
	for _, tt := range []struct {
		set  func(c *mountConfig)
		want string
	}{
		{func(c *mountConfig) {}, ""},
		{func(c *mountConfig) { c.StatusRequiresAuth = true }, "mount.status_requires_auth"},
		{func(c *mountConfig) { c.MetricsRequireAuth = true }, "mount.metrics_require_auth"},
		{func(c *mountConfig) { c.MetricsRequireAuth, c.Path = true, "" }, ""},
		{func(c *mountConfig) {
			c.MetricsRequireAuth, c.Auth.Enabled, c.Auth.JWTPublicKey = true, true, publicPEM(t, authKeys().rsa)
		}, ""},
	} {
		cfg, log := testConfig(t, serviceTest{}), &logLines{}
		tt.set(&cfg.Mount)
		clk := newVirtualClock(testStart)
		made, err := newAuthenticators(cfg, &provenance{}, clk, log.logger())
		if err != nil {
			t.Fatal(err)
		}
		made.close()
		got := log.String()
		if strings.Contains(got, "has no effect") != (tt.want != "") || !strings.Contains(got, tt.want) {
			t.Errorf("got log %q; want %q to have no effect", got, tt.want)
		}
	}
}
