package main

// The service family: what can be done with tasks, by subject. A service is one
// isolated set of tasks with its own clock, ids, store and engine; a process may
// have several. It uses the engine and everything below; it does not know HTTP
// or who asks.
//
//	service.go           opening and closing a service, its parts, and the checks of the health endpoints
//	service_create.go    creating tasks, repeated requests, waiting for a task; templates: look-ups, views, adding them
//	service_act.go       actions of operators, adjustments, claims of outside actors
//	service_dlq.go       the dead letter queue, staleness
//	service_publish.go   domain events to subscribers, and what became of them
//	service_view.go      views of tasks and steps, summary, transitions, audit
//	service_analysis.go  the analysis of a task's dependencies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// service is one isolated set of tasks with its own time and ids, and the engine
// that runs them. A process may have several. Store and engine are nil if the
// process has the worker role alone.
type service struct {
	cfg       *Config
	log       *slog.Logger
	auth      *authenticators // of the surfaces; may be another service's too
	clock     clock
	ids       *idSource
	handlers  *handlerSet // how steps are run
	store     *store
	engine    *engine
	workerID  string
	started   instant
	extension extension   // nil without one
	draining  atomic.Bool // new work is refused
	quotas    *quotas

	templates *catalog        // look-ups, validation
	tasks     *creator        // creating and waiting
	operator  *operator       // actions of people
	outside   *outsideActors  // claims and answers
	dlq       *deadLetters    // the dead letter queue
	staleness *stalenessWatch // stale tasks
	history   *historyReader  // transitions, audits
	health    *health         // checks
	load      *loadGauge      // whether requests are answered in time
	publisher *publisher      // domain events to subscribers; nil with the worker role alone

	stopKeeping context.CancelFunc // ends the writing of snapshots
	keeping     sync.WaitGroup
}

// extension lets a family above add to a service. It may extend the
// service's surfaces, too.
type extension interface {
	attach(s *service) // when the store is open, before the engine starts
	stop()             // before the engine stops
}

// serviceOptions are the parts that a service is opened with.
type serviceOptions struct {
	cfg      *Config
	log      *slog.Logger
	auth     *authenticators
	clock    clock
	seed     *[32]byte                 // of ids and random numbers; nil for the operating system's
	registry *registry                 // the templates of files
	reloaded *atomic.Pointer[registry] // these, in place of registry, if they may change; or nil
	handlers *handlerSet
	disk     diskFS       // nil for the real one
	state    *stateSource // for a store that is empty; nil for none

	extension extension       // nil for none
	quotas    *quotas         // of the process; nil for its own
	until     context.Context // opening fails when it ends; nil for never
	shows     *readProgress   // of opening; nil for nobody

	readOnly bool // show what is sound of the store; take no change and run no step

	deterministic string // ids and random numbers are derived from it; "" for real ones
}

// quotas bound what all callers of a process cost together.
type quotas struct {
	connections quota
	headers     quota // bytes
	waiting     quota // requests
	streams     quota // of events
	bodies      bodyMemory
	stored      quota // bytes of tasks
}

// bodyMemory is the memory for the bodies of requests, in bytes.
type bodyMemory struct {
	quota
	turn chan struct{} // holds a token while a body waits for memory; the others wait for the token
}

// maxHeaderMemory is the memory for what large headers exceed, in bytes.
const maxHeaderMemory = 8 << 20

func newQuotas(c *Config) *quotas {
	q := &quotas{bodies: bodyMemory{turn: make(chan struct{}, 1)}}
	q.connections.most, q.headers.most = int64(c.Web.MaxConnections), maxHeaderMemory
	q.waiting.most = int64(c.Web.MaxWaitingRequests)
	q.stored.most = c.Store.memory()
	q.streams.most = int64(c.Events.MaxStreams)
	q.bodies.most = c.Web.MaxReceivedBytes
	if n := availableMemory(); n > 0 {
		q.bodies.most = min(q.bodies.most, max(n/100*bodyMemoryShare, c.Web.MaxBodyBytes))
	}
	return q
}

