package main

// Matchers: which handler calls, or which API requests, a stub or a check is
// about. What they look at is named by the members of a request.

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// matchable is something with named facts.
type matchable interface {
	fact(member string) string     // "" for one that it lacks
	document(member string) []byte // a JSON text; nil for one that it lacks
}

// matchForm is how a member of a match is written.
type matchForm uint8

const (
	matchText matchForm = iota
	matchPrefix
	matchCount // an integer from 1
	matchFlag
	matchID
	matchSubset // a JSON object, or for a body any value
)

// matchMember is a member that a match may have.
type matchMember struct {
	name string
	form matchForm
}

// stubMembers are those of a stub, which chooses among attempts that are to start.
var stubMembers = []matchMember{
	{"namespace", matchText}, {"name", matchText}, {"version", matchText}, {"step", matchText},
	{"callable", matchText}, {"attempt", matchCount}, {"context", matchSubset},
}

// callMembers are those of a match for handler calls that were made.
var callMembers = append(slices.Clone(stubMembers), matchMember{"task_uuid", matchID}, matchMember{"stubbed", matchFlag})

// requestMembers are those of a match for API requests.
var requestMembers = []matchMember{
	{"surface", matchText}, {"method", matchText}, {"path", matchText}, {"path_prefix", matchPrefix},
	{"query", matchText}, {"status", matchCount}, {"subject", matchText}, {"body", matchSubset},
}

func memberNames(members []matchMember) string {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.name
	}
	return strings.Join(names, ", ")
}

// matcher is what must hold, all of it. It is never changed.
type matcher []matchRule

// matchRule asks for one fact.
type matchRule struct {
	member string
	form   matchForm
	want   string      // as the fact is written
	subset *jsonSubset // of a document
}

func (m matcher) fits(x matchable) bool { return m.fitsBut(x, "") }

// fitsBut is fits without asking for one of the members.
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
		raw := x.document(r.member)
		return raw != nil && r.subset.fits(raw)
	case matchPrefix:
		return strings.HasPrefix(x.fact(r.member), r.want)
	}
	return x.fact(r.member) == r.want
}

// specificity is how much is asked for: each member counts one, a document as
// many as it names values.
func (m matcher) specificity() (n int) {
	for i := range m {
		n++
		if m[i].subset != nil {
			n += m[i].subset.leaves - 1
		}
	}
	return n
}

// differences says of each rule that does not hold what there is instead.
func (m matcher) differences(x matchable) (all []string) {
	for i := range m {
		r := &m[i]
		switch {
		case r.fits(x):
		case r.form == matchSubset:
			all = append(all, r.member+" lacks what is asked for")
		default:
			all = append(all, fmt.Sprintf("%s is %q, not %q", r.member, x.fact(r.member), r.want))
		}
	}
	return all
}

// matcher reads the members of a match. Everything that is not known is a
// mistake: what is misspelled must not match everything.
func (f *fieldReader) matcher(path string, raw []byte, members []matchMember) (m matcher) {
	if jsonKind(raw) != '{' {
		f.complain(path, "must be an object with any of %s", memberNames(members))
		return nil
	}
	eachMember(raw, func(key string, value []byte) bool {
		at := slices.IndexFunc(members, func(m matchMember) bool { return m.name == key })
		if at < 0 {
			f.complain(path+"."+key, "is none of %s", memberNames(members))
			return true
		}
		m = append(m, f.matchRule(path+"."+key, members[at], value))
		return true
	})
	slices.SortStableFunc(m, func(a, b matchRule) int { return cmp.Compare(a.form, b.form) }) // documents cost most
	return m
}

func (f *fieldReader) matchRule(path string, member matchMember, raw []byte) matchRule {
	r := matchRule{member: member.name, form: member.form}
	switch member.form {
	case matchText, matchPrefix:
		r.want = f.text(path, raw, 1, maxReasonLength*10)
	case matchCount:
		n, ok := jsonInt(raw)
		if !ok || n < 1 {
			f.complain(path, "must be an integer from 1")
		}
		r.want = strconv.FormatInt(n, 10)
	case matchFlag:
		if r.want = string(raw); r.want != "true" && r.want != "false" {
			f.complain(path, "must be true or false")
		}
	case matchID:
		r.want = f.id(path, raw).String()
	case matchSubset:
		if jsonKind(raw) != '{' && member.name != "body" {
			f.complain(path, "must be an object")
		}
		r.subset = newJSONSubset(compactJSON(nil, raw))
	}
	return r
}
