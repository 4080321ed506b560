package main

// Where the figures are kept: every template, and every step of one, has a row
// over all time and a row for each of the last hours in which something was
// counted. A reader gets a copy of it as of one moment, see freeze.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// keptHours is how many full hours are kept beside the current one, so that the
// last 720 hours are covered at any minute. Older hours are only in the row
// over all time.
const keptHours = 720

// keptMinutes is how many full minutes are kept, beside the current one, of all templates together.
const keptMinutes = 180

const minuteMicros = int64(time.Minute / time.Microsecond)

// minuteOf returns the minute of an instant, and minuteStart the instant at which one begins.
func minuteOf(at instant) int64        { return int64(at) / minuteMicros }
func minuteStart(minute int64) instant { return instant(minute * minuteMicros) }

const hourMicros = int64(time.Hour / time.Microsecond)

// hourOf returns the hour of an instant, counted from the Unix epoch.
func hourOf(at instant) int64 {
	h := int64(at) / hourMicros
	if int64(at)%hourMicros < 0 { // rounded down before 1970, too
		h--
	}
	return h
}

// hourStart returns the instant at which an hour begins.
func hourStart(hour int64) instant { return instant(hour * hourMicros) }

// figure is one of the counts in a row.
type figure uint8

const (
	tasksCreated figure = iota
	tasksCompleted
	tasksFailed // entered blocked_by_failures or error
	tasksCancelled
	stepsCreated
	stepsCompleted
	stepsFailed // for good
	stepsCancelled
	stepsResolved
	attemptsEnded    // successfully or not
	attemptsFailed   // of these
	attemptsMeasured // of these, with a known duration
	attemptMicros    // the sum of those durations
	retriesEnded     // attempts after the first of their step
	retriesSucceeded // of these
	dependencyWaits  // steps with dependencies that became ready for the first time
	dependencyMicros // the sum of the times from their task's creation
	figureCount      // how many there are
)

// figureNames are the names of the counts in the lines.
var figureNames = [figureCount]string{
	"tasks_created", "tasks_completed", "tasks_failed", "tasks_cancelled",
	"steps_created", "steps_completed", "steps_failed", "steps_cancelled", "steps_resolved",
	"attempts_ended", "attempts_failed", "attempts_measured", "attempt_micros",
	"retries_ended", "retries_succeeded", "dependency_waits", "dependency_micros",
}

// figureRow holds the figures of one span of time.
type figureRow struct {
	hour   int64 // 0 in a row over all time; the minute in figures by the minute
	counts [figureCount]uint64
	times  latencyHistogram // of a template: creation to completion; of a step: attempts
	types  []typeCount      // failed attempts by error type, ascending
	last   instant          // when a task last completed or failed; an attempt last ended
}

// typeCount counts an error type by its index in handlerErrorTypes; otherErrorKind stands for all
// others.
type typeCount struct {
	kind  uint8
	count uint64
}

// clone returns a copy that later counts do not change; nil for nil.
func (r *figureRow) clone() *figureRow {
	if r == nil {
		return nil
	}
	c := *r
	c.times.bins = slices.Clone(r.times.bins)
	c.types = slices.Clone(r.types)
	return &c
}

// merge counts everything that another row has.
func (r *figureRow) merge(o *figureRow) {
	for f, n := range o.counts {
		r.counts[f] += n
	}
	r.times.merge(&o.times)
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
	all  *figureRow
	now  *figureRow   // the newest hour; nil before the first
	past []*figureRow // earlier hours in which something was counted, ascending; rows of it never change
}

// clone returns a copy that later counts do not change; nil for nil.
func (s *figureSeries) clone() *figureSeries {
	if s == nil {
		return nil
	}
	return &figureSeries{s.all.clone(), s.now.clone(), s.past}
}

// templateFigures is everything that is kept about one template. Definitions
// with the same namespace, name and version share it.
type templateFigures struct {
	name   templateID
	own    *figureSeries
	names  []string        // of the steps; only ever appended to
	steps  []*figureSeries // by the same index; nil until something is counted
	byName map[string]int  // index of a step; not for readers of frozen figures
}

// templateID names one version of a template.
type templateID struct{ namespace, name, version string }

// figureBook holds every row. The store's mutex guards it.
type figureBook struct {
	kept      int64         // how many full hours are kept beside the newest
	newest    int64         // the newest hour in which something was counted
	whole     *figureSeries // the sum of the templates' own series; nil before the first
	templates []*templateFigures
	byName    map[templateID]int // index of a template
	lost      figureRow          // receives the counts of hours that are no longer kept; nobody reads it
}

// frozenFigures is the book as it was at one moment. It never changes.
type frozenFigures struct {
	first     instant // when the first task was created; 0 if that is unknown
	newest    int64
	whole     *figureSeries
	templates []*templateFigures

	minutes *figureSeries // of all templates; nil before the first
	live    int64         // the minute from which on these are counted
}

