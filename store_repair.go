package main

// Reading what is sound of a damaged store: for `stepwell store repair`, which writes it
// as a new store, and for `serve --read-only`. Nothing here changes a file of the
// damaged one.
//
// Every line has its own checksum, so each is sound or lost alone. Tasks are then built
// from the sound lines of the snapshot and the sound records after it. A task that one of
// its records does not fit any more, because an earlier one is lost, is kept as it was
// before that record.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
)

// salvage reads what is sound of a store, and notes what is not.
type salvage struct {
	files   recovery // only its parts are used
	s       *store
	l       restorer
	losses  []string // what is lost, each with its place
	torn    string   // the unfinished write at the end, which is not a loss
	records []soundRecord
	broken  map[uuid]*brokenTask
}

// soundRecord is a record of a journal.
type soundRecord struct {
	seq  uint64
	line []byte
}

// brokenTask is a task some of whose records cannot be applied.
type brokenTask struct {
	since  uint64 // the first of them
	reason error
	more   int // records after that one
}

// salvageStore reads what is sound of the store in a directory.
func salvageStore(disk diskFS, dir string, log *slog.Logger) (*salvage, error) {
	pinned, err := pinStore(disk, dir)
	if err != nil {
		return nil, err
	}
	defer pinned.close()
	v := &salvage{files: recovery{disk: pinned, dir: dir}, s: newStore(nil, log), broken: map[uuid]*brokenTask{}}
	v.l.s = v.s
	if len(pinned.files) == 0 {
		return nil, errors.New("there is no store in this directory")
	}
	v.findKey()
	if err := v.salvageSnapshot(); err != nil {
		return nil, err
	}
	for _, name := range []string{journalOldName, journalName} {
		if err := v.salvageJournal(name); err != nil {
			return nil, err
		}
	}
	v.apply()
	v.s.seq, v.s.journal = max(v.s.seq, v.files.covered, v.files.last), newJournal(journalOptions{memory: true})
	v.s.dead.index = v.s.dead.index.inOrder()
	v.l.events.passWaiting(&v.s.events, v.s.seq)
	return v, nil
}

// findKey looks for the key of failure groups in any header that is sound, before a task is read.
func (v *salvage) findKey() {
	for _, name := range []string{snapshotName, journalOldName, journalName} {
		if s, f, err := v.files.scan(name); err == nil {
			h, _ := readHeader(name, s)
			v.l.begin(&h, 0)
			f.Close()
		}
	}
}

// lose notes a loss at a place.
func (v *salvage) lose(file string, line int, format string, args ...any) {
	v.losses = append(v.losses, fmt.Sprintf("%s, line %d: %s", file, line, fmt.Sprintf(format, args...)))
}

// header reads the header of a file. A damaged one is a loss, and the lines count all the
// same. A newer format is an error: its lines may be anything.
func (v *salvage) header(name string, s *journalScanner) (h storeHeader, err error) {
	h, err = readHeader(name, s)
	if d, damaged := errors.AsType[*damage](err); damaged {
		v.lose(name, d.line, "%s: the header is lost", d.reason)
		return storeHeader{}, nil
	}
	return h, err
}

// salvageSnapshot loads the sound lines of the snapshot, in the order that they need.
func (v *salvage) salvageSnapshot() error {
	s, f, err := v.files.scan(snapshotName)
	if errors.Is(err, fs.ErrNotExist) {
		v.l.events.known = true // the journal has all events
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	h, err := v.header(snapshotName, s)
	if err != nil {
		return err
	}
	v.files.covered, v.files.of.id = h.Seq, h.Store
	lines, bad, err := v.soundLines(snapshotName, s)
	if err != nil {
		return err
	}
	v.files.snapshotBytes = s.end
	if missing := int(h.Count) - len(lines) - bad; missing > 0 {
		v.lose(snapshotName, s.number, "the file ends here: %s lost", counted(missing, "line is", "lines are"))
	}
	slices.SortStableFunc(lines, func(a, b soundLine) int { return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.seq, b.seq)) })
	for _, line := range lines {
		if err := v.l.line(line.text); err != nil {
			v.lose(snapshotName, line.number, "%s cannot be read: %v", lineSubject(line.text), err)
		}
	}
	v.files.covered = cmp.Or(v.files.covered, v.s.analytics.covered)
	return nil
}

