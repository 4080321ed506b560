package main

// Dependency graphs as lists of indexes: order, cycles, levels, longest paths and
// reachability. The graph of a template's steps, and the flow of those with dynamic steps.

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// graph holds the children of each node and an order of all. It is immutable.
type graph struct {
	children [][]int // by node, ascending
	order    []int   // parents first, else the lowest node first
}

// newGraph (hot path: BenchmarkGraph) analyzes the graph in which node i waits for the nodes parents[i], each
// listed once. If nodes wait for each other, it returns one such cycle instead:
// each node waits for the next, and the last for the first, which is the lowest.
func newGraph(parents [][]int) (g *graph, cycle []int) {
	g = &graph{graphChildren(parents), make([]int, 0, len(parents))}
	waits := make([]int, len(parents)) // parents that are not in the order yet
	// The nodes whose parents are all in the order. The lowest comes first, so that nodes keep their own order where
	// they can.
	free := priorityQueue[int]{before: func(a, b int) bool { return a < b }}
	for i, p := range parents {
		if waits[i] = len(p); waits[i] == 0 {
			free.push(i)
		}
	}
	for len(free.items) > 0 {
		i := free.pop()
		g.order = append(g.order, i)
		for _, c := range g.children[i] {
			if waits[c]--; waits[c] == 0 {
				free.push(c)
			}
		}
	}
	if len(g.order) < len(parents) {
		return nil, graphCycle(parents, waits)
	}
	return g, nil
}

// graphChildren inverts the lists of parents. All lists share one array.
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
		// Its capacity ends where the next list begins, so an append never reaches into that.
		children[i], rest = rest[:0:n], rest[n:]
	}
	for i, list := range parents {
		for _, p := range list {
			children[p] = append(children[p], i)
		}
	}
	return children
}

// graphCycle finds a cycle among the nodes that still wait. Each waits for another
// of them, so following the first such parent must lead back to a node.
func graphCycle(parents [][]int, waits []int) []int {
	waiting := func(i int) bool { return waits[i] > 0 }
	at := slices.IndexFunc(waits, func(n int) bool { return n > 0 })
	place := map[int]int{} // node: its place in path
	var path []int
	for {
		if start, seen := place[at]; seen {
			cycle := path[start:]
			lowest := slices.Index(cycle, slices.Min(cycle))
			return slices.Concat(cycle[lowest:], cycle[:lowest])
		}
		place[at] = len(path)
		path = append(path, at)
		at = parents[at][slices.IndexFunc(parents[at], waiting)]
	}
}

// cycleText writes a cycle as "a -> b -> a", without the middle of a long one.
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

// ancestorsOf returns every one of n nodes that the node depends on, directly or not, in ascending order.
func ancestorsOf(node, n int, parents func(node int) []int) []int {
	seen := make([]bool, n) // a map took half the time of a long chain in fixture mode
	found := []int{node}
	for at := 0; at < len(found); at++ {
		for _, p := range parents(found[at]) {
			if !seen[p] {
				seen[p] = true
				found = append(found, p)
			}
		}
	}
	found = found[1:]
	slices.Sort(found)
	return found
}

// The shape of a dependency graph: levels, longest paths, and what can be reached
// from a node. Each takes time linear in nodes and edges.

// dependencyGraph is a graph without cycles. Its nodes count from 0. A task is one.
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

// pathEnd is one of the longest paths to a node. It extends the path of a rank
// among those to a parent, which is -1 if the node has no parents.
type pathEnd struct{ length, parent, rank int }

// longestPaths returns the k longest paths from a node without parents to one without children, or all if there are
// fewer: the longest first, equal ones in the order of their last nodes, then of the parents as listed. Each node keeps
// only the k longest paths to it, because longer paths through it extend these.
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

// keepLongest adds the paths to a node, each longer by step, to the k longest.
func keepLongest(kept []pathEnd, node int, paths []pathEnd, step, k int) []pathEnd {
	for rank, p := range paths {
		at := len(kept)
		for at > 0 && kept[at-1].length < p.length+step {
			at--
		}
		if at == k {
			break // the others are not longer
		}
		kept = slices.Insert(kept[:min(len(kept), k-1)], at, pathEnd{p.length + step, node, rank})
	}
	return kept
}

// graphWalk finds the nodes that can be reached from others. It can be used many times.
type graphWalk struct {
	g     dependencyGraph
	open  func(node int) bool // closed nodes are not entered
	seen  []int               // by node: the last walk that reached it
	walks int
}

// behind returns the open nodes that can be reached from a node through open nodes, the nearest first, without that node.
func (w *graphWalk) behind(from int) []int {
	// With a new number, no node counts as seen: nothing has to be cleared.
	w.walks++
	w.seen[from] = w.walks
	found := []int{from}
	for at := 0; at < len(found); at++ {
		for _, c := range w.g.children(found[at]) {
			if w.seen[c] != w.walks && w.open(c) {
				w.seen[c] = w.walks
				found = append(found, c)
			}
		}
	}
	return found[1:]
}

// The flow of a template with dynamic steps: which step may create which, and what
// must be decided before a step exists.

// flow is the graph of a template with dynamic steps. It is immutable. Its edges are the declared dependencies; a
// batch_worker step that declares none on a batchable step also depends on each batchable step that names it.
type flow struct {
	index    map[string]int // steps by name
	parents  [][]int        // by step, as declared
	children [][]int        // by step, ascending
	makers   []int          // by step: how many parents decide whether it is created
}

