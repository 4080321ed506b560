package main

// Finding tasks by values of their contexts, by the texts of their errors, and by a part of an id.

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
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

// eachValue calls f with the label of each value by which a task is found.
func (x *taskIndex) eachValue(by *creation, f func(label uint64)) {
	if by.search == nil {
		return
	}
	eachMemberBytes(by.search, func(path, value []byte) bool {
		f(x.valueLabel(string(path), value))
		return true
	})
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

// forgetErrors removes the errors of a task.
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

// withValues returns up to limit tasks with each of some values, the newest first.
func (f finder) withValues(all []contextValue, limit int) [][]keptTask {
	found, wanted, now, sieve := make([][]keptTask, len(all)), map[uint64][]int{}, f.s.clock.now(), uint64(0)
	for i, v := range all {
		for _, label := range f.s.tasks.index.labelsOf(v) { // the seed of labels never changes
			wanted[label] = append(wanted[label], i)
			sieve |= sieveOf(label)
		}
	}
	for at, sl := range f.s.each(&taskWalk{states: anyState, newest: true}) {
		marks := &f.s.tasks.marks[at]
		if marks.sieve&sieve == 0 {
			continue
		}
		for _, label := range marks.labels[len(marks.labels)-int(sl.values):] {
			for _, i := range wanted[label] {
				if len(found[i]) < limit {
					found[i] = append(found[i], sl.kept(now))
				}
			}
		}
	}
	return found
}

// withError returns up to limit tasks with a text in an error, the newest first.
func (f finder) withError(text string, limit int) (all []keptTask) {
	has := map[*failureText]bool{}
	w := &taskWalk{states: anyState, newest: true}
	for at, sl := range f.s.each(w) {
		in := f.s.tasks.marks[at].trouble
		if in == nil || !slices.ContainsFunc(in.errors, func(e *failureText) bool {
			found, known := has[e]
			if !known {
				found = strings.Contains(e.text, text)
				has[e] = found
				w.work += lookWork + len(e.text)
			}
			return found
		}) {
			continue
		}
		if all = append(all, sl.kept(0)); len(all) == limit {
			break
		}
	}
	return all
}

// shortestIDPart is how many digits of an id name it.
const shortestIDPart = 6

// idPart is digits at the beginning or at the end of an id. Up to 16 of them are compared as numbers, before all are.
type idPart struct {
	digits      string
	first, last uint64
	shift       int    // of the first half of an id
	mask        uint64 // of the second
}

func newIDPart(digits string) idPart {
	n := min(len(digits), 16)
	first, _ := strconv.ParseUint(digits[:n], 16, 64)
	last, _ := strconv.ParseUint(digits[len(digits)-n:], 16, 64)
	return idPart{digits, first, last, 64 - 4*n, 1<<(4*n) - 1}
}

func (p *idPart) begins(id *uuid) bool {
	return binary.BigEndian.Uint64(id[:])>>p.shift == p.first && strings.HasPrefix(hex.EncodeToString(id[:]), p.digits)
}

func (p *idPart) ends(id *uuid) bool {
	return p.after(id) == 0 && strings.HasSuffix(hex.EncodeToString(id[:]), p.digits)
}

// after returns how many places after an id the next id comes that may end with the part.
func (p *idPart) after(id *uuid) uint64 { return (p.last - binary.BigEndian.Uint64(id[8:])) & p.mask }

// foundID is an id that has the digits: the id that comes plus places after the task's own, which is 0 for the task
// itself.
type foundID struct {
	task uuid
	plus int
	step uuid // the id of a step that the task's creation names, in place of plus; else zero
}

// id returns the id.
func (f foundID) id() uuid { return cmp.Or(f.step, f.task.plus(f.plus)) }

// withIDPart returns up to limit ids of tasks, and up to limit others of those which follow them, for declared steps
// and correlation, or which their creations name, that begin or end with some digits, the newest first. The beginning
// of such an id is mostly that of its task's.
func (f finder) withIDPart(digits string, limit int) (own, others []foundID) {
	part, ids := newIDPart(digits), uint64(f.s.templates.mostIDs())
	for at, sl := range f.s.each(&taskWalk{states: anyState, newest: true}) {
		if id := &f.s.tasks.marks[at].id; part.after(id) >= ids && !part.begins(id) {
			continue
		}
		switch n, ok := sl.idWith(&part); {
		case !ok:
		case n == 0 && len(own) < limit:
			own = append(own, foundID{task: sl.id})
		case n > 0 && len(others) < limit:
			others = append(others, foundID{task: sl.id, plus: n})
		}
	}
	follow := len(others)
	f.s.locked(func() {
		for id, task := range f.s.tasks.byStep {
			if part.begins(&id) || part.ends(&id) {
				others = append(others, foundID{task: task, step: id})
			}
		}
	})
	slices.SortFunc(others[follow:], func(a, b foundID) int { return bytes.Compare(b.step[:], a.step[:]) })
	return own, others[:min(limit, len(others))]
}

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
