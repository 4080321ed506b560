package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// plainFailure is a failing step as a plain search of all tasks finds it.
type plainFailure struct {
	failingStep
	slot *slot
	task *task
}

// plainFailures looks for the failing steps of a task.
func plainFailures(t *task, sl *slot, key *failureKey) (found []plainFailure) {
	for i := range t.steps {
		s := &t.steps[i]
		switch {
		case s.state == stepInError, s.state == stepWaitingForRetry, s.state == stepPending && s.last != nil && s.last.retryAt > 0:
			f, _ := s.last.fault()
			message, _ := jsonString(f.message)
			cause := failureCause{t.tpl.namespace, t.tpl.name, t.tpl.steps[t.declared(i)].name, f.errorType, groupMessage(message)}
			found = append(found, plainFailure{failingStep{uint32(i), s.state == stepInError, s.failed, cause.group(key)}, sl, t})
		}
	}
	return found
}

// checkFailures compares what the tasks have of their failing steps, and what lists answer, with a recount from all
// tasks. The caller holds the store's lock.
func checkFailures(t testing.TB, s *store, found []plainFailure) {
	t.Helper()
	bySlot := map[*slot][]failingStep{}
	groups := map[failureGroup]bool{}
	for _, f := range found {
		bySlot[f.slot] = append(bySlot[f.slot], f.failingStep)
		groups[f.group] = true
	}
	for _, sl := range s.tasks.byID {
		if sl.trouble == nil && len(bySlot[sl]) > 0 || sl.trouble != nil && !slices.Equal(sl.failures, bySlot[sl]) {
			t.Errorf("task %s has the failing steps %+v; want %+v", sl.id, sl.trouble, bySlot[sl])
		}
	}
	s.unlocked(func() {
		counts := recount(found)
		for _, limit := range []int{1, 2, 1000} {
			checkFailureCounts(t, countFailures(s, &taskFilter{}, 0, limit, s.clock.now()), found, counts, limit)
		}
		for g := range groups {
			want := failedTasks(found, func(f plainFailure) bool { return f.group == g })
			var got []uint64
			for _, p := range s.matching(&taskQuery{taskFilter: taskFilter{failure: g}, ascending: true, limit: 1e6}, nil) {
				got = append(got, p.place.seq)
			}
			if !slices.Equal(got, want) {
				t.Errorf("tasks created at %v are listed of group %s; want %v", got, g, want)
			}
			checkFailingRows(t, s, g, want)
		}
	})
}

// checkFailingRows compares the dead letters that are selected by a group with those of its tasks.
func checkFailingRows(t testing.TB, s *store, g failureGroup, tasks []uint64) {
	t.Helper()
	selected, _, _ := s.dead.page(dlqFilter{failure: g}, 0, 1e6)
	all, _, _ := s.dead.page(dlqFilter{}, 0, 1e6)
	want := slices.DeleteFunc(all, func(r dlqRow) bool { return !slices.Contains(tasks, s.tasks.byID[r.task].seq) })
	if !slices.EqualFunc(selected, want, equalRows) {
		t.Errorf("group %s selects the dead letters %+v; want %+v", g, selected, want)
	}
}

