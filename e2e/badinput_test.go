package e2e

// Everything that can be wrong with a request body, in tables. Each row is refused with the
// status, code and details of the contract, never with a 500, and has no effect.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// TestBadInput sends every row to a program with the templates of testdata/templates
// and the default limits.
func TestBadInput(t *testing.T) {
	slow(t)
	t.Parallel()
	p := serve(t, "--memory", "--templates", apiTemplates(t))
	s := badInputServer{p.ready.OrchestrationURL, &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{ExpectContinueTimeout: 10 * time.Second},
	}}
	defer s.client.CloseIdleConnections()
	t.Run("creation fields", s.testCreationFields)
	t.Run("creation nulls", s.testCreationNulls)
	t.Run("creation JSON", s.testCreationJSON)
	t.Run("creation sizes", s.testCreationSizes)
	t.Run("waits", s.testWaits)
	t.Run("step action fields", s.testActionFields)
	t.Run("step action JSON", s.testActionJSON)
	p.stop()
}

// badCreationFields are invalid values for members of the creation payload. Each is answered
// with 422 and details that name the member.
var badCreationFields = []struct {
	member string
	values []string
}{
	{"name", []string{`null`, `5`, `true`, `[]`, `{}`, `""`}},
	{"namespace", []string{`5`, `false`, `["t"]`, `{}`}},
	{"version", []string{`1`, `1.0`, `["1.0.0"]`, `{}`}},
	{"context", []string{`[]`, `"x"`, `5`, `true`}},
	{"initiator", []string{`5`, `[]`, `{}`, `""`, badLong(256)}},
	{"source_system", []string{`5`, `true`, `{}`, `""`, badLong(256)}},
	{"reason", []string{`5`, `[]`, `""`, badLong(501)}},
	{"tags", []string{`"blue"`, `5`, `{}`, `[1]`, `["a", null]`, `[["a"]]`}},
	{"priority", []string{`"high"`, `"5"`, `1.5`, `true`, `[]`, `{}`}},
	{"correlation_id", []string{`5`, `""`, `"x"`, `"01890a5dac96-774bbcceb302099a8057"`, `{}`}},
	{"parent_correlation_id", []string{`5`, `""`, `"x"`, `"01890a5d-ac96-774b-bcce-b302099a805"`, `[]`}},
	{"idempotency_key", []string{`5`, `true`, `[]`, `{}`}},
	{"requested_at", []string{
		`1769860800`, `""`, `"yesterday"`, `"2026-01-31"`, `"2026-13-01T00:00:00Z"`, `"2026-02-30T00:00:00Z"`, `{}`,
	}},
	{"options", []string{`[]`, `"x"`, `5`, `false`}},
}

