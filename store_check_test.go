package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStoreLock(t *testing.T) {
	o := diskOptions(nil)
	o.dir, o.fs = t.TempDir(), osDisk{}
	j, _ := mustOpen(t, o)
	mustStore(t, j, 3)
	_, err := openJournal(o, &gathered{})
	want := fmt.Sprintf("data directory %s is in use by process %d", o.dir, os.Getpid())
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("second opener: got %v; want %s", err, want)
	}
	mustClose(t, j)
	if text, err := os.ReadFile(filepath.Join(o.dir, lockName)); err != nil || len(text) != 0 {
		t.Errorf("lock afterwards: got %q, %v; want it empty", text, err)
	}
	j, g := mustOpen(t, o)
	checkContents(t, g, 3)
	mustClose(t, j)
}

// TestCheckStore checks a store beside its service, with a torn end, with damage, and where there is none.
func TestCheckStore(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), clock: newVirtualClock(testStart), extra: storyTemplates}
	s := openTestService(t, o)
	mustCreate(t, s, "noop")
	mustCreate(t, s, "pair")
	noError(t, s.store.waitAll(t.Context()))
	path := filepath.Join(o.dir, storeName)
	check := func(path string) string {
		var report strings.Builder
		if err := checkStoreFile(&journalOptions{dir: o.dir, log: s.log}, path, &report); err != nil {
			fmt.Fprintln(&report, err)
		}
		return report.String()
	}
	text := string(readFile(t, path))
	want := fmt.Sprintf("%s: %d bytes, of which ", path, len(text))
	if got := check(path); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "every record applies: 2 tasks (1 waiting_for_dependencies, 1 complete)\n") &&
		!strings.Contains(got, "every record applies: 2 tasks (") {
		t.Errorf("beside the service: got %s; want %s", got, want)
	}
	closeTestService(t, s)
	copied := filepath.Join(t.TempDir(), "copy.jsonl")
	for _, tt := range []struct{ text, want string }{
		{text + `{"seq":`, "an unfinished write: a start cuts the last 7 bytes off"},
		{strings.Replace(text, `"kind":"created"`, `"kind":"dropped"`, 1), "a start would refuse the store: copy.jsonl, line 5 (byte "},
		{"", "a start would refuse the store: copy.jsonl, line 0 (byte 0): the file is empty"},
	} {
		writeFile(t, copied, []byte(tt.text))
		if got := check(copied); !strings.Contains(got, tt.want) {
			t.Errorf("got %s; want %s", got, tt.want)
		}
		if now := string(readFile(t, copied)); now != tt.text {
			t.Error("the file was changed")
		}
	}
	if got := check(copied + ".none"); !strings.Contains(got, "no such file") {
		t.Errorf("got %s; want that there is no file", got)
	}
}
