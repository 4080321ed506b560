package e2e

// Templates of other workers end to end: arithmetic with numbers that no float64 holds, and dynamic steps in all their
// branches, run by an HTTP handler and by the example workers.

import (
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"stepwell/e2e/wire"
)

// foreignTemplates is the directory with templates of other workers, in the data folder next to
// the checkout.
const foreignTemplates = "../../shared/data/templates"

// needForeignTemplates returns the absolute path of foreignTemplates, or skips the test.
func needForeignTemplates(t *testing.T) string {
	t.Helper()
	dir := wire.Must(filepath.Abs(foreignTemplates))(t)
	if _, err := os.Stat(dir); err != nil {
		wire.Lack(t, "../shared/data", "needs the data folder beside the checkout: %v", err)
	}
	return dir
}

// handlerEnvelope holds the members of the body of a call that the tests read. TestEnvelopeMembers checks the others.
type handlerEnvelope struct {
	Task struct {
		TaskUUID string                     `json:"task_uuid"`
		Name     string                     `json:"name"`
		Context  map[string]json.RawMessage `json:"context"`
	} `json:"task"`
	Step struct {
		StepUUID string                     `json:"step_uuid"`
		Name     string                     `json:"name"`
		Attempt  int                        `json:"attempt"`
		Config   map[string]json.RawMessage `json:"config"`
	} `json:"step"`
	DependencyResults map[string]json.RawMessage `json:"dependency_results"`
}

// readEnvelope reads an envelope, of which the key of the call must be.
func readEnvelope(r *http.Request) (*handlerEnvelope, error) {
	e := new(handlerEnvelope)
	if err := json.NewDecoder(r.Body).Decode(e); err != nil {
		return nil, err
	}
	if got, want := r.Header.Get("Idempotency-Key"), fmt.Sprintf("%s:%d", e.Step.StepUUID, e.Step.Attempt); got != want {
		return nil, fmt.Errorf("the key is %s; want %s", got, want)
	}
	return e, nil
}

// foreignHandler answers the calls of all templates: it applies the operation of a step to the results of its parents, or
// ends it as the context of the task says.
type foreignHandler struct {
	t       *testing.T
	parents map[string][]string

	mu    sync.Mutex
	calls map[string]int // by Idempotency-Key
}

func (h *foreignHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, err := readEnvelope(r)
	if err != nil {
		h.t.Error(err)
		return
	}
	h.mu.Lock()
	h.calls[r.Header.Get("Idempotency-Key")]++
	h.mu.Unlock()
	name, _, _ := strings.Cut(e.Step.Name, "_0")
	switch {
	case h.parents[e.Step.Name] != nil:
		fmt.Fprint(w, h.compute(e))
	case name == "routing_decision":
		fmt.Fprintf(w, `{"success":true,"result":{"decision_point_outcome":%s}}`, e.Task.Context["outcome"])
	case name == "analyze_dataset":
		fmt.Fprintf(w, `{"batch_processing_outcome":%s}`, e.Task.Context["outcome"])
	case name == "process_batch":
		fmt.Fprintf(w, "%s", e.Step.Config["cursor"])
	default:
		names, _ := json.Marshal(e.DependencyResults) // sorted by name
		fmt.Fprintf(w, "%s", names)
	}
}

// compute multiplies the results of the parents, or takes the input if there are none, and squares that.
func (h *foreignHandler) compute(e *handlerEnvelope) *big.Int {
	factors := []json.RawMessage{}
	for _, p := range h.parents[e.Step.Name] {
		factors = append(factors, e.DependencyResults[p])
	}
	if len(factors) == 0 {
		factors = append(factors, e.Task.Context["even_number"])
	}
	operation := strings.Trim(string(e.Step.Config["operation"]), `"`)
	multiplies := strings.HasPrefix(operation, "multiply") && strings.HasSuffix(operation, "_and_square")
	if !multiplies && (operation != "square" || len(factors) != 1) {
		h.t.Errorf("%s: operation %s of %d numbers", e.Step.Name, operation, len(factors))
	}
	product := big.NewInt(1)
	for _, f := range factors {
		n, ok := new(big.Int).SetString(string(f), 10)
		if !ok {
			h.t.Errorf("%s: %s is not an integer", e.Step.Name, f)
			return product
		}
		product.Mul(product, n)
	}
	return product.Mul(product, product)
}

