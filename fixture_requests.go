package main

// The request journal: the last API requests and the last deliveries to handlers, for
// tests to read and verify. It holds no header and no credential, and a bounded
// number of entries and bytes.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Limits of each of the journal's two halves, and of a body in it.
const (
	maxJournalEntries = 10_000
	maxJournalBytes   = 16 << 20
	maxJournalBody    = 64 << 10
)

// requestJournal is the journal of one service.
type requestJournal struct {
	now func() instant

	mu       sync.Mutex
	seq      uint64                // of both; guarded by mu, as all below
	requests journalRing[*apiCall] // in the order in which they were answered
	calls    journalRing[*handlerCall]
}

// journalRing holds the newest entries of a kind, and counts those it dropped for lack
// of room.
type journalRing[E interface{ size() int }] struct {
	entries []E
	bytes   int
	dropped uint64
}

// push enters the newest entry.
func (g *journalRing[E]) push(e E) {
	g.entries = append(g.entries, e)
	g.grow(e.size())
}

// grow adds to the count of bytes, and drops the oldest entries beyond the limits.
func (g *journalRing[E]) grow(bytes int) {
	for g.bytes += bytes; len(g.entries) > 1 && (g.bytes > maxJournalBytes || len(g.entries) > maxJournalEntries); {
		g.bytes -= g.entries[0].size()
		clear(g.entries[:1]) // or the array would keep it
		g.entries = g.entries[1:]
		g.dropped++
	}
}

// entryHead holds the members with which entries of both kinds begin.
type entryHead struct {
	seq uint64  // in the order of requests answered and deliveries begun
	at  instant // when the request came, or the delivery began
}

func (h *entryHead) head() *entryHead { return h }

// apiCall is a request to the service. It is never changed once it is in the journal.
type apiCall struct {
	entryHead
	request requestView // not redacted, and without its body
	body    []byte
}

func (c *apiCall) size() int {
	return 256 + len(c.request.Path) + len(c.request.Query) + len(c.request.Subject) + len(c.body)
}

func (c *apiCall) fact(member string) string {
	switch member {
	case "kind":
		return requestEntry
	case "surface":
		return c.request.Surface
	case "method":
		return c.request.Method
	case "path", "path_prefix":
		return c.request.Path
	case "query":
		return c.request.Query
	case "status":
		return strconv.Itoa(c.request.Status)
	case "subject":
		return c.request.Subject
	}
	return ""
}

// document returns the body, if it is JSON and complete.
func (c *apiCall) document(string) []byte {
	if c.request.BodyTruncated || len(c.body) == 0 || checkJSON(c.body) != nil {
		return nil
	}
	return c.body
}

// handlerCall is the delivery of an attempt to its handler, or to a stub.
type handlerCall struct {
	entryHead
	callable string
	declared string // the template's name of the step
	attempt  *attempt
	stub     string // the stub's id; "" for the handler itself
	fault    stubFault
	outcome  *outcome // nil until it ends; guarded by the journal's mu
	in       *requestJournal
}

func (c *handlerCall) size() int {
	n := 512 + len(c.callable) + c.attempt.envelopeSize()
	if c.outcome != nil {
		n += c.outcome.size()
	}
	return n
}

func (c *handlerCall) fact(member string) string {
	switch member {
	case "kind":
		return handlerEntry
	case "namespace":
		return c.attempt.namespace
	case "name":
		return c.attempt.name
	case "version":
		return c.attempt.version
	case "step":
		return c.attempt.stepName
	case "template_step":
		return c.declared
	case "callable":
		return c.callable
	case "attempt":
		return strconv.Itoa(c.attempt.number)
	case "task_uuid":
		return c.attempt.taskID.String()
	case "stubbed":
		return strconv.FormatBool(c.stub != "")
	}
	return ""
}

func (c *handlerCall) document(string) []byte { return orEmptyObject(c.attempt.context) }

// begin enters a delivery that begins.
func (j *requestJournal) begin(c *handlerCall) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	c.seq, c.at, c.in = j.seq, j.now(), j
	j.calls.push(c)
}

