package main

// The config family: the values of the configuration, and the one table of keys that
// files, variables, flags, "config show" and stepwell.example.toml follow. It knows
// base and auth.
//
//	config.go         the values and the table of keys, those of authentication included
//	config_load.go    loading: defaults, files, variables, flags, and their problems
//	config_values.go  converting and checking values, rules about several keys, redaction

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Config is the effective configuration. loadConfig fills it, and nothing changes it
// afterwards.
type Config struct {
	Environment   string // selects overlay files and template overrides
	Role          string // all, orchestration or worker
	Orchestration orchestrationConfig
	Worker        workerConfig
	Web           webConfig
	Mount         mountConfig
	Templates     templatesConfig
	Tasks         tasksConfig
	Engine        engineConfig
	Store         storeConfig
	Events        eventsConfig
	Requests      requestsConfig
	Console       consoleConfig
	Docs          docsConfig
	Staleness     stalenessConfig
	Fixture       fixtureConfig
	Log           logConfig
}

// orchestrationConfig is the section of the orchestration role.
type orchestrationConfig struct {
	Web roleWebConfig
}

// roleWebConfig is the listener of one role.
type roleWebConfig struct {
	Listen                string // host:port; port 0 picks a free port
	ConfigEndpointEnabled bool   // serve GET /config
	Auth                  authConfig
}

// workerConfig is the section of the worker role and the handlers.
type workerConfig struct {
	Web             roleWebConfig
	Concurrency     int   // builtin and exec handlers at once
	HTTPConcurrency int   // HTTP handlers at once
	MaxResultBytes  int64 // of one handler's reply, or of a result from outside
	AllowExec       bool
	ExecEnv         map[string]string // added to the environment of programs; secret
	ExecPath        string            // PATH of programs; "" for that of this process
	ExecDir         string            // working directory of programs; "" for that of this process
	Handlers        map[string]string // builtin:… or a URL by callable, or by a prefix and "*"
	DefaultHandler  string            // for every other callable; "" for none
	HTTPHeaders     headerTables      // of requests to HTTP handlers; secret
	HTTPProxy       string            // URL, possibly with credentials; "" for none
}

// headerTables holds headers by their canonical names: those of every request (""), and
// those for one origin, as originOf returns it, or one callable, or a prefix and "*".
type headerTables map[string]map[string]string

// webConfig holds the settings that both listeners share.
type webConfig struct {
	MaxBodyBytes           int64
	MaxReceivedBytes       int64 // that bodies on their way hold, in all
	MaxAnswerBytes         int64 // that answers on their way hold, in all
	MaxConnections         int   // of all listeners
	MaxWaitingRequests     int
	TrustedProxies         []string // addresses and prefixes
	AllowedHosts           []string // names of this service, besides loopback names
	AllowedOrigins         []string // of pages that may make changes
	ShutdownTimeoutSeconds int
}

// mountConfig is the section of the mount-point API.
type mountConfig struct {
	Path               string // "" if it is not served
	StatusRequiresAuth bool
	MetricsRequireAuth bool
	Auth               authConfig // keys that are not set have the orchestration role's values
}

// templatesConfig says where templates come from, and whether their schemas hold.
type templatesConfig struct {
	Dirs               []string
	Watch              bool
	EnforceInputSchema string // "off", "warn", "reject"
}

// tasksConfig limits tasks.
type tasksConfig struct {
	MaxContextBytes int64
}

// engineConfig tunes the engine.
type engineConfig struct {
	Jitter    bool // vary retry delays by up to 10 %
	MaxQueued int  // ready steps that wait for a slot before new tasks are refused
}

// storeConfig says where state is kept and when writes are synced.
type storeConfig struct {
	Path           string
	Memory         bool   // keep nothing on disk; Path is ignored
	Sync           string // always, interval or never
	SyncIntervalMS int
	SlowSeconds    int // from which on the disk hangs

	SnapshotJournalMB int // journal from which a snapshot is written

	RetainFinishedCount    int // finished tasks kept; 0 for all
	RetainFinishedAgeHours int // how long they are kept; 0 for no limit
	MaxMemoryMB            int // for the tasks of all services; 0 for a share of what there is
}

