package main

// The request log: the last API requests, deliveries to handlers, published events and
// deliveries of these to subscribers, for tests to read and verify. It holds no header and no
// credential, and a bounded number of entries and bytes.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Limits for the entries of each kind, and of a body in it.
const (
	maxJournalEntries = 10_000
	maxJournalBytes   = 16 << 20
	maxJournalBody    = 64 << 10
)

// requestJournal is the journal of one service.
type requestJournal struct {
	now func() instant

	mu    sync.Mutex
	seq   uint64 // of all kinds; guarded by mu, as below
	rings [entryKinds]journalRing
}

// journalRing holds the newest entries of a kind, and counts those it dropped for lack
// of room.
type journalRing struct {
	entries []journalEntry
	bytes   int
	dropped uint64
}

// grow adds to the count of bytes, and drops the oldest entries beyond the limits.
func (g *journalRing) grow(bytes int) {
	for g.bytes += bytes; len(g.entries) > 1 && (g.bytes > maxJournalBytes || len(g.entries) > maxJournalEntries); {
		g.bytes -= g.entries[0].size()
		clear(g.entries[:1]) // or the array would keep it
		g.entries = g.entries[1:]
		g.dropped++
	}
}

// journalEntry is an entry of any kind.
type journalEntry interface {
	matchable
	head() *entryHead
	kind() int
	copied() journalEntry       // under the journal's mutex
	told(stepKnown bool) string // in a few words
	size() int
	view() any
}

// entryHead holds the members with which entries of all kinds begin.
type entryHead struct {
	seq uint64  // in the order in which requests were answered, deliveries began and events were published
	at  instant // when the request came, the delivery began, or the event was published
}

func (h *entryHead) head() *entryHead { return h }

// apiCall is a request to the service. It is never changed once it is in the journal.
type apiCall struct {
	entryHead
	request requestView // not redacted, and without its body
	body    []byte
}

func (c *apiCall) kind() int            { return ofRequests }
func (c *apiCall) copied() journalEntry { return c }

func (c *apiCall) size() int {
	return 256 + len(c.request.Path) + len(c.request.Query) + len(c.request.Subject) + len(c.body)
}

