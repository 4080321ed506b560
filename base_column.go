package main

// Columns of times: an instant for each position, and which positions come last.

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sort"
)

// timeColumn holds an instant for each position, and the bucket of a scale that it is in, so
// that a search looks at few of the instants, however they are spread. Zero is none. Memory:
// 8 bytes for each position of a word in which one is set, and 5.8 KiB for each block.
type timeColumn struct {
	scale  *timeScale
	blocks []*timeBlock
	ranges []blockRanges // of the blocks, together, because every search reads them
	base   *timeColumn   // has the blocks that this column lacks; may be nil
}

type timeBlock struct {
	words  [bitBlockWords]*timeWord
	planes [bitBlockWords]timePlanes
}

// blockRanges has the buckets of each word of a block.
type blockRanges struct {
	outer bucketRange // includes those of all words
	words [bitBlockWords]bucketRange
}

// timeWord has the instants of a word.
type timeWord [64]instant

// set sets the instant of a position.
func (c *timeColumn) set(i uint32, at instant) {
	b, word, _ := bitsetPlace(i)
	if b >= len(c.blocks) {
		more := b + 1 - len(c.blocks)
		c.blocks, c.ranges = append(c.blocks, make([]*timeBlock, more)...), append(c.ranges, make([]blockRanges, more)...)
	}
	if c.blocks[b] == nil {
		c.blocks[b] = c.newBlock(b)
	}
	block := c.blocks[b]
	if block.words[word] == nil {
		block.words[word] = new(timeWord)
	}
	s, n := c.scale, int(i%64)
	p, old := timePoint{at, i}, block.words[word][n]
	block.words[word][n] = at
	if top := max(s.starts[len(s.starts)-1].at, 0); old > top && at > top { // in the last bucket, as before
		s.reach(p)
		return
	}
	if old != 0 {
		s.remove(block.planes[word].bucket(n))
	}
	if at != 0 {
		block.put(&c.ranges[b], word, n, uint16(s.add(p)))
	}
}

// newBlock returns an empty block, or a copy of that of the base if there is one.
func (c *timeColumn) newBlock(b int) *timeBlock {
	block := new(timeBlock)
	if base, ranges := c.block(b); base != nil {
		*block, c.ranges[b] = *base, *ranges
	} else {
		c.ranges[b].clear()
	}
	for word, w := range block.words {
		if w == nil {
			continue
		}
		block.words[word] = new(*w)
		for n, at := range w {
			if at != 0 {
				c.scale.count(block.planes[word].bucket(n))
			}
		}
	}
	return block
}

func (r *blockRanges) clear() {
	r.outer = noBuckets
	for word := range r.words {
		r.words[word] = noBuckets
	}
}

// put notes the bucket of a position in a word of a block with these ranges.
func (b *timeBlock) put(r *blockRanges, word, n int, bucket uint16) {
	b.planes[word].put(n, int(bucket))
	w, in := &r.words[word], bucketRange{bucket, bucket}
	w.include(in)
	r.outer.include(in)
	if n < 63 {
		return
	}
	*w = in // without positions that have moved on
	for i, at := range b.words[word] {
		if at != 0 {
			k := uint16(b.planes[word].bucket(i))
			w.include(bucketRange{k, k})
		}
	}
	if word == bitBlockWords-1 {
		r.outer = *w
		for _, w := range r.words {
			r.outer.include(w)
		}
	}
}

// block returns a block, which may be of the base, and its ranges, or nil.
func (c *timeColumn) block(b int) (*timeBlock, *blockRanges) {
	switch {
	case b < len(c.blocks) && c.blocks[b] != nil:
		return c.blocks[b], &c.ranges[b]
	case c.base != nil:
		return c.base.block(b)
	}
	return nil, nil
}

// at returns the instant of a position.
func (c *timeColumn) at(i uint32) instant {
	b, word, _ := bitsetPlace(i)
	if block, _ := c.block(b); block != nil && block.words[word] != nil {
		return block.words[word][i%64]
	}
	return 0
}

