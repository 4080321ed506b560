package main

// Sets of positions, compared with maps, and benchmarks of pages of a list.

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// bitsetOfEvery returns the set of the multiples of n below limit.
func bitsetOfEvery(n, limit uint32) *bitset {
	s := new(bitset)
	for i := uint32(0); i < limit; i += n {
		s.set(i)
	}
	return s
}

// meetOf returns the intersection of sets.
func meetOf(sets ...*bitset) *bitset {
	all := make([]positionSet, len(sets))
	for i, s := range sets {
		all[i] = s
	}
	return new(bitMeet).of(all...)
}

// bitsetPage returns up to size positions that are in all sets, after the first skip.
func bitsetPage(sets []*bitset, skip, size int) []uint32 {
	return meetOf(sets...).top(nil, skip, size)
}

func TestBitsetSetAndClear(t *testing.T) {
	s := new(bitset)
	edges := []uint32{0, 63, 64, bitBlockBits - 1, bitBlockBits, 999_999}
	for n, i := range edges {
		if s.has(i) {
			t.Errorf("got %d in the set; want it absent", i)
		}
		s.clear(i)
		s.set(i)
		s.set(i)
		if !s.has(i) || s.count() != n+1 {
			t.Errorf("after set(%d): got %v, count %d; want true, %d", i, s.has(i), s.count(), n+1)
		}
	}
	for n, i := range edges {
		s.clear(i)
		s.clear(i)
		if s.has(i) || s.count() != len(edges)-n-1 {
			t.Errorf("after clear(%d): got %v, count %d; want false, %d", i, s.has(i), s.count(), len(edges)-n-1)
		}
	}
}

func TestBitsetNext(t *testing.T) {
	s := bitsetOf(0, 63, 64, bitBlockBits-1, bitBlockBits, 5*bitBlockBits+7)
	s.clear(bitBlockBits)
	var got []uint32
	for i, ok := s.next(0); ok; i, ok = s.next(i + 1) {
		got = append(got, i)
	}
	if want := []uint32{0, 63, 64, bitBlockBits - 1, 5*bitBlockBits + 7}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
	for from, want := range map[uint32]uint32{1: 63, 64: 64, 65: bitBlockBits - 1, bitBlockBits: 5*bitBlockBits + 7} {
		if got, ok := s.next(from); !ok || got != want {
			t.Errorf("next(%d): got %d, %v; want %d", from, got, ok, want)
		}
	}
	if got, ok := new(bitset).next(3); ok {
		t.Errorf("an empty set: got %d; want none", got)
	}
}

func TestBitsetReachesTheHighestPosition(t *testing.T) {
	const highest = 1<<32 - 1
	s := bitsetOf(5, highest)
	if got, want := bitsetPage([]*bitset{s}, 0, 10), []uint32{highest, 5}; !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
}

