package main

import (
	"bytes"
	"testing"
	"time"
)

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
		{"0198c0de000070008000000000000000000a", false},
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
