package main

// Creating a task: the payload and the rules for its fields, the template it names, its identity,
// repeated requests, and waiting for a task.

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// creator creates tasks and waits for them.
type creator struct {
	cfg       *Config
	log       *slog.Logger
	ids       *idSource
	store     *store
	engine    *engine
	templates *catalog
	draining  *atomic.Bool
}

// taskRequest is the payload of a creation. Each field has been checked.
type taskRequest struct {
	name, namespace, version string
	creation                               // as the caller gave it; what was not given is zero
	subject                  string        // the authenticated caller, or ""
	misfits                  inputProblems // that only cause warnings
	again                    *againRequest // the task that is to be repeated from a step; else nil
}

// parseTaskRequest reads a payload, an object that passed checkJSON. The error names every invalid field.
func parseTaskRequest(body []byte) (*taskRequest, error) {
	q := &taskRequest{namespace: "default"}
	f := fieldReader{}
	for key, raw := range jsonMembers(body) {
		if jsonKind(raw) != 'n' {
			q.field(&f, key, raw)
		}
	}
	if q.name == "" && !f.complainedOf("name") {
		f.complain("name", "is required")
	}
	return q, f.failure("the task cannot be created")
}

func (q *taskRequest) field(f *fieldReader, key string, raw []byte) {
	switch key {
	case "name":
		q.name = f.name(key, raw)
	case "namespace":
		q.namespace = f.name(key, raw)
	case "version":
		q.version = f.text(key, raw, 1, maxNameLength)
	case "context":
		q.context = f.object(key, raw)
	case "initiator":
		q.initiator = f.text(key, raw, 1, maxNameLength)
	case "source_system":
		q.source = f.text(key, raw, 1, maxNameLength)
	case "reason":
		q.reason = f.text(key, raw, 1, maxReasonLength)
	case "tags":
		q.tags = f.texts(key, raw)
	case "priority":
		q.priority = f.count(key, raw, math.MinInt32, math.MaxInt32)
	case "correlation_id":
		q.correlation = f.id(key, raw)
	case "parent_correlation_id":
		q.parentCorrelation = f.id(key, raw)
	case "idempotency_key":
		q.key = f.text(key, raw, 1, maxNameLength)
	case "requested_at":
		q.requested = f.instant(key, raw)
	case "options":
		q.options = f.object(key, raw)
	}
}

// templateFor returns the template that a payload names.
func (s *creator) templateFor(q *taskRequest) (*template, error) {
	tpl, err := s.templates.find(q.namespace, q.name, q.version)
	if err != nil {
		return nil, err
	}
	if q.key == "" && tpl.strategy == strategyCallerProvided {
		return nil, failf(badRequest, "template %s takes its identity from the caller: idempotency_key is required",
			tpl.fullName())
	}
	return tpl, nil
}

// creation returns the part of the payload that the task keeps.
func (s *creator) creation(ctx context.Context, q *taskRequest, tpl *template) (*creation, error) {
	by := new(q.creation)
	by.template, by.context = tpl.hash, tpl.defaultContext
	by.initiator = q.initiatorOr(defaultInitiator)
	by.source, by.reason = cmp.Or(q.source, defaultSource), cmp.Or(q.reason, defaultReason)
	limit := s.cfg.Tasks.MaxContextBytes
	if q.context != nil && int64(len(q.context)) <= limit { // or it is too large before it is merged
		by.context = mergeObjects(nil, tpl.defaultContext, q.context)
	}
	if size := max(len(by.context), len(q.context)); int64(size) > limit {
		return nil, failf(tooLarge, "the task's context has %d bytes, more than the %d allowed", size, limit)
	}
	by.identity, by.search = identityOf(tpl, q.key, by.context), tpl.searched(by.context)
	if err := s.checkContext(ctx, q, tpl, by.context); err != nil {
		return nil, err
	}
	return by, nil
}

// checkContext checks a context against the template's input schema.
func (s *creator) checkContext(ctx context.Context, q *taskRequest, tpl *template, context []byte) error {
	if tpl.input == nil {
		return nil
	}
	b := newBudget(ctx, s.engine.schemas.memory)
	defer b.end()
	found := s.engine.schemas.misfits(b, tpl.input, context)
	if b.err != nil || len(found) == 0 {
		return b.err
	}
	s.engine.schemas.contexts.Add(1)
	f := fieldReader{}
	for _, m := range found {
		f.complain("/context"+m.at, "%s", m.why(true))
	}
	if s.engine.schemas.rejects() {
		return f.failure("the task cannot be created")
	}
	s.log.Warn("a context does not fit the template's input_schema", "template", tpl.fullName(), "problems", found.wants())
	q.misfits = f.problems
	return nil
}

// initiatorOr returns the initiator: the one in the payload, else the
// authenticated caller, cut to the maximum length, else the standard one.
func (q *taskRequest) initiatorOr(standard string) string {
	subject := q.subject
	if utf8.RuneCountInString(subject) > maxNameLength {
		subject = string([]rune(subject)[:maxNameLength])
	}
	return cmp.Or(q.initiator, cmp.Or(subject, standard))
}

