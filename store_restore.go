package main

// Loading a store: the lines of the compacted part and the records become tasks, indexes, figures and events.

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
)

// storedTask holds the parts of a task's line that a start needs.
type storedTask struct {
	taskLine
	by     *creation // without the values of its context, if these are in search
	search []byte
	short  shortLog
	errors []string // their texts
	err    error
}

// storedCommon keeps what the lines of a block share. To read that from each line would take several times as long at a
// start with a million tasks: see BenchmarkStart.
type storedCommon struct {
	room          []byte    // for short logs
	head          []byte    // of a line
	by            *creation // of the task before, without values, with what comes before and after them
	before, after []byte
}

func (s *storedCommon) read(line []byte) (t storedTask) {
	// The log is the largest part, and the last one: it need not be read to find the others.
	head, log, _ := bytes.Cut(line, []byte(logHead))
	if log, last := bytes.CutSuffix(log, []byte("]}")); last {
		s.head = append(append(append(s.head[:0], head...), logHead...), "]}"...)
		t.taskLine, t.err = readTaskLine(s.head)
		t.log = log[:len(log):len(log)]
	} else {
		t.taskLine, t.err = readTaskLine(line)
	}
	if t.err != nil {
		return t
	}
	if t.by, t.search, t.err = s.creation(t.log); t.err != nil {
		t.err = fmt.Errorf("task %s: %w", t.id, t.err)
		return t
	}
	t.short = shortenIn(&s.room, t.log)
	if mayHaveError(t.short) {
		t.errors = errorTextsIn(t.log)
	}
	return t
}

// creation returns the creation with which a log begins. Most are like that of the task before, apart
// from the context, which nobody needs, and the values in it by which the task is found: those come apart then.
func (s *storedCommon) creation(log []byte) (by *creation, search []byte, err error) {
	rest := log[max(bytes.IndexByte(log[:min(len(log), 64)], 'k'), 0):] // from its kind on
	if s.by != nil && bytes.HasPrefix(rest, s.before) {
		search, end := searchAfter(rest, skipJSONValue(rest, len(s.before)))
		if bytes.HasPrefix(rest[end:], s.after) {
			return s.by, search, nil
		}
	}
	r, err := creationIn(log)
	if err != nil {
		return nil, nil, err
	}
	const context = `"context":`
	if i := bytes.Index(rest, []byte(context)) + len(context); i >= len(context) {
		end := len(rest) - len(log) + skipJSONValue(log, 0)
		_, after := searchAfter(rest, skipJSONValue(rest, i))
		by := *r.created
		by.search = nil
		s.by, s.before, s.after = &by, rest[:i], rest[min(after, end):end]
	}
	return r.created, nil, nil
}

// searchAfter returns the values by which a task is found, nil for none, if a place in its creation has them, and
// what comes after them.
func searchAfter(creation []byte, at int) (search []byte, end int) {
	const member = `,"search":`
	if !bytes.HasPrefix(creation[at:], []byte(member)) {
		return nil, at
	}
	end = skipJSONValue(creation, at+len(member))
	return creation[at+len(member) : end], end
}

// Rebuilding the store from lines and records, by the same apply that changed it the first time.

// restorer loads a store that nobody uses yet.
type restorer struct {
	s      *store
	seq    uint64 // that the compacted part is as of
	events moveCollector
	lines  storedCommon    // that were not decoded ahead
	check  *outsideChecker // of lines from outside; nil for a file
}

// begin takes over what the header says, and makes room for this number of tasks.
func (l *restorer) begin(h *storeHeader, tasks int) error {
	l.seq, l.s.seq = h.seq, h.seq
	l.s.tasks.index.key = cmp.Or(h.key, l.s.tasks.index.key)
	l.s.retain.dropped, l.s.carried = h.dropped, h.clock
	l.s.tasks.noteID(h.lastID)
	l.events.extent = h.extent
	if tasks > 0 {
		l.s.tasks.slots, l.s.tasks.seqs = slices.Grow(l.s.tasks.slots, tasks), slices.Grow(l.s.tasks.seqs, tasks)
		l.s.tasks.kinds, l.s.tasks.marks = slices.Grow(l.s.tasks.kinds, tasks), slices.Grow(l.s.tasks.marks, tasks)
		l.s.tasks.byID = make(map[uuid]*slot, tasks)
	}
	return nil
}