// badActions are invalid step actions, with the members that the details must name.
var badActions = []struct {
	body   string
	fields string // separated by spaces
}{
	{`{}`, "action_type"},
	{`{"action_type": null, "reason": "r", "reset_by": "a"}`, "action_type"},
	{`{"action_type": 5, "reason": "r", "reset_by": "a"}`, "action_type"},
	{`{"action_type": "", "reason": "r", "reset_by": "a"}`, "action_type"},
	{`{"action_type": "explode", "reason": "r", "reset_by": "a"}`, "action_type"},

	{`{"action_type": "reset_for_retry"}`, "reason reset_by"},
	{`{"action_type": "reset_for_retry", "reset_by": "a"}`, "reason"},
	{`{"action_type": "reset_for_retry", "reason": "r"}`, "reset_by"},
	{`{"action_type": "reset_for_retry", "reason": null, "reset_by": null}`, "reason reset_by"},
	{`{"action_type": "reset_for_retry", "reason": 5, "reset_by": ["a"]}`, "reason reset_by"},

	{`{"action_type": "resolve_manually"}`, "reason resolved_by"},
	{`{"action_type": "resolve_manually", "reason": "r"}`, "resolved_by"},
	{`{"action_type": "resolve_manually", "resolved_by": "a"}`, "reason"},
	{`{"action_type": "resolve_manually", "reason": "r", "reset_by": "a"}`, "resolved_by"},
	{`{"action_type": "resolve_manually", "reason": {}, "resolved_by": 5}`, "reason resolved_by"},

	{`{"action_type": "complete_manually"}`, "completion_data reason completed_by"},
	{`{"action_type": "complete_manually", "completion_data": null, "reason": "r", "completed_by": "a"}`, "completion_data"},
	{`{"action_type": "complete_manually", "completion_data": [1], "reason": "r", "completed_by": "a"}`, "completion_data"},
	{`{"action_type": "complete_manually", "completion_data": {}, "reason": "r", "completed_by": "a"}`, "completion_data.result"},
	{`{"action_type": "complete_manually", "completion_data": {"result": 1, "metadata": []},
		"reason": "r", "completed_by": "a"}`, "completion_data.metadata"},
	{`{"action_type": "complete_manually", "completion_data": {"result": 1}, "reason": 5, "completed_by": 5}`, "reason completed_by"},

	{`{"action_type": "fail"}`, "error reason failed_by"},
	{`{"action_type": "fail", "error": null, "reason": "r", "failed_by": "a"}`, "error"},
	{`{"action_type": "fail", "error": "broken", "reason": "r", "failed_by": "a"}`, "error"},
	{`{"action_type": "fail", "error": {}, "reason": "r", "failed_by": "a"}`, "error.message"},
	{`{"action_type": "fail", "error": {"message": 5, "error_type": 5, "retryable": "yes"},
		"reason": "r", "failed_by": "a"}`, "error.message error.error_type error.retryable"},
	{`{"action_type": "fail", "error": {"message": "m"}}`, "reason failed_by"},
}

// badJSONBodies are broken versions of a valid body, an object.
var badJSONBodies = []struct {
	name string
	code string
	make func(good string) string
}{
	{"empty", "JSON_ERROR", func(string) string { return "" }},
	{"only white space", "JSON_ERROR", func(string) string { return " \n\t" }},
	{"no JSON", "JSON_ERROR", func(string) string { return "name=diamond&namespace=t" }},
	{"truncated at the end", "JSON_ERROR", func(good string) string { return good[:len(good)-1] }},
	{"truncated in the middle", "JSON_ERROR", func(good string) string { return good[:len(good)/2] }},
	{"a lone brace", "JSON_ERROR", func(string) string { return "{" }},
	{"junk behind", "JSON_ERROR", func(good string) string { return good + " x" }},
	{"a brace behind", "JSON_ERROR", func(good string) string { return good + "}" }},
	{"twice", "JSON_ERROR", func(good string) string { return good + "\n" + good }},
	{"a NUL before", "JSON_ERROR", func(good string) string { return "\x00" + good }},
	{"a NUL behind", "JSON_ERROR", func(good string) string { return good + "\x00" }},
	{"two byte order marks", "JSON_ERROR", func(good string) string { return "\ufeff\ufeff" + good }},
	{"UTF-16", "JSON_ERROR", func(good string) string {
		return "\xff\xfe" + strings.Join(strings.Split(good, ""), "\x00") + "\x00"
	}},
	{"a comment", "JSON_ERROR", func(good string) string { return "/* see */ " + good }},
	{"a comma too many", "JSON_ERROR", func(good string) string { return good[:len(good)-1] + ",}" }},
	{"single quotes", "JSON_ERROR", func(good string) string { return strings.ReplaceAll(good, `"`, `'`) }},
	{"no-break space", "JSON_ERROR", func(good string) string { return "\u00a0" + good }},
	{"a duplicate member", "JSON_ERROR", func(good string) string { return `{"zz": 1, "zz": 1, ` + good[1:] }},
	{"a disguised duplicate", "JSON_ERROR", func(good string) string { return `{"z": 1, "\u007a": 1, ` + good[1:] }},
	{"10,000 lists", "JSON_ERROR", func(string) string { return badDeep("[", "", "]", 1e4) }},
	{"10,000 lists never closed", "JSON_ERROR", func(string) string { return badDeep("[", "", "", 1e4) }},
	{"10,000 objects", "JSON_ERROR", func(string) string { return badDeep(`{"a":`, "1", "}", 1e4) }},
	{"a list", "BAD_REQUEST", func(good string) string { return "[" + good + "]" }},
	{"an empty list", "BAD_REQUEST", func(string) string { return "[]" }},
	{"null", "BAD_REQUEST", func(string) string { return "null" }},
	{"a string", "BAD_REQUEST", func(string) string { return `"diamond"` }},
	{"a number", "BAD_REQUEST", func(string) string { return "42" }},
	{"a boolean", "BAD_REQUEST", func(string) string { return "true" }},
}

