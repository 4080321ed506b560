package main

// The requests that wait for a task to enter a state.

import (
	"cmp"
	"slices"
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
	byTask map[uuid][]*waiter
	count  int     // number of waiters
	closed waitEnd // why nobody may wait any more; "" while waiting is allowed
}

// waiter is one wait. Its end may be read once done is closed.
type waiter struct {
	task   uuid
	wants  stateSet
	passed stateSet // states that the task entered since the wait began
	done   chan struct{}
	end    waitEnd
	found  keptTask // the task at that moment; empty if it must be looked up
}

func (w *waiters) join(id uuid, wants stateSet, state taskState) *waiter {
	// The task may be in the state since its creation just now.
	n := &waiter{task: id, wants: wants, passed: setOf(state), done: make(chan struct{})}
	if w.closed != "" {
		n.finish(w.closed, keptTask{})
		return n
	}
	w.byTask[id] = append(w.byTask[id], n)
	w.count++
	return n
}

// moved receives every transition. It costs next to nothing while nobody waits.
func (w *waiters) moved(id uuid, to taskState) {
	for _, n := range w.byTask[id] {
		n.passed |= setOf(to)
	}
}

// over reports whether the task has entered a wanted state, or can never enter one.
func (n *waiter) over() bool { return n.passed&(n.wants|finalStates) != 0 }

// notify ends the waits that are over, and reports whether there was one. All of them share what they find.
func (w *waiters) notify(id uuid, find func() keptTask) bool {
	if !slices.ContainsFunc(w.byTask[id], (*waiter).over) {
		return false
	}
	found := find()
	w.settle(id, found, func(n *waiter) (waitEnd, bool) {
		return pick(n.passed&n.wants != 0, waitReached, waitEnded), n.over()
	})
	return true
}

// settle ends those waits for a task that are over, for the reason that a function returns.
func (w *waiters) settle(id uuid, found keptTask, end func(n *waiter) (why waitEnd, over bool)) {
	before := len(w.byTask[id])
	left := slices.DeleteFunc(w.byTask[id], func(n *waiter) bool {
		why, over := end(n)
		if over {
			n.finish(why, found)
		}
		return over
	})
	w.count -= before - len(left)
	if w.byTask[id] = left; len(left) == 0 {
		delete(w.byTask, id)
	}
}

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

func (w *waiters) releaseTask(id uuid, why waitEnd, found keptTask) {
	w.settle(id, found, func(*waiter) (waitEnd, bool) { return why, true })
}

// releaseAll ends every wait. The tasks are looked up afterwards, if they still exist.
func (w *waiters) releaseAll(why waitEnd) {
	for id := range w.byTask {
		w.releaseTask(id, why, keptTask{})
	}
}

// await begins a wait for a task to enter one of the states. It is over at once if the task is in one or can never be.
func (w *waiters) await(id uuid, wants stateSet) (*waiter, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sl, ok := w.tasks.find(id)
	if !ok {
		return nil, taskNotFound(id)
	}
	n := &waiter{task: id, wants: wants, passed: setOf(sl.state), done: make(chan struct{})}
	if !n.over() {
		return w.join(id, wants, sl.state), nil
	}
	n.finish(pick(wants.has(sl.state), waitReached, waitEnded), sl.whole())
	return n, nil
}

// stop ends a wait at its limit, with the task as it is, unless it has ended.
func (w *waiters) stop(n *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found keptTask
	if sl, ok := w.tasks.find(n.task); ok && !n.finished() {
		found = sl.whole()
	}
	w.settle(n.task, found, func(one *waiter) (waitEnd, bool) { return waitTimedOut, one == n })
}

// notifyTask tells the waiters of a task which states it entered.
func (w *waiters) notifyTask(t *task) {
	w.notify(t.id, func() keptTask {
		now := w.tasks.slotOf(t).whole()
		if now.ended != nil && len(t.steps)*stepMemory <= smallCopy {
			now = keptTask{live: t.clone()} // in less time than they would need to decode its log
		}
		return now
	})
}
