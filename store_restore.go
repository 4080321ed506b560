package main

// Loading a store at a start: the lines of the snapshot and the records of the journal become
// tasks, indexes, figures and events.

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
)

// storedTask holds the members that a start reads from the line of a task.
type storedTask struct {
	taskHeader
	by     *creation // without the values of its context, if these are in search
	search []byte
	line   shortLine
	errors []string // their texts
	err    error
}

// lineSlabSize is how large slabs are of which short lines are slices.
const lineSlabSize = 64 << 10

// lineSlab is memory for short lines, and what the lines have in common.
type lineSlab struct {
	free  []byte
	order wordOrder

	by            *creation // of the task before, without values, with what comes before and after them
	before, after []byte
	hash          uuid   // of the template of the task before
	template      string // the same in digits
}

// shorten returns a line in its short form, which may be longer than the line by a little.
func (s *lineSlab) shorten(line []byte) shortLine {
	if len(line) > maxShortened {
		return bytes.Clone(line)
	}
	if cap(s.free)-len(s.free) < len(line) {
		s.free = make([]byte, 0, lineSlabSize)
	}
	n := len(s.free)
	s.free = s.order.shorten(s.free, line)
	return s.free[n:len(s.free):len(s.free)]
}

// readStoredTask reads the line of a task.
func readStoredTask(line []byte, slab *lineSlab) (t storedTask) {
	const log = `,"log":`
	t.line = slab.shorten(line)
	if slab.completed(&t) {
		t.log = line[bytes.Index(line, []byte(log))+len(log) : len(line)-1]
	} else if t.taskHeader, t.err = readTaskHeader(line); t.err != nil {
		return t
	}
	t.by, t.search, t.err = slab.creation(t.log)
	if t.line.mayHaveError() {
		t.errors = errorTextsIn(t.log)
	}
	return t
}

