package main

import (
	"bytes"
	"testing"
	"time"
)

// TestDerivedIDs increase, are of version 7, and depend on nothing but seed,
// time, order, parent and name.
func TestDerivedIDs(t *testing.T) {
	c := newVirtualClock(testStart)
	s, again := newDerivedIDs(c, "s1"), newDerivedIDs(c, "s1")
	parent, _ := parseUUID("0198c0de-0000-7000-8000-000000000000")
	last := uuid{}
	for i := range 10_000 {
		if i%1000 == 999 {
			c.advance(time.Millisecond)
		}
		n := 1 + i%500
		first := s.block(n, parent, "name")
		again.reserve(3) // for requests
		again.secretOf(parent, 1)
		again.floatOf(parent, i)
		if got := again.block(1+i%3, parent, "name"); got != first {
			t.Fatalf("block %d begins with %s; want %s, however many were drawn", i, got, first)
		}
		for _, id := range []uuid{first, first.plus(n - 1)} {
			if bytes.Compare(id[:], last[:]) < 0 || id[6]>>4 != 7 || id[8]>>6 != 2 || id.blockNumber() != uint64(i+1) {
				t.Fatalf("%s came after %s in block %d", id, last, i+1)
			}
			last = id
		}
	}
}

// TestDerivedIDsDiffer by all that they follow from.
func TestDerivedIDsDiffer(t *testing.T) {
	c := newVirtualClock(testStart)
	other := uuid{1}
	seen := map[uuid]bool{}
	for _, id := range []uuid{
		newDerivedIDs(c, "s1").block(1, uuid{}, "n"), newDerivedIDs(c, "s2").block(1, uuid{}, "n"),
		newDerivedIDs(c, "s1").block(1, other, "n"), newDerivedIDs(c, "s1").block(1, uuid{}, "m"),
	} {
		if seen[id] {
			t.Errorf("%s came twice", id)
		}
		seen[id] = true
	}
	s := newDerivedIDs(c, "s1")
	if s.secretOf(other, 1) == s.secretOf(other, 2) || s.secretOf(other, 1) == s.secretOf(uuid{}, 1) ||
		s.floatOf(other, 1) == s.floatOf(other, 2) {
		t.Error("secrets or chances of different things are the same")
	}
}

// TestDerivedIDsGoOn after ids of any source that the store took before.
func TestDerivedIDsGoOn(t *testing.T) {
	for _, before := range []string{
		"019b76da-a800-7000-8000-3f0000000000", "019b76da-a800-7fff-bfff-ffffffffffff", "01ff0000-0000-7fff-bfff-ffffffffffff",
	} {
		s := newDerivedIDs(newVirtualClock(testStart), "s1")
		last, _ := parseUUID(before)
		s.observe(last)
		for range 3 {
			id := s.block(10, uuid{}, "n")
			if bytes.Compare(id[:], last[:]) <= 0 || id[6]>>4 != 7 || id[8]>>6 != 2 {
				t.Errorf("after %s came %s", last, id)
			}
			last = id.plus(9)
		}
	}
}
