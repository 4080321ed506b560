package e2e

// Arithmetic end to end: templates written for other workers, run by an HTTP
// handler that computes exactly, with numbers that no float64 holds.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
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

// arithmeticTemplate holds the members of a template file that the handler uses.
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

// readArithmetic reads a template file as it applies to the standard environment.
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

// step returns the step with a name. It must exist.
func (a *arithmeticTemplate) step(name string) *arithmeticStep {
	return &a.Steps[slices.IndexFunc(a.Steps, func(s arithmeticStep) bool { return s.Name == name })]
}

// ancestors returns the steps that a step waits for, directly or indirectly.
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

// handlerEnvelope is the body of a call of an HTTP handler. Every member must be present:
// missing numbers and texts fail the checks of their values.
type handlerEnvelope struct {
	Task struct {
		TaskUUID      string                     `json:"task_uuid"`
		Namespace     string                     `json:"namespace"`
		Name          string                     `json:"name"`
		Version       string                     `json:"version"`
		CorrelationID string                     `json:"correlation_id"`
		Context       map[string]json.RawMessage `json:"context"`
		Initiator     string                     `json:"initiator"`
		SourceSystem  string                     `json:"source_system"`
		Reason        string                     `json:"reason"`
		Tags          []string                   `json:"tags"`
		Priority      int                        `json:"priority"`
		RequestedAt   string                     `json:"requested_at"`
		CreatedAt     string                     `json:"created_at"`
		UpdatedAt     string                     `json:"updated_at"`
		Parent        *string                    `json:"parent_correlation_id"`
	} `json:"task"`
	Step struct {
		StepUUID       string                     `json:"step_uuid"`
		Name           string                     `json:"name"`
		Attempt        int                        `json:"attempt"`
		MaxAttempts    int                        `json:"max_attempts"`
		TimeoutSeconds int                        `json:"timeout_seconds"`
		Config         map[string]json.RawMessage `json:"config"`
		Inputs         map[string]json.RawMessage `json:"inputs"`
		Handler        struct {
			Callable string  `json:"callable"`
			Method   string  `json:"method"`
			Resolver *string `json:"resolver"`
		} `json:"handler"`
		TemplateName string          `json:"template_step_name"`
		RemainingMS  int             `json:"remaining_ms"`
		Previous     json.RawMessage `json:"previous"`
	} `json:"step"`
	DependencyResults map[string]json.RawMessage `json:"dependency_results"`
	Dependencies      map[string]struct {
		StepUUID string          `json:"step_uuid"`
		State    string          `json:"state"`
		EndedAt  string          `json:"ended_at"`
		TookMS   int             `json:"execution_time_ms"`
		Metadata json.RawMessage `json:"metadata"`
	} `json:"dependencies"`
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
	if got := r.Header.Get("User-Agent"); !strings.HasPrefix(got, "stepwell/") || got == "stepwell/" {
		return nil, fmt.Errorf("the user agent is %q; want stepwell and its version", got)
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
		if wire.Problems("id", "uuid", id) != nil {
			return nil, fmt.Errorf("%q is not a UUID as it should be: %s", id, body)
		}
	}
	if got, want := r.Header.Get("Idempotency-Key"), fmt.Sprintf("%s:%d", e.Step.StepUUID, e.Step.Attempt); got != want {
		return nil, fmt.Errorf("the key is %s; want %s", got, want)
	}
	return e, nil
}

// arithmeticHandler computes the steps of the templates.
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

// check compares an envelope with the template file.
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
	case e.Step.TemplateName != s.Name || e.Step.RemainingMS != 1000*s.TimeoutSeconds:
		return fmt.Errorf("template_step_name %s, remaining_ms %d", e.Step.TemplateName, e.Step.RemainingMS)
	case e.DependencyResults == nil:
		return fmt.Errorf("no dependency_results")
	}
	want := a.ancestors(s.Name)
	for name := range e.DependencyResults {
		if !want[name] || e.Dependencies[name].State != "complete" {
			return fmt.Errorf("a result of %s, which is no complete ancestor: %+v", name, e.Dependencies)
		}
	}
	if len(e.DependencyResults) != len(want) || len(e.Dependencies) != len(want) {
		return fmt.Errorf("results %s, dependencies %v; want those of %v", e.DependencyResults, e.Dependencies, want)
	}
	return nil
}

