package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

const (
	testDir     = "/data"
	testStoreID = "TESTSTORETESTSTORETESTSTOR" // of the stores that tests make
)

// testFailureKey names the failure groups of these stores.
var testFailureKey = failureKey([]byte("the key of stores of tests is it"))

// sumLine ends a line.
func sumLine(line string) string { return string(appendSum([]byte(line), 0)) }

// compactedText returns a compacted part that covers the records up to one, with a line for each.
func compactedText(covered uint64) string {
	var b bytes.Buffer
	w := &lineWriter{out: &b}
	w.line(appendMembers(nil, &storeHeader{format: storeFormat, store: testStoreID, key: testFailureKey, seq: covered}, (*storeHeader).members))
	for n := range covered {
		w.line(fmt.Appendf(nil, `{"n":%d`, n+1))
	}
	w.end()
	return b.String()
}

// recordsText returns records, each written by itself, or all together.
func recordsText(first, last uint64, together bool) string {
	var b []byte
	for seq := first; seq <= last; seq++ {
		b = appendRecord(b, seq, uint64(boolCount(together))*(seq-first), testBody(seq))
	}
	return string(b)
}

// storeText returns the file of a store.
func storeText(covered, last uint64) string {
	return compactedText(covered) + recordsText(covered+1, last, false)
}

// blindLoader takes everything.
type blindLoader struct{}

func (blindLoader) begin(*storeHeader, int) error { return nil }
func (blindLoader) compacted(*checkedLine) error  { return nil }
func (blindLoader) record(*checkedLine) error     { return nil }

// tryOpen opens a store with these files, and returns what it read and the files afterwards.
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

