package e2e

// Processes that end with their parent or after a time, and many of them at once.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"stepwell/e2e/wire"
)

// launchWithPipe starts a server whose standard input is a pipe.
func launchWithPipe(t *testing.T, args ...string) (*program, io.WriteCloser) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	p := launchFile(t, programFile(t), r, nil, serveArguments(args...)...)
	r.Close()
	p.awaitReady()
	return p, w
}

// TestExitWithParent checks that the process shuts down in order, without giving handlers the ten minutes that
// they have otherwise.
func TestExitWithParent(t *testing.T) {
	t.Parallel()
	h := wire.NewHeldHandler(t, 16)
	ready := filepath.Join(t.TempDir(), "ready.json")
	p, stdin := launchWithPipe(t, "--memory", "--templates", templateDir(t, heldTemplate(h)), "--exit-with-parent", "--ready-file", ready,
		"--config", configFile(t, "[web]\nshutdown_timeout_seconds = 600\n"))
	p.api().create(createHeld)
	h.Await(t)
	fmt.Fprintln(stdin, "what a parent says is not listened to")
	p.api().do("GET", "/health/ready", "").want(200)
	stdin.Close()
	if code := p.wait(); code != 0 {
		t.Errorf("got exit code %d; want 0\n%s", code, p.stderr)
	}
	wantNoFiles(t, filepath.Dir(ready))
	wantParts(t, "log", p.stderr.String(), "the parent is gone")
}

func TestMaxLifetime(t *testing.T) {
	t.Parallel()
	began := time.Now()
	p := serve(t, "--memory", "--max-lifetime", "300ms")
	if code := p.wait(); code != 0 {
		t.Errorf("got exit code %d; want 0\n%s", code, p.stderr)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("it ended after %v; want 300 ms at least", took)
	}
	wantParts(t, "log", p.stderr.String(), "--max-lifetime")
}

// TestStartsInParallel starts processes as a test suite does, and uses each at once. A ready
// file is complete as soon as it exists, and its addresses answer.
func TestStartsInParallel(t *testing.T) {
	t.Parallel()
	slow(t)
	const width = 20
	for range size(3, 10) {
		var wg sync.WaitGroup
		for range width {
			wg.Go(func() { startAndUse(t) })
		}
		wg.Wait()
	}
}

func startAndUse(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "ready.json")
	p := launch(t, nil, serveArguments("--memory", "--quiet", "--ready-file", ready)...)
	defer p.kill()
	if !wire.Poll(func() bool { _, err := os.Stat(ready); return err == nil }) {
		t.Errorf("no ready file\n%s", p.stderr)
		return
	}
	text, err := os.ReadFile(ready)
	if err := errors.Join(err, json.Unmarshal(text, &p.ready)); err != nil {
		t.Errorf("the ready file holds %q: %v", text, err)
		return
	}
	resp, err := http.Post(p.ready.OrchestrationURL+"/v1/tasks", "application/json", strings.NewReader(`{"namespace":"demo","name":"diamond"}`))
	if err != nil {
		t.Error(err)
		return
	}
	resp.Body.Close()
	if resp.StatusCode != 201 {
		t.Errorf("the first task: got %s; want 201", resp.Status)
	}
}
