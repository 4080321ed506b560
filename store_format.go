package main

// The lines of the store's files: how they are framed, checked and read.
//
//	header of a journal   {"format":2,"journal":"stepwell","store":"…","from":N,"sum":"…"}
//	record of a journal   {"seq":N, members of the caller ,"w":W,"sum":"…"}
//	header of a snapshot  {"format":2,"snapshot":"stepwell","store":"…","at":…,"seq":S,"count":C     ,"sum":"…"}
//	line of a snapshot    {members of the caller,"sum":"…"}
//	last of a snapshot    {"end":C,"lines":"…","sum":"…"}
//
// The sum is the CRC-32C, as 8 lower-case hexadecimal digits, of the bytes of
// the line before `,"sum":"`. Each line ends with one newline. "store" is the
// same in all files of a store. "lines" is the CRC-32C of the sums of the lines,
// and so of their order. "w" says that the W records before this one were not
// known to be on disk when it was written, as they went there together; it is
// left out if it is 0. Format 1 has neither these three nor the last line.

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

const (
	storeFormat = 2 // the newest version of both files that is read, and the version written
	sumTail     = `,"sum":"00000000"}`
	recordHead  = `{"seq":`
	recordWrite = `,"w":`
	endHead     = `{"end":`

	snapshotHeaderSize = 200       // including the newline; padded with spaces
	lineChunk          = 256 << 10 // lines are slices of chunks of this size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendSumTail ends a line whose bytes so far have this sum.
func appendSumTail(dst []byte, sum uint32) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, `,"sum":"`...)
	for shift := 28; shift >= 0; shift -= 4 {
		dst = append(dst, digits[sum>>shift&15])
	}
	return append(dst, "\"}\n"...)
}

// appendRecord appends a record of the journal with its newline. It goes to disk
// together with so many records before it.
func appendRecord(dst []byte, seq, before uint64, body []byte) []byte {
	start := len(dst)
	dst = append(dst, recordHead...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, ',')
	dst = append(dst, body...)
	if before > 0 {
		dst = append(dst, recordWrite...)
		dst = strconv.AppendUint(dst, before, 10)
	}
	return appendSumTail(dst, crc32.Checksum(dst[start:], castagnoli))
}

// writeBegan returns the sequence of the first record that went to disk together with
// that of a good line.
func writeBegan(seq uint64, line []byte) uint64 {
	rest := line[:len(line)-len(sumTail)]
	digits := len(rest) - len(bytes.TrimRight(rest, "0123456789"))
	if before, ok := bytes.CutSuffix(rest[:len(rest)-digits], []byte(recordWrite)); ok && len(before) > 0 {
		if n, err := strconv.ParseUint(string(rest[len(rest)-digits:]), 10, 64); err == nil {
			return seq - min(n, seq)
		}
	}
	return seq
}

// newStoreID returns what the files of a new store have in common.
func newStoreID() string { return rand.Text() }

// appendJournalHeader appends the first line of a journal whose first record
// has the sequence from.
func appendJournalHeader(dst []byte, store string, from uint64) []byte {
	start := len(dst)
	dst = fmt.Appendf(dst, `{"format":%d,"journal":"stepwell","store":%q,"from":%d`, storeFormat, store, from)
	return appendSumTail(dst, crc32.Checksum(dst[start:], castagnoli))
}

// snapshotHeader returns the first line of a snapshot. Its length is fixed
// because it is written last.
func snapshotHeader(store string, at instant, covered, count uint64) []byte {
	b := fmt.Appendf(nil, `{"format":%d,"snapshot":"stepwell","store":%q,"at":%q,"seq":%d,"count":%d`,
		storeFormat, store, at.zoned(), covered, count)
	for len(b) < snapshotHeaderSize-len(sumTail)-1 {
		b = append(b, ' ')
	}
	return appendSumTail(b, crc32.Checksum(b, castagnoli))
}

// lineSums is a running checksum of the lines of a snapshot.
type lineSums struct{ sum uint32 }

// add adds a line by its end, which has its own checksum.
func (l *lineSums) add(tail []byte) {
	l.sum = crc32.Update(l.sum, castagnoli, tail[len(`,"sum":"`):len(sumTail)])
}

// appendEnd appends the last line of a snapshot.
func (l *lineSums) appendEnd(dst []byte, count uint64) []byte {
	start := len(dst)
	dst = fmt.Appendf(dst, `%s%d,"lines":"%08x"`, endHead, count, l.sum)
	return appendSumTail(dst, crc32.Checksum(dst[start:], castagnoli))
}

