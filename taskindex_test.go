package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestTaskIndex holds pages of every kind of filter against a plain search:
// values that few tasks have, that many have, and that none has.
func TestTaskIndex(t *testing.T) {
	for name, users := range map[string]int{"many combinations": 200, "few combinations": 9} {
		t.Run(name, func(t *testing.T) { testTaskIndex(t, users) })
	}
}

func testTaskIndex(t *testing.T, users int) {
	type entry struct {
		tpl   *template
		by    creation
		state taskState
	}
	r := rand.New(rand.NewPCG(1, 2))
	x := newTaskIndex()
	templates := make([]*template, 15)
	for i := range templates {
		templates[i] = &template{namespace: fmt.Sprint("n", i%3), name: fmt.Sprint("t", i%5), version: "1.0.0"}
	}
	var all []entry
	for i := range 3000 {
		e := entry{
			tpl:   templates[r.IntN(len(templates))],
			by:    creation{initiator: fmt.Sprint("user", r.IntN(users)), source: fmt.Sprint("s", r.IntN(2))},
			state: taskState(r.IntN(int(taskStates))),
		}
		all = append(all, e)
		x.move(uint32(i), taskPending, e.state, x.add(uint32(i), e.tpl, &e.by))
	}
	choose := func(values ...string) string { return values[r.IntN(len(values))] }
	for range 2000 {
		f := taskFilter{
			namespace: choose("", "n0", "n1", "none"), name: choose("", "", "t3"), version: choose("", "1.0.0"),
			initiator: choose("", "", "user7", "user8"), source: choose("", "s1"),
		}
		if r.IntN(2) == 0 {
			f.state = new(taskState(r.IntN(int(taskStates))))
		}
		if r.IntN(3) == 0 {
			f.status = new(briefStatus(r.IntN(int(briefStatuses))))
		}
		var want []uint32
		for i := len(all) - 1; i >= 0; i-- {
			e := &all[i]
			if (f.namespace == "" || f.namespace == e.tpl.namespace) && (f.name == "" || f.name == e.tpl.name) &&
				(f.version == "" || f.version == e.tpl.version) && (f.initiator == "" || f.initiator == e.by.initiator) &&
				(f.source == "" || f.source == e.by.source) && (f.state == nil || *f.state == e.state) &&
				(f.status == nil || *f.status == e.state.brief()) {
				want = append(want, uint32(i))
			}
		}
		skip, limit := r.IntN(len(want)+2), 1+r.IntN(50)
		page, total := x.page(&f, skip, limit)
		from := min(skip, len(want))
		if part := want[from:min(from+limit, len(want))]; total != len(want) || !slices.Equal(page, part) {
			t.Fatalf("%+v from %d: got %v of %d; want %v of %d", f, skip, page, total, part, len(want))
		}
	}
}
