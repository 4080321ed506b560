package main

// The OpenAPI document as a check on answers: the status must be one that the
// operation declares, the body what the schema of that response says. It is
// strict about members that are missing or of another type; more of them are
// allowed, as the contract says.

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// apiContract is the document of a surface. A nil one has no objections.
type apiContract struct {
	doc    map[string]any
	prefix string // before the document's paths
}

func newAPIContract(t testing.TB, surface string) *apiContract {
	t.Helper()
	text, err := openAPIForSurface(openAPIFile, surface, version, "X-API-Key")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := wireDecode(text)
	if err != nil {
		t.Fatal(err)
	}
	c := &apiContract{doc: doc.(map[string]any)}
	if surface == "mount" {
		c.prefix = mountTestPath
	}
	return c
}

// problem is what is wrong with an answer. Requests that match no operation are
// not its business.
func (c *apiContract) problem(a *convAnswer) error {
	if c == nil {
		return nil
	}
	method, target, _ := strings.Cut(a.request, " ")
	path, _, _ := strings.Cut(target, "?")
	operation := c.operation(method, path)
	if operation == nil {
		return nil
	}
	declared, ok := operation["responses"].(map[string]any)[fmt.Sprint(a.code)]
	if !ok {
		return fmt.Errorf("got status %d, which the operation %v does not declare", a.code, operation["operationId"])
	}
	return errors.Join(c.responseProblems(openAPIFollow(c.doc, declared), a)...)
}

// operation finds the operation of a request, nil when there is none.
func (c *apiContract) operation(method, path string) map[string]any {
	path, below := strings.CutPrefix(path, c.prefix)
	if !below {
		return nil
	}
	path = cmp.Or(path, "/")
	if rest, ok := strings.CutPrefix(path, "/api/v1/"); ok {
		path = "/v1/" + rest
	}
	best, literals := map[string]any(nil), -1
	for pattern, item := range c.doc["paths"].(map[string]any) {
		operation, ok := item.(map[string]any)[strings.ToLower(method)].(map[string]any)
		if n := pathLiterals(pattern, path); ok && n > literals {
			best, literals = operation, n
		}
	}
	return best
}

// pathLiterals is how many segments of a path a pattern names, -1 when it does
// not match.
func pathLiterals(pattern, path string) int {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(got) {
		return -1
	}
	n := 0
	for i := range want {
		switch {
		case want[i] == got[i]:
			n++
		case !strings.HasPrefix(want[i], "{") || got[i] == "":
			return -1
		}
	}
	return n
}

func (c *apiContract) responseProblems(declared map[string]any, a *convAnswer) (problems []error) {
	headers, _ := declared["headers"].(map[string]any)
	for name, h := range headers {
		if openAPIFollow(c.doc, h)["required"] == true && a.header.Get(name) == "" {
			problems = append(problems, fmt.Errorf("got no header %s; want one", name))
		}
	}
	content, _ := declared["content"].(map[string]any)
	if len(content) == 0 {
		return problems
	}
	media := contentFor(content, a.header.Get("Content-Type"))
	if media == nil {
		return append(problems, fmt.Errorf("got Content-Type %q; want one of %q",
			a.header.Get("Content-Type"), slices.Sorted(maps.Keys(content))))
	}
	v, err := any(string(a.body)), error(nil)
	if strings.Contains(a.header.Get("Content-Type"), "json") {
		v, err = wireDecode(a.body)
	}
	if err != nil {
		return append(problems, err)
	}
	for _, p := range c.problems("body", media["schema"], v) {
		problems = append(problems, errors.New(p))
	}
	return problems
}

// contentFor is the declared body of a media type; parameters do not matter.
func contentFor(content map[string]any, contentType string) map[string]any {
	got, _, _ := mime.ParseMediaType(contentType)
	for declared, media := range content {
		want, _, _ := mime.ParseMediaType(declared)
		if want == got || want == "*/*" {
			return media.(map[string]any)
		}
	}
	return nil
}

// schemaKeywords are those that problems looks at, or that say nothing about values.
var schemaKeywords = []string{
	"$ref", "type", "const", "enum", "anyOf", "oneOf", "properties", "required", "additionalProperties", "items",
	"pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems",
	"description", "examples", "default", "format", "discriminator",
}

// problems lists where v is not what a schema says.
func (c *apiContract) problems(path string, schema, v any) []string {
	s := openAPIFollow(c.doc, schema)
	for _, word := range []string{"anyOf", "oneOf"} {
		if alternatives, ok := s[word].([]any); ok {
			return c.alternativeProblems(path, alternatives, v)
		}
	}
	if !schemaTypeFits(s["type"], v) {
		return []string{fmt.Sprintf("%s: got %s; want type %s", path, conversationCut(wireText(v)), wireText(s["type"]))}
	}
	problems := schemaValueProblems(path, s, v)
	switch v := v.(type) {
	case map[string]any:
		problems = append(problems, c.memberProblems(path, s, v)...)
	case []any:
		for i, e := range v {
			if s["items"] != nil {
				problems = append(problems, c.problems(fmt.Sprintf("%s.%d", path, i), s["items"], e)...)
			}
		}
	}
	return problems
}

// alternativeProblems is nil when an alternative fits, else what is wrong by the
// last one whose type fits.
func (c *apiContract) alternativeProblems(path string, alternatives []any, v any) (least []string) {
	for i, alternative := range alternatives {
		problems := c.problems(path, alternative, v)
		if problems == nil {
			return nil
		}
		if i == 0 || schemaTypeFits(openAPIFollow(c.doc, alternative)["type"], v) {
			least = problems
		}
	}
	return least
}