// lineFault returns what is wrong with a line (without its newline), or "".
func lineFault(line []byte) string {
	n := len(line) - len(sumTail)
	if n < 1 || line[0] != '{' {
		return "it is not a line of this format"
	}
	var buf [len(sumTail) + 1]byte
	tail := appendSumTail(buf[:0], crc32.Checksum(line[:n], castagnoli))
	if !bytes.Equal(line[n:], tail[:len(sumTail)]) {
		return "the checksum does not match"
	}
	return ""
}

// recordSeq returns the sequence of a record, or what is wrong with the line.
func recordSeq(line []byte) (uint64, string) {
	if fault := lineFault(line); fault != "" {
		return 0, fault
	}
	rest, ok := bytes.CutPrefix(line, []byte(recordHead))
	end := bytes.IndexByte(rest, ',')
	if !ok || end < 1 {
		return 0, "it has no sequence number"
	}
	var seq uint64
	for _, c := range rest[:end] {
		if c < '0' || c > '9' {
			return 0, "it has no sequence number"
		}
		seq = seq*10 + uint64(c-'0')
	}
	return seq, ""
}

// storeHeader is the first line of either file.
type storeHeader struct {
	Format   int    `json:"format"`
	Journal  string `json:"journal"`
	Snapshot string `json:"snapshot"`
	Store    string `json:"store"` // empty in format 1
	From     uint64 `json:"from"`  // journal: sequence of the first record
	Seq      uint64 `json:"seq"`   // snapshot: sequence covered
	Count    uint64 `json:"count"` // snapshot: lines that follow
}

// readHeader reads the first line of a file. It checks the format first: the
// lines of a newer format may be anything.
func readHeader(file string, s *journalScanner) (storeHeader, error) {
	var h storeHeader
	line, whole, err := s.next()
	if err == io.EOF {
		return h, &damage{file, 1, "the file is empty"}
	}
	if err != nil {
		return h, fmt.Errorf("read %s: %w", file, err)
	}
	if !whole {
		return h, &damage{file, 1, "the header is incomplete"}
	}
	if json.Unmarshal(line, &h) == nil && h.Format > storeFormat {
		return h, fmt.Errorf("%s has format %d, and this version of stepwell reads formats up to %d",
			file, h.Format, storeFormat)
	}
	if fault := lineFault(line); fault != "" {
		return h, &damage{file, 1, fault}
	}
	return h, nil
}

// damage is a place in a file of the store that is not as it was written.
type damage struct {
	file   string
	line   int // from 1
	reason string
}

func (d *damage) Error() string { return fmt.Sprintf("%s, line %d: %s", d.file, d.line, d.reason) }

// journalScanner returns the lines of a file. They are slices of large chunks
// that are never written again, so callers may keep them.
type journalScanner struct {
	src    io.Reader
	left   int64  // bytes of the file not read yet, by its size
	chunk  []byte // chunk[at:] was read but not returned
	at     int
	eof    bool
	zeros  bool  // the file may end with zeros, which are no line
	number int   // of the line returned last, from 1
	start  int64 // its offset in the file
	end    int64 // the offset after the line
}

func newJournalScanner(src io.Reader, size int64) *journalScanner {
	return &journalScanner{src: src, left: size}
}

// next returns the next line without its newline, and whether it had one. The
// error is io.EOF after the last line.
func (s *journalScanner) next() (line []byte, whole bool, err error) {
	for seen := 0; ; {
		if i := bytes.IndexByte(s.chunk[s.at+seen:], '\n'); i >= 0 {
			return s.take(seen+i, 1), true, nil
		}
		seen = len(s.chunk) - s.at
		if s.eof && (seen == 0 || s.zeros && len(trimZeros(s.chunk[s.at:])) == 0) {
			return nil, false, io.EOF
		}
		if s.eof {
			return s.take(seen, 0), false, nil
		}
		if err := s.fill(); err != nil {
			return nil, false, err
		}
	}
}

func trimZeros(b []byte) []byte { return bytes.TrimRight(b, "\x00") }

// take returns n bytes and skips the newline, if any.
func (s *journalScanner) take(n, newline int) []byte {
	line := s.chunk[s.at : s.at+n : s.at+n]
	s.at += n + newline
	s.number++
	s.start = s.end
	s.end += int64(n + newline)
	return line
}

// fill reads more. A full chunk is replaced by one that begins with the bytes
// not yet returned.
func (s *journalScanner) fill() error {
	if len(s.chunk) == cap(s.chunk) {
		rest := s.chunk[s.at:]
		more := min(int64(max(lineChunk, len(rest))), max(s.left, 0)+512)
		s.chunk = append(make([]byte, 0, int64(len(rest))+more), rest...)
		s.at = 0
	}
	n, err := s.src.Read(s.chunk[len(s.chunk):cap(s.chunk)])
	s.chunk = s.chunk[:len(s.chunk)+n]
	s.left -= int64(n)
	if err == io.EOF {
		s.eof = true
		return nil
	}
	return err
}

