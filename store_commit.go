package main

// Group commit: many records go to disk with one sync. While the flusher syncs one group of records, the next group
// collects. A caller returns once its records are durable, or learns that their outcome is unknown.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// The backlog: records in memory that are not on disk. When the disk falls
// behind, new work is refused first, then every change.

// backlogLimit is the number of bytes from which no task is created and no step starts. What follows from earlier work
// is still recorded, as long as the space reserved for the journal lasts; then every change is refused.
const backlogLimit = 64 << 20

// behind returns a refusal of new work, or nil while the disk keeps up.
func (c *commitGroups) behind() error {
	if n := c.backlog.Load(); n >= c.most {
		return tryLater("the disk does not keep up: %d bytes wait to be written; nothing was changed", n)
	}
	return nil
}

// refusedForNow reports whether the store refused a change only for the moment: the same change may succeed later.
func refusedForNow(err error) bool {
	kind := kindOf(err)
	return kind == unavailable || kind == backpressure
}

// commitGroup is a set of records that go to disk together, and the callers that wait for them.
type commitGroup struct {
	done    chan struct{} // closed when err is final
	err     error
	waiters int
}

// nextRecords is where in the file the next records will be.
type nextRecords struct {
	offset int64 // of the first
	life   *life // of this process; nil for none
	begun  bool  // its line was appended
}

// commitGroups holds the records that are not on disk yet, and who waits for them.
type commitGroups struct {
	memory bool // records are counted and forgotten
	sync   syncMode
	most   int64         // backlog in bytes from which new work is refused
	space  *journalSpace // whose room the records take
	wake   chan struct{} // holds a token while somebody waits for the collecting group
	lazy   *time.Timer   // fires lazyFlush after the first record in buf
	spare  []byte        // the buffer not in use as buf; owned by the holder of the write turn

	mu         sync.Mutex   // guards what follows; taken after space.turn; a record enters buf, counts and room in one step
	buf        []byte       // records that were not taken to be written
	next       nextRecords  // where they will be
	appended   uint64       // last sequence in buf, or before it; records after a halt are dropped
	taken      uint64       // last sequence that was taken
	collecting *commitGroup // of the records in buf; nil if nobody waits for them
	flying     *commitGroup // of the records taken that are not durable
	broken     error        // the write or sync that failed; nothing is written after it
	closed     bool         // records are not accepted any more

	// Changed under mu, and read without:
	halted     atomic.Bool   // broken, closed or in memory
	durableSeq atomic.Uint64 // last sequence that is durable
	published  atomic.Uint64 // last sequence that followers may see
	publishing notifier      // notifies when published grew
	records    atomic.Uint64 // appended since the start

	backlog atomic.Int64 // bytes of records not yet written, or not yet synced if callers wait for that
	crowded atomic.Bool  // several callers waited for the last group
}

// ended returns why nothing is written any more, if that is so, and whether the journal is closed.
func (c *commitGroups) ended() (broken error, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken, c.closed
}

// append (hot path: BenchmarkJournalCommit) takes a record: it copies body, the members between sequence and
// checksum. seq is one more than the last. It never fails; see wait.
func (c *commitGroups) append(seq uint64, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.memory {
		c.appended = seq
		c.records.Add(1)
		c.durableSeq.Store(seq)
		c.publish(seq)
		return
	}
	if c.halted.Load() {
		return // the store has failed or is closed, as wait reports
	}
	if seq != c.appended+1 {
		panic(fmt.Sprintf("journal: record %d after %d", seq, c.appended))
	}
	c.appended = seq
	c.records.Add(1)
	before := len(c.buf)
	if !c.next.begun && c.next.life != nil {
		c.next.begun = true
		c.buf = appendSum(appendMembers(c.buf, c.next.life, (*life).members), before)
	}
	c.buf = appendRecord(c.buf, seq, seq-1-c.syncedBefore(), body)
	c.space.room.Add(int64(before - len(c.buf)))
	c.backlog.Add(int64(len(c.buf) - before))
	if before == 0 {
		c.lazy.Reset(lazyFlush)
	}
}

// syncedBefore returns the last sequence that is on disk for certain when the records in buf are
// written: in mode always, each group is synced before the next one is written.
func (c *commitGroups) syncedBefore() uint64 {
	if c.sync == syncAlways {
		return c.taken
	}
	return c.durableSeq.Load()
}

// begin makes seq the last sequence, before the first record is appended.
func (c *commitGroups) begin(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.appended, c.taken = seq, seq
	c.durableSeq.Store(seq)
	c.publish(seq)
}

// beginLife sets the life whose line is written before the next record.
func (c *commitGroups) beginLife(l life) {
	if c.sync == syncNever {
		l.sync = c.sync.String()
	}
	c.next.life = &l
}

// offset returns where in the file the next record will be.
func (c *commitGroups) offset() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.next.offset + int64(len(c.buf))
}

// lifeAfter returns the line with which the life of this process continues after a record in another file; nil if its own
// will come there, or is not needed.
func (c *commitGroups) lifeAfter(seq uint64) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.next.begun || c.next.life.sync == "" {
		return nil
	}
	again := *c.next.life
	again.from = seq + 1
	return appendSum(appendMembers(nil, &again, (*life).members), 0)
}

