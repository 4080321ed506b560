package main

// Requests that may be repeated: which task each Idempotency-Key created. A key is kept for its
// time, also when retention has dropped its task. The keys of tasks in the store follow from
// the tasks; each key of a dropped task is a line of the compacted part:
//
//	{"request":"…","task":"…","at":…}
//
// The request is the hash of caller, route and key, then that of the body; at is when the task was created.

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	maxReplayKey    = 255         // length of an Idempotency-Key
	flightRetryTime = time.Second // when to repeat a request that came while the first was being answered

	keptDroppedRequests = 250_000 // whose tasks were dropped
	droppedRequestBytes = 150     // memory that the key of a dropped task takes, about
)

func (c *requestsConfig) limits() limits {
	return limits{keptDroppedRequests, time.Duration(c.KeepHours) * time.Hour}
}

// requestIndex finds the task that a repeated request created.
type requestIndex struct {
	clock clock
	mu    *sync.Mutex // the store's; it guards what follows

	limits                             // the age limits all keys, the number those of dropped tasks
	kept    map[replayKey]*keptRequest // may include keys that are too old
	aged    []*keptRequest             // of tasks that were created here, oldest first, and keys that were forgotten since
	dropped []*keptRequest             // of dropped tasks, as dropped, and keys that were forgotten since
	gone    int                        // number of keys of dropped tasks
	flights map[replayKey]*requestMark // requests that are being answered
	resize  func(by int64)             // notes that the keys of dropped tasks take so much more memory
}

// keptRequest is a request that created a task, and when.
type keptRequest struct {
	requestMark
	task    uuid
	at      instant
	dropped bool // whether the task was dropped
}

func newRequestIndex() *requestIndex {
	return &requestIndex{kept: map[replayKey]*keptRequest{}, flights: map[replayKey]*requestMark{}, resize: func(int64) {}}
}

// agesFloor is how many forgotten keys are not worth clearing.
const agesFloor = 1024

// insert remembers the request that created a task at an instant.
func (x *requestIndex) insert(m requestMark, id uuid, at instant) {
	if m == (requestMark{}) {
		return
	}
	x.forget(at)
	r := &keptRequest{requestMark: m, task: id, at: at}
	x.keep(r)
	if x.aged = append(x.aged, r); len(x.aged) > 2*len(x.kept)+agesFloor {
		x.aged = slices.DeleteFunc(slices.Clone(x.aged), func(r *keptRequest) bool { return !x.holds(r) })
	}
}

// keep keeps a request in place of an earlier one with its key.
func (x *requestIndex) keep(r *keptRequest) {
	if old := x.kept[r.key]; old != nil {
		x.remove(old)
	}
	x.kept[r.key] = r
}

func (x *requestIndex) holds(r *keptRequest) bool { return x.kept[r.key] == r }

// remove forgets a request, unless that was done before.
func (x *requestIndex) remove(r *keptRequest) {
	if !x.holds(r) {
		return
	}
	delete(x.kept, r.key)
	if r.dropped {
		x.gone--
		x.resize(-droppedRequestBytes)
	}
}

// expired reports whether a key is too old.
func (x *requestIndex) expired(r *keptRequest, now instant) bool {
	return x.age > 0 && r.at.add(x.age) <= now
}

// forget drops the keys that are too old. It runs before each look-up, so nothing else needs to.
func (x *requestIndex) forget(now instant) {
	for _, queue := range []*[]*keptRequest{&x.aged, &x.dropped} {
		for q := *queue; len(q) > 0 && (!x.holds(q[0]) || x.expired(q[0], now)); q = *queue {
			x.remove(q[0])
			*queue = q[1:]
		}
	}
}

// drop notes that the task of a request was dropped.
func (x *requestIndex) drop(m requestMark, id uuid) {
	if r := x.kept[m.key]; r != nil && r.task == id && !r.dropped {
		x.keepDropped(r)
	}
}

func (x *requestIndex) keepDropped(r *keptRequest) {
	x.keep(r)
	r.dropped = true
	x.gone++
	x.resize(droppedRequestBytes)
	x.dropped = append(x.dropped, r)
	x.evict()
}

// evict forgets the keys of dropped tasks beyond their number.
func (x *requestIndex) evict() {
	for x.count > 0 && x.gone > x.count {
		x.remove(x.dropped[0])
		x.dropped = x.dropped[1:]
	}
}

// keepUpTo sets how long the requests of a store that was just opened are kept. Before that, nothing is forgotten.
func (x *requestIndex) keepUpTo(l limits) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.limits = l
	x.forget(x.clock.now())
	x.evict()
}

// begin marks a request as being answered, until end is called with the flight. If an earlier request with the key was
// answered, it returns the task which that created instead, or why it cannot.
func (x *requestIndex) begin(m requestMark) (earlier uuid, flight *requestMark, err error) {
	if m == (requestMark{}) {
		return earlier, nil, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.clock.now()
	x.forget(now)
	other, r := x.flights[m.key], x.kept[m.key]
	switch {
	case other != nil && *other != m, other == nil && r != nil && r.requestMark != m && !x.expired(r, now):
		return earlier, nil, &failure{kind: invalidFields, message: "the Idempotency-Key was used for a request with another body",
			details: inputProblems{{Field: "Idempotency-Key", Message: "was used for a request with another body"}}}
	case other != nil:
		return earlier, nil, &failure{kind: conflict, retryAfter: flightRetryTime,
			message: "the first request with this Idempotency-Key is still being answered"}
	case r == nil || x.expired(r, now):
		x.flights[m.key] = &m
		return earlier, &m, nil
	case r.dropped:
		return earlier, nil, droppedTask(r.task)
	}
	return r.task, nil, nil
}

// droppedTask is the answer to a repeated request whose task was dropped.
func droppedTask(id uuid) *failure {
	return &failure{kind: taskDropped, extra: errorMember{"task_uuid", id},
		message: fmt.Sprintf("the first request with this Idempotency-Key created task %s, which was dropped after its end", id)}
}

// end lets later requests with the key find this one's task. After a reset a flight may be unknown; it is ignored then.
func (x *requestIndex) end(flight *requestMark) {
	if flight == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.flights[flight.key] == flight {
		delete(x.flights, flight.key)
	}
}

// The lines of dropped requests in the compacted part.

const requestHead = `{"request":`

func (d *keptRequest) members(c *memberCoder) {
	c.hex("request", true, d.key[:], d.body[:])
	c.id("task", &d.task)
	nonzero(c, "at", &d.at)
}

// requestLine loads such a line.
func (l *restorer) requestLine(line []byte) error {
	d, err := readMembers(line, (*keptRequest).members)
	if err == nil && (d.key == replayKey{} || d.task.isZero() || d.at == 0) {
		err = errors.New("the request of a dropped task must have its hash, task and time")
	}
	if err != nil {
		return err
	}
	l.s.requests.keepDropped(&d)
	return nil
}
