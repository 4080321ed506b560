package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// story drives steps of outside actors on a virtual clock, record by record, so
// that every duration is known.
type story struct {
	t     *testing.T
	svc   *service
	clock *virtualClock
}

// chainTemplate is a then b, both for outside actors, with three attempts each
// and 10 s between them.
func chainTemplate(name string) string {
	const retry = `{"max_attempts":3,"backoff":"linear","backoff_base_ms":10000,"max_backoff_ms":10000}`
	return testTemplate(name, stepSpec{name: "a", callable: "Outside", retry: retry},
		stepSpec{name: "b", callable: "Outside", retry: retry, after: []string{"a"}})
}

func storyOptions(dir string) serviceTest {
	return serviceTest{dir: dir, clock: newVirtualClock(testStart), extra: []string{chainTemplate("chain"), chainTemplate("other")}}
}

func newStory(t *testing.T, s *service) *story { return &story{t, s, s.clock.(*virtualClock)} }

func (y *story) create(name string) uuid { return mustCreate(y.t, y.svc, name).id }

func (y *story) record(id uuid, r func(c *change, t *task) *record) {
	y.t.Helper()
	must(y.svc.store.update(func(c *change) error {
		t, err := c.task(id)
		if err != nil {
			return err
		}
		return c.append(t, r(c, t))
	}))(y.t)
}

func (y *story) start(id uuid, step int) {
	y.t.Helper()
	y.record(id, func(*change, *task) *record { return &record{kind: recStarted, step: step} })
}

func (y *story) end(id uuid, step int, o outcome) {
	y.t.Helper()
	y.record(id, func(c *change, t *task) *record {
		return &record{kind: recEnded, step: step, end: y.svc.engine.outcomes.ending(t, step, o, c.now, t.steps[step].attempted)}
	})
}

// run is an attempt from start to end.
func (y *story) run(id uuid, step int, took time.Duration, o outcome) {
	y.t.Helper()
	y.start(id, step)
	y.clock.advance(took)
	y.end(id, step, o)
}

// act is an operator's action.
func (y *story) act(id uuid, step int, q stepRequest) {
	y.t.Helper()
	v := must(y.svc.store.view(id))(y.t)
	mustAct(y.t, y.svc, v, step, q)
}

func (y *story) cancel(id uuid) {
	y.t.Helper()
	must(y.svc.operator.cancelTask(y.t.Context(), id, taskActor{}))(y.t)
}

var (
	succeeded  = outcome{success: true}
	timedOnce  = timedOut(time.Second) // retryable
	outOfStock = failedOutcome("out_of_stock", "no", false)
)

// tellFigures plays the story whose figures are worked out in the tests. It takes 80 s from
// testStart on:
//
//	1  chain complete after 6 s: a 2 s, b 4 s after waiting 2 s
//	2  chain complete after 24 s: a 1 s and a time-out, 10 s, a 1 s, b 12 s after waiting 12 s
//	3  other blocked after 3 s: a 3 s, for good, with an undocumented type
//	4  other cancelled while a runs
//	5  other blocked after 5 s, reset, complete after 47 s: a 5 s for good, a 30 s, b 12 s after waiting 35 s
//	6  other continues: a completed by hand from enqueued, b enqueued at once
func tellFigures(y *story) {
	id := y.create("chain")
	y.run(id, 0, 2*time.Second, succeeded)
	y.run(id, 1, 4*time.Second, succeeded)
	id = y.create("chain")
	y.run(id, 0, time.Second, timedOnce)
	y.clock.advance(10 * time.Second)
	y.run(id, 0, time.Second, succeeded)
	y.run(id, 1, 12*time.Second, succeeded)
	y.run(y.create("other"), 0, 3*time.Second, outOfStock)
	id = y.create("other")
	y.start(id, 0)
	y.cancel(id)
	id = y.create("other")
	y.run(id, 0, 5*time.Second, outOfStock)
	y.act(id, 0, resetAction)
	y.run(id, 0, 30*time.Second, succeeded)
	y.run(id, 1, 12*time.Second, succeeded)
	y.act(y.create("other"), 0, completeAction)
}

func newStoryServer(t *testing.T) (*testServer, *story) {
	o := storyOptions("")
	o.config = func(c *Config) { c.Engine.Jitter = false }
	s := newTestServer(t, o)
	return s, newStory(t, s.svc)
}

