package main

// Disk space set aside for the journal ahead of its end, so that a full disk is
// known before a change is applied and not while it is written.

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
	maxRecord  = 6 << 20           // bytes that one change may take in the journal
	spaceStep  = 8 << 20           // bytes set aside at once
	spaceAhead = 8 << 20           // bytes kept set aside, at the least, ahead of what is buffered
	spaceRetry = time.Second       // how often a full disk is tried again
	spaceShut  = math.MinInt64 / 2 // room of a journal that takes nothing any more
)

// journalSpace keeps blocks set aside behind the end of one file.
type journalSpace struct {
	room  atomic.Int64  // bytes set aside and neither written nor buffered
	full  atomic.Bool   // the last extension found no space
	short chan struct{} // holds a token once full is set: the flusher then tries again by and by
	disk  diskFS
	dir   string
	log   *slog.Logger

	mu   sync.Mutex // one extension at a time, none while the file changes
	file diskFile
	end  int64 // offset up to which blocks are set aside
}

// extend sees to spaceAhead bytes of room. It is cheap when they are there.
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
	s.note(err)
	return err
}

// wanting says whether there is too little room, but not none for good.
func (s *journalSpace) wanting() bool {
	room := s.room.Load()
	return room < spaceAhead && room > spaceShut/2
}

// allocate sets n bytes aside from off on. A file system that cannot do that
// must have the bytes free, beside the promised ones set aside that way before.
func (s *journalSpace) allocate(file diskFile, off, n, promised int64) error {
	// A reservation that fails may keep what it got so far, so it is not tried in vain.
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

// note keeps the outcome of an extension and logs when it changes.
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

// shut takes all room away, for good.
func (s *journalSpace) shut() { s.room.Store(spaceShut) }
