package main

// Growth: how the outcome of a decision or batchable step becomes steps of the
// task. It is part of apply, and as deterministic.
//
// A declared step comes to exist
//   - when a decision on which it depends names it;
//   - as instances, when it is a batch_worker and a batchable step names it;
//   - when one of its dependencies exists, when it is a deferred_convergence;
//   - else when all its dependencies exist.
//
// It runs when those of its dependencies that exist are done and no other one
// can come to exist any more: what could have created it has decided otherwise,
// or will never exist itself.

import "fmt"

// growth is one application of a decision, or the creation of the task.
type growth struct {
	a      *applier
	t      *task
	p      *plan
	first  int   // the first step that is new
	create []int // declared steps that have come to exist and wait for their creation
	closed []int // declared steps whose parents became all settled
}

func (a *applier) newGrowth() *growth {
	return &growth{a: a, t: a.t, p: a.t.plan, first: len(a.t.steps)}
}

// begin creates the steps that exist from the start, in the template's order.
func (g *growth) begin() {
	for d, exists := range g.t.tpl.fromTheStart() {
		if exists {
			g.add(d, &g.t.tpl.steps[d], g.t.id.plus(d+1))
		}
	}
	for d := range g.p.declared {
		if g.t.tpl.steps[d].kind == stepBatchWorker && g.p.declared[d].undecided == 0 {
			g.settle(d) // nothing makes it
		}
	}
}

// fromTheStart tells of each step whether a new task has it.
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

// decided reports whether the step made what it makes, or makes nothing.
func (t *task) decided(i int) bool {
	return t.plan == nil || !maker(t.def(i).kind) || t.plan.declared[t.declared(i)].decided
}

// grow creates what the step, which is over, has decided.
func (a *applier) grow(i int, result []byte) {
	if a.t.decided(i) {
		return
	}
	b, err := a.t.branching(i, result)
	if err != nil {
		a.fail(fmt.Errorf("step %q: %w", a.t.def(i).name, err))
		return
	}
	a.branch(i, b)
}

// branch is grow with what was decided.
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
		if g.t.tpl.branchOf(s, d) && len(g.p.declared[s].steps) == 0 { // what else is named follows by itself
			g.add(s, &g.t.tpl.steps[s], g.t.id.plus(s+1))
		}
	}
	g.instantiate(b)
	g.decide(d)
	g.drain()
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
		def := g.t.tpl.instance(d, g.p.declared[d].instances, cursor)
		g.add(d, def, g.a.r.ids.plus(n))
	}
	if len(b.cursors) > 0 {
		return
	}
	for n, d := range b.workers {
		g.placeholder(d, g.a.r.ids.plus(n))
	}
}

// placeholder stands for batches of which there are none.
func (g *growth) placeholder(d int, id uuid) {
	i := g.enter(d, g.t.tpl.instance(d, 0, nil), id)
	g.t.steps[i].last = &ending{success: true}
	g.a.moveStep(i, stepCompleteBy)
	g.link(i)
}

// instance is the definition of an instance of a batch_worker step.
func (t *template) instance(d, n int, cursor []byte) *stepTemplate {
	def := t.steps[d]
	def.name = instanceName(def.name, n)
	def.id = stableID(t.namespace, t.name, t.version, def.name)
	if cursor != nil {
		def.config = mergeObjects(nil, def.config, append(append([]byte(`{"cursor":`), cursor...), '}'))
	}
	return &def
}

// instanceName is the name of the nth instance of a batch_worker step; 0 is the placeholder's.
func instanceName(worker string, n int) string { return fmt.Sprintf("%s_%03d", worker, n) }

// add creates a step and takes note of what follows from it.
func (g *growth) add(d int, def *stepTemplate, id uuid) { g.link(g.enter(d, def, id)) }

// enter gives a new step its place.
func (g *growth) enter(d int, def *stepTemplate, id uuid) int {
	t, at := g.t, g.a.r.at
	i := len(t.steps)
	t.steps = append(t.steps, step{maxAttempts: def.retry.maxAttempts, updated: at})
	t.counts[stepPending]++
	g.p.steps = append(g.p.steps,
		planStep{def: def, declared: d, instance: g.p.declared[d].instances, id: id, created: at})
	g.a.obs.stepMoved(t, i, noStepState, stepPending, at)
	return i
}

// link connects a step with those that exist, and passes on that it does.
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
	if !s.state.satisfies() {
		g.t.steps[child].waitingFor++
	}
	if s.state == stepCancelled && !g.t.steps[child].state.finished() {
		if s.openKids++; s.openKids == 1 {
			g.t.blockers++
		}
	}
}

// exists notes a declared step for creation once what exists makes it exist.
func (g *growth) exists(d int) {
	s := &g.p.declared[d]
	switch kind := g.t.tpl.steps[d].kind; {
	case kind == stepBatchWorker || g.t.tpl.flow.makers[d] > 0 || len(s.steps) > 0:
	case s.missing == 0, kind == stepDeferredConvergence && s.missing == len(g.t.tpl.flow.parents[d])-1:
		g.create = append(g.create, d)
	}
}

// drain creates what has come to exist, and what that brings about.
func (g *growth) drain() {
	for len(g.create) > 0 {
		d := g.create[0]
		g.create = g.create[1:]
		if len(g.p.declared[d].steps) == 0 {
			g.add(d, &g.t.tpl.steps[d], g.t.id.plus(d+1))
		}
	}
}

// decide notes that a maker has made what it makes.
func (g *growth) decide(d int) {
	g.p.declared[d].decided = true
	for _, c := range g.t.tpl.flow.children[d] {
		if g.t.tpl.makes(d, c) {
			g.unmade(c)
		}
	}
}

// unmade notes that one maker fewer may make the step.
func (g *growth) unmade(d int) {
	s := &g.p.declared[d]
	if s.undecided--; s.undecided == 0 && !s.settled {
		g.settle(d)
	}
}

// settle notes that nothing more will come of a declared step, and what follows
// for those that depend on it.
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
		case g.t.tpl.flow.makers[c] > 0: // its makers alone decide
		case g.t.tpl.steps[c].kind == stepDeferredConvergence:
			if child.unsettled == 0 && child.missing == len(g.t.tpl.flow.parents[c]) {
				g.settle(c)
			}
		case never:
			g.settle(c)
		}
	}
}

// ready collects the steps that can be enqueued now: new ones, and those that
// waited for nothing but certainty.
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