// maxInstances is how many steps one outcome may create.
const maxInstances = 10_000

func newFlow(t *template) *flow {
	f := &flow{index: make(map[string]int, len(t.steps)), makers: make([]int, len(t.steps))}
	declared := make([][]int, len(t.steps))
	for i := range t.steps {
		f.index[t.steps[i].name] = i
		declared[i] = t.steps[i].parents
	}
	f.parents = f.withNamedWorkers(t, declared)
	// A name can close a cycle with dependencies that are valid by themselves. Then only these count.
	if _, cycle := newGraph(f.parents); cycle != nil {
		f.parents = declared
	}
	f.children = graphChildren(f.parents)
	for i := range t.steps {
		for _, p := range f.parents[i] {
			f.makers[i] += boolCount(t.makes(p, i))
		}
	}
	return f
}

// withNamedWorkers adds the dependencies of batch workers on the batchable steps that name them.
func (f *flow) withNamedWorkers(t *template, declared [][]int) [][]int {
	parents := make([][]int, len(declared))
	for i, list := range declared {
		// Without spare capacity, so that an append below copies the list, which belongs to the template.
		parents[i] = list[:len(list):len(list)]
	}
	for b := range t.steps {
		w, ok := f.index[t.steps[b].batchWorker]
		if !ok || t.steps[b].kind != stepBatchable || t.steps[w].kind != stepBatchWorker || t.hasMaker(w) {
			continue
		}
		parents[w] = append(parents[w], b)
	}
	return parents
}

// hasMaker reports whether a step declares a dependency on one that makes it.
func (t *template) hasMaker(i int) bool {
	return slices.ContainsFunc(t.steps[i].parents, func(p int) bool { return t.makes(p, i) })
}

// makes reports whether step p, on which step i depends, decides whether i is created: a decision creates its branches,
// a batchable step its workers. A convergence is not a branch: it follows the steps that exist.
func (t *template) makes(p, i int) bool {
	switch t.steps[i].kind {
	case stepBatchWorker:
		return t.steps[p].kind == stepBatchable
	case stepDeferredConvergence:
		return false
	}
	return t.steps[p].kind == stepDecision
}

// maker reports whether a step of the kind creates others.
func maker(kind string) bool { return kind == stepDecision || kind == stepBatchable }

func boolCount(b bool) int {
	if b {
		return 1
	}
	return 0
}

// link turns the names of dependencies into parents, children and an order.
func (t *template) link(forms []stepForm) error {
	index := make(map[string]int, len(t.steps))
	for i, s := range t.steps {
		index[s.name] = i
	}
	parents := make([][]int, len(t.steps))
	lastChild := make([]int, len(t.steps)) // by parent, plus 1
	for i := range forms {
		if n := bytes.Count(forms[i].dependencies, []byte{','}); n > 0 {
			parents[i] = make([]int, 0, n+1)
		}
		if !strings.ContainsRune("[n\x00", rune(jsonKind(forms[i].dependencies))) { // a list, null, or absent
			return fmt.Errorf("step %q has dependencies that are not a list", t.steps[i].name)
		}
		next := 0 // the step after the last one named, often the next one named
		// A dense graph has a million names, which need not become strings.
		for raw := range jsonElements(forms[i].dependencies) {
			p, ok := 0, raw[0] == '"'
			if ok {
				name := unescapeJSON(raw)
				if p, ok = next, next < len(t.steps) && t.steps[next].name == string(name); !ok {
					p, ok = index[string(name)]
				}
			}
			// A repeated name is found without a set for each step.
			if !ok || lastChild[p] == i+1 {
				return fmt.Errorf("step %q cannot depend on %s", t.steps[i].name, raw)
			}
			next, lastChild[p] = p+1, i+1
			parents[i] = append(parents[i], p)
		}
	}
	g, cycle := newGraph(parents)
	if cycle != nil || len(index) < len(t.steps) {
		return errors.New("steps with the same name, or a cycle of dependencies")
	}
	t.order = g.order
	for i := range t.steps {
		t.steps[i].parents, t.steps[i].children = parents[i], g.children[i]
	}
	if t.dynamic {
		t.flow = newFlow(t)
		return t.readBatches(forms)
	}
	return nil
}

// readBatches gives each batch_worker step its policy.
func (t *template) readBatches(forms []stepForm) error {
	for i := range t.steps {
		if t.steps[i].kind != stepBatchWorker {
			continue
		}
		config := forms[i].batchConfig
		// The worker's own policy wins over that of the step that creates it.
		for _, p := range t.flow.parents[i] {
			if jsonKind(config) != '{' && t.steps[p].kind == stepBatchable {
				config = forms[p].batchConfig
			}
		}
		b := &batchPolicy{failureStrategy: batchFailFast}
		if err := readForm(orEmptyObject(config), b.places()); err != nil {
			return fmt.Errorf("step %q: batch_config: %w", t.steps[i].name, err)
		}
		if jsonKind(config) != '{' {
			config = nil
		}
		const standard = `{"cursor_field":"id","failure_strategy":"` + batchFailFast + `"}`
		b.metadata = mergeObjects(nil, []byte(standard), orEmptyObject(config))
		t.steps[i].batch = b
	}
	return nil
}
