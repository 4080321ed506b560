package main

// The Idempotency-Key header: requests that may be repeated without doing their
// work twice. The key's hash stands in the creation record of the task that the
// request made, so that it is there again after a restart.

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"slices"
	"time"
)

// Limits of the header: its length, how long the service remembers it, and when
// a caller who came too early may come again.
const (
	maxReplayKey    = 255
	replayKeyAge    = 24 * time.Hour
	flightRetryTime = time.Second
)

// replayKey is the hash of who asked, for which route, under which key.
type replayKey [16]byte

// requestMark tells repeated requests from others; zero without a key.
type requestMark struct {
	key  replayKey
	body [16]byte // the hash of what was asked
}

// requestMarkOf is the mark of a request with an Idempotency-Key to a route. The
// route is the same under every prefix, the body one that passed checkJSON.
func requestMarkOf(r *http.Request, route string, body []byte) (m requestMark, err error) {
	given := r.Header["Idempotency-Key"]
	if len(given) == 0 {
		return m, nil
	}
	if len(given) > 1 || !visible(given[0]) || len(given[0]) > maxReplayKey {
		return m, failf(badRequest, "the header Idempotency-Key must be given once, with 1 to %d visible characters", maxReplayKey)
	}
	m.key = hashOf([]byte(subjectOf(r.Context())), []byte(route), []byte(given[0]))
	m.body = hashOf(canonicalJSON(nil, body))
	return m, nil
}

// visible reports whether a text is not empty and of visible ASCII characters alone.
func visible(s string) bool {
	for _, c := range []byte(s) {
		if c < '!' || c > '~' {
			return false
		}
	}
	return s != ""
}

// hashOf is the hash of a list of parts.
func hashOf(parts ...[]byte) (k [16]byte) {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(p))))
		h.Write(p)
	}
	copy(k[:], h.Sum(nil))
	return k
}

// appendRequestMark appends the mark as the member of a creation.
func appendRequestMark(b []byte, m requestMark) []byte {
	if m == (requestMark{}) {
		return b
	}
	b = append(appendName(b, "request"), '"')
	b = hex.AppendEncode(b, m.key[:])
	b = hex.AppendEncode(b, m.body[:])
	return append(b, '"')
}

// parseRequestMark reads what appendRequestMark wrote.
func parseRequestMark(s string) (m requestMark, ok bool) {
	raw, err := hex.DecodeString(s)
	if err != nil || len(raw) != len(m.key)+len(m.body) {
		return m, false
	}
	copy(m.body[:], raw[copy(m.key[:], raw):])
	return m, true
}

// requestIndex finds the task that a repeated request made. It is guarded by
// store.mu.
type requestIndex struct {
	tasks   map[replayKey]uuid
	ages    []agedRequest              // oldest first; also of tasks that were dropped
	flights map[replayKey]*requestMark // requests that are being answered
}

// agesFloor is how many keys of dropped tasks are not worth being cleared away.
const agesFloor = 1024

// agedRequest is a key that is to be forgotten.
type agedRequest struct {
	key  replayKey
	task uuid
	at   instant
}

func newRequestIndex() *requestIndex {
	return &requestIndex{tasks: map[replayKey]uuid{}, flights: map[replayKey]*requestMark{}}
}

// add remembers the request that created a task at an instant.
func (x *requestIndex) add(m requestMark, id uuid, at instant) {
	if m == (requestMark{}) {
		return
	}
	x.forget(at)
	x.tasks[m.key] = id
	x.ages = append(x.ages, agedRequest{m.key, id, at})
	if len(x.ages) > 2*len(x.tasks)+agesFloor {
		x.clearAges()
	}
}

// clearAges drops the entries of tasks that are kept no longer.
func (x *requestIndex) clearAges() {
	x.ages = slices.DeleteFunc(slices.Clone(x.ages), func(a agedRequest) bool { return x.tasks[a.key] != a.task })
}

// forget drops the keys that are too old. Nothing else needs to: a key is looked
// up after it.
func (x *requestIndex) forget(now instant) {
	for len(x.ages) > 0 && x.ages[0].at.add(replayKeyAge) <= now {
		old := x.ages[0]
		x.remove(old.key, old.task)
		x.ages = x.ages[1:]
	}
}

// remove forgets the request that created a task.
func (x *requestIndex) remove(key replayKey, id uuid) {
	if x.tasks[key] == id {
		delete(x.tasks, key)
	}
}

// beginRequest marks a request as being answered, until endRequest is given the
// flight. When an earlier one has done its work, it gives the task that that made
// instead.
func (s *store) beginRequest(m requestMark) (earlier uuid, flight *requestMark, err error) {
	if m == (requestMark{}) {
		return earlier, nil, nil
	}
	s.mu.Lock()
	x := s.requests
	x.forget(s.clock.now())
	other := x.flights[m.key]
	id, done := x.tasks[m.key]
	var kept slot
	switch {
	case other != nil:
	case done:
		kept = s.slots[s.byID[id]] // its creation never changes
	default:
		flight = &m
		x.flights[m.key] = flight
	}
	s.mu.Unlock()
	switch {
	case other != nil && *other != m:
		err = otherBody()
	case other != nil:
		err = &failure{kind: conflict, retryAfter: flightRetryTime,
			message: "the first request with this Idempotency-Key is still being answered"}
	case done:
		earlier, err = kept.madeBy(m)
	}
	return earlier, flight, err
}

// endRequest lets later requests with the key have what this one made. A flight
// that is not known any more, after a reset, leaves others alone.
func (s *store) endRequest(flight *requestMark) {
	if flight == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests.flights[flight.key] == flight {
		delete(s.requests.flights, flight.key)
	}
}

// madeBy is the id of the task in a slot, if it was the same request that made it.
func (sl slot) madeBy(m requestMark) (uuid, error) {
	id, by, err := sl.origin()
	if err == nil && by.request != m {
		return uuid{}, otherBody()
	}
	return id, err
}

// origin is the id of the task in a slot and what it was created with.
func (sl slot) origin() (uuid, *creation, error) {
	if sl.live != nil {
		return sl.live.id, sl.live.by, nil
	}
	h, err := readTaskHeader(sl.line)
	if err != nil {
		return uuid{}, nil, err
	}
	r, err := h.creationRecord()
	if err != nil {
		return uuid{}, nil, err
	}
	return h.id, r.created, nil
}

func otherBody() *failure {
	return &failure{kind: invalidFields, message: "the Idempotency-Key was used for a request with another body",
		details: []fieldProblem{{"Idempotency-Key", "was used for a request with another body"}}}
}
