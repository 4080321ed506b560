package main

// Limits on what callers cost together: the memory that is shared out, and the trial that
// refuses requests while they come faster than they are served.

import (
	"cmp"
	"context"
	"os"
	"runtime"
	"sync/atomic"
	"time"
)

// quotas bound what all callers of a process cost together.
type quotas struct {
	connections quota
	headers     quota // bytes
	waiting     quota // requests
	streams     quota // of events
	actions     quota // on many, under way
	bodies      bodyMemory
	decoded     decodedMemory
	stored      quota  // bytes of tasks
	replies     *quota // bytes of replies of handlers under way

	lostLines *atomic.Uint64 // of the log
}

// bodyMemory is the memory for the bodies of requests, in bytes.
type bodyMemory struct {
	quota
	turn chan struct{} // holds a token while a body waits for memory; the others wait for the token
}

// maxActions is how many actions on many run at once.
const maxActions = 4

// The memory for what large headers exceed, and for what requests have decoded and compiled, in bytes.
const (
	maxHeaderMemory  = 8 << 20
	maxDecodedMemory = 64 << 20
)

func newQuotas(c *Config, h *handlerSet) *quotas {
	q := &quotas{bodies: bodyMemory{turn: make(chan struct{}, 1)}, decoded: decodedMemory{last: make(chan struct{}, 1)},
		lostLines: new(atomic.Uint64)}
	q.connections.most, q.headers.most = int64(c.Web.MaxConnections), maxHeaderMemory
	q.waiting.most = (2*q.connections.most + 2) / 3 // others have connections left
	q.stored.most = c.Store.memory()
	q.streams.most, q.actions.most = int64(c.Events.MaxStreams), maxActions
	q.bodies.most = bodyShare(q.stored.most)
	q.decoded.most = min(4*q.bodies.most, maxDecodedMemory)
	q.replies = h.limitReplies(bodyShare(q.stored.most))
	return q
}

// Shares of the memory that the process can get, in percent. The rest is for answers and
// the garbage collector.
const (
	taskMemoryShare = 70      // tasks, without store.max_memory_mb
	assumedMemory   = 4 << 30 // bytes, of a machine that does not say how much it has
)

// memory returns the memory for tasks, in bytes.
func (c *storeConfig) memory() int64 {
	if c.MaxMemoryMB > 0 {
		return int64(c.MaxMemoryMB) << 20
	}
	return cmp.Or(availableMemory(), assumedMemory) / 100 * taskMemoryShare
}

// bodyShare returns the memory for request bodies, in bytes: a sixteenth of that for tasks,
// because what they become takes several times as much, but room for one body. Replies under way
// have as much again. Answers have half of it, which holds the longest one.
func bodyShare(tasks int64) int64 { return min(max(tasks/16, maxConfigBytes), 32<<20) }

// availableMemory returns how much memory the process can get, in bytes; 0 if that is unknown.
func availableMemory() int64 {
	n := machineMemory()
	if most := cgroupMemory(os.DirFS("/")); most > 0 {
		n = min(n, most)
	}
	return n
}

// each calls f for every quota, with its name in the metrics.
func (q *quotas) each(f func(name string, q *quota)) {
	f("connections", &q.connections)
	f("header_bytes", &q.headers)
	f("waiting_requests", &q.waiting)
	f("event_streams", &q.streams)
	f("actions", &q.actions)
	f("body_bytes", &q.bodies.quota)
	f("decoded_bytes", &q.decoded.quota)
	f("reply_bytes", q.replies)
	f("stored_bytes", &q.stored)
}

// Load beyond what the process can do. A trial takes the way of a request without doing
// anything: it waits in turn for the processor, for the store's lock and, like a change,
// for the disk. There is one trial at a time for reads and one for changes, at the earliest
// after loadFloor requests, so that few requests cost nothing and are never refused.

const (
	loadFloor = 64                     // requests behind a trial, or unanswered, that make no overload
	maxDelay  = 100 * time.Millisecond // a trial that takes longer has requests refused
)

// loadGauge measures how long requests have to wait before anything is done for them.
type loadGauge struct {
	reads, changes delayTrial
	open           atomic.Int64 // requests that are not answered yet
	refused        atomic.Uint64
}

func newLoadGauge(s *store) *loadGauge {
	g := &loadGauge{}
	g.reads.open, g.changes.open = &g.open, &g.open
	if g.reads.wait, g.changes.wait = func() {}, func() {}; s != nil {
		g.reads.wait = func() { s.locked(func() {}) }
		g.changes.wait = func() { s.waitAll(context.Background()) } // an error has its own refusal
	}
	return g
}

// refusal counts a request and returns why it is refused, or nil.
func (g *loadGauge) refusal(change bool) error {
	t := &g.reads
	if change {
		t = &g.changes
	}
	if !t.arrive() {
		return nil
	}
	g.refused.Add(1)
	return &failure{kind: overloaded, retryAfter: time.Second,
		message: "more requests arrive than can be answered in time: nothing was done for this one"}
}

// delayTrial is the trial for one kind of request.
type delayTrial struct {
	wait    func()        // for what such a request needs
	open    *atomic.Int64 // requests of any kind that are not answered yet
	arrived atomic.Uint64 // requests
	from    atomic.Uint64 // requests that had arrived when the latest trial began
	began   atomic.Int64  // when the present trial did, in real time; 0 for none
	ended   atomic.Int64  // when the latest one ended if that took too long; 0 otherwise
}

// arrive counts a request, begins a trial if it is time for one, and reports whether the
// request comes too late to be answered in time.
func (t *delayTrial) arrive() (late bool) {
	behind := t.arrived.Add(1) - t.from.Load()
	began, ended := t.began.Load(), t.ended.Load()
	if began == 0 && ended == 0 && behind < loadFloor {
		return false
	}
	now := realNow()
	if began == 0 && t.began.CompareAndSwap(0, int64(now)) {
		t.from.Store(t.arrived.Load())
		go t.run(now)
	}
	return t.open.Load() > loadFloor &&
		(began != 0 && behind > loadFloor && now.sub(instant(began)) > maxDelay ||
			ended != 0 && now.sub(instant(ended)) < maxDelay)
}

// run is a trial.
func (t *delayTrial) run(began instant) {
	runtime.Gosched() // behind the goroutines that wait for the processor now
	t.wait()
	now := realNow()
	ended := int64(0)
	// A slow trial with few requests behind it is no overload.
	if now.sub(began) > maxDelay && t.arrived.Load()-t.from.Load() > loadFloor {
		ended = int64(now)
	}
	t.ended.Store(ended)
	t.began.Store(0)
}
