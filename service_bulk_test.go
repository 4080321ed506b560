package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// bulk sends a bulk action and returns the lines of the answer.
func (s *testServer) bulk(body string) (lines []document) {
	s.t.Helper()
	a := s.do("POST", "/v1/actions", body).want(200)
	for scan := bufio.NewScanner(strings.NewReader(string(a.body))); scan.Scan(); {
		lines = append(lines, readDocument(scan.Bytes()))
	}
	if last := lines[len(lines)-1]; last.text("finished") != "true" {
		s.t.Fatalf("the action has not finished: %s", last.raw)
	}
	return lines
}

// blockedTasks creates tasks whose step b fails for good, and returns their ids.
func blockedTasks(s *testServer, n int) (ids []string) {
	s.t.Helper()
	for i := range n {
		body := fmt.Sprintf(`{"namespace":"t","name":"fails","tags":["n%d"],"context":{"n":%d}}`, i%2, i)
		ids = append(ids, s.do("POST", "/v1/tasks", body).want(201).text("task_uuid"))
	}
	settle(s.svc)
	return ids
}

func TestBulkReset(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "testdata/templates"})
	ids := blockedTasks(s, 2*bulkBatch+1)
	dry := s.bulk(`{"action":"reset","reason":"r","filter":{"name":"fails","status":["blocked_by_failures"]},"dry_run":true}`)
	if last := dry[len(dry)-1]; last.number("done") != 2*bulkBatch+1 || len(last.at("samples").list()) != bulkSamples {
		t.Errorf("a dry run finds %s", last.raw)
	}
	if got := s.do("GET", "/v1/tasks/"+ids[0], "").text("status"); got != "blocked_by_failures" {
		t.Errorf("after a dry run the first task is %s", got)
	}
	lines := s.bulk(`{"action":"reset","reason":"the outage is over","by":"anna","filter":{"tag":["n0"],"step":"boom"},"max_attempts":7}`)
	last := lines[len(lines)-1]
	if last.number("done") != bulkBatch+1 || last.number("refused")+last.number("left_alone") != 0 {
		t.Errorf("reset: got %s; want the tasks with the tag", last.raw)
	}
	if len(lines) != 4 { // as_of, two batches, the result
		t.Errorf("reset: got %d lines; want 4", len(lines))
	}
	settle(s.svc)
	for i, id := range ids[:4] {
		step := s.do("GET", "/v1/tasks/"+id, "").text("steps.name=boom.workflow_step_uuid")
		audit := s.do("GET", "/v1/tasks/"+id+"/workflow_steps/"+step+"/audit", "").want(200)
		if i%2 == 1 {
			if audit.text("#") != "1" {
				t.Errorf("task %d, without the tag, was acted on: %s", i, audit.body)
			}
			continue
		}
		for member, want := range map[string]string{
			"1.action": "reset_for_retry", "1.acted_by": "anna", "1.action_reason": "the outage is over", "1.retry_limit": "7",
		} {
			if got := audit.text(member); got != want {
				t.Errorf("task %d: %s: got %q; want %q", i, member, got, want)
			}
		}
		if audit.text("1.request_id") == "" {
			t.Errorf("task %d: the audit names no request", i)
		}
	}
}

// TestBulkGoesOn sends an action again that was cut off: nothing is acted on twice.
func TestBulkGoesOn(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "testdata/templates"})
	blockedTasks(s, 3*bulkBatch)
	q := must(parseBulkRequest([]byte(`{"action":"resolve","reason":"r","filter":{"name":"fails"}}`)))(t)
	q.one.by = "anna"
	run := must(s.svc.beginBulk(q))(t)
	cut := errors.New("the caller has left")
	run.code = func(failureKind) string { return "" }
	run.valid = func() time.Duration { return math.MaxInt64 }
	run.tell = func(line any) error {
		if p, ok := line.(bulkProgress); ok && p.Done > 0 {
			return cut
		}
		return nil
	}
	if err := run.run(context.Background()); err == nil || run.result.Done != bulkBatch {
		t.Fatalf("got %v after %d; want it cut off after %d", err, run.result.Done, bulkBatch)
	}
	lines := s.bulk(fmt.Sprintf(`{"action":"resolve","reason":"r","filter":{"name":"fails"},"as_of":%q}`, s.svc.store.lives.text(run.asOf)))
	last := lines[len(lines)-1]
	if last.number("done") != 2*bulkBatch || last.number("left_alone") != bulkBatch {
		t.Errorf("sent again: got %s; want %d done and %d left alone", last.raw, 2*bulkBatch, bulkBatch)
	}
	again := s.bulk(`{"action":"resolve","reason":"r","filter":{"name":"fails","step_status":["resolved_manually"]}}`)
	last = again[len(again)-1]
	if last.number("done") != 0 || last.number("refused") != 3*bulkBatch || last.text("refusals.0.count") != fmt.Sprint(3*bulkBatch) {
		t.Errorf("resolved steps: got %s; want all refused", last.raw)
	}
}

