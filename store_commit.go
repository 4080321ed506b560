package main

// Group commit: many records go to disk with one sync. One goroutine at a time writes the file,
// the flusher or a caller that waits alone: while it syncs one group of records, the next group
// collects. A caller returns once its records are durable, or learns that their outcome is unknown.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// The backlog: records in memory that are not on disk. When the disk falls
// behind, new work is refused first, then every change.

// backlogLimit is the number of bytes from which no task is created and no step
// starts. What follows from earlier work is still recorded, as long as the
// space reserved for the journal lasts; then every change is refused.
const backlogLimit = 64 << 20

// backlogRetryAfter is when a caller refused because of the backlog may try
// again.
const backlogRetryAfter = time.Second

// refusedForNow reports whether an error only says that the store takes no
// changes at present: the same change may succeed later.
func refusedForNow(err error) bool {
	kind := kindOf(err)
	return kind == unavailable || kind == backpressure
}

// commitGroup is a set of records that go to disk together, and the callers
// that wait for them.
type commitGroup struct {
	done    chan struct{} // closed when err is final
	err     error
	waiters int
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