// eventsConfig limits the event streams and their history, and says who else gets domain events.
type eventsConfig struct {
	Keep        int // transitions, and domain events
	MaxStreams  int
	Subscribers []subscriberConfig
}

// subscriberConfig is one subscriber of domain events.
type subscriberConfig struct {
	Name           string   `json:"name"`
	URL            string   `json:"url"`
	Events         []string `json:"events"` // names, or prefixes and "*"
	Secret         string   `json:"secret"` // "whsec_" and a key in base64
	MaxAttempts    int      `json:"max_attempts"`
	TimeoutSeconds int      `json:"timeout_seconds"` // of one attempt
}

// requestsConfig limits how many Idempotency-Keys are remembered.
type requestsConfig struct {
	KeepHours int
	KeepCount int // of those whose tasks were dropped
}

// consoleConfig switches the console.
type consoleConfig struct {
	Enabled bool
}

// docsConfig selects the page of the API's documentation.
type docsConfig struct {
	SwaggerUI string // directory or URL of a Swagger UI distribution; "" for the built-in page
}

// stalenessConfig says when tasks are stale whose templates do not say so.
type stalenessConfig struct {
	IntervalSeconds               int // between two searches
	WaitingForDependenciesMinutes int // how long a task may be in a state, like the two below
	WaitingForRetryMinutes        int // counted from when the retry was due
	StepsInProcessMinutes         int
	MaxLifetimeHours              int // of a task, in any state
}

// fixtureConfig is fixture mode: the control API for tests.
type fixtureConfig struct {
	Enabled            bool
	AllowRemote        bool     // listen on addresses other than loopback
	AllowData          bool     // with a data directory
	SendEvents         bool     // to subscribers; otherwise they count as delivered
	AllowTargets       []string // hosts that templates added at run time may call, besides loopback hosts
	PortRange          string   // of sandboxes, as "9000-9099"; "" for any free port
	PublicHost         string   // in the URLs of sandboxes; "" for the listen address
	VirtualCredentials bool     // compare the times in tokens with the virtual clock
	DeterministicIDs   string   // seed of ids and random numbers, with steps in lockstep; "" for neither
}

// logConfig says what to log on standard error.
type logConfig struct {
	Level, Format string
	Requests      bool // log each request
	Quiet         bool // no start-up banner; set by a flag alone
}

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
	def      any      // string, bool, int64, []string, map[string]string, headerTables, []apiKeyConfig or []subscriberConfig
	min, max int64    // bounds of an integer, both inclusive
	words    []string // the only strings allowed, unless nil
	flag     string   // of serve, without dashes; "" for none
	operand  string   // name of the flag's value in the help
	env      string   // variable that sets it, instead of the name derived from the path
	secret   configSecrecy

	// check returns what else is wrong with a string, list element or table value.
	// The error continues a sentence about the value, as in "is not an address",
	// and must not repeat it, because it may be secret.
	check     func(string) error
	checkName func(string) error  // the same for the name of a table entry
	canonName func(string) string // the one spelling of an entry's name

	help   string // one line
	sample string // an entry for the example file, of tables and lists of tables
}

const (
	maxLifecycleMinutes = 100_000_000 // 190 years; more overflows a time.Duration

	maxConfigBytes = 4 << 20 // of one change: the journal reserves space for maxRecord
	maxConfigCount = 1_000_000
)

