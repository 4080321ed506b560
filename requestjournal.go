package main

// The request journal of fixture mode: the last API requests and the last
// deliveries to handlers, for tests to look at. It holds no header and no
// credential, and a bounded number of entries and bytes.

import (
	"io"
	"net/http"
	"strconv"
	"sync"
)

// Limits of each of the journal's two halves, and of a body in it.
const (
	maxJournalEntries = 10_000
	maxJournalBytes   = 16 << 20
	maxJournalBody    = 64 << 10
)

// requestJournal is the journal of one service. A nil one takes nothing.
type requestJournal struct {
	now func() instant

	mu       sync.Mutex
	seq      uint64                // of both; guarded by mu, as all below
	requests journalRing[*apiCall] // how they came is the order in which they were answered
	calls    journalRing[*handlerCall]
}

// journalRing is the newest entries of a kind. What left it for lack of room was
// dropped.
type journalRing[E interface{ size() int }] struct {
	entries []E
	first   int // of the entries that are still there
	bytes   int
	dropped uint64
}

func (g *journalRing[E]) held() []E { return g.entries[g.first:] }

func (g *journalRing[E]) add(e E) {
	g.entries = append(g.entries, e)
	g.grow(e.size())
}

// grow counts bytes more, and drops the oldest entries beyond the limits.
func (g *journalRing[E]) grow(bytes int) {
	var none E
	for g.bytes += bytes; len(g.held()) > 1 && (g.bytes > maxJournalBytes || len(g.held()) > maxJournalEntries); {
		g.bytes -= g.entries[g.first].size()
		g.entries[g.first] = none
		g.first++
		g.dropped++
	}
	if g.first > len(g.entries)/2 {
		n := copy(g.entries, g.held())
		clear(g.entries[n:])
		g.entries, g.first = g.entries[:n], 0
	}
}

// apiCall is a request to the service. It is never changed once it is in the journal.
type apiCall struct {
	seq                          uint64
	at                           instant
	surface, method, path, query string
	status                       int
	tookMicros                   int64 // real time
	subject                      string
	body                         []byte
	truncated                    bool
}

func (c *apiCall) size() int {
	return 256 + len(c.path) + len(c.query) + len(c.subject) + len(c.body)
}

func (c *apiCall) fact(member string) string {
	switch member {
	case "surface":
		return c.surface
	case "method":
		return c.method
	case "path", "path_prefix":
		return c.path
	case "query":
		return c.query
	case "status":
		return strconv.Itoa(c.status)
	case "subject":
		return c.subject
	}
	return ""
}

// document is the body, when it is JSON and all there.
func (c *apiCall) document(string) []byte {
	if c.truncated || len(c.body) == 0 || checkJSON(c.body) != nil {
		return nil
	}
	return c.body
}

// handlerCall is a delivery of an attempt to its handler, or to a stub.
type handlerCall struct {
	seq      uint64
	at       instant
	callable string // without credentials
	attempt  *attempt
	stub     string // the stub's id; "" for the handler itself
	fault    stubFault
	outcome  *outcome // nil while there is none; guarded by the journal's mu
	in       *requestJournal
}

func (c *handlerCall) size() int {
	n := 512 + len(c.callable) + c.attempt.envelopeSize()
	if c.outcome != nil {
		n += c.outcome.size()
	}
	return n
}

func (o *outcome) size() int {
	n := len(o.result) + len(o.metadata)
	if o.err != nil {
		n += len(o.err.message) + len(o.err.context) + 64
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

func (c *handlerCall) document(string) []byte { return appendObject(nil, c.attempt.context) }

// add enters a delivery that begins.
func (j *requestJournal) add(c *handlerCall) {
	if j == nil || c == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	c.seq, c.at, c.in = j.seq, j.now(), j
	j.calls.add(c)
}

// ended notes what a delivery came to; the first outcome counts.
func (c *handlerCall) ended(o outcome) {
	if c == nil || c.in == nil {
		return
	}
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	if c.outcome != nil {
		return
	}
	c.outcome = &o
	if held := c.in.calls.held(); len(held) > 0 && held[0].seq <= c.seq {
		c.in.calls.grow(o.size())
	}
}

func (j *requestJournal) addRequest(c *apiCall) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	c.seq = j.seq
	j.requests.add(c)
}

// clear forgets everything, also what was dropped.
func (j *requestJournal) clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.requests, j.calls = journalRing[*apiCall]{}, journalRing[*handlerCall]{}
}

// noteLocked is the delivery of an attempt for the journal; nil without one.
func (e *engine) noteLocked(t *task, i, number int) *handlerCall {
	if e.calls == nil {
		return nil
	}
	a := e.attemptLocked(t, i, true)
	a.number = number
	return noteOf(a, t.def(i).callable)
}

func noteOf(a *attempt, callable string) *handlerCall {
	return &handlerCall{attempt: a, callable: string(hideCredentials([]byte(callable)))}
}

// by marks a delivery as one that a stub decides.
func (c *handlerCall) by(s *stub, fault stubFault) *handlerCall {
	if c != nil {
		c.stub, c.fault = s.id, fault
	}
	return c
}

// witness watches one API request for the journal.
type witness struct {
	call apiCall
	body io.ReadCloser
}

// watch begins to note a request that is not of the control API; nil without a journal.
func (s *surface) watch(r *http.Request) *witness {
	if s.svc.requests == nil || isControl(r.URL.Path) {
		return nil
	}
	w := &witness{body: r.Body, call: apiCall{
		at: s.svc.clock.now(), surface: s.name, method: r.Method, path: r.URL.Path,
		query: string(hideCredentials([]byte(r.URL.RawQuery))),
	}}
	r.Body = w
	return w
}

// Read notes what a handler reads of the body.
func (w *witness) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	room := min(n, maxJournalBody-len(w.call.body))
	w.call.body = append(w.call.body, p[:room]...)
	w.call.truncated = w.call.truncated || room < n
	return n, err
}

func (w *witness) Close() error { return w.body.Close() }

// admitted notes who asks.
func (w *witness) admitted(r *http.Request) {
	if w != nil {
		w.call.subject = subjectOf(r.Context())
	}
}

// answered enters the request in the journal.
func (s *surface) answered(w *witness, status int, began instant) {
	if w == nil {
		return
	}
	call := w.call // without the connection's body
	call.status, call.tookMicros = status, realNow().sub(began).Microseconds()
	call.body = hideCredentials(call.body)
	s.svc.requests.addRequest(&call)
}
