package main

// What is checked of a world: that nothing acknowledged is lost, that nothing is done twice but as documented, that
// readers and subscribers have everything, that what a life finds is what the one before it left, and that every task
// ends.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"stepwell/e2e/wire"
)

// worldTaskView holds the members of a task that the model reads.
type worldTaskView struct {
	ID     string `json:"task_uuid"`
	Name   string
	Status string
	Steps  []worldStepView
}

type worldStepView struct {
	ID       string `json:"workflow_step_uuid"`
	OwnID    string `json:"step_uuid"` // where the step is shown alone
	Name     string
	State    string `json:"current_state"`
	Attempts int
	Results  *struct{ Result json.RawMessage }
}

// worldEvent is a domain event.
type worldEvent struct {
	ID, Type string
	Seq      uint64
	N        int
	Task     string `json:"task_uuid"`
}

// worldTask is what participants know of a task.
type worldTask struct {
	told  bool // a client was told that it was created
	over  bool // it was seen to have ended for good
	gone  bool // it was seen to be missing
	final string
}

// worldOffer is what a subscriber knows of an event.
type worldOffer struct {
	worldEvent
	life  *worldLife // in which it was taken last; nil if it never was
	taken time.Time
}

// worldModel is what the participants know together.
type worldModel struct {
	w       *worldRun
	log     bytes.Buffer // of the service, which writes it under a lock
	readers [2]worldReader

	mu      sync.Mutex
	tasks   map[string]*worldTask
	keys    map[string]string // tasks by key
	steps   map[string]*stepHistory
	cancels map[string][]*stepOp              // by task
	lost    []*stepOp                         // claims of unknown outcome
	calls   map[string]*worldLife             // in which a handler was called last, by delivery
	resets  map[string]bool                   // steps that an operator may have reset
	latest  map[string]int                    // attempt of a step that a handler was called with last
	offers  map[string]map[string]*worldOffer // by subscriber and event
	order   map[string]*worldOffer            // the newest event that a subscriber was offered in a life
	images  map[string]string                 // lines of tasks at the end of the life before
	seq     uint64                            // at that end
	acked   uint64                            // durable then
	figures string                            // at that end, if it was clean
	retried map[*worldLife]time.Time
	quietAt uint64
	many    map[string]int  // what lines told was done, by reason
	onHold  map[string]bool // tasks that may have been on hold
	waits   string          // what is not quiet
}

func (m *worldModel) init(w *worldRun) {
	m.w = w
	m.tasks, m.keys, m.steps = map[string]*worldTask{}, map[string]string{}, map[string]*stepHistory{}
	m.cancels, m.resets = map[string][]*stepOp{}, map[string]bool{}
	m.calls, m.latest = map[string]*worldLife{}, map[string]int{}
	m.offers, m.order = map[string]map[string]*worldOffer{}, map[string]*worldOffer{}
}

func (m *worldModel) task(id string) *worldTask {
	if m.tasks[id] == nil {
		m.tasks[id] = &worldTask{}
	}
	return m.tasks[id]
}

// created notes that a client was told of its new task.
func (m *worldModel) created(id, key string, x *worldAnswer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if key == "" && m.task(id).told {
		m.w.Errorf("task %s was created twice", id)
	}
	if other := m.keys[key]; key != "" && other != "" && other != id {
		m.w.Errorf("the key %s gave the tasks %s and %s", key, other, id)
	}
	m.keys[key] = id
	m.task(id).told = true
	m.w.figures.tasks.Add(1)
}

// saw notes how a task was shown.
func (m *worldModel) saw(v *worldTaskView, x *worldAnswer) {
	m.mu.Lock()
	t := m.task(v.ID)
	if final := v.Status; slices.Contains([]string{"complete", "cancelled", "resolved_manually"}, final) {
		if t.final != "" && t.final != final {
			m.w.Errorf("task %s was %s and is %s", v.ID, t.final, final)
		}
		t.over, t.final = true, final
	}
	m.mu.Unlock()
	for _, s := range v.Steps {
		m.sawStep(s.ID, v.ID, &s, x)
	}
}

// sawStep notes how a step was shown, with its result if that was shown.
func (m *worldModel) sawStep(id, task string, v *worldStepView, x *worldAnswer) {
	o := &stepOp{kind: opSee, state: v.State, attempt: v.Attempts, x: x, ok: true, whole: v.Results != nil}
	if o.whole {
		o.nonce = nonceOf(v.Results.Result)
	}
	m.step(id, task).add(o)
}

