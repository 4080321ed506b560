package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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
	name := filepath.Join(t.TempDir(), storeName)
	f := must(osDisk{}.create(name + ".new"))(t)
	noError(t, osDisk{}.rename(name+".new", name))
	noError(t, f.Close())
	_, writing := f.WriteAt([]byte("x"), 0)
	_, sizing := f.size()
	for i, err := range []error{writing, sizing, f.sync(), f.truncate(0), f.allocate(0, 1), f.Close()} {
		if err == nil || strings.Contains(err.Error(), ".new") || !strings.Contains(err.Error(), name+":") {
			t.Errorf("error %d: got %v; want it to name %s", i, err, name)
		}
	}
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

// TestSlowDiskIsLogged tells of operations that are late, once, and of their ends.
func TestSlowDiskIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, log := diskOptions(newMemDisk()), &logText{}
		o.log = slog.New(slog.NewTextHandler(log, nil))
		j := newJournal(o)
		for _, took := range []time.Duration{0, slowDisk - 1, 3 * slowDisk, slowDisk - 1} {
			if err := j.watched(func() error { time.Sleep(took); return io.EOF }); err != io.EOF {
				t.Errorf("got %v", err)
			}
		}
		if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "takes long to write") || !strings.Contains(log.String(), "has written again") {
			t.Errorf("got %s; want one late operation, and its end", log)
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
	for _, name := range []string{lockName, storeName, compactName, importName} {
		eachIrregularFile(t, name, open)
	}
	for _, name := range []string{storeName, importName} {
		eachIrregularFile(t, name, func(t *testing.T, path string) error {
			o := diskOptions(nil)
			o.dir, o.fs = filepath.Dir(path), osDisk{}
			_, err := importStore(o, &stateSource{document: strings.NewReader("{\"format\":3}\n{\"end\":{}}\n")}, o.log)
			return err
		})
	}
}
