package main

// The lines of the store's files: how they are framed, checked and read.
//
//	header of a journal   {"format":2,"journal":"stepwell","store":"…","failure_key":"…","from":N,"sum":"…"}
//	record of a journal   {"seq":N, members of the caller ,"w":W,"sum":"…"}
//	header of a snapshot  {"format":2,"snapshot":"stepwell","store":"…","failure_key":"…","at":…,"seq":S,"count":C     ,"sum":"…"}
//	line of a snapshot    {members of the caller,"sum":"…"}
//	last of a snapshot    {"end":C,"lines":"…","sum":"…"}
//
// The sum is the CRC-32C, as 8 lower-case hexadecimal digits, of the bytes of
// the line before `,"sum":"`. Each line ends with one newline. "store" is the
// same in all files of a store, and "failure_key" in all that have it. "lines" is the CRC-32C of the sums of the lines,
// and so of their order. "w" says that the W records before this one were not
// known to be on disk when it was written, as they went there together; it is
// left out if it is 0. Format 1 has neither these three nor the last line.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
)

const (
	storeFormat = 2 // the newest version of both files that is read, and the version written
	sumTail     = `,"sum":"00000000"}`
	recordHead  = `{"seq":`
	recordWrite = `,"w":`
	endHead     = `{"end":`

	snapshotHeaderSize = 300       // including the newline; padded with spaces
	lineChunk          = 256 << 10 // lines are slices of chunks of this size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendSumTail ends a line whose bytes so far have this sum.
func appendSumTail(dst []byte, sum uint32) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, `,"sum":"`...)
	for shift := 28; shift >= 0; shift -= 4 {
		dst = append(dst, digits[sum>>shift&15])
	}
	return append(dst, "\"}\n"...)
}

// appendRecord appends a record of the journal with its newline. before is the number of
// records before it that go to disk together with it.
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
	return appendSumTail(dst, crc32.Checksum(dst[start:], castagnoli))
}

// writeBegan returns the sequence of the first record that went to disk together with
// that of a good line.
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

// storeOrigin identifies a store: each of its files has it.
type storeOrigin struct {
	id  string
	key failureKey
}

// appendJournalHeader appends the first line of a journal whose first record
// has the sequence from.
func appendJournalHeader(dst []byte, of storeOrigin, from uint64) []byte {
	start := len(dst)
	dst = fmt.Appendf(dst, `{"format":%d,"journal":"stepwell","store":%q,"failure_key":%q,"from":%d`, storeFormat, of.id, of.key, from)
	return appendSumTail(dst, crc32.Checksum(dst[start:], castagnoli))
}

// snapshotHeader returns the first line of a snapshot. Its length is fixed
// because it is written last.
func snapshotHeader(of storeOrigin, at instant, covered, count uint64) []byte {
	b := fmt.Appendf(nil, `{"format":%d,"snapshot":"stepwell","store":%q,"failure_key":%q,"at":%q,"seq":%d,"count":%d`,
		storeFormat, of.id, of.key, at.zoned(), covered, count)
	for len(b) < snapshotHeaderSize-len(sumTail)-1 {
		b = append(b, ' ')
	}
	return appendSumTail(b, crc32.Checksum(b, castagnoli))
}

// lineSums is a running checksum of the lines of a snapshot.
type lineSums uint32

// add adds a line by its end, which has its own checksum.
func (l *lineSums) add(tail []byte) {
	*l = lineSums(crc32.Update(uint32(*l), castagnoli, tail[len(`,"sum":"`):len(sumTail)]))
}

