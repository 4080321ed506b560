package e2e

// What the conversation runner finds wrong, with a small server. That it accepts what is right, the conversations show.

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// conversationHandler is a small server: it echoes a POST, counts the GETs of /count, and fails otherwise, with and without
// what every answer must have.
func conversationHandler() http.Handler {
	var count atomic.Int64
	mux := http.NewServeMux()
	answer := func(pattern string, code int, body func(r *http.Request) string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Request-Id", "r1")
			w.WriteHeader(code)
			io.WriteString(w, body(r))
		})
	}
	answer("POST /echo", 201, func(r *http.Request) string {
		body, _ := io.ReadAll(r.Body)
		return string(body)
	})
	answer("GET /count", 200, func(r *http.Request) string {
		return fmt.Sprintf(`{"count": %d, "query": %q}`, count.Add(1), r.URL.RawQuery)
	})
	for path, more := range map[string]string{"GET /broken": `"OOPS", "request_id": "r1"`, "GET /mixed": `"NOT_FOUND", "request_id": "r2"`} {
		answer(path, 404, func(*http.Request) string { return `{"error": {"message": "no", "code": ` + more + `}}` })
	}
	mux.HandleFunc("GET /anonymous", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /plain", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "r1")
		io.WriteString(w, "{}")
	})
	return mux
}

func TestPlayConversation(t *testing.T) {
	tests := []struct {
		name string
		text string
		want []string // the beginnings of the problems
	}{
		{"variables", `
set t = repeat "ab" 2
POST /echo
  {"id": "a.b", "t": "{t}"}
json t == "abab"
set id = json id
POST /echo
  {"id": "a.b", "other": "axb"}
json id ~ ^{id}$
json other !~ ^{id}$
GET /count?x={id}
json query == "x={id}"
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
GET /count
json count absent
GET /count
header X-Request-Id !~ r
GET /count
code != 200
`, []string{
			`f:3: json count == "1": got 1; want == "1"`,
			`f:5: json count null: got 2; want null`,
			`f:7: json . is [int]: body: got {"count":3,"query":""}; want [int]`,
			`f:9: json none != 1: got nothing; want != 1`,
			`f:11: body ~ nothing: got "{\"count\": 5`,
			`f:13: shape HealthResponse: body.status: missing; `,
			`f:15: json . has {"count": 7, "x": 1}: got {"count":7,`,
			`f:17: json count absent: got 8; want absent`,
			`f:19: header X-Request-Id !~ r: got "r1"; want !~ r`,
			`f:21: code != 200: got 200; want != 200`,
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(conversationHandler())
			defer server.Close()
			c := wire.Must(parseConversation("f", tt.text))(t)
			got := newConvPlayer(c, server.URL, 50*time.Millisecond).playAll()
			if !slices.EqualFunc(got, tt.want, strings.HasPrefix) {
				t.Errorf("got %q; want problems beginning with %q", got, tt.want)
			}
		})
	}
}
