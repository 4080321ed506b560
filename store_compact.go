package main

// Compaction: writing the state of the store as a new file beside the running service, which then takes the place of the
// old one.
//
//	store.jsonl   header │ compacted part │ records …………………………│ more records …
//	                                        1 the cut            3 what came since is copied
//	                                      ↓ 2 written as lines   ↓
//	store.jsonl.new        header │ compacted part              │ more records
//	                       4 synced, renamed to store.jsonl, the directory synced
//
// A start reads whichever has the name, and removes the other.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	compactFloor  = 16 << 20    // bytes; fewer records need no compaction, unless the options say otherwise
	compactPause  = time.Minute // after a failed compaction
	compactBuffer = 256 << 10
	// compactStep is after how many bytes a new file is synced: a disk that has much to write at once delays the syncs of
	// the journal.
	compactStep = 4 << 20
)

// compactions lets one compaction run at a time.
type compactions struct {
	running sync.Mutex
	after   atomic.Pointer[time.Time] // none is due before this, because the last one failed; nil if it did not
}

// compactionDue reports whether the records have outgrown the compacted part. The threshold grows with that part, so that
// the cost of compactions for each change stays about the same.
func (j *journal) compactionDue() bool {
	if j.recordBytes() <= max(j.o.floor, j.newest.compacted.Load()/4) || j.groups.halted.Load() {
		return false
	}
	after := j.compacting.after.Load()
	return after == nil || !time.Now().Before(*after)
}

// keepCompact compacts the file whenever that is due, until ctx ends. A failed compaction is tried again later.
func (s *store) keepCompact(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.full:
		}
		if s.journal.compactionDue() {
			s.compact() // it has logged an error
		}
	}
}

// compact replaces the file by one without records that are in the compacted part. After an error, the file is as it was
// or the journal has failed.
func (s *store) compact() error {
	j := s.journal
	if j.o.memory {
		return errors.New("compact store: it is in memory only")
	}
	j.compacting.running.Lock()
	defer j.compacting.running.Unlock()
	cut := s.cut()
	return j.replace(cut.offset, cut.life, func(w *lineWriter) error { return s.write(cut, w) })
}

// replace replaces the file by one with another compacted part, for everything before an offset, and a line after it.
// Only the first failure in a row is logged. compacting.running is held.
func (j *journal) replace(offset int64, life []byte, write func(w *lineWriter) error) error {
	err := j.replaceBy(offset, life, write)
	if err == nil {
		j.compacting.after.Store(nil)
		return nil
	}
	after := time.Now().Add(compactPause)
	if j.compacting.after.Swap(&after) == nil && !j.groups.halted.Load() { // or the failure of the journal was reported
		j.o.log.Warn("the store could not be compacted; its file keeps every change", "dir", j.o.dir, "error", err)
	}
	return fmt.Errorf("compact store: %w", err)
}

func (j *journal) replaceBy(offset int64, life []byte, write func(w *lineWriter) error) error {
	f, size, err := writeStoreFile(&j.o, compactName, write, j.pace)
	if err != nil {
		return err
	}
	c := &compaction{j: j, file: f, from: offset, end: size + int64(len(life)), compacted: size}
	_, err = f.WriteAt(life, size)
	if err == nil { // most of what came since is copied before the journal waits
		err = untilError(func() error { return c.catchUp(j.newest.bytes.Load()) }, f.sync, func() error { return j.during(c.install) })
	}
	if err != nil && !c.named {
		f.Close()
		if rest := j.o.fs.remove(storePath(j.o.dir, compactName)); rest != nil && !errors.Is(rest, fs.ErrNotExist) {
			j.o.log.Warn("a file stays until the next start", "file", storePath(j.o.dir, compactName), "error", rest)
		}
	}
	return err
}

// pace syncs a part of a new file that was written, and gives up while there is still space for records, or once the
// journal has failed.
func (j *journal) pace(f diskFile) error {
	if broken, _ := j.groups.ended(); broken != nil {
		return broken
	}
	free, err := j.o.fs.free(j.o.dir)
	if err != nil {
		return err
	}
	if free < spaceStep {
		return syscall.ENOSPC
	}
	return f.sync()
}

