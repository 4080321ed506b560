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
	var report strings.Builder
	if err := checkStoreFiles(o.dir, blindLoader{}, &report); err != nil {
		t.Errorf("check beside the holder: %v", err)
	}
	if want := fmt.Sprintf("the lock names process %d", os.Getpid()); !strings.Contains(report.String(), want) {
		t.Errorf("check: got %s; want %s", &report, want)
	}
	mustClose(t, j)
	if text, err := os.ReadFile(filepath.Join(o.dir, lockName)); err != nil || len(text) != 0 {
		t.Errorf("lock afterwards: got %q, %v; want it empty", text, err)
	}
	j, g := mustOpen(t, o)
	checkContents(t, g, 3)
	mustClose(t, j)
}

func TestCheckStore(t *testing.T) {
	bad := strings.Replace(journalText(3, 6), `"n":4`, `"n":9`, 1)
	for _, tt := range []struct {
		name  string
		files map[string]string
		lines []string // of the report, each a part of one
		err   string
	}{
		{"a good store", map[string]string{journalName: journalText(3, 6), snapshotName: snapshotText(4)}, []string{
			"snapshot.jsonl: 446 bytes, 4 lines, covers sequence 1 to 4, 4 lines expected",
			"journal.jsonl: 420 bytes, 4 lines, sequence 3 to 6",
			"a start would continue after sequence 6",
		}, ""},
		{"a new store", map[string]string{journalName: journalText(1, 0)}, []string{
			"journal.jsonl: 178 bytes, 0 lines, no records, the first would be 1",
			"a start would continue after sequence 0",
		}, ""},
		{"a torn end", map[string]string{journalName: journalText(1, 3) + `{"seq":4,"ki`}, []string{
			"journal.jsonl: 364 bytes, 4 lines, sequence 1 to 3",
			"journal.jsonl: torn from line 5 on: a start cuts the last 12 bytes off",
			"a start would continue after sequence 3",
		}, ""},
		{"an old journal", map[string]string{journalOldName: "x\n", journalName: journalText(3, 6),
			snapshotName: snapshotText(4)}, []string{
			"snapshot.jsonl: ",
			"journal.old.jsonl, line 1: it is not a line of this format",
			"journal.jsonl: ",
			"a start would continue after sequence 6",
		}, ""},
		{"damage", map[string]string{journalName: bad, snapshotName: snapshotText(2)}, []string{
			"snapshot.jsonl: ",
			"journal.jsonl: 420 bytes, 4 lines, sequence 3 to 6",
			"journal.jsonl, line 3: the checksum does not match (bad lines in total: 1)",
		}, "a start would refuse the store: journal.jsonl, line 3: the checksum does not match"},
		{"a missing file", map[string]string{snapshotName: snapshotText(2)}, []string{
			"snapshot.jsonl: ",
		}, "journal.jsonl is missing"},
		{"a newer format", map[string]string{journalName: `{"format":3}` + "\n"}, []string{
			"journal.jsonl has format 3",
		}, "journal.jsonl has format 3"},
		{"nothing", nil, nil, "there is no store in /data"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk := memDiskWith(testDir, tt.files)
			var report strings.Builder
			err := checkStore(disk, testDir, blindLoader{}, &report)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("check: got error %v; want %q", err, tt.err)
			}
			got := strings.Split(strings.TrimSuffix(report.String(), "\n"), "\n")
			if report.Len() == 0 {
				got = nil
			}
			if len(got) != len(tt.lines) {
				t.Fatalf("report: got\n%s\nwant %d lines", report.String(), len(tt.lines))
			}
			for i, want := range tt.lines {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("report, line %d: got %s; want %s", i+1, got[i], want)
				}
			}
			if disk.ops != 0 {
				t.Errorf("operations that change something: got %d", disk.ops)
			}
		})
	}
}

func TestCheckStoreNeedsDirectory(t *testing.T) {
	if err := checkStoreFiles(t.TempDir()+"/none", blindLoader{}, &strings.Builder{}); err == nil {
		t.Error("check of a directory that is not there: got no error")
	}
}

// blindLoader is a loader that ignores everything.
type blindLoader struct{}

func (blindLoader) begin(*storeHeader, int) {}

func (blindLoader) snapshotLine(*checkedLine) error { return nil }

func (blindLoader) record(*checkedLine) error { return nil }
