package main

// The OpenAPI document as a check on answers: the status must be one that the
// operation declares, the body what the schema of that response says. It is
// strict about members that are missing or of another type; more of them are
// allowed, as the contract says.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"mime"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
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

// JSON as the tests read it: strictly, with numbers as they were written, and
// addressed by paths.

// wireDecode reads the one JSON value of a body, with numbers as json.Number.
// Unlike encoding/json it refuses duplicate members, broken UTF-8 and anything
// behind the value.
func wireDecode(body []byte) (any, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("invalid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	v, err := wireDecodeValue(d)
	if err != nil {
		return nil, fmt.Errorf("decoding JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the JSON value at offset %d", d.InputOffset())
	}
	return v, nil
}

func wireDecodeValue(d *json.Decoder) (any, error) {
	t, err := d.Token()
	switch t {
	case json.Delim('{'):
		return wireDecodeObject(d)
	case json.Delim('['):
		return wireDecodeList(d)
	}
	return t, err
}

func wireDecodeObject(d *json.Decoder) (any, error) {
	object := map[string]any{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		if _, ok := object[name.(string)]; ok {
			return nil, fmt.Errorf("duplicate member %q", name)
		}
		if object[name.(string)], err = wireDecodeValue(d); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return object, err
}

func wireDecodeList(d *json.Decoder) (any, error) {
	list := []any{}
	for d.More() {
		e, err := wireDecodeValue(d)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	_, err := d.Token()
	return list, err
}

// wireText is a decoded value as JSON, for comparing and for messages.
func wireText(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// wireEqual compares decoded JSON; numbers are equal when their values are.
func wireEqual(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && (a == b || wireNumber(a).Cmp(wireNumber(b)) == 0)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, wireEqual)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, wireEqual)
	}
	switch b.(type) {
	case []any, map[string]any:
		return false
	}
	return a == b
}

func wireNumber(n json.Number) *big.Rat {
	r, ok := new(big.Rat).SetString(n.String())
	if !ok {
		panic("not a JSON number: " + n.String())
	}
	return r
}

// wireLookUp finds what a path, as the format of conversations describes it,
// leads to in decoded JSON.
func wireLookUp(v any, path string) (any, bool) {
	if path == "." {
		return v, true
	}
	return wireLookUpIn(v, wireSplitPath(path))
}

func wireSplitPath(path string) []string {
	segments := strings.Split(strings.ReplaceAll(path, `\.`, "\x00"), ".")
	for i, s := range segments {
		segments[i] = strings.ReplaceAll(s, "\x00", ".")
	}
	return segments
}

func wireLookUpIn(v any, path []string) (any, bool) {
	if len(path) == 0 {
		return v, true
	}
	switch v := v.(type) {
	case map[string]any:
		member, ok := v[path[0]]
		if !ok {
			return nil, false
		}
		return wireLookUpIn(member, path[1:])
	case []any:
		return wireLookUpInList(v, path)
	}
	return nil, false
}

func wireLookUpInList(list []any, path []string) (any, bool) {
	segment, rest := path[0], path[1:]
	switch name, want, selects := strings.Cut(segment, "="); {
	case segment == "#":
		return wireLookUpIn(json.Number(strconv.Itoa(len(list))), rest)
	case segment == "*":
		return wireLookUpEach(list, rest), true
	case selects:
		i := slices.IndexFunc(list, func(e any) bool {
			value, ok := wireLookUpIn(e, []string{name})
			return ok && value == any(want)
		})
		if i < 0 {
			return nil, false
		}
		return wireLookUpIn(list[i], rest)
	}
	i, err := strconv.Atoi(segment)
	if err != nil || i < 0 || i >= len(list) {
		return nil, false
	}
	return wireLookUpIn(list[i], rest)
}

// wireLookUpEach leaves out the elements in which the path leads nowhere.
func wireLookUpEach(list []any, path []string) []any {
	found := []any{}
	for _, e := range list {
		if value, ok := wireLookUpIn(e, path); ok {
			found = append(found, value)
		}
	}
	return found
}

func TestWireLookUp(t *testing.T) {
	const text = `{"a": {"b": [10, {"c": "x", "n": null}, {"c": "y", "d": 2}]}, "l": [], "dotted.name": true}`
	tests := []struct{ path, want string }{
		{".", text},
		{"a.b.0", "10"},
		{"a.b.#", "3"},
		{"l.#", "0"},
		{"l", "[]"},
		{"a.b.*.c", `["x", "y"]`},
		{"a.b.c=y.d", "2"},
		{"a.b.1.n", "null"},
		{`dotted\.name`, "true"},
		{"a.b.c=z", ""},
		{"a.b.3", ""},
		{"a.b.-1", ""},
		{"a.b.x", ""},
		{"a.x", ""},
		{"a.b.0.x", ""},
		{"a.#", ""},
	}
	v, err := wireDecode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		got, ok := wireLookUp(v, tt.path)
		if !ok {
			if tt.want != "" {
				t.Errorf("%s: got nothing; want %s", tt.path, tt.want)
			}
			continue
		}
		want, err := wireDecode([]byte(tt.want))
		if err != nil || !wireEqual(got, want) {
			t.Errorf("%s: got %s; want %q", tt.path, wireText(got), tt.want)
		}
	}
}