// appendEnd appends the last line of a snapshot.
func (l lineSums) appendEnd(dst []byte, count uint64) []byte {
	start := len(dst)
	dst = fmt.Appendf(dst, `%s%d,"lines":"%08x"`, endHead, count, uint32(l))
	return appendSumTail(dst, crc32.Checksum(dst[start:], castagnoli))
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

// recordSeq returns the sequence of a record, or what is wrong with the line.
func recordSeq(line []byte) (uint64, string) {
	if fault := lineFault(line); fault != "" {
		return 0, fault
	}
	rest, ok := bytes.CutPrefix(line, []byte(recordHead))
	seq, digits := leadingNumber(rest)
	if !ok || digits == 0 || rest[digits] != ',' {
		return 0, "it has no sequence number"
	}
	return uint64(seq), ""
}

// storeHeader is the first line of either file.
type storeHeader struct {
	Format   int        `json:"format"`
	Journal  string     `json:"journal"`
	Snapshot string     `json:"snapshot"`
	Store    string     `json:"store"`       // empty in format 1
	Key      failureKey `json:"failure_key"` // zero in files of earlier versions
	From     uint64     `json:"from"`        // journal: sequence of the first record
	Alone    bool       `json:"alone"`       // journal of an earlier version: nothing before it is needed but the snapshot
	Seq      uint64     `json:"seq"`         // snapshot: sequence covered
	Count    uint64     `json:"count"`       // snapshot: lines that follow
}

// readHeader reads the first line of a file. It checks the format first: the
// lines of a newer format may be anything.
func readHeader(file string, s *journalScanner) (storeHeader, error) {
	var h storeHeader
	line, whole, err := s.next()
	if err == io.EOF {
		return h, &damage{file, 1, "the file is empty"}
	}
	if err != nil {
		return h, fmt.Errorf("read %s: %w", file, err)
	}
	if !whole {
		return h, &damage{file, 1, "the header is incomplete"}
	}
	if json.Unmarshal(line, &h) == nil && h.Format > storeFormat {
		return h, fmt.Errorf("%s has format %d, and this version of stepwell reads formats up to %d",
			file, h.Format, storeFormat)
	}
	if fault := lineFault(line); fault != "" {
		return h, &damage{file, 1, fault}
	}
	return h, nil
}

// damage is a place in a file of the store that is not as it was written.
type damage struct {
	file   string
	line   int // from 1
	reason string
}

func (d *damage) Error() string { return fmt.Sprintf("%s, line %d: %s", d.file, d.line, d.reason) }

// journalScanner returns the lines of a file. They are slices of large chunks
// that are never written again, so callers may keep them.
type journalScanner struct {
	src    io.Reader
	left   int64  // bytes of the file not read yet, by its size
	chunk  []byte // chunk[at:] was read but not returned
	at     int
	eof    bool
	zeros  bool  // the end of the file was not read, and is that of a journal, see journalEnd
	number int   // of the line returned last, from 1
	start  int64 // its offset in the file
	end    int64 // the offset after the line
}

// next returns the next line without its newline, and whether it had one. The
// error is io.EOF after the last line.
func (s *journalScanner) next() (line []byte, whole bool, err error) {
	for seen := 0; ; {
		if i := bytes.IndexByte(s.chunk[s.at+seen:], '\n'); i >= 0 {
			return s.take(seen+i, 1), true, nil
		}
		seen = len(s.chunk) - s.at
		if s.eof && s.zeros {
			s.chunk, s.at, s.zeros, seen = journalEnd(s.chunk[s.at:]), 0, false, 0
			continue
		}
		if s.eof && seen == 0 {
			return nil, false, io.EOF
		}
		if s.eof {
			return s.take(seen, 0), false, nil
		}
		if err := s.fill(); err != nil {
			return nil, false, err
		}
	}
}

// journalEnd returns what counts of the bytes behind the last newline of a journal. Zeros alone are no line. A record
// that is whole but for its newline is a line: an interrupted write ends at any byte.
func journalEnd(rest []byte) []byte {
	text := trimZeros(rest)
	if len(text) == 0 {
		return nil
	}
	if _, fault := recordSeq(text); fault == "" {
		return append(text[:len(text):len(text)], '\n')
	}
	return rest
}

func trimZeros(b []byte) []byte { return bytes.TrimRight(b, "\x00") }

// take returns n bytes and skips the newline, if any.
func (s *journalScanner) take(n, newline int) []byte {
	line := s.chunk[s.at : s.at+n : s.at+n]
	s.at += n + newline
	s.number++
	s.start = s.end
	s.end += int64(n + newline)
	return line
}

// fill reads more. A full chunk is replaced by one that begins with the bytes
// not yet returned.
func (s *journalScanner) fill() error {
	if len(s.chunk) == cap(s.chunk) {
		rest := s.chunk[s.at:]
		// A chunk for the end of the file is only as large as what is left, with room for the read
		// that finds the end.
		more := min(int64(max(lineChunk, len(rest))), max(s.left, 0)+512)
		s.chunk = append(make([]byte, 0, int64(len(rest))+more), rest...)
		s.at = 0
	}
	n, err := s.src.Read(s.chunk[len(s.chunk):cap(s.chunk)])
	s.chunk = s.chunk[:len(s.chunk)+n]
	s.left -= int64(n)
	if err == io.EOF {
		s.eof = true
		return nil
	}
	return err
}
