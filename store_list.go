package main

// Pages of tasks: the matching ones for any combination of filters, in any order, without looking
// at the tasks.

import (
	"maps"
	"math"
	"slices"
)

// taskOrder is an order of tasks. Tasks of one rank in it are in the order of creation.
type taskOrder uint8

const (
	orderCreated   taskOrder = iota // the rank is 0
	orderUpdated                    // … the time of the last change
	orderCompleted                  // … the time of completion, 0 for tasks that have not ended
	orderPriority                   // … the priority
)

// taskQuery asks for a page of the tasks that match a filter. The last in the order come
// first, unless it is ascending.
type taskQuery struct {
	taskFilter
	order       taskOrder
	ascending   bool
	after       *taskPlace // list what comes after it; nil for everything
	skip, limit int
	counted     bool // also count the tasks by state, whatever states the filter selects
}

// taskPlace is the place of a task in an order: its rank, and the sequence of its
// creation.
type taskPlace struct {
	rank int64
	seq  uint64
}

// taskRange is a page of tasks, by their positions.
type taskRange struct {
	positions []uint32
	total     int // tasks that match
	before    int // matching tasks up to the place that the query names
	counts    stateCount
}

// taskGroup is a part of an order: tasks of one rank, or those whose ranks a column has.
type taskGroup struct {
	of     positionSet // nil for all tasks
	rank   int64
	column *timeColumn
	beyond positionSet // what comes after the place of a query; nil for all
}

// groups returns the parts of an order, the last first.
func (x *taskIndex) groups(order taskOrder) (all []taskGroup) {
	switch order {
	case orderCreated:
		return []taskGroup{{}}
	case orderUpdated:
		return []taskGroup{{column: &x.updated}}
	case orderCompleted:
		return []taskGroup{{of: x.in(endedStates), column: &x.completed}, {of: x.in(anyState &^ endedStates)}}
	}
	for _, p := range slices.Backward(slices.Sorted(maps.Keys(x.priorities))) {
		all = append(all, taskGroup{of: x.priorities[p], rank: int64(p)})
	}
	return all
}

// rank returns the rank of a task.
func (x *taskIndex) rank(order taskOrder, pos uint32) int64 {
	for _, g := range x.groups(order) {
		if g.of == nil || g.of.has(pos) {
			return g.rankOf(pos)
		}
	}
	return 0
}

func (g *taskGroup) rankOf(pos uint32) int64 {
	if g.column != nil {
		return int64(g.column.at(pos))
	}
	return g.rank
}

// after returns the tasks of the group that come after a point in the order.
func (g *taskGroup) after(p timePoint, ascending bool) positionSet {
	rank := int64(p.at)
	switch {
	case g.column != nil && ascending:
		return &timeSpan{g.column, p, lastPoint}
	case g.column != nil:
		return &timeSpan{g.column, firstPoint, p}
	case g.rank == rank && ascending:
		return bitSpans{{p.pos, math.MaxUint32}}
	case g.rank == rank:
		return bitSpans{{0, p.pos}}
	case g.rank > rank == ascending:
		return bitSpans{{0, math.MaxUint32}}
	}
	return bitSpans{}
}

// point returns where the tasks after a place begin: at the point in ascending order,
// before it in the other.
func (x *taskIndex) point(place *taskPlace, ascending bool) timePoint {
	pos := x.firstOf(0, uint32(x.all.reach()*bitBlockBits), func(pos uint32) bool {
		seq := x.tasks.seqAt(pos)
		return seq > place.seq || seq == place.seq && !ascending
	})
	return timePoint{instant(place.rank), pos}
}

// list returns the page that a query asks for.
func (x *taskIndex) list(q *taskQuery) (r taskRange) {
	if q.counted && q.states != 0 {
		any := taskQuery{taskFilter: q.taskFilter, counted: true}
		any.states = 0
		r.counts = x.list(&any).counts
	}
	sel, ok := x.selected(&q.taskFilter)
	if !ok {
		return r
	}
	var few []uint32
	var many *bitset
	if sel.few != nil {
		few = sel.among()
		x.listFew(few, q, &r)
	} else {
		many = x.meets[0].of(sel.sets...)
		x.listMany(many, q, &r)
	}
	if q.counted && q.states == 0 {
		r.counts = x.countStates(few, many)
	}
	return r
}

