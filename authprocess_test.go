package main

// Authentication of the whole program: keys and tokens made at the command line,
// a server that trusts them, and what it keeps of who asked.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authProgram is the program with an environment of its own, in a directory of
// its own.
type authProgram struct {
	t   *testing.T
	env map[string]string
}

func newAuthProgram(t *testing.T) *authProgram {
	t.Chdir(t.TempDir())
	return &authProgram{t, map[string]string{}}
}

func (p *authProgram) process(stdout, stderr io.Writer) *process {
	env := maps.Clone(p.env)
	proc := &process{getenv: func(name string) string { return env[name] }, stdout: stdout, stderr: stderr}
	for name, value := range env {
		proc.environ = append(proc.environ, name+"="+value)
	}
	return proc
}

// run runs a command that must succeed and returns what it printed.
func (p *authProgram) run(args ...string) string {
	p.t.Helper()
	var out, diag bytes.Buffer
	if err := p.process(&out, &diag).run(p.t.Context(), args); err != nil {
		p.t.Fatalf("%q: %v, %s", args, err, &diag)
	}
	return strings.TrimSpace(out.String())
}

// serve starts serving on free ports until the test ends and returns what the
// program reports once it is ready.
func (p *authProgram) serve(args ...string) (readyReport, *logLines) {
	p.t.Helper()
	args = append([]string{
		"serve", "--quiet", "--print-ready", "--listen", "127.0.0.1:0", "--worker-listen", "127.0.0.1:0",
	}, args...)
	ctx, cancel := context.WithCancel(p.t.Context())
	read, write := io.Pipe()
	log := &logLines{}
	done := make(chan error, 1)
	go func() {
		err := p.process(write, log).run(ctx, args)
		write.CloseWithError(io.EOF)
		done <- err
	}()
	p.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Errorf("serving: %v", err)
		}
	})
	line, err := bufio.NewReader(read).ReadBytes('\n')
	var report readyReport
	if err != nil || json.Unmarshal(line, &report) != nil {
		p.t.Fatalf("got %q, %v; want a report: %s", line, err, log)
	}
	return report, log
}

// ask sends a request with a token, unless that is "".
func (p *authProgram) ask(method, url, token, body string) *answer {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return &answer{p.t, resp.StatusCode, resp.Header, data}
}

func TestProgramWithAuthentication(t *testing.T) {
	p := newAuthProgram(t)
	p.run("auth", "generate-keys")
	operator := p.run("auth", "generate-token", "--role", "ops-admin", "--subject", "ann")
	submitter := p.run("auth", "generate-token", "--permissions", "tasks:create", "--subject", "ci")
	p.env["STEPWELL_JWT_PUBLIC_KEY_PATH"] = filepath.Join("keys", publicKeyName)
	p.env["STEPWELL_ORCHESTRATION__WEB__AUTH__ENABLED"] = "true"
	p.env["STEPWELL_LOG__LEVEL"] = "debug"
	report, log := p.serve("--data", "data")
	tasks := report.OrchestrationURL + "/v1/tasks"

	p.ask("GET", tasks, "", "").want(401)
	p.ask("GET", tasks, submitter, "").want(403)
	p.ask("GET", report.OrchestrationURL+"/health/ready", "broken", "").want(200)
	p.ask("GET", report.WorkerURL+"/health/ready", "", "").want(200)
	made := p.ask("POST", tasks, submitter, `{"namespace":"demo","name":"approval","context":{"n":1}}`).want(201)
	if made.text("initiator") != "ci" || made.text("context.n") != "1" {
		t.Errorf("got %s; want the submitter as initiator, and its context", made.body)
	}
	task := tasks + "/" + made.text("task_uuid")
	step := task + "/workflow_steps/" + made.text("steps.1.workflow_step_uuid")
	p.ask("PATCH", step, operator, `{"action_type":"resolve_manually","reason":"fine","resolved_by":"bob"}`).want(200)
	audit := p.ask("GET", step+"/audit", operator, "").want(200)
	if audit.text("0.subject") != "ann" || audit.text("0.acted_by") != "bob" {
		t.Errorf("got %s; want subject ann, acted_by bob", audit.body)
	}
	for _, token := range []string{operator, submitter} {
		for _, part := range strings.Split(token, ".")[1:] {
			if strings.Contains(log.String(), part) {
				t.Error("a part of a token is in the log")
			}
		}
	}
	if !strings.Contains(log.String(), `"subject":"ann"`) {
		t.Errorf("got no line about ann in %s", log)
	}
}

