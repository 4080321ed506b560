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
	"strings"
	"sync"
)

// Limits for the entries of each kind, and of a body in it.
const (
	maxJournalEntries = 10_000
	maxJournalBytes   = 16 << 20
	maxJournalBody    = 64 << 10
)

// The kinds of entries, as requests name them.
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

var (
	entryKindNames = [entryKinds]string{requestEntry, handlerEntry, eventEntryName, deliveryEntry}

	// entryNouns are the kinds in messages.
	entryNouns = map[string]string{requestEntry: "request", handlerEntry: "call", eventEntryName: "event", deliveryEntry: "attempt"}
)

// logEntry is an entry of the request log. Its kind decides which parts it has. Only its outcome changes once it is in
// the log.
type logEntry struct {
	facts facts
	kind  int
	seq   uint64  // in the order in which requests were answered, deliveries began and events were published
	at    instant // when the request came, the delivery began, or the event was published
	in    *requestJournal

	// Of a request.
	body      []byte // as far as it is kept
	truncated bool
	took      float64 // ms, in real time

	// Of an event and its deliveries.
	published *domainEvent
	lives     lives // of the event's store

	// Of a delivery to a handler, a subscriber, or a stub.
	delivered *attempt // to a handler
	stub      *string  // the id of the stub that decided; nil for none
	fault     stubFault
	outcome   *outcome // nil until it ends; guarded by the journal's mu
}

func callOf(t *task, i int, a *attempt) *logEntry {
	return &logEntry{kind: ofHandlers, facts: factsOf(t, i, a.number), delivered: a}
}

func (f *fixture) eventOf(e *domainEvent) *logEntry {
	return &logEntry{kind: ofEvents, published: e, lives: f.svc.store.numbers(), facts: facts{
		event: e.name, namespace: e.tpl.namespace, name: e.tpl.name, version: e.tpl.version, step: e.stepName,
		templateStep: e.declaredBy(), attempt: e.attempt, task: e.task, success: e.success, document: e.payload}}
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

// by marks a delivery as decided by a stub.
func (e *logEntry) by(s *stub, fault stubFault) *logEntry {
	e.stub, e.facts.stubbed, e.fault = &s.id, true, fault
	return e
}

func (e *logEntry) size() int {
	n := 512 + len(e.facts.path) + len(e.facts.query) + len(e.facts.subject) + len(e.facts.callable) + len(e.body)
	if e.published != nil {
		n += len(e.published.payload)
	}
	if e.delivered != nil {
		n += e.delivered.envelopeSize()
	}
	if e.outcome != nil {
		n += e.outcome.size()
	}
	return n
}

// requestJournal is the journal of one service.
type requestJournal struct {
	now func() instant

	mu    sync.Mutex
	seq   uint64 // of all kinds; guarded by mu, as below
	rings [entryKinds]journalRing
}

// journalRing holds the newest entries of a kind, and counts those it dropped for lack of room.
type journalRing struct {
	entries []*logEntry
	bytes   int
	dropped uint64
}

// grow adds to the count of bytes, and drops the oldest entries beyond the limits.
func (g *journalRing) grow(bytes int) {
	for g.bytes += bytes; len(g.entries) > 1 && (g.bytes > maxJournalBytes || len(g.entries) > maxJournalEntries); {
		g.bytes -= g.entries[0].size()
		g.entries[0] = nil // or the array would keep it
		g.entries = g.entries[1:]
		g.dropped++
	}
}

// enter enters an event or a request that was answered, or what begins now.
func (j *requestJournal) enter(e *logEntry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	e.seq, e.in = j.seq, j
	if e.at == 0 {
		e.at = j.now()
	}
	ring := &j.rings[e.kind]
	ring.entries = append(ring.entries, e)
	ring.grow(e.size())
}

// ended records the outcome of a delivery that was entered; only the first outcome counts.
func (e *logEntry) ended(o outcome) {
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	if e.outcome != nil {
		return
	}
	e.outcome = &o
	// An entry that was dropped before it ended no longer counts towards the bytes.
	if ring := &e.in.rings[e.kind]; len(ring.entries) > 0 && ring.entries[0].seq <= e.seq {
		ring.grow(o.size())
	}
}

// clear forgets everything, the counts of dropped entries too.
func (j *requestJournal) clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rings = [entryKinds]journalRing{}
}

// copies returns the present entries of a kind, oldest first; "" stands for all kinds.
func (j *requestJournal) copies(kind string) (all []*logEntry, dropped droppedView) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for k := range j.rings {
		dropped[k] = j.rings[k].dropped
		if kind == "" || kind == entryKindNames[k] {
			for _, e := range j.rings[k].entries {
				if k == ofHandlers || k == ofDeliveries { // whose outcome may come meanwhile
					e = new(*e)
				}
				all = append(all, e)
			}
		}
	}
	slices.SortFunc(all, func(a, b *logEntry) int { return cmp.Compare(a.seq, b.seq) })
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

