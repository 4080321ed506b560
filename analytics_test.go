package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
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

func TestPerformance(t *testing.T) {
	s, y := newStoryServer(t)
	tellFigures(y)
	y.clock.advance(30*time.Minute - 80*time.Second)
	wantJSON(t, s.do("GET", "/v1/analytics/performance?hours=1", "").want(200), map[string]string{
		"total_tasks": "6", "active_tasks": "1", "completed_tasks": "3", "failed_tasks": "2",
		"completion_rate": "50", "error_rate": "33.33", // of 3 + 2 + 1 cancelled
		"system_health_score":           "0.6",
		"average_task_duration_seconds": "25.666667", // 6, 24, 47
		"average_step_duration_seconds": "7.777778",  // 2 4 1 1 12 3 5 30 12: 70 / 9
		"tasks_per_hour":                "12",        // 6 in the half hour since the first
		"steps_per_hour":                "24",        // 12 in that time
		"analysis_period_start":         "2025-12-31T23:00:00.000000Z",
		"calculated_at":                 "2026-01-01T00:30:00.000000Z",
	})
	y.clock.advance(24*time.Hour + 30*time.Minute)
	wantJSON(t, s.do("GET", "/api/v1/analytics/performance", "").want(200), map[string]string{
		"total_tasks": "6", "active_tasks": "1", "completed_tasks": "0", "failed_tasks": "0", "completion_rate": "0",
		"error_rate": "0", "system_health_score": "1", "average_task_duration_seconds": "0", "tasks_per_hour": "0",
		"average_step_duration_seconds": "0", "steps_per_hour": "0", "analysis_period_start": "2026-01-01T01:00:00.000000Z",
	})
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
	for range 7 { // beside one of 47 s
		id := y.create("other")
		y.run(id, 0, time.Second, succeeded)
		y.run(id, 1, time.Second, succeeded)
	}
	got := bottlenecksOf(s.svc, 10, 3).Recommendations
	want := []string{
		blockedAdvice,
		"Step a of t.other@1.0.0 fails in 18.18 % of its 11 attempts, most often with a custom error type.",
		"Step a of t.chain@1.0.0 fails in 33.33 % of its 3 attempts, most often with timeout.",
		"Step a runs 4.500 s on average; whole tasks of t.other@1.0.0 take 7.625 s.",
		"Half of the tasks of t.other@1.0.0 take up to 2.030 s, but one in twenty takes 47.000 s or more.",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestRecommendationsWithoutTypes expects advice on failures of which the types are not
// known, as in a state that leaves them out.
func TestRecommendationsWithoutTypes(t *testing.T) {
	n := namedFigures{templateID: templateID{"t", "chain", "1.0.0"}, step: "a"}
	n.counts[attemptsEnded], n.counts[attemptsFailed] = 4, 1
	const want = "Step a of t.chain@1.0.0 fails in 25.00 % of its 4 attempts."
	if got := recommendations(nil, []namedFigures{n}, &stateCounts{}); !slices.Equal(got, []string{want}) {
		t.Errorf("got %q; want %q", got, want)
	}
}

func bottlenecksOf(s *service, limit, minimum int) bottlenecksView {
	figures, states := s.store.figures()
	return figures.bottlenecks(&states, limit, minimum)
}

// TestFiguresForTrends checks the figures from which the mount point's analytics are made.
func TestFiguresForTrends(t *testing.T) {
	_, y := newStoryServer(t)
	tellFigures(y)
	figures, _ := y.svc.store.figures()
	now := y.clock.now()
	for _, hours := range []int{1, 4, 24} {
		r := figures.total(figureFilter{namespace: "t"}, hoursAgo(now, hours))
		if got := fmt.Sprint(r.counts); got != "[6 3 2 1 12 7 2 2 0 10 3 9 70000000 1 1 4 49000000]" {
			t.Errorf("%d hours: got counts %s", hours, got)
		}
		// 6 to 47 s: by nearest rank 24 s, at most 6 % off
		if p := r.times.quantile(0.5) / 1e6; p < 24*0.94 || p > 24*1.06 {
			t.Errorf("%d hours: the median task took %g s; want 24 s", hours, p)
		}
		if got := fmt.Sprint(r.errorTypes()); got != "[{other 2} {timeout 1}]" {
			t.Errorf("error types: got %s", got)
		}
		if r.retrySuccessRate() != 100 || r.averageWait() != 12.25 || r.attemptErrorRate() != 30 {
			t.Errorf("got %g, %g, %g; want retries that succeed in 100 %%, waits of 12.25 s, errors in 30 %%",
				r.retrySuccessRate(), r.averageWait(), r.attemptErrorRate())
		}
	}
	if r := figures.total(figureFilter{name: "chain", version: "1.0.0"}, allTime); r.counts[tasksCreated] != 2 {
		t.Errorf("chain alone: got %d tasks; want 2", r.counts[tasksCreated])
	}
	if n := len(figures.byStep(figureFilter{name: "chain"}, hoursAgo(now, 4))); n != 2 {
		t.Errorf("chain alone: got %d steps; want 2", n)
	}
	if r := figures.total(figureFilter{name: "chain", namespace: "u"}, allTime); r.counts[tasksCreated] != 0 {
		t.Errorf("another namespace: got %d tasks; want none", r.counts[tasksCreated])
	}
}

func TestEmptyAnalytics(t *testing.T) {
	s := newTestServer(t, serviceTest{clock: newVirtualClock(testStart)})
	a := s.do("GET", "/v1/analytics/performance", "").want(200)
	want := `{"total_tasks":0,"active_tasks":0,"completed_tasks":0,"failed_tasks":0,"completion_rate":0,"error_rate":0,` +
		`"average_task_duration_seconds":0,"average_step_duration_seconds":0,"tasks_per_hour":0,"steps_per_hour":0,` +
		`"system_health_score":1,"analysis_period_start":"2025-12-31T00:00:00.000000Z",` +
		`"calculated_at":"2026-01-01T00:00:00.000000Z"}` + "\n"
	if string(a.body) != want {
		t.Errorf("got %s; want %s", a.body, want)
	}
	wantJSON(t, s.do("GET", "/v1/analytics/bottlenecks", "").want(200), map[string]string{
		"slow_steps": "[]", "slow_tasks": "[]", "recommendations": "[]",
		"resource_utilization.system_health.total_tasks": "0", "resource_utilization.system_health.pending_steps": "0",
	})
}

func TestAnalyticsRefuses(t *testing.T) {
	s := newTestServer(t, serviceTest{clock: newVirtualClock(testStart)})
	for query, word := range map[string]string{
		"performance?hours=0": "hours", "performance?hours=721": "720", "performance?hours=x": "hours",
		"performance?hours=1.5": "hours", "performance?hours=99999999999999999999": "hours",
		"bottlenecks?limit=0": "limit", "bottlenecks?limit=1001": "1000", "bottlenecks?min_executions=-1": "min_executions",
		"bottlenecks?min_executions=many": "min_executions", "performance?%zz": "query",
	} {
		a := s.do("GET", "/v1/analytics/"+query, "").want(400)
		if a.text("error.code") != "BAD_REQUEST" || !strings.Contains(a.text("error.message"), word) {
			t.Errorf("%s: got %s; want BAD_REQUEST naming %s", query, a.body, word)
		}
	}
	for _, query := range []string{"performance?hours=720", "performance?hours=", "bottlenecks?limit=1000&min_executions=0"} {
		s.do("GET", "/v1/analytics/"+query, "").want(200)
	}
	s.do("POST", "/v1/analytics/performance", "").want(405)
}

// randomStep does one thing that the tables allow, to one of the tasks.
func (y *story) randomStep(r *rand.Rand, ids []uuid) []uuid {
	y.t.Helper()
	if len(ids) == 0 || r.IntN(4) == 0 {
		return append(ids, y.create([]string{"chain", "other"}[r.IntN(2)]))
	}
	id := ids[r.IntN(len(ids))]
	v := must(y.svc.store.view(id))(y.t)
	if v.state.final() {
		return ids
	}
	if r.IntN(20) == 0 && !v.state.ended() {
		y.cancel(id)
		return ids
	}
	i := r.IntN(2)
	switch v.steps[i].state {
	case stepEnqueued:
		if r.IntN(5) == 0 {
			y.act(id, i, completeAction)
		} else {
			y.start(id, i)
		}
	case stepInProgress:
		y.end(id, i, []outcome{succeeded, succeeded, timedOnce, outOfStock}[r.IntN(4)])
	case stepInError:
		y.act(id, i, []stepRequest{resetAction, resolveAction, completeAction}[r.IntN(3)])
	case stepWaitingForRetry:
		y.clock.advance(10 * time.Second)
	}
	return ids
}

// randomStory does many such things, with time between them: mostly moments,
// sometimes days.
func (y *story) randomStory(r *rand.Rand, ids []uuid, things int) []uuid {
	y.t.Helper()
	for range things {
		ids = y.randomStep(r, ids)
		y.clock.advance(time.Duration(r.ExpFloat64() * float64(time.Second)))
		if r.IntN(30) == 0 {
			y.clock.advance(time.Duration(r.Int64N(int64(100 * time.Hour))))
		}
	}
	return ids
}

// TestAnalyticsBesideChanges reads while tasks run: each answer shows a single moment, and none
// is older than the one before.
func TestAnalyticsBesideChanges(t *testing.T) {
	t.Parallel()
	s := newTestService(t, serviceTest{extra: storyTemplates})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 500 {
			parseAndCreate(s, `{"namespace":"t","name":"noop"}`)
		}
	}()
	var last uint64
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		bottlenecksOf(s, 10, 1)
		figures, states := s.store.figures()
		r := figures.total(figureFilter{}, allTime)
		created, completed := r.counts[tasksCreated], r.counts[tasksCompleted]
		if n := states.view()["total_tasks"]; created != uint64(n) || int(completed) != states.tasks[taskComplete] {
			t.Fatalf("got %d tasks created, %d completed; the store has %v", created, completed, states.tasks)
		}
		if own := figures.total(figureFilter{name: "noop"}, allTime); created < last || own.counts != r.counts {
			t.Fatalf("got %d tasks after %d; of the template %v of %v", created, last, own.counts, r.counts)
		}
		last = created
	}
	if last != 500 {
		t.Errorf("got %d tasks in the end; want 500", last)
	}
}
