package main

// The dead letter queue. An entry of the queue asks for an investigation of a task that went wrong;
// it changes no task. Entries are part of the fold of the task's records: a task gets one when a step
// that failed for good blocks it, or when it is found stale, and an update is a record too.
//
// An entry shows its task as it was at that moment. This snapshot is replayed from the task's log:
// a stored copy could disagree with it.

import (
	"context"
	"encoding/json"
)

// dlqEntryView is one entry; all times in it are naive.
type dlqEntryView struct {
	DLQEntryUUID        uuid              `json:"dlq_entry_uuid"`
	TaskUUID            uuid              `json:"task_uuid"`
	OriginalState       string            `json:"original_state"`
	DLQReason           string            `json:"dlq_reason"`
	DLQTimestamp        naiveTime         `json:"dlq_timestamp"`
	CurrentState        string            `json:"current_state"` // of the task, now
	Over                bool              `json:"over"`          // the task has completed or was cancelled since
	Error               *letterErrorView  `json:"error"`         // of the step that stopped the task; null if none failed
	ResolutionStatus    string            `json:"resolution_status"`
	ResolutionTimestamp naiveTime         `json:"resolution_timestamp"`
	ResolutionNotes     *string           `json:"resolution_notes"`
	ResolvedBy          *string           `json:"resolved_by"`
	TaskSnapshot        *taskSnapshotView `json:"task_snapshot"`
	Metadata            json.RawMessage   `json:"metadata"` // an object, or null until one was given
	CreatedAt           naiveTime         `json:"created_at"`
	UpdatedAt           naiveTime         `json:"updated_at"`
}

// letterErrorView is why the step that stopped a task failed then.
type letterErrorView struct {
	StepUUID uuid   `json:"step_uuid"`
	StepName string `json:"step_name"`
	*stepFaultView
}

// dlqTaskView is a task's newest entry, and all entries.
type dlqTaskView struct {
	dlqEntryView
	Entries jsonList `json:"entries"`

	task *task
}

// taskSnapshotView is a task as it was when an entry was made. It has no context
// and no results, because these need other permissions.
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
	Version       string    `json:"version"`
	Priority      int       `json:"priority"`
	Initiator     string    `json:"initiator"`
	SourceSystem  string    `json:"source_system"`
	Reason        string    `json:"reason"`
	Tags          []string  `json:"tags"`
	CorrelationID uuid      `json:"correlation_id"`
	RequestedAt   naiveTime `json:"requested_at"`
	CreatedAt     naiveTime `json:"created_at"`
	progressView
}

type stepSnapshotView struct {
	stepBriefView
	LastFailureAt naiveTime `json:"last_failure_at"`
	NextRetryAt   naiveTime `json:"next_retry_at"`
}

// stepBriefView is a step in a snapshot and in the summary of its task.
type stepBriefView struct {
	StepUUID        uuid           `json:"step_uuid"`
	Name            string         `json:"name"`
	CurrentState    string         `json:"current_state"`
	CompletedAt     naiveTime      `json:"completed_at"`
	LastAttemptedAt naiveTime      `json:"last_attempted_at"`
	Attempts        int            `json:"attempts"`
	MaxAttempts     int            `json:"max_attempts"`
	Error           *stepFaultView `json:"error"` // of the latest attempt
}

func newStepBriefView(t *task, i int, withMessage bool) stepBriefView {
	s := &t.steps[i]
	return stepBriefView{t.stepID(i), t.def(i).name, s.state.String(), naiveTime(s.completed), naiveTime(s.attempted),
		s.attempts, s.maxAttempts, s.faultView(withMessage)}
}

// stepFaultView is why a step's latest attempt failed.
type stepFaultView struct {
	Message         *string `json:"message,omitempty"`
	MessageRedacted bool    `json:"message_redacted,omitempty"`
	ErrorType       string  `json:"error_type"`
	Retryable       bool    `json:"retryable"`
	StatusCode      *int64  `json:"status_code"`
}

// faultView returns why the latest attempt failed, or nil if it did not.
func (s *step) faultView(withMessage bool) *stepFaultView {
	f, failed := s.last.fault()
	if !failed {
		return nil
	}
	v := &stepFaultView{ErrorType: f.errorType, Retryable: f.retryable, StatusCode: f.statusCode}
	if text, ok := jsonString(f.message); ok && withMessage {
		v.Message = redactText(&text)
	}
	return v
}

