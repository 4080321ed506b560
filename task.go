package main

// The task family: a task as the fold of its records. It holds the states, the records and their format, and what
// follows from a record; it does no I/O and knows no clock, no files and no engine. It may use templates and the
// handlers' outcomes.
//
//	task.go          a task, and how to apply a record, adjustments; holds
//	task_state.go    the states of tasks and steps, and the tables of their transitions
//	task_record.go   records and their kinds, creation, the coder that writes or reads members
//	task_line.go     a whole task as one line of JSON, and its replay
//	task_plan.go     the plan: which steps exist, and their growth
//	task_failure.go  failure groups: which steps are failing, and the cause that names a group; dead letters,
//	                 investigations
//	task_branch.go   branching: what decisions and batches name
//	task_deadline.go deadlines of answers, giving up waiting
//	task_again.go    a repetition from a step: its origin, and the copies with which it begins

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// maxRedeliveries is how often an attempt that a crash cut off is delivered again before it ends as worker_lost.
const maxRedeliveries = 3

// task is one run of a template: the fold of its records. The store owns it and
// changes it under its lock; views get a copy.
type task struct {
	taskHeader
	plan     *plan // nil unless the template has dynamic steps
	by       *creation
	since    instant // when it entered its state
	steps    []step
	blockers int   // steps in error, and cancelled steps with unfinished children
	setAside int   // steps in error that stop the task only once nothing else of it can run
	hold     *hold // why nothing of it runs here; nil unless it is held
	answers  deadlines
	log      []byte // its records without the task's id, comma-separated

	superseded int // estimate of the bytes in the log that belong to checkpoints other than the newest of each step

	weight int64 // memory that it takes, for the store
}

// taskHeader is what of a task can be known without its records: of one that is over, the store decodes no more.
type taskHeader struct {
	id        uuid
	seq       uint64 // of the record that created it: the creation order
	lastSeq   uint64 // of the newest record that it holds
	tpl       *template
	state     taskState
	created   instant
	updated   instant
	completed instant         // 0 until it ended
	counts    [stepStates]int // steps by state
	dead      []deadLetter    // its entries in the dead letter queue, oldest first
	acted     instant         // when an operator last acted on it; 0 for never
	lastID    uuid            // the greatest id of a step that the template does not declare; zero without one
}

// step is one workflow step of a task; its definition is (*task).def.
type step struct {
	state  stepState
	queued bool // whether it is in the ready queue; set by the engine
	stepCount
	maxAttempts int
	waitingFor  int // parents that are neither complete nor resolved
	openKids    int // of a cancelled step: children that are not finished
	updated     instant
	completed   instant      // when it became complete, resolved or cancelled; 0 before
	failed      instant      // when an attempt last failed
	retryAt     instant      // when the next attempt is due; 0 when none is
	inputs      string       // a JSON object that an operator set; "" for the task's context
	last        *ending      // the latest attempt that ended, or the operator's completion
	lease       *lease       // of the outside actor that runs the step; else nil
	checkpoint  *checkpoint  // where it continues; nil for the beginning, and of a finished step
	aside       failureAside // of a step in error
	operated    *record      // the operator's action that put the step into its present state, or nil
}

// observer receives every transition, in order, while a record is applied.
type observer interface {
	taskMoved(t *task, from, to taskState, at instant)
	stepMoved(t *task, step int, from, to stepState, at instant)
}

// applier is one application of a record.
type applier struct {
	t     *task
	r     *record
	obs   observer
	ready []int  // steps that this record made ready to be enqueued
	room  [4]int // of ready, for the usual case
	err   error
}

// apply (hot path: BenchmarkStart) folds a record into the task. It is deterministic and does no I/O. An
// error means that the tables do not allow the record: the journal is damaged,
// or the caller decided wrongly. The task must not be used after an error.
func (t *task) apply(r *record, obs observer) error {
	a := &applier{t: t, r: r, obs: obs}
	a.ready = a.room[:0]
	a.run()
	if r.kind != recDLQUpdate { // which changes an entry, not the task
		t.updated = r.at
	}
	t.lastSeq = r.seq
	if r.byOperator() {
		t.acted = r.at
	}
	if a.err != nil {
		return fmt.Errorf("record %d (%s) of task %s: %w", r.seq, r.kind, t.id, a.err)
	}
	return nil
}

