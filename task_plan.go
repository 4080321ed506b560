package main

// The steps of a task whose template has dynamic steps: which declared steps exist, the instances
// of batch workers, how they depend on each other, and how an outcome creates more. For other
// templates the same methods answer from the template alone.

import (
	"fmt"
	"slices"
)

// plan is the steps that a task has and may get. Steps and dependencies are only ever added.
type plan struct {
	steps    []planStep     // by step of the task, in the order of creation
	declared []declaredStep // by step of the template
	blocks   []idBlock      // ids of steps that the template does not declare, in order
}

// planStep is one step of the task.
type planStep struct {
	def               *stepTemplate
	declared          int // index of the template's step; for an instance that of the batch_worker step
	instance          int // number of an instance; 0 for the one without a batch
	id                uuid
	created           instant
	parents, children []int // steps of the task
}

// declaredStep describes which steps of the task a step of the template became. A batch_worker
// step exists as its instances.
type declaredStep struct {
	steps     []int // the task's steps made from it; none while it does not exist
	instances int   // how many instances a batch_worker step has, without the one without a batch
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

// instance returns the number of an instance of a batch_worker step; 0 for other steps.
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

func (t *task) stepCreated(i int) instant {
	if t.plan != nil {
		return t.plan.steps[i].created
	}
	return t.created
}

func (t *task) stepIndex(id uuid) (int, bool) {
	if t.by.steps != nil {
		// Ids that the creation names follow no order.
		i := 0
		for i < len(t.steps) && t.stepID(i) != id {
			i++
		}
		return i, i < len(t.steps)
	}
	if t.plan != nil {
		return t.plan.stepIndex(t.id, id)
	}
	n, ok := id.minus(t.id)
	if !ok || n < 1 || n > len(t.steps) {
		return 0, false
	}
	return n - 1, true
}

func (t *task) stepID(i int) uuid {
	if t.plan != nil {
		return t.plan.steps[i].id
	}
	return t.by.stepID(t.id, i)
}

// stepID returns the id of a step of the template in a task: the one that the creation names, or else one that
// follows the task's own. A creation names the ids of declared steps first, then those of instances, in their order.
func (by *creation) stepID(task uuid, d int) uuid {
	if d < len(by.steps) && !by.steps[d].isZero() {
		return by.steps[d]
	}
	return task.plus(d + 1)
}

// Growth: how an outcome becomes steps of the task. It is part of apply, and just as deterministic: the journal holds the
// outcome, not the steps, and a start must create the same steps from it in the same order.
//
// A declared step comes to exist
//   - when a decision that it depends on names it;
//   - as instances, when it is a batch_worker and a batchable step names it;
//   - when one of its dependencies exists, if it is a deferred_convergence;
//   - else when all its dependencies exist.
//
// It runs when those of its dependencies that exist are done and no other one can come to exist: the steps that could have
// created them have decided otherwise, or will never exist themselves. Knowing that without searching the graph after each
// outcome is why a plan counts, for each declared step, its parents that are missing or unsettled and the makers that are
// undecided. A count that falls to zero settles the step, and that lowers the counts of its children.

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

// createInitial creates the steps that exist from the start, in the template's order.
func (g *growth) createInitial() {
	for d, exists := range g.t.tpl.fromTheStart() {
		if exists {
			g.createStep(d, &g.t.tpl.steps[d], g.id(d))
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
	for _, d := range t.order { // parents before their children
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

// decided reports whether a maker has created what it creates. Steps that create nothing have decided.
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
	g := a.newGrowth()
	if len(b.cursors) > len(g.named()) && a.r.ids.isZero() {
		a.fail(fmt.Errorf("there are no ids for the steps that step %q creates", a.t.def(i).name))
		return
	}
	d := g.t.declared(i)
	for _, s := range b.steps {
		if g.t.tpl.branchOf(s, d) && len(g.p.declared[s].steps) == 0 { // the other named steps follow from these
			g.createStep(s, &g.t.tpl.steps[s], g.id(s))
		}
	}
	g.instantiate(b)
	g.decide(d)
	g.createPending()
	g.ready()
}

func (g *growth) id(d int) uuid { return g.t.by.stepID(g.t.id, d) }

// named returns the ids, named by the creation, of instances that do not exist yet.
func (g *growth) named() []uuid {
	if g.t.by.steps == nil {
		return nil
	}
	n := len(g.t.tpl.steps)
	for i := range g.p.steps {
		n += boolCount(g.p.steps[i].def.kind == stepBatchWorker)
	}
	return g.t.by.steps[min(n, len(g.t.by.steps)):]
}

// instantiate creates the instances of a batch worker. Their ids are those that the creation of the task names, or else
// follow the first id in the record, so that a start finds the same ids.
func (g *growth) instantiate(b branching) {
	named := g.named()
	id := func(n int) uuid {
		if n < len(named) {
			return named[n]
		}
		return g.a.r.ids.plus(n)
	}
	if n := len(b.cursors); n > 0 && !g.a.r.ids.isZero() {
		g.p.blocks = append(g.p.blocks, idBlock{g.a.r.ids, len(g.t.steps), n})
		g.t.lastID = g.a.r.ids.plus(n - 1)
	}
	d := b.worker
	for n, cursor := range b.cursors {
		// The instance that only says that there are no batches has the number 0.
		g.p.declared[d].instances += boolCount(!b.noOp)
		name := instanceName(g.t.tpl.steps[d].name, g.p.declared[d].instances)
		if b.named {
			name = batchName(g.t.tpl.steps[d].name, cursor)
		}
		g.createStep(d, g.t.tpl.instance(d, name, cursor), id(n))
	}
}

// instance returns the definition of an instance of a batch_worker step.
func (t *template) instance(d int, name string, cursor []byte) *stepTemplate {
	def := t.steps[d]
	def.name = name
	def.id = stableID(t.namespace, t.name, t.version, def.name)
	def.config = mergeObjects(nil, def.config, append(append([]byte(`{"cursor":`), cursor...), '}'))
	return &def
}

// instanceName returns the name of the nth instance of a batch_worker step; 0 is the one without a batch.
func instanceName(worker string, n int) string { return fmt.Sprintf("%s_%03d", worker, n) }

// createStep appends a new step to the task and links it.
func (g *growth) createStep(d int, def *stepTemplate, id uuid) {
	t, at := g.t, g.a.r.at
	i := len(t.steps)
	t.steps = append(t.steps, step{maxAttempts: def.retry.MaxAttempts, updated: at})
	t.counts[stepPending]++
	g.p.steps = append(g.p.steps, planStep{def: def, declared: d, instance: g.p.declared[d].instances, id: id, created: at})
	g.a.obs.stepMoved(t, i, noStepState, stepPending, at)
	g.link(i)
}

// link connects a step with the steps that exist, and notes what its existence brings about.
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
	// The children know that the step exists since its first instance.
	if len(s.steps) > 1 {
		return
	}
	for _, c := range f.children[d] {
		g.p.declared[c].missing--
		g.exists(c)
	}
	// A batch_worker step may get more instances. It is settled once its makers have decided.
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
	// As in tellChildren: a cancelled step with unfinished children blocks the task.
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
	case kind == stepBatchWorker || g.t.tpl.flow.makers[d] > 0 || len(s.steps) > 0: // only makers create it, or it exists
	case s.missing == 0, kind == stepDeferredConvergence && s.missing == len(g.t.tpl.flow.parents[d])-1:
		g.create = append(g.create, d)
	}
}

// createPending creates the steps that have come to exist, until there are no more. A queue, not a recursion: a created
// step can make others exist, in chains as long as the template.
func (g *growth) createPending() {
	for len(g.create) > 0 {
		d := g.create[0]
		g.create = g.create[1:]
		if len(g.p.declared[d].steps) == 0 {
			g.createStep(d, &g.t.tpl.steps[d], g.id(d))
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

// settle notes that nothing more is created from a declared step, and what follows for its dependents.
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
		case never: // a step whose parent will never exist will not exist either
			g.settle(c)
		}
	}
}

// ready collects the steps that can be enqueued now: new steps, and older steps whose last
// parent was settled by this growth.
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
