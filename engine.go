package main

// The engine family: which step of which task runs now. It decides; the records that it appends change the tasks. It
// knows the store, tasks and handlers; it knows neither what a client may ask for nor HTTP interfaces.
//
//	engine.go          start, resuming lost attempts, stop, what is idle, hooks for others
//	engine_queue.go    the queues of ready steps, slots, the gate of batches
//	engine_attempt.go  attempts: their start, their end
//	engine_absent.go   handlers that do not listen, and the steps that wait for them
//	engine_retry.go    retries, backoff
//	engine_claim.go    claims of steps by outside actors, their index
//	engine_lease.go    leases of claimed steps; deadlines of answers
//	engine_explain.go  why a task makes no progress: explanations; the log of causes

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

// inlineBudget is how many builtin steps the goroutine that made them ready runs itself before it leaves the rest to
// the scheduler: a small task of builtins is done before its creator is answered, a large one delays nobody.
const inlineBudget = 64

// maxTargets bounds the templates whose targets the engine remembers.
const maxTargets = 1000

// engine runs the ready steps of one service.
type engine struct {
	store    *store
	clock    clock
	ids      *idSource // for tokens
	handlers *handlerSet
	stats    *counters
	log      *slog.Logger
	causes   *causeLog
	schemas  schemaGuard
	outcomes outcomeRules
	hooks    hooks // set before the start
	patient  bool  // steps wait for handlers that do not listen

	ctx    context.Context // of the running handlers
	cancel context.CancelFunc
	kick   chan struct{}  // holds a token when the scheduler should look
	wg     sync.WaitGroup // scheduler, and handlers in flight

	// guarded by the store's lock, as all below
	queues   readyQueues
	gates    batchGates
	work     workInHand
	retries  retryTimers
	outside  outsideWork
	leases   leaseQueue
	absent   absentHandlers
	targets  map[*template][]target
	stopping bool
}

// workInHand is the work that no queue shows. Work that moves from one place to another enters the new one before it
// leaves the old one, so that the engine never seems idle in between. It is guarded by the store's lock.
type workInHand struct {
	running   map[runKey]*run   // attempts in flight, delays of our own among them
	inFlight  map[*run]struct{} // handlers in flight, and outcomes that the store could not take yet
	dialing   map[runKey]*run   // handlers to which a connection is made, before the attempt begins
	computing int               // builtins
	owed      int               // changes, other than outcomes, that the store could not take yet
}

// none reports whether nothing runs and nothing waits to be recorded.
func (w *workInHand) none() bool { return len(w.inFlight) == 0 && w.computing == 0 && w.owed == 0 }

// hooks let a higher family replace parts of an engine. Each is set before the engine starts, or nil. Their methods are
// called under the store's lock, unless they say otherwise.
type hooks struct {
	substitute substitute
	observer   attemptObserver
	pacer      pacer
	idled      func()      // called when the engine may have become idle
	sending    func() bool // reports whether events that outcomes caused are still being sent
}

// substitute takes the place of the handlers of steps.
type substitute interface {
	// mayPlay reports whether it may take the place of the outside actor of a step.
	mayPlay(t *task, i int) bool
	// play starts a step that left its queue, and reports whether it did. With an error nothing has happened.
	play(t *task, i int, g target) (played bool, err error)
}

// attemptObserver sees the attempts that handlers of this process make.
type attemptObserver interface {
	// ran sees an attempt that started and ended at once.
	ran(t *task, i int, a *attempt, o outcome)
	// started sees an attempt begin, and returns the observer of its outcome.
	started(t *task, k *run, a *attempt) outcomeObserver
}

// outcomeObserver sees the outcome of one attempt, more than once where the store could not take it.
type outcomeObserver interface{ ended(o outcome) }

