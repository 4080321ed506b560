package main

import (
	"fmt"
	"io"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestRequestAllocations sends hostile bodies to every route that takes one, and counts what is allocated for them. What
// the largest bodies take is measured by TestRequestBudgets of the whole program.
func TestRequestAllocations(t *testing.T) {
	sequential(t)
	const size, most = 64 << 10, 96 << 20 // bytes
	s := newFixtureServer(t, serviceTest{log: io.Discard, templates: apiTemplates, config: func(c *Config) {
		c.Templates.EnforceInputSchema = "reject"
	}})
	many := func(open, part, close string) func(size int) string {
		return func(size int) string {
			b := []byte(open)
			for len(b) < size {
				b = fmt.Appendf(b, part, len(b))
			}
			return strings.TrimSuffix(string(b), ",") + close
		}
	}
	values := map[string]func(size int) string{
		"numbers": many("[", "1%.0d,", "]"), "members": many("{", `"%d":0,`, "}"), "unknown objects": many("[", `{"a%d":{}},`, "]"),
		"depth": many("[", strings.Repeat("[", 50)+"%d"+strings.Repeat("]", 50)+",", "]"), "a text": many(`"`, "a%.0d", `"`),
		"patterns":  many(`{"properties":{`, `"%d":{"pattern":"a{1000}"},`, "}}"),
		"a pattern": many(`{"pattern":"`, `(?:\\p{L}{0,50}){20}%d`, `"}`),
	}
	members := []string{
		"name", "context", "tags", "options", "task", "inputs", "action_type", "completion_data", "callables", "complete", "steps",
		"result", "error", "metadata", "cursor", "lease", "stubs", "match", "outcomes", "order", "input_schema", "default_context",
		"seed", "advance", "timeout", "resolution_notes",
	}
	frames := map[string]string{
		"members": `{"` + strings.Join(members, `":@,"`) + `":@}`,
		"template": `{"namespace":"t","name":"x","version":"1.0.0","input_schema":@,"steps":[{"name":"a","handler":{"callable":"b"},` +
			`"result_schema":@,"publishes_events":[{"name":"e","description":"","schema":@}]}]}`,
		"checked": `{"namespace":"t","name":"checked","context":{"a":@}}`,
		"stub":    `{"match":{"context":{"a":@}},"outcomes":[{"result":@}]}`,
	}
	routes := 0
	for _, table := range append(allRoutes(), surfaceRoutes{"orchestration", (&controlAPI{}).routes()}) {
		for _, row := range table.routes {
			method, path, _ := strings.Cut(row.pattern, " ")
			if method == "GET" || method == "DELETE" {
				continue
			}
			routes++
			to := &s.world.gates.orchestration
			if table.surface == "worker" {
				to = &s.world.gates.worker
			} else if table.surface == "mount" {
				path = s.world.service().cfg.Mount.Path + path
			}
			path = regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "0198c1f2-7a10-7c3b-9d42-5b1f0a6e2cff")
			for what, value := range values {
				for frame, text := range frames {
					text = strings.ReplaceAll(text, "@", value(size/strings.Count(text, "@")))
					r := httptest.NewRequest(method, path, strings.NewReader(text))
					r.Header.Set("Content-Type", "application/json")
					w := httptest.NewRecorder()
					took := allocated(func() { to.ServeHTTP(w, r) })
					if took > most || w.Code >= 500 {
						t.Errorf("%s, %s of %s: got %d with %d bytes allocated; want at most %d", row.pattern, frame, what, w.Code, took, most)
					}
				}
			}
		}
	}
	if routes < 20 {
		t.Errorf("got %d routes with a body; want those of all surfaces", routes)
	}
	if used := s.world.service().quotas.memory.used.Load(); used != 0 {
		t.Errorf("got %d bytes still in use; want none", used)
	}
}