// Shares of the memory that the process can get, in percent. The rest is for answers and
// the garbage collector.
const (
	taskMemoryShare = 70      // tasks, without store.max_memory_mb
	bodyMemoryShare = 5       // bodies of requests at most: what they become takes several times as much
	assumedMemory   = 4 << 30 // bytes, of a machine that does not say how much it has
)

// memory returns the memory for tasks, in bytes.
func (c *storeConfig) memory() int64 {
	if c.MaxMemoryMB > 0 {
		return int64(c.MaxMemoryMB) << 20
	}
	return cmp.Or(availableMemory(), assumedMemory) / 100 * taskMemoryShare
}

// availableMemory returns how much memory the process can get, in bytes; 0 if that is unknown.
func availableMemory() int64 {
	n := machineMemory()
	if most := cgroupMemory(os.DirFS("/")); most > 0 {
		n = min(n, most)
	}
	return n
}

// each calls f for every quota, with its name in the metrics.
func (q *quotas) each(f func(name string, q *quota)) {
	f("connections", &q.connections)
	f("header_bytes", &q.headers)
	f("waiting_requests", &q.waiting)
	f("event_streams", &q.streams)
	f("body_bytes", &q.bodies.quota)
	f("stored_bytes", &q.stored)
}

// workerID returns the name under which this process runs steps.
func workerID(cfg *Config) string { return "stepwell-" + cfg.Role }

// idSource returns the source of ids and random numbers.
func (o *serviceOptions) idSource() *idSource {
	if o.deterministic != "" {
		return newDerivedIDs(o.clock, o.deterministic)
	}
	return newIDSource(o.clock, o.seed)
}

// files returns the place of the templates of files.
func (o *serviceOptions) files() *atomic.Pointer[registry] {
	if o.reloaded != nil {
		return o.reloaded
	}
	place := new(atomic.Pointer[registry])
	place.Store(o.registry)
	return place
}

// startingService returns a service for the time in which another one opens: it has no tasks, and answers what
// needs none.
func startingService(o *serviceOptions) *service {
	s := newService(o)
	s.assemble(o.files())
	s.health.starting = o.shows
	return s
}

// newService returns a service without a store.
func newService(o *serviceOptions) *service {
	s := &service{
		cfg: o.cfg, log: o.log, auth: o.auth, clock: o.clock, ids: o.idSource(),
		handlers: o.handlers, workerID: workerID(o.cfg), extension: o.extension,
		started: o.clock.now(), stopKeeping: func() {}, quotas: o.quotas,
	}
	if s.quotas == nil {
		s.quotas = newQuotas(o.cfg)
	}
	return s
}

