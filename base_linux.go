package main

// The system calls of Linux that the program needs beyond package os.

import (
	"os"
	"syscall"
)

// syncData makes the contents and the size of a file durable.
func syncData(f *os.File) error { return fileCall(f, "fdatasync", syscall.Fdatasync) }

// reserveBlocks sets disk blocks aside for part of a file; its size stays.
func reserveBlocks(f *os.File, off, n int64) error {
	const keepSize = 1 // FALLOC_FL_KEEP_SIZE
	return fileCall(f, "fallocate", func(fd int) error { return syscall.Fallocate(fd, keepSize, off, n) })
}

// limitUnsent limits what the system holds of a connection's output beyond what is on
// its way, also for connections that a listener accepts: else it holds megabytes for a
// reader that takes nothing, and a slow one seems to stand still meanwhile.
func limitUnsent(conn syscall.RawConn, n int) error {
	const notSentLowWater = 25 // TCP_NOTSENT_LOWAT
	return conn.Control(func(fd uintptr) {
		syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, notSentLowWater, n)
	})
}

// isUnlinked reports whether no name leads to a file any more.
func isUnlinked(f *os.File) bool {
	var s syscall.Stat_t
	err := fileCall(f, "fstat", func(fd int) error { return syscall.Fstat(fd, &s) })
	return err == nil && s.Nlink == 0
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