// Reading the lines of tasks at a start.

// storedTask holds the members that a start reads from the line of a task.
type storedTask struct {
	taskHeader
	by   *creation
	line shortLine
	err  error
}

// lineSlabSize is how large slabs are of which short lines are slices.
const lineSlabSize = 64 << 10

// lineSlab is memory for short lines, and what the lines have in common.
type lineSlab struct {
	free  []byte
	order wordOrder

	by            *creation // of the task before, with what comes before and after its context
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
	t.by, t.err = slab.creation(t.log)
	return t
}

// creation returns the creation with which a log begins. Most are like that of the task before, apart
// from the context, which nobody needs.
func (s *lineSlab) creation(log []byte) (*creation, error) {
	rest := log[max(bytes.IndexByte(log[:min(len(log), 64)], 'k'), 0):] // from its kind on
	if s.by != nil && bytes.HasPrefix(rest, s.before) {
		end := skipJSONValue(rest, len(s.before))
		if bytes.HasPrefix(rest[end:], s.after) {
			return s.by, nil
		}
	}
	r, err := (&taskHeader{log: log}).creationRecord()
	if err != nil {
		return nil, err
	}
	const context = `"context":`
	if i := bytes.Index(rest, []byte(context)) + len(context); i >= len(context) {
		end := len(rest) - len(log) + skipJSONValue(log, 1)
		s.by, s.before, s.after = r.created, rest[:i], rest[min(skipJSONValue(rest, i), end):end]
	}
	return r.created, nil
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
	n := 0
	for ; len(l) > 0 && '0' <= l[0] && l[0] <= '9'; l = l[1:] {
		n = 10*n + int(l[0]-'0')
	}
	if len(l) == 0 || l[0] != logCode {
		return false
	}
	if s.hash != c.id {
		s.hash, s.template = c.id, hex.EncodeToString(c.id[:])
	}
	t.id, _ = t.line.taskID()
	t.state, t.template, t.counts[stepComplete] = taskComplete, s.template, n
	t.created, t.updated, t.completed = instant(numbers[1]), instant(numbers[2]), instant(numbers[3])
	t.seq, t.lastSeq = uint64(numbers[5]), uint64(numbers[6])
	return true
}

// `stepwell store check`: it reads every line of every file of a store, changes
// nothing, and reports what a start would do.

// fileSurvey summarizes the contents of one file.
type fileSurvey struct {
	lines  int     // without the header
	bad    int     // lines with a fault
	damage *damage // the first of these
	first  uint64  // first and last sequence of the good records
	last   uint64
	bytes  int64
}

// checkStoreFiles reports on the store in dir and passes every line to l, as a
// start would. The error is why a start would refuse the store. It takes no
// lock, so it works beside the process that has it.
func checkStoreFiles(dir string, l loader, w io.Writer) error {
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("check store: %w", err)
	}
	return checkStore(osDisk{}, dir, l, w)
}

func checkStore(disk diskFS, dir string, l loader, w io.Writer) error {
	pinned, err := pinStore(disk, dir)
	if err != nil {
		return fmt.Errorf("check store: %w", err)
	}
	defer pinned.close()
	if pid := lockNamed(disk, dir); pid != 0 {
		fmt.Fprintf(w, "the lock names process %d: while it writes, the end of the journal may look torn\n", pid)
	}
	r := &recovery{disk: pinned, dir: dir, loader: l}
	verdict := r.read()
	found := 0
	for _, name := range []string{snapshotName, journalOldName, journalName} {
		there, err := r.report(w, name)
		if err != nil {
			return fmt.Errorf("check store: %w", err)
		}
		if there {
			found++
		}
	}
	if found == 0 {
		return fmt.Errorf("check store: there is no store in %s", dir)
	}
	if verdict != nil {
		return fmt.Errorf("a start would refuse the store: %w", verdict)
	}
	fmt.Fprintf(w, "a start would go on after sequence %d\n", r.last)
	return nil
}

// lockNamed returns the pid in the lock file; 0 for none.
func lockNamed(disk diskFS, dir string) int {
	f, err := disk.open(filepath.Join(dir, lockName))
	if err != nil {
		return 0
	}
	defer f.Close()
	return lockHolder(f)
}

