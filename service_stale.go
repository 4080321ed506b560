package main

// Staleness: tasks that make no progress for longer than their limits allow. The
// detector, which acts on them, and the view, which lists them, use one rule.

import (
	"cmp"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"
)

// The staleness actions, as templates spell them.
const (
	staleToDLQ   = "dlq"   // move the task to error and make an entry
	staleToError = "error" // move it to error
	staleNothing = "none"  // report it
)

// How a task stands against its limits.
const (
	freshTask = "healthy"
	agingTask = "warning" // from 80 % of its limit
	staleTask = "stale"
)

// aging is how close a task is to its limits.
type aging struct {
	limit   int // of the time in its state, in minutes
	broken  int // the limit that it exceeded, in minutes; 0 unless it is stale
	inState time.Duration
	age     time.Duration
	health  string
}

// aging compares a task with its template's limits, or the service's where the
// template has none. Only the limit on its age applies to a blocked task.
func (c *stalenessConfig) aging(t *task, now instant) aging {
	a := aging{health: freshTask, inState: max(now.sub(t.since), 0), age: max(now.sub(t.created), 0)}
	life := cmp.Or(t.tpl.lifecycle, &lifecycle{})
	oldest := *cmp.Or(life.MaxDurationMinutes, new(c.MaxLifetimeHours*60))
	counted := a.inState
	switch t.state {
	case taskWaitingForDependencies:
		a.limit = *cmp.Or(life.MaxWaitingForDependenciesMinutes, &c.WaitingForDependenciesMinutes)
	case taskWaitingForRetry:
		a.limit = *cmp.Or(life.MaxWaitingForRetryMinutes, &c.WaitingForRetryMinutes)
		counted = overdue(t, now, counted, minutes(a.limit))
	case taskStepsInProcess:
		a.limit = *cmp.Or(life.MaxStepsInProcessMinutes, &c.StepsInProcessMinutes)
	default:
		a.limit, counted = oldest, a.age
	}
	if t.hold == nil { // or it continues elsewhere
		a.judge(counted, oldest)
	}
	return a
}

// judge sets the health of a task that has used counted of its limit.
func (a *aging) judge(counted time.Duration, oldest int) {
	switch limit := minutes(a.limit); {
	case counted >= limit:
		a.health, a.broken = staleTask, a.limit
	case a.age >= minutes(oldest):
		a.health, a.broken = staleTask, oldest
	case counted >= limit/10*8:
		a.health = agingTask
	}
}

// overdue returns how long a retry of a task has been due. It looks at the
// steps only if the time in the state, which is longer, is near the limit.
func overdue(t *task, now instant, inState, limit time.Duration) time.Duration {
	if inState < limit/10*8 {
		return 0
	}
	first := t.firstRetry()
	if first == 0 || first >= now {
		return 0
	}
	return min(now.sub(first), inState)
}

// firstRetry returns when the first step that waits for another attempt is due; 0 if none waits.
func (t *task) firstRetry() (first instant) {
	for i := range t.steps {
		if s := &t.steps[i]; s.state == stepWaitingForRetry && (first == 0 || s.retryAt < first) {
			first = s.retryAt
		}
	}
	return first
}

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

// wholeMinutes returns the full minutes of d, or 0 if the clock went back.
func wholeMinutes(d time.Duration) int64 { return int64(max(d, 0) / time.Minute) }

// stalenessAction returns what to do with a stale task of the template.
func (t *template) stalenessAction() string {
	if t.lifecycle == nil {
		return staleNothing
	}
	return cmp.Or(t.lifecycle.StalenessAction, staleToDLQ)
}

// stalenessWatch looks for stale tasks, at intervals and on request.
type stalenessWatch struct {
	cfg      *stalenessConfig
	log      *slog.Logger
	clock    clock
	store    *store
	engine   *engine
	draining *atomic.Bool

	found atomic.Int64 // how many stale tasks the latest run found
	timer *timer       // of the next run; guarded by the store's lock
}

// stalenessRun counts the findings of one run of the detector.
type stalenessRun struct {
	taskWalk
	stale, moved, entries int
}

// start schedules the first run after one interval. By then the retries that fell
// due while the process was down have been made.
func (w *stalenessWatch) start() {
	now := w.clock.now()
	w.store.locked(func() { w.armLocked(now + w.interval()) })
}

func (w *stalenessWatch) interval() instant {
	return instant(0).add(time.Duration(w.cfg.IntervalSeconds) * time.Second)
}

func (w *stalenessWatch) armLocked(when instant) {
	w.timer = w.clock.scheduleHousekeeping(when, func() {
		w.detect(&stalenessRun{taskWalk: taskWalk{states: watchedStates}})
	})
}

// skippedRuns is how many runs must be ahead, at least, for a look at all tasks to be worth it.
const skippedRuns = 100