// pacer decides when ready steps start and when their outcomes are recorded.
type pacer interface {
	// busy reports whether there is work of this moment that the engine's queues do not show.
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
		store: s, clock: c, ids: ids, handlers: h, stats: stats, log: log,
		causes: &causeLog{
			log: log, advice: actorAdvice{people: cfg.Console.People}, messages: cfg.Log.Errors != "type", stopped: pick(cfg.Fixture.Enabled, slog.LevelInfo, slog.LevelWarn),
			outside: map[outsideKey]bool{},
		},
		schemas: schemaGuard{mode: cfg.Templates.EnforceInputSchema, log: log},
		kick:    make(chan struct{}, 1),
		queues:  newReadyQueues(&cfg.Worker),
		gates:   batchGates{},
		work:    workInHand{running: map[runKey]*run{}, inFlight: map[*run]struct{}{}, dialing: map[runKey]*run{}},
		targets: map[*template][]target{},
		patient: cfg.Worker.Undelivered == undeliveredWait,
	}
	e.outcomes = outcomeRules{cfg.Engine.Jitter, ids, e.causes}
	e.retries = retryTimers{e, map[runKey]*timer{}}
	e.outside = outsideWork{engine: e, fresh: map[claimKey]bool{}, kick: make(chan struct{}, 1), late: make(chan struct{}, 1)}
	e.leases = newLeaseQueue(e)
	e.absent = absentHandlers{e, map[listener]*absentHandler{}, new(sync.WaitGroup)}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// start resumes the unfinished tasks and begins to schedule.
func (e *engine) start() error {
	if err := e.resume(); err != nil {
		return err
	}
	e.wg.Go(e.schedule)
	e.wg.Go(e.outside.feed)
	e.wakeUp()
	return nil
}

// stop starts nothing more, lets running handlers continue until ctx ends, then cuts them
// off: their attempts, which it describes, are delivered again after the next start.
func (e *engine) stop(ctx context.Context) (cut []string) {
	e.store.locked(func() {
		e.stopping = true
		for _, k := range e.work.dialing {
			k.cancel()
		}
	})
	e.wakeUp()
	e.outside.wakeFeeder()
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
	// Now, because an attempt that is cut off leaves running without having ended.
	e.store.locked(func() { running = slices.Collect(maps.Keys(e.work.running)) })
	// The contexts of attempts are not derived from e.ctx, so each is cancelled below. This one ends first: by it,
	// finish recognizes outcomes that only the stop caused, and records none of them.
	e.cancel()
	e.store.locked(func() {
		for k := range e.work.inFlight {
			if k.cancel != nil { // a builtin has nothing to cancel, but its outcome may be in flight
				k.cancel()
			}
		}
	})
	<-done
	e.absent.probes.Wait()
	e.store.locked(func() { cut = e.cutLocked(running) })
	return cut
}

// cutLocked describes the attempts that did not end.
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

// turn calls f, which changes the store, as inTurn does, and returns the sequence that covers what f
// has seen. The steps that became ready go to those who wait for them or, with a pacer, start.
func (e *engine) turn(ctx context.Context, f func() error) (seq uint64, err error) {
	err = e.inTurn(ctx, func() error {
		err := f()
		seq = e.store.seqLocked()
		if e.hooks.pacer == nil {
			e.outside.feedLocked() // now, so that claims take no further sync
		}
		return err
	})
	if e.hooks.pacer != nil {
		e.pump(inlineBudget)
	}
	return seq, err
}

// inTurn calls f under the store's lock; with a pacer when it is its turn.
func (e *engine) inTurn(ctx context.Context, f func() error) (err error) {
	// Before the lock is taken, under which nothing may wait for the disk.
	e.store.disk().makeRoom(0)
	if e.hooks.pacer != nil {
		return e.hooks.pacer.inTurn(ctx, f)
	}
	e.store.locked(func() { err = f() })
	return err
}

// Resuming after a restart: timers, ready steps, and the attempts that the end of the previous process cut off.

// resume resumes all tasks. Those in error, with steps left running or waiting for a
// retry, are among them: an operator may get such a task going again.
func (e *engine) resume() (err error) {
	e.store.locked(func() {
		var lost []runKey
		err = e.store.table().eachToResume(func(t *task) { lost = append(lost, e.resumeLocked(t)...) })
		if err == nil {
			err = e.recordLostLocked(lost)
		}
	})
	return err
}

