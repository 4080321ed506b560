package main

// The index of the dead letter queue: all entries in the order they were made, by reason and by
// status, and the figures that need no scan.

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// dlqRow is one entry in the index. The entry itself is in its task.
type dlqRow struct {
	letterHeader
	id   uuid
	task uuid
	n    uint32 // index among the task's entries
	step int32  // the step of the template that stopped the task; -1 for none
	tpl  *template
	over bool // the task has completed or was cancelled since
}

// dlqIndex is guarded by the store's mutex. Rows are numbered in the order in
// which the entries were made.
type dlqIndex struct {
	rows      []dlqRow
	byID      map[uuid]uint32
	all       bitset
	byReason  [dlqReasons]bitset
	byStatus  [dlqStatuses]bitset
	byOver    [2]bitset // the rows that are not over, and those that are
	counts    [dlqReasons][dlqStatuses]int
	resolving [dlqReasons]time.Duration // total time that entries took to leave Pending
	holes     int                       // rows of dropped tasks; their id is zero
	meet      bitMeet                   // room for a list
}

// took returns how long the entry took to leave Pending; never negative, even
// if the clock was set back.
func (h *letterHeader) took() time.Duration { return max(h.resolved.sub(h.at), 0) }

func newDLQIndex() *dlqIndex { return &dlqIndex{byID: map[uuid]uint32{}} }

// letterRow returns the row of one of a task's entries.
func (t *task) letterRow(n int) dlqRow {
	d, step := &t.dead[n], -1
	if d.step >= 0 {
		step = t.declared(d.step)
	}
	return dlqRow{d.letterHeader, dlqEntryID(t.id, d.at, d.seq), t.id, uint32(n), int32(step), t.tpl, t.state.final()}
}

