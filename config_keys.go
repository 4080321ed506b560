package main

// The table of configuration keys, which files, variables, flags, "config show" and
// docs/stepwell.example.toml follow; setting, reading and showing the value of a key.

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// configSecrecy says which parts of a value are never shown.
type configSecrecy uint8

const (
	notSecret   configSecrecy = iota
	secretValue               // all of it; in a table, the values of the entries
	maskURLs                  // user, password and query of URLs
)

// configKey is one row of the table of keys.
type configKey struct {
	path     string   // as in TOML
	inherits string   // path of the key whose value it has unless it is set
	rival    string   // path of another form of the same value; setting one clears the other of an earlier layer
	index    []int    // of its field in Config; set by resolveKeys
	def      any      // string, bool, int64, []string, map[string]string, headerTables or, with members, a slice of structs
	min, max int64    // bounds of an integer, both inclusive
	words    []string // the only strings allowed, unless nil
	flag     string   // of serve, without dashes; "" for none
	operand  string   // name of the flag's value in the help
	env      string   // variable that sets it, instead of the name derived from the path
	secret   configSecrecy

	// check returns what else is wrong with a string, list element or table value. The error continues a sentence about
	// the value, as in "is not an address", and must not repeat it, because it may be secret.
	check     func(string) error
	checkName func(string) error  // the same for the name of a table entry
	canonName func(string) string // the one spelling of an entry's name

	members []configKey // of each table in a list of tables; their paths are names
	missing string      // of a member: what to say if it is missing or empty
	unique  bool        // of a member: whether its texts must differ

	help   string // one line
	sample string // an entry for the example file, of tables and lists of tables
}

const (
	maxLifecycleMinutes = 100_000_000 // 190 years; more overflows a time.Duration

	maxConfigBytes = 4 << 20 // of one change: the journal reserves space for maxRecord
	maxConfigCount = 1_000_000
)

