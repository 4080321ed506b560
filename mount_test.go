package main

// The mount-point API: its prefix, links, errors, authentication and handlers, and
// its agreement with the orchestration role.

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"testing"
	"time"
)

func TestMountPaths(t *testing.T) {
	for path, want := range map[string]string{
		"": "", "/stepwell": "", "/ops/flow-1/x.y": "", "/healthy": "", "/v12": "",
		"stepwell": "does not begin with a slash", "/": "ends with a slash", "/a/": "ends with a slash",
		"//a": "is not a path", "/a//b": "is not a path", "/a b": "is not a path", "/{x}": "is not a path",
		"/../a": "is not a path", "/a/..": "is not a path", "/a?b": "is not a path", "/a%2fb": "is not a path",
		"/1/2/3/4/5/6/7/8/9": "is not a path", "/" + strings.Repeat("x", 200): "is not a path",
		"/v1": "below /v1", "/v1/x": "below /v1", "/api/flow": "below /api", "/api-docs": "below /api-docs",
		"/health": "below /health", "/health/x": "below /health", "/metrics": "below /metrics",
		"/config": "below /config", "/console": "below /console", "/consoles": "", "/_stepwell/x": "below /_stepwell",
	} {
		err := checkMountPath(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v; want %q", path, err, want)
		}
	}
	for _, row := range (&orchestrationAPI{}).routes() {
		for _, pattern := range row.patterns() {
			if first := strings.Split(pattern, "/")[1]; first != "{$}" && checkMountPath("/"+first) == nil {
				t.Errorf("the mount point may hide %s", pattern)
			}
		}
	}
	wantConfigProblems(t, configInput{files: map[string]string{"stepwell.toml": "mount.path = '/v1/x'"}},
		"stepwell.toml:1: mount.path: \"/v1/x\" is at or below /v1, which the orchestration API uses")
}

// TestMountElsewhere serves the surface with another prefix, and turns it off.
func TestMountElsewhere(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, serviceTest{config: func(c *Config) { c.Mount.Path = "/ops/flows" }})
	a := s.do("POST", "/ops/flows/tasks", `{"name":"diamond","namespace":"demo"}`).want(201)
	location := a.header.Get("Location")
	if location != "/ops/flows/tasks/"+a.text("id") {
		t.Errorf("got Location %s; want one below /ops/flows", location)
	}
	s.do("GET", location, "").want(200)
	if got := s.do("GET", "/ops/flows/api-docs.json", "").want(200).text("servers.0.url"); got != "/ops/flows" {
		t.Errorf("got server %s; want /ops/flows", got)
	}
	if got := s.do("GET", "/stepwell/tasks", "").want(404).get("error.request_id"); got == nil {
		t.Error("a path that is no mount point is answered in its words")
	}
	if got := s.do("GET", "/ops", "").want(404).get("error.request_id"); got == nil {
		t.Error("a path above the mount point is answered in its words")
	}
	off := newTestServer(t, serviceTest{config: func(c *Config) { c.Mount.Path = "" }})
	off.do("GET", "/stepwell/tasks", "").want(404)
	off.do("GET", "/tasks", "").want(404)
	off.do("GET", "/v1/tasks", "").want(200)
}

// TestMountLinks checks that links have the prefix that a trusted proxy removed, and no prefix
// from others or in a wrong form.
func TestMountLinks(t *testing.T) {
	for _, trusted := range []bool{true, false} {
		s := newTestService(t, serviceTest{config: func(c *Config) {
			if trusted {
				c.Web.TrustedProxies = []string{"192.0.2.0/24"}
			}
		}})
		for given, want := range map[string]string{
			"": "", "/edge": "/edge", "/edge/": "/edge", "//evil.example": "", "/a\"b": "", "edge": "", "/edge/../x": "",
		} {
			if !trusted {
				want = ""
			}
			a := served(t, newOrchestrationAPI(s, nil), "POST", "/stepwell/tasks", `{"name":"diamond","namespace":"demo"}`,
				"X-Forwarded-Prefix: "+given)
			if got := a.header.Get("Location"); !strings.HasPrefix(got, want+"/stepwell/tasks/") {
				t.Errorf("trusted %v, prefix %q: got %s; want one below %s/stepwell", trusted, given, got, want)
			}
		}
	}
}

// wantMountError checks an answer against the surface's form of errors.
func wantMountError(t *testing.T, a *answer, status int, kind string) {
	t.Helper()
	a.want(status)
	checkShape(t, "MountError", a.body)
	if a.text("error.type") != kind || a.get("error.request_id") != nil {
		t.Errorf("got %s; want %s alone", a.body, kind)
	}
	if a.header.Get("X-Request-Id") == "" {
		t.Error("got no X-Request-Id")
	}
}

