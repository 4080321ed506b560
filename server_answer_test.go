package main

// Answers: at once or in pieces, to readers of any speed, and with bounded memory.

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"stepwell/e2e/wire"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// longContext is a context that makes an answer long.
var longContext = `{"x":"` + strings.Repeat("y", 3*jsonPiece) + `"}`

// createWith creates a task that waits for an outside actor.
func createWith(t testing.TB, s *service, context string) *task {
	t.Helper()
	q := must(parseTaskRequest([]byte(`{"namespace":"t","name":"manual","context":` + context + `}`)))(t)
	return must(s.createTask(t.Context(), q, true))(t)
}

// writeCounter counts writes.
type writeCounter struct {
	httptest.ResponseRecorder
	writes int
}

func (w *writeCounter) Write(p []byte) (int, error) {
	w.writes++
	return w.ResponseRecorder.Write(p)
}

// TestAnswersAtOnceOrInPieces checks that a short answer is one write with its length, that a
// long one comes in pieces, and that a request for headers gets no body of either.
func TestAnswersAtOnceOrInPieces(t *testing.T) {
	s := newTestService(t, serviceTest{templates: apiTemplates})
	a := newOrchestrationAPI(s, nil)
	createWith(t, s, `{}`)
	for _, tc := range []struct {
		method, path string
		long         bool
	}{
		{"GET", "/v1/tasks", false}, {"HEAD", "/v1/tasks", false},
		{"GET", "/v1/tasks", true}, {"HEAD", "/v1/tasks", true}, {"GET", "/stepwell/tasks", true},
	} {
		if tc.long {
			createWith(t, s, longContext)
		}
		w := &writeCounter{ResponseRecorder: *httptest.NewRecorder()}
		a.ServeHTTP(w, httptest.NewRequest(tc.method, tc.path, nil))
		length := w.Header().Get("Content-Length")
		if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || (length != "") == tc.long {
			t.Errorf("%v: got %d with %v", tc, w.Code, w.Header())
		}
		switch {
		case tc.method == "HEAD" && tc.long:
			if w.writes > 0 {
				t.Errorf("%v: got %d writes; want none", tc, w.writes)
			}
		case tc.long:
			if w.writes < 3 || !json.Valid(w.Body.Bytes()) || !strings.Contains(w.Body.String(), longContext) {
				t.Errorf("%v: got %d writes and %d bytes", tc, w.writes, w.Body.Len())
			}
		default:
			if w.writes != 1 || length != fmt.Sprint(w.Body.Len()) {
				t.Errorf("%v: got %d writes and %d bytes; want 1 with %s", tc, w.writes, w.Body.Len(), length)
			}
		}
	}
}

// TestCompressedTexts checks that public texts are compressed for who asks for it, and that caches are told; answers about
// tasks are not.
func TestCompressedTexts(t *testing.T) {
	s := newTestService(t, serviceTest{templates: apiTemplates})
	a := newOrchestrationAPI(s, nil)
	id := createWith(t, s, longContext).id
	for _, tt := range []struct {
		method, path, accept string
		vary, zipped         bool
	}{
		{"GET", "/metrics", "gzip", true, true},
		{"GET", "/metrics", "", true, false},
		{"GET", "/api-docs.json", "br, gzip;q=0.5", true, true},
		{"GET", "/api-docs.json", "gzip;q=0, *", true, false},
		{"GET", "/api-docs", "gzip", true, true},
		{"HEAD", "/api-docs", "gzip", true, false},
		{"GET", "/console/web/x/api.js", "gzip", true, true},
		{"GET", "/v1/tasks/" + id.String(), "gzip", false, false},
		{"GET", "/v1/tasks", "gzip", false, false},
	} {
		plain, got := served(t, a, tt.method, tt.path, ""), served(t, a, tt.method, tt.path, "", "Accept-Encoding: "+tt.accept)
		h := got.header
		if got.status != 200 || (h.Get("Content-Encoding") == "gzip") != tt.zipped || (h.Get("Vary") == "Accept-Encoding") != tt.vary {
			t.Errorf("%+v: got %d with %v", tt, got.status, h)
		}
		if !tt.zipped {
			continue
		}
		body := must(io.ReadAll(must(gzip.NewReader(bytes.NewReader(got.body)))(t)))(t)
		same := len(body) == len(plain.body) || tt.path == "/metrics"
		if h.Get("Content-Length") != fmt.Sprint(len(got.body)) || h.Get("Etag") != plain.header.Get("Etag") || !same {
			t.Errorf("%+v: got %d bytes with %v; want %d", tt, len(body), h, len(plain.body))
		}
	}
}

