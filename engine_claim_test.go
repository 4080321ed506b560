package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// claim sends a claim and returns the steps it got.
func (s *testServer) claim(body string) []claimed {
	s.t.Helper()
	var got []claimed
	noError(s.t, json.Unmarshal(s.do("POST", "/v1/steps/claim", body).want(200).body, &got))
	return got
}

// awaitClaimers returns once n claimers wait.
func (s *testServer) awaitClaimers(n int) {
	s.t.Helper()
	eventually(s.t.(*testing.T), fmt.Sprintf("%d claimers to wait", n), func() bool {
		s.svc.store.mu.Lock()
		defer s.svc.store.mu.Unlock()
		return len(s.svc.engine.outside.claimers) == n
	})
}

func (s *testServer) claimers() []*claimer {
	s.svc.store.mu.Lock()
	defer s.svc.store.mu.Unlock()
	return slices.Clone(s.svc.engine.outside.claimers)
}

func newClaimServer(t *testing.T, o serviceTest) *testServer {
	t.Helper()
	if o.clock == nil {
		o.clock = newVirtualClock(testStart)
	}
	o.extra = append(o.extra, claimTemplates...)
	return newTestServer(t, o)
}

const (
	anyOne   = `{"callables":["*"],"worker_id":"w1"}`
	anyTen   = `{"callables":["*"],"limit":10}`
	createOn = `{"namespace":"t","name":%q,"context":{"n":7}}`
)

// TestClaimOrder expects steps in the order of priority, then of the age of their
// tasks.
func TestClaimOrder(t *testing.T) {
	s := newClaimServer(t, serviceTest{})
	var ids []string
	for _, priority := range []int{0, 5, 0, -3, 5} {
		ids = append(ids, s.create(fmt.Sprintf(`{"namespace":"t","name":"pair","priority":%d}`, priority)))
	}
	var got []string
	for _, c := range append(s.claim(`{"callables":["*"],"limit":4}`), s.claim(anyTen)...) {
		got = append(got, fmt.Sprintf("%d%s", slices.Index(ids, c.Task.TaskUUID), c.Step.Name))
	}
	if want := "1a 1b 4a 4b 0a 0b 2a 2b 3a 3b"; strings.Join(got, " ") != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

// TestClaimPatterns claims steps by callable and namespace.
func TestClaimPatterns(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{
		`{"callables":["Shop::Pack"],"limit":9}`:                            1,
		`{"callables":["Shop::*"],"limit":9}`:                               2,
		`{"callables":["Shop::Send","Shop::Pack"],"limit":9}`:               2,
		`{"callables":["*"]}`:                                               1,
		`{"callables":["Shop::"],"limit":9}`:                                0,
		`{"callables":["builtin:*"],"limit":9}`:                             0,
		`{"callables":["*"],"namespaces":["other"],"limit":9}`:              0,
		`{"callables":["*"],"namespaces":["other","t"],"limit":9}`:          2,
		`{"callables":["*"],"namespaces":null,"limit":null,"worker_id":""}`: -422,
	} {
		t.Run(body, func(t *testing.T) {
			s := newClaimServer(t, serviceTest{})
			s.create(fmt.Sprintf(createOn, "pair"))
			if want < 0 {
				s.do("POST", "/v1/steps/claim", body).want(-want)
				return
			}
			if got := s.claim(body); len(got) != want {
				t.Errorf("claimed %d steps; want %d", len(got), want)
			}
		})
	}
}

// TestLongPollEnds checks that a wait ends at its limit and when the client disconnects.
func TestLongPollEnds(t *testing.T) {
	slow(t)
	t.Parallel()
	s := newClaimServer(t, serviceTest{})
	if got := s.claim(`{"callables":["*"],"wait_seconds":1}`); len(got) != 0 {
		t.Errorf("claimed %+v", got)
	}
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan claimResult, 1)
	q := &claimRequest{callables: []string{"*"}, limit: 1, lease: time.Minute, wait: time.Hour, worker: "w"}
	go func() { done <- s.svc.engine.outside.claim(ctx, q) }()
	s.awaitClaimers(1)
	leave()
	<-done
	s.awaitClaimers(0)
	id := s.create(fmt.Sprintf(createOn, "one"))
	if got := s.state(id); got != "steps_in_process: enqueued" {
		t.Errorf("a client that went away was given a step: %s", got)
	}
}

