package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// difference is a row of the table of differences in docs/reference/migrating.md: what a probe observes here and there.
type difference struct {
	what, here, there string
	probe             func(s *api) string
}

// differences are sorted by who is hurt first, as that table is.
var differences = []difference{
	{"a request lacks `version`, `context`, `initiator`, `source_system` or `reason`", "201", "422",
		statusOf(`{"namespace":"reference","name":"diamond"}`)},
	{"the response to a creation", "201", "200", statusOf(creation("diamond", `{"n":0}`))},
	{"the same context twice, if `identity_strategy` is not `strict`", "true", "false", func(s *api) string {
		s.post(creation("unique", `{"n":1}`))
		a := s.post(creation("unique", `{"n":1}`))
		return fmt.Sprint(a.status != 409)
	}},
	{"`Idempotency-Key` or `idempotency_key`", "1 task", "2 tasks", func(s *api) string {
		one := s.post(creation("unique", `{"n":2}`, `"idempotency_key":"k"`))
		two := s.post(creation("unique", `{"n":2.5}`, `"idempotency_key":"k"`))
		return pick(two.status >= 400 || one.text("task_uuid") == two.text("task_uuid"), "1 task", "2 tasks")
	}},
	{"`?wait=` of a creation", "complete", "not yet", func(s *api) string {
		a := s.do("POST", "/v1/tasks?wait=20s", creation("unique", `{"n":3}`))
		return pick(a.text("status") == "complete", "complete", "not yet")
	}},
	{"context members named `script`, `eval` or `function`, or beginning with `on`", `{"n":4,"once":1}`, `{"n":4}`,
		contextOf(creation("unique", `{"n":4,"once":1}`))},
	{"`<script>` in a string of the context", `{"n":"<script>"}`, `{"n":"&lt;script&gt;"}`, contextOf(creation("unique", `{"n":"<script>"}`))},
	{"a string of more than 10,000 characters in the context", "201", "500",
		statusOf(creation("unique", `{"n":"`+strings.Repeat("a", 10_001)+`"}`))},
	{"`initiator`, `source_system` or `reason` of more than 128 characters", "201", "500",
		statusOf(strings.Replace(creation("unique", `{"n":5}`), `"reason":"r"`, `"reason":"`+strings.Repeat("r", 129)+`"`, 1))},
	{"a context that is not an object", "422", "500", statusOf(creation("unique", `[1]`))},
	{"`default_context` of a template", `{"a":1,"n":6}`, `{"n":6}`, contextOf(creation("defaults", `{"n":6}`))},
	{"an operator resolves the failed step of a blocked task", "the task goes on", "the task stays blocked", func(s *api) string {
		id := s.ended(creation("fails", `{"n":8}`))
		s.do("PATCH", "/v1/tasks/"+id+"/workflow_steps/"+s.step(id, "broken").StepUUID,
			`{"action_type":"resolve_manually","resolved_by":"me","reason":"r"}`).want(200)
		return pick(s.lastState(id, "never") == "complete", "the task goes on", "the task stays blocked")
	}},
	{"a dead letter for a step that failed for good", "200", "404", func(s *api) string {
		return fmt.Sprint(s.do("GET", "/v1/dlq/task/"+s.ended(creation("fails", `{"n":9}`)), "").status)
	}},
	{"`create_batches` with an empty list, from a batchable step whose `initialization` names a worker", "split work_000 join", "split", func(s *api) string {
		return s.stepsOf(s.ended(creation("empty_batches", `{"n":14}`)))
	}},
	{"`completed_at` of a complete task", "a time", "null", func(s *api) string {
		id := s.ended(creation("unique", `{"n":10}`))
		return pick(s.do("GET", "/v1/tasks/"+id, "").get("completed_at") == nil, "null", "a time")
	}},
	{"`status=` other than `pending` and `completed`", "200", "500", func(s *api) string {
		return fmt.Sprint(s.do("GET", "/v1/tasks?status=error", "").status)
	}},
	{"`result` of an audit entry", "the result", "`{\"type\",\"data\"}` around it", func(s *api) string {
		id := s.ended(creation("unique", `{"n":11}`))
		audit := s.do("GET", "/v1/tasks/"+id+"/workflow_steps/"+s.step(id, "only").StepUUID+"/audit", "").want(200)
		var entries []struct{ Result map[string]json.RawMessage }
		audit.into(&entries)
		return pick(entries[0].Result["data"] != nil, "`{\"type\",\"data\"}` around it", "the result")
	}},
	{"steps of a template, from the orchestration role", "with `handler` and `dependencies`", "without", func(s *api) string {
		body := s.do("GET", "/v1/templates/reference/diamond/1.0.0", "").want(200).body
		return pick(strings.Contains(string(body), "reference.start"), "with `handler` and `dependencies`", "without")
	}},
	{"`explain` and `transitions` of a task", "200 200", "404 404", func(s *api) string {
		id := s.ended(creation("unique", `{"n":12}`))
		var all []string
		for _, path := range []string{"/v1/tasks/" + id + "/explain", "/v1/tasks/" + id + "/transitions"} {
			all = append(all, fmt.Sprint(s.do("GET", path, "").status))
		}
		return strings.Join(all, " ")
	}},
	{"`action_type` `fail`, `cancel` or `retry_now` of a step", "known", "unknown", func(s *api) string {
		id := s.ended(creation("fails", `{"n":13}`))
		a := s.do("PATCH", "/v1/tasks/"+id+"/workflow_steps/"+s.step(id, "never").StepUUID, `{"action_type":"fail","failed_by":"me","reason":"r"}`)
		return pick(strings.Contains(string(a.body), "unknown variant"), "unknown", "known")
	}},
}

