package main

// A store that failed becomes writable again without a restart: it writes everything in memory to new files, as a
// snapshot and an empty journal. Memory has every acknowledged change, and those whose outcome is unknown; nothing
// changes while the store is read-only.

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"
)

const (
	renewEvery = 30 * time.Second // real time between attempts to rewrite a failed store
	scrubEvery = 24 * time.Hour   // real time between checks of all files
	scrubPace  = 32 << 20         // bytes that such a check reads in a second
)

// keeper looks after the files of a store.
type keeper struct {
	s *store
	j *journal
}

func (s *store) keeper() keeper { return keeper{s, s.journal} }

// run writes a snapshot when one is due, reads all files once a day, and rewrites a store that failed: at once if
// somebody else changed the files, every 30 s if the disk failed. It ends with ctx.
func (k keeper) run(ctx context.Context) {
	s, j := k.s, k.j
	renew, scrub := stoppedTimer(), time.NewTimer(scrubEvery)
	var renewed time.Time
	var scrubs sync.WaitGroup
	defer scrubs.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.full:
			k.snapshotDue()
		case <-j.watch.suspected:
			j.verify(ctx, 0)
		case <-scrub.C:
			scrubs.Go(func() { j.verify(ctx, scrubPace) }) // takes long at this pace, and a snapshot may become due
			scrub.Reset(scrubEvery)
		case <-j.failed:
			broken, _ := j.groups.ended()
			// Not at once a second time: somebody who keeps changing the files must not make this a
			// loop.
			if _, changed := errors.AsType[*misplaced](broken); changed && time.Since(renewed) > renewEvery {
				renew.Reset(0)
			} else {
				renew.Reset(renewEvery)
			}
		case <-renew.C:
			renewed = time.Now()
			if k.renew(false) != nil {
				renew.Reset(renewEvery)
			}
		}
	}
}

// snapshotDue writes a snapshot if the journal has grown enough. A failed one is tried again after the journal has
// grown further.
func (k keeper) snapshotDue() {
	if !k.j.snapshotDue() {
		return
	}
	if err := k.s.snapshot(); err != nil {
		k.s.log.Warn("the snapshot could not be written; the journal keeps every change", "error", err)
	}
}

// check reads all files against their checksums, slowly, and returns what it found, or "". If that is something, the
// store fails and is rewritten.
func (k keeper) check(ctx context.Context) (found string, err error) {
	if k.j.o.memory {
		return "", nil
	}
	problem, err := k.j.verify(ctx, scrubPace)
	switch {
	case problem != nil:
		return problem.Error(), nil
	case err != nil && k.j.refusal() != nil:
		return "", k.j.refusal()
	}
	return "", err
}

// renew rewrites a store that failed, and does nothing with any other. It creates a missing directory only if
// a request asked for that.
func (k keeper) renew(asked bool) error {
	s, j := k.s, k.j
	broken, closed := j.groups.ended()
	switch {
	case broken == nil:
		return nil
	case closed || j.o.memory:
		return j.refusal()
	case !j.snapshots.claim():
		return tryLater("a snapshot is being written: try again")
	}
	w := &snapshotWriter{j: j, size: snapshotHeaderSize, renews: true}
	defer w.abort() // which does nothing after end
	err := j.ask(func() error { return j.place.retake(asked) })
	if err == nil {
		err = untilError(w.openFile, func() error { return w.fill(s) }, w.lastLine, w.seal)
	}
	if err == nil {
		err = j.ask(func() error { return j.adopt(w) })
	}
	if err != nil {
		s.log.Warn("the store stays read-only: it could not be rewritten", "dir", j.o.dir, "error", err)
		f := failf(unavailable, "the store stays read-only: it could not be rewritten: %s", brokenWord(err))
		f.cause, f.retryAfter = err, retryAfterFailure(err)
		return f
	}
	w.file.Close()
	w.end()
	j.snapshots.note(nil)
	j.watch.renewals.Add(1)
	s.log.Info("the store was rewritten from memory and accepts changes again", "dir", j.o.dir, "sequence", w.covered)
	return nil
}

const directoryRemoved = `the data directory was removed; only "stepwell store reopen" creates it again`

