package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"syscall"
	"testing"
)

// journalText returns a journal with the records from first to last.
func journalText(first, last uint64) string { return journalOf(testStoreID, first, last) }

func journalOf(store string, first, last uint64) string {
	b := appendJournalHeader(nil, storeOrigin{store, testFailureKey}, first)
	for seq := first; seq <= last; seq++ {
		b = appendRecord(b, seq, 0, testBody(seq))
	}
	return string(b)
}

// oldJournal and oldSnapshot return files of format 1.
func oldJournal(first, last uint64) string {
	_, records, _ := strings.Cut(journalText(first, last), "\n")
	return string(sumLine(fmt.Appendf(nil, `{"format":1,"journal":"stepwell","from":%d`, first))) + records
}

func oldSnapshot(covered uint64) string {
	lines := strings.SplitAfter(snapshotText(covered), "\n")
	head := fmt.Appendf(nil, `{"format":1,"snapshot":"stepwell","seq":%d,"count":%d`, covered, covered)
	return string(sumLine(head)) + strings.Join(lines[1:len(lines)-2], "")
}

// snapshotText returns a snapshot that covers the sequences up to covered.
func snapshotText(covered uint64) string { return snapshotLines(covered, covered) }

// snapshotLines returns a snapshot with as many lines.
func snapshotLines(covered, count uint64) string {
	var sums lineSums
	b := snapshotHeader(storeOrigin{testStoreID, testFailureKey}, 1_700_000_000_000_000, covered, count)
	for n := uint64(1); n <= count; n++ {
		line := sumLine(fmt.Appendf(nil, `{"n":%d`, n))
		sums.add(line[len(line)-len(sumTail)-1:])
		b = append(b, line...)
	}
	return string(sums.appendEnd(b, count))
}

// sumLine ends a line of a snapshot.
func sumLine(line []byte) []byte {
	return appendSumTail(line, crc32.Checksum(line, castagnoli))
}

// tryOpen opens a store with these files, and returns what it read and, on
// success, the files afterwards.
func tryOpen(t *testing.T, files map[string]string) (*gathered, map[string]string, error) {
	t.Helper()
	disk := memDiskWith(testDir, files)
	g := &gathered{}
	j, err := openJournal(diskOptions(disk), g)
	if err == nil {
		mustClose(t, j)
	}
	return g, disk.files(), err
}

