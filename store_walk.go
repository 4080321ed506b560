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

// watchedWalk walks the tasks in watched states by position. Tasks that it has
// passed may change.
type watchedWalk struct {
	sets [len(watchedStates)]*bitset
	next [len(watchedStates)]uint32
	left [len(watchedStates)]bool
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

// maxStepsLooked is about how many steps a walk looks at under the lock at a time.
const maxStepsLooked = 4096

// eachInError calls f for every task that may have a step in error: for live ones
// under the lock, which it takes for some tasks at a time.
func (s *store) eachInError(f func(t *task)) error {
	from := uint32(0)
	for more := true; more; {
		var lines []shortLine
		lines, from, more = s.inErrorBatch(from, f)
		for _, line := range lines {
			text := line.text()
			if h, err := readTaskHeader(text); err == nil && h.counts[stepInError] == 0 {
				continue
			}
			t, err := s.readTaskLine(text)
			if err != nil {
				return fmt.Errorf("looking at failed steps: %w", err)
			}
			f(t)
		}
	}
	return nil
}
