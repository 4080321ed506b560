package main

// What several goroutines share: notifications, quotas, rates of log messages, and a cache of
// answers. The priority queue is here for its users, the timers and the queues of steps.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// notifier wakes every waiter at each notification. The zero value is ready.
type notifier struct {
	mu sync.Mutex
	c  chan struct{} // closed by the next notification; nil while nobody waits
}

// next returns a channel that the next notification closes. A waiter takes it
// before it looks at the state it waits for, so that it misses no change.
func (n *notifier) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.c == nil {
		n.c = make(chan struct{})
	}
	return n.c
}

func (n *notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.c != nil {
		close(n.c)
		n.c = nil
	}
}

// quota bounds something that callers cost together. It is safe for concurrent use.
type quota struct {
	most    int64
	used    atomic.Int64
	refused atomic.Uint64 // how often there was not enough left
}

// take reserves n and reports whether that much was left.
func (q *quota) take(n int64) bool {
	if q.used.Add(n) <= q.most {
		return true
	}
	q.give(n)
	return false
}

// give returns n that was taken.
func (q *quota) give(n int64) { q.used.Add(-n) }

// refuse counts a refusal and returns it; full says what there is too much of.
func (q *quota) refuse(full string, args ...any) *failure {
	q.refused.Add(1)
	return tryLater(full, args...)
}

// tryLater returns a refusal of what may succeed in a second.
func tryLater(format string, args ...any) *failure {
	return &failure{kind: backpressure, retryAfter: time.Second, message: fmt.Sprintf(format, args...)}
}

// logRate lets through a number of messages a second, so that callers cannot fill the log.
type logRate struct {
	most int

	mu      sync.Mutex
	second  instant // when the present second began; guarded by mu, as all below
	count   int     // messages in it
	dropped int     // messages since the last one that was let through
}

// allow reports whether to log a message, and how many were not logged before it.
func (l *logRate) allow(now instant) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A clock that was set back begins a new second: else nothing would be logged until it is where it was.
	if since := now.sub(l.second); since >= time.Second || since < 0 {
		l.second, l.count = now, 0
	}
	if l.count == l.most {
		l.dropped++
		return 0, false
	}
	l.count++
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}

// offerToken puts a token into a channel of capacity 1, unless it holds one.
func offerToken(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// priorityQueue is a heap: pop removes the element that orders before all others. For queues whose elements move
// or leave from the middle, placed is called whenever an element changes its place. It is not safe for concurrent use.
type priorityQueue[E any] struct {
	items  []E
	before func(a, b E) bool
	placed func(e E, place int) // nil when nobody needs places
}

// push adds an element.
func (q *priorityQueue[E]) push(e E) {
	q.items = append(q.items, e)
	q.fix(len(q.items) - 1)
}

// pop removes the first element of a queue that is not empty.
func (q *priorityQueue[E]) pop() E { return q.remove(0) }

func (q *priorityQueue[E]) remove(place int) E {
	e, last := q.items[place], len(q.items)-1
	q.items[place] = q.items[last]
	// The array must not keep the element from being collected.
	clear(q.items[last:])
	if q.items = q.items[:last]; place < last {
		q.fix(place)
	}
	return e
}

// fix (hot path: BenchmarkGraph) restores the order after the element at a place has changed.
func (q *priorityQueue[E]) fix(place int) {
	e := q.items[place]
	for parent := (place - 1) / 2; place > 0 && q.before(e, q.items[parent]); parent = (place - 1) / 2 {
		q.put(place, q.items[parent])
		place = parent
	}
	for child := 2*place + 1; child < len(q.items); child = 2*place + 1 {
		if child+1 < len(q.items) && q.before(q.items[child+1], q.items[child]) {
			child++
		}
		if !q.before(q.items[child], e) {
			break
		}
		q.put(place, q.items[child])
		place = child
	}
	q.put(place, e)
}

func (q *priorityQueue[E]) put(place int, e E) {
	q.items[place] = e
	if q.placed != nil {
		q.placed(e, place)
	}
}

// answerCache caches the answers to the last few questions for a fixed time. Callers that ask while an answer is
// computed wait for it. The zero value is empty.
type answerCache[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]cachedAnswer[V] // guarded by mu
}

type cachedAnswer[V any] struct {
	made  instant // when the question was asked
	value V
}

// maxCachedAnswers is how many questions a cache holds; a new one replaces the oldest.
const maxCachedAnswers = 64

// get returns the answer to a question: a cached one younger than ttl (a hit), or one
// computed now. Errors are not cached, nor answers from before the clock went back.
func (c *answerCache[K, V]) get(
	key K, clk clock, ttl time.Duration, compute func() (V, error),
) (v V, hit bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// The time before the computation, since the answer shows the state of that time at the earliest.
	now := clk.now()
	if e, ok := c.entries[key]; ok && e.made <= now && now < e.made.add(ttl) {
		return e.value, true, nil
	}
	if v, err = compute(); err != nil {
		return v, false, err
	}
	if c.entries == nil {
		c.entries = map[K]cachedAnswer[V]{}
	}
	if len(c.entries) >= maxCachedAnswers {
		byAge := func(a, b K) int { return cmp.Compare(c.entries[a].made, c.entries[b].made) }
		delete(c.entries, slices.MinFunc(slices.Collect(maps.Keys(c.entries)), byAge))
	}
	c.entries[key] = cachedAnswer[V]{now, v}
	return v, false, nil
}
