package main

// The engine: what is ready, in which order it runs, on which slots, and what
// follows from an attempt's end. It decides; records and apply change.

import (
	"container/heap"
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"
)

// inlineBudget is how many builtin steps the goroutine that made them ready
// runs itself before it leaves the rest to the scheduler: a small task of
// builtins is done before its creator is answered, a large one delays nobody.
const inlineBudget = 64

// outcomeRetryEvery is how often the outcome of a finished attempt is offered
// to a store that cannot take it, in real time.
const outcomeRetryEvery = time.Second

// engine runs the ready steps of one service.
type engine struct {
	store    *store
	clock    clock
	ids      *idSource // for jitter
	handlers *handlerSet
	stats    *counters
	log      *slog.Logger
	jitter   bool

	ctx    context.Context // of the running handlers
	cancel context.CancelFunc
	kick   chan struct{}  // holds a token when the scheduler should look
	wg     sync.WaitGroup // scheduler, and handlers in flight

	// guarded by store.mu
	local    readyQueue // for builtins and programs
	http     readyQueue
	slots    int // free ones
	webSlots int
	running  map[runKey]*run
	targets  map[*template][]target
	stopping bool
}

// runKey names a step in progress.
type runKey struct {
	pos  uint32
	step int
}

// run is an attempt in flight in this process.
type run struct {
	key     runKey
	task    uuid
	web     bool // it holds an HTTP slot, else a local one
	number  int  // the attempt
	started instant
	cancel  context.CancelFunc // nil for a delay of our own
	gone    bool               // the step left in_progress without it; guarded by store.mu
	freed   bool               // its slot was given back; guarded by store.mu
}

