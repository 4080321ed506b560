package main

// Writing a snapshot beside the running journal. store_recover.go describes its
// steps, and what a start does after a crash in between.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	snapshotBuffer = 256 << 10
	// A snapshot is synced after this many bytes: a disk that has much to write
	// at once delays the journal's syncs.
	snapshotSyncStep = 4 << 20
)

// snapshotWriter writes one snapshot. One goroutine calls cut once, line for
// every line, then commit. It may call abort at any time; after commit that
// does nothing.
type snapshotWriter struct {
	j        *journal
	file     diskFile
	out      *bufio.Writer
	size     int64 // of the file
	unsynced int64 // bytes since the last sync
	covered  uint64
	count    uint64
	sums     lineSums
	ended    bool
}

// snapshotDue reports whether the journal has outgrown the snapshot.
func (j *journal) snapshotDue() bool {
	size := j.fileBytes.Load() + j.oldBytes.Load()
	if size <= j.snapshotThreshold() || j.halted.Load() {
		return false
	}
	j.snapshotMu.Lock()
	defer j.snapshotMu.Unlock()
	return !j.snapshotting && !time.Now().Before(j.snapshotAfter)
}

// snapshotThreshold returns the size of the journal beyond which a snapshot is due.
func (j *journal) snapshotThreshold() int64 { return max(j.o.floor, j.snapshotBytes.Load()/4) }

// startSnapshot creates the temporary file and begins a new journal file. It
// takes several syncs and must not be called under the store's lock. The caller
// ends the writer with commit or abort.
func (j *journal) startSnapshot() (*snapshotWriter, error) {
	if j.o.memory {
		return nil, errors.New("start snapshot: the store is in memory only")
	}
	if !j.claimSnapshot() {
		return nil, errors.New("start snapshot: another one is being written")
	}
	s := &snapshotWriter{j: j, size: snapshotHeaderSize}
	if err := s.open(); err != nil {
		return nil, s.fail("start", err)
	}
	return s, nil
}

func (j *journal) claimSnapshot() bool {
	j.snapshotMu.Lock()
	defer j.snapshotMu.Unlock()
	claimed := !j.snapshotting
	j.snapshotting = true
	return claimed
}

// open creates the files. If a journal.old.jsonl exists, no snapshot covers it
// yet: then this one covers it, and the newest journal keeps its records this
// time.
func (s *snapshotWriter) open() error {
	if err := s.openFile(); err != nil {
		return err
	}
	if s.j.oldBytes.Load() > 0 {
		return nil
	}
	return s.j.beginFile()
}

// beginFile begins a new file and leaves the journal's as journal.old.jsonl, at a moment at
// which nobody copies the directory. All names exist long before the switch, so that whoever
// lists the directory before it copies both files.
func (j *journal) beginFile() error {
	if err := j.awaitSwitch(); err != nil {
		return err
	}
	next, err := j.opened(journalTempName, j.o.fs.create)
	if err != nil {
		return err
	}
	linked := j.linkOld()
	for err = errCopied; err == errCopied; {
		if err = j.awaitCopies(); err == nil {
			err = j.ask(func() error { return j.rotate(next, linked) })
		}
	}
	if err != nil {
		j.dropFile(next, journalTempName)
	}
	return err
}

// swapNames renames both journals, the old one first unless it has both names. A
// failed sync of the directory fails the journal, because it is unknown then
// which file a start would read.
func (j *journal) swapNames(linked bool) error {
	disk, current, old := j.o.fs, j.path(journalName), j.path(journalOldName)
	if !linked {
		if err := disk.rename(current, old); err != nil {
			return j.undoNames(err)
		}
		if err := j.lock.syncDir(); err != nil {
			return j.fail(err)
		}
	}
	become := func() error { return disk.rename(j.path(journalTempName), current) }
	if err := j.vanishNow(journalTempName, become); err != nil {
		return j.undoNames(err)
	}
	if err := j.lock.syncDir(); err != nil {
		return j.fail(err)
	}
	return nil
}

