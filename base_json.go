package main

// JSON texts without decoding them into values: walking, reading, writing, merging,
// the canonical form, and comparing. Everything here takes a text that passed
// checkJSON, or a value inside one, and does not validate it again. An empty text is
// no value and no error.

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/big"
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
	start := skipJSONSpace(raw, 0)
	text := raw[start:skipJSONValue(raw, start)]
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err == nil || !bytes.ContainsAny(text, ".eE") {
		return n, err == nil, true
	}
	r, exact := exactDecimal(text)
	switch {
	case !exact || !r.IsInt():
		return 0, false, false
	case r.Num().IsInt64():
		return r.Num().Int64(), true, true
	case r.Sign() < 0:
		return math.MinInt64, false, true
	}
	return math.MaxInt64, false, true
}

// eachMember calls f for each member of the object data in order, with the unescaped
// key and the raw value, until f returns false. It reports whether data is an object.
// The key is a copy, which may cost an allocation; the value is a part of data.
func eachMember(data []byte, f func(key string, value []byte) bool) bool {
	return eachMemberBytes(data, func(key, value []byte) bool { return f(string(key), value) })
}

// eachMemberBytes is eachMember without allocations, except for keys with escapes: any
// other key is a part of data. Comparing by switch string(key) does not copy it.
func eachMemberBytes(data []byte, f func(key, value []byte) bool) bool {
	w := walkJSON(data, '{')
	for w.nextMember() {
		if !f(unescapeJSON(w.name), w.value) {
			break
		}
	}
	return w.data != nil
}

// objectMember returns a member of an object, or nil if there is none.
func objectMember(object []byte, name string) (found []byte) {
	eachMember(object, func(key string, value []byte) bool {
		if key == name {
			found = value
		}
		return found == nil
	})
	return found
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

// take makes the value that starts at start the current one.
func (w *jsonWalker) take(start int) {
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

// skipJSONString returns the offset after the string at i.
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

// appendJSONString appends s as a JSON string and escapes only what it must: quote,
// backslash and control characters. Invalid UTF-8 becomes U+FFFD.
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

// appendJSONRune appends r, escaped if necessary.
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

// compactJSON appends data without white space.
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

// mergeObjects appends the object base overridden by the top-level members of over:
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

// The canonical form, which is the same for all spellings of a value.

// canonicalJSON appends the canonical form of data: no white space, members sorted by
// the bytes of their unescaped names at every level, strings with minimal escaping,
// numbers as written.
func canonicalJSON(dst, data []byte) []byte {
	i := skipJSONSpace(data, 0)
	if i == len(data) {
		return dst
	}
	c := jsonCanonicalizer{data: data}
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
		m := canonicalMember{start: len(dst)}
		end := skipJSONString(c.data, i)
		m.key = unescapeJSON(c.data[i:end])
		dst = append(appendCanonicalString(dst, c.data[i:end]), ':')
		dst, i = c.value(dst, c.space(c.space(end)+1))
		i = c.space(i)
		m.end = len(dst)
		members = append(members, m)
	}
	c.sort(dst, members)
	return append(dst, '}'), i + 1
}

func (c *jsonCanonicalizer) space(i int) int { return skipJSONSpace(c.data, i) }

// canonicalMember is a written member.
type canonicalMember struct {
	key        []byte
	start, end int // in the destination
}

// sort sorts the members at the end of dst, which have commas between them.
func (c *jsonCanonicalizer) sort(dst []byte, members []canonicalMember) {
	if slices.IsSortedFunc(members, compareCanonicalMembers) {
		return
	}
	base := members[0].start
	if c.scratch == nil {
		c.scratch = make([]byte, 0, len(c.data)) // no canonical text is longer than its source
	}
	c.scratch = append(c.scratch[:0], dst[base:]...)
	slices.SortFunc(members, compareCanonicalMembers)
	dst = dst[:base]
	for i, m := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, c.scratch[m.start-base:m.end-base]...)
	}
}

