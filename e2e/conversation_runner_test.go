package e2e

// Tests of the conversation runner, with a small server.

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

func TestConversationParses(t *testing.T) {
	c, err := parseConversation("f", strings.Join([]string{
		"# surface: worker",
		"# config: a = 1",
		"# config: b = 2",
		"# Only a comment: this",
		`set long = repeat 'ab' 3`,
		"POST /v1/tasks",
		"  X-Request-Id: abc",
		"  Content-Type:",
		`  {"id":`,
		"",
		`    "{long}"}`,
		`  body-hex 00 ff`,
		`  body-text "\x01\n"`,
		`  body-repeat "[" 4`,
		"# surface: a comment by now",
		"code == 201",
	}, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	wantDirectives := map[string]string{"surface": "worker", "config": "a = 1\nb = 2"}
	if !maps.Equal(c.directives, wantDirectives) {
		t.Errorf("directives: got %q; want %q", c.directives, wantDirectives)
	}
	e := c.exchanges[1]
	wantHeaders := [][2]string{{"X-Request-Id", "abc"}, {"Content-Type", ""}}
	if !slices.Equal(e.headers, wantHeaders) {
		t.Errorf("headers: got %q; want %q", e.headers, wantHeaders)
	}
	got, err := expandBody(e.body, map[string]string{"long": c.exchanges[0].checks[0].arg})
	if want := "{\"id\":\n  \"ababab\"}\x00\xff\x01\n[[[["; err != nil || string(got) != want {
		t.Errorf("body: got %q, error %v; want %q", got, err, want)
	}
	if len(e.checks) != 1 || e.line != 6 || e.checks[0].line != 16 {
		t.Errorf("got line %d, checks %+v; want line 6, one check of line 16", e.line, e.checks)
	}
}

func TestConversationParseErrors(t *testing.T) {
	tests := []struct{ text, want string }{
		{"code == 200", `f:1: "code == 200" comes before the first request`},
		{"  body", "f:1: an indented line belongs to the request line above it"},
		{"GET /\ncode == 200\n  late", "f:3: an indented line belongs to the request line above it"},
		{"GET /\nstatus == 200", `f:2: "status == 200" is neither a request nor a check`},
		{"GET /\njson a == [1", "f:2: decoding JSON: unexpected end of JSON input"},
		{"GET /\nbody ~ (", "f:2: error parsing regexp: missing closing ): `(`"},
		{"GET /\nshape Tsk", `f:2: unknown kind "Tsk"`},
		{"GET /\njson a exists 1", `f:2: "json a exists 1" is neither a request nor a check`},
		{"POST /\nuntil code == 200", "f:2: until repeats a GET only, not a POST"},
		{"POST /\n  body-hex 0", "f:2: encoding/hex: odd length hex string"},
		{"POST /\n  body-repeat x 3", "f:2: got x 3; want a quoted string and a number"},
		{"# tempaltes: x", `f:1: unknown directive "tempaltes"`},
	}
	for _, tt := range tests {
		_, err := parseConversation("f", tt.text)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%q: got error %v; want %s", tt.text, err, tt.want)
		}
	}
}

// conversationHandler is a small server: it echoes a POST with status 201, counts the GETs of
// /count, and fails as the contract says.
func conversationHandler() http.Handler {
	var count atomic.Int64
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, code int, body string) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Request-Id", "r1")
		w.WriteHeader(code)
		io.WriteString(w, body)
	}
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			body = []byte(err.Error())
		}
		w.Header().Set("X-Sent", strings.Join(r.Header["X-Sent"], ","))
		w.Header().Set("X-Sent-Type", r.Header.Get("Content-Type"))
		answer(w, 201, string(body))
	})
	mux.HandleFunc("GET /count", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 200, fmt.Sprintf(`{"count": %d, "query": %q}`, count.Add(1), r.URL.RawQuery))
	})
	mux.HandleFunc("GET /anonymous", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /moved", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "r1")
		http.Redirect(w, r, "/count", http.StatusFound)
	})
	mux.HandleFunc("GET /plain", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "r1")
		io.WriteString(w, "{}")
	})
	mux.HandleFunc("GET /missing", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 404, `{"error": {"code": "NOT_FOUND", "message": "no", "request_id": "r1"}}`)
	})
	mux.HandleFunc("GET /broken", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 500, `{"error": {"code": "OOPS", "message": "no", "request_id": "r1"}}`)
	})
	mux.HandleFunc("GET /mixed", func(w http.ResponseWriter, r *http.Request) {
		answer(w, 404, `{"error": {"code": "NOT_FOUND", "message": "no", "request_id": "r2"}}`)
	})
	return mux
}

