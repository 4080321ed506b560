package main

// The journal: records in memory first, then on disk, many with one sync. It
// knows sequences and lines, not what they mean. One goroutine at a time writes
// the file, the flusher or a caller that waits alone: while it syncs one group of
// records, the next group collects. store_format.go has the form of a line, store_recover.go the
// reading at a start.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// opened opens a file to write it, which is no sign of a copy.
func (j *journal) opened(name string, open func(string) (diskFile, error)) (diskFile, error) {
	f, err := open(j.path(name))
	if err == nil && j.copies.reads != nil {
		if j.copies.look(); j.copies.open[name] > 0 {
			j.copies.open[name]--
		}
	}
	return f, err
}

// vanish calls do, which takes a name away, as soon as no copy goes on.
func (j *journal) vanish(name string, do func() error) error {
	if err := j.awaitCopies(); err != nil {
		return err
	}
	return j.vanishNow(name, do)
}

// vanishNow calls do, which takes a name away. The caller has just seen that no copy goes on. A copy opens
// every name that it has listed: if one began just before do, it finds an empty file of that name, which stays
// for the next snapshot and means nothing.
func (j *journal) vanishNow(name string, do func() error) error {
	err := do()
	if err == nil && j.copied() {
		if f, err := j.opened(name, j.o.fs.create); err == nil {
			f.Close()
		}
	}
	return err
}

// whole reports whether a copy has every file.
func (c *copyWatch) whole(disk diskFS, dir string) bool {
	for _, name := range append(storeFiles[:], snapshotTemp) {
		if _, _, err := disk.identify(filepath.Join(dir, name)); err == nil && !c.taken[name] {
			return false
		}
	}
	return true
}

// dropFile closes a temporary file, and removes it unless its name leads to another file. Beside a
// copy, or if that fails, it leaves the file for the next snapshot or start.
func (j *journal) dropFile(f diskFile, name string) {
	mine, idErr := f.id()
	copied := j.copied()
	if copied {
		f.truncate(0)
	}
	f.Close()
	now, _, err := j.o.fs.identify(j.path(name))
	if err == nil && idErr == nil && now == mine && !copied {
		err = j.vanish(name, func() error { return j.o.fs.remove(j.path(name)) })
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.o.log.Warn("a temporary file stays until the next start", "file", j.path(name), "error", err)
	}
}

// copied reports whether a copy goes on for which the journal's files stay as they are. The
// journal must not outgrow its snapshot without end.
func (j *journal) copied() bool {
	return j.fileBytes.Load()+j.oldBytes.Load() < copyGrowth*j.snapshotThreshold() && j.copies.underWay(j.o.fs, j.o.dir)
}

// awaitSwitch returns when names may come to lead to other files: the directory is still that of this
// store, and nobody copies it, not even since the flusher was asked, which may take as long as a sync.
func (j *journal) awaitSwitch() error {
	for {
		if err := j.awaitCopies(); err != nil {
			return err
		}
		if err := j.ask(func() error { return j.checkPlace(true) }); err != nil || !j.copied() {
			return err
		}
	}
}

// awaitCopies returns when no copy goes on or nothing can be written any more, or an error if the journal is
// closed first.
func (j *journal) awaitCopies() error {
	for !j.halted.Load() && j.copied() {
		if closedWithin(context.Background(), j.copies.leave, copyRecheck) == nil {
			return errors.New("the service ends while its files are copied")
		}
	}
	return nil
}

// behind returns a refusal of new work, or nil while the disk keeps up.
func (j *journal) behind() error {
	if n := j.backlog.Load(); n >= j.most {
		return fellBehind(n)
	}
	return nil
}

func fellBehind(n int64) error {
	return &failure{kind: backpressure, retryAfter: backlogRetryAfter,
		message: fmt.Sprintf("the disk does not keep up: %d bytes wait for it; nothing was changed", n)}
}