func compareCanonicalMembers(a, b canonicalMember) int { return bytes.Compare(a.key, b.key) }

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

// Comparing values, as a whole or in part.

// jsonSubset is a compiled description of a value, or of what it must contain.
type jsonSubset struct {
	members map[string]*jsonSubset // of an object; nil for any other value
	value   []byte                 // of anything but an object
	leaves  int                    // number of values, at all levels
}

// newJSONSubset compiles a text that passed checkJSON.
func newJSONSubset(raw []byte) *jsonSubset {
	if jsonKind(raw) != '{' {
		return &jsonSubset{value: raw, leaves: 1}
	}
	s := &jsonSubset{members: map[string]*jsonSubset{}}
	eachMember(raw, func(key string, value []byte) bool {
		m := newJSONSubset(value)
		s.members[key] = m
		s.leaves += m.leaves
		return true
	})
	return s
}

// fits reports whether a value contains every member named, with the same value.
// Objects may have further members, arrays must be equal, numbers are compared by value.
func (s *jsonSubset) fits(raw []byte) bool { return s.compare(raw, true) }

// compare is fits; further allows objects to have further members.
func (s *jsonSubset) compare(raw []byte, further bool) bool {
	if s.members == nil {
		return sameJSON(s.value, raw)
	}
	same, missing := jsonKind(raw) == '{', len(s.members)
	eachMember(raw, func(key string, value []byte) bool {
		m := s.members[key]
		if m == nil {
			same = further
		} else {
			same = m.compare(value, further)
			missing--
		}
		return same
	})
	return same && missing == 0
}

// sameJSON reports whether two texts spell the same value.
func sameJSON(a, b []byte) bool {
	kind := jsonKind(a)
	if kind != jsonKind(b) {
		return false
	}
	switch kind {
	case '0':
		return exactNumber(compactJSON(nil, a)).Cmp(exactNumber(compactJSON(nil, b))) == 0
	case '"':
		s, _ := jsonString(a)
		t, _ := jsonString(b)
		return s == t
	case '[':
		return sameElements(a, b)
	case '{':
		return newJSONSubset(a).compare(b, false)
	}
	return true
}

func sameElements(a, b []byte) bool {
	v, w := walkJSON(a, '['), walkJSON(b, '[')
	for v.nextElement() {
		if !w.nextElement() || !sameJSON(v.value, w.value) {
			return false
		}
	}
	return !w.nextElement()
}

// exactNumber returns the value of a JSON number: exactly if that takes at most some
// thousand digits, else as a float64.
func exactNumber(text []byte) *big.Rat {
	if r, ok := exactDecimal(text); ok {
		return r
	}
	f, _ := strconv.ParseFloat(string(text), 64) // finite, or checkJSON would have refused it
	return new(big.Rat).SetFloat64(f)
}

