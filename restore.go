package main

// Recovery: the store made again from its snapshot and journal, through the
// same apply that made it the first time; and the writing of snapshots.

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
)

// restorer feeds a store that nobody uses yet.
type restorer struct {
	s      *store
	events recollector
}

// snapshotLine takes one line of the snapshot: a template, figures, or a task.
func (l *restorer) snapshotLine(line []byte) error {
	return l.line(cutSum(line))
}

// line takes such a line without its checksum.
func (l *restorer) line(line []byte) error {
	if bytes.HasPrefix(line, []byte(`{"hash":`)) {
		return l.templateLine(line)
	}
	if bytes.HasPrefix(line, []byte(figuresHead)) {
		return l.figuresLine(line)
	}
	if bytes.HasPrefix(line, []byte(droppedHead)) {
		return l.droppedLine(line)
	}
	if bytes.HasPrefix(line, []byte(eventsHead)) {
		return l.eventsLine(line)
	}
	h, err := readTaskHeader(line)
	if err != nil {
		return err
	}
	tpl := l.s.template(h.template)
	if tpl == nil {
		return fmt.Errorf("task %s: its template %s does not stand before it", h.id, h.template)
	}
	if _, twice := l.s.byID[h.id]; twice {
		return fmt.Errorf("task %s stands there twice", h.id)
	}
	r, err := h.creationRecord()
	if err != nil {
		return err
	}
	l.s.seq = max(l.s.seq, h.lastSeq)
	pos := l.s.enter(h.id, slot{line: line}, tpl, r.created)
	l.s.requests.add(r.created.request, h.id, h.created)
	l.s.tookID(h.lastID)
	l.s.index.move(pos, taskPending, h.state, l.s.slots[pos].in)
	for s, n := range h.counts {
		l.s.index.steps[s] += n
	}
	for _, row := range appendDLQRows(nil, h.id, h.dead) {
		l.s.dead.add(row)
	}
	l.s.retain.note(&l.s.slots[pos], h.id, finishedAt(h.state, h.completed, h.dead))
	t, err := l.replayed(&h, tpl)
	if err != nil || h.state.ended() {
		return err
	}
	t.pos, t.indexed = pos, t.state
	l.s.slots[pos].live, l.s.slots[pos].line = t, nil
	return nil
}

// replayed is the task of a line, or nil where nobody needs it: it is ended, the
// figures count all of it, and the event log holds nothing of it. The records
// that the figures do not count yet, later than what the snapshot covers, are
// counted here: the journal has them too, but record passes them over.
func (l *restorer) replayed(h *taskHeader, tpl *template) (*task, error) {
	var obs replayer = unobserved{}
	uncounted, recent := h.lastSeq > l.s.analytics.covered, l.events.wants(h.lastSeq)
	if uncounted {
		obs = l.s.analytics
	}
	if recent {
		obs = &lineReplay{figures: obs, keeper: &l.events, maker: &l.s.events.maker}
	}
	if h.state.ended() && !uncounted && !recent {
		return nil, nil
	}
	return h.replay(tpl, obs)
}

// eventsLine takes what the event log held. It stands before the tasks.
func (l *restorer) eventsLine(line []byte) error {
	if len(l.s.slots) > 0 {
		return fmt.Errorf("what the event log held stands after a task")
	}
	return l.events.line(line)
}

// figuresLine takes figures. They stand before the tasks, and all are as of the
// sequence that the snapshot covers.
func (l *restorer) figuresLine(line []byte) error {
	if len(l.s.slots) > 0 {
		return fmt.Errorf("figures stand after a task")
	}
	return l.s.analytics.load(line)
}

// templateLine takes {"hash":"…","definition":{…}}.
func (l *restorer) templateLine(line []byte) error {
	var d recordDecoder
	d.r = &record{}
	eachMemberBytes(line, d.member)
	if d.err != nil {
		return d.err
	}
	return l.template(d.r)
}

func (l *restorer) template(r *record) error {
	tpl, err := templateFromNormalized(r.definition)
	if err != nil {
		return fmt.Errorf("template %s: %w", r.hash, err)
	}
	if tpl.hash != r.hash {
		return fmt.Errorf("template %s has the hash %s", r.hash, tpl.hash)
	}
	l.s.keepTemplate(tpl)
	return nil
}

// record takes one line of the journal.
func (l *restorer) record(seq uint64, line []byte) error {
	r, err := decodeRecord(line)
	if err != nil {
		return err
	}
	s := l.s
	s.seq = max(s.seq, seq)
	l.events.recall(&s.events, seq-1)
	switch r.kind {
	case recTemplate:
		return l.template(r)
	case recCreated:
		return l.created(r)
	case recDropped:
		return l.dropped(r)
	}
	pos, ok := s.byID[r.task]
	if !ok {
		return fmt.Errorf("it is about task %s, which was never created", r.task)
	}
	t := s.slots[pos].live
	if t == nil {
		if t, err = s.thawAt(pos); err != nil {
			return err
		}
	}
	if seq <= t.lastSeq {
		l.events.passOver(&s.events, seq)
		return nil // the snapshot has it already
	}
	return l.apply(t, r)
}