func TestBitsetIntersections(t *testing.T) {
	all := bitsetOfEvery(1, 3*bitBlockBits)
	twos, threes, fives := bitsetOfEvery(2, 9000), bitsetOfEvery(3, 9000), bitsetOfEvery(5, 9000)
	for _, tt := range []struct {
		name  string
		sets  []*bitset
		count int
		top   []uint32 // the highest three
	}{
		{"one set", []*bitset{bitsetOf(1, 5000, 9)}, 3, []uint32{5000, 9, 1}},
		{"an empty set", []*bitset{new(bitset)}, 0, nil},
		{"with an empty set", []*bitset{all, new(bitset)}, 0, nil},
		{"disjoint in one block", []*bitset{bitsetOf(1, 3), bitsetOf(2, 4)}, 0, nil},
		{"disjoint in blocks", []*bitset{bitsetOf(1), bitsetOf(2 * bitBlockBits)}, 0, nil},
		{"with a set of everything", []*bitset{all, bitsetOf(1, 5000)}, 2, []uint32{5000, 1}},
		{"a set of everything second", []*bitset{bitsetOf(1, 5000), all}, 2, []uint32{5000, 1}},
		{"everything twice", []*bitset{all, all}, 3 * bitBlockBits, []uint32{12287, 12286, 12285}},
		{"different reach", []*bitset{bitsetOfEvery(2, 100), bitsetOfEvery(3, 900_000)}, 17, []uint32{96, 90, 84}},
		{"three sets", []*bitset{twos, threes, fives}, 300, []uint32{8970, 8940, 8910}},
		{"three sets, one of everything", []*bitset{twos, all, fives}, 900, []uint32{8990, 8980, 8970}},
		{"four sets", []*bitset{twos, threes, fives, bitsetOfEvery(7, 9000)}, 43, []uint32{8820, 8610, 8400}},
		{"five sets, two of them equal", []*bitset{all, twos, threes, twos, fives}, 300, []uint32{8970, 8940, 8910}},
	} {
		if got := meetOf(tt.sets...).total; got != tt.count {
			t.Errorf("%s: got count %d; want %d", tt.name, got, tt.count)
		}
		if got := bitsetPage(tt.sets, 0, 3); !slices.Equal(got, tt.top) {
			t.Errorf("%s: got %v; want %v", tt.name, got, tt.top)
		}
	}
}

func TestBitsetDescendSkips(t *testing.T) {
	thirds := bitsetOfEvery(3, 30_000) // 10,000 positions, the highest 29,997
	for _, tt := range []struct {
		skip int
		want []uint32
	}{
		{-1, []uint32{29_997, 29_994}},
		{0, []uint32{29_997, 29_994}},
		{1, []uint32{29_994, 29_991}},
		{5000, []uint32{14_997, 14_994}},
		{9998, []uint32{3, 0}},
		{9999, []uint32{0}},
		{10_000, nil},
		{1 << 30, nil},
	} {
		if got := bitsetPage([]*bitset{thirds}, tt.skip, 2); !slices.Equal(got, tt.want) {
			t.Errorf("skip %d: got %v; want %v", tt.skip, got, tt.want)
		}
	}
}

func TestBitsetAgreesWithMaps(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		limit := uint32(1 + r.IntN(4*bitBlockBits))
		sets, models := make([]*bitset, 3), make([]map[uint32]bool, 3)
		for n := range sets {
			sets[n], models[n] = new(bitset), map[uint32]bool{}
		}
		for range 6000 {
			n, i := r.IntN(3), r.Uint32N(limit)
			if r.IntN(3+n) > 0 {
				sets[n].set(i)
				models[n][i] = true
			} else {
				sets[n].clear(i)
				delete(models[n], i)
			}
		}
		for n := 1; n <= 3; n++ {
			compareBitsets(t, r, sets[:n], models[:n])
		}
		for n := range sets {
			for i := range limit + 10 {
				if got, want := sets[n].has(i), models[n][i]; got != want {
					t.Fatalf("seed %d, position %d: got %v; want %v", seed, i, got, want)
				}
			}
		}
		clearBitset(t, sets[0], models[0])
	}
}

// compareBitsets checks counts and a few pages of an intersection.
func compareBitsets(t *testing.T, r *rand.Rand, sets []*bitset, models []map[uint32]bool) {
	t.Helper()
	var want []uint32
	for _, i := range slices.Backward(slices.Sorted(maps.Keys(models[0]))) {
		if !slices.ContainsFunc(models, func(m map[uint32]bool) bool { return !m[i] }) {
			want = append(want, i)
		}
	}
	if got := meetOf(sets...).total; got != len(want) {
		t.Fatalf("got count %d; want %d", got, len(want))
	}
	if got := sets[0].count(); got != len(models[0]) {
		t.Fatalf("got count %d; want %d", got, len(models[0]))
	}
	for range 10 {
		skip, size := r.IntN(len(want)+2), 1+r.IntN(30)
		rest := want[min(skip, len(want)):]
		if got := bitsetPage(sets, skip, size); !slices.Equal(got, rest[:min(size, len(rest))]) {
			t.Fatalf("skip %d: got %v; want %v", skip, got, rest[:min(size, len(rest))])
		}
	}
	if got := bitsetPage(sets, 0, len(want)+1); !slices.Equal(got, want) {
		t.Fatalf("got %v; want %v", got, want)
	}
}

