package main

// The dead letter queue: all entries in the order they were made. Pages and figures come from a look at each.

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"time"
)

// dlqRow is one entry in the index. The entry itself is in its task.
type dlqRow struct {
	deadLetter
	id       uuid
	task     uuid
	n        int // index among the task's entries
	declared int // the step of the template that stopped the task; -1 for none
	tpl      *template
	over     bool     // the task has completed or was cancelled since
	in       *trouble // of the task
}

// storedLetters answers what is asked about the dead letter queue.
type storedLetters struct {
	mu     *sync.Mutex // the store's; it guards what follows
	tasks  *slotTable
	rows   []*dlqRow // in the order in which the entries were made; the id of one of a dropped task is zero
	byID   map[uuid]*dlqRow
	counts [dlqReasons][dlqStatuses]int
}

// took returns how long the entry took to leave Pending; never negative, even if the clock was set back.
func (d *deadLetter) took() time.Duration { return max(d.resolved.sub(d.at), 0) }

// letterRow returns the row of one of a task's entries.
func (t *task) letterRow(n int) dlqRow {
	d, step := &t.dead[n], -1
	if d.step >= 0 {
		step = t.declared(d.step)
	}
	return dlqRow{*d, dlqEntryID(t.id, d.at, d.seq), t.id, n, step, t.tpl, t.state.final(), nil}
}

// maxDLQHoles is how many more rows without an entry there may be than rows with one.
const maxDLQHoles = 1024

// sort puts the entries into the order in which they were made; a start finds them in another one. Whoever looks at the
// rows keeps those that it has.
func (d *storedLetters) sort() {
	d.rows = slices.DeleteFunc(slices.Clone(d.rows), func(r *dlqRow) bool { return r.id.isZero() })
	slices.SortFunc(d.rows, func(a, b *dlqRow) int { return cmp.Compare(a.seq, b.seq) })
}

// update brings the index up to date with the entries of a changed task.
func (d *storedLetters) update(t *task, in *trouble) {
	for n := range t.dead {
		row := t.letterRow(n)
		row.in = in
		r := d.byID[row.id]
		if r == nil {
			r = &dlqRow{}
			d.byID[row.id] = r
			d.rows = append(d.rows, r)
		} else {
			d.counts[r.reason][r.status]--
		}
		*r = row
		d.counts[r.reason][r.status]++
	}
}

// remove removes the entries of a task.
func (d *storedLetters) remove(sl *slot) {
	for _, l := range sl.dead {
		id := dlqEntryID(sl.id, l.at, l.seq)
		if r := d.byID[id]; r != nil {
			d.counts[r.reason][r.status]--
			*r = dlqRow{}
			delete(d.byID, id)
		}
	}
	if len(d.rows) > maxDLQHoles+2*len(d.byID) {
		d.sort()
	}
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

func (d *storedLetters) selects(f *dlqFilter, r *dlqRow) bool {
	return !r.id.isZero() && (f.status == nil || *f.status == r.status) && (f.reason == nil || *f.reason == r.reason) &&
		(f.over == nil || *f.over == r.over) && (f.namespace == "" || f.namespace == r.tpl.namespace) && (f.name == "" || f.name == r.tpl.name) &&
		(f.step == "" || r.declared >= 0 && f.step == r.tpl.steps[r.declared].name) && f.made.has(r.at) &&
		(f.failure == 0 || r.in.failsIn(f.failure))
}

// waited returns how old the entry is at the instant now; never negative.
func (r *dlqRow) waited(now instant) time.Duration { return max(now.sub(r.at), 0) }

// dlqWeights is the weight of each reason in the investigation queue.
var dlqWeights = [dlqReasons]float64{
	dlqDependencyCycle: 1000, dlqMaxRetriesExceeded: 500, dlqStalenessTimeout: 100, dlqWorkerUnavailable: 50,
	dlqManual: 10,
}

// priority returns an entry's priority in the investigation queue at the instant now.
func (r *dlqRow) priority(now instant) float64 {
	return dlqWeights[r.reason] + r.waited(now).Minutes()
}

// dlqFigures is the statistics of one reason.
type dlqFigures struct {
	reason         dlqReason
	counts         [dlqStatuses]int
	total, over    int // entries, and pending entries whose task is over
	oldest, newest instant
	resolving      time.Duration // in sum, of entries that are not pending
}

// lettersPerLook is how many entries are looked at under the lock at a time.
const lettersPerLook = 8192

// each iterates over the entries that match, the newest first. It takes the lock for some of them at a time, and the body
// of the loop runs under it.
func (d *storedLetters) each(f *dlqFilter) iter.Seq[*dlqRow] {
	return func(yield func(*dlqRow) bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		for i, r := range slices.Backward(d.rows) {
			if i%lettersPerLook == 0 {
				d.mu.Unlock()
				d.mu.Lock()
			}
			if d.selects(f, r) && !yield(r) {
				return
			}
		}
	}
}

// page returns one page of the letters that match, newest first, for each its task, and how many match.
func (d *storedLetters) page(f dlqFilter, skip, limit int) (page []dlqRow, tasks []keptTask, total int) {
	for r := range d.each(&f) {
		if total++; total > skip && len(page) < limit {
			page, tasks = append(page, *r), append(tasks, d.tasks.byID[r.task].kept(0))
		}
	}
	return page, tasks, total
}

// queuedLetter is a letter of the investigation queue and its task as it is now.
type queuedLetter struct {
	dlqRow
	kept  keptTask
	state taskState
	since instant // when the task came into the state
}

// queue returns one page of the pending letters that match, highest priority first, and how many match.
func (d *storedLetters) queue(f dlqFilter, now instant, skip, limit int) (queue []queuedLetter, total int) {
	type queued struct {
		row      *dlqRow
		seq      uint64
		reason   dlqReason
		priority float64
	}
	var all []queued
	f.status = new(dlqPending)
	for r := range d.each(&f) {
		all = append(all, queued{r, r.seq, r.reason, r.priority(now)})
	}
	// Without the lock, because there may be many.
	sortPart(all, skip, skip+limit, func(a, b queued) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.reason, b.reason), cmp.Compare(a.seq, b.seq))
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range all[min(skip, len(all)):min(skip+limit, len(all))] {
		sl := d.tasks.byID[q.row.task]
		if sl == nil { // dropped meanwhile
			continue
		}
		l := queuedLetter{*q.row, sl.kept(0), sl.state, sl.completed}
		if sl.live != nil {
			l.since = sl.live.since
		}
		queue = append(queue, l)
	}
	return queue, len(all)
}

// figures returns the statistics of each reason that has entries.
func (d *storedLetters) figures() (list []dlqFigures) {
	var all [dlqReasons]dlqFigures
	for r := range d.each(&dlqFilter{}) {
		f := &all[r.reason]
		f.reason, f.oldest = r.reason, r.at
		if f.total++; f.total == 1 {
			f.newest = r.at
		}
		f.counts[r.status]++
		if r.status == dlqPending {
			f.over += boolCount(r.over)
		} else {
			f.resolving += r.took()
		}
	}
	for _, f := range all {
		if f.total > 0 {
			list = append(list, f)
		}
	}
	return list
}
