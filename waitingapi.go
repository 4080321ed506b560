package main

// How requests say that they wait, and how their answers say why they did not.

import (
	"net/http"
	"time"
)

// Limits of a wait. It costs memory only, so that the longest is long.
const (
	standardWait = 30 * time.Second
	maxWait      = time.Hour
)

// wait is a duration from 0 to maxWait; given is false when it is absent or blank.
func (q *query) wait(name string) (d time.Duration, given bool) {
	s := q.values.Get(name)
	if s == "" || q.err != nil {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxWait {
		q.err = failf(badRequest, "%s must be a duration like 30s or 1m30s, from 0s to 1h, not %.60q", name, s)
	}
	return d, true
}

// awaitedStates are the states that wait names: terminal, or one state; none
// when it is absent or blank.
func (q *query) awaitedStates() stateSet {
	word := q.text("wait")
	switch word {
	case "":
		return 0
	case "terminal":
		return terminalStates
	}
	s, ok := filteredState(word)
	if !ok {
		q.err = failf(badRequest, "wait: %.60q is none of terminal, %s", word, stateWords)
	}
	return setOf(s)
}

// taskWait is what a request for one task waits for, and for how long.
func taskWait(r *http.Request) (wants stateSet, limit time.Duration, err error) {
	q := queryOf(r)
	if q.err != nil {
		return 0, 0, q.err
	}
	wants = q.awaitedStates()
	limit, given := q.wait("timeout")
	if given && wants == 0 && q.err == nil {
		q.err = failf(badRequest, "timeout belongs to wait, which is missing")
	}
	if !given {
		limit = standardWait
	}
	return wants, limit, q.err
}

// awaited is the task that the path names: as it is, or once it is what the
// request waits for.
func (s *surface) awaited(w http.ResponseWriter, r *http.Request, name string) (*task, error) {
	wants, limit, err := taskWait(r)
	if err != nil {
		return nil, err
	}
	id, err := pathID(r, name)
	if err != nil {
		return nil, err
	}
	if wants == 0 {
		return s.svc.store.view(id)
	}
	holdOpen(w, limit)
	t, end, err := s.svc.awaitTask(r.Context(), id, wants, limit)
	if err != nil {
		return nil, err
	}
	setWaitEnd(w, end)
	return t, nil
}

// holdOpen puts off the deadlines of the connection, so that an answer after d
// still arrives. Without it net/http would give up on the client meanwhile.
func holdOpen(w http.ResponseWriter, d time.Duration) {
	c, end := http.NewResponseController(w), realTimeIn(d+2*requestTimeout)
	c.SetReadDeadline(end) // what takes no deadlines, as in tests, needs none
	c.SetWriteDeadline(end)
}

// setWaitEnd tells why a wait ended without what it was for.
func setWaitEnd(w http.ResponseWriter, end waitEnd) {
	if end != waitReached {
		w.Header()["X-Stepwell-Wait"] = []string{string(end)}
	}
}
