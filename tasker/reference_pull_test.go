package main

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// pulledDifferences are the members of answers about pulled tasks that differ, see "Tasks that were pulled" in docs/reference/migrating.md.
var pulledDifferences = []string{
	"audit.audit_uuid", "audit.execution_time_ms", "audit.result.error.context",
	"audit.result.metadata.completed_at", "audit.result.metadata.error_type",
	"audit.result.metadata.started_at", "audit.result.metadata.worker_id", "audit.result.result",
	"audit.result.status", "audit.transition_uuid", "audit.worker_uuid", "summary.dlq.dlq_reason",
	"summary.dlq.in_dlq", "summary.dlq.resolution_status", "summary.links.dlq", "summary.steps.completed_at",
	"summary.steps.created_at", "summary.steps.current_state", "summary.steps.error",
	"summary.task.completed_at", "summary.task.completion_percentage",
	"summary.task.execution_status", "summary.task.pending_steps", "summary.task.recommended_action",
	"summary.task.status", "summary.task.updated_at", "task.completed_at", "task.completion_percentage",
	"task.execution_status", "task.pending_steps", "task.ready_steps", "task.recommended_action",
	"task.status", "task.steps.current_state", "task.steps.last_failure_at", "task.steps.named_step_uuid",
	"task.steps.next_retry_at", "task.steps.ready_for_execution", "task.updated_at",
	"workflow_steps.completed_at", "workflow_steps.created_at", "workflow_steps.current_state",
	"workflow_steps.last_failure_at", "workflow_steps.next_retry_at", "workflow_steps.ready_for_execution",
	"workflow_steps.results.error.context", "workflow_steps.results.metadata.completed_at",
	"workflow_steps.results.metadata.completed_by", "workflow_steps.results.metadata.completion_reason",
	"workflow_steps.results.metadata.error_type", "workflow_steps.results.metadata.manually_completed",
	"workflow_steps.results.metadata.started_at", "workflow_steps.results.metadata.worker_id",
	"workflow_steps.results.orchestration_metadata", "workflow_steps.results.result",
	"workflow_steps.results.status", "workflow_steps.updated_at",
}

