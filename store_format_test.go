package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

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

// TestLineScannerKeepsLines checks that lines of all lengths are not changed by
// later reads.
func TestLineScannerKeepsLines(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	text, want := unevenLines(400, 4000, lineChunk*2)
	for _, known := range []int64{int64(len(text)), 0, 1 << 40} {
		s := &journalScanner{src: bytes.NewReader(text), left: known}
		var got [][]byte
		for line, whole, err := s.next(); err == nil; line, whole, err = s.next() {
			if !whole {
				t.Errorf("line %d has no end", s.number)
			}
			got = append(got, line)
		}
		if !slices.EqualFunc(got, want, bytes.Equal) || s.end != int64(len(text)) || s.number != len(want) {
			t.Errorf("lines: got %d, %d bytes; want %d, %d bytes, all equal", len(got), s.end, len(want), len(text))
		}
	}
}

// TestStoreFilesAreJSON checks that all lines are JSON, because people read them with jq.
func TestStoreFilesAreJSON(t *testing.T) {
	disk := newMemDisk()
	j, _ := mustOpen(t, diskOptions(disk))
	mustStore(t, j, 3)
	noError(t, writeSnapshot(j))
	mustStore(t, j, 2)
	mustClose(t, j)
	files := disk.files()
	for name, want := range map[string]string{
		snapshotName: `{"format":2,"snapshot":"stepwell","store":"` + testStoreID + `","failure_key":"` + testFailureKey.String() + `","at":"2023-11-14T22:13:20.000000Z","seq":3,"count":3 `,
		journalName:  `{"format":2,"journal":"stepwell","store":"` + testStoreID + `","failure_key":"` + testFailureKey.String() + `","from":4,"sum":"`,
	} {
		if !strings.HasPrefix(files[name], want) {
			t.Errorf("%s: got %.100s; want %s…", name, files[name], want)
		}
		for line := range strings.Lines(files[name]) {
			if !json.Valid([]byte(line)) {
				t.Errorf("%s: not JSON: %s", name, line)
			}
		}
	}
	if got := strings.IndexByte(files[snapshotName], '\n') + 1; got != snapshotHeaderSize {
		t.Errorf("header of the snapshot: got %d bytes; want %d", got, snapshotHeaderSize)
	}
	if got := len(snapshotHeader(storeOrigin{testStoreID, testFailureKey}, 1, 1<<64-1, 1<<64-1)); got != snapshotHeaderSize {
		t.Errorf("greatest header of a snapshot: got %d bytes; want %d", got, snapshotHeaderSize)
	}
}