// TestErrorsWithoutMemory checks that an error that is too long for the memory for requests is answered by a short one.
func TestErrorsWithoutMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newOrchestrationAPI(newTestService(t, serviceTest{}), nil)
		a.surface.svc.quotas.memory.take(maxRequestMemory)
		got := served(t, a, "POST", "/v1/tasks", `{"name":"a","tags":["`+strings.Repeat(`","`, maxTags-1)+`"]}`).want(503)
		if !strings.Contains(string(got.body), "BACKPRESSURE") || len(got.body) > copiedBody {
			t.Errorf("got %s", got.body)
		}
	})
}

// TestFailedAnswers checks that a failure while the first piece is made is answered, and that a
// later one closes the connection.
func TestFailedAnswers(t *testing.T) {
	var log bytes.Buffer
	s := newTestServer(t, serviceTest{log: &log})
	a := newOrchestrationAPI(s.svc, nil)
	failing := func(at int) handlerFunc {
		return func(*responseWriter, *http.Request) (any, error) {
			return jsonList{at + 1, func(o *jsonWriter, i int) {
				if o.value(strings.Repeat("y", 1000)); i == at {
					o.fail(errors.New("broken"))
				}
			}}, nil
		}
	}
	a.surface.handle([]route{{"GET /early", public, failing(1)}, {"GET /late", public, failing(1000)}})
	s = s.with(a)
	s.do("GET", "/early", "").want(500).wantText("error.message", "internal error")
	resp := must(http.Get(s.url + "/late"))(t)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != 200 || !errors.Is(err, io.ErrUnexpectedEOF) || json.Valid(body) {
		t.Errorf("got %d and %d bytes, %v; want 200 and a part of the answer", resp.StatusCode, len(body), err)
	}
	closeTestService(t, s.svc)
	for _, want := range []string{"a request failed", "an answer was cut off"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("got the log %s; want %q in it", log.String(), want)
		}
	}
}

// TestLeavingDuringAState expects no error in the log, which fails the test, when a
// client goes away.
func TestLeavingDuringAState(t *testing.T) {
	s := newFixtureServer(t, serviceTest{templates: apiTemplates})
	for _, path := range []string{"/_stepwell/state", "/v1/backup"} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := httptest.NewRequestWithContext(ctx, "GET", path, nil)
		r.Host = "localhost"
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler {
					t.Errorf("%s: got the panic %v; want the connection cut", path, p)
				}
			}()
			s.world.gates.orchestration.ServeHTTP(httptest.NewRecorder(), r)
		}()
	}
}

func TestAccepts(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "deflate, gzip;q=0.5": true, "gzip;q=0": false, "gzip; Q=0.00 ": false,
		"br": false, "gzipped": false, "gzip;q=0, gzip;q=0.7": true, "gzip;level=1": true, "gzip;q=x": true, ";;": false,
	} {
		if got := accepts([]string{header}, "gzip"); got != want {
			t.Errorf("%q: got %t; want %t", header, got, want)
		}
	}
}

