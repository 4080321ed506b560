package main

// Templates with dynamic steps that were written for other workers, run by an
// HTTP handler in all their branches.

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// foreignHandler answers for both templates by the context of the task.
type foreignHandler struct {
	t *testing.T

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
	switch name {
	case "routing_decision":
		fmt.Fprintf(w, `{"success":true,"result":{"decision_point_outcome":%s}}`, e.Task.Context["outcome"])
	case "analyze_dataset":
		fmt.Fprintf(w, `{"batch_processing_outcome":%s}`, e.Task.Context["outcome"])
	case "process_batch":
		fmt.Fprintf(w, "%s", e.Step.Config["cursor"])
	default:
		names, _ := json.Marshal(e.DependencyResults) // sorted by name
		fmt.Fprintf(w, "%s", names)
	}
}

func TestForeignDynamicTemplates(t *testing.T) {
	if _, err := os.Stat(foreignTemplates); err != nil {
		t.Skip("the templates are not here")
	}
	h := &foreignHandler{t: t, calls: map[string]int{}}
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	config := filepath.Join(t.TempDir(), "stepwell.toml")
	writeFile(t, config, fmt.Appendf(nil, "[worker.handlers]\n\"tasker_example_rs::*\" = %q\n", web.URL+"/steps"))
	dir, err := filepath.Abs(foreignTemplates)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--data", filepath.Join(t.TempDir(), "data"), "--templates", dir, "--config", config}
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
	p := serve(t, args...)
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
