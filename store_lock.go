package main

// The lock of a data directory: flock on a file. The file holds the pid of the process that has the lock. The lock ends
// with its process; the file stays.

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
)

const lockName = "lock"

// storeLock is a lock that is held.
type storeLock struct{ file, dir *os.File }

func (d osDisk) lock(name string) (dirLock, error) {
	f, err := openRegular(name, os.O_RDWR|os.O_CREATE|noFollow)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkOwn("open", name, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	if err = lockFile(f); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, lockHeld(filepath.Dir(name), f)
		}
		return nil, err
	}
	now, err := os.Stat(name)
	if err != nil || !os.SameFile(now, info) { // removed by somebody since it was opened
		f.Close()
		return d.lock(name)
	}
	if err = checkLockText(f); err != nil {
		f.Close()
		return nil, err
	}
	dir, err := openDir(filepath.Dir(name))
	if err != nil {
		f.Close()
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
