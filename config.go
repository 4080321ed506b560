package main

// The config family: the values of the configuration, and the one table of keys that files, variables, flags, "config
// show" and docs/stepwell.example.toml follow. It knows base and auth.
//
//	config.go        the Config value, its sections such as web, store
//	config_keys.go   the table of configuration keys
//	config_auth.go   the keys of authentication, and the authenticators that they describe
//	config_load.go   loading: defaults, files, variables, flags
//	config_values.go converting values, lists of tables: API keys and subscribers; TOML: the places of keys in a
//	                 file, values as literals
//	config_checks.go checks of values, and rules about several keys

// Config is the effective configuration. loadConfig fills it, and nothing changes it afterwards.
type Config struct {
	Environment   string // selects overlay files and template overrides
	Role          string // all, orchestration or worker
	Orchestration struct{ Web roleWebConfig }
	Worker        workerConfig
	Web           webConfig
	Mount         mountConfig
	Templates     templatesConfig
	Tasks         struct{ MaxContextBytes int64 }
	Engine        struct{ Jitter bool } // vary retry delays by up to 10 %
	Store         storeConfig
	Events        eventsConfig
	Requests      requestsConfig
	Console       consoleConfig
	Metrics       struct{ Prefix string } // what the names of metrics begin with
	Staleness     stalenessConfig
	Fixture       fixtureConfig
	Log           logConfig
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
	Concurrency     int    // builtin and exec handlers at once
	HTTPConcurrency int    // HTTP handlers at once
	Undelivered     string // "wait" or "fail": what becomes of a step whose HTTP handler does not listen
	MaxResultBytes  int64  // of one handler's reply, or of a result from outside
	AllowExec       bool
	ExecEnv         map[string]string // added to the environment of programs; secret
	ExecPath        string            // PATH of programs; "" for that of this process
	Handlers        map[string]string // builtin:… or a URL by callable, or by a prefix and "*"
	DefaultHandler  string            // for every other callable; "" for none
	HTTPHeaders     headerTables      // of requests to HTTP handlers; secret
	HTTPProxy       string            // URL, possibly with credentials; "" for none
}

// The words of worker.undelivered.
const (
	undeliveredWait = "wait" // a step waits for a handler that does not listen
	undeliveredFail = "fail" // that is a failed attempt
)

// headerTables holds headers by their canonical names: those of every request (""), and
// those for one origin, as originOf returns it, or one callable, or a prefix and "*".
type headerTables map[string]map[string]string

// webConfig holds the settings that both listeners share.
type webConfig struct {
	MaxBodyBytes           int64
	MaxConnections         int      // of all listeners
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
	Auth               authConfig // keys that are not set have the values of the orchestration role
}

// templatesConfig says where templates come from, and whether their schemas hold.
type templatesConfig struct {
	Dirs               []string
	Watch              bool
	EnforceInputSchema string // "off", "warn", "reject"
}

// storeConfig says where state is kept and when writes are synced.
type storeConfig struct {
	Path   string
	Memory bool   // keep nothing on disk; Path is ignored
	Sync   string // always or never

	RetainFinishedCount    int // finished tasks kept; 0 for all
	RetainFinishedAgeHours int // how long they are kept; 0 for no limit
	MaxMemoryMB            int // for the tasks of all services; 0 for a share of the machine's memory
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

// requestsConfig limits how long Idempotency-Keys are remembered.
type requestsConfig struct {
	KeepHours int
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

// consoleConfig is the section of the console.
type consoleConfig struct {
	Enabled bool
	People  []string // callables of the steps that wait for people; a * at the end stands for any suffix
}

// logConfig says what to log on standard error.
type logConfig struct {
	Level, Format string
	Errors        string // message or type
	Requests      bool   // log each request
	Quiet         bool   // no start-up banner; set by a flag alone
}

// defaultKeptEvents is how many transitions are held unless configured otherwise.
const defaultKeptEvents = 100_000