// reach returns the number of blocks.
func (c *timeColumn) reach() int {
	if c.base != nil {
		return max(c.base.reach(), len(c.blocks))
	}
	return len(c.blocks)
}

// trim drops the blocks from one on, which have no instants.
func (c *timeColumn) trim(blocks int) {
	if blocks < len(c.blocks) {
		c.blocks, c.ranges = slices.Clone(c.blocks[:blocks]), slices.Clone(c.ranges[:blocks])
	}
}

// place notes the buckets of all positions of a new scale.
func (c *timeColumn) place() {
	k := 0
	for b, block := range c.blocks {
		if block == nil {
			continue
		}
		r := &c.ranges[b]
		r.clear()
		for word, w := range block.words {
			if w != nil {
				k = c.scale.place(block, &r.words[word], word, uint32(b*bitBlockBits+word*64), k)
				r.outer.include(r.words[word])
			}
		}
	}
}

// place notes the buckets of a word that begins at a position, most of them probably k, and
// their range. It returns the last one.
func (s *timeScale) place(block *timeBlock, r *bucketRange, word int, base uint32, k int) int {
	var planes timePlanes
	for n, at := range block.words[word] {
		if at == 0 {
			continue
		}
		p := timePoint{at, base + uint32(n)}
		if p.compare(s.starts[k]) < 0 || k+1 < len(s.starts) && p.compare(s.starts[k+1]) >= 0 {
			k = s.bucket(p)
		}
		s.reach(p)
		s.count(k)
		r.include(bucketRange{uint16(k), uint16(k)})
		for j := range planes {
			planes[j] |= uint64(k>>j&1) << n
		}
	}
	block.planes[word] = planes
	return k
}

// timeSpan is the positions of a column whose points are from one on, and before another.
// It may have positions without an instant, too.
type timeSpan struct {
	column       *timeColumn
	from, before timePoint
	first, last  int // their buckets; -1 and maxBuckets if there is no limit
}

// span returns the positions from a point on, and before another.
func (c *timeColumn) span(from, before timePoint) *timeSpan {
	s := &timeSpan{c, from, before, -1, maxBuckets}
	if from.at != math.MinInt64 {
		s.first = c.scale.bucket(from)
	}
	if before.at != math.MaxInt64 {
		s.last = c.scale.bucket(before)
	}
	return s
}

func (s *timeSpan) reach() int { return s.column.reach() }

func (s *timeSpan) has(i uint32) bool { return s.hasPoint(timePoint{s.column.at(i), i}) }

func (s *timeSpan) hasPoint(p timePoint) bool {
	return p.compare(s.from) >= 0 && p.compare(s.before) < 0
}

func (s *timeSpan) block(b int, room *bitBlock) (*bitBlock, int) {
	block, ranges := s.column.block(b)
	switch {
	case block == nil || ranges.outer.apart(s.first, s.last):
		return nil, 0
	case s.includes(ranges.outer):
		return everyPosition, bitBlockBits
	}
	n := 0
	for i, r := range ranges.words {
		switch {
		case r.apart(s.first, s.last):
			room[i] = 0
		case s.includes(r):
			room[i] = ^uint64(0)
			n += 64
		default:
			room[i] = s.word(block, r, i, uint32(b*bitBlockBits+i*64))
			n += bits.OnesCount64(room[i])
		}
	}
	return room, n
}

// includes reports whether the span has all positions with a bucket in a range.
func (s *timeSpan) includes(r bucketRange) bool {
	return int(r.first) > s.first && int(r.last) < s.last
}

// word returns the positions of a word, which begins at one and has buckets in a range. It looks at
// the instants in the outermost buckets.
func (s *timeSpan) word(block *timeBlock, r bucketRange, word int, base uint32) uint64 {
	below, first, under, last := uint64(0), uint64(0), ^uint64(0), uint64(0)
	if int(r.first) <= s.first {
		below, first = block.planes[word].split(s.first)
	}
	if int(r.last) >= s.last {
		under, last = block.planes[word].split(s.last)
	}
	found := under &^ (below | first)
	edge := first&(under|last) | last&^below
	for ; edge != 0; edge &= edge - 1 {
		n := bits.TrailingZeros64(edge)
		s.column.scale.looked++
		if s.hasPoint(timePoint{block.words[word][n], base + uint32(n)}) {
			found |= 1 << n
		}
	}
	return found
}

