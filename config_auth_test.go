package main

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestKeyFilesOfServedRoles checks that the key files of served and enabled roles are
// read, and that each bad one is reported with its source.
func TestKeyFilesOfServedRoles(t *testing.T) {
	dir := t.TempDir()
	noError(t, os.WriteFile(dir+"/broken.pem", []byte("hunter2"), 0o600))
	text := strings.ReplaceAll(`[orchestration.web.auth]
enabled = true
jwt_public_key_path = "DIR/broken.pem"
[worker.web.auth]
enabled = true
jwt_public_key_path = "DIR/absent.pem"
`, "DIR", dir)
	broken := "stepwell.toml:3: orchestration.web.auth.jwt_public_key_path: reading the public key " + dir +
		"/broken.pem: it is not PEM"
	absent := "stepwell.toml:6: worker.web.auth.jwt_public_key_path: reading the public key: open " + dir +
		"/absent.pem: no such file or directory"
	for _, tt := range []struct {
		args []string
		want string // of the error; "" for none
	}{
		{nil, "configuration: 2 problems\n  " + broken + "\n  " + absent},
		{[]string{"--role", "orchestration"}, "configuration: " + broken},
		{[]string{"--role", "worker"}, "configuration: " + absent},
	} {
		in := configInput{files: map[string]string{"stepwell.toml": text}, args: tt.args}
		cfg, origin := must2(in.load())(t)
		log := &logLines{}
		if _, err := newAuthenticators(cfg, origin, newVirtualClock(authTestNow), log.logger()); err == nil || err.Error() != tt.want {
			t.Errorf("%q: got %v; want %s", tt.args, err, tt.want)
		}
	}
	disabled := strings.ReplaceAll(text, "enabled = true", "enabled = false")
	in := configInput{files: map[string]string{"stepwell.toml": disabled}}
	cfg, origin := must2(in.load())(t)
	if _, err := newAuthenticators(cfg, origin, newVirtualClock(authTestNow), (&logLines{}).logger()); err != nil {
		t.Errorf("disabled: got %v; want no file read", err)
	}
	// The algorithms have their default, so the error names the line that they matter by.
	in.files["stepwell.toml"] = fmt.Sprintf("[worker.web.auth]\nenabled = true\njwt_public_key = %q", publicPEM(t, authKeys().p256))
	cfg, origin = must2(in.load())(t)
	_, err := newAuthenticators(cfg, origin, newVirtualClock(authTestNow), (&logLines{}).logger())
	if want := "stepwell.toml:2: worker.web.auth.jwt_allowed_algorithms: none"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a key of another family: got %v; want %s", err, want)
	}
}

// TestAuthConfigHidesSecrets shows a section whose every secret is set.
func TestAuthConfigHidesSecrets(t *testing.T) {
	writeConfigFiles(t, map[string]string{"stepwell.toml": authFile(
		"jwt_public_key = 'hunter2'", "jwt_private_key = 'hunter2'", "jwks_url = 'https://me:hunter2@keys.example/?a=hunter2'",
		"authenticator_url = 'https://who.example/?key=hunter2'",
		"api_keys = [{key = 'hunter2hunter2hunter2', permissions = ['tasks:*'], description = 'nightly'}]")})
	for _, args := range [][]string{{"show"}, {"show", "-o", "json"}} {
		out, err := runConfig(nil, args...)
		if err != nil || strings.Contains(out, "hunter2") {
			t.Errorf("%q: got %s, %v; want nothing secret", args, out, err)
		}
		for _, want := range []string{"nightly", "tasks:*", redactedText + "@keys.example"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q: got no %q in %s", args, want, out)
			}
		}
	}
	in := configInput{files: map[string]string{"stepwell.toml": string(readFile(t, "stepwell.toml"))}}
	c, _ := must2(in.load())(t)
	text, err := json.Marshal(c.redacted())
	want := `"api_keys":[{"key":"[REDACTED]","permissions":["tasks:*"],"description":"nightly"}]`
	if err != nil || strings.Contains(string(text), "hunter2") || !strings.Contains(string(text), want) {
		t.Errorf("got %s, %v; want %s in it and nothing secret", text, err, want)
	}
	if c.Orchestration.Web.Auth.APIKeys[0].Key != "hunter2hunter2hunter2" {
		t.Error("the view changed the configuration")
	}
}