// noteLate notes that an operation of the disk hangs, or that one goes on. Who waits is
// answered at the first.
func (j *journal) noteLate(late bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case late && j.late == 0:
		close(j.hung)
		j.o.log.Warn("the disk hangs: changes are refused until it goes on", "dir", j.o.dir, "after", j.o.slow.String())
	case !late && j.late == 1:
		j.hung = make(chan struct{})
		j.o.log.Info("the disk goes on: changes are taken again", "dir", j.o.dir)
	}
	if late {
		j.late++
	} else {
		j.late--
	}
	j.hangs.Store(j.late > 0)
}

// hangError says that the disk hangs.
func (j *journal) hangError() error {
	return fmt.Errorf("the disk has not answered for more than %s (store.slow_seconds)", j.o.slow)
}

// extendSoon extends the space, and goes on without it if the disk takes long.
func (j *journal) extendSoon() {
	if !j.extending.CompareAndSwap(false, true) {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.watchSpace.during(j.space.extend)
		j.extending.Store(false)
	}()
	receiveWithin(done, spacePatience)
}

// noteWhere notes the place of a store that was just opened.
func (j *journal) noteWhere() {
	j.place.dir, _, _ = j.o.fs.identify(j.o.dir) // a disk in memory has neither
	j.place.lock, _, _ = j.o.fs.identify(j.path(lockName))
}

// syncMode is when records count as durable.
type syncMode uint8

const (
	syncAlways   syncMode = iota // a waiting caller is answered after the sync
	syncInterval                 // written at once, synced every interval
	syncNever                    // written at once, synced at the end and around snapshots
)

func (m syncMode) String() string {
	return [...]string{"always", "interval", "never"}[m]
}

const (
	lazyFlush   = 2 * time.Millisecond // how long a record stays in memory if nobody waits for it
	keepBuffer  = 4 << 20              // bytes; a larger buffer is not reused
	firstBuffer = 64 << 10             // bytes
	zerosAhead  = 64 << 10             // bytes of zeros behind the end of a journal that is synced for every group

	snapshotFloor = 16 << 20    // bytes; a smaller journal needs no snapshot, unless the options say otherwise
	snapshotPause = time.Minute // after a failed snapshot

	retryAfterFull   = 5 * time.Second
	retryAfterBroken = 30 * time.Second
)

// journalOptions are the settings of a journal.
type journalOptions struct {
	dir      string // created if missing
	id       string // of a new store; "" for one of its own
	memory   bool   // without files: records are counted and forgotten
	sync     syncMode
	interval time.Duration // between syncs in mode syncInterval; 0 for 100 ms
	slow     time.Duration // from which on an operation of the disk hangs; 0 for 5 s
	floor    int64         // bytes of a journal that needs no snapshot; 0 for snapshotFloor
	fs       diskFS        // nil for the real one
	log      *slog.Logger
	now      func() instant  // for times in the status and in headers
	until    context.Context // reading the files fails when it ends; nil for never
	shows    *readProgress   // of reading the files; nil for nobody
}

