package main

// Arithmetic end to end: templates written for other workers, run by an HTTP
// handler that computes exactly, with numbers that no float64 holds.

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// foreignTemplates is where templates of other workers are, beside the repository.
const foreignTemplates = "../shared/data/templates"

// arithmeticTemplate is what of a template file the handler goes by.
type arithmeticTemplate struct {
	Namespace string           `json:"namespace_name"`
	Name      string           `json:"name"`
	Version   string           `json:"version"`
	Steps     []arithmeticStep `json:"steps"`

	Environments map[string]struct {
		Steps []arithmeticStep `json:"steps"`
	} `json:"environments"`
}

type arithmeticStep struct {
	Name    string `json:"name"`
	Handler struct {
		Callable       string                     `json:"callable"`
		Initialization map[string]json.RawMessage `json:"initialization"`
	} `json:"handler"`
	Dependencies []string `json:"dependencies"`
	Retry        struct {
		MaxAttempts int `json:"max_attempts"`
	} `json:"retry"`
	TimeoutSeconds int `json:"timeout_seconds"`
}

// readArithmetic reads a template file as it is in the standard environment.
func readArithmetic(t *testing.T, file string) *arithmeticTemplate {
	t.Helper()
	tpl := new(arithmeticTemplate)
	if err := json.Unmarshal(readFile(t, filepath.Join(foreignTemplates, file)), tpl); err != nil {
		t.Fatal(err)
	}
	for _, o := range tpl.Environments["development"].Steps {
		for name, value := range o.Handler.Initialization {
			tpl.step(o.Name).Handler.Initialization[name] = value
		}
	}
	return tpl
}

// step is the step of a name, which is there.
func (a *arithmeticTemplate) step(name string) *arithmeticStep {
	return &a.Steps[slices.IndexFunc(a.Steps, func(s arithmeticStep) bool { return s.Name == name })]
}

// ancestors are the steps that a step waits for, directly or not.
func (a *arithmeticTemplate) ancestors(name string) map[string]bool {
	all := map[string]bool{}
	for _, p := range a.step(name).Dependencies {
		all[p] = true
		for q := range a.ancestors(p) {
			all[q] = true
		}
	}
	return all
}

// handlerEnvelope is what an HTTP handler gets. Every member must be there:
// numbers and texts that are missing fail the checks of their values.
type handlerEnvelope struct {
	Task struct {
		TaskUUID      string                     `json:"task_uuid"`
		Namespace     string                     `json:"namespace"`
		Name          string                     `json:"name"`
		Version       string                     `json:"version"`
		CorrelationID string                     `json:"correlation_id"`
		Context       map[string]json.RawMessage `json:"context"`
	} `json:"task"`
	Step struct {
		StepUUID       string                     `json:"step_uuid"`
		Name           string                     `json:"name"`
		Attempt        int                        `json:"attempt"`
		MaxAttempts    int                        `json:"max_attempts"`
		TimeoutSeconds int                        `json:"timeout_seconds"`
		Config         map[string]json.RawMessage `json:"config"`
		Inputs         map[string]json.RawMessage `json:"inputs"`
	} `json:"step"`
	DependencyResults map[string]json.RawMessage `json:"dependency_results"`
}

// readEnvelope reads an envelope strictly.
func readEnvelope(r *http.Request) (*handlerEnvelope, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if r.Method != "POST" || r.ContentLength != int64(len(body)) || r.Header.Get("Content-Type") != "application/json" {
		return nil, fmt.Errorf("%s of %d bytes of %s", r.Method, r.ContentLength, r.Header.Get("Content-Type"))
	}
	if got, want := r.Header.Get("User-Agent"), "stepwell/"+version; got != want {
		return nil, fmt.Errorf("the user agent is %s; want %s", got, want)
	}
	e := new(handlerEnvelope)
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(e); err != nil {
		return nil, fmt.Errorf("%w in %s", err, body)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the envelope: %s", body)
	}
	for _, id := range []string{e.Task.TaskUUID, e.Step.StepUUID, e.Task.CorrelationID} {
		if u, ok := parseUUID(id); !ok || u.String() != id {
			return nil, fmt.Errorf("%q is not a UUID as it should be: %s", id, body)
		}
	}
	if got, want := r.Header.Get("Idempotency-Key"), fmt.Sprintf("%s:%d", e.Step.StepUUID, e.Step.Attempt); got != want {
		return nil, fmt.Errorf("the key is %s; want %s", got, want)
	}
	return e, nil
}

