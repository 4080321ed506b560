//go:build unix

package main

// What tests do by system calls of Unix.

import (
	"os"
	"os/exec"
	"syscall"
)

// makePipe makes a pipe with a name.
func makePipe(name string) error { return syscall.Mkfifo(name, 0o600) }

// makeDevice makes a device like /dev/null.
func makeDevice(name string) error { return syscall.Mknod(name, syscall.S_IFCHR|0o600, 1<<8|3) }

// copyDescriptor copies an open file as fork does. It returns what closes the copy.
func copyDescriptor(f *os.File) (release func(), err error) {
	fd, err := syscall.Dup(int(f.Fd()))
	return func() { syscall.Close(fd) }, err
}

// endBySignal sends a signal to this process.
func endBySignal(n int) { syscall.Kill(os.Getpid(), syscall.Signal(n)) }

// leaveSession has a program start in a session of its own.
func leaveSession(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// isGone reports whether no process has a number.
func isGone(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }
