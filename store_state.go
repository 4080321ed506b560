package main

// The state document: a whole store as one JSON document, made of the same
// lines as a snapshot.
//
//	{"format":1,"product":"stepwell","version":"…","exported_at":"…","clock":{"now":"…","mode":"frozen"},
//	"seq":120,"dropped":3,"last_id":"…","failure_key":"…",
//	"templates":[{"hash":"…","definition":{…}},…],
//	"analytics":[{"figures":…},…],
//	"subscribers":[{"subscriber":"…","from":12,"done":40},…],
//	"requests":[{"request":…,"task":…,"at":…},…],
//	"tasks":[{"task":…,"log":[…]},…]}
//
// The requests are those whose tasks were dropped. What subscribers of domain events wait for is published
// again from the tasks. Without requests or subscribers there is no such array.
// All of it is as of one sequence, "seq"; the clock is there in fixture mode
// only. It is written and read as a stream, with one line for each template,
// figures and task. A document is accepted only if its tasks follow from their
// own records, which are applied one by one. It may have been through a program
// that spells JSON in another way or sorts members; then it is kept in memory
// until its templates and figures have come.

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
)

const (
	stateFormat  = 1
	stateProduct = "stepwell"
	stateBegin   = `{"format":1,"product":"stepwell",`
)

// stateArrays are the arrays of a document, in their order.
var stateArrays = [...]string{"templates", "analytics", "subscribers", "requests", "tasks"}

// stateCut is the moment that an export is as of.
type stateCut struct {
	seq     uint64
	tasks   []keptTask
	figures *frozenFigures
	dropped uint64
	lastID  uuid
	key     failureKey

	subscribers [][]byte // their lines
	requests    []*droppedRequest
	clock       clockState
}

// keptTask is a task as it was at a moment: its line, or the log of a live one.
type keptTask struct {
	line shortLine
	live *taskLog
}

// cutState takes the state as of one sequence. It is dated at, or by a virtual clock.
// Meanwhile no task is dropped; afterwards the cut keeps nothing from its course.
func (s *store) cutState(at instant) *stateCut {
	tasks, _ := s.size()
	room := make([]keptTask, 0, tasks) // before the lock, because it may be large
	s.mu.Lock()
	cut := &stateCut{
		seq: s.seq, tasks: room, figures: s.analytics.freeze(),
		dropped: s.retain.dropped, lastID: s.tasks.lastID, key: s.tasks.index.failures.key, clock: clockState{now: at}, requests: s.requests.order,
		subscribers: s.events.domain.linesLocked(),
	}
	if c, ok := s.clock.(statefulClock); ok {
		cut.clock = c.state() // which moves under this lock alone
	}
	count := len(s.tasks.slots)
	s.retain.holdLocked()
	s.mu.Unlock()
	defer s.retain.release()
	for from := 0; from < count; {
		to := min(from+snapshotBatch, count)
		s.locked(func() { cut.keepTasks(&s.tasks, from, to) })
		from = to
	}
	return cut
}

// keepTasks adds the tasks at positions from up to to.
func (cut *stateCut) keepTasks(x *slotTable, from, to int) {
	for pos := from; pos < to; pos++ {
		switch sl := &x.slots[pos]; {
		case sl.live != nil:
			l := x.logAt(uint32(pos))
			cut.tasks = append(cut.tasks, keptTask{live: &l})
		case sl.line != nil:
			cut.tasks = append(cut.tasks, keptTask{line: sl.line})
		}
	}
}

// exportState writes the state as of one sequence, beside the running service.
func (s *store) exportState(w io.Writer, cut *stateCut) error {
	e := &stateWriter{out: bufio.NewWriterSize(w, 64<<10)}
	e.head(cut)
	e.array(stateArrays[0], s.templates.writeLines)
	e.array(stateArrays[1], func(add func([]byte) error) error { return cut.figures.writeLines(cut.seq, add) })
	if len(cut.subscribers) > 0 { // which earlier versions do not know, like requests
		e.array(stateArrays[2], func(add func([]byte) error) error { return eachOf(cut.subscribers, add) })
	}
	if len(cut.requests) > 0 {
		e.array(stateArrays[3], func(add func([]byte) error) error { return s.requests.writeLines(cut.requests, add) })
	}
	e.array(stateArrays[4], func(add func([]byte) error) error { return cut.writeTasks(&s.templates, add) })
	e.text("}\n")
	if e.err == nil {
		e.err = e.out.Flush()
	}
	if e.err != nil {
		return fmt.Errorf("export the state: %w", e.err)
	}
	return nil
}

