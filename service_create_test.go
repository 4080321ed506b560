package main

// Tests of creating tasks: reading requests, repeated requests, and waiting for
// tasks.

import (
	"context"
	"runtime"
)

// createTask creates a task and returns it once it is durable.
func (s *service) createTask(ctx context.Context, q *taskRequest, mayRead bool) (*task, error) {
	done, err := s.tasks.submit(ctx, &submission{taskRequest: q, mayRead: mayRead})
	if err != nil {
		return nil, err
	}
	return done.task, nil
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
