package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const (
	testDir     = "/data"
	testStoreID = "TESTSTORETESTSTORETESTSTOR" // of the stores that tests make
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
	snapshot []string
	seqs     []uint64
	records  []string
}

func (g *gathered) expect(int) {}

func (g *gathered) snapshotLine(line *checkedLine) error {
	g.snapshot = append(g.snapshot, string(line.text))
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

// testBody returns the body of a record that contains its number.
func testBody(seq uint64) []byte {
	return fmt.Appendf(nil, `"kind":"test","n":%d,"pad":"%s"`, seq, strings.Repeat("x", int(seq%17)))
}

// appendTest appends the next n records without waiting and returns the last sequence.
func appendTest(j *journal, n int) uint64 {
	seq := lastAppended(j)
	for range n {
		seq++
		j.append(seq, testBody(seq))
	}
	return seq
}

func lastAppended(j *journal) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.appended
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
	for _, line := range g.snapshot {
		if want := fmt.Sprintf(`{"n":%d,"sum":`, next); !strings.HasPrefix(line, want) {
			t.Fatalf("snapshot line: got %s; want %s…", line, want)
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

func TestJournalKeepsRecords(t *testing.T) {
	t.Parallel()
	for _, mode := range []syncMode{syncAlways, syncInterval, syncNever} {
		t.Run(mode.String(), func(t *testing.T) {
			o := diskOptions(nil)
			o.dir, o.fs, o.sync = t.TempDir()+"/new/store", osDisk{}, mode
			for start := range 4 {
				j, g := mustOpen(t, o)
				checkContents(t, g, uint64(start*10))
				if got, want := j.durable(), uint64(start*10); got != want {
					t.Errorf("durable after start %d: got %d; want %d", start, got, want)
				}
				if err := j.reserve(); err != nil {
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
	if s.records != 3 || s.durability != "memory" || !s.writable || j.durable() != 3 {
		t.Errorf("status: got %+v, durable %d", s, j.durable())
	}
	if j.reserve() != nil || j.snapshotDue() {
		t.Errorf("reserve: got %v; want nil; snapshot due: got %v; want false", j.reserve(), j.snapshotDue())
	}
	if _, err := j.startSnapshot(); err == nil {
		t.Error("start snapshot: got no error")
	}
	mustClose(t, j)
	if kindOf(j.reserve()) != unavailable {
		t.Errorf("reserve after close: got %v; want unavailable", j.reserve())
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
		{syncInterval, lazyFlush, lazyFlush + 50*time.Millisecond},
		{syncNever, lazyFlush, 0},
	} {
		t.Run(tt.mode.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := newMemDisk()
				o := diskOptions(disk)
				o.sync, o.interval = tt.mode, 50*time.Millisecond
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
						if got, want := j.durable(), lastAppended(j); got != want {
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

// TestJournalGroups delays a sync and checks that one more sync is enough for everything that
// came meanwhile.
func TestJournalGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newMemDisk()
		j, _ := mustOpen(t, diskOptions(disk))
		disk.synced = make(chan struct{}) // a sync ends when it is received
		results := make(chan error, 100)
		wait := func(seq uint64) {
			go func() { results <- j.wait(t.Context(), seq) }()
			synctest.Wait()
		}
		answered := func(want int) {
			t.Helper()
			synctest.Wait()
			if got := len(results); got != want {
				t.Errorf("answers: got %d; want %d", got, want)
			}
			for range len(results) {
				if err := <-results; err != nil {
					t.Errorf("wait: %v", err)
				}
			}
		}
		first := appendTest(j, 2)
		wait(first - 1)
		wait(first) // in the group that is being synced
		for range 98 {
			wait(appendTest(j, 1))
		}
		answered(0)
		<-disk.synced
		answered(2)
		<-disk.synced
		answered(98)
		if got := j.status().syncs; got != 2 {
			t.Errorf("syncs for 100 records: got %d; want 2", got)
		}
		disk.synced = nil
		mustClose(t, j)
	})
}

func TestJournalWaitEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newMemDisk()
		j, _ := mustOpen(t, diskOptions(disk))
		disk.synced = make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		seq := appendTest(j, 1)
		if err := j.wait(ctx, seq); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait: got %v; want deadline exceeded", err)
		}
		<-disk.synced
		synctest.Wait()
		if got := j.durable(); got != seq {
			t.Errorf("durable: got %d; want %d", got, seq)
		}
		mustClose(t, j)
	})
}

// TestCallerFlushes checks that a patient caller who waits alone writes by itself, that what comes
// meanwhile is written next, that others are told if the disk hangs, and that a caller is told if it was cut off.
func TestCallerFlushes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newMemDisk()
		o := diskOptions(disk)
		o.slow = time.Second
		j, _ := mustOpen(t, o)
		disk.synced = make(chan struct{})
		type answer struct {
			patient bool
			err     error
		}
		answers := make(chan answer, 10)
		wait := func(patient bool) {
			seq := appendTest(j, 1)
			go func() { answers <- answer{patient, j.await(t.Context(), seq, patient)} }()
			synctest.Wait()
		}
		wait(true)
		if len(j.turn) == 0 || j.flying != nil {
			t.Fatal("the caller leaves it to the flusher")
		}
		wait(true)
		wait(false)
		if a := <-answers; a.patient || kindOf(a.err) != unavailable {
			t.Errorf("while the disk hangs: got %+v; want the impatient refused", a)
		}
		for range 2 {
			if got := j.durable(); got == lastAppended(j) {
				t.Errorf("durable before its sync: %d", got)
			}
			<-disk.synced
			if a := <-answers; !a.patient || a.err != nil {
				t.Errorf("got %+v; want the patient answered", a)
			}
		}
		wait(false) // alone again
		<-disk.synced
		<-answers
		ctx, cancel := context.WithCancel(t.Context())
		seq, cut := appendTest(j, 1), make(chan error, 1)
		go func() { cut <- j.await(ctx, seq, true) }()
		synctest.Wait()
		cancel()
		<-disk.synced
		if err := <-cut; !errors.Is(err, context.Canceled) {
			t.Errorf("cut off during its sync: got %v", err)
		}
		disk.synced = nil
		mustClose(t, j)
		if err := j.await(t.Context(), lastAppended(j)+1, true); kindOf(err) != unavailable {
			t.Errorf("after the end: got %v", err)
		}
	})
}

// TestJournalCloseKeepsPending checks that close stores what was appended
// before it, and that callers may wait for that afterwards.
func TestJournalCloseKeepsPending(t *testing.T) {
	for _, mode := range []syncMode{syncAlways, syncInterval, syncNever} {
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
		j.append(seq+1, testBody(seq+1))
		if err := j.wait(t.Context(), seq+1); kindOf(err) != unavailable {
			t.Errorf("%v: wait for a record after close: got %v; want unavailable", mode, err)
		}
		if err := j.reserve(); kindOf(err) != unavailable {
			t.Errorf("%v: reserve after close: got %v; want unavailable", mode, err)
		}
		if err := writeSnapshot(j); err == nil {
			t.Errorf("%v: snapshot after close: got no error", mode)
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
		for _, mode := range []syncMode{syncAlways, syncInterval, syncNever} {
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
	if err := j.ask(func() error { return j.flush(true) }); err != nil {
		t.Fatalf("flush: %v", err)
	}
	fault.file = journalTempName // the name that the first journal was opened by
	disk.fail(fault)
	seq := appendTest(j, 1)
	err := j.wait(t.Context(), seq)
	if mode != syncAlways {
		err = j.ask(func() error { return j.flush(true) })
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
	named := fault.op + " of the journal failed"
	if err := j.reserve(); kindOf(err) != unavailable || !strings.Contains(err.Error(), named) {
		t.Errorf("reserve: got %v; want unavailable, %s", err, named)
	}
	j.append(seq+1, testBody(seq+1))
	if err := j.wait(t.Context(), seq+1); kindOf(err) != unavailable {
		t.Errorf("wait for the next: got %v; want unavailable", err)
	}
	if err := writeSnapshot(j); err == nil {
		t.Error("snapshot: got no error")
	}
	if s := j.status(); s.writable || !strings.Contains(s.reason, "read-only until a restart") {
		t.Errorf("status: got %+v; want read-only", s)
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

// TestCleanJournal expects a start to write the journal again unless it was closed well, and
// is still the same.
func TestCleanJournal(t *testing.T) {
	t.Parallel()
	stored := newMemDisk()
	j, _ := mustOpen(t, diskOptions(stored))
	mustStore(t, j, 3)
	mustClose(t, j)
	for _, tt := range []struct {
		name   string
		change func(d *memDisk)
		again  bool
	}{
		{"closed well", func(*memDisk) {}, false},
		{"without the note", func(d *memDisk) { noError(t, d.remove(testDir+"/"+cleanName)) }, true},
		{"with a torn note", func(d *memDisk) { d.names[testDir+"/"+cleanName].data[3] = 'x' }, true},
		{"with a longer journal", func(d *memDisk) {
			n := d.names[testDir+"/"+journalName]
			n.data = appendRecord(n.data, 4, 0, testBody(4))
		}, true},
		{"with a torn journal", func(d *memDisk) {
			n := d.names[testDir+"/"+journalName]
			n.data = append(n.data, "{"...)
		}, true},
		{"with a copy of the journal", func(d *memDisk) {
			n := d.names[testDir+"/"+journalName]
			d.names[testDir+"/"+journalName] = newMemNode(n.data, n.kept)
		}, true},
		{"started once more", func(d *memDisk) {
			j, _ := mustOpen(t, diskOptions(d))
			t.Cleanup(func() { j.close() })
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk := stored.restart()
			tt.change(disk)
			disk = disk.restart()
			j, _ := mustOpen(t, diskOptions(disk))
			if got := disk.count("write", journalName) > 0; got != tt.again {
				t.Errorf("the journal was written again: got %v; want %v", got, tt.again)
			}
			mustClose(t, j)
		})
	}
}

// TestJournalThatCannotBeRenewed expects a start to fail if it can make nothing durable.
func TestJournalThatCannotBeRenewed(t *testing.T) {
	t.Parallel()
	files := map[string]string{journalName: journalText(1, 3)}
	for _, fault := range []diskFault{
		{op: "write", file: journalName, err: syscall.ENOSPC}, {op: "sync", file: journalName, err: syscall.EIO},
	} {
		disk := memDiskWith(testDir, files)
		disk.fail(fault)
		_, err := openJournal(diskOptions(disk), &gathered{})
		if !errors.Is(err, fault.err) || !strings.Contains(err.Error(), journalName) || disk.locked {
			t.Errorf("%s: got error %v, locked %v; want it with the file's name", fault.op, err, disk.locked)
		}
	}
}

// TestLargeTemplateOnAFullDisk uses a template of more bytes than are reserved for a change, on
// a disk that has no more: it is refused, and everything else goes on.
func TestLargeTemplateOnAFullDisk(t *testing.T) {
	slowAndSequential(t)
	t.Parallel()
	for _, plain := range []bool{false, true} {
		disk := newMemDisk()
		disk.plain = plain
		large := testTemplate("large", stepSpec{name: "a", callable: "Outside",
			config: `{"pad":"` + strings.Repeat("x", 20<<20) + `"}`})
		s := newTestServer(t, serviceTest{dir: testDir, disk: disk, log: io.Discard, extra: append(claimTemplates, large)})
		s.create(`{"namespace":"t","name":"one"}`)
		disk.setCapacity(disk.used() + 1<<20)
		for range 2 {
			a := s.do("POST", "/v1/tasks", `{"namespace":"t","name":"large"}`).want(503)
			if !strings.Contains(a.text("error.message"), "no space left") || a.header.Get("Retry-After") == "" {
				t.Errorf("plain=%v: got %s; want no space, and when to try again", plain, a.body)
			}
			s.create(`{"namespace":"t","name":"two"}`)
		}
		disk.setCapacity(disk.used() + 64<<20)
		s.create(`{"namespace":"t","name":"large"}`)
		if st := s.svc.store.status(); !st.writable {
			t.Errorf("plain=%v: got the store read-only: %s", plain, st.reason)
		}
	}
}

// TestJournalFullDisk checks that changes are refused before they are made,
// that nothing is lost, and that changes are accepted a second after there is
// space.
func TestJournalFullDisk(t *testing.T) {
	t.Parallel()
	slow(t)
	for _, plain := range []bool{false, true} {
		t.Run(fmt.Sprintf("plain=%v", plain), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testFullDisk(t, plain) })
		})
	}
}

func testFullDisk(t *testing.T, plain bool) {
	disk := newMemDisk()
	disk.capacity, disk.plain = 40<<20, plain
	logged := &logText{}
	o := diskOptions(disk)
	o.log = slog.New(slog.NewTextHandler(logged, nil))
	j, _ := mustOpen(t, o)
	seq, pad := uint64(0), bytes.Repeat([]byte("y"), 1<<20)
	for j.reserve() == nil {
		seq++
		j.append(seq, fmt.Appendf(nil, `"pad":"%s"`, pad))
		if err := j.wait(t.Context(), seq); err != nil {
			t.Fatalf("wait: %v", err)
		}
		if seq > 40 {
			t.Fatal("the disk does not get full")
		}
	}
	if seq < 8 {
		t.Errorf("records before the disk was full: got %d; want 8 at the least", seq)
	}
	err := j.reserve()
	if f, ok := errors.AsType[*failure](err); !ok || f.kind != unavailable || f.retryAfter == 0 {
		t.Errorf("reserve: got %#v; want unavailable with a time to try again", err)
	}
	if s := j.status(); s.writable || s.reason != "no space left for the journal" {
		t.Errorf("status: got %+v; want no space", s)
	}
	before, allocations := disk.count("free", "data"), disk.count("allocate", journalTempName)
	start := time.Now()
	timer := time.NewTimer(10*time.Second + time.Millisecond)
	<-timer.C
	if tries := disk.count("free", "data") - before; tries < 9 || tries > 11 {
		t.Errorf("tries in %v: got %d; want 10", time.Since(start), tries)
	}
	if got := disk.count("allocate", journalTempName) - allocations; got != 0 && !plain {
		t.Errorf("allocations on a full disk: got %d; want 0, they may keep what they get", got)
	}
	disk.setCapacity(80 << 20)
	timer.Reset(spaceRetry)
	<-timer.C
	synctest.Wait()
	if err := j.reserve(); err != nil {
		t.Errorf("reserve with space again: %v", err)
	}
	if s := j.status(); !s.writable {
		t.Errorf("status with space again: got %+v", s)
	}
	mustStore(t, j, 1)
	mustClose(t, j)
	if got := logged.String(); strings.Count(got, "level=WARN") != 1 || strings.Count(got, "level=INFO") != 1 {
		t.Errorf("log: got %s; want one warning and one recovery", got)
	}
	o.log = slog.New(slog.DiscardHandler)
	j, g := mustOpen(t, o)
	if got := uint64(len(g.seqs)); got != seq+1 {
		t.Errorf("records: got %d; want %d", got, seq+1)
	}
	mustClose(t, j)
}

// TestJournalOpensOnFullDisk checks that what is stored can be read.
func TestJournalOpensOnFullDisk(t *testing.T) {
	disk := newMemDisk()
	j, _ := mustOpen(t, diskOptions(disk))
	mustStore(t, j, 3)
	mustClose(t, j)
	disk.setCapacity(1000)
	j, g := mustOpen(t, diskOptions(disk))
	checkContents(t, g, 3)
	if err := j.reserve(); kindOf(err) != unavailable {
		t.Errorf("reserve: got %v; want unavailable", err)
	}
	mustClose(t, j)
}

// TestJournalKeepsAhead checks that the flusher reserves space, so that reserve
// need not.
func TestJournalKeepsAhead(t *testing.T) {
	t.Parallel()
	j, _ := mustOpen(t, diskOptions(newMemDisk()))
	for range 12 {
		storePadded(t, j, 1<<20)
		if got := j.space.room.Load(); got < maxRecord {
			t.Errorf("room: got %d; want %d", got, maxRecord)
		}
	}
	mustClose(t, j)
}

// TestJournalRotatesWithRoom checks that records that come while the file
// changes have space in the next file.
func TestJournalRotatesWithRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newMemDisk()
		o := diskOptions(disk)
		o.sync = syncNever
		j, _ := mustOpen(t, o)
		disk.synced = make(chan struct{})
		rotated := make(chan error)
		go func() { rotated <- j.beginFile() }()
		synctest.Wait() // at the sync of the next file's header
		pad := bytes.Repeat([]byte("y"), maxRecord-100)
		seq := uint64(0)
		for ; j.space.room.Load() >= maxRecord; seq++ {
			j.append(seq+1, fmt.Appendf(nil, `"pad":"%s"`, pad))
		}
		<-disk.synced
		noError(t, <-rotated)
		if got := j.space.room.Load(); got < maxRecord {
			t.Errorf("room after %d records: got %d; want %d", seq, got, maxRecord)
		}
		disk.synced = nil
		mustClose(t, j)
	})
}

// TestJournalReserveCatchesUp checks that records that come faster than the
// flusher looks are not refused while there is space.
func TestJournalReserveCatchesUp(t *testing.T) {
	slow(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		disk := newMemDisk()
		o := diskOptions(disk)
		o.sync = syncNever
		j, _ := mustOpen(t, o)
		pad := bytes.Repeat([]byte("y"), maxRecord-100)
		for seq := uint64(1); seq <= 5; seq++ { // fake time does not pass: no flush between them
			if err := j.reserve(); err != nil {
				t.Fatalf("reserve %d: %v", seq, err)
			}
			j.append(seq, fmt.Appendf(nil, `"pad":"%s"`, pad))
		}
		mustClose(t, j)
	})
}

func TestJournalConcurrent(t *testing.T) {
	slow(t)
	t.Parallel()
	o := diskOptions(nil)
	o.dir, o.fs = t.TempDir(), osDisk{}
	j, _ := mustOpen(t, o)
	var mu sync.Mutex
	var seq uint64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				mu.Lock()
				if err := j.reserve(); err != nil {
					t.Error(err)
				}
				seq++
				n := seq
				j.append(n, testBody(n))
				mu.Unlock()
				if err := j.await(t.Context(), n, i%2 == 0); err != nil || j.durable() < n {
					t.Errorf("wait for %d: %v, durable %d", n, err, j.durable())
				}
				j.status()
				j.snapshotDue()
			}
		})
	}
	wg.Go(func() {
		for range 10 {
			if err := writeSnapshot(j); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	s := j.status()
	if s.records != 800 || s.syncs == 0 || s.lastSync == 0 || s.bytesWritten == 0 || s.snapshotBytes == 0 {
		t.Errorf("status: got %+v", s)
	}
	mustClose(t, j)
	j, g := mustOpen(t, o)
	checkContents(t, g, 800)
	mustClose(t, j)
}

// TestSyncsKeepTheSize checks that only a journal that is synced for every group ends with zeros, that
// its size stays while there are some, and that it ends with its last record after the end.
func TestSyncsKeepTheSize(t *testing.T) {
	for _, mode := range []syncMode{syncAlways, syncInterval, syncNever} {
		disk := newMemDisk()
		o := diskOptions(disk)
		o.sync = mode
		j, _ := mustOpen(t, o)
		var sizes []int
		for range 3 {
			mustStore(t, j, 2)
			noError(t, j.ask(func() error { return j.flush(true) }))
			text := disk.files()[journalName]
			sizes = append(sizes, len(text))
			if ahead := strings.HasSuffix(text, "\x00"); ahead != (mode == syncAlways) {
				t.Errorf("%v: zeros at the end: got %v", mode, ahead)
			}
		}
		if same := sizes[0] == sizes[2]; same != (mode == syncAlways) {
			t.Errorf("%v: got the sizes %v", mode, sizes)
		}
		mustStore(t, j, zerosAhead/600)
		mustClose(t, j)
		text := disk.files()[journalName]
		if !strings.HasSuffix(text, "}\n") || strings.Contains(text, "\x00") {
			t.Errorf("%v: got %d bytes that end with %q", mode, len(text), text[len(text)-20:])
		}
		j, g := mustOpen(t, o)
		checkContents(t, g, 6+zerosAhead/600)
		mustClose(t, j)
	}
}

func TestJournalStatusCountsBytes(t *testing.T) {
	disk := newMemDisk()
	j, _ := mustOpen(t, diskOptions(disk))
	mustStore(t, j, 7)
	if got, want := j.status().journalBytes, len(strings.TrimRight(disk.files()[journalName], "\x00")); got != int64(want) {
		t.Errorf("journal bytes: got %d; want %d", got, want)
	}
	noError(t, writeSnapshot(j))
	mustStore(t, j, 2)
	s, files := j.status(), disk.files()
	records := strings.TrimRight(files[journalName], "\x00")
	if s.journalBytes != int64(len(records)) || s.snapshotBytes != int64(len(files[snapshotName])) {
		t.Errorf("bytes: got journal %d, snapshot %d; want %d, %d", s.journalBytes, s.snapshotBytes,
			len(records), len(files[snapshotName]))
	}
	mustClose(t, j)
}

func TestJournalAppendAllocatesNothing(t *testing.T) {
	o := diskOptions(nil)
	o.dir, o.fs, o.sync = t.TempDir(), osDisk{}, syncNever
	j, _ := mustOpen(t, o)
	body, seq := testBody(16), uint64(0)
	grow := func() { // both buffers
		for range 2 {
			for range 2000 {
				seq++
				j.append(seq, body)
			}
			j.ask(func() error { return j.flush(false) })
		}
	}
	grow()
	got := testing.AllocsPerRun(1000, func() {
		seq++
		j.append(seq, body)
	})
	if got != 0 {
		t.Errorf("allocations of append: got %v; want 0", got)
	}
	mustClose(t, j)
}

func TestJournalRefusesDirectory(t *testing.T) {
	for _, op := range []string{"mkdir data", "lock lock", "create journal.jsonl.tmp", "syncdir data"} {
		disk := newMemDisk()
		kind, file, _ := strings.Cut(op, " ")
		disk.fail(diskFault{op: kind, file: file, err: syscall.EROFS})
		_, err := openJournal(diskOptions(disk), &gathered{})
		if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), testDir) {
			t.Errorf("%s on a read-only file system: got %v; want an error naming %s", op, err, testDir)
		}
		if disk.locked {
			t.Errorf("%s on a read-only file system: the lock is still held", op)
		}
	}
}

