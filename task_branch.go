package main

// Outcomes: what the result of a decision or batchable step may ask for, and what its template allows.

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

const maxDependencies = 1_000_000 // most dependencies of the steps that one outcome creates

// branching lists the steps that an outcome creates.
type branching struct {
	steps   []int    // the branches of a decision: steps of the template, ascending
	cursors [][]byte // of a batch, one for each instance of the worker
	worker  int      // the step of the template that the cursors are for
	noOp    bool     // there are no batches, and the one instance says so
	named   bool     // the names of instances have the batch_id of their cursors
}

// noOpCursor is the cursor of an instance that runs because there are no batches.
const noOpCursor = `{"batch_id":"000","start_cursor":0,"end_cursor":0,"batch_size":0,"is_no_op":true}`

// branching returns what a step decides by an ending, which is nil if the step ended without one. A result that does
// not say what to create creates nothing. The result is read once: the ending keeps what was read until it is applied.
func (t *task) branching(i int, e *ending) (branching, error) {
	if e == nil {
		return t.readBranching(i, nil)
	}
	if e.decision == nil {
		b, err := t.readBranching(i, e.result)
		if err != nil {
			return b, err
		}
		e.decision = &b
	}
	return *e.decision, nil
}

// readBranching reads what the result of a step decides, by the step's kind.
func (t *task) readBranching(i int, result []byte) (branching, error) {
	switch t.def(i).kind {
	case stepDecision:
		return t.tpl.decision(t.declared(i), presentMember(result, decisionMember))
	case stepBatchable:
		outcome := presentMember(result, batchMember)
		b, err := t.tpl.batches(t.declared(i), outcome)
		if err == nil && len(b.cursors) == 0 {
			b = noBatches(t, t.declared(i), outcome)
		}
		return b, err
	}
	return branching{}, nil
}

// noBatches returns what the batchable step d of the template creates by an outcome without batches: one instance
// of the worker that its handler.initialization names, unless another step has created instances; else nothing.
func noBatches(t *task, d int, outcome []byte) branching {
	w, ok := t.tpl.flow.index[templateText(t.tpl.steps[d].config, "worker_template_name")]
	if outcome == nil || !ok || !t.tpl.worksFor(w, d) || len(t.plan.declared[w].steps) > 0 {
		return branching{}
	}
	return branching{worker: w, cursors: [][]byte{[]byte(noOpCursor)}, noOp: true}
}

// presentMember returns a member of a JSON text; nil if it is absent or null, or the text is not an object.
func presentMember(text []byte, name string) []byte {
	if value := objectMember(text, name); value != nil && jsonKind(value) != 'n' {
		return value
	}
	return nil
}

// checkBranching returns an error when a success decides something impossible.
func (t *task) checkBranching(i int, e *ending) error {
	b, err := t.branching(i, e)
	if err != nil {
		return err
	}
	if n := b.dependencies(t); n > maxDependencies {
		return fmt.Errorf("%s: %d instances would have %d dependencies, more than %d",
			batchMember, len(b.cursors), n, maxDependencies)
	}
	for n, cursor := range b.cursors {
		if fault := nameFault(templateText(cursor, "batch_id")); fault != "" {
			return fmt.Errorf("%s.cursor_configs[%d].batch_id %s", batchMember, n, fault)
		}
	}
	if err := b.nameInstances(t); err != nil {
		return err
	}
	if e != nil {
		e.named = b.named // recorded, so that a later version creates the same instances
	}
	return b.checkIndirect(t, i)
}

// nameInstances decides whether the instances are named by the batch_id of their cursors. They are not if two steps would
// get the same name, and need not be if each batch_id is the number of its instance. It refuses instances that would have
// the name of another step by their numbers, too.
func (b *branching) nameInstances(t *task) error {
	if len(b.cursors) == 0 {
		return nil
	}
	worker, first := t.tpl.steps[b.worker].name, t.plan.declared[b.worker].instances+boolCount(!b.noOp)
	batches, numbers, same := map[string]bool{}, map[string]bool{}, true
	for n, cursor := range b.cursors {
		name, number := batchName(worker, cursor), instanceName(worker, first+n)
		batches[name], numbers[number] = true, true
		same = same && name == number
	}
	b.named = !same && !batches[""] && len(batches) == len(b.cursors) && takenName(t, batches) == ""
	if b.named {
		return nil
	}
	if name := takenName(t, numbers); name != "" {
		return fmt.Errorf("%s: an instance would have the name of the step %q", batchMember, name)
	}
	return nil
}

// takenName returns one of some names that a step of a task or of its template has; "" for none.
func takenName(t *task, names map[string]bool) string {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if _, declared := t.tpl.flow.index[name]; declared {
			return name
		}
	}
	for i := range t.steps {
		if name := t.def(i).name; names[name] {
			return name
		}
	}
	return ""
}

