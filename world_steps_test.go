package main

// What clients saw of one step, as a linearizable history: there must be an order of all operations, each between its
// call and its answer, that a step could have gone through one after the other. Operations of unknown outcome may have
// happened at any time after their call, or never.

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The kinds of operations, besides the actions of operators.
const (
	opClaim  = "claim"
	opExtend = "extend"
	opYield  = "checkpoint"
	opCancel = "cancel the task"
	opSee    = "see"
)

// stepOp is an operation on a step.
type stepOp struct {
	kind    string
	lease   string
	attempt int
	until   time.Time // when a lease ends
	nonce   string    // of the result or the error
	final   bool      // a failure is not to be retried
	state   string    // that was seen
	whole   bool      // with the result
	ok      bool      // it was done, or else refused or unknown
	x       *worldAnswer
	lost    int  // claims before it that may have taken the step
	timed   bool // the step has a deadline
}

func (o *stepOp) String() string {
	return fmt.Sprintf("%s [%d,%d] %d at %s: attempt %d lease %.50s until %s %s %s", o.kind, o.x.call, int64(o.x.ret), o.x.status,
		o.x.at.Format(time.DateTime), o.attempt, o.lease[min(len(o.lease), 37):], o.until.Format(time.DateTime), o.state, o.nonce)
}

// stepHistory holds the operations on one step.
type stepHistory struct {
	id, task string
	timed    atomic.Bool // it has a deadline

	mu  sync.Mutex
	ops []*stepOp
}

func (h *stepHistory) add(o *stepOp) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// stepSpecState is a step of the specification.
type stepSpecState struct {
	phase   string // open, held, done, failed, cancelled or resolved
	attempt int    // the newest
	again   bool   // the next delivery is of the same attempt
	lease   string // the newest
	until   time.Time
	past    string // leases that were ended, each with how
	nonce   string // of the result
}

// check returns why there is no such order, or "". cancels are of the task; lost are claims of unknown outcome, which may
// have been given this step.
func (h *stepHistory) check(cancels, lost []*stepOp) string {
	if !slices.ContainsFunc(h.ops, func(o *stepOp) bool { return o.kind == opClaim }) {
		return "" // not a step for outside actors
	}
	ops := slices.DeleteFunc(slices.Concat(h.ops, cancels), func(o *stepOp) bool {
		return o.x.life == nil || !o.ok && o.kind != opExtend && o.kind != opYield && o.kind != "complete" && o.kind != "fail" && !o.x.unknown()
	})
	slices.SortStableFunc(ops, func(a, b *stepOp) int { return cmp.Compare(a.x.call, b.x.call) })
	for _, o := range ops {
		o.timed = h.timed.Load()
		for _, c := range lost {
			o.lost += boolCount(c.x.call < o.x.ret)
		}
	}
	s := &stepSearch{ops: ops, done: make([]bool, len(ops)), seen: map[string]bool{}}
	if s.order(stepSpecState{phase: "open"}) {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "after %d of %d operations, as %+v:", s.most, len(ops), s.stuck)
	for _, o := range ops {
		fmt.Fprintf(&b, "\n\t%s", o)
	}
	return b.String()
}

// stepSearch looks for an order.
type stepSearch struct {
	ops   []*stepOp
	done  []bool
	seen  map[string]bool // what was tried: which operations are done, and the state
	most  int             // operations that could be ordered
	stuck stepSpecState
}

// order orders the remaining operations after a state.
func (s *stepSearch) order(st stepSpecState) bool {
	key := s.key(st)
	if s.seen[key] || len(s.seen) > mostOrders {
		return len(s.seen) > mostOrders
	}
	s.seen[key] = true
	first, left, count := uint64(1<<63), false, 0 // the first answer among those that remain
	for i, o := range s.ops {
		if s.done[i] {
			count++
			continue
		}
		if !o.x.unknown() || o.kind == opSee {
			left = true
			first = min(first, o.x.ret)
		}
	}
	if count > s.most {
		s.most, s.stuck = count, st
	}
	if !left {
		return true
	}
	for i, o := range s.ops {
		if s.done[i] || o.x.call > first {
			continue
		}
		s.done[i] = true
		for _, next := range st.after(o) {
			if next == st && o.x.unknown() {
				continue // it need not have happened
			}
			if s.order(next) {
				return true
			}
		}
		s.done[i] = false
	}
	return false
}

// mostOrders is how many orders are tried before a history counts as undecided.
const mostOrders = 300_000

// key returns what was ordered, and the state after it.
func (s *stepSearch) key(st stepSpecState) string {
	b := make([]byte, 0, 128)
	for at, done := range s.done {
		if at%8 == 0 {
			b = append(b, 0)
		}
		b[at/8] |= byte(boolCount(done)) << (at % 8)
	}
	b = append(b, st.phase...)
	b = strconv.AppendInt(b, int64(st.attempt), 10)
	b = strconv.AppendBool(b, st.again)
	b = strconv.AppendInt(append(b, st.lease...), st.until.UnixNano(), 36)
	return string(append(append(b, st.past...), st.nonce...))
}

