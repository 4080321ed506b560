package main

// The journal: records in memory first, then on disk, many with one sync. It
// knows sequence numbers and lines, not what they mean. One goroutine, the
// flusher, writes the file: while it syncs one group of records the next group
// collects. How a line looks is in journalline.go, how the files are read at
// the start in recovery.go.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// syncMode says when records count as durable.
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
	lazyFlush   = 2 * time.Millisecond // how long a record stays in memory when nobody waits for it
	keepBuffer  = 4 << 20              // bytes; a buffer that grew beyond is not kept
	firstBuffer = 64 << 10             // bytes

	snapshotFloor = 16 << 20    // bytes; no snapshot is due for a smaller journal
	snapshotPause = time.Minute // after a snapshot that failed

	retryAfterFull   = 5 * time.Second
	retryAfterBroken = 30 * time.Second
)

// journalOptions is what a journal needs to know.
type journalOptions struct {
	dir      string // made when it is not there
	memory   bool   // no files at all: records are counted and forgotten
	sync     syncMode
	interval time.Duration // between syncs in mode syncInterval; 100 ms when 0
	fs       diskFS        // the real one when nil
	log      *slog.Logger
	now      func() instant // for the times in the status and in headers
}

// commitGroup is what the callers wait for whose records go to disk together.
type commitGroup struct {
	done    chan struct{} // closed when err is final
	err     error
	waiters int
}

// journal is the append-only file of a store. reserve, append, wait, durable,
// snapshotDue and status may be called at any time by any goroutine.
type journal struct {
	o     journalOptions
	most  int64 // backlog from which on new work is refused
	lock  io.Closer
	space journalSpace
	wake  chan struct{}   // holds a token: somebody waits for the collecting group
	dirty chan struct{}   // holds a token: a record came in while the lazy timer was off
	asks  chan flusherAsk // work that must run between two groups
	quit  chan struct{}
	done  chan struct{} // closed when the flusher has ended
	once  sync.Once     // close

	mu         sync.Mutex   // a record enters buf, the count and the room in one step
	buf        []byte       // records that the flusher did not take yet
	appended   uint64       // last sequence in buf, or before it; what comes when halted is dropped
	taken      uint64       // last sequence that the flusher took
	collecting *commitGroup // of the records in buf; nil while nobody waits for them
	flying     *commitGroup // of the records taken and not durable yet
	lazyOn     bool         // the flusher will look at buf within lazyFlush
	broken     error        // the failed write or sync; nothing is written after it
	closed     bool         // no records are taken any more

	// The flusher's own, and its opener's before it runs.
	file     diskFile
	pos      int64  // end of the file
	spare    []byte // the buffer that buf is not
	written  uint64 // last sequence in the file
	unsynced bool   // the file has bytes that were not synced
	crowded  bool   // several callers waited for the last group
	closeErr error  // of the end; others read it once done is closed

	published  atomic.Uint64 // last sequence as durable as the mode means it
	publishing notifier      // notifies when published grew

	halted        atomic.Bool // broken or closed, or there is no disk at all; set under mu
	durableSeq    atomic.Uint64
	backlog       atomic.Int64 // bytes of records that are neither written nor, where callers wait for that, synced
	fileBytes     atomic.Int64 // of the newest journal
	oldBytes      atomic.Int64 // of journal.old.jsonl; 0 when it is not there
	snapshotBytes atomic.Int64
	syncs         atomic.Uint64
	bytesWritten  atomic.Uint64
	records       atomic.Uint64
	lastSync      atomic.Int64

	snapshotMu     sync.Mutex
	snapshotting   bool      // there is a snapshotWriter
	snapshotAfter  time.Time // none is due before: the last one failed
	snapshotWarned bool      // that failure, or one before it, was logged
}

// journalStatus is what there is to tell about a journal.
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
	backlog       int64   // bytes of records that are not on disk yet
}

