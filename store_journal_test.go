package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// logText collects log records.
type logText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// gathered is a loader that keeps everything.
type gathered struct {
	lines   []string // of the compacted part
	seqs    []uint64
	records []string
}

func (g *gathered) begin(*storeHeader, int) error { return nil }

func (g *gathered) compacted(line *checkedLine) error {
	g.lines = append(g.lines, string(line.text))
	return nil
}

func (g *gathered) record(line *checkedLine) error {
	g.seqs = append(g.seqs, line.seq)
	g.records = append(g.records, string(line.text))
	return nil
}

// diskOptions returns options for the disk in memory.
func diskOptions(disk *memDisk) journalOptions {
	return journalOptions{
		dir: testDir,
		id:  testStoreID,
		key: testFailureKey,
		fs:  disk,
		log: slog.New(slog.DiscardHandler),
		now: func() instant { return 1_700_000_000_000_000 },
	}
}

func mustOpen(t *testing.T, o journalOptions) (*journal, *gathered) {
	t.Helper()
	g := &gathered{}
	j, err := openJournal(o, g)
	if err != nil {
		t.Fatalf("open journal: %v", err)
	}
	return j, g
}

func mustClose(t *testing.T, j *journal) {
	t.Helper()
	if err := j.close(); err != nil {
		t.Errorf("close journal: %v", err)
	}
}

// mustStore appends n records and waits for them.
func mustStore(t *testing.T, j *journal, n int) uint64 {
	t.Helper()
	seq := appendTest(j, n)
	if err := j.wait(t.Context(), seq); err != nil {
		t.Fatalf("wait for record %d: %v", seq, err)
	}
	return seq
}

// checkContents compares what a start read with what was stored: every sequence
// from 1 on once, at least up to atLeast.
func checkContents(t *testing.T, g *gathered, atLeast uint64) {
	t.Helper()
	var next uint64 = 1
	for _, line := range g.lines {
		if want := fmt.Sprintf(`{"n":%d,"sum":`, next); !strings.HasPrefix(line, want) {
			t.Fatalf("line: got %s; want %s…", line, want)
		}
		next++
	}
	for i, seq := range g.seqs {
		line := []byte(g.records[i])
		want := strings.TrimSuffix(string(appendRecord(nil, next, seq-writeBegan(seq, line), testBody(next))), "\n")
		if seq != next || g.records[i] != want {
			t.Fatalf("record %d: got %s; want %d: %s", seq, g.records[i], next, want)
		}
		next++
	}
	if next <= atLeast {
		t.Fatalf("records: got 1 to %d; want at least to %d", next-1, atLeast)
	}
}

func TestJournalKeepsRecords(t *testing.T) {
	t.Parallel()
	for _, mode := range []syncMode{syncAlways, syncNever} {
		t.Run(mode.String(), func(t *testing.T) {
			o := diskOptions(nil)
			o.dir, o.fs, o.sync = t.TempDir()+"/new/store", osDisk{}, mode
			for start := range 4 {
				j, g := mustOpen(t, o)
				checkContents(t, g, uint64(start*10))
				if got, want := j.groups.durable(), uint64(start*10); got != want {
					t.Errorf("durable after start %d: got %d; want %d", start, got, want)
				}
				if err := j.reserve(0); err != nil {
					t.Errorf("reserve: %v", err)
				}
				mustStore(t, j, 5)
				mustStore(t, j, 5)
				mustClose(t, j)
			}
		})
	}
}

func TestJournalInMemory(t *testing.T) {
	j, _ := mustOpen(t, journalOptions{memory: true})
	mustStore(t, j, 3)
	s := j.status()
	if s.records != 3 || s.durability != "memory" || !s.writable || j.groups.durable() != 3 {
		t.Errorf("status: got %+v, durable %d", s, j.groups.durable())
	}
	if j.reserve(0) != nil || j.compactionDue() {
		t.Errorf("reserve: got %v; want nil; compaction due: got %v; want false", j.reserve(0), j.compactionDue())
	}
	mustClose(t, j)
	if kindOf(j.reserve(0)) != unavailable {
		t.Errorf("reserve after close: got %v; want unavailable", j.reserve(0))
	}
}

// TestJournalTiming checks in fake time how long each mode takes to write and
// sync records that nobody waits for.
func TestJournalTiming(t *testing.T) {
	for _, tt := range []struct {
		mode          syncMode
		written, sync time.Duration // 0: not by itself
	}{
		{syncAlways, lazyFlush, lazyFlush},
		{syncNever, lazyFlush, 0},
	} {
		t.Run(tt.mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := newMemDisk()
				o := diskOptions(disk)
				o.sync = tt.mode
				j, _ := mustOpen(t, o)
				disk.mu.Lock()
				disk.written, disk.synced = make(chan struct{}, 1), make(chan struct{}, 1)
				disk.mu.Unlock()
				for range 3 {
					start := time.Now()
					appendTest(j, 2)
					<-disk.written
					if got := time.Since(start); got > tt.written {
						t.Errorf("written after %v; want %v at the most", got, tt.written)
					}
					if tt.sync != 0 {
						<-disk.synced
						if got := time.Since(start); got > tt.sync || got < tt.sync-lazyFlush {
							t.Errorf("synced after %v; want %v", got, tt.sync)
						}
						synctest.Wait()
						if got, want := j.groups.durable(), lastAppended(j); got != want {
							t.Errorf("durable: got %d; want %d", got, want)
						}
					}
				}
				mustClose(t, j)
				if got := len(disk.synced); got != 1 && tt.mode == syncNever {
					t.Errorf("syncs at the end: got %d; want 1", got)
				}
			})
		})
	}
}

