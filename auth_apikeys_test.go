package main

import (
	"fmt"
	"strings"
	"testing"
)

// startUp returns the problems and warnings of newAuthenticator.
func startUp(t *testing.T, role string, set func(c *authConfig)) (problems string, warnings string) {
	t.Helper()
	c := defaultConfig().Orchestration.Web.Auth
	c.Enabled = true
	c.JWTPublicKey = publicPEM(t, authKeys().rsa)
	set(&c)
	log := &logLines{}
	a, warned, err := newAuthenticator(&c, role, nil, newVirtualClock(authTestNow), log.logger())
	if err != nil {
		return err.Error(), strings.Join(warned, "\n")
	}
	a.close()
	return "", strings.Join(warned, "\n")
}

func TestStartUpListsEveryProblem(t *testing.T) {
	problems, _ := startUp(t, "mount", func(c *authConfig) {
		c.JWTIssuer, c.JWTAllowedAlgorithms = "", []string{"none", "HS256"}
		c.JWTPublicKeyPath, c.APIKeysEnabled = "absent.pem", true
		c.APIKeys = []apiKeyConfig{{Key: "a"}, {Key: "a"}}
	})
	for _, w := range []string{
		"mount.auth.jwt_allowed_algorithms: none", "mount.auth.jwt_allowed_algorithms: HS256",
		"mount.auth.jwt_issuer", "mount.auth.jwt_public_key_path", "absent.pem",
		"mount.auth.api_keys[0].permissions", "mount.auth.api_keys[1].permissions", "mount.auth.api_keys[1].key",
	} {
		if !strings.Contains(problems, w) {
			t.Errorf("got no %q in %s", w, problems)
		}
	}
	if problems, _ = startUp(t, "worker",
		func(c *authConfig) { c.JWTIssuer = "" }); !strings.HasPrefix(problems, "worker.web.auth.jwt_issuer") {
		t.Errorf("got %q; want the worker's key named", problems)
	}
}

func BenchmarkAPIKey(b *testing.B) {
	bench := newAuthBench(b, func(c *authConfig) {
		withAPIKeys(c)
		for i := range 100 {
			c.APIKeys = append(c.APIKeys, apiKeyConfig{Key: fmt.Sprintf("one-of-a-hundred-%d", i),
				Permissions: []string{"tasks:*"}})
		}
	})
	r := requestWith("X-API-Key: " + testAPIKey)
	b.ReportAllocs()
	for b.Loop() {
		if _, f := bench.request(r); f != nil {
			b.Fatal(f)
		}
	}
}

func TestAPIKeyContext(t *testing.T) {
	b := newAuthBench(t, func(c *authConfig) { withAPIKeys(c); c.APIKeyHeader = "x-service-key" })
	sc, f := b.ask("X-Service-Key: " + testAPIKey)
	if f != nil {
		t.Fatal(f)
	}
	set, _ := parsePermissions([]string{"tasks:read", "dlq:*"})
	if want := (securityContext{subject: "nightly build", method: authByAPIKey, key: sc.key, permissions: set}); *sc != want {
		t.Errorf("got %+v; want %+v", *sc, want)
	}
	sc, f = b.ask("X-Service-Key: the-superuser-key-of-the-tests")
	if f != nil || sc.permissions != everyPermission {
		t.Errorf("the superuser key: got %+v, %v; want every permission", sc, f)
	}
	if _, f = b.ask("X-API-Key: " + testAPIKey); reasonOf(f) != "missing" {
		t.Errorf("the default header: got %q; want missing", reasonOf(f))
	}
}
