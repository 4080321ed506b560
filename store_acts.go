package main

// What operators did, over all tasks that are kept. It is read from their records, so nothing of it is kept besides.

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
)

// operatorAct is one request of an operator, and how much it changed.
type operatorAct struct {
	first *record // of the request
	in    *slot   // its task
	ended instant // when the last record of the request was made
	steps int
	tasks []*slot // each once
}

// actQuery asks for what operators did after an instant; empty members select all.
type actQuery struct {
	since   instant
	actor   string // by either name
	request string // the id of an action on many
}

func (q *actQuery) selects(r *record) bool {
	by, subject := r.who()
	return r.byOperator() && r.at > q.since && (q.actor == "" || q.actor == by || q.actor == subject) &&
		(q.request == "" || q.request == r.request)
}

// actNames are the names of what operators do, where that of the record is another one.
var actNames = map[recordKind]string{
	recCreated: "run_again", recHeld: "hold", recReleased: "release", recCancelled: "cancel", recDLQUpdate: "update_dead_letter",
}

// did returns what the operator did.
func (r *record) did() string {
	if r.kind == recOperator {
		return r.action.String()
	}
	return cmp.Or(actNames[r.kind], r.kind.String())
}

// who returns the names of the operator: by the request, and by authentication.
func (r *record) who() (by, subject string) {
	switch r.kind {
	case recCreated:
		return r.created.initiator, ""
	case recDLQUpdate:
		if r.investigation.by != nil {
			by = *r.investigation.by
		}
		return by, r.subject
	}
	return r.by, r.subject
}

// why returns the operator's reason.
func (r *record) why() string {
	switch {
	case r.kind == recCreated:
		return r.created.reason
	case r.kind == recDLQUpdate && r.investigation.notes != nil:
		return *r.investigation.notes
	}
	return r.reason
}

// actMemory is about what an act takes while acts are read, in bytes.
const actMemory = 512

// acts returns what operators did, the newest first. It asks for the memory.
func (s *store) acts(q actQuery, memory holder) (all []*operatorAct, err error) {
	var touched []*slot
	for _, sl := range s.each(&taskWalk{states: anyState}) {
		if sl.acted > q.since {
			if sl.live != nil {
				sl = sl.frozen()
			}
			touched = append(touched, sl)
		}
	}
	if memory != nil {
		if err := memory.hold(len(touched) * actMemory); err != nil {
			return nil, err
		}
	}
	type request struct{ id, by, subject, did, why string }
	requests, room := map[request]*operatorAct{}, []byte(nil)
	for _, sl := range touched {
		room = sl.log.appendTo(room[:0])
		for entry := range logEntries(room) {
			if !mayBeAct(entry) {
				continue
			}
			r, err := decodeRecord(bytes.Clone(entry))
			if err != nil {
				return nil, fmt.Errorf("task %s: %w", sl.id, err)
			}
			if !q.selects(r) {
				continue
			}
			by, subject := r.who()
			key := request{r.request, by, subject, r.did(), r.why()}
			a := requests[key]
			if a == nil || r.request == "" {
				a = &operatorAct{first: r, in: sl}
				all, requests[key] = append(all, a), a
			}
			if r.seq < a.first.seq { // of a task that was created later
				a.first, a.in = r, sl
			}
			a.ended = max(a.ended, r.at)
			a.steps += boolCount(r.kind.ofStep())
			if n := len(a.tasks); n == 0 || a.tasks[n-1] != sl { // the records of a task come one after the other
				a.tasks = append(a.tasks, sl)
			}
		}
	}
	slices.SortFunc(all, func(a, b *operatorAct) int { return cmp.Compare(b.first.seq, a.first.seq) })
	return all, nil
}

// mayBeAct reports whether an entry of a log may be what an operator did.
func mayBeAct(entry []byte) bool {
	kind := objectMember(entry, "kind")
	return actKinds[string(kind)] && (string(kind) != `"created"` || bytes.Contains(entry, []byte(`"again":`)))
}

// actKinds are the kinds of such records, as JSON.
var actKinds = func() map[string]bool {
	kinds := map[string]bool{}
	for k := range recordKinds {
		kinds[`"`+k.String()+`"`] = (&record{kind: k, created: &creation{origin: &origin{}}}).byOperator()
	}
	return kinds
}()