// decoded returns an object's values, with the digits of numbers: templates are served
// normalized, with another spelling of the same strings.
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

// result applies the operation to the results of the parents, or to the input if the step has
// no parents.
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

// arithmeticRows lists the templates with their results for the input 6. The descriptions of
// two of them promise less than their steps compute.
var arithmeticRows = []struct {
	file, last string
	exponent   int64
}{
	{"rust_e2e_linear.mathematical_sequence.1.0.0.json", "linear_step_4", 16},
	{"rust_e2e_diamond.diamond_pattern.1.0.0.json", "diamond_end", 16},
	{"rust_e2e_mixed_dag.complex_dag.1.0.0.json", "dag_finalize", 64},
	{"rust_e2e_tree.hierarchical_tree.1.0.0.json", "tree_final_convergence", 64},
}

// TestArithmetic runs the four templates with the input 6.
func TestArithmetic(t *testing.T) {
	t.Parallel()
	dir := needForeignTemplates(t)
	h := &arithmeticHandler{t: t, keys: map[string]int{}}
	steps := 0
	for _, row := range arithmeticRows {
		tpl := readArithmetic(t, row.file)
		h.templates = append(h.templates, tpl)
		steps += len(tpl.Steps)
	}
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	config := configFile(t, fmt.Sprintf("[worker.handlers]\n\"tasker_example_rs::*\" = %q\n", web.URL+"/steps"))
	args := []string{"--data", filepath.Join(t.TempDir(), "data"), "--templates", dir, "--config", config}
	p := serve(t, args...)
	ids := createArithmetic(t, p, 0)
	for range 2 {
		for i, id := range ids {
			wantArithmetic(t, p, i, id)
		}
		p.stop()
		p = serve(t, args...)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.keys) != steps {
		t.Errorf("the handler got %d attempts; want one for each of %d steps", len(h.keys), steps)
	}
	for key, n := range h.keys {
		if n > 2 { // the kill may have come before the outcome was on disk
			t.Errorf("%s was called %d times; want at most once more after the kill", key, n)
		}
	}
}

// TestRunArithmetic runs the four templates by the command line, without a server.
func TestRunArithmetic(t *testing.T) {
	t.Parallel()
	dir := needForeignTemplates(t)
	h := &arithmeticHandler{t: t, keys: map[string]int{}}
	for _, row := range arithmeticRows {
		h.templates = append(h.templates, readArithmetic(t, row.file))
	}
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	for _, row := range arithmeticRows {
		code, stdout, stderr := runProgram(t, nil, "run", filepath.Join(dir, row.file), "-o", "json",
			"--context", `{"even_number":6}`, "--handler", "tasker_example_rs::*="+web.URL+"/steps")
		var got struct{ Results map[string]json.RawMessage }
		want := new(big.Int).Exp(big.NewInt(6), big.NewInt(row.exponent), nil).String()
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 || string(got.Results[row.last]) != want {
			t.Errorf("%s: got %d, %s, %s; want %s", row.file, code, stdout, stderr, want)
		}
	}
}

// methodHandler runs the steps of any template by the method that the template names.
type methodHandler struct {
	mu      sync.Mutex
	methods map[string]map[string]int // calls by callable and method
}

func (h *methodHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, err := readEnvelope(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	h.mu.Lock()
	if h.methods[e.Step.Handler.Callable] == nil {
		h.methods[e.Step.Handler.Callable] = map[string]int{}
	}
	h.methods[e.Step.Handler.Callable][e.Step.Handler.Method]++
	h.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, foreignMethods[e.Step.Handler.Method](e))
}

