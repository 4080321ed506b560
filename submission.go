package main

// Submissions: creations with what their callers ask for besides, to have the
// task's end awaited, and to be answered again when they are repeated.

import (
	"context"
	"time"
)

// submission is a creation as its caller asks for it.
type submission struct {
	*taskRequest
	mayRead bool          // the caller may learn the id of a task that it duplicates
	request requestMark   // of its Idempotency-Key; zero without one
	waits   bool          // it is answered at the task's end
	limit   time.Duration // or when this has passed, in real time
}

// submitted is what a submission came to.
type submitted struct {
	task     *task
	replayed bool    // an earlier request with the same Idempotency-Key created it
	end      waitEnd // how the wait ended
}

// submitTask creates a task, or finds the one that an earlier request with the
// same Idempotency-Key created, and waits for its end if that is asked for.
// What it returns is durable.
func (s *service) submitTask(ctx context.Context, b *submission) (*submitted, error) {
	if s.draining.Load() {
		return nil, failf(unavailable, "the service is shutting down: no new task is taken")
	}
	earlier, flight, err := s.store.beginRequest(b.request)
	if err != nil {
		return nil, err
	}
	if !earlier.isZero() {
		return s.replayTask(ctx, earlier, b)
	}
	defer s.store.endRequest(flight)
	return s.submitNew(ctx, b)
}

// replayTask answers a repeated submission.
func (s *service) replayTask(ctx context.Context, id uuid, b *submission) (*submitted, error) {
	wants := terminalStates
	if !b.waits {
		wants = anyState
	}
	t, end, err := s.awaitTask(ctx, id, wants, b.limit)
	if err != nil {
		return nil, err
	}
	return &submitted{t, true, end}, nil
}

// submitNew creates the task and lets its first steps run.
func (s *service) submitNew(ctx context.Context, b *submission) (*submitted, error) {
	tpl, err := s.templateFor(b.taskRequest)
	if err != nil {
		return nil, err
	}
	by, err := s.creation(b.taskRequest, tpl)
	if err != nil {
		return nil, err
	}
	by.request = b.request
	var t *task
	var n *waiter
	seq, err := s.engine.change(ctx, func(c *change) (err error) {
		if err := s.admitLocked(by, b.mayRead); err != nil {
			return err
		}
		id := s.ids.block(tpl.ids(), uuid{}, tpl.fullName()) // a refused creation leaves no gap
		t, err = c.create(&record{kind: recCreated, task: id, created: by}, tpl)
		if err == nil && b.waits {
			n = c.s.waiters.add(id, terminalStates, t.state)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.engine.pump(inlineBudget)
	return s.answerNew(ctx, t, seq, n, b.limit)
}

// answerNew gives the new task once it is durable, and once the waiter, if there
// is one, was told.
func (s *service) answerNew(ctx context.Context, t *task, seq uint64, n *waiter, limit time.Duration) (*submitted, error) {
	err := s.store.journal.wait(ctx, seq)
	done := &submitted{}
	switch {
	case err != nil && n != nil:
		s.store.giveUp(n)
	case err != nil:
	case n != nil:
		done.task, done.end, err = s.waitOut(ctx, n, limit)
	default:
		done.task, err = s.store.viewAfter(t)
	}
	if err != nil {
		return nil, err
	}
	return done, nil
}
