package main

// The functions of base_linux.go and base_unix.go for Windows, by weaker means or none.

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"unsafe"
)

var (
	kernel32 = syscall.NewLazyDLL("kernel32.dll")
	ntdll    = syscall.NewLazyDLL("ntdll.dll")
	ws2      = syscall.NewLazyDLL("ws2_32.dll")

	lockFileEx             = kernel32.NewProc("LockFileEx")
	unlockFileEx           = kernel32.NewProc("UnlockFileEx")
	getDiskFreeSpace       = kernel32.NewProc("GetDiskFreeSpaceExW")
	globalMemoryStatus     = kernel32.NewProc("GlobalMemoryStatusEx")
	getConsoleScreenBuffer = kernel32.NewProc("GetConsoleScreenBufferInfo")
	setConsoleMode         = kernel32.NewProc("SetConsoleMode")
	createJobObject        = kernel32.NewProc("CreateJobObjectW")
	setJobInformation      = kernel32.NewProc("SetInformationJobObject")
	assignProcessToJob     = kernel32.NewProc("AssignProcessToJobObject")
	terminateJobObject     = kernel32.NewProc("TerminateJobObject")
	processHandles         = kernel32.NewProc("GetProcessHandleCount")
	processMemory          = kernel32.NewProc("K32GetProcessMemoryInfo")
	resumeProcess          = ntdll.NewProc("NtResumeProcess")
	pollSockets            = ws2.NewProc("WSAPoll")
	controlSocket          = ws2.NewProc("ioctlsocket")
)

// called makes an error of a system call that returned 0.
func called(name string, result uintptr, err error) error {
	if result != 0 {
		return nil
	}
	return os.NewSyscallError(name, err)
}

// The errors of connections and listeners.
const (
	errAddressInUse      = syscall.Errno(10048) // WSAEADDRINUSE
	errConnectionRefused = syscall.Errno(10061) // WSAECONNREFUSED
	errConnectionReset   = syscall.WSAECONNRESET
)

// errsUnreachable are the errors of a connection to where nobody listens.
var errsUnreachable = []error{
	errConnectionRefused, errConnectionReset,
	syscall.Errno(10065), syscall.Errno(10051), // WSAEHOSTUNREACH, WSAENETUNREACH
	syscall.Errno(10064), syscall.Errno(10050), // WSAEHOSTDOWN, WSAENETDOWN
	syscall.Errno(10060), // WSAETIMEDOUT
}

// noFollow is the flag of openNow for a file that must not be a link.
const noFollow = syscall.FILE_FLAG_OPEN_REPARSE_POINT

// openNow opens a file. Unlike os.OpenFile, it allows others to rename or remove the file while it is open.
func openNow(name string, flag int) (*os.File, error) {
	access, create := uint32(syscall.GENERIC_READ), uint32(syscall.OPEN_EXISTING)
	if flag&os.O_RDWR != 0 {
		access |= syscall.GENERIC_WRITE
	}
	if flag&os.O_CREATE != 0 {
		create = syscall.OPEN_ALWAYS
	}
	f, err := openHandle(name, access, syscall.FILE_SHARE_DELETE, create, uint32(flag&noFollow))
	if err == nil && flag&os.O_TRUNC != 0 {
		if err = f.Truncate(0); err != nil {
			f.Close()
		}
	}
	return f, err
}

