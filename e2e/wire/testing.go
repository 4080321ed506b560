package wire

// What the tests of both packages use besides the contract: files, waiting, how much
// to do, and an HTTP handler that waits.

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Patience is how long tests wait for what happens in real time. It is long because
// the machine may be busy with other things.
const Patience = 30 * time.Second

// Must returns a function that returns v, or ends the test if err is not nil: the value of
// a call f() that may fail is Must(f())(t).
func Must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// ReadFile returns the contents of a file.
func ReadFile(t testing.TB, name string) []byte {
	t.Helper()
	return Must(os.ReadFile(name))(t)
}

// WriteFile replaces the contents of a file.
func WriteFile(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Eventually polls until the condition holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("never: %s", what)
		}
	}
}

// Slow skips a test that takes long, when only the quick ones are wanted.
func Slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes too long for -short")
	}
}

// Tune prepares the tests of a package for little time: more of them run at once, because
// many wait, and memory is collected less often. Benchmarks stay as they are.
func Tune() {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() != "" {
		return
	}
	debug.SetGCPercent(400)
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		parallel.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0)))
	}
}

// RaceDetector reports whether the tests were built with the race detector.
func RaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// Size returns how much of something a test does: more when LONG_TESTS is set, as
// .ci/run sets it.
func Size(usual, long int) int {
	if os.Getenv("LONG_TESTS") != "" {
		return long
	}
	return usual
}

// ResidentBytes returns the memory that a process holds, as Linux counts it.
func ResidentBytes(t testing.TB, pid int) int64 {
	t.Helper()
	fields := strings.Fields(string(ReadFile(t, fmt.Sprintf("/proc/%d/statm", pid))))
	return Must(strconv.ParseInt(fields[1], 10, 64))(t) * int64(os.Getpagesize())
}

// HeldHandler is an HTTP handler whose calls wait until they are released.
type HeldHandler struct {
	URL     string
	Called  chan string // the Idempotency-Key of each call
	Release chan struct{}
}

// NewHeldHandler starts a handler that is called at most so many times.
func NewHeldHandler(t testing.TB, calls int) *HeldHandler {
	h := &HeldHandler{Called: make(chan string, calls), Release: make(chan struct{})}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		json.NewDecoder(r.Body).Decode(new(any)) // or the end of the connection would go unseen
		h.Called <- r.Header.Get("Idempotency-Key")
		select {
		case <-h.Release:
			fmt.Fprint(w, `"done"`)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	h.URL = s.URL
	return h
}

// Await returns the key of the next call.
func (h *HeldHandler) Await(t testing.TB) (key string) {
	t.Helper()
	select {
	case key = <-h.Called:
	case <-time.After(Patience):
		t.Fatal("the handler was not called")
	}
	return key
}
