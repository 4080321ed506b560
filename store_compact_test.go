package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// compactTest compacts the file of a journal whose records are those of tests.
func compactTest(j *journal) error {
	seq := lastAppended(j)
	return j.replace(j.groups.offset(), nil, func(w *lineWriter) error {
		for line := range strings.Lines(compactedText(seq)) {
			if strings.HasPrefix(line, endHead) {
				return w.end()
			}
			if err := w.line([]byte(line[:len(line)-len(sumTail)-1])); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestCompaction compacts beside records that come before the cut, after it, and after the switch.
func TestCompaction(t *testing.T) {
	for _, mode := range []syncMode{syncAlways, syncNever} {
		disk := newMemDisk()
		o := diskOptions(disk)
		o.sync = mode
		j, _ := mustOpen(t, o)
		mustStore(t, j, 5)
		appendTest(j, 2) // which are in no write yet
		offset := j.groups.offset()
		noError(t, j.replace(offset, nil, func(w *lineWriter) error {
			mustStore(t, j, 2)
			appendTest(j, 1)
			for line := range strings.Lines(compactedText(7)) {
				if !strings.HasPrefix(line, endHead) {
					noError(t, w.line([]byte(line[:len(line)-len(sumTail)-1])))
				}
			}
			return w.end()
		}))
		mustStore(t, j, 1)
		if got := fileNames(disk.files()); got != storeName {
			t.Errorf("%v: files: got %s; want %s", mode, got, storeName)
		}
		if got := disk.files()[storeName]; !strings.HasPrefix(got, compactedText(7)+`{"seq":8,`) {
			t.Errorf("%v: got %s; want records 8 to 11", mode, got)
		}
		if mode == syncNever { // a compaction syncs
			_, g := mustOpen(t, diskOptions(disk.crash(false, false, nil)))
			checkContents(t, g, 10)
		}
		mustClose(t, j)
		j, g := mustOpen(t, diskOptions(disk))
		checkContents(t, g, 11)
		mustClose(t, j)
	}
}

// TestCompactionLeavesSpace checks that a compaction that does not fit gives up before records lack space.
func TestCompactionLeavesSpace(t *testing.T) {
	t.Parallel()
	slow(t)
	disk := newMemDisk()
	disk.capacity = 64 << 20
	j, _ := mustOpen(t, diskOptions(disk))
	mustStore(t, j, 3)
	line := append([]byte(`{"pad":"`), bytes.Repeat([]byte("x"), 1<<20)...)
	line = append(line, '"')
	err := j.replace(j.groups.offset(), nil, func(w *lineWriter) (err error) {
		for err == nil {
			err = w.line(line)
		}
		return err
	})
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v; want no space", err)
	}
	if err := j.reserve(0); err != nil {
		t.Errorf("reserve: %v", err)
	}
	last := mustStore(t, j, 3)
	mustClose(t, j)
	checkUsable(t, "after it", disk.crash(true, true, nil), last)
}

// TestCompactionDue checks when a compaction is due: by size, and not for a minute after a failure, which is logged once
// until one succeeds.
func TestCompactionDue(t *testing.T) {
	t.Parallel()
	slow(t)
	synctest.Test(t, func(t *testing.T) {
		disk, logged := newMemDisk(), &logText{}
		o := diskOptions(disk)
		o.log = slog.New(slog.NewTextHandler(logged, nil))
		j, _ := mustOpen(t, o)
		want := func(due bool, when string) {
			t.Helper()
			if got := j.compactionDue(); got != due {
				t.Errorf("due %s: got %v; want %v", when, got, due)
			}
		}
		want(false, "at the start")
		storePadded(t, j, compactFloor)
		want(true, "beyond the floor")
		disk.fail(diskFault{op: "sync", file: compactName, times: 2, err: syscall.ENOSPC})
		for range 2 {
			if err := compactTest(j); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("got %v; want no space", err)
			}
			want(false, "right after a failure")
		}
		if got := strings.Count(logged.String(), "level=WARN"); got != 1 {
			t.Errorf("warnings: got %d; want 1", got)
		}
		timer := time.NewTimer(compactPause)
		<-timer.C
		want(true, "a minute after a failure")
		noError(t, compactTest(j))
		want(false, "after a compaction")
		j.newest.compacted.Store(compactFloor * 8)
		j.newest.bytes.Store(compactFloor*10 - 1)
		want(false, "before a quarter of the compacted part")
		j.newest.bytes.Store(compactFloor*10 + 1)
		want(true, "beyond a quarter of the compacted part")
		mustClose(t, j)
		want(false, "after close")
	})
}

// storePadded appends and stores about n bytes.
func storePadded(t *testing.T, j *journal, size int) uint64 {
	t.Helper()
	pad := bytes.Repeat([]byte("y"), 1<<20)
	seq := lastAppended(j)
	for ; size > 0; size -= len(pad) {
		seq++
		j.groups.append(seq, fmt.Appendf(nil, `"pad":"%s"`, pad))
		noError(t, j.wait(t.Context(), seq))
	}
	return seq
}

// TestCompactionFaults checks that the old file remains, and that the journal continues unless it cannot know which file a
// start reads.
func TestCompactionFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fault diskFault
		fails bool // the journal does
	}{
		{diskFault{op: "create", file: compactName, err: syscall.ENOSPC}, false},
		{diskFault{op: "write", file: compactName, err: syscall.ENOSPC}, false},
		{diskFault{op: "write", file: compactName, err: syscall.ENOSPC, half: true}, false},
		{diskFault{op: "sync", file: compactName, err: syscall.EIO}, false},
		{diskFault{op: "sync", file: compactName, err: syscall.EIO, skip: 1}, false},
		{diskFault{op: "sync", file: compactName, err: syscall.EIO, skip: 2, after: true}, false},
		{diskFault{op: "allocate", file: compactName, err: syscall.ENOSPC}, false},
		{diskFault{op: "rename", file: compactName, err: syscall.EIO}, false},
		{diskFault{op: "rename", file: compactName, err: syscall.EIO, after: true}, true},
		{diskFault{op: "syncdir", file: "data", err: syscall.EIO, times: 1}, true},
		{diskFault{op: "syncdir", file: "data", err: syscall.EIO, times: 1, after: true}, true},
		{diskFault{op: "sync", file: storeName, err: syscall.EIO, times: 1}, true},
	} {
		f := tt.fault
		t.Run(fmt.Sprintf("%s %s skip=%d half=%v after=%v", f.op, f.file, f.skip, f.half, f.after), func(t *testing.T) {
			testCompactionFault(t, tt.fault, tt.fails)
		})
	}
}