// arithmeticHandler computes what the steps of the templates ask for.
type arithmeticHandler struct {
	t         *testing.T
	templates []*arithmeticTemplate

	mu   sync.Mutex
	keys map[string]int // calls by Idempotency-Key
}

func (h *arithmeticHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, err := h.compute(r)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keys[r.Header.Get("Idempotency-Key")]++
	if err != nil {
		h.t.Error(err)
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, n)
}

func (h *arithmeticHandler) compute(r *http.Request) (*big.Int, error) {
	e, err := readEnvelope(r)
	if err != nil {
		return nil, err
	}
	for _, tpl := range h.templates {
		if tpl.Namespace == e.Task.Namespace && tpl.Name == e.Task.Name {
			if err := tpl.check(e); err != nil {
				return nil, fmt.Errorf("step %s: %w", e.Step.Name, err)
			}
			return tpl.result(e)
		}
	}
	return nil, fmt.Errorf("no template %s.%s", e.Task.Namespace, e.Task.Name)
}

// check holds an envelope against the template file.
func (a *arithmeticTemplate) check(e *handlerEnvelope) error {
	s := a.step(e.Step.Name)
	input := map[string]json.RawMessage{"even_number": json.RawMessage("6")}
	switch {
	case e.Task.Version != a.Version:
		return fmt.Errorf("version %s; want %s", e.Task.Version, a.Version)
	case !reflect.DeepEqual(e.Task.Context, input) || !reflect.DeepEqual(e.Step.Inputs, input):
		return fmt.Errorf("context %s, inputs %s; want %s", e.Task.Context, e.Step.Inputs, input)
	case e.Step.Attempt != 1 || e.Step.MaxAttempts != s.Retry.MaxAttempts || e.Step.TimeoutSeconds != s.TimeoutSeconds:
		return fmt.Errorf("attempt %d of %d, timeout %d", e.Step.Attempt, e.Step.MaxAttempts, e.Step.TimeoutSeconds)
	case !reflect.DeepEqual(decoded(e.Step.Config), decoded(s.Handler.Initialization)):
		return fmt.Errorf("config %s; want %s", e.Step.Config, s.Handler.Initialization)
	case e.DependencyResults == nil:
		return fmt.Errorf("no dependency_results")
	}
	want := a.ancestors(s.Name)
	for name := range e.DependencyResults {
		if !want[name] {
			return fmt.Errorf("a result of %s, which is no ancestor", name)
		}
	}
	if len(e.DependencyResults) != len(want) {
		return fmt.Errorf("results %s; want those of %v", e.DependencyResults, want)
	}
	return nil
}

// decoded is an object's values, with the digits of numbers: a template is
// served normalized, with another spelling of the same strings.
func decoded(object map[string]json.RawMessage) map[string]any {
	values := map[string]any{}
	for name, raw := range object {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			v = err
		}
		values[name] = v
	}
	return values
}

