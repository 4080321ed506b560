package main

// The journal: opening it, its newest file and the change to the next one, its state. It knows
// sequences and lines, not what they mean. store_commit.go has how records get to disk, store_format.go
// the form of a line, store_recover.go the reading at a start.

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// syncMode is when records count as durable.
type syncMode uint8

const (
	syncAlways syncMode = iota // a waiting caller is answered after the sync
	syncNever                  // written at once, synced at the end and around snapshots
)

func (m syncMode) String() string {
	return [...]string{"always", "never"}[m]
}

const (
	lazyFlush   = 2 * time.Millisecond // how long a record stays in memory if nobody waits for it
	keepBuffer  = 4 << 20              // bytes; a larger buffer is not reused
	firstBuffer = 64 << 10             // bytes
	zerosAhead  = 64 << 10             // bytes of zeros behind the end of a journal that is synced for every group

	snapshotFloor = 16 << 20    // bytes; a smaller journal needs no snapshot, unless the options say otherwise
	snapshotPause = time.Minute // after a failed snapshot

	slowDisk = 5 * time.Second // an operation of the disk that takes longer is logged

	retryAfterFull   = 5 * time.Second
	retryAfterBroken = 30 * time.Second
)

// journalOptions are the settings of a journal.
type journalOptions struct {
	dir    string     // created if missing
	id     string     // for a new store; "" to make one up
	key    failureKey // for a new store; zero to make one up
	memory bool       // without files: records are counted and forgotten
	sync   syncMode
	failed func(error) // learns that a write or sync failed; nil for nobody
	floor  int64       // bytes of a journal that needs no snapshot; 0 for snapshotFloor
	fs     diskFS      // nil for the real one
	log    *slog.Logger
	now    func() instant  // for times in the status and in headers
	until  context.Context // reading the files fails when it ends; nil for never
	shows  *readProgress   // shows how much of the files was read; nil for none
	finds  int64           // bytes that the index of values and errors may take; 0 for findMemory
}

// journalFile is the newest file of a journal.
type journalFile struct {
	ahead bool           // zeros are kept behind the records
	now   func() instant // for lastSync

	// Owned by the holder of the write turn, and before the flusher runs by its opener:
	file     diskFile
	end      int64  // of the records
	zeros    int64  // end of the zeros behind the records
	last     uint64 // last sequence in the file
	unsynced bool   // the file has bytes that are not synced

	// Read by anybody:
	bytes    atomic.Int64  // end
	written  atomic.Uint64 // bytes, to all files since the start
	syncs    atomic.Uint64 // since the start
	lastSync atomic.Int64
}

// journal is the append-only file of a store. Any goroutine may call reserve,
// append, wait, durable, snapshotDue and status at any time.
type journal struct {
	o         journalOptions
	files     storeDir     // by name
	newest    journalFile  // which the records go to
	groups    commitGroups // of records on their way there
	space     journalSpace // reserved in it
	slow      diskWatch    // of the operations of the holder of the write turn
	place     storePlace   // of the directory, and its lock
	snapshots snapshotTurn // to write a snapshot

	turn     chan struct{}   // to write: holds a token during a flush or another operation of the flusher
	asks     chan flusherAsk // work to be done between two groups
	quit     chan struct{}
	done     chan struct{} // closed when the flusher ends
	once     sync.Once     // of close
	closeErr error         // result of close; the holder of the write turn sets it, others read it after done is closed
}

// journalStatus is the state of a journal.
type journalStatus struct {
	writable      bool
	reason        string // why it is not writable
	durability    string // "memory", "always" or "never"
	journalBytes  int64
	snapshotBytes int64
	lastSync      instant // 0 before the first
	syncs         uint64  // of the journal, since the start
	bytesWritten  uint64  // to the journal, since the start
	records       uint64  // appended since the start
	backlog       int64   // bytes of records that are not on disk
}

// openJournal locks the directory, passes its contents to l and makes the
// journal ready; durable then returns the last sequence. A torn end is cut off
// with a warning. The error names the directory and, if a file is damaged, the
// file, line and reason; nothing was changed then.
func openJournal(o journalOptions, l loader) (*journal, error) {
	o.fs = cmp.Or(o.fs, diskFS(osDisk{}))
	o.floor = cmp.Or(o.floor, snapshotFloor)
	j := newJournal(o)
	if o.memory {
		j.groups.halted.Store(true)
		j.space.room.Store(math.MaxInt64)
		close(j.done)
		return j, nil
	}
	if err := j.place.take(); err != nil {
		return nil, err
	}
	if err := j.recover(l); err != nil {
		j.place.lock.Close()
		return nil, err
	}
	j.place.note()
	go j.run()
	return j, nil
}

