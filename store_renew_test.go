package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"stepwell/e2e/wire"
)

// overwritten writes a text into a file that exists, as cp does, from an offset on; a negative one counts from the
// end of the records.
func overwritten(name string, off int64, text []byte) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if off < 0 {
		all, err := io.ReadAll(f)
		if err != nil {
			return err
		}
		off += int64(len(trimZeros(all)))
	}
	_, err = f.WriteAt(text, off)
	return err
}

// copyInto copies files over those that exist, as cp does: they keep their inodes.
func copyInto(dir, from string, names ...string) error {
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// waysToChange are ways in which somebody changes the files of a store under a running service. Each gets the
// directory and a copy of it from before the newest changes.
var waysToChange = []struct {
	name   string
	do     func(dir, backup string) error
	reason string // in the log
}{
	{"everything restored in place", func(dir, backup string) error {
		return copyInto(dir, backup, snapshotName, journalName, lockName)
	}, "was changed by another process"},
	{"the journal restored in place", func(dir, backup string) error { return copyInto(dir, backup, journalName) },
		"journal.jsonl was changed by another process"},
	{"the journal rotated away", func(dir, _ string) error { return os.Truncate(filepath.Join(dir, journalName), 0) },
		"journal.jsonl was changed by another process: it has 0 bytes of"},
	{"the journal cut", func(dir, _ string) error { return os.Truncate(filepath.Join(dir, journalName), 300) },
		"journal.jsonl was changed by another process: it has 300 bytes of"},
	{"the journal continued", func(dir, _ string) error {
		return overwritten(filepath.Join(dir, journalName), 1<<20, []byte("x\n"))
	}, "bytes more than were written"},
	{"its last record changed", func(dir, _ string) error {
		return overwritten(filepath.Join(dir, journalName), -40, []byte("x"))
	}, "journal.jsonl was changed by another process: the records before"},
	{"a record in its middle changed", func(dir, _ string) error {
		return overwritten(filepath.Join(dir, journalName), 200, []byte("x"))
	}, "the files are not as they were written: journal.jsonl, line"},
	{"the journal replaced", func(dir, backup string) error {
		return os.Rename(filepath.Join(backup, journalName), filepath.Join(dir, journalName))
	}, "journal.jsonl was replaced by another file"},
	{"the journal removed", func(dir, _ string) error { return os.Remove(filepath.Join(dir, journalName)) },
		"journal.jsonl was removed"},
	{"the snapshot changed", func(dir, _ string) error {
		return overwritten(filepath.Join(dir, snapshotName), 300, []byte("x"))
	}, "the files are not as they were written: snapshot.jsonl, line"},
	{"the snapshot replaced", func(dir, backup string) error {
		return os.Rename(filepath.Join(backup, snapshotName), filepath.Join(dir, snapshotName))
	}, "snapshot.jsonl was replaced by another file"},
	{"the snapshot removed", func(dir, _ string) error { return os.Remove(filepath.Join(dir, snapshotName)) },
		"snapshot.jsonl was removed"},
	{"the directory replaced", func(dir, backup string) error {
		if err := os.Rename(dir, dir+".old"); err != nil {
			return err
		}
		return os.CopyFS(dir, os.DirFS(backup))
	}, "the data directory was replaced by another one"},
	{"the directory emptied and restored", func(dir, backup string) error {
		for _, name := range []string{snapshotName, journalName, lockName} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		return os.CopyFS(dir, os.DirFS(backup))
	}, "another process has used the data directory"},
}

// TestChangedUnderAService changes the files of a running service in every way. An idle store notices it within a
// second or so, a busy one refuses changes by then; it writes itself anew, and after the next start everything that
// was acknowledged is there.
func TestChangedUnderAService(t *testing.T) {
	slow(t)
	t.Parallel()
	for _, way := range waysToChange {
		for _, busy := range []bool{false, true} {
			name := way.name + pick(busy, ", busy", "")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				log := new(logText)
				o := serviceTest{dir: filepath.Join(t.TempDir(), "data"), log: log}
				s := openTestService(t, o)
				var all []uuid
				add := func() error {
					v, err := s.createTask(t.Context(), must(parseTaskRequest([]byte(`{"namespace":"demo","name":"diamond"}`)))(t), true)
					if err == nil {
						all = append(all, v.id)
					}
					return err
				}
				noError(t, add())
				noError(t, s.store.snapshot())
				noError(t, add())
				backup := filepath.Join(t.TempDir(), "backup")
				noError(t, os.CopyFS(backup, os.DirFS(o.dir)))
				noError(t, s.store.snapshot()) // the backup's is another
				for range 3 {
					noError(t, add())
				}
				wire.Eventually(t, "a look at the files", s.store.journal.seen)
				noError(t, way.do(o.dir, backup))
				scrubbed := busy && strings.Contains(way.name, "middle")
				wire.Eventually(t, "the store is written anew", func() bool {
					if busy {
						add()
					}
					if scrubbed {
						s.store.journal.verify(t.Context(), 0)
					}
					return s.store.journal.watch.renewals.Load() > 0
				})
				if reason := pick(busy && strings.Contains(way.reason, " bytes"), "was changed by another process", way.reason); !strings.Contains(log.String(), reason) {
					t.Errorf("log: got %s; want %q", log, reason)
				}
				noError(t, add())
				if kept := must(filepath.Glob(filepath.Join(o.dir, "*.damaged-*")))(t); len(kept) == 0 {
					t.Error("no file was kept")
				}
				noError(t, s.close())
				s = openTestService(t, o)
				defer closeTestService(t, s)
				for i, id := range all {
					if _, err := s.store.view(id); err != nil {
						t.Errorf("task %d of %d: %v", i+1, len(all), err)
					}
				}
			})
		}
	}
}

