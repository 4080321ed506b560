package main

// Bulk actions: one action on every step, task, dead letter or delivery that a filter selects, in batches
// of one sync each. A bulk action keeps no state: it leaves alone what changed after the sequence at which
// it began, so it acts on nothing twice, and one that was cut off is sent again with that sequence.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// bulkAction is an action that can be taken on many items at once.
type bulkAction struct {
	name   string
	needs  permission  // the permission that the action on a single item needs
	list   permission  // the permission to list what a filter selects
	action stepAction  // for steps; noAction for tasks, dead letters and deliveries
	states []stepState // the states of the steps that it selects unless the filter names states
}

// bulkActions are all of them.
var bulkActions = []bulkAction{
	{"retry_now", permStepsResolve, permStepsRead, actionRetryNow, []stepState{stepWaitingForRetry}},
	{"reset", permStepsResolve, permStepsRead, actionReset, []stepState{stepInError}},
	{"resolve", permStepsResolve, permStepsRead, actionResolve, []stepState{stepInError}},
	{"complete", permStepsResolve, permStepsRead, actionComplete, []stepState{stepInError}},
	{name: bulkCancel, needs: permTasksCancel, list: permTasksList},
	{name: bulkHold, needs: permTasksCancel, list: permTasksList},
	{name: bulkRelease, needs: permTasksCancel, list: permTasksList},
	{name: bulkClose, needs: permDLQUpdate, list: permDLQRead},
	{name: bulkResend, needs: permDLQUpdate, list: permDLQRead},
}

// The actions on tasks, dead letters and deliveries.
const (
	bulkCancel  = "cancel"
	bulkHold    = "hold"
	bulkRelease = "release"
	bulkClose   = "close"
	bulkResend  = "resend"
)

// taskActions return the record of an action on a whole task, or why it is refused.
var taskActions = map[string]func(t *task, who taskActor) (*record, error){
	bulkCancel: cancellationOf, bulkHold: holdOf, bulkRelease: releaseOf,
}

// bulkFilter selects what a bulk action acts on. Only the part for the kind of the action counts.
type bulkFilter struct {
	tasks      taskFilter
	ids        map[uuid]bool // of tasks; nil for any
	stuck      *bool         // whether the task has a pending dead letter that is not over; nil for any
	step       string        // the name of a step or of its template; "" for any
	states     []stepState   // of steps; nil for those of the action
	letters    dlqFilter
	deliveries deliveryFilter
	chosen     map[string]bool // ids of deliveries; nil for any
}

// bulkRequest is a checked request.
type bulkRequest struct {
	*bulkAction
	filter bulkFilter
	lists  []permission // that the filter needs
	one    stepRequest  // on each step; its actor, subject and reason count for every action
	close  investigation
	dryRun bool
	asOf   string // what changed after the record with this number is left alone; "" for the newest one now
	first  int    // stop after so many, unless it is a dry run; 0 for no limit
}

// bulkProgress is a line of the answer with the counts so far: of steps, tasks, dead letters or deliveries.
type bulkProgress struct {
	Done      int `json:"done"` // or would be, in a dry run
	Refused   int `json:"refused"`
	LeftAlone int `json:"left_alone"` // because their tasks changed after as_of
}

// bulkResult is the last line of the answer.
type bulkResult struct {
	bulkProgress
	Finished bool          `json:"finished"`
	DryRun   bool          `json:"dry_run"`
	Samples  []bulkItem    `json:"samples"`            // some of what was done
	Refusals []bulkRefusal `json:"refusals"`           // by reason
	Error    *bulkError    `json:"error"`              // why it stopped early, or null
	Warnings []string      `json:"warnings,omitempty"` // where a result does not fit a schema, but counts
}

// bulkItem names what was acted on.
type bulkItem struct {
	TaskUUID     uuid   `json:"task_uuid"`
	StepUUID     *uuid  `json:"step_uuid,omitempty"`
	Step         string `json:"step,omitempty"`
	DLQEntryUUID *uuid  `json:"dlq_entry_uuid,omitempty"`
	Delivery     string `json:"delivery,omitempty"`
}

// bulkRefusal counts the refusals of one kind.
type bulkRefusal struct {
	bulkError
	Count  int      `json:"count"`
	Sample bulkItem `json:"sample"` // the first one, whose message it has
}

type bulkError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