// eachOf passes lines to add, until an error.
func eachOf(lines [][]byte, add func(line []byte) error) error {
	for _, line := range lines {
		if err := add(line); err != nil {
			return err
		}
	}
	return nil
}

// stateWriter writes a document and keeps the first error.
type stateWriter struct {
	out *bufio.Writer
	n   int // elements of the array so far
	err error
}

func (e *stateWriter) text(s string) {
	if e.err == nil {
		_, e.err = e.out.WriteString(s)
	}
}

func (e *stateWriter) head(cut *stateCut) {
	b := fmt.Appendf(nil, `{"format":%d,"product":%q,"version":%q,"exported_at":%q`,
		stateFormat, stateProduct, version, cut.clock.now.zoned())
	if cut.clock.mode != "" {
		b = fmt.Appendf(b, `,"clock":{"now":%q,"mode":%q}`, cut.clock.now.zoned(), cut.clock.mode)
	}
	c := memberCoder{b: b}
	number(&c, "seq", &cut.seq)
	number(&c, "dropped", &cut.dropped)
	c.id("last_id", &cut.lastID)
	if cut.key != (failureKey{}) {
		c.b = fmt.Appendf(c.b, `,"failure_key":%q`, cut.key)
	}
	e.text(string(c.b))
}

// array writes an array of the lines that write passes to add, without their
// closing brace.
func (e *stateWriter) array(name string, write func(add func(line []byte) error) error) {
	e.n = 0
	e.text(",\n\"" + name + "\":[")
	if e.err == nil {
		e.err = write(e.element)
	}
	e.text("]")
}

func (e *stateWriter) element(line []byte) error {
	if e.n++; e.n > 1 {
		e.text(",")
	}
	e.text("\n")
	if e.err == nil {
		_, e.err = e.out.Write(line)
	}
	e.text("}")
	return e.err
}

// writeTasks passes every task as it was at the cut to add.
func (cut *stateCut) writeTasks(templates *taskTemplates, add func(line []byte) error) error {
	for i := range cut.tasks {
		line, err := templates.lineAt(&cut.tasks[i], cut.seq)
		if err != nil {
			return err
		}
		cut.tasks[i] = keptTask{} // it may be dropped and collected during a long export
		if err := add(line[:len(line)-1]); err != nil {
			return err
		}
	}
	return nil
}

// eachTask calls visit with the header and the template of each task of a store that does not change.
func eachTask(s *store, visit func(h *taskHeader, tpl *template) error) error {
	cut := s.cutState(0)
	for i := range cut.tasks {
		line, err := s.templates.lineAt(&cut.tasks[i], cut.seq)
		if err != nil {
			return err
		}
		h, err := readTaskHead(line)
		if err != nil {
			return err
		}
		if err := visit(&h, s.templates.find(h.template)); err != nil {
			return err
		}
	}
	return nil
}

// logUpTo returns a log, whose records are separated by commas, up to a sequence.
func logUpTo(log []byte, seq uint64) ([]byte, error) {
	for from, kept := 0, 0; ; {
		end := skipJSONValue(log, from)
		r, err := decodeRecord(log[from:end])
		if err != nil || r.seq > seq {
			return log[:kept:kept], err
		}
		if end == len(log) {
			return log, nil
		}
		from, kept = end+1, end
	}
}

// stateSource is a state document to read.
type stateSource struct {
	document io.Reader
	admit    func(t *template) error // refuses templates of it; nil refuses none, and no names
	names    oldNames                // that are not refused
}

// readState reads a document into a new store that nobody uses yet. The error
// names the place in the document; after an error the store is useless.
func (s *store) readState(from *stateSource) error {
	in := bufio.NewReaderSize(from.document, 256<<10)
	switch begin, _ := in.Peek(3); {
	case len(unmarked(begin)) < len(begin):
		in.Discard(len(begin) - len(unmarked(begin)))
	case isUTF16(begin):
		return &stateError{"", errors.New("it is UTF-16; want UTF-8")}
	}
	d := &stateReader{json: json.NewDecoder(in), s: s, l: restorer{s: s, admit: from.admit, names: from.names}}
	err := d.document()
	if err != nil {
		return d.fault(err)
	}
	s.dead.index = s.dead.index.inOrder()
	d.l.events.passWaiting(&s.events, s.seq)
	s.journal.groups.skipTo(s.seq)
	return nil
}

