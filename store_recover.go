package main

// Reading a store at its start: which files count, what they must contain, and
// what happens to the files that a crash left behind.
//
// Every file except the newest journal was synced as a whole before it got its
// name, so only the end of the newest journal can be torn. The table has the
// steps of a snapshot, the files after each step, and what a start does that
// finds them (J journal.jsonl, J- journal.old.jsonl, S snapshot.jsonl; J' and
// S' are the temporary files beside J and S, which a start removes):
//
//	step                    files             a start
//	0 nothing under way     J or J S          reads S, then the later records in J
//	1 J' made               J J' or J J' S    does the same
//	2 J is J- too           J- J J' or with S reads the longer one of J- and J, as J: in a copy they may differ
//	  or becomes J-         J- J' or J- J' S  reads J- as if it were J, and renames it to J
//	3 J' becomes J          J- J or J- J S    reads S, J-, J; the next snapshot removes J-
//	4 S' made and synced    J- J S' (S)       does the same
//	5 S' becomes S          J- J S            removes J- unread: S covers everything before J
//	6 J- removed            J S               reads S, then J, as in row 0
//	7 an import, see there  J' S              renames J' to J
//
// Step 2 gives J a second name, so that J is never missing; it renames J where the file
// system has no second names. Steps 3, 5 and 6 wait for copies of the directory, see
// copyWatch; for one that began at that moment, J', S' or J- stays as an empty file.
// A snapshot that failed or was given up leaves row 3 behind, and the next one begins
// at step 4. The very first start makes journal.jsonl by steps 1 and 3.
// The directory is synced after steps 2, 3 and 5; nothing is written to the new
// journal before the sync of step 3. A snapshot without a journal is none of
// these states and is refused: otherwise the journal's records would be lost
// unnoticed.
//
// The torn end. A group of records is one write and is acknowledged after its
// sync, so only the last group can be torn. The part that did not reach the
// disk is missing at the end or reads as zeros, in whole sectors, because the
// blocks ahead of the end hold nothing but zeros. Zeros alone at the end are
// room for more records (zerosAhead). So the rest of the newest
// journal, from its first bad line on, is cut off if it is one line without an end,
// or has a hole of zeros and every good record after it says that it belongs to
// the same write: "w" leads back to the first record that is missing, or before
// it. A good record of a later write proves that the hole was synced, and so
// acknowledged: a sector was lost. Everything else is damage, too, even in the
// very last line: a record that was changed after it was acknowledged is
// refused, not dropped. (In modes interval and never, "the last group" is
// everything since the last sync.)

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"sync/atomic"
)

const (
	journalName     = "journal.jsonl"
	journalOldName  = "journal.old.jsonl"
	journalTempName = "journal.jsonl.tmp"
	snapshotName    = "snapshot.jsonl"
	snapshotTemp    = "snapshot.jsonl.tmp"
	cleanName       = "journal.clean"

	diskSector = 512 // bytes that a disk writes as a whole or not at all
)

// storeFiles are the files of a store that a start may read.
var storeFiles = [...]string{snapshotName, journalOldName, journalName, journalTempName}

// loader takes what a start reads: the lines of the snapshot, then the records
// after the sequence that it covers. The lines are complete, without their
// newline, and checked. The loader must not keep them.
type loader interface {
	expect(tasks int) // about, in all files
	snapshotLine(line *checkedLine) error
	record(line *checkedLine) error
}

// recovery reads the files of one store. It changes nothing before tidy.
type recovery struct {
	disk   diskFS
	dir    string
	loader loader
	until  context.Context // reading fails when it ends; nil for never
	shows  *readProgress   // nil for nobody

	id            string // of the store; "" if no file has one
	hasSnapshot   bool
	snapshotBytes int64
	covered       uint64 // sequence that the snapshot covers

	files    []string // journals to read, the oldest first; none in a new store
	undo     bool     // rename journal.old.jsonl back to journal.jsonl
	twins    bool     // both journals are one file, or copies of it: the longer one counts
	imported bool     // rename journal.jsonl.tmp to journal.jsonl: an import ended before its last step
	dropOld  bool     // remove journal.old.jsonl: the snapshot covers it
	last     uint64   // sequence of the last record, or of the one before the first
	started  bool     // a journal's header was read, so last is valid
	oldBytes int64    // of journal.old.jsonl if it is still needed
	bytes    int64    // of the newest journal, without its torn end
	torn     int64    // bytes of the torn end
	clean    bool     // the journal was synced before its process ended
	tornLine int      // line of the torn end
}

