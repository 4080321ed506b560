package main

// Files. A name can lead to a pipe, whose opening never ends, to a device, or through a
// link to a file of somebody else.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// fileID tells a file from all others that exist at the same time.
type fileID struct{ device, inode uint64 }

// openRegular opens a regular file, which it may create with mode 0600. It follows
// links unless the flags have noFollow.
func openRegular(name string, flag int) (*os.File, error) {
	look := os.Stat
	if flag&noFollow != 0 {
		look = os.Lstat
	}
	// Before it is opened, since opening a device can already have an effect.
	if info, err := look(name); err == nil && !info.Mode().IsRegular() {
		return nil, irregular("open", name, info)
	}
	f, err := openNow(name, flag)
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
	return renameFile(from, to)
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

// withoutPath returns what an error says without the path of its file, for messages that name the file or must not.
func withoutPath(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func irregular(op, name string, info fs.FileInfo) error {
	reason := "not a regular file"
	if info.Mode()&fs.ModeSymlink != 0 {
		reason = "a symbolic link, not a regular file"
	}
	return &fs.PathError{Op: op, Path: name, Err: errors.New(reason)}
}
