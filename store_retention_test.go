package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// checkRetention compares what the store knows of finished tasks, and of their
// positions, with the tasks. The caller holds the store's lock.
func checkRetention(t testing.TB, s *store) {
	t.Helper()
	gone, finished, bytes := 0, 0, int64(0)
	ids, keys := map[uuid]*slot{}, map[identityKey]uuid{}
	for at, sl := range s.tasks.slots {
		if sl == nil {
			gone++
			continue
		}
		v, err := sl.task()
		if err != nil {
			t.Error(err)
			continue
		}
		ids[v.id] = sl
		bytes += sl.bytes()
		if sl.live != nil && sl.live.weight != sl.live.weigh() {
			t.Errorf("task %s counts as %d bytes; want %d", v.id, sl.live.weight, sl.live.weigh())
		}
		if v.by.identity != (identityKey{}) {
			keys[v.by.identity] = v.id
		}
		if at := v.finishedAt(); at != 0 {
			finished++
			if sl.finished != at {
				t.Errorf("task %s finished at %d; the store has %d", v.id, at, sl.finished)
			}
		}
		if sl.tpl != v.tpl || s.tasks.seqs[at] != v.seq || s.tasks.kinds[at] != s.tasks.index.kind(v.tpl, v.state) {
			t.Errorf("task %s is in the table as %d, %x", v.id, s.tasks.seqs[at], s.tasks.kinds[at])
		}
	}
	if !maps.Equal(s.tasks.byID, ids) || !maps.Equal(keys, s.tasks.identities) {
		t.Errorf("the store finds %d tasks by id and %v by identity; want %d and %v", len(s.tasks.byID), s.tasks.identities, len(ids), keys)
	}
	if s.tasks.gone != gone || s.retain.finished != finished {
		t.Errorf("the store counts %d dropped tasks in the table and %d finished ones; want %d and %d",
			s.tasks.gone, s.retain.finished, gone, finished)
	}
	bytes += int64(s.requests.gone)*droppedRequestBytes + s.tasks.index.bytes
	if s.retain.bytes != bytes {
		t.Errorf("the store counts %d bytes; want %d", s.retain.bytes, bytes)
	}
	awaited := slices.ContainsFunc(s.events.domain.subscriptions, func(sub *subscription) bool { return s.events.domain.skip(sub) != nil })
	if l := s.retain.limits; l.count > 0 && finished > l.count && !awaited {
		t.Errorf("%d finished tasks are kept; want at most %d", finished, l.count)
	}
}

// retaining returns a configuration that keeps n finished tasks.
func retaining(n int) func(c *Config) {
	return func(c *Config) { c.Store.RetainFinishedCount = n }
}

func wantKept(t *testing.T, s *service, want ...uuid) {
	t.Helper()
	if got := kept(s); !slices.Equal(got, want) {
		t.Errorf("the store keeps %v; want %v", got, want)
	}
}

// TestStoreFull fills the memory for tasks: new ones are refused, accepted work continues, and
// finished tasks make room although fewer are kept than the limits allow.
func TestStoreFull(t *testing.T) {
	var log strings.Builder
	s := newTestServer(t, serviceTest{log: &log, extra: storyTemplates, config: func(c *Config) { c.Store.MaxMemoryMB = 1 }})
	large := fmt.Sprintf(`{"namespace":"t","name":"pair","context":{"a":%q}}`, strings.Repeat("a", 50<<10))
	var ids []string
	a := s.do("POST", "/v1/tasks", large)
	for ; a.status == 201 && len(ids) < 100; a = s.do("POST", "/v1/tasks", large) {
		ids = append(ids, a.text("task_uuid"))
	}
	a.want(503)
	if a.text("error.code") != "STORE_FULL" || !strings.Contains(a.text("error.message"), "store.max_memory_mb") ||
		a.header.Get("Retry-After") != "5" || a.text("error.retry_after_seconds") != "5" {
		t.Errorf("got Retry-After %q and %s; want STORE_FULL with the key's name", a.header.Get("Retry-After"), a.body)
	}
	if n := len(ids); n < 5 || n > 1<<20/(50<<10) {
		t.Errorf("got %d tasks of 50 KB into 1 MB", n)
	}
	a = s.with(newOrchestrationAPI(s.svc, nil)).do("POST", "/stepwell/tasks", large).want(503)
	if a.text("error.code") != "SERVICE_UNAVAILABLE" {
		t.Errorf("the mount point: got %s", a.body)
	}
	for _, id := range ids {
		s.do("DELETE", "/v1/tasks/"+id, "").want(200)
	}
	for range 30 {
		s.create(strings.Replace(large, "pair", "noop", 1))
	}
	s.create(large)
	if r := &s.svc.store.retain; r.early < 20 || r.early > 40 || r.early != r.dropped || r.memory.used.Load() >= r.memory.most {
		t.Errorf("got %d finished tasks dropped, %d for lack of memory; want all but the last 15 or so", r.dropped, r.early)
	}
	if n := strings.Count(log.String(), "store.max_memory_mb"); n != 1 {
		t.Errorf("got %d warnings; want 1:\n%s", n, log.String())
	}
	if a := s.do("GET", "/metrics", ""); !strings.Contains(string(a.body), "\nstepwell_tasks_dropped_early_total ") {
		t.Errorf("the metrics do not count tasks dropped early")
	}
	if got := s.svc.quotas.stored.refused.Load(); got != 2 {
		t.Errorf("got %d refusals counted; want 2", got)
	}
}

