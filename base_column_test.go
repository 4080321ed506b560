package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// spreadTimes returns how the instants of n positions may be spread, each the same at every run.
func spreadTimes(n int) map[string]func(i int) instant {
	r, few := rand.New(rand.NewPCG(6, 7)), rand.New(rand.NewPCG(8, 9))
	return map[string]func(i int) instant{
		"in order":       func(i int) instant { return instant(i) + 5 },
		"some take long": func(i int) instant { return instant(i) + 5 + instant(boolCount(i%100 == 0)*n/3) },
		"at random":      func(i int) instant { return instant(i) + 1 + instant(r.ExpFloat64()*float64(n/4)) },
		"few instants":   func(int) instant { return 1 + instant(few.IntN(3)) },
		"at one moment":  func(int) instant { return 7 },
		"backwards":      func(i int) instant { return instant(2 * (n - i)) },
	}
}

// unlikeSampled returns instants of n positions, of which those that a search samples are later than the others.
func unlikeSampled(n int) func(i int) instant {
	step := n / sampledPoints
	return func(i int) instant { return 1 + instant(i+n*boolCount((n-1-i)%step == step/2)) }
}

// TestTimeSearch compares spans of a column, and pages by time, with plain searches, and counts the points that
// a page sorts.
func TestTimeSearch(t *testing.T) {
	t.Parallel()
	const n = 40_000
	r := rand.New(rand.NewPCG(4, 5))
	spread := spreadTimes(n)
	spread["unlike the sample"] = unlikeSampled(n)
	for _, name := range slices.Sorted(maps.Keys(spread)) {
		at := spread[name]
		column, points := &timeColumn{}, make([]timePoint, n)
		for i := range points {
			points[i] = timePoint{at(i), uint32(i)}
			column.set(uint32(i), points[i].at)
		}
		slices.SortFunc(points, func(a, b timePoint) int { return b.compare(a) })
		for range 20 {
			compareSpan(t, name, column, points[r.IntN(n)], points[r.IntN(n)])
		}
		compareSpan(t, name, column, firstPoint, points[r.IntN(n)])
		compareSpan(t, name, column, points[r.IntN(n)], lastPoint)
		set, search := bitsetOfEvery(1, n), timeSearch{}
		for _, skip := range []int{0, 1, n / 2, r.IntN(n - 25), n - 25} {
			got := search.latest(nil, set, column, skip, 25)
			if want := positionsOf(points[skip : skip+25]); !slices.Equal(got, want) {
				t.Errorf("%s, after %d: got %v; want %v", name, skip, got, want)
			}
			if most := n / 4; len(search.points) > most && name != "unlike the sample" {
				t.Errorf("%s, after %d: sorted %d of %d points; want at most %d", name, skip, len(search.points), n, most)
			}
		}
	}
}

func positionsOf(points []timePoint) (all []uint32) {
	for _, p := range points {
		all = append(all, p.pos)
	}
	return all
}

// compareSpan compares the positions of a span, block by block, with those that it says it has.
func compareSpan(t *testing.T, name string, column *timeColumn, from, before timePoint) {
	t.Helper()
	s := &timeSpan{column, from, before}
	for b := range s.reach() {
		block, n := s.block(b, new(bitBlock))
		for i := uint32(b * bitBlockBits); i < uint32((b+1)*bitBlockBits); i++ {
			p := timePoint{column.at(i), i}
			want := p.compare(from) >= 0 && p.compare(before) < 0
			_, word, bit := bitsetPlace(i)
			if s.has(i) != want || int(i/64) < len(column.words) && (block[word]&bit != 0) != want {
				t.Fatalf("%s, from %v before %v: got %v, %v for position %d; want %v", name, from, before,
					s.has(i), block[word]&bit != 0, i, want)
			}
			n -= boolCount(block[word]&bit != 0)
		}
		if n != 0 {
			t.Fatalf("%s, from %v before %v: block %d is off by %d positions", name, from, before, b, n)
		}
	}
}

// BenchmarkTimePage finds pages of 25 by time.
func BenchmarkTimePage(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		set := bitsetOfEvery(1, uint32(n))
		spread := spreadTimes(n)
		for _, name := range slices.Sorted(maps.Keys(spread)) {
			column := &timeColumn{}
			for i := range n {
				column.set(uint32(i), spread[name](i))
			}
			for _, skip := range []int{0, n / 2, n - 25} {
				b.Run(fmt.Sprintf("%d/%s/after %d", n, name, skip), func(b *testing.B) {
					search, page := timeSearch{}, []uint32{}
					for b.Loop() {
						page = search.latest(page[:0], set, column, skip, 25)
					}
				})
			}
		}
	}
}