// undoNames renames the journal back after a rename that failed but may have
// happened, so that the journal goes on in its file.
func (j *journal) undoNames(cause error) error {
	err := j.o.fs.rename(j.path(journalOldName), j.path(journalName))
	if errors.Is(err, fs.ErrNotExist) {
		return cause
	}
	if err != nil || j.lock.syncDir() != nil {
		return j.fail(cause)
	}
	return cause
}

// errCopied is the error of a rotation while the directory is copied.
var errCopied = errors.New("the directory is being copied")

// linkOld gives the journal's file the name journal.old.jsonl, which no needed file has, as its
// second one. It reports whether the file system could.
func (j *journal) linkOld() bool {
	remove := func() error { return j.o.fs.remove(j.path(journalOldName)) }
	if err := j.vanish(journalOldName, remove); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return j.o.fs.link(j.path(journalName), j.path(journalOldName)) == nil && j.lock.syncDir() == nil
}

func (s *snapshotWriter) openFile() error {
	f, err := s.j.opened(snapshotTemp, s.j.o.fs.create)
	if err != nil {
		return err
	}
	s.file = f
	s.out = bufio.NewWriterSize(io.NewOffsetWriter(f, snapshotHeaderSize), snapshotBuffer)
	return nil
}

// cut fixes what the snapshot covers, everything appended so far, and returns
// the last sequence of that. It is called under the store's lock.
func (s *snapshotWriter) cut() uint64 {
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	s.covered = s.j.appended
	return s.covered
}

// line writes a line, which is given without its closing brace. After an error
// the snapshot is given up.
func (s *snapshotWriter) line(line []byte) error {
	if s.ended {
		return errors.New("write snapshot: it has ended")
	}
	if err := s.write(line); err != nil {
		return s.fail("write", err)
	}
	s.count++
	return nil
}

func (s *snapshotWriter) write(line []byte) error {
	var buf [len(sumTail) + 1]byte
	tail := appendSumTail(buf[:0], crc32.Checksum(line, castagnoli))
	s.sums.add(tail)
	s.out.Write(line) // a bufio.Writer returns its first error again on the next call
	if _, err := s.out.Write(tail); err != nil {
		return err
	}
	n := int64(len(line) + len(tail))
	s.size += n
	s.unsynced += n
	if s.unsynced < snapshotSyncStep {
		return nil
	}
	s.unsynced = 0
	return s.syncSome()
}

// syncSome syncs what was written so far, and gives up while there is still
// space for the journal to grow.
func (s *snapshotWriter) syncSome() error {
	if err := s.out.Flush(); err != nil {
		return err
	}
	free, err := s.j.o.fs.free(s.j.o.dir)
	if err != nil {
		return err
	}
	if free < spaceStep {
		return syscall.ENOSPC
	}
	return s.file.sync()
}

// commit makes the snapshot the one that a start reads, and removes the journal
// that it covers. After an error the previous snapshot counts, or, if only the
// sync of the directory failed, either: both are complete.
func (s *snapshotWriter) commit() error {
	if s.ended {
		return errors.New("commit snapshot: it has ended")
	}
	if err := s.finish(); err != nil {
		return s.fail("commit", err)
	}
	s.j.snapshotBytes.Store(s.size)
	s.j.dropOld()
	s.file.Close()
	s.end()
	s.j.noteSnapshot(nil)
	return nil
}

// finish writes the header and renames the file. It syncs the journal first: a
// line may contain changes later than covered, which must be on disk before
// they are visible here, or a start would use their sequences again.
func (s *snapshotWriter) finish() error {
	if err := s.lastLine(); err != nil {
		return err
	}
	if err := s.j.ask(func() error { return s.j.flush(true) }); err != nil {
		return fmt.Errorf("sync the journal first: %w", err)
	}
	if err := s.seal(); err != nil {
		return err
	}
	if err := s.j.awaitSwitch(); err != nil {
		return err
	}
	return s.install()
}

