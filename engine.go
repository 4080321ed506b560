package main

// The engine family: which step of which task runs now. It decides; the records
// that it appends change the tasks. It knows the store, tasks and handlers; it
// knows neither what a client may ask for nor HTTP interfaces.
//
//	engine.go         start and stop, what is idle, hooks for others
//	engine_queue.go   the queues of ready steps, slots, the gate of batches
//	engine_attempt.go attempts: their start, their end
//	engine_retry.go   retries, backoff
//	engine_resume.go  resuming after a start, lost attempts
//	engine_claim.go   claims of steps by outside actors, their index
//	engine_lease.go   leases of claimed steps
//	engine_explain.go why a task makes no progress: explanations
//	engine_log.go     the log of causes

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
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

// pool returns the slots for handlers of a kind.
func (e *engine) pool(kind handlerKind) *slotPool {
	if kind == httpHandler {
		return &e.web
	}
	return &e.local
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

func (g *schemaGuard) on() bool { return g.mode == "warn" || g.mode == "reject" }

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

// Retries.

// ending returns what an outcome means for the step, and when it is tried again,
// if at all. A success whose result or decision the template does not allow is a failure.
func (e *engine) ending(t *task, i int, o outcome, now, began instant) *ending {
	o = o.fitting()
	end := e.plainEnding(t, i, o, now, began)
	if failed, wrong := t.misdecided(i, end); wrong {
		o = failed
		end = e.plainEnding(t, i, o, now, began)
	}
	e.withhold(t, i, end, o.unfit)
	if b := t.def(i).batch; b != nil && !end.success && end.retryAt == 0 {
		end.aside, _ = parseWord[failureAside](b.failureStrategy, failureAsideWords[:])
	}
	return end
}

// withhold notes the events that must not be published after an attempt, because the payload
// does not fit their schema; see (stepTemplate).unfit. The outcome counts all the same.
func (e *engine) withhold(t *task, i int, end *ending, unfit []string) {
	def := t.def(i)
	if def.publishes == nil {
		return
	}
	if unfit == nil {
		unfit = def.unfit(end.payload())
	}
	withheld := map[string]string{}
	for n := range def.publishes {
		if p := &def.publishes[n]; unfit[n] != "" && p.follows(end.success, end.retryAt != 0) {
			withheld[p.name] = clipText(unfit[n], maxWithheldText)
			e.causes.print(slog.LevelWarn, "an event is not published: its payload does not fit its schema",
				"event", p.name, "task_uuid", t.id, "step", def.name)
		}
	}
	if len(withheld) > 0 {
		o := jsonWriter{}
		o.value(withheld)
		end.withheld = o.b
	}
}

// plainEnding is ending for an outcome whose decision does not count.
func (e *engine) plainEnding(t *task, i int, o outcome, now, began instant) *ending {
	end := &ending{success: o.success, result: o.result, metadata: o.metadata, took: max(now.sub(began), 0)}
	if o.success {
		return end
	}
	end.err = o.err.appendJSON(nil)
	policy := &t.def(i).retry
	s := &t.steps[i]
	attempts := s.attempts
	if s.state == stepEnqueued && !s.redeliver { // it starts and ends in one record
		attempts++
	}
	if o.err.retryable && policy.Retryable && attempts < s.maxAttempts {
		end.retryAt = max(now.add(e.backoff(policy, attempts, o.retryAfter, t.stepID(i))), 1)
	}
	return end
}

// backoff returns the wait before the next attempt of a step, after n attempts.
func (e *engine) backoff(p *retryPolicy, n int, retryAfter time.Duration, step uuid) time.Duration {
	if retryAfter > 0 {
		return min(retryAfter, time.Hour)
	}
	limit := float64(p.MaxMS)
	ms := min(backoffFactor(p.Backoff, n)*float64(p.BaseMS), limit)
	if e.jitter {
		ms = min(ms*(0.9+0.2*e.ids.floatOf(step, n)), limit)
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// due makes a step ready whose back-off is over: the one before the retry that was due at
// an instant.
func (e *engine) due(id uuid, i int, retryAt instant) {
	_, err := e.store.update(func(c *change) error {
		t, err := c.task(id)
		if err != nil {
			return err
		}
		if s := &t.steps[i]; s.state != stepWaitingForRetry || s.retryAt != retryAt {
			return nil // cancelled or completed by an operator, or waiting once more
		}
		return c.append(t, &record{kind: recDue, step: i})
	})
	if refusedForNow(err) {
		if e.ctx.Err() == nil {
			e.store.locked(func() { e.laterLocked(func() { e.due(id, i, retryAt) }) })
		}
		return
	}
	if err != nil && kindOf(err) != taskMissing { // or the task was dropped meanwhile
		e.log.Error("a retry could not be made ready", "task_uuid", id, "step", i, "error", err)
	}
	e.wakeUp()
}

// armRetry sets the timer of a step that waits for its retry.
func (e *engine) armRetry(t *task, i int, when instant) {
	id, retryAt := t.id, t.steps[i].retryAt
	e.retries[runKey{t.id, i}] = e.clock.schedule(when, func() { e.due(id, i, retryAt) })
}

// disarmRetryLocked cancels the timer of a step that waits no longer.
func (e *engine) disarmRetryLocked(t *task, i int) {
	key := runKey{t.id, i}
	if timer := e.retries[key]; timer != nil {
		timer.cancel()
		delete(e.retries, key)
	}
}

// Resuming after a restart: timers, ready steps, and the attempts that the end of the
// previous process cut off.

// resumeAll resumes the unfinished tasks. Those in error, with steps left running
// or waiting for a retry, are among them: an operator may get such a task going again.
func (e *engine) resumeAll() (err error) {
	e.store.locked(func() {
		var lost []runKey
		resume := func(t *task) { lost = e.resumeLocked(t, lost) }
		e.store.eachLiveLocked(resume)
		if err = e.store.eachUnsettledErrorLocked(resume); err == nil {
			err = e.recordLostLocked(lost)
		}
	})
	return err
}

// resumeLocked resumes the timers and ready steps of one task, and appends its
// attempts that were cut off to lost.
func (e *engine) resumeLocked(t *task, lost []runKey) []runKey {
	for i := range t.steps {
		switch s := &t.steps[i]; s.state {
		case stepEnqueued:
			e.enqueueLocked(t, i)
		case stepWaitingForRetry:
			e.armRetry(t, i, t.stillDue(s.retryAt, e.clock.now()))
		case stepInProgress:
			if s.lease != nil { // its worker is outside this process
				e.watchLeaseLocked(t, i, t.stillDue(s.lease.until, e.clock.now()))
				continue
			}
			lost = append(lost, runKey{t.id, i})
		}
	}
	return lost
}

// recordLostLocked records that attempts were lost. While the store has no room the
// rest waits: a service with a full disk can still be read from.
func (e *engine) recordLostLocked(lost []runKey) error {
	for n, l := range lost {
		err := e.store.updateLocked(func(c *change) error { return e.loseLocked(c, l) })
		if refusedForNow(err) {
			e.laterLocked(func() { e.recordLost(lost[n:]) })
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) recordLost(lost []runKey) {
	e.store.locked(func() {
		if e.stopping {
			return
		}
		if err := e.recordLostLocked(lost); err != nil {
			e.log.Error("attempts that were cut off could not be resumed", "error", err)
		}
		e.wakeUp()
	})
}

// loseLocked records that an attempt was lost, unless its step moved on meanwhile.
func (e *engine) loseLocked(c *change, l runKey) error {
	t, err := c.task(l.task)
	if kindOf(err) == taskMissing {
		return nil // dropped meanwhile
	}
	if err != nil {
		return err
	}
	if t.steps[l.step].state != stepInProgress || e.running[runKey{t.id, l.step}] != nil {
		return nil
	}
	return c.append(t, e.lostRecord(t, l.step))
}

// claim gives an outside actor steps, after waiting for the first one as long as
// the request says.
func (e *engine) claim(ctx context.Context, q *claimRequest) claimResult {
	c, served := &claimer{request: q, given: make(chan claimResult, 1)}, false
	err := e.inTurn(ctx, func() error {
		e.feedLocked() // those who came before
		if served = e.stopping || e.serveLocked(c); !served {
			e.outside.claimers = append(e.outside.claimers, c)
		}
		return nil
	})
	if err != nil {
		return claimResult{err: err}
	}
	if q.tried != nil {
		q.tried()
	}
	if !served && q.wait > 0 {
		wait, cancel := context.WithTimeout(ctx, q.wait)
		defer cancel()
		select {
		case got := <-c.given:
			return got
		case <-wait.Done():
		}
	}
	return e.leave(c)
}

// leave ends the claimer's wait and returns what it was given.
func (e *engine) leave(c *claimer) claimResult {
	e.store.locked(func() {
		if i := slices.Index(e.outside.claimers, c); i >= 0 {
			e.outside.claimers = slices.Delete(e.outside.claimers, i, i+1)
		}
	})
	select {
	case got := <-c.given:
		return got
	default:
		return claimResult{}
	}
}

// offerLocked offers an enqueued step to outside actors.
func (e *engine) offerLocked(t *task, i int) {
	w := &e.outside
	w.waiting.insert(t, i)
	if len(w.claimers) == 0 {
		return
	}
	w.fresh[t.claimKey(i)] = true
	e.wakeFeeder()
}

// withdrawLocked stops offering the steps of a task that ends before they
// do. They come back when the task goes on.
func (e *engine) withdrawLocked(t *task) {
	for i := range t.steps {
		if t.steps[i].state == stepEnqueued {
			e.outside.waiting.remove(runKey{t.id, i})
		}
	}
}

// wakeFeeder tells the feeder to look at the claimers.
func (e *engine) wakeFeeder() { offerToken(e.outside.kick) }

// feed gives claimers what they wait for, until the engine stops.
func (e *engine) feed() {
	for range e.outside.kick {
		stopping := false
		e.store.locked(func() {
			if stopping = e.stopping; stopping || e.pacer == nil { // a pacer has its own time for claimers
				e.feedLocked()
			}
		})
		if stopping {
			return
		}
	}
}

// feedLocked gives out what became ready to those who wait, oldest first. When
// the engine stops it releases them all.
func (e *engine) feedLocked() {
	w := &e.outside
	if len(w.fresh) == 0 && !e.stopping {
		return
	}
	w.claimers = slices.DeleteFunc(w.claimers, func(c *claimer) bool {
		if e.stopping {
			c.given <- claimResult{}
			return true
		}
		for key := range w.fresh {
			if c.request.matches(key) {
				return e.serveLocked(c)
			}
		}
		return false
	})
	clear(w.fresh)
}

// serveLocked gives the claimer the steps that are ready for it, or the error that
// prevents that. It reports whether it did either.
func (e *engine) serveLocked(c *claimer) bool {
	picked := e.claimableLocked(c.request.matches, c.request.limit)
	if len(picked) == 0 {
		return false
	}
	got := claimResult{}
	got.err = e.store.updateLocked(func(ch *change) error {
		for _, k := range picked {
			given, err := e.claimLocked(ch, k, c.request)
			if err != nil {
				return err
			}
			got.steps = append(got.steps, given)
		}
		return nil
	})
	got.seq = e.store.seqLocked()
	c.given <- got
	return true
}

// claimableLocked returns the first steps that match and can be claimed, in order.
// It drops the steps of stopped tasks from the index: they come back when their
// task goes on.
func (e *engine) claimableLocked(matches func(claimKey) bool, limit int) (found []runKey) {
	var idle []runKey
	e.outside.waiting.walk(matches, func(o *claimEntry) bool {
		if t := e.store.liveLocked(o.task); t != nil && t.runnable(o.step) {
			found = append(found, o.runKey)
		} else {
			idle = append(idle, o.runKey)
		}
		return len(found) < limit
	})
	for _, k := range idle {
		e.outside.waiting.remove(k)
	}
	return found
}

// claimLocked starts an attempt by an outside actor.
func (e *engine) claimLocked(c *change, k runKey, q *claimRequest) (claimedStep, error) {
	t := e.store.liveLocked(k.task)
	token := leaseToken(t.id, e.ids.secretOf(t.stepID(k.step), e.store.seqLocked()))
	l := &lease{hash: hashLease(token), until: c.now.add(q.lease), worker: q.worker}
	err := c.append(t, &record{kind: recClaimed, step: k.step, lease: l, subject: q.subject})
	if err != nil {
		return claimedStep{}, err
	}
	e.outside.claims++
	a := e.attemptLocked(t, k.step, t.steps[k.step].attempts, true)
	e.watchLeaseLocked(t, k.step, l.until)
	return claimedStep{k, t.def(k.step).shown, a, token, l}, nil
}

// unclaim gives back steps whose claim nobody learned of: they are delivered again
// under the same attempt numbers.
func (e *engine) unclaim(given []claimedStep) {
	_, err := e.store.update(func(c *change) error {
		for _, g := range given {
			t, err := c.task(g.key.task)
			if kindOf(err) == taskMissing {
				continue // dropped meanwhile
			}
			if err != nil {
				return err
			}
			if t.steps[g.key.step].lease != g.lease {
				continue
			}
			if err := c.append(t, &record{kind: recRecovered, step: g.key.step}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && kindOf(err) != unavailable { // their leases will expire
		e.log.Error("claimed steps could not be given back", "error", err)
	}
}

// watchLeaseLocked watches the lease of a step: a new one, or the new end of one.
func (e *engine) watchLeaseLocked(t *task, i int, until instant) {
	q, id := &e.outside.leases, t.stepID(i)
	if h := q.byID[id]; h != nil {
		h.until = until
		q.held.fix(h.place)
	} else {
		h := &heldStep{runKey: runKey{t.id, i}, id: id, until: until}
		q.byID[id] = h
		q.held.push(h)
		e.outside.claimed.insert(t, i)
	}
	e.armLeasesLocked()
}

// leaveLeaseLocked forgets the lease of a step that left in_progress, if it had one.
func (e *engine) leaveLeaseLocked(t *task, i int) {
	q := &e.outside.leases
	if q.first() == nil {
		return
	}
	if h := q.byID[t.stepID(i)]; h != nil {
		e.forgetLeaseLocked(h)
	}
}

// forgetLeaseLocked forgets a lease.
func (e *engine) forgetLeaseLocked(h *heldStep) {
	delete(e.outside.leases.byID, h.id)
	e.outside.leases.held.remove(h.place)
	e.outside.claimed.remove(h.runKey)
	if e.outside.leases.armed != 0 { // expireLeasesLocked arms it after its batch
		e.armLeasesLocked()
	}
}

// armLeasesLocked sets the timer for the end of the first lease, and cancels one for
// another end: a virtual clock would move for it.
func (e *engine) armLeasesLocked() {
	q, until := &e.outside.leases, instant(0)
	if first := q.first(); first != nil {
		until = first.until
	}
	if q.armed == until {
		return
	}
	if q.armed != 0 {
		q.timer.cancel()
	}
	if q.armed = until; until != 0 {
		q.timer = e.clock.schedule(until, func() { e.expireLeases(until) })
	}
}

// expireLeases ends the attempts whose leases are over. It is called by the timer
// that was set for an instant.
func (e *engine) expireLeases(timer instant) {
	e.store.locked(func() { e.expireLeasesLocked(timer) })
}

func (e *engine) expireLeasesLocked(timer instant) {
	q := &e.outside.leases
	if q.armed == timer {
		q.armed = 0
	}
	for range leaseBatch {
		h := q.first()
		if e.stopping || h == nil || h.until > e.clock.now() {
			break
		}
		err := e.store.updateLocked(func(c *change) error { return e.expireLocked(c, h) })
		if refusedForNow(err) {
			e.laterLocked(func() { e.expireLeases(timer) })
			return
		}
		if err != nil {
			e.log.Error("an expired lease could not be ended", "task_uuid", h.task, "step_uuid", h.id, "error", err)
			return
		}
	}
	if !e.stopping {
		e.armLeasesLocked()
	}
	e.wakeUp()
}

// expireLocked ends an attempt as lost.
func (e *engine) expireLocked(c *change, h *heldStep) error {
	t, err := c.task(h.task)
	if kindOf(err) == taskMissing { // stale and in error, it was dropped with its steps in progress
		e.forgetLeaseLocked(h)
		return nil
	}
	if err != nil {
		return err
	}
	s := &t.steps[h.step]
	o := typedFailure(workerLostType, "the lease of %s expired", s.lease.worker)
	end := e.ending(t, h.step, o, c.now, s.attempted)
	end.worker = s.lease.worker
	e.outside.expired++
	return c.append(t, &record{kind: recEnded, step: h.step, end: end})
}

// answerLocked takes the answer if the step is under its lease; it returns nil if
// not.
func (e *engine) answerLocked(c *change, stepID uuid, q *leaseAnswer) (*heldStep, error) {
	h := e.outside.leases.byID[stepID]
	if h == nil {
		return nil, nil
	}
	t, err := c.task(h.task)
	if err != nil {
		return nil, err
	}
	s := &t.steps[h.step]
	switch {
	case !s.lease.is(q.hash):
		return nil, nil
	case h.until <= c.now: // its timer is about to fire
		return nil, e.expireLocked(c, h)
	case q.seen.refusal(t) != nil:
		return nil, q.seen.refusal(t)
	case q.verb == extendVerb:
		err := e.extendLocked(c, t, h, c.now.add(q.lease))
		q.until = h.until
		return h, err
	case q.verb == yieldVerb:
		r, err := e.yieldLocked(t, h.step, q.outcome.checkpoint)
		if err != nil {
			return nil, err
		}
		r.checkpoint.worker, r.subject = s.lease.worker, q.subject
		return h, c.append(t, r)
	}
	end := e.ending(t, h.step, q.outcome, c.now, s.attempted)
	end.worker = s.lease.worker
	return h, c.append(t, &record{kind: recEnded, step: h.step, end: end, subject: q.subject})
}

// extendLocked moves the end of a lease, never to an earlier time.
func (e *engine) extendLocked(c *change, t *task, h *heldStep, until instant) error {
	if until <= h.until {
		return nil
	}
	if s := &t.steps[h.step]; until > s.lease.until {
		known := until.add(leaseSlack(c.now.sub(s.attempted)))
		if err := c.append(t, &record{kind: recExtended, step: h.step, lease: &lease{until: known}}); err != nil {
			return err
		}
	}
	e.watchLeaseLocked(t, h.step, until)
	return nil
}

// heldLocked returns the instances of batch workers that wait for others, each with how many
// of these are admitted. t may be nil.
func (e *engine) heldLocked(t *task) map[int]int {
	held := map[int]int{}
	if t == nil || t.plan == nil || len(e.gates) == 0 {
		return held
	}
	for d := range t.tpl.steps {
		g := e.gates[runKey{t.id, d}]
		if g == nil {
			continue
		}
		for i, ok := g.waiting.next(0); ok; i, ok = g.waiting.next(i + 1) {
			held[int(i)] = len(g.admitted)
		}
	}
	return held
}

// workTimer is a time that a step, or an event that it published, waits for, in this process.
type workTimer struct {
	DueAt     zonedTime `json:"due_at"`
	Kind      string    `json:"kind"` // "retry"; "attempt", the end of one that the service itself delays; "lease"; "delivery"
	TaskUUID  uuid      `json:"task_uuid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	StepName  string    `json:"step_name"`
	Attempt   int       `json:"attempt"` // the latest

	Subscriber string `json:"subscriber,omitempty"` // of a delivery

	step int
}

// workTimers returns the timers of steps that fire first, at most so many, and how many there are.
func (e *engine) workTimers(most int) (first []workTimer, total int) {
	all := []workTimer{}
	add := func(kind string, key runKey, when instant) {
		all = append(all, workTimer{Kind: kind, TaskUUID: key.task, step: key.step, DueAt: zonedTime(when)})
	}
	e.store.locked(func() {
		for key, timer := range e.retries {
			add("retry", key, timer.when)
		}
		for key, k := range e.running {
			if k.timer != nil && !k.gone {
				add("attempt", key, k.timer.when)
			}
		}
		for _, h := range e.outside.leases.held.items {
			add("lease", h.runKey, h.until)
		}
	})
	slices.SortFunc(all, func(a, b workTimer) int {
		return cmp.Or(cmp.Compare(a.DueAt, b.DueAt), bytes.Compare(a.TaskUUID[:], b.TaskUUID[:]), a.step-b.step)
	})
	first = all[:min(most, len(all))]
	e.store.locked(func() {
		first = slices.DeleteFunc(first, func(w workTimer) bool { return e.store.liveLocked(w.TaskUUID) == nil })
		for i := range first {
			first[i].describe(e.store.liveLocked(first[i].TaskUUID))
		}
	})
	return first, len(all)
}

func (w *workTimer) describe(t *task) {
	w.Namespace, w.Name = t.tpl.namespace, t.tpl.name
	w.StepName, w.Attempt = t.def(w.step).name, t.steps[w.step].attempts
}