// openService recovers the store and starts the engine.
func openService(o serviceOptions) (*service, error) {
	s := newService(&o)
	if o.cfg.Role == "worker" {
		s.assemble(o.files())
		return s, nil
	}
	if err := s.openStore(&o); err != nil {
		return nil, err
	}
	if o.readOnly {
		s.assemble(o.files())
		return s, nil
	}
	if o.until != nil && o.until.Err() != nil {
		return nil, errors.Join(o.until.Err(), s.close())
	}
	s.publisher = newPublisher(s)
	if len(s.publisher.subscribers) > 0 {
		s.engine.sending = s.publisher.sendingLocked
	}
	if s.extension != nil {
		s.extension.attach(s)
	}
	s.assemble(o.files())
	s.warnOfChangedTemplates()
	if err := s.publisher.start(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if err := s.engine.start(); err != nil {
		return nil, errors.Join(fmt.Errorf("resuming the unfinished tasks: %w", err), s.close())
	}
	s.staleness.start()
	s.dropFinished()
	return s, nil
}

// resumeClock sets the clock to the time in the state document, and counts the
// uptime from there.
func (s *service) resumeClock() {
	s.store.resumeClock()
	s.started = s.clock.now()
}

// assemble makes the parts of the service, each with what it needs.
func (s *service) assemble(files *atomic.Pointer[registry]) {
	s.templates = newCatalog(s.cfg, s.log, s.clock, s.handlers, files)
	s.tasks = &creator{s.cfg, s.log, s.ids, s.store, s.engine, s.templates, &s.draining}
	s.operator = &operator{s.cfg, s.store, s.engine}
	s.outside = &outsideActors{s.clock, s.store, s.engine, s.workerID, &s.draining}
	s.dlq = &deadLetters{s.clock, s.store, s.engine}
	s.staleness = &stalenessWatch{
		cfg: &s.cfg.Staleness, log: s.log, clock: s.clock, store: s.store, engine: s.engine, draining: &s.draining,
	}
	s.load = newLoadGauge(s.store)
	s.history = &historyReader{s.store, s.workerID}
	s.health = &health{
		cfg: s.cfg, clock: s.clock, auth: s.auth, store: s.store, engine: s.engine, draining: &s.draining,
		patience: schedulerPatience,
	}
}

func (s *service) uptimeSeconds() int64 { return max(int64(s.clock.now().sub(s.started).Seconds()), 0) }

// syncModes are the words of store.sync.
var syncModes = map[string]syncMode{"always": syncAlways, "interval": syncInterval, "never": syncNever}

func (s *service) openStore(o *serviceOptions) error {
	began := time.Now()
	jo := journalOptions{
		dir: s.cfg.Store.Path, memory: s.cfg.Store.Memory, sync: syncModes[s.cfg.Store.Sync],
		interval: time.Duration(s.cfg.Store.SyncIntervalMS) * time.Millisecond,
		slow:     time.Duration(s.cfg.Store.SlowSeconds) * time.Second,
		floor:    int64(s.cfg.Store.SnapshotJournalMB) << 20,
		fs:       o.disk, log: s.log, now: s.clock.now, until: o.until, shows: o.shows,
	}
	var err error
	if o.readOnly {
		s.store, err = openReadOnly(jo, s.clock, s.log)
	} else if o.state == nil {
		s.store, err = openStore(jo, s.cfg.Events.Keep, s.clock, s.log)
	} else {
		s.store, err = openStoreWith(jo, o.state, s.cfg.Events.Keep, s.clock, s.log)
	}
	if err != nil {
		return err
	}
	if tasks, records := s.store.size(); tasks > 0 {
		s.log.Info("the store was read", "tasks", tasks, "records", records, "took", time.Since(began).String())
	}
	s.store.retainUpTo(s.cfg.Store.retention(), &s.quotas.stored, &s.quotas.bodies.quota)
	s.store.keepRequests(s.cfg.Requests.limits())
	s.engine = newEngine(s.store, s.clock, s.handlers, s.ids, new(counters), s.cfg, s.log)
	s.store.attach(s.ids, s.engine)
	ctx, cancel := context.WithCancel(context.Background())
	s.stopKeeping = cancel
	if !jo.memory && !o.readOnly {
		s.keeping.Go(func() { s.store.runSnapshots(ctx) })
	}
	return nil
}

// warnOfChangedTemplates warns of templates whose unfinished tasks use another
// definition than the registered one.
func (s *service) warnOfChangedTemplates() {
	unfinished := map[*template]int{}
	s.store.locked(func() { s.store.eachLiveLocked(func(t *task) { unfinished[t.tpl]++ }) })
	for old, n := range unfinished {
		now, ok := s.templates.registry().get(old.namespace, old.name, old.version)
		switch {
		case !ok:
			s.log.Warn("a template is gone; its unfinished tasks keep the definition they were created with",
				"template", old.fullName(), "unfinished_tasks", n)
		case now.hash != old.hash:
			s.log.Warn("a template changed; its unfinished tasks keep the definition they were created with",
				"template", old.fullName(), "unfinished_tasks", n)
		}
		if faults := old.schemaFaults(); s.engine.schemas.on() && faults != nil {
			s.log.Warn("a schema cannot be enforced; unfinished tasks are not checked against it", "template", old.fullName(),
				"unfinished_tasks", n, "problem", faults[0].String())
		}
	}
}

// busy returns how many handlers run.
func (s *service) busy() int {
	if s.engine == nil {
		return 0
	}
	return s.engine.busy()
}

// finish refuses new work, lets running handlers go on until ctx ends, then cuts
// them off. Their attempts, which it describes, are delivered again after the next start.
func (s *service) finish(ctx context.Context) (cut []string) {
	s.draining.Store(true)
	if s.extension != nil {
		s.extension.stop()
	}
	if s.store != nil {
		s.store.releaseWaiters(waitShutdown)
		cut = s.engine.stop(ctx)
	}
	if s.publisher != nil {
		s.publisher.stop()
	}
	return cut
}

// notOpen returns why the service has no tasks, or nil.
func (s *service) notOpen() error {
	if p := s.health.starting; p != nil {
		return failf(unavailable, "%s", p)
	}
	return nil
}

// ready reports whether the service can do its work.
func (s *service) ready() bool { return s.health.ready() }

// close makes the store durable and closes it.
func (s *service) close() error {
	if s.store == nil {
		return nil
	}
	s.stopKeeping()
	s.keeping.Wait()
	return s.store.close()
}

// dropFinished drops finished tasks beyond the limits, one batch at a time so that
// other timers can fire in between, and then schedules the next task to grow too old.
func (s *service) dropFinished() {
	if s.draining.Load() {
		return
	}
	next, err := s.store.dropDue(s.clock.now())
	if err != nil {
		s.log.Warn("finished tasks could not be dropped; trying again later", "error", err)
	}
	if next != 0 {
		s.clock.scheduleHousekeeping(next, s.dropFinished)
	}
}

// openSeeded opens a service, with the state of a file unless seed is empty.
func openSeeded(seed string, o serviceOptions) (*service, error) {
	if seed == "" {
		return openService(o)
	}
	f, err := os.Open(seed)
	if err != nil {
		return nil, fmt.Errorf("--seed: %w", err)
	}
	defer f.Close()
	o.state = &stateSource{document: endedBy(o.until, f)}
	s, err := openService(o)
	if err != nil {
		return nil, fmt.Errorf("--seed %s: %w", seed, err)
	}
	return s, nil
}

// Health: whether the process lives, whether the service can do its work, and
// how hard it works. One table holds the checks of all surfaces.

// The statuses of a check.
const (
	healthyWord   = "healthy"
	degradedWord  = "degraded"
	unhealthyWord = "unhealthy"
	unknownWord   = "unknown"
)

// checkView is the result of one check. Only the worker sets LastChecked.
type checkView struct {
	Status      string    `json:"status"`
	Message     string    `json:"message"`
	DurationMS  int64     `json:"duration_ms"`
	LastChecked zonedTime `json:"last_checked,omitzero"`
}

// healthInfoView is the info of the orchestration role's health.
type healthInfoView struct {
	Version                       string `json:"version"`
	Environment                   string `json:"environment"`
	OperationalState              string `json:"operational_state"`
	WebDatabasePoolSize           int    `json:"web_database_pool_size"`
	OrchestrationDatabasePoolSize int    `json:"orchestration_database_pool_size"`
	CircuitBreakerState           string `json:"circuit_breaker_state"`
}

// aliveView is the answer of /health and /health/live.
type aliveView struct {
	Status    string    `json:"status"`
	Timestamp zonedTime `json:"timestamp"`
	WorkerID  string    `json:"worker_id,omitempty"`
}

// readyView is the answer of /health/ready and /health/detailed.
type readyView struct {
	aliveView
	Checks map[string]checkView `json:"checks"`
	Info   any                  `json:"info,omitempty"`
	System any                  `json:"system_info,omitempty"`
}

// health runs the checks of a service.
type health struct {
	cfg      *Config
	clock    clock
	auth     *authenticators
	store    *store  // nil with the worker role alone
	engine   *engine // likewise
	draining *atomic.Bool
	patience time.Duration // how long the scheduler may take to answer, in real time
	starting *readProgress // of a service that opens; nil for one that is open

	// extra holds checks of the orchestration role's /health/detailed that the
	// service does not know, by name.
	extra map[string]func() checkView
}

// schedulerPatience is the patience of a service's health checks.
const schedulerPatience = 2 * time.Second

// healthRow is one check with its name on each surface: "" where the surface
// does not have it, and two names where clients know it by two.
type healthRow struct {
	orchestration, worker, mount string
	detailed                     bool // part of /health/detailed only
	check                        func(*healthProbe) checkView
}

// healthTable holds every check but authentication, which each surface that asks
// for credentials has. Existing clients know the checks by these names.
var healthTable = []healthRow{
	{"web_database orchestration_database", "database", "database", false, (*healthProbe).journal},
	{"circuit_breaker", "", "", false, noBreaker},
	{"orchestration_system", "", "", false, accepting("new tasks are taken")},
	{"", "queue_processing", "", false, accepting("ready steps are started")},
	{"command_processor", "command_processor", "scheduler", false, (*healthProbe).scheduler},
	{"pool_utilization", "", "", true, loaded((*health).slotCheck)},
	{"queue_depth", "", "", true, loaded((*health).queueCheck)},
	{"channel_saturation", "", "", true, (*healthProbe).backlog},
	{"", "circuit_breakers", "", true, noBreaker},
	{"", "event_system", "", true, (*healthProbe).timers},
	{"", "step_processing", "", true, loaded((*health).processingCheck)},
}

// names returns the names of the check on a surface.
func (r *healthRow) names(surface string) []string {
	switch surface {
	case "worker":
		return strings.Fields(r.worker)
	case "mount":
		return strings.Fields(r.mount)
	}
	return strings.Fields(r.orchestration)
}

// checks runs the checks of a surface: those of /health/ready, and the others
// too if detailed is set. While the service starts, no result is known yet.
func (h *health) checks(surface string, detailed bool) map[string]checkView {
	if h.starting != nil {
		return eachCheck(surface, detailed, func(*healthRow) checkView {
			return checkView{Status: unknownWord, Message: h.starting.String()}
		})
	}
	p := &healthProbe{health: h}
	checks := eachCheck(surface, detailed, func(r *healthRow) checkView { return r.check(p) })
	if a := h.auth.of(surface); a.config.Enabled {
		checks["authentication"] = h.timed("credentials can be verified", a.ready)
	}
	if detailed && surface == "orchestration" {
		for name, check := range h.extra {
			checks[name] = check()
		}
	}
	return checks
}

func eachCheck(surface string, detailed bool, run func(*healthRow) checkView) map[string]checkView {
	checks := map[string]checkView{}
	for i := range healthTable {
		r := &healthTable[i]
		names := r.names(surface)
		if len(names) == 0 || r.detailed && !detailed {
			continue
		}
		v := run(r)
		for _, name := range names {
			checks[name] = v
		}
	}
	return checks
}

// ready reports whether every check of /health/ready is healthy.
func (h *health) ready() bool {
	surface := "orchestration"
	if h.engine == nil {
		surface = "worker"
	}
	for _, c := range h.checks(surface, false) {
		if c.Status != healthyWord {
			return false
		}
	}
	return h.auth.ready() == nil
}

// operationalState returns the state of the service.
func (h *health) operationalState() string {
	switch {
	case h.starting != nil:
		return "Startup"
	case h.draining.Load():
		return "GracefulShutdown"
	}
	return "Normal"
}

// healthInfo returns the info of the orchestration role in an operational state.
func healthInfo(c *Config, state string) healthInfoView {
	return healthInfoView{
		Version: version, Environment: c.Environment, OperationalState: state,
		WebDatabasePoolSize: 1, OrchestrationDatabasePoolSize: 1, CircuitBreakerState: "Closed",
	}
}

// timed runs a check and measures how long it takes.
func (h *health) timed(healthy string, check func() error) checkView {
	began := h.clock.now()
	err := check()
	took := max(h.clock.now().sub(began), 0) // the clock may have been set back
	v := checkView{Status: healthyWord, Message: healthy, DurationMS: took.Milliseconds()}
	if err != nil {
		v.Status, v.Message = unhealthyWord, err.Error()
	}
	return v
}

// graded returns the result of a check, degraded or healthy.
func graded(degraded bool, format string, args ...any) checkView {
	v := checkView{Status: healthyWord, Message: fmt.Sprintf(format, args...)}
	if degraded {
		v.Status = degradedWord
	}
	return v
}

// unhealthy returns the result of a check that failed.
func unhealthy(format string, args ...any) checkView {
	return checkView{Status: unhealthyWord, Message: fmt.Sprintf(format, args...)}
}

// The checks themselves.

// healthProbe is one run of the checks: it asks the engine once.
type healthProbe struct {
	*health
	asked    bool
	load     *engineLoad // nil if the engine did not answer
	answered checkView   // whether it did
}

// engineLoad is the work of the engine at one moment.
type engineLoad struct {
	stopping                bool
	localQueued, httpQueued int // ready steps that wait for a slot
	localFree, httpFree     int // slots
}

// workerAlone is the result of checks that need a store or an engine, in a
// process without one.
var workerAlone = checkView{Status: healthyWord, Message: "not used: this process has the worker role alone"}

// noBreaker checks the circuit breakers, which a single process does not need.
func noBreaker(*healthProbe) checkView {
	return checkView{Status: healthyWord, Message: "not used; Closed"}
}

// journal checks whether changes can be recorded now.
func (p *healthProbe) journal() checkView {
	if p.store == nil {
		return workerAlone
	}
	return p.timed("the journal can be written", func() error {
		if st := p.store.status(); !st.writable {
			return fmt.Errorf("changes cannot be recorded: %s", st.reason)
		}
		return nil
	})
}

// accepting checks whether the service takes new work.
func accepting(healthy string) func(*healthProbe) checkView {
	return func(p *healthProbe) checkView {
		if p.engine == nil {
			return workerAlone
		}
		return p.timed(healthy, func() error {
			if p.draining.Load() {
				return errors.New("the service is shutting down")
			}
			return nil
		})
	}
}

// scheduler checks whether the engine answers and is not stopping.
func (p *healthProbe) scheduler() checkView {
	if p.engine == nil {
		return workerAlone
	}
	if !p.asked {
		p.asked, p.answered = true, p.timed("the scheduler answers", p.askEngine)
	}
	return p.answered
}

// askEngine reads the engine's load under the store's lock, which a stuck engine
// does not release.
func (p *healthProbe) askEngine() error {
	answer := make(chan *engineLoad, 1)
	go func() {
		p.store.locked(func() {
			e := p.engine
			answer <- &engineLoad{e.stopping, len(e.local.ready.items), len(e.web.ready.items), e.local.free, e.web.free}
		})
	}()
	switch p.load, _ = receiveWithin(answer, p.patience); {
	case p.load == nil:
		return fmt.Errorf("the scheduler did not answer within %s", p.patience)
	case p.load.stopping:
		return errors.New("the scheduler is stopping")
	}
	return nil
}

// loaded returns a check of the engine's load.
func loaded(check func(*health, *engineLoad) checkView) func(*healthProbe) checkView {
	return func(p *healthProbe) checkView {
		if p.engine == nil {
			return workerAlone
		}
		if p.scheduler(); p.load == nil {
			return checkView{Status: unknownWord, Message: "the scheduler does not answer"}
		}
		return check(p.health, p.load)
	}
}

// The levels at which a check is degraded.
const (
	queueWarning  = 80              // percent of engine.max_queued
	bufferWarning = 4 << 20         // bytes that wait to be written to the journal
	timerPatience = 2 * time.Second // how late a timer may fire
)

// slotCheck checks whether each kind of handler has a free slot.
func (h *health) slotCheck(l *engineLoad) checkView {
	c := &h.cfg.Worker
	return graded(l.localFree <= 0 || l.httpFree <= 0,
		"%d of %d slots for builtins and programs and %d of %d for HTTP handlers are taken",
		c.Concurrency-l.localFree, c.Concurrency, c.HTTPConcurrency-l.httpFree, c.HTTPConcurrency)
}

// queueCheck checks how close the ready steps are to the number at which new
// tasks are refused.
func (h *health) queueCheck(l *engineLoad) checkView {
	n, most := l.localQueued+l.httpQueued, h.cfg.Engine.MaxQueued
	if n >= most {
		return unhealthy("%s for a slot; new tasks are refused from %d on", stepsWaiting(n), most)
	}
	return graded(n*100 >= most*queueWarning, "%s for a slot; at most %d may", stepsWaiting(n), most)
}

// processingCheck checks whether ready steps wait because all slots are taken.
func (h *health) processingCheck(l *engineLoad) checkView {
	starved := l.localQueued > 0 && l.localFree <= 0 || l.httpQueued > 0 && l.httpFree <= 0
	return graded(starved, "%s for a slot", stepsWaiting(l.localQueued+l.httpQueued))
}

func stepsWaiting(n int) string { return counted(n, "step waits", "steps wait") }

// backlog checks whether the disk keeps up with the changes.
func (p *healthProbe) backlog() checkView {
	n := p.store.status().backlog
	if p.store.behind() != nil {
		return unhealthy("%d bytes wait to be written to the journal; new tasks are refused", n)
	}
	return graded(n >= bufferWarning, "%d bytes wait to be written to the journal", n)
}

// timers checks whether delays end in time; those of a virtual clock always do.
func (p *healthProbe) timers() checkView {
	if p.engine == nil {
		return workerAlone
	}
	return p.timed("timers fire when they are due", func() error {
		c, ok := p.clock.(interface{ overdue() time.Duration })
		if !ok {
			return nil
		}
		if late := c.overdue(); late > timerPatience {
			return fmt.Errorf("timers fire %s late", late.Round(time.Second))
		}
		return nil
	})
}

// Load beyond what the process can do. A trial takes the way of a request without doing
// anything: it waits in turn for the processor, for the store's lock and, like a change,
// for the disk. There is one trial at a time for reads and one for changes, at the earliest
// after loadFloor requests, so that few requests cost nothing and are never refused.

const (
	loadFloor = 64                     // requests behind a trial, or unanswered, that make no overload
	maxDelay  = 100 * time.Millisecond // a trial that takes longer has requests refused
)

// loadGauge measures how long requests have to wait before anything is done for them.
type loadGauge struct {
	reads, changes delayTrial
	open           atomic.Int64 // requests that are not answered yet
	refused        atomic.Uint64
}

func newLoadGauge(s *store) *loadGauge {
	g := &loadGauge{}
	g.reads.open, g.changes.open = &g.open, &g.open
	if g.reads.wait, g.changes.wait = func() {}, func() {}; s != nil {
		g.reads.wait = func() { s.locked(func() {}) }
		g.changes.wait = func() { s.waitAll(context.Background()) } // an error has its own refusal
	}
	return g
}

// refusal counts a request and returns why it is refused, or nil.
func (g *loadGauge) refusal(change bool) error {
	t := &g.reads
	if change {
		t = &g.changes
	}
	if !t.arrive() {
		return nil
	}
	g.refused.Add(1)
	return &failure{kind: overloaded, retryAfter: time.Second,
		message: "more requests arrive than can be answered in time: nothing was done for this one"}
}

// delayTrial is the trial for one kind of request.
type delayTrial struct {
	wait    func()        // for what such a request needs
	open    *atomic.Int64 // requests of any kind that are not answered yet
	arrived atomic.Uint64 // requests
	from    atomic.Uint64 // as many had arrived when the latest trial began
	began   atomic.Int64  // when the present trial did, in real time; 0 for none
	ended   atomic.Int64  // when the latest one ended if that took too long; 0 otherwise
}

// arrive counts a request, begins a trial if it is time for one, and reports whether the
// request comes too late to be answered in time.
func (t *delayTrial) arrive() (late bool) {
	behind := t.arrived.Add(1) - t.from.Load()
	began, ended := t.began.Load(), t.ended.Load()
	if began == 0 && ended == 0 && behind < loadFloor {
		return false
	}
	now := realNow()
	if began == 0 && t.began.CompareAndSwap(0, int64(now)) {
		t.from.Store(t.arrived.Load())
		go t.run(now)
	}
	return t.open.Load() > loadFloor &&
		(began != 0 && behind > loadFloor && now.sub(instant(began)) > maxDelay ||
			ended != 0 && now.sub(instant(ended)) < maxDelay)
}

// run is a trial.
func (t *delayTrial) run(began instant) {
	runtime.Gosched()
	t.wait()
	now := realNow()
	ended := int64(0)
	if now.sub(began) > maxDelay && t.arrived.Load()-t.from.Load() > loadFloor {
		ended = int64(now)
	}
	t.ended.Store(ended)
	t.began.Store(0)
}
