package main

// The service family: what can be done with tasks, by subject. A service is one isolated set of tasks with its own
// clock, ids, store and engine; a process may have several. It uses the engine and everything below; it does not know
// HTTP or who asks.
//
//	service.go          opening and closing a service; quotas
//	service_find.go     finding anything that has a text
//	service_health.go   health checks
//	service_create.go   creating tasks, repeated submissions; repeating a task from a step
//	service_template.go the catalog of templates: finding, adding, validating them
//	service_act.go      actions of operators, adjustments
//	service_bulk.go     bulk actions: one on all that a filter selects
//	service_outside.go  outside actors: claims and answers
//	service_dlq.go      the dead letter queue; failures by cause, in groups
//	service_stale.go    staleness of tasks
//	service_view.go     views of tasks and steps, the summary of a task
//	service_history.go  history: transitions, the audit of a step
//	service_analysis.go the analysis of a task's dependencies
//	service_publish.go  publishing domain events to subscribers

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

// service is one isolated set of tasks with its own time and ids, and the engine that runs them. A process may have
// several. Store and engine are nil if the process has only the worker role.
type service struct {
	cfg       *Config
	log       *slog.Logger
	auth      authenticators // of the surfaces; may be another service's too
	clock     clock
	ids       *idSource
	handlers  *handlerSet // how steps are run
	store     *store
	engine    *engine
	workerID  string // under which this process runs steps
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
	publisher *publisher      // domain events to subscribers; nil with only the worker role

	stopKeeping context.CancelFunc // ends the compactions
	keeping     sync.WaitGroup
}

// extension lets a higher family add to a service. It may extend the service's surfaces, too.
type extension interface {
	attach(s *service) // when the store is open, before the engine starts
	stop()             // before the engine stops
}

// serviceOptions are the parts that a service is opened with.
type serviceOptions struct {
	cfg      *Config
	log      *slog.Logger
	auth     authenticators
	clock    clock
	files    *atomic.Pointer[registry] // the templates of files, which watching may replace
	handlers *handlerSet
	disk     diskFS       // nil for the real one
	failed   func(error)  // learns that a write or sync of the store failed; nil for nobody
	state    *stateSource // for a store that is empty; nil for none

	extension extension       // nil for none
	quotas    *quotas         // of the process; nil for its own
	until     context.Context // opening fails when it ends; nil for never
	shows     *readProgress   // of opening; nil for nobody
	flushLog  func()          // waits until what was logged is written; nil for a log that is written at once

	deterministic string // ids and random numbers are derived from it; "" for real ones
}

// idSource returns the source of ids and random numbers.
func (o *serviceOptions) idSource() *idSource {
	if o.deterministic != "" {
		return newDerivedIDs(o.clock, o.deterministic)
	}
	return newIDSource(o.clock, nil)
}

// startingService returns a service for the time in which another one opens: it has no tasks, and answers what
// needs none.
func startingService(o *serviceOptions) *service {
	s := newService(o)
	s.assemble(o.files)
	s.health.starting = o.shows
	return s
}