// serveForeign serves the templates with the handler, and returns the arguments too.
func serveForeign(t *testing.T) (*foreignHandler, *program, []string) {
	t.Helper()
	dir := needForeignTemplates(t)
	h := &foreignHandler{t: t, parents: arithmeticParents(t), calls: map[string]int{}}
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	args := []string{"--data", filepath.Join(t.TempDir(), "data"), "--templates", dir, "--handler", "tasker_example_rs::*=" + web.URL + "/steps"}
	return h, serve(t, args...), args
}

// arithmeticRows lists the templates with their results for the input 6. The descriptions of
// two of them promise less than their steps compute.
var arithmeticRows = []struct {
	namespace, name, last string
	exponent              int64
}{
	{"rust_e2e_linear", "mathematical_sequence", "linear_step_4", 16},
	{"rust_e2e_diamond", "diamond_pattern", "diamond_end", 16},
	{"rust_e2e_mixed_dag", "complex_dag", "dag_finalize", 64},
	{"rust_e2e_tree", "hierarchical_tree", "tree_final_convergence", 64},
}

// arithmeticParents returns the steps whose results each step of the templates computes from.
func arithmeticParents(t *testing.T) map[string][]string {
	t.Helper()
	parents := map[string][]string{}
	for _, row := range arithmeticRows {
		var tpl struct {
			Steps []struct {
				Name         string
				Dependencies []string
			}
		}
		file := filepath.Join(foreignTemplates, row.namespace+"."+row.name+".1.0.0.json")
		if err := json.Unmarshal(readFile(t, file), &tpl); err != nil {
			t.Fatal(err)
		}
		for _, s := range tpl.Steps {
			parents[s.Name] = append([]string{}, s.Dependencies...)
		}
	}
	return parents
}

// createArithmetic creates a task of each template, in the order of the rows. The round makes
// it unique.
func createArithmetic(p *program, round int) (ids []string) {
	p.t.Helper()
	for _, row := range arithmeticRows {
		ids = append(ids, p.api().create(fmt.Sprintf(
			`{"namespace":%q,"name":%q,"context":{"even_number":6},"idempotency_key":"%d"}`, row.namespace, row.name, round)))
	}
	return ids
}

// wantArithmetic waits for the results of tasks that createArithmetic created.
func wantArithmetic(p *program, ids []string) {
	p.t.Helper()
	for i, id := range ids {
		row := arithmeticRows[i%len(arithmeticRows)]
		p.api().await(id, "complete")
		want := new(big.Int).Exp(big.NewInt(6), big.NewInt(row.exponent), nil)
		if got := resultText(p.t, p.api(), id, row.last); got != want.String() {
			p.t.Errorf("%s: got %s; want 6^%d = %s", row.last, got, row.exponent, want)
		}
	}
}

// TestArithmetic runs the four templates with the input 6, and restarts the program.
func TestArithmetic(t *testing.T) {
	t.Parallel()
	h, p, args := serveForeign(t)
	ids := createArithmetic(p, 0)
	for range 2 {
		wantArithmetic(p, ids)
		p.stop()
		p = serve(t, args...)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.calls) != len(h.parents) {
		t.Errorf("the handler got %d attempts; want one for each of %d steps", len(h.calls), len(h.parents))
	}
}

// TestArithmeticOutside is TestArithmetic with the example workers in other languages.
func TestArithmeticOutside(t *testing.T) {
	t.Parallel()
	slow(t)
	dir := needForeignTemplates(t)
	for _, w := range exampleWorkers {
		t.Run(w.language, func(t *testing.T) {
			t.Parallel()
			p := serve(t, "--data", filepath.Join(t.TempDir(), "data"), "--templates", dir)
			startWorker(t, p, w.language, w.arithmetic, "STEP_PARENTS="+wire.Text(arithmeticParents(t)))
			wantArithmetic(p, createArithmetic(p, 0))
		})
	}
}

