package wire

// Helpers of both packages of tests besides the contract: files, waiting, the size of a test,
// and an HTTP handler that waits.

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Patience is how long tests wait for something in real time. It is long because the machine
// may be busy.
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

// Eventually polls until the condition holds: every millisecond at first, and less often later, because a look
// takes processor time from what it waits for.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	if !Poll(holds) {
		t.Fatalf("never: %s", what)
	}
}

// Poll is Eventually for a test that has more to say than what it waits for: it reports whether the condition holds.
func Poll(holds func() bool) bool {
	pause := time.Millisecond
	next := time.NewTimer(pause)
	defer next.Stop()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	for !holds() {
		select {
		case <-next.C:
			pause = min(pause*5/4, 10*time.Millisecond)
			next.Reset(pause)
		case <-limit.C:
			return false
		}
	}
	return true
}

// skipped counts what the tests of this package left out, for the line that Main prints.
var skipped struct {
	mu      sync.Mutex
	tests   map[string]bool
	reasons map[string]int  // how many tests lack a tool, need LONG_TESTS, and so on
	tools   map[string]bool // that are missing
}

const lacking = "for want of"

func skip(t testing.TB, reason, tool, text string) {
	t.Helper()
	skipped.mu.Lock()
	if skipped.tests == nil {
		skipped.tests, skipped.reasons, skipped.tools = map[string]bool{}, map[string]int{}, map[string]bool{}
	}
	if !skipped.tests[t.Name()] {
		skipped.reasons[reason]++
	}
	skipped.tests[t.Name()] = true
	if tool != "" {
		skipped.tools[tool] = true
	}
	skipped.mu.Unlock()
	t.Skip(text)
}

// Skip skips a test for a reason that concerns neither tools nor its length.
func Skip(t testing.TB, format string, args ...any) {
	t.Helper()
	skip(t, "not for this machine or run", "", fmt.Sprintf(format, args...))
}

// Lack skips a test for want of a tool, which is more than a program on PATH.
func Lack(t testing.TB, tool, format string, args ...any) {
	t.Helper()
	skip(t, lacking, tool, fmt.Sprintf(format, args...))
}

// Need returns the path of a program, or of the first of several whose names are separated by |. Without it, the test is
// skipped.
func Need(t testing.TB, names string) (path string) {
	t.Helper()
	for name := range strings.SplitSeq(names, "|") {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Lack(t, names, "needs %s", strings.ReplaceAll(names, "|", " or "))
	return ""
}

// Slow skips a slow test with -short.
func Slow(t testing.TB) {
	t.Helper()
	if testing.Short() {
		skip(t, "too long for -short", "", "takes too long for -short")
	}
}

// Long skips a test that takes too long for every day: it runs with LONG_TESTS, as in .ci/run.
func Long(t testing.TB) {
	t.Helper()
	if os.Getenv("LONG_TESTS") == "" {
		skip(t, "only with LONG_TESTS=1", "", "takes long: set LONG_TESTS=1 to run it, as .ci/run does")
	}
}

// summary says in one line which tests were skipped and what they lack.
func summary(name string) string {
	skipped.mu.Lock()
	defer skipped.mu.Unlock()
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(skipped.reasons)) {
		part := fmt.Sprint(skipped.reasons[reason], " ", reason)
		if reason == lacking {
			part += " " + strings.Join(slices.Sorted(maps.Keys(skipped.tools)), ", ")
		}
		parts = append(parts, part)
	}
	return fmt.Sprintf("%s: skipped tests: %s\n", name, strings.Join(parts, "; "))
}

// Main is the TestMain of a package: it prepares for the tests, runs them, and says in one line what was skipped.
func Main(m *testing.M, name string, prepare, end func()) {
	Tune()
	prepare()
	code := m.Run()
	end()
	if len(skipped.tests) > 0 {
		io.WriteString(Output(), summary(name))
	}
	os.Exit(code)
}

// Output is standard error, and the terminal if that is another place: go test shows what a package prints only if its
// tests fail, or if it tests the package of the current directory.
func Output() io.Writer {
	if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return os.Stderr
	}
	if terminal, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil {
		return io.MultiWriter(os.Stderr, terminal)
	}
	return os.Stderr
}

// Tune makes the tests of a package quicker: more of them run at once, because many wait, and
// garbage is collected less often. Benchmarks stay as they are. The default client gets a transport of its own, because
// the end of a server of package httptest closes connections of the default transport, which other tests may be using.
func Tune() {
	flag.Parse()
	http.DefaultClient.Transport = http.DefaultTransport.(*http.Transport).Clone()
	if flag.Lookup("test.bench").Value.String() != "" {
		return
	}
	debug.SetGCPercent(800)
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		parallel.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0)))
	}
}

// RaceDetector reports whether the tests were built with the race detector.
func RaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// Size returns the size of a test: the long one with LONG_TESTS, as in .ci/run.
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

// NewHeldHandler starts a handler for at most that many calls.
func NewHeldHandler(t testing.TB, calls int) *HeldHandler {
	h := &HeldHandler{Called: make(chan string, calls), Release: make(chan struct{})}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		json.NewDecoder(r.Body).Decode(new(any)) // otherwise the end of the connection is not noticed
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

// ConfigFile returns a configuration file with a text.
func ConfigFile(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stepwell.toml")
	WriteFile(t, file, []byte(text))
	return file
}

// ProgramEnv returns the environment of the test without settings of the program.
func ProgramEnv() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "STEPWELL_") {
			env = append(env, v)
		}
	}
	// With the race detector, a process would wait a second before it exits.
	return append(env, "GORACE=atexit_sleep_ms=0")
}

// StartProcess runs a command until the test ends.
func StartProcess(t testing.TB, env []string, command ...string) {
	t.Helper()
	process := exec.Command(Need(t, command[0]), command[1:]...)
	process.Env = append(os.Environ(), append(env, "PYTHONDONTWRITEBYTECODE=1")...)
	var said bytes.Buffer
	process.Stdout, process.Stderr = &said, &said
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Process.Kill()
		process.Wait()
		if t.Failed() {
			t.Logf("%q said:\n%s", command, &said)
		}
	})
}

// ReceiveWithin receives a value, or gives up after a time.
func ReceiveWithin[T any](c <-chan T, d time.Duration) (v T, ok bool) {
	select {
	case v = <-c:
		return v, true
	case <-time.After(d):
		return v, false
	}
}