func (c *apiCall) fact(member string) string {
	switch member {
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

func (c *handlerCall) kind() int            { return ofHandlers }
func (c *handlerCall) copied() journalEntry { return new(*c) }

func (c *handlerCall) size() int {
	n := 512 + len(c.callable) + c.attempt.envelopeSize()
	if c.outcome != nil {
		n += c.outcome.size()
	}
	return n
}

func (c *handlerCall) fact(member string) string {
	switch member {
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
	c.in = j
	j.enter(c)
}

// ended records the outcome of a delivery that has begun.
func (c *handlerCall) ended(o outcome) { c.in.ended(c, &c.outcome, o) }

// enter enters an event or a request that was answered, or what begins now.
func (j *requestJournal) enter(e journalEntry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	h, ring := e.head(), &j.rings[e.kind()]
	h.seq = j.seq
	if h.at == 0 {
		h.at = j.now()
	}
	ring.entries = append(ring.entries, e)
	ring.grow(e.size())
}

// ended records the outcome of an entry that has begun, at its place in the entry; only the first outcome counts.
func (j *requestJournal) ended(e journalEntry, place **outcome, o outcome) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if *place != nil {
		return
	}
	*place = &o
	ring := &j.rings[e.kind()]
	// An entry that was dropped before it ended no longer counts towards the bytes.
	if held := ring.entries; len(held) > 0 && held[0].head().seq <= e.head().seq {
		ring.grow(o.size())
	}
}

// clear forgets everything, the counts of dropped entries too.
func (j *requestJournal) clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rings = [entryKinds]journalRing{}
}

// eventEntry is a domain event that was published. It is never changed once it is in the
// journal.
type eventEntry struct {
	entryHead
	event *domainEvent
	lives lives // of the event's store
}

func (e *eventEntry) kind() int              { return ofEvents }
func (e *eventEntry) copied() journalEntry   { return e }
func (e *eventEntry) size() int              { return 512 + len(e.event.payload) }
func (e *eventEntry) document(string) []byte { return e.event.payload }

func (e *eventEntry) fact(member string) string {
	x := e.event
	switch member {
	case "event":
		return x.name
	case "namespace":
		return x.tpl.namespace
	case "name":
		return x.tpl.name
	case "version":
		return x.tpl.version
	case "step":
		return x.stepName
	case "template_step":
		return x.declaredBy()
	case "task_uuid":
		return x.task.String()
	case "attempt":
		return strconv.Itoa(x.attempt)
	case "success":
		return strconv.FormatBool(x.success)
	}
	return ""
}

// declaredBy returns the template's name of the step.
func (e *domainEvent) declaredBy() string {
	for i := range e.tpl.steps {
		if p := e.tpl.steps[i].publishes; len(p) >= e.n && &p[e.n-1] == e.publishedEvent {
			return e.tpl.steps[i].name
		}
	}
	return e.stepName
}

// eventEntryView shows an event that was published.
type eventEntryView struct {
	ID    uint64          `json:"id"`
	Kind  string          `json:"kind"`
	At    zonedTime       `json:"at"`
	Event json.RawMessage `json:"event"` // as in the stream
}

func (e *eventEntry) view() any {
	return eventEntryView{e.seq, eventEntryName, zonedTime(e.at), e.event.appendJSON(nil, e.lives)}
}

// told returns a text such as "order.paid of pay", without the step if the reader knows it.
func (e *eventEntry) told(stepKnown bool) string {
	if stepKnown {
		return e.event.name
	}
	return e.event.name + " of " + e.event.stepName
}

// sentEntry is an attempt to send an event to a subscriber, or to a stub.
type sentEntry struct {
	eventEntry
	*sendAttempt
	stub    *string // the stub's id; nil for none
	stubbed bool    // nothing went out
	outcome *outcome
}

func (e *sentEntry) kind() int            { return ofDeliveries }
func (e *sentEntry) copied() journalEntry { return new(*e) }

func (e *sentEntry) fact(member string) string {
	switch member {
	case "subscriber":
		return e.Name
	case "attempt":
		return strconv.Itoa(e.number)
	case "stubbed":
		return strconv.FormatBool(e.stubbed)
	}
	return e.eventEntry.fact(member)
}

func (e *sentEntry) told(stepKnown bool) string {
	return fmt.Sprintf("%s: attempt %d to send it to %s %s", e.eventEntry.told(stepKnown), e.number, e.Name, e.outcome.told())
}

// sentEntryView shows a delivery of an event.
type sentEntryView struct {
	eventEntryView
	Subscriber string          `json:"subscriber"`
	Attempt    int             `json:"attempt"`
	Stubbed    bool            `json:"stubbed"`
	Stub       *string         `json:"stub"`
	Outcome    json.RawMessage `json:"outcome"` // null until it ends
}

func (e *sentEntry) view() any {
	v := eventEntryView{e.seq, deliveryEntry, zonedTime(e.at), e.eventEntry.event.appendJSON(nil, e.lives)}
	return sentEntryView{v, e.Name, e.number, e.stubbed, e.stub, e.outcome.view()}
}

// by marks a delivery as decided by a stub.
func (c *handlerCall) by(s *stub, fault stubFault) *handlerCall {
	c.stub, c.fault = s.id, fault
	return c
}

// watchedRequest records an API request for the journal. It takes the place of the request's body, to see what is read.
type watchedRequest struct {
	journal       *requestJournal
	call          apiCall
	io.ReadCloser // the body
}

// watch begins to record a request, unless it is for the control API.
func (f *fixture) watch(s *surface, r *http.Request) requestWatch {
	if strings.HasPrefix(r.URL.Path, controlPath+"/") {
		return nil
	}
	w := &watchedRequest{journal: f.requests, ReadCloser: r.Body}
	w.call.at = f.clock.now()
	w.call.request = requestView{Surface: s.name, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery}
	r.Body = w
	return w
}

// Read records what the service reads of the body.
func (w *watchedRequest) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	room := min(n, maxJournalBody-len(w.call.body))
	w.call.body = append(w.call.body, p[:room]...)
	w.call.request.BodyTruncated = w.call.request.BodyTruncated || room < n
	return n, err
}

