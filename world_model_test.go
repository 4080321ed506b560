package main

// What is checked of a world: that nothing acknowledged is lost, that nothing is done twice but as documented, that
// readers and subscribers have everything, that what a life finds is what the one before it left, and that every task
// ends.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"stepwell/e2e/wire"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
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

// check checks what holds whenever everything has settled.
func (m *worldModel) check(l *worldLife) {
	checkInvariants(m.w, l.svc)
	if !l.hurt.Load() && l.mem.capacity == 0 {
		m.checkSlots(l)
	}
	images, _ := worldImages(l.svc.store)
	for text := range images {
		id, _ := parseUUID(text)
		law := &lawful{t: m.w, audited: map[int]int{}, late: map[int]int{}, yielded: map[int]bool{}}
		v, err := l.svc.store.viewObserved(id, law, nil)
		if err != nil {
			m.w.Error(err)
			continue
		}
		if v.counts[stepCancelled] == 0 || v.state == taskCancelled {
			checkFigures(m.w, v, l.svc.clock.now())
		}
		checkExplanation(m.w, l.svc, must(l.svc.engine.explain(id, nil, true))(m.w))
		m.checkAudit(l, v, law)
	}
}

// checkSlots compares the slots with the attempts in flight, and those with the steps
// in progress, and finds ready steps that no queue holds.
func (m *worldModel) checkSlots(l *worldLife) {
	e := l.svc.engine
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	local, running, gone := &e.queues.local, 0, 0
	for _, k := range e.work.running {
		running += boolCount(k.pool == local)
		gone += boolCount(k.gone)
	}
	if local.free+running != local.size {
		m.w.Errorf("got %d free slots beside %d attempts; want %d together", local.free, running, local.size)
	}
	inProgress, held := 0, 0
	for pos, sl := range e.store.tasks.slots {
		if sl == nil || sl.live == nil {
			continue
		}
		for i := range sl.live.steps {
			if s := &sl.live.steps[i]; s.state != stepInProgress && sl.live.answerDue(i) != 0 && sl.live.answerDue(i) <= l.svc.clock.now() {
				m.w.Errorf("task %d step %d is %s after the deadline of its answer", pos, i, s.state)
			}
			k := e.work.running[runKey{sl.live.id, i}]
			switch sl.live.steps[i].state {
			case stepInProgress:
				inProgress++
				if leased := sl.live.steps[i].lease != nil; leased {
					held++
					if due := sl.live.answers[i]; due != 0 && (sl.live.steps[i].lease.until > due || e.leases.byID[sl.live.stepID(i)].until > due) {
						m.w.Errorf("task %d step %d has a lease that lasts longer than the deadline of its answer", pos, i)
					}
					if e.leases.byID[sl.live.stepID(i)] == nil || k != nil {
						m.w.Errorf("task %d step %d has a lease that nobody watches over", pos, i)
					}
				} else if k == nil || k.gone {
					m.w.Errorf("task %d step %d is in progress, and nothing runs it", pos, i)
				}
			case stepEnqueued:
				kind := e.targetLocked(sl.live, i).kind
				if kind == outsideActor && sl.live.runnable(i) && e.outside.waiting.steps[runKey{sl.live.id, i}] == nil {
					m.w.Errorf("task %d step %d could be claimed and is forgotten", pos, i)
				}
				if kind == builtinHandler && sl.live.runnable(i) && local.free > 0 {
					m.w.Errorf("task %d step %d could start and does not", pos, i)
				}
			}
		}
	}
	if inProgress != len(e.work.running)-gone+held || held != len(e.leases.held.items) {
		m.w.Errorf("got %d attempts in flight and %d leases; want %d and %d as steps are in progress", len(e.work.running),
			len(e.leases.held.items), inProgress-held, held)
	}
}

// checkAudit counts entries: one for each attempt that ended, each action of an operator and each late result.
func (m *worldModel) checkAudit(l *worldLife, v *task, law *lawful) {
	for i := range v.steps {
		audit, err := l.svc.history.audit(v.id, i, nil)
		if err != nil {
			m.w.Error(err)
		}
		if want := law.audited[i]; len(audit) != want {
			m.w.Errorf("task %s step %d has %d audit entries; want %d", v.id, i, len(audit), want)
		}
		late := 0
		for _, a := range audit {
			if a.FromState == "" { // a late result
				late++
			}
			if a.ToState == "" || a.Action == "" && a.FromState != "in_progress" && a.FromState != "" {
				m.w.Errorf("task %s step %d has the audit entry %+v", v.id, i, a)
			}
		}
		if late != law.late[i] {
			m.w.Errorf("task %s step %d has %d late results in its audit; want %d", v.id, i, late, law.late[i])
		}
	}
}

