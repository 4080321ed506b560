package main

// Tasks that grow: decisions, convergences and batches, played step by step.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
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
	for i := range steps {
		steps[i].callable = cmp.Or(steps[i].callable, "Outside")
	}
	o.extra = append(o.extra, testTemplate("grows", steps...))
	s := newTestService(t, o)
	return &actor{t, s, mustCreate(t, s, "grows").id}
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

// createBatches returns the result of a batchable step with n cursors.
func createBatches(worker string, n int) string {
	cursors := make([]string, n)
	for i := range cursors {
		cursors[i] = fmt.Sprintf(`{"start_cursor":%d,"end_cursor":%d}`, i*10, i*10+10)
	}
	return fmt.Sprintf(`{"batch_processing_outcome":{"type":"create_batches","worker_template_name":%q,"worker_count":%d,`+
		`"cursor_configs":[%s],"total_items":%d}}`, worker, n, strings.Join(cursors, ","), n*10)
}

// want compares the task with "state: name=state name=state …".
func (a *actor) want(want string) {
	a.t.Helper()
	if got := grown(a.view()); got != want {
		a.t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func grown(v *task) string {
	text := v.state.String() + ":"
	for i := range v.steps {
		text += " " + v.def(i).name + "=" + v.steps[i].state.String()
	}
	return text
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

func TestDecision(t *testing.T) {
	a := newActor(t, serviceTest{}, routing()...)
	a.want("steps_in_process: validate=enqueued route=pending")
	a.complete("validate")
	a.want("steps_in_process: validate=complete route=enqueued")
	a.decide("route", "finance", "manager", "finance")
	a.want("steps_in_process: validate=complete route=complete manager=enqueued finance=enqueued finalize=pending")
	a.complete("finance")
	v := a.view()
	if x := v.stepView(4, 0, ""); x.TotalParents != 2 || x.CompletedParents != 1 || x.DependenciesSatisfied {
		t.Errorf("got %+v; want one of two parents complete", x)
	}
	a.complete("manager")
	a.want("steps_in_process: validate=complete route=complete manager=complete finance=complete finalize=enqueued")
	a.complete("finalize")
	a.want("complete: validate=complete route=complete manager=complete finance=complete finalize=complete")
}

// TestDecisionForNothing checks that without branches, there is nothing to converge.
func TestDecisionForNothing(t *testing.T) {
	for _, result := range []string{"", "17", `{"amount":3}`, `{"decision_point_outcome":null}`, createSteps(),
		`{"decision_point_outcome":{"type":"no_branches"}}`, `{"decision_point_outcome":"no_branches"}`} {
		a := newActor(t, serviceTest{}, routing()...)
		a.complete("validate")
		a.completeWith("route", result)
		a.want("complete: validate=complete route=complete")
	}
	a := newActor(t, serviceTest{}, routing()...)
	a.complete("validate")
	noError(t, a.act("route", resolveAction))
	a.want("complete: validate=complete route=resolved_manually")
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

func TestRefusedOutcomes(t *testing.T) {
	type row struct{ step, result, want string }
	decision := func(outcome, want string) row {
		return row{"route", `{"decision_point_outcome":` + outcome + `}`, want}
	}
	batch := func(outcome, want string) row {
		return row{"split", `{"batch_processing_outcome":` + outcome + `}`, want}
	}
	many := strings.Repeat("1,", maxInstances) + "1"
	rows := []row{
		decision(`7`, "decision_point_outcome is 7; want an object or a word"),
		decision(`{}`, "decision_point_outcome.type is missing"),
		decision(`{"type":3}`, "type is 3; want a word"),
		decision(`{"type":"create"}`, `type "create" is neither no_branches nor create_steps`),
		decision(`"no_batches"`, `decision_point_outcome "no_batches" is neither no_branches nor create_steps`),
		decision(`"create_steps"`, "step_names must be a list"),
		decision(`{"type":"create_steps"}`, "step_names must be a list"),
		decision(`{"type":"create_steps","step_names":"a"}`, "step_names must be a list"),
		decision(`{"type":"create_steps","step_names":["a",1]}`, "is 1; want a name"),
		decision(`{"type":"create_steps","step_names":["a","nobody"]}`, `no step "nobody"`),
		decision(`{"type":"create_steps","step_names":["a","other"]}`, `"other" does not depend on the decision "route"`),
		decision(`{"type":"create_steps","step_names":["route"]}`, `"route" does not depend`),
		decision(`{"type":"create_steps","step_names":["b2"]}`, `"b2" depends on the decision only through`),
		decision(`{"type":"create_steps","step_names":["w"]}`, `"w" is a batch_worker`),
		batch(`[]`, "batch_processing_outcome is a list; want an object or a word"),
		batch(`"none"`, `batch_processing_outcome "none" is neither no_batches nor create_batches`),
		batch(`"create_batches"`, "worker_template_name is missing"),
		batch(`{"type":"create_steps"}`, "neither no_batches nor create_batches"),
		batch(`{"type":"create_batches","cursor_configs":[1]}`, "worker_template_name is missing"),
		batch(`{"type":"create_batches","worker_template_name":"nobody","cursor_configs":[1]}`, `no step "nobody"`),
		batch(`{"type":"create_batches","worker_template_name":"a","cursor_configs":[1]}`, `"a" is not a batch_worker`),
		batch(`{"type":"create_batches","worker_template_name":"w3","cursor_configs":[1]}`, `"w3" does not depend on`),
		batch(`{"type":"create_batches","worker_template_name":"w"}`, "cursor_configs must be a list"),
		batch(`{"type":"create_batches","worker_template_name":"w","worker_count":2,"cursor_configs":[1]}`, "worker_count is 2, and there are 1"),
		batch(`{"type":"create_batches","worker_template_name":"w","worker_count":1.5,"cursor_configs":[1]}`, "worker_count is 1.5; want an integer"),
		batch(`{"type":"create_batches","worker_template_name":"w","total_items":-1,"cursor_configs":[1]}`, "total_items is -1"),
		batch(`{"type":"create_batches","worker_template_name":"w","cursor_configs":[`+many+`]}`, "10001 workers, more than 10000"),
		batch(`{"type":"create_batches","worker_template_name":"w2","cursor_configs":[1]}`, `name of the step "w2_001"`),
	}
	a := newActor(t, serviceTest{}, stepOf(stepDecision, "route"), stepOf("", "a", "route"), stepOf("", "b", "route"),
		stepOf("", "b2", "b"), stepOf("", "other"), stepOf(stepBatchable, "split"), stepOf(stepBatchWorker, "w", "split", "route"),
		stepOf(stepBatchWorker, "w2", "split"), stepOf("", "w2_001"), stepOf(stepBatchWorker, "w3", "other"))
	before := string(a.view().appendTaskLine(nil))
	for _, r := range rows {
		err := a.act(r.step, stepRequest{action: actionComplete, result: []byte(r.result)})
		if kindOf(err) != invalidFields || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s with %.200s: got %v; want it refused with %s", r.step, r.result, err, r.want)
		}
	}
	if after := string(a.view().appendTaskLine(nil)); after != before {
		t.Errorf("refused outcomes changed the task:\n%s\nto\n%s", before, after)
	}
}

// TestNamingWhatFollows checks that a decision may name steps that its branches create anyway.
func TestNamingWhatFollows(t *testing.T) {
	a := newActor(t, serviceTest{}, routing()...)
	a.complete("validate")
	a.decide("route", "finalize", "auto")
	a.want("steps_in_process: validate=complete route=complete auto=enqueued finalize=pending")
}

// TestTwoDecisions checks that a convergence waits while a dependency can still be created.
func TestTwoDecisions(t *testing.T) {
	steps := []stepSpec{stepOf(stepDecision, "d1"), stepOf(stepDecision, "d2"), stepOf("", "a", "d1"), stepOf("", "b", "d2"),
		stepOf(stepDeferredConvergence, "end", "a", "b")}
	a := newActor(t, serviceTest{}, steps...)
	a.decide("d1", "a")
	a.complete("a")
	a.want("steps_in_process: d1=complete d2=enqueued a=complete end=pending")
	if x := a.view().stepView(3, 0, ""); x.TotalParents != 1 || x.CompletedParents != 1 || x.DependenciesSatisfied {
		t.Errorf("got %+v; want its one parent complete, and not satisfied", x)
	}
	a.decide("d2", "b")
	a.want("steps_in_process: d1=complete d2=complete a=complete end=pending b=enqueued")
	a.complete("b", "end")
	a.want("complete: d1=complete d2=complete a=complete end=complete b=complete")

	a = newActor(t, serviceTest{}, steps...)
	a.decide("d1", "a")
	a.complete("a")
	a.decide("d2")
	a.want("steps_in_process: d1=complete d2=complete a=complete end=enqueued")

	a = newActor(t, serviceTest{}, steps...)
	a.decide("d1", "a")
	a.complete("a")
	noError(t, a.act("d2", stepRequest{action: actionCancel}))
	a.want("steps_in_process: d1=complete d2=cancelled a=complete end=enqueued")
}

// nested has a decision in a branch of a decision, a batch after that, and a convergence over
// all of it.
func nested() []stepSpec {
	return []stepSpec{
		stepOf(stepDecision, "outer"), stepOf("", "b", "outer"),
		stepOf(stepDecision, "inner", "outer"), stepOf("", "after", "a2"), stepOf("", "a2", "inner"),
		stepOf(stepBatchable, "split", "inner"), stepOf(stepBatchWorker, "w", "split"), stepOf("", "sum", "w"),
		stepOf(stepDeferredConvergence, "end", "after", "b", "w"), stepOf("", "never", "a2", "sum"),
	}
}

func TestNested(t *testing.T) {
	a := newActor(t, serviceTest{}, nested()...)
	a.want("steps_in_process: outer=enqueued")
	a.decide("outer", "b", "inner")
	a.want("steps_in_process: outer=complete b=enqueued inner=enqueued end=pending")
	a.complete("b")
	a.want("steps_in_process: outer=complete b=complete inner=enqueued end=pending")
	a.decide("inner", "split")
	a.want("steps_in_process: outer=complete b=complete inner=complete end=pending split=enqueued")
	a.completeWith("split", createBatches("w", 2))
	a.want("steps_in_process: outer=complete b=complete inner=complete end=pending split=complete" +
		" w_001=enqueued w_002=enqueued sum=pending")
	a.complete("w_002", "w_001")
	a.want("steps_in_process: outer=complete b=complete inner=complete end=enqueued split=complete" +
		" w_001=complete w_002=complete sum=enqueued")
	if got := string(a.view().def(a.step("w_002")).config); got != `{"cursor":{"start_cursor":10,"end_cursor":20}}` {
		t.Errorf("got the config %s; want the second cursor in it", got)
	}
	a.complete("end", "sum")
	if v := a.view(); v.state != taskComplete || len(v.steps) != 8 {
		t.Errorf("got %s; want it complete with 8 steps", grown(v))
	}
}

// TestNoBatches checks that a placeholder replaces the workers, so that their dependents run.
func TestNoBatches(t *testing.T) {
	steps := []stepSpec{stepOf(stepBatchable, "split"), stepOf(stepBatchWorker, "w", "split"), stepOf(stepDeferredConvergence, "end", "w")}
	for _, result := range []string{"", createBatches("w", 0), `{"batch_processing_outcome":{"type":"no_batches"}}`,
		`{"batch_processing_outcome":"no_batches"}`} {
		a := newActor(t, serviceTest{}, steps...)
		a.want("steps_in_process: split=enqueued")
		a.completeWith("split", result)
		a.want("steps_in_process: split=complete w_000=complete end=enqueued")
		a.complete("end")
		a.want("complete: split=complete w_000=complete end=complete")
	}
	steps[0].config, steps[1].after = `{"worker_template_name":"w"}`, nil // named, not declared
	a := newActor(t, serviceTest{}, steps...)
	noError(t, a.act("split", resolveAction))
	a.want("steps_in_process: split=resolved_manually w_000=complete end=enqueued")
	err := a.act("split", stepRequest{action: actionComplete, result: []byte(createBatches("w", 3))})
	if kindOf(err) != invalidFields {
		t.Errorf("batches after all: got %v; want them refused", err)
	}
	a.completeWith("split", "")
	a.want("steps_in_process: split=complete w_000=complete end=enqueued")
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
		cursorsOf("w", `{"batch_id":"eu"}`, `{"batch_id":"us"}`):                           "w_eu w_us",
		cursorsOf("w", `{"batch_id":"002"}`, `{"batch_id":"001"}`):                         "w_002 w_001",
		cursorsOf("w", `{"batch_id":"eu"}`, `{"batch_id":"eu"}`):                           "w_001 w_002",
		cursorsOf("w", `{"batch_id":"eu"}`, `{}`):                                          "w_001 w_002",
		cursorsOf("w", `{"batch_id":7}`):                                                   "w_001",
		cursorsOf("w", `{"batch_id":""}`):                                                  "w_001",
		cursorsOf("w", `{"batch_id":"x"}`):                                                 "w_001",
		cursorsOf("w", `{"batch_id":"`+strings.Repeat("x", 300)+`"}`):                      "w_001",
		cursorsOf("w", `{"batch_id":"a\u0001/\"b"}`, `{"batch_id":"postgres://me:pw@h/"}`): "w_001 w_002",
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
		s := newTestService(t, serviceTest{dir: dir, extra: []string{testTemplate("grows", steps...)}})
		if got := instancesOf(must(s.store.view(a.id))(t)); got != want+" w_last" {
			t.Errorf("%s, after a restart: got %s; want %s w_last", result, got, want)
		}
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
	f, err := s.store.follow(eventFilter{}, 0)
	if err != nil {
		return nil
	}
	batch, _, _ := f.read(nil)
	for i := range batch {
		if !batch[i].step.isZero() {
			names = append(names, batch[i].stepName())
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

// TestGrowthWhileBlocked checks that the steps that a decision creates while the task is
// blocked start once it continues, and that a branch that depends on a cancelled step blocks.
func TestGrowthWhileBlocked(t *testing.T) {
	a := newActor(t, serviceTest{}, stepOf("", "x"), stepOf("", "y"), stepOf(stepDecision, "d"), stepOf("", "b", "d", "y"))
	noError(t, a.act("x", failAction))
	noError(t, a.act("y", stepRequest{action: actionCancel}))
	a.decide("d", "b")
	a.want("blocked_by_failures: x=error y=cancelled d=complete b=pending")
	a.complete("x")
	a.want("blocked_by_failures: x=complete y=cancelled d=complete b=pending")
	noError(t, a.act("b", resolveAction))
	a.want("complete: x=complete y=cancelled d=complete b=resolved_manually")
}

// TestGrownIDs checks that every step can be found by its id, which no other step ever gets,
// even after a restart.
func TestGrownIDs(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart)}
	steps := nested()
	for i := range steps {
		steps[i].callable = "Outside"
	}
	o.extra = []string{testTemplate("grows", steps...)}
	s := openTestService(t, o)
	a := &actor{t, s, mustCreate(t, s, "grows").id}
	a.decide("outer", "inner")
	a.decide("inner", "split", "a2")
	a.completeWith("split", createBatches("w", 3))
	seen := map[uuid]string{}
	look := func() {
		t.Helper()
		v := a.view()
		for i := range v.steps {
			id := v.stepID(i)
			if at, ok := v.stepIndex(id); !ok || at != i {
				t.Errorf("the id of step %d leads to %d, %v", i, at, ok)
			}
			if seen[id] != "" && seen[id] != v.def(i).name {
				t.Errorf("%s and %s share an id", seen[id], v.def(i).name)
			}
			seen[id] = v.def(i).name
		}
		for _, id := range []uuid{v.id, v.correlation(), v.id.plus(3), v.id.plus(100)} {
			if at, ok := v.stepIndex(id); ok && seen[id] == "" {
				t.Errorf("the id %s, of no step, leads to %d", id, at)
			}
		}
	}
	look()
	had := len(seen)
	closeTestService(t, s)
	for range 2 {
		a.s = openTestService(t, o)
		look()
		if len(seen) != had {
			t.Errorf("after a restart %d ids are new", len(seen)-had)
		}
		if id := a.s.ids.reserve(1); seen[id] != "" {
			t.Errorf("the id of %s is given out again", seen[id])
		}
		noError(t, a.s.store.snapshot())
		if _, err := a.s.operator.cancelTask(t.Context(), a.id, taskActor{}); err != nil && kindOf(err) != invalidTransition {
			t.Fatal(err)
		}
		closeTestService(t, a.s)
	}
}

// TestGrowthCut cuts the journal after each record: the store opens as it was at that moment.
func TestGrowthCut(t *testing.T) {
	t.Parallel()
	steps := nested()
	for i := range steps {
		steps[i].callable = "Outside"
	}
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: []string{testTemplate("grows", steps...)}}
	s := openTestService(t, o)
	a := &actor{t, s, mustCreate(t, s, "grows").id}
	lines := map[uint64]string{}
	note := func() { v := a.view(); lines[v.lastSeq] = string(v.appendTaskLine(nil)) }
	note()
	for _, do := range []func(){
		func() { a.decide("outer", "inner", "b") },
		func() { a.complete("b") },
		func() { a.decide("inner", "split", "a2") },
		func() { a.completeWith("split", createBatches("w", 2)) },
		func() { a.complete("w_001") }, func() { a.complete("w_002") }, func() { a.complete("a2") },
		func() { a.complete("after") }, func() { a.complete("sum") }, func() { a.complete("end") }, func() { a.complete("never") },
	} {
		do()
		note()
	}
	if v := a.view(); v.state != taskComplete {
		t.Fatalf("got %s; want it complete", grown(v))
	}
	closeTestService(t, s)
	journal := slices.Collect(strings.Lines(string(readFile(t, filepath.Join(o.dir, journalName)))))
	for n := len(journal); n > 2; n-- {
		cut := o
		cut.dir = t.TempDir()
		noError(t, os.WriteFile(filepath.Join(cut.dir, journalName), []byte(strings.Join(journal[:n], "")), 0o600))
		a.s = openTestService(t, cut)
		v := a.view()
		if got, want := string(v.appendTaskLine(nil)), lines[v.lastSeq]; got != want {
			t.Errorf("after %d lines the task is\n%s\nwant\n%s", n, got, want)
		}
		closeTestService(t, a.s)
	}
}

// TestBatchInstances runs batches of many sizes by builtins.
func TestBatchInstances(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	for _, n := range []int{0, 1, 1000, 10000} {
		s := newTestService(t, serviceTest{config: func(c *Config) { c.Tasks.MaxContextBytes = 4 << 20 }, extra: []string{testTemplate("grows",
			stepSpec{kind: stepBatchable, name: "split", callable: "builtin:echo"},
			stepSpec{kind: stepBatchWorker, name: "w", callable: "builtin:noop", after: []string{"split"}},
			stepSpec{kind: stepDeferredConvergence, name: "end", callable: "builtin:sum", after: []string{"w"}})}})
		v := settled(t, s, mustCreate(t, s, "grows", `"context":`+createBatches("w", n)).id)
		if v.state != taskComplete || len(v.steps) != max(n, 1)+2 || v.counts[stepComplete] != len(v.steps) {
			t.Errorf("%d instances: got %s with %d steps", n, v.state, len(v.steps))
		}
		last := len(v.steps) - 1
		if v.def(last).name != "end" && v.def(2).name != "end" {
			t.Errorf("%d instances: there is no end", n)
		}
	}
}

// A randomized model test of tasks that grow: random templates with steps of every kind, random
// decisions, and a naive model of the steps that must exist and those that may run.

// growthBudget limits the duration of the model test, in real time.
var growthBudget = time.Duration(size(500, 5000)) * time.Millisecond

func TestGrowthModel(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	began := time.Now()
	for seed := uint64(1); time.Since(began) < growthBudget && !t.Failed(); seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { newGrowthWorld(t, seed).run() })
	}
}

// growthWorld holds a task and what the model knows of it. Steps of the model come after the
// steps that they depend on.
type growthWorld struct {
	*actor
	r       *rand.Rand
	o       serviceTest
	steps   []stepSpec
	parents [][]int
	made    [][]string           // instances and placeholders, by batch_worker step
	named   []bool               // branches
	decided []bool               // decisions and batchable steps
	states  map[string]stepState // by name, from what the actors did
	did     []string
}

func newGrowthWorld(t *testing.T, seed uint64) *growthWorld {
	w := &growthWorld{r: rand.New(rand.NewPCG(seed, 1)), states: map[string]stepState{}}
	kinds := []string{stepStandard, stepStandard, stepDecision, stepDecision, stepDeferredConvergence, stepBatchable, stepBatchWorker}
	n := 2 + w.r.IntN(12)
	for i := range n {
		s := stepOf(kinds[w.r.IntN(len(kinds))], fmt.Sprintf("s%d", i))
		s.callable = "Outside"
		var parents []int
		for p := range i {
			if w.r.IntN(2+i/2) == 0 {
				parents, s.after = append(parents, p), append(s.after, w.steps[p].name)
			}
		}
		w.steps, w.parents = append(w.steps, s), append(w.parents, parents)
	}
	w.made, w.named, w.decided = make([][]string, n), make([]bool, n), make([]bool, n)
	shuffled := slices.Clone(w.steps)
	w.r.Shuffle(n, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	w.o = serviceTest{clock: newVirtualClock(testStart), extra: []string{testTemplate("grows", shuffled...)},
		config: func(c *Config) { c.Store.Sync = "never" }}
	if seed%8 == 0 {
		w.o.dir = t.TempDir()
	}
	s := openTestService(t, w.o)
	w.actor = &actor{t, s, mustCreate(t, s, "grows").id}
	return w
}

// makers returns the parents that decide whether the step exists.
func (w *growthWorld) makers(d int) []int {
	kind := map[string]string{stepBatchWorker: stepBatchable, stepDeferredConvergence: "none"}[w.steps[d].kind]
	return slices.DeleteFunc(slices.Clone(w.parents[d]), func(p int) bool {
		return w.steps[p].kind != cmp.Or(kind, stepDecision)
	})
}

func (w *growthWorld) exists(d int) bool {
	switch {
	case w.steps[d].kind == stepBatchWorker:
		return len(w.made[d]) > 0
	case len(w.makers(d)) > 0:
		return w.named[d]
	case w.steps[d].kind == stepDeferredConvergence && len(w.parents[d]) > 0:
		return slices.ContainsFunc(w.parents[d], w.exists)
	}
	return !slices.ContainsFunc(w.parents[d], func(p int) bool { return !w.exists(p) })
}

// mayCome reports whether the step, or another instance of it, can still be created.
func (w *growthWorld) mayCome(d int) bool {
	undecided := func(p int) bool { return w.exists(p) && !w.decided[p] || !w.exists(p) && w.mayCome(p) }
	switch {
	case w.steps[d].kind == stepBatchWorker:
		return slices.ContainsFunc(w.makers(d), undecided)
	case w.exists(d):
		return false
	case len(w.makers(d)) > 0:
		return slices.ContainsFunc(w.makers(d), undecided)
	case w.steps[d].kind == stepDeferredConvergence:
		return slices.ContainsFunc(w.parents[d], w.mayCome)
	}
	return !slices.ContainsFunc(w.parents[d], func(p int) bool { return !w.exists(p) && !w.mayCome(p) })
}

// names returns the names of the task's steps that a declared step has become.
func (w *growthWorld) names(d int) []string {
	switch {
	case w.steps[d].kind == stepBatchWorker:
		return w.made[d]
	case w.exists(d):
		return []string{w.steps[d].name}
	}
	return nil
}

// mayRun reports whether a declared step's dependencies let it run.
func (w *growthWorld) mayRun(d int) bool {
	for _, p := range w.parents[d] {
		if w.mayCome(p) {
			return false
		}
		for _, name := range w.names(p) {
			if !w.states[name].satisfies() {
				return false
			}
		}
	}
	return true
}

func (w *growthWorld) run() {
	w.check()
	for range 40 {
		w.operate()
		w.check()
	}
	w.finish()
	closeTestService(w.t, w.s)
}

func (w *growthWorld) note(format string, args ...any) {
	w.did = append(w.did, fmt.Sprintf(format, args...))
}

func (w *growthWorld) operate() {
	switch n := w.r.IntN(20); {
	case w.o.dir == "" && n < 2:
	case n < 1:
		w.note("restart")
		w.s = reopenTestService(w.t, w.s, w.o)
	case n < 2:
		w.note("snapshot")
		if err := w.s.store.snapshot(); err != nil {
			w.t.Error(err)
		}
	default:
		v := w.view()
		i := w.r.IntN(max(len(v.steps), 1))
		if len(v.steps) == 0 || v.state.final() || v.steps[i].state == stepPending && w.r.IntN(8) > 0 {
			return
		}
		w.actOn(v, i)
	}
}

// actOn does something that is possible to a step.
func (w *growthWorld) actOn(v *task, i int) {
	name, d := v.def(i).name, w.declared(v.def(i).name)
	q, to := stepRequest{action: actionComplete}, stepComplete
	switch w.r.IntN(20) {
	case 0:
		q, to = resolveAction, stepResolvedManually
	case 1:
		q, to = failAction, stepInError
	case 2:
		q, to = resetAction, stepPending
	case 3:
		q, to = stepRequest{action: actionCancel}, stepCancelled
	}
	var effect func()
	if q.action == actionComplete {
		q.result, effect = w.outcome(d)
	}
	err := w.act(name, q)
	w.note("%s %s with %s: %v", q.action, name, q.result, err)
	if err != nil {
		if k := kindOf(err); k != invalidTransition && !(k == invalidFields && w.decided[d]) {
			w.t.Error(err)
		}
		return
	}
	w.states[name] = to
	if !to.finished() || w.decided[d] {
		return
	}
	w.decided[d] = maker(w.steps[d].kind)
	switch to {
	case stepComplete:
		effect()
	case stepResolvedManually:
		w.placeholders(d)
	}
}

// declared returns the position of a step or instance in the model.
func (w *growthWorld) declared(name string) int {
	base, _, _ := strings.Cut(name, "_")
	return slices.IndexFunc(w.steps, func(s stepSpec) bool { return s.name == base })
}

// outcome returns a random result of a step, and applies its meaning to the model.
func (w *growthWorld) outcome(d int) (result []byte, effect func()) {
	switch w.steps[d].kind {
	case stepDecision:
		return w.branches(d)
	case stepBatchable:
		return w.batches(d)
	}
	return nil, func() {}
}

func (w *growthWorld) branches(d int) ([]byte, func()) {
	var chosen []int
	for c := range w.steps {
		if slices.Contains(w.makers(c), d) && w.steps[c].kind != stepBatchWorker && w.r.IntN(3) > 0 {
			chosen = append(chosen, c)
		}
	}
	names := make([]string, len(chosen))
	for i, c := range chosen {
		names[i] = w.steps[c].name
	}
	return []byte(createSteps(names...)), func() {
		for _, c := range chosen {
			w.named[c] = true
		}
	}
}

func (w *growthWorld) batches(d int) ([]byte, func()) {
	var workers []int
	for c := range w.steps {
		if w.steps[c].kind == stepBatchWorker && slices.Contains(w.parents[c], d) {
			workers = append(workers, c)
		}
	}
	n := w.r.IntN(4)
	if len(workers) == 0 || n == 0 {
		return nil, func() { w.placeholders(d) }
	}
	c := workers[w.r.IntN(len(workers))]
	return []byte(createBatches(w.steps[c].name, n)), func() {
		at := len(slices.DeleteFunc(slices.Clone(w.made[c]), func(s string) bool { return strings.HasSuffix(s, "_000") }))
		for i := range n {
			w.made[c] = append(w.made[c], fmt.Sprintf("%s_%03d", w.steps[c].name, at+i+1))
		}
	}
}

func (w *growthWorld) placeholders(d int) {
	for c := range w.steps {
		if w.steps[d].kind == stepBatchable && w.steps[c].kind == stepBatchWorker &&
			slices.Contains(w.parents[c], d) && len(w.made[c]) == 0 {
			w.made[c] = []string{w.steps[c].name + "_000"}
			w.states[w.made[c][0]] = stepComplete
		}
	}
}

// check compares the task with the model.
func (w *growthWorld) check() {
	w.t.Helper()
	checkInvariants(w.t, w.s)
	v := w.view()
	var got, want []string
	for i := range v.steps {
		got = append(got, v.def(i).name)
		w.checkStep(v, i)
	}
	for d := range w.steps {
		want = append(want, w.names(d)...)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("the task has the steps %v; want %v", got, want)
	}
	if len(got) > 0 && v.counts[stepCancelled] == 0 {
		checkFigures(w.t, v, testStart)
	}
	if got, want := v.state == taskBlockedByFailures, stuck(v); got != want {
		w.t.Errorf("the task is %s; want it blocked: %v", v.state, want)
	}
	w.checkExplained()
	w.checkHistory(v)
	if w.t.Failed() {
		w.t.Fatalf("%s\n%s\n%s", grown(v), w.o.extra[0], strings.Join(w.did, "\n"))
	}
}

// checkStep compares a step with the model: a step that runs may run, and a
// step that may run does, unless the task is blocked.
func (w *growthWorld) checkStep(v *task, i int) {
	w.t.Helper()
	name := v.def(i).name
	d := w.declared(name)
	did, acted := w.states[name]
	switch s := v.steps[i].state; {
	case did.finished() || did == stepInError:
		if s != did {
			w.t.Errorf("step %s is %s; want it %s", name, s, did)
		}
	case s == stepEnqueued:
		if !w.mayRun(d) {
			w.t.Errorf("step %s is enqueued; want it to wait", name)
		}
	case s != stepPending:
		w.t.Errorf("step %s is %s (%v); want it pending or enqueued", name, s, acted)
	case v.state != taskBlockedByFailures && w.mayRun(d):
		w.t.Errorf("step %s is pending; want it enqueued", name)
	}
	if w.steps[d].kind == stepBatchWorker && !strings.HasSuffix(name, "_000") && !strings.Contains(string(v.def(i).config), `"cursor":{`) {
		w.t.Errorf("instance %s has the config %s", name, v.def(i).config)
	}
}

func (w *growthWorld) checkExplained() {
	w.t.Helper()
	x := must(w.s.engine.explain(w.id, nil, true))(w.t)
	checkExplanation(w.t, w.s, x)
}

// stuck reports whether the task cannot continue because of a failed step, or of a cancelled
// one that others wait for.
func stuck(v *task) bool {
	for i := range v.steps {
		waits := func(c int) bool { return !v.steps[c].state.finished() }
		if s := v.steps[i].state; s == stepInError || s == stepCancelled && slices.ContainsFunc(v.children(i), waits) {
			return true
		}
	}
	return false
}

// checkHistory checks that each step was created once, and started no more often than it was
// acted on.
func (w *growthWorld) checkHistory(v *task) {
	w.t.Helper()
	h := must(w.s.history.transitions(v.id, nil))(w.t)
	created := map[uuid]int{}
	for n := range h.moves {
		m := h.view(n)
		if m.StepUUID != nil && m.FromState == nil {
			created[*m.StepUUID]++
		}
	}
	for i := range v.steps {
		if n := created[v.stepID(i)]; n != 1 {
			w.t.Errorf("step %s was created %d times", v.def(i).name, n)
		}
	}
	if len(created) != len(v.steps) {
		w.t.Errorf("%d steps were created; the task has %d", len(created), len(v.steps))
	}
}

// finish completes everything unfinished: the task ends.
func (w *growthWorld) finish() {
	for range 1000 {
		v := w.view()
		i := slices.IndexFunc(v.steps, func(s step) bool { return s.state == stepEnqueued || s.state == stepInError })
		if i < 0 { // steps that depend on a cancelled step never run by themselves
			i = slices.IndexFunc(v.steps, func(s step) bool { return !s.state.finished() })
		}
		if i < 0 || v.state.final() {
			break
		}
		name := v.def(i).name
		d := w.declared(name)
		result, effect := w.outcome(d)
		noError(w.t, w.act(name, stepRequest{action: actionComplete, result: result}))
		w.note("finish %s with %s", name, result)
		w.states[name] = stepComplete
		if maker(w.steps[d].kind) && !w.decided[d] {
			w.decided[d] = true
			effect()
		}
		w.check()
	}
	if v := w.view(); v.state != taskComplete {
		w.t.Errorf("all is done, and the task is %s\n%s\n%s", grown(v), w.o.extra[0], strings.Join(w.did, "\n"))
	}
	if _, err := json.Marshal(w.view().summary(testStart)); err != nil {
		w.t.Error(err)
	}
}

// batchSteps returns a batch of instances for outside actors and a convergence, with a
// failure_strategy and a parallelism.
func batchSteps(strategy string, parallelism int) []stepSpec {
	work := stepOf(stepBatchWorker, "w", "split")
	work.retry = `{"max_attempts":1}`
	work.batch = fmt.Sprintf(`{"batch_size":10,"parallelism":%d,"cursor_field":"id","worker_template":"w","failure_strategy":%q}`,
		parallelism, strategy)
	return []stepSpec{stepOf(stepBatchable, "split"), work, stepOf(stepDeferredConvergence, "end", "w"), stepOf("", "last", "end")}
}

// TestFailureStrategies checks what each failure_strategy makes of an instance that fails for
// good: which steps still run, when the task is blocked, and how it goes on; also after a restart.
func TestFailureStrategies(t *testing.T) {
	for strategy, want := range map[string][]string{
		"fail_fast": {
			"blocked_by_failures: split=complete w_001=error w_002=enqueued w_003=enqueued end=pending",
			"blocked_by_failures: split=complete w_001=error w_002=complete w_003=complete end=pending",
			"steps_in_process: split=complete w_001=enqueued w_002=complete w_003=complete end=pending",
		},
		"continue_on_failure": {
			"steps_in_process: split=complete w_001=error w_002=enqueued w_003=enqueued end=pending",
			"blocked_by_failures: split=complete w_001=error w_002=complete w_003=complete end=pending",
			"steps_in_process: split=complete w_001=enqueued w_002=complete w_003=complete end=pending",
		},
		"isolate": {
			"steps_in_process: split=complete w_001=error w_002=enqueued w_003=enqueued end=pending",
			"steps_in_process: split=complete w_001=error w_002=complete w_003=complete end=enqueued",
			"blocked_by_failures: split=complete w_001=error w_002=complete w_003=complete end=complete",
			"steps_in_process: split=complete w_001=enqueued w_002=complete w_003=complete end=complete",
		},
	} {
		steps := batchSteps(strategy, 10)[:3]
		dir := t.TempDir()
		a := newActor(t, serviceTest{dir: dir}, steps...)
		blocked := false
		next := func() {
			t.Helper()
			a.want(want[0])
			blocked = blocked || strings.HasPrefix(want[0], "blocked")
			if blocked != (a.view().pendingLetter() != nil) {
				t.Errorf("%s: dead letters %v", want[0], a.view().dead)
			}
			want = want[1:]
			closeTestService(t, a.s)
			a.s = newTestService(t, serviceTest{dir: dir, extra: []string{testTemplate("grows", steps...)}})
		}
		a.completeWith("split", createBatches("w", 3))
		noError(t, a.act("w_001", failAction))
		next()
		a.complete("w_002", "w_003")
		next()
		if strategy == "isolate" {
			v := a.view()
			if got := v.resultsFor(a.step("end")); len(got) != 3 || got[1].step == "w_001" {
				t.Errorf("the convergence gets %v; want nothing of the isolated instance", got)
			}
			a.complete("end")
			next()
		}
		noError(t, a.act("w_001", resetAction))
		next()
		a.complete("w_001")
		if strategy != "isolate" {
			a.complete("end")
		}
		a.want("complete: split=complete w_001=complete w_002=complete w_003=complete end=complete")
		a.s.store.locked(func() {
			if n := len(a.s.engine.gates); n != 0 {
				t.Errorf("%s: %d gates are left", strategy, n)
			}
		})
	}
}

// TestIsolatedFailures checks steps that depend on instances which failed in isolation: all
// failed, one is reset before the dependents ran, or cancelled.
func TestIsolatedFailures(t *testing.T) {
	newBatch := func() *actor {
		a := newActor(t, serviceTest{}, batchSteps("isolate", 10)...)
		a.completeWith("split", createBatches("w", 2))
		return a
	}
	a := newBatch()
	noError(t, a.act("w_001", failAction))
	noError(t, a.act("w_002", failAction))
	a.want("steps_in_process: split=complete w_001=error w_002=error end=enqueued last=pending")
	a.complete("end", "last")
	a.want("blocked_by_failures: split=complete w_001=error w_002=error end=complete last=complete")
	noError(t, a.act("w_001", resolveAction))
	noError(t, a.act("w_002", resolveAction))
	a.want("complete: split=complete w_001=resolved_manually w_002=resolved_manually end=complete last=complete")

	a = newBatch()
	noError(t, a.act("w_001", failAction))
	noError(t, a.act("w_001", resetAction))
	a.complete("w_002")
	a.want("steps_in_process: split=complete w_001=enqueued w_002=complete end=pending last=pending")
	noError(t, a.act("w_001", failAction))
	noError(t, a.act("w_001", cancelAction))
	a.want("blocked_by_failures: split=complete w_001=cancelled w_002=complete end=enqueued last=pending")
}

// TestParallelism checks that at most so many instances of a batch worker are offered or run at
// once, in the order of their creation, that an explanation says so, and that this holds after
// failures, actions of operators and a restart.
func TestParallelism(t *testing.T) {
	dir, steps := t.TempDir(), batchSteps("continue_on_failure", 2)
	a := newActor(t, serviceTest{dir: dir}, steps...)
	a.completeWith("split", createBatches("w", 6))
	offered := func(want string) {
		t.Helper()
		var names []string
		for _, v := range a.s.outside.steps(false, func(claimKey) bool { return true }, 0, 100) {
			names = append(names, v.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Fatalf("got %s offered; want %s: %s", got, want, grown(a.view()))
		}
	}
	claim := func() []claimedStep {
		return must(a.s.outside.claim(t.Context(), &claimRequest{callables: []string{"*"}, limit: 10, lease: time.Hour, worker: "me"}))(t)
	}
	offered("w_001 w_002")
	a.complete("w_001")
	offered("w_002 w_003")
	noError(t, a.act("w_004", resolveAction)) // which waits
	offered("w_002 w_003")
	if given := claim(); len(given) != 2 {
		t.Fatalf("got %d steps claimed; want 2", len(given))
	}
	offered("")
	closeTestService(t, a.s)
	a.s = newTestService(t, serviceTest{dir: dir, extra: []string{testTemplate("grows", steps...)}})
	offered("")
	x := must(a.s.engine.explain(a.id, nil, true))(t)
	if got := x.Steps[2]; got.Name != "w_005" || got.Cause != causeBatch || got.Message != "it waits for other batches: 2 of 2 at once" {
		t.Errorf("got %s, %s: %s", got.Name, got.Cause, got.Message)
	}
	noError(t, a.act("w_002", failAction))
	offered("w_005")
	a.complete("w_003", "w_005", "w_006")
	a.want("blocked_by_failures: split=complete w_001=complete w_002=error w_003=complete w_004=resolved_manually " +
		"w_005=complete w_006=complete end=pending last=pending")
}

// TestParallelismOfBuiltins checks that the limit holds for handlers of this process, and that
// a cancelled task leaves nothing behind.
func TestParallelismOfBuiltins(t *testing.T) {
	c := newVirtualClock(testStart)
	steps := batchSteps("fail_fast", 3)[:2]
	steps[1].callable, steps[1].config = "builtin:sleep", `{"duration_ms":1000}`
	a := newActor(t, serviceTest{clock: c}, steps...)
	a.completeWith("split", createBatches("w", 10))
	for second := range 4 {
		if got, want := a.view().counts[stepInProgress], min(3, 10-3*second); got != want {
			t.Errorf("after %d s: %d run; want %d", second, got, want)
		}
		c.advance(time.Second)
	}
	if v := a.view(); v.state != taskComplete {
		t.Errorf("got %s", grown(v))
	}
	a.id = mustCreate(t, a.s, "grows").id
	a.completeWith("split", createBatches("w", 10))
	must(a.s.operator.cancelTask(t.Context(), a.id, taskActor{}))(t)
	a.s.store.locked(func() {
		if n := len(a.s.engine.gates); n != 0 {
			t.Errorf("%d gates are left", n)
		}
	})
}
