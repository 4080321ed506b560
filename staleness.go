package main

// Staleness: tasks that stand still for longer than their limits allow. What is
// stale is computed here alone, for the detector, which acts, and for the view,
// which only tells.

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// What is done about a stale task, as templates spell it.
const (
	staleToDLQ   = "dlq"   // it gets an entry, and goes to error
	staleToError = "error" // it goes to error
	staleNothing = "none"  // it is reported
)

// stalenessHealth is how a task stands against its limits.
type stalenessHealth uint8

const (
	freshTask stalenessHealth = iota
	agingTask                 // from 80 % of its limit
	staleTask
)

func (h stalenessHealth) String() string { return [...]string{"healthy", "warning", "stale"}[h] }

// watchedStates are the states that a task can become stale in.
var watchedStates = [...]taskState{
	taskStepsInProcess, taskWaitingForDependencies, taskWaitingForRetry, taskBlockedByFailures,
}

// aging is how long a task has been what it is, and how long it may.
type aging struct {
	limit   int // minutes in its state
	broken  int // the limit that it broke, in minutes; 0 unless it is stale
	inState time.Duration
	age     time.Duration
	health  stalenessHealth
}

// aging holds a task against its template's limits, else the service's. A
// blocked task has the limit on its age alone.
func (c *stalenessConfig) aging(t *task, now instant) aging {
	a := aging{inState: max(now.sub(t.since), 0), age: max(now.sub(t.created), 0)}
	life := t.tpl.lifecycle
	if life == nil {
		life = &lifecycle{}
	}
	oldest := orMinutes(life.maxDurationMinutes, c.MaxLifetimeHours*60)
	counted := a.inState
	switch t.state {
	case taskWaitingForDependencies:
		a.limit = orMinutes(life.maxWaitingForDependenciesMinutes, c.WaitingForDependenciesMinutes)
	case taskWaitingForRetry:
		a.limit = orMinutes(life.maxWaitingForRetryMinutes, c.WaitingForRetryMinutes)
		counted = t.overdue(now, counted, minutes(a.limit))
	case taskStepsInProcess:
		a.limit = orMinutes(life.maxStepsInProcessMinutes, c.StepsInProcessMinutes)
	default:
		a.limit, counted = oldest, a.age
	}
	a.judge(counted, oldest)
	return a
}

// judge sets the health of a task that has used up counted of its limit.
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

// overdue is how long a retry of the task has been due. The steps are looked at
// only when the time in the state, which is longer, comes near the limit.
func (t *task) overdue(now instant, inState, limit time.Duration) time.Duration {
	if inState < limit/10*8 {
		return 0
	}
	first := instant(math.MaxInt64)
	for i := range t.steps {
		if s := &t.steps[i]; s.state == stepWaitingForRetry {
			first = min(first, s.retryAt)
		}
	}
	if first >= now {
		return 0
	}
	return min(now.sub(first), inState)
}

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

// wholeMinutes counts full minutes, 0 when the clock went back.
func wholeMinutes(d time.Duration) int64 { return int64(max(d, 0) / time.Minute) }

func orMinutes(own *int, standard int) int {
	if own == nil {
		return standard
	}
	return *own
}

// stalenessAction is what is done when a task of the template is stale.
func (t *template) stalenessAction() string {
	if t.lifecycle == nil {
		return staleNothing
	}
	return cmp.Or(t.lifecycle.stalenessAction, staleToDLQ)
}

// stalenessBatch is how many tasks a search looks at under the lock at a time; a
// task counts once more for every 64 of its steps.
const stalenessBatch = 256

// eachWatchedLocked calls f for the tasks in a watched state, in the order of
// their creation from the position from on, until a batch is done. It returns
// where to go on, and whether there is more.
func (s *store) eachWatchedLocked(from uint32, f func(t *task) error) (next uint32, more bool, err error) {
	s.packing.walks++
	defer func() { s.packing.walks-- }()
	w := s.watchFrom(from)
	for work := 0; work < stalenessBatch; {
		pos, ok := w.take()
		if !ok {
			return 0, false, nil
		}
		t := s.slots[pos].live
		work += 1 + len(t.steps)/64
		from = pos + 1
		if err := f(t); err != nil {
			return 0, false, err
		}
	}
	return from, true, nil
}

// watchedWalk goes through the tasks in watched states by position. It holds
// while the tasks change that it has passed.
type watchedWalk struct {
	sets [len(watchedStates)]*bitset
	next [len(watchedStates)]uint32
	left [len(watchedStates)]bool
}

