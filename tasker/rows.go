package main

// The rows of a task: what Tasker stores about it, as one JSON object for each task.

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// object is a JSON object that is written.
type object = map[string]any

// moved is a task of Stepwell with everything that moves.
type moved struct {
	*task
	moves   map[string][]transition // by step
	states  []transition
	cursors map[string]json.RawMessage // of instances, by their ids
}

// link finds the transitions of each step and the cursors of the instances.
func (x *moved) link(all []transition) error {
	x.moves, x.cursors = map[string][]transition{}, map[string]json.RawMessage{}
	for _, m := range all {
		if m.Step == "" {
			x.states = append(x.states, m)
		} else {
			x.moves[m.Step] = append(x.moves[m.Step], m)
		}
	}
	batches := map[string][]json.RawMessage{} // by worker
	made := slices.Clone(x.steps)
	slices.SortStableFunc(made, func(a, b *step) int { return strings.Compare(a.Completed, b.Completed) })
	for _, s := range made {
		d := x.def.declaredAs(s.Name)
		if d < 0 || len(x.moves[s.ID]) == 0 {
			return fmt.Errorf("task %s: the answers about step %s are not whole", x.ID, s.Name)
		}
		if x.def.steps[d].Type == "batchable" && s.State == "complete" {
			outcome := at(s.Results, "result", "batch_processing_outcome")
			worker := text(outcome, "worker_template_name")
			if worker == "" {
				worker = x.def.workerOf(d)
			}
			var list []json.RawMessage
			json.Unmarshal(at(outcome, "cursor_configs"), &list)
			batches[worker] = append(batches[worker], list...)
		}
	}
	for _, s := range x.steps {
		d := x.def.declaredAs(s.Name)
		if worker := x.def.steps[d].Name; x.def.steps[d].Type == "batch_worker" && len(batches[worker]) > 0 {
			x.cursors[s.ID], batches[worker] = batches[worker][0], batches[worker][1:]
		}
	}
	return nil
}

// rows returns the rows of the task.
func (x *moved) rows() object {
	steps, moves, letters := []any{}, []any{}, []any{}
	for _, s := range x.steps {
		steps = append(steps, x.step(s))
		for n, m := range x.kept(s) {
			moves = append(moves, x.move(s, n, m))
		}
	}
	for i := range x.letters {
		letters = append(letters, x.letters[i].row())
	}
	return object{"task": x.row(), "steps": steps, "edges": x.edges(), "moves": moves, "states": x.stateRows(), "letters": letters}
}

// taskerLimit is how many characters who started a task, from where and why may have there.
const taskerLimit = 128

func (x *moved) row() object {
	t := x.task
	row := object{
		"task_uuid": t.ID, "namespace": t.Namespace, "name": t.Name, "version": t.Version, "complete": t.Status == "complete",
		"requested_at": t.Created, "created_at": t.Created, "updated_at": t.Updated, "tags": t.Tags, "context": t.Context,
		"initiator": first(t.Initiator, taskerLimit), "source_system": first(t.Source, taskerLimit),
		"reason": first(t.Reason, taskerLimit), "priority": t.Priority, "correlation_id": t.Correlation,
	}
	setUnlessEmpty(row, "requested_at", t.Requested)
	setUnlessEmpty(row, "parent_correlation_id", t.ParentOf)
	if t.Status == "complete" {
		row["completed_at"] = t.Completed
	}
	if t.unfinished() {
		delete(row, "created_at") // the moment of the move: its lifetime starts over
		if x.def.form.Strategy == "strict" {
			row["hashed"] = string(appendHashed(nil, t.Context))
		}
	}
	return row
}

func setUnlessEmpty(row object, name, value string) {
	if value != "" {
		row[name] = value
	}
}

// first returns the first n characters of a text.
func first(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n])
	}
	return text
}

// attempts returns how many attempts of a step count there. One that is made again does not, because starting it adds one.
func (x *moved) attempts(s *step) int {
	moves := x.moves[s.ID]
	last := moves[len(moves)-1]
	if x.unfinished() && (s.State == "in_progress" || s.State == "enqueued" && last.From == "in_progress") {
		return s.Attempts - 1
	}
	return s.Attempts
}

func (x *moved) step(s *step) object {
	def := &x.def.steps[x.def.declaredAs(s.Name)]
	row := object{
		"workflow_step_uuid": s.ID, "name": s.Name, "retryable": def.retryable(), "max_attempts": s.MaxAttempts,
		"processed": s.Completed != "", "attempts": x.attempts(s), "created_at": s.Created, "updated_at": s.Updated,
	}
	setUnlessEmpty(row, "processed_at", s.Completed)
	setUnlessEmpty(row, "last_attempted_at", s.Attempted)
	if due, err := parseTime(s.NextRetry); err == nil && s.State == "waiting_for_retry" {
		// There, a retry is due a whole number of seconds after the last attempt. That time is moved, so that the retry is
		// due when it is due here.
		wait := max(after(s.NextRetry, s.Failed), time.Second)
		seconds := int((wait + time.Second - 1) / time.Second)
		row["backoff_request_seconds"] = seconds
		row["last_attempted_at"] = due.Add(-time.Duration(seconds) * time.Second).Format("2006-01-02T15:04:05.000000")
	}
	if inputs := x.inputs(s, def); inputs != nil {
		row["inputs"] = inputs
	}
	if !isNull(s.Results) {
		row["results"] = s.Results
	}
	if !isNull(s.Checkpoint) {
		row["checkpoint"] = checkpointThere(s.Checkpoint)
	}
	return row
}