// configKeys is the table of keys, in the order in which they are shown.
var configKeys = resolveKeys(reflect.TypeFor[Config](), append([]configKey{
	{path: "environment", def: "development", flag: "env", operand: "NAME", env: "STEPWELL_ENV",
		check: checkEnvironmentValue,
		help:  "select the overrides in templates for this environment"},
	{path: "role", def: "all", words: []string{"all", "orchestration", "worker"}, flag: "role", operand: "ROLE",
		help: "run this role: all, orchestration or worker"},
	{path: "orchestration.web.listen", def: "127.0.0.1:8080", flag: "listen", operand: "ADDRESS",
		check: checkListenValue,
		help:  "serve the orchestration API at this address: HOST:PORT, where port 0 picks a free one"},
	{path: "worker.web.listen", def: "127.0.0.1:8081", flag: "worker-listen", operand: "ADDRESS",
		check: checkListenValue,
		help:  "serve the worker API at this address: HOST:PORT, where port 0 picks a free one"},
	{path: "orchestration.web.config_endpoint_enabled", def: false,
		help: "serve the effective configuration, without secrets, at GET /config of the orchestration API"},
	{path: "worker.web.config_endpoint_enabled", def: true,
		help: "serve the effective configuration, without secrets, at GET /config of the worker API"},
	{path: "worker.concurrency", def: 256, min: 1, max: maxConfigCount,
		help: "how many builtin and exec handlers may run at once"},
	{path: "worker.http_concurrency", def: 4096, min: 1, max: maxConfigCount,
		help: "how many HTTP handlers may run at once"},
	{path: "worker.undelivered", def: undeliveredWait, words: []string{undeliveredWait, undeliveredFail},
		help: "a step whose HTTP handler does not listen waits until it does, or this counts as a failed attempt; " +
			"in fixture mode and for run: fail"},
	{path: "worker.max_result_bytes", def: 1 << 20, min: 1, max: maxConfigBytes,
		help: "largest reply of a handler and result from outside, in bytes"},
	{path: "worker.allow_exec", def: false,
		help: "allow exec: handlers, which run programs"},
	{path: "worker.exec_env", def: map[string]string{}, secret: secretValue, check: checkTextValue,
		checkName: checkVariableName,
		help:      "environment variables for exec: programs, in addition to PATH, HOME, LANG and TZ",
		sample:    `DATABASE_URL = "postgres://localhost/orders"`},
	{path: "worker.exec_path", def: "", check: checkTextValue,
		help: "PATH for exec: programs; empty: the PATH of this process"},
	{path: "worker.handlers", def: map[string]string{}, secret: maskURLs, check: checkTargetValue,
		checkName: checkCallableName,
		help:      "maps a callable to builtin:…, exec:… or a URL; a name may end in *, and the longest match wins",
		sample:    `"Payments::*" = "http://127.0.0.1:9000/steps"`},
	{path: "worker.default_handler", def: "", secret: maskURLs, check: orEmptyValue(checkTargetValue),
		help: "handler for every callable that nothing else handles; empty: such steps wait for an outside actor"},
	{path: "worker.http_headers", def: headerTables{}, secret: secretValue, check: checkHeaderValue,
		checkName: checkHeaderName, canonName: canonicalHeaderName,
		help:   "headers sent to every HTTP handler, or to an origin or callable in a table of its name; secret",
		sample: `"https://api.example.com".Authorization = "Bearer <token>"`},
	{path: "worker.http_proxy", def: "", secret: maskURLs, check: orEmptyValue(checkProxyValue),
		help: "URL of the proxy for HTTP handlers; empty: no proxy, whatever the environment says"},
	{path: "web.max_body_bytes", def: 4 << 20, min: 1, max: maxConfigBytes,
		help: "largest request body, in bytes"},
	{path: "web.max_connections", def: 3000, min: 1, max: maxConfigCount,
		help: "how many connections clients may hold; further ones take the place of idle ones or are refused; two thirds " +
			"may wait for a task or for steps"},
	{path: "web.allowed_hosts", def: []string{}, check: checkHostValue,
		help: "host names, without ports, that unauthenticated requests may use besides loopback names"},
	{path: "web.allowed_origins", def: []string{}, check: checkOriginValue,
		help: "origins of web pages that may use the API (CORS); \"*\" allows all, without cookies"},
	{path: "web.trusted_proxies", def: []string{}, check: checkProxyAddress,
		help: "addresses and prefixes of proxies whose X-Forwarded-* headers are trusted"},
	{path: "web.shutdown_timeout_seconds", def: 8, min: 0, max: 3600,
		help: "how long shutdown waits for running handlers, in seconds; docker stop kills after 10"},
	{path: "mount.path", def: "/stepwell", check: checkMountPath,
		help: "path prefix of the mount-point API on the orchestration address; empty: not served"},
	{path: "mount.status_requires_auth", def: false,
		help: "require system:analytics_read for the mount point's /health/status"},
	{path: "mount.metrics_require_auth", def: false,
		help: "require system:analytics_read for the mount point's /metrics; /metrics of the roles stays public"},
	{path: "templates.dirs", def: []string{}, flag: "templates", operand: "DIR[,DIR]", check: checkPathValue,
		help: "read templates from these directories"},
	{path: "templates.watch", def: false, flag: "watch",
		help: "read templates again when their files change; new tasks use the new definitions"},
	{path: "templates.enforce_input_schema", def: "off", words: []string{"off", "warn", "reject"},
		help: "check contexts against a template's input_schema, and results against result_schema: warn logs and counts " +
			"what does not fit; reject refuses the task, and fails the step"},
	{path: "tasks.max_context_bytes", def: 1 << 20, min: 2, max: maxConfigBytes,
		help: "largest task context, in bytes"},
	{path: "engine.jitter", def: true,
		help: "vary retry delays by up to 10 %; in fixture mode only if set to true"},
	{path: "store.path", def: "./stepwell-data", flag: "data", operand: "DIR", check: checkPathValue,
		help: "keep data in this directory"},
	{path: "store.memory", def: false, flag: "memory",
		help: "keep state in memory only"},
	{path: "store.sync", def: "always", words: []string{"always", "never"}, flag: "sync",
		operand: "WHEN",
		help:    "sync writes to disk: always (before each response) or never (left to the system)"},
	{path: "store.retain_finished_count", def: 100_000, min: 0, max: 100 * maxConfigCount,
		help: "how many of the latest finished tasks to keep; 0: all"},
	{path: "store.retain_finished_age_hours", def: 0, min: 0, max: maxConfigCount,
		help: "how long to keep a finished task, in hours; 0: no limit"},
	{path: "store.max_memory_mb", def: 0, min: 0, max: maxConfigCount,
		help: "memory for tasks, in MB; 0: half of what the cgroup or the machine has beyond 32 MiB, at least an eighth; near " +
			"it finished ones are dropped"},
	{path: "requests.keep_hours", def: 24, min: 1, max: 24 * 366,
		help: "how long an Idempotency-Key is remembered, in hours, even if its task was dropped"},
	{path: "events.keep", def: defaultKeptEvents, min: 1, max: 10 * maxConfigCount,
		help: "how many of the newest transitions to hold for resuming event streams; 96 bytes each; and of domain events"},
	{path: "events.max_streams", def: 100, min: 0, max: maxConfigCount,
		help: "how many event streams may be open; beyond it they are refused"},
	{path: "events.subscribers", def: []subscriberConfig{}, secret: secretValue, members: subscriberMembers,
		help: "services that get domain events by HTTP, signed as in Standard Webhooks; events may end in *",
		sample: `subscribers = [{name = "billing", url = "https://billing.example.com/events", events = ["payment.*"], ` +
			`secret = "whsec_cmVwbGFjZSB0aGlzIHdpdGggYSByYW5kb20gc2VjcmV0", max_attempts = 8, timeout_seconds = 15}]`},
	{path: "console.enabled", def: true,
		help: "serve the console, the web interface at /console of the orchestration address"},
	{path: "console.people", def: []string{}, check: checkCallableName,
		help:   "callables of the steps that wait for people, each perhaps with a * at its end; empty: all that wait for outside actors",
		sample: `people = ["people.*"]`},
	{path: "metrics.prefix", def: "stepwell", check: checkMetricPrefix,
		help: "prefix of metric names, for dashboards that expect another one"},
	{path: "staleness.interval_seconds", def: 300, min: 1, max: 86_400,
		help: "time between searches for stale tasks, in seconds"},
	{path: "staleness.waiting_for_dependencies_minutes", def: 60, min: 1, max: maxLifecycleMinutes,
		help: "how long a task may wait for dependencies before it is stale, in minutes"},
	{path: "staleness.waiting_for_retry_minutes", def: 30, min: 1, max: maxLifecycleMinutes,
		help: "how long a task may wait for an overdue retry before it is stale, in minutes"},
	{path: "staleness.steps_in_process_minutes", def: 30, min: 1, max: maxLifecycleMinutes,
		help: "how long a task may have steps in process before it is stale, in minutes"},
	{path: "staleness.max_lifetime_hours", def: 24, min: 1, max: maxConfigCount,
		help: "how old a task may grow before it is stale, in hours"},
	{path: "fixture.enabled", def: false, flag: "fixture",
		help: "serve the control API for tests under /_stepwell, and keep state in memory (fixture mode)"},
	{path: "fixture.allow_remote", def: false,
		help: "allow fixture mode on non-loopback addresses"},
	{path: "fixture.allow_data", def: false,
		help: "allow fixture mode with a data directory, which a reset empties"},
	{path: "fixture.allow_targets", def: []string{}, check: checkHostValue,
		help: "hosts that templates added in fixture mode may call, besides loopback hosts"},
	{path: "fixture.send_events", def: false,
		help: "send events to the subscribers in fixture mode; otherwise they count as delivered unless a stub says otherwise"},
	{path: "fixture.port_range", def: "", check: orEmptyValue(checkPortRange),
		help: "port range for sandboxes, two ports each, such as 9000-9099; empty: any free ports"},
	{path: "fixture.public_host", def: "", check: orEmptyValue(checkHostValue),
		help: "host name in sandbox URLs, for clients in other containers; empty: the listen address"},
	{path: "fixture.virtual_credentials", def: false,
		help: "check token times against the virtual clock, except under /_stepwell"},
	{path: "fixture.deterministic_ids", def: "", flag: "deterministic-ids", operand: "SEED",
		help: "derive ids in fixture mode from this seed, so that the same requests give the same state"},
	{path: "log.level", def: "info", words: []string{"debug", "info", "warn", "error"}, flag: "log-level",
		operand: "LEVEL",
		help:    "lowest level to log: debug, info, warn or error"},
	{path: "log.format", def: "auto", words: []string{"auto", "text", "json"},
		help: "log format: text, json, or auto (text on a terminal, json otherwise)"},
	{path: "log.errors", def: "message", words: []string{"message", "type"},
		help: "what the log says of errors of steps: their message and type, or their type alone"},
	{path: "log.requests", def: false,
		help: "log each request: method, path without query, status, duration, id and subject"},
}, authConfigKeys()...))

