package main

import (
	"bytes"
	"encoding/json"
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

func TestSnapshotReplacesJournal(t *testing.T) {
	disk := newMemDisk()
	j, _ := mustOpen(t, diskOptions(disk))
	mustStore(t, j, 5)
	s := must(j.startSnapshot())(t)
	wantFiles(t, "during a snapshot", disk, "journal.jsonl journal.old.jsonl snapshot.jsonl.tmp")
	if _, err := j.startSnapshot(); err == nil {
		t.Error("a second snapshot beside it: got no error")
	}
	mustStore(t, j, 2)
	if got := s.cut(); got != 7 {
		t.Errorf("cut: got %d; want 7", got)
	}
	mustStore(t, j, 2)
	for n := range 7 {
		noError(t, s.line(fmt.Appendf(nil, `{"n":%d`, n+1)))
	}
	noError(t, s.commit())
	s.abort()
	if s.line([]byte("{")) == nil || s.commit() == nil {
		t.Error("add and commit after the end: got no error")
	}
	mustStore(t, j, 1)
	wantFiles(t, "after a snapshot", disk, "journal.jsonl snapshot.jsonl")
	if got := disk.files()[journalName]; !strings.HasPrefix(got, journalText(6, 5)+`{"seq":6,`) {
		t.Errorf("journal: got %s; want records 6 to 10", got)
	}
	mustClose(t, j)
	j, g := mustOpen(t, diskOptions(disk))
	checkContents(t, g, 10)
	if len(g.snapshot) != 7 || len(g.seqs) != 3 {
		t.Errorf("read: got %d lines, %d records; want 7, 3", len(g.snapshot), len(g.seqs))
	}
	mustClose(t, j)
}

// wantFiles checks the names of the files on a disk.
func wantFiles(t *testing.T, when string, disk *memDisk, want string) {
	t.Helper()
	if got := fileNames(disk.files()); got != want {
		t.Errorf("files %s: got %s; want %s", when, got, want)
	}
}

// TestStoreFilesAreJSON checks that all lines are JSON, because people read them with jq.
func TestStoreFilesAreJSON(t *testing.T) {
	disk := newMemDisk()
	j, _ := mustOpen(t, diskOptions(disk))
	mustStore(t, j, 3)
	noError(t, writeSnapshot(j))
	mustStore(t, j, 2)
	mustClose(t, j)
	files := disk.files()
	for name, want := range map[string]string{
		snapshotName: `{"format":2,"snapshot":"stepwell","store":"` + testStoreID + `","at":"2023-11-14T22:13:20.000000Z","seq":3,"count":3 `,
		journalName:  `{"format":2,"journal":"stepwell","store":"` + testStoreID + `","from":4,"sum":"`,
	} {
		if !strings.HasPrefix(files[name], want) {
			t.Errorf("%s: got %.100s; want %s…", name, files[name], want)
		}
		for line := range strings.Lines(files[name]) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%s: not JSON: %s", name, line)
			}
		}
	}
	if got := strings.IndexByte(files[snapshotName], '\n') + 1; got != snapshotHeaderSize {
		t.Errorf("header of the snapshot: got %d bytes; want %d", got, snapshotHeaderSize)
	}
	if got := len(snapshotHeader(testStoreID, 1, 1<<64-1, 1<<64-1)); got != snapshotHeaderSize {
		t.Errorf("greatest header of a snapshot: got %d bytes; want %d", got, snapshotHeaderSize)
	}
}

// TestSnapshotAborted checks that the next snapshot covers the records of one that was given
// up.
func TestSnapshotAborted(t *testing.T) {
	disk := newMemDisk()
	j, _ := mustOpen(t, diskOptions(disk))
	mustStore(t, j, 5)
	s := must(j.startSnapshot())(t)
	s.abort()
	s.abort()
	mustStore(t, j, 2)
	wantFiles(t, "after a snapshot that was given up", disk, "journal.jsonl journal.old.jsonl")
	mustClose(t, j)
	for want := range 2 { // the second one rotates the journal again
		j, g := mustOpen(t, diskOptions(disk))
		checkContents(t, g, uint64(7+want))
		noError(t, writeSnapshot(j))
		mustStore(t, j, 1)
		mustClose(t, j)
		wantFiles(t, fmt.Sprintf("after snapshot %d", want), disk, "journal.jsonl snapshot.jsonl")
	}
	if got := disk.files()[journalName]; got != journalText(9, 9) {
		t.Errorf("journal: got %s; want record 9", got)
	}
}

