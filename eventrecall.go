package main

// How the event log is made again while a store is read: from the journal's
// records as they are applied, and before them from the logs in the snapshot's
// lines, of which the snapshot says how far back they were held.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// eventsHead is how the snapshot's line about the event log begins.
const eventsHead = `{"events_after":`

// appendEventsLine is that line, without its closing brace: the moves of all
// records later than the sequence were held.
func appendEventsLine(b []byte, lost uint64) []byte {
	return fmt.Appendf(b, `%s%d`, eventsHead, lost)
}

// recollector collects the moves of the snapshot's tasks, and gives them to the
// log in the order of their records.
type recollector struct {
	known bool   // the snapshot says how far back
	after uint64 // moves of later records are held
	moves []move // not in the log yet
	begun bool   // the last line of the snapshot was read
}

// line takes what appendEventsLine wrote.
func (c *recollector) line(text []byte) error {
	var v struct {
		After *uint64 `json:"events_after"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || v.After == nil {
		return fmt.Errorf("events: %.80q is not what the event log held", text)
	}
	if c.known {
		return fmt.Errorf("what the event log held stands there twice")
	}
	c.known, c.after = true, *v.After
	return nil
}

// wants reports whether a task whose newest record this is has moves to collect.
func (c *recollector) wants(lastSeq uint64) bool { return c.known && lastSeq > c.after }

// recall gives the log the collected moves of the records up to seq.
func (c *recollector) recall(log *eventLog, seq uint64) {
	if !c.begun {
		c.begin(log, seq)
	}
	n := 0
	for n < len(c.moves) && c.moves[n].seq <= seq {
		log.add(c.moves[n])
		n++
	}
	c.moves = c.moves[n:]
}

// begin puts in order what was collected, before the first record after seq.
func (c *recollector) begin(log *eventLog, seq uint64) {
	c.begun = true
	if !c.known {
		c.after = seq
	}
	log.lost = c.after
	slices.SortFunc(c.moves, func(a, b move) int {
		return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.n, b.n))
	})
}

// passOver notes a record of the journal that is not applied, because the line of
// its task has it: its moves were collected, or are lost.
func (c *recollector) passOver(log *eventLog, seq uint64) {
	if !c.known {
		log.forget(seq)
	}
}

// lineReplay follows the replay of a snapshot's line: for the figures, and for
// the event log.
type lineReplay struct {
	figures replayer
	keeper  *recollector
	maker   *moveMaker
}

func (r *lineReplay) begin(t *task, rec *record) {
	r.figures.begin(t, rec)
	r.maker.begin(t, rec)
}

func (r *lineReplay) taskMoved(t *task, from, to taskState, at instant) {
	r.figures.taskMoved(t, from, to, at)
	r.keep(r.maker.taskMove(t, from, to, at))
}

func (r *lineReplay) stepMoved(t *task, i int, from, to stepState, at instant) {
	r.figures.stepMoved(t, i, from, to, at)
	r.keep(r.maker.stepMove(t, i, from, to, at))
}

func (r *lineReplay) keep(m move) {
	if r.keeper.wants(m.seq) {
		r.keeper.moves = append(r.keeper.moves, m)
	}
}
