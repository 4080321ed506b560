package main

// Verifying the request log: what should have happened, how often and in which order, and
// what happened instead; and the status of a task.

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// verification is one expectation.
type verification struct {
	kind  string
	match matcher
	order []matcher // of entries that follow one another, with others between them
	bound countBound

	// The status that a task should have, for a verification of that.
	task   uuid
	status string
}

// countBound says how often something should have happened.
type countBound struct {
	how string // exactly, at_least or at_most
	n   int
}

func (b countBound) String() string {
	return strings.TrimPrefix(fmt.Sprintf("%s %d wanted", strings.ReplaceAll(b.how, "_", " "), b.n), "exactly ")
}

// holds reports whether n is within the bound, and whether that is settled: whatever
// is counted in addition would not change it.
func (b countBound) holds(n int) (holds, settled bool) {
	switch b.how {
	case "at_least":
		return n >= b.n, n >= b.n
	case "at_most":
		return n <= b.n, n > b.n
	}
	return n == b.n, n > b.n
}

// read reads {"match": {"kind"?, …}, "count"?: {…}, "order"?: [{…}, …]}, or {"task_uuid", "status"}.
func (q *verification) read(f *fieldReader, body []byte) {
	var order []byte
	given := f.members("", body, []string{"match", "count", "order", "task_uuid", "status"}, func(key, at string, value []byte) {
		switch key {
		case "task_uuid":
			q.task = f.id(at, value)
		case "status":
			q.status = f.text(at, value, 1, maxNameLength)
			if _, ok := parseTaskState(q.status); !ok && !f.complainedOf(at) {
				f.complain(at, "must be a state of tasks, not %.60q%s", q.status, meant(stateMeant(q.status)))
			}
		case "count":
			q.bound = f.countBound(at, value)
		case "order":
			order = value
		default:
			q.kind, q.match = f.matcher(at, value, journalMembers)
		}
	})
	switch ofTask := given["status"] || given["task_uuid"]; {
	case ofTask && len(given) > 2:
		f.complain("status", "needs task_uuid, and no other member")
	case ofTask && !given["task_uuid"]:
		f.complain("task_uuid", "is required")
	case ofTask && !given["status"]:
		f.complain("status", "is required")
	case !ofTask && !given["match"]:
		f.complain("match", "is required; {} matches every handler call")
	case order != nil: // its matches are of the kind that match is of
		f.array("order", order, maxOrder, "matches", func(at string, e []byte) {
			q.order = append(q.order, f.matchRules(at, e, journalMembers[q.kind]))
		})
	}
}

// follow returns how many of the matches of the order entries fit one after the other.
func (q *verification) follow(entries []*logEntry) (n int) {
	for _, e := range entries {
		if n < len(q.order) && q.order[n].fits(&e.facts) {
			n++
		}
	}
	return n
}

func (f *fieldReader) countBound(path string, raw []byte) (b countBound) {
	given := f.members(path, raw, []string{"exactly", "at_least", "at_most"}, func(key, at string, value []byte) {
		b = countBound{key, f.count(at, value, 0, 1<<31)}
	})
	if given != nil && len(given) != 1 {
		f.complain(path, "must have one of exactly, at_least and at_most")
	}
	return b
}

const (
	maxOrder = 1000 // matches of an order
	maxSeen  = 20   // entries that a failed verification shows
	maxTold  = 5    // of them in the message
)

// seenView shows what a failed verification found.
type seenView struct {
	Count   int   `json:"count"`
	Matched []any `json:"matched"` // the newest
	Others  []any `json:"others"`  // the newest of the kind that do not match
}

// verifiedView is the answer to a verification that holds.
type verifiedView struct {
	Count   int    `json:"count"`
	Warning string `json:"warning,omitempty"`
}

func (a *controlAPI) verify(w *responseWriter, r *http.Request) (any, error) {
	q := &verification{kind: handlerEntry, bound: countBound{"at_least", 1}}
	if err := (bodyRules{}).fields(r, "nothing was verified", q.read); err != nil {
		return nil, err
	}
	if q.status != "" {
		why, err := a.surface.svc.engine.explain(q.task, w, true)
		if err = a.surface.shown(r, q.task, err); err == nil && why.Status != q.status {
			err = a.unverified(failf(unverified, "the task is %s, not %s: %s", why.Status, q.status, why.Message))
		}
		return verifiedView{Count: 1}, err
	}
	n, err := q.verify(a.fixture.requests)
	warning := ""
	if n == 0 {
		warning = a.fixture.warning(append(q.order, q.match)...)
	}
	if f, ok := errors.AsType[*failure](err); ok && f.kind == unverified {
		if warning != "" {
			f.message += "; " + warning
		}
		err = a.unverified(f)
	}
	return verifiedView{n, warning}, err
}

// unverified returns the failure when the log is written: a test that fails now shows what was logged before.
func (a *controlAPI) unverified(f *failure) error {
	if flush := a.fixture.world.parts.flushLog; flush != nil {
		flush()
	}
	return f
}

// verify counts what matches. It refuses to answer where dropped entries might change the answer.
func (q *verification) verify(j *requestJournal) (int, error) {
	all, lost := j.copies(q.kind)
	dropped := lost[slices.Index(entryKindNames[:], q.kind)]
	var matched, others []*logEntry
	for _, e := range all {
		if q.match.fits(&e.facts) {
			matched = append(matched, e)
		} else {
			others = append(others, e)
		}
	}
	holds, settled := q.bound.holds(len(matched))
	inOrder := q.follow(matched)
	// What was dropped came before all of this. It cannot break an order that was found, but might complete one that
	// was not, unless the count is wrong whatever the order is.
	holds, settled = holds && inOrder == len(q.order), settled && (inOrder == len(q.order) || !holds)
	switch {
	case dropped > 0 && !settled:
		return 0, failf(conflict, "%d entries of the kind %s were dropped from the journal for lack of room, "+
			"so the answer is unknown; DELETE %s/requests before what is to be verified", dropped, q.kind, controlPath)
	case holds:
		return len(matched), nil
	}
	f := failf(unverified, "%s", q.finding(matched, others, inOrder))
	f.extra = errorMember{"seen", &seenView{len(matched), newestViews(matched, maxSeen), newestViews(others, maxTold)}}
	return 0, f
}

// finding says in one line what happened instead of what was expected, such as "2 calls match, 1 wanted: attempt 1
// failed (declined), attempt 2 succeeded".
func (q *verification) finding(matched, others []*logEntry, inOrder int) string {
	noun := entryNouns[q.kind]
	text := counted(len(matched), noun+" matches", noun+"s match") + ", " + q.bound.String()
	if holds, _ := q.bound.holds(len(matched)); holds {
		text = fmt.Sprintf("no %s that matches fits order[%d] after those before it", noun, inOrder)
	}
	shown, about := matched, ": "
	if len(matched) == 0 {
		shown, about = others, "; others: "
	}
	if len(shown) == 0 {
		return text + "; there were none at all"
	}
	if len(shown) > maxTold {
		about += "…, "
	}
	stepKnown := len(matched) > 0 && slices.ContainsFunc(q.match, func(r matchRule) bool { return r.member == "step" })
	var parts []string
	for _, e := range shown[max(0, len(shown)-maxTold):] {
		parts = append(parts, e.told(stepKnown))
	}
	return text + about + strings.Join(parts, ", ")
}

// newestViews shows the newest entries, at most so many.
func newestViews(entries []*logEntry, most int) []any {
	views := []any{}
	for _, e := range entries[max(0, len(entries)-most):] {
		views = append(views, e.view())
	}
	return views
}
