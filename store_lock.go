package main

// The lock of a data directory: flock on a file. The file holds the pid of the process that
// has the lock, and the device and inode of the directory, by which a start recognizes a
// copy of the directory. The lock ends with its process; the file stays.

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const lockName = "lock"

// storeLock is a lock that is held.
type storeLock struct {
	file, dir *os.File
	left      string // what the file holds afterwards: the directory that it noted, until noteDir
}

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
	if _, noted := readLock(io.NewSectionReader(f, 0, lockSize)); noted != "" {
		l.left = "\n" + noted + "\n"
	}
	l.write(fmt.Sprint(os.Getpid(), cmp.Or(l.left, "\n")))
	return l, nil
}

// lockStore locks a data directory for a program that does not open its store.
func lockStore(dir string) (io.Closer, error) { return osDisk{}.lock(filepath.Join(dir, lockName)) }

// noteDir records the directory of a store that was opened.
func (l *storeLock) noteDir(dir fileID) {
	l.left = ""
	l.write(fmt.Sprintf("%d\n%v\n", os.Getpid(), dir))
}

func (l *storeLock) syncDir() error { return syncNames(l.dir) }

// lockSyntax is the text of a lock: a pid or nothing, and the directory unless an earlier version wrote it; or zeros
// where a crash of the machine lost that.
var lockSyntax = compiled(`^(\d{0,10}(\n|\n\d{1,20}:\d{1,20}\n)?|\x00{1,53})$`)

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
	if pid, _ := readLock(io.NewSectionReader(l.file, 0, lockSize)); pid == os.Getpid() {
		l.write(l.left)
	}
	unlockFile(l.file)
	return l.file.Close()
}

// write writes the pid for the error message of the next process that tries, and the directory.
// It ignores errors: a full disk must not keep a store from being opened.
func (l *storeLock) write(text string) {
	l.file.Truncate(0)
	l.file.WriteAt([]byte(text), 0)
}

// storePlace is where a store was opened: its directory and its lock.
type storePlace struct {
	disk diskFS
	dir  string
	log  *slog.Logger
	lock dirLock // from take until the journal is closed; needs no other lock
}

// note notes the place of a store that was just opened.
func (p *storePlace) note() {
	dir, _ := p.disk.identify(p.dir) // a disk in memory has no such number
	p.lock.noteDir(dir)
}

func lockHeld(dir string, lock io.Reader) error {
	pid, _ := readLock(lock)
	if pid == 0 {
		return fmt.Errorf("data directory %s is in use by another process", dir)
	}
	return fmt.Errorf("data directory %s is in use by process %d", dir, pid)
}

// readLock returns the pid in a lock file, and the directory that it notes; 0 and "" for none.
func readLock(f io.Reader) (pid int, dir string) {
	text, _ := io.ReadAll(io.LimitReader(f, lockSize))
	first, rest, _ := strings.Cut(string(text), "\n")
	pid, _ = strconv.Atoi(strings.TrimSpace(first)) // 0 on error
	return pid, strings.TrimSuffix(rest, "\n")
}

// take makes the data directory if it is missing, and locks it.
func (p *storePlace) take() (err error) {
	if err := p.disk.makeDir(p.dir); err != nil {
		return fmt.Errorf("make data directory %s: %w", p.dir, err)
	}
	if p.lock, err = p.disk.lock(filepath.Join(p.dir, lockName)); err != nil {
		return fmt.Errorf("lock data directory %s: %w", p.dir, err)
	}
	if p.disk.writableByOthers(p.dir) {
		p.log.Warn("other users can write to the data directory, and so change or remove what is stored", "dir", p.dir)
	}
	return nil
}
