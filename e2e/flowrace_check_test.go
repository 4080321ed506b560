package e2e

// Checks after the race of flowrace_test.go.

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"stepwell/e2e/wire"
)

// racedHistory holds a task's part of the events.
type racedHistory struct {
	all, u wire.Marks // of all namespaces, and of u
}

// check compares everything that the participants know with what the service returns.
func (r *flowRace) check() {
	r.checkNobodyLeft()
	ids := make(chan string)
	var workers sync.WaitGroup
	histories := make([]racedHistory, 8)
	for i := range histories {
		workers.Go(func() {
			for id := range ids {
				r.checkTask(id, &histories[i])
			}
		})
	}
	for id := range r.tasks {
		ids <- id
	}
	close(ids)
	workers.Wait()
	var told racedHistory
	for _, h := range histories {
		told.all.All = append(told.all.All, h.all.All...)
		told.u.All = append(told.u.All, h.u.All...)
	}
	r.checkReaders(&told)
	var list taskPage
	r.ask("GET", "/v1/tasks?per_page=1", "", 200).into(r.t, &list)
	if list.Pagination.TotalCount != len(r.tasks) {
		r.t.Errorf("there are %d tasks; %d were created", list.Pagination.TotalCount, len(r.tasks))
	}
}

// checkNobodyLeft checks that no client waits, claims or follows any more, and that there is
// nothing to claim.
func (r *flowRace) checkNobodyLeft() {
	for _, sample := range []string{"stepwell_waiting_requests", "stepwell_claimers_waiting", "stepwell_event_streams",
		"stepwell_claimable_steps", "stepwell_leases"} {
		eventually(r.t, sample+" is 0", func() bool { return r.program.api().metric(sample) == 0 })
	}
}

// checkReaders checks that every reader received everything that is in the histories, in the
// same order.
func (r *flowRace) checkReaders(told *racedHistory) {
	slices.SortFunc(told.all.All, wire.Mark.Compare)
	slices.SortFunc(told.u.All, wire.Mark.Compare)
	repeated := 0
	for i := range r.events {
		want := told.all.All
		if i == len(r.events)-1 {
			want = told.u.All
		}
		wantMarks(r.t, fmt.Sprintf("reader %d", i), r.events[i].All, want)
		repeated += r.events[i].Repeated
	}
	r.t.Logf("%d transitions, and %d more in which readers were told them again", len(told.all.All), repeated)
}

func wantMarks(t *testing.T, who string, got, want []wire.Mark) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("%s: transition %d is %+v; want %+v", who, i, got[i], want[i])
			return
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s was told %d transitions; want %d", who, len(got), len(want))
	}
}

// checkTask checks that the task has ended, in a way that agrees with the histories of its
// steps, their audits and the participants.
func (r *flowRace) checkTask(id string, h *racedHistory) {
	var v taskView
	r.ask("GET", "/v1/tasks/"+id, "", 200).into(r.t, &v)
	known := r.tasks[id]
	end := known.end
	if known.name == "sentinel" {
		end = "complete"
	}
	if v.Status != end || (known.cancels == 1) != (end == "cancelled") || known.cancels > 1 {
		r.t.Errorf("task %s is %s; want %s, after %d cancellations", id, v.Status, end, known.cancels)
	}
	steps, passed := r.checkHistory(id, known, h)
	for state := range known.passed {
		if !passed[state] {
			r.t.Errorf("task %s: a wait for the state %s was answered, which it never came into", id, state)
		}
	}
	for _, s := range v.Steps {
		if steps[s.StepUUID] == nil {
			r.t.Errorf("the history of task %s has nothing of step %s", id, s.StepUUID)
			continue
		}
		r.checkStep(id, s.StepUUID, s.State, steps[s.StepUUID])
	}
}

// racedMoves summarizes the history of one step.
type racedMoves struct {
	starts    map[int]int // attempts, less those that were given back
	attempt   int         // the newest
	ended     int         // attempts
	completed int
	resets    int
}

