package main

// What both services answer about a task, its steps and its template.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"
)

// task is what either service says about a task. Its times are texts, "" for none.
type task struct {
	ID          string          `json:"task_uuid"`
	Namespace   string          `json:"namespace"`
	Name        string          `json:"name"`
	Version     string          `json:"version"`
	Status      string          `json:"status"`
	Created     string          `json:"created_at"`
	Updated     string          `json:"updated_at"`
	Context     json.RawMessage `json:"context"`
	Initiator   string          `json:"initiator"`
	Source      string          `json:"source_system"`
	Reason      string          `json:"reason"`
	Priority    json.Number     `json:"priority"`
	Tags        []string        `json:"tags"`
	Correlation string          `json:"correlation_id"`
	ParentOf    string          `json:"parent_correlation_id"`

	Hold     *json.RawMessage `json:"hold"` // of Stepwell, as the next one
	Redacted bool             `json:"context_redacted"`

	raw    json.RawMessage
	steps  []*step // in the order of their creation
	letter *letter // the newest dead letter; nil for none
	def    *definition
}

// UnmarshalJSON also keeps the whole answer.
func (t *task) UnmarshalJSON(text []byte) error {
	type plain task
	t.raw = bytes.Clone(text)
	return json.Unmarshal(text, (*plain)(t))
}

// over reports whether a task is over. A blocked one, and one in error, can continue after an operator's action.
func (t *task) over() bool { return finished(t.Status) }

// unfinished reports whether a task is to continue in the other service by itself.
func (t *task) unfinished() bool {
	return !t.over() && t.Status != "error" && t.Status != "blocked_by_failures"
}

func (t *task) fullName() string { return t.Namespace + "." + t.Name + "@" + t.Version }

type step struct {
	ID          string          `json:"step_uuid"`
	Name        string          `json:"name"`
	State       string          `json:"current_state"`
	Updated     string          `json:"updated_at"`
	Completed   string          `json:"completed_at"`
	Failed      string          `json:"last_failure_at"`
	NextRetry   string          `json:"next_retry_at"`
	Attempted   string          `json:"last_attempted_at"`
	Attempts    int             `json:"attempts"`
	MaxAttempts int             `json:"max_attempts"`
	Results     json.RawMessage `json:"results"`
	Checkpoint  json.RawMessage `json:"checkpoint"` // of Stepwell

	raw   json.RawMessage
	audit []audit // newest first
}

// UnmarshalJSON also keeps the whole answer.
func (s *step) UnmarshalJSON(text []byte) error {
	type plain step
	s.raw = bytes.Clone(text)
	return json.Unmarshal(text, (*plain)(s))
}

// finished reports whether nothing remains to be done for a step or a task in a state. A failed one is not finished.
func finished(state string) bool {
	return state == "complete" || state == "resolved_manually" || state == "cancelled"
}

// The states of a step whose result waits to be processed.
const (
	resultState = "enqueued_for_orchestration"
	errorState  = "enqueued_as_error_for_orchestration"
)

// waits reports whether a result of the step waits to be processed.
func (s *step) waits() bool { return s.State == resultState || s.State == errorState }

// audit is the end of an attempt or, in Stepwell, also an operator's action.
type audit struct {
	ID         string          `json:"audit_uuid"`
	Transition string          `json:"transition_uuid"`
	Recorded   string          `json:"recorded_at"`
	Worker     string          `json:"worker_uuid"`
	Success    bool            `json:"success"`
	Took       int64           `json:"execution_time_ms"`
	Result     json.RawMessage `json:"result"` // in Tasker the data of an object with a type
	From       string          `json:"from_state"`
	To         string          `json:"to_state"`
	Inputs     json.RawMessage `json:"inputs"`
}

// transition is a move of a task, or of its step.
type transition struct {
	At     string `json:"recorded_at,omitempty"`
	Step   string `json:"step_uuid,omitempty"`
	From   string `json:"from_state,omitempty"`
	To     string `json:"to_state"`
	Reason string `json:"reason,omitempty"`
}

// letter is an entry of the dead letter queue.
type letter struct {
	Reason     string  `json:"dlq_reason"`
	At         string  `json:"dlq_timestamp"`
	Status     string  `json:"resolution_status"`
	Resolution string  `json:"resolution_timestamp"`
	Notes      *string `json:"resolution_notes"`
	By         *string `json:"resolved_by"`

	Entries json.RawMessage // of Stepwell: all entries of the task
}

// errChanged is about a task that changed between the requests for it.
var errChanged = errors.New("it changed while it was read")

// readTask reads everything about a task, and more at other paths below it. If the task changes meanwhile, it is read again
// a few times: the requests are no snapshot, and what changed could contradict itself.
func (c *client) readTask(ctx context.Context, id string, more map[string]any) (t *task, err error) {
	get := func(path string, v any) {
		if err == nil {
			err = c.get(ctx, path, v)
		}
	}
	for range 5 {
		path, now := "/v1/tasks/"+id, task{}
		t = &task{}
		get(path, t)
		get(path+"/workflow_steps", &t.steps)
		for _, s := range t.steps {
			get(path+"/workflow_steps/"+url.PathEscape(s.ID)+"/audit", &s.audit)
		}
		for below, v := range more {
			get(path+below, v)
		}
		get(path, &now)
		if get("/v1/dlq/task/"+id, &t.letter); hasStatus(err, 404) && now.ID != "" {
			err = nil
		}
		if err != nil || now.Updated == t.Updated && now.Status == t.Status {
			return t, err
		}
	}
	return nil, errChanged
}

