package main

// The file operations of journal and snapshot, behind an interface so that tests can make each of
// them fail, and their form on a real disk.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// diskFS is a file system. A missing file gives fs.ErrNotExist. Anything but a regular
// file gives an error, and is neither followed nor replaced.
type diskFS interface {
	makeDir(dir string) error             // with its parents, mode 0700, synced; no error if it exists
	writableByOthers(dir string) bool     // whether other users may change its names
	open(name string) (diskFile, error)   // for reading
	edit(name string) (diskFile, error)   // for writing, as it is
	create(name string) (diskFile, error) // for writing, emptied or new with mode 0600
	rename(from, to string) error         // replaces to
	remove(name string) error             // a file
	syncDir(dir string) error             // makes names durable
	free(dir string) (int64, error)       // bytes that can be written below dir
	lock(name string) (dirLock, error)    // exclusive, until closed or the process ends
	identify(name string) (fileID, error) // which file or directory has a name
	link(from, to string) error           // gives a file a second name, where there is none
}

// dirLock is the lock of a directory, which it keeps open.
type dirLock interface {
	io.Closer
	syncDir() error     // makes names durable, and needs no more descriptors
	noteDir(dir fileID) // notes the directory of a store that was opened
}

// diskFile is an open file.
type diskFile interface {
	io.Reader
	io.ReaderAt
	io.WriterAt
	io.Closer
	id() (fileID, error)
	size() (int64, error)
	sync() error                 // makes contents and size durable
	allocate(off, n int64) error // reserves blocks; the size stays
	truncate(size int64) error   // also frees blocks reserved beyond size
	unused() error               // nil if it has no name and nobody else has it open; EAGAIN if somebody has
}

// osDisk is the real file system.
type osDisk struct{}

// osFile is an open file of osDisk. Its errors name the file by its name in use, not
// as it was created.
type osFile struct {
	*os.File
	name string
}

func (d osDisk) makeDir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := d.makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.syncDir(parent) // or a crash may lose the name of the new directory, and the store with it
}

func (osDisk) writableByOthers(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && othersMayWrite(info)
}

func (osDisk) open(name string) (diskFile, error) { return osOpen(name, os.O_RDONLY) }

func (osDisk) edit(name string) (diskFile, error) { return osOpen(name, os.O_RDWR) }

func (osDisk) create(name string) (diskFile, error) {
	return osOpen(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func osOpen(name string, flag int) (diskFile, error) {
	f, err := openRegular(name, flag|noFollow)
	if err != nil {
		return nil, err
	}
	return osFile{f, strings.TrimSuffix(name, ".tmp")}, nil
}

func (osDisk) rename(from, to string) error { return renameRegular(from, to) }

func (osDisk) remove(name string) error { return removeRegular(name) }

func (osDisk) syncDir(dir string) error {
	f, err := openDir(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return syncNames(f)
}

// named makes an error of the file name it.
func (f osFile) named(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		p.Path = f.name
	}
	return err
}

func (f osFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(b, off)
	return n, f.named(err)
}

func (f osFile) Close() error { return f.named(f.File.Close()) }

func (osDisk) link(from, to string) error { return os.Link(from, to) }

func (osDisk) identify(name string) (fileID, error) { return identifyName(name) }

func (f osFile) id() (fileID, error) {
	id, err := identifyFile(f.File)
	return id, f.named(err)
}

func (f osFile) size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, f.named(err)
	}
	return info.Size(), nil
}

func (f osFile) truncate(size int64) error { return f.named(f.Truncate(size)) }

func (f osFile) sync() error { return f.named(syncData(f.File)) }

func (f osFile) allocate(off, n int64) error { return f.named(reserveBlocks(f.File, off, n)) }

func (f osFile) unused() error {
	if !isUnlinked(f.File) {
		return fs.ErrExist
	}
	return soleOpener(f.File)
}

func (osDisk) free(dir string) (int64, error) { return freeSpace(dir) }

// Reading beside a running service, which may replace each file at any moment.

// pinnedStore is a file system on which the files of a store stay as they were at one moment.
type pinnedStore struct {
	diskFS
	files map[string]pinnedFile // by path
}

// pinnedFile is an open file that is read only up to its end at that moment. The zeros behind its records do not
// count, because they become records while it is read. Close does nothing: pinnedStore closes the file.
type pinnedFile struct {
	diskFile
	*io.SectionReader
}

func (f pinnedFile) Read(p []byte) (int, error) { return f.SectionReader.Read(p) }

func (f pinnedFile) ReadAt(p []byte, off int64) (int, error) { return f.SectionReader.ReadAt(p, off) }

func (f pinnedFile) size() (int64, error) { return f.Size(), nil }

func (pinnedFile) Close() error { return nil }

