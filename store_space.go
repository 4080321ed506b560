package main

// Disk space reserved ahead of the end of the store's file, so that a full disk is noticed before a change is applied, not
// while it is written.

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	maxRecord  = 6 << 20           // most bytes of one change in the journal
	spaceStep  = 8 << 20           // bytes reserved at a time
	spaceAhead = 8 << 20           // fewest bytes kept reserved ahead of what is buffered
	spaceRetry = time.Second       // time between tries on a full disk
	spaceShut  = math.MinInt64 / 2 // room of a journal that accepts nothing any more
)

// journalSpace keeps blocks reserved behind the end of one file.
type journalSpace struct {
	room  atomic.Int64  // bytes reserved and neither written nor buffered
	lack  atomic.Int64  // room that the last extension could not make; 0 if it could
	cause atomic.Value  // why it could not
	short chan struct{} // holds a token while the disk is full: the flusher tries again later

	disk diskFS
	dir  string
	log  *slog.Logger

	turn chan struct{} // holds a token during an extension and while the file changes; it guards what follows
	file diskFile
	end  int64 // offset up to which blocks are reserved
}

// full reports whether there is no space for any change.
func (s *journalSpace) full() bool { return s.lacked(spaceAhead) }

// lacked reports whether the last extension failed to make so much room, or less.
func (s *journalSpace) lacked(room int64) bool {
	lack := s.lack.Load()
	return lack > 0 && lack <= room
}

// wants reports whether the room is too small, unless it was taken away for good.
func (s *journalSpace) wants(need int64) bool {
	room := s.room.Load()
	return room < need && room > spaceShut/2
}

// extend reserves blocks until the room is so large, and waits for the disk if it is not yet.
func (s *journalSpace) extend(need int64) error {
	if !s.wants(need) {
		return nil
	}
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	var err error
	for err == nil && s.file != nil && s.wants(need) {
		if err = s.allocate(s.file, s.end, spaceStep, s.room.Load()); err == nil {
			s.end += spaceStep
			s.room.Add(spaceStep)
		}
	}
	s.extended(need, err)
	return err
}

// allocate reserves n bytes from off on. On a file system that cannot, the
// bytes must be free, in addition to those promised that way before.
func (s *journalSpace) allocate(file diskFile, off, n, promised int64) error {
	// A failed reservation may keep some blocks, so look at the free space first.
	free, err := s.disk.free(s.dir)
	if err != nil {
		return err
	}
	if free < n {
		return syscall.ENOSPC
	}
	if err := file.allocate(off, n); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	if free < n+max(promised, 0)+spaceStep {
		return syscall.ENOSPC
	}
	return nil
}

// extended keeps the outcome of an extension, and logs when the disk gets full and when there is space again.
func (s *journalSpace) extended(need int64, err error) {
	was := s.full()
	if err == nil {
		s.lack.Store(0)
	} else {
		s.cause.Store(&err)
		s.lack.Store(pick(s.room.Load() < spaceAhead, spaceAhead, need))
	}
	switch now := s.full(); {
	case now && !was:
		s.log.Warn("no space can be reserved for the store, changes are refused until it can", "dir", s.dir, "error", err)
	case was && !now:
		s.log.Info("there is space for the store again", "dir", s.dir)
	}
	if s.full() {
		offerToken(s.short)
	}
}

// why returns why no change is accepted, without paths of this machine.
func (s *journalSpace) why() string {
	err, _ := s.cause.Load().(*error)
	if err == nil || isDiskFull(*err) {
		return "no space left for the store"
	}
	return fmt.Sprintf("no space can be reserved for the store (%v)", withoutPath(*err))
}

// shut takes all room away for good.
func (s *journalSpace) shut() { s.room.Store(spaceShut) }

// makeRoom reserves space for a change with n additional bytes, if there is not enough. It is called before the store's
// lock is taken, under which nothing waits for the disk.
func (j *journal) makeRoom(n int) {
	need := spaceAhead + int64(n)
	// While the disk does not keep up, the flusher alone reserves space, for what is accepted already.
	if j.space.wants(need) && j.behind() == nil {
		j.watched(func() error { return j.space.extend(need) })
	}
}

// reserve returns nil if maxRecord and n more bytes fit, whatever happens to the disk. It is called before a change is
// applied, under the lock that append is called under. Its error is a *failure of kind unavailable, or backpressure if
// the disk is behind.
func (j *journal) reserve(n int) error {
	if j.space.room.Load() >= maxRecord+int64(n) {
		return nil
	}
	if f := j.refusal(); f != nil {
		return f
	}
	if err := j.behind(); err != nil {
		return err // the flusher reserves more when it has caught up
	}
	if !j.space.lacked(spaceAhead + int64(n)) {
		return tryLater("no space is reserved for the change yet: nothing was changed")
	}
	return refusedFor(retryAfterFull, nil, "%s: nothing was changed", j.space.why())
}

// behind returns an error while too much waits for the disk to take new work.
func (j *journal) behind() error { return j.groups.behind() }