// journal is the append-only file of a store. Any goroutine may call reserve,
// append, wait, durable, snapshotDue and status at any time.
type journal struct {
	o          journalOptions
	id         string // of the store, in its files
	most       int64  // backlog in bytes from which new work is refused
	lock       dirLock
	space      journalSpace
	turn       chan struct{}   // to write: holds a token during a flush or another operation of the flusher
	watch      diskWatch       // of whoever has the turn
	watchSpace diskWatch       // of an extension that is not the flusher's
	wake       chan struct{}   // holds a token while somebody waits for the collecting group
	dirty      chan struct{}   // holds a token if a record came while the lazy timer was off
	asks       chan flusherAsk // work to be done between two groups
	quit       chan struct{}
	done       chan struct{} // closed when the flusher ends
	once       sync.Once     // of close

	freeing sync.WaitGroup // of files that were replaced
	place   storePlace     // of whoever has the turn
	copies  copyWatch      // for who writes a snapshot, and for the flusher while it rotates

	mu         sync.Mutex    // a record enters buf, the counts and the room in one step
	buf        []byte        // records that were not taken to be written
	appended   uint64        // last sequence in buf, or before it; records after a halt are dropped
	taken      uint64        // last sequence that was taken
	collecting *commitGroup  // of the records in buf; nil if nobody waits for them
	flying     *commitGroup  // of the records taken that are not durable
	lazyOn     bool          // the flusher looks at buf within lazyFlush
	broken     error         // the write or sync that failed; nothing is written after it
	late       int           // operations of the disk that hang
	hung       chan struct{} // closed while there are any
	closed     bool          // records are not accepted any more

	// For whoever has the turn, and before the flusher runs for its opener:
	file     diskFile
	pos      int64  // end of the records
	sized    int64  // end of the zeros behind the records; maintained in mode syncAlways alone
	spare    []byte // the buffer that is not in use as buf
	written  uint64 // last sequence in the file
	unsynced bool   // the file has bytes that are not synced
	closeErr error  // result of close; others read it after done is closed

	published  atomic.Uint64 // last sequence that followers may see
	publishing notifier      // notifies when published grew

	gathering     atomic.Int32 // changes whose records belong together and are still being made
	crowded       atomic.Bool  // several callers waited for the last group
	halted        atomic.Bool  // broken, closed or in memory; set under mu
	hangs         atomic.Bool  // the disk hangs; set under mu
	extending     atomic.Bool  // an extension that is not the flusher's is under way
	durableSeq    atomic.Uint64
	backlog       atomic.Int64 // bytes of records not yet written, or not yet synced if callers wait for that
	fileBytes     atomic.Int64 // of the newest journal
	oldBytes      atomic.Int64 // of journal.old.jsonl; 0 without one
	snapshotBytes atomic.Int64
	syncs         atomic.Uint64
	bytesWritten  atomic.Uint64
	records       atomic.Uint64
	lastSync      atomic.Int64

	snapshotMu     sync.Mutex
	snapshotting   bool      // a snapshotWriter exists
	snapshotAfter  time.Time // no snapshot is due before this, because the last one failed
	snapshotWarned bool      // that failure, or an earlier one in a row, was logged
}

// journalStatus is the state of a journal.
type journalStatus struct {
	writable      bool
	reason        string // why it is not writable
	durability    string // "memory", "always", "interval" or "never"
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
	if o.fs == nil {
		o.fs = osDisk{}
	}
	if o.interval <= 0 {
		o.interval = 100 * time.Millisecond
	}
	o.slow = cmp.Or(o.slow, 5*time.Second)
	o.floor = cmp.Or(o.floor, snapshotFloor)
	j := newJournal(o)
	if o.memory {
		j.halted.Store(true)
		j.space.room.Store(math.MaxInt64)
		close(j.done)
		return j, nil
	}
	if err := j.takeDir(); err != nil {
		return nil, err
	}
	if err := j.recover(l); err != nil {
		j.lock.Close()
		return nil, err
	}
	if w, err := j.o.fs.watch(j.o.dir); err == nil {
		j.copies.reads = w
	}
	j.noteWhere()
	go j.run()
	return j, nil
}

// takeDir makes the data directory if it is missing, and locks it.
func (j *journal) takeDir() (err error) {
	dir := j.o.dir
	if err := j.o.fs.makeDir(dir); err != nil {
		return fmt.Errorf("make data directory %s: %w", dir, err)
	}
	if j.lock, err = j.o.fs.lock(j.path(lockName)); err != nil {
		return fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	if j.o.fs.writableByOthers(dir) {
		j.o.log.Warn("others may write to the data directory, and so change or remove what is stored", "dir", dir)
	}
	return nil
}

func newJournal(o journalOptions) *journal {
	j := &journal{
		o:     o,
		id:    cmp.Or(o.id, newStoreID()),
		most:  backlogLimit,
		space: journalSpace{disk: o.fs, dir: o.dir, log: o.log, short: make(chan struct{}, 1)},
		wake:  make(chan struct{}, 1),
		dirty: make(chan struct{}, 1),
		asks:  make(chan flusherAsk),
		turn:  make(chan struct{}, 1),
		quit:  make(chan struct{}),
		done:  make(chan struct{}),
		hung:  make(chan struct{}),
	}
	j.watch, j.watchSpace = diskWatch{limit: o.slow, tell: j.noteLate}, diskWatch{limit: o.slow, tell: j.noteLate}
	return j
}

// closedJournal returns the journal of a store that is only read.
func closedJournal() *journal {
	j := newJournal(journalOptions{memory: true})
	j.closed = true
	return j
}

func (j *journal) path(name string) string { return filepath.Join(j.o.dir, name) }

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
	j.id = cmp.Or(r.id, j.id)
	if err := j.openFile(r); err != nil {
		return fmt.Errorf("open store %s: %w", j.o.dir, err)
	}
	j.appended, j.taken, j.written = r.last, r.last, r.last
	j.durableSeq.Store(r.last)
	j.published.Store(r.last)
	j.oldBytes.Store(r.oldBytes)
	j.snapshotBytes.Store(r.snapshotBytes)
	return nil
}

