package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestExitCodes checks what the answers of a service mean for the exit code and the message.
func TestExitCodes(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct {
		status       int
		header, body string
		code         int
		message      string
	}{
		{400, "", `{"error":{"code":"BAD_REQUEST","message":"page must be 1 or more"}}`, 2, "task list: page must be 1 or more"},
		{401, "", `{"error":{"code":"AUTHENTICATION_FAILED","message":"no credentials"}}`, 6,
			"task list: no credentials: set STEPWELL_AUTH_TOKEN or STEPWELL_API_KEY"},
		{403, "", `{"error":{"message":"Missing required permission: tasks:list"}}`, 6,
			"task list: Missing required permission: tasks:list"},
		{404, "", `{"error":"Not found","message":"no such path"}`, 3, "task list: no such path"},
		{408, "", `{"error":{"message":"not idle"}}`, 5, "task list: not idle"},
		{422, "", `{"error":{"message":"invalid","details":[{"field":"name","message":"is required"}]}}`, 2,
			"task list: invalid; name: is required"},
		{503, "7", `{"error":{"message":"overloaded"}}`, 1, "task list: overloaded (try again in 7 s)"},
		{302, "", "", 1, "answers 302 Found: is it Stepwell or Tasker?"},
		{502, "", "<html>Bad gateway</html>", 1, "answers 502 Bad Gateway: is it Stepwell or Tasker?"},
	} {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if tt.header != "" {
				w.Header().Set("Retry-After", tt.header)
			}
			w.WriteHeader(tt.status)
			w.Write([]byte(tt.body))
		}))
		got := runCLI(map[string]string{"STEPWELL_URL": h.URL}, "", "task", "list")
		if got.code != tt.code || !strings.Contains(got.stderr, tt.message) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%d: got %d, %q; want %d, %q", tt.status, got.code, got.stderr, tt.code, tt.message)
		}
		h.Close()
	}
}

// TestUnreachable checks the messages for a service that is not there.
func TestUnreachable(t *testing.T) {
	t.Chdir(t.TempDir())
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	free := l.Addr().String()
	l.Close()
	got := runCLI(nil, "", "task", "list", "--url", free)
	want := "stepwell: task list: nothing listens on " + free + ": is \"stepwell serve\" running? Or give --url\n"
	if got.code != exitUnreachable || got.stderr != want {
		t.Errorf("got %d, %q; want %q", got.code, got.stderr, want)
	}
}

// TestClientCredentials checks that the command line sends what it finds in the environment, in the contract's
// order, and that it can make a token.
func TestClientCredentials(t *testing.T) {
	t.Chdir(t.TempDir())
	var seen http.Header
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header
		w.Write([]byte(`{"tasks":[],"pagination":{}}`))
	}))
	defer h.Close()
	for _, tt := range []struct {
		env                 map[string]string
		authorization, xKey string
	}{
		{map[string]string{}, "", ""},
		{map[string]string{"STEPWELL_API_KEY": "k"}, "", "k"},
		{map[string]string{"STEPWELL_API_KEY": "k", "STEPWELL_AUTH_TOKEN": "t"}, "Bearer t", ""},
		{map[string]string{"STEPWELL_ORCHESTRATION_AUTH_TOKEN": "o", "STEPWELL_AUTH_TOKEN": "t"}, "Bearer o", ""},
	} {
		tt.env["STEPWELL_URL"] = h.URL
		if got := runCLI(tt.env, "", "task", "list"); got.code != 0 {
			t.Errorf("got %d, %s", got.code, got.stderr)
		}
		if seen.Get("Authorization") != tt.authorization || seen.Get("X-API-Key") != tt.xKey {
			t.Errorf("%v: got %v", tt.env, seen)
		}
	}
	got := runCLI(map[string]string{"STEPWELL_URL": h.URL, "STEPWELL_JWT_PRIVATE_KEY_PATH": "nope"}, "", "task", "list")
	if got.code != exitNotFound || !strings.Contains(got.stderr, "STEPWELL_JWT_PRIVATE_KEY_PATH") {
		t.Errorf("got %d, %q; want the variable named", got.code, got.stderr)
	}
}

// TestNames checks what a task, a step and a template may be called.
func TestNames(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "templates/demo"})
	t.Chdir(t.TempDir())
	id, other := s.create(`{"namespace":"demo","name":"diamond"}`), s.create(`{"namespace":"demo","name":"diamond"}`)
	env := map[string]string{"STEPWELL_URL": s.url}
	for name, want := range map[string]string{
		id: id, strings.ReplaceAll(id, "-", ""): id, id[len(id)-12:]: id, strings.ToUpper(id[len(id)-8:]): id, "latest": other,
	} {
		if got := runCLI(env, "", "task", "show", name, "-o", "name"); got.stdout != want+"\n" {
			t.Errorf("%s: got %q, %q; want %s", name, got.stdout, got.stderr, want)
		}
	}
	for line, want := range map[string]cliResult{
		"task show " + id[:8]:                  {code: exitUsage, stderr: "is ambiguous: 2 tasks"},
		"task show 00000000":                   {code: exitNotFound, stderr: `no task begins or ends with "00000000"`},
		"step show latest strat":               {code: exitNotFound, stderr: `the task has no step "strat"; did you mean start?`},
		"task create demo/diamnd":              {code: exitNotFound, stderr: "did you mean demo.diamond"},
		"template show demo/diamond@9.9.9":     {code: exitNotFound, stderr: "no template demo.diamond@9.9.9"},
		"task show " + strings.Repeat("0", 32): {code: exitNotFound, stderr: "task show: "},
	} {
		got := runCLI(env, "", strings.Fields(line)...)
		if got.code != want.code || !strings.Contains(got.stderr, want.stderr) {
			t.Errorf("%s: got %d, %q; want %d, %q", line, got.code, got.stderr, want.code, want.stderr)
		}
	}
}

