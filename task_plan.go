package main

// The steps of a task whose template has dynamic steps: which declared steps
// exist, the instances of batch workers, how they depend on each other, and how
// the outcome of a decision or batchable step creates more. For other templates
// the same methods answer from the template alone.

import (
	"errors"
	"fmt"
	"slices"
)

// plan is the steps that a task has and may get. Steps and dependencies are
// only ever added.
type plan struct {
	steps    []planStep     // by step of the task, in the order of creation
	declared []declaredStep // by step of the template
	blocks   []idBlock      // ids of steps that the template does not declare, in order
}

// planStep is one step of the task.
type planStep struct {
	def               *stepTemplate
	declared          int  // its step in the template; for an instance the batch_worker step
	instance          int  // number of an instance; 0 for the placeholder
	named             bool // its name has the batch_id of its cursor, not the number
	id                uuid
	created           instant
	parents, children []int // steps of the task
}

// declaredStep describes which steps of the task a step of the template became. A batch_worker
// step exists as its instances.
type declaredStep struct {
	steps     []int // the task's steps made from it; none while it does not exist
	instances int   // how many instances a batch_worker step has, without the placeholder
	missing   int   // parents that do not exist
	unsettled int   // parents that may or may not come to exist
	undecided int   // makers that may still create it; see (*template).makes
	settled   bool  // it exists, or never will: nothing more is created from it
	decided   bool  // a maker that has created what it creates
}

// idBlock is the consecutive ids of steps that were created together.
type idBlock struct {
	first uuid
	from  int // the first of the steps
	n     int
}

// newPlan returns a plan without steps.
func newPlan(tpl *template) *plan {
	p := &plan{declared: make([]declaredStep, len(tpl.steps))}
	for d := range p.declared {
		n := len(tpl.flow.parents[d])
		p.declared[d] = declaredStep{missing: n, unsettled: n, undecided: tpl.flow.makers[d]}
	}
	return p
}

// clone returns a copy that does not change with the plan. The lists of parents
// and children are only appended to, so the copy can share them.
func (p *plan) clone() *plan {
	return &plan{slices.Clone(p.steps), slices.Clone(p.declared), slices.Clone(p.blocks)}
}

// stepIndex finds a step by its id.
func (p *plan) stepIndex(task, id uuid) (int, bool) {
	if n, ok := id.minus(task); ok && n <= len(p.declared) {
		if n < 1 || len(p.declared[n-1].steps) == 0 || p.steps[p.declared[n-1].steps[0]].id != id {
			return 0, false
		}
		return p.declared[n-1].steps[0], true
	}
	for _, b := range p.blocks {
		if n, ok := id.minus(b.first); ok && n < b.n {
			return b.from + n, true
		}
	}
	return 0, false
}

// lastID returns the greatest id of a step that the template does not declare;
// zero without one.
func (p *plan) lastID() uuid {
	if len(p.blocks) == 0 {
		return uuid{}
	}
	b := p.blocks[len(p.blocks)-1]
	return b.first.plus(b.n - 1)
}

// def returns the definition of a step; each instance of a batch worker has its
// own. Dependencies are in parents and children, not here.
func (t *task) def(i int) *stepTemplate {
	if t.plan != nil {
		return t.plan.steps[i].def
	}
	return &t.tpl.steps[i]
}

// declared returns the template's step that a step was made from.
func (t *task) declared(i int) int {
	if t.plan != nil {
		return t.plan.steps[i].declared
	}
	return i
}

// instance returns the number of an instance of a batch_worker step; 0 for
// other steps.
func (t *task) instance(i int) int {
	if t.plan != nil {
		return t.plan.steps[i].instance
	}
	return 0
}

// parents returns the steps that a step depends on.
func (t *task) parents(i int) []int {
	if t.plan != nil {
		return t.plan.steps[i].parents
	}
	return t.tpl.steps[i].parents
}

// children returns the steps that depend on a step.
func (t *task) children(i int) []int {
	if t.plan != nil {
		return t.plan.steps[i].children
	}
	return t.tpl.steps[i].children
}

// satisfied reports whether nothing keeps a step from running: all its parents
// are done, and no other declared parent can come to exist.
func (t *task) satisfied(i int) bool { return t.steps[i].waitingFor == 0 && !t.open(i) }

// open reports whether a step may still get parents.
func (t *task) open(i int) bool {
	return t.plan != nil && t.plan.declared[t.plan.steps[i].declared].unsettled > 0
}

