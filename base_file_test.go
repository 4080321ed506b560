package main

import (
	"os"
	"path/filepath"
	"stepwell/e2e/wire"
	"strings"
	"testing"
)

// irregularFiles makes files that a name may lead to instead of a regular one.
var irregularFiles = map[string]func(name, elsewhere string) error{
	"a link":          func(name, elsewhere string) error { return os.Symlink(elsewhere, name) },
	"a dangling link": func(name, elsewhere string) error { return os.Symlink(elsewhere+"x", name) },
	"a directory":     func(name, _ string) error { return os.Mkdir(name, 0o700) },
	"a pipe":          func(name, _ string) error { return makePipe(name) },
	"a device":        func(name, _ string) error { return makeDevice(name) },
}

// eachIrregularFile calls do with each kind of irregular file at a name. do must refuse it with an error that
// has the name, and leave it and what a link leads to as they are.
func eachIrregularFile(t *testing.T, name string, do func(t *testing.T, path string) error) {
	t.Helper()
	for kind, create := range irregularFiles {
		t.Run(name+" is "+kind, func(t *testing.T) {
			path, elsewhere := filepath.Join(t.TempDir(), name), filepath.Join(t.TempDir(), "elsewhere")
			writeFile(t, elsewhere, []byte("precious"))
			if err := create(path, elsewhere); err != nil {
				wire.Skip(t, "%v", err)
			}
			before := must(os.Lstat(path))(t)
			if err := do(t, path); err == nil || !strings.Contains(err.Error(), path) ||
				!strings.Contains(err.Error(), "not a regular file") {
				t.Errorf("got %v; want a refusal that names %s", err, path)
			}
			if now := must(os.Lstat(path))(t); !os.SameFile(before, now) || now.Mode() != before.Mode() {
				t.Errorf("it became %v; want %v", now.Mode(), before.Mode())
			}
			if got := string(readFile(t, elsewhere)); got != "precious" {
				t.Errorf("what the link leads to became %q", got)
			}
			_, err := os.Lstat(elsewhere + "x")
			if err == nil {
				t.Error("what the dangling link leads to was created")
			}
		})
	}
}

func TestOnlyRegularFiles(t *testing.T) {
	eachIrregularFile(t, "opened", func(_ *testing.T, path string) error {
		_, err := openRegular(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|noFollow)
		return err
	})
	eachIrregularFile(t, "removed", func(_ *testing.T, path string) error { return removeRegular(path) })
	eachIrregularFile(t, "replaced", func(t *testing.T, path string) error {
		from := filepath.Join(t.TempDir(), "new")
		writeFile(t, from, nil)
		return renameRegular(from, path)
	})
}