// TestMountStarting sends requests while the store is being read.
func TestMountStarting(t *testing.T) {
	parts := testParts(t, serviceTest{})
	parts.shows = new(readProgress)
	a := newOrchestrationAPI(startingService(&parts), nil)
	ask := func(path string) *answer { return served(t, a, "GET", path, "") }
	contract := newAPIContract(t, "mount")
	for path, want := range map[string]int{"/stepwell/health/live": 200, "/stepwell/health/ready": 503, "/stepwell": 200} {
		a := ask(path)
		if a.status != want {
			t.Errorf("%s: got %d; want %d", path, a.status, want)
		}
		if err := contractProblem(contract, a, "GET "+path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{"/stepwell/tasks", "/stepwell/health/status", "/stepwell/nowhere"} {
		wantMountError(t, ask(path), 503, "ServiceUnavailable")
	}
}

// TestMountFailures tries a handler that panics, a service that shuts down, and a
// full disk.
func TestMountFailures(t *testing.T) {
	log := &logLines{}
	s := newTestService(t, serviceTest{log: log})
	api := newOrchestrationAPI(s, nil)
	fall := func(*responseWriter, *http.Request) (any, error) { panic("oops") }
	api.mount.surface.handle([]route{{"GET /stepwell/panic", public, fall}})
	ask := func(method, path, body string) *answer { return served(t, api, method, path, body) }
	wantMountError(t, ask("GET", "/stepwell/panic", ""), 500, "InternalError")
	if !strings.Contains(log.String(), "oops") {
		t.Errorf("got log %s; want the panic in it", log)
	}
	s.finish(context.Background())
	a := ask("POST", "/stepwell/tasks", `{"name":"diamond","namespace":"demo"}`)
	wantMountError(t, a, 503, "ServiceUnavailable")
	if a.header.Get("Retry-After") == "" {
		t.Error("got no Retry-After")
	}
	for _, path := range []string{"/stepwell/health/ready", "/stepwell/health/status"} {
		if a := ask("GET", path, ""); a.status != 503 || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: got %d, %v; want 503, not stored", path, a.status, a.header)
		}
	}
}

// TestMountInheritsAuth checks the effective values of [mount.auth].
func TestMountInheritsAuth(t *testing.T) {
	load := func(lines ...string) (*Config, *provenance) {
		t.Helper()
		c, p := must2(configInput{files: map[string]string{"stepwell.toml": strings.Join(lines, "\n")}}.load())(t)
		return c, p
	}
	role := []string{"[orchestration.web.auth]", "enabled = true", "jwt_public_key_path = 'p'", "jwt_issuer = 'i'"}
	c, p := load(role...)
	if !c.mountSharesAuth() || p.of("mount.auth.jwt_issuer") != p.of("orchestration.web.auth.jwt_issuer") {
		t.Errorf("got %+v from %v; want the role's", c.Mount.Auth, p.of("mount.auth.jwt_issuer"))
	}
	c, _ = load(append(role, "[mount.auth]", "jwt_public_key = 'own'")...)
	if a := c.Mount.Auth; a.JWTPublicKey != "own" || a.JWTPublicKeyPath != "" || a.JWTIssuer != "i" || !a.Enabled {
		t.Errorf("got %+v; want its own key in place of the role's, and the rest inherited", a)
	}
	c, _ = load(append(role, "[mount.auth]", "enabled = false")...)
	if c.Mount.Auth.Enabled || !c.Orchestration.Web.Auth.Enabled {
		t.Error("switching it off at the mount point: got it on there, or off at the role")
	}
	file := func(text string) configInput { return configInput{files: map[string]string{"stepwell.toml": text}} }
	wantConfigProblems(t, file("[orchestration.web.auth]\nenabled = true"),
		"stepwell.toml:2: orchestration.web.auth.enabled: nothing can verify credentials: "+
			"configure a key, a JWKS, API keys or an authenticator")
	wantConfigProblems(t, file("[mount.auth]\nenabled = true"),
		"stepwell.toml:2: mount.auth.enabled: nothing can verify credentials: "+
			"configure a key, a JWKS, API keys or an authenticator")
}

// TestMountAuthenticator checks that the authenticator is asked only about requests
// below the mount point, with the path that the caller used.
func TestMountAuthenticator(t *testing.T) {
	who := newWhoServer(t)
	s := newTestServer(t, serviceTest{config: func(c *Config) {
		a := &c.Orchestration.Web.Auth
		a.Enabled, a.APIKeysEnabled, a.APIKeys = true, true, slices.Clone(surfaceKeys)
		c.Mount.Auth = *a
		c.Mount.Auth.AuthenticatorURL = who.URL
	}})
	who.say(200, `{"subject": "ann", "permissions": ["tasks:list"]}`)
	s.do("GET", "/stepwell/tasks?page=1", "").want(200)
	asked := who.questions()
	if len(asked) != 1 || asked[0].Header.Get("X-Forwarded-Uri") != "/stepwell/tasks?page=1" {
		t.Fatalf("got questions %v; want one about /stepwell/tasks?page=1", asked)
	}
	if got := s.do("GET", "/stepwell/handlers", "").want(403).text("error.type"); got != "AuthorizationError" {
		t.Errorf("got %s; want AuthorizationError", got)
	}
	who.say(401, "")
	if got := s.do("GET", "/stepwell/tasks", "").want(401).text("error.type"); got != "AuthenticationError" {
		t.Errorf("got %s; want AuthenticationError", got)
	}
	who.say(500, "")
	if got := s.do("GET", "/stepwell/tasks", "").want(503).text("error.type"); got != "ServiceUnavailable" {
		t.Errorf("got %s; want ServiceUnavailable", got)
	}
	who.questions()
	s.do("GET", "/v1/tasks", "").want(401)
	if asked := who.questions(); len(asked) != 0 {
		t.Errorf("got questions %v; want none about the role's requests", asked)
	}
}

// agreeing lists the members that must be equal, by their names at the mount point.
var (
	agreeingTask = map[string]string{
		"id": "task_uuid", "task_id": "task_uuid", "name": "name", "namespace": "namespace", "version": "version",
		"state": "status", "context": "context", "initiator": "initiator", "source_system": "source_system",
		"reason": "reason", "tags": "tags", "priority": "priority", "created_at": "created_at",
		"updated_at": "updated_at", "completed_at": "completed_at", "correlation_id": "correlation_id",
	}
	agreeingStep = map[string]string{
		"id": "step_uuid", "workflow_step_id": "step_uuid", "task_id": "task_uuid", "name": "name",
		"state": "current_state", "attempts": "attempts", "retry_limit": "max_attempts",
		"retry_eligible": "retry_eligible", "completed_at": "completed_at", "last_attempted_at": "last_attempted_at",
	}
)

func checkAgreement(t testing.TB, api http.Handler, id string) {
	t.Helper()
	ask := func(path string, into any) {
		a := served(t, api, "GET", path, "")
		if err := json.Unmarshal(a.body, into); a.status != 200 || err != nil {
			t.Fatalf("GET %s: got %d, %v: %s", path, a.status, err, a.body)
		}
	}
	var mount, role map[string]any
	ask("/stepwell/tasks/"+id, &mount)
	ask("/v1/tasks/"+id, &role)
	wantAgreement(t, agreeingTask, mount, role)
	var list struct{ Tasks []map[string]any }
	ask("/stepwell/tasks?per_page=100", &list)
	at := slices.IndexFunc(list.Tasks, func(task map[string]any) bool { return task["id"] == id })
	if at < 0 {
		t.Fatalf("task %s is not listed", id)
	}
	wantAgreement(t, agreeingTask, list.Tasks[at], role)
	var roleSteps []map[string]any
	ask("/v1/tasks/"+id+"/workflow_steps", &roleSteps)
	mountSteps := mount["steps"].([]any)
	if len(mountSteps) != len(roleSteps) {
		t.Fatalf("task %s: got %d steps; want %d", id, len(mountSteps), len(roleSteps))
	}
	for _, step := range roleSteps {
		i := slices.IndexFunc(mountSteps, func(s any) bool { return s.(map[string]any)["id"] == step["step_uuid"] })
		if i < 0 {
			t.Fatalf("task %s: got no step %v", id, step["step_uuid"])
		}
		m := mountSteps[i].(map[string]any)
		wantAgreement(t, agreeingStep, m, step)
		if n := fmt.Sprint(len(m["parents_ids"].([]any))); n != fmt.Sprint(step["total_parents"]) {
			t.Errorf("step %v: got %s parents; want %v", m["id"], n, step["total_parents"])
		}
		results, _ := step["results"].(map[string]any)
		switch {
		case results == nil || results["success"] == true:
			if wire.Text(m["results"]) != wire.Text(results["result"]) {
				t.Errorf("step %v: got results %v; want %v", m["id"], m["results"], results["result"])
			}
		default:
			failed, err := m["results"].(map[string]any), results["error"].(map[string]any)
			if failed["error"] != err["message"] || failed["error_class"] != err["error_type"] ||
				failed["retryable"] != err["retryable"] {
				t.Errorf("step %v: got results %v; want those of %v", m["id"], failed, err)
			}
		}
	}
}

func wantAgreement(t testing.TB, members map[string]string, mount, role map[string]any) {
	t.Helper()
	for at, of := range members {
		got, ok := mount[at]
		if want, has := role[of]; !ok || !has || wire.Text(got) != wire.Text(want) {
			t.Errorf("%v: got %s %v; want %s %v", mount["id"], at, got, of, want)
		}
	}
}

// Authentication at the mount point, where it differs from that of the role.

// TestMountAuthenticatorElsewhere uses a proxy that removes a part of the path: the
// authenticator receives the path as the server sees it, and links have the path of the caller.
func TestMountAuthenticatorElsewhere(t *testing.T) {
	who := newWhoServer(t)
	who.say(200, `{"subject": "ann", "permissions": ["tasks:*"]}`)
	s := newTestService(t, serviceTest{config: func(c *Config) {
		c.Mount.Path, c.Web.TrustedProxies = "/ops/flows", []string{"192.0.2.0/24"}
		c.Mount.Auth.Enabled, c.Mount.Auth.AuthenticatorURL = true, who.URL
	}})
	body := strings.NewReader(`{"name":"diamond","namespace":"demo"}`)
	r := httptest.NewRequest("POST", "/ops/flows/tasks?wait=9s", body)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "X-Forwarded-Prefix": "/edge",
		"X-Forwarded-Uri": "/elsewhere", "X-Forwarded-Method": "GET",
	} {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	newOrchestrationAPI(s, nil).ServeHTTP(w, r)
	a := (&answer{t, w.Code, w.Header(), w.Body.Bytes()}).want(201)
	if want := "/edge/ops/flows/tasks/" + a.text("id"); a.header.Get("Location") != want {
		t.Errorf("got Location %s; want %s", a.header.Get("Location"), want)
	}
	asked := who.questions()
	if len(asked) != 1 {
		t.Fatalf("got %d questions; want 1", len(asked))
	}
	for name, want := range map[string]string{
		"X-Forwarded-Uri": "/ops/flows/tasks?wait=9s", "X-Forwarded-Method": "POST",
	} {
		if got := asked[0].Header.Get(name); got != want {
			t.Errorf("the authenticator received %s %q; want %q", name, got, want)
		}
	}
}

// TestHandlerAvailable uses steps of each kind: a handler is available if each of its steps can
// be run, here or by an outside actor.
func TestHandlerAvailable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	noError(t, os.WriteFile(filepath.Join(dir, "there"), []byte("#!/bin/sh\n"), 0o700))
	writeFile(t, filepath.Join(dir, "text"), []byte("no program"))
	programs := func(c *workerConfig) { c.AllowExec, c.ExecPath = true, dir }
	for _, tt := range []struct {
		callables []string
		config    func(c *workerConfig)
		want      bool
	}{
		{nil, nil, true},
		{[]string{"builtin:noop", "http://127.0.0.1:1/nobody-listens", "Shop::Order"}, nil, true},
		{[]string{"exec:there"}, nil, false},
		{[]string{"exec:there"}, programs, true},
		{[]string{"exec:" + filepath.Join(dir, "there")}, programs, true},
		{[]string{"builtin:noop", "exec:absent"}, programs, false},
		{[]string{"exec:text", "builtin:noop"}, programs, false},
		{[]string{"Shop::Order"}, func(c *workerConfig) { c.Handlers = map[string]string{"Shop::*": "exec:there"} }, false},
		{[]string{"Shop::Order"}, func(c *workerConfig) { c.DefaultHandler = "exec:there" }, false},
		{[]string{"exec:there"}, func(c *workerConfig) { c.Handlers = map[string]string{"exec:*": "builtin:noop"} }, true},
	} {
		o := serviceTest{config: func(c *Config) {
			if tt.config != nil {
				tt.config(&c.Worker)
			}
		}}
		var steps []stepSpec
		for i, callable := range tt.callables {
			steps = append(steps, stepSpec{name: fmt.Sprint("s", i), callable: callable})
		}
		o.extra = append(o.extra, testTemplate("x", steps...))
		a := newTestServer(t, o).do("GET", "/stepwell/handlers/t/x", "").want(200)
		if a.get("available") != tt.want {
			t.Errorf("%q: got available %v; want %v", tt.callables, a.get("available"), tt.want)
		}
	}
}