// openFile opens or creates the newest journal, without its torn end and the
// blocks that the last process reserved behind it. What it holds is durable then.
func (j *journal) openFile(r *recovery) error {
	if len(r.files) == 0 {
		return j.firstFile()
	}
	f, err := j.o.fs.edit(j.path(journalName))
	if err != nil {
		return err
	}
	err = f.truncate(r.bytes)
	if err == nil && !r.clean {
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
	f, size, err := j.newFile(1)
	if err != nil {
		return err
	}
	err = j.o.fs.rename(j.path(journalTempName), j.path(journalName))
	if err == nil {
		err = j.lock.syncDir()
	}
	if err != nil {
		f.Close()
		return err
	}
	j.setFirst(f, size)
	return nil
}

// newFile creates a journal with a header under its temporary name, synced.
func (j *journal) newFile(from uint64) (diskFile, int64, error) {
	f, err := j.o.fs.create(j.path(journalTempName))
	if err != nil {
		return nil, 0, err
	}
	size, err := j.writeHeader(f, from)
	if err != nil {
		j.dropFile(f, journalTempName)
		return nil, 0, err
	}
	return f, size, nil
}

// writeHeader writes the header of an empty journal, and returns its size.
func (j *journal) writeHeader(f diskFile, from uint64) (int64, error) {
	header := appendJournalHeader(nil, j.id, from)
	_, err := f.WriteAt(header, 0)
	if err == nil {
		err = f.sync()
	}
	return int64(len(header)), err
}

// setFirst sets the file that the journal begins with. A failed reservation is
// no error: on a full disk the store can still be read.
func (j *journal) setFirst(f diskFile, size int64) {
	j.setFile(f, size)
	j.space.file, j.space.end = f, size
	j.space.extend()
}

func (j *journal) setFile(f diskFile, size int64) {
	j.file, j.pos, j.sized = f, size, size
	j.fileBytes.Store(size)
}

// reserve returns nil if maxRecord more bytes fit, whatever happens to the
// disk. It is called before a change is applied, under the lock that append is
// called under. Its error is a *failure of kind unavailable, or backpressure if
// the disk is behind.
func (j *journal) reserve() error {
	if j.space.room.Load() >= maxRecord && !j.hangs.Load() {
		return nil
	}
	return j.reserveMore(maxRecord)
}

// reserveMore reserves space that the flusher did not reserve in time, or
// cannot.
func (j *journal) reserveMore(need int64) error {
	if f := j.refusal(); f != nil {
		return f
	}
	if err := j.behind(); err != nil {
		return err // the flusher reserves more when it has caught up
	}
	if room := j.space.room.Load(); room < need && (!j.space.full.Load() || need > maxRecord) {
		j.extendSoon()
	}
	if j.space.room.Load() >= need {
		return nil
	}
	if f := j.refusal(); f != nil {
		return f
	}
	if j.extending.Load() {
		return &failure{kind: backpressure, retryAfter: backlogRetryAfter,
			message: "the disk takes long to reserve space for the journal: nothing was changed"}
	}
	f := failf(unavailable, "no space left for the journal: nothing was changed")
	f.retryAfter = retryAfterFull
	return f
}

// refusal returns why the journal takes no records, or nil.
func (j *journal) refusal() *failure {
	j.mu.Lock()
	defer j.mu.Unlock()
	var f *failure
	switch {
	case j.broken != nil:
		f = failf(unavailable, "the store is read-only until a restart: %s", brokenWord(j.broken))
		f.cause = j.broken
	case j.closed:
		f = failf(unavailable, "the store is closed")
	case j.late > 0:
		f = failf(unavailable, "%v: no change is taken until it goes on", j.hangError())
		f.retryAfter = retryAfterFull
		return f
	default:
		return nil
	}
	f.retryAfter = retryAfterBroken
	return f
}

// brokenWord describes what failed, without paths of this machine.
func brokenWord(err error) string {
	if m, ok := errors.AsType[*misplaced](err); ok {
		return m.reason
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Sprintf("%s of the journal failed (%v)", p.Op, p.Err)
	}
	return "writing the journal failed"
}

// append takes a record: it copies body, the members between sequence and
// checksum. seq is one more than the last. It never fails; see wait.
func (j *journal) append(seq uint64, body []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.o.memory {
		j.appended = seq
		j.records.Add(1)
		j.durableSeq.Store(seq)
		j.publish(seq)
		return
	}
	if j.halted.Load() {
		return
	}
	if seq != j.appended+1 {
		panic(fmt.Sprintf("journal: record %d after %d", seq, j.appended))
	}
	j.appended = seq
	j.records.Add(1)
	before := len(j.buf)
	j.buf = appendRecord(j.buf, seq, seq-1-j.syncedBefore(), body)
	j.space.room.Add(int64(before - len(j.buf)))
	j.backlog.Add(int64(len(j.buf) - before))
	if !j.lazyOn {
		j.lazyOn = true
		offerToken(j.dirty)
	}
}

// syncedBefore returns the last sequence that is on disk for certain when the records in buf are
// written: in mode always, each group is synced before the next one is written.
func (j *journal) syncedBefore() uint64 {
	if j.o.sync == syncAlways {
		return j.taken
	}
	return j.durableSeq.Load()
}

// skipTo makes seq the last sequence of a journal in memory.
func (j *journal) skipTo(seq uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.appended = seq
	j.durableSeq.Store(seq)
	j.publish(seq)
}

// join returns the group that seq goes to disk with, or nil if the answer, err,
// is already known; and the channel that is closed when the disk hangs.
func (j *journal) join(seq uint64) (g *commitGroup, hung chan struct{}, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.durableSeq.Load() >= seq:
		return nil, nil, nil
	case j.broken != nil:
		return nil, nil, unknownOutcome(j.broken)
	case seq <= j.taken:
		return joinGroup(&j.flying), j.hung, nil
	case j.closed && seq > j.appended:
		return nil, nil, unknownOutcome(errors.New("the store is closed"))
	}
	if j.collecting == nil {
		offerToken(j.wake)
	}
	return joinGroup(&j.collecting), j.hung, nil
}