func (a *applier) run() {
	r := a.r
	if r.kind.ofStep() && (r.step < 0 || r.step >= len(a.t.steps)) {
		a.err = fmt.Errorf("it has no step %d", r.step)
		return
	}
	switch r.kind {
	case recCreated:
		a.create()
	case recStarted:
		a.start()
	case recRan:
		a.start()
		a.endAttempt(r.end)
		a.evaluate(false)
	case recEnded:
		a.endAttempt(r.end)
		a.evaluate(false)
	case recClaimed:
		a.start()
		a.t.steps[r.step].lease = r.lease
	case recExtended:
		a.extend()
	case recCheckpoint:
		a.yield()
	case recLate: // kept for the audit; no state changes
	case recDue:
		a.due()
		a.evaluate(false)
	case recRecovered:
		s := &a.t.steps[r.step]
		a.moveStep(r.step, stepRecover)
		s.redeliver = true
		s.redelivered++
	case recUndelivered:
		a.t.steps[r.step].stepCount = r.before // first, because the engine looks at it
		a.moveStep(r.step, stepUndeliver)
	case recUnanswered:
		a.giveUpWaiting(r.end)
		a.evaluate(false)
	case recOperator:
		a.operate()
	case recCancelled:
		a.cancel()
	case recStale:
		// First, because the entry shows the state that the task was in.
		if r.stale.reason != noDLQReason {
			a.addDeadLetter(r.stale.reason)
		}
		a.moveTask(taskStale)
	case recDLQUpdate:
		a.investigate()
	case recAdjusted:
		a.adjust()
	case recHeld:
		a.beHeld()
	case recReleased:
		a.beReleased()
	default:
		a.err = fmt.Errorf("it is not about a task")
	}
}

// newTask returns a task to which no record was applied yet.
func newTask(r *record, tpl *template) *task {
	t := &task{taskHeader: taskHeader{id: r.task, seq: r.seq, tpl: tpl, created: r.at}, by: r.created, since: r.at}
	if tpl.dynamic {
		t.plan = newPlan(tpl)
		// Unobserved, because create reports all steps once the task itself was reported.
		(&applier{t: t, r: r, obs: unobserved{}}).newGrowth().createInitial()
		return t
	}
	t.steps = make([]step, len(tpl.steps))
	for i := range t.steps {
		s := &t.steps[i]
		s.maxAttempts = tpl.steps[i].retry.MaxAttempts
		s.waitingFor = len(tpl.steps[i].parents)
		s.updated = r.at
	}
	t.counts[stepPending] = len(t.steps)
	return t
}

func (a *applier) create() {
	t := a.t
	a.obs.taskMoved(t, noTaskState, taskPending, a.r.at)
	for i := range t.steps {
		a.obs.stepMoved(t, i, noStepState, stepPending, a.r.at)
	}
	a.copySteps()
	a.ready = a.ready[:0]
	for i := range t.steps { // some became ready before they were copied
		a.becameReady(i)
	}
	a.moveTask(taskStart)
	switch {
	case len(t.steps) == 0:
		a.moveTask(taskNoSteps)
	case len(a.ready) > 0:
		a.enqueueReady()
	default:
		a.moveTask(taskNoneReady)
	}
}

// due ends a back-off.
func (a *applier) due() {
	a.moveStep(a.r.step, stepDue)
	a.t.steps[a.r.step].retryAt = 0
	a.becameReady(a.r.step)
}

// start begins an attempt.
func (a *applier) start() {
	s := &a.t.steps[a.r.step]
	a.moveStep(a.r.step, stepStart)
	s.attempted = a.r.started()
	if s.redeliver {
		s.redeliver = false
		return
	}
	s.attempts++
	s.redelivered = 0
}

// yield ends a delivery with a checkpoint. The attempt continues with the next delivery.
func (a *applier) yield() {
	s := &a.t.steps[a.r.step]
	if s.checkpoint != nil {
		a.t.superseded += len(s.checkpoint.data) + checkpointText
	}
	c := *a.r.checkpoint
	c.at, c.seq = a.r.at, a.r.seq
	s.checkpoint, s.redeliver, s.redelivered = &c, true, 0
	a.moveStep(a.r.step, stepYield)
}

