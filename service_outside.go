package main

// Outside actors: claims of steps under leases, and the answers to them.

import (
	"bytes"
	"context"
	"sync/atomic"
)

// outsideActors hands steps to outside actors under leases, and takes their answers.
type outsideActors struct {
	clock    clock
	store    *store
	engine   *engine
	workerID string
	people   peoplePatterns
	draining *atomic.Bool
}

// claim hands steps to the caller under leases, once these are durable. If there
// is nothing to claim, it waits for as long as the request says.
func (a *outsideActors) claim(ctx context.Context, q *claimRequest) ([]claimedStep, error) {
	if a.draining.Load() {
		return nil, failf(unavailable, "the service is shutting down: no steps can be claimed")
	}
	got := a.engine.outside.claim(ctx, q)
	if got.err != nil {
		return nil, a.store.refuse(ctx, got.err)
	}
	if len(got.steps) == 0 {
		return nil, a.store.waitAll(ctx) // why there is nothing may be a change that is not on disk yet
	}
	err := a.store.wait(ctx, got.seq)
	if ctx.Err() != nil { // the caller has gone, and never learned the leases
		a.engine.outside.unclaim(got.steps)
		return nil, ctx.Err()
	}
	return got.steps, err
}

// outsideStepView is a step for an outside actor.
type outsideStepView struct {
	stepView
	tpl            *template
	callable       string
	priority       int
	waitingSince   instant // when the wait for an actor began or, if one has claimed the step, for its answer
	schema         []byte  // that a result must fit; nil for none
	forPerson      bool
	by             *creation // of the task, for what it is about; nil if that may not be shown
	heldBy         string    // the actor that has it
	leaseExpiresAt instant   // 0 for none
}

func (v outsideStepView) writeJSON(o *jsonWriter) {
	o.b = append(o.b, '{')
	v.stepView.write(o)
	o.text("namespace", v.tpl.namespace)
	o.text("task_name", v.tpl.name)
	o.text("task_version", v.tpl.version)
	o.text("callable", v.callable)
	o.number("priority", v.priority)
	o.zoned("waiting_since", v.waitingSince)
	o.flag("for_person", v.forPerson)
	if v.by == nil {
		o.raw("about", nil)
	} else {
		o.raw("about", v.by.about())
	}
	o.raw("result_schema", v.schema)
	if v.heldBy != "" {
		o.text("worker_id", v.heldBy)
	}
	if v.leaseExpiresAt != 0 {
		o.zoned("lease_expires_at", v.leaseExpiresAt)
	}
	o.b = append(o.b, '}')
}

// steps lists the claimed steps or the claimable ones, in the order in which steps are claimed: by
// priority, then by the age of their tasks; or else by deadline, those without one last. It lists them with or without what
// their contexts tell.
func (a *outsideActors) steps(claimed, contexts, byDeadline bool, matches func(claimKey) bool, offset, limit int) []outsideStepView {
	views := []outsideStepView{}
	now := a.clock.now()
	a.store.locked(func() {
		var keys []runKey
		if claimed {
			keys = firstSteps(a.engine.leases.claimed.walk(byDeadline, matches), offset+limit)
		} else {
			w := &a.engine.outside
			keys = w.claimableLocked(w.waiting.walk(byDeadline, matches), offset+limit)
		}
		for _, k := range keys[min(offset, len(keys)):] {
			if t := a.store.liveLocked(k.task); t != nil {
				held := a.engine.leases.byID[t.stepID(k.step)]
				v := newOutsideStepView(t, k.step, held, now, a.workerID)
				if v.forPerson = a.people.has(t.def(k.step).callable); contexts {
					v.by = t.by
				}
				views = append(views, v)
			}
		}
	})
	return views
}

// newOutsideStepView returns the view of a step that an actor holds; held is nil if none does.
func newOutsideStepView(t *task, i int, held *heldStep, now instant, worker string) outsideStepView {
	v := outsideStepView{
		stepView: newStepView(t, i, now, worker), tpl: t.tpl, callable: t.def(i).shown, priority: t.by.priority,
		waitingSince: t.steps[i].updated,
	}
	if s := t.def(i).result; s != nil {
		v.schema = s.text
	}
	if held != nil {
		v.heldBy, v.leaseExpiresAt = t.steps[i].lease.worker, held.until
	}
	return v
}

// stepAnswer is an outside actor's answer about one step.
type stepAnswer struct {
	leaseAnswer
	step uuid
}

// answer records an answer, waits until it is durable and returns the step after it. One under a lease that has ended is
// recorded in the audit only.
func (a *outsideActors) answer(ctx context.Context, q *stepAnswer) (v stepView, err error) {
	if a.engine.schemas.on() && q.outcome.success {
		if err := a.fit(ctx, q); err != nil {
			return v, a.store.refuse(ctx, err)
		}
	}
	taken := false
	seq, err := a.engine.turn(ctx, func() error {
		return a.store.updateLocked(func(c *change) (err error) {
			v, taken, err = a.takeLocked(c, q)
			return err
		})
	})
	a.engine.wakeUp()
	if err == nil && !taken {
		v, err = a.answerLate(ctx, q.step, &q.leaseAnswer)
		_, seq = a.store.size() // which covers what this recorded
	}
	if err != nil {
		return v, a.store.refuse(ctx, err)
	}
	return v, a.store.wait(ctx, seq)
}

