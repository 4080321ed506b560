package main

// The journal: the file of the store, to which records are appended. It knows numbers and lines, not what they mean.
// store_commit.go has how records get to disk, store_format.go the form of a line, store_read.go the reading at a start,
// store_compact.go the change to a new file.

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
	syncNever                  // written at once, synced at the end and by a compaction
)

func (m syncMode) String() string {
	return [...]string{"always", "never"}[m]
}

const (
	storeName   = "store.jsonl"
	compactName = "store.jsonl.new"  // while it is compacted, or made
	importName  = "import.jsonl.new" // while a state is imported

	lazyFlush   = 2 * time.Millisecond // how long a record stays in memory if nobody waits for it
	keepBuffer  = 4 << 20              // bytes; a larger buffer is not reused
	firstBuffer = 64 << 10             // bytes
	slowDisk    = 5 * time.Second      // an operation of the disk that takes longer is logged

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
	seed   [32]byte    // of the ids of lives; zero for random ones
	floor  int64       // bytes of records that need no compaction; 0 for compactFloor
	fs     diskFS      // nil for the real one
	log    *slog.Logger
	now    func() instant  // for times in the status
	until  context.Context // reading the files fails when it ends; nil for never
	shows  *readProgress   // shows how much of the files was read; nil for none
}

// journalFile is the file of a journal.
type journalFile struct {
	now func() instant // for lastSync

	// Owned by the holder of the write turn, and before the flusher runs by its opener:
	file     diskFile
	end      int64 // of the records
	unsynced bool  // the file has bytes that are not synced

	// Read by anybody:
	bytes     atomic.Int64  // end
	compacted atomic.Int64  // bytes of the compacted part
	syncs     atomic.Uint64 // since the start
	lastSync  atomic.Int64
}

// journal is the append-only file of a store. Any goroutine may call reserve, append, wait, durable, compactionDue and
// status at any time.
type journal struct {
	o      journalOptions
	of     storeOrigin
	newest journalFile  // which the records go to
	groups commitGroups // of records on their way there
	space  journalSpace // reserved in it
	lock   dirLock      // of the directory; nil in memory
	reader *storeReader // of what was there at the start; nil for nothing

	compacting compactions

	turn     chan struct{} // to write: holds a token during a flush or another operation on the file
	quit     chan struct{}
	done     chan struct{} // closed when the flusher ends
	once     sync.Once     // of close
	closeErr error         // result of close; the holder of the write turn sets it, others read it after done is closed
}

// storeOrigin identifies a store.
type storeOrigin struct {
	id  string
	key failureKey
}

// journalStatus is the state of a journal.
type journalStatus struct {
	writable      bool
	reason        string  // why it is not writable
	durability    string  // "memory", "always" or "never"
	journalBytes  int64   // of the records after the compacted part
	snapshotBytes int64   // of the compacted part
	lastSync      instant // 0 before the first
	syncs         uint64  // since the start
	records       uint64  // appended since the start
	backlog       int64   // bytes of records that are not on disk
}

// openJournal locks the directory, passes its file to l and makes the journal ready; durable then returns the last
// sequence. A torn end is cut off with a warning. The error names the directory and, if the file is damaged, the line
// and reason; nothing was changed then.
func openJournal(o journalOptions, l loader) (*journal, error) {
	o.fs = cmp.Or(o.fs, diskFS(osDisk{}))
	o.floor = cmp.Or(o.floor, compactFloor)
	j := newJournal(o)
	if o.memory {
		j.groups.halted.Store(true)
		j.space.room.Store(math.MaxInt64)
		close(j.done)
		return j, nil
	}
	lock, err := takeDir(&o)
	if err != nil {
		return nil, err
	}
	j.lock = lock
	if err := j.open(l); err != nil {
		lock.Close()
		return nil, fmt.Errorf("open store %s: %w", o.dir, err)
	}
	go j.run()
	return j, nil
}

func newJournal(o journalOptions) *journal {
	j := &journal{
		o:      o,
		of:     storeOrigin{cmp.Or(o.id, rand.Text()), cmp.Or(o.key, newFailureKey())},
		newest: journalFile{now: o.now},
		space:  journalSpace{disk: o.fs, dir: o.dir, log: o.log, short: make(chan struct{}, 1), turn: make(chan struct{}, 1)},
		turn:   make(chan struct{}, 1),
		quit:   make(chan struct{}),
		done:   make(chan struct{}),
	}
	j.groups = commitGroups{
		memory: o.memory, sync: o.sync, most: backlogLimit, space: &j.space,
		wake: make(chan struct{}, 1), lazy: stoppedTimer(),
	}
	return j
}

// closedJournal returns the journal of a store that is only read.
func closedJournal() *journal {
	j := newJournal(journalOptions{memory: true})
	j.groups.closed = true
	return j
}

// open reads the file and opens it, or creates that of a new store.
func (j *journal) open(l loader) error {
	f, err := j.o.fs.edit(storePath(j.o.dir, storeName))
	if errors.Is(err, fs.ErrNotExist) {
		return j.create()
	}
	if err != nil {
		return err
	}
	r, err := readStoreFile(&j.o, f, storePath(j.o.dir, storeName), l)
	if err == nil {
		err = j.settle(f, r)
	}
	if err != nil {
		f.Close()
		return err
	}
	j.reader = r
	j.of = storeOrigin{cmp.Or(r.header.store, j.of.id), cmp.Or(r.header.key, j.of.key)}
	j.setFile(f, r.bytes, r.compacted)
	j.groups.begin(r.last)
	return nil
}

