package main

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
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

// TestConsoleFront checks the console in front of Tasker: what it composes, leaves out and refuses, and
// what it sends.
func TestConsoleFront(t *testing.T) {
	base, asked := newDistributed(t)
	p := &process{getenv: func(string) string { return "" }, now: realNow, stderr: os.Stderr}
	f := must(newFront(t.Context(), &client{p: p, url: base, base: base, http: http.DefaultClient}, "127.0.0.1:0", slog.New(slog.DiscardHandler)))(t)
	s := httptest.NewServer(f.surface)
	defer s.Close()
	task := "/v1/tasks/" + distributedFails
	for _, tt := range []struct {
		method, path, body, header string
		status                     int
		want                       string
	}{
		{"GET", "/console/tasks", "", "", 200, "data-far="},
		{"GET", "/v1/tasks?per_page=5&cursor=", "", "", 200, `"status":"blocked_by_failures"`},
		{"GET", "/v1/tasks?status=blocked_by_failures&per_page=5", "", "", 200, `"total_count":1`},
		{"GET", "/v1/tasks?sort=-updated_at", "", "", 400, "NOT_AVAILABLE"},
		{"GET", task + "/explain", "", "", 200, `"cause":"failed"`},
		{"GET", task + "/explain", "", "", 200, `"cause":"failed"`},
		{"GET", task + "/transitions", "", "", 200, `"to_state":"in_progress"`},
		{"GET", "/v1/templates/tools/fails/1.0.0", "", "", 200, `"dependencies":["first"]`},
		{"GET", "/v1/events", "", "", 404, "NOT_AVAILABLE"},
		{"POST", "/v1/tasks", `{"name":"fails","namespace":"tools"}`, "", 200, `"name":"batch"`},
		{"POST", "/v1/tasks", `{"name":"fails","namespace":"tools"}`, "Origin: http://other.example", 400, "may not do this"},
		{"GET", "/metrics", "", "", 404, "no such path"},
	} {
		r := must(http.NewRequest(tt.method, s.URL+tt.path, strings.NewReader(tt.body)))(t)
		r.Header.Set("Content-Type", jsonType)
		if name, value, ok := strings.Cut(tt.header, ": "); ok {
			r.Header.Set(name, value)
		}
		resp := must(http.DefaultClient.Do(r))(t)
		text := string(must(io.ReadAll(resp.Body))(t))
		if resp.StatusCode != tt.status || !strings.Contains(text, tt.want) {
			t.Errorf("%s %s: got %d, %s; want %d, %s", tt.method, tt.path, resp.StatusCode, text, tt.status, tt.want)
		}
	}
	if n := len(slices.DeleteFunc(slices.Clone(*asked), func(p string) bool { return p != "GET "+task+"/explain" })); n != 1 {
		t.Errorf("asked %d times for explanations; want once", n)
	}
}

// TestFrontKeepsCredentials checks that the service gets the browser's credentials, and nothing else that is the
// browser's or the command's.
func TestFrontKeepsCredentials(t *testing.T) {
	var seen []http.Header
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Header)
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Content-Type", jsonType)
		w.WriteHeader(401)
		w.Write([]byte(`{"error":{"message":"no credentials"}}`))
	}))
	defer far.Close()
	p := &process{getenv: func(string) string { return "secret" }, now: realNow, stderr: os.Stderr}
	f := must(newFront(t.Context(), &client{p: p, url: far.URL, base: far.URL, http: http.DefaultClient}, "127.0.0.1:0", slog.New(slog.DiscardHandler)))(t)
	s := httptest.NewServer(f.surface)
	defer s.Close()
	r := must(http.NewRequest("GET", s.URL+"/v1/dlq", nil))(t)
	for _, h := range [][2]string{{"Authorization", "Bearer mine"}, {"Cookie", "other=1"}, {"Referer", s.URL}, {"Origin", s.URL}} {
		r.Header.Set(h[0], h[1])
	}
	resp := must(http.DefaultClient.Do(r))(t)
	resp.Body.Close()
	if resp.StatusCode != 401 || resp.Header.Get("Access-Control-Allow-Origin") != "" || resp.Header.Get("Set-Cookie") != "" {
		t.Errorf("got %d, %v; want 401 without what lets others read it", resp.StatusCode, resp.Header)
	}
	first, last := seen[0], seen[len(seen)-1]
	if first.Get("Authorization") != "" || first.Get("X-Api-Key") != "" {
		t.Errorf("at the start, got %v; want no credentials of the environment", first)
	}
	if last.Get("Authorization") != "Bearer mine" || last.Get("Cookie") != "" || last.Get("Origin") != "" || last.Get("Referer") != "" {
		t.Errorf("got %v; want only the credentials of the browser", last)
	}
	if page := f.surface; page.guard == nil {
		t.Error("got no guard; want the rules for Host and Origin")
	}
}
