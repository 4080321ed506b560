package main

// Failure groups: which steps fail now, and which of these failures have one cause. A group is the
// failures of one step of a template, whatever its version, with one error type and one message apart
// from what differs from one failure to the next.

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// failing reports whether the latest attempt of the step failed and the next cannot start yet: the step
// failed for good, or waits for its retry, which may be overdue while its task is stopped.
func (s *step) failing() bool {
	switch s.state {
	case stepInError, stepWaitingForRetry:
		return true
	case stepPending:
		return s.last != nil && s.last.retryAt != 0
	}
	return false
}

// failureKey is the secret of a store by which it names its failure groups: without it, nobody can find out by a guess
// at a message whether a task failed with it. It stays the same for the life of the store.
type failureKey [32]byte

func newFailureKey() (k failureKey) {
	rand.Read(k[:])
	return k
}

func (k failureKey) String() string { return hex.EncodeToString(k[:]) }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *failureKey) UnmarshalText(text []byte) error {
	if n, err := hex.Decode(k[:], text[:min(len(text), 2*len(k))]); err != nil || n < len(k) || len(text) > 2*len(k) {
		return fmt.Errorf("must be %d hexadecimal digits", 2*len(k))
	}
	return nil
}

// failureGroup is the name of a group. It follows from the group's cause and the key of the store. 0 is none.
type failureGroup uint64

func (g failureGroup) String() string { return fmt.Sprintf("%016x", uint64(g)) }

func (g failureGroup) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// parseFailureGroup reads the name of a group: 16 hexadecimal digits, not all zero.
func parseFailureGroup(name string) (failureGroup, bool) {
	n, err := strconv.ParseUint(name, 16, 64)
	return failureGroup(n), err == nil && len(name) == 16 && n > 0
}

// failureCause identifies the cause that all failures of a group share.
type failureCause struct {
	namespace, name string // of the template
	step            string // of the template
	errorType       string
	message         string // see groupMessage
}

func (c failureCause) group(key *failureKey) failureGroup {
	sum := hashOf(key[:], []byte(c.namespace), []byte(c.name), []byte(c.step), []byte(c.errorType), []byte(c.message))
	return failureGroup(max(binary.BigEndian.Uint64(sum[:]), 1))
}

// failedStep is a step whose latest attempt failed, apart from its task. Nobody changes it.
type failedStep struct {
	task, id uuid
	tpl      *template
	declared int // the step of the template
	last     *ending
}

// failedStep returns a step that is failing.
func (t *task) failedStep(i int) failedStep {
	return failedStep{t.id, t.stepID(i), t.tpl, t.declared(i), t.steps[i].last}
}

// cause returns the cause of the failure. It takes some microseconds.
func (f failedStep) cause() failureCause {
	fault, _ := f.last.fault()
	message, _ := jsonString(fault.message)
	return failureCause{
		f.tpl.namespace, f.tpl.name, f.tpl.steps[f.declared].name, fault.errorType, groupMessage(message),
	}
}

// How many bytes of a headline count, and of what is left of it.
const (
	maxGroupHeadline = 1000
	maxGroupMessage  = 200
)

// groupMessage (hot path: BenchmarkGroupMessage) returns the headline of an error's message with a * in place of what
// differs from one failure to the next: numbers, ids and other words with a digit, times, addresses, and what is
// quoted. A row of these is one *. URLs are redacted before, as wherever messages are shown.
func groupMessage(message string) string {
	text := headline(cleanText([]byte(message)))
	// The cut may fall into the middle of a character.
	text = strings.ToValidUTF8(text[:min(len(text), maxGroupHeadline)], "")
	text = strings.Join(strings.Fields(text), " ")
	var b []byte
	star := -1 // the length of b after its last *
	for i := 0; i < len(text) && len(b) < maxGroupMessage; {
		n, varies := messagePart(text, i)
		switch {
		case !varies:
			b = append(b, text[i:i+n]...)
		// Only separators since the last *: both values become one *.
		case star >= 0 && strings.Trim(string(b[star:]), " ,;:/.+-") == "":
			b = b[:star]
		default:
			b = append(b, '*')
			star = len(b)
		}
		i += n
	}
	return clipText(string(b), maxGroupMessage)
}

