package main

// History: every transition of a task and its steps, and the audit of a step. Both
// are replayed from the task's log; nothing is stored twice.

import (
	"cmp"
	"encoding/json"
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
	Reason     string    `json:"reason,omitempty"` // of the task's cancellation, or why the step's attempt failed
}

// historyView is every transition of a task, oldest first.
type historyView struct {
	TaskUUID    uuid     `json:"task_uuid"`
	Transitions jsonList `json:"transitions"`

	task *task
}

// transitionObserver collects transitions while a task is replayed.
type transitionObserver struct {
	messages bool // whether messages of errors are shown
	record   *record
	moves    []transitionView
}

func (o *transitionObserver) startRecord(_ *task, r *record) { o.record = r }

func (o *transitionObserver) taskMoved(_ *task, from, to taskState, at instant) {
	v := transitionView{Sequence: o.record.seq, RecordedAt: zonedTime(at), ToState: to.String()}
	if from != noTaskState {
		v.FromState = new(from.String())
	}
	if to == taskCancelled {
		v.Reason = o.record.reason
	}
	o.moves = append(o.moves, v)
}

func (o *transitionObserver) stepMoved(t *task, i int, from, to stepState, at instant) {
	if o.record.kind == recUndelivered { // it takes a start back
		return
	}
	at, attempt := t.momentOf(i, to, at, o.record.started())
	v := transitionView{Sequence: o.record.seq, RecordedAt: zonedTime(at), StepUUID: new(t.stepID(i)), StepName: &t.def(i).name,
		ToState: to.String(), Attempt: attempt}
	if from != noStepState {
		v.FromState = new(from.String())
	}
	if s := &t.steps[i]; from == stepEnqueuedAsError && s.last != nil {
		v.Reason = attemptFailed(s.last, attempt, s.maxAttempts, at, o.messages)
	}
	o.moves = append(o.moves, v)
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
	Result           *outcomeView    `json:"result,omitempty"`
	StepName         string          `json:"step_name"`
	FromState        string          `json:"from_state,omitempty"`
	ToState          string          `json:"to_state"`
	Action           string          `json:"action,omitempty"` // an operator's, or what happened without one
	ActedBy          string          `json:"acted_by,omitempty"`
	Subject          string          `json:"subject,omitempty"` // the authenticated caller
	ActionReason     string          `json:"action_reason,omitempty"`
	RequestID        string          `json:"request_id,omitempty"`  // of a bulk action
	RetryLimit       int             `json:"retry_limit,omitempty"` // an adjustment's, as the inputs, or a reset's
	Inputs           json.RawMessage `json:"inputs,omitempty"`
	Checkpoint       json.RawMessage `json:"checkpoint,omitempty"`
	WithheldEvents   json.RawMessage `json:"withheld_events,omitempty"` // events not published, and why
	CopiedFrom       *copiedView     `json:"copied_from,omitempty"`     // of a step that did not run in this task
}

// copiedView names the step that was copied.
type copiedView struct {
	TaskUUID uuid `json:"task_uuid"`
	StepUUID uuid `json:"step_uuid"`
}

// auditObserver collects the audit of one step while its task is replayed: an entry
// for each attempt that ended, each operator action and each late result.
type auditObserver struct {
	unobserved
	step    int
	worker  string
	entries []auditView
	created *record // while it is applied
	open    bool    // the newest entry has no transition yet
}