// batchName returns the name of the instance of a batch_worker step for a cursor with a
// batch_id; "" if the batch_id is not a text or too long for a name.
func batchName(worker string, cursor []byte) string {
	id := templateText(cursor, "batch_id")
	if name := worker + "_" + id; id != "" && len(name) <= maxNameLength && cleanText([]byte(id)) == id {
		return name
	}
	return ""
}

// dependencies returns how many dependencies the instances will have.
func (b *branching) dependencies(t *task) int {
	if len(b.cursors) == 0 {
		return 0
	}
	n, f := 0, t.tpl.flow
	for _, p := range f.parents[b.worker] {
		n += len(t.plan.declared[p].steps)
	}
	for _, c := range f.children[b.worker] {
		n += max(len(t.plan.declared[c].steps), 1)
	}
	return n * len(b.cursors)
}

// allowsCompletion returns an error if an operator cannot complete a step by an ending.
func (t *task) allowsCompletion(i int, e *ending) error {
	err := error(nil)
	switch {
	case t.plan == nil:
		return nil
	case !t.decided(i):
		err = t.checkBranching(i, e)
	case maker(t.def(i).kind) && t.creates(i, e):
		err = errors.New("it was resolved without an outcome, and cannot create steps any more")
	}
	if err == nil {
		return nil
	}
	return &failure{kind: invalidFields, message: fmt.Sprintf("cannot complete step %q: %v", t.def(i).name, err),
		details: inputProblems{{Field: "completion_data.result", Message: err.Error()}}}
}

// creates reports whether a result asks for steps, even wrongly.
func (t *task) creates(i int, e *ending) bool {
	b, err := t.readBranching(i, e.result)
	return err != nil || len(b.steps)+len(b.cursors) > 0
}

// newIDs returns how many ids a record needs for steps that the template does not declare.
func (t *task) newIDs(r *record) int {
	if t.plan == nil || !r.kind.ofStep() || t.def(r.step).kind != stepBatchable || t.decided(r.step) ||
		r.kind == recLate || r.end == nil || !r.end.success {
		return 0
	}
	b, err := t.branching(r.step, r.end)
	if err != nil {
		return 0 // apply reports the error
	}
	return len(b.cursors)
}

// decision reads {"type": "no_branches"}, in short "no_branches", or {"type": "create_steps", "step_names": […]}.
func (t *template) decision(d int, outcome []byte) (b branching, err error) {
	creates, err := readOutcome(decisionMember, outcome, "no_branches", "create_steps")
	if err != nil || !creates {
		return b, err
	}
	names := presentMember(outcome, "step_names")
	if names == nil || jsonKind(names) != '[' {
		return b, fmt.Errorf("%s.step_names must be a list of names", decisionMember)
	}
	for e := range jsonElements(names) {
		var at int
		at, err = t.branchNamed(d, e)
		b.steps = append(b.steps, at)
		if err != nil {
			break
		}
	}
	slices.Sort(b.steps)
	b.steps = slices.Compact(b.steps)
	return b, err
}

// branchNamed returns the step of a name, if the decision d may create it.
func (t *template) branchNamed(d int, raw []byte) (int, error) {
	name, ok := jsonString(raw)
	if !ok {
		return 0, fmt.Errorf("%s", wrongKind(decisionMember+".step_names[]", raw, "a name"))
	}
	at, ok := t.flow.index[name]
	switch {
	case !ok:
		return 0, fmt.Errorf("%s.step_names: the template has no step %.120q; %q may name %s",
			decisionMember, name, t.steps[d].name, anyOf(branchNames(t, d)))
	case t.steps[at].kind == stepBatchWorker:
		return 0, fmt.Errorf("%s.step_names: step %q is a batch_worker, which only a batchable step creates",
			decisionMember, name)
	case !t.flow.descends(at, d):
		return 0, fmt.Errorf("%s.step_names: step %q does not depend on the decision %q",
			decisionMember, name, t.steps[d].name)
	}
	return at, nil
}

// branchOf reports whether step s is a direct dependent of the decision d that d decides about.
func (t *template) branchOf(s, d int) bool {
	return slices.Contains(t.flow.parents[s], d) && t.makes(d, s)
}

// branchNames returns the names of the steps that the decision d may name, or of some, for a message.
func branchNames(t *template, d int) (names []string) {
	const most = 10
	for s := range t.steps {
		if t.branchOf(s, d) {
			names = append(names, fmt.Sprintf("%.120q", t.steps[s].name))
		}
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("one of %d more", more))
	}
	return names
}

