package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// TestHashedContext compares what an identity covers with the texts that Tasker hashed: those of numbers were found by
// its hashes.
func TestHashedContext(t *testing.T) {
	t.Parallel()
	for _, tt := range [][2]string{
		{`{}`, `{}`},
		{`{"b": 1, "a": [true, null, {"z":"", "y":-7}]}`, `{"a":[true,null,{"y":-7,"z":""}],"b":1}`},
		{`{"k\u00e9y\"x":"a\u007f\u2028\/\u00e9\u0001<&>\n"}`, "{\"kéy\"x\":\"a\u007f\u2028/é\\u0001<&>\\n\"}"},
		{`18446744073709551615`, `18446744073709551615`},
		{`-9223372036854775808`, `-9223372036854775808`},
		{`123456789012345678901234567890`, `1.2345678901234568e+29`},
		{`-0`, `-0.0`},
		{`1.50`, `1.5`},
		{`1E2`, `100.0`},
		{`1e15`, `1000000000000000.0`},
		{`1e16`, `1e+16`},
		{`1e300`, `1e+300`},
		{`0.000123`, `0.000123`},
		{`0.00001`, `0.00001`},
		{`1e-7`, `1e-7`},
		{`1.5e-12`, `1.5e-12`},
	} {
		var v any
		if err := decode([]byte(tt[0]), &v); err != nil || hashed(v) != tt[1] {
			t.Errorf("%s: got %s, %v; want %s", tt[0], hashed(v), err, tt[1])
		}
	}
}

// TestTextObstacles finds what PostgreSQL cannot store in texts. It reads exponents whole.
func TestTextObstacles(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("0", 38)
	for text, want := range map[string]string{
		`{"a":"e\\u0000","n":1e300,"f":false,"d":12.5}`: "",
		`{"a":["x\u0000y"]}`:                            "U+0000",
		`{"x\u0000y":1}`:                                "U+0000",
		`[1e-20000]`:                                    "more digits",
		`[1E+0131073]`:                                  "more digits",
		`[1e-` + zeros + `30]`:                          "",
		`[1e-` + zeros + `20000]`:                       "more digits",
		`[1e` + strings.Repeat("9", 50) + `]`:           "more digits",
		"[" + strings.Repeat("9", 17_000) + "]":         "more digits",
		`["` + strings.Repeat("9", 17_000) + `"]`:       "",
	} {
		got := strings.Join(textObstacles([]byte(text)), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%.60s: got %q; want %q", text, got, want)
		}
	}
}

