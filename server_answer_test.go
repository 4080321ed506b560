package main

// Answers: at once or in pieces, to readers of any speed, and with bounded memory.

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
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

// TestCompressedAnswers checks which answers are compressed, that they are the same otherwise,
// and that caches are told.
func TestCompressedAnswers(t *testing.T) {
	s := newTestService(t, serviceTest{templates: apiTemplates})
	a := newOrchestrationAPI(s, nil)
	id := createWith(t, s, `{}`).id
	createWith(t, s, longContext)
	for _, tt := range []struct {
		method, path, accept string
		vary, zipped         bool
	}{
		{"GET", "/v1/tasks/" + id.String(), "gzip", true, true},
		{"GET", "/v1/tasks/" + id.String(), "", true, false},
		{"GET", "/v1/tasks/" + id.String(), "br, gzip;q=0.5", true, true},
		{"GET", "/v1/tasks/" + id.String(), "gzip;q=0, *", true, false},
		{"GET", "/v1/tasks/" + id.String(), "*", true, true},
		{"GET", "/v1/tasks/" + id.String(), "identity, gzip;q=0.5", true, false},
		{"HEAD", "/v1/tasks/" + id.String(), "gzip", true, false},
		{"GET", "/v1/tasks", "gzip", true, true}, // in pieces
		{"GET", "/v1/backup", "gzip", true, true},
		{"GET", "/v1/tasks/" + id.String() + "/context", "gzip", true, false}, // short, but kept
		{"GET", "/health/live", "gzip", false, false},                         // short
		{"GET", "/metrics", "gzip", true, true},
		{"GET", "/api-docs.json", "gzip", true, true},
		{"GET", "/api-docs", "gzip", true, true},
		{"HEAD", "/v1/events", "gzip", false, false},
		{"POST", "/v1/steps/claim", "gzip", false, false},
	} {
		var asked io.Reader
		if tt.method == "POST" {
			asked = strings.NewReader(`{"callables":["*"],"limit":2}`)
		}
		r := httptest.NewRequest(tt.method, tt.path, asked)
		r.Header.Set("Content-Type", jsonType)
		w, plain := httptest.NewRecorder(), httptest.NewRecorder()
		if tt.zipped {
			a.ServeHTTP(plain, r)
		}
		if tt.accept != "" {
			r.Header.Set("Accept-Encoding", tt.accept)
		}
		a.ServeHTTP(w, r)
		h := w.Header()
		if w.Code != 200 || (h.Get("Content-Encoding") == "gzip") != tt.zipped || strings.Contains(strings.Join(h["Vary"], ","), "Accept-Encoding") != tt.vary {
			t.Errorf("%+v: got %d with %v", tt, w.Code, h)
		}
		if !tt.zipped {
			continue
		}
		want := plain.Header().Get("Etag")
		if want != "" && want[0] == '"' {
			want = strings.TrimSuffix(want, `"`) + `-gzip"`
		}
		if tag := h.Get("Etag"); tag != "" && tag != want {
			t.Errorf("%+v: got the tag %s; want %s", tt, tag, want)
		}
		sent := w.Body.Len()
		body := must(io.ReadAll(must(gzip.NewReader(w.Body))(t)))(t)
		same := len(body) == plain.Body.Len() || tt.path == "/metrics" || tt.path == "/v1/backup"
		if length := h.Get("Content-Length"); length != "" && length != fmt.Sprint(sent) || !same {
			t.Errorf("%+v: got %d bytes, Content-Length %q; want %d", tt, len(body), h.Get("Content-Length"), plain.Body.Len())
		}
	}
	if held := a.surface.svc.quotas.memory.used.Load(); held != 0 {
		t.Errorf("got %d bytes held; want none", held)
	}
}

// TestCompressingTakesMemory checks that an answer is sent as it is when there is no memory to compress it.
func TestCompressingTakesMemory(t *testing.T) {
	s := &testServer{t: t, svc: newTestService(t, serviceTest{templates: apiTemplates})}
	api := newOrchestrationAPI(s.svc, nil)
	s.svc.quotas.memory.most = 1 << 20
	s = s.with(api)
	createWith(t, s.svc, longContext)
	for _, path := range []string{"/v1/tasks", "/v1/tasks?context=false"} {
		req := must(http.NewRequest("GET", s.url+path, nil))(t)
		req.Header.Set("Accept-Encoding", "gzip")
		a := readAnswer(t, must(http.DefaultClient.Do(req))(t)).want(200)
		if a.header.Get("Content-Encoding") != "" || !json.Valid(a.body) || len(a.body) < gzipFrom/2 {
			t.Errorf("%s: got %v and %d bytes; want JSON", path, a.header, len(a.body))
		}
	}
}

// TestCompressedAnswersHoldLittle checks that a short answer that nobody reads does not hold what compressing it took.
func TestCompressedAnswersHoldLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipedServer(t, serviceTest{templates: apiTemplates})
		noise := make([]byte, 10_000) // compressed, it is longer than the buffers of net/http
		rand.Read(noise)
		createWith(t, p.svc, fmt.Sprintf(`{"x":"%x"}`, noise))
		p.dial("GET /v1/tasks HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n")
		synctest.Wait()
		if held := p.svc.quotas.memory.used.Load(); held == 0 || held > 2*jsonPiece {
			t.Errorf("got %d bytes held; want those of one buffer", held)
		}
	})
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