// TestUnclaimOfADroppedTask undoes a claim of two steps after the task of one was
// dropped.
func TestUnclaimOfADroppedTask(t *testing.T) {
	s := newClaimServer(t, serviceTest{config: retaining(1), extra: storyTemplates})
	gone, left := s.create(fmt.Sprintf(createOn, "one")), s.create(fmt.Sprintf(createOn, "one"))
	q := &claimRequest{callables: []string{"*"}, limit: 2, lease: time.Minute, worker: "w"}
	got := s.svc.engine.outside.claim(context.Background(), q)
	if len(got.steps) != 2 {
		t.Fatalf("claimed %d steps; want 2", len(got.steps))
	}
	s.do("DELETE", "/v1/tasks/"+gone, "").want(200)
	mustCreate(t, s.svc, "noop")
	s.do("GET", "/v1/tasks/"+gone, "").want(404)
	s.svc.engine.outside.unclaim(got.steps)
	if got := s.state(left); got != "steps_in_process: enqueued" {
		t.Errorf("the other task is %s", got)
	}
}

// TestUnclaim expects a step claimed by a client that disconnected to go to the
// next claimer, as the same attempt.
func TestUnclaim(t *testing.T) {
	s := newClaimServer(t, serviceTest{})
	id := s.create(fmt.Sprintf(createOn, "one"))
	ctx, leave := context.WithCancel(t.Context())
	leave()
	q := &claimRequest{callables: []string{"*"}, limit: 1, lease: time.Minute, worker: "w"}
	if got, err := s.svc.outside.claim(ctx, q); err == nil {
		t.Errorf("claimed %+v for nobody", got)
	}
	if got := s.state(id); got != "steps_in_process: enqueued" {
		t.Fatal(got)
	}
	c := s.claimOne(anyOne)
	if c.Step.Attempt != 1 {
		t.Errorf("claimed attempt %d; want 1", c.Step.Attempt)
	}
	if got := s.auditOf(c); got != "" {
		t.Errorf("got the audit %q; want none", got)
	}
}

// TestLongPoll checks that waiting claimers are served in turn while there are steps for them.
func TestLongPoll(t *testing.T) {
	s := newClaimServer(t, serviceTest{})
	got := make(chan int, 8)
	wait := func(n int, callable string) {
		before := len(s.claimers())
		go func() {
			if len(s.claim(fmt.Sprintf(`{"callables":[%q],"wait_seconds":60}`, callable))) == 1 {
				got <- n
			} else {
				got <- -n
			}
		}()
		s.awaitClaimers(before + 1)
	}
	next := func(want int) {
		t.Helper()
		if n, ok := receiveWithin(got, patience); !ok || n != want {
			t.Errorf("served %d; want %d", n, want)
		}
	}
	wait(1, "Nothing")
	wait(2, "Shop::Pack")
	wait(3, "Shop::*")
	wait(4, "Shop::Send")
	s.create(fmt.Sprintf(createOn, "one"))
	next(2)
	s.create(fmt.Sprintf(createOn, "pair"))
	first, second := <-got, <-got
	if first+second != 7 {
		t.Errorf("served %d and %d; want 3 and 4", first, second)
	}
	if left := s.claimers(); len(left) != 1 {
		t.Errorf("%d claimers wait; want the one without a matching step", len(left))
	}
	wait(5, "Nothing")
	s.svc.finish(context.Background())
	if n, m := <-got, <-got; n+m != -6 {
		t.Errorf("got %d and %d as the service stops; want both waits to end without a step", n, m)
	}
	s.do("POST", "/v1/steps/claim", anyOne).want(503)
}

