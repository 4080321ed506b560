package main

// Again from a step: a new task that begins with the results of an earlier one. Which steps it copies
// is in the record of its creation, so that the new task exists with all copies or not at all.

import (
	"fmt"
	"slices"
)

// origin says which earlier task a task repeats, and from which step on. It holds the finished steps that
// the task copied.
type origin struct {
	task   uuid
	from   string     // the name of a step of that task, or of a batch_worker step of its template
	copies []stepCopy // in the order in which the steps finished
}

// stepCopy is a finished step of another task.
type stepCopy struct {
	step     int  // in the new task
	of       uuid // the step that was copied
	ids      uuid // the first id of the instances that its outcome creates
	resolved bool // by an operator, without an outcome
	end      ending

	creates int // number of these instances; known, like maker, only until the copies are stored
	maker   int // the template's step that creates them
}

func (x *origin) members(c *memberCoder) {
	c.id("task", &x.task)
	c.text("from", &x.from)
	objects(c, "copies", &x.copies, (*stepCopy).members)
}

func (s *stepCopy) members(c *memberCoder) {
	number(c, "step", &s.step)
	c.id("of", &s.of)
	c.id("ids", &s.ids)
	c.set("resolved", &s.resolved)
	if !s.resolved {
		s.end.members(c)
	}
}

// problem returns why an origin that was read cannot be applied, or nil.
func (x *origin) problem() error {
	for i := range x.copies {
		if c := &x.copies[i]; c.step < 0 || !c.resolved && !(c.end.success && c.end.sound()) {
			return fmt.Errorf("copies[%d] is not a finished step", i)
		}
	}
	return nil
}

// size estimates how long the copies are in the journal, in bytes.
func (x *origin) size() (n int) {
	if x != nil {
		for i := range x.copies {
			n += len(x.copies[i].end.result) + len(x.copies[i].end.metadata) + checkpointText
		}
	}
	return n
}

// number gives the copies the ids of the instances that they create in a task.
func (x *origin) number(ids *idSource, task uuid, tpl *template) {
	if x == nil {
		return
	}
	for i := range x.copies {
		if c := &x.copies[i]; c.creates > 0 {
			c.ids = ids.block(c.creates, task.plus(c.maker+1), tpl.steps[c.maker].name)
		}
	}
}

// copyOf returns the copy that became a step, or nil.
func (x *origin) copyOf(step int) *stepCopy {
	for i := range x.copies {
		if x.copies[i].step == step {
			return &x.copies[i]
		}
	}
	return nil
}

// copySteps makes the copies of a creation finished steps of the task.
func (a *applier) copySteps() {
	if x := a.t.by.origin; x != nil {
		for i := range x.copies {
			a.copyStep(&x.copies[i])
		}
	}
}

// copyStep finishes a step by its copy, and creates what it decided.
func (a *applier) copyStep(c *stepCopy) {
	if a.err != nil || c.step >= len(a.t.steps) {
		a.fail(fmt.Errorf("it copies step %d, which does not exist", c.step))
		return
	}
	// moveStep and grow take the step and the ids from the record, and each copy has its own.
	whole := a.r
	defer func() { a.r = whole }()
	a.r = &record{seq: whole.seq, at: whole.at, kind: whole.kind, step: c.step, ids: c.ids}
	if c.resolved {
		a.moveStep(c.step, stepResolveBy)
		a.grow(c.step, nil)
		return
	}
	a.t.steps[c.step].last = &c.end
	a.moveStep(c.step, stepCompleteBy)
	a.grow(c.step, &c.end)
}

// finishOrder collects the steps of a task in the order in which they were done.
type finishOrder struct {
	unobserved
	steps []int
}

func (o *finishOrder) stepMoved(_ *task, i int, _, to stepState, _ instant) {
	if to.satisfies() {
		o.steps = append(o.steps, i)
	}
}

// repetition makes the origin of a task that is to repeat old from a step on. draft shows how that task will begin.
type repetition struct {
	old    *task
	from   string
	chosen []int // the steps of old that the name means
	draft  *task
	names  map[string]int // steps of draft by name
	origin *origin
}

// repeat makes the origin of a task of a template that repeats this one from a step on. It copies the steps
// that are done and that depend neither on that step nor on one that is not done. done is in the order of a
// finishOrder, because that order decides which numbers instances get.
func (t *task) repeat(from string, tpl *template, done []int) (*repetition, error) {
	x := &repetition{old: t, from: from, names: map[string]int{}, origin: &origin{task: t.id, from: from}}
	if err := x.choose(); err != nil {
		return nil, err
	}
	x.draft = newTask(&record{kind: recCreated, created: &creation{}}, tpl)
	done = slices.DeleteFunc(done, func(i int) bool {
		_, again := slices.BinarySearch(x.chosen, i)
		return again
	})
	for left := len(done) + 1; len(done) < left; { // an operator may have completed a step before its parents
		left = len(done)
		var err error
		done = slices.DeleteFunc(done, func(i int) bool { return err == nil && x.copied(i, &err) })
		if err != nil {
			return nil, err
		}
	}
	return x, x.complete()
}