// timeSearch finds the last points of some positions. Its memory is used again.
type timeSearch struct {
	column      *timeColumn
	sizes       [maxBuckets]int32    // positions by bucket, in words of one bucket
	ends        [2][maxBuckets]int32 // positions in other words by the first and the last bucket of the word
	first, last int                  // the buckets of a page, and perhaps more
	later       int                  // positions in later buckets that were not counted
	mixed       []mixedWord          // the words of several buckets
	left        []mixedWord
	points      []timePoint
}

// mixedWord is some positions of a word.
type mixedWord struct {
	found  uint64
	planes *timePlanes
	in     bucketRange
}

// latest appends up to limit positions of a set to others, those with the last points in a
// column first, without the first skip.
func (t *timeSearch) latest(to []uint32, set *bitset, c *timeColumn, skip, limit int) []uint32 {
	limit = min(limit, set.total-skip)
	if limit <= 0 {
		return to
	}
	before := 0
	t.column, t.first, t.last = c, 0, maxBuckets-1
	if set.total > minBucket {
		t.countBlocks(set)
		t.narrow(skip, limit)
		t.countWords(set)
		t.narrow(skip, limit)
		t.settle()
		var n int
		t.last, before, n = t.bucket(skip)
		if t.first = t.last; skip+limit > before+n {
			t.first, _, _ = t.bucket(skip + limit - 1)
		}
	}
	t.collect(set)
	skip -= before
	selectLast(t.points, skip+limit)
	selectLast(t.points[:skip+limit], skip)
	page := t.points[skip : skip+limit]
	slices.SortFunc(page, func(a, b timePoint) int { return b.compare(a) })
	for _, p := range page {
		to = append(to, p.pos)
	}
	return to
}

// reset forgets what was counted.
func (t *timeSearch) reset() {
	clear(t.sizes[:])
	clear(t.ends[:])
	t.mixed, t.later = t.mixed[:0], 0
}

// count counts n positions with buckets in a range. It reports whether more must be known of them.
func (t *timeSearch) count(r bucketRange, n int) bool {
	switch {
	case int(r.last) < t.first:
	case int(r.first) > t.last:
		t.later += n
	case r.first == r.last:
		t.sizes[r.first] += int32(n)
	default:
		t.ends[0][r.first] += int32(n)
		t.ends[1][min(int(r.last), t.last)] += int32(n)
		return true
	}
	return false
}

// countBlocks counts the positions of a set as far as the ranges of blocks tell.
func (t *timeSearch) countBlocks(set *bitset) {
	t.reset()
	for b, n := range set.counts {
		if n != 0 {
			_, ranges := t.column.block(b)
			t.count(ranges.outer, int(n))
		}
	}
}

// countWords counts the positions of a set, and finds the words of several buckets.
func (t *timeSearch) countWords(set *bitset) {
	t.reset()
	for b, n := range set.counts {
		if n == 0 {
			continue
		}
		block, ranges := t.column.block(b)
		if ranges.outer.apart(t.first, t.last) {
			t.count(ranges.outer, int(n))
			continue
		}
		for word, found := range set.blocks[b] {
			r := ranges.words[word]
			if int(r.last) >= t.first && found != 0 && t.count(r, bits.OnesCount64(found)) {
				t.mixed = append(t.mixed, mixedWord{found, &block.planes[word], r})
			}
		}
	}
}

// narrow finds the buckets that the points of a page may have.
func (t *timeSearch) narrow(skip, limit int) {
	first, last, least, most := t.last+1, -1, t.later, t.later // least and most points in later buckets
	for first > t.first && least < skip+limit {
		first--
		least += int(t.sizes[first] + t.ends[0][first])
		if most += int(t.sizes[first] + t.ends[1][first]); last < 0 && most > skip {
			last = first
		}
	}
	t.first, t.last = first, last
}

