package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// listedGraph is a graph given by the parents of each node. It counts what is
// looked at.
type listedGraph struct {
	up, down [][]int
	looks    int // lists asked for, and nodes in them
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

func TestLongestPaths(t *testing.T) {
	tests := []struct {
		name    string
		parents [][]int
		want    string
	}{
		{"empty", nil, "[]"},
		{"one", [][]int{nil}, "[[0]]"},
		{"chain", chainGraph(4), "[[0 1 2 3]]"},
		{"backwards", backwardsChainGraph(3), "[[2 1 0]]"},
		{"diamond", [][]int{nil, {0}, {0}, {1, 2}}, "[[0 1 3] [0 2 3]]"},
		{"parents as listed", [][]int{nil, {0}, {0}, {2, 1}}, "[[0 2 3] [0 1 3]]"},
		{"a short cut is a path of its own", [][]int{nil, {0}, {0, 1}}, "[[0 1 2] [0 2]]"},
		{"disconnected", [][]int{nil, nil, {1}, {2}, nil}, "[[1 2 3] [0] [4]]"},
		{"no more than five", fanGraph(9), "[[0 1 8] [0 2 8] [0 3 8] [0 4 8] [0 5 8]]"},
		{"through two diamonds", [][]int{nil, {0}, {0}, {1, 2}, {3}, {3}, {4, 5}},
			"[[0 1 3 4 6] [0 2 3 4 6] [0 1 3 5 6] [0 2 3 5 6]]"},
	}
	for _, test := range tests {
		g := newListedGraph(test.parents)
		order, _ := graphLevels(g, len(test.parents))
		if got := fmt.Sprint(longestPaths(g, order, maxCriticalPaths)); got != test.want {
			t.Errorf("%s: got %s; want %s", test.name, got, test.want)
		}
	}
}

// randomGraph is a graph without cycles, its nodes in any order.
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

// everyPath is every path from a node without parents to one without children.
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

// checkLevels holds levels against the paths, from which each node's can be read.
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
	for _, test := range []struct {
		from []int
		want string
	}{
		{[]int{0}, "[1 3 5]"}, {[]int{2}, "[3 5]"}, {[]int{4}, "[5]"}, {[]int{5}, "[]"},
		{[]int{4, 0}, "[5 1 3]"}, {[]int{0, 1}, "[3 5]"}, {nil, "[]"},
	} {
		if got := fmt.Sprint(w.behind(test.from...)); got != test.want {
			t.Errorf("behind %v: got %s; want %s", test.from, got, test.want)
		}
	}
}
