package main

// Reading a store at its start: which files count, what they must contain, and
// what happens to the files that a crash left behind.
//
// Every file except the newest journal was synced as a whole before it got its
// name, so only the end of the newest journal can be torn. The table has the
// steps of a snapshot, the files after each step, and what a start does when
// it finds them (J journal.jsonl, J- journal.old.jsonl, S snapshot.jsonl; J' and
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
//	8 a renewal, by an      J' S (J) (J-)     renames J' to J, if J' says that it needs no other
//	  earlier version
//
// Step 2 gives J a second name, so that J is never missing; it renames J where the file
// system has no second names. A copy made file by file meanwhile may have files of several
// rows: it is refused unless it has every record up to a moment after it began.
// A snapshot that failed or was abandoned leaves row 3 behind, and the next one begins
// at step 4. The very first start makes journal.jsonl by steps 1 and 3.
// The directory is synced after steps 2, 3 and 5; nothing is written to the new
// journal before the sync of step 3. A snapshot without a journal is not one of
// these states and is refused: otherwise the journal's records would be lost
// unnoticed.
//
// The torn end. A group of records is one write and is acknowledged after its
// sync, so only the last group can be torn. The part that did not reach the
// disk is missing at the end or reads as zeros, in whole sectors, because the
// blocks ahead of the end hold nothing but zeros; some file systems tear at any byte.
// Zeros alone at the end are room for more records (zerosAhead). A last record that
// lacks nothing but its newline counts, and the newline is written. The rest of the newest
// journal, from its first bad line on, is cut off if it is one line without an end
// (a newline alone in zeros is none), or has a hole of zeros and every good record after
// it says that it belongs to the same write: "w" leads back to the first record that is
// missing, or before it. A good record of a later write proves that the hole was synced, and so
// acknowledged: a sector was lost. Everything else is damage, too, even in the
// very last line: a record that was changed after it was acknowledged is
// refused, not dropped. (In mode never, "the last group" is
// everything since the last sync.)

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	journalName     = "journal.jsonl"
	journalOldName  = "journal.old.jsonl"
	journalTempName = "journal.jsonl.tmp"
	snapshotName    = "snapshot.jsonl"
	snapshotTemp    = "snapshot.jsonl.tmp"

	diskSector = 512 // bytes that a disk writes as a whole or not at all
)

// storeFiles are the files of a store that a start may read, except for its lock.
var storeFiles = [...]string{snapshotName, journalOldName, journalName, journalTempName}

// tornCopy ends the error about files that do not belong together.
const tornCopy = `; if this is a copy of a running service's directory, it is torn: ` +
	`use GET /v1/backup or "stepwell store export" instead`

