package main

// The lines of tasks that are over, in memory: in a short form, from which each line can be restored exactly.

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
)

// shortLine is a line in which bytes below 0x20, which a line does not have, stand for the
// lineWords and what comes after them. A line that cannot be shortened is kept as it is.
type shortLine []byte

// maxShortened is the longest line that is shortened: of a longer one most is text from outside.
const maxShortened = 8 << 10

// lineWord is a text that most lines have.
type lineWord struct {
	text string
	then wordTail
}

// wordTail is the kind of text after a word.
type wordTail uint8

const (
	thenAny  wordTail = iota // not shortened
	thenID                   // an id: 16 bytes
	thenHash                 // 32 hexadecimal digits: 16 bytes
	thenSame                 // those after the last word with a hash: nothing
	thenTime                 // a number: its distance from the last time
	thenSeq                  // a number: its distance from the last sequence
)

// lineWords are the words, by their codes. Of two that a text begins with, the first that fits counts.
var lineWords = [...]lineWord{
	{taskHead, thenID}, {`","state":"complete","created":`, thenTime}, {`","state":"`, thenAny},
	{`","created":`, thenTime}, {`,"updated":`, thenTime}, {`,"completed":`, thenTime},
	{`,"template":"`, thenSame}, {`,"template":"`, thenHash}, {`","seq":`, thenSeq}, {`,"last":`, thenSeq},
	{`,"steps":{"complete":`, thenAny}, {logWord, thenSeq}, {`},{"seq":`, thenSeq}, {`,"at":`, thenTime},
	{`,"kind":"created"`, thenAny}, {`,"kind":"ran","step":`, thenAny}, {`,"kind":"started","step":`, thenAny},
	{`,"kind":"ended","step":`, thenAny}, {`,"kind":"claimed","step":`, thenAny}, {`,"kind":"`, thenAny},
	{`,"began":`, thenAny}, {`,"ok":false,"`, thenAny}, {`,"result":`, thenAny}, {`,"lease":"`, thenHash},
	{`","until":`, thenTime}, {`,"identity":"`, thenHash}, {`,"context":{`, thenAny}, {`,"initiator":"`, thenAny},
	{`","correlation":"`, thenID}, {`,"retry_at":`, thenTime}, {`,"worker":"`, thenAny}, {`,"error":{"message":"`, thenAny},
}

// The word that ends a header, and the one with an error.
const (
	logWord   = `},"log":[{"seq":`
	logCode   = 11
	errorCode = 31
)

// wordsAt lists the words by their fourth byte, which differs more than those before it.
var wordsAt = func() (at [256][]byte) {
	for k, w := range lineWords {
		at[w.text[3]] = append(at[w.text[3]], byte(k))
	}
	return at
}()

// lineTexts are the texts of the words.
var lineTexts = func() (texts [len(lineWords)][]byte) {
	for k, w := range lineWords {
		texts[k] = []byte(w.text)
	}
	return texts
}()

// wordEdges has the bytes at which a word may begin, and those that a line does not have.
var wordEdges = func() (edges [256]bool) {
	for b := range edges {
		edges[b] = b < 0x20 || b == '"' || b == ',' || b == '{' || b == '}'
	}
	return edges
}()

// lineCoder shortens a line, or restores one.
type lineCoder struct {
	b    []byte
	last [thenSeq + 1]int64 // the last number of each kind
	id   uuid               // the last id or hash
	hash []byte             // the digits of the last hash
}

// shorten appends a line in its short form, or as it is.
func shorten(to, line []byte) []byte {
	if len(line) > maxShortened {
		return append(to, line...)
	}
	c := lineCoder{b: to}
	for i := 0; i < len(line); {
		if wordEdges[line[i]] {
			if n := c.word(line[i:]); n > 0 {
				i += n
				continue
			}
			if line[i] < 0x20 {
				return append(to, line...)
			}
		}
		n := 1
		for i+n < len(line) && !wordEdges[line[i+n]] {
			n++
		}
		c.b = append(c.b, line[i:i+n]...)
		i += n
	}
	// A short form begins with the code of taskHead, by which isWhole recognizes it.
	if len(line) == 0 || c.b[len(to)] != 0 {
		return append(to, line...)
	}
	return c.b
}

// word shortens the word that a text begins with. It returns the length of the word with what comes after it; 0 if no
// word fits.
func (c *lineCoder) word(text []byte) (n int) {
	if len(text) < 4 {
		return 0
	}
	for _, k := range wordsAt[text[3]] {
		if rest, fits := bytes.CutPrefix(text, lineTexts[k]); fits {
			if n = c.shortenTail(k, rest); n >= 0 {
				return len(text) - len(rest) + n
			}
		}
	}
	return 0
}