func (r *recovery) path(name string) string { return filepath.Join(r.dir, name) }

// readProgress is how much of a store was read.
type readProgress struct{ done, all atomic.Int64 } // bytes

// String returns why the service is not ready.
func (p *readProgress) String() string {
	if all := p.all.Load(); all > 0 {
		return fmt.Sprintf("the service is starting: %d %% of the store was read", min(100*p.done.Load()/all, 99))
	}
	return "the service is starting"
}

// progressReader counts what is read.
type progressReader struct {
	io.Reader
	shows *readProgress
}

func (p *readProgress) follow(src io.Reader) io.Reader {
	if p == nil {
		return src
	}
	return progressReader{src, p}
}

func (r progressReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.shows.done.Add(int64(n))
	return n, err
}

// measure finds out how much there is to read.
func (r *recovery) measure() {
	for _, name := range storeFiles {
		r.shows.all.Add(r.sizeOf(name))
	}
}

// sizeOf returns the size of a file; 0 if that fails, as its reading will.
func (r *recovery) sizeOf(name string) (size int64) {
	if f, err := r.disk.open(r.path(name)); err == nil {
		size, _ = f.size()
		f.Close()
	}
	return size
}

// read passes the store to the loader. The error names file, line and reason.
func (r *recovery) read() error {
	if r.shows != nil {
		r.measure()
	}
	if err := r.readSnapshot(); err != nil {
		return err
	}
	if err := r.chooseJournals(); err != nil {
		return err
	}
	for i, name := range r.files {
		newest := i == len(r.files)-1 && (!r.undo || r.twins)
		if err := r.readJournal(name, newest); err != nil {
			return err
		}
	}
	if r.last < r.covered {
		return fmt.Errorf("%s ends at sequence %d, but %s covers %d: records are missing",
			journalName, r.last, snapshotName, r.covered)
	}
	return nil
}

// scan opens a file for reading by lines.
func (r *recovery) scan(name string) (*journalScanner, diskFile, error) {
	f, err := r.disk.open(r.path(name))
	if err != nil {
		return nil, nil, err
	}
	size, err := f.size()
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	s := newJournalScanner(r.shows.follow(endedBy(r.until, f)), size)
	s.zeros = name != snapshotName
	return s, f, nil
}

// endingReader fails once its context has ended, and so ends a long start soon.
type endingReader struct {
	until context.Context
	src   io.Reader
}

// endedBy returns a reader that fails once a context has ended, if there is one.
func endedBy(until context.Context, src io.Reader) io.Reader {
	if until == nil {
		return src
	}
	return endingReader{until, src}
}

func (r endingReader) Read(p []byte) (int, error) {
	if err := r.until.Err(); err != nil {
		return 0, err
	}
	return r.src.Read(p)
}

// chooseJournals finds the row of the table above.
func (r *recovery) chooseJournals() error {
	from, hasJournal, err := r.journalFrom(journalName)
	if err != nil {
		return err
	}
	oldFrom, hasOld, err := r.journalFrom(journalOldName)
	if err != nil && !(hasJournal && from <= r.covered+1) {
		return err
	}
	if !hasJournal && !hasOld && r.hasSnapshot {
		next, there, err := r.journalFrom(journalTempName)
		if r.imported = err == nil && there && next == r.covered+1; r.imported {
			r.files = []string{journalTempName}
			return nil
		}
	}
	if hasJournal && hasOld && oldFrom == from {
		if r.twins, err = r.longer(journalOldName, journalName); err != nil {
			return err
		}
	}
	switch {
	case r.twins, !hasJournal && hasOld:
		r.files, r.undo = []string{journalOldName}, true
	case !hasJournal && r.hasSnapshot:
		return fmt.Errorf("%s is missing, and %s alone may be behind it", journalName, snapshotName)
	case !hasJournal:
		r.files = nil
	case hasOld && from > r.covered+1:
		r.files = []string{journalOldName, journalName}
	default:
		r.files, r.dropOld = []string{journalName}, hasOld
	}
	return nil
}