// stateError is a fault of a document and its place.
type stateError struct {
	path string // like tasks[12].log[3]; "" for the whole document
	err  error
}

func (e *stateError) Error() string {
	if e.path == "" {
		return e.err.Error()
	}
	return e.path + ": " + e.err.Error()
}

func (e *stateError) Unwrap() error { return e.err }

// fault returns an error at the reader's place.
func (d *stateReader) fault(err error) error {
	path := d.path
	if at := new(logError); errors.As(err, &at) {
		path, err = fmt.Sprintf("%s.log[%d]", path, at.at), at.err
	}
	return fmt.Errorf("state document: %w", &stateError{path, err})
}

// stateReader reads a document as a stream.
type stateReader struct {
	json   *json.Decoder
	s      *store
	l      restorer
	path   string // place of what is being read
	format int
	seq    uint64 // that the document is as of; 0 if it does not say
	begun  [len(stateArrays)]bool
	read   int    // the last of stateArrays that was read, from 1
	newest uint64 // sequence of the last task's creation

	kept [len(stateArrays)][]json.RawMessage // elements that came before what they need
}

func (d *stateReader) document() error {
	if err := d.delimiter('{'); err != nil {
		return err
	}
	for d.json.More() {
		key, err := d.json.Token()
		if err != nil {
			return err
		}
		if err := d.member(key.(string)); err != nil {
			return err
		}
	}
	d.path = ""
	if err := d.delimiter('}'); err != nil {
		return err
	}
	// What came before the templates and figures that it needs can be read now.
	for which, elements := range d.kept {
		for n, raw := range elements {
			if err := d.element(which, n, raw); err != nil {
				return err
			}
			elements[n] = nil
		}
	}
	d.path = ""
	if _, err := d.json.Token(); err != io.EOF {
		return errors.New("unexpected data after the document")
	}
	return d.finish()
}

// finish checks what only the end of the document can show.
func (d *stateReader) finish() error {
	if d.format == 0 {
		d.path = "format"
		return errors.New("it is missing: this is not a state document, or it is cut off")
	}
	s := d.s
	if last := max(s.seq, s.analytics.covered); d.seq != 0 && d.seq < last {
		return fmt.Errorf("its seq is %d, but it contains sequence %d", d.seq, last)
	}
	s.seq = max(s.seq, s.analytics.covered, d.seq)
	for i, sub := range s.events.domain.subscriptions {
		if got := max(sub.from, sub.done); got > s.seq {
			d.path = fmt.Sprintf("%s[%d]", stateArrays[2], i)
			return fmt.Errorf("subscriber %s got events up to sequence %d, but the document ends at %d", sub.name, got, s.seq)
		}
	}
	return nil
}

// subscriber reads how far a subscriber of domain events got. It gets the later ones from their tasks.
func (d *stateReader) subscriber(line []byte) error {
	if err := d.l.subscriberLine(line); err != nil {
		return err
	}
	subs, c := d.s.events.domain.subscriptions, &d.l.events
	if done := subs[len(subs)-1].done; !c.known || done < c.domainAfter {
		c.domainAfter, c.domainGone = done, done
	}
	c.known, c.after = true, math.MaxUint64 // no transitions
	return nil
}

func (d *stateReader) delimiter(want json.Delim) error {
	token, err := d.json.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err == nil && token != want {
		err = fmt.Errorf("got %v; want %v", token, want)
	}
	return err
}