// TestArithmeticShared runs the workers of both languages at once: each computes some of the
// steps, from results of the other.
func TestArithmeticShared(t *testing.T) {
	t.Parallel()
	slow(t)
	p := serve(t, "--data", filepath.Join(t.TempDir(), "data"), "--templates", needForeignTemplates(t))
	parents := "STEP_PARENTS=" + wire.Text(arithmeticParents(t))
	for i, w := range exampleWorkers {
		startWorker(t, p, w.language, w.arithmetic, parents)
		eventually(t, w.arithmetic+" to wait for steps", func() bool {
			return p.api().metric("stepwell_claimers_waiting") == int64(i+1)
		})
	}
	var ids []string
	for round := range 5 {
		ids = append(ids, createArithmetic(p, round)...)
	}
	wantArithmetic(p, ids)
	done := map[string]int{}
	for _, id := range ids {
		for _, s := range p.api().steps(id) {
			done[s.Results.Metadata.Worker]++
		}
	}
	for _, w := range exampleWorkers {
		if done[filepath.Base(w.arithmetic)] == 0 || len(done) != len(exampleWorkers) {
			t.Errorf("the steps were done by %v; want %s among two", done, w.arithmetic)
		}
	}
}

// TestForeignDynamicTemplates takes a decision and a batch through all that their handlers may decide.
func TestForeignDynamicTemplates(t *testing.T) {
	t.Parallel()
	slow(t)
	h, p, args := serveForeign(t)
	approval, batch := `"conditional_approval_rust","name":"approval_routing"`, `"data_processing","name":"large_dataset_processor"`
	create := func(names string) string { return `{"type":"create_steps","step_names":[` + names + `]}` }
	rows := []struct{ template, outcome, status, steps string }{
		{approval, create(`"auto_approve"`), "complete", "validate_request routing_decision auto_approve finalize_approval"},
		{approval, create(`"manager_approval"`), "complete", "validate_request routing_decision manager_approval finalize_approval"},
		{approval, create(`"finance_review","manager_approval"`), "complete",
			"validate_request routing_decision manager_approval finance_review finalize_approval"},
		{approval, `{"type":"no_branches"}`, "complete", "validate_request routing_decision"},
		{approval, create(`"validate_request"`), "blocked_by_failures", "validate_request routing_decision"},
		{batch, `{"type":"no_batches"}`, "complete", "analyze_dataset process_batch_000 aggregate_results"},
		{batch, `{"type":"create_batches","worker_template_name":"process_batch","worker_count":2,"cursor_configs":[7,8],"total_items":2000}`,
			"complete", "analyze_dataset process_batch_001 process_batch_002 aggregate_results"},
		{batch, `{"type":"create_batches","worker_template_name":"aggregate_results","worker_count":0,"cursor_configs":[]}`,
			"blocked_by_failures", "analyze_dataset"},
	}
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i] = p.api().create(fmt.Sprintf(`{"namespace":%s,"context":{"outcome":%s}}`, row.template, row.outcome))
	}
	for range 2 {
		for i, row := range rows {
			a := p.api().await(ids[i], row.status)
			var names []string
			for n := range len(strings.Fields(row.steps)) {
				names = append(names, a.text(fmt.Sprintf("steps.%d.name", n)))
			}
			if got := strings.Join(names, " "); got != row.steps || a.text("total_steps") != fmt.Sprint(len(names)) {
				t.Errorf("%s: got %s steps, %s; want %s", row.outcome, a.text("total_steps"), got, row.steps)
			}
		}
		got := resultText(t, p.api(), ids[6], "aggregate_results")
		if !strings.Contains(got, `"process_batch_001":7,"process_batch_002":8`) {
			t.Errorf("the aggregate was given %s; want the results of both instances", got)
		}
		p.stop()
		p = serve(t, args...)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, n := range h.calls {
		if n > 1 {
			t.Errorf("%s was called %d times; want once", key, n)
		}
	}
}