// TestReferencePull pulls tasks of all kinds from the reference into a sandbox, compares the answers of both services, and
// continues the tasks that stopped.
func TestReferencePull(t *testing.T) {
	templates := referenceTemplates(t)
	there := startReference(t, templates)
	far := &api{t, there.OrchestrationURL}
	kinds := []string{"diamond", "unique", "fails", "retries", "chooses", "three_batches", "no_batches", "no_batches_unnamed", "fails", "slow"}
	var ids, blocked []string
	for i := range 100 {
		name := kinds[i%len(kinds)]
		id := far.post(creation(name, fmt.Sprintf(`{"n":%d}`, i))).want(200).text("task_uuid")
		if ids = append(ids, id); name == "slow" {
			awaitSlowly(t, "the task is cancelled", func() bool { // which is refused there while its state changes
				return far.do("DELETE", "/v1/tasks/"+id, "").status == 200
			})
		}
	}
	for i, id := range ids {
		name := kinds[i%len(kinds)]
		want := map[string]string{"fails": "blocked_by_failures", "slow": "cancelled"}[name]
		far.reaches(id, cmp.Or(want, "complete"))
		if name != "fails" {
			continue
		}
		if i < 50 {
			blocked = append(blocked, id)
			continue
		}
		action := []string{
			`{"action_type":"resolve_manually","resolved_by":"me","reason":"r"}`,
			`{"action_type":"complete_manually","completed_by":"me","reason":"r","completion_data":{"result":{"paid":true}}}`,
		}[i/10%2]
		far.do("PATCH", "/v1/tasks/"+id+"/workflow_steps/"+far.step(id, "broken").StepUUID, action).want(200)
	}

	waits, retry := moveWaiting(t, there, templates)
	code, out, said := runTasker(t, nil, append(append([]string{"pull", there.OrchestrationURL, waits}, ids...),
		"--worker-url", there.WorkerURL, "--steps-decide")...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	seed := filepath.Join(t.TempDir(), "pulled.jsonl")
	writeFile(t, seed, []byte(out))
	box := serve(t, "--fixture", "--memory", "--quiet", "--seed", seed).api()
	c := &pullComparison{seen: map[string]int{}, samples: map[string]string{}}
	for _, id := range ids {
		c.compareTask(far, box, id)
	}
	t.Logf("| pulled | %d tasks |", len(ids))
	t.Logf("| differing | %d members of their answers, as the guide says: %v |", len(c.seen), c.seen)
	for place := range c.seen {
		if !slices.Contains(pulledDifferences, place) {
			t.Errorf("%s: %s", place, c.samples[place])
		}
	}
	for _, place := range pulledDifferences {
		if c.seen[place] == 0 {
			t.Errorf("%s does not differ", place)
		}
	}

	box.do("POST", "/_stepwell/stubs", `{"match":{"namespace":"reference"},"outcomes":[{"result":{"paid":true}}]}`).want(201)
	for _, id := range blocked {
		box.do("PATCH", "/v1/tasks/"+id+"/workflow_steps/"+box.step(id, "broken").StepUUID,
			`{"action_type":"reset_for_retry","reset_by":"me","reason":"r"}`).want(200)
		box.await(id, "complete")
	}
	t.Logf("| continued | %d pulled tasks, with stubs |", len(blocked))

	if step := box.do("GET", "/v1/tasks/"+waits+"/workflow_steps", "").want(200); step.text("0.current_state") != "waiting_for_retry" ||
		step.text("0.next_retry_at") != retry {
		t.Errorf("the step that waits for its retry at %s: %s", retry, step.body)
	}
	box.do("POST", "/_stepwell/clock", `{"advance":"11m"}`).want(200)
	box.await(waits, "complete")
}

// moveWaiting moves a task to Tasker that waits for its retry, since tasks of that service alone do not
// wait. It returns when the retry is due.
func moveWaiting(t *testing.T, there *reference, templates string) (id, retry string) {
	p := serveAsThere(t, templates)
	id = p.api().do("POST", "/v1/tasks", creation("waits", "{}")).want(201).text("task_uuid")
	p.api().await(id, "waiting_for_retry")
	sql := filepath.Join(t.TempDir(), "tasks.sql")
	script := wantRun(t, 0, "held 1 task", "export", "--url", p.ready.OrchestrationURL, "--hold", there.OrchestrationURL)
	writeFile(t, sql, []byte(script))
	there.psql(t, "-f", sql)
	steps := "/v1/tasks/" + id + "/workflow_steps"
	retry = p.api().do("GET", steps, "").text("0.next_retry_at")
	attempted := (&api{t, there.OrchestrationURL}).do("GET", steps, "").text("0.last_attempted_at")
	at := func(text string) time.Time {
		return wire.Must(time.Parse("2006-01-02T15:04:05", strings.TrimSuffix(text, "Z")))(t)
	}
	if wait := at(retry).Sub(at(attempted)); wait%time.Second != 0 || wait < 9*time.Minute {
		t.Errorf("the retry is due at %s, and the attempt before it is at %s there; want whole seconds", retry, attempted)
	}
	return id, retry
}

// reaches waits until a task has a status, as long as the reference takes.
func (s *api) reaches(id, status string) {
	s.t.Helper()
	awaitSlowly(s.t.(*testing.T), "task "+id+" becomes "+status, func() bool {
		return s.do("GET", "/v1/tasks/"+id, "").want(200).text("status") == status
	})
}

// pullComparison collects where answers about tasks differ.
type pullComparison struct {
	seen    map[string]int // by place: the kind of answer and the members that lead there
	samples map[string]string
}

// compareTask compares the answers about a task, its steps and their audits.
func (c *pullComparison) compareTask(far, box *api, id string) {
	for _, path := range []string{"", "/workflow_steps", "/summary"} {
		at := "/v1/tasks/" + id + path
		c.compare(cmp.Or(strings.Trim(path, "/"), "task"), far.do("GET", at, "").want(200).decoded(), box.do("GET", at, "").want(200).decoded())
	}
	for _, s := range far.steps(id) {
		at := "/v1/tasks/" + id + "/workflow_steps/" + s.StepUUID + "/audit"
		theirs, _ := far.do("GET", at, "").want(200).decoded().([]any)
		ours, _ := box.do("GET", at, "").want(200).decoded().([]any)
		ours = slices.DeleteFunc(ours, func(v any) bool { return v.(map[string]any)["action"] != nil })
		for _, v := range theirs {
			entry := v.(map[string]any)
			entry["result"] = entry["result"].(map[string]any)["data"]
		}
		c.compare("audit", theirs, ours)
	}
}

// compare compares two values. Steps are compared by name.
func (c *pullComparison) compare(place string, theirs, ours any) {
	switch a := theirs.(type) {
	case map[string]any:
		if b, ok := ours.(map[string]any); ok {
			names := maps.Clone(a)
			maps.Copy(names, b)
			for name := range names {
				c.compare(place+"."+name, a[name], b[name])
			}
			return
		}
	case []any:
		if b, ok := ours.([]any); ok && len(a) == len(b) {
			byName := func(v, w any) int {
				return strings.Compare(fmt.Sprint(member(v, "name")), fmt.Sprint(member(w, "name")))
			}
			slices.SortStableFunc(a, byName)
			slices.SortStableFunc(b, byName)
			for i := range a {
				c.compare(place, a[i], b[i])
			}
			return
		}
	}
	if x, y := fmt.Sprint(theirs), fmt.Sprint(ours); x != y && !sameTime(x, y) {
		c.seen[place]++
		c.samples[place] = "there " + strconv.Quote(wire.Cut(x)) + ", here " + strconv.Quote(wire.Cut(y))
	}
}

// sameTime reports whether two timestamps of one form mean the same instant: a time in whole milliseconds has three digits
// there.
func sameTime(x, y string) bool {
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} {
		a, err := time.Parse(form, x)
		if b, bad := time.Parse(form, y); err == nil && bad == nil {
			return a.Equal(b)
		}
	}
	return false
}