// snapshotOf returns a task at an instant. limit is the limit that the task
// exceeded, in minutes, or 0. The messages of handlers are redacted unless asked for.
func snapshotOf(t *task, at instant, limit int, messages bool) *taskSnapshotView {
	x := executionOf(t, t.readySteps(at))
	v := &taskSnapshotView{
		TaskUUID: t.id, Namespace: t.tpl.namespace, TaskName: t.tpl.name, CurrentState: t.state.String(),
		TimeInStateMinutes: wholeMinutes(at.sub(t.since)), ThresholdMinutes: limit,
		SnapshotTimestamp: naiveTime(at),
		TaskDetails: taskDetailsView{
			Version: t.tpl.version, Priority: t.by.priority, Initiator: t.by.initiator, SourceSystem: t.by.source,
			Reason: t.by.reason, Tags: t.by.tags, CorrelationID: t.correlation(),
			RequestedAt: naiveTime(t.requestedAt()), CreatedAt: naiveTime(t.created),
			progressView: newProgressView(t, x),
		},
		Steps: make([]stepSnapshotView, len(t.steps)),
	}
	if v.TaskDetails.Tags == nil {
		v.TaskDetails.Tags = []string{}
	}
	for i := range t.steps {
		s := &t.steps[i]
		v.Steps[i] = stepSnapshotView{newStepBriefView(t, i, true), naiveTime(s.failed), naiveTime(s.retryAt)}
		if e := v.Steps[i].Error; e != nil && !messages {
			e.Message, e.MessageRedacted = new(""), true
		}
	}
	return v
}

// letterObserver takes the snapshot of one of a task's entries while the task is
// replayed: of a stale task before it moves to error, of a blocked one after.
type letterObserver struct {
	unobserved
	wanted   int  // the entry's number
	messages bool // shown
	record   *record
	before   *taskSnapshotView
	snapshot *taskSnapshotView // nil until there is the entry
}

func (o *letterObserver) startRecord(t *task, r *record) {
	o.takeSnapshot(t)
	o.record, o.before = r, nil
	if r.kind == recStale && r.stale.reason != noDLQReason && len(t.dead) == o.wanted {
		o.before = snapshotOf(t, r.at, r.stale.limit, o.messages)
	}
}

// takeSnapshot takes the snapshot if the previous record made the entry.
func (o *letterObserver) takeSnapshot(t *task) {
	if o.snapshot != nil || len(t.dead) <= o.wanted {
		return
	}
	if o.snapshot = o.before; o.before == nil {
		o.snapshot = snapshotOf(t, o.record.at, 0, o.messages)
	}
}

// entry returns one entry of a task, whose snapshot it makes from the task's log.
func (d *deadLetters) entry(l keptTask, n int, messages bool, by holder) (v dlqEntryView, err error) {
	o := &letterObserver{wanted: n, messages: messages}
	t, err := l.replay(o, times{by, 2}) // with the snapshot
	if err != nil {
		return v, err
	}
	o.takeSnapshot(t)
	return t.dead[n].view(t, o.snapshot), nil
}

// list returns entries, which it makes when they are written.
func (d *deadLetters) list(n int, messages bool, entry func(i int) (keptTask, int)) jsonList {
	return jsonList{n, func(o *jsonWriter, i int) {
		l, number := entry(i)
		v, err := d.entry(l, number, messages, o)
		if err != nil {
			o.fail(err)
			return
		}
		o.value(&v)
	}}
}

func (d *deadLetter) view(t *task, snapshot *taskSnapshotView) dlqEntryView {
	v := dlqEntryView{
		DLQEntryUUID: dlqEntryID(t.id, d.at, d.seq), TaskUUID: t.id, OriginalState: d.state.String(),
		DLQReason: d.reason.String(), DLQTimestamp: naiveTime(d.at),
		CurrentState: t.state.String(), Over: t.state.final(),
		ResolutionStatus: d.status.String(), ResolutionTimestamp: naiveTime(d.resolved),
		ResolutionNotes: d.notes, ResolvedBy: d.by, TaskSnapshot: snapshot, Metadata: d.metadata,
		CreatedAt: naiveTime(d.at), UpdatedAt: naiveTime(d.updated),
	}
	if d.step >= 0 {
		s := &snapshot.Steps[d.step]
		v.Error = &letterErrorView{s.StepUUID, s.Name, s.Error}
	}
	return v
}

// deadLetters shows and updates the entries of the dead letter queue.
type deadLetters struct {
	clock  clock
	store  *store
	engine *engine
}