// publish lets followers see the records up to seq.
func (j *journal) publish(seq uint64) {
	j.published.Store(seq)
	j.publishing.notify()
}

// durable returns the last sequence that was synced or, without a disk,
// appended.
func (j *journal) durable() uint64 { return j.durableSeq.Load() }

// status returns the present state of the journal.
func (j *journal) status() journalStatus {
	s := journalStatus{
		writable:      true,
		durability:    j.o.sync.String(),
		journalBytes:  j.fileBytes.Load() + j.oldBytes.Load(),
		snapshotBytes: j.snapshotBytes.Load(),
		lastSync:      instant(j.lastSync.Load()),
		syncs:         j.syncs.Load(),
		bytesWritten:  j.bytesWritten.Load(),
		records:       j.records.Load(),
		backlog:       j.backlog.Load(),
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
		j.mu.Lock()
		j.closed = true
		j.halted.Store(true)
		j.mu.Unlock()
		j.space.shut()
		if j.o.memory {
			return
		}
		close(j.quit)
		<-j.done
		j.freeing.Wait()
		if j.copies.reads != nil {
			j.copies.reads.close()
		}
		j.closeErr = errors.Join(j.closeErr, j.lock.Close())
	})
	return j.closeErr
}

// takeGroup takes the collected records.
func (j *journal) takeGroup() (buf []byte, last uint64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return nil, 0, j.broken
	}
	buf = j.buf
	if j.spare == nil {
		j.spare = make([]byte, 0, firstBuffer)
	}
	j.buf, j.spare = j.spare, nil
	j.taken = j.appended
	if j.flying == nil {
		j.flying, j.collecting = j.collecting, nil
	}
	return buf, j.appended, nil
}

