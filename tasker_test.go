package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// TestHashedContext compares what an identity covers with the texts that Tasker hashed: those of numbers
// were found by its hashes.
func TestHashedContext(t *testing.T) {
	t.Parallel()
	for _, tt := range [][2]string{
		{`{}`, `{}`},
		{`{"b": 1, "a": [true, null, {"z":"", "y":-7}]}`, `{"a":[true,null,{"y":-7,"z":""}],"b":1}`},
		{`{"k\u00e9y\"x":"a\u007f\u2028\/\u00e9\u0001"}`, "{\"kéy\"x\":\"a\u007f\u2028/é\\u0001\"}"},
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
		if got := string(appendHashed(nil, []byte(tt[0]))); got != tt[1] {
			t.Errorf("%s: got %s; want %s", tt[0], got, tt[1])
		}
	}
}

// TestTextObstacles finds what PostgreSQL cannot store in texts.
func TestTextObstacles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a":"e\\u0000","n":1e300,"f":false,"d":12.5}`: "",
		`{"a":["x\u0000y"]}`:                            "U+0000",
		`[1e-20000]`:                                    "more digits",
		`[1E+0131073]`:                                  "more digits",
		"[" + strings.Repeat("9", 17_000) + "]":         "more digits",
		`["` + strings.Repeat("9", 17_000) + `"]`:       "",
	} {
		got := strings.Join(textObstacles([]byte(text)), "; ")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%.40s: got %q; want %q", text, got, want)
		}
	}
}

// TestObstacles changes tasks that can move so that they cannot.
func TestObstacles(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, serviceTest{extra: []string{`{"name":"a","namespace":"t","version":"1.0.0","steps":[
		{"name":"one","handler":{"callable":"t.one"}},{"name":"two","handler":{"callable":"t.two"}}]}`}})
	id := s.create(`{"namespace":"t","name":"a"}`)
	key, _ := parseUUID(id)
	for _, tt := range []struct {
		change func(m *taskerMove, t *task)
		want   string
	}{
		{func(*taskerMove, *task) {}, ""},
		{func(m *taskerMove, t *task) { m.last = t.updated + instant(taskerRetry.Microseconds()) }, ""},
		{func(m *taskerMove, t *task) { m.last = t.updated + instant(taskerRetry.Microseconds()) + 1 }, `step "one" has waited since`},
		{func(_ *taskerMove, t *task) { t.by.priority = 1 << 31 }, "its priority 2147483648 is not"},
		{func(_ *taskerMove, t *task) { t.steps[1].inputs = "{}" }, `step "two" has inputs that an operator set`},
		{func(_ *taskerMove, t *task) { t.steps[1].attempts = 3 }, `step "two" has had 3 attempts`},
		{func(_ *taskerMove, t *task) { t.steps[1].attempts, t.steps[1].redeliver = 3, true }, ""},
		{func(_ *taskerMove, t *task) { t.steps[0].state = stepInError }, `step "one" has failed for good`},
		{func(_ *taskerMove, t *task) { t.counts[stepCancelled]++ }, "one of its steps is cancelled"},
		{func(_ *taskerMove, t *task) { t.counts[stepEnqueued] = 0 }, "none of its steps can run"},
		{func(m *taskerMove, t *task) { m.contents[t.tpl.fullName()] = &template{hash: "other"} }, "another definition of t.a@1.0.0"},
		{func(_ *taskerMove, t *task) {
			t.steps[0].checkpoint = &checkpoint{data: []byte(`{"cursor":"` + strings.Repeat("x", taskerCursor) + `"}`)}
		}, `the cursor of the checkpoint of step "one"`},
		{func(_ *taskerMove, t *task) {
			long := *t.tpl
			long.name, long.version, long.namespace = strings.Repeat("é", 65), "1.0.0-beta.1+b567", strings.Repeat("n", 30)
			t.tpl = &long
			t.state = taskComplete
		}, "namespace has 30 characters; at most 29 fit; its template's name has 65 characters; at most 64 fit; " +
			"its template's version has 17"},
	} {
		task := must(s.svc.store.view(key))(t)
		by := *task.by
		task.by = &by
		m := &taskerMove{last: task.updated, now: task.updated, contents: map[string]*template{task.tpl.fullName(): task.tpl}}
		tt.change(m, task)
		got := strings.Join(m.obstacles(task), "; ")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("got %q; want %q", got, tt.want)
		}
	}
}

// TestTaskerScript checks that rows survive the format of COPY.
func TestTaskerScript(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := newTaskerScript(&out)
	s.stage("moved")
	s.row([]byte(`{"a":"\\N\n\t\"\\."}`))
	s.end()
	noError(t, s.finish())
	if !strings.Contains(out.String(), "\nCOPY moved FROM STDIN;\n"+`{"a":"\\\\N\\n\\t\\"\\\\."}`+"\n\\.\n") {
		t.Errorf("got %s", out.String()[len(taskerBegin):len(out.String())-len(taskerEnd)])
	}
}