// lawful follows a replay: it notes starts that were not allowed, and counts what an audit of a step shows.
type lawful struct {
	t       testing.TB
	r       *record
	audited map[int]int
	late    map[int]int // of these, results that came too late
	yielded map[int]bool
}

func (w *lawful) startRecord(_ *task, r *record) {
	w.r = r
	switch r.kind {
	case recCheckpoint: // of which there is the newest only
		w.audited[r.step] += boolCount(!w.yielded[r.step])
		w.yielded[r.step] = true
	case recRan, recEnded, recLate, recUnanswered, recOperator, recAdjusted:
		w.audited[r.step]++
	}
	if r.kind == recLate {
		w.late[r.step]++
	}
}

func (w *lawful) taskMoved(*task, taskState, taskState, instant) {}

func (w *lawful) stepMoved(t *task, i int, _, to stepState, _ instant) {
	w.audited[i] += boolCount(w.r.kind == recCreated && to.satisfies()) // a copy
	if to != stepInProgress && to != stepEnqueued || w.r.kind == recRecovered {
		return
	}
	for _, p := range t.parents(i) {
		if !t.steps[p].state.satisfies() {
			w.t.Errorf("record %d: step %d of task %s became %s while its parent %d was %s",
				w.r.seq, i, t.id, to, p, t.steps[p].state)
		}
	}
	if to == stepInProgress && w.r.kind != recOperator && t.state != taskStepsInProcess {
		w.t.Errorf("record %d: step %d of task %s started while the task was %s", w.r.seq, i, t.id, t.state)
	}
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
	api, want := newOrchestrationAPI(l.svc, nil), mountFigures{}
	for text := range images {
		moves = append(moves, m.endTask(l, text, steps)...)
		checkAgreement(m.w, api, text)
		id, _ := parseUUID(text)
		want.addTask(must(l.svc.store.view(id))(m.w))
	}
	if got, err := mountFiguresOf(l.svc.store); got != want || err != nil {
		m.w.Errorf("the mount point has the figures %+v, %v; want what the tasks come to, %+v", got, err, want)
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
	last := wire.Move{}
	attempts, given := map[string]int{}, map[string]bool{} // by step: the newest attempt, and whether it is to be given out again
	for _, moved := range o.moves {
		var move wire.Move
		json.Unmarshal(must(json.Marshal(moved))(m.w), &move)
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
		for _, mark := range m.readers[1].All {
			if s.Name == "shop" && !offered[[2]uint64{mark.Seq, uint64(mark.N)}] {
				m.w.Errorf("subscriber %s was never sent event %d.%d", s.Name, mark.Seq, mark.N)
				return
			}
		}
	}
}

// What clients saw of one step, as a linearizable history: there must be an order of all operations, each between its
// call and its answer, that a step could have gone through one after the other. Operations of unknown outcome may have
// happened at any time after their call, or never.

// The kinds of operations, besides the actions of operators.
const (
	opClaim  = "claim"
	opExtend = "extend"
	opYield  = "checkpoint"
	opCancel = "cancel the task"
	opSee    = "see"
)

// stepOp is an operation on a step.
type stepOp struct {
	kind    string
	lease   string
	attempt int
	until   time.Time // when a lease ends
	nonce   string    // of the result or the error
	final   bool      // a failure is not to be retried
	state   string    // that was seen
	whole   bool      // with the result
	ok      bool      // it was done, or else refused or unknown
	x       *worldAnswer
	lost    int  // claims before it that may have taken the step
	timed   bool // the step has a deadline
}

func (o *stepOp) String() string {
	return fmt.Sprintf("%s [%d,%d] %d at %s: attempt %d lease %.50s until %s %s %s", o.kind, o.x.call, int64(o.x.ret), o.x.status,
		o.x.at.Format(time.DateTime), o.attempt, o.lease[min(len(o.lease), 37):], o.until.Format(time.DateTime), o.state, o.nonce)
}

// stepHistory holds the operations on one step.
type stepHistory struct {
	id, task string
	timed    atomic.Bool // it has a deadline

	mu  sync.Mutex
	ops []*stepOp
}

func (h *stepHistory) add(o *stepOp) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// stepSpecState is a step of the specification.
type stepSpecState struct {
	phase   string // open, held, done, failed, cancelled or resolved
	attempt int    // the newest
	again   bool   // the next delivery is of the same attempt
	lease   string // the newest
	until   time.Time
	past    string // leases that were ended, each with how
	nonce   string // of the result
}

// check returns why there is no such order, or "". cancels are of the task; lost are claims of unknown outcome, which may
// have been given this step.
func (h *stepHistory) check(cancels, lost []*stepOp) string {
	if !slices.ContainsFunc(h.ops, func(o *stepOp) bool { return o.kind == opClaim }) {
		return "" // not a step for outside actors
	}
	ops := slices.DeleteFunc(slices.Concat(h.ops, cancels), func(o *stepOp) bool {
		return o.x.life == nil || !o.ok && o.kind != opExtend && o.kind != opYield && o.kind != "complete" && o.kind != "fail" && !o.x.unknown()
	})
	slices.SortStableFunc(ops, func(a, b *stepOp) int { return cmp.Compare(a.x.call, b.x.call) })
	for _, o := range ops {
		o.timed = h.timed.Load()
		for _, c := range lost {
			o.lost += boolCount(c.x.call < o.x.ret)
		}
	}
	s := &stepSearch{ops: ops, done: make([]bool, len(ops)), seen: map[string]bool{}}
	if s.order(stepSpecState{phase: "open"}) {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "after %d of %d operations, as %+v:", s.most, len(ops), s.stuck)
	for _, o := range ops {
		fmt.Fprintf(&b, "\n\t%s", o)
	}
	return b.String()
}

// stepSearch looks for an order.
type stepSearch struct {
	ops   []*stepOp
	done  []bool
	seen  map[string]bool // what was tried: which operations are done, and the state
	most  int             // operations that could be ordered
	stuck stepSpecState
}

// order orders the remaining operations after a state.
func (s *stepSearch) order(st stepSpecState) bool {
	key := s.key(st)
	if s.seen[key] || len(s.seen) > mostOrders {
		return len(s.seen) > mostOrders
	}
	s.seen[key] = true
	first, left, count := uint64(1<<63), false, 0 // the first answer among those that remain
	for i, o := range s.ops {
		if s.done[i] {
			count++
			continue
		}
		if !o.x.unknown() || o.kind == opSee {
			left = true
			first = min(first, o.x.ret)
		}
	}
	if count > s.most {
		s.most, s.stuck = count, st
	}
	if !left {
		return true
	}
	for i, o := range s.ops {
		if s.done[i] || o.x.call > first {
			continue
		}
		s.done[i] = true
		for _, next := range st.after(o) {
			if next == st && o.x.unknown() {
				continue // it need not have happened
			}
			if s.order(next) {
				return true
			}
		}
		s.done[i] = false
	}
	return false
}

// mostOrders is how many orders are tried before a history counts as undecided.
const mostOrders = 300_000

// key returns what was ordered, and the state after it.
func (s *stepSearch) key(st stepSpecState) string {
	b := make([]byte, 0, 128)
	for at, done := range s.done {
		if at%8 == 0 {
			b = append(b, 0)
		}
		b[at/8] |= byte(boolCount(done)) << (at % 8)
	}
	b = append(b, st.phase...)
	b = strconv.AppendInt(b, int64(st.attempt), 10)
	b = strconv.AppendBool(b, st.again)
	b = strconv.AppendInt(append(b, st.lease...), st.until.UnixNano(), 36)
	return string(append(append(b, st.past...), st.nonce...))
}

// after returns the states that an operation may lead to; none if it cannot be answered so.
func (st stepSpecState) after(o *stepOp) (next []stepSpecState) {
	if st.phase == "held" && !o.x.until.Before(st.until) || st.phase == "held" && o.x.unknown() { // the lease may be over
		over := st
		for _, phase := range []string{"open", "failed"} {
			over.phase = phase
			next = append(next, over.now(o)...)
		}
	}
	if next = append(next, st.now(o)...); o.timed && (st.phase == "open" || st.phase == "held") { // its deadline may have passed
		over := st
		over.phase, over.nonce = "done", nobodyNonce
		next = append(next, over.now(o)...)
		over.phase, over.nonce = "failed", st.nonce
		next = append(next, over.now(o)...)
	}
	return next
}

// nobodyNonce is in the result of a step that nobody answered in time.
const nobodyNonce = "nobody"

// now is after without a lease that ends before.
func (st stepSpecState) now(o *stepOp) []stepSpecState {
	held := st.phase == "held" && st.lease == o.lease
	finished := st.phase == "done" || st.phase == "cancelled" || st.phase == "resolved"
	to := func(phases ...string) (next []stepSpecState) {
		for _, phase := range phases {
			n := st
			n.phase = phase
			next = append(next, n)
		}
		return next
	}
	switch o.kind {
	case opClaim:
		want := st.attempt + boolCount(!st.again)
		if st.phase != "open" || o.attempt < want || o.attempt > want+o.lost {
			return nil
		}
		return []stepSpecState{{phase: "held", attempt: o.attempt, lease: o.lease, until: o.until, past: st.past}}
	case opSee:
		return st.seen(o)
	case opExtend, opYield, "complete", "fail":
		what := "|" + o.lease + o.kind + " " + o.nonce + "|"
		before := strings.Contains(st.past, what) && o.kind != opExtend
		switch {
		case !o.ok && !o.x.unknown(): // refused
			if held || before && o.kind != opYield { // of checkpoints the task keeps the newest only
				return nil
			}
			return to(st.phase)
		case before:
			return to(st.phase)
		case !held:
			return nil
		}
		return st.answered(o, what)
	case opCancel, "cancel":
		if finished {
			return to(st.phase)
		}
		return to("cancelled")
	case "reset_for_retry":
		n := st
		n.phase, n.attempt, n.again = "open", 0, false
		if st.phase != "failed" { // it was done before
			return to(st.phase)
		}
		return []stepSpecState{n}
	case "resolve_manually":
		if st.phase == "done" || st.phase == "cancelled" {
			return to(st.phase)
		}
		return to("resolved")
	case "complete_manually":
		if st.phase == "done" || st.phase == "cancelled" {
			return to(st.phase)
		}
		n := st
		if st.phase == "open" {
			n.attempt, n.again = st.attempt+boolCount(!st.again), false
		}
		n.phase, n.nonce = "done", o.nonce
		// A step that was not ready does not count an attempt.
		m := n
		m.attempt, m.again = st.attempt, st.again
		return []stepSpecState{n, m}
	case opActFail:
		n := st
		if st.phase == "open" {
			n.attempt, n.again = st.attempt+boolCount(!st.again), false
		}
		open := n
		open.phase, n.phase = "open", "failed"
		return []stepSpecState{open, n, st}
	}
	return to(st.phase)
}

// opActFail is the action of an operator.
const opActFail = "operator fails"

// answered returns the states after an outcome that was taken.
func (st stepSpecState) answered(o *stepOp, what string) []stepSpecState {
	n := st
	if o.kind == opExtend {
		if o.until.After(n.until) || o.x.unknown() {
			n.until = o.until
		}
		if o.x.unknown() { // it may last for up to a day
			n.until = st.until
			long := st
			long.until = o.x.at.Add(24 * time.Hour)
			return []stepSpecState{n, long}
		}
		return []stepSpecState{n}
	}
	n.past += what
	switch {
	case o.kind == "complete":
		n.phase, n.nonce = "done", o.nonce
	case o.kind == opYield:
		n.phase, n.again = "open", true
	case o.final:
		n.phase = "failed"
	default:
		n.phase = "open"
		failed := n
		failed.phase = "failed"
		return []stepSpecState{n, failed}
	}
	return []stepSpecState{n}
}

// seenPhases are the states of a step by the phases that it may be in.
var seenPhases = map[string][]string{
	"pending": {"open"}, "enqueued": {"open"}, "waiting_for_retry": {"open"}, "in_progress": {"held", "open"},
	"complete": {"done"}, "error": {"failed"}, "cancelled": {"cancelled"}, "resolved_manually": {"resolved"},
}

// seen returns the state if it can be seen so.
func (st stepSpecState) seen(o *stepOp) []stepSpecState {
	if st.phase == "open" && o.lost > 0 && o.state == "error" {
		st.phase = "failed"
	}
	if !slices.Contains(seenPhases[o.state], st.phase) || o.state == "complete" && o.whole && o.nonce != st.nonce ||
		st.phase == "held" && o.attempt != st.attempt {
		return nil
	}
	return []stepSpecState{st}
}
