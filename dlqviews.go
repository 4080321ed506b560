package main

// What the API shows of the dead letter queue. The snapshot of task and steps
// that an entry keeps is read back from the task's log up to the moment of the
// entry: the log is never cut, so a second copy of it, in each entry of a task
// that may have thousands of steps, would only be able to disagree.

import (
	"encoding/json"
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

// fault is why the latest attempt failed; nil when it did not.
func (s *step) fault(withMessage bool) *stepFaultView {
	if s.last == nil || s.last.success || s.last.err == nil {
		return nil
	}
	v := &stepFaultView{}
	eachMember(s.last.err, func(key string, value []byte) bool {
		switch text, ok := jsonString(value); key {
		case "message":
			if withMessage && ok {
				v.Message = withoutCredentials(&text)
			}
		case "error_type":
			v.ErrorType = text
		case "retryable":
			v.Retryable = string(value) == "true"
		case "status_code":
			if n, ok := jsonInt(value); ok {
				v.StatusCode = &n
			}
		}
		return true
	})
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
			Error: s.fault(true),
		}
	}
	return v
}

// coroner takes the snapshots of a task's entries while the task is replayed: of
// a stale one as it was before it moved to error, of a blocked one as it is then.
type coroner struct {
	unobserved
	record    *record
	before    *taskSnapshotView
	snapshots []*taskSnapshotView // one for each entry
}

func (c *coroner) begin(t *task, r *record) {
	c.note(t)
	c.record, c.before = r, nil
	if r.kind == recStale && r.stale.reason != noDLQReason {
		c.before = t.snapshot(r.at, r.stale.limit)
	}
}

// note takes the snapshot of the entry that the record before made, if it did.
func (c *coroner) note(t *task) {
	if len(t.dead) == len(c.snapshots) {
		return
	}
	s := c.before
	if s == nil {
		s = t.snapshot(c.record.at, 0)
	}
	c.snapshots = append(c.snapshots, s)
}

// taskLog is what a task can be replayed from, without any lock.
type taskLog struct {
	line []byte // of an ended task
	id   uuid   // of a live one, as the two below
	tpl  *template
	log  []byte
}

// logLocked is the log of a task as it is now.
func (s *store) logLocked(pos uint32) taskLog {
	if t := s.slots[pos].live; t != nil {
		return taskLog{id: t.id, tpl: t.tpl, log: t.log[:len(t.log):len(t.log)]}
	}
	return taskLog{line: s.slots[pos].line}
}

// autopsy is all entries of a task, oldest first.
func (s *store) autopsy(l taskLog) ([]dlqEntryView, error) {
	c := &coroner{}
	t, err := s.replayLog(l, c)
	if err != nil {
		return nil, err
	}
	c.note(t)
	views := make([]dlqEntryView, len(t.dead))
	for i := range t.dead {
		views[i] = t.dead[i].view(t.id, c.snapshots[i])
	}
	return views, nil
}

func (s *store) replayLog(l taskLog, obs replayer) (*task, error) {
	if l.line != nil {
		return s.thawObserved(l.line, obs)
	}
	log := make([]byte, 0, len(l.log)+2)
	h := taskHeader{id: l.id, log: append(append(append(log, '['), l.log...), ']')}
	return h.replay(l.tpl, obs)
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

// dlqEntries is one page of the entries that match, newest first.
func (s *service) dlqEntries(f dlqFilter, skip, limit int) ([]dlqEntryView, error) {
	s.store.mu.Lock()
	rows := s.store.dead.page(f, skip, limit)
	logs := map[uuid]taskLog{}
	for _, r := range rows {
		logs[r.task] = s.store.logLocked(s.store.byID[r.task])
	}
	s.store.mu.Unlock()
	ofTask := map[uuid][]dlqEntryView{}
	views := make([]dlqEntryView, len(rows))
	for i, r := range rows {
		if ofTask[r.task] == nil {
			all, err := s.store.autopsy(logs[r.task])
			if err != nil {
				return nil, err
			}
			ofTask[r.task] = all
		}
		views[i] = ofTask[r.task][r.n]
	}
	return views, nil
}

// dlqOfTask is all entries of a task, newest first. No entry is not found.
func (s *service) dlqOfTask(id uuid) (*dlqTaskView, error) {
	s.store.mu.Lock()
	pos, ok := s.store.byID[id]
	if !ok {
		s.store.mu.Unlock()
		return nil, taskNotFound(id)
	}
	log := s.store.logLocked(pos)
	s.store.mu.Unlock()
	entries, err := s.store.autopsy(log)
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

// dlqQueue is the pending entries with the highest priority, highest first; of
// one reason alone unless that is nil.
func (s *service) dlqQueue(only *dlqReason, limit int) ([]dlqQueueView, error) {
	s.store.mu.Lock()
	now := s.clock.now()
	rows := s.store.dead.queue(only, now, limit)
	views := make([]dlqQueueView, len(rows))
	ended := make([][]byte, len(rows)) // lines of tasks that ended
	for i := range rows {
		sl := &s.store.slots[s.store.byID[rows[i].task]]
		if t := sl.live; t != nil {
			views[i].place(t.id, t.tpl, t.state, now.sub(t.since))
		} else {
			ended[i] = sl.line
		}
	}
	s.store.mu.Unlock()
	for i := range rows {
		views[i].describe(&rows[i], now)
		if ended[i] == nil {
			continue
		}
		h, err := readTaskHeader(ended[i])
		if err != nil {
			return nil, err
		}
		views[i].place(h.id, s.store.template(h.template), h.state, now.sub(h.completed))
	}
	return views, nil
}

// describe fills in what the queue says of the entry itself.
func (v *dlqQueueView) describe(r *dlqRow, now instant) {
	v.DLQEntryUUID, v.OriginalState, v.DLQReason = r.id, r.state.String(), r.reason.String()
	v.DLQTimestamp, v.MinutesInDLQ, v.PriorityScore = naiveTime(r.at), r.waited(now).Minutes(), r.priority(now)
}

// place fills in what it says of the task as it is now.
func (v *dlqQueueView) place(id uuid, tpl *template, state taskState, since time.Duration) {
	v.TaskUUID, v.NamespaceName, v.TaskName = id, tpl.namespace, tpl.name
	v.CurrentState, v.TimeInStateMinutes = state.String(), wholeMinutes(since)
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

func (s *service) dlqStats() []dlqStatsView {
	s.store.mu.Lock()
	figures := s.store.dead.figures()
	s.store.mu.Unlock()
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

func (s *service) dlqMetrics(m *metricsText) {
	s.store.mu.Lock()
	counts := s.store.dead.counts
	s.store.mu.Unlock()
	m.family("stepwell_dlq_entries", "gauge", "Entries of the dead letter queue, by reason and resolution status.")
	for reason, ofReason := range counts {
		for status, n := range ofReason {
			m.sample("stepwell_dlq_entries", float64(n),
				"reason", dlqReasonWords[reason], "status", dlqStatusWords[status])
		}
	}
	m.single("stepwell_stale_tasks", "gauge",
		"Stale tasks that the latest search found, also those it moved to error.", float64(s.staleTasks.Load()))
}
