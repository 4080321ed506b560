package main

// The names in the directory of a store: making, renaming and removing its files, so that each
// name leads to a whole file at every moment.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// drop closes a temporary file, and removes it unless its name leads to another file. If that fails,
// it leaves the file for the next snapshot or start.
func (d *storeDir) drop(f diskFile, name string) {
	mine, idErr := f.id()
	f.Close()
	now, _, err := d.disk.identify(d.path(name))
	if err == nil && idErr == nil && now == mine {
		err = d.disk.remove(d.path(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("a temporary file stays until the next start", "file", d.path(name), "error", err)
	}
}

// storeDir makes, renames and removes the files of a store.
type storeDir struct {
	disk     diskFS
	dir      string
	id       string // of the store, in its files
	log      *slog.Logger
	place    *storePlace           // whose lock makes names durable
	fail     func(err error) error // ends all writing
	quit     chan struct{}         // closed when the journal is to be closed
	freeing  sync.WaitGroup        // of files that were replaced
	oldBytes atomic.Int64          // of journal.old.jsonl; 0 without one
}

func (d *storeDir) path(name string) string { return filepath.Join(d.dir, name) }

// create creates a journal with a header under its temporary name, synced.
func (d *storeDir) create(from uint64) (diskFile, int64, error) {
	f, err := d.disk.create(d.path(journalTempName))
	if err != nil {
		return nil, 0, err
	}
	size, err := d.writeHeader(f, from)
	if err != nil {
		d.drop(f, journalTempName)
		return nil, 0, err
	}
	return f, size, nil
}

// writeHeader writes the header of an empty journal, and returns its size.
func (d *storeDir) writeHeader(f diskFile, from uint64) (int64, error) {
	header := appendJournalHeader(nil, d.id, from)
	_, err := f.WriteAt(header, 0)
	if err == nil {
		err = f.sync()
	}
	return int64(len(header)), err
}

// swap renames both journals, the old one first unless it has both names. A
// failed sync of the directory fails the journal, because it is unknown then
// which file a start would read.
func (d *storeDir) swap(linked bool) error {
	renames := [][2]string{{journalName, journalOldName}, {journalTempName, journalName}}
	if linked {
		renames = renames[1:]
	}
	for _, names := range renames {
		if err := d.disk.rename(d.path(names[0]), d.path(names[1])); err != nil {
			return d.undo(err)
		}
		if err := d.place.lock.syncDir(); err != nil {
			return d.fail(err)
		}
	}
	return nil
}

// undo renames the journal back after a rename that failed but may have
// happened, so that the journal goes on in its file.
func (d *storeDir) undo(cause error) error {
	err := d.disk.rename(d.path(journalOldName), d.path(journalName))
	if errors.Is(err, fs.ErrNotExist) {
		return cause
	}
	if err != nil || d.place.lock.syncDir() != nil {
		return d.fail(cause)
	}
	return cause
}

// linkOld gives the journal's file the name journal.old.jsonl, which no needed file has, as its
// second one. It reports whether the file system could.
func (d *storeDir) linkOld() bool {
	if err := d.disk.remove(d.path(journalOldName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return d.disk.link(d.path(journalName), d.path(journalOldName)) == nil && d.place.lock.syncDir() == nil
}

// replace calls do, which takes a file's name away, and makes that durable.
// The nameless file is then freed in the background.
func (d *storeDir) replace(name string, do func() error) error {
	f, openErr := d.disk.edit(d.path(name))
	err := do()
	if err == nil {
		err = d.place.lock.syncDir()
	}
	if openErr != nil {
		return err
	}
	if err != nil { // the name may come back with a crash
		f.Close()
		return err
	}
	d.freeing.Go(func() { d.shrinkAway(f) })
	return nil
}

// shrinkAway closes a file without a name, step by step: a file system that
// frees a gigabyte at once delays syncs of other files. It waits until nobody
// else has the file open, who would find it cut short. Errors do not matter:
// closing frees the rest.
func (d *storeDir) shrinkAway(f diskFile) {
	defer f.Close()
	size, err := f.size()
	for err == nil && size > shrinkStep {
		pause := time.Duration(0)
		if err = f.unused(); errors.Is(err, syscall.EAGAIN) {
			pause, err = readerRecheck, nil
		} else if err == nil {
			size -= shrinkStep
			if err = f.truncate(size); err == nil {
				err = f.sync()
			}
		}
		if closedWithin(context.Background(), d.quit, pause) == nil {
			return
		}
	}
}

// holdNothing refuses a directory with the files of a store.
func (d *storeDir) holdNothing() error {
	for _, name := range []string{journalName, journalOldName, snapshotName} {
		f, err := d.disk.open(d.path(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			f.Close()
			err = fmt.Errorf("data directory %s holds a store already (%s): a state can only be imported into an empty one",
				d.dir, name)
		}
		return err
	}
	return nil
}
