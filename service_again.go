package main

// Repeating a task from a step on: a new task with the results of what went before.

import (
	"cmp"
	"context"
	"fmt"
)

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

// repeat returns what a task is made of that repeats another. It has no identity, or the two would be
// the same.
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
