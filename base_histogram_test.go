package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestHistogramBins(t *testing.T) {
	last := int64(-1)
	check := func(us int64) {
		t.Helper()
		n := int64(binOf(us))
		lo, hi := binRange(uint64(n))
		if float64(us) < lo || float64(us) >= hi && us < 1<<53 {
			t.Errorf("%d is in bin %d, from %g to %g", us, n, lo, hi)
		}
		if n < last || n > last+1 && last >= 0 {
			t.Errorf("%d is in bin %d, the one before in %d", us, n, last)
		}
		last = n
	}
	for us := range int64(1 << 16) {
		check(us)
	}
	for _, us := range []int64{1<<40 - 1, 1 << 40, math.MaxInt64} {
		last = -1
		check(us)
	}
	if got := binOf(-5); got != 0 {
		t.Errorf("a negative duration is in bin %d; want 0", got)
	}
}

// TestHistogramError compares percentiles with the exact ones.
func TestHistogramError(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var h histogram
		exact := make([]int64, 1+r.IntN(500))
		for i := range exact {
			exact[i] = int64(math.Exp(r.Float64() * 30)) // 1 µs to four months
			h.observe(exact[i])
		}
		slices.Sort(exact)
		for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.95, 0.99, 1} {
			want := float64(exact[max(int(math.Ceil(q*float64(len(exact)))), 1)-1])
			if got := h.quantile(q); math.Abs(got-want) > 0.06*want {
				t.Fatalf("quantile %g of %d durations: got %g; want %g", q, len(exact), got, want)
			}
		}
		if h.max != exact[len(exact)-1] || h.count != uint64(len(exact)) {
			t.Fatalf("got %d durations up to %d; want %d up to %d", h.count, h.max, len(exact), exact[len(exact)-1])
		}
	}
}

func TestHistogramSmall(t *testing.T) {
	var h histogram
	if h.quantile(0.5) != 0 || h.mean() != 0 {
		t.Errorf("of nothing: got %g and %g; want 0", h.quantile(0.5), h.mean())
	}
	for _, us := range []int64{3, 5, 15, -1} {
		h.observe(us)
	}
	for q, want := range map[float64]float64{0.25: 0, 0.5: 3, 0.75: 5, 1: 15} {
		if got := h.quantile(q); got != want {
			t.Errorf("quantile %g: got %g; want %g", q, got, want)
		}
	}
	if got := h.mean(); got != 23.0/4 {
		t.Errorf("mean: got %g; want %g", got, 23.0/4)
	}
	if got, want := h.distribution([]int64{3, 5, 1000}), []uint64{1, 1, 2, 0}; !slices.Equal(got, want) {
		t.Errorf("distribution: got %v; want %v", got, want)
	}
}

// TestHistogramAdd checks that merging histograms gives the same as counting
// everything in one.
func TestHistogramAdd(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var parts [3]histogram
	var whole, sum histogram
	for i := range 1000 {
		us := r.Int64N(1 << (1 + i%40))
		parts[i%3].observe(us)
		whole.observe(us)
	}
	before := slices.Clone(parts[0].bins)
	for i := range parts {
		sum.merge(&parts[i])
	}
	if !slices.Equal(sum.bins, whole.bins) || sum.count != whole.count || sum.sum != whole.sum || sum.max != whole.max {
		t.Errorf("got %+v; want %+v", sum, whole)
	}
	if !slices.Equal(before, parts[0].bins) {
		t.Error("adding changed a part")
	}
}
