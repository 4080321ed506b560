package main

// Where the figures are kept: every template, and every step of one, has a row over all time and a row for each of the
// last hours in which something was counted. A reader gets a copy of it as of one moment, see freeze.

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// keptHours is how many full hours are kept beside the current one, so that the last 720 hours are covered at any
// minute. Older hours are only in the row over all time.
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
	times  histogram         // of a template: creation to completion; of a step: attempts
	types  map[string]uint64 // failed attempts by documentedErrorType; nil for none
	last   instant           // when a task last completed or failed; an attempt last ended
}

// clone returns a copy that later counts do not change.
func (r *figureRow) clone() *figureRow {
	c := *r
	c.times = r.times.clone()
	c.types = maps.Clone(r.types)
	return &c
}

// merge counts everything that another row has.
func (r *figureRow) merge(o *figureRow) {
	for f, n := range o.counts {
		r.counts[f] += n
	}
	r.times.merge(&o.times)
	for name, n := range o.types {
		r.addType(name, n)
	}
	r.last = max(r.last, o.last)
}

func (r *figureRow) addType(name string, n uint64) {
	if r.types == nil {
		r.types = map[string]uint64{}
	}
	r.types[name] += n
}

// figureSeries is the rows of one template, of one step, or of all templates by the minute.
type figureSeries struct {
	all  *figureRow
	now  *figureRow   // the newest hour; nil before the first
	past []*figureRow // earlier hours in which something was counted, ascending; rows of it never change
}

func newSeries() *figureSeries { return &figureSeries{all: &figureRow{}} }

// clone returns a copy that later counts do not change. It copies the rows that change with every count; the rows of
// earlier hours are shared, because they are replaced if something counts in them.
func (s *figureSeries) clone() *figureSeries {
	c := &figureSeries{s.all.clone(), nil, s.past}
	if s.now != nil {
		c.now = s.now.clone()
	}
	return c
}

func (s *figureSeries) empty() bool { return s.all.counts == [figureCount]uint64{} }

// templateFigures is everything that is kept about one template. Definitions
// with the same namespace, name and version share it.
type templateFigures struct {
	name  templateID
	own   *figureSeries
	names []string        // of the steps; only ever appended to
	steps []*figureSeries // by the same index

	byName map[string]*figureSeries // the same; not for readers of frozen figures
}

// templateID names one version of a template.
type templateID struct{ namespace, name, version string }

// figureBook holds every row, in the order of the templates' first use. The store's mutex guards it.
type figureBook []*templateFigures

// frozenFigures is the book as it was at one moment. It never changes.
type frozenFigures struct {
	first     instant // when the first task was created; 0 if that is unknown
	templates figureBook
	minutes   *figureSeries // of all templates
	live      int64         // the minute from which on these are counted
}

// freeze returns a copy of the book as it is.
func (b figureBook) freeze() figureBook {
	frozen := make(figureBook, len(b))
	for i, t := range b {
		frozen[i] = &templateFigures{name: t.name, own: t.own.clone(), names: t.names, steps: make([]*figureSeries, len(t.steps))}
		for n, s := range t.steps {
			frozen[i].steps[n] = s.clone()
		}
	}
	return frozen
}

