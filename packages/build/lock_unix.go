//go:build unix

package main

import (
	"os"
	"syscall"
)

// lock waits for the lock on a file, which also ends with this process.
func lock(file string) (unlock func() error, err error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for err = syscall.EINTR; err == syscall.EINTR; {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	return f.Close, err
}
