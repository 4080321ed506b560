package main

// Copies for readers: a task as it is, a page of a list, and the log of a task. What a copy
// takes of the memory is asked for first.

// view returns a copy of a task that nobody changes.
func (s *store) view(id uuid) (*task, error) {
	s.mu.Lock()
	kept, err := s.findLocked(id)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return s.taskIn(kept)
}

// holder is asked before about n bytes are taken for a copy of a large task. After
// an error they are not taken. A nil holder is not asked.
type holder interface{ hold(n int) error }

// times asks a holder for n times the memory of the task, which is what a view of it
// takes besides.
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
	smallLine  = 1 << 10  // the line of a task with few steps
)

// askFor asks for the memory of a copy with this many steps.
func askFor(steps int, h holder) error {
	if n := steps * stepMemory; n > smallCopy && h != nil {
		return h.hold(n)
	}
	return nil
}

// askForLine asks for the memory of the task in a line, if there is one.
func askForLine(line shortLine, h holder) error {
	if len(line) <= smallLine {
		return nil
	}
	head, err := readTaskHead(line.text())
	if err != nil {
		return err
	}
	return askFor(stepTotal(&head.counts), h)
}

// ask asks for the memory of the task.
func (l *taskLog) ask(h holder) error {
	if l.line != nil {
		return askForLine(l.line, h)
	}
	return askFor(l.steps, h)
}

// askForTask asks for the memory of a copy of a task.
func (s *store) askForTask(id uuid, h holder) error {
	l, err := s.logOf(id)
	if err != nil {
		return err
	}
	return l.ask(h)
}

// viewWithin is view; it asks for the memory.
func (s *store) viewWithin(id uuid, h holder) (*task, error) {
	s.mu.Lock()
	pos, ok := s.byID.find(id)
	if !ok {
		s.mu.Unlock()
		return nil, taskNotFound(id)
	}
	kept := s.slots[pos]
	if t := kept.live; t != nil && len(t.steps)*stepMemory > smallCopy {
		s.mu.Unlock()
		if err := askFor(len(t.steps), h); err != nil {
			return nil, err
		}
		return s.view(id)
	}
	kept = s.copyLocked(pos)
	s.mu.Unlock()
	return s.taskWithin(kept, h)
}

// viewObserved is view; an observer is told every record and transition of the
// task.
func (s *store) viewObserved(id uuid, obs replayer, h holder) (*task, error) {
	l, err := s.logOf(id)
	if err != nil {
		return nil, err
	}
	return s.replayLog(l, obs, h)
}

// listedTask is a task as it was when it was listed: a copy without its steps, or the
// line of one that was over.
type listedTask struct {
	slot
	at    instant
	ready int // steps of a live one
}

// taskList is a page of tasks as they were when they were listed.
type taskList struct {
	tasks         []listedTask
	total, before int        // tasks that match, and those of them up to the place that the query names
	last          taskPlace  // of the last task of the page
	counts        stateCount // by state, if the query asks for it
	seq           uint64     // everything in the page is durable with it
}

// list returns one page of the matching tasks.
func (s *store) list(q *taskQuery) (l taskList) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.index.list(q)
	l = taskList{tasks: make([]listedTask, len(r.positions)), total: r.total, before: r.before, counts: r.counts}
	now := s.clock.now()
	for i, pos := range r.positions {
		l.tasks[i] = listedTask{slot: s.slots[pos], at: now}
		if t := l.tasks[i].live; t != nil {
			l.tasks[i].live, l.tasks[i].ready = t.withoutSteps(), t.readySteps(now)
		}
		l.seq = max(l.seq, s.lastSeqLocked(pos))
	}
	if n := len(r.positions); n > 0 {
		last := r.positions[n-1]
		l.last = taskPlace{s.index.rank(q.order, last), s.seqAt(last)}
	}
	return l
}

// taskLog is what a task can be replayed from without a lock.
type taskLog struct {
	line shortLine // of a task that is over
	id   uuid      // of a live task, like tpl, log and steps
	tpl  *template
	log  []byte

	steps int
}

// logOf returns the log of a task.
func (s *store) logOf(id uuid) (taskLog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pos, ok := s.byID.find(id)
	if !ok {
		return taskLog{}, taskNotFound(id)
	}
	return s.logLocked(pos), nil
}
