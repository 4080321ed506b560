package main

// The watch over a disk that hangs: an operation that takes too long has changes refused until
// it ends.

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

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

// hangWatch knows whether the disk hangs.
type hangWatch struct {
	limit time.Duration // from which on an operation hangs
	dir   string
	log   *slog.Logger
	turn  diskWatch   // of whoever has the turn to write
	hangs atomic.Bool // late is not 0

	mu   sync.Mutex    // guards what follows; taken after that of a diskWatch
	late int           // operations of the disk that hang
	hung chan struct{} // closed while there are any
}

// note notes that an operation of the disk hangs, or that one goes on. Who waits is
// answered at the first.
func (h *hangWatch) note(late bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case late && h.late == 0:
		close(h.hung)
		h.log.Warn("the disk hangs: changes are refused until it goes on", "dir", h.dir, "after", h.limit.String())
	case !late && h.late == 1:
		h.hung = make(chan struct{})
		h.log.Info("the disk goes on: changes are taken again", "dir", h.dir)
	}
	if late {
		h.late++
	} else {
		h.late--
	}
	h.hangs.Store(h.late > 0)
}

// begun returns a channel that is closed while the disk hangs, or when it begins to.
func (h *hangWatch) begun() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hung
}

// err says that the disk hangs.
func (h *hangWatch) err() error {
	return fmt.Errorf("the disk has not answered for more than %s (store.slow_seconds)", h.limit)
}
