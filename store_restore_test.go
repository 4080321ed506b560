package main

import (
	"bytes"
	"log/slog"
	"maps"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// TestStoredTasks reads the lines of tasks that are found by values, by none, or failed: each says what its task does.
func TestStoredTasks(t *testing.T) {
	svc := newTestService(t, serviceTest{templates: apiTemplates, clock: newVirtualClock(testStart)})
	for _, name := range []string{"echo", "fails", "exhausted"} {
		for _, more := range []string{
			`{"order_id":"ORD-1"}`, `{"order_id":"ORD-2","customer":{"email":"a@b"},"amount":1e2}`, `{"loud":null}`, `{}`,
			`{"order_id":"ORD-3"},"tags":["x"]`, `{"search":{"order_id":1}}`, `{"search":1},"reason":"r"`,
		} {
			if task := mustCreate(t, svc, name, `"context":`+more); name != "echo" {
				must(svc.operator.cancelTask(t.Context(), task.id, taskActor{}))(t)
			}
		}
	}
	settle(svc)
	var common storedCommon
	texts := map[string]bool{}
	for _, sl := range svc.store.tasks.slots {
		line := sl.line()
		got, whole := common.read(line), must(sl.task())(t)
		want := whole.taskHeader
		want.tpl = nil
		by := *whole.by
		if by.context, by.search = got.by.context, got.by.search; got.search != nil && !bytes.Equal(got.search, whole.by.search) ||
			got.search == nil && !bytes.Equal(got.by.search, whole.by.search) {
			t.Errorf("%s: got the values %s and %s", line, got.search, got.by.search)
		}
		for i, d := range want.dead { // of which a line has a part
			want.dead[i] = deadLetter{seq: d.seq, at: d.at, resolved: d.resolved, reason: d.reason, state: d.state, status: d.status}
		}
		if got.err != nil || !reflect.DeepEqual(got.taskHeader, want) || !reflect.DeepEqual(*got.by, by) ||
			got.template != whole.tpl.hash || !bytes.Equal(got.short.text(), whole.log) {
			t.Errorf("%s: got %+v with %+v, %v; want %+v", line, got.taskHeader, got.by, got.err, want)
		}
		for _, text := range got.errors {
			texts[text] = true
		}
	}
	if !maps.Equal(texts, map[string]bool{"printererror: out of paper": true, "builtin_fail: jammed": true}) {
		t.Errorf("the errors are %v", texts)
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
		lines = append(lines, sl.line())
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