// TestJournalCloseKeepsPending checks that close stores what was appended
// before it, and that callers may wait for that afterwards.
func TestJournalCloseKeepsPending(t *testing.T) {
	for _, mode := range []syncMode{syncAlways, syncNever} {
		disk := newMemDisk()
		o := diskOptions(disk)
		o.sync = mode
		j, _ := mustOpen(t, o)
		seq := appendTest(j, 3)
		mustClose(t, j)
		mustClose(t, j)
		if err := j.wait(t.Context(), seq); err != nil {
			t.Errorf("%v: wait after close: %v", mode, err)
		}
		j.groups.append(seq+1, testBody(seq+1))
		if err := j.wait(t.Context(), seq+1); kindOf(err) != unavailable {
			t.Errorf("%v: wait for a record after close: got %v; want unavailable", mode, err)
		}
		if err := j.reserve(0); kindOf(err) != unavailable {
			t.Errorf("%v: reserve after close: got %v; want unavailable", mode, err)
		}
		if err := compactTest(j); err == nil {
			t.Errorf("%v: compaction after close: got no error", mode)
		}
		_, g := mustOpen(t, diskOptions(disk.crash(true, false, nil)))
		checkContents(t, g, seq)
	}
}

// TestJournalFaults checks that nothing is written after a failed write or
// sync, that every caller is told, and that a start finds what was
// acknowledged.
func TestJournalFaults(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault diskFault
	}{
		{"write fails once", diskFault{op: "write", times: 1, err: syscall.EIO}},
		{"write fails for good", diskFault{op: "write", err: syscall.EIO}},
		{"half a write", diskFault{op: "write", times: 1, half: true, err: syscall.ENOSPC}},
		{"write happens and fails", diskFault{op: "write", times: 1, after: true, err: syscall.EIO}},
		{"sync fails once", diskFault{op: "sync", times: 1, err: syscall.EIO}},
		{"sync happens and fails", diskFault{op: "sync", times: 1, after: true, err: syscall.EIO}},
		{"sync fails once and leaves its pages clean", diskFault{op: "sync", times: 1, clean: true, err: syscall.ENOSPC}},
	} {
		for _, mode := range []syncMode{syncAlways, syncNever} {
			t.Run(tt.name+"/"+mode.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testJournalFault(t, tt.fault, mode) })
			})
		}
	}
}

func testJournalFault(t *testing.T, fault diskFault, mode syncMode) {
	disk := newMemDisk()
	logged := &logText{}
	o := diskOptions(disk)
	o.sync, o.log = mode, slog.New(slog.NewTextHandler(logged, nil))
	j, _ := mustOpen(t, o)
	mustStore(t, j, 3)
	if err := j.during(func() error { return j.flush(true) }); err != nil {
		t.Fatalf("flush: %v", err)
	}
	fault.file = storeName
	disk.fail(fault)
	seq := appendTest(j, 1)
	err := j.wait(t.Context(), seq)
	if mode != syncAlways {
		err = j.during(func() error { return j.flush(true) })
		if err == nil {
			t.Fatal("flush: got no error")
		}
		err = j.wait(t.Context(), seq)
	}
	if kindOf(err) != unavailable || !strings.Contains(err.Error(), "outcome unknown") {
		t.Errorf("wait: got %v; want unavailable, outcome unknown", err)
	}
	if err := j.wait(t.Context(), 3); err != nil {
		t.Errorf("wait for a record that was stored: %v", err)
	}
	writes := disk.count("write", fault.file)
	named := fault.op + " of store.jsonl failed"
	if err := j.reserve(0); kindOf(err) != unavailable || !strings.Contains(err.Error(), named) {
		t.Errorf("reserve: got %v; want unavailable, %s", err, named)
	}
	j.groups.append(seq+1, testBody(seq+1))
	if err := j.wait(t.Context(), seq+1); kindOf(err) != unavailable {
		t.Errorf("wait for the next: got %v; want unavailable", err)
	}
	if err := compactTest(j); err == nil {
		t.Error("compaction: got no error")
	}
	if s := j.status(); s.writable || !strings.Contains(s.reason, "the store has failed: ") {
		t.Errorf("status: got %+v; want it to have failed", s)
	}
	if err := j.close(); err == nil {
		t.Error("close: got no error")
	}
	if got := disk.count("write", fault.file); got != writes {
		t.Errorf("writes after the failure: got %d", got-writes)
	}
	if got := strings.Count(logged.String(), "level=ERROR"); got != 1 {
		t.Errorf("errors logged: got %d; want 1:\n%s", got, logged)
	}
	for _, keep := range []bool{true, false} {
		j, g := mustOpen(t, diskOptions(disk.crash(true, keep, nil)))
		checkContents(t, g, 3)
		mustClose(t, j)
	}
	for _, starts := range []int{1, 2} {
		checkKeptByStarts(t, disk, starts)
	}
}