// TestSlowReaders checks that a reader that takes a piece from time to time gets the whole
// answer, and that one that takes nothing is cut off. Neither holds the memory longer.
func TestSlowReaders(t *testing.T) {
	for _, tc := range []struct {
		name  string
		every time.Duration // between two reads of half a piece
		whole bool
	}{
		{"slow", answerPatience / 3, true},
		{"too slow", answerPatience, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipedServer(t, serviceTest{templates: apiTemplates})
				createWith(t, p.svc, longContext)
				r := p.get("/v1/tasks")
				var body bytes.Buffer
				var err error
				for err == nil {
					time.Sleep(tc.every) // of the bubble's time
					_, err = io.CopyN(&body, r, jsonPiece/2)
				}
				if whole := err == io.EOF && json.Valid(body.Bytes()); whole != tc.whole {
					t.Errorf("got %d bytes, %v; want the whole answer: %v", body.Len(), err, tc.whole)
				}
				synctest.Wait()
				if held := p.svc.quotas.memory.used.Load(); held != 0 {
					t.Errorf("got %d bytes held; want none", held)
				}
			})
		})
	}
}

// TestHints checks that texts come back as they were said, and that there are not too many.
func TestHints(t *testing.T) {
	h := http.Header{}
	for range 2 * maxHints {
		hint(h, `a "quoted" \ text, %s`, "ü\n")
	}
	if got := hintTexts(h); len(got) != maxHints || got[0] != `a "quoted" \\ text, \u00fc\n` {
		t.Errorf("got %d of %q", len(got), got[0])
	}
}

// TestIfMatchIsAsDeclared checks that every value that the document allows is read, and which others are refused.
func TestIfMatchIsAsDeclared(t *testing.T) {
	doc := must(wire.Decode(openAPIFile))(t)
	schema, _ := wire.LookUp(doc, "components.parameters.IfMatch.schema")
	declared := regexp.MustCompile(schema.(map[string]any)["pattern"].(string))
	a := newOrchestrationAPI(newTestService(t, serviceTest{}), nil)
	for value, read := range map[string]bool{
		`*`: true, `"x"`: true, `W/"x"`: true, `"a-1" , W/"b"`: true, `"!#$%&'()*+-./:;<=>?@[]^_{|}~"`: true,
		``: false, `""`: false, `W/""`: false, `"a", ""`: false, `x`: false, `"x`: false, `"a,b"`: false, `"a b"`: false, `*"x"`: false, `w/"x"`: false, `"a""b"`: false,
	} {
		_, err := a.surface.seenVersions(&http.Request{Header: http.Header{"If-Match": {value}}})
		if allowed := declared.MatchString(value); allowed != read || (err == nil) != read {
			t.Errorf("%s: got it allowed by the document: %v, and %v; want both: %v", value, allowed, err, read)
		}
	}
}

// TestTagsDifferByRights checks that nobody is told that they have what they may not see.
func TestTagsDifferByRights(t *testing.T) {
	s := newTestService(t, serviceTest{templates: apiTemplates})
	task := createWith(t, s, `{"a":1}`)
	a := newOrchestrationAPI(s, nil)
	seen := map[string]string{}
	for _, p := range [][]permission{
		{}, {permTasksContextRead}, {permStepsRead}, {permTasksContextRead, permStepsRead},
	} {
		sc := &securityContext{method: authByAPIKey}
		for _, one := range p {
			sc.permissions |= 1 << one
		}
		tag := a.surface.taskTag(task, hiddenFrom(withSecurity(t.Context(), sc)), 0)
		if other, twice := seen[tag]; twice {
			t.Errorf("got the tag %s for %v and for %s", tag, p, other)
		}
		seen[tag] = fmt.Sprint(p)
	}
}

// TestTagsFollowTheClock checks that the tag of a task changes when a retry becomes due, even
// before that is recorded.
func TestTagsFollowTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestService(t, serviceTest{extra: []string{testTemplate("fails", stepSpec{name: "a", callable: "Outside"})}})
		v := mustCreate(t, s, "fails")
		failed, _ := must2(s.operator.act(t.Context(), v.id, v.stepID(0), &stepRequest{
			action: actionFail, by: "x", reason: "y", err: &stepError{message: "no", errorType: "e", retryable: true},
		}))(t)
		a := newOrchestrationAPI(s, nil)
		due := failed.steps[0].retryAt
		if due == 0 {
			t.Fatal("got no retry; want one")
		}
		if before, after := a.surface.taskTag(failed, "", due-1), a.surface.taskTag(failed, "", due); before == after {
			t.Errorf("got %s before and after the retry is due", before)
		}
	})
}