// parseTime reads a time of an answer, with or without a zone, which is UTC.
func parseTime(text string) (time.Time, error) {
	return time.Parse("2006-01-02T15:04:05.999999999", strings.TrimSuffix(text, "Z"))
}

// after returns how much later a time is than another; 0 if one is unknown.
func after(text, than string) time.Duration {
	a, err := parseTime(text)
	b, bad := parseTime(than)
	if err != nil || bad != nil {
		return 0
	}
	return a.Sub(b)
}

// definition is a template in Stepwell's normalized form, with what matters here.
type definition struct {
	Strategy string `json:"identity_strategy"`
	Steps    []declared

	hash              string
	json              json.RawMessage
	index             map[string]int
	parents, children [][]int
	start             map[int]bool // see fromTheStart
}

type declared struct {
	Name         string
	Type         string
	Dependencies []string
	Handler      struct{ Initialization json.RawMessage }
	Retry        struct {
		Retryable   bool
		MaxAttempts int `json:"max_attempts"`
	}
	Timeout int             `json:"timeout_seconds"`
	Batch   json.RawMessage `json:"batch_config"`
}

// readDefinition reads {"hash", "definition"}, as stepwell prints it, and links the steps.
func readDefinition(text []byte) (*definition, error) {
	var line struct {
		Hash       string
		Definition json.RawMessage
	}
	d := &definition{index: map[string]int{}, start: map[int]bool{}}
	if err := errors.Join(decode(text, &line), decode(line.Definition, d)); err != nil {
		return nil, err
	}
	d.hash, d.json = line.Hash, line.Definition
	for i := range d.Steps {
		d.index[d.Steps[i].Name] = i
	}
	d.parents, d.children = make([][]int, len(d.Steps)), make([][]int, len(d.Steps))
	for i := range d.Steps {
		for _, name := range d.Steps[i].Dependencies {
			if p, ok := d.index[name]; ok {
				d.parents[i] = append(d.parents[i], p)
			}
		}
	}
	// A batch worker also depends on the batchable steps that name it, unless it says itself on which.
	for b := range d.Steps {
		w, ok := d.index[d.workerOf(b)]
		if ok && d.Steps[b].Type == "batchable" && d.Steps[w].Type == "batch_worker" &&
			!slices.ContainsFunc(d.parents[w], func(p int) bool { return d.makes(p, w) }) {
			d.parents[w] = append(d.parents[w], b)
		}
	}
	for i, parents := range d.parents {
		for _, p := range parents {
			d.children[p] = append(d.children[p], i)
		}
	}
	return d, nil
}

// workerOf returns the name of the batch worker for which a batchable step makes batches by default.
func (d *definition) workerOf(b int) string {
	return cmp.Or(text(d.Steps[b].Batch, "worker_template"), text(d.Steps[b].Handler.Initialization, "worker_template_name"))
}

// makes reports whether step p, on which step i depends, decides whether step i is created.
func (d *definition) makes(p, i int) bool {
	switch d.Steps[i].Type {
	case "batch_worker":
		return d.Steps[p].Type == "batchable"
	case "deferred_convergence":
		return false
	}
	return d.Steps[p].Type == "decision"
}

// made reports whether a step exists only if another one says so.
func (d *definition) made(i int) bool {
	return d.Steps[i].Type == "batch_worker" || slices.ContainsFunc(d.parents[i], func(p int) bool { return d.makes(p, i) })
}

// fromTheStart reports whether a new task has a step.
func (d *definition) fromTheStart(i int) bool {
	if known, ok := d.start[i]; ok { // or a graph of many ways would take for ever
		return known
	}
	exists := 0
	for _, p := range d.parents[i] {
		if d.fromTheStart(p) {
			exists++
		}
	}
	d.start[i] = !d.made(i) && (exists == len(d.parents[i]) || d.Steps[i].Type == "deferred_convergence" && exists > 0)
	return d.start[i]
}

// above returns the steps on which one depends, directly or not.
func (d *definition) above(i int) map[int]bool {
	seen := map[int]bool{}
	var look func(i int)
	look = func(i int) {
		for _, p := range d.parents[i] {
			if !seen[p] {
				seen[p] = true
				look(p)
			}
		}
	}
	look(i)
	return seen
}

// declaredAs returns the step of the template from which a step of a task was made; -1 for none.
func (d *definition) declaredAs(name string) int {
	if i, ok := d.index[name]; ok && d.Steps[i].Type != "batch_worker" {
		return i
	}
	best := -1
	for i := range d.Steps {
		if s := &d.Steps[i]; s.Type == "batch_worker" && strings.HasPrefix(name, s.Name+"_") &&
			(best < 0 || len(s.Name) > len(d.Steps[best].Name)) {
			best = i
		}
	}
	return best
}

// members reads the members of a JSON object; nil for any other value.
func members(object json.RawMessage) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	json.Unmarshal(object, &all)
	return all
}

// at returns a value inside JSON objects, or nil.
func at(value json.RawMessage, path ...string) json.RawMessage {
	for _, name := range path {
		value = members(value)[name]
	}
	return value
}

// text returns a text inside JSON objects, or "".
func text(value json.RawMessage, path ...string) (s string) {
	json.Unmarshal(at(value, path...), &s)
	return s
}

// isNull reports whether a value is absent or null.
func isNull(value json.RawMessage) bool { return len(value) == 0 || string(value) == "null" }

// merged returns an object with the members of several; later ones win.
func merged(objects ...json.RawMessage) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	for _, object := range objects {
		for name, value := range members(object) {
			all[name] = value
		}
	}
	return all
}

// encode returns a value as JSON.
func encode(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // all values are made of texts that were read as JSON
	}
	return text
}
