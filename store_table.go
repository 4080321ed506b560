package main

// The table of tasks, in the order of creation. It finds a task by its id. Walks go over the tasks in batches,
// between which the lock is free, and a cut has all tasks as of one moment.

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
)

// slot is the place of one task: of a live one, or of one that is over. A task gets another slot when it ends,
// when it continues, and when anything changes after its end. So the slot of an ended task never changes, and whoever
// has it may read it without the lock, also after the task was dropped.
type slot struct {
	taskHeader          // as of the latest change
	live       *task    // nil once the task is over
	log        shortLog // of a task that is over
	finished   instant  // for retention; 0 before
	slotLabels
}

// slotTable holds every task, and finds it. The store's mutex guards it.
type slotTable struct {
	// In the order of creation, for each task that was not dropped long ago:
	slots     []*slot     // nil for a dropped one
	seqs      []uint64    // of the creations
	kinds     []slotKind  // what lists ask for most often
	marks     []taskMarks // what other lists ask for
	gone      int         // dropped ones among them
	goneFloor int         // how many of these are not worth a new table
	moved     int         // how often the tasks got other places here

	byID       map[uuid]*slot
	identities map[identityKey]uuid // tasks by what deduplicates them
	byStep     map[uuid]uuid        // tasks by the ids of steps that their creations name
	lastID     uuid                 // the greatest id that a task ever took
	index      taskIndex

	room []byte // for the log of a task that ends
}

// slotKind is the number of a template and a state; 0 for a dropped task.
type slotKind uint32

func (k slotKind) template() int    { return int(k >> 4) }
func (k slotKind) state() taskState { return taskState(k & 15) }

// taskMarks is what lists find and order tasks by without a look at each slot, which would take several times as long.
type taskMarks struct {
	id                          uuid
	created, updated, completed instant
	priority                    int32
	sieve                       uint64   // a bit for each label: most tasks without a wanted one lack its bit
	labels                      []uint64 // hashes of what the task is found by besides its state and template
	*trouble                             // that of the slot
}

// insert gives a task its place.
func (x *slotTable) insert(sl *slot, by *creation) {
	marks := taskMarks{sl.id, sl.created, sl.updated, sl.completed, int32(by.priority), 0, x.index.label(sl, by), nil}
	for _, label := range marks.labels {
		marks.sieve |= sieveOf(label)
	}
	at := len(x.seqs)
	if at > 0 && sl.seq <= x.seqs[at-1] { // a file that something else wrote
		at, _ = slices.BinarySearch(x.seqs, sl.seq)
	}
	x.slots = slices.Insert(x.slots, at, sl)
	x.seqs = slices.Insert(x.seqs, at, sl.seq)
	x.kinds = slices.Insert(x.kinds, at, x.index.kind(sl.tpl, sl.state))
	x.marks = slices.Insert(x.marks, at, marks)
	x.byID[sl.id] = sl
	if by.identity != (identityKey{}) {
		x.identities[by.identity] = sl.id
	}
	x.index.count(x.kinds[at], 1)
	x.noteID(sl.id.plus(sl.tpl.ids() - 1)) // declared steps and the correlation have the ids that follow
	for _, step := range by.steps {
		if !step.isZero() {
			x.noteID(step)
			x.byStep[step] = sl.id
		}
	}
}

// place returns where the task with a creation of this sequence is, or would be.
func (x *slotTable) place(seq uint64) int {
	at, _ := slices.BinarySearch(x.seqs, seq)
	return at
}

// slotAt returns the slot of the task with a creation of this sequence, or nil.
func (x *slotTable) slotAt(seq uint64) *slot {
	if at := x.place(seq); at < len(x.seqs) && x.seqs[at] == seq {
		return x.slots[at]
	}
	return nil
}

// replace gives a task another slot, or notes that its own changed.
func (x *slotTable) replace(sl *slot) {
	at := x.place(sl.seq)
	x.marks[at].updated, x.marks[at].completed = sl.updated, sl.completed
	if kind := x.index.kind(sl.tpl, sl.state); kind != x.kinds[at] {
		x.index.count(x.kinds[at], -1)
		x.index.count(kind, 1)
		x.kinds[at] = kind
	}
	if x.slots[at] != sl {
		x.slots[at], x.byID[sl.id] = sl, sl
	}
}

