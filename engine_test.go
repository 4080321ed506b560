package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"testing"
)

// stepSpec describes a step of a test's template.
type stepSpec struct {
	name, callable string
	after          []string
	config         string // handler.initialization
	retry          string // the retry object
	timeout        int
	kind           string // standard if empty
	batch          string // the batch_config object; none if empty
}

// testTemplate returns a template of the namespace t.
func testTemplate(name string, steps ...stepSpec) string {
	parts := make([]string, len(steps))
	for i, s := range steps {
		after := []string{}
		for _, a := range s.after {
			after = append(after, fmt.Sprintf("%q", a))
		}
		parts[i] = fmt.Sprintf(`{"name":%q,"type":%q,"handler":{"callable":%q,"initialization":%s},"dependencies":[%s],"retry":%s,"timeout_seconds":%d,"batch_config":%s}`,
			s.name, cmp.Or(s.kind, stepStandard), s.callable, cmp.Or(s.config, "{}"), strings.Join(after, ","), cmp.Or(s.retry, "{}"), max(s.timeout, 30*boolCount(s.timeout == 0)), cmp.Or(s.batch, "null"))
	}
	return fmt.Sprintf(`{"namespace":"t","name":%q,"version":"1.0.0","identity_strategy":"always_unique","steps":[%s]}`,
		name, strings.Join(parts, ","))
}

// testStart is the initial time of virtual clocks in tests.
var testStart = mustInstant("2026-01-01T00:00:00Z")

func mustInstant(s string) instant {
	at, err := parseInstant(s)
	if err != nil {
		panic(err)
	}
	return at
}

// mustCreate creates a task of a template of the namespace t and returns it once no builtin computes.
func mustCreate(t *testing.T, s *service, name string, fields ...string) *task {
	t.Helper()
	body := fmt.Sprintf(`{"namespace":"t","name":%q`, name)
	for _, f := range fields {
		body += "," + f
	}
	q := must(parseTaskRequest([]byte(body + "}")))(t)
	v := must(s.createTask(t.Context(), q, true))(t)
	for s.hasQueued(v.id) && computing(s) { // the scheduler may have taken a builtin before the creation could run it
		runtime.Gosched()
	}
	return must(s.store.view(v.id))(t)
}

// hasQueued reports whether a step of a task is queued, or left its queue and computes.
func (s *service) hasQueued(id uuid) (queued bool) {
	s.store.locked(func() {
		if t := s.store.liveLocked(id); t != nil {
			queued = slices.ContainsFunc(t.steps, func(st step) bool { return st.queued })
		}
	})
	return queued
}

// settle waits until no step can start and no builtin is computing.
func settle(s *service) {
	for s.engine.pump(math.MaxInt); computing(s); s.engine.pump(math.MaxInt) {
		runtime.Gosched()
	}
}

// computing reports whether the scheduler holds a step: one that left its queue and
// still counts as queued.
func computing(s *service) bool {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	waits := map[*step]bool{}
	for _, it := range slices.Concat(s.engine.queues.local.ready.items, s.engine.queues.web.ready.items) {
		waits[&it.task.steps[it.step]] = true
	}
	for _, a := range s.engine.absent.by {
		for _, it := range a.waiting.items {
			waits[&it.task.steps[it.step]] = true
		}
	}
	for _, sl := range s.store.tasks.slots {
		if sl == nil || sl.live == nil {
			continue
		}
		for i := range sl.live.steps {
			if st := &sl.live.steps[i]; st.queued && !waits[st] {
				return true
			}
		}
	}
	return false
}

// TestStopWithAnOutcomeOfABuiltin stops an engine while the store cannot take what a builtin returned.
func TestStopWithAnOutcomeOfABuiltin(t *testing.T) {
	s := newTestService(t, serviceTest{})
	s.engine.holdOutcome(&run{})
	s.engine.stop(t.Context())
}

// states returns the states of a task and its steps, as "complete: complete error".
func states(v *task) string {
	words := make([]string, len(v.steps))
	for i := range v.steps {
		words[i] = v.steps[i].state.String()
	}
	return v.state.String() + ": " + strings.Join(words, " ")
}

func wantStates(t *testing.T, v *task, want string) {
	t.Helper()
	if got := states(v); got != want {
		t.Fatalf("got %s; want %s", got, want)
	}
}

// act applies a step action and returns the settled task.
func act(t *testing.T, s *service, v *task, step int, q stepRequest) (*task, error) {
	t.Helper()
	q.by, q.reason = "ops", "because"
	if _, _, err := s.operator.act(t.Context(), v.id, v.stepID(step), &q); err != nil {
		return nil, err
	}
	return settled(t, s, v.id), nil
}

