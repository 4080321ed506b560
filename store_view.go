package main

// Copies for readers: a task as it is or was, whole or as a list shows it. The memory for a large copy is asked for
// before it is made.

import (
	"cmp"
	"maps"
	"slices"
	"sync"
)

// taskTemplates holds the templates of all tasks, for as long as the store is open.
type taskTemplates struct {
	mu     sync.RWMutex
	byHash map[string]*template // guarded by mu; nobody changes a template
}

// find returns the template with a hash, or nil.
func (t *taskTemplates) find(hash string) *template {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byHash[hash]
}

// extraOf returns how many bytes a creation may take beyond what every change may take.
func (t *taskTemplates) extraOf(by *creation, tpl *template) int {
	if t.find(tpl.hash) != nil {
		return by.origin.size()
	}
	return by.origin.size() + len(tpl.json)
}

func (t *taskTemplates) keep(tpl *template) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byHash[tpl.hash] = tpl
}

// keptTask is a task as it was at a moment, to be read without the lock. Nobody changes it.
type keptTask struct {
	ended *slot   // of a task that was over
	live  *task   // a copy of a live one, which may lack its steps; or of one that was over, if it need not be decoded
	at    instant // when a list was made
	ready int     // how many steps of a live one were ready then
}

// kept returns the task in a slot as it is at an instant. A live one lacks its steps, but has its log: later records go
// behind that or into another one.
func (sl *slot) kept(now instant) keptTask {
	if t := sl.live; t != nil {
		return keptTask{live: t.withoutSteps(), ready: t.readySteps(now), at: now}
	}
	return keptTask{ended: sl, at: now}
}

func (sl *slot) whole() keptTask {
	if sl.live != nil {
		return keptTask{live: sl.live.clone()}
	}
	return keptTask{ended: sl}
}

func (x *slotTable) wholeByID(id uuid) (keptTask, error) {
	if sl, ok := x.find(id); ok {
		return sl.whole(), nil
	}
	return keptTask{}, taskNotFound(id)
}

// keptOf returns the task with an id, without its steps.
func (s *store) keptOf(id uuid) (keptTask, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sl, ok := s.tasks.find(id); ok {
		return sl.kept(0), nil
	}
	return keptTask{}, taskNotFound(id)
}

func (k *keptTask) header() *taskHeader {
	if k.live != nil {
		return &k.live.taskHeader
	}
	return &k.ended.taskHeader
}

func (k *keptTask) task() (*task, error) {
	if k.live != nil {
		return k.live, nil
	}
	return k.ended.replay(unobserved{})
}

// taskWithin is task; it asks for the memory.
func (k *keptTask) taskWithin(h holder) (*task, error) {
	if err := k.ask(h); err != nil {
		return nil, err
	}
	return k.task()
}

// listed returns a task that was kept, perhaps without its steps, and how many of these were ready.
func (k *keptTask) listed(by holder) (found *task, ready int, err error) {
	if k.live != nil {
		return k.live, k.ready, nil
	}
	sl := k.ended
	// Only a replay shows whether its steps are ready.
	if sl.counts[stepPending]+sl.counts[stepWaitingForRetry] > 0 {
		if found, err = k.taskWithin(by); err == nil {
			ready = found.readySteps(k.at)
		}
		return found, ready, err
	}
	created, err := sl.creation()
	return &task{taskHeader: sl.taskHeader, by: created}, 0, err
}

// replay replays the task for an observer, and returns it. It asks for the memory.
func (k *keptTask) replay(obs replayer, by holder) (*task, error) {
	if err := k.ask(by); err != nil {
		return nil, err
	}
	if k.ended != nil {
		return k.ended.replay(obs)
	}
	return replayRecords(k.live.id, k.live.tpl, k.live.log, obs)
}

// view returns a copy of a task that nobody changes.
func (s *store) view(id uuid) (*task, error) { return s.viewWithin(id, nil) }

// viewWithin is view; it asks for the memory.
func (s *store) viewWithin(id uuid, h holder) (*task, error) {
	if h != nil {
		// The holder may have to wait for memory, which must not happen under the lock. The copy is
		// then of the task as it is afterwards.
		if err := s.askForTask(id, h); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	k, err := s.tasks.wholeByID(id)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return k.task()
}

// viewObserved is view; an observer receives every record and transition of the task.
func (s *store) viewObserved(id uuid, obs replayer, h holder) (*task, error) {
	k, err := s.keptOf(id)
	if err != nil {
		return nil, err
	}
	return k.replay(obs, h)
}

// holder is asked before about n bytes are taken for a copy of a large task. After
// an error they are not taken. A nil holder is not asked.
type holder interface{ hold(n int) error }

// times is a holder that asks another for n times as much, because a view takes memory beyond that of the copied task.
type times struct {
	by holder
	n  int
}

func (t times) hold(n int) error {
	if t.by == nil {
		return nil
	}
	return t.by.hold(t.n * n)
}

const (
	stepMemory = 512      // what a step of a copy takes, about
	smallCopy  = 16 << 10 // nobody is asked for less
)

// askFor asks for the memory of a copy with this many steps.
func askFor(steps int, h holder) error {
	if n := steps * stepMemory; n > smallCopy && h != nil {
		return h.hold(n)
	}
	return nil
}

func (k *keptTask) ask(h holder) error { return askFor(k.header().stepTotal(), h) }

// askForTask asks for the memory of a copy of a task.
func (s *store) askForTask(id uuid, h holder) error {
	k, err := s.keptOf(id)
	if err == nil {
		err = k.ask(h)
	}
	return err
}

// writeLines passes every template's line to add, without its closing brace.
func (t *taskTemplates) writeLines(add func(line []byte) error) error {
	var buf []byte
	for _, tpl := range t.all() {
		buf = append(append(buf[:0], `{"hash":"`...), tpl.hash...)
		buf = append(append(buf, `","definition":`...), tpl.json...)
		if err := add(buf); err != nil {
			return err
		}
	}
	return nil
}

// all returns all templates that tasks refer to, sorted by hash.
func (t *taskTemplates) all() []*template {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.SortedFunc(maps.Values(t.byHash), func(a, b *template) int { return cmp.Compare(a.hash, b.hash) })
}

func (t *taskTemplates) copy() map[string]*template {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return maps.Clone(t.byHash)
}