// slowDisk is a disk whose writes, or reservations of space, or else syncs wait while it is held.
type slowDisk struct {
	diskFS
	writes bool
	space  bool
	mu     sync.Mutex
	held   chan struct{} // closed when they may go on; nil when none waits
}

// hold stops later operations; release lets them continue.
func (d *slowDisk) hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = make(chan struct{})
}

func (d *slowDisk) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held != nil {
		close(d.held)
		d.held = nil
	}
}

func (d *slowDisk) edit(name string) (diskFile, error) { return d.slow(d.diskFS.edit(name)) }

func (d *slowDisk) create(name string) (diskFile, error) { return d.slow(d.diskFS.create(name)) }

func (d *slowDisk) slow(f diskFile, err error) (diskFile, error) { return &slowFile{f, d}, err }

type slowFile struct {
	diskFile
	disk *slowDisk
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

// pass waits until an operation is not held.
func (d *slowDisk) pass(mayBeHeld bool) {
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	if mayBeHeld && held != nil {
		<-held
	}
}

// slowTest is a server on a slow disk, and an HTTP handler that signals its
// arrival and waits.
type slowTest struct {
	*testServer
	disk             *slowDisk
	arrived, release chan struct{}
	letHandlerGo     func()
}

func newSlowTest(t *testing.T, mode string) *slowTest {
	t.Helper()
	s := &slowTest{disk: &slowDisk{diskFS: newMemDisk(), writes: mode == "never"},
		arrived: make(chan struct{}, 10), release: make(chan struct{})}
	handler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.arrived <- struct{}{}
		<-s.release
		io.WriteString(w, `"done"`)
	}))
	t.Cleanup(handler.Close)
	s.letHandlerGo = sync.OnceFunc(func() { close(s.release) })
	t.Cleanup(s.letHandlerGo)
	s.testServer = newTestServer(t, serviceTest{
		disk: s.disk, dir: "/data",
		config: func(c *Config) { c.Store.Sync, c.Store.SyncIntervalMS, c.Store.SlowSeconds = mode, 1, 3600 },
		extra: []string{
			testTemplate("manual", stepSpec{name: "a", callable: "Outside::Actor"}),
			testTemplate("web", stepSpec{name: "a", callable: handler.URL},
				stepSpec{name: "b", callable: "builtin:noop", after: []string{"a"}}),
		},
	})
	s.svc.store.journal.most = testBacklog
	s.create(`{"namespace":"t","name":"manual"}`) // with the template's record
	t.Cleanup(s.disk.release)
	return s
}

