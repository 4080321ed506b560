package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestClientCredential(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, []byte(privatePEM(t, authKeys().rsa)), 0o600); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{
		"STEPWELL_ORCHESTRATION_AUTH_TOKEN": "o", "STEPWELL_WORKER_AUTH_TOKEN": "w", "STEPWELL_AUTH_TOKEN": "any",
		"STEPWELL_API_KEY": "key", "STEPWELL_JWT_PRIVATE_KEY_PATH": path,
	}
	without := func(names ...string) map[string]string {
		env := map[string]string{}
		for k, v := range all {
			env[k] = v
		}
		for _, n := range names {
			delete(env, "STEPWELL_"+n)
		}
		return env
	}
	with := func(env map[string]string, name, value string) map[string]string {
		env["STEPWELL_"+name] = value
		return env
	}
	noTokens := []string{"ORCHESTRATION_AUTH_TOKEN", "WORKER_AUTH_TOKEN", "AUTH_TOKEN"}
	for _, tt := range []struct {
		name, role    string
		env           map[string]string
		header, value string
		problem       string
	}{
		{"orchestration's own token", "orchestration", all, "Authorization", "Bearer o", ""},
		{"worker's own token", "worker", all, "Authorization", "Bearer w", ""},
		{"the mount is orchestration's", "mount", all, "Authorization", "Bearer o", ""},
		{"orchestration without its own", "orchestration", without("ORCHESTRATION_AUTH_TOKEN"), "Authorization",
			"Bearer any", ""},
		{"worker without its own", "worker", without("WORKER_AUTH_TOKEN"), "Authorization", "Bearer any", ""},
		{"an API key", "worker", without(noTokens...), "X-API-Key", "key", ""},
		{"an API key in another header", "worker", with(without(noTokens...), "API_KEY_HEADER", "X-Key"), "X-Key",
			"key", ""},
		{"the other role's token", "worker", map[string]string{"STEPWELL_ORCHESTRATION_AUTH_TOKEN": "o"}, "", "",
			""},
		{"nothing", "worker", nil, "", "", ""},
		{"a token with a line break behind", "worker", with(without(), "WORKER_AUTH_TOKEN", "w\n"),
			"Authorization", "Bearer w", ""},
		{"blanks for a token", "worker", with(without(), "WORKER_AUTH_TOKEN", " \n"), "Authorization",
			"Bearer any", ""},
		{"a token with a line break inside", "worker", with(without(), "WORKER_AUTH_TOKEN", "hunter\n2"), "", "",
			"STEPWELL_WORKER_AUTH_TOKEN"},
		{"an API key with a line break inside", "worker", with(without(noTokens...), "API_KEY", "hunter\r\n2"),
			"", "", "STEPWELL_API_KEY "},
		{"an unsound header", "worker", with(without(noTokens...), "API_KEY_HEADER", "hunter 2"), "", "",
			"STEPWELL_API_KEY_HEADER"},
		{"no key file", "worker", map[string]string{"STEPWELL_JWT_PRIVATE_KEY_PATH": "absent.pem"}, "", "",
			"absent.pem"},
	} {
		header, value, err := clientCredential(tt.role, func(k string) string { return tt.env[k] },
			func() instant { return authTestNow })
		if header != tt.header || value != tt.value {
			t.Errorf("%s: got %q, %q; want %q, %q", tt.name, header, value, tt.header, tt.value)
		}
		if (err != nil) != (tt.problem != "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%s: got %v; want an error with %q", tt.name, err, tt.problem)
		}
		if err != nil && strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: the error holds the secret: %v", tt.name, err)
		}
	}
}

func TestTokenOnDemand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, []byte(privatePEM(t, authKeys().rsa)), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"STEPWELL_JWT_PRIVATE_KEY_PATH":            path,
		"STEPWELL_WORKER__WEB__AUTH__JWT_ISSUER":   "me",
		"STEPWELL_WORKER__WEB__AUTH__JWT_AUDIENCE": "workers",
	}
	b := newAuthBench(t, unchanged)
	worker := newAuthBench(t, func(c *authConfig) { c.JWTIssuer, c.JWTAudience = "me", "workers" })
	for _, tt := range []struct {
		role string
		b    *authBench
	}{{"orchestration", b}, {"worker", worker}} {
		header, value, err := clientCredential(tt.role, func(k string) string { return env[k] }, b.clock.now)
		if err != nil {
			t.Fatalf("%s: %v", tt.role, err)
		}
		sc, f := tt.b.ask(header + ": " + value)
		if f != nil || sc.permissions != everyPermission || sc.expiry != authTestNow.add(15*time.Minute) {
			t.Errorf("%s: got %+v, %v; want everything for a quarter of an hour", tt.role, sc, f)
		}
	}
}