// lastLine writes the line that depends on all others.
func (s *snapshotWriter) lastLine() error {
	line := s.sums.appendEnd(nil, s.count)
	s.size += int64(len(line))
	if _, err := s.out.Write(line); err != nil {
		return err
	}
	return s.out.Flush()
}

// seal completes a file whose lines were flushed.
func (s *snapshotWriter) seal() error {
	if _, err := s.file.WriteAt(snapshotHeader(s.j.id, s.j.o.now(), s.covered, s.count), 0); err != nil {
		return err
	}
	return s.file.sync()
}

// install gives a sealed file its name.
func (s *snapshotWriter) install() error {
	return s.j.replaceFile(snapshotName, func() error {
		return s.j.vanish(snapshotTemp, func() error {
			return s.j.o.fs.rename(s.j.path(snapshotTemp), s.j.path(snapshotName))
		})
	})
}

// replaceFile calls do, which takes a file's name away, and makes that durable.
// The nameless file is then freed in the background.
func (j *journal) replaceFile(name string, do func() error) error {
	f, openErr := j.opened(name, j.o.fs.edit)
	err := do()
	if err == nil {
		err = j.lock.syncDir()
	}
	if openErr != nil {
		return err
	}
	if err != nil { // the name may come back with a crash
		f.Close()
		return err
	}
	j.freeing.Go(func() { j.shrinkAway(f) })
	return nil
}

const (
	shrinkStep    = 8 << 20     // bytes of a file that are freed at a time
	readerRecheck = time.Second // how often to look whether somebody still reads a file
)

// shrinkAway closes a file without a name, step by step: a file system that
// frees a gigabyte at once delays syncs of other files. It waits until nobody
// else has the file open, who would find it cut short. Errors do not matter:
// closing frees the rest.
func (j *journal) shrinkAway(f diskFile) {
	defer f.Close()
	size, err := f.size()
	for err == nil && size > shrinkStep {
		pause := time.Duration(0)
		if err = f.unused(); errors.Is(err, syscall.EAGAIN) {
			pause, err = readerRecheck, nil
		} else if err == nil {
			size -= shrinkStep
			if err = f.truncate(size); err == nil {
				err = f.sync()
			}
		}
		if closedWithin(context.Background(), j.quit, pause) == nil {
			return
		}
	}
}

// dropOld removes the journal file that the snapshot covers.
func (j *journal) dropOld() {
	err := j.awaitSwitch()
	if err == nil {
		err = j.replaceFile(journalOldName, func() error {
			return j.vanish(journalOldName, func() error { return j.o.fs.remove(j.path(journalOldName)) })
		})
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.o.log.Warn("a journal that the snapshot covers stays until the next one",
			"file", j.path(journalOldName), "error", err)
		return
	}
	j.oldBytes.Store(0)
}

// abort gives the snapshot up. The journal goes on.
func (s *snapshotWriter) abort() {
	if s.ended {
		return
	}
	if s.file != nil {
		s.j.dropFile(s.file, snapshotTemp)
	}
	s.end()
}

// fail gives the snapshot up because of an error.
func (s *snapshotWriter) fail(doing string, err error) error {
	err = fmt.Errorf("%s snapshot: %w", doing, err)
	s.abort()
	s.j.noteSnapshot(err)
	return err
}

// end allows the next snapshot to begin.
func (s *snapshotWriter) end() {
	s.ended = true
	s.j.snapshotMu.Lock()
	defer s.j.snapshotMu.Unlock()
	s.j.snapshotting = false
}

// noteSnapshot keeps the outcome of a snapshot. After a failure none is due for
// a while; only the first failure in a row is logged.
func (j *journal) noteSnapshot(err error) {
	j.snapshotMu.Lock()
	defer j.snapshotMu.Unlock()
	if err == nil {
		j.snapshotAfter, j.snapshotWarned = time.Time{}, false
		return
	}
	j.snapshotAfter = time.Now().Add(snapshotPause)
	if !j.snapshotWarned {
		j.snapshotWarned = true
		j.o.log.Warn("a snapshot was given up, the journal goes on", "dir", j.o.dir, "error", err)
	}
}

