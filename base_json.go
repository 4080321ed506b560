package main

// JSON texts without decoding them into values: walking, reading and merging. Everything here takes a text that passed
// checkJSON, or a value inside one, and does not validate it again. An empty text is no value and no error.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonKind returns the kind of a value: its first byte, one of { [ " n t f, '0' for every number, or 0 for no value.
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
	n, fits, _ := nearestInt(raw)
	return n, fits
}

// nearestInt returns the int64 nearest to raw if that is an integer, and whether it fits.
func nearestInt(raw []byte) (n int64, fits, integer bool) {
	if jsonKind(raw) != '0' {
		return 0, false, false
	}
	text := string(bytes.TrimSpace(raw))
	n, err := strconv.ParseInt(text, 10, 64) // out of range: the nearest
	if errors.Is(err, strconv.ErrSyntax) {   // a fraction or an exponent
		d := parseDecimal(raw)
		if !d.integer() {
			return 0, false, false
		}
		const most = 20 // zeros, with which no number fits
		text = pick(d.negative, "-", "") + cmp.Or(d.digits, "0") + strings.Repeat("0", min(d.exponent, most))
		n, err = strconv.ParseInt(text, 10, 64)
	}
	return n, err == nil, true
}

// jsonParts (hot path: BenchmarkCreate) iterates over the members of the object data, or the elements of the array, as
// kind says, { or [: the name with its quotes and escapes, which elements have not, and the value. Both are parts of data.
// A value of another kind has none.
func jsonParts(data []byte, kind byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		if jsonKind(data) != kind {
			return
		}
		for i := skipJSONSpace(data, skipJSONSpace(data, 0)+1); data[i] != '}' && data[i] != ']'; {
			var name []byte
			if data[i] == ',' {
				i = skipJSONSpace(data, i+1)
			}
			if kind == '{' {
				end := skipJSONString(data, i)
				name = data[i:end:end]
				i = skipJSONSpace(data, skipJSONSpace(data, end)+1)
			}
			end := skipJSONValue(data, i)
			if !yield(name, data[i:end:end]) {
				return
			}
			i = skipJSONSpace(data, end)
		}
	}
}

// jsonMembers iterates over the members of the object data in order: the unescaped key and the raw value. Any other
// value has none. The key is a copy, which costs an allocation; the value is a part of data.
func jsonMembers(data []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		jsonMemberBytes(data)(func(key, value []byte) bool { return yield(string(key), value) })
	}
}

// jsonMemberBytes is jsonMembers without allocations, except for keys with escapes: any other key is a part of data.
// Comparing by switch string(key) does not copy it.
func jsonMemberBytes(data []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		jsonParts(data, '{')(func(name, value []byte) bool { return yield(unescapeJSON(name), value) })
	}
}

// objectMember returns a member of an object, or nil if there is none.
func objectMember(object []byte, name string) []byte {
	for key, value := range jsonMemberBytes(object) {
		if string(key) == name {
			return value
		}
	}
	return nil
}

// jsonElements iterates over the elements of the array data. Any other value has none.
func jsonElements(data []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		jsonParts(data, '[')(func(_, value []byte) bool { return yield(value) })
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
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
}

// skipJSONString (hot path: BenchmarkCreate) returns the offset after the string at i.
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

// unescapeJSON returns the value of a string from quote to quote: a part of raw if it has no escape.
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

// compactJSON (hot path: BenchmarkCreate) appends data without white space.
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

// mergeObjects (hot path: BenchmarkCreate) appends the object base overridden by the top-level members of over:
// base's members, with over's values where it has them, then over's other members.
// The result is compact if both are. Anything but an object counts as empty.
func mergeObjects(dst, base, over []byte) []byte {
	dst = append(dst, '{')
	first := len(dst)
	var others map[string][]byte // the values of over that no member of base has taken; nil for an empty base
	for name, value := range jsonParts(base, '{') {
		if others == nil {
			others = maps.Collect(jsonMembers(over))
		}
		key := string(unescapeJSON(name))
		if v, ok := others[key]; ok {
			value = v
			delete(others, key)
		}
		dst = appendJSONMember(dst, first, name, value)
	}
	for name, value := range jsonParts(over, '{') {
		if _, left := others[string(unescapeJSON(name))]; left || others == nil {
			dst = appendJSONMember(dst, first, name, value)
		}
	}
	return append(dst, '}')
}

// jsonMember is a member of an object.
type jsonMember struct {
	name  []byte // with quotes and escapes
	value []byte
}

// appendJSONMember appends a member to the object whose first one begins at first.
func appendJSONMember(dst []byte, first int, name, value []byte) []byte {
	if len(dst) > first {
		dst = append(dst, ',')
	}
	return append(append(append(dst, name...), ':'), value...)
}

