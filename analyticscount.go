package main

// Counting: what a record means for the figures. It is part of applying the
// record and goes by nothing but the record and the task, so that a start which
// reads the same records comes to the same figures, in whatever order.

// analytics counts while records are applied; the store's mutex guards it. It
// is told of a record before it is applied, and of each transition then.
type analytics struct {
	book    figureBook
	covered uint64                   // records up to this one are in the book already, from a snapshot
	plans   map[*template]*countPlan // where the figures of each definition are

	// of the record that is being applied
	counting bool
	before   taskState // the task's, before the record
	unknown  bool      // nobody knows how long the attempt ran: the action that ends it starts it
	plan     *countPlan
	hour     int64
	task     taskPairs  // rows of the template and the whole, once they are needed
	step     figurePair // rows of step stepAt
	stepAt   int        // -1 for none
}

// countPlan is where the figures of one definition stand in the book.
type countPlan struct {
	tpl   *template
	at    int
	steps []int // by the definition's steps; an instance counts as its batch_worker step
}

func newAnalytics() *analytics {
	return &analytics{plans: map[*template]*countPlan{}, book: figureBook{byName: map[templateID]int{}}}
}

// freeze is the figures as they are now.
func (a *analytics) freeze() *frozenFigures { return a.book.freeze() }

func (a *analytics) begin(t *task, r *record) {
	a.counting = r.seq > a.covered
	if !a.counting {
		return
	}
	a.before, a.hour = t.state, hourOf(r.at)
	a.unknown = r.kind == recOperator && r.step < len(t.steps) && t.steps[r.step].state == stepEnqueued
	a.task, a.stepAt = taskPairs{}, -1
	if a.plan == nil || a.plan.tpl != t.tpl {
		a.plan = a.planFor(t.tpl)
	}
}

func (a *analytics) planFor(tpl *template) *countPlan {
	if p := a.plans[tpl]; p != nil {
		return p
	}
	at := a.book.find(templateID{tpl.namespace, tpl.name, tpl.version})
	p := &countPlan{tpl: tpl, at: at, steps: make([]int, len(tpl.steps))}
	f := a.book.template(at)
	for i := range tpl.steps {
		p.steps[i] = f.find(tpl.steps[i].name)
	}
	a.plans[tpl] = p
	return p
}

// ofTask is the rows of the task's template and the whole.
func (a *analytics) ofTask() *taskPairs {
	if a.task.own.all == nil {
		a.task.own = a.book.rows(&a.book.template(a.plan.at).own, a.hour)
		a.task.whole = a.book.rows(&a.book.whole, a.hour)
	}
	return &a.task
}

// ofStep is the rows of one of its template's steps.
func (a *analytics) ofStep(i int) figurePair {
	if a.stepAt != i {
		a.step = a.book.rows(&a.book.template(a.plan.at).steps[a.plan.steps[i]], a.hour)
		a.stepAt = i
	}
	return a.step
}

// addBoth counts for a step of the template and for the template.
func (a *analytics) addBoth(i int, f figure, n uint64) {
	a.ofTask().add(f, n)
	a.ofStep(i).add(f, n)
}

// failed reports a state in which a task counts as failed.
func (s taskState) failed() bool { return s == taskBlockedByFailures || s == taskError }

func (a *analytics) taskMoved(t *task, from, to taskState, at instant) {
	if !a.counting {
		return
	}
	switch {
	case from == noTaskState:
		a.ofTask().add(tasksCreated, 1)
	case to == taskComplete:
		a.ofTask().add(tasksCompleted, 1)
		a.ofTask().observe(int64(at - t.created))
		a.ofTask().seen(at)
	case to == taskCancelled:
		a.ofTask().add(tasksCancelled, 1)
	case to.failed() && !a.before.failed():
		a.ofTask().add(tasksFailed, 1)
		a.ofTask().seen(at)
	}
}

func (a *analytics) stepMoved(t *task, i int, from, to stepState, at instant) {
	if !a.counting || from == to {
		return
	}
	switch to {
	case stepPending:
		if from == noStepState {
			a.ofTask().add(stepsCreated, 1)
		}
	case stepEnqueued:
		a.becameReady(t, i, from, at)
	case stepEnqueuedForOrchestration:
		a.attemptEnded(t, i, true, at)
	case stepEnqueuedAsError:
		a.attemptEnded(t, i, false, at)
	case stepComplete:
		a.ofTask().add(stepsCompleted, 1)
		if from == stepInProgress { // an outside actor completed what it had, or was, started
			a.attemptEnded(t, i, true, at)
		}
	case stepInError:
		a.ofTask().add(stepsFailed, 1)
	case stepCancelled:
		a.ofTask().add(stepsCancelled, 1)
	case stepResolvedManually:
		a.ofTask().add(stepsResolved, 1)
	}
}

// becameReady counts how long a step waited for the steps it depends on.
func (a *analytics) becameReady(t *task, i int, from stepState, at instant) {
	if from != stepPending || t.steps[i].attempted != 0 || len(t.parents(i)) == 0 {
		return
	}
	d := t.declared(i)
	a.addBoth(d, dependencyWaits, 1)
	a.addBoth(d, dependencyMicros, uint64(max(at-t.stepCreated(i), 0)))
}

// attemptEnded counts an attempt. How long it ran is the difference of the
// records' times, not the handler's own measure, which is kept in milliseconds.
func (a *analytics) attemptEnded(t *task, i int, success bool, at instant) {
	s := &t.steps[i]
	i = t.declared(i)
	a.addBoth(i, attemptsEnded, 1)
	if !success {
		a.addBoth(i, attemptsFailed, 1)
		kind := errorKind(s.last.err)
		a.ofTask().addType(kind)
		a.ofStep(i).addType(kind)
	}
	if s.attempts > 1 {
		a.addBoth(i, retriesEnded, 1)
		if success {
			a.addBoth(i, retriesSucceeded, 1)
		}
	}
	a.ofStep(i).seen(at)
	if a.unknown {
		return
	}
	us := int64(max(at-s.attempted, 0))
	a.addBoth(i, attemptsMeasured, 1)
	a.addBoth(i, attemptMicros, uint64(us))
	a.ofStep(i).observe(us)
}

// errorKind is the place of a step error's type in handlerErrorTypes, the one
// after the last for a type that is not documented there.
func errorKind(stepError []byte) uint8 {
	name := ""
	eachMember(stepError, func(key string, value []byte) bool {
		if key == "error_type" {
			name, _ = jsonString(value)
		}
		return key != "error_type"
	})
	for i, r := range handlerErrorTypes {
		if r.fits(name) {
			return uint8(i)
		}
	}
	return uint8(len(handlerErrorTypes))
}

// otherErrorType stands for all that handlerErrorTypes does not document.
const otherErrorType = "other"

// errorKindName is the documented name of an error type's place.
func errorKindName(kind uint8) string {
	if int(kind) < len(handlerErrorTypes) {
		return handlerErrorTypes[kind].name
	}
	return otherErrorType
}

// errorKindNamed is the place of a documented name; the one of all others when
// it is none, or none any more.
func errorKindNamed(name string) uint8 {
	for i, r := range handlerErrorTypes {
		if r.name == name {
			return uint8(i)
		}
	}
	return uint8(len(handlerErrorTypes))
}
