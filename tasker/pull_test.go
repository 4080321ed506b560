package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// recorded is what Tasker 0.1.8 answered for a task.
type recorded struct {
	Task     object
	Steps    []object // with their audit
	Template json.RawMessage
}

// recordedTasks returns the tasks in testdata/pulled.json, by name.
func recordedTasks(t *testing.T) (all map[string]*recorded) {
	t.Helper()
	if err := json.Unmarshal(readFile(t, "testdata/pulled.json"), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// serveTasks serves tasks as Tasker does, in both roles. The hook sees each path before it is answered.
func serveTasks(t *testing.T, tasks map[string]*recorded, hook func(path string)) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hook != nil {
			hook(r.URL.Path)
		}
		for _, task := range tasks {
			base := "/v1/tasks/" + task.Task["task_uuid"].(string)
			answers := map[string]any{
				base: task.Task, base + "/workflow_steps": task.Steps,
				fmt.Sprintf("/v1/templates/%s/%s/%s", task.Task["namespace"], task.Task["name"], task.Task["version"]): object{
					"template": object{"template": task.Template}},
			}
			for _, s := range task.Steps {
				answers[base+"/workflow_steps/"+s["step_uuid"].(string)+"/audit"] = s["audit"]
			}
			if answer, ok := answers[r.URL.Path]; ok {
				json.NewEncoder(w).Encode(answer)
				return
			}
		}
		http.Error(w, `{"error":"not found"}`, http.StatusNotFound)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// pullRecorded pulls recorded tasks.
func pullRecorded(t *testing.T, tasks map[string]*recorded, flags ...string) (code int, stdout, stderr string) {
	t.Helper()
	url := serveTasks(t, tasks, nil)
	args := append([]string{"pull", url, "--worker-url", url}, flags...)
	for _, task := range tasks {
		args = append(args, task.Task["task_uuid"].(string))
	}
	return runTasker(t, nil, args...)
}

// only returns one of the recorded tasks.
func only(t *testing.T, name string) (map[string]*recorded, *recorded) {
	all := recordedTasks(t)
	return map[string]*recorded{name: all[name]}, all[name]
}

// imported serves lines, and returns the client of the service, whose clock stands still.
func imported(t *testing.T, lines string) *api {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pulled.jsonl")
	writeFile(t, file, []byte(lines))
	return serve(t, "--fixture", "--memory", "--quiet", "--seed", file).api()
}

// TestPull pulls tasks as Tasker told them, and serves the lines: each step has its id, state, attempts and results.
func TestPull(t *testing.T) {
	t.Parallel()
	tasks := recordedTasks(t)
	stuck := []string{"reset", "resolved", "completed"} // an action leaves a blocked task blocked there
	code, _, said := pullRecorded(t, tasks)
	if code != exitFailed || strings.Count(said, "it is blocked_by_failures, but its steps give steps_in_process; --steps-decide") != 3 {
		t.Errorf("got exit code %d, %q; want three contradictions", code, said)
	}
	code, lines, said := pullRecorded(t, tasks, "--steps-decide")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	here := imported(t, lines)
	for name, task := range tasks {
		id := task.Task["task_uuid"].(string)
		isStuck := slices.Contains(stuck, name)
		if got := here.do("GET", "/v1/tasks/"+id, "").want(200).text("status"); got != task.Task["status"] && !isStuck {
			t.Errorf("%s: got %s; want %s", name, got, task.Task["status"])
		}
		for _, want := range task.Steps {
			path := fmt.Sprintf("/v1/tasks/%s/workflow_steps/%s", id, want["step_uuid"])
			got := here.do("GET", path, "").want(200)
			state, attempts := want["current_state"], fmt.Sprint(want["attempts"])
			switch {
			case name == "reset" && want["name"] == "broken":
				state, attempts = "enqueued", "0"
			case name == "reset" && want["name"] == "never":
				state = "pending"
			case isStuck && want["name"] == "never":
				state = "enqueued"
			}
			if got.text("name") != want["name"] || got.text("current_state") != state || got.text("attempts") != attempts {
				t.Errorf("%s: got %s; want %s %s with %s attempts", name, got.body, want["name"], state, attempts)
			}
			if r, ok := want["results"].(object); ok && r["success"] == true &&
				!wire.Equal(got.get("results.result"), wire.Must(wire.Decode(encode(r["result"])))(t)) {
				t.Errorf("%s: step %s has the result %v; want %v", name, want["name"], got.get("results.result"), r["result"])
			}
		}
	}
}

// TestPullWaits pulls a task whose step waits for its retry: it is due later than the clock, at the time of the service.
func TestPullWaits(t *testing.T) {
	t.Parallel()
	tasks, task := only(t, "retries")
	task.Task["status"], task.Steps[1]["current_state"], task.Steps[1]["audit"] = "waiting_for_retry", "pending", []any{}
	s := task.Steps[0]
	s["current_state"], s["attempts"], s["audit"], s["next_retry_at"] = "waiting_for_retry", 1, s["audit"].([]any)[2:], "2026-11-26T12:00:00Z"
	code, lines, said := pullRecorded(t, tasks)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	here := imported(t, lines)
	got := here.do("GET", "/v1/tasks/"+task.Task["task_uuid"].(string)+"/workflow_steps", "").want(200)
	if got.text("0.current_state") != "waiting_for_retry" || got.text("0.next_retry_at") != "2026-11-26T12:00:00.000000Z" {
		t.Errorf("got %s; want it to wait until 12:00", got.body)
	}
}

// TestPullOfUnprocessedResults pulls tasks of which a result waits to be processed there: here it is processed, also if it
// creates steps, unless the task was cancelled meanwhile.
func TestPullOfUnprocessedResults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		task, state, said, status string
		change                    func(r *recorded)
	}{
		{"retries", resultState, "its result waits to be processed", "complete", func(r *recorded) { r.Steps = r.Steps[:] }},
		{"retries", errorState, "its result waits to be processed", "steps_in_process", func(r *recorded) {
			s := r.Steps[0]
			s["current_state"], s["attempts"], s["audit"] = errorState, 1, s["audit"].([]any)[2:]
			r.Steps[1]["current_state"], r.Steps[1]["audit"], r.Steps[1]["attempts"] = "pending", []any{}, 0
		}},
		{"batch", resultState, "does not exist there yet", "steps_in_process", func(r *recorded) {
			r.Steps = slices.DeleteFunc(r.Steps, func(s object) bool { return s["name"] != "b0" })
			r.Steps[0]["current_state"] = resultState
		}},
		{"chooses", resultState, "does not exist there yet", "steps_in_process", func(r *recorded) {
			made := func(s object) bool { return len(s["audit"].([]any)) > 0 }
			decision := slices.IndexFunc(r.Steps, func(s object) bool {
				return made(s) && strings.Contains(string(encode(s["results"])), "decision_point_outcome")
			})
			r.Steps[decision]["current_state"] = resultState
			r.Steps = r.Steps[:decision+1]
		}},
		{"retries", resultState, "here it came too late", "cancelled", func(r *recorded) { r.Steps[1]["current_state"] = resultState }},
	} {
		tasks, task := only(t, tt.task)
		task.Steps[len(task.Steps)-1]["current_state"] = tt.state
		task.Task["status"] = "steps_in_process"
		if tt.status == "cancelled" {
			task.Task["status"] = tt.status
		}
		tt.change(task)
		code, lines, said := pullRecorded(t, tasks)
		if code != 0 || !strings.Contains(said, tt.said) {
			t.Errorf("%s: got exit code %d, %q; want %q", tt.task, code, said, tt.said)
			continue
		}
		here := imported(t, lines)
		id := task.Task["task_uuid"].(string)
		got := here.do("GET", "/v1/tasks/"+id, "").want(200)
		if got.text("status") != tt.status {
			t.Errorf("%s: got %s; want %s", tt.task, got.text("status"), tt.status)
		}
		if tt.status == "cancelled" {
			audit := here.do("GET", "/v1/tasks/"+id+"/workflow_steps/"+task.Steps[1]["step_uuid"].(string)+"/audit", "").want(200)
			if audit.text("0.to_state") != "cancelled" || audit.text("0.success") != "true" {
				t.Errorf("the late result: got %s", audit.body)
			}
		}
	}
}