// TestRecoveryDirectoryStates checks the table in store_recover.go, and states
// that are not in it.
func TestRecoveryDirectoryStates(t *testing.T) {
	type dir = map[string]string
	const junk = "left over\n"
	zeros := strings.Repeat("\x00", 1000)
	for _, tt := range []struct {
		name  string
		files dir
		last  uint64 // sequence after which the store continues
		after string // files afterwards
		err   string // part of it; "" when the store opens
	}{
		{"nothing", dir{}, 0, "journal.jsonl", ""},
		{"died making the first journal", dir{journalTempName: "{"}, 0, "journal.jsonl", ""},
		{"row 0: journal", dir{journalName: journalText(1, 5)}, 5, "journal.jsonl", ""},
		{"row 0: both", dir{journalName: journalText(4, 5), snapshotName: snapshotText(3)},
			5, "journal.jsonl snapshot.jsonl", ""},
		{"row 0: empty journal", dir{journalName: journalText(4, 3), snapshotName: snapshotText(3)},
			3, "journal.jsonl snapshot.jsonl", ""},
		{"row 1", dir{journalName: journalText(1, 5), journalTempName: journalText(6, 5)}, 5, "journal.jsonl", ""},
		{"row 2", dir{journalOldName: journalText(1, 5), journalTempName: journalText(6, 5)},
			5, "journal.jsonl", ""},
		{"row 2 with snapshot",
			dir{journalOldName: journalText(3, 5), journalTempName: junk, snapshotName: snapshotText(2)},
			5, "journal.jsonl snapshot.jsonl", ""},
		{"row 2 with links", dir{journalOldName: journalText(1, 5), journalName: journalText(1, 5), journalTempName: junk},
			5, "journal.jsonl", ""},
		{"a copy of row 2 with links, the journal first", dir{journalOldName: journalText(1, 5),
			journalName: journalText(1, 3) + `{"seq":4`}, 5, "journal.jsonl", ""},
		{"a copy of row 2 with links, the journal last", dir{journalOldName: journalText(1, 3) + `{"seq":4`,
			journalName: journalText(1, 5)}, 5, "journal.jsonl", ""},
		{"a copy of row 2 with links and zeros at the end, the journal first", dir{journalOldName: journalText(1, 5) + zeros,
			journalName: journalText(1, 3) + zeros + zeros}, 5, "journal.jsonl", ""},
		{"a copy of row 2 with links and zeros at the end, the journal last", dir{journalOldName: journalText(1, 3) + zeros + zeros,
			journalName: journalText(1, 5) + zeros}, 5, "journal.jsonl", ""},
		{"row 3", dir{journalOldName: journalText(1, 5), journalName: journalText(6, 8)},
			8, "journal.jsonl journal.old.jsonl", ""},
		{"row 3 with zeros at the end", dir{journalOldName: journalText(1, 5) + zeros, journalName: journalText(6, 8) + zeros},
			8, "journal.jsonl journal.old.jsonl", ""},
		{"row 3 without new records", dir{journalOldName: journalText(1, 5), journalName: journalText(6, 5)},
			5, "journal.jsonl journal.old.jsonl", ""},
		{"row 4", dir{journalOldName: journalText(3, 5), journalName: journalText(6, 8),
			snapshotName: snapshotText(2), snapshotTemp: junk},
			8, "journal.jsonl journal.old.jsonl snapshot.jsonl", ""},
		{"row 5",
			dir{journalOldName: journalText(1, 5), journalName: journalText(6, 8), snapshotName: snapshotText(7)},
			8, "journal.jsonl snapshot.jsonl", ""},
		{"row 5, the old one is damaged and not needed",
			dir{journalOldName: junk, journalName: journalText(6, 8), snapshotName: snapshotText(5)},
			8, "journal.jsonl snapshot.jsonl", ""},
		{"row 6", dir{journalName: journalText(6, 8), snapshotName: snapshotText(7)},
			8, "journal.jsonl snapshot.jsonl", ""},

		{"format 1", dir{journalName: oldJournal(4, 5), snapshotName: oldSnapshot(3)}, 5, "journal.jsonl snapshot.jsonl", ""},
		{"format 1 before format 2", dir{journalOldName: oldJournal(4, 5), journalName: journalText(6, 8),
			snapshotName: oldSnapshot(3)}, 8, "journal.jsonl journal.old.jsonl snapshot.jsonl", ""},
		{"a journal of another store", dir{journalName: journalOf("ANOTHER", 4, 5), snapshotName: snapshotText(3)},
			0, "", "journal.jsonl, line 1: it is a file of the store ANOTHER, and those before it are of " + testStoreID},
		{"journals of two stores", dir{journalOldName: journalOf("ANOTHER", 1, 5), journalName: journalText(6, 8)},
			0, "", "journal.old.jsonl, line 1: it is a file of the store ANOTHER"},
		{"snapshot with swapped lines", dir{journalName: journalText(1, 5), snapshotName: swapped(snapshotText(3))},
			0, "", "snapshot.jsonl, line 5: the lines before it are not those that were written, or not in their order"},
		{"snapshot without its last line", dir{journalName: journalText(1, 5), snapshotName: withoutLast(snapshotText(3))},
			0, "", "snapshot.jsonl, line 4: the file ends after 3 of 3 lines"},
		{"snapshot alone", dir{snapshotName: snapshotText(3)}, 0, "", "journal.jsonl is missing"},
		{"empty journal file", dir{journalName: ""}, 0, "", "journal.jsonl, line 1: the file is empty"},
		{"empty snapshot file", dir{journalName: journalText(1, 2), snapshotName: ""},
			0, "", "snapshot.jsonl, line 1: the file is empty"},
		{"no snapshot before the journal", dir{journalName: journalText(4, 5)},
			0, "", "journal.jsonl, line 1: the file begins at sequence 4, but what comes before it ends at 0"},
		{"snapshot too old", dir{journalName: journalText(6, 8), snapshotName: snapshotText(3)},
			0, "", "journal.jsonl, line 1: the file begins at sequence 6, but what comes before it ends at 3"},
		{"journal too short", dir{journalName: journalText(1, 2), snapshotName: snapshotText(3)},
			0, "", "journal.jsonl ends at sequence 2, but snapshot.jsonl covers 3"},
		{"gap between journals", dir{journalOldName: journalText(1, 4), journalName: journalText(6, 8)},
			0, "", "journal.jsonl, line 1: the file begins at sequence 6"},
		{"overlapping journals", dir{journalOldName: journalText(1, 6), journalName: journalText(6, 8)},
			0, "", "journal.jsonl, line 1: the file begins at sequence 6"},
		{"old journal torn", dir{journalOldName: journalText(1, 5) + `{"seq":6`, journalName: journalText(6, 8)},
			0, "", "journal.old.jsonl, line 7: the line is incomplete"},
		{"old journal torn in row 2", dir{journalOldName: journalText(1, 5) + `{"seq":6`},
			0, "", "journal.old.jsonl, line 7: the line is incomplete"},
		{"zeros in place of the old journal's last record", dir{journalOldName: journalText(1, 4) + zeros,
			journalName: journalText(6, 8)}, 0, "", "journal.jsonl, line 1: the file begins at sequence 6"},
		{"zeros at the end of the snapshot", dir{journalName: journalText(1, 5), snapshotName: snapshotText(3) + zeros},
			0, "", "snapshot.jsonl, line 6: there are more lines than the header says"},
		{"snapshot torn",
			dir{journalName: journalText(1, 5), snapshotName: strings.TrimSuffix(snapshotText(3), "\n")},
			0, "", "snapshot.jsonl, line 5: the line is incomplete"},
		{"snapshot too short",
			dir{journalName: journalText(1, 5), snapshotName: snapshotText(3)[:snapshotHeaderSize]},
			0, "", "snapshot.jsonl, line 1: the file ends after 0 of 3 lines"},
		{"snapshot too long",
			dir{journalName: journalText(1, 5), snapshotName: snapshotText(3) + string(sumLine([]byte(`{"n":4`)))},
			0, "", "snapshot.jsonl, line 6: there are more lines than the header says"},
		{"names mixed up", dir{journalName: snapshotText(3)},
			0, "", "journal.jsonl, line 1: it is not the header of a journal"},
		{"names mixed up too", dir{journalName: journalText(1, 5), snapshotName: journalText(1, 5)},
			0, "", "snapshot.jsonl, line 1: it is not the header of a snapshot"},
		{"record missing", dir{journalName: journalText(1, 2) + string(appendRecord(nil, 4, 0, testBody(4)))},
			0, "", "journal.jsonl, line 4: sequence 4 where 3 was expected"},
		{"newer journal", dir{journalName: `{"format":3,"what":"ever"}` + "\n"},
			0, "", "journal.jsonl has format 3, and this version of stepwell reads formats up to 2"},
		{"newer snapshot", dir{journalName: journalText(1, 2), snapshotName: `{"format":3}` + "\n"},
			0, "", "snapshot.jsonl has format 3, and this version of stepwell reads formats up to 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, after, err := tryOpen(t, tt.files)
			if tt.err != "" {
				checkRefused(t, err, tt.err, tt.files, after)
				return
			}
			if err != nil {
				t.Fatalf("open: %v", err)
			}
			if got := uint64(len(g.snapshot) + len(g.seqs)); got != tt.last {
				t.Errorf("lines read: got %d; want %d", got, tt.last)
			}
			checkContents(t, g, tt.last)
			if got := fileNames(after); got != tt.after {
				t.Errorf("files: got %s; want %s", got, tt.after)
			}
		})
	}
}

