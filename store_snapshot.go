package main

// Writing a snapshot beside the running journal. store_recover.go describes its
// steps, and what a start does after a crash in between.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
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

// snapshotTurn lets one snapshot be written at a time.
type snapshotTurn struct {
	dir   string
	log   *slog.Logger
	bytes atomic.Int64 // of the newest snapshot

	mu     sync.Mutex // guards what follows
	taken  bool       // a snapshotWriter exists
	after  time.Time  // no snapshot is due before this, because the last one failed
	warned bool       // that failure, or an earlier one in a row, was logged
}

// snapshotDue reports whether the journal has outgrown the snapshot.
func (j *journal) snapshotDue() bool {
	size := j.newest.bytes.Load() + j.files.oldBytes.Load()
	if size <= j.snapshotThreshold() || j.groups.halted.Load() {
		return false
	}
	t := &j.snapshots
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.taken && !time.Now().Before(t.after)
}

// snapshotThreshold returns the size of the journal beyond which a snapshot is due. It grows with the snapshot, so
// that the cost of snapshots for each change stays about the same.
func (j *journal) snapshotThreshold() int64 { return max(j.o.floor, j.snapshots.bytes.Load()/4) }

// keepSnapshots writes a snapshot whenever one is due, until ctx ends. A failed one is tried again after the journal has
// grown further.
func (s *store) keepSnapshots(ctx context.Context) {
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
			s.log.Warn("the snapshot could not be written; the journal keeps every change", "error", err)
		}
	}
}

// startSnapshot creates the temporary file and begins a new journal file. It
// takes several syncs and must not be called under the store's lock. The caller
// ends the writer with commit or abort.
func (j *journal) startSnapshot() (*snapshotWriter, error) {
	if j.o.memory {
		return nil, errors.New("start snapshot: the store is in memory only")
	}
	if !j.snapshots.claim() {
		return nil, errors.New("start snapshot: another one is being written")
	}
	s := &snapshotWriter{j: j, size: snapshotHeaderSize}
	err := s.openFile()
	if err == nil && j.files.oldBytes.Load() == 0 {
		err = j.beginFile()
	} // else this snapshot covers journal.old.jsonl at last, and the newest journal keeps its records this time
	if err != nil {
		return nil, s.fail("start", err)
	}
	return s, nil
}

func (t *snapshotTurn) claim() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	claimed := !t.taken
	t.taken = true
	return claimed
}

// beginFile begins a new file and leaves the journal's as journal.old.jsonl.
func (j *journal) beginFile() error {
	next, err := j.o.fs.create(j.files.path(journalTempName))
	if err != nil {
		return err
	}
	linked := j.files.linkOld()
	if err = j.ask(func() error { return j.rotate(next, linked) }); err != nil {
		j.files.drop(next, journalTempName)
	}
	return err
}

func (s *snapshotWriter) openFile() error {
	f, err := s.j.o.fs.create(s.j.files.path(snapshotTemp))
	if err != nil {
		return err
	}
	s.file = f
	s.out = bufio.NewWriterSize(io.NewOffsetWriter(f, snapshotHeaderSize), snapshotBuffer)
	return nil
}