// creation returns a request for a task that both services take.
func creation(name, context string, more ...string) string {
	return fmt.Sprintf(`{"namespace":"reference","name":%q,"version":"1.0.0","context":%s,"initiator":"i","source_system":"s","reason":"r"%s}`,
		name, context, strings.Join(append([]string{""}, more...), ","))
}

// statusOf returns a probe of the status of a creation.
func statusOf(body string) func(*api) string {
	return func(s *api) string { return fmt.Sprint(s.post(body).status) }
}

// contextOf returns a probe of the context of what is created.
func contextOf(body string) func(*api) string {
	return func(s *api) string { return wire.Text(s.post(body).get("context")) }
}

// ended creates a task, and waits until it has ended or stopped.
func (s *api) ended(body string) (id string) {
	s.t.Helper()
	id = s.post(body).text("task_uuid")
	awaitSlowly(s.t.(*testing.T), "task "+id+" ends", func() bool {
		status := s.do("GET", "/v1/tasks/"+id, "").want(200).text("status")
		return status == "complete" || status == "blocked_by_failures"
	})
	return id
}

// lastState returns the state of a step once it is complete, or what it still is after a while.
func (s *api) lastState(task, step string) string {
	s.t.Helper()
	for end := time.Now().Add(8 * time.Second); ; { // the poller of the reference looks every 5 s
		if state := s.step(task, step).State; state == "complete" || time.Now().After(end) {
			return state
		}
		<-time.After(100 * time.Millisecond)
	}
}

// stepsOf returns the names of a task's steps, those that join others last.
func (s *api) stepsOf(task string) string {
	var names []string
	for _, step := range s.steps(task) {
		names = append(names, step.Name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return strings.Index("split work_000 join", a) - strings.Index("split work_000 join", b)
	})
	return strings.Join(names, " ")
}

// referenceTemplates writes the templates of the tests as files that both services read.
func referenceTemplates(t testing.TB) string {
	dir := t.TempDir()
	write := func(name, more string, steps ...string) {
		text := fmt.Sprintf(`{"name":%q,"namespace_name":"reference","version":"1.0.0"%s,"steps":[%s]}`, name, more, strings.Join(steps, ","))
		writeFile(t, filepath.Join(dir, name+".yaml"), []byte(strings.ReplaceAll(text, "\t", "")))
	}
	step := func(name, config string, after ...string) string {
		return fmt.Sprintf(`{"name":%q,"handler":{"callable":"reference.%s","initialization":{%s}},"dependencies":%s,
			"retry":{"retryable":true,"max_attempts":2,"backoff":"exponential","backoff_base_ms":500,"max_backoff_ms":500},
			"timeout_seconds":30,"publishes_events":[]}`, name, name, config, wire.Must(json.Marshal(append([]string{}, after...)))(t))
	}
	write("diamond", "", step("start", ""), step("left", "", "start"), step("right", "", "start"), step("end", "", "left", "right"))
	write("unique", `,"identity_strategy":"always_unique"`, step("only", ""))
	write("defaults", `,"default_context":{"a":1}`, step("once", ""))
	write("slow", "", step("sleeps", `"sleep_ms":3000`))
	write("fails", "", step("first", ""), step("broken", `"fail_permanently":true`, "first"), step("never", "", "broken"))
	typed := func(kind, more, step string) string {
		return strings.Replace(step, `{"name"`, fmt.Sprintf(`{"type":%q%s,"name"`, kind, more), 1)
	}
	write("retries", "", step("shaky", `"fail_times":1`), step("after", "", "shaky"))
	write("waits", "", strings.NewReplacer("exponential", "linear", "_ms\":500", "_ms\":600000").Replace(step("patient", `"fail_times":1`)))
	write("chooses", "", step("ask", ""), typed("decision", "", step("choice", `"choose":["yes"]`, "ask")), step("yes", "", "choice"),
		step("no", "", "choice"), typed("deferred_convergence", "", step("joined", "", "yes", "no")))
	batches := func(name, split string) {
		write(name, "", typed("batchable", "", step("split", split)), typed("batch_worker", `,"batch_config":{"batch_size":10,"parallelism":2,"cursor_field":"id","worker_template":"work","failure_strategy":"fail_fast"}`,
			step("work", "", "split")), typed("deferred_convergence", "", step("join", "", "work")))
	}
	const named, none = `"worker_template_name":"work"`, `"result":{"batch_processing_outcome":{"type":"no_batches"}}`
	batches("three_batches", named+`,"batches":3,"batch_size":10`)
	batches("no_batches", named+","+none)
	batches("no_batches_unnamed", none)
	batches("empty_batches", named+`,"result":{"batch_processing_outcome":
		{"type":"create_batches","worker_template_name":"work","worker_count":0,"cursor_configs":[],"total_items":0}}`)
	return dir
}