// identityOf returns what makes two tasks the same: the caller's key within namespace and name, or else what the
// template's strategy says. It is zero if the task is always unique.
func identityOf(tpl *template, key string, context []byte) (k identityKey) {
	var parts [][]byte
	switch {
	case key != "":
		parts = [][]byte{[]byte("key"), []byte(tpl.namespace), []byte(tpl.name), []byte(key)}
	case tpl.strategy == strategyStrict:
		parts = [][]byte{[]byte("strict"), []byte(tpl.namespace), []byte(tpl.name), []byte(tpl.version),
			canonicalJSON(nil, context)} // the same for all spellings of one value
	default:
		return k
	}
	return hashOf(parts...)
}

// admit returns an error if the task exists already or the queue is full.
func (s *creator) admit(c *change, by *creation, mayRead bool) error {
	// First, because a duplicate is refused as such even while no new task is accepted.
	if id, ok := c.duplicate(by.identity); ok {
		return duplicateOf(id, mayRead)
	}
	if err := s.store.disk().behind(); err != nil {
		return err
	}
	if err := c.full(); err != nil {
		return err
	}
	if n := s.engine.queues.queued() + s.engine.absent.waiting(); n >= s.engine.queues.most {
		return tryLater("%s to run already", stepsWaiting(n))
	}
	return nil
}

func duplicateOf(id uuid, mayRead bool) error {
	f := failf(conflict, "a task with this identity already exists")
	if mayRead {
		f.existing = id
		f.message += ": " + f.existing.String()
	}
	return f
}

// Submissions: creations whose callers may also wait for the task's end, and may repeat them under an Idempotency-Key.

// submission is a creation as its caller asks for it.
type submission struct {
	taskRequest *taskRequest
	mayRead     bool          // the caller may learn the id of a task that it duplicates
	wants       stateSet      // answer once the task is in one of these; at once if none
	limit       time.Duration // or after this much real time
}

// submitted is the result of a submission.
type submitted struct {
	task     *task
	misfits  inputProblems // what to warn of: places in the context
	replayed bool          // an earlier request with the same Idempotency-Key created it
	end      waitEnd       // how the wait ended
}

// submit (hot path: BenchmarkCreate) creates a task, or finds the one that an earlier request with the same
// Idempotency-Key created, and waits for its end if asked to. The task it returns is durable.
func (s *creator) submit(ctx context.Context, b *submission) (*submitted, error) {
	if s.draining.Load() {
		return nil, failf(unavailable, "the service is shutting down: new tasks are refused")
	}
	earlier, flight, err := s.store.requestKeys().begin(b.taskRequest.request)
	if err != nil {
		return nil, s.store.refuse(ctx, err)
	}
	if !earlier.isZero() {
		return s.replay(ctx, earlier, b)
	}
	defer s.store.requestKeys().end(flight) // from then on, a repetition finds the task by its key
	return s.submitNew(ctx, b)
}

// replay answers a repeated submission.
func (s *creator) replay(ctx context.Context, id uuid, b *submission) (*submitted, error) {
	t, end, err := s.await(ctx, id, cmp.Or(b.wants, anyState), b.limit)
	if kindOf(err) == taskMissing { // it was dropped in between
		return nil, s.store.refuse(ctx, droppedTask(id))
	}
	if err != nil {
		return nil, err
	}
	return &submitted{task: t, replayed: true, end: end}, nil
}

// prepare returns what a new task is made of.
func (s *creator) prepare(ctx context.Context, q *taskRequest) (*template, *creation, error) {
	if q.again != nil {
		tpl, by, err := s.repeat(ctx, q)
		if err != nil {
			err = s.store.refuse(ctx, err)
		}
		return tpl, by, err
	}
	tpl, err := s.templateFor(q)
	if err != nil {
		return nil, nil, err
	}
	by, err := s.creation(ctx, q, tpl)
	return tpl, by, err
}