// resumeLocked resumes the timers and ready steps of one task, and returns its attempts that were cut off.
func (e *engine) resumeLocked(t *task) (lost []runKey) {
	if t.hold != nil {
		return nil
	}
	for i := range t.steps {
		switch s := &t.steps[i]; s.state {
		case stepEnqueued:
			e.enqueueLocked(t, i)
			e.retries.armDeadline(t, i)
		case stepWaitingForRetry:
			e.retries.arm(t, i, t.stillDue(s.retryAt, e.clock.now()))
		case stepInProgress:
			if s.lease != nil { // its worker is outside this process
				e.leases.watchLocked(t, i, t.stillDue(s.lease.until, e.clock.now()))
				continue
			}
			lost = append(lost, runKey{t.id, i})
		}
	}
	return lost
}

// heedHoldLocked stops or resumes what waits in a task that was held or released.
func (e *engine) heedHoldLocked(t *task) {
	if t.hold == nil {
		// It returns no lost attempts: beHeld made those that ran ready again.
		e.resumeLocked(t)
		return
	}
	e.outside.withdrawLocked(t)
	e.gates.drop(t)
	for i := range t.steps {
		e.retries.disarm(t, i)
	}
}

// recordLostLocked records that attempts were lost. While the store has no room the
// rest waits: a service with a full disk can still be read from.
func (e *engine) recordLostLocked(lost []runKey) error {
	for n, l := range lost {
		err := e.store.updateLocked(func(c *change) error { return e.loseLocked(c, l) })
		if refusedForNow(err) {
			e.laterLocked(func() {
				if e.stopping {
					return
				}
				if err := e.recordLostLocked(lost[n:]); err != nil {
					e.log.Error("attempts that were cut off could not be resumed", "error", err)
				}
				e.wakeUp()
			})
			return nil
		}
		if err != nil && kindOf(err) != taskMissing { // or the task was dropped meanwhile
			return err
		}
	}
	return nil
}

// loseLocked records that an attempt was lost, unless its step moved on meanwhile.
func (e *engine) loseLocked(c *change, l runKey) error {
	t, err := c.task(l.task)
	if err != nil || t.steps[l.step].state != stepInProgress || e.work.running[l] != nil {
		return err
	}
	return c.append(t, e.lostRecord(t, l.step))
}

