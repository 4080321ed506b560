package e2e

// Stores that earlier versions of the program wrote. testdata/stores has a directory for each:
// data is the data directory of a killed process, state.json the state that this version
// exported from it, and answers.txt the answers of its API. The names tell the version and the
// time.

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// storeWriter names a program that writes a store. To keep one of a version:
//
//	go test ./e2e -run TestOldStores -store.writer /path/to/stepwell -store.name v1.2.0-2027-03
var (
	storeWriter = flag.String("store.writer", "", "program that TestOldStores first writes a store with")
	storeName   = flag.String("store.name", "", "directory of testdata/stores to write with -store.writer")
)

// TestOldStores checks that the program reads what earlier versions wrote, gives the same
// answers, and continues the unfinished tasks.
func TestOldStores(t *testing.T) {
	slow(t)
	t.Parallel()
	if *storeWriter != "" {
		writeOldStore(t, *storeWriter, repository("testdata/stores/"+*storeName))
	}
	dirs, err := filepath.Glob(repository("testdata/stores/*"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("testdata/stores: got %d stores, error %v; want some", len(dirs), err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			data := copyStore(t, dir)
			wantExit(t, 0, nil, "store", "check", "--data", data)
			wantFile(t, filepath.Join(dir, "state.json"), exportStore(t, programFile(t), data))
			exported, imported := filepath.Join(t.TempDir(), "state.json"), t.TempDir()
			wantExit(t, 0, nil, "store", "export", "--data", data, exported)
			wantExit(t, 0, nil, "store", "import", "--data", imported, exported)
			s := openOldStore(t, programFile(t), data)
			wantFile(t, filepath.Join(dir, "answers.txt"), s.answers())
			s.finishAll()
			s.program.stop()
			wantExit(t, 0, nil, "store", "check", "--data", data)
		})
	}
}

// copyStore returns a copy of a store's data directory.
func copyStore(t *testing.T, dir string) string {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(data, os.DirFS(filepath.Join(dir, "data"))); err != nil {
		t.Fatal(err)
	}
	return data
}

func wantFile(t *testing.T, file, got string) {
	t.Helper()
	want := strings.SplitAfter(string(readFile(t, file)), "\n")
	for i, line := range strings.SplitAfter(got, "\n") {
		if i >= len(want) || line != want[i] {
			t.Errorf("%s, line %d: got %s\nwant %s", file, i+1, line, slices.Concat(want, []string{"nothing"})[min(i, len(want))])
			return
		}
	}
	if n := strings.Count(got, "\n"); n+1 != len(want) {
		t.Errorf("%s: got %d lines; want %d", file, n, len(want)-1)
	}
}

// exportHeader matches the version and the time in a state document, and a count that the first
// version leaves out if it is 0.
var exportHeader = regexp.MustCompile(`"version":"[^"]*","exported_at":"[^"]*",|"dropped":0,`)

// exportStore returns the state document of a store, without the parts that depend on the
// export.
func exportStore(t *testing.T, file, data string) string {
	t.Helper()
	p := launchFile(t, file, nil, nil, "store", "export", "--data", data)
	if code := p.wait(); code != 0 {
		t.Fatalf("store export: got exit code %d\n%s", code, p.stderr)
	}
	header, rest, _ := strings.Cut(p.stdout.String(), "\n")
	return exportHeader.ReplaceAllString(header, "") + "\n" + rest
}

// oldStore is a program that serves a store, with a clock that is frozen.
type oldStore struct {
	*api
	program *program
}

// openOldStore serves a data directory in fixture mode. The clock begins in 2026.
func openOldStore(t *testing.T, file, data string) *oldStore {
	t.Helper()
	p := launchFile(t, file, nil, []string{"STEPWELL_FIXTURE__ALLOW_DATA=true"}, serveArguments("--fixture", "--quiet",
		"--deterministic-ids", "old", "--data", data, "--sync", "always", "--templates", apiTemplates(t))...).awaitReady()
	s := &oldStore{p.api(), p}
	s.idle()
	return s
}

func (s *oldStore) idle() { s.do("POST", "/_stepwell/wait-idle", "").want(200) }

// advance moves the clock.
func (s *oldStore) advance(duration string) {
	s.do("POST", "/_stepwell/clock", fmt.Sprintf(`{"advance":%q}`, duration)).want(200)
	s.idle()
}