// report writes what a file holds, if it exists.
func (r *recovery) report(w io.Writer, name string) (there bool, err error) {
	s, f, err := r.scan(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	defer f.Close()
	h, err := readHeader(name, s)
	if err != nil {
		fmt.Fprintln(w, err) // the error names the file
		return true, nil
	}
	survey, err := surveyLines(name, s)
	if err != nil {
		return true, err
	}
	fmt.Fprintf(w, "%s: %d bytes, %s, %s\n", name, survey.bytes, counted(survey.lines, "line", "lines"), survey.sequences(h))
	switch {
	case survey.damage == nil:
	case r.torn > 0 && r.isNewest(name) && survey.damage.line == r.tornLine:
		fmt.Fprintf(w, "%s: torn from line %d on: a start cuts the last %d bytes off\n", name, r.tornLine, r.torn)
	default:
		fmt.Fprintf(w, "%v (bad lines in all: %d)\n", survey.damage, survey.bad)
	}
	if name == journalOldName && r.dropOld {
		fmt.Fprintf(w, "%s: not needed, the snapshot covers it\n", name)
	}
	return true, nil
}

func (r *recovery) isNewest(name string) bool {
	return len(r.files) > 0 && name == r.files[len(r.files)-1]
}

// surveyLines reads the lines after the header.
func surveyLines(name string, s *journalScanner) (fileSurvey, error) {
	var v fileSurvey
	for {
		line, whole, err := s.next()
		if err == io.EOF {
			v.bytes = s.end
			return v, nil
		}
		if err != nil {
			return v, fmt.Errorf("read %s: %w", name, err)
		}
		if name != snapshotName || !bytes.HasPrefix(line, []byte(endHead)) {
			v.lines++
		}
		v.note(name, s.number, line, whole)
	}
}

func (v *fileSurvey) note(name string, number int, line []byte, whole bool) {
	seq, fault := uint64(0), lineFault(line)
	if fault == "" && name != snapshotName {
		seq, fault = recordSeq(line)
	}
	if !whole {
		fault = "the line is incomplete"
	}
	if fault == "" && seq != 0 && v.last != 0 && seq <= v.last {
		fault = fmt.Sprintf("sequence %d comes after %d", seq, v.last)
	}
	if fault != "" {
		v.bad++
		if v.damage == nil {
			v.damage = &damage{name, number, fault}
		}
		return
	}
	if v.first == 0 {
		v.first = seq
	}
	v.last = seq
}

// sequences describes the sequences in the file.
func (v *fileSurvey) sequences(h storeHeader) string {
	switch {
	case h.Snapshot != "":
		return fmt.Sprintf("covers sequence 1 to %d, %d lines expected", h.Seq, h.Count)
	case v.first == 0:
		return fmt.Sprintf("no records, the first would be %d", h.From)
	}
	return fmt.Sprintf("sequence %d to %d", v.first, v.last)
}

// Reading what is sound of a damaged store: for `stepwell store repair`, which writes it
// as a new store, and for `serve --read-only`. Nothing here changes a file of the
// damaged one.
//
// Every line has its own checksum, so each is sound or lost alone. Tasks are then built
// from the sound lines of the snapshot and the sound records after it. A task that one of
// its records does not fit any more, because an earlier one is lost, is kept as it was
// before that record.

// salvage reads what is sound of a store, and notes what is not.
type salvage struct {
	recovery // of the files; only its parts are used
	s        *store
	l        restorer
	losses   []string // what is lost, each with its place
	torn     string   // the unfinished write at the end, which is no loss
	records  []soundRecord
	broken   map[uuid]*brokenTask
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
	v := &salvage{recovery: recovery{disk: pinned, dir: dir}, s: newStore(nil, log), broken: map[uuid]*brokenTask{}}
	v.l.s = v.s
	if len(pinned.files) == 0 {
		return nil, errors.New("there is no store in this directory")
	}
	if err := v.salvageSnapshot(); err != nil {
		return nil, err
	}
	for _, name := range []string{journalOldName, journalName} {
		if err := v.salvageJournal(name); err != nil {
			return nil, err
		}
	}
	v.apply()
	v.s.seq, v.s.journal = max(v.s.seq, v.covered, v.last), newJournal(journalOptions{memory: true})
	v.s.dead = v.s.dead.inOrder()
	v.l.events.passWaiting(&v.s.events, v.s.seq)
	return v, nil
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
	s, f, err := v.scan(snapshotName)
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
	v.covered, v.id = h.Seq, h.Store
	lines, bad, err := v.soundLines(snapshotName, s)
	if err != nil {
		return err
	}
	if missing := int(h.Count) - len(lines) - bad; missing > 0 {
		v.lose(snapshotName, s.number, "the file ends here: %s lost", counted(missing, "line is", "lines are"))
	}
	slices.SortStableFunc(lines, func(a, b soundLine) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.seq, b.seq)) })
	for _, line := range lines {
		if err := v.l.line(line.text); err != nil {
			v.lose(snapshotName, line.number, "%s cannot be read: %v", lineSubject(line.text), err)
		}
	}
	if v.covered == 0 {
		v.covered = v.s.analytics.covered
	}
	return nil
}

