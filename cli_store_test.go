package main

import (
	"fmt"
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

// TestDocumentsReplaceOnlyDocuments exports to names that are taken: by documents of Stepwell, by what is somebody's, by
// links and by pipes.
func TestDocumentsReplaceOnlyDocuments(t *testing.T) {
	s := newFixtureServer(t, serviceTest{templates: "templates/demo"})
	t.Chdir(t.TempDir())
	writeFile(t, "state.json", s.do("GET", "/_stepwell/state", "").want(200).body)
	if r := runCLI(nil, "", "store", "import", "--data", "kept", "state.json"); r.code != 0 {
		t.Fatal(r.stderr)
	}
	noError(t, os.Chmod("state.json", 0o644))
	writeFile(t, "empty", nil)
	writeFile(t, "notes.txt", []byte("milk, eggs"))
	writeFile(t, "other.json", []byte(`{"kind":1}`))
	noError(t, os.Symlink("notes.txt", "link"))
	noError(t, os.Mkdir("directory", 0o700))
	refused := map[string]string{"notes.txt": "it is not a document of Stepwell; --force replaces it", "other.json": "it is not a document of Stepwell",
		"link": "a symbolic link, not a regular file", "directory": "not a regular file"}
	if makePipe("pipe") == nil {
		refused["pipe"] = "not a regular file"
	}
	for name, want := range refused {
		for _, force := range []string{"--force=false", "--force"} {
			if _, file := map[string]bool{"notes.txt": true, "other.json": true}[name]; file && force == "--force" {
				continue
			}
			got := runCLI(nil, "", "store", "export", "--data", "kept", name, force)
			if got.code == 0 || !strings.Contains(got.stderr, want) {
				t.Errorf("%s %s: got %d, %s; want %q", name, force, got.code, got.stderr, want)
			}
		}
	}
	writeFile(t, "closed", []byte("milk, eggs"))
	noError(t, os.Chmod("closed", 0))
	if _, err := os.Open("closed"); err != nil { // unless this process may read everything
		got := runCLI(nil, "", "store", "export", "--data", "kept", "closed")
		if noError(t, os.Chmod("closed", 0o600)); got.code == 0 || string(readFile(t, "closed")) != "milk, eggs" {
			t.Errorf("a file that cannot be read: got %d, and %s", got.code, readFile(t, "closed"))
		}
	}
	if got := string(readFile(t, "notes.txt")); got != "milk, eggs" {
		t.Errorf("the notes are %q", got)
	}
	for _, args := range [][]string{{"state.json"}, {"tasks.sql"}, {"empty"}, {"new.json"}, {"notes.txt", "--force"}} {
		got := runCLI(nil, "", append([]string{"store", "export", "--data", "kept"}, args...)...)
		info := must(os.Lstat(args[0]))(t)
		if got.code != 0 || !strings.HasPrefix(string(readFile(t, args[0])), `{"format":3,`) || info.Mode() != 0o600 {
			t.Errorf("%q: got %d, %s, mode %v", args, got.code, got.stderr, info.Mode())
		}
	}
}
