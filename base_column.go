package main

// Columns of times: an instant for each position, and which positions come last.

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// timeColumn holds an instant for each position, in words as a set has them. Zero is none.
// Memory: 8 bytes for each position up to the highest one ever set.
type timeColumn struct{ words []timeWord }

type timeWord [64]instant

// set sets the instant of a position.
func (c *timeColumn) set(i uint32, at instant) {
	for int(i/64) >= len(c.words) {
		c.words = append(c.words, timeWord{})
	}
	c.words[i/64][i%64] = at
}

// at returns the instant of a position.
func (c *timeColumn) at(i uint32) instant {
	if int(i/64) >= len(c.words) {
		return 0
	}
	return c.words[i/64][i%64]
}

// trim keeps the given number of blocks; those after them must have no instants.
func (c *timeColumn) trim(blocks int) {
	if n := blocks * bitBlockWords; n < len(c.words) {
		c.words = slices.Clone(c.words[:n])
	}
}

// timeSpan is the positions of a column whose points p have from <= p < before. It may include positions without an
// instant.
type timeSpan struct {
	column       *timeColumn
	from, before timePoint
}

// The limits of spans that have none.
var (
	firstPoint = timePoint{math.MinInt64, 0}
	lastPoint  = timePoint{math.MaxInt64, 0}
)

func (s *timeSpan) reach() int { return (len(s.column.words) + bitBlockWords - 1) / bitBlockWords }

func (s *timeSpan) has(i uint32) bool {
	p := timePoint{s.column.at(i), i}
	return p.compare(s.from) >= 0 && p.compare(s.before) < 0
}

func (s *timeSpan) block(b int, room *bitBlock) (*bitBlock, int) {
	n := 0
	for i := range room {
		room[i] = s.word(uint32(b*bitBlockWords + i))
		n += bits.OnesCount64(room[i])
	}
	return room, n
}

// word returns the positions in a word of the column. It compares instants alone, without a branch
// for each, unless the word has the position of a limit.
func (s *timeSpan) word(i uint32) (found uint64) {
	switch {
	case int(i) >= len(s.column.words) || s.before.compare(s.from) <= 0:
		return 0
	case i == s.from.pos/64 || i == s.before.pos/64:
		for n := range uint32(64) {
			if s.has(64*i + n) {
				found |= 1 << n
			}
		}
		return found
	}
	from, before := s.from.at, s.before.at
	if i < s.from.pos/64 { // the point of this instant comes before the limit
		from++
	}
	if i < s.before.pos/64 {
		before++
	}
	width := uint64(before) - uint64(from)
	for _, at := range &s.column.words[i] {
		_, in := bits.Sub64(uint64(at)-uint64(from), width, 0) // borrows if from <= at < before
		found = found>>1 | in<<63
	}
	return found
}

// timeSearch finds the last points of some positions. Its memory is used again.
type timeSearch struct {
	sampled []uint32
	points  []timePoint
}

// A search sorts only the points that a sample places near the page; the margin is by how many points of the sample
// this may be wrong.
const (
	sampledPoints = 1024
	sampleMargin  = 64
)

// latest appends n positions of a set in the order of their points in a column, the latest first, after skipping the
// first skip. The set must have at least skip+n positions.
func (t *timeSearch) latest(to []uint32, set *bitset, c *timeColumn, skip, n int) []uint32 {
	// Sorting all points for a page would cost more than reading them: most are only counted, and a few are sorted.
	later := t.collect(set, t.near(set, c, skip, n))
	if skip < later || skip+n > later+len(t.points) { // the sample was not like the rest
		later = t.collect(set, &timeSpan{c, firstPoint, lastPoint})
	}
	sortLast(t.points, skip-later, skip-later+n)
	for _, p := range t.points[skip-later : skip-later+n] {
		to = append(to, p.pos)
	}
	return to
}

// near returns a span that probably has the points of a page.
func (t *timeSearch) near(set *bitset, c *timeColumn, skip, n int) *timeSpan {
	s := &timeSpan{c, firstPoint, lastPoint}
	step := set.total / sampledPoints
	if step < 4 {
		return s
	}
	t.sampled, t.points = t.sampled[:0], t.points[:0]
	// Evenly by position: times mostly grow with positions, so that such a sample shows their distribution well.
	for i := step / 2; i < set.total; i += step {
		t.sampled = set.top(t.sampled, i, 1)
	}
	for _, i := range t.sampled {
		t.points = append(t.points, timePoint{c.at(i), i})
	}
	sortLast(t.points, 0, len(t.points))
	if i := skip/step - sampleMargin; i >= 0 {
		s.before = t.points[i]
	}
	if i := (skip+n)/step + sampleMargin; i < len(t.points) {
		s.from = t.points[i]
	}
	return s
}

// collect finds the points of a set in a span. It returns how many points of the set are later.
func (t *timeSearch) collect(set *bitset, s *timeSpan) (later int) {
	t.points = t.points[:0]
	rest := &timeSpan{s.column, s.before, lastPoint}
	for b, block := range set.blocks {
		if set.counts[b] == 0 {
			continue
		}
		for i, found := range block {
			if found == 0 {
				continue
			}
			word := uint32(b*bitBlockWords + i)
			later += bits.OnesCount64(found & rest.word(word))
			for found &= s.word(word); found != 0; found &= found - 1 {
				n := bits.TrailingZeros64(found)
				t.points = append(t.points, timePoint{s.column.words[word][n], 64*word + uint32(n)})
			}
		}
	}
	return later
}

// sortLast sorts points, the latest first, but only as far as needed to have the right ones at the indexes i with
// from <= i < to.
func sortLast(points []timePoint, from, to int) {
	// Quicksort that leaves parts without wanted indexes unsorted.
	for len(points) > 1 && from < len(points) && to > 0 {
		pivot, i, j := points[len(points)/2], 0, len(points)-1
		for i <= j {
			for points[i].compare(pivot) > 0 {
				i++
			}
			for points[j].compare(pivot) < 0 {
				j--
			}
			if i <= j {
				points[i], points[j] = points[j], points[i]
				i, j = i+1, j-1
			}
		}
		sortLast(points[:j+1], from, to)
		points, from, to = points[i:], from-i, to-i
	}
}

// timePoint is an instant at a position. Points are in the order of their instants, then
// of their positions.
type timePoint struct {
	at  instant
	pos uint32
}

func (p timePoint) compare(q timePoint) int {
	if p.at != q.at {
		return cmp.Compare(p.at, q.at)
	}
	return cmp.Compare(p.pos, q.pos)
}
