package main

import (
	"bytes"
	"fmt"
	"io"
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
	"no space left for the store: nothing was changed": func(t *testing.T) string {
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
	"the store has failed: sync of store.jsonl failed (input/output error)": func(t *testing.T) string {
		return refusedChange(t, func(s *service, disk *memDisk) {
			failNextSync(s, disk)
			s.createTask(t.Context(), must(parseTaskRequest([]byte(`{"namespace":"demo","name":"diamond"}`)))(t), true)
		})
	},
	"the store could not be compacted; its file keeps every change": func(t *testing.T) string {
		return logged(t, func(s *service, disk *memDisk) {
			disk.fail(diskFault{op: "create", file: compactName, err: syscall.ENOSPC})
			s.store.compact()
		})
	},
	"the process has too many open files: handlers wait to start": func(t *testing.T) string {
		return logged(t, func(s *service, _ *memDisk) { s.engine.causes.outOfDescriptors("x") })
	},
	"a file stays until the next start": func(t *testing.T) string {
		return logged(t, func(s *service, disk *memDisk) {
			disk.fail(diskFault{op: "remove", file: compactName, err: syscall.EIO}, diskFault{op: "allocate", file: compactName, err: syscall.EIO})
			s.store.compact()
		})
	},
	"the store ends in an unfinished write, which is cut off": func(t *testing.T) string {
		return startOf(t, serviceTest{dir: t.TempDir()}, func(o serviceTest) {
			f := must(os.OpenFile(filepath.Join(o.dir, storeName), os.O_WRONLY|os.O_APPEND, 0))(t)
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
	"an import was interrupted: run the import again": func(t *testing.T) string {
		return startOf(t, serviceTest{dir: t.TempDir()}, func(o serviceTest) {
			noError(t, os.Rename(filepath.Join(o.dir, storeName), filepath.Join(o.dir, importName)))
		})
	},
	"it has format N, and this version of stepwell reads formats up to M":     formatOf("9"),
	"it has format N, which was in no release: commit C of stepwell reads it": formatOf("2"),
	"store.jsonl, line 103 (byte 48211): the checksum does not match; …": func(t *testing.T) string {
		return startOf(t, serviceTest{dir: t.TempDir()}, func(o serviceTest) {
			name := filepath.Join(o.dir, storeName)
			writeFile(t, name, bytes.Replace(readFile(t, name), []byte(`"state":"complete"`), []byte(`"state":"pending_"`), 1))
		})
	},
	"no space left on device": func(t *testing.T) string {
		var all []string
		for _, err := range []error{syscall.ENOSPC, syscall.EIO, syscall.EACCES} {
			disk := newMemDisk()
			all = append(all, startOf(t, serviceTest{dir: testDir, disk: disk}, func(serviceTest) {
				disk.fail(diskFault{op: "edit", file: storeName, err: err})
			}))
		}
		return strings.Join(all, "\n")
	},
}

// formatOf returns why a store of a format does not start.
func formatOf(number string) func(t *testing.T) string {
	return func(t *testing.T) string {
		return startOf(t, serviceTest{dir: t.TempDir()}, func(o serviceTest) {
			name := filepath.Join(o.dir, storeName)
			writeFile(t, name, bytes.Replace(readFile(t, name), []byte(`{"format":3`), []byte(`{"format":`+number), 1))
		})
	}
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

// failNextSync has the next sync of the store fail.
func failNextSync(_ *service, disk *memDisk) {
	disk.fail(diskFault{op: "sync", file: storeName, err: syscall.EIO, times: 1})
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
	noError(t, s.store.compact())
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
	page, _, _ := strings.Cut(string(readFile(t, "docs/reference/disk.md")), "\n## Damage")
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
				for _, hole := range []string{`\bN\b`, `\bM\b`, `\bX\b`, `… ?`, `5s`, `\b103\b`, `\b48211\b`, `\bC\b`} {
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