// swapped returns a snapshot with its second and third line in each other's place.
func swapped(snapshot string) string {
	lines := strings.SplitAfter(snapshot, "\n")
	lines[1], lines[2] = lines[2], lines[1]
	return strings.Join(lines, "")
}

func withoutLast(snapshot string) string {
	lines := strings.SplitAfter(snapshot, "\n")
	return strings.Join(lines[:len(lines)-2], "")
}

// checkRefused checks for an error that says where, and for unchanged files.
func checkRefused(t *testing.T, err error, want string, before, after map[string]string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), testDir) {
		t.Errorf("open: got error %v; want %q and the directory", err, want)
	}
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s was changed", name)
		}
	}
}

// fileNames lists the files.
func fileNames(files map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(files)), " ")
}

// TestRecoveryJournalCutAtEveryByte checks at every length, whose last part is one group, that the complete lines count,
// with a last one that lacks nothing but its newline, and that the rest is cut off and reported: with zeros after it, with
// another byte in these, with a newline there, or without.
func TestRecoveryJournalCutAtEveryByte(t *testing.T) {
	t.Parallel()
	text := journalText(4, 6)
	for seq := uint64(7); seq <= 9; seq++ {
		text = string(appendRecord([]byte(text), seq, seq-7, testBody(seq)))
	}
	header := strings.IndexByte(text, '\n') + 1
	zeros := strings.Repeat("\x00", 300)
	counted := [...]int{0, 300, 601, 301, 302} // bytes of the tails below, but for zeros behind a newline
	for n := 0; n <= len(text); n += size(5, 1) {
		for kind, tail := range []string{"", zeros, zeros + "x" + zeros, zeros + "\n" + zeros, zeros + "\n\n"} {
			blank := kind < 2
			files := map[string]string{snapshotName: snapshotText(3), journalName: text[:n] + tail}
			disk := memDiskWith(testDir, files)
			o, logged, g := diskOptions(disk), &logText{}, &gathered{}
			o.log = slog.New(slog.NewTextHandler(logged, nil))
			j, err := openJournal(o, g)
			if n < header {
				checkRefused(t, err, "journal.jsonl, line 1: ", files, disk.files())
				continue
			}
			whole := text[:strings.LastIndexByte(text[:n], '\n')+1]
			if strings.HasPrefix(text[n:], "\n") {
				if !blank { // a record that may have been acknowledged, and something behind it
					checkRefused(t, err, "journal.jsonl, line ", files, disk.files())
					continue
				}
				whole = text[:n+1]
			}
			if err != nil {
				t.Fatalf("cut at %d, tail %d: %v", n, kind, err)
			}
			checkContents(t, g, uint64(2+strings.Count(whole, "\n")))
			if got := disk.files()[journalName]; got != whole {
				t.Errorf("cut at %d, tail %d: the file has %d bytes; want %d", n, kind, len(got), len(whole))
			}
			cut := n + counted[kind] - len(whole)
			if told := strings.Contains(logged.String(), fmt.Sprint("bytes=", max(cut, 1))); told != (n > len(whole) || !blank) {
				t.Errorf("cut at %d, tail %d: log %q; want %d bytes reported", n, kind, logged, cut)
			}
			last := mustStore(t, j, 2)
			mustClose(t, j)
			j, g = mustOpen(t, diskOptions(disk))
			checkContents(t, g, last)
			mustClose(t, j)
		}
	}
}

func TestRecoverySnapshotCutAtEveryByte(t *testing.T) {
	text := snapshotText(3)
	for n := range len(text) {
		files := map[string]string{snapshotName: text[:n], journalName: journalText(2, 6)}
		_, after, err := tryOpen(t, files)
		checkRefused(t, err, "snapshot.jsonl, line ", files, after)
	}
}

// TestRecoveryFlippedBytes changes every byte of every file: either it is refused with file and
// line, or nothing is lost.
func TestRecoveryFlippedBytes(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	for name, store := range map[string]map[string]string{
		"row 2": {journalOldName: journalText(3, 6), snapshotName: snapshotText(2)},
		"row 3": {journalOldName: journalText(3, 6), journalName: journalText(7, 10), snapshotName: snapshotText(2)},
		"row 5": {journalOldName: journalText(1, 6), journalName: journalText(7, 10), snapshotName: snapshotText(8)},
	} {
		t.Run(name, func(t *testing.T) {
			for file, text := range store {
				for i := 0; i < len(text); i += size(15, 1) {
					for _, mask := range []byte{1, 0x20, 0x80, text[i] ^ '\n', text[i]} {
						if mask == 0 {
							continue
						}
						b := []byte(text)
						b[i] ^= mask
						checkFlipped(t, store, file, i, string(b))
					}
				}
			}
		})
	}
}

func checkFlipped(t *testing.T, store map[string]string, file string, at int, text string) {
	t.Helper()
	files := map[string]string{}
	for name, old := range store {
		files[name] = old
	}
	files[file] = text
	g, after, err := tryOpen(t, files)
	if err == nil {
		want, _, _ := tryOpen(t, store)
		if !slices.Equal(g.snapshot, want.snapshot) || !slices.Equal(g.records, want.records) {
			t.Errorf("%s, byte %d: the store opens with other records", file, at)
		}
		return
	}
	want := file + ", line "
	if strings.Contains(err.Error(), "has format") {
		want = file + " has format "
	}
	checkRefused(t, err, want, files, after)
}

