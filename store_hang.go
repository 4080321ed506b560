package main

// The watch over a disk that hangs: an operation that takes too long has changes refused until
// it ends.

import (
	"sync"
	"time"
)

// A disk that hangs.

// diskWatch notices when an operation of the disk takes too long, in real time. It is for
// one operation at a time.
type diskWatch struct {
	limit time.Duration
	tell  func(late bool) // called when an operation is late, and when that one has ended

	mu    sync.Mutex
	began time.Time // of the operation; zero for none; guarded by mu, as all below
	late  bool
	timer *time.Timer
}

// during calls an operation.
func (w *diskWatch) during(op func() error) error {
	w.begin()
	defer w.end()
	return op()
}

func (w *diskWatch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = time.Now()
	if w.timer == nil {
		w.timer = time.AfterFunc(w.limit, w.fire)
	} else {
		w.timer.Reset(w.limit)
	}
}

// fire tells that the operation is late, unless the timer was for one that has ended.
func (w *diskWatch) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.began.IsZero() && !w.late && time.Since(w.began) >= w.limit {
		w.late = true
		w.tell(true)
	}
}

func (w *diskWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.began = time.Time{}
	if w.late {
		w.late = false
		w.tell(false)
	}
}
