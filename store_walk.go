package main

// Walks over all tasks in batches, between which the lock is free: the search for stale tasks,
// and the tasks with steps in error.

import "fmt"

// watchedStates are the states in which a task can become stale.
var watchedStates = [...]taskState{
	taskStepsInProcess, taskWaitingForDependencies, taskWaitingForRetry, taskBlockedByFailures,
}

// stalenessBatch is how many tasks a search looks at under the lock at a time.
// A task counts once more for every 64 of its steps.
const stalenessBatch = 256

// eachWatched calls f for one batch of the tasks in watched states, in
// the order of creation, from a position on. It returns the position to go on
// from, and whether there may be more.
func (x *slotTable) eachWatched(from uint32, f func(t *task) error) (next uint32, more bool, err error) {
	x.packing.walks++
	defer func() { x.packing.walks-- }()
	w := watchFrom(x.index, from)
	for work := 0; work < stalenessBatch; {
		pos, ok := w.take()
		if !ok {
			return 0, false, nil
		}
		t := x.slots[pos].live
		work += 1 + len(t.steps)/64
		from = pos + 1
		if err := f(t); err != nil {
			return 0, false, err
		}
	}
	return from, true, nil
}

// watchedWalk walks the tasks in watched states by position. Tasks that it has
// passed may change.
type watchedWalk struct {
	sets [len(watchedStates)]*bitset
	next [len(watchedStates)]uint32
	left [len(watchedStates)]bool
}

func watchFrom(x *taskIndex, from uint32) *watchedWalk {
	w := &watchedWalk{}
	for i, state := range watchedStates {
		w.sets[i] = &x.states[state]
		w.next[i], w.left[i] = w.sets[i].next(from)
	}
	return w
}

func (w *watchedWalk) take() (uint32, bool) {
	best := -1
	for i := range w.sets {
		if w.left[i] && (best < 0 || w.next[i] < w.next[best]) {
			best = i
		}
	}
	if best < 0 {
		return 0, false
	}
	pos := w.next[best]
	w.next[best], w.left[best] = w.sets[best].next(pos + 1)
	return pos, true
}

// eachLive calls f for every unfinished task, in the order of creation.
func (x *slotTable) eachLive(f func(t *task)) {
	for i := range x.slots {
		if t := x.slots[i].live; t != nil {
			f(t)
		}
	}
}

// eachUnsettledError calls f with a copy of every task that went to error
// with a step in progress or waiting for a retry.
func (x *slotTable) eachUnsettledError(f func(t *task)) error {
	failed := &x.index.states[taskError]
	for pos, ok := failed.next(0); ok; pos, ok = failed.next(pos + 1) {
		h, err := readTaskHeader(x.slots[pos].line.text())
		if err != nil {
			return err
		}
		if h.counts[stepInProgress]+h.counts[stepWaitingForRetry] == 0 {
			continue
		}
		t, err := x.taskAt(pos)
		if err != nil {
			return err
		}
		f(t)
	}
	return nil
}

// maxStepsLooked is about how many steps a walk looks at under the lock at a time.
const maxStepsLooked = 4096

// eachInError calls f for every task that may have a step in error: for live ones
// under the lock, which it takes for some tasks at a time.
func (s *store) eachInError(f func(t *task)) error {
	from := uint32(0)
	for more := true; more; {
		var lines []shortLine
		s.locked(func() { lines, from, more = s.tasks.inErrorBatch(from, f) })
		for _, line := range lines {
			text := line.text()
			if h, err := readTaskHeader(text); err == nil && h.counts[stepInError] == 0 {
				continue
			}
			t, err := s.templates.readTask(text)
			if err != nil {
				return fmt.Errorf("looking at failed steps: %w", err)
			}
			f(t)
		}
	}
	return nil
}

// inErrorBatch calls f for the live ones of some tasks from a position on. It
// returns the lines of the ended ones, and the position to go on from.
func (x *slotTable) inErrorBatch(from uint32, f func(t *task)) (lines []shortLine, next uint32, more bool) {
	for looked := 0; looked < maxStepsLooked; {
		pos, ok := x.index.in(setOf(taskBlockedByFailures, taskError)).next(from)
		if !ok {
			return lines, from, false
		}
		from = pos + 1
		t := x.slots[pos].live
		if t == nil {
			lines = append(lines, x.slots[pos].line)
			looked++
			continue
		}
		looked += 1 + len(t.steps)
		f(t)
	}
	return lines, from, true
}