// settle counts mixed words as of one bucket if all of their points are before or after a page.
func (t *timeSearch) settle() {
	t.mixed = slices.DeleteFunc(t.mixed, func(w mixedWord) bool {
		k := w.in.first
		if int(w.in.last) < t.first {
			k = w.in.last
		} else if int(k) <= t.last {
			return false
		}
		t.sizes[k] += int32(bits.OnesCount64(w.found))
		return true
	})
}

// bucket returns the bucket of the point after so many of the last ones, how many points
// are in later buckets, and how many in this one.
func (t *timeSearch) bucket(skip int) (bucket, before, n int) {
	left := append(t.left[:0], t.mixed...)
	before = t.later
	plane, flip := bucketBits, uint64(0) // of the bit found before
	for j := bucketBits - 1; j >= 0; j-- {
		upper, kept := bucket|1<<j, left[:0]
		n = 0
		for _, k := range t.sizes[upper : upper+1<<j] {
			n += int(k)
		}
		for _, w := range left {
			if plane < bucketBits {
				w.found &= w.planes[plane] ^ flip
			}
			if w.found != 0 {
				kept = append(kept, w)
				n += bits.OnesCount64(w.found & w.planes[j])
			}
		}
		left, plane = kept, j
		if flip = 0; skip < before+n {
			bucket = upper
		} else {
			before += n
			flip = ^flip
		}
	}
	t.left, n = left, int(t.sizes[bucket])
	for _, w := range left {
		n += bits.OnesCount64(w.found & (w.planes[0] ^ flip))
	}
	return bucket, before, n
}

// collect finds the points of a set in the buckets of a page.
func (t *timeSearch) collect(set *bitset) {
	t.points = t.points[:0]
	for b, n := range set.counts {
		if n == 0 {
			continue
		}
		block, ranges := t.column.block(b)
		if ranges.outer.apart(t.first, t.last) {
			continue
		}
		for word, found := range set.blocks[b] {
			r := ranges.words[word]
			if found == 0 || r.apart(t.first, t.last) {
				continue
			}
			if int(r.first) < t.first || int(r.last) > t.last {
				found &= block.planes[word].between(t.first, t.last)
			}
			t.addWord(block.words[word], found, uint32(b*bitBlockBits+word*64))
		}
	}
	t.column.scale.looked += len(t.points)
}

// addWord collects the points of those positions of a word that were found.
func (t *timeSearch) addWord(w *timeWord, found uint64, base uint32) {
	for ; found != 0; found &= found - 1 {
		n := bits.TrailingZeros64(found)
		t.points = append(t.points, timePoint{w[n], base + uint32(n)})
	}
}

