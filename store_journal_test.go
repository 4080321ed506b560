package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"stepwell/e2e/wire"
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

// testBody returns the body of a record that contains its number.
func testBody(seq uint64) []byte {
	return fmt.Appendf(nil, `"kind":"test","n":%d,"pad":"%s"`, seq, strings.Repeat("x", int(seq%17)))
}

// appendTest appends the next n records without waiting and returns the last sequence.
func appendTest(j *journal, n int) uint64 {
	seq := lastAppended(j)
	for range n {
		seq++
		j.groups.append(seq, testBody(seq))
	}
	return seq
}

func lastAppended(j *journal) uint64 {
	j.groups.mu.Lock()
	defer j.groups.mu.Unlock()
	return j.groups.appended
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

func TestJournalAppendAllocatesNothing(t *testing.T) {
	o := diskOptions(nil)
	o.dir, o.fs, o.sync = t.TempDir(), osDisk{}, syncNever
	j, _ := mustOpen(t, o)
	body, seq := testBody(16), uint64(0)
	grow := func() { // both buffers
		for range 2 {
			for range 2000 {
				seq++
				j.groups.append(seq, body)
			}
			j.during(func() error { return j.flush(false) })
		}
	}
	grow()
	got := testing.AllocsPerRun(1000, func() {
		seq++
		j.groups.append(seq, body)
	})
	if got != 0 {
		t.Errorf("allocations of append: got %v; want 0", got)
	}
	mustClose(t, j)
}

// slowMemDisk is a disk whose writes, or reservations of space, or else syncs wait while it is held.
type slowMemDisk struct {
	diskFS
	writes bool
	space  bool
	mu     sync.Mutex
	held   chan struct{} // closed when they may continue; nil when none waits
	waits  atomic.Bool   // whether one has waited
}

// hold stops later operations; release lets them continue.
func (d *slowMemDisk) hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = make(chan struct{})
}

func (d *slowMemDisk) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held != nil {
		close(d.held)
		d.held = nil
	}
}

func (d *slowMemDisk) edit(name string) (diskFile, error) { return d.slow(d.diskFS.edit(name)) }

func (d *slowMemDisk) create(name string) (diskFile, error) { return d.slow(d.diskFS.create(name)) }

func (d *slowMemDisk) slow(f diskFile, err error) (diskFile, error) { return &slowFile{f, d}, err }

// pass waits until an operation is not held.
func (d *slowMemDisk) pass(mayBeHeld bool) {
	d.mu.Lock()
	held := d.held
	d.mu.Unlock()
	if mayBeHeld && held != nil {
		d.waits.Store(true)
		<-held
	}
}

// slowTest is a server on a slow disk, and an HTTP handler that signals its
// arrival and waits.
type slowTest struct {
	*testServer
	disk             *slowMemDisk
	arrived, release chan struct{}
	letHandlerGo     func()
}

func newSlowTest(t *testing.T, mode string) *slowTest {
	t.Helper()
	s := &slowTest{disk: &slowMemDisk{diskFS: newMemDisk(), writes: mode == "never"},
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
		config: func(c *Config) { c.Store.Sync = mode },
		extra: []string{
			testTemplate("manual", stepSpec{name: "a", callable: "Outside::Actor"}),
			testTemplate("web", stepSpec{name: "a", callable: handler.URL},
				stepSpec{name: "b", callable: "builtin:noop", after: []string{"a"}}),
		},
	})
	s.svc.store.journal.groups.most = testBacklog
	s.create(`{"namespace":"t","name":"manual"}`) // with the template's record
	t.Cleanup(s.disk.release)
	return s
}

// testBacklog is the limit in these tests, and every task contains padding. The space that is
// always reserved takes both and an outcome: spaceAhead is more than maxRecord and them.
const testBacklog = 1 << 20

var padding = strings.Repeat("x", 200_000)

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
		if accepted++; accepted == 1 { // or writes that only begin late would refuse one
			eventually(s.t, "the disk waits", s.disk.waits.Load)
		}
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
	wire.Long(t)
	for _, mode := range []string{"always", "never"} {
		t.Run(mode, func(t *testing.T) {
			s := newSlowTest(t, mode)
			web := s.create(`{"namespace":"t","name":"web"}`)
			<-s.arrived
			s.do("GET", "/v1/tasks/"+web, "").want(200) // the start is on disk
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
