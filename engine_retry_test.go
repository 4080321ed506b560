package main

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	for _, tc := range []struct {
		kind       backoffKind
		base, most int
		want       []int // milliseconds after 1, 2, 3, … attempts
	}{
		{backoffNone, 1000, 30000, []int{0, 0, 0}},
		{backoffLinear, 1000, 30000, []int{1000, 2000, 3000, 4000}},
		{backoffLinear, 1000, 2500, []int{1000, 2000, 2500}},
		{backoffExponential, 1000, 30000, []int{1000, 2000, 4000, 8000, 16000, 30000, 30000}},
		{backoffFibonacci, 1000, 30000, []int{1000, 1000, 2000, 3000, 5000, 8000, 13000, 21000, 30000}},
		{backoffExponential, 0, 30000, []int{0, 0}},
	} {
		p := &retryPolicy{Backoff: tc.kind, BaseMS: tc.base, MaxMS: tc.most}
		exact := &outcomeRules{}
		jitter := &outcomeRules{jitter: true, ids: newIDSource(newVirtualClock(0), new([32]byte))}
		for i, want := range tc.want {
			d := time.Duration(want) * time.Millisecond
			if got := exact.backoff(p, i+1, 0, uuid{}); got != d {
				t.Errorf("%s after %d attempts: got %s; want %s", tc.kind, i+1, got, d)
			}
			for range 100 {
				got := jitter.backoff(p, i+1, 0, uuid{})
				if got < d*9/10 || got > min(d*11/10, time.Duration(tc.most)*time.Millisecond) {
					t.Fatalf("%s after %d attempts with jitter: got %s; want %s ± 10 %%, at most %d ms", tc.kind, i+1, got, d, tc.most)
				}
			}
		}
	}
	e := &outcomeRules{}
	p := &retryPolicy{Backoff: backoffLinear, BaseMS: 1000, MaxMS: 2000}
	if got := e.backoff(p, 1, 90*time.Second, uuid{}); got != 90*time.Second {
		t.Errorf("Retry-After: got %s; want it to win", got)
	}
	if got := e.backoff(p, 1, 5*time.Hour, uuid{}); got != time.Hour {
		t.Errorf("a long Retry-After: got %s; want it capped at 1h", got)
	}
	if got := e.backoff(&retryPolicy{Backoff: backoffExponential, BaseMS: 1000, MaxMS: 30000}, 5000, 0, uuid{}); got != 30*time.Second {
		t.Errorf("after 5000 attempts: got %s; want 30s", got)
	}
}
