package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
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
	run.tell = func(line any) error {
		if p, ok := line.(bulkProgress); ok && p.Done > 0 {
			return cut
		}
		return nil
	}
	if err := run.run(context.Background()); err == nil || run.result.Done != bulkBatch {
		t.Fatalf("got %v after %d; want it cut off after %d", err, run.result.Done, bulkBatch)
	}
	lines := s.bulk(fmt.Sprintf(`{"action":"resolve","reason":"r","filter":{"name":"fails"},"as_of":%d}`, q.asOf))
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