// nonceOf returns what makes a result unique, or "".
func nonceOf(result []byte) string {
	var v struct{ Nonce string }
	json.Unmarshal(result, &v)
	return v.Nonce
}

// missed notes that a task is not there.
func (m *worldModel) missed(id string, x *worldAnswer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.task(id).gone = true; !m.w.part("retention") {
		m.w.Errorf("task %s is missing: %s", id, x.body)
	}
}

// cancelled notes that a task was cancelled, or perhaps.
func (m *worldModel) cancelled(id string, x *worldAnswer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.task(id); x.status == 200 {
		t.over, t.final = true, "cancelled"
	}
	m.cancels[id] = append(m.cancels[id], &stepOp{kind: opCancel, x: x, ok: x.status == 200})
}

// claimed notes what a claim gave.
func (m *worldModel) claimed(given []*worldClaim, x *worldAnswer) {
	for _, c := range given {
		if c.Step.Config.Within != "" {
			m.step(c.Step.ID, c.Task.ID).timed.Store(true)
		}
		m.step(c.Step.ID, c.Task.ID).add(&stepOp{kind: opClaim, lease: c.Lease, attempt: c.Step.Attempt, until: c.Expires, x: x, ok: true})
	}
	if x.unknown() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.lost = append(m.lost, &stepOp{kind: opClaim, x: x})
	}
}

// resetting notes that an operator is about to reset a step, whose attempts then count from 1 again.
func (m *worldModel) resetting(step string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resets[step] = true
}

// step returns the history of a step of a task.
func (m *worldModel) step(id, task string) *stepHistory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.steps[id] == nil {
		m.steps[id] = &stepHistory{id: id, task: task}
	}
	return m.steps[id]
}

// answered notes what became of an outcome or extension.
func (m *worldModel) answered(o *worldOutcome, x *worldAnswer) {
	if x.status == 404 || x.status == 410 {
		m.mu.Lock()
		defer m.mu.Unlock()
		if t := m.task(o.claim.Task.ID); !m.w.part("retention") {
			m.w.Errorf("step %s is missing: %s", o.claim.Step.ID, x.body)
		} else {
			t.gone = true
		}
		return
	}
	if !x.unknown() && x.status != 200 && x.status != 409 {
		m.w.Errorf("%s of step %s: got %d %s", o.verb, o.claim.Step.ID, x.status, x.body)
	}
	op := &stepOp{kind: o.verb, lease: o.claim.Lease, nonce: o.nonce, x: x, ok: x.status == 200,
		final: strings.Contains(o.body, `"retryable":false`)}
	if o.verb == opExtend && op.ok {
		var v struct {
			Expires time.Time `json:"lease_expires_at"`
		}
		json.Unmarshal(x.body, &v)
		op.until = v.Expires
		var asked time.Duration
		fmt.Sscanf(o.body, `"lease_seconds":%d`, &asked)
		if least := x.at.Add(asked * time.Second); op.until.Before(least.Truncate(time.Millisecond)) && o.claim.Step.Config.Within == "" {
			m.w.Errorf("step %s: the lease was extended until %s, for %d s from %s on", o.claim.Step.ID, op.until, asked, x.at)
		}
	}
	m.step(o.claim.Step.ID, o.claim.Task.ID).add(op)
}

// called notes the call of a handler, and returns how often this delivery was made before.
func (m *worldModel) called(l *worldLife, key string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls[key] == l && !m.resets[key[:36]] {
		m.w.Errorf("a handler was called twice for %s in one life", key)
	}
	parts := strings.Split(key, ":")
	var attempt int
	fmt.Sscan(parts[1], &attempt)
	m.calls[key] = l
	reset := m.resets[parts[0]]
	if before := m.latest[parts[0]]; !reset && attempt < before {
		m.w.Errorf("step %s: a handler was called for attempt %d after attempt %d", parts[0], attempt, before)
	}
	m.latest[parts[0]] = attempt
	return l.n
}

// taken notes that a subscriber took an event.
func (m *worldModel) taken(l *worldLife, o *worldOffer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o.life, o.taken = l, time.Now()
}

