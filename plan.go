package main

// What a task is made of beside its template, when that has dynamic steps:
// which of the declared steps exist, the instances of batch workers, and how
// all of them depend on each other.

import "slices"

// plan is the steps that a task has and may get. Steps and dependencies are
// only ever added.
type plan struct {
	steps    []planStep     // by step of the task, in the order of their creation
	declared []declaredStep // by step of the template
	blocks   []idBlock      // ids of steps that the template does not declare, in order
}

// planStep is the place of one step of the task.
type planStep struct {
	def               *stepTemplate
	declared          int // its step in the template; of an instance the batch_worker step
	instance          int // of a batch_worker step: which one; 0 is the placeholder
	id                uuid
	created           instant
	parents, children []int // steps of the task
}

// declaredStep is what has become of one step of the template. A batch_worker
// step exists as its instances.
type declaredStep struct {
	steps     []int // the task's steps that it is; none while it does not exist
	instances int   // of a batch_worker step: without the placeholder
	missing   int   // parents that do not exist
	unsettled int   // parents of which it is not settled whether they will exist
	undecided int   // makers that may still make it; see (*template).makes
	settled   bool  // nothing more will come of it: it exists, or never will
	decided   bool  // of a maker: what it makes is made
}

// idBlock is the consecutive ids of steps that were created together.
type idBlock struct {
	first uuid
	from  int // the first of the steps
	n     int
}

// newPlan is a plan of no steps.
func newPlan(tpl *template) *plan {
	p := &plan{declared: make([]declaredStep, len(tpl.steps))}
	for d := range p.declared {
		n := len(tpl.flow.parents[d])
		p.declared[d] = declaredStep{missing: n, unsettled: n, undecided: tpl.flow.makers[d]}
	}
	return p
}

// clone is a copy that does not change with the plan. What the lists of parents
// and children hold is never changed, only added to: they can be shared.
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

// lastID is the greatest id of a step that the template does not declare; zero
// without one.
func (p *plan) lastID() uuid {
	if len(p.blocks) == 0 {
		return uuid{}
	}
	b := p.blocks[len(p.blocks)-1]
	return b.first.plus(b.n - 1)
}

// def is the definition of a step; an instance of a batch worker has its own.
// What it depends on is told by parents and children alone.
func (t *task) def(i int) *stepTemplate {
	if t.plan != nil {
		return t.plan.steps[i].def
	}
	return &t.tpl.steps[i]
}

// declared is the step of the template that a step is, or is an instance of.
func (t *task) declared(i int) int {
	if t.plan != nil {
		return t.plan.steps[i].declared
	}
	return i
}

// instance tells the instances of a batch_worker step apart; 0 for other steps.
func (t *task) instance(i int) int {
	if t.plan != nil {
		return t.plan.steps[i].instance
	}
	return 0
}

// parents are the steps that a step depends on.
func (t *task) parents(i int) []int {
	if t.plan != nil {
		return t.plan.steps[i].parents
	}
	return t.tpl.steps[i].parents
}

// children are the steps that depend on a step.
func (t *task) children(i int) []int {
	if t.plan != nil {
		return t.plan.steps[i].children
	}
	return t.tpl.steps[i].children
}

// satisfied reports whether nothing keeps a step from running: all its parents
// are done, and no other declared parent can come to exist any more.
func (t *task) satisfied(i int) bool { return t.steps[i].waitingFor == 0 && !t.open(i) }

// open reports whether a step may still be given parents.
func (t *task) open(i int) bool {
	return t.plan != nil && t.plan.declared[t.plan.steps[i].declared].unsettled > 0
}

// deciders are the steps that decide which parents an open step will be given.
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
			case f.makers[d] > 0 && !makes: // it has no say in that
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

// stepCreated is when a step was created.
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

// stepID is the id of a step: those of declared steps follow the task's own.
func (t *task) stepID(i int) uuid {
	if t.plan != nil {
		return t.plan.steps[i].id
	}
	return t.id.plus(i + 1)
}

// correlation is the caller's correlation id, or else the one that follows the
// ids of the declared steps.
func (t *task) correlation() uuid {
	if t.by.correlation.isZero() {
		return t.id.plus(len(t.tpl.steps) + 1)
	}
	return t.by.correlation
}
