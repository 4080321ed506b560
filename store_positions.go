package main

// The table of tasks: a position for each, in the order of creation. It finds a task by its id, and
// packing closes the gaps that dropped tasks leave.

// slot is the place of one task: live until it is over, then its line. It has
// neither after the task was dropped.
type slot struct {
	live     *task
	line     shortLine
	in       *postings // its entry in the index
	finished instant   // when the task finished, for retention; 0 before
}

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

// vacant reports whether the slot has no task.
func (sl *slot) vacant() bool { return sl.live == nil && sl.line == nil }

// holdPositions keeps every task at its position until the function returned is
// called, for a walk that releases the lock in between.
func (s *store) holdPositions() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packing.walks++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.packing.walks--
	}
}
