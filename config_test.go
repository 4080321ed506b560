package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

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

// oneConfigFile returns a stepwell.toml in the working directory.
func oneConfigFile(lines ...string) map[string]string {
	return map[string]string{"stepwell.toml": strings.Join(lines, "\n")}
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

func TestConfigTableIsSound(t *testing.T) {
	flags := make(map[string]string)
	for i := range configKeys {
		k := &configKeys[i]
		if got := reflect.TypeOf(k.get(defaultConfig())); got != reflect.TypeOf(k.def) {
			t.Errorf("%s: got a field like %v; want %T like its default", k.path, got, k.def)
		}
		if _, faults := k.convert(configRaw(k.def)); len(faults) > 0 {
			t.Errorf("%s: got %v; want a valid default", k.path, faults)
		}
		if _, ok := k.def.(int64); ok && k.min >= k.max {
			t.Errorf("%s: got no range; want one", k.path)
		}
		if k.help == "" || strings.Contains(k.help, "\n") {
			t.Errorf("%s: got help %q; want one line", k.path, k.help)
		}
		if flags[k.flag] != "" {
			t.Errorf("%s: got flag --%s, which %s has too", k.path, k.flag, flags[k.flag])
		}
		if k.flag != "" {
			flags[k.flag] = k.path
		}
		if configKeyAt(k.path) != k {
			t.Errorf("%s: got two rows; want one", k.path)
		}
	}
}

// configRaw returns a default as toml.Decode would return it.
func configRaw(def any) any {
	switch v := def.(type) {
	case []string:
		raw := []any{}
		for _, s := range v {
			raw = append(raw, s)
		}
		return raw
	case map[string]string:
		raw := make(map[string]any)
		for name, s := range v {
			raw[name] = s
		}
		return raw
	case headerTables:
		return v.nested()
	case []apiKeyConfig, []subscriberConfig:
		return []any{}
	}
	return def
}

// Every field has a row: one that no source could set would be a constant.
func TestConfigFieldsAreInTheTable(t *testing.T) {
	c := new(Config)
	fields := map[any]string{&c.Log.Quiet: "log.quiet"} // a flag of its own
	for i := range configKeys {
		fields[configKeys[i].field(c).Addr().Interface()] = configKeys[i].path
	}
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		for i := range v.NumField() {
			field, name := v.Field(i), path+"."+v.Type().Field(i).Name
			if field.Kind() == reflect.Struct {
				walk(name, field)
			} else if fields[field.Addr().Interface()] == "" {
				t.Errorf("got no row for %s; want one", name)
			}
		}
	}
	walk("Config", reflect.ValueOf(c).Elem())
	if len(fields) != len(configKeys)+1 {
		t.Errorf("got %d fields for %d keys; want one each", len(fields)-1, len(configKeys))
	}
}