// TestRecoveryTornGroup checks what a power failure leaves of the last write, by sectors.
func TestRecoveryTornGroup(t *testing.T) {
	stored := journalText(1, 3)
	group, apart := []byte(stored), []byte(stored)
	for seq := uint64(4); seq <= 8; seq++ {
		pad := fmt.Appendf(nil, `"pad":"%s"`, strings.Repeat("z", 700))
		group, apart = appendRecord(group, seq, seq-4, pad), appendRecord(apart, seq, 0, pad)
	}
	start, end := len(stored), len(group)
	boundary := (start/diskSector + 1) * diskSector
	zeroIn := func(text []byte, from, to int) string {
		b := bytes.Clone(text)
		clear(b[from:to])
		return string(b)
	}
	zero := func(from, to int) string { return zeroIn(group, from, to) }
	later, zeros := string(appendRecord(nil, 9, 0, testBody(9))), strings.Repeat("\x00", 1000)
	lastLine := bytes.LastIndexByte(group[:end-1], '\n') + 1
	for _, tt := range []struct {
		name string
		text string
		err  string
		keep int // bytes of the file afterwards
	}{
		{"all of it missing", string(group[:start]), "", start},
		{"all of it zeros", zero(start, end), "", start},
		{"from a sector on zeros", zero(boundary, end), "", start},
		{"ends with a sector", string(group[:boundary]), "", start},
		{"zeros after the end", stored + strings.Repeat("\x00", 5000), "", start},
		{"zeros in the last line", zero(end/diskSector*diskSector, end), "", lastLine},
		{"first sector zeros, the rest of the write after", zero(start, boundary), "", start},
		{"a later sector zeros, the rest of the write after", zero(boundary, boundary+diskSector), "", start},
		{"first sector zeros, a later write after", zero(start, boundary) + later, "line 5: ", 0},
		{"a later sector zeros, a later write after", zero(boundary, boundary+diskSector) + later, "line 5: ", 0},
		{"first sector zeros, other writes after", zeroIn(apart, start, boundary), "line 5: ", 0},
		{"a later sector zeros, other writes after", zeroIn(apart, boundary, boundary+diskSector), "line 5: ", 0},
		{"zeros that are no sector, in the last line", zero(end-100, end-50), "line 9: ", 0},
		{"last line changed", strings.Replace(string(group), "zz\",\"sum", "zy\",\"sum", 5), "line 5: ", 0},
		{"last newline changed", string(group[:end-1]) + "x", "line 9: the line is incomplete", 0},
		{"last newline zero", string(group[:end-1]) + "\x00", "", end},
		{"last newline zero, zeros after the end", string(group[:end-1]) + zeros, "", end},
		{"last newline zero, a newline in the zeros", string(group[:end-1]) + zeros + "\n" + zeros, "line 9: ", 0},
		{"last newline zero, a byte in the zeros", string(group[:end-1]) + zeros + "x" + zeros, "line 9: ", 0},
		{"a newline before the zeros", stored + "\n" + zeros, "", start},
		{"newlines in the zeros, and a record", stored + "\x00\n\n" + string(group[start:]), "line 5: ", 0},
		{"last newline changed, zeros after the end", string(group[:end-1]) + "x" + zeros, "line 9: the line is incomplete", 0},
		{"half a line, zeros after it", string(group[:end-100]) + zeros, "", lastLine},
		{"last line changed, zeros after the end", strings.Replace(string(group), "zz\",\"sum", "zy\",\"sum", 5) + zeros, "line 5: ", 0},
		{"text of another program", stored + "hello\n", "line 5: ", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{journalName: tt.text}
			_, after, err := tryOpen(t, files)
			if tt.err != "" {
				checkRefused(t, err, "journal.jsonl, "+tt.err, files, after)
				return
			}
			if err != nil {
				t.Fatalf("open: %v", err)
			}
			if got := len(after[journalName]); got != tt.keep {
				t.Errorf("bytes kept: got %d; want %d", got, tt.keep)
			}
		})
	}
}

// crashScenario uses a store through two snapshots and one that is given up, stops it, and uses it once more. It
// returns what was acknowledged until the disk died.
func crashScenario(disk *memDisk) (acked uint64, err error) {
	j, err := openJournal(diskOptions(disk), &gathered{})
	if err != nil {
		return 0, err
	}
	defer func() {
		if j != nil {
			j.close()
		}
	}()
	store := func(n int) error {
		seq := appendTest(j, n)
		err := j.wait(context.Background(), seq)
		if err == nil {
			acked = seq
		}
		return err
	}
	abandon := func() error {
		s, err := j.startSnapshot()
		if err == nil {
			s.abort()
		}
		return err
	}
	snapshot := func() error { return writeSnapshot(j) }
	more := func() error { return store(3) }
	again := func() error {
		if err := j.close(); err != nil {
			return err
		}
		j, err = openJournal(diskOptions(disk), &gathered{})
		return err
	}
	steps := []func() error{more, snapshot, more, more, abandon, again, more, snapshot, more, snapshot, again, again, more}
	for _, step := range steps {
		if err := step(); err != nil {
			return acked, err
		}
	}
	return acked, j.close()
}

// TestRecoveryKillPoints turns the machine off at every operation of the
// scenario, then at every operation of the start after it. Whatever the disk
// kept of unsynced data, everything acknowledged must be there.
func TestRecoveryKillPoints(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	random := rand.New(rand.NewPCG(1, 2))
	torn := func(kept, data []byte) []byte {
		if len(data) <= len(kept) || !bytes.HasPrefix(data, kept) {
			return kept
		}
		return data[:len(kept)+random.IntN(len(data)-len(kept)+1)]
	}
	for at := 1; ; at += size(9, 1) {
		disk := newMemDisk()
		disk.dieAt = at
		acked, err := crashScenario(disk)
		name := fmt.Sprintf("killed at operation %d", at)
		checkStarts(t, name+", only what was synced", disk.crash(false, false, nil), acked)
		checkStarts(t, name+", everything seen", disk.crash(true, true, nil), acked)
		checkUsable(t, name+", the machine stayed on", disk.restart(), acked)
		checkUsable(t, name+", names seen, data synced", disk.crash(true, false, nil), acked)
		checkUsable(t, name+", names synced, data seen", disk.crash(false, true, nil), acked)
		checkUsable(t, name+", names seen, data torn", disk.crash(true, true, torn), acked)
		checkUsable(t, name+", names synced, data torn", disk.crash(false, true, torn), acked)
		if err == nil {
			if at < 60 {
				t.Errorf("the scenario took %d operations; want more", at)
			}
			return
		}
	}
}