// lostRecord returns the record of a lost attempt: it is delivered again, or fails after too many deliveries.
func (e *engine) lostRecord(t *task, i int) *record {
	s := &t.steps[i]
	if s.redelivered < maxRedeliveries {
		return &record{kind: recRecovered, step: i}
	}
	o := typedFailure(workerLostType, "the process ended while the attempt ran, on every delivery")
	return &record{kind: recEnded, step: i, end: e.outcomes.ending(t, i, o, e.clock.now(), s.attempted)}
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

// pump starts ready steps, best first, while slots are free, and reports whether the engine stops.
//
// A builtin runs in the goroutine that pumps, because handing it to another one costs more than running it. A request that
// has just made a step ready therefore pumps, too, but at most budget steps: a long chain of builtins must not delay its
// response. What is left is for the scheduler, which has no such limit.
func (e *engine) pump(budget int) (stopping bool) {
	e.store.locked(func() {
		if e.hooks.pacer != nil {
			e.hooks.pacer.pump()
		} else {
			e.pumpLocked(budget)
		}
		stopping = e.stopping
		e.checkIdleLocked()
	})
	return stopping
}

// pumpLocked (hot path: BenchmarkSequentialStep) starts ready steps while there are slots, at most budget of them.
func (e *engine) pumpLocked(budget int) {
	for !e.stopping {
		it, ok := e.queues.next()
		if !ok {
			return
		}
		if budget == 0 { // the scheduler continues in this caller's place
			e.queues.requeue(it)
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
		e.queues.requeue(it)
		e.log.Debug("no step can start", "error", err)
		afterReal(outcomeRetryEvery, e.wakeUp)
	}
	return err == nil
}

// launchLocked starts a step that left its queue. On an error, with which the
// store refuses changes for now, the step is still enqueued.
func (e *engine) launchLocked(it readyStep) error {
	t, i := it.task, it.step
	if it.leaves() {
		return nil
	}
	// While the disk is behind, the space left in the journal is for outcomes of steps that already run.
	if err := e.store.disk().behind(); err != nil {
		return err
	}
	g := e.targetLocked(t, i)
	if e.hooks.substitute != nil {
		if played, err := e.hooks.substitute.play(t, i, g); played {
			return err
		}
	}
	switch {
	case g.kind == builtinHandler && e.hooks.pacer != nil:
		return e.hooks.pacer.runBuiltin(t, i, g)
	case g.kind == builtinHandler:
		return e.runBuiltinLocked(t, i, g)
	}
	if g.kind == outsideActor { // the substitute left it to an actor after all
		t.steps[i].queued = false
		e.outside.offerLocked(t, i)
		return nil
	}
	if a := e.absent.of(g); a != nil && !a.admit(it) {
		return nil
	}
	t.steps[i].queued = false
	return e.startHandlerLocked(t, i, g)
}

// runnable reports whether the step may start now. In a blocked task and a held one none may.
func (t *task) runnable(i int) bool {
	return t.steps[i].state == stepEnqueued && t.state == taskStepsInProcess && t.hold == nil
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

// taskMoved, under the store's lock, queues the ready steps of a task that continues after
// it was blocked: they may have left their queues meanwhile.
func (e *engine) taskMoved(t *task, from, to taskState, _ instant) {
	e.stats.taskMoved(t, to)
	if to == taskBlockedByFailures {
		e.logStoppedLocked("a task is blocked", t)
	}
	if to == taskError {
		e.outside.withdrawLocked(t)
		e.gates.drop(t)
	}
	if to != taskEvaluatingResults || from != taskBlockedByFailures && from != taskError {
		return
	}
	for i := range t.steps {
		switch s := &t.steps[i]; {
		case s.state == stepEnqueued:
			e.enqueueLocked(t, i)
			e.retries.armDeadline(t, i) // its timer may have fired while the task was in error
		case s.state == stepWaitingForRetry && t.answers[i] != 0:
			e.retries.arm(t, i, s.retryAt)
		}
	}
}

// stepMoved, under the store's lock, queues a step that became ready, sets the timer of one that waits for a retry, and
// cuts off a handler whose step continued without it.
func (e *engine) stepMoved(t *task, i int, from, to stepState, at instant) {
	e.stats.stepMoved(from, to)
	switch to {
	case stepEnqueued:
		e.enqueueLocked(t, i)
		e.retries.armDeadline(t, i)
	case stepEnqueuedAsError:
		e.causes.attemptFailed(t, i, at)
	case stepWaitingForRetry:
		e.retries.arm(t, i, t.steps[i].retryAt)
	}
	switch from {
	case stepWaitingForRetry:
		e.retries.disarm(t, i)
	case stepEnqueued:
		if t.answers != nil {
			e.retries.disarm(t, i)
		}
		// An entry in a queue for slots stays there. launchLocked drops it when its turn comes.
		e.outside.waiting.remove(runKey{t.id, i})
		if k := e.work.dialing[runKey{t.id, i}]; k != nil {
			k.cancel()
		}
	case stepInProgress:
		e.leases.leaveLocked(t, i)
		e.cutOffLocked(runKey{t.id, i})
	}
	// A step that waits for its retry gives its place in the batch away, too.
	if to != stepEnqueued && to != stepInProgress {
		if next, ok := e.gates.leave(t, i); ok {
			e.enqueueLocked(t, next)
		}
	}
}

// cutOffLocked ends the attempt of a step that left in_progress, if it has not.
func (e *engine) cutOffLocked(key runKey) {
	k := e.work.running[key]
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
// outside actors and handlers that do not listen alone.
func (e *engine) staleReasonLocked(t *task) dlqReason {
	waiting := 0
	for i := range t.steps {
		switch t.steps[i].state {
		case stepEnqueued, stepInProgress:
			g := e.targetLocked(t, i)
			if g.kind != outsideActor && e.absent.of(g) == nil || t.steps[i].lease != nil {
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

// Idleness: whether the engine has nothing to do until time passes or a request comes. It follows from counts.

// idleLocked reports whether nothing runs, no step could start and no event is being sent.
func (e *engine) idleLocked() bool {
	return e.restsLocked() && (e.hooks.sending == nil || !e.hooks.sending())
}

// restsLocked reports whether nothing runs and no step could start. A step that waits for a slot
// is not work as long as delays alone hold the slots.
func (e *engine) restsLocked() bool {
	return !e.queues.startable() && e.work.none() && len(e.absent.told()) == 0 && (e.hooks.pacer == nil || !e.hooks.pacer.busy())
}

// checkIdleLocked calls the hook idled if the engine is idle, or only sends events.
func (e *engine) checkIdleLocked() {
	if e.hooks.idled != nil && e.restsLocked() {
		e.hooks.idled()
	}
}

// holdOutcome counts an attempt whose outcome the store cannot take yet.
func (e *engine) holdOutcome(k *run) {
	e.store.locked(func() {
		if !k.freed {
			e.work.inFlight[k] = struct{}{}
		}
	})
}

// laterLocked calls f later, under the lock, to make a change that the store cannot take yet. The
// engine is not idle meanwhile.
func (e *engine) laterLocked(f func()) {
	e.work.owed++
	afterReal(outcomeRetryEvery, func() {
		e.store.locked(func() {
			f()
			e.work.owed--
			e.checkIdleLocked()
		})
	})
}

// Schemas: whether contexts and results fit them.

// schemaGuard checks values against the schemas of templates.
type schemaGuard struct {
	mode              string // templates.enforce_input_schema
	log               *slog.Logger
	memory            *quota        // of the budgets; nil for no limit
	contexts, results atomic.Uint64 // counts of contexts and results that did not fit
}

func (g *schemaGuard) on() bool      { return g.mode == "warn" || g.mode == "reject" }
func (g *schemaGuard) rejects() bool { return g.mode == "reject" }

// misfits returns what is wrong with a value, if schemas are enforced. A schema with problems, from a
// definition that is older than the check for them, cannot be enforced and accepts everything.
func (g *schemaGuard) misfits(b *budget, s *schemaSource, value []byte) misfits {
	if s == nil || !g.on() || len(s.schema().problems) > 0 {
		return nil
	}
	if value == nil {
		value = templateNullJSON
	}
	return s.schema().check(b, value)
}

// fittedOwn is fitted for an outcome that comes from no request.
func (g *schemaGuard) fittedOwn(def *stepTemplate, o outcome) outcome {
	if def.result == nil && def.publishes == nil {
		return o
	}
	b := newOwnBudget(g.memory)
	defer b.end()
	return g.fitted(b, def, o)
}

// fitted checks the result of a step, and marks one that must not count. It is slow, and
// therefore called without the store's lock where it can be.
func (g *schemaGuard) fitted(b *budget, def *stepTemplate, o outcome) outcome {
	if o.checkpoint == nil && def.publishes != nil && o.fits == nil {
		payload := &ending{success: o.success, result: o.result}
		if !o.success {
			payload.err = o.err.appendJSON(nil)
		}
		o.fits = def.fits(b, payload.payload(), payload.errorContext())
	}
	if !o.success || o.misfit != "" || o.checkpoint != nil {
		return o
	}
	if o.doubts = g.resultMisfits(b, def, o.result); len(o.doubts) > 0 && g.rejects() {
		o.misfit, o.doubts = "the result does not fit result_schema: "+o.doubts.String(), nil
	}
	return o
}

// resultMisfits returns what is wrong with a result. It counts one that does not fit, and logs it
// unless it will be refused.
func (g *schemaGuard) resultMisfits(b *budget, def *stepTemplate, result []byte) misfits {
	found := g.misfits(b, def.result, result)
	if len(found) == 0 {
		return nil
	}
	g.results.Add(1)
	if !g.rejects() {
		g.log.Warn("a result does not fit the step's result_schema", "step", def.name, "problems", found.wants())
	}
	return found
}
