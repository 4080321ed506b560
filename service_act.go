package main

// What operators and outside actors do to a step: reset, resolve, complete,
// fail, cancel. The rules of who may do what in which state stand here.

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
)

// operator changes tasks and steps for people.
type operator struct {
	cfg    *Config
	store  *store
	engine *engine
}

// stepRequest is one action on a step, checked for form but not against the
// step's state.
type stepRequest struct {
	action   stepAction
	by       string
	subject  string // the authenticated caller, or ""
	reason   string
	result   []byte     // complete_manually: JSON
	metadata []byte     // complete_manually: a JSON object, or nil
	err      *stepError // fail
}

// act applies an action and returns the task after it, durable.
func (s *operator) act(ctx context.Context, taskID, stepID uuid, q *stepRequest) (*task, int, error) {
	return s.changeStep(ctx, taskID, stepID, func(c *change, t *task, i int) (*record, error) {
		if err := s.engine.allowsLocked(t, i, q); err != nil {
			return nil, err
		}
		r := s.record(c, t, i, q)
		if q.action == actionComplete {
			return r, t.allowsCompletion(i, r.end)
		}
		return r, nil
	})
}

// changeStep records what decide makes of a step, and returns the task after
// it, durable, with the step's index.
func (s *operator) changeStep(
	ctx context.Context, taskID, stepID uuid, decide func(c *change, t *task, i int) (*record, error),
) (t *task, at int, err error) {
	seq, err := s.engine.change(ctx, func(c *change) (err error) {
		if t, err = c.task(taskID); err != nil {
			return err
		}
		i, ok := t.stepIndex(stepID)
		if !ok {
			return stepNotFound(taskID, stepID)
		}
		at = i
		r, err := decide(c, t, i)
		if err != nil {
			return err
		}
		return c.append(t, r)
	})
	if err != nil {
		return nil, 0, err
	}
	s.engine.wakeUp()
	if err := s.store.wait(ctx, seq); err != nil {
		return nil, 0, err
	}
	t, err = s.store.viewAfter(t)
	return t, at, err
}

func stepNotFound(taskID, stepID uuid) error {
	return failf(stepMissing, "step %s not found in task %s", stepID, taskID)
}

// record is the record of an allowed action.
func (s *operator) record(c *change, t *task, i int, q *stepRequest) *record {
	r := &record{kind: recOperator, step: i, action: q.action, by: q.by, subject: q.subject, reason: q.reason}
	switch q.action {
	case actionComplete:
		r.end = &ending{success: true, result: q.result, metadata: q.completionMetadata()}
	case actionFail:
		began := t.steps[i].attempted
		if t.steps[i].state == stepEnqueued {
			began = c.now
		}
		r.end = s.engine.ending(t, i, outcome{err: q.err}, c.now, began)
	}
	return r
}

// completionMetadata is the metadata of a manual completion: what came with it,
// and who did it and why.
func (q *stepRequest) completionMetadata() []byte {
	b := append([]byte(nil), `{"manually_completed":true,"completed_by":`...)
	b = appendJSONString(b, q.by)
	b = append(b, `,"completion_reason":`...)
	b = append(appendJSONString(b, q.reason), '}')
	return mergeObjects(nil, orEmptyObject(q.metadata), b)
}

// allowsLocked says why the action is refused in the step's and task's state.
func (e *engine) allowsLocked(t *task, i int, q *stepRequest) error {
	s := &t.steps[i]
	name := t.def(i).name
	if t.state.final() {
		return failf(invalidTransition, "cannot %s step %q: its task is %s", q.action, name, t.state)
	}
	refused := func(to stepState) error {
		return failf(invalidTransition, "cannot %s step %q: no transition from %s to %s", q.action, name, s.state, to)
	}
	switch q.action {
	case actionReset:
		if _, ok := s.state.next(stepReset); !ok {
			return refused(stepPending)
		}
	case actionResolve:
		if _, ok := s.state.next(stepResolveBy); !ok {
			return refused(stepResolvedManually)
		}
	case actionComplete:
		if _, ok := s.state.next(stepCompleteBy); !ok {
			return refused(stepComplete)
		}
	case actionCancel:
		if _, ok := s.state.next(stepCancel); !ok {
			return refused(stepCancelled)
		}
	case actionFail:
		if s.state != stepEnqueued && s.state != stepInProgress {
			return refused(stepInError)
		}
		if k := e.running[runKey{t.id, i}]; k != nil && s.state == stepInProgress {
			return failf(conflict, "cannot fail step %q: its handler is running", name)
		}
	default:
		return fmt.Errorf("step action %d is unknown", q.action)
	}
	return nil
}