// offered notes that a subscriber was sent an event.
func (m *worldModel) offered(l *worldLife, subscriber string, e *worldEvent) *worldOffer {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.offers[subscriber] == nil {
		m.offers[subscriber] = map[string]*worldOffer{}
	}
	o := m.offers[subscriber][e.ID]
	if o == nil {
		o = &worldOffer{worldEvent: *e}
		m.offers[subscriber][e.ID] = o
	}
	if o.life == l {
		m.w.Errorf("subscriber %s got event %d.%d again in one life", subscriber, e.Seq, e.N)
	} else if o.life != nil {
		m.checkAgain(subscriber, o)
	}
	key := fmt.Sprint(subscriber, l.n)
	if last := m.order[key]; last != nil && (last.Seq > e.Seq || last.Seq == e.Seq && last.N > e.N) {
		m.w.Errorf("subscriber %s got event %d.%d after %d.%d", subscriber, e.Seq, e.N, last.Seq, last.N)
	}
	m.order[key] = o
	return o
}

// checkAgain checks that an event which a subscriber took may come again: the life ended before it was on disk that
// the subscriber has it.
func (m *worldModel) checkAgain(subscriber string, o *worldOffer) {
	ended := m.retried[o.life]
	if !ended.IsZero() && ended.Sub(o.taken) > 3*time.Minute {
		m.w.Errorf("subscriber %s got event %d.%d again, which it took %s before the end of life %d",
			subscriber, o.Seq, o.N, ended.Sub(o.taken), o.life.n)
	}
}

// worldReader is what a reader of the event stream received.
type worldReader struct {
	wire.Marks
	holes  [][2]uint64 // sequences that it may have missed
	texts  map[wire.Mark]string
	lastID uint64
}

// take takes complete events.
func (m *worldReader) take(text string) error {
	events, last := wire.ParseEvents(text)
	for _, e := range events {
		if e.Type == "gap" {
			var v struct {
				Requested uint64
				Oldest    uint64 `json:"oldest_available"`
			}
			if json.Unmarshal([]byte(e.Data), &v); v.Oldest <= v.Requested+1 {
				return fmt.Errorf("what came before %d was lost: %s", m.lastID, e.Data)
			}
			m.holes = append(m.holes, [2]uint64{v.Requested, v.Oldest})
			continue
		}
		var mark wire.Mark
		if e.Type == "domain" {
			var v worldEvent
			json.Unmarshal([]byte(e.Data), &v)
			mark = wire.NewMark(v.Seq, v.N, v.ID, v.Type, v.Task)
		} else {
			var v wire.Move
			if err := json.Unmarshal([]byte(e.Data), &v); err != nil {
				return err
			}
			mark = v.Mark()
		}
		if err := m.Add(mark); err != nil {
			return err
		}
		if m.texts == nil {
			m.texts = map[wire.Mark]string{}
		}
		m.texts[mark] = e.Data
	}
	m.lastID = max(m.lastID, last)
	m.LastID = m.lastID
	return nil
}

// quiet reports whether nothing has happened since the last look.
func (m *worldModel) quiet(l *worldLife) (quiet bool) {
	if l == nil {
		return false
	}
	_, seq := l.svc.store.size()
	seq++
	l.svc.store.locked(func() {
		for _, s := range l.svc.publisher.subscribers {
			if waiting, _ := l.svc.store.subscribers().waitingLocked(s.Name); waiting > 0 {
				seq = 0
				m.waits = fmt.Sprintf("%d events wait for subscriber %s, which tried %d times: %s", waiting, s.Name, s.attempts, s.problem)
			}
		}
	})
	if seq > 0 {
		m.waits = fmt.Sprint("record ", seq, " after ", m.quietAt)
	}
	quiet = seq > 0 && m.quietAt == seq
	m.quietAt = seq
	return quiet
}

// ended looks at a service whose life ends.
func (m *worldModel) ended(l *worldLife) {
	s := l.svc.store
	checkInvariants(m.w, l.svc)
	m.acked = s.journal.groups.durable()
	m.images, m.seq = worldImages(s)
	m.figures = ""
	if m.retried == nil {
		m.retried = map[*worldLife]time.Time{}
	}
	if !l.hurt.Load() && l.mem.capacity == 0 {
		m.retried[l] = time.Now()
	}
	m.checkKept(l)
}

// stopped looks at a service that has ended cleanly but for its files.
func (m *worldModel) stopped(l *worldLife) {
	checkInvariants(m.w, l.svc)
	s := l.svc.store
	if err := s.waitAll(m.w.Context()); err != nil {
		return // it is read-only
	}
	m.images, m.seq = worldImages(s)
	m.acked = m.seq
	s.locked(func() { m.figures = figuresText(s.analytics) })
}

