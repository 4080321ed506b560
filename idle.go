package main

// Idle: whether an engine has nothing to do before time passes or somebody asks
// for something. It is computed from what the engine counts, never guessed.

import (
	"bytes"
	"cmp"
	"slices"
)

// busyWork is what an engine has in hand outside its queues. It is guarded by
// store.mu. Whatever goes from one place to the next is in the next before it
// leaves the one before.
type busyWork struct {
	inFlight  map[*run]struct{} // handlers in flight, and outcomes that the store could not take yet
	computing int               // builtins
	owed      int               // other changes that the store could not take yet
	idled     func()            // called under the lock when it may have become idle; nil when nobody asks
}

// idleLocked tells whether nothing runs and no step could start. A step that
// waits for a slot is no work as long as delays alone hold the slots.
func (e *engine) idleLocked() bool {
	return !e.startableLocked() && len(e.inFlight) == 0 && e.computing == 0 && e.owed == 0 && !e.busyLocked()
}

// startableLocked tells whether a step is ready for a slot that is free.
func (e *engine) startableLocked() bool {
	return e.local.Len() > 0 && e.slots > 0 || e.http.Len() > 0 && e.webSlots > 0
}

// lookUpLocked tells those who wait for it that the engine is idle, if it is.
func (e *engine) lookUpLocked() {
	if e.idled != nil && e.idleLocked() {
		e.idled()
	}
}

// hold counts an attempt whose outcome the store cannot take yet.
func (e *engine) hold(k *run) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	if !k.freed {
		e.inFlight[k] = struct{}{}
	}
}

// owe counts changes that the store cannot take yet.
func (e *engine) owe(n int) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	e.owed += n
	e.lookUpLocked()
}

// blocker is something that keeps an engine from being idle.
type blocker struct {
	Reason   string    `json:"reason"` // running, computing, ready, unrecorded or timer
	TaskUUID uuid      `json:"task_uuid,omitzero"`
	StepUUID uuid      `json:"step_uuid,omitzero"`
	StepName string    `json:"step_name,omitempty"`
	Handler  string    `json:"handler,omitempty"` // the callable
	Attempt  int       `json:"attempt,omitempty"`
	Since    zonedTime `json:"since,omitzero"` // when the attempt began, or the timer is due
}

// maxBlockers is how many blockers are listed of each kind.
const maxBlockers = 100

// blockersLocked is what keeps the engine from being idle.
func (e *engine) blockersLocked() []blocker {
	all := []blocker{}
	for k := range e.inFlight {
		if len(all) == maxBlockers {
			break
		}
		if k.outcome != nil && e.lockstep.waiting > 0 {
			continue // it waits for others of its batch
		}
		b := blocker{Reason: "running", Attempt: k.number, Since: zonedTime(k.started)}
		if k.cancel == nil || k.outcome != nil {
			b.Reason = "unrecorded"
		}
		all = append(all, b.of(e.store, k.key))
	}
	slices.SortFunc(all, func(a, b blocker) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), bytes.Compare(a.TaskUUID[:], b.TaskUUID[:]),
			bytes.Compare(a.StepUUID[:], b.StepUUID[:]))
	})
	for _, q := range []struct {
		*readyQueue
		free int
	}{{&e.local, e.slots}, {&e.http, e.webSlots}} {
		startable := min(len(q.items), max(q.free, 0), maxBlockers)
		for _, it := range q.items[:startable] {
			all = append(all, blocker{Reason: "ready"}.of(e.store, runKey{it.task.id, it.step}))
		}
	}
	if e.computing > 0 {
		all = append(all, blocker{Reason: "computing"})
	}
	if e.owed > 0 {
		all = append(all, blocker{Reason: "unrecorded"})
	}
	return all
}

// of names the step of a blocker.
func (b blocker) of(s *store, key runKey) blocker {
	b.TaskUUID = key.task
	pos, ok := s.byID[key.task]
	if !ok || s.slots[pos].live == nil { // its task ended without it
		return b
	}
	t := s.slots[pos].live
	def := t.def(key.step)
	b.StepUUID, b.StepName, b.Handler = t.stepID(key.step), def.name, def.callable
	return b
}