// entries returns one page of the matching entries, newest first, with or without the
// messages of handlers, and how many match.
func (d *deadLetters) entries(f dlqFilter, skip, limit int, messages bool) (jsonList, int) {
	rows, logs, total := d.store.letters().page(f, skip, limit)
	return d.list(len(rows), messages, func(i int) (keptTask, int) { return logs[i], int(rows[i].n) }), total
}

// ofTask returns all entries of a task, newest first, as entries does. It is an error if
// there is none. It asks for the memory.
func (d *deadLetters) ofTask(id uuid, messages bool, by holder) (*dlqTaskView, error) {
	log, err := d.store.keptOf(id)
	if err != nil {
		return nil, err
	}
	t, err := log.replay(unobserved{}, by)
	if err != nil {
		return nil, err
	}
	last := len(t.dead) - 1
	if last < 0 {
		return nil, failf(notFound, "task %s has no DLQ entry", id)
	}
	newest, err := d.entry(log, last, messages, by)
	return &dlqTaskView{newest, d.list(last+1, messages, func(i int) (keptTask, int) { return log, last - i }), t}, err
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

	Over  bool             `json:"over"` // like error as in the entry
	Error *letterErrorView `json:"error"`
}

// queue returns one page of the matching pending entries, highest priority first, as entries does.
func (d *deadLetters) queue(f dlqFilter, skip, limit int, messages bool) (jsonList, int) {
	now := d.clock.now()
	queue, total := d.store.letters().queue(f, now, skip, limit)
	return jsonList{len(queue), func(o *jsonWriter, i int) {
		e, err := d.entry(queue[i].kept, int(queue[i].n), messages, o)
		if err != nil {
			o.fail(err)
			return
		}
		v := queue[i].view(now)
		v.Error = e.Error
		o.value(&v)
	}}, total
}

func (q *queuedLetter) view(now instant) dlqQueueView {
	return dlqQueueView{
		DLQEntryUUID: q.id, TaskUUID: q.task, OriginalState: q.dlqRow.state.String(), DLQReason: q.reason.String(),
		DLQTimestamp: naiveTime(q.at), MinutesInDLQ: q.waited(now).Minutes(),
		NamespaceName: q.tpl.namespace, TaskName: q.tpl.name,
		CurrentState: q.state.String(), TimeInStateMinutes: wholeMinutes(now.sub(q.since)),
		PriorityScore: q.priority(now), Over: q.over,
	}
}

// dlqStatsView holds the figures of one reason.
type dlqStatsView struct {
	DLQReason                string    `json:"dlq_reason"`
	TotalEntries             int       `json:"total_entries"`
	Pending                  int       `json:"pending"`
	PendingOver              int       `json:"pending_over"` // of these, whose task is over
	ManuallyResolved         int       `json:"manually_resolved"`
	PermanentFailures        int       `json:"permanent_failures"`
	Cancelled                int       `json:"cancelled"`
	OldestEntry              naiveTime `json:"oldest_entry"`
	NewestEntry              naiveTime `json:"newest_entry"`
	AvgResolutionTimeMinutes float64   `json:"avg_resolution_time_minutes"` // 0 while none is resolved
}

func (d *deadLetters) stats() []dlqStatsView {
	figures := d.store.letters().figures()
	views := make([]dlqStatsView, len(figures))
	for i, f := range figures {
		views[i] = dlqStatsView{
			DLQReason: f.reason.String(), TotalEntries: f.total,
			Pending: f.counts[dlqPending], PendingOver: f.over, ManuallyResolved: f.counts[dlqManuallyResolved],
			PermanentFailures: f.counts[dlqPermanentlyFailed], Cancelled: f.counts[dlqCancelled],
			OldestEntry: naiveTime(f.oldest), NewestEntry: naiveTime(f.newest),
		}
		if n := f.total - f.counts[dlqPending]; n > 0 {
			views[i].AvgResolutionTimeMinutes = f.resolving.Minutes() / float64(n)
		}
	}
	return views
}

// update records an update of an entry, and returns once it is durable.
// The task of the entry must have one of the versions seen.
func (d *deadLetters) update(ctx context.Context, id uuid, q *investigation, seen taskVersions) error {
	seq, err := d.engine.change(ctx, func(c *change) error {
		row, ok := c.letter(id)
		if !ok {
			return failf(notFound, "DLQ entry %s not found", id)
		}
		t, err := c.task(row.task)
		if err != nil {
			return err
		}
		if err := seen.refusal(t); err != nil {
			return err
		}
		r, err := t.investigation(row, q)
		if err != nil {
			return err
		}
		return c.append(t, r)
	})
	if err != nil {
		return err
	}
	return d.store.wait(ctx, seq)
}

