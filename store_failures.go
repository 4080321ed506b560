package main

// The failing steps by failure group: how many tasks each group has, and which. They follow from the tasks, so nothing
// of it is on disk: it is notified of each transition, and at a start of each task that may have failing steps.

import (
	"cmp"
	"slices"
)

// failingBytes is the measured memory of a failing step, in bytes.
const failingBytes = 80

// failingStep is one failing step of a task.
type failingStep struct {
	step    uint32
	forGood bool
	at      instant // when its latest attempt failed
	group   failureGroup
}

// failsIn reports whether the task has a failing step of a group.
func (in *trouble) failsIn(g failureGroup) bool {
	return in != nil && slices.ContainsFunc(in.failures, func(s failingStep) bool { return s.group == g })
}

// noteFailures follows the transitions of all steps.
func (x *slotTable) noteFailures(t *task, i int, from, to stepState) {
	s := &t.steps[i]
	switch {
	case to == stepInError || to == stepWaitingForRetry:
		x.addFailure(x.slotOf(t), t, i)
	case (from == stepInError || from == stepWaitingForRetry || from == stepPending && s.last != nil) && !s.failing():
		sl := x.slotOf(t)
		if n, found := sl.failure(i); found {
			sl.failures = slices.Delete(sl.failures, n, n+1)
			x.index.grow(-failingBytes)
		}
	}
}

// failure returns the place of a step among those that are failing, and whether it is there.
func (sl *slot) failure(i int) (place int, found bool) {
	if sl.trouble == nil {
		return 0, false
	}
	return slices.BinarySearchFunc(sl.failures, uint32(i), func(s failingStep, i uint32) int { return cmp.Compare(s.step, i) })
}

func (x *slotTable) addFailure(sl *slot, t *task, i int) {
	s := failingStep{uint32(i), t.steps[i].state == stepInError, t.steps[i].failed, x.failureGroup(t.failedStep(i))}
	n, found := sl.failure(i)
	if found {
		sl.failures[n] = s
		return
	}
	in := x.troubled(sl)
	in.failures = slices.Insert(in.failures, n, s)
	x.index.grow(failingBytes)
}

// addFailures adds the failing steps of a task that was just loaded.
func (x *slotTable) addFailures(sl *slot, t *task) {
	if !t.mayFail() {
		return
	}
	for i := range t.steps {
		if t.steps[i].failing() {
			x.addFailure(sl, t, i)
		}
	}
}

func (h *taskHeader) mayFail() bool {
	return h.counts[stepInError]+h.counts[stepWaitingForRetry]+h.counts[stepPending] > 0
}

func (x *slotTable) failureGroup(f failedStep) failureGroup { return f.cause().group(&x.index.key) }

// failureCount is the tasks of one group or several, each task counted once.
type failureCount struct {
	group    failureGroup
	stuck    int     // an operator must act: the step failed for good, or the task ended as stale before its retry
	retrying int     // the others: the step is tried again
	first    instant // of the latest failures of the steps, like last
	last     instant
	sample   *failedTask // the last to fail, of the stuck tasks if there are any
}

// compare puts the groups with the most tasks first.
func (c *failureCount) compare(d *failureCount) int {
	return cmp.Or(cmp.Compare(d.stuck, c.stuck), cmp.Compare(d.retrying, c.retrying), cmp.Compare(d.last, c.last),
		cmp.Compare(c.group, d.group))
}

// failedTask is a failing step with its task.
type failedTask struct {
	failingStep // for good also if the task ended
	task        *slot
	seq         uint64 // of the task's creation
	place       int32  // of the group among the others
}

// failureTally counts the tasks of one group or several.
type failureTally struct {
	failureCount
	task  *slot // the last one
	stuck bool  // whether that is stuck
}

// add adds a step; those of a task come one after the other.
func (y *failureTally) add(s *failedTask) {
	c := &y.failureCount
	if y.task != s.task {
		y.task, y.stuck = s.task, false
		c.retrying++
	}
	if s.forGood && !y.stuck {
		y.stuck = true
		c.stuck, c.retrying = c.stuck+1, c.retrying-1
	}
	if c.first == 0 || s.at < c.first {
		c.first = s.at
	}
	c.last = max(c.last, s.at)
	if c.sample == nil || s.compare(c.sample) > 0 {
		c.sample = s
	}
}

// compare orders failures: those for good come after others, then the later ones.
func (s *failedTask) compare(r *failedTask) int {
	return cmp.Or(boolCount(s.forGood)-boolCount(r.forGood), cmp.Compare(s.at, r.at), cmp.Compare(s.seq, r.seq),
		cmp.Compare(s.step, r.step))
}

