package main

// JSON texts without decoding them into values: walking, reading and merging. Everything here
// takes a text that passed checkJSON, or a value inside one, and does not validate it again. An
// empty text is no value and no error.

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonKind returns the kind of a value: its first byte, one of { [ " n t f, '0' for
// every number, or 0 for no value.
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

// jsonString returns the value of raw if it is a string.
func jsonString(raw []byte) (string, bool) {
	if jsonKind(raw) != '"' {
		return "", false
	}
	start := skipJSONSpace(raw, 0)
	return string(unescapeJSON(raw[start:skipJSONString(raw, start)])), true
}

// jsonInt returns the value of raw if it is an integer that fits. It may be written in
// any way: 5.0 and 1e2 are integers.
func jsonInt(raw []byte) (int64, bool) {
	if jsonKind(raw) != '0' {
		return 0, false
	}
	start := skipJSONSpace(raw, 0)
	number := raw[start:skipJSONValue(raw, start)]
	var n int64
	for i, c := range number {
		if c < '0' || c > '9' || i == 18 { // a sign, a fraction, an exponent, or perhaps too large
			n, fits, _ := nearestInt(number)
			return n, fits
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// nearestInt returns the int64 nearest to raw if that is an integer, and whether it fits.
func nearestInt(raw []byte) (n int64, fits, integer bool) {
	if jsonKind(raw) != '0' {
		return 0, false, false
	}
	text := strings.TrimSpace(string(raw))
	if strings.ContainsAny(text, ".eE") {
		d := parseDecimal(raw)
		if !d.integer() {
			return 0, false, false
		}
		const most = 20 // zeros, with which no number fits
		text = pick(d.negative, "-", "") + cmp.Or(d.digits, "0") + strings.Repeat("0", min(d.exponent, most))
	}
	n, err := strconv.ParseInt(text, 10, 64) // out of range: the nearest
	return n, err == nil, true
}

// jsonMembers iterates over the members of the object data in order: the unescaped key and the raw value. Any other
// value has none. The key is a copy, which costs an allocation; the value is a part of data.
func jsonMembers(data []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		jsonMemberBytes(data)(func(key, value []byte) bool { return yield(string(key), value) })
	}
}

// jsonMemberBytes (hot path: BenchmarkJSONMembers) is jsonMembers without allocations, except for keys with escapes:
// any other key is a part of data. Comparing by switch string(key) does not copy it.
func jsonMemberBytes(data []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		for w := walkJSON(data, '{'); w.nextMember() && yield(unescapeJSON(w.name), w.value); {
		}
	}
}

// objectMember returns a member of an object, or nil if there is none.
func objectMember(object []byte, name string) []byte {
	for w := walkJSON(object, '{'); w.nextMember(); {
		if string(unescapeJSON(w.name)) == name {
			return w.value
		}
	}
	return nil
}

// jsonElements iterates over the elements of the array data. Any other value has none.
func jsonElements(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for w := walkJSON(data, '['); w.nextElement() && yield(w.value); {
		}
	}
}

// jsonLength returns how many elements the array data has, or how many members the object.
func jsonLength(data []byte) (n int) {
	for range jsonElements(data) {
		n++
	}
	for range jsonMemberBytes(data) {
		n++
	}
	return n
}

// jsonWalker steps through the members or elements of one value.
type jsonWalker struct {
	data  []byte // nil when the value is of another kind
	i     int    // at the bracket or comma before the next one, or at the closing bracket
	name  []byte // of the current member, with quotes and escapes
	value []byte // of the current member or element
}

// walkJSON returns a walker over data if it is of the kind, else over nothing.
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
	w.set(skipJSONSpace(w.data, skipJSONSpace(w.data, end)+1))
	return true
}

func (w *jsonWalker) nextElement() bool {
	start, ok := w.next()
	if ok {
		w.set(start)
	}
	return ok
}

// next returns the offset of the next member or element.
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

// set makes the value that starts at start the current one.
func (w *jsonWalker) set(start int) {
	end := skipJSONValue(w.data, start)
	w.value = w.data[start:end:end]
	w.i = skipJSONSpace(w.data, end)
}

// skipJSONSpace returns the offset of the first byte from i on that is not white space.
func skipJSONSpace(data []byte, i int) int {
	for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t') {
		i++
	}
	return i
}

// skipJSONValue returns the offset after the value at i.
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