// checkStarts starts on what a crash left, dying at every operation first.
func checkStarts(t *testing.T, name string, image *memDisk, acked uint64) {
	t.Helper()
	for at := 1; ; at++ {
		disk := image.crash(true, true, nil)
		disk.dieAt = at
		j, err := openJournal(diskOptions(disk), &gathered{})
		if err == nil {
			j.close()
		}
		again := fmt.Sprintf("%s, start killed at %d", name, at)
		checkUsable(t, again, disk.crash(at%2 == 0, at%2 == 0, nil), acked)
		if err == nil || t.Failed() {
			return
		}
	}
}

// checkUsable checks that everything acknowledged is there, and that the store
// works.
func checkUsable(t *testing.T, name string, disk *memDisk, acked uint64) {
	t.Helper()
	g := &gathered{}
	j, err := openJournal(diskOptions(disk), g)
	if err != nil {
		t.Errorf("%s: %v; files %s", name, err, fileNames(disk.files()))
		return
	}
	checkContents(t, g, acked)
	checkKept(t, disk, j.groups.durable())
	last := mustStore(t, j, 1)
	checkKept(t, disk, last)
	if err := writeSnapshot(j); err != nil {
		t.Errorf("%s: snapshot: %v", name, err)
	}
	last = mustStore(t, j, 1)
	mustClose(t, j)
	checkKept(t, disk, last)
}

// checkKept checks that everything that was reported as durable survives a power failure.
func checkKept(t *testing.T, disk *memDisk, last uint64) {
	t.Helper()
	j, g := mustOpen(t, diskOptions(disk.crash(false, false, nil)))
	checkContents(t, g, last)
	mustClose(t, j)
}

func TestRecoveryReadErrors(t *testing.T) {
	for _, name := range []string{snapshotName, journalOldName, journalName} {
		for skip := range 2 {
			disk := memDiskWith(testDir, map[string]string{
				journalOldName: journalText(3, 6), journalName: journalText(7, 10), snapshotName: snapshotText(2)})
			disk.fail(diskFault{op: "read", file: name, skip: skip, err: syscall.EIO})
			_, err := openJournal(diskOptions(disk), &gathered{})
			if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), name) {
				t.Errorf("read of %s fails: got %v; want an error naming it", name, err)
			}
		}
	}
}

// refusing is a loader that refuses one sequence.
type refusing struct {
	gathered
	seq uint64
}

var errRefused = errors.New("no such kind")

func (r *refusing) record(line *checkedLine) error {
	if line.seq == r.seq {
		return errRefused
	}
	return nil
}

func TestRecoveryNamesRefusedRecord(t *testing.T) {
	disk := memDiskWith(testDir, map[string]string{journalName: journalText(1, 5)})
	_, err := openJournal(diskOptions(disk), &refusing{seq: 3})
	if !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "journal.jsonl, line 4: ") {
		t.Errorf("open: got %v; want the loader's error with file and line", err)
	}
}

// FuzzRecovery checks that a start reads good records in order, or refuses,
// whatever the journal holds.
func FuzzRecovery(f *testing.F) {
	text := journalText(1, 4)
	f.Add([]byte(text))
	f.Add([]byte(text[:len(text)-9]))
	f.Add([]byte(text + "\x00\x00\x00\n{}\n"))
	f.Fuzz(func(t *testing.T, tail []byte) {
		g, after, err := tryOpen(t, map[string]string{journalName: text + string(tail)})
		if err != nil {
			if !strings.Contains(err.Error(), "journal.jsonl, line ") {
				t.Errorf("refused without file and line: %v", err)
			}
			return
		}
		if len(g.seqs) < 4 || !strings.HasPrefix(after[journalName], text) {
			t.Errorf("good records were dropped: %d left", len(g.seqs))
		}
	})
}

// wideStore returns a directory with a store of tasks whose first step was completed while a
// snapshot was being written: the journal repeats all that the snapshot's lines have. Each
// step depends on the 99 before it.
func wideStore(t *testing.T, tasks, steps int) (dir string) {
	dir = t.TempDir()
	all := []stepSpec{{name: "s0", callable: "Outside"}}
	for i := 1; i < steps; i++ {
		all = append(all, stepSpec{name: fmt.Sprint("s", i), callable: "builtin:noop"})
		for j := max(0, i-99); j < i; j++ {
			all[i].after = append(all[i].after, all[j].name)
		}
	}
	s := openTestService(t, serviceTest{dir: dir, extra: []string{testTemplate("wide", all...)},
		config: func(c *Config) { c.Store.Sync = "never" }})
	for range tasks {
		mustCreate(t, s, "wide")
	}
	w := must(s.store.journal.startSnapshot())(t)
	s.store.mu.Lock()
	covered, count, figures := w.cut(), len(s.store.tasks.slots), s.store.analytics.freeze()
	s.store.mu.Unlock()
	for _, sl := range slices.Clone(s.store.tasks.slots) {
		mustAct(t, s, sl.live, 0, stepRequest{action: actionComplete, by: "b", reason: "r", result: []byte("1")})
	}
	eventually(t, "all tasks to complete", func() bool { return s.store.counts().tasks[taskComplete] == count })
	noError(t, w.line(appendEventsLine(nil, 0, 0, 0)))
	noError(t, s.store.writeSnapshot(w, count, figures, covered))
	noError(t, w.commit())
	closeTestService(t, s)
	return dir
}