// seen reports whether all files were looked at as they are.
func (j *journal) seen() (all bool) {
	j.ask(func() error {
		j.watch.turn <- struct{}{}
		defer func() { <-j.watch.turn }()
		all = len(j.watch.noted) >= 2 && j.newest.seen.end == j.newest.end && j.watch.noted[journalName].writes == j.newest.written.Load()
		return nil
	})
	return all
}

// TestFailedDiskRecovers fails a sync: reads continue, changes are refused, attempts wait, and once the disk works again all
// continues without a restart.
func TestFailedDiskRecovers(t *testing.T) {
	disk := newMemDisk()
	o := serviceTest{dir: testDir, disk: disk, log: io.Discard, templates: "testdata/templates"}
	s := openTestService(t, o)
	v := mustCreate(t, s, "manual")
	disk.fail(diskFault{op: "sync", file: journalTempName, err: syscall.EIO, times: 1}, diskFault{op: "create", file: snapshotTemp, err: syscall.EIO, times: 1})
	_, err := s.createTask(t.Context(), must(parseTaskRequest([]byte(`{"namespace":"t","name":"manual"}`)))(t), true)
	if kindOf(err) != unavailable || !strings.Contains(err.Error(), "outcome unknown") {
		t.Fatalf("a change while the sync fails: got %v", err)
	}
	if err := s.store.keeper().renew(false); err == nil || s.store.status().writable {
		t.Errorf("a renewal while the disk fails: got %v", err)
	}
	noError(t, s.store.keeper().renew(false))
	if !s.store.status().writable {
		t.Fatalf("after a renewal: %s", s.store.status().reason)
	}
	w := mustCreate(t, s, "manual")
	tasks, _ := s.store.size()
	closeTestService(t, s)
	o.disk = disk.crash(false, false, nil)
	s = openTestService(t, o)
	defer closeTestService(t, s)
	if got, _ := s.store.size(); got != tasks || tasks != 3 {
		t.Errorf("after a crash: got %d tasks; want %d", got, tasks)
	}
	for _, id := range []uuid{v.id, w.id} {
		must(s.store.view(id))(t)
	}
}

