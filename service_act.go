package main

// What people do: an operator's actions on steps and tasks, and adjustments. The rules of what is
// allowed in which state are here.

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
)

// operator changes tasks and steps on behalf of people.
type operator struct {
	cfg    *Config
	store  *store
	engine *engine
}

// taskActor is who changes a task.
type taskActor struct {
	subject string       // the authenticated caller, or ""
	by      string       // who, by a bulk action's request, or ""
	reason  string       // of a cancellation, or ""
	request string       // the id of the request for a bulk action, or ""
	seen    taskVersions // which the task must have; nil for any
}

// stepRequest is one action on a step. Its form is checked, but not yet whether the step's state allows it.
type stepRequest struct {
	action   stepAction
	by       string
	who      taskActor
	reason   string
	result   []byte     // complete_manually: JSON
	metadata []byte     // complete_manually: a JSON object, or nil
	err      *stepError // fail
	clear    bool       // reset_for_retry: forget the checkpoint
	limit    int        // reset_for_retry: the new limit of attempts, or 0

	doubts misfits // set by the action: what is wrong with a result that counts although it does not fit
}

// act applies an action, waits until it is durable and returns the task with the step's index.
func (o *operator) act(ctx context.Context, taskID, stepID uuid, q *stepRequest) (*task, int, error) {
	given := outcome{result: q.result, metadata: q.metadata, err: q.err}
	if err := o.cfg.Worker.checkSize(&given); err != nil {
		return nil, 0, err
	}
	if err := o.checkResult(ctx, taskID, stepID, q); err != nil {
		return nil, 0, err
	}
	return o.changeStep(ctx, taskID, stepID, q.who.seen, func(c *change, t *task, i int) (*record, error) {
		r, err := o.decide(c, t, i, q)
		// The caller may not have received the first answer: a repetition succeeds, without a second record.
		if err != nil && q.repeats(&t.steps[i]) {
			return nil, nil
		}
		return r, err
	})
}

// decide returns the record of an action, or why the state of the step or task does not allow it.
func (o *operator) decide(c *change, t *task, i int, q *stepRequest) (*record, error) {
	if err := o.allowsLocked(t, i, q); err != nil {
		return nil, err
	}
	r := o.record(c, t, i, q)
	if q.action == actionComplete {
		return r, t.allowsCompletion(i, r.end)
	}
	return r, nil
}

// checkResult refuses a result that does not fit the step's schema.
func (o *operator) checkResult(ctx context.Context, taskID, stepID uuid, q *stepRequest) error {
	if q.action != actionComplete {
		return nil
	}
	t, err := o.store.view(taskID)
	if err != nil {
		return nil // as the change will find out
	}
	i, ok := t.stepIndex(stepID)
	if !ok {
		return nil
	}
	return o.misfit(ctx, t.def(i), q)
}

// misfit returns an error if the result of a completion does not fit the schema of a step, and must.
func (o *operator) misfit(ctx context.Context, def *stepTemplate, q *stepRequest) error {
	if !o.engine.schemas.on() {
		return nil
	}
	b := newBudget(ctx, o.engine.schemas.memory)
	defer b.end()
	found := o.engine.schemas.resultMisfits(b, def, q.result)
	if b.err != nil || !o.engine.schemas.rejects() {
		q.doubts = found
		return b.err
	}
	f := fieldReader{}
	for _, m := range found {
		f.complain(completionResult+m.at, "%s", m.why(true))
	}
	return f.failure("the step action is refused")
}

// completionResult is the place of the result in the request for a completion.
const completionResult = "/completion_data/result"

// changeStep is changeTask for a step, whose index it returns too.
func (o *operator) changeStep(
	ctx context.Context, taskID, stepID uuid, seen taskVersions, decide func(c *change, t *task, i int) (*record, error),
) (t *task, i int, err error) {
	t, err = o.changeTask(ctx, taskID, seen, func(c *change, t *task) (*record, error) {
		var ok bool
		if i, ok = t.stepIndex(stepID); !ok {
			return nil, stepNotFound(taskID, stepID)
		}
		return decide(c, t, i)
	})
	return t, i, err
}

