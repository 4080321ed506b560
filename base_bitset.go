package main

// Sets of positions in the creation sequence, the index for lists of tasks, and times by
// position. A set has a count for each block of positions, so that a page far down a list
// is found without looking at everything before it.

import (
	"cmp"
	"math"
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

// bitMeet is the intersection of one or more sets, with the number of its positions in
// each block. It is valid until a set changes.
type bitMeet struct {
	sets   []positionSet
	counts []uint16
	total  int // sum of counts
	met    bitBlock
	rooms  []bitBlock // one for each set; nil if none needs one
}

func newBitMeet(sets ...positionSet) *bitMeet {
	m := &bitMeet{sets: sets}
	if s, ok := sets[0].(*bitset); ok && len(sets) == 1 {
		m.counts, m.total = s.counts, s.total
		return m
	}
	reach := sets[0].reach()
	for _, s := range sets[1:] {
		reach = min(reach, s.reach())
	}
	if slices.ContainsFunc(sets, func(s positionSet) bool { _, plain := s.(*bitset); return !plain }) {
		m.rooms = make([]bitBlock, len(sets))
	}
	m.counts = make([]uint16, reach)
	for b := range m.counts {
		_, n := m.block(b)
		m.counts[b] = uint16(n)
		m.total += n
	}
	return m
}

// block returns the positions of a block that are in all sets, and their number. The
// block may be nil when there are none.
func (m *bitMeet) block(b int) (*bitBlock, int) {
	met, n := everyPosition, bitBlockBits
	var next *bitBlock // waits for another: three blocks take as long as two
	for i, s := range m.sets {
		var room *bitBlock
		if m.rooms != nil {
			room = &m.rooms[i]
		}
		block, k := s.block(b, room)
		switch {
		case k == 0:
			return nil, 0
		case k == bitBlockBits: // takes nothing away
		case n == bitBlockBits:
			met, n = block, k
		case next == nil:
			next = block
		default:
			if n = m.met.intersect(met, next, block); n == 0 {
				return nil, 0
			}
			met, next = &m.met, nil
		}
	}
	if next != nil {
		n = m.met.intersect(met, next, next)
		met = &m.met
	}
	return met, n
}

// descend calls f for the positions from the highest down and without the first skip,
// until f returns false. f must not change the sets. Skipping looks at one count for each
// block.
func (m *bitMeet) descend(skip int, f func(i uint32) bool) {
	skip = max(skip, 0)
	for b := len(m.counts) - 1; b >= 0; b-- {
		if n := int(m.counts[b]); n <= skip {
			skip -= n
			continue
		}
		block, _ := m.block(b)
		if !block.descend(uint32(b)*bitBlockBits, skip, f) {
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
func (m *bitMeet) top(to []uint32, skip, limit int) []uint32 {
	limit = min(limit, m.total-skip)
	if limit <= 0 {
		return to
	}
	want := len(to) + limit
	to = slices.Grow(to, limit)
	m.descend(skip, func(i uint32) bool {
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

// timeColumn holds an instant for each position, and the range of those of each word and
// block, so that a search looks at few of them if neighbours have similar ones. Zero is
// none. Memory: 8 bytes for each position of a word in which one is set, and 1.5 KiB for
// each block.
type timeColumn struct {
	blocks []*timeBlock
	base   *timeColumn // holds the instants of words that this column lacks; may be nil
}

type timeBlock struct {
	timeRange
	words [bitBlockWords]*timeWord
}

type timeWord struct {
	timeRange
	at [64]instant
}

// timeRange is the least and the greatest of some instants; zero without any.
type timeRange struct{ first, last instant }

// extend makes the range include another.
func (r *timeRange) extend(by timeRange) {
	if by.first != 0 && (r.first == 0 || by.first < r.first) {
		r.first = by.first
	}
	r.last = max(r.last, by.last)
}

// at returns the instant of a position.
func (c *timeColumn) at(i uint32) instant {
	b, word, _ := bitsetPlace(i)
	if w := c.word(b, word); w != nil {
		return w.at[i%64]
	}
	return 0
}

// word returns a word, of the base if the column lacks it.
func (c *timeColumn) word(b, word int) *timeWord {
	if b < len(c.blocks) && c.blocks[b] != nil && c.blocks[b].words[word] != nil {
		return c.blocks[b].words[word]
	}
	if c.base == nil {
		return nil
	}
	return c.base.word(b, word)
}

// zone returns a range that has all instants of a block, and perhaps more.
func (c *timeColumn) zone(b int) (r timeRange) {
	if c.base != nil {
		r = c.base.zone(b)
	}
	if b < len(c.blocks) && c.blocks[b] != nil {
		r.extend(c.blocks[b].timeRange)
	}
	return r
}

// set sets the instant of a position.
func (c *timeColumn) set(i uint32, at instant) {
	b, word, _ := bitsetPlace(i)
	if b >= len(c.blocks) {
		c.blocks = append(c.blocks, make([]*timeBlock, b+1-len(c.blocks))...)
	}
	if c.blocks[b] == nil {
		c.blocks[b] = new(timeBlock)
	}
	block := c.blocks[b]
	if block.words[word] == nil {
		block.words[word] = c.newWord(b, word)
	}
	w := block.words[word]
	old, was := w.at[i%64], w.timeRange
	w.at[i%64] = at
	if w.timeRange.changed(old, at) {
		w.timeRange = timeRange{}
		for _, at := range w.at {
			w.extend(timeRange{at, at})
		}
	}
	if block.changed(was.first, w.first) || block.changed(was.last, w.last) {
		block.timeRange = timeRange{}
		for _, w := range block.words {
			if w != nil {
				block.extend(w.timeRange)
			}
		}
	}
}

// newWord returns a copy of the word of the base, if there is one.
func (c *timeColumn) newWord(b, word int) *timeWord {
	w := new(timeWord)
	if c.base != nil {
		if base := c.base.word(b, word); base != nil {
			*w = *base
		}
	}
	return w
}

// changed extends the range by an instant that replaces another. It reports true if the
// other may have been the only one at an end of the range.
func (r *timeRange) changed(old, at instant) bool {
	if old != 0 && old != at && (old == r.first || old == r.last && at < old) {
		return true
	}
	r.extend(timeRange{at, at})
	return false
}

// trim drops the blocks from one on.
func (c *timeColumn) trim(blocks int) {
	if blocks < len(c.blocks) {
		c.blocks = slices.Clone(c.blocks[:blocks])
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

// timeSpan is the positions of a column whose points are from one on, and before another.
// It may have positions without an instant, too.
type timeSpan struct {
	column       *timeColumn
	from, before timePoint
}

func (s *timeSpan) reach() int {
	if base := s.column.base; base != nil {
		return max(len(base.blocks), len(s.column.blocks))
	}
	return len(s.column.blocks)
}

func (s *timeSpan) has(i uint32) bool {
	p := timePoint{s.column.at(i), i}
	return p.compare(s.from) >= 0 && p.compare(s.before) < 0
}

// covers reports whether the span has all points of a range, or none.
func (s *timeSpan) covers(r timeRange) (all, none bool) {
	return r.first > s.from.at && r.last < s.before.at, r.last < s.from.at || r.first > s.before.at
}

func (s *timeSpan) block(b int, room *bitBlock) (*bitBlock, int) {
	if all, none := s.covers(s.column.zone(b)); none {
		return nil, 0
	} else if all {
		return everyPosition, bitBlockBits
	}
	n := 0
	for i := range room {
		room[i] = s.word(b, i)
		n += bits.OnesCount64(room[i])
	}
	return room, n
}

// word returns the positions of a word.
func (s *timeSpan) word(b, word int) (found uint64) {
	w := s.column.word(b, word)
	if w == nil {
		return 0
	}
	if all, none := s.covers(w.timeRange); none {
		return 0
	} else if all {
		return ^uint64(0)
	}
	base := uint32(b*bitBlockBits + word*64)
	for i, at := range w.at {
		switch p := (timePoint{at, base + uint32(i)}); {
		case at < s.from.at || at > s.before.at:
		case at > s.from.at && at < s.before.at, p.compare(s.from) >= 0 && p.compare(s.before) < 0:
			found |= 1 << i
		}
	}
	return found
}

// latest appends up to limit positions, those with the last points first, without the
// first skip. All instants are in a range. It looks at the points of the words whose ranges
// do not decide.
func (m *bitMeet) latest(to []uint32, c *timeColumn, in timeRange, skip, limit int) []uint32 {
	limit = min(limit, m.total-skip)
	if limit <= 0 {
		return to
	}
	l := latestPoints{column: c, skip: skip, limit: limit}
	if rest := m.total - skip - limit; rest < skip {
		l.skip, l.mirrored = rest, true
	}
	zones := l.zones(m, in)
	l.between(zones)
	for _, z := range zones {
		if z.first > l.most {
			l.skip -= z.n
		}
	}
	for _, z := range zones {
		if z.first <= l.most && z.last >= l.least {
			block, _ := m.block(z.block)
			l.add(z.block, block)
		}
	}
	l.keep()
	selectLast(l.points, l.skip)
	return l.appendTo(to)
}

// timeZone is the range of the instants of a block, and how many of its positions count.
type timeZone struct {
	timeRange
	block, n int
}

// compare puts the zone first that reaches furthest, and then begins last.
func (z timeZone) compare(y timeZone) int {
	if z.last != y.last {
		return cmp.Compare(y.last, z.last)
	}
	return cmp.Compare(y.first, z.first)
}

// latestPoints collects the last points of a column; mirrored, it collects the first ones, in
// a time that runs backwards.
type latestPoints struct {
	column      *timeColumn
	mirrored    bool
	skip, limit int     // the points wanted are these of what was not looked at yet and points
	least, most instant // of the points wanted
	points      []timePoint
}

// mirror returns a range as the collector sees it.
func (l *latestPoints) mirror(r timeRange) timeRange {
	if l.mirrored {
		return timeRange{-r.last, -r.first}
	}
	return r
}

// zones returns the ranges of the blocks that have positions, in order.
func (l *latestPoints) zones(m *bitMeet, in timeRange) (all []timeZone) {
	for b, n := range m.counts {
		if n > 0 {
			r := l.column.zone(b)
			r = timeRange{max(r.first, in.first), min(r.last, in.last)}
			all = append(all, timeZone{l.mirror(r), b, int(n)})
		}
	}
	slices.SortFunc(all, timeZone.compare)
	return all
}

// between finds the least and the most that the instants wanted can be.
func (l *latestPoints) between(zones []timeZone) {
	sum := 0 // positions that may have later instants
	for _, z := range zones {
		if sum > l.skip {
			break
		}
		l.most = z.last
		sum += z.n
	}
	if l.least = math.MinInt64; l.skip == 0 {
		return // keep soon raises it
	}
	sum = 0 // positions that have none earlier
	for _, z := range slices.SortedFunc(slices.Values(zones),
		func(a, b timeZone) int { return cmp.Compare(b.first, a.first) }) {
		l.least = z.first
		if sum += z.n; sum >= l.skip+l.limit {
			break
		}
	}
}

// add collects the points of a block.
func (l *latestPoints) add(b int, block *bitBlock) {
	for i := range block {
		if !l.mirrored {
			i = bitBlockWords - 1 - i
		}
		found := block[i]
		if found == 0 {
			continue
		}
		w := l.column.word(b, i)
		switch r := l.mirror(w.timeRange); {
		case r.last < l.least:
			continue
		case r.first > l.most:
			l.skip -= bits.OnesCount64(found)
			continue
		}
		l.addWord(w, found, uint32(b*bitBlockBits+i*64))
		if len(l.points) > 2*(l.skip+l.limit)+256 {
			l.keep()
		}
	}
}

// addWord collects those points of a word that begins at a position that were found.
func (l *latestPoints) addWord(w *timeWord, found uint64, base uint32) {
	for ; found != 0; found &= found - 1 {
		n := bits.TrailingZeros64(found)
		p := timePoint{w.at[n], base + uint32(n)}
		if l.mirrored {
			p = timePoint{-p.at, ^p.pos}
		}
		if p.at > l.most {
			l.skip--
		} else if p.at >= l.least {
			l.points = append(l.points, p)
		}
	}
}

// appendTo appends the positions of the points after the first skip, the last in time first.
func (l *latestPoints) appendTo(to []uint32) []uint32 {
	page := l.points[l.skip:]
	slices.SortFunc(page, func(a, b timePoint) int { return b.compare(a) })
	if !l.mirrored {
		for _, p := range page {
			to = append(to, p.pos)
		}
		return to
	}
	for _, p := range slices.Backward(page) {
		to = append(to, ^p.pos)
	}
	return to
}

// keep drops the points that are too early.
func (l *latestPoints) keep() {
	want := l.skip + l.limit
	if len(l.points) <= want {
		return
	}
	selectLast(l.points, want)
	l.points = l.points[:want]
	l.least = slices.MinFunc(l.points, timePoint.compare).at
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