// writeStoreFile writes the compacted part of a new file, and syncs it. It calls step in between.
func writeStoreFile(o *journalOptions, name string, write func(w *lineWriter) error, step func(f diskFile) error) (diskFile, int64, error) {
	f, err := o.fs.create(storePath(o.dir, name))
	if err != nil {
		return nil, 0, err
	}
	out := bufio.NewWriterSize(&stepWriter{f: f, step: step}, compactBuffer)
	w := &lineWriter{out: out}
	if err := untilError(func() error { return write(w) }, out.Flush, f.sync); err != nil {
		f.Close()
		return nil, 0, errors.Join(err, o.fs.remove(storePath(o.dir, name)))
	}
	return f, w.bytes, nil
}

// stepWriter writes a file from its begin on, and calls step after every compactStep bytes.
type stepWriter struct {
	f    diskFile
	at   int64
	last int64 // offset at the last step
	step func(f diskFile) error
}

func (w *stepWriter) Write(b []byte) (n int, err error) {
	n, err = w.f.WriteAt(b, w.at)
	w.at += int64(n)
	if err == nil && w.at-w.last >= compactStep {
		w.last = w.at
		err = w.step(w.f)
	}
	return n, err
}

// compaction is a new file whose compacted part was written.
type compaction struct {
	j         *journal
	file      diskFile
	from      int64 // offset in the old file of what is not copied
	end       int64
	compacted int64
	named     bool // it may have the name of the store
}

// catchUp copies the old file up to an offset.
func (c *compaction) catchUp(to int64) error {
	n, err := io.CopyN(io.NewOffsetWriter(c.file, c.end), io.NewSectionReader(c.j.newest.file, c.from, to-c.from), to-c.from)
	c.from, c.end = c.from+n, c.end+n
	return err
}

// install makes the new file that of the journal. Its caller has the turn to write, so that no caller learns that its
// change is durable between the rename and the sync of the directory.
func (c *compaction) install() error {
	j := c.j
	if _, closed := j.groups.ended(); closed {
		return errors.New("the store is closed")
	}
	if err := j.flush(true); err != nil {
		return err
	}
	j.space.turn <- struct{}{} // no extension may reserve blocks in the old file meanwhile
	defer func() { <-j.space.turn }()
	var reserved int64
	err := untilError(
		func() error { return c.catchUp(j.newest.end) },
		func() (err error) { reserved, err = j.allocateNext(c.file, c.end); return err },
		c.file.sync,
		c.rename,
	)
	if err != nil {
		return err
	}
	if err := j.lock.syncDir(); err != nil {
		return j.fail(err)
	}
	j.newest.file.Close()
	j.newest.set(c.file, c.end, c.compacted)
	j.moveSpace(c.file, reserved)
	return nil
}

// rename gives the new file the name of the old one.
func (c *compaction) rename() error {
	j := c.j
	if !replacesOpen {
		j.newest.file.Close()
	}
	err := j.o.fs.rename(storePath(j.o.dir, compactName), storePath(j.o.dir, storeName))
	if err == nil {
		c.named = true
		return nil
	}
	// A rename that failed may have happened. Then nothing has the other name any more.
	if again := j.o.fs.remove(storePath(j.o.dir, compactName)); again != nil {
		c.named = true
		return j.fail(err)
	}
	if !replacesOpen {
		old, failed := j.o.fs.edit(storePath(j.o.dir, storeName))
		if failed != nil {
			return j.fail(failed)
		}
		j.newest.file, j.space.file = old, old
	}
	return err
}

// allocateNext reserves, behind the end of the next file, everything that may be appended before the switch, and one step
// more.
func (j *journal) allocateNext(next diskFile, size int64) (end int64, err error) {
	j.groups.mu.Lock()
	n := max(j.space.room.Load(), 0) + int64(len(j.groups.buf)) + spaceStep
	j.groups.mu.Unlock()
	return size + n, j.space.allocate(next, size, n, n)
}

// moveSpace makes the room that of the new file. The caller holds j.space.turn.
func (j *journal) moveSpace(next diskFile, end int64) {
	j.groups.mu.Lock()
	defer j.groups.mu.Unlock()
	j.space.file, j.space.end = next, end
	j.groups.next.offset = j.newest.end
	if !j.groups.closed {
		j.space.room.Store(end - j.newest.end - int64(len(j.groups.buf)))
	}
}

// The state of a store as of one moment, written as the compacted part of a file: by a compaction, an export and a
// backup, beside the running service. Nothing in it depends on real time, or on how records were grouped.