// startBytes returns how many bytes reading a store allocates.
func startBytes(t *testing.T, dir string) uint64 {
	o := diskOptions(nil)
	o.dir, o.fs = dir, osDisk{}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := must(openStore(o, defaultKeptEvents, newVirtualClock(testStart), o.log))(t)
	runtime.ReadMemStats(&after)
	noError(t, s.close())
	return after.TotalAlloc - before.TotalAlloc
}

// TestStartOfWideTasks compares what a start with 6 tasks of many steps allocates with that of
// one with as many steps in small tasks.
func TestStartOfWideTasks(t *testing.T) {
	slowAndSequential(t)
	steps := wire.Size(1000, 10_000)
	wide, small := wideStore(t, 6, steps), wideStore(t, 6*steps/100, 100)
	one, other := startBytes(t, wide), startBytes(t, small)
	t.Logf("6 tasks of %d steps: %d bytes; tasks of 100 steps: %d bytes", steps, one, other)
	if one > 3*other { // many times as much if each record costs a replay
		t.Errorf("6 tasks of %d steps allocate %d bytes; want at most three times the %d of as many steps in small tasks", steps, one, other)
	}
}

// filmedDisk keeps what it holds before and after each change of a name.
type filmedDisk struct {
	*memDisk
	frames []map[string]string // of the files that a start reads
}

// take keeps the present files.
func (d *filmedDisk) take() {
	files := d.files()
	d.frames = append(d.frames, map[string]string{
		snapshotName: files[snapshotName], journalOldName: files[journalOldName], journalName: files[journalName]})
}

func (d *filmedDisk) rename(from, to string) error {
	d.take()
	defer d.take()
	return d.memDisk.rename(from, to)
}

func (d *filmedDisk) remove(name string) error {
	d.take()
	defer d.take()
	return d.memDisk.remove(name)
}

func (d *filmedDisk) link(from, to string) error {
	d.take()
	defer d.take()
	return d.memDisk.link(from, to)
}

// filmStore changes a store between and during snapshots. It returns the tasks as they were at each
// sequence after which the disk was filmed.
func filmStore(t *testing.T, disk *filmedDisk) (states map[uint64]string) {
	t.Helper()
	o, c := diskOptions(nil), newVirtualClock(testStart)
	o.fs = disk
	s := must(openStore(o, defaultKeptEvents, c, o.log))(t)
	ids, tpl := newIDSource(c, &[32]byte{}), mustParseTemplate(t, storyTemplates[1])
	states = map[uint64]string{0: ""}
	apply := func(f func(c *change) error) {
		t.Helper()
		noError(t, s.journal.wait(t.Context(), must(s.update(f))(t)))
		states[s.seq] = taskLines(t, s)
		disk.take()
	}
	disk.take()
	for range 4 {
		var open *task
		apply(func(c *change) (err error) {
			by := &creation{template: tpl.hash, context: []byte("{}")}
			open, err = c.create(&record{kind: recCreated, task: ids.reserve(tpl.ids()), created: by}, tpl)
			return err
		})
		w := must(s.journal.startSnapshot())(t)
		noError(t, createEnded(t, s, ids.reserve(tpl.ids()), tpl))
		states[s.seq] = taskLines(t, s)
		disk.take()
		s.mu.Lock()
		covered, count, figures, events := w.cut(), len(s.tasks.slots), s.analytics.freeze(), s.events.linesLocked()
		s.mu.Unlock()
		apply(func(c *change) error {
			return c.append(open, &record{kind: recRan, step: 0, startedAt: c.now, end: &ending{success: true}})
		})
		noError(t, eachOf(events, w.line))
		noError(t, s.writeSnapshot(w, count, figures, covered))
		noError(t, w.commit())
		disk.take()
	}
	noError(t, s.close())
	return states
}

// taskLines returns the lines of all tasks.
func taskLines(t *testing.T, s *store) string {
	t.Helper()
	var all strings.Builder
	noError(t, s.eachLine(len(s.tasks.slots), func(line []byte) error {
		fmt.Fprintf(&all, "%s\n", line)
		return nil
	}))
	return strings.ReplaceAll(all.String(), `,"initiator":"","source":"","reason":""`, "") // until it is written again
}

// tornCopies returns every directory that a program can have made that lists the names and then reads one file
// after the other, in any order, while the disk went through its frames. Each comes with the first frame
// after which it can have begun.
func tornCopies(frames []map[string]string) map[[3]string]int {
	names := [3]string{snapshotName, journalOldName, journalName}
	copies := map[[3]string]int{}
	for began, listed := range frames {
		read := func(name, frame int) string {
			if listed[names[name]] == "" {
				return ""
			}
			return frames[frame][names[name]]
		}
		for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			for first := began; first < len(frames); first++ {
				for second := first; second < len(frames); second++ {
					for third := second; third < len(frames); third++ {
						var c [3]string
						for i, frame := range []int{first, second, third} {
							c[order[i]] = read(order[i], frame)
						}
						copies[c] = began // the last one in which it can have begun
					}
				}
			}
		}
	}
	return copies
}