// TestDirectoryStates starts on what may lie in a directory.
func TestDirectoryStates(t *testing.T) {
	type dir = map[string]string
	swapped := func(text string, i, k int) string {
		lines := strings.SplitAfter(text, "\n")
		lines[i], lines[k] = lines[k], lines[i]
		return strings.Join(lines, "")
	}
	without := func(text string, i int) string {
		lines := strings.SplitAfter(text, "\n")
		return strings.Join(slices.Delete(lines, i, i+1), "")
	}
	const path = testDir + "/store.jsonl"
	life := func(id string, from uint64) string { return sumLine(fmt.Sprintf(`{"life":"%s","from":%d`, id, from)) }
	for _, tt := range []struct {
		name  string
		files dir
		last  uint64 // sequence after which the store continues
		err   string // part of it; "" when the store opens
	}{
		{"nothing", dir{}, 0, ""},
		{"died making the first file", dir{compactName: "{"}, 0, ""},
		{"records", dir{storeName: storeText(0, 5)}, 5, ""},
		{"a compacted part and records", dir{storeName: storeText(3, 5)}, 5, ""},
		{"a compacted part alone", dir{storeName: storeText(3, 3)}, 3, ""},
		{"a compaction under way", dir{storeName: storeText(3, 5), compactName: storeText(5, 5)}, 5, ""},
		{"an import that was replaced", dir{storeName: storeText(3, 5), importName: "{"}, 5, ""},
		{"lives", dir{storeName: compactedText(3) + life("0000000a", 4) + recordsText(4, 6, true) + life("0000000b", 7) + recordsText(7, 8, false)}, 8, ""},

		{"an interrupted import", dir{importName: "{"}, 0, "an import was interrupted: run the import again, or remove " + testDir + "/import.jsonl.new"},
		{"files of format 2", dir{"snapshot.jsonl": ""}, 0, "snapshot.jsonl is of format 1 or 2, and this version of stepwell reads format 3"},
		{"an earlier format", dir{storeName: "{\"format\":2,\"journal\":\"stepwell\"}\n"}, 0, "line 1 (byte 0): it has format 2, and this version of stepwell reads format 3"},
		{"a newer format", dir{storeName: "{\"format\":4,\"what\":\"ever\"}\n"}, 0, "line 1 (byte 0): it has format 4, and this version of stepwell reads format 3"},
		{"an empty file", dir{storeName: ""}, 0, "store.jsonl, line 0 (byte 0): the file is empty"},
		{"no header", dir{storeName: recordsText(1, 3, false)}, 0, "line 1 (byte 0): it is not the header of a store"},
		{"a header of another spelling", dir{storeName: "{\"format\":3}\n{\"end\":{}}\n"}, 0,
			"line 1 (byte 0): it is not a line of this format; it is the header: sed '1s/,\"sum\".*/}/' " + path},
		{"cut off before its end", dir{storeName: without(compactedText(3), 4)}, 0, `line 4 (byte 206): the line {"end":…} is missing: the file was cut off`},
		{"a lost line", dir{storeName: without(storeText(3, 5), 2)}, 0,
			"line 4 (byte 206): it counts 3 lines before it, and there are 2; stepwell store import --data NEW " + path + " makes a store of the rest, and says what it lacks"},
		{"a lost end", dir{storeName: without(storeText(3, 5), 4)}, 0, `line 5 (byte 231): the line {"end":…} is missing before it`},
		{"a record missing", dir{storeName: without(storeText(0, 5), 4)}, 0, "line 5 (byte 300): record 4 where 3 was expected; " +
			"the records before it are whole: head -n 4 " + path + " > NEW/store.jsonl keeps them"},
		{"records in another order", dir{storeName: swapped(storeText(0, 5), 3, 4)}, 0, "line 4 (byte 242): record 3 where 2 was expected"},
		{"a record twice", dir{storeName: storeText(0, 5) + recordsText(5, 5, false)}, 0, "record 5 where 6 was expected"},
		{"a life twice", dir{storeName: compactedText(0) + life("0000000a", 1) + recordsText(1, 1, false) + life("0000000b", 2) +
			recordsText(2, 2, false) + life("0000000a", 4) + recordsText(3, 3, false)}, 0, "there are two lives 0000000a"},
		{"a life that begins later", dir{storeName: compactedText(3) + life("0000000a", 5) + recordsText(4, 6, true)}, 0,
			"life 0000000a begins with record 5, after record 3"},
		{"a line of no kind among the records", dir{storeName: storeText(0, 2) + sumLine(`{"x":1`)}, 0, "it is neither a record nor the begin of a life"},
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
			if got := uint64(len(g.lines) + len(g.seqs)); got != tt.last {
				t.Errorf("lines read: got %d; want %d", got, tt.last)
			}
			checkContents(t, g, tt.last)
			if got := fileNames(after); got != storeName {
				t.Errorf("files: got %s; want %s", got, storeName)
			}
		})
	}
}

// TestFileCutAtEveryByte checks at every length, whose last part is one group, that the complete records count, and that
// the rest is cut off and reported. In the compacted part, every cut is refused.
func TestFileCutAtEveryByte(t *testing.T) {
	t.Parallel()
	head := compactedText(3)
	text := head + recordsText(4, 6, false) + recordsText(7, 9, true)
	for n := 0; n <= len(text); n += size(5, 1) {
		for _, tail := range []string{"", strings.Repeat("\x00", 300), "x\n\n"} {
			files := map[string]string{storeName: text[:n] + tail}
			disk := memDiskWith(testDir, files)
			o, logged, g := diskOptions(disk), &logText{}, &gathered{}
			o.log = slog.New(slog.NewTextHandler(logged, nil))
			j, err := openJournal(o, g)
			if n < len(head) {
				checkRefused(t, err, "store.jsonl, line ", files, disk.files())
				continue
			}
			if err != nil {
				t.Fatalf("cut at %d, tail %q: %v", n, tail, err)
			}
			whole := text[:strings.LastIndexByte(text[:n], '\n')+1]
			checkContents(t, g, uint64(strings.Count(whole, "\n")-2))
			if got := disk.files()[storeName]; got != whole {
				t.Errorf("cut at %d, tail %q: the file has %d bytes; want %d", n, tail, len(got), len(whole))
			}
			cut := n + len(tail) - len(whole)
			if told := strings.Contains(logged.String(), fmt.Sprintf("bytes=%d ", cut)); told != (cut > 0) {
				t.Errorf("cut at %d, tail %q: log %q; want %d bytes reported", n, tail, logged, cut)
			}
			last := mustStore(t, j, 2)
			mustClose(t, j)
			j, g = mustOpen(t, diskOptions(disk))
			checkContents(t, g, last)
			mustClose(t, j)
		}
	}
}