// clearBitset empties a set, which then holds only the spare block.
func clearBitset(t *testing.T, s *bitset, model map[uint32]bool) {
	t.Helper()
	for i := range model {
		s.clear(i)
	}
	if got := bitsetBlocks(s); s.count() != 0 || got > 1 {
		t.Fatalf("got %d positions in %d blocks; want none in at most 1", s.count(), got)
	}
}

// bitsetBlocks returns the number of blocks that a set has in memory.
func bitsetBlocks(s *bitset) int {
	n := 0
	for _, b := range append(slices.Clone(s.blocks), s.spare) {
		if b != nil {
			n++
		}
	}
	return n
}

func TestBitsetIsSmallWithFewMembers(t *testing.T) {
	s := new(bitset)
	for i := uint32(50_000); i < 1_000_000; i += 100_000 {
		s.set(i)
	}
	size := bitsetBlocks(s)*int(unsafe.Sizeof(bitBlock{})) + cap(s.blocks)*8 + cap(s.counts)*2
	if limit := 12 << 10; size > limit {
		t.Errorf("got %d bytes for %d positions; want at most %d", size, s.count(), limit)
	}
}

// Setting and clearing a position of an otherwise empty set makes no garbage.
func TestBitsetReusesItsLastBlock(t *testing.T) {
	s := bitsetOf(100_000)
	s.clear(100_000)
	i := uint32(0)
	if got := testing.AllocsPerRun(100, func() { s.set(i); s.clear(i); i += 500 }); got != 0 {
		t.Errorf("got %v allocations; want none", got)
	}
}

// TestBitsetListingAllocatesNothing checks that pages after the first use its memory again.
func TestBitsetListingAllocatesNothing(t *testing.T) {
	sets := []positionSet{bitsetOfEvery(2, 100_000), bitsetOfEvery(3, 100_000), bitsetOfEvery(1, 100_000)}
	sum, meet := 0, new(bitMeet)
	if got := testing.AllocsPerRun(20, func() {
		meet.of(sets...).descend(1000, func(i uint32) bool { sum += int(i); return true })
	}); got > 0 {
		t.Errorf("got %v allocations; want none", got)
	}
}

func BenchmarkBitsetPage(b *testing.B) {
	for _, limit := range []uint32{1_000, 1_000_000} {
		all, half, third := bitsetOfEvery(1, limit), bitsetOfEvery(2, limit), bitsetOfEvery(3, limit)
		most := bitsetOfEvery(1, limit)
		for i := uint32(0); i < limit; i += 1000 {
			most.clear(i)
		}
		for _, bench := range []struct {
			name string
			sets []*bitset
		}{
			{"one set", []*bitset{all}},
			{"all and half", []*bitset{all, half}},
			{"half, third and most", []*bitset{half, third, most}},
		} {
			total := meetOf(bench.sets...).total
			name := fmt.Sprintf("%d/%s", limit, bench.name)
			b.Run(name+"/first page", func(b *testing.B) { benchmarkBitsetPage(b, bench.sets, 0) })
			b.Run(name+"/last page", func(b *testing.B) { benchmarkBitsetPage(b, bench.sets, total-25) })
			b.Run(name+"/count", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_ = meetOf(bench.sets...).total
				}
			})
		}
	}
}

func benchmarkBitsetPage(b *testing.B, sets []*bitset, skip int) {
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		meetOf(sets...).descend(skip, func(uint32) bool { n++; return n < 25 })
	}
}

func BenchmarkBitsetSet(b *testing.B) {
	s := new(bitset)
	i := uint32(0)
	for b.Loop() {
		s.set(i % 1_000_000)
		s.clear((i - 1000) % 1_000_000)
		i++
	}
}
