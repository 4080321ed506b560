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
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

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

// commitGroup is a set of records that go to disk together, and the callers
// that wait for them.
type commitGroup struct {
	done    chan struct{} // closed when err is final
	err     error
	waiters int
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

// wait returns once the records up to seq are as durable as the mode promises:
// synced in mode syncAlways, at once in the others. After a failed write it
// returns a *failure of kind unavailable: the records may be on disk or not. So it
// does while the disk hangs. If ctx ends first it returns ctx's error, and the
// records still go to disk.
func (j *journal) wait(ctx context.Context, seq uint64) error { return j.await(ctx, seq, false) }

// await is wait. A patient caller also waits while the disk hangs, and may flush itself; ctx does not end that.
func (j *journal) await(ctx context.Context, seq uint64, patient bool) error {
	if j.durableSeq.Load() >= seq || j.o.sync != syncAlways && !j.halted.Load() {
		return nil
	}
	if patient && !j.crowded.Load() {
		if j.flushHere(); ctx.Err() != nil {
			return fmt.Errorf("wait for the journal: %w", ctx.Err())
		}
	}
	g, hung, err := j.join(seq)
	if g == nil {
		return err
	}
	if patient {
		hung = nil
	}
	select {
	case <-g.done:
		return g.err
	case <-hung:
		f := unknownOutcome(nil)
		f.message += fmt.Sprintf(": %v", j.hangError())
		f.retryAfter = retryAfterFull
		return f
	case <-ctx.Done():
		return fmt.Errorf("wait for the journal: %w", ctx.Err())
	}
}

// flushHere flushes in the caller's goroutine if nobody writes. A caller who waits alone saves two
// switches between goroutines.
func (j *journal) flushHere() {
	select {
	case j.turn <- struct{}{}:
		if !j.halted.Load() {
			j.watch.during(func() error { return j.flush(true) })
		}
		<-j.turn
	default:
	}
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

func joinGroup(g **commitGroup) *commitGroup {
	if *g == nil {
		*g = &commitGroup{done: make(chan struct{})}
	}
	(*g).waiters++
	return *g
}

// unknownOutcome is the error for callers whose records may be on disk or not.
func unknownOutcome(cause error) *failure {
	f := failf(unavailable, "outcome unknown: the change may have been stored or not")
	f.cause = cause
	f.retryAfter = retryAfterBroken
	return f
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

// flusherAsk is work for the flusher between two groups.
type flusherAsk struct {
	do    func() error
	reply chan error // holds one
}

// flusherTimers are the flusher's timers, in real time.
type flusherTimers struct {
	lazy    *time.Timer // the next flush of records that nobody waits for
	sync    *time.Timer // the next sync in mode syncInterval
	retry   *time.Timer // the next try on a full disk
	syncing bool        // sync is running
}

// stoppedTimer returns a timer that runs only after a Reset.
func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// run is the flusher. Errors of a flush go to the callers that wait, by fail.
func (j *journal) run() {
	defer close(j.done)
	t := flusherTimers{lazy: stoppedTimer(), sync: stoppedTimer(), retry: stoppedTimer()}
	defer t.lazy.Stop()
	defer t.sync.Stop()
	defer t.retry.Stop()
	place := time.NewTicker(placeRecheck)
	defer place.Stop()
	for {
		select {
		case <-place.C:
			j.during(func() error { return j.checkPlace(true) })
		case <-j.wake:
			if j.crowded.Load() {
				runtime.Gosched() // callers answered just now come back with more: one sync fewer
			}
			j.flushWatched(true)
			t.lazy.Reset(lazyFlush) // what came meanwhile is new
		case <-j.dirty:
			t.lazy.Reset(lazyFlush)
		case <-t.lazy.C:
			if j.flushLazy() {
				t.lazy.Reset(lazyFlush)
			}
		case <-t.sync.C:
			t.syncing = false
			j.flushWatched(true)
		case <-j.space.short:
			t.retry.Reset(spaceRetry)
		case <-t.retry.C:
			j.during(j.space.extend)
		case a := <-j.asks:
			a.reply <- j.during(a.do)
		case <-j.quit:
			j.during(j.finish)
			return
		}
		if j.o.sync == syncInterval && j.unsynced && !t.syncing {
			t.syncing = true
			t.sync.Reset(j.o.interval)
		}
	}
}

// ask has the flusher call do, and returns its error.
func (j *journal) ask(do func() error) error {
	a := flusherAsk{do, make(chan error, 1)}
	select {
	case j.asks <- a:
		return <-a.reply
	case <-j.done:
		return errors.New("the store is closed")
	}
}

// gather keeps the records of several changes for one sync until end is called, unless somebody
// waits for some of them before. Until end nothing may be waited for but the changes.
func (s *store) gather() (end func()) {
	s.journal.gathering.Add(1)
	return func() { s.journal.gathering.Add(-1) }
}

// flushLazy flushes what came since the last look, unless more belongs to it, and reports
// whether to look again. If not, the next record starts the timer.
func (j *journal) flushLazy() bool {
	if j.gathering.Load() > 0 {
		return true
	}
	j.mu.Lock()
	j.lazyOn = len(j.buf) > 0
	on := j.lazyOn
	j.mu.Unlock()
	if on {
		j.flushWatched(j.o.sync == syncAlways)
	}
	return on
}

func (j *journal) flushWatched(sync bool) { j.during(func() error { return j.flush(sync) }) }

// during does an operation of the flusher when nobody else writes.
func (j *journal) during(op func() error) error {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	return j.watch.during(op)
}

// flush writes everything appended so far, optionally syncs it, and answers the
// callers that wait for it.
func (j *journal) flush(sync bool) error {
	buf, last, err := j.takeGroup()
	if err != nil {
		return err
	}
	j.space.extend() // an error refuses later changes; these records have their space
	if err := j.writeGroup(buf); err != nil {
		return j.fail(err)
	}
	j.written = last
	if cap(buf) <= keepBuffer {
		j.spare = buf[:0]
	}
	if sync {
		if err := j.syncFile(); err != nil {
			return j.fail(err)
		}
	}
	if err := j.checkPlace(false); err != nil {
		return err
	}
	if sync {
		j.settle(last)
	} else if j.o.sync == syncNever {
		j.publish(last)
	}
	j.backlog.Add(-int64(len(buf)))
	return nil
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

// fail ends all writing. After a failed write or sync the contents of the disk
// are unknown until the file is read again.
func (j *journal) fail(err error) error {
	j.o.log.Error("the store is read-only until a restart", "file", j.path(journalName), "error", err)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.broken = err
	j.halted.Store(true)
	j.space.shut()
	j.buf = nil
	for _, g := range []*commitGroup{j.flying, j.collecting} {
		if g != nil {
			g.err = unknownOutcome(err)
			close(g.done)
		}
	}
	j.flying, j.collecting = nil, nil
	return err
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
