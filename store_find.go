package main

// Finding tasks by values of their contexts, by the texts of their errors, and by a part of an id.
// What values and errors take of the memory is bounded: beyond it they are not indexed.

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strings"
)

// The memory that the index of values and errors takes, in bytes, as measured.
const (
	foundValueBytes = 40 // of a value of a context
	errorBytes      = 90 // of an error of a task
	textBytes       = 60 // of the text of an error, besides its length

	findMemory    = 64 << 20 // limit of a store for which the options set none
	maxErrorTexts = 8 << 20  // texts of errors: a search looks at all of them
)

// maxTaskErrors is how many different errors of a task are indexed.
const maxTaskErrors = 32

// contextValue is a value of a context, at a path. The text is that of a string, a number, true or false.
type contextValue struct{ path, text string }

// findIndex finds tasks by values and errors. The store's mutex guards it.
type findIndex struct {
	labels     labelIndex
	memory     *quota // which others share
	bytes      int64  // taken of it
	errorBytes int64  // of these, for errors: at most half of all

	values int                 // values that are not indexed for lack of memory
	errors bitset              // tasks with an error that is not indexed for lack of memory
	failed map[uint32][]uint64 // labels of the errors of tasks
	texts  []errorEntry        // of errors, the newest last; only appended to, or replaced
	dead   int                 // texts that no task has any more
	length int64               // of the texts, in bytes
}

// errorEntry is the text of errors, which errorTextOf made, and its label.
type errorEntry struct {
	label uint64
	text  string
}

// The kinds of labels here.
const (
	labelValue = 'v'
	labelError = 'e'
)

func newFindIndex() findIndex {
	return findIndex{labels: newLabelIndex(), memory: &quota{most: findMemory}, failed: map[uint32][]uint64{}}
}

// take takes memory for a value, if there is some.
func (x *findIndex) take(n int64) bool {
	if !x.memory.take(n) {
		return false
	}
	x.bytes += n
	return true
}

func (x *findIndex) give(n int64) {
	x.memory.give(n)
	x.bytes -= n
}

// share makes the index take its memory from a quota that others use, too.
func (x *findIndex) share(memory *quota) {
	memory.used.Add(x.bytes)
	x.memory = memory
}

// eachValue calls f with the label of each value by which a task is found; by may be nil for a task without one.
func (x *findIndex) eachValue(by *creation, f func(label uint64)) {
	if by == nil || by.search == nil {
		return
	}
	eachMemberBytes(by.search, func(path, value []byte) bool {
		f(x.valueLabel(string(path), value))
		return true
	})
}

// valueLabel returns the label of a value, which is the same for all its spellings.
func (x *findIndex) valueLabel(path string, value []byte) uint64 {
	if value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 { // else it is spelled as normal has it
		value = newJSONValue(value).normal(nil)
	}
	return x.labels.label(labelValue, path, string(value))
}

// find returns the positions with a value: with a string, and with a number, true or false of that text.
func (x *findIndex) find(v contextValue) (texts, others *positions) {
	texts = x.labels.find(x.valueLabel(v.path, appendJSONString(nil, v.text)))
	switch raw := []byte(v.text); {
	case checkJSON(raw) != nil:
	case bytes.IndexByte([]byte("0tf"), jsonKind(raw)) >= 0:
		others = x.labels.find(x.valueLabel(v.path, raw))
	}
	return texts, others
}

// insert adds the values of a new task.
func (x *findIndex) insert(pos uint32, by *creation) {
	x.eachValue(by, func(label uint64) {
		if !x.take(foundValueBytes) {
			x.labels.holders.set(pos) // so that remove reads the task's values, and counts those not indexed
			x.values++
			return
		}
		x.labels.insert(pos, label)
	})
}

// fail adds an error of a task, by its text.
func (x *findIndex) fail(pos uint32, text string) {
	label, known := x.labels.label(labelError, text), x.failed[pos]
	if len(known) == maxTaskErrors || slices.Contains(known, label) {
		return
	}
	cost, fresh := int64(errorBytes), x.labels.find(label) == nil
	if fresh {
		cost += textBytes + int64(len(text))
	}
	switch {
	case fresh && x.length+int64(len(text)) > maxErrorTexts, x.errorBytes+cost > x.memory.most/2, !x.take(cost):
		x.errors.set(pos)
		return
	}
	x.errorBytes += cost
	x.labels.insert(pos, label)
	x.failed[pos] = append(known, label)
	if fresh {
		x.texts = append(x.texts, errorEntry{label, text})
		x.length += int64(len(text))
	}
}

