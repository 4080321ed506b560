package main

// Waiting: requests that are answered when a task comes into a state. A waiter is
// an entry in a map and a channel; nothing polls, and its request's goroutine is
// the only one.

import (
	"context"
	"time"
)

// stateSet is a set of task states, a bit each.
type stateSet uint16

func setOf(states ...taskState) (set stateSet) {
	for _, s := range states {
		set |= 1 << s
	}
	return set
}

func (set stateSet) has(s taskState) bool { return set&(1<<s) != 0 }

// terminalStates are those that a task does not leave without an operator.
var terminalStates = setOf(taskBlockedByFailures, taskComplete, taskError, taskCancelled, taskResolvedManually)

// finalStates are those that nothing leads out of.
var finalStates = setOf(taskComplete, taskCancelled, taskResolvedManually)

// anyState is no wait at all.
const anyState = stateSet(1<<taskStates - 1)

// waitEnd says why a wait was over.
type waitEnd string

const (
	waitReached  waitEnd = ""         // the task came into the state
	waitTimedOut waitEnd = "timeout"  // the limit passed first
	waitEnded    waitEnd = "ended"    // the task is over and can never come into it
	waitShutdown waitEnd = "shutdown" // the service ends
	waitReset    waitEnd = "reset"    // the service was set back to its start
)

// waiters are the requests that wait, by task. All of it is guarded by store.mu.
type waiters struct {
	tasks  map[uuid]*awaited
	count  int     // how many wait
	closed waitEnd // why nobody may wait any more; "" while one may
}

// awaited is one task and those that wait for it.
type awaited struct {
	wants  stateSet // what any of them waits for, and the final states
	passed stateSet // what the task came into since it was last settled
	all    []*waiter
}

// waiter is one wait. What its end was may be read once done is closed.
type waiter struct {
	task  uuid
	wants stateSet
	place int // in awaited.all
	done  chan struct{}
	end   waitEnd
	found slot // the task at that moment; empty when it is to be looked up
}

// add makes a waiter for a task that is in a state.
func (w *waiters) add(id uuid, wants stateSet, state taskState) *waiter {
	n := &waiter{task: id, wants: wants, done: make(chan struct{})}
	if w.closed != "" {
		n.tell(w.closed, slot{})
		return n
	}
	if w.tasks == nil {
		w.tasks = map[uuid]*awaited{}
	}
	a := w.tasks[id]
	if a == nil {
		a = &awaited{wants: finalStates}
		w.tasks[id] = a
	}
	n.place = len(a.all)
	a.all = append(a.all, n)
	a.wants |= wants
	a.passed |= wants & setOf(state) // of a task that is being created
	w.count++
	return n
}

// moved hears of every transition. It costs next to nothing while nobody waits.
func (w *waiters) moved(id uuid, to taskState) {
	if w.count == 0 {
		return
	}
	if a := w.tasks[id]; a != nil {
		a.passed |= setOf(to)
	}
}

// due reports whether settled has somebody to tell.
func (w *waiters) due(id uuid) bool {
	if w.count == 0 {
		return false
	}
	a := w.tasks[id]
	if a == nil {
		return false
	}
	if a.passed&a.wants == 0 {
		a.passed = 0
		return false
	}
	return true
}

// settled tells those who wait for what the task came into. All of them share
// the slot: the task as it is now.
func (w *waiters) settled(id uuid, now slot) {
	a := w.tasks[id]
	all, passed := a.all, a.passed
	a.all, a.wants, a.passed = all[:0], finalStates, 0
	for _, n := range all {
		switch {
		case n.wants&passed != 0:
			n.tell(waitReached, now)
		case passed&finalStates != 0:
			n.tell(waitEnded, now)
		default:
			n.place = len(a.all)
			a.all = append(a.all, n)
			a.wants |= n.wants
		}
	}
	w.count -= len(all) - len(a.all)
	clear(all[len(a.all):])
	if len(a.all) == 0 {
		delete(w.tasks, id)
	}
}

// tell ends the wait.
func (n *waiter) tell(end waitEnd, found slot) {
	n.end, n.found = end, found
	close(n.done)
}

