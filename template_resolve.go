package main

// Resolving a normalized definition: the overrides of an environment, and the
// rules that hold between steps.

// everyStep is the name that stands for every step in an environment.
const everyStep = "ALL"

// stepDraft is one step while its template is resolved.
type stepDraft struct {
	templateObject
	path string
}

func (s *stepDraft) name() (string, bool) { return jsonString(s.value("name")) }

// override applies an environment's values to the step. It merges initialization
// and replaces the others. It returns what that costs: the time, as the bytes that would take as long elsewhere.
func (s *stepDraft) override(over templateObject) int {
	for _, key := range []string{"timeout_seconds", "retry"} {
		if value := over.value(key); value != nil {
			s.set(key, value)
		}
	}
	initialization := templateMembers(over.value("handler")).value("initialization")
	if initialization == nil {
		return 0
	}
	handler := templateMembers(s.value("handler"))
	merged := mergeObjects(nil, handler.value("initialization"), initialization)
	handler.set("initialization", canonicalJSON(nil, merged))
	s.set("handler", handler.json())
	// The memory is freed soon, but any number of entries may merge large objects again.
	return draftBytes/4 + 2*len(merged)
}

// templateDraft is a template while it is resolved.
type templateDraft struct {
	templateObject
	steps []stepDraft
	index map[string]int // steps by name; the first of equal names
}

// resolve applies an environment to a normalized definition and checks the rules
// between its steps. If r has problems, parts of either may be null.
func (r *templateReader) resolve(normal []byte, env string) []byte {
	d := &templateDraft{templateObject: templateMembers(normal), index: map[string]int{}}
	for i, step := range templateElements(d.value("steps")) {
		if !r.take(draftBytes, templateItemPath("steps", i)) {
			return normal
		}
		d.steps = append(d.steps, stepDraft{templateMembers(step), templateItemPath("steps", i)})
	}
	r.indexSteps(d)
	// The entries of all environments are checked, although only those of one are applied.
	for _, m := range templateMembers(d.value("environments")) {
		path := templateMemberPath("environments", m.key) + ".steps"
		for i, over := range templateElements(templateMembers(m.value).value("steps")) {
			r.override(d, templateItemPath(path, i), templateMembers(over), m.key == env)
		}
	}
	r.checkDependencies(d)
	var steps [][]byte
	for _, s := range d.steps {
		steps = append(steps, s.json())
	}
	d.set("steps", templateListJSON(steps))
	return d.json()
}

func (r *templateReader) indexSteps(d *templateDraft) {
	for i, s := range d.steps {
		name, ok := s.name()
		if !ok {
			continue
		}
		if first, taken := d.index[name]; taken {
			r.problem(s.path+".name", "duplicate step %q, also steps[%d]", clippedText(name), first)
			continue
		}
		d.index[name] = i
	}
}

// override checks one entry of an environment's steps and applies it if it
// belongs to the requested environment. Entries apply in order.
func (r *templateReader) override(d *templateDraft, path string, over templateObject, apply bool) {
	name, ok := jsonString(over.value("name"))
	if !ok {
		return // reported when it was read
	}
	first, after := 0, len(d.steps)
	if name != everyStep {
		i, known := d.index[name]
		if !known {
			r.warn(path+".name", "unknown step %q; nothing to override", clippedText(name))
			return
		}
		first, after = i, i+1
	}
	// With problems there may be nulls where objects should be, and the result is not needed.
	for i := first; i < after && apply && len(r.problems) == 0 && r.take(memberBytes, path); i++ {
		r.take(d.steps[i].override(over), path)
	}
}

// checkDependencies looks for unknown names and for cycles, and drops repeated
// names.
func (r *templateReader) checkDependencies(d *templateDraft) {
	parents := make([][]int, len(d.steps))
	lastChild := make([]int, len(d.steps)) // by parent, plus 1
	for i := range d.steps {
		s, path := &d.steps[i], r.spelled(d.steps[i].path+".dependencies")
		var kept [][]byte
		for j, value := range templateElements(s.value("dependencies")) {
			name, ok := jsonString(value)
			if !ok {
				continue
			}
			switch p, known := d.index[name]; {
			case !known:
				r.problem(templateItemPath(path, j), "there is no step %q", clippedText(name))
			case p == i:
				r.problem(templateItemPath(path, j), "a step cannot depend on itself")
			case lastChild[p] == i+1:
				r.warn(templateItemPath(path, j), "%q is listed twice", clippedText(name))
			default:
				lastChild[p] = i + 1
				parents[i] = append(parents[i], p)
				kept = append(kept, value)
			}
		}
		s.set("dependencies", templateListJSON(kept))
	}
	if _, cycle := newGraph(parents); cycle != nil {
		r.problem("steps", "they depend on each other, each on the next: %s", cycleText(cycle, d.stepName))
	}
}

func (d *templateDraft) stepName(i int) string {
	name, _ := d.steps[i].name()
	return clippedText(name)
}

// checkWorkers warns of a batchable step whose worker is not a batch_worker step,
// and of a batch_worker step that no step creates.
func (r *templateReader) checkWorkers(t *template) {
	workers := map[string]bool{}
	for _, s := range t.steps {
		workers[s.name] = s.kind == stepBatchWorker
	}
	for i, s := range t.steps {
		if s.kind == stepBatchWorker && t.flow.makers[i] == 0 {
			r.warn(templateItemPath("steps", i), "is never created: no step of type %s creates it", stepBatchable)
		}
		if s.kind == stepBatchable && s.batchWorker != "" && !workers[s.batchWorker] {
			r.warn(templateItemPath("steps", i), "worker template %q is not a step of type %s",
				clippedText(s.batchWorker), stepBatchWorker)
		}
	}
}
