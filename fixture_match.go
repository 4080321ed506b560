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

// facts are what matches can demand of an entry of the request log, or of a delivery that is to begin. What it does not
// have is zero.
type facts struct {
	surface, method, path, query, subject        string // of a request
	event, subscriber, callable                  string
	namespace, name, version, step, templateStep string
	task                                         uuid
	status, attempt                              int
	stubbed, success                             bool
	document                                     []byte     // the body, context or payload: a JSON text; nil for none
	decoded                                      *jsonValue // where the first match leaves the document for others; nil if each decodes it
}

// factsOf returns the facts of an attempt.
func factsOf(t *task, i, number int) facts {
	def := t.def(i)
	return facts{namespace: t.tpl.namespace, name: t.tpl.name, version: t.tpl.version, step: def.name,
		templateStep: t.tpl.steps[t.declared(i)].name, callable: def.callable, attempt: number, task: t.id,
		document: orEmptyObject(t.by.context)}
}

// text returns a fact as matches write it.
func (x *facts) text(member string) string {
	switch member {
	case "surface":
		return x.surface
	case "method":
		return x.method
	case "path", "path_prefix":
		return x.path
	case "query":
		return x.query
	case "status":
		return strconv.Itoa(x.status)
	case "subject":
		return x.subject
	case "event":
		return x.event
	case "subscriber":
		return x.subscriber
	case "callable":
		return x.callable
	case "namespace":
		return x.namespace
	case "name":
		return x.name
	case "version":
		return x.version
	case "step":
		return x.step
	case "task_uuid":
		return x.task.String()
	case "attempt":
		return strconv.Itoa(x.attempt)
	case "stubbed":
		return strconv.FormatBool(x.stubbed)
	case "success":
		return strconv.FormatBool(x.success)
	}
	return ""
}

// tree returns the decoded document, the zero value for none.
func (x *facts) tree() (document jsonValue) {
	if x.decoded != nil && x.decoded.tree != nil {
		return *x.decoded
	}
	if x.document != nil {
		document = newJSONValue(x.document)
	}
	if x.decoded != nil {
		*x.decoded = document
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

func (m matcher) fits(x *facts) bool { return m.fitsBut(x, "") }

// fitsBut is fits, ignoring one of the members.
func (m matcher) fitsBut(x *facts, member string) bool {
	for i := range m {
		if m[i].member != member && !m[i].fits(x) {
			return false
		}
	}
	return true
}

func (r *matchRule) fits(x *facts) bool {
	switch r.form {
	case matchSubset:
		document := x.tree()
		return document.tree != nil && r.subset.within(document, true)
	case matchPrefix:
		return strings.HasPrefix(x.text(r.member), r.want)
	case matchStep:
		return x.step == r.want || x.templateStep == r.want
	}
	return x.text(r.member) == r.want
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
func (m matcher) differences(x *facts) (all []string) {
	for i := range m {
		r := &m[i]
		switch {
		case r.fits(x):
		case r.form == matchSubset:
			all = append(all, r.member+" lacks a wanted member or value")
		default:
			all = append(all, fmt.Sprintf("%s is %q, not %q", r.member, redactName(x.text(r.member)), r.want))
		}
	}
	return all
}

// distance counts the letters that differ in the facts for rules that do not hold, or in their beginnings.
func (m matcher) distance(x *facts) (letters int) {
	const most = 40 // of a fact
	for i := range m {
		if r := &m[i]; r.form != matchSubset && !r.fits(x) {
			letters += typoDistance(clipText(x.text(r.member), most), clipText(r.want, most), most)
		}
	}
	return letters
}

// matcher reads a match. It has one of the kinds, each of which has its members.
func (f *fieldReader) matcher(path string, raw []byte, kinds map[string][]matchMember) (kind string, m matcher) {
	kind = handlerEntry
	// The kind decides which members there may be, and need not be the first.
	for key, value := range jsonMembers(raw) {
		if word, _ := jsonString(value); key == "kind" && kinds[word] != nil {
			kind = word
		} else if key == "kind" && jsonKind(value) != 'n' {
			f.complain(memberPath(path, key), "must be one of %q", slices.Sorted(maps.Keys(kinds)))
		}
	}
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