// shortenTail shortens a word and what comes after it, of which it returns the length; -1 if that would not come back
// as it is.
func (c *lineCoder) shortenTail(k byte, rest []byte) (n int) {
	switch then := lineWords[k].then; then {
	case thenAny:
		c.b = append(c.b, k)
	case thenTime, thenSeq:
		v, digits := leadingNumber(rest)
		if digits == 0 {
			return -1
		}
		c.b = binary.AppendVarint(append(c.b, k), v-c.last[then])
		c.last[then], n = v, digits
	case thenSame:
		if n = len(c.hash); n == 0 || !bytes.HasPrefix(rest, c.hash) {
			return -1
		}
		c.b = append(c.b, k)
	default:
		if n = 36; then == thenHash {
			n = 32
		}
		if len(rest) < n {
			return -1
		}
		id, ok := parseUUID(rest[:n])
		// A line is restored in lower case.
		if !ok || hasUpper(rest[:n]) {
			return -1
		}
		if then == thenHash {
			c.hash = rest[:n]
		}
		c.b = append(append(c.b, k), id[:]...)
	}
	return n
}

// hasUpper reports whether an id has a capital letter.
func hasUpper(id []byte) bool {
	for _, b := range id {
		if b >= 'A' && b <= 'F' {
			return true
		}
	}
	return false
}

// isWhole reports whether the line was kept as it is.
func (l shortLine) isWhole() bool { return len(l) == 0 || l[0] != 0 }

// taskID returns the id of the task.
func (l shortLine) taskID() (id uuid, ok bool) {
	if l.isWhole() {
		return lineID(l)
	}
	return uuid(l[1:17]), true
}

// text returns the line.
func (l shortLine) text() []byte { return l.textIn(nil) }

// textIn is text, in memory that it may use.
func (l shortLine) textIn(room []byte) []byte {
	if l.isWhole() {
		return l
	}
	return l.appendText(slices.Grow(room[:0], 6*len(l)), "")
}

// appendTo appends the line.
func (l shortLine) appendTo(b []byte) []byte {
	if l.isWhole() {
		return append(b, l...)
	}
	return l.appendText(b, "")
}

// appendText appends a line that is not whole, up to a word unless that is "".
func (l shortLine) appendText(to []byte, end string) []byte {
	c := lineCoder{b: to}
	for i := 0; i < len(l); {
		if l[i] >= 0x20 {
			c.b, i = append(c.b, l[i]), i+1
			continue
		}
		w := &lineWords[l[i]]
		if w.text == end {
			break
		}
		c.b = append(c.b, w.text...)
		i += 1 + c.take(w.then, l[i+1:])
		c.restore(w.then)
	}
	return c.b
}

// take reads the text after a word, and returns the length of its short form.
func (c *lineCoder) take(then wordTail, short []byte) int {
	switch then {
	case thenTime, thenSeq:
		v, n := binary.Varint(short)
		c.last[then] += v
		return n
	case thenID, thenHash:
		c.id = uuid(short[:len(c.id)])
		return len(c.id)
	}
	return 0
}

// restore appends what was taken.
func (c *lineCoder) restore(then wordTail) {
	switch then {
	case thenTime, thenSeq:
		c.b = strconv.AppendInt(c.b, c.last[then], 10)
	case thenID:
		c.b = c.id.appendText(c.b)
	case thenHash:
		c.b = hex.AppendEncode(c.b, c.id[:])
		c.hash = c.b[len(c.b)-2*len(c.id):]
	case thenSame:
		c.b = append(c.b, c.hash...)
	}
}

// number returns the number after a name in the header; 0 for none.
func (l shortLine) number(name string) uint64 {
	if l.isWhole() {
		return lineNumber(l, name)
	}
	var room [512]byte
	return lineNumber(l.appendText(room[:0], logWord), name)
}

// mayHaveError reports whether an attempt in the line may have an error, without looking at the whole line, which takes
// several times as long. The member's name is in the word, or as it is but for its first quote, with which a word may end.
func (l shortLine) mayHaveError() bool {
	return bytes.IndexByte(l, errorCode) >= 0 || bytes.Contains(l, []byte(`error":`))
}

// lineOf returns the line of a task that is over.
func (x *slotTable) lineOf(t *task) shortLine {
	line := t.appendTaskLine(x.room[:0])
	x.room = shorten(line, line)
	short := x.room[len(line):]
	if len(line) > maxShortened {
		// The room for one long line would stay that large.
		x.room = nil
	}
	return append(make(shortLine, 0, len(short)), short...)
}

// decodedLines holds small tasks that ended last, because their clients usually ask
// for them at once. Nobody changes these tasks.
type decodedLines [64]struct {
	line shortLine
	task *task
}

// keep keeps a task beside its line. The engine may still change one with a queued step.
func (d *decodedLines) keep(t *task, line shortLine) {
	if len(t.log) <= smallCopy && !slices.ContainsFunc(t.steps, func(s step) bool { return s.queued }) {
		place := &d[t.seq%uint64(len(d))]
		place.line, place.task = line, t
	}
}

// find returns the task of a line, or nil. A line never changes, so it names its task.
func (d *decodedLines) find(sl *slot) *task {
	line, place := sl.line, &d[sl.seq%uint64(len(d))]
	if len(line) == 0 || len(place.line) == 0 || &place.line[0] != &line[0] {
		return nil
	}
	return place.task
}