func appendOrNull(b, raw []byte) []byte {
	if raw == nil {
		return append(b, "null"...)
	}
	return append(b, raw...)
}

func orEmptyObject(raw []byte) []byte {
	if raw == nil {
		return []byte("{}")
	}
	return raw
}

// The canonical form of a JSON text: the same for all texts that spell the same value.

// canonicalJSON (hot path: BenchmarkCreate) appends the canonical form of data: no white space, members sorted
// by the bytes of their unescaped names at every level, strings with minimal escaping, numbers as written.
func canonicalJSON(dst, data []byte) []byte {
	if jsonKind(data) == 0 {
		return dst
	}
	c := jsonCanonicalizer{data: data, number: func(dst, number []byte) []byte { return append(dst, number...) }}
	dst, _ = c.value(slices.Grow(dst, len(data)), c.space(0)) // no canonical text is longer than its source
	return dst
}

// normal appends a text that is the same for all spellings of the value, numbers included.
func (n jsonValue) normal(dst []byte) []byte {
	c := jsonCanonicalizer{data: n.raw(), number: func(dst, number []byte) []byte { return parseDecimal(number).append(dst) }}
	dst, _ = c.value(dst, 0)
	return dst
}

// jsonCanonicalizer is one pass over a text. Members are sorted after they are written, so that nothing is scanned twice and
// no tree takes memory.
type jsonCanonicalizer struct {
	data    []byte
	number  func(dst, number []byte) []byte // appends a number
	scratch []byte                          // the members of the object that is being sorted
}

// canonicalMember is a written member: the place of its name, with quotes, in the text, and its own in the destination. An
// object may have many.
type canonicalMember struct{ name, start, end uint32 }

// value appends the value at i and returns the offset after it.
func (c *jsonCanonicalizer) value(dst []byte, i int) ([]byte, int) {
	opening := c.data[i]
	if opening != '{' && opening != '[' {
		end := skipJSONValue(c.data, i)
		raw := c.data[i:end]
		switch jsonKind(raw) {
		case '"':
			return appendCanonicalString(dst, raw), end
		case '0':
			return c.number(dst, raw), end
		}
		return append(dst, raw...), end
	}
	var room [fewJSONMembers]canonicalMember
	members := room[:0]
	dst = append(dst, opening)
	for i = c.space(i + 1); c.data[i] != '}' && c.data[i] != ']'; i = c.space(i) {
		if c.data[i] == ',' {
			dst = append(dst, ',')
			i = c.space(i + 1)
		}
		m := canonicalMember{name: uint32(i), start: uint32(len(dst))}
		if opening == '{' {
			end := skipJSONString(c.data, i)
			dst = append(appendCanonicalString(dst, c.data[i:end]), ':')
			i = c.space(c.space(end) + 1)
		}
		if dst, i = c.value(dst, i); opening == '{' {
			m.end = uint32(len(dst))
			members = append(members, m)
		}
	}
	c.sort(dst, members)
	return append(dst, c.data[i]), i + 1
}

func (c *jsonCanonicalizer) space(i int) int { return skipJSONSpace(c.data, i) }

// sort sorts the members at the end of dst, which have commas between them.
func (c *jsonCanonicalizer) sort(dst []byte, members []canonicalMember) {
	name := func(m canonicalMember) []byte {
		return unescapeJSON(c.data[m.name:skipJSONString(c.data, int(m.name))])
	}
	compare := func(a, b canonicalMember) int { return bytes.Compare(name(a), name(b)) }
	if slices.IsSortedFunc(members, compare) {
		return
	}
	base := members[0].start
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

// appendCanonicalString appends the string raw, from quote to quote, with minimal escaping.
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

// Decoded JSON values: comparing them, whole or in part, and exact decimal numbers.

// jsonTree holds the places of all values of a text, in the order in which they begin. The name of
// a member is the value before it. It is not safe for concurrent use.
type jsonTree struct {
	text  []byte
	nodes []jsonNode
	index map[int]map[string]int // by objects with many members that were searched: nodes by name
}

// jsonNode is the place of one value. Texts have at most 4 GiB.
type jsonNode struct {
	start, end uint32 // in the text
	next       uint32 // the node after this value and all inside it
	size       uint32 // members or elements
}

const jsonNodeBytes = 16

// jsonValue is a value in a text that was read into a tree. The zero value is none.
type jsonValue struct {
	tree *jsonTree
	node int
}

// newJSONValue reads a text that passed checkJSON. It takes treeBytes(text) of memory.
func newJSONValue(text []byte) jsonValue {
	t := &jsonTree{text: text, nodes: make([]jsonNode, 0, treeBytes(text)/jsonNodeBytes)}
	t.add(skipJSONSpace(text, 0))
	return jsonValue{tree: t}
}

// treeBytes returns about how much memory a text takes as a tree, at least.
func treeBytes(text []byte) int {
	values := 1
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = skipJSONString(text, i) - 1
		case ',', ':', '[', '{': // this counts a value too many for an empty list or object
			values++
		}
	}
	return values * jsonNodeBytes
}

