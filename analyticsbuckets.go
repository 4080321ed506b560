package main

// Where the figures are kept: for every template and every step of one, a row
// over all time and a row for each of the last hours in which something was
// counted. A reader gets all of it as of one moment without a copy: rows are
// shared until they change (see freeze).

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// keptHours is how many full hours are kept beside the current one, so that
// the last 720 hours are covered at any minute. Older hours are in the row over
// all time alone.
const keptHours = 720

const hourMicros = int64(time.Hour / time.Microsecond)

// hourOf is the hour of an instant, counted from the Unix epoch.
func hourOf(at instant) int64 {
	h := int64(at) / hourMicros
	if int64(at)%hourMicros < 0 {
		h--
	}
	return h
}

// hourStart is the instant at which an hour begins.
func hourStart(hour int64) instant { return instant(hour * hourMicros) }

// figure is one of the counts in a row.
type figure uint8

const (
	tasksCreated figure = iota
	tasksCompleted
	tasksFailed // became blocked_by_failures or error
	tasksCancelled
	stepsCreated
	stepsCompleted
	stepsFailed // for good
	stepsCancelled
	stepsResolved
	attemptsEnded    // with success or not
	attemptsFailed   // of these
	attemptsMeasured // of these: it is known how long they ran
	attemptMicros    // how long those ran, together
	retriesEnded     // attempts but the first of their step
	retriesSucceeded // of these
	dependencyWaits  // steps with dependencies that became ready for the first time
	dependencyMicros // how long after their task's creation, together
	figureCount      // how many there are
)

// figureNames stand in the snapshot.
var figureNames = [figureCount]string{
	"tasks_created", "tasks_completed", "tasks_failed", "tasks_cancelled",
	"steps_created", "steps_completed", "steps_failed", "steps_cancelled", "steps_resolved",
	"attempts_ended", "attempts_failed", "attempts_measured", "attempt_micros",
	"retries_ended", "retries_succeeded", "dependency_waits", "dependency_micros",
}

// figureRow is what was counted over one span of time.
type figureRow struct {
	gen    uint64 // the generation that may change it; see freeze
	hour   int64  // 0 in a row over all time
	counts [figureCount]uint64
	times  logHistogram // of a template: creation to completion; of a step: attempts
	types  []typeCount  // failed attempts by error type, ascending
	last   instant      // when a task last completed or failed; an attempt last ended
}

// typeCount counts an error type by its place in handlerErrorTypes; the one
// after the last stands for all others.
type typeCount struct {
	kind  uint8
	count uint64
}

// clone is a copy for another generation.
func (r *figureRow) clone(gen uint64) *figureRow {
	c := *r
	c.gen = gen
	c.times = r.times.clone()
	c.types = slices.Clone(r.types)
	return &c
}

// add counts all that another row has.
func (r *figureRow) add(o *figureRow) {
	for f, n := range o.counts {
		r.counts[f] += n
	}
	r.times.add(&o.times)
	for _, t := range o.types {
		r.addType(t.kind, t.count)
	}
	r.last = max(r.last, o.last)
}

func (r *figureRow) addType(kind uint8, n uint64) {
	i, found := slices.BinarySearchFunc(r.types, kind, func(t typeCount, kind uint8) int {
		return cmp.Compare(t.kind, kind)
	})
	if !found {
		r.types = slices.Insert(r.types, i, typeCount{kind: kind})
	}
	r.types[i].count += n
}

// figureSeries is the rows of one template, or of one step.
type figureSeries struct {
	gen  uint64
	all  *figureRow
	now  *figureRow   // the newest hour; nil before the first
	past []*figureRow // hours before it, ascending, only those in which something was counted
}

// templateFigures is all that is kept about one template. Definitions that
// share namespace, name and version share it.
type templateFigures struct {
	gen    uint64
	name   templateID
	own    *figureSeries
	names  []string        // of the steps; only ever appended to
	steps  []*figureSeries // by the same index; nil before something was counted
	byName map[string]int  // index of a step; not for readers of a frozen one
}

// templateID names one version of a template.
type templateID struct{ namespace, name, version string }

// figureBook is every row there is. The store's mutex guards it.
type figureBook struct {
	gen       uint64
	newest    int64         // the newest hour in which something was counted
	whole     *figureSeries // what the templates' own come to together; nil before the first
	templates []*templateFigures
	byName    map[templateID]int // index of a template
	lost      figureRow          // takes what belongs to an hour that is not kept any more
}

// frozenFigures is the book as it was at one moment. It never changes.
type frozenFigures struct {
	newest    int64
	whole     *figureSeries
	templates []*templateFigures
}

// freeze hands out the book as it is. What it holds belongs to the generation
// that ends here: whoever changes a series or row of an older generation
// changes a copy and puts that in its place. Slices that are shared are
// appended to but not written within their length.
func (b *figureBook) freeze() *frozenFigures {
	b.gen++
	return &frozenFigures{b.newest, b.whole, slices.Clone(b.templates)}
}

// template is the figures at a place of the book, to be changed.
func (b *figureBook) template(at int) *templateFigures {
	f := b.templates[at]
	if f.gen != b.gen {
		c := *f
		c.gen = b.gen
		c.steps = slices.Clone(f.steps)
		f = &c
		b.templates[at] = f
	}
	return f
}

