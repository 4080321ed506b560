package main

// The coder of members: one description of an object's members serves for writing and for
// reading it, so that both directions cannot differ.

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
)

// memberCoder writes the members of an object, or reads them, so that a type
// names its members once for both directions. A member that is left out stands
// for its default. Reading is strict: a member that nobody asks for is an error,
// never ignored. It takes two passes if the object is not spelled as it would be
// written; see again.
type memberCoder struct {
	b []byte // writing: the text so far

	reading bool
	copies  bool   // values of any kind are copied, not slices of the object
	next    []byte // in the first pass: the object from the brace or comma before the first member not taken
	second  bool
	rest    []jsonMember // in the second pass: the members not taken
	inner   bool         // a member of an object within it was not taken
	err     error        // the first
}

// again begins a pass over an object to be read, and reports whether one is
// needed: the first takes the members in the order of writing, with no white
// space between them, the second, if some are left, in any spelling. After it
// err is final.
func (c *memberCoder) again(object []byte) bool {
	if c.second {
		c.refuseRest()
	}
	if c.reading && (c.second || !c.left() && !c.inner) {
		return false
	}
	*c = memberCoder{second: c.reading, copies: c.copies}
	c.open(object)
	return true
}

// open begins to read an object.
func (c *memberCoder) open(object []byte) {
	c.reading = true
	if jsonKind(object) != '{' {
		c.err = fmt.Errorf("%.40s is not an object", object)
	} else if c.next = object; c.second {
		c.rest = appendJSONMembers(nil, object)
	}
}

// left reports whether a member was not taken. In the first pass, there is more
// then than the closing brace.
func (c *memberCoder) left() bool {
	if c.second {
		return len(c.rest) > 0
	}
	return len(c.next) > 1
}

// refuseRest makes a member that nobody asked for an error.
func (c *memberCoder) refuseRest() {
	if len(c.rest) > 0 {
		c.fail(string(c.rest[0].key), "unknown member, from a newer version")
	}
}

func (c *memberCoder) fail(name, format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("member %q: %w", name, fmt.Errorf(format, args...))
	}
}

// appendName appends a member's name; its value comes next.
func appendName(b []byte, name string) []byte {
	if n := len(b); n > 0 && b[n-1] != '{' && b[n-1] != ',' {
		b = append(b, ',')
	}
	return append(append(append(b, '"'), name...), '"', ':')
}

// take returns the value of a member to be read, or nil.
func (c *memberCoder) take(name string) []byte {
	if c.second {
		return c.takeAny(name)
	}
	b, start := c.next, len(name)+len(`,"":`)
	if len(b) <= start || b[start-2] != '"' || b[start-1] != ':' || string(b[2:start-2]) != name {
		return nil
	}
	end := skipJSONValue(b, start)
	if end == start { // white space
		return nil
	}
	c.next = b[end:]
	return b[start:end:end]
}

// takeAny is take in the second pass.
func (c *memberCoder) takeAny(name string) []byte {
	i := findJSONMember(c.rest, nil, []byte(name))
	if i < 0 {
		return nil
	}
	value := c.rest[i].value
	c.rest = slices.Delete(c.rest, i, i+1)
	return value
}

// enter begins an object as a member, and reports whether there is one. Its members
// follow, then leave.
func (c *memberCoder) enter(name string, in *memberCoder) bool {
	if !c.reading {
		in.b = append(appendName(c.b, name), '{')
		return true
	}
	raw := c.take(name)
	if raw != nil {
		in.second, in.copies = c.second, c.copies
		in.open(raw)
	}
	return raw != nil
}

// leave ends an object within another.
func (c *memberCoder) leave(in *memberCoder) {
	if !c.reading {
		c.b = append(in.b, '}')
		return
	}
	if in.second {
		in.refuseRest()
	}
	c.inner = c.inner || in.left()
	c.err = cmp.Or(c.err, in.err)
}

// text is a string, left out if it is empty.
func (c *memberCoder) text(name string, v *string) {
	if c.reading || *v != "" { // like the others below short enough for the compiler to inline
		c.textUnless(name, v, "")
	}
}

// textUnless is a string, left out if it is the standard one.
func (c *memberCoder) textUnless(name string, v *string, standard string) {
	switch {
	case c.reading:
		*v = cmp.Or(c.string(name, c.take(name)), standard)
	case *v != standard:
		c.b = appendJSONString(appendName(c.b, name), *v)
	}
}

// string returns the value of raw, a string; "" for nil.
func (c *memberCoder) string(name string, raw []byte) string { return string(c.chars(name, raw)) }

// chars is string without a copy.
func (c *memberCoder) chars(name string, raw []byte) []byte {
	if jsonKind(raw) == '"' {
		return unescapeJSON(raw)
	}
	if raw != nil {
		c.fail(name, "%.40s is not a string", raw)
	}
	return nil
}

// given is a string, left out if it is nil.
func (c *memberCoder) given(name string, v **string) {
	if c.reading {
		if raw := c.take(name); raw != nil {
			*v = new(c.string(name, raw))
		}
	} else if *v != nil {
		c.b = appendJSONString(appendName(c.b, name), **v)
	}
}

// texts is a list of strings, left out if it is empty.
func (c *memberCoder) texts(name string, v *[]string) {
	if c.reading {
		c.eachElement(name, func(raw []byte) { *v = append(*v, c.string(name, raw)) })
		return
	}
	for i, s := range *v {
		if i == 0 {
			c.b = appendName(c.b, name)
		}
		c.b = appendJSONString(append(c.b, "[,"[min(i, 1)]), s)
	}
	if len(*v) > 0 {
		c.b = append(c.b, ']')
	}
}

