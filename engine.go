package main

// The engine: its start and stop, the scheduling of ready steps on free slots,
// and what it hears of transitions. It decides; records and apply change.

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"
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
	offerToken(e.kick)
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

// The ready queue: steps that wait for a slot, best first.

// readyItem is a step that waits for a slot.
type readyItem struct {
	task *task
	step int
	seq  uint64 // order of becoming ready
	web  bool
}

// readyQueue is a heap: highest priority first, then the oldest task, then the
// step that became ready first.
type readyQueue struct {
	items []readyItem
	seq   uint64
}

func (q *readyQueue) Len() int { return len(q.items) }

func (q *readyQueue) Less(i, j int) bool {
	a, b := &q.items[i], &q.items[j]
	if a.task.by.priority != b.task.by.priority {
		return a.task.by.priority > b.task.by.priority
	}
	if a.task.seq != b.task.seq {
		return a.task.seq < b.task.seq
	}
	return a.seq < b.seq
}

func (q *readyQueue) Swap(i, j int) { q.items[i], q.items[j] = q.items[j], q.items[i] }

func (q *readyQueue) Push(x any) { q.items = append(q.items, x.(readyItem)) }

func (q *readyQueue) Pop() any {
	last := len(q.items) - 1
	it := q.items[last]
	q.items[last] = readyItem{}
	q.items = q.items[:last]
	return it
}

// pushLocked queues an enqueued step for its kind of slot, or for outside actors.
func (e *engine) pushLocked(t *task, i int) {
	g := e.targetLocked(t, i)
	if g.kind == outsideActor && !e.stubbedLocked(t, i) {
		e.queueOutsideLocked(t, i)
		e.causes.awaitsActor(t, i)
		return
	}
	if t.steps[i].queued {
		return
	}
	e.requeueLocked(readyItem{task: t, step: i, web: g.kind == httpHandler})
}

func (e *engine) requeueLocked(it readyItem) {
	it.task.steps[it.step].queued = true
	q := &e.local
	if it.web {
		q = &e.http
	}
	if it.seq == 0 {
		q.seq++
		it.seq = q.seq
	}
	heap.Push(q, it)
}

// nextLocked takes the best ready step for which a slot is free.
func (e *engine) nextLocked() (readyItem, bool) {
	q := &e.local
	if q.Len() == 0 || e.slots <= 0 {
		q = &e.http
		if q.Len() == 0 || e.webSlots <= 0 {
			return readyItem{}, false
		}
	}
	return heap.Pop(q).(readyItem), true
}

// queued is how many steps wait for a slot.
func (e *engine) queuedLocked() int { return e.local.Len() + e.http.Len() }

// Idle: whether an engine has nothing to do before time passes or somebody asks
// for something. It is computed from what the engine counts, never guessed.

// busyWork is what an engine has in hand outside its queues. It is guarded by
// store.mu. Whatever goes from one place to the next is in the next before it
// leaves the one before.
type busyWork struct {
	inFlight  map[*run]struct{} // handlers in flight, and outcomes that the store could not take yet
	computing int               // builtins
	owed      int               // other changes that the store could not take yet
	idled     func()            // called under the lock when it may have become idle; nil when nobody asks
}

// idleLocked tells whether nothing runs and no step could start. A step that
// waits for a slot is no work as long as delays alone hold the slots.
func (e *engine) idleLocked() bool {
	return !e.startableLocked() && len(e.inFlight) == 0 && e.computing == 0 && e.owed == 0 && !e.busyLocked()
}

// startableLocked tells whether a step is ready for a slot that is free.
func (e *engine) startableLocked() bool {
	return e.local.Len() > 0 && e.slots > 0 || e.http.Len() > 0 && e.webSlots > 0
}

// lookUpLocked tells those who wait for it that the engine is idle, if it is.
func (e *engine) lookUpLocked() {
	if e.idled != nil && e.idleLocked() {
		e.idled()
	}
}

// hold counts an attempt whose outcome the store cannot take yet.
func (e *engine) hold(k *run) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	if !k.freed {
		e.inFlight[k] = struct{}{}
	}
}

// owe counts changes that the store cannot take yet.
func (e *engine) owe(n int) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	e.owed += n
	e.lookUpLocked()
}

// blocker is something that keeps an engine from being idle.
type blocker struct {
	Reason   string    `json:"reason"` // running, computing, ready, unrecorded or timer
	TaskUUID uuid      `json:"task_uuid,omitzero"`
	StepUUID uuid      `json:"step_uuid,omitzero"`
	StepName string    `json:"step_name,omitempty"`
	Handler  string    `json:"handler,omitempty"` // the callable
	Attempt  int       `json:"attempt,omitempty"`
	Since    zonedTime `json:"since,omitzero"` // when the attempt began, or the timer is due
}

// maxBlockers is how many blockers are listed of each kind.
const maxBlockers = 100