// configKeys is the table of keys, in the order in which they are shown.
var configKeys = resolveKeys(append([]configKey{
	{path: "environment", def: "development", flag: "env", operand: "NAME", env: "STEPWELL_ENV",
		check: checkEnvironmentValue,
		help:  "environment name; selects the overrides in templates"},
	{path: "role", def: "all", words: []string{"all", "orchestration", "worker"}, flag: "role", operand: "ROLE",
		help: "role of this process: all, orchestration or worker"},
	{path: "orchestration.web.listen", def: "127.0.0.1:8080", flag: "listen", operand: "HOST:PORT",
		check: checkListenValue,
		help:  "address of the orchestration API; port 0 picks a free port"},
	{path: "worker.web.listen", def: "127.0.0.1:8081", flag: "worker-listen", operand: "HOST:PORT",
		check: checkListenValue,
		help:  "address of the worker API; port 0 picks a free port"},
	{path: "orchestration.web.config_endpoint_enabled", def: false,
		help: "serve the effective configuration, without secrets, at GET /config of the orchestration API"},
	{path: "worker.web.config_endpoint_enabled", def: true,
		help: "serve the effective configuration, without secrets, at GET /config of the worker API"},
	{path: "worker.concurrency", def: 256, min: 1, max: maxConfigCount,
		help: "how many builtin and exec handlers may run at once"},
	{path: "worker.http_concurrency", def: 4096, min: 1, max: maxConfigCount,
		help: "how many HTTP handlers may run at once"},
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
	{path: "worker.exec_dir", def: "", check: checkTextValue,
		help: "working directory of exec: programs; empty: the working directory of this process"},
	{path: "worker.handlers", def: map[string]string{}, secret: maskURLs, check: checkTargetValue,
		checkName: checkCallableName,
		help:      "maps a callable to builtin:… or a URL; a name may end in *, and the longest match wins",
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
	{path: "web.max_received_bytes", def: 32 << 20, min: maxConfigBytes, max: 1 << 40,
		help: "how much memory request bodies may hold while they arrive, in bytes; more are refused"},
	{path: "web.max_answer_bytes", def: 16 << 20, min: 1 << 20, max: 1 << 40,
		help: "how much memory answers may hold while their readers take them, in bytes; more are refused"},
	{path: "web.max_connections", def: 3000, min: 1, max: maxConfigCount,
		help: "how many connections clients may hold; further ones take the place of idle ones or are refused"},
	{path: "web.max_waiting_requests", def: 2000, min: 0, max: maxConfigCount,
		help: "how many requests may wait for a task or for steps; further ones are refused"},
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
		help: "directories to read templates from"},
	{path: "templates.watch", def: false, flag: "watch",
		help: "read templates again when their files change; new tasks use the new definitions"},
	{path: "templates.enforce_input_schema", def: "off", words: []string{"off", "warn", "reject"},
		help: "check contexts against a template's input_schema, and results against result_schema: warn logs and counts " +
			"what does not fit; reject refuses the task, and fails the step"},
	{path: "tasks.max_context_bytes", def: 1 << 20, min: 2, max: maxConfigBytes,
		help: "largest task context, in bytes"},
	{path: "engine.jitter", def: true,
		help: "vary retry delays by up to 10 %; in fixture mode only if set to true"},
	{path: "engine.max_queued", def: 100_000, min: 1, max: 100 * maxConfigCount,
		help: "how many steps may wait for a slot before new tasks are refused"},
	{path: "store.path", def: "./stepwell-data", flag: "data", operand: "DIR", check: checkPathValue,
		help: "data directory"},
	{path: "store.memory", def: false, flag: "memory",
		help: "keep state in memory only"},
	{path: "store.sync", def: "always", words: []string{"always", "interval", "never"}, flag: "sync",
		operand: "WHEN",
		help:    "when writes are synced to disk: always (before each answer), interval, or never (left to the system)"},
	{path: "store.sync_interval_ms", def: 100, min: 1, max: 60_000,
		help: `time between syncs when sync = "interval", in milliseconds`},
	{path: "store.slow_seconds", def: 5, min: 1, max: 3600,
		help: "how long one disk operation may take, in seconds, before changes are refused and readiness is 503"},
	{path: "store.snapshot_journal_mb", def: 16, min: 1, max: maxConfigCount,
		help: "size of the journal from which a snapshot is written, in MB, or a quarter of the snapshot if that is more"},
	{path: "store.retain_finished_count", def: 100_000, min: 0, max: 100 * maxConfigCount,
		help: "how many of the latest finished tasks to keep; 0: all"},
	{path: "store.retain_finished_age_hours", def: 0, min: 0, max: maxConfigCount,
		help: "how long to keep a finished task, in hours; 0: no limit"},
	{path: "store.max_memory_mb", def: 0, min: 0, max: maxConfigCount,
		help: "memory for tasks, in MB; 0: 70 % of the cgroup's or the machine's; near it finished ones are dropped"},
	{path: "requests.keep_hours", def: 24, min: 1, max: 24 * 366,
		help: "how long an Idempotency-Key is remembered, in hours, even if its task was dropped"},
	{path: "requests.keep_count", def: 250_000, min: 1, max: 100 * maxConfigCount,
		help: "how many Idempotency-Keys of dropped tasks to remember; 150 bytes each"},
	{path: "events.keep", def: defaultKeptEvents, min: 1, max: 10 * maxConfigCount,
		help: "how many of the newest transitions to hold for resuming event streams; 72 bytes each; and of domain events"},
	{path: "events.max_streams", def: 100, min: 0, max: maxConfigCount,
		help: "how many event streams may be open; beyond it they are refused"},
	{path: "events.subscribers", def: []subscriberConfig{}, secret: secretValue,
		help: "services that get domain events by HTTP, signed as in Standard Webhooks; events may end in *",
		sample: `subscribers = [{name = "billing", url = "https://billing.example.com/events", events = ["payment.*"], ` +
			`secret = "whsec_cmVwbGFjZSB0aGlzIHdpdGggYSByYW5kb20gc2VjcmV0", max_attempts = 8, timeout_seconds = 15}]`},
	{path: "console.enabled", def: true,
		help: "serve the console, the web interface at /console of the orchestration address"},
	{path: "docs.swagger_ui", def: "", secret: maskURLs, check: orEmptyValue(checkSwaggerValue),
		help: "directory or URL of a Swagger UI distribution for /api-docs/ui; empty: the built-in page"},
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
		help: "fixture mode: serve the control API for tests under /_stepwell and keep state in memory"},
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
		help: "seed for ids in fixture mode; the same requests then give the same state"},
	{path: "log.level", def: "info", words: []string{"debug", "info", "warn", "error"}, flag: "log-level",
		operand: "LEVEL",
		help:    "least severe level to log: debug, info, warn or error"},
	{path: "log.format", def: "auto", words: []string{"auto", "text", "json"},
		help: "log format: text, json, or auto (text on a terminal, json otherwise)"},
	{path: "log.requests", def: false,
		help: "log each request: method, path without query, status, duration, id and subject"},
}, authConfigKeys()...))

