package main

// Sets of positions in the creation sequence, the index for lists of tasks, and times by
// position. A set has a count for each block of positions, so that a page far down a list
// is found without looking at everything before it.

import (
	"math/bits"
	"slices"
)

const (
	bitBlockWords = 64
	bitBlockBits  = 64 * bitBlockWords // positions in a block
)

// bitset is a set of positions. The zero value is empty. Memory: 10 bytes for
// each 4096 positions up to the highest one ever set, and 512 bytes where at
// least one of those is set. Readers may share it; a writer must be alone.
type bitset struct {
	blocks []*bitBlock // nil where nothing is set
	counts []uint16    // positions set in each block
	total  int         // sum of counts
	spare  *bitBlock   // an empty block for reuse, so that a mostly empty set makes no garbage
}

// bitBlock holds the positions of one block, the lowest in the lowest bit.
type bitBlock [bitBlockWords]uint64

// set adds position i.
func (s *bitset) set(i uint32) {
	b, word, bit := bitsetPlace(i)
	if b >= len(s.blocks) {
		s.grow(b + 1)
	}
	if s.blocks[b] == nil {
		s.blocks[b] = s.emptyBlock()
	}
	if s.blocks[b][word]&bit == 0 {
		s.blocks[b][word] |= bit
		s.counts[b]++
		s.total++
	}
}

// clear removes position i.
func (s *bitset) clear(i uint32) {
	if !s.has(i) {
		return
	}
	b, word, bit := bitsetPlace(i)
	s.blocks[b][word] &^= bit
	s.total--
	if s.counts[b]--; s.counts[b] == 0 {
		s.spare, s.blocks[b] = s.blocks[b], nil
	}
}

// relocate replaces position from by position to.
func (s *bitset) relocate(from, to uint32) {
	s.set(to)
	s.clear(from)
	if b, _, _ := bitsetPlace(from); b == len(s.blocks)-1 && s.counts[b] == 0 {
		s.trim()
	}
}

// trim drops the blocks above the highest position.
func (s *bitset) trim() {
	n := len(s.counts)
	for n > 0 && s.counts[n-1] == 0 {
		n--
	}
	s.blocks, s.counts = s.blocks[:n], s.counts[:n]
	if cap(s.blocks) > 4*n+64 {
		s.blocks, s.counts = slices.Clone(s.blocks), slices.Clone(s.counts)
	}
}

// has reports whether position i is in the set.
func (s *bitset) has(i uint32) bool {
	b, word, bit := bitsetPlace(i)
	return b < len(s.blocks) && s.blocks[b] != nil && s.blocks[b][word]&bit != 0
}

// next returns the lowest position in the set from i on. It looks at one count for each
// block in between.
func (s *bitset) next(i uint32) (uint32, bool) {
	b, word, bit := bitsetPlace(i)
	mask := -bit // excludes what is below i in the first word
	for ; b < len(s.blocks); b, word, mask = b+1, 0, ^uint64(0) {
		if s.counts[b] == 0 {
			continue
		}
		for ; word < bitBlockWords; word, mask = word+1, ^uint64(0) {
			if w := s.blocks[b][word] & mask; w != 0 {
				return uint32(b*bitBlockBits + 64*word + bits.TrailingZeros64(w)), true
			}
		}
	}
	return 0, false
}

// count returns the number of positions in the set.
func (s *bitset) count() int { return s.total }

func (s *bitset) grow(n int) {
	s.blocks = append(s.blocks, make([]*bitBlock, n-len(s.blocks))...)
	s.counts = append(s.counts, make([]uint16, n-len(s.counts))...)
}

func (s *bitset) emptyBlock() *bitBlock {
	b := s.spare
	if b == nil {
		return new(bitBlock)
	}
	s.spare = nil
	return b
}

// bitsetOf returns the set of the given positions.
func bitsetOf(positions ...uint32) *bitset {
	s := new(bitset)
	for _, i := range positions {
		s.set(i)
	}
	return s
}

// bitsetPlace returns the block of a position, the word in it and the bit in that.
func bitsetPlace(i uint32) (block, word int, bit uint64) {
	return int(i / bitBlockBits), int(i / 64 % bitBlockWords), 1 << (i % 64)
}

// reach returns the number of blocks up to the highest position.
func (s *bitset) reach() int { return len(s.blocks) }

func (s *bitset) block(b int, _ *bitBlock) (*bitBlock, int) {
	if b >= len(s.blocks) {
		return nil, 0
	}
	return s.blocks[b], int(s.counts[b])
}

// positionSet is a set of positions that is looked at block by block.
type positionSet interface {
	reach() int
	// block returns the positions of a block and their number; any block if there are
	// none. The block is room or belongs to the set.
	block(b int, room *bitBlock) (*bitBlock, int)
	has(i uint32) bool
}

