package main

// Counting: what a record adds to the figures. It is part of applying the
// record and depends on nothing but the record and the task, so that a start
// that reads the same records in any order counts the same figures.

import (
	"math"
	"slices"
)

// analytics counts while records are applied; the store's mutex guards it. It
// is notified of each record before that is applied, and then of each transition.
type analytics struct {
	book    figureBook
	covered uint64                   // the book has the records up to this one, from the compacted part
	plans   map[*template]*countPlan // where each definition's figures are
	minutes *figureSeries            // of all templates since the process started; its hours are minutes
	live    int64                    // the minute in which the store was opened; 0 before that

	// Of the record that is being applied:
	counting bool
	creating bool      // steps are only counted as created, because copied steps did not run in this task
	before   taskState // the task's state before the record
	unknown  bool      // the duration of the attempt is unknown: one action starts and ends it
	plan     *countPlan
	at       instant
	task     figureRows // rows of the template and of the minute, once needed
	step     figureRows // rows of step stepAt
	stepAt   int        // -1 for none
	room     [5]*figureRow
}

// countPlan is where the figures of one definition are in the book.
type countPlan struct {
	tpl   *template
	own   *figureSeries
	steps []*figureSeries // by step of the definition; an instance counts as its batch_worker step
}

func newAnalytics() *analytics {
	return &analytics{plans: map[*template]*countPlan{}, minutes: newSeries()}
}

// freeze returns the figures as they are now.
func (a *analytics) freeze() *frozenFigures {
	return &frozenFigures{templates: a.book.freeze(), minutes: a.minutes.clone(), live: a.live}
}

func (a *analytics) startRecord(t *task, r *record) {
	a.counting = r.seq > a.covered
	if !a.counting {
		return
	}
	a.before, a.at, a.creating = t.state, r.at, r.kind == recCreated
	a.unknown = r.kind == recOperator && r.step < len(t.steps) && t.steps[r.step].state == stepEnqueued
	a.task, a.stepAt = nil, -1
	if a.plan == nil || a.plan.tpl != t.tpl {
		a.plan = a.planFor(t.tpl)
	}
}

func (a *analytics) planFor(tpl *template) *countPlan {
	if p := a.plans[tpl]; p != nil {
		return p
	}
	f := a.book.findOrAdd(templateID{tpl.namespace, tpl.name, tpl.version})
	p := &countPlan{tpl: tpl, own: f.own, steps: make([]*figureSeries, len(tpl.steps))}
	for i := range tpl.steps {
		p.steps[i] = f.findOrAdd(tpl.steps[i].name)
	}
	a.plans[tpl] = p
	return p
}

// ofTask returns the rows of the task's template, and of the minute.
func (a *analytics) ofTask() figureRows {
	if a.task == nil {
		a.task = append(a.room[:0], a.plan.own.all, a.plan.own.hour(hourOf(a.at), keptHours))
		// What is read again at the start is not there by the minute: the compacted part has no minutes.
		if minute := minuteOf(a.at); a.live > 0 && minute >= a.live {
			a.task = append(a.task, a.minutes.hour(minute, keptMinutes))
		}
	}
	return a.task
}

// ofStep returns the rows of one of the template's steps.
func (a *analytics) ofStep(i int) figureRows {
	if a.stepAt != i {
		s := a.plan.steps[i]
		a.step, a.stepAt = append(a.room[3:3], s.all, s.hour(hourOf(a.at), keptHours)), i
	}
	return a.step
}

// countBoth counts for a step of the template and for the template.
func (a *analytics) countBoth(i int, f figure, n uint64) {
	a.ofTask().count(f, n)
	a.ofStep(i).count(f, n)
}

// failed reports whether a task in this state counts as failed.
func (s taskState) failed() bool { return s == taskBlockedByFailures || s == taskError }

func (a *analytics) taskMoved(t *task, from, to taskState, at instant) {
	if !a.counting {
		return
	}
	switch {
	case from == noTaskState:
		a.ofTask().count(tasksCreated, 1)
	case to == taskComplete:
		a.ofTask().count(tasksCompleted, 1)
		a.ofTask().observe(int64(at - t.created))
		a.ofTask().seen(at)
	case to == taskCancelled:
		a.ofTask().count(tasksCancelled, 1)
	case to.failed() && !a.before.failed(): // a blocked task that ends as stale has failed once
		a.ofTask().count(tasksFailed, 1)
		a.ofTask().seen(at)
	}
}

func (a *analytics) stepMoved(t *task, i int, from, to stepState, at instant) {
	if !a.counting || from == to || a.creating && from != noStepState {
		return
	}
	switch to {
	case stepPending:
		if from == noStepState {
			a.ofTask().count(stepsCreated, 1)
		}
	case stepEnqueued:
		a.becameReady(t, i, from, at)
	case stepEnqueuedForOrchestration:
		a.attemptEnded(t, i, true, at)
	case stepEnqueuedAsError:
		a.attemptEnded(t, i, false, at)
	case stepComplete:
		a.ofTask().count(stepsCompleted, 1)
		if from == stepInProgress { // an outside actor completed the attempt
			a.attemptEnded(t, i, true, at)
		}
	case stepInError:
		a.ofTask().count(stepsFailed, 1)
	case stepCancelled:
		a.ofTask().count(stepsCancelled, 1)
	case stepResolvedManually:
		a.ofTask().count(stepsResolved, 1)
	}
}

