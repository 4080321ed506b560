package main

// Decoded JSON values: comparing them, whole or in part, and exact decimal numbers.

import (
	"bytes"
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// exactNumber returns the value of a JSON number: exactly if that takes at most some
// thousand digits, else as a float64.
func exactNumber(text []byte) *big.Rat {
	const most = 1000
	s, exponent := string(text), 0
	var err error
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		exponent, err = strconv.Atoi(s[i+1:])
	}
	n := new(big.Rat)
	if err == nil && len(s) <= most && -most <= exponent && exponent <= most {
		n.SetString(s)
	} else {
		f, _ := strconv.ParseFloat(s, 64) // finite, or checkJSON would have refused it
		n.SetFloat64(f)
	}
	return n
}

// decimalText returns a sum of decimals with all its digits.
func decimalText(r *big.Rat) string {
	digits, _ := r.FloatPrec()
	return r.FloatString(digits)
}

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
		for w := walkJSON(raw, '['); w.nextElement(); {
			n.values = append(n.values, newJSONValue(w.value))
		}
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

// sameJSON reports whether two texts spell the same value.
func sameJSON(a, b []byte) bool {
	return bytes.Equal(newJSONValue(a).normal(nil), newJSONValue(b).normal(nil))
}

// within reports whether another value has every member of n, with the same value. Its
// objects may have further members, arrays must be equal, numbers are compared by value.
func (n *jsonValue) within(other *jsonValue) bool {
	if n.kind != '{' || other.kind != '{' {
		return sameJSON(n.raw, other.raw)
	}
	for i, name := range n.names {
		at := other.find(name)
		if at < 0 || !n.values[i].within(other.values[at]) {
			return false
		}
	}
	return true
}

// leaves returns the number of values at all levels that are not objects.
func (n *jsonValue) leaves() int {
	if n.kind != '{' {
		return 1
	}
	count := 0
	for _, value := range n.values {
		count += value.leaves()
	}
	return count
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