// began returns when the first task was created, or else the start of the first kept hour.
func (f *frozenFigures) began() instant {
	if f.first != 0 {
		return f.first
	}
	first := int64(math.MaxInt64)
	for _, t := range f.templates {
		if kept := t.own.hours(allTime); len(kept) > 0 {
			first = min(first, kept[0].hour)
		}
	}
	if first == math.MaxInt64 {
		return 0
	}
	return hourStart(first)
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

func (rows figureRows) addType(name string) {
	for _, r := range rows {
		r.addType(name, 1)
	}
}

func (rows figureRows) seen(at instant) {
	for _, r := range rows {
		r.last = max(r.last, at)
	}
}

// hour returns the row for an hour, to be changed. It is mostly the newest: a new row, or an older one if the clock was
// set back or a start reads records in another order than they happened. Beside the newest, kept hours are kept.
func (s *figureSeries) hour(hour, kept int64) *figureRow {
	switch {
	case s.now != nil && hour == s.now.hour:
		return s.now
	case s.now != nil && hour < s.now.hour-kept:
		return &figureRow{} // which nobody reads
	case s.now == nil || hour > s.now.hour:
		if s.now != nil {
			s.past = append(s.past, s.now)
		}
		s.now = &figureRow{hour: hour}
		s.past = s.past[firstHour(s.past, hour-kept):]
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

// since adds to sum what was counted from an hour on, and reports whether anything was.
func (s *figureSeries) since(hour int64, sum *figureRow) bool {
	if hour == allTime {
		sum.merge(s.all)
		return !s.empty()
	}
	rows := s.hours(hour)
	for _, r := range rows {
		sum.merge(r)
	}
	return len(rows) > 0
}

// hours returns the rows from an hour on, or all that are kept, the oldest first.
func (s *figureSeries) hours(from int64) []*figureRow {
	rows := s.past[firstHour(s.past, from):]
	if s.now == nil || s.now.hour < from {
		return rows
	}
	return append(slices.Clip(rows), s.now)
}

// findOrAdd returns the figures of a template, which it adds if needed.
func (b *figureBook) findOrAdd(name templateID) *templateFigures {
	i := slices.IndexFunc(*b, func(t *templateFigures) bool { return t.name == name })
	if i < 0 {
		i = len(*b)
		*b = append(*b, &templateFigures{name: name, own: newSeries(), byName: map[string]*figureSeries{}})
	}
	return (*b)[i]
}

// findOrAdd returns the series of a step of a template, which it adds if needed.
func (f *templateFigures) findOrAdd(step string) *figureSeries {
	s := f.byName[step]
	if s == nil {
		s = newSeries()
		f.names, f.steps, f.byName[step] = append(f.names, step), append(f.steps, s), s
	}
	return s
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
		for name, count := range jsonMemberBytes(c.member("types")) { // one that is not documented any more counts as another
			n, _ := jsonInt(count)
			r.addType(documentedErrorType(string(name)), uint64(n))
		}
	} else if r.types != nil && c.enter("types", &types) {
		for _, name := range slices.Sorted(maps.Keys(r.types)) {
			number(&types, name, new(r.types[name]))
		}
		c.leave(&types)
	}
	nonzero(c, "last", &r.last)
}

// writeLines passes every line to add, without its closing brace.
func (f *frozenFigures) writeLines(seq uint64, add func(line []byte) error) error {
	for _, t := range f.templates {
		line := figuresLine{kind: templateFiguresKind, seq: seq, templateID: t.name}
		if err := line.write(t.own, add); err != nil {
			return err
		}
		line.kind = stepFiguresKind
		for i, s := range t.steps {
			line.step = t.names[i]
			if err := line.write(s, add); err != nil {
				return err
			}
		}
	}
	return nil
}

// write passes the line of a series to add, unless it is empty.
func (l figuresLine) write(s *figureSeries, add func(line []byte) error) error {
	if s.empty() {
		return nil
	}
	l.all = *s.all
	for _, r := range s.hours(allTime) {
		l.hours = append(l.hours, *r)
	}
	c := memberCoder{b: []byte{'{'}}
	l.members(&c)
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
	if l.kind != templateFiguresKind && l.kind != stepFiguresKind {
		return fmt.Errorf("figures of an unknown kind %q, from a newer version", l.kind)
	}
	f := a.book.findOrAdd(l.templateID)
	s := f.own
	if l.kind == stepFiguresKind {
		s = f.findOrAdd(l.step)
	}
	if !s.empty() {
		return fmt.Errorf("duplicate figures of %s %s", l.fullName(), l.step)
	}
	s.all = &l.all
	for i := range l.hours {
		r := &l.hours[i]
		if s.now != nil && s.now.hour >= r.hour {
			return fmt.Errorf("figures of %s %s: hour %d comes after hour %d", l.fullName(), l.step, r.hour, s.now.hour)
		}
		s.hour(r.hour, keptHours)
		s.now = r
	}
	return nil
}

// Counting: what a record adds to the figures. It is part of applying the record and depends on nothing but the record
// and the task, so that a start that reads the same records in any order counts the same figures.

// analytics counts while records are applied; the store's mutex guards it. It
// is notified of each record before that is applied, and then of each transition.
type analytics struct {
	book    figureBook
	covered uint64                   // the book has the records up to this one, from the compacted part
	plans   map[*template]*countPlan // where each definition's figures are
	minutes *figureSeries            // of all templates since the process started; its hours are minutes
	live    int64                    // the minute in which the store was opened; 0 before that

	// Of the record that is being applied:
	counting bool
	creating bool      // steps are only counted as created, because copied steps did not run in this task
	before   taskState // the task's state before the record
	unknown  bool      // the duration of the attempt is unknown: one action starts and ends it
	plan     *countPlan
	at       instant
	task     figureRows // rows of the template and of the minute, once needed
	step     figureRows // rows of step stepAt
	stepAt   int        // -1 for none
	room     [5]*figureRow
}

// countPlan is where the figures of one definition are in the book.
type countPlan struct {
	tpl   *template
	own   *figureSeries
	steps []*figureSeries // by step of the definition; an instance counts as its batch_worker step
}

func newAnalytics() *analytics {
	return &analytics{plans: map[*template]*countPlan{}, minutes: newSeries()}
}

// freeze returns the figures as they are now.
func (a *analytics) freeze() *frozenFigures {
	return &frozenFigures{templates: a.book.freeze(), minutes: a.minutes.clone(), live: a.live}
}

func (a *analytics) startRecord(t *task, r *record) {
	a.counting = r.seq > a.covered
	if !a.counting {
		return
	}
	a.before, a.at, a.creating = t.state, r.at, r.kind == recCreated
	a.unknown = r.kind == recOperator && r.step < len(t.steps) && t.steps[r.step].state == stepEnqueued
	a.task, a.stepAt = nil, -1
	if a.plan == nil || a.plan.tpl != t.tpl {
		a.plan = a.planFor(t.tpl)
	}
}

func (a *analytics) planFor(tpl *template) *countPlan {
	if p := a.plans[tpl]; p != nil {
		return p
	}
	f := a.book.findOrAdd(templateID{tpl.namespace, tpl.name, tpl.version})
	p := &countPlan{tpl: tpl, own: f.own, steps: make([]*figureSeries, len(tpl.steps))}
	for i := range tpl.steps {
		p.steps[i] = f.findOrAdd(tpl.steps[i].name)
	}
	a.plans[tpl] = p
	return p
}

// ofTask returns the rows of the task's template, and of the minute.
func (a *analytics) ofTask() figureRows {
	if a.task == nil {
		a.task = append(a.room[:0], a.plan.own.all, a.plan.own.hour(hourOf(a.at), keptHours))
		// What is read again at the start is not there by the minute: the compacted part has no minutes.
		if minute := minuteOf(a.at); a.live > 0 && minute >= a.live {
			a.task = append(a.task, a.minutes.hour(minute, keptMinutes))
		}
	}
	return a.task
}

// ofStep returns the rows of one of the template's steps.
func (a *analytics) ofStep(i int) figureRows {
	if a.stepAt != i {
		s := a.plan.steps[i]
		a.step, a.stepAt = append(a.room[3:3], s.all, s.hour(hourOf(a.at), keptHours)), i
	}
	return a.step
}

// countBoth counts for a step of the template and for the template.
func (a *analytics) countBoth(i int, f figure, n uint64) {
	a.ofTask().count(f, n)
	a.ofStep(i).count(f, n)
}

// failed reports whether a task in this state counts as failed.
func (s taskState) failed() bool { return s == taskBlockedByFailures || s == taskError }

func (a *analytics) taskMoved(t *task, from, to taskState, at instant) {
	if !a.counting {
		return
	}
	switch {
	case from == noTaskState:
		a.ofTask().count(tasksCreated, 1)
	case to == taskComplete:
		a.ofTask().count(tasksCompleted, 1)
		a.ofTask().observe(int64(at - t.created))
		a.ofTask().seen(at)
	case to == taskCancelled:
		a.ofTask().count(tasksCancelled, 1)
	case to.failed() && !a.before.failed(): // a blocked task that ends as stale has failed once
		a.ofTask().count(tasksFailed, 1)
		a.ofTask().seen(at)
	}
}

func (a *analytics) stepMoved(t *task, i int, from, to stepState, at instant) {
	if !a.counting || from == to || a.creating && from != noStepState {
		return
	}
	switch to {
	case stepPending:
		if from == noStepState {
			a.ofTask().count(stepsCreated, 1)
		}
	case stepEnqueued:
		a.becameReady(t, i, from, at)
	case stepEnqueuedForOrchestration:
		a.attemptEnded(t, i, true, at)
	case stepEnqueuedAsError:
		a.attemptEnded(t, i, false, at)
	case stepComplete:
		a.ofTask().count(stepsCompleted, 1)
		if from == stepInProgress { // an outside actor completed the attempt
			a.attemptEnded(t, i, true, at)
		}
	case stepInError:
		a.ofTask().count(stepsFailed, 1)
	case stepCancelled:
		a.ofTask().count(stepsCancelled, 1)
	case stepResolvedManually:
		a.ofTask().count(stepsResolved, 1)
	}
}

// becameReady counts how long a step waited for its dependencies.
func (a *analytics) becameReady(t *task, i int, from stepState, at instant) {
	if from != stepPending || t.steps[i].attempted != 0 || len(t.parents(i)) == 0 {
		return
	}
	d := t.declared(i)
	a.countBoth(d, dependencyWaits, 1)
	a.countBoth(d, dependencyMicros, uint64(max(at-t.stepCreated(i), 0)))
}

// attemptEnded counts an attempt. Its duration is the difference of the
// records' times, not the handler's own measure, which is kept in milliseconds.
func (a *analytics) attemptEnded(t *task, i int, success bool, at instant) {
	s := &t.steps[i]
	i = t.declared(i)
	a.countBoth(i, attemptsEnded, 1)
	if !success {
		a.countBoth(i, attemptsFailed, 1)
		f, _ := s.last.fault()
		name := documentedErrorType(f.errorType)
		a.ofTask().addType(name)
		a.ofStep(i).addType(name)
	}
	if s.attempts > 1 {
		a.countBoth(i, retriesEnded, 1)
		if success {
			a.countBoth(i, retriesSucceeded, 1)
		}
	}
	a.ofStep(i).seen(at)
	if a.unknown {
		return
	}
	us := int64(max(at-s.attempted, 0))
	a.countBoth(i, attemptsMeasured, 1)
	a.countBoth(i, attemptMicros, uint64(us))
	a.ofStep(i).observe(us)
}

// otherErrorType stands for every type that handlerErrorTypes does not document.
const otherErrorType = "other"

// documentedErrorType returns the name of the row of handlerErrorTypes that an error type fits, or otherErrorType.
func documentedErrorType(name string) string {
	for _, row := range handlerErrorTypes {
		if row.fits(name) {
			return row.name
		}
	}
	return otherErrorType
}

// counters are the transitions, attempts and their durations since the process
// started, for /metrics. The store's mutex guards them.
type counters struct {
	taskMoves [taskStates]uint64 // transitions into each state
	stepMoves [stepStates]uint64
	attempts  [2]uint64 // attempts that ended: failed, succeeded
	durations histogram // of attempts run by handlers
	late      uint64    // results that came too late to count

	checkpoints [2]uint64 // taken, and refused because the step had made the most

	templates map[templateName]*templateCounts
	listed    *registry // whose templates are all in templates
}

// templateCounts counts the tasks of a template, whatever its version.
type templateCounts struct {
	moves   [taskStates]uint64 // into each state
	blocked int                // how many were blocked when noteTemplates was called last
}

// maxCountedTemplates is how many templates are counted separately, because each has several time series in
// /metrics. The others are counted together, as otherTemplates.
const maxCountedTemplates = 100

var otherTemplates = templateName{"*", "*"}

// countedMoves are the states whose entries are counted by template.
var countedMoves = terminalStates | setOf(taskPending)

func (c *counters) taskMoved(t *task, to taskState) {
	c.taskMoves[to]++
	if countedMoves.has(to) {
		c.ofTemplate(t.tpl.names()).moves[to]++
	}
}

// ofTemplate returns the counts of a template, which from then on are among those reported.
func (c *counters) ofTemplate(name templateName) *templateCounts {
	if n := c.templates[name]; n != nil {
		return n
	}
	if c.templates == nil {
		c.templates = map[templateName]*templateCounts{}
	}
	if len(c.templates) >= maxCountedTemplates && name != otherTemplates {
		return c.ofTemplate(otherTemplates)
	}
	n := new(templateCounts)
	c.templates[name] = n
	return n
}

// noteTemplates lists every registered template and notes how many tasks of each template are blocked. A template is
// listed before its first task because to Prometheus, a counter whose first value is 1 has not increased.
func (c *counters) noteTemplates(registered *registry, blocked map[templateName]int) {
	if c.listed != registered {
		c.listed = registered
		for _, tpl := range registered.sorted {
			c.ofTemplate(tpl.names())
		}
	}
	for _, n := range c.templates {
		n.blocked = 0
	}
	for name, n := range blocked { // also of templates that are gone
		c.ofTemplate(name).blocked += n
	}
}

// copied returns a copy for a reader without the lock.
func (c *counters) copied() counters {
	n := *c
	n.durations = c.durations.clone()
	n.templates = make(map[templateName]*templateCounts, len(c.templates))
	for name, counts := range c.templates {
		n.templates[name] = new(*counts)
	}
	return n
}

func (c *counters) stepMoved(from, to stepState) {
	c.stepMoves[to]++
	if from != stepInProgress {
		return
	}
	switch to {
	case stepEnqueuedForOrchestration:
		c.attempts[1]++
	case stepEnqueuedAsError:
		c.attempts[0]++
	}
}

// handlerDone counts an attempt that one of this process's handlers ended.
func (c *counters) handlerDone(e *ending) { c.durations.took(e.took) }