// newService returns a service without a store.
func newService(o *serviceOptions) *service {
	s := &service{
		cfg: o.cfg, log: o.log, auth: o.auth, clock: o.clock, ids: o.idSource(),
		handlers: o.handlers, workerID: "stepwell-" + o.cfg.Role, extension: o.extension,
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
		s.assemble(o.files)
		return s, nil
	}
	if err := s.openStore(&o); err != nil {
		return nil, err
	}
	if o.until != nil && o.until.Err() != nil {
		return nil, errors.Join(o.until.Err(), s.close())
	}
	s.publisher = newPublisher(s)
	if len(s.publisher.subscribers) > 0 {
		s.engine.hooks.sending = s.publisher.sendingLocked
	}
	if s.extension != nil {
		s.extension.attach(s)
	}
	s.assemble(o.files)
	s.warnOfChangedTemplates()
	// Before the engine, whose steps may publish events: a new subscriber gets only later ones.
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

// resumeClock sets the clock to the time in the state, and counts the uptime from there.
func (s *service) resumeClock() {
	s.store.resumeClock()
	s.started = s.clock.now()
}

// assemble makes the parts of the service, each with what it needs.
func (s *service) assemble(files *atomic.Pointer[registry]) {
	s.templates = &catalog{cfg: s.cfg, log: s.log, clock: s.clock, handlers: s.handlers, files: files}
	s.templates.followLocked() // nobody else has it yet
	s.tasks = &creator{s.cfg, s.log, s.ids, s.store, s.engine, s.templates, &s.draining}
	s.operator = &operator{s.cfg, s.store, s.engine}
	s.outside = &outsideActors{s.clock, s.store, s.engine, s.workerID, s.cfg.Console.People, &s.draining}
	s.dlq = &deadLetters{s.clock, s.store, s.engine}
	s.staleness = &stalenessWatch{
		cfg: &s.cfg.Staleness, log: s.log, clock: s.clock, store: s.store, engine: s.engine, draining: &s.draining,
	}
	s.history = &historyReader{s.store, s.workerID}
	s.health = &health{
		cfg: s.cfg, clock: s.clock, auth: s.auth, store: s.store, engine: s.engine, draining: &s.draining,
		patience: schedulerPatience,
	}
}

func (s *service) uptimeSeconds() int64 { return max(int64(s.clock.now().sub(s.started).Seconds()), 0) }

// syncModes are the words of store.sync.
var syncModes = map[string]syncMode{"always": syncAlways, "never": syncNever}

// deriveStore makes the id of a store, its lives and the key of its failure groups follow from a seed, if ids do.
func deriveStore(o *journalOptions, ids *idSource) {
	if ids.derives() {
		o.id = storeID(ids.derivedKey("store"))
		o.key, o.seed = ids.derivedKey("failure groups"), ids.derivedKey("lives")
	}
}

func (s *service) openStore(o *serviceOptions) error {
	began := time.Now()
	jo := journalOptions{
		dir: s.cfg.Store.Path, memory: s.cfg.Store.Memory, sync: syncModes[s.cfg.Store.Sync],
		failed: o.failed, fs: o.disk, log: s.log, now: s.clock.now, until: o.until, shows: o.shows,
	}
	deriveStore(&jo, s.ids)
	var err error
	if o.state == nil {
		s.store, err = openStore(jo, s.cfg.Events.Keep, s.clock, s.log)
	} else {
		s.store, err = openStoreWith(jo, o.state, s.cfg.Events.Keep, s.clock, s.log)
	}
	if err != nil {
		return err
	}
	if o.state != nil {
		for _, loss := range o.state.losses {
			s.log.Warn("the state is not complete", "problem", loss)
		}
	}
	if tasks, records := s.store.size(); tasks > 0 {
		s.log.Info("the store was read", "tasks", tasks, "records", records, "took", time.Since(began).String())
	}
	// Limits apply only from here on: while the files were read, tasks were dropped by their records alone.
	s.store.retention().keepUpTo(s.cfg.Store.retention(), &s.quotas.stored)
	s.store.requestKeys().keepUpTo(s.cfg.Requests.limits())
	s.engine = newEngine(s.store, s.clock, s.handlers, s.ids, new(counters), s.cfg, s.log)
	s.engine.schemas.memory = &s.quotas.memory
	s.store.attach(s.ids, s.engine)
	ctx, cancel := context.WithCancel(context.Background())
	s.stopKeeping = cancel
	if !jo.memory {
		s.keeping.Go(func() { s.store.keepCompact(ctx) })
	}
	return nil
}

// warnOfChangedTemplates warns of templates whose unfinished tasks use another definition than the registered one.
func (s *service) warnOfChangedTemplates() {
	unfinished := map[*template]int{}
	s.store.locked(func() { s.store.table().eachLive(func(t *task) { unfinished[t.tpl]++ }) })
	for old, n := range unfinished {
		now, ok := s.templates.registry().get(old.namespace, old.name, old.version)
		switch {
		case !ok:
			s.log.Warn("a template was removed; its unfinished tasks keep the definition they were created with",
				"template", old.fullName(), "unfinished_tasks", n)
		case now.hash != old.hash:
			s.log.Warn("a template changed; its unfinished tasks keep the definition they were created with",
				"template", old.fullName(), "unfinished_tasks", n)
		}
		if faults := old.schemaFaults(nil); s.engine.schemas.on() && faults != nil {
			s.log.Warn("a schema cannot be enforced; unfinished tasks are not checked against it", "template", old.fullName(),
				"unfinished_tasks", n, "problem", faults[0].String())
		}
	}
}

// busy returns how many handlers run.
func (s *service) busy() (n int) {
	if s.engine != nil {
		s.store.locked(func() { n = len(s.engine.work.inFlight) })
	}
	return n
}

// finish refuses new work, lets running handlers continue until ctx ends, then cuts
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
	s.keeping.Wait() // the store must not be closed while it is compacted
	return s.store.close()
}

