package main

// Lists of tasks, of the orchestration role and of the mount point.

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// taskListing is a request for a list of tasks, as read from its query.
type taskListing struct {
	taskQuery
	page, perPage int
	from          string // the number of the task after which the page begins, see readNumber
}

// page returns the page that a request asks for. A word of the filter by state means the states that states returns.
func (s *surface) page(
	w *responseWriter, r *http.Request, q *query, states func(word string) (stateSet, bool), words string,
) (p taskPage, err error) {
	l := q.listing()
	l.states = q.states(states, words)
	if err := mayGroup(s, r, l.failure); err != nil {
		return p, err
	}
	if len(l.values) > 0 {
		if !mayReadContexts(r.Context()) {
			return p, s.auth.deny(permTasksContextRead)
		}
		q.err = cmp.Or(q.err, s.svc.searchable(l.values))
	}
	if err := cmp.Or(l.goesOn(s.svc.store), q.doneHolding(w, l.perPage, 512)); err != nil {
		return p, err
	}
	p = taskPage{store: s.svc.store, page: l.page, perPage: l.perPage, cursored: q.cursored(), count: l.counted}
	p.taskList = p.store.list(&l.taskQuery)
	if p.cursored {
		p.page = p.before/p.perPage + 1
	} else {
		p.before = l.skip
	}
	if p.cursored && p.hasNext() {
		p.next = l.cursorAfter(p.last, s.svc.store.numbers())
	}
	return p, s.svc.store.wait(r.Context(), p.seq)
}

// mayGroup returns an error if a filter has a failure group and the caller may not read messages, from which its name
// follows.
func mayGroup(s *surface, r *http.Request, g failureGroup) error {
	if g != 0 && !mayReadResults(r.Context()) {
		return s.auth.deny(permStepsRead)
	}
	return nil
}

// listing reads everything but the states.
func (q *query) listing() *taskListing {
	l := &taskListing{page: q.number("page", 1, 1, 1<<31-1), perPage: q.number("per_page", 25, 1, 100)}
	l.taskFilter = q.taskFilter()
	l.skip, l.limit, l.counted = (l.page-1)*l.perPage, l.perPage, q.flag("counts")
	q.sort(l)
	q.cursor(l)
	return l
}

// taskFilter reads the filter of tasks, except for their states.
func (q *query) taskFilter() taskFilter {
	f := taskFilter{
		namespace: q.text("namespace"), name: q.text("name"), version: q.text("version"),
		initiator: q.text("initiator"), source: q.text("source_system"), text: strings.ToLower(q.text("q")),
		tags: q.texts("tag"), correlation: q.id("correlation_id"), parent: q.id("parent_correlation_id"),
		trace: q.traceID("trace_id"), failure: q.failureGroup(), values: q.contextValues(),
		created: q.period("created"), updated: q.period("updated"), completed: q.period("completed"),
	}
	if utf8.RuneCountInString(f.text) > maxNameLength {
		q.refuse("q has more than %d characters", maxNameLength)
	}
	if len(f.tags) > maxFilterTags {
		q.refuse("tag is given %d times; at most %d are allowed", len(f.tags), maxFilterTags)
	}
	return f
}

// contextValues reads the parameters that name a path of contexts, such as context.order_id.
func (q *query) contextValues() (all []contextValue) {
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		if path, ok := strings.CutPrefix(name, "context."); ok {
			if text := q.text(name); text != "" {
				all = append(all, contextValue{path, text})
			}
		}
	}
	if len(all) > maxSearchPaths {
		q.refuse("%d paths of contexts are given; at most %d are allowed", len(all), maxSearchPaths)
	}
	return all
}

// traceID reads the id of a trace, 32 hexadecimal digits.
func (q *query) traceID(name string) string {
	s := q.text(name)
	if s != "" && saneTraceparent("00-"+s+"-0000000000000001-00") == "" {
		q.refuse("%s must be 32 hexadecimal digits, not all zero, not %.60q", name, s)
	}
	return strings.ToLower(s)
}

// failureGroup reads the name of a failure group. It returns 0 if it is absent or blank.
func (q *query) failureGroup() (g failureGroup) {
	if name := q.text("failure_group"); name != "" {
		var ok bool
		if g, ok = parseFailureGroup(name); !ok {
			q.refuse("failure_group: %.60q is not the name of a group: 16 hexadecimal digits", name)
		}
	}
	return g
}

// maxFilterTags bounds what one list costs.
const maxFilterTags = 16

// states reads the filter by state: words between commas, or in several parameters.
func (q *query) states(parse func(word string) (stateSet, bool), words string) (all stateSet) {
	for _, text := range q.texts("status") {
		for word := range strings.SplitSeq(text, ",") {
			if word = strings.TrimSpace(word); word == "" {
				continue
			}
			set, ok := parse(word)
			if !ok {
				q.refuse("status: must be one of %s, not %.60q%s", words, word, meant(stateMeant(word)))
			}
			all |= set
		}
	}
	return all
}

