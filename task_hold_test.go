package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestHold holds tasks in every way of going on: nothing of them runs, also after a restart, until they are released.
func TestHold(t *testing.T) {
	t.Parallel()
	parts := strings.NewReplacer("batches", "parts", "builtin:tally", "Outside::Work").Replace(string(must(os.ReadFile("testdata/templates/t.batches.1.0.0.json"))(t)))
	o := serviceTest{dir: t.TempDir(), templates: "testdata/templates", extra: []string{parts}, clock: newVirtualClock(testStart)}
	c := o.clock.(*virtualClock)
	serve := func(svc *service) *testServer {
		return (&testServer{t: t, svc: svc}).with(newOrchestrationAPI(svc, nil))
	}
	s := serve(openTestService(t, o))
	ids := map[string]string{}
	for _, name := range []string{"backoff", "sleeper", "parts", "fails", "echo"} {
		ids[name] = s.create(`{"namespace":"t","name":"` + name + `"}`)
	}
	ids["claimed"] = s.create(`{"namespace":"t","name":"manual"}`)
	ids["waits"] = s.create(`{"namespace":"t","name":"manual"}`)
	split := s.claimOne(`{"callables":["Outside::Split"]}`)
	s.answer(split, "complete", `,"result":{"batch_processing_outcome":{"type":"create_batches","worker_template_name":"work",
		"worker_count":3,"cursor_configs":[{"batch_id":"1"},{"batch_id":"2"},{"batch_id":"3"}],"total_items":3}}`).want(200)
	given := s.claimOne(`{"callables":["Outside::Approve"]}`)
	if given.Task.TaskUUID != ids["claimed"] {
		ids["claimed"], ids["waits"] = ids["waits"], ids["claimed"]
	}
	settle(s.svc)
	s.bulk(`{"action":"hold","reason":"nowhere","filter":{"namespace":"t"},"dry_run":true}`)
	s.bulk(`{"action":"release","reason":"r","filter":{"namespace":"t"}}`)
	lines := s.bulk(`{"action":"hold","reason":"https://tasks.example.com","filter":{"namespace":"t"}}`)
	if last := lines[len(lines)-1]; last.number("done") != float64(len(ids)-1) || last.text("refusals.0.message") != "task "+ids["echo"]+" is complete" {
		t.Fatalf("hold: got %s", last.raw)
	}
	for _, path := range []string{"/v1/tasks/" + ids["waits"], "/v1/tasks?name=sleeper"} { // a task and a list say so
		if a := s.do("GET", path, "").want(200); !strings.Contains(string(a.body), `"hold":{"since":"`+testStart.zoned()+`","place":"https://tasks.example.com"}`) {
			t.Errorf("%s: got %s", path, a.body)
		}
	}
	if a := s.do("GET", "/v1/tasks/"+ids["echo"], ""); strings.Contains(string(a.body), `"hold"`) {
		t.Errorf("a task that is not held: %s", a.body)
	}
	states := func() (all string) {
		for _, name := range []string{"backoff", "sleeper", "parts", "fails", "echo", "claimed", "waits"} {
			all += fmt.Sprintf("%s: %s\n", name, s.state(ids[name]))
		}
		return all
	}
	held := states()
	if strings.Contains(held, "in_progress") {
		t.Errorf("something runs in\n%s", held)
	}
	nothingRuns := func() {
		t.Helper()
		c.advance(30 * 24 * time.Hour)
		if got := s.claim(`{"callables":["*"],"limit":10}`); len(got) > 0 {
			t.Errorf("%d steps of held tasks were given away", len(got))
		}
		if got := states(); got != held {
			t.Errorf("held tasks went on:\n%s\nbefore:\n%s", got, held)
		}
	}
	nothingRuns()
	s.answer(given, "complete", `,"result":1`).want(409)
	for name, id := range ids {
		if name == "echo" {
			continue
		}
		at := "/v1/tasks/" + id
		if got := s.do("GET", at+"/explain", "").want(200).text("message"); !strings.Contains(got, "continues in https://tasks.example.com") {
			t.Errorf("%s: explained as %q", name, got)
		}
		step := s.do("GET", at, "").text("steps.0.workflow_step_uuid")
		for _, refused := range []*answer{
			s.do("DELETE", at, ""),
			s.do("PATCH", at+"/workflow_steps/"+step, `{"action_type":"resolve_manually","reason":"r","resolved_by":"me"}`),
			s.do("PATCH", at+"/workflow_steps/"+step, `{"action_type":"adjust","retry_limit":9}`),
		} {
			if refused.status/100 != 4 {
				t.Errorf("%s: got %d, %s", name, refused.status, refused.body)
			}
		}
	}
	closeTestService(t, s.svc)
	s = serve(newTestService(t, o))
	nothingRuns()

	c.advance(time.Second)
	s.bulk(`{"action":"release","reason":"the other one is down","filter":{"namespace":"t"}}`)
	if got := s.claim(`{"callables":["Outside::Approve"],"limit":10}`); len(got) != 2 {
		t.Errorf("%d steps can be claimed after the release; want 2", len(got))
	}
	if got := s.claim(`{"callables":["Outside::Work"],"limit":10}`); len(got) != 2 {
		t.Errorf("%d parts can be claimed after the release; want 2 at once", len(got))
	}
	c.advance(11 * time.Minute)
	if got := s.do("GET", "/v1/tasks/"+ids["sleeper"], ""); got.text("status") != "complete" || got.text("steps.0.attempts") != "1" {
		t.Errorf("the attempt that was cut off: got %s", got.body)
	}
	if got := s.state(ids["backoff"]); !strings.Contains(got, "waiting_for_retry") ||
		s.do("GET", "/v1/tasks/"+ids["backoff"], "").text("steps.0.attempts") != "2" {
		t.Errorf("the retry that fell due: got %s", got)
	}
}