// The defaults of the contract, written by hand instead of taken from the table.
func TestConfigDefaults(t *testing.T) {
	want := map[string]string{
		"environment": `"development"`, "role": `"all"`,
		"orchestration.web.listen": `"127.0.0.1:8080"`, "worker.web.listen": `"127.0.0.1:8081"`,
		"orchestration.web.config_endpoint_enabled": "false", "worker.web.config_endpoint_enabled": "true",
		"console.enabled": "true", "docs.swagger_ui": `""`, "web.max_body_bytes": "4194304", "web.max_received_bytes": "33554432",
		"web.max_answer_bytes": "16777216", "web.max_connections": "3000", "web.max_waiting_requests": "2000",
		"events.max_streams": "100", "events.subscribers": "[]", "web.shutdown_timeout_seconds": "8",
		"templates.dirs": "[]", "templates.watch": "false", "templates.enforce_input_schema": `"off"`,
		"tasks.max_context_bytes": "1048576", "engine.jitter": "true", "engine.max_queued": "100000",
		"worker.concurrency": "256", "worker.http_concurrency": "4096", "worker.max_result_bytes": "1048576",
		"worker.allow_exec": "false", "worker.exec_env": "{}", "worker.exec_path": `""`,
		"worker.exec_dir": `""`, "worker.handlers": "{}", "worker.default_handler": `""`,
		"worker.http_headers": "{}", "worker.http_proxy": `""`,
		"store.path": `"./stepwell-data"`, "store.memory": "false", "store.sync": `"always"`,
		"store.sync_interval_ms": "100", "store.slow_seconds": "5",
		"store.retain_finished_count": "100000", "store.retain_finished_age_hours": "0",
		"requests.keep_hours": "24", "requests.keep_count": "250000",
		"store.snapshot_journal_mb": "16", "store.max_memory_mb": "0",
		"events.keep": "100000", "staleness.interval_seconds": "300",
		"staleness.waiting_for_dependencies_minutes": "60",
		"staleness.waiting_for_retry_minutes":        "30", "staleness.steps_in_process_minutes": "30",
		"staleness.max_lifetime_hours": "24", "log.level": `"info"`, "log.format": `"auto"`, "log.requests": "false",
		"web.trusted_proxies": "[]", "web.allowed_hosts": "[]", "web.allowed_origins": "[]",
		"fixture.enabled": "false", "fixture.allow_remote": "false", "fixture.send_events": "false", "fixture.allow_data": "false",
		"fixture.allow_targets": "[]", "fixture.deterministic_ids": `""`, "fixture.port_range": `""`, "fixture.public_host": `""`,
		"fixture.virtual_credentials": "false",
		"mount.path":                  `"/stepwell"`,
		"mount.status_requires_auth":  "false", "mount.metrics_require_auth": "false",
	}
	for key, value := range map[string]string{
		"enabled": "false", "jwt_issuer": `"stepwell"`, "jwt_audience": `"stepwell-api"`,
		"jwt_token_expiry_hours": "24", "jwt_verification_method": `"public_key"`,
		"jwt_public_key_path": `""`, "jwt_public_key": `""`, "jwt_private_key": `""`, "jwks_url": `""`,
		"jwks_refresh_interval_seconds": "3600", "jwks_max_stale_seconds": "300",
		"jwks_url_allow_http": "false", "jwks_allow_private_hosts": "false", "jwt_leeway_seconds": "60",
		"jwt_allowed_algorithms": `["RS256"]`, "permissions_claim": `"permissions"`,
		"strict_validation": "true", "log_unknown_permissions": "true", "api_key_header": `"X-API-Key"`,
		"api_keys_enabled": "false", "api_keys": "[]", "authenticator_url": `""`,
		"authenticator_cache_seconds": "0",
	} {
		want["orchestration.web.auth."+key], want["worker.web.auth."+key] = value, value
		want["mount.auth."+key] = value
	}
	got := make(map[string]string)
	c := defaultConfig()
	for i := range configKeys {
		got[configKeys[i].path] = tomlLiteral(configKeys[i].get(c))
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestDefaultsAreNotShared(t *testing.T) {
	a := defaultConfig()
	a.Worker.Handlers["Foo"] = "builtin:echo"
	if got := defaultConfig().Worker.Handlers; len(got) > 0 {
		t.Errorf("got %v; want defaults that another configuration cannot change", got)
	}
}

func TestRedactedConfig(t *testing.T) {
	c := defaultConfig()
	c.Worker.HTTPHeaders = headerTables{
		"": {"Authorization": "Bearer hunter2"}, "https://a.example": {"X-Key": "hunter2"}, "shop.*": {"X-Key": ""},
	}
	c.Worker.HTTPProxy = "http://me:hunter2@proxy:3128"
	c.Worker.Handlers["Foo::*"] = "https://me:hunter2@example.com/steps?key=hunter2"
	c.Templates.Dirs = []string{"a"}
	got := c.redacted()
	got["templates"].(map[string]any)["dirs"].([]string)[0] = "b"
	got["worker"].(map[string]any)["exec_env"].(map[string]string)["A"] = "b"
	if c.Templates.Dirs[0] != "a" || len(c.Worker.ExecEnv) > 0 {
		t.Error("got a view whose change shows in the configuration; want a copy")
	}
	want := `{"allow_exec":false,"concurrency":256,"default_handler":"","exec_dir":"",` +
		`"exec_env":{},"exec_path":"",` +
		`"handlers":{"Foo::*":"https://[REDACTED]@example.com/steps?[REDACTED]"},` +
		`"http_concurrency":4096,"http_headers":{"Authorization":"[REDACTED]",` +
		`"https://a.example":{"X-Key":"[REDACTED]"},"shop.*":{"X-Key":""}},` +
		`"http_proxy":"http://[REDACTED]@proxy:3128","max_result_bytes":1048576,` +
		`"web":{"config_endpoint_enabled":true,"listen":"127.0.0.1:8081"}}`
	worker := c.redacted()["worker"].(map[string]any)
	delete(worker["web"].(map[string]any), "auth")
	text, err := json.Marshal(worker)
	if err != nil || string(text) != want {
		t.Errorf("got  %s, %v\nwant %s", text, err, want)
	}
}

func TestConfigFilesAreReadForReal(t *testing.T) {
	dir := t.TempDir()
	name := dir + "/my.toml"
	noError(t, os.WriteFile(name, []byte("role = \"worker\"\n"), 0o600))
	noEnv := func(string) string { return "" }
	c, p, err := loadConfig(configArgs{files: []string{name}}, noEnv, nil, os.ReadFile)
	if err != nil || c.Role != "worker" || p.of("role").String() != name+":1" {
		t.Errorf("got %+v, %v; want the role of the file", c, err)
	}
	_, _, err = loadConfig(configArgs{files: []string{dir}}, noEnv, nil, os.ReadFile)
	if _, ok := errors.AsType[*failure](err); !ok {
		t.Errorf("a directory: got %v; want a *failure", err)
	}
}

// TestLimitsInDocs compares the tables of limits in docs/security.md with the table of keys:
// every key that limits something is there, with its default.
func TestLimitsInDocs(t *testing.T) {
	told := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+\\.[a-z_.]+)` \\| ([0-9]+)")
	for _, m := range row.FindAllStringSubmatch(string(readFile(t, "docs/security.md")), -1) {
		told[m[1]] = m[2]
	}
	limits := regexp.MustCompile(`\.max_[a-km-z]|\.keep$|concurrency$|\.retain_`)
	for i := range configKeys {
		k := &configKeys[i]
		n, isNumber := k.def.(int64)
		if got, ok := told[k.path]; ok && got != fmt.Sprint(k.def) || !ok && isNumber && limits.MatchString(k.path) {
			t.Errorf("docs/security.md gives %s the limit %q; want %d", k.path, got, n)
		}
		delete(told, k.path)
	}
	for path := range told {
		t.Errorf("docs/security.md gives %s a limit; there is no such key", path)
	}
}

// stepwell.example.toml holds every key of the table, and nothing else.

var updateConfigExample = flag.Bool("update-example", false, "rewrite stepwell.example.toml")

const configExampleFile = "stepwell.example.toml"

func TestExampleFollowsTheTable(t *testing.T) {
	want := configExampleText()
	if *updateConfigExample {
		noError(t, os.WriteFile(configExampleFile, []byte(want), 0o644))
	}
	got := readFile(t, configExampleFile)
	if string(got) != want {
		t.Errorf("got another %s than the table makes; run go test -run Example -update-example",
			configExampleFile)
	}
}

func TestExampleHoldsEveryKey(t *testing.T) {
	var table map[string]any
	must(toml.DecodeFile(configExampleFile, &table))(t)
	var want []string
	for _, k := range configKeys {
		if k.inherits == "" {
			want = append(want, k.path)
		}
	}
	got := configExampleLeaves("", table)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got keys %q; want %q", got, want)
	}
}

func configExampleLeaves(path string, table map[string]any) (leaves []string) {
	for name, v := range table {
		p := joinConfigPath(path, name)
		if inner, ok := v.(map[string]any); ok && configKeyAt(p) == nil {
			leaves = append(leaves, configExampleLeaves(p, inner)...)
			continue
		}
		leaves = append(leaves, p)
	}
	return leaves
}

func TestExampleLoadsToTheDefaults(t *testing.T) {
	text := readFile(t, configExampleFile)
	in := configInput{files: map[string]string{"stepwell.toml": string(text)}}
	wantConfigValues(t, in, nil)
}

func TestExampleSamplesAreValid(t *testing.T) {
	for _, k := range configKeys {
		if k.sample == "" {
			continue
		}
		section, name := splitExampleKey(k)
		in := configInput{files: map[string]string{"stepwell.toml": "[" + section + "]\n" + k.sample}}
		if _, _, err := in.load(); err != nil {
			t.Errorf("%s: got %v; want no error", k.sample, err)
		}
		if name != "" && !strings.HasPrefix(k.sample, name+" = ") {
			t.Errorf("%s: got the sample %s; want one of the key", k.path, k.sample)
		}
	}
}

// configExampleText returns the example file generated from the table: plain keys
// first, then tables with keys, then keys that are tables.
func configExampleText() string {
	var b strings.Builder
	b.WriteString("# Every configuration key with its default. Above each key, the first line says what it does; the\n" +
		"# second gives its range, its environment variable and its flag, which overrides the variable.\n" +
		"# [mount.auth] takes every key it does not set from [orchestration.web.auth].\n\n")
	sections := make(map[string][]configKey)
	for _, k := range configKeys {
		section, _ := splitExampleKey(k)
		sections[section] = append(sections[section], k)
	}
	for _, section := range slices.Sorted(maps.Keys(sections)) {
		if section != "" {
			fmt.Fprintf(&b, "[%s]\n", section)
		}
		for _, k := range sections[section] {
			writeExampleKey(&b, k)
		}
	}
	return strings.TrimSpace(b.String()) + "\n"
}

// splitExampleKey returns the section and the name of a key; the name is "" for a key
// that is a table.
func splitExampleKey(k configKey) (section, name string) {
	switch k.def.(type) {
	case map[string]string, headerTables:
		return k.path, ""
	}
	dot := strings.LastIndexByte(k.path, '.')
	return k.path[:max(dot, 0)], k.path[dot+1:]
}

func writeExampleKey(b *strings.Builder, k configKey) {
	fmt.Fprintf(b, "# %s\n", k.help)
	var notes []string
	if k.max > 0 {
		notes = append(notes, fmt.Sprintf("%d to %d", k.min, k.max))
	}
	if env := k.envName(); env != "" {
		notes = append(notes, env)
	}
	if k.flag != "" {
		notes = append(notes, "--"+k.flag)
	}
	fmt.Fprintf(b, "# %s\n", strings.Join(notes, ", "))
	if k.sample != "" {
		fmt.Fprintf(b, "# %s\n", k.sample)
	}
	if _, name := splitExampleKey(k); name != "" {
		if k.inherits != "" { // given, it would not be inherited any more
			name = "# " + name
		}
		fmt.Fprintf(b, "%s = %s\n", name, tomlLiteral(k.def))
	}
	b.WriteByte('\n')
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
				"stepwell.toml:3: " + section + "api_keys[0].permissions: there are none: the key would be good for nothing",
				"stepwell.toml:8: " + section + "api_keys[1].permissions: there are none: the key would be good for nothing",
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
				"stepwell.toml:4: " + section + "api_keys[2].key: contains characters, or blanks at its ends, that no header can carry",
			}},
		{"a variable that is no JSON", variable("API_KEYS", `[{"key": "hunter2"`),
			[]string{`env STEPWELL_WORKER__WEB__AUTH__API_KEYS: worker.web.auth.api_keys: "[REDACTED]" is not a JSON array of objects`}},
		{"a variable that is no list", variable("API_KEYS", `{"key": "hunter2"}`),
			[]string{`env STEPWELL_WORKER__WEB__AUTH__API_KEYS: worker.web.auth.api_keys: "[REDACTED]" is not a JSON array of objects`}},
		{"enabled with nothing to verify by", variable("ENABLED", "true"),
			[]string{"env STEPWELL_WORKER__WEB__AUTH__ENABLED: worker.web.auth.enabled: there is nothing to verify by: " +
				"no key, no JWKS, no API keys, no authenticator"}},
		{"that only follows from another problem",
			file("enabled = true", "jwt_public_key = 7"),
			[]string{"stepwell.toml:3: " + section + "jwt_public_key: want a string, got an integer"}},
		{"no API keys",
			file("enabled = true", "api_keys_enabled = true"),
			[]string{"stepwell.toml:3: " + section + "api_keys_enabled: there are no api_keys"}},
		{"one API key, with permissions for nothing",
			file("enabled = true", "api_keys_enabled = true", "api_keys = [{key = 'hunter2', permissions = []}]"),
			[]string{"stepwell.toml:4: " + section +
				"api_keys[0].permissions: there are none: the key would be good for nothing"}},
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
				"stepwell.toml:8: " + section + `jwt_allowed_algorithms: unknown algorithm "ES512"; want some of ` +
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

// TestAuthConfigSources checks the sources of both forms of the public key, including
// the one that was cleared.
func TestAuthConfigSources(t *testing.T) {
	in := configInput{
		files: map[string]string{
			"stepwell.toml":      authFile("jwt_public_key_path = 'p'", "api_keys = [", "{key = 'a', permissions = ['*']},", "]"),
			"stepwell.prod.toml": authFile("jwt_public_key = 'k'"),
		},
		env: map[string]string{"STEPWELL_ENV": "prod"},
	}
	_, origin := must2(in.load())(t)
	for path, want := range map[string]string{
		"jwt_public_key": "stepwell.prod.toml:2", "jwt_public_key_path": "stepwell.prod.toml:2",
		"api_keys": "stepwell.toml:3", "api_keys[0]": "stepwell.toml:4", "api_keys[0].permissions": "stepwell.toml:4",
		"jwt_issuer": "default",
	} {
		if got := origin.near(authKeyPath("orchestration", path)).String(); got != want {
			t.Errorf("%s: got %s; want %s", path, got, want)
		}
	}
}

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
}

func TestAuthDefaultsAreNotShared(t *testing.T) {
	a := defaultConfig()
	a.Orchestration.Web.Auth.JWTAllowedAlgorithms[0] = "ES256"
	a.Orchestration.Web.Auth.APIKeys = append(a.Orchestration.Web.Auth.APIKeys, apiKeyConfig{Key: "k"})
	b := defaultConfig()
	if got := b.Orchestration.Web.Auth.JWTAllowedAlgorithms[0]; got != "RS256" || len(b.Orchestration.Web.Auth.APIKeys) > 0 {
		t.Errorf("got %s, %v; want defaults that another configuration cannot change", got, b.Orchestration.Web.Auth.APIKeys)
	}
	if got := b.Worker.Web.Auth.JWTAllowedAlgorithms[0]; got != "RS256" {
		t.Errorf("got %s; want the worker's own", got)
	}
}

// TestTokensFollowTheConfigurationFiles makes a token beside a stepwell.toml.
func TestTokensFollowTheConfigurationFiles(t *testing.T) {
	writeConfigFiles(t, map[string]string{"stepwell.toml": authFile(
		"jwt_issuer = 'me'", "jwt_audience = 'you'", "jwt_token_expiry_hours = 3")})
	env := map[string]string{"STEPWELL_ORCHESTRATION__WEB__AUTH__JWT_AUDIENCE": "them"}
	var errors strings.Builder
	p := &process{getenv: func(name string) string { return env[name] }, stderr: &errors}
	for name, value := range maps.All(env) {
		p.environ = append(p.environ, name+"="+value)
	}
	get := p.authSettings()
	got := []string{
		authSetting(get, "orchestration", "jwt_issuer", "x"), authSetting(get, "orchestration", "jwt_audience", "x"),
		authSetting(get, "orchestration", "jwt_token_expiry_hours", "x"), authSetting(get, "worker", "jwt_issuer", "x"),
		get("STEPWELL_NOBODY__KNOWS"), get("HOME"),
	}
	if want := "me them 3 stepwell  "; strings.Join(got, " ") != want || errors.Len() > 0 {
		t.Errorf("got %q, %s; want %q", got, &errors, want)
	}
	writeFile(t, "stepwell.toml", []byte("nonsense"))
	get = p.authSettings()
	if got := authSetting(get, "orchestration", "jwt_issuer", "x"); got != "x" || !strings.Contains(errors.String(), "warning") {
		t.Errorf("a broken file: got %s, %s; want the fallback and a warning", got, &errors)
	}
}

// TestConfigSubscribers checks the subscribers of domain events: where they may be set, what is
// wrong with bad ones, and that their secrets are not shown.
func TestConfigSubscribers(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqr"
	good := subscriberConfig{"shop", "https://user:hidden@h.example/e", []string{"a.*", "b"}, secret, 5, 15}
	text := "[[events.subscribers]]\nname = 'shop'\nurl = 'https://user:hidden@h.example/e'\nevents = ['a.*', 'b']\n" +
		"secret = '" + secret + "'\nmax_attempts = 5\n"
	variable := `[{"name":"shop","url":"https://user:hidden@h.example/e","events":["a.*","b"],"secret":"` + secret + `","max_attempts":5}]`
	for name, l := range map[string]configInput{
		"a file":     {files: map[string]string{"stepwell.toml": text}},
		"a variable": {env: map[string]string{"STEPWELL_EVENTS__SUBSCRIBERS": variable}},
	} {
		c, _, err := l.load()
		if err != nil || !reflect.DeepEqual(c.Events.Subscribers, []subscriberConfig{good}) {
			t.Errorf("%s: got %+v, %v", name, c, err)
			continue
		}
		for i := range configKeys {
			if shown := tomlLiteral(configKeys[i].shown(configKeys[i].get(c))); strings.Contains(shown, "hidden") || strings.Contains(shown, secret) {
				t.Errorf("%s shows a secret: %s", configKeys[i].path, shown)
			}
		}
	}
	for field, want := range map[string]string{
		"name = 'a b'":              `events.subscribers[0].name: "a b" is not a name`,
		"url = 'builtin:noop'":      `events.subscribers[0].url: "builtin:noop" is not a URL like https://example.com/events`,
		"url = 'ftp://h'":           `is not a URL like`,
		"secret = 'hunter2'":        `events.subscribers[0].secret: "[REDACTED]" is not whsec_ and 24 to 64 bytes in base64`,
		"secret = 'whsec_aGVsbG8='": "is not whsec_ and 24 to 64 bytes",
		"events = ['a*b']":          `events.subscribers[0].events[0]: "a*b" is not the name of an event`,
		"max_attempts = 0":          "events.subscribers[0].max_attempts: 0 is not in the range from 1 to 50",
		"timeout_seconds = 'x'":     "events.subscribers[0].timeout_seconds: want an integer, got a string",
		"secrets = 1":               "events.subscribers[0].secrets: unknown key; did you mean secret?",
		"":                          "events.subscribers[1].name: duplicates that of subscribers[0]",
	} {
		key, _, _ := strings.Cut(field, " ")
		var lines []string
		for line := range strings.Lines(text) {
			if key == "" || !strings.HasPrefix(line, key+" ") {
				lines = append(lines, line)
			}
		}
		bad := strings.Join(lines, "") + field + "\n"
		if field == "" {
			bad = text + text
		}
		_, _, err := configInput{files: map[string]string{"stepwell.toml": bad}}.load()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v; want %s", field, err, want)
		}
	}
	_, _, err := configInput{files: map[string]string{"stepwell.toml": "[[events.subscribers]]\nname = 'a'\n"}}.load()
	if err == nil || !strings.Contains(err.Error(), "events.subscribers[0].secret: it is missing") {
		t.Errorf("got %v", err)
	}
}