// worldImages returns the lines of all tasks, by id, and the newest sequence.
func worldImages(s *store) (map[string]string, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	images := map[string]string{}
	for _, sl := range s.tasks.slots {
		if sl != nil {
			images[sl.id.String()] = string(sl.line())
		}
	}
	return images, s.seq
}

// began looks at a service that has just opened: it must have all that was acknowledged, and what it has must be as it
// was.
func (m *worldModel) began(l *worldLife) {
	s := l.svc.store
	if m.w.failed() {
		return
	}
	// What was cut off is recorded at the start.
	images, seq := worldImages(s)
	if seq < m.acked {
		m.w.Errorf("life %d begins with record %d; %d was on disk before", l.n, seq, m.acked)
	}
	for id, line := range m.images {
		last := must(readTaskLine([]byte(line)))(m.w).lastSeq
		now, there := images[id]
		switch {
		case !there && last <= m.acked && !m.w.part("retention"):
			m.w.Errorf("life %d begins without task %s", l.n, id)
		case there && must(readTaskLine([]byte(now)))(m.w).lastSeq == last && now != line && last <= m.acked:
			m.w.Errorf("life %d begins with %s; it was %s", l.n, now, line)
		case there && must(readTaskLine([]byte(now)))(m.w).lastSeq < last && last <= m.acked:
			m.w.Errorf("life %d begins with an older task: %s; it was %s", l.n, now, line)
		}
	}
	m.checkMany(images)
	m.mu.Lock()
	for id, t := range m.tasks {
		if images[id] == "" && !m.w.part("retention") {
			m.w.Errorf("life %d begins without task %s, which a client was told of (%+v)", l.n, id, *t)
		}
	}
	m.mu.Unlock()
	if m.figures != "" && seq == m.seq {
		s.locked(func() {
			if got := figuresText(s.analytics); got != m.figures && s.seq == seq {
				m.w.Errorf("life %d begins with the figures\n%s\nthey were\n%s", l.n, got, m.figures)
			}
		})
	}
	checkInvariants(m.w, l.svc)
}

// checkKept checks that retention kept as many tasks as it should.
func (m *worldModel) checkKept(l *worldLife) {
	r := &l.svc.store.retain
	if r.dropped > 0 && r.age == 0 && r.count > 0 && r.finished < r.count {
		m.w.Errorf("%d finished tasks are kept, and %d were dropped; want %d kept", r.finished, r.dropped, r.count)
	}
}

// end compares what the participants know with what there is at the end.
func (m *worldModel) end(l *worldLife) {
	var moves []wire.Mark
	steps := map[string]worldStepView{}
	images, _ := worldImages(l.svc.store)
	for id := range images {
		moves = append(moves, m.endTask(l, id, steps)...)
	}
	m.checkReader(moves, images)
	m.checkGone(images)
	m.checkSubscribers(l)
	x := &worldAnswer{life: l, status: 200, call: m.w.bus.now(), at: time.Now(), until: time.Now()}
	x.ret = m.w.bus.now()
	for _, id := range slices.Sorted(maps.Keys(m.steps)) {
		h := m.steps[id]
		if v, ok := steps[id]; ok {
			m.sawStep(id, h.task, &v, x)
		}
		if m.onHold[h.task] { // a hold ends attempts, which the specification does not know
			continue
		}
		m.w.figures.steps.Add(int64(len(h.ops)))
		if problem := h.check(m.cancels[h.task], m.lost); problem != "" {
			m.w.Errorf("step %s is not linearizable: %s", id, problem)
		}
	}
}