func newEngine(s *store, h *handlerSet, ids *idSource, stats *counters, cfg *Config, log *slog.Logger) *engine {
	e := &engine{
		store: s, clock: s.clock, ids: ids, handlers: h, stats: stats, log: log, jitter: cfg.Engine.Jitter,
		kick:     make(chan struct{}, 1),
		slots:    cfg.Worker.Concurrency,
		webSlots: cfg.Worker.HTTPConcurrency,
		running:  map[runKey]*run{},
		targets:  map[*template][]target{},
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// start takes up what the store holds unfinished, and begins to schedule.
func (e *engine) start() error {
	if err := e.resumeAll(); err != nil {
		return err
	}
	e.wg.Go(e.schedule)
	e.wakeUp()
	return nil
}

// lostAttempt is one that the end of the process before cut off.
type lostAttempt struct {
	task uuid
	step int
}

func (e *engine) resumeAll() error {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	var lost []lostAttempt
	for i := range e.store.slots {
		if t := e.store.slots[i].live; t != nil {
			lost = e.resumeLocked(t, lost)
		}
	}
	lost, err := e.resumeFailedLocked(lost)
	if err != nil {
		return err
	}
	return e.recordLostLocked(lost)
}

// resumeFailedLocked takes up the tasks in error whose steps were left running
// or waiting for a retry: an operator may get such a task going again.
func (e *engine) resumeFailedLocked(lost []lostAttempt) ([]lostAttempt, error) {
	failed := &e.store.index.states[taskError]
	for pos, ok := failed.next(0); ok; pos, ok = failed.next(pos + 1) {
		h, err := readTaskHeader(e.store.slots[pos].line)
		if err != nil {
			return nil, err
		}
		if h.counts[stepInProgress]+h.counts[stepWaitingForRetry] == 0 {
			continue
		}
		t, err := e.store.thaw(e.store.slots[pos].line)
		if err != nil {
			return nil, err
		}
		t.pos = pos
		lost = e.resumeLocked(t, lost)
	}
	return lost, nil
}

// resumeLocked takes up one task after a restart: its timers and its ready
// steps. Its attempts that were cut off are added to lost.
func (e *engine) resumeLocked(t *task, lost []lostAttempt) []lostAttempt {
	for i := range t.steps {
		switch s := &t.steps[i]; s.state {
		case stepEnqueued:
			e.pushLocked(t, i)
		case stepWaitingForRetry:
			e.armRetry(t, i, s.retryAt)
		case stepInProgress:
			lost = append(lost, lostAttempt{t.id, i})
		}
	}
	return lost
}

// recordLostLocked has lost attempts delivered again. When the store has no
// room the rest waits until it has: a full disk keeps no service from reading.
func (e *engine) recordLostLocked(lost []lostAttempt) error {
	for n, l := range lost {
		err := e.store.updateLocked(func(c *change) error { return e.loseLocked(c, l) })
		if kindOf(err) == unavailable {
			afterReal(outcomeRetryEvery, func() { e.recordLost(lost[n:]) })
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) recordLost(lost []lostAttempt) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	if e.stopping {
		return
	}
	if err := e.recordLostLocked(lost); err != nil {
		e.log.Error("attempts that were cut off could not be taken up", "error", err)
	}
	e.wakeUp()
}

// loseLocked records that an attempt was lost, unless its step went on meanwhile.
func (e *engine) loseLocked(c *change, l lostAttempt) error {
	t, err := c.task(l.task)
	if err != nil {
		return err
	}
	if t.steps[l.step].state != stepInProgress || e.running[runKey{t.pos, l.step}] != nil {
		return nil
	}
	return c.append(t, e.lostRecord(t, l.step))
}

// lostRecord has the attempt delivered again, or ends it when that was tried often enough.
func (e *engine) lostRecord(t *task, i int) *record {
	s := &t.steps[i]
	if s.redelivered < maxRedeliveries {
		return &record{kind: recRecovered, step: i}
	}
	o := typedFailure("worker_lost", "the process ended while the attempt ran, on every delivery")
	return &record{kind: recEnded, step: i, end: e.ending(t, i, o, e.clock.now(), s.attempted)}
}

// stop starts nothing more, gives running handlers until ctx ends, then cuts
// them off: their attempts are delivered again after the next start.
func (e *engine) stop(ctx context.Context) {
	e.store.mu.Lock()
	e.stopping = true
	e.store.mu.Unlock()
	e.wakeUp()
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
	for !e.stopping {
		it, ok := e.nextLocked()
		if !ok {
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

// launchLocked starts one step that left its queue. An error means that the
// store takes no change now; the step is still enqueued then.
func (e *engine) launchLocked(it readyItem) error {
	t, i := it.task, it.step
	if !t.runnable(i) {
		t.steps[i].queued = false
		return nil
	}
	g := e.targetLocked(t.tpl, i)
	if g.kind == builtinHandler {
		return e.runBuiltinLocked(t, i, g)
	}
	t.steps[i].queued = false
	return e.startHandlerLocked(t, i, g)
}

// runnable reports whether the step may start now. In a blocked task none does.
func (t *task) runnable(i int) bool {
	return t.steps[i].state == stepEnqueued && t.state == taskStepsInProcess
}

// runBuiltinLocked computes a builtin without the lock, on a slot. What it came
// to is one record; a delay that it asks for makes it an attempt in flight.
func (e *engine) runBuiltinLocked(t *task, i int, g target) error {
	a := e.attemptLocked(t, i, g.builtin.needsInputs)
	s := &t.steps[i]
	a.number = s.attempts + 1
	if s.redeliver {
		a.number = s.attempts
	}
	before := *s
	e.slots-- // or another goroutine that pumps would give it away meanwhile
	e.store.mu.Unlock()
	began := e.clock.now()
	o, delay := g.builtin.run(a)
	e.store.mu.Lock()
	overtaken := *s != before
	e.slots++
	s.queued = false
	if !t.runnable(i) {
		return nil // cancelled or resolved meanwhile: it never ran
	}
	if overtaken { // failed by an actor meanwhile, and ready again: this is no outcome of the attempt to come
		e.pushLocked(t, i)
		return nil
	}
	if delay > 0 {
		return e.startDelayLocked(t, i, o, delay, a.timeout)
	}
	return e.store.updateLocked(func(c *change) error {
		return c.append(t, &record{kind: recRan, step: i, startedAt: began, end: e.ending(t, i, o, c.now, began)})
	})
}

// startDelayLocked begins an attempt that ends by itself after a delay of ours.
func (e *engine) startDelayLocked(t *task, i int, o outcome, delay, timeout time.Duration) error {
	k, err := e.startRunLocked(t, i, false)
	if err != nil {
		return err
	}
	if timeout < delay {
		delay, o = timeout, timedOut(timeout)
	}
	e.clock.schedule(k.started.add(delay), func() { e.finish(k, o) })
	return nil
}

// startRunLocked journals the start of an attempt and takes its slot.
func (e *engine) startRunLocked(t *task, i int, web bool) (*run, error) {
	k := &run{key: runKey{t.pos, i}, task: t.id, web: web}
	err := e.store.updateLocked(func(c *change) error {
		k.started = c.now
		return c.append(t, &record{kind: recStarted, step: i})
	})
	if err != nil {
		return nil, err
	}
	k.number = t.steps[i].attempts
	e.running[k.key] = k
	*e.free(web)--
	return k, nil
}

func (e *engine) free(web bool) *int {
	if web {
		return &e.webSlots
	}
	return &e.slots
}

// startHandlerLocked runs an HTTP or exec handler in a goroutine of its own,
// which first waits until what the handler will see is on disk.
func (e *engine) startHandlerLocked(t *task, i int, g target) error {
	seen := t.lastSeq
	k, err := e.startRunLocked(t, i, g.kind == httpHandler)
	if err != nil {
		return err
	}
	a := e.attemptLocked(t, i, true)
	a.number = k.number
	ctx, cancel := context.WithCancel(e.ctx)
	k.cancel = cancel
	e.wg.Go(func() {
		defer cancel()
		if err := e.store.journal.wait(ctx, seen); err != nil {
			e.abandon(k)
			return
		}
		e.finish(k, e.handlers.run(ctx, g, a))
	})
	return nil
}

// abandon gives up an attempt without an outcome: the engine stops, or nothing
// can be written any more. It is delivered again after a restart.
func (e *engine) abandon(k *run) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	e.releaseLocked(k)
}

// releaseLocked gives the attempt's slot back, unless that was done already.
func (e *engine) releaseLocked(k *run) {
	if k.freed {
		return
	}
	k.freed = true
	if e.running[k.key] == k {
		delete(e.running, k.key)
	}
	*e.free(k.web)++
	e.wakeUp()
}

// finish records what an attempt came to. When the store has no room the
// outcome is held, with its slot, until it has.
func (e *engine) finish(k *run, o outcome) {
	if e.ctx.Err() != nil && wasCancelled(o) {
		e.abandon(k)
		return
	}
	for {
		_, err := e.store.update(func(c *change) error { return e.endLocked(c, k, o) })
		if err == nil {
			break
		}
		if f, ok := errors.AsType[*failure](err); !ok || f.kind != unavailable || f.retryAfter == 0 {
			e.log.Error("the outcome of an attempt is lost", "task_uuid", k.task, "step", k.key.step, "error", err)
			break
		}
		if !sleepReal(e.ctx, outcomeRetryEvery) {
			break
		}
	}
	e.abandon(k)
}

// endLocked records the outcome where it belongs: at the running step, or, when
// that went on without it, in the audit alone.
func (e *engine) endLocked(c *change, k *run, o outcome) error {
	t, err := c.task(k.task)
	if err != nil {
		return err
	}
	if !k.gone {
		k.gone = true
		end := e.ending(t, k.key.step, o, c.now, k.started)
		e.stats.handlerDone(end)
		return c.append(t, &record{kind: recEnded, step: k.key.step, end: end})
	}
	if k.cancel == nil || wasCancelled(o) {
		return nil
	}
	end := e.ending(t, k.key.step, o, c.now, k.started)
	end.retryAt, end.attempt = 0, k.number
	e.stats.late++
	return c.append(t, &record{kind: recLate, step: k.key.step, end: end})
}

// wasCancelled reports an outcome that only says that we cut the handler off.
func wasCancelled(o outcome) bool { return o.err != nil && o.err.errorType == cancelledType }

// ending is what an outcome means for the step: when it is tried again, if at all.
func (e *engine) ending(t *task, i int, o outcome, now, began instant) *ending {
	end := &ending{success: o.success, result: o.result, metadata: o.metadata, took: max(now.sub(began), 0)}
	if o.success {
		return end
	}
	end.err = o.err.appendJSON(nil)
	policy := &t.tpl.steps[i].retry
	s := &t.steps[i]
	attempts := s.attempts
	if s.state == stepEnqueued && !s.redeliver { // it starts and ends in one record
		attempts++
	}
	if o.err.retryable && policy.retryable && attempts < s.maxAttempts {
		end.retryAt = max(now.add(e.backoff(policy, attempts, o.retryAfter)), 1)
	}
	return end
}

// backoff is the wait before the next attempt, n attempts having been made.
func (e *engine) backoff(p *retryPolicy, n int, retryAfter time.Duration) time.Duration {
	if retryAfter > 0 {
		return min(retryAfter, time.Hour)
	}
	limit := float64(p.maxMS)
	ms := min(backoffFactor(p.backoff, n)*float64(p.baseMS), limit)
	if e.jitter {
		ms = min(ms*(0.9+0.2*e.ids.float()), limit)
	}
	return time.Duration(ms * float64(time.Millisecond))
}

// backoffFactor is what the base is multiplied by after n attempts.
func backoffFactor(kind backoffKind, n int) float64 {
	switch kind {
	case backoffLinear:
		return float64(n)
	case backoffExponential:
		return math.Pow(2, float64(n-1))
	case backoffFibonacci:
		a, b := 0.0, 1.0
		for range n {
			a, b = b, a+b
		}
		return a
	}
	return 0
}

// attemptLocked is what a handler is given. All of it is immutable.
func (e *engine) attemptLocked(t *task, i int, inputs bool) *attempt {
	def := &t.tpl.steps[i]
	a := &attempt{
		stepName:    def.name,
		maxAttempts: t.steps[i].maxAttempts,
		timeout:     time.Duration(def.timeoutSeconds) * time.Second,
		config:      def.config,
	}
	if !inputs {
		return a
	}
	a.taskID, a.stepID = t.id, t.stepID(i)
	a.namespace, a.name, a.version = t.tpl.namespace, t.tpl.name, t.tpl.version
	a.correlationID = t.correlation().String()
	a.traceparent = t.by.traceparent
	a.context, a.inputs = t.by.context, t.by.context
	a.results = t.resultsFor(i)
	return a
}

// resultsFor is the results of the step's completed ancestors, or of its
// parents alone where the template says so, in the order of the template.
func (t *task) resultsFor(i int) []namedResult {
	def := &t.tpl.steps[i]
	wanted := def.parents
	if !def.parentsOnly {
		wanted = ancestorsOf(i, func(p int) []int { return t.tpl.steps[p].parents })
	}
	results := make([]namedResult, 0, len(wanted))
	for _, p := range wanted {
		s := &t.steps[p]
		r := namedResult{step: t.tpl.steps[p].name}
		switch {
		case s.state == stepComplete && s.last != nil:
			r.result = s.last.result
		case !s.state.satisfies():
			continue
		}
		results = append(results, r)
	}
	return results
}

func (e *engine) targetLocked(tpl *template, i int) target {
	all, ok := e.targets[tpl]
	if !ok {
		for j := range tpl.steps {
			all = append(all, e.handlers.resolve(tpl.steps[j].callable))
		}
		e.targets[tpl] = all
	}
	return all[i]
}

// due brings a step whose back-off is over back to be run.
func (e *engine) due(id uuid, i int) {
	_, err := e.store.update(func(c *change) error {
		t, err := c.task(id)
		if err != nil {
			return err
		}
		switch s := &t.steps[i]; {
		case s.state != stepWaitingForRetry:
			return nil // cancelled, or completed by an operator
		case s.retryAt > c.now: // the clock went back since the timer fired
			e.armRetry(t, i, s.retryAt)
			return nil
		}
		return c.append(t, &record{kind: recDue, step: i})
	})
	if kindOf(err) == unavailable {
		if e.ctx.Err() == nil {
			afterReal(outcomeRetryEvery, func() { e.due(id, i) })
		}
		return
	}
	if err != nil {
		e.log.Error("a retry could not be made ready", "task_uuid", id, "step", i, "error", err)
	}
	e.wakeUp()
}

func (e *engine) armRetry(t *task, i int, when instant) {
	id := t.id
	e.clock.schedule(when, func() { e.due(id, i) })
}

// taskMoved, under the store's lock: a task that goes on after it was blocked
// has steps whose turn passed by while it stood still.
func (e *engine) taskMoved(t *task, from, to taskState, _ instant) {
	e.stats.taskMoved(from, to)
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
	}
	if from != stepInProgress {
		return
	}
	k := e.running[runKey{t.pos, i}]
	if k == nil || k.gone {
		return
	}
	k.gone = true
	if k.cancel == nil {
		e.releaseLocked(k) // nothing runs: only a timer, which may be far off, still knows of it
		return
	}
	k.cancel()
}

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
func (q *readyQueue) Push(x any)    { q.items = append(q.items, x.(readyItem)) }
func (q *readyQueue) Pop() any {
	last := len(q.items) - 1
	it := q.items[last]
	q.items[last] = readyItem{}
	q.items = q.items[:last]
	return it
}

// pushLocked queues an enqueued step for its kind of slot. Steps for outside
// actors are not queued: they wait in enqueued until one acts.
func (e *engine) pushLocked(t *task, i int) {
	g := e.targetLocked(t.tpl, i)
	if g.kind == outsideActor || t.steps[i].queued {
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
