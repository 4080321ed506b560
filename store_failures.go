package main

// The index of failing steps by failure group: how many tasks each group has, and which. It follows from
// the tasks, so nothing of it is on disk: it is notified of each transition, and at a start of each task that
// may have failing steps.

import (
	"cmp"
	"iter"
	"slices"
)

// failureIndex is guarded by the store's mutex. Memory: failingBytes for each failing step, and
// groupBytes for each group.
type failureIndex struct {
	key    failureKey                     // of the store; not changed once it has tasks
	groups map[failureGroup][]failingStep // none is empty
	places map[stepPlace]groupPlace       // where each failing step is in them
	resize func(by int64)                 // notes that the tasks take so much more memory
}

// What the index takes for a failing step and for a group, in bytes, as measured.
const (
	failingBytes = 80
	groupBytes   = 80
)

// failingStep is one failing step.
type failingStep struct {
	stepPlace
	forGood bool
	at      instant // when its latest attempt failed
}

// stepPlace is the position of a task and the index of its step.
type stepPlace struct{ pos, step uint32 }

// groupPlace is a group and the index of a step in it.
type groupPlace struct {
	group failureGroup
	n     uint32
}

func newFailureIndex() failureIndex {
	return failureIndex{groups: map[failureGroup][]failingStep{}, places: map[stepPlace]groupPlace{}, resize: func(int64) {}}
}

// stepMoved follows the transitions of all steps.
func (x *failureIndex) stepMoved(t *task, i int, from, to stepState) {
	s := &t.steps[i]
	switch {
	case to == stepInError || to == stepWaitingForRetry:
		x.insert(t, i)
	case (from == stepInError || from == stepWaitingForRetry || from == stepPending && s.last != nil) && !s.failing():
		x.remove(stepPlace{t.pos, uint32(i)})
	}
}

// insertTask inserts the failing steps of a task that was just loaded.
func (x *failureIndex) insertTask(t *task) {
	if !mayFail(&t.counts) {
		return
	}
	for i := range t.steps {
		if t.steps[i].failing() {
			x.insert(t, i)
		}
	}
}

// mayFail reports whether one of the steps that were counted may be failing.
func mayFail(counts *[stepStates]int) bool {
	return counts[stepInError]+counts[stepWaitingForRetry]+counts[stepPending] > 0
}

// groupOf returns the group of a failing step.
func (x *failureIndex) groupOf(f failedStep) failureGroup { return f.cause().group(&x.key) }

func (x *slotTable) failureGroup(f failedStep) failureGroup { return x.index.failures.groupOf(f) }

func (x *failureIndex) insert(t *task, i int) {
	s, g := &t.steps[i], x.groupOf(t.failedStep(i))
	place, steps := stepPlace{t.pos, uint32(i)}, x.groups[g]
	x.places[place] = groupPlace{g, uint32(len(steps))}
	x.groups[g] = append(steps, failingStep{place, s.state == stepInError, s.failed})
	x.resize(failingBytes + groupBytes*int64(boolCount(steps == nil)))
}

// remove removes a step, if it is there.
func (x *failureIndex) remove(place stepPlace) {
	p, ok := x.places[place]
	if !ok {
		return
	}
	steps := x.groups[p.group]
	last := steps[len(steps)-1]
	// The last step fills the gap. If that is the removed step itself, the next statement undoes
	// this.
	steps[p.n], x.places[last.stepPlace] = last, p
	delete(x.places, place)
	// A group that had many failures once gives their memory back.
	if steps = steps[:len(steps)-1]; cap(steps) > 4*len(steps)+16 {
		steps = slices.Clone(steps)
	}
	x.groups[p.group] = steps
	if len(steps) == 0 {
		delete(x.groups, p.group)
	}
	if len(x.places) == 0 { // a map keeps its memory
		x.groups, x.places = map[failureGroup][]failingStep{}, map[stepPlace]groupPlace{}
	}
	x.resize(-failingBytes - groupBytes*int64(boolCount(len(steps) == 0)))
}

// removeTask removes the steps of a task, which has this number of steps.
func (x *failureIndex) removeTask(pos uint32, steps int) {
	for i := range steps {
		x.remove(stepPlace{pos, uint32(i)})
	}
}

// relocate moves the steps of a task, which has this number of steps, to another position.
func (x *failureIndex) relocate(from, to uint32, steps int) {
	for i := range uint32(steps) {
		if p, ok := x.places[stepPlace{from, i}]; ok {
			delete(x.places, stepPlace{from, i})
			x.places[stepPlace{to, i}] = p
			x.groups[p.group][p.n].pos = to
		}
	}
}

// stepsThatMayFail returns the number of steps of the task at a position, in this slot, if one may be failing; else 0.
func (x *slotTable) stepsThatMayFail(pos uint32, sl slot) int {
	switch t := sl.live; {
	case len(x.index.failures.places) == 0:
	case t != nil && mayFail(&t.counts):
		return len(t.steps)
	case t == nil && x.index.states[taskError].has(pos):
		h, _ := readTaskHead(sl.line.text())
		return stepTotal(&h.counts)
	}
	return 0
}

// tasksOf returns the positions of the tasks with a step in a group.
func (x *failureIndex) tasksOf(g failureGroup) *bitset {
	tasks := new(bitset)
	for _, s := range x.groups[g] {
		tasks.set(s.pos)
	}
	return tasks
}

// failureCount is the tasks of one group or several, each task counted once.
type failureCount struct {
	group    failureGroup
	stuck    int     // an operator must act: the step failed for good, or the task ended as stale before its retry
	retrying int     // the others: the step is tried again
	first    instant // of the latest failures of the steps, like last
	last     instant
	sample   failingStep // the last to fail, of the stuck tasks if there are any
}

