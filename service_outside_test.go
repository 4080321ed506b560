package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestLongLease extends a lease every ten seconds for a day. This writes little,
// and the lease survives a restart at any time.
func TestLongLease(t *testing.T) {
	t.Parallel()
	clock := newVirtualClock(testStart)
	o := serviceTest{clock: clock, dir: t.TempDir(), extra: claimTemplates, config: func(c *Config) { c.Store.Sync = "never" }}
	svc := openTestService(t, o)
	v := mustCreate(t, svc, "one")
	given := svc.engine.outside.claim(t.Context(), &claimRequest{callables: []string{"*"}, limit: 1, lease: 30 * time.Second, worker: "w"})
	c := given.steps[0]
	extend := &leaseAnswer{verb: extendVerb, lease: 30 * time.Second}
	extend.setLease(c.token)
	for n := range 24 * 360 {
		clock.advance(10 * time.Second)
		if n%1000 == 0 { // at the moment when least is known of the lease
			clock.advance(19 * time.Second)
			closeTestService(t, svc)
			svc = openTestService(t, o)
		}
		q := &stepAnswer{leaseAnswer: *extend, step: c.attempt.stepID}
		if _, err := svc.outside.answer(t.Context(), q); err != nil {
			t.Fatalf("extension %d: %v", n, err)
		}
		if want := clock.now().add(30 * time.Second); q.until < want || n%1000 > 100 && q.until != want {
			t.Fatalf("extension %d: the lease ends %v; want %v", n, q.until.zoned(), want.zoned())
		}
	}
	v = settled(t, svc, v.id)
	if n := bytes.Count(v.log, []byte(`"kind":"extended"`)); n > 250 {
		t.Errorf("the task has %d records of extensions; want few", n)
	}
	clock.advance(30 * time.Second)
	if got := states(settled(t, svc, v.id)); got != "steps_in_process: enqueued" {
		t.Errorf("got %s after the lease was not extended", got)
	}
	closeTestService(t, svc)
}

// TestLateAtOnce sends the same late outcome several times at once and expects it
// in the audit once.
func TestLateAtOnce(t *testing.T) {
	t.Parallel()
	clock := newVirtualClock(testStart)
	s := newClaimServer(t, serviceTest{clock: clock})
	for range 20 {
		s.create(fmt.Sprintf(createOn, "one"))
		c := s.claimOne(anyOne)
		clock.advance(30 * time.Second)
		id, _ := parseUUID(c.Step.StepUUID)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				q := &leaseAnswer{verb: completeVerb, outcome: outcome{success: true}}
				q.setLease(c.Lease)
				if _, err := s.svc.outside.answer(t.Context(), &stepAnswer{leaseAnswer: *q, step: id}); kindOf(err) != conflict {
					t.Errorf("got %v; want a conflict", err)
				}
			})
		}
		wg.Wait()
		want := "true enqueued w1, false enqueued_as_error_for_orchestration w1"
		if got := s.auditOf(c); got != want {
			t.Fatalf("got the audit %q; want %q", got, want)
		}
		s.do("DELETE", "/v1/tasks/"+c.Task.TaskUUID, "").want(200)
	}
}

// TestManyOutsideSteps claims, completes and lists 10,000 steps of one task.
func TestManyOutsideSteps(t *testing.T) {
	t.Parallel()
	slowAndSequential(t)
	const n = 10_000
	steps := make([]stepSpec, n)
	for i := range steps {
		steps[i] = stepSpec{name: fmt.Sprintf("s%d", i), callable: "Outside"}
	}
	svc := newTestService(t, serviceTest{extra: []string{testTemplate("wide", steps...)}})
	v := mustCreate(t, svc, "wide")
	q := &claimRequest{callables: []string{"*"}, limit: maxClaims, lease: time.Minute, worker: "w"}
	done := 0
	for {
		got := must(svc.outside.claim(t.Context(), q))(t)
		if len(got) == 0 {
			break
		}
		for _, c := range got {
			a := &leaseAnswer{verb: completeVerb, outcome: outcome{success: true}}
			a.setLease(c.token)
			must(svc.outside.answer(t.Context(), &stepAnswer{leaseAnswer: *a, step: c.attempt.stepID}))(t)
			done++
		}
	}
	if got := settled(t, svc, v.id); done != n || got.state != taskComplete {
		t.Errorf("completed %d steps, and the task is %s", done, got.state)
	}
	wantNothingOutside(t, svc)
}

