package main

// Finding anything by a text: tasks by their ids, keys, tags, errors and values of their contexts, and templates and
// steps by their names.

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// findQuery asks for everything that has a text.
type findQuery struct {
	text     string
	limit    int                     // hits of a kind
	may      func(p permission) bool // what the caller may do
	requests []replayKey             // of the caller's requests with the text as Idempotency-Key
}

// shortestNamePart is how many characters of a name or an error find it; of a name all do.
const shortestNamePart = 3

// findView is what was found.
type findView struct {
	Query   string    `json:"query"`
	Hits    []findHit `json:"hits"`     // by kind, the newest first
	More    []string  `json:"more"`     // kinds of which there are more hits
	LeftOut []findGap `json:"left_out"` // what was not searched, and why
}

// findHit is one match. Without a task it is a template that has none.
type findHit struct {
	Kind      string    `json:"kind"`
	Path      string    `json:"path"`  // the member that matched
	Value     string    `json:"value"` // of the member
	TaskUUID  *uuid     `json:"task_uuid"`
	StepUUID  *uuid     `json:"step_uuid"`
	StepName  *string   `json:"step_name"` // of a step found by its id or its error
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	Status    *string   `json:"status"`
	CreatedAt zonedTime `json:"created_at"`
	Tasks     *int      `json:"tasks"` // of the template, if that or a step of it was found by name
	taskAbout           // of the task
}

// findGap is what was not searched of a kind.
type findGap struct {
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
}

// findKinds are the kinds of hits, in their order in an answer. Each needs one of some permissions, besides that to
// list tasks.
var findKinds = [...]struct {
	kind  string
	needs []permission
	find  func(f *finding) ([]findHit, error)
}{
	{"task", nil, (*finding).tasks},
	{"step", []permission{permStepsRead, permTasksRead}, (*finding).steps},
	{"dead_letter", []permission{permDLQRead}, (*finding).deadLetters},
	{"context", []permission{permTasksContextRead}, (*finding).contexts},
	{"correlation", nil, (*finding).correlations},
	{"trace", nil, (*finding).traces},
	{"idempotency_key", []permission{permTasksRead}, (*finding).keys},
	{"tag", nil, (*finding).tags},
	{"template", nil, (*finding).templateNames},
	{"error", []permission{permStepsRead}, (*finding).errors},
}

// finding is one search.
type finding struct {
	*findQuery
	s      *service
	stored finder
	by     holder
	lower  string // the text in lower case
	digits string // of the text as an id or a part of one; "" if it is neither
	known  []*template

	registered map[string]bool // full names
	shown      map[string]bool // full names with what was found of them
	foundTasks
	values []contextValue // that it may be
	gaps   []findGap
}

// find returns what has the text of a query, as far as the caller may know.
func (s *service) find(q *findQuery, by holder) (*findView, error) {
	f := &finding{findQuery: q, s: s, stored: newFinder(s.store), by: by, lower: strings.ToLower(q.text),
		registered: map[string]bool{}, shown: map[string]bool{}}
	f.collectTemplates()
	if id := strings.ReplaceAll(f.lower, "-", ""); len(id) >= shortestIDPart && len(id) <= 32 && strings.Trim(id, "0123456789abcdef") == "" {
		f.digits = id
	}
	f.search()
	v := &findView{Query: q.text, Hits: []findHit{}, More: []string{}}
	for _, k := range findKinds {
		if len(k.needs) > 0 && !slices.ContainsFunc(k.needs, q.may) {
			var names []string
			for _, p := range k.needs {
				names = append(names, p.String())
			}
			f.leaveOut(k.kind, "needs the permission "+anyOf(names))
			continue
		}
		hits, err := k.find(f)
		if err != nil {
			return nil, err
		}
		if len(hits) > f.limit {
			hits, v.More = hits[:f.limit], append(v.More, k.kind)
		}
		for i := range hits {
			hits[i].Kind = k.kind
			if err := f.describe(&hits[i]); err != nil {
				return nil, err
			}
		}
		v.Hits = append(v.Hits, hits...)
	}
	v.LeftOut = append([]findGap{}, f.gaps...)
	return v, nil
}

// What search asks for, before the values.
const (
	findTag = iota
	findParent
	findTrace
	findValues
)

// search looks at each task, once for all kinds of hits.
func (f *finding) search() {
	q := &taskSearch{limit: f.limit + 1, by: make([]taskFilter, findValues)} // one more shows that there are more
	if f.digits != "" {
		q.part = newIDPart(f.digits)
	}
	if len(f.text) >= shortestNamePart && f.may(permStepsRead) {
		q.text = f.lower
	}
	q.by[findTag].tags = []string{f.text}
	q.by[findParent].parent, _ = parseUUID(f.text)
	if len(f.digits) == 32 {
		q.by[findTrace].trace = f.digits
	}
	path, text, _ := strings.Cut(f.text, "=")
	for _, p := range f.searchPaths() {
		if f.values = append(f.values, contextValue{p, f.text}); p == path {
			f.values = append(f.values, contextValue{p, text})
		}
	}
	for _, v := range f.values {
		q.by = append(q.by, taskFilter{values: []contextValue{v}})
	}
	f.foundTasks = f.stored.find(q)
}