// TestTornCopies starts with every copy that can be made file by file beside a running store: it is refused with
// what to do, or has the store of one moment since the copy began, and continues from there.
func TestTornCopies(t *testing.T) {
	t.Parallel()
	wire.Long(t)
	disk := &filmedDisk{memDisk: newMemDisk()}
	states := filmStore(t, disk)
	frames := slices.CompactFunc(disk.frames, maps.Equal)
	refused := map[string]bool{}
	copies := tornCopies(frames)
	for files, began := range copies {
		image := memDiskWith(testDir, nil)
		for i, name := range []string{snapshotName, journalOldName, journalName} {
			if files[i] != "" {
				image.names[testDir+"/"+name] = newMemNode([]byte(files[i]), []byte(files[i]))
			}
		}
		c := newVirtualClock(testStart)
		s, err := openStore(diskOptions(image), defaultKeptEvents, c, diskOptions(image).log)
		if err != nil {
			if !strings.Contains(err.Error(), tornCopy) {
				t.Fatalf("got %v; want it to say what to do", err)
			}
			refused[strings.Fields(err.Error())[4]] = true
			continue
		}
		least := uint64(0)
		for seq := range states {
			if strings.Contains(frames[began][journalName]+frames[began][journalOldName], fmt.Sprintf("\n{\"seq\":%d,", seq)) {
				least = max(least, seq)
			}
		}
		if got, ok := states[s.seq]; !ok || got != taskLines(t, s) || s.seq < least {
			t.Fatalf("a copy begun after sequence %d gives sequence %d with\n%s\nwant, of a moment since then,\n%s", least, s.seq, taskLines(t, s), got)
		}
		noError(t, createEnded(t, s, newIDSource(c, nil).reserve(3), mustParseTemplate(t, storyTemplates[1])))
		noError(t, s.close())
	}
	if len(copies) < 100 || len(refused) < 2 {
		t.Errorf("got %d copies, %d ways to refuse them; want more", len(copies), len(refused))
	}
}

// TestPlainCopies starts with copies of a directory that a program made which read the journal up to a byte, and the rest
// later: they are whole, or refused with what they are and up to when store repair keeps all. The second start says the
// same. In the directory itself, and with other bytes in place of the zeros, the same is damage of which nobody knows the cause.
func TestPlainCopies(t *testing.T) {
	t.Parallel()
	o := diskOptions(nil)
	o.dir, o.fs = t.TempDir(), osDisk{}
	j, _ := mustOpen(t, o)
	defer j.close()
	store := func() (text []byte, last uint64) {
		for range 12 {
			last = lastAppended(j) + 1
			j.groups.append(last, fmt.Appendf(nil, `"at":%d,"kind":"test","pad":"%s"`, 1_700_000_000_000_000+last, strings.Repeat("x", 150)))
			noError(t, j.wait(t.Context(), last))
		}
		return readFile(t, filepath.Join(o.dir, journalName)), last
	}
	first, covered := store()
	later, all := store()
	lock := string(readFile(t, filepath.Join(o.dir, lockName)))
	start := func(dir, lock string, journal []byte) (last uint64, err error) {
		t.Helper()
		writeFile(t, filepath.Join(dir, journalName), journal)
		if lock != "" {
			writeFile(t, filepath.Join(dir, lockName), []byte(lock))
		}
		o := o
		o.dir = dir
		j, err := openJournal(o, blindLoader{})
		if err == nil {
			last = j.groups.durable()
			mustClose(t, j)
		}
		return last, err
	}
	refused, end := 0, int64(len(trimZeros(first)))
	for at := int64(0); at < int64(len(later)); at += diskSector + 3 { // anywhere, as where the file once ended
		journal, dir := append(first[:at:at], later[at:]...), t.TempDir()
		last, err := start(dir, lock, journal)
		if err == nil {
			if last != covered && last != all {
				t.Errorf("read up to %d, and the rest later: got sequence %d; want %d or %d", at, last, covered, all)
			}
			continue
		}
		refused++
		want := fmt.Sprintf(`zeros, and later records behind them: this directory is a plain copy of one that a service was using; `+
			`"stepwell store repair" keeps everything up to sequence %d of 2023-11-14T22:13:20.0000%dZ`, covered, covered)
		if _, again := start(dir, "", journal); !strings.Contains(err.Error(), want) || again == nil || again.Error() != err.Error() {
			t.Fatalf("read up to %d, and the rest later: got %v, then %v; want %s", at, err, again, want)
		}
		self, _ := o.fs.identify(dir)
		for _, tt := range []struct{ name, lock string }{
			{"the directory itself", fmt.Sprintf("17\n%v\n", self)}, {"a lock of an earlier version", "17\n"},
		} {
			if _, err := start(dir, tt.lock, journal); err == nil || strings.Contains(err.Error(), "plain copy") {
				t.Errorf("%s: got %v; want it refused, and no cause", tt.name, err)
			}
		}
		journal[end+1] = 'x'
		if _, err := start(t.TempDir(), lock, journal); at < end+diskSector && (err == nil || strings.Contains(err.Error(), "plain copy")) {
			t.Errorf("with another byte in the zeros: got %v; want it refused, and no cause", err)
		}
	}
	if refused < 3 {
		t.Errorf("%d copies were refused; want more", refused)
	}
}

// endingDisk ends a context at the second read of a file.
type endingDisk struct {
	*memDisk
	name  string
	reads int
	end   context.CancelFunc
}

type endingFile struct {
	diskFile
	disk *endingDisk
}

func (d *endingDisk) open(name string) (diskFile, error) {
	f, err := d.memDisk.open(name)
	if err == nil && strings.HasSuffix(name, d.name) {
		return endingFile{f, d}, nil
	}
	return f, err
}

func (f endingFile) Read(p []byte) (int, error) {
	if f.disk.reads++; f.disk.reads == 2 {
		f.disk.end()
	}
	return f.diskFile.Read(p)
}

// TestStartEnds ends a start while it reads the journal or the snapshot: it stops soon, changes
// nothing, and gives the directory back.
func TestStartEnds(t *testing.T) {
	t.Parallel()
	files := map[string]string{snapshotName: snapshotText(20_000), journalName: journalText(20_001, 40_000)}
	for name := range files {
		disk := &endingDisk{memDisk: memDiskWith(testDir, files), name: name}
		o, g := diskOptions(nil), &gathered{}
		o.fs = disk
		o.until, disk.end = context.WithCancel(t.Context())
		_, err := openJournal(o, g)
		if !errors.Is(err, context.Canceled) || disk.locked || disk.ops > 2 { // which are mkdir and lock
			t.Errorf("%s: got error %v, locked %v, %q; want an untouched directory", name, err, disk.locked, disk.log)
		}
		if n := len(g.snapshot) + len(g.seqs); n == 40_000 || disk.reads > 3 {
			t.Errorf("%s: %d lines and records were read by %d reads; want an end at once", name, n, disk.reads)
		}
	}
}