// remove removes a task. Once half of the table is gone, the rest moves to a new one.
func (x *slotTable) remove(sl *slot) {
	at := x.place(sl.seq)
	x.index.count(x.kinds[at], -1)
	x.index.unlabel(sl, x.marks[at].labels)
	x.slots[at], x.kinds[at], x.marks[at] = nil, 0, taskMarks{}
	delete(x.byID, sl.id)
	if x.gone++; x.gone <= x.goneFloor+len(x.slots)/2 {
		return
	}
	x.slots, x.seqs, x.marks = keepPlaces(x, x.slots), keepPlaces(x, x.seqs), keepPlaces(x, x.marks)
	x.kinds = keepPlaces(x, x.kinds) // the last, because it says which are kept
	x.gone = 0
	x.moved++
}

// keepPlaces returns what a column has for tasks that were not dropped.
func keepPlaces[T any](x *slotTable, column []T) []T {
	kept := make([]T, 0, len(x.byID)+len(x.byID)/4)
	for at, kind := range x.kinds {
		if kind != 0 {
			kept = append(kept, column[at])
		}
	}
	return kept
}

func (x *slotTable) find(id uuid) (sl *slot, ok bool) {
	sl, ok = x.byID[id]
	return sl, ok
}

func (x *slotTable) slotOf(t *task) *slot { return x.slots[x.place(t.seq)] }

// noteID keeps the greatest id. A task that gets new steps takes more ids later, so the newest task need not have it.
func (x *slotTable) noteID(id uuid) {
	if bytes.Compare(id[:], x.lastID[:]) > 0 {
		x.lastID = id
	}
}

// taskOf returns the task in a slot to be changed; it decodes one that is over. The table keeps the slot
// until the task is reindexed.
func (x *slotTable) taskOf(sl *slot) (*task, error) {
	if sl.live != nil {
		return sl.live, nil
	}
	return sl.replay(unobserved{})
}

// Walks over all tasks.

// watchedStates are the states in which a task can become stale.
var watchedStates = setOf(taskStepsInProcess, taskWaitingForDependencies, taskWaitingForRetry, taskBlockedByFailures)

// taskWalk goes over the tasks in some states, in the order of creation. It passes over what was dropped, and
// may find the tasks that were created meanwhile.
type taskWalk struct {
	states    stateSet
	templates []bool // by number: those whose tasks it looks at; nil for all
	newest    bool   // whether the newest task comes first
	begun     bool
	at        uint64 // the sequence up to which it got
	work      int    // since the lock was taken; whoever looks long at a task adds to it
	done      bool
}

// What a walk does under the lock at a time: it takes less than a millisecond.
const (
	walkWork = 400_000
	lookWork = 40  // for a task that it looks at; 1 for one that it passes over
	stepWork = 100 // for a step that is looked at
)

// batch returns the places of the next tasks, and their slots, to a caller that holds the lock and may change them.
func (w *taskWalk) batch(x *slotTable) iter.Seq2[int, *slot] {
	return func(yield func(at int, sl *slot) bool) {
		w.work = 0
		at, moved := w.start(x), x.moved
		for ; w.work < walkWork; at += w.step() {
			if at < 0 || at >= len(x.slots) {
				w.done = true
				return
			}
			w.work++
			w.at = x.seqs[at]
			if !w.wants(x.kinds[at]) {
				continue
			}
			w.work += lookWork
			if !yield(at, x.slots[at]) {
				w.done = true
				return
			}
			if x.moved != moved {
				at, moved = w.start(x)-w.step(), x.moved
			}
		}
	}
}

// pass passes over up to most tasks, and returns how many these were.
func (w *taskWalk) pass(x *slotTable, most int) (passed int) {
	at := w.start(x)
	for ; passed < most && at >= 0 && at < len(x.kinds); at += w.step() {
		if w.wants(x.kinds[at]) {
			passed++
			w.at = x.seqs[at]
		}
	}
	w.done = passed < most
	return passed
}

func (w *taskWalk) step() int {
	if w.newest {
		return -1
	}
	return 1
}

