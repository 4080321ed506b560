package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
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
				tc.do(disk, j.files.path(snapshotName))
				if err := writeSnapshot(j); (err != nil) != tc.fails {
					t.Errorf("got %v; want an error: %v", err, tc.fails)
				}
				j.files.freeing.Wait()
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
		s.store.locked(func() { lines, from = s.store.tasks.lineBatch(nil, from, 8) })
		if seen += len(lines); len(lines) == 0 || len(lines) > 3 {
			t.Fatalf("got %d lines at once; want at most 3", len(lines))
		}
	}
	if seen != 8 {
		t.Errorf("got %d lines; want 8", seen)
	}
}

// TestRetention checks that the tasks that finished first are dropped, whenever
// they were created, and nothing unfinished or under investigation.
func TestRetention(t *testing.T) {
	t.Parallel()
	clock := newVirtualClock(testStart)
	o := serviceTest{dir: t.TempDir(), clock: clock, config: retaining(2), extra: append(storyTemplates, dlqTemplates[1])}
	s := openTestService(t, o)
	old := mustCreate(t, s, "pair") // waits for an actor
	first, second := mustCreate(t, s, "noop"), mustCreate(t, s, "noop")
	wantKept(t, s, old.id, first.id, second.id)
	mustAct(t, s, old, 0, completeAction)
	wantKept(t, s, old.id, second.id)
	failed := mustCreate(t, s, "one")
	mustAct(t, s, failed, 0, failAction)
	must(s.operator.cancelTask(t.Context(), failed.id, taskActor{}))(t)
	third := mustCreate(t, s, "noop")
	wantKept(t, s, old.id, failed.id, third.id)
	for restart := range 2 {
		s = reopenTestService(t, s, o)
		if got := kept(s); !slices.Equal(got, []uuid{old.id, failed.id, third.id}) {
			t.Fatalf("after restart %d: got %v", restart, got)
		}
		noError(t, s.store.snapshot())
	}
	entry := s.store.dead.index.rows[0].id
	noError(t, s.dlq.update(t.Context(), entry, &investigation{status: dlqCancelled}, nil))
	wantKept(t, s, failed.id, third.id)
	last := mustCreate(t, s, "noop")
	wantKept(t, s, failed.id, last.id)
	closeTestService(t, s)
}

// TestMemoryAfterStart compares the counted size of large tasks with the memory that they take
// when they were read.
func TestMemoryAfterStart(t *testing.T) {
	slowAndSequential(t)
	o := serviceTest{dir: t.TempDir(), config: func(c *Config) { c.Store.Sync = "never" }, extra: storyTemplates}
	s := openTestService(t, o)
	for range 200 {
		mustCreate(t, s, "noop", `"context":{"a":"`+strings.Repeat("a", 160<<10)+`"}`)
	}
	closeTestService(t, s)
	alone := must(openStore(journalOptions{dir: o.dir, log: s.log, now: s.clock.now}, 1, s.clock, s.log))(t)
	noError(t, errors.Join(alone.compact(), alone.close()))
	before := liveHeap()
	read := must(readStore(o.dir, slog.New(slog.DiscardHandler)))(t)
	took, counted := liveHeap()-before, float64(read.retain.bytes)/1e6
	if t.Logf("%.1f MB, counted as %.1f", took, counted); took > 1.15*counted {
		t.Errorf("they take %.1f MB; want about the %.1f that they count", took, counted)
	}
}

// TestRetentionKeepsFigures drops tasks, and restarts from the journal and from
// a snapshot: the figures count them as before, and no id is used again.
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
		noError(t, s.store.snapshot())
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
		line := sl.line.text()
		if sl.live != nil {
			line = sl.live.appendTaskLine(nil)
		}
		fmt.Fprintf(&b, "%s\n", line)
	}
	return b.String()
}

func wantLines(t *testing.T, when string, s *service, want string) {
	t.Helper()
	if got := lines(s); got != want {
		t.Errorf("%s the store has\n%s\nwant\n%s", when, got, want)
	}
}