// TestExportFromRunningService exports the tasks of a service that runs: the finished ones, from its URL, its state and
// its directory.
func TestExportFromRunningService(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newTestServer(t, serviceTest{templates: "templates/demo", dir: dir})
	id := s.create(`{"namespace":"demo","name":"diamond"}`)
	s.await(id, "complete")
	s.create(`{"namespace":"demo","name":"approval"}`)
	state := string(s.do("GET", "/v1/backup", "").want(200).body)
	for _, source := range [][]string{{"--url", s.url}, {"--from", "-"}, {"--data", dir}} {
		args := append([]string{"store", "export", "--to", "tasker"}, source...)
		got := runCLI(nil, state, args...)
		if got.code != exitFailed || got.stdout != "" || !strings.Contains(got.stderr, "1 task is unfinished, and may still run here") {
			t.Errorf("%v: got %d, %q, %q", source, got.code, got.stdout, got.stderr)
		}
		got = runCLI(nil, state, append(args, "--only", "finished")...)
		if got.code != 0 || strings.Count(got.stdout, `{"task":{"task_uuid":"`) != 1 || !strings.Contains(got.stdout, id) {
			t.Errorf("%v: got %d, %q, %q", source, got.code, got.stdout, got.stderr)
		}
	}
}

// TestExportHolds exports the tasks of a service that runs, which holds them, and takes them back from its directory.
func TestExportHolds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := serviceTest{templates: "templates/demo", dir: dir, extra: []string{`{"name":"far","namespace":"demo","version":"1.0.0","steps":[
		{"name":"a","handler":{"callable":"builtin:fail","initialization":{"retryable":true}},
		 "retry":{"max_attempts":3,"backoff":"linear","backoff_base_ms":3600000,"max_backoff_ms":3600000}}]}`,
		`{"name":"` + strings.Repeat("l", 65) + `","namespace":"demo","version":"1.0.0","steps":[{"name":"a","handler":{"callable":"builtin:noop"}}]}`}}
	s := (&testServer{t: t, svc: openTestService(t, o)})
	s = s.with(newOrchestrationAPI(s.svc, nil))
	export := []string{"store", "export", "--to", "tasker"}
	run := func(wantCode int, wantTasks int, wantText string, args ...string) {
		t.Helper()
		got := runCLI(nil, "", append(slices.Clone(export), args...)...)
		if n := strings.Count(got.stdout, `{"task":{"task_uuid":"`); got.code != wantCode || n != wantTasks || !strings.Contains(got.stderr, wantText) {
			t.Errorf("%v: got %d, %d tasks, %q; want %d, %d tasks, %q", args, got.code, n, got.stderr, wantCode, wantTasks, wantText)
		}
	}
	done, waits := s.create(`{"namespace":"demo","name":"diamond"}`), s.create(`{"namespace":"demo","name":"approval"}`)
	s.await(done, "complete")
	run(0, 2, "held 1 task\n", "--url", s.url, "--hold", "https://there")
	run(0, 2, "", "--url", s.url)
	run(0, 2, "", "--url", s.url, "--hold", "https://there")
	far := s.create(`{"namespace":"demo","name":"far"}`)
	s.await(far, "waiting_for_retry")
	s.await(s.create(`{"namespace":"demo","name":"`+strings.Repeat("l", 65)+`"}`), "complete") // whose name is too long
	run(exitFailed, 0, "1 task is unfinished", "--url", s.url)
	run(exitFailed, 0, "so nothing was written", "--url", s.url, "--hold", "https://there")
	run(exitFailed, 2, "the other 2 were written", "--url", s.url, "--hold", "https://there", "--skip")
	if got := s.do("GET", "/v1/tasks/"+far+"/explain", "").text("message"); strings.Contains(got, "hold") {
		t.Errorf("the task that cannot move: %s", got)
	}
	run(0, 0, "released 1 task\n", "--url", s.url, "--release")
	run(0, 0, "", "--url", s.url, "--release")
	run(exitFailed, 0, "", "--data", dir, "--hold", "https://there") // which the service uses
	closeTestService(t, s.svc)

	run(exitFailed, 2, "held 1 task\n", "--data", dir, "--hold", "https://there", "--skip")
	s = newTestServer(t, o)
	if got := s.do("GET", "/v1/tasks/"+waits+"/explain", "").text("message"); !strings.Contains(got, "continues in https://there") {
		t.Errorf("held in the directory: %s", got)
	}
	run(exitUsage, 0, "give one of them", "--release", "--hold", "x")
	run(exitUsage, 0, "not in the document", "--from", "-", "--hold", "x")
}
