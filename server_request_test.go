package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
)

// TestContentType sends bodies of a known and an unknown length: the
// Content-Type matters only if there is a body.
func TestContentType(t *testing.T) {
	api := newOrchestrationAPI(newTestService(t, serviceTest{}), nil)
	for _, tc := range []struct {
		body, given string
		length      int64
		want        int
		code        string
	}{
		{`{"name":"none"}`, "application/json", 15, 404, "NOT_FOUND"},
		{`{"name":"none"}`, "application/problem+json; charset=utf-8", -1, 404, "NOT_FOUND"},
		{`{"name":"none"}`, "text/plain", 15, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{`{"name":"none"}`, "", -1, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{``, "", 0, 400, "JSON_ERROR"},
		{``, "", -1, 400, "JSON_ERROR"},
	} {
		r := httptest.NewRequest("POST", "/v1/tasks", strings.NewReader(tc.body))
		r.ContentLength = tc.length
		r.Header.Set("Content-Type", tc.given)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		a := &answer{t, w.Code, w.Header(), w.Body.Bytes()}
		if a.status != tc.want || a.text("error.code") != tc.code {
			t.Errorf("%q as %q, length %d: got %d %s; want %d %s",
				tc.body, tc.given, tc.length, a.status, a.text("error.code"), tc.want, tc.code)
		}
	}
}

// badBodies are mistakes that every route answers in the same way. A route whose body is
// optional treats those marked absent as no body.
var badBodies = []struct {
	name, contentType, body string
	status                  int
	code                    string
	absent                  bool
}{
	{"an empty list", "application/json", `[]`, 400, "BAD_REQUEST", false},
	{"a list", "application/json", `[{}]`, 400, "BAD_REQUEST", false},
	{"an empty string", "application/json", `""`, 400, "BAD_REQUEST", false},
	{"a number", "application/json", ` 0 `, 400, "BAD_REQUEST", false},
	{"a boolean", "application/json", `true`, 400, "BAD_REQUEST", false},
	{"null", "application/json", `null`, 400, "BAD_REQUEST", true},
	{"nothing", "application/json", ``, 400, "JSON_ERROR", true},
	{"white space", "application/json", " \n", 400, "JSON_ERROR", true},
	{"a brace", "application/json", `{`, 400, "JSON_ERROR", false},
	{"a bracket", "application/json", `[`, 400, "JSON_ERROR", false},
	{"junk after the object", "application/json", `{} x`, 400, "JSON_ERROR", false},
	{"junk after a list", "application/json", `[] x`, 400, "JSON_ERROR", false},
	{"a second object", "application/json", `{}{}`, 400, "JSON_ERROR", false},
	{"a duplicate member", "application/json", `{"a":1,"a":1}`, 400, "JSON_ERROR", false},
	{"a form", "application/x-www-form-urlencoded", `a=1`, 415, "UNSUPPORTED_MEDIA_TYPE", false},
	{"an object as text", "text/plain", `{}`, 415, "UNSUPPORTED_MEDIA_TYPE", false},
	{"a list without a type", "", `[]`, 415, "UNSUPPORTED_MEDIA_TYPE", false},
}

// optionalBodies are the routes whose body is optional.
var optionalBodies = []string{
	"POST /v1/templates/{namespace}/{name}/{version}/validate", "POST /_stepwell/wait-idle", "POST /_stepwell/sandboxes",
}

// otherBodies are the routes that read no body, and the one that checks its body, a
// document, while reading it.
var otherBodies = []string{
	"POST /_stepwell/reset", "POST /v1/events/deliveries/{id}/resend", "PUT /_stepwell/state",
}

// TestBadBodies sends every mistake to every route that reads a body.
func TestBadBodies(t *testing.T) {
	s := newFixtureServer(t, serviceTest{templates: apiTemplates})
	worker := newWorkerAPI(s.world.service(), nil)
	tables := append(allRoutes(), surfaceRoutes{"orchestration", (&controlAPI{}).routes()})
	ids := strings.NewReplacer("{namespace}", "t", "{name}", "diamond", "{version}", "1.0.0")
	for _, table := range tables {
		for _, row := range table.routes {
			method, path, _ := strings.Cut(row.pattern, " ")
			if method == "GET" || method == "DELETE" || slices.Contains(otherBodies, row.pattern) {
				continue
			}
			path = pathParameter.ReplaceAllString(ids.Replace(path), "01890a5d-ac96-774b-bcce-b302099a8057")
			handler, code := http.Handler(&s.world.gates.orchestration), "error.code"
			switch table.surface {
			case "worker":
				handler, code = worker, "error"
			case "mount":
				path = worker.svc.cfg.Mount.Path + path
			}
			for _, bad := range badBodies {
				want := bad.code
				switch {
				case bad.absent && slices.Contains(optionalBodies, row.pattern):
					continue
				case table.surface == "worker":
					want = map[int]string{400: "invalid_request", 415: "unsupported_media_type"}[bad.status]
				case table.surface == "mount" && bad.status == 400:
					want = "BAD_REQUEST"
				}
				r := httptest.NewRequest(method, path, strings.NewReader(bad.body))
				r.Host = "localhost"
				r.Header.Set("Content-Type", bad.contentType)
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				a := &answer{t, w.Code, w.Header(), w.Body.Bytes()}
				if a.status != bad.status || a.text(code) != want {
					t.Errorf("%s with %s: got %d %s; want %d %s", row.pattern, bad.name, a.status, a.body, bad.status, want)
				}
			}
		}
	}
}

// referenceParameters are the query parameters that clients of the reference service send,
// whatever the route. It does not have GET /v1/steps.
var referenceParameters = []string{
	"page", "per_page", "namespace", "name", "version", "status", "initiator", "source_system", "limit", "offset",
	"resolution_status", "include_cache_stats", "hours", "min_executions", "include_dependencies", "period",
}

// TestQueryParameters sends each documented query parameter misspelled, twice, blank, and as
// another spelling of an integer, and every route parameters that it does not know.
func TestQueryParameters(t *testing.T) {
	slowAndSequential(t)
	s := newFixtureServer(t, serviceTest{templates: apiTemplates})
	worker := newWorkerAPI(s.world.service(), nil)
	ids := strings.NewReplacer("{namespace}", "t", "{name}", "diamond", "{version}", "1.0.0")
	eachOpenAPIDocument(t, func(t *testing.T, surface string, doc map[string]any) {
		contract := newAPIContract(t, surface)
		handler, prefix := onSurface(surface, http.Handler(&s.world.gates.orchestration), http.Handler(worker), worker.svc.cfg.Mount.Path)
		eachOpenAPIOperation(doc, func(route string, operation map[string]any) {
			method, path, _ := strings.Cut(route, " ")
			path = prefix + pathParameter.ReplaceAllString(ids.Replace(path), "01890a5d-ac96-774b-bcce-b302099a8057")
			status := 0  // of the last answer
			needed := "" // parameters that the operation requires besides
			refused := func(query string) string {
				t.Helper()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if strings.HasSuffix(path, "/events") {
					cancel() // which ends the stream at once
				}
				r := httptest.NewRequestWithContext(ctx, method, path+"?"+needed+query, strings.NewReader(`{}`))
				r.Host = "localhost"
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				a := &answer{t, w.Code, w.Header(), w.Body.Bytes()}
				hints := strings.Join(hintTexts(a.header), "; ")
				if status = a.status; status != 400 || hints != "" {
					return hints
				}
				if err := contractProblem(contract, a, method+" "+path); err != nil {
					t.Errorf("%s?%s: %v", route, query, err)
				}
				if a.get("message") != nil {
					return a.text("message")
				}
				return a.text("error.message")
			}
			strict := strings.HasPrefix(path, controlPath)
			if got := refused("zzz=1&zzz=2"); strict != strings.HasPrefix(got, `unknown query parameter "zzz"`) {
				t.Errorf("%s with an unknown parameter: got %q; want it refused: %v", route, got, strict)
			}
			if strict && !strings.HasPrefix(route, "GET ") {
				return
			}
			for _, name := range referenceParameters {
				if got := refused(name + "=x"); strings.Contains(got, "did you mean") && route != "GET /v1/steps" {
					t.Errorf("%s with %s, which clients of the reference send: got %q", route, name, got)
				}
			}
			parameters, _ := operation["parameters"].([]any)
			for _, p := range parameters {
				p := openAPIFollow(doc, p)
				if p["in"] != "query" {
					continue
				}
				name := p["name"].(string)
				if needed = ""; route == "GET /v1/find" && name != "q" {
					needed = "q=x&"
				}
				refused("")
				absent := status
				if got := refused(name + "=&" + name + "=%20"); status != absent {
					t.Errorf("%s with a blank %s: got %d %q; want %d, as if it were absent", route, name, status, got, absent)
				}
				schema, _ := p["schema"].(map[string]any)
				if schema["type"] == "integer" {
					for _, one := range []string{"1.0", "1e0", "10E-1"} {
						if got := refused(name + "=" + one); got != "" {
							t.Errorf("%s with %s=%s, an integer: got %q", route, name, one, got)
						}
					}
					for _, other := range []string{"1.5", "1e400", "1e", "1.0x", "-1.0"} {
						if got := refused(name + "=" + other); !strings.Contains(got, name) {
							t.Errorf("%s with %s=%s: got %q; want it refused", route, name, other, got)
						}
					}
				}
				got, want := refused(name+"=1&"+name+"=1"), name+" is given twice"
				if list := schema["type"] == "array"; list == (got == want) {
					t.Errorf("%s: got %q; want %q: %v", route, got, want, !list)
				}
				if len(name) == 1 {
					continue
				}
				swapped := name[1:2] + name[:1] + name[2:]
				for _, typo := range []string{strings.ToUpper(name), name + name[len(name)-1:], swapped} {
					if got, want := refused(typo+"=1"), `unknown query parameter "`+typo+`"; did you mean `+name+"?"; got != want {
						t.Errorf("%s: got %q; want %q", route, got, want)
					}
				}
			}
		})
	})
}

// TestTagsDifferByLife checks that a tag of a task does not fit one of another history that has the same number, that a
// restart changes no tag, and that the records after it get tags of another life.
func TestTagsDifferByLife(t *testing.T) {
	o := serviceTest{templates: apiTemplates}
	lives := map[string]bool{}
	tag := func(s *testServer, id string) string {
		tag := s.do("GET", "/v1/tasks/"+id, "").want(200).header.Get("Etag")
		lives[strings.Split(tag, "-")[0]] = true
		return tag
	}
	for range 3 {
		s := newTestServer(t, o)
		tag(s, s.create(`{"namespace":"t","name":"echo"}`))
	}
	o.dir = t.TempDir()
	svc := openTestService(t, o)
	s := (&testServer{t: t, svc: svc}).with(newOrchestrationAPI(svc, nil))
	id := s.create(`{"namespace":"t","name":"echo"}`)
	before := tag(s, id)
	for _, compact := range []bool{false, true} {
		if compact {
			noError(t, svc.store.compact())
		}
		svc = reopenTestService(t, svc, o)
		s = (&testServer{t: t, svc: svc}).with(newOrchestrationAPI(svc, nil))
		if after := tag(s, id); after != before {
			t.Errorf("got the tag %s, and %s after a restart; want the same", before, after)
		}
	}
	tag(s, s.create(`{"namespace":"t","name":"echo"}`))
	if closeTestService(t, svc); len(lives) != 5 {
		t.Errorf("got the lives %v; want 5", lives)
	}
}

// TestRacingActions sends many actions that rely on the same version of a task: one is done.
func TestRacingActions(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: apiTemplates})
	task := createWith(t, s.svc, `{}`)
	path := fmt.Sprintf("/stepwell/tasks/%s/workflow_steps/%s", task.id, task.stepID(0))
	tag := s.do("GET", path, "").want(200).header.Get("Etag")
	counts := map[int]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			req := must(http.NewRequest("PATCH", s.url+path, strings.NewReader(fmt.Sprintf(`{"retry_limit":%d}`, n+3))))(t)
			req.Header = http.Header{"Content-Type": {"application/json"}, "If-Match": {tag}}
			resp := must(http.DefaultClient.Do(req))(t)
			resp.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			counts[resp.StatusCode]++
		})
	}
	all.Wait()
	if counts[200] != 1 || counts[412] != 19 {
		t.Errorf("got %v; want one 200 and nineteen 412", counts)
	}
}

