package main

// What is done with JSON texts without decoding them into values: walking,
// compacting, merging, reading and writing strings. Everything here takes a
// text that passed checkJSON, or one value inside such a text, and does not
// validate again; an empty text is no value and no error.

import (
	"bytes"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonKind is what sort of value raw is: its first byte, one of { [ " n t f, or
// 0x30 ('0') for every number. It is 0 when there is no value.
func jsonKind(raw []byte) byte {
	i := skipJSONSpace(raw, 0)
	switch {
	case i == len(raw):
		return 0
	case raw[i] == '-' || '0' <= raw[i] && raw[i] <= '9':
		return '0'
	}
	return raw[i]
}

// jsonString is the value of raw if it is a string.
func jsonString(raw []byte) (string, bool) {
	if jsonKind(raw) != '"' {
		return "", false
	}
	start := skipJSONSpace(raw, 0)
	return string(unescapeJSON(raw[start:skipJSONString(raw, start)])), true
}

// jsonInt is the value of raw if it is an integer, written without fraction and
// exponent, that fits.
func jsonInt(raw []byte) (int64, bool) {
	if jsonKind(raw) != '0' {
		return 0, false
	}
	start := skipJSONSpace(raw, 0)
	number := raw[start:skipJSONValue(raw, start)]
	negative := number[0] == '-'
	if negative {
		number = number[1:]
	}
	var n int64 // counts down: there are more numbers below zero than above
	const lowest = -1 << 63
	for _, c := range number {
		d := int64(c) - '0'
		if d < 0 || d > 9 || n < lowest/10 || n*10 < lowest+d {
			return 0, false
		}
		n = n*10 - d
	}
	if negative {
		return n, true
	}
	return -n, n != lowest
}

// eachMember calls f for each member of the object data in order, with the
// unescaped key and the raw value, until f returns false. It reports whether
// data is an object. The key is a string of its own, which may be kept and may
// cost an allocation (eachMemberBytes does without); the value is a part of data.
func eachMember(data []byte, f func(key string, value []byte) bool) bool {
	return eachMemberBytes(data, func(key, value []byte) bool { return f(string(key), value) })
}

// eachMemberBytes is eachMember without allocations, except for keys with
// escapes: a key without is a part of data, as the value is. A caller that
// compares keys writes switch string(key), which does not copy.
func eachMemberBytes(data []byte, f func(key, value []byte) bool) bool {
	w := walkJSON(data, '{')
	for w.nextMember() {
		if !f(unescapeJSON(w.name), w.value) {
			break
		}
	}
	return w.data != nil
}

// eachElement is eachMember for arrays.
func eachElement(data []byte, f func(value []byte) bool) bool {
	w := walkJSON(data, '[')
	for w.nextElement() {
		if !f(w.value) {
			break
		}
	}
	return w.data != nil
}

// jsonWalker steps through the members or elements of one value.
type jsonWalker struct {
	data  []byte // nil when the value is of another kind
	i     int    // at the bracket or comma before the next one, or at the closing bracket
	name  []byte // of the current member, with quotes and escapes
	value []byte // of the current member or element
}

// walkJSON is a walker over data if that is of the kind, else over nothing.
func walkJSON(data []byte, kind byte) jsonWalker {
	if jsonKind(data) != kind {
		return jsonWalker{}
	}
	return jsonWalker{data: data, i: skipJSONSpace(data, 0)}
}

func (w *jsonWalker) nextMember() bool {
	start, ok := w.next()
	if !ok {
		return false
	}
	end := skipJSONString(w.data, start)
	w.name = w.data[start:end:end]
	w.take(skipJSONSpace(w.data, skipJSONSpace(w.data, end)+1))
	return true
}

func (w *jsonWalker) nextElement() bool {
	start, ok := w.next()
	if ok {
		w.take(start)
	}
	return ok
}

// next is where the next member or element starts, if there is one.
func (w *jsonWalker) next() (int, bool) {
	if w.data == nil || w.data[w.i] == '}' || w.data[w.i] == ']' {
		return 0, false
	}
	start := skipJSONSpace(w.data, w.i+1)
	if w.data[start] == '}' || w.data[start] == ']' {
		w.i = start
		return 0, false
	}
	return start, true
}

// take makes the value that starts at start the current one.
func (w *jsonWalker) take(start int) {
	end := skipJSONValue(w.data, start)
	w.value = w.data[start:end:end]
	w.i = skipJSONSpace(w.data, end)
}

// skipJSONSpace is the offset of the first byte from i on that is no white space.
func skipJSONSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t') {
		i++
	}
	return i
}

// skipJSONValue is the offset after the value at i.
func skipJSONValue(data []byte, i int) int {
	switch data[i] {
	case '"':
		return skipJSONString(data, i)
	case '{', '[':
		return skipJSONNested(data, i)
	}
	for i < len(data) {
		switch data[i] {
		case ',', '}', ']', ' ', '\n', '\r', '\t':
			return i
		}
		i++
	}
	return i
}

// skipJSONNested is the offset after the array or object at i.
func skipJSONNested(data []byte, i int) int {
	for depth := 0; ; i++ {
		switch data[i] {
		case '"':
			i = skipJSONString(data, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
}

// skipJSONString is the offset after the string at i.
func skipJSONString(data []byte, i int) int {
	for i++; ; i++ {
		i += bytes.IndexByte(data[i:], '"')
		backslashes := 0
		for data[i-1-backslashes] == '\\' {
			backslashes++
		}
		if backslashes%2 == 0 {
			return i + 1
		}
	}
}

// unescapeJSON is the value of a string from quote to quote: a part of raw when
// it has no escape.
func unescapeJSON(raw []byte) []byte {
	raw = raw[1 : len(raw)-1 : len(raw)-1]
	i := bytes.IndexByte(raw, '\\')
	if i < 0 {
		return raw
	}
	text := append(make([]byte, 0, len(raw)), raw[:i]...)
	for i < len(raw) {
		if raw[i] != '\\' {
			text = append(text, raw[i])
			i++
			continue
		}
		var r rune
		r, i = unescapeJSONRune(raw, i)
		text = utf8.AppendRune(text, r)
	}
	return text
}

// unescapeJSONRune is what the escape at i stands for, and the offset after it.
func unescapeJSONRune(raw []byte, i int) (rune, int) {
	switch c := raw[i+1]; c {
	case 'b':
		return '\b', i + 2
	case 'f':
		return '\f', i + 2
	case 'n':
		return '\n', i + 2
	case 'r':
		return '\r', i + 2
	case 't':
		return '\t', i + 2
	case 'u':
		r := jsonHex4(raw[i+2:])
		if utf16.IsSurrogate(r) {
			return utf16.DecodeRune(r, jsonHex4(raw[i+8:])), i + 12
		}
		return r, i + 6
	default:
		return rune(c), i + 2
	}
}

// jsonHex4 is the number that the first four digits of b spell.
func jsonHex4(b []byte) rune {
	return rune(unhex(b[0]))<<12 | rune(unhex(b[1]))<<8 | rune(unhex(b[2]))<<4 | rune(unhex(b[3]))
}

// appendJSONString appends s, valid UTF-8, as a JSON string, escaping only what
// must be: quote, backslash and control characters. Bytes that are not UTF-8
// become U+FFFD, so that the text is JSON in any case.
func appendJSONString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	done := 0 // s[:done] is in dst
	for i := 0; i < len(s); {
		if jsonPlain[s[i]] {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if n == 1 {
			dst = appendJSONRune(append(dst, s[done:i]...), r)
			done = i + 1
		}
		i += n
	}
	return append(append(dst, s[done:]...), '"')
}

// appendJSONRune appends r as it stands in a string with minimal escaping.
func appendJSONRune(dst []byte, r rune) []byte {
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r))
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	if r < ' ' {
		const digits = "0123456789abcdef"
		return append(dst, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
	}
	return utf8.AppendRune(dst, r)
}

// compactJSON appends data without white space; nothing else changes.
func compactJSON(dst, data []byte) []byte {
	done := 0 // data[:done] is in dst
	for i := 0; i < len(data); {
		switch data[i] {
		case '"':
			i = skipJSONString(data, i)
		case ' ', '\n', '\r', '\t':
			dst = append(dst, data[done:i]...)
			i = skipJSONSpace(data, i)
			done = i
		default:
			i++
		}
	}
	return append(dst, data[done:]...)
}

// mergeObjects appends the object base with over's top-level members over it:
// base's members in place, replaced where over has them, then over's others.
// Names and values are copied as they are, so the result is compact when both
// are. What is no object counts as one without members.
func mergeObjects(dst, base, over []byte) []byte {
	var room [fewJSONMembers]jsonMember
	others := appendJSONMembers(room[:0], over)
	index := indexJSONMembers(others)
	dst = append(dst, '{')
	first := len(dst)
	for w := walkJSON(base, '{'); w.nextMember(); {
		value := w.value
		if i := findJSONMember(others, index, unescapeJSON(w.name)); i >= 0 {
			value = others[i].value
			others[i].merged = true
		}
		dst = appendJSONMember(dst, first, w.name, value)
	}
	for _, m := range others {
		if !m.merged {
			dst = appendJSONMember(dst, first, m.name, m.value)
		}
	}
	return append(dst, '}')
}

// jsonMember is one member of an object that is merged over another.
type jsonMember struct {
	name   []byte // with quotes and escapes
	key    []byte // the name without
	value  []byte
	merged bool
}

func appendJSONMembers(members []jsonMember, object []byte) []jsonMember {
	for w := walkJSON(object, '{'); w.nextMember(); {
		members = append(members, jsonMember{name: w.name, key: unescapeJSON(w.name), value: w.value})
	}
	return members
}

// indexJSONMembers finds members by key; it is nil for few, which
// findJSONMember compares one by one.
func indexJSONMembers(members []jsonMember) map[string]int {
	if len(members) <= fewJSONMembers {
		return nil
	}
	index := make(map[string]int, len(members))
	for i, m := range members {
		index[string(m.key)] = i
	}
	return index
}

// findJSONMember is the place of key among members, or -1.
func findJSONMember(members []jsonMember, index map[string]int, key []byte) int {
	if index != nil {
		if i, ok := index[string(key)]; ok {
			return i
		}
		return -1
	}
	return slices.IndexFunc(members, func(m jsonMember) bool { return bytes.Equal(m.key, key) })
}

// appendJSONMember appends a member to the object whose first one begins at first.
func appendJSONMember(dst []byte, first int, name, value []byte) []byte {
	if len(dst) > first {
		dst = append(dst, ',')
	}
	return append(append(append(dst, name...), ':'), value...)
}
