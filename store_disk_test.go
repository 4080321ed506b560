package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

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
		if got := strings.Contains(log.String(), "other users can write"); got != tt.warns || got != strings.Contains(log.String(), o.dir) {
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

// TestPinnedJournalEndsBeforeItsZeros checks that a reader does not see the records that replace the zeros
// behind those of its moment.
func TestPinnedJournalEndsBeforeItsZeros(t *testing.T) {
	disk := newMemDisk()
	o := diskOptions(disk)
	o.sync = syncAlways
	j, _ := mustOpen(t, o)
	mustStore(t, j, 3)
	p := must(pinStore(disk, testDir))(t)
	defer p.close()
	last := lastAppended(j)
	mustStore(t, j, 4)
	r := &recovery{disk: p, dir: testDir, loader: &gathered{}}
	noError(t, r.read())
	if r.last != last {
		t.Errorf("got the records up to %d; want %d", r.last, last)
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

// BenchmarkBareCommit measures write and sync in a loop, of as many records at
// once.
func BenchmarkBareCommit(b *testing.B) {
	for _, group := range []int{1, 8, 16, 32, 64} {
		b.Run(fmt.Sprintf("group=%d", group), func(b *testing.B) {
			f := must(osDisk{}.create(filepath.Join(b.TempDir(), "bare")))(b)
			defer f.Close()
			buf := make([]byte, group*(benchBody+30))
			pos := int64(0)
			for n := 0; n < b.N; n += group {
				must(f.WriteAt(buf, pos))(b)
				noError(b, f.sync())
				pos += int64(len(buf))
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
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