// failedTasks returns the creations of the tasks of some failures.
func failedTasks(found []plainFailure, are func(f plainFailure) bool) []uint64 {
	all := map[uint64]bool{}
	for _, f := range found {
		if are(f) {
			all[f.slot.seq] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// recount counts failures by group, those with the most tasks first.
func recount(found []plainFailure) (counts []failureCount) {
	names := map[failureGroup]bool{}
	for _, f := range found {
		if !names[f.group] {
			names[f.group] = true
			counts = append(counts, countPlainly(found, func(other plainFailure) bool { return other.group == f.group }))
			counts[len(counts)-1].group = f.group
		}
	}
	slices.SortFunc(counts, func(a, b failureCount) int {
		return cmp.Or(b.stuck-a.stuck, b.retrying-a.retrying, int(b.last-a.last), cmp.Compare(a.group, b.group))
	})
	return counts
}

// countPlainly counts the tasks of some failures.
func countPlainly(found []plainFailure, are func(f plainFailure) bool) (c failureCount) {
	stuck := failedTasks(found, func(f plainFailure) bool {
		return are(f) && (f.task.steps[f.step].state == stepInError || f.task.state == taskError)
	})
	c.stuck, c.retrying = len(stuck), len(failedTasks(found, are))-len(stuck)
	for _, f := range found {
		if are(f) {
			if c.first == 0 || f.at < c.first {
				c.first = f.at
			}
			c.last = max(c.last, f.at)
		}
	}
	return c
}

func checkFailureCounts(t testing.TB, got failureCounts, found []plainFailure, want []failureCount, limit int) {
	t.Helper()
	listed := map[failureGroup]bool{}
	for i, c := range got.top {
		sample := c.sample
		if c.sample = nil; i >= len(want) || c != want[i] {
			t.Errorf("group %d of at most %d is %+v; want them to be %+v", i, limit, c, want)
		}
		listed[c.group] = true
		of := slices.IndexFunc(found, func(f plainFailure) bool { return f.slot == sample.task && f.step == sample.step })
		if of < 0 || found[of].group != c.group || sample.forGood != (c.stuck > 0) {
			t.Errorf("group %s has the sample %+v", c.group, sample)
		}
	}
	others := countPlainly(found, func(f plainFailure) bool { return !listed[f.group] })
	if got.others.sample = nil; got.others != others || got.groups != len(want) || len(got.top) != min(limit, len(want)) {
		t.Errorf("of %d groups, those not among the %d first are counted as %+v; want %+v of %d",
			got.groups, len(got.top), got.others, others, len(want))
	}
}

// failuresText returns what GET /v1/analytics/failures says, a line for each group.
func failuresText(t *testing.T, s *service) string {
	t.Helper()
	v := must(s.failures(&taskFilter{}, 0, 50, true, nil))(t)
	var b strings.Builder
	for _, g := range v.Groups {
		fmt.Fprintf(&b, "%d stuck, %d retrying: %s.%s %s, %s, %s; %s to %s\n", g.StuckTasks, g.RetryingTasks, g.NamespaceName,
			g.TaskName, g.StepName, g.ErrorType, *g.Message, minutesAfterStart(g.FirstFailureAt), minutesAfterStart(g.LastFailureAt))
	}
	return b.String()
}

func minutesAfterStart(at zonedTime) string { return instant(at).sub(testStart).String() }

// TestFailures follows the tasks of one cause from the first retry to the end.
func TestFailures(t *testing.T) {
	clock := newVirtualClock(testStart)
	retry := `{"max_attempts":2,"backoff_base_ms":3600000,"max_backoff_ms":3600000}`
	batch := batchSteps("continue_on_failure", 10)
	for i := range batch {
		batch[i].callable = "Outside"
	}
	o := serviceTest{dir: t.TempDir(), clock: clock, config: func(c *Config) { c.Engine.Jitter, c.Store.Sync = false, "never" }, extra: []string{
		withLifecycle(testTemplate("pay", stepSpec{name: "charge", callable: "Outside", retry: retry},
			stepSpec{name: "send", callable: "Outside"}), `{"max_duration_minutes":30}`),
		testTemplate("order", stepSpec{name: "charge", callable: "Outside", retry: retry}),
		testTemplate("split", batch...),
	}}
	s := openTestService(t, o)
	t.Cleanup(func() { closeTestService(t, s) })
	fails := func(message string, retryable bool) stepRequest {
		return stepRequest{action: actionFail, err: &stepError{message: message, errorType: "CardError", retryable: retryable}}
	}
	want := func(lines ...string) {
		t.Helper()
		wanted := strings.Join(append(lines, ""), "\n")
		if got := failuresText(t, s); got != wanted {
			t.Fatalf("got\n%s; want\n%s", got, wanted)
		}
		s = reopenTestService(t, s, o)
		if got := failuresText(t, s); got != wanted {
			t.Fatalf("after a restart: got\n%s; want\n%s", got, wanted)
		}
		noError(t, s.store.compact())
	}
	want()
	first := mustAct(t, s, mustCreate(t, s, "order"), 0, fails("no funds for 12", true))
	clock.advance(time.Minute)
	second := mustAct(t, s, mustCreate(t, s, "order"), 0, fails("no funds for 7\nat charge", true))
	want("0 stuck, 2 retrying: t.order charge, CardError, no funds for *; 0s to 1m0s")
	clock.advance(time.Minute)
	mustAct(t, s, mustCreate(t, s, "order"), 0, fails("no funds for 9", false))
	want("1 stuck, 2 retrying: t.order charge, CardError, no funds for *; 0s to 2m0s")
	course := must(s.failures(&taskFilter{}, 0, 1, true, nil))(t).Groups[0].Course
	if wanted := (failureCourse{0: 1, courseParts / 2: 1, courseParts - 1: 1}); course != wanted {
		t.Errorf("got the course %v; want %v", course, wanted)
	}
	clock.advance(time.Hour) // the retries are due, and wait for the actor
	want("1 stuck, 0 retrying: t.order charge, CardError, no funds for *; 2m0s to 2m0s")
	mustAct(t, s, first, 0, fails("gave up", true)) // its last attempt
	mustAct(t, s, second, 0, fails("no funds for 8", true))
	want("2 stuck, 0 retrying: t.order charge, CardError, no funds for *; 2m0s to 1h2m0s",
		"1 stuck, 0 retrying: t.order charge, CardError, gave up; 1h2m0s to 1h2m0s")
	mustAct(t, s, first, 0, completeAction)
	mustAct(t, s, second, 0, resetAction)
	want("1 stuck, 0 retrying: t.order charge, CardError, no funds for *; 2m0s to 2m0s")

	// A task that ends as stale stays, also when its retry is due.
	stale := mustAct(t, s, mustAct(t, s, mustCreate(t, s, "pay"), 1, completeAction), 0, fails("busy", true))
	wanted := func(counts string) []string {
		return []string{counts + ": t.pay charge, CardError, busy; 1h2m0s to 1h2m0s",
			"1 stuck, 0 retrying: t.order charge, CardError, no funds for *; 2m0s to 2m0s"}
	}
	want(wanted("0 stuck, 1 retrying")[1], wanted("0 stuck, 1 retrying")[0])
	clock.advance(40 * time.Minute)
	wantStates(t, settled(t, s, stale.id), "error: waiting_for_retry complete")
	want(wanted("1 stuck, 0 retrying")...)
	clock.advance(time.Hour)
	wantStates(t, settled(t, s, stale.id), "error: pending complete")
	want(wanted("1 stuck, 0 retrying")...)
	mustAct(t, s, stale, 0, resolveAction)

	// The instances of a batch are one step, and their task counts once.
	split := mustAct(t, s, mustCreate(t, s, "split"), 0, stepRequest{action: actionComplete, result: []byte(createBatches("w", 3))})
	mustAct(t, s, split, 1, fails("no row 1", false))
	mustAct(t, s, split, 2, fails("no row 2", false))
	want("1 stuck, 0 retrying: t.split w, CardError, no row *; 2h42m0s to 2h42m0s",
		"1 stuck, 0 retrying: t.order charge, CardError, no funds for *; 2m0s to 2m0s")
	must(s.operator.cancelTask(t.Context(), split.id, taskActor{}))(t)
	want("1 stuck, 0 retrying: t.order charge, CardError, no funds for *; 2m0s to 2m0s")
}

// failingTasks is a table with this number of tasks of one step, which failed for good, and a counter of their memory.
func failingTasks(count int, message func(i int) string) (x *slotTable, tasks []*task, counted *int64) {
	counted = new(int64)
	x = &newStore(newVirtualClock(testStart), slog.New(slog.DiscardHandler)).tasks
	x.index.resize = func(by int64) { *counted += by }
	tpl := &template{namespace: "shop", name: "order", steps: []stepTemplate{{name: "charge"}}}
	for i := range count {
		e := &stepError{message: message(i), errorType: "E"}
		h := taskHeader{id: uuid{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i), 1}, seq: uint64(i + 1), tpl: tpl}
		t := &task{taskHeader: h, by: &creation{}, steps: []step{{state: stepInError, failed: testStart, last: &ending{err: e.appendJSON(nil)}}}}
		x.insert(&slot{live: t, taskHeader: h}, t.by)
		tasks = append(tasks, t)
	}
	return x, tasks, counted
}

// TestFailuresCost checks that what a failing attempt costs does not grow with the failing steps that there are.
func TestFailuresCost(t *testing.T) {
	cost := func(count int) float64 {
		x, tasks, _ := failingTasks(count, func(i int) string { return fmt.Sprint("no funds for ", i) })
		for _, task := range tasks {
			x.addFailure(x.slotOf(task), task, 0)
		}
		last := tasks[count-1]
		return testing.AllocsPerRun(100, func() {
			last.steps[0].state = stepComplete
			x.noteFailures(last, 0, stepInError, stepComplete)
			last.steps[0].state = stepInError
			x.noteFailures(last, 0, stepEnqueuedAsError, stepInError)
		})
	}
	if a, b := cost(1), cost(20_000); a != b {
		t.Errorf("a failure and its end make %v allocations beside one failing step, and %v beside 20,000", a, b)
	}
}

// stuckService serves so many tasks whose only step failed for good, in so many groups.
func stuckService(b *testing.B, tasks, groups int) (*service, *storedServer) {
	svc := openTestService(b, serviceTest{log: io.Discard, config: retaining(0), extra: []string{
		testTemplate("order", stepSpec{name: "charge", callable: "Outside"})}})
	b.Cleanup(func() {
		svc.finish(context.Background())
		svc.close()
	})
	for i := range tasks {
		v := must(svc.createTask(b.Context(), must(parseTaskRequest([]byte(`{"namespace":"t","name":"order"}`)))(b), true))(b)
		act := stepRequest{action: actionFail, by: "me", reason: "r", err: &stepError{
			message: fmt.Sprintf("dial tcp 10.0.0.%d:443: connection refused", i%256), errorType: fmt.Sprint("E", i%groups),
		}}
		_, _, err := svc.operator.act(b.Context(), v.id, v.stepID(0), &act)
		noError(b, err)
	}
	h := httptest.NewServer(newOrchestrationAPI(svc, nil))
	b.Cleanup(h.Close)
	c := dialClient(b, h.URL)
	b.Cleanup(func() { c.conn.Close() })
	return svc, &storedServer{client: c, times: map[string][]time.Duration{}, cpu: map[string][]time.Duration{}}
}

// BenchmarkFailures asks for the failure groups of 100,000 stuck tasks and for lists of one group, in turns with the
// same of 100 tasks, with lists of all, and with a recount from all tasks.
func BenchmarkFailures(b *testing.B) {
	for _, groups := range []int{20, 100_000} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			if b.N == 1 { // a run that measures nothing
				return
			}
			_, small := stuckService(b, 100, 20)
			svc, large := stuckService(b, 100_000, groups)
			group := must(svc.failures(&taskFilter{}, 0, 1, true, nil))(b).Groups[0].Group.String()
			b.ResetTimer()
			for range b.N {
				small.ask(b, storedRequest{"/v1/analytics/failures", "100-tasks"})
				large.ask(b, storedRequest{"/v1/analytics/failures", "answer"})
				large.ask(b, storedRequest{"/v1/tasks?failure_group=" + group, "tasks-of-group"})
				large.ask(b, storedRequest{"/v1/tasks", "tasks"})
				large.ask(b, storedRequest{"/v1/dlq?limit=10&failure_group=" + group, "dlq-of-group"})
				large.ask(b, storedRequest{"/v1/dlq?limit=10", "dlq"})
				began, used := time.Now(), cpuTime()
				svc.store.locked(func() {
					svc.store.tasks.eachLive(func(t *task) { plainFailures(t, nil, &svc.store.tasks.index.key) })
				})
				large.times["recount"] = append(large.times["recount"], time.Since(began))
				large.cpu["recount"] = append(large.cpu["recount"], cpuTime()-used)
			}
			b.StopTimer()
			for _, s := range []*storedServer{small, large} {
				for name, times := range s.times {
					p50, _ := percentiles(times)
					cpu, _ := percentiles(s.cpu[name])
					b.ReportMetric(float64(p50.Microseconds()), name+"-p50-µs")
					b.ReportMetric(float64(cpu.Microseconds()), name+"-cpu-µs")
				}
			}
		})
	}
}

