package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestGraph(t *testing.T) {
	for _, test := range []struct {
		name     string
		parents  [][]int
		order    []int
		level    []int
		children [][]int
	}{
		{"empty", nil, []int{}, []int{}, [][]int{}},
		{"one", [][]int{nil}, []int{0}, []int{0}, [][]int{{}}},
		{"chain", [][]int{nil, {0}, {1}}, []int{0, 1, 2}, []int{0, 1, 2}, [][]int{{1}, {2}, {}}},
		{"chain backwards", [][]int{{1}, {2}, nil}, []int{2, 1, 0}, []int{2, 1, 0}, [][]int{{}, {0}, {1}}},
		{"diamond", [][]int{nil, {0}, {0}, {2, 1}}, []int{0, 1, 2, 3}, []int{0, 1, 1, 2},
			[][]int{{1, 2}, {3}, {3}, {}}},
		{"the lowest of the free first", [][]int{{2}, nil, nil, {0}}, []int{1, 2, 0, 3}, []int{1, 0, 0, 2},
			[][]int{{3}, {}, {0}, {}}},
		{"an order that holds already stays", [][]int{nil, {0}, nil, {1}, {2}}, []int{0, 1, 2, 3, 4},
			[]int{0, 1, 0, 2, 1}, [][]int{{1}, {3}, {4}, {}, {}}},
		{"the longest way counts", [][]int{nil, {0}, {0, 1}}, []int{0, 1, 2}, []int{0, 1, 2},
			[][]int{{1, 2}, {2}, {}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g, cycle := newGraph(test.parents)
			if cycle != nil {
				t.Fatalf("got cycle %v; want none", cycle)
			}
			if !slices.Equal(g.order, test.order) {
				t.Errorf("got order %v; want %v", g.order, test.order)
			}
			if _, level := graphLevels(newListedGraph(test.parents), len(test.parents)); !slices.Equal(level, test.level) {
				t.Errorf("got levels %v; want %v", level, test.level)
			}
			if !slices.EqualFunc(g.children, test.children, slices.Equal[[]int]) {
				t.Errorf("got children %v; want %v", g.children, test.children)
			}
		})
	}
}

func TestGraphCycle(t *testing.T) {
	tests := []struct {
		parents [][]int
		want    string
	}{
		{[][]int{{0}}, "a -> a"},
		{[][]int{{1}, {0}}, "a -> b -> a"},
		{[][]int{nil, {0, 3}, {1}, {2}}, "b -> d -> c -> b"},
		{[][]int{{1}, {2}, {1}}, "b -> c -> b"},                          // a only waits for the cycle
		{[][]int{{3}, nil, {4}, {0}, {2}}, "a -> d -> a"},                // of two cycles, the first
		{[][]int{nil, {0, 2}, {0, 1}, {1, 2}}, "b -> c -> b"},            // with ways in and out
		{[][]int{{4}, {0}, {1}, {2}, {3}}, "a -> e -> d -> c -> b -> a"}, // all of it
	}
	name := func(i int) string { return string(rune('a' + i)) }
	for _, test := range tests {
		g, cycle := newGraph(test.parents)
		if g != nil {
			t.Errorf("%v: got order %v; want none", test.parents, g.order)
			continue
		}
		if got := cycleText(cycle, name); got != test.want {
			t.Errorf("%v: got %q; want %q", test.parents, got, test.want)
		}
	}
}

func TestLongCycleText(t *testing.T) {
	parents := chainGraph(1000)
	parents[0] = []int{999}
	_, cycle := newGraph(parents)
	if len(cycle) != 1000 {
		t.Fatalf("got a cycle of %d; want 1000", len(cycle))
	}
	got := cycleText(cycle, strconv.Itoa)
	if want := "0 -> 999 -> "; !strings.HasPrefix(got, want) {
		t.Errorf("got %q; want it to begin with %q", got, want)
	}
	if want := " -> (984 more) -> 4 -> 3 -> 2 -> 1 -> 0"; !strings.HasSuffix(got, want) {
		t.Errorf("got %q; want it to end with %q", got, want)
	}
}

func BenchmarkGraph(b *testing.B) {
	shapes := []struct {
		name string
		of   func(n int) [][]int
	}{{"chain", chainGraph}, {"backwards", backwardsChainGraph}, {"fan", fanGraph}, {"layers", layersGraph}}
	for _, shape := range shapes {
		for _, n := range []int{1000, 10000} {
			parents := shape.of(n)
			b.Run(fmt.Sprintf("%s/%d", shape.name, n), func(b *testing.B) {
				for b.Loop() {
					newGraph(parents)
				}
			})
		}
	}
}

func chainGraph(n int) [][]int {
	parents := make([][]int, n)
	for i := 1; i < n; i++ {
		parents[i] = []int{i - 1}
	}
	return parents
}