func (l *restorer) created(r *record) error {
	s := l.s
	if _, ok := s.byID[r.task]; ok {
		l.events.passOver(&s.events, r.seq)
		return nil // the snapshot has it already
	}
	tpl := s.template(r.created.template)
	if tpl == nil {
		return fmt.Errorf("its template %s was never recorded", r.created.template)
	}
	t := newTask(r, tpl)
	t.pos = s.enter(t.id, slot{live: t}, tpl, r.created)
	s.requests.add(r.created.request, t.id, r.at)
	return l.apply(t, r)
}

// dropped drops a task as it was dropped before.
func (l *restorer) dropped(r *record) error {
	pos, ok := l.s.byID[r.task]
	if !ok || l.s.slots[pos].finished == 0 {
		return fmt.Errorf("it drops task %s, which is not there or not finished", r.task)
	}
	return l.s.leave(pos)
}

func (l *restorer) apply(t *task, r *record) error {
	t.appendLog(r)
	l.s.begin(t, r)
	if err := t.apply(r, l.s); err != nil {
		return err
	}
	if !r.ids.isZero() {
		l.s.tookID(t.plan.lastID())
	}
	l.s.settle(t)
	return nil
}

// droppedHead is how the line begins that tells of dropped tasks:
//
//	{"dropped":12,"last_id":"…"}
//
// The id is the greatest that a task ever took, which may have been dropped.
const droppedHead = `{"dropped":`

// droppedLine is that line without its closing brace; nil while nothing was dropped.
func (s *store) droppedLine() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retain.dropped == 0 {
		return nil
	}
	b := strconv.AppendUint([]byte(droppedHead), s.retain.dropped, 10)
	return appendID(b, "last_id", s.lastID)
}

func (l *restorer) droppedLine(line []byte) error {
	var d recordDecoder
	d.members(line, func(key string, value []byte) {
		switch key {
		case "dropped":
			l.s.retain.dropped = uint64(d.number(value))
		case "last_id":
			l.s.tookID(d.id(value))
		default:
			d.err = fmt.Errorf("unknown member %q, from a newer version", key)
		}
	})
	return d.err
}

// snapshotBatch is how many tasks a snapshot takes at a time under the lock.
const snapshotBatch = 256

// keepSmall writes a snapshot whenever the journal has grown enough, until ctx
// ends. One that fails is tried again when the journal has grown further.
func (s *store) keepSmall(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.full:
		}
		if !s.journal.snapshotDue() {
			continue
		}
		if err := s.snapshot(); err != nil {
			s.log.Warn("the snapshot could not be written; the journal goes on", "error", err)
		}
	}
}

// snapshot writes every task, in batches, beside the running service. A line
// may be newer than the sequence the snapshot covers: it carries its own. The
// figures are as of that sequence to the record.
func (s *store) snapshot() error {
	w, err := s.journal.startSnapshot()
	if err != nil {
		return err
	}
	s.mu.Lock()
	covered := w.cut()
	count, figures, missing := len(s.slots), s.analytics.freeze(), s.events.missing()
	s.holdLocked()
	s.mu.Unlock()
	defer s.release()
	err = w.add(appendEventsLine(nil, missing))
	if err == nil {
		err = s.writeSnapshot(w, count, figures, covered)
	}
	if err != nil {
		w.abort()
		return err
	}
	return w.commit()
}

func (s *store) writeSnapshot(w *snapshotWriter, count int, figures *frozenFigures, covered uint64) error {
	if err := s.writeTemplates(w.add); err != nil {
		return err
	}
	if err := figures.writeLines(covered, w.add); err != nil {
		return err
	}
	if line := s.droppedLine(); line != nil {
		if err := w.add(line); err != nil {
			return err
		}
	}
	lines := make([][]byte, 0, snapshotBatch)
	for from := 0; from < count; from += snapshotBatch {
		lines = s.lineBatch(lines[:0], from, min(from+snapshotBatch, count))
		for _, line := range lines {
			if err := w.add(line[:len(line)-1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeTemplates gives every template's line to add, without its closing brace.
func (s *store) writeTemplates(add func(line []byte) error) error {
	var buf []byte
	for _, tpl := range s.allTemplates() {
		buf = append(append(buf[:0], `{"hash":"`...), tpl.hash...)
		buf = append(append(buf, `","definition":`...), tpl.json...)
		if err := add(buf); err != nil {
			return err
		}
	}
	return nil
}

// allTemplates is all templates that tasks refer to, in the order of their hashes.
func (s *store) allTemplates() []*template {
	s.templatesMu.RLock()
	defer s.templatesMu.RUnlock()
	all := make([]*template, 0, len(s.templates))
	for _, t := range s.templates {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *template) int { return cmp.Compare(a.hash, b.hash) })
	return all
}

// lineBatch takes the lock for one batch of lines.
func (s *store) lineBatch(lines [][]byte, from, to int) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := from; i < to; i++ {
		line := s.slots[i].line
		if live := s.slots[i].live; live != nil {
			line = live.appendTaskLine(nil)
		}
		if line != nil {
			lines = append(lines, line)
		}
	}
	return lines
}
