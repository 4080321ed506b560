package main

// The wire contract from package wire, for the tests of this package.

import (
	"slices"
	"stepwell/e2e/wire"
	"strings"
	"sync"
	"testing"
)

// newAPIContract returns the document of a surface, to check answers with.
func newAPIContract(t testing.TB, surface string) *wire.Contract {
	t.Helper()
	text := openAPIForSurface("X-API-Key", "/stepwell", surface)
	prefix := ""
	if surface == "mount" {
		prefix = "/stepwell"
	}
	c := must(wire.NewContract(text, prefix))(t)
	return c
}

// contracts holds the documents of all surfaces, by name.
var contracts = sync.OnceValue(func() map[string]*wire.Contract {
	all := map[string]*wire.Contract{}
	for name, prefix := range map[string]string{"orchestration": "", "worker": "", "mount": "/stepwell"} {
		contract, err := wire.NewContract(openAPIForSurface("X-API-Key", "/stepwell", name), prefix)
		if err != nil {
			panic(err)
		}
		all[name] = contract
	}
	return all
})

// checkDeclared fails the test if the document of a surface does not declare that an operation may
// answer with a status.
func checkDeclared(t testing.TB, surface, method, path string, status int) {
	t.Helper()
	if surface == "orchestration" && strings.HasPrefix(path, "/stepwell") {
		surface = "mount"
	}
	path, _, _ = strings.Cut(path, "?")
	if c := contracts()[surface]; c != nil {
		if err := c.Undeclared(method, path, status); err != nil {
			t.Errorf("%s %s: %v", method, path, err)
		}
	}
}

// contractProblem returns what is wrong with the answer to a request like "GET /path".
func contractProblem(c *wire.Contract, a *answer, request string) error {
	return c.Problem(&wire.Answer{Code: a.status, Header: a.header, Body: a.body, Request: request})
}

// checkShape fails the test for every member of a body that is missing or does not match the
// shape, a kind of wire.Problems.
func checkShape(t *testing.T, shape string, body []byte) {
	t.Helper()
	if _, err := wire.CheckShape(shape, body); err != nil {
		t.Errorf("%s: %v in %s", shape, err, body)
	}
}

// TestSchemasUseKnownKeywords checks that the schemas contain no keyword that would be ignored,
// and say of each object which members it may have.
func TestSchemasUseKnownKeywords(t *testing.T) {
	sequential(t)
	t.Parallel()
	eachOpenAPIDocument(t, func(t *testing.T, _ string, doc map[string]any) {
		var visit func(path string, schema any)
		visit = func(path string, schema any) {
			if _, ok := schema.(bool); ok {
				return // which allows every value, or none
			}
			s, ok := schema.(map[string]any)
			if !ok {
				t.Errorf("%s: got %s; want a schema", path, wire.Text(schema))
				return
			}
			types, names := wire.Text(s["type"]), s["properties"] != nil || s["additionalProperties"] != nil
			if strings.Contains(types, `"object"`) && !names {
				t.Errorf("%s: got an object that names neither its members nor additionalProperties", path)
			}
			for word, v := range s {
				if !slices.Contains(wire.SchemaKeywords, word) {
					t.Errorf("%s: got keyword %q, which no check knows", path, word)
				}
				switch word {
				case "items", "additionalProperties":
					visit(path+"."+word, v)
				case "anyOf", "oneOf":
					for _, alternative := range v.([]any) {
						visit(path+"."+word, alternative)
					}
				case "properties":
					for name, member := range v.(map[string]any) {
						visit(path+"."+name, member)
					}
				}
			}
		}
		for name, schema := range doc["components"].(map[string]any)["schemas"].(map[string]any) {
			visit(name, schema)
		}
	})
}

func TestContractFindsProblems(t *testing.T) {
	c := newAPIContract(t, "worker")
	answer := func(request string, code int, contentType, body string) *wire.Answer {
		return &wire.Answer{Code: code, Request: request, Body: []byte(body), Header: map[string][]string{
			"Content-Type": {contentType}, "X-Request-Id": {"r"},
		}}
	}
	const js, live = "application/json", `{"status": "alive", "timestamp": "2026-01-31T12:00:00.123456Z", "worker_id": "w"}`
	metric := func(m string) string {
		return `{"timestamp": "2026-01-31T12:00:00.123456Z", "worker_id": "w", "metrics": {"m": ` + m + `}}`
	}
	tests := []struct {
		a    *wire.Answer
		want string // "" for none
	}{
		{answer("GET /health/live", 200, js, live), ""},
		{answer("GET /health/live?x=1", 200, js, strings.Replace(live, "{", `{"more": 1, `, 1)), "body.more: must not be there"},
		{answer("GET /nowhere", 404, js, "{}"), ""},
		{answer("DELETE /health/live", 405, js, "{}"), ""},
		{answer("GET /health/live", 418, js, live), "got status 418, which the operation getHealthLive does not declare"},
		{answer("GET /health/live", 200, "text/plain", live), `got Content-Type "text/plain"; want one of ["application/json"]`},
		{answer("GET /health/live", 200, js, `{"status": "alive", "worker_id": "w"}`), "body.timestamp: missing"},
		{answer("GET /health/live", 200, js, strings.Replace(live, `"w"`, `null`, 1)), `body.worker_id: got null; want type "string"`},
		{answer("GET /health/live", 200, js, strings.Replace(live, "alive", "dead", 1)), `body.status: got "dead"; want one of ["healthy","alive"]`},
		{answer("GET /health/live", 200, js, strings.Replace(live, ".123456", "", 1)), "body.timestamp: got \"2026-01-31T12:00:00Z\"; want a match of"},
		{answer("GET /health/live", 200, js, "{"), "decoding JSON"},
		{answer("GET /metrics/worker", 200, js, metric(`{"value": 1.5, "metric_type": "gauge", "labels": {"a": "b"}, "help": ""}`)), ""},
		{answer("GET /metrics/worker", 200, js, metric(`{"value": 1, "metric_type": "gauge", "labels": {"a": 1}, "help": ""}`)),
			`body.metrics.m.labels.a: got 1; want type "string"`},
		{answer("GET /metrics/worker", 200, js, metric(`{"value": 1, "metric_type": "sum", "labels": {}, "help": ""}`)),
			`body.metrics.m.metric_type: got "sum"; want one of ["counter","gauge"]`},
		{answer("GET /api/v1/templates/a/b/c", 200, js, "{}"), "body.template: missing"},
		{answer("GET /v1/templates", 200, js, `{"supported_namespaces": [], "template_count": 1.0, "cache_stats": {}, `+
			`"worker_capabilities": [], "templates": [{}]}`), "body.cache_stats.total_cached: missing"},
		{answer("POST /v1/templates/a/b/c/validate", 404, js, `{"error": "nope"}`), `body.error: got "nope"; want one of`},
	}
	for _, tt := range tests {
		got := ""
		if err := c.Problem(tt.a); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s %d %s: got %q; want %q", tt.a.Request, tt.a.Code, tt.a.Body, got, tt.want)
		}
	}
}