func (d *stateReader) member(key string) error {
	d.path = key
	if i := slices.Index(stateArrays[:], key); i >= 0 {
		return d.elements(i)
	}
	var raw json.RawMessage
	if err := d.json.Decode(&raw); err != nil {
		return err
	}
	switch key {
	case "format":
		return d.readFormat(raw)
	case "product":
		if name, ok := jsonString(raw); !ok || name != stateProduct {
			return fmt.Errorf("got %.80s; want %q", raw, stateProduct)
		}
		return nil
	case "version":
		return refuseIf(jsonKind(raw) != '"', "it must be a string")
	case "exported_at":
		text, _ := jsonString(raw)
		_, err := parseInstant(text)
		return refuseIf(err != nil, "it must be a timestamp like 2026-01-31T12:00:00Z")
	case "clock":
		return d.readClock(raw)
	case "seq":
		return readCount(raw, &d.seq)
	case "dropped":
		return readCount(raw, &d.s.retain.dropped)
	case "last_id":
		text, _ := jsonString(raw)
		id, ok := parseUUID(text)
		d.s.tasks.noteID(id)
		return refuseIf(!ok, "it must be a UUID")
	case "failure_key":
		return d.readKey(raw)
	}
	return errors.New("unknown member, from a newer version")
}

// maxStateCount is the largest number of a document: every client can hold it, and the store can count on from there.
const maxStateCount = 1<<53 - 1

func readCount(raw []byte, n *uint64) error {
	v, ok := jsonInt(raw)
	*n = uint64(v)
	return refuseIf(!ok || v < 0 || v > maxStateCount, fmt.Sprintf("it must be an integer from 0 to %d", maxStateCount))
}

func (d *stateReader) readFormat(raw []byte) error {
	n, ok := jsonInt(raw)
	if !ok || n < 1 || n > stateFormat {
		return fmt.Errorf("it is %s, and this version of stepwell reads formats up to %d", raw, stateFormat)
	}
	d.format = int(n)
	return nil
}

// readKey reads the key of failure groups.
func (d *stateReader) readKey(raw []byte) error {
	if len(d.s.tasks.slots) > 0 {
		return errors.New("it must come before the tasks, whose failures are grouped by it")
	}
	text, _ := jsonString(raw)
	return d.s.tasks.index.failures.key.UnmarshalText([]byte(text))
}

func (d *stateReader) readClock(raw []byte) error {
	var f fieldReader
	c := &d.s.carried
	if jsonKind(raw) != '{' || checkElement(raw) != nil {
		return errors.New("it must be an object")
	}
	eachMember(raw, func(key string, value []byte) bool {
		switch key {
		case "now":
			c.now = f.instant(key, value)
		case "mode":
			c.mode = clockMode(f.text(key, value, 1, maxNameLength))
		default:
			f.complain(key, "is not known")
		}
		return true
	})
	modes := []clockMode{clockReal, clockFrozen, clockAuto}
	if len(f.problems) == 0 && !(slices.Contains(modes, c.mode) && c.now > 0 && c.now <= lastInstant) {
		f.complain("now", "must be an instant, and mode one of %s", modes)
	}
	if len(f.problems) > 0 {
		return errors.New(f.problems[0].Field + " " + f.problems[0].Message)
	}
	return nil
}

// elements reads one of stateArrays, or keeps its elements until the end of the document.
func (d *stateReader) elements(which int) error {
	// Everything else needs the templates, and all but these need the figures.
	keep := which > 0 && !d.begun[0] || which > 1 && !d.begun[1]
	switch {
	case d.begun[which]:
		return errors.New("duplicate")
	case which < d.read:
		return fmt.Errorf("it comes after %s: want %s in this order", stateArrays[d.read-1],
			strings.Join(stateArrays[:], ", "))
	case !keep:
		d.read = which + 1
	}
	d.begun[which] = true
	if err := d.delimiter('['); err != nil {
		return err
	}
	for n := 0; d.json.More(); n++ {
		d.path = fmt.Sprintf("%s[%d]", stateArrays[which], n)
		var raw json.RawMessage
		if err := d.json.Decode(&raw); err != nil {
			return err
		}
		if keep {
			d.kept[which] = append(d.kept[which], raw)
		} else if err := d.element(which, n, raw); err != nil {
			return err
		}
	}
	d.path = stateArrays[which]
	return d.delimiter(']')
}

// element reads an element of one of stateArrays.
func (d *stateReader) element(which, n int, raw []byte) error {
	d.path = fmt.Sprintf("%s[%d]", stateArrays[which], n)
	if err := checkElement(raw); err != nil {
		return err
	}
	take := [...]func(line []byte) error{d.template, d.l.figuresLine, d.subscriber, d.l.requestLine, d.task}[which]
	return take(compactJSON(make([]byte, 0, len(raw)), raw))
}