// parseStepRequest reads the body of a step action. A failure of the kind
// invalidFields names every offending field.
func parseStepRequest(body []byte) (*stepRequest, error) {
	members := map[string][]byte{}
	eachMember(body, func(key string, raw []byte) bool {
		if jsonKind(raw) != 'n' {
			members[key] = raw
		}
		return true
	})
	p := stepRequestParser{members: members}
	q := p.parse()
	return q, p.failure("the step action is refused")
}

// stepRequestParser reads the members of a step action.
type stepRequestParser struct {
	fieldReader
	members map[string][]byte
}

// The member that names who acts, by action.
var actorFields = [stepActions]string{
	actionReset: "reset_by", actionResolve: "resolved_by", actionComplete: "completed_by", actionFail: "failed_by",
	actionCancel: "cancelled_by",
}

func (p *stepRequestParser) parse() *stepRequest {
	q := &stepRequest{}
	word := p.required("action_type", maxNameLength)
	for a, name := range stepActionNames {
		if a > 0 && name == word {
			q.action = stepAction(a)
		}
	}
	if q.action == noAction {
		if word != "" {
			p.complain("action_type", "%.60q is none of reset_for_retry, resolve_manually, complete_manually, fail, cancel", word)
		}
		return q
	}
	q.reason = p.required("reason", maxReasonLength)
	q.by = p.required(actorFields[q.action], maxNameLength)
	switch q.action {
	case actionComplete:
		p.completion(q)
	case actionFail:
		p.stepError(q)
	}
	return q
}

// required reads a string that must be there and not be empty.
func (p *stepRequestParser) required(key string, hi int) string {
	raw, ok := p.members[key]
	if !ok {
		p.complain(key, "is required")
		return ""
	}
	return p.text(key, raw, 1, hi)
}

// completion reads {"result": any, "metadata"?: object}. A null result counts
// as given.
func (p *stepRequestParser) completion(q *stepRequest) {
	raw, ok := p.members["completion_data"]
	if !ok || jsonKind(raw) != '{' {
		p.complain("completion_data", "must be an object with a result")
		return
	}
	given := false
	eachMember(raw, func(key string, value []byte) bool {
		switch {
		case key == "result":
			given = true
			q.result = compactJSON(nil, value)
		case key == "metadata" && jsonKind(value) != 'n':
			q.metadata = p.object("completion_data.metadata", value)
		}
		return true
	})
	if !given {
		p.complain("completion_data.result", "is required")
	}
}

// stepError reads {"message": string, "error_type"?: string, "retryable"?: bool,
// "status_code"?: integer, "context"?: object}.
func (p *stepRequestParser) stepError(q *stepRequest) {
	raw, ok := p.members["error"]
	if !ok || jsonKind(raw) != '{' {
		p.complain("error", "must be an object with a message")
		return
	}
	q.err = &stepError{errorType: "actor_failure", retryable: true}
	given := false
	eachMember(raw, func(key string, value []byte) bool {
		switch {
		case jsonKind(value) == 'n':
		case key == "message":
			given = true
			q.err.message = cleanText([]byte(p.text("error.message", value, 1, maxMessageLength)))
		case key == "error_type":
			q.err.errorType = p.text("error.error_type", value, 1, maxNameLength)
		case key == "retryable":
			if q.err.retryable = string(value) == "true"; !q.err.retryable && string(value) != "false" {
				p.complain("error.retryable", "must be true or false")
			}
		case key == "status_code":
			n, ok := jsonInt(value)
			if q.err.statusCode = int(n); !ok || n < 0 || n > math.MaxUint16 { // clients read 16 bits
				p.complain("error.status_code", "must be an integer from 0 to %d", math.MaxUint16)
			}
		case key == "context":
			q.err.context = hideCredentials(p.object("error.context", value))
		}
		return true
	})
	if !given {
		p.complain("error.message", "is required")
	}
}

// maxMessageLength bounds the message of an error, in characters.
const maxMessageLength = 10000

// Adjusting a step: an operator changes how many attempts it has and what its
// next attempts are given. The rules of what may be changed when stand here.

// adjusted makes the entry of an audit that of an adjustment.
func (v *auditView) adjusted(by *adjustment, state stepState) {
	v.Action, v.RetryLimit, v.Inputs = recAdjusted.String(), by.maxAttempts, by.inputs
	v.FromState, v.ToState = state.String(), state.String()
}

// adjust adjusts a step and returns the task after it, durable. subject is
// the authenticated caller, or "".
func (s *operator) adjust(
	ctx context.Context, taskID, stepID uuid, by *adjustment, subject string,
) (*task, int, error) {
	if limit := s.cfg.Tasks.MaxContextBytes; int64(len(by.inputs)) > limit {
		return nil, 0, failf(tooLarge, "the inputs have %d bytes, more than the %d allowed", len(by.inputs), limit)
	}
	return s.changeStep(ctx, taskID, stepID, func(_ *change, t *task, i int) (*record, error) {
		if err := t.allowsAdjustment(i, by); err != nil {
			return nil, err
		}
		return &record{kind: recAdjusted, step: i, adjustment: by, subject: subject}, nil
	})
}