// TestAdjustmentIsAsDeclared sends bodies with null, which means "not given": the document allows what the service takes.
func TestAdjustmentIsAsDeclared(t *testing.T) {
	s := newTestServer(t, serviceTest{extra: []string{testTemplate("x", stepSpec{name: "a", callable: "Outside::A"})}})
	id := s.create(`{"namespace":"t","name":"x"}`)
	step := "/stepwell/tasks/" + id + "/workflow_steps/" + s.do("GET", "/stepwell/tasks/"+id, "").text("steps.0.id")
	doc := must(wire.Decode(openAPIFile))(t).(map[string]any)
	schema := map[string]any{"$ref": "#/components/schemas/StepAdjustment"}
	for body, taken := range map[string]bool{
		`{"retry_limit":5}`: true, `{"inputs":{}}`: true, `{"retry_limit":5,"inputs":null}`: true, `{"retry_limit":null,"inputs":{"n":1}}`: true,
		`{"workflow_step":{"inputs":{}}}`: true, `{"workflow_step":null,"retry_limit":5}`: true,
		`{}`: false, `{"inputs":null}`: false, `{"retry_limit":null}`: false, `{"retry_limit":null,"inputs":null}`: false,
		`{"workflow_step":null}`: false, `{"workflow_step":{"inputs":null}}`: false, `{"other":1}`: false, `{"inputs":null,"other":1}`: false,
		`{"inputs":[]}`: false, `{"retry_limit":0}`: false,
	} {
		problems := wire.SchemaProblems(doc, schema, must(wire.Decode([]byte(body)))(t))
		if a := s.do("PATCH", step, body); (len(problems) == 0) != taken || (a.status == 200) != taken {
			t.Errorf("%s: got %d, %s, and %v of the document; want it taken: %t", body, a.status, a.body, problems, taken)
		}
	}
}

