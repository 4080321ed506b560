package main

// Matchers choose entries of the journal, and stubs, by facts that the members of a request
// name.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// matchable is anything with named facts.
type matchable interface {
	fact(member string) string     // "" for a missing one
	document(member string) []byte // a JSON text; nil for a missing one
}

// matchedOnce is something that is compared with many matches, so its document is read only once. All matches use the
// same document.
type matchedOnce struct {
	matchable
	read jsonValue
}

// documentOf returns a document as a tree, the zero value for a missing one.
func documentOf(x matchable, member string) (document jsonValue) {
	once, _ := x.(*matchedOnce)
	if once != nil && once.read.tree != nil {
		return once.read
	}
	if raw := x.document(member); raw != nil {
		document = newJSONValue(raw)
	}
	if once != nil {
		once.read = document
	}
	return document
}

// matchForm is the form of a member of a match.
type matchForm uint8

const (
	matchText matchForm = iota
	matchPrefix
	matchStep  // a step's name, or for an instance of a batch worker that in the template
	matchCount // an integer from 1
	matchFlag
	matchID
	matchKind    // which decides what other members there may be
	matchSurface // of an API request
	matchMethod  // of an API request
	matchSubset  // a JSON value; of a context an object
)

// matchWords holds the words of the forms that take one.
var matchWords = map[matchForm][]string{
	matchSurface: {"orchestration", "worker", "mount"},
	matchMethod:  {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS", "TRACE"},
}

// matchMember is a member that a match may have.
type matchMember struct {
	name string
	form matchForm
}

func memberNames(members []matchMember) []string {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.name
	}
	return names
}

// matcher holds rules that must all hold. It is never changed.
type matcher []matchRule

// matchRule demands one fact.
type matchRule struct {
	member string
	form   matchForm
	want   string    // as the fact is written
	subset jsonValue // of a document
}

func (m matcher) fits(x matchable) bool { return m.fitsBut(x, "") }

// fitsBut is fits, ignoring one of the members.
func (m matcher) fitsBut(x matchable, member string) bool {
	for i := range m {
		if m[i].member != member && !m[i].fits(x) {
			return false
		}
	}
	return true
}

func (r *matchRule) fits(x matchable) bool {
	switch r.form {
	case matchSubset:
		document := documentOf(x, r.member)
		return document.tree != nil && r.subset.within(document, true)
	case matchPrefix:
		return strings.HasPrefix(x.fact(r.member), r.want)
	case matchStep:
		return x.fact("step") == r.want || x.fact("template_step") == r.want
	}
	return x.fact(r.member) == r.want
}

// specificity counts what is demanded: one for each member, and for a document one for
// each value in it.
func (m matcher) specificity() (n int) {
	for i := range m {
		n++
		if m[i].form == matchSubset {
			n += m[i].subset.leaves() - 1
		}
	}
	return n
}

// differences describes the actual fact for each rule that does not hold.
func (m matcher) differences(x matchable) (all []string) {
	for i := range m {
		r := &m[i]
		switch {
		case r.fits(x):
		case r.form == matchSubset:
			all = append(all, r.member+" lacks a wanted member or value")
		default:
			all = append(all, fmt.Sprintf("%s is %q, not %q", r.member, redactName(x.fact(r.member)), r.want))
		}
	}
	return all
}

// distance counts the letters that differ in the facts for rules that do not hold, or in their beginnings.
func (m matcher) distance(x matchable) (letters int) {
	const most = 40 // of a fact
	for i := range m {
		if r := &m[i]; r.form != matchSubset && !r.fits(x) {
			letters += typoDistance(clipText(x.fact(r.member), most), clipText(r.want, most), most)
		}
	}
	return letters
}

// matcher reads a match. It has one of the kinds, each of which has its members.
func (f *fieldReader) matcher(path string, raw []byte, kinds map[string][]matchMember) (kind string, m matcher) {
	kind = handlerEntry
	// The kind decides which members there may be, and need not be the first.
	eachMember(raw, func(key string, value []byte) bool {
		if word, _ := jsonString(value); key == "kind" && kinds[word] != nil {
			kind = word
		} else if key == "kind" && jsonKind(value) != 'n' {
			f.complain(memberPath(path, key), "must be one of %q", slices.Sorted(maps.Keys(kinds)))
		}
		return true
	})
	return kind, f.matchRules(path, raw, append([]matchMember{{"kind", matchKind}}, kinds[kind]...))
}

func (f *fieldReader) matchRules(path string, raw []byte, members []matchMember) (m matcher) {
	f.members(path, raw, memberNames(members), func(key, at string, value []byte) {
		i := slices.IndexFunc(members, func(m matchMember) bool { return m.name == key })
		if members[i].form != matchKind {
			m = append(m, f.matchRule(at, members[i], value))
		}
	})
	slices.SortStableFunc(m, func(a, b matchRule) int { return cmp.Compare(a.form, b.form) }) // documents cost most
	return m
}

func (f *fieldReader) matchRule(path string, member matchMember, raw []byte) matchRule {
	r := matchRule{member: member.name, form: member.form}
	switch member.form {
	case matchText, matchPrefix, matchStep:
		r.want = f.text(path, raw, 1, maxReasonLength*10)
	case matchCount:
		n, ok := jsonInt(raw)
		if !ok || n < 1 {
			f.complain(path, "must be an integer from 1")
		}
		r.want = strconv.FormatInt(n, 10)
	case matchFlag:
		r.want = strconv.FormatBool(f.flag(path, raw))
	case matchSurface, matchMethod:
		r.want = f.word(path, raw, matchWords[member.form]...)
	case matchID:
		r.want = f.id(path, raw).String()
	case matchSubset:
		if jsonKind(raw) != '{' && member.name == "context" {
			f.complain(path, "must be an object")
		}
		if f.budget.take(treeBytes(raw), path, "the decoded value") {
			r.subset = newJSONValue(compactJSON(nil, raw))
		}
	}
	return r
}