// becameReady counts how long a step waited for its dependencies.
func (a *analytics) becameReady(t *task, i int, from stepState, at instant) {
	if from != stepPending || t.steps[i].attempted != 0 || len(t.parents(i)) == 0 {
		return
	}
	d := t.declared(i)
	a.countBoth(d, dependencyWaits, 1)
	a.countBoth(d, dependencyMicros, uint64(max(at-t.stepCreated(i), 0)))
}

// attemptEnded counts an attempt. Its duration is the difference of the
// records' times, not the handler's own measure, which is kept in milliseconds.
func (a *analytics) attemptEnded(t *task, i int, success bool, at instant) {
	s := &t.steps[i]
	i = t.declared(i)
	a.countBoth(i, attemptsEnded, 1)
	if !success {
		a.countBoth(i, attemptsFailed, 1)
		f, _ := s.last.fault()
		kind := errorKind(f.errorType)
		a.ofTask().addType(kind)
		a.ofStep(i).addType(kind)
	}
	if s.attempts > 1 {
		a.countBoth(i, retriesEnded, 1)
		if success {
			a.countBoth(i, retriesSucceeded, 1)
		}
	}
	a.ofStep(i).seen(at)
	if a.unknown {
		return
	}
	us := int64(max(at-s.attempted, 0))
	a.countBoth(i, attemptsMeasured, 1)
	a.countBoth(i, attemptMicros, uint64(us))
	a.ofStep(i).observe(us)
}

// errorKind returns the index of an error type in handlerErrorTypes; otherErrorKind for a type
// that is not documented there.
func errorKind(name string) uint8 {
	return uint8(slices.IndexFunc(handlerErrorTypes, func(r errorTypeRow) bool { return r.fits(name) }))
}

// otherErrorKind and its name stand for every type that handlerErrorTypes does not document.
const (
	otherErrorKind = math.MaxUint8 // what the -1 of slices.IndexFunc becomes as a uint8
	otherErrorType = "other"
)

// errorKindName returns the documented name of an error type's index.
func errorKindName(kind uint8) string {
	if kind == otherErrorKind {
		return otherErrorType
	}
	return handlerErrorTypes[kind].name
}

// errorKindNamed returns the index of a documented name; otherErrorKind if the name is not
// documented, or not any more.
func errorKindNamed(name string) uint8 {
	return uint8(slices.IndexFunc(handlerErrorTypes, func(r errorTypeRow) bool { return r.name == name }))
}

// counters are the transitions, attempts and their durations since the process
// started, for /metrics. The store's mutex guards them.
type counters struct {
	taskMoves [taskStates]uint64 // transitions into each state
	stepMoves [stepStates]uint64
	attempts  [2]uint64 // attempts that ended: failed, succeeded
	durations histogram // of attempts run by handlers
	late      uint64    // results that came too late to count

	checkpoints [2]uint64 // taken, and refused because the step had made the most

	templates map[templateName]*templateCounts
	listed    *registry // whose templates are all in templates
}

// templateCounts counts the tasks of a template, whatever its version.
type templateCounts struct {
	moves   [taskStates]uint64 // into each state
	blocked int                // how many were blocked when noteTemplates was called last
}

// maxCountedTemplates is how many templates are counted separately, because each has several time series in
// /metrics. The others are counted together, as otherTemplates.
const maxCountedTemplates = 100

var otherTemplates = templateName{"*", "*"}

// countedMoves are the states whose entries are counted by template.
var countedMoves = terminalStates | setOf(taskPending)

func (c *counters) taskMoved(t *task, to taskState) {
	c.taskMoves[to]++
	if countedMoves.has(to) {
		c.ofTemplate(t.tpl.names()).moves[to]++
	}
}

// ofTemplate returns the counts of a template, which from then on are among those reported.
func (c *counters) ofTemplate(name templateName) *templateCounts {
	if n := c.templates[name]; n != nil {
		return n
	}
	if c.templates == nil {
		c.templates = map[templateName]*templateCounts{}
	}
	if len(c.templates) >= maxCountedTemplates && name != otherTemplates {
		return c.ofTemplate(otherTemplates)
	}
	n := new(templateCounts)
	c.templates[name] = n
	return n
}

// noteTemplates lists every registered template and notes how many tasks of each template are blocked. A template is
// listed before its first task because to Prometheus, a counter whose first value is 1 has not increased.
func (c *counters) noteTemplates(registered *registry, blocked map[templateName]int) {
	if c.listed != registered {
		c.listed = registered
		for _, tpl := range registered.sorted {
			c.ofTemplate(tpl.names())
		}
	}
	for _, n := range c.templates {
		n.blocked = 0
	}
	for name, n := range blocked { // also of templates that are gone
		c.ofTemplate(name).blocked += n
	}
}

// copied returns a copy for a reader without the lock.
func (c *counters) copied() counters {
	n := *c
	n.durations = c.durations.clone()
	n.templates = make(map[templateName]*templateCounts, len(c.templates))
	for name, counts := range c.templates {
		n.templates[name] = new(*counts)
	}
	return n
}

func (c *counters) stepMoved(from, to stepState) {
	c.stepMoves[to]++
	if from != stepInProgress {
		return
	}
	switch to {
	case stepEnqueuedForOrchestration:
		c.attempts[1]++
	case stepEnqueuedAsError:
		c.attempts[0]++
	}
}

// handlerDone counts an attempt that one of this process's handlers ended.
func (c *counters) handlerDone(e *ending) { c.durations.took(e.took) }