func TestPlayConversation(t *testing.T) {
	tests := []struct {
		name string
		text string
		want []string // the beginnings of the problems
	}{
		{"code, header, body", `
GET /count
code == 200
code != 404
header Content-Type == application/json
header X-Other absent
header X-Request-Id exists
body ~ "count": \d
body !~ error
`, nil},
		{"json", `
POST /echo
  {"a": 1.0, "b": null, "s": "x y", "l": [{"n": "p"}]}
json a == 1
json b null
json b exists
json c absent
json s == "x y"
json s != "x"
json s ~ ^x
json l ~ ^\[{"n"
json l.# == 1
json l.*.n == ["p"]
json l.n=p is object
json . has {"a": 1, "b": null}
json l.0 has {}
`, nil},
		{"variables", `
set t = repeat "ab" 2
POST /echo
  X-Sent: {t}
  {"id": "a.b", "t": "{t}"}
json t == "abab"
header X-Sent == abab
set id = json id
POST /echo
  {"id": "a.b", "other": "axb"}
json id ~ ^{id}$
json other !~ ^{id}$
GET /count?x={id}
json query == "x={id}"
`, nil},
		{"until", `
GET /count
until json count == 4
json count == 4
`, nil},
		{"content type", `
POST /echo
  {}
header X-Sent-Type == application/json
POST /echo
  Content-Type: text/x
  {}
header X-Sent-Type == text/x
POST /echo
header X-Sent-Type !~ .
`, nil},
		{"redirects are not followed", `
GET /moved
code == 302
`, nil},
		{"errors", `
GET /missing
code == 404
shape ApiError
`, nil},
		{"a failed check skips the rest of its request only", `
GET /count
code == 201
code == 202
GET /count
json x exists
`, []string{
			"f:3: code == 201: got 200; want == 201\n\tGET /count answered 200\n",
			"f:6: json x exists: got nothing; want exists\n",
		}},
		{"wrong values", `
GET /count
json count == "1"
GET /count
json count null
GET /count
json . is [int]
GET /count
json none != 1
GET /count
body ~ nothing
GET /count
shape HealthResponse
GET /count
json . has {"count": 7, "x": 1}
`, []string{
			`f:3: json count == "1": got 1; want == "1"`,
			`f:5: json count null: got 2; want null`,
			`f:7: json . is [int]: body: got {"count":3,"query":""}; want [int]`,
			`f:9: json none != 1: got nothing; want != 1`,
			`f:11: body ~ nothing: got "{\"count\": 5`,
			`f:13: shape HealthResponse: body.status: missing; `,
			`f:15: json . has {"count": 7, "x": 1}: got {"count":7,`,
		}},
		{"a variable without value ends it", `
GET /count
set x = json x
GET /count
code == 1
`, []string{"f:3: set x = json x: got nothing to set x to: the conversation ends here"}},
		{"an unknown variable ends it", `
POST /echo
  {"a": {nobody}}
GET /count
code == 1
`, []string{"f:2: variable {nobody} is not set: the conversation ends here"}},
		{"a wait in vain ends it", `
GET /count
until json count == 0
GET /count
code == 1
`, []string{"f:3: until json count == 0: still not after 50ms: got "}},
		{"what every answer must have", `
GET /anonymous
GET /plain
GET /broken
GET /mixed
`, []string{
			"f:2: every answer: got no X-Request-Id; want one",
			"f:3: every answer: got Content-Type \"text/plain; charset=utf-8\"; want application/json",
			"f:4: every answer: ApiError.error.code: got \"OOPS\"; want one of [\"BAD_REQUEST\"",
			"f:5: every answer: got error.request_id r2; want r1, that of the header",
		}},
		{"the worker's errors are its own", `
# surface: worker
GET /broken
code == 500
`, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(conversationHandler())
			defer server.Close()
			c := wire.Must(parseConversation("f", tt.text))(t)
			patience := wire.Patience
			if tt.name == "a wait in vain ends it" {
				patience = 50 * time.Millisecond
			}
			got := playConversation(c, server.URL, patience)
			if !slices.EqualFunc(got, tt.want, strings.HasPrefix) {
				t.Errorf("got %q; want problems beginning with %q", got, tt.want)
			}
		})
	}
}