// openJournal locks the directory, feeds l with what is stored there and makes
// the journal ready: durable() is then the last sequence. A torn end is cut off
// with a warning. The error names the directory and, when a file is damaged,
// also file, line and reason: then nothing was changed.
func openJournal(o journalOptions, l loader) (*journal, error) {
	if o.fs == nil {
		o.fs = osDisk{}
	}
	if o.interval <= 0 {
		o.interval = 100 * time.Millisecond
	}
	j := newJournal(o)
	if o.memory {
		j.halted.Store(true)
		j.space.room.Store(math.MaxInt64)
		close(j.done)
		return j, nil
	}
	if err := o.fs.makeDir(o.dir); err != nil {
		return nil, fmt.Errorf("make data directory %s: %w", o.dir, err)
	}
	lock, err := o.fs.lock(j.path(lockName))
	if err != nil {
		return nil, fmt.Errorf("lock data directory %s: %w", o.dir, err)
	}
	j.lock = lock
	if err := j.recover(l); err != nil {
		lock.Close()
		return nil, err
	}
	go j.run()
	return j, nil
}

func newJournal(o journalOptions) *journal {
	return &journal{
		o:     o,
		most:  backlogLimit,
		space: journalSpace{disk: o.fs, dir: o.dir, log: o.log, short: make(chan struct{}, 1)},
		wake:  make(chan struct{}, 1),
		dirty: make(chan struct{}, 1),
		asks:  make(chan flusherAsk),
		quit:  make(chan struct{}),
		done:  make(chan struct{}),
	}
}

func (j *journal) path(name string) string { return filepath.Join(j.o.dir, name) }

// recover reads the files, puts them in order and opens the newest journal.
func (j *journal) recover(l loader) error {
	r := &recovery{disk: j.o.fs, dir: j.o.dir, loader: l}
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

// openFile opens or makes the newest journal, without its torn end and what the
// last process had set aside behind it. If that one was killed, part of what was
// read may be in the system's memory only, so it is synced.
func (j *journal) openFile(r *recovery) error {
	if len(r.files) == 0 {
		return j.firstFile()
	}
	f, err := j.o.fs.edit(j.path(journalName))
	if err != nil {
		return err
	}
	if err = f.truncate(r.bytes); err == nil {
		err = f.sync()
	}
	if err != nil {
		f.Close()
		return err
	}
	j.setFirst(f, r.bytes)
	return nil
}

// firstFile makes the first journal of a new store.
func (j *journal) firstFile() error {
	f, size, err := j.newFile(1)
	if err != nil {
		return err
	}
	err = j.o.fs.rename(j.path(journalTempName), j.path(journalName))
	if err == nil {
		err = j.o.fs.syncDir(j.o.dir)
	}
	if err != nil {
		f.Close()
		return err
	}
	j.setFirst(f, size)
	return nil
}

// newFile makes a journal under its temporary name, with a header, synced.
func (j *journal) newFile(from uint64) (diskFile, int64, error) {
	f, err := j.o.fs.create(j.path(journalTempName))
	if err != nil {
		return nil, 0, err
	}
	header := appendJournalHeader(nil, from)
	_, err = f.WriteAt(header, 0)
	if err == nil {
		err = f.sync()
	}
	if err != nil {
		j.dropFile(f, journalTempName)
		return nil, 0, err
	}
	return f, int64(len(header)), nil
}

// dropFile closes and removes a temporary file; what is left of it when that
// fails goes at the next start.
func (j *journal) dropFile(f diskFile, name string) {
	f.Close()
	if err := j.o.fs.remove(j.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		j.o.log.Warn("a temporary file stays until the next start", "file", j.path(name), "error", err)
	}
}

// setFirst sets the file that the journal begins with. On a disk without space
// it can still be read.
func (j *journal) setFirst(f diskFile, size int64) {
	j.setFile(f, size)
	j.space.file, j.space.end = f, size
	j.space.extend()
}

func (j *journal) setFile(f diskFile, size int64) {
	j.file, j.pos = f, size
	j.fileBytes.Store(size)
}

// reserve is asked before a change is applied: nil means that maxRecord more
// bytes fit, whatever happens to the disk. It must be called under the lock
// that append is called under. The error is a *failure of kind unavailable, or
// backpressure when the disk is behind; then nothing happened.
func (j *journal) reserve() error {
	if j.space.room.Load() >= maxRecord {
		return nil
	}
	return j.reserveMore()
}

// reserveMore is for when the flusher did not see to it in time, or cannot.
func (j *journal) reserveMore() error {
	if f := j.refusal(); f != nil {
		return f
	}
	if err := j.behind(); err != nil {
		return err // the flusher sees to more room when it gets there
	}
	if !j.space.full.Load() {
		j.space.extend()
	}
	if j.space.room.Load() >= maxRecord {
		return nil
	}
	if f := j.refusal(); f != nil {
		return f
	}
	f := failf(unavailable, "no space left for the journal: nothing was changed")
	f.retryAfter = retryAfterFull
	return f
}

// refusal is why the journal takes no more records, or nil.
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
	default:
		return nil
	}
	f.retryAfter = retryAfterBroken
	return f
}