// exactDecimal returns the value of a JSON number, unless it takes more than some
// thousand digits.
func exactDecimal(text []byte) (*big.Rat, bool) {
	const most = 1000
	s := string(text)
	exponent := 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(s[i+1:]); err != nil {
			return nil, false
		}
	}
	if len(s) > most || exponent < -most || exponent > most {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// decimalText returns a sum of decimals with all its digits.
func decimalText(r *big.Rat) string {
	digits, _ := r.FloatPrec()
	return r.FloatString(digits)
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

// Decoded values, and exact numbers.

// jsonValue is a decoded value.
type jsonValue struct {
	kind   byte // as of jsonKind
	raw    []byte
	text   string         // of a string
	names  []string       // of an object, in its order
	values []*jsonValue   // members or elements
	index  map[string]int // of many names
}

func newJSONValue(raw []byte) *jsonValue {
	n := &jsonValue{kind: jsonKind(raw), raw: raw}
	switch n.kind {
	case '"':
		n.text, _ = jsonString(raw)
	case '[':
		eachElement(raw, func(value []byte) bool {
			n.values = append(n.values, newJSONValue(value))
			return true
		})
	case '{':
		eachMember(raw, func(name string, value []byte) bool {
			n.names, n.values = append(n.names, name), append(n.values, newJSONValue(value))
			return true
		})
	}
	return n
}

// find returns the place of a member, or -1.
func (n *jsonValue) find(name string) int {
	if len(n.names) <= fewJSONMembers {
		return slices.Index(n.names, name)
	}
	if n.index == nil {
		n.index = make(map[string]int, len(n.names))
		for i, name := range n.names {
			n.index[name] = i
		}
	}
	if i, ok := n.index[name]; ok {
		return i
	}
	return -1
}

// normal appends a text that is the same for all spellings of the value.
func (n *jsonValue) normal(dst []byte) []byte {
	switch n.kind {
	case '"':
		return appendJSONString(dst, n.text)
	case '0':
		return parseDecimal(n.raw).append(dst)
	case '[':
		dst = append(dst, '[')
		for _, value := range n.values {
			dst = append(value.normal(dst), ',')
		}
		return append(dst, ']')
	case '{':
		dst = append(dst, '{')
		for _, name := range slices.Sorted(slices.Values(n.names)) {
			dst = append(n.values[n.find(name)].normal(append(appendJSONString(dst, name), ':')), ',')
		}
		return append(dst, '}')
	}
	return append(dst, n.kind)
}

// shown returns the value as messages have it.
func (n *jsonValue) shown() string {
	switch n.kind {
	case '{':
		return "an object"
	case '[':
		return "a list"
	}
	return clipText(string(redact(n.raw)), 80)
}

// decimal is an exact number: its digits, times ten to the power of the exponent. Neither
// end of the digits is 0; zero has none.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

// parseDecimal reads a JSON number.
func parseDecimal(raw []byte) (d decimal) {
	s := strings.TrimSpace(string(raw))
	s, d.negative = strings.CutPrefix(s, "-")
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		d.exponent, _ = strconv.Atoi(s[i+1:]) // out of range: the nearest int
		d.exponent = min(max(d.exponent, -1<<60), 1<<60)
		s = s[:i]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	digits := strings.TrimRight(whole+fraction, "0")
	d.exponent += len(whole) - len(digits)
	if d.digits = strings.TrimLeft(digits, "0"); d.digits == "" {
		return decimal{}
	}
	return d
}

func (d decimal) integer() bool { return d.exponent >= 0 }

func (d decimal) append(dst []byte) []byte {
	return fmt.Appendf(dst, "%s%se%d", pick(d.negative, "-", ""), cmp.Or(d.digits, "0"), d.exponent)
}

// sign returns -1, 0 or 1.
func (d decimal) sign() int { return pick(d.digits == "", 0, pick(d.negative, -1, 1)) }

func (d decimal) compare(other decimal) int {
	if d.sign() != other.sign() || d.sign() == 0 {
		return cmp.Compare(d.sign(), other.sign())
	}
	return d.sign() * cmp.Or(
		cmp.Compare(len(d.digits)+d.exponent, len(other.digits)+other.exponent),
		strings.Compare(d.digits, other.digits))
}

// multipleOf reports whether d is a multiple of a number above 0.
func (d decimal) multipleOf(of decimal) bool {
	if d.exponent < of.exponent { // the divisor, with a 0 at its end, would divide digits without one
		return d.digits == ""
	}
	divisor, _ := new(big.Int).SetString(of.digits, 10)
	shift := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(d.exponent)-int64(of.exponent)), divisor)
	rest := new(big.Int)
	for chunk := range slices.Chunk([]byte(d.digits), 18) { // a million digits at once would take seconds
		n, _ := strconv.ParseInt(string(chunk), 10, 64)
		rest.Mul(rest, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(chunk))), nil))
		rest.Mod(rest.Add(rest, big.NewInt(n)), divisor)
	}
	return rest.Mod(rest.Mul(rest, shift), divisor).Sign() == 0
}