// wantJSON compares members of an answer, as they are written.
func wantJSON(t *testing.T, a *answer, want map[string]string) {
	t.Helper()
	for path, value := range want {
		if got := a.text(path); got != value {
			t.Errorf("%s: got %s; want %s", path, got, value)
		}
	}
}

// TestRatesPerHour expects the rates per hour of a service that is younger than the
// period to count from its first task.
func TestRatesPerHour(t *testing.T) {
	o := storyOptions("")
	o.config = func(c *Config) { c.Store.RetainFinishedCount = 4 }
	s := newTestServer(t, o)
	y := newStory(t, s.svc)
	want := func(when string, hours int, tasks, steps int64) {
		t.Helper()
		if p := performanceOf(s.svc, hours); p.TasksPerHour != tasks || p.StepsPerHour != steps {
			t.Errorf("%s: got %d tasks and %d steps per hour; want %d and %d", when, p.TasksPerHour, p.StepsPerHour, tasks, steps)
		}
	}
	y.clock.advance(50 * time.Minute)
	want("without tasks", 24, 0, 0)
	y.cancel(y.create("chain"))
	want("at once", 24, 60, 120) // as if a minute had passed
	y.clock.advance(30 * time.Minute)
	want("after half an hour", 24, 2, 4)
	for range 3 {
		y.cancel(y.create("chain"))
	}
	want("after half an hour, four tasks", 24, 8, 16)
	y.clock.advance(100 * time.Minute) // it is 03:00
	for range 6 {
		y.cancel(y.create("chain")) // finished tasks are dropped
	}
	if s.svc.store.counts().tasks[taskCancelled] > 4 {
		t.Fatal("no task was dropped")
	}
	want("without the first task", 24, 3, 7) // 10 since 00:00
	want("older than the period", 1, 6, 12)  // 6 since 02:00
}

func TestBottlenecks(t *testing.T) {
	s, y := newStoryServer(t)
	tellFigures(y)
	a := s.do("GET", "/v1/analytics/bottlenecks?min_executions=1", "").want(200)
	var order []string
	for i := range a.get("slow_steps").([]any) {
		at := fmt.Sprintf("slow_steps.%d.", i)
		order = append(order, a.text(at+"namespace_name")+"."+a.text(at+"task_name")+"."+a.text(at+"step_name"))
	}
	if want := []string{"t.other.a", "t.other.b", "t.chain.b", "t.chain.a"}; !slices.Equal(order, want) {
		t.Errorf("slow steps: got %v; want %v", order, want)
	}
	wantJSON(t, a, map[string]string{
		// other a: 3 s and 5 s failed, 30 s, and one completed by hand, which nobody timed
		"slow_steps.0.version": "1.0.0", "slow_steps.0.average_duration_seconds": "12.666667",
		"slow_steps.0.max_duration_seconds": "30", "slow_steps.0.execution_count": "4",
		"slow_steps.0.error_count": "2", "slow_steps.0.error_rate": "0.5",
		"slow_steps.0.last_executed_at":         "2026-01-01T00:01:20.000000Z",
		"slow_steps.2.average_duration_seconds": "8", "slow_steps.2.error_count": "0",
		// chain a: 2, 1 (timed out), 1
		"slow_steps.3.average_duration_seconds": "1.333333", "slow_steps.3.execution_count": "3",
		"slow_steps.3.error_rate": "0.3333",
		// other: completed once after 47 s, failed twice
		"slow_tasks.0.task_name": "other", "slow_tasks.0.average_duration_seconds": "47",
		"slow_tasks.0.execution_count": "3", "slow_tasks.0.error_count": "2", "slow_tasks.0.error_rate": "0.6667",
		"slow_tasks.0.average_step_count": "2", "slow_tasks.0.last_executed_at": "2026-01-01T00:01:20.000000Z",
		"slow_tasks.1.task_name": "chain", "slow_tasks.1.average_duration_seconds": "15",
		"slow_tasks.1.max_duration_seconds": "24", "slow_tasks.1.error_rate": "0",
		"resource_utilization.database_pool_utilization":                               "0",
		"resource_utilization.system_health.complete_tasks":                            "3",
		"resource_utilization.system_health.blocked_by_failures_tasks":                 "1",
		"resource_utilization.system_health.cancelled_tasks":                           "1",
		"resource_utilization.system_health.steps_in_process_tasks":                    "1",
		"resource_utilization.system_health.total_tasks":                               "6",
		"resource_utilization.system_health.enqueued_steps":                            "1",
		"resource_utilization.system_health.error_steps":                               "1",
		"resource_utilization.system_health.enqueued_as_error_for_orchestration_steps": "0",
		"resource_utilization.system_health.total_steps":                               "12",
	})
	if n := len(a.get("resource_utilization.system_health").(map[string]any)); n != 12+10+2 {
		t.Errorf("system health has %d members; want 24", n)
	}
	b := s.do("GET", "/v1/analytics/bottlenecks?min_executions=3&limit=1", "").want(200)
	wantJSON(t, b, map[string]string{"slow_steps.0.step_name": "a", "slow_tasks.0.task_name": "other"})
	if n := len(b.get("slow_steps").([]any)); n != 1 {
		t.Errorf("with limit 1: got %d slow steps", n)
	}
	wantJSON(t, s.do("GET", "/v1/analytics/bottlenecks", "").want(200), map[string]string{
		"slow_steps": "[]", "slow_tasks": "[]", "recommendations": "[" + blockedAdvice + "]"})
}

