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
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
)

const (
	storeFormat = 3 // the version that is read and written
	sumName     = `,"sum":"`
	recordHead  = `{"seq":`
	recordWrite = `,"w":`
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendSumTail ends a line whose bytes so far have this sum.
func appendSumTail(dst []byte, sum uint32) []byte {
	var digits [4]byte
	binary.BigEndian.PutUint32(digits[:], sum)
	return append(hex.AppendEncode(append(dst, sumName...), digits[:]), "\"}\n"...)
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
func (c *memberCoder) sum() { c.skip("sum") }

// readHeader reads the first line. It checks the format first: the lines of a newer format may be anything.
func readHeader(line []byte) (h storeHeader, err error) {
	var f struct{ Format int }
	switch err := json.Unmarshal(line, &f); {
	case err != nil || f.Format <= 0:
		return h, fmt.Errorf("it is not the header of a store, such as {\"format\":%d}", storeFormat)
	case f.Format != storeFormat:
		return h, otherFormat(fmt.Sprintf("it has format %d, and this version of stepwell reads format %d", f.Format, storeFormat))
	}
	h, err = readMembers(line, (*storeHeader).members)
	switch {
	case err != nil:
		return h, err
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

// endLine is the last line of the compacted part.
type endLine struct{ lines int } // between it and the header; -1 if it does not say

const endHead = `{"end":`

func (e *endLine) members(c *memberCoder) {
	var in memberCoder
	if c.reading {
		e.lines = -1
	}
	if c.enter("end", &in) {
		number(&in, "lines", &e.lines)
		c.leave(&in)
	}
	c.sum()
}

// lineWriter writes the lines of a compacted part.
type lineWriter struct {
	out   io.Writer // keeps its first error, as a bufio.Writer does
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
	return w.line(appendMembers(nil, &endLine{w.lines}, (*endLine).members))
}

// The logs of tasks that are over, in memory: in a short form, from which each log can be restored exactly.

// shortLog is a log in which bytes below 0x20, which a log does not have, stand for the
// logWords and what comes after them. A log that cannot be shortened is kept as it is.
type shortLog []byte

// maxShortened is the longest log that is shortened: of a longer one most is text from outside.
const maxShortened = 8 << 10

// logWord is a text that most logs have.
type logWord struct {
	text string
	then wordTail
}

// wordTail is the kind of text after a word.
type wordTail uint8

const (
	thenAny  wordTail = iota // not shortened
	thenTime                 // a number: its distance from the last time
	thenSeq                  // a number: its distance from the last sequence
)

// logWords are the words, by their codes. Of two that a text begins with, the first that fits counts.
var logWords = [...]logWord{
	{`{"seq":`, thenSeq}, {`},{"seq":`, thenSeq}, {`,"at":`, thenTime},
	{`,"kind":"created","template":"`, thenAny}, {`,"kind":"created"`, thenAny}, {`,"kind":"ran","step":`, thenAny},
	{`,"kind":"started","step":`, thenAny}, {`,"kind":"ended","step":`, thenAny}, {`,"kind":"claimed","step":`, thenAny},
	{`,"kind":"`, thenAny}, {`,"began":`, thenAny}, {`,"ok":false,"`, thenAny}, {`,"result":`, thenAny},
	{`,"lease":"`, thenAny}, {`","until":`, thenTime}, {`","identity":"`, thenAny}, {`,"context":{`, thenAny},
	{`,"initiator":"`, thenAny}, {`","correlation":"`, thenAny}, {`,"retry_at":`, thenTime}, {`,"worker":"`, thenAny},
	{`,"error":{"message":"`, thenAny},
}

// mayHaveError reports whether the log in a short form may have the error of an attempt.
func mayHaveError(l shortLog) bool {
	return bytes.IndexByte(l, byte(len(logWords)-1)) >= 0 || bytes.Contains(l, []byte(`error":`))
}

// wordsAt lists the words by their fourth byte, which differs more than those before it.
var wordsAt = func() (at [256][]byte) {
	for k, w := range logWords {
		at[w.text[3]] = append(at[w.text[3]], byte(k))
	}
	return at
}()

// wordEdges has the bytes at which a word may begin, and those that a log does not have.
var wordEdges = func() (edges [256]bool) {
	for b := range edges {
		edges[b] = b < 0x20 || b == '"' || b == ',' || b == '{' || b == '}'
	}
	return edges
}()

// logCoder shortens a log, or restores one.
type logCoder struct {
	b    []byte
	last [thenSeq + 1]int64 // the last number of each kind
}

// shorten appends a log in its short form, or as it is.
func shorten(to, log []byte) []byte {
	if len(log) > maxShortened {
		return append(to, log...)
	}
	c := logCoder{b: to}
	for i := 0; i < len(log); {
		if wordEdges[log[i]] {
			if n := c.word(log[i:]); n > 0 {
				i += n
				continue
			}
			if log[i] < 0x20 {
				return append(to, log...)
			}
		}
		n := 1
		for i+n < len(log) && !wordEdges[log[i+n]] {
			n++
		}
		c.b = append(c.b, log[i:i+n]...)
		i += n
	}
	// A short form begins with the code of the first word, by which text recognizes it.
	if len(log) == 0 || c.b[len(to)] != 0 {
		return append(to, log...)
	}
	return c.b
}

// word shortens the word that a text begins with. It returns the length of the word with what comes after it; 0 if no
// word fits.
func (c *logCoder) word(text []byte) (n int) {
	if len(text) < 4 {
		return 0
	}
	for _, k := range wordsAt[text[3]] {
		w := &logWords[k]
		if len(text) < len(w.text) || string(text[:len(w.text)]) != w.text {
			continue
		}
		if w.then == thenAny {
			c.b = append(c.b, k)
			return len(w.text)
		}
		if v, digits := leadingNumber(text[len(w.text):]); digits > 0 { // else it would not come back as it is
			c.b = binary.AppendVarint(append(c.b, k), v-c.last[w.then])
			c.last[w.then] = v
			return len(w.text) + digits
		}
	}
	return 0
}

func (l shortLog) text() []byte { return l.appendTo(nil) }

func (l shortLog) appendTo(b []byte) []byte {
	if len(l) == 0 || l[0] != 0 { // kept as it is
		return append(b, l...)
	}
	c := logCoder{b: slices.Grow(b, 5*len(l))}
	for i := 0; i < len(l); {
		if l[i] >= 0x20 {
			c.b, i = append(c.b, l[i]), i+1
			continue
		}
		w := &logWords[l[i]]
		c.b = append(c.b, w.text...)
		i++
		if w.then != thenAny {
			v, n := binary.Varint(l[i:])
			c.last[w.then] += v
			c.b = strconv.AppendInt(c.b, c.last[w.then], 10)
			i += n
		}
	}
	return c.b
}

// shortenIn returns a log in its short form. It makes that in room, which it may replace.
func shortenIn(room *[]byte, log []byte) shortLog {
	if len(log) > maxShortened { // the room for one long log would stay that large
		return bytes.Clone(log)
	}
	*room = shorten((*room)[:0], log)
	return bytes.Clone(*room)
}