// template reads a template. Its definition may be spelled differently from the text that was hashed.
func (d *stateReader) template(line []byte) error {
	hash, definition := objectMember(line, "hash"), objectMember(line, "definition")
	name, _ := jsonString(hash)
	if t, err := templateFromNormalized(definition); err == nil && t.hash != name {
		if t, _, _ = parseTemplate("", definition, "json", "", nil); t != nil && t.hash == name {
			line = fmt.Appendf(nil, `{"hash":%s,"definition":%s}`, hash, t.json)
		}
	}
	return d.l.templateLine(line)
}

// elementDepth is how deep in an element a value from outside may be, which may
// itself be nested as deep as any.
const elementDepth = 8

func checkElement(raw []byte) error {
	s := jsonScanner{data: raw}
	if _, err := s.value(0, -elementDepth); err != nil {
		return err
	}
	return nil
}

// task reads a task and checks that it follows from its log.
func (d *stateReader) task(line []byte) error {
	h, err := readTaskHeader(line)
	if err != nil {
		return err
	}
	tpl := d.s.templates.find(h.template)
	if tpl == nil {
		return fmt.Errorf("its template %s is not among the templates", h.template)
	}
	order := &logOrder{}
	t, err := h.replay(tpl, order)
	if err = cmp.Or(err, order.err); err != nil {
		return err
	}
	again := t.header()
	if err := h.follows(&again); err != nil {
		return err
	}
	// Positions must be in the order of creation.
	if h.seq <= d.newest {
		return fmt.Errorf("its seq %d is not after that of the task before it, %d", h.seq, d.newest)
	}
	d.newest = h.seq
	if err := respellLog(t); err != nil {
		return err
	}
	if first, twice := d.s.tasks.identities[t.by.identity]; twice {
		return fmt.Errorf("it has the same identity as task %s", first)
	}
	if err := d.checkStepIDs(t); err != nil {
		return err
	}
	return d.l.line(t.appendTaskLine(nil))
}

// respellLog writes the records of a task in the order of members that they are looked for in.
func respellLog(t *task) (err error) {
	given := t.log
	t.log = make([]byte, 0, len(given))
	eachLogEntry(given, func(entry []byte) {
		r, bad := decodeRecord(entry)
		if err = cmp.Or(err, bad); err == nil {
			r.task = t.id
			t.appendLog(r.seq, appendRecordMembers(nil, r))
		}
	})
	return err
}

// checkStepIDs returns an error if the creation of a task names the id of a step that is there already.
func (d *stateReader) checkStepIDs(t *task) error {
	seen := map[uuid]bool{t.id: true}
	for i := range t.by.steps {
		id := t.by.stepID(t.id, i)
		if _, taken := d.s.tasks.byStep[id]; taken || seen[id] {
			return fmt.Errorf("it names a step %s, as does a task before it, or itself", id)
		}
		if seen[id] = true; i >= len(t.tpl.steps) && t.by.steps[i].isZero() {
			return fmt.Errorf("it names no id for instance %d", i-len(t.tpl.steps)+1)
		}
	}
	return nil
}

// follows checks the header against again, the header that a replay of the log gives.
func (h *taskHeader) follows(again *taskHeader) error {
	for _, m := range []struct {
		name      string
		got, want any
	}{
		{"state", h.state, again.state}, {"created", h.created, again.created}, {"updated", h.updated, again.updated},
		{"completed", h.completed, again.completed}, {"seq", h.seq, again.seq}, {"last", h.lastSeq, again.lastSeq},
		{"steps", h.counts, again.counts}, {"last_id", h.lastID, again.lastID},
	} {
		if m.got != m.want {
			return fmt.Errorf("its %s is %v, but its log gives %v", m.name, m.got, m.want)
		}
	}
	if !slices.Equal(h.dead, again.dead) {
		return fmt.Errorf("its dlq does not follow from its log")
	}
	return nil
}

// logOrder checks that the records of a task are in order and have a time.
type logOrder struct {
	unobserved
	n    int
	last uint64
	err  error
}