// TestResetClearsTheCheckpoint checks that step reset keeps the checkpoint of a step unless a flag
// says otherwise.
func TestResetClearsTheCheckpoint(t *testing.T) {
	s := newTestServer(t, serviceTest{extra: []string{testTemplate("yields", stepSpec{name: "a", callable: "Outside"})}})
	t.Chdir(t.TempDir())
	s.create(`{"namespace":"t","name":"yields"}`)
	finish := func(verb, body string) {
		c := s.do("POST", "/v1/steps/claim", `{"callables":["*"],"wait_seconds":5}`).want(200)
		path := "/v1/steps/" + c.text("0.step.step_uuid") + "/" + verb
		s.do("POST", path, fmt.Sprintf(`{"lease":%q,%s}`, c.text("0.lease"), body)).want(200)
	}
	finish("checkpoint", `"cursor":7`)
	for _, row := range [][2]string{{"--reason=again", "7"}, {"--clear-checkpoint", ""}} {
		finish("fail", `"error":{"message":"no","retryable":false}`)
		got := runCLI(map[string]string{"STEPWELL_URL": s.url}, "", "step", "reset", "latest", "a", row[0], "-o", "json")
		var step struct{ Checkpoint *struct{ Cursor json.Number } }
		if err := json.Unmarshal([]byte(got.stdout), &step); err != nil || (step.Checkpoint != nil) != (row[1] != "") {
			t.Errorf("%s: got %+v, %v; want the cursor %q", row[0], got, err, row[1])
		}
	}
}

// TestAnotherService works with a service that has only what the contract has for all.
func TestAnotherService(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: "templates/demo"})
	t.Chdir(t.TempDir())
	inner := newOrchestrationAPI(s.svc, nil)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, own := range []string{"/v1/events", "/explain", "/transitions", "/_stepwell"} {
			if strings.Contains(r.URL.Path, own) {
				http.NotFound(w, r)
				return
			}
		}
		r.Host = "localhost"
		inner.ServeHTTP(w, r)
	}))
	defer h.Close()
	env := map[string]string{"STEPWELL_URL": h.URL, "LANG": "C.UTF-8"}
	for _, tt := range []struct {
		line, stdout, stderr string
		code                 int
	}{
		{"task create demo/diamond --wait", "✔ complete", "", 0},
		{"task watch latest", "✔ complete", "", 0},
		{"task explain latest", "✔ complete: the task is complete: nothing is left to do", "", 0},
		{"task events latest", "▶ in_progress", "the service does not list transitions", 0},
		{"task events --follow", "", "has no event stream", exitFailed},
		{"fixture clock", "", "is not in fixture mode: start it with --fixture", exitFailed},
		{"task create demo/failing --wait", "✖ blocked_by_failures", "the task is blocked_by_failures", exitWorkflow},
	} {
		got := runCLI(env, "", strings.Fields(tt.line)...)
		if got.code != tt.code || !strings.Contains(got.stdout, tt.stdout) || !strings.Contains(got.stderr, tt.stderr) {
			t.Errorf("%s: got %d, %q, %q", tt.line, got.code, got.stdout, got.stderr)
		}
	}
}

// TestOtherRole checks what a command says that asks the other role of a service.
func TestOtherRole(t *testing.T) {
	s := newTestService(t, serviceTest{})
	w, o := httptest.NewServer(newWorkerAPI(s, nil)), httptest.NewServer(newOrchestrationAPI(s, nil))
	defer w.Close()
	defer o.Close()
	for _, tt := range []struct{ line, want string }{
		{"task list --url " + w.URL, "; " + w.URL + " is the worker role of a service: give the URL of its orchestration role"},
		{"task show 019b76da-a800-7000-8000-0546fb4f6166 --url " + w.URL, "is the worker role of a service"},
	} {
		if r := runCLI(nil, "", strings.Fields(tt.line)...); r.code != exitFailed && r.code != exitNotFound || !strings.Contains(r.stderr, tt.want) {
			t.Errorf("%s: got %d, %q; want %q", tt.line, r.code, r.stderr, tt.want)
		}
	}
	if r := runCLI(nil, "", "template", "show", "a/b", "--url", o.URL); strings.Contains(r.stderr, "role") {
		t.Errorf("got %q of the right role", r.stderr)
	}
}