// TestSubjectsSurviveARestart opens the store again, from the journal.
func TestSubjectsSurviveARestart(t *testing.T) {
	o := serviceTest{dir: t.TempDir(), templates: apiTemplates}
	s := openTestService(t, o)
	q := &taskRequest{namespace: "t", name: "manual", subject: strings.Repeat("ü", 300)}
	made, err := s.createTask(t.Context(), q, true)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Repeat("ü", maxNameLength); made.by.initiator != want {
		t.Errorf("got initiator %q; want the subject, cut to %d characters", made.by.initiator, maxNameLength)
	}
	act := &stepRequest{action: actionResolve, by: "bob", subject: "ann \"\n", reason: "fine"}
	if _, _, err := s.operator.act(t.Context(), made.id, made.stepID(0), act); err != nil {
		t.Fatal(err)
	}
	gone, err := s.createTask(t.Context(), q, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.operator.cancelTask(t.Context(), gone.id, "carl"); err != nil {
		t.Fatal(err)
	}
	closeTestService(t, s)
	journal := string(readFile(t, filepath.Join(o.dir, "journal.jsonl")))
	if !strings.Contains(journal, `"kind":"cancelled","subject":"carl"`) {
		t.Errorf("got no subject of the cancellation in %s", journal)
	}
	s = newTestService(t, o)
	audit, err := s.history.audit(made.id, made.stepID(0))
	if err != nil || len(audit) != 1 || audit[0].Subject != act.subject || audit[0].ActedBy != "bob" {
		t.Errorf("got %+v, %v; want one entry of subject %q", audit, err, act.subject)
	}
}

// TestProgramIsReadyWithItsKeySet has the key set come late: nothing is reported
// before it is there.
func TestProgramIsReadyWithItsKeySet(t *testing.T) {
	gate := make(chan struct{})
	keys := newKeyServer(t, webKeySet(rsaWebKey("a", &authKeys().rsa.PublicKey)))
	keys.hold(gate)
	p := newAuthProgram(t)
	for _, role := range []string{"ORCHESTRATION", "WORKER"} {
		section := "STEPWELL_" + role + "__WEB__AUTH__"
		p.env[section+"ENABLED"], p.env[section+"JWT_VERIFICATION_METHOD"] = "true", "jwks"
		p.env[section+"JWKS_URL"], p.env[section+"JWKS_URL_ALLOW_HTTP"] = keys.URL, "true"
	}
	opened := make(chan time.Time, 1)
	time.AfterFunc(3*readyEvery, func() {
		opened <- time.Now()
		close(gate)
	})
	report, _ := p.serve("--memory")
	select {
	case <-opened:
	default:
		t.Error("the program reported that it is ready before it had the keys")
	}
	p.ask("GET", report.OrchestrationURL+"/health/ready", "", "").want(200)
	p.ask("GET", report.WorkerURL+"/health/ready", "", "").want(200)
}

// TestOpenAddressesAreWarnedOf starts on every address, with and without
// authentication.
func TestOpenAddressesAreWarnedOf(t *testing.T) {
	const warning = "anyone who reaches this address can do everything"
	p := newAuthProgram(t)
	p.run("auth", "generate-keys")
	p.env["STEPWELL_JWT_PUBLIC_KEY_PATH"] = filepath.Join("keys", publicKeyName)
	for _, tt := range []struct {
		enabled, mount string
		args           []string
		want           int // warnings
	}{
		{"false", "false", []string{"--listen", "0.0.0.0:0", "--worker-listen", "0.0.0.0:0"}, 2},
		{"true", "true", []string{"--listen", "0.0.0.0:0", "--worker-listen", "0.0.0.0:0"}, 1}, // the worker's
		{"true", "true", []string{"--listen", "0.0.0.0:0"}, 0},
		{"true", "false", []string{"--listen", "0.0.0.0:0"}, 1}, // the mount point's
		{"false", "false", nil, 0},
	} {
		p.env["STEPWELL_ORCHESTRATION__WEB__AUTH__ENABLED"] = tt.enabled
		p.env["STEPWELL_MOUNT__AUTH__ENABLED"] = tt.mount
		_, log := p.serve(append([]string{"--memory"}, tt.args...)...)
		if got := strings.Count(log.String(), warning); got != tt.want {
			t.Errorf("%s, %q: got %d warnings; want %d: %s", tt.enabled, tt.args, got, tt.want, log)
		}
	}
}