func (o *auditObserver) startRecord(t *task, r *record) {
	o.open, o.created = false, nil
	if r.kind == recCreated {
		o.created = r
		return
	}
	if r.step != o.step || r.end == nil && r.kind != recOperator && r.kind != recAdjusted && r.kind != recCheckpoint {
		return
	}
	v := o.entry(t, r)
	v.Action, v.ActedBy, v.Subject, v.ActionReason = r.action.String(), r.by, r.subject, r.reason
	v.RetryLimit, v.RequestID = r.maxAttempts, r.request
	if r.end != nil {
		v.Success = r.end.success
		v.Result = &outcomeView{r.end, v.WorkflowStepUUID, r.at, o.worker}
		v.ExecutionTimeMS = new(r.end.took.Milliseconds())
	}
	switch r.kind {
	case recAdjusted:
		v.Action, v.RetryLimit, v.Inputs = recAdjusted.String(), r.adjustment.maxAttempts, r.adjustment.inputs
		v.FromState = t.steps[o.step].state.String()
		v.ToState = v.FromState
	case recCheckpoint:
		o.yielded(&v, r)
	case recUnanswered:
		v.Action = recUnanswered.String()
	case recOperator:
	default:
		v.WorkerUUID = new(stableID("worker", cmp.Or(r.end.worker, o.worker)))
	}
	if r.end != nil {
		v.WithheldEvents = redact(r.end.withheld)
	}
	o.open = r.kind != recLate // a late result moves no step
	if !o.open {
		v.ToState = t.steps[o.step].state.String()
	}
	o.entries = append(o.entries, v)
}

func (o *auditObserver) entry(t *task, r *record) auditView {
	return auditView{
		AuditUUID: recordID(t.id, r, 1), TransitionUUID: recordID(t.id, r, 2),
		WorkflowStepUUID: t.stepID(o.step), TaskUUID: t.id, RecordedAt: zonedTime(r.at),
		CorrelationID: new(t.correlation()), Success: true, StepName: t.def(o.step).name,
	}
}

// copied adds the entry of a step that the creation of the task copied.
func (o *auditObserver) copied(t *task) {
	c := t.by.origin.copyOf(o.step)
	v := o.entry(t, o.created)
	v.Action, v.CopiedFrom = "copied", &copiedView{t.by.origin.task, c.of}
	v.AuditUUID, v.TransitionUUID = stableID("copy", v.WorkflowStepUUID.String()), stableID("copied", v.WorkflowStepUUID.String())
	if !c.resolved {
		v.Result = &outcomeView{&c.end, v.WorkflowStepUUID, o.created.at, o.worker}
	}
	o.entries, o.open = append(o.entries, v), true
}

// yielded makes an entry the entry of a checkpoint. It replaces the entries of earlier checkpoints, because
// the task need not keep these.
func (o *auditObserver) yielded(v *auditView, r *record) {
	c := *r.checkpoint
	c.at = r.at
	v.Action, v.Checkpoint = recCheckpoint.String(), c.appendJSON(nil)
	v.WorkerUUID = new(stableID("worker", cmp.Or(c.worker, o.worker)))
	o.entries = slices.DeleteFunc(o.entries, func(e auditView) bool { return e.Checkpoint != nil })
}

// stepMoved takes the record's first move that does not start an attempt: the end
// of an attempt, or the effect of an operator's action.
func (o *auditObserver) stepMoved(t *task, i int, from, to stepState, _ instant) {
	if o.created != nil && i == o.step && to.satisfies() {
		o.copied(t)
	}
	if !o.open || i != o.step || to == stepInProgress {
		return
	}
	v := &o.entries[len(o.entries)-1]
	v.FromState, v.ToState = from.String(), to.String()
	o.open = false
}

// actView is one request of an operator.
type actView struct {
	ActedAt        zonedTime `json:"acted_at"`
	EndedAt        zonedTime `json:"ended_at"` // of a bulk action
	ActedBy        string    `json:"acted_by,omitempty"`
	Subject        string    `json:"subject,omitempty"` // the authenticated caller
	Action         string    `json:"action"`
	Reason         string    `json:"reason"`
	RequestID      string    `json:"request_id,omitempty"` // of a bulk action
	Tasks          int       `json:"tasks"`
	Steps          int       `json:"steps"`
	NamespaceName  string    `json:"namespace_name"` // of the sample, the task on which the operator acted first
	TaskName       string    `json:"task_name"`
	StepName       *string   `json:"step_name"`
	SampleTaskUUID uuid      `json:"sample_task_uuid"`
	SampleStepUUID *uuid     `json:"sample_step_uuid"`
	Verdict        *verdict  `json:"verdict,omitempty"` // of a request that was asked for
}

