package main

import (
	"syscall"
	"time"
)

const errSharingViolation = syscall.Errno(32) // ERROR_SHARING_VIOLATION

// lock waits until no other process has a file open, and keeps others from opening it. It also ends with this process.
func lock(file string) (unlock func() error, err error) {
	name, err := syscall.UTF16PtrFromString(file)
	if err != nil {
		return nil, err
	}
	for {
		h, err := syscall.CreateFile(name, syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
		if err == nil {
			return func() error { return syscall.CloseHandle(h) }, nil
		}
		if err != errSharingViolation {
			return nil, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