// goStale ends a task as stale, if its state allows it.
func goStale(t *testing.T, s *service, id uuid) {
	t.Helper()
	must(s.store.update(func(c *change) error {
		v, err := c.task(id)
		if err != nil {
			return err
		}
		if _, ok := v.state.next(taskStale); !ok {
			return nil
		}
		return c.append(v, &record{kind: recStale, step: -1, stale: &staleMark{limit: 1, reason: noDLQReason}})
	}))(t)
}

// addTask counts a task step by step.
func (v *mountFigures) addTask(t *task) {
	v.Tasks.add(t.state.brief(), 1)
	for i := range t.steps {
		s := &t.steps[i]
		v.Steps.add(s.state.brief(), 1)
		switch {
		case s.state == stepWaitingForRetry:
			v.Retries.InBackoff++
		case s.state == stepInError && (s.attempts == 0 || t.def(i).retry.Retryable && s.attempts < s.maxAttempts):
			v.Retries.RetryableErrors++
		case s.state == stepInError:
			v.Retries.ExhaustedRetries++
		}
	}
}

// newMountAnalyticsServer serves only the two endpoints.
func newMountAnalyticsServer(t *testing.T) (*testServer, *story) {
	s, y := newStoryServer(t)
	a := &mountAPI{surface: newSurface(s.svc, nil, "orchestration", orchestrationError)}
	a.surface.handle([]route{
		{"GET /analytics/performance", nil, a.performance},
		{"GET /analytics/bottlenecks", nil, a.bottlenecks},
	})
	return s.with(a.surface), y
}

func TestMountAnalyticsAreCached(t *testing.T) {
	s, y := newMountAnalyticsServer(t)
	for path, ttl := range map[string]time.Duration{
		"/analytics/performance": 90 * time.Second, "/analytics/bottlenecks?namespace=t": 2 * time.Minute,
	} {
		ask := func(wait time.Duration, cached bool, at instant) {
			t.Helper()
			y.clock.advance(wait)
			y.create("chain")
			wantJSON(t, s.do("GET", path, "").want(200), map[string]string{
				"cache_info.cached": fmt.Sprint(cached), "generated_at": at.zoned()})
		}
		first := y.clock.now()
		ask(0, false, first)
		ask(0, true, first)
		ask(ttl-time.Microsecond, true, first)
		ask(time.Microsecond, false, first.add(ttl))
		ask(ttl/2, true, first.add(ttl))
		ask(ttl, false, first.add(ttl*5/2))
	}
}