// TestEnvelopeMembers compares what a claim hands out with the table in docs/reference/handlers.md, and its values with what the
// API shows.
func TestEnvelopeMembers(t *testing.T) {
	tpl := `{"namespace":"t","name":"told","version":"1.2.3","steps":[{"name":"a","handler":{"callable":"A"}},
		{"name":"c","handler":{"callable":"C","method":"m","resolver":"r","initialization":{"k":1}},"dependencies":["a"],"timeout_seconds":7,
		"retry":{"max_attempts":4,"backoff":"none"}}]}`
	clock := newVirtualClock(testStart)
	s := newTestServer(t, serviceTest{clock: clock, extra: []string{tpl}})
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	req := must(http.NewRequest("POST", s.url+"/v1/tasks", strings.NewReader(`{"namespace":"t","name":"told","version":"1.2.3","context":{"n":1},
		"initiator":"me","source_system":"shop","reason":"why","tags":["x"],"priority":-7,"requested_at":"2025-12-31T23:00:00Z",
		"correlation_id":"01890a5d-ac96-774b-bcce-b302099a8057","parent_correlation_id":"01890a5d-ac96-774b-bcce-b302099a8058"}`)))(t)
	req.Header = http.Header{"Traceparent": {trace}, "Tracestate": {"v=1"}, "Content-Type": {"application/json"}}
	must(http.DefaultClient.Do(req))(t).Body.Close()
	id := s.do("GET", "/v1/tasks", "").want(200).text("tasks.0.task_uuid")
	claim := func() *answer {
		a := s.do("POST", "/v1/steps/claim", `{"callables":["*"],"lease_seconds":90}`).want(200)
		clock.advance(time.Second)
		return a
	}
	say := func(a *answer, verb, more string) {
		s.do("POST", "/v1/steps/"+a.text("0.step.step_uuid")+"/"+verb, fmt.Sprintf(`{"lease":%q,%s}`, a.text("0.lease"), more)).want(200)
	}
	say(claim(), "complete", `"result":{"id":7},"metadata":{"m":1}`)
	say(claim(), "fail", `"error":{"message":"busy","error_type":"Busy","retryable":true,"context":{"q":1}}`)
	clock.advance(time.Minute)
	say(claim(), "checkpoint", `"cursor":5`)
	got := claim()

	task := s.do("GET", "/v1/tasks/"+id, "").want(200)
	steps := s.do("GET", "/v1/tasks/"+id+"/workflow_steps", "").want(200)
	values := map[string]any{
		"task.requested_at": "2025-12-31T23:00:00.000000Z", "task.traceparent": trace,
		"task.tracestate": "v=1", "task.updated_at": "2026-01-01T00:01:03.000000Z",
		"step.template_step_name": "c", "step.timeout_seconds": 7, "step.remaining_ms": 90000, "step.attempt": 2, "step.max_attempts": 4,
		"step.config": `{"k":1}`, "step.inputs": `{"n":1}`, "step.checkpoint": steps.text("1.checkpoint"),
		"step.handler.callable": "C", "step.handler.method": "m", "step.handler.resolver": "r",
		"step.previous.success": false, "step.previous.result": nil, "step.previous.metadata": `{}`,
		"step.previous.error":             `{"context":{"q":1},"error_type":"Busy","message":"busy","retryable":true,"status_code":null}`,
		"step.previous.execution_time_ms": 1000, "step.previous.ended_at": "2026-01-01T00:00:02.000000Z",
		"step.name": "c", "step.step_uuid": task.text("steps.1.workflow_step_uuid"),
		"dependency_results.STEP": `{"id":7}`, "dependencies.STEP.step_uuid": task.text("steps.0.workflow_step_uuid"),
		"dependencies.STEP.state": "complete", "dependencies.STEP.ended_at": "2026-01-01T00:00:01.000000Z",
		"dependencies.STEP.execution_time_ms": 1000, "dependencies.STEP.metadata": `{"m":1}`,
	}
	for _, shared := range strings.Fields("task_uuid correlation_id parent_correlation_id namespace name version context initiator " +
		"source_system reason tags priority created_at") {
		values["task."+shared] = task.text(shared)
	}
	text := string(must(os.ReadFile("docs/reference/handlers.md"))(t))
	_, text, _ = strings.Cut(text, "## What a handler receives")
	text, _, _ = strings.Cut(text, "\n## ")
	var listed []string
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		for i, part := range strings.Split(cells[min(1, len(cells)-1)], "`") {
			if len(cells) > 2 && i%2 == 1 {
				listed = append(listed, part)
			}
		}
	}
	for _, path := range listed {
		want, known := values[path]
		if text, ok := want.(string); ok && strings.HasPrefix(text, "{") {
			noError(t, json.Unmarshal([]byte(text), &want))
		}
		if value := got.text("0." + strings.ReplaceAll(path, "STEP", "a")); !known || value != fmt.Sprint(want) {
			t.Errorf("%s: got %s; want %v", path, value, want)
		}
		delete(values, path)
	}
	if len(values) > 0 {
		t.Errorf("docs/reference/handlers.md does not list %v", values)
	}
	for _, parts := range [][]string{{"task"}, {"step"}, {"step", "handler"}, {"step", "previous"}, {"dependencies", "a"}} {
		for name := range got.get("0." + strings.Join(parts, ".")).(map[string]any) {
			path := strings.Replace(strings.Join(append(parts, name), "."), ".a.", ".STEP.", 1)
			if !slices.ContainsFunc(listed, func(l string) bool { return l == path || strings.HasPrefix(l, path+".") }) {
				t.Errorf("docs/reference/handlers.md does not list %s", path)
			}
		}
	}
}