// TestHistory checks the figures by hour and by template.
func TestHistory(t *testing.T) {
	s, y := newStoryServer(t)
	tellFigures(y)
	y.clock.advance(2 * time.Hour)
	y.cancel(y.create("chain"))
	a := s.do("GET", "/v1/analytics/history?hours=3", "").want(200)
	wantJSON(t, a, map[string]string{
		"hours.0.hour": "2026-01-01T00:00:00.000000Z", "hours.0.created_tasks": "6", "hours.0.completed_tasks": "3",
		"hours.0.failed_tasks": "2", "hours.0.cancelled_tasks": "1",
		"hours.0.ended_attempts": "10", "hours.0.failed_attempts": "3",
		"hours.0.average_duration_seconds": "25.666667", // 6, 24, 47
		"hours.1.hour":                     "2026-01-01T02:00:00.000000Z", "hours.1.created_tasks": "1",
		"hours.1.cancelled_tasks": "1", "hours.1.p95_duration_seconds": "0",
		"templates.0.name": "chain", "templates.0.created_tasks": "3", "templates.0.completed_tasks": "2",
		"templates.1.name": "other", "templates.1.p50_duration_seconds": "47",
		"analysis_period_start": "2025-12-31T23:00:00.000000Z",
	})
	if n := len(a.get("hours").([]any)); n != 2 {
		t.Errorf("got %d hours; want those with figures, 2", n)
	}
	if p95 := a.get("hours.0.p95_duration_seconds"); must(p95.(json.Number).Float64())(t) < 44 {
		t.Errorf("got 95th percentile %v; want about 47", p95)
	}
	a = s.do("GET", "/v1/analytics/history?hours=3&name=other", "").want(200)
	wantJSON(t, a, map[string]string{
		"hours.0.created_tasks": "4", "hours.0.completed_tasks": "1", "templates.0.name": "other"})
	wantJSON(t, s.do("GET", "/v1/analytics/history?hours=1&name=other", "").want(200),
		map[string]string{"hours": "[]", "templates": "[]"})
}