const (
	testDir     = "/data"
	testStoreID = "TESTSTORETESTSTORETESTSTOR" // of the stores that tests make
)

// testFailureKey names the failure groups of these stores.
var testFailureKey = failureKey([]byte("the key of stores of tests is it"))

// countingLoader is a loader that only counts lines.
type countingLoader struct{ lines int }

func (c *countingLoader) begin(*storeHeader, int) {}

func (c *countingLoader) snapshotLine(*checkedLine) error { c.lines++; return nil }

func (c *countingLoader) record(*checkedLine) error { c.lines++; return nil }

// BenchmarkRecovery reads a snapshot of 1,000,000 lines of 900 bytes from the
// system's cache.
func BenchmarkRecovery(b *testing.B) {
	const lines, size = 1_000_000, 900
	disk, dir := osDisk{}, b.TempDir()
	o := diskOptions(nil)
	o.dir, o.fs = dir, disk
	j := must(openJournal(o, &gathered{}))(b)
	line := append([]byte(`{"pad":"`), bytes.Repeat([]byte("x"), size-len(sumTail)-10)...)
	line = append(line, '"')
	s := must(j.startSnapshot())(b)
	for range lines {
		noError(b, s.line(line))
	}
	noError(b, s.commit())
	noError(b, j.close())
	info := must(os.Stat(filepath.Join(dir, snapshotName)))(b)
	b.SetBytes(info.Size())
	b.ReportAllocs()
	for b.Loop() {
		c := &countingLoader{}
		r := &recovery{disk: disk, dir: dir, loader: c}
		if err := r.read(); err != nil || c.lines != lines {
			b.Fatalf("read %d lines: %v", c.lines, err)
		}
	}
}

// TestLineReader reads lines of every length, some longer than a block, and stops early.
func TestLineReader(t *testing.T) {
	text, want := unevenLines(800, 9000, lineBlockSize*2)
	for _, end := range []int{len(text), len(text) - 1} {
		s := &journalScanner{src: bytes.NewReader(text[:end])}
		if _, _, err := s.next(); err != nil {
			t.Fatal(err)
		}
		r := readAhead(s, (*lineBlock).stored)
		for i := 1; ; i++ {
			l, err := r.next()
			if err == io.EOF && i == len(want) && r.end == int64(end) && r.number == len(want) {
				break
			}
			if err != nil || !bytes.Equal(l.text, want[i]) || l.whole != (i < len(want)-1 || end == len(text)) {
				t.Fatalf("line %d of %d at %d: got error %v", i, r.number, r.end, err)
			}
		}
		r.stop()
	}
	r := readAhead(&journalScanner{src: bytes.NewReader(text)}, (*lineBlock).stored)
	must(r.next())(t)
	r.stop() // ends its goroutine
}

// Faults in the files of a store. After each, no acknowledged change is lost and none is
// invented, or the start is refused and the damage is named.

// droppingStore returns the files of a store that dropped tasks before and
// after its snapshot.
func droppingStore(t *testing.T) map[string]string {
	t.Helper()
	disk := newMemDisk()
	o := serviceTest{dir: testDir, disk: disk, clock: newVirtualClock(testStart), extra: storyTemplates, config: retaining(2)}
	s := openTestService(t, o)
	for i := range 8 {
		mustCreate(t, s, "noop", fmt.Sprintf(`"idempotency_key":"k%d"`, i%4))
		if i == 3 {
			mustCreate(t, s, "pair")
			noError(t, s.store.snapshot())
		}
	}
	closeTestService(t, s)
	files := disk.files()
	delete(files, lockName)
	return files
}

// reopened returns the tasks that a store keeps when it is opened from files.
func reopened(t *testing.T, files map[string]string) (ids []uuid, err error) {
	t.Helper()
	return keptOn(t, memDiskWith(testDir, files))
}

func keptOn(t *testing.T, disk *memDisk) (ids []uuid, err error) {
	t.Helper()
	c := newVirtualClock(testStart)
	s, err := openStore(diskOptions(disk), defaultKeptEvents, c, diskOptions(disk).log)
	if err != nil {
		return nil, err
	}
	defer s.close()
	s.mu.Lock()
	checkRetention(t, s)
	s.mu.Unlock()
	return kept(&service{store: s}), nil
}

// keptAfter returns the tasks that the complete records of a journal give, on top of a snapshot.
func keptAfter(t *testing.T, base []uuid, covered uint64, journal string) []uuid {
	t.Helper()
	ids := slices.Clone(base)
	for line := range strings.Lines(journal) {
		var r struct {
			Seq        uint64
			Task, Kind string
		}
		if json.Unmarshal([]byte(line), &r) != nil || r.Seq <= covered { // which the last may be but for its newline
			continue
		}
		id, _ := parseUUID(r.Task)
		switch r.Kind {
		case "created":
			ids = append(ids, id)
		case "dropped":
			ids = slices.DeleteFunc(ids, func(other uuid) bool { return other == id })
		}
	}
	return ids
}

// TestDropsCutAtEveryByte checks that a journal of any length gives the tasks that were kept
// after its last complete record.
func TestDropsCutAtEveryByte(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	files := droppingStore(t)
	journal := files[journalName]
	header := strings.IndexByte(journal, '\n') + 1
	files[journalName] = journal[:header]
	base, err := reopened(t, files)
	if err != nil || len(base) != 3 {
		t.Fatalf("the snapshot keeps %v, %v; want 3 tasks", base, err)
	}
	for n := header; n <= len(journal); n += size(5, 1) {
		files[journalName] = journal[:n]
		got, err := reopened(t, files)
		if want := keptAfter(t, base, 0, journal[:n]); err != nil || !slices.Equal(got, want) {
			t.Fatalf("cut at byte %d: got %v, %v; want %v", n, got, err, want)
		}
	}
}
