package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// checkFound compares the index of values and errors with the tasks. The caller holds the store's lock.
func checkFound(t testing.TB, s *store) {
	t.Helper()
	got := s.tasks.index.found
	if got.values > 0 || got.errors.count() > 0 {
		return // what is left out depends on what was there earlier
	}
	want := newFindIndex()
	want.memory.most, want.labels.seed = math.MaxInt64, got.labels.seed
	for pos := range s.tasks.slots {
		if s.tasks.slots[pos].vacant() {
			continue
		}
		v, err := s.viewAt(uint32(pos))
		noError(t, err)
		want.insert(uint32(pos), v.by)
		for _, text := range errorTextsIn(slices.Concat([]byte("["), v.log, []byte("]"))) {
			want.fail(uint32(pos), text)
		}
	}
	got.memory = &quota{} // of the copy
	got.clearTexts()
	if a, b := got.plain(), want.plain(); a != b || got.bytes != want.bytes || got.errorBytes != want.errorBytes || got.length != want.length {
		t.Errorf("the index of values and errors has %d bytes, %d of errors, texts of %d:\n%s\nwant %d, %d, %d:\n%s",
			got.bytes, got.errorBytes, got.length, a, want.bytes, want.errorBytes, want.length, b)
	}
}

// plain returns everything that the index has.
func (x *findIndex) plain() string {
	var lines []string
	for label, pos := range x.labels.one {
		lines = append(lines, fmt.Sprintf("%x: [%d]", label, pos))
	}
	for label, p := range x.labels.more {
		all := p.top(nil, math.MaxInt)
		slices.Sort(all)
		lines = append(lines, fmt.Sprintf("%x: %d", label, all))
	}
	for pos, labels := range x.failed {
		lines = append(lines, fmt.Sprintf("%d failed: %x", pos, slices.Sorted(slices.Values(labels))))
	}
	for _, text := range x.texts {
		lines = append(lines, fmt.Sprintf("%x: %s", text.label, text.text))
	}
	return strings.Join(slices.Sorted(slices.Values(lines)), "\n")
}

// foundTask is what TestFindIndex knows of a task.
type foundTask struct {
	by    *creation
	texts map[string]bool // of its errors
}

// TestFindIndex compares values and errors, and what they take of the memory, with plain sets, while tasks fail, are
// dropped, and change position. Nothing remains of them in the end.
func TestFindIndex(t *testing.T) {
	t.Parallel()
	for _, most := range []int64{1 << 30, 100_000, 3_000} {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 2))
		x := newFindIndex()
		x.memory.most = most
		tasks := map[uint32]*foundTask{}
		for range 20_000 {
			pos := uint32(r.IntN(400))
			task := tasks[pos]
			switch n := r.IntN(10); {
			case task == nil:
				task = &foundTask{&creation{search: fmt.Appendf(nil, `{"k":"v%d","n":%d}`, r.IntN(50), pos)}, map[string]bool{}}
				tasks[pos] = task
				x.insert(pos, task.by)
			case n == 0:
				x.remove(pos, task.by)
				delete(tasks, pos)
			case n == 1:
				if to := uint32(r.IntN(int(pos) + 1)); freeFrom(tasks, to, pos) && to != pos {
					x.relocate(pos, to, task.by)
					tasks[to] = task
					delete(tasks, pos)
				}
			default:
				text := fmt.Sprintf("E: order %d of many", r.IntN(300)*r.IntN(3))
				x.fail(pos, text)
				task.texts[text] = true
			}
			if x.memory.used.Load() != x.bytes || x.bytes > most || x.errorBytes > most/2 {
				t.Fatalf("seed %d: the index takes %d bytes, %d for errors, of %d; %d are in use", seed, x.bytes, x.errorBytes, most,
					x.memory.used.Load())
			}
		}
		checkFoundTasks(t, &x, tasks, most < 1<<30)
		for pos, task := range tasks {
			x.remove(pos, task.by)
		}
		x.clearTexts()
		if x.bytes != 0 || x.errorBytes != 0 || x.length != 0 || x.values+x.errors.count()+x.labels.held+len(x.failed)+len(x.texts) > 0 {
			t.Errorf("seed %d: %+v remains; want nothing", seed, x)
		}
	}
}