// changeTask appends the record that decide returns for a task, unless it is nil,
// waits until everything seen is durable and returns the task. The task must have one of the
// versions seen, unless there is nothing to do, as for an action that was repeated.
func (o *operator) changeTask(
	ctx context.Context, id uuid, seen taskVersions, decide func(c *change, t *task) (*record, error),
) (t *task, err error) {
	seq, err := o.engine.change(ctx, func(c *change) (err error) {
		if t, err = c.task(id); err != nil {
			return err
		}
		r, err := decide(c, t)
		if err == nil && r == nil {
			return nil
		}
		if err = cmp.Or(seen.refusal(t), err); err != nil {
			return err
		}
		return c.append(t, r)
	})
	if err != nil {
		return nil, err
	}
	o.engine.wakeUp()
	return o.store.viewAfter(ctx, t, seq)
}

func stepNotFound(taskID, stepID uuid) error {
	return failf(stepMissing, "step %s not found in task %s", stepID, taskID)
}

// record returns the record of an allowed action.
func (o *operator) record(c *change, t *task, i int, q *stepRequest) *record {
	r := &record{kind: recOperator, step: i, action: q.action, by: q.by, subject: q.who.subject, reason: q.reason,
		clear: q.clear, maxAttempts: q.limit, request: q.who.request}
	switch q.action {
	case actionComplete:
		r.end = &ending{success: true, result: q.result, metadata: q.completionMetadata()}
		o.engine.outcomes.withhold(t, i, r.end, nil)
	case actionFail:
		began := t.steps[i].attempted
		if t.steps[i].state == stepEnqueued {
			began = c.now // the action starts the attempt, too
		}
		r.end = o.engine.outcomes.ending(t, i, outcome{err: q.err}, c.now, began)
	}
	return r
}

// completionMetadata returns the metadata of a manual completion: what the
// request sent, and who completed the step and why.
func (q *stepRequest) completionMetadata() []byte {
	b := jsonWriter{b: []byte{'{'}}
	b.flag("manually_completed", true)
	b.text("completed_by", q.by)
	b.text("completion_reason", q.reason)
	return mergeObjects(nil, orEmptyObject(q.metadata), append(b.b, '}'))
}

// allowsLocked returns an error if the state of the step or task does not allow the action.
func (o *operator) allowsLocked(t *task, i int, q *stepRequest) error {
	s := &t.steps[i]
	name := t.def(i).name
	if q.action == actionResolve && s.state == stepResolvedManually {
		return failf(conflict, "cannot %s step %q: it is %s already%s", q.action, name, s.state, s.doneBy())
	}
	if t.state.final() {
		return failf(invalidTransition, "cannot %s step %q: its task is %s%s", q.action, name, t.state, s.doneBy())
	}
	if t.hold != nil {
		return errHeld(t)
	}
	refused := func(to stepState, only string) error {
		in := pick(s.state == stepInError, "in ", "")
		return failf(invalidTransition, "step %q is %s%s and cannot move to %s: only %s%s",
			name, in, s.state, to, only, s.doneBy())
	}
	if q.action == actionFail {
		if s.state != stepEnqueued && s.state != stepInProgress {
			return refused(stepInError, "a step that is enqueued or in progress can be failed")
		}
		if k := o.engine.work.running[runKey{t.id, i}]; k != nil && s.state == stepInProgress {
			return failf(conflict, "cannot fail step %q: its handler is running", name) // and will bring its own outcome
		}
		return nil
	}
	move, known := actionMoves[q.action]
	if !known {
		return fmt.Errorf("step action %d is unknown", q.action)
	}
	if _, ok := s.state.next(move.event); !ok {
		return refused(move.to, move.only)
	}
	return nil
}

// doneBy says who put the step into its state, and when, for the end of a message; "" if no operator did.
func (s *step) doneBy() string {
	if s.operated == nil {
		return ""
	}
	return fmt.Sprintf("; %s by %s at %s", s.operated.action, s.operated.by, s.operated.at.zoned())
}

// repeats reports whether the request is the same as the one that put the step into its state.
func (q *stepRequest) repeats(s *step) bool {
	r := s.operated
	if r == nil || r.action != q.action || r.by != q.by || r.subject != q.who.subject || r.reason != q.reason ||
		r.clear != q.clear || r.maxAttempts != q.limit {
		return false
	}
	switch q.action {
	case actionComplete:
		return r.end.says(&outcome{success: true, result: q.result, metadata: q.completionMetadata()})
	case actionFail:
		return r.end.says(&outcome{err: q.err})
	}
	return true
}

