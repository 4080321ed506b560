package main

// Indexes over the tasks: the positions with a state, a namespace, a name and so on.

import (
	"cmp"
	"hash/maphash"
	"math"
	"slices"
	"sort"
	"strings"
)

// taskFilter selects tasks; empty members select all.
type taskFilter struct {
	namespace, name, version    string
	initiator, source           string
	text                        string // in the namespace or the name, in lower case
	tags                        []string
	correlation, parent         uuid
	trace                       string
	failure                     failureGroup // of one of its steps
	values                      []contextValue
	states                      stateSet
	created, updated, completed period
}

// period is the time after one instant and before another; zero for no limit.
type period struct{ after, before instant }

func (p period) has(at instant) bool {
	return (p.after == 0 || at > p.after) && (p.before == 0 || at < p.before)
}

// taskIndex is guarded by the store's mutex.
type taskIndex struct {
	tasks       indexedTasks
	all         bitset
	states      [taskStates]bitset
	steps       [stepStates]int // number of steps of all tasks in each state
	byNamespace positionIndex
	byName      positionIndex
	byVersion   positionIndex
	byInitiator positionIndex
	bySource    positionIndex
	postings    map[postingsKey]*postings
	labels      labelIndex
	found       findIndex
	updated     timeColumn
	completed   timeColumn // or when the task was updated, if it has not ended
	back        bitset     // tasks that seem to be older than their predecessor, because the clock was set back
	newest      instant    // when the newest task was created
	priorities  map[int]*bitset
	failures    failureIndex
	blocked     map[templateName]int // number of blocked tasks, of templates that have any
	meets       [2]bitMeet           // room for what a list selects, and for a part of it
	search      timeSearch
}

// indexedTasks returns what the index does not hold about tasks.
type indexedTasks interface {
	createdAt(pos uint32) instant
	seqAt(pos uint32) uint64
	// correlatedAt returns the position of the task for which the service made this correlation id.
	correlatedAt(id uuid) (pos uint32, ok bool)
}

// postings counts the tasks of one template, initiator and source, and holds
// the sets that their positions are in.
type postings struct {
	key    postingsKey
	tasks  int
	states [taskStates]int // number of tasks by state
	in     [5]*positions
}

type postingsKey struct {
	tpl               *template
	initiator, source string
}

func newTaskIndex(tasks indexedTasks) *taskIndex {
	return &taskIndex{
		tasks: tasks, labels: newLabelIndex(), found: newFindIndex(),
		byNamespace: positionIndex{}, byName: positionIndex{}, byVersion: positionIndex{},
		byInitiator: positionIndex{}, bySource: positionIndex{}, postings: map[postingsKey]*postings{},
		priorities: map[int]*bitset{}, failures: newFailureIndex(), blocked: map[templateName]int{},
	}
}

// insert adds a pending task that was created at an instant. Its steps are counted as they
// are created.
func (x *taskIndex) insert(pos uint32, tpl *template, by *creation, at instant) *postings {
	x.all.set(pos)
	x.states[taskPending].set(pos)
	x.eachLabel(by, func(label uint64) { x.labels.insert(pos, label) })
	x.found.insert(pos, by)
	x.touch(pos, at, 0)
	if at < x.newest {
		x.back.set(pos)
	}
	x.newest = at
	if x.priorities[listedPriority(by.priority)] == nil {
		x.priorities[listedPriority(by.priority)] = &bitset{}
	}
	x.priorities[listedPriority(by.priority)].set(pos)
	p := x.postingsFor(postingsKey{tpl, by.initiator, by.source})
	p.tasks++
	p.states[taskPending]++
	for _, in := range p.in {
		in.insert(pos)
	}
	return p
}

// listedPriority returns the priority by which lists order a task: those beyond ±100 are equal, so that callers cannot
// make an index with a set for each of many priorities.
func listedPriority(n int) int { return min(max(n, -100), 100) }

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

// indexedValue is a value by which tasks are found.
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

// touch notes when a task was updated and, unless it is zero, completed.
func (x *taskIndex) touch(pos uint32, updated, completed instant) {
	x.updated.set(pos, updated)
	x.completed.set(pos, cmp.Or(completed, updated))
}