// wantNothingOutside fails the test if the index of outside steps is not empty.
func wantNothingOutside(t *testing.T, s *service) {
	t.Helper()
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	w, q := &s.engine.outside, &s.engine.leases
	for what, n := range map[string]int{
		"waiting steps": len(w.waiting.steps), "waiting queues": len(w.waiting.queues), "claimed steps": len(q.claimed.steps),
		"claimed queues": len(q.claimed.queues), "leases": len(q.held.items) + len(q.byID), "claimers": len(w.claimers),
	} {
		if n != 0 {
			t.Errorf("%d %s are left", n, what)
		}
	}
}

// TestClaimStress runs many actors on many tasks of two sequential steps and
// expects every step to be done once.
func TestClaimStress(t *testing.T) {
	slow(t)
	const actors, tasks = 32, 2000
	before := runtime.NumGoroutine()
	svc := openTestService(t, serviceTest{extra: claimTemplates})
	var mu sync.Mutex
	done := map[uuid]int{}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for n := range actors {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 0))
			for ctx.Err() == nil {
				q := &claimRequest{callables: []string{"Shop::*"}, limit: 1 + r.IntN(4), lease: time.Minute, wait: time.Minute, worker: "w"}
				got, err := svc.outside.claim(ctx, q)
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				for _, c := range got {
					a := &leaseAnswer{verb: completeVerb, hash: hashLease(c.token), outcome: outcome{success: true}}
					if _, err := svc.outside.answer(context.Background(), &stepAnswer{leaseAnswer: *a, step: c.attempt.stepID}); err != nil {
						t.Error(err)
					}
					mu.Lock()
					done[c.attempt.stepID]++
					if len(done) == 2*tasks {
						stop()
					}
					mu.Unlock()
				}
			}
		})
	}
	for range tasks {
		mustCreate(t, svc, "two")
	}
	wg.Wait()
	stop()
	for id, n := range done {
		if n != 1 {
			t.Errorf("step %s was done %d times", id, n)
		}
	}
	if got := svc.store.tasks.index.states[taskComplete]; got != tasks {
		t.Errorf("%d tasks are complete; want %d", got, tasks)
	}
	wantNothingOutside(t, svc)
	closeTestService(t, svc)
	svc.clock.(*realClock).stop()
	eventually(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}

// TestAnswersOfDroppedTasks expects the last answer of a task to be accepted even
// if retention drops the task before the reply is written.
func TestAnswersOfDroppedTasks(t *testing.T) {
	t.Parallel()
	svc := newTestService(t, serviceTest{config: retaining(1), extra: claimTemplates, dir: t.TempDir()})
	var given []claimedStep
	for range 64 {
		mustCreate(t, svc, "one")
		q := &claimRequest{callables: []string{"*"}, limit: 1, lease: time.Minute, worker: "w"}
		given = append(given, svc.engine.outside.claim(t.Context(), q).steps...)
	}
	var wg sync.WaitGroup
	for _, c := range given {
		wg.Go(func() {
			q := &leaseAnswer{verb: completeVerb, outcome: outcome{success: true}}
			q.setLease(c.token)
			v, err := svc.outside.answer(t.Context(), &stepAnswer{leaseAnswer: *q, step: c.attempt.stepID})
			if err != nil || v.step.state != stepComplete {
				t.Errorf("got %v; want the step as it was then", err)
			}
		})
	}
	wg.Wait()
}

const twice = `{"max_attempts":2,"backoff":"none"}`

// claimTemplates holds the templates of the tests of claims.
var claimTemplates = []string{
	testTemplate("one", stepSpec{name: "a", callable: "Shop::Pack", retry: twice}),
	testTemplate("two", stepSpec{name: "a", callable: "Shop::Pack"},
		stepSpec{name: "b", callable: "Shop::Send", after: []string{"a"}}),
	testTemplate("pair", stepSpec{name: "a", callable: "Shop::Pack", retry: `{"max_attempts":1}`},
		stepSpec{name: "b", callable: "Shop::Send"}),
}

