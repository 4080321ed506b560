package main

import (
	"fmt"
	"testing"
)

// TestPackingBoundsMemory creates many tasks and keeps few: everything that grows with
// positions stays small, even with an old task in front.
func TestPackingBoundsMemory(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	s := newTestService(t, serviceTest{extra: append(storyTemplates, dlqTemplates[1]), config: retaining(50)})
	mustCreate(t, s, "pair")
	for i := range 40_000 {
		mustCreate(t, s, "noop", fmt.Sprintf(`"initiator":"user %d"`, i))
	}
	st := s.store
	const room = 8 * packFloor
	if len(st.tasks.slots) > room || cap(st.tasks.slots) > room || cap(st.retain.queue) > room {
		t.Errorf("got %d positions, room for %d, and for %d in the queue; want at most %d",
			len(st.tasks.slots), cap(st.tasks.slots), cap(st.retain.queue), room)
	}
	if n := len(st.tasks.index.all.blocks); n > room/bitBlockBits {
		t.Errorf("got %d blocks of positions; want at most %d", n, room/bitBlockBits)
	}
	if len(st.tasks.index.postings) > 60 || len(st.tasks.index.byInitiator) > 60 || len(st.tasks.byID) > 60 {
		t.Errorf("got %d and %d entries in indexes of %d tasks",
			len(st.tasks.index.postings), len(st.tasks.index.byInitiator), len(st.tasks.byID))
	}
}