// checkpointText is the approximate length of the records of a delivery with a checkpoint, without its data.
const checkpointText = 160

// endAttempt applies the outcome of a running step.
func (a *applier) endAttempt(e *ending) {
	i := a.r.step
	s := &a.t.steps[i]
	// Everything is set before the move that it belongs to, because observers look at it: the
	// indexes at the error, the engine at the time of the retry.
	s.last = e
	if e.success {
		a.moveStep(i, stepSucceed)
		a.moveStep(i, stepProcessed)
		a.grow(i, e)
		return
	}
	a.moveStep(i, stepFail)
	s.failed = a.r.at
	if e.retryAt == 0 {
		s.aside = e.aside
		a.moveStep(i, stepGiveUp)
		return
	}
	s.retryAt = e.retryAt
	a.moveStep(i, stepRetry)
}

// operate applies an operator's or outside actor's action on a step.
func (a *applier) operate() {
	r, s := a.r, &a.t.steps[a.r.step]
	starts := s.state == stepEnqueued && (r.action == actionComplete || r.action == actionFail)
	if starts {
		a.start()
	}
	switch r.action {
	case actionReset:
		a.moveStep(r.step, stepReset)
		s.attempts, s.redeliver, s.redelivered = 0, false, 0
		if r.clear {
			s.checkpoint = nil
		}
		s.maxAttempts = cmp.Or(r.maxAttempts, s.maxAttempts)
		a.becameReady(r.step)
	case actionResolve:
		s.retryAt = 0
		a.moveStep(r.step, stepResolveBy)
		a.grow(r.step, nil)
	case actionComplete:
		s.retryAt = 0
		s.last = r.end
		a.moveStep(r.step, stepCompleteBy)
		a.grow(r.step, r.end)
	case actionFail:
		a.endAttempt(r.end)
	case actionCancel:
		s.retryAt = 0
		a.moveStep(r.step, stepCancel)
		a.branch(r.step, branching{})
	case actionRetryNow:
		a.due()
	default:
		a.err = fmt.Errorf("it names no action")
	}
	a.evaluate(r.action != actionFail) // a failure does not unblock the task
	// After the moves, each of which forgets the action before.
	a.t.steps[r.step].operated = new(*r) // r's memory is used again, and t.steps may have moved
}

func (a *applier) cancel() {
	t := a.t
	for i := range t.steps {
		if _, ok := t.steps[i].state.next(stepCancel); ok {
			t.steps[i].retryAt = 0
			a.moveStep(i, stepCancel)
		}
	}
	a.moveTask(taskCancel)
}

// evaluate moves the task according to its steps. A task that is blocked or in
// error continues only after an operator's action that leaves no step in error.
func (a *applier) evaluate(operator bool) {
	t := a.t
	switch t.state {
	case taskStepsInProcess, taskWaitingForDependencies, taskWaitingForRetry:
		a.moveTask(taskStepChanged)
	case taskBlockedByFailures, taskError:
		if !operator || t.counts[stepInError] > 0 {
			return
		}
		a.moveTask(taskUnblocked)
		a.ready = a.ready[:0]
		for i := range t.steps { // some became ready while the task was blocked
			a.becameReady(i)
		}
	default:
		return
	}
	switch {
	case t.blockers > 0:
		a.block()
	case t.counts[stepComplete]+t.counts[stepResolvedManually]+t.counts[stepCancelled] == len(t.steps):
		a.moveTask(taskAllSuccessful)
	case len(a.ready) > 0:
		a.enqueueReady()
	case t.counts[stepEnqueued]+t.counts[stepInProgress] > 0:
		a.moveTask(taskStillRunning)
	case t.counts[stepWaitingForRetry] > 0:
		a.moveTask(taskOnlyRetries)
	case t.setAside > 0:
		a.block()
	default:
		a.moveTask(taskNoneReady)
	}
}

// block blocks the task until an operator acts.
func (a *applier) block() {
	a.moveTask(taskStepFailed)
	if a.t.counts[stepInError] > 0 { // not for a cancelled step with unfinished children
		a.addDeadLetter(dlqMaxRetriesExceeded)
	}
}