// brokenWord names what failed without the paths of this machine.
func brokenWord(err error) string {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Sprintf("%s of the journal failed (%v)", p.Op, p.Err)
	}
	return "writing the journal failed"
}

// append takes a record in: a copy of body, the members between sequence and
// checksum. seq is one more than the last. It never fails: see wait.
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
	j.buf = appendRecord(j.buf, seq, body)
	j.space.room.Add(int64(before - len(j.buf)))
	j.backlog.Add(int64(len(j.buf) - before))
	if !j.lazyOn {
		j.lazyOn = true
		offerToken(j.dirty)
	}
}

// skipTo makes seq the last sequence of a journal in memory.
func (j *journal) skipTo(seq uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.appended = seq
	j.durableSeq.Store(seq)
	j.publish(seq)
}

// wait returns when the records up to seq are as durable as the mode means it:
// synced in mode syncAlways, at once in the others. After a failed write it is
// a *failure of kind unavailable: the records may be on disk or not. When ctx
// ends first the error is its own, and the records still go to disk.
func (j *journal) wait(ctx context.Context, seq uint64) error {
	if j.durableSeq.Load() >= seq || j.o.sync != syncAlways && !j.halted.Load() {
		return nil
	}
	g, err := j.join(seq)
	if g == nil {
		return err
	}
	select {
	case <-g.done:
		return g.err
	case <-ctx.Done():
		return fmt.Errorf("wait for the journal: %w", ctx.Err())
	}
}

// join finds the group that seq goes to disk with; none when the answer, err,
// is known already.
func (j *journal) join(seq uint64) (*commitGroup, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.durableSeq.Load() >= seq:
		return nil, nil
	case j.broken != nil:
		return nil, unknownOutcome(j.broken)
	case seq <= j.taken:
		return joinGroup(&j.flying), nil
	case j.closed && seq > j.appended:
		return nil, unknownOutcome(errors.New("the store is closed"))
	}
	if j.collecting == nil {
		offerToken(j.wake)
	}
	return joinGroup(&j.collecting), nil
}

func joinGroup(g **commitGroup) *commitGroup {
	if *g == nil {
		*g = &commitGroup{done: make(chan struct{})}
	}
	(*g).waiters++
	return *g
}

// unknownOutcome is the answer to those whose records may be on disk or not.
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

// durable is the last sequence that was synced, or, without a disk, appended.
func (j *journal) durable() uint64 { return j.durableSeq.Load() }

// status is the state of the journal now.
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