// says reports whether an outcome is the recorded one.
func (e *ending) says(o *outcome) bool {
	same := func(a, b []byte) bool { return bytes.Equal(canonicalJSON(nil, a), canonicalJSON(nil, b)) }
	if !e.success || !o.success {
		return e.success == o.success && same(e.err, o.err.appendJSON(nil))
	}
	return same(e.result, o.result) && same(orEmptyObject(e.metadata), orEmptyObject(o.metadata))
}

// actionMoves holds what the actions other than actionFail do to a step, and which steps allow it, for messages.
var actionMoves = map[stepAction]struct {
	event stepEvent
	to    stepState
	only  string
}{
	actionReset:    {stepReset, stepPending, "a step that failed for good can be reset"},
	actionResolve:  {stepResolveBy, stepResolvedManually, "an unfinished step can be resolved"},
	actionComplete: {stepCompleteBy, stepComplete, "an unfinished or resolved step can be completed"},
	actionCancel:   {stepCancel, stepCancelled, "an unfinished step can be cancelled"},
	actionRetryNow: {stepDue, stepPending, "a step that waits for a retry can be retried now"},
}

// parseStepRequest reads the body of a step action. The error names every invalid field.
func parseStepRequest(body []byte) (*stepRequest, error) {
	p := stepRequestParser{body: body}
	q := p.parse()
	return q, p.failure("the step action is refused")
}

// stepRequestParser reads the members of a request about a step.
type stepRequestParser struct {
	fieldReader
	body []byte
}

// member returns a member that is not null, or nil.
func (p *stepRequestParser) member(key string) []byte {
	raw := objectMember(p.body, key)
	return pick(jsonKind(raw) == 'n', nil, raw)
}

// actorFields holds the member that names who acts, by action.
var actorFields = [stepActions]string{
	actionReset: "reset_by", actionResolve: "resolved_by", actionComplete: "completed_by",
	actionFail: "failed_by", actionCancel: "cancelled_by", actionRetryNow: "retried_by",
}