// removedKey is a key that no longer exists. Setting it changes nothing but a warning.
type removedKey struct{ path, instead string }

var removedKeys = []removedKey{
	{"docs.swagger_ui", "/api-docs/ui always shows the built-in page"},
	{"engine.max_queued", "new tasks are refused from 100000 waiting steps on"},
	{"requests.keep_count", "the keys of the last 250000 dropped tasks are remembered"},
	{"store.slow_seconds", "the disk may take its time: a write that takes longer than 5 s is logged"},
	{"store.snapshot_journal_mb", "the file is compacted once its records exceed 16 MiB, or a quarter of the compacted part"},
	{"store.sync_interval_ms", "store.sync is always or never"},
	{"web.max_answer_bytes", "store.max_memory_mb sets it: 1/32, but 2 to 16 MiB"},
	{"web.max_received_bytes", "store.max_memory_mb sets it: 1/16, but 4 to 32 MiB"},
	{"web.max_waiting_requests", "web.max_connections sets it: two thirds"},
	{"worker.exec_dir", "programs run in the working directory of the service"},
}

// warning returns what to say about a source that sets the key.
func (k *removedKey) warning(source configSource) string {
	return fmt.Sprintf("%v: %s no longer exists: %s", source, k.path, k.instead)
}

// resolveKeys finds the field of each key in a struct: the one with the name of its path,
// without underscores and in any case.
func resolveKeys(root reflect.Type, keys []configKey) []configKey {
	for i := range keys {
		k, t := &keys[i], root
		k.index = nil // roles share members
		for part := range strings.SplitSeq(k.path, ".") {
			name := strings.ReplaceAll(part, "_", "")
			field, ok := t.FieldByNameFunc(func(s string) bool { return strings.EqualFold(s, name) })
			if !ok {
				// It happens at every start or never, so tests find it.
				panic("no field for the configuration key " + k.path)
			}
			k.index, t = append(k.index, field.Index...), field.Type
		}
		if n, ok := k.def.(int); ok {
			k.def = int64(n)
		}
		if k.members != nil {
			resolveKeys(t.Elem(), k.members)
		}
	}
	return keys
}

