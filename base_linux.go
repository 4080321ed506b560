package main

// The system calls of Linux that the program needs beyond package os.

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// syncData makes the contents and the size of a file durable.
func syncData(f *os.File) error { return fileCall(f, "fdatasync", syscall.Fdatasync) }

// reserveBlocks sets disk blocks aside for part of a file; its size stays.
func reserveBlocks(f *os.File, off, n int64) error {
	// A start must not find zeros at the end of a journal only because blocks were set aside.
	const keepSize = 1 // FALLOC_FL_KEEP_SIZE
	return fileCall(f, "fallocate", func(fd int) error { return syscall.Fallocate(fd, keepSize, off, n) })
}

// awaitExit returns once a child has ended, and reports whether the child is still
// a zombie: then no other process can get its number or its group's.
func awaitExit(pid int) bool {
	const idIsPID = 1 // P_PID
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idIsPID, uintptr(pid), 0,
			syscall.WEXITED|syscall.WNOWAIT, 0, 0)
		if errno != syscall.EINTR {
			return true
		}
	}
}

// reapOrphans waits for the killed members of a process group that became our
// children when their parent died, as happens to the first process of a container.
func reapOrphans(pgid int) {
	for {
		_, err := syscall.Wait4(-pgid, nil, 0, nil)
		if err != nil && err != syscall.EINTR {
			return
		}
	}
}

// shownFigures returns the figures of this process that /proc shows.
func shownFigures() processFigures {
	p := processFigures{files: openedFiles(), resident: -1}
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		var virtual float64
		fmt.Sscan(string(text), &virtual, &p.resident)
		p.resident *= float64(os.Getpagesize())
	}
	return p
}

// openedFiles returns how many files the process has open; -1 if that is unknown.
func openedFiles() float64 {
	if d, err := os.Stat("/proc/self/fd"); err == nil && d.Size() > 0 { // from Linux 6.2 on
		return float64(d.Size())
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	return float64(len(open) - 1) // without that of the directory
}

// machineMemory returns how much memory the machine has, in bytes; 0 if that is unknown.
func machineMemory() int64 {
	var s syscall.Sysinfo_t
	if syscall.Sysinfo(&s) != nil {
		return 0
	}
	return int64(s.Totalram) * int64(s.Unit)
}

// cgroupMemory returns how much memory the process's control group and those above it allow, in bytes; 0 without a
// limit. root has /proc and /sys, where cgroups of both versions are usually mounted.
func cgroupMemory(root fs.FS) (least int64) {
	text, _ := fs.ReadFile(root, "proc/self/cgroup") // without it there is no limit
	for line := range strings.Lines(string(text)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(part) < 3:
		case part[1] == "":
			least = leastLimit(root, least, "sys/fs/cgroup", part[2], "memory.max")
		case slices.Contains(strings.Split(part[1], ","), "memory"):
			least = leastLimit(root, least, "sys/fs/cgroup/memory", part[2], "memory.limit_in_bytes")
		}
	}
	return least
}

// noCgroupLimit is less than what a cgroup of version 1 without a limit says.
const noCgroupLimit = 1 << 62

// leastLimit returns the least limit of a group and those above it. Within a container
// the group may have no directory: then that of the container is the mount point.
func leastLimit(root fs.FS, least int64, mount, group, file string) int64 {
	for dir := path.Join(mount, group); len(dir) >= len(mount); dir = path.Dir(dir) {
		text, _ := fs.ReadFile(root, path.Join(dir, file))
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && n > 0 && n < noCgroupLimit && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}