// TestIfMatchForDeadLetters checks that an update of an entry relies on the task, too.
func TestIfMatchForDeadLetters(t *testing.T) {
	s := newTestServer(t, serviceTest{templates: apiTemplates})
	id := s.do("POST", "/v1/tasks", `{"name":"fails","namespace":"t"}`).want(201).text("task_uuid")
	s.do("GET", "/v1/tasks/"+id+"?wait=terminal", "").want(200)
	entry := s.do("GET", "/v1/dlq/task/"+id, "").want(200).text("dlq_entry_uuid")
	tag := s.do("GET", "/v1/tasks/"+id+"/context", "").header.Get("Etag")
	for _, want := range []int{200, 412} {
		req := must(http.NewRequest("PATCH", s.url+"/v1/dlq/entry/"+entry, strings.NewReader(`{"resolution_notes":"seen"}`)))(t)
		req.Header = http.Header{"Content-Type": {"application/json"}, "If-Match": {tag}}
		readAnswer(t, must(http.DefaultClient.Do(req))(t)).want(want)
	}
}

// TestWaitingRequests checks that a request that waits is refused once others take all the
// places, changes nothing then, and that places are two thirds of the connections.
func TestWaitingRequests(t *testing.T) {
	for connections, want := range map[int]int64{1: 1, 2: 2, 3: 2, 3000: 2000} {
		c := defaultConfig()
		c.Web.MaxConnections = connections
		if got := newQuotas(c).waiting.most; got != want {
			t.Errorf("%d connections: got %d waiting requests; want %d", connections, got, want)
		}
	}
	s := newTestServer(t, serviceTest{templates: apiTemplates})
	s.svc.quotas.waiting.most = 0
	a := s.do("POST", "/v1/tasks?wait=1s", `{"name":"diamond","namespace":"t"}`).want(503)
	if a.text("error.code") != "BACKPRESSURE" || a.text("error.retry_after_seconds") != "1" || a.header.Get("Retry-After") != "1" ||
		a.text("error.message") != "0 requests wait already, two thirds of web.max_connections" {
		t.Errorf("got Retry-After %q and %s", a.header.Get("Retry-After"), a.body)
	}
	if got := s.do("GET", "/v1/tasks", "").want(200).text("pagination.total_count"); got != "0" {
		t.Errorf("got %s tasks; want none", got)
	}
	id := s.create(`{"name":"manual","namespace":"t"}`)
	for _, r := range [][3]string{
		{"GET", "/v1/tasks/" + id + "?wait=terminal", ""},
		{"POST", "/v1/steps/claim", `{"callables":["*"],"wait_seconds":1}`},
	} {
		if a := s.do(r[0], r[1], r[2]).want(503); a.text("error.code") != "BACKPRESSURE" {
			t.Errorf("%s: got %s; want BACKPRESSURE", r[1], a.body)
		}
	}
	s.do("POST", "/v1/steps/claim", `{"callables":["none"]}`).want(200)
	if a := s.do("GET", "/stepwell/tasks/"+id+"?wait=terminal", "").want(503); a.text("error.code") != "SERVICE_UNAVAILABLE" {
		t.Errorf("got %s; want SERVICE_UNAVAILABLE", a.body)
	}
}