// ended notes the outcome of a delivery that has begun; the first one counts.
func (c *handlerCall) ended(o outcome) {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if c.outcome != nil {
		return
	}
	c.outcome = &o
	if held := c.in.calls.entries; len(held) > 0 && held[0].seq <= c.seq {
		c.in.calls.grow(o.size())
	}
}

// enter enters a request that was answered.
func (j *requestJournal) enter(c *apiCall) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	c.seq = j.seq
	j.requests.push(c)
}

// clear forgets everything, the counts of dropped entries too.
func (j *requestJournal) clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.requests, j.calls = journalRing[*apiCall]{}, journalRing[*handlerCall]{}
}

// newHandlerCall returns the entry of a delivery.
func newHandlerCall(a *attempt, callable, declared string) *handlerCall {
	return &handlerCall{attempt: a, callable: callable, declared: declared}
}

// by marks a delivery as decided by a stub.
func (c *handlerCall) by(s *stub, fault stubFault) *handlerCall {
	c.stub, c.fault = s.id, fault
	return c
}

// watchedRequest notes one API request for the journal, as its body.
type watchedRequest struct {
	journal *requestJournal
	call    apiCall
	body    io.ReadCloser
}

// watch begins to note a request that is not for the control API.
func (f *fixture) watch(s *surface, r *http.Request) requestWatch {
	if strings.HasPrefix(r.URL.Path, controlPath+"/") {
		return nil
	}
	w := &watchedRequest{journal: f.requests, body: r.Body}
	w.call.at = f.clock.now()
	w.call.request = requestView{Surface: s.name, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery}
	r.Body = w
	return w
}

// Read notes what a handler reads of the body.
func (w *watchedRequest) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	room := min(n, maxJournalBody-len(w.call.body))
	w.call.body = append(w.call.body, p[:room]...)
	w.call.request.BodyTruncated = w.call.request.BodyTruncated || room < n
	return n, err
}

func (w *watchedRequest) Close() error { return w.body.Close() }

// admitted notes the caller.
func (w *watchedRequest) admitted(r *http.Request) { w.call.request.Subject = subjectOf(r.Context()) }

// answered enters the request in the journal.
func (w *watchedRequest) answered(status int, began instant) {
	call := w.call // without the connection's body
	call.request.Status, call.request.DurationMS = status, float64(realNow().sub(began).Microseconds())/1000
	w.journal.enter(&call)
}

// The journal in the control API: how it is shown and filtered.

// The kinds of entries in the journal.
const (
	requestEntry = "request"
	handlerEntry = "handler"
)

// entryView shows an entry: an API request or a delivery to a handler.
type entryView struct {
	ID   uint64    `json:"id"`
	Kind string    `json:"kind"`
	At   zonedTime `json:"at"`
	*requestView
	*deliveryView
}

// requestView shows an API request.
type requestView struct {
	Surface       string          `json:"surface"`
	Method        string          `json:"method"`
	Path          string          `json:"path"`
	Query         string          `json:"query"`
	Status        int             `json:"status"`
	DurationMS    float64         `json:"duration_ms"` // real time
	Subject       string          `json:"subject"`
	Body          json.RawMessage `json:"body"` // JSON as it is, other text in a string; null for none
	BodyTruncated bool            `json:"body_truncated"`
}

