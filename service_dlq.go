package main

// What the API shows of the dead letter queue. The snapshot of task and steps
// that an entry keeps is read back from the task's log up to the moment of the
// entry: the log is never cut, so a second copy of it, in each entry of a task
// that may have thousands of steps, would only be able to disagree.

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// dlqEntryView is one entry; all times in it are naive.
type dlqEntryView struct {
	DLQEntryUUID        uuid              `json:"dlq_entry_uuid"`
	TaskUUID            uuid              `json:"task_uuid"`
	OriginalState       string            `json:"original_state"`
	DLQReason           string            `json:"dlq_reason"`
	DLQTimestamp        naiveTime         `json:"dlq_timestamp"`
	ResolutionStatus    string            `json:"resolution_status"`
	ResolutionTimestamp naiveTime         `json:"resolution_timestamp"`
	ResolutionNotes     *string           `json:"resolution_notes"`
	ResolvedBy          *string           `json:"resolved_by"`
	TaskSnapshot        *taskSnapshotView `json:"task_snapshot"`
	Metadata            json.RawMessage   `json:"metadata"` // an object, or null until one was given
	CreatedAt           naiveTime         `json:"created_at"`
	UpdatedAt           naiveTime         `json:"updated_at"`
}

// dlqTaskView is a task's newest entry, and all of them.
type dlqTaskView struct {
	dlqEntryView
	Entries []dlqEntryView `json:"entries"`
}

// taskSnapshotView is a task as it stood when an entry was made. It holds
// neither context nor results: those have permissions of their own.
type taskSnapshotView struct {
	TaskUUID           uuid               `json:"task_uuid"`
	Namespace          string             `json:"namespace"`
	TaskName           string             `json:"task_name"`
	CurrentState       string             `json:"current_state"`
	TimeInStateMinutes int64              `json:"time_in_state_minutes"`
	ThresholdMinutes   int                `json:"threshold_minutes"` // the limit it broke; 0 for none
	SnapshotTimestamp  naiveTime          `json:"snapshot_timestamp"`
	TaskDetails        taskDetailsView    `json:"task_details"`
	Steps              []stepSnapshotView `json:"steps"`
}

type taskDetailsView struct {
	Version              string    `json:"version"`
	Priority             int       `json:"priority"`
	Initiator            string    `json:"initiator"`
	SourceSystem         string    `json:"source_system"`
	Reason               string    `json:"reason"`
	Tags                 []string  `json:"tags"`
	CorrelationID        uuid      `json:"correlation_id"`
	CreatedAt            naiveTime `json:"created_at"`
	TotalSteps           int       `json:"total_steps"`
	PendingSteps         int       `json:"pending_steps"`
	InProgressSteps      int       `json:"in_progress_steps"`
	CompletedSteps       int       `json:"completed_steps"`
	FailedSteps          int       `json:"failed_steps"`
	CompletionPercentage float64   `json:"completion_percentage"`
	HealthStatus         string    `json:"health_status"`
	ExecutionStatus      string    `json:"execution_status"`
}

type stepSnapshotView struct {
	StepUUID        uuid           `json:"step_uuid"`
	Name            string         `json:"name"`
	CurrentState    string         `json:"current_state"`
	Attempts        int            `json:"attempts"`
	MaxAttempts     int            `json:"max_attempts"`
	LastAttemptedAt naiveTime      `json:"last_attempted_at"`
	LastFailureAt   naiveTime      `json:"last_failure_at"`
	NextRetryAt     naiveTime      `json:"next_retry_at"`
	CompletedAt     naiveTime      `json:"completed_at"`
	Error           *stepFaultView `json:"error"`
}

// stepFaultView is why a step's latest attempt failed.
type stepFaultView struct {
	Message    *string `json:"message,omitempty"`
	ErrorType  string  `json:"error_type"`
	Retryable  bool    `json:"retryable"`
	StatusCode *int64  `json:"status_code"`
}

// faultView returns why the latest attempt failed; nil when it did not.
func (s *step) faultView(withMessage bool) *stepFaultView {
	f, failed := s.last.fault()
	if !failed {
		return nil
	}
	v := &stepFaultView{ErrorType: f.errorType, Retryable: f.retryable, StatusCode: f.statusCode}
	if text, ok := jsonString(f.message); ok && withMessage {
		v.Message = withoutCredentials(&text)
	}
	return v
}