const (
	bulkBatch   = 5                    // tasks, entries or deliveries that share a change and a sync
	bulkPage    = 1000                 // entries or deliveries that are looked up at once
	bulkSamples = 10                   // that the last line shows
	bulkBytes   = 1 << 20              // of the results that a change may add, at most
	bulkRest    = 2 * time.Millisecond // after a batch, at least, and three times as long as it took
	bulkRecord  = 4 << 10              // about what the record of an action has besides its result
)

// bulkRun is a bulk action under way.
type bulkRun struct {
	*bulkRequest
	s       *service
	result  bulkResult
	misfits map[*stepTemplate]error  // why the result of a completion does not fit a step, or nil
	code    func(failureKind) string // the name of a kind of failure
	tell    func(line any) error     // sends a line to the caller
	asOf    uint64                   // see bulkRequest
	left    error                    // why no more lines can be sent to the caller, or nil
	valid   func() time.Duration     // how long the caller's credential is still valid

	// By real time, unless a test replaces it:
	now   func() time.Time
	pause func(ctx context.Context, d time.Duration) error // returns errTooLong after d
	began time.Time                                        // the end of the last rest
}

// beginBulk returns the run of a request, and fixes the sequence up to which it looks.
func (s *service) beginBulk(q *bulkRequest) (*bulkRun, error) {
	var newest uint64
	s.store.locked(func() { newest = s.store.seqLocked() })
	if q.asOf != "" {
		asOf, err := s.store.readNumber(q.asOf)
		if err == errOtherLife {
			return nil, failf(badRequest, "as_of: %v", err)
		}
		if err == nil && asOf > newest {
			err = fmt.Errorf("must be at most %s, the newest record", s.store.numbers().text(newest))
		}
		if err != nil {
			f := fieldReader{}
			f.complain("as_of", "%v", err)
			return nil, f.failure("the bulk action is refused")
		}
		newest = cmp.Or(asOf, newest)
	}
	return &bulkRun{bulkRequest: q, s: s, asOf: newest, misfits: map[*stepTemplate]error{},
		now: time.Now, pause: func(ctx context.Context, d time.Duration) error { return closedWithin(ctx, nil, d) },
		result: bulkResult{DryRun: q.dryRun, Samples: []bulkItem{}, Refusals: []bulkRefusal{}}}, nil
}

// run acts, tells the progress after each batch, and ends with the result. It returns the error of a caller
// who has left.
func (b *bulkRun) run(ctx context.Context) error {
	b.began = b.now()
	b.say(map[string]string{"as_of": b.s.store.numbers().text(b.asOf), "request_id": b.one.who.request})
	err := b.left
	switch {
	case err != nil:
	case b.name == bulkClose:
		err = b.letters(ctx)
	case b.name == bulkResend:
		err = b.resend(ctx)
	default:
		err = b.tasks(ctx)
	}
	if b.left = cmp.Or(b.left, ctx.Err()); b.left != nil {
		return b.left
	}
	if b.result.Finished = err == nil; err != nil {
		b.result.Error = &bulkError{b.code(kindOf(err)), err.Error()}
	}
	return b.say(b.result)
}

// say sends a line, and notes that the caller has left if it cannot.
func (b *bulkRun) say(line any) error {
	b.left = b.tell(line)
	return b.left
}

// inBatches calls act with the items in batches, each with its progress and a rest after it.
func inBatches[T any](ctx context.Context, b *bulkRun, items []T, act func([]T) error) error {
	for len(items) > 0 && !b.enough() {
		batch := items[:min(b.batchSize(), len(items))]
		items = items[len(batch):]
		if err := act(batch); err != nil {
			return err
		}
		if err := b.say(b.result.bulkProgress); err != nil {
			return err
		}
		if err := b.rest(ctx, len(batch)); err != nil {
			return err
		}
	}
	return nil
}

func (b *bulkRun) enough() bool { return b.first > 0 && !b.dryRun && b.result.Done >= b.first }

// batchSize returns how many items share a change: their records must fit into what is reserved for one, and no more are
// taken than may be done.
func (b *bulkRun) batchSize() int {
	size := min(bulkBatch, max(1, bulkBytes/(bulkRecord+len(b.one.result)+len(b.one.metadata))))
	if b.first > 0 && !b.dryRun {
		size = min(size, b.first-b.result.Done)
	}
	return size
}

