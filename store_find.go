package main

// Finding tasks by values of their contexts, by the texts of their errors, and by a part of an id.

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
)

// The memory that errors take, in bytes, as measured.
const (
	errorBytes = 24 // of an error of a task
	textBytes  = 70 // of the text of an error, besides its length
)

// maxTaskErrors is how many different errors of a task are indexed.
const maxTaskErrors = 32

// contextValue is a value of a context, at a path. The text is that of a string, a number, true or false.
type contextValue struct{ path, text string }

// failureText is the text of errors, which errorTextOf made.
type failureText struct {
	text  string
	tasks int // that have it
}

// valueLabel returns the label of a value, which is the same for all its spellings.
func (x *taskIndex) valueLabel(path string, value []byte) uint64 {
	if value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 { // else it is spelled as normal has it
		value = newJSONValue(value).normal(nil)
	}
	return x.labelOf(labelValue, path, string(value))
}

// labelsOf returns the labels of a value: of a string, and of a number, true or false of that text.
func (x *taskIndex) labelsOf(v contextValue) []uint64 {
	labels := []uint64{x.valueLabel(v.path, appendJSONString(nil, v.text))}
	if raw := []byte(v.text); checkJSON(raw) == nil && bytes.IndexByte([]byte("0tf"), jsonKind(raw)) >= 0 {
		labels = append(labels, x.valueLabel(v.path, raw))
	}
	return labels
}

// fail adds an error of a task, by its text.
func (x *taskIndex) fail(in *trouble, text string) {
	known := x.texts[text]
	if len(in.errors) == maxTaskErrors || known != nil && slices.Contains(in.errors, known) {
		return
	}
	if known == nil {
		known = &failureText{text: text}
		x.texts[text] = known
		x.grow(textBytes + len(text))
	}
	known.tasks++
	x.grow(errorBytes)
	in.errors = append(in.errors, known)
}

func (x *taskIndex) forgetErrors(of *trouble) {
	for _, e := range of.errors {
		x.grow(-errorBytes)
		if e.tasks--; e.tasks == 0 {
			delete(x.texts, e.text)
			x.grow(-textBytes - len(e.text))
		}
	}
}

// troubled returns what has gone wrong in a task, to add to it.
func (x *slotTable) troubled(sl *slot) *trouble {
	if sl.trouble == nil {
		sl.trouble = &trouble{}
		sl.failures = sl.one[:0]
		x.marks[x.place(sl.seq)].trouble = sl.trouble
	}
	return sl.trouble
}

// fail adds an error of a task.
func (x *slotTable) fail(sl *slot, text string) { x.index.fail(x.troubled(sl), text) }

// finder finds tasks of a store.
type finder struct{ s *store }

func newFinder(s *store) finder { return finder{s} }

// taskSearch asks for what one walk over all tasks finds: by ids, by labels and by errors, up to limit of each.
type taskSearch struct {
	part  *idPart      // of an id; nil for none
	by    []taskFilter // each asks for one tag, trace, correlation of a parent, or value, or for nothing
	text  string       // in an error, in lower case; "" for none
	limit int
}

// foundTasks holds the results of a taskSearch, the newest first.
type foundTasks struct {
	own, others []foundID    // ids of tasks, and others
	having      [][]keptTask // by filter
	failed      []keptTask
}

// find looks for tasks. Ids other than those of tasks follow these, for declared steps and correlation, or creations name
// them. The beginning of such an id is mostly that of its task's.
func (f finder) find(q *taskSearch) (found foundTasks) {
	found.having = make([][]keptTask, len(q.by))
	lists, sieve, has, ids := map[uint64][]int{}, uint64(0), map[*failureText]bool{}, uint64(f.s.templates.mostIDs())
	for i := range q.by {
		for _, label := range slices.Concat(f.s.tasks.index.wantedLabels(&q.by[i])...) { // their seed never changes
			lists[label] = append(lists[label], i)
			sieve |= sieveOf(label)
		}
	}
	w := &taskWalk{states: anyState, newest: true}
	for at, sl := range f.s.each(w) {
		m := &f.s.tasks.marks[at]
		w.work += lookWork // it looks twice as long as a list
		if q.part != nil && (q.part.after(&m.id) < ids || q.part.begins(&m.id)) {
			found.addID(q, sl)
		}
		if m.sieve&sieve != 0 {
			for _, label := range m.labels {
				for _, i := range lists[label] {
					if len(found.having[i]) < q.limit {
						found.having[i] = append(found.having[i], sl.kept(f.s.clock.now()))
					}
				}
			}
		}
		if q.text != "" && m.trouble != nil && len(found.failed) < q.limit && m.hasError(q.text, has, w) {
			found.failed = append(found.failed, sl.kept(0))
		}
	}
	if q.part != nil {
		found.addNamed(q, f.s)
	}
	return found
}