// remove removes the values and the errors of a task.
func (x *findIndex) remove(pos uint32, by *creation) {
	x.eachValue(by, func(label uint64) {
		if x.labels.has(pos, label) {
			x.give(foundValueBytes)
		} else {
			x.values--
		}
		x.labels.remove(pos, label)
	})
	for _, label := range x.failed[pos] {
		x.labels.remove(pos, label)
		x.giveError(errorBytes)
		x.dead += boolCount(x.labels.find(label) == nil)
	}
	delete(x.failed, pos)
	x.errors.clear(pos)
	if x.dead > 64+len(x.texts)/2 {
		x.clearTexts()
	}
}

func (x *findIndex) giveError(n int64) {
	x.give(n)
	x.errorBytes -= n
}

// clearTexts drops the texts that no task has any more. Searches may still look at those that were there.
func (x *findIndex) clearTexts() {
	var kept []errorEntry
	seen := map[uint64]bool{}
	for _, t := range x.texts {
		if !seen[t.label] && x.labels.find(t.label) != nil {
			seen[t.label] = true
			kept = append(kept, t)
			continue
		}
		x.giveError(textBytes + int64(len(t.text)))
		x.length -= int64(len(t.text))
	}
	x.texts, x.dead = kept, 0
}

// relocate moves a task to a lower position, with no task between the two.
func (x *findIndex) relocate(from, to uint32, by *creation) {
	x.eachValue(by, func(label uint64) { x.labels.relocate(from, to, label) })
	if x.errors.has(from) {
		x.errors.relocate(from, to)
	}
	if labels, ok := x.failed[from]; ok {
		for _, label := range labels {
			x.labels.relocate(from, to, label)
		}
		x.failed[to] = labels
		delete(x.failed, from)
	}
}

// fail indexes an error of the task at a position.
func (x *slotTable) fail(pos uint32, text string) {
	before := x.index.memory()
	x.index.found.fail(pos, text)
	x.resize(x.index.memory() - before)
}

// finder finds tasks of a store.
type finder struct{ s *store }

func newFinder(s *store) finder { return finder{s} }

// unindexed returns how many values, and the errors of how many tasks, are not indexed for lack of memory.
func (f finder) unindexed() (values, errors int) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return f.s.tasks.index.found.values, f.s.tasks.index.found.errors.count()
}

// withValue returns the values that at least one task has.
func (f finder) withValue(all []contextValue) (held []contextValue) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	for _, v := range all {
		if texts, others := f.s.tasks.index.found.find(v); texts != nil || others != nil {
			held = append(held, v)
		}
	}
	return held
}

// textsPerLock is how many texts of errors are looked up under the lock at a time.
const textsPerLock = 1024

// withError returns the logs of up to limit tasks with a text in an error, the newest first. It looks at the
// texts without the lock.
func (f finder) withError(text string, limit int) (logs []taskLog) {
	defer f.s.holdPositions()()
	var texts []errorEntry
	f.s.locked(func() { texts = f.s.tasks.index.found.texts })
	var labels []uint64
	for i := range texts {
		if strings.Contains(texts[i].text, text) {
			labels = append(labels, texts[i].label)
		}
	}
	var found []uint32
	for batch := range slices.Chunk(labels, textsPerLock) {
		f.s.locked(func() {
			for _, label := range batch {
				found = f.s.tasks.index.found.labels.top(found, label, limit)
			}
		})
		slices.Sort(found)
		slices.Reverse(found)
		found = slices.Compact(found)
		found = found[:min(limit, len(found))]
	}
	f.s.locked(func() {
		for _, pos := range found {
			if !f.s.tasks.slots[pos].vacant() { // else it was dropped since
				logs = append(logs, f.s.tasks.logAt(pos))
			}
		}
	})
	return logs
}

// shortestIDPart is how many digits of an id name it.
const shortestIDPart = 6

// idPart is a part of an id, at its beginning or at its end: which bits it says, and what they are.
type idPart struct{ high, low, highMask, lowMask uint64 }

func newIDPart(digits string, atEnd bool) idPart {
	const zeros, ones = "00000000000000000000000000000000", "ffffffffffffffffffffffffffffffff"
	rest := len(zeros) - len(digits)
	number := func(digits, rest string) (high, low uint64) {
		if atEnd {
			digits, rest = rest, digits
		}
		b, _ := hex.DecodeString(digits + rest)
		return halves(b)
	}
	var p idPart
	p.high, p.low = number(digits, zeros[:rest])
	p.highMask, p.lowMask = number(ones[rest:], zeros[:rest])
	return p
}