// result does the operation on the results of the parents alone, or, where
// there are none, on the input.
func (a *arithmeticTemplate) result(e *handlerEnvelope) (*big.Int, error) {
	s := a.step(e.Step.Name)
	factors := []json.RawMessage{}
	for _, p := range s.Dependencies {
		factors = append(factors, e.DependencyResults[p])
	}
	if len(factors) == 0 {
		factors = append(factors, e.Task.Context["even_number"])
	}
	var operation string
	if err := json.Unmarshal(s.Handler.Initialization["operation"], &operation); err != nil {
		return nil, err
	}
	multiplies := strings.HasPrefix(operation, "multiply") && strings.HasSuffix(operation, "_and_square")
	if !multiplies && (operation != "square" || len(factors) != 1) {
		return nil, fmt.Errorf("operation %s of %d numbers", operation, len(factors))
	}
	product := big.NewInt(1)
	for _, f := range factors {
		n, ok := new(big.Int).SetString(string(f), 10)
		if !ok {
			return nil, fmt.Errorf("%s is not an integer", f)
		}
		product.Mul(product, n)
	}
	return product.Mul(product, product), nil
}

// arithmeticRows are the templates, and what each comes to with 6 as its input: what
// the descriptions of two of them promise is less than what their steps come to.
var arithmeticRows = []struct {
	file, last string
	exponent   int64
}{
	{"rust_e2e_linear.mathematical_sequence.1.0.0.json", "linear_step_4", 16},
	{"rust_e2e_diamond.diamond_pattern.1.0.0.json", "diamond_end", 16},
	{"rust_e2e_mixed_dag.complex_dag.1.0.0.json", "dag_finalize", 64},
	{"rust_e2e_tree.hierarchical_tree.1.0.0.json", "tree_final_convergence", 64},
}

// TestArithmetic runs the four templates on 6.
func TestArithmetic(t *testing.T) {
	if _, err := os.Stat(foreignTemplates); err != nil {
		t.Skip("the templates are not here")
	}
	h := &arithmeticHandler{t: t, keys: map[string]int{}}
	steps := 0
	for _, row := range arithmeticRows {
		tpl := readArithmetic(t, row.file)
		h.templates = append(h.templates, tpl)
		steps += len(tpl.Steps)
	}
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	config := filepath.Join(t.TempDir(), "stepwell.toml")
	writeFile(t, config, fmt.Appendf(nil, "[worker.handlers]\n\"tasker_example_rs::*\" = %q\n", web.URL+"/steps"))
	dir, err := filepath.Abs(foreignTemplates)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--data", filepath.Join(t.TempDir(), "data"), "--templates", dir, "--config", config}
	p := serve(t, args...)
	ids := make([]string, len(arithmeticRows))
	for i := range arithmeticRows {
		ids[i] = p.api().create(fmt.Sprintf(`{"namespace":%q,"name":%q,"context":{"even_number":6}}`,
			h.templates[i].Namespace, h.templates[i].Name))
	}
	look := func() {
		t.Helper()
		for i, row := range arithmeticRows {
			p.api().await(ids[i], "complete")
			want := new(big.Int).Exp(big.NewInt(6), big.NewInt(row.exponent), nil)
			if got := resultText(t, p.api(), ids[i], row.last); got != want.String() {
				t.Errorf("%s: got %s; want 6^%d = %s", row.last, got, row.exponent, want)
			}
		}
	}
	look()
	p.stop()
	p = serve(t, args...)
	look()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.keys) != steps {
		t.Errorf("the handler got %d attempts; want one for each of %d steps", len(h.keys), steps)
	}
	for key, n := range h.keys {
		if n > 2 { // the kill may have come before an outcome that was seen was on disk
			t.Errorf("%s was called %d times; want at most once more after the kill", key, n)
		}
	}
}

// resultText is the result of a task's step as the API spells it.
func resultText(t *testing.T, api *testServer, id, step string) string {
	t.Helper()
	var views []struct {
		Name    string `json:"name"`
		Results *struct {
			Success bool            `json:"success"`
			Result  json.RawMessage `json:"result"`
		} `json:"results"`
	}
	a := api.do("GET", "/v1/tasks/"+id+"/workflow_steps", "").want(200)
	if err := json.Unmarshal(a.body, &views); err != nil {
		t.Fatal(err)
	}
	for _, v := range views {
		if v.Name == step && v.Results != nil && v.Results.Success {
			return string(v.Results.Result)
		}
	}
	t.Fatalf("step %s of task %s has no result: %s", step, id, a.body)
	return ""
}