// period reads the time that a list is limited to, after one instant and before another.
func (q *query) period(name string) period {
	return period{q.instant(name + "_after"), q.instant(name + "_before")}
}

// taskOrderNames are the words of sort; a minus before one reverses it.
var taskOrderNames = [...]string{
	orderCreated: "created_at", orderUpdated: "updated_at", orderCompleted: "completed_at", orderPriority: "priority",
}

// sortWords are all words of sort.
var sortWords = func() (words []string) {
	for _, name := range taskOrderNames {
		words = append(words, "-"+name, name)
	}
	return words
}()

// sort reads the order of a list.
func (q *query) sort(l *taskListing) {
	word := cmp.Or(q.text("sort"), sortWords[0])
	i := slices.Index(sortWords, word)
	if i < 0 {
		q.refuse("sort: must be one of %s, not %.60q", strings.Join(sortWords, ", "), word)
		return
	}
	l.order, l.ascending = taskOrder(i/2), i%2 == 1
}

// cursored reports whether the list goes from page to page with cursors.
func (q *query) cursored() bool { return q.values.Has("cursor") }

// cursor reads the place after which a page begins; a blank one asks for the first page.
func (q *query) cursor(l *taskListing) {
	text := q.text("cursor")
	if !q.cursored() {
		return
	}
	if q.text("page") != "" {
		q.refuse("page and cursor cannot be combined")
	}
	if l.skip = 0; text == "" {
		return
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	parts := strings.Fields(string(b)) // see cursorAfter
	if err != nil || len(parts) != 3 {
		q.refuse("cursor: %.60q is not a next_cursor of a list", text)
		return
	}
	// The place in a cursor means nothing in another order.
	rank, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || parts[0] != l.sortWord() {
		q.refuse("cursor: it is of a list with another sort")
	}
	l.after, l.from = &taskPlace{rank: rank}, parts[2]
}

func (l *taskListing) sortWord() string { return sortWords[2*int(l.order)+boolCount(l.ascending)] }

// cursorAfter returns the cursor for what comes after a place.
func (l *taskListing) cursorAfter(after taskPlace, lives lives) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s %d %s", l.sortWord(), after.rank, lives.text(after.seq)))
}

// goesOn sets the place of the cursor, or returns an error if it is of another history of the store.
func (l *taskListing) goesOn(s *store) (err error) {
	if l.after == nil {
		return nil
	}
	if l.after.seq, err = s.readNumber(l.from); err != nil {
		return failf(badRequest, "cursor: %v", err)
	}
	return nil
}

// texts returns the values of a parameter that may be given several times, without blank ones.
func (q *query) texts(name string) []string {
	q.known = append(q.known, name)
	return slices.DeleteFunc(slices.Clone(q.values[name]), func(v string) bool { return strings.TrimSpace(v) == "" })
}

// id reads a UUID. If it is absent or blank, id returns zero.
func (q *query) id(name string) (id uuid) {
	if s := q.text(name); s != "" {
		var ok bool
		if id, ok = parseUUID(s); !ok {
			q.refuse("%s: %.60q is not a UUID", name, s)
		}
	}
	return id
}

// instant reads a timestamp. If it is absent or blank, instant returns 0, and else never.
func (q *query) instant(name string) instant {
	s := q.text(name)
	if s == "" {
		return 0
	}
	at, err := parseInstant(s)
	switch {
	case err != nil && strings.Contains(s, " "):
		q.refuse("%s: %.60q is not a timestamp like 2026-01-31T12:00:00Z; in a query, + must be written as %%2B", name, s)
	case err != nil:
		q.refuse("%s: %.60q is not a timestamp like 2026-01-31T12:00:00Z", name, s)
	}
	// 1970-01-01T00:00:00Z would be 0, which means that there is no such parameter.
	return cmp.Or(at, 1)
}

// Finding anything.

const (
	standardFound = 10  // hits of a kind
	maxFound      = 100 // the most hits of a kind
)

// find answers with everything that has a text.
func (a *orchestrationAPI) find(w *responseWriter, r *http.Request) (any, error) {
	q := queryOf(r)
	f := &findQuery{
		text: strings.TrimSpace(q.text("q")), limit: q.number("limit", standardFound, 1, maxFound),
		may: securityOf(r.Context()).may,
	}
	if n := utf8.RuneCountInString(f.text); n < 1 || n > maxNameLength {
		q.refuse("q must have 1 to %d characters", maxNameLength)
	}
	for _, route := range []string{taskRoute, mountTaskRoute} {
		f.requests = append(f.requests, replayKeyOf(r, route, f.text))
	}
	if err := q.only(); err != nil {
		return nil, err
	}
	if err := w.holdEach(f.limit*len(findKinds), 512); err != nil {
		return nil, err
	}
	v, err := a.surface.svc.find(f, w)
	if err != nil {
		return nil, err
	}
	return v, a.surface.svc.store.waitAll(r.Context())
}