// pinStore opens the files of a store. They belong together: when the last one was opened,
// the others were still those of their names.
func pinStore(disk diskFS, dir string) (*pinnedStore, error) {
	for {
		p := &pinnedStore{disk, map[string]pinnedFile{}}
		err := p.take(dir)
		if err == nil && p.together(dir) {
			return p, nil
		}
		// A snapshot has replaced a file meanwhile.
		p.close()
		if err != nil {
			return nil, err
		}
	}
}

// take opens the snapshot before the journals, which must have every record that it shows.
func (p *pinnedStore) take(dir string) error {
	for _, name := range storeFiles {
		path := filepath.Join(dir, name)
		f, err := p.diskFS.open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		n, err := f.size()
		tail := make([]byte, min(n, 2*zerosAhead))
		if err == nil {
			_, err = f.ReadAt(tail, n-int64(len(tail)))
		}
		if text := trimZeros(tail); bytes.HasSuffix(text, []byte("\n")) {
			n -= int64(len(tail) - len(text))
		}
		p.files[path] = pinnedFile{f, io.NewSectionReader(f, 0, n)}
		if err != nil && err != io.EOF { // it has been cut behind its records
			return err
		}
	}
	return nil
}

// together reports whether every name still leads to the file that was opened, or to none.
func (p *pinnedStore) together(dir string) bool {
	for _, name := range storeFiles {
		path := filepath.Join(dir, name)
		now, err := p.identify(path)
		f, there := p.files[path]
		if !there {
			if !errors.Is(err, fs.ErrNotExist) {
				return false
			}
			continue
		}
		if id, idErr := f.id(); err != nil || idErr != nil || id != now {
			return false
		}
	}
	return true
}

func (p *pinnedStore) open(name string) (diskFile, error) {
	f, there := p.files[name]
	switch {
	case there:
		f.Seek(0, io.SeekStart)
		return f, nil
	case filepath.Base(name) == lockName:
		return p.diskFS.open(name)
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (p *pinnedStore) close() {
	for _, f := range p.files {
		f.diskFile.Close()
	}
}

// Noticing that the disk is slow.

// diskWatch notices when an operation of the disk takes too long, in real time. It is for
// one operation at a time.
type diskWatch struct {
	limit time.Duration
	tell  func(late bool) // called when an operation is late, and when that one has ended

	mu    sync.Mutex
	began time.Time // of the operation; zero for none; guarded by mu, as all below
	late  bool
	timer *time.Timer
}

// during calls an operation.
func (w *diskWatch) during(op func() error) error {
	w.begin()
	defer w.end()
	return op()
}

func (w *diskWatch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = time.Now()
	if w.timer == nil {
		w.timer = time.AfterFunc(w.limit, w.fire)
	} else {
		w.timer.Reset(w.limit)
	}
}

// fire tells that the operation is late, unless the timer was for one that has ended.
func (w *diskWatch) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.began.IsZero() && !w.late && time.Since(w.began) >= w.limit {
		w.late = true
		w.tell(true)
	}
}

func (w *diskWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.began = time.Time{}
	if w.late {
		w.late = false
		w.tell(false)
	}
}

// noteSlow logs that an operation of the disk takes long, and that it has ended.
func (j *journal) noteSlow(late bool) {
	if late {
		j.o.log.Warn("the disk takes long to write: changes wait for it", "dir", j.o.dir, "longer_than", slowDisk.String())
	} else {
		j.o.log.Info("the disk has written again", "dir", j.o.dir)
	}
}

// The names in the directory of a store: making, renaming and removing its files, so that each
// name leads to a whole file at every moment.

// drop closes a temporary file, and removes it unless its name leads to another file. If that fails,
// it leaves the file for the next snapshot or start.
func (d *storeDir) drop(f diskFile, name string) {
	mine, idErr := f.id()
	f.Close()
	now, err := d.disk.identify(d.path(name))
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
	of       storeOrigin // of the store, in its files
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
	header := appendJournalHeader(nil, d.of, from)
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
// happened, so that the journal continues in its file.
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
	if !replacesOpen { // the journal is open
		return false
	}
	if err := d.disk.remove(d.path(journalOldName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	return d.disk.link(d.path(journalName), d.path(journalOldName)) == nil && d.place.lock.syncDir() == nil
}

// replace calls do, which takes a file's name away, and makes that durable.
// The nameless file is then freed in the background.
func (d *storeDir) replace(name string, do func() error) error {
	var f diskFile
	openErr := errors.ErrUnsupported
	if replacesOpen {
		// While it is open, the file keeps its blocks although it loses its name. shrinkAway frees them step by step.
		f, openErr = d.disk.edit(d.path(name))
	}
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
			err = fmt.Errorf("data directory %s already holds a store (%s): a state can only be imported into an empty one",
				d.dir, name)
		}
		return err
	}
	return nil
}