// make creates a task of a template of the namespace t and returns its id.
func (s *oldStore) make(name string, more ...string) string {
	id := s.create(fmt.Sprintf(`{"namespace":"t","name":%q%s}`, name, strings.Join(append([]string{""}, more...), ",")))
	s.idle()
	return id
}

// step returns the path of a task's step.
func (s *oldStore) step(task string, i int) string {
	return fmt.Sprintf("/v1/tasks/%s/workflow_steps/%s", task,
		s.do("GET", "/v1/tasks/"+task, "").want(200).text(fmt.Sprintf("steps.%d.workflow_step_uuid", i)))
}

// claim claims the oldest waiting step of a callable.
func (s *oldStore) claim(callable string, seconds int) (c claimedStep) {
	s.t.Helper()
	var claims []claimedStep
	s.do("POST", "/v1/steps/claim", fmt.Sprintf(`{"callables":[%q],"lease_seconds":%d,"worker_id":"w"}`, callable, seconds)).want(200).into(&claims)
	if len(claims) != 1 {
		s.t.Fatalf("claimed %d steps of %s; want 1", len(claims), callable)
	}
	return claims[0]
}

// say sends an outside actor's answer.
func (s *oldStore) say(c claimedStep, verb, more string) *answer {
	a := s.do("POST", "/v1/steps/"+c.Step.StepUUID+"/"+verb, fmt.Sprintf(`{"lease":%q%s}`, c.Lease, more))
	s.idle()
	return a
}

// writeOldStore lets a program write a store with tasks in all kinds of states, in a snapshot
// and in a journal, and records its answers.
func writeOldStore(t *testing.T, file, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	data := wire.Must(filepath.Abs(filepath.Join(dir, "data")))(t)
	s := openOldStore(t, file, data)
	s.make("diamond", `"context":{"n":1,"text":"ü ☃ \u2028 <&>","list":[1,2.50,null,{"a":[]}]},"tags":["x","y"],"priority":7`)
	s.make("diamond", `"initiator":"me","source_system":"shop","reason":"r","correlation_id":"01890a5d-ac96-774b-bcce-b302099a8057"`)
	s.make("keyed", `"idempotency_key":"k"`)
	s.make("versions", `"version":"1.2.0"`)
	s.make("flaky")
	s.make("fails")
	investigated, resolved := s.make("exhausted"), s.make("exhausted")
	for task, body := range map[string]string{
		investigated: `{"resolution_status":"Pending","resolution_notes":"looking","metadata":{"ticket":7}}`,
		resolved:     `{"resolution_status":"ManuallyResolved","resolved_by":"ops","resolution_notes":"done"}`,
	} {
		entry := s.do("GET", "/v1/dlq/task/"+task, "").want(200).text("dlq_entry_uuid")
		if task == resolved {
			s.do("PATCH", s.step(task, 0), `{"action_type":"resolve_manually","reason":"jam","resolved_by":"ops"}`).want(200)
		}
		s.do("PATCH", "/v1/dlq/entry/"+entry, body).want(200)
	}
	s.make("backoff")
	s.make("sleeper")
	s.do("DELETE", "/v1/tasks/"+s.make("manual"), "").want(200)
	s.do("PATCH", s.step(s.make("manual"), 0), `{"action_type":"complete_manually","reason":"r","completed_by":"me",`+
		`"completion_data":{"result":{"ok":true},"metadata":{"m":1}}}`).want(200)
	s.do("PATCH", s.step(s.make("manual"), 0), `{"action_type":"fail","reason":"r","failed_by":"me","error":{"message":"no"}}`).want(200)
	for range 2 {
		s.make("manual")
		s.make("dynamic")
	}
	s.say(s.claim("Outside::Choose", 60), "complete", `,"result":{"decision_point_outcome":{"type":"create_steps","step_names":["heads"]}}`).want(200)
	s.make("batches")
	s.say(s.claim("Outside::Split", 60), "complete", `,"result":{"batch_processing_outcome":{"type":"create_batches",`+
		`"worker_template_name":"work","worker_count":2,"cursor_configs":[{"rows":2},{"rows":3}],"total_items":5}}`).want(200)
	s.advance("1m30s")
	s.program.stop()
	if p := launchFile(t, file, nil, nil, "store", "compact", "--data", data); p.wait() != 0 {
		t.Fatal(p.stderr)
	}

	s = openOldStore(t, file, data)
	s.advance("10m")
	expired := s.claim("Outside::Approve", 5)
	s.advance("6s")
	s.say(expired, "complete", `,"result":"late"`).want(409)
	again := s.claim("Outside::Approve", 60)
	s.say(again, "extend", `,"lease_seconds":120`).want(200)
	s.say(again, "fail", `,"error":{"message":"not today","retryable":true}`).want(200)
	s.claim("Outside::Approve", 3600) // the lease is still held when the process dies
	s.make("manual")
	s.make("dynamic")
	s.make("batches")
	s.make("backoff", `"parent_correlation_id":"01890a5d-ac96-774b-bcce-b302099a8057"`)
	s.make("sleeper")
	s.make("echo", `"context":{"deep":{"er":[[[1e2,-0.0,12345678901234567890]]]}}`)
	s.do("POST", "/stepwell/tasks", `{"namespace":"u","name":"solo"}`).want(201)
	s.idle()
	s.program.kill()

	copied := copyStore(t, dir)
	writeFile(t, filepath.Join(dir, "state.json"), []byte(exportStore(t, file, copied)))
	s = openOldStore(t, file, copied)
	writeFile(t, filepath.Join(dir, "answers.txt"), []byte(s.answers()))
	s.program.stop()
}