// snapshot is the task at the instant at, which broke the limit in minutes; 0
// for none.
func (t *task) snapshot(at instant, limit int) *taskSnapshotView {
	x := t.execution(at)
	v := &taskSnapshotView{
		TaskUUID: t.id, Namespace: t.tpl.namespace, TaskName: t.tpl.name, CurrentState: t.state.String(),
		TimeInStateMinutes: wholeMinutes(at.sub(t.since)), ThresholdMinutes: limit,
		SnapshotTimestamp: naiveTime(at),
		TaskDetails: taskDetailsView{
			Version: t.tpl.version, Priority: t.by.priority, Initiator: t.by.initiator, SourceSystem: t.by.source,
			Reason: t.by.reason, Tags: t.by.tags, CorrelationID: t.correlation(), CreatedAt: naiveTime(t.created),
			TotalSteps: len(t.steps), PendingSteps: t.counts[stepPending], InProgressSteps: t.counts[stepInProgress],
			CompletedSteps: t.counts[stepComplete] + t.counts[stepResolvedManually], FailedSteps: t.counts[stepInError],
			CompletionPercentage: x.completion, HealthStatus: x.health, ExecutionStatus: x.status,
		},
		Steps: make([]stepSnapshotView, len(t.steps)),
	}
	if v.TaskDetails.Tags == nil {
		v.TaskDetails.Tags = []string{}
	}
	for i := range t.steps {
		s := &t.steps[i]
		v.Steps[i] = stepSnapshotView{
			StepUUID: t.stepID(i), Name: t.def(i).name, CurrentState: s.state.String(),
			Attempts: s.attempts, MaxAttempts: s.maxAttempts, LastAttemptedAt: naiveTime(s.attempted),
			LastFailureAt: naiveTime(s.failed), NextRetryAt: naiveTime(s.retryAt), CompletedAt: naiveTime(s.completed),
			Error: s.faultView(true),
		}
	}
	return v
}

// letterObserver takes the snapshots of a task's entries while the task is
// replayed: of a stale task before it moves to error, of a blocked one after.
type letterObserver struct {
	unobserved
	record    *record
	before    *taskSnapshotView
	snapshots []*taskSnapshotView // one for each entry
}

func (o *letterObserver) startRecord(t *task, r *record) {
	o.note(t)
	o.record, o.before = r, nil
	if r.kind == recStale && r.stale.reason != noDLQReason {
		o.before = t.snapshot(r.at, r.stale.limit)
	}
}

// note takes the snapshot of the entry that the previous record made, if any.
func (o *letterObserver) note(t *task) {
	if len(t.dead) == len(o.snapshots) {
		return
	}
	s := o.before
	if s == nil {
		s = t.snapshot(o.record.at, 0)
	}
	o.snapshots = append(o.snapshots, s)
}

// views returns all entries of a task, oldest first.
func (s *deadLetters) views(l taskLog) ([]dlqEntryView, error) {
	o := &letterObserver{}
	t, err := s.store.replayLog(l, o)
	if err != nil {
		return nil, err
	}
	o.note(t)
	views := make([]dlqEntryView, len(t.dead))
	for i := range t.dead {
		views[i] = t.dead[i].view(t.id, o.snapshots[i])
	}
	return views, nil
}

func (d *deadLetter) view(id uuid, snapshot *taskSnapshotView) dlqEntryView {
	return dlqEntryView{
		DLQEntryUUID: dlqEntryID(id, d.at, d.seq), TaskUUID: id, OriginalState: d.state.String(),
		DLQReason: d.reason.String(), DLQTimestamp: naiveTime(d.at),
		ResolutionStatus: d.status.String(), ResolutionTimestamp: naiveTime(d.resolved),
		ResolutionNotes: d.notes, ResolvedBy: d.by, TaskSnapshot: snapshot, Metadata: d.metadata,
		CreatedAt: naiveTime(d.at), UpdatedAt: naiveTime(d.updated),
	}
}

// deadLetters shows and updates the entries of the dead letter queue.
type deadLetters struct {
	clock  clock
	store  *store
	engine *engine
}

// entries is one page of the entries that match, newest first.
func (s *deadLetters) entries(f dlqFilter, skip, limit int) ([]dlqEntryView, error) {
	rows, logs := s.store.deadLetters(f, skip, limit)
	ofTask := map[uuid][]dlqEntryView{}
	views := make([]dlqEntryView, len(rows))
	for i, r := range rows {
		if ofTask[r.task] == nil {
			all, err := s.views(logs[r.task])
			if err != nil {
				return nil, err
			}
			ofTask[r.task] = all
		}
		views[i] = ofTask[r.task][r.n]
	}
	return views, nil
}

