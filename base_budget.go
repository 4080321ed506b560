package main

// The budget of a request: how much memory it may take for what it has decoded and compiled,
// beyond the texts themselves.

import (
	"context"
	"fmt"
)

// requestMemory is the most that one request may take, in bytes.
const requestMemory = 24 << 20

// maxSchemaSteps is how many steps its checks of schemas may take. A step is as long as an
// instruction of a pattern takes for a byte: up to 22 ns.
const maxSchemaSteps = 64 << 20

// budget bounds what one request may take. Its owner must call end, even after a panic. A nil budget has no limit of
// memory; it is for the operator's own files.
type budget struct {
	ctx   context.Context // ends when nobody waits for the result
	pool  *quota          // the memory for requests; nil for no limit
	own   bool            // of a check by the service itself, which is never refused memory
	steps int
	taken int64 // bytes
	held  int64 // bytes taken from the pool
	err   error // why nothing more is given
}

// Memory is taken from the pool in pieces.
const budgetPiece = 256 << 10

func newBudget(ctx context.Context, pool *quota) *budget {
	return &budget{ctx: ctx, pool: pool, steps: maxSchemaSteps}
}

// newOwnBudget returns a budget for checks by the service itself. It may exceed the pool, so that requests are refused
// instead of a step failing for want of memory.
func newOwnBudget(pool *quota) *budget {
	b := newBudget(context.Background(), pool)
	b.own = true
	return b
}

// newLocalBudget returns the budget of one request for what did not come with one, such as a file.
func newLocalBudget() *budget {
	return newBudget(context.Background(), &quota{most: 2 * requestMemory})
}

// take takes n bytes for the value at a path of the request. It reports whether the work may continue: not after the
// limit has been reached or the client has left.
func (b *budget) take(n int, path, what string) bool {
	if b == nil || b.pool == nil || b.ended() {
		return !b.ended()
	}
	b.taken += int64(n)
	if most := min(requestMemory, b.pool.most/2); b.taken > most && !b.own {
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
	if b.own {
		b.pool.used.Add(n)
	} else if b.err = takeMemory(b.pool, n); b.err != nil {
		return
	}
	b.held += n
}

// takeMemory takes n bytes of the memory for requests, or returns the refusal.
func takeMemory(pool *quota, n int64) error {
	if !pool.take(n) {
		return pool.refuse("other requests use all of the %d MiB of memory for requests", pool.most>>20)
	}
	return nil
}

// end returns everything. Nothing may be taken afterwards.
func (b *budget) end() {
	if b == nil || b.pool == nil {
		return
	}
	b.pool.give(b.held)
	b.held = 0
}

// tooCostly returns the refusal of what would cost too much.
func tooCostly(path, why string) *failure {
	f := fieldReader{}
	f.complain(path, "%s", why)
	return f.failure("the request is too expensive").(*failure)
}