// TestBulkCloses closes dead letters and cancels tasks.
func TestBulkCloses(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "testdata/templates"})
	ids := blockedTasks(s, 5)
	some := string(must(json.Marshal(ids[:2]))(t))
	lines := s.bulk(`{"action":"close","reason":"paid in cash","by":"anna","filter":{"task_uuid":` + some + `}}`)
	if last := lines[len(lines)-1]; last.number("done") != 2 {
		t.Errorf("close: got %s", last.raw)
	}
	for i, id := range ids {
		d := s.do("GET", "/v1/dlq/task/"+id, "").want(200)
		status, notes := d.text("resolution_status"), d.text("resolution_notes")
		if closed := i < 2; closed != (status == "ManuallyResolved") || closed != (notes == "paid in cash") {
			t.Errorf("entry %d: got %s, %q", i, status, notes)
		}
	}
	for filter, want := range map[string]float64{`{"dead_letter":true}`: 3, `{"dead_letter":false}`: 2, `{"dead_letter":true,"tag":["n0"]}`: 2} {
		lines = s.bulk(`{"action":"reset","reason":"r","dry_run":true,"filter":` + filter + `}`)
		if last := lines[len(lines)-1]; last.number("done") != want {
			t.Errorf("%s: got %s; want %v", filter, last.raw, want)
		}
	}
	lines = s.bulk(`{"action":"cancel","reason":"r","filter":{"status":["blocked_by_failures"]}}`)
	if last := lines[len(lines)-1]; last.number("done") != 5 {
		t.Errorf("cancel: got %s", last.raw)
	}
	lines = s.bulk(`{"action":"close","reason":"all are over","filter":{"over":true,"namespace":"t","name":"fails","step":"boom"}}`)
	if last := lines[len(lines)-1]; last.number("done") != 3 {
		t.Errorf("close what is over: got %s", last.raw)
	}
	lines = s.bulk(`{"action":"close","reason":"r","filter":{"over":false,"resolution_status":"ManuallyResolved"}}`)
	if last := lines[len(lines)-1]; last.number("done")+last.number("refused") != 0 {
		t.Errorf("close what is not over: got %s", last.raw)
	}
	lines = s.bulk(`{"action":"cancel","reason":"r","filter":{"name":"fails"}}`)
	if last := lines[len(lines)-1]; last.number("refused") != 5 || last.text("refusals.0.code") != "BAD_REQUEST" {
		t.Errorf("cancel again: got %s", last.raw)
	}
}

// TestBulkFilterRefused sends filters that select nothing anyone can mean.
func TestBulkFilterRefused(t *testing.T) {
	s := newTestServer(t, serviceTest{})
	long := strings.Repeat("a", 1<<20)
	for filter, want := range map[string]string{
		`{}`:                   "filter must be an object with one member or more",
		`{"nme":"a"}`:          "filter.nme is unknown; want",
		`{"name":" "}`:         "filter.name must be a string that is not blank",
		`{"` + long + `":"a"}`: `filter has an unknown member, "` + long[:60] + `"…`,
	} {
		a := s.do("POST", "/v1/actions", `{"action":"reset","reason":"r","filter":`+filter+`}`).want(422)
		if got := a.text("error.message"); !strings.Contains(got, want) || len(a.body) > 2000 {
			t.Errorf("%.80s: got %.300s; want %s", filter, got, want)
		}
	}
}

// bulkCallers are the permissions of some callers, by API key.
var bulkCallers = map[string][]string{
	"one-who-cancels":             {"tasks:cancel"},
	"one-who-cancels-and-lists":   {"tasks:cancel", "tasks:list"},
	"one-who-resolves":            {"steps:resolve"},
	"one-who-resolves-and-lists":  {"steps:resolve", "tasks:list"},
	"one-who-resolves-and-reads":  {"steps:resolve", "steps:read"},
	"one-who-may-do-all-of-these": {"steps:resolve", "steps:read", "tasks:list"},
	"one-who-closes":              {"dlq:update"},
	"one-who-closes-and-reads":    {"dlq:update", "dlq:read"},
	"one-who-reads-the-messages":  {"dlq:update", "dlq:read", "steps:read", "tasks:cancel", "tasks:list"},
	"one-who-sees-the-dead":       {"steps:resolve", "steps:read", "dlq:read"},
	"one-who-may-do-everything":   {"*"},
}

