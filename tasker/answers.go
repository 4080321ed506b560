package main

// What both services answer about a task, its steps and its template. Stepwell has more members, and a test says which
// of them the export needs.

import (
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
	Completed   string          `json:"completed_at"`
	Context     json.RawMessage `json:"context"`
	Initiator   string          `json:"initiator"`
	Source      string          `json:"source_system"`
	Reason      string          `json:"reason"`
	Priority    json.Number     `json:"priority"`
	Tags        []string        `json:"tags"`
	Correlation string          `json:"correlation_id"`
	ParentOf    string          `json:"parent_correlation_id"`

	Requested string           `json:"requested_at"` // of Stepwell, as the next two
	Hold      *json.RawMessage `json:"hold"`
	Redacted  bool             `json:"context_redacted"`

	steps   []*step // in the order of their creation
	letters []letter
	def     *definition
}

// over reports whether a task is over. A blocked one, and one in error, can continue after an operator's action.
func (t *task) over() bool {
	return slices.Contains([]string{"complete", "cancelled", "resolved_manually"}, t.Status)
}

// unfinished reports whether a task is to continue in the other service by itself.
func (t *task) unfinished() bool {
	return !t.over() && t.Status != "error" && t.Status != "blocked_by_failures"
}

func (t *task) fullName() string { return t.Namespace + "." + t.Name + "@" + t.Version }

type step struct {
	ID          string          `json:"step_uuid"`
	Name        string          `json:"name"`
	State       string          `json:"current_state"`
	Created     string          `json:"created_at"`
	Updated     string          `json:"updated_at"`
	Completed   string          `json:"completed_at"`
	Failed      string          `json:"last_failure_at"`
	NextRetry   string          `json:"next_retry_at"`
	Attempted   string          `json:"last_attempted_at"`
	Attempts    int             `json:"attempts"`
	MaxAttempts int             `json:"max_attempts"`
	Results     json.RawMessage `json:"results"`
	Checkpoint  json.RawMessage `json:"checkpoint"` // of Stepwell
	Redacted    bool            `json:"results_redacted"`

	audit []audit // newest first
}

// finished reports whether nothing remains to be done for the step. A failed step is not finished.
func (s *step) finished() bool {
	return s.satisfies() || s.State == "cancelled"
}

// satisfies reports whether the steps after this one may run.
func (s *step) satisfies() bool { return s.State == "complete" || s.State == "resolved_manually" }

// The states of a step whose result waits to be processed.
const (
	resultState = "enqueued_for_orchestration"
	errorState  = "enqueued_as_error_for_orchestration"
)

// waits reports whether a result of the step waits to be processed.
func (s *step) waits() bool { return s.State == resultState || s.State == errorState }

// audit is the end of an attempt or, in Stepwell, also an operator's action.
type audit struct {
	ID          string          `json:"audit_uuid"`
	Transition  string          `json:"transition_uuid"`
	Recorded    string          `json:"recorded_at"`
	Worker      string          `json:"worker_uuid"`
	Correlation string          `json:"correlation_id"`
	Success     bool            `json:"success"`
	Took        int64           `json:"execution_time_ms"`
	Result      json.RawMessage `json:"result"` // in Tasker the data of an object with a type
	From        string          `json:"from_state"`
	To          string          `json:"to_state"`
	Action      string          `json:"action"`
	Inputs      json.RawMessage `json:"inputs"`
}

// transition is a move of a task, or of its step.
type transition struct {
	At     string `json:"recorded_at"`
	Step   string `json:"step_uuid"`
	From   string `json:"from_state"`
	To     string `json:"to_state"`
	Reason string `json:"reason"`
}

// letter is an entry of the dead letter queue.
type letter struct {
	ID         string          `json:"dlq_entry_uuid"`
	State      string          `json:"original_state"`
	Reason     string          `json:"dlq_reason"`
	At         string          `json:"dlq_timestamp"`
	Status     string          `json:"resolution_status"`
	Resolution string          `json:"resolution_timestamp"`
	Notes      *string         `json:"resolution_notes"`
	By         *string         `json:"resolved_by"`
	Snapshot   json.RawMessage `json:"task_snapshot"`
	Metadata   json.RawMessage `json:"metadata"`
	Updated    string          `json:"updated_at"`
}

// errChanged is about a task that changed between the requests for it.
var errChanged = errors.New("it changed while it was read")

