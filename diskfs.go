package main

// The file operations that journal and snapshot need, behind an interface so
// that tests can make each of them fail, and their form on a real disk. What
// differs between operating systems is in diskfs_linux.go and diskfs_other.go.

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// diskFS is a file system. A file that is not there gives fs.ErrNotExist.
type diskFS interface {
	makeDir(dir string) error             // with its parents, mode 0700, synced; no error when it is there
	open(name string) (diskFile, error)   // to read
	edit(name string) (diskFile, error)   // to write, as it is
	create(name string) (diskFile, error) // to write, emptied or new with mode 0600
	rename(from, to string) error         // replaces to
	remove(name string) error             // a file
	syncDir(dir string) error             // makes names durable
	free(dir string) (int64, error)       // bytes that can still be written below dir
	lock(name string) (io.Closer, error)  // exclusive, until closed or the process ends
}

// diskFile is an open file.
type diskFile interface {
	io.Reader
	io.WriterAt
	io.Closer
	size() (int64, error)
	sync() error                 // makes contents and size durable
	allocate(off, n int64) error // sets blocks aside; the size stays
	truncate(size int64) error   // also gives back blocks set aside beyond size
	orphan() bool                // no name leads to the file any more
}

// osDisk is the real file system.
type osDisk struct{}

// osFile is an open file of it.
type osFile struct{ *os.File }

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
	return d.syncDir(parent)
}

func (osDisk) open(name string) (diskFile, error) { return osOpen(name, os.O_RDONLY) }

func (osDisk) edit(name string) (diskFile, error) { return osOpen(name, os.O_RDWR) }

func (osDisk) create(name string) (diskFile, error) {
	return osOpen(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func osOpen(name string, flag int) (diskFile, error) {
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osDisk) rename(from, to string) error { return os.Rename(from, to) }

func (osDisk) remove(name string) error { return os.Remove(name) }

func (osDisk) syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	// Some network and user-space file systems have no sync for directories.
	if err := f.Sync(); !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

func (f osFile) size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) truncate(size int64) error { return f.Truncate(size) }

// call runs a system call on the file, again when a signal interrupted it.
func (f osFile) call(op string, do func(fd int) error) error {
	for {
		err := do(int(f.Fd()))
		switch err {
		case nil:
			return nil
		case syscall.EINTR:
		default:
			return &fs.PathError{Op: op, Path: f.Name(), Err: err}
		}
	}
}
