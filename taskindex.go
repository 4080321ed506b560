package main

// Indexes over the tasks: which positions in the creation sequence have a
// state, a namespace, a name, and so on. A page of any combination of filters
// is found without looking at the tasks.

import "slices"

// taskFilter selects tasks; empty members select all. State and status are nil
// for any.
type taskFilter struct {
	namespace, name, version string
	initiator, source        string
	state                    *taskState
	status                   *briefStatus
}

// taskIndex is guarded by the store's mutex.
type taskIndex struct {
	all         bitset
	states      [taskStates]bitset
	statuses    [briefStatuses]bitset // each the union of the states that have it
	steps       [stepStates]int       // how many steps of all tasks are in each state
	byNamespace positionIndex
	byName      positionIndex
	byVersion   positionIndex
	byInitiator positionIndex
	bySource    positionIndex
	postings    map[postingsKey]*postings
}

// postings is where the tasks of one template, initiator and source stand.
type postings struct {
	key    postingsKey
	tasks  int
	states [taskStates]int // of these, by state
	in     [5]*positions
}

type postingsKey struct {
	tpl               *template
	initiator, source string
}

func newTaskIndex() *taskIndex {
	return &taskIndex{
		byNamespace: positionIndex{}, byName: positionIndex{}, byVersion: positionIndex{},
		byInitiator: positionIndex{}, bySource: positionIndex{}, postings: map[postingsKey]*postings{},
	}
}

// add enters a pending task; its steps are counted as they come into being.
func (x *taskIndex) add(pos uint32, tpl *template, by *creation) *postings {
	x.all.set(pos)
	x.states[taskPending].set(pos)
	x.statuses[briefPending].set(pos)
	p := x.postingsFor(postingsKey{tpl, by.initiator, by.source})
	p.tasks++
	p.states[taskPending]++
	for _, in := range p.in {
		in.add(pos)
	}
	return p
}

func (x *taskIndex) postingsFor(k postingsKey) *postings {
	if p := x.postings[k]; p != nil {
		return p
	}
	p := &postings{key: k}
	for i, by := range x.values(k) {
		p.in[i] = by.index.get(by.key)
	}
	x.postings[k] = p
	return p
}

// indexedValue is a value that tasks are found by.
type indexedValue struct {
	index positionIndex
	key   string
}

func (x *taskIndex) values(k postingsKey) [5]indexedValue {
	return [...]indexedValue{
		{x.byNamespace, k.tpl.namespace}, {x.byName, k.tpl.name}, {x.byVersion, k.tpl.version},
		{x.byInitiator, k.initiator}, {x.bySource, k.source},
	}
}

// remove takes a task out that has this state and these steps.
func (x *taskIndex) remove(pos uint32, state taskState, steps *[stepStates]int, p *postings) {
	x.all.clear(pos)
	x.states[state].clear(pos)
	x.statuses[state.brief()].clear(pos)
	for s, n := range steps {
		x.steps[s] -= n
	}
	for _, in := range p.in {
		in.remove(pos)
	}
	p.states[state]--
	if p.tasks--; p.tasks > 0 {
		return
	}
	delete(x.postings, p.key)
	for i, by := range x.values(p.key) {
		if p.in[i].empty() {
			delete(by.index, by.key)
		}
	}
}

// relocate gives a task a lower position; there is none between the two.
func (x *taskIndex) relocate(from, to uint32, p *postings) {
	x.all.relocate(from, to)
	for _, set := range x.stateSets() {
		if set.has(from) {
			set.relocate(from, to)
		}
	}
	for _, in := range p.in {
		in.relocate(from, to)
	}
}

// trim gives up the room for positions that no task has any more.
func (x *taskIndex) trim() {
	x.all.trim()
	for _, set := range x.stateSets() {
		set.trim()
	}
}

// stateSets is the sets by state and by status.
func (x *taskIndex) stateSets() (sets [int(taskStates) + int(briefStatuses)]*bitset) {
	for i := range x.states {
		sets[i] = &x.states[i]
	}
	for i := range x.statuses {
		sets[len(x.states)+i] = &x.statuses[i]
	}
	return sets
}

// move takes a task from one state to another.
func (x *taskIndex) move(pos uint32, from, to taskState, p *postings) {
	p.states[from]--
	p.states[to]++
	x.states[from].clear(pos)
	x.states[to].set(pos)
	if was, is := from.brief(), to.brief(); was != is {
		x.statuses[was].clear(pos)
		x.statuses[is].set(pos)
	}
}

