//go:build !linux

package main

// The functions of base_linux.go for other Unix systems, by weaker means or none.

import (
	"errors"
	"os"
	"syscall"
)

// syncData makes the contents and the size of a file durable.
func syncData(f *os.File) error { return f.Sync() }

// reserveBlocks is not supported: callers look at the free space instead.
func reserveBlocks(*os.File, int64, int64) error { return errors.ErrUnsupported }

// limitUnsent is not supported.
func limitUnsent(syscall.RawConn, int) error { return nil }

// isUnlinked cannot tell, and reports false.
func isUnlinked(*os.File) bool { return false }

// awaitExit cannot wait without freeing the child's number; it reports false.
func awaitExit(int) bool { return false }

// reapOrphans has nothing to wait for.
func reapOrphans(int) {}