// blockersLocked is what keeps the engine from being idle.
func (e *engine) blockersLocked() []blocker {
	all := []blocker{}
	for k := range e.inFlight {
		if len(all) == maxBlockers {
			break
		}
		if k.outcome != nil && e.lockstep.waiting > 0 {
			continue // it waits for others of its batch
		}
		b := blocker{Reason: "running", Attempt: k.number, Since: zonedTime(k.started)}
		if k.cancel == nil || k.outcome != nil {
			b.Reason = "unrecorded"
		}
		all = append(all, b.of(e.store, k.key))
	}
	slices.SortFunc(all, func(a, b blocker) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), bytes.Compare(a.TaskUUID[:], b.TaskUUID[:]),
			bytes.Compare(a.StepUUID[:], b.StepUUID[:]))
	})
	for _, q := range []struct {
		*readyQueue
		free int
	}{{&e.local, e.slots}, {&e.http, e.webSlots}} {
		startable := min(len(q.items), max(q.free, 0), maxBlockers)
		for _, it := range q.items[:startable] {
			all = append(all, blocker{Reason: "ready"}.of(e.store, runKey{it.task.id, it.step}))
		}
	}
	if e.computing > 0 {
		all = append(all, blocker{Reason: "computing"})
	}
	if e.owed > 0 {
		all = append(all, blocker{Reason: "unrecorded"})
	}
	return all
}

// of names the step of a blocker.
func (b blocker) of(s *store, key runKey) blocker {
	b.TaskUUID = key.task
	pos, ok := s.byID[key.task]
	if !ok || s.slots[pos].live == nil { // its task ended without it
		return b
	}
	t := s.slots[pos].live
	def := t.def(key.step)
	b.StepUUID, b.StepName, b.Handler = t.stepID(key.step), def.name, def.callable
	return b
}

// The causes that explain gives, told in the log as they arise: once each, and
// written by a goroutine of their own, because they arise under the store's lock.

const (
	causeBacklog   = 256         // causes that wait to be written; what comes beyond is not told
	maxOutsideTold = 1000        // templates' callables that are told of
	slotsToldEvery = time.Minute // at most, for each kind of slot
)

// outsideKey names what waits for an outside actor: told once, not for each task.
type outsideKey struct {
	tpl      *template
	callable string
}

// slotsTold is what was told of a kind of slot.
type slotsTold struct {
	short bool
	at    instant
}

// causeLog tells causes. The store's mutex guards outside, local and web.
type causeLog struct {
	log      *slog.Logger
	handlers *handlerSet
	backlog  chan func()
	quit     chan struct{}
	once     sync.Once
	writing  sync.WaitGroup

	outside    map[outsideKey]bool
	local, web slotsTold
}

func newCauseLog(log *slog.Logger, h *handlerSet) *causeLog {
	return &causeLog{
		log: log, handlers: h, backlog: make(chan func(), causeBacklog), quit: make(chan struct{}),
		outside: map[outsideKey]bool{},
	}
}

func (l *causeLog) start() { l.writing.Go(l.run) }

// stop returns when what was told is written.
func (l *causeLog) stop() {
	l.once.Do(func() { close(l.quit) })
	l.writing.Wait()
}

func (l *causeLog) run() {
	for {
		select {
		case write := <-l.backlog:
			write()
			continue
		default:
		}
		select {
		case write := <-l.backlog:
			write()
		case <-l.quit:
			return
		}
	}
}

// tell has a line written, unless too many wait for it.
func (l *causeLog) tell(level slog.Level, message string, args ...any) {
	select {
	case l.backlog <- func() { l.log.Log(context.Background(), level, message, args...) }:
	default:
	}
}

func (l *causeLog) enabled(level slog.Level) bool { return l.log.Enabled(context.Background(), level) }

// tellStep tells the cause of a step of a live task.
func (l *causeLog) tellStep(level slog.Level, what string, t *task, i int) {
	if !l.enabled(level) {
		return
	}
	x := explainer{t: t, handlers: l.handlers}
	e := x.step(i)
	l.tell(level, what, "task_uuid", t.id, "template", t.tpl.fullName(), "step", e.Name, "cause", e.Message)
}

func (l *causeLog) retryScheduled(t *task, i int) {
	l.tellStep(slog.LevelDebug, "a step waits for its retry", t, i)
}

// awaitsActor tells once of a template and callable, with the first task.
func (l *causeLog) awaitsActor(t *task, i int) {
	k := outsideKey{t.tpl, t.def(i).callable}
	if l.outside[k] || len(l.outside) >= maxOutsideTold {
		return
	}
	l.outside[k] = true
	l.tell(slog.LevelInfo, "a step waits for an outside actor, and so will others like it", "task_uuid", t.id,
		"template", t.tpl.fullName(), "step", t.def(i).name, "callable", redactName(k.callable))
}

func (l *causeLog) blocked(t *task) {
	if !l.enabled(slog.LevelInfo) {
		return
	}
	x := explainer{t: t, handlers: l.handlers}
	x.findStoppers()
	l.tell(slog.LevelInfo, "a task is blocked", "task_uuid", t.id, "template", t.tpl.fullName(), "cause", x.stoppedBy())
}

// slots tells when steps begin to wait for slots of a kind, and when none does
// any more.
func (l *causeLog) slots(told *slotsTold, what string, waiting, all int, short bool, now func() instant) {
	if told.short == short {
		return
	}
	at := now()
	if short && told.at != 0 && at.sub(told.at) < slotsToldEvery {
		return
	}
	told.short, told.at = short, at
	if short {
		l.tell(slog.LevelWarn, "every slot is taken, ready steps wait", "slots", what, "of", all, "waiting", waiting)
	} else {
		l.tell(slog.LevelInfo, "slots are free again", "slots", what, "of", all)
	}
}

// staleReasonLocked tells a task that nothing moves on from one that only waits
// for outside actors.
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
