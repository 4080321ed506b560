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
	tasks   []keptTask
	figures *frozenFigures
	offset  int64  // of the first record after it, in the file of the journal
	life    []byte // the line with which the life of this process continues after it, or nil

	subscribers [][]byte // their lines
	requests    []*droppedRequest
}

// keptTask is a task as it was at a moment or a little later.
type keptTask struct {
	line shortLine // of an ended one
	live *liveCut
}

// liveCut is an unfinished task: its header, and its log, which is only appended to.
type liveCut struct {
	head taskHeader
	tpl  *template
	log  []byte
}

// seq returns the record that the cut is as of.
func (cut *storeCut) seq() uint64 { return cut.header.seq }

// cutBatch is how many tasks a cut takes under the lock at a time.
const cutBatch = 256

// cut takes the state as of the newest record. Meanwhile no task is dropped; afterwards the cut keeps nothing from its
// course.
func (s *store) cut() *storeCut {
	tasks, _ := s.size()
	room := make([]keptTask, 0, tasks) // before the lock, because it may be large
	s.mu.Lock()
	cut := &storeCut{
		header: storeHeader{
			format: storeFormat, store: s.journal.of.id, key: s.tasks.index.failures.key, seq: s.seq,
			dropped: s.retain.dropped, lastID: s.tasks.lastID, extent: s.events.extentLocked(),
		},
		lives: s.lives.upTo(s.seq), tasks: room, figures: s.analytics.freeze(), offset: s.journal.groups.offset(),
		life: s.journal.groups.lifeAfter(s.seq), requests: s.requests.order, subscribers: s.events.domain.linesLocked(),
	}
	if c, ok := s.clock.(statefulClock); ok {
		cut.header.clock = c.state() // which moves under this lock alone
	} else if s.clock == nil { // a store that is only read
		cut.header.clock = s.carried
	}
	count := len(s.tasks.slots)
	s.retain.holdLocked()
	s.mu.Unlock()
	defer s.retain.release()
	for from := 0; from < count; {
		to := min(from+cutBatch, count)
		s.locked(func() { cut.keepTasks(&s.tasks, from, to) })
		from = to
	}
	cut.header.tasks = len(cut.tasks)
	return cut
}

// keepTasks adds the tasks at positions from up to to.
func (cut *storeCut) keepTasks(x *slotTable, from, to int) {
	for pos := from; pos < to; pos++ {
		switch sl := &x.slots[pos]; {
		case sl.live != nil:
			t := sl.live
			// Later records go behind the log or into another one, so it can be read without the lock.
			cut.tasks = append(cut.tasks, keptTask{live: &liveCut{t.header(), t.tpl, t.log[:len(t.log):len(t.log)]}})
		case sl.line != nil:
			cut.tasks = append(cut.tasks, keptTask{line: sl.line})
		}
	}
}

// write writes the compacted part. It lets go of each task, which may be dropped and collected during a long export.
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
	err := untilError(
		func() error { return s.templates.writeLines(w.line) },
		func() error { return cut.figures.writeLines(cut.header.seq, w.line) },
		func() error { return s.requests.writeLines(cut.requests, w.line) },
	)
	for i := 0; i < len(cut.tasks) && err == nil; i++ {
		room, err = s.templates.appendTaskAt(room[:0], &cut.tasks[i], cut.header.seq)
		cut.tasks[i] = keptTask{}
		if err == nil {
			err = w.line(room[:len(room)-1])
		}
	}
	if err != nil {
		return err
	}
	return w.end()
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

// appendTaskAt appends the line of a task without the records after a sequence. The task was created by then.
func (t *taskTemplates) appendTaskAt(b []byte, k *keptTask, seq uint64) ([]byte, error) {
	l := k.live
	if l == nil {
		line := k.line.appendTo(b)
		h, err := readTaskHead(line[len(b):])
		if err != nil || h.lastSeq <= seq {
			return line, err
		}
		l = &liveCut{h, t.find(h.template), h.log[1 : len(h.log)-1]}
	} else if l.head.lastSeq <= seq {
		return l.head.appendLine(b, l.log), nil
	}
	log, err := logUpTo(l.log, seq)
	if err != nil {
		return nil, err
	}
	was, err := replayRecords(l.head.id, l.tpl, log, unobserved{})
	if err != nil {
		return nil, err
	}
	return was.appendTaskLine(nil), nil
}

// logUpTo returns a log, whose records are separated by commas, up to a sequence.
func logUpTo(log []byte, seq uint64) ([]byte, error) {
	for from, kept := 0, 0; ; {
		end := skipJSONValue(log, from)
		r, err := decodeRecord(log[from:end])
		if err != nil || r.seq > seq {
			return log[:kept:kept], err
		}
		if end == len(log) {
			return log, nil
		}
		from, kept = end+1, end
	}
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
