//go:build unix && !linux

package main

// The functions of base_linux.go for other Unix systems, by weaker means or none.

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// syncData makes the contents and the size of a file durable.
func syncData(f *os.File) error { return f.Sync() }

// reserveBlocks is not supported: callers look at the free space instead.
func reserveBlocks(*os.File, int64, int64) error { return errors.ErrUnsupported }

// limitUnsent is not supported.
func limitUnsent(syscall.RawConn, int) error { return nil }

// awaitExit cannot wait without freeing the child's number; it reports false.
func awaitExit(int) bool { return false }

// reapOrphans has nothing to wait for.
func reapOrphans(int) {}

// adoptOrphans is not supported: orphans fall to the first process of the system.
func adoptOrphans(chan<- os.Signal) bool { return false }

// processInfo describes a process.
type processInfo struct {
	zombie bool
	born   uint64
}

// shownFigures knows no figures.
func shownFigures() processFigures {
	return processFigures{files: -1, virtual: -1, resident: -1, started: -1, received: -1, sent: -1}
}

// lookUpProcess finds no process.
func lookUpProcess(int) (p processInfo, ok bool) { return p, false }

// orphans finds none.
func orphans() []int { return nil }

// killTree kills the process alone.
func killTree(pid, _ int) { syscall.Kill(pid, syscall.SIGKILL) }

// reap has nothing to free.
func reap(int) {}

// machineMemory returns how much memory the machine has, in bytes; 0 if that is unknown.
func machineMemory() int64 {
	for _, name := range []string{"hw.memsize", "hw.physmem64", "hw.physmem"} {
		if raw, err := syscall.Sysctl(name); err == nil {
			b := append([]byte(raw), make([]byte, 8)...) // Sysctl takes the number for a text, and cuts its last byte
			return int64(binary.LittleEndian.Uint64(b))
		}
	}
	return 0
}

// cgroupMemory finds no limit: control groups exist on Linux alone.
func cgroupMemory(fs.FS) int64 { return 0 }