func (p *stepRequestParser) parse() *stepRequest {
	q := &stepRequest{}
	word := p.required("action_type", maxNameLength)
	q.action, _ = parseWord[stepAction](word, stepActionNames[:])
	if q.action == noAction {
		if word != "" {
			p.complain("action_type", "unknown action %.60q; want %s", word, anyOf(stepActionNames[1:]))
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
	case actionReset:
		q.clear = p.optionalFlag("clear_checkpoint")
		q.limit = p.optionalCount("max_attempts", 0, 1, maxRetryLimit)
	}
	return q
}

// required reads a string that must be present and not empty.
func (p *stepRequestParser) required(key string, hi int) string {
	raw := p.member(key)
	if raw == nil {
		p.complain(key, "is required")
		return ""
	}
	return p.text(key, raw, 1, hi)
}

// optionalText reads a string that is not empty. It returns "" if it is absent.
func (p *stepRequestParser) optionalText(key string, hi int) string {
	if raw := p.member(key); raw != nil {
		return p.text(key, raw, 1, hi)
	}
	return ""
}

// optionalFlag reads true or false. It returns false if it is absent.
func (p *stepRequestParser) optionalFlag(key string) bool {
	raw := p.member(key)
	return raw != nil && p.flag(key, raw)
}

// optionalCount reads an integer from lo to hi. It returns standard if it is absent.
func (p *stepRequestParser) optionalCount(key string, standard int, lo, hi int64) int {
	if raw := p.member(key); raw != nil {
		return p.count(key, raw, lo, hi)
	}
	return standard
}

// completion reads {"result": any, "metadata"?: object}. The result may be null, but not missing.
func (p *stepRequestParser) completion(q *stepRequest) {
	raw := p.member("completion_data")
	if jsonKind(raw) != '{' {
		p.complain("completion_data", "must be an object with a result")
		return
	}
	given := false
	for key, value := range jsonMembers(raw) {
		switch {
		case key == "result":
			given = true
			q.result = compactResult(value)
		case key == "metadata" && jsonKind(value) != 'n':
			q.metadata = p.object("completion_data.metadata", value)
		}
	}
	if !given {
		p.complain("completion_data.result", "is required")
	}
}

// stepError reads {"message": string, "error_type"?: string, "retryable"?: bool,
// "status_code"?: integer, "context"?: object}.
func (p *stepRequestParser) stepError(q *stepRequest) {
	raw := p.member("error")
	if jsonKind(raw) != '{' {
		p.complain("error", "must be an object with a message")
		return
	}
	q.err = &stepError{errorType: "actor_failure", retryable: true}
	given := false
	for key, value := range jsonMembers(raw) {
		switch {
		case jsonKind(value) == 'n':
		case key == "message":
			given = true
			q.err.message = cleanText([]byte(p.text("error.message", value, 1, maxMessageLength)))
		case key == "error_type":
			q.err.errorType = p.text("error.error_type", value, 1, maxNameLength)
		case key == "retryable":
			q.err.retryable = p.flag("error.retryable", value)
		case key == "status_code":
			q.err.statusCode = p.count("error.status_code", value, 0, math.MaxUint16) // clients read 16 bits
		case key == "context":
			q.err.context = redact(p.object("error.context", value))
		}
	}
	if !given {
		p.complain("error.message", "is required")
	}
}

// maxMessageLength is the maximum length of an error's message, in characters.
const maxMessageLength = 10000

// Adjustments: an operator changes how many attempts a step has, and the inputs of its next attempts.

// adjust adjusts a step, waits until that is durable and returns the task with the step's index.
func (o *operator) adjust(
	ctx context.Context, taskID, stepID uuid, by *adjustment, who taskActor,
) (*task, int, error) {
	if limit := o.cfg.Tasks.MaxContextBytes; int64(len(by.inputs)) > limit {
		return nil, 0, failf(tooLarge, "the inputs have %d bytes, more than the %d allowed",
			len(by.inputs), limit)
	}
	return o.changeStep(ctx, taskID, stepID, who.seen, func(_ *change, t *task, i int) (*record, error) {
		if err := t.allowsAdjustment(i, by); err != nil {
			return nil, err
		}
		return &record{kind: recAdjusted, step: i, adjustment: by, subject: who.subject}, nil
	})
}

// allowsAdjustment returns an error if the step cannot be adjusted this way.
func (t *task) allowsAdjustment(i int, by *adjustment) error {
	s, name := &t.steps[i], t.def(i).name
	if s.state.finished() {
		return failf(invalidTransition, "cannot adjust step %q: it is %s", name, s.state)
	}
	if t.state.final() {
		return failf(invalidTransition, "cannot adjust step %q: its task is %s", name, t.state)
	}
	if t.hold != nil {
		return errHeld(t)
	}
	if by.maxAttempts > 0 && by.maxAttempts < s.leastAttempts() {
		f := fieldReader{}
		f.complain("retry_limit", "must be at least %d: %d attempts were made and another one follows",
			s.leastAttempts(), s.attempts)
		return f.failure("the step is not changed")
	}
	return nil
}

// leastAttempts returns the lowest limit that still allows the attempt that the step is about to make.
func (s *step) leastAttempts() int {
	if s.state != stepPending && s.state != stepEnqueued && s.state != stepWaitingForRetry {
		return 1
	}
	return s.nextAttempt()
}

// cancelTask cancels a task, its unfinished steps and its running handlers, and returns it once that is durable.
func (o *operator) cancelTask(ctx context.Context, id uuid, who taskActor) (*task, error) {
	return o.changeTask(ctx, id, who.seen, func(_ *change, t *task) (*record, error) {
		return cancellationOf(t, who)
	})
}

// holdOf returns the record that holds a task, which continues in the place that the reason names, or why it cannot be held.
func holdOf(t *task, who taskActor) (*record, error) {
	return &record{kind: recHeld, step: -1, by: who.by, subject: who.subject, reason: who.reason, request: who.request}, errHeld(t)
}

// releaseOf returns the record with which a held task continues here, or why there is none.
func releaseOf(t *task, who taskActor) (*record, error) {
	if t.hold == nil {
		return nil, errNotHeld(t)
	}
	return &record{kind: recReleased, step: -1, by: who.by, subject: who.subject, reason: who.reason, request: who.request}, nil
}

// cancellationOf returns the record that cancels a task, or why it cannot be cancelled.
func cancellationOf(t *task, who taskActor) (*record, error) {
	if _, ok := t.state.next(taskCancel); !ok {
		return nil, failf(invalidTransition, "cannot cancel task %s: it is %s already", t.id, t.state)
	}
	if t.hold != nil {
		return nil, errHeld(t)
	}
	return &record{kind: recCancelled, step: -1, by: who.by, subject: who.subject, reason: who.reason, request: who.request}, nil
}