func (j *journal) writeGroup(buf []byte) error {
	if len(buf) == 0 {
		return nil
	}
	if _, err := j.file.WriteAt(buf, j.pos); err != nil {
		return err
	}
	j.unsynced = true
	j.pos += int64(len(buf))
	j.writeAhead()
	j.fileBytes.Store(j.pos)
	j.bytesWritten.Add(uint64(len(buf)))
	return nil
}

var zeroText [zerosAhead]byte

// writeAhead writes zeros behind the records if there are none left. Syncing records that replace them
// writes data alone, not the file's size or which of its blocks are in use. It may fail.
func (j *journal) writeAhead() {
	if j.o.sync != syncAlways || j.pos <= j.sized {
		return
	}
	if _, err := j.file.WriteAt(zeroText[:], j.pos); err == nil {
		j.sized = j.pos + zerosAhead
	}
}

func (j *journal) syncFile() error {
	if !j.unsynced {
		return nil
	}
	if err := j.file.sync(); err != nil {
		return err
	}
	j.unsynced = false
	j.syncs.Add(1)
	j.lastSync.Store(int64(j.o.now()))
	return nil
}

// settle tells the callers that wait for records up to last that these are
// durable.
func (j *journal) settle(last uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.durableSeq.Store(last)
	j.publish(last)
	j.crowded.Store(j.flying != nil && j.flying.waiters > 1)
	if j.flying != nil {
		close(j.flying.done)
		j.flying = nil
	}
}

// rotate makes next the journal's file. After an error either nothing has changed or the
// journal has failed.
func (j *journal) rotate(next diskFile, linked bool) error {
	if err := j.flush(true); err != nil {
		return err
	}
	j.space.mu.Lock()
	defer j.space.mu.Unlock()
	size, err := j.writeHeader(next, j.written+1)
	if err != nil {
		return err
	}
	end, err := j.allocateNext(next, size)
	if err == nil && j.copied() {
		err = errCopied
	}
	if err == nil {
		err = j.swapNames(linked)
	}
	if err != nil {
		return err
	}
	old, oldSize := j.file, j.pos
	j.oldBytes.Store(oldSize)
	j.setFile(next, size)
	j.moveSpace(next, end)
	old.truncate(oldSize) // frees the blocks behind its end; on failure they go with the file
	old.Close()
	return nil
}

// allocateNext reserves, behind the header of the next file, everything that
// may be appended before the switch, and one step more.
func (j *journal) allocateNext(next diskFile, size int64) (end int64, err error) {
	j.mu.Lock()
	n := max(j.space.room.Load(), 0) + int64(len(j.buf)) + spaceStep
	j.mu.Unlock()
	return size + n, j.space.allocate(next, size, n, n)
}

// moveSpace makes the room that of the new file. The caller holds j.space.mu.
func (j *journal) moveSpace(next diskFile, end int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.space.file, j.space.end = next, end
	if !j.closed {
		j.space.room.Store(end - j.pos - int64(len(j.buf)))
	}
}

// finish writes the last group and frees the blocks behind the end.
func (j *journal) finish() error {
	j.closeErr = j.flush(true)
	j.space.mu.Lock()
	defer j.space.mu.Unlock()
	j.space.file = nil
	if j.closeErr == nil {
		j.closeErr = j.file.truncate(j.pos)
		j.noteClean()
	}
	if err := j.file.Close(); j.closeErr == nil {
		j.closeErr = err
	}
	return j.closeErr
}

func (j *journal) claimSnapshot() bool {
	j.snapshotMu.Lock()
	defer j.snapshotMu.Unlock()
	claimed := !j.snapshotting
	j.snapshotting = true
	return claimed
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

// holdsNothing refuses a directory with the files of a store.
func (j *journal) holdsNothing() error {
	for _, name := range []string{journalName, journalOldName, snapshotName} {
		f, err := j.o.fs.open(j.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			f.Close()
			err = fmt.Errorf("data directory %s holds a store already (%s): a state can only be imported into an empty one",
				j.o.dir, name)
		}
		return err
	}
	return nil
}