// selectLast moves the last n points to the front, in any order.
func selectLast(points []timePoint, n int) {
	for from, to := 0, len(points); from < n && n < to; {
		pivot, i, j := points[(from+to)/2], from, to-1
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
		switch {
		case n <= j:
			to = j + 1
		case n > i:
			from = i
		default:
			return
		}
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

const (
	bucketBits = 10
	maxBuckets = 1 << bucketBits
	minBucket  = 256 // points that a bucket may always have
)

// timeScale divides all points into buckets of similar size.
type timeScale struct {
	starts  []timePoint // the first point that each bucket may have, ascending
	sizes   [maxBuckets]int32
	points  int
	last    timePoint // no point is after it
	largest int32     // the size that a bucket had
	looked  int       // instants that searches looked at
}

func newTimeScale() *timeScale { return &timeScale{starts: []timePoint{{math.MinInt64, 0}}} }

// fair is the size that a bucket should have.
func (s *timeScale) fair() int { return max(minBucket, 2*s.points/maxBuckets) }

// bucket returns the bucket of a point.
func (s *timeScale) bucket(p timePoint) int {
	top := len(s.starts) - 1
	if p.compare(s.starts[top]) >= 0 {
		return top
	}
	return sort.Search(top, func(k int) bool { return p.compare(s.starts[k+1]) < 0 })
}

// add counts a new point, and returns its bucket. A point after all others may begin one.
func (s *timeScale) add(p timePoint) int {
	k := s.bucket(p)
	if s.reach(p) && len(s.starts) < maxBuckets && int(s.sizes[k]) >= s.fair() {
		s.starts = append(s.starts, p)
		k++
	}
	s.count(k)
	return k
}

// reach notes a point. It reports whether the point is after all others.
func (s *timeScale) reach(p timePoint) bool {
	later := p.compare(s.last) > 0
	if later {
		s.last = p
	}
	return later
}

func (s *timeScale) count(k int) {
	s.points++
	s.sizes[k]++
	s.largest = max(s.largest, s.sizes[k])
}

func (s *timeScale) remove(k int) {
	s.points--
	s.sizes[k]--
}

// balance makes new buckets for the points of some columns, if one has become too large:
// after a start, when the clock was set back, or once there are no more buckets. It looks at
// every point then, but many were added since.
func (s *timeScale) balance(columns ...*timeColumn) {
	if int(s.largest) <= 4*s.fair() {
		return
	}
	points := s.sample(columns)
	buckets := min(s.points/minBucket, maxBuckets/2)
	*s = *newTimeScale()
	for k := 1; k < buckets; k++ {
		s.begin(points[k*len(points)/buckets])
	}
	for n := len(points) / max(buckets, 1) / 2; n > 0; n /= 2 { // smaller and smaller, because the last are listed most
		s.begin(points[len(points)-n])
	}
	for _, c := range columns {
		c.place()
	}
}

// begin begins a bucket with a point unless one does.
func (s *timeScale) begin(p timePoint) {
	if p != s.starts[len(s.starts)-1] {
		s.starts = append(s.starts, p)
	}
}

// sample returns some of the points in order.
func (s *timeScale) sample(columns []*timeColumn) (points []timePoint) {
	step := s.points>>14 | 1
	for _, c := range columns {
		for i := 0; i < len(c.blocks)*bitBlockBits; i += step {
			b, word, _ := bitsetPlace(uint32(i))
			if block := c.blocks[b]; block != nil && block.words[word] != nil && block.words[word][i%64] != 0 {
				points = append(points, timePoint{block.words[word][i%64], uint32(i)})
			}
		}
	}
	slices.SortFunc(points, timePoint.compare)
	return points
}

// bucketRange includes the buckets of a word, and perhaps more.
type bucketRange struct{ first, last uint16 }

var noBuckets = bucketRange{first: maxBuckets}

func (r *bucketRange) include(o bucketRange) {
	r.first, r.last = min(r.first, o.first), max(r.last, o.last)
}

// apart reports whether the range and the buckets from one to another have none in common.
func (r bucketRange) apart(first, last int) bool { return int(r.last) < first || int(r.first) > last }

// timePlanes has the buckets of a word, each of their bits for all positions.
type timePlanes [bucketBits]uint64

func (p *timePlanes) put(n, bucket int) {
	for j := range p {
		p[j] = p[j]&^(1<<n) | uint64(bucket>>j&1)<<n
	}
}

// bucket returns the bucket of a position.
func (p *timePlanes) bucket(n int) (bucket int) {
	for j := range p {
		bucket |= int(p[j]>>n&1) << j
	}
	return bucket
}

// split returns the positions in buckets below one, and those in it.
func (p *timePlanes) split(bucket int) (below, in uint64) {
	switch {
	case bucket < 0:
		return 0, 0
	case bucket >= maxBuckets:
		return ^uint64(0), 0
	}
	in = ^uint64(0)
	for j := bucketBits - 1; j >= 0; j-- {
		bit := -uint64(bucket >> j & 1)
		below |= in & bit &^ p[j]
		in &^= p[j] ^ bit
	}
	return below, in
}

// between returns the positions in some buckets.
func (p *timePlanes) between(first, last int) uint64 {
	below, _ := p.split(first)
	under, in := p.split(last)
	return (under | in) &^ below
}