// deciders returns the steps that decide which parents an open step will get.
func (t *task) deciders(i int) (found []int) {
	f, seen := t.tpl.flow, make([]bool, len(t.tpl.steps))
	var look func(d int)
	look = func(d int) {
		if seen[d] {
			return
		}
		seen[d] = true
		for _, p := range f.parents[d] {
			s := &t.plan.declared[p]
			switch makes := t.tpl.makes(p, d); {
			case f.makers[d] > 0 && !makes: // p does not decide about d
			case !s.settled:
				look(p)
			case makes && !s.decided:
				found = append(found, s.steps...)
			}
		}
	}
	for _, p := range f.parents[t.declared(i)] {
		if !t.plan.declared[p].settled {
			look(p)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// stepCreated returns when a step was created.
func (t *task) stepCreated(i int) instant {
	if t.plan != nil {
		return t.plan.steps[i].created
	}
	return t.created
}

// stepIndex finds one of the task's steps by its id.
func (t *task) stepIndex(id uuid) (int, bool) {
	if t.plan != nil {
		return t.plan.stepIndex(t.id, id)
	}
	n, ok := id.minus(t.id)
	if !ok || n < 1 || n > len(t.steps) {
		return 0, false
	}
	return n - 1, true
}

// stepID returns the id of a step. The ids of declared steps follow the task's
// own.
func (t *task) stepID(i int) uuid {
	if t.plan != nil {
		return t.plan.steps[i].id
	}
	return t.id.plus(i + 1)
}

// Outcomes: what the result of a decision or batchable step may ask for, and
// what its template allows.

const maxDependencies = 1_000_000 // most dependencies of the steps that one outcome creates

// branching lists the steps that an outcome creates.
type branching struct {
	steps   []int    // the branches of a decision: steps of the template, ascending
	cursors [][]byte // of a batch, one for each instance of workers[0]
	workers []int    // steps of the template: the one with the cursors, or those that get a placeholder
	named   bool     // the names of instances have the batch_id of their cursors
}

// instances returns how many steps it creates that the template does not
// declare.
func (b *branching) instances() int {
	if len(b.cursors) > 0 {
		return len(b.cursors)
	}
	return len(b.workers)
}

// branching returns what a step decides by an ending, which is nil where the step
// is over without one. A result without an outcome decides to create nothing. The
// result is read once: the ending keeps what it says until it is applied.
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
		return t.tpl.decision(t.declared(i), outcomeIn(result, decisionMember))
	case stepBatchable:
		b, err := t.tpl.batches(t.declared(i), outcomeIn(result, batchMember))
		if len(b.cursors) == 0 { // another batchable step may have created instances or the placeholder
			b.workers = slices.DeleteFunc(b.workers, func(w int) bool { return len(t.plan.declared[w].steps) > 0 })
		}
		return b, err
	}
	return branching{}, nil
}

// outcomeIn returns a member of a result; nil if it is absent or null.
func outcomeIn(result []byte, member string) []byte {
	if result == nil || jsonKind(result) != '{' {
		return nil
	}
	if outcome := objectMember(result, member); outcome != nil && jsonKind(outcome) != 'n' {
		return outcome
	}
	return nil
}

// checkBranching returns an error when a success decides something impossible.
func (t *task) checkBranching(i int, e *ending) error {
	b, err := t.branching(i, e)
	if err != nil {
		return err
	}
	if n := t.dependenciesOf(b); n > maxDependencies {
		return fmt.Errorf("%s: %d instances would have %d dependencies, more than %d",
			batchMember, len(b.cursors), n, maxDependencies)
	}
	b.named = t.namesBatches(b)
	if err := t.checkNames(b); err != nil {
		return err
	}
	if e != nil {
		e.named = b.named
	}
	return t.checkIndirect(i, b)
}

// namesBatches reports whether the batch_id of each cursor can be in the name of its instance,
// and any differs from the number: no two steps may have the same name.
func (t *task) namesBatches(b branching) (differs bool) {
	taken := map[string]bool{}
	for n, cursor := range b.cursors {
		worker := t.tpl.steps[b.workers[0]].name
		name := batchName(worker, cursor)
		if _, declared := t.tpl.flow.index[name]; name == "" || declared || taken[name] {
			return false
		}
		taken[name] = true
		differs = differs || name != instanceName(worker, t.plan.declared[b.workers[0]].instances+n+1)
	}
	return differs && !slices.ContainsFunc(t.plan.steps, func(s planStep) bool { return taken[s.def.name] })
}

// batchName returns the name of the instance of a batch_worker step for a cursor with a
// batch_id; "" if the batch_id is no text or too long for a name.
func batchName(worker string, cursor []byte) string {
	id := templateText(cursor, "batch_id")
	if name := worker + "_" + id; id != "" && len(name) <= maxNameLength && cleanText([]byte(id)) == id {
		return name
	}
	return ""
}

// checkNames refuses instances that would have the name of another step.
func (t *task) checkNames(b branching) error {
	if len(b.cursors) == 0 || b.named {
		return nil
	}
	declared := &t.plan.declared[b.workers[0]]
	taken := map[string]bool{}
	for _, i := range declared.steps {
		taken[t.def(i).name] = t.plan.steps[i].named
	}
	for n := range b.cursors {
		name := instanceName(t.tpl.steps[b.workers[0]].name, declared.instances+n+1)
		if _, isDeclared := t.tpl.flow.index[name]; isDeclared || taken[name] {
			return fmt.Errorf("%s: an instance would have the name of the step %q", batchMember, name)
		}
	}
	return nil
}

// dependenciesOf returns how many dependencies the instances will have.
func (t *task) dependenciesOf(b branching) int {
	if len(b.cursors) == 0 {
		return 0
	}
	n, f := 0, t.tpl.flow
	for _, p := range f.parents[b.workers[0]] {
		n += len(t.plan.declared[p].steps)
	}
	for _, c := range f.children[b.workers[0]] {
		n += max(len(t.plan.declared[c].steps), 1)
	}
	return n * len(b.cursors)
}

// allowsCompletion returns an error when an operator cannot complete a step by an
// ending.
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

// newIDs returns how many ids a record needs for steps that the template does
// not declare.
func (t *task) newIDs(r *record) int {
	if t.plan == nil || !r.kind.ofStep() || t.def(r.step).kind != stepBatchable || t.decided(r.step) {
		return 0
	}
	resolved := r.kind == recOperator && r.action == actionResolve
	if !resolved && (r.kind == recLate || r.end == nil || !r.end.success) {
		return 0
	}
	b, err := t.branching(r.step, r.end)
	if err != nil {
		return 0 // apply reports the error
	}
	return b.instances()
}

// decision reads {"type": "no_branches"}, in short "no_branches", or {"type":
// "create_steps", "step_names": […]}.
func (t *template) decision(d int, outcome []byte) (b branching, err error) {
	if outcome == nil {
		return b, nil
	}
	o, err := readOutcome(decisionMember, outcome)
	if err != nil {
		return b, err
	}
	switch o.kind {
	case "no_branches":
		return b, nil
	case "create_steps":
		return t.branches(d, o.member("step_names"))
	}
	return b, fmt.Errorf("%s %.60q is neither no_branches nor create_steps", o.at, o.kind)
}

// branches returns the steps of a list of names.
func (t *template) branches(d int, names []byte) (b branching, err error) {
	if names == nil || jsonKind(names) != '[' {
		return b, fmt.Errorf("%s.step_names must be a list of names", decisionMember)
	}
	eachElement(names, func(e []byte) bool {
		var at int
		at, err = t.branchNamed(d, e)
		b.steps = append(b.steps, at)
		return err == nil
	})
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
		return 0, fmt.Errorf("%s.step_names: the template has no step %.120q", decisionMember, name)
	case t.steps[at].kind == stepBatchWorker:
		return 0, fmt.Errorf("%s.step_names: step %q is a batch_worker, which only a batchable step creates",
			decisionMember, name)
	case !t.flow.descends(at, d):
		return 0, fmt.Errorf("%s.step_names: step %q does not depend on the decision %q",
			decisionMember, name, t.steps[d].name)
	}
	return at, nil
}