// field returns the key's field in a *Config, or a member's in a pointer to a table of a list.
func (k *configKey) field(in any) reflect.Value {
	return reflect.ValueOf(in).Elem().FieldByIndex(k.index)
}

// configKeyAt returns the row of a path, or nil.
func configKeyAt(path string) *configKey {
	i := slices.IndexFunc(configKeys, func(k configKey) bool { return k.path == path })
	if i < 0 {
		return nil
	}
	return &configKeys[i]
}

// envName returns the variable that sets the key, or "" when none does: a derived
// name without "__" could belong to another program.
func (k *configKey) envName() string {
	if k.env != "" || !strings.Contains(k.path, ".") {
		return k.env
	}
	return keyVariable(k.path)
}

func keyVariable(path string) string {
	return configEnvPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "__"))
}

func defaultConfig() *Config {
	c := new(Config)
	for i := range configKeys {
		configKeys[i].set(c, configKeys[i].def)
	}
	return c
}

// set stores a copy of a value of the key's type. The entries of a table are added to those it has.
func (k *configKey) set(in, v any) {
	f := k.field(in)
	switch value := v.(type) {
	case int64:
		f.SetInt(value)
		return
	case []string:
		// Defaults and flags are shared: a configuration must not be changed through another one.
		v = slices.Clone(value)
	case map[string]string:
		table := make(map[string]string)
		maps.Copy(table, f.Interface().(map[string]string))
		maps.Copy(table, value)
		v = table
	case headerTables:
		v = f.Interface().(headerTables).with(value)
	}
	if k.members != nil {
		v = k.copyTables(v, func(_ *configKey, v any) any { return v })
	}
	f.Set(reflect.ValueOf(v))
}