func openHandle(name string, access, share, create, attributes uint32) (*os.File, error) {
	path, err := syscall.UTF16PtrFromString(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	h, err := syscall.CreateFile(path, access, share|syscall.FILE_SHARE_READ|syscall.FILE_SHARE_WRITE, nil, create,
		attributes|syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(h), name), nil
}

// renameFile renames a file, which may replace another one, also one that is open. Both are in the same directory.
func renameFile(from, to string) error {
	dir, err := os.OpenRoot(filepath.Dir(from)) // its Rename asks for POSIX semantics, unlike os.Rename
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Rename(filepath.Base(from), filepath.Base(to))
}

// openDir opens a directory for syncNames. While it is open, nobody can rename it.
func openDir(name string) (*os.File, error) {
	f, err := openHandle(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, syscall.OPEN_EXISTING,
		syscall.FILE_FLAG_BACKUP_SEMANTICS)
	if errors.Is(err, fs.ErrPermission) { // where others can make directories, but no files
		return os.Open(name)
	}
	return f, err
}

// syncNames makes the names in an open directory durable where the file system can: NTFS writes its log.
func syncNames(dir *os.File) error {
	// The error is ignored: FAT and network shares cannot do it, and nothing better exists for them.
	dir.Sync()
	return nil
}

// replacesOpen reports whether a name can always be given to another file while its file is open: not on FAT, on some
// shares, and in Wine.
const replacesOpen = false

// ownerOf knows no users: access control lists say who may do what.
func ownerOf(fs.FileInfo) int { return os.Geteuid() }

// identifyName returns which file or directory has a name.
func identifyName(name string) (fileID, error) {
	f, err := openHandle(name, 0, syscall.FILE_SHARE_DELETE, syscall.OPEN_EXISTING, syscall.FILE_FLAG_BACKUP_SEMANTICS)
	if err != nil {
		return fileID{}, err
	}
	defer f.Close()
	return identifyFile(f)
}

// identifyFile is identifyName for an open file.
func identifyFile(f *os.File) (id fileID, err error) {
	var info syscall.ByHandleFileInformation
	if err := syscall.GetFileInformationByHandle(syscall.Handle(f.Fd()), &info); err != nil {
		return id, &fs.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	id.inode = uint64(info.FileIndexHigh)<<32 | uint64(info.FileIndexLow)
	if info.FileAttributes&syscall.FILE_ATTRIBUTE_DIRECTORY != 0 { // Wine forgets the volume of a file that was renamed
		id.device = uint64(info.VolumeSerialNumber)
	}
	return id, nil
}

// freeSpace returns how many bytes can be written below a directory.
func freeSpace(dir string) (free int64, err error) {
	path, err := syscall.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	ok, _, err := getDiskFreeSpace.Call(uintptr(unsafe.Pointer(path)), uintptr(unsafe.Pointer(&free)), 0, 0)
	return free, called("GetDiskFreeSpaceEx", ok, err)
}

// lockedByte is the byte of a file that is locked. It lies far behind the contents, because Windows lets nobody else
// read what is locked.
var lockedByte = syscall.Overlapped{OffsetHigh: 1 << 30}

// lockFile takes the lock of a file, until unlockFile or the end of the process; EWOULDBLOCK if another process has it.
func lockFile(f *os.File) error {
	const failImmediately, exclusive, lockViolation = 1, 2, syscall.Errno(33)
	at := lockedByte
	ok, _, err := lockFileEx.Call(f.Fd(), exclusive|failImmediately, 0, 1, 0, uintptr(unsafe.Pointer(&at)))
	if ok == 0 && err == lockViolation {
		err = syscall.EWOULDBLOCK
	}
	return called("LockFileEx", ok, err)
}

func unlockFile(f *os.File) {
	at := lockedByte
	unlockFileEx.Call(f.Fd(), 0, 1, 0, uintptr(unsafe.Pointer(&at)))
}

// syncData makes the contents and the size of a file durable.
func syncData(f *os.File) error { return f.Sync() }

// reserveBlocks is not supported: callers look at the free space instead.
func reserveBlocks(*os.File, int64, int64) error { return errors.ErrUnsupported }

// peekSocket looks for unread input of a socket. If there is none and the peer has not closed the connection either,
// quiet is true. Otherwise n is the number of bytes.
func peekSocket(fd uintptr, _ []byte) (n int, quiet bool) {
	const readable, countReadable = 0x100, 0x4004667f // POLLRDNORM, FIONREAD
	poll := struct {
		fd             uintptr
		events, result int16
	}{fd: fd, events: readable}
	if some, _, _ := pollSockets.Call(uintptr(unsafe.Pointer(&poll)), 1, 0); some == 0 {
		return 0, true
	}
	var count uint32
	controlSocket.Call(fd, countReadable, uintptr(unsafe.Pointer(&count)))
	return int(count), false
}

// readAtOnce reads nothing: a pipe has no deadline, so that all was read.
func readAtOnce(*os.File, []byte) int { return 0 }

// windowColumns returns the columns of a terminal; 0 if it is none.
func windowColumns(f *os.File) int {
	var info struct {
		size, cursor             [2]int16
		attributes               uint16
		left, top, right, bottom int16
		most                     [2]int16
	}
	if ok, _, _ := getConsoleScreenBuffer.Call(f.Fd(), uintptr(unsafe.Pointer(&info))); ok == 0 {
		return 0
	}
	return int(info.right-info.left) + 1
}

// showsColours makes a console understand escape sequences, and reports whether that worked.
func showsColours(f *os.File) bool {
	const virtualTerminal = 4 // ENABLE_VIRTUAL_TERMINAL_PROCESSING
	var mode uint32
	if syscall.GetConsoleMode(syscall.Handle(f.Fd()), &mode) != nil {
		return false
	}
	ok, _, _ := setConsoleMode.Call(f.Fd(), uintptr(mode|virtualTerminal))
	return ok != 0
}

// processGroup is a program and all that it starts: a job, which ends with this process.
type processGroup syscall.Handle

// startGroup starts a program as the first one of a group. It is held until it is in the group, so that it starts
// nothing outside.
func startGroup(cmd *exec.Cmd) (processGroup, error) {
	const suspended, extendedLimits, killOnClose = 4, 9, 0x2000
	job, _, err := createJobObject.Call(0, 0)
	if job == 0 {
		return 0, os.NewSyscallError("CreateJobObject", err)
	}
	g := processGroup(job)
	var limits struct { // JOBOBJECT_EXTENDED_LIMIT_INFORMATION
		_     [2]int64
		flags uint32
		_     [15]uint64
	}
	limits.flags = killOnClose
	ok, _, err := setJobInformation.Call(job, extendedLimits, uintptr(unsafe.Pointer(&limits)), unsafe.Sizeof(limits))
	if err = called("SetInformationJobObject", ok, err); err != nil {
		g.release()
		return 0, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: suspended | syscall.CREATE_NEW_PROCESS_GROUP}
	if err = cmd.Start(); err != nil {
		g.release()
		return 0, err
	}
	cmd.Process.WithHandle(func(program uintptr) {
		if ok, _, err = assignProcessToJob.Call(job, program); ok != 0 {
			resumeProcess.Call(program)
		}
	})
	if err = called("AssignProcessToJobObject", ok, err); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		g.release()
		return 0, err
	}
	return g, nil
}

func (g processGroup) kill() error {
	ok, _, err := terminateJobObject.Call(uintptr(g), killedStatus)
	return called("TerminateJobObject", ok, err)
}

// release frees what the system holds for a group, and ends it.
func (g processGroup) release() { syscall.CloseHandle(syscall.Handle(g)) }

// killedStatus is the exit status of killed programs, as of those that Ctrl+C ends.
const killedStatus = 0xC000013A

// awaitExit returns once a child has ended, and reports whether its number cannot be reused yet.
func awaitExit(pid int) bool {
	h, err := syscall.OpenProcess(syscall.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return false
	}
	defer syscall.CloseHandle(h)
	_, err = syscall.WaitForSingleObject(h, syscall.INFINITE)
	return err == nil // package os still has a handle
}

// programVariables are the variables of the environment that every program gets besides PATH. Package os/exec adds
// SYSTEMROOT.
var programVariables = []string{"COMSPEC", "HOME", "LANG", "LOCALAPPDATA", "PATHEXT", "TEMP", "TMP", "TZ", "USERPROFILE"}

// executable returns the path of a program, which may lack its extension.
func executable(path string) (string, error) { return exec.LookPath(path) }

// processFigures are what the system tells about this process; negative where it does not.
type processFigures struct{ files, mostFiles, resident, cpu float64 }

// ownProcess returns the figures of this process. Files are handles.
func ownProcess() processFigures {
	p := processFigures{-1, -1, -1, -1}
	self, _ := syscall.GetCurrentProcess() // no error
	var created, ended, system, user syscall.Filetime
	if syscall.GetProcessTimes(self, &created, &ended, &system, &user) == nil {
		ticks := func(t syscall.Filetime) float64 { return float64(uint64(t.HighDateTime)<<32 | uint64(t.LowDateTime)) } // of 100 ns
		p.cpu = (ticks(system) + ticks(user)) / 1e7
	}
	var handles uint32
	if ok, _, _ := processHandles.Call(uintptr(self), uintptr(unsafe.Pointer(&handles))); ok != 0 {
		p.files = float64(handles)
	}
	memory := struct { // PROCESS_MEMORY_COUNTERS
		size, faults uint32
		_, resident  uintptr
		_            [6]uintptr
	}{size: 72}
	if ok, _, _ := processMemory.Call(uintptr(self), uintptr(unsafe.Pointer(&memory)), uintptr(memory.size)); ok != 0 {
		p.resident = float64(memory.resident)
	}
	return p
}

// mostFiles returns how many files this process may have open: what only memory limits.
func mostFiles() uint64 { return 1 << 24 }

// machineMemory returns how much memory the machine has, in bytes; 0 if that is unknown.
func machineMemory() int64 {
	status := struct { // MEMORYSTATUSEX
		size, load uint32
		total      uint64
		_          [6]uint64
	}{size: 64}
	if ok, _, _ := globalMemoryStatus.Call(uintptr(unsafe.Pointer(&status))); ok == 0 {
		return 0
	}
	return int64(status.total)
}

// cgroupMemory finds no limit: control groups exist on Linux alone.
func cgroupMemory(fs.FS) int64 { return 0 }

// isDiskFull reports whether an error says that no space is left, on the disk or of the user's quota.
func isDiskFull(err error) bool {
	const handleDiskFull, diskFull, quotaExceeded = syscall.Errno(39), syscall.Errno(112), syscall.Errno(1295)
	return errors.Is(err, handleDiskFull) || errors.Is(err, diskFull) || errors.Is(err, quotaExceeded) || errors.Is(err, syscall.ENOSPC)
}
