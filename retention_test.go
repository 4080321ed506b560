package main

import (
	"maps"
	"slices"
	"testing"
)

// checkRetention holds what the store knows of finished tasks, and of where they
// are, against the tasks. The store's lock is held.
func checkRetention(t testing.TB, s *store) {
	t.Helper()
	holes, finished := 0, 0
	ids, keys := map[uuid]uint32{}, map[identityKey]uuid{}
	for pos := range s.slots {
		sl := &s.slots[pos]
		if sl.vacant() {
			holes++
			continue
		}
		v, err := s.viewAt(uint32(pos))
		if err != nil {
			t.Error(err)
			continue
		}
		ids[v.id] = uint32(pos)
		if v.by.identity != (identityKey{}) {
			keys[v.by.identity] = v.id
		}
		if at := v.finished(); at != 0 {
			finished++
			if sl.finished != at {
				t.Errorf("task %s finished at %d; the store has %d", v.id, at, sl.finished)
			}
		}
		if sl.in.key.tpl != v.tpl || !s.index.all.has(uint32(pos)) {
			t.Errorf("task %s is indexed under %+v", v.id, sl.in.key)
		}
	}
	if !maps.Equal(ids, s.byID) || !maps.Equal(keys, s.identities) {
		t.Errorf("the store finds %v by id and %v by identity; want %v and %v", s.byID, s.identities, ids, keys)
	}
	if s.packing.holes != holes || s.retain.finished != finished || s.index.all.count() != len(ids) {
		t.Errorf("the store counts %d holes, %d finished tasks, %d in all; want %d, %d, %d",
			s.packing.holes, s.retain.finished, s.index.all.count(), holes, finished, len(ids))
	}
	if l := s.retain.limits; l.count > 0 && s.retain.held == 0 && finished > l.count {
		t.Errorf("%d finished tasks are kept; want at most %d", finished, l.count)
	}
}

// viewAt is the task at a position; the lock is held.
func (s *store) viewAt(pos uint32) (*task, error) {
	if live := s.slots[pos].live; live != nil {
		return live, nil
	}
	return s.thaw(s.slots[pos].line)
}

// retaining is a configuration that keeps n finished tasks.
func retaining(n int) func(c *Config) {
	return func(c *Config) { c.Store.RetainFinishedCount = n }
}

// kept is the ids of the tasks of a store, in the order of their creation.
func kept(s *service) (ids []uuid) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	for pos := range s.store.slots {
		if !s.store.slots[pos].vacant() {
			ids = append(ids, s.store.idLocked(uint32(pos)))
		}
	}
	return ids
}

func wantKept(t *testing.T, s *service, want ...uuid) {
	t.Helper()
	if got := kept(s); !slices.Equal(got, want) {
		t.Errorf("the store keeps %v; want %v", got, want)
	}
}

// TestRetention drops those that finished first, whenever they were created, and
// nothing that is unfinished or under investigation.
func TestRetention(t *testing.T) {
	clock := newVirtualClock(testStart)
	o := serviceTest{dir: t.TempDir(), clock: clock, config: retaining(2), extra: append(storyTemplates, dlqTemplates[1])}
	s := openTestService(t, o)
	old := mustCreate(t, s, "pair") // waits for an actor
	first, second := mustCreate(t, s, "noop"), mustCreate(t, s, "noop")
	wantKept(t, s, old.id, first.id, second.id)
	mustAct(t, s, old, 0, completeAction)
	wantKept(t, s, old.id, second.id)
	failed := mustCreate(t, s, "one")
	mustAct(t, s, failed, 0, failAction)
	if _, err := s.cancelTask(t.Context(), failed.id, ""); err != nil {
		t.Fatal(err)
	}
	third := mustCreate(t, s, "noop")
	wantKept(t, s, old.id, failed.id, third.id)
	for restart := range 2 {
		closeTestService(t, s)
		s = openTestService(t, o)
		if got := kept(s); !slices.Equal(got, []uuid{old.id, failed.id, third.id}) {
			t.Fatalf("after restart %d: got %v", restart, got)
		}
		if err := s.store.snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	entry := s.store.dead.rows[0].id
	if err := s.investigate(t.Context(), entry, &investigation{status: dlqCancelled}); err != nil {
		t.Fatal(err)
	}
	wantKept(t, s, failed.id, third.id)
	last := mustCreate(t, s, "noop")
	wantKept(t, s, failed.id, last.id)
	closeTestService(t, s)
}
