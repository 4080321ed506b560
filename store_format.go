package main

// The lines of a store's file, which are also those of every exported state: how they are framed and checked.
//
//	header          {"format":3,"store":"…","failure_key":"…","seq":120,"tasks":40,…,"sum":"…"}
//	compacted part  lines of lineKinds; then {"end":{"lines":57},"sum":"…"}
//	record          {"seq":121, members of the caller ,"w":W,"sum":"…"}
//
// The sum is the CRC-32C, as 8 lower-case hexadecimal digits, of the bytes of the line before `,"sum":"`. Each line ends
// with one newline. "w" says that the W records before this one were not known to be on disk when it was written; it is
// left out if it is 0. Between the records, a line {"life":"…","from":121} begins those of another process.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
)

const (
	storeFormat = 3 // the newest version that is read, and the version written
	sumName     = `,"sum":"`
	sumTail     = sumName + `00000000"}`
	recordHead  = `{"seq":`
	recordWrite = `,"w":`

	// formatCommit is the last commit that reads formats 1 and 2, which were in no release.
	formatCommit = "19a02bb"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendSumTail ends a line whose bytes so far have this sum.
func appendSumTail(dst []byte, sum uint32) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, sumName...)
	for shift := 28; shift >= 0; shift -= 4 {
		dst = append(dst, digits[sum>>shift&15])
	}
	return append(dst, "\"}\n"...)
}

// appendSum ends the line that begins at start of dst, and lacks its closing brace.
func appendSum(dst []byte, start int) []byte {
	return appendSumTail(dst, crc32.Checksum(dst[start:], castagnoli))
}

// appendRecord appends a record with its newline. before is the number of records before it that are not known to be on
// disk.
func appendRecord(dst []byte, seq, before uint64, body []byte) []byte {
	start := len(dst)
	dst = append(dst, recordHead...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, ',')
	dst = append(dst, body...)
	if before > 0 {
		dst = append(dst, recordWrite...)
		dst = strconv.AppendUint(dst, before, 10)
	}
	return appendSum(dst, start)
}

// writeBegan returns the sequence of the first record that may have gone to disk together with that of a good line.
func writeBegan(seq uint64, line []byte) uint64 {
	rest := line[:len(line)-len(sumTail)]
	digits := len(rest) - len(bytes.TrimRight(rest, "0123456789"))
	if before, ok := bytes.CutSuffix(rest[:len(rest)-digits], []byte(recordWrite)); ok && len(before) > 0 {
		if n, err := strconv.ParseUint(string(rest[len(rest)-digits:]), 10, 64); err == nil {
			return seq - min(n, seq)
		}
	}
	return seq
}

// lineFault returns what is wrong with a line (without its newline), or "".
func lineFault(line []byte) string {
	n := len(line) - len(sumTail)
	if n < 1 || line[0] != '{' {
		return "it is not a line of this format"
	}
	var buf [len(sumTail) + 1]byte
	tail := appendSumTail(buf[:0], crc32.Checksum(line[:n], castagnoli))
	if !bytes.Equal(line[n:], tail[:len(sumTail)]) {
		return "the checksum does not match"
	}
	return ""
}

// recordSeq returns the sequence of a record; 0 for another line.
func recordSeq(line []byte) uint64 {
	rest, ok := bytes.CutPrefix(line, []byte(recordHead))
	if !ok {
		return 0
	}
	seq, _ := leadingNumber(rest)
	return uint64(seq)
}

// storeHeader is the first line.
type storeHeader struct {
	format  int
	store   string     // id of the store
	key     failureKey // of its failure groups; zero for none
	seq     uint64     // of the last record in the compacted part
	tasks   int        // lines of tasks that follow
	dropped uint64     // tasks dropped since the store was first made
	lastID  uuid       // the greatest that a task ever took, even of a dropped one
	extent  eventExtent
	clock   clockState // a virtual clock; none without a mode
}

func (h *storeHeader) members(c *memberCoder) {
	number(c, "format", &h.format)
	c.text("store", &h.store)
	c.hex("failure_key", h.key != failureKey{}, h.key[:])
	nonzero(c, "seq", &h.seq)
	nonzero(c, "tasks", &h.tasks)
	nonzero(c, "dropped", &h.dropped)
	c.id("last_id", &h.lastID)
	h.extent.members(c)
	clockMember(c, &h.clock)
	c.sum()
}

// sum passes over the checksum of a line that is read.
func (c *memberCoder) sum() {
	if c.reading {
		c.member("sum")
	}
}

// appendHeader appends the header of a file, without its closing brace.
func appendHeader(dst []byte, h *storeHeader) []byte {
	c := memberCoder{b: append(dst, '{')}
	h.members(&c)
	return c.b
}

// readHeader reads the first line. It checks the format first: the lines of a newer format may be anything.
func readHeader(line []byte) (h storeHeader, err error) {
	var f struct{ Format int }
	switch err := json.Unmarshal(line, &f); {
	case err != nil || f.Format <= 0:
		return h, fmt.Errorf("it is not the header of a store, such as {\"format\":%d}", storeFormat)
	case f.Format < storeFormat:
		return h, oldFormat(fmt.Sprintf("it has format %d", f.Format))
	case f.Format > storeFormat:
		return h, otherFormat(fmt.Sprintf("it has format %d, and this version of stepwell reads formats up to %d", f.Format, storeFormat))
	}
	var c memberCoder
	for c.again(line) {
		h = storeHeader{}
		h.members(&c)
	}
	switch {
	case c.err != nil:
		return h, c.err
	case h.seq > maxStateCount || h.dropped > maxStateCount || h.tasks < 0:
		return h, fmt.Errorf("its numbers must be integers from 0 to %d", maxStateCount)
	}
	return h, checkClock(&h.clock)
}

// maxStateCount is the largest number of a header: every client can hold it, and the store can count on from there.
const maxStateCount = 1<<53 - 1

// otherFormat is the error for a file that this version does not read.
type otherFormat string

func (e otherFormat) Error() string { return string(e) }

// oldFormat is that error for files of an earlier format.
func oldFormat(what string) error {
	return otherFormat(what + ", which was in no release: commit " + formatCommit + " of stepwell reads it")
}

// endLine is the last line of the compacted part.
type endLine struct{ lines int } // between it and the header; -1 if it does not say

const endHead = `{"end":`

func (e *endLine) members(c *memberCoder) {
	var in memberCoder
	if c.enter("end", &in) {
		number(&in, "lines", &e.lines)
		c.leave(&in)
	}
	c.sum()
}

func readEnd(line []byte) (e endLine, err error) {
	var c memberCoder
	for c.again(line) {
		e.lines = -1
		e.members(&c)
	}
	return e, c.err
}

// lineWriter writes the lines of a compacted part.
type lineWriter struct {
	out   io.Writer
	lines int
	bytes int64
	tail  [len(sumTail) + 1]byte
}

// line writes a line, which is given without its closing brace.
func (w *lineWriter) line(line []byte) error {
	if w.bytes > 0 {
		w.lines++
	}
	tail := appendSumTail(w.tail[:0], crc32.Checksum(line, castagnoli))
	w.bytes += int64(len(line) + len(tail))
	if _, err := w.out.Write(line); err != nil {
		return err
	}
	_, err := w.out.Write(tail)
	return err
}

// end writes the last line.
func (w *lineWriter) end() error {
	e, c := endLine{w.lines}, memberCoder{b: []byte{'{'}}
	e.members(&c)
	return w.line(c.b)
}
