package main

// What lists find tasks by: their states and templates have an index, in the table of tasks. For everything else a list
// looks at each task that may match, which takes a few milliseconds for 100,000.

import (
	"hash/maphash"
	"slices"
	"strings"
)

// taskFilter selects tasks; empty members select all.
type taskFilter struct {
	namespace, name, version    string
	initiator, source           string
	text                        string // in the namespace or the name, in lower case
	tags                        []string
	correlation, parent         uuid
	trace                       string
	failure                     failureGroup // of one of its steps
	values                      []contextValue
	states                      stateSet
	created, updated, completed period
}

func (f *taskFilter) selects(tpl *template) bool {
	return (f.namespace == "" || f.namespace == tpl.namespace) && (f.name == "" || f.name == tpl.name) &&
		(f.version == "" || f.version == tpl.version) && (f.text == "" ||
		strings.Contains(strings.ToLower(tpl.namespace), f.text) || strings.Contains(strings.ToLower(tpl.name), f.text))
}

// period is the time after one instant and before another; zero for no limit.
type period struct{ after, before instant }

func (p period) has(at instant) bool {
	return (p.after == 0 || at > p.after) && (p.before == 0 || at < p.before)
}

// taskIndex counts tasks and steps, and makes the labels of tasks. The store's mutex guards it.
type taskIndex struct {
	templates []*templateTasks // by number; there is no number 0
	numbers   map[*template]int
	states    [taskStates]int // number of tasks in each state
	steps     [stepStates]int // number of steps of all tasks in each state

	seed   maphash.Seed            // of the labels
	texts  map[string]*failureText // of the errors of all tasks
	key    failureKey              // of the store's failure groups; not changed once it has tasks
	bytes  int64                   // memory that labels, errors and failing steps take
	resize func(by int64)          // notes that they take so much more
}

// templateTasks counts the tasks of a template by state.
type templateTasks struct {
	tpl    *template
	states [taskStates]int
}

func newTaskIndex(resize func(by int64)) taskIndex {
	return taskIndex{
		templates: []*templateTasks{{tpl: &template{}}}, numbers: map[*template]int{}, seed: maphash.MakeSeed(),
		texts: map[string]*failureText{}, resize: resize,
	}
}

func (x *taskIndex) kind(tpl *template, state taskState) slotKind {
	n := x.numbers[tpl]
	if n == 0 {
		n = len(x.templates)
		x.templates, x.numbers[tpl] = append(x.templates, &templateTasks{tpl: tpl}), n
	}
	return slotKind(n<<4 | int(state))
}

// count counts more or fewer tasks of a kind.
func (x *taskIndex) count(k slotKind, by int) {
	x.templates[k.template()].states[k.state()] += by
	x.states[k.state()] += by
}

// selected returns by number which templates a filter selects, and how many of their tasks there are in each state.
func (x *taskIndex) selected(f *taskFilter) (selected []bool, counts stateCount) {
	selected = make([]bool, len(x.templates))
	for n, t := range x.templates {
		if selected[n] = f.selects(t.tpl); selected[n] {
			for s, tasks := range t.states {
				counts[s] += tasks
			}
		}
	}
	return selected, counts
}

// slotLabels is what a slot has for those who find its task.
type slotLabels struct {
	called bool // whether a caller gave the correlation id
	*trouble
}

// trouble holds the failures of a task; nil if it has none.
type trouble struct {
	errors   []*failureText // of its attempts
	failures []failingStep  // the steps that are failing now, in order
	one      [1]failingStep // room for the usual case
}

// The kinds of labels.
const (
	labelInitiator   = 'i'
	labelSource      = 's'
	labelTag         = 't'
	labelCorrelation = 'c'
	labelParent      = 'p'
	labelTrace       = 'r'
	labelValue       = 'v'
)

// maxLabelTags is how many tags of a task are indexed: more would take long under the lock.
const maxLabelTags = 256

// labelOf returns the hash of a label of a kind. Nobody outside can find two labels with one
// hash. No part but the last has a byte 0.
func (x *taskIndex) labelOf(kind byte, parts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(x.seed)
	h.WriteByte(kind)
	for i, part := range parts {
		if i > 0 {
			h.WriteByte(0)
		}
		h.WriteString(part)
	}
	return h.Sum64()
}

func sieveOf(label uint64) uint64 { return 1 << (label & 63) }

// label returns the labels of a new task.
func (x *taskIndex) label(sl *slot, by *creation) []uint64 {
	var room [16]uint64
	labels := x.plainLabels(room[:0], by.initiator, by.source, by.tags[:min(len(by.tags), maxLabelTags)], by.parentCorrelation, by.traceID())
	if sl.called = !by.correlation.isZero(); sl.called {
		labels = append(labels, x.labelOf(labelCorrelation, string(by.correlation[:])))
	}
	for path, value := range jsonMemberBytes(by.search) {
		labels = append(labels, x.valueLabel(string(path), value))
	}
	x.grow(labelBytes * len(labels))
	return slices.Clone(labels)
}

