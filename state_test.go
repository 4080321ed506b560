package main

import (
	"os"
	"strings"
	"testing"
)

// readStates reads testdata/states.txt: "task from event" to the state it leads to.
func readStates(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("testdata/states.txt")
	if err != nil {
		t.Fatal(err)
	}
	moves := map[string]string{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			continue
		}
		if len(f) != 4 {
			t.Fatalf("states.txt: %q has %d words; want 4", line, len(f))
		}
		for from := range strings.SplitSeq(f[1], ",") {
			moves[f[0]+" "+from+" "+f[2]] = f[3]
		}
	}
	return moves
}

func TestStateTables(t *testing.T) {
	want := readStates(t)
	seen := 0
	compare := func(pair, got string, ok bool) {
		if ok {
			seen++
		}
		if got != want[pair] {
			t.Errorf("%s leads to %q; want %q", pair, got, want[pair])
		}
	}
	for s := range taskStates {
		for e := range taskEvents {
			to, ok := s.next(e)
			got := ""
			if ok {
				got = to.String()
			}
			compare("task "+s.String()+" "+e.String(), got, ok)
		}
	}
	for s := range stepStates {
		for e := range stepEvents {
			to, ok := s.next(e)
			got := ""
			if ok {
				got = to.String()
			}
			compare("step "+s.String()+" "+e.String(), got, ok)
		}
	}
	if seen != len(want) {
		t.Errorf("the tables have %d moves; states.txt has %d", seen, len(want))
	}
}

func TestStatesOfNoReturn(t *testing.T) {
	for s := range taskStates {
		moves := 0
		for e := range taskEvents {
			if _, ok := s.next(e); ok {
				moves++
			}
		}
		if s.final() != (moves == 0) {
			t.Errorf("%s: final is %t with %d moves", s, s.final(), moves)
		}
	}
	if taskError.final() || !taskError.ended() {
		t.Errorf("error: final %t, ended %t; want false, true", taskError.final(), taskError.ended())
	}
}