// configInput holds all sources of a configuration.
type configInput struct {
	files map[string]string
	env   map[string]string
	args  []string // of serve
}

func (in configInput) load() (*Config, *provenance, error) {
	args, err := parseServeArgs(in.args, io.Discard)
	if err != nil {
		return nil, nil, err
	}
	return loadConfig(args.configArgs, in.getenv, in.environ(), in.readFile)
}

func (in configInput) getenv(name string) string { return in.env[name] }

func (in configInput) environ() []string {
	var list []string
	for name, value := range in.env {
		list = append(list, name+"="+value)
	}
	return list
}

func (in configInput) readFile(name string) ([]byte, error) {
	text, ok := in.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return []byte(text), nil
}

// wantConfigValues loads in and compares every key: with want, or else with
// the default.
func wantConfigValues(t *testing.T, in configInput, want map[string]any) {
	t.Helper()
	c, _, err := in.load()
	if err != nil {
		t.Fatalf("got %v; want no error", err)
	}
	for _, k := range configKeys {
		expected, ok := want[k.path]
		if !ok && k.inherits != "" {
			expected, ok = want[k.inherits]
		}
		if !ok {
			expected = k.def
		}
		if got := k.get(c); !reflect.DeepEqual(got, expected) {
			t.Errorf("%s: got %#v; want %#v", k.path, got, expected)
		}
	}
}