// snapshotBatch is how many tasks a snapshot reads under the lock at a time.
const snapshotBatch = 256

// runSnapshots writes a snapshot whenever the journal has grown enough, until
// ctx ends. A failed one is tried again after the journal has grown further.
func (s *store) runSnapshots(ctx context.Context) {
	s.journal.copies.leave = ctx.Done()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.full:
		}
		if !s.journal.snapshotDue() {
			continue
		}
		if err := s.snapshot(); err != nil {
			s.log.Warn("the snapshot could not be written; the journal goes on", "error", err)
		}
	}
}

// snapshot writes every task, in batches, beside the running service. A line
// may be newer than the sequence that the snapshot covers: it has its own. The
// figures are as of exactly that sequence.
func (s *store) snapshot() error {
	w, err := s.journal.startSnapshot()
	if err != nil {
		return err
	}
	s.mu.Lock()
	covered := w.cut()
	count, figures, events := len(s.slots), s.analytics.freeze(), s.events.linesLocked()
	s.holdLocked()
	s.mu.Unlock()
	defer s.release()
	if err = eachOf(events, w.line); err == nil {
		err = s.writeSnapshot(w, count, figures, covered)
	}
	if err != nil {
		w.abort()
		return err
	}
	return w.commit()
}

func (s *store) writeSnapshot(w *snapshotWriter, count int, figures *frozenFigures, covered uint64) error {
	if err := s.writeTemplates(w.line); err != nil {
		return err
	}
	if err := figures.writeLines(covered, w.line); err != nil {
		return err
	}
	if line := s.droppedLine(); line != nil {
		if err := w.line(line); err != nil {
			return err
		}
	}
	var requests []*droppedRequest
	s.locked(func() { requests = s.requests.order }) // no task is dropped before its line is written
	if err := s.writeRequests(requests, w.line); err != nil {
		return err
	}
	return s.eachLine(count, func(line []byte) error { return w.line(line[:len(line)-1]) })
}

// eachLine calls f with the line of every task below a position, outside the
// lock. The caller has called holdLocked; what was passed may be dropped.
func (s *store) eachLine(below int, f func(line []byte) error) error {
	lines := make([]shortLine, 0, snapshotBatch)
	var room []byte
	for from := 0; from < below; {
		lines, from = s.lineBatch(lines[:0], from, min(from+snapshotBatch, below))
		for _, line := range lines {
			text := line.textIn(room)
			if !line.isWhole() {
				room = text
			}
			if err := f(text); err != nil {
				return err
			}
		}
	}
	s.locked(func() { s.retain.passed = below })
	return nil
}

// writeTemplates passes every template's line to add, without its closing
// brace.
func (s *store) writeTemplates(add func(line []byte) error) error {
	var buf []byte
	for _, tpl := range s.allTemplates() {
		buf = append(append(buf[:0], `{"hash":"`...), tpl.hash...)
		buf = append(append(buf, `","definition":`...), tpl.json...)
		if err := add(buf); err != nil {
			return err
		}
	}
	return nil
}

// allTemplates returns all templates that tasks refer to, sorted by hash.
func (s *store) allTemplates() []*template {
	s.templatesMu.RLock()
	defer s.templatesMu.RUnlock()
	all := make([]*template, 0, len(s.templates))
	for _, t := range s.templates {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *template) int { return cmp.Compare(a.hash, b.hash) })
	return all
}

// lineBatchBytes is about how many bytes of lines are taken under the lock at a time.
const lineBatchBytes = 1 << 20

// lineBatch appends the lines of the tasks at positions from up to to, under the
// lock, or of the first of these. It returns the position to go on from.
func (s *store) lineBatch(lines []shortLine, from, to int) ([]shortLine, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retain.passed = from
	for took := 0; from < to && took < lineBatchBytes; from++ {
		line := s.slots[from].line
		if live := s.slots[from].live; live != nil {
			line = live.appendTaskLine(nil)
		}
		if line != nil {
			lines = append(lines, line)
			took += len(line)
		}
	}
	return lines, from
}

