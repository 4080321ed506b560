package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// actor acts as the outside actors of one task.
type actor struct {
	t  *testing.T
	s  *service
	id uuid
}

// newActor creates a task of a template made of the steps. All are for outside
// actors unless they have a callable.
func newActor(t *testing.T, o serviceTest, steps ...stepSpec) *actor {
	t.Helper()
	o.extra = append(o.extra, actorTemplate(steps...))
	s := newTestService(t, o)
	return &actor{t, s, mustCreate(t, s, "grows").id}
}

// actorTemplate is the template of newActor's task.
func actorTemplate(steps ...stepSpec) string {
	steps = slices.Clone(steps) // which tests side by side may share
	for i := range steps {
		steps[i].callable = cmp.Or(steps[i].callable, "Outside")
	}
	return testTemplate("grows", steps...)
}

func (a *actor) view() *task {
	a.t.Helper()
	return settled(a.t, a.s, a.id)
}

// step returns the index of a step by its name.
func (a *actor) step(name string) int {
	a.t.Helper()
	v := a.view()
	for i := range v.steps {
		if v.def(i).name == name {
			return i
		}
	}
	a.t.Fatalf("there is no step %s: %s", name, grown(v))
	return -1
}

func (a *actor) act(name string, q stepRequest) error {
	a.t.Helper()
	q.by, q.reason = "actor", "a test"
	v := a.view()
	_, _, err := a.s.operator.act(a.t.Context(), a.id, v.stepID(a.step(name)), &q)
	settle(a.s)
	return err
}

// complete completes steps with null.
func (a *actor) complete(names ...string) {
	a.t.Helper()
	for _, name := range names {
		a.completeWith(name, "")
	}
}

func (a *actor) completeWith(name, result string) {
	a.t.Helper()
	q := stepRequest{action: actionComplete}
	if result != "" {
		q.result = []byte(result)
	}
	if err := a.act(name, q); err != nil {
		a.t.Fatalf("completing %s with %s: %v", name, result, err)
	}
}

// decide completes a decision that names steps.
func (a *actor) decide(name string, branches ...string) {
	a.t.Helper()
	a.completeWith(name, createSteps(branches...))
}

func createSteps(branches ...string) string {
	for i, b := range branches {
		branches[i] = fmt.Sprintf("%q", b)
	}
	return fmt.Sprintf(`{"decision_point_outcome":{"type":"create_steps","step_names":[%s]}}`, strings.Join(branches, ","))
}