// compare puts the groups with the most tasks first.
func (c *failureCount) compare(d *failureCount) int {
	return cmp.Or(cmp.Compare(d.stuck, c.stuck), cmp.Compare(d.retrying, c.retrying), cmp.Compare(d.last, c.last),
		cmp.Compare(c.group, d.group))
}

// failureTally counts the tasks of one group or several.
type failureTally struct {
	ended             *bitset // tasks in error
	tasks, stuckTasks bitset
	failureCount
}

// add adds the steps of a group.
func (y *failureTally) add(steps []failingStep) {
	for _, s := range steps {
		y.tasks.set(s.pos)
		if s.forGood = s.forGood || y.ended.has(s.pos); s.forGood {
			y.stuckTasks.set(s.pos)
		}
		if y.first == 0 || s.at < y.first {
			y.first = s.at
		}
		y.last = max(y.last, s.at)
		if s.compare(y.sample) > 0 {
			y.sample = s
		}
	}
	y.stuck = y.stuckTasks.count()
	y.retrying = y.tasks.count() - y.stuck
}

// compare orders failures: those for good come after others, then the later ones.
func (s failingStep) compare(r failingStep) int {
	return cmp.Or(boolCount(s.forGood)-boolCount(r.forGood), cmp.Compare(s.at, r.at), s.stepPlace.compare(r.stepPlace))
}

// reset empties a tally to which only these steps were added. That takes less time than a new tally.
func (y *failureTally) reset(steps []failingStep) {
	for _, s := range steps {
		y.tasks.clear(s.pos)
		y.stuckTasks.clear(s.pos)
	}
	y.failureCount = failureCount{}
}

// failureCounts is the groups at a moment.
type failureCounts struct {
	top     []failureCount // those with the most tasks, in order
	samples []sampledStep  // of each of them
	courses []failureCourse
	groups  int          // all groups
	others  failureCount // the groups that are not among the top
}

// failuresOf returns the groups of the templates that a filter selects by namespace and name.
func (x *slotTable) failuresOf(f *taskFilter) iter.Seq2[failureGroup, []failingStep] {
	every := f.namespace == "" && f.name == ""
	return func(yield func(failureGroup, []failingStep) bool) {
		for g, steps := range x.index.failures.groups {
			if (every || x.slots[steps[0].pos].in.key.matches(f)) && !yield(g, steps) {
				return
			}
		}
	}
}

// courseParts is into how many parts a course divides its time.
const courseParts = 24

// failureCourse counts the steps of a group by when they failed, in equal parts of the time from the first failure to now.
type failureCourse [courseParts]int

// course returns the course of a group with these steps.
func (c *failureCount) course(steps []failingStep, now instant) (course failureCourse) {
	span := max(now.sub(c.first), 1)
	for _, s := range steps {
		course[min(int(float64(s.at.sub(c.first))/float64(span)*courseParts), courseParts-1)]++
	}
	return course
}

// countFailures counts these groups. It looks at each of their steps. The top are at most limit groups.
func (x *slotTable) countFailures(f *taskFilter, limit int, now instant) (c failureCounts) {
	ended := &x.index.states[taskError]
	y, others := failureTally{ended: ended}, failureTally{ended: ended}
	for g, steps := range x.failuresOf(f) {
		y.add(steps)
		y.group = g
		c.offer(&y.failureCount, limit)
		y.reset(steps)
	}
	c.keepTop(limit)
	listed := map[failureGroup]bool{}
	for _, t := range c.top {
		listed[t.group] = true
		c.samples = append(c.samples, x.sample(t.sample))
		c.courses = append(c.courses, t.course(x.index.failures.groups[t.group], now))
	}
	// The other groups are counted together, because a task that is in several of them counts once.
	if len(c.top) == c.groups {
		return c
	}
	for g, steps := range x.failuresOf(f) {
		if !listed[g] {
			others.add(steps)
		}
	}
	c.others = others.failureCount
	return c
}

// offer counts a group, and adds it if it may be among the top. These are sorted once there are limit of them, and
// whenever twice as many have come together, because sorting all groups would take long.
func (c *failureCounts) offer(g *failureCount, limit int) {
	c.groups++
	if len(c.top) >= limit && c.top[limit-1].compare(g) <= 0 {
		return
	}
	c.top = append(c.top, *g)
	if len(c.top) == limit || len(c.top) == 2*limit {
		c.keepTop(limit)
	}
}

func (c *failureCounts) keepTop(limit int) {
	slices.SortFunc(c.top, func(a, b failureCount) int { return a.compare(&b) })
	c.top = c.top[:min(len(c.top), limit)]
}

// sampledStep is a failing step as it was at a moment: what a reader needs of it, or the line of its task.
type sampledStep struct {
	failedStep
	line shortLine
	step int
}

func (x *slotTable) sample(s failingStep) sampledStep {
	if t := x.slots[s.pos].live; t != nil {
		return sampledStep{failedStep: t.failedStep(int(s.step))}
	}
	return sampledStep{line: x.slots[s.pos].line, step: int(s.step)}
}

// sampled returns a failing step. It asks for the memory of its task.
func (t *taskTemplates) sampled(s sampledStep, by holder) (failedStep, error) {
	if s.line == nil {
		return s.failedStep, nil
	}
	whole, err := t.taskWithin(slot{line: s.line}, by)
	if err != nil {
		return failedStep{}, err
	}
	return whole.failedStep(s.step), nil
}

func (p stepPlace) compare(q stepPlace) int {
	return cmp.Or(cmp.Compare(p.pos, q.pos), cmp.Compare(p.step, q.step))
}
