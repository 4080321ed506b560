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

// awaitExit cannot wait without freeing the child's number; it reports false.
func awaitExit(int) bool { return false }

// reapOrphans has nothing to wait for.
func reapOrphans(int) {}

// shownFigures knows no figures.
func shownFigures() processFigures {
	return processFigures{files: -1, resident: -1}
}

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
