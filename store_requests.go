package main

// Requests that may be repeated: which task each Idempotency-Key created. A key is kept for its
// time, also when retention has dropped its task. The keys of tasks in the store follow from
// the tasks; each key of a dropped task is a line of the compacted part:
//
//	{"request":"…","task":"…","at":…}
//
// The request is the hash of caller, route and key, then that of the body; at is when the task
// was created.

import (
	"errors"
	"fmt"
	"maps"
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
	tasks *slotTable

	limits                                // the age limits all keys, the number those of dropped tasks
	byKey   map[replayKey]uuid            // tasks in the store
	ages    []agedRequest                 // of these, oldest first; includes keys that were forgotten since
	dropped map[replayKey]*droppedRequest // may include keys that are too old
	order   []*droppedRequest             // as dropped; includes keys that were forgotten since
	flights map[replayKey]*requestMark    // requests that are being answered
	evicted uint64                        // keys of dropped tasks forgotten early since the start, because of their number
	resize  func(by int64)                // notes that the keys of dropped tasks take so much more memory
}

// agedRequest is a key and when it was first used.
type agedRequest struct {
	key  replayKey
	task uuid
	at   instant
}

// droppedRequest is the request that created a task which was dropped.
type droppedRequest struct {
	requestMark
	task uuid
	at   instant
}

func newRequestIndex() *requestIndex {
	return &requestIndex{
		byKey: map[replayKey]uuid{}, dropped: map[replayKey]*droppedRequest{},
		flights: map[replayKey]*requestMark{}, resize: func(int64) {},
	}
}

// agesFloor is how many keys of dropped tasks are not worth clearing.
const agesFloor = 1024

// insert remembers the request that created a task at an instant.
func (x *requestIndex) insert(m requestMark, id uuid, at instant) {
	if m == (requestMark{}) {
		return
	}
	x.forget(at)
	x.byKey[m.key] = id
	x.ages = append(x.ages, agedRequest{m.key, id, at})
	if len(x.ages) > 2*len(x.byKey)+agesFloor {
		x.clearAges()
	}
}

// clearAges drops the entries of dropped tasks.
func (x *requestIndex) clearAges() {
	x.ages = slices.DeleteFunc(slices.Clone(x.ages), func(a agedRequest) bool { return x.byKey[a.key] != a.task })
}

// expired reports whether a key first used at an instant is too old.
func (x *requestIndex) expired(at, now instant) bool { return x.age > 0 && at.add(x.age) <= now }

// forget drops the keys that are too old. It runs before each look-up, so
// nothing else needs to.
func (x *requestIndex) forget(now instant) {
	for len(x.ages) > 0 && x.expired(x.ages[0].at, now) {
		if old := x.ages[0]; x.byKey[old.key] == old.task {
			delete(x.byKey, old.key)
		}
		x.ages = x.ages[1:]
	}
	for len(x.order) > 0 && (x.expired(x.order[0].at, now) || !x.holds(x.order[0])) {
		x.forgetDropped()
	}
}

func (x *requestIndex) holds(d *droppedRequest) bool { return x.dropped[d.key] == d }

// forgetDropped forgets the key whose task was dropped first.
func (x *requestIndex) forgetDropped() {
	if first := x.order[0]; x.holds(first) {
		delete(x.dropped, first.key)
		x.resize(-droppedRequestBytes)
	}
	x.order = x.order[1:]
}

// drop notes that the task of a request, created at an instant, was dropped.
func (x *requestIndex) drop(m requestMark, id uuid, at instant) {
	if x.byKey[m.key] == id {
		delete(x.byKey, m.key)
		x.keepDropped(&droppedRequest{m, id, at})
	}
}

func (x *requestIndex) keepDropped(d *droppedRequest) {
	if x.dropped[d.key] == nil {
		x.resize(droppedRequestBytes)
	}
	x.dropped[d.key] = d
	x.order = append(x.order, d)
	x.evict()
}

// evict forgets the keys of dropped tasks beyond their number.
func (x *requestIndex) evict() {
	for x.count > 0 && len(x.dropped) > x.count {
		x.evicted += uint64(boolCount(x.holds(x.order[0])))
		x.forgetDropped()
	}
}