// TestSnapshotSyncsWhatItShows checks that after a commit the record of every
// change in a line is on disk, even of an unsynced change after the cut.
func TestSnapshotSyncsWhatItShows(t *testing.T) {
	disk := newMemDisk()
	o := diskOptions(disk)
	o.sync = syncNever
	j, _ := mustOpen(t, o)
	mustStore(t, j, 5)
	s := must(j.startSnapshot())(t)
	covered := s.cut()
	appendTest(j, 3)
	for n := range covered {
		s.line(fmt.Appendf(nil, `{"n":%d`, n+1))
	}
	noError(t, s.commit())
	_, g := mustOpen(t, diskOptions(disk.crash(false, false, nil)))
	checkContents(t, g, 8)
	mustClose(t, j)
}

// TestSnapshotFaults checks that the old state remains, and that the journal continues unless
// it cannot know which of its files counts.
func TestSnapshotFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fault    diskFault
		readOnly bool
		linkless bool // the file system gives no second names
	}{
		{diskFault{op: "create", file: snapshotTemp, err: syscall.ENOSPC}, false, false},
		{diskFault{op: "create", file: journalTempName, err: syscall.ENOSPC}, false, false},
		{diskFault{op: "write", file: journalTempName, err: syscall.ENOSPC, times: 1, half: true}, false, false},
		{diskFault{op: "sync", file: journalTempName, err: syscall.EIO, times: 1}, false, false},
		{diskFault{op: "sync", file: journalTempName, err: syscall.EIO, times: 1, after: true}, false, false},
		{diskFault{op: "allocate", file: journalTempName, err: syscall.ENOSPC}, false, false},
		{diskFault{op: "link", file: journalOldName, err: syscall.EPERM}, false, false},
		{diskFault{op: "link", file: journalOldName, err: syscall.EIO, after: true}, false, false},
		{diskFault{op: "syncdir", file: "data", err: syscall.EIO, times: 1}, false, false},
		{diskFault{op: "rename", file: journalName, err: syscall.EIO}, false, true},
		{diskFault{op: "rename", file: journalName, err: syscall.EIO, after: true}, false, true},
		{diskFault{op: "rename", file: journalTempName, err: syscall.EIO}, false, false},
		{diskFault{op: "rename", file: journalTempName, err: syscall.EIO, after: true}, false, false},
		{diskFault{op: "rename", file: journalOldName, err: syscall.EIO}, false, false}, // not reached
		{diskFault{op: "syncdir", file: "data", err: syscall.EIO, times: 1}, true, true},
		{diskFault{op: "syncdir", file: "data", err: syscall.EIO, times: 1, after: true}, true, true},
		{diskFault{op: "syncdir", file: "data", err: syscall.EIO, times: 1, skip: 1}, true, false},
		{diskFault{op: "syncdir", file: "data", err: syscall.EIO, times: 1, skip: 2}, false, false},
		{diskFault{op: "syncdir", file: "data", err: syscall.EIO, times: 1, skip: 2, after: true}, false, false},
		{diskFault{op: "write", file: snapshotTemp, err: syscall.ENOSPC}, false, false},
		{diskFault{op: "write", file: snapshotTemp, err: syscall.ENOSPC, half: true}, false, false},
		{diskFault{op: "write", file: snapshotTemp, err: syscall.EIO, skip: 1}, false, false},
		{diskFault{op: "sync", file: snapshotTemp, err: syscall.EIO}, false, false},
		{diskFault{op: "sync", file: snapshotTemp, err: syscall.EIO, after: true}, false, false},
		{diskFault{op: "free", file: "data", err: syscall.EIO}, false, false},
		{diskFault{op: "rename", file: snapshotTemp, err: syscall.EIO}, false, false},
		{diskFault{op: "rename", file: snapshotTemp, err: syscall.EIO, after: true}, false, false},
		{diskFault{op: "remove", file: journalOldName, err: syscall.EIO}, false, false},
	} {
		f := tt.fault
		name := fmt.Sprintf("%s %s skip=%d half=%v after=%v linkless=%v", f.op, f.file, f.skip, f.half, f.after, tt.linkless)
		t.Run(name, func(t *testing.T) { testSnapshotFault(t, tt.fault, tt.readOnly, tt.linkless) })
	}
}