// page is the positions of one page, newest first, and the count of all.
func (x *taskIndex) page(f *taskFilter, skip, limit int) ([]uint32, int) {
	sets, few, ok := x.matching(f)
	if !ok {
		return nil, 0
	}
	if few != nil {
		return pageOfFew(few, sets, skip, limit)
	}
	if x.nothing(f) {
		return nil, 0
	}
	total := intersectCount(sets...)
	if skip >= total {
		return nil, total
	}
	page := make([]uint32, 0, min(limit, total-skip))
	descend(sets, skip, func(pos uint32) bool {
		page = append(page, pos)
		return len(page) < cap(page)
	})
	return page, total
}

// maxCounted is how many postings are looked at before any set is.
const maxCounted = 1024

// nothing reports that no task matches, where that is cheap to tell: to find it
// out of large sets that have nothing in common, all of both would be looked at.
func (x *taskIndex) nothing(f *taskFilter) bool {
	if len(x.postings) > maxCounted {
		return false
	}
	for _, p := range x.postings {
		if p.key.matches(f) && p.some(f) {
			return false
		}
	}
	return true
}

// matches leaves out the states.
func (k postingsKey) matches(f *taskFilter) bool {
	return (f.namespace == "" || f.namespace == k.tpl.namespace) && (f.name == "" || f.name == k.tpl.name) &&
		(f.version == "" || f.version == k.tpl.version) && (f.initiator == "" || f.initiator == k.initiator) &&
		(f.source == "" || f.source == k.source)
}

// some reports whether a task is in a state that the filter asks for.
func (p *postings) some(f *taskFilter) bool {
	for s, n := range p.states {
		state := taskState(s)
		if n > 0 && (f.state == nil || *f.state == state) && (f.status == nil || *f.status == state.brief()) {
			return true
		}
	}
	return false
}

// pageOfFew is page where one of the filters has few positions, which come in
// descending order.
func pageOfFew(few []uint32, sets []*bitset, skip, limit int) (page []uint32, total int) {
	for _, pos := range few {
		if slices.ContainsFunc(sets, func(s *bitset) bool { return !s.has(pos) }) {
			continue
		}
		if total >= skip && len(page) < limit {
			page = append(page, pos)
		}
		total++
	}
	return page, total
}

// matching is what the filter selects: the intersection of the sets and, unless
// it is nil, of the few, in descending order. It is not ok when nothing matches.
func (x *taskIndex) matching(f *taskFilter) (sets []*bitset, few []uint32, ok bool) {
	for _, by := range []indexedValue{
		{x.byNamespace, f.namespace}, {x.byName, f.name}, {x.byVersion, f.version},
		{x.byInitiator, f.initiator}, {x.bySource, f.source},
	} {
		if by.key == "" {
			continue
		}
		p := by.index[by.key]
		switch {
		case p == nil:
			return nil, nil, false
		case p.many != nil:
			sets = append(sets, p.many)
		case few == nil:
			few = slices.Clone(p.few)
			slices.Reverse(few)
		default:
			few = slices.DeleteFunc(few, func(pos uint32) bool { return !p.has(pos) })
		}
	}
	if f.state != nil {
		sets = append(sets, &x.states[*f.state])
	}
	if f.status != nil {
		sets = append(sets, &x.statuses[*f.status])
	}
	if len(sets) == 0 {
		sets = append(sets, &x.all)
	}
	return sets, few, true
}

// positionIndex finds the positions that have a value.
type positionIndex map[string]*positions

// positions is a growing set of positions: a short list, which costs next to
// nothing for values that are nearly unique, or a bitset.
type positions struct {
	few  []uint32 // ascending; used while many is nil
	many *bitset
}

// maxFew is how many positions a list may have.
const maxFew = 64

func (x positionIndex) get(key string) *positions {
	p := x[key]
	if p == nil {
		p = &positions{}
		x[key] = p
	}
	return p
}

func (p *positions) add(pos uint32) {
	if p.many == nil && len(p.few) < maxFew {
		p.few = append(p.few, pos)
		return
	}
	if p.many == nil {
		p.many = &bitset{}
		for _, old := range p.few {
			p.many.set(old)
		}
		p.few = nil
	}
	p.many.set(pos)
}

func (p *positions) remove(pos uint32) {
	if p.many != nil {
		p.many.clear(pos)
		return
	}
	if i, ok := slices.BinarySearch(p.few, pos); ok {
		p.few = slices.Delete(p.few, i, i+1)
	}
}

func (p *positions) relocate(from, to uint32) {
	if p.many != nil {
		p.many.relocate(from, to)
		return
	}
	if i, ok := slices.BinarySearch(p.few, from); ok {
		p.few[i] = to
	}
}

func (p *positions) empty() bool { return len(p.few) == 0 && (p.many == nil || p.many.count() == 0) }

func (p *positions) has(pos uint32) bool {
	if p.many != nil {
		return p.many.has(pos)
	}
	_, ok := slices.BinarySearch(p.few, pos)
	return ok
}