func schemaTypeFits(types, v any) bool {
	if list, ok := types.([]any); ok {
		return slices.ContainsFunc(list, func(one any) bool { return schemaTypeFits(one, v) })
	}
	if types == nil {
		return true
	}
	kinds := map[any]string{"integer": "int", "boolean": "bool"}
	if kind, ok := kinds[types]; ok {
		return wireIsScalar(kind, v)
	}
	if types == "array" {
		_, ok := v.([]any)
		return ok
	}
	return wireIsScalar(types.(string), v)
}

// schemaValueProblems is what single values break.
func schemaValueProblems(path string, s map[string]any, v any) (problems []string) {
	wrong := func(format string, args ...any) {
		problems = append(problems, fmt.Sprintf("%s: got %s; want %s", path, wireText(v), fmt.Sprintf(format, args...)))
	}
	if want, ok := s["const"]; ok && !wireEqual(v, want) {
		wrong("%s", wireText(want))
	}
	if words, ok := s["enum"].([]any); ok && !slices.ContainsFunc(words, func(w any) bool { return wireEqual(v, w) }) {
		wrong("one of %s", wireText(words))
	}
	if text, ok := v.(string); ok {
		if pattern, ok := s["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(text) {
			wrong("a match of %s", pattern)
		}
		n := float64(utf8.RuneCountInString(text))
		if !within(n, s["minLength"], s["maxLength"]) {
			wrong("%v to %v characters", s["minLength"], s["maxLength"])
		}
	}
	if list, ok := v.([]any); ok && !within(float64(len(list)), s["minItems"], s["maxItems"]) {
		wrong("%v to %v elements", s["minItems"], s["maxItems"])
	}
	if number, ok := v.(json.Number); ok {
		if n, err := number.Float64(); err != nil || !within(n, s["minimum"], s["maximum"]) {
			wrong("%v to %v", s["minimum"], s["maximum"])
		}
	}
	return problems
}

// within compares with bounds of a schema, which may be absent.
func within(n float64, lo, hi any) bool {
	bound := func(v any, absent float64) float64 {
		if number, ok := v.(json.Number); ok {
			absent, _ = number.Float64()
		}
		return absent
	}
	return bound(lo, n) <= n && n <= bound(hi, n)
}

func (c *apiContract) memberProblems(path string, s, object map[string]any) (problems []string) {
	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := object[name.(string)]; !ok {
			problems = append(problems, fmt.Sprintf("%s.%s: missing", path, name))
		}
	}
	properties, _ := s["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		member, ok := properties[name]
		if !ok {
			member, ok = s["additionalProperties"], s["additionalProperties"] != nil
		}
		if member == false {
			problems = append(problems, fmt.Sprintf("%s.%s: must not be there", path, name))
			continue
		}
		if ok {
			problems = append(problems, c.problems(path+"."+name, member, object[name])...)
		}
	}
	return problems
}

// TestSchemasUseKnownKeywords sees that nothing in the schemas goes unchecked.
func TestSchemasUseKnownKeywords(t *testing.T) {
	eachOpenAPIDocument(t, func(t *testing.T, _ string, doc map[string]any) {
		var visit func(path string, schema any)
		visit = func(path string, schema any) {
			if schema == false {
				return // which no value is allowed by
			}
			s, ok := schema.(map[string]any)
			if !ok {
				t.Errorf("%s: got %s; want a schema", path, wireText(schema))
				return
			}
			for word, v := range s {
				if !slices.Contains(schemaKeywords, word) {
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
	answer := func(request string, code int, contentType, body string) *convAnswer {
		return &convAnswer{code: code, request: request, body: []byte(body), header: map[string][]string{
			"Content-Type": {contentType}, "X-Request-Id": {"r"},
		}}
	}
	const js, live = "application/json", `{"status": "alive", "timestamp": "2026-01-31T12:00:00.123456Z", "worker_id": "w"}`
	metric := func(m string) string {
		return `{"timestamp": "2026-01-31T12:00:00.123456Z", "worker_id": "w", "metrics": {"m": ` + m + `}}`
	}
	tests := []struct {
		a    *convAnswer
		want string // "" for none
	}{
		{answer("GET /health/live", 200, js, live), ""},
		{answer("GET /health/live?x=1", 200, js, strings.Replace(live, "{", `{"more": 1, `, 1)), ""},
		{answer("GET /nowhere", 404, js, "{}"), ""},
		{answer("DELETE /health/live", 405, js, "{}"), ""},
		{answer("GET /health/live", 418, js, live), "got status 418, which the operation healthLive does not declare"},
		{answer("GET /health/live", 200, "text/plain", live), `got Content-Type "text/plain"; want one of ["application/json"]`},
		{answer("GET /health/live", 200, js, `{"status": "alive", "worker_id": "w"}`), "body.timestamp: missing"},
		{answer("GET /health/live", 200, js, strings.Replace(live, `"w"`, `null`, 1)), `body.worker_id: got null; want type "string"`},
		{answer("GET /health/live", 200, js, strings.Replace(live, "alive", "dead", 1)), `body.status: got "dead"; want "alive"`},
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
		if err := c.problem(tt.a); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s %d %s: got %q; want %q", tt.a.request, tt.a.code, tt.a.body, got, tt.want)
		}
	}
}
