package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// TestRemovedKeys sets every key that no longer exists, in a file and by its variable: each time it
// makes a warning that names what replaced it, whatever its value. Their neighbours stay unknown.
func TestRemovedKeys(t *testing.T) {
	replaced := map[string]string{
		"docs.swagger_ui":    "/api-docs/ui always shows the built-in page",
		"engine.max_queued":  fmt.Sprintf("new tasks are refused from %d waiting steps on", maxQueued),
		"store.slow_seconds": fmt.Sprintf("the disk may take its time: a write that takes longer than %d s is logged", int(slowDisk.Seconds())),
		"store.snapshot_journal_mb": fmt.Sprintf("the file is compacted once its records exceed %d MiB, or a quarter of the compacted part",
			compactFloor>>20),
		"store.sync_interval_ms":   "store.sync is always or never",
		"requests.keep_count":      fmt.Sprintf("the keys of the last %d dropped tasks are remembered", keptDroppedRequests),
		"worker.exec_dir":          "programs run in the working directory of the service",
		"web.max_answer_bytes":     "store.max_memory_mb sets it: 1/32, but 2 to 16 MiB",
		"web.max_received_bytes":   "store.max_memory_mb sets it: 1/16, but 4 to 32 MiB",
		"web.max_waiting_requests": "web.max_connections sets it: two thirds",
	}
	if len(replaced) != len(removedKeys) {
		t.Errorf("got %d removed keys; want %d", len(removedKeys), len(replaced))
	}
	for path, instead := range replaced {
		section, name, _ := strings.Cut(path, ".")
		variable := "STEPWELL_" + strings.ToUpper(section+"__"+name)
		text := " no longer exists: " + instead
		for _, value := range []string{"7", "'x'", "{a = 1}"} {
			in := configInput{files: oneConfigFile("["+section+"]", name+" = "+value), env: map[string]string{variable: value}}
			_, origin, err := in.load()
			want := []string{"stepwell.toml:2: " + path + text, "env " + variable + ": " + path + text}
			if err != nil || !slices.Equal(origin.warnings, want) {
				t.Errorf("%s = %s: got %q, %v; want %q", path, value, origin, err, want)
			}
		}
		wantConfigProblems(t, configInput{
			files: oneConfigFile("["+section+"]", "qqqqqqqqqq = 1"),
			env:   map[string]string{"STEPWELL_" + strings.ToUpper(section) + "__QQQQQQQQQQQQQQ": "1"},
		}, "stepwell.toml:2: "+section+".qqqqqqqqqq: unknown key",
			"env STEPWELL_"+strings.ToUpper(section)+"__QQQQQQQQQQQQQQ: unknown variable")
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
		"console.enabled": "true", "console.people": "[]", "metrics.prefix": `"stepwell"`, "web.max_body_bytes": "4194304",
		"web.max_connections": "3000",
		"events.max_streams":  "100", "events.subscribers": "[]", "web.shutdown_timeout_seconds": "8",
		"templates.dirs": "[]", "templates.watch": "false", "templates.enforce_input_schema": `"off"`,
		"tasks.max_context_bytes": "1048576", "engine.jitter": "true",
		"worker.concurrency": "256", "worker.http_concurrency": "4096", "worker.max_result_bytes": "1048576", "worker.undelivered": "\"wait\"",
		"worker.allow_exec": "false", "worker.exec_env": "{}", "worker.exec_path": `""`,
		"worker.handlers": "{}", "worker.default_handler": `""`,
		"worker.http_headers": "{}", "worker.http_proxy": `""`,
		"store.path": `"./stepwell-data"`, "store.memory": "false", "store.sync": `"always"`,
		"store.retain_finished_count": "100000", "store.retain_finished_age_hours": "0",
		"requests.keep_hours": "24",
		"store.max_memory_mb": "0",
		"events.keep":         "100000", "staleness.interval_seconds": "300",
		"staleness.waiting_for_dependencies_minutes": "60",
		"staleness.waiting_for_retry_minutes":        "30", "staleness.steps_in_process_minutes": "30",
		"staleness.max_lifetime_hours": "24", "log.level": `"info"`, "log.format": `"auto"`, "log.errors": `"message"`, "log.requests": "false",
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
	want := `{"allow_exec":false,"concurrency":256,"default_handler":"",` +
		`"exec_env":{},"exec_path":"",` +
		`"handlers":{"Foo::*":"https://[REDACTED]@example.com/steps?[REDACTED]"},` +
		`"http_concurrency":4096,"http_headers":{"Authorization":"[REDACTED]",` +
		`"https://a.example":{"X-Key":"[REDACTED]"},"shop.*":{"X-Key":""}},` +
		`"http_proxy":"http://[REDACTED]@proxy:3128","max_result_bytes":1048576,"undelivered":"wait",` +
		`"web":{"config_endpoint_enabled":true,"listen":"127.0.0.1:8081"}}`
	worker := c.redacted()["worker"].(map[string]any)
	delete(worker["web"].(map[string]any), "auth")
	text, err := json.Marshal(worker)
	if err != nil || string(text) != want {
		t.Errorf("got  %s, %v\nwant %s", text, err, want)
	}
}

// TestLimitsInDocs compares the tables of limits in docs/reference/limits.md with the table of keys:
// every key that limits something is there, with its default.
func TestLimitsInDocs(t *testing.T) {
	told := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+\\.[a-z_.]+)` \\| ([0-9]+)")
	for _, m := range row.FindAllStringSubmatch(string(readFile(t, "docs/reference/limits.md")), -1) {
		told[m[1]] = m[2]
	}
	limits := regexp.MustCompile(`\.max_[a-km-z]|\.keep$|concurrency$|\.retain_`)
	for i := range configKeys {
		k := &configKeys[i]
		n, isNumber := k.def.(int64)
		if got, ok := told[k.path]; ok && got != fmt.Sprint(k.def) || !ok && isNumber && limits.MatchString(k.path) {
			t.Errorf("docs/reference/limits.md gives %s the limit %q; want %d", k.path, got, n)
		}
		delete(told, k.path)
	}
	for path := range told {
		t.Errorf("docs/reference/limits.md gives %s a limit; there is no such key", path)
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
	misspelled := strings.ReplaceAll(text, "secret =", "secrets =")
	_, _, err = configInput{files: map[string]string{"stepwell.toml": misspelled}}.load()
	if err == nil || strings.Contains(err.Error(), "missing") {
		t.Errorf("a misspelled member: got %v; want no word of a missing one", err)
	}
	literal := `[{name = "shop", url = "https://user:hidden@h.example/e", events = ["a.*", "b"], secret = "` + secret +
		`", max_attempts = 5, timeout_seconds = 15}]`
	if got := tomlLiteral([]subscriberConfig{good}); got != literal {
		t.Errorf("got %s; want %s", got, literal)
	}
}

// docs/stepwell.example.toml holds every key of the table, and nothing else.

var updateConfigExample = flag.Bool("update-example", false, "rewrite stepwell.example.toml")

const configExampleFile = "docs/stepwell.example.toml"

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

func TestExampleLoadsToTheDefaults(t *testing.T) {
	text := readFile(t, configExampleFile)
	in := configInput{files: map[string]string{"stepwell.toml": string(text)}}
	wantConfigValues(t, in, nil)
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