// longer reports whether one journal is longer than another, without the zeros at their ends.
func (r *recovery) longer(name, other string) (bool, error) {
	var sizes [2]int64
	for i, name := range []string{name, other} {
		s, f, err := r.scan(name)
		for err == nil {
			_, _, err = s.next()
		}
		if f != nil {
			f.Close()
		}
		if err != io.EOF {
			return false, err
		}
		sizes[i] = s.end
	}
	return sizes[0] > sizes[1], nil
}

// journalFrom returns the first sequence of a journal, and whether the journal
// exists.
func (r *recovery) journalFrom(name string) (from uint64, there bool, err error) {
	s, f, err := r.scan(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, true, err
	}
	defer f.Close()
	h, err := readHeader(name, s)
	if err == nil && (h.Journal == "" || h.From == 0) {
		err = &damage{name, 1, "it is not the header of a journal"}
	}
	if err == nil {
		err = r.sameStore(name, h.Store)
	}
	return h.From, true, err
}

// sameStore refuses a file of another store. Files of format 1 do not tell.
func (r *recovery) sameStore(name, id string) error {
	if r.id == "" {
		r.id = id
	}
	if id != "" && id != r.id {
		return &damage{name, 1, fmt.Sprintf("it is a file of the store %s, and those before it are of %s", id, r.id)}
	}
	return nil
}