func (m *racedMoves) add(v *wire.Move) {
	switch {
	case v.To == "in_progress":
		m.attempt = v.Attempt
		m.starts[v.Attempt]++
	case v.From == "in_progress" && v.To == "enqueued":
		m.starts[m.attempt]--
	case v.From == "in_progress" && v.To != "complete" && v.To != "resolved_manually" && v.To != "cancelled":
		m.ended++
	case v.From == "error" && v.To == "pending":
		m.resets++
	}
	if v.To == "complete" {
		m.completed++
	}
}

// checkHistory reads a task's history, for its steps and for the readers of events.
func (r *flowRace) checkHistory(id string, known *racedTask, h *racedHistory) (map[string]*racedMoves, stateSet) {
	var v struct {
		Transitions []wire.Move `json:"transitions"`
	}
	r.ask("GET", "/v1/tasks/"+id+"/transitions", "", 200).into(r.t, &v)
	steps, passed, last := map[string]*racedMoves{}, stateSet{}, wire.Move{}
	for _, m := range v.Transitions {
		m.Seq, m.N, m.Task, m.Namespace, m.Name = m.Sequence, 1, id, known.namespace, known.name
		if m.Seq == last.Seq {
			m.N = last.N + 1
		}
		last = m
		h.all.All = append(h.all.All, m.Mark())
		if m.Namespace == "u" {
			h.u.All = append(h.u.All, m.Mark())
		}
		if m.Step == "" {
			passed[m.To] = true
		} else if steps[m.Step] == nil {
			steps[m.Step] = &racedMoves{starts: map[int]int{}}
		}
		if m.Step != "" {
			steps[m.Step].add(&m)
		}
	}
	return steps, passed
}

// raceAudit holds the members of an audit entry that the test reads.
type raceAudit struct {
	Action string `json:"action"`
	From   string `json:"from_state"`
	To     string `json:"to_state"`
}

// checkStep checks that no attempt was given out twice, that the result is the accepted one,
// and that the audit has an entry for each event.
func (r *flowRace) checkStep(task, id, state string, moves *racedMoves) {
	known := r.steps[id]
	if known == nil {
		known = &racedStep{}
	}
	for attempt, n := range known.given {
		if n > moves.starts[attempt] {
			r.t.Errorf("step %s: attempt %d was given out %d times, and began %d times", id, attempt, n, moves.starts[attempt])
		}
	}
	if moves.completed > 1 || known.completed > moves.completed {
		r.t.Errorf("step %s was completed %d times, by %d answers", id, moves.completed, known.completed)
	}
	if known.completed > 0 {
		r.checkResult(task, id, known.nonce)
	}
	var audit []raceAudit
	r.ask("GET", "/v1/tasks/"+task+"/workflow_steps/"+id+"/audit", "", 200).into(r.t, &audit)
	ended, operated, late, resets := 0, 0, 0, 0
	for _, a := range audit {
		switch {
		case a.Action != "":
			operated++
			switch a.Action {
			case "reset_for_retry":
				resets++
			case "fail":
				ended++
			}
		case a.From == "":
			late++
		default:
			ended++
		}
	}
	if ended != moves.ended || operated != known.operated || late != known.late || resets != moves.resets {
		r.t.Errorf("step %s of task %s, %s: the audit has %d ended attempts, %d actions, %d late outcomes, %d resets; want %d, %d, %d, %d: %+v",
			id, task, state, ended, operated, late, resets, moves.ended, known.operated, known.late, moves.resets, audit)
	}
}

func (r *flowRace) checkResult(task, id string, nonce int64) {
	var v stepView
	r.ask("GET", "/v1/tasks/"+task+"/workflow_steps/"+id, "", 200).into(r.t, &v)
	var result struct {
		Nonce int64 `json:"nonce"`
	}
	if err := json.Unmarshal(v.Results.Result, &result); err != nil || result.Nonce != nonce {
		r.t.Errorf("the result of step %s is %s; want %d, which was taken", id, v.Results.Result, nonce)
	}
}

// checkAgain checks that a program which opens the store later has the same events.
func (r *flowRace) checkAgain(p *program) {
	again := &flowRace{t: r.t, program: p, client: r.client, ctx: r.t.Context()}
	var m wire.Marks
	if err := again.read(again.ctx, &m, ""); err != nil {
		r.t.Error(err)
	}
	wantMarks(r.t, "a reader after the restart", m.All, r.events[0].All)
	p.stop()
}