func testCompactionFault(t *testing.T, fault diskFault, fails bool) {
	disk := newMemDisk()
	j, _ := mustOpen(t, diskOptions(disk))
	mustStore(t, j, 4)
	noError(t, compactTest(j))
	last := mustStore(t, j, 3)
	if fault.file == storeName {
		appendTest(j, 1)
	}
	disk.fail(fault)
	if err := compactTest(j); err == nil {
		t.Error("compaction: got no error")
	}
	if err := j.reserve(0); (err != nil) != fails {
		t.Errorf("reserve: got %v; want an error: %v", err, fails)
	}
	if !fails {
		last = mustStore(t, j, 2)
		if got := fileNames(disk.files()); got != storeName {
			t.Errorf("files: got %s; want %s", got, storeName)
		}
	}
	for image := range 4 {
		checkUsable(t, fmt.Sprintf("image %d", image), disk.crash(image&1 == 0, image&2 == 0, nil), last)
	}
	disk.mu.Lock()
	disk.faults = nil
	disk.mu.Unlock()
	if fails {
		j.close()
		checkUsable(t, "after the end", disk.restart(), last)
		return
	}
	noError(t, compactTest(j))
	last = mustStore(t, j, 2)
	mustClose(t, j)
	checkUsable(t, "in the end", disk, last)
}

