package main

// Pages of tasks: the matching ones for any combination of filters, in any order.

import (
	"cmp"
	"math"
)

// taskOrder is an order of tasks. Tasks of one rank in it are in the order of creation.
type taskOrder uint8

const (
	orderCreated   taskOrder = iota // the rank is 0
	orderUpdated                    // … the time of the last change
	orderCompleted                  // … the time of completion, 0 for tasks that have not ended
	orderPriority                   // … the priority
)

// taskQuery asks for a page of the tasks that match a filter. The last in the order come first, unless it is ascending.
type taskQuery struct {
	taskFilter
	order       taskOrder
	ascending   bool
	after       *taskPlace // list what comes after it; nil for everything
	skip, limit int
	counted     bool // also count the tasks by state, whatever states the filter selects
}

// taskPlace is the place of a task in an order: its rank, and the sequence of its creation.
type taskPlace struct {
	rank int64
	seq  uint64
}

func (q *taskQuery) compare(a, b taskPlace) int {
	if q.ascending {
		a, b = b, a
	}
	return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(b.seq, a.seq))
}

func (m *taskMarks) rank(order taskOrder, state taskState) int64 {
	switch {
	case order == orderUpdated:
		return int64(m.updated)
	case order == orderCompleted && state.ended():
		return int64(m.completed)
	case order == orderPriority:
		return int64(m.priority)
	}
	return 0
}

// taskList is a page of tasks as they were when they were listed.
type taskList struct {
	tasks         []keptTask
	total, before int        // tasks that match, and how many of them come up to the place that the query names
	last          taskPlace  // of the last task of the page
	counts        stateCount // by state, if the query asks for it
	seq           uint64     // everything in the page is durable with it
}

// pageMaker makes a page. It looks at some tasks at a time under the lock, so a task that changes meanwhile counts as it
// was when it was looked at. It is left out of the page if it no longer matches once all were looked at.
type pageMaker struct {
	q     *taskQuery
	ids   map[uuid]bool // of the tasks to look at; nil for all
	m     taskMatcher
	walk  taskWalk
	begun bool
	brief bool        // whether nobody asks how many tasks match
	later int         // tasks that match and come after the place of the query
	found []taskPlace // of these, those that may be on the page
	least *taskPlace  // those after it are on no page
	list  taskList
}

// placedTask is a task that matches, and its place in the order. It has nothing of the slot of a live task, which changes
// under the lock.
type placedTask struct {
	place taskPlace
	id    uuid
	tpl   *template
}

// list returns one page of the matching tasks.
func (s *store) list(q *taskQuery) taskList {
	l := pageMaker{q: q}
	for more := true; more; {
		s.locked(func() { more = l.look(&s.tasks) })
		l.cut()
	}
	if n := len(l.found); q.order != orderCreated {
		sortPart(l.found, q.skip, q.skip+q.limit, q.compare) // without the lock, because there may be many
		l.found = l.found[min(q.skip, n):min(q.skip+q.limit, n)]
	}
	s.locked(func() { l.finish(s) })
	return l.list
}

// count returns how many tasks match.
func (s *store) count(f *taskFilter) int { return s.list(&taskQuery{taskFilter: *f}).total }

// matching returns a page of tasks in the order of creation, of some or, if ids is nil, of all.
func (s *store) matching(q *taskQuery, ids map[uuid]bool) (page []placedTask) {
	l := pageMaker{q: q, ids: ids, brief: true}
	for more := true; more; {
		s.locked(func() {
			more = l.look(&s.tasks)
			for _, p := range l.found[len(page):] {
				sl := s.tasks.slotAt(p.seq)
				page = append(page, placedTask{p, sl.id, sl.tpl})
			}
		})
	}
	return page
}

// begin prepares the walk. What the index has counted is not counted again.
func (l *pageMaker) begin(x *slotTable) {
	l.begun = true
	l.m = x.matcher(&l.q.taskFilter)
	l.m.simple = l.m.simple && l.ids == nil
	var counts stateCount
	l.walk.templates, counts = x.index.selected(&l.q.taskFilter)
	l.walk.states, l.walk.newest = cmp.Or(l.q.states, anyState), !l.q.ascending
	candidates := 0
	for s, n := range counts {
		candidates += n * boolCount(l.walk.states.has(taskState(s)))
	}
	if l.q.order != orderCreated {
		l.found = make([]taskPlace, 0, min(candidates, 2*(l.q.skip+l.q.limit)+4096+walkWork/lookWork)) // see cut
	}
	switch {
	case l.m.simple:
		l.list.total = candidates
		if l.q.counted {
			l.list.counts = counts
		}
		l.walk.done = l.list.total == 0 || l.q.skip+l.q.limit == 0
	case l.q.counted:
		l.walk.states = anyState
	}
	if l.q.order == orderCreated && l.q.after != nil && l.q.after.rank == 0 && (l.brief || l.m.simple) {
		l.walk.at, l.walk.begun = l.q.after.seq, true
	}
}