func (s *store) watchFrom(from uint32) *watchedWalk {
	w := &watchedWalk{}
	for i, state := range watchedStates {
		w.sets[i] = &s.index.states[state]
		w.next[i], w.left[i] = w.sets[i].next(from)
	}
	return w
}

func (w *watchedWalk) take() (uint32, bool) {
	best := -1
	for i := range w.sets {
		if w.left[i] && (best < 0 || w.next[i] < w.next[best]) {
			best = i
		}
	}
	if best < 0 {
		return 0, false
	}
	pos := w.next[best]
	w.next[best], w.left[best] = w.sets[best].next(pos + 1)
	return pos, true
}

// stalenessRun is one run of the detector: what it found so far.
type stalenessRun struct {
	stale, moved, entries int
	done                  func() // lets tasks change their positions again
}

// watchStaleness has the detector run for the first time after one interval:
// by then the retries are made that fell due while the process was down.
func (s *service) watchStaleness() {
	s.clock.scheduleHousekeeping(s.clock.now().add(s.stalenessInterval()), func() {
		s.detectStale(0, &stalenessRun{done: s.store.stay()})
	})
}

func (s *service) stalenessInterval() time.Duration {
	return time.Duration(s.cfg.Staleness.IntervalSeconds) * time.Second
}

// detectStale looks at one batch of tasks, and has the clock go on with the
// next one, so that timers of others come between.
func (s *service) detectStale(from uint32, run *stalenessRun) {
	next, more, err := s.staleBatch(from, run)
	if err != nil {
		s.log.Warn("stale tasks could not be moved; the next run tries again", "error", err)
	}
	if more {
		s.clock.scheduleHousekeeping(s.clock.now(), func() { s.detectStale(next, run) })
		return
	}
	run.done()
	s.staleTasks.Store(int64(run.stale))
	if run.moved > 0 {
		s.log.Warn("stale tasks were moved to error", "tasks", run.moved, "dlq_entries", run.entries)
	}
	if !s.draining.Load() {
		s.watchStaleness()
	}
}

func (s *service) staleBatch(from uint32, run *stalenessRun) (next uint32, more bool, err error) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	if s.engine.stopping {
		return 0, false, nil
	}
	now := s.clock.now()
	return s.store.eachWatchedLocked(from, func(t *task) error {
		a := s.cfg.Staleness.aging(t, now)
		if a.health != staleTask {
			return nil
		}
		run.stale++
		return s.expireLocked(t, a, run)
	})
}

// expireLocked does about a stale task what its template says.
func (s *service) expireLocked(t *task, a aging, run *stalenessRun) error {
	mark := &staleMark{limit: a.broken, reason: noDLQReason}
	switch t.tpl.stalenessAction() {
	case staleNothing:
		return nil
	case staleToDLQ:
		mark.reason = s.engine.staleReasonLocked(t)
	}
	had := len(t.dead)
	err := s.store.updateLocked(func(c *change) error {
		return c.append(t, &record{kind: recStale, step: -1, stale: mark})
	})
	if err == nil {
		run.moved++
		run.entries += len(t.dead) - had
	}
	return err
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

// staleness is the first limit of the unfinished tasks: stale ones first, then
// those that have been longest in their state.
func (s *service) staleness(limit int) []stalenessView {
	defer s.store.stay()()
	views := []stalenessView{}
	now := s.clock.now()
	for from, more := uint32(0), true; more; {
		from, more = s.viewWatched(from, now, &views)
		if len(views) > 2*limit+stalenessBatch {
			views = firstStale(views, limit)
		}
	}
	return firstStale(views, limit)
}

func firstStale(views []stalenessView, limit int) []stalenessView {
	slices.SortStableFunc(views, func(a, b stalenessView) int {
		switch {
		case a.stale && !b.stale:
			return -1
		case b.stale && !a.stale:
			return 1
		}
		return cmp.Compare(b.inState, a.inState)
	})
	return views[:min(limit, len(views))]
}

func (s *service) viewWatched(from uint32, now instant, views *[]stalenessView) (next uint32, more bool) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	next, more, _ = s.store.eachWatchedLocked(from, func(t *task) error {
		a := s.cfg.Staleness.aging(t, now)
		*views = append(*views, stalenessView{
			TaskUUID: t.id, NamespaceName: t.tpl.namespace, TaskName: t.tpl.name, CurrentState: t.state.String(),
			TimeInStateMinutes: wholeMinutes(a.inState), TaskAgeMinutes: wholeMinutes(a.age),
			StalenessThresholdMinutes: a.limit, HealthStatus: a.health.String(), Priority: t.by.priority,
			stale: a.health == staleTask, inState: a.inState,
		})
		return nil
	})
	return next, more
}