// submitNew creates the task and runs its first steps.
func (s *creator) submitNew(ctx context.Context, b *submission) (*submitted, error) {
	tpl, by, err := s.prepare(ctx, b.taskRequest)
	if err != nil {
		return nil, err
	}
	var t *task
	var n *waiter
	// A new template or many copies take more than the room that every change has.
	s.store.disk().makeRoom(s.store.taskTemplates().extraOf(by, tpl))
	seq, err := s.engine.change(ctx, func(c *change) (err error) {
		if err := s.admit(c, by, b.mayRead); err != nil {
			return err
		}
		id := s.ids.block(tpl.ids(), uuid{}, tpl.fullName()) // a refused creation leaves no gap
		by.origin.number(s.ids, id, tpl)
		t, err = c.create(&record{kind: recCreated, task: id, created: by}, tpl)
		if err == nil && b.wants != 0 {
			n = c.await(t, b.wants) // within the change, so that it misses no state
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.engine.pump(inlineBudget)
	done, err := s.answerNew(ctx, t, seq, n, b.limit)
	if err == nil {
		done.misfits = b.taskRequest.misfits
	}
	return done, err
}

// answerNew returns the new task once it is durable and, if n is not nil, once it has ended or the wait has.
func (s *creator) answerNew(
	ctx context.Context, t *task, seq uint64, n *waiter, limit time.Duration,
) (*submitted, error) {
	done, err := &submitted{}, error(nil)
	if n == nil {
		done.task, err = s.store.viewAfter(ctx, t, seq)
	} else if err = s.store.wait(ctx, seq); err != nil {
		s.store.waiting().stop(n)
	} else {
		done.task, done.end, err = s.waitOut(ctx, n, limit)
	}
	if err != nil {
		return nil, err
	}
	return done, nil
}

// Waiting: requests that are answered when a task reaches a state. A waiter is an entry in a map and a channel: nothing
// polls, and no goroutine is added to the request's.

// await returns the task once it is in one of the states, as it was just after it
// reached it, or as it is when the wait ends without that. The task is durable.
func (s *creator) await(
	ctx context.Context, id uuid, wants stateSet, limit time.Duration,
) (*task, waitEnd, error) {
	n, err := s.store.waiting().await(id, wants)
	if err != nil {
		return nil, "", s.store.refuse(ctx, err)
	}
	return s.waitOut(ctx, n, limit)
}

// waitOut waits until the waiter is done, for at most limit of real time.
func (s *creator) waitOut(ctx context.Context, n *waiter, limit time.Duration) (*task, waitEnd, error) {
	err := closedWithin(ctx, n.done, limit)
	if err != nil {
		s.store.waiting().stop(n) // it may be done by now
	}
	if ctx.Err() != nil {
		return nil, "", ctx.Err()
	}
	t, err := s.waitedFor(n)
	if err != nil {
		return nil, "", err
	}
	if err := s.store.wait(ctx, t.lastSeq); err != nil {
		return nil, "", err
	}
	if n.wants.has(t.state) {
		return t, waitReached, nil // even if the waiter was released just before
	}
	return t, n.end, nil
}

// waitedFor returns the task as the waiter found it.
func (s *creator) waitedFor(n *waiter) (*task, error) {
	if n.found.live == nil && n.found.ended == nil {
		return s.store.view(n.task)
	}
	return n.found.task()
}

// Repeating a task from a step on: a new task with the results of what went before.

// againRequest says which task is repeated from which step on.
type againRequest struct {
	task   uuid
	from   string
	latest bool   // by the newest version of the template; else by that of the task
	store  *store // has the task; nil for the service's own
	by     holder // of the memory for the task
}

// parseAgain reads the body of a request into again, an object that passed checkJSON. The error names
// every invalid member.
func parseAgain(body []byte, again *againRequest) (*taskRequest, error) {
	q, f := &taskRequest{again: again}, fieldReader{}
	for key, raw := range jsonMembers(body) {
		switch {
		case jsonKind(raw) == 'n':
		case key == "from":
			q.again.from = f.text(key, raw, 1, maxNameLength)
		case key == "latest":
			q.again.latest = f.flag(key, raw)
		case key == "context", key == "reason":
			q.field(&f, key, raw)
		default:
			f.complain(key, "is not known: want from, context, latest or reason")
		}
	}
	if q.again.from == "" && !f.complainedOf("from") {
		f.complain("from", "is required: the name of a step")
	}
	return q, f.failure("the task cannot be repeated")
}

// repeat returns what a task is made of that repeats another. It has no identity, or the two would be the same.
func (s *creator) repeat(ctx context.Context, q *taskRequest) (*template, *creation, error) {
	x, err := q.again.plan(s)
	if err != nil {
		return nil, nil, err
	}
	q.inherit(x.old)
	by, err := s.creation(ctx, q, x.draft.tpl)
	if err != nil {
		return nil, nil, err
	}
	by.identity, by.origin = identityKey{}, x.origin
	return x.draft.tpl, by, nil
}

// plan finds out what is copied.
func (q *againRequest) plan(s *creator) (*repetition, error) {
	done := &finishOrder{}
	old, err := cmp.Or(q.store, s.store).viewObserved(q.task, done, times{q.by, 2}) // with the copies
	if err != nil {
		return nil, err
	}
	tpl := old.tpl
	if q.latest {
		if tpl, err = s.templates.find(tpl.namespace, tpl.name, ""); err != nil {
			return nil, err
		}
	}
	return old.repeat(q.from, tpl, done.steps)
}

// inherit fills in what the request leaves to the task that is repeated.
func (q *taskRequest) inherit(old *task) {
	by := old.by
	if q.context == nil {
		q.context = by.context
	}
	q.reason = cmp.Or(q.reason, fmt.Sprintf("Again from step %s of task %s", q.again.from, old.id))
	q.source, q.tags, q.priority, q.options = by.source, by.tags, by.priority, by.options
	q.correlation, q.parentCorrelation = old.correlation(), by.parentCorrelation
}