// answers returns everything that the API shows of all tasks.
func (s *oldStore) answers() string {
	var b strings.Builder
	get := func(path string) *answer {
		a := s.do("GET", path, "").want(200)
		fmt.Fprintf(&b, "GET %s\n%s\n", path, bytes.TrimSpace(a.body))
		return a
	}
	var list taskPage
	s.do("GET", "/v1/tasks?per_page=100", "").want(200).into(&list)
	for _, path := range []string{"/v1/tasks?per_page=5&page=2", "/v1/dlq", "/v1/dlq/stats", "/v1/dlq/investigation-queue",
		"/v1/dlq/staleness", "/v1/steps?callable=Outside::*", "/v1/analytics/performance", "/v1/analytics/bottlenecks", "/v1/templates"} {
		get(path)
	}
	for _, task := range list.Tasks {
		path := "/v1/tasks/" + task.TaskUUID
		var v taskView
		get(path).into(&v)
		for _, part := range []string{"/explain", "/transitions"} {
			get(path + part)
		}
		for _, step := range v.Steps {
			get(path + "/workflow_steps/" + step.StepUUID + "/audit")
		}
	}
	return b.String()
}

// finishAll finishes every task: it plays the outside actors, advances the clock, and resolves
// failures.
func (s *oldStore) finishAll() {
	for range 10 {
		s.advance("3h")
		for _, outside := range [][2]string{
			{"Outside::Approve", `"yes"`},
			{"Outside::Choose", `{"decision_point_outcome":{"type":"no_branches"}}`},
			{"Outside::Split", `{"batch_processing_outcome":{"type":"no_batches"}}`},
		} {
			var claims []claimedStep
			s.do("POST", "/v1/steps/claim", fmt.Sprintf(`{"callables":[%q],"limit":50}`, outside[0])).want(200).into(&claims)
			for _, c := range claims {
				s.say(c, "complete", `,"result":`+outside[1]).want(200)
			}
		}
	}
	var list taskPage
	s.do("GET", "/v1/tasks?status=blocked_by_failures&per_page=100", "").want(200).into(&list)
	for _, task := range list.Tasks {
		for _, step := range s.steps(task.TaskUUID) {
			if step.State == "error" {
				s.do("PATCH", "/v1/tasks/"+task.TaskUUID+"/workflow_steps/"+step.StepUUID,
					`{"action_type":"resolve_manually","reason":"r","resolved_by":"ops"}`).want(200)
			}
		}
		s.idle()
	}
	s.do("GET", "/v1/tasks?per_page=100", "").want(200).into(&list)
	for _, task := range list.Tasks {
		if task.Status != "complete" && task.Status != "cancelled" {
			s.t.Errorf("task %s (%s) ends as %s; want complete or cancelled", task.TaskUUID, task.Name, task.Status)
		}
	}
	if n := len(list.Tasks); n < 20 {
		s.t.Errorf("got %d tasks; want all", n)
	}
}
