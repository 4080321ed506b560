package main

// The flusher: the one goroutine that writes the journal's file.

import (
	"errors"
	"io/fs"
	"runtime"
	"time"
)

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
	if !sync {
		if j.o.sync == syncNever {
			j.publish(last)
		}
		return nil
	}
	if err := j.syncFile(); err != nil {
		return j.fail(err)
	}
	j.settle(last)
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