// loader receives what a start reads: the lines of the snapshot, then the records
// after the sequence that it covers. The lines are complete, without their
// newline, and checked. The loader must not keep them.
type loader interface {
	begin(h *storeHeader, tasks int) // a file with this header; the files have about so many tasks, 0 if that is unknown
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

	of            storeOrigin // zero if no file has one
	snapshotBytes int64       // length of the snapshot; 0 if there is none
	covered       uint64      // sequence that the snapshot covers
	shown         uint64      // the newest record in its lines, which may be later

	files    []string // journals to read, the oldest first; none in a new store
	undo     bool     // rename journal.old.jsonl back to journal.jsonl
	twins    bool     // both journals are one file, or copies of it: the longer one counts
	imported bool     // rename journal.jsonl.tmp to journal.jsonl: an import or a renewal ended before its last step
	dropOld  bool     // remove journal.old.jsonl: the snapshot covers it
	last     uint64   // sequence of the last record, or of the one before the first
	at       instant  // of the last record; 0 if it is unknown
	started  bool     // a journal's header was read, so last is valid
	oldBytes int64    // of journal.old.jsonl if it is still needed
	header   int64    // bytes of the newest journal's header
	bytes    int64    // of the newest journal, without its torn end
	torn     int64    // bytes of the torn end
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

// startReader counts what is read, and fails once its context has ended, so that a long start ends soon.
type startReader struct {
	io.Reader
	until context.Context // nil for never
	shows *readProgress   // nil for none
}

func (r startReader) Read(b []byte) (int, error) {
	if r.until != nil && r.until.Err() != nil {
		return 0, r.until.Err()
	}
	n, err := r.Reader.Read(b)
	if r.shows != nil {
		r.shows.done.Add(int64(n))
	}
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
	if need := max(r.covered, r.shown); r.last < need {
		return fmt.Errorf("%s ends at sequence %d, but %s covers %d: records are missing%s",
			journalName, r.last, snapshotName, need, tornCopy)
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
	s := &journalScanner{src: startReader{f, r.until, r.shows}, left: size, zeros: name != snapshotName}
	return s, f, nil
}

// chooseJournals decides which journals are read, from what the table above says may lie in the directory. The names
// alone do not tell: after a crash the same files can belong to different rows, so it compares the sequences in their
// headers with the one that the snapshot covers.
func (r *recovery) chooseJournals() error {
	from, hasJournal, newErr := r.journalFrom(journalName)
	oldFrom, hasOld, oldErr := r.journalFrom(journalOldName)
	if r.snapshotBytes > 0 {
		h, there, err := r.journalHeader(journalTempName)
		here := err == nil && there && h.From == r.covered+1 // a leftover of any other snapshot begins elsewhere
		if r.imported = here && (h.Alone || !hasJournal && !hasOld); r.imported {
			r.files, r.dropOld = []string{journalTempName}, hasOld
			return nil
		}
	}
	if newErr != nil {
		return newErr
	}
	// An unreadable old journal is harmless if the new one, with the snapshot, has everything.
	if oldErr != nil && !(hasJournal && from <= r.covered+1) {
		return oldErr
	}
	var err error
	if hasJournal && hasOld && oldFrom == from { // row 2: one file with two names, or two files in a copy
		if r.twins, err = r.longer(journalOldName, journalName); err != nil {
			return err
		}
	}
	switch {
	case r.twins, !hasJournal && hasOld: // nothing has been written to a later journal
		r.files, r.undo = []string{journalOldName}, true
	case !hasJournal && r.snapshotBytes > 0: // no crash leaves this: the records after the snapshot are gone
		return fmt.Errorf("%s is missing, and %s alone may be behind it%s", journalName, snapshotName, tornCopy)
	case !hasJournal:
		r.files = nil
	case hasOld && from > r.covered+1: // the snapshot was not finished, so the old journal still counts
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
	h, there, err := r.journalHeader(name)
	return h.From, there, err
}

// journalHeader returns the header of a journal, and whether the journal exists.
func (r *recovery) journalHeader(name string) (h storeHeader, there bool, err error) {
	s, f, err := r.scan(name)
	if errors.Is(err, fs.ErrNotExist) {
		return h, false, nil
	}
	if err != nil {
		return h, true, err
	}
	defer f.Close()
	h, err = readHeader(name, s)
	if err == nil && (h.Journal == "" || h.From == 0) {
		err = &damage{name, 1, "it is not the header of a journal"}
	}
	if err == nil {
		err = r.sameStore(name, &h)
	}
	return h, true, err
}

// sameStore refuses a file of another store. Files of format 1 do not name theirs.
func (r *recovery) sameStore(name string, h *storeHeader) error {
	r.of = storeOrigin{cmp.Or(r.of.id, h.Store), cmp.Or(r.of.key, h.Key)}
	if h.Store != "" && h.Store != r.of.id {
		return &damage{name, 1, fmt.Sprintf("it is a file of the store %s, and those before it are of %s", h.Store, r.of.id)}
	}
	return nil
}

// readJournal reads one journal, and checks that it continues what was read
// before.
func (r *recovery) readJournal(name string, newest bool) error {
	h, _, err := r.journalHeader(name)
	if err != nil {
		return err
	}
	from := h.From
	// The first journal may begin before what the snapshot covers. Each later one must follow the
	// one before exactly.
	if from > r.last+1 || r.started && from != r.last+1 {
		reason := fmt.Sprintf("the file begins at sequence %d, but what comes before it ends at %d%s", from, r.last, tornCopy)
		return &damage{name, 1, reason}
	}
	r.started, r.last = true, from-1
	r.loader.begin(&h, 0)
	s, f, err := r.scan(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, _, err := s.next(); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	r.header = s.end
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
		r.last, r.at = line.seq, line.record.at
		if line.seq <= r.covered {
			continue
		}
		if err := r.loader.record(line); err != nil {
			return fmt.Errorf("%s, line %d: %w", name, lines.number, err)
		}
	}
}

// badRecord decides whether the rest of a journal, from a line on, is torn or damaged. Torn means that a crash interrupted
// the last write, which nobody was told had succeeded: the rest can be dropped. Damaged means that an acknowledged record
// may be lost: a start must refuse it rather than drop it. It reads the journal a second time, because the lines before
// the bad one have been passed on and forgotten.
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
	if !whole || hasHole(line, s.start, whole) {
		bad.reason += tornCopy
	}
	if !newest { // an older journal was synced whole before the next one began
		return bad
	}
	torn, later, err := tornEnd(s, line, whole, r.last+1)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if torn {
		r.torn, r.tornLine = s.end-r.bytes, bad.line
		return nil
	}
	// One run of zeros with good records of later writes behind it, in a copied directory: the copy read the journal
	// while it was written. The message says so, as the operator can then copy it properly.
	first, last := bytes.IndexByte(line, 0), bytes.LastIndexByte(line, 0)
	if later && bytes.Count(line, zeroText[:1]) == last-first+1 && r.isCopy() {
		bad.reason = fmt.Sprintf("zeros, and later records behind them: this directory is a plain copy of one that a service was using; "+
			`"stepwell store repair" keeps everything up to sequence %d%s; use GET /v1/backup or "stepwell store export" to copy`,
			r.last, r.moment())
	}
	return bad
}

// isCopy reports whether the lock notes another directory.
func (r *recovery) isCopy() bool {
	_, noted := lockNamed(r.disk, r.dir)
	id, err := r.disk.identify(r.dir)
	return err == nil && noted != "" && noted != id.String()
}

// moment returns the time of the last record, in words.
func (r *recovery) moment() string {
	if r.at == 0 {
		return ""
	}
	return " of " + r.at.zoned()
}

// tornEnd reports whether an interrupted write can have left the rest of the file, from this line on, where the record
// with the sequence lost should be. later reports whether a record of a later write follows. Writes are synced one after
// the other, so such a record proves that the bad line had been written completely.
func tornEnd(s *journalScanner, line []byte, whole bool, lost uint64) (torn, later bool, err error) {
	hole := hasHole(line, s.start, whole)
	text, _, zeros := bytes.Cut(line, zeroText[:1])
	_, fault := recordSeq(text) // which is none if the zeros begin with that of a newline
	if !whole {
		return hole || fault != "" && !isOverwrittenNewline(trimZeros(line)), false, nil
	}
	if !zeros && len(line) > 0 {
		return false, false, nil
	}
	for alone := fault != "" && endsInZeros(line); ; {
		line, whole, err := s.next()
		if err == io.EOF {
			return hole || alone, false, nil
		}
		if err != nil {
			return false, false, err
		}
		alone = alone && len(trimZeros(line)) == 0
		if seq, fault := recordSeq(line); whole && fault == "" && writeBegan(seq, line) > lost {
			return false, true, nil
		}
	}
}

// endsInZeros reports whether the newline behind a line stands among zeros, and so may be any byte of a record whose rest
// did not reach the disk. A single zero before it does not count: that can be the last byte of a record, changed.
func endsInZeros(line []byte) bool {
	return len(trimZeros(line)) == 0 || bytes.HasSuffix(line, zeroText[:2])
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
	if r.undo || r.imported {
		if err := r.disk.rename(r.path(r.files[0]), r.path(journalName)); err != nil {
			return err
		}
	}
	drop := []string{journalTempName, snapshotTemp}
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
			return &damage{journalName, s.number, "it was read without errors once, and now " + fault}
		}
		buf = append(append(buf, line...), '\n')
		if len(buf) < renewStep && s.end < r.bytes {
			continue
		}
		if _, err := to.WriteAt(buf, off); err != nil {
			return fmt.Errorf("write %s again: %w", journalName, err)
		}
		off, buf = s.end, buf[:0]
	}
	return nil
}