// BenchmarkFailingTask creates tasks that fail at once, without and beside 100,000 stuck tasks.
func BenchmarkFailingTask(b *testing.B) {
	svc, _ := stuckService(b, 0, 1)
	const body = `{"namespace":"demo","name":"failing"}`
	for _, stuck := range []int{0, 100_000} {
		for len(svc.store.tasks.slots) < stuck {
			must(svc.createTask(b.Context(), must(parseTaskRequest([]byte(body)))(b), true))(b)
		}
		b.Run(fmt.Sprintf("stuck=%d", stuck), func(b *testing.B) {
			for b.Loop() {
				must(svc.createTask(b.Context(), must(parseTaskRequest([]byte(body)))(b), true))(b)
			}
		})
	}
}

// groupsOf returns the names of the failure groups of a service, which has one task that fails, and their key.
func groupsOf(t *testing.T, s *service) (string, failureKey) {
	t.Helper()
	settle(s)
	v := must(s.failures(&taskFilter{}, 0, 10, true, nil))(t)
	if len(v.Groups) != 1 {
		t.Fatalf("got %d groups; want one", len(v.Groups))
	}
	return v.Groups[0].Group.String(), s.store.tasks.index.key
}

// TestFailureGroupsOfAStore checks that the names of groups depend on the key of the store, that this key survives
// restarts, snapshots, exports and a repair, and that deterministic ids make it repeat.
func TestFailureGroupsOfAStore(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), templates: "testdata/templates"}
	s := openTestService(t, o)
	mustCreate(t, s, "fails")
	name, key := groupsOf(t, s)
	other := newTestService(t, serviceTest{templates: "testdata/templates"})
	mustCreate(t, other, "fails")
	if again, _ := groupsOf(t, other); again == name {
		t.Errorf("two services call the same failure %s", name)
	}
	check := func(when string, s *service) {
		t.Helper()
		if again, k := groupsOf(t, s); again != name || k != key {
			t.Errorf("%s: the group is called %s; want %s", when, again, name)
		}
	}
	s = reopenTestService(t, s, o)
	check("after a restart", s)
	noError(t, s.store.compact())
	s = reopenTestService(t, s, o)
	check("after a compaction", s)
	noError(t, s.store.compact())
	s = reopenTestService(t, s, o)
	check("after a second one", s)
	var document bytes.Buffer
	noError(t, s.store.export(s.store.cut(), &document))
	if text := document.String(); !strings.Contains(text, `"failure_key":"`+hex.EncodeToString(key[:])+`"`) {
		t.Error("the state lacks the key")
	}
	closeTestService(t, s)

	check("of a state in memory", newTestService(t, serviceTest{
		templates: o.templates, state: &stateSource{document: strings.NewReader(document.String())}}))
	copied := serviceTest{dir: t.TempDir(), templates: o.templates, state: &stateSource{document: strings.NewReader(document.String())}}
	s = openTestService(t, copied)
	check("after an import", s)
	copied.state = nil
	s = reopenTestService(t, s, copied)
	check("after an import and a restart", s)
	noError(t, s.store.compact())
	closeTestService(t, s)

}