// becameReady collects the step if it can be enqueued.
func (a *applier) becameReady(i int) {
	if a.t.steps[i].state == stepPending && a.t.satisfied(i) {
		a.ready = append(a.ready, i)
	}
}

func (a *applier) enqueueReady() {
	a.moveTask(taskReadyFound)
	for _, i := range a.ready {
		a.moveStep(i, stepEnqueue)
	}
	a.moveTask(taskEnqueued)
}

// moveTask is the only code that writes a task's state.
func (a *applier) moveTask(e taskEvent) {
	t := a.t
	from := t.state
	to, ok := from.next(e)
	if !ok {
		a.fail(fmt.Errorf("a task in %s cannot take %s", from, e))
		return
	}
	t.state = to
	t.since = a.r.at
	t.completed = 0
	if to.ended() {
		t.completed = a.r.at
	}
	a.obs.taskMoved(t, from, to, a.r.at)
}

// moveStep is the only code that writes a step's state.
func (a *applier) moveStep(i int, e stepEvent) {
	t := a.t
	s := &t.steps[i]
	from := s.state
	to, ok := from.next(e)
	if !ok {
		a.fail(fmt.Errorf("step %q in %s cannot take %s", t.def(i).name, from, e))
		return
	}
	// satisfies and blockedBy read aside, so they come before it is cleared below.
	before := t.satisfies(i)
	if from == stepInError {
		*t.blockedBy(s.aside)--
	}
	s.state = to
	s.lease, s.operated = nil, nil
	s.updated = a.r.at
	s.completed = 0
	if to.finished() {
		s.completed, s.checkpoint = a.r.at, nil
	}
	t.counts[from]--
	t.counts[to]++
	if to == stepInError {
		*t.blockedBy(s.aside)++
	} else if from == stepInError {
		s.aside = notAside
	}
	if rule := t.def(i).answer; rule != nil {
		t.answers.follow(i, e, rule.due(a.r.at))
	}
	a.tellChildren(i, before, to)
	a.tellCancelledParents(i, from, to)
	a.obs.stepMoved(t, i, from, to, a.r.at)
}

// blockedBy returns the count of steps in error to which one belongs.
func (t *task) blockedBy(aside failureAside) *int {
	if aside == notAside {
		return &t.blockers
	}
	return &t.setAside
}

// satisfies reports whether a step lets its children run: it is done, or failed in isolation.
func (t *task) satisfies(i int) bool {
	s := &t.steps[i]
	return s.state.satisfies() || s.state == stepInError && s.aside == asideIsolate
}

// tellChildren updates what the step's children wait for. A cancelled step with
// unfinished children blocks the task: they can never run.
func (a *applier) tellChildren(i int, satisfied bool, to stepState) {
	t := a.t
	children := t.children(i)
	switch now := t.satisfies(i); {
	case now && !satisfied:
		for _, c := range children {
			if t.steps[c].waitingFor--; t.steps[c].waitingFor == 0 {
				a.becameReady(c)
			}
		}
	case satisfied && !now: // an isolated failure is tried again, or cancelled
		for _, c := range children {
			t.steps[c].waitingFor++
		}
	}
	if to != stepCancelled {
		return
	}
	for _, c := range children {
		if !t.steps[c].state.finished() {
			t.steps[i].openKids++
		}
	}
	if t.steps[i].openKids > 0 {
		t.blockers++
	}
}

// tellCancelledParents unblocks the task when a child of a cancelled step is finished after all.
func (a *applier) tellCancelledParents(i int, from, to stepState) {
	if !to.finished() || from.finished() || a.t.counts[stepCancelled] == 0 {
		return
	}
	for _, p := range a.t.parents(i) {
		s := &a.t.steps[p]
		if s.state != stepCancelled {
			continue
		}
		if s.openKids--; s.openKids == 0 {
			a.t.blockers--
		}
	}
}

func (a *applier) fail(err error) {
	a.err = cmp.Or(a.err, err)
}

// correlation returns the caller's correlation id, or else the id that follows those of the declared steps.
func (t *task) correlation() uuid {
	if t.by.correlation.isZero() {
		return t.id.plus(len(t.tpl.steps) + 1)
	}
	return t.by.correlation
}