// TestReadOnlyReads has the newest change of one task of three fail on its way to the disk: everything is still read, and
// each answer with that change says that it may not be on disk.
func TestReadOnlyReads(t *testing.T) {
	disk := newMemDisk()
	svc := openTestService(t, serviceTest{dir: testDir, disk: disk, log: io.Discard, templates: apiTemplates})
	s := (&testServer{t: t, svc: svc}).with(newOrchestrationAPI(svc, nil))
	var ids []string
	for range 3 {
		ids = append(ids, s.create(`{"namespace":"t","name":"manual"}`))
	}
	disk.fail(diskFault{op: "sync", file: journalTempName, err: syscall.EIO, times: 1}, diskFault{op: "create", file: snapshotTemp, err: syscall.EIO, times: 2})
	s.do("DELETE", "/v1/tasks/"+ids[1], "").want(503)
	marked := func(a *answer, want bool) {
		t.Helper()
		if got := a.want(200).header.Get("X-Stepwell-Durable") == "false"; got != want {
			t.Errorf("got %v; want marked: %v", a.header, want)
		}
	}
	list := s.do("GET", "/v1/tasks", "")
	for i := range ids { // the newest first
		if got := list.text(fmt.Sprintf("tasks.%d.durable", i)); got != pick(i == 1, "false", "<nil>") {
			t.Errorf("task %d of %s: got durable %q", i, list.body, got)
		}
	}
	for _, path := range []string{
		"/v1/tasks", "/v1/backup", "/v1/find?q=" + ids[0], "/v1/dlq", "/v1/steps", "/v1/analytics/failures",
		"/v1/tasks/" + ids[1], "/v1/tasks/" + ids[1] + "/workflow_steps", "/v1/tasks/" + ids[1] + "/explain", "/v1/tasks/" + ids[1] + "?wait=complete&timeout=0s",
	} {
		marked(s.do("GET", path, ""), true)
	}
	for _, path := range []string{"/v1/tasks/" + ids[0], "/v1/tasks/" + ids[2] + "/workflow_steps", "/v1/dlq/stats"} {
		marked(s.do("GET", path, ""), false)
	}
	a := s.do("GET", "/v1/tasks/"+ids[1], "")
	if a.text("durable") != "false" || a.text("status") != "cancelled" || a.header.Get("ETag") != "" {
		t.Errorf("got %s with %v; want it cancelled, not durable, without a tag", a.body, a.header)
	}
	s.do("POST", "/v1/store/reopen", "").want(503)
	s.do("POST", "/v1/store/check", "").want(503)
	s.do("POST", "/v1/store/reopen", "").want(503)
	if a := s.do("POST", "/v1/store/reopen", "").want(200); a.text("writable") != "true" {
		t.Errorf("got %s; want it writable", a.body)
	}
	marked(s.do("GET", "/v1/tasks", ""), false)
	if a := s.do("GET", "/v1/tasks/"+ids[1], ""); a.text("durable") != "<nil>" || a.text("status") != "cancelled" {
		t.Errorf("after the renewal: got %s", a.body)
	}
	if a := s.do("POST", "/v1/store/check", "").want(200); a.text("problem") != "<nil>" || a.text("checked_at") == "<nil>" {
		t.Errorf("a check: got %s", a.body)
	}
	closeTestService(t, svc)
}

// TestCrashWhileRenewing ends the process at every operation of a renewal, and the machine with or without what was not
// synced, or with one change of a name of those that were not: the next start has everything that was acknowledged. If somebody else emptied the journal, it refuses the files up
// to the moment at which the new snapshot gets its name.
func TestCrashWhileRenewing(t *testing.T) {
	for _, cause := range []string{"a failed sync", "a failed sync after a snapshot", "a changed file", "an emptied journal"} {
		refused, n := 0, 1
		for ; renewalCrash(t, cause, n, &refused); n++ {
		}
		t.Logf("%s: %d operations, %d starts refused", cause, n, refused)
		if (refused > 0) != (cause == "an emptied journal") {
			t.Errorf("%s: %d starts refused in %d crashes", cause, refused, n)
		}
	}
}

