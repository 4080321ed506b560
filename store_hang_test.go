package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestStopWhileTheDiskHangs stops an engine while an attempt syncs in its own goroutine, which nobody can cut off.
func TestStopWhileTheDiskHangs(t *testing.T) {
	t.Parallel()
	s := newSlowTest(t, "always").svc
	j, goesOn, stopped := s.store.journal, make(chan struct{}), make(chan struct{})
	j.watch.setLimit(10 * time.Millisecond)
	s.engine.wg.Go(func() { j.during(func() error { <-goesOn; return nil }) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	go func() {
		s.engine.stop(ctx)
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		t.Error("the engine waits for the disk")
	}
	close(goesOn)
	<-stopped
}

// TestDiskWatch tells of operations that are late, once, and of their ends.
func TestDiskWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []bool
		w := diskWatch{limit: time.Second, tell: func(late bool) { told = append(told, late) }}
		for _, took := range []time.Duration{0, 900 * time.Millisecond, 5 * time.Second, 900 * time.Millisecond, 900 * time.Millisecond} {
			if err := w.during(func() error { time.Sleep(took); return io.EOF }); err != io.EOF {
				t.Errorf("got %v", err)
			}
		}
		if !slices.Equal(told, []bool{true, false}) {
			t.Errorf("got %v; want one late operation, and its end", told)
		}
	})
}

// TestCopiesAreWaitedFor checks that no file of a store is replaced while the directory is
// copied: from when it is listed until each file was read, or nobody reads any more.
func TestCopiesAreWaitedFor(t *testing.T) {
	t.Parallel()
	o := diskOptions(nil)
	o.dir, o.fs = t.TempDir(), osDisk{}
	j, _ := mustOpen(t, o)
	defer j.close()
	if j.copies.reads == nil {
		t.Skip("the system does not tell who reads")
	}
	mustStore(t, j, 3)
	noError(t, writeSnapshot(j))
	if j.copied() {
		t.Error("before a copy: got one")
	}
	names := must(os.ReadDir(o.dir))(t)
	for _, name := range names {
		if name.Name() != lockName && !j.copied() {
			t.Errorf("before %s was read: the copy counts as whole", name.Name())
		}
		must(os.ReadFile(filepath.Join(o.dir, name.Name())))(t)
	}
	if j.copied() {
		t.Error("after all files were read: the copy goes on")
	}
	must(os.ReadDir(o.dir))(t)
	leave := make(chan struct{})
	j.copies.leave = leave
	done := make(chan error)
	go func() { done <- writeSnapshot(j) }()
	if err, ended := receiveWithin(done, 50*time.Millisecond); ended {
		t.Errorf("a snapshot beside a copy: got %v; want it to wait", err)
	}
	for _, name := range names { // a copy reads all that it listed
		must(os.ReadFile(filepath.Join(o.dir, name.Name())))(t)
	}
	must(os.ReadFile(filepath.Join(o.dir, snapshotTemp)))(t)
	noError(t, <-done)
	must(os.ReadDir(o.dir))(t)
	close(leave)
	if err := writeSnapshot(j); err == nil {
		t.Error("a snapshot when the service ends beside a copy: got no error")
	}
	f := must(os.Open(filepath.Join(o.dir, journalName)))(t)
	j.copied()
	j.copies.since = time.Now().Add(-2 * copyPatience)
	if !j.copied() {
		t.Error("a copy that has a file open: it does not count")
	}
	noError(t, f.Close())
	j.copied()
	j.copies.since = time.Now().Add(-2 * copyPatience)
	if j.copied() {
		t.Error("a copy that nobody goes on with: it counts")
	}
	must(os.ReadDir(o.dir))(t)
	if j.fileBytes.Store(copyGrowth * j.snapshotThreshold()); j.copied() {
		t.Error("a journal that has grown too large: the copy counts")
	}
}

// listedDisk is a disk on which somebody lists the directory while a switch looks whether it is the store's.
type listedDisk struct {
	osDisk
	list atomic.Pointer[func()] // called once
}

func (d *listedDisk) identify(name string) (fileID, time.Time, error) {
	if list := d.list.Swap(nil); list != nil {
		(*list)()
	}
	return d.osDisk.identify(name)
}