func newJournal(o journalOptions) *journal {
	j := &journal{
		o:         o,
		newest:    journalFile{ahead: o.sync == syncAlways, now: o.now},
		space:     journalSpace{disk: o.fs, dir: o.dir, log: o.log, short: make(chan struct{}, 1), turn: make(chan struct{}, 1)},
		place:     storePlace{disk: o.fs, dir: o.dir, log: o.log},
		snapshots: snapshotTurn{dir: o.dir, log: o.log},
		turn:      make(chan struct{}, 1),
		asks:      make(chan flusherAsk),
		quit:      make(chan struct{}),
		done:      make(chan struct{}),
	}
	j.files = storeDir{
		disk: o.fs, dir: o.dir, of: storeOrigin{cmp.Or(o.id, rand.Text()), cmp.Or(o.key, newFailureKey())}, log: o.log,
		place: &j.place, fail: j.fail, quit: j.quit,
	}
	j.groups = commitGroups{
		memory: o.memory, sync: o.sync, most: backlogLimit, space: &j.space,
		wake: make(chan struct{}, 1), dirty: make(chan struct{}, 1),
	}
	j.slow, j.space.watch = diskWatch{limit: slowDisk, tell: j.noteSlow}, diskWatch{limit: slowDisk, tell: j.noteSlow}
	return j
}

// closedJournal returns the journal of a store that is only read.
func closedJournal() *journal {
	j := newJournal(journalOptions{memory: true})
	j.groups.closed = true
	return j
}

// recover reads the files, tidies them up and opens the newest journal.
func (j *journal) recover(l loader) error {
	r := &recovery{disk: j.o.fs, dir: j.o.dir, loader: l, until: j.o.until, shows: j.o.shows}
	if err := r.read(); err != nil {
		return fmt.Errorf("open store %s: %w; nothing was changed, see \"stepwell store check\"", j.o.dir, err)
	}
	if r.torn > 0 {
		j.o.log.Warn("the journal ends in an unfinished write, which is cut off", "dir", j.o.dir,
			"file", journalName, "line", r.tornLine, "bytes", r.torn, "last_sequence", r.last)
	}
	if err := r.tidy(); err != nil {
		return fmt.Errorf("open store %s: %w", j.o.dir, err)
	}
	j.files.of = storeOrigin{cmp.Or(r.of.id, j.files.of.id), cmp.Or(r.of.key, j.files.of.key)}
	if err := j.openFile(r); err != nil {
		return fmt.Errorf("open store %s: %w", j.o.dir, err)
	}
	j.groups.appended, j.groups.taken, j.newest.last = r.last, r.last, r.last
	j.groups.durableSeq.Store(r.last)
	j.groups.published.Store(r.last)
	j.files.oldBytes.Store(r.oldBytes)
	j.snapshots.bytes.Store(r.snapshotBytes)
	return nil
}

// openFile opens or creates the newest journal, without its torn end and the
// blocks that the last process reserved behind it. What it holds is durable then.
func (j *journal) openFile(r *recovery) error {
	if len(r.files) == 0 {
		return j.firstFile()
	}
	f, err := j.o.fs.edit(j.files.path(journalName))
	if err != nil {
		return err
	}
	err = f.truncate(r.bytes)
	if err == nil {
		// What was read may be in the page cache alone, if a sync failed before the last process
		// ended.
		err = r.renew(f)
	}
	if err == nil {
		err = f.sync()
	}
	if err != nil {
		f.Close()
		return err
	}
	j.setFirst(f, r.bytes)
	return nil
}

// firstFile creates the first journal of a new store.
func (j *journal) firstFile() error {
	f, size, err := j.files.create(1)
	if err != nil {
		return err
	}
	err = j.o.fs.rename(j.files.path(journalTempName), j.files.path(journalName))
	if err == nil {
		err = j.place.lock.syncDir()
	}
	if err != nil {
		f.Close()
		return err
	}
	j.setFirst(f, size)
	return nil
}

// setFirst sets the file that the journal begins with. A failed reservation is
// no error: on a full disk the store can still be read.
func (j *journal) setFirst(f diskFile, size int64) {
	j.newest.set(f, size)
	j.space.file, j.space.end = f, size
	j.space.extend(spaceAhead)
}

func (f *journalFile) set(file diskFile, size int64) {
	f.file, f.end, f.zeros = file, size, size
	f.bytes.Store(size)
}

// reserve returns nil if maxRecord more bytes fit, whatever happens to the
// disk. It is called before a change is applied, under the lock that append is
// called under. Its error is a *failure of kind unavailable, or backpressure if
// the disk is behind.
func (j *journal) reserve() error {
	if j.space.room.Load() >= maxRecord {
		return nil
	}
	return j.reserveMore(maxRecord)
}

// reserveMore returns nil if there is the space. Otherwise it has it reserved, if that may succeed; see makeRoom.
func (j *journal) reserveMore(need int64) error {
	if f := j.refusal(); f != nil {
		return f
	}
	if err := j.behind(); err != nil {
		return err // the flusher reserves more when it has caught up
	}
	// An extension for as much as the last one that failed would most likely fail, too.
	ahead, lack := spaceAhead+need-maxRecord, j.space.lack.Load()
	if j.space.room.Load() < need && (lack == 0 || ahead < lack && !j.space.full.Load()) {
		j.space.extendSoon(ahead)
	}
	if j.space.room.Load() >= need {
		return nil
	}
	if j.space.extending.Load() != nil {
		return tryLater("reserving disk space for the journal takes too long: nothing was changed")
	}
	f := failf(unavailable, "no space left for the journal: nothing was changed")
	f.retryAfter = retryAfterFull
	return f
}

