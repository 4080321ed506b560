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
		r := httptest.NewRequest(tt.method, tt.path, nil)
		w, plain := httptest.NewRecorder(), httptest.NewRecorder()
		a.ServeHTTP(plain, r)
		r.Header.Set("Accept-Encoding", tt.accept)
		a.ServeHTTP(w, r)
		h := w.Header()
		if w.Code != 200 || (h.Get("Content-Encoding") == "gzip") != tt.zipped || (h.Get("Vary") == "Accept-Encoding") != tt.vary {
			t.Errorf("%+v: got %d with %v", tt, w.Code, h)
		}
		if !tt.zipped {
			continue
		}
		sent := w.Body.Len()
		body := must(io.ReadAll(must(gzip.NewReader(w.Body))(t)))(t)
		same := len(body) == plain.Body.Len() || tt.path == "/metrics"
		if h.Get("Content-Length") != fmt.Sprint(sent) || h.Get("Etag") != plain.Header().Get("Etag") || !same {
			t.Errorf("%+v: got %d bytes with %v; want %d", tt, len(body), h, plain.Body.Len())
		}
	}
}

// TestErrorsWithoutMemory checks that an error that is too long for the memory for requests is answered by a short one.
func TestErrorsWithoutMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newOrchestrationAPI(newTestService(t, serviceTest{}), nil)
		a.surface.svc.quotas.memory.take(maxRequestMemory)
		w := httptest.NewRecorder()
		body := `{"name":"a","tags":["` + strings.Repeat(`","`, maxTags-1) + `"]}`
		r := httptest.NewRequest("POST", "/v1/tasks", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		a.ServeHTTP(w, r)
		if w.Code != 503 || !strings.Contains(w.Body.String(), "BACKPRESSURE") || w.Body.Len() > copiedBody {
			t.Errorf("got %d: %s", w.Code, w.Body)
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

func TestAcceptWeight(t *testing.T) {
	for _, tt := range []struct {
		header string
		want   float64
	}{
		{"", -1}, {"gzip", 1}, {"GZIP", 1}, {"deflate, gzip;q=0.5", 0.5}, {"gzip;q=0", 0}, {"gzip ; Q=0.25", 0.25},
		{"gzip;q=x", 1}, {"br", -1}, {"gzipped", -1}, {"gzip;q=0.1, gzip;q=0.7", 0.7}, {"gzip;q=-1", 0}, {"gzip;q=7", 1},
	} {
		if got := acceptWeight([]string{tt.header}, "gzip"); got != tt.want {
			t.Errorf("%q: got %v; want %v", tt.header, got, tt.want)
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
