package main

// The engine family: which step of which task runs now. It decides; the records
// that it appends change the tasks. It knows the store, tasks and handlers; it
// knows neither what a client may ask for nor HTTP interfaces.
//
//	engine.go          start and stop, the queues of ready steps, slots, idleness, and the hooks for others
//	engine_attempt.go  attempts: their start, their outcome, retries, and how a restart resumes them
//	engine_claim.go    steps for outside actors: claims, their index, leases
//	engine_explain.go  why a task makes no progress, for the API and for the log

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// inlineBudget is how many builtin steps the goroutine that made them ready
// runs itself before it leaves the rest to the scheduler: a small task of
// builtins is done before its creator is answered, a large one delays nobody.
const inlineBudget = 64

// maxTargets bounds the templates whose targets the engine remembers.
const maxTargets = 1000

// engine runs the ready steps of one service.
type engine struct {
	store    *store
	clock    clock
	ids      *idSource // for jitter and tokens
	handlers *handlerSet
	stats    *counters
	log      *slog.Logger
	jitter   bool
	causes   *causeLog
	schemas  schemaGuard
	hooks    // set before the start

	ctx    context.Context // of the running handlers
	cancel context.CancelFunc
	kick   chan struct{}  // holds a token when the scheduler should look
	wg     sync.WaitGroup // scheduler, and handlers in flight

	// guarded by the store's lock, as all below
	local    slotPool          // for builtins, programs and whatever else is not HTTP
	web      slotPool          // for HTTP handlers
	readied  uint64            // how many steps were queued, ever
	retries  map[runKey]*timer // of the steps that wait for a retry
	running  map[runKey]*run   // attempts in flight, delays of our own among them
	inFlight map[*run]struct{} // handlers in flight, and outcomes that the store could not take yet
	targets  map[*template][]target
	gates    map[runKey]*batchGate // by task and batch_worker step, of those with instances that may run
	outside  outsideWork
	stopping bool
	follows  **handlerRun // takes an attempt that the pumping goroutine runs next; nil if none, and while the lock is free

	// Work in hand that no queue shows: what moves from one place to another
	// enters the next before it leaves the one before.
	computing int // builtins
	owed      int // changes, other than outcomes, that the store could not take yet
}

// hooks let a family above take part in an engine. Each is set before the engine
// starts, or nil. Their methods are called under the store's lock, unless they say
// otherwise.
type hooks struct {
	substitute substitute
	observer   attemptObserver
	pacer      pacer
	idled      func()      // called when the engine may have become idle
	sending    func() bool // reports work that outcomes leave outside the engine
}

// substitute takes the place of the handlers of steps.
type substitute interface {
	// mayPlay reports whether it may take the place of the outside actor of a step.
	mayPlay(t *task, i int) bool
	// play starts a step that left its queue, and reports whether it did. With an
	// error nothing has happened.
	play(t *task, i int, g target) (played bool, err error)
}

// attemptObserver sees the attempts that handlers of this process make.
type attemptObserver interface {
	// ran sees an attempt that started and ended at once.
	ran(t *task, i, number int, o outcome)
	// started sees an attempt begin, and returns who is to see its outcome.
	started(t *task, k *run) outcomeObserver
}

// outcomeObserver sees the outcome of one attempt, more than once where the store
// could not take it.
type outcomeObserver interface{ ended(o outcome) }

// pacer decides when ready steps start and when their outcomes are recorded.
type pacer interface {
	// busy reports work of this moment that the engine's queues do not show.
	busy() bool
	// pump starts ready steps.
	pump()
	// runBuiltin runs a builtin.
	runBuiltin(t *task, i int, g target) error
	// join sees a handler about to be called.
	join(k *run)
	// ended takes an outcome, to record it later, if it reports true; nil stands for
	// none. It is called without the lock, as all below.
	ended(k *run, o *outcome) bool
	// inTurn calls f under the lock, once nothing else moves.
	inTurn(ctx context.Context, f func() error) error
}

