package e2e

// Fixture mode of the whole program.

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// TestSandboxesOfAProgram stops a program with sandboxes, and checks that it stops in order.
func TestSandboxesOfAProgram(t *testing.T) {
	t.Parallel()
	p := serve(t, "--fixture")
	a := p.api().do("POST", "/_stepwell/sandboxes", "").want(201)
	box := &api{t, a.text("orchestration_url")}
	box.create(`{"namespace":"demo","name":"slow"}`)
	p.stop()
	if _, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", strings.TrimPrefix(box.url, "http://")); err == nil {
		t.Error("the sandbox outlived the program")
	}
}

// TestSeedKeepsItsClock starts with a state, written by hand, whose clock must be adopted.
func TestSeedKeepsItsClock(t *testing.T) {
	t.Parallel()
	const start = "2026-01-01T00:00:00.000000Z"
	file := filepath.Join(t.TempDir(), "state.jsonl")
	writeFile(t, file, []byte(`{"format": 3, "clock": {"now": "`+start+`", "mode": "frozen"}}
		{"end": {}}`))
	p := serve(t, "--fixture", "--seed", file)
	for range 2 {
		if got := p.api().do("GET", "/_stepwell/clock", "").text("now"); got != start {
			t.Errorf("the clock is at %s; want %s", got, start)
		}
		p.api().do("POST", "/_stepwell/reset", "").want(204)
	}
	p.stop()
	p = serve(t, "--memory", "--seed", file)
	if got := p.api().do("GET", "/health", "").text("timestamp"); got <= start {
		t.Errorf("without fixture mode it is %s; want the present", got)
	}
	p.stop()
}