// limit sets the limits. Before that, nothing is forgotten.
func (x *requestIndex) limit(l limits, now instant) {
	x.limits = l
	x.forget(now)
	x.evict()
	tasks := make(map[replayKey]uuid, len(x.byKey)) // gives back the memory of what was forgotten
	maps.Copy(tasks, x.byKey)
	x.byKey, x.ages = tasks, slices.Clone(x.ages)
}

// keepUpTo sets how long the requests of a store that was just opened are kept.
func (x *requestIndex) keepUpTo(l limits) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.limit(l, x.clock.now())
}

// begin marks a request as being answered, until end is called
// with the flight. If an earlier request with the key was answered, it returns
// the task which that created instead, or why it cannot.
func (x *requestIndex) begin(m requestMark) (earlier uuid, flight *requestMark, err error) {
	if m == (requestMark{}) {
		return earlier, nil, nil
	}
	x.mu.Lock()
	now := x.clock.now()
	x.forget(now)
	other, gone := x.flights[m.key], x.dropped[m.key]
	id, done := x.byKey[m.key]
	var kept *slot
	switch {
	case other != nil:
	case done:
		kept, _ = x.tasks.find(id) // a task's creation never changes
	case gone != nil && !x.expired(gone.at, now):
	default:
		flight = &m
		x.flights[m.key] = flight
	}
	x.mu.Unlock()
	// The rest may decode a task's line, which takes too long for the lock.
	switch {
	case flight != nil:
	case other != nil && *other != m, other == nil && !done && gone.requestMark != m:
		err = otherBody()
	case other != nil:
		err = &failure{kind: conflict, retryAfter: flightRetryTime,
			message: "the first request with this Idempotency-Key is still being answered"}
	case done:
		earlier, err = kept.madeBy(m)
	default:
		err = droppedTask(gone.task)
	}
	return earlier, flight, err
}

// droppedTask is the answer to a repeated request whose task was dropped.
func droppedTask(id uuid) *failure {
	return &failure{kind: taskDropped, extra: errorMember{"task_uuid", id},
		message: fmt.Sprintf("the first request with this Idempotency-Key created task %s, which was dropped after its end", id)}
}

// end lets later requests with the key find this one's task. After a
// reset a flight may be unknown; it is ignored then.
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

// madeBy returns the id of the task in a slot, if the same request created it.
func (sl *slot) madeBy(m requestMark) (uuid, error) {
	id, by, err := sl.origin()
	if err == nil && by.request != m {
		return uuid{}, otherBody()
	}
	return id, err
}

// origin returns the id of the task in a slot and its creation.
func (sl *slot) origin() (uuid, *creation, error) {
	if sl.live != nil {
		return sl.live.id, sl.live.by, nil
	}
	h, err := readTaskHeader(sl.line.text())
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
		details: inputProblems{{Field: "Idempotency-Key", Message: "was used for a request with another body"}}}
}

// The lines of dropped requests in the compacted part.

const requestHead = `{"request":`

func (d *droppedRequest) members(c *memberCoder) {
	c.hex("request", true, d.key[:], d.body[:])
	c.id("task", &d.task)
	nonzero(c, "at", &d.at)
}

// requestBatch is how many dropped requests are looked at under the lock at a time.
const requestBatch = 256

// writeLines passes the lines of the dropped requests that are still kept to add, without
// their closing braces.
func (x *requestIndex) writeLines(dropped []*droppedRequest, add func(line []byte) error) error {
	var buf []byte
	for batch := range slices.Chunk(dropped, requestBatch) {
		x.mu.Lock()
		batch = slices.DeleteFunc(slices.Clone(batch), func(d *droppedRequest) bool { return !x.holds(d) })
		x.mu.Unlock()
		for _, d := range batch {
			c := memberCoder{b: append(buf[:0], '{')}
			d.members(&c)
			if err := add(c.b); err != nil {
				return err
			}
			buf = c.b
		}
	}
	return nil
}

// requestLine loads such a line.
func (l *restorer) requestLine(line []byte) error {
	d := new(droppedRequest)
	var c memberCoder
	for c.again(line) {
		*d = droppedRequest{}
		d.members(&c)
	}
	if c.err == nil && (d.key == replayKey{} || d.task.isZero() || d.at == 0) {
		return errors.New("the request of a dropped task must have its hash, task and time")
	}
	l.s.requests.keepDropped(d)
	return c.err
}