// skipLocked leaves out all runs but the last until end, to which a virtual clock is about to move without a change before,
// if none of them would move a task.
func (w *stalenessWatch) skipLocked(now, end instant) {
	due := w.timer.when
	runs := (end - due) / w.interval()
	if due <= now || runs < skippedRuns {
		return
	}
	moves := false
	w.store.table().eachLive(func(t *task) {
		moves = moves || watchedStates.has(t.state) && t.tpl.stalenessAction() != staleNothing &&
			w.cfg.aging(t, end).health == staleTask
	})
	if !moves {
		w.timer.cancel()
		w.armLocked(due + runs*w.interval())
	}
}

// detect looks at one batch of tasks and schedules the next batch, so that other timers can fire in between.
func (w *stalenessWatch) detect(run *stalenessRun) {
	err := w.batch(run)
	if err != nil {
		w.log.Warn("stale tasks could not be moved; the next run tries again", "error", err)
	}
	if err == nil && !run.done {
		w.clock.scheduleHousekeeping(w.clock.now(), func() { w.detect(run) })
		return
	}
	w.found.Store(int64(run.stale))
	if run.moved > 0 {
		w.log.Warn("stale tasks were moved to error", "tasks", run.moved, "dlq_entries", run.entries)
	}
	if !w.draining.Load() {
		w.start()
	}
}

func (w *stalenessWatch) batch(run *stalenessRun) (err error) {
	w.store.locked(func() {
		if w.engine.stopping {
			run.done = true
			return
		}
		now := w.clock.now()
		for _, sl := range run.batch(w.store.table()) {
			run.work += stepWork * len(sl.live.steps)
			a := w.cfg.aging(sl.live, now)
			if a.health != staleTask {
				continue
			}
			run.stale++
			if err = w.expireLocked(sl.live, a, run); err != nil {
				return
			}
		}
	})
	return err
}

// expireLocked treats a stale task as its template says.
func (w *stalenessWatch) expireLocked(t *task, a aging, run *stalenessRun) error {
	mark := &staleMark{limit: a.broken, reason: noDLQReason}
	switch t.tpl.stalenessAction() {
	case staleNothing:
		return nil
	case staleToDLQ:
		mark.reason = w.engine.staleReasonLocked(t)
	}
	had := len(t.dead)
	err := w.store.updateLocked(func(c *change) error {
		return c.append(t, &record{kind: recStale, step: -1, stale: mark})
	})
	if err == nil {
		w.engine.logStoppedLocked("a task ended as stale", t)
		run.moved++
		run.entries += len(t.dead) - had
	}
	return err
}

// stalenessView is one unfinished task against its limits.
type stalenessView struct {
	TaskUUID                  uuid   `json:"task_uuid"`
	NamespaceName             string `json:"namespace_name"`
	TaskName                  string `json:"task_name"`
	CurrentState              string `json:"current_state"`
	TimeInStateMinutes        int64  `json:"time_in_state_minutes"`
	TaskAgeMinutes            int64  `json:"task_age_minutes"`
	StalenessThresholdMinutes int    `json:"staleness_threshold_minutes"`
	HealthStatus              string `json:"health_status"`
	Priority                  int    `json:"priority"`

	stale   bool
	inState time.Duration
}

// report returns a part of the unfinished tasks of the templates that a filter selects by namespace and
// name, and how many there are: stale ones first, then those that have been longest in their state.
func (w *stalenessWatch) report(f *taskFilter, skip, limit int) (part []stalenessView, total int) {
	views := []stalenessView{}
	now := w.clock.now()
	walk := &taskWalk{states: watchedStates}
	for _, sl := range w.store.each(walk) {
		t := sl.live
		walk.work += stepWork * len(t.steps)
		if !f.selects(t.tpl) {
			continue
		}
		total++
		a := w.cfg.aging(t, now)
		views = append(views, stalenessView{
			TaskUUID: t.id, NamespaceName: t.tpl.namespace, TaskName: t.tpl.name, CurrentState: t.state.String(),
			TimeInStateMinutes: wholeMinutes(a.inState), TaskAgeMinutes: wholeMinutes(a.age),
			StalenessThresholdMinutes: a.limit, HealthStatus: a.health, Priority: t.by.priority,
			stale: a.health == staleTask, inState: a.inState,
		})
		if len(views) > 2*(skip+limit)+maxStaleViews { // memory depends on the page, not on the number of tasks
			views = firstStale(views, skip+limit)
		}
	}
	views = firstStale(views, skip+limit)
	return views[min(skip, len(views)):], total
}

// maxStaleViews is how many views beyond a page are made before the others are dropped.
const maxStaleViews = 1024

func firstStale(views []stalenessView, limit int) []stalenessView {
	slices.SortStableFunc(views, func(a, b stalenessView) int {
		return cmp.Or(cmp.Compare(boolCount(b.stale), boolCount(a.stale)), cmp.Compare(b.inState, a.inState))
	})
	return views[:min(limit, len(views))]
}