// freeze returns a copy of the book as it is. It copies the rows that change with every count, two of each series; the
// rows of earlier hours are shared, because they are replaced if something counts in them.
func (b *figureBook) freeze() *frozenFigures {
	f := &frozenFigures{newest: b.newest, whole: b.whole.clone(), templates: make([]*templateFigures, len(b.templates))}
	for i, t := range b.templates {
		c := &templateFigures{name: t.name, own: t.own.clone(), names: t.names, steps: make([]*figureSeries, len(t.steps))}
		for n, s := range t.steps {
			c.steps[n] = s.clone()
		}
		f.templates[i] = c
	}
	return f
}

// began returns when the first task was created, or else the start of the first kept hour.
func (f *frozenFigures) began() instant {
	kept := f.whole.hours(allTime)
	if f.first != 0 || len(kept) == 0 {
		return f.first
	}
	return hourStart(kept[0].hour)
}

// figureRows are the rows in which one event counts.
type figureRows []*figureRow

func (rows figureRows) count(f figure, n uint64) {
	for _, r := range rows {
		r.counts[f] += n
	}
}

func (rows figureRows) observe(us int64) {
	for _, r := range rows {
		r.times.observe(us)
	}
}

func (rows figureRows) addType(kind uint8) {
	for _, r := range rows {
		r.addType(kind, 1)
	}
}

func (rows figureRows) seen(at instant) {
	for _, r := range rows {
		r.last = max(r.last, at)
	}
}

// addToWhole adds a template's series from a line to the whole.
func (b *figureBook) addToWhole(s *figureSeries) {
	whole := b.series(&b.whole)
	whole.all.merge(s.all)
	for _, r := range s.hours(allTime) {
		b.hour(whole, r.hour).merge(r)
	}
}

// rows returns the rows of the series at p, over all time and for an hour, to be
// changed.
func (b *figureBook) rows(p **figureSeries, hour int64) (all, of *figureRow) {
	s := b.series(p)
	return s.all, b.hour(s, hour)
}

// series returns the series at p with its row over all time, to be changed.
func (b *figureBook) series(p **figureSeries) *figureSeries {
	if *p == nil {
		*p = &figureSeries{all: &figureRow{}}
	}
	return *p
}

// hour returns the row for an hour of a series, to be changed. It is mostly the newest: a new row, or an older one if
// the clock was set back or a start reads records in another order than they happened.
func (b *figureBook) hour(s *figureSeries, hour int64) *figureRow {
	if s.now != nil && s.now.hour == hour {
		return s.now
	}
	b.newest = max(b.newest, hour)
	if hour < b.newest-b.kept {
		return &b.lost
	}
	if s.now == nil || hour > s.now.hour {
		if s.now != nil {
			s.past = append(s.past, s.now)
		}
		s.now = &figureRow{hour: hour}
		s.past = s.past[firstHour(s.past, b.newest-b.kept):]
		return s.now
	}
	i := firstHour(s.past, hour)
	s.past = slices.Clone(s.past)
	if i < len(s.past) && s.past[i].hour == hour {
		s.past[i] = s.past[i].clone()
	} else {
		s.past = slices.Insert(s.past, i, &figureRow{hour: hour})
	}
	return s.past[i]
}

// firstHour returns the index of the first row that is not before an hour.
func firstHour(rows []*figureRow, hour int64) int {
	i, _ := slices.BinarySearchFunc(rows, hour, func(r *figureRow, hour int64) int {
		return cmp.Compare(r.hour, hour)
	})
	return i
}

// allTime, as the hour to begin with, stands for the row over all time.
const allTime = math.MinInt64

// since adds to sum what was counted from an hour on, and reports whether
// anything was.
func (s *figureSeries) since(hour int64, sum *figureRow) bool {
	if s == nil {
		return false
	}
	if hour == allTime {
		sum.merge(s.all)
		return true
	}
	rows := s.hours(hour)
	for _, r := range rows {
		sum.merge(r)
	}
	return len(rows) > 0
}

// hours returns the rows from an hour on, or all that are kept, the oldest first.
func (s *figureSeries) hours(from int64) []*figureRow {
	if s == nil {
		return nil
	}
	rows := s.past[firstHour(s.past, from):]
	if s.now == nil || s.now.hour < from {
		return rows
	}
	return append(slices.Clip(rows), s.now)
}

// findOrAdd returns the index of a template in the book, and adds the template
// if needed.
func (b *figureBook) findOrAdd(name templateID) int {
	at, ok := b.byName[name]
	if !ok {
		at = len(b.templates)
		b.byName[name] = at
		b.templates = append(b.templates, &templateFigures{name: name, byName: map[string]int{}})
	}
	return at
}

// findOrAdd returns the index of a step of a template, and adds the step if
// needed.
func (f *templateFigures) findOrAdd(name string) int {
	at, ok := f.byName[name]
	if !ok {
		at = len(f.names)
		f.byName[name] = at
		f.names = append(f.names, name)
		f.steps = append(f.steps, nil)
	}
	return at
}