func (f *finding) leaveOut(kind, reason string) { f.gaps = append(f.gaps, findGap{kind, reason}) }

// collectTemplates lists the registered templates, and the templates of tasks, which may be earlier definitions.
func (f *finding) collectTemplates() {
	hashes := map[string]bool{}
	for _, t := range f.s.templates.registry().sorted {
		f.registered[t.fullName()], hashes[t.hash] = true, true
		f.known = append(f.known, t)
	}
	for _, t := range f.s.store.taskTemplates().all() {
		if !hashes[t.hash] {
			f.known = append(f.known, t)
		}
	}
}

// describe sets what the task of a hit is about, and why it fails.
func (f *finding) describe(h *findHit) error {
	if h.TaskUUID == nil {
		return nil
	}
	listed := f.stored.listedByID([]uuid{*h.TaskUUID})
	return f.each(listed, func(t *task) (err error) {
		h.taskAbout, err = f.s.store.aboutOf(&listed[0], t, f.may, f.by)
		return err
	})
}

func (t *task) hit(path, value string) findHit {
	return findHit{
		Path: path, Value: value, TaskUUID: new(t.id), Status: new(t.state.String()), CreatedAt: zonedTime(t.created),
		Namespace: t.tpl.namespace, Name: t.tpl.name, Version: t.tpl.version,
	}
}