// rest follows each piece of work, of which n items are done. It leaves three quarters of the time to others.
func (b *bulkRun) rest(ctx context.Context, n int) error {
	pause := 3 * b.now().Sub(b.began)
	if n > 0 && !b.dryRun {
		pause = max(pause, bulkRest)
	}
	left := b.valid()
	if err := b.pause(ctx, min(pause, left)); err != errTooLong {
		return err
	}
	b.began = b.now()
	switch {
	case left <= pause:
		return errBulkExpired
	case b.s.draining.Load():
		return failf(unavailable, "the service is shutting down")
	}
	return nil
}

// errBulkExpired ends an action on many when the caller's credential does.
var errBulkExpired = failf(unauthenticated, "the credential has expired: nothing more was done")

// count notes what became of an item.
func (b *bulkRun) count(item bulkItem, err error) {
	if err == nil {
		b.result.Done++
		if len(b.result.Samples) < bulkSamples {
			b.result.Samples = append(b.result.Samples, item)
		}
		return
	}
	b.result.Refused++
	kind := b.code(kindOf(err))
	for i := range b.result.Refusals {
		if r := &b.result.Refusals[i]; r.Code == kind {
			r.Count++
			return
		}
	}
	b.result.Refusals = append(b.result.Refusals, bulkRefusal{bulkError{kind, err.Error()}, 1, item})
}

// tasks acts on the tasks of the filter or their steps, the oldest task first.
func (b *bulkRun) tasks(ctx context.Context) error {
	q := taskQuery{taskFilter: b.filter.tasks, ascending: true, limit: 4 * bulkBatch}
	stuck := map[uuid]bool{}
	if b.filter.stuck != nil {
		rows, err := b.rows(ctx, dlqFilter{status: new(dlqPending), over: new(false)})
		if err != nil {
			return err
		}
		for _, row := range rows {
			stuck[row.task] = true
		}
	}
	for {
		page := b.s.store.matching(&q, b.filter.ids)
		if len(page) == 0 {
			return nil
		}
		last := page[len(page)-1]
		q.after = &last.place
		page = slices.DeleteFunc(page, func(m placedTask) bool {
			return m.place.seq > b.asOf || b.filter.stuck != nil && *b.filter.stuck != stuck[m.id]
		})
		b.checkResult(ctx, page) // without the lock, because schemas can take long
		if err := inBatches(ctx, b, page, func(batch []placedTask) error {
			return b.change(ctx, func(c *change) error {
				for _, m := range batch {
					if b.enough() {
						break
					}
					if err := b.taskLocked(c, m.id); err != nil {
						return err
					}
				}
				return nil
			})
		}); err != nil {
			return err
		}
		if last.place.seq > b.asOf || b.enough() {
			return nil
		}
		if len(page) == 0 {
			if err := b.rest(ctx, 0); err != nil {
				return err
			}
		}
	}
}

// change makes a change of the store and waits until it is durable.
func (b *bulkRun) change(ctx context.Context, decide func(c *change) error) error {
	seq, err := b.s.engine.change(ctx, decide)
	if err != nil {
		return err
	}
	b.s.engine.wakeUp()
	return b.s.store.wait(ctx, seq)
}

// taskLocked acts on one task or its steps.
func (b *bulkRun) taskLocked(c *change, id uuid) error {
	t, err := c.task(id)
	if err != nil { // it was dropped meanwhile
		return nil
	}
	if t.lastSeq > b.asOf && b.name != bulkHold { // a hold is right whatever the task has done meanwhile
		b.result.LeftAlone++
		return nil
	}
	if b.action == noAction {
		r, err := taskActions[b.name](t, b.one.who)
		if err = b.append(c, t, bulkItem{TaskUUID: id}, r, err); err == nil && r != nil && !b.dryRun {
			b.s.engine.heedHoldLocked(t) // a hold is no transition, so the engine does not observe it
		}
		return err
	}
	for i := range t.steps {
		if b.enough() {
			break
		}
		if !b.selects(t, i) {
			continue
		}
		stepID := t.stepID(i)
		r, err := b.s.operator.decide(c, t, i, &b.one)
		err = cmp.Or(err, b.misfits[&t.tpl.steps[t.declared(i)]])
		if err = b.append(c, t, bulkItem{TaskUUID: id, StepUUID: &stepID, Step: t.def(i).name}, r, err); err != nil {
			return err
		}
	}
	return nil
}

