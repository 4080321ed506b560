package main

// The example workers in other languages, run against a real server.

import (
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// exampleWorkers are how the example workers are run.
var exampleWorkers = []struct{ language, example, arithmetic string }{
	{"python3", "examples/worker.py", "testdata/workers/arithmetic.py"},
	{"node", "examples/worker.mjs", "testdata/workers/arithmetic.mjs"},
}

// startWorker runs an example worker until the test ends.
func startWorker(t *testing.T, p *program, language, file string, env ...string) {
	t.Helper()
	if _, err := exec.LookPath(language); err != nil {
		t.Skipf("%s is not here", language)
	}
	worker := exec.Command(language, file)
	worker.Env = append(os.Environ(), append(env, "STEPWELL_URL="+p.ready.OrchestrationURL, "PYTHONPATH=examples",
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
	for _, w := range exampleWorkers {
		t.Run(w.language, func(t *testing.T) {
			p := serve(t)
			startWorker(t, p, w.language, w.example)
			id := p.api().create(`{"namespace":"demo","name":"approval"}`)
			eventually(t, "the approval", func() bool {
				return p.api().do("GET", "/v1/tasks/"+id, "").want(200).text("status") == "complete"
			})
			steps := p.api().do("GET", "/v1/tasks/"+id+"/workflow_steps", "").want(200)
			if got := steps.text("1.results.result.approved"); got != "true" {
				t.Errorf("approved: %s", got)
			}
		})
	}
}

// TestArithmeticOutside is TestArithmetic with workers in other languages.
func TestArithmeticOutside(t *testing.T) {
	if _, err := os.Stat(foreignTemplates); err != nil {
		t.Skip("the templates are not here")
	}
	dir, err := filepath.Abs(foreignTemplates)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range exampleWorkers {
		t.Run(w.language, func(t *testing.T) {
			p := serve(t, "--data", filepath.Join(t.TempDir(), "data"), "--templates", dir)
			parents := map[string][]string{}
			for _, row := range arithmeticRows {
				for _, s := range readArithmetic(t, row.file).Steps {
					parents[s.Name] = append([]string{}, s.Dependencies...)
				}
			}
			text, err := json.Marshal(parents)
			if err != nil {
				t.Fatal(err)
			}
			startWorker(t, p, w.language, w.arithmetic, "STEP_PARENTS="+string(text))
			for _, row := range arithmeticRows {
				tpl := readArithmetic(t, row.file)
				id := p.api().create(fmt.Sprintf(`{"namespace":%q,"name":%q,"context":{"even_number":6}}`, tpl.Namespace, tpl.Name))
				p.api().await(id, "complete")
				want := new(big.Int).Exp(big.NewInt(6), big.NewInt(row.exponent), nil)
				if got := resultText(t, p.api(), id, row.last); got != want.String() {
					t.Errorf("%s: got %s; want 6^%d = %s", row.last, got, row.exponent, want)
				}
			}
		})
	}
}
