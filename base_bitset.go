package main

// Sets of positions in the creation sequence, the index for lists of tasks. A set has a
// count for each block of positions, so that a page far down a list is found without
// looking at everything before it.

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

// bitsetPlace returns the block of a position, the word in it and the bit in that.
func bitsetPlace(i uint32) (block, word int, bit uint64) {
	return int(i / bitBlockBits), int(i / 64 % bitBlockWords), 1 << (i % 64)
}

// intersectCount returns how many positions are in all of the sets, which are one or
// more.
func intersectCount(sets ...*bitset) int {
	if len(sets) == 1 {
		return sets[0].total
	}
	var room bitBlock
	total := 0
	for b := range bitsetReach(sets) {
		_, n := bitsetMeet(sets, b, &room)
		total += n
	}
	return total
}

// descend calls f for the positions that are in all of the sets, from the highest down
// and without the first skip, until f returns false. f must not change the sets.
// Skipping looks at one count for each block that one set alone decides, and at each
// word of others.
func descend(sets []*bitset, skip int, f func(i uint32) bool) {
	skip = max(skip, 0)
	var room bitBlock
	for b := bitsetReach(sets) - 1; b >= 0; b-- {
		block, n := bitsetMeet(sets, b, &room)
		if n <= skip {
			skip -= n
			continue
		}
		if !block.descend(uint32(b)*bitBlockBits, skip, f) {
			return
		}
		skip = 0
	}
}

// bitsetReach returns the number of blocks that all sets reach.
func bitsetReach(sets []*bitset) int {
	n := len(sets[0].blocks)
	for _, s := range sets[1:] {
		n = min(n, len(s.blocks))
	}
	return n
}

// bitsetMeet returns the positions of block b that are in all sets, and their number.
// The block is room or one of a set, and may be nil when there are none.
func bitsetMeet(sets []*bitset, b int, room *bitBlock) (*bitBlock, int) {
	if slices.ContainsFunc(sets, func(s *bitset) bool { return s.counts[b] == 0 }) {
		return nil, 0
	}
	met, n := sets[0].blocks[b], int(sets[0].counts[b])
	var next *bitBlock // waits for another: three blocks take as long as two
	for _, s := range sets[1:] {
		switch {
		case s.counts[b] == bitBlockBits: // takes nothing away
		case n == bitBlockBits:
			met, n = s.blocks[b], int(s.counts[b])
		case next == nil:
			next = s.blocks[b]
		default:
			n = room.intersect(met, next, s.blocks[b])
			met, next = room, nil
		}
	}
	if next != nil {
		n = room.intersect(met, next, next)
		met = room
	}
	return met, n
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