// line writes a line, which is given without its closing brace. After an error
// the snapshot is given up.
func (s *snapshotWriter) line(line []byte) error {
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
// space for the journal to grow, or once that has failed.
func (s *snapshotWriter) syncSome() error {
	if broken, _ := s.j.groups.ended(); broken != nil {
		return broken
	}
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
	if err := s.finish(); err != nil {
		return s.fail("commit", err)
	}
	s.j.snapshots.bytes.Store(s.size)
	s.j.dropOld() // not before the name of the snapshot is on disk
	s.file.Close()
	s.end()
	s.j.snapshots.note(nil)
	return nil
}

// finish writes the header and renames the file. It syncs the journal first: a
// line may contain changes later than covered, which must be on disk before
// they are visible here, or a start would use their sequences again.
func (s *snapshotWriter) finish() error {
	syncJournal := func() error {
		if err := s.j.ask(func() error { return s.j.flush(true) }); err != nil {
			return fmt.Errorf("sync the journal first: %w", err)
		}
		return nil
	}
	return untilError(s.lastLine, syncJournal, s.seal, s.install)
}

// untilError calls functions one after the other, until an error.
func untilError(all ...func() error) error {
	for _, f := range all {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
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
	if _, err := s.file.WriteAt(snapshotHeader(s.j.files.of, s.j.o.now(), s.covered, s.count), 0); err != nil {
		return err
	}
	return s.file.sync()
}

// install gives a sealed file its name.
func (s *snapshotWriter) install() error {
	return s.j.files.replace(snapshotName, func() error {
		return s.j.o.fs.rename(s.j.files.path(snapshotTemp), s.j.files.path(snapshotName))
	})
}

const (
	shrinkStep    = 8 << 20     // bytes of a file that are freed at a time
	readerRecheck = time.Second // how often to look whether somebody still reads a file
)

// dropOld removes the journal file that the snapshot covers.
func (j *journal) dropOld() {
	err := j.files.replace(journalOldName, func() error { return j.o.fs.remove(j.files.path(journalOldName)) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.o.log.Warn("a journal that the snapshot covers stays until the next one",
			"file", j.files.path(journalOldName), "error", err)
		return
	}
	j.files.oldBytes.Store(0)
}

// abort gives the snapshot up. The journal continues.
func (s *snapshotWriter) abort() {
	if s.ended {
		return
	}
	if s.file != nil {
		s.j.files.drop(s.file, snapshotTemp)
	}
	s.end()
}

// fail gives the snapshot up because of an error.
func (s *snapshotWriter) fail(doing string, err error) error {
	err = fmt.Errorf("%s snapshot: %w", doing, err)
	s.abort()
	if !s.j.groups.halted.Load() { // or the failure of the journal was reported
		s.j.snapshots.note(err)
	}
	return err
}

// end allows the next snapshot to begin.
func (s *snapshotWriter) end() {
	s.ended = true
	t := &s.j.snapshots
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = false
}

// note keeps the outcome of a snapshot. After a failure none is due for
// a while; only the first failure in a row is logged.
func (t *snapshotTurn) note(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.after, t.warned = time.Time{}, false
		return
	}
	t.after = time.Now().Add(snapshotPause)
	if !t.warned {
		t.warned = true
		t.log.Warn("a snapshot was abandoned; the journal keeps every change", "dir", t.dir, "error", err)
	}
}

// snapshotBatch is how many tasks a snapshot reads under the lock at a time.
const snapshotBatch = 256

// snapshot writes every task, in batches, beside the running service. A line
// may be newer than the sequence that the snapshot covers: it has its own. The
// figures are as of exactly that sequence.
func (s *store) snapshot() error {
	w, err := s.journal.startSnapshot()
	if err != nil {
		return err
	}
	if err = w.fill(s); err != nil {
		w.abort()
		return err
	}
	return w.commit()
}

// fill writes everything that a store has up to its present sequence.
func (w *snapshotWriter) fill(s *store) error {
	s.mu.Lock()
	w.covered = s.seq
	count, figures, events := len(s.tasks.slots), s.analytics.freeze(), s.events.linesLocked()
	// A task that is dropped from now on must have a line: the record of the drop comes after
	// covered, and a start applies it.
	s.retain.holdLocked()
	s.mu.Unlock()
	defer s.retain.release()
	if err := eachOf(events, w.line); err != nil {
		return err
	}
	return s.writeSnapshot(w, count, figures, w.covered)
}

func (s *store) writeSnapshot(w *snapshotWriter, count int, figures *frozenFigures, covered uint64) error {
	var requests []*droppedRequest
	var dropped [][]byte
	s.locked(func() { // no task is dropped before its line is written
		requests, dropped = s.requests.order, s.retain.linesLocked()
	})
	return untilError(
		func() error { return s.templates.writeLines(w.line) },
		func() error { return figures.writeLines(covered, w.line) },
		func() error { return eachOf(dropped, w.line) },
		func() error { return s.requests.writeLines(requests, w.line) },
		func() error { return s.eachLine(count, func(line []byte) error { return w.line(line[:len(line)-1]) }) },
	)
}

// eachLine calls f with the line of every task below a position, outside the
// lock. The caller has called holdLocked; what was passed may be dropped.
func (s *store) eachLine(below int, f func(line []byte) error) error {
	lines := make([]shortLine, 0, snapshotBatch)
	var room []byte
	for from := 0; from < below; {
		s.locked(func() {
			s.retain.passed = from
			lines, from = s.tasks.lineBatch(lines[:0], from, min(from+snapshotBatch, below))
		})
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

// lineBatchBytes is about how many bytes of lines are taken under the lock at a time.
const lineBatchBytes = 1 << 20

// lineBatch appends the lines of the tasks at positions from up to to, or of the
// first of these. It returns the position to continue from.
func (x *slotTable) lineBatch(lines []shortLine, from, to int) ([]shortLine, int) {
	for took := 0; from < to && took < lineBatchBytes; from++ {
		line := x.slots[from].line
		if live := x.slots[from].live; live != nil {
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
	if s.journal.files.oldBytes.Load() > 0 {
		if err := s.snapshot(); err != nil {
			return err
		}
	}
	return s.snapshot()
}
