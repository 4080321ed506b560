package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
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