// refusal returns why the journal takes no records, or nil.
func (j *journal) refusal() *failure {
	broken, closed := j.groups.ended()
	var f *failure
	switch {
	case broken != nil:
		f = failf(unavailable, "the store is read-only: %s", brokenWord(broken))
		f.cause = broken
	case closed:
		f = failf(unavailable, "the store is closed")
	default:
		return nil
	}
	f.retryAfter = retryAfterBroken
	return f
}

// brokenWord describes what failed, without paths of this machine.
func brokenWord(err error) string {
	if err == errReadOnly {
		return err.Error()
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Sprintf("%s of the journal failed (%v)", p.Op, p.Err)
	}
	return "writing the journal failed"
}

// status returns the present state of the journal.
func (j *journal) status() journalStatus {
	s := journalStatus{
		writable:      true,
		durability:    j.o.sync.String(),
		journalBytes:  j.newest.bytes.Load() + j.files.oldBytes.Load(),
		snapshotBytes: j.snapshots.bytes.Load(),
		lastSync:      instant(j.newest.lastSync.Load()),
		syncs:         j.newest.syncs.Load(),
		bytesWritten:  j.newest.written.Load(),
		records:       j.groups.records.Load(),
		backlog:       j.groups.backlog.Load(),
	}
	if j.o.memory {
		s.durability = "memory"
	}
	if f := j.refusal(); f != nil {
		s.writable, s.reason = false, f.message
	} else if j.space.full.Load() && j.space.room.Load() < maxRecord {
		s.writable, s.reason = false, "no space left for the journal"
	}
	return s
}

// close writes and syncs what remains, releases the waiting callers, and
// unlocks the directory. Snapshots must have ended. The error is that of the
// last write; further calls return the same.
func (j *journal) close() error {
	j.once.Do(func() {
		j.groups.close()
		j.space.shut()
		if j.o.memory {
			return
		}
		close(j.quit)
		<-j.done
		j.files.freeing.Wait()
		j.closeErr = errors.Join(j.closeErr, j.place.lock.Close())
	})
	return j.closeErr
}

func (f *journalFile) write(buf []byte) error {
	if len(buf) == 0 {
		return nil
	}
	if _, err := f.file.WriteAt(buf, f.end); err != nil {
		return err
	}
	f.unsynced = true
	f.end += int64(len(buf))
	f.writeAhead()
	f.bytes.Store(f.end)
	f.written.Add(uint64(len(buf)))
	return nil
}

var zeroText [zerosAhead]byte

// writeAhead writes zeros behind the records if there are none left. Syncing records that replace them
// writes data alone, not the file's size or which of its blocks are in use. It may fail.
func (f *journalFile) writeAhead() {
	if !f.ahead || f.end <= f.zeros {
		return
	}
	if _, err := f.file.WriteAt(zeroText[:], f.end); err == nil {
		f.zeros = f.end + zerosAhead
	} else {
		f.file.truncate(f.end)
	}
}

func (f *journalFile) sync() error {
	if !f.unsynced {
		return nil
	}
	if err := f.file.sync(); err != nil {
		return err
	}
	f.unsynced = false
	f.syncs.Add(1)
	f.lastSync.Store(int64(f.now()))
	return nil
}

// rotate makes next the journal's file. After an error either nothing has changed or the
// journal has failed.
func (j *journal) rotate(next diskFile, linked bool) error {
	// The old file must be complete on disk before the new one continues it: a start trusts every
	// file but the newest.
	if err := j.flush(true); err != nil {
		return err
	}
	// No extension may reserve blocks in the old file meanwhile.
	j.space.turn <- struct{}{}
	defer func() { <-j.space.turn }()
	// Only now it is known with which record the file begins.
	size, err := j.files.writeHeader(next, j.newest.last+1)
	if err != nil {
		return err
	}
	end, err := j.allocateNext(next, size)
	if err == nil {
		err = j.files.swap(linked)
	}
	if err != nil {
		return err
	}
	old, oldSize := j.newest.file, j.newest.end
	j.files.oldBytes.Store(oldSize)
	j.newest.set(next, size)
	j.moveSpace(next, end)
	old.truncate(oldSize) // frees the blocks behind its end; on failure they go with the file
	old.Close()
	return nil
}

// allocateNext reserves, behind the header of the next file, everything that
// may be appended before the switch, and one step more.
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
	if !j.groups.closed {
		j.space.room.Store(end - j.newest.end - int64(len(j.groups.buf)))
	}
}

// finish writes the last group and frees the blocks behind the end.
func (j *journal) finish() error {
	j.closeErr = j.flush(true)
	j.space.turn <- struct{}{}
	defer func() { <-j.space.turn }()
	// An extension that is about to begin must not reserve blocks behind the end again.
	j.space.file = nil
	if j.closeErr == nil {
		j.closeErr = j.newest.file.truncate(j.newest.end)
	}
	if err := j.newest.file.Close(); j.closeErr == nil {
		j.closeErr = err
	}
	return j.closeErr
}