// messagePart returns the length of the part of a text that begins at an index, and whether the part varies. A
// part is a quoted value, an address, a word, or a single character.
func messagePart(text string, at int) (n int, varies bool) {
	rest := text[at:]
	if at == 0 || !isWordByte(text[at-1]) {
		if n := cmp.Or(quotedLength(rest), addressLength(rest)); n > 0 {
			return n, true
		}
	}
	n = wordLength(rest)
	if n > 0 && strings.HasPrefix(rest[n:], "://") {
		// Signs at the end belong to the sentence around the URL, but a closing bracket may belong to one inside it.
		url := untilAny(rest, " \"'`<>")
		return len(strings.TrimRight(url, ".,:;)"+pick(strings.Contains(url, "["), "", "]}"))), true
	}
	return max(n, 1), wordVaries(rest[:n])
}

// messageQuotes are the quotes around values.
var messageQuotes = [...][2]string{{`"`, `"`}, {"'", "'"}, {"`", "`"}, {"“", "”"}, {"‘", "’"}, {"«", "»"}}

// quotedLength returns the length of the quoted value that begins a text, with its quotes; 0 for none.
func quotedLength(text string) int {
	for _, q := range messageQuotes {
		if !strings.HasPrefix(text, q[0]) {
			continue
		}
		for end := len(q[0]); ; {
			i := strings.Index(text[end:], q[1])
			if i < 0 {
				return 0
			}
			end += i + len(q[1])
			escaped := text[end-len(q[1])-1] == '\\'
			apostrophe := q[1] == "'" && end < len(text) && isWordByte(text[end]) // as in it's
			if !escaped && !apostrophe {
				return end
			}
		}
	}
	return 0
}

// addressLength returns the length of the IPv6 or MAC address, or the time, that begins a text; 0 for
// none. Other addresses are words with a digit.
func addressLength(text string) int {
	n := 0
	for n < len(text) && (text[n] == ':' || text[n] == '.' || unhex(text[n]) < 16) {
		n++
	}
	address := strings.TrimRight(text[:n], ":.")
	// A single colon belongs to a port or a sentence.
	if n < len(text) && isWordByte(text[n]) || strings.Count(address, ":") < 2 || !wordVaries(address) {
		return 0
	}
	return len(address)
}

// isWordByte reports whether a byte belongs to a word. All bytes of characters outside ASCII do.
func isWordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c >= utf8.RuneSelf
}

// wordLength returns the length of the word that begins a text; 0 for none. Signs inside a word, as in
// names of hosts and mail addresses, and the sign of a number belong to the word.
func wordLength(text string) (n int) {
	for ; n < len(text); n++ {
		next := n+1 < len(text) && isWordByte(text[n+1])
		within := n > 0 && next && strings.IndexByte(".-+@'", text[n]) >= 0
		signed := n == 0 && next && text[1] <= '9' && (text[0] == '-' || text[0] == '+')
		if !isWordByte(text[n]) && !within && !signed {
			break
		}
	}
	return n
}

// timeWords are the words of times.
var timeWords = strings.Fields("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec Mon Tue Wed Thu Fri Sat Sun AM PM")

// wordVaries reports whether a word is a value: it has a digit, is a mail address or of a time, or is
// long and has no letter but those of hexadecimal numbers.
func wordVaries(word string) bool {
	hex := len(word) >= 8
	for _, c := range []byte(word) {
		if '0' <= c && c <= '9' || c == '@' {
			return true
		}
		hex = hex && (c == '-' || unhex(c) < 16)
	}
	return hex || slices.Contains(timeWords, word)
}