// start returns the place of the next task.
func (w *taskWalk) start(x *slotTable) int {
	switch {
	case !w.begun && w.newest:
		w.begun = true
		return len(x.slots) - 1
	case w.newest:
		return x.place(w.at) - 1
	}
	return x.place(w.at + 1)
}

func (w *taskWalk) wants(k slotKind) bool {
	return k != 0 && w.states.has(k.state()) && (w.templates == nil || w.templates[k.template()])
}

// each returns all tasks of a walk, as batch does. It takes the lock for one batch at a time; the loop's body holds it.
func (s *store) each(w *taskWalk) iter.Seq2[int, *slot] {
	return func(yield func(at int, sl *slot) bool) {
		for !w.done {
			s.locked(func() { w.batch(&s.tasks)(yield) })
		}
	}
}

// eachLive calls f for every unfinished task, in the order of creation.
func (x *slotTable) eachLive(f func(t *task)) {
	for at, kind := range x.kinds {
		if kind != 0 && x.slots[at].live != nil {
			f(x.slots[at].live)
		}
	}
}

// eachToResume calls f for every unfinished task, and with a copy of every task that went to error with a step in
// progress or waiting for a retry, in the order of creation.
func (x *slotTable) eachToResume(f func(t *task)) error {
	for at, kind := range x.kinds {
		sl := x.slots[at]
		if kind == 0 || sl.live == nil && (kind.state() != taskError || sl.counts[stepInProgress]+sl.counts[stepWaitingForRetry] == 0) {
			continue
		}
		t, err := x.taskOf(sl)
		if err != nil {
			return err
		}
		f(t)
	}
	return nil
}

// eachInError calls f for every task that may have a step in error: for live ones under the lock.
func (s *store) eachInError(f func(t *task)) error {
	var ended []*slot
	w := &taskWalk{states: setOf(taskBlockedByFailures, taskError)}
	for _, sl := range s.each(w) {
		if sl.live == nil {
			ended = append(ended, sl)
			continue
		}
		w.work += stepWork * len(sl.live.steps)
		f(sl.live)
	}
	for _, sl := range ended {
		if sl.counts[stepInError] == 0 {
			continue
		}
		t, err := sl.replay(unobserved{})
		if err != nil {
			return fmt.Errorf("looking at failed steps: %w", err)
		}
		f(t)
	}
	return nil
}

// taskCut is all tasks as of one moment, in the order of creation, in slots that never change.
type taskCut []*slot

// cutLocked returns all tasks as they are now. Nobody has to wait for whoever reads them. room has been made before
// the lock was taken, because it may be large.
func (s *store) cutLocked(room []*slot) taskCut {
	cut := append(room, s.tasks.slots...)
	for i, kind := range s.tasks.kinds { // without a look at each slot
		if kind != 0 && !kind.state().ended() {
			cut[i] = cut[i].frozen()
		}
	}
	return cut
}

// frozen returns the slot of a live task as if the task were over: with its log, which is only appended to.
func (sl *slot) frozen() *slot {
	f := &slot{taskHeader: sl.taskHeader, log: shortLog(sl.live.log[:len(sl.live.log):len(sl.live.log)])}
	f.dead = slices.Clone(f.dead)
	return f
}

// lines returns the lines of the tasks, each until the next. It lets go of each task, which may be dropped and collected
// during a long export.
func (cut taskCut) lines() iter.Seq[[]byte] {
	return func(yield func(line []byte) bool) {
		var room []byte
		for i, sl := range cut {
			if cut[i] = nil; sl == nil {
				continue
			}
			if room = sl.appendLine(room[:0]); !yield(room) {
				return
			}
		}
	}
}

// appendLine appends the line of a task that is over.
func (sl *slot) appendLine(b []byte) []byte {
	return append(sl.log.appendTo(sl.appendHead(b)), "]}"...)
}

// replay decodes a task that is over, and notifies an observer of each record and transition.
func (sl *slot) replay(obs replayer) (*task, error) {
	return replayRecords(sl.id, sl.tpl, sl.log.text(), obs)
}

// creation returns what a task that is over was created with.
func (sl *slot) creation() (*creation, error) {
	r, err := creationIn(sl.log.text())
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", sl.id, err)
	}
	return r.created, nil
}
