package main

// A step on the wire, and its results.

import (
	"encoding/json"
	"strconv"
)

// zonedTime is an instant on the wire, null when there is none.
type zonedTime instant

// MarshalJSON implements json.Marshaler.
func (t zonedTime) MarshalJSON() ([]byte, error) { return marshalTime(instant(t), instant.appendZoned) }

// naiveTime is the form without a zone that some fields carry.
type naiveTime instant

// MarshalJSON implements json.Marshaler.
func (t naiveTime) MarshalJSON() ([]byte, error) { return marshalTime(instant(t), instant.appendNaive) }

func marshalTime(t instant, form func(instant, []byte) []byte) ([]byte, error) {
	if t == 0 {
		return []byte("null"), nil
	}
	return append(form(t, append(make([]byte, 0, 32), '"')), '"'), nil
}

// stepView is one workflow step; its times are zoned.
type stepView struct {
	StepUUID              uuid            `json:"step_uuid"`
	TaskUUID              uuid            `json:"task_uuid"`
	Name                  string          `json:"name"`
	CreatedAt             zonedTime       `json:"created_at"`
	UpdatedAt             zonedTime       `json:"updated_at"`
	CompletedAt           zonedTime       `json:"completed_at"`
	Results               json.RawMessage `json:"results"`
	CurrentState          string          `json:"current_state"`
	DependenciesSatisfied bool            `json:"dependencies_satisfied"`
	RetryEligible         bool            `json:"retry_eligible"`
	ReadyForExecution     bool            `json:"ready_for_execution"`
	TotalParents          int             `json:"total_parents"`
	CompletedParents      int             `json:"completed_parents"`
	Attempts              int             `json:"attempts"`
	MaxAttempts           int             `json:"max_attempts"`
	LastFailureAt         zonedTime       `json:"last_failure_at"`
	NextRetryAt           zonedTime       `json:"next_retry_at"`
	LastAttemptedAt       zonedTime       `json:"last_attempted_at"`
}

func (t *task) stepView(i int, now instant, worker string) stepView {
	v := t.bareStepView(i, now)
	v.setResults(&t.steps[i], worker)
	return v
}

// setResults shows the latest outcome of the step, of which a copy will do.
func (v *stepView) setResults(s *step, worker string) {
	if s.last != nil {
		v.Results = s.last.outcomeJSON(v.StepUUID, s.ended(), worker)
	}
}

// bareStepView is stepView without the results, and costs the same whatever these
// are and however many steps the task has.
func (t *task) bareStepView(i int, now instant) stepView {
	s, parents := &t.steps[i], len(t.parents(i))
	return stepView{
		StepUUID: t.stepID(i), TaskUUID: t.id, Name: t.def(i).name,
		CreatedAt: zonedTime(t.stepCreated(i)), UpdatedAt: zonedTime(s.updated), CompletedAt: zonedTime(s.completed),
		CurrentState:          s.state.String(),
		DependenciesSatisfied: t.satisfied(i),
		RetryEligible:         t.retryEligible(i),
		ReadyForExecution:     t.readyForExecution(i, now),
		TotalParents:          parents, CompletedParents: parents - s.waitingFor,
		Attempts: s.attempts, MaxAttempts: s.maxAttempts,
		LastFailureAt: zonedTime(s.failed), NextRetryAt: zonedTime(s.retryAt), LastAttemptedAt: zonedTime(s.attempted),
	}
}

// ended is when the step's latest outcome came.
func (s *step) ended() instant {
	if s.last.success {
		return s.completed
	}
	return s.failed
}

// outcomeJSON is the full outcome of an attempt, as existing clients read it:
// {"step_uuid", "success", "result", "metadata", "status", "error"}.
func (e *ending) outcomeJSON(id uuid, at instant, worker string) json.RawMessage {
	b := make([]byte, 0, 320+len(e.result)+len(e.err)+len(e.metadata))
	b = append(b, `{"step_uuid":"`...)
	b = id.appendText(b)
	b = append(b, `","success":`...)
	b = strconv.AppendBool(b, e.success)
	b = append(b, `,"result":`...)
	b = appendOrNull(b, e.result)
	b = append(b, `,"metadata":`...)
	b = mergeObjects(b, orEmptyObject(e.metadata), e.standardMetadata(at, worker))
	b = append(b, `,"status":`...)
	switch {
	case e.success:
		b = append(b, `"completed"`...)
	case e.retryAt != 0:
		b = append(b, `"failed"`...)
	default:
		b = append(b, `"error"`...)
	}
	b = append(b, `,"error":`...)
	return append(appendOrNull(b, e.err), '}')
}

// standardMetadata is what existing clients parse in every outcome. It stands
// above what came with the outcome, which may be of any type.
func (e *ending) standardMetadata(at instant, worker string) []byte {
	b := append([]byte(nil), `{"execution_time_ms":`...)
	b = strconv.AppendInt(b, e.took.Milliseconds(), 10)
	b = append(b, `,"worker_id":`...)
	b = appendJSONString(b, orDefault(e.worker, worker))
	b = append(b, `,"completed_at":`...)
	if at == 0 {
		b = append(b, `null`...)
	} else {
		b = append(b, '"')
		b = at.appendZoned(b)
		b = append(b, '"')
	}
	return append(b, '}')
}

func appendOrNull(b, raw []byte) []byte {
	if raw == nil {
		return append(b, "null"...)
	}
	return append(b, raw...)
}

func orEmptyObject(raw []byte) []byte {
	if raw == nil {
		return []byte("{}")
	}
	return raw
}