// admitted records the caller.
func (w *watchedRequest) admitted(r *http.Request) { w.call.request.Subject = subjectOf(r.Context()) }

// answered enters the request in the journal.
func (w *watchedRequest) answered(status int, began instant) {
	call := w.call // without the connection's body
	if call.request.BodyTruncated {
		call.body = call.body[:len(call.body)-cutRune(call.body)]
	}
	call.request.Status, call.request.DurationMS = status, float64(realNow().sub(began).Microseconds())/1000
	w.journal.enter(&call)
}

// The journal in the control API: how it is shown and filtered.

// The kinds of entries in the journal, as requests name them.
const (
	requestEntry   = "request"
	handlerEntry   = "handler"
	eventEntryName = "event"
	deliveryEntry  = "delivery"
)

// The kinds, as indexes of the journal's rings.
const (
	ofRequests = iota
	ofHandlers
	ofEvents
	ofDeliveries
	entryKinds
)

// entryNouns are the kinds in messages.
var entryNouns = map[string]string{requestEntry: "request", handlerEntry: "call", eventEntryName: "event", deliveryEntry: "attempt"}

var entryKindNames = []string{requestEntry, handlerEntry, eventEntryName, deliveryEntry}

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

func (c *apiCall) view() any {
	v := c.request
	v.Query = string(redact([]byte(v.Query)))
	if v.Body = redact(c.document("body")); v.Body == nil && len(c.body) > 0 {
		v.Body = appendJSONString(nil, cleanText(c.body))
	}
	return entryView{ID: c.seq, Kind: requestEntry, At: zonedTime(c.at), requestView: &v}
}

func (c *handlerCall) view() any {
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

// told returns a text such as "attempt 1 failed (declined)", with the step unless the reader knows it.
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

// copies returns the present entries of a kind, oldest first; "" stands for all kinds.
func (j *requestJournal) copies(kind string) (all []journalEntry, dropped droppedView) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for k := range j.rings {
		dropped[k] = j.rings[k].dropped
		if kind != "" && kind != entryKindNames[k] {
			continue
		}
		for _, e := range j.rings[k].entries {
			all = append(all, e.copied())
		}
	}
	slices.SortFunc(all, func(a, b journalEntry) int { return cmp.Compare(a.head().seq, b.head().seq) })
	return all, dropped
}

// length returns the number of entries.
func (j *requestJournal) length() (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for k := range j.rings {
		n += len(j.rings[k].entries)
	}
	return n
}

// droppedView counts the entries dropped for lack of room, by kind.
type droppedView [entryKinds]uint64

// MarshalJSON implements json.Marshaler.
func (v droppedView) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `{"requests":%d,"handler_calls":%d,"events":%d,"deliveries":%d}`,
		v[ofRequests], v[ofHandlers], v[ofEvents], v[ofDeliveries]), nil
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

// journalFilters are the members that a query can name, by kind. A query without a kind is about the first kind that
// has all members of the query.
var journalFilters = [entryKinds][]matchMember{
	ofRequests: {{"surface", matchSurface}, {"method", matchMethod}, {"path", matchPrefix}, {"status", matchCount}},
	ofHandlers: {{"task_uuid", matchID}, {"namespace", matchText}, {"name", matchText}, {"step", matchStep},
		{"callable", matchText}, {"attempt", matchCount}, {"stubbed", matchFlag}},
	ofEvents: {{"event", matchText}, {"task_uuid", matchID}, {"namespace", matchText}, {"name", matchText},
		{"step", matchStep}, {"attempt", matchCount}, {"success", matchFlag}},
	ofDeliveries: {{"subscriber", matchText}, {"event", matchText}, {"task_uuid", matchID}, {"namespace", matchText},
		{"name", matchText}, {"step", matchStep}, {"attempt", matchCount}, {"stubbed", matchFlag}},
}