// testBacklog is the limit in these tests, and every task contains padding.
const testBacklog = 4 << 20

var padding = strings.Repeat("x", 900_000)

// createUntilRefused creates large tasks, each after the previous one is in the journal, until
// one is refused. The answers to the others may come when the disk continues.
func (s *slowTest) createUntilRefused() (refused *answer, accepted int, answers chan *answer) {
	s.t.Helper()
	answers = make(chan *answer, 200)
	body := fmt.Sprintf(`{"namespace":"t","name":"manual","context":{"a":%q}}`, padding)
	for refused == nil && accepted < cap(answers) {
		before := s.svc.store.journal.status().records
		done := make(chan *answer, 1)
		go func() {
			a := s.do("POST", "/v1/tasks", body)
			if a.status == http.StatusCreated {
				answers <- a
			} else {
				done <- a
			}
		}()
		eventually(s.t, "the task is in the journal, or refused", func() bool {
			select {
			case refused = <-done:
				return true
			default:
				return s.svc.store.journal.status().records > before
			}
		})
		accepted++
	}
	return refused, accepted - 1, answers
}

func wantBackpressure(t *testing.T, a *answer) {
	t.Helper()
	a.want(http.StatusServiceUnavailable)
	if a.text("error.code") != "BACKPRESSURE" || a.header.Get("Retry-After") != "1" {
		t.Errorf("got Retry-After %q and %s; want BACKPRESSURE after a second", a.header.Get("Retry-After"), a.body)
	}
}