// close writes and syncs what there is, releases those who wait and gives the
// directory free. A snapshot must have ended before. The error is of the last
// write, and the same when close is called again.
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
		j.closeErr = errors.Join(j.closeErr, j.lock.Close())
	})
	return j.closeErr
}

// The backlog: records in memory that are not on disk yet. When the disk falls
// behind, what would make it grow is refused or held, in two steps.

// backlogLimit is from how many bytes on no task is created and no step starts.
// What follows from work that was taken before is still recorded, as long as the
// space that is set aside for the journal lasts; then every change is refused.
const backlogLimit = 64 << 20

// backlogRetryAfter is when a caller refused because of the backlog may try again.
const backlogRetryAfter = time.Second

// behind is the refusal of new work, or nil as long as the disk keeps up.
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

// refusedForNow reports a refusal that says nothing about the change: it may succeed
// later, as it is.
func refusedForNow(err error) bool {
	kind := kindOf(err)
	return kind == unavailable || kind == backpressure
}

// The flusher: the one goroutine that writes the journal's file.

// flusherAsk is work for the flusher between two groups.
type flusherAsk struct {
	do    func() error
	reply chan error // holds one
}

// flusherTimers are the flusher's real-time alarms.
type flusherTimers struct {
	lazy    *time.Timer // records nobody waits for
	sync    *time.Timer // the next sync in mode syncInterval
	retry   *time.Timer // the next look at a full disk
	syncing bool        // sync is running
}

// stoppedTimer is a timer that runs only once it is reset.
func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// run is the flusher. Errors of a flush are kept by fail, for those who wait.
func (j *journal) run() {
	defer close(j.done)
	t := flusherTimers{lazy: stoppedTimer(), sync: stoppedTimer(), retry: stoppedTimer()}
	defer t.lazy.Stop()
	defer t.sync.Stop()
	defer t.retry.Stop()
	for {
		select {
		case <-j.wake:
			if j.crowded {
				runtime.Gosched() // those answered just now come back: one sync less for them
			}
			j.flush(true)
		case <-j.dirty:
			t.lazy.Reset(lazyFlush)
		case <-t.lazy.C:
			if j.flushLazy() {
				t.lazy.Reset(lazyFlush)
			}
		case <-t.sync.C:
			t.syncing = false
			j.flush(true)
		case <-j.space.short:
			t.retry.Reset(spaceRetry)
		case <-t.retry.C:
			j.space.extend()
		case a := <-j.asks:
			a.reply <- a.do()
		case <-j.quit:
			j.finish()
			return
		}
		if j.o.sync == syncInterval && j.unsynced && !t.syncing {
			t.syncing = true
			t.sync.Reset(j.o.interval)
		}
	}
}

// ask lets the flusher do something and returns its error.
func (j *journal) ask(do func() error) error {
	a := flusherAsk{do, make(chan error, 1)}
	select {
	case j.asks <- a:
		return <-a.reply
	case <-j.done:
		return errors.New("the store is closed")
	}
}

// flushLazy flushes what came in since the last look. Without anything it
// returns false: the next record starts the timer.
func (j *journal) flushLazy() bool {
	j.mu.Lock()
	j.lazyOn = len(j.buf) > 0
	on := j.lazyOn
	j.mu.Unlock()
	if on {
		j.flush(j.o.sync == syncAlways)
	}
	return on
}

// flush writes everything appended so far, syncs it or not, and answers those
// who wait for it.
func (j *journal) flush(sync bool) error {
	buf, last, err := j.takeGroup()
	if err != nil {
		return err
	}
	j.space.extend() // an error refuses changes to come: this one has its space
	if err := j.writeGroup(buf); err != nil {
		return j.fail(err)
	}
	j.written = last
	if cap(buf) <= keepBuffer {
		j.spare = buf[:0]
	}
	switch {
	case sync:
		if err := j.syncFile(); err != nil {
			return j.fail(err)
		}
		j.settle(last)
	case j.o.sync == syncNever:
		j.publish(last)
	}
	j.backlog.Add(-int64(len(buf)))
	return nil
}