// wantConfigProblems loads in and compares the lines of the error.
func wantConfigProblems(t *testing.T, in configInput, want ...string) {
	t.Helper()
	_, _, err := in.load()
	if err == nil {
		t.Fatalf("got no error; want %q", want)
	}
	text, _ := strings.CutPrefix(err.Error(), "configuration: ")
	got := strings.Split(text, "\n  ")
	if len(got) > 1 {
		got = got[1:] // the number of problems
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// authValues returns the values of keys in the orchestration role's section.
func authValues(values map[string]any) map[string]any {
	all := map[string]any{}
	for key, v := range values {
		all[authKeyPath("orchestration", key)] = v
	}
	return all
}

// authFile returns a file with lines in the orchestration role's section.
func authFile(lines ...string) string {
	return "[orchestration.web.auth]\n" + strings.Join(lines, "\n")
}

func TestAuthConfigLayers(t *testing.T) {
	type values = map[string]any
	two := func(a, b string) configInput {
		return configInput{
			files: map[string]string{"a.toml": a, "b.toml": b}, args: []string{"--config", "a.toml", "--config", "b.toml"},
		}
	}
	for _, tt := range []struct {
		name string
		in   configInput
		want values
	}{
		{"path and key of one layer",
			configInput{files: map[string]string{"stepwell.toml": authFile("jwt_public_key_path = 'p'", "jwt_public_key = 'k'")}},
			authValues(values{"jwt_public_key_path": "p", "jwt_public_key": "k"})},
		{"a later key instead of an earlier path",
			two(authFile("jwt_public_key_path = 'p'"), authFile("jwt_public_key = 'k'")),
			authValues(values{"jwt_public_key": "k"})},
		{"a later path instead of an earlier key",
			two(authFile("jwt_public_key = 'k'"), authFile("jwt_public_key_path = 'p'")),
			authValues(values{"jwt_public_key_path": "p"})},
		{"both later instead of both earlier",
			two(authFile("jwt_public_key = 'k'", "jwt_public_key_path = 'p'"),
				authFile("jwt_public_key = 'l'", "jwt_public_key_path = 'q'")),
			authValues(values{"jwt_public_key": "l", "jwt_public_key_path": "q"})},
		{"nothing later is no key",
			two(authFile("jwt_public_key_path = 'p'"), authFile("jwt_public_key = ''")),
			authValues(values{"jwt_public_key_path": "p"})},
		{"the key of an overlay instead of the file's path",
			configInput{
				files: map[string]string{
					"stepwell.toml": authFile("jwt_public_key_path = 'p'"), "stepwell.prod.toml": authFile("jwt_public_key = 'k'"),
				},
				env: map[string]string{"STEPWELL_ENV": "prod"},
			},
			func() values {
				v := authValues(values{"jwt_public_key": "k"})
				v["environment"] = "prod"
				return v
			}()},
		{"a variable's key instead of a file's path, for one role",
			configInput{
				files: map[string]string{"stepwell.toml": authFile("jwt_public_key_path = 'p'")},
				env:   map[string]string{"STEPWELL_ORCHESTRATION__WEB__AUTH__JWT_PUBLIC_KEY": "k"},
			},
			authValues(values{"jwt_public_key": "k"})},
		{"STEPWELL_JWT_PUBLIC_KEY for both roles, whatever there is",
			configInput{
				files: map[string]string{"stepwell.toml": authFile("jwt_public_key_path = 'p'")},
				env: map[string]string{
					"STEPWELL_JWT_PUBLIC_KEY":                         "k",
					"STEPWELL_WORKER__WEB__AUTH__JWT_PUBLIC_KEY_PATH": "q",
				},
			},
			values{"orchestration.web.auth.jwt_public_key": "k", "worker.web.auth.jwt_public_key": "k"}},
		{"STEPWELL_JWT_PUBLIC_KEY_PATH beside it",
			configInput{env: map[string]string{"STEPWELL_JWT_PUBLIC_KEY": "k", "STEPWELL_JWT_PUBLIC_KEY_PATH": "p"}},
			values{
				"orchestration.web.auth.jwt_public_key": "k", "orchestration.web.auth.jwt_public_key_path": "p",
				"worker.web.auth.jwt_public_key": "k", "worker.web.auth.jwt_public_key_path": "p",
			}},
		{"other variables of the container disturb nothing",
			configInput{env: map[string]string{
				"STEPWELL_JWT_PUBLIC_KEY": "", "STEPWELL_AUTH_TOKEN": "t", "STEPWELL_API_KEY": "k",
				"STEPWELL_JWT_PRIVATE_KEY_PATH": "p", "STEPWELL_PORT": "tcp://1.2.3.4:80",
			}},
			nil},
		{"API keys are replaced whole",
			two(authFile("[[orchestration.web.auth.api_keys]]", "key = 'one'", "permissions = ['tasks:*']", "description = 'o'",
				"[[orchestration.web.auth.api_keys]]", "key = 'two'", "permissions = ['dlq:*']"),
				authFile("api_keys = [{key = 'three', permissions = ['dlq:read', 'dlq:stats']}]")),
			authValues(values{"api_keys": []apiKeyConfig{{"three", []string{"dlq:read", "dlq:stats"}, ""}}})},
		{"API keys of a variable",
			configInput{
				files: map[string]string{"stepwell.toml": authFile("api_keys = [{key = 'one', permissions = ['*']}]")},
				env: map[string]string{"STEPWELL_ORCHESTRATION__WEB__AUTH__API_KEYS": `[{"key": "two", "permissions": ["*"], ` +
					`"description": "d"}]`},
			},
			authValues(values{"api_keys": []apiKeyConfig{{"two", []string{"*"}, "d"}}})},
		{"no API keys of a variable",
			configInput{
				files: map[string]string{"stepwell.toml": authFile("api_keys = [{key = 'one', permissions = ['*']}]")},
				env:   map[string]string{"STEPWELL_ORCHESTRATION__WEB__AUTH__API_KEYS": " "},
			},
			nil},
	} {
		t.Run(tt.name, func(t *testing.T) { wantConfigValues(t, tt.in, tt.want) })
	}
}

func TestAuthConfigProblems(t *testing.T) {
	const section = "orchestration.web.auth."
	file := func(lines ...string) configInput {
		return configInput{files: map[string]string{"stepwell.toml": authFile(lines...)}}
	}
	variable := func(key, text string) configInput {
		return configInput{env: map[string]string{"STEPWELL_WORKER__WEB__AUTH__" + key: text}}
	}
	for _, tt := range []struct {
		name string
		in   configInput
		want []string
	}{
		{"what is wrong with a list of API keys",
			file("api_keys_enabled = true", "[[orchestration.web.auth.api_keys]]", "description = 'd'",
				"[[orchestration.web.auth.api_keys]]", "key = 'hunter2'", "", "permissions = []",
				"[[orchestration.web.auth.api_keys]]", "keys = 'hunter2'", "permissions = 'tasks:*'",
				"[[orchestration.web.auth.api_keys]]", "key = 7", "permissions = ['tasks:*', 1]"),
			[]string{
				"stepwell.toml:3: " + section + "api_keys[0].key: it is missing or empty",
				"stepwell.toml:3: " + section + "api_keys[0].permissions: must not be empty: a key without permissions is useless",
				"stepwell.toml:8: " + section + "api_keys[1].permissions: must not be empty: a key without permissions is useless",
				"stepwell.toml:10: " + section + "api_keys[2].keys: unknown key; did you mean key?",
				"stepwell.toml:11: " + section + "api_keys[2].permissions: want an array of strings, got a string",
				"stepwell.toml:13: " + section + "api_keys[3].key: want a string, got an integer",
				"stepwell.toml:14: " + section + "api_keys[3].permissions[1]: want a string, got an integer",
			}},
		{"API keys that are no tables",
			file("api_keys = ['hunter2']"),
			[]string{"stepwell.toml:2: " + section + "api_keys[0]: want a table, got a string"}},
		{"API keys that are no list",
			file("[orchestration.web.auth.api_keys]", "key = 'hunter2'"),
			[]string{"stepwell.toml:2: " + section + "api_keys: want an array of tables, got a table"}},
		{"an API key twice, and one that no header carries",
			file("api_keys = [{key = 'hunter2hunter2', permissions = ['*']},", "{key = 'hunter2hunter2', permissions = ['*']},",
				"{key = 'hunter2 ', permissions = ['*']}]"),
			[]string{
				"stepwell.toml:3: " + section + "api_keys[1].key: duplicates that of api_keys[0]",
				"stepwell.toml:4: " + section + "api_keys[2].key: contains characters that no header can carry, or begins or ends with a blank",
			}},
		{"a variable that is not valid JSON", variable("API_KEYS", `[{"key": "hunter2"`),
			[]string{`env STEPWELL_WORKER__WEB__AUTH__API_KEYS: worker.web.auth.api_keys: "[REDACTED]" is not a JSON array of objects`}},
		{"a variable that is no list", variable("API_KEYS", `{"key": "hunter2"}`),
			[]string{`env STEPWELL_WORKER__WEB__AUTH__API_KEYS: worker.web.auth.api_keys: "[REDACTED]" is not a JSON array of objects`}},
		{"enabled with nothing to verify by", variable("ENABLED", "true"),
			[]string{"env STEPWELL_WORKER__WEB__AUTH__ENABLED: worker.web.auth.enabled: nothing can verify credentials: " +
				"configure a key, a JWKS, API keys or an authenticator"}},
		{"that only follows from another problem",
			file("enabled = true", "jwt_public_key = 7"),
			[]string{"stepwell.toml:3: " + section + "jwt_public_key: want a string, got an integer"}},
		{"no API keys",
			file("enabled = true", "api_keys_enabled = true"),
			[]string{"stepwell.toml:3: " + section + "api_keys_enabled: there are no api_keys"}},
		{"one API key, with permissions for nothing",
			file("enabled = true", "api_keys_enabled = true", "api_keys = [{key = 'hunter2', permissions = []}]"),
			[]string{"stepwell.toml:4: " + section +
				"api_keys[0].permissions: must not be empty: a key without permissions is useless"}},
		{"words, ranges and algorithms, enabled or not",
			file("jwt_verification_method = 'secret'", "jwt_leeway_seconds = -1", "jwks_refresh_interval_seconds = 0",
				"jwks_max_stale_seconds = -1", "authenticator_cache_seconds = 61", "jwt_token_expiry_hours = -1",
				"jwt_allowed_algorithms = ['RS256', 'HS256', 'none', 'ES512']", "jwt_issuer = ''", "api_key_header = 'cookie'"),
			[]string{
				"stepwell.toml:2: " + section + `jwt_verification_method: "secret" is not one of public_key, jwks`,
				"stepwell.toml:3: " + section + "jwt_leeway_seconds: -1 is not in the range from 0 to 3600",
				"stepwell.toml:4: " + section + "jwks_refresh_interval_seconds: 0 is not in the range from 1 to 604800",
				"stepwell.toml:5: " + section + "jwks_max_stale_seconds: -1 is not in the range from 0 to 2592000",
				"stepwell.toml:6: " + section + "authenticator_cache_seconds: 61 is not in the range from 0 to 60",
				"stepwell.toml:7: " + section + "jwt_token_expiry_hours: -1 is not in the range from 0 to 87840",
				"stepwell.toml:8: " + section + "jwt_allowed_algorithms: HS256 can never be allowed: anyone could make tokens",
				"stepwell.toml:8: " + section + "jwt_allowed_algorithms: none can never be allowed: anyone could make tokens",
				"stepwell.toml:8: " + section + `jwt_allowed_algorithms: unknown algorithm "ES512"; the algorithms are ` +
					strings.Join(signingAlgorithms, ", "),
				"stepwell.toml:9: " + section + "jwt_issuer: must not be empty",
				"stepwell.toml:10: " + section + `api_key_header: "cookie" cannot carry an API key`,
			}},
		{"addresses of key set and authenticator",
			file("enabled = true", "jwt_verification_method = 'jwks'", "jwks_url = 'http://me:hunter2@127.0.0.1/'"),
			[]string{
				"stepwell.toml:4: " + section + "jwks_url: must be https, unless jwks_url_allow_http is set",
				"stepwell.toml:4: " + section + "jwks_url: the address is loopback, link-local or a metadata service; " +
					"jwks_allow_private_hosts would allow it",
			}},
		{"no address of the key set", file("enabled = true", "jwt_verification_method = 'jwks'"),
			[]string{"stepwell.toml:2: " + section + `jwks_url: must not be empty if jwt_verification_method is "jwks"`}},
		{"proxies",
			configInput{files: oneConfigFile("[web]", "trusted_proxies = ['10.0.0.0/8', 'proxy', '::1', 'fe80::1%eth0']")},
			[]string{
				`stepwell.toml:2: web.trusted_proxies[1]: "proxy" is not an address or prefix like 10.0.0.0/8`,
				`stepwell.toml:2: web.trusted_proxies[3]: "fe80::1%eth0" is not an address or prefix like 10.0.0.0/8`,
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wantConfigProblems(t, tt.in, tt.want...)
			if _, _, err := tt.in.load(); strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v; want no secret in it", err)
			}
		})
	}
}

// TestTokensFollowTheConfigurationFiles makes a token by a stepwell.toml, which counts only if it is named.
func TestTokensFollowTheConfigurationFiles(t *testing.T) {
	writeConfigFiles(t, map[string]string{"stepwell.toml": authFile(
		"jwt_issuer = 'me'", "jwt_audience = 'you'", "jwt_token_expiry_hours = 3")})
	env := map[string]string{"STEPWELL_ORCHESTRATION__WEB__AUTH__JWT_AUDIENCE": "them"}
	var errors strings.Builder
	p := &process{getenv: func(name string) string { return env[name] }, stderr: &errors}
	for name, value := range maps.All(env) {
		p.environ = append(p.environ, name+"="+value)
	}
	get := must(p.authSettings(configArgs{files: []string{"stepwell.toml"}}))(t)
	got := []string{
		authSetting(get, "orchestration", "jwt_issuer", "x"), authSetting(get, "orchestration", "jwt_audience", "x"),
		authSetting(get, "orchestration", "jwt_token_expiry_hours", "x"), authSetting(get, "worker", "jwt_issuer", "x"),
		get("STEPWELL_NOBODY__KNOWS"), get("HOME"),
	}
	if want := "me them 3 stepwell  "; strings.Join(got, " ") != want || errors.Len() > 0 {
		t.Errorf("got %q, %s; want %q", got, &errors, want)
	}
	if got := authSetting(must(p.authSettings(configArgs{}))(t), "orchestration", "jwt_issuer", "x"); got != defaultIssuer {
		t.Errorf("a file that nothing names: got %s; want %s", got, defaultIssuer)
	}
	writeFile(t, "stepwell.toml", []byte("nonsense"))
	if _, err := p.authSettings(configArgs{files: []string{"stepwell.toml"}}); err == nil {
		t.Error("a broken file: got no error")
	}
}