// resolveKeys finds the field of each key: the one with the name of its path, without
// underscores and in any case.
func resolveKeys(keys []configKey) []configKey {
	for i := range keys {
		k := &keys[i]
		t := reflect.TypeFor[Config]()
		for part := range strings.SplitSeq(k.path, ".") {
			name := strings.ReplaceAll(part, "_", "")
			field, ok := t.FieldByNameFunc(func(s string) bool { return strings.EqualFold(s, name) })
			if !ok {
				panic("no field for the configuration key " + k.path)
			}
			k.index, t = append(k.index, field.Index...), field.Type
		}
		if n, ok := k.def.(int); ok {
			k.def = int64(n)
		}
	}
	return keys
}

// field returns the key's field.
func (k *configKey) field(c *Config) reflect.Value {
	return reflect.ValueOf(c).Elem().FieldByIndex(k.index)
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
	return configEnvPrefix + strings.ToUpper(strings.ReplaceAll(k.path, ".", "__"))
}

// defaultConfig returns the configuration with all defaults.
func defaultConfig() *Config {
	c := new(Config)
	for i := range configKeys {
		configKeys[i].set(c, configKeys[i].def)
	}
	return c
}

// set stores a copy of a value of the key's type. The entries of a table are added to
// those it has.
func (k *configKey) set(c *Config, v any) {
	f := k.field(c)
	switch value := v.(type) {
	case int64:
		f.SetInt(value)
		return
	case []string:
		v = slices.Clone(value)
	case map[string]string:
		table := make(map[string]string)
		maps.Copy(table, f.Interface().(map[string]string))
		maps.Copy(table, value)
		v = table
	case headerTables:
		v = f.Interface().(headerTables).with(value)
	case []apiKeyConfig:
		v = cloneAPIKeys(value)
	case []subscriberConfig:
		v = cloneSubscribers(value)
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

// nested returns the tables as TOML has them.
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
func (k *configKey) get(c *Config) any {
	f := k.field(c)
	if f.CanInt() {
		return f.Int()
	}
	return f.Interface()
}

// redacted returns a copy of the configuration that anybody may see, nested as in
// TOML, with "[REDACTED]" for secrets.
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
	case []apiKeyConfig:
		return redactAPIKeys(v)
	case []subscriberConfig:
		return redactSubscribers(v)
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

// defaultKeptEvents is how many moves are held where nothing else was said.
const defaultKeptEvents = 100_000

// authRoles are the roles with a section [<role>.web.auth]. The mount-point API has
// [mount.auth], which inherits from the orchestration role's.
var authRoles = []string{"orchestration", "worker"}

// authConfig returns the section of a role, or nil if there is no such role.
func (c *Config) authConfig(role string) *authConfig {
	switch role {
	case "orchestration":
		return &c.Orchestration.Web.Auth
	case "worker":
		return &c.Worker.Web.Auth
	case "mount":
		return &c.Mount.Auth
	}
	return nil
}

// authKeyTable holds the keys of a section, the same for every role. Each path is the
// last part of a key's path.
var authKeyTable = []configKey{
	{path: "enabled", def: false,
		help: "require credentials for protected routes"},
	{path: "jwt_issuer", def: defaultIssuer,
		help: "required iss claim of a token"},
	{path: "jwt_audience", def: defaultAudience,
		help: "audience that a token's aud claim must contain"},
	{path: "jwt_token_expiry_hours", def: defaultExpiryHours, min: 0, max: maxExpiryHours,
		help: "lifetime of tokens made on the command line, in hours; 1 to 24 is sensible"},
	{path: "jwt_verification_method", def: "public_key", words: []string{"public_key", "jwks"},
		help: "source of the keys that verify tokens: public_key or jwks"},
	{path: "jwt_public_key_path", def: "", rival: "jwt_public_key", check: checkTextValue,
		help: "file with the public key in PEM; STEPWELL_JWT_PUBLIC_KEY_PATH sets it for both roles"},
	{path: "jwt_public_key", def: "", secret: secretValue, rival: "jwt_public_key_path",
		help: "public key in PEM, used when no file is set; STEPWELL_JWT_PUBLIC_KEY sets it for both roles"},
	{path: "jwt_private_key", def: "", secret: secretValue,
		help: "private key in PEM; the service only checks that it matches the public key"},
	{path: "jwks_url", def: "", secret: maskURLs,
		help: "URL of the key set"},
	{path: "jwks_refresh_interval_seconds", def: 3600, min: 1, max: 7 * 24 * 3600,
		help: "time between fetches of the key set, in seconds"},
	{path: "jwks_max_stale_seconds", def: 300, min: 0, max: 30 * 24 * 3600,
		help: "how much longer to use the key set while fetching it fails, in seconds"},
	{path: "jwks_url_allow_http", def: false,
		help: "allow a key set over plain http and from any address; anyone on the network path can then forge tokens"},
	{path: "jwks_allow_private_hosts", def: false,
		help: "allow a key set from loopback, link-local and metadata addresses"},
	{path: "jwt_leeway_seconds", def: int64(defaultLeeway / time.Second), min: 0, max: 3600,
		help: "tolerated clock difference for exp, nbf and iat, in seconds"},
	{path: "jwt_allowed_algorithms", def: []string{"RS256"},
		help: "allowed token algorithms, from " + strings.Join(signingAlgorithms, ", ")},
	{path: "permissions_claim", def: "permissions",
		help: "claim that lists the permissions"},
	{path: "strict_validation", def: true,
		help: "refuse credentials with an unknown permission"},
	{path: "log_unknown_permissions", def: true,
		help: "log unknown permissions that are not refused"},
	{path: "api_key_header", def: defaultAPIKeyHeader,
		help: "header that carries the API key"},
	{path: "api_keys_enabled", def: false,
		help: "accept the API keys in api_keys"},
	{path: "api_keys", def: []apiKeyConfig{}, secret: secretValue,
		help:   `API keys, each with its permissions (["*"]: all) and its description, which is the subject`,
		sample: `api_keys = [{key = "<16 characters or more>", permissions = ["tasks:*"], description = "ci"}]`},
	{path: "authenticator_url", def: "", secret: maskURLs,
		help: "URL of a service that authenticates every request, instead of any other verification"},
	{path: "authenticator_cache_seconds", def: 0, min: 0, max: maxForwardCacheTime,
		help: "how long to remember that the authenticator accepted a request, in seconds"},
}

// authConfigKeys returns the rows of authKeyTable for each role.
func authConfigKeys() []configKey {
	var rows []configKey
	for _, role := range append(slices.Clone(authRoles), "mount") {
		for _, row := range authKeyTable {
			k := row
			k.path = authKeyPath(role, k.path)
			if k.rival != "" {
				k.rival = authKeyPath(role, k.rival)
			}
			if role == "mount" {
				k.inherits = authKeyPath("orchestration", row.path)
			}
			rows = append(rows, k)
		}
	}
	return rows
}

// mountSharesAuth reports whether the mount point's section equals the orchestration
// role's.
func (c *Config) mountSharesAuth() bool {
	return reflect.DeepEqual(c.Mount.Auth, c.Orchestration.Web.Auth)
}

// trustedProxies returns web.trusted_proxies, which was checked.
func (c *webConfig) trustedProxies() []netip.Prefix {
	var trusted []netip.Prefix
	for _, text := range c.TrustedProxies {
		if p, err := parseTrustedProxy(text); err == nil {
			trusted = append(trusted, p)
		}
	}
	return trusted
}

// newAuthenticators sets up the authentication of the roles that are served. The
// error lists every problem of every role.
func newAuthenticators(
	cfg *Config, origin *provenance, clock clock, log *slog.Logger,
) (*authenticators, error) {
	made := &authenticators{}
	var problems inputProblems
	set := func(at **authenticator, role string) {
		a, warnings, err := newAuthenticator(cfg.authConfig(role), role, cfg.Web.trustedProxies(), clock, log)
		for _, w := range warnings {
			log.Warn(w)
		}
		if found, ok := err.(inputProblems); ok {
			for _, p := range found {
				problems = append(problems, inputProblem{origin.near(p.Field).String(), p.Field, p.Message})
			}
		}
		*at = a
	}
	if cfg.Role != "worker" {
		set(&made.orchestration, "orchestration")
		made.mount = made.orchestration
		if cfg.Mount.Path != "" && !cfg.mountSharesAuth() {
			set(&made.mount, "mount")
		}
		for _, key := range cfg.Mount.idleGuards() {
			log.Warn(key + " has no effect: mount.auth.enabled is false")
		}
	}
	if cfg.Role != "orchestration" {
		set(&made.worker, "worker")
	}
	if err := configError(problems); err != nil {
		made.close()
		return nil, err
	}
	if made.mount != nil {
		made.mount.metrics = made.orchestration.metrics // they share a listener
	}
	return made, nil
}

// idleGuards returns the keys that require a permission although authentication is off.
func (c *mountConfig) idleGuards() (keys []string) {
	if c.Path == "" || c.Auth.Enabled {
		return nil
	}
	if c.StatusRequiresAuth {
		keys = append(keys, "mount.status_requires_auth")
	}
	if c.MetricsRequireAuth {
		keys = append(keys, "mount.metrics_require_auth")
	}
	return keys
}

// Subscribers of domain events.

// subscribers converts a list of subscribers, whose names must differ.
func (c *configConverter) subscribers(raw any) []subscriberConfig {
	list := []subscriberConfig{}
	for i, entry := range c.tables(raw) {
		s := c.subscriber(fmt.Sprintf("%s[%d]", c.path, i), entry)
		for n := range list {
			if s.Name != "" && list[n].Name == s.Name {
				c.complain(fmt.Sprintf("%s[%d].name", c.path, i), "duplicates that of subscribers[%d]", n)
			}
		}
		list = append(list, s)
	}
	return list
}

// subscriber converts an entry.
func (c *configConverter) subscriber(path string, raw any) subscriberConfig {
	s := subscriberConfig{Events: []string{}, MaxAttempts: 8, TimeoutSeconds: 15}
	table, ok := raw.(map[string]any)
	if !ok {
		c.mismatch(path, "a table", raw)
		return s
	}
	members := []configKey{
		{path: "name", check: checkSubscriberName}, {path: "url", secret: maskURLs, check: checkSubscriberURL},
		{path: "secret", secret: secretValue, check: checkSigningSecret},
		{path: "events", def: []string(nil), check: checkEventPattern},
		{path: "max_attempts", def: int64(0), min: 1, max: 50}, {path: "timeout_seconds", def: int64(0), min: 1, max: 300},
	}
	texts := map[string]*string{"name": &s.Name, "url": &s.URL, "secret": &s.Secret}
	numbers := map[string]*int{"max_attempts": &s.MaxAttempts, "timeout_seconds": &s.TimeoutSeconds}
	var known []string
	for _, k := range members {
		name := k.path
		known = append(known, name)
		value, given := table[name]
		k.path = path + "." + name
		m := configConverter{configKey: &k}
		switch {
		case !given && texts[name] != nil:
			m.complain(k.path, "it is missing")
		case !given:
		case name == "events":
			s.Events = m.list(value)
		case texts[name] != nil:
			*texts[name] = m.text(k.path, value)
		default:
			if f, ok := value.(float64); ok && f == math.Trunc(f) { // from JSON
				value = int64(f)
			}
			n, _ := m.scalar(value).(int64)
			*numbers[name] = int(n)
		}
		c.faults = append(c.faults, m.faults...)
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(known, name) {
			c.complain(joinConfigPath(path, name), "%s", unknownConfigName("key", name, known))
		}
	}
	return s
}

var subscriberName = compiled(`^[A-Za-z0-9_.:-]{1,100}$`)

func checkSubscriberName(s string) error {
	if !subscriberName().MatchString(s) {
		return errors.New(`is not a name: 1 to 100 letters, digits, "_", ".", ":" and "-"`)
	}
	return nil
}

func checkSubscriberURL(s string) error {
	if checkTargetValue(s) != nil || strings.HasPrefix(s, "builtin:") {
		return errors.New("is not a URL like https://example.com/events")
	}
	return nil
}

func checkEventPattern(s string) error {
	if s == "" || strings.Contains(strings.TrimSuffix(s, "*"), "*") {
		return errors.New("is not the name of an event, or the beginning of one and *")
	}
	return nil
}

// signingKey returns the key in a secret; nil if there is none.
func signingKey(secret string) []byte {
	text, marked := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(text)
	if !marked || err != nil || len(key) < 24 || len(key) > 64 {
		return nil
	}
	return key
}

func checkSigningSecret(s string) error {
	if signingKey(s) == nil {
		return errors.New("is not whsec_ and 24 to 64 bytes in base64, as in: echo whsec_$(openssl rand -base64 32)")
	}
	return nil
}

// cloneSubscribers returns a deep copy.
func cloneSubscribers(list []subscriberConfig) []subscriberConfig {
	list = slices.Clone(list)
	for i := range list {
		list[i].Events = slices.Clone(list[i].Events)
	}
	return list
}

// redactSubscribers returns a copy without secrets.
func redactSubscribers(list []subscriberConfig) []subscriberConfig {
	list = cloneSubscribers(list)
	for i := range list {
		list[i].Secret, list[i].URL = redactedText, redactURL(list[i].URL)
	}
	return list
}

// subscribersLiteral returns a list of subscribers as TOML.
func subscribersLiteral(list []subscriberConfig) string {
	items := make([]string, len(list))
	for i, s := range list {
		items[i] = fmt.Sprintf("{name = %s, url = %s, events = %s, secret = %s, max_attempts = %d, timeout_seconds = %d}",
			quoteTOML(s.Name), quoteTOML(s.URL), tomlLiteral(s.Events), quoteTOML(s.Secret), s.MaxAttempts, s.TimeoutSeconds)
	}
	return "[" + strings.Join(items, ", ") + "]"
}