// takeGroup takes the collected records over.
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
	j.fileBytes.Store(j.pos)
	j.bytesWritten.Add(uint64(len(buf)))
	return nil
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

// settle tells those who wait for records up to last that they are durable.
func (j *journal) settle(last uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.durableSeq.Store(last)
	j.publish(last)
	if j.flying != nil {
		j.crowded = j.flying.waiters > 1
		close(j.flying.done)
		j.flying = nil
	}
}

// fail ends all writing: after a failed write or sync nobody knows what is on
// disk, and only reading the file again tells.
func (j *journal) fail(err error) error {
	j.o.log.Error("the journal could not be written, the store is read-only until a restart",
		"file", j.path(journalName), "error", err)
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

// rotate ends the journal's file under the name journal.old.jsonl and begins a
// new one. An error leaves things as they were, or the journal failed.
func (j *journal) rotate() error {
	if err := j.flush(true); err != nil {
		return err
	}
	j.space.mu.Lock()
	defer j.space.mu.Unlock()
	next, size, err := j.newFile(j.written + 1)
	if err != nil {
		return err
	}
	end, err := j.allocateNext(next, size)
	if err == nil {
		err = j.swapNames()
	}
	if err != nil {
		j.dropFile(next, journalTempName)
		return err
	}
	old, oldSize := j.file, j.pos
	j.oldBytes.Store(oldSize)
	j.setFile(next, size)
	j.moveSpace(next, end)
	old.truncate(oldSize) // gives back the blocks behind its end; if not, they go with the file
	old.Close()
	return nil
}

// allocateNext sets aside, behind the header of the next file, whatever may
// still be appended before it is the journal's file, and a step more.
func (j *journal) allocateNext(next diskFile, size int64) (end int64, err error) {
	j.mu.Lock()
	n := max(j.space.room.Load(), 0) + int64(len(j.buf)) + spaceStep
	j.mu.Unlock()
	return size + n, j.space.allocate(next, size, n, n)
}

// swapNames gives both journals their new names, the old one first. A failed
// sync of the directory fails the journal: which of the files a start would
// read is not known then.
func (j *journal) swapNames() error {
	disk, current, old := j.o.fs, j.path(journalName), j.path(journalOldName)
	if err := disk.rename(current, old); err != nil {
		return j.undoNames(err)
	}
	if err := disk.syncDir(j.o.dir); err != nil {
		return j.fail(err)
	}
	if err := disk.rename(j.path(journalTempName), current); err != nil {
		return j.undoNames(err)
	}
	if err := disk.syncDir(j.o.dir); err != nil {
		return j.fail(err)
	}
	return nil
}

// undoNames gives the journal its name back after a rename that failed, but may
// have happened: then the journal goes on in its file.
func (j *journal) undoNames(cause error) error {
	err := j.o.fs.rename(j.path(journalOldName), j.path(journalName))
	if errors.Is(err, fs.ErrNotExist) {
		return cause
	}
	if err != nil || j.o.fs.syncDir(j.o.dir) != nil {
		return j.fail(cause)
	}
	return cause
}

// moveSpace lets the room be that of the new file. j.space.mu is held.
func (j *journal) moveSpace(next diskFile, end int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.space.file, j.space.end = next, end
	if !j.closed {
		j.space.room.Store(end - j.pos - int64(len(j.buf)))
	}
}

// finish writes the last group and gives back the blocks behind the end.
func (j *journal) finish() {
	j.closeErr = j.flush(true)
	j.space.mu.Lock()
	defer j.space.mu.Unlock()
	j.space.file = nil
	if j.closeErr == nil {
		j.closeErr = j.file.truncate(j.pos)
	}
	if err := j.file.Close(); j.closeErr == nil {
		j.closeErr = err
	}
}
