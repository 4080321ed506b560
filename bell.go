package main

// A bell: how whoever made something new wakes those who wait for it.

import "sync"

// bell wakes everybody who waits, each time it rings. The zero value is ready.
type bell struct {
	mu   sync.Mutex
	rung chan struct{} // closed by the next ring; nil while nobody waits
}

// next is closed when the bell rings next. Whoever takes it before looking at
// what the bell is about misses nothing.
func (b *bell) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	return b.rung
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}