// add adds the value at i and returns the offset after it.
func (t *jsonTree) add(i int) int {
	at, opening := len(t.nodes), t.text[i]
	t.nodes = append(t.nodes, jsonNode{start: uint32(i)})
	size := uint32(0)
	if opening != '{' && opening != '[' {
		i = skipJSONValue(t.text, i)
	} else {
		for i = t.space(i + 1); t.text[i] != '}' && t.text[i] != ']'; size++ {
			if size > 0 {
				i = t.space(i + 1)
			}
			if opening == '{' {
				i = t.space(t.space(t.add(i)) + 1)
			}
			i = t.space(t.add(i))
		}
		i++
	}
	// Only now: the nodes inside may have moved the slice.
	n := &t.nodes[at]
	n.end, n.next, n.size = uint32(i), uint32(len(t.nodes)), size
	return i
}

func (t *jsonTree) space(i int) int { return skipJSONSpace(t.text, i) }

func (n jsonValue) at() *jsonNode { return &n.tree.nodes[n.node] }

func (n jsonValue) raw() []byte { return n.tree.text[n.at().start:n.at().end] }

func (n jsonValue) kind() byte { return jsonKind(n.raw()) }

// text returns the value of a string, which may be a part of the text; nil for the zero value.
func (n jsonValue) text() []byte {
	if n.tree == nil {
		return nil
	}
	return unescapeJSON(n.raw())
}

// size returns the number of members or elements.
func (n jsonValue) size() int { return int(n.at().size) }

// inner returns the members or elements of a value in their order, each with its name; elements have none.
func (n jsonValue) inner() iter.Seq2[jsonValue, jsonValue] {
	return func(yield func(name, value jsonValue) bool) {
		var name jsonValue
		object, next := n.kind() == '{', n.node+1
		for range n.size() {
			if object {
				name = jsonValue{n.tree, next}
				next++
			}
			value := jsonValue{n.tree, next}
			if next = int(value.at().next); !yield(name, value) {
				return
			}
		}
	}
}

// elements returns the elements of an array.
func (n jsonValue) elements() (all []jsonValue) {
	for _, value := range n.inner() {
		all = append(all, value)
	}
	return all
}

// find returns a member of an object.
func (n jsonValue) find(name string) (value jsonValue, ok bool) {
	if n.kind() != '{' {
		return jsonValue{}, false
	}
	if n.size() <= fewJSONMembers {
		for key, value := range n.inner() {
			if string(key.text()) == name {
				return value, true
			}
		}
		return jsonValue{}, false
	}
	index := n.tree.index[n.node]
	if index == nil {
		index = make(map[string]int, n.size())
		for key, value := range n.inner() {
			index[string(key.text())] = value.node
		}
		if n.tree.index == nil {
			n.tree.index = map[int]map[string]int{}
		}
		n.tree.index[n.node] = index
	}
	node, ok := index[name]
	return jsonValue{n.tree, node}, ok
}

func (n jsonValue) has(name string) bool {
	_, ok := n.find(name)
	return ok
}

// within reports whether another value is the same, or has every member of n with the same value: its objects outside of
// arrays may then have further members. Numbers are compared by value.
func (n jsonValue) within(other jsonValue) bool {
	if n.kind() != '{' || other.kind() != '{' {
		return n.kind() == other.kind() && n.size() == other.size() && bytes.Equal(n.normal(nil), other.normal(nil))
	}
	for name, value := range n.inner() {
		if found, ok := other.find(string(name.text())); !ok || !value.within(found) {
			return false
		}
	}
	return true
}

// leaves returns the number of values at all levels that are not objects.
func (n jsonValue) leaves() int {
	if n.kind() != '{' {
		return 1
	}
	count := 0
	for _, value := range n.inner() {
		count += value.leaves()
	}
	return count
}

// shown returns the value as messages have it.
func (n jsonValue) shown() string {
	switch n.kind() {
	case '{':
		return "an object"
	case '[':
		return "a list"
	}
	return clipText(string(redact(n.raw())), 80)
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
		// Neither begins with 0, so the place of the first digit decides, and then the digits as texts.
		cmp.Compare(len(d.digits)+d.exponent, len(other.digits)+other.exponent),
		strings.Compare(d.digits, other.digits))
}

// multipleOf reports whether d is a multiple of a number above 0.
func (d decimal) multipleOf(of decimal) bool {
	if d.exponent < of.exponent { // the digits of a multiple would end in 0, which digits never do
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