// clone returns a copy that later records do not change.
func (t *task) clone() *task {
	c := *t
	c.steps = append([]step(nil), t.steps...)
	c.dead = append([]deadLetter(nil), t.dead...)
	// Nobody changes the part of the log that exists. An append to t writes behind it, and an append to
	// the copy, which has no room there, makes a log of its own.
	c.log = t.log[:len(t.log):len(t.log)]
	c.answers = maps.Clone(t.answers)
	if t.plan != nil {
		c.plan = t.plan.clone()
	}
	return &c
}

// withoutSteps returns a copy without its steps, but with its records.
func (t *task) withoutSteps() *task {
	c := *t
	c.steps, c.plan, c.dead, c.log = nil, nil, nil, t.log[:len(t.log):len(t.log)]
	return &c
}

// resultsFor returns the step's ancestors, or its parents alone if the template says so, in the order of the template.
func (t *task) resultsFor(i int) []namedResult {
	def := t.def(i)
	wanted := t.parents(i)
	if !def.parentsOnly {
		wanted = ancestorsOf(i, len(t.steps), func(p int) []int { return t.parents(p) })
	}
	results := make([]namedResult, 0, len(wanted))
	for _, p := range wanted {
		s := &t.steps[p]
		r := namedResult{step: t.def(p).name, id: t.stepID(p), state: s.state.String(), done: s.state.satisfies(),
			pastOutcome: s.past()}
		if s.state == stepResolvedManually { // its attempts, which failed, do not count
			r.pastOutcome = pastOutcome{at: s.completed}
		}
		results = append(results, r)
	}
	return results
}

// past returns how the step's latest attempt ended, if one did.
func (s *step) past() pastOutcome {
	if s.last == nil {
		return pastOutcome{}
	}
	return pastOutcome{s.last.result, s.last.err, s.last.metadata, s.last.took, s.ended()}
}

// ended returns when the step's latest attempt ended, if one did.
func (s *step) ended() instant {
	if s.last != nil && s.last.success {
		return s.completed
	}
	return s.failed
}

// requesterOf returns who asked for the task, when and why.
func requesterOf(t *task) requester {
	return requester{initiator: t.by.initiator, source: t.by.source, reason: t.by.reason, tags: t.by.tags,
		priority: t.by.priority, parentCorrelation: t.by.parentCorrelation,
		requested: t.requestedAt(), created: t.created, updated: t.updated}
}

// requestedAt returns the time that the caller gave, or else that of creation.
func (t *task) requestedAt() instant {
	if t.by.requested != 0 {
		return t.by.requested
	}
	return t.created
}

// extend applies the extension of a lease.
func (a *applier) extend() {
	s := &a.t.steps[a.r.step]
	if s.lease == nil {
		a.fail(fmt.Errorf("step %q in %s has no lease", a.t.def(a.r.step).name, s.state))
		return
	}
	l := *s.lease
	l.until = a.r.lease.until
	s.lease = &l
}

// maxRetryLimit is how many attempts an operator may allow a step.
const maxRetryLimit = 100

// adjustment is an operator's change of a step.
type adjustment struct {
	maxAttempts int    // 0 for no change
	inputs      []byte // a JSON object; nil for no change
}

// problem returns why a record's adjustment cannot be applied, or nil.
func (a *adjustment) problem() error {
	switch {
	case a == nil || a.maxAttempts == 0 && a.inputs == nil:
		return fmt.Errorf("adjusted record changes nothing")
	case a.maxAttempts < 0:
		return fmt.Errorf("adjusted record has a negative limit")
	}
	return nil
}

// adjust applies an adjustment. A failed step whose new limit allows more
// attempts is tried again, and the earlier attempts still count.
func (a *applier) adjust() {
	s, by := &a.t.steps[a.r.step], a.r.adjustment
	if by.inputs != nil {
		s.inputs = string(by.inputs)
	}
	if by.maxAttempts == 0 {
		return
	}
	s.maxAttempts = by.maxAttempts
	if s.state != stepInError || !a.t.retryEligible(a.r.step) {
		return
	}
	a.moveStep(a.r.step, stepReset)
	s.redeliver, s.redelivered = false, 0
	a.becameReady(a.r.step)
	a.evaluate(true)
}

