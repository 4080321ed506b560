package main

// The logs of tasks that are over, in memory: in a short form, from which each log can be restored exactly.

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
)

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

// text returns the log.
func (l shortLog) text() []byte { return l.appendTo(nil) }

// appendTo appends the log.
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