// figurePair is the two rows in which an event counts.
type figurePair struct{ all, hour *figureRow }

func (p figurePair) add(f figure, n uint64) {
	p.all.counts[f] += n
	p.hour.counts[f] += n
}

func (p figurePair) observe(us int64) {
	p.all.times.observe(us)
	p.hour.times.observe(us)
}

func (p figurePair) addType(kind uint8) {
	p.all.addType(kind, 1)
	p.hour.addType(kind, 1)
}

func (p figurePair) seen(at instant) {
	p.all.last = max(p.all.last, at)
	p.hour.last = max(p.hour.last, at)
}

// taskPairs is the rows in which an event counts for its template and for the whole.
type taskPairs struct{ own, whole figurePair }

func (t *taskPairs) add(f figure, n uint64) {
	t.own.add(f, n)
	t.whole.add(f, n)
}

func (t *taskPairs) observe(us int64) {
	t.own.observe(us)
	t.whole.observe(us)
}

func (t *taskPairs) addType(kind uint8) {
	t.own.addType(kind)
	t.whole.addType(kind)
}

func (t *taskPairs) seen(at instant) {
	t.own.seen(at)
	t.whole.seen(at)
}

// addToWhole counts a template's series that comes from a snapshot in the whole.
func (b *figureBook) addToWhole(s *figureSeries) {
	whole := b.series(&b.whole)
	whole.all.add(s.all)
	for _, r := range s.past {
		b.hour(whole, r.hour).add(r)
	}
	if s.now != nil {
		b.hour(whole, s.now.hour).add(s.now)
	}
}

// rows is the rows of the series at p for an hour, to be changed.
func (b *figureBook) rows(p **figureSeries, hour int64) figurePair {
	s := b.series(p)
	return figurePair{s.all, b.hour(s, hour)}
}

// series is the series at p with its row over all time, to be changed.
func (b *figureBook) series(p **figureSeries) *figureSeries {
	s := *p
	if s == nil {
		s = &figureSeries{gen: b.gen, all: &figureRow{gen: b.gen}}
		*p = s
	}
	if s.gen != b.gen {
		c := *s
		c.gen, c.all = b.gen, s.all.clone(b.gen)
		s = &c
		*p = s
	}
	return s
}

// hour is the row for an hour of a series that may be changed, likewise.
func (b *figureBook) hour(s *figureSeries, hour int64) *figureRow {
	if s.now == nil || s.now.hour != hour {
		return b.otherHour(s, hour)
	}
	if s.now.gen != b.gen {
		s.now = s.now.clone(b.gen)
	}
	return s.now
}

// otherHour is the row for an hour that is not the newest of the series: a new
// one, or an older one when the clock went back or a start counts what it reads
// in another order than it happened.
func (b *figureBook) otherHour(s *figureSeries, hour int64) *figureRow {
	b.newest = max(b.newest, hour)
	if hour < b.newest-keptHours {
		return &b.lost
	}
	if s.now == nil || hour > s.now.hour {
		if s.now != nil {
			s.past = append(s.past, s.now)
		}
		s.now = &figureRow{gen: b.gen, hour: hour}
		s.past = s.past[firstHour(s.past, b.newest-keptHours):]
		return s.now
	}
	i := firstHour(s.past, hour)
	found := i < len(s.past) && s.past[i].hour == hour
	if found && s.past[i].gen == b.gen {
		return s.past[i]
	}
	s.past = slices.Clone(s.past)
	if found {
		s.past[i] = s.past[i].clone(b.gen)
	} else {
		s.past = slices.Insert(s.past, i, &figureRow{gen: b.gen, hour: hour})
	}
	return s.past[i]
}

// firstHour is the place of the first row that is not before an hour.
func firstHour(rows []*figureRow, hour int64) int {
	i, _ := slices.BinarySearchFunc(rows, hour, func(r *figureRow, hour int64) int {
		return cmp.Compare(r.hour, hour)
	})
	return i
}

// allTime, for an hour to begin with, stands for the row over all time.
const allTime = math.MinInt64

// since adds to sum what was counted in an hour and after it, and reports
// whether that was anything.
func (s *figureSeries) since(hour int64, sum *figureRow) bool {
	if s == nil {
		return false
	}
	if hour == allTime {
		sum.add(s.all)
		return true
	}
	rows := s.past[firstHour(s.past, hour):]
	for _, r := range rows {
		sum.add(r)
	}
	if s.now == nil || s.now.hour < hour {
		return len(rows) > 0
	}
	sum.add(s.now)
	return true
}

// find is the place of a template in the book; one that is not there yet is entered.
func (b *figureBook) find(name templateID) int {
	at, ok := b.byName[name]
	if !ok {
		at = len(b.templates)
		b.byName[name] = at
		b.templates = append(b.templates, &templateFigures{gen: b.gen, name: name, byName: map[string]int{}})
	}
	return at
}

// find is the place of a step among those of a template, entered likewise.
func (f *templateFigures) find(name string) int {
	at, ok := f.byName[name]
	if !ok {
		at = len(f.names)
		f.byName[name] = at
		f.names = append(f.names, name)
		f.steps = append(f.steps, nil)
	}
	return at
}
