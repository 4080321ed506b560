package main

import (
	"bytes"
	"testing"
	"time"
)

// TestDerivedIDs checks that derived ids increase, have version 7, and depend on seed,
// time, order, parent and name alone.
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
		again.random() // for a request
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

// TestDerivedIDsDiffer checks that derived ids depend on each of these.
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

// TestDerivedIDsGoOn checks that derived ids follow ids of any other source.
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

func TestIDsIncrease(t *testing.T) {
	c := newVirtualClock(testStart)
	s := newIDSource(c, new([32]byte))
	last := uuid{}
	for i := range 10_000 {
		if i%100 == 99 {
			c.advance(time.Millisecond)
		}
		n := 1 + i%5
		first := s.reserve(n)
		for j := range n {
			id := first.plus(j)
			if bytes.Compare(id[:], last[:]) <= 0 {
				t.Fatalf("%s came after %s", id, last)
			}
			if id[6]>>4 != 7 || id[8]>>6 != 2 {
				t.Fatalf("%s is no version 7 id", id)
			}
			last = id
		}
	}
	late := newIDSource(newVirtualClock(testStart-1_000_000), new([32]byte))
	late.observe(last)
	if id := late.reserve(1); bytes.Compare(id[:], last[:]) <= 0 {
		t.Errorf("with the clock set back %s came after %s", id, last)
	}
}

func TestIDCounter(t *testing.T) {
	all, _ := parseUUID("0198c0de-0000-7fff-bfff-ffffffffffff")
	for _, tc := range []struct {
		from string
		n    int
		want string
	}{
		{"0198c0de-0000-7000-8000-000000000000", 1, "0198c0de-0000-7000-8000-000000000001"},
		{"0198c0de-0000-7000-bfff-ffffffffffff", 1, "0198c0de-0000-7001-8000-000000000000"},
		{"0198c0de-0000-7abc-bfff-fffffffffff0", 20, "0198c0de-0000-7abd-8000-000000000004"},
	} {
		from, _ := parseUUID(tc.from)
		got := from.plus(tc.n)
		if got.String() != tc.want {
			t.Errorf("%s plus %d: got %s; want %s", tc.from, tc.n, got, tc.want)
		}
		if n, ok := got.minus(from); !ok || n != tc.n {
			t.Errorf("%s minus %s: got %d, %t; want %d", got, from, n, ok, tc.n)
		}
		if _, ok := from.minus(got); ok {
			t.Errorf("%s minus %s was given a distance", from, got)
		}
		if _, ok := all.minus(from); ok {
			t.Errorf("%s minus %s was given a distance", all, from)
		}
	}
}

func TestParseUUID(t *testing.T) {
	for _, tc := range []struct {
		text string
		ok   bool
	}{
		{"0198c0de-0000-7000-8000-00000000000a", true},
		{"0198C0DE-0000-7000-8000-00000000000A", true},
		{"{0198c0de-0000-7000-8000-00000000000a}", false},
		{"0198c0de00007000800000000000000a", true},
		{"0198C0DE00007000800000000000000A", true},
		{"0198c0de-000070008000-00000000000a", false},
		{"0198c0de00007000800000000000000g", false},
		{"0198c0de0000-7000-8000-00000000a", false},
		{"0198c0de000070008000000000000000000a", false},
		{"{0198c0de0000700080000000000000a}", false},
		{"0198c0de-0000-7000-8000-00000000000g", false},
		{"0198c0de-0000-7000-8000-0000000000-a", false},
		{"", false},
	} {
		id, ok := parseUUID(tc.text)
		if ok != tc.ok {
			t.Errorf("%q: got %t; want %t", tc.text, ok, tc.ok)
		}
		if ok && id.String() != "0198c0de-0000-7000-8000-00000000000a" {
			t.Errorf("%q became %s", tc.text, id)
		}
	}
}