// TestMemoryOfTasks compares the counted size of tasks with the memory that they take.
func TestMemoryOfTasks(t *testing.T) {
	slowAndSequential(t)
	wide := make([]stepSpec, 50)
	for i := range wide {
		wide[i] = stepSpec{name: fmt.Sprint("s", i), callable: "Outside"}
	}
	for _, tt := range []struct {
		name, template, context string
		count                   int
	}{
		{"small and waiting", "pair", `{}`, 5000},
		{"small and finished", "noop", `{}`, 10000},
		{"wide", "wide", `{}`, 200},
		{"large and waiting", "pair", `{"a":"` + strings.Repeat("a", 20<<10) + `"}`, 300},
		{"large and finished", "noop", `{"a":"` + strings.Repeat("a", 20<<10) + `"}`, 300},
	} {
		ratio := func() float64 {
			s := newTestService(t, serviceTest{
				extra: append(storyTemplates, testTemplate("wide", wide...)), config: func(c *Config) { c.Events.Keep = 1 },
			})
			mustCreate(t, s, tt.template)
			before, counted := liveHeap(), s.store.retain.bytes
			for range tt.count {
				mustCreate(t, s, tt.template, `"context":`+tt.context)
			}
			took, now := (liveHeap()-before)*1e6, float64(s.store.retain.bytes-counted)
			t.Logf("%s: %.0f bytes each, counted as %.0f", tt.name, took/float64(tt.count), now/float64(tt.count))
			return now / took
		}
		// What timers of earlier tests hold may be freed between the measurements of one try.
		for tries := 3; ; tries-- {
			if r := ratio(); r >= 0.7 && r <= 1.6 {
				break
			} else if tries == 1 {
				t.Errorf("%s: they count as %.2f of what they take", tt.name, r)
				break
			}
		}
	}
}

