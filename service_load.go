package main

// Limits on what all callers of a process use together. What is beyond one of them is refused with quota.refuse.

import (
	"cmp"
	"os"
	"sync/atomic"
)

// quotas bound what all callers of a process use together. All its services share them.
type quotas struct {
	connections quota
	requests    quota // at work: without those that wait, and event streams
	waiting     quota // requests that wait for a task, or for a step to claim
	streams     quota // of events
	actions     quota // on many, under way
	memory      quota // bytes, of bodies and answers under way and what is decoded from bodies
	stored      quota // bytes of tasks

	lostLines *atomic.Uint64 // of the log
}

const (
	maxRequests      = 1000     // at work at once
	maxActions       = 4        // on many, at once
	maxRequestMemory = 64 << 20 // bytes, of all requests together
)

func newQuotas(c *Config) *quotas {
	q := &quotas{lostLines: new(atomic.Uint64)}
	q.connections.most = int64(c.Web.MaxConnections)
	q.requests.most = maxRequests
	q.waiting.most = (2*q.connections.most + 2) / 3 // others have connections left
	q.streams.most, q.actions.most = int64(c.Events.MaxStreams), maxActions
	q.memory.most = maxRequestMemory
	q.stored.most = c.Store.memory()
	return q
}

// The memory for tasks without store.max_memory_mb.
const (
	taskMemoryShare = 70      // percent of what the process can get; the rest is for all else and the garbage collector
	assumedMemory   = 4 << 30 // bytes, of a machine that does not say how much it has
)

// memory returns the memory for tasks, in bytes.
func (c *storeConfig) memory() int64 {
	if c.MaxMemoryMB > 0 {
		return int64(c.MaxMemoryMB) << 20
	}
	return cmp.Or(availableMemory(), assumedMemory) / 100 * taskMemoryShare
}

// availableMemory returns how much memory the process can get, in bytes; 0 if that is unknown.
func availableMemory() int64 {
	n := machineMemory()
	if most := cgroupMemory(os.DirFS("/")); most > 0 {
		n = min(n, most)
	}
	return n
}

// named returns every quota with its name in the metrics.
func (q *quotas) named() []namedQuota {
	return []namedQuota{
		{"connections", &q.connections}, {"requests", &q.requests}, {"waiting_requests", &q.waiting},
		{"event_streams", &q.streams}, {"actions", &q.actions}, {"request_bytes", &q.memory}, {"stored_bytes", &q.stored},
	}
}

type namedQuota struct {
	name string
	*quota
}