// maxDLQHoles is how many more rows without an entry there may be than rows with one.
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
		r := t.letterRow(n)
		i, ok := x.byID[r.id]
		if !ok {
			x.insert(r)
			continue
		}
		if x.rows[i] != r {
			x.unmark(i)
			x.rows[i] = r
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

// mark counts a row under what may change of it.
func (x *dlqIndex) mark(i uint32) {
	r := &x.rows[i]
	x.byStatus[r.status].set(i)
	x.byOver[boolCount(r.over)].set(i)
	x.count(r, 1)
}

// unmark undoes mark.
func (x *dlqIndex) unmark(i uint32) {
	r := &x.rows[i]
	x.byStatus[r.status].clear(i)
	x.byOver[boolCount(r.over)].clear(i)
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

// dlqFilter selects entries; nil, empty and zero members select all.
type dlqFilter struct {
	status          *dlqStatus
	reason          *dlqReason
	failure         failureGroup // with a step of the entry's task in it now
	over            *bool
	namespace, name string // of the template
	step            string // of the template, that stopped the task
	made            period
}

// selects reports whether the filter selects a row by what has no index.
func (f *dlqFilter) selects(r *dlqRow) bool {
	return (f.namespace == "" || f.namespace == r.tpl.namespace) && (f.name == "" || f.name == r.tpl.name) &&
		(f.step == "" || r.step >= 0 && f.step == r.tpl.steps[r.step].name) && f.made.has(r.at)
}

// matching returns the rows of the matching entries, until the next call. If some is not nil, only its rows match.
func (x *dlqIndex) matching(f *dlqFilter, some *bitset) *bitset {
	sets := []positionSet{&x.all}
	if some != nil {
		sets = append(sets, some)
	}
	if f.status != nil {
		sets = append(sets, &x.byStatus[*f.status])
	}
	if f.reason != nil {
		sets = append(sets, &x.byReason[*f.reason])
	}
	if f.over != nil {
		sets = append(sets, &x.byOver[boolCount(*f.over)])
	}
	found := x.meet.of(sets...)
	if f.namespace+f.name+f.step == "" && f.made == (period{}) {
		return found
	}
	// The other members of the filter have no index, so each row is looked at.
	selected := new(bitset)
	found.descend(0, func(i uint32) bool {
		if f.selects(&x.rows[i]) {
			selected.set(i)
		}
		return true
	})
	return selected
}

// page returns one page of the matching entries, newest first, and how many match.
func (x *dlqIndex) page(f dlqFilter, some *bitset, skip, limit int) (page []dlqRow, total int) {
	found := x.matching(&f, some)
	found.descend(skip, func(i uint32) bool {
		page = append(page, x.rows[i])
		return len(page) < limit
	})
	return page, found.count()
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

// queue returns one page of the matching pending entries, highest priority first, and how
// many match. Within a reason those are the oldest, so it sorts no more than the page and
// those before it of each.
func (x *dlqIndex) queue(f dlqFilter, some *bitset, now instant, skip, limit int) (rows []dlqRow, total int) {
	only := f.reason
	f.status = new(dlqPending)
	for reason := range dlqReasons {
		if only != nil && *only != reason {
			continue
		}
		f.reason = &reason
		set := x.matching(&f, some)
		total += set.count()
		i, ok := set.next(0)
		for n := 0; ok && n < skip+limit; n++ {
			rows = append(rows, x.rows[i])
			i, ok = set.next(i + 1)
		}
	}
	slices.SortStableFunc(rows, func(a, b dlqRow) int { return cmp.Compare(b.priority(now), a.priority(now)) })
	rows = rows[min(skip, len(rows)):]
	return rows[:min(limit, len(rows))], total
}

// dlqFigures is the statistics of one reason.
type dlqFigures struct {
	reason         dlqReason
	counts         [dlqStatuses]int
	total, over    int // entries, and pending entries whose task is over
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
			over: x.meet.of(set, &x.byStatus[dlqPending], &x.byOver[1]).count(),
		}
		set.descend(0, func(i uint32) bool {
			f.newest = x.rows[i].at
			return false
		})
		list = append(list, f)
	}
	return list
}

// storedLetters answers what is asked about the dead letter queue.
type storedLetters struct {
	mu    *sync.Mutex // the store's; it guards what follows
	tasks *slotTable
	index *dlqIndex
}

// page returns one page of the letters that match, newest first, for each the log of its task,
// and how many match.
func (d *storedLetters) page(f dlqFilter, skip, limit int) (page []dlqRow, logs []taskLog, total int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	page, total = d.index.page(f, d.failing(f.failure), skip, limit)
	logs = make([]taskLog, len(page))
	for i, r := range page {
		pos, _ := d.tasks.find(r.task)
		logs[i] = d.tasks.logAt(pos)
	}
	return page, logs, total
}

// failing returns the rows of the letters of tasks with a step in a failure group; nil for every group.
func (d *storedLetters) failing(g failureGroup) *bitset {
	if g == 0 {
		return nil
	}
	rows, tasks := new(bitset), d.tasks.index.failures.tasksOf(g)
	for pos, ok := tasks.next(0); ok; pos, ok = tasks.next(pos + 1) {
		var letters []letterHeader
		sl := &d.tasks.slots[pos]
		if sl.live != nil {
			letters = sl.live.letterHeaders()
		} else if h, err := readTaskHead(sl.line.text()); err == nil {
			letters = h.dead
		}
		for _, l := range letters {
			rows.set(d.index.byID[dlqEntryID(sl.id, l.at, l.seq)])
		}
	}
	return rows
}

// queuedLetter is a letter of the investigation queue and its task as it is now.
type queuedLetter struct {
	dlqRow
	log   taskLog
	state taskState
	since instant // when the task came into the state
}

// queue returns one page of the pending letters that match, highest priority first, and how
// many match.
func (d *storedLetters) queue(f dlqFilter, now instant, skip, limit int) ([]queuedLetter, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rows, total := d.index.queue(f, d.failing(f.failure), now, skip, limit)
	queue := make([]queuedLetter, len(rows))
	for i, r := range rows {
		pos, _ := d.tasks.find(r.task)
		sl, x := &d.tasks.slots[pos], d.tasks.index
		queue[i] = queuedLetter{r, d.tasks.logAt(pos), x.stateAt(pos), x.completed.at(pos)}
		if sl.live != nil {
			queue[i].since = sl.live.since
		}
	}
	return queue, total
}

// figures returns the statistics of the dead letter queue.
func (d *storedLetters) figures() []dlqFigures {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.index.figures()
}