// Reading a snapshot at a start.

func (r *recovery) readSnapshot() error {
	s, f, err := r.scan(snapshotName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	h, err := readHeader(snapshotName, s)
	if err != nil {
		return err
	}
	if h.Snapshot == "" {
		return &damage{snapshotName, 1, "it is not the header of a snapshot"}
	}
	r.of = storeOrigin{h.Store, h.Key}
	journals := r.sizeOf(journalName) + r.sizeOf(journalOldName)
	r.loader.begin(&h, int(min(h.Count, uint64(max(s.left, 0)/leastLine)))+int(journals/2/leastLine))
	lines := readAhead(s, (*lineBlock).stored)
	defer lines.stop()
	if err := r.readSnapshotLines(lines, &h); err != nil {
		return err
	}
	r.covered, r.last, r.snapshotBytes = h.Seq, h.Seq, lines.end
	return nil
}

func (r *recovery) readSnapshotLines(s *lineReader, h *storeHeader) error {
	var sums lineSums
	for n := uint64(0); ; n++ {
		line, err := s.next()
		if err == io.EOF && n >= h.Count && h.Format == 1 {
			return nil
		}
		if err == io.EOF {
			return &damage{snapshotName, s.number, fmt.Sprintf("the file ends after %d of %d lines", n, h.Count)}
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", snapshotName, err)
		}
		if n == h.Count && h.Format > 1 {
			return r.readSnapshotEnd(s, line, sums.appendEnd(nil, n))
		}
		if reason := line.faultUnless(n < h.Count); reason != "" {
			return &damage{snapshotName, s.number, reason}
		}
		sums.add(line.text[len(line.text)-len(sumTail):])
		if line.task != nil {
			r.shown = max(r.shown, line.task.lastSeq)
		}
		if err := r.loader.snapshotLine(line); err != nil {
			return fmt.Errorf("%s, line %d: %w", snapshotName, s.number, err)
		}
	}
}

// readSnapshotEnd checks the last line, which depends on all others.
func (r *recovery) readSnapshotEnd(s *lineReader, line *checkedLine, want []byte) error {
	reason := line.faultUnless(true)
	switch {
	case reason == "" && !bytes.HasPrefix(line.text, []byte(endHead)):
		reason = "there are more lines than the header says"
	case reason == "" && !bytes.Equal(line.text, want[:len(want)-1]):
		reason = "the lines before it are not those that were written, or not in their order"
	}
	if reason != "" {
		return &damage{snapshotName, s.number, reason}
	}
	if _, err := s.next(); err == nil {
		return &damage{snapshotName, s.number, "there are more lines than the header says"}
	} else if err != io.EOF {
		return fmt.Errorf("read %s: %w", snapshotName, err)
	}
	return nil
}

// faultUnless returns what is wrong with the line, or "".
func (l *checkedLine) faultUnless(expected bool) string {
	switch {
	case !l.whole:
		return "the line is incomplete"
	case !expected:
		return "there are more lines than the header says"
	}
	return l.fault
}

// lineReader reads the lines of a file: one goroutine reads blocks of them, and others check and
// decode the lines, while the start loads those before them.
type lineReader struct {
	decode func(b *lineBlock, l *checkedLine)
	blocks chan *lineBlock // in the order of the file
	unused chan *lineBlock // whose memory can be used again
	quit   chan struct{}
	zeros  bool // see journalScanner
	done   sync.WaitGroup

	block  *lineBlock // that next takes lines from
	at     int
	number int   // of the line returned last, from 1
	end    int64 // the offset after it
}

// lineBlock is some lines that follow one another.
type lineBlock struct {
	text    []byte
	lines   []checkedLine
	tasks   []storedTask // of a snapshot
	records []record     // of a journal, like logs
	logs    []byte
	slab    *lineSlab
	err     error         // of reading on after them
	decoded chan struct{} // closed once lines is complete
}

// checkedLine is a line of a file, as far as it can be understood without the others.
type checkedLine struct {
	text   []byte // without its newline
	whole  bool   // it has its newline
	fault  string // what is wrong with it, or ""
	task   *storedTask
	seq    uint64 // of a record, like what follows
	record *record
	log    []byte // what the log of its task has of it
	err    error  // why it cannot be decoded
}

// leastLine is the least length of the line of a task.
const leastLine = 256

// lineBlockSize is about how many bytes of lines are decoded at a time.
const lineBlockSize = 512 << 10

// readAhead begins to read the lines after those that the scanner has returned.
func readAhead(s *journalScanner, decode func(b *lineBlock, l *checkedLine)) *lineReader {
	r := &lineReader{
		decode: decode,
		blocks: make(chan *lineBlock, runtime.GOMAXPROCS(0)), unused: make(chan *lineBlock, 2+runtime.GOMAXPROCS(0)),
		quit: make(chan struct{}), zeros: s.zeros, block: &lineBlock{}, number: s.number, end: s.end,
	}
	r.done.Go(func() { r.read(s.src, s.chunk[s.at:]) })
	return r
}

// stop ends the reading, before the file is closed.
func (r *lineReader) stop() {
	close(r.quit)
	r.done.Wait()
}

// read reads all blocks. What was read before them is rest.
func (r *lineReader) read(src io.Reader, rest []byte) {
	for b := (&lineBlock{}); b.err == nil; {
		select {
		case b = <-r.unused:
		default:
			b = &lineBlock{text: make([]byte, 0, lineBlockSize)}
		}
		rest = b.read(src, rest)
		if b.err == io.EOF && r.zeros {
			end := bytes.LastIndexByte(b.text, '\n') + 1
			b.text = append(b.text[:end], journalEnd(b.text[end:])...)
		}
		b.decoded = make(chan struct{})
		go b.decode(r.decode)
		select {
		case r.blocks <- b:
		case <-r.quit:
			return
		}
	}
}

// read reads whole lines, at least one, after the rest of the block before. It returns its own rest.
func (b *lineBlock) read(src io.Reader, rest []byte) []byte {
	b.text = append(b.text[:0], rest...)
	for {
		b.text = slices.Grow(b.text, lineBlockSize/2)
		n, err := io.ReadFull(src, b.text[len(b.text):cap(b.text)])
		b.text = b.text[:len(b.text)+n]
		if err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
		if b.err = err; err == io.EOF {
			return nil
		}
		if end := bytes.LastIndexByte(b.text, '\n') + 1; end > 0 || err != nil {
			rest = append(rest[:0], b.text[end:]...)
			b.text = b.text[:end]
			return rest
		}
	}
}

// decode checks and decodes the lines.
func (b *lineBlock) decode(line func(b *lineBlock, l *checkedLine)) {
	defer close(b.decoded)
	b.lines, b.tasks, b.records, b.logs, b.slab = b.lines[:0], b.tasks[:0], b.records[:0], b.logs[:0], new(lineSlab)
	for rest := b.text; len(rest) > 0; {
		l := checkedLine{}
		l.text, rest, l.whole = bytes.Cut(rest, []byte("\n"))
		line(b, &l)
		b.lines = append(b.lines, l)
	}
}

// stored checks and decodes a line of a snapshot.
func (b *lineBlock) stored(l *checkedLine) {
	l.fault = lineFault(l.text)
	if l.fault == "" && bytes.HasPrefix(l.text, []byte(taskHead)) {
		b.tasks = append(b.tasks, readStoredTask(cutSum(l.text), b.slab))
		l.task = &b.tasks[len(b.tasks)-1]
	}
}

// recorded checks and decodes a line of a journal.
func (b *lineBlock) recorded(l *checkedLine) {
	if l.seq, l.fault = recordSeq(l.text); l.fault != "" {
		return
	}
	b.records = append(b.records, record{})
	l.record = &b.records[len(b.records)-1]
	if l.err = l.record.read(l.text); l.err == nil {
		n := len(b.logs) + 1
		b.logs = appendRecordMembers(append(b.logs, '{'), l.record) // after a brace there is no comma
		l.log = b.logs[n:]
	}
}

// next returns the next line, which is valid until the one after it. The error is io.EOF after the last.
func (r *lineReader) next() (*checkedLine, error) {
	for r.at == len(r.block.lines) {
		if r.block.err != nil {
			return nil, r.block.err
		}
		if r.block.text != nil {
			r.unused <- r.block // has room for all
		}
		r.block, r.at = <-r.blocks, 0
		<-r.block.decoded
	}
	l := &r.block.lines[r.at]
	r.at++
	r.number++
	if r.end += int64(len(l.text)); l.whole {
		r.end++
	}
	return l, nil
}