// listFew makes the page of some positions.
func (x *taskIndex) listFew(few []uint32, q *taskQuery, r *taskRange) {
	r.total = len(few)
	points := make([]timePoint, len(few))
	for i, pos := range few {
		points[i] = timePoint{instant(x.rank(q.order, pos)), pos}
	}
	if q.after != nil {
		p := x.point(q.after, q.ascending)
		points = slices.DeleteFunc(points, func(t timePoint) bool { return t.compare(p) < 0 == q.ascending })
	}
	r.before = r.total - len(points)
	slices.SortFunc(points, timePoint.compare)
	if !q.ascending {
		slices.Reverse(points)
	}
	for i := q.skip; i < min(q.skip+q.limit, len(points)); i++ {
		r.positions = append(r.positions, points[i].pos)
	}
}

// listMany makes the page of a set, from the end of the order if that is nearer.
func (x *taskIndex) listMany(set *bitset, q *taskQuery, r *taskRange) {
	ascending, skip, limit := q.ascending, q.skip, min(q.limit, set.total-q.skip)
	rest := max(set.total-skip-limit, 0)
	turned := q.after == nil && rest < skip
	if turned {
		ascending, skip = !ascending, rest
	}
	groups := x.groups(q.order)
	if ascending {
		slices.Reverse(groups)
	}
	var p timePoint
	if q.after != nil {
		p = x.point(q.after, ascending)
	}
	left := 0
	for i := range groups {
		g := &groups[i]
		if q.after != nil {
			g.beyond = g.after(p, ascending)
		} else if len(r.positions) >= limit {
			break
		}
		part := x.part(set, g)
		if n := min(part.total-skip, limit-len(r.positions)); n > 0 {
			r.positions = x.pageOf(r.positions, part, g, skip, n, ascending)
		}
		skip, left = max(skip-part.total, 0), left+part.total
	}
	if r.total = set.total; q.after != nil {
		r.before = set.total - left
	}
	if turned {
		slices.Reverse(r.positions)
	}
}

// part returns the positions of a set that are in a group.
func (x *taskIndex) part(set *bitset, g *taskGroup) *bitset {
	sets := []positionSet{set}
	if g.of != nil {
		sets = append(sets, g.of)
	}
	if g.beyond != nil {
		sets = append(sets, g.beyond)
	}
	return x.meets[1].of(sets...)
}

// pageOf appends n positions of a part after skipping skip of them. The last one comes first unless the
// order is ascending.
func (x *taskIndex) pageOf(to []uint32, part *bitset, g *taskGroup, skip, n int, ascending bool) []uint32 {
	if ascending {
		skip = part.total - skip - n
	}
	at := len(to)
	if g.column != nil {
		to = x.search.latest(to, part, g.column, skip, n)
	} else {
		to = part.top(to, skip, n)
	}
	if ascending {
		slices.Reverse(to[at:])
	}
	return to
}

// count returns how many tasks match.
func (x *taskIndex) count(f *taskFilter) int { return x.list(&taskQuery{taskFilter: *f}).total }

// countStates counts positions, few or many, by the states of their tasks.
func (x *taskIndex) countStates(few []uint32, set *bitset) (counts stateCount) {
	for _, pos := range few {
		counts[x.stateAt(pos)]++
	}
	if set == nil {
		return counts
	}
	// What is left after all other states is in the largest one, which saves the longest
	// comparison.
	rest, largest := set.total, 0
	for s := range x.states {
		if x.states[s].count() > x.states[largest].count() {
			largest = s
		}
	}
	for s := range x.states {
		if s != largest && x.states[s].count() > 0 {
			counts[s] = x.meets[1].of(set, &x.states[s]).total
			rest -= counts[s]
		}
	}
	counts[largest] = rest
	return counts
}
