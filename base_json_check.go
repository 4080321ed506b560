package main

// Which JSON texts are accepted from outside: one value, valid in UTF-8, without duplicate
// members, not nested too deeply (RFC 8259, I-JSON of RFC 7493).

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	maxJSONDepth   = 64 // arrays and objects inside one another
	fewJSONMembers = 16 // up to this number, names are compared one by one
)

// jsonError says where and why a text is not accepted.
type jsonError struct {
	offset int // in bytes from 0: of the offending token, or the end of the text
	reason string
}

func (e *jsonError) Error() string {
	return fmt.Sprintf("invalid JSON at offset %d: %s", e.offset, e.reason)
}

// checkJSON (hot path: BenchmarkCreate) accepts exactly one JSON value, with white space around it, that conforms
// strictly to RFC 8259 and has valid UTF-8, no lone surrogate, no U+0000, no duplicate member, at most 64 levels, and
// only numbers that are finite as a float64. The error is a *jsonError about the first problem.
//
// It allocates only for an error, for numbers that may be too large, and for objects with
// more than 16 members or with escapes in a member's name.
func checkJSON(data []byte) error { return checkDeepJSON(data, 0) }

// checkDeepJSON is checkJSON with deeper more levels allowed.
func checkDeepJSON(data []byte, deeper int) error {
	s := jsonScanner{data: data}
	if err := s.document(-deeper); err != nil {
		return err
	}
	return nil
}