// TestBacklogRefusesTasks checks that with a stopped disk, no more tasks are accepted than
// there is memory for, and no step starts; reads of what is on disk and outcomes continue. All
// accepted work is done once the disk continues.
func TestBacklogRefusesTasks(t *testing.T) {
	t.Parallel()
	slow(t)
	for _, mode := range []string{"always", "interval", "never"} {
		t.Run(mode, func(t *testing.T) {
			s := newSlowTest(t, mode)
			web := s.create(`{"namespace":"t","name":"web"}`)
			<-s.arrived
			s.disk.hold()
			refused, accepted, answers := s.createUntilRefused()
			wantBackpressure(t, refused)
			if got, most := s.svc.store.journal.status().backlog, int64(testBacklog+len(padding)*2); got < testBacklog || got > most {
				t.Errorf("got a backlog of %d bytes; want %d to %d", got, testBacklog, most)
			}
			s.do("GET", "/v1/tasks/"+web, "").want(200)
			s.letHandlerGo()
			id, _ := parseUUID(web)
			var v *task
			eventually(t, "the outcome is taken", func() bool { // an answer would wait for the disk
				v = must(s.svc.store.view(id))(t)
				return v.steps[0].state == stepComplete
			})
			wantStates(t, v, "steps_in_process: complete enqueued")
			s.disk.release()
			for range accepted {
				if _, ok := receiveWithin(answers, patience); !ok {
					t.Fatal("a task that was taken is never acknowledged")
				}
			}
			s.await(web, "complete")
			s.create(`{"namespace":"t","name":"manual"}`)
		})
	}
}

