package main

import (
	"context"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestStopWhileTheDiskHangs stops an engine while an attempt syncs in its own goroutine, which nobody can cut off.
func TestStopWhileTheDiskHangs(t *testing.T) {
	t.Parallel()
	s := newSlowTest(t, "always").svc
	j, goesOn, stopped := s.store.journal, make(chan struct{}), make(chan struct{})
	j.hang.turn.setLimit(10 * time.Millisecond)
	s.engine.wg.Go(func() { j.during(func() error { <-goesOn; return nil }) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	go func() {
		s.engine.stop(ctx)
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		t.Error("the engine waits for the disk")
	}
	close(goesOn)
	<-stopped
}

// TestDiskWatch tells of operations that are late, once, and of their ends.
func TestDiskWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []bool
		w := diskWatch{limit: time.Second, tell: func(late bool) { told = append(told, late) }}
		for _, took := range []time.Duration{0, 900 * time.Millisecond, 5 * time.Second, 900 * time.Millisecond, 900 * time.Millisecond} {
			if err := w.during(func() error { time.Sleep(took); return io.EOF }); err != io.EOF {
				t.Errorf("got %v", err)
			}
		}
		if !slices.Equal(told, []bool{true, false}) {
			t.Errorf("got %v; want one late operation, and its end", told)
		}
	})
}
