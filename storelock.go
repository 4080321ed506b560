package main

// The lock of a data directory: flock on a file that holds the pid of whoever
// has it. The lock dies with its process; the file stays.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const lockName = "lock"

// storeLock is a lock that is held.
type storeLock struct{ file *os.File }

func (osDisk) lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = osFile{f}.call("flock", func(fd int) error {
		return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
	})
	if err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, lockHeld(filepath.Dir(name), lockHolder(f))
		}
		return nil, err
	}
	writePID(f)
	return &storeLock{f}, nil
}

// Close gives the lock up, and the pid with it.
func (l *storeLock) Close() error {
	l.file.Truncate(0)
	return l.file.Close()
}

// writePID is for the error message of the next one only: a full disk must not
// keep a store from being opened, so errors do not matter.
func writePID(f *os.File) {
	f.Truncate(0)
	f.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
}

func lockHeld(dir string, pid int) error {
	if pid == 0 {
		return fmt.Errorf("data directory %s is in use by another process", dir)
	}
	return fmt.Errorf("data directory %s is in use by process %d", dir, pid)
}

// lockHolder is the pid that a lock file names; 0 when it names none.
func lockHolder(f io.Reader) int {
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}