// after returns the states that an operation may lead to; none if it cannot be answered so.
func (st stepSpecState) after(o *stepOp) (next []stepSpecState) {
	if st.phase == "held" && !o.x.until.Before(st.until) || st.phase == "held" && o.x.unknown() { // the lease may be over
		over := st
		for _, phase := range []string{"open", "failed"} {
			over.phase = phase
			next = append(next, over.now(o)...)
		}
	}
	if next = append(next, st.now(o)...); o.timed && (st.phase == "open" || st.phase == "held") { // its deadline may have passed
		over := st
		over.phase, over.nonce = "done", nobodyNonce
		next = append(next, over.now(o)...)
		over.phase, over.nonce = "failed", st.nonce
		next = append(next, over.now(o)...)
	}
	return next
}

// nobodyNonce is in the result of a step that nobody answered in time.
const nobodyNonce = "nobody"

// now is after without a lease that ends before.
func (st stepSpecState) now(o *stepOp) []stepSpecState {
	held := st.phase == "held" && st.lease == o.lease
	finished := st.phase == "done" || st.phase == "cancelled" || st.phase == "resolved"
	to := func(phases ...string) (next []stepSpecState) {
		for _, phase := range phases {
			n := st
			n.phase = phase
			next = append(next, n)
		}
		return next
	}
	switch o.kind {
	case opClaim:
		want := st.attempt + boolCount(!st.again)
		if st.phase != "open" || o.attempt < want || o.attempt > want+o.lost {
			return nil
		}
		return []stepSpecState{{phase: "held", attempt: o.attempt, lease: o.lease, until: o.until, past: st.past}}
	case opSee:
		return st.seen(o)
	case opExtend, opYield, "complete", "fail":
		what := "|" + o.lease + o.kind + " " + o.nonce + "|"
		before := strings.Contains(st.past, what) && o.kind != opExtend
		switch {
		case !o.ok && !o.x.unknown(): // refused
			if held || before && o.kind != opYield { // of checkpoints the task keeps the newest only
				return nil
			}
			return to(st.phase)
		case before:
			return to(st.phase)
		case !held:
			return nil
		}
		return st.answered(o, what)
	case opCancel, "cancel":
		if finished {
			return to(st.phase)
		}
		return to("cancelled")
	case "reset_for_retry":
		n := st
		n.phase, n.attempt, n.again = "open", 0, false
		if st.phase != "failed" { // it was done before
			return to(st.phase)
		}
		return []stepSpecState{n}
	case "resolve_manually":
		if st.phase == "done" || st.phase == "cancelled" {
			return to(st.phase)
		}
		return to("resolved")
	case "complete_manually":
		if st.phase == "done" || st.phase == "cancelled" {
			return to(st.phase)
		}
		n := st
		if st.phase == "open" {
			n.attempt, n.again = st.attempt+boolCount(!st.again), false
		}
		n.phase, n.nonce = "done", o.nonce
		// A step that was not ready does not count an attempt.
		m := n
		m.attempt, m.again = st.attempt, st.again
		return []stepSpecState{n, m}
	case opActFail:
		n := st
		if st.phase == "open" {
			n.attempt, n.again = st.attempt+boolCount(!st.again), false
		}
		open := n
		open.phase, n.phase = "open", "failed"
		return []stepSpecState{open, n, st}
	}
	return to(st.phase)
}

// opActFail is the action of an operator.
const opActFail = "operator fails"

// answered returns the states after an outcome that was taken.
func (st stepSpecState) answered(o *stepOp, what string) []stepSpecState {
	n := st
	if o.kind == opExtend {
		if o.until.After(n.until) || o.x.unknown() {
			n.until = o.until
		}
		if o.x.unknown() { // it may last for up to a day
			n.until = st.until
			long := st
			long.until = o.x.at.Add(24 * time.Hour)
			return []stepSpecState{n, long}
		}
		return []stepSpecState{n}
	}
	n.past += what
	switch {
	case o.kind == "complete":
		n.phase, n.nonce = "done", o.nonce
	case o.kind == opYield:
		n.phase, n.again = "open", true
	case o.final:
		n.phase = "failed"
	default:
		n.phase = "open"
		failed := n
		failed.phase = "failed"
		return []stepSpecState{n, failed}
	}
	return []stepSpecState{n}
}

// seenPhases are the states of a step by the phases that it may be in.
var seenPhases = map[string][]string{
	"pending": {"open"}, "enqueued": {"open"}, "waiting_for_retry": {"open"}, "in_progress": {"held", "open"},
	"complete": {"done"}, "error": {"failed"}, "cancelled": {"cancelled"}, "resolved_manually": {"resolved"},
}

// seen returns the state if it can be seen so.
func (st stepSpecState) seen(o *stepOp) []stepSpecState {
	if st.phase == "open" && o.lost > 0 && o.state == "error" {
		st.phase = "failed"
	}
	if !slices.Contains(seenPhases[o.state], st.phase) || o.state == "complete" && o.whole && o.nonce != st.nonce ||
		st.phase == "held" && o.attempt != st.attempt {
		return nil
	}
	return []stepSpecState{st}
}
