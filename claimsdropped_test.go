package main

// Tests of claims on tasks that retention drops.

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// staleErrorTemplate is a task that ends in error, without an entry in the dead
// letter queue, once it stood still for ten minutes.
func staleErrorTemplate() string {
	return strings.Replace(testTemplate("stale", stepSpec{name: "a", callable: "Outside"}, stepSpec{name: "b", callable: "Other"}),
		`"name":"stale"`, `"name":"stale","lifecycle":{"max_steps_in_process_minutes":10,"staleness_action":"error"}`, 1)
}

// TestLeaseOfADroppedTask: the end of a lease whose task is gone keeps no other
// lease from ending.
func TestLeaseOfADroppedTask(t *testing.T) {
	clock := newVirtualClock(testStart)
	s := newClaimServer(t, serviceTest{clock: clock, config: retaining(1),
		extra: append(storyTemplates, staleErrorTemplate())})
	s.create(fmt.Sprintf(createOn, "stale"))
	s.claimOne(`{"callables":["Outside"],"lease_seconds":3600}`)
	clock.advance(15 * time.Minute)
	done := mustCreate(t, s.svc, "noop")
	wantKept(t, s.svc, done.id)
	id := s.create(fmt.Sprintf(createOn, "one"))
	s.claimOne(`{"callables":["Shop::Pack"],"lease_seconds":3600}`)
	clock.advance(time.Hour)
	if got := s.state(id); got != "steps_in_process: enqueued" {
		t.Errorf("got %s after its lease ended", got)
	}
	s.do("DELETE", "/v1/tasks/"+id, "").want(200)
	wantNothingOutside(t, s.svc)
}

// TestAnswersOfDroppedTasks: the last answer of a task is taken although others
// have pushed the task out by the time that it could be shown.
func TestAnswersOfDroppedTasks(t *testing.T) {
	svc := newTestService(t, serviceTest{config: retaining(1), extra: claimTemplates, dir: t.TempDir()})
	var given []claim
	for range 64 {
		mustCreate(t, svc, "one")
		q := &claimRequest{callables: []string{"*"}, limit: 1, lease: time.Minute, worker: "w"}
		given = append(given, svc.engine.claim(t.Context(), q).steps...)
	}
	var wg sync.WaitGroup
	for _, c := range given {
		wg.Go(func() {
			q := &leaseAnswer{verb: completeVerb, outcome: outcome{success: true}}
			q.setLease(c.token)
			v, err := svc.answerLease(t.Context(), c.attempt.stepID, q)
			if err != nil || v.CurrentState != "complete" {
				t.Errorf("got %v; want the step as it was then", err)
			}
		})
	}
	wg.Wait()
}

// TestUnclaimOfADroppedTask: what is left of what nobody got to know of is given back.
func TestUnclaimOfADroppedTask(t *testing.T) {
	s := newClaimServer(t, serviceTest{config: retaining(1), extra: storyTemplates})
	gone, left := s.create(fmt.Sprintf(createOn, "one")), s.create(fmt.Sprintf(createOn, "one"))
	q := &claimRequest{callables: []string{"*"}, limit: 2, lease: time.Minute, worker: "w"}
	got := s.svc.engine.claim(context.Background(), q)
	if len(got.steps) != 2 {
		t.Fatalf("claimed %d steps; want 2", len(got.steps))
	}
	s.do("DELETE", "/v1/tasks/"+gone, "").want(200)
	mustCreate(t, s.svc, "noop")
	s.do("GET", "/v1/tasks/"+gone, "").want(404)
	s.svc.engine.unclaim(got.steps)
	if got := s.state(left); got != "steps_in_process: enqueued" {
		t.Errorf("the other task is %s", got)
	}
}
