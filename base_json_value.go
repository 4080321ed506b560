package main

// Decoded JSON values: comparing them, whole or in part, and exact decimal numbers.

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

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