// taskBody begins a request with a body of a length.
func taskBody(length int, first string) string {
	return fmt.Sprintf("POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", length, first)
}

// TestRequestMemory takes nearly all memory for requests: a long body and a long answer are refused, short ones are not.
// Afterwards nothing is held.
func TestRequestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipedServer(t, serviceTest{templates: apiTemplates})
		long := fmt.Sprintf(`{"namespace":"t","name":"manual","context":{"a":%q}}`, strings.Repeat("a", 1<<19))
		p.answerOn(p.dial(taskBody(len(long), long))).want(201)
		memory := &p.svc.quotas.memory
		memory.take(memory.most)
		const short = `{"namespace":"t","name":"manual"}`
		p.answerOn(p.dial(taskBody(len(short), short))).want(201)
		for _, a := range []*answer{p.answerOn(p.dial(taskBody(len(long), long[:2<<10]))), p.ask("/v1/tasks"), p.ask("/metrics")} {
			if a.want(503); a.text("error.code") != "BACKPRESSURE" || a.header.Get("Retry-After") != "1" {
				t.Errorf("got %v and %s; want a refusal for a second", a.header, a.body)
			}
		}
		memory.give(memory.most)
		stalled := p.dial(taskBody(len(long), long[:100<<10]))
		if synctest.Wait(); memory.used.Load() < 100<<10 || memory.used.Load() > 120<<10 {
			t.Errorf("got %d bytes held; want those that have come", memory.used.Load())
		}
		stalled.Close()
		p.ask("/v1/tasks").want(200)
		if synctest.Wait(); memory.used.Load() != 0 || memory.refused.Load() != 3 {
			t.Errorf("got %d bytes held and %d refusals; want none and 3", memory.used.Load(), memory.refused.Load())
		}
	})
}

