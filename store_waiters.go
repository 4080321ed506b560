package main

// The requests that wait for a task to enter a state.

import (
	"cmp"
	"sync"
)

// releaseWaiters ends every wait and the event streams, because the service ends. Later
// waits end at once, for the reason that was given first.
func (s *store) releaseWaiters(why waitEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters.closed = cmp.Or(s.waiters.closed, why)
	s.events.close()
	s.waiters.releaseAll(why)
}

// Waiting for a task: requests that are answered when it comes into a state.

// waitEnd is why a wait ended.
type waitEnd string

const (
	waitReached  waitEnd = ""         // the task entered the state
	waitTimedOut waitEnd = "timeout"  // the limit passed first
	waitEnded    waitEnd = "ended"    // the task is over and can never enter it
	waitExpired  waitEnd = "expired"  // the caller's credential expired first; the server says so
	waitShutdown waitEnd = "shutdown" // the service ends
	waitReset    waitEnd = "reset"    // the service was reset
)

// waiters are the requests that wait, by task.
type waiters struct {
	mu     *sync.Mutex // the store's; it guards what follows
	tasks  *slotTable
	byTask map[uuid]*awaited
	count  int     // number of waiters
	closed waitEnd // why nobody may wait any more; "" while waiting is allowed
}

// awaited is one task and its waiters.
type awaited struct {
	wants  stateSet // the states that any of them waits for, and the final states
	passed stateSet // states that the task entered since the waiters were last notified
	all    []*waiter
}

// waiter is one wait. Its end may be read once done is closed.
type waiter struct {
	task  uuid
	wants stateSet
	place int // in awaited.all
	done  chan struct{}
	end   waitEnd
	found keptTask // the task at that moment; empty if it must be looked up
}

// join adds a waiter for a task that is in a state.
func (w *waiters) join(id uuid, wants stateSet, state taskState) *waiter {
	n := &waiter{task: id, wants: wants, done: make(chan struct{})}
	if w.closed != "" {
		n.finish(w.closed, keptTask{})
		return n
	}
	a := w.byTask[id]
	if a == nil {
		a = &awaited{wants: finalStates}
		w.byTask[id] = a
	}
	n.place = len(a.all)
	a.all = append(a.all, n)
	a.wants |= wants
	a.passed |= wants & setOf(state) // the task may be in the state since its creation just now
	w.count++
	return n
}

// moved receives every transition. It costs next to nothing while nobody waits.
func (w *waiters) moved(id uuid, to taskState) {
	if a := w.byTask[id]; a != nil {
		a.passed |= setOf(to)
	}
}

// hasNews reports whether notify would end a wait.
func (w *waiters) hasNews(id uuid) bool {
	a := w.byTask[id]
	if a == nil {
		return false
	}
	if a.passed&a.wants == 0 {
		a.passed = 0
		return false
	}
	return true
}

// notify ends the waits for states that the task entered. All of them share the
// slot: the task as it is now.
func (w *waiters) notify(id uuid, now keptTask) {
	a := w.byTask[id]
	all, passed := a.all, a.passed
	// wants is collected again, without the states of waits that were withdrawn.
	a.all, a.wants, a.passed = all[:0], finalStates, 0
	for _, n := range all {
		switch {
		case n.wants&passed != 0:
			n.finish(waitReached, now)
		case passed&finalStates != 0:
			n.finish(waitEnded, now)
		default:
			n.place = len(a.all)
			a.all = append(a.all, n)
			a.wants |= n.wants
		}
	}
	w.count -= len(all) - len(a.all)
	clear(all[len(a.all):])
	if len(a.all) == 0 {
		delete(w.byTask, id)
	}
}

// finish ends the wait.
func (n *waiter) finish(end waitEnd, found keptTask) {
	n.end, n.found = end, found
	close(n.done)
}

// finished reports whether the wait has ended.
func (n *waiter) finished() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// withdraw ends one wait for another reason, unless it has ended. awaited.wants
// keeps its states: that only makes a few extra looks.
func (w *waiters) withdraw(n *waiter, why waitEnd, found keptTask) {
	if n.finished() {
		return
	}
	a := w.byTask[n.task]
	last := len(a.all) - 1
	a.all[n.place] = a.all[last]
	a.all[n.place].place = n.place
	a.all[last] = nil
	if a.all = a.all[:last]; last == 0 {
		delete(w.byTask, n.task)
	}
	w.count--
	n.finish(why, found)
}

// dropTask ends the waits for a task that is dropped, with the task as it was.
func (w *waiters) dropTask(id uuid, was keptTask) {
	a := w.byTask[id]
	if a == nil {
		return
	}
	for _, n := range a.all {
		n.finish(waitEnded, was)
	}
	w.count -= len(a.all)
	delete(w.byTask, id)
}

// releaseAll ends every wait. The tasks are looked up afterwards, if they still
// exist.
func (w *waiters) releaseAll(why waitEnd) {
	for _, a := range w.byTask {
		for _, n := range a.all {
			n.finish(why, keptTask{})
		}
	}
	clear(w.byTask)
	w.count = 0
}

// await begins a wait for a task to enter one of the states. It is over at once
// if the task is in one or can never be.
func (w *waiters) await(id uuid, wants stateSet) (*waiter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sl, ok := w.tasks.find(id)
	if !ok {
		return nil, taskNotFound(id)
	}
	state := sl.state
	end, over := waitReached, wants.has(state)
	if !over && state.final() {
		end, over = waitEnded, true
	}
	if over {
		n := &waiter{task: id, wants: wants, done: make(chan struct{})}
		n.finish(end, w.tasks.whole(sl))
		return n, nil
	}
	return w.join(id, wants, state), nil
}

// stop ends a wait at its limit, with the task as it is, unless it has
// ended.
func (w *waiters) stop(n *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found keptTask
	if sl, ok := w.tasks.find(n.task); ok && !n.finished() {
		found = w.tasks.whole(sl)
	}
	w.withdraw(n, waitTimedOut, found)
}

// notifyTask tells the waiters of a task which states it entered.
func (w *waiters) notifyTask(t *task) {
	if !w.hasNews(t.id) {
		return
	}
	now := w.tasks.whole(w.tasks.slotOf(t))
	if now.live == nil && len(t.steps)*stepMemory <= smallCopy {
		now.live = t.clone() // in less time than they would need to decode its line
	}
	w.notify(t.id, now)
}