// retake takes the place of the store again if its directory or lock was replaced, unless another process
// holds the new one.
func (p *storePlace) retake(asked bool) error {
	dir, _, err := p.disk.identify(p.dir)
	if p.dirID == (fileID{}) { // a disk in memory
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return &misplaced{directoryRemoved}
	}
	if lock, _, lockErr := p.disk.identify(filepath.Join(p.dir, lockName)); err == nil && lockErr == nil &&
		dir == p.dirID && lock == p.lockID {
		return nil
	}
	old := p.lock
	if err := p.take(); err != nil {
		p.lock = old
		return err
	}
	old.Close()
	p.note()
	return nil
}

// adopt makes a sealed snapshot, and a new journal after it, the files of the store. If somebody else changed the
// old files, these get other names; after an error of the disk they are of no use.
//
// The header of the new journal says that no earlier one is needed. From the moment that the snapshot gets its
// name, a start reads these two, see store_recover.go.
func (j *journal) adopt(w *snapshotWriter) error {
	next, size, err := j.files.create(w.covered+1, true)
	if err != nil {
		return err
	}
	end, err := j.allocateNext(next, size)
	if err == nil {
		err = untilError(
			j.keepDamaged,
			j.place.lock.syncDir, // or a crash might keep the new snapshot's name, and lose the new journal
			func() error { return j.o.fs.rename(j.files.path(snapshotTemp), j.files.path(snapshotName)) },
			j.place.lock.syncDir,
			func() error { return j.o.fs.rename(j.files.path(journalTempName), j.files.path(journalName)) },
			j.place.lock.syncDir)
	}
	if err != nil {
		next.Close() // the files stay: the snapshot may have its name already
		return err
	}
	for _, name := range []string{journalOldName, cleanName} {
		j.o.fs.remove(j.files.path(name)) // a start does it otherwise
	}
	j.newest.file.Close()
	j.newest.set(next, size)
	j.newest.last, j.newest.unsynced = w.covered, false
	j.files.oldBytes.Store(0)
	j.snapshots.bytes.Store(w.size)
	j.snapshots.mark.Store(&snapshotMark{w.covered, w.size, w.sums})
	j.watch.forget()
	j.groups.resume(w.covered)
	j.moveSpace(next, end) // last: from now on changes are accepted
	return nil
}

// keepDamaged gives files that somebody else changed a second name, where the file system has such. It does so
// before their names lead to others.
func (j *journal) keepDamaged() error {
	broken, _ := j.groups.ended()
	if _, changed := errors.AsType[*misplaced](broken); !changed {
		return nil
	}
	mark := ".damaged-" + j.o.now().time().Format("20060102T150405Z")
	for _, name := range []string{snapshotName, journalOldName, journalName} {
		if j.o.fs.link(j.files.path(name), j.files.path(name+mark)) == nil {
			j.o.log.Error("a file that was changed is kept under another name", "file", j.files.path(name+mark),
				slog.Any("reason", broken))
		}
	}
	return nil
}

// resume takes records again after those up to a sequence, which are durable.
func (c *commitGroups) resume(last uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken, c.buf, c.lazyOn = nil, nil, false
	c.appended, c.taken = last, last
	c.backlog.Store(0)
	c.durableSeq.Store(last)
	c.halted.Store(c.closed)
	c.publish(last)
	c.letGo(nil)
}

// letGo answers the callers that wait for the store to be rewritten. The caller holds the lock.
func (c *commitGroups) letGo(err error) {
	if g := c.awaiting.group; g != nil {
		g.err = err
		close(g.done)
		c.awaiting.group = nil
	}
}

// renewalGroup is the callers that wait for a failed store to be rewritten.
type renewalGroup struct {
	group *commitGroup // nil if nobody waits
	over  bool         // waiting is over
}

// giveUp ends the waits for a failed store to be rewritten.
func (k keeper) giveUp() {
	c := &k.j.groups
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaiting.over = true
	c.letGo(unknownOutcome(c.broken))
}

// hung returns a channel that is closed while the disk hangs, or when it begins to.
func (k keeper) hung() <-chan struct{} { return k.j.hang.begun() }

// givenUp reports whether giveUp has ended these waits.
func (c *commitGroups) givenUp() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.awaiting.over || c.closed
}