// readTask reads everything about a task, and more at other paths below it. If the task changes meanwhile, it is read again
// a few times: the requests are no snapshot, and what changed could contradict itself.
func (c *client) readTask(ctx context.Context, id string, more map[string]any) (t *task, err error) {
	for range 5 {
		var now task
		path, dead := "/v1/tasks/"+id, deadLetters{}
		t = &task{}
		if err = c.get(ctx, path, t); err == nil {
			err = c.get(ctx, path+"/workflow_steps", &t.steps)
		}
		for _, s := range t.steps {
			if err == nil {
				err = c.get(ctx, path+"/workflow_steps/"+url.PathEscape(s.ID)+"/audit", &s.audit)
			}
		}
		for below, v := range more {
			if err == nil {
				err = c.get(ctx, path+below, v)
			}
		}
		if err == nil {
			if err = c.get(ctx, "/v1/dlq/task/"+id, &dead); hasStatus(err, 404) {
				err = nil
			} else if t.letters = dead.Entries; t.letters == nil { // in Tasker, which has the newest one alone
				t.letters = []letter{dead.letter}
			}
		}
		if err == nil {
			err = c.get(ctx, path, &now)
		}
		if err != nil || now.Updated == t.Updated && now.Status == t.Status {
			return t, err
		}
	}
	return nil, errChanged
}

// deadLetters is the newest entry of a task, and in Stepwell all entries.
type deadLetters struct {
	letter
	Entries []letter `json:"entries"`
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
	hash string
	json json.RawMessage
	form struct {
		Strategy string `json:"identity_strategy"`
		Steps    []declared
	}
	steps []declared

	index             map[string]int
	parents, children [][]int
	start             map[int]bool // see fromTheStart
}

type declared struct {
	Name         string
	Type         string
	Dependencies []string
	Handler      struct {
		Callable       string
		Initialization json.RawMessage
	}
	Retry struct {
		Retryable   *bool
		MaxAttempts *int `json:"max_attempts"`
	}
	Timeout *int            `json:"timeout_seconds"`
	Batch   json.RawMessage `json:"batch_config"`
}

func (d *declared) retryable() bool  { return d.Retry.Retryable == nil || *d.Retry.Retryable }
func (d *declared) maxAttempts() int { return orDefault(d.Retry.MaxAttempts, 3) }
func (d *declared) timeout() int     { return orDefault(d.Timeout, 30) }

func orDefault(n *int, usual int) int {
	if n == nil {
		return usual
	}
	return *n
}

// readDefinition reads {"hash", "definition"}, as stepwell prints it, and links the steps.
func readDefinition(text []byte) (*definition, error) {
	var line struct {
		Hash       string
		Definition json.RawMessage
	}
	if err := decode(text, &line); err != nil {
		return nil, err
	}
	d := &definition{hash: line.Hash, json: line.Definition, index: map[string]int{}, start: map[int]bool{}}
	if err := decode(d.json, &d.form); err != nil {
		return nil, err
	}
	d.steps = d.form.Steps
	for i := range d.steps {
		d.index[d.steps[i].Name] = i
	}
	n := len(d.steps)
	d.parents, d.children = make([][]int, n), make([][]int, n)
	for i := range d.steps {
		for _, name := range d.steps[i].Dependencies {
			if p, ok := d.index[name]; ok {
				d.parents[i] = append(d.parents[i], p)
			}
		}
	}
	// A batch worker also depends on the batchable steps that name it, unless it says itself on which.
	for b := range d.steps {
		w, ok := d.index[d.workerOf(b)]
		if ok && d.steps[b].Type == "batchable" && d.steps[w].Type == "batch_worker" &&
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
	return cmp.Or(text(d.steps[b].Batch, "worker_template"), text(d.steps[b].Handler.Initialization, "worker_template_name"))
}

// makes reports whether step p, on which step i depends, decides whether step i is created.
func (d *definition) makes(p, i int) bool {
	switch d.steps[i].Type {
	case "batch_worker":
		return d.steps[p].Type == "batchable"
	case "deferred_convergence":
		return false
	}
	return d.steps[p].Type == "decision"
}

// made reports whether a step exists only if another one says so.
func (d *definition) made(i int) bool {
	return d.steps[i].Type == "batch_worker" || slices.ContainsFunc(d.parents[i], func(p int) bool { return d.makes(p, i) })
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
	d.start[i] = !d.made(i) && (exists == len(d.parents[i]) || d.steps[i].Type == "deferred_convergence" && exists > 0)
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
	if i, ok := d.index[name]; ok && d.steps[i].Type != "batch_worker" {
		return i
	}
	best := -1
	for i := range d.steps {
		if s := &d.steps[i]; s.Type == "batch_worker" && strings.HasPrefix(name, s.Name+"_") &&
			(best < 0 || len(s.Name) > len(d.steps[best].Name)) {
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