// descends reports whether step i depends on step d, directly or not.
func (f *flow) descends(i, d int) bool {
	return slices.Contains(f.parents[i], d) ||
		slices.Contains(ancestorsOf(i, len(f.parents), func(p int) []int { return f.parents[p] }), d)
}

// checkIndirect refuses steps that a decision names and that depend on it only through steps which it does not create.
func (b *branching) checkIndirect(t *task, i int) error {
	d := t.declared(i)
	indirect := slices.DeleteFunc(slices.Clone(b.steps), func(s int) bool { return t.tpl.branchOf(s, d) })
	if len(indirect) == 0 {
		return nil
	}
	// Which steps come to exist follows from the plan's counts, so the outcome is tried on a copy of the task.
	c := t.clone()
	(&applier{t: c, r: &record{}, obs: unobserved{}}).branch(i, *b)
	for _, s := range indirect {
		if len(c.plan.declared[s].steps) == 0 {
			return fmt.Errorf("%s.step_names: step %q depends on the decision only through steps that it does not create",
				decisionMember, t.tpl.steps[s].name)
		}
	}
	return nil
}

// batches reads {"type": "no_batches"}, in short "no_batches", or {"type": "create_batches",
// "worker_template_name", "worker_count", "cursor_configs": […], "total_items"}.
func (t *template) batches(d int, outcome []byte) (b branching, err error) {
	creates, err := readOutcome(batchMember, outcome, "no_batches", "create_batches")
	if err != nil || !creates {
		return b, err
	}
	if b.worker, err = t.workerNamed(d, presentMember(outcome, "worker_template_name")); err != nil {
		return b, err
	}
	list := presentMember(outcome, "cursor_configs")
	if list == nil || jsonKind(list) != '[' {
		return b, fmt.Errorf("%s.cursor_configs must be a list, one for each worker", batchMember)
	}
	for e := range jsonElements(list) {
		b.cursors = append(b.cursors, e)
	}
	for _, name := range []string{"worker_count", "total_items"} {
		if raw := presentMember(outcome, name); raw != nil {
			n, ok := jsonInt(raw)
			if !ok || n < 0 {
				return b, fmt.Errorf("%s", wrongKind(batchMember+"."+name, raw, "an integer from 0"))
			}
			if name == "worker_count" && n != int64(len(b.cursors)) {
				return b, fmt.Errorf("%s.worker_count is %d, and there are %d cursor_configs", batchMember, n, len(b.cursors))
			}
		}
	}
	if len(b.cursors) > maxInstances {
		return b, fmt.Errorf("%s asks for %d workers, more than %d", batchMember, len(b.cursors), maxInstances)
	}
	return b, nil
}

// worksFor reports whether w is a batch_worker step that depends on the batchable step d.
func (t *template) worksFor(w, d int) bool {
	return t.steps[w].kind == stepBatchWorker && slices.Contains(t.flow.parents[w], d)
}

// workerNamed returns the batch_worker step with a name. If the outcome gives no name, it is the
// one in the step's definition.
func (t *template) workerNamed(d int, raw []byte) (int, error) {
	name := t.steps[d].batchWorker
	if raw != nil {
		var ok bool
		if name, ok = jsonString(raw); !ok {
			return 0, fmt.Errorf("%s", wrongKind(batchMember+".worker_template_name", raw, "a name"))
		}
	}
	w, ok := t.flow.index[name]
	switch {
	case name == "":
		return 0, fmt.Errorf("%s.worker_template_name is missing", batchMember)
	case !ok:
		return 0, fmt.Errorf("%s.worker_template_name: the template has no step %.120q", batchMember, name)
	case t.steps[w].kind != stepBatchWorker:
		return 0, fmt.Errorf("%s.worker_template_name: step %q is not a batch_worker", batchMember, name)
	case !t.worksFor(w, d):
		return 0, fmt.Errorf("%s.worker_template_name: step %q does not depend on the batchable step %q",
			batchMember, name, t.steps[d].name)
	}
	return w, nil
}

// readOutcome reports whether an outcome creates steps. Its type is the word none or the word creation. The outcome
// is an object, its type alone, or nil.
func readOutcome(name string, outcome []byte, none, creation string) (creates bool, err error) {
	if outcome == nil {
		return false, nil
	}
	at, kind, want := name, outcome, "an object or a word"
	if jsonKind(outcome) == '{' {
		at, want = name+".type", "a word"
		if kind = presentMember(outcome, "type"); kind == nil {
			return false, fmt.Errorf("%s is missing", at)
		}
	}
	word, ok := jsonString(kind)
	switch {
	case !ok:
		return false, fmt.Errorf("%s", wrongKind(at, kind, want))
	case word != none && word != creation:
		return false, fmt.Errorf("%s %.60q is neither %s nor %s", at, word, none, creation)
	}
	return word == creation, nil
}
