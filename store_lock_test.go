package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"stepwell/e2e/wire"
	"strings"
	"syscall"
	"testing"
)

func TestLockHolder(t *testing.T) {
	for text, want := range map[string]int{"": 0, "17\n": 17, "x": 0, " 5 ": 5} {
		if got := readLock(strings.NewReader(text)); got != want {
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
	noError(t, compactTest(j))
	mustClose(t, j)
	for name, want := range map[string]os.FileMode{
		".": 0o700, "..": 0o700, lockName: 0o600, storeName: 0o600,
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
	for _, text := range []string{"", "17\n", "17", "4194304\n", "\x00\x00\x00"} {
		writeFile(t, name, []byte(text))
		held, err := osDisk{}.lock(name)
		if err != nil {
			t.Errorf("%q: got %v; want the lock", text, err)
			continue
		}
		if got, want := string(readFile(t, name)), fmt.Sprintln(os.Getpid()); got != want {
			t.Errorf("%q: the lock holds %q; want %q", text, got, want)
		}
		held.Close()
		if got := string(readFile(t, name)); got != "" {
			t.Errorf("%q: the lock holds %q at the end; want nothing", text, got)
		}
	}
	for _, text := range []string{"precious", "17\n18\n", "17 \n", "{}", "\n\n", "12345678901\n", "17\x00", strings.Repeat("\x00", 100),
		"17\n1:2\n", "17 1:2\n"} {
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

func TestJournalRefusesDirectory(t *testing.T) {
	for _, op := range []string{"mkdir data", "lock lock", "create store.jsonl.new", "syncdir data"} {
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