// remove removes a task that has this state and these steps, with its creation if it has
// labels.
func (x *taskIndex) remove(pos uint32, state taskState, steps *[stepStates]int, p *postings, by *creation) {
	x.forgetBack(pos)
	x.eachSet(func(set *bitset) { set.clear(pos) })
	x.eachLabel(by, func(label uint64) { x.labels.remove(pos, label) })
	if state == taskError { // other finished tasks have no failing steps
		x.failures.removeTask(pos, stepTotal(steps))
	}
	x.found.remove(pos, by)
	x.touch(pos, 0, 0)
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

// forgetBack passes the mark of a removed task on to the next one, which may be older than
// those before, too.
func (x *taskIndex) forgetBack(pos uint32) {
	if !x.back.has(pos) {
		return
	}
	if next, ok := x.all.next(pos + 1); ok {
		x.back.set(next)
	} else {
		// The next task that comes gets the mark.
		x.newest = math.MaxInt64
	}
}

// relocate moves a task to a lower position, with no task between the two.
func (x *taskIndex) relocate(from, to uint32, p *postings, by *creation) {
	x.eachSet(func(set *bitset) {
		if set.has(from) {
			set.relocate(from, to)
		}
	})
	updated, completed := x.updated.at(from), x.completed.at(from)
	x.touch(from, 0, 0)
	x.touch(to, updated, completed)
	x.eachLabel(by, func(label uint64) { x.labels.relocate(from, to, label) })
	x.found.relocate(from, to, by)
	for _, in := range p.in {
		in.relocate(from, to)
	}
}

// memory returns how much memory labels, values and errors take, in bytes.
func (x *taskIndex) memory() int64 { return labelBytes*int64(x.labels.held) + x.found.bytes }

// trim frees the memory for positions above the highest task.
func (x *taskIndex) trim() {
	x.eachSet((*bitset).trim)
	x.updated.trim(x.all.reach())
	x.completed.trim(x.all.reach())
}

// eachSet calls f for each set whose members are known by their positions alone.
func (x *taskIndex) eachSet(f func(set *bitset)) {
	f(&x.all)
	f(&x.back)
	for i := range x.states {
		f(&x.states[i])
	}
	for _, set := range x.priorities {
		f(set)
	}
}

// The kinds of labels.
const (
	labelTag         = 't'
	labelCorrelation = 'c'
	labelParent      = 'p'
	labelTrace       = 'r'
)

// maxLabelTags is how many tags of a task are indexed: more would take long under the lock.
const maxLabelTags = 256

// eachLabel calls f for each label of a task; by may be nil for a task without one.
func (x *taskIndex) eachLabel(by *creation, f func(label uint64)) {
	if by == nil {
		return
	}
	for _, tag := range by.tags[:min(len(by.tags), maxLabelTags)] {
		f(x.labels.label(labelTag, tag))
	}
	if !by.correlation.isZero() {
		f(x.labels.label(labelCorrelation, string(by.correlation[:])))
	}
	if !by.parentCorrelation.isZero() {
		f(x.labels.label(labelParent, string(by.parentCorrelation[:])))
	}
	if by.traceparent != "" {
		f(x.labels.label(labelTrace, by.traceID()))
	}
}

// move moves a task from one state to another.
func (x *taskIndex) move(pos uint32, from, to taskState, p *postings) {
	p.states[from]--
	p.states[to]++
	x.states[from].clear(pos)
	x.states[to].set(pos)
	if from == taskBlockedByFailures || to == taskBlockedByFailures {
		name := p.key.tpl.names()
		x.blocked[name] += boolCount(to == taskBlockedByFailures) - boolCount(from == taskBlockedByFailures)
		if x.blocked[name] == 0 {
			delete(x.blocked, name)
		}
	}
}

// blockedTasks returns the number of blocked tasks by template, which the store's lock guards.
func (x *slotTable) blockedTasks() map[templateName]int { return x.index.blocked }

// in returns the tasks in some states.
func (x *taskIndex) in(states stateSet) bitParts {
	p := bitParts{whole: &x.all}
	for s := range x.states {
		if states.has(taskState(s)) && x.states[s].count() > 0 {
			p.bitUnion = append(p.bitUnion, &x.states[s])
		}
	}
	return p
}

// stateAt returns the state of the task at a position.
func (x *taskIndex) stateAt(pos uint32) taskState {
	return taskState(slices.IndexFunc(x.states[:], func(s bitset) bool { return s.has(pos) }))
}

// maxCounted is how many postings are searched before the sets are.
const maxCounted = 1024

// nothing reports that no task matches, if that is cheap to find out. Otherwise
// large sets without a common position would be searched completely.
func (x *taskIndex) nothing(f *taskFilter) bool {
	if len(x.postings) > maxCounted {
		return false
	}
	for _, p := range x.postings {
		if p.key.matches(f) && p.some(f.states) {
			return false
		}
	}
	return true
}

// matches reports whether the key matches the filter, apart from what else it says.
func (k postingsKey) matches(f *taskFilter) bool {
	return (f.namespace == "" || f.namespace == k.tpl.namespace) && (f.name == "" || f.name == k.tpl.name) &&
		(f.version == "" || f.version == k.tpl.version) && (f.initiator == "" || f.initiator == k.initiator) &&
		(f.source == "" || f.source == k.source)
}

// some reports whether a task is in one of some states; zero means any.
func (p *postings) some(states stateSet) bool {
	for s, n := range p.states {
		if n > 0 && (states == 0 || states.has(taskState(s))) {
			return true
		}
	}
	return false
}

// selection is the positions that a filter selects: those in all sets and, unless it is
// nil, in few, which is ascending.
type selection struct {
	sets []positionSet
	few  []uint32
}

// narrow makes the selection only have positions of p. It reports false if there are
// none.
func (sel *selection) narrow(p *positions) bool {
	switch {
	case p == nil:
		return false
	case p.many != nil:
		sel.sets = append(sel.sets, p.many)
	case sel.few == nil:
		sel.few = append([]uint32{}, p.few...) // not nil
	default:
		sel.few = slices.DeleteFunc(sel.few, func(pos uint32) bool { return !p.has(pos) })
	}
	return true
}

// narrowToEither makes the selection only have positions of p or q.
func (sel *selection) narrowToEither(p, q *positions) bool {
	if p == nil || q == nil {
		return sel.narrow(cmp.Or(p, q))
	}
	sel.sets = append(sel.sets, bitUnion{p.bits(), q.bits()})
	return true
}

// among returns the positions in few that are in all sets.
func (sel *selection) among() []uint32 {
	return slices.DeleteFunc(slices.Clone(sel.few), func(pos uint32) bool {
		return slices.ContainsFunc(sel.sets, func(s positionSet) bool { return !s.has(pos) })
	})
}

// selected returns what the filter selects, or false if that is nothing.
func (x *taskIndex) selected(f *taskFilter) (sel selection, ok bool) {
	for _, by := range []indexedValue{
		{x.byNamespace, f.namespace}, {x.byName, f.name}, {x.byVersion, f.version},
		{x.byInitiator, f.initiator}, {x.bySource, f.source},
	} {
		if by.key != "" && !sel.narrow(by.index[by.key]) {
			return sel, false
		}
	}
	if !x.selectLabels(f, &sel) {
		return sel, false
	}
	if f.states != 0 {
		sel.sets = append(sel.sets, x.in(f.states))
	}
	if f.text != "" {
		sel.sets = append(sel.sets, x.named(f.text))
	}
	if f.failure != 0 {
		sel.sets = append(sel.sets, x.failures.tasksOf(f.failure))
	}
	x.selectTimes(f, &sel)
	if len(sel.sets) == 0 || slices.ContainsFunc(sel.sets, inexact) {
		sel.sets = append(sel.sets, &x.all)
	}
	return sel, sel.few != nil || !x.nothing(f)
}

// inexact reports whether a set may have positions without a task.
func inexact(s positionSet) bool {
	switch s.(type) {
	case *timeSpan, bitSpans:
		return true
	}
	return false
}

// named returns the tasks with a text in their namespace or the name of their template.
func (x *taskIndex) named(text string) positionSet {
	var u bitUnion
	var few bitset
	for _, index := range []positionIndex{x.byNamespace, x.byName} {
		for name, p := range index {
			switch {
			case !strings.Contains(strings.ToLower(name), text):
			case p.many != nil:
				u = append(u, p.many)
			default:
				for _, pos := range p.few {
					few.set(pos)
				}
			}
		}
	}
	return append(u, &few)
}

// selectLabels narrows the selection to tasks with the labels of the filter.
func (x *taskIndex) selectLabels(f *taskFilter, sel *selection) bool {
	for _, tag := range f.tags {
		if !sel.narrow(x.labels.find(x.labels.label(labelTag, tag))) {
			return false
		}
	}
	parent := func() *positions { return x.labels.find(x.labels.label(labelParent, string(f.parent[:]))) }
	if !f.parent.isZero() && !sel.narrow(parent()) {
		return false
	}
	if f.trace != "" && !sel.narrow(x.labels.find(x.labels.label(labelTrace, f.trace))) {
		return false
	}
	for _, v := range f.values {
		if !sel.narrowToEither(x.found.find(v)) {
			return false
		}
	}
	if f.correlation.isZero() {
		return true
	}
	// A correlation id is a caller's, which is a label, or one that the service made from the
	// task's id.
	var own *positions
	if pos, ok := x.tasks.correlatedAt(f.correlation); ok {
		own = &positions{few: []uint32{pos}}
	}
	return sel.narrowToEither(x.labels.find(x.labels.label(labelCorrelation, string(f.correlation[:]))), own)
}

// selectTimes narrows the selection to the periods of the filter.
func (x *taskIndex) selectTimes(f *taskFilter, sel *selection) {
	if f.created != (period{}) {
		sel.sets = append(sel.sets, x.createdIn(f.created))
	}
	if f.updated != (period{}) {
		sel.sets = append(sel.sets, f.updated.of(&x.updated))
	}
	if f.completed != (period{}) {
		sel.sets = append(sel.sets, f.completed.of(&x.completed), x.in(endedStates))
	}
}

// of returns the positions of a column with an instant in the period.
func (p period) of(column *timeColumn) *timeSpan {
	s := &timeSpan{column, firstPoint, lastPoint}
	if p.after != 0 {
		s.from.at = p.after + 1
	}
	if p.before != 0 {
		s.before.at = p.before
	}
	return s
}

// createdIn returns the positions of the tasks that were created in a period. They are in
// the order of creation, apart from moments when the clock was set back.
func (x *taskIndex) createdIn(p period) bitSpans {
	spans := bitSpans{}
	end := uint32(x.all.reach() * bitBlockBits)
	for from := uint32(0); from < end; {
		to, ok := x.back.next(from + 1)
		if !ok {
			to = end
		}
		// Between two marks the times ascend, so both ends of the period are found by bisection.
		s := bitSpan{from, to}
		if p.after != 0 {
			s.from = x.firstOf(from, to, func(pos uint32) bool { return x.tasks.createdAt(pos) > p.after })
		}
		if p.before != 0 {
			s.to = x.firstOf(from, to, func(pos uint32) bool { return x.tasks.createdAt(pos) >= p.before })
		}
		if s.from < s.to {
			spans = append(spans, s)
		}
		from = to
	}
	return spans
}

// firstOf returns the first position from one on, up to another, after which all tasks
// satisfy f; before it none does.
func (x *taskIndex) firstOf(from, to uint32, f func(pos uint32) bool) uint32 {
	return from + uint32(sort.Search(int(to-from), func(i int) bool {
		pos, ok := x.all.next(from + uint32(i))
		return !ok || pos >= to || f(pos)
	}))
}

// labelIndex finds the positions with a label, of which many have only one, by the hash of
// the label.
type labelIndex struct {
	seed    maphash.Seed
	one     map[uint64]uint32     // labels of one position
	more    map[uint64]*positions // the others
	holders bitset                // the positions with labels
	held    int                   // labels of all positions
}

func newLabelIndex() labelIndex {
	return labelIndex{seed: maphash.MakeSeed(), one: map[uint64]uint32{}, more: map[uint64]*positions{}}
}

// label returns the hash of a label of a kind. Nobody outside can find two labels with one
// hash. No part but the last has a byte 0.
func (x *labelIndex) label(kind byte, parts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(x.seed)
	h.WriteByte(kind)
	for i, part := range parts {
		if i > 0 {
			h.WriteByte(0)
		}
		h.WriteString(part)
	}
	return h.Sum64()
}

// find returns the positions with a label, or nil if there are none.
func (x *labelIndex) find(label uint64) *positions {
	if pos, ok := x.one[label]; ok {
		return &positions{few: []uint32{pos}}
	}
	return x.more[label]
}

// top appends up to limit positions with a label, the highest first.
func (x *labelIndex) top(to []uint32, label uint64, limit int) []uint32 {
	if pos, ok := x.one[label]; ok {
		return append(to, pos)
	}
	if p := x.more[label]; p != nil {
		return p.top(to, limit)
	}
	return to
}

// has reports whether a position has a label.
func (x *labelIndex) has(pos uint32, label uint64) bool {
	if first, one := x.one[label]; one {
		return first == pos
	}
	p := x.more[label]
	return p != nil && p.has(pos)
}

// insert adds a label of a position. A repetition changes nothing.
func (x *labelIndex) insert(pos uint32, label uint64) {
	x.holders.set(pos)
	first, one := x.one[label]
	p := x.more[label]
	switch {
	case one && first == pos, p != nil && p.has(pos):
		return
	case one:
		x.more[label] = &positions{few: []uint32{min(first, pos), max(first, pos)}}
		delete(x.one, label)
	case p != nil:
		p.insert(pos)
	default:
		x.one[label] = pos
	}
	x.held++
}

// remove removes a label of a position, if the position has it.
func (x *labelIndex) remove(pos uint32, label uint64) {
	x.holders.clear(pos)
	first, one := x.one[label]
	p := x.more[label]
	switch {
	case one && first == pos:
		delete(x.one, label)
	case p == nil || !p.has(pos):
		return
	default:
		if p.remove(pos); p.empty() {
			delete(x.more, label)
		}
	}
	x.held--
}

// relocate moves a label to a lower position, with none that has it between the two. Nothing
// changes if the position does not have it.
func (x *labelIndex) relocate(from, to uint32, label uint64) {
	x.holders.set(to)
	x.holders.clear(from)
	switch p := x.more[label]; {
	case !x.has(from, label):
	case p != nil:
		p.relocate(from, to)
	default:
		x.one[label] = to
	}
}

// figures returns everything that was counted, and the states, as of one
// moment.
func (s *store) figures() (*frozenFigures, stateCounts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.analytics.freeze()
	// Otherwise the first task that ever was may be gone.
	if s.retain.dropped == 0 && len(s.tasks.slots) > 0 {
		f.first = s.tasks.slots[0].created()
	}
	return f, s.tasks.counts()
}

// created returns when the task in a slot was created.
func (sl slot) created() instant {
	if sl.live != nil {
		return sl.live.created
	}
	return instant(sl.line.number(`,"created":`))
}

func (x *slotTable) createdAt(pos uint32) instant { return x.slots[pos].created() }

func (x *slotTable) seqAt(pos uint32) uint64 {
	if t := x.slots[pos].live; t != nil {
		return t.seq
	}
	return x.slots[pos].line.number(`,"seq":`)
}

func (x *slotTable) correlatedAt(id uuid) (uint32, bool) {
	for _, tpl := range x.templates.all() {
		// The service's own correlation id follows the ids of the declared steps.
		n := len(tpl.steps) + 1
		pos, ok := x.find(id.plus(-n))
		if ok && len(x.slots[pos].in.key.tpl.steps)+1 == n {
			by := x.labelsOf(pos, x.slots[pos])
			return pos, by == nil || by.correlation.isZero()
		}
	}
	return 0, false
}

// labelsOf returns the creation of the task that is indexed at a position, in this slot,
// or nil if it has no label and no value.
func (x *slotTable) labelsOf(pos uint32, sl slot) *creation {
	if !x.index.labels.holders.has(pos) && !x.index.found.labels.holders.has(pos) {
		return nil
	}
	_, by, err := sl.origin()
	if err != nil {
		x.log.Error("a task's line cannot be read", "position", pos, "error", err)
	}
	return by
}

// counts returns how many tasks and steps are in each state.
func (s *store) counts() stateCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tasks.counts()
}

// counts returns how many tasks and steps are in each state.
func (x *slotTable) counts() stateCounts {
	c := stateCounts{steps: x.index.steps}
	for i := range c.tasks {
		c.tasks[i] = x.index.states[i].count()
	}
	return c
}

// stateCount is a number of tasks for each state.
type stateCount [taskStates]int

// count returns how many tasks match.
func (s *store) count(f *taskFilter) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tasks.index.count(f)
}
