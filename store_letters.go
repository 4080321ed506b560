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
	meet      bitMeet                   // room for a list
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

// dlqFilter selects entries; nil members and 0 select all.
type dlqFilter struct {
	status  *dlqStatus
	reason  *dlqReason
	failure failureGroup // with a step of the entry's task in it now
}

// page returns one page of the matching entries, newest first. If some is not nil, only its rows match.
func (x *dlqIndex) page(f dlqFilter, some *bitset, skip, limit int) []dlqRow {
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
	var page []dlqRow
	x.meet.of(sets...).descend(skip, func(i uint32) bool {
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

// page returns one page of the letters that match, newest first, and for each
// the log of its task.
func (d *storedLetters) page(f dlqFilter, skip, limit int) (page []dlqRow, logs []taskLog) {
	d.mu.Lock()
	defer d.mu.Unlock()
	page = d.index.page(f, d.failing(f.failure), skip, limit)
	logs = make([]taskLog, len(page))
	for i, r := range page {
		pos, _ := d.tasks.find(r.task)
		logs[i] = d.tasks.logAt(pos)
	}
	return page, logs
}

// failing returns the rows of the letters of tasks with a step in a failure group; nil for none. It looks at all rows.
func (d *storedLetters) failing(g failureGroup) *bitset {
	if g == 0 {
		return nil
	}
	rows, tasks := new(bitset), d.tasks.index.failures.tasksOf(g)
	for i := range d.index.rows {
		if pos, ok := d.tasks.find(d.index.rows[i].task); ok && tasks.has(pos) {
			rows.set(uint32(i))
		}
	}
	return rows
}

// queuedLetter is a letter of the investigation queue and its task as it is now.
type queuedLetter struct {
	dlqRow
	tpl   *template
	state taskState
	since instant // when the task came into the state
}

// queue returns the pending letters with the highest priority, highest
// first; of one reason alone unless that is nil.
func (d *storedLetters) queue(only *dlqReason, now instant, limit int) []queuedLetter {
	d.mu.Lock()
	defer d.mu.Unlock()
	rows := d.index.queue(only, now, limit)
	queue := make([]queuedLetter, len(rows))
	for i, r := range rows {
		pos, _ := d.tasks.find(r.task)
		sl, x := &d.tasks.slots[pos], d.tasks.index
		queue[i] = queuedLetter{r, sl.in.key.tpl, x.stateAt(pos), x.completed.at(pos)}
		if sl.live != nil {
			queue[i].since = sl.live.since
		}
	}
	return queue
}

// figures returns the statistics of the dead letter queue.
func (d *storedLetters) figures() []dlqFigures {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.index.figures()
}