// awkwardNumbers are numbers that change when a float64, or a careless printer, comes
// between.
var awkwardNumbers = []string{
	"0.1000000000000000055511151231257827",
	"123456789012345678901234567890.50",
	"-0", "-0.0", "1.0", "1e2", "1E+2", "0e0", "100", "9007199254740993", "18446744073709551617",
	"4.9e-324", "1e-400", "1.7976931348623157e308", strings.Repeat("7", 300),
}

// TestDigits: a number has the same digits in the context that a task shows, in
// what a handler is given, and in its result, before and after a crash.
func TestDigits(t *testing.T) {
	list := "[" + strings.Join(awkwardNumbers, ",") + "]"
	given := make(chan *handlerEnvelope, 2)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, err := readEnvelope(r)
		if err != nil {
			t.Error(err)
			return
		}
		given <- e
		fmt.Fprint(w, list)
	}))
	t.Cleanup(web.Close)
	args := []string{"--data", filepath.Join(t.TempDir(), "data"), "--templates", templateDir(t, testTemplate("digits",
		stepSpec{name: "a", callable: web.URL, config: `{"n":` + list + `}`},
		stepSpec{name: "b", callable: web.URL, after: []string{"a"}},
		stepSpec{name: "c", callable: "Outside", after: []string{"b"}}))}
	p := serve(t, args...)
	id := p.api().create(`{"namespace":"t","name":"digits","context":{"n":` + list + `}}`)
	a, _ := receiveWithin(given, patience)
	b, ok := receiveWithin(given, patience)
	if !ok {
		t.Fatal("the handler was not called twice")
	}
	for what, got := range map[string]json.RawMessage{
		"context": a.Task.Context["n"], "inputs": a.Step.Inputs["n"], "config": a.Step.Config["n"],
		"dependency result": b.DependencyResults["a"],
	} {
		if string(got) != list {
			t.Errorf("%s: got %s; want %s", what, got, list)
		}
	}
	eventually(t, "b is complete", func() bool {
		return p.api().do("GET", "/v1/tasks/"+id, "").want(200).text("steps.1.current_state") == "complete"
	})
	step := p.api().do("GET", "/v1/tasks/"+id, "").text("steps.2.workflow_step_uuid")
	p.api().do("PATCH", "/v1/tasks/"+id+"/workflow_steps/"+step, `{"action_type":"complete_manually","reason":"r",`+
		`"completed_by":"me","completion_data":{"result":`+list+`,"metadata":{"n":`+list+`}}}`).want(200)
	for range 2 {
		p.api().await(id, "complete")
		for _, step := range []string{"a", "b", "c"} {
			if got := resultText(t, p.api(), id, step); got != list {
				t.Errorf("result of %s: got %s; want %s", step, got, list)
			}
		}
		for _, path := range []string{"", "/context", "/workflow_steps/" + step, "/workflow_steps/" + step + "/audit"} {
			if got := p.api().do("GET", "/v1/tasks/"+id+path, "").want(200); !bytes.Contains(got.body, []byte(`"n":`+list)) {
				t.Errorf("GET …%s: got %s; want %s", path, got.body, list)
			}
		}
		p.kill()
		p = serve(t, args...)
	}
}

