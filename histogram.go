package main

// Durations counted in logarithmic bins: percentiles from little memory.

import (
	"math"
	"math/bits"
	"slices"
)

// histogramOctave is how many bins there are from one power of two to the next.
// With 8 a bin's middle is at most 1/17, 5.9 %, away from all that it counts.
const histogramOctave = 8

// logHistogram counts durations in microseconds. The zero value is empty, and
// only bins in which something was counted take memory, 8 bytes each. Count,
// sum and max are exact.
type logHistogram struct {
	bins  []histogramBin // ascending
	count uint64
	sum   int64
	max   int64
}

// histogramBin is a bin's number in the upper 16 bits, its count in the lower 48.
type histogramBin uint64

const histogramCountBits = 48

func makeHistogramBin(number int, count uint64) histogramBin {
	return histogramBin(uint64(number)<<histogramCountBits | count)
}

func (b histogramBin) number() int   { return int(b >> histogramCountBits) }
func (b histogramBin) count() uint64 { return uint64(b) & (1<<histogramCountBits - 1) }

// binOf is the number of the bin for a duration. Below 16 µs each microsecond
// has its own, and so has none an error.
func binOf(us int64) int {
	v := uint64(max(us, 0))
	if v < 2*histogramOctave {
		return int(v)
	}
	shift := bits.Len64(v) - 4 // leaves four bits: 8 to 15
	return shift*histogramOctave + int(v>>shift)
}

// binRange is the durations that a bin counts: from lo up to, not including, hi.
func binRange(number int) (lo, hi float64) {
	if number < 2*histogramOctave {
		return float64(number), float64(number + 1)
	}
	shift := number/histogramOctave - 1
	top := number%histogramOctave + histogramOctave
	return math.Ldexp(float64(top), shift), math.Ldexp(float64(top+1), shift)
}

// binMiddle is the duration that stands for a bin: as far, in proportion, from
// its lower as from its upper end.
func binMiddle(number int) float64 {
	if number < 2*histogramOctave {
		return float64(number)
	}
	lo, hi := binRange(number)
	return 2 * lo * hi / (lo + hi)
}

// observe counts one duration; a negative one, of a clock that went back, as 0.
func (h *logHistogram) observe(us int64) {
	us = max(us, 0)
	h.count++
	h.sum += us
	h.max = max(h.max, us)
	number := binOf(us)
	i := h.place(number)
	if i == len(h.bins) || h.bins[i].number() != number {
		h.bins = slices.Insert(h.bins, i, makeHistogramBin(number, 0))
	}
	h.bins[i]++
}

// place is where the bin is, or belongs.
func (h *logHistogram) place(number int) int {
	lo, hi := 0, len(h.bins)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if h.bins[mid].number() < number {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// add counts all that another histogram has.
func (h *logHistogram) add(o *logHistogram) {
	h.count += o.count
	h.sum += o.sum
	h.max = max(h.max, o.max)
	for _, b := range o.bins {
		i := h.place(b.number())
		if i == len(h.bins) || h.bins[i].number() != b.number() {
			h.bins = slices.Insert(h.bins, i, makeHistogramBin(b.number(), 0))
		}
		h.bins[i] += histogramBin(b.count())
	}
}

// clone is a copy that later observations do not touch.
func (h *logHistogram) clone() logHistogram {
	c := *h
	c.bins = slices.Clone(h.bins)
	return c
}

// quantile is the duration in microseconds below or at which the share q of all
// are, by nearest rank; at most 6 % off. 0 when nothing was counted.
func (h *logHistogram) quantile(q float64) float64 {
	if h.count == 0 {
		return 0
	}
	rank := uint64(max(math.Ceil(q*float64(h.count)), 1))
	var seen uint64
	for _, b := range h.bins {
		if seen += b.count(); seen >= rank {
			return min(binMiddle(b.number()), float64(h.max))
		}
	}
	return float64(h.max)
}

// mean is the exact average in microseconds, 0 when nothing was counted.
func (h *logHistogram) mean() float64 { return ratio(float64(h.sum), float64(h.count)) }

// distribution counts the durations between edges, ascending, in microseconds:
// one count below each edge, and one from the last on. A bin counts whole, by
// its middle.
func (h *logHistogram) distribution(edges []int64) []uint64 {
	counts := make([]uint64, len(edges)+1)
	at := 0
	for _, b := range h.bins {
		for at < len(edges) && binMiddle(b.number()) >= float64(edges[at]) {
			at++
		}
		counts[at] += b.count()
	}
	return counts
}

// ratio is part / whole, 0 when there is no whole.
func ratio(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}
