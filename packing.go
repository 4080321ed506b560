package main

// Packing: dropped tasks leave holes among the positions. Now and then the tasks
// after them slide down, a few with each drop, so that memory goes by what is
// kept and not by what ever was. Their order stays the order of creation at
// every moment in between.

import "slices"

const (
	packFloor   = 4096 // holes that are not worth a pass, and 128 KiB or so
	packPerDrop = 4    // tasks that slide with each drop: a pass ends, as each drop comes with one new task
	packLook    = 64   // holes that cost as much as one task
)

// packing is one pass over the positions, or none; the store's mutex guards it.
type packing struct {
	floor    int    // holes that are not worth a pass
	holes    int    // positions without a task
	walks    int    // walks by position that are under way; nothing slides meanwhile
	on       bool   // a pass is under way
	from, to uint32 // the next position to look at, and the one its task slides to
}

// pack lets up to n tasks slide, when there are more than twice as many holes
// as tasks, or a pass has begun.
func (s *store) pack(n int) {
	p := &s.packing
	if p.walks > 0 {
		return
	}
	if !p.on {
		if p.holes <= p.floor+2*len(s.byID) {
			return
		}
		p.on, p.from, p.to = true, 0, 0
	}
	for work := 0; work < n*packLook; work++ {
		switch {
		case int(p.from) == len(s.slots):
			s.endPacking()
			return
		case s.slots[p.from].vacant():
		case p.from == p.to:
			p.to++
		default:
			s.relocate(p.from, p.to)
			p.to++
			work += packLook - 1
		}
		p.from++
	}
}

// endPacking gives up the positions above the highest task.
func (s *store) endPacking() {
	p := &s.packing
	p.holes -= len(s.slots) - int(p.to)
	p.on = false
	s.slots = s.slots[:p.to]
	if cap(s.slots) > 4*len(s.slots)+p.floor {
		s.slots = slices.Clone(s.slots)
	}
	s.index.trim()
}

// relocate gives a task a lower position, with nothing between the two.
func (s *store) relocate(from, to uint32) {
	sl := s.slots[from]
	s.slots[to], s.slots[from] = sl, slot{}
	if sl.live != nil {
		sl.live.pos = to
	}
	s.byID[s.idLocked(to)] = to
	s.index.relocate(from, to, sl.in)
}

// vacant reports whether no task is there.
func (sl *slot) vacant() bool { return sl.live == nil && sl.line == nil }

// stay keeps every task at its position until the function returned is called,
// for a walk that lets go of the lock in between.
func (s *store) stay() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packing.walks++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.packing.walks--
	}
}