func mustAct(t *testing.T, s *service, v *task, step int, q stepRequest) *task {
	t.Helper()
	return must(act(t, s, v, step, q))(t)
}

var (
	resetAction    = stepRequest{action: actionReset}
	resolveAction  = stepRequest{action: actionResolve}
	cancelAction   = stepRequest{action: actionCancel}
	completeAction = stepRequest{action: actionComplete, result: []byte(`{"by":"hand"}`)}
	failAction     = stepRequest{action: actionFail, err: &stepError{message: "no", errorType: "refused"}}
	retryAction    = stepRequest{action: actionFail, err: &stepError{message: "not yet", errorType: "busy", retryable: true}}
)

// checkFigures compares the figures of a task in the API with a naive count of its steps.
func checkFigures(t testing.TB, v *task, now instant) {
	t.Helper()
	by := map[stepState]int{}
	ready, satisfied := 0, 0
	for i := range v.steps {
		s, def, parents := &v.steps[i], v.def(i), v.parents(i)
		by[s.state]++
		done := 0
		for _, p := range parents {
			done += boolCount(v.steps[p].state.satisfies())
		}
		eligible := s.attempts == 0 || def.retry.Retryable && s.attempts < s.maxAttempts
		certain := done == len(parents) && !v.open(i)
		isReady := (s.state == stepPending || s.state == stepWaitingForRetry) && certain &&
			eligible && s.retryAt <= now
		ready += boolCount(isReady)
		satisfied += boolCount(s.state.satisfies())
		x := newStepView(v, i, now, "")
		if x.parents-x.step.waitingFor != done || x.parents != len(parents) || x.eligible != eligible ||
			x.ready != isReady || x.satisfied != certain {
			t.Errorf("%s: step %d is shown as %+v", states(v), i, x)
		}
		if (s.state == stepWaitingForRetry) != (s.retryAt != 0) {
			t.Errorf("%s: step %d has its next retry at %d", states(v), i, s.retryAt)
		}
	}
	var x bareTask
	if err := json.Unmarshal(jsonOf(taskView{task: v, now: now}), &x); err != nil {
		t.Error(err)
	}
	got := []any{x.TotalSteps, x.PendingSteps, x.InProgressSteps, x.CompletedSteps, x.FailedSteps, x.ReadySteps,
		x.ExecutionStatus, x.CompletionPercentage, x.CompletedAt != nil}
	want := []any{len(v.steps), by[stepPending], by[stepInProgress], satisfied, by[stepInError], ready,
		naiveStatus(by, ready, len(v.steps)), math.Round(float64(satisfied)*10000/float64(len(v.steps))) / 100,
		v.state == taskComplete || v.state == taskCancelled}
	if !slices.Equal(got, want) {
		t.Errorf("%s is shown as %v; want %v", states(v), got, want)
	}
	if want := naiveState(by, len(v.steps)); v.state != want {
		t.Errorf("got %s; want the task %s", states(v), want)
	}
}

func naiveStatus(by map[stepState]int, ready, total int) string {
	switch {
	case by[stepCancelled] > 0: // together with its task: a single step is never cancelled here
		return "waiting_for_dependencies"
	case by[stepInError] > 0:
		return "blocked_by_failures"
	case ready > 0:
		return "has_ready_steps"
	case by[stepInProgress]+by[stepEnqueued] > 0:
		return "processing"
	case by[stepComplete]+by[stepResolvedManually] == total:
		return "all_complete"
	}
	return "waiting_for_dependencies"
}

// naiveState returns the state in which a task rests.
func naiveState(by map[stepState]int, total int) taskState {
	switch {
	case by[stepCancelled] > 0:
		return taskCancelled
	case by[stepInError] > 0:
		return taskBlockedByFailures
	case by[stepComplete]+by[stepResolvedManually] == total:
		return taskComplete
	case by[stepInProgress]+by[stepEnqueued] > 0:
		return taskStepsInProcess
	case by[stepWaitingForRetry] > 0:
		return taskWaitingForRetry
	}
	return taskWaitingForDependencies
}

// Large tasks, and many at once: costs that must not grow with their number are counted rather
// than timed.

// stuckTemplate returns a template of one step, which the handler runs once, for an hour at
// most.
func stuckTemplate(h *wire.HeldHandler) string {
	return testTemplate("slow", stepSpec{name: "a", callable: h.URL, timeout: 3600, retry: `{"max_attempts":1}`})
}