// foreignMethods are what the handlers of the templates do: by default, and by their methods.
var foreignMethods = map[string]func(e *handlerEnvelope) string{
	"": func(e *handlerEnvelope) string { return foreignReply(e, "call") },
	"decide": func(e *handlerEnvelope) string {
		return `{"decision_point_outcome":{"type":"create_steps","step_names":["auto_approve"]}}`
	},
	"split": func(e *handlerEnvelope) string {
		return fmt.Sprintf(`{"batch_processing_outcome":{"type":"create_batches","worker_template_name":%s,"worker_count":2,`+
			`"cursor_configs":[{"batch_id":"001","start_cursor":0},{"batch_id":"eu","start_cursor":1000}],"total_items":2000}}`,
			e.Step.Config["worker_template_name"])
	},
	"work": func(e *handlerEnvelope) string {
		in := e.Step.Inputs
		var metadata struct {
			CursorField string `json:"cursor_field"`
			Strategy    string `json:"failure_strategy"`
			Size        int    `json:"batch_size"`
		}
		json.Unmarshal(in["batch_metadata"], &metadata)
		if string(in["cursor"]) != string(e.Step.Config["cursor"]) || string(in["is_no_op"]) != "false" ||
			metadata.CursorField != "id" || metadata.Strategy != "fail_fast" || metadata.Size != 1000 {
			return fmt.Sprintf(`{"success":false,"error":{"message":"the inputs are %d, %s","retryable":false}}`, len(in), in["batch_metadata"])
		}
		return foreignReply(e, "work")
	},
	"flake": func(e *handlerEnvelope) string {
		if fails, _ := strconv.Atoi(string(e.Step.Config["fail_count"])); e.Step.Attempt <= fails {
			return `{"success":false,"error":{"message":"not yet","retryable":true}}`
		}
		return foreignReply(e, "flake")
	},
}

func foreignReply(e *handlerEnvelope, method string) string {
	return fmt.Sprintf(`{"method":%q,"callable":%q}`, method, e.Step.Handler.Callable)
}

// foreignMethod returns the method of a step of the templates, "" for the standard one.
func foreignMethod(step map[string]any) string {
	config, _ := step["handler"].(map[string]any)["initialization"].(map[string]any)
	switch kind, _ := step["type"].(string); {
	case kind == "decision":
		return "decide"
	case kind == "batchable":
		return "split"
	case kind == "batch_worker":
		return "work"
	case config["fail_count"] != nil:
		return "flake"
	}
	return ""
}

// TestTemplatesOfOtherWorkers runs every template of the data folder, as JSON and as YAML, by a
// handler that does what the method says. The events of the steps arrive at a subscriber and in the
// stream, once each.
func TestTemplatesOfOtherWorkers(t *testing.T) {
	t.Parallel()
	slow(t)
	dir := needForeignTemplates(t)
	with, want := withMethods(t, dir)
	for _, form := range []string{"json", "yaml"} {
		h := &methodHandler{methods: map[string]map[string]int{}}
		web, subscriber := httptest.NewServer(h), newSubscriber(t)
		t.Cleanup(web.Close)
		p := serve(t, "--memory", "--templates", inForm(t, with, form),
			"--config", configFile(t, fmt.Sprintf("[worker.handlers]\n\"*\" = %q\n", web.URL)+subscriber.config))
		list := p.api().do("GET", "/v1/templates", "").want(200)
		for i := range want.templates {
			at := fmt.Sprintf("templates.%d.", i)
			p.api().await(p.api().create(fmt.Sprintf(`{"namespace":%q,"name":%q}`, list.text(at+"namespace"), list.text(at+"name"))), "complete")
		}
		streamed := eventTypes(readDomainEvents(t, p.ready.OrchestrationURL, len(want.events)))
		var sent []sentEvent
		for range want.events {
			sent = append(sent, next(t, subscriber.arrived))
		}
		p.stop()
		if got := eventTypes(sent); !slices.Equal(got, want.events) || !slices.Equal(streamed, want.events) || len(subscriber.arrived) > 0 {
			t.Errorf("%s: got events %v, in the stream %v; want %v once each", form, got, streamed, want.events)
		}
		if !reflect.DeepEqual(h.methods, want.calls) {
			t.Errorf("%s: got calls %v; want %v", form, h.methods, want.calls)
		}
	}
}