// The shapes of the responses as the contract states them, and the strict
// check of a body against them: what clients written in stricter languages
// would refuse, a test refuses. The words of the contract are the tables.

// wireShapes says for each object which members it must have and what each of
// them is. A kind is one or more alternatives joined by "|":
//
//	uuid uuid7 uuid8        a UUID in lower case; of that version
//	zoned naive             a timestamp with exactly six fractional digits, with and without Z
//	int number              a number written without fraction and exponent; any number
//	string bool object null a value of that type
//	any                     a value of any type
//	'word'                  that string
//	[kind]                  a list of kind
//	Name                    an entry of this table, or of wireWords
//
// A trailing "?" lets the member be left out. Members that are not named are
// nobody's business.
var wireShapes = map[string]map[string]string{
	"Task": {
		"task_uuid": "uuid7", "name": "string", "namespace": "string", "version": "string",
		"status": "TaskState", "created_at": "zoned", "updated_at": "zoned", "completed_at": "zoned|null",
		"context": "object", "initiator": "string", "source_system": "string", "reason": "string",
		"priority": "int", "tags": "[string]", "correlation_id": "uuid", "parent_correlation_id": "uuid|null",
		"total_steps": "int", "pending_steps": "int", "in_progress_steps": "int", "completed_steps": "int",
		"failed_steps": "int", "ready_steps": "int", "execution_status": "ExecutionStatus",
		"recommended_action": "RecommendedAction", "completion_percentage": "number",
		"health_status": "HealthStatus", "steps": "[Readiness]", "context_redacted": "bool?",
	},
	"Readiness": {
		"workflow_step_uuid": "uuid7", "task_uuid": "uuid7", "named_step_uuid": "uuid8", "name": "string",
		"current_state": "StepState", "dependencies_satisfied": "bool", "retry_eligible": "bool",
		"ready_for_execution": "bool", "last_failure_at": "naive|null", "next_retry_at": "naive|null",
		"total_parents": "int", "completed_parents": "int", "attempts": "int", "max_attempts": "int",
		"backoff_request_seconds": "int|null", "last_attempted_at": "naive|null",
	},
	"TaskList": {"tasks": "[Task]", "pagination": "Pagination"},
	"Pagination": {
		"page": "int", "per_page": "int", "total_count": "int", "total_pages": "int", "has_next": "bool",
		"has_previous": "bool",
	},
	"Performance": {
		"total_tasks": "int", "active_tasks": "int", "completed_tasks": "int", "failed_tasks": "int",
		"completion_rate": "number", "error_rate": "number", "average_task_duration_seconds": "number",
		"average_step_duration_seconds": "number", "tasks_per_hour": "int", "steps_per_hour": "int",
		"system_health_score": "number", "analysis_period_start": "zoned", "calculated_at": "zoned",
	},
	"Bottlenecks": {
		"slow_steps": "[SlowStep]", "slow_tasks": "[SlowTask]", "resource_utilization": "ResourceUtilization",
		"recommendations": "[string]",
	},
	"SlowStep": {
		"namespace_name": "string", "task_name": "string", "version": "string", "step_name": "string",
		"average_duration_seconds": "number", "max_duration_seconds": "number", "execution_count": "int",
		"error_count": "int", "error_rate": "number", "last_executed_at": "zoned",
	},
	"SlowTask": {
		"namespace_name": "string", "task_name": "string", "version": "string",
		"average_duration_seconds": "number", "max_duration_seconds": "number", "execution_count": "int",
		"average_step_count": "number", "error_count": "int", "error_rate": "number", "last_executed_at": "zoned",
	},
	"ResourceUtilization": {"database_pool_utilization": "number", "system_health": "SystemHealth"},
	"SystemHealth": {
		"pending_tasks": "int", "initializing_tasks": "int", "enqueuing_steps_tasks": "int",
		"steps_in_process_tasks": "int", "evaluating_results_tasks": "int", "waiting_for_dependencies_tasks": "int",
		"waiting_for_retry_tasks": "int", "blocked_by_failures_tasks": "int", "complete_tasks": "int",
		"error_tasks": "int", "cancelled_tasks": "int", "resolved_manually_tasks": "int",
		"total_tasks": "int", "pending_steps": "int", "enqueued_steps": "int",
		"in_progress_steps": "int", "enqueued_for_orchestration_steps": "int", "enqueued_as_error_for_orchestration_steps": "int",
		"waiting_for_retry_steps": "int", "complete_steps": "int", "error_steps": "int",
		"cancelled_steps": "int", "resolved_manually_steps": "int", "total_steps": "int",
	},
	"TaskContext": {"task_uuid": "uuid7", "context": "object"},
	"Step": {
		"step_uuid": "uuid7", "task_uuid": "uuid7", "name": "string", "created_at": "zoned",
		"updated_at": "zoned", "completed_at": "zoned|null", "results": "StepResults|null",
		"current_state": "StepState", "dependencies_satisfied": "bool", "retry_eligible": "bool",
		"ready_for_execution": "bool", "total_parents": "int", "completed_parents": "int", "attempts": "int",
		"max_attempts": "int", "last_failure_at": "zoned|null", "next_retry_at": "zoned|null",
		"last_attempted_at": "zoned|null",
	},
	"OutsideStep": {
		"step_uuid": "uuid7", "task_uuid": "uuid7", "name": "string", "created_at": "zoned",
		"updated_at": "zoned", "completed_at": "zoned|null", "results": "StepResults|null",
		"current_state": "StepState", "dependencies_satisfied": "bool", "retry_eligible": "bool",
		"ready_for_execution": "bool", "total_parents": "int", "completed_parents": "int", "attempts": "int",
		"max_attempts": "int", "last_failure_at": "zoned|null", "next_retry_at": "zoned|null",
		"last_attempted_at": "zoned|null",
		"namespace":         "string", "task_name": "string", "callable": "string", "priority": "int",
		"worker_id": "string?", "lease_expires_at": "zoned?",
	},
	"ClaimedStep": {
		"task": "EnvelopeTask", "step": "EnvelopeStep", "dependency_results": "object", "callable": "string",
		"lease": "string", "lease_expires_at": "zoned",
	},
	"EnvelopeTask": {
		"task_uuid": "uuid7", "namespace": "string", "name": "string", "version": "string",
		"correlation_id": "uuid", "context": "object",
	},
	"EnvelopeStep": {
		"step_uuid": "uuid7", "name": "string", "attempt": "int", "max_attempts": "int", "timeout_seconds": "int",
		"config": "object", "inputs": "object",
	},
	"Lease": {"step_uuid": "uuid7", "lease_expires_at": "zoned"},
	"StepResults": {
		"step_uuid": "uuid7", "success": "bool", "result": "any", "metadata": "StepMetadata",
		"status": "StepResultStatus", "error": "StepError|null",
	},
	"StepMetadata": {"execution_time_ms": "int", "worker_id": "string", "completed_at": "zoned"},
	"StepError": {
		"message": "string", "error_type": "string", "retryable": "bool", "status_code": "int|null",
		"context": "object|null",
	},
	"Audit": {
		"audit_uuid": "uuid7", "workflow_step_uuid": "uuid7", "transition_uuid": "uuid7",
		"task_uuid": "uuid7", "recorded_at": "zoned", "worker_uuid": "uuid?", "correlation_id": "uuid?",
		"success": "bool", "execution_time_ms": "int?", "result": "StepResults?", "step_name": "string",
		"from_state": "StepState?", "to_state": "StepState", "subject": "string?",
	},
	"Explanation": {"task_uuid": "uuid7", "status": "TaskState", "message": "string", "steps": "[StepExplanation]"},
	"StepExplanation": {
		"step_uuid": "uuid7", "name": "string", "current_state": "StepState", "cause": "StepCause", "message": "string",
		"waits_for": "[string]", "actions": "[string]", "since": "zoned|null", "due_at": "zoned|null",
		"attempt": "int", "max_attempts": "int", "callable": "string",
	},
	"Transitions": {"task_uuid": "uuid7", "transitions": "[Transition]"},
	"Transition": {
		"sequence": "int", "recorded_at": "zoned", "step_uuid": "uuid7|null", "step_name": "string|null",
		"from_state": "TaskState|StepState|null", "to_state": "TaskState|StepState", "attempt": "int?",
	},
	"Summary": {
		"task": "SummaryTask", "template": "SummaryTemplate", "steps": "[SummaryStep]", "dlq": "SummaryDLQ",
		"links": "SummaryLinks",
	},
	"SummaryTask": {
		"task_uuid": "uuid7", "name": "string", "namespace": "string", "version": "string",
		"status": "TaskState", "created_at": "zoned", "updated_at": "zoned", "completed_at": "zoned|null",
		"initiator": "string", "source_system": "string", "reason": "string", "correlation_id": "uuid",
		"total_steps": "int", "pending_steps": "int", "in_progress_steps": "int", "completed_steps": "int",
		"failed_steps": "int", "completion_percentage": "number", "health_status": "HealthStatus",
		"execution_status": "ExecutionStatus", "recommended_action": "RecommendedAction",
	},
	"SummaryTemplate": {"steps": "[SummaryTemplateStep]"},
	"SummaryTemplateStep": {
		"name": "string", "step_type": "StepType", "handler": "string", "dependencies": "[string]",
		"retryable": "bool", "max_attempts": "int",
	},
	"SummaryStep": {
		"step_uuid": "uuid7", "name": "string", "current_state": "StepState", "created_at": "zoned",
		"completed_at": "zoned|null", "last_attempted_at": "zoned|null", "attempts": "int",
		"max_attempts": "int", "dependencies_satisfied": "bool", "retry_eligible": "bool",
		"error": "SummaryError|null",
	},
	"SummaryError": {"error_type": "string", "retryable": "bool", "status_code": "int|null"},
	"SummaryDLQ": {
		"in_dlq": "bool", "dlq_reason": "DLQReasonWord|null", "resolution_status": "DLQStatusWord|null",
	},
	"SummaryLinks": {"task": "string", "steps": "string", "dlq": "string"},
	"DLQEntry": {
		"dlq_entry_uuid": "uuid7", "task_uuid": "uuid7", "original_state": "TaskState",
		"dlq_reason": "DLQReason", "dlq_timestamp": "naive", "resolution_status": "DLQStatus",
		"resolution_timestamp": "naive|null", "resolution_notes": "string|null", "resolved_by": "string|null",
		"task_snapshot": "TaskSnapshot", "metadata": "object|null", "created_at": "naive",
		"updated_at": "naive",
	},
	"DLQTask": {
		"dlq_entry_uuid": "uuid7", "task_uuid": "uuid7", "original_state": "TaskState",
		"dlq_reason": "DLQReason", "dlq_timestamp": "naive", "resolution_status": "DLQStatus",
		"resolution_timestamp": "naive|null", "resolution_notes": "string|null", "resolved_by": "string|null",
		"task_snapshot": "TaskSnapshot", "metadata": "object|null", "created_at": "naive",
		"updated_at": "naive", "entries": "[DLQEntry]",
	},
	"TaskSnapshot": {
		"task_uuid": "uuid7", "namespace": "string", "task_name": "string", "current_state": "TaskState",
		"time_in_state_minutes": "int", "threshold_minutes": "int", "snapshot_timestamp": "naive",
		"task_details": "TaskDetails", "steps": "[StepSnapshot]",
	},
	"TaskDetails": { // what the contract leaves open, as StepSnapshot
		"version": "string", "priority": "int", "initiator": "string", "source_system": "string",
		"reason": "string", "tags": "[string]", "correlation_id": "uuid", "created_at": "naive",
		"total_steps": "int", "pending_steps": "int", "in_progress_steps": "int", "completed_steps": "int",
		"failed_steps": "int", "completion_percentage": "number", "health_status": "HealthStatus",
		"execution_status": "ExecutionStatus",
	},
	"StepSnapshot": {
		"step_uuid": "uuid7", "name": "string", "current_state": "StepState", "attempts": "int",
		"max_attempts": "int", "last_attempted_at": "naive|null", "last_failure_at": "naive|null",
		"next_retry_at": "naive|null", "completed_at": "naive|null", "error": "SnapshotError|null",
	},
	"SnapshotError": {
		"message": "string", "error_type": "string", "retryable": "bool", "status_code": "int|null",
	},
	"QueueEntry": {
		"dlq_entry_uuid": "uuid7", "task_uuid": "uuid7", "original_state": "TaskState",
		"dlq_reason": "DLQReason", "dlq_timestamp": "naive", "minutes_in_dlq": "number",
		"namespace_name": "string", "task_name": "string", "current_state": "TaskState",
		"time_in_state_minutes": "int", "priority_score": "number",
	},
	"Staleness": {
		"task_uuid": "uuid7", "namespace_name": "string", "task_name": "string",
		"current_state": "TaskState", "time_in_state_minutes": "int", "task_age_minutes": "int",
		"staleness_threshold_minutes": "int", "health_status": "StalenessHealth", "priority": "int",
	},
	"DLQUpdated": {"success": "bool", "message": "string", "dlq_entry_uuid": "uuid7"},
	"DLQStats": {
		"dlq_reason": "DLQReason", "total_entries": "int", "pending": "int", "manually_resolved": "int",
		"permanent_failures": "int", "cancelled": "int", "oldest_entry": "naive|null",
		"newest_entry": "naive|null", "avg_resolution_time_minutes": "number",
	},
	"TemplateList": {
		"namespaces": "[TemplateNamespace]", "templates": "[TemplateEntry]", "total_count": "int",
	},
	"TemplateNamespace": {"name": "string", "description": "string|null", "template_count": "int"},
	"TemplateEntry": {
		"name": "string", "namespace": "string", "version": "string", "description": "string|null",
		"step_count": "int",
	},
	"TemplateDetail": {
		"name": "string", "namespace": "string", "version": "string", "description": "string|null",
		"configuration": "object|null", "steps": "[TemplateStep]",
	},
	"TemplateStep": {
		"name": "string", "description": "string|null", "default_retryable": "bool",
		"default_max_attempts": "int", "result_schema": "object|null?", "dependencies": "[string]",
		"handler": "object", "type": "StepType",
	},
	"Health":     {"status": "'healthy'", "timestamp": "zoned"},
	"HealthLive": {"status": "'alive'", "timestamp": "zoned"},
	"HealthReady": {
		"status": "ReadyStatus", "timestamp": "zoned", "checks": "HealthChecks", "info": "HealthInfo",
	},
	"HealthChecks": {
		"web_database": "HealthCheck", "orchestration_database": "HealthCheck",
		"circuit_breaker": "HealthCheck", "orchestration_system": "HealthCheck",
		"command_processor": "HealthCheck", "authentication": "HealthCheck?",
	},
	"HealthCheck": {"status": "CheckStatus", "message": "string", "duration_ms": "int"},
	"HealthInfo": {
		"version": "string", "environment": "string", "operational_state": "OperationalState",
		"web_database_pool_size": "int", "orchestration_database_pool_size": "int",
		"circuit_breaker_state": "CircuitBreakerState",
	},
	"WorkerHealth":     {"status": "'healthy'", "timestamp": "zoned", "worker_id": "string"},
	"WorkerHealthLive": {"status": "'alive'", "timestamp": "zoned", "worker_id": "string"},
	"WorkerHealthReady": {
		"status": "ReadyStatus", "timestamp": "zoned", "worker_id": "string",
		"checks": "WorkerHealthChecks", "system_info": "WorkerSystemInfo",
	},
	"WorkerHealthChecks": {
		"database": "WorkerHealthCheck", "command_processor": "WorkerHealthCheck",
		"queue_processing": "WorkerHealthCheck", "authentication": "WorkerHealthCheck?",
	},
	"WorkerHealthCheck": {
		"status": "CheckStatus", "message": "string", "duration_ms": "int", "last_checked": "zoned",
	},
	"WorkerSystemInfo": {
		"version": "string", "environment": "string", "uptime_seconds": "int", "worker_type": "string",
		"database_pool_size": "int", "command_processor_active": "bool", "supported_namespaces": "[string]",
	},
	"WorkerError": {
		"error": "WorkerErrorCode", "message": "string", "timestamp": "zoned", "request_id": "string",
	},
	"WorkerTemplateList": {
		"supported_namespaces": "[string]", "template_count": "int",
		"cache_stats": "TemplateCacheStats|null", "worker_capabilities": "[string]",
		"templates": "[TemplateEntry]",
	},
	"TemplateCacheStats": {
		"total_cached": "int", "cache_hits": "int", "cache_misses": "int", "cache_evictions": "int",
		"oldest_entry_age_seconds": "int", "average_access_count": "number",
		"supported_namespaces": "[string]",
	},
	"WorkerTemplateDetail": {
		"template": "ResolvedTemplate", "handler_metadata": "HandlerMetadata", "cached": "bool",
		"cache_age_seconds": "int", "access_count": "int",
	},
	"ResolvedTemplate": {"template": "object", "environment": "string", "resolved_at": "zoned"},
	"HandlerMetadata": {
		"namespace": "string", "name": "string", "version": "string", "handler_class": "string",
		"config_schema": "object|null", "default_dependent_system": "string", "registered_at": "zoned",
	},
	"TemplateVerdict": {
		"valid": "bool", "errors": "[string]", "warnings": "[string]",
		"required_capabilities": "[string]", "step_handlers": "[string]",
	},
	"OrchestrationConfig": {
		"metadata": "ConfigMetadata", "auth": "AuthConfig", "circuit_breakers": "CircuitBreakerConfig",
		"database_pools": "DatabasePoolConfig", "deployment_mode": "string",
		"messaging": "MessagingConfig", "config": "object",
	},
	"WorkerConfig": {
		"metadata": "ConfigMetadata", "worker_id": "string", "worker_type": "string",
		"auth": "AuthConfig", "messaging": "MessagingConfig", "config": "object",
	},
	"ConfigMetadata": {"timestamp": "zoned", "environment": "string", "version": "string"},
	"AuthConfig": {
		"enabled": "bool", "verification_method": "string", "jwt_issuer": "string",
		"jwt_audience": "string", "api_key_header": "string", "api_key_count": "int",
		"strict_validation": "bool", "allowed_algorithms": "[string]",
	},
	"CircuitBreakerConfig": {
		"enabled": "bool", "failure_threshold": "int", "timeout_seconds": "int",
		"success_threshold": "int",
	},
	"DatabasePoolConfig": {"web_api_pool_size": "int", "web_api_max_connections": "int"},
	"MessagingConfig":    {"backend": "string", "queues": "[string]"},
	"HealthDetailed": {
		"status": "DetailedStatus", "timestamp": "zoned", "checks": "HealthDetailedChecks",
		"info": "HealthInfo",
	},
	"HealthDetailedChecks": {
		"web_database": "HealthCheck", "orchestration_database": "HealthCheck",
		"circuit_breaker": "HealthCheck", "orchestration_system": "HealthCheck",
		"command_processor": "HealthCheck", "pool_utilization": "HealthCheck",
		"queue_depth": "HealthCheck", "channel_saturation": "HealthCheck", "fixture": "HealthCheck?",
	},
	"WorkerHealthDetailed": {
		"status": "DetailedStatus", "timestamp": "zoned", "worker_id": "string",
		"checks": "WorkerHealthDetailedChecks", "system_info": "WorkerSystemInfo",
	},
	"WorkerHealthDetailedChecks": {
		"database": "WorkerHealthCheck", "command_processor": "WorkerHealthCheck",
		"queue_processing": "WorkerHealthCheck", "event_system": "WorkerHealthCheck",
		"step_processing": "WorkerHealthCheck", "circuit_breakers": "WorkerHealthCheck",
	},
	"WorkerMetrics": {"metrics": "object", "timestamp": "zoned", "worker_id": "string"},
	"WorkerMetric":  {"value": "number", "metric_type": "MetricType", "labels": "object", "help": "string"},
	"WorkerEventMetrics": {
		"router": "EventRouterMetrics", "in_process_bus": "EventBusMetrics", "captured_at": "zoned",
		"worker_id": "string",
	},
	"EventRouterMetrics": {
		"total_routed": "int", "durable_routed": "int", "fast_routed": "int", "broadcast_routed": "int",
		"fast_delivery_errors": "int", "routing_errors": "int",
	},
	"EventBusMetrics": {
		"total_events_dispatched": "int", "rust_handler_dispatches": "int",
		"ffi_channel_dispatches": "int", "rust_handler_errors": "int", "ffi_channel_drops": "int",
		"rust_subscriber_patterns": "int", "rust_handler_count": "int", "ffi_subscriber_count": "int",
	},
	"Error": {"error": "ErrorBody"},
	"ErrorBody": {
		"code": "ErrorCode", "message": "string", "details": "[FieldProblem]?", "request_id": "string",
		"blocking": "[Blocker]?", "seen": "SeenCalls?",
	},
	"Blocker": {
		"reason": "BlockReason", "task_uuid": "uuid?", "step_uuid": "uuid?", "step_name": "string?",
		"handler": "string?", "attempt": "int?", "since": "zoned?",
	},
	"Clock": {"now": "zoned", "mode": "ClockMode", "fired": "int", "next_timer": "zoned|null"},
	"StateDocument": {
		"format": "int", "product": "string", "version": "string", "exported_at": "zoned", "clock": "StateClock?",
		"seq": "int", "dropped": "int", "last_id": "uuid?",
		"templates": "[object]", "analytics": "[object]", "tasks": "[object]",
	},
	"StateClock": {"now": "zoned", "mode": "ClockMode"},
	"Sandbox": {
		"name": "string", "orchestration_url": "string", "worker_url": "string", "mount_url": "string",
	},
	"SandboxList":  {"sandboxes": "[Sandbox]"},
	"FieldProblem": {"field": "string", "message": "string"},
}