// TestRequestJournal queries the requests and the handler calls.
func TestRequestJournal(t *testing.T) {
	s := journalServer(t)
	s.stub(`{"match":{"name":"fail"},"outcomes":[{"fault":"worker_lost"},{"result":1}]}`)
	id := s.create(`{"namespace":"t","name":"pair","context":{"n":12345678901234567890}}`)
	s.create(`{"namespace":"t","name":"fail"}`)
	s.do("POST", "/_stepwell/wait-idle", "").want(200)
	s.do("GET", "/v1/nothing?x=http://me:secret@h/", "").want(404)
	s.do("POST", "/v1/tasks", `{"name":`).want(400)
	for _, row := range []struct{ query, want string }{
		{"?kind=request", "POST /v1/tasks 201, POST /v1/tasks 201, GET /v1/nothing 404, POST /v1/tasks 400"},
		{"?status=201&limit=1", "POST /v1/tasks 201"},
		{"?method=GET&path=/v1/no", "GET /v1/nothing 404"},
		{"?surface=worker", ""},
		{"?name=pair", "a 1 false true, b 1 false true"},
		{"?task_uuid=" + id + "&step=b", "b 1 false true"},
		{"?kind=handler&limit=1&stubbed=true&attempt=1", "a 1 true true"},
		{"?name=fail&since=2000-01-01T00:00:00Z&namespace=t", "a 1 true false, a 1 true true"},
		{"?since=2999-01-01T00:00:00Z", ""},
	} {
		if got := s.entries(row.query); got != row.want {
			t.Errorf("%s: got %s; want %s", row.query, got, row.want)
		}
	}
	all := s.do("GET", "/_stepwell/requests", "").want(200)
	if strings.Contains(string(all.body), "secret") || strings.Contains(string(all.body), controlPath) {
		t.Errorf("credentials, or requests to the control API, are in %s", all.body)
	}
	if !strings.Contains(string(all.body), `"context":{"n":12345678901234567890}`) || !strings.Contains(string(all.body), `"body":"{\"name\":"`) {
		t.Errorf("bodies are missing in %s", all.body)
	}
	for query, want := range map[string]string{
		"?kind=x": "kind must be", "?limit=0": "limit must be", "?since=x": "since: ", "?nmae=x": "did you mean name?", "?zzz=x": "want kind, limit, since, surface, method",
		"?kind=request&step=a": "step does not apply", "?step=a&status=201": "does not apply",
		"?stubbed=1": "stubbed: must be true or false", "?attempt=x": "attempt: must be an integer from 1",
		"?attempt=0": "attempt: must be", "?status=2xx": "status: must be", "?task_uuid=" + id[1:]: "is not a UUID",
		"?surface=main": `surface: must be orchestration, worker or mount`, "?method=get": "method: must be",
	} {
		if a := s.do("GET", "/_stepwell/requests"+query, "").want(400); !strings.Contains(a.text("error.message"), want) {
			t.Errorf("%s: got %s; want %s", query, a.body, want)
		}
	}
	s.do("DELETE", "/_stepwell/requests", "").want(204)
	if got := s.entries(""); got != "" {
		t.Errorf("cleared, the journal has %s", got)
	}
}

// frozenAt returns the state of a service without tasks and with a frozen clock.
func frozenAt(at instant) string {
	return fmt.Sprintf("{\"format\":3,\"clock\":{\"now\":%q,\"mode\":\"frozen\"}}\n{\"end\":{}}\n", at.zoned())
}

// emptyState is the state of a service without tasks.
const emptyState = "{\"format\":3}\n{\"end\":{}}\n"

// seedOf returns a state as the seed of a sandbox, a text.
func seedOf(state string) string { return string(jsonOf(state)) }

// sameHistory returns a state without what differs after it was put or was a seed: the id of its store.
func sameHistory(state string) string {
	_, rest, _ := strings.Cut(state, "\n")
	header := regexp.MustCompile(`"store":"\w+",|,"sum":"\w+"`).ReplaceAllString(state[:len(state)-len(rest)], "")
	return header + rest
}