// branchOf reports whether step s is a direct dependent of the decision d that
// d decides about.
func (t *template) branchOf(s, d int) bool {
	return slices.Contains(t.flow.parents[s], d) && t.makes(d, s)
}

// descends reports whether step i depends on step d, directly or not.
func (f *flow) descends(i, d int) bool {
	return slices.Contains(f.parents[i], d) ||
		slices.Contains(ancestorsOf(i, func(p int) []int { return f.parents[p] }), d)
}

// checkIndirect refuses steps that a decision names and that depend on it only
// through steps which it does not create.
func (t *task) checkIndirect(i int, b branching) error {
	d := t.declared(i)
	indirect := slices.DeleteFunc(slices.Clone(b.steps), func(s int) bool { return t.tpl.branchOf(s, d) })
	if len(indirect) == 0 {
		return nil
	}
	c := t.clone()
	(&applier{t: c, r: &record{}, obs: unobserved{}}).branch(i, b)
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
	if outcome == nil {
		return branching{workers: t.idleWorkers(d)}, nil
	}
	o, err := readOutcome(batchMember, outcome)
	if err != nil {
		return b, err
	}
	switch o.kind {
	case "no_batches":
		return branching{workers: t.idleWorkers(d)}, nil
	case "create_batches":
		return t.cursors(d, o)
	}
	return b, fmt.Errorf("%s %.60q is neither no_batches nor create_batches", o.at, o.kind)
}