// soundLine is a line of the snapshot without its checksum.
type soundLine struct {
	text   []byte
	number int
	kind   int    // see kindOfLine
	seq    uint64 // of the creation of a task
}

// soundLines reads the lines after the header but the last, and counts the bad ones.
func (v *salvage) soundLines(name string, s *journalScanner) (lines []soundLine, bad int, err error) {
	for {
		line, whole, err := s.next()
		if err == io.EOF {
			return lines, bad, nil
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read %s: %w", name, err)
		}
		if bytes.HasPrefix(line, []byte(endHead)) {
			continue
		}
		if reason := (&checkedLine{whole: whole, fault: lineFault(line)}).faultUnless(true); reason != "" {
			v.lose(name, s.number, "%s: %s is lost", reason, lineSubject(line))
			bad++
			continue
		}
		l := soundLine{text: cutSum(line), number: s.number, kind: kindOfLine(line)}
		if bytes.HasPrefix(line, []byte(taskHead)) {
			h, _ := readTaskHead(l.text)
			l.seq = h.seq
		}
		lines = append(lines, l)
	}
}

// lineSubject says what a line of a snapshot is about, even if it is damaged.
func lineSubject(line []byte) string {
	if id, ok := lineID(line); ok && bytes.HasPrefix(line, []byte(taskHead)) {
		return "task " + id.String()
	}
	return lineKinds[kindOfLine(line)].subject
}

