package main

// Lists of tasks, of the orchestration role and of the mount point.

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// taskListing is a request for a list of tasks, as read from its query.
type taskListing struct {
	taskQuery
	page, perPage int
	cursor        listCursor
}

// listCursor is the cursor of a request.
type listCursor struct {
	used bool   // whether the list goes from page to page with cursors
	life string // of the place after which the page begins
}

// page returns the page that a request asks for, and links to others. path is the path of
// the list for the caller; a word of the filter by state means the states that states
// returns.
func (s *surface) page(
	w *responseWriter, r *http.Request, q *query, path string,
	states func(word string) (stateSet, bool), words string,
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
	p = taskPage{store: s.svc.store, page: l.page, perPage: l.perPage, cursored: l.cursor.used, count: l.counted}
	p.taskList = p.store.list(&l.taskQuery)
	if l.cursor.used {
		p.page = p.before/p.perPage + 1
	} else {
		p.before = l.skip
	}
	if p.cursored && p.hasNext() {
		p.next = l.cursorAfter(p.last, s.svc.store.numbers())
	}
	if links := p.links(path, q.values); links != "" {
		w.Header()["Link"] = []string{links}
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

// cursor reads the place after which a page begins; a blank one asks for the first page.
func (q *query) cursor(l *taskListing) {
	text := q.text("cursor")
	if l.cursor.used = len(q.values["cursor"]) > 0; !l.cursor.used {
		return
	}
	if q.text("page") != "" {
		q.refuse("page and cursor cannot be combined")
	}
	if l.skip = 0; text == "" {
		return
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) != cursorLength {
		q.refuse("cursor: %.60q is not a next_cursor of a list", text)
		return
	}
	// The place in a cursor means nothing in another order.
	if word := int(b[0]); word >= len(sortWords) || word != l.sortWord() {
		q.refuse("cursor: it is of a list with another sort")
	}
	l.after = &taskPlace{int64(binary.BigEndian.Uint64(b[1:])), binary.BigEndian.Uint64(b[9:])}
	l.cursor.life = hex.EncodeToString(b[17:])
}

// sortWord returns the index of the word for the order of the list.
func (l *taskListing) sortWord() int { return 2*int(l.order) + boolCount(l.ascending) }

// cursorLength is the length of a cursor in bytes: the order, then a place in it, and the life of its number.
const cursorLength = 1 + 8 + 8 + lifeDigits/2

// cursorAfter returns the cursor for what comes after a place.
func (l *taskListing) cursorAfter(after taskPlace, lives lives) string {
	b := binary.BigEndian.AppendUint64([]byte{byte(l.sortWord())}, uint64(after.rank))
	b = binary.BigEndian.AppendUint64(b, after.seq)
	b, _ = hex.AppendDecode(b, []byte(lives.of(after.seq)))
	return base64.RawURLEncoding.EncodeToString(b)
}

// goesOn returns an error if the cursor is of another history of the store.
func (l *taskListing) goesOn(s *store) error {
	if l.after == nil {
		return nil
	}
	if _, err := s.readNumber(l.cursor.life + "-" + strconv.FormatUint(l.after.seq, 10)); err != nil {
		return failf(badRequest, "cursor: %v", err)
	}
	return nil
}

// maxLinkedQuery is the length of the longest query for which there are links.
const maxLinkedQuery = 2048

// links returns the value of the Link header: links to other pages of the same list, as
// RFC 8288 has them, or "" if their queries would be too long.
func (p *taskPage) links(path string, values url.Values) string {
	const place = "%01link" // escaped; of the value that the links differ by
	name := "page"
	if p.cursored {
		name = "cursor"
	}
	values = maps.Clone(values)
	values.Set(name, "\x01link")
	query, links := values.Encode(), []string(nil)
	before, after, _ := strings.Cut(query, place)
	link := func(rel, value string) {
		links = append(links, "<"+path+"?"+before+url.QueryEscape(value)+after+`>; rel="`+rel+`"`)
	}
	switch next := p.page + 1; {
	case len(query) > maxLinkedQuery:
	case p.cursored:
		link("first", "")
		if p.next != "" {
			link("next", p.next)
		}
	default:
		last := max(p.pages(), 1)
		link("first", "1")
		if p.page > 1 {
			link("prev", strconv.Itoa(min(p.page-1, last)))
		}
		if next <= last {
			link("next", strconv.Itoa(next))
		}
		link("last", strconv.Itoa(last))
	}
	return strings.Join(links, ", ")
}

// texts returns the values of a parameter that may be given several times, without blank
// ones.
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