func testSnapshotFault(t *testing.T, fault diskFault, readOnly, linkless bool) {
	disk := newMemDisk()
	if linkless {
		disk.fail(diskFault{op: "link", file: journalOldName, err: syscall.EPERM})
	}
	j, _ := mustOpen(t, diskOptions(disk))
	mustStore(t, j, 4)
	noError(t, writeSnapshot(j))
	last := mustStore(t, j, 3)
	disk.fail(fault)
	err := writeSnapshot(j)
	passes := fault.op == "remove" || fault.op == "link" || fault.op == "rename" && fault.file == journalOldName ||
		fault.op == "syncdir" && fault.skip == 0 && !linkless
	if (err == nil) != passes {
		t.Errorf("snapshot: got %v; want an error: %v", err, !passes)
	}
	if got := j.reserve() != nil; got != readOnly {
		t.Errorf("reserve: got %v; want an error: %v", j.reserve(), readOnly)
	}
	if !readOnly {
		last = mustStore(t, j, 2)
	}
	if _, ok := disk.files()[snapshotTemp]; ok {
		t.Error("the temporary file is still there")
	}
	for image := range 4 {
		checkUsable(t, fmt.Sprintf("image %d", image), disk.crash(image&1 == 0, image&2 == 0, nil), last)
	}
	disk.mu.Lock()
	disk.faults = nil
	disk.mu.Unlock()
	if readOnly {
		j.close()
		return
	}
	for range 2 {
		if err := writeSnapshot(j); err != nil {
			t.Errorf("snapshot after the fault: %v", err)
		}
		last = mustStore(t, j, 2)
	}
	mustClose(t, j)
	wantFiles(t, "in the end", disk, "journal.jsonl snapshot.jsonl")
	checkUsable(t, "in the end", disk, last)
}

// TestSnapshotDue checks when a snapshot is due: by size, not during another one, and not for a
// minute after a failure, which is logged once until one succeeds.
func TestSnapshotDue(t *testing.T) {
	t.Parallel()
	slow(t)
	synctest.Test(t, func(t *testing.T) {
		disk, logged := newMemDisk(), &logText{}
		o := diskOptions(disk)
		o.log = slog.New(slog.NewTextHandler(logged, nil))
		j, _ := mustOpen(t, o)
		want := func(due bool, when string) {
			t.Helper()
			if got := j.snapshotDue(); got != due {
				t.Errorf("snapshot due %s: got %v; want %v", when, got, due)
			}
		}
		want(false, "at the start")
		storePadded(t, j, snapshotFloor)
		want(true, "beyond the floor")
		s := must(j.startSnapshot())(t)
		want(false, "beside another one")
		s.abort()
		want(true, "after one that was given up")
		disk.fail(diskFault{op: "sync", file: snapshotTemp, times: 2, err: syscall.ENOSPC})
		for range 2 {
			if err := writeSnapshot(j); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("snapshot: got %v; want no space", err)
			}
			want(false, "right after a failure")
		}
		if got := strings.Count(logged.String(), "level=WARN"); got != 1 {
			t.Errorf("warnings: got %d; want 1", got)
		}
		timer := time.NewTimer(snapshotPause)
		<-timer.C
		want(true, "a minute after a failure")
		for range 2 {
			if err := writeSnapshot(j); err != nil {
				t.Error(err)
			}
		}
		want(false, "after a snapshot")
		j.snapshotBytes.Store(snapshotFloor * 8)
		storePadded(t, j, snapshotFloor+1000)
		want(false, "before a quarter of the snapshot")
		storePadded(t, j, snapshotFloor)
		want(true, "beyond a quarter of the snapshot")
		mustClose(t, j)
		want(false, "after close")
	})
}

// TestSnapshotThreshold lets a journal grow beyond the configured size.
func TestSnapshotThreshold(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, serviceTest{dir: t.TempDir(), templates: apiTemplates, config: func(c *Config) {
		c.Store.Sync, c.Store.SnapshotJournalMB = "never", 1
	}})
	large := fmt.Sprintf(`{"namespace":"t","name":"manual","context":{"text":%q}}`, strings.Repeat("x", 200<<10))
	for range 4 {
		s.create(large)
	}
	if got := s.svc.store.status(); got.snapshotBytes > 0 || got.journalBytes >= 1<<20 {
		t.Errorf("got a snapshot of %d bytes beside a journal of %d; want a small journal alone", got.snapshotBytes, got.journalBytes)
	}
	for range 2 {
		s.create(large)
	}
	eventually(t, "a snapshot", func() bool {
		s.create(`{"namespace":"t","name":"manual"}`) // the first change after the journal was written notices its size
		return s.svc.store.status().snapshotBytes > 1<<20
	})
}

// storePadded appends and stores about n bytes.
func storePadded(t *testing.T, j *journal, size int) uint64 {
	t.Helper()
	pad := bytes.Repeat([]byte("y"), 1<<20)
	seq := lastAppended(j)
	for ; size > 0; size -= len(pad) {
		seq++
		j.append(seq, fmt.Appendf(nil, `"pad":"%s"`, pad))
		noError(t, j.wait(t.Context(), seq))
	}
	return seq
}

