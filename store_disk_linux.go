package main

// The file operations that are Linux's own.

import (
	"os"
	"syscall"
)

const fallocKeepSize = 1 // FALLOC_FL_KEEP_SIZE

func (f osFile) sync() error { return f.call("fdatasync", syscall.Fdatasync) }

func (f osFile) allocate(off, n int64) error {
	return f.call("fallocate", func(fd int) error {
		return syscall.Fallocate(fd, fallocKeepSize, off, n)
	})
}

func (f osFile) orphan() bool {
	var s syscall.Stat_t
	return f.call("fstat", func(fd int) error { return syscall.Fstat(fd, &s) }) == nil && s.Nlink == 0
}

func (osDisk) free(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, os.NewSyscallError("statfs", err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