// ofTask is all entries of a task, newest first. No entry is not found.
func (s *deadLetters) ofTask(id uuid) (*dlqTaskView, error) {
	log, err := s.store.logOf(id)
	if err != nil {
		return nil, err
	}
	entries, err := s.views(log)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, failf(notFound, "task %s has no DLQ entry", id)
	}
	v := &dlqTaskView{Entries: make([]dlqEntryView, len(entries))}
	for i := range entries {
		v.Entries[len(entries)-1-i] = entries[i]
	}
	v.dlqEntryView = v.Entries[0]
	return v, nil
}

// dlqQueueView is one entry of the investigation queue.
type dlqQueueView struct {
	DLQEntryUUID       uuid      `json:"dlq_entry_uuid"`
	TaskUUID           uuid      `json:"task_uuid"`
	OriginalState      string    `json:"original_state"`
	DLQReason          string    `json:"dlq_reason"`
	DLQTimestamp       naiveTime `json:"dlq_timestamp"`
	MinutesInDLQ       float64   `json:"minutes_in_dlq"`
	NamespaceName      string    `json:"namespace_name"`
	TaskName           string    `json:"task_name"`
	CurrentState       string    `json:"current_state"`
	TimeInStateMinutes int64     `json:"time_in_state_minutes"`
	PriorityScore      float64   `json:"priority_score"`
}

// queue is the pending entries with the highest priority, highest first; of
// one reason alone unless that is nil.
func (s *deadLetters) queue(only *dlqReason, limit int) ([]dlqQueueView, error) {
	now := s.clock.now()
	queue, err := s.store.letterQueue(only, now, limit)
	if err != nil {
		return nil, err
	}
	views := make([]dlqQueueView, len(queue))
	for i := range queue {
		views[i] = queue[i].view(now)
	}
	return views, nil
}

func (q *queuedLetter) view(now instant) dlqQueueView {
	return dlqQueueView{
		DLQEntryUUID: q.id, TaskUUID: q.task, OriginalState: q.dlqRow.state.String(), DLQReason: q.reason.String(),
		DLQTimestamp: naiveTime(q.at), MinutesInDLQ: q.waited(now).Minutes(),
		NamespaceName: q.tpl.namespace, TaskName: q.tpl.name,
		CurrentState: q.state.String(), TimeInStateMinutes: wholeMinutes(now.sub(q.since)),
		PriorityScore: q.priority(now),
	}
}

// dlqStatsView is the figures of one reason.
type dlqStatsView struct {
	DLQReason                string    `json:"dlq_reason"`
	TotalEntries             int       `json:"total_entries"`
	Pending                  int       `json:"pending"`
	ManuallyResolved         int       `json:"manually_resolved"`
	PermanentFailures        int       `json:"permanent_failures"`
	Cancelled                int       `json:"cancelled"`
	OldestEntry              naiveTime `json:"oldest_entry"`
	NewestEntry              naiveTime `json:"newest_entry"`
	AvgResolutionTimeMinutes float64   `json:"avg_resolution_time_minutes"` // 0 while none is resolved
}

func (s *deadLetters) stats() []dlqStatsView {
	figures := s.store.dlqFigures()
	views := make([]dlqStatsView, len(figures))
	for i, f := range figures {
		views[i] = dlqStatsView{
			DLQReason: f.reason.String(), TotalEntries: f.total,
			Pending: f.counts[dlqPending], ManuallyResolved: f.counts[dlqManuallyResolved],
			PermanentFailures: f.counts[dlqPermanentlyFailed], Cancelled: f.counts[dlqCancelled],
			OldestEntry: naiveTime(f.oldest), NewestEntry: naiveTime(f.newest),
		}
		if n := f.total - f.counts[dlqPending]; n > 0 {
			views[i].AvgResolutionTimeMinutes = f.resolving.Minutes() / float64(n)
		}
	}
	return views
}

// The dead letter queue: an investigation entry for a task that went wrong. The
// entries are part of the fold of the task's records, and nothing but these is
// kept: a task that becomes blocked by a step that failed for good gets its
// entry as that record is applied, one that is stale with the record that says
// so, and an update is a record too. An entry changes no task.

// update records an update of an entry, durable when it returns.
func (s *deadLetters) update(ctx context.Context, id uuid, q *investigation) error {
	seq, err := s.engine.change(ctx, func(c *change) error {
		row, ok := c.letter(id)
		if !ok {
			return failf(notFound, "DLQ entry %s not found", id)
		}
		t, err := c.task(row.task)
		if err != nil {
			return err
		}
		given := *q
		given.entry = row.seq
		if p := t.pendingLetter(); q.status == dlqPending && p != nil && p.seq != row.seq {
			return failf(conflict, "cannot set entry %s back to %s: entry %s of its task is pending",
				id, dlqPending, dlqEntryID(t.id, p.at, p.seq))
		}
		return c.append(t, &record{kind: recDLQUpdate, step: -1, investigation: &given})
	})
	if err != nil {
		return err
	}
	return s.store.wait(ctx, seq)
}

