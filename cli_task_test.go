package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// benchWith runs bench against a service whose requests pass through a filter, which reports whether it
// has answered. It returns what -o json prints.
func benchWith(t *testing.T, ctx context.Context, filter func(w http.ResponseWriter, r *http.Request) bool, args ...string) (
	v benchResult, progress string, code int,
) {
	t.Helper()
	s := newTestService(t, serviceTest{extra: []string{
		testTemplate("nap", stepSpec{name: "a", callable: "builtin:sleep", config: `{"duration_ms":3}`}),
	}})
	api := newOrchestrationAPI(s, nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !filter(w, r) {
			api.ServeHTTP(w, r)
		}
	}))
	defer web.Close()
	var out, errOut bytes.Buffer
	in := configInput{env: map[string]string{}}
	p := &process{getenv: in.getenv, environ: in.environ(), now: realNow, stdin: strings.NewReader(""), stdout: &out, stderr: &errOut}
	code = exitCode(p.run(ctx, append([]string{"bench", "--url", web.URL, "--template", "t/nap", "-o", "json"}, args...)))
	if out.Len() > 0 {
		noError(t, json.Unmarshal(out.Bytes(), &v))
	}
	return v, errOut.String(), code
}

// TestBench measures a closed loop, at a service that waits and at one that ignores what it does not know.
func TestBench(t *testing.T) {
	t.Parallel()
	for _, waits := range []bool{true, false} {
		var created, asked atomic.Int64
		v, _, code := benchWith(t, t.Context(), func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == "GET" {
				asked.Add(1)
			} else {
				created.Add(1)
			}
			if !waits {
				r.URL.RawQuery = ""
			}
			return false
		}, "--clients", "3", "--duration", "200ms")
		if code != 0 || v.Loop != "closed" || v.Rate != nil || v.Errors > 0 || v.Tasks == 0 || v.Tasks != uint64(created.Load())-1 {
			t.Errorf("got %+v, exit code %d; want each of the %d tasks but the first", v, code, created.Load())
		}
		if v.TasksPerSecond <= 0 || v.Latency["p50"] <= 0 || v.Latency["p50"] > v.Latency["p99_9"] || v.Latency["p99_9"] > v.Latency["max"] {
			t.Errorf("got %+v", v)
		}
		if (asked.Load() == 0) != waits {
			t.Errorf("waits is %v, but tasks were asked for %d times", waits, asked.Load())
		}
	}
}

// TestBenchOpenLoop stalls a service, and checks that this counts for the tasks that were due meanwhile,
// though the only client did not create them.
func TestBenchOpenLoop(t *testing.T) {
	t.Parallel()
	const stall = 300 * time.Millisecond
	var requests atomic.Int64
	v, _, code := benchWith(t, t.Context(), func(http.ResponseWriter, *http.Request) bool {
		if requests.Add(1) == 2 { // after the one that is not counted
			receiveWithin(make(chan int), stall)
		}
		return false
	}, "--clients", "1", "--duration", "400ms", "--rate", "100")
	if code != 0 || v.Loop != "open" || *v.Rate != 100 || v.Tasks+uint64(v.Missed) != 40 {
		t.Errorf("got %+v, exit code %d; want 40 tasks, created or missed", v, code)
	}
	if least := 100.0; v.Missed == 0 && v.Latency["p50"] < least { // half of them were due in the first 200 ms
		t.Errorf("got a median of %v ms; want at least %v", v.Latency["p50"], least)
	}
}

// TestBenchOfFailures checks what is said of failures, and the exit codes.
func TestBenchOfFailures(t *testing.T) {
	t.Parallel()
	refuse := func(w http.ResponseWriter) bool {
		w.WriteHeader(503)
		io.WriteString(w, `{"error": {"code": "OVERLOADED", "message": "too much"}}`)
		return true
	}
	_, said, code := benchWith(t, t.Context(), func(w http.ResponseWriter, _ *http.Request) bool { return refuse(w) })
	if code != exitFailed || said != "" {
		t.Errorf("the first task fails: got %q, exit code %d", said, code)
	}
	var requests atomic.Int64
	v, _, code := benchWith(t, t.Context(), func(w http.ResponseWriter, _ *http.Request) bool {
		return requests.Add(1) > 1 && refuse(w)
	}, "--duration", "9s", "--rate", "0.1") // one is due at once, the next one after the end
	if code != exitFailed || v.Tasks > 0 || v.Errors != 1 || v.Failures["too much"] != 1 {
		t.Errorf("all fail: got %+v, exit code %d; want one error", v, code)
	}
	for _, wrong := range [][]string{{"--clients", "0"}, {"--rate", "-1"}, {"--rate", "NaN"}, {"--duration", "0s"}, {"--template", "/b"}} {
		if _, _, code := benchWith(t, t.Context(), func(http.ResponseWriter, *http.Request) bool { return false }, wrong...); code != exitUsage {
			t.Errorf("%q: got exit code %d; want %d", wrong, code, exitUsage)
		}
	}
}