func newEngine(s *store, c clock, h *handlerSet, ids *idSource, stats *counters, cfg *Config, log *slog.Logger) *engine {
	e := &engine{
		store: s, clock: c, ids: ids, handlers: h, stats: stats, log: log, jitter: cfg.Engine.Jitter,
		causes:   newCauseLog(log, h),
		schemas:  schemaGuard{mode: cfg.Templates.EnforceInputSchema},
		kick:     make(chan struct{}, 1),
		local:    newSlotPool("builtins and programs", cfg.Worker.Concurrency),
		web:      newSlotPool("HTTP handlers", cfg.Worker.HTTPConcurrency),
		running:  map[runKey]*run{},
		inFlight: map[*run]struct{}{},
		retries:  map[runKey]*timer{},
		targets:  map[*template][]target{},
		gates:    map[runKey]*batchGate{},
		outside:  newOutsideWork(),
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// start resumes the unfinished tasks and begins to schedule.
func (e *engine) start() error {
	if err := e.resumeAll(); err != nil {
		return err
	}
	e.causes.start()
	e.wg.Go(e.schedule)
	e.wg.Go(e.feed)
	e.wakeUp()
	return nil
}

// busy returns how many handlers run.
func (e *engine) busy() (n int) {
	e.store.locked(func() { n = len(e.inFlight) })
	return n
}

// stop starts nothing more, lets running handlers go on until ctx ends, then cuts them
// off: their attempts, which it describes, are delivered again after the next start. It does
// not wait for an attempt that syncs while the disk hangs.
func (e *engine) stop(ctx context.Context) (cut []string) {
	e.store.locked(func() { e.stopping = true })
	e.wakeUp()
	e.wakeFeeder()
	done := make(chan struct{})
	go func() {
		e.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	var running []runKey
	e.store.locked(func() { running = slices.Collect(maps.Keys(e.running)) })
	e.cancel()
	e.store.locked(func() {
		for k := range e.inFlight {
			if k.cancel != nil { // a builtin has nothing to cancel, but its outcome may be in flight
				k.cancel()
			}
		}
	})
	select {
	case <-done:
	case <-e.store.hung():
	}
	e.causes.stop()
	e.store.locked(func() { cut = e.cutLocked(running) })
	return cut
}

// cutLocked describes those of the attempts that did not end.
func (e *engine) cutLocked(running []runKey) (cut []string) {
	for _, k := range running {
		if t := e.store.liveLocked(k.task); t != nil && t.steps[k.step].state == stepInProgress {
			cut = append(cut, fmt.Sprintf("attempt %d of step %s of task %s (%s)",
				t.steps[k.step].attempts, t.def(k.step).name, t.id, t.tpl.fullName()))
		}
	}
	return cut
}

// change is store.update for callers outside the engine. With a pacer the change
// waits for its turn, and the steps that it makes ready start before change returns.
func (e *engine) change(ctx context.Context, decide func(c *change) error) (seq uint64, err error) {
	seq, err = e.turn(ctx, func() error { return e.store.updateLocked(decide) })
	if err != nil {
		err = e.store.refuse(ctx, err)
	}
	return seq, err
}

// changeEach is change for n decisions at once, each of which stands or is refused by itself.
func (e *engine) changeEach(
	ctx context.Context, n int, refused func(i int, err error), decide func(c *change, i int) error,
) (seq uint64, err error) {
	return e.turn(ctx, func() error {
		for i := range n {
			if err := e.store.updateLocked(func(c *change) error { return decide(c, i) }); err != nil {
				refused(i, err)
			}
		}
		return nil
	})
}

// turn calls f, which changes the store, as inTurn does, and returns the sequence that covers what f
// has seen. The steps that became ready go to those who wait for them or, with a pacer, start.
func (e *engine) turn(ctx context.Context, f func() error) (seq uint64, err error) {
	err = e.inTurn(ctx, func() error {
		err := f()
		seq = e.store.seqLocked()
		if e.pacer == nil {
			e.feedLocked() // now, so that claims take no further sync
		}
		return err
	})
	if e.pacer != nil {
		e.pump(inlineBudget)
	}
	return seq, err
}

// inTurn calls f under the store's lock; with a pacer when it is its turn.
func (e *engine) inTurn(ctx context.Context, f func() error) (err error) {
	if e.pacer != nil {
		return e.pacer.inTurn(ctx, f)
	}
	e.store.locked(func() { err = f() })
	return err
}

// Scheduling: ready steps on free slots.

// wakeUp tells the scheduler to look at its queues.
func (e *engine) wakeUp() { offerToken(e.kick) }

// schedule runs ready steps until the engine stops.
func (e *engine) schedule() {
	for range e.kick {
		if e.pump(math.MaxInt) {
			return
		}
	}
}

// pump starts ready steps, best first, as long as slots are free, and runs up
// to budget builtins in this goroutine. It reports whether the engine stops.
func (e *engine) pump(budget int) (stopping bool) {
	e.store.locked(func() {
		if e.pacer != nil {
			e.pacer.pump()
		} else {
			e.pumpLocked(budget)
		}
		stopping = e.stopping
		e.checkIdleLocked()
	})
	return stopping
}

func (e *engine) pumpLocked(budget int) {
	for !e.stopping {
		it, ok := e.nextLocked()
		if !ok {
			e.causes.slots(&e.local, e.clock.now)
			e.causes.slots(&e.web, e.clock.now)
			return
		}
		if budget == 0 {
			e.requeueLocked(it)
			e.wakeUp()
			return
		}
		if !e.tryLaunchLocked(it) {
			return
		}
		budget--
	}
}

// tryLaunchLocked starts a step that left its queue. It reports whether the store
// took that; otherwise the scheduler looks again later.
func (e *engine) tryLaunchLocked(it readyStep) bool {
	err := e.launchLocked(it)
	if err != nil {
		e.requeueLocked(it)
		e.log.Debug("no step can start", "error", err)
		afterReal(outcomeRetryEvery, e.wakeUp)
	}
	return err == nil
}

// launchLocked starts a step that left its queue. On an error, with which the
// store refuses changes for now, the step is still enqueued.
func (e *engine) launchLocked(it readyStep) error {
	t, i := it.task, it.step
	if !t.runnable(i) {
		t.steps[i].queued = false
		return nil
	}
	if err := e.store.behind(); err != nil {
		return err
	}
	g := e.targetLocked(t, i)
	if e.substitute != nil {
		if played, err := e.substitute.play(t, i, g); played {
			return err
		}
	}
	switch {
	case g.kind == builtinHandler && e.pacer != nil:
		return e.pacer.runBuiltin(t, i, g)
	case g.kind == builtinHandler:
		return e.runBuiltinLocked(t, i, g)
	}
	t.steps[i].queued = false
	if g.kind == outsideActor { // the substitute left it to an actor after all
		e.offerLocked(t, i)
		return nil
	}
	return e.startHandlerLocked(t, i, g)
}

// runnable reports whether the step may start now. In a blocked task none may.
func (t *task) runnable(i int) bool {
	return t.steps[i].state == stepEnqueued && t.state == taskStepsInProcess
}

// targetLocked returns what runs a step.
func (e *engine) targetLocked(t *task, i int) target {
	tpl := t.tpl
	all, ok := e.targets[tpl]
	if !ok {
		if len(e.targets) >= maxTargets { // of templates that may be gone
			clear(e.targets)
		}
		for j := range tpl.steps {
			all = append(all, e.handlers.resolve(tpl.steps[j].callable))
		}
		e.targets[tpl] = all
	}
	return all[t.declared(i)]
}

// Observing the store: what a transition means for the engine.

// taskMoved, under the store's lock, queues the ready steps of a task that goes on after
// it was blocked: they may have left their queues meanwhile.
func (e *engine) taskMoved(t *task, from, to taskState, _ instant) {
	e.stats.taskMoved(t, to)
	if to == taskBlockedByFailures {
		e.causes.blocked(t)
	}
	if to == taskError {
		e.withdrawLocked(t)
		for d := range t.tpl.steps {
			delete(e.gates, runKey{t.id, d})
		}
	}
	if to != taskEvaluatingResults || from != taskBlockedByFailures && from != taskError {
		return
	}
	for i := range t.steps {
		if t.steps[i].state == stepEnqueued {
			e.enqueueLocked(t, i)
		}
	}
}

// stepMoved, under the store's lock, queues a step that became ready, sets the
// timer of one that waits for a retry, and cuts off a handler whose step went on
// without it.
func (e *engine) stepMoved(t *task, i int, from, to stepState, _ instant) {
	e.stats.stepMoved(from, to)
	switch to {
	case stepEnqueued:
		e.enqueueLocked(t, i)
	case stepWaitingForRetry:
		e.armRetry(t, i, t.steps[i].retryAt)
		e.causes.retryScheduled(t, i)
	}
	switch from {
	case stepWaitingForRetry:
		e.disarmRetryLocked(t, i)
	case stepEnqueued:
		e.outside.waiting.remove(runKey{t.id, i})
	case stepInProgress:
		e.leaveLeaseLocked(t, i)
		e.cutOffLocked(runKey{t.id, i})
	}
	if to != stepEnqueued && to != stepInProgress {
		e.leaveGateLocked(t, i)
	}
}

// cutOffLocked ends the attempt of a step that left in_progress, if it has not.
func (e *engine) cutOffLocked(key runKey) {
	k := e.running[key]
	if k == nil || k.gone {
		return
	}
	k.gone = true
	if k.cancel == nil {
		k.timer.cancel()
		e.releaseLocked(k) // nothing runs
		return
	}
	k.cancel()
}

// staleReasonLocked returns why a task is stale: dlqWorkerUnavailable if it waits for
// outside actors alone.
func (e *engine) staleReasonLocked(t *task) dlqReason {
	waiting := 0
	for i := range t.steps {
		switch t.steps[i].state {
		case stepEnqueued, stepInProgress:
			if e.targetLocked(t, i).kind != outsideActor || t.steps[i].lease != nil {
				return dlqStalenessTimeout
			}
			waiting++
		}
	}
	if waiting == 0 || t.state != taskStepsInProcess {
		return dlqStalenessTimeout
	}
	return dlqWorkerUnavailable
}

// The queues of ready steps.

// rank is the place of a ready step among others, whoever is to run it.
type rank struct {
	priority int
	created  uint64 // the task's place in the order of creation
	seq      uint64 // order of becoming ready
}

// before orders the highest priority first, then the oldest task, then the step
// that became ready first.
func (r rank) before(o rank) bool {
	switch {
	case r.priority != o.priority:
		return r.priority > o.priority
	case r.created != o.created:
		return r.created < o.created
	}
	return r.seq < o.seq
}

// place returns the place of a step in the order of creation: that of its task, or if it has
// yielded, behind all tasks that existed then, so that it does not keep them waiting.
func (t *task) place(i int) uint64 {
	if s := &t.steps[i]; s.redeliver && s.checkpoint != nil {
		return s.checkpoint.seq
	}
	return t.seq
}

// readyStep is a step that waits for a slot.
type readyStep struct {
	rank
	task *task
	step int
	pool *slotPool
}

// slotPool holds the slots for handlers of a kind, and the steps that wait for one.
type slotPool struct {
	what  string // what runs in the slots, for messages
	size  int    // all slots
	free  int
	ready priorityQueue[readyStep]

	loggedShort bool // the log last said that steps wait for slots
	loggedAt    instant
}

func newSlotPool(what string, size int) slotPool {
	before := func(a, b readyStep) bool { return a.before(b.rank) }
	return slotPool{what: what, size: size, free: size, ready: priorityQueue[readyStep]{before: before}}
}

// startable reports whether a step is ready for a slot that is free.
func (p *slotPool) startable() bool { return len(p.ready.items) > 0 && p.free > 0 }

// pool returns the slots for handlers of a kind.
func (e *engine) pool(kind handlerKind) *slotPool {
	if kind == httpHandler {
		return &e.web
	}
	return &e.local
}

// enqueueLocked queues an enqueued step for its kind of slot, or for outside actors.
func (e *engine) enqueueLocked(t *task, i int) {
	if !e.admitLocked(t, i) {
		return
	}
	g := e.targetLocked(t, i)
	if g.kind == outsideActor && (e.substitute == nil || !e.substitute.mayPlay(t, i)) {
		e.offerLocked(t, i)
		e.causes.awaitsActor(t, i)
		return
	}
	if t.steps[i].queued {
		return
	}
	e.readied++
	e.requeueLocked(readyStep{rank{t.by.priority, t.place(i), e.readied}, t, i, e.pool(g.kind)})
}

// requeueLocked puts a step into its queue, in its place.
func (e *engine) requeueLocked(it readyStep) {
	it.task.steps[it.step].queued = true
	it.pool.ready.push(it)
}

// nextLocked takes the best ready step for which a slot is free.
func (e *engine) nextLocked() (readyStep, bool) {
	switch {
	case e.local.startable():
		return e.local.ready.pop(), true
	case e.web.startable():
		return e.web.ready.pop(), true
	}
	return readyStep{}, false
}

// queuedLocked returns how many steps wait for a slot.
func (e *engine) queuedLocked() int { return len(e.local.ready.items) + len(e.web.ready.items) }

// Batches: how many instances of a batch worker run at once.

// batchGate lets instances of one batch worker of a task into the queues.
type batchGate struct {
	admitted map[int]bool // instances that are queued, offered or in progress
	waiting  bitset       // enqueued ones, by step
}

// admitLocked reports whether a step may be queued. An instance beyond the parallelism of
// its batch worker waits until another one leaves.
func (e *engine) admitLocked(t *task, i int) bool {
	b := t.def(i).batch
	if b == nil || b.parallelism == 0 {
		return true
	}
	key := runKey{t.id, t.declared(i)}
	g := e.gates[key]
	if g == nil {
		g = &batchGate{admitted: map[int]bool{}}
		for _, n := range t.plan.declared[key.step].steps {
			if t.steps[n].state == stepInProgress {
				g.admitted[n] = true
			}
		}
		e.gates[key] = g
	}
	if len(g.admitted) >= b.parallelism && !g.admitted[i] {
		g.waiting.set(uint32(i))
		return false
	}
	g.admitted[i] = true
	return true
}

// leaveGateLocked lets the next instance in, if the step leaves that was admitted.
func (e *engine) leaveGateLocked(t *task, i int) {
	if len(e.gates) == 0 || t.plan == nil {
		return
	}
	key := runKey{t.id, t.declared(i)}
	g := e.gates[key]
	if g == nil {
		return
	}
	g.waiting.clear(uint32(i))
	if !g.admitted[i] {
		return
	}
	delete(g.admitted, i)
	if next, ok := g.waiting.next(0); ok {
		g.waiting.clear(next)
		e.enqueueLocked(t, int(next))
	} else if len(g.admitted) == 0 {
		delete(e.gates, key)
	}
}

// Idleness: whether the engine has nothing to do until time passes or a request comes.
// It follows from counts.

// idleLocked reports whether nothing runs, no step could start and no event is being sent.
func (e *engine) idleLocked() bool { return e.restsLocked() && (e.sending == nil || !e.sending()) }

// restsLocked reports whether nothing runs and no step could start. A step that waits for a slot
// is no work as long as delays alone hold the slots.
func (e *engine) restsLocked() bool {
	return !e.startableLocked() && len(e.inFlight) == 0 && e.computing == 0 && e.owed == 0 &&
		(e.pacer == nil || !e.pacer.busy())
}

// startableLocked reports whether a step is ready for a slot that is free.
func (e *engine) startableLocked() bool { return e.local.startable() || e.web.startable() }

// checkIdleLocked calls the hook idled if the engine is idle, or only sends events.
func (e *engine) checkIdleLocked() {
	if e.idled != nil && e.restsLocked() {
		e.idled()
	}
}

// holdOutcome counts an attempt whose outcome the store cannot take yet.
func (e *engine) holdOutcome(k *run) {
	e.store.locked(func() {
		if !k.freed {
			e.inFlight[k] = struct{}{}
		}
	})
}

// laterLocked calls f later, without the lock, to make a change that the store cannot
// take yet. The engine is not idle meanwhile.
func (e *engine) laterLocked(f func()) {
	e.owed++
	afterReal(outcomeRetryEvery, func() {
		f()
		e.store.locked(func() {
			e.owed--
			e.checkIdleLocked()
		})
	})
}

// Schemas: whether contexts and results fit them.

// schemaGuard checks values against the schemas of templates.
type schemaGuard struct {
	mode              string        // templates.enforce_input_schema
	contexts, results atomic.Uint64 // those that did not fit
}

func (g *schemaGuard) on() bool      { return g.mode == "warn" || g.mode == "reject" }
func (g *schemaGuard) rejects() bool { return g.mode == "reject" }

// misfits returns what is wrong with a value, if schemas are enforced. One of a definition from
// before that, which cannot be enforced, accepts everything.
func (g *schemaGuard) misfits(s *schemaSource, value []byte) misfits {
	if s == nil || !g.on() || len(s.schema().problems) > 0 {
		return nil
	}
	if value == nil {
		value = templateNullJSON
	}
	return s.schema().check(value)
}

// fitted checks the result of a step, and marks one that must not count. It is slow, and
// therefore called without the store's lock where it can be.
func (e *engine) fitted(def *stepTemplate, o outcome) outcome {
	if o.checkpoint == nil && def.publishes != nil && o.unfit == nil {
		payload := &ending{success: o.success, result: o.result}
		if !o.success {
			payload.err = o.err.appendJSON(nil)
		}
		o.unfit = def.unfit(payload.payload())
	}
	if !o.success || o.misfit != "" || o.checkpoint != nil {
		return o
	}
	found := e.schemas.misfits(def.result, o.result)
	switch {
	case len(found) == 0:
		return o
	case e.schemas.rejects():
		o.misfit = "the result does not fit result_schema: " + found.String()
	default:
		e.log.Warn("a result does not fit the step's result_schema", "step", def.name, "problems", found.wants())
	}
	e.schemas.results.Add(1)
	return o
}
