package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadyFileAfterCrash starts after a crash that left the temporary file of the ready file
// behind. Process ids repeat, in containers always.
func TestReadyFileAfterCrash(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ready.json")
	writeFile(t, filepath.Join(filepath.Dir(path), fmt.Sprintf(".ready.json.%d", os.Getpid())), nil)
	write := func(f *os.File) error { _, err := f.WriteString("{}\n"); return err }
	noError(t, replaceFile(path, write))
	if got := string(readFile(t, path)); got != "{}\n" {
		t.Errorf("the file holds %q", got)
	}
}

// TestReadyFileIsRegular checks that nothing else is replaced or removed, at the start and at the end.
func TestReadyFileIsRegular(t *testing.T) {
	t.Parallel()
	eachIrregularFile(t, "ready", func(_ *testing.T, path string) error { return removeReadyFile(path) })
	eachIrregularFile(t, "announced", func(_ *testing.T, path string) error {
		return new(process).announce(readyReport{}, &serveArgs{readyFile: path})
	})
	eachIrregularFile(t, "dropped", func(t *testing.T, path string) error {
		dropReadyFile(path, os.Getpid())
		return removeReadyFile(path)
	})
	path := filepath.Join(t.TempDir(), "ready")
	writeFile(t, path, nil)
	if err := os.Chown(path, 4711, -1); err != nil {
		t.Skip(err)
	}
	if err := removeReadyFile(path); err == nil || !strings.Contains(err.Error(), "belongs to the user 4711") {
		t.Errorf("a file of another user: got %v; want a refusal", err)
	}
	readFile(t, path)
}

// TestExportToRegularFile checks that an export replaces nothing else.
func TestExportToRegularFile(t *testing.T) {
	t.Parallel()
	o := diskOptions(nil)
	o.dir, o.fs = t.TempDir(), osDisk{}
	j, _ := mustOpen(t, o)
	mustClose(t, j)
	eachIrregularFile(t, "state.json", func(t *testing.T, path string) error {
		p := &process{getenv: func(string) string { return "" }, now: realNow, stdout: io.Discard, stderr: io.Discard}
		err := p.run(t.Context(), []string{"store", "export", "--data", o.dir, path})
		assertNoTemporary(t, filepath.Dir(path))
		return err
	})
}

// assertNoTemporary fails the test if a directory has hidden files.
func assertNoTemporary(t *testing.T, dir string) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}
