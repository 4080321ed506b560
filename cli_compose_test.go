package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
)

// The tasks in testdata/distributed.json, which has answers of Tasker as it gave them.
const (
	distributedFails = "01a215ba-ea62-7631-a00b-f7010d37d60b"
	distributedBatch = "01a215ba-e216-73d7-9995-3c56ca53203c"
)

// newDistributed serves recorded answers of Tasker: what is not recorded is a route that it does not
// have, and a new task must say everything. It notes the paths of the requests.
func newDistributed(t *testing.T) (url string, asked *[]string) {
	t.Helper()
	var answers map[string]json.RawMessage
	if err := json.Unmarshal(must(os.ReadFile("testdata/distributed.json"))(t), &answers); err != nil {
		t.Fatal(err)
	}
	asked = new([]string)
	var mu sync.Mutex // of asked
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		*asked = append(*asked, r.Method+" "+r.URL.Path)
		mu.Unlock()
		if r.Method == http.MethodPost && r.URL.Path == "/v1/tasks" {
			var body map[string]any
			json.NewDecoder(r.Body).Decode(&body)
			for _, member := range []string{"version", "context", "initiator", "source_system", "reason"} {
				if body[member] == nil {
					http.Error(w, "Failed to deserialize the JSON body into the target type: missing field `"+member+"` at line 1 column 2", http.StatusUnprocessableEntity)
					return
				}
			}
			w.Write(answers["/v1/tasks/"+distributedBatch])
			return
		}
		text, ok := answers[r.URL.Path]
		if _, _, template := strings.Cut(r.URL.Path, "/v1/templates/"); !ok && template {
			w.Header().Set("Content-Type", jsonType)
			w.WriteHeader(404)
			w.Write([]byte(`{"error":{"code":"NOT_FOUND","message":"Template not found"}}`))
		} else if !ok || r.Method != http.MethodGet {
			w.WriteHeader(404) // without a body
		} else if status := r.URL.Query().Get("status"); status != "" && status != "pending" && status != "completed" {
			w.Header().Set("Content-Type", jsonType)
			w.WriteHeader(500)
			w.Write([]byte(`{"error":{"code":"DATABASE_ERROR","message":"Database operation failed"}}`))
		} else {
			w.Header().Set("Content-Type", jsonType)
			w.Write(text)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

// TestDistributedCommands runs commands against the answers of Tasker.
func TestDistributedCommands(t *testing.T) {
	url, _ := newDistributed(t)
	for _, tt := range []struct {
		command string
		code    int
		want    []string // of both outputs; "-" before what must not be there
	}{
		{"task list", 0, []string{"blocked_by_failures", "complete ", "-pending", "-completed"}},
		{"task list --status blocked_by_failures", 0, []string{distributedFails, "-" + distributedBatch}},
		{"task list --status error", 0, []string{"no task"}},
		{"task list --name batch --tag eu", 0, []string{distributedBatch, "-" + distributedFails}},
		{"task list --tag us", 0, []string{"no task"}},
		{"task list --context order=1 --since 100000h", 0, []string{distributedBatch, distributedFails}},
		{"task list --sort updated_at", 1, []string{"has no filter and no order sort"}},
		{"task show " + distributedFails, 0, []string{"    never", "broken"}},
		{"task explain " + distributedFails, 0, []string{`step "broken" failed for good`, "on attempt 1 of 3: the card was refused (CardRefused)",
			`needs step "broken", which failed for good`, "stepwell step reset|resolve|complete"}},
		{"task watch " + distributedFails, 4, []string{"broken  x error", "the card was refused"}},
		{"task events " + distributedFails, 0, []string{"does not list transitions", "in_progress", "blocked_by_failures"}},
		{"task events --follow", 1, []string{"has no event stream"}},
		{"task context " + distributedFails, 0, []string{`"order": 1`}},
		{"task again " + distributedFails + " --from broken", 1, []string{"has no POST /v1/tasks/" + distributedFails + "/again"}},
		{"step audit " + distributedFails + " broken", 0, []string{"the card was refused"}},
		{"step inbox", 1, []string{"has no GET /v1/steps: only Stepwell has it"}},
		{"dlq show " + distributedFails, 0, []string{"StalenessTimeout", "the card was refused"}},
		{"failures", 1, []string{"has no GET /v1/analytics/failures"}},
		{"template show tools/fails", 0, []string{"tools.broken", "broken"}},
		{"template graph tools/fails", 0, []string{"  broken   after first"}},
		{"task create tools/fails", 0, []string{"requires version: sent 1.0.0", "requires context: sent {}", "requires initiator: sent jo",
			"requires source_system", "requires reason"}},
		{"task create tools/nope", 3, []string{"there is no template tools/nope"}},
	} {
		got := runCLI(map[string]string{"STEPWELL_URL": url, "USER": "jo"}, "", strings.Fields(tt.command)...)
		all := got.stdout + got.stderr
		if got.code != tt.code {
			t.Errorf("%s: got code %d, %s; want %d", tt.command, got.code, all, tt.code)
		}
		for _, want := range tt.want {
			if bad, not := strings.CutPrefix(want, "-"); not && strings.Contains(all, bad) || !not && !strings.Contains(all, want) {
				t.Errorf("%s: got\n%s; want %q", tt.command, all, want)
			}
		}
	}
}