// look looks at the next tasks, and reports whether there are more.
func (l *pageMaker) look(x *slotTable) bool {
	if !l.begun {
		l.begin(x)
	}
	quick := l.m.simple && l.q.order == orderCreated && !l.walk.done && (l.q.after == nil || l.q.after.rank == 0)
	if quick && l.later < l.q.skip { // what is before the page
		l.later = l.walk.pass(x, l.q.skip)
	}
	if l.walk.done {
		return false
	}
	enough := l.q.order == orderCreated && (l.brief || quick)
	for at := range l.walk.batch(x) {
		if !l.m.simple && (l.ids != nil && !l.ids[x.marks[at].id] || !l.m.matches(at)) {
			continue
		}
		if !l.m.simple {
			state := x.kinds[at].state()
			l.list.counts[state] += boolCount(l.q.counted)
			if l.q.states != 0 && !l.q.states.has(state) {
				continue
			}
			l.list.total++
		}
		if l.keep(x, at); enough && len(l.found) == l.q.limit {
			if l.q.after != nil && quick { // what is after the page
				l.later += l.walk.pass(x, math.MaxInt)
			}
			return false
		}
	}
	return !l.walk.done
}

// keep keeps a task that matches if it may be on the page.
func (l *pageMaker) keep(x *slotTable, at int) {
	p := taskPlace{x.marks[at].rank(l.q.order, x.kinds[at].state()), x.seqs[at]}
	if l.q.after != nil && l.q.compare(p, *l.q.after) <= 0 {
		return
	}
	l.later++
	if l.q.order == orderCreated { // they come in order
		if l.later > l.q.skip && len(l.found) < l.q.limit {
			l.found = append(l.found, p)
		}
		return
	}
	if l.q.skip+l.q.limit > 0 && (l.least == nil || l.q.compare(p, *l.least) <= 0) {
		l.found = append(l.found, p)
	}
}

// cut forgets what is on no page. The memory of a list depends on its page, not on how many tasks match. The lock is free,
// because there may be many.
func (l *pageMaker) cut() {
	if most := l.q.skip + l.q.limit; l.q.order != orderCreated && len(l.found) >= 2*most+4096 {
		sortPart(l.found, most-1, most, l.q.compare)
		l.found = l.found[:most]
		l.least = new(l.found[most-1])
	}
}

// finish makes the page of what was found.
func (l *pageMaker) finish(s *store) {
	if l.q.after != nil {
		l.list.before = l.list.total - l.later
	}
	now := s.clock.now()
	for _, p := range l.found {
		sl := s.tasks.slotAt(p.seq)
		if sl == nil || !l.wants(&s.tasks, sl) {
			continue
		}
		l.list.tasks = append(l.list.tasks, sl.kept(now))
		l.list.seq = max(l.list.seq, s.lastSeqLocked(sl))
	}
	if n := len(l.found); n > 0 {
		l.list.last = l.found[n-1]
	}
}

// wants reports whether a task is on the page as it is now.
func (l *pageMaker) wants(x *slotTable, sl *slot) bool {
	return (l.q.states == 0 || l.q.states.has(sl.state)) && l.walk.templates[x.index.numbers[sl.tpl]] &&
		l.m.matches(x.place(sl.seq))
}

// sortPart sorts only as far as needed to have the right elements at the indexes i with from <= i < to, and the
// elements before and after these on their sides.
func sortPart[T any](all []T, from, to int, compare func(a, b T) int) {
	// Quicksort that leaves parts without wanted indexes unsorted.
	for len(all) > 1 && from < len(all) && to > 0 {
		pivot, i, j := all[len(all)/2], 0, len(all)-1
		for i <= j {
			for compare(all[i], pivot) < 0 {
				i++
			}
			for compare(all[j], pivot) > 0 {
				j--
			}
			if i <= j {
				all[i], all[j] = all[j], all[i]
				i, j = i+1, j-1
			}
		}
		sortPart(all[:j+1], from, to, compare)
		all, from, to = all[i:], from-i, to-i
	}
}