// TestRequestsAtWork refuses requests beyond those at work, except on public routes. Those that wait, and event streams,
// do not count.
func TestRequestsAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipedServer(t, serviceTest{templates: apiTemplates})
		q := &p.svc.quotas.requests
		q.most = 1
		id := mustCreate(t, p.svc, "manual").id.String()
		get := func(path string) { p.dial(fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)) }
		get("/v1/tasks/" + id + "?wait=terminal&timeout=1h")
		synctest.Wait()
		p.get("/v1/events")
		p.ask("/v1/tasks/" + id).want(200)
		p.dial(taskBody(100, "{"))
		synctest.Wait()
		a := p.ask("/v1/tasks").want(503)
		if a.text("error.code") != "BACKPRESSURE" || a.header.Get("Retry-After") != "1" || a.header.Get("Connection") != "" || q.refused.Load() != 1 {
			t.Errorf("got %v and %s; want a refusal for a second, on a connection that stays", a.header, a.body)
		}
		p.ask("/health/live").want(200)
	})
}

// TestAnnouncedBody announces a large body and sends little of it: it takes no memory for the
// missing part.
func TestAnnouncedBody(t *testing.T) {
	for _, sent := range []int{0, 1, 100, firstChunk, 100 << 10} {
		r := httptest.NewRequest("POST", "/v1/tasks", strings.NewReader(strings.Repeat("a", sent)))
		r.ContentLength = 4 << 20
		r.Body = io.NopCloser(io.MultiReader(r.Body, iotest.ErrReader(io.ErrUnexpectedEOF)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readBody(r)
		runtime.ReadMemStats(&after)
		if kindOf(err) != badRequest {
			t.Errorf("%d bytes: got %v; want a refusal", sent, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > uint64(2*sent+2*chunkSize) {
			t.Errorf("%d bytes: got %d bytes allocated; want no more than came", sent, got)
		}
	}
}

// TestBodySizes reads bodies around the sizes at which their memory grows.
func TestBodySizes(t *testing.T) {
	for _, size := range []int{
		2, bytes.MinRead - 1, bytes.MinRead, bytes.MinRead + 1, firstChunk - 1, firstChunk, firstChunk + 1,
		firstChunk + chunkSize - 1, firstChunk + chunkSize, firstChunk + chunkSize + 1, firstChunk + 3*chunkSize,
	} {
		text := `{"a":"` + strings.Repeat("x", max(size-8, 0)) + `"}`
		for _, announced := range []int64{int64(len(text)), -1} {
			for name, in := range map[string]io.Reader{
				"at once": strings.NewReader(text), "in halves": iotest.HalfReader(strings.NewReader(text)),
				"with its end": iotest.DataErrReader(strings.NewReader(text)),
			} {
				r := httptest.NewRequest("POST", "/", in)
				r.ContentLength = announced
				r.Header.Set("Content-Type", "application/json")
				if got, err := readBody(r); string(got) != text || err != nil {
					t.Errorf("%d bytes %s, announced %d: got %d, %v", len(text), name, announced, len(got), err)
				}
			}
		}
	}
}