// watchedRequest records an API request for the journal. It takes the place of the request's body, to see what is read.
type watchedRequest struct {
	journal       *requestJournal
	entry         *logEntry
	io.ReadCloser // the body
}

// watch begins to record a request, unless it is for the control API.
func (f *fixture) watch(s *surface, r *http.Request) requestWatch {
	if strings.HasPrefix(r.URL.Path, controlPath+"/") {
		return nil
	}
	e := &logEntry{kind: ofRequests, at: f.clock.now(),
		facts: facts{surface: s.name, method: r.Method, path: r.URL.Path, query: r.URL.RawQuery}}
	w := &watchedRequest{f.requests, e, r.Body}
	r.Body = w
	return w
}

// Read records what the service reads of the body.
func (w *watchedRequest) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	room := min(n, maxJournalBody-len(w.entry.body))
	w.entry.body = append(w.entry.body, p[:room]...)
	w.entry.truncated = w.entry.truncated || room < n
	return n, err
}

// admitted records the caller.
func (w *watchedRequest) admitted(r *http.Request) { w.entry.facts.subject = subjectOf(r.Context()) }

// answered enters the request in the journal.
func (w *watchedRequest) answered(status int, began instant) {
	e := new(*w.entry) // a handler may still read the body
	e.facts.status, e.took = status, float64(realNow().sub(began).Microseconds())/1000
	if e.truncated {
		e.body = e.body[:len(e.body)-cutRune(e.body)]
	} else if len(e.body) > 0 && checkJSON(e.body) == nil {
		e.facts.document = e.body
	}
	w.journal.enter(e)
}

// The journal in the control API: how it is shown and filtered.

// entryHead holds the members that all entries have.
type entryHead struct {
	ID   uint64    `json:"id"`
	Kind string    `json:"kind"`
	At   zonedTime `json:"at"`
}