// deliveryView shows a delivery of an attempt to its handler, or to a stub.
type deliveryView struct {
	TaskUUID  uuid            `json:"task_uuid"`
	StepUUID  uuid            `json:"step_uuid"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Version   string          `json:"version"`
	Step      string          `json:"step"`
	Callable  string          `json:"callable"`
	Attempt   int             `json:"attempt"`
	Stubbed   bool            `json:"stubbed"`
	Stub      *string         `json:"stub"`
	Fault     *stubFault      `json:"fault"`
	Envelope  json.RawMessage `json:"envelope"`
	Outcome   json.RawMessage `json:"outcome"` // null until it ends
}

func (c *apiCall) view() entryView {
	v := c.request
	v.Query = string(redact([]byte(v.Query)))
	if v.Body = redact(c.document("body")); v.Body == nil && len(c.body) > 0 {
		v.Body = appendJSONString(nil, cleanText(c.body))
	}
	return entryView{ID: c.seq, Kind: requestEntry, At: zonedTime(c.at), requestView: &v}
}

func (c *handlerCall) view() entryView {
	a := c.attempt
	v := &deliveryView{
		TaskUUID: a.taskID, StepUUID: a.stepID, Namespace: a.namespace, Name: a.name, Version: a.version,
		Step: a.stepName, Callable: redactName(c.callable), Attempt: a.number, Stubbed: c.stub != "",
		Envelope: redact(a.envelope(nil)), Outcome: c.outcome.view(),
	}
	if c.stub != "" {
		v.Stub = &c.stub
	}
	if c.fault != noFault {
		v.Fault = &c.fault
	}
	return entryView{ID: c.seq, Kind: handlerEntry, At: zonedTime(c.at), deliveryView: v}
}

func (c *apiCall) told(bool) string {
	return fmt.Sprintf("%s %s got %d", c.request.Method, c.request.Path, c.request.Status)
}

// told returns such as "attempt 1 failed (declined)", with the step unless the reader knows it.
func (c *handlerCall) told(stepKnown bool) string {
	text := fmt.Sprintf("attempt %d %s", c.attempt.number, c.outcome.told())
	if c.fault != noFault {
		text += fmt.Sprintf(" (%s)", c.fault)
	}
	if !stepKnown {
		text = c.attempt.stepName + " " + text
	}
	return text
}

// told returns what became of an attempt, in a few words.
func (o *outcome) told() string {
	switch {
	case o == nil:
		return "has no outcome"
	case o.checkpoint != nil:
		return "yielded"
	case o.success:
		return "succeeded"
	}
	return "failed (" + strings.Join(strings.Fields(clippedText(o.err.message)), " ") + ")"
}

// view returns {"success", "result"}, {"success", "checkpoint"} or {"success", "error"}; nil for
// no outcome.
func (o *outcome) view() json.RawMessage {
	switch {
	case o == nil:
		return nil
	case o.checkpoint != nil:
		return slices.Concat([]byte(`{"success":true,"checkpoint":`), o.checkpoint, []byte{'}'})
	case o.success && o.result == nil:
		return json.RawMessage(`{"success":true,"result":null}`)
	case o.success:
		return slices.Concat([]byte(`{"success":true,"result":`), o.result, []byte{'}'})
	}
	return append(o.err.appendJSON([]byte(`{"success":false,"error":`)), '}')
}

// copies returns the present entries of a kind, oldest first; "" stands for both kinds.
func (j *requestJournal) copies(kind string) (all []journalEntry, dropped droppedView) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if kind != handlerEntry {
		for _, c := range j.requests.entries {
			all = append(all, c)
		}
	}
	if kind != requestEntry {
		for _, c := range j.calls.entries {
			copied := *c
			all = append(all, &copied)
		}
	}
	slices.SortFunc(all, func(a, b journalEntry) int { return cmp.Compare(a.head().seq, b.head().seq) })
	return all, droppedView{j.requests.dropped, j.calls.dropped}
}

// length returns the number of entries.
func (j *requestJournal) length() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.requests.entries) + len(j.calls.entries)
}

// droppedView counts the entries dropped for lack of room.
type droppedView struct {
	Requests     uint64 `json:"requests"`
	HandlerCalls uint64 `json:"handler_calls"`
}

// of returns the count of a kind.
func (v droppedView) of(kind string) uint64 {
	if kind == requestEntry {
		return v.Requests
	}
	return v.HandlerCalls
}

// requestsView is the answer of GET /_stepwell/requests.
type requestsView struct {
	Entries jsonList    `json:"entries"` // oldest first
	Total   int         `json:"total"`   // that match
	Dropped droppedView `json:"dropped"`
}

// journalFilter chooses entries by a query.
type journalFilter struct {
	kind  string
	rules matcher // of members that the kind has
	since instant
	limit int
}

// journalFilters are the members that a query can name, by kind. A member of one
// kind alone chooses that kind.
var journalFilters = map[string][]matchMember{
	requestEntry: {{"surface", matchSurface}, {"method", matchMethod}, {"path", matchPrefix}, {"status", matchCount}},
	handlerEntry: {{"task_uuid", matchID}, {"namespace", matchText}, {"name", matchText}, {"step", matchStep},
		{"callable", matchText}, {"attempt", matchCount}, {"stubbed", matchFlag}},
}

func parseJournalFilter(r *http.Request) (*journalFilter, error) {
	q := queryOf(r)
	f := &journalFilter{kind: q.text("kind"), limit: q.number("limit", 1000, 1, maxJournalEntries)}
	if s := q.text("since"); s != "" {
		var err error
		if f.since, err = parseInstant(s); err != nil {
			q.refuse("since: %.60q is not a timestamp like 2026-01-31T12:00:00Z", s)
		}
	}
	if f.kind != "" && journalFilters[f.kind] == nil {
		q.refuse("kind must be request or handler, not %.60q", f.kind)
	}
	for _, kind := range []string{requestEntry, handlerEntry} {
		for _, m := range journalFilters[kind] {
			if value := q.text(m.name); value != "" {
				f.demand(q, kind, m, value)
			}
		}
	}
	return f, q.only()
}

// demand adds a rule about a member of a kind, whose value is read like that of a match.
func (f *journalFilter) demand(q *query, kind string, member matchMember, value string) {
	if f.kind != "" && f.kind != kind {
		q.refuse("%s does not apply to entries of the kind %s", member.name, f.kind)
	}
	f.kind = kind
	raw := []byte(value)
	if member.form != matchCount && member.form != matchFlag || checkJSON(raw) != nil {
		raw = appendJSONString(nil, value)
	}
	var reader fieldReader
	f.rules = append(f.rules, reader.matchRule(member.name, member, raw))
	for _, p := range reader.problems {
		q.refuse("%s", p)
	}
}

func (a *controlAPI) listRequests(w http.ResponseWriter, r *http.Request) (any, error) {
	f, err := parseJournalFilter(r)
	if err != nil {
		return nil, err
	}
	if err := w.(*recorder).holdEach(a.fixture.requests.length(), 256); err != nil {
		return nil, err
	}
	return f.view(a.fixture.requests), nil
}

// view shows the newest entries that match.
func (f *journalFilter) view(j *requestJournal) requestsView {
	all, dropped := j.copies(f.kind)
	fit := slices.DeleteFunc(all, func(e journalEntry) bool { return e.head().at < f.since || !f.rules.fits(e) })
	shown := fit[max(0, len(fit)-f.limit):]
	return requestsView{jsonList{len(shown), func(o *jsonWriter, i int) {
		if o.holdElement(shown[i].size()) == nil {
			o.value(shown[i].view())
		}
	}}, len(fit), dropped}
}

// journalEntry is an entry of either kind.
type journalEntry interface {
	matchable
	head() *entryHead
	size() int
	view() entryView
	told(stepKnown bool) string // in a few words
}

func viewsOf(entries []journalEntry) []entryView {
	views := make([]entryView, len(entries))
	for i, e := range entries {
		views[i] = e.view()
	}
	return views
}

func (a *controlAPI) forgetRequests(_ http.ResponseWriter, _ *http.Request) (any, error) {
	a.fixture.requests.clear()
	return noContent{}, nil
}

// Verifying that the handler calls and API requests that a test expects were made, as
// often as it expects.

// journalMembers are the members of a match for entries of a kind.
var journalMembers = map[string][]matchMember{
	requestEntry: {
		{"kind", matchKind}, {"surface", matchSurface}, {"method", matchMethod}, {"path", matchText}, {"path_prefix", matchPrefix},
		{"query", matchText}, {"status", matchCount}, {"subject", matchText}, {"body", matchSubset},
	},
	handlerEntry: slices.Concat([]matchMember{{"kind", matchKind}}, stubMembers,
		[]matchMember{{"task_uuid", matchID}, {"stubbed", matchFlag}}),
}

// verification is one expectation.
type verification struct {
	kind  string
	match matcher
	bound countBound
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

// read reads {"match": {"kind"?, …}, "count"?: {…}}.
func (q *verification) read(f *fieldReader, body []byte) {
	given := f.members("", body, []string{"match", "count"}, func(key, at string, value []byte) {
		if key == "count" {
			q.bound = f.countBound(at, value)
			return
		}
		eachMember(value, func(key string, kind []byte) bool { // it decides which other members there may be
			if word, _ := jsonString(kind); key == "kind" && word == requestEntry {
				q.kind = requestEntry
			}
			return true
		})
		q.match = f.matcher(at, value, journalMembers[q.kind])
	})
	if !given["match"] {
		f.complain("match", "is required; {} matches every handler call")
	}
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

// Limits of the entries that a failed verification shows.
const (
	maxSeen = 20
	maxNear = 5
	maxTold = 5 // in the message
)

// seenView shows what a failed verification found.
type seenView struct {
	Count   int         `json:"count"`
	Matched []entryView `json:"matched"` // the newest
	Nearest []nearView  `json:"nearest"` // those that nearly match
}

// nearView shows an entry that does not match, and why.
type nearView struct {
	Entry   entryView `json:"entry"`
	Differs []string  `json:"differs"`
}

// verifiedView is the answer to a verification that holds.
type verifiedView struct {
	Count int `json:"count"`
}

func (a *controlAPI) verify(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := &verification{kind: handlerEntry, bound: countBound{"at_least", 1}}
	if err := (bodyRules{}).fields(r, "nothing was verified", q.read); err != nil {
		return nil, err
	}
	n, err := q.verify(a.fixture.requests)
	if err != nil {
		return nil, err
	}
	return verifiedView{n}, nil
}

// verify counts what matches. It refuses to answer where dropped entries might change
// the answer.
func (q *verification) verify(j *requestJournal) (int, error) {
	all, lost := j.copies(q.kind)
	dropped := lost.of(q.kind)
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
			"so the answer is unknown; DELETE %s/requests before what is to be verified", dropped, q.kind, controlPath)
	case holds:
		return len(matched), nil
	}
	near := q.nearest(others)
	f := failf(unverified, "%s", q.finding(matched, near))
	f.extra = errorMember{"seen", &seenView{len(matched), viewsOf(matched[max(0, len(matched)-maxSeen):]), near}}
	return 0, f
}

// finding says in one line what happened in place of what was expected, such as "2 calls match,
// 1 wanted: attempt 1 failed (declined), attempt 2 succeeded".
func (q *verification) finding(matched []journalEntry, near []nearView) string {
	noun := map[string]string{handlerEntry: "call", requestEntry: "request"}[q.kind]
	text := fmt.Sprintf("%d %ss match, %s", len(matched), noun, q.bound)
	if len(matched) == 1 {
		text = fmt.Sprintf("1 %s matches, %s", noun, q.bound)
	}
	stepKnown := slices.ContainsFunc(q.match, func(r matchRule) bool { return r.member == "step" })
	var parts []string
	for _, e := range matched[max(0, len(matched)-maxTold):] {
		parts = append(parts, e.told(stepKnown))
	}
	switch {
	case len(matched) > maxTold:
		return text + ": …, " + strings.Join(parts, ", ")
	case len(parts) > 0:
		return text + ": " + strings.Join(parts, ", ")
	case len(near) > 0:
		return text + "; the nearest differs: " + strings.Join(near[0].Differs, ", ")
	}
	return text + "; there were none at all"
}

// nearest returns the entries that differ least, the newest of them first.
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
		return cmp.Or(cmp.Compare(len(a.differs), len(b.differs)), cmp.Compare(b.entry.head().seq, a.entry.head().seq))
	})
	views := []nearView{}
	for _, n := range all[:min(len(all), maxNear)] {
		views = append(views, nearView{n.entry.view(), n.differs})
	}
	return views
}
