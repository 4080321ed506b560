package main

// The dependency graph of steps, as lists of indexes: order, levels, children
// and cycles. It knows nothing of templates or tasks.

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"
)

// graph is what follows from the parents of each node; immutable.
type graph struct {
	children [][]int // by node, ascending
	order    []int   // every node after its parents; of those that are free, the lowest first
	level    []int   // by node: edges on the longest way from a node without parents
}

// newGraph analyzes the graph in which node i waits for the nodes parents[i],
// each listed once. Where nodes wait for each other there is no graph, but one
// such cycle: each node waits for the next and the last for the first, which
// is the lowest.
func newGraph(parents [][]int) (g *graph, cycle []int) {
	g = &graph{
		children: graphChildren(parents),
		order:    make([]int, 0, len(parents)),
		level:    make([]int, len(parents)),
	}
	waits := make([]int, len(parents)) // parents that are not in the order yet
	free := &freeNodes{}
	for i, p := range parents {
		if waits[i] = len(p); waits[i] == 0 {
			*free = append(*free, i) // ascending, so a heap already
		}
	}
	for free.Len() > 0 {
		i := heap.Pop(free).(int)
		g.order = append(g.order, i)
		for _, c := range g.children[i] {
			g.level[c] = max(g.level[c], g.level[i]+1)
			if waits[c]--; waits[c] == 0 {
				heap.Push(free, c)
			}
		}
	}
	if len(g.order) < len(parents) {
		return nil, graphCycle(parents, waits)
	}
	return g, nil
}

// graphChildren turns parents around. All lists share one array.
func graphChildren(parents [][]int) [][]int {
	count, edges := make([]int, len(parents)), 0
	for _, list := range parents {
		edges += len(list)
		for _, p := range list {
			count[p]++
		}
	}
	children, rest := make([][]int, len(parents)), make([]int, edges)
	for i, n := range count {
		children[i], rest = rest[:0:n], rest[n:]
	}
	for i, list := range parents {
		for _, p := range list {
			children[p] = append(children[p], i)
		}
	}
	return children
}

// graphCycle finds a cycle among the nodes that still wait. Each of them waits
// for another of them, so that following the first such parent must come round.
func graphCycle(parents [][]int, waits []int) []int {
	waiting := func(i int) bool { return waits[i] > 0 }
	at := slices.IndexFunc(waits, func(n int) bool { return n > 0 })
	place := map[int]int{} // node: its place in path
	var path []int
	for {
		if start, seen := place[at]; seen {
			return cycleFromLowest(path[start:])
		}
		place[at] = len(path)
		path = append(path, at)
		at = parents[at][slices.IndexFunc(parents[at], waiting)]
	}
}

func cycleFromLowest(cycle []int) []int {
	i := slices.Index(cycle, slices.Min(cycle))
	return slices.Concat(cycle[i:], cycle[:i])
}

// cycleText writes a cycle as "a -> b -> a"; of a long one the middle is left out.
func cycleText(cycle []int, name func(node int) string) string {
	const head, tail = 12, 4
	var words []string
	for i, node := range cycle {
		switch {
		case len(cycle) <= head+tail+1 || i < head || i >= len(cycle)-tail:
			words = append(words, name(node))
		case i == head:
			words = append(words, fmt.Sprintf("(%d more)", len(cycle)-head-tail))
		}
	}
	return strings.Join(append(words, name(cycle[0])), " -> ")
}

// freeNodes is a heap of nodes whose parents are all in the order.
type freeNodes []int

func (f freeNodes) Len() int           { return len(f) }
func (f freeNodes) Less(i, j int) bool { return f[i] < f[j] }
func (f freeNodes) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *freeNodes) Push(x any)        { *f = append(*f, x.(int)) }
func (f *freeNodes) Pop() any {
	old := *f
	x := old[len(old)-1]
	*f = old[:len(old)-1]
	return x
}

// ancestorsOf is every node that the node depends on, directly or not, in
// ascending order.
func ancestorsOf(node int, parents func(node int) []int) []int {
	seen := map[int]bool{}
	var found []int
	visit := slices.Clone(parents(node))
	for len(visit) > 0 {
		p := visit[len(visit)-1]
		visit = visit[:len(visit)-1]
		if seen[p] {
			continue
		}
		seen[p] = true
		found = append(found, p)
		visit = append(visit, parents(p)...)
	}
	slices.Sort(found)
	return found
}