// bitUnion is the union of sets.
type bitUnion []*bitset

func (u bitUnion) reach() (n int) {
	for _, s := range u {
		n = max(n, s.reach())
	}
	return n
}

func (u bitUnion) has(i uint32) bool {
	return slices.ContainsFunc(u, func(s *bitset) bool { return s.has(i) })
}

// next returns the lowest position in the union from i on.
func (u bitUnion) next(i uint32) (lowest uint32, ok bool) {
	for _, s := range u {
		if pos, has := s.next(i); has && (!ok || pos < lowest) {
			lowest, ok = pos, true
		}
	}
	return lowest, ok
}

func (u bitUnion) block(b int, room *bitBlock) (union *bitBlock, n int) {
	for _, s := range u {
		block, k := s.block(b, nil)
		switch {
		case k == 0:
		case k == bitBlockBits:
			return block, k
		case n == 0:
			union, n = block, k
		default:
			n = room.unite(union, block)
			union = room
		}
	}
	return union, n
}

// unite sets r to the union of x, which it may be, and y, and returns its size.
func (r *bitBlock) unite(x, y *bitBlock) (n int) {
	for i := range r {
		r[i] = x[i] | y[i]
		n += bits.OnesCount64(r[i])
	}
	return n
}

// bitParts is the union of sets without common positions, which are parts of a whole.
type bitParts struct {
	whole *bitset
	bitUnion
}

func (p bitParts) block(b int, room *bitBlock) (*bitBlock, int) {
	n := 0
	for _, s := range p.bitUnion {
		_, k := s.block(b, nil)
		n += k
	}
	if whole, k := p.whole.block(b, nil); n == 0 || n == k {
		return whole, n
	}
	return p.bitUnion.block(b, room)
}

// bitSpans is a set of positions in some ranges, ascending and apart from each other.
type bitSpans []bitSpan

// bitSpan is the positions from one on, up to another.
type bitSpan struct{ from, to uint32 }

func (u bitSpans) reach() int {
	if len(u) == 0 {
		return 0
	}
	return int((uint64(u[len(u)-1].to) + bitBlockBits - 1) / bitBlockBits)
}

func (u bitSpans) has(i uint32) bool {
	return slices.ContainsFunc(u, func(s bitSpan) bool { return s.from <= i && i < s.to })
}

// everyPosition is a block that holds each of its positions.
var everyPosition = func() *bitBlock {
	b := new(bitBlock)
	b.fill(0, bitBlockBits)
	return b
}()

func (u bitSpans) block(b int, room *bitBlock) (*bitBlock, int) {
	base, n := uint64(b)*bitBlockBits, 0
	for _, s := range u {
		from, to := max(uint64(s.from), base), min(uint64(s.to), base+bitBlockBits)
		switch {
		case from >= to:
			continue
		case to-from == bitBlockBits:
			return everyPosition, bitBlockBits
		case n == 0:
			*room = bitBlock{}
		}
		room.fill(int(from-base), int(to-base))
		n += int(to - from)
	}
	return room, n
}

// fill adds the positions from one on, up to another.
func (r *bitBlock) fill(from, to int) {
	for i := from; i < to; i = (i/64 + 1) * 64 {
		word := ^uint64(0) << (i % 64)
		if end := i/64*64 + 64; to < end {
			word &= ^uint64(0) >> (end - to)
		}
		r[i/64] |= word
	}
}

// bitMeet computes intersections of sets, block by block, in memory that it uses again. A
// result is valid until the next one is computed or a set changes.
type bitMeet struct {
	met   bitset     // blocks that have all positions of one of the sets belong to this set
	room  []bitBlock // for each other block
	rooms []bitBlock // one for each set
}

// of returns the intersection of one or more sets.
func (m *bitMeet) of(sets ...positionSet) *bitset {
	if s, ok := sets[0].(*bitset); ok && len(sets) == 1 {
		return s
	}
	reach := sets[0].reach()
	for _, s := range sets[1:] {
		reach = min(reach, s.reach())
	}
	if len(m.room) < reach {
		m.room = make([]bitBlock, reach+reach/4)
	}
	if len(m.rooms) < len(sets) {
		m.rooms = make([]bitBlock, len(sets))
	}
	met := &m.met
	met.blocks, met.counts, met.total = met.blocks[:0], met.counts[:0], 0
	for b := range reach {
		block, n := m.block(b, sets)
		met.blocks, met.counts = append(met.blocks, block), append(met.counts, uint16(n))
		met.total += n
	}
	return met
}

