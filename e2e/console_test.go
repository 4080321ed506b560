package e2e

// The frame of the console, and its list of tasks.

import (
	"testing"
)

// TestConsoleFrame opens the console as a person does who types the address of the service.
func TestConsoleFrame(t *testing.T) {
	t.Parallel()
	p := newPage(t)
	s := serve(t, "--memory")
	s.api().create(`{"namespace":"demo","name":"diamond"}`)
	p.open(s.ready.OrchestrationURL + "/")
	p.wait(`location.pathname === "/console"`)
	p.waitText("demo/diamond")
	p.waitText("Complete")
	p.screenshot("tasks", 1280, "light")
}
