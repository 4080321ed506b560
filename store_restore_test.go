package main

import (
	"bytes"
	"fmt"
	"log/slog"
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

// TestLoadedLinesShareMemory loads lines one by one, as an import and a repair do: each takes little more
// than itself.
func TestLoadedLinesShareMemory(t *testing.T) {
	slowAndSequential(t)
	const count = 200
	svc := newTestService(t, serviceTest{extra: storyTemplates})
	l := &restorer{s: newStore(svc.clock, slog.New(slog.DiscardHandler))}
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
		noError(t, l.line(line))
	}
	if took := (liveHeap() - before) * 1e6 / count; took > 8<<10 {
		t.Errorf("each of %d lines takes %.0f bytes; want at most %d", count, took, 8<<10)
	}
	runtime.KeepAlive(l)
}

// TestRepeatedRecordCostsNothing expects a record that the snapshot's line of its task has to
// be skipped at once.
func TestRepeatedRecordCostsNothing(t *testing.T) {
	id := newIDSource(newVirtualClock(testStart), nil).random()
	l := &restorer{s: newStore(nil, slog.New(slog.DiscardHandler)), ahead: map[uuid]uint64{id: 9}, last: 9}
	line := fmt.Appendf(nil, `{"seq":9,"task":"%s","kind":"nonsense"}`, id)
	repeated, next := &checkedLine{text: line, seq: 9}, &checkedLine{text: line, seq: 10}
	next.record, next.err = decodeRecord(line)
	cost := testing.AllocsPerRun(100, func() { noError(t, l.record(repeated)) })
	if cost != 0 || l.s.seq != 9 {
		t.Errorf("got %v allocations, sequence %d; want 0, 9", cost, l.s.seq)
	}
	if l.record(next) == nil || l.repeats(9, line[:30]) || l.repeats(9, []byte(`{"seq":9}`)) {
		t.Error("a record that the line does not have was skipped")
	}
}

// TestReadStoreTakesNoChanges reads the files of a store and ends a walk over its tasks, as an
// export does: a change is refused at once and asks the disk for nothing.
func TestReadStoreTakesNoChanges(t *testing.T) {
	dir := t.TempDir()
	closeTestService(t, openTestService(t, serviceTest{dir: dir}))
	s := must(readStore(dir, slog.New(slog.DiscardHandler)))(t)
	_, err := s.update(func(*change) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "closed") || s.journal.space.watch.timer != nil {
		t.Errorf("got error %v; want a store that is closed, and no look at the disk", err)
	}
}