// TestNumbersOutOfRange: what no float64 can hold is refused, wherever it comes
// from.
func TestNumbersOutOfRange(t *testing.T) {
	const huge = `{"n":1e400}`
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, huge) }))
	t.Cleanup(web.Close)
	p := serve(t, "--memory", "--templates", templateDir(t,
		testTemplate("huge", stepSpec{name: "a", callable: web.URL}),
		testTemplate("act", stepSpec{name: "a", callable: "Outside"})))
	api := p.api()
	refused := func(a *answer) {
		t.Helper()
		if a.want(400).text("error.code") != "JSON_ERROR" || !strings.Contains(a.text("error.message"), "offset") {
			t.Errorf("got %s; want a JSON_ERROR that names the offset", a.body)
		}
	}
	refused(api.do("POST", "/v1/tasks", `{"namespace":"t","name":"act","context":`+huge+`}`))
	act := api.do("POST", "/v1/tasks", `{"namespace":"t","name":"act"}`).want(201)
	path := "/v1/tasks/" + act.text("task_uuid") + "/workflow_steps/" + act.text("steps.0.workflow_step_uuid")
	refused(api.do("PATCH", path, `{"action_type":"complete_manually","reason":"r","completed_by":"me",`+
		`"completion_data":{"result":`+huge+`}}`))
	if got := api.do("GET", path, "").want(200).text("current_state"); got != "enqueued" {
		t.Errorf("after the refused result the step is %s", got)
	}

	id := api.create(`{"namespace":"t","name":"huge"}`)
	api.await(id, "blocked_by_failures")
	step := api.do("GET", "/v1/tasks/"+id+"/workflow_steps", "").want(200)
	if got := step.text("0.results.error.error_type"); got != invalidResultType {
		t.Errorf("the handler's reply: got error type %s; want %s", got, invalidResultType)
	}
	if got := step.text("0.attempts"); got != "1" {
		t.Errorf("the handler was asked %s times; want once", got)
	}
	dir := templateDir(t, testTemplate("config", stepSpec{name: "a", callable: "builtin:noop", config: huge}))
	code, _, stderr := runProgram(t, nil, serveArguments("--memory", "--templates", dir)...)
	if code != 1 {
		t.Errorf("a template with the number: got exit code %d; want 1", code)
	}
	wantParts(t, "a template with the number", stderr, "0.json", "float64")
}

// Templates with dynamic steps that were written for other workers, run by an
// HTTP handler in all their branches.

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

// newHandlerServer answers at its URL until the test ends.
func newHandlerServer(t *testing.T, f http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s
}

// call runs an attempt of the callable.
func callHandler(t *testing.T, h *handlerSet, callable string) outcome {
	t.Helper()
	return h.run(t.Context(), h.resolve(callable), newTestAttempt(`{}`))
}

func TestHTTPRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		fmt.Fprint(w, `{"ok": true}`)
	})
	h := newTestHandlers(t, func(c *workerConfig) {
		c.HTTPHeaders = map[string]string{"X-Api-Key": "k", "User-Agent": "other", "Content-Type": "text/plain"}
	})
	a := newTestAttempt(`{}`)
	a.traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	if o := h.run(t.Context(), h.resolve(s.URL+"/pay?x=1#top"), a); showOutcome(o) != `ok {"ok":true}` {
		t.Fatalf("got %s: %s", showOutcome(o), errorText(o))
	}
	if string(body) != string(a.envelope(nil)) {
		t.Errorf("body: got %s; want %s", body, a.envelope(nil))
	}
	if line := got.Method + " " + got.RequestURI; line != "POST /pay?x=1" {
		t.Errorf("got %s; want POST /pay?x=1", line)
	}
	if got.ContentLength != int64(len(body)) || len(got.TransferEncoding) > 0 {
		t.Errorf("length: got %d, %q; want %d", got.ContentLength, got.TransferEncoding, len(body))
	}
	for name, want := range map[string]string{
		"Content-Type":    "application/json",
		"Idempotency-Key": a.stepID.String() + ":2",
		"Traceparent":     a.traceparent,
		"User-Agent":      "stepwell/1.2.3",
		"X-Api-Key":       "k",
		"Authorization":   "",
		"Accept-Encoding": "",
	} {
		if values := got.Header.Values(name); strings.Join(values, "|") != want {
			t.Errorf("%s: got %q; want %q", name, values, want)
		}
	}
}