// renewalCrash has the disk end at an operation of a renewal. It reports whether the renewal needed that operation.
func renewalCrash(t *testing.T, cause string, operation int, refused *int) bool {
	t.Helper()
	disk := newMemDisk()
	o := serviceTest{dir: testDir, disk: disk, log: io.Discard, templates: "testdata/templates"}
	s := openTestService(t, o)
	defer s.close() // an error, since the disk has ended
	s.stopKeeping() // the test alone renews it
	s.keeping.Wait()
	acknowledged := []uuid{mustCreate(t, s, "manual").id}
	if strings.HasSuffix(cause, "snapshot") {
		noError(t, s.store.snapshot())
	}
	acknowledged = append(acknowledged, mustCreate(t, s, "manual").id)
	j := s.store.journal
	switch cause {
	case "an emptied journal":
		noError(t, j.ask(func() error { return errors.Join(j.newest.file.truncate(0), j.newest.file.sync()) }))
		j.ask(j.look)
	case "a changed file":
		j.ask(func() error { return j.fail(&misplaced{"changed"}) })
	default:
		disk.fail(diskFault{op: "sync", file: journalTempName, err: syscall.EIO, times: 1})
		s.createTask(t.Context(), must(parseTaskRequest([]byte(`{"namespace":"t","name":"manual"}`)))(t), true)
	}
	if s.store.status().writable {
		t.Fatalf("%s: the store did not fail", cause)
	}
	setDieAt(disk, disk.ops+operation)
	err := s.store.keeper().renew(false)
	if err == nil {
		setDieAt(disk, 0)
		acknowledged = append(acknowledged, mustCreate(t, s, "manual").id)
	}
	crashes := []*memDisk{
		disk.crash(false, false, nil), disk.crash(true, false, nil), disk.crash(false, true, nil), disk.crash(true, true, nil),
	}
	for only := range len(disk.moves) { // of the changes of names that were not synced
		move := -1
		crashes = append(crashes, disk.crashAny(func() bool { move++; return move == only }, func(kept, _ []byte) []byte { return kept }))
	}
	for n, crashed := range crashes {
		o.disk = crashed
		again, openErr := openService(testParts(t, o))
		if openErr != nil {
			if *refused++; err == nil || cause != "an emptied journal" {
				t.Errorf("%s, operation %d, crash %d: %v", cause, operation, n, openErr)
			}
			continue
		}
		for i, id := range acknowledged {
			if _, err := again.store.view(id); err != nil {
				t.Errorf("%s, operation %d, crash %d: task %d: %v", cause, operation, n, i+1, err)
			}
		}
		closeTestService(t, again)
	}
	return err != nil
}

// setDieAt has all operations of a disk fail from one on; 0 for none.
func setDieAt(disk *memDisk, operation int) {
	disk.mu.Lock()
	defer disk.mu.Unlock()
	disk.dieAt = operation
}

// TestRepeatedRequestOfUnknownOutcome repeats a creation whose outcome is unknown, while the store is read-only: that is
// unknown again, until the store is written anew.
func TestRepeatedRequestOfUnknownOutcome(t *testing.T) {
	disk := newMemDisk()
	svc := openTestService(t, serviceTest{dir: testDir, disk: disk, log: io.Discard, templates: apiTemplates})
	defer closeTestService(t, svc)
	s := (&testServer{t: t, svc: svc}).with(newOrchestrationAPI(svc, nil))
	failNextSync(svc, disk)
	for range 2 {
		if a := keyed(t, s, "/v1/tasks", manualTask, "k").want(503); !strings.Contains(a.text("error.message"), "outcome unknown") {
			t.Errorf("got %s; want its outcome unknown", a.body)
		}
	}
	disk.mu.Lock()
	disk.faults = nil
	disk.mu.Unlock()
	noError(t, svc.store.keeper().renew(false))
	keyed(t, s, "/v1/tasks", manualTask, "k").want(201)
	if tasks, _ := svc.store.size(); tasks != 1 {
		t.Errorf("got %d tasks; want 1", tasks)
	}
}