// retryEligible reports whether a step has attempts left. Its first attempt needs no retry policy.
func (t *task) retryEligible(i int) bool {
	s := &t.steps[i]
	return s.attempts == 0 || t.def(i).retry.Retryable && s.attempts < s.maxAttempts
}

// readyForExecution reports whether a step can run, if nothing else holds the task up.
func (t *task) readyForExecution(i int, now instant) bool {
	s := &t.steps[i]
	return (s.state == stepPending || s.state == stepWaitingForRetry) &&
		t.satisfied(i) && s.retryAt <= now && t.retryEligible(i)
}

// readySteps returns how many steps are ready for execution.
func (t *task) readySteps(now instant) (n int) {
	if t.counts[stepPending]+t.counts[stepWaitingForRetry] == 0 {
		return 0
	}
	for i := range t.steps {
		n += boolCount(t.readyForExecution(i, now))
	}
	return n
}

func (h *taskHeader) stepTotal() (n int) {
	for _, c := range h.counts {
		n += c
	}
	return n
}

// inputsFor returns the inputs of a step's next attempt.
func (t *task) inputsFor(i int) []byte {
	if s := &t.steps[i]; s.inputs != "" {
		return []byte(s.inputs)
	}
	return t.by.context
}

// batchInputs returns what a batch worker gets besides its inputs: its cursor, its batch_metadata, and
// whether it has no work to do. Inputs that an operator set take precedence.
func (t *task) batchInputs(i int) []byte {
	def, s := t.def(i), &t.steps[i]
	o := jsonWriter{b: []byte{'{'}}
	o.raw("cursor", objectMember(def.config, "cursor"))
	o.raw("batch_metadata", def.batch.metadata)
	o.flag("is_no_op", t.instance(i) == 0)
	batch := append(o.b, '}')
	if s.inputs == "" {
		return batch
	}
	return mergeObjects(nil, batch, []byte(s.inputs))
}

// payload returns what the events that an attempt publishes carry: its result, {} for none, or its error.
func (e *ending) payload() []byte {
	if e.success {
		return orEmptyObject(e.result)
	}
	return e.err
}

// errorContext returns the context of the error, if that is an object, or nil.
func (e *ending) errorContext() []byte {
	if context := objectMember(e.err, "context"); jsonKind(context) == '{' {
		return context
	}
	return nil
}

// payloadOf returns what an event carries, by its name.
func (e *ending) payloadOf(event string) []byte {
	if slices.Contains(e.asContext, event) {
		return orEmptyObject(e.errorContext())
	}
	return e.payload()
}

// taskVersions are versions of a task: the sequences of its newest records.
type taskVersions []uint64

func (v taskVersions) refusal(t *task) error {
	if v == nil || slices.Contains(v, t.lastSeq) {
		return nil
	}
	return failf(taskMovedOn, "task %s has changed since: no entity tag in If-Match is current", t.id)
}

// Holds: a task that continues in another service is held here, so that no step of it runs in both.

// hold says where a task continues, and since when nothing of it runs here.
type hold struct {
	at    instant
	place string
}

// beHeld takes back the attempts that run: the other service makes them again. They do not count as
// redelivered, because no process was lost.
func (a *applier) beHeld() {
	t := a.t
	if t.hold != nil || t.state.final() {
		a.err = errHeld(t)
		return
	}
	t.hold = &hold{a.r.at, a.r.reason}
	for i := range t.steps {
		if s := &t.steps[i]; s.state == stepInProgress {
			a.moveStep(i, stepRecover)
			s.redeliver = true
		}
	}
}

func (a *applier) beReleased() {
	if a.t.hold == nil {
		a.err = errNotHeld(a.t)
	}
	a.t.hold = nil
}

// errHeld says why nothing can be done to a task that is held or over, and is nil for others.
func errHeld(t *task) error {
	switch {
	case t.hold != nil:
		return failf(invalidTransition, "task %s has been on hold since %s: it continues in %s", t.id, t.hold.at.zoned(), t.hold.place)
	case t.state.final():
		return failf(invalidTransition, "task %s is %s", t.id, t.state)
	}
	return nil
}

func errNotHeld(t *task) error { return failf(invalidTransition, "task %s is not on hold", t.id) }