func TestHTTPWithoutTraceparent(t *testing.T) {
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		if _, ok := r.Header["Traceparent"]; ok {
			t.Error("a traceparent was sent for a task without one")
		}
	})
	if o := callHandler(t, newTestHandlers(t, nil), s.URL); showOutcome(o) != "ok null" {
		t.Errorf("got %s", showOutcome(o))
	}
}

func TestHTTPReplies(t *testing.T) {
	var body string // of the reply
	var status int
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
	h := newTestHandlers(t, nil)
	for _, row := range []struct {
		status     int
		body, want string
	}{
		{200, `{"a": 1.0}`, `ok {"a":1.0}`},
		{201, `"x"`, `ok "x"`},
		{299, `[]`, `ok []`},
		{200, ``, `ok null`},
		{204, ``, `ok null`},
		{200, `{"success": true, "result": 1, "metadata": {"k": 2}}`, `ok 1 metadata {"k":2}`},
		{200, `{"success": false}`, `handler_error retryable 200`},
		{200, `{"success": false, "error": {"error_type": "t", "retryable": false, "status_code": 418}}`,
			`t permanent 418`},
		{200, `<html>`, `invalid_result permanent 200`},
		{200, `{"success": true, "metadata": 1}`, `invalid_result permanent 200`},
		{200, `"` + strings.Repeat("x", 998) + `"`, `ok "` + strings.Repeat("x", 998) + `"`},
		{200, `"` + strings.Repeat("x", 999) + `"`, `result_too_large permanent 200`},
		{300, ``, `redirect permanent 300`},
		{304, ``, `redirect permanent 304`},
		{400, `no`, `http_400 permanent 400`},
		{401, ``, `http_401 permanent 401`},
		{404, ``, `http_404 permanent 404`},
		{408, ``, `http_408 retryable 408`},
		{409, `{"success": true}`, `http_409 permanent 409`},
		{422, ``, `http_422 permanent 422`},
		{425, ``, `http_425 retryable 425`},
		{429, ``, `http_429 retryable 429`},
		{500, `{"success": true}`, `http_500 retryable 500`},
		{501, ``, `http_501 retryable 501`},
		{502, ``, `http_502 retryable 502`},
		{503, ``, `http_503 retryable 503`},
		{599, ``, `http_599 retryable 599`},
		{600, ``, `http_600 permanent 600`},
	} {
		status, body = row.status, row.body
		if got := showOutcome(callHandler(t, h, s.URL)); got != row.want {
			t.Errorf("%d %.40s: got %.80s; want %.80s", row.status, row.body, got, row.want)
		}
	}
}

func TestHTTPErrorKeepsTheReply(t *testing.T) {
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(503)
		io.WriteString(w, "cannot reach postgres://u:s3cret@db/x: "+strings.Repeat("é", 10000))
	})
	o := callHandler(t, newTestHandlers(t, nil), s.URL)
	if want := strings.TrimPrefix(s.URL, "http://") + " replied 503 Service Unavailable"; o.err.message != want {
		t.Errorf("got %s; want %s", o.err.message, want)
	}
	var context struct{ Body string }
	json.Unmarshal(o.err.context, &context)
	if n := len(context.Body); n > maxErrorText+16 || n < maxErrorText-16 {
		t.Errorf("the error keeps %d bytes; want about %d", n, maxErrorText)
	}
	if want := "cannot reach postgres://[REDACTED]@db/x: é"; !strings.HasPrefix(context.Body, want) {
		t.Errorf("got %.60s; want %s…", context.Body, want)
	}
}

func TestHTTPRedirectIsNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/" {
				t.Errorf("%d: was followed to %s", status, r.URL)
			}
			w.Header().Set("Location", "http://u:s3cret@"+r.Host+"/elsewhere?token=s3cret")
			w.WriteHeader(status)
		})
		o := callHandler(t, newTestHandlers(t, nil), s.URL+"/")
		if got, want := showOutcome(o), fmt.Sprintf("redirect permanent %d", status); got != want {
			t.Errorf("got %s; want %s", got, want)
		}
		if got, want := string(o.err.context), `{"location":"`+s.URL+`/elsewhere"}`; got != want {
			t.Errorf("got %s; want %s", got, want)
		}
	}
}

func TestHTTPReadsNoMoreThanTheLimit(t *testing.T) {
	gaveUp := make(chan bool, 1)
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		var err error
		for err == nil {
			_, err = w.Write(make([]byte, 4096))
		}
		gaveUp <- true
	})
	o := callHandler(t, newTestHandlers(t, nil), s.URL)
	if got, want := showOutcome(o), "result_too_large permanent 200"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	<-gaveUp
}

func TestHTTPNetworkErrors(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	cut := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		if r.URL.Path == "/body" {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\"")
		}
		if r.URL.Path == "/garbage" {
			io.WriteString(conn, "220 mail.example ESMTP\r\n")
		}
		conn.Close()
	})
	for _, callable := range []string{
		"http://me:s3cret@" + closed.Addr().String() + "/", cut.URL + "/", cut.URL + "/body", cut.URL + "/garbage",
		strings.Replace(cut.URL, "http://", "https://me:s3cret@", 1),
	} {
		o := callHandler(t, newTestHandlers(t, nil), callable)
		if got, want := showOutcome(o), "network_error retryable"; got != want {
			t.Errorf("%s: got %s; want %s", callable, got, want)
		}
		text := errorText(o)
		if strings.Contains(text, "s3cret") || !strings.HasPrefix(text, "no reply from 127.0.0.1:") {
			t.Errorf("%s: got the message %s", callable, text)
		}
	}
}

func TestHTTPCredentials(t *testing.T) {
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		if user != "me" || password != "s3/c:ret" || !ok {
			t.Errorf("got %q, %q", user, password)
		}
		w.WriteHeader(500)
	})
	h := newTestHandlers(t, func(c *workerConfig) {
		c.HTTPHeaders = map[string]string{"Authorization": "Bearer x"}
	})
	o := callHandler(t, h, strings.Replace(s.URL, "http://", "http://me:s3%2Fc:ret@", 1))
	if got, want := showOutcome(o), "http_500 retryable 500"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	if text := errorText(o); strings.Contains(text, "ret@") {
		t.Errorf("the error shows the credentials: %s", text)
	}
}

func TestHTTPTimeout(t *testing.T) {
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // only then is the end of the connection seen
		if r.URL.Path == "/body" {
			io.WriteString(w, `{"a":`)
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	})
	h := newTestHandlers(t, nil)
	for _, path := range []string{"/", "/body"} {
		a := newTestAttempt(`{}`)
		a.timeout = 30 * time.Millisecond
		o := h.run(t.Context(), h.resolve(s.URL+path), a)
		if got, want := showOutcome(o), "timeout retryable"; got != want {
			t.Errorf("%s: got %s; want %s", path, got, want)
		}
		if got, want := errorText(o), "the attempt took longer than 30ms "; got != want {
			t.Errorf("%s: got %q; want %q", path, got, want)
		}
	}
}

func TestHTTPCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		cancel()
		<-r.Context().Done()
	})
	h := newTestHandlers(t, nil)
	o := h.run(ctx, h.resolve(s.URL), newTestAttempt(`{}`))
	if got, want := showOutcome(o), "cancelled retryable"; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
}

