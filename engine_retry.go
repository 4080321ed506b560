package main

// Retries: what an outcome means for the next attempt, when that is due, and its timer.

import "math"

// maxWithheldText is the length of the longest reason for withholding an event.
const maxWithheldText = 500

// misdecided returns the failure that counts in place of a success whose decision the
// template does not allow.
func (t *task) misdecided(i int, end *ending) (o outcome, wrong bool) {
	if !end.success || t.decided(i) {
		return o, false
	}
	err := t.checkBranching(i, end)
	if err == nil {
		return o, false
	}
	return typedFailure(invalidOutcomeType, "%v", err), true
}

// backoffFactor returns what multiplies the base after n attempts.
func backoffFactor(kind backoffKind, n int) float64 {
	switch kind {
	case backoffLinear:
		return float64(n)
	case backoffExponential:
		return math.Pow(2, float64(n-1))
	case backoffFibonacci:
		a, b := 0.0, 1.0
		for range n {
			a, b = b, a+b
		}
		return a
	}
	return 0
}

// stillDue returns when what was due at an instant is due now. It is that instant, unless the
// machine's clock was set back while the process was down: then the wait goes on from the
// task's newest record.
func (t *task) stillDue(when, now instant) instant { return when - max(t.updated-now, 0) }
