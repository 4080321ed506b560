package main

// The figures that are kept as records are applied: transitions, attempts and
// how long they took. /metrics shows them; they begin at zero with the process.

import "time"

// counters is guarded by the store's mutex: whoever applies records counts.
type counters struct {
	taskMoves [taskStates]uint64 // transitions into each state
	stepMoves [stepStates]uint64
	attempts  [2]uint64 // attempts that ended: failed, succeeded
	durations histogram // of attempts run by handlers, in seconds
	late      uint64    // results that came too late to count
}

func (c *counters) taskMoved(_, to taskState) { c.taskMoves[to]++ }

func (c *counters) stepMoved(from, to stepState) {
	c.stepMoves[to]++
	if from != stepInProgress {
		return
	}
	switch to {
	case stepEnqueuedForOrchestration:
		c.attempts[1]++
	case stepEnqueuedAsError:
		c.attempts[0]++
	}
}

// handlerDone counts an attempt that a handler of ours has ended.
func (c *counters) handlerDone(e *ending) { c.durations.observe(e.took) }

// histogram counts durations in fixed buckets.
type histogram struct {
	counts [len(histogramBounds) + 1]uint64 // the last for what is longer
	sum    time.Duration
}

var histogramBounds = [...]time.Duration{
	time.Millisecond / 2, time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 500 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, 5 * time.Minute,
}

func (h *histogram) observe(d time.Duration) {
	h.sum += d
	for i, bound := range histogramBounds {
		if d <= bound {
			h.counts[i]++
			return
		}
	}
	h.counts[len(histogramBounds)]++
}