// with returns the entries of both; those of more replace others.
func (t headerTables) with(more headerTables) headerTables {
	all := headerTables{}
	for _, tables := range []headerTables{t, more} {
		for scope, headers := range tables {
			if all[scope] == nil && len(headers) > 0 {
				all[scope] = map[string]string{}
			}
			maps.Copy(all[scope], headers)
		}
	}
	return all
}

func (t headerTables) nested() map[string]any {
	table := make(map[string]any)
	for scope, headers := range t {
		if scope != "" {
			table[scope] = headers
			continue
		}
		for name, value := range headers {
			table[name] = value
		}
	}
	return table
}

// tables returns the tables of strings in a value of the key, by their paths.
func (k *configKey) tables(v any) map[string]map[string]string {
	found := make(map[string]map[string]string)
	switch v := v.(type) {
	case map[string]string:
		found[k.path] = v
	case headerTables:
		for scope, headers := range v {
			path := k.path
			if scope != "" {
				path = joinConfigPath(path, scope)
			}
			found[path] = headers
		}
	}
	return found
}

// get returns the key's value in one of the types of def, without copying it.
func (k *configKey) get(in any) any {
	f := k.field(in)
	if f.CanInt() {
		return f.Int()
	}
	return f.Interface()
}

// redacted returns a copy of the configuration that anybody may see, nested as in TOML, with "[REDACTED]" for secrets.
func (c *Config) redacted() map[string]any {
	root := make(map[string]any)
	for i := range configKeys {
		k := &configKeys[i]
		table, parts := root, strings.Split(k.path, ".")
		last := len(parts) - 1
		for _, part := range parts[:last] {
			inner, ok := table[part].(map[string]any)
			if !ok {
				inner = make(map[string]any)
				table[part] = inner
			}
			table = inner
		}
		table[parts[last]] = k.shown(k.get(c))
	}
	return root
}

// shown returns a copy of a value of the key, without secrets.
func (k *configKey) shown(v any) any {
	switch v := v.(type) {
	case string:
		return k.shownText(v)
	case []string:
		list := make([]string, len(v))
		for i, s := range v {
			list[i] = k.shownText(s)
		}
		return list
	case map[string]string:
		table := make(map[string]string, len(v))
		for name, s := range v {
			table[redactName(name)] = k.shownText(s)
		}
		return table
	case headerTables:
		table := v.nested()
		for name, value := range table {
			table[name] = k.shown(value)
		}
		return table
	}
	if k.members != nil {
		return k.copyTables(v, (*configKey).shown)
	}
	return v
}

func (k *configKey) shownText(s string) string {
	switch {
	case s == "":
	case k.secret == secretValue:
		return redactedText
	case k.secret == maskURLs:
		return redactURL(s)
	}
	return s
}
