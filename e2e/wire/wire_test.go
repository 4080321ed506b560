package wire

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	const text = " {\"a\": [1, -2.5e3 ,true,false,null, \"x\\\"\\\\\\u00e9é\"],\"\\u0062\":{ },\"c\":[ ] } \n"
	want := map[string]any{
		"a": []any{json.Number("1"), json.Number("-2.5e3"), true, false, nil, `x"\éé`}, "b": map[string]any{}, "c": []any{},
	}
	if got, err := Decode([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, %v; want %#v", got, err, want)
	}
	for text, want := range map[string]string{
		``: "unexpected end", `{} {}`: "after top-level value", `{"a":01}`: "invalid character", `"` + "\xff" + `"`: "UTF-8",
		`[{"a":1,"\u0061":2}]`: `duplicate member "a"`,
	} {
		if got, err := Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v; want an error with %q", text, got, err, want)
		}
	}
}

func TestLookUp(t *testing.T) {
	const text = `{"a": {"b": [10, {"c": "x", "n": null}, {"c": "y", "d": 2}]}, "l": [], "dotted.name": true}`
	tests := []struct{ path, want string }{
		{".", text}, {"a.b.0", "10"}, {"a.b.#", "3"}, {"l.#", "0"}, {"l", "[]"}, {"a.b.*.c", `["x", "y"]`}, {"a.b.c=y.d", "2"},
		{"a.b.1.n", "null"}, {`dotted\.name`, "true"},
		{"a.b.c=z", ""}, {"a.b.3", ""}, {"a.b.-1", ""}, {"a.b.x", ""}, {"a.x", ""}, {"a.b.0.x", ""}, {"a.#", ""},
	}
	v, err := Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		got, ok := LookUp(v, tt.path)
		if !ok {
			if tt.want != "" {
				t.Errorf("%s: got nothing; want %s", tt.path, tt.want)
			}
			continue
		}
		want, err := Decode([]byte(tt.want))
		if err != nil || !Equal(got, want) {
			t.Errorf("%s: got %s; want %q", tt.path, Text(got), tt.want)
		}
	}
}

func TestKinds(t *testing.T) {
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
		{"int", []string{`0`, `-7`, `123456789012345678901234567890`}, []string{
			`1.0`, `1e3`, `"1"`, `true`, `null`, `-`,
		}},
		{"number", []string{`0`, `1.5`, `1e3`}, []string{`"1"`, `null`}},
		{"string", []string{`""`, `"x"`}, []string{`1`, `null`}},
		{"object", []string{`{}`, `{"a": 1}`}, []string{`[]`, `null`, `""`}},
		{"any", []string{`null`, `1`, `"x"`, `[]`, `{}`, `false`}, nil},
		{"[int]", []string{`[]`, `[1, 2]`}, []string{`[1, "2"]`, `{}`, `null`}},
		{"StepType", []string{`"standard"`}, []string{`"Standard"`, `""`, `null`}},
		{"TaskContext", []string{`{"task_uuid": ` + id7 + `, "context": {}}`}, []string{
			`{"task_uuid": ` + id7 + `, "context": {}, "more": 1}`,
			`{"task_uuid": ` + id7 + `}`, `{"task_uuid": null, "context": {}}`, `[]`, `null`,
		}},
		{"FieldProblem", []string{`{"field": "a", "message": "b"}`}, []string{
			`{"field": "a", "field": "a", "message": "b"}`, `{"field": "a", "message": "b"} {}`,
			"{\"field\": \"a\", \"message\": \"\xff\"}", `{"field": "a", "message": "b"`,
		}},
		{"ApiErrorBody", []string{`{"code": "NOT_FOUND", "message": "", "request_id": ""}`}, []string{
			`{"code": "NOT_FOUND", "message": "", "request_id": "", "details": null}`,
		}},
	}
	for _, tt := range tests {
		for _, text := range tt.accept {
			if got := problemsOf(tt.kind, text); got != nil {
				t.Errorf("%s as %s: got %q; want no problem", text, tt.kind, got)
			}
		}
		for _, text := range tt.refuse {
			if got := problemsOf(tt.kind, text); got == nil {
				t.Errorf("%s as %s: got no problem; want one", text, tt.kind)
			}
		}
	}
}

func problemsOf(kind, text string) []string {
	v, err := Decode([]byte(text))
	if err != nil {
		return []string{err.Error()}
	}
	return Problems("x", kind, v)
}

func TestProblemsNameEveryMember(t *testing.T) {
	got := problemsOf("TaskListResponse", `{"tasks": [], "pagination": {"page": 1.0, "per_page": 25,
		"total_count": 0, "total_pages": "0", "has_next": false}}`)
	want := []string{
		"x.pagination.has_previous: missing",
		`x.pagination.page: got 1.0; want type "integer"`,
		`x.pagination.total_pages: got "0"; want type "integer"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q; want %q", got, want)
	}
}

// TestSummary skips tests for each kind of reason: the line names the missing tools, and counts each test once.
func TestSummary(t *testing.T) {
	t.Setenv("LONG_TESTS", "")
	t.Setenv("PATH", t.TempDir())
	for name, leave := range map[string]func(testing.TB){
		"program": func(t testing.TB) { Need(t, "no-such-program|nor-this") },
		"other":   func(t testing.TB) { Need(t, "another") },
		"package": func(t testing.TB) { Lack(t, "package", "needs %s", "a package") },
		"long":    Long,
		"system":  func(t testing.TB) { Skip(t, "not %s", "here") },
	} {
		t.Run(name, func(t *testing.T) { leave(t) })
	}
	want := "p: skipped tests: 3 for want of another, no-such-program|nor-this, package; 1 not for this machine or run; " +
		"1 only with LONG_TESTS=1\n"
	if got := summary("p"); got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}