// investigation returns the record of an update of one of the task's entries, or why it is refused.
func (t *task) investigation(row dlqRow, q *investigation) (*record, error) {
	if p := t.pendingLetter(); q.status == dlqPending && p != nil && p.seq != row.seq {
		return nil, failf(conflict, "cannot set entry %s back to %s: entry %s of its task is pending",
			row.id, dlqPending, dlqEntryID(t.id, p.at, p.seq))
	}
	if d := t.letter(row.seq); q.status != dlqPending && d.status != dlqPending && anotherBy(d.by, q.by) {
		return nil, failf(conflict, "cannot update entry %s: %s set it to %s at %s; set it back to %s first",
			row.id, *d.by, d.status, d.resolved.zoned(), dlqPending)
	}
	given := *q
	given.entry = row.seq
	return &record{kind: recDLQUpdate, step: -1, subject: q.subject, request: q.request, investigation: &given}, nil
}

// anotherBy reports whether both are given and differ.
func anotherBy(a, b *string) bool { return a != nil && b != nil && *a != *b }

// Failures by cause: which steps fail now and why, and how many tasks are stuck by that.

// failuresView is the answer of /v1/analytics/failures.
type failuresView struct {
	Groups       []failureGroupView `json:"groups"`
	OtherGroups  otherFailuresView  `json:"other_groups"`
	CalculatedAt zonedTime          `json:"calculated_at"`
}

// failureGroupView is one group. The sample is the step of it that failed last.
type failureGroupView struct {
	Group           failureGroup `json:"group"`
	NamespaceName   string       `json:"namespace_name"`
	TaskName        string       `json:"task_name"`
	StepName        string       `json:"step_name"` // in the template
	ErrorType       string       `json:"error_type"`
	Message         *string      `json:"message,omitempty"`
	MessageRedacted bool         `json:"message_redacted,omitempty"`
	failedTasksView
	Course         failureCourse `json:"course"`
	SampleTaskUUID uuid          `json:"sample_task_uuid"`
	SampleStepUUID uuid          `json:"sample_step_uuid"`
}

// failedTasksView counts the tasks of one group or several.
type failedTasksView struct {
	StuckTasks     int       `json:"stuck_tasks"`
	RetryingTasks  int       `json:"retrying_tasks"`
	FirstFailureAt zonedTime `json:"first_failure_at"`
	LastFailureAt  zonedTime `json:"last_failure_at"`
}

// otherFailuresView is the groups that are not listed, together.
type otherFailuresView struct {
	Groups int `json:"groups"`
	failedTasksView
}

func (c *failureCount) view() failedTasksView {
	return failedTasksView{c.stuck, c.retrying, zonedTime(c.first), zonedTime(c.last)}
}

// failures returns the groups of the templates that a filter selects by namespace and name, and of the steps that failed
// after an instant, those with the most tasks first and at most limit of them, with or without the messages of handlers. It asks for the memory of
// tasks that it decodes.
func (s *service) failures(f *taskFilter, since instant, limit int, messages bool, by holder) (v failuresView, err error) {
	now := s.clock.now()
	c := countFailures(s.store, f, since, limit, now)
	v = failuresView{
		Groups:       make([]failureGroupView, len(c.top)),
		OtherGroups:  otherFailuresView{c.groups - len(c.top), c.others.view()},
		CalculatedAt: zonedTime(now),
	}
	for i := range v.Groups {
		step, err := c.samples[i].read(by)
		if err != nil {
			return v, err
		}
		v.Groups[i] = c.top[i].groupView(step, messages)
		v.Groups[i].Course = c.courses[i]
	}
	return v, nil
}

func (c *failureCount) groupView(sample failedStep, messages bool) failureGroupView {
	cause := sample.cause()
	v := failureGroupView{
		Group: c.group, NamespaceName: cause.namespace, TaskName: cause.name, StepName: cause.step,
		ErrorType: cause.errorType, MessageRedacted: !messages, failedTasksView: c.view(),
		SampleTaskUUID: sample.task, SampleStepUUID: sample.id,
	}
	if messages {
		v.Message = &cause.message
	}
	return v
}