// append appends the record of an item unless it was refused, and counts it.
func (b *bulkRun) append(c *change, t *task, item bulkItem, r *record, refusal error) error {
	b.count(item, refusal)
	if refusal != nil || b.dryRun {
		return nil
	}
	return c.append(t, r)
}

// selects reports whether the filter selects a step.
func (b *bulkRun) selects(t *task, i int) bool {
	f, s := &b.filter, &t.steps[i]
	states := f.states
	if states == nil {
		states = b.states
	}
	if !slices.Contains(states, s.state) {
		return false
	}
	if f.step != "" && f.step != t.def(i).name && f.step != t.tpl.steps[t.declared(i)].name {
		return false
	}
	return f.tasks.failure == 0 || s.failing() && b.s.store.table().failureGroup(t.failedStep(i)) == f.tasks.failure
}

// checkResult finds out whether the result of a completion fits the step of each template, once.
func (b *bulkRun) checkResult(ctx context.Context, page []placedTask) {
	if b.action != actionComplete {
		return
	}
	for _, m := range page {
		i := slices.IndexFunc(m.tpl.steps, func(d stepTemplate) bool { return d.name == b.filter.step })
		if i < 0 {
			continue
		}
		def := &m.tpl.steps[i]
		if _, known := b.misfits[def]; !known {
			b.misfits[def] = b.s.operator.misfit(ctx, def, &b.one)
			for _, text := range b.one.doubts.texts(completionResult) {
				if len(b.result.Warnings) < bulkSamples && !slices.Contains(b.result.Warnings, text) {
					b.result.Warnings = append(b.result.Warnings, text)
				}
			}
		}
	}
}

// rows returns all dead letters that a filter selects, the oldest first.
func (b *bulkRun) rows(ctx context.Context, f dlqFilter) ([]dlqRow, error) {
	return allPages(ctx, b, func(skip int) []dlqRow {
		page, _, _ := b.s.store.letters().page(f, skip, bulkPage)
		return page
	})
}

// allPages returns the elements of a list that is read by pages, the newest first, in the opposite order.
func allPages[T any](ctx context.Context, b *bulkRun, page func(skip int) []T) (all []T, err error) {
	for {
		more := page(len(all))
		if all = append(all, more...); len(more) < bulkPage {
			slices.Reverse(all)
			return all, nil
		}
		if err := b.rest(ctx, 0); err != nil {
			return nil, err
		}
	}
}

// letters closes dead letters, the oldest first.
func (b *bulkRun) letters(ctx context.Context) error {
	rows, err := b.rows(ctx, b.filter.letters)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(r dlqRow) bool {
		return r.seq > b.asOf || b.filter.ids != nil && !b.filter.ids[r.task]
	})
	return inBatches(ctx, b, rows, func(batch []dlqRow) error {
		return b.change(ctx, func(c *change) error {
			for _, row := range batch {
				t, err := c.task(row.task)
				if err != nil {
					continue // it was dropped meanwhile
				}
				if t.lastSeq > b.asOf {
					b.result.LeftAlone++
					continue
				}
				r, err := t.investigation(row, &b.close)
				if err := b.append(c, t, bulkItem{TaskUUID: t.id, DLQEntryUUID: &row.id}, r, err); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// resend sends deliveries again, one after the other.
func (b *bulkRun) resend(ctx context.Context) error {
	if b.s.publisher == nil {
		return nil
	}
	all, err := allPages(ctx, b, func(skip int) []eventDeliveryView {
		return b.s.publisher.list(b.filter.deliveries, skip, bulkPage).Deliveries
	})
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(v eventDeliveryView) bool {
		_, seq, _, _ := parseDeliveryID(v.ID)
		return seq > b.asOf || b.filter.ids != nil && !b.filter.ids[v.TaskUUID] || b.filter.chosen != nil && !b.filter.chosen[v.ID]
	})
	return inBatches(ctx, b, all, func(batch []eventDeliveryView) error {
		for _, v := range batch {
			item := bulkItem{TaskUUID: v.TaskUUID, Delivery: v.ID}
			if b.dryRun {
				b.count(item, nil)
				continue
			}
			if b.valid() == 0 { // the subscribers may take long
				return errBulkExpired
			}
			sent, err := b.s.publisher.resend(ctx, v.ID)
			if err == nil && sent.Problem != nil {
				err = failf(unavailable, "%s", *sent.Problem)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			b.count(item, err)
		}
		return nil
	})
}