// TestReferenceAlike makes on both sides what must be the same.
func TestReferenceAlike(t *testing.T) {
	here, there := startBoth(t)
	for _, tc := range []struct {
		what, want string
		probe      func(s *api) string
	}{
		{"no batches with a named worker", "split work_000 join", func(s *api) string { return s.stepsOf(s.ended(creation("no_batches", `{"n":1}`))) }},
		{"no batches without one", "split", func(s *api) string { return s.stepsOf(s.ended(creation("no_batches_unnamed", `{"n":2}`))) }},
		{"the greatest priority", "2147483647", func(s *api) string {
			return s.post(creation("unique", `{"n":3}`, `"priority":2147483647`)).text("priority")
		}},
		{"a greater one", "422", func(s *api) string {
			return fmt.Sprint(s.post(creation("unique", `{"n":4}`, `"priority":2147483648`)).status)
		}},
		{"a cancelled task", "cancelled waiting_for_dependencies wait_for_dependencies healthy", func(s *api) string {
			id := s.post(creation("slow", `{"n":5}`)).text("task_uuid")
			s.do("DELETE", "/v1/tasks/"+id, "").want(200)
			a := s.do("GET", "/v1/tasks/"+id, "").want(200)
			return strings.Join([]string{a.text("status"), a.text("execution_status"), a.text("recommended_action"), a.text("health_status")}, " ")
		}},
	} {
		for side, url := range map[string]string{"here": here, "there": there} {
			if got := tc.probe(&api{t, url}); got != tc.want {
				t.Errorf("%s, %s: got %s; want %s", tc.what, side, got, tc.want)
			}
		}
	}
}

// startBoth serves the templates of the tests here and there, and returns the URLs.
func startBoth(t testing.TB) (here, there string) {
	templates := referenceTemplates(t)
	there = startReference(t, templates).OrchestrationURL
	return serveAsThere(t, templates).ready.OrchestrationURL, there
}

// serveAsThere serves templates here, with handlers like those there.
func serveAsThere(t testing.TB, templates string) *server {
	handlers := configFile(t, fmt.Sprintf("[worker.handlers]\n\"reference.*\" = %q\n", newKitHandlers(t).URL))
	return serve(t, "--memory", "--quiet", "--templates", templates, "--config", handlers)
}

// TestReferenceDifferences makes each row of the page's table of differences here and there.
func TestReferenceDifferences(t *testing.T) {
	here, there := startBoth(t)
	_, table, _ := strings.Cut(string(readFile(t, repository("docs/reference/migrating.md"))), "| what | Stepwell | Tasker |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	if len(rows) != len(differences) {
		t.Errorf("the page's table has %d rows; want %d, one for each case", len(rows), len(differences))
	}
	for i, d := range differences {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if i < len(rows) && !strings.HasPrefix(rows[i], "| "+d.what+" | ") {
				t.Errorf("the page's row is %s; want %s", rows[i], d.what)
			}
			for _, side := range []struct{ name, url, want string }{{"here", here, d.here}, {"there", there, d.there}} {
				if got := d.probe(&api{t, side.url}); got != side.want {
					t.Errorf("%s, %s: got %s; want %s", d.what, side.name, got, side.want)
				}
			}
		})
	}
}