// TestSnapshotLeavesSpace checks that a snapshot that does not fit gives up
// before the journal lacks space.
func TestSnapshotLeavesSpace(t *testing.T) {
	t.Parallel()
	slow(t)
	disk := newMemDisk()
	disk.capacity = 64 << 20
	j, _ := mustOpen(t, diskOptions(disk))
	mustStore(t, j, 3)
	s := must(j.startSnapshot())(t)
	line := append([]byte(`{"pad":"`), bytes.Repeat([]byte("x"), 1<<20)...)
	line = append(line, '"')
	var err error
	for err == nil {
		err = s.line(line)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("add: got %v; want no space", err)
	}
	if err := j.reserve(); err != nil {
		t.Errorf("reserve: %v", err)
	}
	last := mustStore(t, j, 3)
	mustClose(t, j)
	checkUsable(t, "after it", disk.crash(true, true, nil), last)
}

// TestSnapshotGivesBackInSteps checks that the file that a snapshot replaces shrinks step by
// step, if no name leads to it and none can come back, once nobody reads it.
func TestSnapshotGivesBackInSteps(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	for _, tc := range []struct {
		name  string
		do    func(d *memDisk, path string)
		steps int
		fails bool
	}{
		{"replaced", func(*memDisk, string) {}, 3, false},
		{"replaced while somebody reads it", func(d *memDisk, _ string) { d.readers = 2 }, 3, false},
		{"with another name", func(d *memDisk, path string) { d.names[path+".backup"] = d.names[path] }, 0, false},
		{"in a directory that cannot be synced", func(d *memDisk, path string) {
			d.fail(diskFault{op: "syncdir", file: "data", skip: 2, times: 1, err: syscall.EIO})
		}, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := newMemDisk()
				j, _ := mustOpen(t, diskOptions(disk))
				mustStore(t, j, 1)
				large := must(j.startSnapshot())(t)
				large.cut()
				line := fmt.Appendf(nil, `{"pad":%q`, strings.Repeat("x", shrinkStep))
				for range 3 {
					noError(t, large.line(line))
				}
				noError(t, large.commit())
				before := disk.files()[snapshotName]
				mustStore(t, j, 1)
				tc.do(disk, j.path(snapshotName))
				if err := writeSnapshot(j); (err != nil) != tc.fails {
					t.Errorf("got %v; want an error: %v", err, tc.fails)
				}
				j.freeing.Wait()
				if got := disk.count("truncate", snapshotName); got != tc.steps {
					t.Errorf("the file was shrunk %d times; want %d", got, tc.steps)
				}
				if tc.fails && disk.crash(false, true, nil).files()[snapshotName] != before {
					t.Error("the snapshot that a crash brings back is not whole")
				}
				j.close()
			})
		})
	}
}

// TestLinesAreMadeInBatches checks that only a few lines of large unfinished tasks are made at
// a time.
func TestLinesAreMadeInBatches(t *testing.T) {
	s := newTestService(t, serviceTest{extra: storyTemplates})
	for range 8 {
		mustCreate(t, s, "pair", `"context":{"padding":"`+strings.Repeat("x", lineBatchBytes/3)+`"}`)
	}
	from, seen := 0, 0
	for from < 8 {
		var lines []shortLine
		lines, from = s.store.lineBatch(nil, from, 8)
		if seen += len(lines); len(lines) == 0 || len(lines) > 3 {
			t.Fatalf("got %d lines at once; want at most 3", len(lines))
		}
	}
	if seen != 8 {
		t.Errorf("got %d lines; want 8", seen)
	}
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

// TestSnapshotWithoutDescriptors expects a rotation that has begun to need no more descriptors,
// and one that cannot begin to leave the store writable.
func TestSnapshotWithoutDescriptors(t *testing.T) {
	t.Parallel()
	disk := &fullTable{memDisk: newMemDisk()}
	o := diskOptions(nil)
	o.fs = disk
	j, _ := mustOpen(t, o)
	mustStore(t, j, 3)
	disk.full = true
	noError(t, writeSnapshot(j))
	mustStore(t, j, 3)
	for _, file := range []string{snapshotTemp, journalTempName} {
		disk.fail(diskFault{op: "create", file: file, times: 1, err: syscall.EMFILE})
		if err := writeSnapshot(j); !errors.Is(err, syscall.EMFILE) {
			t.Errorf("%s: got %v; want that no file can be opened", file, err)
		}
		mustStore(t, j, 1)
	}
	noError(t, writeSnapshot(j))
	mustClose(t, j)
}