// checkpointThere returns a checkpoint as it is stored there.
func checkpointThere(checkpoint json.RawMessage) object {
	all, at := members(checkpoint), members(checkpoint)["recorded_at"]
	there := object{
		"items_processed": 0, "cursor": all["cursor"], "timestamp": at,
		"history": []any{object{"cursor": all["cursor"], "timestamp": at}},
	}
	for _, name := range []string{"items_processed", "accumulated_results"} {
		if !isNull(all[name]) {
			there[name] = all[name]
		}
	}
	return there
}

// inputs returns what a step is configured with there, or nil: its initialization, and of an instance its batch.
func (x *moved) inputs(s *step, def *declared) any {
	all := members(def.Handler.Initialization)
	if def.Type != "batch_worker" {
		if len(all) == 0 {
			return nil
		}
		return all
	}
	cursor := x.cursors[s.ID]
	metadata := merged(json.RawMessage(`{"cursor_field":"id","failure_strategy":"fail_fast"}`), def.Batch)
	return merged(encode(all), encode(object{
		"cursor": merged(json.RawMessage(`{"start_cursor":0,"end_cursor":0,"batch_size":0}`),
			encode(object{"batch_id": strings.TrimPrefix(s.Name, def.Name+"_")}), cursor),
		"batch_metadata": metadata, "is_no_op": cursor == nil, "__template_step_name": def.Name,
	}))
}

// edges returns the dependencies between the steps that exist.
func (x *moved) edges() []any {
	made := make([][]*step, len(x.def.steps))
	for _, s := range x.steps {
		d := x.def.declaredAs(s.Name)
		made[d] = append(made[d], s)
	}
	all := []any{}
	for i, parents := range x.def.parents {
		for _, p := range parents {
			name := "provides"
			switch from, to := x.def.steps[p].Type, x.def.steps[i].Type; {
			case to == "batch_worker" && from == "batchable":
				name = "batch_dependency"
			case from == "batch_worker":
				name = "worker_to_convergence"
			}
			for _, to := range made[i] {
				for _, from := range made[p] {
					all = append(all, object{"from_step_uuid": from.ID, "to_step_uuid": to.ID, "name": name})
				}
			}
		}
	}
	return all
}

// kept returns the transitions of a step that move: of an unfinished task without those of an open delivery, since
// Tasker enqueues the step again.
func (x *moved) kept(s *step) []transition {
	all := x.moves[s.ID]
	open := []string{"enqueued", "in_progress", resultState, errorState}
	for x.unfinished() && slices.Contains(open, all[len(all)-1].To) {
		all = all[:len(all)-1]
	}
	return all
}

// move returns the row of transition n of a step, with the audit if it has a result.
func (x *moved) move(s *step, n int, m transition) object {
	kept := x.kept(s)
	metadata := object{"timestamp": m.At}
	row := object{
		"workflow_step_uuid": s.ID, "to_state": m.To, "sort_key": n + 1, "most_recent": n == len(kept)-1, "at": m.At, "metadata": metadata,
	}
	setUnlessEmpty(row, "from_state", m.From)
	a := x.outcome(s, kept[:n+1])
	if a == nil {
		return row
	}
	kind := "EnqueueForOrchestration"
	if m.To == errorState {
		kind = "EnqueueAsErrorForOrchestration"
	}
	metadata["event"] = string(encode(object{"type": kind, "data": a.Result}))
	metadata["correlation_id"] = x.Correlation
	setUnlessEmpty(metadata, "worker_uuid", a.Worker)
	row["audit_uuid"], row["transition_uuid"] = a.ID, a.Transition
	row["success"], row["execution_time_ms"] = a.Success, a.Took
	return row
}

// outcome returns the audit of the last of some transitions; nil if it has no result. The ends of attempts have the same
// order in both.
func (x *moved) outcome(s *step, moves []transition) *audit {
	isResult := func(state string) bool { return state == resultState || state == errorState }
	n := 0
	for _, m := range moves {
		if isResult(m.To) {
			n++
		}
	}
	if !isResult(moves[len(moves)-1].To) {
		return nil
	}
	for _, a := range slices.Backward(s.audit) {
		if a.From == "" || !isResult(a.To) { // a late result, or an action
			continue
		}
		if n--; n == 0 {
			return &a
		}
	}
	return nil
}

// stateRows returns the transitions of the task. An unfinished one enters its state at the move, which is the row without
// a time.
func (x *moved) stateRows() []any {
	all := slices.Clone(x.states)
	if x.unfinished() {
		to := "waiting_for_dependencies"
		if x.Status == "waiting_for_retry" {
			to = x.Status
		}
		all = append(all, transition{From: all[len(all)-1].To, To: to})
	}
	rows := []any{}
	for n, m := range all {
		row := object{"to_state": m.To, "sort_key": n + 1, "most_recent": n == len(all)-1}
		setUnlessEmpty(row, "from_state", m.From)
		setUnlessEmpty(row, "at", m.At)
		if m.Reason != "" {
			row["metadata"] = object{"reason": m.Reason}
		}
		rows = append(rows, row)
	}
	return rows
}

// row returns an entry of the dead letter queue.
func (d *letter) row() object {
	row := object{
		"dlq_entry_uuid": d.ID, "original_state": d.State, "dlq_reason": snake(d.Reason), "dlq_timestamp": d.At,
		"resolution_status": snake(d.Status), "task_snapshot": d.Snapshot, "metadata": d.Metadata, "updated_at": d.Updated,
	}
	setUnlessEmpty(row, "resolution_timestamp", d.Resolution)
	if d.Notes != nil {
		row["resolution_notes"] = *d.Notes
	}
	if d.By != nil {
		row["resolved_by"] = first(*d.By, 255)
	}
	return row
}

// snake returns a name such as MaxRetriesExceeded as the database has it.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
