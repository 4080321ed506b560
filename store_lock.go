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
	"time"
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

// storePlace is where a store was opened: its directory and its lock. If another directory has
// the name, or the lock is not the file that this process holds, another process may use the
// store, or nobody will ever find what is written.
type storePlace struct {
	disk diskFS
	dir  string
	log  *slog.Logger
	lock dirLock // from take until the journal is closed; needs no other lock

	// Owned by the holder of the write turn:
	dirID, lockID fileID
	changed       time.Time // of the directory, when all was in its place; zero if unknown, or just before
}

// note notes the place of a store that was just opened.
func (p *storePlace) note() {
	p.dirID, _, _ = p.disk.identify(p.dir) // a disk in memory has neither
	p.lockID, _, _ = p.disk.identify(filepath.Join(p.dir, lockName))
	p.lock.noteDir(p.dirID)
}

// misplaced is the error of a store that is not where it was opened any more.
type misplaced struct{ reason string }

func (e *misplaced) Error() string { return e.reason }

// placeRecheck is how often a store looks at all names. It is longer than the steps of the times that
// file systems note.
const placeRecheck = time.Second

// checkPlace fails the journal if the store is not where it was opened. The holder of the write turn
// calls it before it reports a record as durable.
func (j *journal) checkPlace(all bool) error {
	if broken, _ := j.groups.ended(); broken != nil {
		return broken
	}
	if err := j.place.check(j.newest.file, all); err != nil {
		return j.fail(err)
	}
	return nil
}

// check returns an error if the store with a journal is not where it was opened. A directory that was
// not changed has the same files, which are then looked at only if all is set: after a stat of the
// journal, Linux notes the exact time of its next write, and the next sync has to write that, too.
func (p *storePlace) check(journal diskFile, all bool) error {
	dir, changed, err := p.disk.identify(p.dir)
	if !all && err == nil && dir == p.dirID && !changed.IsZero() && changed.Equal(p.changed) {
		return nil
	}
	file, err := journal.id()
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path    string
		want    fileID
		missing string
		other   string
	}{
		{p.dir, p.dirID, directoryRemoved, "the data directory was replaced by another one"},
		{filepath.Join(p.dir, lockName), p.lockID, "the file lock was removed from the data directory, so that another process " +
			"could use it", "another process has used the data directory: its file lock is not this process's"},
		{filepath.Join(p.dir, journalName), file, journalName + " was removed", journalName + " was replaced by another file"},
	} {
		got, _, err := p.disk.identify(f.path)
		switch {
		case f.want == fileID{} || err == nil && got == f.want:
		case errors.Is(err, fs.ErrNotExist):
			return &misplaced{f.missing}
		case err != nil:
			return err
		default:
			return &misplaced{f.other}
		}
	}
	// A directory that changed just now may change again without a new time, so it is looked at
	// again next time.
	p.changed = time.Time{}
	if time.Since(changed) > placeRecheck {
		p.changed = changed
	}
	return nil
}

// stillInPlace fails the journal if the store is not where it was opened. It is called before a name is made to lead to
// another file.
func (j *journal) stillInPlace() error {
	return j.ask(func() error { return j.checkPlace(true) })
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
