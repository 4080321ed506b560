package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"stepwell/e2e/wire"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

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
		if got := j.groups.durable(); got != seq {
			t.Errorf("durable: got %d; want %d", got, seq)
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
	for range 8 {
		wg.Go(func() {
			for range 100 {
				mu.Lock()
				if err := j.reserve(0); err != nil {
					t.Error(err)
				}
				seq++
				n := seq
				j.groups.append(n, testBody(n))
				mu.Unlock()
				if err := j.wait(t.Context(), n); err != nil || j.groups.durable() < n {
					t.Errorf("wait for %d: %v, durable %d", n, err, j.groups.durable())
				}
				j.status()
				j.compactionDue()
			}
		})
	}
	wg.Go(func() {
		for range 10 {
			if err := compactTest(j); err != nil {
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
