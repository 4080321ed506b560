package main

// A histogram with eight bins for each power of two: percentiles of durations from little memory.

import (
	"cmp"
	"encoding/json"
	"math"
	"math/bits"
	"slices"
)

// binsPerOctave is how many bins divide each power of two. With 8, the middle
// of a bin is at most 1/17, 5.9 %, away from the durations in it.
const binsPerOctave = 8

// latencyHistogram counts durations in microseconds. The zero value is empty.
// Only bins that counted something take memory, 16 bytes each. Count, sum and
// max are exact.
type latencyHistogram struct {
	bins  []latencyBin // ascending
	count uint64
	sum   int64
	max   int64
}

// latencyBin is a bin's number and its count.
type latencyBin [2]uint64

// binOf returns the number of the bin for a duration. Below 16 µs each
// microsecond has its own bin, without an error.
func binOf(us int64) uint64 {
	v := uint64(max(us, 0))
	if v < 2*binsPerOctave {
		return v
	}
	shift := bits.Len64(v) - 4                    // leaves four bits: 8 to 15
	return uint64(shift)*binsPerOctave + v>>shift // continues after the bins of single microseconds
}

// binRange returns the durations that a bin counts: from lo up to, but not
// including, hi.
func binRange(number uint64) (lo, hi float64) {
	if number < 2*binsPerOctave {
		return float64(number), float64(number + 1)
	}
	shift := int(number/binsPerOctave) - 1
	top := number%binsPerOctave + binsPerOctave
	return math.Ldexp(float64(top), shift), math.Ldexp(float64(top+1), shift)
}

// binMiddle returns the duration that stands for a bin: as far, in proportion,
// from its lower as from its upper end.
func binMiddle(number uint64) float64 {
	if number < 2*binsPerOctave {
		return float64(number)
	}
	lo, hi := binRange(number)
	return 2 * lo * hi / (lo + hi)
}

// text returns the bins as a list of their numbers and counts; nil for none.
func (h *latencyHistogram) text() []byte {
	if len(h.bins) == 0 {
		return nil
	}
	text, _ := json.Marshal(h.bins)
	return text
}

// read reads the bins of such a list into an empty histogram, and reports whether it is one.
func (h *latencyHistogram) read(text []byte) bool {
	if text != nil && json.Unmarshal(text, &h.bins) != nil {
		return false
	}
	for _, b := range h.bins {
		h.count += b[1]
	}
	return true
}

// observe counts one duration; a negative one, from a clock that was set back,
// as 0.
func (h *latencyHistogram) observe(us int64) {
	us = max(us, 0)
	h.count++
	h.sum += us
	h.max = max(h.max, us)
	h.add(latencyBin{binOf(us), 1})
}

// add counts what a bin has.
func (h *latencyHistogram) add(b latencyBin) {
	i, found := slices.BinarySearchFunc(h.bins, b[0], func(b latencyBin, number uint64) int { return cmp.Compare(b[0], number) })
	if !found {
		h.bins = slices.Insert(h.bins, i, latencyBin{b[0], 0})
	}
	h.bins[i][1] += b[1]
}

// merge counts everything that another histogram has.
func (h *latencyHistogram) merge(o *latencyHistogram) {
	h.count += o.count
	h.sum += o.sum
	h.max = max(h.max, o.max)
	for _, b := range o.bins {
		h.add(b)
	}
}

// quantile returns the duration in microseconds that the share q of all does
// not exceed, by nearest rank and at most 6 % off; 0 if the histogram is empty.
func (h *latencyHistogram) quantile(q float64) float64 {
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
func (h *latencyHistogram) mean() float64 { return ratio(float64(h.sum), float64(h.count)) }

// distribution counts the durations between edges, in microseconds and
// ascending: one count below each edge, and one from the last edge on. A bin
// counts as a whole, by its middle.
func (h *latencyHistogram) distribution(edges []int64) []uint64 {
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
