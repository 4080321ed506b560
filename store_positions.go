package main

// The table of tasks: a position for each, in the order of creation. It finds a task by its id, and
// packing closes the gaps that dropped tasks leave. Walks go over all tasks in batches.

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
)

// slotTable holds every task by position, in the order of creation, and finds it. The store's mutex guards it.
type slotTable struct {
	templates *taskTemplates
	log       *slog.Logger
	resize    func(by int64) // notes that the tasks take so much more memory

	slots      []slot
	byID       map[uuid]uint32      // task id to position
	identities map[identityKey]uuid // tasks by what deduplicates them
	byStep     map[uuid]uuid        // tasks by the ids of steps that their creations name
	index      *taskIndex           // positions by state, template, …
	packing    packing              // closes gaps among the positions
	decoded    decodedLines         // tasks that ended last
	lastID     uuid                 // the greatest id that a task ever took

	room  []byte    // for the line of a task that ends
	order wordOrder // of the words in such lines
}

// slot is the place of one task: live until it is over, then its line. It has
// neither after the task was dropped.
type slot struct {
	id       uuid
	live     *task
	line     shortLine
	in       *postings // its entry in the index
	finished instant   // when the task finished, for retention; 0 before
}

// insert gives a task that was created at an instant a position, and indexes it as pending.
func (x *slotTable) insert(id uuid, sl slot, tpl *template, by *creation, at instant) uint32 {
	pos := uint32(len(x.slots))
	sl.id = id
	x.slots = append(x.slots, sl)
	x.byID[id] = pos
	if by.identity != (identityKey{}) {
		x.identities[by.identity] = id
	}
	before := x.index.memory()
	x.slots[pos].in = x.index.insert(pos, tpl, by, at)
	x.resize(x.index.memory() - before)
	x.noteID(id.plus(tpl.ids() - 1)) // declared steps and the correlation have the ids that follow
	for _, step := range by.steps {
		if !step.isZero() {
			x.noteID(step)
			x.byStep[step] = id
		}
	}
	return pos
}

// find returns the position of the task with an id.
func (x *slotTable) find(id uuid) (pos uint32, ok bool) {
	pos, ok = x.byID[id]
	return pos, ok
}

// noteID keeps the greatest id. A task that gets new steps takes more ids
// later, so the newest task need not have it.
func (x *slotTable) noteID(id uuid) {
	if bytes.Compare(id[:], x.lastID[:]) > 0 {
		x.lastID = id
	}
}

// taskAt returns the task at a position to be changed; it decodes one that is over. The table keeps the line
// until the task is reindexed.
func (x *slotTable) taskAt(pos uint32) (*task, error) {
	if live := x.slots[pos].live; live != nil {
		return live, nil
	}
	t, err := x.templates.readTask(x.slots[pos].line.text())
	if err != nil {
		return nil, err
	}
	t.pos, t.indexed = pos, t.state
	return t, nil
}

// idOf returns the id of the task at a position.
func (x *slotTable) idOf(pos uint32) uuid { return x.slots[pos].id }

// Packing: dropped tasks leave gaps among the positions. From time to time the
// tasks after them move down, a few with each drop, so that memory depends on
// what is kept, not on everything that was ever stored. The order of positions
// is the order of creation at every moment.

const (
	packFloor   = 4096 // gaps that are not worth a pass: about 128 KiB
	packPerDrop = 4    // tasks that move with each drop; each drop comes with one new task, so a pass ends
	packLook    = 64   // gaps that cost as much to pass as one task to move
)

// packing is one pass over the positions, or none; the store's mutex guards it.
type packing struct {
	floor    int    // gaps that are not worth a pass
	holes    int    // positions without a task
	walks    int    // running walks by position; nothing moves meanwhile
	on       bool   // a pass is running
	from, to uint32 // the next position to look at, and where its task moves
}

// pack moves up to n tasks, if there are more than twice as many gaps as tasks,
// or a pass is running.
func (x *slotTable) pack(n int) {
	p := &x.packing
	if p.walks > 0 {
		return
	}
	if !p.on {
		if p.holes <= p.floor+2*len(x.byID) {
			return
		}
		p.on, p.from, p.to = true, 0, 0
	}
	for work := 0; work < n*packLook; work++ {
		switch {
		case int(p.from) == len(x.slots):
			x.endPacking()
			return
		case x.slots[p.from].vacant():
		case p.from == p.to:
			p.to++
		default:
			x.relocate(p.from, p.to)
			p.to++
			work += packLook - 1
		}
		p.from++
	}
}

// endPacking gives up the positions above the highest task.
func (x *slotTable) endPacking() {
	p := &x.packing
	p.holes -= len(x.slots) - int(p.to)
	p.on = false
	x.slots = x.slots[:p.to]
	if cap(x.slots) > 4*len(x.slots)+p.floor {
		x.slots = slices.Clone(x.slots)
	}
	x.index.trim()
}

// relocate moves a task to a lower position, with no task between the two.
func (x *slotTable) relocate(from, to uint32) {
	sl := x.slots[from]
	x.slots[to], x.slots[from] = sl, slot{}
	if sl.live != nil {
		sl.live.pos = to
	}
	x.byID[x.idOf(to)] = to
	x.index.failures.relocate(from, to, x.stepsThatMayFail(from, sl))
	x.index.relocate(from, to, sl.in, x.labelsOf(from, sl))
}

// vacant reports whether the slot has no task.
func (sl *slot) vacant() bool { return sl.live == nil && sl.line == nil }

// holdPositions keeps every task at its position until the function returned is
// called, for a walk that releases the lock in between.
func (s *store) holdPositions() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks.packing.walks++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tasks.packing.walks--
	}
}

// Walks over all tasks in batches, between which the lock is free: the search for stale tasks, and the
// tasks with steps in error.

// watchedStates are the states in which a task can become stale.
var watchedStates = setOf(taskStepsInProcess, taskWaitingForDependencies, taskWaitingForRetry, taskBlockedByFailures)

// stalenessBatch is how many tasks a search looks at under the lock at a time.
// A task counts once more for every 64 of its steps.
const stalenessBatch = 256

// eachWatched calls f for one batch of the tasks in watched states, in
// the order of creation, from a position on; f may change its task. It returns the position to continue
// from, and whether there may be more.
func (x *slotTable) eachWatched(from uint32, f func(t *task) error) (next uint32, more bool, err error) {
	// A change by f may drop other tasks. Closing their gaps would move tasks under this walk.
	x.packing.walks++
	defer func() { x.packing.walks-- }()
	watched := x.index.in(watchedStates)
	for work := 0; work < stalenessBatch; {
		pos, ok := watched.next(from)
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
// returns the lines of the ended ones, and the position to continue from.
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
