package main

import (
	"bytes"
	"log/slog"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestStoredTasks reads lines of tasks one after the other, and compares what they have in common
// with what each says by itself.
func TestStoredTasks(t *testing.T) {
	var slab lineSlab
	lines := storedTaskLines(t)
	for _, line := range slices.Concat(lines, lines, lines[:1], lines[:1]) {
		got, want := readStoredTask(line, &slab), must(readTaskHeader(line))(t)
		by := *must(want.creationRecord())(t).created
		if got.err != nil || !reflect.DeepEqual(got.taskHeader, want) {
			t.Errorf("got %+v, %v; want %+v", got.taskHeader, got.err, want)
		}
		if by.context = got.by.context; !reflect.DeepEqual(*got.by, by) {
			t.Errorf("got %+v; want %+v", got.by, by)
		}
		if text := got.line.text(); !bytes.Equal(text, line) {
			t.Errorf("got %s; want %s", text, line)
		}
	}
}

// TestStoredValues reads lines of tasks that are found by values, by none, or failed, one after the other: each says the same
// by itself.
func TestStoredValues(t *testing.T) {
	svc := newTestService(t, serviceTest{templates: apiTemplates, clock: newVirtualClock(testStart)})
	for _, name := range []string{"echo", "fails", "exhausted"} {
		for _, more := range []string{
			`{"order_id":"ORD-1"}`, `{"order_id":"ORD-2","customer":{"email":"a@b"},"amount":1e2}`, `{"loud":null}`, `{}`,
			`{"order_id":"ORD-3"},"tags":["x"]`, `{"order_id":"ORD-4"},"tags":["x"]`, `{"search":{"order_id":1}}`, `{"search":1},"reason":"r"`,
		} {
			if task := mustCreate(t, svc, name, `"context":`+more); name != "echo" {
				must(svc.operator.cancelTask(t.Context(), task.id, taskActor{}))(t)
			}
		}
	}
	settle(svc)
	var slab lineSlab
	apart, texts := 0, map[string]bool{}
	for _, sl := range svc.store.tasks.slots {
		line := sl.line.text()
		got, whole := readStoredTask(line, &slab), must(svc.store.viewOf(sl))(t)
		search := got.by.search
		if got.search != nil {
			apart++
			search = got.search
		}
		by := *whole.by
		if by.context, by.search = got.by.context, got.by.search; got.err != nil || !reflect.DeepEqual(*got.by, by) || !bytes.Equal(search, whole.by.search) {
			t.Errorf("%s: got %+v with %s, %v", line, got.by, search, got.err)
		}
		for _, text := range got.errors {
			texts[text] = true
		}
	}
	if apart < 4 || !maps.Equal(texts, map[string]bool{"printererror: out of paper": true, "builtin_fail: jammed": true}) {
		t.Errorf("%d lines have their values apart, and the errors are %v", apart, texts)
	}
}

// TestLoadedLinesShareMemory loads lines one by one, as an import does: each takes little more than itself.
func TestLoadedLinesShareMemory(t *testing.T) {
	slowAndSequential(t)
	const count = 200
	svc := newTestService(t, serviceTest{extra: storyTemplates})
	l := &restorer{s: newStore(svc.clock, slog.New(slog.DiscardHandler)), seq: maxStateCount}
	for range count {
		mustCreate(t, svc, "noop")
	}
	var lines [][]byte
	for _, sl := range svc.store.tasks.slots {
		lines = append(lines, sl.line.text())
	}
	for _, tpl := range svc.store.templates.byHash {
		l.s.templates.keep(tpl)
	}
	before := liveHeap()
	for _, line := range lines {
		noError(t, l.taskLine(line))
	}
	if took := (liveHeap() - before) * 1e6 / count; took > 8<<10 {
		t.Errorf("each of %d lines takes %.0f bytes; want at most %d", count, took, 8<<10)
	}
	runtime.KeepAlive(l)
}

// TestReadStoreTakesNoChanges reads the files of a store and ends a walk over its tasks, as an
// export does: a change is refused at once and asks the disk for nothing.
func TestReadStoreTakesNoChanges(t *testing.T) {
	dir := t.TempDir()
	closeTestService(t, openTestService(t, serviceTest{dir: dir}))
	s := readTestStore(t, dir)
	_, err := s.update(func(*change) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("got error %v; want a store that is closed", err)
	}
}