// failureCounts is the groups at a moment.
type failureCounts struct {
	top     []failureCount // those with the most tasks, in order
	samples []sampledStep  // of each of them
	courses []failureCourse
	groups  int          // all groups
	others  failureCount // the groups that are not among the top
}

// failuresOf returns the steps of the templates that a filter selects that failed after an instant, in the order of the tasks' creation.
func failuresOf(s *store, f *taskFilter, since instant) (all []failedTask) {
	w := &taskWalk{states: anyState &^ setOf(taskComplete, taskCancelled, taskResolvedManually)}
	s.locked(func() {
		w.templates, _ = s.tasks.index.selected(f)
		all = make([]failedTask, 0, s.tasks.index.steps[stepInError]+s.tasks.index.steps[stepWaitingForRetry]) // a few more are overdue
	})
	for at, sl := range s.each(w) {
		in := s.tasks.marks[at].trouble
		if in == nil {
			continue
		}
		for _, step := range in.failures {
			if step.at <= since {
				continue
			}
			step.forGood = step.forGood || s.tasks.kinds[at].state() == taskError
			all = append(all, failedTask{step, sl, s.tasks.seqs[at], 0})
		}
		w.work += lookWork * len(in.failures)
	}
	return all
}

// courseParts is into how many parts a course divides its time.
const courseParts = 24

// failureCourse counts the steps of a group by when they failed, in equal parts of the time from the first failure to now.
type failureCourse [courseParts]int

// countFailures counts the groups of the steps of failuresOf. It looks at each failing step. The top are
// at most limit groups.
func countFailures(s *store, f *taskFilter, since instant, limit int, now instant) (c failureCounts) {
	all := failuresOf(s, f, since)
	places := make(map[failureGroup]int32, len(all)) // if it grew, 100,000 would be moved
	for i := range all {
		place, known := places[all[i].group]
		if !known {
			place = int32(len(places))
			places[all[i].group] = place
		}
		all[i].place = place
	}
	groups := make([]failureTally, len(places)) // if it grew, 100,000 would be copied several times
	for i := range all {
		y := &groups[all[i].place]
		y.group = all[i].group
		y.add(&all[i])
	}
	c.groups = len(groups)
	order := make([]*failureCount, len(groups))
	for n := range groups {
		order[n] = &groups[n].failureCount
	}
	sortPart(order, 0, limit, (*failureCount).compare)
	for _, g := range order[:min(len(order), limit)] {
		c.top = append(c.top, *g)
	}
	c.top = slices.DeleteFunc(c.top, func(t failureCount) bool { // among the others, if its sample continued meanwhile
		sample, ok := sampleOf(s, t.sample)
		if ok {
			c.samples = append(c.samples, sample)
		}
		return !ok
	})
	c.courses = make([]failureCourse, len(c.top))
	listed := make([]int, len(groups)) // the place in the top, from 1; 0 for the others
	for i := range c.top {
		listed[places[c.top[i].group]] = i + 1
	}
	// The other groups are counted together, because a task that is in several of them counts once.
	var others failureTally
	for i := range all {
		if n := listed[all[i].place]; n > 0 {
			c.courses[n-1].add(&c.top[n-1], all[i].at, now)
		} else {
			others.add(&all[i])
		}
	}
	c.others = others.failureCount
	return c
}

// add counts a step of a group.
func (c *failureCourse) add(of *failureCount, at, now instant) {
	span := max(now.sub(of.first), 1)
	c[min(int(float64(at.sub(of.first))/float64(span)*courseParts), courseParts-1)]++
}

// sampledStep is a failing step as it was at a moment: what a reader needs of it, or its task that is over.
type sampledStep struct {
	failedStep
	ended *slot
	step  int
}

// sampleOf returns a failing step, unless it no longer fails.
func sampleOf(s *store, f *failedTask) (sample sampledStep, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := f.task.failure(int(f.step))
	switch t := f.task.live; {
	case !ok || f.task.failures[n].group != f.group:
		return sample, false
	case t != nil:
		sample.failedStep = t.failedStep(int(f.step))
	default:
		sample = sampledStep{ended: f.task, step: int(f.step)}
	}
	return sample, true
}

// read returns the step. It asks for the memory of its task.
func (s *sampledStep) read(by holder) (failedStep, error) {
	if s.ended == nil {
		return s.failedStep, nil
	}
	whole, err := (&keptTask{ended: s.ended}).taskWithin(by)
	if err != nil {
		return failedStep{}, err
	}
	return whole.failedStep(s.step), nil
}
