package main

// A bounded cache of answers that may be a little old: each is computed once
// for all who ask at the same time, and shown for a fixed span of the clock.

import (
	"sync"
	"time"
)

// answerCache keeps the answer to each of the last few questions. The zero
// value is empty.
type answerCache[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]*cachedAnswer[V] // guarded by mu
}

// cachedAnswer is an answer, or one that is being computed.
type cachedAnswer[V any] struct {
	made  instant       // when it was asked for first
	ready chan struct{} // closed once value and err stand
	value V
	err   error
}

// maxCachedAnswers is how many questions a cache remembers; the oldest answer
// makes room.
const maxCachedAnswers = 64

// get is the answer to a question: one that is younger than ttl, a hit, or else
// a new one. Whoever asks while it is computed waits and shares it, which is
// no hit. An error is shared likewise, but not kept.
func (c *answerCache[K, V]) get(key K, clk clock, ttl time.Duration, compute func() (V, error)) (v V, hit bool, err error) {
	e, mine := c.enter(key, clk.now(), ttl)
	if mine {
		c.fill(key, e, compute)
		return e.value, false, e.err
	}
	select {
	case <-e.ready:
		return e.value, true, e.err
	default:
		<-e.ready
		return e.value, false, e.err
	}
}

// enter finds the entry for a question; when there is none, or it is not good
// any more, the caller has to fill a new one. After a clock that went back
// nothing from its future is shown.
func (c *answerCache[K, V]) enter(key K, now instant, ttl time.Duration) (e *cachedAnswer[V], mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil && e.made <= now && now < e.made.add(ttl) {
		return e, false
	}
	if c.entries == nil {
		c.entries = map[K]*cachedAnswer[V]{}
	}
	delete(c.entries, key)
	if len(c.entries) >= maxCachedAnswers {
		c.dropOldestLocked()
	}
	e = &cachedAnswer[V]{made: now, ready: make(chan struct{})}
	c.entries[key] = e
	return e, true
}

func (c *answerCache[K, V]) dropOldestLocked() {
	var oldest K
	var found *cachedAnswer[V]
	for key, e := range c.entries {
		if found == nil || e.made < found.made {
			oldest, found = key, e
		}
	}
	delete(c.entries, oldest)
}

// fill computes the answer and hands it to whoever waits, a panic as an error.
func (c *answerCache[K, V]) fill(key K, e *cachedAnswer[V], compute func() (V, error)) {
	e.err = errAnswerLost
	defer func() {
		if e.err != nil {
			c.drop(key, e)
		}
		close(e.ready)
	}()
	e.value, e.err = compute()
}

// errAnswerLost is for those who waited for a computation that panicked.
var errAnswerLost = failf(internalFailure, "the answer could not be computed")

// drop forgets an entry, unless another has taken its place.
func (c *answerCache[K, V]) drop(key K, e *cachedAnswer[V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[key] == e {
		delete(c.entries, key)
	}
}
