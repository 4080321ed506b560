package main

// Sets of positions in the creation sequence, the index for lists of tasks. A set has a count
// for each block of positions, so that a page far down a list is found without looking at
// everything before it.

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
		if s.spare == nil {
			s.spare = new(bitBlock)
		}
		s.blocks[b], s.spare = s.spare, nil
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
		// Its words are all 0 now, so set can use it as it is.
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
	// A set that was large once must not hold its memory for ever, nor be copied each time it shrinks a little.
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
			// As long as one set alone has positions here, its own block is returned without a copy.
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
	// The parts do not overlap, so equal counts mean that they cover the whole block: nothing must be united.
	if whole, k := p.whole.block(b, nil); n == 0 || n == k {
		return whole, n
	}
	return p.bitUnion.block(b, room)
}

// bitSpans is a set of positions in some ranges, ascending and apart from each other.
type bitSpans []bitSpan

// bitSpan is the positions i with from <= i < to.
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

// fill adds the positions i with from <= i < to.
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
		// Some more than needed, since the sequence of tasks grows and the next intersection reaches further.
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
			// A room is overwritten when this set gives its next block, but the result must last until the next
			// intersection.
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

// intersect sets r to the intersection of x, y and z, and returns its size. r may be one of the three. Taking four
// words at a time halves the time.
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
// that are nearly unique, or a bitset. A position must not be inserted twice.
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
		i, _ := slices.BinarySearch(p.few, pos)
		p.few = slices.Insert(p.few, i, pos)
		return
	}
	if p.many == nil {
		// The list is not kept beside it: only one of the two holds the positions.
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

// top appends up to limit positions, the highest first.
func (p *positions) top(to []uint32, limit int) []uint32 {
	if p.many != nil {
		return p.many.top(to, 0, limit)
	}
	for _, pos := range slices.Backward(p.few[max(len(p.few)-limit, 0):]) {
		to = append(to, pos)
	}
	return to
}

// bits returns the set as a bitset.
func (p *positions) bits() *bitset {
	if p.many != nil {
		return p.many
	}
	return bitsetOf(p.few...)
}
