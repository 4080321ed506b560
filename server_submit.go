package main

// Creating a task and waiting for one: Idempotency-Key, the parameter wait, and trace context.

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// Limits of a wait. The longest is long because a wait costs only memory.
const (
	standardWait = 30 * time.Second
	maxWait      = time.Hour
)

// waiting reads how a request waits for a task: the states, none for not at all, and the limit. On every route, wait
// is a state, terminal or how long to wait for the end, and timeout is how long to wait for the state, or for the end.
func (q *query) waiting() (wants stateSet, limit time.Duration) {
	word, timeout := q.text("wait"), q.text("timeout")
	limit = standardWait
	if timeout != "" {
		wants, limit = terminalStates, q.duration("timeout", timeout)
	}
	if word == "" {
		return wants, limit
	}
	if states, ok := filteredState(word); ok {
		return states, limit
	}
	if word == "terminal" {
		return terminalStates, limit
	}
	if !strings.ContainsAny(word, "0123456789") {
		q.refuse("wait must be a duration like 30s, terminal, or a state: %s, not %.60q", strings.Join(stateWords, ", "), word)
	} else if timeout != "" {
		q.refuse("wait and timeout both say how long: give one of them, or wait=terminal")
	}
	return terminalStates, q.duration("wait", word)
}

// duration reads a duration from 0 to maxWait.
func (q *query) duration(name, text string) time.Duration {
	d, err := parseDuration(text)
	if err != nil || d < 0 || d > maxWait {
		q.refuse("%s must be a duration like 30s or 1m30s, from 0s to 1h, with the units h, m, s, ms, us and ns, not %.60q", name, text)
	}
	return d
}

// awaited returns the task that the path names, once it is in a state that the query waits for, if any.
func (s *surface) awaited(w *responseWriter, r *http.Request, q *query, name string) (*task, error) {
	wants, limit := q.waiting()
	if err := q.done(); err != nil {
		return nil, err
	}
	if wants == 0 {
		return s.taskIn(w, r, name)
	}
	valid := s.validFor(r)
	return byID(r, name, func(id uuid) (*task, error) {
		release, err := s.holdOpen(w, r, limit)
		if err != nil {
			return nil, err
		}
		defer release()
		t, end, err := s.svc.tasks.await(r.Context(), id, wants, min(limit, valid))
		if err == nil {
			setWaitEnd(w, end, limit > valid)
		}
		return t, err
	})
}

// setWaitEnd sets a header with the reason if a wait ended without success. The limit
// of a wait may have been that of the caller's credential.
func setWaitEnd(w *responseWriter, end waitEnd, expires bool) {
	if end == waitTimedOut && expires {
		end = waitExpired
	}
	if end != waitReached {
		w.Header()["X-Stepwell-Wait"] = []string{string(end)}
	}
}

// validFor returns for how long the caller's credential is valid, at least 0: no wait takes longer.
func (s *surface) validFor(r *http.Request) time.Duration {
	sc := securityOf(r.Context())
	if sc == nil || sc.expiry == 0 {
		return math.MaxInt64
	}
	left := max(sc.expiry-s.credentialTime(servedRoute{}), 0)
	// In nanoseconds, a time far away would overflow.
	return time.Duration(min(left, math.MaxInt64/1000)) * time.Microsecond
}

// Creating a task.

// submit creates the task that a body describes, and answers with a view of it: 202 if the caller waits for a state
// that has not come, else 201. An Idempotency-Key holds for one route.
func (s *surface) submit(
	w *responseWriter, r *http.Request, route creationRoute, body []byte, view func(t *task) any,
) (any, error) {
	b, err := readSubmission(r, route, body)
	if err != nil {
		return nil, err
	}
	limit, valid := b.limit, s.validFor(r)
	if b.wants != 0 {
		release, err := s.holdOpen(w, r, limit)
		if err != nil {
			return nil, err
		}
		defer release()
		b.limit = min(limit, valid)
	}
	done, err := s.svc.tasks.submit(r.Context(), b)
	if err != nil {
		return nil, err
	}
	w.Header()["Location"] = []string{s.taskPath(r, done.task.id)}
	if done.replayed {
		w.Header()["Idempotency-Replayed"] = []string{"true"}
	}
	setWaitEnd(w, done.end, limit > valid)
	for _, p := range done.misfits {
		hint(w.Header(), "%s", p)
	}
	w.Header()["Cache-Control"] = privately
	w.Header()["Etag"] = []string{s.taskTag(done.task, "", s.svc.clock.now())} // the creator sees all of it
	status := pick(done.end == waitReached, http.StatusCreated, http.StatusAccepted)
	return reply{status, view(done.task)}, nil
}

// readSubmission reads a request to create a task.
func readSubmission(r *http.Request, route creationRoute, body []byte) (b *submission, err error) {
	query := queryOf(r)
	b = &submission{mayRead: securityOf(r.Context()).may(permTasksRead)}
	b.wants, b.limit = query.waiting()
	if err := query.done(); err != nil {
		return nil, err
	}
	mark, err := requestMarkOf(r, route.name, body)
	if err != nil {
		return nil, err
	}
	q, err := route.parse(body)
	if err != nil {
		return nil, err
	}
	q.traceparent, q.tracestate = traceContext(r.Header)
	q.request, q.subject, b.taskRequest = mark, subjectOf(r.Context()), q
	return b, nil
}

// requestMarkOf returns the mark of a request with an Idempotency-Key, or an empty
// one without. The route is the same under every prefix; the body passed checkJSON.
func requestMarkOf(r *http.Request, route string, body []byte) (m requestMark, err error) {
	given := r.Header["Idempotency-Key"]
	if len(given) == 0 {
		return m, nil
	}
	if len(given) > 1 || !visible(given[0]) || len(given[0]) > maxReplayKey {
		return m, failf(badRequest, "the header Idempotency-Key must be given once, with 1 to %d visible characters", maxReplayKey)
	}
	m.key = replayKeyOf(r, route, given[0])
	// A client may write the members in another order when it repeats the request.
	m.body = hashOf(canonicalJSON(nil, body))
	return m, nil
}

// creationRoute is a route that creates tasks: its name, for which an Idempotency-Key holds, and the function that
// reads the body.
type creationRoute struct {
	name  string
	parse func(body []byte) (*taskRequest, error)
}

// The names of such routes.
const (
	taskRoute      = "/v1/tasks"
	mountTaskRoute = "mount /tasks"
)

// replayKeyOf returns the key under which an Idempotency-Key of the caller on a route is remembered.
func replayKeyOf(r *http.Request, route, key string) replayKey {
	// With the caller's identity, so that nobody gets the answer to another caller's request by guessing its key.
	return hashOf([]byte(securityOf(r.Context()).identity()), []byte(route), []byte(key))
}

// traceContext returns the W3C trace context of a request, or nothing if its traceparent is malformed.
func traceContext(h http.Header) (traceparent, tracestate string) {
	traceparent = saneTraceparent(h.Get("Traceparent"))
	if traceparent == "" {
		return "", ""
	}
	tracestate = strings.TrimSpace(strings.Join(h["Tracestate"], ","))
	if !saneTracestate(tracestate) {
		return traceparent, "" // a trace can do without this part
	}
	return traceparent, tracestate
}
