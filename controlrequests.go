package main

// The request journal of the control API: what is shown of it, and how it is
// filtered.

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
)

// The kinds of entries in the journal.
const (
	requestEntry = "request"
	handlerEntry = "handler"
)

// entryView is an entry of the request journal on the wire: an API request or a
// delivery to a handler.
type entryView struct {
	ID   uint64    `json:"id"` // in the order of requests answered and deliveries begun
	Kind string    `json:"kind"`
	At   zonedTime `json:"at"`
	*requestView
	*deliveryView
}

// requestView is an API request.
type requestView struct {
	Surface       string          `json:"surface"`
	Method        string          `json:"method"`
	Path          string          `json:"path"`
	Query         string          `json:"query"`
	Status        int             `json:"status"`
	DurationMS    float64         `json:"duration_ms"` // real time
	Subject       string          `json:"subject"`
	Body          json.RawMessage `json:"body"` // as JSON, or in a string; null without one
	BodyTruncated bool            `json:"body_truncated"`
}

// deliveryView is a delivery of an attempt to its handler, or to a stub.
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
	Outcome   json.RawMessage `json:"outcome"` // null while it has none
}

func (c *apiCall) view() entryView {
	v := &requestView{
		Surface: c.surface, Method: c.method, Path: c.path, Query: c.query, Status: c.status,
		DurationMS: float64(c.tookMicros) / 1000, Subject: c.subject, BodyTruncated: c.truncated,
	}
	if v.Body = c.document("body"); v.Body == nil && len(c.body) > 0 {
		v.Body = appendJSONString(nil, cleanText(c.body))
	}
	return entryView{ID: c.seq, Kind: requestEntry, At: zonedTime(c.at), requestView: v}
}

func (c *handlerCall) view() entryView {
	a := c.attempt
	v := &deliveryView{
		TaskUUID: a.taskID, StepUUID: a.stepID, Namespace: a.namespace, Name: a.name, Version: a.version,
		Step: a.stepName, Callable: c.callable, Attempt: a.number, Stubbed: c.stub != "",
		Envelope: hideCredentials(a.envelope(nil)), Outcome: c.outcome.view(),
	}
	if c.stub != "" {
		v.Stub = &c.stub
	}
	if c.fault != noFault {
		v.Fault = &c.fault
	}
	return entryView{ID: c.seq, Kind: handlerEntry, At: zonedTime(c.at), deliveryView: v}
}

// view is {"success", "result"} or {"success", "error"}; nil for none.
func (o *outcome) view() json.RawMessage {
	switch {
	case o == nil:
		return nil
	case o.success && o.result == nil:
		return json.RawMessage(`{"success":true,"result":null}`)
	case o.success:
		return slices.Concat([]byte(`{"success":true,"result":`), o.result, []byte{'}'})
	}
	return append(o.err.appendJSON([]byte(`{"success":false,"error":`)), '}')
}

// copies are the entries of the journal as they are now, oldest first.
func (j *requestJournal) copies() (requests []*apiCall, calls []*handlerCall, dropped droppedView) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.calls.held() {
		copied := *c
		calls = append(calls, &copied)
	}
	return slices.Clone(j.requests.held()), calls, droppedView{j.requests.dropped, j.calls.dropped}
}

// droppedView is how many entries were dropped for lack of room.
type droppedView struct {
	Requests     uint64 `json:"requests"`
	HandlerCalls uint64 `json:"handler_calls"`
}

// requestsView is the answer of GET /_stepwell/requests.
type requestsView struct {
	Entries []entryView `json:"entries"` // oldest first
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

// journalFilters are the members that a query can name, by kind. One that only
// one kind has chooses that kind.
var journalFilters = map[string][]matchMember{
	requestEntry: {{"surface", matchText}, {"method", matchText}, {"path", matchPrefix}, {"status", matchText}},
	handlerEntry: {{"task_uuid", matchText}, {"namespace", matchText}, {"name", matchText}, {"step", matchText},
		{"callable", matchText}, {"attempt", matchText}, {"stubbed", matchText}},
}

func parseJournalFilter(r *http.Request) (*journalFilter, error) {
	q := queryOf(r)
	f := &journalFilter{kind: q.text("kind"), limit: q.number("limit", 1000, 1, maxJournalEntries)}
	if s := q.text("since"); s != "" && q.err == nil {
		if f.since, q.err = parseInstant(s); q.err != nil {
			q.err = failf(badRequest, "since: %.60q is not a timestamp like 2026-01-31T12:00:00Z", s)
		}
	}
	if f.kind != "" && journalFilters[f.kind] == nil {
		return nil, failf(badRequest, "kind must be request or handler, not %.60q", f.kind)
	}
	for name, values := range q.values {
		if err := f.rule(name, values[0]); err != nil && q.err == nil {
			q.err = err
		}
	}
	return f, q.err
}

// rule takes up one name of the query.
func (f *journalFilter) rule(name, value string) error {
	if value == "" || slices.Contains([]string{"kind", "limit", "since"}, name) {
		return nil
	}
	for kind, members := range journalFilters {
		at := slices.IndexFunc(members, func(m matchMember) bool { return m.name == name })
		if at < 0 {
			continue
		}
		if f.kind != "" && f.kind != kind {
			return failf(badRequest, "%s does not go with entries of the kind %s", name, f.kind)
		}
		f.kind = kind
		f.rules = append(f.rules, matchRule{member: name, form: members[at].form, want: value})
		return nil
	}
	return failf(badRequest, "%.60s is none of kind, since, limit, %s, %s", name,
		memberNames(journalFilters[requestEntry]), memberNames(journalFilters[handlerEntry]))
}

func (a *controlAPI) listRequests(w http.ResponseWriter, r *http.Request) error {
	f, err := parseJournalFilter(r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, f.view(a.svc.requests))
}

// view is the newest entries that fit.
func (f *journalFilter) view(j *requestJournal) requestsView {
	requests, calls, dropped := j.copies()
	var fit []journalEntry
	for _, c := range requests {
		if f.kind != handlerEntry && c.at >= f.since && f.rules.fits(c) {
			fit = append(fit, c)
		}
	}
	for _, c := range calls {
		if f.kind != requestEntry && c.at >= f.since && f.rules.fits(c) {
			fit = append(fit, c)
		}
	}
	slices.SortFunc(fit, func(a, b journalEntry) int { return cmp.Compare(a.place(), b.place()) })
	return requestsView{viewsOf(fit[max(0, len(fit)-f.limit):]), len(fit), dropped}
}

// journalEntry is an entry of either kind.
type journalEntry interface {
	matchable
	place() uint64
	view() entryView
}

func (c *apiCall) place() uint64     { return c.seq }
func (c *handlerCall) place() uint64 { return c.seq }

func viewsOf(entries []journalEntry) []entryView {
	views := make([]entryView, len(entries))
	for i, e := range entries {
		views[i] = e.view()
	}
	return views
}

func (a *controlAPI) forgetRequests(w http.ResponseWriter, _ *http.Request) error {
	a.svc.requests.clear()
	w.WriteHeader(http.StatusNoContent)
	return nil
}
