package main

// What the shape of a graph of dependencies says: levels, longest paths, what
// lies behind a node. Each takes time linear in nodes and edges.

// dependencyGraph is a graph without cycles; its nodes count from 0. A task is one.
type dependencyGraph interface {
	parents(node int) []int
	children(node int) []int
}

// graphLevels lists the n nodes level by level. A node's level is the longest
// distance to it, in edges, from a node without parents.
func graphLevels(g dependencyGraph, n int) (order, level []int) {
	order, level = make([]int, 0, n), make([]int, n)
	waits := make([]int, n) // parents that are not in the order yet
	for i := range n {
		if waits[i] = len(g.parents(i)); waits[i] == 0 {
			order = append(order, i)
		}
	}
	for at := 0; at < len(order); at++ {
		i := order[at]
		for _, c := range g.children(i) {
			level[c] = max(level[c], level[i]+1)
			if waits[c]--; waits[c] == 0 {
				order = append(order, c)
			}
		}
	}
	return order, level
}

// pathEnd is one of the longest paths to a node. It comes from the path with a
// rank among those to a parent; from none, -1, where the node has no parents.
type pathEnd struct{ length, parent, rank int }

// longestPaths is up to k different paths from a node without parents to one
// without children, such that none of the others is longer: the longest first,
// equal ones in the order of their last nodes, then of the parents as listed.
// Each node keeps only the k longest paths that lead to it, for a longer path
// through it can be made of no others.
func longestPaths(g dependencyGraph, order []int, k int) [][]int {
	to := make([][]pathEnd, len(order))
	for _, i := range order {
		if len(g.parents(i)) == 0 {
			to[i] = []pathEnd{{1, -1, 0}}
		}
		for _, p := range g.parents(i) {
			to[i] = keepLongest(to[i], p, to[p], 1, k)
		}
	}
	var ends []pathEnd
	for i := range to {
		if len(g.children(i)) == 0 {
			ends = keepLongest(ends, i, to[i], 0, k)
		}
	}
	paths := make([][]int, len(ends))
	for n, end := range ends {
		paths[n] = make([]int, end.length)
		for at := end.length - 1; at >= 0; at-- {
			paths[n][at] = end.parent
			end = to[end.parent][end.rank]
		}
	}
	return paths
}

// keepLongest enters the paths to a node, each longer by step, among the k longest.
func keepLongest(kept []pathEnd, node int, paths []pathEnd, step, k int) []pathEnd {
	for rank, p := range paths {
		at := len(kept)
		for at > 0 && kept[at-1].length < p.length+step {
			at--
		}
		if at == k {
			break // nor do the others, which are no longer
		}
		if len(kept) < k {
			kept = append(kept, pathEnd{})
		}
		copy(kept[at+1:], kept[at:])
		kept[at] = pathEnd{p.length + step, node, rank}
	}
	return kept
}

// graphWalk finds what lies behind nodes; one may walk many times.
type graphWalk struct {
	g     dependencyGraph
	open  func(node int) bool // closed nodes are not entered
	seen  []int               // by node: the walk that came there last
	walks int
}

// behind is the open nodes that can be reached from some nodes by way of open
// nodes, the nearest first. The nodes to start from are not among them.
func (w *graphWalk) behind(from ...int) []int {
	w.walks++
	for _, i := range from {
		w.seen[i] = w.walks
	}
	found := []int{}
	visit := func(i int) {
		for _, c := range w.g.children(i) {
			if w.seen[c] != w.walks && w.open(c) {
				w.seen[c] = w.walks
				found = append(found, c)
			}
		}
	}
	for _, i := range from {
		visit(i)
	}
	for at := 0; at < len(found); at++ {
		visit(found[at])
	}
	return found
}
