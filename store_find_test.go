package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// checkFound compares what tasks are found by with the tasks. The caller holds the store's lock.
func checkFound(t testing.TB, s *store) {
	t.Helper()
	x := &s.tasks.index
	labels, errors, failing, texts := 0, 0, 0, map[string]int{}
	for at, sl := range s.tasks.slots {
		if sl == nil {
			continue
		}
		own := s.tasks.marks[at].labels
		v, err := sl.task()
		noError(t, err)
		x.eachValue(v.by, func(label uint64) {
			if !slices.Contains(own, label) {
				t.Errorf("task %s has no label of a value in %s", sl.id, v.by.search)
			}
		})
		labels += len(own)
		var got []string
		if sl.trouble != nil {
			failing += len(sl.failures)
			for _, e := range sl.errors {
				got = append(got, e.text)
				if x.texts[e.text] != e {
					t.Errorf("the text %q of task %s is not in the index", e.text, sl.id)
				}
			}
		}
		want := errorTextsIn(v.log)
		if len(want) > maxTaskErrors {
			want = got
		}
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("task %s is found by the errors %q; want %q", sl.id, got, want)
		}
		for _, text := range got {
			texts[text]++
		}
		errors += len(got)
	}
	length := 0
	for text, n := range texts {
		length += len(text)
		if x.texts[text] == nil || x.texts[text].tasks != n {
			t.Errorf("the text %q counts %+v; want %d tasks", text, x.texts[text], n)
		}
	}
	taken := labels*labelBytes + failing*failingBytes + errors*errorBytes + len(texts)*textBytes + length
	if len(x.texts) != len(texts) || x.bytes != int64(taken) {
		t.Errorf("the index has %d texts, and counts %d bytes; want %d and %d", len(x.texts), x.bytes, len(texts), taken)
	}
}

// foundTask is what TestFindIndex knows of a task.
type foundTask struct {
	slot   slot
	labels []uint64
	by     *creation
	texts  map[string]bool // of its errors
}

// TestFindIndex compares values and errors, and what they take of the memory, with plain sets, while tasks fail and are
// dropped. Nothing remains of them in the end.
func TestFindIndex(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	x := newTaskIndex(func(int64) {})
	tasks := map[int]*foundTask{}
	for range 20_000 {
		n := r.IntN(400)
		task := tasks[n]
		switch {
		case task == nil:
			task = &foundTask{by: &creation{search: fmt.Appendf(nil, `{"k":"v%d","n":%d}`, r.IntN(50), n)}, texts: map[string]bool{}}
			tasks[n] = task
			task.slot.trouble = &trouble{}
			task.labels = x.label(&task.slot, task.by)
		case r.IntN(10) == 0:
			x.unlabel(&task.slot, task.labels)
			delete(tasks, n)
		default:
			text := fmt.Sprintf("E: order %d of many", r.IntN(300)*r.IntN(3))
			x.fail(task.slot.trouble, text)
			task.texts[text] = true
		}
	}
	checkFoundTasks(t, &x, tasks)
	for _, task := range tasks {
		x.unlabel(&task.slot, task.labels)
	}
	if x.bytes != 0 || len(x.texts) > 0 {
		t.Errorf("seed %d: %d bytes and %d texts remain; want nothing", seed, x.bytes, len(x.texts))
	}
}

// checkFoundTasks checks that the index has all of the tasks.
func checkFoundTasks(t *testing.T, x *taskIndex, tasks map[int]*foundTask) {
	t.Helper()
	for n, task := range tasks {
		x.eachValue(task.by, func(label uint64) {
			if !slices.Contains(task.labels, label) {
				t.Errorf("a value of task %d is missing", n)
			}
		})
		for text := range task.texts {
			known := slices.ContainsFunc(task.slot.errors, func(e *failureText) bool { return e.text == text })
			if !known && len(task.slot.errors) < maxTaskErrors {
				t.Errorf("%q of task %d is missing", text, n)
			}
		}
		if len(task.slot.errors) > maxTaskErrors {
			t.Errorf("%d errors of a task are indexed; want at most %d", len(task.slot.errors), maxTaskErrors)
		}
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
	for _, sl := range slices.Backward(s.store.tasks.slots) {
		if sl != nil {
			v := must(sl.task())(t)
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
		found := newFinder(s.store).find(&taskSearch{part: newIDPart(digits), limit: limit})
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
		if !slices.Equal(found.own, wantOwn) || !slices.Equal(found.others, wantOthers) {
			t.Errorf("%s: got %v and %v; want %v and %v", digits, found.own, found.others, wantOwn, wantOthers)
		}
	}
	sl := slot{taskHeader: taskHeader{id: all[0].id, tpl: &template{}}, live: &task{}}
	second := sl.id.plus(1).String()
	right := second[17:18] // a digit of the half that seldom differs
	for digit, want := range map[string]bool{right: true, pick(right == "0", "1", "0"): false} {
		digits := strings.ReplaceAll(digit+second[18:], "-", "")
		if n, ok := sl.idWith(newIDPart(digits)); ok != want || want && n != 1 {
			t.Errorf("%s: got %d, %v; want %v", digits, n, ok, want)
		}
	}
}