// endTask checks a task at the end, and returns its moves.
func (m *worldModel) endTask(l *worldLife, id string, steps map[string]worldStepView) (moves []wire.Mark) {
	key, _ := parseUUID(id)
	o := &transitionObserver{}
	t, err := l.svc.store.viewObserved(key, o, nil)
	if err != nil {
		m.w.Errorf("task %s: %v", id, err)
		return nil
	}
	var v worldTaskView
	if err := json.Unmarshal(jsonOf(taskView{task: t, now: l.svc.clock.now()}), &v); err != nil {
		m.w.Errorf("task %s: %v", id, err)
	}
	if known := m.tasks[id]; known != nil && known.final != "" && known.final != v.Status {
		m.w.Errorf("task %s is %s; it was seen %s", id, v.Status, known.final)
	}
	failed, letters := 0, 0 // steps in error, and how often they blocked the task
	h := &historyView{task: t, moves: o.moves}
	last := wire.Move{}
	attempts, given := map[string]int{}, map[string]bool{} // by step: the newest attempt, and whether it is to be given out again
	for n := range o.moves {
		var move wire.Move
		json.Unmarshal(must(json.Marshal(h.view(n)))(m.w), &move)
		move.Seq, move.N, move.Task, move.Namespace, move.Name = move.Sequence, 1, id, "t", v.Name
		if move.Seq == last.Seq {
			move.N = last.N + 1
		}
		last = move
		switch {
		case move.To == "in_progress":
			if want := attempts[move.Step] + boolCount(!given[move.Step]); move.Attempt != want {
				m.w.Errorf("step %s began attempt %d; want %d", move.Step, move.Attempt, want)
			}
			attempts[move.Step], given[move.Step] = move.Attempt, false
		case move.From == "in_progress" && move.To == "enqueued":
			given[move.Step] = true
		case move.From == "error" && move.To == "pending":
			attempts[move.Step], given[move.Step] = 0, false
		}
		failed += boolCount(move.Step != "" && move.To == "error") - boolCount(move.Step != "" && move.From == "error")
		letters += boolCount(failed > 0 && move.Step == "" && move.To == "blocked_by_failures")
		moves = append(moves, move.Mark())
	}
	if letters > 0 && len(t.dead) == 0 {
		m.w.Errorf("task %s was blocked %d times by failed steps, and has no dead letter", id, letters)
	}
	for i, s := range v.Steps {
		if last := t.steps[i].last; last != nil && last.success {
			s.Results = &struct{ Result json.RawMessage }{last.result}
		}
		steps[s.ID] = s
	}
	return moves
}

// checkReader compares what a reader was told with the histories of the tasks that are left.
func (m *worldModel) checkReader(moves []wire.Mark, images map[string]string) {
	r := &m.readers[0]
	if !m.w.part("followers") {
		return
	}
	slices.SortFunc(moves, wire.Mark.Compare)
	told := map[wire.Mark]bool{}
	for _, mark := range r.All {
		told[mark] = true
	}
	there := map[wire.Mark]bool{}
	for _, mark := range moves {
		there[mark] = true
		hole := slices.ContainsFunc(r.holes, func(h [2]uint64) bool { return mark.Seq > h[0] && mark.Seq < h[1] })
		if !told[mark] && !hole && len(r.All) > 0 && mark.Seq >= r.All[0].Seq {
			m.w.Errorf("the reader was not told of transition %d.%d; it was told %d, with holes %v", mark.Seq, mark.N, len(r.All), r.holes)
			return
		}
	}
	for _, mark := range r.All {
		// Tasks keep no moves to and from checkpoints but the newest.
		yields := strings.Contains(r.texts[mark], `"enqueued","to_state":"in_progress"`) ||
			strings.Contains(r.texts[mark], `"in_progress","to_state":"enqueued"`)
		if !there[mark] && !m.w.part("retention") && !(yields && m.w.part("checkpoints")) {
			m.w.Errorf("the reader was told of a transition that is nowhere: %s", r.texts[mark])
			return
		}
	}
}

// checkGone checks that tasks which are gone had ended, as far as a reader was told.
func (m *worldModel) checkGone(images map[string]string) {
	r, state := &m.readers[0], map[string]string{}
	for _, mark := range r.All {
		var move wire.Move
		if json.Unmarshal([]byte(r.texts[mark]), &move); move.Step == "" {
			state[move.Task] = move.To
		}
	}
	for id, name := range state {
		if s, _ := parseTaskState(name); images[id] == "" && !s.ended() && len(r.holes) == 0 {
			m.w.Errorf("task %s is gone; the reader was told last that it is %s", id, name)
		}
	}
}

// checkSubscribers checks that subscribers were offered every event that the reader of domain events was told.
func (m *worldModel) checkSubscribers(l *worldLife) {
	if !m.w.part("subscribers") {
		return
	}
	for _, s := range l.svc.publisher.subscribers {
		offered := map[[2]uint64]bool{}
		for _, o := range m.offers[s.Name] {
			offered[[2]uint64{o.Seq, uint64(o.N)}] = true
		}
		m.w.figures.passed.Add(0)
		for _, mark := range m.readers[1].All {
			if s.Name == "shop" && !offered[[2]uint64{mark.Seq, uint64(mark.N)}] {
				m.w.Errorf("subscriber %s was never sent event %d.%d", s.Name, mark.Seq, mark.N)
				return
			}
		}
	}
}