// lineKinds are the kinds of lines in the compacted part, besides lives, in their order.
var lineKinds = [...]struct {
	head    string
	subject string // what a line is about; its first member names which
	load    func(l *restorer, line []byte) error
}{
	{subscriberHead, "the subscriber", (*restorer).subscriberLine},
	{templateHead, "the template", (*restorer).templateLine},
	{figuresHead, "figures of a", (*restorer).figuresLine},
	{requestHead, "the request", (*restorer).requestLine},
	{`{"task":`, "the task", (*restorer).taskLine},
}

// compacted loads a line of the compacted part.
func (l *restorer) compacted(line *checkedLine) error {
	if line.task != nil && l.check == nil {
		return l.task(line.task)
	}
	text := bytes.Clone(line.text)
	if line.sealed && line.task == nil { // or it was cut already
		text = cutSum(text)
	}
	for _, k := range lineKinds {
		if bytes.HasPrefix(text, []byte(k.head)) {
			return k.load(l, text)
		}
	}
	return fmt.Errorf("%.40s is not known, so it is from a newer version", text)
}

// taskLine loads the line of a task that was not decoded ahead, or is from outside.
func (l *restorer) taskLine(line []byte) error {
	if l.check != nil {
		sound, err := l.check.task(line)
		if err != nil {
			return err
		}
		line = sound
	}
	t := l.lines.read(line)
	return l.task(&t)
}

func (l *restorer) task(t *storedTask) error {
	if t.err != nil {
		return t.err
	}
	tpl := l.s.templates.find(t.template)
	if tpl == nil {
		return templateMissing(&t.taskLine)
	}
	t.tpl = tpl
	if _, twice := l.s.tasks.find(t.id); twice {
		return fmt.Errorf("duplicate task %s", t.id)
	}
	if t.lastSeq > l.seq {
		return fmt.Errorf("task %s: its last record is %d, but the header says %d", t.id, t.lastSeq, l.seq)
	}
	sl := &slot{taskHeader: t.taskHeader, log: t.short}
	by := t.by
	if t.search != nil { // the creation is that of the task before, apart from these values
		own := *t.by
		by, own.search = &own, t.search
	}
	l.s.tasks.insert(sl, by)
	l.s.requests.insert(t.by.request, t.id, t.created)
	for _, text := range t.errors {
		l.s.tasks.fail(sl, text)
	}
	l.s.tasks.noteID(t.lastID)
	for s, n := range t.counts {
		l.s.tasks.index.steps[s] += n
	}
	live, err := l.replayed(&t.taskLine)
	if err != nil {
		return err
	}
	if live != nil {
		sl.dead = live.dead
		l.s.tasks.addFailures(sl, live)
		l.s.dead.update(live, sl.trouble)
	}
	l.s.retain.keepFinish(sl)
	if !t.state.ended() {
		live.weight = live.weigh()
		sl.live, sl.log = live, nil
	}
	l.s.retain.resize(sl.bytes())
	return nil
}

func templateMissing(t *taskLine) error {
	return missing{fmt.Errorf("task %s: its template %s is not among the lines before it", t.id, t.template)}
}

// replayed returns the task of a line, or nil if nobody needs it: the task is over without a failing step or a dead
// letter, the figures count all of it, and the event log holds nothing of it. It also counts the task in the figures if
// there were none, as in a state that was written by hand.
func (l *restorer) replayed(t *taskLine) (*task, error) {
	var obs replayer = unobserved{}
	uncounted, recent := t.lastSeq > l.s.analytics.covered, l.events.wants(t.lastSeq) || l.events.wantsDomain(t.tpl, t.lastSeq)
	if uncounted {
		obs = l.s.analytics
	}
	if recent {
		obs = &lineReplay{figures: obs, keeper: &l.events, maker: &l.s.events.maker}
	}
	if t.state.ended() && !uncounted && !recent && t.dead == nil && !(t.state == taskError && t.mayFail()) {
		return nil, nil
	}
	// The task or the event log keeps parts of it.
	return replayRecords(t.id, t.tpl, bytes.Clone(t.log), obs)
}