// checkFoundTasks checks that the index has all of the tasks but for what it says that it left out.
func checkFoundTasks(t *testing.T, x *findIndex, tasks map[uint32]*foundTask, bounded bool) {
	t.Helper()
	values, failed, held := 0, 0, 0
	for pos, task := range tasks {
		x.eachValue(task.by, func(label uint64) {
			has := x.labels.has(pos, label)
			values += boolCount(!has)
			held += boolCount(has)
		})
		left := x.errors.has(pos)
		for text := range task.texts {
			has := x.labels.has(pos, x.labels.label(labelError, text))
			if held += boolCount(has); !has && !left && len(x.failed[pos]) < maxTaskErrors {
				t.Errorf("%q of %d is missing", text, pos)
			}
		}
		if failed += boolCount(left); len(x.failed[pos]) > maxTaskErrors {
			t.Errorf("%d errors of a task are indexed; want at most %d", len(x.failed[pos]), maxTaskErrors)
		}
	}
	if values != x.values || failed != x.errors.count() || held != x.labels.held || (values+failed > 0) != bounded {
		t.Errorf("%d values and errors of %d tasks are not indexed, %d are; the index counts %d, %d and %d", values, failed, held,
			x.values, x.errors.count(), x.labels.held)
	}
}

// freeFrom reports whether there is no task at positions from one on, up to another.
func freeFrom(tasks map[uint32]*foundTask, from, to uint32) bool {
	for pos := range tasks {
		if from <= pos && pos < to {
			return false
		}
	}
	return true
}

// TestTextsOfErrorsAreBounded indexes errors that are all different: what a search has to look at is bounded.
func TestTextsOfErrorsAreBounded(t *testing.T) {
	t.Parallel()
	x := newFindIndex()
	x.memory.most = 1 << 40
	long := strings.Repeat("x", 2*errorTextPart)
	const n = 2 * maxErrorTexts / (2 * errorTextPart)
	for i := range n {
		x.fail(uint32(i), fmt.Sprint(i, long))
	}
	if left := x.errors.count(); x.length > maxErrorTexts || left < n/3 || left > n*2/3 {
		t.Errorf("texts of %d bytes are indexed, and %d of %d are not", x.length, left, n)
	}
	x.fail(n, x.texts[0].text)
	if p := x.labels.find(x.texts[0].label); p == nil || !p.has(n) {
		t.Error("an error with a known text is not indexed")
	}
}

// TestFindByIDPart compares searches for beginnings and ends of ids with a plain search through all of them.
func TestFindByIDPart(t *testing.T) {
	s := newTestService(t, serviceTest{extra: storyTemplates, config: retaining(300)})
	r := rand.New(rand.NewPCG(7, 7))
	for range 400 { // some of them are dropped
		mustCreate(t, s, choose(r, "noop", "pair"))
	}
	type anyID struct {
		id, task uuid
		plus     int
	}
	var all []anyID // the newest task first
	for pos := range slices.Backward(s.store.tasks.slots) {
		if v, err := s.store.viewAt(uint32(pos)); err == nil {
			for n := range v.tpl.ids() {
				all = append(all, anyID{v.id.plus(n), v.id, n})
			}
		}
	}
	for range 300 {
		some := choose(r, all...).id.String()
		digits := strings.ReplaceAll(some, "-", "")
		if n := shortestIDPart + r.IntN(32-shortestIDPart+1); r.IntN(2) == 0 {
			digits = digits[:n]
		} else {
			digits = digits[32-n:]
		}
		limit := 1 + r.IntN(20)
		own, others := newFinder(s.store).withIDPart(digits, limit)
		var wantOwn, wantOthers []foundID
		for _, id := range all {
			text := strings.ReplaceAll(id.id.String(), "-", "")
			switch {
			case id.plus == 0 && len(wantOwn) < limit && (strings.HasPrefix(text, digits) || strings.HasSuffix(text, digits)):
				wantOwn = append(wantOwn, foundID{task: id.task})
			case id.plus > 0 && len(wantOthers) < limit && strings.HasSuffix(text, digits):
				wantOthers = append(wantOthers, foundID{task: id.task, plus: id.plus})
			}
		}
		if !slices.Equal(own, wantOwn) || !slices.Equal(others, wantOthers) {
			t.Errorf("%s: got %v and %v; want %v and %v", digits, own, others, wantOwn, wantOthers)
		}
	}
	sl := slot{id: all[0].id, live: &task{}, in: &postings{key: postingsKey{tpl: &template{}}}}
	second := sl.id.plus(1).String()
	right := second[17:18] // a digit of the half that seldom differs
	for digit, want := range map[string]bool{right: true, pick(right == "0", "1", "0"): false} {
		digits := strings.ReplaceAll(digit+second[18:], "-", "")
		begin, end := newIDPart(digits, false), newIDPart(digits, true)
		if n, ok := sl.idWith(&begin, &end); ok != want || want && n != 1 {
			t.Errorf("%s: got %d, %v; want %v", digits, n, ok, want)
		}
	}
}