func halves(id []byte) (high, low uint64) {
	return binary.BigEndian.Uint64(id), binary.BigEndian.Uint64(id[8:])
}

// of reports whether the part is one of an id.
func (p *idPart) of(id *uuid) bool {
	high, low := halves(id[:])
	return (high^p.high)&p.highMask|(low^p.low)&p.lowMask == 0
}

// after returns how many places after an id the next id comes that may end with the part.
func (p *idPart) after(id *uuid) uint64 {
	_, low := halves(id[:])
	return (p.low - low) & p.lowMask
}

// foundID is an id that has the digits: the id that comes plus places after the task's own, which is 0 for the task
// itself.
type foundID struct {
	task uuid
	plus int
	step uuid // the id of a step that the task's creation names, in place of plus; else zero
}

// id returns the id.
func (f foundID) id() uuid { return cmp.Or(f.step, f.task.plus(f.plus)) }

// idsPerLock is how many tasks or dead letters a search looks at under the lock at a time.
const idsPerLock = 16 << 10

// inBatches calls look under the lock for all indexes below a count, some at a time and the highest first, until
// look returns false.
func (f finder) inBatches(count func() int, look func(from, to int) bool) {
	to := math.MaxInt
	for more := true; more; {
		f.s.locked(func() {
			to = min(to, count())
			from := max(to-idsPerLock, 0)
			more = look(from, to) && from > 0
			to = from
		})
	}
}

// withIDPart returns up to limit ids of tasks, and up to limit others of those which follow them, for declared steps
// and correlation, or which their creations name, that begin or end with some digits, the newest first. The beginning
// of such an id is mostly that of its task's.
func (f finder) withIDPart(digits string, limit int) (own, others []foundID) {
	defer f.s.holdPositions()()
	begin, end, ids := newIDPart(digits, false), newIDPart(digits, true), uint64(f.s.templates.mostIDs())
	f.inBatches(func() int { return len(f.s.tasks.slots) }, func(from, to int) bool {
		for pos := to - 1; pos >= from; pos-- { // a range would copy each slot
			sl := &f.s.tasks.slots[pos]
			if end.after(&sl.id) >= ids && !begin.of(&sl.id) {
				continue
			}
			switch n, ok := sl.idWith(&begin, &end); {
			case !ok:
			case n == 0 && len(own) < limit:
				own = append(own, foundID{task: sl.id})
			case n > 0 && len(others) < limit:
				others = append(others, foundID{task: sl.id, plus: n})
			}
		}
		return len(own) < limit || len(others) < limit
	})
	follow := len(others)
	f.s.locked(func() {
		for id, task := range f.s.tasks.byStep {
			if begin.of(&id) || end.of(&id) {
				others = append(others, foundID{task: task, step: id})
			}
		}
	})
	slices.SortFunc(others[follow:], func(a, b foundID) int { return bytes.Compare(b.step[:], a.step[:]) })
	return own, others[:min(limit, len(others))]
}

// idWith returns the place, after the id of the task in a slot, of an id of it that begins or ends with some digits.
func (sl *slot) idWith(begin, end *idPart) (n int, ok bool) {
	after := end.after(&sl.id)
	switch {
	case sl.vacant():
		return 0, false
	case begin.of(&sl.id):
		return 0, true
	case after >= uint64(sl.in.key.tpl.ids()):
		return 0, false
	}
	id := sl.id.plus(int(after))
	return int(after), end.of(&id)
}

// lettersWithIDPart returns up to limit entries of the dead letter queue whose ids begin or end with some digits, the
// newest first.
func (f finder) lettersWithIDPart(digits string, limit int) (found []dlqRow) {
	begin, end := newIDPart(digits, false), newIDPart(digits, true)
	f.inBatches(func() int { return len(f.s.dead.index.rows) }, func(from, to int) bool {
		for _, r := range slices.Backward(f.s.dead.index.rows[from:to]) {
			if !r.id.isZero() && (begin.of(&r.id) || end.of(&r.id)) && len(found) < limit {
				found = append(found, r)
			}
		}
		return len(found) < limit
	})
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
		if id, ok := f.s.requests.byKey[k]; ok {
			requested = append(requested, id)
		}
	}
	return identified, requested
}

// listedByID returns those tasks with some ids that are still there.
func (f finder) listedByID(ids []uuid) (tasks []listedTask) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	now := f.s.clock.now()
	for _, id := range ids {
		if pos, ok := f.s.tasks.find(id); ok {
			tasks = append(tasks, f.s.tasks.listedAt(pos, now))
		}
	}
	return tasks
}