// TestSnapshot writes snapshots in the middle of the story. A start from them and the journal
// gives the same tasks.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates}
	s := openTestService(t, o)
	for range 3 {
		tellStoryWithoutKey(t, s)
		noError(t, s.store.snapshot())
	}
	tellStoryWithoutKey(t, s)
	before := lines(s)
	s = reopenTestService(t, s, o)
	wantLines(t, "after the restart", s, before)
	if err := s.store.snapshot(); err != nil { // of lines that came from a snapshot
		t.Fatal(err)
	}
	closeTestService(t, s)
	s = newTestService(t, o)
	wantLines(t, "after a snapshot of a snapshot", s, before)
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

// TestSnapshotBesideChanges writes snapshots while tasks are created and ended.
func TestSnapshotBesideChanges(t *testing.T) {
	t.Parallel()
	slow(t)
	o := serviceTest{dir: t.TempDir(), extra: storyTemplates, config: func(c *Config) { c.Store.Sync = "never" }}
	s := openTestService(t, o)
	done := make(chan error)
	go func() {
		for range 5 {
			if err := s.store.snapshot(); err != nil {
				done <- err
				return
			}
		}
		close(done)
	}()
	for i := 0; ; i++ {
		mustAct(t, s, mustCreate(t, s, "pair"), 0, completeAction)
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		default:
			continue
		}
		break
	}
	before := lines(s)
	closeTestService(t, s)
	if after := lines(newTestService(t, o)); after != before {
		t.Error("after the restart the store is another")
	}
}

// TestSnapshotWithoutFigures reads a snapshot from before figures were kept:
// they are counted from the tasks.
func TestSnapshotWithoutFigures(t *testing.T) {
	t.Parallel()
	o := storyOptions(t.TempDir())
	s := openTestService(t, o)
	y := newStory(t, s)
	tellFigures(y)
	w := must(s.store.journal.startSnapshot())(t)
	covered := w.cut()
	noError(t, s.store.writeSnapshot(w, len(s.store.tasks.slots), &frozenFigures{}, covered))
	noError(t, w.commit())
	tellFigures(y)
	closeTestService(t, s)
	want := figuresText(s.store.analytics)
	if got := figuresText(reread(t, s, o.dir).analytics); got != want {
		t.Errorf("the figures are\n%s\nwant\n%s", got, want)
	}
}

// writeSnapshot makes a snapshot whose lines are the sequences it covers.
func writeSnapshot(j *journal) error {
	s, err := j.startSnapshot()
	if err != nil {
		return err
	}
	defer s.abort()
	for n := uint64(1); n <= s.cut(); n++ {
		if err := s.line(fmt.Appendf(nil, `{"n":%d`, n)); err != nil {
			return err
		}
	}
	return s.commit()
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
		j.snapshots.bytes.Store(snapshotFloor * 8)
		storePadded(t, j, snapshotFloor+1000)
		want(false, "before a quarter of the snapshot")
		storePadded(t, j, snapshotFloor)
		want(true, "beyond a quarter of the snapshot")
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

// cut fixes what the snapshot covers, everything appended so far, and returns the last sequence of that.
func (s *snapshotWriter) cut() uint64 {
	s.j.groups.mu.Lock()
	defer s.j.groups.mu.Unlock()
	s.covered = s.j.groups.appended
	return s.covered
}

// TestStopAfterAHalfSnapshot stops a store whose newest snapshot got its name although that failed.
func TestStopAfterAHalfSnapshot(t *testing.T) {
	disk := newMemDisk()
	j, _ := mustOpen(t, diskOptions(disk))
	mustStore(t, j, 3)
	noError(t, writeSnapshot(j))
	mustStore(t, j, 3)
	disk.fail(diskFault{op: "syncdir", file: "data", skip: 2, times: 1, err: syscall.EIO})
	if err := writeSnapshot(j); err == nil || !strings.Contains(disk.files()[snapshotName], `"seq":6`) {
		t.Fatalf("got %v; want a snapshot that has its name although it failed", err)
	}
	mustClose(t, j)
	j, g := mustOpen(t, diskOptions(disk.restart()))
	checkContents(t, g, 6)
	mustClose(t, j)
}
