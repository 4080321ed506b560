package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStoreLock(t *testing.T) {
	o := diskOptions(nil)
	o.dir, o.fs = t.TempDir(), osDisk{}
	j, _ := mustOpen(t, o)
	mustStore(t, j, 3)
	_, err := openJournal(o, &gathered{})
	want := fmt.Sprintf("data directory %s is in use by process %d", o.dir, os.Getpid())
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("second opener: got %v; want %s", err, want)
	}
	var report strings.Builder
	if err := checkStoreFiles(o.dir, blindLoader{}, &report); err != nil {
		t.Errorf("check beside the holder: %v", err)
	}
	if want := fmt.Sprintf("the lock names process %d", os.Getpid()); !strings.Contains(report.String(), want) {
		t.Errorf("check: got %s; want %s", &report, want)
	}
	mustClose(t, j)
	if text, err := os.ReadFile(filepath.Join(o.dir, lockName)); err != nil || len(text) != 0 {
		t.Errorf("lock afterwards: got %q, %v; want it empty", text, err)
	}
	j, g := mustOpen(t, o)
	checkContents(t, g, 3)
	mustClose(t, j)
}

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

func TestStoreDirectoryIsAFile(t *testing.T) {
	o := diskOptions(nil)
	o.dir, o.fs = filepath.Join(t.TempDir(), "file"), osDisk{}
	noError(t, os.WriteFile(o.dir, nil, 0o600))
	if _, err := openJournal(o, &gathered{}); err == nil || !strings.Contains(err.Error(), o.dir) {
		t.Errorf("open: got %v; want an error naming %s", err, o.dir)
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

// TestStoreFilesAreRegular puts irregular files in the places of the files of a store: each is
// refused, none is followed, replaced or removed, and none delays the start.
func TestStoreFilesAreRegular(t *testing.T) {
	t.Parallel()
	open := func(_ *testing.T, path string) error {
		o := diskOptions(nil)
		o.dir, o.fs = filepath.Dir(path), osDisk{}
		j, err := openJournal(o, &gathered{})
		if err == nil {
			j.close()
		}
		return err
	}
	for _, name := range []string{lockName, journalName, journalOldName, snapshotName, journalTempName, snapshotTemp} {
		eachIrregularFile(t, name, open)
	}
	for _, name := range []string{journalName, journalTempName} {
		eachIrregularFile(t, name, func(t *testing.T, path string) error {
			o := diskOptions(nil)
			o.dir, o.fs = filepath.Dir(path), osDisk{}
			_, err := importStore(o, &stateSource{document: strings.NewReader(`{"format":1,"product":"stepwell","seq":0}`)}, o.log)
			return err
		})
	}
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

// TestDirectoryOfOthers checks the warning about a data directory in which others may write.
func TestDirectoryOfOthers(t *testing.T) {
	for _, tt := range []struct {
		mode  os.FileMode
		owner int
		warns bool
	}{{0o700, -1, false}, {0o755, -1, false}, {0o775, -1, true}, {0o777 | os.ModeSticky, -1, true}, {0o700, 4711, true}} {
		o, log := diskOptions(nil), new(strings.Builder)
		o.dir, o.fs, o.log = t.TempDir(), osDisk{}, slog.New(slog.NewTextHandler(log, nil))
		noError(t, os.Chmod(o.dir, tt.mode))
		if err := os.Chown(o.dir, tt.owner, -1); err != nil {
			continue // only root can give a directory away
		}
		j, _ := mustOpen(t, o)
		mustClose(t, j)
		if got := strings.Contains(log.String(), "others may write"); got != tt.warns || got != strings.Contains(log.String(), o.dir) {
			t.Errorf("%v of the user %d: got %q; want a warning: %v", tt.mode, tt.owner, log, tt.warns)
		}
	}
}

// TestFileInUse checks that a file without a name counts as unused only when nobody else has it
// open.
func TestFileInUse(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	f := must(osDisk{}.create(name))(t)
	defer f.Close()
	if err := f.unused(); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file with its name: got %v; want %v", err, fs.ErrExist)
	}
	reader := must(os.Open(name))(t)
	noError(t, os.Remove(name))
	if err := f.unused(); !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a file that is read: got %v; want %v", err, syscall.EAGAIN)
	}
	noError(t, reader.Close())
	if err := f.unused(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a file that nobody else has: got %v", err)
	}
}

// TestPinnedStore checks that a reader sees the files of one moment: those that are replaced
// while it opens them are opened again, and what is appended later is not read.
func TestPinnedStore(t *testing.T) {
	disk := newMemDisk()
	j, _ := mustOpen(t, diskOptions(disk))
	mustStore(t, j, 3)
	noError(t, writeSnapshot(j))
	opened := 0
	replaced := &openingDisk{disk, func(name string) {
		if opened++; opened <= 2 && filepath.Base(name) == snapshotName {
			mustStore(t, j, 2)
			noError(t, writeSnapshot(j))
		}
	}}
	p := must(pinStore(replaced, testDir))(t)
	defer p.close()
	last := lastAppended(j)
	mustStore(t, j, 4)
	noError(t, writeSnapshot(j))
	g := &gathered{}
	noError(t, (&recovery{disk: p, dir: testDir, loader: g}).read())
	checkContents(t, g, last)
	if opened < 2*len(storeFiles) {
		t.Errorf("files opened: got %d; want all twice", opened)
	}
	mustClose(t, j)
}

// openingDisk calls a function after it has opened a file.
type openingDisk struct {
	diskFS
	opened func(name string)
}

func (d *openingDisk) open(name string) (diskFile, error) {
	f, err := d.diskFS.open(name)
	d.opened(name)
	return f, err
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
	j.copies.since = time.Now().Add(-2 * copyPatience)
	if j.copied() {
		t.Error("a copy that nobody goes on with: it counts")
	}
	must(os.ReadDir(o.dir))(t)
	if j.fileBytes.Store(copyGrowth * j.snapshotThreshold()); j.copied() {
		t.Error("a journal that has grown too large: the copy counts")
	}
}