// wireWords are the closed sets of words.
var wireWords = map[string][]string{
	"TaskState": {
		"pending", "initializing", "enqueuing_steps", "steps_in_process", "evaluating_results",
		"waiting_for_dependencies", "waiting_for_retry", "blocked_by_failures",
		"complete", "error", "cancelled", "resolved_manually",
	},
	"StepState": {
		"pending", "enqueued", "in_progress", "enqueued_for_orchestration",
		"enqueued_as_error_for_orchestration", "waiting_for_retry",
		"complete", "error", "cancelled", "resolved_manually",
	},
	"StepCause": {
		"failed", "running", "claimed", "cut_off", "retry_scheduled", "dependency_cancelled", "dependency_failed",
		"dependencies", "decision", "task_stopped", "outside_actor", "slot", "starting",
	},
	"StepType":         {"standard", "decision", "deferred_convergence", "batchable", "batch_worker"},
	"StepResultStatus": {"completed", "failed", "error"},
	"ExecutionStatus": {
		"blocked_by_failures", "has_ready_steps", "processing", "all_complete", "waiting_for_dependencies",
	},
	"RecommendedAction": {
		"handle_failures", "execute_ready_steps", "wait_for_completion", "finalize_task", "wait_for_dependencies",
	},
	"HealthStatus":   {"blocked", "recovering", "healthy"},
	"ReadyStatus":    {"ready", "not_ready"},
	"CheckStatus":    {"healthy", "degraded", "unhealthy", "unknown"},
	"DetailedStatus": {"healthy", "degraded"},
	"MetricType":     {"counter", "gauge"},
	"WorkerErrorCode": {
		"invalid_request", "not_found", "template_not_found", "method_not_allowed", "conflict", "payload_too_large",
		"unsupported_media_type", "validation_failed", "internal_error", "service_unavailable", "backpressure",
		"misdirected_request",
	},
	"DLQReason": {
		"StalenessTimeout", "MaxRetriesExceeded", "DependencyCycleDetected", "WorkerUnavailable", "ManualDlq",
	},
	"DLQReasonWord": {
		"staleness_timeout", "max_retries_exceeded", "dependency_cycle_detected", "worker_unavailable",
		"manual_dlq",
	},
	"DLQStatus":           {"Pending", "ManuallyResolved", "PermanentlyFailed", "Cancelled"},
	"DLQStatusWord":       {"pending", "manually_resolved", "permanently_failed", "cancelled"},
	"StalenessHealth":     {"healthy", "warning", "stale"},
	"OperationalState":    {"Normal", "Startup", "GracefulShutdown"},
	"CircuitBreakerState": {"Closed", "Open", "HalfOpen"},
	"BlockReason":         {"running", "computing", "ready", "unrecorded", "timer"},
	"ClockMode":           {"real", "frozen", "auto"},
	"ErrorCode": {
		"BAD_REQUEST", "INVALID_UUID", "JSON_ERROR", "AUTHENTICATION_FAILED", "AUTHORIZATION_FAILED",
		"NOT_FOUND", "METHOD_NOT_ALLOWED", "CONFLICT", "PAYLOAD_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE",
		"VALIDATION_FAILED", "INTERNAL_ERROR", "SERVICE_UNAVAILABLE", "BACKPRESSURE",
		"MISDIRECTED_REQUEST", "NOT_IDLE", "VERIFICATION_FAILED",
	},
}