func (o *logOrder) startRecord(_ *task, r *record) {
	switch {
	case o.err != nil:
	case r.seq <= o.last:
		o.err = &logError{o.n, fmt.Errorf("sequence %d comes after %d", r.seq, o.last)}
	case r.at == 0:
		o.err = &logError{o.n, errors.New("it has no time")}
	}
	o.last = r.seq
	o.n++
}

// Making a store from a state document: in memory, or as the files of a
// directory, all or nothing.

// openStoreWith opens an empty store with the state of a document.
func openStoreWith(o journalOptions, state *stateSource, keepEvents int, c clock, log *slog.Logger) (*store, error) {
	if !o.memory {
		imported, err := importStore(o, state, log)
		if err != nil {
			return nil, err
		}
		s, err := openStore(o, keepEvents, c, log)
		if err == nil {
			s.carried = imported.carried // the files do not hold it
		}
		return s, err
	}
	s, err := openStore(o, keepEvents, c, log)
	if err != nil {
		return nil, err
	}
	return s, s.readState(state)
}

// importStore creates the files of a store from a document, in a directory that
// holds none. They are written under temporary names, and the snapshot gets its
// name before the journal: a crash leaves no store, or all of it.
func importStore(o journalOptions, state *stateSource, log *slog.Logger) (*store, error) {
	o.fs = cmp.Or(o.fs, diskFS(osDisk{}))
	j := newJournal(o)
	if err := j.place.take(); err != nil {
		return nil, err
	}
	defer j.place.lock.Close()
	if err := j.files.holdNothing(); err != nil {
		return nil, err
	}
	s, err := storeOf(state, log)
	if err != nil {
		return nil, err
	}
	if err := s.writeFiles(j); err != nil {
		return nil, fmt.Errorf("import into %s: %w", o.dir, err)
	}
	return s, nil
}

// storeOf returns a store in memory with the state of a document.
func storeOf(state *stateSource, log *slog.Logger) (*store, error) {
	s := newStore(nil, log)
	s.journal, s.events.domain.keep = closedJournal(), math.MaxInt
	return s, s.readState(state)
}

// writeFiles writes the store as a snapshot and an empty journal after it.
func (s *store) writeFiles(j *journal) error {
	j.files.of.key = cmp.Or(s.tasks.index.failures.key, j.files.of.key)
	f, _, err := j.files.create(s.seq + 1)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := j.place.lock.syncDir(); err != nil {
		return err
	}
	w := &snapshotWriter{j: j, size: snapshotHeaderSize, covered: s.seq}
	if err := w.openFile(); err != nil {
		return err
	}
	defer w.file.Close()
	return untilError(
		func() error { return eachOf(s.events.linesLocked(), w.line) },
		func() error { return s.writeSnapshot(w, len(s.tasks.slots), s.analytics.freeze(), w.covered) },
		w.lastLine,
		w.seal,
		w.install,
		func() error { return j.o.fs.rename(j.files.path(journalTempName), j.files.path(journalName)) },
		j.place.lock.syncDir,
	)
}

// spoolState checks a document and copies it to a file in a directory, which
// the caller removes.
func spoolState(state *stateSource, dir string, log *slog.Logger) (*os.File, error) {
	f, err := os.CreateTemp(dir, "state-*.json")
	if err != nil {
		return nil, fmt.Errorf("keep the state document: %w", err)
	}
	checked := *state
	checked.document = io.TeeReader(state.document, f)
	if _, err = storeOf(&checked, log); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, err
	}
	return f, nil
}

// clockMode says what moves a virtual clock.
type clockMode string

const (
	clockReal   clockMode = "real"   // time passes
	clockFrozen clockMode = "frozen" // time stops until it is advanced
	clockAuto   clockMode = "auto"   // time stops while something runs, and jumps to what is due next
)

// clockState is a clock in a state document; without a mode there is no clock.
type clockState struct {
	now  instant
	mode clockMode
}

// statefulClock is a clock that state documents carry.
type statefulClock interface {
	state() clockState
	// restore sets a clock that was not read yet.
	restore(s clockState)
}

// resumeClock sets the clock of a store that was just opened, if it is a stateful
// one, to its state in the document.
func (s *store) resumeClock() {
	if c, ok := s.clock.(statefulClock); ok {
		c.restore(s.carried)
	}
}