func TestHTTPRetryAfterReachesTheOutcome(t *testing.T) {
	var status int
	var body string
	s := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
	h := newTestHandlers(t, nil)
	for _, row := range []struct {
		status int
		body   string
		want   time.Duration
	}{
		{429, ``, 7 * time.Second},
		{503, ``, 7 * time.Second},
		{200, `{"success": false}`, 7 * time.Second},
		{200, `1`, 0},
		{404, ``, 0},
	} {
		status, body = row.status, row.body
		if got := callHandler(t, h, s.URL).retryAfter; got != row.want {
			t.Errorf("%d %s: got %v; want %v", row.status, row.body, got, row.want)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	const date = "Sat, 31 Jan 2026 12:00:00 GMT"
	for _, row := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", date, 0},
		{"120", date, 2 * time.Minute},
		{" 5 ", date, 5 * time.Second},
		{"0", date, time.Microsecond},
		{"3600", date, time.Hour},
		{"3601", date, time.Hour},
		{"99999999999999999999999", date, time.Hour},
		{"-1", date, 0},
		{"1.5", date, 0},
		{"soon", date, 0},
		{"Sat, 31 Jan 2026 12:00:30 GMT", date, 30 * time.Second},
		{"Saturday, 31-Jan-26 12:01:00 GMT", date, time.Minute},
		{"Sat, 31 Jan 2026 11:00:00 GMT", date, time.Microsecond},
		{"Sun, 01 Feb 2026 12:00:00 GMT", date, time.Hour},
		{"Sat, 31 Jan 2099 12:00:00 GMT", "", time.Hour},
		{"Sat, 31 Jan 2009 12:00:00 GMT", "", time.Microsecond},
	} {
		h := http.Header{"Retry-After": {row.value}, "Date": {row.date}}
		if got := retryAfter(h); got != row.want {
			t.Errorf("%q at %q: got %v; want %v", row.value, row.date, got, row.want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120", "")
	f.Add("Sat, 31 Jan 2026 12:00:30 GMT", "Sat, 31 Jan 2026 12:00:00 GMT")
	f.Fuzz(func(t *testing.T, value, date string) {
		if d := retryAfter(http.Header{"Retry-After": {value}, "Date": {date}}); d < 0 || d > time.Hour {
			t.Errorf("got %v", d)
		}
	})
}

// TestHTTPConnectionsAreKept makes rounds of parallel calls, which the server
// holds until all of a round are there.
func TestHTTPConnectionsAreKept(t *testing.T) {
	const parallel, rounds = 16, 3
	var opened atomic.Int32
	var arrived sync.WaitGroup
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Done()
		arrived.Wait()
		io.WriteString(w, "1")
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	h := newTestHandlers(t, func(c *workerConfig) { c.HTTPConcurrency = parallel })
	to := h.resolve(s.URL)
	for range rounds {
		arrived.Add(parallel)
		var calls sync.WaitGroup
		for range parallel {
			calls.Go(func() {
				if o := h.run(t.Context(), to, newTestAttempt(`{}`)); showOutcome(o) != "ok 1" {
					t.Errorf("got %s: %s", showOutcome(o), errorText(o))
				}
			})
		}
		calls.Wait()
	}
	if n := opened.Load(); n != parallel {
		t.Errorf("%d connections for %d rounds of %d calls; want %d", n, rounds, parallel, parallel)
	}
}

func TestHTTPProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	proxy := newHandlerServer(t, func(w http.ResponseWriter, r *http.Request) {
		if got, want := r.URL.String(), "http://handler.invalid/pay"; got != want {
			t.Errorf("got %s; want %s", got, want)
		}
		if got, want := r.Header.Get("Proxy-Authorization"), "Basic bWU6czNjcmV0"; got != want {
			t.Errorf("got %s; want %s", got, want)
		}
		io.WriteString(w, `"proxied"`)
	})
	h := newTestHandlers(t, func(c *workerConfig) {
		c.HTTPProxy = strings.Replace(proxy.URL, "http://", "http://me:s3cret@", 1)
	})
	if got, want := showOutcome(callHandler(t, h, "http://handler.invalid/pay")), `ok "proxied"`; got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	if newTestHandlers(t, nil).web.transport.Proxy != nil {
		t.Error("there is a proxy, and none is configured")
	}
}
