package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"stepwell/e2e/wire"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestLockHolder(t *testing.T) {
	for text, want := range map[string]int{"": 0, "17\n": 17, "x": 0, " 5 ": 5} {
		if got, dir := readLock(strings.NewReader(text)); got != want || dir != "" {
			t.Errorf("holder in %q: got %d, %q; want %d", text, got, dir, want)
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
	release, err := copyDescriptor(held.(*storeLock).file)
	defer release()
	held.Close()
	if err != nil {
		wire.Skip(t, "%v", err)
	}
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
		wire.Skip(t, "%v", err)
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

// TestLockIsOwn checks that only what a lock can hold is replaced, and only by whoever holds it removed.
func TestLockIsOwn(t *testing.T) {
	name := filepath.Join(t.TempDir(), lockName)
	const dir = "65024:9978369\n"
	for text, noted := range map[string]string{"": "", "17\n": "", "17": "", "4194304\n": "", "\x00\x00\x00": "",
		"17\n" + dir: dir, "\n" + dir: dir, strings.Repeat("\x00", 53): "",
		"4294967295\n18446744073709551615:18446744073709551615\n": "18446744073709551615:18446744073709551615\n"} {
		for _, opened := range []bool{false, true} {
			writeFile(t, name, []byte(text))
			held, err := osDisk{}.lock(name)
			if err != nil {
				t.Errorf("%q: got %v; want the lock", text, err)
				continue
			}
			holds, after := fmt.Sprintf("%d\n%s", os.Getpid(), noted), ""
			if opened {
				held.noteDir(fileID{1, 2})
				holds = fmt.Sprintf("%d\n1:2\n", os.Getpid())
			} else if noted != "" {
				after = "\n" + noted
			}
			if got := string(readFile(t, name)); got != holds {
				t.Errorf("%q: the lock holds %q; want %q", text, got, holds)
			}
			held.Close()
			if got := string(readFile(t, name)); got != after {
				t.Errorf("%q: the lock holds %q at the end; want %q", text, got, after)
			}
		}
	}
	for _, text := range []string{"precious", "17\n18\n", "17 \n", "{}", "\n\n", "12345678901\n", "17\x00", strings.Repeat("\x00", 100),
		"17\n1:2", "17\n1:2\n3", "17\n1:2\n3:4\n", "17 1:2\n"} {
		writeFile(t, name, []byte(text))
		_, err := osDisk{}.lock(name)
		if err == nil || !strings.Contains(err.Error(), name+": it does not hold a process id") {
			t.Errorf("%q: got %v; want it refused", text, err)
		}
		if got := string(readFile(t, name)); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	writeFile(t, name, nil)
	held := must(osDisk{}.lock(name))(t)
	writeFile(t, name, []byte("precious"))
	held.Close()
	if got := string(readFile(t, name)); got != "precious" {
		t.Errorf("what was written meanwhile became %q", got)
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