// idleWorkers returns the workers that get a placeholder when there are no
// batches: the one that the step's definition names, else all that depend on
// it.
func (t *template) idleWorkers(d int) []int {
	if w, ok := t.flow.index[t.steps[d].batchWorker]; ok && t.worksFor(w, d) {
		return []int{w}
	}
	var all []int
	for _, c := range t.flow.children[d] {
		if t.worksFor(c, d) {
			all = append(all, c)
		}
	}
	return all
}

// worksFor reports whether w is a batch_worker step that depends on the batchable step d.
func (t *template) worksFor(w, d int) bool {
	return t.steps[w].kind == stepBatchWorker && slices.Contains(t.flow.parents[w], d)
}

// cursors reads the batches of a create_batches outcome.
func (t *template) cursors(d int, o outcomeObject) (b branching, err error) {
	worker, err := t.workerNamed(d, o.member("worker_template_name"))
	if err != nil {
		return b, err
	}
	b.workers = []int{worker}
	list := o.member("cursor_configs")
	if list == nil || jsonKind(list) != '[' {
		return b, fmt.Errorf("%s.cursor_configs must be a list, one for each worker", batchMember)
	}
	eachElement(list, func(e []byte) bool {
		b.cursors = append(b.cursors, e)
		return true
	})
	for _, name := range []string{"worker_count", "total_items"} {
		if raw := o.member(name); raw != nil {
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

// workerNamed returns the batch_worker step of a name, or the one that the
// step's definition names if none is given.
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

// outcomeObject is an outcome with its type.
type outcomeObject struct {
	kind string
	at   string // the path of kind
	data []byte
}

// readOutcome reads an outcome: an object, or its type alone.
func readOutcome(name string, data []byte) (o outcomeObject, err error) {
	o.at, o.data = name, data
	kind, want := data, "an object or a word"
	if jsonKind(data) == '{' {
		o.at, want = name+".type", "a word"
		if kind = o.member("type"); kind == nil {
			return o, fmt.Errorf("%s is missing", o.at)
		}
	}
	var ok bool
	if o.kind, ok = jsonString(kind); !ok {
		return o, fmt.Errorf("%s", wrongKind(o.at, kind, want))
	}
	return o, nil
}

// member returns a member of the outcome; nil if it is absent or null.
func (o outcomeObject) member(name string) []byte {
	if raw := objectMember(o.data, name); raw != nil && jsonKind(raw) != 'n' {
		return raw
	}
	return nil
}

// Growth: how an outcome becomes steps of the task. It is part of apply, and as
// deterministic.
//
// A declared step comes to exist
//   - when a decision that it depends on names it;
//   - as instances, when it is a batch_worker and a batchable step names it;
//   - when one of its dependencies exists, if it is a deferred_convergence;
//   - else when all its dependencies exist.
//
// It runs when those of its dependencies that exist are done and no other one
// can come to exist: the steps that could have created them have decided
// otherwise, or will never exist themselves.

// growth is one application of an outcome, or the creation of the task.
type growth struct {
	a      *applier
	t      *task
	p      *plan
	first  int   // index of the first new step
	create []int // declared steps that are to be created
	closed []int // declared steps whose last unsettled parent was settled
}

func (a *applier) newGrowth() *growth {
	return &growth{a: a, t: a.t, p: a.t.plan, first: len(a.t.steps)}
}

// createInitial creates the steps that exist from the start, in the template's
// order.
func (g *growth) createInitial() {
	for d, exists := range g.t.tpl.fromTheStart() {
		if exists {
			g.createStep(d, &g.t.tpl.steps[d], g.t.id.plus(d+1))
		}
	}
	for d := range g.p.declared {
		if g.t.tpl.steps[d].kind == stepBatchWorker && g.p.declared[d].undecided == 0 {
			g.settle(d) // nothing creates it
		}
	}
}

// fromTheStart returns for each step whether a new task has it.
func (t *template) fromTheStart() []bool {
	exists := make([]bool, len(t.steps))
	for _, d := range t.order {
		n := 0
		for _, p := range t.flow.parents[d] {
			n += boolCount(exists[p])
		}
		switch {
		case t.steps[d].kind == stepBatchWorker || t.flow.makers[d] > 0:
		case t.steps[d].kind == stepDeferredConvergence && n > 0:
			exists[d] = true
		default:
			exists[d] = n == len(t.flow.parents[d])
		}
	}
	return exists
}

// decided reports whether a maker has created what it creates. Steps that
// create nothing have decided.
func (t *task) decided(i int) bool {
	return t.plan == nil || !maker(t.def(i).kind) || t.plan.declared[t.declared(i)].decided
}

// grow creates the steps that the outcome of a finished step names.
func (a *applier) grow(i int, e *ending) {
	if a.t.decided(i) {
		return
	}
	b, err := a.t.branching(i, e)
	if err != nil {
		a.fail(fmt.Errorf("step %q: %w", a.t.def(i).name, err))
		return
	}
	b.named = e != nil && e.named
	a.branch(i, b)
	if e != nil {
		e.decision = nil
	}
}

// branch creates the steps of an outcome.
func (a *applier) branch(i int, b branching) {
	if a.t.decided(i) {
		return
	}
	if b.instances() > 0 && a.r.ids.isZero() {
		a.fail(fmt.Errorf("there are no ids for the steps that step %q creates", a.t.def(i).name))
		return
	}
	g := a.newGrowth()
	d := g.t.declared(i)
	for _, s := range b.steps {
		if g.t.tpl.branchOf(s, d) && len(g.p.declared[s].steps) == 0 { // the other named steps follow from these
			g.createStep(s, &g.t.tpl.steps[s], g.t.id.plus(s+1))
		}
	}
	g.instantiate(b)
	g.decide(d)
	g.createPending()
	g.ready()
}

// instantiate creates the instances of a batch worker, or its placeholders.
func (g *growth) instantiate(b branching) {
	if n := b.instances(); n > 0 {
		g.p.blocks = append(g.p.blocks, idBlock{g.a.r.ids, len(g.t.steps), n})
	}
	for n, cursor := range b.cursors {
		d := b.workers[0]
		g.p.declared[d].instances++
		name := instanceName(g.t.tpl.steps[d].name, g.p.declared[d].instances)
		if b.named {
			name = batchName(g.t.tpl.steps[d].name, cursor)
		}
		g.createStep(d, g.t.tpl.instance(d, name, cursor), g.a.r.ids.plus(n))
	}
	if len(b.cursors) > 0 {
		return
	}
	for n, d := range b.workers {
		g.placeholder(d, g.a.r.ids.plus(n))
	}
}

// placeholder creates a completed step that stands for the batches when there
// are none.
func (g *growth) placeholder(d int, id uuid) {
	i := g.enter(d, g.t.tpl.instance(d, instanceName(g.t.tpl.steps[d].name, 0), nil), id)
	g.t.steps[i].last = &ending{success: true}
	g.a.moveStep(i, stepCompleteBy)
	g.link(i)
}

// instance returns the definition of an instance of a batch_worker step.
func (t *template) instance(d int, name string, cursor []byte) *stepTemplate {
	def := t.steps[d]
	def.name = name
	def.id = stableID(t.namespace, t.name, t.version, def.name)
	if cursor != nil {
		def.config = mergeObjects(nil, def.config, append(append([]byte(`{"cursor":`), cursor...), '}'))
	}
	return &def
}

// instanceName returns the name of the nth instance of a batch_worker step; 0
// is the placeholder.
func instanceName(worker string, n int) string { return fmt.Sprintf("%s_%03d", worker, n) }

// createStep creates a step and links it.
func (g *growth) createStep(d int, def *stepTemplate, id uuid) { g.link(g.enter(d, def, id)) }

// enter appends a new step to the task.
func (g *growth) enter(d int, def *stepTemplate, id uuid) int {
	t, at := g.t, g.a.r.at
	i := len(t.steps)
	t.steps = append(t.steps, step{maxAttempts: def.retry.MaxAttempts, updated: at})
	t.counts[stepPending]++
	p := planStep{def: def, declared: d, instance: g.p.declared[d].instances, id: id, created: at}
	p.named = def.kind == stepBatchWorker && def.name != instanceName(t.tpl.steps[d].name, p.instance)
	g.p.steps = append(g.p.steps, p)
	g.a.obs.stepMoved(t, i, noStepState, stepPending, at)
	return i
}

// link connects a step with the steps that exist, and notes what its existence
// brings about.
func (g *growth) link(i int) {
	f, d := g.t.tpl.flow, g.p.steps[i].declared
	for _, p := range f.parents[d] {
		for _, parent := range g.p.declared[p].steps {
			g.depend(parent, i)
		}
	}
	for _, c := range f.children[d] {
		for _, child := range g.p.declared[c].steps {
			g.depend(i, child)
		}
	}
	s := &g.p.declared[d]
	s.steps = append(s.steps, i)
	if len(s.steps) > 1 {
		return
	}
	for _, c := range f.children[d] {
		g.p.declared[c].missing--
		g.exists(c)
	}
	if g.t.tpl.steps[d].kind != stepBatchWorker {
		g.settle(d)
	}
}

// depend makes child wait for parent.
func (g *growth) depend(parent, child int) {
	p, c := &g.p.steps[parent], &g.p.steps[child]
	p.children, c.parents = append(p.children, child), append(c.parents, parent)
	s := &g.t.steps[parent]
	if !g.t.satisfies(parent) {
		g.t.steps[child].waitingFor++
	}
	if s.state == stepCancelled && !g.t.steps[child].state.finished() {
		if s.openKids++; s.openKids == 1 {
			g.t.blockers++
		}
	}
}

// exists notes a declared step for creation once enough of its parents exist.
func (g *growth) exists(d int) {
	s := &g.p.declared[d]
	switch kind := g.t.tpl.steps[d].kind; {
	case kind == stepBatchWorker || g.t.tpl.flow.makers[d] > 0 || len(s.steps) > 0:
	case s.missing == 0, kind == stepDeferredConvergence && s.missing == len(g.t.tpl.flow.parents[d])-1:
		g.create = append(g.create, d)
	}
}

// createPending creates the steps that have come to exist, until there are no
// more.
func (g *growth) createPending() {
	for len(g.create) > 0 {
		d := g.create[0]
		g.create = g.create[1:]
		if len(g.p.declared[d].steps) == 0 {
			g.createStep(d, &g.t.tpl.steps[d], g.t.id.plus(d+1))
		}
	}
}

// decide notes that a maker has created what it creates.
func (g *growth) decide(d int) {
	g.p.declared[d].decided = true
	for _, c := range g.t.tpl.flow.children[d] {
		if g.t.tpl.makes(d, c) {
			g.unmade(c)
		}
	}
}

// unmade notes that one maker fewer may create the step.
func (g *growth) unmade(d int) {
	s := &g.p.declared[d]
	if s.undecided--; s.undecided == 0 && !s.settled {
		g.settle(d)
	}
}

// settle notes that nothing more is created from a declared step, and what
// follows for its dependents.
func (g *growth) settle(d int) {
	s := &g.p.declared[d]
	if s.settled {
		return
	}
	s.settled = true
	never := len(s.steps) == 0
	for _, c := range g.t.tpl.flow.children[d] {
		child := &g.p.declared[c]
		if child.unsettled--; child.unsettled == 0 {
			g.closed = append(g.closed, c)
		}
		switch {
		case g.t.tpl.makes(d, c):
			if never {
				g.unmade(c)
			}
		case g.t.tpl.flow.makers[c] > 0: // only its makers decide
		case g.t.tpl.steps[c].kind == stepDeferredConvergence:
			if child.unsettled == 0 && child.missing == len(g.t.tpl.flow.parents[c]) {
				g.settle(c)
			}
		case never:
			g.settle(c)
		}
	}
}

// ready collects the steps that can be enqueued now: new steps, and old ones
// whose parents are all settled.
func (g *growth) ready() {
	for i := g.first; i < len(g.t.steps); i++ {
		g.a.becameReady(i)
	}
	for _, d := range g.closed {
		for _, i := range g.p.declared[d].steps {
			if i < g.first {
				g.a.becameReady(i)
			}
		}
	}
}
