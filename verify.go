package main

// Verifying: whether the handler calls and API requests that a test expects were
// made, as often as it expects.

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
)

// verification is what is asked.
type verification struct {
	kind  string
	match matcher
	bound countBound
}

// countBound is how often something shall have happened.
type countBound struct {
	how string // exactly, at_least or at_most
	n   int
}

func (b countBound) String() string {
	return map[string]string{"exactly": "exactly", "at_least": "at least", "at_most": "at most"}[b.how] + fmt.Sprintf(" %d", b.n)
}

// holds tells whether n is as asked; settled whether it stays so, or stays not
// so, when there are more.
func (b countBound) holds(n int) (holds, settled bool) {
	switch b.how {
	case "at_least":
		return n >= b.n, n >= b.n
	case "at_most":
		return n <= b.n, n > b.n
	}
	return n == b.n, n > b.n
}

// parseVerification reads {"match": {"kind"?, …}, "count"?: {…}}.
func parseVerification(body []byte) (*verification, error) {
	if jsonKind(body) != '{' {
		return nil, failf(badRequest, "the body must be a JSON object")
	}
	q, f := &verification{kind: handlerEntry, bound: countBound{"at_least", 1}}, &fieldReader{}
	given := false
	eachMember(body, func(key string, raw []byte) bool {
		switch key {
		case "match":
			given = true
			q.readMatch(f, raw)
		case "count":
			q.bound = f.countBound(raw)
		default:
			f.complain(key, "is none of match, count")
		}
		return true
	})
	if !given {
		f.complain("match", "is required; {} matches every handler call")
	}
	return q, f.failure("nothing was verified")
}

// readMatch reads a match, whose member kind says which members it may have.
func (q *verification) readMatch(f *fieldReader, raw []byte) {
	members := []byte{'{'}
	eachMember(raw, func(key string, value []byte) bool {
		if key == "kind" {
			q.kind = f.word("match.kind", value, handlerEntry, requestEntry)
			return true
		}
		if len(members) > 1 {
			members = append(members, ',')
		}
		members = append(append(appendJSONString(members, key), ':'), value...)
		return true
	})
	if jsonKind(raw) == '{' {
		raw = append(members, '}')
	}
	known := callMembers
	if q.kind == requestEntry {
		known = requestMembers
	}
	q.match = f.matcher("match", raw, known)
}

func (f *fieldReader) countBound(raw []byte) (b countBound) {
	given := 0
	isObject := eachMember(raw, func(key string, value []byte) bool {
		given++
		if b.how = key; !slices.Contains([]string{"exactly", "at_least", "at_most"}, key) {
			f.complain("count."+key, "is none of exactly, at_least, at_most")
			return true
		}
		n, ok := jsonInt(value)
		if b.n = int(n); !ok || n < 0 || n > 1<<31 {
			f.complain("count."+key, "must be an integer from 0")
		}
		return true
	})
	if !isObject || given != 1 {
		f.complain("count", "must be an object with one of exactly, at_least, at_most")
	}
	return b
}

// Limits of what a failed verification shows.
const (
	maxSeen = 20
	maxNear = 5
)

// seenView is what was seen by a verification that failed.
type seenView struct {
	Count   int         `json:"count"`
	Matched []entryView `json:"matched"` // the newest
	Nearest []nearView  `json:"nearest"` // the likeliest that do not match
}

// nearView is an entry that does not match, and why.
type nearView struct {
	Entry   entryView `json:"entry"`
	Differs []string  `json:"differs"`
}

// verifiedView is the answer of a verification that holds.
type verifiedView struct {
	Count int `json:"count"`
}

func (a *controlAPI) verify(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(r, false)
	if err != nil {
		return err
	}
	q, err := parseVerification(body)
	if err != nil {
		return err
	}
	n, err := q.verify(a.svc.requests)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, verifiedView{n})
}

// verify counts what matches. Where entries were dropped that might change the
// answer there is none.
func (q *verification) verify(j *requestJournal) (int, error) {
	all, dropped := q.entries(j)
	var matched, others []journalEntry
	for _, e := range all {
		if q.match.fits(e) {
			matched = append(matched, e)
		} else {
			others = append(others, e)
		}
	}
	holds, settled := q.bound.holds(len(matched))
	switch {
	case dropped > 0 && !settled:
		return 0, failf(conflict, "%d entries of the kind %s were dropped from the journal for lack of room, "+
			"so that nobody knows; DELETE %s/requests before what is to be verified", dropped, q.kind, controlPath)
	case holds:
		return len(matched), nil
	}
	f := failf(unverified, "%d entries of the kind %s match; %s should", len(matched), q.kind, q.bound)
	f.seen = &seenView{len(matched), viewsOf(matched[max(0, len(matched)-maxSeen):]), q.nearest(others)}
	return 0, f
}

// entries are those of the kind, and how many of it were dropped.
func (q *verification) entries(j *requestJournal) (all []journalEntry, dropped uint64) {
	requests, calls, lost := j.copies()
	if q.kind == requestEntry {
		for _, c := range requests {
			all = append(all, c)
		}
		return all, lost.Requests
	}
	for _, c := range calls {
		all = append(all, c)
	}
	return all, lost.HandlerCalls
}

// nearest are the entries that differ least, the newest of them first.
func (q *verification) nearest(others []journalEntry) []nearView {
	type near struct {
		entry   journalEntry
		differs []string
	}
	all := make([]near, len(others))
	for i, e := range others {
		all[i] = near{e, q.match.differences(e)}
	}
	slices.SortFunc(all, func(a, b near) int {
		return cmp.Or(cmp.Compare(len(a.differs), len(b.differs)), cmp.Compare(b.entry.place(), a.entry.place()))
	})
	views := []nearView{}
	for _, n := range all[:min(len(all), maxNear)] {
		views = append(views, nearView{n.entry.view(), n.differs})
	}
	return views
}