// TestBacklogHoldsOutcomes checks that changes to accepted work are refused, too, once the
// reserved space is used up, and that outcomes are held.
func TestBacklogHoldsOutcomes(t *testing.T) {
	t.Parallel()
	slow(t)
	s := newSlowTest(t, "never")
	web := s.create(`{"namespace":"t","name":"web"}`)
	<-s.arrived
	tasks := make([]*answer, 40)
	for i := range tasks {
		tasks[i] = s.do("POST", "/v1/tasks", `{"namespace":"t","name":"manual"}`).want(201)
	}
	s.disk.hold()
	s.createUntilRefused()
	body := fmt.Sprintf(`{"action_type":"complete_manually","reason":"r","completed_by":"b","completion_data":{"result":%q}}`, padding)
	var refused *answer
	for _, v := range tasks {
		path := "/v1/tasks/" + v.text("task_uuid") + "/workflow_steps/" + v.text("steps.0.workflow_step_uuid")
		if refused = s.do("PATCH", path, body); refused.status != http.StatusOK {
			break
		}
	}
	wantBackpressure(t, refused)
	s.letHandlerGo()
	held := s.svc.store.journal.status()
	if most := int64(testBacklog + spaceAhead + spaceStep + 2*len(padding)); held.backlog > most {
		t.Errorf("got a backlog of %d bytes; want at most %d", held.backlog, most)
	}
	if got := s.do("GET", "/v1/tasks/"+web, "").want(200).text("completed_steps"); got != "0" {
		t.Errorf("got %s steps complete; want none, for its outcome cannot be recorded", got)
	}
	s.disk.release()
	s.await(web, "complete")
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
				if err := j.reserve(); err != nil {
					b.Error(err)
				}
				seq++
				n := seq
				j.append(n, body)
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

// BenchmarkBareCommit measures write and sync in a loop, of as many records at
// once.
func BenchmarkBareCommit(b *testing.B) {
	for _, group := range []int{1, 8, 16, 32, 64} {
		b.Run(fmt.Sprintf("group=%d", group), func(b *testing.B) {
			f := must(osDisk{}.create(filepath.Join(b.TempDir(), "bare")))(b)
			defer f.Close()
			buf := make([]byte, group*(benchBody+30))
			pos := int64(0)
			for n := 0; n < b.N; n += group {
				must(f.WriteAt(buf, pos))(b)
				noError(b, f.sync())
				pos += int64(len(buf))
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
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
		noError(b, j.reserve())
		seq++
		j.append(seq, body)
		if len(j.buf) > keepBuffer {
			j.buf = j.buf[:0]
		}
	}
}

// countingLoader is a loader that only counts lines.
type countingLoader struct{ lines int }

func (c *countingLoader) expect(int) {}

func (c *countingLoader) snapshotLine(*checkedLine) error { c.lines++; return nil }

func (c *countingLoader) record(*checkedLine) error { c.lines++; return nil }

// BenchmarkRecovery reads a snapshot of 1,000,000 lines of 900 bytes from the
// system's cache.
func BenchmarkRecovery(b *testing.B) {
	const lines, size = 1_000_000, 900
	disk, dir := osDisk{}, b.TempDir()
	o := diskOptions(nil)
	o.dir, o.fs = dir, disk
	j := must(openJournal(o, &gathered{}))(b)
	line := append([]byte(`{"pad":"`), bytes.Repeat([]byte("x"), size-len(sumTail)-10)...)
	line = append(line, '"')
	s := must(j.startSnapshot())(b)
	for range lines {
		noError(b, s.line(line))
	}
	noError(b, s.commit())
	noError(b, j.close())
	info := must(os.Stat(filepath.Join(dir, snapshotName)))(b)
	b.SetBytes(info.Size())
	b.ReportAllocs()
	for b.Loop() {
		c := &countingLoader{}
		r := &recovery{disk: disk, dir: dir, loader: c}
		if err := r.read(); err != nil || c.lines != lines {
			b.Fatalf("read %d lines: %v", c.lines, err)
		}
	}
}
