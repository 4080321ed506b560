package main

// A histogram with eight bins for each power of two: percentiles of durations from little memory.

import (
	"cmp"
	"encoding/json"
	"math"
	"math/bits"
	"slices"
	"time"
)

// binsPerOctave is how many bins divide each power of two. With 8, the middle
// of a bin is at most 1/17, 5.9 %, away from the durations in it.
const binsPerOctave = 8

// histogram counts durations in microseconds. The zero value is empty. Only bins that counted something take memory, 16
// bytes each. Count, sum and max are exact. A copy shares the bins, see clone.
type histogram struct {
	bins  []histogramBin // ascending
	count uint64
	sum   int64
	max   int64
}

// histogramBin is a bin's number and its count.
type histogramBin [2]uint64

// binOf returns the number of the bin for a duration. Below 16 µs each microsecond has its own bin, without an error.
func binOf(us int64) uint64 {
	v := uint64(max(us, 0))
	if v < 2*binsPerOctave {
		return v
	}
	shift := bits.Len64(v) - 4                    // leaves four bits: 8 to 15
	return uint64(shift)*binsPerOctave + v>>shift // continues after the bins of single microseconds
}

// binRange returns the durations that a bin counts: from lo up to, but not including, hi.
func binRange(number uint64) (lo, hi float64) {
	if number < 2*binsPerOctave {
		return float64(number), float64(number + 1)
	}
	shift := int(number/binsPerOctave) - 1
	top := number%binsPerOctave + binsPerOctave
	return math.Ldexp(float64(top), shift), math.Ldexp(float64(top+1), shift)
}

// binMiddle returns the duration that stands for a bin: as far, in proportion, from its lower as from its upper end.
func binMiddle(number uint64) float64 {
	if number < 2*binsPerOctave {
		return float64(number)
	}
	lo, hi := binRange(number)
	return 2 * lo * hi / (lo + hi)
}

// text returns the bins as a list of their numbers and counts; nil for none.
func (h *histogram) text() []byte {
	if len(h.bins) == 0 {
		return nil
	}
	text, _ := json.Marshal(h.bins)
	return text
}

// read reads the bins of such a list into an empty histogram, and reports whether it is one.
func (h *histogram) read(text []byte) bool {
	if text != nil && json.Unmarshal(text, &h.bins) != nil {
		return false
	}
	for _, b := range h.bins {
		h.count += b[1]
	}
	return true
}

// observe counts one duration; a negative one, from a clock that was set back, as 0.
func (h *histogram) observe(us int64) {
	us = max(us, 0)
	h.count++
	h.sum += us
	h.max = max(h.max, us)
	h.add(histogramBin{binOf(us), 1})
}

// took counts a duration, rounded.
func (h *histogram) took(d time.Duration) { h.observe(d.Round(time.Microsecond).Microseconds()) }

// clone returns a copy that later counts do not change.
func (h *histogram) clone() histogram {
	c := *h
	c.bins = slices.Clone(h.bins)
	return c
}

// add counts what a bin has.
func (h *histogram) add(b histogramBin) {
	i, found := slices.BinarySearchFunc(h.bins, b[0], func(b histogramBin, number uint64) int { return cmp.Compare(b[0], number) })
	if !found {
		h.bins = slices.Insert(h.bins, i, histogramBin{b[0], 0})
	}
	h.bins[i][1] += b[1]
}

// merge counts everything that another histogram has.
func (h *histogram) merge(o *histogram) {
	h.count += o.count
	h.sum += o.sum
	h.max = max(h.max, o.max)
	for _, b := range o.bins {
		h.add(b)
	}
}

// quantile returns the duration in microseconds that the share q of all does
// not exceed, by nearest rank and at most 6 % off; 0 if the histogram is empty.
func (h *histogram) quantile(q float64) float64 {
	if h.count == 0 {
		return 0
	}
	rank := uint64(max(math.Ceil(q*float64(h.count)), 1))
	var seen uint64
	for _, b := range h.bins {
		if seen += b[1]; seen >= rank {
			return min(binMiddle(b[0]), float64(h.max)) // the middle of the last bin may be beyond all durations
		}
	}
	return float64(h.max)
}

// mean returns the exact average in microseconds; 0 if the histogram is empty.
func (h *histogram) mean() float64 { return ratio(float64(h.sum), float64(h.count)) }

// distribution counts the durations between edges, in microseconds and ascending: one count below each edge, and one
// from the last edge on. A bin counts as a whole, by its middle.
func (h *histogram) distribution(edges []int64) []uint64 {
	counts := make([]uint64, len(edges)+1)
	at := 0
	for _, b := range h.bins {
		for at < len(edges) && binMiddle(b[0]) >= float64(edges[at]) {
			at++
		}
		counts[at] += b[1]
	}
	return counts
}

// ratio returns part / whole, or 0 if whole is 0.
func ratio(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}