// fullTable is a disk that can open no directory once no descriptor is left.
type fullTable struct {
	*memDisk
	full bool
}

func (d *fullTable) syncDir(dir string) error {
	if d.full {
		return &fs.PathError{Op: "open", Path: dir, Err: syscall.EMFILE}
	}
	return d.memDisk.syncDir(dir)
}

// TestCompactionWithoutDescriptors expects a compaction that has begun to need no more descriptors, and one that cannot
// begin to leave the store writable.
func TestCompactionWithoutDescriptors(t *testing.T) {
	t.Parallel()
	disk := &fullTable{memDisk: newMemDisk()}
	o := diskOptions(nil)
	o.fs = disk
	j, _ := mustOpen(t, o)
	mustStore(t, j, 3)
	disk.full = true
	noError(t, compactTest(j))
	mustStore(t, j, 3)
	disk.fail(diskFault{op: "create", file: compactName, times: 1, err: syscall.EMFILE})
	if err := compactTest(j); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("got %v; want that no file can be opened", err)
	}
	mustStore(t, j, 1)
	noError(t, compactTest(j))
	mustClose(t, j)
}

// readTestStore reads the store of a directory.
func readTestStore(t testing.TB, dir string) *store {
	t.Helper()
	o := journalOptions{dir: dir, log: slog.New(slog.DiscardHandler)}
	s, _, err := readStore(&o, storePath(o.dir, storeName))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRetentionKeepsFigures drops tasks, and restarts from records and from a compacted part: the figures count them as
// before, and no id is used again.
func TestRetentionKeepsFigures(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates, config: retaining(1)}
	s := openTestService(t, o)
	for range 10 {
		mustCreate(t, s, "noop")
	}
	figures, id := figuresText(s.store.analytics), s.ids.reserve(1).String()
	for _, back := range []time.Duration{0, time.Hour, 2 * time.Hour} {
		closeTestService(t, s)
		o.clock = newVirtualClock(testStart.add(-back))
		s = openTestService(t, o)
		if got := figuresText(s.store.analytics); got != figures {
			t.Errorf("the figures are\n%s\nwant\n%s", got, figures)
		}
		if s.store.retain.dropped != 9 {
			t.Errorf("got %d tasks dropped; want 9", s.store.retain.dropped)
		}
		if got := s.ids.reserve(1).String(); got < id {
			t.Errorf("got id %s on a clock that went back; want one after %s", got, id)
		}
		noError(t, s.store.compact())
	}
	closeTestService(t, s)
}

// reopenTestService closes a service and opens it again.
func reopenTestService(t testing.TB, s *service, o serviceTest) *service {
	t.Helper()
	closeTestService(t, s)
	return openTestService(t, o)
}

// lines returns every task of a store as its line, in order.
func lines(s *service) string {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	var b strings.Builder
	for _, sl := range s.store.tasks.slots {
		fmt.Fprintf(&b, "%s\n", sl.line())
	}
	return b.String()
}

func wantLines(t *testing.T, when string, s *service, want string) {
	t.Helper()
	if got := lines(s); got != want {
		t.Errorf("%s the store has\n%s\nwant\n%s", when, got, want)
	}
}

func tellStoryWithoutKey(t *testing.T, s *service) {
	t.Helper()
	for range 5 {
		mustCreate(t, s, "noop")
		mustAct(t, s, mustCreate(t, s, "pair"), 0, retryAction)
		v := mustAct(t, s, mustCreate(t, s, "pair"), 0, failAction)
		mustAct(t, s, mustAct(t, s, v, 0, resetAction), 0, completeAction)
		mustCreate(t, s, "pair")
	}
}
