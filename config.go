package main

// The configuration: its values, and the one table of keys that files,
// environment, flags, "config show" and stepwell.example.toml follow.

import (
	"maps"
	"slices"
	"strings"
)

// Config is the effective configuration. It is filled by loadConfig and never
// changed afterwards.
type Config struct {
	Environment   string // which overlay files and template overrides apply
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
	Listen                string // host:port; port 0 takes a free one
	ConfigEndpointEnabled bool   // serve GET /config
	Auth                  authConfig
}

// workerConfig is the section of the worker role and of its handlers.
type workerConfig struct {
	Web             roleWebConfig
	Concurrency     int   // builtin and exec handlers at once
	HTTPConcurrency int   // HTTP handlers at once
	MaxResultBytes  int64 // of one handler's result
	AllowExec       bool
	ExecEnv         map[string]string // added to the environment of programs; secret
	ExecPath        string            // PATH of programs; "" means our own
	ExecDir         string            // working directory of programs; "" means our own
	Handlers        map[string]string // callable, or its beginning and "*", to builtin:… or a URL
	DefaultHandler  string            // the same for every other callable; "" means none
	HTTPHeaders     map[string]string // by canonical name; the values are secret
	HTTPProxy       string            // URL, possibly with credentials; "" means none
}

// webConfig is what both listeners share.
type webConfig struct {
	MaxBodyBytes           int64
	TrustedProxies         []string // addresses and prefixes
	AllowedHosts           []string // names of ours, beside loopback ones
	AllowedOrigins         []string // of pages that may do what ours may
	ShutdownTimeoutSeconds int
}

// mountConfig is the section of the mount-point API.
type mountConfig struct {
	Path               string // "" switches it off
	StatusRequiresAuth bool
	MetricsRequireAuth bool
	Auth               authConfig // the orchestration role's, but for what is given
}

// templatesConfig says where templates come from.
type templatesConfig struct {
	Dirs               []string
	EnforceInputSchema string // "off"
}

// tasksConfig bounds tasks.
type tasksConfig struct {
	MaxContextBytes int64
}

// engineConfig tunes the engine.
type engineConfig struct {
	Jitter    bool // vary retry delays by up to 10 %
	MaxQueued int  // steps ready and not running before new tasks are refused
}

// storeConfig says where state is kept and when it is on disk.
type storeConfig struct {
	Path           string
	Memory         bool   // keep nothing on disk; Path is not used
	Sync           string // always, interval or never
	SyncIntervalMS int

	RetainFinishedCount    int // finished tasks kept; 0 for all
	RetainFinishedAgeHours int // how long they are kept; 0 for as long as they count
}

// eventsConfig bounds what is held for followers of the event stream.
type eventsConfig struct {
	Keep int // transitions
}

// docsConfig says what the page of the API's documentation is.
type docsConfig struct {
	SwaggerUI string // directory or URL of a Swagger UI distribution; "" for the page of our own
}

// stalenessConfig is when tasks are stale whose templates have no word on it.
type stalenessConfig struct {
	IntervalSeconds               int // between two runs of the detector
	WaitingForDependenciesMinutes int // that a task may be in the state, as the two below
	WaitingForRetryMinutes        int // counted from when the retry was due
	StepsInProcessMinutes         int
	MaxLifetimeHours              int // of a task, in whatever state
}

// fixtureConfig is fixture mode: the control API for tests.
type fixtureConfig struct {
	Enabled            bool
	AllowRemote        bool     // listen on addresses that others reach
	AllowData          bool     // keep state on disk
	AllowTargets       []string // hosts that templates added at run time may call, beside loopback ones
	PortRange          string   // of sandboxes, as "9000-9099"; "" for any free port
	PublicHost         string   // in the URLs of sandboxes; "" for the address listened on
	VirtualCredentials bool     // hold the times in tokens against the virtual clock
	DeterministicIDs   string   // the seed of ids and chance, with steps in lockstep; "" for neither
}

// logConfig is what goes to standard error.
type logConfig struct {
	Level, Format string
	Quiet         bool // no start-up banner; a flag only
}

// configSecrecy says which part of a value is never shown.
type configSecrecy uint8

const (
	notSecret   configSecrecy = iota
	secretValue               // all of it; of a table, the values of its entries
	maskURLs                  // user, password and query of a URL
)