// plainLabels appends the labels of what is given.
func (x *taskIndex) plainLabels(labels []uint64, initiator, source string, tags []string, parent uuid, trace string) []uint64 {
	add := func(kind byte, text string) {
		if text != "" {
			labels = append(labels, x.labelOf(kind, text))
		}
	}
	add(labelInitiator, initiator)
	add(labelSource, source)
	for _, tag := range tags {
		add(labelTag, tag)
	}
	if !parent.isZero() {
		add(labelParent, string(parent[:]))
	}
	add(labelTrace, trace)
	return labels
}

// unlabel forgets the labels and the errors of a task.
func (x *taskIndex) unlabel(sl *slot, labels []uint64) {
	x.grow(-labelBytes * len(labels))
	if sl.trouble != nil {
		x.forgetErrors(sl.trouble)
		x.grow(-failingBytes * len(sl.failures))
	}
}

// grow notes that the index takes more bytes of memory.
func (x *taskIndex) grow(by int) {
	x.bytes += int64(by)
	x.resize(int64(by))
}

// wantedLabels returns the labels that a filter asks for: of each list, a task must have one.
func (x *taskIndex) wantedLabels(f *taskFilter) (all [][]uint64) {
	for _, label := range x.plainLabels(nil, f.initiator, f.source, f.tags, f.parent, f.trace) {
		all = append(all, []uint64{label})
	}
	for _, v := range f.values {
		all = append(all, x.labelsOf(v))
	}
	return all
}

// taskMatcher looks at what a filter asks for besides states and templates.
type taskMatcher struct {
	tasks  *slotTable
	filter *taskFilter
	labels [][]uint64
	caller []uint64 // the label of the correlation, if a caller gave it
	own    uint64   // the creation of the task for which the service made this correlation
	timed  bool     // whether the filter asks for times
	simple bool     // whether there is nothing to look at
}

func (x *slotTable) matcher(f *taskFilter) (m taskMatcher) {
	m = taskMatcher{tasks: x, filter: f, labels: x.index.wantedLabels(f)}
	if !f.correlation.isZero() {
		m.caller = []uint64{x.index.labelOf(labelCorrelation, string(f.correlation[:]))}
		m.own = x.correlated(f.correlation)
	}
	m.timed = f.created != period{} || f.updated != period{} || f.completed != period{}
	m.simple = len(m.labels) == 0 && m.caller == nil && f.failure == 0 && !m.timed
	return m
}

func (m *taskMatcher) matches(at int) bool {
	f, marks := m.filter, &m.tasks.marks[at]
	if m.timed && (!f.created.has(marks.created) || !f.updated.has(marks.updated) ||
		f.completed != (period{}) && !(m.tasks.kinds[at].state().ended() && f.completed.has(marks.completed))) {
		return false
	}
	for _, any := range m.labels {
		if !m.tasks.has(at, any) {
			return false
		}
	}
	return (m.caller == nil || m.tasks.seqs[at] == m.own || m.tasks.has(at, m.caller)) &&
		(f.failure == 0 || marks.failsIn(f.failure))
}

// has reports whether the task at a place has one of some labels.
func (x *slotTable) has(at int, labels []uint64) bool {
	for _, label := range labels {
		if m := &x.marks[at]; m.sieve&sieveOf(label) != 0 && slices.Contains(m.labels, label) {
			return true
		}
	}
	return false
}

// correlated returns the creation of the task for which the service made a correlation id; 0 for none.
func (x *slotTable) correlated(id uuid) uint64 {
	for _, t := range x.index.templates[1:] {
		// The service's own correlation id follows the ids of the declared steps.
		sl, ok := x.find(id.plus(-len(t.tpl.steps) - 1))
		if ok && sl.tpl == t.tpl && !sl.called {
			return sl.seq
		}
	}
	return 0
}

// blockedTasks returns the number of blocked tasks by template, which the store's lock guards.
func (x *slotTable) blockedTasks() map[templateName]int {
	blocked := map[templateName]int{}
	for _, t := range x.index.templates {
		if n := t.states[taskBlockedByFailures]; n > 0 {
			blocked[t.tpl.names()] += n
		}
	}
	return blocked
}

// figures returns everything that was counted, and the states, as of one moment.
func (s *store) figures() (*frozenFigures, stateCounts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.analytics.freeze()
	// Otherwise the first task that ever was may be gone.
	if s.retain.dropped == 0 && len(s.tasks.slots) > 0 {
		f.first = s.tasks.marks[0].created
	}
	return f, s.tasks.counts()
}

// counts returns how many tasks and steps are in each state.
func (s *store) counts() stateCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tasks.counts()
}

// counts returns how many tasks and steps are in each state.
func (x *slotTable) counts() stateCounts { return stateCounts{x.index.states, x.index.steps} }

// stateCount is a number of tasks for each state.
type stateCount [taskStates]int