// TestPullContradictions checks that answers which contradict each other are refused with their place.
func TestPullContradictions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		task   string
		change func(r *recorded)
		want   string
	}{
		{"retries", func(r *recorded) { r.Task["status"] = "cancelled" }, "it is cancelled, but its steps give complete; --steps-decide takes their word"},
		{"retries", func(r *recorded) { r.Steps = r.Steps[1:] }, "step shaky does not exist, but by the other steps it does"},
		{"retries", func(r *recorded) { r.Task["created_at"] = "today" }, `"today" is not a timestamp`},
		{"retries", func(r *recorded) { r.Steps[1]["name"] = "else" }, "its template has no step else"},
		{"batch", func(r *recorded) { r.Steps[1]["name"] = "bw_009" }, "step bw_009 is complete with 1 attempts, but by the other steps it is not there"},
		{"fails", func(r *recorded) { r.Template = json.RawMessage(`{"name":"fails"}`) }, "its template cannot be used here: "},
	} {
		tasks, task := only(t, tt.task)
		tt.change(task)
		if code, _, said := pullRecorded(t, tasks); code != exitFailed || !strings.Contains(said, tt.want) {
			t.Errorf("%s: got exit code %d, %q; want %q", tt.task, code, said, tt.want)
		}
	}
}

// TestPullGoesOn names the task that changes while it is read, and the one that does not exist, and pulls the others.
func TestPullGoesOn(t *testing.T) {
	t.Parallel()
	tasks := recordedTasks(t)
	changing, other := tasks["retries"], tasks["batch"]
	id, n := changing.Task["task_uuid"].(string), 0
	url := serveTasks(t, tasks, func(path string) {
		if path == "/v1/tasks/"+id {
			n++
			changing.Task["updated_at"] = fmt.Sprintf("2026-11-26T02:10:%02d.000000Z", n)
		}
	})
	missing := "01a2159e-71ab-7f1e-a457-000000000000"
	code, lines, said := runTasker(t, nil, "pull", url, id, missing, other.Task["task_uuid"].(string), "--worker-url", url)
	if code != exitFailed || !strings.Contains(said, "task "+id+" is not pulled: it changed while it was read\n") ||
		!strings.Contains(said, "task "+missing+" is not pulled: ") || !strings.Contains(said, "2 tasks were not pulled; the other 1 were") {
		t.Errorf("got exit code %d, %q", code, said)
	}
	imported(t, lines).do("GET", "/v1/tasks/"+other.Task["task_uuid"].(string), "").want(200)
}