// storeCut is that state.
type storeCut struct {
	header  storeHeader
	lives   lives
	tasks   taskCut
	figures *frozenFigures
	offset  int64  // of the first record after it, in the file of the journal
	life    []byte // the line with which the life of this process continues after it, or nil

	subscribers [][]byte // their lines
	requests    []*keptRequest
}

// seq returns the record that the cut is as of.
func (cut *storeCut) seq() uint64 { return cut.header.seq }

// cut takes the state as of the newest record.
func (s *store) cut() *storeCut {
	tasks, _ := s.size()
	room := make([]*slot, 0, 2*tasks)
	s.mu.Lock()
	defer s.mu.Unlock()
	cut := &storeCut{
		header: storeHeader{
			format: storeFormat, store: s.journal.of.id, key: s.tasks.index.key, seq: s.seq, tasks: len(s.tasks.byID),
			dropped: s.retain.dropped, lastID: s.tasks.lastID, extent: s.events.extentLocked(),
		},
		lives: s.lives.upTo(s.seq), tasks: s.cutLocked(room), figures: s.analytics.freeze(), offset: s.journal.groups.offset(),
		life: s.journal.groups.lifeAfter(s.seq), requests: s.requests.dropped, subscribers: s.events.domain.linesLocked(),
	}
	if c, ok := s.clock.(statefulClock); ok {
		cut.header.clock = c.state() // which moves under this lock alone
	} else if s.clock == nil { // a store that is only read
		cut.header.clock = s.carried
	}
	return cut
}

// write writes the compacted part.
func (s *store) write(cut *storeCut, w *lineWriter) error {
	w.line(appendMembers(nil, &cut.header, (*storeHeader).members)) // an error is also that of every later line
	for i := range cut.lives {
		w.line(appendMembers(nil, &cut.lives[i], (*life).members))
	}
	for _, line := range cut.subscribers {
		w.line(line)
	}
	return untilError(
		func() error { return s.templates.writeLines(w.line) },
		func() error { return cut.figures.writeLines(cut.header.seq, w.line) },
		func() error {
			for _, r := range cut.requests { // a start forgets those that were forgotten since
				w.line(appendMembers(nil, r, (*keptRequest).members))
			}
			for line := range cut.tasks.lines() {
				if err := w.line(line[:len(line)-1]); err != nil {
					return err
				}
			}
			return nil
		},
		w.end,
	)
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

// export writes the state as a file that an import reads.
func (s *store) export(cut *storeCut, to io.Writer) error {
	out := bufio.NewWriterSize(to, 64<<10)
	if err := untilError(func() error { return s.write(cut, &lineWriter{out: out}) }, out.Flush); err != nil {
		return fmt.Errorf("export the state: %w", err)
	}
	return nil
}

// clockMode says what moves a virtual clock.
type clockMode string

const (
	clockReal   clockMode = "real"   // time passes
	clockFrozen clockMode = "frozen" // time stops until it is advanced
	clockAuto   clockMode = "auto"   // time stops while something runs, and jumps to what is due next
)

// clockState is a clock in the header of a state; without a mode there is no clock.
type clockState struct {
	now  instant
	mode clockMode
}

// clockMember is {"now":"2026-01-01T00:00:00Z","mode":"frozen"}.
func clockMember(c *memberCoder, s *clockState) {
	var in memberCoder
	if !c.reading && s.mode == "" || !c.enter("clock", &in) {
		return
	}
	now, mode := s.now.zoned(), string(s.mode)
	in.text("now", &now)
	in.text("mode", &mode)
	if c.reading {
		s.mode = clockMode(mode)
		s.now, _ = parseInstant(now)
	}
	c.leave(&in)
}

// checkClock returns an error unless a clock can be set so.
func checkClock(s *clockState) error {
	switch s.mode {
	case clockReal, clockFrozen, clockAuto:
		if s.now > 0 && s.now <= lastInstant {
			return nil
		}
	case "":
		return nil
	}
	return fmt.Errorf("its clock must have \"now\", an instant, and \"mode\", one of %s, %s and %s", clockReal, clockFrozen, clockAuto)
}

// statefulClock is a clock that states carry.
type statefulClock interface {
	state() clockState
	// restore sets a clock that was not read yet.
	restore(s clockState)
}

// resumeClock sets the clock of a store that was just opened, if it is a stateful one, to that of the state.
func (s *store) resumeClock() {
	if c, ok := s.clock.(statefulClock); ok {
		c.restore(s.carried)
	}
}