// TestBulkNeedsTheLists sends dry runs with all kinds of filters: each needs the permission of the list that it replaces,
// unless it only has ids that the caller names. So does the action itself.
func TestBulkNeedsTheLists(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "testdata/templates", config: withCallers(bulkCallers)})
	const root = "one-who-may-do-everything"
	id := s.as(root, "POST", "/v1/tasks", `{"namespace":"t","name":"fails"}`).want(201).text("task_uuid")
	settle(s.svc)
	group := s.as(root, "GET", "/v1/analytics/failures", "").want(200).text("groups.0.group")
	named := `"task_uuid":["` + id + `"]`
	for _, tc := range []struct{ key, action, filter, lacks string }{
		{"one-who-cancels", "cancel", named, ""},
		{"one-who-cancels", "cancel", `"namespace":"t"`, "tasks:list"},
		{"one-who-cancels", "cancel", named + `,"status":["error"]`, "tasks:list"},
		{"one-who-cancels", "hold", `"created_after":"2020-01-01T00:00:00Z"`, "tasks:list"},
		{"one-who-cancels", "release", `"q":"t"`, "tasks:list"},
		{"one-who-cancels", "reset", named, "steps:resolve"},
		{"one-who-cancels-and-lists", "cancel", `"namespace":"t"`, ""},
		{"one-who-cancels-and-lists", "cancel", `"failure_group":"` + group + `"`, "steps:read"},
		{"one-who-cancels-and-lists", "cancel", `"dead_letter":true`, "dlq:read"},
		{"one-who-cancels-and-lists", "cancel", `"context.order_id":"1"`, "tasks:context_read"},
		{"one-who-resolves", "reset", named, ""},
		{"one-who-resolves", "reset", named + `,"step":"boom"`, ""},
		{"one-who-resolves", "reset", `"step":"boom"`, "steps:read"},
		{"one-who-resolves", "reset", named + `,"step_status":["error"]`, "steps:read"},
		{"one-who-resolves", "retry_now", named + `,"failure_group":"` + group + `"`, "steps:read"},
		{"one-who-resolves-and-lists", "resolve", `"namespace":"t"`, "steps:read"},
		{"one-who-resolves-and-reads", "resolve", `"namespace":"t"`, "tasks:list"},
		{"one-who-resolves-and-reads", "reset", `"failure_group":"` + group + `"`, ""},
		{"one-who-resolves-and-reads", "reset", `"dead_letter":true`, "dlq:read"},
		{"one-who-sees-the-dead", "reset", `"dead_letter":true`, ""},
		{"one-who-may-do-all-of-these", "reset", `"namespace":"t","step":"boom"`, ""},
		{"one-who-closes", "close", named, ""},
		{"one-who-closes", "close", named + `,"step":"boom"`, "dlq:read"},
		{"one-who-closes", "close", `"over":false`, "dlq:read"},
		{"one-who-closes", "resend", `"status":"dead"`, "dlq:read"},
		{"one-who-closes-and-reads", "close", `"over":false`, ""},
		{"one-who-closes-and-reads", "close", `"failure_group":"` + group + `"`, "steps:read"},
		{"one-who-reads-the-messages", "close", `"failure_group":"` + group + `"`, ""},
		{"one-who-reads-the-messages", "cancel", `"failure_group":"` + group + `"`, ""},
	} {
		for _, dry := range []string{"true", "false"} {
			if dry == "false" && tc.lacks == "" {
				continue // it would be done
			}
			a := s.as(tc.key, "POST", "/v1/actions", `{"action":"`+tc.action+`","reason":"r","dry_run":`+dry+`,"filter":{`+tc.filter+`}}`)
			switch {
			case tc.lacks != "":
				if a.want(403); a.text("error.message") != "Missing required permission: "+tc.lacks {
					t.Errorf("%s, %s by %s, dry %s: got %s; want %s to be missing", tc.key, tc.action, tc.filter, dry, a.body, tc.lacks)
				}
			case a.status != 200 || !strings.Contains(string(a.body), `"finished":true`):
				t.Errorf("%s, %s by %s: got %d, %s; want it admitted", tc.key, tc.action, tc.filter, a.status, a.body)
			}
		}
	}
	if got := s.as(root, "GET", "/v1/tasks/"+id, "").want(200).text("status"); got != "blocked_by_failures" {
		t.Errorf("after what was refused, the task is %s", got)
	}
}

