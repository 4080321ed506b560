package main

// The memory for replies under way: what each attempt holds of it, which reply waits for more, and which one is
// so slow that it gives way.

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// freeReply is how much of a reply does not count, in bytes, so that small replies never wait.
const freeReply = 64 << 10

// replyPatience is how long a reply may take for a chunk while another one waits for memory.
const replyPatience = time.Second

// errSlowReply ends the context of an attempt whose reply gives way.
var errSlowReply = errors.New("the reply is too slow")

// replyMemory is the memory, in bytes, for the parts of replies under way that come after their first freeReply bytes.
// A part counts once it is read. The oldest reply never waits, because what it may still need is left for it: so every
// reply ends at some time. Others that find too little wait for all that they may still need. The newest gets it first,
// so that slow replies that wait, however many, do not delay it.
type replyMemory struct {
	quota
	largest int64 // what one reply takes at most; the quota holds as much

	mu      sync.Mutex
	replies []*attemptContext // those that have asked for memory, in this order; guarded by mu, as all below
	watched bool              // watch is going to run
}

// heldReply is what the reply of an attempt holds of the memory, whose mu guards it.
type heldReply struct {
	held  int64
	wants int64         // it waits for so much more; 0 if it does not wait
	given chan struct{} // closed when it gets that; nil if it never asked, for which its attempt may look without mu
	since instant       // when it began its latest chunk
	slow  bool          // it was told to give way
}

// growReply takes memory for a reply that may have size bytes from now on; readChunks calls it. It waits until there is
// enough. The error is that of the context, which has ended. The memory is held until releaseReply.
func (c *attemptContext) growReply(size int) error {
	over := size - firstChunk - freeReply
	if over <= 0 {
		return nil
	}
	select {
	case <-c.replies.ask(c, int64(over+chunkSize-1)/chunkSize*chunkSize):
		return nil
	case <-c.Done():
		return c.Err()
	}
}

// releaseReply gives back what the reply holds, and reports whether it was waiting for more.
func (c *attemptContext) releaseReply() (waiting bool) {
	m, r := c.replies, &c.reply
	if r.given == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.Index(m.replies, c)
	m.replies = slices.Delete(m.replies, i, i+1)
	m.give(r.held)
	if waiting = r.wants > 0; waiting || r.slow {
		m.refused.Add(1)
	}
	*r = heldReply{}
	m.shareLocked()
	return waiting
}

// ask asks for memory until the reply of an attempt holds so much, and returns a channel that is closed when it does.
func (m *replyMemory) ask(c *attemptContext, holds int64) (given <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &c.reply
	if r.given == nil {
		m.replies = append(m.replies, c)
	}
	waits := make(chan struct{})
	r.given, r.since = waits, realNow()
	if holds <= r.held { // it has waited for all of it before
		close(waits)
		return waits
	}
	r.wants = holds - r.held
	// Once it waits at all, it waits for everything that it may still need, so that it does not have to wait at each
	// chunk.
	if m.shareLocked(); r.wants > 0 {
		r.wants = m.largest - r.held
	}
	return waits
}

// shareLocked gives memory to the replies that wait for it, first the oldest and then from the newest on, until too
// little is left for one.
func (m *replyMemory) shareLocked() {
	for i := range m.replies {
		r := &m.replies[(len(m.replies)-i)%len(m.replies)].reply
		left := m.most - m.used.Load()
		if i > 0 {
			left -= m.largest - m.replies[0].reply.held
		}
		switch {
		case r.wants == 0:
		case r.wants > left:
			m.hurryLocked()
			return
		default:
			m.used.Add(r.wants)
			r.held, r.wants, r.since = r.held+r.wants, 0, realNow()
			close(r.given)
		}
	}
}

// hurryLocked ends the attempt whose reply has spent the longest time on its latest chunk, at once or when
// replyPatience has passed. The end of the attempt gives the memory back.
func (m *replyMemory) hurryLocked() {
	slowest := m.replies[0]
	for _, c := range m.replies {
		if c.reply.wants == 0 && c.reply.since < slowest.reply.since {
			slowest = c
		}
	}
	if left := replyPatience - realNow().sub(slowest.reply.since); left > 0 {
		if !m.watched {
			m.watched = true
			afterReal(left, m.watch)
		}
		return
	}
	slowest.reply.slow = true
	slowest.end(errSlowReply)
}

func (m *replyMemory) watch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched = false
	m.shareLocked()
}