// takeLocked takes an answer if the step is under its lease.
func (a *outsideActors) takeLocked(c *change, q *stepAnswer) (v stepView, taken bool, err error) {
	held, err := a.engine.leases.answerLocked(c, q.step, &q.leaseAnswer)
	if held == nil || err != nil {
		return v, false, err
	}
	t, err := c.task(held.task)
	if err != nil {
		return v, false, err
	}
	q.version = t.lastSeq
	// A copy of the task would cost far more.
	return newStepView(t, held.step, c.now, a.workerID), true, nil
}

// fit checks the result of an answer against the schema of its step.
func (a *outsideActors) fit(ctx context.Context, q *stepAnswer) error {
	t, i, err := a.stepOf(q.step, q.task)
	if err != nil {
		return nil // as taking it will find out
	}
	b := newBudget(ctx, a.engine.schemas.memory)
	defer b.end()
	if o := a.engine.schemas.fitted(b, t.def(i), q.outcome); b.err == nil {
		q.outcome = o
	}
	return b.err
}

// answerLate answers when the lease has ended: as before if the answer repeats the one
// that ended it. It refuses any other, after recording its outcome in the audit.
func (a *outsideActors) answerLate(ctx context.Context, stepID uuid, q *leaseAnswer) (v stepView, err error) {
	t, i, err := a.stepOf(stepID, q.task)
	if err != nil {
		return v, err
	}
	past := &pastLease{step: i, answer: q}
	if err := a.takeLate(ctx, t.id, past, q); err != nil {
		return v, err
	}
	if past.lease == nil {
		return v, failf(conflict, "cannot %s step %q: this is not its lease", q.verb, t.def(i).name)
	}
	q.version = t.lastSeq
	if past.repeated {
		return newStepView(t, i, a.clock.now(), a.workerID), nil
	}
	return v, failf(conflict, "cannot %s step %q: the lease is over, and the step is %s", q.verb, t.def(i).name,
		t.steps[i].state)
}

// stepOf finds a step: in the task that a lease names, or else in the task whose
// ids include the step's. Anybody may have written the name of the task, so the step counts only if the
// task has it, and the caller still compares the lease.
func (a *outsideActors) stepOf(id, named uuid) (*task, int, error) {
	owner, _ := a.store.taskOfStep(id)
	for _, candidate := range [...]uuid{named, owner} {
		if t, err := a.store.view(candidate); err == nil {
			if i, ok := t.stepIndex(id); ok {
				return t, i, nil
			}
		}
	}
	return nil, 0, failf(stepMissing, "step %s not found", id)
}

// takeLate finds the attempt that an answer is about, and records its outcome
// unless it has one. It takes one answer at a time, so that none is recorded twice.
func (a *outsideActors) takeLate(ctx context.Context, id uuid, past *pastLease, q *leaseAnswer) error {
	late := a.engine.outside.late
	select {
	case late <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-late }()
	if _, err := a.store.viewObserved(id, past, nil); err != nil {
		return err
	}
	if past.lease == nil || past.answered || q.verb == extendVerb || q.verb == yieldVerb {
		return nil
	}
	_, err := a.engine.change(ctx, func(c *change) error {
		t, err := c.task(id)
		if err != nil {
			return err
		}
		end := a.engine.outcomes.plainEnding(t, past.step, q.outcome, c.now, past.began)
		end.retryAt, end.attempt, end.worker = 0, past.attempt, past.lease.worker
		a.engine.stats.late++
		return c.append(t, &record{kind: recLate, step: past.step, end: end, subject: q.subject})
	})
	return err
}

// pastLease finds the attempt made under a lease while the task is replayed.
type pastLease struct {
	unobserved
	step     int
	answer   *leaseAnswer
	lease    *lease // nil unless found
	began    instant
	attempt  int
	current  bool // the replay is in that attempt
	answered bool // the actor ended it, or its late outcome is recorded already
	repeated bool // the actor ended it with the same answer
}

func (p *pastLease) startRecord(t *task, r *record) {
	if r.step != p.step {
		return
	}
	switch r.kind {
	case recClaimed:
		if p.current = r.lease.is(p.answer.hash); p.current {
			p.lease, p.began = r.lease, r.at
		}
	case recExtended, recAdjusted: // the attempt continues
	case recLate:
		p.answered = p.answered || p.lease != nil && r.end.attempt == p.attempt
	default: // this ends the attempt
		if p.current && r.kind == recEnded && !r.end.isLost() {
			p.answered, p.repeated = true, p.ended(t, r.end)
		}
		if p.current && r.kind == recCheckpoint {
			p.answered, p.repeated = true, bytes.Equal(r.checkpoint.data, p.answer.outcome.checkpoint)
		}
		p.current = false
	}
}

// ended reports whether the answer is the one that ended the attempt. t is the task before that.
func (p *pastLease) ended(t *task, end *ending) bool {
	if p.answer.outcome.checkpoint != nil {
		return false
	}
	o := p.answer.outcome.fitting()
	if f, wrong := t.misdecided(p.step, &ending{success: o.success, result: o.result}); wrong {
		o = f
	}
	return p.answer.verb != extendVerb && end.says(&o)
}

// stepMoved notes the number of the attempt; it is called before the step counts the attempt.
func (p *pastLease) stepMoved(t *task, i int, _, to stepState, _ instant) {
	if i == p.step && p.current && to == stepInProgress {
		p.attempt = t.steps[i].nextAttempt()
	}
}