// figuresLine loads figures, which come before the tasks.
func (l *restorer) figuresLine(line []byte) error {
	if len(l.s.tasks.slots) > 0 {
		return fmt.Errorf("figures come after a task")
	}
	return l.s.analytics.load(line)
}

// templateHead is the start of a line about a template: {"hash":"…","definition":{…}}.
const templateHead = `{"hash":`

// templateLine loads such a line.
func (l *restorer) templateLine(line []byte) error {
	if l.check != nil {
		line = l.check.template(line)
	}
	r, err := readMembers(line, func(r *record, c *memberCoder) {
		c.text("hash", &r.hash)
		c.raw("definition", &r.definition)
	})
	if err != nil {
		return err
	}
	return l.template(&r)
}

func (l *restorer) template(r *record) error {
	tpl, err := templateFromNormalized(r.definition)
	if err != nil {
		return fmt.Errorf("template %s: %w", r.hash, err)
	}
	if tpl.hash != r.hash {
		return fmt.Errorf("template %s has the hash %s", r.hash, tpl.hash)
	}
	if l.check != nil && l.check.admit != nil {
		if err := l.check.admit(tpl); err != nil {
			return err
		}
	}
	l.s.templates.keep(tpl)
	return nil
}

func (l *restorer) record(line *checkedLine) error {
	s, r := l.s, line.record
	if line.err != nil {
		return line.err
	}
	s.seq = line.seq
	l.events.appendTo(&s.events, line.seq-1) // what the tasks of the compacted part have comes first
	switch r.kind {
	case recTemplate:
		return l.template(r)
	case recCreated:
		return l.created(line)
	case recDropped:
		return l.dropped(r)
	case recDelivered:
		s.events.domain.apply(r.mark)
		return nil
	}
	sl, ok := s.tasks.find(r.task)
	if !ok {
		return missing{fmt.Errorf("it is about task %s, which was never created", r.task)}
	}
	t, err := s.tasks.taskOf(sl)
	if err != nil {
		return err
	}
	return l.apply(t, line)
}

func (l *restorer) created(line *checkedLine) error {
	s, r := l.s, line.record
	if _, twice := s.tasks.find(r.task); twice {
		return fmt.Errorf("duplicate task %s", r.task)
	}
	tpl := s.templates.find(r.created.template)
	if tpl == nil {
		return missing{fmt.Errorf("its template %s was never recorded", r.created.template)}
	}
	t := newTask(r, tpl)
	s.tasks.insert(&slot{live: t, taskHeader: t.taskHeader}, r.created)
	s.requests.insert(r.created.request, t.id, r.at)
	return l.apply(t, line)
}

// dropped drops a task as it was dropped before.
func (l *restorer) dropped(r *record) error {
	sl, ok := l.s.tasks.find(r.task)
	if !ok || sl.finished == 0 {
		return fmt.Errorf("it drops task %s, which does not exist or is not finished", r.task)
	}
	return l.s.remove(sl)
}

func (l *restorer) apply(t *task, line *checkedLine) error {
	l.s.scratch = append(l.s.scratch[:0], line.log...)
	if err := l.s.apply(t, line.record); err != nil {
		return err
	}
	l.s.reindex(t)
	return nil
}

// finish completes the store when everything was read.
func (l *restorer) finish(r *storeReader) error {
	s := l.s
	s.seq, s.lives = r.last, r.lives
	if r.last > r.header.seq {
		s.carried = clockState{} // it was as of the compacted part
	}
	l.events.appendTo(&s.events, s.seq)
	s.dead.sort()
	for _, sub := range s.events.domain.subscriptions {
		if got := max(sub.from, sub.done); got > s.seq {
			return fmt.Errorf("subscriber %s got events up to record %d, but the last is %d", sub.name, got, s.seq)
		}
	}
	return nil
}
