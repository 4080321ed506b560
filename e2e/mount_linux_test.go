package e2e

import (
	"fmt"
	"syscall"
)

// mountSmall mounts a file system of n bytes.
func mountSmall(dir string, n int) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", n))
}

func remountReadOnly(dir string) error {
	return syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
}

func unmount(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }
