//go:build unix

package main

// The system calls of every Unix system that the program needs beyond package os.

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"syscall"
	"unsafe"
)

// The errors of connections and listeners.
const (
	errAddressInUse      = syscall.EADDRINUSE
	errConnectionRefused = syscall.ECONNREFUSED
	errConnectionReset   = syscall.ECONNRESET
)

// errsUnreachable are the errors of a connection to where nobody listens.
var errsUnreachable = []error{
	errConnectionRefused, errConnectionReset, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN,
	syscall.ETIMEDOUT,
}

// noFollow is the flag of openNow for a file that must not be a link.
const noFollow = syscall.O_NOFOLLOW

// openNow opens a file, and does not wait for the other end of a pipe.
func openNow(name string, flag int) (*os.File, error) {
	return os.OpenFile(name, flag|syscall.O_NONBLOCK, 0o600)
}

// renameFile renames a file, which may replace another one.
func renameFile(from, to string) error { return os.Rename(from, to) }

// openDir opens a directory for syncNames.
func openDir(name string) (*os.File, error) { return os.Open(name) }

// syncNames makes the names in an open directory durable. Some network and user-space file systems cannot.
func syncNames(dir *os.File) error {
	if err := dir.Sync(); !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// ownerOf returns the user that a file belongs to.
func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// replacesOpen reports whether a name can always be given to another file while its file is open.
const replacesOpen = true

// identifyName returns which file or directory has a name.
func identifyName(name string) (fileID, error) {
	info, err := os.Stat(name)
	if err != nil {
		return fileID{}, err
	}
	s := info.Sys().(*syscall.Stat_t)
	return fileID{uint64(s.Dev), uint64(s.Ino)}, nil
}

// freeSpace returns how many bytes can be written below a directory.
func freeSpace(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, os.NewSyscallError("statfs", err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}

// lockFile takes the lock of a file, until unlockFile or the end of the process; EWOULDBLOCK if another process has it.
func lockFile(f *os.File) error {
	return fileCall(f, "flock", func(fd int) error { return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) })
}

func unlockFile(f *os.File) {
	fileCall(f, "flock", func(fd int) error { return syscall.Flock(fd, syscall.LOCK_UN) })
}

// fileCall makes a system call on a file, and repeats it when a signal interrupts it.
func fileCall(f *os.File, op string, do func(fd int) error) error {
	for {
		err := do(int(f.Fd()))
		switch err {
		case nil:
			return nil
		case syscall.EINTR:
		default:
			return &fs.PathError{Op: op, Path: f.Name(), Err: err}
		}
	}
}

// peekSocket looks at the unread input of a socket. If there is none and the peer has not closed the connection either,
// quiet is true. Otherwise n is the number of bytes, at most len(b).
func peekSocket(fd uintptr, b []byte) (n int, quiet bool) {
	n, _, err := syscall.Recvfrom(int(fd), b, syscall.MSG_PEEK)
	return n, err == syscall.EAGAIN // package net's sockets do not block
}

// readAtOnce reads what a pipe holds at the moment.
func readAtOnce(f *os.File, b []byte) (n int) {
	if raw, err := f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { n, _ = syscall.Read(int(fd), b) }) // a pipe does not block
	}
	return n
}

// windowColumns returns the columns of a terminal; 0 if it is none.
func windowColumns(f *os.File) int {
	var size struct{ rows, columns, x, y uint16 }
	syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGWINSZ, uintptr(unsafe.Pointer(&size)))
	return int(size.columns)
}

// showsColours reports whether a terminal understands escape sequences, as all do.
func showsColours(*os.File) bool { return true }

// processGroup is a program and everything that it starts, except what leaves its process group. Its value is the
// process id of the program, which is also the id of the group.
type processGroup int

// startGroup starts a program as the leader of a group.
func startGroup(cmd *exec.Cmd) (processGroup, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err := cmd.Start()
	if err != nil {
		return 0, err
	}
	return processGroup(cmd.Process.Pid), nil
}

func (g processGroup) kill() error { return syscall.Kill(-int(g), syscall.SIGKILL) }

// release frees what the system holds for a group that was killed.
func (g processGroup) release() { reapOrphans(int(g)) }

// killedStatus is the exit status of a program that was killed otherwise than by a signal. There is none such on Unix.
const killedStatus = -1

// programVariables are the variables of the environment that every program gets besides PATH.
var programVariables = []string{"HOME", "LANG", "TZ"}

// executable returns the path of a program, which must be executable.
func executable(path string) (string, error) {
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0) {
		err = &fs.PathError{Op: "execute", Path: path, Err: fs.ErrPermission}
	}
	return path, err
}

// processFigures are what the system tells about this process; negative where it does not.
type processFigures struct{ files, mostFiles, resident, cpu float64 }

// ownProcess returns the figures of this process. Few of them are known while no file descriptor is left to read /proc.
func ownProcess() processFigures {
	p := shownFigures()
	var used syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	p.cpu = float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
	p.mostFiles = float64(mostFiles())
	return p
}

// mostFiles returns how many files this process may have open.
func mostFiles() uint64 {
	var files syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) != nil {
		return math.MaxInt64
	}
	return uint64(files.Cur)
}

// isDiskFull reports whether an error says that no space is left, on the disk or of the user's quota.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