// configKey is one row of the table of keys.
type configKey struct {
	path     string            // as in TOML
	inherits string            // path of the key whose value it has unless it is given one
	rival    string            // path of another form of the same value; a later layer's clears it
	field    func(*Config) any // points at the value, whose type is the key's type
	def      any               // string, bool, int64, []string, map[string]string or []apiKeyConfig
	min, max int64             // bounds of an integer, both inclusive
	words    []string          // the only strings allowed, unless nil
	flag     string            // of serve, without dashes; "" for none
	operand  string            // what the usage text calls the flag's value
	env      string            // replaces the name made of the path
	secret   configSecrecy

	// What else is wrong with a string, list element or table value: an error
	// that goes on from the value, as in "is not an address". It must not
	// repeat the value, which may be secret.
	check     func(string) error
	checkName func(string) error  // the same for the name of a table entry
	canonName func(string) string // the one spelling of an entry's name

	help   string // one line
	sample string // an entry for the example file, for tables and lists of tables
}

const (
	maxLifecycleMinutes = 100_000_000 // 190 years; more overflows a time.Duration

	maxConfigBytes = 4 << 20 // what one change may bring: the journal sets aside room for maxRecord
	maxConfigCount = 1_000_000
)

// configKeys is the table of keys, in the order in which they are shown. A key
// stands in it only when what it configures exists.
var configKeys = append([]configKey{
	{
		path: "environment", field: func(c *Config) any { return &c.Environment }, def: "development",
		flag: "env", operand: "NAME", env: "STEPWELL_ENV", check: checkEnvironmentValue,
		help: "environment name; selects the overrides in templates",
	},
	{
		path: "role", field: func(c *Config) any { return &c.Role }, def: "all",
		words: []string{"all", "orchestration", "worker"}, flag: "role", operand: "ROLE",
		help: "role of this process: all, orchestration or worker",
	},
	{
		path:  "orchestration.web.listen",
		field: func(c *Config) any { return &c.Orchestration.Web.Listen }, def: "127.0.0.1:8080",
		flag: "listen", operand: "HOST:PORT", check: checkListenValue,
		help: "address of the orchestration API; port 0 picks a free port",
	},
	{
		path: "worker.web.listen", field: func(c *Config) any { return &c.Worker.Web.Listen },
		def: "127.0.0.1:8081", flag: "worker-listen", operand: "HOST:PORT", check: checkListenValue,
		help: "address of the worker API; port 0 picks a free port",
	},
	{
		path: "orchestration.web.config_endpoint_enabled", def: false,
		field: func(c *Config) any { return &c.Orchestration.Web.ConfigEndpointEnabled },
		help:  "serve the effective configuration, without secrets, at GET /config of the orchestration API",
	},
	{
		path: "worker.web.config_endpoint_enabled", def: true,
		field: func(c *Config) any { return &c.Worker.Web.ConfigEndpointEnabled },
		help:  "serve the effective configuration, without secrets, at GET /config of the worker API",
	},
	{
		path: "worker.concurrency", field: func(c *Config) any { return &c.Worker.Concurrency },
		def: int64(256), min: 1, max: maxConfigCount,
		help: "how many builtin and exec handlers may run at once",
	},
	{
		path: "worker.http_concurrency", field: func(c *Config) any { return &c.Worker.HTTPConcurrency },
		def: int64(4096), min: 1, max: maxConfigCount,
		help: "how many HTTP handlers may run at once",
	},
	{
		path: "worker.max_result_bytes", field: func(c *Config) any { return &c.Worker.MaxResultBytes },
		def: int64(1 << 20), min: 1, max: maxConfigBytes,
		help: "largest result a handler may return, in bytes",
	},
	{
		path: "worker.allow_exec", field: func(c *Config) any { return &c.Worker.AllowExec }, def: false,
		help: "allow exec: handlers, which run programs",
	},
	{
		path: "worker.exec_env", field: func(c *Config) any { return &c.Worker.ExecEnv },
		def: map[string]string{}, secret: secretValue, check: checkTextValue, checkName: checkVariableName,
		help:   "environment variables for exec: programs, in addition to PATH, HOME, LANG and TZ",
		sample: `DATABASE_URL = "postgres://localhost/orders"`,
	},
	{
		path: "worker.exec_path", field: func(c *Config) any { return &c.Worker.ExecPath }, def: "",
		check: checkTextValue,
		help:  "PATH for exec: programs; empty: the PATH of this process",
	},
	{
		path: "worker.exec_dir", field: func(c *Config) any { return &c.Worker.ExecDir }, def: "",
		check: checkTextValue,
		help:  "working directory of exec: programs; empty: the working directory of this process",
	},
	{
		path: "worker.handlers", field: func(c *Config) any { return &c.Worker.Handlers },
		def: map[string]string{}, secret: maskURLs, check: checkTargetValue, checkName: checkCallableName,
		help:   "maps a callable to builtin:… or a URL; a name may end in *, and the longest match wins",
		sample: `"Payments::*" = "http://127.0.0.1:9000/steps"`,
	},
	{
		path: "worker.default_handler", field: func(c *Config) any { return &c.Worker.DefaultHandler },
		def: "", secret: maskURLs, check: orEmptyValue(checkTargetValue),
		help: "handler for every callable that nothing else handles; empty: such steps wait for an outside actor",
	},
	{
		path: "worker.http_headers", field: func(c *Config) any { return &c.Worker.HTTPHeaders },
		def: map[string]string{}, secret: secretValue, check: checkHeaderValue,
		checkName: checkHeaderName, canonName: canonicalHeaderName,
		help:   "headers sent to HTTP handlers; the values are never shown",
		sample: `Authorization = "Bearer <token>"`,
	},
	{
		path: "worker.http_proxy", field: func(c *Config) any { return &c.Worker.HTTPProxy },
		def: "", secret: maskURLs, check: orEmptyValue(checkProxyValue),
		help: "URL of the proxy for HTTP handlers; empty: no proxy, whatever the environment says",
	},
	{
		path: "web.max_body_bytes", field: func(c *Config) any { return &c.Web.MaxBodyBytes },
		def: int64(4 << 20), min: 1, max: maxConfigBytes,
		help: "largest request body, in bytes",
	},
	{
		path: "web.allowed_hosts", field: func(c *Config) any { return &c.Web.AllowedHosts },
		def: []string{}, check: checkHostValue,
		help: "host names, without ports, that unauthenticated requests may use besides loopback names",
	},
	{
		path: "web.allowed_origins", field: func(c *Config) any { return &c.Web.AllowedOrigins },
		def: []string{}, check: checkOriginValue,
		help: "origins of web pages that may send unauthenticated changes",
	},
	{
		path: "web.trusted_proxies", field: func(c *Config) any { return &c.Web.TrustedProxies },
		def: []string{}, check: checkProxyAddress,
		help: "addresses and prefixes of proxies whose X-Forwarded-* headers are trusted",
	},
	{
		path: "web.shutdown_timeout_seconds", def: int64(10), min: 0, max: 3600,
		field: func(c *Config) any { return &c.Web.ShutdownTimeoutSeconds },
		help:  "how long shutdown waits for running handlers, in seconds",
	},
	{
		path: "mount.path", field: func(c *Config) any { return &c.Mount.Path }, def: "/stepwell",
		check: checkMountPath,
		help:  "path prefix of the mount-point API on the orchestration address; empty: not served",
	},
	{
		path: "mount.status_requires_auth", field: func(c *Config) any { return &c.Mount.StatusRequiresAuth },
		def:  false,
		help: "require system:analytics_read for the mount point's /health/status",
	},
	{
		path: "mount.metrics_require_auth", field: func(c *Config) any { return &c.Mount.MetricsRequireAuth },
		def:  false,
		help: "require system:analytics_read for the mount point's /metrics; /metrics of the roles stays public",
	},
	{
		path: "templates.dirs", field: func(c *Config) any { return &c.Templates.Dirs }, def: []string{},
		flag: "templates", operand: "DIR[,DIR]", check: checkPathValue,
		help: "directories to read templates from",
	},
	{
		path: "templates.enforce_input_schema", def: "off", check: checkSchemaValue,
		field: func(c *Config) any { return &c.Templates.EnforceInputSchema },
		help:  "check contexts against a template's input schema; only off is supported so far",
	},
	{
		path: "tasks.max_context_bytes", field: func(c *Config) any { return &c.Tasks.MaxContextBytes },
		def: int64(1 << 20), min: 2, max: maxConfigBytes,
		help: "largest task context, in bytes",
	},
	{
		path: "engine.jitter", field: func(c *Config) any { return &c.Engine.Jitter }, def: true,
		help: "vary retry delays by up to 10 %",
	},
	{
		path: "engine.max_queued", field: func(c *Config) any { return &c.Engine.MaxQueued },
		def: int64(100_000), min: 1, max: 100 * maxConfigCount,
		help: "how many steps may wait for a slot before new tasks are refused",
	},
	{
		path: "store.path", field: func(c *Config) any { return &c.Store.Path }, def: "./stepwell-data",
		flag: "data", operand: "DIR", check: checkPathValue,
		help: "data directory",
	},
	{
		path: "store.memory", field: func(c *Config) any { return &c.Store.Memory }, def: false,
		flag: "memory",
		help: "keep state in memory only",
	},
	{
		path: "store.sync", field: func(c *Config) any { return &c.Store.Sync }, def: "always",
		words: []string{"always", "interval", "never"}, flag: "sync", operand: "WHEN",
		help: "when writes are synced to disk: always (before each answer), interval, or never (left to the system)",
	},
	{
		path: "store.sync_interval_ms", field: func(c *Config) any { return &c.Store.SyncIntervalMS },
		def: int64(100), min: 1, max: 60_000,
		help: `time between syncs when sync = "interval", in milliseconds`,
	},
	{
		path: "store.retain_finished_count", field: func(c *Config) any { return &c.Store.RetainFinishedCount },
		def: int64(100_000), min: 0, max: 100 * maxConfigCount,
		help: "how many of the latest finished tasks to keep; 0: all",
	},
	{
		path:  "store.retain_finished_age_hours",
		field: func(c *Config) any { return &c.Store.RetainFinishedAgeHours },
		def:   int64(0), min: 0, max: maxConfigCount,
		help: "how long to keep a finished task, in hours; 0: no limit",
	},
	{
		path: "events.keep", field: func(c *Config) any { return &c.Events.Keep },
		def: int64(defaultKeptEvents), min: 1, max: 10 * maxConfigCount,
		help: "how many of the newest transitions to hold for resuming event streams; 72 bytes each",
	},
	{
		path: "docs.swagger_ui", field: func(c *Config) any { return &c.Docs.SwaggerUI },
		def: "", secret: maskURLs, check: orEmptyValue(checkSwaggerValue),
		help: "directory or URL of a Swagger UI distribution for /api-docs/ui; empty: the built-in page",
	},
	{
		path: "staleness.interval_seconds", field: func(c *Config) any { return &c.Staleness.IntervalSeconds },
		def: int64(300), min: 1, max: 86_400,
		help: "time between searches for stale tasks, in seconds",
	},
	{
		path: "staleness.waiting_for_dependencies_minutes", def: int64(60), min: 1, max: maxLifecycleMinutes,
		field: func(c *Config) any { return &c.Staleness.WaitingForDependenciesMinutes },
		help:  "how long a task may wait for dependencies before it is stale, in minutes",
	},
	{
		path: "staleness.waiting_for_retry_minutes", def: int64(30), min: 1, max: maxLifecycleMinutes,
		field: func(c *Config) any { return &c.Staleness.WaitingForRetryMinutes },
		help:  "how long a task may wait for an overdue retry before it is stale, in minutes",
	},
	{
		path: "staleness.steps_in_process_minutes", def: int64(30), min: 1, max: maxLifecycleMinutes,
		field: func(c *Config) any { return &c.Staleness.StepsInProcessMinutes },
		help:  "how long a task may have steps in process before it is stale, in minutes",
	},
	{
		path: "staleness.max_lifetime_hours", field: func(c *Config) any { return &c.Staleness.MaxLifetimeHours },
		def: int64(24), min: 1, max: maxConfigCount,
		help: "how old a task may grow before it is stale, in hours",
	},
	{
		path: "fixture.enabled", field: func(c *Config) any { return &c.Fixture.Enabled }, def: false,
		flag: "fixture",
		help: "fixture mode: serve the control API for tests under /_stepwell and keep state in memory",
	},
	{
		path: "fixture.allow_remote", field: func(c *Config) any { return &c.Fixture.AllowRemote }, def: false,
		help: "allow fixture mode on non-loopback addresses",
	},
	{
		path: "fixture.allow_data", field: func(c *Config) any { return &c.Fixture.AllowData }, def: false,
		help: "allow fixture mode with a data directory, which a reset empties",
	},
	{
		path: "fixture.allow_targets", field: func(c *Config) any { return &c.Fixture.AllowTargets },
		def: []string{}, check: checkHostValue,
		help: "hosts that templates added in fixture mode may call, besides loopback hosts",
	},
	{
		path: "fixture.port_range", field: func(c *Config) any { return &c.Fixture.PortRange }, def: "",
		check: orEmptyValue(checkPortRange),
		help:  "port range for sandboxes, two ports each, such as 9000-9099; empty: any free ports",
	},
	{
		path: "fixture.public_host", field: func(c *Config) any { return &c.Fixture.PublicHost }, def: "",
		check: orEmptyValue(checkHostValue),
		help:  "host name in sandbox URLs, for clients in other containers; empty: the listen address",
	},
	{
		path: "fixture.virtual_credentials", def: false,
		field: func(c *Config) any { return &c.Fixture.VirtualCredentials },
		help:  "check token times against the virtual clock, except under /_stepwell",
	},
	{
		path: "fixture.deterministic_ids", field: func(c *Config) any { return &c.Fixture.DeterministicIDs }, def: "",
		flag: "deterministic-ids",
		help: "seed for ids in fixture mode; the same requests then give the same state",
	},
	{
		path: "log.level", field: func(c *Config) any { return &c.Log.Level }, def: "info",
		words: []string{"debug", "info", "warn", "error"}, flag: "log-level", operand: "LEVEL",
		help: "least severe level to log: debug, info, warn or error",
	},
	{
		path: "log.format", field: func(c *Config) any { return &c.Log.Format }, def: "auto",
		words: []string{"auto", "text", "json"},
		help:  "log format: text, json, or auto (text on a terminal, json otherwise)",
	},
}, authConfigKeys()...)

// configKeyAt is the row of a path, or nil.
func configKeyAt(path string) *configKey {
	i := slices.IndexFunc(configKeys, func(k configKey) bool { return k.path == path })
	if i < 0 {
		return nil
	}
	return &configKeys[i]
}

// envName is the environment variable that sets the key, "" when there is none:
// without a "__" in it, a name could be anybody's.
func (k *configKey) envName() string {
	if k.env != "" || !strings.Contains(k.path, ".") {
		return k.env
	}
	return configEnvPrefix + strings.ToUpper(strings.ReplaceAll(k.path, ".", "__"))
}

// defaultConfig is the configuration that nobody touched.
func defaultConfig() *Config {
	c := new(Config)
	for i := range configKeys {
		configKeys[i].set(c, configKeys[i].def)
	}
	return c
}

// set puts a value of the key's type in its place: over what is there, but
// entry by entry for a table. c owns what it holds; v stays the caller's.
func (k *configKey) set(c *Config, v any) {
	switch p := k.field(c).(type) {
	case *string:
		*p = v.(string)
	case *bool:
		*p = v.(bool)
	case *int:
		*p = int(v.(int64))
	case *int64:
		*p = v.(int64)
	case *[]string:
		*p = slices.Clone(v.([]string))
	case *map[string]string:
		if *p == nil {
			*p = make(map[string]string)
		}
		maps.Copy(*p, v.(map[string]string))
	case *[]apiKeyConfig:
		*p = cloneAPIKeys(v.([]apiKeyConfig))
	}
}

// get is the key's value in one of the types of def, still c's own.
func (k *configKey) get(c *Config) any {
	switch p := k.field(c).(type) {
	case *string:
		return *p
	case *bool:
		return *p
	case *int:
		return int64(*p)
	case *int64:
		return *p
	case *[]string:
		return *p
	case *map[string]string:
		return *p
	case *[]apiKeyConfig:
		return *p
	}
	panic("configuration key " + k.path + " has a type that the table does not know")
}

// redacted is the configuration as anybody may see it, nested as in TOML, with
// "[REDACTED]" for secrets. It is the caller's to change.
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

// shown is a copy of a value of the key, without its secrets.
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
	case []apiKeyConfig:
		return redactAPIKeys(v)
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