// verdict counts what became of the steps of an action on many.
type verdict struct {
	Done      int `json:"done"`
	Running   int `json:"running"`
	Failed    int `json:"failed"`     // for good
	Causes    int `json:"causes"`     // for which they did
	NewCauses int `json:"new_causes"` // of these, for which none of the steps had failed before the action
}

// verdictObserver notes the steps of a request, and for what causes they had failed, while a task is replayed.
type verdictObserver struct {
	unobserved
	store   *store
	request string
	steps   []int
	before  map[failureGroup]bool
}

func (o *verdictObserver) startRecord(t *task, r *record) {
	if r.request == o.request && r.kind.ofStep() {
		o.steps = append(o.steps, r.step)
		if t.steps[r.step].failing() {
			o.before[o.store.table().failureGroup(t.failedStep(r.step))] = true
		}
	}
}

// verdictOn returns what became of a request's steps. It asks for the memory.
func (h *historyReader) verdictOn(a *operatorAct, by holder) (*verdict, error) {
	v, now := &verdict{}, map[failureGroup]bool{}
	o := &verdictObserver{store: h.store, request: a.first.request, before: map[failureGroup]bool{}}
	for _, sl := range a.tasks {
		o.steps = o.steps[:0]
		t, err := (&keptTask{ended: sl}).replay(o, by)
		if err != nil {
			return nil, err
		}
		for _, i := range o.steps {
			switch s := &t.steps[i]; {
			case s.state == stepInError:
				v.Failed++
				now[h.store.table().failureGroup(t.failedStep(i))] = true
			case s.state.satisfies() || s.state == stepCancelled:
				v.Done++
			default:
				v.Running++
			}
		}
	}
	v.Causes = len(now)
	for group := range now {
		v.NewCauses += boolCount(!o.before[group])
	}
	return v, nil
}

// acts returns a part of what operators did, the newest first, and how much there is in all. It asks for the memory.
func (h *historyReader) acts(q actQuery, skip, limit int, by holder) (part []actView, total int, err error) {
	all, err := h.store.acts(q, by)
	part = []actView{}
	for _, a := range all[min(skip, len(all)):min(skip+limit, len(all))] {
		r := a.first
		v := actView{
			ActedAt: zonedTime(r.at), EndedAt: zonedTime(a.ended), Action: r.did(), Reason: r.why(), RequestID: r.request,
			Tasks: len(a.tasks), Steps: a.steps, NamespaceName: a.in.tpl.namespace, TaskName: a.in.tpl.name, SampleTaskUUID: a.in.id,
		}
		v.ActedBy, v.Subject = r.who()
		if r.kind.ofStep() { // only the whole task knows the ids of all steps
			t, err := (&keptTask{ended: a.in}).taskWithin(by)
			if err != nil {
				return nil, 0, err
			}
			v.StepName, v.SampleStepUUID = &t.def(r.step).name, new(t.stepID(r.step))
		}
		if q.request != "" {
			if v.Verdict, err = h.verdictOn(a, by); err != nil {
				return nil, 0, err
			}
		}
		part = append(part, v)
	}
	return part, len(all), err
}

// historyReader replays the logs of tasks to show what happened.
type historyReader struct {
	store    *store
	workerID string
}

// transitions returns every transition of a task, with or without the messages of errors. It asks for the memory.
func (h *historyReader) transitions(id uuid, by holder, messages bool) (*historyView, error) {
	o := &transitionObserver{messages: messages}
	t, err := h.store.viewObserved(id, o, times{by, 2}) // with its transitions
	if err != nil {
		return nil, err
	}
	return &historyView{t.id, jsonListOf(len(o.moves), func(i int) transitionView { return o.moves[i] }), t}, nil
}

// audit returns the audit of one step, newest first. It asks for the memory.
func (h *historyReader) audit(id uuid, step int, by holder) ([]auditView, error) {
	o := &auditObserver{step: step, worker: h.workerID, entries: []auditView{}}
	if _, err := h.store.viewObserved(id, o, by); err != nil {
		return nil, err
	}
	slices.Reverse(o.entries)
	return o.entries, nil
}