// TestManySteps runs tasks of 2,000 steps, or 10,000, through the API. Each step is one record, whatever
// the graph.
func TestManySteps(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	n := size(2_000, 10_000)
	for _, shape := range stepShapes {
		t.Run(shape.name, func(t *testing.T) {
			s := newTestServer(t, serviceTest{
				extra: []string{benchTemplate("shape", "builtin:noop", shapeParents(n, shape.parents))}})
			before := s.svc.store.journal.status().records
			v := s.do("POST", "/v1/tasks?wait=1m", `{"namespace":"bench","name":"shape"}`).want(201)
			if got, want := v.text("status")+" "+v.text("completed_steps"), fmt.Sprintf("complete %d", n); want != got {
				t.Errorf("got %s; want %s", got, want)
			}
			// Beside the steps': the template and the creation.
			if got := s.svc.store.journal.status().records - before; got != uint64(n)+2 {
				t.Errorf("got %d records; want %d", got, n+2)
			}
			path := "/v1/tasks/" + v.text("task_uuid")
			steps := s.do("GET", path+"/workflow_steps", "").want(200)
			if got := steps.length(); got != n {
				t.Fatalf("got %d steps; want %d", got, n)
			}
			last := s.do("GET", path+"/workflow_steps/"+steps.text(fmt.Sprintf("%d.step_uuid", n-1)), "").want(200)
			if got, want := last.text("name")+" "+last.text("current_state"), fmt.Sprintf("s%d complete", n-1); got != want {
				t.Errorf("the last step is %s; want %s", got, want)
			}
			if got := s.do("GET", path, "").want(200).text("completion_percentage"); got != "100" {
				t.Errorf("got %s %% complete; want 100", got)
			}
		})
	}
}

// yielder is an HTTP handler that counts to its goal in steps of one, and yields after each.
type yielder struct {
	goal int
	keys []string
	fail func(n int) bool // at this number of calls
}

func (y *yielder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	y.keys = append(y.keys, r.Header.Get("Idempotency-Key"))
	if y.fail != nil && y.fail(len(y.keys)) {
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	n, _ := jsonInt(objectMember(objectMember(objectMember(body, "step"), "checkpoint"), "cursor"))
	if int(n) == y.goal {
		fmt.Fprintf(w, `{"success":true,"result":%d}`, n)
		return
	}
	fmt.Fprintf(w, `{"success":true,"checkpoint":{"cursor":%d,"accumulated_results":%q}}`, n+1, strings.Repeat("x", 200))
}

// TestHandlerYields checks that a step whose handler yields runs again without using an attempt,
// continues from its checkpoint after a failure, and leaves only the newest one in the log of its
// task, however many there were; and that this is so after a restart.
func TestHandlerYields(t *testing.T) {
	y := &yielder{goal: 300, fail: func(n int) bool { return n == 100 }}
	web := httptest.NewServer(y)
	t.Cleanup(web.Close)
	dir, tpl := t.TempDir(), testTemplate("yields",
		stepSpec{name: "a", callable: web.URL, retry: `{"max_attempts":2,"backoff_base_ms":1}`},
		stepSpec{name: "b", callable: "Outside", after: []string{"a"}})
	s := newTestService(t, serviceTest{dir: dir, extra: []string{tpl}})
	id := mustCreate(t, s, "yields").id
	most := 0
	wire.Eventually(t, "the step is complete", func() bool {
		v := must(s.store.view(id))(t)
		most = max(most, len(v.log))
		return v.steps[0].state == stepComplete
	})
	v := must(s.store.view(id))(t)
	if got := &v.steps[0]; got.attempts != 2 || string(got.last.result) != "300" || got.checkpoint != nil {
		t.Errorf("got %d attempts, result %s, checkpoint %v; want 2, 300 and none", got.attempts, got.last.result, got.checkpoint)
	}
	if most > 5000 {
		t.Errorf("the log had %d bytes; want the newest checkpoint and few others", most)
	}
	first, last := v.stepID(0).String()+":1", v.stepID(0).String()+":2:300"
	if n := len(y.keys); n != 302 || y.keys[0] != first || y.keys[1] != first+":1" || y.keys[n-1] != last {
		t.Errorf("got %d deliveries with the keys %s, %s … %s", n, y.keys[0], y.keys[1], y.keys[n-1])
	}
	mustAct(t, s, v, 1, completeAction)
	kept := must(s.store.view(id))(t)
	if n := strings.Count(string(kept.log), `"kind":"checkpoint"`); n != 1 {
		t.Errorf("the log of the finished task has %d checkpoints; want 1: %s", n, kept.log)
	}
	closeTestService(t, s)
	again := must(newTestService(t, serviceTest{dir: dir, extra: []string{tpl}}).store.view(id))(t)
	if string(again.log) != string(kept.log) {
		t.Errorf("after a restart: got %s; want %s", again.log, kept.log)
	}
}
