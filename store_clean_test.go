package main

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"strings"
	"syscall"
	"testing"
)

// cleanStore returns a disk with a store that was closed well: a snapshot of 3 records, and 20 later ones.
func cleanStore(t *testing.T) *memDisk {
	t.Helper()
	disk := newMemDisk()
	o := diskOptions(disk)
	o.id = testStoreID
	j, _ := mustOpen(t, o)
	mustStore(t, j, 3)
	noError(t, writeSnapshot(j))
	mustStore(t, j, 12)
	mustStore(t, j, 8)
	mustClose(t, j)
	return disk
}

// oldNote returns the note that an earlier version left of a journal.
func oldNote(last, bytes, inode uint64) []byte {
	b := fmt.Appendf(nil, `{"clean":%d,"bytes":%d,"inode":%d`, last, bytes, inode)
	return appendSumTail(b, crc32.Checksum(b, castagnoli))
}

// TestCleanStop changes the files that a clean stop left. A start that cannot do without what was changed is refused,
// with what to do, and changes nothing; so is store check, and store repair says what is missing. Any other start writes
// the journal again, unless all is as it was.
func TestCleanStop(t *testing.T) {
	t.Parallel()
	stored := cleanStore(t)
	node := func(d *memDisk, name string) *memNode { return d.names[testDir+"/"+name] }
	cut := func(d *memDisk, lines int) {
		n := node(d, journalName)
		for range lines {
			n.data = n.data[:bytes.LastIndexByte(n.data[:len(n.data)-1], '\n')+1]
		}
	}
	older := func(d *memDisk) {
		n := node(d, journalName)
		node(d, cleanName).data = oldNote(23, uint64(len(n.data)), n.inode)
	}
	const repair = `; "stepwell store repair" writes what is there as a new store and lists what is missing`
	const missing = "journal.jsonl ends at sequence 13, but the last clean stop left it at 23: 10 records are missing" + repair
	const changed = "journal.jsonl was changed since the last clean stop: its records are not those that were written" + repair
	const other = "snapshot.jsonl is not the one that the last clean stop left: that covers sequence 3 and has "
	for _, tt := range []struct {
		name   string
		change func(d *memDisk)
		again  bool   // the journal is written again
		err    string // part of the refusal
		lost   string // part of what store repair says
	}{
		{"nothing", func(*memDisk) {}, false, "", ""},
		{"no note", func(d *memDisk) { noError(t, d.remove(testDir+"/"+cleanName)) }, true, "", ""},
		{"an empty note", func(d *memDisk) { node(d, cleanName).data = nil }, true, "", ""},
		{"a note of zeros", func(d *memDisk) { clear(node(d, cleanName).data) }, true, "", ""},
		{"a torn note", func(d *memDisk) { node(d, cleanName).data[3] = 'x' }, true, "", ""},
		{"a longer journal, as of a later crash", func(d *memDisk) {
			n := node(d, journalName)
			n.data = appendRecord(n.data, 24, 0, testBody(24))
		}, true, "", ""},
		{"a later record that is torn", func(d *memDisk) {
			n := node(d, journalName)
			n.data = append(n.data, "{"...)
		}, true, "", ""},
		{"zeros behind the journal", func(d *memDisk) {
			n := node(d, journalName)
			n.data = append(n.data, zeroText[:]...)
		}, false, "", ""},
		{"a longer journal and another snapshot", func(d *memDisk) {
			n := node(d, journalName)
			n.data = appendRecord(n.data, 24, 0, testBody(24))
			node(d, snapshotName).data = []byte(snapshotText(4))
		}, true, "", ""},
		{"a copy of the journal", func(d *memDisk) {
			n := node(d, journalName)
			d.names[testDir+"/"+journalName] = newMemNode(n.data, n.kept)
		}, true, "", ""},
		{"a copy that lacks records", func(d *memDisk) {
			n := node(d, journalName)
			d.names[testDir+"/"+journalName] = newMemNode(n.data, n.kept)
			cut(d, 10)
		}, true, "", ""},
		{"an older note", older, true, "", ""},
		{"ten lines fewer", func(d *memDisk) { cut(d, 10) }, false, missing, "sequence 14 to 23: 10 records are missing"},
		{"ten lines fewer than an older note says", func(d *memDisk) { older(d); cut(d, 10) }, false, missing,
			"sequence 14 to 23: 10 records are missing"},
		{"half a line fewer", func(d *memDisk) {
			cut(d, 9)
			n := node(d, journalName)
			n.data = n.data[:len(n.data)-20]
		}, false, missing, "sequence 14 to 23: 10 records are missing"},
		{"zeros at the end", func(d *memDisk) {
			n := node(d, journalName)
			size := len(n.data)
			cut(d, 10)
			n.data = append(n.data, make([]byte, size-len(n.data))...)
		}, false, missing, "sequence 14 to 23: 10 records are missing"},
		{"the last newline gone", func(d *memDisk) {
			n := node(d, journalName)
			n.data = n.data[:len(n.data)-1]
		}, false, changed, "journal.jsonl was changed since the last clean stop"},
		{"the last newline gone, beside an older note", func(d *memDisk) {
			older(d)
			n := node(d, journalName)
			n.data = n.data[:len(n.data)-1]
		}, false, changed, "journal.jsonl was changed since the last clean stop"},
		{"the last newline zero, beside an older note", func(d *memDisk) {
			older(d)
			n := node(d, journalName)
			n.data[len(n.data)-1] = 0
		}, true, "", ""},
		{"a record with a right checksum", func(d *memDisk) {
			cut(d, 1)
			n := node(d, journalName)
			n.data = appendRecord(n.data, 23, 7, bytes.Replace(testBody(23), []byte("xx"), []byte("yx"), 1))
		}, false, changed, "journal.jsonl was changed since the last clean stop"},
		{"a snapshot with a line fewer", func(d *memDisk) {
			node(d, snapshotName).data = []byte(snapshotLines(3, 2))
		}, false, other, "snapshot.jsonl is not the one that the last clean stop left"},
		{"the snapshot copied", func(d *memDisk) {
			n := node(d, snapshotName)
			d.names[testDir+"/"+snapshotName] = newMemNode(n.data, n.kept)
		}, false, "", ""},
		{"started once more", func(d *memDisk) {
			j, _ := mustOpen(t, diskOptions(d))
			t.Cleanup(func() { j.close() })
		}, true, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk := stored.restart()
			tt.change(disk)
			disk = disk.restart()
			before := disk.files()
			checked := checkStore(disk, testDir, blindLoader{}, io.Discard)
			v, err := salvageStore(disk, testDir, slog.New(slog.DiscardHandler))
			noError(t, err)
			told := strings.Join(v.losses, "\n")
			if ops := disk.ops; ops > 0 {
				t.Errorf("operations of check and repair that change something: got %d", ops)
			}
			j, err := openJournal(diskOptions(disk), &gathered{})
			if tt.err != "" {
				checkRefused(t, err, tt.err, before, disk.files())
				if checked == nil || !strings.Contains(checked.Error(), tt.err) {
					t.Errorf("store check: got %v; want %s", checked, tt.err)
				}
				if !strings.Contains(told, tt.lost) {
					t.Errorf("store repair: got %q; want %s", told, tt.lost)
				}
				return
			}
			if err != nil || checked != nil || strings.Contains(told, "clean stop") {
				t.Fatalf("got %v, store check %v, store repair %q; want no refusal", err, checked, told)
			}
			if got := disk.count("write", journalName) > 0; got != tt.again {
				t.Errorf("the journal was written again: got %v; want %v", got, tt.again)
			}
			mustStore(t, j, 2)
			mustClose(t, j)
			j, g := mustOpen(t, diskOptions(disk.restart()))
			checkContents(t, g, j.groups.durable())
			mustClose(t, j)
		})
	}
}