var (
	wireUUID = regexp.MustCompile(
		`^[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	wireInt = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
)

// checkShape fails the test for every member of a body that is missing or is
// of another kind than the shape, a kind of wireShapes, says.
func checkShape(t *testing.T, shape string, body []byte) {
	t.Helper()
	v, err := wireDecode(body)
	if err != nil {
		t.Errorf("%s: %v in %s", shape, err, body)
		return
	}
	for _, problem := range wireProblems(shape, shape, v) {
		t.Error(problem)
	}
}

// wireProblems lists where v, as wireDecode gave it, is not of a kind; path
// names v in the messages.
func wireProblems(path, kind string, v any) []string {
	for alternative := range strings.SplitSeq(kind, "|") {
		if problems, fits := wireMatch(path, alternative, v); fits {
			return problems
		}
	}
	return []string{fmt.Sprintf("%s: got %s; want %s", path, wireText(v), kind)}
}

// wireMatch reports whether v is of a kind as far as its own type goes, and
// then the problems inside of it.
func wireMatch(path, kind string, v any) (problems []string, fits bool) {
	if members, ok := wireShapes[kind]; ok {
		object, ok := v.(map[string]any)
		return wireMemberProblems(path, members, object), ok
	}
	if words, ok := wireWords[kind]; ok {
		word, _ := v.(string)
		return nil, slices.Contains(words, word)
	}
	if element, ok := wireElementKind(kind); ok {
		list, ok := v.([]any)
		for i, e := range list {
			problems = append(problems, wireProblems(fmt.Sprintf("%s.%d", path, i), element, e)...)
		}
		return problems, ok
	}
	return nil, wireIsScalar(kind, v)
}

func wireElementKind(kind string) (string, bool) {
	rest, ok := strings.CutPrefix(kind, "[")
	return strings.TrimSuffix(rest, "]"), ok
}

func wireMemberProblems(path string, members map[string]string, object map[string]any) (problems []string) {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		kind, optional := strings.CutSuffix(members[name], "?")
		v, ok := object[name]
		if ok {
			problems = append(problems, wireProblems(path+"."+name, kind, v)...)
		} else if !optional {
			problems = append(problems, fmt.Sprintf("%s.%s: missing; want %s", path, name, kind))
		}
	}
	return problems
}

func wireIsScalar(kind string, v any) bool {
	switch v := v.(type) {
	case nil:
		return kind == "null" || kind == "any"
	case bool:
		return kind == "bool" || kind == "any"
	case json.Number:
		return kind == "number" || kind == "any" || kind == "int" && wireInt.MatchString(v.String())
	case string:
		return wireIsString(kind, v)
	case map[string]any:
		return kind == "object" || kind == "any"
	}
	return kind == "any"
}

func wireIsString(kind, s string) bool {
	switch kind {
	case "string", "any", "'" + s + "'":
		return true
	case "uuid":
		return wireUUID.MatchString(s)
	case "uuid7", "uuid8":
		m := wireUUID.FindStringSubmatch(s)
		return m != nil && m[1] == kind[4:]
	case "zoned":
		return wireIsTime(zonedLayout, s)
	case "naive":
		return wireIsTime(naiveLayout, s)
	}
	return false
}

// wireIsTime compares with the time written again, because time.Parse is more
// lenient than a layout looks.
func wireIsTime(layout, s string) bool {
	t, err := time.Parse(layout, s)
	return err == nil && t.Format(layout) == s
}

func TestWireKinds(t *testing.T) {
	const id7, id8 = `"01890a5d-ac96-774b-bcce-b302099a8057"`, `"01890a5d-ac96-874b-bcce-b302099a8057"`
	tests := []struct {
		kind   string
		accept []string
		refuse []string
	}{
		{"uuid", []string{id7, id8}, []string{`"01890A5D-AC96-774B-BCCE-B302099A8057"`, `""`, `1`, `null`}},
		{"uuid7", []string{id7}, []string{id8}},
		{"uuid8", []string{id8}, []string{id7}},
		{"zoned", []string{`"2026-01-31T12:00:00.123456Z"`, `"2026-01-31T12:00:00.000000Z"`}, []string{
			`"2026-01-31T12:00:00Z"`, `"2026-01-31T12:00:00.123Z"`, `"2026-01-31T12:00:00.1234567Z"`,
			`"2026-01-31T12:00:00.123456"`, `"2026-01-31T12:00:00.123456+00:00"`, `"2026-01-31 12:00:00.123456Z"`,
			`"2026-02-30T12:00:00.123456Z"`, `"2026-01-31T12:00:00,123456Z"`, `null`,
		}},
		{"naive", []string{`"2026-01-31T12:00:00.123456"`}, []string{
			`"2026-01-31T12:00:00.123456Z"`, `"2026-01-31T12:00:00"`,
		}},
		{"naive|null", []string{`null`, `"2026-01-31T12:00:00.123456"`}, []string{`""`}},
		{"int", []string{`0`, `-7`, `123456789012345678901234567890`}, []string{
			`1.0`, `1e3`, `"1"`, `true`, `null`, `-`,
		}},
		{"number", []string{`0`, `1.5`, `1e3`}, []string{`"1"`, `null`}},
		{"string", []string{`""`, `"x"`}, []string{`1`, `null`}},
		{"'alive'", []string{`"alive"`}, []string{`"healthy"`, `null`}},
		{"bool", []string{`true`, `false`}, []string{`0`, `null`}},
		{"object", []string{`{}`, `{"a": 1}`}, []string{`[]`, `null`, `""`}},
		{"any", []string{`null`, `1`, `"x"`, `[]`, `{}`, `false`}, nil},
		{"[int]", []string{`[]`, `[1, 2]`}, []string{`[1, "2"]`, `{}`, `null`}},
		{"StepType", []string{`"standard"`}, []string{`"Standard"`, `""`, `null`}},
		{"TaskContext", []string{`{"task_uuid": ` + id7 + `, "context": {}, "more": 1}`}, []string{
			`{"task_uuid": ` + id7 + `}`, `{"task_uuid": null, "context": {}}`, `[]`, `null`,
		}},
		{"TaskContext|null", []string{`null`}, []string{`{}`}},
		{"FieldProblem", []string{`{"field": "a", "message": "b"}`}, []string{
			`{"field": "a", "field": "a", "message": "b"}`, `{"field": "a", "message": "b"} {}`,
			"{\"field\": \"a\", \"message\": \"\xff\"}", `{"field": "a", "message": "b"`,
		}},
		{"ErrorBody", []string{`{"code": "NOT_FOUND", "message": "", "request_id": ""}`}, []string{
			`{"code": "NOT_FOUND", "message": "", "request_id": "", "details": null}`,
		}},
	}
	for _, tt := range tests {
		for _, text := range tt.accept {
			if got := wireProblemsOf(tt.kind, text); got != nil {
				t.Errorf("%s as %s: got %q; want no problem", text, tt.kind, got)
			}
		}
		for _, text := range tt.refuse {
			if got := wireProblemsOf(tt.kind, text); got == nil {
				t.Errorf("%s as %s: got no problem; want one", text, tt.kind)
			}
		}
	}
}

func wireProblemsOf(kind, text string) []string {
	v, err := wireDecode([]byte(text))
	if err != nil {
		return []string{err.Error()}
	}
	return wireProblems("x", kind, v)
}

func TestWireProblemsNameEveryMember(t *testing.T) {
	got := wireProblemsOf("TaskList", `{"tasks": [], "pagination": {"page": 1.0, "per_page": 25,
		"total_count": 0, "total_pages": "0", "has_next": false}}`)
	want := []string{
		"x.pagination.has_previous: missing; want bool",
		"x.pagination.page: got 1.0; want int",
		`x.pagination.total_pages: got "0"; want int`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
}

func TestWireTablesUseKnownKinds(t *testing.T) {
	for shape, members := range wireShapes {
		for name, kind := range members {
			for alternative := range strings.SplitSeq(strings.TrimSuffix(kind, "?"), "|") {
				if !wireKnowsKind(alternative) {
					t.Errorf("%s.%s: unknown kind %q", shape, name, alternative)
				}
			}
		}
	}
}

func wireKnowsKind(kind string) bool {
	if element, ok := wireElementKind(kind); ok {
		return wireKnowsKind(element)
	}
	scalars := []string{
		"uuid", "uuid7", "uuid8", "zoned", "naive", "int", "number", "string", "bool", "object", "null", "any",
	}
	return slices.Contains(scalars, kind) || strings.HasPrefix(kind, "'") ||
		wireShapes[kind] != nil || wireWords[kind] != nil
}