// block returns the positions of a block that are in all sets, and their number. The
// block is nil when there are none.
func (m *bitMeet) block(b int, sets []positionSet) (*bitBlock, int) {
	met, n := everyPosition, bitBlockBits
	var next *bitBlock // waits for another: three blocks take as long as two
	for i, s := range sets {
		block, k := s.block(b, &m.rooms[i])
		switch {
		case k == 0:
			return nil, 0
		case k == bitBlockBits: // takes nothing away
		case n == bitBlockBits:
			met, n = block, k
		case next == nil:
			next = block
		default:
			if n = m.room[b].intersect(met, next, block); n == 0 {
				return nil, 0
			}
			met, next = &m.room[b], nil
		}
		if met == &m.rooms[i] {
			m.room[b] = *met
			met = &m.room[b]
		}
	}
	if next != nil {
		if n = m.room[b].intersect(met, next, next); n == 0 {
			return nil, 0
		}
		met = &m.room[b]
	}
	return met, n
}

// descend calls f for the positions from the highest down and without the first skip,
// until f returns false. f must not change the set. Skipping looks at one count for each
// block.
func (s *bitset) descend(skip int, f func(i uint32) bool) {
	skip = max(skip, 0)
	for b := len(s.counts) - 1; b >= 0; b-- {
		if n := int(s.counts[b]); n <= skip {
			skip -= n
			continue
		}
		if !s.blocks[b].descend(uint32(b)*bitBlockBits, skip, f) {
			return
		}
		skip = 0
	}
}

// intersect sets r to the intersection of x, y and z, of which r may be one, and
// returns its size. Four words at a time take half as long as one by one.
func (r *bitBlock) intersect(x, y, z *bitBlock) int {
	n := 0
	for i := 0; i < bitBlockWords; i += 4 {
		w0 := x[i] & y[i] & z[i]
		w1 := x[i+1] & y[i+1] & z[i+1]
		w2 := x[i+2] & y[i+2] & z[i+2]
		w3 := x[i+3] & y[i+3] & z[i+3]
		r[i], r[i+1], r[i+2], r[i+3] = w0, w1, w2, w3
		n += bits.OnesCount64(w0) + bits.OnesCount64(w1) + bits.OnesCount64(w2) + bits.OnesCount64(w3)
	}
	return n
}

// top appends up to limit positions, the highest first, without the first skip.
func (s *bitset) top(to []uint32, skip, limit int) []uint32 {
	limit = min(limit, s.total-skip)
	if limit <= 0 {
		return to
	}
	want := len(to) + limit
	to = slices.Grow(to, limit)
	s.descend(skip, func(i uint32) bool {
		to = append(to, i)
		return len(to) < want
	})
	return to
}

// descend calls f for the positions of a block that begins at base, from the highest
// down and without the first skip, until f returns false. It reports whether f never
// did.
func (r *bitBlock) descend(base uint32, skip int, f func(i uint32) bool) bool {
	for i := bitBlockWords - 1; i >= 0; i-- {
		w := r[i]
		if n := bits.OnesCount64(w); n <= skip {
			skip -= n
			continue
		}
		for ; w != 0; skip-- {
			top := bits.Len64(w) - 1
			w &^= 1 << top
			if skip <= 0 && !f(base+uint32(64*i+top)) {
				return false
			}
		}
		skip = 0
	}
	return true
}

// positionIndex finds the positions that have a value.
type positionIndex map[string]*positions

// positions is a growing set of positions: a short list, which suits values
// that are nearly unique, or a bitset.
type positions struct {
	few  []uint32 // ascending; used while many is nil
	many *bitset
}

// maxFew is the most positions of a list.
const maxFew = 64

func (x positionIndex) get(key string) *positions {
	p := x[key]
	if p == nil {
		p = &positions{}
		x[key] = p
	}
	return p
}

func (p *positions) insert(pos uint32) {
	if p.many == nil && len(p.few) < maxFew {
		p.few = append(p.few, pos)
		return
	}
	if p.many == nil {
		p.many = &bitset{}
		for _, old := range p.few {
			p.many.set(old)
		}
		p.few = nil
	}
	p.many.set(pos)
}

func (p *positions) remove(pos uint32) {
	if p.many != nil {
		p.many.clear(pos)
		return
	}
	if i, ok := slices.BinarySearch(p.few, pos); ok {
		p.few = slices.Delete(p.few, i, i+1)
	}
}

func (p *positions) relocate(from, to uint32) {
	if p.many != nil {
		p.many.relocate(from, to)
		return
	}
	if i, ok := slices.BinarySearch(p.few, from); ok {
		p.few[i] = to
	}
}

func (p *positions) empty() bool { return len(p.few) == 0 && (p.many == nil || p.many.count() == 0) }

func (p *positions) has(pos uint32) bool {
	if p.many != nil {
		return p.many.has(pos)
	}
	_, ok := slices.BinarySearch(p.few, pos)
	return ok
}

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