// TestCleanStopAfterAHalfSnapshot stops a store whose newest snapshot got its name although that failed.
func TestCleanStopAfterAHalfSnapshot(t *testing.T) {
	disk := newMemDisk()
	j, _ := mustOpen(t, diskOptions(disk))
	mustStore(t, j, 3)
	noError(t, writeSnapshot(j))
	mustStore(t, j, 3)
	disk.fail(diskFault{op: "syncdir", file: "data", skip: 2, times: 1, err: syscall.EIO})
	if err := writeSnapshot(j); err == nil || !strings.Contains(disk.files()[snapshotName], `"seq":6`) {
		t.Fatalf("got %v; want a snapshot that has its name although it failed", err)
	}
	mustClose(t, j)
	j, g := mustOpen(t, diskOptions(disk.restart()))
	checkContents(t, g, 6)
	mustClose(t, j)
}

// stoppingDisk calls stop once it was found out where the records of the journal end.
type stoppingDisk struct {
	*memDisk
	stop func()
}

func (d *stoppingDisk) open(name string) (diskFile, error) {
	f, err := d.memDisk.open(name)
	if err == nil && strings.HasSuffix(name, "/"+journalName) {
		f = stoppingFile{f, d}
	}
	return f, err
}

type stoppingFile struct {
	diskFile
	disk *stoppingDisk
}

func (f stoppingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.diskFile.ReadAt(p, off)
	if stop := f.disk.stop; stop != nil {
		f.disk.stop = nil
		stop()
	}
	return n, err
}

// TestReaderBesideACleanStop reads the files of a service that ends meanwhile: its note is about records that the reader
// may not see.
func TestReaderBesideACleanStop(t *testing.T) {
	disk := newMemDisk()
	j, _ := mustOpen(t, diskOptions(disk))
	mustStore(t, j, 3)
	stop := func() {
		mustStore(t, j, 2)
		mustClose(t, j)
	}
	pinned := must(pinStore(&stoppingDisk{disk, stop}, testDir))(t)
	r := &recovery{disk: pinned, dir: testDir, loader: blindLoader{}}
	noError(t, r.read())
	if _, noted := pinned.files[testDir+"/"+cleanName]; !noted || r.last != 5 {
		t.Errorf("got a note: %v, sequence %d; want the note and what it is about", noted, r.last)
	}
}

// TestNewStoreHasNoNote writes a store where another one was removed without its note, whose inode the new one may get.
func TestNewStoreHasNoNote(t *testing.T) {
	files, _ := damagedStore(t)
	v := must(salvageStore(memDiskWith(testDir, files), testDir, slog.New(slog.DiscardHandler)))(t)
	disk := memDiskWith(testDir, map[string]string{cleanName: "left over"})
	if _, err := salvageStore(disk, testDir, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a directory with nothing but a note: got no error")
	}
	noError(t, v.write(diskOptions(disk)))
	if note, there := disk.files()[cleanName]; there {
		t.Errorf("the note is still there: %q", note)
	}
}