// TestFailureKeyOfAState reads states with a key that is none.
func TestFailureKeyOfAState(t *testing.T) {
	for member, want := range map[string]string{
		`"failure_key":"` + hex.EncodeToString(testFailureKey[:]) + `"`:   "",
		`"failure_key":"` + hex.EncodeToString(testFailureKey[:]) + `00"`: "is not a string of 64 hex digits",
		`"failure_key":"` + strings.Repeat("g", 64) + `"`:                 "is not a string of 64 hex digits",
		`"failure_key":7`: "is not a string",
	} {
		_, err := storeOf(&stateSource{document: strings.NewReader(`{"format":3,` + member + "}\n{\"end\":{}}\n")}, slog.New(slog.DiscardHandler))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
			t.Errorf("%s: got %v; want %q", member, err, want)
		}
	}
}

// TestNobodySeesTheFailureKey asks all routes that show anything, as a caller with all permissions but not by the one for
// a backup: none shows the key.
func TestNobodySeesTheFailureKey(t *testing.T) {
	log := &logLines{}
	s := newTestServer(t, serviceTest{templates: "testdata/templates", log: log, dir: t.TempDir()})
	id := mustCreate(t, s.svc, "fails").id.String()
	_, key := groupsOf(t, s.svc)
	worker, asked := s.with(newWorkerAPI(s.svc, nil)), 0
	for _, table := range allRoutes() {
		at, prefix := onSurface(table.surface, s, worker, s.svc.cfg.Mount.Path)
		for _, row := range table.routes {
			method, path, _ := strings.Cut(row.pattern, " ")
			if method != "GET" || path == "/v1/backup" || path == "/v1/events" || strings.Contains(path, "/console/web") {
				continue
			}
			path = strings.NewReplacer("{$}", "", "{page...}", "tasks", "{task_uuid}", id, "{task_id}", id, "{id}", id).Replace(path)
			if text := at.do("GET", prefix+path, "").body; strings.Contains(string(text), hex.EncodeToString(key[:])) {
				t.Errorf("%s shows the key", row.pattern)
			}
			asked++
		}
	}
	if strings.Contains(log.String(), hex.EncodeToString(key[:])) {
		t.Error("the log has the key")
	}
	if !strings.Contains(string(s.do("GET", "/v1/backup", "").body), hex.EncodeToString(key[:])) || asked < 50 {
		t.Errorf("a backup lacks the key, or only %d routes were asked", asked)
	}
}

// TestFailureGroupNeedsMessages filters by a group as a caller who may not read messages.
func TestFailureGroupNeedsMessages(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "testdata/templates", config: withCallers(map[string][]string{
		"one-who-may-list": {"tasks:list", "dlq:read"}, "one-who-may-read-too": {"tasks:list", "dlq:read", "steps:read"},
	})})
	mustCreate(t, s.svc, "fails")
	group, _ := groupsOf(t, s.svc)
	for _, path := range []string{"/v1/tasks", "/stepwell/tasks", "/v1/dlq", "/v1/dlq/investigation-queue"} {
		for _, g := range []string{group, "00000000000000ff"} {
			a := s.as("one-who-may-list", "GET", path+"?failure_group="+g, "").want(403)
			if got := a.text("error.message"); got != "Missing required permission: steps:read" {
				t.Errorf("%s: got %s; want it refused", path, got)
			}
			s.as("one-who-may-read-too", "GET", path+"?failure_group="+g, "").want(200)
		}
		s.as("one-who-may-list", "GET", path, "").want(200)
	}
}