// creation returns the creation with which a log begins. Most are like that of the task before, apart
// from the context, which nobody needs, and the values in it by which the task is found: those come apart then.
func (s *lineSlab) creation(log []byte) (by *creation, search []byte, err error) {
	rest := log[max(bytes.IndexByte(log[:min(len(log), 64)], 'k'), 0):] // from its kind on
	if s.by != nil && bytes.HasPrefix(rest, s.before) {
		search, end := searchAfter(rest, skipJSONValue(rest, len(s.before)))
		if bytes.HasPrefix(rest[end:], s.after) {
			return s.by, search, nil
		}
	}
	r, err := (&taskHeader{log: log}).creationRecord()
	if err != nil {
		return nil, nil, err
	}
	const context = `"context":`
	if i := bytes.Index(rest, []byte(context)) + len(context); i >= len(context) {
		end := len(rest) - len(log) + skipJSONValue(log, 1)
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

// completedWords begin the line of a completed task whose steps all completed, up to their number.
var completedWords = [...]byte{0, 1, 4, 5, 7, 8, 9, 10}

// completed reads the header of such a line, without its log, and reports false for others.
func (s *lineSlab) completed(t *storedTask) bool {
	var c lineCoder
	var numbers [len(completedWords)]int64
	l := t.line
	for i, k := range completedWords {
		if len(l) == 0 || l[0] != k {
			return false
		}
		then := lineWords[k].then
		l = l[1+c.take(then, l[1:]):]
		numbers[i] = c.last[then]
	}
	n, digits := leadingNumber(l)
	if digits == len(l) || l[digits] != logCode {
		return false
	}
	if s.hash != c.id {
		s.hash, s.template = c.id, hex.EncodeToString(c.id[:])
	}
	t.id, _ = t.line.taskID()
	t.state, t.template, t.counts[stepComplete] = taskComplete, s.template, int(n)
	t.created, t.updated, t.completed = instant(numbers[1]), instant(numbers[2]), instant(numbers[3])
	t.seq, t.lastSeq = uint64(numbers[5]), uint64(numbers[6])
	return true
}

// Rebuilding the store from its snapshot and journal, by the same apply that
// changed it the first time.

// restorer loads a store that nobody uses yet.
type restorer struct {
	s      *store
	ahead  map[uuid]uint64 // newest records of tasks whose line has more than the snapshot's sequence
	last   uint64          // the newest of these
	events moveCollector
	admit  func(t *template) error // refuses templates; nil refuses none, and no names
	names  oldNames                // that are not refused
	slab   lineSlab                // of the lines that were not decoded ahead
}

// begin takes over what the header of a file says, and makes room for this number of tasks.
func (l *restorer) begin(h *storeHeader, tasks int) {
	l.s.tasks.index.failures.key = cmp.Or(h.Key, l.s.tasks.index.failures.key)
	if tasks > 0 {
		l.s.tasks.slots = slices.Grow(l.s.tasks.slots, tasks)
		l.s.tasks.byID = make(map[uuid]uint32, tasks)
	}
}

// snapshotLine loads one line of the snapshot: a template, figures, events,
// dropped tasks, or a task.
func (l *restorer) snapshotLine(line *checkedLine) error {
	if line.task != nil {
		return l.task(line.task)
	}
	return l.line(cutSum(bytes.Clone(line.text)))
}

// lineKinds are the kinds of lines, in an order in which they can be loaded.
var lineKinds = [...]struct {
	head    string
	subject string // what a line is about
	load    func(l *restorer, line []byte) error
}{
	{eventsHead, "the extent of the event log", (*restorer).eventsLine},
	{subscriberHead, "the position of a subscriber", (*restorer).subscriberLine},
	{templateHead, "a template", (*restorer).templateLine},
	{figuresHead, "a part of the figures", (*restorer).figuresLine},
	{droppedHead, "the number of dropped tasks", (*restorer).droppedLine},
	{requestHead, "a line", (*restorer).requestLine},
	{"", "a line", (*restorer).taskLine}, // of a task, or not sound
}

// kindOfLine returns the place of a line's kind in lineKinds.
func kindOfLine(line []byte) (kind int) {
	for !bytes.HasPrefix(line, []byte(lineKinds[kind].head)) {
		kind++
	}
	return kind
}

// line loads such a line, which it may keep.
func (l *restorer) line(line []byte) error { return lineKinds[kindOfLine(line)].load(l, line) }

func (l *restorer) taskLine(line []byte) error {
	t := readStoredTask(line, &l.slab)
	return l.task(&t)
}

// task loads a task.
func (l *restorer) task(t *storedTask) error {
	if t.err != nil {
		return t.err
	}
	h := &t.taskHeader
	tpl := l.s.templates.find(h.template)
	if tpl == nil {
		return fmt.Errorf("task %s: its template %s is not among the lines before it", h.id, h.template)
	}
	if _, twice := l.s.tasks.find(h.id); twice {
		return fmt.Errorf("duplicate task %s", h.id)
	}
	if l.s.analytics.covered == 0 && h.dead == nil {
		if err := t.addLetters(tpl, &l.slab); err != nil {
			return err
		}
	}
	l.s.seq = max(l.s.seq, h.lastSeq)
	l.noteAhead(h)
	by := t.by
	if t.search != nil { // the creation is that of the task before, apart from these values
		own := *t.by
		by, own.search = &own, t.search
	}
	pos := l.s.tasks.insert(h.id, slot{line: t.line}, tpl, by, h.created)
	l.s.requests.insert(t.by.request, h.id, h.created)
	for _, text := range t.errors {
		l.s.tasks.fail(pos, text)
	}
	l.s.tasks.noteID(h.lastID)
	l.s.tasks.index.move(pos, taskPending, h.state, l.s.tasks.slots[pos].in) // insert has indexed it as pending
	l.s.tasks.index.touch(pos, h.updated, h.completed)
	for s, n := range h.counts {
		l.s.tasks.index.steps[s] += n
	}
	l.s.retain.note(&l.s.tasks.slots[pos], h.id, finishedAt(h.state, h.completed, h.dead))
	live, err := l.replayed(h, tpl)
	if err != nil {
		return err
	}
	if live != nil {
		live.pos = pos
		l.s.tasks.index.failures.insertTask(live)
		l.s.dead.index.update(live)
	}
	if !h.state.ended() {
		live.indexed, live.weight = live.state, live.weigh()
		l.s.tasks.slots[pos].live, l.s.tasks.slots[pos].line = live, nil
	}
	l.s.retain.resize(l.s.tasks.slots[pos].bytes())
	// The names of instances are only in the log. A replay is worth its time only if one may be
	// refused now.
	if live == nil && tpl.dynamic && bytes.Contains(h.log, []byte(`"named":1`)) && mayMislead(h.log) {
		if live, err = h.replay(tpl, unobserved{}); err != nil {
			return err
		}
	}
	return l.checkNames(t.by.tags, live)
}

// addLetters adds the dead letters of a task. The first version, which kept no figures
// either, had none.
func (t *storedTask) addLetters(tpl *template, slab *lineSlab) error {
	again, err := t.replay(tpl, unobserved{})
	if err != nil || len(again.dead) == 0 {
		return err
	}
	*t = readStoredTask(again.appendTaskLine(nil), slab)
	return t.err
}

// noteAhead notes a line that has records which the journal repeats.
func (l *restorer) noteAhead(h *taskHeader) {
	if h.lastSeq <= l.s.analytics.covered {
		return
	}
	if l.ahead == nil {
		l.ahead = map[uuid]uint64{}
	}
	l.ahead[h.id] = h.lastSeq
	l.last = max(l.last, h.lastSeq)
}

// repeats reports whether the snapshot's line of the record's task has the record. It looks
// at the sequence and the task's id alone, so a record that cannot be decoded is not a fault if it is repeated.
func (l *restorer) repeats(seq uint64, line []byte) bool {
	const task = `"task":"`
	i := bytes.IndexByte(line, ',') + 1
	if seq > l.last || len(line) < i+taskMember || string(line[i:i+len(task)]) != task {
		return false
	}
	id, ok := parseUUID(line[i+len(task) : i+taskMember-1])
	return ok && seq <= l.ahead[id]
}

// replayed returns the task of a line, or nil if nobody needs it: the task is
// over without a failing step or a dead letter, the figures count all of it, and the event log holds nothing of it. It
// also counts the records that the figures do not count yet, those later than
// the snapshot's sequence; those are skipped in the journal.
func (l *restorer) replayed(h *taskHeader, tpl *template) (*task, error) {
	var obs replayer = unobserved{}
	uncounted, recent := h.lastSeq > l.s.analytics.covered, l.events.wants(h.lastSeq) || l.events.wantsDomain(tpl, h.lastSeq)
	if uncounted {
		obs = l.s.analytics
	}
	if recent {
		obs = &lineReplay{figures: obs, keeper: &l.events, maker: &l.s.events.maker}
	}
	if h.state.ended() && !uncounted && !recent && h.dead == nil && !(h.state == taskError && mayFail(&h.counts)) {
		return nil, nil
	}
	h.log = bytes.Clone(h.log) // the task or the event log keeps parts of it
	return h.replay(tpl, obs)
}

// eventsLine loads the line about the event log, which comes before the tasks.
func (l *restorer) eventsLine(line []byte) error {
	if len(l.s.tasks.slots) > 0 {
		return fmt.Errorf("the line about the event log comes after a task")
	}
	return l.events.line(line)
}

// figuresLine loads figures. They come before the tasks, and are as of the
// sequence that the snapshot covers.
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
	var r record
	var c memberCoder
	for c.again(line) {
		c.text("hash", &r.hash)
		c.raw("definition", &r.definition)
	}
	if c.err != nil {
		return c.err
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
	if l.admit != nil {
		if err := l.admit(tpl); err != nil {
			return err
		}
	}
	for _, name := range tpl.misnamed() {
		l.s.misnamed[name] = true
	}
	l.s.templates.keep(tpl)
	return nil
}

// Names that a new one must not be like. In files of the operator they are noted; a document of
// somebody else is refused for them.

// checkNames looks at the names that a task brings: its tags and the names of its named instances.
func (l *restorer) checkNames(tags []string, t *task) (err error) {
	for _, tag := range tags {
		err = cmp.Or(err, l.checkName(tag))
	}
	if t != nil && t.plan != nil {
		for i := range t.plan.steps {
			if p := &t.plan.steps[i]; p.named {
				err = cmp.Or(err, l.checkName(p.def.name))
			}
		}
	}
	return err
}

func (l *restorer) checkName(name string) error {
	fault := nameFault(name)
	if fault == "" {
		return nil
	}
	if l.admit != nil && !l.names[name] {
		return fmt.Errorf("the name %q %s", name, fault)
	}
	l.s.misnamed[name] = true
	return nil
}

// oldNames are names that a store was opened with and that are refused now.
type oldNames map[string]bool

// oldNames returns them. They do not change any more.
func (s *store) oldNames() oldNames { return s.misnamed }

// warn says that there are such names.
func (n oldNames) warn(log *slog.Logger) {
	if len(n) == 0 {
		return
	}
	example := strconv.Quote(slices.Min(slices.Collect(maps.Keys(n))))
	log.Warn("the store has names with control characters, bidi controls or line separators, which are refused now; "+
		"they are shown escaped", "names", len(n), "example", example[1:len(example)-1])
}

// record loads one line of the journal.
func (l *restorer) record(line *checkedLine) error {
	s, r := l.s, line.record
	s.seq = max(s.seq, line.seq)
	l.events.appendTo(&s.events, line.seq-1) // what the lines of the snapshot have comes first
	if l.repeats(line.seq, line.text) {
		l.events.skip(&s.events, line.seq)
		return nil
	}
	if line.err != nil {
		return line.err
	}
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
	pos, ok := s.tasks.find(r.task)
	if !ok {
		return fmt.Errorf("it is about task %s, which was never created", r.task)
	}
	t, err := s.tasks.taskAt(pos)
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
		return fmt.Errorf("its template %s was never recorded", r.created.template)
	}
	t := newTask(r, tpl)
	t.pos = s.tasks.insert(t.id, slot{live: t}, tpl, r.created, r.at)
	s.requests.insert(r.created.request, t.id, r.at)
	return cmp.Or(l.checkNames(r.created.tags, nil), l.apply(t, line))
}

// dropped drops a task as it was dropped before.
func (l *restorer) dropped(r *record) error {
	pos, ok := l.s.tasks.find(r.task)
	if !ok || l.s.tasks.slots[pos].finished == 0 {
		return fmt.Errorf("it drops task %s, which does not exist or is not finished", r.task)
	}
	return l.s.remove(pos)
}

func (l *restorer) apply(t *task, line *checkedLine) error {
	l.s.scratch = append(l.s.scratch[:0], line.log...)
	if err := l.s.apply(t, line.record); err != nil {
		return err
	}
	if end := line.record.end; end != nil && end.named {
		if err := l.checkNames(nil, t); err != nil {
			return err
		}
	}
	l.s.reindex(t)
	return nil
}

// readStore reads the files of a directory into a store that must not be
// changed. It takes no lock and changes no file.
func readStore(dir string, log *slog.Logger) (*store, error) {
	disk, err := pinStore(osDisk{}, dir)
	if err != nil {
		return nil, err
	}
	defer disk.close()
	s := newStore(nil, log)
	s.events.domain.keep = math.MaxInt // whatever the service keeps
	r := &recovery{disk: disk, dir: dir, loader: &restorer{s: s}}
	if err := r.read(); err != nil {
		return nil, err
	}
	if len(r.files) == 0 {
		return nil, errors.New("there is no store in this directory")
	}
	s.seq, s.journal = max(s.seq, r.last), closedJournal()
	return s, nil
}

// droppedHead is the start of the line about dropped tasks:
//
//	{"dropped":12,"last_id":"…"}
//
// The id is the greatest that a task ever took, even of a dropped one.
const droppedHead = `{"dropped":`

// linesLocked returns that line without its closing brace; none if nothing was
// dropped.
func (r *retention) linesLocked() [][]byte {
	if r.dropped == 0 {
		return nil
	}
	c := memberCoder{b: []byte{'{'}}
	r.members(&c, &r.store.tasks.lastID)
	return [][]byte{c.b}
}

func (r *retention) members(c *memberCoder, lastID *uuid) {
	nonzero(c, "dropped", &r.dropped)
	c.id("last_id", lastID)
}

func (l *restorer) droppedLine(line []byte) error {
	var lastID uuid
	var c memberCoder
	for c.again(line) {
		l.s.retain.members(&c, &lastID)
	}
	l.s.tasks.noteID(lastID)
	return c.err
}