// want compares the task with "state: name=state name=state …".
func (a *actor) want(want string) {
	a.t.Helper()
	if got := grown(a.view()); got != want {
		a.t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func stepOf(kind, name string, after ...string) stepSpec {
	return stepSpec{kind: kind, name: name, after: after}
}

// routing has the shape of the best known template with a decision; its convergence is listed
// before the branches.
func routing() []stepSpec {
	return []stepSpec{
		stepOf("", "validate"), stepOf(stepDecision, "route", "validate"),
		stepOf(stepDeferredConvergence, "finalize", "auto", "manager", "finance"),
		stepOf("", "auto", "route"), stepOf("", "manager", "route"), stepOf("", "finance", "route"),
	}
}

// TestDecisionByHandler checks that an impossible decision of a handler fails
// the step for good; after a reset it may decide again.
func TestDecisionByHandler(t *testing.T) {
	steps := routing()
	steps[0].callable, steps[1].callable = "builtin:noop", "builtin:echo"
	for i := range steps[2:] {
		steps[2+i].callable = "builtin:noop"
	}
	s := newTestService(t, serviceTest{extra: []string{testTemplate("grows", steps...)}})
	v := settled(t, s, mustCreate(t, s, "grows", `"context":`+createSteps("auto")).id)
	if got, want := grown(v), "complete: validate=complete route=complete auto=complete finalize=complete"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	a := &actor{t, s, mustCreate(t, s, "grows", `"context":`+createSteps("auto", "validate")).id}
	a.want("blocked_by_failures: validate=complete route=error")
	v = a.view()
	e := v.steps[1].faultView(true)
	if e.ErrorType != invalidOutcomeType || e.Retryable || !strings.Contains(*e.Message, `"validate"`) || v.steps[1].attempts != 1 {
		t.Errorf("got %+v after %d attempts; want a permanent invalid_outcome that names the step", e, v.steps[1].attempts)
	}
	a.decide("route", "auto")
	a.want("complete: validate=complete route=complete auto=complete finalize=complete")
}

// TestNamingWhatFollows checks that a decision may name steps that its branches create anyway.
func TestNamingWhatFollows(t *testing.T) {
	a := newActor(t, serviceTest{}, routing()...)
	a.complete("validate")
	a.decide("route", "finalize", "auto")
	a.want("steps_in_process: validate=complete route=complete auto=enqueued finalize=pending")
}

// TestTwoBatches checks that two batchable steps can share a worker, and that the numbers of
// its instances continue.
func TestTwoBatches(t *testing.T) {
	a := newActor(t, serviceTest{}, stepOf(stepBatchable, "s1"), stepOf(stepBatchable, "s2"),
		stepOf(stepBatchWorker, "w", "s1", "s2"), stepOf("", "end", "w"))
	a.completeWith("s1", createBatches("w", 1))
	a.want("steps_in_process: s1=complete s2=enqueued w_001=pending end=pending")
	a.completeWith("s2", createBatches("w", 1))
	a.want("steps_in_process: s1=complete s2=complete w_001=enqueued end=pending w_002=enqueued")
	a.complete("w_001", "w_002", "end")
}

// cursorsOf returns the result of a batchable step with these cursors.
func cursorsOf(worker string, cursors ...string) string {
	return fmt.Sprintf(`{"batch_processing_outcome":{"type":"create_batches","worker_template_name":%q,"cursor_configs":[%s]}}`,
		worker, strings.Join(cursors, ","))
}

// TestBatchNames checks that instances have the batch_id of their cursors in their names: in the
// task, in the events and after a restart, unless two steps would have the same name.
func TestBatchNames(t *testing.T) {
	steps := []stepSpec{stepOf(stepBatchable, "s1"), stepOf(stepBatchable, "s2"), stepOf(stepBatchWorker, "w", "s1", "s2"),
		stepOf("", "w_x", "s1")}
	for result, want := range map[string]string{
		cursorsOf("w", `{"batch_id":"eu"}`, `{"batch_id":"us"}`):                      "w_eu w_us",
		cursorsOf("w", `{"batch_id":"002"}`, `{"batch_id":"001"}`):                    "w_002 w_001",
		cursorsOf("w", `{"batch_id":"eu"}`, `{"batch_id":"eu"}`):                      "w_001 w_002",
		cursorsOf("w", `{"batch_id":"eu"}`, `{}`):                                     "w_001 w_002",
		cursorsOf("w", `{"batch_id":7}`):                                              "w_001",
		cursorsOf("w", `{"batch_id":""}`):                                             "w_001",
		cursorsOf("w", `{"batch_id":"x"}`):                                            "w_001",
		cursorsOf("w", `{"batch_id":"`+strings.Repeat("x", 300)+`"}`):                 "w_001",
		cursorsOf("w", `{"batch_id":"a /\"b"}`, `{"batch_id":"postgres://me:pw@h/"}`): "w_001 w_002",
	} {
		dir := t.TempDir()
		a := newActor(t, serviceTest{dir: dir}, steps...)
		a.completeWith("s1", result)
		a.completeWith("s2", cursorsOf("w", `{"batch_id":"last"}`))
		if got := instancesOf(a.view()); got != want+" w_last" {
			t.Errorf("%s: got %s; want %s w_last", result, got, want)
		}
		noError(t, a.s.store.waitAll(t.Context()))
		events := strings.Join(eventSteps(a.s), " ")
		for _, name := range strings.Fields(want + " w_last") {
			if !strings.Contains(events+" ", " "+name+" ") {
				t.Errorf("%s: no event is about %s: %s", result, name, events)
			}
		}
		closeTestService(t, a.s)
		s := newTestService(t, serviceTest{dir: dir, extra: []string{actorTemplate(steps...)}})
		if got := instancesOf(must(s.store.view(a.id))(t)); got != want+" w_last" {
			t.Errorf("%s, after a restart: got %s; want %s w_last", result, got, want)
		}
	}
}

// TestMisleadingBatchID checks that a batch_id which cannot be a name fails its step for good, from a
// handler that would be retried, and that an operator cannot complete a step with one.
func TestMisleadingBatchID(t *testing.T) {
	result := cursorsOf("w", `{"batch_id":"eu"}`, `{"batch_id":"a\u202eb"}`)
	const want = "batch_processing_outcome.cursor_configs[1].batch_id has the character U+202E; "
	s := newTestService(t, serviceTest{extra: []string{testTemplate("grows",
		stepSpec{kind: stepBatchable, name: "s", callable: "builtin:echo"}, stepSpec{kind: stepBatchWorker, name: "w", after: []string{"s"}, callable: "builtin:noop"})}})
	v := settled(t, s, mustCreate(t, s, "grows", `"context":`+result).id)
	if got := grown(v); got != "blocked_by_failures: s=error" {
		t.Errorf("got %s; want the step to fail for good", got)
	}
	if f, _ := v.steps[0].last.fault(); !strings.Contains(string(f.message), want) || v.steps[0].attempts != 1 {
		t.Errorf("got %+v after %d attempts; want %q after one", f, v.steps[0].attempts, want)
	}
	a := newActor(t, serviceTest{}, stepOf(stepBatchable, "s"), stepOf(stepBatchWorker, "w", "s"))
	if err := a.act("s", stepRequest{action: actionComplete, result: []byte(result)}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("an operator: got %v; want %q", err, want)
	}
	a.completeWith("s", cursorsOf("w", `{"batch_id":"eu"}`, `{"batch_id":"a b"}`))
	if got := instancesOf(a.view()); got != "w_eu w_a b" {
		t.Errorf("got %s", got)
	}
}

// instancesOf returns the names of the instances of a task.
func instancesOf(v *task) string {
	var names []string
	for i := range v.steps {
		if v.def(i).kind == stepBatchWorker {
			names = append(names, v.def(i).name)
		}
	}
	return strings.Join(names, " ")
}

// eventSteps returns the name of the step of each event.
func eventSteps(s *service) (names []string) {
	f, err := s.store.events.follow(eventFilter{}, 0)
	if err != nil {
		return nil
	}
	batch, _, _ := f.read(nil)
	for i := range batch {
		if !batch[i].step.isZero() {
			names = append(names, batch[i].name)
		}
	}
	return names
}

// TestBatchInputs checks what a batch worker is given: its cursor, the batch_config of its own
// or of the step that created it, with defaults, and what an operator set before all that.
func TestBatchInputs(t *testing.T) {
	config := func(strategy string) string {
		return `{"batch_size":10,"parallelism":3,"cursor_field":"nr","worker_template":"w","failure_strategy":"` + strategy + `"}`
	}
	for _, tt := range []struct{ maker, worker, metadata string }{
		{"null", "null", `{"cursor_field":"id","failure_strategy":"fail_fast"}`},
		{config("isolate"), "null", `{"batch_size":10,"cursor_field":"nr","failure_strategy":"isolate","parallelism":3,"worker_template":"w"}`},
		{config("isolate"), config("fail_fast"),
			`{"batch_size":10,"cursor_field":"nr","failure_strategy":"fail_fast","parallelism":3,"worker_template":"w"}`},
	} {
		split, work := stepOf(stepBatchable, "split"), stepOf(stepBatchWorker, "w", "split")
		split.batch, work.batch = tt.maker, tt.worker
		a := newActor(t, serviceTest{}, split, work)
		a.completeWith("split", cursorsOf("w", `{"batch_id":"eu","start_cursor":1.50}`))
		v, i := a.view(), a.step("w_eu")
		envelope := func() string {
			return string(objectMember(objectMember(a.s.engine.attemptLocked(a.view(), i, 1, true).envelope(nil), "step"), "inputs"))
		}
		if i == 0 || v.def(0).batch != nil {
			t.Fatal("the batchable step has a policy")
		}
		want := `{"cursor":{"batch_id":"eu","start_cursor":1.50},"batch_metadata":` + tt.metadata + `,"is_no_op":false}`
		if got := envelope(); string(canonicalJSON(nil, []byte(got))) != string(canonicalJSON(nil, []byte(want))) {
			t.Errorf("%v: got %s; want %s", tt, got, want)
		}
		_, _, err := a.s.operator.adjust(t.Context(), a.id, v.stepID(i), &adjustment{inputs: []byte(`{"cursor":7,"n":1}`)}, taskActor{})
		noError(t, err)
		want = `{"cursor":7,"n":1,"batch_metadata":` + tt.metadata + `,"is_no_op":false}`
		if got := envelope(); string(canonicalJSON(nil, []byte(got))) != string(canonicalJSON(nil, []byte(want))) {
			t.Errorf("%v, adjusted: got %s; want %s", tt, got, want)
		}
	}
}