// allowsAdjustment says why a step cannot be adjusted so.
func (t *task) allowsAdjustment(i int, by *adjustment) error {
	s, name := &t.steps[i], t.def(i).name
	if s.state.finished() {
		return failf(invalidTransition, "cannot adjust step %q: it is %s", name, s.state)
	}
	if t.state.final() {
		return failf(invalidTransition, "cannot adjust step %q: its task is %s", name, t.state)
	}
	if by.maxAttempts > 0 && by.maxAttempts < t.leastAttempts(i) {
		f := fieldReader{}
		f.complain("retry_limit", "must be at least %d: %d attempts were made and another one follows",
			t.leastAttempts(i), s.attempts)
		return f.failure("the step is not changed")
	}
	return nil
}

// leastAttempts is the lowest limit that leaves room for the attempt which a
// step is about to make already.
func (t *task) leastAttempts(i int) int {
	switch s := &t.steps[i]; {
	case s.state != stepPending && s.state != stepEnqueued && s.state != stepWaitingForRetry:
		return 1
	case s.redeliver:
		return s.attempts
	default:
		return s.attempts + 1
	}
}

// outsideActors gives steps to outside actors, under leases, and takes their
// answers.
type outsideActors struct {
	clock    clock
	store    *store
	engine   *engine
	workerID string
	draining *atomic.Bool
}

// claim gives the caller steps under leases, durably. With nothing to claim it
// waits as long as the request says.
func (s *outsideActors) claim(ctx context.Context, q *claimRequest) ([]claim, error) {
	if s.draining.Load() {
		return nil, failf(unavailable, "the service is shutting down: no steps are given out")
	}
	got := s.engine.claim(ctx, q)
	if got.err != nil || len(got.steps) == 0 {
		return nil, got.err
	}
	err := s.store.wait(ctx, got.seq)
	if ctx.Err() != nil { // the caller went away, and never got to know the leases
		s.engine.unclaim(got.steps)
		return nil, ctx.Err()
	}
	return got.steps, err
}

// outsideStepView is a step that is for an outside actor.
type outsideStepView struct {
	stepView
	Namespace      string     `json:"namespace"`
	TaskName       string     `json:"task_name"`
	Callable       string     `json:"callable"`
	Priority       int        `json:"priority"`
	WorkerID       string     `json:"worker_id,omitempty"` // of the actor that has it
	LeaseExpiresAt *zonedTime `json:"lease_expires_at,omitempty"`
}

// steps lists the steps that are claimed, or that can be, in the order in
// which they are, or were, given out.
func (s *outsideActors) steps(claimed bool, matches func(claimKey) bool, offset, limit int) []outsideStepView {
	views := []outsideStepView{}
	now := s.clock.now()
	s.store.locked(func() {
		var keys []runKey
		if claimed {
			keys = s.engine.outside.claimed.first(matches, offset+limit)
		} else {
			keys = s.engine.claimableLocked(matches, offset+limit)
		}
		for _, k := range keys[min(offset, len(keys)):] {
			if t := s.store.liveLocked(k.task); t != nil {
				held := s.engine.outside.leases.byID[t.stepID(k.step)]
				views = append(views, t.outsideStepView(k.step, held, now, s.workerID))
			}
		}
	})
	return views
}

// outsideStepView is a step that an actor holds, or that nobody does.
func (t *task) outsideStepView(i int, held *heldStep, now instant, worker string) outsideStepView {
	v := outsideStepView{
		stepView: t.stepView(i, now, worker), Namespace: t.tpl.namespace, TaskName: t.tpl.name,
		Callable: t.def(i).callable, Priority: t.by.priority,
	}
	if held != nil {
		v.WorkerID = t.steps[i].lease.worker
		v.LeaseExpiresAt = new(zonedTime(held.until))
	}
	return v
}

// answer records the answer and returns the step after it, durable. An
// answer under a lease that is over goes to the audit alone.
func (s *outsideActors) answer(ctx context.Context, stepID uuid, q *leaseAnswer) (v stepView, err error) {
	var taken *heldStep
	var after step
	seq, err := s.engine.change(ctx, func(c *change) error {
		if taken, err = s.engine.answerLocked(c, stepID, q); taken == nil || err != nil {
			return err
		}
		t, err := c.task(taken.task)
		if err != nil {
			return err
		}
		v, after = t.bareStepView(taken.step, c.now), t.steps[taken.step] // a copy of the task would cost far more
		return nil
	})
	if err != nil {
		return v, err
	}
	if taken == nil {
		return v, s.refuseAnswer(ctx, stepID, q)
	}
	s.engine.wakeUp()
	v.setResults(&after, s.workerID)
	return v, s.store.wait(ctx, seq)
}