// TestClient checks the rules of requests: which credential is sent, where, and how much is read.
func TestClient(t *testing.T) {
	t.Parallel()
	var seen http.Header
	var reply func(w http.ResponseWriter, r *http.Request)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		reply(w, r)
	}))
	t.Cleanup(s.Close)
	const id = "01a2159e-71ab-7f1e-a457-e77ae59a4b79"
	ask := func(env []string, address string) (int, string) {
		var said bytes.Buffer
		p := &program{stdout: io.Discard, stderr: &said, now: time.Now, most: 1000, getenv: func(name string) string {
			i := slices.IndexFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
			if i < 0 {
				return ""
			}
			return strings.TrimPrefix(env[i], name+"=")
		}}
		return p.main(t.Context(), []string{"pull", address, id, "--worker-url", s.URL}), said.String()
	}
	status := func(code int, body string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) { http.Error(w, body, code) }
	}
	withUser := strings.Replace(s.URL, "://", "://jo:s3cret@", 1)
	for _, tt := range []struct {
		what, address string
		env           []string
		reply         func(http.ResponseWriter, *http.Request)
		header, sent  string
		code          int
		said          string
	}{
		{"none", s.URL, nil, status(401, ""), "Authorization", "", exitRefused, "401"},
		{"a key", s.URL, []string{"STEPWELL_API_KEY=k"}, status(403, ""), "X-API-Key", "k", exitRefused, "403"},
		{"its header", s.URL, []string{"STEPWELL_API_KEY=k", "STEPWELL_API_KEY_HEADER=X-K"}, status(403, ""), "X-K", "k", exitRefused, "403"},
		{"a token before a key", s.URL, []string{"STEPWELL_API_KEY=k", "STEPWELL_AUTH_TOKEN=t\n"}, status(403, ""), "Authorization", "Bearer t", exitRefused, ""},
		{"the token of the role", s.URL, []string{"STEPWELL_AUTH_TOKEN=t", "STEPWELL_ORCHESTRATION_AUTH_TOKEN=o"}, status(403, ""), "Authorization", "Bearer o", exitRefused, ""},
		{"a user", withUser, nil, status(403, ""), "Authorization", "Basic am86czNjcmV0", exitRefused, ""},
		{"a token before a user", withUser, []string{"STEPWELL_AUTH_TOKEN=t"}, status(403, ""), "Authorization", "Bearer t", exitRefused, ""},
		{"a bad token", s.URL, []string{"STEPWELL_AUTH_TOKEN=a\nb"}, status(403, ""), "Authorization", "", exitUsage, "no header can carry"},
		{"a redirect", s.URL, []string{"STEPWELL_AUTH_TOKEN=t"}, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, s.URL+"/elsewhere", http.StatusTemporaryRedirect)
		}, "Authorization", "Bearer t", exitUnreachable, "no redirect is followed"},
		{"a long reply", s.URL, nil, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, strings.Repeat(" ", 2000)) }, "", "", exitFailed, "more than 1000 bytes"},
		{"no JSON", s.URL, nil, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html>") }, "", "", exitFailed, "invalid character"},
		{"more than JSON", s.URL, nil, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{} {}") }, "", "", exitFailed, "more than one JSON value"},
		{"a message that misleads", s.URL, nil, status(500, `{"error":{"message":"a\u001b[2Jb"}}`), "", "", exitFailed, `a\u001b[2Jb`},
		{"a query", s.URL + "/?x=1", nil, status(500, ""), "", "", exitUsage, "has a query"},
		{"no host", "ftp://x", nil, status(500, ""), "", "", exitUsage, "not the URL of a service"},
		{"nobody", "http://127.0.0.1:1", nil, status(500, ""), "", "", exitUnreachable, "cannot be reached"},
	} {
		seen, reply = nil, tt.reply
		code, said := ask(tt.env, tt.address)
		if code != tt.code || !strings.Contains(said, tt.said) || strings.Contains(said, "s3cret") {
			t.Errorf("%s: got exit code %d, %q; want %d, %q", tt.what, code, said, tt.code, tt.said)
		}
		if got := seen.Get(cmp.Or(tt.header, "X-None")); got != tt.sent {
			t.Errorf("%s: got %q in %s; want %q", tt.what, got, tt.header, tt.sent)
		}
	}
}
