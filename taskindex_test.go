package main

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
)

// TestIndexOfManyInitiators has a name of its own for every task, as when callers
// are people: what the index keeps of one must not grow with the number of tasks.
func TestIndexOfManyInitiators(t *testing.T) {
	const n = 200_000
	x, tpl := newTaskIndex(), &template{namespace: "n", name: "t", version: "1.0.0"}
	before := heapBytes()
	for i := range uint32(n) {
		x.add(i, tpl, &creation{initiator: fmt.Sprint("user ", i), source: "s"}, taskComplete, nil)
	}
	if got := (heapBytes() - before) / n; got > 300 {
		t.Errorf("an initiator of one task takes %d bytes; want at most 300", got)
	}
	page, total := x.page(&taskFilter{initiator: "user 4711", source: "s"}, 0, 10)
	if !slices.Equal(page, []uint32{4711}) || total != 1 {
		t.Errorf("got %v of %d; want 4711 alone", page, total)
	}
}

func heapBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestIndexPages pages through the tasks of initiators with few and many.
func TestIndexPages(t *testing.T) {
	x, tpl := newTaskIndex(), &template{namespace: "n", name: "t", version: "1.0.0"}
	want := map[string][]uint32{}
	for i := range uint32(10_000) {
		name := fmt.Sprint(min(i%97, 48)) // the last of these has far more than the others
		if i > 9000 {
			name = fmt.Sprint("late ", i%200)
		}
		x.add(i, tpl, &creation{initiator: name, source: "s"}, taskState(i%2), nil)
		want[name] = append(want[name], i)
	}
	for name, all := range want {
		slices.Reverse(all)
		for skip := 0; skip <= len(all); skip += 7 {
			page, total := x.page(&taskFilter{initiator: name, namespace: "n"}, skip, 7)
			if !slices.Equal(page, all[skip:min(skip+7, len(all))]) || total != len(all) {
				t.Fatalf("initiator %s from %d: got %v of %d; want a page of %v", name, skip, page, total, all)
			}
		}
	}
}