// dropFinished drops finished tasks beyond the limits, one batch at a time so that
// other timers can fire in between, and then schedules the next task to grow too old.
func (s *service) dropFinished() {
	if s.draining.Load() {
		return
	}
	next, err := s.store.retention().dropDue(s.clock.now())
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
	o.state = &stateSource{document: startReader{Reader: f, until: o.until}}
	s, err := openService(o)
	if err != nil {
		return nil, fmt.Errorf("--seed %s: %w", seed, err)
	}
	return s, nil
}

// Limits on what all callers of a process use together. What is beyond one of them is refused with quota.refuse.

// quotas bound what all callers of a process use together. All its services share them.
type quotas struct {
	connections quota
	requests    quota // at work: without those that wait, and event streams
	waiting     quota // requests that wait for a task, or for a step to claim
	streams     quota // of events
	actions     quota // on many, under way
	memory      quota // bytes, of bodies and answers under way and what is decoded from bodies
	stored      quota // bytes of tasks

	lostLines *atomic.Uint64 // of the log
}

const (
	maxRequests      = 1000     // at work at once
	maxActions       = 4        // on many, at once
	maxRequestMemory = 64 << 20 // bytes, of all requests together
)

// What the memory that the process can get is for. While something else has the processors, there may be much garbage:
// the collector then lets the heap grow.
const (
	ownMemory          = 32 << 20 // bytes, for all but tasks; half of what is left is for tasks, and half for garbage
	requestMemoryShare = 8        // one eighth, up to maxRequestMemory
	assumedMemory      = 4 << 30  // bytes, of a machine that does not say how much it has
)

func newQuotas(c *Config) *quotas {
	q := &quotas{lostLines: new(atomic.Uint64)}
	q.connections.most = int64(c.Web.MaxConnections)
	q.requests.most = maxRequests
	q.waiting.most = (2*q.connections.most + 2) / 3 // others have connections left
	q.streams.most, q.actions.most = int64(c.Events.MaxStreams), maxActions
	q.memory.most = min(availableMemory()/requestMemoryShare, maxRequestMemory)
	q.stored.most = c.Store.memory()
	return q
}

// memory returns the memory for tasks, in bytes.
func (c *storeConfig) memory() int64 {
	if c.MaxMemoryMB > 0 {
		return int64(c.MaxMemoryMB) << 20
	}
	n := availableMemory()
	return max((n-ownMemory)/2, n/8)
}

// availableMemory returns how much memory the process can get, in bytes. Each sandbox asks.
var availableMemory = sync.OnceValue(func() int64 {
	n := cmp.Or(machineMemory(), assumedMemory)
	if most := cgroupMemory(os.DirFS("/")); most > 0 {
		n = min(n, most)
	}
	return n
})

// named returns every quota with its name in the metrics.
func (q *quotas) named() []namedQuota {
	return []namedQuota{
		{"connections", &q.connections}, {"requests", &q.requests}, {"waiting_requests", &q.waiting},
		{"event_streams", &q.streams}, {"actions", &q.actions}, {"request_bytes", &q.memory}, {"stored_bytes", &q.stored},
	}
}

type namedQuota struct {
	name string
	*quota
}