// told reports whether the wait has ended.
func (n *waiter) told() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// withdraw ends the wait for a reason of the waiter's own, unless it has ended.
// What others wait for is left as it was: too many looks do no harm.
func (w *waiters) withdraw(n *waiter, why waitEnd, found slot) {
	if n.told() {
		return
	}
	a := w.tasks[n.task]
	last := len(a.all) - 1
	a.all[n.place] = a.all[last]
	a.all[n.place].place = n.place
	a.all[last] = nil
	if a.all = a.all[:last]; last == 0 {
		delete(w.tasks, n.task)
	}
	w.count--
	n.tell(why, found)
}

// left ends the waits for a task that is dropped, with the task as it was.
func (w *waiters) left(id uuid, was slot) {
	a := w.tasks[id]
	if a == nil {
		return
	}
	for _, n := range a.all {
		n.tell(waitEnded, was)
	}
	w.count -= len(a.all)
	delete(w.tasks, id)
}

// releaseAll ends every wait. The tasks are looked up afterwards, if they are
// still there.
func (w *waiters) releaseAll(why waitEnd) {
	for _, a := range w.tasks {
		for _, n := range a.all {
			n.tell(why, slot{})
		}
	}
	w.tasks, w.count = nil, 0
}

// await begins a wait for a task to come into one of the states. It is over
// already when the task is in one, or can never be.
func (s *store) await(id uuid, wants stateSet) (*waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pos, ok := s.byID[id]
	if !ok {
		return nil, taskNotFound(id)
	}
	state, err := s.stateLocked(pos)
	if err != nil {
		return nil, err
	}
	end, over := waitReached, wants.has(state)
	if !over && state.final() {
		end, over = waitEnded, true
	}
	if over {
		n := &waiter{task: id, wants: wants, done: make(chan struct{})}
		n.tell(end, s.copyLocked(pos))
		return n, nil
	}
	return s.waiters.add(id, wants, state), nil
}

// stateLocked is the state of the task at a position.
func (s *store) stateLocked(pos uint32) (taskState, error) {
	if live := s.slots[pos].live; live != nil {
		return live.state, nil
	}
	h, err := readTaskHeader(s.slots[pos].line)
	return h.state, err
}

// giveUp ends a wait at its limit, with the task as it is, unless it has ended.
func (s *store) giveUp(n *waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found slot
	if pos, ok := s.byID[n.task]; ok && !n.told() {
		found = s.copyLocked(pos)
	}
	s.waiters.withdraw(n, waitTimedOut, found)
}

// tellWaiters tells those who wait for what a settled task came into.
func (s *store) tellWaiters(t *task) {
	if s.waiters.due(t.id) {
		s.waiters.settled(t.id, s.copyLocked(t.pos))
	}
}

// releaseWaiters ends every wait, and refuses later ones when the service ends.
func (s *store) releaseWaiters(why waitEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if why == waitShutdown {
		s.waiters.closed = why
	}
	s.waiters.releaseAll(why)
}

// awaitTask returns the task once it is in one of the states, or as it was just
// after it passed through one; or as it is when the wait ends otherwise. What is
// returned is durable.
func (s *service) awaitTask(ctx context.Context, id uuid, wants stateSet, limit time.Duration) (*task, waitEnd, error) {
	n, err := s.store.await(id, wants)
	if err != nil {
		return nil, "", err
	}
	return s.waitOut(ctx, n, limit)
}

// waitOut waits until the waiter is told, for at most limit of real time.
func (s *service) waitOut(ctx context.Context, n *waiter, limit time.Duration) (*task, waitEnd, error) {
	err := closedWithin(ctx, n.done, limit)
	if err != nil {
		s.store.giveUp(n) // it may have been told meanwhile
	}
	if ctx.Err() != nil {
		return nil, "", ctx.Err()
	}
	t, err := s.waitedFor(n)
	if err != nil {
		return nil, "", err
	}
	if err := s.store.journal.wait(ctx, t.lastSeq); err != nil {
		return nil, "", err
	}
	if n.wants.has(t.state) {
		return t, waitReached, nil // also when it was released just before
	}
	return t, n.end, nil
}

// waitedFor is the task that the waiter was told of.
func (s *service) waitedFor(n *waiter) (*task, error) {
	switch {
	case n.found.live != nil:
		return n.found.live, nil
	case n.found.line != nil:
		return s.store.thaw(n.found.line)
	}
	return s.store.view(n.task)
}