// TestFlippedBytes changes every byte of a file: it is refused with its line, or nothing is lost but the last write.
func TestFlippedBytes(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	text := storeText(3, 6) + recordsText(7, 9, true)
	last := strings.Index(text, `{"seq":7,`)
	for i := 0; i < len(text); i += size(15, 1) {
		for _, mask := range []byte{1, 0x20, 0x80, text[i] ^ '\n', text[i]} {
			if mask == 0 {
				continue
			}
			b := []byte(text)
			b[i] ^= mask
			files := map[string]string{storeName: string(b)}
			g, after, err := tryOpen(t, files)
			if err != nil {
				checkRefused(t, err, "store.jsonl, line ", files, after)
			} else if checkContents(t, g, 6); i < last {
				t.Errorf("byte %d: the store opens", i)
			}
		}
	}
}

// TestTornWrites checks what a power failure leaves of the last write, by sectors, and what is damage.
func TestTornWrites(t *testing.T) {
	const sector = 512
	stored := storeText(0, 3)
	group, apart := []byte(stored), []byte(stored)
	for seq := uint64(4); seq <= 8; seq++ {
		pad := fmt.Appendf(nil, `"pad":"%s"`, strings.Repeat("z", 700))
		group, apart = appendRecord(group, seq, seq-4, pad), appendRecord(apart, seq, 0, pad)
	}
	start, end := len(stored), len(group)
	boundary := (start/sector + 1) * sector
	zero := func(text []byte, from, to int) string {
		b := bytes.Clone(text)
		clear(b[from:to])
		return string(b)
	}
	life := sumLine(`{"life":"0000000a","from":9`)
	later := string(appendRecord(nil, 9, 0, testBody(9)))
	lastLine := bytes.LastIndexByte(group[:end-1], '\n') + 1
	for _, tt := range []struct {
		name string
		text string
		err  string
		keep int // bytes of the file afterwards
	}{
		{"all of it missing", string(group[:start]), "", start},
		{"all of it zeros", zero(group, start, end), "", start},
		{"from a sector on zeros", zero(group, boundary, end), "", start},
		{"ends with a sector", string(group[:boundary]), "", start},
		{"zeros after the end", stored + strings.Repeat("\x00", 5000), "", start},
		{"zeros in the last line", zero(group, end/sector*sector, end), "", lastLine},
		{"first sector zeros, the rest of the write after", zero(group, start, boundary), "", start},
		{"a later sector zeros, the rest of the write after", zero(group, boundary, boundary+sector), "", start},
		{"first sector zeros, a later write after", zero(group, start, boundary) + later, "line 6 ", 0},
		{"a later sector zeros, a later write after", zero(group, boundary, boundary+sector) + later, "line 6 ", 0},
		{"a later sector zeros, another process after", zero(group, boundary, boundary+sector) + life, "line 6 ", 0},
		{"first sector zeros, other writes after", zero(apart, start, boundary), "line 6 ", 0},
		{"a later sector zeros, other writes after", zero(apart, boundary, boundary+sector), "line 6 ", 0},
		{"a byte of the write before changed", strings.Replace(string(group), `"n":3`, `"n":2`, 1), "line 5 ", 0},
		{"a byte of the last write changed", strings.Replace(string(group), "zz\",\"sum", "zy\",\"sum", 1), "", start},
		{"last newline changed", string(group[:end-1]) + "x", "", lastLine},
		{"last newline missing", string(group[:end-1]), "", lastLine},
		{"text of another program", stored + "hello\n", "", start},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{storeName: tt.text}
			_, after, err := tryOpen(t, files)
			if tt.err != "" {
				checkRefused(t, err, "store.jsonl, "+tt.err, files, after)
				return
			}
			if err != nil {
				t.Fatalf("open: %v", err)
			}
			if got := len(after[storeName]); got != tt.keep {
				t.Errorf("bytes kept: got %d; want %d", got, tt.keep)
			}
		})
	}
}