// outcomes writes one outcome for each claimed step; more holds the members besides step and lease.
func outcomes(given []claimed, more string) string {
	each := make([]string, len(given))
	for i, c := range given {
		each[i] = fmt.Sprintf(`{"step_uuid":%q,"lease":%q,%s}`, c.Step.StepUUID, c.Lease, more)
	}
	return "[" + strings.Join(each, ",") + "]"
}

// TestResultsShareSteps completes three steps by one request, whose results take more than half of the steps that it has
// for its checks: those that are not checked are refused, and their steps stay claimed.
func TestResultsShareSteps(t *testing.T) {
	s := newClaimServer(t, serviceTest{config: func(c *Config) { c.Templates.EnforceInputSchema = "reject" }, extra: []string{
		`{"namespace":"t","name":"slow","version":"1.0.0","identity_strategy":"always_unique","steps":[{"name":"a","handler":{"callable":"slow"},` +
			`"result_schema":{"pattern":"^a|b{1000}"}}]}`,
	}})
	for range 4 {
		mustCreate(t, s.svc, "slow")
	}
	given, most := s.claim(`{"callables":["slow"],"limit":4}`), maxSchemaSteps/1000
	result := func(n int) string { return fmt.Sprintf(`"result":%q`, strings.Repeat("a", n)) }
	a := s.do("POST", "/v1/steps/complete", `{"steps":`+outcomes(given[:3], result(most*2/3))+`}`).want(207)
	for i, want := range []string{"200", "422", "422"} {
		if got := a.text(fmt.Sprint(i, ".status")); got != want {
			t.Errorf("result %d: got %s, %s; want %s", i, got, a.body, want)
		}
	}
	s.answer(given[1], "complete", ","+result(most*2/3)).want(200)
	s.answer(given[3], "complete", ","+result(most*2)).want(200) // too many alone
	for i, want := range []string{"complete", "complete", "in_progress", "error"} {
		if got := s.state(given[i].Task.TaskUUID); !strings.Contains(got, want) {
			t.Errorf("task %d: got %s; want %s", i, got, want)
		}
	}
}

// TestOutcomesAtOnce completes and fails the steps of a hundred tasks by one request each, which
// takes one sync, and checks that each task is as if its step were answered for alone.
func TestOutcomesAtOnce(t *testing.T) {
	t.Parallel()
	s := newClaimServer(t, serviceTest{dir: t.TempDir()})
	for range maxClaims {
		mustCreate(t, s.svc, "one")
	}
	given := s.claim(`{"callables":["*"],"limit":100}`)
	alone, half := given[0], given[1:50]
	s.answer(alone, "complete", `,"result":{"n":1}`).want(200)
	syncs := func(f func()) uint64 {
		before := s.svc.store.journal.status().syncs
		f()
		return s.svc.store.journal.status().syncs - before
	}
	took := syncs(func() {
		a := s.do("POST", "/v1/steps/complete", `{"steps":`+outcomes(half, `"result":{"n":1}`)+`}`).want(207)
		for i, c := range half {
			if a.text(fmt.Sprint(i, ".status")) != "200" || a.text(fmt.Sprint(i, ".step_uuid")) != c.Step.StepUUID {
				t.Fatalf("outcome %d: got %s", i, a.body)
			}
		}
	})
	if took > 1 {
		t.Errorf("got %d syncs for a batch; want 1", took)
	}
	want := s.state(alone.Task.TaskUUID)
	for _, c := range half {
		if got := s.state(c.Task.TaskUUID); got != want {
			t.Errorf("got %s; want %s as alone", got, want)
		}
	}
	s.do("POST", "/v1/steps/fail", `{"steps":`+outcomes(given[50:], `"error":{"message":"no","retryable":false}`)+`}`).want(207)
	for _, c := range given[50:] {
		if got := s.state(c.Task.TaskUUID); got != "blocked_by_failures: error" {
			t.Errorf("got %s; want it failed", got)
		}
	}
	if got := s.do("POST", "/v1/steps/complete", `{"steps":`+outcomes(slices.Concat(given, given[:1]), `"result":0`)+`}`).want(422); !strings.Contains(
		got.text("error.message"), "at most 100 outcomes") {
		t.Errorf("got %s", got.body)
	}
}