// hasError reports whether an error of the task has a text. It looks at a text once, and keeps in has what it found.
func (in *trouble) hasError(text string, has map[*failureText]bool, w *taskWalk) bool {
	return slices.ContainsFunc(in.errors, func(e *failureText) bool {
		found, known := has[e]
		if !known {
			found = strings.Contains(e.text, text)
			has[e] = found
			w.work += lookWork + len(e.text)
		}
		return found
	})
}

// addID adds the id of a task, or one that follows it, if it begins or ends with the digits.
func (found *foundTasks) addID(q *taskSearch, sl *slot) {
	switch n, ok := sl.idWith(q.part); {
	case !ok:
	case n == 0 && len(found.own) < q.limit:
		found.own = append(found.own, foundID{task: sl.id})
	case n > 0 && len(found.others) < q.limit:
		found.others = append(found.others, foundID{task: sl.id, plus: n})
	}
}

// addNamed adds the ids of steps that creations name.
func (found *foundTasks) addNamed(q *taskSearch, s *store) {
	follow := len(found.others)
	s.locked(func() {
		for id, task := range s.tasks.byStep {
			if q.part.begins(&id) || q.part.ends(&id) {
				found.others = append(found.others, foundID{task: task, step: id})
			}
		}
	})
	slices.SortFunc(found.others[follow:], func(a, b foundID) int { return bytes.Compare(b.step[:], a.step[:]) })
	found.others = found.others[:min(q.limit, len(found.others))]
}

// shortestIDPart is how many digits of an id name it.
const shortestIDPart = 6

// idPart is digits at the beginning or at the end of an id.
type idPart struct{ head, headMask, tail, tailMask idHalves }

// idHalves are the halves of an id.
type idHalves struct{ high, low uint64 }

func halvesOf(id *uuid) idHalves {
	return idHalves{binary.BigEndian.Uint64(id[:]), binary.BigEndian.Uint64(id[8:])}
}

func newIDPart(digits string) *idPart {
	halves := func(digits string) idHalves {
		var id uuid
		hex.Decode(id[:], []byte(digits)) // they are digits
		return halvesOf(&id)
	}
	rest := strings.Repeat("0", 32-len(digits))
	mask := strings.Repeat("f", len(digits))
	return &idPart{halves(digits + rest), halves(mask + rest), halves(rest + digits), halves(rest + mask)}
}

func (p *idPart) begins(id *uuid) bool { return halvesOf(id).like(p.head, p.headMask) }

func (p *idPart) ends(id *uuid) bool { return halvesOf(id).like(p.tail, p.tailMask) }

// like reports whether an id has the digits in a mask.
func (h idHalves) like(digits, mask idHalves) bool {
	return h.high&mask.high == digits.high && h.low&mask.low == digits.low
}

// after returns how many places after an id the next id comes that may end with the part.
func (p *idPart) after(id *uuid) uint64 {
	return (p.tail.low - binary.BigEndian.Uint64(id[8:])) & p.tailMask.low
}

// foundID is an id that has the digits: the id that comes plus places after the task's own, which is 0 for the task
// itself.
type foundID struct {
	task uuid
	plus int
	step uuid // the id of a step that the task's creation names, in place of plus; else zero
}

func (f foundID) id() uuid { return cmp.Or(f.step, f.task.plus(f.plus)) }

// idWith returns the place, after the id of the task in a slot, of an id of it that begins or ends with some digits.
func (sl *slot) idWith(part *idPart) (n int, ok bool) {
	after := part.after(&sl.id)
	switch {
	case part.begins(&sl.id):
		return 0, true
	case after >= uint64(sl.tpl.ids()):
		return 0, false
	}
	id := sl.id.plus(int(after))
	return int(after), part.ends(&id)
}

// lettersWithIDPart returns up to limit entries of the dead letter queue whose ids begin or end with some digits, the
// newest first.
func (f finder) lettersWithIDPart(digits string, limit int) (found []dlqRow) {
	part := newIDPart(digits)
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	for _, r := range slices.Backward(f.s.dead.rows) {
		if !r.id.isZero() && (part.begins(&r.id) || part.ends(&r.id)) && len(found) < limit {
			found = append(found, *r)
		}
	}
	return found
}

// mostIDs returns the most ids that a task of one of the templates takes.
func (t *taskTemplates) mostIDs() (most int) {
	for _, tpl := range t.all() {
		most = max(most, tpl.ids())
	}
	return most
}

// byKeys returns the tasks of some identities and requests.
func (f finder) byKeys(identities []identityKey, requests []replayKey) (identified, requested []uuid) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	for _, k := range identities {
		if id, ok := f.s.tasks.identities[k]; ok {
			identified = append(identified, id)
		}
	}
	for _, k := range requests {
		if r := f.s.requests.kept[k]; r != nil && !r.dropped {
			requested = append(requested, r.task)
		}
	}
	return identified, requested
}

// listedByID returns those tasks with some ids that are still there.
func (f finder) listedByID(ids []uuid) (tasks []keptTask) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	now := f.s.clock.now()
	for _, id := range ids {
		if sl, ok := f.s.tasks.find(id); ok {
			tasks = append(tasks, sl.kept(now))
		}
	}
	return tasks
}
