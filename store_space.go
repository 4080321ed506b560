package main

// Disk space reserved for the journal ahead of its end, so that a full disk is
// noticed before a change is applied, not while it is written.

import (
	"errors"
	"log/slog"
	"math"
	"sync"
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
	extra atomic.Int64  // bytes wanted besides, for a change that is about to be made
	full  atomic.Bool   // the last extension found no space
	short chan struct{} // holds a token after full was set: the flusher tries again later

	extending atomic.Bool // an extension that is not the flusher's is under way
	watch     diskWatch   // of that

	disk diskFS
	dir  string
	log  *slog.Logger

	mu   sync.Mutex // one extension at a time, none while the file changes; it guards what follows
	file diskFile
	end  int64 // offset up to which blocks are reserved
}

// extend reserves blocks until the room is spaceAhead. It is cheap if the room
// is there.
func (s *journalSpace) extend() error {
	if !s.wanting() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for err == nil && s.file != nil && s.wanting() {
		if err = s.allocate(s.file, s.end, spaceStep, s.room.Load()); err == nil {
			s.end += spaceStep
			s.room.Add(spaceStep)
		}
	}
	if err == nil || s.room.Load() < spaceAhead {
		s.note(err)
	}
	return err
}

// wanting reports whether the room is too small, unless it was taken away for
// good.
func (s *journalSpace) wanting() bool {
	room := s.room.Load()
	return room < spaceAhead+s.extra.Load() && room > spaceShut/2
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

// note keeps the outcome of an extension, and logs changes of it.
func (s *journalSpace) note(err error) {
	was := s.full.Swap(err != nil)
	switch {
	case err != nil && !was:
		s.log.Warn("no space for the journal, changes are refused until there is", "dir", s.dir, "error", err)
	case err == nil && was:
		s.log.Info("there is space for the journal again", "dir", s.dir)
	}
	if err != nil {
		offerToken(s.short)
	}
}

// shut takes all room away for good.
func (s *journalSpace) shut() { s.room.Store(spaceShut) }

// spacePatience is how long a change waits for space to be reserved. It holds the store's
// lock meanwhile.
const spacePatience = time.Second

// extendSoon extends the space, and goes on without it if the disk takes long.
func (s *journalSpace) extendSoon() {
	if !s.extending.CompareAndSwap(false, true) {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.watch.during(s.extend)
		s.extending.Store(false)
	}()
	receiveWithin(done, spacePatience)
}

// reserveFor is reserve for a change with n bytes besides.
func (j *journal) reserveFor(n int) error {
	j.space.extra.Store(int64(n))
	defer j.space.extra.Store(0)
	return j.reserveMore(maxRecord + int64(n))
}