// TestClaimWithOutcomes works through chains of steps with one request for each batch, which takes
// one sync: it has the outcomes of the last batch, and gets the steps that these made ready.
func TestClaimWithOutcomes(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, serviceTest{dir: t.TempDir(), extra: []string{benchTemplate("chain", "Outside", [][]int{{}, {0}, {1}})}})
	for range 5 {
		s.create(`{"namespace":"bench","name":"chain"}`)
	}
	given, before := s.claim(`{"callables":["*"],"limit":5}`), s.svc.store.journal.status().syncs
	for len(given) > 0 {
		a := s.do("POST", "/v1/steps/claim", `{"callables":["*"],"limit":5,"complete":`+outcomes(given, `"result":1`)+`}`).want(207)
		given = nil
		noError(t, json.Unmarshal(objectMember(a.body, "steps"), &given))
	}
	if took := s.svc.store.journal.status().syncs - before; took > 3 {
		t.Errorf("got %d syncs for three batches", took)
	}
	if a := s.do("GET", "/v1/tasks?status=complete", ""); a.text("pagination.total_count") != "5" {
		t.Errorf("got %s; want 5 complete tasks", a.body)
	}
}

// TestOutcomesOutliveTheClaim sends outcomes with a claim that is refused while the service shuts
// down: they count, and get 200 when they are sent again.
func TestOutcomesOutliveTheClaim(t *testing.T) {
	t.Parallel()
	s := newClaimServer(t, serviceTest{})
	id := mustCreate(t, s.svc, "one").id.String()
	c := s.claimOne(`{"callables":["*"]}`)
	s.svc.outside.draining.Store(true)
	body := outcomes([]claimed{c}, `"result":1`)
	s.do("POST", "/v1/steps/claim", `{"callables":["*"],"complete":`+body+`}`).want(503)
	if got := s.state(id); got != "complete: complete" {
		t.Errorf("got %s; want it complete", got)
	}
	if a := s.do("POST", "/v1/steps/complete", `{"steps":`+body+`}`).want(207); a.text("0.status") != "200" {
		t.Errorf("got %s; want the same outcome taken", a.body)
	}
}

// TestStepsForPeople lists what waits for people, with what it is about for callers who may read contexts.
func TestStepsForPeople(t *testing.T) {
	spec := strings.Replace(testTemplate("x", stepSpec{name: "ask", callable: "people.ask"}, stepSpec{name: "weigh", callable: "scales.weigh"}),
		`"steps":[{`, `"search":["order_id"],"steps":[{"result_schema":{"required":["approved"]},`, 1)
	s := newFixtureServer(t, serviceTest{extra: []string{spec}, config: func(c *Config) {
		c.Console.People = []string{"people.*"}
		a := &c.Orchestration.Web.Auth
		a.Enabled, a.APIKeysEnabled, a.JWTPublicKey = true, true, publicPEM(t, authKeys().rsa)
		a.APIKeys = []apiKeyConfig{
			{Key: "the-key-of-one-who-may", Permissions: []string{"tasks:create", "tasks:context_read", "steps:read"}, Description: "anna"},
			{Key: "the-key-of-one-who-may-not", Permissions: []string{"steps:read"}, Description: "bert"},
		}
	}})
	mustCreate(t, s.world.service(), "x", `"context":{"order_id":"ORD-1"}`)
	settle(s.world.service())
	for key, about := range map[string]string{"the-key-of-one-who-may": "map[order_id:ORD-1]", "the-key-of-one-who-may-not": "<nil>"} {
		people := s.as(key, "GET", "/v1/steps?for_person=true").want(200)
		for member, want := range map[string]string{
			"#": "1", "0.name": "ask", "0.for_person": "true", "0.about": about, "0.result_schema": "map[required:[approved]]",
		} {
			if got := people.text(member); got != want {
				t.Errorf("%s: %s: got %s; want %s", key, member, got, want)
			}
		}
		if all := s.as(key, "GET", "/v1/steps").want(200); all.text("#") != "2" || all.text("1.for_person") != "false" || all.text("1.result_schema") != "<nil>" {
			t.Errorf("%s: all: got %s", key, all.body)
		}
	}
}
