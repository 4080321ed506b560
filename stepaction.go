package main

// What operators and outside actors do to a step: reset, resolve, complete,
// fail, cancel. The rules of who may do what in which state stand here.

import (
	"context"
	"fmt"
	"math"
)

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

// actOnStep applies an action and returns the task after it, durable.
func (s *service) actOnStep(ctx context.Context, taskID, stepID uuid, q *stepRequest) (*task, int, error) {
	return s.changeStep(ctx, taskID, stepID, func(c *change, t *task, i int) (*record, error) {
		if err := s.engine.allowsLocked(t, i, q); err != nil {
			return nil, err
		}
		return s.operatorRecord(c, t, i, q), nil
	})
}

// changeStep records what decide makes of a step, and returns the task after
// it, durable, with the step's index.
func (s *service) changeStep(
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
	if err := s.store.journal.wait(ctx, seq); err != nil {
		return nil, 0, err
	}
	t, err = s.store.viewAfter(t)
	return t, at, err
}

func stepNotFound(taskID, stepID uuid) error {
	return failf(stepMissing, "step %s not found in task %s", stepID, taskID)
}

// operatorRecord is the record of an allowed action.
func (s *service) operatorRecord(c *change, t *task, i int, q *stepRequest) *record {
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
		return t.allowsResult(i, q.result)
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
	if jsonKind(body) != '{' {
		return nil, failf(badRequest, "the body must be a JSON object")
	}
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