// The figures as lines of the compacted part, one for each template and each step:
//
//	{"figures":"template","seq":120,"namespace":"t","name":"pair","version":"1.0.0",
//	 "all":{row},"hours":[{row},…]}
//	{"figures":"step", …,"step":"a","all":{row},"hours":[{row},…]}
//
// with rows like
//
//	{"hour":490896,"counts":{"attempts_ended":3,…},"bins":[[21,2],[40,1]],"sum":5310,"max":5000,
//	 "types":{"timeout":1},"last":1767225600123456}
//
// "hour" counts from the Unix epoch, durations are in microseconds. All lines
// of a compacted part are as of the sequence of its header.

// figuresHead is the start of a line of figures.
const figuresHead = `{"figures":`

// The two kinds of lines.
const (
	templateFiguresKind = "template"
	stepFiguresKind     = "step"
)

// figuresLine is one line in the store.
type figuresLine struct {
	kind string
	seq  uint64
	templateID
	step  string // "" for the template
	all   figureRow
	hours []figureRow
}

func (l *figuresLine) members(c *memberCoder) {
	c.text("figures", &l.kind)
	nonzero(c, "seq", &l.seq)
	c.text("namespace", &l.namespace)
	c.text("name", &l.name)
	c.text("version", &l.version)
	c.text("step", &l.step)
	var in memberCoder
	if c.enter("all", &in) {
		l.all.members(&in)
		c.leave(&in)
	}
	objects(c, "hours", &l.hours, (*figureRow).members)
}

func (r *figureRow) members(c *memberCoder) {
	nonzero(c, "hour", &r.hour)
	var counts, types memberCoder
	if c.enter("counts", &counts) {
		for f, name := range figureNames {
			nonzero(&counts, name, &r.counts[f])
		}
		c.leave(&counts)
	}
	bins := r.times.text()
	if c.raw("bins", &bins); c.reading && !r.times.read(bins) {
		c.fail("bins", "%.40s is not a list of numbers and counts", bins)
	}
	nonzero(c, "sum", &r.times.sum)
	nonzero(c, "max", &r.times.max)
	if c.reading {
		eachMemberBytes(c.take("types"), func(name, count []byte) bool { // one that is not documented any more counts as another
			n, _ := jsonInt(count)
			r.addType(errorKindNamed(string(name)), uint64(n))
			return true
		})
	} else if r.types != nil && c.enter("types", &types) {
		for i := range r.types {
			number(&types, errorKindName(r.types[i].kind), &r.types[i].count)
		}
		c.leave(&types)
	}
	nonzero(c, "last", &r.last)
}

// writeLines passes every line to add, without its closing brace.
func (f *frozenFigures) writeLines(seq uint64, add func(line []byte) error) error {
	for _, t := range f.templates {
		if err := f.writeLine(figuresLine{kind: templateFiguresKind, seq: seq, templateID: t.name}, t.own, add); err != nil {
			return err
		}
		for i, s := range t.steps {
			line := figuresLine{kind: stepFiguresKind, seq: seq, templateID: t.name, step: t.names[i]}
			if err := f.writeLine(line, s, add); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *frozenFigures) writeLine(line figuresLine, s *figureSeries, add func(line []byte) error) error {
	if s == nil {
		return nil
	}
	line.all = *s.all
	for _, r := range s.hours(f.newest - keptHours) {
		line.hours = append(line.hours, *r)
	}
	c := memberCoder{b: []byte{'{'}}
	line.members(&c)
	return add(c.b)
}

// load reads a line into a book that has counted nothing yet.
func (a *analytics) load(line []byte) error {
	var c memberCoder
	l := new(figuresLine)
	for c.again(line) {
		*l = figuresLine{}
		l.members(&c)
	}
	if c.err != nil {
		return fmt.Errorf("figures of %s %s: %w", l.fullName(), l.step, c.err)
	}
	if l.seq == 0 || a.covered != 0 && l.seq != a.covered {
		return fmt.Errorf("figures as of sequence %d after figures as of sequence %d", l.seq, a.covered)
	}
	a.covered = l.seq
	s, err := l.series(&a.book)
	if err != nil {
		return fmt.Errorf("figures of %s %s: %w", l.fullName(), l.step, err)
	}
	f := a.book.templates[a.book.findOrAdd(l.templateID)]
	p := &f.own
	switch l.kind {
	case templateFiguresKind:
	case stepFiguresKind:
		p = &f.steps[f.findOrAdd(l.step)]
	default:
		return fmt.Errorf("figures of an unknown kind %q, from a newer version", l.kind)
	}
	if *p != nil {
		return fmt.Errorf("duplicate figures of %s %s", l.fullName(), l.step)
	}
	*p = s
	if l.kind == templateFiguresKind {
		a.book.addToWhole(s)
	}
	return nil
}

func (l *figuresLine) series(b *figureBook) (*figureSeries, error) {
	s := &figureSeries{all: &l.all}
	for i := range l.hours {
		r := &l.hours[i]
		if s.now != nil && s.now.hour >= r.hour {
			return nil, fmt.Errorf("hour %d comes after hour %d", r.hour, s.now.hour)
		}
		if s.now != nil {
			s.past = append(s.past, s.now)
		}
		s.now = r
		b.newest = max(b.newest, r.hour)
	}
	return s, nil
}
