package main

// Indexes over the tasks: which positions in the creation sequence have a
// state, a namespace, a name, and so on. A page of any combination of filters
// is found without looking at the tasks.

// taskFilter selects tasks; empty members select all. State is nil for any.
type taskFilter struct {
	namespace, name, version string
	initiator, source        string
	state                    *taskState
}

// taskIndex is guarded by the store's mutex.
type taskIndex struct {
	all         bitset
	states      [taskStates]bitset
	steps       [stepStates]int // how many steps of all tasks are in each state
	byNamespace map[string]*positions
	byName      map[string]*positions
	byVersion   map[string]*positions
	byInitiator map[string]*positions
	bySource    map[string]*positions
}

func newTaskIndex() *taskIndex {
	return &taskIndex{
		byNamespace: map[string]*positions{},
		byName:      map[string]*positions{},
		byVersion:   map[string]*positions{},
		byInitiator: map[string]*positions{},
		bySource:    map[string]*positions{},
	}
}

// add enters a task that is in the given state; steps counts those of a task
// that was not made just now.
func (x *taskIndex) add(pos uint32, tpl *template, by *creation, state taskState, steps *[stepStates]int) {
	x.all.set(pos)
	x.states[state].set(pos)
	if steps != nil {
		for s, n := range steps {
			x.steps[s] += n
		}
	}
	mark(x.byNamespace, tpl.namespace, pos)
	mark(x.byName, tpl.name, pos)
	mark(x.byVersion, tpl.version, pos)
	mark(x.byInitiator, by.initiator, pos)
	mark(x.bySource, by.source, pos)
}

func mark(m map[string]*positions, key string, pos uint32) {
	p := m[key]
	if p == nil {
		p = new(positions)
		m[key] = p
	}
	p.add(pos)
}

// fewPositions is how many positions are kept as they are. A set takes memory for
// all positions below its highest, and names from outside may be as many as tasks.
const fewPositions = 16

// positions is where a name stands: a short list, or else a set.
type positions struct {
	few []uint32
	all *bitset // nil while they are few
}

// add enters a position.
func (p *positions) add(pos uint32) {
	switch {
	case p.all != nil:
		p.all.set(pos)
	case len(p.few) < fewPositions:
		p.few = append(p.few, pos)
	default:
		p.all, p.few = p.set(), nil
		p.all.set(pos)
	}
}

// set is the positions as a set, which the caller must not change.
func (p *positions) set() *bitset {
	if p.all != nil {
		return p.all
	}
	s := new(bitset)
	for _, pos := range p.few {
		s.set(pos)
	}
	return s
}

// move takes a task from one state to another.
func (x *taskIndex) move(pos uint32, from, to taskState) {
	x.states[from].clear(pos)
	x.states[to].set(pos)
}

// page is the positions of one page, newest first, and the count of all.
func (x *taskIndex) page(f *taskFilter, skip, limit int) ([]uint32, int) {
	sets, ok := x.matching(f)
	if !ok {
		return nil, 0
	}
	var page []uint32
	descend(sets, skip, func(pos uint32) bool {
		page = append(page, pos)
		return len(page) < limit
	})
	return page, intersectCount(sets...)
}

// matching is the sets whose intersection the filter selects; ok is false when
// one of them is empty.
func (x *taskIndex) matching(f *taskFilter) (sets []*bitset, ok bool) {
	ok = true
	add := func(m map[string]*positions, key string) {
		if key == "" {
			return
		}
		if m[key] == nil {
			ok = false
			return
		}
		sets = append(sets, m[key].set())
	}
	add(x.byNamespace, f.namespace)
	add(x.byName, f.name)
	add(x.byVersion, f.version)
	add(x.byInitiator, f.initiator)
	add(x.bySource, f.source)
	if f.state != nil {
		sets = append(sets, &x.states[*f.state])
	}
	if len(sets) == 0 {
		sets = append(sets, &x.all)
	}
	return sets, ok
}