func backwardsChainGraph(n int) [][]int {
	parents := make([][]int, n)
	for i := range n - 1 {
		parents[i] = []int{i + 1}
	}
	return parents
}

// fanGraph returns a graph of one node, n - 2 nodes that wait for it, and one that waits for
// these.
func fanGraph(n int) [][]int {
	parents := make([][]int, n)
	for i := 1; i < n-1; i++ {
		parents[i] = []int{0}
		parents[n-1] = append(parents[n-1], i)
	}
	return parents
}

// layersGraph returns a graph with layers of ten nodes, each of which waits for the whole layer
// before.
func layersGraph(n int) [][]int {
	parents := make([][]int, n)
	for i := 10; i < n; i++ {
		for p := i/10*10 - 10; p < i/10*10; p++ {
			parents[i] = append(parents[i], p)
		}
	}
	return parents
}

// listedGraph is a graph given by the parents of each node. It counts how much of the graph is
// read.
type listedGraph struct {
	up, down [][]int
	looks    int // lists that were read, and nodes in them
}

func newListedGraph(parents [][]int) *listedGraph {
	return &listedGraph{up: parents, down: graphChildren(parents)}
}

func (g *listedGraph) parents(i int) []int {
	g.looks += 1 + len(g.up[i])
	return g.up[i]
}

func (g *listedGraph) children(i int) []int {
	g.looks += 1 + len(g.down[i])
	return g.down[i]
}

// randomGraph returns a graph without cycles, its nodes in random order.
func randomGraph(r *rand.Rand, n int) [][]int {
	parents, place, share := make([][]int, n), r.Perm(n), r.Float64()
	for i := range n {
		for _, p := range r.Perm(n) {
			if place[p] < place[i] && r.Float64() < share {
				parents[i] = append(parents[i], p)
			}
		}
	}
	return parents
}

// everyPath returns every path from a node without parents to one without
// children.
func everyPath(g *listedGraph) (all [][]int) {
	var follow func(path []int)
	follow = func(path []int) {
		next := g.down[path[len(path)-1]]
		if len(next) == 0 {
			all = append(all, slices.Clone(path))
		}
		for _, c := range next {
			follow(append(path, c))
		}
	}
	for i, p := range g.up {
		if len(p) == 0 {
			follow([]int{i})
		}
	}
	return all
}

func TestLongestPathsAreLongest(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 2))
		g := newListedGraph(randomGraph(r, r.IntN(11)))
		order, level := graphLevels(g, len(g.up))
		all := everyPath(g)
		slices.SortStableFunc(all, func(a, b []int) int { return cmp.Compare(len(b), len(a)) })
		paths := longestPaths(g, order, maxCriticalPaths)
		if len(paths) != min(len(all), maxCriticalPaths) {
			t.Fatalf("seed %d: got %d paths; want %d", seed, len(paths), min(len(all), maxCriticalPaths))
		}
		seen := map[string]bool{}
		for i, p := range paths {
			same := func(q []int) bool { return slices.Equal(p, q) }
			if len(p) != len(all[i]) || !slices.ContainsFunc(all, same) || seen[fmt.Sprint(p)] {
				t.Fatalf("seed %d: path %d is %v, the same as before or none; want one of length %d", seed, i, p, len(all[i]))
			}
			seen[fmt.Sprint(p)] = true
		}
		checkLevels(t, seed, g, order, level, all)
	}
}

// checkLevels compares the levels with those that follow from all paths.
func checkLevels(t *testing.T, seed uint64, g *listedGraph, order, level []int, all [][]int) {
	t.Helper()
	want := make([]int, len(level))
	for _, p := range all {
		for at, i := range p {
			want[i] = max(want[i], at)
		}
	}
	if !slices.Equal(level, want) || len(order) != len(level) {
		t.Fatalf("seed %d: got levels %v in order %v; want %v", seed, level, order, want)
	}
	if !slices.IsSortedFunc(order, func(a, b int) int { return cmp.Compare(level[a], level[b]) }) {
		t.Fatalf("seed %d: order %v is not by level %v", seed, order, level)
	}
}

func TestGraphWalk(t *testing.T) {
	// 0 → 1 → 3 → 5, 0 → 2 → 3, 4 → 5; 2 is closed
	g := newListedGraph([][]int{nil, {0}, {0}, {1, 2}, nil, {3, 4}})
	w := graphWalk{g: g, seen: make([]int, 6), open: func(i int) bool { return i != 2 }}
	for from, want := range map[int]string{0: "[1 3 5]", 2: "[3 5]", 4: "[5]", 5: "[]"} {
		if got := fmt.Sprint(w.behind(from)); got != want {
			t.Errorf("behind %d: got %s; want %s", from, got, want)
		}
	}
}