// requestView shows an API request.
type requestView struct {
	entryHead
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

// deliveryView shows an event, or a delivery to a handler, a subscriber, or a stub.
type deliveryView struct {
	entryHead
	Event      json.RawMessage `json:"event,omitempty"` // as in the stream
	Subscriber string          `json:"subscriber,omitempty"`
	*callView
	*endedView
}

// callView shows what a handler gets.
type callView struct {
	TaskUUID  uuid            `json:"task_uuid"`
	StepUUID  uuid            `json:"step_uuid"`
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	Version   string          `json:"version"`
	Step      string          `json:"step"`
	Callable  string          `json:"callable"`
	Fault     *stubFault      `json:"fault"`
	Envelope  json.RawMessage `json:"envelope"`
}

// endedView shows what became of a delivery.
type endedView struct {
	Attempt int             `json:"attempt"`
	Stubbed bool            `json:"stubbed"`
	Stub    *string         `json:"stub"`
	Outcome json.RawMessage `json:"outcome"` // null until it ends
}

func (e *logEntry) view() any {
	x, head := &e.facts, entryHead{e.seq, entryKindNames[e.kind], zonedTime(e.at)}
	if e.kind == ofRequests {
		body := redact(x.document)
		if body == nil && len(e.body) > 0 {
			body = appendJSONString(nil, cleanText(e.body))
		}
		query := string(redact([]byte(x.query)))
		return &requestView{head, x.surface, x.method, x.path, query, x.status, e.took, x.subject, body, e.truncated}
	}
	v := &deliveryView{entryHead: head, Subscriber: x.subscriber}
	if e.published != nil {
		v.Event = e.published.appendJSON(nil, e.lives)
	}
	if a := e.delivered; a != nil {
		v.callView = &callView{TaskUUID: a.taskID, StepUUID: a.stepID, Namespace: a.namespace, Name: a.name,
			Version: a.version, Step: a.stepName, Callable: redactName(x.callable), Envelope: redact(a.envelope(nil))}
		if e.fault != noFault {
			v.Fault = &e.fault
		}
	}
	if e.kind != ofEvents {
		v.endedView = &endedView{x.attempt, x.stubbed, e.stub, e.outcome.view()}
	}
	return v
}

// told returns the entry in a few words, such as "attempt 1 failed (declined)", without the step if the reader knows it.
func (e *logEntry) told(stepKnown bool) string {
	switch {
	case e.kind == ofRequests:
		return fmt.Sprintf("%s %s got %d", e.facts.method, e.facts.path, e.facts.status)
	case e.kind == ofHandlers:
		text := fmt.Sprintf("attempt %d %s", e.facts.attempt, e.outcome.told())
		if e.fault != noFault {
			text += fmt.Sprintf(" (%s)", e.fault)
		}
		return pick(stepKnown, "", e.facts.step+" ") + text
	}
	text := e.facts.event + pick(stepKnown, "", " of "+e.facts.step)
	if e.kind == ofDeliveries {
		text += fmt.Sprintf(": attempt %d to send it to %s %s", e.facts.attempt, e.facts.subscriber, e.outcome.told())
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

// view returns {"success", "result"}, {"success", "checkpoint"} or {"success", "error"}; nil for no outcome.
func (o *outcome) view() json.RawMessage {
	switch {
	case o == nil:
		return nil
	case o.checkpoint != nil:
		return fmt.Appendf(nil, `{"success":true,"checkpoint":%s}`, o.checkpoint)
	case o.success:
		return fmt.Appendf(nil, `{"success":true,"result":%s}`, cmp.Or(string(o.result), "null"))
	}
	return append(o.err.appendJSON([]byte(`{"success":false,"error":`)), '}')
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
// has all members of the query. The path of a query is the beginning of one.
var journalFilters = [entryKinds][]string{
	ofRequests:   {"surface", "method", "path", "status"},
	ofHandlers:   {"task_uuid", "namespace", "name", "step", "callable", "attempt", "stubbed"},
	ofEvents:     {"event", "task_uuid", "namespace", "name", "step", "attempt", "success"},
	ofDeliveries: {"subscriber", "event", "task_uuid", "namespace", "name", "step", "attempt", "stubbed"},
}

// journalMembers are the members of a match for entries of a kind.
var journalMembers = map[string][]string{
	requestEntry:   {"surface", "method", "path", "path_prefix", "query", "status", "subject", "body"},
	handlerEntry:   append(stubKinds[handlerEntry], "task_uuid", "stubbed"),
	deliveryEntry:  append(stubKinds[deliveryEntry], "task_uuid", "stubbed"),
	eventEntryName: append(journalFilters[ofEvents], "version", "payload"),
}

func parseJournalFilter(r *http.Request) (*journalFilter, error) {
	q := queryOf(r)
	f := &journalFilter{kind: q.oneOf("kind", entryKindNames[:]...), limit: q.number("limit", 1000, 1, maxJournalEntries)}
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
	values := map[string]string{} // of all members
	for _, name := range slices.Concat(journalFilters[:]...) {
		if v := q.text(name); v != "" {
			values[name] = v
		}
	}
	given, foreign := slices.Sorted(maps.Keys(values)), ""
	for kind, members := range journalFilters {
		if len(given) == 0 || f.kind != "" && f.kind != entryKindNames[kind] {
			continue
		}
		if i := slices.IndexFunc(given, func(name string) bool { return !slices.Contains(members, name) }); i >= 0 {
			foreign = given[i]
			continue
		}
		f.kind = entryKindNames[kind]
		for _, name := range members {
			if values[name] != "" {
				f.demand(q, name, values[name])
			}
		}
		return
	}
	if foreign != "" {
		q.refuse("%s does not apply to %s", foreign,
			pick(f.kind == "", "any kind of entries together with the others", "entries of the kind "+f.kind))
	}
}

// demand adds a rule about a member, whose value is read like that of a match.
func (f *journalFilter) demand(q *query, name, value string) {
	raw := []byte(value)
	// A value in a query has no quotes: only counts and flags are written as in JSON.
	if form := matchMembers[name].form; form != matchCount && form != matchFlag || checkJSON(raw) != nil {
		raw = appendJSONString(nil, value)
	}
	var reader fieldReader
	rule := reader.matchRule(name, name, raw)
	if name == "path" {
		rule.matchMember = matchMembers["path_prefix"]
	}
	f.rules = append(f.rules, rule)
	for _, p := range reader.problems {
		q.refuse("%s", p)
	}
}

func (a *controlAPI) listRequests(w *responseWriter, r *http.Request) (any, error) {
	f, err := parseJournalFilter(r)
	if err != nil {
		return nil, err
	}
	if err := w.holdEach(a.fixture.requests.length(), 512); err != nil {
		return nil, err
	}
	return f.view(a.fixture.requests), nil
}

// view shows the newest entries that match.
func (f *journalFilter) view(j *requestJournal) requestsView {
	all, dropped := j.copies(f.kind)
	fit := slices.DeleteFunc(all, func(e *logEntry) bool { return e.at < f.since || !f.rules.fits(&e.facts) })
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
