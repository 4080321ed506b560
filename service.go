package main

// The service family: what can be done with tasks, by subject. A service is one
// isolated set of tasks with its own clock, ids, store and engine; a process may
// have several. It uses the engine and everything below; it does not know HTTP
// or who asks.
//
//	service.go           opening and closing a service, and its parts
//	service_create.go    creating tasks, repeated requests, waiting for a task
//	service_act.go       actions of operators, adjustments, claims of outside actors
//	service_dlq.go       the dead letter queue, staleness
//	service_template.go  templates: look-ups, views, validation, adding them
//	service_view.go      views of tasks and steps, summary, transitions, audit
//	service_analysis.go  the analysis of a task's dependencies
//	service_health.go    the checks of the health endpoints

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
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
	seed     *[32]byte // of ids and random numbers; nil for the operating system's
	registry *registry
	handlers *handlerSet
	disk     diskFS       // nil for the real one
	state    *stateSource // for a store that is empty; nil for none

	extension extension       // nil for none
	quotas    *quotas         // of the process; nil for its own
	until     context.Context // opening fails when it ends; nil for never

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

// openService recovers the store and starts the engine.
func openService(o serviceOptions) (*service, error) {
	s := &service{
		cfg: o.cfg, log: o.log, auth: o.auth, clock: o.clock, ids: o.idSource(),
		handlers: o.handlers, workerID: workerID(o.cfg), extension: o.extension,
		started: o.clock.now(), stopKeeping: func() {}, quotas: o.quotas,
	}
	if s.quotas == nil {
		s.quotas = newQuotas(o.cfg)
	}
	if o.cfg.Role == "worker" {
		s.assemble(o.registry)
		return s, nil
	}
	if err := s.openStore(&o); err != nil {
		return nil, err
	}
	if o.readOnly {
		s.assemble(o.registry)
		return s, nil
	}
	if o.until != nil && o.until.Err() != nil {
		return nil, errors.Join(o.until.Err(), s.close())
	}
	if s.extension != nil {
		s.extension.attach(s)
	}
	s.assemble(o.registry)
	s.warnOfChangedTemplates()
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
func (s *service) assemble(r *registry) {
	s.templates = newCatalog(s.cfg, s.log, s.clock, s.handlers, r)
	s.tasks = &creator{s.cfg, s.ids, s.store, s.engine, s.templates, &s.draining}
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
		fs:       o.disk, log: s.log, now: s.clock.now, until: o.until,
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
	return cut
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
