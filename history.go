package main

// What happened to a task, read back from its log: every transition of it and
// its steps, and the audit of a step. Nothing of this is stored twice.

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"slices"
)

// transitionView is one move of a task, or of one of its steps.
type transitionView struct {
	Sequence   uint64    `json:"sequence"` // of the journal record that made it
	RecordedAt zonedTime `json:"recorded_at"`
	StepUUID   *uuid     `json:"step_uuid"`
	StepName   *string   `json:"step_name"`
	FromState  *string   `json:"from_state"`
	ToState    string    `json:"to_state"`
	Attempt    int       `json:"attempt,omitempty"`
}

// historyView is every transition of a task, oldest first.
type historyView struct {
	TaskUUID    uuid             `json:"task_uuid"`
	Transitions []transitionView `json:"transitions"`
}

// historian collects transitions while a task is replayed.
type historian struct {
	record *record
	moves  []transitionView
}

func (h *historian) begin(_ *task, r *record) { h.record = r }

func (h *historian) taskMoved(_ *task, from, to taskState, at instant) {
	v := transitionView{Sequence: h.record.seq, RecordedAt: zonedTime(at), ToState: to.String()}
	if from != noTaskState {
		v.FromState = new(from.String())
	}
	h.moves = append(h.moves, v)
}

func (h *historian) stepMoved(t *task, i int, from, to stepState, at instant) {
	at, attempt := t.momentOf(i, to, at, h.record.started())
	v := transitionView{
		Sequence: h.record.seq, RecordedAt: zonedTime(at), ToState: to.String(),
		StepUUID: new(t.stepID(i)), StepName: &t.def(i).name, Attempt: attempt,
	}
	if from != noStepState {
		v.FromState = new(from.String())
	}
	h.moves = append(h.moves, v)
}

// momentOf is when a step came into a state, by a record of a time that started
// an attempt, if it did, at another; and which attempt it was in.
func (t *task) momentOf(i int, to stepState, at, started instant) (instant, int) {
	s := &t.steps[i]
	switch {
	case to != stepInProgress:
		return at, s.attempts
	case s.redeliver:
		return started, s.attempts
	}
	return started, s.attempts + 1 // the move stands before the count
}

// auditView is one entry of a step's audit.
type auditView struct {
	AuditUUID        uuid            `json:"audit_uuid"`
	WorkflowStepUUID uuid            `json:"workflow_step_uuid"`
	TransitionUUID   uuid            `json:"transition_uuid"`
	TaskUUID         uuid            `json:"task_uuid"`
	RecordedAt       zonedTime       `json:"recorded_at"`
	WorkerUUID       *uuid           `json:"worker_uuid,omitempty"`
	CorrelationID    *uuid           `json:"correlation_id,omitempty"`
	Success          bool            `json:"success"`
	ExecutionTimeMS  *int64          `json:"execution_time_ms,omitempty"`
	Result           json.RawMessage `json:"result,omitempty"`
	StepName         string          `json:"step_name"`
	FromState        string          `json:"from_state,omitempty"`
	ToState          string          `json:"to_state"`
	Action           string          `json:"action,omitempty"` // an operator's
	ActedBy          string          `json:"acted_by,omitempty"`
	Subject          string          `json:"subject,omitempty"` // who that was, by authentication
	ActionReason     string          `json:"action_reason,omitempty"`
	RetryLimit       int             `json:"retry_limit,omitempty"` // an adjustment's, as the inputs
	Inputs           json.RawMessage `json:"inputs,omitempty"`
}

// auditor collects the audit of one step while its task is replayed: an entry
// for each attempt that ended, each operator action and each late result.
type auditor struct {
	step    int
	worker  string
	entries []auditView
	open    bool // the newest entry still waits for its transition
}

func (a *auditor) begin(t *task, r *record) {
	a.open = false
	if r.step != a.step || r.end == nil && r.kind != recOperator && r.kind != recAdjusted {
		return
	}
	v := auditView{
		AuditUUID: recordID(t, r, 1), TransitionUUID: recordID(t, r, 2),
		WorkflowStepUUID: t.stepID(a.step), TaskUUID: t.id, RecordedAt: zonedTime(r.at),
		CorrelationID: new(t.correlation()), Success: true, StepName: t.def(a.step).name,
		Action: r.action.String(), ActedBy: r.by, Subject: r.subject, ActionReason: r.reason,
	}
	if r.end != nil {
		v.Success = r.end.success
		v.Result = r.end.outcomeJSON(v.WorkflowStepUUID, r.at, a.worker)
		v.ExecutionTimeMS = new(r.end.took.Milliseconds())
	}
	if r.kind == recAdjusted {
		v.adjusted(r.adjustment, t.steps[a.step].state)
	} else if r.kind != recOperator {
		v.WorkerUUID = new(stableID("worker", orDefault(r.end.worker, a.worker)))
	}
	a.open = r.kind != recLate
	if !a.open {
		v.ToState = t.steps[a.step].state.String()
	}
	a.entries = append(a.entries, v)
}

func (a *auditor) taskMoved(*task, taskState, taskState, instant) {}

// stepMoved takes the first move of the record that is not the start of the
// attempt: for an attempt its end, for an operator what the action did.
func (a *auditor) stepMoved(_ *task, i int, from, to stepState, _ instant) {
	if !a.open || i != a.step || to == stepInProgress {
		return
	}
	v := &a.entries[len(a.entries)-1]
	v.FromState, v.ToState = from.String(), to.String()
	a.open = false
}

// newestFirst is the audit as the API shows it.
func (a *auditor) newestFirst() []auditView {
	slices.Reverse(a.entries)
	return a.entries
}

// recordID is the version 7 id of what a record brought about: its time, its
// sequence, and bits of the task's id, so that another service's differ. The
// purpose, 0 to 3, tells apart the ids made from one record.
func recordID(t *task, r *record, purpose uint64) (u uuid) {
	salt := uint64(crc32.ChecksumIEEE(t.id[:])) & (1<<24 - 1)
	binary.BigEndian.PutUint64(u[0:], uint64(max(r.at, 0))/1000<<16|7<<12|r.seq>>36&0xfff)
	binary.BigEndian.PutUint64(u[8:], 1<<63|r.seq&(1<<36-1)<<26|salt<<2|purpose)
	return u
}

// history is every transition of a task.
func (s *service) history(id uuid) (*historyView, error) {
	h := &historian{}
	t, err := s.store.viewObserved(id, h)
	if err != nil {
		return nil, err
	}
	return &historyView{t.id, h.moves}, nil
}

// audit is the audit of one step, newest first.
func (s *service) audit(taskID, stepID uuid) ([]auditView, error) {
	t, err := s.store.view(taskID)
	if err != nil {
		return nil, err
	}
	i, ok := t.stepIndex(stepID)
	if !ok {
		return nil, stepNotFound(taskID, stepID)
	}
	a := &auditor{step: i, worker: s.workerID, entries: []auditView{}}
	if _, err := s.store.viewObserved(taskID, a); err != nil {
		return nil, err
	}
	return a.newestFirst(), nil
}