// soundLine is a line of the snapshot without its checksum.
type soundLine struct {
	text   []byte
	number int
	rank   int    // of its kind, in the order in which they are loaded
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
		l := soundLine{text: cutSum(line), number: s.number}
		heads := []string{eventsHead, subscriberHead, `{"hash":`, figuresHead, droppedHead}
		if l.rank = slices.IndexFunc(heads, func(head string) bool { return bytes.HasPrefix(line, []byte(head)) }); l.rank < 0 {
			l.rank = len(heads)
			h, _ := readTaskHead(l.text)
			l.seq = h.seq
		}
		lines = append(lines, l)
	}
}

// lineSubject says what a line of a snapshot is about, even if it is damaged.
func lineSubject(line []byte) string {
	id, isTask := lineID(line)
	switch {
	case isTask && bytes.HasPrefix(line, []byte(`{"task":"`)):
		return "task " + id.String()
	case bytes.HasPrefix(line, []byte(`{"hash":`)):
		return "a template"
	case bytes.HasPrefix(line, []byte(figuresHead)):
		return "a part of the figures"
	case bytes.HasPrefix(line, []byte(droppedHead)):
		return "the number of dropped tasks"
	case bytes.HasPrefix(line, []byte(eventsHead)):
		return "the extent of the event log"
	case bytes.HasPrefix(line, []byte(subscriberHead)):
		return "the position of a subscriber"
	}
	return "a line"
}

// salvageJournal keeps the sound records of a journal. A journal of another store is left
// out as a whole.
func (v *salvage) salvageJournal(name string) error {
	s, f, err := v.scan(name)
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
	if err := v.sameStore(name, h.Store); err != nil {
		v.losses = append(v.losses, err.Error()+": it is left out")
		return nil
	}
	v.last = max(v.last, h.From-min(h.From, 1))
	return v.soundRecords(name, s)
}

func (v *salvage) soundRecords(name string, s *journalScanner) error {
	var end []string // bad lines since the last good one
	first := 0       // of these
	for {
		line, whole, err := s.next()
		if err == io.EOF {
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
			if name == journalName && (!whole || hasHole(line, s.start, whole)) {
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
	last := v.covered
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
	if v.last > last { // the header of an empty journal
		v.noteGap(last+1, v.last)
	}
	v.last = max(v.last, last)
	bySeq := func(a, b uuid) int { return cmp.Compare(v.broken[a].since, v.broken[b].since) }
	for _, id := range slices.SortedFunc(maps.Keys(v.broken), bySeq) {
		b := v.broken[id]
		pos, kept := v.s.byID.find(id)
		what := "is lost"
		if kept && !v.s.slots[pos].vacant() {
			what = fmt.Sprintf("is kept as it was before sequence %d", b.since)
		}
		v.losses = append(v.losses, fmt.Sprintf("task %s %s: %v (records of it that are lost after this one: %d)",
			id, what, b.reason, b.more))
	}
}

// noteGap notes missing records, and how many tasks may lack changes by them.
func (v *salvage) noteGap(from, to uint64) {
	unfinished := 0
	v.s.eachLiveLocked(func(*task) { unfinished++ })
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
	_, known := v.s.byID.find(d.task)
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
	pos, _ := v.s.byID.find(id)
	sl := &v.s.slots[pos]
	if sl.live == nil {
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
	if err := j.takeDir(); err != nil {
		return err
	}
	defer j.lock.Close()
	if err := j.holdsNothing(); err != nil {
		return err
	}
	if err := v.s.writeFiles(j); err != nil {
		return fmt.Errorf("write the store %s: %w", o.dir, err)
	}
	again := newStore(nil, o.log)
	return checkStore(o.fs, o.dir, &restorer{s: again}, io.Discard)
}

// openReadOnly returns what is sound of the store in a directory. It takes no change and
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
	s.clock = c
	s.journal.skipTo(s.seq)
	s.journal.forbid(errReadOnly)
	return s, nil
}

// errReadOnly is why a store takes no changes that was opened to be read.
var errReadOnly = &misplaced{"the service was started with --read-only"}

// forbid makes the journal refuse records.
func (j *journal) forbid(reason error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.broken = reason
	j.halted.Store(true)
	j.space.shut()
}
