package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"stepwell/e2e/wire"
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

// TestErrorsNameTheFileInUse makes files under their temporary names, renames them, and
// makes every operation on them fail.
func TestErrorsNameTheFileInUse(t *testing.T) {
	t.Parallel()
	for _, name := range []string{journalName, snapshotName} {
		name = filepath.Join(t.TempDir(), name)
		f := must(osDisk{}.create(name + ".tmp"))(t)
		noError(t, osDisk{}.rename(name+".tmp", name))
		noError(t, f.Close())
		_, writing := f.WriteAt([]byte("x"), 0)
		_, sizing := f.size()
		for i, err := range []error{writing, sizing, f.sync(), f.truncate(0), f.allocate(0, 1), f.Close()} {
			if err == nil || strings.Contains(err.Error(), ".tmp") || !strings.Contains(err.Error(), name+":") {
				t.Errorf("error %d: got %v; want it to name %s", i, err, name)
			}
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

// TestDiskHangs holds the operations of the disk: who waits for it and who comes later is
// refused, readiness says why, and reads, handlers and everything else go on when it does.
func TestDiskHangs(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"always", "never"} {
		t.Run(mode, func(t *testing.T) { newSlowTest(t, mode).hang() })
	}
}

func (s *slowTest) hang() {
	t, j := s.t, s.svc.store.journal
	j.watch.setLimit(2 * time.Second) // more than the request needs to come
	before, _ := s.svc.store.size()
	s.disk.hold()
	waiting := make(chan *answer, 1)
	go func() { waiting <- s.do("POST", "/v1/tasks", `{"namespace":"t","name":"web"}`) }()
	wire.Eventually(t, "the task is there", func() bool { tasks, _ := s.svc.store.size(); return tasks > before })
	j.watch.setLimit(50 * time.Millisecond)
	wire.Eventually(t, "readiness is lost", func() bool { return s.do("GET", "/health/ready", "").status == 503 })
	a := s.do("GET", "/health/ready", "").want(503)
	for _, check := range []string{"web_database", "orchestration_database"} {
		if got := a.text("checks." + check + ".message"); !strings.Contains(got, "store.slow_seconds") {
			t.Errorf("the check %s says %q; want the key's name", check, got)
		}
	}
	if a := <-waiting; j.o.sync == syncAlways {
		wantHangRefusal(t, a.want(503), "outcome unknown")
	} else {
		a.want(201)
	}
	began := realNow()
	wantHangRefusal(t, s.do("POST", "/v1/tasks", `{"namespace":"t","name":"manual"}`).want(503), "no change is taken")
	s.do("GET", "/v1/templates", "").want(200)
	s.do("GET", "/health", "").want(200)
	if took := realNow().sub(began); took > 5*time.Second {
		t.Errorf("answers took %s", took)
	}
	s.disk.release()
	<-s.arrived // the handler was not given up
	s.letHandlerGo()
	wire.Eventually(t, "readiness is back", func() bool { return s.do("GET", "/health/ready", "").status == 200 })
	s.create(`{"namespace":"t","name":"manual"}`)
	wire.Eventually(t, "the task ends", func() bool {
		return s.do("GET", "/v1/tasks?status=complete", "").want(200).text("pagination.total_count") == "1"
	})
}

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

func (w *diskWatch) setLimit(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit = d
}

// wantHangRefusal checks a refusal for lack of a disk that answers.
func wantHangRefusal(t testing.TB, a *answer, part string) {
	t.Helper()
	if a.text("error.code") != "SERVICE_UNAVAILABLE" || a.header.Get("Retry-After") != "5" ||
		!strings.Contains(a.text("error.message"), part) || !strings.Contains(a.text("error.message"), "store.slow_seconds") {
		t.Errorf("got Retry-After %q and %s; want %q and store.slow_seconds", a.header.Get("Retry-After"), a.body, part)
	}
}

// TestSpaceHangs holds the reservation of space that a change needs: the change is refused soon,
// and others at once, so that the store's lock is free for reads.
func TestSpaceHangs(t *testing.T) {
	slow(t)
	t.Parallel()
	disk := &slowDisk{diskFS: newMemDisk(), space: true}
	o := diskOptions(nil)
	o.fs = disk
	j, _ := mustOpen(t, o)
	t.Cleanup(disk.release)
	j.watchSpace.setLimit(10 * time.Millisecond)
	noError(t, j.ask(func() error {
		disk.hold()
		j.space.room.Store(0)
		return nil
	}))
	if err := j.reserve(); kindOf(err) != unavailable || !strings.Contains(err.Error(), "store.slow_seconds") {
		t.Errorf("got %v; want a disk that hangs", err)
	}
	began := realNow()
	if err := j.reserve(); kindOf(err) != unavailable || realNow().sub(began) > spacePatience/2 {
		t.Errorf("got %v after %s; want the same at once", err, realNow().sub(began))
	}
	disk.release()
	wire.Eventually(t, "space is reserved", func() bool { return j.reserve() == nil && !j.hangs.Load() })
	mustClose(t, j)
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