// settled reports whether nothing that is made from a step of the template will run.
func (x *repetition) settled(d int) bool {
	for i := range x.draft.steps {
		if x.draft.declared(i) == d && x.draft.steps[i].state == stepPending {
			return false
		}
	}
	return x.draft.plan == nil || x.draft.plan.declared[d].settled
}

func (x *repetition) refused(format string, args ...any) error {
	f := fieldReader{}
	f.complain("from", format, args...)
	return f.failure("the task cannot be repeated")
}

// choose finds the steps that the name means: one step, or all instances of a batch worker.
func (x *repetition) choose() error {
	var names []string
	for i := range x.old.steps {
		name := x.old.def(i).name
		if name == x.from {
			x.chosen = []int{i}
			return nil
		}
		if names = append(names, name); x.old.tpl.steps[x.old.declared(i)].name == x.from {
			x.chosen = append(x.chosen, i)
		}
	}
	if x.chosen != nil {
		return nil
	}
	for i := range x.old.tpl.steps {
		if x.old.tpl.steps[i].name == x.from {
			return x.refused("names step %q, which no decision or batch has created in task %s", x.from, x.old.id)
		}
	}
	return x.refused("names no step of task %s: %.120q%s", x.old.id, x.from, meant(nearestWord(x.from, names, typoLimit(x.from))))
}

// find returns the step of the draft with a name.
func (x *repetition) find(name string) (at int, ok bool) {
	for i := len(x.names); i < len(x.draft.steps); i++ {
		x.names[x.draft.def(i).name] = i
	}
	at, ok = x.names[name]
	return at, ok
}

// copied copies a step into the draft, and reports whether it did. The draft must have the step and be done
// with all steps before it.
func (x *repetition) copied(i int, err *error) bool {
	at, ok := x.find(x.old.def(i).name)
	if !ok || x.draft.steps[at].state != stepPending || !x.draft.satisfied(at) {
		return false
	}
	s := &x.old.steps[i]
	c := stepCopy{step: at, of: x.old.stepID(i), resolved: s.state != stepComplete, maker: x.draft.declared(at)}
	r := &record{kind: recOperator, action: actionResolve, step: at}
	if !c.resolved {
		c.end = *s.last
		// The late attempt and the events are those of the earlier task. What the result decides is
		// read again, because the draft may have other steps.
		c.end.attempt, c.end.withheld, c.end.asContext, c.end.decision = 0, nil, nil, nil
		r.action, r.end = actionComplete, &c.end
	}
	// The result was checked against the template of the earlier task.
	if x.draft.tpl.hash != x.old.tpl.hash && !x.draft.decided(at) {
		if bad := x.draft.checkBranching(at, r.end); bad != nil {
			*err = x.refused("needs the result of step %q, which the current template does not allow: %v", x.old.def(i).name, bad)
			return true
		}
	}
	if c.creates = x.draft.newIDs(r); c.creates > 0 {
		c.ids = uuid{1} // until the new task has ids
	}
	a := &applier{t: x.draft, r: &record{}, obs: unobserved{}}
	a.copyStep(&c)
	x.origin.copies, *err = append(x.origin.copies, c), a.err
	return true
}

// complete returns an error unless the chosen steps can run with what was copied.
func (x *repetition) complete() error {
	for _, i := range x.chosen {
		name := x.old.def(i).name
		at, ok := x.find(name)
		switch {
		case !ok:
			return x.refused("names step %q, which the current template does not create", name)
		case !x.draft.satisfied(at):
			return x.lacks(name, x.draft.def(x.draft.heldUpBy(at)).name)
		}
	}
	return nil
}

// lacks returns the failure of a repetition from a step that needs another one's result.
func (x *repetition) lacks(name, missing string) error {
	for i := range x.old.steps {
		if x.old.def(i).name == missing {
			return x.refused("names step %q, which needs the result of step %q, whose state in task %s is %s: begin there, or finish it first",
				name, missing, x.old.id, x.old.steps[i].state)
		}
	}
	return x.refused("names step %q, which needs the result of step %q, which task %s does not have", name, missing, x.old.id)
}

// heldUpBy follows what a step waits for, and returns the first step on the way that waits for no other.
func (t *task) heldUpBy(i int) int {
	for !t.satisfied(i) {
		waits := slices.DeleteFunc(slices.Clone(t.parents(i)), t.satisfies)
		if len(waits) == 0 {
			waits = t.deciders(i)
		}
		if len(waits) == 0 {
			break
		}
		i = waits[0]
	}
	return i
}