// badJSONValues are refused wherever any JSON is allowed, with JSON_ERROR.
var badJSONValues = []string{
	// Nothing, and texts that are not a value.
	"", "]", "tru", "True", "nil", "undefined", "NaN", "Infinity", "-Infinity", "\xff", "\x00",
	// Numbers that are not finite, and numbers that JSON does not allow.
	"1e400", "-1e400", "1" + strings.Repeat("0", 400), "[1e999999999]",
	"01", "-01", "+1", ".5", "1.", "1e", "1e+", "-", "0x10", "1_000", "1,5",
	// Strings.
	`"`, `'x'`, `"\x41"`, `"\u12"`, `"\u12G4"`, `"\`, "\"a\nb\"", "\"a\tb\"", "\"a\x1fb\"", "\"a\x00b\"",
	`"a\u0000b"`, `{"a\u0000": 1}`, "{\"a\x00\": 1}",
	// Surrogates that are alone or in the wrong order.
	`"\ud800"`, `"\udc00"`, `"\ud800x"`, `"\ud800\ud800"`, `"\udc00\ud800"`, `"\ud800\u0041"`, `{"\ud800": 1}`,
	// Invalid UTF-8: stray, overlong, a surrogate, too large, cut off.
	"\"\xff\"", "\"\x80\"", "\"\xc0\x80\"", "\"\xc1\xbf\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"",
	"\"\xe2\x82\"", "{\"\xff\": 1}",
	// Duplicate members, at any depth and in any spelling.
	`{"a": 1, "a": 1}`, `{"a": 1, "b": 2, "\u0061": 3}`, `[[{"a": {"b": 1, "b": 2}}]]`, `{"": 1, "": 2}`,
	`{"\ud83d\ude00": 1, "😀": 2}`, `{"/": 1, "\/": 2}`,
	// Structure.
	`[1,]`, `[,1]`, `[1 2]`, `[1`, `{"a"}`, `{"a":}`, `{"a": 1,}`, `{a: 1}`, `{1: 1}`,
	`{"a" 1}`, `{"a": 1 "b": 2}`, `{`, `[}`, "\v1", "\u00a01", "// x\n1",
	// Depth.
	badDeep("[", "", "]", 70), badDeep(`{"a":`, "1", "}", 70),
	badDeep("[", "", "]", 1e4), badDeep("[", "", "", 1e4), badDeep(`{"a":`, "", "", 1e4),
}

// badLong returns a JSON string of n characters.
func badLong(n int) string { return `"` + strings.Repeat("x", n) + `"` }

// badDeep returns inner inside n levels.
func badDeep(open, inner, close string, n int) string {
	return strings.Repeat(open, n) + inner + strings.Repeat(close, n)
}

// badInputServer is the server that receives the rows.
type badInputServer struct {
	baseURL string
	client  *http.Client
}

func (s *badInputServer) testCreationFields(t *testing.T) {
	for _, field := range badCreationFields {
		for _, value := range field.values {
			body := badPayload(field.member, value)
			s.refuses(t, body, s.create(t, body), 422, "VALIDATION_FAILED", field.member)
		}
	}
	body := `{"namespace": "t"}`
	s.refuses(t, body, s.create(t, body), 422, "VALIDATION_FAILED", "name")
	body = `{"name": 1, "namespace": 2, "version": 3, "context": 4, "initiator": 5, "source_system": 6,
		"reason": 7, "tags": 8, "priority": "9", "correlation_id": 10, "parent_correlation_id": 11,
		"idempotency_key": 12, "requested_at": 13, "options": 14}`
	s.refuses(t, body, s.create(t, body), 422, "VALIDATION_FAILED",
		"name", "namespace", "version", "context", "initiator", "source_system", "reason", "tags",
		"priority", "correlation_id", "parent_correlation_id", "idempotency_key", "requested_at", "options")
}

// testCreationNulls checks that null means "not given" for every optional member.
func (s *badInputServer) testCreationNulls(t *testing.T) {
	for _, field := range badCreationFields {
		if field.member == "name" || field.member == "namespace" {
			continue // required; and a null namespace is the default one
		}
		body, before := badPayload(field.member, "null"), s.taskCount(t)
		if a := s.create(t, body); a.Code != 201 {
			t.Errorf("%s: got %d; want 201\n%s", body, a.Code, a)
		}
		if got := s.taskCount(t); got != before+1 {
			t.Errorf("%s: got %d tasks; want %d", body, got, before+1)
		}
	}
}

func (s *badInputServer) testCreationJSON(t *testing.T) {
	for _, row := range badJSONBodies {
		body := row.make(`{"name": "diamond", "namespace": "t", "reason": "bad input"}`)
		s.refuses(t, row.name, s.create(t, body), 400, row.code)
	}
	for _, value := range badJSONValues {
		for _, format := range []string{
			`{"name": "diamond", "namespace": "t", "context": {"x": %s}}`,
			`{"name": "diamond", "namespace": "t", "unknown": %s}`,
		} {
			body := fmt.Sprintf(format, value)
			s.refuses(t, body, s.create(t, body), 400, "JSON_ERROR")
		}
	}
}

func (s *badInputServer) testCreationSizes(t *testing.T) {
	const maxBody, maxContext = 4 << 20, 1 << 20
	long := badPayload("reason", badLong(maxBody))
	s.refuses(t, "a body over the limit", s.create(t, long), 413, "PAYLOAD_TOO_LARGE")
	spaces := badPayload("reason", `"r"`) + strings.Repeat(" ", maxBody)
	s.refuses(t, "white space over the limit", s.create(t, spaces), 413, "PAYLOAD_TOO_LARGE")
	chunked := s.send(t, "POST", "/v1/tasks", io.MultiReader(strings.NewReader(long)))
	s.refuses(t, "a body of unknown length over the limit", chunked, 413, "PAYLOAD_TOO_LARGE")
	context := badPayload("context", `{"x": `+badLong(maxContext)+`}`)
	s.refuses(t, "a context over the limit", s.create(t, context), 413, "PAYLOAD_TOO_LARGE")
}

// badDurations are invalid limits of a wait.
var badDurations = []string{
	"30", "s", "x", "-1s", "-1ns", "1h1ns", "2h", "99999999999h", "NaN", "1e3s", "0x1s", "1%20s", "30S", "1d", "%zz", "%00", "\u0663s",
}

// badStates are invalid states to wait for.
var badStates = []string{"x", "done", "Complete", "TERMINAL", "complete,error", "complete%20", "%zz", "%ff"}

// testWaits checks that an invalid wait creates nothing and waits for nothing.
func (s *badInputServer) testWaits(t *testing.T) {
	before := s.taskCount(t)
	for _, d := range badDurations {
		body := strings.NewReader(badPayload("reason", `"r"`))
		s.refuses(t, "wait="+d, s.send(t, "POST", "/v1/tasks?wait="+d, body), 400, "BAD_REQUEST")
	}
	if got := s.taskCount(t); got != before {
		t.Errorf("got %d tasks; want %d", got, before)
	}
	step := s.waitingStep(t)
	task, _, _ := strings.Cut(step, "/workflow_steps")
	for _, d := range badDurations {
		a := s.send(t, "GET", task+"?wait=terminal&timeout="+d, nil)
		s.refuses(t, "timeout="+d, a, 400, "BAD_REQUEST")
	}
	for _, state := range badStates {
		s.refuses(t, "wait="+state, s.send(t, "GET", task+"?wait="+state, nil), 400, "BAD_REQUEST")
	}
	s.leftAlone(t, step)
}

func (s *badInputServer) testActionFields(t *testing.T) {
	step := s.waitingStep(t)
	for _, row := range badActions {
		a := s.send(t, "PATCH", step, strings.NewReader(row.body))
		s.refuses(t, row.body, a, 422, "VALIDATION_FAILED", strings.Fields(row.fields)...)
	}
	s.leftAlone(t, step)
}

func (s *badInputServer) testActionJSON(t *testing.T) {
	step := s.waitingStep(t)
	const format = `{"action_type": "complete_manually", "completion_data": {"result": %s},
		"reason": "bad input", "completed_by": "a"}`
	for _, row := range badJSONBodies {
		a := s.send(t, "PATCH", step, strings.NewReader(row.make(fmt.Sprintf(format, "1"))))
		s.refuses(t, row.name, a, 400, row.code)
	}
	for _, value := range badJSONValues {
		a := s.send(t, "PATCH", step, strings.NewReader(fmt.Sprintf(format, value)))
		s.refuses(t, value, a, 400, "JSON_ERROR")
	}
	long := fmt.Sprintf(format, badLong(4<<20))
	a := s.send(t, "PATCH", step, strings.NewReader(long))
	s.refuses(t, "a body over the limit", a, 413, "PAYLOAD_TOO_LARGE")
	s.leftAlone(t, step)
}

// badPayload returns a creation payload that is valid except for one member.
func badPayload(member, value string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"%s": %s`, member, value)
	for _, m := range [][2]string{{"name", `"diamond"`}, {"namespace", `"t"`}} {
		if m[0] != member {
			fmt.Fprintf(&b, `, "%s": %s`, m[0], m[1])
		}
	}
	return b.String() + "}"
}

// create posts a payload, and fails the test if a refused payload created a task, or an
// accepted one did not.
func (s *badInputServer) create(t *testing.T, body string) *wire.Answer {
	t.Helper()
	before := s.taskCount(t)
	a := s.send(t, "POST", "/v1/tasks", strings.NewReader(body))
	if made := s.taskCount(t) - before; made != 0 && a.Code != 201 {
		t.Errorf("%s: got %d tasks from a %d; want none", wire.Cut(body), made, a.Code)
	}
	return a
}

// send expects a 100 Continue if the body is large, because a server that refuses the body
// without reading it may close the connection during the write.
func (s *badInputServer) send(t *testing.T, method, path string, body io.Reader) *wire.Answer {
	t.Helper()
	req := wire.Must(http.NewRequest(method, s.baseURL+path, body))(t)
	if method != "GET" {
		req.Header.Set("Content-Type", "application/json")
	}
	if req.ContentLength > 1<<16 || req.ContentLength < 0 {
		req.Header.Set("Expect", "100-continue")
	}
	a, err := conversationSend(s.client, req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// refuses checks the status, the code and the shape of an error, and that its details name the
// fields. A JSON_ERROR must name an offset.
func (s *badInputServer) refuses(
	t *testing.T, row string, a *wire.Answer, status int, code string, fields ...string,
) {
	t.Helper()
	row = wire.Cut(row)
	var body struct {
		Error struct {
			Code, Message string
			Details       []struct{ Field string }
		}
	}
	if err := json.Unmarshal(a.Body, &body); err != nil || a.Code != status || body.Error.Code != code {
		t.Errorf("%q: got %d %s; want %d %s\n%s", row, a.Code, body.Error.Code, status, code, a)
		return
	}
	if _, err := wire.CheckShape("ApiError", a.Body); err != nil {
		t.Errorf("%q: %v", row, err)
	}
	if code == "JSON_ERROR" && !strings.ContainsAny(body.Error.Message, "0123456789") {
		t.Errorf("%q: got message %q; want the offset in it", row, body.Error.Message)
	}
	var named []string
	for _, d := range body.Error.Details {
		named = append(named, d.Field)
	}
	if len(fields) > 0 && !badFieldsNamed(named, fields) {
		t.Errorf("%q: got details for %q; want for %q", row, named, fields)
	}
}

// badFieldsNamed reports whether the errors name every wanted field or a part of it, and no
// other field.
func badFieldsNamed(named, want []string) bool {
	missing := func(w string) bool {
		return !slices.ContainsFunc(named, func(n string) bool { return badIsPart(n, w) })
	}
	surplus := func(n string) bool {
		return !slices.ContainsFunc(want, func(w string) bool { return badIsPart(n, w) })
	}
	return !slices.ContainsFunc(want, missing) && !slices.ContainsFunc(named, surplus)
}

func badIsPart(name, of string) bool {
	rest, ok := strings.CutPrefix(name, of)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func (s *badInputServer) taskCount(t *testing.T) int {
	t.Helper()
	var list taskPage
	a := s.send(t, "GET", "/v1/tasks?per_page=1", nil)
	if err := json.Unmarshal(a.Body, &list); err != nil || a.Code != 200 {
		t.Fatalf("counting tasks: got error %v; want a list\n%s", err, a)
	}
	return list.Pagination.TotalCount
}

// waitingStep creates a task whose first step waits for an outside actor, and returns the path
// of that step.
func (s *badInputServer) waitingStep(t *testing.T) string {
	t.Helper()
	const text = `
POST /v1/tasks
  {"name": "manual", "namespace": "t"}
code == 201
set id = json task_uuid
GET /v1/tasks/{id}
until json steps.name=approve.current_state == "enqueued"
set step = json steps.name=approve.workflow_step_uuid
`
	c := wire.Must(parseConversation("waiting step", text))(t)
	p := newConvPlayer(c, s.baseURL, 10*time.Second)
	for _, e := range c.exchanges {
		if err := p.play(e); err != nil {
			t.Fatal(err)
		}
	}
	return "/v1/tasks/" + p.vars["id"] + "/workflow_steps/" + p.vars["step"]
}

// leftAlone checks that a waiting step has not changed.
func (s *badInputServer) leftAlone(t *testing.T, step string) {
	t.Helper()
	var got struct {
		CurrentState string `json:"current_state"`
		Attempts     int
		Results      any
	}
	a := s.send(t, "GET", step, nil)
	err := json.Unmarshal(a.Body, &got)
	if err != nil || got.CurrentState != "enqueued" || got.Attempts != 0 || got.Results != nil {
		t.Errorf("after bad input: got %+v, error %v; want an enqueued step without attempts\n%s", got, err, a)
	}
	audit := s.send(t, "GET", step+"/audit", nil)
	if got := string(bytes.TrimSpace(audit.Body)); got != "[]" {
		t.Errorf("after bad input: got audit %s; want []", got)
	}
}

func TestBadFieldsNamed(t *testing.T) {
	tests := []struct {
		named, want string
		ok          bool
	}{
		{"tags", "tags", true},
		{"tags[0]", "tags", true},
		{"tags.0", "tags", true},
		{"reason reset_by", "reset_by reason", true},
		{"", "tags", false},
		{"tagsy", "tags", false},
		{"reason", "reason reset_by", false},
		{"reason name", "reason", false},
		{"completion_data", "completion_data.result", false},
	}
	for _, tt := range tests {
		if got := badFieldsNamed(strings.Fields(tt.named), strings.Fields(tt.want)); got != tt.ok {
			t.Errorf("%q for %q: got %v; want %v", tt.named, tt.want, got, tt.ok)
		}
	}
}