// eachElement reads a member that is a list, until there is an error.
func (c *memberCoder) eachElement(name string, f func(raw []byte)) {
	raw := c.take(name)
	if raw != nil && !eachElement(raw, func(e []byte) bool { f(e); return c.err == nil }) {
		c.fail(name, "%.40s is not an array", raw)
	}
}

// raw is any JSON value, left out if it is nil.
func (c *memberCoder) raw(name string, v *[]byte) {
	if c.reading || *v != nil {
		c.someRaw(name, v)
	}
}

// object is raw for an object.
func (c *memberCoder) object(name string, v *[]byte) {
	if c.raw(name, v); c.reading && *v != nil && jsonKind(*v) != '{' {
		c.fail(name, "%.40s is not an object", *v)
	}
}

func (c *memberCoder) someRaw(name string, v *[]byte) {
	if c.reading {
		if *v = c.take(name); c.copies {
			*v = bytes.Clone(*v)
		}
		return
	}
	c.b = append(appendName(c.b, name), *v...)
}

// flag is a truth value, left out if it is true.
func (c *memberCoder) flag(name string, v *bool) {
	if c.reading {
		raw := c.take(name)
		if *v = raw == nil || string(raw) == "true"; !*v && string(raw) != "false" {
			c.fail(name, "%.40s is not true or false", raw)
		}
	} else if !*v {
		c.b = append(appendName(c.b, name), "false"...)
	}
}

// set is a truth value, left out if it is false.
func (c *memberCoder) set(name string, v *bool) {
	n := boolCount(*v)
	nonzero(c, name, &n)
	*v = n != 0
}

// id is an id, left out if it is zero.
func (c *memberCoder) id(name string, v *uuid) {
	if c.reading || *v != (uuid{}) {
		c.someID(name, v)
	}
}

func (c *memberCoder) someID(name string, v *uuid) {
	if !c.reading {
		c.b = append(v.appendText(append(appendName(c.b, name), '"')), '"')
		return
	}
	if raw := c.take(name); raw != nil {
		id, ok := parseUUID(c.chars(name, raw))
		if *v = id; !ok {
			c.fail(name, "%.40s is not a UUID", raw)
		}
	}
}

// hex is bytes of a fixed length, in parts.
func (c *memberCoder) hex(name string, exists bool, parts ...[]byte) {
	if c.reading {
		c.readHex(name, parts)
		return
	}
	if !exists {
		return
	}
	c.b = append(appendName(c.b, name), '"')
	for _, p := range parts {
		c.b = hex.AppendEncode(c.b, p)
	}
	c.b = append(c.b, '"')
}

func (c *memberCoder) readHex(name string, parts [][]byte) {
	raw := c.take(name)
	if raw == nil {
		return
	}
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	b, err := hex.AppendDecode(nil, c.chars(name, raw))
	if err != nil || len(b) != n {
		c.fail(name, "%.80s is not a string of %d hex digits", raw, 2*n)
		return
	}
	for _, p := range parts {
		b = b[copy(p, b):]
	}
}

// object is an object, left out if it is nil. Reading, it begins as the standard one.
func object[T any](c *memberCoder, name string, v **T, standard T, members func(v *T, in *memberCoder)) {
	if !c.reading && *v == nil {
		return
	}
	var in memberCoder
	if c.enter(name, &in) {
		if c.reading {
			*v = new(standard)
		}
		members(*v, &in)
		c.leave(&in)
	}
}

// objects is a list of objects, left out if it is empty.
func objects[T any](c *memberCoder, name string, v *[]T, members func(v *T, in *memberCoder)) {
	if c.reading {
		c.eachElement(name, func(raw []byte) {
			in := memberCoder{second: c.second, copies: c.copies}
			in.open(raw)
			*v = append(*v, *new(T))
			members(&(*v)[len(*v)-1], &in)
			c.leave(&in)
		})
		return
	}
	for i := range *v {
		if i == 0 {
			c.b = appendName(c.b, name)
		}
		in := memberCoder{b: append(c.b, "[,"[min(i, 1)], '{')}
		members(&(*v)[i], &in)
		c.leave(&in)
	}
	if len(*v) > 0 {
		c.b = append(c.b, ']')
	}
}

// number is an integer.
func number[T ~int | ~int64 | ~uint64](c *memberCoder, name string, v *T) {
	if !c.reading {
		c.b = strconv.AppendInt(appendName(c.b, name), int64(*v), 10)
		return
	}
	if raw := c.take(name); raw != nil {
		n, ok := jsonInt(raw)
		if *v = T(n); !ok {
			c.fail(name, "%.40s is not an integer", raw)
		}
	}
}

// nonzero is an integer, left out if it is 0.
func nonzero[T ~int | ~int64 | ~uint64](c *memberCoder, name string, v *T) {
	if c.reading || *v != 0 {
		number(c, name, v)
	}
}

// word is one of a list of words, left out if the value has none.
func word[T ~uint8](c *memberCoder, name string, v *T, words []string) {
	if !c.reading {
		if int(*v) < len(words) && words[*v] != "" {
			c.b = append(append(append(appendName(c.b, name), '"'), words[*v]...), '"')
		}
		return
	}
	if raw := c.take(name); raw != nil {
		known, ok := parseWord[T](string(c.chars(name, raw)), words)
		if !ok {
			c.fail(name, "unknown word %.80s, from a newer version or damaged", raw)
			return
		}
		*v = known
	}
}