// TestTailWithoutSyncs expects everything since the last sync of a store that is not synced to be one write.
func TestTailWithoutSyncs(t *testing.T) {
	disk := newMemDisk()
	o := diskOptions(disk)
	o.sync = syncNever
	j, _ := mustOpen(t, o)
	flush := func(sync bool) { noError(t, j.during(func() error { return j.flush(sync) })) }
	mustStore(t, j, 3)
	flush(true)
	for range 5 {
		mustStore(t, j, 2)
		flush(false)
	}
	text := disk.files()[storeName]
	for _, tt := range []struct {
		change string
		last   uint64 // 0 if the start is refused
	}{{`"n":2,`, 0}, {`"n":3,`, 0}, {`"n":4,`, 3}, {`"n":9,`, 8}} {
		_, after, err := tryOpen(t, map[string]string{storeName: strings.Replace(text, tt.change, `"n":0,`, 1)})
		if tt.last == 0 {
			if err == nil {
				t.Errorf("%s changed: the store opens", tt.change)
			}
		} else if got := strings.Count(after[storeName], `{"seq"`); err != nil || got != int(tt.last) {
			t.Errorf("%s changed: got %d records, %v; want %d", tt.change, got, err, tt.last)
		}
	}
	mustClose(t, j)
}

// crashScenario uses a store through three compactions, stops it, and uses it once more. It returns what was
// acknowledged until the disk died.
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
	more := func() error {
		seq := appendTest(j, 3)
		err := j.wait(context.Background(), seq)
		if err == nil {
			acked = seq
		}
		return err
	}
	compact := func() error { return compactTest(j) }
	again := func() error {
		if err := j.close(); err != nil {
			return err
		}
		j, err = openJournal(diskOptions(disk), &gathered{})
		return err
	}
	for _, step := range []func() error{more, compact, more, more, again, more, compact, more, compact, again, again, more} {
		if err := step(); err != nil {
			return acked, err
		}
	}
	return acked, j.close()
}

// TestKillPoints turns the machine off at every operation of the scenario, then at every operation of the start after it.
// Whatever the disk kept of unsynced data, by blocks, everything acknowledged must be there.
func TestKillPoints(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	random := rand.New(rand.NewPCG(1, 2))
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
		for _, block := range []int{512, 4096} {
			lost := func(kept, data []byte) []byte { return someBlocks(random, kept, data, block) }
			checkUsable(t, fmt.Sprintf("%s, blocks of %d lost", name, block), disk.crashAny(func() bool { return random.IntN(2) > 0 }, lost), acked)
		}
		if err == nil {
			if at < 60 {
				t.Errorf("the scenario took %d operations; want more", at)
			}
			return
		}
	}
}

// someBlocks returns what a crash may leave of a file: any of the blocks that were not synced, at any length up to that
// which was seen; a block that was never written reads as zeros.
func someBlocks(random *rand.Rand, kept, data []byte, block int) []byte {
	length := len(data)
	if len(kept) < len(data) && random.IntN(2) == 0 {
		length = len(kept) + random.IntN(len(data)-len(kept)+1)
	}
	left := make([]byte, length)
	copy(left, kept)
	for from := 0; from < length; from += block {
		to := min(from+block, length)
		if random.IntN(2) == 0 {
			copy(left[from:to], data[from:min(to, len(data))])
		}
	}
	return left
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

// checkUsable checks that everything acknowledged is there, and that the store works.
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
	if err := compactTest(j); err != nil {
		t.Errorf("%s: compaction: %v", name, err)
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

func TestReadErrors(t *testing.T) {
	for skip := range 2 {
		disk := memDiskWith(testDir, map[string]string{storeName: storeText(3, 20_000)})
		disk.fail(diskFault{op: "read", file: storeName, skip: skip, err: syscall.EIO})
		_, err := openJournal(diskOptions(disk), &gathered{})
		if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), storeName) {
			t.Errorf("got %v; want an error naming the file", err)
		}
	}
}

