package main

// Disk space reserved ahead of the end of the store's file, so that a full disk is
// noticed before a change is applied, not while it is written.

import (
	"errors"
	"fmt"
	"io/fs"
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
	full  atomic.Bool   // the last extension failed
	cause atomic.Value  // its error
	lack  atomic.Int64  // room that the last extension could not make; 0 if it could
	short chan struct{} // holds a token after full was set: the flusher tries again later

	extending atomic.Pointer[spaceExtension] // one that is not the flusher's and under way
	watched   func(op func() error) error    // see journal.watched

	disk diskFS
	dir  string
	log  *slog.Logger

	turn chan struct{} // holds a token during an extension and while the file changes; it guards what follows
	file diskFile
	end  int64 // offset up to which blocks are reserved
}

// spaceExtension is an extension that somebody may wait for.
type spaceExtension struct{ done chan struct{} }

// extend reserves blocks until the room is spaceAhead, or more if need is. It is cheap if the room
// is there.
func (s *journalSpace) extend(need int64) error {
	if !s.wanting(need) {
		return nil
	}
	s.turn <- struct{}{}
	defer func() { <-s.turn }()
	var err error
	for err == nil && s.file != nil && s.wanting(need) {
		if err = s.allocate(s.file, s.end, spaceStep, s.room.Load()); err == nil {
			s.end += spaceStep
			s.room.Add(spaceStep)
		}
	}
	s.lack.Store(max(spaceAhead, need) * int64(boolCount(err != nil)))
	if err == nil || s.room.Load() < spaceAhead {
		s.note(err)
	}
	return err
}

// wanting reports whether the room is too small, unless it was taken away for
// good.
func (s *journalSpace) wanting(need int64) bool {
	room := s.room.Load()
	return room < max(spaceAhead, need) && room > spaceShut/2
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
		s.log.Warn("no space can be reserved for the store, changes are refused until it can", "dir", s.dir, "error", err)
	case err == nil && was:
		s.log.Info("there is space for the store again", "dir", s.dir)
	}
	if err != nil {
		s.cause.Store(&err)
		offerToken(s.short)
	}
}

// why returns why no change is accepted, without paths of this machine.
func (s *journalSpace) why() string {
	err, _ := s.cause.Load().(*error)
	if err == nil || isDiskFull(*err) {
		return "no space left for the store"
	}
	if p, ok := errors.AsType[*fs.PathError](*err); ok {
		return fmt.Sprintf("no space can be reserved for the store (%v)", p.Err)
	}
	return fmt.Sprintf("no space can be reserved for the store (%v)", *err)
}

// shut takes all room away for good.
func (s *journalSpace) shut() { s.room.Store(spaceShut) }

// spacePatience is how long a change waits for space to be reserved.
const spacePatience = time.Second

// extendSoon starts an extension in the background, unless one is running already.
func (s *journalSpace) extendSoon(need int64) *spaceExtension {
	x := &spaceExtension{make(chan struct{})}
	if !s.extending.CompareAndSwap(nil, x) {
		return s.extending.Load() // nil if it has just ended
	}
	go func() {
		s.watched(func() error { return s.extend(need) })
		s.extending.Store(nil)
		close(x.done)
	}()
	return x
}

// makeRoom waits for up to spacePatience until there is space for a change with n additional bytes, if there
// is not enough. It is called before the store's lock is taken, under which nothing waits.
func (j *journal) makeRoom(n int) {
	need := spaceAhead + int64(n)
	s := &j.space
	// Nobody waits if there is room, or if waiting cannot help because the change will be refused
	// anyway.
	if !s.wanting(need) || s.full.Load() && n == 0 || j.refusal() != nil || j.behind() != nil {
		return
	}
	if x := s.extendSoon(need); x != nil {
		receiveWithin(x.done, spacePatience)
	}
}

// behind returns an error while too much waits for the disk to take new work.
func (j *journal) behind() error { return j.groups.behind() }

// reserveFor is reserve for a change with n additional bytes.
func (j *journal) reserveFor(n int) error { return j.reserveMore(maxRecord + int64(n)) }
