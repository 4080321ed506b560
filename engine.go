package main

// The engine: its start and stop, the scheduling of ready steps on free slots,
// and what it hears of transitions. It decides; records and apply change.

import (
	"context"
	"log/slog"
	"math"
	"sync"
)

// inlineBudget is how many builtin steps the goroutine that made them ready
// runs itself before it leaves the rest to the scheduler: a small task of
// builtins is done before its creator is answered, a large one delays nobody.
const inlineBudget = 64

// maxTargets is of how many templates the targets are remembered.
const maxTargets = 1000

// engine runs the ready steps of one service.
type engine struct {
	store    *store
	clock    clock
	ids      *idSource // for jitter
	handlers *handlerSet
	stats    *counters
	log      *slog.Logger
	jitter   bool
	causes   *causeLog
	sizes    [2]int // how many slots there are, local and for HTTP

	ctx    context.Context // of the running handlers
	cancel context.CancelFunc
	kick   chan struct{}  // holds a token when the scheduler should look
	wg     sync.WaitGroup // scheduler, and handlers in flight

	// guarded by store.mu
	local   readyQueue // for builtins and programs
	http    readyQueue
	retries map[runKey]*timer // of the steps that wait for a retry
	busyWork
	slots    int // free ones
	webSlots int
	running  map[runKey]*run
	targets  map[*template][]target
	outside  outsideWork
	stubs    *stubs          // in fixture mode; else nil
	calls    *requestJournal // in fixture mode; else nil
	lockstep *lockstep       // nil unless steps run in batches
	stopping bool
}

func newEngine(s *store, h *handlerSet, ids *idSource, stats *counters, cfg *Config, log *slog.Logger) *engine {
	e := &engine{
		store: s, clock: s.clock, ids: ids, handlers: h, stats: stats, log: log, jitter: cfg.Engine.Jitter,
		causes:   newCauseLog(log, h),
		sizes:    [2]int{cfg.Worker.Concurrency, cfg.Worker.HTTPConcurrency},
		kick:     make(chan struct{}, 1),
		slots:    cfg.Worker.Concurrency,
		webSlots: cfg.Worker.HTTPConcurrency,
		running:  map[runKey]*run{},
		retries:  map[runKey]*timer{},
		busyWork: busyWork{inFlight: map[*run]struct{}{}},
		targets:  map[*template][]target{},
		outside:  newOutsideWork(),
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// start takes up what the store holds unfinished, and begins to schedule.
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

// stop starts nothing more, gives running handlers until ctx ends, then cuts
// them off: their attempts are delivered again after the next start.
func (e *engine) stop(ctx context.Context) {
	e.store.mu.Lock()
	e.stopping = true
	e.store.mu.Unlock()
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
	e.cancel()
	<-done
	e.causes.stop()
}

// wakeUp has the scheduler look at the queues.
func (e *engine) wakeUp() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

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
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	defer e.lookUpLocked()
	if e.lockstep != nil {
		return e.runBatchesLocked()
	}
	for !e.stopping {
		it, ok := e.nextLocked()
		if !ok {
			e.noteSlotsLocked()
			return false
		}
		if budget == 0 {
			e.requeueLocked(it)
			e.wakeUp()
			return false
		}
		if err := e.launchLocked(it); err != nil {
			e.requeueLocked(it)
			e.log.Debug("no step can start", "error", err)
			afterReal(outcomeRetryEvery, e.wakeUp)
			return false
		}
		budget--
	}
	return true
}

// noteSlotsLocked has the log tell when steps begin to wait for slots, and end to.
func (e *engine) noteSlotsLocked() {
	local, web := e.local.Len(), e.http.Len()
	e.causes.slots(&e.causes.local, "builtins and programs", local, e.sizes[0], local > 0 && e.slots <= 0, e.clock.now)
	e.causes.slots(&e.causes.web, "HTTP handlers", web, e.sizes[1], web > 0 && e.webSlots <= 0, e.clock.now)
}

// launchLocked starts one step that left its queue. An error means that the
// store takes no change now; the step is still enqueued then.
func (e *engine) launchLocked(it readyItem) error {
	t, i := it.task, it.step
	if !t.runnable(i) {
		t.steps[i].queued = false
		return nil
	}
	if err := e.store.journal.behind(); err != nil {
		return err
	}
	g := e.targetLocked(t, i)
	if e.stubs.size() > 0 {
		if played, err := e.playLocked(t, i, g); played {
			return err
		}
	}
	if g.kind == builtinHandler && e.lockstep != nil {
		return e.joinBuiltinLocked(t, i, g)
	}
	if g.kind == builtinHandler {
		return e.runBuiltinLocked(t, i, g)
	}
	t.steps[i].queued = false
	if g.kind == outsideActor { // its stub is gone, or has left it to an actor
		e.queueOutsideLocked(t, i)
		return nil
	}
	return e.startHandlerLocked(t, i, g)
}

// runnable reports whether the step may start now. In a blocked task none does.
func (t *task) runnable(i int) bool {
	return t.steps[i].state == stepEnqueued && t.state == taskStepsInProcess
}

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

// taskMoved, under the store's lock: a task that goes on after it was blocked
// has steps whose turn passed by while it stood still.
func (e *engine) taskMoved(t *task, from, to taskState, _ instant) {
	e.stats.taskMoved(from, to)
	if to == taskBlockedByFailures {
		e.causes.blocked(t)
	}
	if to == taskError {
		e.withdrawOutsideLocked(t)
	}
	if to != taskEvaluatingResults || from != taskBlockedByFailures && from != taskError {
		return
	}
	for i := range t.steps {
		if t.steps[i].state == stepEnqueued {
			e.pushLocked(t, i)
		}
	}
}

// stepMoved, under the store's lock: a step that became ready is queued, one
// that waits is armed, and a handler whose step left it is cut off.
func (e *engine) stepMoved(t *task, i int, from, to stepState, _ instant) {
	e.stats.stepMoved(from, to)
	switch to {
	case stepEnqueued:
		e.pushLocked(t, i)
	case stepWaitingForRetry:
		e.armRetry(t, i, t.steps[i].retryAt)
		e.causes.retryScheduled(t, i)
	}
	if from == stepWaitingForRetry {
		e.disarmRetryLocked(t, i)
	}
	if from == stepEnqueued {
		e.outside.waiting.remove(runKey{t.id, i})
	}
	if from != stepInProgress {
		return
	}
	e.letGoLocked(t, i)
	k := e.running[runKey{t.id, i}]
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
