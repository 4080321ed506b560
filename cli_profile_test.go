package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// TestProfiles asks the services of a file as Tasker's client has it.
func TestProfiles(t *testing.T) {
	home := t.TempDir()
	t.Chdir(t.TempDir())
	var seen http.Header
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header
		if strings.HasPrefix(r.URL.Path, "/v1/tasks/") {
			w.WriteHeader(http.StatusUnauthorized)
		}
		w.Write([]byte(`{"tasks":[],"pagination":{}}`))
	}))
	defer h.Close()
	file := strings.ReplaceAll(`
[profile.default]
transport = "rest"
[profile.default.orchestration]
base_url = "URL"
timeout_ms = 30000
max_retries = 3
[profile.default.cli]
default_format = "table"
[profile.keyed]
description = "Staging"
namespaces = ["staging"]
tools = ["tier1"]
[profile.keyed.orchestration.auth]
method = { type = "ApiKey", value = { key = "secret-key", header_name = "X-Key" } }
[profile.token.orchestration.auth]
method = { type = "BearerToken", value = "secret-token" }
[profile.grpc]
transport = "grpc"
[profile.odd.orchestration.auth]
method = { type = "Basic", value = "x" }
[cli]
default-language = "ruby"
[[cli.remotes]]
name = "contrib"
`, "URL", h.URL)
	noError(t, os.MkdirAll(home+"/.tasker", 0o700))
	noError(t, os.WriteFile(home+"/.tasker/client.toml", []byte(file), 0o600))
	for _, tt := range []struct {
		env, line                   string
		code                        int
		authorization, key, message string
	}{
		{"", "task list --profile keyed", 0, "", "secret-key", ""},
		{"STEPWELL_PROFILE=token", "task list", 0, "Bearer secret-token", "", ""},
		{"STEPWELL_AUTH_TOKEN=mine", "task list --profile token", 0, "Bearer secret-token", "", ""},
		{"STEPWELL_AUTH_TOKEN=mine", "task list --profile default", 0, "Bearer mine", "", ""},
		{"STEPWELL_PROFILE=token", "task list --url " + h.URL, 0, "", "", ""},
		{"STEPWELL_URL=http://127.0.0.1:1", "task list --profile keyed", 0, "", "secret-key", ""},
		{"STEPWELL_URL=http://127.0.0.1:1", "task list", exitUnreachable, "", "", "nothing listens"},
		{"", "task context --profile keyed 0198c1f2-7a10-7c3b-9d42-5b1f0a6e2c01", exitRefused, "", "secret-key", "the credential is that of profile keyed"},
		{"STEPWELL_AUTH_TOKEN=mine", "task context --profile default 0198c1f2-7a10-7c3b-9d42-5b1f0a6e2c01", exitRefused, "Bearer mine", "",
			"set STEPWELL_AUTH_TOKEN or STEPWELL_API_KEY"},
		{"", "task list --profile keyed --url x", exitUsage, "", "", "--url and --profile cannot be combined"},
		{"", "task list --profile keyd", exitNotFound, "", "", `no profile "keyd" in ` + home + "/.tasker/client.toml; did you mean keyed?"},
		{"", "task list --profile grpc", exitFailed, "", "", "has the transport grpc: only rest is supported"},
		{"", "task list --profile odd", exitFailed, "", "", "auth.method must be"},
	} {
		seen = http.Header{}
		name, value, _ := strings.Cut(tt.env, "=")
		got := runCLI(map[string]string{"HOME": home, name: value}, "", strings.Fields(tt.line)...)
		if got.code != tt.code || !strings.Contains(got.stderr, tt.message) || tt.message == "" && got.stderr != "" {
			t.Errorf("%s %s: got %d, %q; want %d, %q", tt.env, tt.line, got.code, got.stderr, tt.code, tt.message)
		}
		if seen.Get("Authorization") != tt.authorization || seen.Get("X-Key") != tt.key {
			t.Errorf("%s %s: got %v", tt.env, tt.line, seen)
		}
	}
	env := map[string]string{"HOME": home, "STEPWELL_PROFILE": "keyed"}
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"task_list","arguments":{}}}` + "\n"
	if got := runCLI(env, call, "mcp"); seen.Get("X-Key") != "secret-key" || !strings.Contains(got.stdout, `"isError":false`) {
		t.Errorf("mcp: got %s, and sent %v", got.stdout, seen)
	}
	got := runCLI(env, "", "profile", "show")
	if strings.Contains(got.stdout, "secret") || !strings.Contains(got.stdout, h.URL) || !strings.Contains(got.stdout, "X-Key, from the profile") {
		t.Errorf("profile show: got %q, %q", got.stdout, got.stderr)
	}
	if got := runCLI(env, "", "profile", "list", "-o", "name"); got.stdout != "default\ngrpc\nkeyed\nodd\ntoken\n" {
		t.Errorf("profile list: got %q, %q", got.stdout, got.stderr)
	}
	noError(t, os.Mkdir(".config", 0o700))
	noError(t, os.WriteFile(".config/tasker.toml", []byte(file), 0o644))
	got = runCLI(env, "", "profile", "list", "-o", "json")
	if !strings.Contains(got.stdout, ".config/tasker.toml") || !strings.Contains(got.stderr, "others can read it: chmod 600 .config/tasker.toml") {
		t.Errorf("a file of the project that others can read: got %q, %q", got.stdout, got.stderr)
	}
}
