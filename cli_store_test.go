package main

import (
	"fmt"
	"os"
	"path/filepath"
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
