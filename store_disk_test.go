package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestStoreDirectoryIsAFile(t *testing.T) {
	o := diskOptions(nil)
	o.dir, o.fs = filepath.Join(t.TempDir(), "file"), osDisk{}
	noError(t, os.WriteFile(o.dir, nil, 0o600))
	if _, err := openJournal(o, &gathered{}); err == nil || !strings.Contains(err.Error(), o.dir) {
		t.Errorf("open: got %v; want an error naming %s", err, o.dir)
	}
}

// TestErrorsNameTheFileInUse makes files under their temporary names, renames them, and
// makes every operation on them fail.
func TestErrorsNameTheFileInUse(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), storeName)
	f := must(osDisk{}.create(name + ".new"))(t)
	noError(t, osDisk{}.rename(name+".new", name))
	noError(t, f.Close())
	_, writing := f.WriteAt([]byte("x"), 0)
	_, sizing := f.size()
	for i, err := range []error{writing, sizing, f.sync(), f.truncate(0), f.allocate(0, 1), f.Close()} {
		if err == nil || strings.Contains(err.Error(), ".new") || !strings.Contains(err.Error(), name+":") {
			t.Errorf("error %d: got %v; want it to name %s", i, err, name)
		}
	}
}

// BenchmarkBareCommit measures write and sync in a loop, of as many records at
// once.
func BenchmarkBareCommit(b *testing.B) {
	for _, group := range []int{1, 8, 16, 32, 64} {
		b.Run(fmt.Sprintf("group=%d", group), func(b *testing.B) {
			f := must(osDisk{}.create(filepath.Join(b.TempDir(), "bare")))(b)
			defer f.Close()
			buf := make([]byte, group*(benchBody+30))
			pos := int64(0)
			for n := 0; n < b.N; n += group {
				must(f.WriteAt(buf, pos))(b)
				noError(b, f.sync())
				pos += int64(len(buf))
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// TestSlowDiskIsLogged tells of operations that are late, once, and of their ends.
func TestSlowDiskIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, log := diskOptions(newMemDisk()), &logText{}
		o.log = slog.New(slog.NewTextHandler(log, nil))
		j := newJournal(o)
		for _, took := range []time.Duration{0, slowDisk - 1, 3 * slowDisk, slowDisk - 1} {
			if err := j.watched(func() error { time.Sleep(took); return io.EOF }); err != io.EOF {
				t.Errorf("got %v", err)
			}
		}
		if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "takes long to write") || !strings.Contains(log.String(), "has written again") {
			t.Errorf("got %s; want one late operation, and its end", log)
		}
	})
}

// TestStoreFilesAreRegular puts irregular files in the places of the files of a store: each is
// refused, none is followed, replaced or removed, and none delays the start.
func TestStoreFilesAreRegular(t *testing.T) {
	t.Parallel()
	open := func(_ *testing.T, path string) error {
		o := diskOptions(nil)
		o.dir, o.fs = filepath.Dir(path), osDisk{}
		j, err := openJournal(o, &gathered{})
		if err == nil {
			j.close()
		}
		return err
	}
	for _, name := range []string{lockName, storeName, compactName, importName} {
		eachIrregularFile(t, name, open)
	}
	for _, name := range []string{storeName, importName} {
		eachIrregularFile(t, name, func(t *testing.T, path string) error {
			o := diskOptions(nil)
			o.dir, o.fs = filepath.Dir(path), osDisk{}
			_, err := importStore(o, &stateSource{document: strings.NewReader("{\"format\":3}\n{\"end\":{}}\n")}, o.log)
			return err
		})
	}
}

func TestLockHolder(t *testing.T) {
	for text, want := range map[string]int{"": 0, "17\n": 17, "x": 0, " 5 ": 5} {
		if got := readLock(strings.NewReader(text)); got != want {
			t.Errorf("holder in %q: got %d; want %d", text, got, want)
		}
	}
}

// TestStoreFileModes checks that only the owner can read what is stored.
func TestStoreFileModes(t *testing.T) {
	t.Parallel()
	o := diskOptions(nil)
	o.dir, o.fs = filepath.Join(t.TempDir(), "a", "b"), osDisk{}
	j, _ := mustOpen(t, o)
	noError(t, compactTest(j))
	mustClose(t, j)
	for name, want := range map[string]os.FileMode{
		".": 0o700, "..": 0o700, lockName: 0o600, storeName: 0o600,
	} {
		info, err := os.Stat(filepath.Join(o.dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("mode of %s: got %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
}

// TestLockIsReleasedBesideACopy closes a lock while a copy of its file is open, as in a child
// between fork and exec.
func TestLockIsReleasedBesideACopy(t *testing.T) {
	name := filepath.Join(t.TempDir(), lockName)
	held := must(osDisk{}.lock(name))(t)
	release, err := copyDescriptor(held.(*storeLock).file)
	defer release()
	held.Close()
	if err != nil {
		wire.Skip(t, "%v", err)
	}
	again, err := osDisk{}.lock(name)
	if err != nil {
		t.Fatalf("got %v; want the lock", err)
	}
	again.Close()
}

// TestLockOfAnother checks that the lock of another user is refused.
func TestLockOfAnother(t *testing.T) {
	name := filepath.Join(t.TempDir(), lockName)
	writeFile(t, name, []byte("precious"))
	if err := os.Chown(name, 4711, -1); err != nil {
		wire.Skip(t, "%v", err)
	}
	_, err := osDisk{}.lock(name)
	want := fmt.Sprintf("open %s: it belongs to the user 4711, and this process runs as %d", name, os.Geteuid())
	if err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
	if got := string(readFile(t, name)); got != "precious" {
		t.Errorf("the lock became %q", got)
	}
}

// TestLockIsOwn checks that only what a lock can hold is replaced, and only by whoever holds it removed.
func TestLockIsOwn(t *testing.T) {
	name := filepath.Join(t.TempDir(), lockName)
	for _, text := range []string{"", "17\n", "17", "4194304\n", "\x00\x00\x00"} {
		writeFile(t, name, []byte(text))
		held, err := osDisk{}.lock(name)
		if err != nil {
			t.Errorf("%q: got %v; want the lock", text, err)
			continue
		}
		if got, want := string(readFile(t, name)), fmt.Sprintln(os.Getpid()); got != want {
			t.Errorf("%q: the lock holds %q; want %q", text, got, want)
		}
		held.Close()
		if got := string(readFile(t, name)); got != "" {
			t.Errorf("%q: the lock holds %q at the end; want nothing", text, got)
		}
	}
	for _, text := range []string{"precious", "17\n18\n", "17 \n", "{}", "\n\n", "12345678901\n", "17\x00", strings.Repeat("\x00", 100),
		"17\n1:2\n", "17 1:2\n"} {
		writeFile(t, name, []byte(text))
		_, err := osDisk{}.lock(name)
		if err == nil || !strings.Contains(err.Error(), name+": it does not hold a process id") {
			t.Errorf("%q: got %v; want it refused", text, err)
		}
		if got := string(readFile(t, name)); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	writeFile(t, name, nil)
	held := must(osDisk{}.lock(name))(t)
	writeFile(t, name, []byte("precious"))
	held.Close()
	if got := string(readFile(t, name)); got != "precious" {
		t.Errorf("what was written meanwhile became %q", got)
	}
}

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
	"it has format N, and this version of stepwell reads format M": formatOf("9"),
	"journal.jsonl is of format 1 or 2": func(t *testing.T) string {
		return startOf(t, serviceTest{dir: t.TempDir()}, func(o serviceTest) {
			noError(t, os.Rename(filepath.Join(o.dir, storeName), filepath.Join(o.dir, "journal.jsonl")))
		})
	},
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