// TestDroppedMeanwhile ends attempts and retries of tasks that were dropped
// meanwhile.
func TestDroppedMeanwhile(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newTestService(t, serviceTest{clock: clock, config: retaining(1), extra: append(storyTemplates,
		testTemplate("slow", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":60000}`}))})
	slow, retrying := mustCreate(t, s, "slow"), mustAct(t, s, mustCreate(t, s, "pair"), 0, retryAction)
	for _, id := range []uuid{slow.id, retrying.id} {
		must(s.operator.cancelTask(t.Context(), id, taskActor{}))(t)
	}
	last := mustCreate(t, s, "noop")
	wantKept(t, s, last.id)
	clock.advance(2 * time.Hour) // the log fails the test on an error
	wantKept(t, s, last.id)
	if err := s.engine.recordLostLocked([]runKey{{slow.id, 0}}); err != nil {
		t.Errorf("an attempt of a dropped task: %v", err)
	}
}

// TestRetentionAtRandom does random things to tasks, packs at every chance, and
// compares what is kept with a plain model.
func TestRetentionAtRandom(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { newRetentionWorld(t, seed).run(250) })
	}
}

// retentionWorld is a service and the tasks that it should keep.
type retentionWorld struct {
	t        *testing.T
	r        *rand.Rand
	o        serviceTest
	s        *service
	tasks    []uuid // all that should be kept, in the order of their creation
	finished []uuid // of these, in the order in which they finished
}

func newRetentionWorld(t *testing.T, seed uint64) *retentionWorld {
	w := &retentionWorld{t: t, r: rand.New(rand.NewPCG(seed, 1)), o: serviceTest{
		dir: t.TempDir(), clock: newVirtualClock(testStart), extra: append(storyTemplates, dlqTemplates[1]),
		config: func(c *Config) { c.Store.Sync, c.Store.RetainFinishedCount = "never", 1+int(seed)*3 },
	}}
	w.open()
	return w
}

func (w *retentionWorld) open() {
	w.s = openTestService(w.t, w.o)
	w.s.store.tasks.goneFloor = 1
}

func (w *retentionWorld) run(n int) {
	for range n {
		w.o.clock.(*virtualClock).advance(time.Millisecond)
		w.act()
		settle(w.s) // or a task might finish only with the next one
		w.model()
		wantKept(w.t, w.s, w.tasks...)
		w.s.store.mu.Lock()
		checkRetention(w.t, w.s.store)
		w.s.store.mu.Unlock()
		if w.t.Failed() {
			break
		}
	}
	closeTestService(w.t, w.s)
}

// act does something to the service, which may refuse it.
func (w *retentionWorld) act() {
	some := func() uuid { return w.tasks[w.r.IntN(len(w.tasks))] }
	switch n := w.r.IntN(20); {
	case n < 8 || len(w.tasks) == 0:
		w.tasks = append(w.tasks, mustCreate(w.t, w.s, []string{"noop", "pair", "one"}[w.r.IntN(3)]).id)
	case n < 15:
		id := some()
		v := must(w.s.store.view(id))(w.t)
		action := []stepAction{actionComplete, actionFail, actionReset}[w.r.IntN(3)]
		q := &stepRequest{action: action, by: "me", reason: "r", result: []byte("1"),
			err: &stepError{message: "m", errorType: "t"}}
		w.s.operator.act(w.t.Context(), id, v.stepID(0), q)
		settle(w.s)
	case n < 16:
		w.s.operator.cancelTask(w.t.Context(), some(), taskActor{})
	case n < 18:
		if rows, _, _ := w.s.store.dead.page(dlqFilter{}, 0, 5); len(rows) > 0 {
			q := &investigation{status: []dlqStatus{dlqPending, dlqCancelled}[w.r.IntN(2)]}
			w.s.dlq.update(w.t.Context(), rows[w.r.IntN(len(rows))].id, q, nil)
		}
	case n < 19:
		if err := w.s.store.compact(); err != nil {
			w.t.Error(err)
		}
	default:
		closeTestService(w.t, w.s)
		w.open()
		settle(w.s)
	}
}

// model updates the tasks that should be kept: at most one has finished.
func (w *retentionWorld) model() {
	w.finished = slices.DeleteFunc(w.finished, func(id uuid) bool { return w.finishedAt(id) == 0 })
	for _, id := range w.tasks {
		if !slices.Contains(w.finished, id) && w.finishedAt(id) != 0 {
			w.finished = append(w.finished, id)
		}
	}
	limit := w.s.cfg.Store.RetainFinishedCount
	for ; len(w.finished) > limit; w.finished = w.finished[1:] {
		gone := w.finished[0]
		w.tasks = slices.DeleteFunc(w.tasks, func(id uuid) bool { return id == gone })
	}
}

// finishedAt is when a task finished; one that was dropped never did anything else.
func (w *retentionWorld) finishedAt(id uuid) instant {
	v, err := w.s.store.view(id)
	if err != nil {
		return 1
	}
	return v.finishedAt()
}

// The cost of keeping few of many tasks: memory and latency must stay flat.

// BenchmarkChurn creates diamonds of which the last thousand are kept, with one
// unfinished task in front, and reports the live heap early and at the end.
//
//	go test -run XXX -bench Churn -benchtime 1000000x .
func BenchmarkChurn(b *testing.B) {
	svc := openTestService(b, serviceTest{log: io.Discard, config: retaining(1000), extra: []string{
		benchTemplate("diamond", "builtin:noop", diamondParents), benchTemplate("manual", "Outside::Actor", diamondParents),
	}})
	defer closeTestService(b, svc)
	create := func(body string) {
		q := must(parseTaskRequest([]byte(body)))(b)
		must(svc.createTask(b.Context(), q, true))(b)
	}
	create(manualBody)
	times := make([]time.Duration, 0, b.N)
	early := b.N / 20
	for i := range b.N {
		if i == early {
			b.ReportMetric(liveHeap()-float64(cap(times))*8/1e6, "early-MB")
		}
		at := time.Now()
		create(diamondBody)
		times = append(times, time.Since(at))
	}
	b.ReportMetric(liveHeap()-float64(cap(times))*8/1e6, "end-MB")
	report := func(name string, part []time.Duration) {
		part = slices.Clone(part)
		slices.Sort(part)
		b.ReportMetric(float64(part[len(part)*999/1000].Microseconds()), name)
	}
	report("early-p99.9-µs", times[:len(times)/4+1])
	report("late-p99.9-µs", times[len(times)*3/4:])
}

// liveHeap returns the megabytes in use, once collections find nothing more to free: what
// finalizers and pools of earlier tests hold goes only with the next ones.
func liveHeap() float64 {
	for live := math.Inf(1); ; {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		before := live
		if live = float64(m.HeapAlloc) / 1e6; live > 0.995*before {
			return live
		}
	}
}
