package main

// The rows of a task: what Tasker stores about it, as one JSON object for each task.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
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
	made := slices.SortedStableFunc(slices.Values(x.steps), func(a, b *step) int { return strings.Compare(a.Completed, b.Completed) })
	for _, s := range made {
		d := x.def.declaredAs(s.Name)
		if d < 0 || len(x.moves[s.ID]) == 0 {
			return fmt.Errorf("task %s: the answers about step %s are not whole", x.ID, s.Name)
		}
		if x.def.Steps[d].Type == "batchable" && s.State == "complete" {
			outcome := at(s.Results, "result", "batch_processing_outcome")
			worker := cmp.Or(text(outcome, "worker_template_name"), x.def.workerOf(d))
			batches[worker] = append(batches[worker], elements(at(outcome, "cursor_configs"))...)
		}
	}
	for _, s := range x.steps {
		d := x.def.declaredAs(s.Name)
		if worker := x.def.Steps[d].Name; x.def.Steps[d].Type == "batch_worker" && len(batches[worker]) > 0 {
			x.cursors[s.ID], batches[worker] = batches[worker][0], batches[worker][1:]
		}
	}
	return nil
}

// rows returns the rows of the task: mostly answers of Stepwell as they are, of which the script takes what it needs.
func (x *moved) rows() object {
	steps, moves, states := []any{}, []any{}, []any{}
	for _, s := range x.steps {
		steps = append(steps, x.step(s))
		moves = append(moves, x.movesOf(s)...)
	}
	task, all := merged(x.raw), slices.Clone(x.states)
	delete(task, "steps")
	if x.unfinished() {
		delete(task, "created_at") // the moment of the move: its lifetime starts over, and it enters its state without a time
		to := "waiting_for_dependencies"
		if x.Status == "waiting_for_retry" {
			to = x.Status
		}
		all = append(all, transition{From: all[len(all)-1].To, To: to})
		if x.def.Strategy == "strict" {
			var context any
			if err := decode(x.Context, &context); err == nil {
				task["hashed"] = encode(hashed(context))
			}
		}
	}
	for n := range all {
		states = append(states, numbered(all, n, nil))
	}
	letters := json.RawMessage("[]")
	if x.letter != nil {
		letters = x.letter.Entries
	}
	return object{"task": task, "steps": steps, "edges": x.edges(), "moves": moves, "states": states, "letters": letters}
}

// numbered returns the row of transition n of several.
func numbered(all []transition, n int, more object) any {
	return merged(encode(all[n]), encode(object{"sort_key": n + 1, "most_recent": n == len(all)-1}), encode(more))
}

func setUnlessEmpty(row object, name, value string) {
	if value != "" {
		row[name] = value
	}
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

func (x *moved) step(s *step) any {
	def := &x.def.Steps[x.def.declaredAs(s.Name)]
	row := object{"retryable": def.Retry.Retryable, "attempts": x.attempts(s), "inputs": x.inputs(s, def)}
	if due, err := parseTime(s.NextRetry); err == nil && s.State == "waiting_for_retry" {
		// There, a retry is due a whole number of seconds after the last attempt. That time is moved, so that the retry is
		// due when it is due here.
		seconds := int((max(after(s.NextRetry, s.Failed), time.Second) + time.Second - 1) / time.Second)
		row["backoff_request_seconds"] = seconds
		row["last_attempted_at"] = due.Add(-time.Duration(seconds) * time.Second).Format("2006-01-02T15:04:05.000000")
	}
	if all := members(s.Checkpoint); all != nil {
		row["checkpoint"] = merged(json.RawMessage(`{"items_processed":0}`), s.Checkpoint, encode(object{
			"timestamp": all["recorded_at"], "history": []any{object{"cursor": all["cursor"], "timestamp": all["recorded_at"]}}}))
	}
	return merged(s.raw, encode(row))
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
	made := make([][]*step, len(x.def.Steps))
	for _, s := range x.steps {
		d := x.def.declaredAs(s.Name)
		made[d] = append(made[d], s)
	}
	all := []any{}
	for i, parents := range x.def.parents {
		for _, p := range parents {
			name := "provides"
			switch from, to := x.def.Steps[p].Type, x.def.Steps[i].Type; {
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

// movesOf returns the transitions of a step, with the audit of those that have a result: the ends of attempts have the
// same order in both. Those of an open delivery of an unfinished task stay here, since Tasker enqueues the step again.
func (x *moved) movesOf(s *step) (rows []any) {
	isResult := func(state string) bool { return state == resultState || state == errorState }
	var ends []audit
	for _, a := range slices.Backward(s.audit) {
		if a.From != "" && isResult(a.To) { // neither a late result nor an action
			ends = append(ends, a)
		}
	}
	all := x.moves[s.ID]
	for x.unfinished() && (slices.Contains([]string{"enqueued", "in_progress"}, all[len(all)-1].To) || isResult(all[len(all)-1].To)) {
		all = all[:len(all)-1]
	}
	for n, m := range all {
		metadata := object{"timestamp": m.At}
		row := object{"metadata": metadata}
		if isResult(m.To) && len(ends) > 0 {
			a := ends[0]
			ends = ends[1:]
			kind := "EnqueueForOrchestration"
			if m.To == errorState {
				kind = "EnqueueAsErrorForOrchestration"
			}
			metadata["event"] = string(encode(object{"type": kind, "data": a.Result}))
			metadata["correlation_id"], metadata["worker_uuid"] = x.Correlation, a.Worker
			row["audit_uuid"], row["transition_uuid"] = a.ID, a.Transition
			row["success"], row["execution_time_ms"] = a.Success, a.Took
		}
		rows = append(rows, numbered(all, n, row))
	}
	return rows
}

var capital = regexp.MustCompile(`(.)([A-Z])`)

// snake returns a name such as MaxRetriesExceeded as the database has it.
func snake(name string) string { return strings.ToLower(capital.ReplaceAllString(name, "${1}_$2")) }
