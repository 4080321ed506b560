package main

// Files. A name can lead to a pipe, whose opening never ends, to a device, or through a
// link to a file of somebody else.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// openRegular opens a regular file, which it may create with mode 0600. It follows
// links unless the flags have O_NOFOLLOW.
func openRegular(name string, flag int) (*os.File, error) {
	look := os.Stat
	if flag&syscall.O_NOFOLLOW != 0 {
		look = os.Lstat
	}
	if info, err := look(name); err == nil && !info.Mode().IsRegular() {
		return nil, irregular("open", name, info)
	}
	f, err := os.OpenFile(name, flag|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat() // the name may lead to another file by now
	if err == nil && !info.Mode().IsRegular() {
		err = irregular("open", name, info)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// removeRegular removes a name, which must be that of a regular file.
func removeRegular(name string) error {
	if err := checkRegular("remove", name); err != nil {
		return err
	}
	return os.Remove(name)
}

// renameRegular renames a file. What it replaces must be a regular file.
func renameRegular(from, to string) error {
	if err := checkRegular("replace", to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(from, to)
}

// checkRegular returns an error unless a name is that of a regular file; a link is none.
func checkRegular(op, name string) error {
	info, err := os.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = irregular(op, name, info)
	}
	return err
}

// checkOwn returns an error unless a file belongs to the user of this process.
func checkOwn(op, name string, info fs.FileInfo) error {
	if ownerOf(info) == os.Geteuid() {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("it belongs to the user %d, and this process runs as %d",
		ownerOf(info), os.Geteuid())}
}

func ownerOf(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

func irregular(op, name string, info fs.FileInfo) error {
	reason := "not a regular file"
	if info.Mode()&fs.ModeSymlink != 0 {
		reason = "a symbolic link, not a regular file"
	}
	return &fs.PathError{Op: op, Path: name, Err: errors.New(reason)}
}

// fileCall makes a system call on a file, again when a signal interrupts it.
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
