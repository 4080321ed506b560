package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// pulledAnswers returns what Tasker 0.1.8 answered for tasks, by their names in testdata/tasker.
func pulledAnswers(t *testing.T) map[string]*taskerTask {
	t.Helper()
	var recorded map[string]struct {
		Task     *taskerTask
		Steps    []json.RawMessage
		Template json.RawMessage
	}
	noError(t, json.Unmarshal(must(os.ReadFile("testdata/tasker/pulled.json"))(t), &recorded))
	all := map[string]*taskerTask{}
	for name, r := range recorded {
		r.Task.Template = r.Template
		for _, raw := range r.Steps {
			var s taskerStep
			noError(t, json.Unmarshal(raw, &s))
			noError(t, json.Unmarshal(objectMember(raw, "audit"), &s.Audit))
			r.Task.Steps = append(r.Task.Steps, s)
		}
		all[name] = r.Task
	}
	return all
}

// TestPull makes states of tasks as Tasker told them, and reads these: each step has its id,
// state, attempts and results.
func TestPull(t *testing.T) {
	for name, given := range pulledAnswers(t) {
		p := &taskerPull{}
		err := p.add(given)
		stuck := name == "reset" || name == "resolved" || name == "completed" // an action leaves a blocked task blocked there
		if stuck {
			if err == nil || !strings.Contains(err.Error(), "it is blocked_by_failures, but its steps give steps_in_process; --steps-decide") {
				t.Errorf("%s: got %v; want a contradiction", name, err)
			}
			p = &taskerPull{stepsDecide: true}
			err = p.add(given)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var document bytes.Buffer
		noError(t, p.write(&document))
		s, err := storeOf(&stateSource{document: &document}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		id, _ := parseUUID(given.ID)
		v := must(s.view(id))(t)
		if v.state.String() != given.Status && !stuck {
			t.Errorf("%s: got %s; want %s", name, v.state, given.Status)
		}
		for _, want := range given.Steps {
			at, _ := parseUUID(want.ID)
			i, ok := v.stepIndex(at)
			if !ok {
				t.Errorf("%s: no step has the id of %s", name, want.Name)
				continue
			}
			got := fmt.Sprint(v.def(i).name, " ", v.steps[i].state, " ", v.steps[i].attempts)
			attempts, state := want.Attempts, want.State
			switch {
			case name == "reset" && want.Name == "broken":
				attempts, state = 0, "enqueued"
			case stuck && want.Name == "never":
				state = "enqueued"
			}
			if stuck && name == "reset" && want.Name == "never" {
				state = "pending"
			}
			if wanted := fmt.Sprint(want.Name, " ", state, " ", attempts); got != wanted {
				t.Errorf("%s: got %s; want %s", name, got, wanted)
			}
			if last, result := v.steps[i].last, objectMember(want.Results, "result"); last != nil && last.success && last.result != nil &&
				!bytes.Equal(canonicalJSON(nil, last.result), canonicalJSON(nil, result)) {
				t.Errorf("%s: step %s has the result %s; want %s", name, want.Name, last.result, result)
			}
		}
	}
}

// TestPullWaits pulls a task whose step waits for its retry: it is due later than the clock, at the time of the service.
func TestPullWaits(t *testing.T) {
	given := pulledAnswers(t)["retries"]
	s := &given.Steps[0]
	given.Status, given.Steps[1].State, given.Steps[1].Audit = "waiting_for_retry", "pending", nil
	s.State, s.Attempts, s.Audit, s.NextRetry = "waiting_for_retry", 1, s.Audit[2:], "2026-11-26T12:00:00Z"
	p := &taskerPull{}
	noError(t, p.add(given))
	var document bytes.Buffer
	noError(t, p.write(&document))
	st := must(storeOf(&stateSource{document: &document}, slog.New(slog.DiscardHandler)))(t)
	id, _ := parseUUID(given.ID)
	v := must(st.view(id))(t)
	if due := v.steps[0].retryAt.zoned(); v.state != taskWaitingForRetry || due != "2026-11-26T12:00:00.000000Z" || v.steps[0].retryAt <= p.clock {
		t.Errorf("got %s, due %s, at %s; want it to wait until 12:00", v.state, due, p.clock.zoned())
	}
}

// TestPullContradictions checks that answers which contradict each other are refused with their place.
func TestPullContradictions(t *testing.T) {
	for _, tt := range []struct {
		task   string
		change func(g *taskerTask)
		want   string
	}{
		{"retries", func(g *taskerTask) { g.Status = "cancelled_" }, "it is cancelled_, but its steps give complete"},
		{"retries", func(g *taskerTask) { g.Status = "cancelled" }, "it is cancelled, but its steps give complete; --steps-decide takes their word"},
		{"retries", func(g *taskerTask) { g.Steps = g.Steps[1:] }, "step after is complete with 1 attempts, but by the other steps it is pending"},
		{"retries", func(g *taskerTask) { g.Created = "today" }, `"today" is not a timestamp`},
		{"batch", func(g *taskerTask) { g.Steps = append(g.Steps[:3:3], g.Steps[4:]...) }, "the answers contradict each other: record 3 (ended)"},
		{"batch", func(g *taskerTask) { g.Steps[1].Name = "bw_009" }, "step bw_009 is complete with 1 attempts, but by the other steps it does not exist"},
		{"fails", func(g *taskerTask) { g.Template = json.RawMessage(`{"name":"fails"}`) }, "its template cannot be used here: "},
	} {
		given := pulledAnswers(t)[tt.task]
		tt.change(given)
		if err := (&taskerPull{}).add(given); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v; want %q", tt.task, err, tt.want)
		}
	}
}

// TestPulledTemplatesHaveABudget pulls a task whose template has patterns that compile to more than a request may use.
func TestPulledTemplatesHaveABudget(t *testing.T) {
	given := pulledAnswers(t)["complete"]
	for _, g := range pulledAnswers(t) {
		given = cmp.Or(given, g)
	}
	var template map[string]any
	noError(t, json.Unmarshal(given.Template, &template))
	template["input_schema"] = costlySchema()
	given.Template = must(json.Marshal(template))(t)
	if err := (&taskerPull{}).add(given); err == nil || !strings.Contains(err.Error(), "needs more memory than the 24 MiB that one request may use") {
		t.Errorf("got %v; want the budget", err)
	}
}
