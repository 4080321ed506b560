package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestGraph(t *testing.T) {
	tests := []struct {
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
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g, cycle := newGraph(test.parents)
			if cycle != nil {
				t.Fatalf("got cycle %v; want none", cycle)
			}
			if !slices.Equal(g.order, test.order) {
				t.Errorf("got order %v; want %v", g.order, test.order)
			}
			if !slices.Equal(g.level, test.level) {
				t.Errorf("got levels %v; want %v", g.level, test.level)
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

func TestLargeGraphs(t *testing.T) {
	const n = 10000
	for name, parents := range map[string][][]int{
		"chain": chainGraph(n), "backwards": backwardsChainGraph(n), "fan": fanGraph(n), "layers": layersGraph(n),
	} {
		g, cycle := newGraph(parents)
		if cycle != nil {
			t.Fatalf("%s: got a cycle of %d; want none", name, len(cycle))
		}
		checkGraphOrder(t, name, parents, g)
	}
}

// checkGraphOrder checks that each node stands once and after its parents.
func checkGraphOrder(t *testing.T, name string, parents [][]int, g *graph) {
	t.Helper()
	done := make([]bool, len(parents))
	for _, i := range g.order {
		if done[i] {
			t.Fatalf("%s: node %d stands twice in the order", name, i)
		}
		for _, p := range parents[i] {
			if !done[p] {
				t.Fatalf("%s: node %d stands before its parent %d", name, i, p)
			}
			if g.level[i] <= g.level[p] {
				t.Fatalf("%s: node %d is on level %d, its parent on %d", name, i, g.level[i], g.level[p])
			}
		}
		done[i] = true
	}
	if len(g.order) != len(parents) {
		t.Fatalf("%s: got %d nodes in the order; want %d", name, len(g.order), len(parents))
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

// fanGraph is one node, then n - 2, then one that waits for all of these.
func fanGraph(n int) [][]int {
	parents := make([][]int, n)
	for i := 1; i < n-1; i++ {
		parents[i] = []int{0}
		parents[n-1] = append(parents[n-1], i)
	}
	return parents
}

// layersGraph is layers of ten nodes, each of which waits for all of the layer before.
func layersGraph(n int) [][]int {
	parents := make([][]int, n)
	for i := 10; i < n; i++ {
		for p := i/10*10 - 10; p < i/10*10; p++ {
			parents[i] = append(parents[i], p)
		}
	}
	return parents
}