// refuseAnswer says why an answer is not taken. The outcome of an attempt whose
// lease is over stands in the audit before that.
func (s *outsideActors) refuseAnswer(ctx context.Context, stepID uuid, q *leaseAnswer) error {
	t, i, err := s.stepOf(stepID, q.task)
	if err != nil {
		return err
	}
	past := &pastLease{step: i, hash: q.hash}
	seq, err := s.takeLate(ctx, t.id, past, q)
	if err != nil {
		return err
	}
	if past.lease == nil {
		return failf(conflict, "cannot %s step %q: this is not its lease", q.verb, t.def(i).name)
	}
	if err := s.store.wait(ctx, seq); err != nil {
		return err
	}
	return failf(conflict, "cannot %s step %q: the lease is over, and the step is %s", q.verb, t.def(i).name,
		t.steps[i].state)
}

// stepOf finds a step: in the task that a lease names, or else in the one whose
// id it follows.
func (s *outsideActors) stepOf(id, named uuid) (*task, int, error) {
	t, err := s.store.view(named)
	if err == nil {
		if i, ok := t.stepIndex(id); ok {
			return t, i, nil
		}
	}
	owner, _ := s.store.taskOfStep(id)
	if t, err = s.store.view(owner); err == nil {
		if i, ok := t.stepIndex(id); ok {
			return t, i, nil
		}
	}
	return nil, 0, failf(stepMissing, "step %s not found", id)
}

// takeLate looks for the attempt that an answer is about, and records its outcome
// if that has not come before. One answer at a time, so that it is recorded once.
func (s *outsideActors) takeLate(
	ctx context.Context, id uuid, past *pastLease, q *leaseAnswer,
) (seq uint64, err error) {
	late := &s.engine.outside.late
	late.Lock()
	defer late.Unlock()
	if _, err := s.store.viewObserved(id, past); err != nil {
		return 0, err
	}
	if past.lease == nil || past.answered || q.verb == extendVerb {
		return 0, nil
	}
	return s.engine.change(ctx, func(c *change) error {
		t, err := c.task(id)
		if err != nil {
			return err
		}
		end := s.engine.plainEnding(t, past.step, q.outcome, c.now, past.began)
		end.retryAt, end.attempt, end.worker = 0, past.attempt, past.lease.worker
		s.engine.stats.late++
		return c.append(t, &record{kind: recLate, step: past.step, end: end, subject: q.subject})
	})
}

// pastLease looks in a replay for the attempt that was made under a lease.
type pastLease struct {
	step     int
	hash     leaseHash
	lease    *lease // nil unless found
	began    instant
	attempt  int
	current  bool // the replay is in that attempt
	answered bool // the actor ended it itself, or its late outcome is there already
}

func (p *pastLease) startRecord(_ *task, r *record) {
	if r.step != p.step {
		return
	}
	switch r.kind {
	case recClaimed:
		if p.current = r.lease.is(p.hash); p.current {
			p.lease, p.began = r.lease, r.at
		}
	case recExtended, recAdjusted: // the attempt goes on
	case recLate:
		p.answered = p.answered || p.lease != nil && r.end.attempt == p.attempt
	default: // this ends the attempt
		p.answered = p.answered || p.current && r.kind == recEnded && !r.end.isLost()
		p.current = false
	}
}

func (p *pastLease) taskMoved(*task, taskState, taskState, instant) {}

// stepMoved notes the number of the attempt: the move stands before the count.
func (p *pastLease) stepMoved(t *task, i int, _, to stepState, _ instant) {
	if i != p.step || !p.current || to != stepInProgress {
		return
	}
	p.attempt = t.steps[i].attempts + 1
	if t.steps[i].redeliver {
		p.attempt--
	}
}

// cancelTask cancels a task with its unfinished steps and running handlers.
// subject is the authenticated caller, or "".
func (s *operator) cancelTask(ctx context.Context, id uuid, subject string) (*task, error) {
	var t *task
	seq, err := s.engine.change(ctx, func(c *change) (err error) {
		if t, err = c.task(id); err != nil {
			return err
		}
		if _, ok := t.state.next(taskCancel); !ok {
			return failf(invalidTransition, "cannot cancel task %s: it is %s already", id, t.state)
		}
		return c.append(t, &record{kind: recCancelled, step: -1, subject: subject})
	})
	if err != nil {
		return nil, err
	}
	if err := s.store.wait(ctx, seq); err != nil {
		return nil, err
	}
	return s.store.viewAfter(t)
}