// Staleness: tasks that stand still for longer than their limits allow. What is
// stale is computed here alone, for the detector, which acts, and for the view,
// which only tells.

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
	oldest := orMinutes(life.MaxDurationMinutes, c.MaxLifetimeHours*60)
	counted := a.inState
	switch t.state {
	case taskWaitingForDependencies:
		a.limit = orMinutes(life.MaxWaitingForDependenciesMinutes, c.WaitingForDependenciesMinutes)
	case taskWaitingForRetry:
		a.limit = orMinutes(life.MaxWaitingForRetryMinutes, c.WaitingForRetryMinutes)
		counted = t.overdue(now, counted, minutes(a.limit))
	case taskStepsInProcess:
		a.limit = orMinutes(life.MaxStepsInProcessMinutes, c.StepsInProcessMinutes)
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
	return cmp.Or(t.lifecycle.StalenessAction, staleToDLQ)
}

// stalenessWatch looks for stale tasks, at intervals and for whoever asks.
type stalenessWatch struct {
	cfg      *stalenessConfig
	log      *slog.Logger
	clock    clock
	store    *store
	engine   *engine
	draining *atomic.Bool

	found atomic.Int64 // how many stale tasks the latest run found
}

// stalenessRun is one run of the detector: what it found so far.
type stalenessRun struct {
	stale, moved, entries int
	done                  func() // lets tasks change their positions again
}

// start has the detector run for the first time after one interval:
// by then the retries are made that fell due while the process was down.
func (s *stalenessWatch) start() {
	s.clock.scheduleHousekeeping(s.clock.now().add(s.interval()), func() {
		s.detect(0, &stalenessRun{done: s.store.holdPositions()})
	})
}

func (s *stalenessWatch) interval() time.Duration {
	return time.Duration(s.cfg.IntervalSeconds) * time.Second
}

// detect looks at one batch of tasks, and has the clock go on with the
// next one, so that timers of others come between.
func (s *stalenessWatch) detect(from uint32, run *stalenessRun) {
	next, more, err := s.batch(from, run)
	if err != nil {
		s.log.Warn("stale tasks could not be moved; the next run tries again", "error", err)
	}
	if more {
		s.clock.scheduleHousekeeping(s.clock.now(), func() { s.detect(next, run) })
		return
	}
	run.done()
	s.found.Store(int64(run.stale))
	if run.moved > 0 {
		s.log.Warn("stale tasks were moved to error", "tasks", run.moved, "dlq_entries", run.entries)
	}
	if !s.draining.Load() {
		s.start()
	}
}

func (s *stalenessWatch) batch(from uint32, run *stalenessRun) (next uint32, more bool, err error) {
	s.store.locked(func() {
		if s.engine.stopping {
			return
		}
		now := s.clock.now()
		next, more, err = s.store.eachWatchedLocked(from, func(t *task) error {
			a := s.cfg.aging(t, now)
			if a.health != staleTask {
				return nil
			}
			run.stale++
			return s.expireLocked(t, a, run)
		})
	})
	return next, more, err
}

// expireLocked does about a stale task what its template says.
func (s *stalenessWatch) expireLocked(t *task, a aging, run *stalenessRun) error {
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

// report is the first limit of the unfinished tasks: stale ones first, then
// those that have been longest in their state.
func (s *stalenessWatch) report(limit int) []stalenessView {
	defer s.store.holdPositions()()
	views := []stalenessView{}
	now := s.clock.now()
	for from, more := uint32(0), true; more; {
		from, more = s.viewBatch(from, now, &views)
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

func (s *stalenessWatch) viewBatch(from uint32, now instant, views *[]stalenessView) (next uint32, more bool) {
	s.store.locked(func() {
		next, more, _ = s.store.eachWatchedLocked(from, func(t *task) error {
			a := s.cfg.aging(t, now)
			*views = append(*views, stalenessView{
				TaskUUID: t.id, NamespaceName: t.tpl.namespace, TaskName: t.tpl.name, CurrentState: t.state.String(),
				TimeInStateMinutes: wholeMinutes(a.inState), TaskAgeMinutes: wholeMinutes(a.age),
				StalenessThresholdMinutes: a.limit, HealthStatus: a.health.String(), Priority: t.by.priority,
				stale: a.health == staleTask, inState: a.inState,
			})
			return nil
		})
	})
	return next, more
}
