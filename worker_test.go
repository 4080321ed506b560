package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// TestRolesAuthenticateAlone gives the roles different keys and audiences: neither
// accepts the other's credentials.
func TestRolesAuthenticateAlone(t *testing.T) {
	svc := newTestService(t, serviceTest{clock: newVirtualClock(authTestNow), config: func(c *Config) {
		a, b := &c.Orchestration.Web.Auth, &c.Worker.Web.Auth
		a.Enabled, a.JWTPublicKey, a.JWTAudience = true, publicPEM(t, authKeys().rsa), "orchestration"
		b.Enabled, b.JWTPublicKey, b.JWTAudience = true, publicPEM(t, authKeys().rsa), "worker"
	}})
	probe := []route{{"GET /probe", needs(permTasksRead), func(_ *responseWriter, r *http.Request) (any, error) {
		return nil, nil
	}}}
	surfaces := map[string]*authSurface{
		"orchestration": {t, newOrchestrationAPI(svc, nil).surface, nil, ""}, "worker": {t, newWorkerAPI(svc, nil).surface, nil, ""},
	}
	for at, s := range surfaces {
		s.handle(probe)
		for audience := range surfaces {
			want := wantInvalid
			if at == audience {
				want = wantLetIn
			}
			token := rs256(t, claimsWith("aud", `"`+audience+`"`))
			want.check(t, audience+"'s token at "+at, s.ask("GET /probe", "Authorization: Bearer "+token))
		}
	}
}

// TestValidateLooksForPrograms validates a program that exists, one that is missing,
// and one that is not executable.
func TestValidateLooksForPrograms(t *testing.T) {
	dir := t.TempDir()
	noError(t, os.WriteFile(filepath.Join(dir, "there"), []byte("#!/bin/sh\n"), 0o700))
	writeFile(t, filepath.Join(dir, "text"), []byte("no program"))
	o := serviceTest{config: func(c *Config) { c.Worker.AllowExec, c.Worker.ExecPath = true, dir }}
	programs := []struct {
		program string
		valid   bool
	}{
		{"there", true}, {"absent", false}, {"text", false},
		{filepath.Join(dir, "there"), true}, {filepath.Join(dir, "absent"), false}, {filepath.Join(dir, "text"), false},
	}
	for i, p := range programs {
		o.extra = append(o.extra, testTemplate(fmt.Sprint("p", i), stepSpec{name: "a", callable: "exec:" + p.program}))
	}
	s := newTestServer(t, o)
	w := s.with(newWorkerAPI(s.svc, nil))
	for i, p := range programs {
		a := w.do("POST", fmt.Sprintf("/v1/templates/t/p%d/1.0.0/validate", i), "").want(200)
		if a.get("valid") != p.valid || (len(a.get("errors").([]any)) == 0) != p.valid {
			t.Errorf("%s: got %s; want valid = %v", p.program, a.body, p.valid)
		}
	}
}
