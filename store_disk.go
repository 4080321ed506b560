package main

// The file operations of the store, behind an interface so that tests can make each of
// them fail, and their form on a real disk.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// diskFS is a file system. A missing file gives fs.ErrNotExist. Anything but a regular
// file gives an error, and is neither followed nor replaced.
type diskFS interface {
	makeDir(dir string) error             // with its parents, mode 0700, synced; no error if it exists
	open(name string) (diskFile, error)   // for reading
	edit(name string) (diskFile, error)   // for writing, as it is
	create(name string) (diskFile, error) // for writing, emptied or new with mode 0600
	rename(from, to string) error         // replaces to
	remove(name string) error             // a file
	syncDir(dir string) error             // makes names durable
	free(dir string) (int64, error)       // bytes that can be written below dir
	lock(name string) (dirLock, error)    // exclusive, until closed or the process ends
}

// dirLock is the lock of a directory, which it keeps open.
type dirLock interface {
	io.Closer
	syncDir() error // makes names durable, and needs no more descriptors
}

// diskFile is an open file.
type diskFile interface {
	io.Reader
	io.ReaderAt
	io.WriterAt
	io.Closer
	size() (int64, error)
	sync() error                 // makes contents and size durable
	allocate(off, n int64) error // reserves blocks; the size stays
	truncate(size int64) error   // also frees blocks reserved beyond size
}

// osDisk is the real file system.
type osDisk struct{}

// osFile is an open file of osDisk. Its errors name the file by its name in use, not as it was created.
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
	return osFile{f, strings.TrimSuffix(name, ".new")}, nil
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

func (osDisk) free(dir string) (int64, error) { return freeSpace(dir) }

// watched does an operation of the disk. It logs one that takes long, and its end.
func (j *journal) watched(op func() error) error {
	late := time.AfterFunc(slowDisk, func() {
		j.o.log.Warn("the disk takes long to write: changes wait for it", "dir", j.o.dir, "longer_than", slowDisk.String())
	})
	err := op()
	if !late.Stop() {
		j.o.log.Info("the disk has written again", "dir", j.o.dir)
	}
	return err
}

// The lock of a data directory: flock on a file. The file holds the pid of the process that has the lock. The lock ends
// with its process; the file stays.

const lockName = "lock"

// storeLock is a lock that is held.
type storeLock struct{ file, dir *os.File }

func (d osDisk) lock(name string) (_ dirLock, err error) {
	f, err := openRegular(name, os.O_RDWR|os.O_CREATE|noFollow)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err == nil {
		err = untilError(func() error { return checkOwn("open", name, info) }, func() error { return lockFile(f) })
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = lockHeld(filepath.Dir(name), f)
	}
	if err != nil {
		return nil, err
	}
	if now, gone := os.Stat(name); gone != nil || !os.SameFile(now, info) { // removed by somebody since it was opened
		f.Close()
		return d.lock(name)
	}
	if err = checkLockText(f); err != nil {
		return nil, err
	}
	dir, err := openDir(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	l := &storeLock{file: f, dir: dir}
	l.write(fmt.Sprintln(os.Getpid()))
	return l, nil
}

func (l *storeLock) syncDir() error { return syncNames(l.dir) }

// lockSyntax is the text of a lock: a pid or nothing; or zeros where a crash of the machine lost that.
var lockSyntax = compiled(`^(\d{0,10}\n?|\x00{1,11})$`)

const lockSize = 64 // bytes, more than a lock has

// checkLockText returns an error if a file holds what no lock does: so it belongs to another program.
func checkLockText(f *os.File) error {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, lockSize))
	if err == nil && !lockSyntax().Match(text) {
		err = &fs.PathError{Op: "lock", Path: f.Name(), Err: errors.New(
			"it does not hold a process id, so it is not a lock of stepwell; move it away, or use another data directory")}
	}
	return err
}

// Close releases the lock and removes the pid. Closing the file alone would leave the
// lock to a child that has been forked and not yet closed its copy.
func (l *storeLock) Close() error {
	l.dir.Close()
	if readLock(io.NewSectionReader(l.file, 0, lockSize)) == os.Getpid() {
		l.write("")
	}
	unlockFile(l.file)
	return l.file.Close()
}

// write writes the pid for the error message of the next process that tries. It ignores errors: a full disk must not keep
// a store from being opened.
func (l *storeLock) write(text string) {
	l.file.Truncate(0)
	l.file.WriteAt([]byte(text), 0)
}

func lockHeld(dir string, lock io.Reader) error {
	if pid := readLock(lock); pid != 0 {
		return fmt.Errorf("data directory %s is in use by process %d", dir, pid)
	}
	return fmt.Errorf("data directory %s is in use by another process", dir)
}

// readLock returns the pid in a lock file; 0 for none.
func readLock(f io.Reader) int {
	text, _ := io.ReadAll(io.LimitReader(f, lockSize))
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text))) // 0 on error
	return pid
}

// takeDir makes a data directory if it is missing, and locks it.
func takeDir(o *journalOptions) (dirLock, error) {
	if err := o.fs.makeDir(o.dir); err != nil {
		return nil, fmt.Errorf("make data directory %s: %w", o.dir, err)
	}
	lock, err := o.fs.lock(storePath(o.dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("lock data directory %s: %w", o.dir, err)
	}
	return lock, nil
}
