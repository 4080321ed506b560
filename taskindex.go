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
	byNamespace map[string]*bitset
	byName      map[string]*bitset
	byVersion   map[string]*bitset
	byInitiator map[string]*bitset
	bySource    map[string]*bitset
}

func newTaskIndex() *taskIndex {
	return &taskIndex{
		byNamespace: map[string]*bitset{},
		byName:      map[string]*bitset{},
		byVersion:   map[string]*bitset{},
		byInitiator: map[string]*bitset{},
		bySource:    map[string]*bitset{},
	}
}

// add enters a pending task; its steps are counted as they come into being.
func (x *taskIndex) add(pos uint32, tpl *template, by *creation) {
	x.all.set(pos)
	x.states[taskPending].set(pos)
	mark(x.byNamespace, tpl.namespace, pos)
	mark(x.byName, tpl.name, pos)
	mark(x.byVersion, tpl.version, pos)
	mark(x.byInitiator, by.initiator, pos)
	mark(x.bySource, by.source, pos)
}

func mark(m map[string]*bitset, key string, pos uint32) {
	set := m[key]
	if set == nil {
		set = new(bitset)
		m[key] = set
	}
	set.set(pos)
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
	add := func(m map[string]*bitset, key string) {
		if key == "" {
			return
		}
		if m[key] == nil {
			ok = false
			return
		}
		sets = append(sets, m[key])
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