// each calls f for each of some tasks as they were listed.
func (f *finding) each(listed []keptTask, add func(t *task) error) error {
	for i := range listed {
		t, _, err := listed[i].listed(f.by)
		if err == nil {
			err = add(t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hitsOf returns hits of tasks as they were listed.
func (f *finding) hitsOf(listed []keptTask, path, value string) (hits []findHit, err error) {
	return hits, f.each(listed, func(t *task) error {
		hits = append(hits, t.hit(path, value))
		return nil
	})
}

func (f *finding) tasks() (hits []findHit, err error) {
	ids := make([]uuid, len(f.own))
	for i, id := range f.own {
		ids[i] = id.task
	}
	return hits, f.each(f.stored.listedByID(ids), func(t *task) error {
		hits = append(hits, t.hit("task_uuid", t.id.String()))
		return nil
	})
}

// following calls add with each id found that follows that of its task.
func (f *finding) following(add func(t *task, found foundID) error) error {
	for _, found := range f.others {
		err := f.each(f.stored.listedByID([]uuid{found.task}), func(t *task) error { return add(t, found) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *finding) steps() (hits []findHit, err error) {
	err = f.following(func(t *task, found foundID) error {
		if found.plus > len(t.tpl.steps) {
			return nil
		}
		id, name := found.id(), ""
		// Only the whole task knows these ids. Others follow from the place of the step in the template.
		if t.tpl.dynamic || t.by.steps != nil {
			whole, err := f.s.store.viewWithin(t.id, f.by)
			if err != nil {
				return err
			}
			i, ok := whole.stepIndex(id)
			if !ok {
				return nil
			}
			name = whole.def(i).name
		} else {
			name = t.tpl.steps[found.plus-1].name
		}
		h := t.hit("step_uuid", id.String())
		h.StepUUID, h.StepName = new(id), new(name)
		hits = append(hits, h)
		return nil
	})
	for _, t := range f.known {
		for i := range t.steps {
			name := t.steps[i].name
			if err != nil || len(hits) > f.limit {
				return hits, err
			}
			if f.matches(name) {
				hits, err = f.addTemplate(hits, t, name)
			}
		}
	}
	return hits, err
}

func (f *finding) templateNames() (hits []findHit, err error) {
	for _, t := range f.known {
		if err != nil || len(hits) > f.limit {
			break
		}
		short := t.namespace + "/" + t.name + "@" + t.version
		if f.matches(short) || f.matches(t.fullName()) || f.matches(t.name) || f.matches(t.namespace) {
			hits, err = f.addTemplate(hits, t, short)
		}
	}
	return hits, err
}

// matches reports whether a name contains the text or, if the text is short, equals it.
func (f *finding) matches(name string) bool {
	if len(f.text) < shortestNamePart {
		return strings.EqualFold(name, f.text)
	}
	return strings.Contains(strings.ToLower(name), f.lower)
}

// addTemplate appends a hit of a template, or of a step of it, with its newest task. The caller learns of a template
// without tasks only if it may read templates.
func (f *finding) addTemplate(hits []findHit, t *template, value string) ([]findHit, error) {
	place := t.fullName() + "\x00" + value
	if f.shown[place] {
		return hits, nil
	}
	f.shown[place] = true
	l := f.s.store.list(&taskQuery{taskFilter: taskFilter{namespace: t.namespace, name: t.name, version: t.version}, limit: 1})
	if l.total == 0 && !(f.registered[t.fullName()] && (f.may(permTemplatesRead) || f.may(permSystemHandlersRead))) {
		return hits, nil
	}
	h := findHit{Namespace: t.namespace, Name: t.name, Version: t.version}
	err := f.each(l.tasks, func(t *task) error {
		h = t.hit("", "")
		return nil
	})
	h.Path, h.Value, h.Tasks = "name", value, new(l.total)
	return append(hits, h), err
}

func (f *finding) deadLetters() (hits []findHit, err error) {
	if f.digits == "" {
		return nil, nil
	}
	for _, r := range f.stored.lettersWithIDPart(f.digits, f.limit+1) {
		err = cmp.Or(err, f.each(f.stored.listedByID([]uuid{r.task}), func(t *task) error {
			hits = append(hits, t.hit("dlq_entry_uuid", r.id.String()))
			return nil
		}))
	}
	return hits, err
}

// searchPaths returns the paths that templates search, sorted.
func (f *finding) searchPaths() []string {
	paths := map[string]bool{}
	for _, t := range f.known {
		for _, p := range t.search {
			paths[p] = true
		}
	}
	return slices.Sorted(maps.Keys(paths))
}

func (f *finding) contexts() (hits []findHit, err error) {
	for i, v := range f.values {
		if err := f.each(f.having[findValues+i], func(t *task) error {
			hits = append(hits, t.hit(v.path, t.by.searched(v.path)))
			return nil
		}); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(hits, func(a, b findHit) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
	return hits, nil
}

func (f *finding) correlations() (hits []findHit, err error) {
	if id, ok := parseUUID(f.text); ok {
		l := f.s.store.list(&taskQuery{taskFilter: taskFilter{correlation: id}, limit: f.limit + 1})
		hits, err = f.hitsOf(l.tasks, "correlation_id", id.String())
		parents, missing := f.hitsOf(f.having[findParent], "parent_correlation_id", id.String())
		return append(hits, parents...), cmp.Or(err, missing)
	}
	return hits, f.following(func(t *task, found foundID) error {
		if found.plus == len(t.tpl.steps)+1 && t.by.correlation.isZero() {
			hits = append(hits, t.hit("correlation_id", t.correlation().String()))
		}
		return nil
	})
}

func (f *finding) traces() ([]findHit, error) {
	return f.hitsOf(f.having[findTrace], "trace_id", f.digits)
}

// keys finds the tasks with an idempotency_key, and the tasks of the caller's own requests with an Idempotency-Key.
func (f *finding) keys() (hits []findHit, err error) {
	// The store finds a key only by its hash with the name of a template, so each name is tried.
	names, identities := map[templateName]bool{}, []identityKey(nil)
	for _, t := range f.known {
		if !names[t.names()] {
			names[t.names()] = true
			identities = append(identities, identityOf(t, f.text, nil))
		}
	}
	identified, requested := f.stored.byKeys(identities, f.requests)
	hits, err = f.hitsOf(f.stored.listedByID(identified), "idempotency_key", f.text)
	others, missing := f.hitsOf(f.stored.listedByID(requested), "Idempotency-Key", f.text)
	return append(hits, others...), cmp.Or(err, missing)
}

func (f *finding) tags() ([]findHit, error) {
	return f.hitsOf(f.having[findTag], "tags", f.text)
}

func (f *finding) errors() (hits []findHit, err error) {
	if len(f.text) < shortestNamePart {
		f.leaveOut("error", "needs a text of 3 characters or more")
		return nil, nil
	}
	for _, l := range f.failed {
		o := &errorSeeker{text: f.lower}
		t, err := l.replay(o, f.by)
		if err != nil {
			return nil, err
		}
		if o.step != nil {
			h := t.hit("error", o.headline)
			h.StepUUID, h.StepName = new(t.stepID(*o.step)), new(t.def(*o.step).name)
			hits = append(hits, h)
		}
	}
	return hits, nil
}

// errorSeeker looks for the newest attempt of a task whose error has a text, while the task is replayed.
type errorSeeker struct {
	unobserved
	text     string // in lower case
	step     *int   // which step that was; nil for none
	headline string
}

func (o *errorSeeker) startRecord(_ *task, r *record) {
	if r.end == nil || r.end.success || r.kind == recLate || !strings.Contains(errorTextOf(r.end.err), o.text) {
		return
	}
	f, _ := r.end.fault()
	o.step, o.headline = new(r.step), f.errorType+": "+withoutType(f.shown(), f.errorType)
}

// searchable returns an error unless templates search the paths of all values of contexts.
func (s *service) searchable(values []contextValue) error {
	f := finding{s: s, registered: map[string]bool{}}
	f.collectTemplates()
	paths := f.searchPaths()
	i := slices.IndexFunc(values, func(v contextValue) bool { return !slices.Contains(paths, v.path) })
	if i < 0 {
		return nil
	}
	const most = 10
	known := "no template has any"
	if len(paths) > 0 {
		known = "there is " + anyOf(paths[:min(len(paths), most)])
	}
	return failf(badRequest, "context.%s: no template has this path in search; %s", clipText(values[i].path, 60), known)
}
