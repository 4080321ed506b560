package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"stepwell/e2e/wire"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestLockHolder(t *testing.T) {
	for text, want := range map[string]int{"": 0, "17\n": 17, "x": 0, " 5 ": 5} {
		if got := lockHolder(strings.NewReader(text)); got != want {
			t.Errorf("holder in %q: got %d; want %d", text, got, want)
		}
	}
}

// TestStoreFileModes checks that only the owner can read what is stored.
func TestStoreFileModes(t *testing.T) {
	t.Parallel()
	o := diskOptions(nil)
	o.dir, o.fs = filepath.Join(t.TempDir(), "a", "b"), osDisk{}
	j, _ := mustOpen(t, o)
	noError(t, writeSnapshot(j))
	mustClose(t, j)
	for name, want := range map[string]os.FileMode{
		".": 0o700, "..": 0o700, lockName: 0o600, journalName: 0o600, snapshotName: 0o600,
	} {
		info, err := os.Stat(filepath.Join(o.dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("mode of %s: got %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

// TestLockIsReleasedBesideACopy closes a lock while a copy of its file is open, as in a child
// between fork and exec.
func TestLockIsReleasedBesideACopy(t *testing.T) {
	name := filepath.Join(t.TempDir(), lockName)
	held := must(osDisk{}.lock(name))(t)
	copied := must(syscall.Dup(int(held.(*storeLock).file.Fd())))(t)
	defer syscall.Close(copied)
	held.Close()
	again, err := osDisk{}.lock(name)
	if err != nil {
		t.Fatalf("got %v; want the lock", err)
	}
	again.Close()
}

// TestLockOfAnother checks that the lock of another user is refused.
func TestLockOfAnother(t *testing.T) {
	name := filepath.Join(t.TempDir(), lockName)
	writeFile(t, name, []byte("precious"))
	if err := os.Chown(name, 4711, -1); err != nil {
		t.Skip(err)
	}
	_, err := osDisk{}.lock(name)
	want := fmt.Sprintf("open %s: it belongs to the user 4711, and this process runs as %d", name, os.Geteuid())
	if err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
	if got := string(readFile(t, name)); got != "precious" {
		t.Errorf("the lock became %q", got)
	}
}

// lookedAtDisk counts the looks at the journal's name.
type lookedAtDisk struct {
	osDisk
	journals atomic.Int32
}

func (d *lookedAtDisk) identify(name string) (fileID, time.Time, error) {
	if filepath.Base(name) == journalName {
		d.journals.Add(1)
	}
	return d.osDisk.identify(name)
}

// TestCopyBegunBeforeSwitch checks that a switch waits for a copy that begins while it asks the flusher.
func TestCopyBegunBeforeSwitch(t *testing.T) {
	t.Parallel()
	o, disk := diskOptions(nil), new(listedDisk)
	o.dir, o.fs = t.TempDir(), disk
	j, _ := mustOpen(t, o)
	defer j.close()
	if j.copies.reads == nil {
		t.Skip("the system does not tell who reads")
	}
	mustStore(t, j, 3)
	var names []os.DirEntry
	listed := make(chan struct{})
	list := func() {
		names = must(os.ReadDir(o.dir))(t)
		close(listed)
	}
	disk.list.Store(&list)
	done := make(chan error)
	go func() { done <- j.awaitSwitch() }()
	<-listed
	if err, ended := receiveWithin(done, 50*time.Millisecond); ended {
		t.Fatalf("a switch beside a copy: got %v; want it to wait", err)
	}
	for _, name := range names {
		must(os.ReadFile(filepath.Join(o.dir, name.Name())))(t)
	}
	noError(t, <-done)
}

// openCopier is a disk on which somebody lists the directory when the snapshot that is about to be replaced
// is opened, and reads every file some time later.
type openCopier struct {
	osDisk
	dir   string
	tried atomic.Int32 // copies begun
	going atomic.Int32 // copies not ended
	early atomic.Int32 // names taken away beside a copy
}

func (d *openCopier) edit(name string) (diskFile, error) {
	if filepath.Base(name) == snapshotName && d.tried.Add(1) <= 3 {
		d.going.Add(1)
		names, _ := os.ReadDir(d.dir)
		time.AfterFunc(20*time.Millisecond, func() {
			defer d.going.Add(-1)
			for _, name := range names {
				os.ReadFile(filepath.Join(d.dir, name.Name()))
			}
		})
	}
	return d.osDisk.edit(name)
}

func (d *openCopier) rename(from, to string) error {
	d.early.Add(d.going.Load())
	return d.osDisk.rename(from, to)
}

// TestCopyBegunWhileSwitching checks that a snapshot gets its name only after a copy that began when
// everything for it was ready.
func TestCopyBegunWhileSwitching(t *testing.T) {
	t.Parallel()
	disk := &openCopier{dir: t.TempDir()}
	o := diskOptions(nil)
	o.dir, o.fs = disk.dir, disk
	j, _ := mustOpen(t, o)
	defer j.close()
	if j.copies.reads == nil {
		t.Skip("the system does not tell who reads")
	}
	for range 4 {
		mustStore(t, j, 3)
		noError(t, writeSnapshot(j))
	}
	if disk.tried.Load() < 3 || disk.early.Load() > 0 {
		t.Errorf("beside %d copies, %d names were taken away; want none", disk.tried.Load(), disk.early.Load())
	}
}

// lateCopier is a disk on which somebody lists the directory right before a name is taken away.
type lateCopier struct {
	osDisk
	dir    string
	on     atomic.Bool
	listed chan []os.DirEntry
	mu     sync.Mutex // nobody else reads from the listing until it is known
}

func (d *lateCopier) after(change func() error) error {
	if !d.on.Load() {
		return change()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	names, err := os.ReadDir(d.dir)
	if err == nil {
		err = change()
	}
	d.listed <- names
	return err
}

// readMore reads every file, unless somebody listed them for a copy that has not begun.
func (d *lateCopier) readMore() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.listed) > 0 {
		return
	}
	for _, name := range append(storeFiles[:], snapshotTemp) {
		os.ReadFile(filepath.Join(d.dir, name))
	}
}

func (d *lateCopier) rename(from, to string) error {
	return d.after(func() error { return d.osDisk.rename(from, to) })
}

func (d *lateCopier) remove(name string) error {
	return d.after(func() error { return d.osDisk.remove(name) })
}

// TestListedNamesStay checks that a copy that lists the directory in the last moment before a name is taken
// away finds every name that it listed, and that the service waits for it before the next change.
func TestListedNamesStay(t *testing.T) {
	t.Parallel()
	disk := &lateCopier{dir: t.TempDir(), listed: make(chan []os.DirEntry, 100)}
	o := diskOptions(nil)
	o.dir, o.fs = disk.dir, disk
	j, _ := mustOpen(t, o)
	if j.copies.reads == nil {
		t.Skip("the system does not tell who reads")
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	done, changes := make(chan error), 0
	for range 3 {
		mustStore(t, j, 3)
		disk.on.Store(true)
		go func() { done <- writeSnapshot(j) }()
		for ended := false; !ended; {
			select {
			case names := <-disk.listed:
				changes++
				copyListed(t, disk.dir, names)
			case <-tick.C: // a copy also ends when it has the files that came later
				disk.readMore()
			case err := <-done:
				noError(t, err)
				ended = true
			}
		}
		disk.on.Store(false)
	}
	if changes < 9 {
		t.Errorf("got %d changes of names; want 3 for each snapshot", changes)
	}
	noError(t, j.close())
	j, g := mustOpen(t, o)
	defer j.close()
	checkContents(t, g, 9)
}

// copyListed reads the files that were listed. The service puts a name back as soon as it runs again.
func copyListed(t *testing.T, dir string, names []os.DirEntry) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for _, name := range names {
		path := filepath.Join(dir, name.Name())
		for began := time.Now(); ; <-tick.C {
			if _, err := os.Stat(path); err == nil {
				break
			} else if time.Since(began) > copyPatience/2 {
				t.Errorf("a name that was listed is gone: %v", err)
				break
			}
		}
		os.ReadFile(path)
	}
}

// TestStoreIsWatched checks that a store whose directory, lock or journal is removed or replaced
// refuses changes at once, acknowledges none, and says why; an idle one notices within a second.
func TestStoreIsWatched(t *testing.T) {
	slow(t)
	t.Parallel()
	for _, tt := range []struct {
		name   string
		do     func(dir string) error
		reason string
	}{
		{"removed", os.RemoveAll, "the data directory was removed"},
		{"moved away", func(dir string) error { return os.Rename(dir, dir+".old") }, "the data directory was removed"},
		{"replaced", func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".old"), os.CopyFS(dir, os.DirFS(dir+".old")))
		}, "the data directory was replaced by another one"},
		{"unlocked", func(dir string) error { return os.Remove(filepath.Join(dir, lockName)) },
			"the file lock was removed from the data directory"},
		{"opened by another process", func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, lockName)), os.WriteFile(filepath.Join(dir, lockName), nil, 0o600))
		}, "another process has used the data directory"},
		{"without its journal", func(dir string) error { return os.Remove(filepath.Join(dir, journalName)) },
			"journal.jsonl was removed"},
		{"with another journal", func(dir string) error {
			name := filepath.Join(dir, journalName)
			return errors.Join(os.Rename(name, name+".mine"), os.WriteFile(name, []byte(journalText(1, 3)), 0o600))
		}, "journal.jsonl was replaced by another file"},
	} {
		for _, kind := range []string{"idle", "new", "old", "with its time of before"} {
			t.Run(tt.name+", "+kind, func(t *testing.T) {
				t.Parallel()
				o := diskOptions(nil)
				disk := &lookedAtDisk{}
				o.dir, o.fs = filepath.Join(t.TempDir(), "data"), disk
				j, _ := mustOpen(t, o)
				defer j.close()
				mustStore(t, j, 3)
				before := must(os.Stat(o.dir))(t).ModTime()
				if kind == "old" || kind == "with its time of before" {
					wire.Eventually(t, "five changes beside unchanged names without a look at the journal's", func() bool {
						disk.journals.Store(0)
						mustStore(t, j, 5)
						return disk.journals.Load() == 0
					})
				}
				noError(t, tt.do(o.dir))
				if kind == "with its time of before" { // as tar does
					os.Chtimes(o.dir, before, before) // an error if there is none
				}
				if kind != "idle" {
					err := j.wait(t.Context(), appendTest(j, 1))
					if err == nil || !strings.Contains(errors.Unwrap(err).Error(), tt.reason) {
						t.Errorf("a change afterwards: got %v; want it refused, as %s", err, tt.reason)
					}
				}
				wire.Eventually(t, "the store is read-only", func() bool { return !j.status().writable })
				if got := j.status().reason; !strings.Contains(got, tt.reason) {
					t.Errorf("reason: got %q; want %q", got, tt.reason)
				}
				if err := j.reserve(); kindOf(err) != unavailable {
					t.Errorf("reserve: got %v; want it refused", err)
				}
				if err := writeSnapshot(j); err == nil {
					t.Error("a snapshot: got no error")
				}
			})
		}
	}
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