// checkKeptByStarts starts on a disk that failed, whose machine stayed on, and loses the power
// after a record was stored: everything that a start had read must be there.
func checkKeptByStarts(t *testing.T, disk *memDisk, starts int) {
	t.Helper()
	var j *journal
	for range starts {
		disk = disk.restart()
		j, _ = mustOpen(t, diskOptions(disk))
		defer j.close()
	}
	last := mustStore(t, j, 1)
	j, g := mustOpen(t, diskOptions(disk.crash(true, false, nil)))
	checkContents(t, g, last)
	mustClose(t, j)
}

// TestStartThatCannotWrite expects a start to fail if it can make nothing durable, and to serve reads on a full disk.
func TestStartThatCannotWrite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fault diskFault
		opens bool
	}{
		{diskFault{op: "write", file: storeName, err: syscall.EIO}, false},
		{diskFault{op: "write", file: storeName, err: syscall.ENOSPC}, true},
		{diskFault{op: "write", file: storeName, err: syscall.EDQUOT}, true},
		{diskFault{op: "sync", file: storeName, err: syscall.EIO}, false},
		{diskFault{op: "truncate", file: storeName, err: syscall.EIO}, false},
		{diskFault{op: "syncdir", file: "data", err: syscall.EIO}, false},
	} {
		disk := memDiskWith(testDir, map[string]string{storeName: storeText(0, 3)})
		disk.fail(tt.fault)
		j, err := openJournal(diskOptions(disk), &gathered{})
		if (err == nil) != tt.opens || err != nil && !errors.Is(err, tt.fault.err) || disk.locked != tt.opens {
			t.Errorf("%s: got error %v, locked %v; want the start to succeed: %v", tt.fault.op, err, disk.locked, tt.opens)
		}
		if err == nil {
			j.close()
		}
	}
}

func TestJournalStatusCountsBytes(t *testing.T) {
	disk := newMemDisk()
	j, _ := mustOpen(t, diskOptions(disk))
	mustStore(t, j, 7)
	for range 2 {
		s := j.status()
		lines := strings.SplitAfter(disk.files()[storeName], "\n")
		end := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, endHead) }) + 1
		compacted, records := strings.Join(lines[:end], ""), strings.Join(lines[end:], "")
		if s.journalBytes != int64(len(records)) || s.snapshotBytes != int64(len(compacted)) {
			t.Errorf("bytes: got %d of records, %d compacted; want %d, %d", s.journalBytes, s.snapshotBytes, len(records), len(compacted))
		}
		noError(t, compactTest(j))
		mustStore(t, j, 2)
	}
	mustClose(t, j)
}

type slowFile struct {
	diskFile
	disk *slowMemDisk
}

func (f *slowFile) sync() error {
	f.disk.pass(!f.disk.writes && !f.disk.space)
	return f.diskFile.sync()
}

func (f *slowFile) WriteAt(p []byte, off int64) (int, error) {
	f.disk.pass(f.disk.writes)
	return f.diskFile.WriteAt(p, off)
}

func (f *slowFile) allocate(off, n int64) error {
	f.disk.pass(f.disk.space)
	return f.diskFile.allocate(off, n)
}

const benchBody = 500 // bytes

// BenchmarkJournalCommit measures append and wait by 1, 16 and 64 goroutines.
// BenchmarkBareCommit is the comparison.
func BenchmarkJournalCommit(b *testing.B) {
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) { benchCommit(b, writers) })
	}
}

func benchCommit(b *testing.B, writers int) {
	o := diskOptions(nil)
	o.dir, o.fs = b.TempDir(), osDisk{}
	j := must(openJournal(o, &gathered{}))(b)
	body := append([]byte(`"pad":"`), bytes.Repeat([]byte("x"), benchBody-8)...)
	body = append(body, '"')
	var mu sync.Mutex // the store's
	var seq uint64
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	for range writers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				mu.Lock()
				if err := j.reserve(0); err != nil {
					b.Error(err)
				}
				seq++
				n := seq
				j.groups.append(n, body)
				mu.Unlock()
				if err := j.wait(b.Context(), n); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(b.N)/float64(j.status().syncs), "records/sync")
	if err := j.close(); err != nil {
		b.Error(err)
	}
}

// BenchmarkJournalAppend measures the cost of a record under the store's lock. There is no
// flusher; the buffer is emptied from time to time.
func BenchmarkJournalAppend(b *testing.B) {
	j := newJournal(diskOptions(nil))
	j.space.room.Store(math.MaxInt64)
	body := bytes.Repeat([]byte("x"), benchBody)
	b.ReportAllocs()
	seq := uint64(0)
	for b.Loop() {
		noError(b, j.reserve(0))
		seq++
		j.groups.append(seq, body)
		if len(j.groups.buf) > keepBuffer {
			j.groups.buf = j.groups.buf[:0]
		}
	}
}
