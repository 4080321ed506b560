package main

// The budget of a request: how much memory it may take for what it has decoded and compiled,
// beyond the texts themselves.

import (
	"context"
	"fmt"
	"time"
)

// requestMemory is the most that one request may take, in bytes.
const requestMemory = 24 << 20

// maxSchemaSteps is how many steps its checks of schemas may take. A step is as long as an
// instruction of a pattern takes for a byte: up to 22 ns.
const maxSchemaSteps = 64 << 20

// decodedMemory is the memory that all budgets share, in bytes.
type decodedMemory struct {
	quota
	last chan struct{} // holds a token while a request may take the last part
}

// each returns how much one request may take. The same amount is kept for the request with the token: of requests that
// hold memory and wait for more, one can always continue.
func (m *decodedMemory) each() int64 { return min(requestMemory, m.most/2) }

func (m *decodedMemory) take(n int64, last bool) bool {
	// Added first and taken back if it was too much, so that concurrent callers need no lock. The part that is kept for
	// the request with the token is only out of reach for those without it.
	if m.used.Add(n) <= m.most-m.each() || last {
		return true
	}
	m.give(n)
	return false
}

// budget bounds what one request may take. Its owner must call end, even after a panic. A nil budget has no limit of
// memory; it is for the operator's own files.
type budget struct {
	ctx      context.Context // ends when nobody waits for the result
	pool     *decodedMemory  // nil for no limit
	own      bool            // of a check by the service itself, which is never refused memory
	patience time.Duration   // how long it waits for memory
	steps    int
	taken    int64 // bytes
	held     int64 // bytes taken from the pool
	last     bool  // it has the token
	err      error // why nothing more is given
}

// Memory is taken from the pool in pieces.
const budgetPiece = 256 << 10

// How long a request waits for memory, and how often it looks for some.
const (
	memoryPatience = 5 * time.Second
	memoryInterval = 5 * time.Millisecond
)

func newBudget(ctx context.Context, pool *decodedMemory) *budget {
	return &budget{ctx: ctx, pool: pool, patience: memoryPatience, steps: maxSchemaSteps}
}

// newOwnBudget returns a budget for checks by the service itself. It waits for memory no longer than patience, and then
// exceeds the limit, so that requests have to wait.
func newOwnBudget(pool *decodedMemory, patience time.Duration) *budget {
	b := newBudget(context.Background(), pool)
	b.own, b.patience = true, patience
	return b
}

// newLocalBudget returns the budget of one request for what did not come with one, such as a file.
func newLocalBudget() *budget {
	return newBudget(context.Background(), &decodedMemory{quota: quota{most: 2 * requestMemory}, last: make(chan struct{}, 1)})
}

// take takes n bytes for the value at a path of the request. It reports whether the work may continue: not after the
// limit has been reached or the client has left.
func (b *budget) take(n int, path, what string) bool {
	if b == nil || b.pool == nil || b.ended() {
		return !b.ended()
	}
	b.taken += int64(n)
	if most := b.pool.each(); b.taken > most && !b.own {
		b.err = tooCostly(path, fmt.Sprintf("%s needs more memory than the %d MiB that one request may use", what, most>>20))
	} else if b.taken > b.held {
		b.more()
	}
	return b.err == nil
}

// give returns n bytes that were needed only for a while.
func (b *budget) give(n int) {
	if b != nil {
		b.taken -= int64(n)
	}
}

// ended reports whether the work must end.
func (b *budget) ended() bool {
	if b != nil && b.err == nil {
		b.err = b.ctx.Err()
	}
	return b != nil && b.err != nil
}

// more takes memory from the pool.
func (b *budget) more() {
	// In pieces, so that the counter that all requests share is not touched for each value that is decoded.
	n := (b.taken - b.held + budgetPiece - 1) / budgetPiece * budgetPiece
	for until := realNow().add(b.patience); !b.pool.take(n, b.last); {
		select {
		// Nobody else has the token: the last part of the pool is this request's until it ends.
		case b.pool.last <- struct{}{}:
			b.last = true
			continue
		default:
		}
		switch b.err = b.ctx.Err(); {
		case b.err != nil:
			return
		case realNow() < until:
			receiveWithin(b.ctx.Done(), memoryInterval)
		case !b.own:
			b.err = b.pool.refuse("other requests use all the memory for decoded bodies, a share of store.max_memory_mb")
			return
		default:
			// A check by the service itself cannot be refused: its step would fail for want of memory. It exceeds the
			// limit instead.
			b.pool.used.Add(n)
			b.held += n
			return
		}
	}
	b.held += n
}

// end returns everything. Nothing may be taken afterwards.
func (b *budget) end() {
	if b == nil || b.pool == nil {
		return
	}
	b.pool.give(b.held)
	if b.held = 0; b.last {
		<-b.pool.last
		b.last = false
	}
}

// tooCostly returns the refusal of what would cost too much.
func tooCostly(path, why string) *failure {
	f := fieldReader{}
	f.complain(path, "%s", why)
	return f.failure("the request is too expensive").(*failure)
}
