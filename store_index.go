package main

// Indexes over the tasks: the positions with a state, a namespace, a name and
// so on. They find a page for any combination of filters without looking at the
// tasks. Then the index of the dead letter queue.

import (
	"cmp"
	"slices"
	"time"
)

// taskFilter selects tasks; empty members select all, as do a nil state and
// status.
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
	statuses    [briefStatuses]bitset // each the union of its states
	steps       [stepStates]int       // number of steps of all tasks in each state
	byNamespace positionIndex
	byName      positionIndex
	byVersion   positionIndex
	byInitiator positionIndex
	bySource    positionIndex
	postings    map[postingsKey]*postings
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

func newTaskIndex() *taskIndex {
	return &taskIndex{
		byNamespace: positionIndex{}, byName: positionIndex{}, byVersion: positionIndex{},
		byInitiator: positionIndex{}, bySource: positionIndex{}, postings: map[postingsKey]*postings{},
	}
}

// insert adds a pending task. Its steps are counted as they are created.
func (x *taskIndex) insert(pos uint32, tpl *template, by *creation) *postings {
	x.all.set(pos)
	x.states[taskPending].set(pos)
	x.statuses[briefPending].set(pos)
	p := x.postingsFor(postingsKey{tpl, by.initiator, by.source})
	p.tasks++
	p.states[taskPending]++
	for _, in := range p.in {
		in.insert(pos)
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

// remove removes a task that has this state and these steps.
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

// relocate moves a task to a lower position, with no task between the two.
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

// trim frees the memory for positions above the highest task.
func (x *taskIndex) trim() {
	x.all.trim()
	for _, set := range x.stateSets() {
		set.trim()
	}
}

// stateSets returns the sets by state and by status.
func (x *taskIndex) stateSets() (sets [int(taskStates) + int(briefStatuses)]*bitset) {
	for i := range x.states {
		sets[i] = &x.states[i]
	}
	for i := range x.statuses {
		sets[len(x.states)+i] = &x.statuses[i]
	}
	return sets
}

// move moves a task from one state to another.
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

// page returns the positions of one page, newest first, and the number of all
// matching tasks.
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

// maxCounted is how many postings are searched before the sets are.
const maxCounted = 1024

// nothing reports that no task matches, if that is cheap to find out. Otherwise
// large sets without a common position would be searched completely.
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

// matches reports whether the key matches the filter, apart from the states.
func (k postingsKey) matches(f *taskFilter) bool {
	return (f.namespace == "" || f.namespace == k.tpl.namespace) && (f.name == "" || f.name == k.tpl.name) &&
		(f.version == "" || f.version == k.tpl.version) && (f.initiator == "" || f.initiator == k.initiator) &&
		(f.source == "" || f.source == k.source)
}

// some reports whether a task is in a state that the filter selects.
func (p *postings) some(f *taskFilter) bool {
	for s, n := range p.states {
		state := taskState(s)
		if n > 0 && (f.state == nil || *f.state == state) && (f.status == nil || *f.status == state.brief()) {
			return true
		}
	}
	return false
}

// pageOfFew is page for a filter that selects few positions, given in
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

// matching returns what the filter selects: the intersection of the sets and,
// unless it is nil, of few, in descending order. It reports false if nothing
// matches.
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

// positions is a growing set of positions: a short list, which suits values
// that are nearly unique, or a bitset.
type positions struct {
	few  []uint32 // ascending; used while many is nil
	many *bitset
}

// maxFew is the most positions of a list.
const maxFew = 64

func (x positionIndex) get(key string) *positions {
	p := x[key]
	if p == nil {
		p = &positions{}
		x[key] = p
	}
	return p
}

func (p *positions) insert(pos uint32) {
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

// The index of the dead letter queue: all entries in the order they were made,
// by reason and by status, and the figures that need no scan.

// dlqRow is one entry in the index. The entry itself is in its task.
type dlqRow struct {
	letterHeader
	id   uuid
	task uuid
	n    uint32 // index among the task's entries
}

// dlqIndex is guarded by the store's mutex. Rows are numbered in the order in
// which the entries were made.
type dlqIndex struct {
	rows      []dlqRow
	byID      map[uuid]uint32
	all       bitset
	byReason  [dlqReasons]bitset
	byStatus  [dlqStatuses]bitset
	pending   [dlqReasons]bitset
	counts    [dlqReasons][dlqStatuses]int
	resolving [dlqReasons]time.Duration // total time that entries took to leave Pending
	holes     int                       // rows of dropped tasks; their id is zero
}

// took returns how long the entry took to leave Pending; never negative, even
// if the clock was set back.
func (h *letterHeader) took() time.Duration { return max(h.resolved.sub(h.at), 0) }

func newDLQIndex() *dlqIndex { return &dlqIndex{byID: map[uuid]uint32{}} }

// appendDLQRows appends the rows of one task's entries.
func appendDLQRows(rows []dlqRow, id uuid, letters []letterHeader) []dlqRow {
	for n, h := range letters {
		rows = append(rows, dlqRow{h, dlqEntryID(id, h.at, h.seq), id, uint32(n)})
	}
	return rows
}

// maxDLQHoles is how many rows without an entry there may be beyond as many
// with one.
const maxDLQHoles = 1024

// inOrder returns an index of the same entries in the order in which they were
// made; a start finds them in another order.
func (x *dlqIndex) inOrder() *dlqIndex {
	slices.SortFunc(x.rows, func(a, b dlqRow) int { return cmp.Compare(a.seq, b.seq) })
	y := newDLQIndex()
	for _, r := range x.rows {
		if !r.id.isZero() {
			y.insert(r)
		}
	}
	return y
}

// update brings the index up to date with the entries of a changed task.
func (x *dlqIndex) update(t *task) {
	for n := range t.dead {
		h := t.dead[n].letterHeader
		id := dlqEntryID(t.id, h.at, h.seq)
		i, ok := x.byID[id]
		if !ok {
			x.insert(dlqRow{h, id, t.id, uint32(n)})
			continue
		}
		if x.rows[i].letterHeader != h {
			x.unmark(i)
			x.rows[i].letterHeader = h
			x.mark(i)
		}
	}
}

// remove removes the entries of a task.
func (x *dlqIndex) remove(task uuid, letters []letterHeader) {
	for _, h := range letters {
		id := dlqEntryID(task, h.at, h.seq)
		i, ok := x.byID[id]
		if !ok {
			continue
		}
		x.unmark(i)
		x.all.clear(i)
		x.byReason[h.reason].clear(i)
		delete(x.byID, id)
		x.rows[i] = dlqRow{}
		x.holes++
	}
	if x.holes > maxDLQHoles+len(x.byID) {
		*x = *x.inOrder()
	}
}

func (x *dlqIndex) insert(r dlqRow) {
	i := uint32(len(x.rows))
	x.rows = append(x.rows, r)
	x.byID[r.id] = i
	x.all.set(i)
	x.byReason[r.reason].set(i)
	x.mark(i)
}

// mark counts a row under its status.
func (x *dlqIndex) mark(i uint32) {
	r := &x.rows[i]
	x.byStatus[r.status].set(i)
	if r.status == dlqPending {
		x.pending[r.reason].set(i)
	}
	x.count(r, 1)
}

// unmark undoes mark.
func (x *dlqIndex) unmark(i uint32) {
	r := &x.rows[i]
	x.byStatus[r.status].clear(i)
	x.pending[r.reason].clear(i)
	x.count(r, -1)
}

func (x *dlqIndex) count(r *dlqRow, n int) {
	x.counts[r.reason][r.status] += n
	if r.status != dlqPending {
		x.resolving[r.reason] += time.Duration(n) * r.took()
	}
}

func (x *dlqIndex) find(id uuid) (dlqRow, bool) {
	i, ok := x.byID[id]
	if !ok {
		return dlqRow{}, false
	}
	return x.rows[i], true
}

// dlqFilter selects entries; nil members select all.
type dlqFilter struct {
	status *dlqStatus
	reason *dlqReason
}

// page returns one page of the matching entries, newest first.
func (x *dlqIndex) page(f dlqFilter, skip, limit int) []dlqRow {
	sets := []*bitset{&x.all}
	if f.status != nil {
		sets = append(sets, &x.byStatus[*f.status])
	}
	if f.reason != nil {
		sets = append(sets, &x.byReason[*f.reason])
	}
	var page []dlqRow
	descend(sets, skip, func(i uint32) bool {
		page = append(page, x.rows[i])
		return len(page) < limit
	})
	return page
}

// waited returns how old the entry is at the instant now; never negative.
func (r *dlqRow) waited(now instant) time.Duration { return max(now.sub(r.at), 0) }

// dlqWeights is the weight of each reason in the investigation queue.
var dlqWeights = [dlqReasons]float64{
	dlqDependencyCycle: 1000, dlqMaxRetriesExceeded: 500, dlqStalenessTimeout: 100, dlqWorkerUnavailable: 50,
	dlqManual: 10,
}

// priority returns an entry's priority in the investigation queue at the
// instant now.
func (r *dlqRow) priority(now instant) float64 {
	return dlqWeights[r.reason] + r.waited(now).Minutes()
}

// queue returns the pending entries with the highest priority, highest first;
// of one reason only, unless that is nil. Within a reason those are the oldest,
// so it looks at no more than limit of each.
func (x *dlqIndex) queue(only *dlqReason, now instant, limit int) []dlqRow {
	var rows []dlqRow
	for reason := range x.pending {
		if only != nil && *only != dlqReason(reason) {
			continue
		}
		set := &x.pending[reason]
		i, ok := set.next(0)
		for n := 0; ok && n < limit; n++ {
			rows = append(rows, x.rows[i])
			i, ok = set.next(i + 1)
		}
	}
	slices.SortStableFunc(rows, func(a, b dlqRow) int { return cmp.Compare(b.priority(now), a.priority(now)) })
	return rows[:min(limit, len(rows))]
}

// dlqFigures is the statistics of one reason.
type dlqFigures struct {
	reason         dlqReason
	counts         [dlqStatuses]int
	total          int
	oldest, newest instant
	resolving      time.Duration // in sum, of entries that are not pending
}

// figures returns the statistics of each reason that has entries.
func (x *dlqIndex) figures() []dlqFigures {
	var list []dlqFigures
	for reason := range x.byReason {
		set := &x.byReason[reason]
		oldest, ok := set.next(0)
		if !ok {
			continue
		}
		f := dlqFigures{
			reason: dlqReason(reason), counts: x.counts[reason], total: set.count(),
			oldest: x.rows[oldest].at, resolving: x.resolving[reason],
		}
		descend([]*bitset{set}, 0, func(i uint32) bool {
			f.newest = x.rows[i].at
			return false
		})
		list = append(list, f)
	}
	return list
}

// deadLetters returns one page of the letters that match, newest first, and for each
// the log of its task.
func (s *store) deadLetters(f dlqFilter, skip, limit int) (page []dlqRow, logs []taskLog) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page = s.dead.page(f, skip, limit)
	logs = make([]taskLog, len(page))
	for i, r := range page {
		logs[i] = s.logLocked(s.byID[r.task])
	}
	return page, logs
}

// queuedLetter is a letter of the investigation queue and its task as it is now.
type queuedLetter struct {
	dlqRow
	tpl   *template
	state taskState
	since instant // when the task came into the state
}

// letterQueue returns the pending letters with the highest priority, highest
// first; of one reason alone unless that is nil.
func (s *store) letterQueue(only *dlqReason, now instant, limit int) ([]queuedLetter, error) {
	s.mu.Lock()
	rows := s.dead.queue(only, now, limit)
	queue := make([]queuedLetter, len(rows))
	ended := make([][]byte, len(rows)) // lines of tasks that ended
	for i, r := range rows {
		queue[i].dlqRow = r
		sl := &s.slots[s.byID[r.task]]
		if t := sl.live; t != nil {
			queue[i].tpl, queue[i].state, queue[i].since = t.tpl, t.state, t.since
		} else {
			ended[i] = sl.line
		}
	}
	s.mu.Unlock()
	for i, line := range ended {
		if line == nil {
			continue
		}
		h, err := readTaskHeader(line)
		if err != nil {
			return nil, err
		}
		queue[i].tpl, queue[i].state, queue[i].since = s.template(h.template), h.state, h.completed
	}
	return queue, nil
}

// dlqFigures returns the statistics of the dead letter queue.
func (s *store) dlqFigures() []dlqFigures {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead.figures()
}

// figures returns everything that was counted, and the states, as of one
// moment.
func (s *store) figures() (*frozenFigures, stateCounts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.analytics.freeze()
	if s.retain.dropped == 0 && len(s.slots) > 0 {
		f.first = s.slots[0].created()
	}
	return f, s.countsLocked()
}

// created returns when the task in a slot was created.
func (sl slot) created() instant {
	if sl.live != nil {
		return sl.live.created
	}
	h, _ := readTaskHead(sl.line)
	return h.created
}

// counts returns how many tasks and steps are in each state.
func (s *store) counts() stateCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.countsLocked()
}

func (s *store) countsLocked() stateCounts {
	c := stateCounts{steps: s.index.steps}
	for i := range c.tasks {
		c.tasks[i] = s.index.states[i].count()
	}
	return c
}

// count returns how many tasks match.
func (s *store) count(f *taskFilter) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, n := s.index.page(f, len(s.slots), 1)
	return n
}
