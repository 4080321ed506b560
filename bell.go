package main

// A bell: how whoever made something new wakes those who wait for it, at next to
// no cost while nobody waits.

import (
	"sync"
	"sync/atomic"
)

// bell wakes everybody who waits, each time it rings. The zero value is ready.
type bell struct {
	awaited atomic.Bool
	mu      sync.Mutex
	rung    chan struct{} // closed by the next ring; nil while nobody waits
}

// next is closed when the bell rings next. Whoever takes it before looking at
// what the bell is about misses nothing.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
		b.awaited.Store(true)
	}
	return b.rung
}

func (b *bell) ring() {
	if !b.awaited.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
		b.awaited.Store(false)
	}
}
