package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// diskErrors makes the errors in the tables of docs/reference/disk.md by the first text of their rows. Each
// returns what the service answered or logged, or why it did not start.
var diskErrors = map[string]func(t *testing.T) string{
	"the service is starting: N % of the store was read": func(*testing.T) string {
		p := new(readProgress)
		p.done.Store(5)
		p.all.Store(10)
		return p.String()
	},
	"no space left for the journal: nothing was changed": func(t *testing.T) string {
		return refusedChange(t, func(s *service, disk *memDisk) {
			disk.setCapacity(1)
			s.store.journal.space.room.Store(0)
		})
	},
	"the disk does not keep up: N bytes wait to be written": func(t *testing.T) string {
		return refusedChange(t, func(s *service, _ *memDisk) { s.store.journal.groups.backlog.Store(backlogLimit) })
	},
	"outcome unknown: the change may have been stored or not": func(t *testing.T) string {
		return refusedChange(t, failNextSync)
	},
	"the store is read-only: sync of the journal failed (input/output error)": func(t *testing.T) string {
		return refusedChange(t, func(s *service, disk *memDisk) {
			failNextSync(s, disk)
			s.createTask(t.Context(), must(parseTaskRequest([]byte(`{"namespace":"demo","name":"diamond"}`)))(t), true)
		})
	},
	"a snapshot was abandoned; the journal keeps every change": func(t *testing.T) string {
		return logged(t, func(s *service, disk *memDisk) {
			disk.fail(diskFault{op: "create", file: snapshotTemp, err: syscall.ENOSPC})
			s.store.snapshot()
		})
	},
	"the process has too many open files: handlers wait to start": func(t *testing.T) string {
		return logged(t, func(s *service, _ *memDisk) { s.engine.causes.outOfDescriptors("x") })
	},
	"a temporary file stays until the next start": func(t *testing.T) string {
		return logged(t, func(s *service, disk *memDisk) {
			disk.fail(diskFault{op: "remove", file: snapshotTemp, err: syscall.EIO}, diskFault{op: "sync", file: snapshotTemp, err: syscall.EIO, times: 1},
				diskFault{op: "remove", file: journalOldName, err: syscall.EIO, skip: 1})
			s.store.snapshot()
			s.store.snapshot()
		})
	},
	"the store has names with control characters, bidi controls or line separators": func(t *testing.T) string {
		log := new(logText)
		oldNames{"a\u202eb": true}.warn(slog.New(slog.NewTextHandler(log, nil)))
		return log.String()
	},
	"other users can write to the data directory": func(t *testing.T) string {
		return startOf(t, serviceTest{dir: t.TempDir()}, func(o serviceTest) { noError(t, os.Chmod(o.dir, 0o777)) })
	},
	"the journal ends in an unfinished write, which is cut off": func(t *testing.T) string {
		return startOf(t, serviceTest{dir: t.TempDir()}, func(o serviceTest) {
			f := must(os.OpenFile(filepath.Join(o.dir, journalName), os.O_WRONLY|os.O_APPEND, 0))(t)
			must(f.WriteString(`{"seq":`))(t)
			noError(t, f.Close())
		})
	},
	"X/lock: it does not hold a process id, so it is not a lock of stepwell": func(t *testing.T) string {
		return startOf(t, serviceTest{dir: t.TempDir()}, func(o serviceTest) { writeFile(t, filepath.Join(o.dir, lockName), []byte("precious")) })
	},
	"data directory X is in use by process N": func(t *testing.T) string {
		return startOf(t, serviceTest{dir: t.TempDir()}, func(o serviceTest) {
			held := must(osDisk{}.lock(filepath.Join(o.dir, lockName)))(t)
			t.Cleanup(func() { held.Close() })
		})
	},
	"journal.jsonl has format N, and this version of stepwell reads formats up to M": func(t *testing.T) string {
		return startOf(t, serviceTest{dir: t.TempDir()}, func(o serviceTest) {
			noError(t, overwritten(filepath.Join(o.dir, journalName), int64(len(`{"format":`)), []byte("9")))
		})
	},
	"journal.jsonl, line 103: the checksum does not match": func(t *testing.T) string {
		var all []string
		for _, change := range []func(dir string) error{
			func(dir string) error { return overwritten(filepath.Join(dir, journalName), 150, []byte("x")) },
			func(dir string) error { // older than the snapshot
				name := filepath.Join(dir, journalName)
				id := regexp.MustCompile(`"store":"(\w+)"`).FindSubmatch(readFile(t, name))[1]
				return os.WriteFile(name, appendJournalHeader(nil, storeOrigin{string(id), testFailureKey}, 1), 0o600)
			},
			func(dir string) error { return os.Remove(filepath.Join(dir, journalName)) },
			func(dir string) error {
				return os.WriteFile(filepath.Join(dir, journalName), appendJournalHeader(nil, storeOrigin{"ANOTHER", testFailureKey}, 1), 0o600)
			},
		} {
			all = append(all, startOf(t, serviceTest{dir: t.TempDir()}, func(o serviceTest) {
				noError(t, change(o.dir))
			}))
		}
		return strings.Join(all, "\n")
	},
	"this directory is a plain copy of one that a service was using": func(t *testing.T) string {
		o := diskOptions(nil)
		o.dir, o.fs = t.TempDir(), osDisk{}
		j, _ := mustOpen(t, o)
		defer j.close()
		mustStore(t, j, 20)
		first, lock := readFile(t, filepath.Join(o.dir, journalName)), readFile(t, filepath.Join(o.dir, lockName))
		for range 20 {
			mustStore(t, j, 1)
		}
		later := readFile(t, filepath.Join(o.dir, journalName))
		end := (len(trimZeros(first))/diskSector + 1) * diskSector
		o.dir = t.TempDir()
		writeFile(t, filepath.Join(o.dir, journalName), append(first[:end:end], later[end:]...))
		writeFile(t, filepath.Join(o.dir, lockName), lock)
		_, err := openJournal(o, blindLoader{})
		return fmt.Sprint(err)
	},
	"no space left on device": func(t *testing.T) string {
		var all []string
		for _, err := range []error{syscall.ENOSPC, syscall.EIO, syscall.EACCES} {
			disk := newMemDisk()
			all = append(all, startOf(t, serviceTest{dir: testDir, disk: disk}, func(serviceTest) {
				disk.fail(diskFault{op: "open", file: journalName, err: err}, diskFault{op: "edit", file: journalName, err: err})
			}))
		}
		return strings.Join(all, "\n")
	},
}

