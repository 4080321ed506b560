package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// damagedStore returns the files of a store with a snapshot and later records, and the lines of
// its tasks by id.
func damagedStore(t *testing.T) (files map[string]string, tasks map[string]string) {
	t.Helper()
	disk := newMemDisk()
	o := serviceTest{clock: newVirtualClock(testStart), extra: storyTemplates, dir: testDir, disk: disk}
	s := newTestService(t, o)
	tellStory(t, s)
	noError(t, s.store.snapshot())
	tellStoryWithoutKey(t, s)
	tasks = map[string]string{}
	for line := range strings.Lines(lines(s)) {
		id, _ := lineID([]byte(line))
		tasks[id.String()] = line
	}
	closeTestService(t, s)
	files = disk.files()
	delete(files, lockName)
	return files, tasks
}

// TestSalvageOfParts checks what is left of a store without one of its files, with one of another
// store, with swapped lines, and of one that a newer version wrote.
func TestSalvageOfParts(t *testing.T) {
	files, want := damagedStore(t)
	snapshot, journal := files[snapshotName], files[journalName]
	for _, tt := range []struct {
		name  string
		files map[string]string
		tasks int
		told  string
	}{
		{"no journal", map[string]string{snapshotName: snapshot}, 6, ""},
		{"no snapshot", map[string]string{journalName: journal}, 0, "records are missing"},
		{"swapped lines", map[string]string{snapshotName: swapped(snapshot), journalName: journal}, len(want), ""},
		{"a journal of another store", map[string]string{snapshotName: snapshot,
			journalName: strings.Replace(journal, journal[:strings.IndexByte(journal, '\n')+1],
				string(appendJournalHeader(nil, storeOrigin{"ANOTHER", testFailureKey}, 1)), 1)}, 6, "it is left out"},
		{"half a snapshot", map[string]string{snapshotName: snapshot[:len(snapshot)*3/4], journalName: journal}, -1,
			"snapshot.jsonl, line "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, got := salvaged(t, tt.files)
			if told := strings.Join(v.losses, "\n"); !strings.Contains(told, tt.told) || tt.told == "" && told != "" {
				t.Errorf("losses: got %q; want %q", told, tt.told)
			}
			if len(got) != tt.tasks && tt.tasks >= 0 {
				t.Errorf("tasks: got %d; want %d", len(got), tt.tasks)
			}
		})
	}
	newer := memDiskWith(testDir, map[string]string{journalName: `{"format":3}` + "\n"})
	if _, err := salvageStore(newer, testDir, slog.Default()); err == nil || !strings.Contains(err.Error(), "has format 3") {
		t.Errorf("a newer format: got %v; want it refused", err)
	}
	if _, err := salvageStore(newMemDisk(), testDir, slog.Default()); err == nil {
		t.Error("no store: got no error")
	}
}

// TestServiceReadOnly opens a damaged store to be read: what is sound is shown, no change is
// taken, and no file changes.
func TestServiceReadOnly(t *testing.T) {
	t.Parallel()
	files, want := damagedStore(t)
	sound := files[journalName]
	files[journalName] = strings.Replace(sound, `"kind":"operator"`, `"kind":"oPerator"`, 1)
	if files[journalName] == sound {
		t.Fatal("the journal has no record to damage")
	}
	dir := t.TempDir()
	for name, text := range files {
		noError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	o := journalOptions{dir: dir, log: slog.New(slog.DiscardHandler)}
	s := must(openReadOnly(o, newVirtualClock(testStart), o.log))(t)
	if tasks, _ := s.size(); tasks != len(want) {
		t.Errorf("tasks: got %d; want %d", tasks, len(want))
	}
	_, err := s.update(func(*change) error { return nil })
	if kindOf(err) != unavailable || !strings.Contains(err.Error(), "--read-only") {
		t.Errorf("a change: got %v; want it refused because of --read-only", err)
	}
	noError(t, s.waitAll(t.Context()))
	noError(t, s.close())
	names := must(os.ReadDir(dir))(t)
	for _, name := range names {
		if text := must(os.ReadFile(filepath.Join(dir, name.Name())))(t); !bytes.Equal(text, []byte(files[name.Name()])) {
			t.Errorf("%s was changed", name.Name())
		}
	}
	if len(names) != len(files) {
		t.Errorf("files: got %v; want none more", names)
	}
}

// salvaged reads what is sound of some files, writes it as a new store, and returns its tasks.
func salvaged(t *testing.T, files map[string]string) (v *salvage, tasks map[string]string) {
	t.Helper()
	damaged, repaired := memDiskWith(testDir, files), newMemDisk()
	v = must(salvageStore(damaged, testDir, slog.New(slog.DiscardHandler)))(t)
	noError(t, v.write(diskOptions(repaired)))
	if damaged.ops != 0 {
		t.Errorf("changes of the damaged store: got %d", damaged.ops)
	}
	s := must(openStore(diskOptions(repaired), defaultKeptEvents, newVirtualClock(testStart), v.s.log))(t)
	defer s.close()
	tasks = map[string]string{}
	for line := range strings.Lines(lines(&service{store: s})) {
		id, _ := lineID([]byte(line))
		tasks[id.String()] = line
	}
	return v, tasks
}

// TestSalvageLosesOneLine damages each line of each file: every task whose own lines are sound is
// there as it was, and each of the others is named.
func TestSalvageLosesOneLine(t *testing.T) {
	t.Parallel()
	slow(t)
	files, want := damagedStore(t)
	for name, text := range files {
		all := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
		for i := range all {
			damaged := slices.Clone(all)
			damaged[i] = strings.Replace(damaged[i], `":`, `";`, 1)
			changed := map[string]string{snapshotName: files[snapshotName], journalName: files[journalName]}
			changed[name] = strings.Join(damaged, "") + "\n"
			v, got := salvaged(t, changed)
			at := fmt.Sprintf("%s, line %d", name, i+1)
			told := strings.Join(v.losses, "\n")
			if !strings.Contains(told, at+": ") && !strings.Contains(all[i], endHead) {
				t.Errorf("%s: got losses %q; want the place", at, told)
			}
			for id, line := range want {
				mayLack := strings.Contains(all[i], id) || strings.Contains(told, id)
				if got[id] != line && !mayLack && !strings.Contains(all[i], `"hash":`) {
					t.Errorf("%s: task %s is\n%s\nwant\n%s\nlosses %s", at, id, got[id], line, told)
				}
			}
			for id := range got {
				if want[id] == "" {
					t.Errorf("%s: got task %s, which never was", at, id)
				}
			}
		}
	}
}

func TestSalvageOfASoundStore(t *testing.T) {
	files, want := damagedStore(t)
	files[journalName] += `{"seq":`
	v, got := salvaged(t, files)
	if len(v.losses) > 0 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got losses %q, tasks\n%s\nwant none and\n%s", v.losses, got, want)
	}
	if want := "an unfinished write"; !strings.Contains(v.torn, want) {
		t.Errorf("the end of the journal: got %q; want %s", v.torn, want)
	}
}
