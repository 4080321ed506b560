package e2e

// The example workers in other languages, with a real server.

import (
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"stepwell/e2e/wire"
)

// exampleWorkers are the commands of the example workers.
var exampleWorkers = []struct{ language, example, arithmetic string }{
	{"python3", "examples/worker.py", "testdata/workers/arithmetic.py"},
	{"node", "examples/worker.mjs", "testdata/workers/arithmetic.mjs"},
}

// startWorker runs an example worker until the test ends.
func startWorker(t *testing.T, p *program, language, file string, env ...string) {
	t.Helper()
	if _, err := exec.LookPath(language); err != nil {
		t.Skipf("needs %s", language)
	}
	worker := exec.Command(language, repository(file))
	worker.Env = append(os.Environ(), append(env, "STEPWELL_URL="+p.ready.OrchestrationURL, "PYTHONPATH="+repository("examples"),
		"PYTHONDONTWRITEBYTECODE=1")...)
	said := newOutput()
	worker.Stdout, worker.Stderr = said, said
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		worker.Process.Kill()
		worker.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", file, said)
		}
	})
}

func TestExampleWorkers(t *testing.T) {
	t.Parallel()
	slow(t)
	for _, w := range exampleWorkers {
		t.Run(w.language, func(t *testing.T) {
			t.Parallel()
			p := serve(t)
			startWorker(t, p, w.language, w.example)
			id := p.api().create(`{"namespace":"demo","name":"approval"}`)
			p.api().await(id, "complete")
			steps := p.api().do("GET", "/v1/tasks/"+id+"/workflow_steps", "").want(200)
			if got := steps.text("1.results.result.approved"); got != "true" {
				t.Errorf("approved: %s", got)
			}
		})
	}
}

// TestArithmeticOutside is TestArithmetic with workers in other languages.
func TestArithmeticOutside(t *testing.T) {
	t.Parallel()
	slow(t)
	dir := needForeignTemplates(t)
	for _, w := range exampleWorkers {
		t.Run(w.language, func(t *testing.T) {
			t.Parallel()
			p := serve(t, "--data", filepath.Join(t.TempDir(), "data"), "--templates", dir)
			startWorker(t, p, w.language, w.arithmetic, arithmeticParents(t))
			for i, id := range createArithmetic(t, p, 0) {
				wantArithmetic(t, p, i, id)
			}
		})
	}
}

// TestArithmeticShared runs the workers of both languages at once: each computes some of the
// steps, from results of the other.
func TestArithmeticShared(t *testing.T) {
	t.Parallel()
	slow(t)
	dir := needForeignTemplates(t)
	p := serve(t, "--data", filepath.Join(t.TempDir(), "data"), "--templates", dir)
	parents := arithmeticParents(t)
	for i, w := range exampleWorkers {
		startWorker(t, p, w.language, w.arithmetic, parents)
		eventually(t, w.arithmetic+" to wait for steps", func() bool {
			return p.api().metric("stepwell_claimers_waiting") == int64(i+1)
		})
	}
	var ids []string
	for round := range 5 {
		ids = append(ids, createArithmetic(t, p, round)...)
	}
	done := map[string]int{}
	for i, id := range ids {
		wantArithmetic(t, p, i%len(arithmeticRows), id)
		countWorkers(t, p, id, done)
	}
	for _, w := range exampleWorkers {
		if done[filepath.Base(w.arithmetic)] == 0 || len(done) != len(exampleWorkers) {
			t.Errorf("the steps were done by %v; want %s among two", done, w.arithmetic)
		}
	}
}

// arithmeticParents returns the setting that names the factors of each step for a worker.
func arithmeticParents(t *testing.T) string {
	t.Helper()
	parents := map[string][]string{}
	for _, row := range arithmeticRows {
		for _, s := range readArithmetic(t, row.file).Steps {
			parents[s.Name] = append([]string{}, s.Dependencies...)
		}
	}
	text := wire.Must(json.Marshal(parents))(t)
	return "STEP_PARENTS=" + string(text)
}

// createArithmetic creates a task of each template, in the order of the rows. The round makes
// it unique.
func createArithmetic(t *testing.T, p *program, round int) (ids []string) {
	t.Helper()
	for _, row := range arithmeticRows {
		tpl := readArithmetic(t, row.file)
		ids = append(ids, p.api().create(fmt.Sprintf(
			`{"namespace":%q,"name":%q,"context":{"even_number":6},"idempotency_key":"%d"}`, tpl.Namespace, tpl.Name, round)))
	}
	return ids
}

// wantArithmetic waits for the result of a row.
func wantArithmetic(t *testing.T, p *program, row int, id string) {
	t.Helper()
	p.api().await(id, "complete")
	want := new(big.Int).Exp(big.NewInt(6), big.NewInt(arithmeticRows[row].exponent), nil)
	if got := resultText(t, p.api(), id, arithmeticRows[row].last); got != want.String() {
		t.Errorf("%s: got %s; want 6^%d = %s", arithmeticRows[row].last, got, arithmeticRows[row].exponent, want)
	}
}

// countWorkers counts the steps of a task by worker.
func countWorkers(t *testing.T, p *program, id string, done map[string]int) {
	t.Helper()
	for _, s := range p.api().steps(id) {
		done[s.Results.Metadata.Worker]++
	}
}