// bulkTime is the time of a run that works 1 ms whenever it looks at the clock, and adds up its rests.
type bulkTime struct {
	at     time.Time
	rested time.Duration
	rests  int
}

func (c *bulkTime) now() time.Time {
	c.at = c.at.Add(time.Millisecond)
	return c.at
}

func (c *bulkTime) pause(_ context.Context, d time.Duration) error {
	c.at = c.at.Add(d)
	c.rested += d
	c.rests++
	return errTooLong
}

// startBulk returns a run and its time. Its credential is valid for ever, and nobody reads its lines.
func startBulk(t *testing.T, s *service, body string) (*bulkRun, *bulkTime) {
	t.Helper()
	q := must(parseBulkRequest([]byte(body)))(t)
	q.one.by = "anna"
	run, c := must(s.beginBulk(q))(t), &bulkTime{at: testStart.time()}
	run.code = func(k failureKind) string { return failureForms[k].code }
	run.tell = func(any) error { return nil }
	run.valid = func() time.Duration { return math.MaxInt64 }
	run.now, run.pause = c.now, c.pause
	return run, c
}

// TestBulkRests counts the rests of runs, dry ones among them, whatever they find: they follow each page and batch, and
// take three times as long as the work.
func TestBulkRests(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "testdata/templates"})
	blockedTasks(s, 30)
	for filter, rests := range map[string]int{
		`{"action":"reset","dry_run":true,"filter":{"name":"fails"}}`:                        6, // batches
		`{"action":"reset","dry_run":true,"filter":{"name":"fails","dead_letter":false}}`:    2, // pages
		`{"action":"reset","dry_run":true,"filter":{"name":"fails","step":"none"}}`:          6,
		`{"action":"close","dry_run":true,"filter":{"over":false}}`:                          6,
		`{"action":"reset","filter":{"name":"fails","tag":["n0"]}}`:                          3,
		`{"action":"cancel","filter":{"name":"fails","tag":["n0","n1"]}}`:                    0,
		`{"action":"cancel","dry_run":true,"filter":{"name":"fails","status":["complete"]}}`: 0,
	} {
		run, c := startBulk(t, s.svc, strings.Replace(filter, `{`, `{"reason":"r",`, 1))
		noError(t, run.run(context.Background()))
		if !run.result.Finished || c.rests != rests || c.rested < time.Duration(3*c.rests)*time.Millisecond {
			t.Errorf("%s: got %d rests of %s together; want %d, each three times as long as the 1 ms before it", filter, c.rests, c.rested, rests)
		}
	}
}

// TestBulkEndsWithTheCredential lets the caller's token expire during a run: it stops, and says why in its last line.
func TestBulkEndsWithTheCredential(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "testdata/templates"})
	blockedTasks(s, 3*bulkBatch)
	run, c := startBulk(t, s.svc, `{"action":"reset","reason":"r","filter":{"name":"fails"}}`)
	expiry := c.at.Add(5 * time.Millisecond)
	run.valid = func() time.Duration { return max(expiry.Sub(c.at), 0) }
	var last bulkResult
	run.tell = func(line any) error {
		if r, ok := line.(bulkResult); ok {
			last = r
		}
		return nil
	}
	noError(t, run.run(context.Background()))
	if last.Done != bulkBatch || last.Finished || last.Error == nil || last.Error.Code != "AUTHENTICATION_FAILED" || c.at.After(expiry.Add(2*time.Millisecond)) {
		t.Errorf("got %+v, %+v at %s; want an end at %s, after one batch", last, last.Error, c.at, expiry)
	}
}

// TestBulkRunsAreFew runs as many actions at once as may, and one more.
func TestBulkRunsAreFew(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "testdata/templates"})
	blockedTasks(s, 2)
	const body = `{"action":"reset","reason":"r","dry_run":true,"filter":{"name":"fails"}}`
	s.svc.quotas.actions.take(maxActions - 1)
	s.bulk(body)
	s.svc.quotas.actions.take(1)
	a := s.do("POST", "/v1/actions", body).want(503)
	if a.header.Get("Retry-After") != "1" || a.text("error.code") != "BACKPRESSURE" || !strings.Contains(a.text("error.message"), "4 actions on many run already") {
		t.Errorf("got %s, %s; want a refusal that says so", a.header, a.body)
	}
	s.svc.quotas.actions.give(1)
	s.bulk(body)
	s.svc.quotas.actions.give(maxActions - 1)
	if used := s.svc.quotas.actions.used.Load(); used != 0 {
		t.Errorf("%d runs are counted after all have ended", used)
	}
}