func parseJournalFilter(r *http.Request) (*journalFilter, error) {
	q := queryOf(r)
	f := &journalFilter{kind: q.oneOf("kind", entryKindNames...), limit: q.number("limit", 1000, 1, maxJournalEntries)}
	if s := q.text("since"); s != "" {
		var err error
		if f.since, err = parseInstant(s); err != nil {
			q.refuse("since: %.60q is not a timestamp like 2026-01-31T12:00:00Z", s)
		}
	}
	f.demandAll(q)
	return f, q.only()
}

// demandAll adds the rules of a query, and sets the kind that it is about.
func (f *journalFilter) demandAll(q *query) {
	given := map[string]string{}
	known := memberNames(slices.Concat(journalFilters[:]...))
	for i, name := range known {
		// Several kinds have members of the same name, and text reports one that is given twice.
		if slices.Contains(known[:i], name) {
			continue
		}
		if value := q.text(name); value != "" {
			given[name] = value
		}
	}
	if len(given) == 0 {
		return
	}
	for kind, members := range journalFilters {
		left := maps.Clone(given)
		for _, m := range members {
			delete(left, m.name)
		}
		switch name := entryKindNames[kind]; {
		case f.kind != "" && f.kind != name:
		case len(left) == 0:
			f.kind = name
			for _, m := range members {
				if value := given[m.name]; value != "" {
					f.demand(q, m, value)
				}
			}
			return
		case f.kind == name:
			q.refuse("%s does not apply to entries of the kind %s", slices.Sorted(maps.Keys(left))[0], name)
		}
	}
	if f.kind == "" {
		q.refuse("no kind of entries has all of %s: some of it does not apply", anyOf(slices.Sorted(maps.Keys(given))))
	}
}

// demand adds a rule about a member, whose value is read like that of a match.
func (f *journalFilter) demand(q *query, member matchMember, value string) {
	raw := []byte(value)
	// A value in a query has no quotes: only counts and flags are written as in JSON.
	if member.form != matchCount && member.form != matchFlag || checkJSON(raw) != nil {
		raw = appendJSONString(nil, value)
	}
	var reader fieldReader
	f.rules = append(f.rules, reader.matchRule(member.name, member, raw))
	for _, p := range reader.problems {
		q.refuse("%s", p)
	}
}

func (a *controlAPI) listRequests(w *responseWriter, r *http.Request) (any, error) {
	f, err := parseJournalFilter(r)
	if err != nil {
		return nil, err
	}
	if err := w.holdEach(a.fixture.requests.length(), 256); err != nil {
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

func (a *controlAPI) forgetRequests(_ *responseWriter, _ *http.Request) (any, error) {
	a.fixture.requests.clear()
	return noContent{}, nil
}

// Verifying that the handler calls, API requests, events and deliveries that a test expects were
// made, as often and in the order in which it expects.

// journalMembers are the members of a match for entries of a kind.
var journalMembers = map[string][]matchMember{
	requestEntry: {
		{"surface", matchSurface}, {"method", matchMethod}, {"path", matchText}, {"path_prefix", matchPrefix},
		{"query", matchText}, {"status", matchCount}, {"subject", matchText}, {"body", matchSubset},
	},
	handlerEntry:   append(stubKinds[handlerEntry], matchMember{"task_uuid", matchID}, matchMember{"stubbed", matchFlag}),
	deliveryEntry:  append(stubKinds[deliveryEntry], matchMember{"task_uuid", matchID}, matchMember{"stubbed", matchFlag}),
	eventEntryName: append(journalFilters[ofEvents], matchMember{"version", matchText}, matchMember{"payload", matchSubset}),
}