// foreignCalls has the number of templates, and the calls and the sorted events of one run of each.
type foreignCalls struct {
	templates int
	calls     map[string]map[string]int
	events    []string
}

// withMethods copies the templates to a directory, and gives their steps methods, and events where the
// list of these is there: it is empty in all of them.
func withMethods(t *testing.T, dir string) (to string, want foreignCalls) {
	to, want.calls = t.TempDir(), map[string]map[string]int{}
	for _, file := range wire.Must(filepath.Glob(filepath.Join(dir, "*.json")))(t) {
		var tpl map[string]any
		if err := json.Unmarshal(readFile(t, file), &tpl); err != nil {
			t.Fatal(err)
		}
		for _, s := range tpl["steps"].([]any) {
			step := s.(map[string]any)
			handler, method := step["handler"].(map[string]any), foreignMethod(step)
			if method != "" {
				handler["method"] = method
			}
			if list, ok := step["publishes_events"].([]any); ok {
				name := fmt.Sprintf("%s.%s", tpl["name"], step["name"])
				step["publishes_events"] = append(list, map[string]any{"name": name, "description": "", "schema": map[string]any{},
					"delivery_mode": "durable"})
				want.events = append(want.events, name)
			}
			n := 1
			switch name := step["name"]; {
			case method == "work":
				n = 2
			case method == "flake":
				n = 3
			case name == "manager_approval" || name == "finance_review":
				continue
			}
			want.calls[handler["callable"].(string)] = map[string]int{method: n}
		}
		want.templates++
		writeFile(t, filepath.Join(to, filepath.Base(file)), wire.Must(json.Marshal(tpl))(t))
	}
	slices.Sort(want.events)
	return to, want
}

// inForm returns a directory with the templates of another in a format.
func inForm(t *testing.T, dir, form string) string {
	if form == "json" {
		return dir
	}
	to := t.TempDir()
	for _, file := range wire.Must(filepath.Glob(filepath.Join(dir, "*.json")))(t) {
		writeFile(t, filepath.Join(to, strings.TrimSuffix(filepath.Base(file), "json")+form), readFile(t, file)) // JSON is YAML
	}
	return to
}

// awkwardNumbers are numbers that a float64, or a careless printer, would change.
var awkwardNumbers = []string{
	"0.1000000000000000055511151231257827",
	"123456789012345678901234567890.50",
	"-0", "-0.0", "1.0", "1e2", "1E+2", "0e0", "100", "9007199254740993", "18446744073709551617",
	"4.9e-324", "1e-400", "1.7976931348623157e308", strings.Repeat("7", 300),
}

// TestDigits checks that a number keeps its digits in the context that a task shows, in calls
// of a handler and in its result, before and after a crash.
func TestDigits(t *testing.T) {
	t.Parallel()
	slow(t)
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

// TestNumbersOutOfRange checks that numbers beyond the range of a float64 are refused from
// every source.
func TestNumbersOutOfRange(t *testing.T) {
	slow(t)
	t.Parallel()
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
	if got := step.text("0.results.error.error_type"); got != "invalid_result" {
		t.Errorf("the handler's reply: got error type %s; want %s", got, "invalid_result")
	}
	if got := step.text("0.attempts"); got != "1" {
		t.Errorf("the handler was asked %s times; want once", got)
	}
	dir := templateDir(t, testTemplate("config", stepSpec{name: "a", callable: "builtin:noop", config: huge}))
	wantRefused(t, []string{"--memory", "--templates", dir}, "0.json", "float64")
}

// Templates of other workers with dynamic steps, run by an HTTP handler in all their branches.

// foreignHandler answers the calls of both templates by the context of the task.
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
	t.Parallel()
	slow(t)
	dir := needForeignTemplates(t)
	h := &foreignHandler{t: t, calls: map[string]int{}}
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	config := configFile(t, fmt.Sprintf("[worker.handlers]\n\"tasker_example_rs::*\" = %q\n", web.URL+"/steps"))
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
