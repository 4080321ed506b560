package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

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
		noError(t, a.s.store.compact())
		if _, err := a.s.operator.cancelTask(t.Context(), a.id, taskActor{}); err != nil && kindOf(err) != invalidTransition {
			t.Fatal(err)
		}
		closeTestService(t, a.s)
	}
}

// TestNamedStepIDs reads a task whose creation names the ids of its steps and instances: they are its steps' ids, lead to
// it, in a search as well, and stay after growth, a snapshot and a restart. Other steps have the ids that follow.
func TestNamedStepIDs(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), config: retaining(1)}
	a := newActor(t, serviceTest{clock: o.clock}, nested()...)
	a.decide("outer", "inner")
	a.decide("inner", "split", "a2")
	a.completeWith("split", createBatches("w", 3))
	var named []string
	want := map[string]uuid{}
	name := func(step string, n int) {
		id := uuid{1, 0xa2, 6: 0x70 | byte(n), 0x91, 0x80, 15: byte(n)}
		want[step], named = id, append(named, `"`+id.String()+`"`)
	}
	for n, s := range nested() {
		if s.name == "b" || s.name == "never" {
			named = append(named, "null")
			continue
		}
		name(s.name, n+1)
	}
	name("w_001", 30) // w_002 and w_003 have the ids of the record
	create := `"kind":"created",`
	document := strings.Replace(unsealed(exported(t, a.s)), create, create+`"steps":[`+strings.Join(named, ",")+`],`, 1)
	o.extra = []string{testTemplate("noop", stepSpec{name: "x", callable: "builtin:noop"})}
	o.state = &stateSource{document: strings.NewReader(document)}
	a.s = openTestService(t, o)
	o.state = nil
	look := func() {
		t.Helper()
		v := a.view()
		seen := map[uuid]bool{}
		for i := range v.steps {
			id, name := v.stepID(i), v.def(i).name
			if w, ok := want[name]; ok && w != id {
				t.Errorf("step %s has the id %s; want %s", name, id, w)
			}
			if at, ok := v.stepIndex(id); !ok || at != i || seen[id] {
				t.Errorf("the id of %s leads to %d, %v", name, at, ok)
			}
			seen[id] = true
			if task, _ := a.s.store.taskOfStep(id); want[name] == id && task != v.id {
				t.Errorf("the id of %s leads to task %s", name, task)
			}
			text, may := id.String(), func(permission) bool { return true }
			if f := must(a.s.find(&findQuery{text: text[20:], limit: 10, may: may}, nil))(t); want[name] == id &&
				!slices.ContainsFunc(f.Hits, func(h findHit) bool { return h.Kind == "step" && *h.StepUUID == id && *h.StepName == name }) {
				t.Errorf("%s is not found by its id %s: %+v", name, text, f.Hits)
			}
		}
		if at, ok := v.stepIndex(v.id.plus(1)); ok {
			t.Errorf("the id that would follow leads to step %d", at)
		}
	}
	look()
	a.complete("a2", "w_001")
	noError(t, a.s.store.compact())
	closeTestService(t, a.s)
	a.s = openTestService(t, o)
	look()
	if id := a.s.ids.reserve(1); id.String() <= want["end"].String() {
		t.Errorf("the id %s is not after those that are there", id)
	}
	if _, err := a.s.operator.cancelTask(t.Context(), a.id, taskActor{}); err != nil {
		t.Fatal(err)
	}
	look()
	mustCreate(t, a.s, "noop")
	must(a.s.store.retain.dropDue(a.s.clock.now()))(t)
	if task, ok := a.s.store.taskOfStep(want["end"]); ok {
		t.Errorf("the id of a step that was dropped leads to task %s", task)
	}
	closeTestService(t, a.s)
}

// TestBadStepIDs checks that a state cannot name ids that lead to two steps.
func TestBadStepIDs(t *testing.T) {
	s := newTestService(t, serviceTest{clock: newVirtualClock(testStart), extra: []string{testTemplate("two", stepSpec{name: "a", callable: "A"}, stepSpec{name: "b", callable: "B"})}})
	first := mustCreate(t, s, "two").id
	mustCreate(t, s, "two")
	parts := strings.SplitAfter(unsealed(exported(t, s)), `"kind":"created",`)
	for _, tt := range []struct{ first, second, want string }{
		{`"01a2159e-71bc-790a-a7a4-81f99d487b40","01a2159e-71bc-790a-a7a4-81f99d487b40"`, ``, "it names a step 01a2159e-71bc-790a-a7a4-81f99d487b40, "},
		{`null,"` + first.plus(1).String() + `"`, ``, "it names a step " + first.plus(1).String()},
		{`"` + first.String() + `"`, ``, "it names a step " + first.String()},
		{`"01a2159e-71bc-790a-a7a4-81f99d487b40"`, `"01a2159e-71bc-790a-a7a4-81f99d487b40"`, "it names a step "},
		{`null,null,null`, ``, "it names no id for instance 1"},
		{`"x"`, ``, `member "steps": "x" is not a UUID`},
		{``, ``, ""},
	} {
		text := parts[0] + `"steps":[` + tt.first + `],` + parts[1] + `"steps":[` + tt.second + `],` + parts[2]
		_, err := storeOf(&stateSource{document: strings.NewReader(text)}, s.log)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s and %s: got %v; want %q", tt.first, tt.second, err, tt.want)
		}
	}
}

func grown(v *task) string {
	text := v.state.String() + ":"
	for i := range v.steps {
		text += " " + v.def(i).name + "=" + v.steps[i].state.String()
	}
	return text
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
	made    [][]string           // instances, by batch_worker step
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
		if s.kind == stepBatchWorker && len(w.makers(i)) > 0 && w.r.IntN(2) == 0 {
			w.steps[w.makers(i)[0]].config = fmt.Sprintf(`{"worker_template_name":%q}`, s.name)
		}
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
		if err := w.s.store.compact(); err != nil {
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
	if to == stepComplete {
		effect()
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
	if n == 0 || len(workers) == 0 && n > 1 {
		return []byte(`{"batch_processing_outcome":"no_batches"}`), func() { w.noBatches(d) }
	}
	if len(workers) == 0 {
		return nil, func() {}
	}
	c := workers[w.r.IntN(len(workers))]
	return []byte(createBatches(w.steps[c].name, n)), func() {
		at := len(slices.DeleteFunc(slices.Clone(w.made[c]), func(s string) bool { return strings.HasSuffix(s, "_000") }))
		for i := range n {
			w.made[c] = append(w.made[c], fmt.Sprintf("%s_%03d", w.steps[c].name, at+i+1))
		}
	}
}

func (w *growthWorld) noBatches(d int) {
	for c := range w.steps {
		if templateText([]byte(w.steps[d].config), "worker_template_name") == w.steps[c].name && len(w.made[c]) == 0 {
			w.made[c] = []string{w.steps[c].name + "_000"}
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
	o, created := &transitionObserver{}, map[uuid]int{}
	must(w.s.store.viewObserved(v.id, o, nil))(w.t)
	for _, m := range o.moves {
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
	if _, err := json.Marshal(newSummaryView(w.view(), testStart)); err != nil {
		w.t.Error(err)
	}
}
