package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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

// TestCompactionKeepsRoom checks that records that come while the file
// changes have space in the next file.
func TestCompactionKeepsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newMemDisk()
		o := diskOptions(disk)
		o.sync = syncNever
		j, _ := mustOpen(t, o)
		disk.synced = make(chan struct{})
		rotated := make(chan error)
		go func() { rotated <- compactTest(j) }()
		<-disk.synced   // of the compacted part
		<-disk.synced   // of what was copied
		synctest.Wait() // at the last sync of the next file, whose blocks are reserved
		pad := bytes.Repeat([]byte("y"), maxRecord-100)
		seq := uint64(0)
		for ; j.space.room.Load() >= maxRecord; seq++ {
			j.groups.append(seq+1, fmt.Appendf(nil, `"pad":"%s"`, pad))
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
	large := strings.Repeat("x", 900_000)
	body := fmt.Sprintf(`{"action_type":"complete_manually","reason":"r","completed_by":"b","completion_data":{"result":%q}}`, large)
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
	if most := int64(testBacklog + spaceAhead + spaceStep + 2*len(large)); held.backlog > most {
		t.Errorf("got a backlog of %d bytes; want at most %d", held.backlog, most)
	}
	if got := s.do("GET", "/v1/tasks/"+web, "").want(200).text("completed_steps"); got != "0" {
		t.Errorf("got %s steps complete; want none, for its outcome cannot be recorded", got)
	}
	s.disk.release()
	s.await(web, "complete")
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
	for j.reserve(0) == nil {
		seq++
		j.groups.append(seq, fmt.Appendf(nil, `"pad":"%s"`, pad))
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
	err := j.reserve(0)
	if f, ok := errors.AsType[*failure](err); !ok || f.kind != unavailable || f.retryAfter == 0 {
		t.Errorf("reserve: got %#v; want unavailable with a time to try again", err)
	}
	if s := j.status(); s.writable || s.reason != "no space left for the store" {
		t.Errorf("status: got %+v; want no space", s)
	}
	before, allocations := disk.count("free", "data"), disk.count("allocate", storeName)
	start := time.Now()
	timer := time.NewTimer(10*time.Second + time.Millisecond)
	<-timer.C
	if tries := disk.count("free", "data") - before; tries < 9 || tries > 11 {
		t.Errorf("tries in %v: got %d; want 10", time.Since(start), tries)
	}
	if got := disk.count("allocate", storeName) - allocations; got != 0 && !plain {
		t.Errorf("allocations on a full disk: got %d; want 0, they may keep what they get", got)
	}
	disk.setCapacity(80 << 20)
	timer.Reset(spaceRetry)
	<-timer.C
	synctest.Wait()
	if err := j.reserve(0); err != nil {
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
			j.makeRoom(0)
			if err := j.reserve(0); err != nil {
				t.Fatalf("reserve %d: %v", seq, err)
			}
			j.groups.append(seq, fmt.Appendf(nil, `"pad":"%s"`, pad))
		}
		mustClose(t, j)
	})
}

// TestSpaceIsAwaitedWithoutLock holds the reservation of space that creations need: all of them wait for it, with the
// store's lock free, and none is refused.
func TestSpaceIsAwaitedWithoutLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &slowMemDisk{diskFS: newMemDisk(), space: true}
		s := newTestService(t, serviceTest{disk: disk, dir: "/data", templates: apiTemplates})
		mustCreate(t, s, "manual")
		noError(t, s.store.waitAll(t.Context()))
		disk.hold()
		s.store.journal.space.room.Store(0)
		answers := make(chan error, 3)
		for range cap(answers) {
			go func() {
				_, err := s.createTask(t.Context(), must(parseTaskRequest([]byte(`{"namespace":"t","name":"manual"}`)))(t), true)
				answers <- err
			}()
		}
		synctest.Wait() // which never returns if one waits for a mutex
		if tasks, _ := s.store.size(); tasks != 1 || len(answers) != 0 {
			t.Errorf("got %d tasks and %d answers; want 1 and none", tasks, len(answers))
		}
		disk.release()
		for range cap(answers) {
			noError(t, <-answers)
		}
	})
}