// compact writes a snapshot after which the journal is empty. If an earlier
// snapshot was given up, the first one covers only the old journal, so it
// writes two.
func (s *store) compact() error {
	if s.journal.oldBytes.Load() > 0 {
		if err := s.snapshot(); err != nil {
			return err
		}
	}
	return s.snapshot()
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
	r.id = h.Store
	r.loader.expect(int(min(h.Count, uint64(max(s.left, 0)/leastLine))) + r.recordedTasks())
	lines := readAhead(s, (*lineBlock).stored)
	defer lines.stop()
	if err := r.readSnapshotLines(lines, &h); err != nil {
		return err
	}
	r.hasSnapshot, r.covered, r.last, r.snapshotBytes = true, h.Seq, h.Seq, lines.end
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

// recordedTasks returns how many tasks there may be in the journals, about.
func (r *recovery) recordedTasks() int {
	return int((r.sizeOf(journalName) + r.sizeOf(journalOldName)) / 2 / leastLine)
}

// lineReader reads the lines of a file: one goroutine reads blocks of them, and others check and
// decode the lines, while the start loads those before them.
type lineReader struct {
	decode func(b *lineBlock, l *checkedLine)
	blocks chan *lineBlock // in the order of the file
	unused chan *lineBlock // whose memory can be used again
	quit   chan struct{}
	zeros  bool // as of a journalScanner
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
		if end := bytes.LastIndexByte(b.text, '\n') + 1; b.err == io.EOF && r.zeros && len(trimZeros(b.text[end:])) == 0 {
			b.text = b.text[:end]
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

// subscriberHead is the start of the snapshot's line about a subscriber:
//
//	{"subscriber":"billing","from":12,"done":40,"dead":[{"about":"…","seq":31,"n":1,…}]}
const subscriberHead = `{"subscriber":`

// linesLocked returns those lines, without their closing brace.
func (l *domainLog) linesLocked() (lines [][]byte) {
	for _, s := range l.subscriptions {
		c := memberCoder{b: []byte{'{'}}
		kept := *s
		kept.done = max(s.done, l.lost) // what the log dropped is settled: the subscriber cannot get it
		kept.members(&c)
		lines = append(lines, c.b)
	}
	return lines
}

func (s *subscription) members(c *memberCoder) {
	c.text("subscriber", &s.name)
	nonzero(c, "from", &s.from)
	nonzero(c, "done", &s.done)
	if c.reading {
		s.dead = nil
		c.eachElement("dead", func(raw []byte) {
			var x deadNotice
			var in memberCoder
			for in.again(raw) {
				x.members(&in)
			}
			c.err = cmp.Or(c.err, in.err)
			s.dead = append(s.dead, x)
		})
		return
	}
	if len(s.dead) == 0 {
		return
	}
	c.b = append(appendName(c.b, "dead"), '[')
	for i := range s.dead {
		in := memberCoder{b: append(c.b, '{')}
		s.dead[i].members(&in)
		c.b = append(in.b, "},"...)
	}
	c.b[len(c.b)-1] = ']'
}

// subscriberLine loads such a line.
func (l *restorer) subscriberLine(line []byte) error {
	s := &subscription{}
	var c memberCoder
	for c.again(line) {
		s.members(&c)
	}
	if c.err == nil && (s.name == "" || l.s.events.domain.subscription(s.name) != nil) {
		c.fail("subscriber", "missing, or of a second line")
	}
	order := func(a, b deadNotice) int { return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.n, b.n)) }
	if c.err == nil && !slices.IsSortedFunc(s.dead, order) {
		c.fail("dead", "not in the order of the events")
	}
	l.s.events.domain.subscriptions = append(l.s.events.domain.subscriptions, s)
	return c.err
}