// TestHistoryByMinute checks that the last minutes are counted from the start of the service on, and are bounded.
func TestHistoryByMinute(t *testing.T) {
	s, y := newStoryServer(t)
	y.create("chain")
	y.clock.advance(2 * time.Minute)
	y.cancel(y.create("chain"))
	wantJSON(t, s.do("GET", "/v1/analytics/history?minutes=60", "").want(200), map[string]string{
		"minutes.0.minute": "2026-01-01T00:00:00.000000Z", "minutes.0.created_tasks": "1",
		"minutes.1.minute": "2026-01-01T00:02:00.000000Z", "minutes.1.created_tasks": "1",
		"minutes.1.cancelled_tasks": "1", "minutes_start": "2026-01-01T00:00:00.000000Z"})
	wantJSON(t, s.do("GET", "/v1/analytics/history?minutes=1", "").want(200), map[string]string{
		"minutes.0.minute": "2026-01-01T00:02:00.000000Z", "minutes_start": "2026-01-01T00:01:00.000000Z"})
	if got := s.do("GET", "/v1/analytics/history", "").want(200).body; strings.Contains(string(got), "minute") {
		t.Errorf("got minutes that nobody asked for: %s", got)
	}
	s.do("GET", "/v1/analytics/history?minutes=181", "").want(400)
	s.do("GET", "/v1/analytics/history?minutes=60&name=chain", "").want(400)
	for range keptMinutes + 9 {
		y.clock.advance(time.Minute)
		y.create("chain")
	}
	f, _ := s.svc.store.figures()
	if n := len(f.minutes.hours(allTime)); n != keptMinutes+1 {
		t.Errorf("%d minutes are kept; want %d", n, keptMinutes+1)
	}
	s.svc.store.analytics.live = minuteOf(y.clock.now()) + 1 // as a restart in the next minute
	y.create("chain")
	wantJSON(t, s.do("GET", "/v1/analytics/history?minutes=180", "").want(200), map[string]string{"minutes": "[]"})
}

const blockedAdvice = "Tasks blocked by failures: 1. They wait for an operator to reset, complete or resolve their failed steps."