// wait returns once the records up to seq are as durable as the mode promises: synced in mode syncAlways, at once in
// the others. After a failed write it returns a *failure of kind unavailable: the records may be on disk or not. If ctx
// ends first it returns ctx's error, and the records still go to disk.
func (j *journal) wait(ctx context.Context, seq uint64) error {
	if j.groups.durableSeq.Load() >= seq || j.o.sync != syncAlways && !j.groups.halted.Load() {
		return nil
	}
	g, err := j.groups.join(seq)
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

// join returns the group that seq goes to disk with, or nil if the answer, err, is already known.
func (c *commitGroups) join(seq uint64) (g *commitGroup, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.durableSeq.Load() >= seq:
		return nil, nil
	case c.broken != nil:
		return nil, unknownOutcome(c.broken)
	case seq <= c.taken:
		return joinGroup(&c.flying), nil
	case c.closed && seq > c.appended: // what came before the close is still written
		return nil, unknownOutcome(errors.New("the store is closed"))
	}
	if c.collecting == nil {
		offerToken(c.wake)
	}
	return joinGroup(&c.collecting), nil
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
	return refusedFor(retryAfterBroken, cause, "outcome unknown: the change may have been stored or not")
}

// refusedFor returns the failure of a request that may be repeated after a while.
func refusedFor(wait time.Duration, cause error, format string, args ...any) *failure {
	f := failf(unavailable, format, args...)
	f.cause, f.retryAfter = cause, wait
	return f
}

// publish lets followers see the records up to seq.
func (c *commitGroups) publish(seq uint64) {
	c.published.Store(seq)
	c.publishing.notify()
}

// durable returns the last sequence that was synced or, without a disk, appended.
func (c *commitGroups) durable() uint64 { return c.durableSeq.Load() }

// close accepts no records any more.
func (c *commitGroups) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.halted.Store(true)
}

// stoppedTimer returns a timer that runs only after a Reset.
func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// run is the flusher: the goroutine that writes groups of records. A caller that waits wakes it at once. Records for which
// nobody waits are written a little later, with whatever has come by then. If the disk was full, it looks for space again.
// Errors of a flush reach the callers that wait through fail.
func (j *journal) run() {
	defer close(j.done)
	retry := stoppedTimer() // the next try on a full disk
	for {
		select {
		case <-j.groups.wake:
			if j.groups.crowded.Load() {
				// Callers that were just answered usually send another change. Letting them run first makes
				// their records part of this group, and saves a sync.
				runtime.Gosched()
			}
			j.during(func() error { return j.flush(true) })
		case <-j.groups.lazy.C:
			j.during(func() error { return j.flush(j.o.sync == syncAlways) })
		case <-j.space.short:
			retry.Reset(spaceRetry)
		case <-retry.C:
			j.during(func() error { return j.space.extend(spaceAhead) })
		case <-j.quit:
			j.during(j.finish)
			return
		}
	}
}

// during does an operation once no other goroutine uses the file.
func (j *journal) during(op func() error) error {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	return j.watched(op)
}

// flush writes everything appended so far, optionally syncs it, and answers the callers that wait for it.
func (j *journal) flush(sync bool) error {
	buf, last, err := j.groups.takeRecords()
	if err != nil {
		return err
	}
	j.space.extend(spaceAhead) // an error refuses later changes; these records have their space
	if err := j.newest.write(buf); err != nil {
		return j.fail(err)
	}
	if cap(buf) <= keepBuffer {
		j.groups.spare = buf[:0]
	}
	if sync {
		if err := j.newest.sync(); err != nil {
			return j.fail(err)
		}
	}
	if sync {
		j.groups.settle(last)
	} else if j.o.sync == syncNever {
		j.groups.publish(last)
	}
	j.groups.backlog.Add(-int64(len(buf)))
	return nil
}

// takeRecords (hot path: BenchmarkJournalCommit) takes the collected records.
func (c *commitGroups) takeRecords() (buf []byte, last uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return nil, 0, c.broken
	}
	buf = c.buf
	if c.spare == nil {
		c.spare = make([]byte, 0, firstBuffer)
	}
	c.next.offset += int64(len(buf))
	c.buf, c.spare = c.spare, nil
	c.taken = c.appended
	if c.flying == nil {
		c.flying, c.collecting = c.collecting, nil
	}
	return buf, c.appended, nil
}

// settle tells the callers that wait for records up to last that these are durable.
func (c *commitGroups) settle(last uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.durableSeq.Store(last)
	c.publish(last)
	c.crowded.Store(c.flying != nil && c.flying.waiters > 1)
	if c.flying != nil {
		close(c.flying.done)
		c.flying = nil
	}
}

// fail ends all writing, and tells the owner of the store, who ends the process. After a failed write or sync the contents
// of the disk are unknown until a start has read the file again.
func (j *journal) fail(err error) error {
	j.o.log.Error("the store failed: a start reads what was stored", "file", storePath(j.o.dir, storeName), "error", err)
	j.groups.fail(err)
	if j.o.failed != nil {
		j.o.failed(errors.New(brokenWord(err)))
	}
	return err
}

// fail drops the records, and fails the callers that wait for them.
func (c *commitGroups) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = err
	c.halted.Store(true)
	// Without room, reserve takes its slow path, which finds out why.
	c.space.shut()
	c.buf = nil
	for _, g := range []*commitGroup{c.flying, c.collecting} {
		if g != nil {
			g.err = unknownOutcome(err)
			close(g.done)
		}
	}
	c.flying, c.collecting = nil, nil
}
