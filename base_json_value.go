package main

// Decoded JSON values: comparing them, whole or in part, and exact decimal numbers.

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

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

// inner returns the members or elements of a value in their order, each with its name; elements
// have none.
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

// normal appends a text that is the same for all spellings of the value.
func (n jsonValue) normal(dst []byte) []byte {
	switch n.kind() {
	case '"':
		return appendJSONString(dst, string(n.text()))
	case '0':
		return parseDecimal(n.raw()).append(dst)
	case '[':
		dst = append(dst, '[')
		for _, value := range n.inner() {
			dst = append(value.normal(dst), ',')
		}
		return append(dst, ']')
	case '{':
		dst = append(dst, '{')
		members := make([][2]jsonValue, 0, n.size())
		for name, value := range n.inner() {
			members = append(members, [2]jsonValue{name, value})
		}
		slices.SortFunc(members, func(a, b [2]jsonValue) int { return bytes.Compare(a[0].text(), b[0].text()) })
		for _, m := range members {
			dst = append(m[1].normal(append(m[0].normal(dst), ':')), ',')
		}
		return append(dst, '}')
	}
	return append(dst, n.kind())
}

// within reports whether another value is the same, or if more is true, has every member of n with
// the same value: its objects outside of arrays may then have further members. Numbers are
// compared by value.
func (n jsonValue) within(other jsonValue, more bool) bool {
	kind := n.kind()
	switch {
	case kind != other.kind():
		return false
	case kind == '"':
		return bytes.Equal(n.text(), other.text())
	case kind == '0':
		return bytes.Equal(n.raw(), other.raw()) || parseDecimal(n.raw()) == parseDecimal(other.raw())
	case kind == '{':
		if !more && n.size() != other.size() {
			return false
		}
		for name, value := range n.inner() {
			if found, ok := other.find(string(name.text())); !ok || !value.within(found, more) {
				return false
			}
		}
		return true
	case kind == '[':
		return n.size() == other.size() && n.sameElements(other)
	}
	return true
}

// sameElements reports whether two arrays of one length are the same.
func (n jsonValue) sameElements(other jsonValue) bool {
	o := jsonValue{other.tree, other.node + 1}
	for _, value := range n.inner() {
		if !value.within(o, false) {
			return false
		}
		o.node = int(o.at().next) // after the last one never looked at
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
