package main

// The canonical form of a JSON text: the same for all texts that spell the same value.

import (
	"bytes"
	"slices"
)

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