// overwritten writes a text into a file that exists, as cp does, from an offset on; a negative one counts from the
// end of the records.
func overwritten(name string, off int64, text []byte) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if off < 0 {
		all, err := io.ReadAll(f)
		if err != nil {
			return err
		}
		off += int64(len(trimZeros(all)))
	}
	_, err = f.WriteAt(text, off)
	return err
}

// changeOf makes a change, and returns why it was refused.
func changeOf(t *testing.T, s *service) string {
	t.Helper()
	_, err := s.createTask(t.Context(), must(parseTaskRequest([]byte(`{"namespace":"demo","name":"diamond"}`)))(t), true)
	return fmt.Sprint(err)
}

// refusedChange returns why a change is refused once something has happened to the disk.
func refusedChange(t *testing.T, happen func(s *service, disk *memDisk)) string {
	t.Helper()
	disk := newMemDisk()
	s := openTestService(t, serviceTest{dir: testDir, disk: disk, log: io.Discard})
	defer s.close()
	happen(s, disk)
	return changeOf(t, s)
}

// failNextSync has the next sync of the journal fail.
func failNextSync(_ *service, disk *memDisk) {
	disk.fail(diskFault{op: "sync", file: journalTempName, err: syscall.EIO, times: 1})
}

// logged returns what a service logs.
func logged(t *testing.T, happen func(s *service, disk *memDisk)) string {
	t.Helper()
	disk, log := newMemDisk(), new(logText)
	s := openTestService(t, serviceTest{dir: testDir, disk: disk, log: log})
	happen(s, disk)
	s.finish(t.Context())
	s.close()
	return log.String()
}

// startOf makes a store, changes its files, and returns what the next start logs and why it fails.
func startOf(t *testing.T, o serviceTest, change func(o serviceTest)) string {
	t.Helper()
	log := new(logText)
	s := openTestService(t, o)
	changeOf(t, s)
	noError(t, s.store.snapshot())
	changeOf(t, s)
	closeTestService(t, s)
	if change != nil {
		change(o)
	}
	o.log = log
	again, err := openService(testParts(t, o))
	if err == nil {
		closeTestService(t, again)
	}
	return fmt.Sprintf("%s\n%v", log, err)
}

// TestDiskErrorsPage makes every error that the tables of docs/reference/disk.md name.
func TestDiskErrorsPage(t *testing.T) {
	page, _, _ := strings.Cut(string(readFile(t, "docs/reference/disk.md")), "\n## Files that change")
	var seen []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?`) \\|").FindAllStringSubmatch(page, -1) {
		texts := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1)
		first := texts[0][1]
		seen = append(seen, first)
		produce := diskErrors[first]
		if produce == nil {
			t.Errorf("no case makes %q", first)
			continue
		}
		t.Run(first, func(t *testing.T) {
			got := produce(t)
			for _, text := range texts {
				pattern := regexp.QuoteMeta(strings.TrimPrefix(text[1], "… "))
				for _, hole := range []string{`\bN\b`, `\bM\b`, `\bX\b`, `… ?`, `5s`, `\b103\b`, `\b91\b`, `\b101\b`, `\b7\b`} {
					pattern = regexp.MustCompile(hole).ReplaceAllString(pattern, ".*")
				}
				if !regexp.MustCompile(pattern).MatchString(got) {
					t.Errorf("got %s; want %q", got, text[1])
				}
			}
		})
	}
	for text := range diskErrors {
		if !slices.Contains(seen, text) {
			t.Errorf("the page lacks %q", text)
		}
	}
}