// refusing is a loader that refuses one sequence.
type refusing struct {
	gathered
	seq uint64
}

func (r *refusing) record(line *checkedLine) error {
	if line.seq == r.seq {
		return errors.New("no such kind")
	}
	return nil
}

func TestRefusedRecordIsNamed(t *testing.T) {
	disk := memDiskWith(testDir, map[string]string{storeName: storeText(0, 5)})
	_, err := openJournal(diskOptions(disk), &refusing{seq: 3})
	if err == nil || !strings.Contains(err.Error(), "store.jsonl, line 5 (byte 300): no such kind") {
		t.Errorf("open: got %v; want the loader's error with file and line", err)
	}
}

// FuzzStoreFile checks that a start reads good records in order, or refuses, whatever follows the compacted part.
func FuzzStoreFile(f *testing.F) {
	text := storeText(1, 4)
	f.Add([]byte(recordsText(5, 6, true)))
	f.Add([]byte("\x00\x00\x00\n{}\n"))
	f.Fuzz(func(t *testing.T, tail []byte) {
		g, after, err := tryOpen(t, map[string]string{storeName: text + string(tail)})
		if err != nil {
			if !strings.Contains(err.Error(), "store.jsonl, line ") {
				t.Errorf("refused without file and line: %v", err)
			}
			return
		}
		if len(g.seqs) < 3 || !strings.HasPrefix(after[storeName], text) {
			t.Errorf("good records were dropped: %d left", len(g.seqs))
		}
	})
}

// TestStartEnds ends a start while it reads: it stops soon, changes nothing, and gives the directory back.
func TestStartEnds(t *testing.T) {
	t.Parallel()
	disk := memDiskWith(testDir, map[string]string{storeName: storeText(100_000, 200_000)})
	o, loader := diskOptions(disk), &endingLoader{}
	o.until, loader.end = context.WithCancel(t.Context())
	_, err := openJournal(o, loader)
	if !errors.Is(err, context.Canceled) || disk.locked || disk.ops > 3 { // which are mkdir, lock and edit
		t.Errorf("got error %v, locked %v, %q; want an untouched directory", err, disk.locked, disk.log)
	}
	if loader.lines == 200_000 {
		t.Error("all lines were read; want an end at once")
	}
}

// endingLoader ends a context at the first line.
type endingLoader struct {
	lines int
	end   context.CancelFunc
}

func (c *endingLoader) begin(*storeHeader, int) error { return nil }

func (c *endingLoader) compacted(*checkedLine) error {
	c.end()
	c.lines++
	return nil
}

func (c *endingLoader) record(*checkedLine) error { c.lines++; return nil }

// unevenLines returns lines of every length below a limit, and now and then one that is longer than another.
func unevenLines(count, below, long int) (text []byte, lines [][]byte) {
	for i := range count {
		size := i * 13 % below
		if i%197 == 0 {
			size = long + i
		}
		lines = append(lines, bytes.Repeat([]byte{byte('a' + i%26)}, size))
		text = append(append(text, lines[i]...), '\n')
	}
	return text, lines
}