func TestRecommendations(t *testing.T) {
	s, y := newStoryServer(t)
	tellFigures(y)
	got := bottlenecksOf(s.svc, 10, 3).Recommendations
	want := []string{
		blockedAdvice,
		"Step a of t.other@1.0.0 fails in 50.00 % of its 4 attempts, most often with a custom error type.",
		"Step a of t.chain@1.0.0 fails in 33.33 % of its 3 attempts, most often with timeout.",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	n := namedFigures{templateID: templateID{"t", "chain", "1.0.0"}, step: "a"} // as in a state that leaves out error types
	n.counts[attemptsEnded], n.counts[attemptsFailed] = 4, 1
	if got := recommendations(0, []namedFigures{n}); !slices.Equal(got, []string{"Step a of t.chain@1.0.0 fails in 25.00 % of its 4 attempts."}) {
		t.Errorf("without types: got %q", got)
	}
}

func bottlenecksOf(s *service, limit, minimum int) bottlenecksView {
	figures, states := s.store.figures()
	return figures.bottlenecks(&states, limit, minimum)
}

func performanceOf(s *service, hours int) performanceView {
	figures, states := s.store.figures()
	return figures.performance(&states, s.clock.now(), hours)
}

// TestHourEdges creates a task in the last microsecond of an hour and one in the first of the
// next.
func TestHourEdges(t *testing.T) {
	_, y := newStoryServer(t)
	y.clock.advance(time.Hour - time.Microsecond)
	y.create("chain")
	y.clock.advance(time.Microsecond)
	y.create("chain")
	for _, tc := range []struct {
		wait  time.Duration // since the previous one
		hours int
		want  uint64
	}{
		{0, 1, 2},
		{time.Hour - time.Microsecond, 1, 2}, // 01:59:59.999999: from 00:00 on
		{time.Microsecond, 1, 1},             // 02:00: from 01:00 on
		{0, 2, 2},
		{time.Hour, 1, 0},
		{keptHours*time.Hour - 2*time.Hour - time.Microsecond, 720, 2},
		{time.Microsecond, 720, 1}, // the first is no longer in a kept hour
		{time.Hour, 720, 0},
	} {
		y.clock.advance(tc.wait)
		figures, _ := y.svc.store.figures()
		from := hoursAgo(y.clock.now(), tc.hours)
		if got := figures.total(figureFilter{}, from).counts[tasksCreated]; got != tc.want {
			t.Errorf("at %s, %d hours: got %d tasks; want %d", y.clock.now().zoned(), tc.hours, got, tc.want)
		}
		if v := performanceOf(y.svc, tc.hours); v.TotalTasks != 2 {
			t.Errorf("at %s: got %d tasks in all; want 2", y.clock.now().zoned(), v.TotalTasks)
		}
	}
	if hourOf(-1) != -1 || hourOf(instant(hourMicros)) != 1 || hourStart(1) != instant(hourMicros) {
		t.Error("hours do not begin where they should")
	}
}

// TestKeptHours creates a task an hour for longer than hours are kept.
func TestKeptHours(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	_, y := newStoryServer(t)
	for range keptHours + 100 {
		y.create("chain")
		y.clock.advance(time.Hour)
	}
	figures, _ := y.svc.store.figures()
	own := figures.templates[0].own
	if n := len(own.past) + 1; n != keptHours+1 {
		t.Errorf("got %d hours; want %d", n, keptHours+1)
	}
	if own.all.counts[tasksCreated] != keptHours+100 {
		t.Errorf("over all time: got %d tasks; want %d", own.all.counts[tasksCreated], keptHours+100)
	}
	if v := performanceOf(y.svc, 720); v.TotalTasks != keptHours+100 || v.TasksPerHour != 1 {
		t.Errorf("got %d tasks, %d per hour; want %d, 1", v.TotalTasks, v.TasksPerHour, keptHours+100)
	}
}

func TestUnfitFiguresAreRefused(t *testing.T) {
	const row = `{"hour":5,"counts":{"tasks_created":1}}`
	line := func(kind, seq, more, hours string) string {
		return `{"figures":"` + kind + `","seq":` + seq + `,"namespace":"t","name":"x","version":"1.0.0"` + more +
			`,"all":{"counts":{"tasks_created":1}},"hours":[` + hours + `]}`
	}
	good := line("template", "7", "", row)
	for _, tc := range []struct{ line, reason string }{
		{line("step", "7", `,"step":"a"`, row), ""},
		{line("step", "8", `,"step":"a"`, row), "as of sequence 8 after figures as of sequence 7"},
		{line("step", "0", `,"step":"a"`, row), "as of sequence 0"},
		{line("colour", "7", "", row), "unknown kind"},
		{line("step", "7", `,"step":"a","mood":1`, row), "mood"},
		{line("step", "7", `,"step":"a"`, row+","+row), "hour 5 comes after hour 5"},
		{line("step", "7", `,"step":"a"`, `{"counts":{"smiles":1}}`), "smiles"},
		{line("template", "7", "", row), "duplicate figures of"},
	} {
		a := newAnalytics()
		noError(t, a.load([]byte(good)))
		err := a.load([]byte(tc.line))
		if (err == nil) != (tc.reason == "") || err != nil && !strings.Contains(err.Error(), tc.reason) {
			t.Errorf("%s: got %v; want %q", tc.line, err, tc.reason)
		}
	}
	l := &restorer{s: &store{analytics: newAnalytics(), tasks: slotTable{slots: make([]*slot, 1)}}}
	if err := l.figuresLine([]byte(good)); err == nil || !strings.Contains(err.Error(), "after a task") {
		t.Errorf("figures after a task: got %v", err)
	}
}

// compactAround is compact, with something happening after the cut and before the lines are written.
func compactAround(t *testing.T, s *store, between func()) {
	t.Helper()
	cut := s.cut()
	noError(t, s.journal.replace(cut.offset, cut.life, func(w *lineWriter) error {
		between()
		return s.write(cut, w)
	}))
}

// TestFiguresOutliveTasks reads a compacted part without its tasks.
func TestFiguresOutliveTasks(t *testing.T) {
	o := storyOptions(t.TempDir())
	s := openTestService(t, o)
	tellFigures(newStory(t, s))
	before := performanceOf(s, 1)
	before.ActiveTasks = 0
	cut := s.store.cut()
	cut.tasks, cut.header.tasks = taskCut{}, 0
	noError(t, s.store.journal.replace(cut.offset, cut.life, func(w *lineWriter) error { return s.store.write(cut, w) }))
	s = reopenTestService(t, s, o)
	s.finish(context.Background())
	defer s.close()
	if n := len(s.store.tasks.slots); n != 0 {
		t.Fatalf("%d tasks are still there", n)
	}
	if got := performanceOf(s, 1); got != before {
		t.Errorf("without its tasks the store reports\n%+v\nwant\n%+v", got, before)
	}
}

// figuresText returns everything that was counted, sorted.
func figuresText(a *analytics) string { return frozenText(a.freeze()) }

func frozenText(f *frozenFigures) string {
	var all []string
	f.writeLines(1, func(line []byte) error {
		all = append(all, string(line))
		return nil
	})
	slices.Sort(all)
	return strings.Join(all, "\n")
}