// skipJSONNested returns the offset after the array or object at i.
func skipJSONNested(data []byte, i int) int {
	for depth := 0; ; i++ {
		switch data[i] {
		case '"':
			i = skipJSONString(data, i) - 1
		case '{', '[':
			depth++
			i += plainJSONStrings(data[i:])
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
}

// plainJSONStrings returns the offset in data of the last byte before the bracket that ends a long array of
// strings without escapes, such as the dependencies of a step; 0 if data does not begin with one.
func plainJSONStrings(data []byte) int {
	const long = 64
	if data[0] != '[' || data[1] != '"' {
		return 0
	}
	n := bytes.IndexByte(data, ']') // the end, if no string has it
	if n < long || bytes.IndexByte(data[:n], '\\') >= 0 || bytes.IndexByte(data[1:n], '[') >= 0 ||
		bytes.IndexByte(data[:n], '{') >= 0 || bytes.Count(data[:n], []byte{'"'})%2 != 0 {
		return 0
	}
	return n - 1
}

// skipJSONString (hot path: BenchmarkJSONMembers) returns the offset after the string at i.
func skipJSONString(data []byte, i int) int {
	i++
	for end := i + 24; i < end; i++ { // names and ids end soon: a loop is faster than a call
		switch data[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	for ; ; i++ {
		i += bytes.IndexByte(data[i:], '"')
		backslashes := 0
		// A quote after an even number of backslashes is not escaped: they escape each other.
		for data[i-1-backslashes] == '\\' {
			backslashes++
		}
		if backslashes%2 == 0 {
			return i + 1
		}
	}
}

// unescapeJSON returns the value of a string from quote to quote: a part of raw if it
// has no escape.
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

// unescapeJSONRune returns the rune of the escape at i and the offset after it.
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

// jsonHex4 returns the number that the first four digits of b spell.
func jsonHex4(b []byte) rune {
	return rune(unhex(b[0]))<<12 | rune(unhex(b[1]))<<8 | rune(unhex(b[2]))<<4 | rune(unhex(b[3]))
}

// compactJSON (hot path: BenchmarkCompactJSON) appends data without white space.
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

// mergeObjects (hot path: BenchmarkMergeObjects) appends the object base overridden by the top-level members of over:
// base's members, with over's values where it has them, then over's other members.
// The result is compact if both are. Anything but an object counts as empty.
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

// jsonMember is a member of the overriding object.
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

// indexJSONMembers returns the places of members by key, or nil for few members, which
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

// findJSONMember returns the place of key among members, or -1.
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

// appendOrNull appends raw, or null for none.
func appendOrNull(b, raw []byte) []byte {
	if raw == nil {
		return append(b, "null"...)
	}
	return append(b, raw...)
}

// orEmptyObject returns raw, or an empty object for none.
func orEmptyObject(raw []byte) []byte {
	if raw == nil {
		return []byte("{}")
	}
	return raw
}

// The canonical form of a JSON text: the same for all texts that spell the same value.

// canonicalJSON (hot path: BenchmarkCanonicalJSON) appends the canonical form of data: no white space, members sorted
// by the bytes of their unescaped names at every level, strings with minimal escaping, numbers as written.
func canonicalJSON(dst, data []byte) []byte {
	i := skipJSONSpace(data, 0)
	if i == len(data) {
		return dst
	}
	c := jsonCanonicalizer{data: data}
	if dst == nil {
		dst = make([]byte, 0, len(data)) // no canonical text is longer than its source
	}
	dst, _ = c.value(dst, i)
	return dst
}

// jsonCanonicalizer is one pass over a text. Its methods append what begins at i and
// return the offset after it. Members are sorted after they are written, so that
// nothing is scanned twice.
type jsonCanonicalizer struct {
	data    []byte
	scratch []byte // the members of the object that is being sorted
}

func (c *jsonCanonicalizer) value(dst []byte, i int) ([]byte, int) {
	switch c.data[i] {
	case '{':
		return c.object(dst, i)
	case '[':
		return c.array(dst, i)
	}
	end := skipJSONValue(c.data, i)
	if c.data[i] == '"' {
		return appendCanonicalString(dst, c.data[i:end]), end
	}
	return append(dst, c.data[i:end]...), end
}

func (c *jsonCanonicalizer) array(dst []byte, i int) ([]byte, int) {
	dst = append(dst, '[')
	for i = c.space(i + 1); c.data[i] != ']'; {
		if c.data[i] == ',' {
			dst = append(dst, ',')
			i = c.space(i + 1)
		}
		dst, i = c.value(dst, i)
		i = c.space(i)
	}
	return append(dst, ']'), i + 1
}

func (c *jsonCanonicalizer) object(dst []byte, i int) ([]byte, int) {
	var room [fewJSONMembers]canonicalMember
	members := room[:0]
	dst = append(dst, '{')
	for i = c.space(i + 1); c.data[i] != '}'; {
		if c.data[i] == ',' {
			dst = append(dst, ',')
			i = c.space(i + 1)
		}
		m := canonicalMember{name: uint32(i), start: uint32(len(dst))}
		end := skipJSONString(c.data, i)
		m.nameEnd = uint32(end)
		dst = append(appendCanonicalString(dst, c.data[i:end]), ':')
		dst, i = c.value(dst, c.space(c.space(end)+1))
		i = c.space(i)
		m.end = uint32(len(dst))
		if n := len(members); n == cap(members) {
			members = slices.Grow(members, n) // in larger steps than append, which leaves more garbage
		}
		members = append(members, m)
	}
	c.sort(dst, members)
	return append(dst, '}'), i + 1
}

func (c *jsonCanonicalizer) space(i int) int { return skipJSONSpace(c.data, i) }

// canonicalMember is a written member: the place of its name, with quotes, in the text, and its own
// in the destination. An object may have many.
type canonicalMember struct{ name, nameEnd, start, end uint32 }

// sort sorts the members at the end of dst, which have commas between them.
func (c *jsonCanonicalizer) sort(dst []byte, members []canonicalMember) {
	compare := func(a, b canonicalMember) int {
		return bytes.Compare(unescapeJSON(c.data[a.name:a.nameEnd]), unescapeJSON(c.data[b.name:b.nameEnd]))
	}
	if slices.IsSortedFunc(members, compare) {
		return
	}
	base := members[0].start
	if c.scratch == nil {
		c.scratch = make([]byte, 0, len(c.data))
	}
	c.scratch = append(c.scratch[:0], dst[base:]...)
	slices.SortFunc(members, compare)
	dst = dst[:base]
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, c.scratch[m.start-base:m.end-base]...)
	}
}

// appendCanonicalString appends the string raw, from quote to quote, with
// minimal escaping.
func appendCanonicalString(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		r, next := unescapeJSONRune(raw, i)
		dst = appendJSONRune(append(dst, raw[:i]...), r)
		raw = raw[next:]
	}
}
