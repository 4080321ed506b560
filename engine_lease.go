package main

// Leases: how long an outside actor holds a step, how it answers for the step, and what
// happens if it does not.

import "time"

// Leases: how long an outside actor holds a step, how it answers for the step, and what
// happens if it does not.

// heldStep is a step under a lease. The journal extends a lease for longer than the
// worker is told, so that the next extensions need no record; the lease lasts that long
// only if the service restarts.
type heldStep struct {
	runKey
	id    uuid    // the step's
	until instant // when the lease ends
	place int     // in the queue
}

// maxLeaseSlack bounds how much longer the journal extends a lease.
const maxLeaseSlack = 10 * time.Minute

// leaseSlack returns how much longer. It grows with the age of an attempt, so that
// the records of extensions stay few however long it takes.
func leaseSlack(age time.Duration) time.Duration { return min(age/4, maxLeaseSlack) }

// leaseQueue holds the steps under leases, by when their leases end.
type leaseQueue struct {
	held  priorityQueue[*heldStep]
	byID  map[uuid]*heldStep
	armed instant // when the timer fires; 0 for none
	timer *timer
}

func newLeaseQueue() leaseQueue {
	return leaseQueue{byID: map[uuid]*heldStep{}, held: priorityQueue[*heldStep]{
		before: func(a, b *heldStep) bool { return a.until < b.until },
		placed: func(h *heldStep, place int) { h.place = place },
	}}
}

// first returns the step whose lease ends first, or nil.
func (q *leaseQueue) first() *heldStep {
	if len(q.held.items) == 0 {
		return nil
	}
	return q.held.items[0]
}

// leaseBatch is how many leases expire under the lock at a time.
const leaseBatch = 256

// leaseVerb is an outside actor's operation on a step that it claimed.
type leaseVerb string

const (
	extendVerb   leaseVerb = "extend"
	completeVerb leaseVerb = "complete"
	failVerb     leaseVerb = "fail"
	yieldVerb    leaseVerb = "checkpoint"
)

// leaseAnswer is an outside actor's request about a step that it claimed. Whoever answers it
// sets its last members, so that each request needs one.
type leaseAnswer struct {
	verb    leaseVerb
	hash    leaseHash
	task    uuid          // according to the token, which anybody may have written
	lease   time.Duration // extend: from now
	outcome outcome       // complete, fail, checkpoint
	subject string        // the authenticated caller, or ""
	seen    taskVersions  // which the task must have; nil for any

	until   instant // set by an extension: when the lease ends
	version uint64  // set by the answer: the version of the task after it
}

// setLease takes the lease from its token.
func (q *leaseAnswer) setLease(token string) {
	q.hash = hashLease(token)
	if len(token) > len(q.task.String()) {
		q.task, _ = parseUUID(token[:len(q.task.String())])
	}
}
