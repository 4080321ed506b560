package main

// Stubs: scripted outcomes of attempts, which tests in fixture mode put in the
// place of handlers. This is what they are, and which one counts for an attempt;
// how they are played stands in stubplay.go.

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// stubFault is what goes wrong with a delivery.
type stubFault string

const (
	noFault           stubFault = ""
	workerLost        stubFault = "worker_lost"        // the process crashed before there was a result
	resultLost        stubFault = "result_lost"        // it crashed with the result
	duplicateDelivery stubFault = "duplicate_delivery" // the handler gets the attempt twice
	lateCompletion    stubFault = "late_completion"    // the result comes when the attempt has timed out
)

// stubOutcome is what one delivery comes to.
type stubOutcome struct {
	outcome *outcome      // nil: of a fault the handler's own, else null
	delay   time.Duration // in the service's time
	hang    bool          // until the step's timeout
	fault   stubFault
}

// instant tells whether the attempt starts and ends in one.
func (s *stubOutcome) instant() bool { return s.fault == noFault && !s.hang && s.delay == 0 }

// stubThen says what follows after the last outcome.
type stubThen string

const (
	thenLast    stubThen = "last"    // that one again
	thenHandler stubThen = "handler" // the step's own handler
	thenFail    stubThen = "fail"    // a permanent failure
)

// stub takes the place of the handlers of the attempts that it matches: the n-th
// delivery of them comes to the n-th outcome.
type stub struct {
	id       string
	seq      int
	match    matcher
	outcomes []stubOutcome
	then     stubThen
	uses     int // deliveries that it has decided; guarded by store.mu, alone of all

	matchText, outcomesText []byte // as they were given, compact
}

// next is what the next delivery comes to; nil leaves it to the handler.
func (s *stub) next() *stubOutcome {
	switch last := len(s.outcomes) - 1; {
	case s.uses <= last:
		return &s.outcomes[s.uses]
	case s.then == thenLast:
		return &s.outcomes[last]
	case s.then == thenFail:
		o := typedFailure(stubExhaustedType, "%s has no outcome left for delivery %d", s.id, s.uses+1)
		return &stubOutcome{outcome: &o}
	}
	return nil
}

// maxStubs is how many stubs a service takes: each is looked at for an attempt.
const maxStubs = 1000

// stubs are those of a service. It is guarded by store.mu.
type stubs struct {
	list []*stub // the most specific first, then the newest
	made int
}

// add takes up new stubs, the later ones being newer.
func (l *stubs) add(all []*stub) error {
	if len(l.list)+len(all) > maxStubs {
		return failf(conflict, "there may be %d stubs at most; there are %d", maxStubs, len(l.list))
	}
	for _, s := range all {
		l.made++
		s.seq, s.id = l.made, "stub-"+strconv.Itoa(l.made)
	}
	l.list = slices.Concat(l.list, all)
	slices.SortFunc(l.list, func(a, b *stub) int {
		return cmp.Or(cmp.Compare(b.match.specificity(), a.match.specificity()), cmp.Compare(b.seq, a.seq))
	})
	return nil
}

// replace puts others in the place of all, which stay when that is refused.
func (l *stubs) replace(all []*stub) error {
	before := l.list
	l.list = nil
	err := l.add(all)
	if err != nil {
		l.list = before
	}
	return err
}

func (l *stubs) remove(id string) (found bool) {
	n := len(l.list)
	l.list = slices.DeleteFunc(slices.Clone(l.list), func(s *stub) bool { return s.id == id })
	return len(l.list) < n
}

func (l *stubs) find(id string) *stub {
	i := slices.IndexFunc(l.list, func(s *stub) bool { return s.id == id })
	if i < 0 {
		return nil
	}
	return l.list[i]
}

// choose is the stub that counts for an attempt that is to start, or nil.
func (l *stubs) choose(x matchable) *stub {
	for _, s := range l.list {
		if s.match.fits(x) {
			return s
		}
	}
	return nil
}

// mayAct tells whether some attempt of a step may be played. Which one it will
// be need not be settled yet.
func (l *stubs) mayAct(x matchable) bool {
	return slices.ContainsFunc(l.list, func(s *stub) bool { return s.next() != nil && s.match.fitsBut(x, "attempt") })
}

// size is how many there are, of a service that has any or not.
func (l *stubs) size() int {
	if l == nil {
		return 0
	}
	return len(l.list)
}
