package e2e

// A client of the API for the tests, and other helpers that most of them need.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"stepwell/e2e/wire"
)

// Helpers shared with the tests of the program's parts.
var (
	readFile, writeFile = wire.ReadFile, wire.WriteFile
	eventually          = wire.Eventually
	configFile          = wire.ConfigFile
	programEnv          = wire.ProgramEnv
	startProcess        = wire.StartProcess
	slow, size          = wire.Slow, wire.Size
	raceDetector        = wire.RaceDetector
)

const patience = wire.Patience

// object is a JSON object.
type object = map[string]any

// api is a client of one server.
type api struct {
	t   testing.TB
	url string
}

// answer is a complete response.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
}

// do sends a request, with a body as JSON.
func (s *api) do(method, path, body string) *answer {
	s.t.Helper()
	return s.doAs("", method, path, body)
}

// doAs is do with a bearer token, unless that is empty.
func (s *api) doAs(token, method, path, body string) *answer {
	s.t.Helper()
	req := wire.Must(http.NewRequest(method, s.url+path, strings.NewReader(body)))(s.t)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp := wire.Must(http.DefaultClient.Do(req))(s.t)
	return readAnswer(s.t, resp)
}

func readAnswer(t testing.TB, resp *http.Response) *answer {
	t.Helper()
	defer resp.Body.Close()
	data := wire.Must(io.ReadAll(resp.Body))(t)
	return &answer{t, resp.StatusCode, resp.Header, data}
}

// want fails the test unless the status is the one given.
func (a *answer) want(status int) *answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("got status %d; want %d: %s", a.status, status, a.body)
	}
	return a
}

// get returns the value at a path, as wire.LookUp finds it.
func (a *answer) get(path string) any {
	a.t.Helper()
	v, err := wire.Decode(a.body)
	if err != nil {
		a.t.Fatalf("%v in %s", err, a.body)
	}
	v, ok := wire.LookUp(v, path)
	if !ok {
		a.t.Fatalf("no %s in %s", path, a.body)
	}
	return v
}

// text returns the value at a path as text.
func (a *answer) text(path string) string {
	a.t.Helper()
	return fmt.Sprint(a.get(path))
}

// into decodes the body.
func (a *answer) into(v any) {
	a.t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		a.t.Fatalf("%v in %s", err, a.body)
	}
}

// create creates a task and returns its id.
func (s *api) create(body string) string {
	s.t.Helper()
	return s.do("POST", "/v1/tasks", body).want(201).text("task_uuid")
}

// await polls a task until its status is the one given.
func (s *api) await(id, status string) (a *answer) {
	s.t.Helper()
	eventually(s.t, "task "+id+" becomes "+status, func() bool {
		a = s.do("GET", "/v1/tasks/"+id, "").want(200)
		return a.text("status") == status
	})
	return a
}

// metrics returns the text of /metrics.
func (s *api) metrics() string {
	s.t.Helper()
	return string(s.do("GET", "/metrics", "").want(200).body)
}

// metric returns the value of a sample of /metrics.
func (s *api) metric(sample string) int64 {
	s.t.Helper()
	return metricValue(s.t, s.metrics(), sample)
}

// metricValue returns the value of a sample in the text of /metrics.
func metricValue(t testing.TB, text, sample string) int64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(sample) + ` (\S+)$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no %s in the metrics", sample)
	}
	v := wire.Must(strconv.ParseFloat(m[1], 64))(t)
	return int64(v)
}

// taskView holds the members of a task that the tests read.
type taskView struct {
	TaskUUID string `json:"task_uuid"`
	Name     string `json:"name"`
	Status   string `json:"status"`
	Context  struct {
		Marker string `json:"marker"`
	} `json:"context"`
	InProgressSteps int `json:"in_progress_steps"`
	CompletedSteps  int `json:"completed_steps"`
	FailedSteps     int `json:"failed_steps"`
	Steps           []struct {
		StepUUID string `json:"workflow_step_uuid"`
		State    string `json:"current_state"`
	} `json:"steps"`
}

// taskPage is a page of a list of tasks.
type taskPage struct {
	Tasks      []taskView `json:"tasks"`
	Pagination struct {
		TotalCount int `json:"total_count"`
	} `json:"pagination"`
}

// stepView holds the members of a step that the tests read.
type stepView struct {
	StepUUID string `json:"step_uuid"`
	Name     string `json:"name"`
	State    string `json:"current_state"`
	Results  struct {
		Success  bool            `json:"success"`
		Result   json.RawMessage `json:"result"`
		Metadata struct {
			Worker string `json:"worker_id"`
		} `json:"metadata"`
	} `json:"results"`
}

// steps returns a task's steps.
func (s *api) steps(id string) (steps []stepView) {
	s.t.Helper()
	s.do("GET", "/v1/tasks/"+id+"/workflow_steps", "").want(200).into(&steps)
	return steps
}

// resultText returns the result of a task's step as the API spells it.
func resultText(t testing.TB, s *api, id, step string) string {
	t.Helper()
	for _, v := range s.steps(id) {
		if v.Name == step && v.Results.Success {
			return string(v.Results.Result)
		}
	}
	t.Fatalf("step %s of task %s has no result", step, id)
	return ""
}

// wantParts fails the test unless the text has every part.
func wantParts(t testing.TB, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s: got %q; want %q in it", what, text, part)
		}
	}
}

// stepSpec describes a step of a test's template.
type stepSpec struct {
	name, callable string
	after          []string
	config         string // handler.initialization
	retry          string // the retry object
	timeout        int    // seconds; 30 when 0
	kind           string // standard when empty
}

// testTemplate returns a template of the namespace t.
func testTemplate(name string, steps ...stepSpec) string {
	parts := make([]string, len(steps))
	for i, s := range steps {
		after, _ := json.Marshal(append([]string{}, s.after...))
		parts[i] = fmt.Sprintf(`{"name":%q,"type":%q,"handler":{"callable":%q,"initialization":%s},"dependencies":%s,"retry":%s,"timeout_seconds":%d}`,
			s.name, cmp.Or(s.kind, "standard"), s.callable, cmp.Or(s.config, "{}"), after, cmp.Or(s.retry, "{}"), cmp.Or(s.timeout, 30))
	}
	return fmt.Sprintf(`{"namespace":"t","name":%q,"version":"1.0.0","identity_strategy":"always_unique","steps":[%s]}`,
		name, strings.Join(parts, ","))
}

// templateDir returns a directory with templates, given as JSON.
func templateDir(t testing.TB, templates ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i, text := range templates {
		writeFile(t, filepath.Join(dir, fmt.Sprintf("%d.json", i)), []byte(text))
	}
	return dir
}