// readJournal reads one journal, and checks that it continues what was read
// before.
func (r *recovery) readJournal(name string, newest bool) error {
	from, _, err := r.journalFrom(name)
	if err != nil {
		return err
	}
	if from > r.last+1 || r.started && from != r.last+1 {
		reason := fmt.Sprintf("the file begins at sequence %d, but what comes before it ends at %d", from, r.last)
		return &damage{name, 1, reason}
	}
	r.started, r.last = true, from-1
	s, f, err := r.scan(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, _, err := s.next(); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if err := r.readRecords(name, s, newest); err != nil {
		return err
	}
	if name == journalOldName && !r.undo {
		r.oldBytes = r.bytes
	}
	return nil
}

// readRecords passes on the records of a journal whose header was read.
func (r *recovery) readRecords(name string, s *journalScanner, newest bool) error {
	lines := readAhead(s, (*lineBlock).recorded)
	defer lines.stop()
	for {
		r.bytes = lines.end
		line, err := lines.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if !line.whole || line.fault != "" {
			return r.badRecord(name, lines.number, newest)
		}
		if line.seq != r.last+1 {
			return &damage{name, lines.number, fmt.Sprintf("sequence %d where %d was expected", line.seq, r.last+1)}
		}
		r.last = line.seq
		if line.seq <= r.covered {
			continue
		}
		if err := r.loader.record(line); err != nil {
			return fmt.Errorf("%s, line %d: %w", name, lines.number, err)
		}
	}
}

// badRecord decides whether the rest of a journal, from a line on, is torn or damaged.
func (r *recovery) badRecord(name string, number int, newest bool) error {
	s, f, err := r.scan(name)
	if err != nil {
		return err
	}
	defer f.Close()
	var line []byte
	var whole bool
	for s.number < number {
		if line, whole, err = s.next(); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
	}
	_, reason := recordSeq(line)
	if !whole {
		reason = "the line is incomplete"
	}
	bad := &damage{name, s.number, reason}
	if !newest {
		return bad
	}
	torn, err := tornEnd(s, line, whole, r.last+1)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if !torn {
		return bad
	}
	r.torn, r.tornLine = s.end-r.bytes, bad.line
	return nil
}

// tornEnd reports whether an interrupted write can have left the rest of the
// file, from this line on, which begins with the record of a sequence.
func tornEnd(s *journalScanner, line []byte, whole bool, lost uint64) (bool, error) {
	if !whole {
		text := trimZeros(line)
		_, fault := recordSeq(text)
		isRecord := fault == "" && len(text) < len(line) // with a zero in place of its newline
		return hasHole(line, s.start, whole) || !isRecord && !isOverwrittenNewline(text), nil
	}
	if !hasHole(line, s.start, whole) {
		return false, nil
	}
	for {
		line, whole, err := s.next()
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		if seq, fault := recordSeq(line); whole && fault == "" && writeBegan(seq, line) > lost {
			return false, nil
		}
	}
}

// isOverwrittenNewline reports whether the last line of a file is a good record
// with another byte in place of its newline.
func isOverwrittenNewline(line []byte) bool {
	_, fault := recordSeq(line[:len(line)-1])
	return fault == ""
}

// hasHole reports whether the line, at this offset of its file, has a run of
// zeros that ends with a sector or the file, and begins with a sector or the
// line: the interrupted write may have begun there.
func hasHole(line []byte, offset int64, whole bool) bool {
	for i := 0; i < len(line); i++ {
		if line[i] != 0 {
			continue
		}
		first := i
		for i < len(line) && line[i] == 0 {
			i++
		}
		begins := first == 0 || (offset+int64(first))%diskSector == 0
		ends := i == len(line) && !whole || (offset+int64(i))%diskSector == 0
		if begins && ends {
			return true
		}
	}
	return false
}

// tidy brings the files into the state of row 0 or row 3 of the table. The torn
// end of the newest journal is cut off when that is opened for writing.
func (r *recovery) tidy() error {
	r.clean = !r.undo && !r.imported && r.isClean()
	if r.undo {
		if err := r.disk.rename(r.path(journalOldName), r.path(journalName)); err != nil {
			return err
		}
	}
	if r.imported {
		if err := r.disk.rename(r.path(journalTempName), r.path(journalName)); err != nil {
			return err
		}
	}
	drop := []string{journalTempName, snapshotTemp, cleanName}
	if r.dropOld {
		drop = append(drop, journalOldName)
	}
	for _, name := range drop {
		if err := r.disk.remove(r.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return r.disk.syncDir(r.dir)
}

// Durable contents. After a sync has failed, the system's memory may show what the disk
// does not have, and further syncs succeed. So what a start has read counts as durable only
// once it was written again and synced, unless journal.clean says that all of it was synced
// before the process ended:
//
//	{"clean":N,"bytes":B,"inode":I,"sum":"…"}
//
// N is the last record, B the length of the journal, and I its inode, which a copy does not
// have. A start removes the file.

// cleanLine returns the contents of journal.clean.
func cleanLine(last uint64, bytes int64, inode uint64) []byte {
	b := fmt.Appendf(nil, `{"clean":%d,"bytes":%d,"inode":%d`, last, bytes, inode)
	return appendSumTail(b, crc32.Checksum(b, castagnoli))
}

// noteClean notes that the whole journal was synced. Without the note, which need not be
// durable, the next start takes longer.
func (j *journal) noteClean() {
	id, _, err := j.o.fs.identify(j.path(journalName))
	if err != nil {
		return
	}
	if f, err := j.o.fs.create(j.path(cleanName)); err == nil {
		f.WriteAt(cleanLine(j.written, j.pos, id.inode), 0)
		f.Close()
	}
}

// isClean reports whether journal.clean is about the journal as it was read.
func (r *recovery) isClean() bool {
	id, _, err := r.disk.identify(r.path(journalName))
	if err != nil || r.torn > 0 {
		return false
	}
	f, err := r.disk.open(r.path(cleanName))
	if err != nil {
		return false
	}
	defer f.Close()
	line, err := io.ReadAll(io.LimitReader(f, 1<<10))
	return err == nil && bytes.Equal(line, cleanLine(r.last, r.bytes, id.inode))
}

// renewStep is how many bytes are written again at a time.
const renewStep = 1 << 20

// renew writes the journal's lines again, in place, and checks them once more: the system
// may have read lost parts from the disk meanwhile.
func (r *recovery) renew(to diskFile) error {
	s, f, err := r.scan(journalName)
	if err != nil {
		return err
	}
	defer f.Close()
	var buf []byte
	for off := int64(0); s.end < r.bytes; {
		line, _, err := s.next()
		if err != nil {
			return fmt.Errorf("read %s again: %w", journalName, err)
		}
		if fault := lineFault(line); fault != "" {
			return &damage{journalName, s.number, "it was read well once, and now " + fault}
		}
		if buf = append(append(buf, line...), '\n'); len(buf) < renewStep && s.end < r.bytes {
			continue
		}
		if _, err := to.WriteAt(buf, off); err != nil {
			return fmt.Errorf("write %s again: %w", journalName, err)
		}
		off, buf = s.end, buf[:0]
	}
	return nil
}

// Rebuilding the store from its snapshot and journal, by the same apply that
// changed it the first time.

// restorer loads a store that nobody uses yet.
type restorer struct {
	s      *store
	ahead  map[uuid]uint64 // newest records of tasks whose line has more than the snapshot's sequence
	last   uint64          // the newest of these
	events moveCollector
	admit  func(t *template) error // refuses templates; nil refuses none
	slab   lineSlab                // of the lines that were not decoded ahead
}

// expect makes room for as many tasks.
func (l *restorer) expect(tasks int) {
	l.s.slots = slices.Grow(l.s.slots, tasks)
	l.s.byID.reserve(tasks)
}

// snapshotLine loads one line of the snapshot: a template, figures, events,
// dropped tasks, or a task.
func (l *restorer) snapshotLine(line *checkedLine) error {
	if line.task != nil {
		return l.task(line.task)
	}
	return l.line(cutSum(bytes.Clone(line.text)))
}

// line loads such a line, which it may keep.
func (l *restorer) line(line []byte) error {
	if bytes.HasPrefix(line, []byte(`{"hash":`)) {
		return l.templateLine(line)
	}
	if bytes.HasPrefix(line, []byte(figuresHead)) {
		return l.figuresLine(line)
	}
	if bytes.HasPrefix(line, []byte(droppedHead)) {
		return l.droppedLine(line)
	}
	if bytes.HasPrefix(line, []byte(requestHead)) {
		return l.requestLine(line)
	}
	if bytes.HasPrefix(line, []byte(eventsHead)) {
		return l.eventsLine(line)
	}
	if bytes.HasPrefix(line, []byte(subscriberHead)) {
		return l.subscriberLine(line)
	}
	t := readStoredTask(line, &l.slab)
	return l.task(&t)
}

// task loads a task.
func (l *restorer) task(t *storedTask) error {
	if t.err != nil {
		return t.err
	}
	h := &t.taskHeader
	tpl := l.s.template(h.template)
	if tpl == nil {
		return fmt.Errorf("task %s: its template %s is not among the lines before it", h.id, h.template)
	}
	if _, twice := l.s.byID.find(h.id); twice {
		return fmt.Errorf("duplicate task %s", h.id)
	}
	if l.s.analytics.covered == 0 && h.dead == nil {
		if err := t.addLetters(tpl, &l.slab); err != nil {
			return err
		}
	}
	l.s.seq = max(l.s.seq, h.lastSeq)
	l.noteAhead(h)
	pos := l.s.insert(h.id, slot{line: t.line}, tpl, t.by, h.created)
	l.s.requests.insert(t.by.request, h.id, h.created)
	l.s.noteID(h.lastID)
	l.s.index.move(pos, taskPending, h.state, l.s.slots[pos].in)
	l.s.index.touch(pos, h.updated, h.completed)
	for s, n := range h.counts {
		l.s.index.steps[s] += n
	}
	for _, row := range appendDLQRows(nil, h.id, h.dead) {
		l.s.dead.insert(row)
	}
	l.s.retain.note(&l.s.slots[pos], h.id, finishedAt(h.state, h.completed, h.dead))
	live, err := l.replayed(h, tpl)
	if err != nil {
		return err
	}
	if !h.state.ended() {
		live.pos, live.indexed, live.weight = pos, live.state, live.weigh()
		l.s.slots[pos].live, l.s.slots[pos].line = live, nil
	}
	l.s.retain.resize(l.s.slots[pos].bytes())
	return nil
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
// at the sequence and the task's id alone, so a record that cannot be decoded is no fault if it is repeated.
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
// over, the figures count all of it, and the event log holds nothing of it. It
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
	if h.state.ended() && !uncounted && !recent {
		return nil, nil
	}
	h.log = bytes.Clone(h.log) // the task or the event log keeps parts of it
	return h.replay(tpl, obs)
}

// eventsLine loads the line about the event log, which comes before the tasks.
func (l *restorer) eventsLine(line []byte) error {
	if len(l.s.slots) > 0 {
		return fmt.Errorf("the line about the event log comes after a task")
	}
	return l.events.line(line)
}

// figuresLine loads figures. They come before the tasks, and are as of the
// sequence that the snapshot covers.
func (l *restorer) figuresLine(line []byte) error {
	if len(l.s.slots) > 0 {
		return fmt.Errorf("figures come after a task")
	}
	return l.s.analytics.load(line)
}

// templateLine loads {"hash":"…","definition":{…}}.
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
	l.s.keepTemplate(tpl)
	return nil
}

// record loads one line of the journal.
func (l *restorer) record(line *checkedLine) (err error) {
	s, r := l.s, line.record
	s.seq = max(s.seq, line.seq)
	l.events.appendTo(&s.events, line.seq-1)
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
	pos, ok := s.byID.find(r.task)
	if !ok {
		return fmt.Errorf("it is about task %s, which was never created", r.task)
	}
	t := s.slots[pos].live
	if t == nil {
		if t, err = s.taskAt(pos); err != nil {
			return err
		}
	}
	return l.apply(t, line)
}

func (l *restorer) created(line *checkedLine) error {
	s, r := l.s, line.record
	if _, twice := s.byID.find(r.task); twice {
		return fmt.Errorf("duplicate task %s", r.task)
	}
	tpl := s.template(r.created.template)
	if tpl == nil {
		return fmt.Errorf("its template %s was never recorded", r.created.template)
	}
	t := newTask(r, tpl)
	t.pos = s.insert(t.id, slot{live: t}, tpl, r.created, r.at)
	s.requests.insert(r.created.request, t.id, r.at)
	return l.apply(t, line)
}

// dropped drops a task as it was dropped before.
func (l *restorer) dropped(r *record) error {
	pos, ok := l.s.byID.find(r.task)
	if !ok || l.s.slots[pos].finished == 0 {
		return fmt.Errorf("it drops task %s, which is not there or not finished", r.task)
	}
	return l.s.remove(pos)
}

func (l *restorer) apply(t *task, line *checkedLine) error {
	l.s.scratch = append(l.s.scratch[:0], line.log...)
	if err := l.s.apply(t, line.record); err != nil {
		return err
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

// droppedLine returns that line without its closing brace; nil if nothing was
// dropped.
func (s *store) droppedLine() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retain.dropped == 0 {
		return nil
	}
	c := memberCoder{b: []byte{'{'}}
	s.droppedMembers(&c, &s.lastID)
	return c.b
}

func (s *store) droppedMembers(c *memberCoder, lastID *uuid) {
	nonzero(c, "dropped", &s.retain.dropped)
	c.id("last_id", lastID)
}

func (l *restorer) droppedLine(line []byte) error {
	var lastID uuid
	var c memberCoder
	for c.again(line) {
		l.s.droppedMembers(&c, &lastID)
	}
	l.s.noteID(lastID)
	return c.err
}