// unmarked returns a text from outside without the byte order mark with which some editors begin UTF-8.
func unmarked(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

// isUTF16 reports whether a text begins as UTF-16 does: with its byte order mark, or with a character of two bytes of
// which one is 0.
func isUTF16(text []byte) bool {
	return len(text) > 1 && (text[0] == 0xff && text[1] == 0xfe || text[0] == 0xfe && text[1] == 0xff || (text[0] == 0) != (text[1] == 0))
}

// jsonScanner is one pass over a text. Its methods take the offset where something
// begins and return the offset after it.
type jsonScanner struct {
	data []byte
}

func (s *jsonScanner) document(depth int) *jsonError {
	i, err := s.value(s.space(0), depth)
	if err != nil {
		return err
	}
	if i = s.space(i); i < len(s.data) {
		return s.unexpected(i, "the end")
	}
	return nil
}

// value scans the value at i, which is inside depth arrays and objects.
func (s *jsonScanner) value(i, depth int) (int, *jsonError) {
	switch s.at(i) {
	case '"':
		end, _, err := s.string(i)
		return end, err
	case '{', '[':
		if depth == maxJSONDepth {
			return 0, &jsonError{i, fmt.Sprintf("deeper than %d levels", maxJSONDepth)}
		}
		if s.data[i] == '{' {
			return s.object(i, depth)
		}
		return s.array(i, depth)
	case 't':
		return s.literal(i, "true")
	case 'f':
		return s.literal(i, "false")
	case 'n':
		return s.literal(i, "null")
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return s.number(i)
	}
	return 0, s.unexpected(i, "a value")
}

func (s *jsonScanner) object(i, depth int) (int, *jsonError) {
	if i = s.space(i + 1); s.at(i) == '}' {
		return i + 1, nil
	}
	var names jsonNames
	for {
		end, err := s.member(i, depth+1, &names)
		if err != nil {
			return 0, err
		}
		switch i = s.space(end); s.at(i) {
		case ',':
			i = s.space(i + 1)
		case '}':
			return i + 1, nil
		default:
			return 0, s.unexpected(i, "',' or '}'")
		}
	}
}

// member scans a name, which must not be in names yet, and its value.
func (s *jsonScanner) member(i, depth int, names *jsonNames) (int, *jsonError) {
	if s.at(i) != '"' {
		return 0, s.unexpected(i, "a member name")
	}
	end, escaped, err := s.string(i)
	if err != nil {
		return 0, err
	}
	if !names.add(s, jsonSpan{i, end}, escaped) {
		return 0, jsonDuplicateMember(i, s.data[i:end])
	}
	if i = s.space(end); s.at(i) != ':' {
		return 0, s.unexpected(i, "':'")
	}
	return s.value(s.space(i+1), depth)
}

func (s *jsonScanner) array(i, depth int) (int, *jsonError) {
	if i = s.space(i + 1); s.at(i) == ']' {
		return i + 1, nil
	}
	for {
		end, err := s.value(i, depth+1)
		if err != nil {
			return 0, err
		}
		switch i = s.space(end); s.at(i) {
		case ',':
			i = s.space(i + 1)
		case ']':
			return i + 1, nil
		default:
			return 0, s.unexpected(i, "',' or ']'")
		}
	}
}

// string scans the string whose opening quote is at i and reports whether it contains an escape.
func (s *jsonScanner) string(i int) (end int, escaped bool, err *jsonError) {
	for i++; ; {
		for i < len(s.data) && jsonPlain[s.data[i]] {
			i++
		}
		switch c := s.at(i); {
		case c == '"':
			return i + 1, escaped, nil
		case c == '\\':
			escaped = true
			i, err = s.escape(i)
		case c >= utf8.RuneSelf:
			i, err = s.multibyte(i)
		case i == len(s.data):
			err = s.end()
		default:
			err = &jsonError{i, fmt.Sprintf("U+%04X in a string", c)}
		}
		if err != nil {
			return 0, false, err
		}
	}
}

func (s *jsonScanner) multibyte(i int) (int, *jsonError) {
	if r, n := utf8.DecodeRune(s.data[i:]); r != utf8.RuneError || n > 1 {
		return i + n, nil
	}
	if !utf8.FullRune(s.data[i:]) {
		return 0, s.end()
	}
	return 0, &jsonError{i, "invalid UTF-8"}
}

func (s *jsonScanner) escape(i int) (int, *jsonError) {
	switch s.at(i + 1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, nil
	case 'u':
		return s.unicodeEscape(i)
	}
	return 0, s.badEscape(i, i+1)
}

func (s *jsonScanner) unicodeEscape(i int) (int, *jsonError) {
	for j := i + 2; j < i+6; j++ {
		if unhex(s.at(j)) > 15 {
			return 0, s.badEscape(i, j)
		}
	}
	switch r := jsonHex4(s.data[i+2:]); {
	case r == 0:
		return 0, &jsonError{i, "U+0000 in a string"}
	case utf16.IsSurrogate(r):
		return s.lowSurrogate(i, r)
	}
	return i + 6, nil
}

// lowSurrogate scans the escape after that of the surrogate high at i.
func (s *jsonScanner) lowSurrogate(i int, high rune) (int, *jsonError) {
	if high >= 0xdc00 {
		return 0, jsonLoneSurrogate(i, high)
	}
	for n := range 6 {
		switch c := s.at(i + 6 + n); {
		case i+6+n >= len(s.data):
			return 0, s.end()
		case n == 0 && c != '\\', n == 1 && c != 'u', n > 1 && unhex(c) > 15:
			return 0, jsonLoneSurrogate(i, high)
		}
	}
	if low := jsonHex4(s.data[i+8:]); low < 0xdc00 || low > 0xdfff {
		return 0, jsonLoneSurrogate(i, high)
	}
	return i + 12, nil
}

func (s *jsonScanner) literal(i int, word string) (int, *jsonError) {
	for n := range len(word) {
		if s.at(i+n) != word[n] {
			return 0, s.unexpected(i+n, word)
		}
	}
	return i + len(word), nil
}

func (s *jsonScanner) number(i int) (end int, err *jsonError) {
	start := i
	if s.data[i] == '-' {
		i++
	}
	if s.at(i) == '0' {
		i++
	} else if i, err = s.digits(i); err != nil {
		return 0, err
	}
	if s.at(i) == '.' {
		if i, err = s.digits(i + 1); err != nil {
			return 0, err
		}
	}
	exponent := s.at(i)|0x20 == 'e'
	if exponent {
		if i++; s.at(i) == '+' || s.at(i) == '-' {
			i++
		}
		if i, err = s.digits(i); err != nil {
			return 0, err
		}
	}
	// Without an exponent, fewer than 309 digits are always below the largest float64.
	if exponent || i-start > 308 {
		if _, err := strconv.ParseFloat(string(s.data[start:i]), 64); err != nil {
			return 0, &jsonError{start, "number beyond the range of a float64"}
		}
	}
	return i, nil
}

// digits scans one or more digits.
func (s *jsonScanner) digits(i int) (int, *jsonError) {
	if c := s.at(i); c < '0' || c > '9' {
		return 0, s.unexpected(i, "a digit")
	}
	for i < len(s.data) && '0' <= s.data[i] && s.data[i] <= '9' {
		i++
	}
	return i, nil
}

func (s *jsonScanner) space(i int) int { return skipJSONSpace(s.data, i) }

// at returns the byte at i, or 0, which no rule accepts, at the end.
func (s *jsonScanner) at(i int) byte {
	if i < len(s.data) {
		return s.data[i]
	}
	return 0
}

// unexpected returns the error for what is at i instead of what is wanted.
func (s *jsonScanner) unexpected(i int, want string) *jsonError {
	if i >= len(s.data) {
		return s.end()
	}
	r, n := utf8.DecodeRune(s.data[i:])
	switch {
	case isUTF16(s.data):
		return &jsonError{i, "UTF-16; want UTF-8"}
	case r == utf8.RuneError && n == 1:
		return &jsonError{i, "invalid UTF-8"}
	}
	return &jsonError{i, fmt.Sprintf("unexpected character %q, want %s", r, want)}
}

func (s *jsonScanner) end() *jsonError { return &jsonError{len(s.data), "unexpected end"} }

// badEscape returns the error for the escape at i that is wrong at j.
func (s *jsonScanner) badEscape(i, j int) *jsonError {
	if j >= len(s.data) {
		return s.end()
	}
	return &jsonError{i, "invalid escape"}
}

func jsonLoneSurrogate(i int, r rune) *jsonError {
	return &jsonError{i, fmt.Sprintf(`lone surrogate \u%04x`, r)}
}

func jsonDuplicateMember(i int, raw []byte) *jsonError {
	name := clipText(string(unescapeJSON(raw)), 64)
	return &jsonError{i, "duplicate member " + string(appendJSONString(nil, name))}
}

// jsonSpan is a string in a text, from quote to quote.
type jsonSpan struct{ start, end int }

// jsonNames holds the names of an open object: the first few in place, all of them in the
// table if there are more or one has an escape.
type jsonNames struct {
	count int
	few   [fewJSONMembers]jsonSpan
	table map[uint32]uint32 // the offset of each name by its hash, or by the next free number
}

// add adds a name of s and reports whether it is new.
func (n *jsonNames) add(s *jsonScanner, name jsonSpan, escaped bool) bool {
	if n.table == nil && (escaped || n.count == len(n.few)) {
		// Few names are compared one by one, which needs no memory. With many this would be quadratic, and names with
		// escapes must be compared by what they spell.
		n.table = map[uint32]uint32{}
		for _, other := range n.few[:n.count] {
			n.enter(s, other)
		}
	}
	if n.table != nil {
		return n.enter(s, name)
	}
	for _, other := range n.few[:n.count] {
		if string(s.data[other.start:other.end]) == string(s.data[name.start:name.end]) {
			return false
		}
	}
	n.few[n.count] = name
	n.count++
	return true
}

// enter enters a name into the table unless it is there.
func (n *jsonNames) enter(s *jsonScanner, name jsonSpan) bool {
	key := unescapeJSON(s.data[name.start:name.end])
	for hash := uint32(maphash.Bytes(jsonNameSeed, key)); ; hash++ {
		at, taken := n.table[hash]
		if !taken {
			n.table[hash] = uint32(name.start)
			return true
		}
		if bytes.Equal(unescapeJSON(s.data[at:skipJSONString(s.data, int(at))]), key) {
			return false
		}
	}
}

// jsonNameSeed keeps callers from choosing names that collide.
var jsonNameSeed = maphash.MakeSeed()
