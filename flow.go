package main

// What the dynamic steps of a template mean for the others: which step may be
// brought about by which, and what a step must wait for to come to exist.

// flow is the graph of a template with dynamic steps; immutable. Its edges are
// the declared dependencies, and for a batch_worker step that declares none on
// a batchable step one on each batchable that names it.
type flow struct {
	index    map[string]int // steps by name
	parents  [][]int        // by step, as declared
	children [][]int        // by step, ascending
	makers   []int          // by step: parents that decide whether it comes to exist
}

// newFlow is the flow of a linked template.
func newFlow(t *template) *flow {
	f := &flow{index: make(map[string]int, len(t.steps)), makers: make([]int, len(t.steps))}
	declared := make([][]int, len(t.steps))
	for i := range t.steps {
		f.index[t.steps[i].name] = i
		declared[i] = t.steps[i].parents
	}
	f.parents = f.withNamedWorkers(t, declared)
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

// withNamedWorkers adds the dependencies that go without saying.
func (f *flow) withNamedWorkers(t *template, declared [][]int) [][]int {
	parents := make([][]int, len(declared))
	for i, list := range declared {
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
	for _, p := range t.steps[i].parents {
		if t.makes(p, i) {
			return true
		}
	}
	return false
}

// makes reports whether step p, on which step i depends, decides whether i
// comes to exist: a decision its branches, a batchable step its workers. A
// convergence is nobody's branch: it follows what exists.
func (t *template) makes(p, i int) bool {
	switch t.steps[i].kind {
	case stepBatchWorker:
		return t.steps[p].kind == stepBatchable
	case stepDeferredConvergence:
		return false
	}
	return t.steps[p].kind == stepDecision
}

// maker reports whether a step of the kind makes others.
func maker(kind string) bool { return kind == stepDecision || kind == stepBatchable }

func boolCount(b bool) int {
	if b {
		return 1
	}
	return 0
}
