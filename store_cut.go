package main

// The state of a store as of one moment, written as the compacted part of a file: by a compaction, an export and a
// backup, beside the running service. Nothing in it depends on real time, or on how records were grouped.

import (
	"bufio"
	"fmt"
	"io"
)

// storeCut is that state.
type storeCut struct {
	header  storeHeader
	lives   lives
	tasks   taskCut
	figures *frozenFigures
	offset  int64  // of the first record after it, in the file of the journal
	life    []byte // the line with which the life of this process continues after it, or nil

	subscribers [][]byte // their lines
	requests    []*keptRequest
}

// seq returns the record that the cut is as of.
func (cut *storeCut) seq() uint64 { return cut.header.seq }

// cut takes the state as of the newest record.
func (s *store) cut() *storeCut {
	tasks, _ := s.size()
	room := make([]*slot, 0, 2*tasks)
	s.mu.Lock()
	defer s.mu.Unlock()
	cut := &storeCut{
		header: storeHeader{
			format: storeFormat, store: s.journal.of.id, key: s.tasks.index.key, seq: s.seq, tasks: len(s.tasks.byID),
			dropped: s.retain.dropped, lastID: s.tasks.lastID, extent: s.events.extentLocked(),
		},
		lives: s.lives.upTo(s.seq), tasks: s.cutLocked(room), figures: s.analytics.freeze(), offset: s.journal.groups.offset(),
		life: s.journal.groups.lifeAfter(s.seq), requests: s.requests.dropped, subscribers: s.events.domain.linesLocked(),
	}
	if c, ok := s.clock.(statefulClock); ok {
		cut.header.clock = c.state() // which moves under this lock alone
	} else if s.clock == nil { // a store that is only read
		cut.header.clock = s.carried
	}
	return cut
}

// write writes the compacted part.
func (s *store) write(cut *storeCut, w *lineWriter) error {
	if err := w.line(appendHeader(nil, &cut.header)); err != nil {
		return err
	}
	var room []byte
	for i := range cut.lives {
		room = cut.lives[i].appendLine(room[:0])
		if err := w.line(room); err != nil {
			return err
		}
	}
	for _, line := range cut.subscribers {
		if err := w.line(line); err != nil {
			return err
		}
	}
	return untilError(
		func() error { return s.templates.writeLines(w.line) },
		func() error { return cut.figures.writeLines(cut.header.seq, w.line) },
		func() error { return s.requests.writeLines(cut.requests, w.line) },
		func() error {
			for line := range cut.tasks.lines() {
				if err := w.line(line[:len(line)-1]); err != nil {
					return err
				}
			}
			return nil
		},
		w.end,
	)
}

// untilError calls functions one after the other, until an error.
func untilError(all ...func() error) error {
	for _, f := range all {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// export writes the state as a file that an import reads.
func (s *store) export(cut *storeCut, to io.Writer) error {
	out := bufio.NewWriterSize(to, 64<<10)
	err := s.write(cut, &lineWriter{out: out})
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("export the state: %w", err)
	}
	return nil
}

// clockMode says what moves a virtual clock.
type clockMode string

const (
	clockReal   clockMode = "real"   // time passes
	clockFrozen clockMode = "frozen" // time stops until it is advanced
	clockAuto   clockMode = "auto"   // time stops while something runs, and jumps to what is due next
)

// clockState is a clock in the header of a state; without a mode there is no clock.
type clockState struct {
	now  instant
	mode clockMode
}

// clockMember is {"now":"2026-01-01T00:00:00Z","mode":"frozen"}.
func clockMember(c *memberCoder, s *clockState) {
	var in memberCoder
	if !c.reading && s.mode == "" || !c.enter("clock", &in) {
		return
	}
	now, mode := s.now.zoned(), string(s.mode)
	in.text("now", &now)
	in.text("mode", &mode)
	if c.reading {
		s.mode = clockMode(mode)
		s.now, _ = parseInstant(now)
	}
	c.leave(&in)
}

// checkClock returns an error unless a clock can be set so.
func checkClock(s *clockState) error {
	switch s.mode {
	case clockReal, clockFrozen, clockAuto:
		if s.now > 0 && s.now <= lastInstant {
			return nil
		}
	case "":
		return nil
	}
	return fmt.Errorf("its clock must have \"now\", an instant, and \"mode\", one of %s, %s and %s", clockReal, clockFrozen, clockAuto)
}

// statefulClock is a clock that states carry.
type statefulClock interface {
	state() clockState
	// restore sets a clock that was not read yet.
	restore(s clockState)
}

// resumeClock sets the clock of a store that was just opened, if it is a stateful one, to that of the state.
func (s *store) resumeClock() {
	if c, ok := s.clock.(statefulClock); ok {
		c.restore(s.carried)
	}
}
