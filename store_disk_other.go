//go:build !linux

package main

// The file operations of Unix systems other than Linux: no blocks are set
// aside, free space is looked at instead.

import (
	"errors"
	"os"
	"syscall"
)

func (f osFile) sync() error { return f.Sync() }

func (osFile) allocate(off, n int64) error { return errors.ErrUnsupported }

func (osFile) orphan() bool { return false }

func (osDisk) free(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, os.NewSyscallError("statfs", err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