// TestLineReader reads lines of every length, some longer than a block, and stops early.
func TestLineReader(t *testing.T) {
	text, want := unevenLines(800, 9000, lineBlockSize*2)
	for _, end := range []int{len(text), len(text) - 1} {
		r := readAhead(bytes.NewReader(text[:end]), false)
		for i := 0; ; i++ {
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
	r := readAhead(bytes.NewReader(text), false)
	must(r.next())(t)
	r.stop() // ends its goroutine
}

// TestLinesFromOutside reads lines as other programs write them.
func TestLinesFromOutside(t *testing.T) {
	sealed := strings.TrimSuffix(sumLine(`{"task":"x","log":[1,2]`), "\n")
	for _, tt := range []struct{ given, want, fault string }{
		{sealed, sealed, ""},
		{sealed + "\r", sealed, ""},
		{`{"log": [1, 2], "task": "x"}`, `{"task":"x","log":[1,2]}`, ""},
		{"\ufeff" + `{"format":3}`, `{"format":3}`, ""},
		{`{"request":"r","task":"t"}`, `{"request":"r","task":"t"}`, ""},
		{`{"task":"x"}`, `{"task":"x"}`, ""},
		{`{"kind":"ended","seq":3,"task":"x"}`, `{"seq":3,"kind":"ended","task":"x"}`, ""},
		{strings.Replace(sealed, "1,2", "1,3", 1), "", "the checksum does not match: remove the member"},
		{`{"what":"ever"}`, "", "it is of no kind of line that a store has"},
		{`{"format":3} x`, "", "there is something behind the object"},
		{`[1]`, "", "it is not a JSON object"},
		{`{"format":`, "", "unexpected end; each object must be on one line"},
		{strings.TrimSuffix(sumLine(`{"task":"x","log":[{"a`), "\n"), "", `invalid JSON at offset 24: `},
		{strings.TrimSuffix(sumLine(`{"seq":1,"task":"\ud800"`), "\n"), "", `invalid JSON at offset 17: `},
		{"\xff\xfe{\x00", "", "it is UTF-16; want UTF-8"},
	} {
		r := readAhead(strings.NewReader("\n"+tt.given+"\n"), true)
		l, err := r.next()
		noError(t, err)
		if tt.fault != "" && !strings.Contains(l.fault, tt.fault) || tt.fault == "" && (l.fault != "" || string(cutSumIf(l)) != string(cutSumOf(tt.want))) {
			t.Errorf("%q: got %s, fault %q; want %s, %q", tt.given, l.text, l.fault, tt.want, tt.fault)
		}
		if r.number != 2 {
			t.Errorf("%q: got line %d; want 2, after a blank one", tt.given, r.number)
		}
		r.stop()
	}
}

func cutSumIf(l *checkedLine) []byte {
	if l.sealed && l.task == nil {
		return cutSum(bytes.Clone(l.text))
	}
	if l.task != nil {
		return cutSumOf(string(l.text))
	}
	return l.text
}

func cutSumOf(text string) []byte {
	before, _, sealed := strings.Cut(text, `,"sum":"`)
	if !sealed {
		before, _, sealed = strings.Cut(text, `}"sum":"`)
	}
	if sealed {
		return []byte(before + "}")
	}
	return []byte(text)
}

// TestWriteBegan checks where the write of a record began.
func TestWriteBegan(t *testing.T) {
	for _, tt := range []struct {
		before uint64
		body   string
		want   uint64
	}{
		{0, `"n":1`, 100}, {1, `"n":1`, 99}, {99, `"n":1`, 1}, {100, `"n":1`, 0},
		{0, `"n":1,"text":",\"w\":3"`, 100}, {0, `"in":{"a":1,"w":3}`, 100},
	} {
		line := appendRecord(nil, 100, tt.before, []byte(tt.body))
		if got := writeBegan(100, line[:len(line)-1]); got != tt.want {
			t.Errorf("%s: got %d; want %d", line, got, tt.want)
		}
	}
}

// droppingStore returns the file of a store that dropped tasks before and after a compaction.
func droppingStore(t *testing.T) string {
	t.Helper()
	disk := newMemDisk()
	o := serviceTest{dir: testDir, disk: disk, clock: newVirtualClock(testStart), extra: storyTemplates, config: retaining(2)}
	s := openTestService(t, o)
	for i := range 8 {
		mustCreate(t, s, "noop", fmt.Sprintf(`"idempotency_key":"k%d"`, i%4))
		if i == 3 {
			mustCreate(t, s, "pair")
			noError(t, s.store.compact())
		}
	}
	closeTestService(t, s)
	return disk.files()[storeName]
}

// TestStoreFileIsJSON checks that all lines are JSON, because people read them with jq.
func TestStoreFileIsJSON(t *testing.T) {
	text := droppingStore(t)
	if want := `{"format":3,"store":"`; !strings.HasPrefix(text, want) {
		t.Errorf("got %.100s; want %s…", text, want)
	}
	for line := range strings.Lines(text) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
}

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