// TestSandboxIsAService checks that each surface of a sandbox answers for the sandbox.
func TestSandboxIsAService(t *testing.T) {
	t.Parallel()
	s := newFixtureServer(t, serviceTest{extra: sandboxTemplates})
	s.do("PUT", "/_stepwell/state", frozenAt(testStart.add(time.Hour))).want(204)
	c := s.sandbox(`{"name":"one","seed":%s}`, seedOf(frozenAt(testStart)))
	id := c.create(`{"namespace":"t","name":"retried"}`)
	c.mount.do("GET", "/tasks/"+id, "").want(200)
	s.do("GET", "/v1/tasks/"+id, "").want(404)
	c.worker.do("GET", "/v1/templates/t/retried/1.0.0", "").want(200)
	for _, health := range []*testServer{c.testServer, c.worker, c.mount} {
		health.do("GET", "/health/ready", "").want(200)
	}
	c.clock(`{"advance":"10m"}`).want(200)
	if got := c.do("GET", "/v1/tasks/"+id, "").text("status"); got != "blocked_by_failures" {
		t.Errorf("after ten minutes its task is %s; want every retry to have happened", got)
	}
	if got := s.do("GET", "/_stepwell/clock", "").text("now"); got != testStart.add(time.Hour).zoned() {
		t.Errorf("the clock outside stands at %s; want it unchanged", got)
	}
	if got := c.do("GET", "/health/detailed", "").text("checks.fixture.message"); !strings.Contains(got, "sandbox one") {
		t.Errorf("/health/detailed says %q; want the sandbox's name", got)
	}
	if got := c.do("GET", "/api-docs.json", "").want(200); !strings.Contains(string(got.body), controlPath+"/clock") {
		t.Error("its document lacks the control API")
	}
	c.do("POST", "/_stepwell/reset", "").want(204)
	c.do("GET", "/v1/tasks/"+id, "").want(404)
}

// TestFixtureIsOff checks that without fixture mode the control API is missing.
func TestFixtureIsOff(t *testing.T) {
	s := newTestServer(t, serviceTest{})
	for _, row := range (&controlAPI{}).routes() {
		method, path, _ := strings.Cut(row.pattern, " ")
		s.do(method, path, "").want(404)
	}
	if strings.Contains(string(s.do("GET", "/health/detailed", "").want(200).body), "fixture") {
		t.Error("/health/detailed speaks of fixture mode")
	}
	if strings.Contains(string(s.do("GET", "/api-docs.json", "").want(200).body), `"`+controlPath) {
		t.Error("the document has the control API")
	}
}

// TestControlAsksForEverything checks that the control API needs every permission.
func TestControlAsksForEverything(t *testing.T) {
	keys := []apiKeyConfig{{Key: "everything-and-more", Permissions: allWildcards()}}
	for p := range permissionCount {
		keys = append(keys, apiKeyConfig{Key: "all-but-" + p.String(), Permissions: namesOf(everyPermission &^ (1 << p))})
	}
	s := newFixtureServer(t, serviceTest{config: func(c *Config) {
		a := &c.Orchestration.Web.Auth
		a.Enabled, a.APIKeysEnabled, a.APIKeys = true, true, keys
		a.JWTPublicKey = publicPEM(t, authKeys().rsa)
	}})
	for _, row := range (&controlAPI{}).routes() {
		method, path, _ := strings.Cut(row.pattern, " ")
		for i, key := range keys {
			a := s.as(key.Key, method, path)
			want := "Missing required permission: "
			if i > 0 {
				want += permission(i - 1).String()
			}
			if i == 0 && a.status < 500 && a.status != 401 && a.status != 403 {
				continue
			}
			if i == 0 || a.status != 403 || a.text("error.message") != want {
				t.Errorf("%s with %s: got %d, %s", row.pattern, key.Key, a.status, a.body)
			}
		}
		if a := s.do(method, path, ""); a.status != 401 {
			t.Errorf("%s without credentials: got %d; want 401", row.pattern, a.status)
		}
	}
}

// entries returns a line for each entry of the journal that a query finds.
func (s *fixtureServer) entries(query string) string {
	s.t.Helper()
	a := s.do("GET", "/_stepwell/requests"+query, "").want(200)
	var lines []string
	for i := range strings.Count(string(a.body), `"kind":`) {
		p := fmt.Sprintf("entries.%d.", i)
		if a.text(p+"kind") == "request" {
			lines = append(lines, fmt.Sprintf("%s %s %s", a.text(p+"method"), a.text(p+"path"), a.text(p+"status")))
		} else {
			came := a.get(p+"outcome") != nil && a.text(p+"outcome.success") == "true"
			lines = append(lines, fmt.Sprintf("%s %s %s %t", a.text(p+"step"), a.text(p+"attempt"), a.text(p+"stubbed"), came))
		}
	}
	return strings.Join(lines, ", ")
}