// salvageJournal keeps the sound records of a journal. A journal of another store is left
// out as a whole.
func (v *salvage) salvageJournal(name string) error {
	s, f, err := v.files.scan(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	h, err := v.header(name, s)
	if err != nil {
		return err
	}
	if err := v.files.sameStore(name, &h); err != nil {
		v.losses = append(v.losses, err.Error()+": it is left out")
		return nil
	}
	v.files.last, v.files.header = max(v.files.last, h.From-min(h.From, 1)), s.end
	return v.soundRecords(name, s)
}

func (v *salvage) soundRecords(name string, s *journalScanner) error {
	var end []string // bad lines since the last good one
	first := 0       // of these
	for {
		line, whole, err := s.next()
		if err == io.EOF {
			v.files.bytes = s.end
			break
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		seq, fault := recordSeq(line)
		if !whole {
			fault = "the line is incomplete"
		}
		if fault == "" {
			v.losses, end = append(v.losses, end...), nil
			v.records = append(v.records, soundRecord{seq, line})
			continue
		}
		if len(end) == 0 {
			first = s.number
			if name == journalName && (!whole || endsInZeros(line) || hasHole(line, s.start, whole)) {
				v.torn = fmt.Sprintf("%s, line %d: an unfinished write, as a crash leaves it, up to the end", name, first)
			} else {
				v.torn = ""
			}
		}
		end = append(end, fmt.Sprintf("%s, line %d: %s: the record is lost", name, s.number, fault))
	}
	if v.torn == "" || len(end) == 0 {
		v.torn, v.losses = "", append(v.losses, end...)
	}
	return nil
}

// apply applies the records after the snapshot in their order, and notes those missing.
func (v *salvage) apply() {
	slices.SortStableFunc(v.records, func(a, b soundRecord) int { return cmp.Compare(a.seq, b.seq) })
	last := v.files.covered
	for _, r := range v.records {
		if r.seq <= last {
			continue // the snapshot or the other journal has it
		}
		if r.seq > last+1 {
			v.noteGap(last+1, r.seq-1)
		}
		last = r.seq
		line := checkedLine{text: r.line}
		(&lineBlock{}).recorded(&line)
		if err := v.l.record(&line); err != nil {
			v.failed(r, err)
		}
	}
	if v.files.last > last { // the header of an empty journal
		v.noteGap(last+1, v.files.last)
	}
	v.files.last = max(v.files.last, last)
	bySeq := func(a, b uuid) int { return cmp.Compare(v.broken[a].since, v.broken[b].since) }
	for _, id := range slices.SortedFunc(maps.Keys(v.broken), bySeq) {
		b := v.broken[id]
		pos, kept := v.s.tasks.find(id)
		what := "is lost"
		if kept && !v.s.tasks.slots[pos].vacant() {
			what = fmt.Sprintf("is kept as it was before sequence %d", b.since)
		}
		v.losses = append(v.losses, fmt.Sprintf("task %s %s: %v (records of it that are lost after this one: %d)",
			id, what, b.reason, b.more))
	}
}

// noteGap notes missing records, and how many tasks may lack changes by them.
func (v *salvage) noteGap(from, to uint64) {
	unfinished := 0
	v.s.tasks.eachLive(func(*task) { unfinished++ })
	v.losses = append(v.losses, fmt.Sprintf("sequence %d to %d: %s missing; %s then unfinished and may lack changes",
		from, to, counted(int(to-from+1), "record is", "records are"), counted(unfinished, "task was", "tasks were")))
}

// failed keeps the task of a record that cannot be applied as it was before.
func (v *salvage) failed(r soundRecord, cause error) {
	d, err := decodeRecord(r.line)
	if err != nil {
		v.losses = append(v.losses, fmt.Sprintf("sequence %d: %v", r.seq, cause))
		return
	}
	_, known := v.s.tasks.find(d.task)
	switch b := v.broken[d.task]; {
	case b != nil:
		b.more++
	case d.kind == recDropped && !known: // which makes no difference
	default:
		v.broken[d.task] = &brokenTask{since: r.seq, reason: cause}
	}
	if known {
		v.restoreTask(d.task, r.seq)
	}
}

// restoreTask undoes what a record that failed has changed in its task.
func (v *salvage) restoreTask(id uuid, seq uint64) {
	pos, _ := v.s.tasks.find(id)
	sl := &v.s.tasks.slots[pos]
	if sl.live == nil { // the record was applied to a copy, decoded from the line
		return
	}
	log, err := logUpTo(sl.live.log, seq-1)
	var t *task
	if err == nil {
		t, err = replayRecords(id, sl.live.tpl, log, unobserved{})
	}
	if err != nil {
		sl.live = nil
		return
	}
	t.pos, t.indexed = sl.live.pos, sl.live.indexed
	sl.live = t
}

// write writes what is sound as a new store, and reads it again as a start would.
func (v *salvage) write(o journalOptions) error {
	o.fs = cmp.Or(o.fs, diskFS(osDisk{}))
	j := newJournal(o)
	if err := j.place.take(); err != nil {
		return err
	}
	defer j.place.lock.Close()
	if err := j.files.holdNothing(); err != nil {
		return err
	}
	if err := v.s.writeFiles(j); err != nil {
		return fmt.Errorf("write the store %s: %w", o.dir, err)
	}
	again := newStore(nil, o.log)
	return checkStore(o.fs, o.dir, &restorer{s: again}, io.Discard)
}

// openReadOnly returns what is sound of the store in a directory. It accepts no change and
// no lock.
func openReadOnly(o journalOptions, c clock, log *slog.Logger) (*store, error) {
	v, err := salvageStore(cmp.Or(o.fs, diskFS(osDisk{})), o.dir, log)
	if err != nil {
		return nil, fmt.Errorf("read store %s: %w", o.dir, err)
	}
	for _, loss := range v.losses[:min(len(v.losses), 20)] {
		log.Warn("the store is damaged", "lost", loss)
	}
	if n := len(v.losses); n > 20 {
		log.Warn("the store is damaged in more places", "all", n)
	}
	s := v.s
	s.clock, s.requests.clock = c, c
	s.journal.groups.skipTo(s.seq)
	s.journal.groups.fail(errReadOnly)
	return s, nil
}

// errReadOnly is why a store accepts no changes that was opened to be read.
var errReadOnly = errors.New("the service was started with --read-only")
