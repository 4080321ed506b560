package wire

// What readers of the event stream receive, for comparisons with the histories of tasks.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
)

// Mark is one transition, with a hash of its members.
type Mark struct {
	Seq uint64
	N   int
	Sum uint64
}

// NewMark returns the mark of what has a place in the order of all, and members.
func NewMark(seq uint64, n int, members ...any) Mark {
	h := fnv.New64a()
	fmt.Fprintln(h, members...)
	return Mark{seq, n, h.Sum64()}
}

// Compare compares the places of two marks.
func (m Mark) Compare(o Mark) int {
	return cmp.Or(cmp.Compare(m.Seq, o.Seq), cmp.Compare(m.N, o.N))
}

// Move is one transition, as in the stream and in the histories.
type Move struct {
	Seq       uint64 `json:"seq"`
	Sequence  uint64 `json:"sequence"`
	N         int    `json:"n"`
	At        string `json:"recorded_at"`
	Task      string `json:"task_uuid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Step      string `json:"step_uuid"`
	StepName  string `json:"step_name"`
	From      string `json:"from_state"`
	To        string `json:"to_state"`
	Attempt   int    `json:"attempt"`
}

// Mark returns the mark of the transition.
func (v *Move) Mark() Mark {
	return NewMark(v.Seq, v.N, v.Task, v.Namespace, v.Name, v.Step, v.StepName, v.From, v.To, v.Attempt, v.At)
}

// Marks holds the transitions that a reader of the event stream received, each once.
type Marks struct {
	All      []Mark
	LastID   uint64
	LastMark string // the id with this number
	Repeated int
	Over     bool // the end of a task named sentinel was seen
}

// Take adds complete events.
func (m *Marks) Take(text string) error {
	events, lastID := ParseEvents(text)
	for _, e := range events {
		var v Move
		if err := json.Unmarshal([]byte(e.Data), &v); err != nil || e.Type == "gap" {
			return fmt.Errorf("%w in %+v", err, e)
		}
		if err := m.Add(v.Mark()); err != nil {
			return err
		}
		m.Over = m.Over || v.Name == "sentinel" && v.Step == "" && v.To == "complete"
	}
	if lastID > m.LastID {
		m.LastID, m.LastMark = lastID, LastMark(text)
	}
	return nil
}

// Add adds a mark that is later than all others, or checks that it is one of them.
func (m *Marks) Add(next Mark) error {
	if len(m.All) == 0 || m.All[len(m.All)-1].Compare(next) < 0 {
		m.All = append(m.All, next)
		return nil
	}
	m.Repeated++
	i, found := slices.BinarySearchFunc(m.All, next, Mark.Compare)
	if !found || m.All[i] != next || next.Seq <= m.LastID && m.LastID < m.All[len(m.All)-1].Seq {
		return fmt.Errorf("%d.%d came after %d.%d, with the id %d", next.Seq, next.N,
			m.All[len(m.All)-1].Seq, m.All[len(m.All)-1].N, m.LastID)
	}
	return nil
}