// TestObstacles changes a task that can move so that it cannot.
func TestObstacles(t *testing.T) {
	t.Parallel()
	const now, longAgo = "2026-01-31T12:00:00.000000Z", "2026-01-31T11:30:00.000000Z"
	for _, tt := range []struct {
		change func(e *export, x *moved)
		want   string
	}{
		{func(*export, *moved) {}, ""},
		{func(e *export, x *moved) { x.steps[0].Updated = longAgo }, ""},
		{func(e *export, x *moved) { x.steps[0].Updated = "2026-01-31T11:29:59.999999Z" }, `step "one" has waited since`},
		{func(_ *export, x *moved) { x.Priority = "2147483648" }, "its priority 2147483648 is not"},
		{func(_ *export, x *moved) {
			x.steps[1].audit = []audit{{Inputs: json.RawMessage(`{}`)}}
		}, `step "two" has inputs that an operator set`},
		{func(_ *export, x *moved) { x.steps[1].Attempts = 3 }, `step "two" has had 3 attempts`},
		{func(_ *export, x *moved) { // is delivered again
			x.steps[0].Attempts, x.moves["one"] = 3, []transition{{To: "pending"}, {From: "in_progress", To: "enqueued"}}
		}, ""},
		{func(_ *export, x *moved) { x.steps[0].State = "error" }, `step "one" has failed for good`},
		{func(_ *export, x *moved) { x.steps[1].State = "cancelled" }, "one of its steps is cancelled"},
		{func(_ *export, x *moved) { x.steps[0].State = "pending" }, "none of its steps can run"},
		{func(_ *export, x *moved) {
			x.steps[0].State, x.steps[0].NextRetry = "waiting_for_retry", "2026-01-31T12:30:00.000001Z"
		}, `step "one" is due to be retried at`},
		{func(e *export, x *moved) { e.contents[x.fullName()] = &definition{hash: "other"} }, "another definition of t.a@1.0.0"},
		{func(_ *export, x *moved) {
			x.steps[0].Checkpoint = json.RawMessage(`{"cursor":"` + strings.Repeat("x", mostCursor) + `"}`)
		}, `the cursor of the checkpoint of step "one"`},
		{func(_ *export, x *moved) {
			x.Name, x.Version, x.Namespace, x.Status = strings.Repeat("é", 65), "1.0.0-beta.1+b567", strings.Repeat("n", 30), "complete"
		}, "namespace has 30 characters; at most 29 fit; its template's name has 65 characters; at most 64 fit; " +
			"its template's version has 17"},
	} {
		def, err := readDefinition([]byte(`{"hash":"h","definition":{"steps":[
			{"name":"one","retry":{"retryable":true}},{"name":"two","dependencies":["one"],"retry":{"retryable":true}}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		x := &moved{task: &task{Namespace: "t", Name: "a", Version: "1.0.0", Status: "steps_in_process", Priority: "0", def: def,
			steps: []*step{
				{ID: "one", Name: "one", State: "enqueued", Updated: now, MaxAttempts: 3},
				{ID: "two", Name: "two", State: "pending", Updated: now, MaxAttempts: 3},
			}},
			moves: map[string][]transition{"one": {{To: "pending"}}, "two": {{To: "pending"}}}}
		at, _ := parseTime(now)
		e := &export{p: &program{now: func() time.Time { return at }}, last: now, contents: map[string]*definition{x.fullName(): def}}
		tt.change(e, x)
		got := strings.Join(e.obstacles(x), "; ")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("got %q; want %q", got, tt.want)
		}
	}
}

// TestCopied checks that rows survive the format of COPY.
func TestCopied(t *testing.T) {
	t.Parallel()
	if got, want := copied(`{"a":"\\N\n\t\"\\."}`), `{"a":"\\\\N\\n\\t\\"\\\\."}`; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

// movedRows returns the tasks in a script.
func movedRows(t *testing.T, script string) (rows []map[string]any) {
	t.Helper()
	block := regexp.MustCompile(`(?s)\nCOPY moved FROM STDIN;\n(.*?)\\\.\n`).FindStringSubmatch(script)
	if block == nil {
		t.Fatalf("no tasks in %q", script)
	}
	for line := range strings.Lines(block[1]) {
		var row map[string]any
		if err := decode([]byte(strings.ReplaceAll(line, `\\`, `\`)), &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// exportTemplates writes the templates of the tests of the export.
func exportTemplates(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	template := func(name, step string) {
		writeFile(t, filepath.Join(dir, name[:3]+".json"), fmt.Appendf(nil, `{"name":%q,"namespace_name":"e","version":"1.0.0","steps":[%s]}`, name, step))
	}
	const retry = `"retry":{"max_attempts":3,"backoff":"linear","backoff_base_ms":3600000,"max_backoff_ms":3600000}`
	template("far", `{"name":"a","handler":{"callable":"builtin:fail","initialization":{"retryable":true}},`+retry+`}`)
	template(strings.Repeat("l", 65), `{"name":"a","handler":{"callable":"builtin:noop"}}`)
	template("two", `{"name":"a","handler":{"callable":"builtin:noop"}},{"name":"b","handler":{"callable":"builtin:echo"},"dependencies":["a"]}`)
	template("ask", `{"name":"a","handler":{"callable":"builtin:noop"}},{"name":"b","handler":{"callable":"people.b"},"dependencies":["a"]}`)
	template("die", `{"name":"a","handler":{"callable":"builtin:fail","initialization":{"retryable":false}}}`)
	return dir
}

// TestExport exports tasks of a service that runs: what is refused, what is held, and the rows.
func TestExport(t *testing.T) {
	t.Parallel()
	s := serve(t, "--memory", "--quiet", "--templates", exportTemplates(t))
	here := s.api()
	create := func(name, status, more string) string {
		id := here.create(fmt.Sprintf(`{"namespace":"e","name":%q%s}`, name, more))
		here.await(id, status)
		return id
	}
	run := func(wantCode int, wantTasks int, wantText string, flags ...string) string {
		t.Helper()
		code, script, said := runTasker(t, []string{"STEPWELL_URL=" + here.url}, append([]string{"export"}, flags...)...)
		n := strings.Count(script, `"task":{"`)
		if code != wantCode || n != wantTasks || !strings.Contains(said, wantText) {
			t.Errorf("%q: got %d, %d tasks, %q; want %d, %d tasks, %q", flags, code, n, said, wantCode, wantTasks, wantText)
		}
		return script
	}
	done := create("two", "complete", `,"requested_at":"2026-01-31T12:00:00Z","context":{"rate":1e21,"b":{"é\\":"\"\\<"},"a":[-0]}`)
	create("die", "blocked_by_failures", "")
	asked := create("ask", "steps_in_process", `,"context":{"b":1,"a":1.50}`)
	run(exitFailed, 0, "1 task is unfinished, and may still run here")
	run(0, 2, "", "--only", "finished")
	run(exitUsage, 0, "--only must be finished or unfinished", "--only", "now")
	run(0, 1, "held 1 task\n", "--only", "unfinished", "--hold", "https://there")
	script := run(0, 3, "held 1 task\n", "--hold", "https://there") // the blocked one
	if got := here.do("GET", "/v1/tasks/"+asked, "").text("hold.place"); got != "https://there" {
		t.Errorf("got held in %s", got)
	}
	run(0, 3, "")
	run(0, 0, "", "--namespace", "other")
	run(0, 1, "", "--created-after", here.do("GET", "/v1/tasks/"+done, "").text("created_at"), "--only", "unfinished")

	far := create("far", "waiting_for_retry", "")
	create(strings.Repeat("l", 65), "complete", "")
	run(exitFailed, 0, "so nothing was written; --skip writes the other 3", "--hold", "https://there")
	run(exitFailed, 3, "2 tasks cannot move; the other 3 were written", "--hold", "https://there", "--skip")
	if a := here.do("GET", "/v1/tasks/"+far, ""); strings.Contains(string(a.body), `"hold"`) {
		t.Errorf("the task that cannot move is held: %s", a.body)
	}

	rows := movedRows(t, script)
	slices.SortFunc(rows, func(a, b map[string]any) int {
		return strings.Compare(fmt.Sprint(member(a, "task", "name")), fmt.Sprint(member(b, "task", "name")))
	})
	var got []string
	for _, row := range rows {
		var states []string
		for _, s := range row["states"].([]any) {
			states = append(states, member(s, "to_state").(string))
		}
		got = append(got, fmt.Sprintf("%v %v hashed %v, created %t, %d steps %d edges %d letters, %s", member(row, "task", "name"),
			member(row, "task", "status"), member(row, "task", "hashed"), member(row, "task", "created_at") != nil,
			len(row["steps"].([]any)), len(row["edges"].([]any)), len(row["letters"].([]any)), strings.Join(states[len(states)-2:], " ")))
	}
	want := []string{
		`ask steps_in_process hashed {"a":1.5,"b":1}, created false, 2 steps 1 edges 0 letters, steps_in_process waiting_for_dependencies`,
		`die blocked_by_failures hashed <nil>, created true, 1 steps 0 edges 1 letters, evaluating_results blocked_by_failures`,
		`two complete hashed <nil>, created true, 2 steps 1 edges 0 letters, evaluating_results complete`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if at := member(rows[2], "task", "requested_at"); at != "2026-01-31T12:00:00.000000Z" {
		t.Errorf("requested at %v", at)
	}
	if got := string(encode(member(rows[2], "task", "context"))); !wire.Equal(wire.Must(wire.Decode([]byte(got)))(t),
		wire.Must(wire.Decode([]byte(`{"rate":1e21,"b":{"é\\":"\"\\<"},"a":[-0]}`)))(t)) {
		t.Errorf("got the context %s", got)
	}
}

// TestExportOfStoredTasks exports the tasks of a store that is served without handlers, where no step runs.
func TestExportOfStoredTasks(t *testing.T) {
	t.Parallel()
	data, templates := filepath.Join(t.TempDir(), "data"), exportTemplates(t)
	s := serve(t, "--data", data, "--quiet", "--role", "orchestration", "--templates", templates)
	id := s.api().create(`{"namespace":"e","name":"two"}`)
	s.stop()
	s = serve(t, "--data", data, "--quiet", "--role", "orchestration", "--templates", templates)
	script := wantRun(t, 0, "held 1 task", "export", "--url", s.ready.OrchestrationURL, "--hold", "https://there")
	if rows := movedRows(t, script); len(rows) != 1 || member(rows[0], "task", "task_uuid") != id {
		t.Errorf("got %v", rows)
	}
	if got := s.api().step(id, "a").State; got != "enqueued" {
		t.Errorf("a step is %s; want none to have run", got)
	}
}

// TestExportNeedsPermissions exports with credentials that may see all, among them a key that signs tokens, and without.
func TestExportNeedsPermissions(t *testing.T) {
	t.Parallel()
	keys := t.TempDir()
	p := &program{stepwell: programFile(t)}
	if _, err := p.callStepwell(t.Context(), "auth", "generate-keys", "--output-dir", keys); err != nil {
		t.Fatal(err)
	}
	config := configFile(t, fmt.Sprintf(`[orchestration.web.auth]
enabled = true
jwt_public_key_path = %q
api_keys_enabled = true
api_keys = [
  {key = "the-key-of-the-operator", permissions = ["tasks:*", "steps:*", "dlq:*", "templates:*", "system:*"], description = "operator"},
  {key = "the-key-of-the-owner", permissions = ["tasks:*", "steps:*", "dlq:*", "templates:*", "system:*", "worker:*"], description = "owner"},
]
`, filepath.Join(keys, "jwt-public-key.pem")))
	s := serve(t, "--memory", "--quiet", "--templates", exportTemplates(t), "--config", config)
	url := s.ready.OrchestrationURL
	code, _, said := runTasker(t, []string{"STEPWELL_API_KEY=the-key-of-the-owner"}, "export", "--url", url)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, said)
	}
	req := wire.Must(http.NewRequest("POST", url+"/v1/tasks", strings.NewReader(`{"namespace":"e","name":"two"}`)))(t)
	req.Header.Set("X-API-Key", "the-key-of-the-owner")
	req.Header.Set("Content-Type", "application/json")
	resp := wire.Must(http.DefaultClient.Do(req))(t)
	resp.Body.Close()
	for env, want := range map[string]int{
		"STEPWELL_API_KEY=none": exitRefused, "STEPWELL_API_KEY=the-key-of-the-operator": exitRefused,
		"STEPWELL_API_KEY=the-key-of-the-owner":                                       0,
		"STEPWELL_JWT_PRIVATE_KEY_PATH=" + filepath.Join(keys, "jwt-private-key.pem"): 0,
		"STEPWELL_JWT_PRIVATE_KEY_PATH=nowhere":                                       exitNotFound,
	} {
		if code, _, said := runTasker(t, []string{env}, "export", "--url", url, "--hold", "there"); code != want {
			t.Errorf("%s: got exit code %d, %q; want %d", env, code, said, want)
		}
	}
}

// TestCommandLine checks what is said about a wrong command line, and the help.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		code int
		said string
	}{
		{nil, exitUsage, `there is no command ""`},
		{[]string{"move"}, exitUsage, `there is no command "move"`},
		{[]string{"export"}, exitUsage, "missing --url"},
		{[]string{"export", "file", "--url", "x"}, exitUsage, "it takes no operand"},
		{[]string{"export", "--hold"}, exitUsage, "flag needs an argument"},
		{[]string{"pull", "http://127.0.0.1:1"}, exitUsage, "want the URL of Tasker and the UUIDs of tasks"},
		{[]string{"pull", "http://127.0.0.1:1", "x"}, exitUsage, "missing --worker-url"},
		{[]string{"pull", "http://127.0.0.1:1", "x", "--worker-url", "http://127.0.0.1:1"}, exitUsage, `"x" is not the UUID of a task`},
		{[]string{"convert"}, exitUsage, "want one file"},
		{[]string{"convert", "a.yaml", "--stepwell", "/nowhere/stepwell"}, exitNotFound, "no such file"},
	} {
		wantRun(t, tt.code, tt.said, tt.args...)
	}
	if help := wantRun(t, 0, "", "pull", "--help"); !strings.Contains(help, "-worker-url URL") {
		t.Errorf("got %s", help)
	}
	if help := wantRun(t, 0, "", "--help"); !strings.Contains(help, "tasker pull URL TASK") {
		t.Errorf("got %s", help)
	}
}