// settle cuts off a torn end and the blocks that were reserved behind it, and makes everything that was read durable.
// What follows the last sync may be in the page cache alone if a sync failed before the last process ended: no later sync
// would write it, so it is written again.
func (j *journal) settle(f diskFile, r *storeReader) error {
	if r.torn > 0 {
		j.o.log.Warn("the store ends in an unfinished write, which is cut off", "dir", j.o.dir,
			"line", r.tornLine, "bytes", r.torn, "last_sequence", r.last)
	}
	for _, name := range []string{compactName, importName} {
		if err := j.o.fs.remove(storePath(j.o.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := f.truncate(r.bytes); err != nil {
		return err
	}
	if len(r.write) > 0 {
		if _, err := f.WriteAt(r.write, r.bytes-int64(len(r.write))); isDiskFull(err) {
			j.o.log.Warn("the disk is full: what was written last cannot be written again", "dir", j.o.dir, "error", err)
		} else if err != nil {
			return err
		}
		r.write = nil
	}
	if err := f.sync(); err != nil {
		return err
	}
	return j.lock.syncDir()
}

// create creates the file of a new store, in a directory that has none, also none of an earlier format.
func (j *journal) create() error {
	switch name, err := dirHolds(&j.o, importName); {
	case err != nil:
		return err
	case name != "" && name != importName:
		return otherFormat(fmt.Sprintf("%s is of format 1 or 2, and this version of stepwell reads format %d", name, storeFormat))
	case name != "":
		return fmt.Errorf("an import was interrupted: run the import again, or remove %s", storePath(j.o.dir, importName))
	}
	header := &storeHeader{format: storeFormat, store: j.of.id, key: j.of.key}
	f, size, err := writeStoreFile(&j.o, compactName, func(w *lineWriter) error {
		return untilError(func() error { return w.line(appendMembers(nil, header, (*storeHeader).members)) }, w.end)
	}, diskFile.sync)
	if err != nil {
		return err
	}
	if err := nameStoreFile(&j.o, compactName, j.lock.syncDir); err != nil {
		f.Close()
		return err
	}
	j.setFile(f, size, size)
	return nil
}

// dirHolds returns which of a file and those of formats 1 and 2 the data directory has; "" for none.
func dirHolds(o *journalOptions, name string) (string, error) {
	for _, name := range []string{name, "journal.jsonl", "snapshot.jsonl"} {
		f, err := o.fs.open(storePath(o.dir, name))
		if err == nil {
			return name, f.Close()
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", nil
}

// nameStoreFile gives a file that was written and synced the name of the store.
func nameStoreFile(o *journalOptions, from string, syncDir func() error) error {
	if err := o.fs.rename(storePath(o.dir, from), storePath(o.dir, storeName)); err != nil {
		return err
	}
	return syncDir()
}

// setFile sets the file that the journal begins with. A failed reservation is no error: on a full disk the store can
// still be read.
func (j *journal) setFile(f diskFile, size, compacted int64) {
	j.newest.set(f, size, compacted)
	j.groups.next.offset = size
	j.space.file, j.space.end = f, size
	j.space.extend(spaceAhead)
}

func (f *journalFile) set(file diskFile, size, compacted int64) {
	f.file, f.end = file, size
	f.bytes.Store(size)
	f.compacted.Store(compacted)
}

// refusal returns why the journal takes no records, or nil.
func (j *journal) refusal() *failure {
	switch broken, closed := j.groups.ended(); {
	case broken != nil:
		return refusedFor(retryAfterBroken, broken, "the store has failed: %s", brokenWord(broken))
	case closed:
		return refusedFor(retryAfterBroken, nil, "the store is closed")
	}
	return nil
}

// brokenWord describes what failed, without paths of this machine.
func brokenWord(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Sprintf("%s of %s failed (%v)", p.Op, storeName, p.Err)
	}
	return "writing " + storeName + " failed"
}

// status returns the present state of the journal.
func (j *journal) status() journalStatus {
	s := journalStatus{
		writable:      true,
		durability:    j.o.sync.String(),
		journalBytes:  j.recordBytes(),
		snapshotBytes: j.newest.compacted.Load(),
		lastSync:      instant(j.newest.lastSync.Load()),
		syncs:         j.newest.syncs.Load(),
		records:       j.groups.records.Load(),
		backlog:       j.groups.backlog.Load(),
	}
	if j.o.memory {
		s.durability = "memory"
	}
	if f := j.refusal(); f != nil {
		s.writable, s.reason = false, f.message
	} else if j.space.full() && j.space.room.Load() < maxRecord {
		s.writable, s.reason = false, j.space.why()
	}
	return s
}

// recordBytes returns the size of the records after the compacted part.
func (j *journal) recordBytes() int64 { return j.newest.bytes.Load() - j.newest.compacted.Load() }

// close writes and syncs what remains, releases the waiting callers, and unlocks the directory. Compactions must have
// ended. The error is that of the last write; further calls return the same.
func (j *journal) close() error {
	j.once.Do(func() {
		j.groups.close()
		j.space.shut()
		if j.o.memory {
			return
		}
		close(j.quit)
		<-j.done
		j.closeErr = errors.Join(j.closeErr, j.lock.Close())
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
	f.bytes.Store(f.end)
	return nil
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
